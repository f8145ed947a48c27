"""Upload of a file on this host to a volume."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass

from saltvirt import errors, units
from saltvirt.host import connection
from saltvirt.host.connection import libvirt, translated
from saltvirt.host.storage import files, volumes
from saltvirt.images import storage

# formats whose file has the size of the disk
_RAW_FORMATS = {None, "none", "raw"}
_CAPACITY_XATTR = "user.saltvirt.capacity"


@dataclass(frozen=True)
class UploadRange:
    """The offset in the volume and the length of the data, in bytes. Length 0 means the whole
    file."""

    offset: int = 0
    length: int = 0


def upload(
    conn: libvirt.virConnect,
    pool: str,
    name: str,
    path: str,
    part: UploadRange,
    sparse: bool = False,
    force: bool = False,
) -> bool:
    """Upload a file, or the beginning of it, to a volume; True.

    sparse: keep holes of the file and do not send them. force: as in volumes.refuse_written.

    Raises InvalidInput, before anything is written, if the file does not fit.
    """
    volume = volumes.lookup(conn, pool, name)
    try:
        descriptor = storage.descriptor(path)
    except OSError as exc:
        raise errors.InvalidInput(f"cannot read {path}: {exc.strerror}") from exc
    except errors.ImageError as exc:
        raise errors.InvalidInput(f"cannot read {path}: not a file or block device") from exc
    try:
        capacity = _capacity(volume)
        size = _checked_size(volume, descriptor, path, part, capacity)
        volumes.refuse_written(conn, pool, volume, force)
        action = f"upload {path} to volume {name} in storage pool {pool}"
        with (
            translated(action),
            volumes.prevent_open(conn, pool, volume),
            _preserve_size(volume, capacity),
        ):
            _send(conn, volume, _SparseReader(descriptor, size), part.offset, sparse)
    except OSError as exc:
        raise errors.OperationFailed(f"cannot upload {path}: {exc.strerror}") from exc
    finally:
        os.close(descriptor)
    return True


def _checked_size(
    volume: libvirt.virStorageVol,
    descriptor: int,
    path: str,
    part: UploadRange,
    capacity: int,
) -> int:
    """Return the number of bytes to send."""
    size = os.lseek(descriptor, 0, os.SEEK_END)
    size = min(size, part.length) if part.length else size
    info = volumes.describe(volume)
    if info["format"] in _RAW_FORMATS and part.offset + size > capacity:
        raise errors.InvalidInput(
            f"{path} does not fit: {units.human_bytes(size)} at {part.offset} in volume "
            f"{volume.name()} of {units.human_bytes(capacity)}; virt.volume_resize "
            "changes its size, for example after an interrupted sparse upload"
        )
    return size


def _file(volume: libvirt.virStorageVol) -> str | None:
    """Return the volume's file if it is a file on this host, else None."""
    is_local_file = connection.is_local(volume.connect()) and files.is_regular(volume.path())
    return volume.path() if is_local_file else None


def _capacity(volume: libvirt.virStorageVol) -> int:
    """Return the volume's capacity, or the capacity before an interrupted upload."""
    saved_capacity, path = 0, _file(volume)
    with contextlib.suppress(OSError, ValueError):
        saved_capacity = int(os.getxattr(path, _CAPACITY_XATTR)) if path else 0
    return max(saved_capacity, volume.info()[1])


@contextlib.contextmanager
def _preserve_size(volume: libvirt.virStorageVol, capacity: int) -> Iterator[None]:
    """Restore the volume's size after a sparse upload.

    libvirt truncates a raw volume at a hole until more data arrives. The size is stored in an
    extended attribute of the file in case this process is killed.
    """
    path = _file(volume)
    with contextlib.suppress(OSError):
        if path:
            os.setxattr(path, _CAPACITY_XATTR, str(capacity).encode())
    try:
        yield
    except BaseException:
        with contextlib.suppress(libvirt.libvirtError):
            _restore_size(volume, capacity)
        raise
    _restore_size(volume, capacity)


def _restore_size(volume: libvirt.virStorageVol, capacity: int) -> None:
    if _is_cut(volume, capacity):
        volume.resize(capacity, 0)
    path = _file(volume)
    with contextlib.suppress(OSError):
        if path:
            os.removexattr(path, _CAPACITY_XATTR)


def _is_cut(volume: libvirt.virStorageVol, capacity: int) -> bool:
    """Return whether the volume is raw and smaller than its capacity.

    An image whose format libvirt cannot determine is not raw.
    """
    try:
        info = volumes.describe(volume)
    except errors.OperationFailed:
        return False
    except libvirt.libvirtError as exc:
        ignored_error = (libvirt.VIR_FROM_STORAGE, libvirt.VIR_ERR_SYSTEM_ERROR)
        if (exc.get_error_domain(), exc.get_error_code()) != ignored_error:
            raise
        return False
    return info["format"] in _RAW_FORMATS and info["capacity"] < capacity


class _SparseReader:
    """Reads the first ``size`` bytes of a file, including the position of its holes."""

    def __init__(self, descriptor: int, size: int) -> None:
        self.descriptor, self.size, self.position = descriptor, size, 0

    def read(self, _stream: libvirt.virStream, max_bytes: int, _opaque: object) -> bytes:
        data = os.pread(self.descriptor, min(max_bytes, self.size - self.position), self.position)
        self.position += len(data)
        return data

    def section(self, _stream: libvirt.virStream, _opaque: object) -> tuple[bool, int]:
        """Return (is data, length) of the next section."""
        if self.position >= self.size:
            return False, 0
        data = self._seek(os.SEEK_DATA)
        if data > self.position:
            return False, data - self.position
        return True, self._seek(os.SEEK_HOLE) - self.position

    def skip(self, _stream: libvirt.virStream, length: int, _opaque: object) -> int:
        self.position += length
        return self.position

    def _seek(self, whence: int) -> int:
        try:
            return min(os.lseek(self.descriptor, self.position, whence), self.size)
        except OSError as exc:
            if exc.errno != errno.ENXIO:  # a hole until the end
                raise
            return self.size


def _send(
    conn: libvirt.virConnect,
    volume: libvirt.virStorageVol,
    reader: _SparseReader,
    offset: int,
    sparse: bool,
) -> None:
    stream = conn.newStream(0)
    flags = libvirt.VIR_STORAGE_VOL_UPLOAD_SPARSE_STREAM if sparse else 0
    try:
        volume.upload(stream, offset, reader.size, flags)
        if sparse:
            stream.sparseSendAll(reader.read, reader.section, reader.skip, None)
        else:
            stream.sendAll(reader.read, None)
        stream.finish()
    except BaseException:
        with contextlib.suppress(libvirt.libvirtError):  # the stream may have ended already
            stream.abort()
        raise
