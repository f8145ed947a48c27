"""Create backups at a target of this host: plan them, read the disks from the hypervisor with a
separate program, and publish complete backups atomically."""

from __future__ import annotations

import json
import re
import secrets
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from saltvirt import errors
from saltvirt.backup.model import archive, backup_ids, chains, record
from saltvirt.backup.model.answers import (
    BackupPlan,
    BackupResult,
    GuestInspection,
    ListedBackup,
    ServedDisk,
    Serving,
)
from saltvirt.backup.model.calls import PullRequest
from saltvirt.backup.model.catalog import Catalog, StoredBackup
from saltvirt.backup.model.record import BackupDiskRecord, BackupRecord
from saltvirt.backup.target import keyfile, pull
from saltvirt.backup.target.keyfile import Key
from saltvirt.backup.target.target import BackupTarget, NewBackup
from saltvirt.system import paths, private_folder, tools, zipapp
from saltvirt.units import short_repr

# the distribution's Python, which has the binding of libnbd
PYTHON = "/usr/bin/python3"
MODULE = "backup.target.pull"
# names of exports, bitmaps and hosts
_SHOWN = re.compile("[A-Za-z0-9][A-Za-z0-9_.:-]{0,254}|:[0-9A-Fa-f:.]{1,64}")
MAX_DISK_BYTES, MAX_CONTEXTS = 2**58, 64
# maximum difference of the clocks, including the time until the first read
_CLOCKS_S = 600
_VERSION = re.compile(r"qemu-img version (\S+)")

ProgressCallback = Callable[[dict[str, Any]], None]


def plan_backup(
    target: BackupTarget,
    host: str,
    inspection: GuestInspection,
    full: bool = False,
    chain: int = chains.CHAIN,
    key: str | None = None,
) -> BackupPlan:
    """Plan the next backup of a guest.

    host: hypervisor of the guest. full: read all disks in full. chain: maximum length of a chain.
    key: name of the encryption key. Raises InvalidInput, NoKey, and Refused if a disk encrypted by
    libvirt would be stored in plain.
    """
    record_key = None if key is None else keyfile.load(key).record_name
    unencrypted = ", ".join(item.target for item in inspection.disks if item.encrypted)
    if unencrypted and record_key is None:
        raise errors.Refused(
            f"{unencrypted} of {inspection.name} is encrypted, and the target {target.folder.root} "
            "would store it in plain: set a key for the target (virt:backup:targets)"
        )
    catalog = target.catalog(inspection.uuid)
    plans = chains.plan(inspection, host, catalog, chain, full, record_key)
    following = backup_ids.following(catalog.backups, now(), secrets.token_hex(4))
    records = [item.record for item in catalog if item.record]
    guest, host_then = (records[-1].guest, records[-1].host) if records else (None, None)
    superseded = tuple(sorted(chains.superseded(inspection.checkpoints, catalog)))
    needed = tuple(sorted(chains.needed(catalog)))
    return BackupPlan(following, plans, needed, guest, host_then, superseded=superseded)


def now() -> str:
    """Return the present time, as in a record."""
    return record.format_time(time.time())


def receive(
    library: str,
    target: BackupTarget,
    request: PullRequest,
    certificates: str,
    report: ProgressCallback,
) -> BackupResult:
    """Read the exported disks and publish the backup.

    library: the folder of the package saltvirt. certificates: of `exports.NbdServer`. report:
    called with the progress of the program. Raises OperationFailed, BadAnswer; in this case there
    is no backup.
    """
    _refuse_invalid(request)
    serving = request.serving
    taken_at = _taken_at(serving.taken_at, now())
    with target.create(serving.uuid, request.backup_id) as new:
        key = None if request.key is None else keyfile.load(request.key)
        written = _pull(library, new, request, certificates, report, key)
        draft = BackupRecord(
            backup_id=request.backup_id, guest=request.name, uuid=serving.uuid, taken_at=taken_at,
            requester=request.requester, host=request.host, finished=now(), skipped=serving.skipped,
            consistency=serving.consistency, qemu_img=_version(), definition_sha256="",
            disks=tuple(_disk(disk, written[disk.target], key) for disk in serving.disks),
            state=_disk(serving.state, written[record.STATE], key) if serving.state else None,
        )  # fmt: skip
        backup_record = new.finish(draft, serving.definition)
    return BackupResult(
        backup_record.backup_id,
        sum(disk.stored_bytes for disk in backup_record.parts),
        sum(disk.moved_bytes for disk in written.values()),
        tuple(sorted({disk.checkpoint for disk in backup_record.disks if disk.checkpoint})),
    )


