"""Create a guest's disk from an image: by reflink, sparse copy, conversion or overlay."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import select
import shutil
import stat
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Protocol, TypeVar

from saltvirt import errors
from saltvirt.images import chain, confined, header, inspect, storage
from saltvirt.system import atomic_file, file_probe, tools
from saltvirt.units import human_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from saltvirt.images.sources import Progress

_FICLONE = 0x40049409  # linux/fs.h
_CHUNK = 32 * 1024 * 1024
_BLOCK = 1024**2  # where bytes are read and written
_LOCKED_BYTE = 1 << 40  # QEMU locks bytes 100 to 299
_NOT_IN_KERNEL = (errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS)
_PERCENT = re.compile(rb"\(([0-9.]+)/100%\)")
_STALL_TIMEOUT_S = 3600
T = TypeVar("T")
FORMATS = ("raw", "qcow2")


class SourceImage(Protocol):
    """An image to clone: from the cache, or any other that was inspected."""

    @property
    def path(self) -> str: ...

    @property
    def format(self) -> str: ...

    @property
    def files(self) -> tuple[str, ...]:
        """Its backing files. Outside its own folder, it may refer to these files only."""


@dataclass(frozen=True)
class ClonedDisk:
    """A new disk. ``method``: reflink, copy, convert or overlay."""

    path: str
    format: str
    size_bytes: int
    method: str


@dataclass(frozen=True)
class _Task:
    """The disk to create."""

    image: inspect.ImageInfo
    format: str
    size_bytes: int
    overlay: bool
    progress: Progress


def _nothing(_done: int, _total: int | None) -> None:
    """The default progress callback."""


def _reflink(source: BinaryIO, target: BinaryIO) -> bool:
    """Whether the file system lets the target share the source's blocks."""
    try:
        fcntl.ioctl(target, _FICLONE, source.fileno())
    except OSError:
        return False
    return True


def _extents(fd: int, size: int) -> Iterator[tuple[int, int]]:
    """The (start, end) of each part of a sparse file that holds data."""
    end = 0
    while end < size:
        try:
            start = os.lseek(fd, end, os.SEEK_DATA)
        except OSError as exc:
            if exc.errno == errno.ENXIO:  # only a hole is left
                return
            raise
        end = os.lseek(fd, start, os.SEEK_HOLE)
        yield start, end


def _copy_range(source: int, target: int, length: int, start: int) -> int:
    """Copy bytes in the kernel if it can. It cannot between different types of file systems and on
    file systems without support."""
    try:
        return os.copy_file_range(source, target, length, start, start)
    except OSError as exc:
        if exc.errno not in _NOT_IN_KERNEL:
            raise
    return os.pwrite(target, os.pread(source, min(length, _BLOCK), start), start)


def _copy_extent(
    source: int, target: int, start: int, end: int, report: Callable[[int], object]
) -> None:
    while start < end:
        done = _copy_range(source, target, min(_CHUNK, end - start), start)
        if not done:
            raise OSError(errno.EIO, "the image was truncated during the copy")
        start += done
        report(done)


def copy_sparse(source: BinaryIO, target: BinaryIO, progress: Progress = _nothing) -> None:
    """Copy one open file to another, empty one; holes are preserved.

    progress: called with the copied bytes and the total bytes.
    """
    size = os.fstat(source.fileno()).st_size
    extents = list(_extents(source.fileno(), size))
    total = sum(end - start for start, end in extents)
    copied = 0

    def report(step: int) -> None:
        nonlocal copied
        copied += step
        progress(copied, total)

    os.ftruncate(target.fileno(), size)
    for start, end in extents:
        _copy_extent(source.fileno(), target.fileno(), start, end, report)


def _copy(image: inspect.ImageInfo, part: str, progress: Progress) -> str:
    """Copy an image of the same format: by reflink if the file system can, otherwise without
    holes."""
    with storage.open_for_reading(image.path) as source, open(part, "wb") as target:
        if _reflink(source, target):
            return "reflink"
        copy_sparse(source, target, progress)
    return "copy"


def _refuse_replaced(image: inspect.ImageInfo, part: str) -> None:
    """Raise ImageError if the copied file is not the one that was inspected, because someone has
    replaced it: QEMU would open the files to which it refers."""
    head = header.read(part, image.format)
    if head.backing or head.data_file:
        raise errors.ImageError(f"{image.path} was replaced during the copy: try again")


