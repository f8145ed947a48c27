"""Which guests are of high availability: given to it, taken from it, ignored for a while."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, fields, replace
from typing import Any
from xml.etree import ElementTree

from saltvirt import errors, names, units
from saltvirt.creation import Phase
from saltvirt.fleet.client import Fleet
from saltvirt.fleet.keys import KeyStore
from saltvirt.ha.facts import OVER
from saltvirt.ha.registry import IGNORED as STATE_IGNORED
from saltvirt.ha.registry import NEW
from saltvirt.ha.view import IGNORED, LIVE, RESTART, STARTED, STOPPED, GuestWanted
from saltvirt.hamaster import definitions, seen, suits, waiting
from saltvirt.hamaster.config import WARN
from saltvirt.hamaster.outlook import Outlook
from saltvirt.hamaster.person import Person
from saltvirt.hamaster.wishes import Wishes
from saltvirt.operations import find, inventory, lock
from saltvirt.operations.operation import Checked, Reasons, Result
from saltvirt.placement import facts, policy
from saltvirt.revert import Revert

MOST = 1000
# what is crashed was to run; its host keeps it as it is for a person to see
_IS_UP = facts.ACTIVE | {"crashed"}
# a host cannot boot in less: one that was heard within this time is in the boot that it said
_HEARD_S = 5
# so long an agent may take to hear that it does not keep a guest any more
_LET_GO_S = 20
_COUNTS = ("priority", "restarts", "relocates")
# a guest's own reboot takes longer than less
_SILENT_LEAST_S, _SILENT_MOST_S = 30, 86400


@dataclass(frozen=True)
class Asked:
    """What was typed; None: as it is, or as by default. state: ``started`` or ``stopped``."""

    priority: Any = None
    restarts: Any = None
    relocates: Any = None
    failback: Any = None
    state: Any = None
    group: Any = None
    agent_silent_s: Any = None

    def over(self, wanted: GuestWanted) -> GuestWanted:
        """The guest's wishes with these. Raises InvalidInput."""
        found: dict[str, Any] = {}
        for key in _COUNTS:
            if getattr(self, key) is not None:
                found[key] = _count(getattr(self, key), key)
        if self.agent_silent_s is not None:
            found["agent_silent_s"] = _silent(self.agent_silent_s)
        if self.failback is not None:
            found["failback"] = _failback(self.failback)
        if self.state is not None:
            if self.state not in (STARTED, STOPPED):
                raise errors.InvalidInput(
                    f"state must be {STARTED} or {STOPPED}, not {units.shown(self.state)}"
                )
            found["wanted"] = self.state
        return replace(wanted, **found)

    def joins(self, wishes: Wishes, name: str) -> str | None:
        """The rule that the guest joins by it; None where it is in it, or there is none."""
        rule = wishes.rules.get(str(self.group)) if self.group is not None else None
        return str(self.group) if rule and name not in rule.guests else None

    def refuse_unknown_group(self, wishes: Wishes) -> None:
        """Raises NotFound for a group that is no rule."""
        if self.group is not None and str(self.group) not in wishes.rules:
            known = ", ".join(sorted(wishes.rules)) or "none"
            raise errors.NotFound(
                f"there is no rule {units.shown(self.group)}: salt-run virt.ha_rule makes one; "
                f"there: {known}"
            )


def _failback(value: object) -> bool | str:
    if value in (LIVE, True, False, RESTART) and isinstance(value, (bool, str)):
        return True if value == LIVE else value
    raise errors.InvalidInput(
        f"failback must be {LIVE} (or True), {RESTART} or False, not {units.shown(value)}"
    )


def _count(value: object, key: str) -> int:
    if isinstance(value, str) and value.isdecimal() and len(value) < 8:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST:
        raise errors.InvalidInput(
            f"{key} must be a whole number from 0 to {MOST}, not {units.shown(value)}"
        )
    return value


def _silent(value: object) -> int:
    least, most = _SILENT_LEAST_S, _SILENT_MOST_S
    found = int(value) if isinstance(value, str) and value.isdecimal() else value
    if isinstance(found, int) and not isinstance(found, bool) and found in (0, *range(least, most)):
        return found
    raise errors.InvalidInput(
        f"agent_silent_s must be 0, or a whole number from {least} and below {most}, "
        f"not {units.shown(value)}"
    )