def _disk(disk: ServedDisk, written: pull.WrittenDisk, key: Key | None) -> BackupDiskRecord:
    return BackupDiskRecord(
        target=disk.target, size_bytes=disk.size_bytes, source=disk.source,
        checksums_sha256=written.checksums_sha256, parent=disk.parent, reason=disk.reason,
        checkpoint=disk.checkpoint, key=key.record_name if key else None,
    )  # fmt: skip


def _parts(serving: Serving) -> tuple[ServedDisk, ...]:
    return (*serving.disks, serving.state) if serving.state else serving.disks


def _taken_at(reported: str | None, started_at: str) -> str:
    """Return the moment of the disks according to the hypervisor if its clock is close to ours,
    else the time of the first read, some seconds later."""
    try:
        age_s = (record.moment(started_at) - record.moment(reported or "")).total_seconds()
    except ValueError:
        return started_at
    return str(reported) if 0 <= age_s <= _CLOCKS_S else started_at


def _refuse_invalid(request: PullRequest) -> None:
    """Raise BadAnswer if the hypervisor's answer contains a value that is not valid in a record.
    Disk names become file names, so this is checked before any file is created."""
    serving, placeholder = request.serving, pull.WrittenDisk("", "0" * 64, 0, 0)
    disks = tuple(_disk(disk, placeholder, None) for disk in serving.disks)
    state = _disk(serving.state, placeholder, None) if serving.state else None
    about = (request.backup_id, request.name, serving.uuid, now(), request.requester, request.host)
    draft = BackupRecord(
        *about, serving.consistency, "0", placeholder.checksums_sha256, disks,
        skipped=serving.skipped, state=state,
    )  # fmt: skip
    record.check(draft, f"the export of {request.host}")
    if serving.state and serving.state.size_bytes > archive.MAX_ARCHIVE_BYTES:
        raise errors.BadAnswer(f"the export of {request.host}: the state is too large")
    for disk in _parts(serving):
        for text in (serving.host, disk.export, *disk.contexts):
            if not _SHOWN.fullmatch(text):
                raise errors.BadAnswer(
                    f"the export of {request.host}: invalid name {short_repr(text)}"
                )
        if disk.size_bytes > MAX_DISK_BYTES or len(disk.contexts) > MAX_CONTEXTS:
            raise errors.BadAnswer(f"the export of {request.host}: invalid disk {disk.target}")


def _pull(
    library: str,
    new: NewBackup,
    request: PullRequest,
    certificates: str,
    report: ProgressCallback,
    key: Key | None,
) -> dict[str, pull.WrittenDisk]:
    """Run the reading program; map each disk to what was written."""
    serving = request.serving
    catalog = new.target.catalog(serving.uuid)
    disks = tuple(_pulled_disk_for(item, catalog) for item in serving.disks)
    if serving.state:
        disks = (*disks, replace(_pulled_disk_for(serving.state, catalog), port=serving.state_port))
    location = (new.path, serving.host, serving.port, certificates)
    limits = request.bandwidth, key, pull.SILENT_S, request.compress
    program = zipapp.unpacked_folder(library, MODULE, private_folder.ensure(paths.RUN))
    done = _run([PYTHON, program], pull.PullJob(*location, disks, *limits), report)
    written = [pull.WrittenDisk.from_answer(item, "the reading program") for item in done]
    return {item.target: item for item in written}


def _pulled_disk_for(disk: ServedDisk, catalog: Catalog) -> pull.PulledDisk:
    pulled_disk = pull.PulledDisk(
        disk.target, disk.export, disk.size_bytes, disk.contexts,
        stored_bytes=_last_full_size(catalog, disk.target),
    )  # fmt: skip
    if disk.parent is None:
        return pulled_disk
    below = f"../{disk.parent}/{record.disk_file(disk.target)}"
    count = len(catalog.chain(disk.parent, disk.target)) + 1
    return replace(pulled_disk, backing=below, backing_format=record.QCOW2, layers=count)


