"""A guest is made again from a backup: the target's machine shows it to one hypervisor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from saltvirt import errors, names, settings
from saltvirt.answers.made import Made
from saltvirt.backupmaster import backup as backing_up
from saltvirt.backupmaster import keep
from saltvirt.backups import ident, policy
from saltvirt.backups.answers import ListedBackup, ShownBackup
from saltvirt.fleet.client import Fleet
from saltvirt.operations import find, lock, unique
from saltvirt.operations.operation import Checked, Reasons, Result
from saltvirt.operations.report import Report
from saltvirt.placement import account
from saltvirt.placement import policy as placement


@dataclass(frozen=True)
class RestoreRequest:
    """name: of the guest that was backed up. backup: its name, its number, or ``latest``. to: the
    target that has it; None: the default. new: how the restored guest is to be called, None as the
    old one, which is nowhere any more. host: where it is to be; None: where it was. overcommit:
    also where that has no room. name_is_free: the operator knows that no silent host has a guest of
    the name."""

    name: str
    backup: str = ident.LATEST
    to: str | None = None
    new: str | None = None
    host: str | None = None
    overcommit: bool = False
    name_is_free: bool = False

    @property
    def made(self) -> str:
        """How the restored guest is called."""
        return self.new or self.name


@dataclass(frozen=True)
class _Planned:
    """machine: of the target. host: where the guest is made."""

    target: policy.TargetPolicy
    machine: str
    backup: ListedBackup
    host: str


class Restore:
    """Makes it. It is defined and off."""

    def __init__(self, fleet: Fleet, request: RestoreRequest, report: Report) -> None:
        self.fleet, self.request, self.report = fleet, request, report

    def check(self) -> Checked:
        """Where it would be made of which backup, or everything that is in the way."""
        reasons, name = Reasons(), self.request.made
        with reasons:
            with reasons:
                lock.refuse_taken(self.fleet.opts, names.guest(name))
            with reasons:
                self._is_free()
            found = self._planned()
            reasons.hold()
            comment = f"{name} would be made on {found.host} from {found.backup.ident}"
            more = {"host": found.host, "target": found.target.name}
            return Checked(name, comment, {"backup": found.backup.ident}, more)
        return reasons.checked(name)

    def run(self) -> Result:
        """Raises NotFound, InvalidInput, AlreadyExists, Refused, OperationFailed."""
        name = names.guest(self.request.made)
        with lock.guest(self.fleet.opts, name, "virt.backup_restore"):
            try:
                self._is_free()
                return self._made(self._planned())
            except errors.VirtError as exc:
                self.report.failed(exc)
                raise

    def _is_free(self) -> None:
        name = names.guest(self.request.made)
        there = find.locations(self.fleet)
        hosts = ", ".join(sorted(there.guests.get(name, {})))
        if hosts:
            raise errors.AlreadyExists(
                f"{name} is there, on {hosts}: new=NAME restores beside it under another name"
            )
        unique.check(self.fleet, name, there.unreachable, sure=self.request.name_is_free)

    def _planned(self) -> _Planned:
        asked = self.request
        target = policy.read(settings.of_master(self.fleet.opts)).target(asked.to)
        several = backing_up.at(self.fleet, target)
        mine = {one.ident: one for one in several if asked.name in (one.guest, one.uuid)}
        if len({one.uuid for one in mine.values()}) > 1:
            known = ", ".join(sorted({str(one.uuid) for one in mine.values()}))
            raise errors.InvalidInput(
                f"several guests were called {asked.name}: give new=NAME and one of {known} for it"
            )
        found = mine[ident.find(mine, asked.backup)]
        if found.wrong:
            raise errors.Refused(f"the backup {found.ident} is not good: {found.wrong}")
        host = asked.host or found.host
        self.fleet.hosts(host)
        return _Planned(target, keep.machine(self.fleet, target), found, str(host))

    def _made(self, found: _Planned) -> Result:
        name, of = self.request.made, found.backup
        text = f"{name}: making it on {found.host} from {of.ident}"
        self.report.step("restore", text, backup=of.ident, host=found.host)
        asked = {
            "folder": found.target.folder, "mounted": found.target.mounted, "uuid": of.uuid,
            "backup": of.ident, "reader": found.host,
        }  # fmt: skip
        said = self.fleet.one(found.machine, "virt.backup_show", asked)
        ShownBackup.from_answer(said, found.machine)
        terms = account.terms(None, placement.of_master(self.fleet.opts))
        wanted: dict[str, Any] = {
            "name": name, "shown": said, "itself": self.request.new is None,
            "overcommit": self.request.overcommit, "placement": terms.to_answer(),
        }  # fmt: skip
        watch = (f"salt/virt/{name}/backup_restore/", self.report.host_says)
        answer = self.fleet.one(found.host, "virt.backup_restore", wanted, long=True, watch=watch)
        made = Made.from_answer(answer, found.host)
        if made.name != name:
            raise errors.BadAnswer(f"{found.host} answers for {made.name}, asked was {name}")
        comment = f"{name} was made on {found.host} from {of.ident}; it is off"
        self.report.step("done", comment, backup=of.ident, host=found.host)
        more = {"host": found.host, "uuid": made.uuid, "target": found.target.name}
        return Result(name, comment, {"backup": of.ident}, more)
