"""Guests as they were before a backup took their place, until somebody says that they may go: a
file each, by the guest's UUID. Its disks are where they were."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from xml.etree import ElementTree

from saltvirt import errors
from saltvirt.host import own_files, paths
from saltvirt.host.migration import move_journal
from saltvirt.schema import Message, optional

FOLDER = f"{paths.STATE}/aside"


@dataclass(frozen=True)
class SavedState(Message):
    """A file of firmware variables, or a folder of TPM state. path: where libvirt has it. kept:
    what it was before is called. was_there: there was something before."""

    path: str
    kept: str
    was_there: bool


@dataclass(frozen=True)
class ReplacedGuest(Message):
    """uuid, name: the guest's. backup: what took its place. definition: libvirt's, as it was, with
    what is secret. made: the files that are disks now and were not then. state: what became of its
    firmware variables and TPM state. stay: real paths of the disks that it kept. unfinished: the
    state of the backup is not, or not wholly, in place yet."""

    uuid: str
    name: str
    backup: str
    definition: str
    made: tuple[str, ...]
    state: tuple[SavedState, ...] = optional(())
    stay: tuple[str, ...] = optional(())
    unfinished: bool = optional(False)

    @property
    def tree(self) -> ElementTree.Element:
        """The definition, parsed."""
        return ElementTree.fromstring(self.definition)


def store(guest: ReplacedGuest) -> None:
    """Puts it down, on the disk before this returns. Raises OperationFailed."""
    with own_files.permitted():
        os.makedirs(FOLDER, mode=0o700, exist_ok=True)
        move_journal.store(_path(guest.uuid), guest)


def forget(uuid: str) -> None:
    """It is kept no more."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_path(uuid))


def load(uuid: str) -> ReplacedGuest | None:
    """What is kept of a guest, or None. Raises OperationFailed where that cannot be read."""
    try:
        guest = move_journal.read(_path(uuid), ReplacedGuest)
        if guest is not None and guest.tree.tag != "domain":
            raise errors.BadAnswer("it has no definition of a guest")
        return guest
    except (errors.BadAnswer, ElementTree.ParseError) as exc:
        raise errors.OperationFailed(
            f"{_path(uuid)} cannot be read: {exc}; it says how a guest was before a backup took "
            "its place: put it right, or away"
        ) from exc


def load_all() -> Iterator[ReplacedGuest]:
    """All that is kept here. Raises as ``of``."""
    for uuid in move_journal.names(FOLDER):
        guest = load(uuid)
        if guest:
            yield guest


def _path(uuid: str) -> str:
    return os.path.join(FOLDER, f"{uuid}.json")
