"""Simulate the failure of a host from what the hosts report now, without the engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from saltvirt.ha.manager.config import HaConfig
from saltvirt.ha.manager.desired_state import DesiredState
from saltvirt.ha.manager.status_file import LossReport
from saltvirt.ha.model import reserve
from saltvirt.ha.model.messages import Heartbeat, ReceivedHeartbeat
from saltvirt.ha.model.registry import (
    MAINTENANCE,
    PLACED,
    RECOVERING,
    UP,
    GuestLocation,
    HaGuestRecord,
    HostRecord,
    Registry,
)
from saltvirt.ha.model.view import STARTED, GuestConfig, HostBinding, View
from saltvirt.placement import facts
from saltvirt.placement.policy import PlacementPolicy

_BOOT = 1


def with_sizes(
    guests: Mapping[str, GuestConfig], hosts: Iterable[facts.Host]
) -> dict[str, GuestConfig]:
    """Return the guests, each with the size that its host reports."""
    configs = dict(guests)
    for host in hosts:
        for guest in host.guests:
            if guest.name in configs:
                configs[guest.name] = replace(configs[guest.name], size=guest)
    # as placement counts a running guest
    return {
        name: replace(guest_config, size=replace(guest_config.size, name=name, state="running"))
        for name, guest_config in configs.items()
    }


class FailoverSimulation:
    """hosts: those that answered. policy: of placement. bindings: the bindings that the engine
    found."""

    def __init__(
        self,
        config: HaConfig,
        desired: DesiredState,
        hosts: list[facts.Host],
        policy: PlacementPolicy,
        bindings: Mapping[str, HostBinding] | None = None,
    ) -> None:
        self.hosts = {host.name: host for host in hosts if host.name in config.members}
        host_by_guest = {
            guest.name: host.name
            for host in self.hosts.values()
            for guest in sorted(host.guests, key=lambda candidate: candidate.state in facts.ACTIVE)
            if guest.name in desired.guests
        }
        self.view = View(
            masters=config.masters,
            members=tuple(config.members),
            beats={name: ReceivedHeartbeat(Heartbeat(name, _BOOT, 1), 0) for name in self.hosts},
            placement_hosts=self.hosts,
            guests=with_sizes(desired.sized_guests, self.hosts.values()),
            rules=tuple(desired.rules.values()),
            bindings=bindings or {},
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
            guests={name: _placed_record(host) for name, host in host_by_guest.items()},
        )

    def simulate_loss(self, host: str) -> LossReport:
        """Return where the guests of a host would be started."""
        lost = reserve.simulate_loss(self.view, self.registry, (host,), 0)
        return LossReport(lost.placements, lost.unplaced)

    def refusal(self, guest: GuestConfig) -> str:
        """Return why a guest would violate the reserve, or nothing."""
        guests = with_sizes({**self.view.guests, guest.name: guest}, self.hosts.values())
        other_records = {
            name: record for name, record in self.registry.guests.items() if name != guest.name
        }
        view = replace(self.view, guests=guests)
        return reserve.refusal(view, replace(self.registry, guests=other_records), guest.name, 0)

    def account(self) -> reserve.Reserve:
        """Return the account of the reserve. A guest that is to run, but is on no host that
        answered, may be started at any moment and needs capacity as well."""
        placed = self.registry.guests
        waiting = {
            name
            for name, guest_config in self.view.guests.items()
            if guest_config.desired_state == STARTED and name not in placed
        }
        records = {**placed, **{name: HaGuestRecord(RECOVERING) for name in waiting}}
        return reserve.Reserve(self.view, replace(self.registry, guests=records), 0, waiting)


def _placed_record(host: str) -> HaGuestRecord:
    return HaGuestRecord(
        PLACED, host=host, boot=_BOOT, run=True, locations=(GuestLocation(host, _BOOT),), last=host
    )
