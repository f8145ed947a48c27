"""A malicious disk server: NBD over TLS as far as the reader needs it, with false answers."""

import contextlib
import socket
import ssl
import struct
import tempfile
import threading
import time

from saltvirt.pki.common import certs
from saltvirt.pki.host import own_pair

HOST = "127.0.0.1"
_OPTION, _REPLY, _REQUEST, _CHUNK = b"IHAVEOPT", 0x3E889045565A9, 0x25609513, 0x668E33EF
_ABORT, _STARTTLS, _GO, _STRUCTURED, _CONTEXTS = 2, 5, 7, 8, 10
_ACK, _INFO, _CONTEXT, _UNKNOWN = 1, 3, 4, 2**31 + 1
_READ, _STATUS = 0, 7
DATA, ZEROS = 0, 3


class Honest:
    """Shows a disk as it is. What lies is another one."""

    def __init__(self, image, reader):
        self.image, self.pair = image, own_pair.generate(HOST, certs.SERVER)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_verify_locations(cadata=reader)
        self._context.verify_mode = ssl.CERT_REQUIRED
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(self.pair.key + self.pair.certificate)
            file.flush()
            self._context.load_cert_chain(file.name)
        self._listener = socket.create_server((HOST, 0))
        self.port = self._listener.getsockname()[1]
        self.over = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def end(self):
        self.over.set()
        self._listener.close()

    # what it says

    def greet(self, line):
        """Before anything else; False: it says no more."""
        line.sendall(b"NBDMAGIC" + _OPTION + struct.pack(">H", 3))
        return True

    def size(self):
        return len(self.image)

    def status(self, offset, length):
        """(length, flags) of its parts."""
        return [(min(length, len(self.image) - offset), DATA)]

    def read(self, offset, length):
        return self.image[offset : offset + length]

    def chunk(self, kind, handle, data):
        return struct.pack(">IHHQI", _CHUNK, 1, kind, handle, len(data)) + data

    def sleep(self):
        """For longer than anybody waits."""
        self.over.wait(120)

    # the protocol

    def _serve(self):
        with contextlib.suppress(OSError):
            while not self.over.is_set():
                line, _ = self._listener.accept()
                threading.Thread(target=self._talk, args=(line,), daemon=True).start()

    def _talk(self, line):
        with contextlib.suppress(OSError, ValueError, struct.error), line:
            if not self.greet(line):
                return
            _take(line, 4)
            self._options(line)

    def _options(self, line):
        while True:
            _, option, length = struct.unpack(">8sII", _take(line, 16))
            data = _take(line, length)
            if option == _STARTTLS:
                _answer(line, option, _ACK)
                line = self._context.wrap_socket(line, server_side=True)
            elif option == _STRUCTURED:
                _answer(line, option, _ACK)
            elif option == _CONTEXTS:
                for number, name in enumerate(_queries(data)):
                    _answer(line, option, _CONTEXT, struct.pack(">I", number) + name)
                self._count = len(_queries(data))
                _answer(line, option, _ACK)
            elif option == _GO:
                _answer(line, option, _INFO, struct.pack(">HQH", 0, self.size(), 3))
                _answer(line, option, _ACK)
                return self._requests(line)
            elif option == _ABORT:
                return None
            else:
                _answer(line, option, _UNKNOWN)

    def _requests(self, line):
        while True:
            magic, _, kind, handle, offset, length = struct.unpack(">IHHQQI", _take(line, 28))
            if magic != _REQUEST or kind not in (_READ, _STATUS):
                return
            if kind == _READ:
                data = struct.pack(">Q", offset) + self.read(offset, length)
                line.sendall(self.chunk(1, handle, data))
                continue
            parts = b"".join(struct.pack(">II", *one) for one in self.status(offset, length))
            for number in range(self._count):
                last = number == self._count - 1
                said = struct.pack(">I", number) + parts
                head = struct.pack(">IHHQI", _CHUNK, int(last), 5, handle, len(said))
                line.sendall(head + said)


def _answer(line, option, kind, data=b""):
    line.sendall(struct.pack(">QIII", _REPLY, option, kind, len(data)) + data)


def _queries(data):
    at = 4 + struct.unpack_from(">I", data)[0]
    count = struct.unpack_from(">I", data, at)[0]
    at, found = at + 4, []
    for _ in range(count):
        length = struct.unpack_from(">I", data, at)[0]
        found.append(data[at + 4 : at + 4 + length])
        at += 4 + length
    return found


def _take(line, length):
    found = b""
    while len(found) < length:
        more = line.recv(length - len(found))
        if not more:
            raise ValueError("the other side is gone")
        found += more
    return found


class Silent(Honest):
    """It takes the call, and says nothing."""

    def greet(self, line):
        self.sleep()


class Gone(Honest):
    def greet(self, line):
        return False


class Noise(Honest):
    def greet(self, line):
        line.sendall(b"\xff" * 100_000)


class Larger(Honest):
    def size(self):
        return 2**62


class Smaller(Honest):
    def size(self):
        return 512


class NoLength(Honest):
    def status(self, offset, length):
        return [(0, DATA)]


class NoParts(Honest):
    def status(self, offset, length):
        return []


class PastTheEnd(Honest):
    def status(self, offset, length):
        return [(2**32 - 512, DATA)] * 1000


class HalfSectors(Honest):
    """It tells of a part of a sector, as for a file that ends within one."""

    def status(self, offset, length):
        return [(100, DATA), (length - 100, ZEROS)]


class WrittenMeanwhile(Honest):
    """It tells of nothing when it is asked how much there is, of all of it when it is read: the
    guest has overwritten all of a sparse disk, and QEMU has copied what was there."""

    asked = 0

    def status(self, offset, length):
        self.asked += 1
        return [(length, ZEROS if self.asked == 1 else DATA)]


class ForgetsParts(Honest):
    """It tells how much there is, and no more when it is read."""

    asked = 0

    def status(self, offset, length):
        self.asked += 1
        return super().status(offset, length) if self.asked == 1 else []


class EndsParts(ForgetsParts):
    def status(self, offset, length):
        found = super().status(offset, length)
        if not found:
            raise OSError("it broke off")
        return found


class Hangs(Honest):
    """In the middle of the data."""

    def read(self, offset, length):
        if offset:
            self.sleep()
        return super().read(offset, length)


class TooLong(Honest):
    def read(self, offset, length):
        return bytes(length + 4096)


class TooShort(Honest):
    def read(self, offset, length):
        return bytes(10)


class Endless(Honest):
    """Says that four GiB come, and lets them come."""

    def chunk(self, kind, handle, data):
        return struct.pack(">IHHQI", _CHUNK, 0, kind, handle, 2**32 - 1) + bytes(2**24)


class OtherKind(Honest):
    def chunk(self, kind, handle, data):
        return super().chunk(4711, handle, data)


class Breaks(Honest):
    def read(self, offset, length):
        raise OSError("it broke off")


def waited(ready, seconds=60):
    """Several times as long: others may have the CPU."""
    end = time.monotonic() + 5 * seconds
    while not ready() and time.monotonic() < end:
        time.sleep(0.1)
    return ready()
