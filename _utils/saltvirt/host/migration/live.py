"""One live migration by libvirt, observed until its end."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from saltvirt import errors
from saltvirt.host.connection import libvirt, translate
from saltvirt.migration import journal
from saltvirt.migration.policy import (
    ABORT,
    DOWNTIME,
    PAUSE,
    POSTCOPY,
    Action,
    MigrationPolicy,
    Progress,
    advance,
    decide,
)

POLL_S = 0.5
# seconds that libvirt may need to abort a job
END_S = 30
# names that a binding built with an older libvirt lacks, but passes on
_NEWER = {
    "MIGRATE_DISKS_DETECT_ZEROES": "migrate_disks_detect_zeroes",
    "TLS_DESTINATION": "tls.destination",
}
# libvirt's and QEMU's message about a data connection that fails
_QEMUS_PORT = re.compile(r"connect.*:49\d\d\d\b")


@dataclass(frozen=True)
class Job:
    """The request to libvirt. flags, parameters: by libvirt's names. pausing: is called with the
    journal's PAUSING before the guest is paused, and with PAUSED after."""

    uri: str
    flags: frozenset[str] = frozenset()
    parameters: dict[str, Any] = field(default_factory=dict)
    policy: MigrationPolicy = field(default_factory=MigrationPolicy)
    max_downtime: int | None = None
    pausing: Callable[[str], None] = lambda step: None


class _MigrateCall(threading.Thread):
    """libvirt's blocking call, in a thread of its own."""

    def __init__(self, dom: libvirt.virDomain, job: Job):
        super().__init__(name=f"migrate {dom.name()}", daemon=True)
        self.dom = dom
        self.arguments = (job.uri, parameters(job.parameters), flags(job.flags))
        self.error: libvirt.libvirtError | None = None

    def run(self) -> None:
        try:
            self.dom.migrateToURI3(*self.arguments)
        except libvirt.libvirtError as exc:
            self.error = exc


def flags(names: Iterable[str]) -> int:
    """Return libvirt's number for names of VIR_MIGRATE_*. Raises Unsupported."""
    number = 0
    for name in names:
        value = getattr(libvirt, f"VIR_MIGRATE_{name}", None)
        if value is None:
            raise errors.Unsupported(f"this version of libvirt-python has no VIR_MIGRATE_{name}")
        number |= value
    return number


def parameters(by_name: Mapping[str, Any]) -> dict[str, Any]:
    """Return libvirt's parameters for names of VIR_MIGRATE_PARAM_*. Raises Unsupported."""
    values = {}
    for name, value in by_name.items():
        key = getattr(libvirt, f"VIR_MIGRATE_PARAM_{name}", _NEWER.get(name))
        if key is None:
            raise errors.Unsupported(f"this version of libvirt-python has no parameter {name}")
        values[key] = value
    return values


def perform(
    dom: libvirt.virDomain, job: Job, notify: Callable[[Progress, float, str | None], None]
) -> Progress:
    """Migrate the guest and observe it; return the last Progress.

    notify: is called with (Progress, elapsed seconds, text or None) at each observation. Raises
    MigrationFailed with libvirt's message and, if we aborted it, the reason; TargetRefused if no
    data of the guest was sent, so that another host may accept it.
    """
    if job.max_downtime:
        with contextlib.suppress(libvirt.libvirtError):
            dom.migrateSetMaxDowntime(job.max_downtime)
    call = _MigrateCall(dom, job)
    call.start()
    try:
        progress, abort_reason = _watch(dom, job, call, notify)
    except BaseException:  # this process ends, and libvirt must not continue without supervision
        _abandon(dom, call)
        raise
    if call.error is not None:
        if progress.paused:
            _resume(dom)
        raise _failure(call.error, abort_reason, bool(progress.processed or progress.postcopy))
    return progress


def _abandon(dom: libvirt.virDomain, call: _MigrateCall) -> None:
    """Abort libvirt's part, and wait for its end. Post-copy continues."""
    with contextlib.suppress(libvirt.libvirtError):
        dom.abortJob()
    call.join(END_S)


def _watch(
    dom: libvirt.virDomain,
    job: Job,
    call: _MigrateCall,
    notify: Callable[[Progress, float, str | None], None],
) -> tuple[Progress, str | None]:
    """Return (the last Progress, why we aborted it or None)."""
    started = time.monotonic()
    progress = Progress()
    abort_reason: str | None = None
    while call.is_alive():
        call.join(POLL_S)
        if not call.is_alive():
            break
        elapsed_s = time.monotonic() - started
        progress = advance(progress, statistics(dom), elapsed_s)
        if in_postcopy(dom):
            progress = replace(progress, postcopy=True)
        action = decide(progress, elapsed_s, job.policy)
        notify(progress, elapsed_s, action.reason or None)
        progress, abort_reason = _act(dom, job, action, progress, abort_reason)
    return progress, abort_reason


def _resume(dom: libvirt.virDomain) -> None:
    """Resume a guest that we paused, but not one that waits for the other host."""
    with contextlib.suppress(libvirt.libvirtError):
        if dom.state() == [libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_USER]:
            dom.resume()


def in_postcopy(dom: libvirt.virDomain) -> bool:
    """Return whether the guest has started on the target."""
    with contextlib.suppress(libvirt.libvirtError):  # the domain has left this host: done
        return dom.state() == [libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_POSTCOPY]
    return False


def statistics(dom: libvirt.virDomain) -> dict[str, Any]:
    """Return libvirt's job statistics by name; empty if there are none now."""
    try:
        return dom.jobStats()
    except libvirt.libvirtError:
        return {}


def completed(dom: libvirt.virDomain) -> dict[str, Any]:
    """Return the statistics of the finished migration from the target's domain."""
    try:
        return dom.jobStats(libvirt.VIR_DOMAIN_JOB_STATS_COMPLETED)
    except libvirt.libvirtError:
        return {}


def _act(
    dom: libvirt.virDomain, job: Job, action: Action, progress: Progress, abort_reason: str | None
) -> tuple[Progress, str | None]:
    """Perform the action. Return (the updated Progress, why we aborted the migration or None)."""
    try:
        if action.kind == ABORT and abort_reason is None:
            dom.abortJob()
            return progress, action.reason
        if action.kind == DOWNTIME and action.value is not None:
            dom.migrateSetMaxDowntime(action.value)
            return replace(progress, steps=progress.steps + 1), abort_reason
        if action.kind == POSTCOPY:
            dom.migrateStartPostCopy()
            return replace(progress, postcopy=True), abort_reason
        if action.kind == PAUSE:
            job.pausing(journal.PAUSING)
            dom.suspend()
            job.pausing(journal.PAUSED)
            return replace(progress, paused=True), abort_reason
    except libvirt.libvirtError:
        # the job has just ended, or cannot accept this yet: the next observation decides
        return progress, abort_reason
    return progress, abort_reason


def _failure(
    error: libvirt.libvirtError, abort_reason: str | None, data_sent: bool
) -> errors.MigrationFailed:
    message = str(translate(error))
    if _QEMUS_PORT.search(message):
        message += " (TCP ports 49152-49215 must be open between hypervisors)"
    if abort_reason:
        return errors.MigrationFailed(f"aborted: {abort_reason} ({message})")
    # after an explicit abort no other host is tried
    by_hand = error.get_error_code() == libvirt.VIR_ERR_OPERATION_ABORTED
    return (
        errors.MigrationFailed(message) if data_sent or by_hand else errors.TargetRefused(message)
    )
