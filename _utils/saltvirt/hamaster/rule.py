"""Rules: guests together or apart, guests on these hosts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from saltvirt import errors, names, units
from saltvirt.fleet.client import Fleet
from saltvirt.ha.view import APART, PREFERRED, STRICT, TOGETHER, GuestRule
from saltvirt.hamaster.person import Person
from saltvirt.hamaster.wishes import Wishes
from saltvirt.operations.operation import Checked, Reasons, Result

RANKS = 1000
_WAYS = (STRICT, PREFERRED)


class Rule:
    """Makes a rule, changes or removes it.

    guests: names, a list or a text with commas; None: as they are. apart, together, only: strict or
    preferred; one of them. hosts: for ``only``: a mapping of host to rank, a list, or a text such
    as ``hv1:2,hv2``.
    """

    def __init__(self, fleet: Fleet, name: str, given: dict[str, Any], remove: bool) -> None:
        self.fleet, self.name, self.given, self.remove = fleet, str(name), given, remove
        self.person = Person(fleet, "ha_rule")

    def check(self) -> Checked:
        """What the rule would be."""
        reasons = Reasons()
        with reasons:
            old, new = self._plan(reasons)
            reasons.hold()
            if old == new:
                return Checked(self.name, self._as_it_is(), nothing=True)
            return Checked(self.name, self._done("would be", new), _changes(old, new))
        return reasons.checked(self.name)

    def run(self) -> Result:
        """Raises NotFound, InvalidInput."""
        old, new = self._plan(Reasons(first=True))
        if old == new:
            return Result(self.name, self._as_it_is())
        text = self._done("is", new)

        def make(wishes: Wishes) -> Wishes:
            rules = {key: one for key, one in wishes.rules.items() if key != self.name}
            return replace(wishes, rules={**rules, self.name: new} if new else rules)

        self.person.wish(self.name, text, make)
        return Result(self.name, f"{text}{self.person.beside}", _changes(old, new))

    def _as_it_is(self) -> str:
        return f"the rule {self.name} is so already"

    def _done(self, verb: str, new: GuestRule | None) -> str:
        return f"the rule {self.name} {verb} {'kept' if new else 'removed'}"

    def _plan(self, reasons: Reasons) -> tuple[GuestRule | None, GuestRule | None]:
        """(the rule as it is, as it would be; None without)."""
        config, wishes = self.person.config, self.person.store.read()
        names.guest(self.name)
        old = wishes.rules.get(self.name)
        if self.remove:
            if old is None:
                raise errors.NotFound(f"there is no rule {self.name}")
            return old, None
        new = self._rule(old, reasons)
        for guest in new.guests:
            with reasons:
                self.person.guest(wishes, guest)
        for host in new.hosts:
            with reasons:
                self.person.member(host)
        with reasons:
            _possible(self.name, new, wishes, len(config.members))
        return old, new

    def _rule(self, old: GuestRule | None, reasons: Reasons) -> GuestRule:
        guests = old.guests if old else ()
        if self.given.get("guests") is not None:
            guests = tuple(sorted(_names(self.given["guests"], "guests")))
        ways = {key: self.given[key] for key in ("apart", "together", "only")
                if self.given.get(key) is not None}  # fmt: skip
        hosts = self.given.get("hosts")
        if hosts is not None:
            ways.setdefault("only", STRICT)
        if not ways and old is not None:
            return GuestRule(guests, old.kind, old.hosts, old.strict)
        if len(ways) != 1:
            raise errors.InvalidInput(
                f"{self.name}: give one of apart=, together=, hosts= (with only=)"
            )
        [(kind, way)] = ways.items()
        if way not in _WAYS:
            raise errors.InvalidInput(
                f"{kind} must be {STRICT} or {PREFERRED}, not {units.shown(way)}"
            )
        if kind != "only":
            return GuestRule(guests, APART if kind == "apart" else TOGETHER, {}, way == STRICT)
        ranks = _ranks(hosts) if hosts is not None else old.hosts if old else {}
        if not ranks:
            raise errors.InvalidInput(f"{self.name}: only= needs hosts=")
        return GuestRule(guests, "", ranks, way == STRICT)


def _names(value: object, what: str) -> list[str]:
    several = names.several(value)
    if several is not None:
        return several
    if isinstance(value, str) and not value:
        return []
    if isinstance(value, (bool, dict, list)):
        raise errors.InvalidInput(f"{what} must be a list of names, not {units.shown(value)}")
    return [names.guest(value)]


def _ranks(value: object) -> dict[str, int]:
    """Host to rank of ``{hv1: 2}``, ``[hv1, hv2]`` or ``hv1:2,hv2``."""
    if isinstance(value, str):
        pairs = [one.strip().partition(":") for one in value.split(",") if one.strip()]
        value = {host: rank or 0 for host, _, rank in pairs}
    elif isinstance(value, list):
        value = dict.fromkeys(map(str, value), 0)
    if not isinstance(value, dict):
        raise errors.InvalidInput(f"hosts must be host:rank,…, not {units.shown(value)}")
    found = {}
    for host, given in value.items():
        digits = isinstance(given, str) and given.isdecimal() and len(given) < 8
        rank = int(given) if digits else given
        if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank <= RANKS:
            raise errors.InvalidInput(
                f"hosts: the rank of {host} must be a whole number from 0 to {RANKS}"
            )
        found[str(host)] = rank
    return found


def _possible(name: str, new: GuestRule, wishes: Wishes, hosts: int) -> None:
    """Raises InvalidInput for a strict rule that can never hold."""
    if not new.strict or not new.kind:
        return
    if new.kind == APART and len(new.guests) > hosts:
        raise errors.InvalidInput(
            f"{name}: {len(new.guests)} guests cannot all be apart on {hosts} hosts"
        )
    for other, rule in wishes.rules.items():
        both = set(new.guests) & set(rule.guests)
        contrary = {new.kind, rule.kind} == {APART, TOGETHER}
        if other != name and rule.strict and contrary and len(both) > 1:
            raise errors.InvalidInput(
                f"{name}: the rule {other} wants {', '.join(sorted(both))} {rule.kind}"
            )


def _changes(old: GuestRule | None, new: GuestRule | None) -> dict[str, Any]:
    return {
        "rule": {"old": old.to_answer() if old else None, "new": new.to_answer() if new else None}
    }