@dataclass(frozen=True)
class _Plan:
    """wanted: what would be written. old: what is. joins: the group that it joins. autostart: it
    starts with its host now, which becomes the manager's. warning: what else is said of it."""

    wanted: GuestWanted
    old: GuestWanted | None
    joins: str | None
    autostart: bool = False
    warning: str = ""

    def changes(self) -> dict[str, Any]:
        new, old = _shown(self.wanted), _shown(self.old) if self.old else None
        found: dict[str, Any] = {}
        if new != old:
            found["ha"] = {"old": old, "new": new}
        if self.joins:
            found["group"] = {"old": None, "new": self.joins}
        if self.autostart:
            found["autostart"] = {"old": True, "new": False}
        return found

    def over(self, wishes: Wishes) -> Wishes:
        name = self.wanted.name
        rules = dict(wishes.rules)
        if self.joins in rules and name not in rules[self.joins].guests:
            rule = rules[self.joins]
            rules[self.joins] = replace(rule, guests=(*rule.guests, name))
        auto = wishes.autostarted | {name} if self.autostart else wishes.autostarted
        guests = {**wishes.guests, name: self.wanted}
        sizes = wishes.sizes if self.old else {**wishes.sizes, name: self.wanted.size}
        return replace(wishes, guests=guests, sizes=sizes, rules=rules, autostarted=auto)


def _shown(wanted: GuestWanted) -> dict[str, Any]:
    kept = {one.name: getattr(wanted, one.name) for one in fields(wanted)}
    return {key: value for key, value in kept.items() if key not in ("name", "size", "leased")}


def _complete(guest: facts.Guest, host: str) -> None:
    """Raises Incomplete for a guest whose creation has not ended."""
    if guest.phase is Phase.COMPLETE:
        return
    raise errors.Incomplete(
        f"cannot give {guest.name} to high availability: on {host} it is being created, or its "
        f"creation was interrupted: salt-run virt.repair name={guest.name} shows what to do"
    )


