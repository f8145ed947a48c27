"""A guest's files in a folder of this host.

The content of a guest is not trusted: a link to /etc leads to the guest's /etc, a FIFO is never
waited for, and large files are refused.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from saltvirt import errors
from saltvirt.seed import rooted
from saltvirt.system import atomic_file, tools

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_FILE_BYTES = 4 * 1024**2  # of a file that seeding reads: names, settings
MAX_NAMES = 100_000
SCRIPT_TIMEOUT_S = 1800
# not in /tmp, where systemd-nspawn mounts another file system
_SCRIPT = "/root/.salt-virt-bootstrap.sh"


@dataclass(frozen=True)
class FreeSpace:
    """The free space of a file system: free_bytes, and free_files, None if unlimited."""

    read_only: bool
    free_bytes: int
    free_files: int | None


class GuestFiles(Protocol):
    """A guest's files from any backend. Paths are the guest's absolute paths."""

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def is_file(self, path: str) -> bool: ...

    def names(self, path: str) -> list[str]: ...

    def read(self, path: str) -> bytes: ...

    def make_dir(self, path: str, mode: int) -> object: ...

    def write(self, path: str, content: bytes, mode: int) -> None: ...

    def remove(self, path: str) -> None: ...

    def link(self, target: str, path: str) -> None: ...


class GuestSystem(GuestFiles, Protocol):
    """A guest's whole system: its files, the free space for them, and scripts."""

    def free_space(self) -> FreeSpace: ...

    def prove_scripts(self) -> None: ...

    def run_script(self, script: str, args: str) -> None: ...


class DirTree:
    """The guest's files below ``root``. Paths are the guest's absolute paths. Close it after use.

    root: a path on this host, or a descriptor, which the tree then owns. enter: returns an argv
    that runs where the root's path is ``inside``; default: here.
    """

    def __init__(
        self,
        root: str | int,
        enter: Callable[[list[str]], list[str]] = list,
        inside: str | None = None,
    ) -> None:
        if isinstance(root, int):
            self._root, path = root, ""
        else:
            path = os.path.abspath(root)
            self._root = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._enter = enter
        self._inside = inside or path

    def __enter__(self) -> DirTree:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the folder, which can then be unmounted."""
        os.close(self._root)

    def _walk(self, path: str, **options: bool) -> contextlib.AbstractContextManager[rooted.Walk]:
        return rooted.open_walk(self._root, path, **options)

    def _mode(self, path: str, follow: bool = True) -> int:
        """The mode of a file; 0 if it does not exist."""
        try:
            with self._walk(path, follow=follow) as walk:
                status = rooted.status(walk)
                return status.st_mode if status else 0
        except (FileNotFoundError, NotADirectoryError):
            return 0

    def exists(self, path: str) -> bool:
        return bool(self._mode(path))

    def is_dir(self, path: str) -> bool:
        return stat.S_ISDIR(self._mode(path))

    def is_file(self, path: str) -> bool:
        """Whether it is a regular file, not a link."""
        return stat.S_ISREG(self._mode(path, follow=False))

    def names(self, path: str) -> list[str]:
        if not self.is_dir(path):
            return []
        with self._walk(path) as walk:
            fd = os.open(
                walk.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=walk.folder
            )
        try:
            names = []
            for entry in os.scandir(fd):
                names.append(entry.name)
                if len(names) > MAX_NAMES:
                    raise errors.SeedFailed(f"{path} in the guest has more than {MAX_NAMES} files")
            return sorted(names)
        finally:
            os.close(fd)

    def read(self, path: str) -> bytes:
        with self._walk(path) as walk:
            status = rooted.status(walk)
            if status is not None and not stat.S_ISREG(status.st_mode):
                raise errors.SeedFailed(f"{path} in the guest is not a regular file")
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with os.fdopen(os.open(walk.name, flags, dir_fd=walk.folder), "rb") as file:
                content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise errors.SeedFailed(f"{path} in the guest is larger than {MAX_FILE_BYTES} bytes")
        return content

    def make_dir(self, path: str, mode: int) -> str:
        """Create a folder, and return its path on this host."""
        with self._walk(path, make=True) as walk:
            names = [*walk.names, walk.name] if walk.name != "." else walk.names
            if rooted.status(walk) is None:
                os.mkdir(walk.name, mode, dir_fd=walk.folder)
            fd = os.open(
                walk.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=walk.folder
            )
            try:
                os.fchmod(fd, mode)
            finally:
                os.close(fd)
        return os.path.join(self._inside, *names)

    def write(self, path: str, content: bytes, mode: int) -> None:
        """Create a file that belongs to root, replacing any existing file."""
        with self._walk(path, make=True) as walk:
            part = f".salt-virt-{walk.name}"
            atomic_file.write(walk.name, content, mode=mode, part=part, dir_fd=walk.folder)

    def remove(self, path: str) -> None:
        try:
            with self._walk(path, follow=False) as walk:
                os.unlink(walk.name, dir_fd=walk.folder)
        except (FileNotFoundError, NotADirectoryError):
            return

    def link(self, target: str, path: str) -> None:
        self.remove(path)
        with self._walk(path, follow=False) as walk:
            os.symlink(target, walk.name, dir_fd=walk.folder)

    def free_space(self) -> FreeSpace:
        """The FreeSpace of the guest's file system."""
        stats = os.fstatvfs(self._root)
        return FreeSpace(
            bool(stats.f_flag & os.ST_RDONLY), stats.f_bfree * stats.f_frsize,
            stats.f_ffree if stats.f_files else None,
        )  # fmt: skip

    @staticmethod
    def prove_scripts() -> None:
        """Raise Unsupported if ``run_script`` cannot run scripts."""
        if not shutil.which("systemd-nspawn"):
            raise errors.Unsupported(
                "this host cannot run scripts inside an image: install systemd-container "
                "or libguestfs, or run the script at the guest's first boot"
            )

    def run_script(self, script: str, args: str) -> None:
        """Run a shell script inside the guest's system, in a container of its own."""
        container = ["systemd-nspawn", "-q", "--register=no", "--resolv-conf=bind-host", "-D"]
        self.write(_SCRIPT, script.encode(), 0o700)
        try:
            argv = self._enter([*container, self._inside, "/bin/sh", _SCRIPT, *args.split()])
            action = "run the bootstrap script inside the image"
            tools.run(argv, action, errors.SeedFailed, timeout_s=SCRIPT_TIMEOUT_S)
        finally:
            self.remove(_SCRIPT)