def _follow(process: subprocess.Popen[bytes], total: int, progress: Progress) -> bytes:
    """Report qemu-img's percentages to ``progress``, and return its other output.

    Ends qemu-img if it reports nothing new for an hour.
    """
    output, stream = b"", tools.pipe(process.stdout).fileno()
    while select.select([stream], [], [], _STALL_TIMEOUT_S)[0]:
        block = os.read(stream, 4096)
        if not block:
            return output
        output = (output + block)[-4096:]
        percents = _PERCENT.findall(output)
        if percents:
            progress(int(total * float(percents[-1]) / 100), total)
    process.kill()
    return b"qemu-img got no further for %d s" % _STALL_TIMEOUT_S


def _convert(
    image: inspect.ImageInfo, target: str, format: str, progress: Progress, existing: bool = False
) -> str:
    """Convert with qemu-img: to another format, from a chain, or to an existing target."""
    for link in chain.read(image.path, image.format).links:
        inspect.check(link.name, link.format, image.files)
    argv = ["qemu-img", "convert", "-p", "-f", image.format, "-O", format]
    argv += ["-n"] if existing else []
    size = image.virtual_size_bytes
    limits = confined.Limits(None, file_bytes=size + size // 16 + 64 * 1024**2)
    argv = confined.command([*argv, image.path, target], image.files, [target], limits)
    with tools.start(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        output = _follow(process, size, progress)
    if process.returncode:
        error_text = tools.last_output(re.sub(rb"[ \t]*\([0-9.]+/100%\)\r?", b"", output))
        raise errors.ImageError(f"cannot convert {image.path} to {target}: {error_text}")
    return "convert"


def _overlay(image: inspect.ImageInfo, target: str, size_bytes: int) -> str:
    """Create an overlay. qemu-img need not open an image without backing files, which was inspected
    before; it then reads no foreign file and is not confined."""
    base = ["-b", image.path, "-F", image.format]
    action = f"create an overlay of {image.path}"
    create, target_args = ["qemu-img", "create", "-q", "-f", "qcow2"], [target, str(size_bytes)]
    if image.backing:
        argv = [*create, *base, *target_args]
        confined.run(argv, action, errors.ImageError, reads=image.files, writes=[target])
    else:
        tools.run([*create, "-u", *base, *target_args], action, errors.ImageError)
    return "overlay"


def needed_bytes(image: inspect.ImageInfo, format: str) -> int:
    """The size of a conversion's result; a small file can refer to the same block many times.
    Raises ImageError."""
    argv = ["qemu-img", "measure", "--output=json", "-f", image.format, "-O", format, image.path]
    action = f"measure {image.path}"
    output = json.loads(confined.run(argv, action, errors.ImageError, reads=image.files))
    return int(output["required"])


def _wanted_size(image: inspect.ImageInfo, size_bytes: int | None) -> int:
    if size_bytes is None:
        return image.virtual_size_bytes
    if size_bytes < image.virtual_size_bytes:
        raise errors.InvalidInput(
            f"the disk's size {human_bytes(size_bytes)} is smaller than the image's "
            f"{human_bytes(image.virtual_size_bytes)}, and disks are never shrunk: use at "
            "least that size"
        )
    return size_bytes


def _resize(path: str, format: str, size_bytes: int) -> None:
    if format == "raw":
        os.truncate(path, size_bytes)
        return
    argv = ["qemu-img", "resize", "-q", "-f", format, path, str(size_bytes)]
    action = f"grow {path} to {human_bytes(size_bytes)}"
    confined.run(argv, action, errors.ImageError, writes=[path])


def _require_space(image: inspect.ImageInfo, needed: int, folder: str) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise errors.ImageError(
            f"{folder} has {human_bytes(free)} free, but the image {image.path} takes "
            f"{human_bytes(needed)}"
        )


def _fill(task: _Task, part: str) -> str:
    """Create the disk at ``part``, and return the method."""
    image, format, folder = task.image, task.format, os.path.dirname(part)
    if task.overlay:
        return _overlay(image, part, task.size_bytes)
    is_standalone = not (image.backing or image.snapshots or image.bitmaps)
    if image.format == format and is_standalone:
        _require_space(image, image.allocated_bytes, folder)
        method = _copy(image, part, task.progress)
        _refuse_replaced(image, part)
    else:
        _require_space(image, needed_bytes(image, format), folder)
        method = _convert(image, part, format, task.progress)
    # a raw image whose size is no multiple of the sector size is shorter than QEMU reports
    is_short = format == "raw" and os.path.getsize(part) < task.size_bytes
    if is_short or task.size_bytes > image.virtual_size_bytes:
        _resize(part, format, task.size_bytes)
    return method


def _into_device(task: _Task, device: str) -> tuple[str, int]:
    """Write to an existing block device, such as a logical volume. Returns its size, too."""
    with storage.open_for_reading(device) as file:
        room = file.seek(0, os.SEEK_END)
    if room < task.size_bytes:
        raise errors.ImageError(
            f"{device} has {human_bytes(room)}, but the disk needs {human_bytes(task.size_bytes)}"
        )
    method = _convert(task.image, device, "raw", task.progress, existing=True)
    atomic_file.sync(device)
    return method, room


def _is_device(path: str) -> bool:
    try:
        return stat.S_ISBLK(os.stat(path).st_mode)
    except FileNotFoundError:
        return False


def _publish(part: str, target: str) -> None:
    """Give the complete file its name, unless the name was taken meanwhile."""
    try:
        os.link(part, target)
    except FileExistsError:
        raise errors.AlreadyExists(f"{target} already exists and is left unchanged") from None
    except OSError:  # no hard links here: the process that creates the name owns it
        try:
            os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            raise errors.AlreadyExists(f"{target} already exists and is left unchanged") from None
        atomic_file.rename(part, target, durable=False)


def flush_name(path: str) -> None:
    """Make a new name in a folder durable; not every file server can."""
    with contextlib.suppress(OSError):
        atomic_file.sync(os.path.dirname(path))


def part(target: str) -> str:
    """The temporary path of a disk, beside it. It is always the same, so that a later attempt
    reuses an incomplete file."""
    folder, name = os.path.split(target)
    return os.path.join(folder, f".{name}.part")


@contextlib.contextmanager
def part_of(target: str) -> Iterator[str]:
    """Hold the file :func:`part` for the block.

    The kernel releases its lock if the process dies.
    """
    path = part(target)
    fd = _open_locked(path, target)
    while os.fstat(fd).st_nlink != 1:
        # a process was killed between the two names of a complete disk, or the file is gone
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        os.close(fd)
        fd = _open_locked(path, target)
    try:
        os.ftruncate(fd, 0)
        try:
            yield path
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
    finally:
        os.close(fd)


def _open_locked(path: str, target: str) -> int:
    """The file, opened and locked on one byte that QEMU does not lock. On GlusterFS and NFS, flock
    would lock all bytes, so that qemu-img could not open the file."""
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, file_probe.flock(fcntl.F_WRLCK, _LOCKED_BYTE))
    except OSError as exc:
        os.close(fd)
        if exc.errno not in (errno.EAGAIN, errno.EACCES):
            raise
        raise errors.AlreadyExists(f"{target} is being created by another process") from None
    return fd


def create_atomic(
    target: str, fill: Callable[[str], T], claim: Callable[[str], object] | None = None
) -> T:
    """Create a file that gets its name only when it is complete, and return the result of ``fill``.

    fill: called with the path to fill. claim: called with that path while it is empty. Raises
    AlreadyExists, OSError.
    """
    if os.path.lexists(target):
        raise errors.AlreadyExists(f"{target} already exists and is left unchanged")
    with part_of(target) as path:
        if claim:
            claim(path)
        outcome = fill(path)
        atomic_file.sync(path)
        _publish(path, target)
    flush_name(target)
    return outcome


def clone(
    image: SourceImage,
    target_path: str,
    format: str,
    size_bytes: int | None = None,
    *,
    overlay: bool = False,
    progress: Progress | None = None,
    claim: Callable[[str], object] | None = None,
) -> ClonedDisk:
    """Create the disk ``target_path`` from an image, and return the ClonedDisk.

    image: a CachedImage or ImageInfo. target_path: a file that does not exist, or a block device,
    which is overwritten. format: ``raw`` or ``qcow2`` (an overlay is always qcow2). size_bytes:
    size of the disk; default: the image's own. progress: called with (done, total) in bytes. claim:
    as for :func:`create_atomic`.

    The disk gets its name only when it is complete; after an error nothing remains of it. Raises
    InvalidInput for a size below the image's, AlreadyExists, ImageError.
    """
    format = "qcow2" if overlay else format
    if format not in FORMATS:
        raise errors.InvalidInput(f"the format of a disk must be raw or qcow2, not {format!r}")
    target = os.path.abspath(target_path)
    folders = [os.path.dirname(os.path.realpath(image.path)), *image.files]
    info = inspect.inspect(image.path, image.format, folders, unused=True)
    size_bytes = _wanted_size(info, size_bytes)
    task = _Task(info, format, size_bytes, overlay, progress or _nothing)
    device = _is_device(target)
    try:
        if device:
            method, size_bytes = _into_device(task, target)
        else:
            method = create_atomic(target, lambda path: _fill(task, path), claim)
    except OSError as exc:
        raise errors.ImageError(f"cannot create {target}: {exc.strerror or exc}") from exc
    return ClonedDisk(target, "raw" if device else format, size_bytes, method)
