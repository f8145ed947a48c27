"""Marks that prove which operation created a file.

An operation marks a file before the file gets its final name. A file that someone else puts in that
place lacks the mark.
"""

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
    """Return a unique mark."""
    return secrets.token_hex(16)


def put(path: str, mark: str) -> None:
    """Mark a file. A file system without extended attributes stores no mark."""
    with contextlib.suppress(OSError):
        os.setxattr(path, _NAME, mark.encode())


def matches(path: str, mark: str) -> bool | None:
    """Return whether a file has this mark; None if its file system does not support marks."""
    try:
        return os.getxattr(path, _NAME, follow_symlinks=False) == mark.encode()
    except OSError as exc:
        return False if exc.errno == errno.ENODATA else None


@dataclass
class Marks:
    """The mark of the disks that are being created for one guest."""

    value: str = field(default_factory=new)

    def mark(self, path: str) -> None:
        """Mark a new file before it gets its final name."""
        put(path, self.value)

    def volume(self, _build: DiskBuild, volume_object: libvirt.virStorageVol) -> None:
        """Mark the file of a new virStorageVol."""
        if files.is_regular(volume_object.path()):
            self.mark(volume_object.path())
