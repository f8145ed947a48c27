"""The placement of a guest, as a table for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from saltvirt.fleet.client import Fleet
from saltvirt.operations import inventory, keepers, reserved
from saltvirt.placement import choose, weights
from saltvirt.placement.policy import PlacementPolicy

if TYPE_CHECKING:
    from saltvirt.operations.init import InitRequest


def decide(
    fleet: Fleet,
    policy: PlacementPolicy,
    wanted: InitRequest,
    keeper: keepers.Keeper | None = None,
) -> tuple[choose.Decision, dict[str, str]]:
    """(choose.Decision, host to why it did not answer). Changes nothing. wanted: InitRequest.
    keeper: as Init has it."""
    request = wanted.request()
    wish = keepers.wish(keeper, wanted.ha, bool(wanted.start))
    hosts, unreachable = inventory.gather(fleet, fleet.hosts(), wanted.for_all())
    others = keeper.others(request.name, wish, hosts) if keeper and wish else {}
    able = [host for host in hosts if host.name not in others]
    decision = choose.choose(able, request, policy)
    decision.rejected.update(others)
    room = keeper.room(hosts) if keeper else None
    by_name = {host.name: host for host in hosts}
    return reserved.best(decision, room, request, by_name, wish), unreachable


def table(decision: choose.Decision, unreachable: dict[str, str]) -> list[list[Any]]:
    """Rows, the first the head: host, score, its parts; or the filter and the reason."""
    names = list(weights.ALL)
    rows: list[list[Any]] = [["host", "score", *names, "rejected by", "reason"]]
    for candidate in decision.ranked:
        parts = [round(candidate.parts.get(name, 0.0), 3) for name in names]
        rows.append([candidate.host, round(candidate.score, 3), *parts, "", ""])
    blank = [None] * len(names)
    for host, (fell_at, why) in sorted(decision.rejected.items()):
        rows.append([host, None, *blank, fell_at, why])
    rows += [[host, None, *blank, "down", why] for host, why in sorted(unreachable.items())]
    return rows
