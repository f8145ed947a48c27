"""Resolve a guest's paths below a folder, without leaving it.

Each part of a path is opened separately, below the folder that was opened before. The kernel never
follows a link: a link is read, and its parts are resolved in turn. ``..`` returns to the previous
folder. An absolute link therefore stays within the guest, and replacing a part meanwhile cannot
escape. (openat2 with RESOLVE_IN_ROOT does the same, but not every kernel and Python has it.)
"""

from __future__ import annotations

import contextlib
import enum
import os
import stat
from typing import TYPE_CHECKING

from saltvirt import errors

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_LINKS = 40
_MAX_PARTS = 4096


class _Is(enum.Enum):
    FOLDER = "a folder"


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part and part != "."]


class Walk:
    """The end of a path: ``folder``, a descriptor, and ``name`` in it, which is no link unless the
    last part was not to be followed. ``names``: the folders of the path."""

    def __init__(self, root: int, path: str) -> None:
        self._path = path
        self._stack = [os.dup(root)]
        self.names: list[str] = []
        self.name = "."

    @property
    def folder(self) -> int:
        return self._stack[-1]

    def close(self) -> None:
        for fd in self._stack:
            os.close(fd)

    def _back_to(self, depth: int) -> None:
        while len(self._stack) > depth:
            os.close(self._stack.pop())
        del self.names[depth - 1 :]

    def go(self, follow: bool, make: bool) -> None:
        """Resolve the whole path. make: create missing folders."""
        todo, links = _parts(self._path), 0
        while todo:
            part = todo.pop(0)
            if part == "..":
                self._back_to(max(1, len(self._stack) - 1))
                continue
            if not todo and not follow:
                self.name = part
                return
            fd = self._open(part, make and bool(todo))
            if fd is None and not todo:
                self.name = part
                return
            if fd is None:
                raise FileNotFoundError(2, "No such file or directory", self._path)
            target = self._entered(fd, part)
            if target is _Is.FOLDER:
                continue
            if target is None:
                if todo:
                    raise NotADirectoryError(20, "Not a directory", self._path)
                self.name = part
                return
            links += 1
            if links > _MAX_LINKS or len(todo) > _MAX_PARTS:
                raise errors.SeedFailed(f"{self._path} in the guest is a loop of links")
            if target.startswith("/"):
                self._back_to(1)
            todo = _parts(target) + todo

    def _entered(self, fd: int, part: str) -> str | _Is | None:
        """Take over a descriptor: enter a folder, return the target of a link, or None."""
        taken = False
        try:
            mode = os.fstat(fd).st_mode
            if stat.S_ISDIR(mode):
                self._stack.append(fd)
                self.names.append(part)
                taken = True
                return _Is.FOLDER
            return os.readlink("", dir_fd=fd) if stat.S_ISLNK(mode) else None
        finally:
            if not taken:
                os.close(fd)

    def _open(self, part: str, make: bool) -> int | None:
        """A descriptor of one part that opens nothing (O_PATH); None if it does not exist."""
        flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
        for _ in range(2):
            with contextlib.suppress(FileNotFoundError):
                return os.open(part, flags, dir_fd=self.folder)
            if not make:
                return None
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, 0o755, dir_fd=self.folder)
        return None


@contextlib.contextmanager
def open_walk(root: int, path: str, follow: bool = True, make: bool = False) -> Iterator[Walk]:
    """The Walk of a guest's path, for the block.

    root: a descriptor of the guest's root. follow: also follow the last part if it is a link.
    Raises FileNotFoundError for a missing folder, NotADirectoryError, SeedFailed.
    """
    walk = Walk(root, path)
    try:
        walk.go(follow, make)
        yield walk
    finally:
        walk.close()


def status(walk: Walk) -> os.stat_result | None:
    """The stat of the walk's end, or None."""
    try:
        return os.stat(walk.name, dir_fd=walk.folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def below(root: int, name: str) -> int | None:
    """A descriptor of a folder directly below ``root``; None for anything else, including a
    link."""
    try:
        return os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root)
    except OSError:
        return None
