"""Export a backup to the one hypervisor that restores it, from a detached process that ends when
the backup is no longer read."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from saltvirt import errors
from saltvirt.backup.model import backup_ids
from saltvirt.backup.model.answers import ShownBackup, ShownDisk
from saltvirt.backup.model.pins import BackupPin
from saltvirt.backup.model.record import BackupDiskRecord, BackupRecord
from saltvirt.backup.target import daemon, layers, pins, relay
from saltvirt.backup.target.target import BackupTarget
from saltvirt.schema import Message
from saltvirt.system import detached, paths, private_folder
from saltvirt.system.tls_listener import TlsEndpoint
from saltvirt.units import short_repr

MODULE = "backup.target.show"
_RUN = f"{paths.RUN}/backups"
# end after this time without a reader
IDLE_S = 120
# the same for a live restore, whose guest is paused while it is disconnected
PINNED_IDLE_S = 86_400
_POLL_S = 2
# file in the export's folder that names its reader
_READER = "reader"


@dataclass(frozen=True)
class ShowRequest(Message):
    """A backup to export.

    folder: of the target. endpoint: address, and the permitted reader. pin: the guest that runs
    from the backup; None: it is only read. disk: only this disk; None: all. damaged: also if the
    backup is not good.
    """

    folder: str
    uuid: str
    backup_id: str
    endpoint: TlsEndpoint
    pin: BackupPin | None = None
    disk: str | None = None
    damaged: bool = False

    def disks(self, target: BackupTarget, backup_record: BackupRecord) -> list[BackupDiskRecord]:
        """Return the disks to export; of a damaged backup those that can be opened."""
        chosen = (disk for disk in backup_record.disks if self.disk in (None, disk.target))
        return [disk for disk in chosen if self._is_shown(target, backup_record, disk)]

    def state(self, target: BackupTarget, backup_record: BackupRecord) -> BackupDiskRecord | None:
        """Return the state of the guest if all of the backup is exported and the state can be
        opened."""
        if (
            self.disk
            or not backup_record.state
            or not self._is_shown(target, backup_record, backup_record.state)
        ):
            return None
        return backup_record.state

    def _is_shown(
        self, target: BackupTarget, backup_record: BackupRecord, disk: BackupDiskRecord
    ) -> bool:
        if not self.damaged:
            return True
        if (
            target.catalog(backup_record.uuid).file_problem(backup_record.backup_id, disk.target)
            is not None
        ):
            return False
        try:
            layers.load(target, backup_record, disk)
        except (errors.BadAnswer, errors.ImageError, errors.NotFound):
            return False
        return True


def show(library: str, request: ShowRequest, host: str) -> ShownBackup:
    """Start the export.

    library: the folder of the package saltvirt. host: name of this host in its certificate. Raises
    NotFound, OperationFailed, and BadAnswer for a backup that is not good.
    """
    target = BackupTarget(request.folder)
    catalog = target.catalog(request.uuid)
    name = backup_ids.find(
        catalog.backups, request.backup_id, f"{request.uuid} in {request.folder}"
    )
    backup_record = catalog.backups[name].record
    if (
        request.disk
        and backup_record
        and request.disk not in {disk.target for disk in backup_record.disks}
    ):
        raise errors.NotFound(f"backup {name} has no disk {short_repr(request.disk)}")
    problem = catalog.disk_problem(name, request.disk) if request.disk else catalog.problem(name)
    if backup_record is None or (problem and not request.damaged):
        raise errors.BadAnswer(f"backup {name} is not good: {problem}")
    chosen = request.disks(target, backup_record)
    if not chosen:
        reason = problem or "none of its files can be opened"
        raise errors.BadAnswer(f"no part of backup {name} can be read: {reason}")
    definition = target.definition(backup_record)
    port = _spawn(library, replace(request, backup_id=name))
    disks = tuple(ShownDisk(disk.target, disk.size_bytes) for disk in chosen)
    authority = request.endpoint.credentials.authority
    about = (name, backup_record.guest, host, port, definition, disks, authority)
    state = request.state(target, backup_record)
    shown_state = ShownDisk(state.target, state.size_bytes) if state else None
    return ShownBackup(*about, damaged=request.damaged, state=shown_state)


def hide(reader: str) -> bool:
    """End all exports to a reader, which takes some seconds. Return whether there were any."""
    digest, is_hidden = _digest(reader), False
    for path in glob.glob(f"{_RUN}/show-*/{_READER}"):
        with contextlib.suppress(FileNotFoundError), open(path, encoding="ascii") as file:
            if file.read() == digest:
                os.unlink(path)
                is_hidden = True
    return is_hidden


def _digest(reader: str) -> str:
    return hashlib.sha256(reader.encode("utf-8", "surrogatepass")).hexdigest()


def _spawn(library: str, request: ShowRequest) -> int:
    """Start the program and return its port."""
    return int(
        detached.spawn(library, MODULE, request, "the program that exports the backup died")["port"]
    )


def main(_argv: list[str]) -> int:
    """The program. It reads a ShowRequest from standard input and writes one line to standard
    output."""
    request = ShowRequest.from_answer(json.load(sys.stdin), "the request")
    try:
        target = BackupTarget(request.folder)
        with (
            target.open_backup(request.uuid, request.backup_id) as backup_record,
            private_folder.temporary(_RUN, "show-") as folder,
        ):
            state = request.state(target, backup_record)
            chosen = [*request.disks(target, backup_record), *([state] if state else [])]
            disks = [
                layers.load(target, backup_record, disk).exported(disk.target) for disk in chosen
            ]
            if request.pin:
                pins.add_pin(target.folder, request.uuid, request.backup_id, request.pin)
            path = os.path.join(folder, "nbd")
            server = daemon.begin(disks, path)
            reader_file = os.path.join(folder, _READER)
            with open(reader_file, "w", encoding="ascii") as file:
                file.write(_digest(request.endpoint.credentials.reader))
            tls_relay = relay.begin(request.endpoint, path)
            detached.send({"port": tls_relay.port})
            _serve_until_idle(server, tls_relay,
            lambda: os.path.exists(reader_file) and _is_pinned(target, request),
                  PINNED_IDLE_S if request.pin else IDLE_S)  # fmt: skip
    except errors.VirtError as exc:
        detached.send({"error": exc.text})
        return 1
    return 0


def _serve_until_idle(
    server: daemon.StorageDaemon,
    tls_relay: relay.Relay,
    is_wanted: Callable[[], bool],
    idle_s: float,
) -> None:
    """Serve until there was no reader for a while, or the export is no longer wanted."""
    last_s = time.monotonic()
    while server.is_running and time.monotonic() - last_s < idle_s and is_wanted():
        time.sleep(_POLL_S)
        if tls_relay.has_readers:
            last_s = time.monotonic()
    tls_relay.end()
    server.end()


def _is_pinned(target: BackupTarget, request: ShowRequest) -> bool:
    if request.pin is None:
        return True
    current = pins.load(target.folder, request.uuid, request.backup_id)
    return pins.UNREADABLE in current or any(pin.is_same_guest(request.pin) for pin in current)
