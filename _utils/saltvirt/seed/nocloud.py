"""The volume from which cloud-init reads: a small ISO 9660 file system named cidata."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from saltvirt import errors
from saltvirt.images import clone, locks, tools

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAKERS = (
    ("xorriso", ["xorriso", "-as", "genisoimage"]),
    ("genisoimage", ["genisoimage"]),
    ("mkisofs", ["mkisofs"]),
    ("xorrisofs", ["xorrisofs"]),
)


def _maker() -> list[str]:
    for name, argv in _MAKERS:
        if shutil.which(name):
            return argv
    raise errors.Unsupported(
        "this host can make no volume for cloud-init: install xorriso, genisoimage or mkisofs"
    )


def available() -> bool:
    """Can this host make such a volume?"""
    return any(shutil.which(name) for name, _ in _MAKERS)


def write(path: str, files: Mapping[str, str]) -> None:
    """Makes the volume ``path``, readable by root alone.

    files: {name: text}. What is written holds a private key: until it is whole it is in memory
    only (/run), where the next one removes what a process that died has left.
    Raises SeedFailed, Unsupported.
    """
    maker = _maker()
    with locks.for_now(locks.RUN, "cidata-") as folder:
        content, volume = os.path.join(folder, "content"), os.path.join(folder, "volume")
        os.mkdir(content)
        for name, text in files.items():
            with open(os.path.join(content, name), "w", encoding="utf-8") as file:
                file.write(text)
        options = ["-quiet", "-output", volume, "-volid", "cidata", "-joliet", "-rock"]
        tools.run([*maker, *options, content], f"make {path}", errors.SeedFailed)
        _place(volume, path)


def _place(volume: str, path: str) -> None:
    """What has the name is another file's from then on, and stays whole for who has it open."""
    with clone.part_of(path) as part:
        with open(part, "r+b") as target, open(volume, "rb") as source:
            os.fchmod(target.fileno(), 0o600)
            shutil.copyfileobj(source, target)
        os.replace(part, path)
