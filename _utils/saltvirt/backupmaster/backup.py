"""A guest's backup: its host shows the disks, the target's machine reads them."""

from __future__ import annotations

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from saltvirt import errors, names, settings, units
from saltvirt.backupmaster import keep
from saltvirt.backups import chains, pages, policy, record
from saltvirt.backups.answers import (
    BackupMade,
    BackupPlan,
    GuestLook,
    ListedBackup,
    Serving,
    ServingEnded,
)
from saltvirt.backups.policy import BackupPolicy, TargetPolicy
from saltvirt.fleet.client import Fleet
from saltvirt.operations import inventory, lifecycle, lock, slots
from saltvirt.operations.operation import Checked, Reasons, Result
from saltvirt.operations.report import Report


@dataclass(frozen=True)
class _Planned:
    """host: where the guest is. machine: where the target is."""

    host: str
    machine: str
    look: GuestLook
    plan: BackupPlan

    @property
    def disks(self) -> dict[str, str]:
        """Disk to how it is to be taken, in words."""
        found = {
            one.target: f"what changed since {one.parent}" if one.parent else f"whole: {one.reason}"
            for one in self.plan.disks
        }
        return {**found, **{disk: f"not: {why}" for disk, why in self.look.skipped.items()}}


@dataclass(frozen=True)
class _Elsewhere:
    """Of other targets. needed: the checkpoints from which the next increments there begin.
    superseded: those of their backups from which none does. silent: the targets that do not say."""

    needed: frozenset[str] = frozenset()
    superseded: frozenset[str] = frozenset()
    silent: tuple[str, ...] = ()


