"""Disks shown read-only by QEMU's storage daemon, on a socket of this host."""

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


@dataclass(frozen=True)
class Shown:
    """A disk. bitmap: that is shown with it. secret: QEMU's object with its key, where it is
    encrypted; crypt: QEMU's options for that; below: QEMU's node of what it stands on then."""

    path: str
    format: str
    export: str
    bitmap: str | None = None
    secret: str | None = None
    crypt: dict[str, str] | None = None
    below: dict[str, Any] | None = None


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


def begin(disks: list[Shown], path: str) -> Server:
    """Shows them on a socket of that path, which is in a folder of root's alone. Raises
    OperationFailed, Unsupported."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    address = {"type": "unix", "path": path}
    argv = [_PROGRAM, "--nbd-server", json.dumps({"addr": address, "max-connections": 0})]
    for secret in sorted({disk.secret for disk in disks if disk.secret}):
        argv += ["--object", secret]
    for number, disk in enumerate(disks):
        argv += _exported(disk, number)
    found = _started(argv)
    _wait(found, path)
    return found


def _exported(disk: Shown, number: int) -> list[str]:
    kind = "host_device" if disk.path.startswith("/dev/") else "file"
    node: dict[str, Any] = {
        "driver": disk.format, "node-name": f"disk-{number}", "read-only": True,
        "file": {"driver": kind, "filename": disk.path, "read-only": True},
    }  # fmt: skip
    if disk.crypt:
        node |= {"encrypt": disk.crypt, "backing": disk.below}
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


def _wait(server: Server, path: str) -> None:
    """Until it lets somebody in. Raises OperationFailed."""
    deadline = time.monotonic() + _STARTS_S
    while server.lives and time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as trial:
            trial.connect(path)
            return
        time.sleep(0.05)
    server.end()
    raise errors.OperationFailed(f"the disks cannot be shown: {server.words()}")
