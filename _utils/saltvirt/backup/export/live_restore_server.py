"""Live restore server: export a backup of another machine to the guest's QEMU on a local socket,
and let libvirt copy its blocks until the guest no longer depends on the backup.

The process outlives its job, the minion and libvirt's daemon. If it dies, or if its connection is
lost, QEMU pauses the guest at the first missing block, without loss of data.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from saltvirt import errors, settings
from saltvirt.backup.export import live_restores, running
from saltvirt.backup.export.live_restores import LiveRestoreRecord
from saltvirt.backup.target import daemon, relay
from saltvirt.backup.target.daemon import RemoteExports
from saltvirt.host import connection
from saltvirt.host.connection import libvirt
from saltvirt.host.domain import guest_lock, lookup
from saltvirt.schema import Message
from saltvirt.system import detached, paths, private_folder
from saltvirt.xml.devices.disk import Disk
from saltvirt.xml.domain.domain import Domain

MODULE = "backup.export.live_restore_server"
SOCKETS = "/run/libvirt/salt-virt"
_MAX_SOCKET_BYTES = 107
_POLL_S, _RETRY_S = 1, 5
_POLICIES = ("error_policy", "rerror_policy")
STOP = "stop"


@dataclass(frozen=True)
class LiveRestoreServerRequest(Message):
    """uri, username, password: of the connection to libvirt. locks: folder of the guests' locks.
    certificate, key: of this client for the target host."""

    guest: str
    uri: str | None
    username: str | None
    password: str | None = field(repr=False)
    locks: str
    certificate: str
    key: str = field(repr=False)


def make_request(
    get: Callable[..., Any], guest: str, certificate: str, key: str
) -> LiveRestoreServerRequest:
    """Return the request. get: the minion's configuration."""
    local = settings.connection(get, {})
    libvirt_args = local.uri, local.username, local.password, guest_lock.folder(get)
    return LiveRestoreServerRequest(guest, *libvirt_args, certificate, key)


def socket_path(guest: str) -> str:
    """Return the path of the socket for the guest's QEMU.

    The profile that libvirt generates for AppArmor permits each guest a socket with this ending in
    this folder; for backing files it permits files only. Raises InvalidInput if the name is too
    long for a socket path.
    """
    path = _make_socket_path(guest)
    excess = len(os.fsencode(path)) - _MAX_SOCKET_BYTES
    if excess > 0:
        raise errors.InvalidInput(
            f"the name {guest} is {excess} bytes too long for a live restore: restore the guest "
            "without instant"
        )
    return path


def _make_socket_path(guest: str) -> str:
    return f"{SOCKETS}/nbd.tunnelmigrate.dest.{guest}"


def pending_disks(guest: str, tree: ElementTree.Element) -> list[str]:
    """Return the disks of a definition that depend on the backup."""
    path = _make_socket_path(guest)
    return [
        str(disk.target)
        for disk in map(Disk, tree.iterfind("devices/disk"))
        if disk.backing_store
        and disk.backing_store.source
        and any(host.socket == path for host in disk.backing_store.source.hosts)
    ]


def unavailable_reason(restore: LiveRestoreRecord) -> str | None:
    """Return why the backup is not exported to this host; None if it is. Another backup may use the
    port by now."""
    try:
        if relay.has_authority(restore.host, restore.port, restore.authority):
            return None
    except OSError:
        return f"{restore.host} does not answer on port {restore.port}"
    return f"another server answers on port {restore.port} of {restore.host}"


