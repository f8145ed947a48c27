"""Guests as they were before a backup replaced them, until an operator commits the restore: one
file for each guest, by its UUID. Their disks stay where they were."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar
from xml.etree import ElementTree

from saltvirt import errors
from saltvirt.host import own_files
from saltvirt.host.migration import move_journal
from saltvirt.schema import Message, optional
from saltvirt.system import message_file, paths

FOLDER = f"{paths.STATE}/aside"


@dataclass(frozen=True)
class SavedState(Message):
    """A file of firmware variables, or a folder of TPM state.

    path: where libvirt expects it. saved_path: of the previous version. was_there: whether a
    previous version existed.
    """

    ALIASES: ClassVar[dict[str, str]] = {"kept": "saved_path"}

    path: str
    saved_path: str
    was_there: bool


@dataclass(frozen=True)
class ReplacedGuest(Message):
    """A guest before an in-place restore.

    backup: what replaced it. definition: its previous XML, with secrets. created: the files that
    are disks now and did not exist before. state: what happened to its firmware variables and TPM
    state. retained: real paths of the disks that it kept. unfinished: the state of the backup is
    not completely in place yet.
    """

    ALIASES: ClassVar[dict[str, str]] = {"made": "created", "stay": "retained"}

    uuid: str
    name: str
    backup: str
    definition: str
    created: tuple[str, ...]
    state: tuple[SavedState, ...] = optional(())
    retained: tuple[str, ...] = optional(())
    unfinished: bool = optional(False)

    @property
    def tree(self) -> ElementTree.Element:
        """The parsed definition."""
        return ElementTree.fromstring(self.definition)


def store(guest: ReplacedGuest) -> None:
    """Write the record durably. Raises OperationFailed."""
    with own_files.permitted():
        os.makedirs(FOLDER, mode=0o700, exist_ok=True)
        message_file.write(_path(guest.uuid), guest)


def forget(uuid: str) -> None:
    """Remove the record."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_path(uuid))


def load(uuid: str) -> ReplacedGuest | None:
    """Return the record of a guest, or None. Raises OperationFailed if it cannot be read."""
    try:
        guest = message_file.read(_path(uuid), ReplacedGuest)
        if guest is not None and guest.tree.tag != "domain":
            raise errors.BadAnswer("it contains no definition of a guest")
        return guest
    except (errors.BadAnswer, ElementTree.ParseError) as exc:
        raise errors.OperationFailed(
            f"{_path(uuid)} cannot be read: {exc}; it records a guest before a backup "
            "replaced it: repair the file, or remove it"
        ) from exc


def load_all() -> Iterator[ReplacedGuest]:
    """Return all records of this host. Raises as :func:`load`."""
    for uuid in move_journal.names(FOLDER):
        guest = load(uuid)
        if guest:
            yield guest


def _path(uuid: str) -> str:
    return os.path.join(FOLDER, f"{uuid}.json")
