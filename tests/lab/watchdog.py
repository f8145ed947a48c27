"""A watchdog for a machine of the lab: unfed for its time-out, it takes the machine's power.

    /usr/bin/python3 -m tests.lab.watchdog LAB MACHINE FOLDER

It serves FOLDER/watchdog by FUSE; in the machine that is /dev/watchdog. It answers as Linux'
watchdogs do (Documentation/watchdog/watchdog-api.rst): the first open arms it, each write and
KEEPALIVE feeds it, a close after the magic character ``V`` puts it at rest, and any other close,
such as by a kill, does not. A machine that has lost its power in another way is at rest, too.
"""

import ctypes
import errno
import os
import struct
import sys
import threading
import time

import fusepy

from tests.lab.cloud import Cloud

NAME = "watchdog"
DEFAULT_S, MOST_S = 60, 600
SUPPORT, STATUS, BOOT_STATUS, OPTIONS, KEEPALIVE, SET_TIMEOUT, GET_TIMEOUT, TIME_LEFT = (
    0, 1, 2, 4, 5, 6, 7, 10,
)  # fmt: skip
DISABLE_CARD, ENABLE_CARD = 1, 2
# WDIOF_SETTIMEOUT, WDIOF_MAGICCLOSE, WDIOF_KEEPALIVEPING
CAN = 0x80 | 0x100 | 0x8000


class Device(fusepy.Operations):
    """machine: whose power it takes."""

    def __init__(self, machine):
        self.machine = machine
        self.guard = threading.Lock()
        self.timeout_s, self.is_open, self.magic = DEFAULT_S, False, False
        # until when it is to be fed, and the start of the machine that it is for; None: at rest
        self.until = self.leader = None
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self):
        while True:
            time.sleep(0.05)
            if self._is_over():  # without the lock: who is killed closes the device
                self.machine.kill()

    def _is_over(self):
        """Whether it was to be fed before now; it is at rest then."""
        with self.guard:
            if self.until is None:
                return False
            same = self.machine.leader() == self.leader
            if same and time.monotonic() <= self.until:
                return False
            self.until, self.is_open = None, False
            return same

    def _feed(self):
        self.until = time.monotonic() + self.timeout_s

    def getattr(self, path, fh=None):
        if path == "/":
            return {"st_mode": 0o40755, "st_nlink": 2}
        if path != f"/{NAME}":
            raise fusepy.FuseOSError(errno.ENOENT)
        return {"st_mode": 0o100600, "st_nlink": 1, "st_size": 0}

    def readdir(self, path, fh):
        return [".", "..", NAME]

    def open(self, path, flags):
        with self.guard:
            leader = self.machine.leader()
            if self.is_open and leader == self.leader:
                raise fusepy.FuseOSError(errno.EBUSY)
            self.leader, self.is_open, self.magic = leader, True, False
            self._feed()
        return 0

    def truncate(self, path, length, fh=None):
        return 0

    def write(self, path, data, offset, fh):
        with self.guard:
            self.magic = b"V" in data
            if data:
                self._feed()
        return len(data)

    def release(self, path, fh):
        with self.guard:
            self.is_open = False
            if self.magic:
                self.until = None
        return 0

    def ioctl(self, path, cmd, arg, fip, flags, data):
        number, kind = cmd & 0xFF, (cmd >> 8) & 0xFF
        if kind != ord("W"):
            raise fusepy.FuseOSError(errno.ENOTTY)
        with self.guard:
            return self._asked(number, data)

    def _asked(self, number, data):
        left_s = max(0, int((self.until or 0) - time.monotonic()))
        told = {
            STATUS: 0, BOOT_STATUS: 0, GET_TIMEOUT: self.timeout_s, TIME_LEFT: left_s,
        }  # fmt: skip
        if number in told:
            _put(data, struct.pack("i", told[number]))
        elif number == SUPPORT:
            _put(data, struct.pack("II32s", CAN, 1, b"lab"))
        elif number == KEEPALIVE:
            self._feed()
        elif number == SET_TIMEOUT:
            (wanted,) = struct.unpack("i", _get(data, 4))
            if not 1 <= wanted <= MOST_S:
                raise fusepy.FuseOSError(errno.EINVAL)
            self.timeout_s = wanted
            self._feed()
            _put(data, struct.pack("i", wanted))
        elif number == OPTIONS:
            (wanted,) = struct.unpack("i", _get(data, 4))
            if wanted & DISABLE_CARD:
                self.until = None
            if wanted & ENABLE_CARD:
                self._feed()
        else:
            raise fusepy.FuseOSError(errno.ENOTTY)
        return 0


def _get(data, size):
    return ctypes.string_at(data, size)


def _put(data, text):
    ctypes.memmove(data, text, len(text))


def main(lab, name, folder):
    """Serve it until it is unmounted."""
    os.chdir("/")
    fusepy.FUSE(
        Device(Cloud(lab).machine(name)), folder, foreground=True, nothreads=False,
        allow_other=True, direct_io=True,
    )  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
