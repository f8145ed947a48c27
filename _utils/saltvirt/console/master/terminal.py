"""A terminal and a line, until one of them ends: what is typed goes to the line, and what comes
from it is shown as it comes.

The terminal is then as it was: whatever the guest has switched on, and whatever ends this process,
SIGKILL but for.
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
# so much that was typed waits at most for a line that takes nothing
_MAX_TYPED_BYTES = 64 * 1024
_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
# what a program in the guest may have left on: scrolling within some lines, the second screen,
# reports of the mouse and of pasting, keys of applications, no cursor, no wrapping, colours, lines
_RESET_SEQUENCE = (
    b"\x1b7\x1b[r\x1b8\x1b[?47l\x1b[?1;1000;1002;1003;1004;1005;1006;1015;2004l"
    b"\x1b>\x1b[?7;25h\x1b[4l\x1b[0m\x1b(B\x0f"
)
ESCAPED, LINE_ENDED, TERMINAL_ENDED = "escaped", "line ended", "terminal ended"


@dataclass(frozen=True)
class Terminal:
    """Descriptors of what is typed and of what is shown."""

    typed: int
    shown: int

    def size(self) -> os.terminal_size:
        """Columns and lines."""
        with contextlib.suppress(OSError):
            return os.get_terminal_size(self.shown)
        return shutil.get_terminal_size()


def from_stdio() -> Terminal:
    """That of this process. Raises Refused where it has none."""
    if not (os.isatty(0) and os.isatty(1)):
        raise errors.Refused("it needs a terminal to type at: call it without a pipe")
    return Terminal(0, 1)


def escape_byte(text: object) -> bytes:
    """Of ``^]`` and the like. Raises InvalidInput."""
    word = str(text)
    if len(word) == 2 and word[0] == "^" and 0x40 <= ord(word[1].upper()) < 0x60:
        return bytes([ord(word[1].upper()) ^ 0x40])
    raise errors.InvalidInput(
        f"escape must be ^ and a letter or one of @[\\]^_, not {units.short_repr(text)}"
    )


class SignalReceived(Exception):
    """A signal came."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextlib.contextmanager
def raw(terminal: Terminal) -> Iterator[int]:
    """The terminal hands on each key; a descriptor from which a byte is read for each signal that
    should end it. At the end it is as it was, and what was typed and not read is thrown away.
    Raises termios.error: it has gone."""
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
    """A descriptor from which the number of each signal that came is read."""
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
    """Raises OSError, also where the terminal takes nothing."""
    while data:
        if not select.select([], [descriptor], [], timeout_s)[1]:
            raise TimeoutError("the terminal takes nothing")
        data = data[os.write(descriptor, data[:512]) :]


def attach(line: ssl.SSLSocket, terminal: Terminal, escape: bytes, signal_fd: int) -> str:
    """How it ended: ESCAPED, LINE_ENDED or TERMINAL_ENDED. signal_fd: as raw has it. Raises Ended
    for a
    signal, OSError where the other side is gone without a word."""
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
        """Shows what the terminal takes; is it still there?"""
        try:
            shown = os.write(self._terminal.shown, self._shown[:4096])
        except OSError:
            return False
        self._shown = self._shown[shown:]
        return True

    def _type(self) -> str | None:
        """Takes what was typed; how it ended, if it did."""
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
        """How much the line took now."""
        if not self._typed:
            return 0
        with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
            sent_bytes = self._line.send(self._typed)
            self._typed = self._typed[sent_bytes:]
            return sent_bytes
        return 0

    def _receive(self) -> int | None:
        """How much came now; None at the end. Nothing is read while the terminal has to show."""
        if self._shown:
            return 0
        with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
            self._shown = self._line.recv(_CHUNK_BYTES)
            return len(self._shown) or None
        return 0
