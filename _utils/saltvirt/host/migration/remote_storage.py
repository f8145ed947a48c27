"""Access files of a host, also of the target, through its libvirt's storage pools.

A folder without a pool gets a transient pool of ours for the block.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import secrets
import stat
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO
from xml.etree import ElementTree

from saltvirt import errors
from saltvirt.host.connection import libvirt, translate, translated
from saltvirt.host.storage import pool_source
from saltvirt.images import storage
from saltvirt.migration import shared
from saltvirt.migration.facts import BackingFile
from saltvirt.migration.journal import PendingFile
from saltvirt.system import tools
from saltvirt.xml.storage.pool import Pool
from saltvirt.xml.storage.volume import Volume

# a transient pool is used for a second or two: one that exists for longer was left by a
# killed process. A copy into one of its files, or a comparison, goes on without it.
STALE_S = 30
PATIENCE_S = 300
# seconds to retry the refresh of an operator's pool that is filling a volume
BUSY_S = 15
_PREFIX = "salt-virt-"
# the UUID of a pool of ours is derived from its name: an operator's pool cannot have it
_NAMESPACE = uuid.UUID("6f1d3c0a-53c8-4f0f-9f5e-4c1f6a0d7be2")
_BLOCK = 1024 * 1024
_EXISTS = re.compile("File exists|already exists")
_DEVICES = ("dev", "proc", "sys")
_MAX_SIGNATURE = 2**30

if TYPE_CHECKING:
    # of a file: its size and its two times in ns; of a device: its key
    Fingerprint = list[int] | str
    # called with the number of bytes that are done, and the total
    Progress = Callable[[int, int], None]
    # a pool, and how to restore its previous state
    _Opened = tuple[libvirt.virStoragePool | None, Callable[[], object] | None]


@contextlib.contextmanager
def skip_deleted() -> Iterator[None]:
    """Ignore a pool or volume that was deleted after it was listed; raise other errors."""
    try:
        yield
    except libvirt.libvirtError as exc:
        gone_codes = (libvirt.VIR_ERR_NO_STORAGE_POOL, libvirt.VIR_ERR_NO_STORAGE_VOL)
        if exc.get_error_code() not in gone_codes:
            raise


def _folder(pool: libvirt.virStoragePool) -> str:
    return os.path.normpath(ElementTree.fromstring(pool.XMLDesc()).findtext("target/path") or "/")


def _find(conn: libvirt.virConnect, folder: str) -> libvirt.virStoragePool | None:
    """Return the pool of the folder, active or not, or None."""
    for pool in conn.listAllStoragePools():
        with skip_deleted():
            if _folder(pool) == os.path.normpath(folder):
                return pool
    return None


def _uuid_of(name: str) -> str:
    return str(uuid.uuid5(_NAMESPACE, name))


def _pool_xml(folder: str) -> str:
    name = f"{_PREFIX}{int(time.time())}-{uuid.uuid4().hex[:8]}"
    return Pool(type="dir", name=name, uuid=_uuid_of(name), path=folder).tostring()


def _transient_pool(
    conn: libvirt.virConnect, folder: str, create: bool
) -> libvirt.virStoragePool | None:
    """Return a transient pool on the folder; None if another one conflicts with it now.

    Raises FileNotFoundError if the folder does not exist, and for folders of devices: libvirt opens
    the files that it finds there, and opening some devices (a watchdog) has effects.
    """
    if os.path.normpath(folder).split("/")[1] in _DEVICES:
        raise FileNotFoundError(folder)
    flags = libvirt.VIR_STORAGE_POOL_CREATE_WITH_BUILD if create else 0
    try:
        return conn.storagePoolCreateXML(_pool_xml(folder), flags)
    except libvirt.libvirtError as exc:
        # the other pool may be gone by now: only the message distinguishes it from a missing folder
        if "conflict" in str(exc) or "already" in str(exc):
            return None
        if exc.get_int1() == errno.ENOENT and not create:  # libvirt sets it for every system error
            raise FileNotFoundError(folder) from exc
        raise


def make_folder(conn: libvirt.virConnect, folder: str) -> bool:
    """Create the folder on the host; return whether it did not exist."""
    with open_pool(conn, folder) as pool:
        if pool is not None:
            return False
    with open_pool(conn, folder, create=True):
        return True


def remove_folder(conn: libvirt.virConnect, folder: str) -> None:
    """Remove a folder if it is empty and not in use by a pool."""
    with translated():
        if _find(conn, folder) is not None:
            return
        pool = conn.storagePoolDefineXML(_pool_xml(folder), 0)
        try:
            pool.delete(0)
        finally:
            pool.undefine()


@contextlib.contextmanager
def open_pool(
    conn: libvirt.virConnect, folder: str, create: bool = False
) -> Iterator[libvirt.virStoragePool | None]:
    """Return the active pool of a folder (or volume group) for the block; None without one.

    create: create the folder if it does not exist.
    """
    pool, undo = _open(conn, folder, create)
    try:
        if pool is not None:
            with translated():
                refresh(pool)
        yield pool
    finally:
        if undo:
            with contextlib.suppress(libvirt.libvirtError):
                undo()


@contextlib.contextmanager
def require_pool(
    conn: libvirt.virConnect, folder: str, create: bool = False
) -> Iterator[libvirt.virStoragePool]:
    """Like open_pool for a folder that must exist. Raises OperationFailed."""
    with open_pool(conn, folder, create) as pool:
        if pool is None:
            raise errors.OperationFailed(f"{conn.getHostname()} has no folder {folder}")
        yield pool


def refresh(pool: libvirt.virStoragePool) -> None:
    """Refresh the pool. A pool that fills or copies a volume cannot be refreshed until that is
    complete; libvirt's last view is then used. Creating an existing file fails in any case."""
    deadline = time.monotonic() + BUSY_S
    while True:
        try:
            pool.refresh(0)
            return
        except libvirt.libvirtError as exc:
            if "asynchronous job" not in str(exc):
                _start_again(pool)
                raise
        if time.monotonic() > deadline:
            return
        time.sleep(0.5)


