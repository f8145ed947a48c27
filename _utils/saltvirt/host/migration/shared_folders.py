"""Whether a folder of this host and one of the other are the same: a file that one puts there is
seen, or is in the way, on the other.
"""

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
from saltvirt.host.storage import mounts
from saltvirt.images import tools
from saltvirt.migration import shared

# clients of network file systems show others' new files by then (NFS: acdirmax, 60 s)
CACHED_S = 75
HIDDEN = (
    "root of this host may not read it (root_squash): libvirt's pools cannot show it to the other "
    "host either; let all read it (mode 0644), or export it with no_root_squash"
)
_NAME = "salt-virt-marker-"
_MARK = re.compile(f"{_NAME}[0-9a-f]{{16}}")
# nobody looks for so long
_STALE_S = 24 * 3600
_TEXT = "Salt Virt looks whether this folder is shared between hosts"
# root of this host may be nobody on the server (root_squash): the folder's owner is not
_WRITE = 'umask 022; set -C; echo "$2" > "$1"'


if TYPE_CHECKING:
    # a user and a group by number; None: root
    _Owner = tuple[int, int] | None
    # name, folder, whose
    _Mark = tuple[str, str, _Owner]
    # (whether a folder is the same on both hosts, or None; why that is not known)
    Proof = tuple[bool | None, str | None]


def file_system(path: str, table: str = mounts.TABLE) -> str | None:
    """The type of the file system that a path is on, or None."""
    mount = mounts.mount_of(mounts.read(table), os.path.realpath(path))
    return str(mount.kind) if mount else None


@contextlib.contextmanager
def place_markers(paths: Iterable[str]) -> Iterator[dict[str, str]]:
    """Puts a file with a name of its own beside each of the files for the block:
    {folder: name}; without those of folders in which nobody could."""
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
    """Whether a path is a link to a file in another folder, of which its own folder tells
    nothing."""
    return os.path.dirname(os.path.realpath(path)) != os.path.realpath(os.path.dirname(path))


def file_proof(path: str, proof: Proof) -> Proof:
    """What :func:`same` found of a folder, for one file of this host in it."""
    if proof[0] and leads_out(path):
        link_target = os.path.realpath(path)
        return None, f"{path} is a link to {link_target}, of which the shared folder tells nothing"
    return proof


def _mark(path: str) -> _Mark | None:
    """(name, folder, whose) of a file on the same file system as that one, or None."""
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
    """Removes the marks of migrations that were killed. They are old beside a mark made just now:
    so it is by the clock of who has the folder."""
    with contextlib.suppress(OSError):
        now = os.lstat(os.path.join(folder, mark)).st_mtime
        for name in filter(_MARK.fullmatch, os.listdir(folder)):
            with contextlib.suppress(OSError):
                path = os.path.join(folder, name)
                info = os.lstat(path)
                if now - info.st_mtime > _STALE_S and stat.S_ISREG(info.st_mode) and _is_mark(path):
                    _remove(name, folder, (info.st_uid, info.st_gid) if info.st_uid else None)


def _is_mark(path: str) -> bool:
    """Whether there is nothing in the file but our own words; the other host writes none."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        return file.read(len(_TEXT) + 2) in (b"", f"{_TEXT}\n".encode())


def _owners(folder: str, path: str) -> Iterable[_Owner]:
    """As whom to try: root, the folder's owner, the file's."""
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
        tools.run(argv, "look whether a folder is shared", user=owner, timeout_s=60)
    except errors.OperationFailed:
        return False
    return True


def is_hidden(path: str) -> bool:
    """Whether we may not read a file that is there: a server takes our root for nobody. libvirt
    fails in the same way, and stops a pool that it refreshes then.

    One that was opened may still not be read, nor closed without an error: GlusterFS opens late.
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
    """(True, False or None where it cannot be told; why it cannot).

    pool: of the folder on the other host; mark: the name that this one put there, or None; fs:
    the type of the file system here.
    """
    if mark is None:
        return None, "no file could be made beside it here, to see whether the target shares it"
    if _visible(pool, mark):
        return True, None
    in_use = _name_in_use(pool, mark)
    if in_use is None and shared.on_network(fs):
        in_use = _appears(pool, mark)
    if in_use is None:
        return None, "the target cannot make a file beside it, and does not show the one made here"
    return in_use, None


def _visible(pool: libvirt.virStoragePool, mark: str) -> bool:
    return remote_storage.volume(pool, mark) is not None


def _name_in_use(pool: libvirt.virStoragePool, mark: str) -> bool | None:
    """Whether the file is in the way when the other host makes one of that name: no cache is
    asked then. None when it can make none at all."""
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
    """True when the other host comes to see the file, as what it remembers has grown old. None
    proves nothing."""
    deadline = time.monotonic() + CACHED_S
    while time.monotonic() < deadline:
        time.sleep(2)
        try:
            pool.refresh(0)
        except libvirt.libvirtError:  # a pool of ours that another migration took for left
            return None
        if _visible(pool, mark):
            return True
    return None
