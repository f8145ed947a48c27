"""Files that contain one message as JSON."""

from __future__ import annotations

import json

from saltvirt import errors
from saltvirt.schema import AnyMessage, Message
from saltvirt.system import atomic_file


def write(path: str, message: Message) -> None:
    """Replace a JSON file durably. Raises OperationFailed."""
    try:
        atomic_file.write(path, json.dumps(message.to_answer(), indent=1).encode())
    except OSError as exc:
        raise errors.OperationFailed(f"cannot write {path}: {exc.strerror}") from exc


def read(path: str, kind: type[AnyMessage]) -> AnyMessage | None:
    """Return the message of that class in a file, or None if the file does not exist.

    Raises BadAnswer, which names the file, if its content is wrong or cannot be read.
    """
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise errors.BadAnswer(f"{path}: it cannot be read: {exc.strerror}") from exc
    except (ValueError, RecursionError) as exc:
        raise errors.BadAnswer(f"{path}: it is not JSON: {exc}") from exc
    return kind.from_answer(data, path)