class Backup:
    """Makes one. to: the name of a target; None: the only one. whole: all disks are read whole.
    by: who asked for it. host: where the guest is and nowhere else, though not every host
    answers."""

    def __init__(
        self,
        fleet: Fleet,
        name: str,
        to: str | None,
        report: Report,
        whole: bool = False,
        by: str = "root",
        host: str | None = None,
    ) -> None:
        self.fleet, self.name, self.to, self.report = fleet, str(name), to, report
        self.whole, self.by, self.host = bool(whole), by, host

    def check(self) -> Checked:
        """How each disk would be taken."""
        reasons = Reasons()
        with reasons:
            target = self._policy().target(self.to)
            with reasons:
                lock.refuse_taken(self.fleet.opts, names.guest(self.name))
            found = self._planned(target)
            reasons.hold()
            comment = f"{self.name} on {found.host} would be backed up to {target.name}"
            more = {"host": found.host, "disks": found.disks}
            return Checked(self.name, comment, {"backup": found.plan.ident}, more)
        return reasons.checked(self.name)

    def run(self) -> Result:
        """Raises NotFound, InvalidInput, Refused, OperationFailed, ConnectionFailed."""
        name = names.guest(self.name)
        target = self._policy().target(self.to)
        with lock.guest(self.fleet.opts, name, "virt.backup"):
            try:
                return self._made(target)
            except errors.VirtError as exc:
                self.report.failed(exc)
                raise

    def _policy(self) -> BackupPolicy:
        return policy.read(settings.of_master(self.fleet.opts))

    def _planned(self, target: TargetPolicy, reader: bool = False) -> _Planned:
        """reader: the machine of the target also says by which certificate it reads."""
        host = lifecycle.writes(self.fleet, self.name, self.host)
        machine = target.machine(host)
        said = self.fleet.one(host, "virt.backup_look", {"name": self.name})
        look = GuestLook.from_answer(said, host)
        if not look.disks:
            why = "; ".join(f"{disk}: {why}" for disk, why in look.skipped.items())
            raise errors.InvalidInput(f"{self.name} has no disk to back up: {why or 'none at all'}")
        asked = {"folder": target.folder, "host": host, "look": said,
                 "whole": self.whole, "chain": target.chain, "mounted": target.mounted,
                 "key": target.key, "reader": reader}  # fmt: skip
        plan = BackupPlan.from_answer(self.fleet.one(machine, "virt.backup_plan", asked), machine)
        if reader and not plan.reader:
            raise errors.BadAnswer(f"{machine}: it does not say by what it reads")
        self._refuse_another(target, host, look, plan)
        return _Planned(host, machine, look, plan)

    def _refuse_another(
        self, target: TargetPolicy, host: str, look: GuestLook, plan: BackupPlan
    ) -> None:
        """Raises Refused for a UUID that is another guest's: its host says which one it is, and
        what it says must not become the latest backup of the other one."""
        if plan.guest in (None, self.name):
            return
        says = f"{host} says that {self.name} has the UUID {look.uuid}"
        hosts, silent = inventory.gather(self.fleet)
        for there in hosts:
            for guest in there.guests:
                if guest.uuid == look.uuid and there.name != host:
                    raise errors.Refused(f"{says}, and so does {there.name} of {guest.name}")
        if silent and not self.host and plan.host not in (None, host):
            raise errors.Refused(
                f"{says}; that was {plan.guest}'s on {plan.host} by the backups at {target.name}, "
                f"and {', '.join(sorted(silent))} does not answer: where you know that it is the "
                f"same guest, give host={host}"
            )

    def _made(self, target: TargetPolicy) -> Result:
        found, waited = self._planned(target, True), []

        def wait(why: str) -> None:
            waited.append(why)
            self.report.step("wait", f"{self.name}: waiting: {why}")

        opts, per_host = self.fleet.opts, self._policy().at_once_per_host
        limits = {found.host: per_host}, {target.name: target.at_once}
        with slots.backing_up(opts, *limits, wait, f"the backup of {self.name}"):
            # meanwhile much may have changed
            return self._begun(target, self._planned(target, True) if waited else found)

    def _begun(self, target: TargetPolicy, found: _Planned) -> Result:
        ident = found.plan.ident
        self.report.step(
            "begin", f"{self.name}: backing it up from {found.host} to {target.name}", backup=ident
        )
        with ThreadPoolExecutor(1) as pool:
            others = pool.submit(self._elsewhere, target, found)
            try:
                serving, made = self._read(target, found)
                kept = others.result()
            except BaseException as exc:
                why = self._ended(found, False, ())
                if why and isinstance(exc, errors.VirtError) and why not in exc.text:
                    raise errors.OperationFailed(f"{exc.text}; on {found.host}: {why}") from exc
                raise
        left = self._settled(found, made, kept)
        return self._done(target, found, serving, made, left)

    def _read(self, target: TargetPolicy, found: _Planned) -> tuple[Serving, BackupMade]:
        """The host shows the disks, and the target's machine reads them."""
        asked = {
            "name": self.name, "ident": found.plan.ident, "reader": found.plan.reader,
            "disks": [one.to_answer() for one in found.plan.disks],
        }  # fmt: skip
        said = self.fleet.one(found.host, "virt.backup_begin", asked, long=True)
        serving = Serving.from_answer(said, found.host)
        if serving.uuid != found.look.uuid:
            raise errors.BadAnswer(f"{found.host} shows another guest than it told of")
        return serving, self._pulled(target, found, said)

    def _pulled(self, target: TargetPolicy, found: _Planned, serving: Any) -> BackupMade:
        asked = {
            "folder": target.folder, "mounted": target.mounted, "name": self.name,
            "ident": found.plan.ident,
            "host": found.host, "serving": serving, "by": self.by,
            "bandwidth": target.bandwidth_mib_s, "key": target.key,
            "reader": found.plan.reader, "compress": target.compress,
        }  # fmt: skip
        watch = (f"salt/virt/backup/{self.name}/", self._watch)
        said = self.fleet.one(found.machine, "virt.backup_pull", asked, long=True, watch=watch)
        return BackupMade.from_answer(said, found.machine)

    def _watch(self, _tag: str, event: dict[str, Any]) -> None:
        if event.get("percent") is not None:
            self.report.progress(event["percent"], f"{self.name}: {event['percent']} % is read")

    def _elsewhere(self, target: TargetPolicy, found: _Planned) -> _Elsewhere:
        """What the other targets say of the guest's checkpoints. In a thread of its own."""
        others = [one for one in self._policy().targets.values() if one.name != target.name]
        if not others:
            return _Elsewhere()
        with Fleet(self.fleet.opts, like=self.fleet) as fleet:
            return self._asked_elsewhere(fleet, others, found)

    def _asked_elsewhere(
        self, fleet: Fleet, others: list[TargetPolicy], found: _Planned
    ) -> _Elsewhere:
        about = {"host": found.host, "look": found.look.to_answer()}
        machines: dict[str, list[TargetPolicy]] = {}
        for other in others:
            machines.setdefault(other.machine(found.host), []).append(other)
        needed, superseded, silent = set(), set(), []
        for machine, targets in machines.items():  # one job for all targets that it has
            # below the mount point of one that is missing is a target that needs nothing
            calls = [{"folder": one.folder, "mounted": one.mounted, **about} for one in targets]
            try:
                answers = fleet.each(machine, "virt.backup_plan", calls)
            except errors.VirtError:
                silent += [one.name for one in targets]
                continue
            for other, said in zip(targets, answers, strict=True):
                try:
                    plan = BackupPlan.from_answer(said.get(), machine)
                except errors.VirtError:
                    silent.append(other.name)
                else:
                    needed |= {*plan.needed}
                    superseded |= {*plan.superseded}
        return _Elsewhere(frozenset(needed), frozenset(superseded), tuple(silent))

    def _ended(self, found: _Planned, good: bool, needed: tuple[str, ...]) -> str | None:
        """Has the host end it; why it had ended by itself before, or could not."""
        asked = {"name": self.name, "ident": found.plan.ident, "good": good, "needed": needed}
        try:
            said = self.fleet.one(found.host, "virt.backup_end", asked, long=True)
            return ServingEnded.from_answer(said, found.host).why
        except errors.VirtError as exc:
            return exc.text

    def _settled(self, found: _Planned, made: BackupMade, others: _Elsewhere) -> tuple[str, ...]:
        """What is left on the host after a backup that is good. Only checkpoints go that a target
        here has made: others are those of another master, or of a target that is silent."""
        mine = {chains.checkpoint(found.plan.ident), *made.checkpoints}
        known = {*found.plan.needed, *found.plan.superseded, *others.superseded} - others.needed
        unknown = {*found.look.checkpoints} - known - others.needed
        now = record.written_at(time.time())
        gone = known | (set() if others.silent else chains.abandoned(unknown, now))
        needed = sorted({*found.look.checkpoints} - gone | mine)
        asked = {"name": self.name, "ident": found.plan.ident, "good": True, "needed": needed}
        left = tuple(
            f"the checkpoints of the backups at {one} stay: it does not answer"
            for one in others.silent
        )
        with contextlib.suppress(errors.VirtError):
            said = self.fleet.one(found.host, "virt.backup_end", asked, long=True)
            return (*left, *ServingEnded.from_answer(said, found.host).left)
        return (*left, f"what {found.host} showed may be left there: virt.backup_end ends it")

    def _done(
        self,
        target: TargetPolicy,
        found: _Planned,
        serving: Serving,
        made: BackupMade,
        left: tuple[str, ...],
    ) -> Result:
        moved = units.human_bytes(made.moved_bytes)
        how = serving.consistency + (f" ({serving.note})" if serving.note else "")
        comment = f"{self.name} was backed up to {target.name}: {made.ident}, {moved} read, {how}"
        self.report.done(comment, backup=made.ident)
        disks = {
            one.target: f"what changed since {one.parent}" if one.parent else f"whole: {one.reason}"
            for one in serving.disks
        }
        more: dict[str, Any] = {
            "host": found.host, "target": target.name, "consistency": serving.consistency,
            "disks": disks, "moved_bytes": made.moved_bytes, "stored_bytes": made.stored_bytes,
        }  # fmt: skip
        if serving.skipped:
            more["skipped"] = serving.skipped
        if left:
            more["left"] = list(left)
        return Result(self.name, comment, {"backup": made.ident}, more)


