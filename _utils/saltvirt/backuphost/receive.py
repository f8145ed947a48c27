"""Backups made at this machine's target: planned by what is there, read from the hypervisor by a
program of its own, put in their place whole or not at all."""

from __future__ import annotations

import json
import re
import secrets
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from saltvirt import errors, places, program
from saltvirt.backuphost import keyfile, pull
from saltvirt.backuphost.keyfile import Key
from saltvirt.backuphost.target import NewBackup, Target
from saltvirt.backups import archive, chains, ident, record
from saltvirt.backups.answers import (
    BackupMade,
    BackupPlan,
    GuestLook,
    ListedBackup,
    PlannedDisk,
    ServedDisk,
    Serving,
)
from saltvirt.backups.record import BackupDisk, Record
from saltvirt.backups.stock import Backup, Stock
from saltvirt.images import locks, tools
from saltvirt.units import shown

# the distribution's: its binding of libnbd is there
PYTHON = "/usr/bin/python3"
MODULE = "backuphost.pull"
# of exports, bitmaps and hosts
_SHOWN = re.compile("[A-Za-z0-9][A-Za-z0-9_.:-]{0,254}|:[0-9A-Fa-f:.]{1,64}")
MOST_DISK_BYTES, MOST_CONTEXTS = 2**58, 64
# a host's clock may differ from ours by so much, together with the time until we read
_CLOCKS_S = 600
_VERSION = re.compile(r"qemu-img version (\S+)")

Tell = Callable[[dict[str, Any]], None]


def planned(
    target: Target,
    host: str,
    look: GuestLook,
    whole: bool = False,
    chain: int = chains.CHAIN,
    key: str | None = None,
) -> BackupPlan:
    """How the next backup of a guest is to be taken. host: where the guest is. whole: all of it is
    to be read. chain: so many backups at most stand on each other. key: the name of that with which
    it is to be encrypted. Raises InvalidInput, NoKey, Refused where what is
    encrypted would lie there in plain."""
    sealed = None if key is None else keyfile.named(key).told
    plain = ", ".join(one.target for one in look.disks if one.encrypted)
    if plain and sealed is None:
        raise errors.Refused(
            f"{plain} of {look.name} is encrypted, and would lie in {target.folder.root} in plain: "
            "give that target a key (virt:backup:targets)"
        )
    stock = target.stock(look.uuid)
    disks = tuple(
        chains.DiskSeen(one.target, one.size_bytes, one.source, one.format, one.bitmaps)
        for one in look.disks
    )
    seen = chains.GuestSeen(look.uuid, host, disks, look.checkpoints, look.name)
    plans = tuple(
        PlannedDisk(one.target, one.parent, one.since, one.reason, sealed is not None)
        for one in chains.plan(seen, stock, chain, whole, sealed)
    )
    following = ident.following(stock.backups, now(), secrets.token_hex(4))
    known = [one.record for one in stock if one.record]
    guest, host_then = (known[-1].guest, known[-1].host) if known else (None, None)
    over = tuple(sorted(chains.superseded(look.checkpoints, stock)))
    needed = tuple(sorted(chains.needed(stock)))
    return BackupPlan(following, plans, needed, guest, host_then, superseded=over)


def now() -> str:
    """The time, as a record has it."""
    return record.written_at(time.time())


@dataclass(frozen=True)
class Told:
    """What the master says of a backup: what it is called, of which guest on which host, who asked
    for it, how fast it may be read, the name of the key with which it is encrypted, and how it is
    compressed."""

    ident: str
    guest: str
    host: str
    by: str
    bandwidth_mib_s: int | None = None
    key: str | None = None
    compress: str | None = None