def _start_again(pool: libvirt.virStoragePool) -> None:
    """Start an operator's pool again: libvirt stops a pool that it cannot refresh."""
    with contextlib.suppress(libvirt.libvirtError):
        if pool.isPersistent() and not pool.isActive():
            pool.create(0)


def is_transient(pool: libvirt.virStoragePool) -> bool:
    """Return whether the pool is one of ours for a block. Its UUID proves that, because an
    operator's pool may have any name."""
    return pool.name().startswith(_PREFIX) and pool.UUIDString() == _uuid_of(pool.name())


def _open(conn: libvirt.virConnect, folder: str, create: bool) -> _Opened:
    """Return (pool, how to restore its previous state)."""
    deadline = time.monotonic() + PATIENCE_S
    first_seen: dict[str, float] = {}
    with translated():
        while True:
            pool = _find(conn, folder)
            if pool is None:
                try:
                    pool = _transient_pool(conn, folder, create)
                except FileNotFoundError:
                    return None, None
                if pool is not None:
                    return pool, pool.destroy
            elif not is_transient(pool):
                return _user_pool(pool, create)
            elif time.monotonic() - first_seen.setdefault(pool.name(), time.monotonic()) > STALE_S:
                _remove(pool)
            if time.monotonic() > deadline:
                raise errors.OperationFailed(
                    f"{folder} is in use by a storage pool of another migration: try again later"
                )
            time.sleep(0.2)


def _user_pool(pool: libvirt.virStoragePool, create: bool) -> _Opened:
    """Return an operator's pool; an inactive one is started for the block only."""
    if pool.isActive():
        return pool, None
    pool.create(libvirt.VIR_STORAGE_POOL_CREATE_WITH_BUILD if create else 0)
    return pool, pool.destroy


