"""Who has deployed which guest, and its labels: the master's own record, a file for each UUID that
libvirt gave.

A host's word makes nobody an owner and no label, and neither does a guest's record there, which
whoever uses libvirt may change. So it follows the guest to other hosts and other names, and stays
when it is purged: one that is made again from a backup, as itself, has the owner that it had.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid as uuids
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from saltvirt import errors, names
from saltvirt.fleet import private
from saltvirt.rights.grants import ResourceAmount
from saltvirt.schema import Message, optional
from saltvirt.system import file_lock


@dataclass(frozen=True)
class Owner(Message):
    """Of one guest. guest: its name when it was written. labels: what grants may be about."""

    guest: str
    owner: str | None = None
    labels: tuple[str, ...] = optional(())


@dataclass(frozen=True)
class PendingGuest(Message):
    """A guest that a user is having made."""

    owner: str
    vcpus: int
    memory_kib: int
    disk_bytes: int

    def amount(self) -> ResourceAmount:
        """What it will take."""
        return ResourceAmount(1, self.vcpus, self.memory_kib, self.disk_bytes)


def _folder(opts: file_lock.Opts) -> Path:
    return Path(opts["pki_dir"]) / "virtowners"


def _making(opts: file_lock.Opts) -> Path:
    return Path(opts["cachedir"]) / "virt" / "rights" / "making"


def _unrecorded(opts: file_lock.Opts) -> Path:
    return _making(opts).parent / "unrecorded"


def normalize_uuid(uuid: str) -> str | None:
    """By what a guest is written down, however its UUID is spelled; None for what is no UUID,
    whoever said it."""
    try:
        return str(uuids.UUID(uuid))
    except ValueError:
        return None


def _path(opts: file_lock.Opts, uuid: str) -> Path | None:
    """The file of a guest; None for what is no UUID."""
    name = normalize_uuid(uuid)
    return None if name is None else _folder(opts) / name


def load(opts: file_lock.Opts, uuid: str) -> Owner:
    """What is written down of the guest with that UUID; nobody's where it is nothing. Raises
    BadAnswer for a file that is damaged: nobody is taken for its owner."""
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
        raise errors.BadAnswer(f"{path} is damaged: remove it, and name the owner again") from exc


def set_owner(opts: file_lock.Opts, uuid: str, guest: str, owner: str | None) -> None:
    """The guest is this user's from now on; None: nobody's. Raises OperationFailed."""
    _write(opts, uuid, replace(load(opts, uuid), guest=guest, owner=owner))


def set_labels(opts: file_lock.Opts, uuid: str, guest: str, labels: tuple[str, ...]) -> None:
    """The guest has these labels from now on, and no others. Raises OperationFailed."""
    _write(opts, uuid, replace(load(opts, uuid), guest=guest, labels=labels))


def _write(opts: file_lock.Opts, uuid: str, record: Owner) -> None:
    path = _path(opts, uuid)
    if path is None:
        message = f"{record.guest} has no UUID that can be written down: {uuid!r}"
        raise errors.OperationFailed(message)
    if record.owner is None and not record.labels:
        path.unlink(missing_ok=True)
    else:
        private.write(str(path), json.dumps(record.to_answer()))


@contextlib.contextmanager
def one_at_a_time(opts: file_lock.Opts) -> Iterator[None]:
    """Around the look at what is there and what is being made, and making(). Raises OperationFailed
    when others take too long."""
    path = _making(opts).parent / "lock"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    purpose = "a look at what users have"
    handle = file_lock.wait(
        opts, lambda: file_lock.take(path, purpose), lambda: file_lock.owner(path)
    )
    try:
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def making(opts: file_lock.Opts, pending_guests: dict[str, PendingGuest]) -> Iterator[None]:
    """Around the making of guests, name to Making: they count until it ends, also when its process
    dies. To be entered in one_at_a_time()."""
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
    """A guest of this name was made, or may have been, and its owner could not be recorded: it
    counts for that user on. To be called in making(): its file is kept under another name, for
    which a full disk has room. Raises OSError."""
    folder = _unrecorded(opts)
    folder.mkdir(mode=0o700, exist_ok=True)
    os.replace(_making(opts) / name, folder / name)


def unrecorded(opts: file_lock.Opts) -> dict[str, PendingGuest]:
    """Name to Making, of the guests whose owners could not be recorded, or whose process died
    before: they may exist."""
    pending_guests: dict[str, PendingGuest] = {}
    for path in sorted(_making(opts).glob("[!.]*")) + sorted(_unrecorded(opts).glob("[!.]*")):
        with contextlib.suppress(FileNotFoundError):
            if not file_lock.is_taken(path):
                data: Any = json.loads(path.read_text(encoding="utf-8"))
                pending_guests[path.name] = PendingGuest.from_answer(data, str(path))
    return pending_guests


def forget_unrecorded(opts: file_lock.Opts, name: str) -> None:
    """There is no such guest, or its owner is known by now. One that is being made is not meant."""
    for folder in (_making(opts), _unrecorded(opts)):
        path = folder / name
        with contextlib.suppress(FileNotFoundError):
            if not file_lock.is_taken(path):
                path.unlink()


def maker(opts: file_lock.Opts, name: str) -> str | None:
    """For whom a guest of this name is being made; None: nobody."""
    with contextlib.suppress(OSError, ValueError, errors.BadAnswer, errors.InvalidInput):
        path = _making(opts) / names.guest(name)
        if not file_lock.is_taken(path):
            return None
        data: Any = json.loads(path.read_text(encoding="utf-8"))
        return PendingGuest.from_answer(data, name).owner
    return None


def being_made(opts: file_lock.Opts) -> dict[str, PendingGuest]:
    """Name to Making, of all that users are having made now. To be called in one_at_a_time(). What
    a process that died was making is in unrecorded()."""
    pending_guests: dict[str, PendingGuest] = {}
    folder = _making(opts)
    names: list[str] = []
    with contextlib.suppress(FileNotFoundError):
        names = sorted(os.listdir(folder))
    for name in names:
        path = folder / name
        with contextlib.suppress(FileNotFoundError):
            if file_lock.is_taken(path):
                data: Any = json.loads(path.read_text(encoding="utf-8"))
                pending_guests[name] = PendingGuest.from_answer(data, str(path))
    return pending_guests
