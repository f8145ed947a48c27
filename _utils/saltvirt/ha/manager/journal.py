"""The journal of decisions, actions and requests, with their reasons: a line of JSON each, limited
in size."""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import Any

from saltvirt import sanitize
from saltvirt.ha.manager import files
from saltvirt.system import atomic_file, file_lock

# maximum size of each of the two files
MAX_BYTES = 8 * 1024**2
_MAX_TEXT = 2000


class HaJournal:
    """The journal of a master. Several processes may write it."""

    def __init__(self, opts: file_lock.Opts, max_bytes: int = MAX_BYTES) -> None:
        self.path = files.folder(opts) / "journal.jsonl"
        self.max_bytes = max_bytes

    def write(self, kind: str, name: str, **details: Any) -> None:
        """Append a line. Raises OSError."""
        timestamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        values = {key: _limited(value) for key, value in details.items()}
        line = json.dumps({"at": timestamp, "kind": kind, "name": _limited(name), **values}) + "\n"
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(
            self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        try:
            os.write(handle, line.encode())
            full = os.fstat(handle).st_size > self.max_bytes
        finally:
            os.close(handle)
        if full:
            with contextlib.suppress(FileNotFoundError):  # another process has renamed it
                atomic_file.rename(self.path, self._older(), durable=False)

    def _older(self) -> Path:
        return self.path.with_suffix(".jsonl.1")

    def last(self, count: int) -> list[dict[str, Any]]:
        """Return the last lines, the oldest first, without lines that are incomplete."""
        entries: list[dict[str, Any]] = []
        for path in (self._older(), self.path):
            with contextlib.suppress(FileNotFoundError):
                for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                    with contextlib.suppress(ValueError):
                        entry = json.loads(line)
                        entries += [entry] if isinstance(entry, dict) else []
        return entries[-count:]


def _limited(value: object) -> object:
    return sanitize.one_line(value, _MAX_TEXT) if isinstance(value, str) else value
