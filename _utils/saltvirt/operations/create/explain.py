"""Show the placement of a guest as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from saltvirt.fleet.client import Fleet
from saltvirt.operations.cluster import failover_capacity, ha_provider, inventory
from saltvirt.placement import choose, weights
from saltvirt.placement.policy import PlacementPolicy

if TYPE_CHECKING:
    from saltvirt.operations.create.request import InitRequest


def decide(
    fleet: Fleet,
    policy: PlacementPolicy,
    init_request: InitRequest,
    provider: ha_provider.HaProvider | None = None,
) -> tuple[choose.PlacementDecision, dict[str, str]]:
    """Return (Decision, host to why it did not answer). Changes nothing. provider: as for Init."""
    request = init_request.request()
    ha_options = init_request.ha_options(provider)
    hosts, unreachable = inventory.gather(fleet, fleet.hosts(), init_request.sizing_arguments())
    ha_rejected = (
        provider.rejected_hosts(request.name, ha_options, hosts) if provider and ha_options else {}
    )
    able = [host for host in hosts if host.name not in ha_rejected]
    decision = choose.choose(able, request, policy)
    decision.rejected.update(ha_rejected)
    reserve = provider.capacity_reserve(hosts) if provider else None
    by_name = {host.name: host for host in hosts}
    return failover_capacity.best(decision, reserve, request, by_name, ha_options), unreachable


# the components of a score are left out on a narrow terminal, the most important one last
COLUMNS = {name: {"drop": number} for number, name in enumerate(reversed(weights.ALL))}


def table(decision: choose.PlacementDecision, unreachable: dict[str, str]) -> list[list[Any]]:
    """Return the rows with a header: host, score and its parts; or the filter and its reason."""
    names = list(weights.ALL)
    rows: list[list[Any]] = [["host", "score", *names, "rejected by", "reason"]]
    for candidate in decision.ranked:
        parts = [round(candidate.parts.get(name, 0.0), 3) for name in names]
        rows.append([candidate.host, round(candidate.score, 3), *parts, "", ""])
    blank = [None] * len(names)
    for host, (filter_name, reason) in sorted(decision.rejected.items()):
        rows.append([host, None, *blank, filter_name, reason])
    rows += [[host, None, *blank, "down", reason] for host, reason in sorted(unreachable.items())]
    return rows
