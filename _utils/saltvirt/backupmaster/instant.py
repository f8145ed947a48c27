"""Guests that run from a backup while its blocks come in: seen through, or brought on again.

Who stands on which backup is asked of the targets: there the master wrote it. What a hypervisor
says of its own guest decides about that guest alone.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from saltvirt import errors, names
from saltvirt.backupmaster import keep
from saltvirt.backups.answers import BackupReader, ShownBackup
from saltvirt.backups.policy import TargetPolicy
from saltvirt.backups.stands import CUT, GONE, OFF, WHOLE, Stand, Standing, StoodOn
from saltvirt.fleet.client import Fleet
from saltvirt.operations import lock
from saltvirt.operations.operation import Checked, Result, Several, failure
from saltvirt.operations.report import Report

_LOOK_S = 2
# while somebody waits it is shown anew so often where it is cut off
_CUT_S = 30
VERB = "virt.backup_instant"


@dataclass(frozen=True)
class Stood:
    """uuid: of the guest that was backed up. stand: the guest that runs from it, and where."""

    target: TargetPolicy
    uuid: str
    ident: str
    stand: Stand

    @property
    def where(self) -> dict[str, Any]:
        """The backup, for the machine of its target."""
        return {
            "folder": self.target.folder, "mounted": self.target.mounted, "uuid": self.uuid,
            "backup": self.ident,
        }  # fmt: skip


def look(fleet: Fleet, stood: Stood) -> Standing:
    """What its host says of the guest. One that stands on another backup stands on this no more."""
    host = stood.stand.host
    fleet.hosts(host)  # the target says so
    said = fleet.one(host, "virt.backup_standing", {"name": stood.stand.guest})
    found = Standing.from_answer(said, host)
    if found.state not in (GONE, WHOLE) and found.ident not in (None, stood.ident):
        return Standing(WHOLE, stood.ident, 100)
    return found


def settled(fleet: Fleet, stood: Stood) -> Standing:
    """The same; the backup is let go where the guest does not need it any more. Hold the guest's
    lock: one that is being made is not there yet."""
    found = look(fleet, stood)
    if found.state in (GONE, WHOLE):
        who = {"guest": stood.stand.guest, "host": stood.stand.host}
        machine = keep.machine(fleet, stood.target)
        fleet.one(machine, "virt.backup_let_go", {**stood.where, **who})
    return found


class Instant:
    """name: of the guest; None: all, and none is waited for. timeout_s: so long is waited."""

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
        """How far each is; nothing is changed."""
        return self._each(self._checked)

    def run(self) -> Several:
        """Raises InvalidInput, NotFound, and for a single guest whatever its host says."""
        return self._each(self._through if self.name else self._seen)

    def _each(self, of: Callable[[Stood], Result]) -> Several:
        if self.name is not None:
            names.there(self.name)
        found, silent = self._stood()
        if self.name and not found and not silent:
            text = f"{self.name} stands on no backup"
            return Several((Result(self.name, text),))
        parts, counted = [], Counter(one.stand.guest for one in found)
        for one in found:
            try:
                said = of(one)
            except Exception as exc:
                text = failure(exc, f"the guest {one.stand.guest} on a backup")
                said = Result(one.stand.guest, text, complete=False)
            if counted[said.about] > 1:
                said = replace(said, about=f"{said.about} on {one.stand.host}, {one.ident}")
            parts.append(said)
        if not parts and not silent:
            return Several((Result("all", "no guest stands on a backup"),))
        return Several((*parts, *silent))

    def _stood(self) -> tuple[list[Stood], tuple[Result, ...]]:
        """(who stands on a backup, targets that did not say)."""
        found: list[Stood] = []
        silent = []
        for target in keep.chosen(self.fleet, None):
            asked = {"folder": target.folder, "mounted": target.mounted}
            try:
                machine = keep.machine(self.fleet, target)
                said = self.fleet.one(machine, "virt.backup_stands", asked)
                found += self._of(target, said, machine)
            except errors.VirtError as exc:
                text = f"who stands on its backups is not known: {exc.text}"
                silent.append(Result(target.name, text, complete=False))
        return found, tuple(silent)

    def _of(self, target: TargetPolicy, said: Any, machine: str) -> Iterator[Stood]:
        if not isinstance(said, list):
            raise errors.BadAnswer(f"{machine}: it is no list")
        for one in said:
            fact = StoodOn.from_answer(one, machine)
            if self.name in (None, fact.stand.guest):
                yield Stood(target, fact.uuid, fact.ident, fact.stand)

    def _checked(self, one: Stood) -> Result:
        found = look(self.fleet, one)
        over = found.state in (GONE, WHOLE)
        changes = {"released": one.ident} if over else {}
        nothing = not over and found.state != CUT
        more = _more(one, found)
        return Checked(one.stand.guest, _words(one, found), changes, more, nothing=nothing)

    def _seen(self, one: Stood) -> Result:
        """How far it is. It is brought on, and not waited for."""
        return self._result(one, self._brought_on(one))

    def _brought_on(self, one: Stood) -> Standing:
        with lock.guest(self.fleet.opts, one.stand.guest, VERB):
            found = settled(self.fleet, one)
            # without a reason it goes on by itself
            if found.state in (CUT, OFF) and found.why:
                found = self._again(one)
        return found

    def _through(self, one: Stood) -> Result:
        end_s, next_s = time.monotonic() + self.timeout_s, 0.0
        while True:
            found = look(self.fleet, one)
            if found.state in (GONE, WHOLE):
                return self._seen(one)
            if found.why and time.monotonic() > next_s:
                next_s = time.monotonic() + _CUT_S
                found = self._brought_on(one)
            self.report.progress(found.percent, _words(one, found))
            if found.state == OFF or time.monotonic() > end_s:
                return self._result(one, found)
            self._sleep(_LOOK_S)

    def _again(self, one: Stood) -> Standing:
        """The target shows the backup anew, to the guest's host alone."""
        host, name = one.stand.host, one.stand.guest
        machine = keep.machine(self.fleet, one.target)
        self.report.step("again", f"{name}: {machine} shows {one.ident} to {host} again")
        said = self.fleet.one(host, "virt.backup_reader", {"once": True})
        reader = BackupReader.from_answer(said, host)
        asked = {**one.where, "reader": reader.authority, "stand": one.stand.to_answer()}
        shown = self.fleet.one(machine, "virt.backup_show", asked)
        ShownBackup.from_answer(shown, machine)
        told = {
            "name": name, "shown": shown, "reader": reader.authority,
            "bandwidth": one.target.bandwidth_mib_s,
        }  # fmt: skip
        return Standing.from_answer(self.fleet.one(host, "virt.backup_again", told), host)

    def _result(self, one: Stood, found: Standing) -> Result:
        text, done = _words(one, found), found.state in (GONE, WHOLE)
        if done:
            self.report.done(text, host=one.stand.host)
        elif found.state == CUT:
            self.report.step("cut", text, host=one.stand.host)
        changes = {"released": one.ident} if done else {}
        well = done if self.name and self.timeout_s else found.state != CUT
        return Result(one.stand.guest, text, changes, _more(one, found), well)


def _more(one: Stood, found: Standing) -> dict[str, Any]:
    return {
        "host": one.stand.host, "target": one.target.name, "backup": one.ident,
        "state": found.state, "percent": found.percent, "disks": found.disks,
    }  # fmt: skip


def _words(one: Stood, found: Standing) -> str:
    name, host = one.stand.guest, one.stand.host
    if found.state == GONE:
        return f"{name} is not on {host} any more: {one.ident} is not needed for it"
    if found.state == WHOLE:
        return f"{name} on {host} has all its blocks and stands on nothing; {one.ident} is free"
    here = f"{found.percent} % of {name} is on {host}, the rest is in {one.ident}"
    if found.state == OFF:
        more = f" ({found.why})" if found.why else ""
        return f"{name} is off{more}; {here}: virt.start {name} goes on"
    if found.state == CUT:
        paused = ", and the guest is paused at a block that it cannot read" if found.paused else ""
        return f"{name} is cut off from its backup: {found.why}{paused}; {here}"
    return here