class Enable:
    """Gives a guest to high availability, or changes how it is kept.

    on: the host that it was made on right now, with room in the reserve, by who holds its lock;
    None: all hosts are asked.
    """

    def __init__(self, fleet: Fleet, name: str, asked: Asked, on: str | None = None) -> None:
        self.fleet, self.name, self.asked, self.on = fleet, str(name), asked, on
        self.person = Person(fleet, "ha_enable")

    def check(self) -> Checked:
        """What would be written, or all that ties the guest to its host."""
        reasons = Reasons()
        with reasons:
            name = names.guest(self.name)
            with reasons:
                lock.refuse_taken(self.fleet.opts, name)
            plan = self._plan(reasons)
            reasons.hold()
            changes = plan.changes()
            if not changes:
                return Checked(name, self._as_it_is(plan), nothing=True)
            return Checked(name, self._said(plan, "would be"), changes)
        return reasons.checked(self.name)

    def run(self) -> Result:
        """Raises NotFound, InvalidInput, OperationFailed."""
        name, what = names.guest(self.name), "virt.ha_enable"
        alone = contextlib.nullcontext() if self.on else lock.guest(self.fleet.opts, name, what)
        with alone:
            if self._is_kept_still() and name not in self.person.store.read().guests:
                waiting.until_let_go(self.fleet.opts, name, time.sleep)
            plan = self._plan(Reasons(first=True))
            changes = plan.changes()
            if not changes:
                return Result(name, self._as_it_is(plan))
            with Revert() as undo:
                if plan.autostart:
                    undo.push("autostart", self._autostart, plan.wanted.host, "on")
                    self._autostart(plan.wanted.host, "off")
                text = self._done(plan, "is")
                self.person.wish(name, text, plan.over)
                undo.success()
        return Result(name, self._said(plan, "is"), changes)

    def _said(self, plan: _Plan, verb: str) -> str:
        warning = f"; {plan.warning}" if plan.warning else ""
        return f"{self._done(plan, verb)}{warning}{self.person.beside}"

    def _autostart(self, host: str, state: str) -> None:
        asked = {"vm_": self.name, "state": state}
        self.fleet.one(host, "virt.set_autostart", asked, long=False)

    def _done(self, plan: _Plan, verb: str) -> str:
        name = plan.wanted.name
        if plan.old:
            return f"{name} {verb} kept in another way by high availability"
        return f"{name} on {plan.wanted.host} {verb} given to high availability"

    def _as_it_is(self, plan: _Plan) -> str:
        return f"{plan.wanted.name} is of high availability already"

    def _plan(self, reasons: Reasons) -> _Plan:
        config, wishes = self.person.config, self.person.store.read()
        old = wishes.guests.get(self.name)
        wanted = old or GuestWanted(self.name)
        with reasons:
            wanted = self.asked.over(wanted)
        with reasons:
            self.asked.refuse_unknown_group(wishes)
        joins = self.asked.joins(wishes, self.name)
        if old is not None:
            if old.wanted == IGNORED and wanted.wanted != IGNORED:
                with reasons:
                    host, _ = where_it_was(self.fleet, self.person, self.name)
                    wanted = replace(wanted, host=host)
            return _Plan(wanted, old, joins)
        reasons.hold()
        with reasons:
            self._refuse_kept_still()
        host, state = self._there()
        with reasons:
            self.person.member(host)
        hosts, unreachable = inventory.gather(self.fleet, [host] if self.on else None)
        here = next((one for one in hosts if one.name == host), None)
        size = next((one for one in here.guests if one.name == self.name), None) if here else None
        if here is None or size is None:
            raise errors.ConnectionFailed(f"{host}: {unreachable.get(host, 'the guest is gone')}")
        with reasons:
            _complete(size, host)
        stopped = self.asked.state is None and state not in _IS_UP
        wanted = replace(wanted, host=host, size=size, wanted=STOPPED if stopped else wanted.wanted)
        self._suits(reasons, here)
        warning = ""
        if not self.on:
            with reasons:
                by = policy.of_master(self.fleet.opts)
                warning = self._reserve(Outlook(config, wishes, hosts, by), wanted)
        return _Plan(wanted, None, joins, size.autostart, warning)

    def _is_kept_still(self) -> bool:
        """The engine has a record of it: one of before it was taken back, if it is not kept."""
        return self.name in seen.look(self.fleet.opts).registry.guests

    def _refuse_kept_still(self) -> None:
        """Raises OperationFailed for one that was taken back, and would be started where it was
        then, beside the one that runs."""
        engine = seen.look(self.fleet.opts)
        if self.name in engine.registry.guests:
            why = waiting.left(engine, self.name)
            raise errors.OperationFailed(
                f"{self.name} was taken from high availability, which has not let go of it yet"
                + (f": {why}" if why else "")
            )

    def _there(self) -> tuple[str, str]:
        """(its host, its state)."""
        if self.on is None:
            return find.locate(self.fleet, self.name)
        asked = {"vm_": self.name}
        return self.on, str(self.fleet.one(self.on, "virt.vm_state", asked, long=False)[self.name])

    def _suits(self, reasons: Reasons, host: Any) -> None:
        asked = {"vm_": self.name}
        root = _definition(self.fleet, host.name, self.name)
        disks = self.fleet.one(host.name, "virt.get_disks", asked, long=False)
        for why in suits.reasons(root, host, disks if isinstance(disks, dict) else {}):
            with reasons:
                raise errors.InvalidInput(f"{self.name} can run on {host.name} alone: {why}")

    def _reserve(self, outlook: Outlook, wanted: GuestWanted) -> str:
        """What breaks the reserve and is only said. Raises OperationFailed where it is refused."""
        why = outlook.refusal(wanted)
        if not why:
            return ""
        words = f"{self.name} would break virt:ha:reserve: {why}"
        if self.person.config.reserve_policy != WARN:
            raise errors.OperationFailed(words)
        return words


def _not_left_alone(fleet: Fleet, name: str) -> str:
    """Why agents do not leave the guest alone yet, and what not to do before; or nothing."""
    left = waiting.until_let_go(fleet.opts, name, time.sleep)
    return f"{left}: neither move nor start it before" if left else ""


