"""Live restores: guests that run from a backup on another machine until all blocks are copied.

The module records which operations are refused for such a guest: one file for each guest, by its
name.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import quote

from saltvirt import errors
from saltvirt.host import own_files
from saltvirt.schema import Message
from saltvirt.system import file_lock, message_file, paths

FOLDER = f"{paths.STATE}/stands"
# a process that only checks the lock holds it for a moment
_LOCK_WAIT_S = 1
# operations that neither move the guest nor read its disks as if they were complete
ALLOWED = frozenset({
    "virt.start", "virt.shutdown", "virt.stop", "virt.pause", "virt.resume", "virt.reboot",
    "virt.reset", "virt.full_info", "virt.setmem", "virt.setvcpus", "virt.set_autostart",
    "virt.purge", "virt.backup_restore", "virt.backup_undo", "virt.backup_again",
    "virt.backup_standing", "virt.backup_wish",
})  # fmt: skip


@dataclass(frozen=True)
class LiveRestoreRecord(Message):
    """uuid: of the guest. host, port, authority: the machine that exports the backup, and the
    certificate that identifies it. disks: those that used the backup at the beginning. policies:
    libvirt's previous error_policy and rerror_policy by disk."""

    ALIASES: ClassVar[dict[str, str]] = {"ident": "backup_id"}

    guest: str
    uuid: str
    backup_id: str
    host: str
    port: int
    authority: str
    disks: tuple[str, ...]
    bandwidth_mib_s: int | None = None
    policies: dict[str, tuple[str, ...]] | None = None


def store(record: LiveRestoreRecord) -> None:
    """Write the record durably. Raises OperationFailed."""
    with own_files.permitted():
        os.makedirs(FOLDER, mode=0o700, exist_ok=True)
        message_file.write(_path(record.guest), record)


def load(name: str) -> LiveRestoreRecord | None:
    """Return the guest's record, or None. Raises OperationFailed if the file cannot be read."""
    return _read(_path(name))


def _read(path: str) -> LiveRestoreRecord | None:
    try:
        return message_file.read(path, LiveRestoreRecord)
    except errors.BadAnswer as exc:
        raise errors.OperationFailed(
            f"{path} cannot be read: {exc}; it records from which backup a guest runs: repair it"
        ) from exc


def forget(name: str) -> None:
    """Remove the record: the guest no longer uses a backup."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_path(name))


def load_all() -> Iterator[LiveRestoreRecord]:
    """Return all records of this host. Raises as :func:`load`."""
    with own_files.permitted():
        files = os.listdir(FOLDER) if os.path.isdir(FOLDER) else []
    for file in sorted(name for name in files if name.endswith(".json")):
        record = _read(os.path.join(FOLDER, file))
        if record:
            yield record


@contextlib.contextmanager
def server_lock(name: str) -> Iterator[None]:
    """Mark this process as the one that serves the backup on this host. Raises OperationFailed if
    another process does."""
    with open(_lock(name), "a+", encoding="ascii") as file:
        if not file_lock.lock(file, timeout_s=_LOCK_WAIT_S):
            raise errors.OperationFailed(
                f"another process serves the backup from which {name} runs"
            )
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def server_pid(name: str) -> int | None:
    """Return the process that serves the backup on this host, or None."""
    try:
        with open(_lock(name), encoding="ascii") as file:
            if not file_lock.lock(file, shared=True):
                return int(file.read(20) or 0) or None
    except (FileNotFoundError, ValueError):
        pass
    return None


def may_start(name: str) -> None:
    """Raise OperationFailed if the blocks of the guest cannot be read now."""
    record = load(name)
    if record and server_pid(name) is None:
        raise errors.OperationFailed(
            f"{name} runs from the backup {record.backup_id}, which is not exported to this host: "
            f"run salt-run virt.backup_instant {name} to export it again, then start the guest"
        )


def _lock(name: str) -> str:
    os.makedirs(FOLDER, mode=0o700, exist_ok=True)
    return f"{_path(name).removesuffix('.json')}.lock"


def refuse(operation: str, name: str) -> None:
    """Raise Refused if the operation is not allowed for the guest now."""
    if operation.partition(" ")[0] in ALLOWED or not os.path.exists(_path(name)):
        return
    record = load(name)
    if record:
        raise errors.Refused(
            f"{name} still runs from the backup {record.backup_id}: {operation} is refused until "
            f"all its blocks are copied; salt-run virt.backup_instant {name} waits for that"
        )


def _path(name: str) -> str:
    return os.path.join(FOLDER, f"{quote(name, '', errors='surrogatepass')[:200]}.json")
