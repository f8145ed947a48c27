"""The watchdog device of Linux (Documentation/watchdog/watchdog-api.rst)."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import struct
import threading

log = logging.getLogger(__name__)

_CLASS = "/sys/class/watchdog"
_SUPPORT, _KEEPALIVE, _SET_TIMEOUT = 0x80285700, 0x80045705, 0xC0045706
_INFO = struct.Struct("II32s")
# required options: without the magic close the device is disarmed when the process dies
_CAN_SET, _CAN_CLOSE = 0x80, 0x100


class WatchdogDevice:
    """path: of the device; None: none. timeout_s: the time after which it is to cut the power
    unless fed. announced_s: a shorter time that was announced, and is used until
    ``accept_timeout``.

    Opening the device arms it. It stays armed if the process dies; ``disarm`` disarms it. The
    methods are thread-safe.
    """

    def __init__(
        self, path: str | None, timeout_s: float, announced_s: float | None = None
    ) -> None:
        self._path, self._requested_s = path, timeout_s
        self._timeout_s = timeout_s if announced_s is None else min(timeout_s, announced_s)
        self._is_bound = self._timeout_s < timeout_s
        self._actual_s = timeout_s
        self._handle: int | None = None
        self._guard = threading.RLock()
        self._unfit = self._unfit_reason()

    @property
    def is_usable(self) -> bool:
        """Whether a usable device exists."""
        return self._path is not None and not self._unfit and os.path.exists(self._path)

    @property
    def is_armed(self) -> bool:
        """Whether it is armed, and feeding has not failed."""
        return self._handle is not None

    @property
    def timeout_s(self) -> float:
        """The timeout to announce: the longest that the device may have."""
        return max(self._actual_s, self._requested_s) if self._is_bound else self._actual_s

    def accept_timeout(self, timeout_s: float) -> None:
        """Use the timeout that other machines know."""
        with self._guard:
            if not self._is_bound or timeout_s < self._requested_s:
                return
            self._is_bound, self._timeout_s = False, self._requested_s
            if self._handle is not None:
                try:
                    self._set(self._handle)
                except OSError as exc:
                    log.error(
                        "cannot change the timeout of the watchdog %s: %s", self._path, exc.strerror
                    )

    def arm(self) -> None:
        """Open the device and feed it once, if it is usable."""
        with self._guard:
            self._arm()

    def _arm(self) -> None:
        if self._path is None or self._unfit or self.is_armed:
            return
        try:
            handle = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
        except OSError as exc:
            log.error("cannot arm the watchdog %s: %s", self._path, exc.strerror)
            return
        self._handle = handle
        try:
            self._prepare(handle)
        except OSError as exc:
            self._refuse(f"the device refuses a timeout of {self._timeout_s} s: {exc.strerror}")

    def _prepare(self, handle: int) -> None:
        data = bytearray(_INFO.size)
        fcntl.ioctl(handle, _SUPPORT, data)
        options, _version, name = _INFO.unpack(data)
        if not options & _CAN_SET or not options & _CAN_CLOSE:
            self._refuse("the device does not support a configurable timeout or the magic close")
            return
        self._set(handle)
        self.feed()
        shown = name.rstrip(b"\0").decode("ascii", "replace")
        log.info("the watchdog %s (%s) is armed: %s s", self._path, shown, self._actual_s)

    def _set(self, handle: int) -> None:
        timeout = bytearray(struct.pack("i", max(1, int(self._timeout_s))))
        fcntl.ioctl(handle, _SET_TIMEOUT, timeout)
        self._actual_s = float(struct.unpack("i", timeout)[0])

    def feed(self) -> None:
        """Restart the timeout of the device."""
        with self._guard:
            self._feed()

    def _feed(self) -> None:
        if self._handle is None:
            return
        try:
            fcntl.ioctl(self._handle, _KEEPALIVE, bytearray(4))
        except OSError as exc:
            log.error("cannot feed the watchdog %s: %s", self._path, exc.strerror)
            with contextlib.suppress(OSError):
                os.close(self._handle)
            self._handle = None

    def disarm(self) -> None:
        """Disarm the device, so that it does not cut the power."""
        with self._guard:
            self._disarm()

    def _disarm(self) -> None:
        if self._handle is None:
            return
        handle, self._handle = self._handle, None
        try:
            os.write(handle, b"V")
            log.info("the watchdog %s is disarmed", self._path)
        except OSError as exc:
            log.error("cannot disarm the watchdog %s: %s", self._path, exc.strerror)
        finally:
            with contextlib.suppress(OSError):
                os.close(handle)

    def _refuse(self, reason: str) -> None:
        log.error("the watchdog %s is not used: %s", self._path, reason)
        self._unfit = reason
        self.disarm()

    def _unfit_reason(self) -> str:
        """Return why the device must not even be opened: it could never be disarmed."""
        if self._path is None:
            return ""
        name = os.path.basename(os.path.realpath(self._path))
        folder = "watchdog0" if name == "watchdog" else name
        try:
            with open(f"{_CLASS}/{folder}/nowayout", encoding="ascii") as file:
                is_nowayout = file.read().strip() == "1"
        except OSError:
            return ""
        if is_nowayout:
            log.error("the watchdog %s is not used: its module has nowayout=1", self._path)
        return "nowayout" if is_nowayout else ""
