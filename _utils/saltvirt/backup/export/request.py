"""What one backup has to do on this host, and what it has begun."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass

from saltvirt import errors, settings
from saltvirt.backup.model.answers import PlannedDisk
from saltvirt.backup.target import relay
from saltvirt.host import paths
from saltvirt.images import locks
from saltvirt.schema import Message, optional
from saltvirt.system.tls_listener import TlsEndpoint

JOURNALS = f"{paths.STATE}/backups"
RUN = f"{paths.RUN}/backups"


@dataclass(frozen=True)
class ServeRequest(Message):
    """guest: its name. ident: of the backup. uri, username, password: of libvirt. locks: the folder
    of the guests' locks. scratch: where QEMU keeps what the guest overwrites meanwhile. host: how
    this host is called in its certificate. door: where, and to whom, they are shown. scratch_mib:
    so much may be kept there of this guest; None: as much as there is room for."""

    guest: str
    ident: str
    disks: tuple[PlannedDisk, ...]
    uri: str | None
    username: str | None
    password: str | None
    locks: str
    scratch: str
    host: str
    door: TlsEndpoint
    scratch_mib: int | None = optional(None)


# who wants to begin one, even of the same name: it may be a job that was sent twice
ANY_BACKUP = ""


@dataclass(frozen=True)
class EndRequest(Message):
    """ident: of the backup; ANOTHER: whichever it is, if nobody reads it. good: it is there, whole.
    needed: the guest's checkpoints from which next increments begin."""

    ident: str
    good: bool
    needed: tuple[str, ...] = ()


@dataclass(frozen=True)
class BackupSession(Message):
    """What was begun, written down before it is. scratch: a folder of its own. frozen: file systems
    may be. paused: the guest was, by an error of a disk."""

    guest: str
    uuid: str
    ident: str
    scratch: str
    active: bool
    frozen: bool = False
    paused: bool = False


def list_sessions() -> list[BackupSession]:
    """What backups have begun on this host and not ended, by processes that live or died."""
    sessions = []
    for path in sorted(glob.glob(os.path.join(JOURNALS, "*.json"))):
        suppressed = contextlib.suppress(OSError, ValueError, errors.BadAnswer)
        with suppressed, open(path, encoding="utf-8") as file:
            sessions.append(BackupSession.from_answer(json.load(file), path))
    return sessions


def interrupted_guests() -> list[str]:
    """The guests of whose backups something is left here by processes that died."""
    guests = []
    for session in list_sessions():
        with contextlib.suppress(errors.VirtError), BackupJournal(session.guest).lock() as journal:
            if journal.read():
                guests.append(session.guest)
    return guests


class BackupJournal:
    """What a backup of a guest has begun here. One process has it at a time."""

    def __init__(self, guest: str) -> None:
        self.guest = guest
        self._path = os.path.join(JOURNALS, f"{_file_stem(guest)}.json")

    @contextlib.contextmanager
    def lock(self) -> Iterator[BackupJournal]:
        """For the block nobody else backs the guest up here. Raises OperationFailed."""
        path = os.path.join(locks.private(RUN), f"{_file_stem(self.guest)}.lock")
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as exc:
                raise errors.OperationFailed(
                    f"another backup of {self.guest} is under way here: wait for it"
                ) from exc
            yield self
        finally:
            os.close(handle)

    def read(self) -> BackupSession | None:
        """What is written, None where nothing is."""
        try:
            with open(self._path, encoding="utf-8") as file:
                return BackupSession.from_answer(json.load(file), self._path)
        except FileNotFoundError:
            return None
        except ValueError as exc:
            raise errors.BadAnswer(f"{self._path} is damaged: remove it ({exc})") from exc

    def write(self, session: BackupSession | None) -> None:
        """Puts it down, on the disk; None: all of it was ended."""
        if session is None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)
            return
        os.makedirs(JOURNALS, 0o700, exist_ok=True)
        with open(f"{self._path}.new", "w", encoding="utf-8") as file:
            json.dump(session.to_answer(), file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(f"{self._path}.new", self._path)


def socket_path(guest: str) -> str:
    """Where the process that keeps a guest's disks served is spoken to."""
    return os.path.join(RUN, f"{_file_stem(guest)}.sock")


def exports_path(guest: str) -> str:
    """Where the disks of one that is off are shown on this host."""
    return os.path.join(RUN, f"{_file_stem(guest)}.nbd")


def state_path(guest: str) -> str:
    """What it has beside its disks, as long as that is shown."""
    return os.path.join(RUN, f"{_file_stem(guest)}.state")


def state_exports_path(guest: str) -> str:
    """Where that is shown on this host."""
    return os.path.join(RUN, f"{_file_stem(guest)}.state.nbd")


def runtime_files(guest: str) -> tuple[str, ...]:
    """What a process that kept the guest served, and was killed, may have left."""
    return socket_path(guest), exports_path(guest), state_exports_path(guest), state_path(guest)


def end_reason_path(guest: str) -> str:
    """Where it says why it ended by itself."""
    return os.path.join(RUN, f"{_file_stem(guest)}.ended")


def _file_stem(guest: str) -> str:
    """A socket's path has no room for the longest names."""
    return hashlib.sha256(guest.encode("utf-8", "replace")).hexdigest()[:32]


@dataclass(frozen=True)
class ExportConfig:
    """Where this host shows disks. host: how it is called in its certificate. port: the first.
    scratch: the folder where QEMU keeps what guests overwrite meanwhile. scratch_mib: so much of
    one guest."""

    host: str
    port: int
    scratch: str
    scratch_mib: int | None = None


def load_config(get: settings.Get, minion_id: str) -> ExportConfig:
    """By the configuration of this host. get: Salt's ``config.get``. Raises InvalidInput."""
    images = settings.text(get, "images", settings.IMAGES_FOLDER)
    if not images.startswith("/"):  # a pool
        images = settings.IMAGES_FOLDER
    return ExportConfig(
        settings.text(get, "backup:address", minion_id),
        settings.integer(get, "backup:port", relay.PORT, maximum=65535 - relay.PORTS),
        os.path.join(images, "_backup"),
        settings.integer(get, "backup:scratch_mib", None),
    )
