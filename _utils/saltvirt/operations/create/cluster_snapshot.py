"""Inventories of all hosts from one query, with all guests that were placed since, so that many
guests are placed without further queries."""

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

# name and metadata of a guest take no resources of a host
_TAKES_NOTHING = ("name", "metadata")
# the address of an interface takes no resources of a host
_ADDRESS = re.compile(r'"(([0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}|(\d{1,3}\.){3}\d{1,3}(/\d{1,2})?)"')


class ClusterSnapshot:
    """The hosts that answered. Several threads can place guests at a time.

    unreachable: host to why it did not answer. names_on_disk: guest names from the files of these
    hosts. first: a guest whose size is part of the query, if it is known. provider: its failover
    reserve limits the placement. claims: record each placement. local_resources: (kind of guest,
    host) to the provider's reasons.
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
        # the hosts as they answered, also those that have become unreachable
        self._answered = {host.name: host for host in hosts}
        # the responding hosts with all placed guests, as _derive_cloud derives them
        self._cloud = {**self._answered}
        # the needs of each kind of guest on each host, and the kind whose needs the hosts have now
        self._kind = kind_of(first) if first else ""
        self._needs = {self._kind: {host.name: host.needs for host in hosts}}
        self._placed: dict[str, _Placement] = {}
        self._reported_hosts: set[str] = set()
        self._lock = threading.Lock()

    @property
    def hosts(self) -> list[facts.Host]:
        """Return the hosts with all placed guests."""
        return [*self._cloud.values()]

    def responding_host(self, name: str) -> facts.Host:
        """Return the host with all placed guests. Raises Refused if it does not answer now."""
        with self._lock:
            if name not in self._cloud:
                raise errors.Refused(f"{name}: {self.unreachable.get(name, 'does not answer')}")
            return self._cloud[name]

    def place_guest(
        self,
        fleet: Fleet,
        init_request: InitRequest,
        request: facts.PlacementRequest,
        excluded: Collection[str] = (),
        ha_options: Any = None,
    ) -> choose.PlacementDecision:
        """Place the guest, and count it on the first host of the ranking. If the guest is for one
        host, the decision has no rejections of others. excluded: hosts that have refused the guest.
        ha_options: of its HaProvider."""
        with self._lock:
            if self._placed.pop(request.name, None):
                self._derive_cloud()
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
            if init_request.host:
                for host in decision.rejected.keys() - {init_request.host}:
                    del decision.rejected[host]
            return decision

    def _silent(self, init_request: InitRequest) -> dict[str, choose.Reason]:
        """Return why hosts that did not answer cannot get the guest."""
        return {
            host: ("down", reason)
            for host, reason in self.unreachable.items()
            if init_request.host in (None, "", host)
        }

    def host_of(self, name: str) -> str | None:
        """Return the host on which the guest was placed, if that host answers."""
        with self._lock:
            placed = self._placed.get(name)
            return placed.host if placed and placed.host in self._cloud else None

    def warning_of(self, name: str) -> str:
        """Return the warning of the guest's placement."""
        with self._lock:
            placed = self._placed.get(name)
            return placed.warning if placed else ""

    def take_unreported(self) -> dict[str, str]:
        """Return the unreachable hosts that were not yet returned, so that each is reported
        once."""
        with self._lock:
            unreported = {
                host: reason
                for host, reason in self.unreachable.items()
                if host not in self._reported_hosts
            }
            self._reported_hosts.update(unreported)
            return unreported

    def terms(self, host: str) -> account.PlacementTerms:
        """Return the placement terms that accompany a request to the host: see
        placement.account."""
        with self._lock:
            return account.terms(self._cloud.get(host), self._policy)

    def withdraw(self, fleet: Fleet, host: str, guest_name: str) -> None:
        """Remove the placement of a guest that the host has refused. The host is queried again if
        other guests are placed, too."""
        with self._lock:
            if self._placed.keys() <= {guest_name}:
                self._placed.clear()
                self._capacity = None
                self._derive_cloud()
                return
        self.refresh_host(fleet, host, guest_name)

    def refresh_host(self, fleet: Fleet, host: str, guest_name: str) -> None:
        """Query one host again, because it has refused the guest ``guest_name`` or no longer has
        it. Guests that were placed on the host and do not exist there yet are counted again."""
        responding, unreachable = inventory.gather(fleet, [host])
        with self._lock:
            self._placed.pop(guest_name, None)
            self.unreachable.pop(host, None)
            self.unreachable.update(unreachable)
            self._kind, self._capacity = "", None
            if responding:
                hosts = {**self._answered, host: responding[0]}
                self._answered = {item.name: item for item in account.joined(hosts.values())}
            self._derive_cloud()

    def _derive_cloud(self) -> None:
        """Derive the cloud from the answers of the hosts and the placed guests that they do not
        have yet."""
        cloud = self._answered
        for name, placed in self._placed.items():
            if all(guest.name != name for guest in cloud[placed.host].guests):
                cloud = placed.in_cloud(cloud)
        self._cloud = {name: host for name, host in cloud.items() if name not in self.unreachable}

    def _load_needs(self, fleet: Fleet, init_request: InitRequest) -> None:
        """Load the Needs of this guest on each host. One query serves all guests of a kind."""
        kind = kind_of(init_request)
        if kind not in self._needs:
            hosts, _ = inventory.gather(
                fleet, sorted(self._cloud), init_request.sizing_arguments(), patient=True
            )
            self._needs[kind] = {host.name: host.needs for host in hosts}
        if kind != self._kind:
            needs, self._kind = self._needs[kind], kind
            for hosts_by_name in (self._answered, self._cloud):
                for name, host in hosts_by_name.items():
                    hosts_by_name[name] = replace(host, needs=needs.get(name))

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
        """Return the provider's reserve with all placed guests."""
        if self._provider and self._capacity is None:
            reserve = self._capacity = self._provider.capacity_reserve(self.hosts)
            for placed in self._placed.values():
                if reserve and placed.ha_options:  # the others are in the picture
                    reserve.take(placed.host, placed.guest, placed.ha_options)
        return self._capacity


class _Placement:
    """The placement of a guest. request: with the values from the host's profiles. ha_options: of
    its HaProvider."""

    def __init__(
        self, host: str, request: facts.PlacementRequest, guest: facts.Guest, ha_options: Any
    ) -> None:
        self.host, self.request, self.guest, self.ha_options = host, request, guest, ha_options
        self.warning = ""

    def in_cloud(self, cloud: dict[str, facts.Host]) -> dict[str, facts.Host]:
        """Return the cloud with the guest on its host."""
        return account.after_placement(cloud, self.host, self.request, self.guest)


def kind_of(init_request: InitRequest) -> str:
    """Return the kind of a guest. Guests of one kind need the same resources, so one query serves
    all of them."""
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
    """Return why hosts cannot get a guest with a key: they submit keys to another master."""
    rejected: dict[str, choose.Reason] = {}
    _, hidden = secret.split(init_request.host_request())
    for host in hosts if hidden or init_request.seeded else ():
        try:
            authorization.refuse_others(fleet.opts, host, init_request.name)
        except errors.Unsupported as exc:
            rejected[host] = ("syndic", exc.text)
    return rejected
