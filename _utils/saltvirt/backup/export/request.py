"""Requests for the export of a guest's disks, and the journal of running exports."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from saltvirt import errors, settings
from saltvirt.backup.model.answers import PlannedDisk
from saltvirt.backup.target import relay
from saltvirt.schema import Message, optional
from saltvirt.system import atomic_file, file_lock, paths, private_folder
from saltvirt.system.tls_listener import TlsEndpoint

JOURNALS = f"{paths.STATE}/backups"
RUN = f"{paths.RUN}/backups"


@dataclass(frozen=True)
class ServeRequest(Message):
    """Request for an export.

    guest: its name. uri, username, password: of the connection to libvirt. locks: folder of the
    guests' locks. scratch: where QEMU keeps overwritten blocks. host: name of this host in its
    certificate. endpoint: address, and the permitted reader. scratch_mib: limit for the overwritten
    blocks of this guest; None: no limit.
    """

    guest: str
    backup_id: str
    disks: tuple[PlannedDisk, ...]
    uri: str | None
    username: str | None
    password: str | None
    locks: str
    scratch: str
    host: str
    endpoint: TlsEndpoint
    scratch_mib: int | None = optional(None)


# requests the end of any backup, even of the same name: the job may have been sent twice
ANY_BACKUP = ""


@dataclass(frozen=True)
class EndRequest(Message):
    """Request to end an export.

    backup_id: of the backup; ANY_BACKUP: any that has no reader. good: the backup is complete.
    needed: checkpoints of the guest from which next increments begin.
    """

    backup_id: str
    good: bool
    needed: tuple[str, ...] = ()


@dataclass(frozen=True)
class BackupSession(Message):
    """Journal entry, written before the export starts. scratch: folder of this export. frozen: file
    systems may be frozen. paused: the guest was already paused by a disk error."""

    ALIASES: ClassVar[dict[str, str]] = {"ident": "backup_id"}

    guest: str
    uuid: str
    backup_id: str
    scratch: str
    active: bool
    frozen: bool = False
    paused: bool = False


def list_sessions() -> list[BackupSession]:
    """Return the sessions on this host, of running and dead processes."""
    sessions = []
    for path in sorted(glob.glob(os.path.join(JOURNALS, "*.json"))):
        suppressed = contextlib.suppress(OSError, ValueError, errors.BadAnswer)
        with suppressed, open(path, encoding="utf-8") as file:
            sessions.append(BackupSession.from_answer(json.load(file), path))
    return sessions


def interrupted_guests() -> list[str]:
    """Return the guests whose export was left by a dead process."""
    guests = []
    for session in list_sessions():
        with contextlib.suppress(errors.VirtError), BackupJournal(session.guest).lock() as journal:
            if journal.read():
                guests.append(session.guest)
    return guests


class BackupJournal:
    """Journal of the export of one guest. One process holds it at a time."""

    def __init__(self, guest: str) -> None:
        self.guest = guest
        self._path = os.path.join(JOURNALS, f"{_file_stem(guest)}.json")

    @contextlib.contextmanager
    def lock(self) -> Iterator[BackupJournal]:
        """Lock the journal for the block. Raises OperationFailed."""
        path = os.path.join(private_folder.ensure(RUN), f"{_file_stem(self.guest)}.lock")
        handle = file_lock.acquire(path)
        if handle is None:
            raise errors.OperationFailed(
                f"another backup of {self.guest} is running on this host: wait until it is done"
            )
        try:
            yield self
        finally:
            os.close(handle)

    def read(self) -> BackupSession | None:
        """Return the entry, or None."""
        try:
            with open(self._path, encoding="utf-8") as file:
                return BackupSession.from_answer(json.load(file), self._path)
        except FileNotFoundError:
            return None
        except ValueError as exc:
            raise errors.BadAnswer(f"{self._path} is damaged: remove it ({exc})") from exc

    def write(self, session: BackupSession | None) -> None:
        """Store the entry and flush it to disk; None: remove it."""
        if session is None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)
            return
        os.makedirs(JOURNALS, 0o700, exist_ok=True)
        atomic_file.write(self._path, json.dumps(session.to_answer()).encode())


def socket_path(guest: str) -> str:
    """Path of the control socket of a guest's export server."""
    return os.path.join(RUN, f"{_file_stem(guest)}.sock")


def exports_path(guest: str) -> str:
    """Path of the NBD socket for a guest that is off."""
    return os.path.join(RUN, f"{_file_stem(guest)}.nbd")


def state_path(guest: str) -> str:
    """Path of the exported state archive."""
    return os.path.join(RUN, f"{_file_stem(guest)}.state")


def state_exports_path(guest: str) -> str:
    """Path of the NBD socket for the state archive."""
    return os.path.join(RUN, f"{_file_stem(guest)}.state.nbd")


def runtime_files(guest: str) -> tuple[str, ...]:
    """Return the files that a killed export server may leave."""
    return socket_path(guest), exports_path(guest), state_exports_path(guest), state_path(guest)


def end_reason_path(guest: str) -> str:
    """Path of the file with the reason for the end of an export."""
    return os.path.join(RUN, f"{_file_stem(guest)}.ended")


def _file_stem(guest: str) -> str:
    """Shorten a name, because socket paths are limited."""
    return hashlib.sha256(guest.encode("utf-8", "replace")).hexdigest()[:32]


@dataclass(frozen=True)
class ExportConfig:
    """Configuration of exports. host: name of this host in its certificate. port: the first of the
    range. scratch: folder for overwritten blocks. scratch_mib: limit for one guest."""

    host: str
    port: int
    scratch: str
    scratch_mib: int | None = None


def load_config(get: settings.Get, minion_id: str) -> ExportConfig:
    """Read the configuration of this host. get: Salt's ``config.get``. Raises InvalidInput."""
    images = settings.text(get, "images", settings.IMAGES_FOLDER)
    if not images.startswith("/"):  # a pool
        images = settings.IMAGES_FOLDER
    return ExportConfig(
        settings.text(get, "backup:address", minion_id),
        settings.integer(get, "backup:port", relay.PORT, maximum=65535 - relay.PORTS),
        os.path.join(images, "_backup"),
        settings.integer(get, "backup:scratch_mib", None),
    )
