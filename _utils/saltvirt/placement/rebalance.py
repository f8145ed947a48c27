"""Find moves that balance the cloud. Each move is simulated before the next one is chosen.

The score is the standard deviation of the promised fractions of memory and of vCPUs over the hosts,
weighted 1 and 0.5 as in Ganeti's balancer. The threshold and the minimum gain per move prevent
guests from moving back and forth.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import pstdev
from typing import TYPE_CHECKING

from saltvirt.placement import account, choose, facts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from saltvirt.placement.facts import Guest, Host
    from saltvirt.placement.policy import PlacementPolicy

THRESHOLD = 0.1
LEAST_GAIN = 0.01
# only the fullest and the emptiest hosts are considered, so that a plan for 1,250 hosts takes
# little time
EDGE = 8


@dataclass(frozen=True)
class RebalanceMove:
    """A move of one guest to another host; before and after are the cloud's scores."""

    guest: str
    source: str
    target: str
    before: float
    after: float


def score(hosts: Sequence[Host], policy: PlacementPolicy) -> float:
    """The imbalance of the hosts; 0 is balanced. Memory counts twice as much as vCPUs."""
    if len(hosts) < 2:
        return 0.0
    memory = [_fraction(h.used(policy, "memory_kib"), h.capacity_memory_kib(policy)) for h in hosts]
    vcpus = [_fraction(h.used(policy, "vcpus"), h.capacity_vcpus(policy)) for h in hosts]
    return pstdev(memory) + 0.5 * pstdev(vcpus)


def _fraction(used: float, capacity: float) -> float:
    return used / capacity if capacity else 0.0


def plan(
    hosts: Iterable[Host],
    policy: PlacementPolicy,
    threshold: float = THRESHOLD,
    max_moves: int = 50,
    pinned: Collection[str] = (),
) -> list[RebalanceMove]:
    """The moves in their order; none if the score is below the threshold or no move gains enough.

    hosts: those in maintenance are ignored. max_moves: limit. pinned: guests that do not move. No
    guest moves twice.
    """
    cloud = {host.name: host for host in hosts if not host.maintenance}
    moves: list[RebalanceMove] = []
    now = score(list(cloud.values()), policy)
    while now > threshold and len(moves) < max_moves:
        best = _best(cloud, policy, now, {*pinned, *(move.guest for move in moves)})
        if best is None or now - best.after < LEAST_GAIN:
            break
        moves.append(best)
        cloud = apply_move(cloud, best)
        now = best.after
    return moves


def apply_move(cloud: dict[str, Host], move: RebalanceMove) -> dict[str, Host]:
    """The cloud (name to Host) after the move. The disks still count on the source, where they are
    deleted only after the move."""
    source = cloud[move.source]
    guest = next(g for g in source.guests if g.name == move.guest)
    other_guests = tuple(g for g in source.guests if g.name != move.guest)
    cloud_after = account.after_placement(cloud, move.target, facts.of_guest(guest, source), guest)
    return {**cloud_after, source.name: replace(cloud_after[source.name], guests=other_guests)}


def _best(
    cloud: dict[str, Host], policy: PlacementPolicy, now: float, pinned: Collection[str]
) -> RebalanceMove | None:
    by_load = sorted(
        cloud.values(), key=lambda h: _fraction(h.used(policy, "memory_kib"), h.memory_kib)
    )
    moves = [
        move
        for source in by_load[-EDGE:]
        for guest in source.guests
        if guest.state == "running" and guest.name not in pinned
        for move in _moves(guest, source, by_load[:EDGE], cloud, policy, now)
    ]
    best_score = min((move.after for move in moves), default=0.0)
    # a move with less data to copy must gain enough, too, because the plan would end otherwise
    close_moves = [
        move
        for move in moves
        if move.after - best_score < LEAST_GAIN and now - move.after >= LEAST_GAIN
    ]
    copied = {guest.name: _copied_bytes(guest) for host in by_load for guest in host.guests}
    return min(
        close_moves, key=lambda m: (copied[m.guest], m.after, m.guest, m.target), default=None
    )


def _copied_bytes(guest: Guest) -> int:
    """The maximum size of the guest's disks that would be copied."""
    return sum(disk.size_bytes for disk in guest.disks if not disk.shared)


def _moves(
    guest: Guest,
    source: Host,
    targets: Iterable[Host],
    cloud: dict[str, Host],
    policy: PlacementPolicy,
    now: float,
) -> Iterator[RebalanceMove]:
    request = facts.of_guest(guest, source)
    for target in targets:
        if target is source or choose.first_reason(target, request, policy):
            continue
        move = RebalanceMove(guest.name, source.name, target.name, now, 0.0)
        after = score(list(apply_move(cloud, move).values()), policy)
        yield replace(move, after=after)
