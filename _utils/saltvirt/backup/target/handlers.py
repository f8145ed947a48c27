"""What the machine of a backup target answers to the master's calls, and the keys of readers."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import saltvirt
from saltvirt import names, units
from saltvirt.answers.calls import MinionContext, handles
from saltvirt.backup.export import request as export_request
from saltvirt.backup.model import calls as backup_calls
from saltvirt.backup.model import policy
from saltvirt.backup.model.answers import BackupPlan, BackupReader, BackupResult, ShownBackup
from saltvirt.backup.model.pins import BackupPin, PinnedBackup
from saltvirt.backup.target import pins, receive, relay, show
from saltvirt.backup.target.target import BackupTarget, open_target
from saltvirt.host.node import job_steps
from saltvirt.pki.common import certs
from saltvirt.pki.host import own_pair
from saltvirt.pki.host.own_pair import OwnPair
from saltvirt.spec import values
from saltvirt.system import paths, private_folder, tls_listener
from saltvirt.system.tls_listener import TlsEndpoint

ONE_TIME_KEYS = f"{paths.STATE}/backup-readers"
_READER = "backup-reader"


def library() -> str:
    """Return the folder of the package saltvirt."""
    return next(iter(saltvirt.__path__))


def _permanent_pair() -> OwnPair:
    return own_pair.permanent(f"{paths.STATE}/backup-reader", _READER)


def _open(request: backup_calls.TargetRef) -> BackupTarget:
    return open_target(request.folder, request.mounted)


@contextlib.contextmanager
def reader_pair(
    reader: str | None, authority: str, field_name: str
) -> Iterator[tuple[OwnPair, str]]:
    """Yield the key pair that this machine reads with, and a folder that contains it for a program.

    reader: authority of a one-time pair; None: the permanent one. authority: of the exporting
    machine.
    """
    with private_folder.temporary(private_folder.runtime(), "backup-") as folder:
        pair = (
            _permanent_pair() if reader is None else own_pair.take(ONE_TIME_KEYS, reader, "reader")
        )
        own_pair.trust(folder, pair, authority, field_name)
        yield pair, folder


def endpoint(config: export_request.ExportConfig, reader: str) -> TlsEndpoint:
    """Return the endpoint of an export with a new certificate, which admits only one client."""
    pair = own_pair.generate(config.host, certs.SERVER)
    client_ca = own_pair.authority(reader, "reader")
    credentials = tls_listener.TlsCredentials(pair.authority, pair.certificate, pair.key, client_ca)
    return TlsEndpoint(tls_listener.everywhere(), config.port, relay.PORTS, credentials)


@handles(backup_calls.ISSUE_READER)
def issue_reader(_host: MinionContext, request: backup_calls.ReaderRequest) -> BackupReader:
    """Return the authority of the certificate with which this machine reads an export.

    The key stays on this machine.
    """
    pair = own_pair.ephemeral(ONE_TIME_KEYS, _READER) if request.once else _permanent_pair()
    return BackupReader(pair.authority)


@handles(backup_calls.PLAN_BACKUP)
def plan_backup(_host: MinionContext, request: backup_calls.PlanRequest) -> BackupPlan:
    """Plan the next backup of a guest. Raises InvalidInput if the folder cannot be used."""
    target = _open(request)
    chain, key = units.parse_count(request.chain), request.key
    plan = receive.plan_backup(target, request.host, request.inspection, request.full, chain, key)
    if request.reader:
        pair = own_pair.ephemeral(ONE_TIME_KEYS, _READER)
        plan = dataclasses.replace(plan, reader=pair.authority)
    return plan


@handles(backup_calls.PULL_BACKUP)
def pull_backup(host: MinionContext, request: backup_calls.PullRequest) -> BackupResult:
    """Read the disks that a hypervisor exports, and store them as a backup, or nothing at all."""
    guest, authority = names.existing_guest(request.name), request.serving.authority
    if request.bandwidth is not None:
        units.parse_count(request.bandwidth, "bandwidth")
    policy.compression(request.compress, request.key is not None)
    target, report = _open(request), _progress_sender(host, guest)
    with reader_pair(request.reader, authority, "serving: authority") as (_, folder):
        return receive.receive(library(), target, request, folder, report)


def _progress_sender(host: MinionContext, guest: str) -> Callable[[dict[str, Any]], None]:
    """Return a function that sends progress events: ``salt/virt/backup/<name>/progress``."""
    steps_dir = job_steps.folder(host.config)

    def send(progress: dict[str, Any]) -> None:
        job_steps.record_step(steps_dir)
        total = max(1, progress["total_bytes"])
        event = {"name": guest, "percent": round(100 * progress["done_bytes"] / total), **progress}
        tag = f"salt/virt/backup/{guest}/progress"
        job_steps.send_step(host.functions["event.send"], tag, event)

    return send


@handles(backup_calls.SHOW_BACKUP)
def show_backup(host: MinionContext, request: backup_calls.ShowBackupRequest) -> ShownBackup:
    """Export a backup to one hypervisor, read-only, until it is hidden or no longer read.

    Raises NotFound if the backup or the disk does not exist, BadAnswer if the backup is not good.
    """
    _open(request)
    config = export_request.load_config(host.config, host.opts["id"])
    pin = request.pin
    if pin:
        host_name = values.text(pin.host, "host")
        pin = BackupPin(names.existing_guest(pin.guest), host_name, receive.now())
    shown = show.ShowRequest(
        request.folder, request.uuid, request.backup, endpoint(config, request.reader), pin,
        request.disk, request.damaged,
    )  # fmt: skip
    return show.show(library(), shown, config.host)


@handles(backup_calls.HIDE_BACKUP)
def hide_backup(_host: MinionContext, request: backup_calls.HideBackupRequest) -> bool:
    """End all exports to a reader. Return whether there were any."""
    return show.hide(request.reader)


@handles(backup_calls.LIST_PINS)
def list_pins(_host: MinionContext, request: backup_calls.TargetRef) -> list[PinnedBackup]:
    """Return the guests that run from a backup at the target."""
    target = _open(request)
    return [*pins.list_all(target.folder, target.guests())]


@handles(backup_calls.UNPIN)
def unpin(_host: MinionContext, request: backup_calls.UnpinRequest) -> bool:
    """Release a backup from a guest that no longer runs from it. Return whether it was pinned.

    Only for a guest that has all its blocks, or that no longer exists: the caller ensures that.
    """
    target = _open(request)
    pin = BackupPin(names.existing_guest(request.guest), values.text(request.host, "host"))
    return pins.remove_pin(target.folder, request.uuid, request.backup, pin)
