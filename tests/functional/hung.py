"""A file system whose server receives every request and answers none, like a dead NFS server. A
process that uses it waits in the kernel and cannot be killed until the server ends."""

import contextlib
import ctypes
import os
import signal
import struct
import subprocess
import sys

import pytest

# linux/fuse.h: the first message; its answer, with the version that we speak
_INIT, _VERSION, _MINOR, _LARGEST = 26, 7, 23, 4096
_ASKED = struct.Struct("<IIQQIIII")
_DETACH = 2


def _serve(place):
    """Mounts it, answers the kernel's greeting, and from then on nobody."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    if libc.mount(b"nas:/export", place.encode(), b"fuse.hung", 0, options):
        raise OSError(ctypes.get_errno(), "mount")
    while True:
        _, kind, number, *_ = _ASKED.unpack_from(os.read(fd, 1 << 17))
        if kind == _INIT:
            told = struct.pack("<IIIIHHI", _VERSION, _MINOR, 65536, 0, 12, 9, _LARGEST)
            told += bytes(64 - len(told))
            os.write(fd, struct.pack("<IiQ", 16 + len(told), 0, number) + told)
            print("mounted", flush=True)


@contextlib.contextmanager
def mounted(place):
    """The folder is such a file system for the block."""
    if os.geteuid() != 0 or not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("mounting needs root and /dev/fuse")
    libc = ctypes.CDLL(None, use_errno=True)
    argv = [sys.executable, __file__, str(place)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout.readline() == "mounted\n"
            yield str(place)
        finally:
            server.send_signal(signal.SIGKILL)
            libc.umount2(str(place).encode(), _DETACH)


if __name__ == "__main__":
    _serve(sys.argv[1])
