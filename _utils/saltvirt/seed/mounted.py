"""Access a guest's files through this host's own kernel, for hosts without libguestfs.

Everything is mounted in a separate mount namespace, which a ``cat`` keeps open that reads from this
process. If this process dies, the pipe closes, and the kernel removes the mounts and the loop
devices. Other processes of the host never see them.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import shutil
import stat
import subprocess
import time
from typing import TYPE_CHECKING

from saltvirt import errors
from saltvirt.seed import partitions, rooted
from saltvirt.seed.draft import partially_seeded
from saltvirt.seed.tree import DirTree
from saltvirt.system import file_lock, paths, private_folder, tools

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_TIMEOUT_S = 20
_MAX_REASONS = 5  # why a file system was passed over
# an ext file system may request a kernel panic if it has errors
_EXT = ",errors=remount-ro"
_OPTIONS = {
    "ext2": _EXT,
    "ext3": _EXT,
    "ext4": _EXT,
    "xfs": ",nouuid",  # clones of one image have one UUID
    "btrfs": "",
}
# folders of the system in a btrfs whose default subvolume is the top of the tree
_SUBVOLUMES = (".", "@", "root", "@rootfs")


class Space:
    """A mount namespace with a private folder, for the block."""

    def __init__(self) -> None:
        self.folder, self._mark = private_folder.create(paths.RUN, "seed-")
        # cat ends when this end of the pipe is closed, also by the death of this process
        argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", "echo; exec cat"]
        self._holder = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        tools.pipe(self._holder.stdout).readline()

    def __enter__(self) -> Space:
        return self

    def __exit__(self, *exc_info: object) -> None:
        tools.pipe(self._holder.stdin).close()
        self._holder.wait()
        tools.pipe(self._holder.stdout).close()
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._mark)

    @property
    def lease(self) -> int:
        """A descriptor that keeps the namespace for each process that inherits it.

        The last process of a namespace unmounts its file systems while it ends. The server of such
        a file system must not be the last one: it would wait for itself, and the host's kernel with
        it.
        """
        return tools.pipe(self._holder.stdin).fileno()

    def enter(self, argv: Sequence[str]) -> list[str]:
        """The argv that runs inside the namespace."""
        return ["nsenter", f"--mount=/proc/{self._holder.pid}/ns/mnt", "--", *argv]

    def run(self, argv: Sequence[str], action: str) -> bytes:
        return tools.run(self.enter(argv), action, errors.SeedFailed, timeout_s=_TIMEOUT_S)

    def outside(self, path: str) -> str:
        """The path of a mounted file as seen from outside."""
        return f"/proc/{self._holder.pid}/root{path}"


def _wait_until(ready: Callable[[], object], process: subprocess.Popen[bytes], action: str) -> None:
    end = time.monotonic() + _TIMEOUT_S
    while not ready():
        if process.poll() is not None or time.monotonic() > end:
            process.kill()
            error_text = tools.last_output(tools.pipe(process.stderr).read())
            raise errors.SeedFailed(f"cannot {action}: {error_text}")
        time.sleep(0.01)


@contextlib.contextmanager
def _daemon(argv: Sequence[str], *pass_fds: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server, and end it after it has written everything when the block ends. pass_fds:
    descriptors that it inherits."""
    with tools.start(
        argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, pass_fds=pass_fds
    ) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _size(path: str) -> int:
    with open(path, "rb") as file:
        return file.seek(0, os.SEEK_END)


@contextlib.contextmanager
def _fuse(space: Space, path: str, format: str) -> Iterator[str]:
    """The disk as a raw file, through qemu-storage-daemon's FUSE export."""
    shown = os.path.join(space.folder, "disk")
    with open(shown, "wb"):
        pass
    driver = "host_device" if stat.S_ISBLK(os.stat(path).st_mode) else "file"
    argv = ["qemu-storage-daemon"]
    argv += ["--blockdev", f"driver={driver},node-name=file,filename={tools.escaped(path)}"]
    argv += ["--blockdev", f"driver={format},node-name=disk,file=file"]
    argv += ["--export", f"type=fuse,id=show,node-name=disk,mountpoint={shown},writable=on"]
    with _daemon(space.enter(argv), space.lease) as process:
        _wait_until(lambda: os.path.getsize(space.outside(shown)), process, f"show {path}")
        yield shown


def _free_nbd() -> tuple[str, str]:
    for folder in sorted(glob.glob("/sys/class/block/nbd*"), key=lambda p: (len(p), p)):
        device = "/dev/" + os.path.basename(folder)
        if re.fullmatch(r"/dev/nbd\d+", device) and not os.path.exists(f"{folder}/pid"):
            return device, f"{folder}/size"
    raise errors.SeedFailed("no /dev/nbd* is free: load the kernel module nbd")