class LiveRestoreServer:
    """The caller holds ``live_restore.server_lock``."""

    def __init__(self, request: LiveRestoreServerRequest) -> None:
        self._request, self._path = request, socket_path(request.guest)
        self._server: daemon.StorageDaemon | None = None
        self._next_s = 0.0
        self._misses = 0
        self.signalled = False

    @contextlib.contextmanager
    def _libvirt(self) -> Iterator[libvirt.virConnect]:
        request = self._request
        local = settings.Connection(request.uri, request.username, request.password)
        with connection.connect(local) as conn:
            yield conn

    def begin(self) -> None:
        """Start the export. Raises OperationFailed."""
        restore = self._load_restore()
        with self._libvirt() as conn:
            owner = _qemu_user(conn)
        os.makedirs(SOCKETS, 0o711, exist_ok=True)
        with private_folder.temporary(paths.RUN, "stands-") as folder:
            texts = {
                "ca-cert.pem": restore.authority,
                "client-cert.pem": self._request.certificate, "client-key.pem": self._request.key,
            }  # fmt: skip
            for name, text in texts.items():
                Path(folder, name).write_text(text, encoding="ascii")
            far = RemoteExports(restore.host, restore.port, restore.disks, folder)
            self._server = daemon.reexport(far, self._path)
        os.chown(self._path, *owner)
        os.chmod(self._path, 0o600)

    def _load_restore(self) -> LiveRestoreRecord:
        restore = live_restores.load(self._request.guest)
        if restore is None:
            raise errors.NotFound(f"{self._request.guest} does not run from a backup")
        return restore

    def run(self) -> None:
        """Run until the guest no longer depends on the backup, is gone, or a signal ends this
        process."""
        while not self.signalled:
            # libvirt is being restarted, or /run is full; QEMU continues
            with contextlib.suppress(libvirt.libvirtError, errors.VirtError, OSError):
                self._restart_daemon()
                with self._libvirt() as conn:
                    if self._is_finished(conn):
                        break
            time.sleep(_POLL_S)
        if self._server:
            self._server.end()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)

    def _restart_daemon(self) -> None:
        """Restart the storage daemon if it died."""
        if self._server and not self._server.is_running and self._may_retry():
            self.begin()

    def _is_finished(self, conn: libvirt.virConnect) -> bool:
        restore = live_restores.load(self._request.guest)
        dom = lookup.find(conn, self._request.guest) if restore else None
        if restore is None or dom is None or dom.UUIDString() != restore.uuid:
            self._misses += 1
            if self._misses > 2:
                live_restores.forget(self._request.guest)
            return self._misses > 2
        self._misses = 0
        pending = pending_disks(restore.guest, ElementTree.fromstring(dom.XMLDesc(0)))
        if not pending:
            # blockJobInfo waits for the end of the job: if the guest is defined
            # meanwhile, libvirt 9.0 uses its definition after freeing it
            if dom.isActive() and any(dom.blockJobInfo(disk, 0) for disk in restore.disks):
                return False
            if running.is_paused_by_io(dom):  # paused since the last resume
                dom.resume()
            live_restores.forget(restore.guest)
            with contextlib.suppress(errors.VirtError, libvirt.libvirtError):
                restore_policies(conn, self._request.locks, restore)
            return True
        if dom.isActive():
            self._pull(dom, restore, pending[0])
        return False

    def _pull(self, dom: libvirt.virDomain, restore: LiveRestoreRecord, target: str) -> None:
        """Start the copy, or resume it after an interruption."""
        is_stuck = running.is_paused_by_io(dom)
        if not is_stuck and dom.blockJobInfo(target, 0):
            return
        if not self._may_retry() or unavailable_reason(restore):
            return
        if is_stuck:
            dom.resume()
        if not dom.blockJobInfo(target, 0):
            dom.blockPull(target, restore.bandwidth_mib_s or 0, 0)

    def _may_retry(self) -> bool:
        """Limit the rate of retries."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return False
        self._next_s = now_s + _RETRY_S
        return True


def restore_policies(conn: libvirt.virConnect, locks: str, restore: LiveRestoreRecord) -> None:
    """Restore the disks' error policies, which take effect at the guest's next start."""
    with guest_lock.acquire(locks, "virt.backup_instant", restore.guest):
        dom = lookup.lookup(conn, restore.guest)
        flags = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE
        model = Domain.fromstring(dom.XMLDesc(flags))
        for disk in model.disks:
            before = (restore.policies or {}).get(disk.target or "")
            if before and (disk.error_policy, disk.rerror_policy) == (STOP, STOP):
                disk.error_policy, disk.rerror_policy = (policy or None for policy in before)
        lookup.define(conn, model.tostring())


def policies(disk: Disk) -> tuple[str, ...]:
    """Return the error policies of a disk for ``restore_policies``."""
    return tuple(getattr(disk, name) or "" for name in _POLICIES)


def _qemu_user(conn: libvirt.virConnect) -> tuple[int, int]:
    """Return user and group of QEMU."""
    tree = ElementTree.fromstring(conn.getCapabilities())
    for model in tree.iterfind("host/secmodel"):
        label = model.findtext("baselabel") or ""
        if model.findtext("model") == "dac" and label.count(":") == 1:
            uid, gid = label.split(":")
            return int(uid), int(gid)
    return os.geteuid(), os.getegid()


def main(_argv: list[str]) -> int:
    """The program. It reads a LiveRestoreServerRequest from standard input and writes one line to
    standard output."""
    request = LiveRestoreServerRequest.from_answer(json.load(sys.stdin), "the request")
    try:
        with live_restores.server_lock(request.guest):
            server = LiveRestoreServer(request)
            signal.signal(signal.SIGTERM, lambda *_args: setattr(server, "signalled", True))
            server.begin()
            detached.send({"begun": True})
            server.run()
    except errors.VirtError as exc:
        detached.send({"error": exc.text})
        return 1
    return 0