def receive(
    library: str, target: Target, backup: Told, serving: Serving, certificates: str, tell: Tell
) -> BackupMade:
    """Reads what is served; the backup that came of it. library: the folder of the package
    saltvirt. certificates: of `exports.Server`. tell: called with the program's progress.

    Raises OperationFailed, BadAnswer, and then there is no such backup.
    """
    _refuse_odd(backup, serving)
    when = _moment(serving.when, now())
    with target.making(serving.uuid, backup.ident) as new:
        key = None if backup.key is None else keyfile.named(backup.key)
        written = _pulled(library, new, serving, certificates, tell, backup, key)
        told = Record(
            ident=backup.ident, guest=backup.guest, uuid=serving.uuid, when=when, by=backup.by,
            host=backup.host, finished=now(), skipped=serving.skipped,
            consistency=serving.consistency, qemu_img=_version(), definition_sha256="",
            disks=tuple(_disk(one, written[one.target], key) for one in serving.disks),
            state=_disk(serving.state, written[record.STATE], key) if serving.state else None,
        )  # fmt: skip
        made = new.finish(told, serving.definition)
    return BackupMade(
        made.ident,
        sum(one.stored_bytes for one in made.parts),
        sum(one.moved_bytes for one in written.values()),
        tuple(sorted({one.checkpoint for one in made.disks if one.checkpoint})),
    )


def _disk(one: ServedDisk, written: pull.Written, key: Key | None) -> BackupDisk:
    return BackupDisk(
        target=one.target, size_bytes=one.size_bytes, source=one.source,
        pieces_sha256=written.pieces_sha256, parent=one.parent, reason=one.reason,
        checkpoint=one.checkpoint, key=key.told if key else None,
    )  # fmt: skip


def _parts(serving: Serving) -> tuple[ServedDisk, ...]:
    return (*serving.disks, serving.state) if serving.state else serving.disks


def _moment(told: str | None, begun: str) -> str:
    """The moment of the disks: as their host tells it, if its clock is near ours; else when we
    begin to read them, some seconds later."""
    try:
        age_s = (record.moment(begun) - record.moment(told or "")).total_seconds()
    except ValueError:
        return begun
    return str(told) if 0 <= age_s <= _CLOCKS_S else begun


def _refuse_odd(backup: Told, serving: Serving) -> None:
    """What a hypervisor says of disks names files here: so nothing is begun, not even a file, by
    what no record may have. Raises BadAnswer."""
    nothing = pull.Written("", "0" * 64, 0, 0)
    disks = tuple(_disk(one, nothing, None) for one in serving.disks)
    state = _disk(serving.state, nothing, None) if serving.state else None
    about = (backup.ident, backup.guest, serving.uuid, now(), backup.by, backup.host)
    told = Record(
        *about, serving.consistency, "0", nothing.pieces_sha256, disks, skipped=serving.skipped,
        state=state,
    )  # fmt: skip
    record.check(told, f"what {backup.host} shows")
    if serving.state and serving.state.size_bytes > archive.MOST_ARCHIVE_BYTES:
        raise errors.BadAnswer(f"what {backup.host} shows: no guest has so much state")
    for one in _parts(serving):
        for text in (serving.host, one.export, *one.contexts):
            if not _SHOWN.fullmatch(text):
                raise errors.BadAnswer(f"what {backup.host} shows: {shown(text)} is no name there")
        if one.size_bytes > MOST_DISK_BYTES or len(one.contexts) > MOST_CONTEXTS:
            raise errors.BadAnswer(f"what {backup.host} shows: no disk is like {one.target}")


def _pulled(
    library: str,
    new: NewBackup,
    serving: Serving,
    certificates: str,
    tell: Tell,
    backup: Told,
    key: Key | None,
) -> dict[str, pull.Written]:
    """Disk to what was written of it."""
    stock = new.target.stock(serving.uuid)
    disks = tuple(_pulled_disk(one, stock) for one in serving.disks)
    if serving.state:
        disks = (*disks, replace(_pulled_disk(serving.state, stock), port=serving.state_port))
    where = (new.path, serving.host, serving.port, certificates)
    limit, compress = backup.bandwidth_mib_s, backup.compress
    job = pull.Pull(*where, disks, limit, key, pull.SILENT_S, compress)
    done = _run([PYTHON, program.kept(library, MODULE, locks.private(places.RUN))], job, tell)
    found = [pull.Written.from_answer(one, "the reading program") for one in done]
    return {one.target: one for one in found}