@contextlib.contextmanager
def _nbd(_space: Space, path: str, format: str) -> Iterator[str]:
    """The disk as a block device, through qemu-nbd."""
    with contextlib.ExitStack() as stack:
        with file_lock.exclusive(f"{paths.RUN}/nbd.lock"):
            device, size_file = _free_nbd()
            argv = ["qemu-nbd", "-f", format, "-c", device, path]
            process = stack.enter_context(_daemon(argv))

            def ready() -> bool:
                with open(size_file, encoding="ascii") as file:
                    return int(file.read()) > 0

            _wait_until(ready, process, f"show {path} at {device}")
        yield device


_SHOW = {"fuse": _fuse, "nbd": _nbd}


def available(backend: str) -> bool:
    """Whether the host has the programs and devices of the backend."""
    if backend == "nbd":
        return bool(shutil.which("qemu-nbd") and glob.glob("/sys/class/block/nbd*"))
    return bool(shutil.which("qemu-storage-daemon") and os.path.exists("/dev/fuse"))


def _system(space: Space, mounted: str) -> DirTree | None:
    """The DirTree of the system on a mounted file system, or None.

    A subvolume of the image must be a folder itself: a link could lead to this host.
    """
    top = os.open(space.outside(mounted), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in _SUBVOLUMES:
            root = rooted.below(top, name)
            if root is None:
                continue
            with contextlib.ExitStack() as stack:
                inside = os.path.normpath(os.path.join(mounted, name))
                tree = stack.enter_context(DirTree(root, space.enter, inside))
                if tree.is_dir("/etc") and tree.is_dir("/usr"):
                    stack.pop_all()
                    return tree
    finally:
        os.close(top)
    return None


@contextlib.contextmanager
def _mount(
    space: Space, shown: str, partition: partitions.Partition, programs: bool
) -> Iterator[str]:
    """Mount a partition for the block. programs: allow running programs from it."""
    target = os.path.join(space.folder, "root")
    os.makedirs(target, exist_ok=True)
    options = "nosuid,nodev" + ("" if programs else ",noexec") + _OPTIONS.get(partition.kind, "")
    options += f",loop,offset={partition.offset},sizelimit={partition.size}"
    space.run(["mount", "-t", partition.kind, "-o", options, shown, target], "mount the disk")
    try:
        yield target
    finally:
        space.run(["umount", target], "unmount the disk")


def _partitions(space: Space, shown: str) -> tuple[list[partitions.Partition], list[str]]:
    path = space.outside(shown)
    candidates, other_kinds = partitions.find(path, _size(path))
    # the system is rarely on the smallest partition
    return sorted(candidates, key=lambda partition: -partition.size), other_kinds


@contextlib.contextmanager
def _one_at_a_time(partition: partitions.Partition) -> Iterator[None]:
    """Mount only one btrfs at a time: the kernel confuses file systems with the same UUID, and
    clones have the same UUID."""
    if partition.kind != "btrfs":
        yield
        return
    with file_lock.exclusive(f"{paths.RUN}/btrfs.lock"):
        try:
            yield
        finally:
            tools.run(["btrfs", "device", "scan", "--forget"], "forget it", ok_codes=range(256))


def _mount_system(
    space: Space,
    shown: str,
    partition: partitions.Partition,
    programs: bool,
    stack: contextlib.ExitStack,
) -> tuple[DirTree | None, str]:
    """(DirTree of the system on a partition or None, its mount point), until ``stack`` is
    closed."""
    stack.enter_context(_one_at_a_time(partition))
    target = stack.enter_context(_mount(space, shown, partition, programs))
    tree = _system(space, target)
    return tree and stack.enter_context(tree), target


@contextlib.contextmanager
def open_tree(path: str, format: str, backend: str, programs: bool = False) -> Iterator[DirTree]:
    """The DirTree of the system on a disk image, for the block; its changes are written when the
    block ends.

    path: absolute path of an image that no guest uses. format: its declared format. backend:
    ``fuse`` or ``nbd``. programs: a script will be run inside. Raises SeedFailed.
    """
    with Space() as space, _SHOW[backend](space, path, format) as shown:
        candidates, other_kinds = _partitions(space, shown)
        reasons = [f"there is {kind}" for kind in other_kinds]
        for partition in candidates:
            with contextlib.ExitStack() as stack:
                try:
                    tree, target = _mount_system(space, shown, partition, programs, stack)
                except (OSError, errors.SeedFailed) as exc:
                    reasons.append(f"{partition.kind} at {partition.offset}: {exc}")
                    continue
                if tree is not None:
                    yield tree
                    with partially_seeded():  # umount does not say what could not be written
                        space.run(["sync", "-f", target], "write the disk")
                    return
    details = f" ({'; '.join(reasons[:_MAX_REASONS])})" if reasons else ""
    raise errors.SeedFailed(
        "no file system of the disk contains an operating system that this host can "
        f"read{details}: use another image, or the backend libguestfs, which supports more"
    )
