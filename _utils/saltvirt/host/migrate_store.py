"""Files of a host, also of the other one, through its libvirt's storage pools.

A folder that no pool shows gets a pool of ours for the time of the block.
"""

import contextlib
import os
import time
import uuid
from xml.etree import ElementTree

from saltvirt import errors
from saltvirt.host.connection import libvirt, translated

# how long to wait for another migration's passing pool on the same folder
PATIENCE_S = 30
_OURS = "salt-virt-"
_BLOCK = 1024 * 1024


def _element(tag, text=None, **attributes):
    found = ElementTree.Element(tag, attributes)
    found.text = text
    return found


def _folder(pool):
    return os.path.normpath(ElementTree.fromstring(pool.XMLDesc()).findtext("target/path") or "/")


def _find(conn, folder):
    """The pool that shows the folder, active or not, or None."""
    for pool in conn.listAllStoragePools():
        with contextlib.suppress(libvirt.libvirtError):  # undefined since it was listed
            if _folder(pool) == os.path.normpath(folder):
                return pool
    return None


def _passing(conn, folder, create):
    """A transient pool on the folder; None when there is no such folder."""
    root = _element("pool", type="dir")
    root.append(_element("name", _OURS + uuid.uuid4().hex[:12]))
    target = _element("target")
    target.append(_element("path", folder))
    root.append(target)
    text = ElementTree.tostring(root, encoding="unicode")
    flags = libvirt.VIR_STORAGE_POOL_CREATE_WITH_BUILD if create else 0
    try:
        return conn.storagePoolCreateXML(text, flags)
    except libvirt.libvirtError as exc:
        if _find(conn, folder) is None and not create:
            return None
        if "source conflict" in str(exc) or "already" in str(exc):
            return None
        raise


@contextlib.contextmanager
def opened(conn, folder, create=False):
    """The active libvirt pool of a folder (or volume group) for the block; None without one.

    create: make the folder when there is none.
    """
    pool, undo = _open(conn, folder, create)
    try:
        if pool is not None:
            with translated():
                pool.refresh(0)
        yield pool
    finally:
        if undo:
            with contextlib.suppress(libvirt.libvirtError):
                undo()


def _open(conn, folder, create):
    """(pool, how to put it back as it was)."""
    deadline = time.monotonic() + PATIENCE_S
    with translated():
        while True:
            pool = _find(conn, folder)
            if pool is not None and pool.isActive() and not pool.name().startswith(_OURS):
                return pool, None
            if pool is not None and not pool.isActive():
                pool.create(libvirt.VIR_STORAGE_POOL_CREATE_WITH_BUILD if create else 0)
                return pool, pool.destroy
            if pool is None:
                pool = _passing(conn, folder, create)
                if pool is not None:
                    return pool, pool.destroy
                if _find(conn, folder) is None:
                    return None, None
            if time.monotonic() > deadline:
                raise errors.OperationFailed(
                    f"{folder} is held by the storage pool {pool and pool.name()} of another "
                    "migration: try again later"
                )
            time.sleep(0.2)


def volume(pool, path):
    """The volume of that path in the pool, or None."""
    try:
        return pool.storageVolLookupByName(os.path.basename(path))
    except libvirt.libvirtError:
        return None


def create(pool, path, format, size_bytes, backing=None, mode=None):
    """An empty volume of that virtual size that takes no space; the libvirt volume.

    backing: dict with ``path`` and ``format`` of what it stands on. mode: octal text.
    """
    root = _element("volume")
    root.append(_element("name", os.path.basename(path)))
    root.append(_element("capacity", str(size_bytes), unit="bytes"))
    root.append(_element("allocation", "0", unit="bytes"))
    root.append(_target(format, mode))
    if backing:
        below = _element("backingStore")
        below.append(_element("path", backing["path"]))
        below.append(_element("format", type=backing["format"]))
        root.append(below)
    with translated():
        return pool.createXML(ElementTree.tostring(root, encoding="unicode"), 0)


def _target(format, mode):
    target = _element("target")
    target.append(_element("format", type=format))
    if mode:
        permissions = _element("permissions")
        permissions.append(_element("mode", mode))
        target.append(permissions)
    if format == "qcow2":
        target.append(_element("compat", "1.1"))
    return target


def delete(conn, path):
    """Removes a file or volume; nothing to do when it is gone."""
    with opened(conn, os.path.dirname(path)) as pool:
        found = volume(pool, path) if pool is not None else None
        if found is not None:
            with translated():
                found.delete(0)


def physical_bytes(found):
    """How long the volume's file is."""
    info = found.infoFlags(libvirt.VIR_STORAGE_VOL_GET_PHYSICAL)
    return info[2]


class _Reader:
    """Feeds a libvirt stream from a local file: data and holes."""

    def __init__(self, file, progress):
        self.file = file
        self.fd = file.fileno()
        self.size = os.fstat(self.fd).st_size
        self.progress = progress

    def data(self, _stream, nbytes, _opaque):
        block = self.file.read(min(nbytes, _BLOCK))
        self.progress(len(block))
        return block

    def hole(self, _stream, _opaque):
        """(in data?, bytes of this section)."""
        here = self.file.tell()
        if here >= self.size:
            return False, 0
        try:
            start = os.lseek(self.fd, here, os.SEEK_DATA)
        except OSError:  # no data after here
            start = self.size
        end = os.lseek(self.fd, here, os.SEEK_HOLE) if start == here else start
        os.lseek(self.fd, here, os.SEEK_SET)
        return start == here, end - here

    def skip(self, _stream, nbytes, _opaque):
        self.file.seek(nbytes, os.SEEK_CUR)


def upload(found, path, progress=lambda size: None):
    """Writes a local file into a volume of the other host, over libvirt's own connection.

    Holes stay holes. progress: called with the number of bytes of each block.
    """
    stream = found.connect().newStream(0)
    with open(path, "rb", buffering=0) as file, translated():
        reader = _Reader(file, progress)
        try:
            found.upload(stream, 0, reader.size, libvirt.VIR_STORAGE_VOL_UPLOAD_SPARSE_STREAM)
            stream.sparseSendAll(reader.data, reader.hole, reader.skip, None)
            stream.finish()
        except BaseException:
            with contextlib.suppress(libvirt.libvirtError):
                stream.abort()
            raise


class _Differs(Exception):
    """The streams are not the same: no need to read on."""


class _Comparer:
    """Takes a libvirt stream and holds it against a local file."""

    def __init__(self, file):
        self.file = file

    def data(self, _stream, block, _opaque):
        if self.file.read(len(block)) != block:
            raise _Differs
        return len(block)

    def hole(self, _stream, size, _opaque):
        while size:
            part = min(size, _BLOCK)
            self.data(None, bytes(part), None)
            size -= part


def equals(found, path):
    """Whether a volume of the other host has the same bytes as the local file."""
    stream = found.connect().newStream(0)
    with open(path, "rb") as file:
        comparer = _Comparer(file)
        try:
            found.download(stream, 0, 0, libvirt.VIR_STORAGE_VOL_DOWNLOAD_SPARSE_STREAM)
            stream.sparseRecvAll(comparer.data, comparer.hole, None)
            stream.finish()
        except (_Differs, libvirt.libvirtError):
            with contextlib.suppress(libvirt.libvirtError):
                stream.abort()
            return False
        return not file.read(1)
