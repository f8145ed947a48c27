"""Rules: keep guests on the same host, on different hosts, or on certain hosts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from saltvirt import errors, names, units
from saltvirt.fleet.client import Fleet
from saltvirt.ha.manager.admin_request import AdminRequest
from saltvirt.ha.manager.desired_state import DesiredState
from saltvirt.ha.model.view import (
    AFFINITY,
    ANTI_AFFINITY,
    HOST_AFFINITY,
    PREFERRED,
    STRICT,
    GuestRule,
)
from saltvirt.operations.core.operation import Checked, Reasons, Result

RANKS = 1000
_STRENGTHS = (STRICT, PREFERRED)
_KINDS = (AFFINITY, ANTI_AFFINITY, HOST_AFFINITY)


class ConfigureRule:
    """Create, change or remove a rule.

    arguments: guests: names, a list or a text with commas; None: unchanged. affinity,
    anti_affinity, host_affinity: strict or preferred; one of them. hosts: for host_affinity: a
    mapping of host to rank, a list, or a text such as ``hv1:2,hv2``.
    """

    def __init__(self, fleet: Fleet, name: str, arguments: dict[str, Any], remove: bool) -> None:
        self.fleet, self.name, self.arguments, self.remove = fleet, str(name), arguments, remove
        self.request = AdminRequest(fleet, "ha_rule")

    def check(self) -> Checked:
        """Return what the rule would be."""
        reasons = Reasons()
        with reasons:
            old, new = self._plan(reasons)
            reasons.raise_first()
            if old == new:
                return Checked(self.name, self._as_it_is(), nothing=True)
            return Checked(self.name, self._text("would be", new), _changes(old, new))
        return reasons.checked(self.name)

    def run(self) -> Result:
        """Raises NotFound, InvalidInput."""
        old, new = self._plan(Reasons(first=True))
        if old == new:
            return Result(self.name, self._as_it_is())
        text = self._text("is", new)

        def edit(desired: DesiredState) -> DesiredState:
            rules = {key: rule for key, rule in desired.rules.items() if key != self.name}
            return replace(desired, rules={**rules, self.name: new} if new else rules)

        self.request.submit(self.name, text, edit)
        return Result(self.name, f"{text}{self.request.notice}", _changes(old, new))

    def _as_it_is(self) -> str:
        return f"rule {self.name} is already up to date"

    def _text(self, verb: str, new: GuestRule | None) -> str:
        return f"rule {self.name} {verb} {'set' if new else 'removed'}"

    def _plan(self, reasons: Reasons) -> tuple[GuestRule | None, GuestRule | None]:
        """Return the present and the new rule; None: no rule."""
        config, desired = self.request.config, self.request.store.read()
        names.guest(self.name)
        old = desired.rules.get(self.name)
        if self.remove:
            if old is None:
                raise errors.NotFound(f"rule {self.name} does not exist")
            return old, None
        new = self._rule(old, reasons)
        for guest in new.guests:
            with reasons:
                self.request.guest(desired, guest)
        for host in new.hosts:
            with reasons:
                self.request.member(host)
        with reasons:
            _refuse_impossible(self.name, new, desired, len(config.members))
        return old, new

    def _rule(self, old: GuestRule | None, reasons: Reasons) -> GuestRule:
        guests = old.guests if old else ()
        if self.arguments.get("guests") is not None:
            guests = tuple(sorted(_names(self.arguments["guests"], "guests")))
        strengths = {
            kind: self.arguments[kind] for kind in _KINDS if self.arguments.get(kind) is not None
        }
        hosts = self.arguments.get("hosts")
        if hosts is not None:
            strengths.setdefault(HOST_AFFINITY, STRICT)
        if not strengths and old is not None:
            return GuestRule(guests, old.kind, old.hosts, old.strict)
        if len(strengths) != 1:
            raise errors.InvalidInput(
                f"{self.name}: pass one of affinity=, anti_affinity= and hosts="
            )
        [(kind, strength)] = strengths.items()
        if strength not in _STRENGTHS:
            raise errors.InvalidInput(
                f"{kind} must be {STRICT} or {PREFERRED}, not {units.short_repr(strength)}"
            )
        if kind != HOST_AFFINITY:
            return GuestRule(guests, kind, {}, strength == STRICT)
        ranks = _ranks(hosts) if hosts is not None else old.hosts if old else {}
        if not ranks:
            raise errors.InvalidInput(f"{self.name}: {HOST_AFFINITY}= requires hosts=")
        return GuestRule(guests, "", ranks, strength == STRICT)


def _names(value: object, label: str) -> list[str]:
    name_list = names.guest_list(value)
    if name_list is not None:
        return name_list
    if isinstance(value, str) and not value:
        return []
    if isinstance(value, (bool, dict, list)):
        raise errors.InvalidInput(f"{label} must be a list of names, not {units.short_repr(value)}")
    return [names.guest(value)]


def _ranks(value: object) -> dict[str, int]:
    """Return host to rank from ``{hv1: 2}``, ``[hv1, hv2]`` or ``hv1:2,hv2``."""
    if isinstance(value, str):
        pairs = [part.strip().partition(":") for part in value.split(",") if part.strip()]
        value = {host: rank or 0 for host, _, rank in pairs}
    elif isinstance(value, list):
        value = dict.fromkeys(map(str, value), 0)
    if not isinstance(value, dict):
        raise errors.InvalidInput(f"hosts must be host:rank,…, not {units.short_repr(value)}")
    ranks = {}
    for host, rank_value in value.items():
        digits = isinstance(rank_value, str) and units.is_number(rank_value)
        rank = int(rank_value) if digits else rank_value
        if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank <= RANKS:
            raise errors.InvalidInput(
                f"hosts: the rank of {host} must be a whole number from 0 to {RANKS}"
            )
        ranks[str(host)] = rank
    return ranks


def _refuse_impossible(name: str, new: GuestRule, desired: DesiredState, hosts: int) -> None:
    """Raise InvalidInput for a strict rule that can never hold."""
    if not new.strict or not new.kind:
        return
    if new.kind == ANTI_AFFINITY and len(new.guests) > hosts:
        raise errors.InvalidInput(
            f"{name}: {len(new.guests)} guests cannot be on different hosts: there are {hosts}"
        )
    for other_name, rule in desired.rules.items():
        shared = set(new.guests) & set(rule.guests)
        is_contrary = {new.kind, rule.kind} == {ANTI_AFFINITY, AFFINITY}
        if other_name != name and rule.strict and is_contrary and len(shared) > 1:
            raise errors.InvalidInput(
                f"{name}: the rule {other_name} sets {rule.kind} for {', '.join(sorted(shared))}"
            )


def _changes(old: GuestRule | None, new: GuestRule | None) -> dict[str, Any]:
    return {
        "rule": {"old": old.to_answer() if old else None, "new": new.to_answer() if new else None}
    }
