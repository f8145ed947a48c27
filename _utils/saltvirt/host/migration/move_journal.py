"""What a migration has begun on this host, written down before it is done.

A process that is killed leaves its journal; whoever comes next ends what it began.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType

from saltvirt import errors
from saltvirt.answers.migration import UnfinishedMigration
from saltvirt.host import own_files, paths
from saltvirt.host.connection import libvirt
from saltvirt.migration.journal import MOVING, JournalEntry, TargetLeftovers
from saltvirt.schema import AnyMessage, Message

FOLDER = f"{paths.STATE}/migrations"


class MigrationJournal:
    """The journal of one guest, held by one process at a time.

    folder: where the journals are; name: the guest's. Use as a context manager: raises
    OperationFailed when another process is migrating this guest.
    """

    def __init__(self, folder: str, name: str):
        self.path = os.path.join(folder, f"{name}.json")
        self.name = name
        self._lock: int | None = None

    def __enter__(self) -> MigrationJournal:
        with own_files.permitted():
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            while self._lock is None:
                self._lock = self._try_lock()
        self._forget("abort")
        return self

    def _try_lock(self) -> int | None:
        """The locked file, or None when its last holder has just removed it."""
        handle = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.stat(f"{self.path}.lock").st_ino == os.fstat(handle).st_ino:
                return handle
        except BlockingIOError as exc:
            os.close(handle)
            raise errors.OperationFailed(
                f"another migration of {self.name} is at work here: wait for it, "
                "or end it with virt.migrate_abort"
            ) from exc
        except FileNotFoundError:
            pass
        os.close(handle)
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._forget("abort")
        os.unlink(f"{self.path}.lock")
        if self._lock is not None:
            os.close(self._lock)
        self._lock = None

    def read(self) -> JournalEntry | None:
        """What is written, or None. Raises BadAnswer, which names the file and what to do."""
        try:
            return read(self.path, JournalEntry)
        except errors.BadAnswer as exc:
            raise errors.BadAnswer(
                f"{exc}; it said how a migration of {self.name} from here went: look which host "
                "has the guest, and remove the file when only one has"
            ) from exc

    def require_entry(self) -> JournalEntry:
        """What is written of a migration that has begun."""
        entry = self.read()
        if entry is None:
            raise errors.OperationFailed(f"no migration of {self.name} from here is unfinished")
        return entry

    def write(self, entry: JournalEntry) -> None:
        """Replaces the journal, on the disk before this returns."""
        store(self.path, entry)

    def abort_requested(self) -> bool:
        """Whether virt.migrate_abort has asked for it."""
        return os.path.exists(f"{self.path}.abort")

    def request_abort(self) -> None:
        """Tells the process that holds the journal."""
        os.close(os.open(f"{self.path}.abort", os.O_WRONLY | os.O_CREAT, 0o600))

    def close(self) -> None:
        """The migration is over, well or undone: nothing is left to do."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        self._forget("new")

    def _forget(self, suffix: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self.path}.{suffix}")


def store(path: str, fact: Message) -> None:
    """Replaces a file of JSON, on the disk before this returns. Raises OperationFailed."""
    try:
        _write(path, json.dumps(fact.to_answer(), indent=1))
    except OSError as exc:
        raise errors.OperationFailed(f"cannot write {path}: {exc.strerror}") from exc


def _write(path: str, text: str) -> None:
    fd = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(fd, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.new", path)
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read(path: str, kind: type[AnyMessage]) -> AnyMessage | None:
    """The Fact of that class in a file, or None when there is no file.

    Raises BadAnswer, which names the file, where something else is in it or it cannot be read.
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


def names(folder: str = FOLDER) -> list[str]:
    """The guests that have a journal here, sorted. Raises OperationFailed."""
    with own_files.permitted(), contextlib.suppress(FileNotFoundError):
        return sorted(f.removesuffix(".json") for f in os.listdir(folder) if f.endswith(".json"))
    return []


def load_for_domain(dom: libvirt.virDomain, folder: str = FOLDER) -> JournalEntry | None:
    """What is written of a migration of this domain from here that is not over; None without."""
    entry = MigrationJournal(folder, dom.name()).read()
    is_current = entry and not entry.over and entry.report.uuid == dom.UUIDString()
    return entry if is_current else None


def require_startable(dom: libvirt.virDomain, folder: str = FOLDER) -> None:
    """Raises OperationFailed for a guest that may be on another host, too: its migration there
    was broken off when both could have it."""
    entry = load_for_domain(dom, folder)
    if entry and entry.phase == MOVING:
        raise errors.OperationFailed(
            f"{dom.name()} may be on the target of a migration that was broken off, "
            f"{entry.target}: salt-run virt.migrate_recover {dom.name()} finds out, first"
        )


def at_work(journal: MigrationJournal) -> bool:
    """Whether a process holds the journal, this one included; who holds it goes on to."""
    try:
        with MigrationJournal(os.path.dirname(journal.path), journal.name):
            return False
    except errors.OperationFailed:
        return True


def unfinished(folder: str = FOLDER) -> dict[str, UnfinishedMigration]:
    """The migrations that have a journal, by the name of the guest."""
    by_guest = {}
    for name in names(folder):
        journal = MigrationJournal(folder, name)
        migration = describe(journal.read)
        if migration:
            by_guest[name] = replace(migration, at_work=at_work(journal))
    return by_guest


def describe(
    read_entry: Callable[[], JournalEntry | TargetLeftovers | None],
) -> UnfinishedMigration | None:
    """What is read of a migration, None without it."""
    try:
        entry = read_entry()
    except errors.BadAnswer as exc:
        return UnfinishedMigration("", wrong=str(exc))
    if entry is None:
        return None
    uuid = entry.report.uuid if isinstance(entry, JournalEntry) else None
    return UnfinishedMigration(entry.target, uuid=uuid)
