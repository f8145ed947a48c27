"""Back up a guest: its host exports the disks, and the target's machine reads them."""

from __future__ import annotations

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from saltvirt import errors, names, settings, units
from saltvirt.backup.manager import target_upkeep
from saltvirt.backup.model import calls, chains, pages, policy, record
from saltvirt.backup.model.answers import (
    BackupPlan,
    BackupResult,
    GuestInspection,
    ListedBackup,
    Serving,
)
from saltvirt.backup.model.policy import BackupPolicy, TargetPolicy
from saltvirt.fleet.client import Fleet
from saltvirt.operations.cluster import find, inventory
from saltvirt.operations.core.operation import Checked, Reasons, Result
from saltvirt.operations.core.report import Report
from saltvirt.operations.guest import lifecycle
from saltvirt.operations.journal import lock, slots


@dataclass(frozen=True)
class _BackupJob:
    """A planned backup. host: the host of the guest. machine: the minion of the target."""

    host: str
    machine: str
    inspection: GuestInspection
    plan: BackupPlan

    @property
    def disks(self) -> dict[str, str]:
        """How each disk will be backed up."""
        methods = {
            disk_plan.target: f"changes since {disk_plan.parent}"
            if disk_plan.parent
            else f"full: {disk_plan.reason}"
            for disk_plan in self.plan.disks
        }
        return {
            **methods,
            **{disk: f"skipped: {reason}" for disk, reason in self.inspection.skipped.items()},
        }


@dataclass(frozen=True)
class _OtherTargets:
    """The checkpoints of a guest that backups at other targets use.

    needed: the checkpoints from which the next increments at these targets start. superseded: the
    checkpoints of their backups from which no increment starts. silent: the targets that did not
    answer.
    """

    needed: frozenset[str] = frozenset()
    superseded: frozenset[str] = frozenset()
    silent: tuple[str, ...] = ()


