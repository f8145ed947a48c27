"""Disks shown read-only by QEMU's storage daemon: by NBD over TLS, to those alone who show a
certificate of QEMU's authority."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass
from typing import Any

from saltvirt import errors
from saltvirt.images import tools

_PROGRAM = "qemu-storage-daemon"
_STARTS_S = 20
_ESTABLISHED = "01"
# addresses that mean all of this host's
EVERYWHERE = ("::", "0.0.0.0")
PORT, PORTS = 10809, 16


@dataclass(frozen=True)
class Shown:
    """A disk. bitmap: that is shown with it."""

    path: str
    format: str
    export: str
    bitmap: str | None = None


@dataclass(frozen=True)
class Place:
    """Where disks are shown. reader: the minion id in the certificate of who alone may read them;
    None: whoever has one."""

    listen: str
    port: int
    certificates: str
    reader: str | None = None


class Server:
    """The daemon. It dies with this process."""

    def __init__(self, process: subprocess.Popen[bytes], said: Any) -> None:
        self._process, self._said = process, said

    @property
    def lives(self) -> bool:
        """Whether it still serves."""
        return self._process.poll() is None

    def words(self) -> str:
        """What it said."""
        self._said.seek(0)
        return tools.last_words(self._said.read())

    def end(self) -> None:
        """Ends it; nothing is served any more."""
        self._process.terminate()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def begin(disks: list[Shown], place: Place) -> Server:
    """Shows them. Raises OperationFailed, Unsupported."""
    argv = [_PROGRAM, *_authority(place)]
    address = {"type": "inet", "host": place.listen, "port": str(place.port)}
    server = {"addr": address, "tls-creds": "tls", "max-connections": 0}
    if place.reader:
        server["tls-authz"] = "reader"
    argv += ["--nbd-server", json.dumps(server)]
    for number, disk in enumerate(disks):
        argv += _exported(disk, number)
    found = _started(argv)
    _wait(found, "localhost" if place.listen in EVERYWHERE else place.listen, place.port)
    return found


def everywhere() -> str:
    """The address that means all of this host's."""
    v6, v4 = EVERYWHERE
    return v6 if os.path.exists("/proc/net/if_inet6") else v4


def free(listen: str, first: int, ports: int) -> int:
    """A port that nobody listens on. Raises OperationFailed."""
    kind = socket.AF_INET6 if ":" in listen else socket.AF_INET
    for port in range(first, first + ports):
        with socket.socket(kind, socket.SOCK_STREAM) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                trial.bind((listen, port))
                return port
    raise errors.OperationFailed(
        f"the ports from {first} to {first + ports - 1} are in use: so many backups are read from "
        "here"
    )


def is_read(port: int) -> bool:
    """Whether somebody is connected to the port."""
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError), open(name, encoding="ascii") as file:
            for line in file.readlines()[1:]:
                words = line.split()
                if words[3] == _ESTABLISHED and int(words[1].rpartition(":")[2], 16) == port:
                    return True
    return False


def _authority(place: Place) -> list[str]:
    found: list[dict[str, Any]] = []
    if place.reader:
        # the parts of a certificate's name, in whatever order they stand
        name = f"CN={place.reader[:64]}"
        patterns = (name, f"{name},*", f"*,{name}", f"*,{name},*")
        rules = [{"match": one, "policy": "allow", "format": "glob"} for one in patterns]
        found.append({"qom-type": "authz-list", "id": "reader", "policy": "deny", "rules": rules})
    found.append(
        {"qom-type": "tls-creds-x509", "id": "tls", "dir": place.certificates,
         "endpoint": "server", "verify-peer": True}
    )  # fmt: skip
    return [word for one in found for word in ("--object", json.dumps(one))]


def _exported(disk: Shown, number: int) -> list[str]:
    kind = "host_device" if disk.path.startswith("/dev/") else "file"
    node = {
        "driver": disk.format, "node-name": f"disk-{number}", "read-only": True,
        "file": {"driver": kind, "filename": disk.path, "read-only": True},
    }  # fmt: skip
    export: dict[str, Any] = {
        "type": "nbd", "id": f"export-{number}", "node-name": f"disk-{number}",
        "name": disk.export, "writable": False,
    }  # fmt: skip
    if disk.bitmap:
        export["bitmaps"] = [disk.bitmap]
    return ["--blockdev", json.dumps(node), "--export", json.dumps(export)]


def _started(argv: list[str]) -> Server:
    said = tempfile.TemporaryFile()  # noqa: SIM115 - the daemon's, as long as it lives
    try:
        process = subprocess.Popen(
            tools.command(argv), stdin=subprocess.DEVNULL, stdout=said, stderr=said,
            env=tools.environment(),
        )  # fmt: skip
    except OSError as exc:
        raise tools.missing(_PROGRAM) from exc
    return Server(process, said)


def _wait(server: Server, host: str, port: int) -> None:
    """Until it lets somebody in. Raises OperationFailed."""
    deadline = time.monotonic() + _STARTS_S
    while server.lives and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            socket.create_connection((host, port), timeout=1).close()
            return
        time.sleep(0.05)
    server.end()
    raise errors.OperationFailed(f"the disks cannot be shown: {server.words()}")
