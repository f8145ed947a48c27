"""What is asked of a file. Run as a program, it answers such questions of the process that began
it: see saltvirt.host.storage.bounded.

It imports nothing of this library, so that it is up at once.
"""

import base64
import fcntl
import json
import os
import stat
import struct
import sys

# QEMU, block/file-posix.c: a byte for each permission that is used, and that is not shared
USED, UNSHARED = 100, 200
PERMISSIONS = range(5)
FILE, FOLDER, LINK, OTHER = "file", "folder", "link", "other"
_FIELDS = (
    *("st_mode", "st_ino", "st_dev", "st_uid", "st_gid", "st_size", "st_blocks"),
    *("st_rdev", "st_mtime", "st_mtime_ns"),
)


def seen(path, follow=False):
    """What os.stat says, as a dict."""
    found = os.stat(path, follow_symlinks=follow)
    return {field: getattr(found, field) for field in _FIELDS}


def link(path):
    return os.readlink(path)


def names(folder):
    """(name, its kind) of all that is in it: FILE, FOLDER, LINK or OTHER."""
    with os.scandir(folder) as entries:
        return [[entry.name, _kind(entry)] for entry in entries]


def _kind(entry):
    if entry.is_symlink():
        return LINK
    if entry.is_file(follow_symlinks=False):
        return FILE
    return FOLDER if entry.is_dir(follow_symlinks=False) else OTHER


def opened(path):
    """A descriptor for reading, or None of what is neither a file nor a block device.

    It is looked at through a descriptor that opens nothing; what was seen is then opened.
    """
    here = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        mode = os.fstat(here).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISBLK(mode)):
            return None
        return os.open(f"/proc/self/fd/{here}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    finally:
        os.close(here)


def head(path, size):
    """The first bytes of a file or block device, in base 64; None of anything else."""
    fd = opened(path)
    if fd is None:
        return None
    with os.fdopen(fd, "rb") as file:
        about = os.fstat(fd)
        # the kernel's own files have no size: who reads one may wait, or take what is others'
        empty = stat.S_ISREG(about.st_mode) and not about.st_size
        return base64.b64encode(b"" if empty else file.read(size)).decode()


def flock(kind, byte):
    """The kernel's struct flock for one byte."""
    return struct.pack("hhqqi4x", kind, os.SEEK_SET, byte, 1, 0)


def is_locked(fd, byte):
    answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, flock(fcntl.F_WRLCK, byte))
    return struct.unpack("hhqqi4x", answer)[0] != fcntl.F_UNLCK


def locked(path):
    """Whether a QEMU holds its locks on a file; False where it cannot be told."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return False
        return any(is_locked(fd, kind + what) for kind in (USED, UNSHARED) for what in PERMISSIONS)
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(fd)


def room(path):
    """(the size of a unit in bytes, units in all, free units) of a file system."""
    found = os.statvfs(path)
    return [found.f_frsize, found.f_blocks, found.f_bavail]


QUESTIONS = {one.__name__: one for one in (seen, link, names, head, locked, room)}


def _answer(line):
    what, *arguments = json.loads(line)
    try:
        return {"answer": QUESTIONS[what](*arguments)}
    except OSError as exc:
        return {"error": exc.errno}


if __name__ == "__main__":
    for question in sys.stdin:
        print(json.dumps(_answer(question)), flush=True)
