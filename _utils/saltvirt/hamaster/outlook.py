"""The cloud as the hosts tell of it right now, for questions that need no engine: what would become
of the guests if a host died."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from saltvirt.ha import reserve
from saltvirt.ha.facts import ArrivedBeat, Beat
from saltvirt.ha.registry import (
    MAINTENANCE,
    PLACED,
    RECOVERING,
    UP,
    GuestPlace,
    GuestRecord,
    HostRecord,
    Registry,
)
from saltvirt.ha.view import STARTED, GuestWanted, Tied, View
from saltvirt.hamaster.config import HaConfig
from saltvirt.hamaster.seen import LossSeen
from saltvirt.hamaster.wishes import Wishes
from saltvirt.placement import facts
from saltvirt.placement.policy import PlacementPolicy

_BOOT = 1


def sized(guests: Mapping[str, GuestWanted], hosts: Iterable[facts.Host]) -> dict[str, GuestWanted]:
    """The guests, each as large as the host says that has it."""
    found = dict(guests)
    for host in hosts:
        for guest in host.guests:
            if guest.name in found:
                found[guest.name] = replace(found[guest.name], size=guest)
    # as placement counts one that is to run
    return {
        name: replace(one, size=replace(one.size, name=name, state="running"))
        for name, one in found.items()
    }


class Outlook:
    """hosts: those that answered. policy: of placement. tied: what the engine found tied."""

    def __init__(
        self,
        config: HaConfig,
        wishes: Wishes,
        hosts: list[facts.Host],
        policy: PlacementPolicy,
        tied: Mapping[str, Tied] | None = None,
    ) -> None:
        self.hosts = {host.name: host for host in hosts if host.name in config.members}
        there = {
            guest.name: host.name
            for host in self.hosts.values()
            for guest in sorted(host.guests, key=lambda one: one.state in facts.ACTIVE)
            if guest.name in wishes.guests
        }
        self.view = View(
            masters=config.masters,
            members=tuple(config.members),
            beats={name: ArrivedBeat(Beat(name, _BOOT, 1), 0) for name in self.hosts},
            rooms=self.hosts,
            guests=sized(wishes.sized, self.hosts.values()),
            rules=tuple(wishes.rules.values()),
            tied=tied or {},
            policy=config.policy,
            placement=policy,
        )
        self.registry = Registry(
            version=1,
            members=tuple(config.members),
            hosts={
                name: HostRecord(MAINTENANCE if host.maintenance else UP, boot=_BOOT)
                for name, host in self.hosts.items()
            },
            guests={name: _placed(host) for name, host in there.items()},
        )

    def lose(self, host: str) -> LossSeen:
        """What would become of the guests of a host."""
        lost = reserve.lose(self.view, self.registry, (host,), 0)
        return LossSeen(lost.moved, lost.unplaced)

    def refusal(self, guest: GuestWanted) -> str:
        """Why a guest would break the reserve, or nothing."""
        guests = sized({**self.view.guests, guest.name: guest}, self.hosts.values())
        known = {name: one for name, one in self.registry.guests.items() if name != guest.name}
        view = replace(self.view, guests=guests)
        return reserve.refusal(view, replace(self.registry, guests=known), guest.name, 0)

    def account(self) -> reserve.Reserve:
        """The account of the reserve. A guest that is to run, and that no host that answered has,
        may have to be started any moment: it needs room, too."""
        there = self.registry.guests
        waiting = {
            name
            for name, one in self.view.guests.items()
            if one.wanted == STARTED and name not in there
        }
        known = {**there, **{name: GuestRecord(RECOVERING) for name in waiting}}
        return reserve.Reserve(self.view, replace(self.registry, guests=known), 0, waiting)


def _placed(host: str) -> GuestRecord:
    return GuestRecord(
        PLACED, host=host, boot=_BOOT, run=True, places=(GuestPlace(host, _BOOT),), last=host
    )