def _rebind_key(person: Person, name: str) -> None:
    """Binds the guest's key to the host on which high availability has it now, by the registry that
    a majority of the hosts keeps: a purge or a rename there is not one of another guest. The key of
    a guest that is ignored follows whoever moves it meanwhile."""
    record, keys = person.engine.registry.guests.get(name), KeyStore(person.fleet.opts)
    bound = keys.host_of(name)
    if record and record.host and record.state != STATE_IGNORED and bound:
        keys.moved(name, bound, record.host)


class Disable:
    """Takes a guest from high availability: it stays as it is, and starts with its host again if it
    did before. missing: one that it does not keep is fine."""

    def __init__(self, fleet: Fleet, name: str, missing: bool = False) -> None:
        self.fleet, self.name, self.missing = fleet, str(name), missing is True
        self.person = Person(fleet, "ha_disable")

    def check(self) -> Checked:
        """What would be taken back."""
        reasons = Reasons()
        with reasons:
            wishes = self._wishes()
            if self.name not in wishes.guests:
                return Checked(self.name, self._nothing(), nothing=True)
            return Checked(self.name, self._done("would be"), self._changes(wishes))
        return reasons.checked(self.name)

    def run(self) -> Result:
        """Raises NotFound, OperationFailed. What its host does not do is named."""
        name = names.guest(self.name)
        with lock.guest(self.fleet.opts, name, "virt.ha_disable"):
            wishes = self._wishes()
            if name not in wishes.guests:
                return Result(name, self._nothing())
            text = self._done("is")
            _rebind_key(self.person, name)
            self.person.wish(name, text, lambda known: known.without(name))
            left = _not_left_alone(self.fleet, name)
            if not left and name in wishes.autostarted and (why := self._autostart()):
                left = f"it does not start with its host: {why}"
        words = f"{text}; {left}" if left else text
        return Result(name, words, self._changes(wishes), complete=not left)

    def _autostart(self) -> str:
        """Why it does not start with its host as it did, or nothing. Its host's agent takes that
        back as long as it keeps the guest."""
        try:
            host, _ = find.locate(self.fleet, self.name)
            end_s = time.monotonic() + _LET_GO_S
            while why := self.fleet.one(host, "virt.ha_kept", {"name": self.name}, long=False):
                if time.monotonic() > end_s:
                    return f"{host}: {why}; later: salt {host} virt.set_autostart {self.name}"
                time.sleep(1)
            asked = {"vm_": self.name, "state": "on"}
            self.fleet.one(host, "virt.set_autostart", asked, long=False)
        except errors.VirtError as exc:
            return exc.text
        return ""

    def _wishes(self) -> Wishes:
        wishes = self.person.store.read()
        if not self.missing:
            self.person.guest(wishes, self.name)
        return wishes

    def _nothing(self) -> str:
        return f"{names.guest(self.name)} is not of high availability"

    def _done(self, verb: str) -> str:
        return f"{self.name} {verb} no longer of high availability, and stays as it is"

    def _changes(self, wishes: Wishes) -> dict[str, Any]:
        changes: dict[str, Any] = {"ha": {"old": _shown(wishes.guests[self.name]), "new": None}}
        if self.name in wishes.autostarted:
            changes["autostart"] = {"old": False, "new": True}
        return changes


def _definition(fleet: Fleet, host: str, name: str) -> ElementTree.Element:
    xml = fleet.one(host, "virt.get_xml", {"vm_": name}, long=False)
    try:
        return ElementTree.fromstring(xml)
    except (ElementTree.ParseError, TypeError) as exc:
        raise errors.BadAnswer(f"{host}: the definition of {name}: {exc}") from exc


def _refuse_another(fleet: Fleet, host: str, name: str) -> None:
    """Raises OperationFailed for one that only has the name of the guest that was ignored: it would
    be started elsewhere by the definition of that."""
    known = definitions.uuid_of(fleet.opts, name)
    if known and known != _definition(fleet, host, name).findtext("uuid"):
        raise errors.OperationFailed(
            f"{name} on {host} is another guest than the one of high availability, which had the "
            f"UUID {known}: give it anew, virt.ha_disable and virt.ha_enable"
        )