class CreateBackup:
    """Back up one guest.

    target_name: None: the only target. full: read all disks completely. requester: the user who
    requested the backup. host: the only host of the guest, even if other hosts do not answer.
    """

    def __init__(
        self,
        fleet: Fleet,
        name: str,
        target_name: str | None,
        report: Report,
        full: bool = False,
        requester: str = "root",
        host: str | None = None,
    ) -> None:
        self.fleet, self.name, self.target_name, self.report = fleet, str(name), target_name, report
        self.full, self.requester, self.host = bool(full), requester, host

    def check(self) -> Checked:
        """Return how each disk would be backed up."""
        reasons = Reasons()
        with reasons:
            target = self._policy().target(self.target_name)
            with reasons:
                lock.refuse_taken(self.fleet.opts, names.guest(self.name))
            job = self._prepare(target)
            reasons.raise_first()
            methods = [f"{disk}: {method}" for disk, method in job.disks.items()]
            comment = "; ".join(
                [f"would back up {self.name} on {job.host} to {target.name}", *methods]
            )
            details = {"host": job.host, "disks": job.disks}
            return Checked(self.name, comment, {"backup": job.plan.backup_id}, details)
        return reasons.checked(self.name)

    def run(self) -> Result:
        """Create the backup.

        Raises NotFound, InvalidInput, Refused, OperationFailed, ConnectionFailed.
        """
        name = names.guest(self.name)
        target = self._policy().target(self.target_name)
        with lock.guest(self.fleet.opts, name, "virt.backup"):
            try:
                return self._create(target)
            except errors.VirtError as exc:
                self.report.failed(exc)
                raise

    def _policy(self) -> BackupPolicy:
        return policy.read(settings.of_master(self.fleet.opts))

    def _prepare(self, target: TargetPolicy, reader: bool = False) -> _BackupJob:
        """Return the plan. reader: the machine of the target issues a one-time certificate."""
        host = lifecycle.host_for_write(self.fleet, self.name, self.host)
        machine = target.machine(host)
        inspection = calls.INSPECT_GUEST.ask(self.fleet, host, calls.InspectRequest(self.name))
        if not inspection.disks:
            reason = "; ".join(f"{disk}: {reason}" for disk, reason in inspection.skipped.items())
            raise errors.InvalidInput(
                f"{self.name} has no disk that can be backed up: {reason or 'it has no disks'}"
            )
        request = calls.PlanRequest(
            target.folder, host, inspection, full=self.full, chain=target.chain,
            mounted=target.mounted, key=target.key, reader=reader,
        )  # fmt: skip
        plan = calls.PLAN_BACKUP.ask(self.fleet, machine, request)
        if reader and not plan.reader:
            raise errors.BadAnswer(f"{machine}: no certificate of the reader in the answer")
        self._refuse_another(target, host, inspection, plan)
        return _BackupJob(host, machine, inspection, plan)

    def _refuse_another(
        self, target: TargetPolicy, host: str, inspection: GuestInspection, plan: BackupPlan
    ) -> None:
        """Raise Refused for the UUID of another guest.

        The host reports the UUID, and its report must not create the latest backup of another
        guest.
        """
        if plan.guest in (None, self.name):
            return
        claim = f"{host} reports the UUID {inspection.uuid} for {self.name}"
        hosts, silent = inventory.gather(self.fleet)
        for hypervisor in hosts:
            for guest in hypervisor.guests:
                if guest.uuid == inspection.uuid and hypervisor.name != host:
                    raise errors.Refused(
                        f"{claim}, and {hypervisor.name} reports it for {guest.name}"
                    )
        if silent and not self.host and plan.host not in (None, host):
            raise errors.Refused(
                f"{claim}; in the backups at {target.name} it belongs to {plan.guest} on "
                f"{plan.host}, and {', '.join(sorted(silent))} does not answer: if you know that "
                f"this is the same guest, add host={host}"
            )

    def _create(self, target: TargetPolicy) -> Result:
        job, waited = self._prepare(target, True), []

        def wait(reason: str) -> None:
            waited.append(reason)
            self.report.step("wait", f"{self.name}: waiting: {reason}")

        opts, per_host = self.fleet.opts, self._policy().at_once_per_host
        limits = {job.host: per_host}, {target.name: target.at_once}
        with slots.backing_up(opts, *limits, wait, f"the backup of {self.name}"):
            # the guest may have changed in the meantime
            return self._execute(target, self._prepare(target, True) if waited else job)

    def _execute(self, target: TargetPolicy, job: _BackupJob) -> Result:
        backup_id = job.plan.backup_id
        self.report.step(
            "begin",
            f"backing up {self.name} from {job.host} to {target.name}",
            backup=backup_id,
        )
        with ThreadPoolExecutor(1) as pool:
            query = pool.submit(self._query_others, target, job)
            try:
                serving, written = self._copy_disks(target, job)
                other_targets = query.result()
            except BaseException as exc:
                reason = self._end_export(job, False, ())
                if reason and isinstance(exc, errors.VirtError) and reason not in exc.text:
                    raise errors.OperationFailed(f"{exc.text}; on {job.host}: {reason}") from exc
                raise
        leftovers = self._prune_checkpoints(job, written, other_targets)
        return self._make_result(target, job, serving, written, leftovers)

    def _copy_disks(self, target: TargetPolicy, job: _BackupJob) -> tuple[Serving, BackupResult]:
        """Have the host export the disks and the target's machine read them."""
        request = calls.BeginRequest(
            self.name, job.plan.backup_id, job.plan.disks, job.plan.reader or ""
        )
        serving = calls.BEGIN_EXPORT.ask(self.fleet, job.host, request)
        if serving.uuid != job.inspection.uuid:
            raise errors.BadAnswer(f"{job.host} exports another guest than it inspected")
        return serving, self._pull(target, job, serving)

    def _pull(self, target: TargetPolicy, job: _BackupJob, serving: Serving) -> BackupResult:
        request = calls.PullRequest(
            target.folder, self.name, job.plan.backup_id, job.host, serving,
            requester=self.requester, mounted=target.mounted,
            bandwidth=target.bandwidth_mib_s, key=target.key, reader=job.plan.reader,
            compress=target.compress,
        )  # fmt: skip
        watch = (f"salt/virt/backup/{self.name}/", self._watch)
        return calls.PULL_BACKUP.ask(self.fleet, job.machine, request, watch=watch)

    def _watch(self, _tag: str, event: dict[str, Any]) -> None:
        if event.get("percent") is not None:
            self.report.progress(event["percent"], f"{self.name}: {event['percent']} % read")

    def _query_others(self, target: TargetPolicy, job: _BackupJob) -> _OtherTargets:
        """Ask the other targets which checkpoints of the guest they use. Runs in a thread."""
        targets = [
            candidate
            for candidate in self._policy().targets.values()
            if candidate.name != target.name
        ]
        if not targets:
            return _OtherTargets()
        with Fleet(self.fleet.opts, like=self.fleet) as fleet:
            return self._other_targets(fleet, targets, job)

    def _other_targets(
        self, fleet: Fleet, other_targets: list[TargetPolicy], job: _BackupJob
    ) -> _OtherTargets:
        machines: dict[str, list[TargetPolicy]] = {}
        for target in other_targets:
            machines.setdefault(target.machine(job.host), []).append(target)
        needed, superseded, silent = set(), set(), []
        for machine, targets in machines.items():  # one job for all targets of a machine
            # mounted: an empty mount point would look like a target that needs no checkpoint
            requests = [
                calls.PlanRequest(member.folder, job.host, job.inspection, mounted=member.mounted)
                for member in targets
            ]
            try:
                plans = calls.PLAN_BACKUP.each(fleet, machine, requests)
            except errors.VirtError:
                silent += [member.name for member in targets]
                continue
            for target, plan in zip(targets, plans, strict=True):
                if not plan.ok:
                    silent.append(target.name)
                else:
                    needed |= {*plan.get().needed}
                    superseded |= {*plan.get().superseded}
        return _OtherTargets(frozenset(needed), frozenset(superseded), tuple(silent))

    def _end_export(self, job: _BackupJob, good: bool, needed: tuple[str, ...]) -> str | None:
        """Have the host end the export. Return why it had ended before, or could not be ended."""
        request = calls.EndExportRequest(self.name, job.plan.backup_id, good, needed)
        try:
            return calls.END_EXPORT.ask(self.fleet, job.host, request).reason
        except errors.VirtError as exc:
            return exc.text

    def _prune_checkpoints(
        self, job: _BackupJob, written: BackupResult, other_targets: _OtherTargets
    ) -> tuple[str, ...]:
        """Remove checkpoints after a good backup. Return what could not be removed.

        Only checkpoints that a target of this master created are removed: others may belong to
        another master, or to a target that does not answer.
        """
        own_checkpoints = {chains.checkpoint(job.plan.backup_id), *written.checkpoints}
        obsolete = {
            *job.plan.needed,
            *job.plan.superseded,
            *other_targets.superseded,
        } - other_targets.needed
        unknown = {*job.inspection.checkpoints} - obsolete - other_targets.needed
        now = record.format_time(time.time())
        removable = obsolete | (set() if other_targets.silent else chains.abandoned(unknown, now))
        needed = tuple(sorted({*job.inspection.checkpoints} - removable | own_checkpoints))
        request = calls.EndExportRequest(self.name, job.plan.backup_id, True, needed)
        leftovers = tuple(
            f"retained the checkpoints of the backups at {target_name}, which does not answer"
            for target_name in other_targets.silent
        )
        with contextlib.suppress(errors.VirtError):
            return (*leftovers, *calls.END_EXPORT.ask(self.fleet, job.host, request).leftovers)
        return (*leftovers, f"{job.host} may still export the disks: end that with virt.backup_end")

    def _make_result(
        self,
        target: TargetPolicy,
        job: _BackupJob,
        serving: Serving,
        written: BackupResult,
        leftovers: tuple[str, ...],
    ) -> Result:
        moved_size = units.human_bytes(written.moved_bytes)
        method = serving.consistency + (f" ({serving.note})" if serving.note else "")
        comment = (
            f"backed up {self.name} to {target.name}: {written.backup_id}, {moved_size} read, "
        )
        comment += method
        self.report.done(comment, backup=written.backup_id)
        disks = {
            disk.target: f"changes since {disk.parent}" if disk.parent else f"full: {disk.reason}"
            for disk in serving.disks
        }
        details: dict[str, Any] = {
            "host": job.host, "target": target.name, "consistency": serving.consistency,
            "disks": disks, "moved_bytes": written.moved_bytes,
            "stored_bytes": written.stored_bytes,
        }  # fmt: skip
        if serving.skipped:
            details["skipped"] = serving.skipped
        if leftovers:
            details["left"] = list(leftovers)
        return Result(self.name, comment, {"backup": written.backup_id}, details)


