"""Record the last call of each deployment on this master: its list of guests cannot be asked for.

The record only informs: which guests a deployment has created is recorded in their definitions.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from saltvirt import errors
from saltvirt.fleet import private
from saltvirt.schema import Message, optional
from saltvirt.system import file_lock

MAX_RECORDS = 1000

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ListedGuest(Message):
    """A guest as a deployment lists it. size_bytes: of the disks that it names. error:
    why the last call failed for it."""

    vcpus: int
    memory_kib: int
    image: str | None = optional(None)
    size_bytes: int | None = optional(None)
    error: str | None = optional(None)


@dataclass(frozen=True)
class DeploymentRecord(Message):
    """The last call of a deployment. time: when it began, in UTC. result: None while it runs, and
    if it was killed. errors: guests that are not listed, to why they were not removed."""

    name: str
    time: str
    user: str
    remove: bool
    guests: dict[str, ListedGuest]
    result: bool | None = optional(None)
    errors: dict[str, str] = optional({})


def store(opts: file_lock.Opts, record: DeploymentRecord) -> None:
    """Replace the record of the deployment. A failure is only logged: a deployment does not depend
    on it."""
    try:
        private.write(str(_path(opts, record.name)), json.dumps(record.to_answer()))
        _remove_oldest(opts)
    except (OSError, ValueError) as exc:
        log.warning("deployment %s was not recorded: %s", record.name, exc)


def forget(opts: file_lock.Opts, record: DeploymentRecord) -> None:
    """Remove the record of a deployment, unless another call has replaced it."""
    path = _path(opts, record.name)
    with contextlib.suppress(OSError, ValueError, RecursionError, errors.BadAnswer):
        if _read(path) == record:
            path.unlink()


def read_all(opts: file_lock.Opts) -> dict[str, DeploymentRecord]:
    """Return the records by the names of the deployments; what cannot be read is left out."""
    return {record.name: record for record in _records(opts)}


def _records(opts: file_lock.Opts) -> Iterator[DeploymentRecord]:
    for path in _folder(opts).glob("[0-9a-f]*"):
        with contextlib.suppress(OSError, ValueError, RecursionError, errors.BadAnswer):
            yield _read(path)


def _read(path: Path) -> DeploymentRecord:
    return DeploymentRecord.from_answer(json.loads(path.read_text("utf-8")), str(path))


def _remove_oldest(opts: file_lock.Opts) -> None:
    times = {}
    for path in _folder(opts).glob("[0-9a-f]*"):
        with contextlib.suppress(FileNotFoundError):  # another process has removed it
            times[path] = path.stat().st_mtime
    for path in sorted(times, key=times.__getitem__)[:-MAX_RECORDS]:
        path.unlink(missing_ok=True)


def _folder(opts: file_lock.Opts) -> Path:
    return Path(opts["cachedir"]) / "virt" / "deployed"


def _path(opts: file_lock.Opts, name: str) -> Path:
    return _folder(opts) / hashlib.sha256(name.encode(errors="replace")).hexdigest()
