"""The journal of migrations from this host, written before each step.

A killed process leaves its journal; the next operation ends what it began.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType

from saltvirt import errors
from saltvirt.answers.migration import UnfinishedMigration
from saltvirt.host import own_files
from saltvirt.host.connection import libvirt
from saltvirt.migration.journal import MOVING, JournalEntry, TargetLeftovers
from saltvirt.system import file_lock, message_file, paths

FOLDER = f"{paths.STATE}/migrations"


class MigrationJournal:
    """The journal of one guest, locked by one process at a time.

    folder: of the journals; name: the guest's. A context manager: raises OperationFailed if another
    process is migrating this guest.
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
        """Return the descriptor of the locked file, or None if the last owner has just removed
        it."""
        handle = file_lock.acquire(f"{self.path}.lock")
        if handle is None:
            raise errors.OperationFailed(
                f"another migration of {self.name} is in progress on this host: wait for it, "
                "or abort it with virt.migrate_abort"
            )
        if file_lock.is_current(handle, f"{self.path}.lock"):
            return handle
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
        """Return the entry, or None. Raises BadAnswer, which names the file and what to do."""
        try:
            return message_file.read(self.path, JournalEntry)
        except errors.BadAnswer as exc:
            raise errors.BadAnswer(
                f"{exc}; it recorded a migration of {self.name} from this host: check which host "
                "has the guest, and remove the file if only one has it"
            ) from exc

    def require_entry(self) -> JournalEntry:
        """Return the entry. Raises OperationFailed without one."""
        entry = self.read()
        if entry is None:
            raise errors.OperationFailed(f"no migration of {self.name} from here is unfinished")
        return entry

    def write(self, entry: JournalEntry) -> None:
        """Replace the entry durably."""
        message_file.write(self.path, entry)

    def abort_requested(self) -> bool:
        """Return whether virt.migrate_abort has requested the end of the migration."""
        return os.path.exists(f"{self.path}.abort")

    def request_abort(self) -> None:
        """Request the end of the migration from the process that holds the journal."""
        os.close(os.open(f"{self.path}.abort", os.O_WRONLY | os.O_CREAT, 0o600))

    def close(self) -> None:
        """Remove the entry: the migration is complete, or rolled back."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        self._forget("new")

    def _forget(self, suffix: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self.path}.{suffix}")


def names(folder: str = FOLDER) -> list[str]:
    """Return the guests that have a journal on this host, sorted. Raises OperationFailed."""
    with own_files.permitted(), contextlib.suppress(FileNotFoundError):
        return sorted(f.removesuffix(".json") for f in os.listdir(folder) if f.endswith(".json"))
    return []


def load_for_domain(dom: libvirt.virDomain, folder: str = FOLDER) -> JournalEntry | None:
    """Return the entry of an incomplete migration of this domain from this host; None without
    one."""
    entry = MigrationJournal(folder, dom.name()).read()
    is_current = entry and not entry.completed and entry.report.uuid == dom.UUIDString()
    return entry if is_current else None


def require_startable(dom: libvirt.virDomain, folder: str = FOLDER) -> None:
    """Raise OperationFailed for a guest that may be on another host, too, because its migration
    there was interrupted when both could have it."""
    entry = load_for_domain(dom, folder)
    if entry and entry.phase == MOVING:
        raise errors.OperationFailed(
            f"{dom.name()} may be on {entry.target}, the target of an interrupted "
            f"migration: run salt-run virt.migrate_recover {dom.name()} first"
        )


def at_work(journal: MigrationJournal) -> bool:
    """Return whether a process holds the journal, including this one."""
    try:
        with MigrationJournal(os.path.dirname(journal.path), journal.name):
            return False
    except errors.OperationFailed:
        return True


def unfinished(folder: str = FOLDER) -> dict[str, UnfinishedMigration]:
    """Return the migrations that have a journal, by the name of the guest."""
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
    """Return the description of an unfinished migration, None without one."""
    try:
        entry = read_entry()
    except errors.BadAnswer as exc:
        return UnfinishedMigration("", problem=str(exc))
    if entry is None:
        return None
    uuid = entry.report.uuid if isinstance(entry, JournalEntry) else None
    return UnfinishedMigration(entry.target, uuid=uuid)