def _remove(pool: libvirt.virStoragePool) -> None:
    """Remove a pool of ours, active or defined; another process may be faster."""
    for end in (pool.destroy, pool.undefine):
        with contextlib.suppress(libvirt.libvirtError):
            end()


def volume(pool: libvirt.virStoragePool, path: str) -> libvirt.virStorageVol | None:
    """Return the volume of that path in the pool, or None. A host that does not answer is an
    error."""
    try:
        return pool.storageVolLookupByName(os.path.basename(path))
    except libvirt.libvirtError as exc:
        if exc.get_error_code() == libvirt.VIR_ERR_NO_STORAGE_VOL:
            return None
        raise translate(exc) from exc


def create(
    pool: libvirt.virStoragePool,
    path: str,
    format: str,
    size_bytes: int,
    backing: BackingFile | None = None,
    mode: str | None = None,
) -> libvirt.virStorageVol:
    """Create an empty volume of that virtual size. A file uses no space, a device (a logical
    volume) all of it.

    backing: its backing file. mode: octal text.
    """
    is_block = pool_source.type_of(pool) in shared.BLOCK_POOLS
    definition = Volume(
        name=os.path.basename(path),
        capacity_bytes=size_bytes,
        allocation_bytes=size_bytes * is_block,
        format=format,
        compat="1.1" if format == "qcow2" else None,
    )
    definition.permissions.mode = mode
    if backing:
        definition.backing_path, definition.backing_format = backing.path, backing.format
    with translated():
        vol = _create_volume(pool, definition.tostring())
        if is_block and vol.info()[1] != size_bytes:
            vol.delete(0)
            raise errors.OperationFailed(
                f"{path} would have a different size on the target: its pool rounds to other "
                "extents"
            )
        return vol


