"""A guest that is off: its disks shown read-only by QEMU's storage daemon, which QEMU's own locks
keep a start away from."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import tempfile
import time
from typing import Any

from saltvirt import errors
from saltvirt.backups import chains
from saltvirt.backups.answers import GuestLook, LookedDisk, PlannedDisk, ServedDisk
from saltvirt.backupserve import look as looks
from saltvirt.backupserve import running
from saltvirt.backupserve.request import EVERYWHERE, ServeRequest
from saltvirt.host.connection import libvirt
from saltvirt.images import tools
from saltvirt.xml.disk import Disk
from saltvirt.xml.domain import Domain

_PROGRAM = "qemu-storage-daemon"
_STARTS_S = 20


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


def begin(
    conn: libvirt.virConnect,
    dom: libvirt.virDomain,
    look: GuestLook,
    request: ServeRequest,
    port: int,
) -> tuple[list[ServedDisk], Server]:
    """What is served, and what serves it. Raises OperationFailed, Unsupported."""
    plan = {one.target: one for one in running.plan_of(look, request)}
    document = Domain.fromstring(dom.XMLDesc(0))
    disks = {str(one.target): one for one in document.disks}
    argv = [_PROGRAM, "--object", _tls(request), "--nbd-server", _listens(request, port)]
    for one in look.disks:
        argv += _exported(conn, disks[one.target], plan[one.target])
    server = _started(argv)
    _wait(server, "localhost" if request.listen in EVERYWHERE else request.listen, port)
    return [_served(one, plan[one.target]) for one in look.disks], server


def _tls(request: ServeRequest) -> str:
    return json.dumps(
        {"qom-type": "tls-creds-x509", "id": "tls", "dir": request.certificates,
         "endpoint": "server", "verify-peer": True}
    )  # fmt: skip


def _listens(request: ServeRequest, port: int) -> str:
    address = {"type": "inet", "host": request.listen, "port": str(port)}
    return json.dumps({"addr": address, "tls-creds": "tls", "max-connections": 0})


def _exported(conn: libvirt.virConnect, disk: Disk, plan: PlannedDisk) -> list[str]:
    where = looks.path(conn, disk)
    kind = "host_device" if disk.type == "block" or where.startswith("/dev/") else "file"
    node = {
        "driver": disk.driver_type or "raw", "node-name": f"disk-{plan.target}", "read-only": True,
        "file": {"driver": kind, "filename": where, "read-only": True},
    }  # fmt: skip
    export: dict[str, Any] = {
        "type": "nbd", "id": f"export-{plan.target}", "node-name": f"disk-{plan.target}",
        "name": plan.target, "writable": False,
    }  # fmt: skip
    if plan.since:
        export["bitmaps"] = [plan.since]
    return ["--blockdev", json.dumps(node), "--export", json.dumps(export)]


def _served(disk: LookedDisk, plan: PlannedDisk) -> ServedDisk:
    """What is written from now on the same bitmap records: the next increment begins from the same
    checkpoint."""
    return ServedDisk(
        target=disk.target,
        size_bytes=disk.size_bytes,
        source=disk.source,
        export=disk.target,
        contexts=(f"qemu:dirty-bitmap:{plan.since}",) if plan.since else (),
        parent=plan.parent,
        reason=plan.reason,
        checkpoint=plan.since or _recorded(disk),
    )


def _recorded(disk: LookedDisk) -> str | None:
    """The youngest of our checkpoints whose bitmap records: what it says has changed is too much at
    most."""
    good = [
        name
        for name, state in disk.bitmaps.items()
        if name.startswith(chains.PREFIX) and state == chains.GOOD
    ]
    return max(good, default=None)


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
