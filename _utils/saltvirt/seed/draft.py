"""Collect the changes of a guest's files, and check all of them before the first one is made."""

from __future__ import annotations

import contextlib
import posixpath
from typing import TYPE_CHECKING, Any

from saltvirt import errors, units

if TYPE_CHECKING:
    from collections.abc import Iterator

    from saltvirt.seed.tree import GuestSystem

_BLOCK = 4096
PART = (
    "the guest is partially seeded: correct the problem and seed it again, or create the "
    "guest again"
)


@contextlib.contextmanager
def _named(path: str) -> Iterator[None]:
    """Add the path to errors that this host's kernel reports for a file of the guest."""
    try:
        yield
    except OSError as exc:
        raise errors.SeedFailed(f"{path} in the guest: {exc.strerror or exc}") from exc


class Draft:
    """Has the methods of a tree: reads at once, and changes nothing before ``commit``."""

    def __init__(self, tree: GuestSystem) -> None:
        self._tree = tree
        self._steps: list[tuple[Any, ...]] = []
        self._folders = {"/"}  # that are there, or will be

    def exists(self, path: str) -> bool:
        with _named(path):
            return any(path == step[1] for step in self._steps) or self._tree.exists(path)

    def is_dir(self, path: str) -> bool:
        with _named(path):
            return self._tree.is_dir(path)

    def is_file(self, path: str) -> bool:
        with _named(path):
            return self._tree.is_file(path)

    def names(self, path: str) -> list[str]:
        with _named(path):
            return self._tree.names(path)

    def read(self, path: str) -> bytes:
        with _named(path):
            return self._tree.read(path)

    def make_dir(self, path: str, mode: int) -> None:
        self._prove_folder(path)
        self._steps.append(("make_dir", path, mode))

    def write(self, path: str, content: bytes, mode: int) -> None:
        self._prove_file(path)
        self._steps.append(("write", path, content, mode))

    def remove(self, path: str) -> None:
        self._prove_file(path)
        self._steps.append(("remove", path))

    def link(self, target: str, path: str) -> None:
        self._prove_file(path)
        self._steps.append(("link", path, target))

    def _prove_file(self, path: str) -> None:
        if self.is_dir(path):
            raise errors.SeedFailed(
                f"{path} in the guest is a folder and cannot be replaced by a file"
            )
        self._prove_folder(posixpath.dirname(path))

    def _prove_folder(self, path: str) -> None:
        """Raise SeedFailed unless the existing part of the path is a folder."""
        parent = path
        while parent not in self._folders and not self.is_dir(parent):
            if self.exists(parent):
                raise errors.SeedFailed(f"{parent} in the guest is not a folder")
            parent = posixpath.dirname(parent)
        self._folders.add(path)

    def _prove_room(self) -> None:
        room = self._tree.free_space()
        sizes = [len(step[2]) for step in self._steps if step[0] == "write"]
        if room.read_only:
            raise errors.SeedFailed("the guest's file system is read-only: repair it (fsck)")
        if room.free_bytes < sum(sizes) + _BLOCK * len(self._steps):
            raise errors.SeedFailed(f"the guest's file system is full: {room.free_bytes} bytes")
        if room.free_files is not None and room.free_files < len(sizes):
            raise errors.SeedFailed(
                f"the guest's file system has {units.pluralize(room.free_files, 'free inode')}"
            )

    def commit(self) -> None:
        """Make all changes in their order. Raises SeedFailed, which says that the guest is
        partially seeded."""
        self._prove_room()
        for name, path, *arguments in self._steps:
            with partially_seeded(), _named(path):
                if name == "link":
                    self._tree.link(arguments[0], path)
                else:
                    getattr(self._tree, name)(path, *arguments)


@contextlib.contextmanager
def partially_seeded() -> Iterator[None]:
    """Add to an error inside the block that the guest is partially seeded."""
    try:
        yield
    except errors.VirtError as exc:
        raise errors.SeedFailed(f"{exc}; {PART}") from exc
