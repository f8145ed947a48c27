"""One live migration by libvirt, watched to its end."""

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

LOOK_S = 0.5
# libvirt needs a moment to end what it was told to end
END_S = 30
# what a binding that was built with an older libvirt does not name, but passes on
_NEWER = {
    "MIGRATE_DISKS_DETECT_ZEROES": "migrate_disks_detect_zeroes",
    "TLS_DESTINATION": "tls.destination",
}
# libvirt's and QEMU's words for a data connection that cannot be made
_QEMUS_PORT = re.compile(r"connect.*:49\d\d\d\b")


@dataclass(frozen=True)
class Job:
    """What libvirt is asked to do. flags, parameters: by the names that libvirt gives them.
    pausing: called with the journal's PAUSING before we pause the guest, PAUSED after."""

    uri: str
    flags: frozenset[str] = frozenset()
    parameters: dict[str, Any] = field(default_factory=dict)
    policy: MigrationPolicy = field(default_factory=MigrationPolicy)
    max_downtime: int | None = None
    pausing: Callable[[str], None] = lambda step: None


class _Call(threading.Thread):
    """libvirt's blocking call, on a thread of its own."""

    def __init__(self, dom: libvirt.virDomain, job: Job):
        super().__init__(name=f"migrate {dom.name()}", daemon=True)
        self.dom = dom
        self.asked = (job.uri, parameters(job.parameters), flags(job.flags))
        self.error: libvirt.libvirtError | None = None

    def run(self) -> None:
        try:
            self.dom.migrateToURI3(*self.asked)
        except libvirt.libvirtError as exc:
            self.error = exc


def flags(names: Iterable[str]) -> int:
    """libvirt's number for the names of VIR_MIGRATE_*. Raises Unsupported."""
    number = 0
    for name in names:
        value = getattr(libvirt, f"VIR_MIGRATE_{name}", None)
        if value is None:
            raise errors.Unsupported(f"this libvirt binding does not know VIR_MIGRATE_{name}")
        number |= value
    return number


def parameters(named: Mapping[str, Any]) -> dict[str, Any]:
    """libvirt's parameters for the names of VIR_MIGRATE_PARAM_*. Raises Unsupported."""
    found = {}
    for name, value in named.items():
        key = getattr(libvirt, f"VIR_MIGRATE_PARAM_{name}", _NEWER.get(name))
        if key is None:
            raise errors.Unsupported(f"this libvirt binding does not know the parameter {name}")
        found[key] = value
    return found


def perform(
    dom: libvirt.virDomain,
    job: Job,
    tell: Callable[[Progress, float, str | None], None],
) -> Progress:
    """Migrates and watches; returns the last Progress.

    tell: called with (Progress, elapsed seconds, text or None) at each look.
    Raises MigrationFailed with libvirt's words and, when we ended it, why; TargetRefused where
    nothing of the guest was seen to be sent, so that another host may take it.
    """
    if job.max_downtime:
        with contextlib.suppress(libvirt.libvirtError):
            dom.migrateSetMaxDowntime(job.max_downtime)
    call = _Call(dom, job)
    call.start()
    try:
        progress, ended = _watched(dom, job, call, tell)
    except BaseException:  # this process is to end: nobody decides while libvirt goes on
        _abandon(dom, call)
        raise
    if call.error is not None:
        if progress.paused:
            _resume(dom)
        raise _failure(call.error, ended, bool(progress.processed or progress.postcopy))
    return progress


def _abandon(dom: libvirt.virDomain, call: _Call) -> None:
    """Ends libvirt's part, and waits for its end. In post-copy it goes on."""
    with contextlib.suppress(libvirt.libvirtError):
        dom.abortJob()
    call.join(END_S)


def _watched(
    dom: libvirt.virDomain,
    job: Job,
    call: _Call,
    tell: Callable[[Progress, float, str | None], None],
) -> tuple[Progress, str | None]:
    """(the last Progress, why we ended it or None)."""
    started = time.monotonic()
    progress = Progress()
    ended: str | None = None
    while call.is_alive():
        call.join(LOOK_S)
        if not call.is_alive():
            break
        elapsed_s = time.monotonic() - started
        progress = advance(progress, statistics(dom), elapsed_s)
        if in_postcopy(dom):
            progress = replace(progress, postcopy=True)
        action = decide(progress, elapsed_s, job.policy)
        tell(progress, elapsed_s, action.reason or None)
        progress, ended = _act(dom, job, action, progress, ended)
    return progress, ended


def _resume(dom: libvirt.virDomain) -> None:
    """Lets a guest run on that we paused; not one that waits for the other host's word."""
    with contextlib.suppress(libvirt.libvirtError):
        if dom.state() == [libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_USER]:
            dom.resume()


def in_postcopy(dom: libvirt.virDomain) -> bool:
    """Whether the guest has begun to run on the target, whoever asked for that."""
    with contextlib.suppress(libvirt.libvirtError):  # it is gone from here: done
        return dom.state() == [libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_POSTCOPY]
    return False


def statistics(dom: libvirt.virDomain) -> dict[str, Any]:
    """libvirt's job statistics by name; empty when there are none at this moment."""
    try:
        return dom.jobStats()
    except libvirt.libvirtError:
        return {}


def completed(dom: libvirt.virDomain) -> dict[str, Any]:
    """Statistics of the finished migration, asked on the target's domain: a dict."""
    try:
        return dom.jobStats(libvirt.VIR_DOMAIN_JOB_STATS_COMPLETED)
    except libvirt.libvirtError:
        return {}


def _act(
    dom: libvirt.virDomain,
    job: Job,
    action: Action,
    progress: Progress,
    ended: str | None,
) -> tuple[Progress, str | None]:
    """(the Progress with what was done noted, why we ended it or None)."""
    try:
        if action.kind == ABORT and ended is None:
            dom.abortJob()
            return progress, action.reason
        if action.kind == DOWNTIME and action.value is not None:
            dom.migrateSetMaxDowntime(action.value)
            return replace(progress, steps=progress.steps + 1), ended
        if action.kind == POSTCOPY:
            dom.migrateStartPostCopy()
            return replace(progress, postcopy=True), ended
        if action.kind == PAUSE:
            job.pausing(journal.PAUSING)
            dom.suspend()
            job.pausing(journal.PAUSED)
            return replace(progress, paused=True), ended
    except libvirt.libvirtError:
        # the job has just ended, or is not yet where it can take this: the next look tells
        return progress, ended
    return progress, ended


def _failure(error: libvirt.libvirtError, ended: str | None, sent: bool) -> errors.MigrationFailed:
    words = str(translate(error))
    if _QEMUS_PORT.search(words):
        words += " (TCP ports 49152-49215 must be open between hypervisors)"
    if ended:
        return errors.MigrationFailed(f"aborted: {ended} ({words})")
    # somebody who ends the job wants no other host
    by_hand = error.get_error_code() == libvirt.VIR_ERR_OPERATION_ABORTED
    return errors.MigrationFailed(words) if sent or by_hand else errors.TargetRefused(words)
