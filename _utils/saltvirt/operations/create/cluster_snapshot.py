"""All hosts as they told of themselves once, with each guest where it was placed since. So many
guests are placed, and the hosts are asked once."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from saltvirt import errors
from saltvirt.fleet import authorization, secret
from saltvirt.fleet.client import Fleet
from saltvirt.operations.cluster import (
    capacity_claims,
    failover_capacity,
    find,
    ha_provider,
    inventory,
)
from saltvirt.placement import account, choose, facts
from saltvirt.placement.policy import PlacementPolicy

if TYPE_CHECKING:
    from saltvirt.operations.create.request import InitRequest

# what a guest is called, and what it is told of itself, takes nothing of a host
_TAKES_NOTHING = ("name", "metadata")
# which address an interface has is nothing that a host is short of
_ADDRESS = re.compile(r'"(([0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}|(\d{1,3}\.){3}\d{1,3}(/\d{1,2})?)"')


class ClusterSnapshot:
    """The hosts that answered; several threads may place guests in it.

    unreachable: host to why it did not answer. files: what the files of those tell of names.
    first: a guest to place, where one is known: the hosts are asked for what it takes as well.
    keeper: by whose room they are placed. promises: what is placed is promised by them. ties: (kind
    of guest, host) to what the Keeper found.
    """

    def __init__(
        self,
        fleet: Fleet,
        policy: PlacementPolicy,
        first: InitRequest | None = None,
        provider: ha_provider.HaProvider | None = None,
        claims: capacity_claims.Claims | None = None,
    ) -> None:
        self._provider, self.claims = provider, claims
        self._capacity: ha_provider.CapacityReserve | None = None
        self.local_resources: dict[tuple[str, str], list[str]] = {}
        arguments = first.sizing_arguments() if first else None
        hosts, self.unreachable = inventory.gather(fleet, fleet.hosts(), arguments, patient=True)
        self.names_on_disk = find.NamesOnDisk([*self.unreachable])
        self._policy, self._choices = policy, choose.HostSelector(policy)
        self._cloud = {host.name: host for host in hosts}
        # what guests of a kind take of each host, and of which kind the hosts are told now
        self._kind = kind_of(first) if first else ""
        self._needs = {self._kind: {host.name: host.needs for host in hosts}}
        self._placed: dict[str, _Placement] = {}
        self._reported_hosts: set[str] = set()
        self._lock = threading.Lock()

    @property
    def hosts(self) -> list[facts.Host]:
        """As they are in the picture now."""
        return [*self._cloud.values()]

    def place_guest(
        self,
        fleet: Fleet,
        init_request: InitRequest,
        request: facts.PlacementRequest,
        excluded: Collection[str] = (),
        ha_options: Any = None,
    ) -> choose.PlacementDecision:
        """Where the guest goes. The first of the ranking has it then, in the picture, and no other
        host. excluded: hosts that have refused it. ha_options: of its Keeper."""
        with self._lock:
            self._placed.pop(request.name, None)
            self._load_needs(fleet, init_request)
            rejected = foreign_key_hosts(fleet, init_request, self._cloud)
            if self._provider and ha_options:
                rejected |= self._provider.rejected_hosts(request.name, ha_options, self.hosts)
            candidates = [
                host for name, host in self._cloud.items() if name not in {*rejected, *excluded}
            ]
            decision = self._choices.choose(candidates, request)
            decision.rejected.update(rejected)
            with capacity_claims.turn(self.claims, self._reserve(), self.hosts):
                decision = failover_capacity.best(
                    decision, self._reserve(), request, self._cloud, ha_options
                )
                if decision.ranked:
                    placed = self._record_placement(decision.ranked[0].host, request, ha_options)
                    placed.warning = decision.warning
                    if self.claims:
                        self.claims.claim(placed.host, placed.guest, init_request.ha)
            decision.rejected.update(self._silent(init_request))
            return decision

    def _silent(self, init_request: InitRequest) -> dict[str, choose.Reason]:
        """Host to why it is none for the guest: of those that did not answer."""
        return {
            host: ("down", reason)
            for host, reason in self.unreachable.items()
            if init_request.host in (None, "", host)
        }

    def host_of(self, name: str) -> str | None:
        """The host that the guest was placed on, when it is one that answers."""
        with self._lock:
            placed = self._placed.get(name)
            return placed.host if placed and placed.host in self._cloud else None

    def warning_of(self, name: str) -> str:
        """What speaks against where the guest was placed, and is only said."""
        with self._lock:
            placed = self._placed.get(name)
            return placed.warning if placed else ""

    def take_unreported(self) -> dict[str, str]:
        """The unreachable, each once: for who first wants to say so."""
        with self._lock:
            unreported = {
                host: reason
                for host, reason in self.unreachable.items()
                if host not in self._reported_hosts
            }
            self._reported_hosts.update(unreported)
            return unreported

    def terms(self, host: str) -> account.PlacementTerms:
        """What goes with a request to the host: see placement.account."""
        with self._lock:
            return account.terms(self._cloud.get(host), self._policy)

    def refresh_host(self, fleet: Fleet, host: str, guest_name: str) -> None:
        """Asks that one host again: it has refused the guest ``without``, or has it no longer. What
        was placed there besides is still to come, unless the host has it."""
        responding, unreachable = inventory.gather(fleet, [host])
        with self._lock:
            self._placed.pop(guest_name, None)
            self.unreachable.update(unreachable)
            self._cloud.pop(host, None)
            self._kind, self._capacity = "", None
            if not responding:
                return
            hosts = account.joined([*self._cloud.values(), responding[0]])
            self._cloud = {joined_host.name: joined_host for joined_host in hosts}
            present_names = {guest.name for guest in responding[0].guests}
            for placed_name, placed in self._placed.items():
                if placed.host == host and placed_name not in present_names:
                    self._cloud = placed.in_cloud(self._cloud)

    def _load_needs(self, fleet: Fleet, init_request: InitRequest) -> None:
        """Gives each host the Needs of this guest. The hosts are asked once for all guests that
        are alike."""
        kind = kind_of(init_request)
        if kind not in self._needs:
            hosts, _ = inventory.gather(
                fleet, sorted(self._cloud), init_request.sizing_arguments(), patient=True
            )
            self._needs[kind] = {host.name: host.needs for host in hosts}
        if kind != self._kind:
            needs, self._kind = self._needs[kind], kind
            for name, host in self._cloud.items():
                self._cloud[name] = replace(host, needs=needs.get(name))

    def _record_placement(
        self, host: str, request: facts.PlacementRequest, ha_options: Any
    ) -> _Placement:
        host_request = request.for_host(self._cloud[host])
        guest = facts.as_guest(host_request)
        placed = _Placement(host, replace(host_request, by_profile=False), guest, ha_options)
        self._placed[request.name] = placed
        self._cloud = placed.in_cloud(self._cloud)
        if self._capacity:
            self._capacity.take(host, guest, ha_options)
        return placed

    def _reserve(self) -> ha_provider.CapacityReserve | None:
        """What the Keeper keeps free, with all that were placed."""
        if self._provider and self._capacity is None:
            reserve = self._capacity = self._provider.capacity_reserve(self.hosts)
            for placed in self._placed.values():
                if reserve and placed.ha_options:  # the others are in the picture
                    reserve.take(placed.host, placed.guest, placed.ha_options)
        return self._capacity


class _Placement:
    """Where a guest was placed. request: with what the host's profiles make of it. wish: of its
    Keeper."""

    def __init__(
        self, host: str, request: facts.PlacementRequest, guest: facts.Guest, ha_options: Any
    ) -> None:
        self.host, self.request, self.guest, self.ha_options = host, request, guest, ha_options
        self.warning = ""

    def in_cloud(self, cloud: dict[str, facts.Host]) -> dict[str, facts.Host]:
        """The cloud with the guest on its host."""
        return account.after_placement(cloud, self.host, self.request, self.guest)


def kind_of(init_request: InitRequest) -> str:
    """Guests of one kind take the same of a host: it is asked once for all of them."""
    demand = {
        key: value
        for key, value in init_request.sizing_arguments().items()
        if key not in _TAKES_NOTHING
    }
    text = json.dumps(demand, sort_keys=True, default=str)
    return _ADDRESS.sub('"an address"', text)


def foreign_key_hosts(
    fleet: Fleet, init_request: InitRequest, hosts: Iterable[str]
) -> dict[str, choose.Reason]:
    """Host to why it is none for a guest with a key: those that hand it to another master."""
    rejected: dict[str, choose.Reason] = {}
    _, hidden = secret.split(init_request.host_arguments())
    for host in hosts if hidden or init_request.seeded else ():
        try:
            authorization.refuse_others(fleet.opts, host, init_request.name)
        except errors.Unsupported as exc:
            rejected[host] = ("syndic", exc.text)
    return rejected
