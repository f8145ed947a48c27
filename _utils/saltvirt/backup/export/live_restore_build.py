"""Live restore: start a guest from a backup that the target host exports. Its disks are overlays on
the backup, and their blocks are copied meanwhile (``live_restore_server``)."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from xml.etree import ElementTree

from saltvirt import errors
from saltvirt.answers.created import CreatedGuest
from saltvirt.backup.export import live_restore_server, live_restores, running
from saltvirt.backup.export.in_place_restore import InPlaceRestore
from saltvirt.backup.export.live_restore_server import STOP, LiveRestoreServerRequest
from saltvirt.backup.export.live_restores import LiveRestoreRecord
from saltvirt.backup.export.restore import FORMAT, RestoreBuilder, sync
from saltvirt.backup.model.answers import ShownBackup, ShownDisk
from saltvirt.backup.model.pins import (
    COMPLETE,
    DISCONNECTED,
    MISSING,
    OFF,
    PULLING,
    LiveRestoreStatus,
)
from saltvirt.host.connection import libvirt, translated
from saltvirt.host.domain import guest_lock, lookup
from saltvirt.host.provision import disk_build as disk_build_module
from saltvirt.system import detached
from saltvirt.system import tools as programs
from saltvirt.xml.devices.disk import Disk
from saltvirt.xml.devices.disk_backing import BackingStore
from saltvirt.xml.devices.disk_source import DiskSource, SourceHost
from saltvirt.xml.domain.metadata import GuestRecord

_ENDS_S = 10


@dataclass(frozen=True)
class LiveRestoreOptions:
    """library: the folder of the package saltvirt. request: for the live restore server.
    bandwidth_mib_s: limit for copying; None: no limit."""

    library: str
    request: LiveRestoreServerRequest
    bandwidth_mib_s: int | None = None


class LiveRestoreBuilder(RestoreBuilder):
    """Live restore of a guest that does not exist. Set ``options``."""

    options: LiveRestoreOptions

    def check(self) -> None:
        live_restore_server.socket_path(self.guest.name)
        if self.guest.seed:
            raise errors.Unsupported(
                f"{self.guest.name} would start with the identity of its original: use "
                "instant=False, or seed=False if the original stays off"
            )
        if live_restores.load(self.guest.name):
            raise errors.Refused(
                f"{self.guest.name} already runs from a backup: see virt.backup_instant"
            )
        self.policies: dict[str, tuple[str, ...]] = {}
        super().check()

    def disk_build(self, disk: ShownDisk, path: str) -> disk_build_module.DiskBuild:
        return replace(super().disk_build(disk, path), write=self._overlay(disk))

    def attach_disk(self, record: GuestRecord, disk: Disk, path: str) -> None:
        super().attach_disk(record, disk, path)
        target = str(disk.target)
        self.policies.setdefault(target, live_restore_server.policies(disk))
        # pause the guest instead of reporting an error: the block may be readable later
        disk.error_policy = disk.rerror_policy = STOP
        disk.backing_store = backing(self.guest.name, target)

    def _overlay(self, disk: ShownDisk) -> Callable[[str], object]:
        def write(path: str) -> None:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
            self.claim(path)
            socket = live_restore_server.socket_path(self.guest.name)
            below = f"nbd+unix:///{disk.target}?socket={socket}"
            # do not open the backing file, which does not exist yet
            argv = ["qemu-img", "create", "-q", "-u", "-f", FORMAT, "-b", below, "-F", "raw", path]
            programs.run([*argv, str(disk.size_bytes)], f"create the disk {path}")
            sync(path)

        return write

    def start(self) -> None:
        self.attach_backup()
        super().start()

    def attach_backup(self) -> None:
        """Export the backup to the guest's QEMU."""
        self.tools.report_step(
            "show", f"{self.shown.host} exports the backup {self.shown.backup_id}"
        )
        self.undo.push("end the export of the backup", _end, self.guest.name)
        self.save_state()
        begin(self.options)

    def save_state(self) -> None:
        """Store the state of the live restore."""
        live_restores.store(
            LiveRestoreRecord(
                self.guest.name, self.dom.UUIDString(), self.shown.backup_id, self.shown.host,
                self.shown.port, self.shown.authority,
                tuple(build.spec.name or "" for build in self.builds), self.options.bandwidth_mib_s,
                self.policies,
            )
        )  # fmt: skip


class LiveInPlaceRestore(LiveRestoreBuilder, InPlaceRestore):
    """Live restore in place of an existing guest."""

    def _switch(self, state: dict[str, bytes]) -> None:
        # before the definition depends on the backup: after an interruption it is known
        # which backup has to be exported again
        self.undo.push("forget the live restore", live_restores.forget, self.guest.name)
        self.save_state()
        super()._switch(state)

    def make(self) -> CreatedGuest:
        super().make()
        self.start()
        return self.result(None)


