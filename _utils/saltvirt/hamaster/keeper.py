"""What the verbs that make and place guests ask of high availability: operations.keepers.Keeper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property
from typing import Any
from xml.etree import ElementTree

from saltvirt import errors, units
from saltvirt.answers.made import PlannedGuest
from saltvirt.fleet import secret
from saltvirt.fleet.client import Fleet
from saltvirt.ha.place import Room
from saltvirt.ha.registry import UP
from saltvirt.ha.reserve import Reserve
from saltvirt.ha.view import STARTED, GuestRule, GuestWanted
from saltvirt.hamaster import config, rooms, seen, suits
from saltvirt.hamaster.enable import Asked, Disable, Enable
from saltvirt.hamaster.outlook import Outlook
from saltvirt.hamaster.person import Person, refuse_unless_leading
from saltvirt.hamaster.wishes import Wishes, WishStore
from saltvirt.operations import held
from saltvirt.operations.operation import Operation
from saltvirt.placement import choose, facts, policy
from saltvirt.spec.base import unknown

_KEYS = tuple(one.name for one in fields(Asked))


class HaKeeper:
    """See operations.keepers.Keeper: its wishes are what was asked of ``virt.ha_enable``."""

    def __init__(self, opts: held.Opts) -> None:
        self._opts = opts
        self._store = WishStore(opts)

    @cached_property
    def _config(self) -> config.HaConfig:
        return config.of_master(self._opts)

    @property
    def keeps_room(self) -> bool:
        """See Keeper."""
        return bool(self._config.policy.reserve)

    def wish(self, given: Any, start: bool | None = None) -> Asked | bool | None:
        """See Keeper."""
        if given is None or given is False:
            return None if given is None else False
        if given is not True and not isinstance(given, Mapping):
            raise errors.InvalidInput(
                f"ha must be True, False or a mapping of {', '.join(_KEYS)}, "
                f"not {units.shown(given)}"
            )
        words = {} if given is True else dict(given)
        for key in words:
            if key not in _KEYS:
                raise unknown(str(key), _KEYS, "ha")
        asked = Asked(**words)
        _ = self._config
        asked.over(GuestWanted("-"))
        asked.refuse_unknown_group(self._store.read())
        if None not in (asked.state, start) and (asked.state == STARTED) is not start:
            raise errors.InvalidInput(
                f"ha: state {asked.state} is not what start={start} says: "
                "high availability would undo it"
            )
        return asked

    def refuse_name(self, name: str) -> None:
        """See Keeper."""
        if name in self._store.read().guests:
            raise errors.AlreadyExists(
                f"{name} is a guest of high availability, wherever it is now: salt-run "
                f"virt.ha_disable {name} if it is gone for good"
            )

    def others(
        self, name: str, wish: Asked, hosts: Sequence[facts.Host]
    ) -> dict[str, choose.Reason]:
        """See Keeper."""
        if len(self._config.masters) > 1:  # or it would be made, and could not be given
            refuse_unless_leading(seen.look(self._opts), self._config.name)
        outlook, wishes = self._outlook(hosts)
        view = outlook.view
        view = replace(
            view,
            guests={**view.guests, name: wish.over(GuestWanted(name))},
            rules=_rules(wishes, name, wish),
        )
        room = Room(view, outlook.registry, 0)
        found: dict[str, choose.Reason] = {}
        for host in hosts:
            if host.name not in self._config.members:
                found[host.name] = ("ha", "takes no part in high availability (virt:ha:members)")
            elif why := room.against(name, host.name):
                found[host.name] = ("ha", why)
        return found

    def ties(
        self, fleet: Fleet, name: str, host: facts.Host, arguments: dict[str, Any]
    ) -> list[str]:
        """See Keeper."""
        asked = {**secret.without(arguments), "test": True, "definition": True}
        told = fleet.one(host.name, "virt.init", asked, long=True)
        found = PlannedGuest.from_answer(told, host.name)
        disks = {target: {"backing file": {"file": path}} for target, path in found.bases.items()}
        try:
            if "<!" in found.definition:
                raise ValueError("it has a document type")
            root = ElementTree.fromstring(found.definition)
        except (ElementTree.ParseError, ValueError) as exc:
            raise errors.BadAnswer(f"{host.name}: the definition of {name}: {exc}") from exc
        return [*suits.reasons(root, host, disks)]

    def keeping(
        self, fleet: Fleet, name: str, wish: Asked | bool, on: str | None = None
    ) -> Operation | None:
        """See Keeper."""
        wishes = self._store.read()
        old = wishes.guests.get(name)
        if not isinstance(wish, Asked):
            return Disable(fleet, name) if old else None
        if old and wish.over(old) == old and not wish.joins(wishes, name):
            return None
        return Enable(fleet, name, wish, on)

    def look_again(self) -> None:
        """See Keeper."""
        path = rooms.again(self._opts)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)

    def brings(self, host: str) -> str:
        """See Keeper."""
        engine = seen.look(self._opts)
        if host not in self._config.members or engine.why or not engine.seen.leading:
            return ""
        if engine.registry.host(host).state == UP:
            return f"the engine virt_ha has not seen yet that {host} is in maintenance"
        guests = engine.registry.guests
        coming = [name for name, one in sorted(guests.items()) if one.target == host]
        return f"on their way there: {', '.join(coming)}" if coming else ""

    def rests(self) -> str:
        """See Keeper."""
        engine, several = seen.look(self._opts), len(self._config.masters) > 1
        if engine.registry.armed or (several and not engine.seen.leading):
            return ""
        return seen.DISARMED

    def forget(self, fleet: Fleet, name: str) -> None:
        """See Keeper."""
        if name in self._store.read().guests:
            text = f"{name} is no longer of high availability: what made it failed"
            Person(fleet, "init").wish(name, text, lambda known: known.without(name))

    def room(self, hosts: Sequence[facts.Host]) -> ReservedRoom | None:
        """See Keeper."""
        if not self.keeps_room:
            return None
        outlook, wishes = self._outlook(hosts)
        return ReservedRoom(outlook.account(), wishes, self._config.reserve_policy == config.WARN)

    def capacity(
        self, hosts: Sequence[facts.Host], request: facts.PlacementRequest, most: Mapping[str, int]
    ) -> dict[str, Any] | None:
        """How many guests like the request break nothing, and what is short now, as plain data;
        None where no room is kept. most: host to how many it has room for."""
        if not self.keeps_room:
            return None
        reserve = self._outlook(hosts)[0].account()
        guests = {host.name: facts.as_guest(request.at(host)) for host in hosts}
        return {
            "hosts": self._config.policy.reserve,
            "policy": self._config.reserve_policy,
            "fit": reserve.fits(guests, most),
            "short": [one.text() for one in reserve.short],
        }

    def _outlook(self, hosts: Sequence[facts.Host]) -> tuple[Outlook, Wishes]:
        wishes = self._store.read()
        by = policy.of_master(self._opts)
        return Outlook(self._config, wishes, [*hosts], by), wishes


class ReservedRoom:
    """See operations.keepers.Room."""

    def __init__(self, reserve: Reserve, wishes: Wishes, warns: bool) -> None:
        self._reserve, self._wishes, self.warns = reserve, wishes, warns

    def refusal(self, host: str, guest: facts.Guest, wish: Asked | None = None) -> str:
        """See Room."""
        return self._reserve.refusal(host, guest, *self._wanted(guest, wish))

    def take(self, host: str, guest: facts.Guest, wish: Asked | None = None) -> None:
        """See Room."""
        self._reserve.take(host, guest, *self._wanted(guest, wish))

    def _wanted(
        self, guest: facts.Guest, wish: Asked | None
    ) -> tuple[GuestWanted | None, tuple[GuestRule, ...] | None]:
        if not wish:
            return None, None
        return wish.over(GuestWanted(guest.name)), _rules(self._wishes, guest.name, wish)


def _rules(wishes: Wishes, name: str, wish: Asked) -> tuple[GuestRule, ...]:
    """All rules, when the guest has joined its group."""
    joined = wish.joins(wishes, name)
    return tuple(
        replace(rule, guests=(*rule.guests, name)) if key == joined else rule
        for key, rule in wishes.rules.items()
    )
