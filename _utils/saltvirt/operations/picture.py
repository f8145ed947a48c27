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
from saltvirt.operations import find, inventory, keepers, promised, reserved
from saltvirt.placement import account, choose, facts
from saltvirt.placement.policy import PlacementPolicy

if TYPE_CHECKING:
    from saltvirt.operations.init import InitRequest

# what a guest is called, and what it is told of itself, takes nothing of a host
_TAKES_NOTHING = ("name", "metadata")
# which address an interface has is nothing that a host is short of
_ADDRESS = re.compile(r'"(([0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}|(\d{1,3}\.){3}\d{1,3}(/\d{1,2})?)"')


class Picture:
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
        keeper: keepers.Keeper | None = None,
        promises: promised.Promises | None = None,
    ) -> None:
        self._keeper, self.promises = keeper, promises
        self._room: keepers.Room | None = None
        self.ties: dict[tuple[str, str], list[str]] = {}
        asked = first.for_all() if first else None
        hosts, self.unreachable = inventory.gather(fleet, fleet.hosts(), asked, patient=True)
        self.files = find.Files([*self.unreachable])
        self._policy, self._choices = policy, choose.Choices(policy)
        self._cloud = {host.name: host for host in hosts}
        # what guests of a kind take of each host, and of which kind the hosts are told now
        self._kind = kind_of(first) if first else ""
        self._needs = {self._kind: {host.name: host.needs for host in hosts}}
        self._placed: dict[str, _Placed] = {}
        self._told: set[str] = set()
        self._lock = threading.Lock()

    @property
    def hosts(self) -> list[facts.Host]:
        """As they are in the picture now."""
        return [*self._cloud.values()]

    def place(
        self,
        fleet: Fleet,
        wanted: InitRequest,
        request: facts.PlacementRequest,
        but: Collection[str] = (),
        wish: Any = None,
    ) -> choose.Decision:
        """Where the guest goes. The first of the ranking has it then, in the picture, and no other
        host. but: hosts that have refused it. wish: of its Keeper."""
        with self._lock:
            self._placed.pop(request.name, None)
            self._look(fleet, wanted)
            others = others_keys(fleet, wanted, self._cloud)
            if self._keeper and wish:
                others |= self._keeper.others(request.name, wish, self.hosts)
            able = [host for name, host in self._cloud.items() if name not in {*others, *but}]
            decision = self._choices.choose(able, request)
            decision.rejected.update(others)
            with promised.turn(self.promises, self._reserve(), self.hosts):
                decision = reserved.best(decision, self._reserve(), request, self._cloud, wish)
                if decision.ranked:
                    placed = self._take(decision.ranked[0].host, request, wish)
                    placed.warning = decision.warning
                    if self.promises:
                        self.promises.make(placed.host, placed.guest, wanted.ha)
            decision.rejected.update(self._silent(wanted))
            return decision

    def _silent(self, wanted: InitRequest) -> dict[str, choose.Reason]:
        """Host to why it is none for the guest: of those that did not answer."""
        return {
            host: ("down", why)
            for host, why in self.unreachable.items()
            if wanted.host in (None, "", host)
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

    def untold(self) -> dict[str, str]:
        """The unreachable, each once: for who first wants to say so."""
        with self._lock:
            found = {host: why for host, why in self.unreachable.items() if host not in self._told}
            self._told.update(found)
            return found

    def terms(self, host: str) -> account.PlacementTerms:
        """What goes with a request to the host: see placement.account."""
        with self._lock:
            return account.terms(self._cloud.get(host), self._policy)

    def look_again(self, fleet: Fleet, host: str, without: str) -> None:
        """Asks that one host again: it has refused the guest ``without``, or has it no longer. What
        was placed there besides is still to come, unless the host has it."""
        found, unreachable = inventory.gather(fleet, [host])
        with self._lock:
            self._placed.pop(without, None)
            self.unreachable.update(unreachable)
            self._cloud.pop(host, None)
            self._kind, self._room = "", None
            if not found:
                return
            hosts = account.joined([*self._cloud.values(), found[0]])
            self._cloud = {one.name: one for one in hosts}
            there = {guest.name for guest in found[0].guests}
            for other, placed in self._placed.items():
                if placed.host == host and other not in there:
                    self._cloud = placed.in_cloud(self._cloud)

    def _look(self, fleet: Fleet, wanted: InitRequest) -> None:
        """Gives each host the Needs of this guest. The hosts are asked once for all guests that
        are alike."""
        kind = kind_of(wanted)
        if kind not in self._needs:
            hosts, _ = inventory.gather(fleet, sorted(self._cloud), wanted.for_all(), patient=True)
            self._needs[kind] = {host.name: host.needs for host in hosts}
        if kind != self._kind:
            needs, self._kind = self._needs[kind], kind
            for name, host in self._cloud.items():
                self._cloud[name] = replace(host, needs=needs.get(name))

    def _take(self, host: str, request: facts.PlacementRequest, wish: Any) -> _Placed:
        asked = request.at(self._cloud[host])
        guest = facts.as_guest(asked)
        placed = _Placed(host, replace(asked, by_profile=False), guest, wish)
        self._placed[request.name] = placed
        self._cloud = placed.in_cloud(self._cloud)
        if self._room:
            self._room.take(host, guest, wish)
        return placed

    def _reserve(self) -> keepers.Room | None:
        """What the Keeper keeps free, with all that were placed."""
        if self._keeper and self._room is None:
            room = self._room = self._keeper.room(self.hosts)
            for placed in self._placed.values():
                if room and placed.wish:  # the others are in the picture
                    room.take(placed.host, placed.guest, placed.wish)
        return self._room


class _Placed:
    """Where a guest was placed. request: with what the host's profiles make of it. wish: of its
    Keeper."""

    def __init__(
        self, host: str, request: facts.PlacementRequest, guest: facts.Guest, wish: Any
    ) -> None:
        self.host, self.request, self.guest, self.wish = host, request, guest, wish
        self.warning = ""

    def in_cloud(self, cloud: dict[str, facts.Host]) -> dict[str, facts.Host]:
        """The cloud with the guest on its host."""
        return account.taken(cloud, self.host, self.request, self.guest)


def kind_of(wanted: InitRequest) -> str:
    """Guests of one kind take the same of a host: it is asked once for all of them."""
    takes = {key: value for key, value in wanted.for_all().items() if key not in _TAKES_NOTHING}
    text = json.dumps(takes, sort_keys=True, default=str)
    return _ADDRESS.sub('"an address"', text)


def others_keys(
    fleet: Fleet, wanted: InitRequest, hosts: Iterable[str]
) -> dict[str, choose.Reason]:
    """Host to why it is none for a guest with a key: those that hand it to another master."""
    found: dict[str, choose.Reason] = {}
    _, hidden = secret.split(wanted.for_host())
    for host in hosts if hidden or wanted.seeded else ():
        try:
            authorization.refuse_others(fleet.opts, host, wanted.name)
        except errors.Unsupported as exc:
            found[host] = ("syndic", exc.text)
    return found
