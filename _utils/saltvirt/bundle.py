"""The published branch's ``saltvirt/__init__.py``, next to the library in a single file.

``library.zip`` contains this package, and ends with the digest of everything before. It is unpacked
once, atomically, to a folder of Salt's ``extension_modules`` with the digest as its name:
``saltvirt-library/DIGEST/saltvirt``. This module then becomes that package. A sync does not touch
this folder, so that compiled files are preserved. A process that uses a folder holds a lock on it;
unused folders are removed when another one is unpacked.

Without an archive next to it, as in the library itself, this file does nothing.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import importlib.machinery
import io
import os
import shutil
import tempfile
import time
import zipfile

ARCHIVE, STORE = "library.zip", "saltvirt-library"
_LOCK = "in-use"
# hexadecimal digits of a SHA-256; the archive's comment for zip
DIGITS = 64
# a sync writes a file in several steps
_SYNC_S, _PAUSE_S = 3.0, 0.1
# other processes can remove a folder that has just been unpacked for another version
_TRIES = 5
# a folder without lock is being created, or its creator has died
_ABANDONED_S = 3600


def digest(archive: str) -> str:
    """The digest at the end of an archive; empty if it is missing or incomplete."""
    try:
        with open(archive, "rb") as file:
            file.seek(-DIGITS, os.SEEK_END)
            trailer = file.read().decode("ascii")
    except (OSError, UnicodeDecodeError):
        return ""
    return trailer if len(trailer) == DIGITS and set(trailer) <= set("0123456789abcdef") else ""


def with_digest(archive: bytes) -> bytes:
    """The content of an archive, with its digest in the space that its comment reserves."""
    return archive[:-DIGITS] + hashlib.sha256(archive[:-DIGITS]).hexdigest().encode()


def begin(package: dict[str, object]) -> None:
    """Turn a module, given by its globals, into the package in the archive next to it."""
    archive = os.path.join(os.path.dirname(os.path.abspath(str(package["__file__"]))), ARCHIVE)
    folder = _unpacked_folder(archive)
    root = os.path.join(folder, "saltvirt")
    path = os.path.join(root, "__init__.py")
    package.update(__file__=path, __path__=[root], PACKED=(archive, os.path.basename(folder)))
    code = importlib.machinery.SourceFileLoader("saltvirt", path).get_code("saltvirt")
    assert code
    exec(code, package)


def _unpacked_folder(archive: str) -> str:
    """The folder of the unpacked archive, which is not removed while this process lives."""
    store = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(archive))), STORE)
    try:
        for _ in range(_TRIES):
            folder = os.path.join(store, digest(archive) or "none")
            if _lock_folder(folder):
                return folder
            _unpack(_read_archive(archive), store)
    except OSError as exc:
        raise ImportError(
            f"the library of Salt Virt cannot be unpacked into {store}: {exc}. "
            "Salt must be able to write there once after each update"
        ) from exc
    raise ImportError(f"the library of Salt Virt is removed from {store} again and again")


def _lock_folder(folder: str) -> bool:
    """Lock the folder for the life of this process and its forks; False: it does not exist."""
    path = os.path.join(folder, _LOCK)
    try:
        lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    with contextlib.suppress(BlockingIOError, FileNotFoundError):
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(lock), os.stat(path)):
            return True
    os.close(lock)  # another process is removing it
    return False


def _read_archive(archive: str) -> bytes:
    """The content of the archive. Raises ImportError if it is still incomplete after the time that
    a sync takes. A sync that started longer ago has ended; every adapter of a job comes here."""
    began = max(_mtime(archive), _mtime(os.path.dirname(archive)))
    deadline = time.monotonic() + min(_SYNC_S, _SYNC_S - (time.time() - began))
    while True:
        with contextlib.suppress(FileNotFoundError), open(archive, "rb") as file:
            content = file.read()
            if content == with_digest(content):
                return content
        if time.monotonic() > deadline:
            raise ImportError(
                f"the library of Salt Virt is incomplete here: {archive} is missing or broken. "
                "Run saltutil.sync_all again"
            )
        time.sleep(_PAUSE_S)


def _mtime(path: str) -> float:
    """The modification time of a file or folder; 0 if it does not exist."""
    with contextlib.suppress(FileNotFoundError):
        return os.stat(path).st_mtime
    return 0.0


def _unpack(content: bytes, store: str) -> None:
    """Unpack an archive to its folder, and remove unused folders of the store."""
    owner = os.stat(os.path.dirname(store))
    with contextlib.suppress(FileExistsError):
        os.mkdir(store, 0o700)
        _persist(store, owner)
    _remove_unused(store)
    part = tempfile.mkdtemp(prefix="new-", dir=store)
    try:
        with open(os.path.join(part, _LOCK), "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                archive.extractall(part)
            for directory, _, names in os.walk(part):
                for path in (directory, *(os.path.join(directory, name) for name in names)):
                    _persist(path, owner)
            os.rename(part, os.path.join(store, content[-DIGITS:].decode()))
            _persist(store, owner)
    except OSError as exc:
        # another process was faster, or considers it unused and has just locked it: try again
        if exc.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOENT, errno.EAGAIN):
            raise
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _persist(path: str, owner: os.stat_result) -> None:
    """Flush a file or folder to disk, because a power failure can leave empty files; and give it to
    the owner of the folder above, because root can run a job of a Salt that does not run as root.
    """
    if os.geteuid() == 0 and owner.st_uid != 0:
        os.chown(path, owner.st_uid, owner.st_gid)
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _remove_unused(store: str) -> None:
    for name in os.listdir(store):
        with contextlib.suppress(OSError):
            _remove(os.path.join(store, name))


def _remove(folder: str) -> None:
    """Remove the folder, unless a process uses or creates it."""
    try:
        lock = os.open(os.path.join(folder, _LOCK), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        if time.time() - os.stat(folder).st_mtime > _ABANDONED_S:
            shutil.rmtree(folder, ignore_errors=True)
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # other processes see either the complete folder or none
        trash_dir = tempfile.mkdtemp(prefix="old-", dir=os.path.dirname(folder))
        os.rename(folder, os.path.join(trash_dir, "library"))
        shutil.rmtree(trash_dir, ignore_errors=True)
    finally:
        os.close(lock)


if __name__ == "saltvirt":
    begin(globals())
