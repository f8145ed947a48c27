"""Record the owner and the labels of each guest on the master, in a file named by the UUID that
libvirt gave to the guest.

Neither a host's answer nor the guest's record on the host, which every user of libvirt can change,
makes a user an owner or sets a label. The master's record follows the guest to other hosts and
other names, and remains after a purge: a guest that is restored as itself from a backup has its
former owner.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid as uuids
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from saltvirt import errors, names
from saltvirt.fleet import private
from saltvirt.rights.grants import ResourceAmount
from saltvirt.schema import Message, optional
from saltvirt.system import atomic_file, file_lock


@dataclass(frozen=True)
class Owner(Message):
    """The owner of one guest. guest: its name when the record was written. labels: labels that
    grants refer to."""

    guest: str
    owner: str | None = None
    labels: tuple[str, ...] = optional(())


@dataclass(frozen=True)
class PendingGuest(Message):
    """A guest that is being created for a user."""

    owner: str
    vcpus: int
    memory_kib: int
    disk_bytes: int

    def amount(self) -> ResourceAmount:
        """Return the resources that the guest will take."""
        return ResourceAmount(1, self.vcpus, self.memory_kib, self.disk_bytes)


def _folder(opts: file_lock.Opts) -> Path:
    return Path(opts["pki_dir"]) / "virtowners"


def _making(opts: file_lock.Opts) -> Path:
    return Path(opts["cachedir"]) / "virt" / "rights" / "making"


def _unrecorded(opts: file_lock.Opts) -> Path:
    return _making(opts).parent / "unrecorded"


def normalize_uuid(uuid: str) -> str | None:
    """Return the canonical spelling of a UUID; None if the text is not a UUID."""
    try:
        return str(uuids.UUID(uuid))
    except ValueError:
        return None


def _path(opts: file_lock.Opts, uuid: str) -> Path | None:
    """Return the file of a guest; None if the text is not a UUID."""
    name = normalize_uuid(uuid)
    return None if name is None else _folder(opts) / name


def load(opts: file_lock.Opts, uuid: str) -> Owner:
    """Return the record of the guest with that UUID, without an owner if none is recorded. Raises
    BadAnswer if the file is damaged, so that no user is mistaken for the owner."""
    path = _path(opts, uuid)
    if path is None:
        return Owner("")
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Owner("")
    try:
        return Owner.from_answer(json.loads(text), str(path))
    except (ValueError, RecursionError) as exc:
        raise errors.BadAnswer(f"{path} is damaged: remove it, and record the owner again") from exc


def load_named(opts: file_lock.Opts, name: str) -> list[Owner]:
    """Return the records of all guests that had this name when their record was written. Raises
    BadAnswer as :func:`load` does."""
    records = (load(opts, path.name) for path in sorted(_folder(opts).glob("[!.]*")))
    return [record for record in records if record.guest == name]


def set_owner(opts: file_lock.Opts, uuid: str, guest: str, owner: str | None) -> None:
    """Make this user the guest's owner; None: no owner. Raises OperationFailed."""
    _write(opts, uuid, replace(load(opts, uuid), guest=guest, owner=owner))


def set_labels(opts: file_lock.Opts, uuid: str, guest: str, labels: tuple[str, ...]) -> None:
    """Replace the guest's labels. Raises OperationFailed."""
    _write(opts, uuid, replace(load(opts, uuid), guest=guest, labels=labels))


def _write(opts: file_lock.Opts, uuid: str, record: Owner) -> None:
    path = _path(opts, uuid)
    if path is None:
        raise errors.OperationFailed(f"{record.guest} has no valid UUID: {uuid!r}")
    if record.owner is None and not record.labels:
        path.unlink(missing_ok=True)
    else:
        private.write(str(path), json.dumps(record.to_answer()))


@contextlib.contextmanager
def one_at_a_time(opts: file_lock.Opts) -> Iterator[None]:
    """Hold the lock of all ownership changes for the block: from the check of existing and pending
    guests to the call of making(). Raises OperationFailed after ``virt:queue_timeout``."""
    path = _making(opts).parent / "lock"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with file_lock.held(opts, path, "a quota check"):
        yield


@contextlib.contextmanager
def making(opts: file_lock.Opts, pending_guests: dict[str, PendingGuest]) -> Iterator[None]:
    """Count the pending guests (name to PendingGuest) until the block ends, or the process dies.
    Call this while one_at_a_time() is held."""
    folder, handles = _making(opts), []
    try:
        for name, record in pending_guests.items():
            text = json.dumps(record.to_answer())
            handles.append(private.write_locked(str(folder / name), text))
        yield
    finally:
        for name in pending_guests:
            (folder / name).unlink(missing_ok=True)
        for handle in handles:
            os.close(handle)


def store_unrecorded(opts: file_lock.Opts, name: str) -> None:
    """Keep counting a guest for its user, because the guest was or may have been created and its
    owner could not be recorded. Call this within making(): renaming the file works even if the disk
    is full. Raises OSError."""
    folder = _unrecorded(opts)
    folder.mkdir(mode=0o700, exist_ok=True)
    atomic_file.rename(_making(opts) / name, folder / name)


def unrecorded(opts: file_lock.Opts) -> dict[str, PendingGuest]:
    """Return name to PendingGuest of the guests whose owners could not be recorded, or whose
    process died before that. These guests may exist."""
    return _read_pending((_making(opts), _unrecorded(opts)), being_made=False)


def being_made(opts: file_lock.Opts) -> dict[str, PendingGuest]:
    """Return name to PendingGuest of all guests that are being created for users. Call this while
    one_at_a_time() is held. For processes that died, see unrecorded()."""
    return _read_pending((_making(opts),), being_made=True)


def _read_pending(folders: Iterable[Path], being_made: bool) -> dict[str, PendingGuest]:
    pending_guests: dict[str, PendingGuest] = {}
    for path in (path for folder in folders for path in sorted(folder.glob("[!.]*"))):
        with contextlib.suppress(FileNotFoundError):
            if file_lock.is_taken(path) is being_made:
                data: Any = json.loads(path.read_text(encoding="utf-8"))
                pending_guests[path.name] = PendingGuest.from_answer(data, str(path))
    return pending_guests


def forget_unrecorded(opts: file_lock.Opts, name: str) -> None:
    """Remove the record: the guest does not exist, or its owner is recorded. Records of guests that
    are being created are kept."""
    for folder in (_making(opts), _unrecorded(opts)):
        path = folder / name
        with contextlib.suppress(FileNotFoundError):
            if not file_lock.is_taken(path):
                path.unlink()


def maker(opts: file_lock.Opts, name: str) -> str | None:
    """Return the user for whom a guest of this name is being created, or None."""
    with contextlib.suppress(OSError, ValueError, errors.BadAnswer, errors.InvalidInput):
        path = _making(opts) / names.guest(name)
        if not file_lock.is_taken(path):
            return None
        data: Any = json.loads(path.read_text(encoding="utf-8"))
        return PendingGuest.from_answer(data, name).owner
    return None