def listed(
    fleet: Fleet, name: str | None = None, to: str | None = None
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, str]]:
    """(target to its backups, of one guest or of all; target to why it did not say). to: of that
    target alone. Raises InvalidInput, NotFound."""
    found: dict[str, list[dict[str, Any]]] = {}
    silent: dict[str, str] = {}
    uuid = None if name is None else uuid_of(fleet, name)
    for target in keep.chosen(fleet, to):
        try:
            several = at(fleet, target, name, uuid)
        except errors.VirtError as exc:
            silent[target.name] = exc.text
        else:
            found[target.name] = [one.to_answer() for one in several]
    return found, silent


def uuid_of(fleet: Fleet, name: str) -> str | None:
    """The UUID of the guest that has the name now: its backups may have another one. None where
    no host that answers has one, or several have."""
    hosts, _ = inventory.gather(fleet)
    found = {one.uuid for host in hosts for one in host.guests if one.name == name}
    return found.pop() if len(found) == 1 else None


def at(
    fleet: Fleet,
    target: TargetPolicy,
    name: str | None = None,
    uuid: str | None = None,
    newest: bool = False,
) -> list[ListedBackup]:
    """What is at a target: all, or of one guest by its name and UUID. newest: of each guest the
    last one, and the last good one. Raises as Fleet.one does."""
    machine = keep.machine(fleet, target)
    asked: dict[str, Any] = {"folder": target.folder, "mounted": target.mounted}
    given = {"name": name, "uuid": uuid, "newest": newest or None}
    asked |= {key: value for key, value in given.items() if value is not None}
    found: list[ListedBackup] = []
    while True:
        said = fleet.one(machine, "virt.backup_list", asked, long=False)
        if not isinstance(said, list):
            raise errors.BadAnswer(f"{machine}: its answer to virt.backup_list is no list")
        more = [ListedBackup.from_answer(one, machine) for one in said]
        last = (found[-1].uuid or "", found[-1].ident) if found else ("", "")
        if any((one.uuid or "", one.ident) <= last for one in more) and found:
            raise errors.BadAnswer(f"{machine}: its answers to virt.backup_list have no order")
        found += more
        if not more or pages.is_last(said):
            return found
        asked["after"] = f"{more[-1].uuid}/{more[-1].ident}"