def _pulled_disk(one: ServedDisk, stock: Stock) -> pull.PulledDisk:
    asked = pull.PulledDisk(
        one.target, one.export, one.size_bytes, one.contexts,
        stored_bytes=_last_whole(stock, one.target),
    )  # fmt: skip
    if one.parent is None:
        return asked
    below = f"../{one.parent}/{record.disk_file(one.target)}"
    count = len(stock.chain(one.parent, one.target)) + 1
    return replace(asked, backing=below, backing_format=record.QCOW2, layers=count)


def _last_whole(stock: Stock, target: str) -> int | None:
    """How long the last whole one of a disk is."""
    disks = [one.disk(target) for one in reversed(stock.records)]
    return next((one.stored_bytes for one in disks if one and one.parent is None), None)


def _run(argv: list[str], job: pull.Pull, tell: Tell) -> list[Any]:
    """What the program has done. Raises OperationFailed with why it has not."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            tools.command(argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
            env=tools.environment(), cwd="/",
        )  # fmt: skip
        try:
            tools.tell(process, job.to_answer())
            for line in tools.pipe(process.stdout):
                said = json.loads(line)
                if "error" in said:
                    raise errors.OperationFailed(said["error"])
                if "done" in said:
                    found: list[Any] = said["done"]
                    return found
                tell(said)
        finally:
            process.kill()
            process.wait()
            locks.sweep(pull.RUN, pull.FOLDERS)
        if process.returncode == -signal.SIGALRM:
            raise errors.OperationFailed(f"the host was silent for {pull.SILENT_S} s")
        log.seek(0)
        raise errors.OperationFailed(
            f"the program that reads the disks died: {tools.last_words(log.read())}"
        )


def _version() -> str:
    said = tools.run(["qemu-img", "--version"], "ask qemu-img for its version").decode()
    match = _VERSION.search(said)
    return match[1] if match else "unknown"


def listing(
    target: Target,
    uuid: str | None = None,
    name: str | None = None,
    newest: bool = False,
    after: tuple[str, str] | None = None,
) -> Iterator[ListedBackup]:
    """The backups of one guest, or of all, in the order of their UUIDs and names. name: of those
    guests that have it, had it, or have it as UUID; uuid: and of that one. newest: of each guest
    the last one, and the last good one. after: only those behind that (UUID, name)."""
    if name is None:
        uuids = [uuid] if uuid else target.guests()
    else:
        uuids = sorted({*whose(target, name), *([uuid] if uuid else ())})
    now_s = time.time()
    for one in uuids:
        if after and one < after[0]:
            continue
        stock = target.stock(one)
        chosen = {max(stock.backups), *stock.good[-1:]} if newest and stock.last else stock.backups
        for backup in stock:
            if backup.ident in chosen and (after is None or (one, backup.ident) > after):
                yield _listed(backup, one, stock, now_s)


def whose(target: Target, name: str) -> list[str]:
    """The UUIDs of guests that are called so, by their last backup; if there is none, of those that
    once were. A UUID is its own."""
    called: dict[str, list[str]] = {}
    for uuid in target.guests():
        if uuid == name:
            return [uuid]
        called[uuid] = [one.guest for one in target.stock(uuid).records]
    now = [uuid for uuid, names in called.items() if names and names[-1] == name]
    return now or [uuid for uuid, names in called.items() if name in names]


def _listed(backup: Backup, uuid: str, stock: Stock, now_s: float) -> ListedBackup:
    told, wrong = backup.record, stock.wrong(backup.ident)
    if told is None:
        return ListedBackup(backup.ident, uuid=uuid, wrong=wrong)
    return ListedBackup(
        backup.ident,
        when=told.when,
        host=told.host,
        guest=told.guest,
        uuid=uuid,
        consistency=told.consistency,
        disks={disk.target: disk.parent or "whole" for disk in told.disks},
        stored_bytes=sum(disk.stored_bytes for disk in told.parts),
        wrong=wrong or _locked(told),
        skipped=told.skipped,
        broken=stock.broken(backup.ident),
        age_s=int(now_s - record.moment(told.when).timestamp()),
    )


def _locked(told: Record) -> str | None:
    """Why nobody can read it here although it is good: its key is not here."""
    try:
        for key in {disk.key for disk in told.parts if disk.key}:
            keyfile.of_record(key)
    except errors.NoKey as exc:
        return exc.text
    return None
