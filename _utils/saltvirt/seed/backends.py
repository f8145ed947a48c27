"""Choose a backend that gives access to a guest's files, and seed the guest."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from saltvirt import errors
from saltvirt.images import inspect
from saltvirt.seed import guest, guestfish, mounted
from saltvirt.seed.data import INSTALL_IN_IMAGE
from saltvirt.seed.tree import DirTree

if TYPE_CHECKING:
    import contextlib

    from saltvirt.seed.data import SeedData
    from saltvirt.seed.tree import GuestSystem

AUTO, GUESTFS, FUSE, NBD, DIRECTORY = "auto", "libguestfs", "fuse", "nbd", "directory"
BACKENDS = (AUTO, GUESTFS, FUSE, NBD, DIRECTORY)
_INSTALL_HINTS = {
    GUESTFS: "install guestfs-tools (EL, SUSE: libguestfs-tools), or, for images that you trust, "
    "set virt:seed:backend to fuse or nbd, so that this host's own kernel reads them",
    FUSE: "install qemu-storage-daemon, and make /dev/fuse available on this host",
    NBD: "install qemu-nbd and load the kernel module nbd",
}


def prove_free(path: str, format: str | None) -> None:
    """Raise SeedFailed while another process has the disk open for writing."""
    try:
        inspect.inspect(path, format, folders=["/"], unused=True)
    except errors.ImageError as exc:
        raise errors.SeedFailed(f"{path} is in use or damaged: {exc}") from exc


def choose(path: str, backend: str = AUTO) -> str:
    """The backend for a path. Raises InvalidInput, Unsupported.

    ``auto`` is libguestfs; another backend is used only if it is configured, never as a fallback.
    """
    if backend not in BACKENDS:
        raise errors.InvalidInput(f"virt:seed:backend must be one of {', '.join(BACKENDS)}")
    if os.path.isdir(path):
        return DIRECTORY
    if backend == DIRECTORY:
        raise errors.InvalidInput(f"{path} is not a folder, as virt:seed:backend requires")
    name = GUESTFS if backend == AUTO else backend
    is_available = guestfish.available() if name == GUESTFS else mounted.available(name)
    if not is_available:
        raise errors.Unsupported(
            f"this host cannot seed an image with {name}: {_INSTALL_HINTS[name]}"
        )
    return name


def _shown(
    path: str, format: str | None, chosen: str, programs: bool
) -> contextlib.AbstractContextManager[GuestSystem]:
    if chosen == DIRECTORY or format is None:
        return DirTree(path)
    if chosen == GUESTFS:
        return guestfish.open_tree(path, format, programs)
    return mounted.open_tree(path, format, chosen, programs)


def apply(disk_path: str, disk_format: str | None, data: SeedData, backend: str = AUTO) -> str:
    """Prepare a guest's disk, or a folder with its root file system, and return the backend.

    disk_path: absolute path. disk_format: the declared format; None for a folder. data: a SeedData.
    Afterwards nothing is mounted or running, and no process uses the disk. Raises SeedFailed with
    the disk and the reason, InvalidInput, Unsupported.
    """
    chosen = choose(disk_path, backend)
    programs = data.install == INSTALL_IN_IMAGE
    if chosen != DIRECTORY:
        prove_free(disk_path, disk_format)
    try:
        with _shown(disk_path, disk_format, chosen, programs) as tree:
            guest.seed(tree, data)
    except OSError as exc:
        raise errors.SeedFailed(f"cannot seed {disk_path}: {exc.strerror or exc}") from exc
    except errors.SeedFailed as exc:
        raise errors.SeedFailed(f"cannot seed {disk_path}: {exc}") from exc
    if chosen != DIRECTORY:
        prove_free(disk_path, disk_format)
    return chosen
