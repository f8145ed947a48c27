"""Complete or resume live restores: guests that run from a backup while it is being copied.

The targets record which guest runs from which backup. What a hypervisor reports about its own guest
decides about that guest only.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from saltvirt import errors, names
from saltvirt.backup.manager import target_upkeep
from saltvirt.backup.model import calls
from saltvirt.backup.model.pins import (
    COMPLETE,
    DISCONNECTED,
    MISSING,
    OFF,
    BackupPin,
    LiveRestoreStatus,
)
from saltvirt.backup.model.policy import TargetPolicy
from saltvirt.fleet.client import Fleet
from saltvirt.operations.core.operation import Checked, Result, Several, failure
from saltvirt.operations.core.report import Report
from saltvirt.operations.journal import lock

_POLL_S = 2
# how often an interrupted restore is resumed while the runner waits for it
_RECONNECT_S = 30
VERB = "virt.backup_instant"


@dataclass(frozen=True)
class RunningRestore:
    """A guest that runs from a backup.

    uuid: the UUID of the guest that was backed up. pin: the guest that runs from it, and its host.
    """

    target: TargetPolicy
    uuid: str
    backup_id: str
    pin: BackupPin


def read_status(fleet: Fleet, restore: RunningRestore) -> LiveRestoreStatus:
    """Return the status of the restore on the guest's host.

    A guest that runs from another backup no longer needs this one.
    """
    host = restore.pin.host
    fleet.hosts(host)  # the name comes from the target
    request = calls.LiveRestoreRequest(restore.pin.guest)
    status = calls.LIVE_RESTORE_STATUS.ask(fleet, host, request)
    if status.state not in (MISSING, COMPLETE) and status.backup_id not in (
        None,
        restore.backup_id,
    ):
        return LiveRestoreStatus(COMPLETE, restore.backup_id, 100)
    return status


def release_if_done(fleet: Fleet, restore: RunningRestore) -> LiveRestoreStatus:
    """Unpin the backup if the guest no longer needs it, and return the status of the restore.

    The caller holds the guest's lock: a guest that is being created does not exist yet.
    """
    status = read_status(fleet, restore)
    if status.state in (MISSING, COMPLETE):
        machine, target = target_upkeep.target_host(fleet, restore.target), restore.target
        request = calls.UnpinRequest(
            target.folder, restore.uuid, restore.backup_id, restore.pin.guest, restore.pin.host,
            mounted=target.mounted,
        )  # fmt: skip
        calls.UNPIN.ask(fleet, machine, request)
    return status


class FinishLiveRestore:
    """Resume live restores, and wait for the one of a single guest.

    name: the guest; None: all guests, without waiting. timeout_s: the maximum time to wait.
    """

    def __init__(
        self,
        fleet: Fleet,
        name: str | None,
        report: Report,
        timeout_s: float,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.fleet, self.name, self.report = fleet, name, report
        self.timeout_s, self._sleep = timeout_s, sleep

    def check(self) -> Several:
        """Return the progress of each restore. Changes nothing."""
        return self._each(self._preview)

    def run(self) -> Several:
        """Raises InvalidInput, NotFound, and for a single guest the errors of its host."""
        return self._each(self._wait if self.name else self._advance)

    def _each(self, operate: Callable[[RunningRestore], Result]) -> Several:
        if self.name is not None:
            names.existing_guest(self.name)
        restores, silent = self._find_restores()
        if self.name and not restores and not silent:
            text = f"{self.name} does not run from a backup"
            return Several((Result(self.name, text),))
        parts, counted = [], Counter(restore.pin.guest for restore in restores)
        for restore in restores:
            try:
                result = operate(restore)
            except Exception as exc:
                text = failure(exc, f"the live restore of {restore.pin.guest}")
                result = Result(restore.pin.guest, text, complete=False)
            if counted[result.subject] > 1:
                result = replace(
                    result, subject=f"{result.subject} on {restore.pin.host}, {restore.backup_id}"
                )
            parts.append(result)
        if not parts and not silent:
            return Several((Result("all", "no guest runs from a backup"),))
        return Several((*parts, *silent))

    def _find_restores(self) -> tuple[list[RunningRestore], tuple[Result, ...]]:
        """Return the running restores, and a result for each target that did not answer."""
        restores: list[RunningRestore] = []
        silent = []
        for target in target_upkeep.select_targets(self.fleet, None):
            request = calls.TargetRef(target.folder, mounted=target.mounted)
            try:
                machine = target_upkeep.target_host(self.fleet, target)
                restores += [
                    RunningRestore(target, pinned.uuid, pinned.backup_id, pinned.pin)
                    for pinned in calls.LIST_PINS.ask(self.fleet, machine, request)
                    if self.name in (None, pinned.pin.guest)
                ]
            except errors.VirtError as exc:
                text = f"cannot list the guests that run from its backups: {exc.text}"
                silent.append(Result(target.name, text, complete=False))
        return restores, tuple(silent)

    def _preview(self, restore: RunningRestore) -> Result:
        status = read_status(self.fleet, restore)
        is_done = status.state in (MISSING, COMPLETE)
        changes = {"released": restore.backup_id} if is_done else {}
        nothing = not is_done and status.state != DISCONNECTED
        details = _details(restore, status)
        return Checked(
            restore.pin.guest, _describe(restore, status), changes, details, nothing=nothing
        )

    def _advance(self, restore: RunningRestore) -> Result:
        """Resume a restore if necessary, without waiting for it."""
        return self._result(restore, self._resume(restore))

    def _resume(self, restore: RunningRestore) -> LiveRestoreStatus:
        with lock.guest(self.fleet.opts, restore.pin.guest, VERB):
            status = release_if_done(self.fleet, restore)
            # without a reason the restore continues by itself
            if status.state in (DISCONNECTED, OFF) and status.reason:
                status = self._reconnect(restore)
        return status

    def _wait(self, restore: RunningRestore) -> Result:
        end_s, next_s = time.monotonic() + self.timeout_s, 0.0
        while True:
            status = read_status(self.fleet, restore)
            if status.state in (MISSING, COMPLETE):
                return self._advance(restore)
            if status.reason and time.monotonic() > next_s:
                next_s = time.monotonic() + _RECONNECT_S
                status = self._resume(restore)
            self.report.progress(status.percent, _describe(restore, status))
            if status.state == OFF or time.monotonic() > end_s:
                return self._result(restore, status)
            self._sleep(_POLL_S)

    def _reconnect(self, restore: RunningRestore) -> LiveRestoreStatus:
        """Have the target export the backup again, for the guest's host only."""
        host, name = restore.pin.host, restore.pin.guest
        machine = target_upkeep.target_host(self.fleet, restore.target)
        self.report.step(
            "reconnect", f"{name}: {machine} exports {restore.backup_id} to {host} again"
        )
        reader = calls.ISSUE_READER.ask(self.fleet, host, calls.ReaderRequest(once=True))
        show_request = calls.ShowBackupRequest(
            restore.target.folder, restore.uuid, restore.backup_id, reader.authority,
            mounted=restore.target.mounted, pin=restore.pin,
        )  # fmt: skip
        backup = calls.SHOW_BACKUP.ask(self.fleet, machine, show_request)
        bandwidth = restore.target.bandwidth_mib_s
        request = calls.ResumeRequest(name, backup, reader.authority, bandwidth)
        return calls.RESUME_LIVE_RESTORE.ask(self.fleet, host, request)

    def _result(self, restore: RunningRestore, status: LiveRestoreStatus) -> Result:
        text, is_done = _describe(restore, status), status.state in (MISSING, COMPLETE)
        if is_done:
            self.report.done(text, host=restore.pin.host)
        elif status.state == DISCONNECTED:
            self.report.step("disconnected", text, host=restore.pin.host)
        changes = {"released": restore.backup_id} if is_done else {}
        well = is_done if self.name and self.timeout_s else status.state != DISCONNECTED
        return Result(restore.pin.guest, text, changes, _details(restore, status), well)


def _details(restore: RunningRestore, status: LiveRestoreStatus) -> dict[str, Any]:
    return {
        "host": restore.pin.host, "target": restore.target.name, "backup": restore.backup_id,
        "state": status.state, "percent": status.percent, "disks": status.disks,
    }  # fmt: skip


def _describe(restore: RunningRestore, status: LiveRestoreStatus) -> str:
    name, host = restore.pin.guest, restore.pin.host
    if status.state == MISSING:
        return f"{name} is no longer on {host}: it does not need {restore.backup_id}"
    if status.state == COMPLETE:
        return f"{name} on {host} is completely restored and no longer needs {restore.backup_id}"
    progress = f"{status.percent} % of {name} is restored to {host} from {restore.backup_id}"
    if status.state == OFF:
        note = f" ({status.reason})" if status.reason else ""
        return f"{name} is off{note}; {progress}: virt.start {name} continues the restore"
    if status.state == DISCONNECTED:
        paused = ", and the guest is paused at an unreadable block" if status.paused else ""
        return f"{name} has lost the connection to its backup: {status.reason}{paused}; {progress}"
    return progress
