"""A mark in a file that an operation makes, put there before the file has its name: a file that
somebody else puts at that place does not have it."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from saltvirt.host.storage import files

if TYPE_CHECKING:
    import libvirt

    from saltvirt.host.provision.disk_build import DiskBuild

_NAME = "user.saltvirt.making"


def new() -> str:
    """A mark that no other operation has."""
    return secrets.token_hex(16)


def put(path: str, mark: str) -> None:
    """Marks a file. A file system without marks proves nothing."""
    with contextlib.suppress(OSError):
        os.setxattr(path, _NAME, mark.encode())


def matches(path: str, mark: str) -> bool | None:
    """Whether a file has this mark; None where its file system has no marks."""
    try:
        return os.getxattr(path, _NAME, follow_symlinks=False) == mark.encode()
    except OSError as exc:
        return False if exc.errno == errno.ENODATA else None


@dataclass
class Marks:
    """What marks the disks of one guest as they are made."""

    value: str = field(default_factory=new)

    def mark(self, path: str) -> None:
        """Makes a file known as the one that was made, before it has its name."""
        put(path, self.value)

    def volume(self, _build: DiskBuild, volume_object: libvirt.virStorageVol) -> None:
        """The same of the virStorageVol that was made for a Work."""
        if files.is_regular(volume_object.path()):
            self.mark(volume_object.path())
