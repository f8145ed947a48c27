"""Read a disk of a backup as a guest would, with its backing files, through qemu-nbd, read-only."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Iterator

from saltvirt import errors
from saltvirt.system import private_folder, tools

# https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md
_MAGIC, _OPTION = b"NBDMAGIC", b"IHAVEOPT"
_NO_ZEROES, _EXPORT_NAME = 1 << 1, 1
_FIXED_NEWSTYLE = 1
_REQUEST, _REPLY = 0x25609513, 0x67446698
_READ, _DISCONNECT = 0, 2
# maximum request size that every server accepts
MAX_BYTES = 32 * 1024**2
_BEGINS_S = 30
# timeout for the storage of the target
SILENT_S = 120
_PAUSE_S = 0.01
# time for a crashing process to exit
_DIES_S = 1


class Unreadable(errors.ImageError):
    """QEMU cannot read a part of the disk: the file may be damaged, or the storage has failed."""


class TemporaryFailure(errors.VirtError):
    """The disk cannot be read at the moment, for a reason unrelated to its file: a tool failed or
    was killed, or the machine or its storage lacks resources or is too slow."""


class Reader:
    """A connection to the exported disk. size_bytes: as the guest would see it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        magic, option, flags = struct.unpack(">8s8sH", self._receive(18))
        if (magic, option) != (_MAGIC, _OPTION) or not flags & _FIXED_NEWSTYLE:
            raise TemporaryFailure("unexpected answer of qemu-nbd")
        answer = _FIXED_NEWSTYLE | flags & _NO_ZEROES
        self._connection.sendall(struct.pack(">I8sII", answer, _OPTION, _EXPORT_NAME, 0))
        self.size_bytes, _flags = struct.unpack(">QH", self._receive(10))
        if not flags & _NO_ZEROES:
            self._receive(124)

    def read(self, offset_bytes: int, length_bytes: int) -> bytes:
        """Read up to MAX_BYTES. Raises Unreadable, TemporaryFailure."""
        request = struct.pack(">IHHQQI", _REQUEST, 0, _READ, 1, offset_bytes, length_bytes)
        try:
            self._connection.sendall(request)
            magic, failed, handle = struct.unpack(">IIQ", self._receive(16))
            if (magic, handle) != (_REPLY, 1):
                raise TemporaryFailure("unexpected answer of qemu-nbd")
            if failed:
                kind = Unreadable if failed == errno.EIO else TemporaryFailure
                raise kind(f"at {offset_bytes}: {os.strerror(failed)}")
            return self._receive(length_bytes)
        except TimeoutError:
            raise _timeout_error() from None
        except (OSError, EOFError) as exc:
            raise TemporaryFailure(f"at {offset_bytes}: {exc}") from exc

    def close(self) -> None:
        """Disconnect."""
        with contextlib.suppress(OSError):
            self._connection.sendall(struct.pack(">IHHQQI", _REQUEST, 0, _DISCONNECT, 2, 0, 0))
        self._connection.close()

    def _receive(self, count: int) -> bytes:
        buffer = bytearray(count)
        remaining = memoryview(buffer)
        while remaining:
            received = self._connection.recv_into(remaining)
            if not received:
                raise EOFError("qemu-nbd closed the connection")
            remaining = remaining[received:]
        return bytes(buffer)


@contextlib.contextmanager
def open_image(image_args: list[str]) -> Iterator[Reader]:
    """Yield a Reader for a qcow2. image_args: from its layers. Raises TemporaryFailure, and
    Unsupported if qemu-nbd is missing."""
    with private_folder.temporary(private_folder.runtime(), "reader-") as folder:
        socket_path = os.path.join(folder, "nbd")
        argv = ["qemu-nbd", "--read-only", f"--socket={socket_path}", *image_args]
        with _start(argv) as process, contextlib.ExitStack() as stack:
            stack.callback(process.kill)
            reader = _handshake(socket_path, process)
            stack.callback(reader.close)
            try:
                yield reader
            except (Unreadable, TemporaryFailure):
                _refuse_killed(process)
                raise


def _refuse_killed(process: subprocess.Popen[bytes]) -> None:
    """Raise TemporaryFailure if qemu-nbd was killed, for example because memory is short."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_DIES_S)
    if process.returncode is not None and process.returncode < 0:
        number = -process.returncode
        suffix = "" if number == signal.SIGKILL else f" by signal {signal.Signals(number).name}"
        raise TemporaryFailure(f"qemu-nbd was killed{suffix}")


def _timeout_error() -> TemporaryFailure:
    return TemporaryFailure(f"qemu-nbd did not answer for {SILENT_S} s")


def _handshake(socket_path: str, process: subprocess.Popen[bytes]) -> Reader:
    try:
        return Reader(_connect(socket_path, process))
    except TimeoutError:
        raise _timeout_error() from None
    except (OSError, EOFError):  # it listens before it opens the file
        _refuse_killed(process)
        process.kill()
        output = tools.last_output(tools.pipe(process.stderr).read())
        raise TemporaryFailure(f"qemu-nbd does not start: {output}") from None


def _start(argv: list[str]) -> subprocess.Popen[bytes]:
    try:
        return tools.start(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    except FileNotFoundError as exc:
        raise tools.missing(argv[0]) from exc


def _connect(socket_path: str, process: subprocess.Popen[bytes]) -> socket.socket:
    deadline = time.monotonic() + _BEGINS_S
    while process.poll() is None and time.monotonic() < deadline:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(SILENT_S)
            connection.connect(socket_path)
            return connection
        except OSError:  # it does not listen yet
            connection.close()
            time.sleep(_PAUSE_S)
    if process.poll() is None:
        raise TemporaryFailure(f"qemu-nbd did not start within {_BEGINS_S} s")
    if process.returncode == 127:  # setpriv did not find the program
        raise tools.missing("qemu-nbd")
    _refuse_killed(process)
    output = tools.last_output(tools.pipe(process.stderr).read())
    raise TemporaryFailure(f"qemu-nbd does not start: {output}")