def _last_full_size(catalog: Catalog, target: str) -> int | None:
    """Return the size of the last full backup of a disk."""
    disks = [item.disk(target) for item in reversed(catalog.records)]
    return next((item.stored_bytes for item in disks if item and item.parent is None), None)


def _run(argv: list[str], job: pull.PullJob, report: ProgressCallback) -> list[Any]:
    """Run the program and return its result. Raises OperationFailed with its error."""
    with tempfile.TemporaryFile() as log:
        pipe = subprocess.PIPE
        process = tools.start(argv, stdin=pipe, stdout=pipe, stderr=log, cwd="/")
        try:
            tools.send_json(process, job.to_answer())
            for line in tools.pipe(process.stdout):
                message = json.loads(line)
                if "error" in message:
                    raise errors.OperationFailed(message["error"])
                if "done" in message:
                    results: list[Any] = message["done"]
                    return results
                report(message)
        finally:
            process.kill()
            process.wait()
            private_folder.sweep(pull.RUN, pull.FOLDERS)
        if process.returncode == -signal.SIGALRM:
            raise errors.OperationFailed(f"the host did not answer for {pull.SILENT_S} s")
        log.seek(0)
        raise errors.OperationFailed(
            f"the program that reads the disks died: {tools.last_output(log.read())}"
        )


def _version() -> str:
    output = tools.run(["qemu-img", "--version"], "read the version of qemu-img").decode()
    match = _VERSION.search(output)
    return match[1] if match else "unknown"


def listing(
    target: BackupTarget,
    uuid: str | None = None,
    name: str | None = None,
    newest: bool = False,
    after: tuple[str, str] | None = None,
) -> Iterator[ListedBackup]:
    """Yield backups of one guest, or of all, sorted by UUID and backup name.

    name: present or former name of guests, or a UUID. uuid: also list this guest. newest: only the
    last backup and the last good backup of each guest. after: continue behind this (UUID, backup).
    """
    if name is None:
        uuids = [uuid] if uuid else target.guests()
    else:
        uuids = sorted({*find_guests(target, name), *([uuid] if uuid else ())})
    now_s = time.time()
    for guest_uuid in uuids:
        if after and guest_uuid < after[0]:
            continue
        catalog = target.catalog(guest_uuid)
        chosen = (
            {max(catalog.backups), *catalog.good_ids[-1:]}
            if newest and catalog.last
            else catalog.backups
        )
        for backup in catalog:
            if backup.backup_id in chosen and (
                after is None or (guest_uuid, backup.backup_id) > after
            ):
                yield _list_entry(backup, guest_uuid, catalog, now_s)


def find_guests(target: BackupTarget, name: str) -> list[str]:
    """Return the UUIDs of guests with this name in their last backup; if there are none, in any
    backup. A UUID matches itself."""
    called: dict[str, list[str]] = {}
    for uuid in target.guests():
        if uuid == name:
            return [uuid]
        called[uuid] = [backup_record.guest for backup_record in target.catalog(uuid).records]
    now = [uuid for uuid, names in called.items() if names and names[-1] == name]
    return now or [uuid for uuid, names in called.items() if name in names]


def _list_entry(backup: StoredBackup, uuid: str, catalog: Catalog, now_s: float) -> ListedBackup:
    backup_record, problem = backup.record, catalog.problem(backup.backup_id)
    if backup_record is None:
        return ListedBackup(backup.backup_id, uuid=uuid, problem=problem)
    return ListedBackup(
        backup.backup_id,
        taken_at=backup_record.taken_at,
        host=backup_record.host,
        guest=backup_record.guest,
        uuid=uuid,
        consistency=backup_record.consistency,
        disks={disk.target: disk.parent or "full" for disk in backup_record.disks},
        stored_bytes=sum(disk.stored_bytes for disk in backup_record.parts),
        problem=problem or _key_problem(backup_record),
        skipped=backup_record.skipped,
        broken_disks=catalog.broken_disks(backup.backup_id),
        age_s=int(now_s - record.moment(backup_record.taken_at).timestamp()),
    )


def _key_problem(backup_record: BackupRecord) -> str | None:
    """Return why the backup cannot be read on this host: its key is missing."""
    try:
        for key in {disk.key for disk in backup_record.parts if disk.key}:
            keyfile.from_record(key)
    except errors.NoKey as exc:
        return exc.text
    return None