def backing(guest: str, target: str) -> BackingStore:
    """Return the backing store of such a disk for libvirt."""
    socket_host = SourceHost(transport="unix", socket=live_restore_server.socket_path(guest))
    source = DiskSource(protocol="nbd", name=target)
    source.hosts.append(socket_host)
    store = BackingStore(type="network", format="raw")
    store.source = source
    store.need().append(ElementTree.Element("backingStore"))
    return store


def begin(options: LiveRestoreOptions) -> None:
    """Start the live restore server. Raises OperationFailed if the backup cannot be exported
    here."""
    detached.spawn(
        options.library,
        live_restore_server.MODULE,
        options.request,
        "the live restore server died",
    )


def _end(name: str) -> None:
    """End the export and forget the live restore."""
    stop_server(name)
    live_restores.forget(name)


def stop_server(name: str) -> None:
    """Stop the live restore server. Raises OperationFailed if it does not stop."""
    deadline = time.monotonic() + _ENDS_S
    signal_number = signal.SIGTERM
    while (pid := live_restores.server_pid(name)) is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal_number)
        if time.monotonic() > deadline:
            if signal_number == signal.SIGKILL:
                raise errors.OperationFailed(f"process {pid} does not stop")
            signal_number, deadline = signal.SIGKILL, time.monotonic() + _ENDS_S
        time.sleep(0.1)


def resume(
    conn: libvirt.virConnect, options: LiveRestoreOptions, name: str, shown_backup: ShownBackup
) -> LiveRestoreStatus:
    """Export the backup again. Raises NotFound, OperationFailed."""
    with guest_lock.acquire(options.request.locks, "virt.backup_again", name):
        restore = live_restores.load(name)
        if restore is None:
            raise errors.NotFound(f"{name} does not run from a backup on this host")
        if restore.backup_id != shown_backup.backup_id:
            raise errors.BadAnswer(
                f"{name} runs from the backup {restore.backup_id}, but {shown_backup.backup_id} is "
                "exported"
            )
        stop_server(name)
        live_restores.store(
            replace(restore, host=shown_backup.host, port=shown_backup.port,
            authority=shown_backup.authority,
                    bandwidth_mib_s=options.bandwidth_mib_s)
        )  # fmt: skip
        begin(options)
    return read_status(conn, name)


def read_status(conn: libvirt.virConnect, name: str, locks: str | None = None) -> LiveRestoreStatus:
    """Return the progress, and forget live restores that are complete.

    locks: folder of the guests' locks; raise OperationFailed for a guest that is being created,
    because it will need the backup.
    """
    lock_owner = guest_lock.owners(locks).get(name, "") if locks else ""
    status = _read_status(conn, name)
    if status.state in (MISSING, COMPLETE) and lock_owner.startswith(RestoreBuilder.VERB):
        raise errors.OperationFailed(
            f"{name} is being created on this host, {lock_owner}: wait until it is done"
        )
    return status


def _read_status(conn: libvirt.virConnect, name: str) -> LiveRestoreStatus:
    with translated(f"inspect {name}"):
        restore, dom = live_restores.load(name), lookup.find(conn, name)
        server_pid = live_restores.server_pid(name)
        if dom is None or (restore and dom.UUIDString() != restore.uuid):
            if restore and server_pid is None:
                live_restores.forget(name)
            return LiveRestoreStatus(MISSING, restore.backup_id if restore else None)
        pending = live_restore_server.pending_disks(name, ElementTree.fromstring(dom.XMLDesc(0)))
        if not pending:
            if restore and server_pid is None:
                live_restores.forget(name)
            return LiveRestoreStatus(COMPLETE, restore.backup_id if restore else None, 100)
        if restore is None:
            return LiveRestoreStatus(
                DISCONNECTED, reason=f"its file in {live_restores.FOLDER} is missing"
            )
        percents = {target: _percent(dom, target, pending) for target in restore.disks}
        status = LiveRestoreStatus(
            OFF,
            restore.backup_id,
            min(percents.values(), default=0),
            running.is_paused_by_io(dom),
            disks=percents,
        )
        return _with_state(dom, restore, status, pending[0], server_pid)


def _with_state(
    dom: libvirt.virDomain,
    restore: LiveRestoreRecord,
    status: LiveRestoreStatus,
    target: str,
    server_pid: int | None,
) -> LiveRestoreStatus:
    if server_pid is None:
        reason = "the live restore server died"
        return replace(status, state=DISCONNECTED if dom.isActive() else OFF, reason=reason)
    if not dom.isActive():
        return status
    is_waiting = status.paused or not dom.blockJobInfo(target, 0)
    if is_waiting and (problem := live_restore_server.unavailable_reason(restore)):
        return replace(status, state=DISCONNECTED, reason=problem)
    return replace(status, state=PULLING)


def _percent(dom: libvirt.virDomain, target: str, pending: list[str]) -> int:
    if target not in pending:
        return 100
    info = dom.blockJobInfo(target, 0) if dom.isActive() else None
    return min(99, 100 * info["cur"] // info["end"]) if info and info["end"] else 0
