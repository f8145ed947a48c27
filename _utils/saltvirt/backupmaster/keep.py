"""What targets keep: removed by their rules, read back. Each target is asked by itself, and one
that does not answer hinders no other."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from saltvirt import settings, units
from saltvirt.backups import policy
from saltvirt.backups.kept import AllReadBack, Kept, KeptGuest, ReadBack
from saltvirt.backups.policy import TargetPolicy
from saltvirt.fleet.client import Fleet
from saltvirt.operations.operation import Checked, Result, Several, failure
from saltvirt.operations.report import Report

_OfTarget = Callable[[TargetPolicy], Result]


def chosen(fleet: Fleet, to: str | None) -> list[TargetPolicy]:
    """The target of that name, or all of them. Raises InvalidInput, NotFound."""
    known = policy.read(settings.of_master(fleet.opts))
    if to is not None or not known.targets:
        return [known.target(to)]
    return list(known.targets.values())


def machine(fleet: Fleet, target: TargetPolicy) -> str:
    """Who is asked what a target keeps: of one that all hypervisors mount, the first of them that
    is there. Raises NotFound."""
    if target.host:
        return target.host
    hosts = fleet.hosts()
    seen = fleet.seen(hosts)
    return next((one for one in hosts if one in seen), hosts[0])


class Prune:
    """Removes what no rule of a target keeps. name: of one guest; None: of all. to: the target;
    None: all."""

    def __init__(self, fleet: Fleet, name: str | None, to: str | None, report: Report) -> None:
        self.fleet, self.name, self.to, self.report = fleet, name, to, report

    def check(self) -> Several:
        """What would be removed, and why what stays does."""
        return _each(self.fleet, self.to, lambda target: self._of(target, True))

    def run(self) -> Several:
        """Raises InvalidInput, NotFound."""
        return _each(self.fleet, self.to, lambda target: self._of(target, False))

    def _of(self, target: TargetPolicy, test: bool) -> Result:
        host = machine(self.fleet, target)
        asked = {
            "folder": target.folder, "retention": dataclasses.asdict(target.retention),
            "name": self.name, "mounted": target.mounted, "test": test,
        }  # fmt: skip
        said = self.fleet.one(host, "virt.backup_prune", asked, long=True)
        found = Kept.from_answer(said, host)
        if self.name and not found.guests:
            return Result(target.name, f"{target.name} has no backup of {self.name}")
        guests = _labelled(found.guests)
        gone = {
            label: [one.ident for one in guest.backups if not one.stays]
            for label, guest in guests.items()
        }
        changes: dict[str, Any] = {label: {"removed": some} for label, some in gone.items() if some}
        trouble = {label: one.trouble for label, one in guests.items() if one.trouble}
        more: dict[str, Any] = {
            "host": host,
            "backups": {
                label: {one.ident: one.why for one in guest.backups if one.stays}
                for label, guest in guests.items()
            },
            "table": _kept_table(guests),
        }
        if trouble:
            more["trouble"] = trouble
        comment = _pruned(target, found, trouble, test)
        if test:
            nothing = not changes and not trouble
            return Checked(target.name, comment, changes, more, not trouble, nothing=nothing)
        self.report.done(comment, target=target.name)
        return Result(target.name, comment, changes, more, not trouble)


class Verify:
    """Reads backups back. backup: of each guest, ``all``, ``latest``, or a name or number. days:
    only those that were not read back in so many days. most: of each target no more than so many,
    those first that were not read back for the longest time."""

    def __init__(
        self,
        fleet: Fleet,
        name: str | None,
        to: str | None,
        report: Report,
        backup: str = "all",
        days: float | None = None,
        most: int | None = None,
    ) -> None:
        self.fleet, self.name, self.to, self.report = fleet, name, to, report
        self.backup, self.days, self.most = backup, days, most

    def check(self) -> Several:
        """Who would read them."""

        def would(target: TargetPolicy) -> Result:
            host = machine(self.fleet, target)
            whose = f"of {self.name}" if self.name else "of all guests"
            comment = f"{host} would read back what {target.name} has {whose}: {self.backup}"
            return Checked(target.name, comment, more={"host": host})

        return _each(self.fleet, self.to, would)

    def run(self) -> Several:
        """Raises InvalidInput, NotFound."""
        return _each(self.fleet, self.to, self._of)

    def _of(self, target: TargetPolicy) -> Result:
        host = machine(self.fleet, target)
        asked = {
            "folder": target.folder, "name": self.name, "backup": self.backup, "days": self.days,
            "mounted": target.mounted,
        }  # fmt: skip
        if self.most is not None:
            asked["most"] = self.most
        self.report.step("begin", f"{target.name}: {host} reads its backups back")
        watch = ("salt/virt/backup/", self._watch)
        said = self.fleet.one(host, "virt.backup_verify", asked, long=True, watch=watch)
        told = AllReadBack.from_answer(said, host)
        found, count = told.backups, len(told.backups) + told.untold
        if self.name and not count and self.days is None:
            return Result(target.name, f"{target.name} has no backup of {self.name}")
        bad = [one for one in found if one.trouble or one.wrong]
        comment = f"{units.counted(count, 'backup')} at {target.name} read back: "
        comment += f"{len(bad)} not good" if bad else "all good" if count else "none was due"
        more = {
            "host": host,
            "backups": [one.to_answer() for one in found],
            "table": [["guest", "backup", "found"], *(_row(one) for one in found)],
        }
        self.report.done(comment, target=target.name)
        return Result(target.name, comment, {}, more, not bad)

    def _watch(self, tag: str, event: dict[str, Any]) -> None:
        if tag.endswith("/verify") and event.get("percent") is not None:
            about = f"{event.get('name')}: {event.get('backup')}"
            self.report.progress(event["percent"], f"{about}: {event['percent']} % is read back")


def _each(fleet: Fleet, to: str | None, of: _OfTarget) -> Several:
    """What became of each target; of a single one a failure is raised."""
    targets = chosen(fleet, to)
    if len(targets) == 1:
        return Several((of(targets[0]),))
    parts = []
    for target in targets:
        try:
            parts.append(of(target))
        except Exception as exc:
            said = failure(exc, f"what was asked of the target {target.name}")
            parts.append(Result(target.name, said, complete=False))
    return Several(tuple(parts))


def _labelled(guests: Iterable[KeptGuest]) -> dict[str, KeptGuest]:
    """Each by its name; two of one name by their UUIDs, too, and by that alone who has none."""
    names = Counter(one.guest for one in guests)

    def label(one: KeptGuest) -> str:
        if one.guest is None:
            return one.uuid
        return one.guest if names[one.guest] == 1 else f"{one.guest} {one.uuid}"

    return {label(one): one for one in guests}


def _pruned(target: TargetPolicy, found: Kept, trouble: dict[str, str], test: bool) -> str:
    gone = sum(not one.stays for guest in found.guests for one in guest.backups)
    stay = sum(one.stays for guest in found.guests for one in guest.backups)
    stay += sum(guest.untold for guest in found.guests)
    verb = "would be" if test else "was" if gone == 1 else "were"
    stays = "stays" if stay == 1 else "stay"
    text = f"{units.counted(gone, 'backup')} {verb} removed from {target.name}; {stay} {stays}"
    if not target.retention.is_set:
        text += ": no retention is set (virt:backup:retention)"
    for guest, why in trouble.items():
        text += f"; {guest}: {why}"
    return text


def _kept_table(guests: dict[str, KeptGuest]) -> list[list[str]]:
    rows = [["guest", "backup", "stays", "why"]]
    for label, guest in guests.items():
        for one in guest.backups:
            rows.append([label, one.ident, "yes" if one.stays else "no", one.why])
    return rows


def _row(one: ReadBack) -> list[str]:
    return [one.guest or one.uuid, one.ident, one.trouble or one.wrong or "good"]