def list_all(
    fleet: Fleet, name: str | None = None, target_name: str | None = None
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, str]]:
    """Return the backups at each target, and the error of each target that did not answer.

    name: of one guest; None: of all. target_name: at one target; None: at all. Raises InvalidInput;
    NotFound, also if neither a target nor a host knows the guest.
    """
    backups: dict[str, list[dict[str, Any]]] = {}
    silent: dict[str, str] = {}
    uuid = None if name is None else uuid_of(fleet, name)
    for target in target_upkeep.select_targets(fleet, target_name):
        try:
            several = list_at(fleet, target, name, uuid)
        except errors.VirtError as exc:
            silent[target.name] = exc.text
        else:
            backups[target.name] = [backup.to_answer() for backup in several]
    if name is not None and not (uuid or silent or any(backups.values())):
        _refuse_unknown(fleet, name)
    return backups, silent


def _refuse_unknown(fleet: Fleet, name: str) -> None:
    """Raise NotFound if no host has the guest, nor one that does not answer may have it."""
    locations = find.locations(fleet)
    may_exist = locations.unreachable or locations.unknown
    if name not in locations.guests and not may_exist:
        raise errors.NotFound(f"no target has a backup of {name}, and no host has such a guest")


def uuid_of(fleet: Fleet, name: str) -> str | None:
    """Return the UUID of the guest that has the name now; its backups may have another one.

    Returns None if no host, or several hosts, report such a guest.
    """
    hosts, _ = inventory.gather(fleet)
    uuids = {guest.uuid for host in hosts for guest in host.guests if guest.name == name}
    return uuids.pop() if len(uuids) == 1 else None


def list_at(
    fleet: Fleet,
    target: TargetPolicy,
    name: str | None = None,
    uuid: str | None = None,
    newest: bool = False,
) -> list[ListedBackup]:
    """Return the backups at a target: all, or those of one guest by its name and UUID.

    newest: only the last backup of each guest, and its last good one. Raises as Fleet.call does.
    """
    machine = target_upkeep.target_host(fleet, target)
    request = calls.ListRequest(target.folder, uuid, name, newest, mounted=target.mounted)
    backups: list[ListedBackup] = []
    while True:
        page = calls.LIST_BACKUPS.ask(fleet, machine, request)
        last = (backups[-1].uuid or "", backups[-1].backup_id) if backups else ("", "")
        if any((entry.uuid or "", entry.backup_id) <= last for entry in page) and backups:
            raise errors.BadAnswer(f"{machine}: the answers to virt.backup_list are not ordered")
        backups += page
        if not page or pages.is_last([entry.to_answer() for entry in page]):
            return backups
        request = replace(request, after=f"{page[-1].uuid}/{page[-1].backup_id}")
