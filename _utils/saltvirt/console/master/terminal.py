"""Connect a terminal to a stream until one of them ends.

The terminal is restored afterwards, whatever modes the guest has set and however this process ends,
except by SIGKILL.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import ssl
import termios
import threading
import tty
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

from saltvirt import errors, units

ESCAPE = "^]"
_CHUNK_BYTES = 16 * 1024
# limit of input that is not sent yet
_MAX_TYPED_BYTES = 64 * 1024
_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
# resets modes that a program in the guest may have set: scrolling region, alternate screen, mouse
# and paste reporting, application keys, hidden cursor, no wrapping, colors, line drawing
_RESET_SEQUENCE = (
    b"\x1b7\x1b[r\x1b8\x1b[?47l\x1b[?1;1000;1002;1003;1004;1005;1006;1015;2004l"
    b"\x1b>\x1b[?7;25h\x1b[4l\x1b[0m\x1b(B\x0f"
)
ESCAPED, LINE_ENDED, TERMINAL_ENDED = "escaped", "line ended", "terminal ended"


@dataclass(frozen=True)
class Terminal:
    """Descriptors of the input and of the output."""

    typed: int
    shown: int

    def size(self) -> os.terminal_size:
        """The number of columns and lines."""
        with contextlib.suppress(OSError):
            return os.get_terminal_size(self.shown)
        return shutil.get_terminal_size()


def from_stdio() -> Terminal:
    """The terminal of this process. Raises Refused if it has none."""
    if not (os.isatty(0) and os.isatty(1)):
        raise errors.Refused("this command needs a terminal: run it without a pipe")
    return Terminal(0, 1)


def escape_byte(text: object) -> bytes:
    """The byte of an escape key such as ``^]``. Raises InvalidInput."""
    word = str(text)
    if len(word) == 2 and word[0] == "^" and 0x40 <= ord(word[1].upper()) < 0x60:
        return bytes([ord(word[1].upper()) ^ 0x40])
    raise errors.InvalidInput(
        f"escape must be ^ and a letter or one of @[\\]^_, not {units.short_repr(text)}"
    )


class SignalReceived(Exception):
    """A signal was received."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextlib.contextmanager
def raw(terminal: Terminal) -> Iterator[int]:
    """Switch the terminal to raw mode, and yield a descriptor from which one byte can be read for
    each signal that ends the session.

    Restores the terminal and discards unread input at the end. Raises termios.error if the terminal
    has gone.
    """
    before = termios.tcgetattr(terminal.typed)
    with _signals() as signal_fd:
        try:
            tty.setraw(terminal.typed, termios.TCSAFLUSH)
            yield signal_fd
        finally:
            with contextlib.suppress(OSError):
                _show(terminal.shown, _RESET_SEQUENCE, timeout_s=1)
            with contextlib.suppress(termios.error):
                termios.tcsetattr(terminal.typed, termios.TCSAFLUSH, before)


@contextlib.contextmanager
def _signals() -> Iterator[int]:
    """A descriptor from which the number of each received signal can be read."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def note(number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(OSError):
            os.write(writer, bytes([number]))

    before: dict[int, Any] = {}
    try:
        if threading.current_thread() is threading.main_thread():
            before = {number: signal.signal(number, note) for number in _SIGNALS}
        yield reader
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        os.close(reader)
        os.close(writer)


def _show(descriptor: int, data: bytes, timeout_s: float) -> None:
    """Write to the terminal. Raises OSError, also if the terminal blocks for too long."""
    while data:
        if not select.select([], [descriptor], [], timeout_s)[1]:
            raise TimeoutError("the terminal accepts no output")
        data = data[os.write(descriptor, data[:512]) :]


def attach(line: ssl.SSLSocket, terminal: Terminal, escape: bytes, signal_fd: int) -> str:
    """Connect the terminal, and return how the session ended: ESCAPED, LINE_ENDED or
    TERMINAL_ENDED.

    signal_fd: from raw. Raises SignalReceived for a signal, OSError if the other side is
    unreachable.
    """
    return _Session(line, terminal, escape, signal_fd).run()


class _Session:
    def __init__(
        self, line: ssl.SSLSocket, terminal: Terminal, escape: bytes, signal_fd: int
    ) -> None:
        self._line, self._terminal, self._escape, self._signal_fd = (
            line,
            terminal,
            escape,
            signal_fd,
        )
        self._typed, self._shown = b"", b""
        line.setblocking(False)

    def run(self) -> str:
        while True:
            received_bytes = self._receive()
            if received_bytes is None:
                return LINE_ENDED
            if self._send() or received_bytes:
                continue
            reading: list[int | ssl.SSLSocket] = [self._signal_fd]
            reading += [] if self._shown else [self._line]
            reading += [] if len(self._typed) > _MAX_TYPED_BYTES else [self._terminal.typed]
            writing: list[int | ssl.SSLSocket] = [self._line] if self._typed else []
            writing += [self._terminal.shown] if self._shown else []
            ready, writable, _ = select.select(reading, writing, [])
            if self._signal_fd in ready:
                raise SignalReceived(os.read(self._signal_fd, 1)[0])
            if self._terminal.shown in writable and not self._display():
                return TERMINAL_ENDED
            if self._terminal.typed in ready:
                ending = self._type()
                if ending:
                    return ending

    def _display(self) -> bool:
        """Write as much as the terminal accepts; False if it has gone."""
        try:
            shown = os.write(self._terminal.shown, self._shown[:4096])
        except OSError:
            return False
        self._shown = self._shown[shown:]
        return True

    def _type(self) -> str | None:
        """Read the input; how the session ended, or None."""
        try:
            data = os.read(self._terminal.typed, _CHUNK_BYTES)
        except OSError:
            data = b""
        if not data:
            return TERMINAL_ENDED
        before, mark, _ = data.partition(self._escape)
        self._typed += before
        if mark:
            self._send()
            return ESCAPED
        return None

    def _send(self) -> int:
        """Send as much as possible, and return the number of bytes."""
        if not self._typed:
            return 0
        with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
            sent_bytes = self._line.send(self._typed)
            self._typed = self._typed[sent_bytes:]
            return sent_bytes
        return 0

    def _receive(self) -> int | None:
        """Receive what is available, and return the number of bytes; None at the end. Nothing is
        received while output is pending."""
        if self._shown:
            return 0
        with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
            self._shown = self._line.recv(_CHUNK_BYTES)
            return len(self._shown) or None
        return 0
