"""Export disks read-only through QEMU's storage daemon, on a local socket."""

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
from saltvirt.system import tools

_PROGRAM = "qemu-storage-daemon"
_STARTS_S, _ENDS_S = 20, 10
# a guest that waits longer for a block reports an error; by then it is paused
RECONNECTS_S = 30


@dataclass(frozen=True)
class ExportedDisk:
    """An exported disk. bitmap: exported together with it. secret: QEMU object with the key of an
    encrypted disk; crypt: QEMU's encryption options; below: QEMU node of its backing file."""

    path: str
    format: str
    export: str
    bitmap: str | None = None
    secret: str | None = None
    crypt: dict[str, str] | None = None
    below: dict[str, Any] | None = None


class StorageDaemon:
    """The running daemon. It ends together with this process."""

    def __init__(self, process: subprocess.Popen[bytes], output: Any) -> None:
        self._process, self._output = process, output

    @property
    def is_running(self) -> bool:
        """Whether the daemon is running."""
        return self._process.poll() is None

    def output(self) -> str:
        """Output of the daemon."""
        self._output.seek(0)
        return tools.last_output(self._output.read())

    def end(self) -> None:
        """Stop the daemon and its exports."""
        self._process.terminate()
        try:
            self._process.wait(timeout=_ENDS_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@dataclass(frozen=True)
class RemoteExports:
    """Exports of another machine through NBD over TLS. certificates: the folder with ca-cert.pem,
    client-cert.pem and client-key.pem, which is needed only until the daemon has started."""

    host: str
    port: int
    exports: tuple[str, ...]
    certificates: str


def begin(disks: list[ExportedDisk], path: str) -> StorageDaemon:
    """Export the disks on a socket at this path, in a folder that only root can enter. Raises
    OperationFailed, Unsupported."""
    arguments = []
    for secret in sorted({disk.secret for disk in disks if disk.secret}):
        arguments += ["--object", secret]
    for number, disk in enumerate(disks):
        arguments += _disk_arguments(disk, number)
    return _serve(arguments, path)


def reexport(remote: RemoteExports, path: str) -> StorageDaemon:
    """Export the exports of another machine under the same names.

    While the connection is lost, a read waits for RECONNECTS_S and then fails; the daemon
    reconnects as soon as possible. Raises OperationFailed, Unsupported.
    """
    arguments = ["--object", json.dumps(credentials(remote.certificates))]
    for number, export in enumerate(remote.exports):
        node = {**nbd(remote.host, remote.port, export), "node-name": f"disk-{number}",
                "read-only": True, "reconnect-delay": RECONNECTS_S}  # fmt: skip
        arguments += ["--blockdev", json.dumps(node), "--export", _export(number, export)]
    return _serve(arguments, path)


def credentials(folder: str) -> dict[str, Any]:
    """Return QEMU's object ``tls`` for a client with the certificates in a folder."""
    return {
        "qom-type": "tls-creds-x509", "id": "tls", "dir": folder, "endpoint": "client",
        "verify-peer": True,
        # otherwise QEMU expects both certificates to have the same authority
        "sanity-check": False,
    }  # fmt: skip


def nbd(host: str, port: int, export: str) -> dict[str, Any]:
    """Return QEMU's node for an export of another machine, with these credentials."""
    return {
        "driver": "nbd", "export": export, "tls-creds": "tls",
        "server": {"type": "inet", "host": host, "port": str(port)},
    }  # fmt: skip


def _serve(arguments: list[str], path: str) -> StorageDaemon:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    server = {"addr": {"type": "unix", "path": path}, "max-connections": 0}
    # QEMU creates objects in this order: nodes before their exports
    daemon = _start([_PROGRAM, "--nbd-server", json.dumps(server), *arguments])
    _wait(daemon, path)
    return daemon


def _disk_arguments(disk: ExportedDisk, number: int) -> list[str]:
    kind = "host_device" if disk.path.startswith("/dev/") else "file"
    node: dict[str, Any] = {
        "driver": disk.format, "node-name": f"disk-{number}", "read-only": True,
        "file": {"driver": kind, "filename": disk.path, "read-only": True},
    }  # fmt: skip
    if disk.crypt:
        node |= {"encrypt": disk.crypt, "backing": disk.below}
    extra = {"bitmaps": [disk.bitmap]} if disk.bitmap else {}
    return ["--blockdev", json.dumps(node), "--export", _export(number, disk.export, extra)]


def _export(number: int, name: str, extra: dict[str, Any] | None = None) -> str:
    return json.dumps({
        "type": "nbd", "id": f"export-{number}", "node-name": f"disk-{number}", "name": name,
        "writable": False, **(extra or {}),
    })  # fmt: skip


def _start(argv: list[str]) -> StorageDaemon:
    output = tempfile.TemporaryFile()  # noqa: SIM115 - the daemon's, as long as it lives
    try:
        process = tools.start(argv, stdout=output, stderr=output)
    except OSError as exc:
        raise tools.missing(_PROGRAM) from exc
    return StorageDaemon(process, output)


def _wait(server: StorageDaemon, path: str) -> None:
    """Wait for the greeting of the server, whose socket exists before it has opened the disks.
    Raises OperationFailed."""
    deadline = time.monotonic() + _STARTS_S
    while server.is_running and time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as trial:
            trial.settimeout(_STARTS_S)
            trial.connect(path)
            if trial.recv(1):
                return
        time.sleep(0.05)
    server.end()
    raise errors.OperationFailed(f"the disks cannot be exported: {server.output()}")