def sign(pool: libvirt.virStoragePool, path: str) -> PendingFile:
    """Return what identifies a new file as ours before it is filled: an odd length in bytes, and no
    content. None for a device, which has no length of its own."""
    if pool_source.type_of(pool) in shared.BLOCK_POOLS:
        return PendingFile(path, None)
    return PendingFile(path, 2 * secrets.randbelow(_MAX_SIGNATURE // 2) + 1)


def claim(pool: libvirt.virStoragePool, making: PendingFile, mode: str) -> libvirt.virStorageVol:
    """Create the file of a :func:`sign`; return the volume. Raises AlreadyExists."""
    return create(pool, making.path, "raw", making.bytes or 0, mode=mode)


def shape(
    vol: libvirt.virStorageVol, format: str, size_bytes: int, backing: BackingFile | None = None
) -> None:
    """Convert a claimed file to an empty one of that format and virtual size."""
    with translated():
        raw = format == "raw"
        vol.resize(size_bytes if raw else 0, libvirt.VIR_STORAGE_VOL_RESIZE_SHRINK)
        if raw:
            return
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "empty")
        argv = ["qemu-img", "create", "-q", "-u", "-f", format]
        argv += ["-o", "compat=1.1"] if format == "qcow2" else []
        argv += ["-b", backing.path, "-F", backing.format] if backing else []
        tools.run([*argv, path, str(size_bytes)], f"create an empty {format} file")
        begin_upload(vol, path)(lambda _done, _total: None)


def inspect_claim(
    conn: libvirt.virConnect, making: PendingFile
) -> tuple[Fingerprint | None, str | None]:
    """Inspect the file that was being created when the migration was interrupted. Return (its
    :func:`fingerprint` if it is still as claimed, otherwise None; why the file is not ours)."""
    path = making.path
    with open_pool(conn, os.path.dirname(path)) as pool:
        vol = volume(pool, path) if pool is not None else None
        if pool is None or vol is None:
            return None, None
        if making.bytes is None:
            return None, (
                "a device that the migration was about to create, or that another program created"
            )
        with translated():
            _, _, used = vol.info()
            if used or physical_bytes(vol) != making.bytes:
                return None, "not the file that the migration was about to create"
            return _fingerprint(pool, vol), None


def fingerprint(conn: libvirt.virConnect, path: str) -> Fingerprint | None:
    """Return values that identify the current content of a file or volume: a file's length in bytes
    and the nanoseconds of its modification and change, a device's key. None if it does not exist.
    """
    with open_pool(conn, os.path.dirname(path)) as pool:
        vol = volume(pool, path) if pool is not None else None
        with translated():
            return None if pool is None or vol is None else _fingerprint(pool, vol)


def _fingerprint(pool: libvirt.virStoragePool, vol: libvirt.virStorageVol) -> Fingerprint:
    if pool_source.type_of(pool) in shared.BLOCK_POOLS:
        return vol.key()
    root = ElementTree.fromstring(vol.XMLDesc(0))
    times = [root.findtext(f"target/timestamps/{field}") for field in ("mtime", "ctime")]
    return [physical_bytes(vol), *map(_nanoseconds, times)]


def _nanoseconds(text: str | None) -> int:
    """Convert libvirt's text of a time, which omits a zero fraction."""
    seconds, _, fraction = (text or "0").partition(".")
    return int(seconds) * 10**9 + int(fraction.ljust(9, "0")[:9] or 0)


def write_file(conn: libvirt.virConnect, path: str, text: str) -> None:
    """Create a file with that text, with its folder; replace an existing one."""
    remaining = text.encode()
    with require_pool(conn, os.path.dirname(path), create=True) as pool, translated():
        earlier = volume(pool, path)
        if earlier is not None:
            earlier.delete(0)
        stream = conn.newStream(0)
        create(pool, path, "raw", 0, mode="0600").upload(stream, 0, len(remaining), 0)
        while remaining:
            remaining = remaining[stream.send(remaining) :]
        stream.finish()


def _create_volume(pool: libvirt.virStoragePool, xml: str) -> libvirt.virStorageVol:
    """Create the volume. Raises AlreadyExists, also if libvirt reports that with another code."""
    try:
        return pool.createXML(xml, 0)
    except libvirt.libvirtError as exc:
        if _EXISTS.search(str(exc)):
            raise errors.AlreadyExists(str(translate(exc))) from exc
        raise


def delete(conn: libvirt.virConnect, path: str) -> bool:
    """Delete a file or volume; return whether it existed."""
    with open_pool(conn, os.path.dirname(path)) as pool:
        vol = volume(pool, path) if pool is not None else None
        if vol is None:
            return False
        with translated():
            vol.delete(0)
        return True


def written_at(vol: libvirt.virStorageVol) -> float | None:
    """Return when the volume's file was last written to, in seconds by its host's clock; None if
    libvirt does not report it."""
    with translated():
        mtime = ElementTree.fromstring(vol.XMLDesc(0)).findtext("target/timestamps/mtime")
    return float(mtime) if mtime else None


def physical_bytes(vol: libvirt.virStorageVol) -> int:
    """Return the length of the volume's file."""
    return int(vol.infoFlags(libvirt.VIR_STORAGE_VOL_GET_PHYSICAL)[2])


def _length(file: BinaryIO) -> int:
    """Return the length of an open file or block device in bytes."""
    return os.lseek(file.fileno(), 0, os.SEEK_END)


def _sections(file: BinaryIO) -> Iterator[tuple[bool, int, int]]:
    """Yield (whether it is data, offset, bytes) for each section of a file that may have holes."""
    fd, size = file.fileno(), _length(file)
    if not stat.S_ISREG(os.fstat(fd).st_mode):  # a device does not report its holes
        yield from [(True, 0, size)] if size else []
        return
    offset = 0
    while offset < size:
        try:
            start = os.lseek(fd, offset, os.SEEK_DATA)
        except OSError as exc:
            # no data after this offset, or the file system cannot tell: then everything is data
            start = size if exc.errno == errno.ENXIO else offset
            end = size
        else:
            end = os.lseek(fd, offset, os.SEEK_HOLE) if start == offset else start
        yield start == offset, offset, end - offset
        offset = end


def begin_upload(vol: libvirt.virStorageVol, path: str) -> Callable[[Progress], None]:
    """Open a volume of the other host for the content of a local file or block device, over
    libvirt's connection.

    Returns a function that sends the content and takes a callback(bytes done, total bytes); the
    volume's pool is no longer needed then. Holes are preserved; a device is sent completely.
    """
    with _open_here(path) as file:
        size, sparse = _length(file), stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    stream = vol.connect().newStream(0)
    flags = libvirt.VIR_STORAGE_VOL_UPLOAD_SPARSE_STREAM if sparse else 0
    with translated():
        vol.upload(stream, 0, size, flags)
    return functools.partial(_upload, stream, path)


@contextlib.contextmanager
def _open_here(path: str) -> Iterator[BinaryIO]:
    """Open the local file for reading. Raises OperationFailed."""
    try:
        file = storage.open_for_reading(path)
    except OSError as exc:
        raise errors.OperationFailed(f"cannot read {path} to copy it: {exc.strerror}") from exc
    with file:
        yield file


def _upload(stream: libvirt.virStream, path: str, progress: Progress) -> None:
    with _open_here(path) as file, translated():
        try:
            sections = list(_sections(file))
            total, done = sum(length for data, _, length in sections if data), 0
            for is_data, start, length in sections:
                if not is_data:
                    stream.sendHole(length)
                    continue
                for block_bytes in _send_section(stream, file, path, (start, length)):
                    done += block_bytes
                    progress(done, total)
            stream.finish()
        except BaseException:
            with contextlib.suppress(libvirt.libvirtError):
                stream.abort()
            raise


def _send_section(
    stream: libvirt.virStream, file: BinaryIO, path: str, section: tuple[int, int]
) -> Iterator[int]:
    """Send a section (offset, bytes); yield the size of each block."""
    start, length = section
    file.seek(start)
    while length:
        block = file.read(min(length, _BLOCK))
        if not block:
            raise errors.OperationFailed(f"{path} became shorter while it was copied")
        length -= len(block)
        size = len(block)
        while block:
            block = block[stream.send(block) :]
        yield size


class _Differs(Exception):
    """The streams differ: reading stops."""


class _Comparer:
    """Compare a libvirt stream with a local file."""

    def __init__(self, file: BinaryIO):
        self.file = file

    def data(self, _stream: libvirt.virStream | None, block: bytes, _opaque: Any) -> int:
        if self.file.read(len(block)) != block:
            raise _Differs
        return len(block)

    def hole(self, _stream: libvirt.virStream, size: int, _opaque: Any) -> None:
        while size:
            part = min(size, _BLOCK)
            self.data(None, bytes(part), None)
            size -= part


def begin_compare(vol: libvirt.virStorageVol, path: str) -> Callable[[], bool]:
    """Begin to read a volume of the other host. Return a function that returns whether it equals
    the local file; the volume's pool is no longer needed then."""
    stream = vol.connect().newStream(0)
    with translated():
        vol.download(stream, 0, 0, libvirt.VIR_STORAGE_VOL_DOWNLOAD_SPARSE_STREAM)
    return functools.partial(_equals, stream, path)


def _equals(stream: libvirt.virStream, path: str) -> bool:
    with _open_here(path) as file:
        comparer = _Comparer(file)
        try:
            stream.sparseRecvAll(comparer.data, comparer.hole, None)
            stream.finish()
        except (_Differs, libvirt.libvirtError):
            with contextlib.suppress(libvirt.libvirtError):
                stream.abort()
            return False
        return not file.read(1)
