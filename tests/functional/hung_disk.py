"""A disk that stops answering on request: a loop device on a file of a FUSE server, which is
stopped. A process that uses it then waits in the kernel, as for a multipath device without
paths."""

import contextlib
import ctypes
import os
import pathlib
import signal
import stat
import struct
import subprocess
import sys

import pytest

from tests.functional.hung import _ASKED, _DETACH, _INIT, _MINOR, _VERSION

_LOOKUP, _FORGET, _GETATTR, _SETATTR, _OPEN, _READ, _WRITE = 1, 2, 3, 4, 14, 15, 16
_RELEASE, _FSYNC, _FLUSH, _INTERRUPT, _BATCH_FORGET = 18, 20, 25, 36, 42
_NO_SUCH, _DIRECT, _SILENT = 38, 1, (_FORGET, _INTERRUPT, _BATCH_FORGET)
_SIZE = 16 * 1024**2
_REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


def _attributes(number, fd):
    size = os.fstat(fd).st_size
    mode = stat.S_IFDIR | 0o755 if number == 1 else stat.S_IFREG | 0o600
    return struct.pack("<6Q10I", number, size, size // 512, *[0] * 6, mode, 1, 0, 0, 0, 4096, 0)


def _greeting(*_):
    told = struct.pack("<IIIIHHI", _VERSION, _MINOR, 0, 0, 12, 9, 65536)
    return told + bytes(64 - len(told))


def _read(_, body, fd):
    _, offset, size = struct.unpack_from("<QQI", body)
    return os.pread(fd, size, offset)


def _write(_, body, fd):
    _, offset, size = struct.unpack_from("<QQI", body)
    return struct.pack("<2I", os.pwrite(fd, body[40 : 40 + size], offset), 0)


_ANSWERS = {
    _INIT: _greeting,
    _LOOKUP: lambda _, body, fd: struct.pack("<4Q2I", 2, 0, 0, 0, 0, 0) + _attributes(2, fd),
    _GETATTR: lambda number, body, fd: struct.pack("<Q2I", 0, 0, 0) + _attributes(number, fd),
    _SETATTR: lambda number, body, fd: struct.pack("<Q2I", 0, 0, 0) + _attributes(number, fd),
    _OPEN: lambda *_: struct.pack("<Q2I", 1, _DIRECT, 0),
    _READ: _read,
    _WRITE: _write,
    **dict.fromkeys((_RELEASE, _FSYNC, _FLUSH), lambda *_: b""),
}


def _serve(place, file):
    libc = ctypes.CDLL(None, use_errno=True)
    fuse, fd = os.open("/dev/fuse", os.O_RDWR), os.open(file, os.O_RDWR)
    options = f"fd={fuse},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    if libc.mount(b"disk", place.encode(), b"fuse.disk", 0, options):
        raise OSError(ctypes.get_errno(), "mount")
    while True:
        asked = os.read(fuse, 1 << 20)
        _, kind, unique, number, *_ = _ASKED.unpack_from(asked)
        if kind in _SILENT:
            continue
        known = kind in _ANSWERS
        body = _ANSWERS[kind](number, asked[_ASKED.size :], fd) if known else b""
        error = 0 if known else -_NO_SUCH
        os.write(fuse, struct.pack("<IiQ", 16 + len(body), error, unique) + body)
        if kind == _INIT:
            print("mounted", flush=True)


def _run(*argv):
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


class Disk:
    """device: the block device. folder: where its file system is mounted."""

    def __init__(self, server, device, folder):
        self._server, self.device, self.folder = server, device, str(folder)

    def dies(self):
        # another process may have looked at a file: the kernel would answer from memory
        with contextlib.suppress(OSError):
            pathlib.Path("/proc/sys/vm/drop_caches").write_text("2", encoding="ascii")
        self._server.send_signal(signal.SIGSTOP)


@contextlib.contextmanager
def made(root, fill):
    """A Disk for the block. fill: called with its folder before it is mounted anew."""
    if os.geteuid() != 0 or not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("mounting needs root and /dev/fuse")
    libc = ctypes.CDLL(None, use_errno=True)
    image, far, folder = root / "image", root / "far", root / "disk"
    far.mkdir()
    folder.mkdir()
    image.touch()
    os.truncate(image, _SIZE)
    _run("mkfs.ext4", "-q", "-F", str(image))
    with contextlib.ExitStack() as undo:
        argv = [sys.executable, "-m", __name__, str(far), str(image)]
        server = undo.enter_context(
            subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=_REPOSITORY)
        )
        undo.callback(libc.umount2, str(far).encode(), _DETACH)
        undo.callback(server.send_signal, signal.SIGKILL)
        assert server.stdout.readline() == "mounted\n"
        device = _run("losetup", "--find", "--show", str(far / "disk"))
        undo.callback(subprocess.run, ["losetup", "--detach", device], check=False)
        undo.callback(libc.umount2, str(folder).encode(), _DETACH)
        undo.callback(server.send_signal, signal.SIGKILL)  # what waits ends with an error
        for step in (fill, None):
            _run("mount", device, str(folder))
            if step:
                step(folder)
                _run("umount", str(folder))
        # what is in the kernel's memory is read without the disk
        _run("blockdev", "--flushbufs", device)
        yield Disk(server, device, folder)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