def where_it_was(fleet: Fleet, person: Person, name: str) -> tuple[str, str]:
    """(the host of a guest that was ignored, what is to be wanted of it: what it is). The engine
    looks for it there. Raises NotFound where that takes no part, OperationFailed where a copy of it
    may be left elsewhere."""
    host, state = find.locate(fleet, name)
    person.member(host)
    record = person.engine.registry.guests.get(name)
    if record is not None and record.state not in (STATE_IGNORED, NEW):
        why = person.engine.why or "wait for it"
        raise errors.OperationFailed(f"the engine does not know yet that {name} is ignored: {why}")
    places = {place.host for place in record.places} if record else set()
    if places and host not in places:
        raise errors.OperationFailed(
            f"{name} is on {host} now, and high availability left it on "
            f"{', '.join(sorted(places))}, whose agent has not said yet that it is gone there: run "
            "the command again in some seconds; if that host is down, give it anew, "
            "virt.ha_disable and virt.ha_enable"
        )
    _refuse_unheard(person.engine, host, name)
    _refuse_another(fleet, host, name)
    return host, STARTED if state in _IS_UP else STOPPED


def _refuse_unheard(engine: seen.Engine, host: str, name: str) -> None:
    """Raises OperationFailed while the agent of a guest's host is silent, or says that the host
    shuts down and nothing runs there: masters would take that for a proof about the guest."""
    about = engine.seen.hosts.get(host)
    if about is None or engine.why:
        return
    if about.phase == OVER:
        raise errors.OperationFailed(f"{host}, on which {name} is, shuts down: wait for its end")
    if not engine.hears(host, _HEARD_S):
        raise errors.OperationFailed(
            f"the agent of {host}, on which {name} is, is not heard: run the command again once "
            f"it is (salt-run virt.ha_status; systemctl status salt-virt-ha on {host})"
        )


class Ignore:
    """A guest is left alone by high availability, whatever becomes of it; or no longer."""

    def __init__(self, fleet: Fleet, name: str, off: bool = False) -> None:
        self.fleet, self.name, self.off = fleet, str(name), off
        self.person = Person(fleet, "ha_ignore")

    def check(self) -> Checked:
        """What would be so."""
        reasons = Reasons()
        with reasons:
            old, new = self._states()
            if old.wanted == new.wanted:
                return Checked(self.name, self._done("is", "already"), nothing=True)
            changes = {"ha": {"old": old.wanted, "new": new.wanted}}
            return Checked(self.name, self._done("would be"), changes)
        return reasons.checked(self.name)

    def run(self) -> Result:
        """Raises NotFound, OperationFailed."""
        name = names.guest(self.name)
        with lock.guest(self.fleet.opts, name, "virt.ha_ignore"):
            old, new = self._states()
            if old.wanted == new.wanted:
                return Result(name, self._done("is", "already"))
            text = self._done("is")
            if not self.off:
                _rebind_key(self.person, name)
            self.person.wish(name, text, lambda known: _wanting(known, new))
            left = "" if self.off else _not_left_alone(self.fleet, name)
        changes = {"ha": {"old": old.wanted, "new": new.wanted}}
        beside = f"; {left}" if left else self.person.beside
        return Result(name, f"{text}{beside}", changes, complete=not left)

    def _states(self) -> tuple[GuestWanted, GuestWanted]:
        """(as it is wanted, as it would be)."""
        if not isinstance(self.off, bool):
            raise errors.InvalidInput(f"off must be True or False, not {units.shown(self.off)}")
        wishes = self.person.store.read()
        self.person.guest(wishes, self.name)
        old = wishes.guests[self.name]
        if not self.off:
            return old, replace(old, wanted=IGNORED)
        if old.wanted != IGNORED:
            return old, old
        host, wanted = where_it_was(self.fleet, self.person, self.name)
        return old, replace(old, wanted=wanted, host=host)

    def _done(self, verb: str, more: str = "") -> str:
        words = f"{self.name} {verb} {'no longer ignored' if self.off else 'ignored'}"
        return f"{words} by high availability {more}".rstrip()


def _wanting(wishes: Wishes, new: GuestWanted) -> Wishes:
    old = wishes.guests.get(new.name)
    if old is None:
        raise errors.NotFound(f"{new.name} was taken from high availability meanwhile")
    changed = replace(old, wanted=new.wanted, host=new.host)
    return replace(wishes, guests={**wishes.guests, new.name: changed})
