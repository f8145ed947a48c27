"""Find out whether a folder of this host and one of the target are the same: a file that one of
them creates is seen by the other, or prevents it from creating it."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from saltvirt import errors
from saltvirt.host.connection import libvirt
from saltvirt.host.migration import remote_storage
from saltvirt.migration import shared
from saltvirt.system import mounts, tools

# seconds after which clients of network file systems show new files (NFS: acdirmax, 60 s)
CACHED_S = 75
HIDDEN = (
    "root of this host may not read it (root_squash), so libvirt's pools cannot show it to the "
    "other host: make it readable (mode 0644), or export it with no_root_squash"
)
_NAME = "salt-virt-marker-"
_MARK = re.compile(f"{_NAME}[0-9a-f]{{16}}")
# longer than any check takes
_STALE_S = 24 * 3600
_TEXT = "Salt Virt looks whether this folder is shared between hosts"
# a server with root_squash maps root to an unprivileged user, but not the folder's owner
_WRITE = 'umask 022; set -C; echo "$2" > "$1"'


if TYPE_CHECKING:
    # user and group ID; None: root
    _Owner = tuple[int, int] | None
    # name, folder, owner
    _Mark = tuple[str, str, _Owner]
    # (whether a folder is the same on both hosts, or None; why that is unknown)
    Proof = tuple[bool | None, str | None]


def file_system(path: str, table: str = mounts.TABLE) -> str | None:
    """Return the type of the file system of a path, or None."""
    mount = mounts.mount_of(mounts.read(table), os.path.realpath(path))
    return str(mount.kind) if mount else None


@contextlib.contextmanager
def place_markers(paths: Iterable[str]) -> Iterator[dict[str, str]]:
    """Create a marker file beside each of the files for the block: {folder: name}; without folders
    in which none could be created."""
    marks: dict[str, _Mark | None] = {}
    try:
        for path in sorted(paths, key=leads_out):
            folder = os.path.dirname(path)
            if folder not in marks:
                marks[folder] = _mark(path)
        yield {folder: mark[0] for folder, mark in marks.items() if mark}
    finally:
        for mark in filter(None, marks.values()):
            _remove(*mark)


def leads_out(path: str) -> bool:
    """Return whether a path is a link to a file in another folder, about which its own folder tells
    nothing."""
    return os.path.dirname(os.path.realpath(path)) != os.path.realpath(os.path.dirname(path))


def file_proof(path: str, proof: Proof) -> Proof:
    """Return the result of :func:`same` for one file of this host in the folder."""
    if proof[0] and leads_out(path):
        link_target = os.path.realpath(path)
        return None, f"{path} is a link to {link_target}, which is outside the shared folder"
    return proof


def _mark(path: str) -> _Mark | None:
    """Return (name, folder, owner) of a marker on the same file system as the file, or None."""
    folder = os.path.dirname(os.path.realpath(path))
    name = f"{_NAME}{os.urandom(8).hex()}"
    for owner in _owners(folder, path):
        if _run(owner, "sh", "-c", _WRITE, "sh", os.path.join(folder, name), _TEXT):
            mark = (name, folder, owner)
            if _same_device(os.path.join(folder, name), path):
                _tidy(folder, name)
                return mark
            _remove(*mark)
            return None
    return None


def _tidy(folder: str, mark: str) -> None:
    """Remove the markers of killed migrations. Their age is relative to a new marker, so it is by
    the clock of the file server."""
    with contextlib.suppress(OSError):
        now = os.lstat(os.path.join(folder, mark)).st_mtime
        for name in filter(_MARK.fullmatch, os.listdir(folder)):
            with contextlib.suppress(OSError):
                path = os.path.join(folder, name)
                info = os.lstat(path)
                if now - info.st_mtime > _STALE_S and stat.S_ISREG(info.st_mode) and _is_mark(path):
                    _remove(name, folder, (info.st_uid, info.st_gid) if info.st_uid else None)


def _is_mark(path: str) -> bool:
    """Return whether the file contains only our own text; the other host writes none."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        return file.read(len(_TEXT) + 2) in (b"", f"{_TEXT}\n".encode())


def _owners(folder: str, path: str) -> Iterable[_Owner]:
    """Return the users to try: root, the folder's owner, the file's owner."""
    owners: list[_Owner] = [None]
    for candidate in (folder, path):
        with contextlib.suppress(OSError):
            info = os.stat(candidate)
            owners.append((info.st_uid, info.st_gid))
    return dict.fromkeys(owners)


def _same_device(mark: str, path: str) -> bool:
    with contextlib.suppress(OSError):
        neighbour = path if os.path.lexists(path) else os.path.dirname(path)
        return os.stat(mark).st_dev == os.stat(neighbour).st_dev
    return False


def _remove(name: str, folder: str, owner: _Owner) -> None:
    _run(owner, "rm", "-f", os.path.join(folder, name))


def _run(owner: _Owner, *argv: str) -> bool:
    try:
        tools.run(argv, "check whether a folder is shared", user=owner, timeout_s=60)
    except errors.OperationFailed:
        return False
    return True


def is_hidden(path: str) -> bool:
    """Return whether an existing file cannot be read because a server maps root to an unprivileged
    user (root_squash). libvirt fails in the same way, and stops a pool that it refreshes then.

    A file that was opened may still fail to be read or closed: GlusterFS opens late.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            os.pread(handle, 1, 0)
        finally:
            os.close(handle)
    except OSError as exc:
        return isinstance(exc, PermissionError)
    return False


def same(pool: libvirt.virStoragePool, mark: str | None, fs: str | None) -> Proof:
    """Return (True, False or None if unknown; why it is unknown).

    pool: of the folder on the other host; mark: the name of our marker, or None; fs: the type of
    the file system on this host.
    """
    if mark is None:
        return (
            None,
            "no marker file could be created beside it here, to check whether the target shares it",
        )
    if _visible(pool, mark):
        return True, None
    in_use = _name_in_use(pool, mark)
    if in_use is None and shared.on_network(fs):
        in_use = _appears(pool, mark)
    if in_use is None:
        return None, "the target cannot create a file beside it, and does not show the marker file"
    return in_use, None


def _visible(pool: libvirt.virStoragePool, mark: str) -> bool:
    return remote_storage.volume(pool, mark) is not None


def _name_in_use(pool: libvirt.virStoragePool, mark: str) -> bool | None:
    """Return whether the file prevents the other host from creating one of that name, which does
    not depend on caches. None if it can create no file at all."""
    try:
        volume = remote_storage.create(pool, mark, "raw", 0, mode="0600")
    except errors.AlreadyExists:
        return True
    except errors.OperationFailed:
        return None
    with contextlib.suppress(libvirt.libvirtError):
        volume.delete(0)
    return False


def _appears(pool: libvirt.virStoragePool, mark: str) -> bool | None:
    """Return True if the other host sees the file when its caches have expired. None proves
    nothing."""
    deadline = time.monotonic() + CACHED_S
    while time.monotonic() < deadline:
        time.sleep(2)
        try:
            pool.refresh(0)
        except libvirt.libvirtError:  # another migration has taken our pool for abandoned
            return None
        if _visible(pool, mark):
            return True
    return None
