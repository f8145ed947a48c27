"""Reserve memory, CPUs and storage of the target for a guest before it arrives.

The target's folder of reservations is accessed through a transient pool, which one migration at a
time can have. An init on the target also writes its reservation first and then checks: of two
operations that do not fit together, at least one sees the other.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from collections.abc import Container, Iterable
from dataclasses import replace

from saltvirt import errors
from saltvirt.host import own_files
from saltvirt.host.connection import libvirt, translated
from saltvirt.host.migration import facts, remote_storage
from saltvirt.migration import reservation, storage
from saltvirt.migration.checks import capacity
from saltvirt.migration.checks.request import CheckedMigration
from saltvirt.migration.facts import GuestReport, TargetReport
from saltvirt.migration.reservation import Reservation
from saltvirt.system import atomic_file, file_lock, paths, private_folder

FOLDER = f"{paths.STATE}/arrivals"
# below paths.RUN, which is emptied when the host restarts
_STATE_FILE = "arrivals.json"


def local(present: Container[str], folder: str = FOLDER) -> list[Reservation]:
    """Return the Reservations of this host. present: names of its guests. Raises
    OperationFailed."""
    written = {}
    with own_files.permitted(), contextlib.suppress(FileNotFoundError), os.scandir(folder) as files:
        for file in files:
            with contextlib.suppress(FileNotFoundError):  # just released
                if reservation.parse(file.name):
                    written[file.name] = file.stat().st_mtime_ns
    return reservation.pending(_unchanged_s(written), present)


def _unchanged_s(written: dict[str, int]) -> dict[str, float]:
    """Return the seconds for which each file was observed unchanged, so that a clock that is set
    forward does not end a reservation. written: file to its modification time."""
    now, path = time.clock_gettime(time.CLOCK_BOOTTIME), os.path.join(paths.RUN, _STATE_FILE)
    previous = _read(path)
    current = {}
    for file, time_ns in written.items():
        is_unchanged = file in previous and previous[file][0] == time_ns
        current[file] = previous[file] if is_unchanged else [time_ns, now]
    if current != previous:
        _write(path, current)
    return {file: now - since for file, (_, since) in current.items()}


def _read(path: str) -> dict[str, list[float]]:
    try:
        with open(path, encoding="utf-8") as file:
            entries: dict[str, list[float]] = json.load(file)
            return entries
    except (OSError, ValueError):
        return {}


def _write(path: str, entries: dict[str, list[float]]) -> None:
    """Store the observations. Without them a reservation counts as new, and stays valid."""
    with contextlib.suppress(OSError, errors.OperationFailed):
        private_folder.ensure(os.path.dirname(path))
        with file_lock.exclusive(f"{path}.lock", timeout_s=0):
            atomic_file.write(path, json.dumps(entries).encode(), durable=False)


def is_reservation(path: str) -> bool:
    """Return whether a path is that of a reservation."""
    return os.path.dirname(path) == FOLDER


def remote(
    peer: libvirt.virConnect, present: Container[str], without: Container[str] = ()
) -> list[Reservation]:
    """Return the Reservations of another host. without: files to ignore."""
    with remote_storage.open_pool(peer, FOLDER) as pool:
        return reservation.pending(_ages(pool, without), present) if pool is not None else []


def _ages(pool: libvirt.virStoragePool, without: Container[str] = ()) -> dict[str, float]:
    """Return the seconds since each file was created or renewed, by the clock of the pool's
    host."""
    parsed = {file: reservation.parse(file) for file in pool.listVolumes() if file not in without}
    by_file = {file: entry for file, entry in parsed.items() if entry}
    if not by_file:
        return {}
    now, ages = _clock(pool), {}
    for file, entry in by_file.items():
        with remote_storage.skip_deleted():
            written = remote_storage.written_at(pool.storageVolLookupByName(file))
            if now is None or written is None:
                ages[file] = time.time() - entry.created_at
            else:
                ages[file] = now - written
    return ages


def _clock(pool: libvirt.virStoragePool) -> float | None:
    """Return the time on the pool's host, from a file that is created there."""
    file = f".clock-{uuid.uuid4().hex}"
    volume = remote_storage.create(pool, os.path.join(FOLDER, file), "raw", 0, mode="0600")
    try:
        return remote_storage.written_at(volume)
    finally:
        with remote_storage.skip_deleted():
            volume.delete(0)


def renew(peer: libvirt.virConnect, path: str) -> None:
    """Renew the reservation of that path: its migration lives."""
    with remote_storage.require_pool(peer, FOLDER, create=True) as pool, translated():
        volume = remote_storage.volume(pool, path)
        if volume is None:
            volume = remote_storage.create(pool, path, "raw", 0, mode="0600")
        stream = peer.newStream(0)
        volume.upload(stream, 0, 1, 0)
        stream.send(b".")
        stream.finish()


def reservation_path(report: GuestReport, plans: Iterable[storage.DiskPlan]) -> str:
    """Return the path of a guest's future reservation, which is recorded before it is created."""
    promise = Reservation(
        report.name, report.memory_kib, report.vcpus, int(time.time()),
        storage.promised_space(plans), report.page_kib,
    )  # fmt: skip
    return os.path.join(FOLDER, promise.file)


def reserve(
    peer: libvirt.virConnect,
    path: str,
    report: GuestReport,
    host: TargetReport,
    request: CheckedMigration,
) -> None:
    """Reserve the guest's resources on the target. path: from :func:`reservation_path`.

    report, host, request: as in the checks. Raises TargetRefused if other guests were promised the
    resources since the checks.
    """
    with remote_storage.require_pool(peer, FOLDER, create=True) as pool, translated():
        _tidy(pool, report.name)
        volume = remote_storage.create(pool, path, "raw", 0, mode="0600")
        domains = facts.domains(peer)
        arriving = reservation.pending(_ages(pool), {domain.guest.name for domain in domains})
        current = replace(host, domains=domains, reservations=tuple(arriving))
        reasons = list(capacity.reasons(report, current, request))
        if reasons:
            with remote_storage.skip_deleted():
                volume.delete(0)
            raise errors.TargetRefused("; ".join(reasons))


def release(peer: libvirt.virConnect, paths: Iterable[str]) -> list[str]:
    """Delete those of the paths that are reservations; return those that existed."""
    return [path for path in paths if is_reservation(path) and remote_storage.delete(peer, path)]


def _tidy(pool: libvirt.virStoragePool, name: str) -> None:
    """Remove expired reservations, and those of earlier attempts of this guest."""
    for file, age_s in _ages(pool).items():
        entry = reservation.parse(file)
        if (entry and entry.name == name) or reservation.stale(age_s):
            with remote_storage.skip_deleted():
                pool.storageVolLookupByName(file).delete(0)
