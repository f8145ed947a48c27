"""Find hosts on which a guest would use capacity that is reserved for failover."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from saltvirt import errors
from saltvirt.fleet.client import Fleet
from saltvirt.operations.cluster import ha_provider, inventory
from saltvirt.placement import choose, facts
from saltvirt.rights import confidential

# the name of this check in placement results, like that of a filter
FILTER = "reserve"


def best(
    decision: choose.PlacementDecision,
    reserve: ha_provider.CapacityReserve | None,
    request: facts.PlacementRequest,
    hosts: Mapping[str, facts.Host],
    ha_options: Any = None,
) -> choose.PlacementDecision:
    """Return the Decision with the first host on which the guest keeps the reserve intact. Hosts
    ranked before it are rejected. If the reserve only warns, they come last; if all hosts break it,
    the order is unchanged and the Decision has the warning.

    Hosts ranked after it are not checked: call this again before you try the next one.
    """
    if reserve is None or not decision.ranked:
        return decision
    refusals: dict[str, str] = {}
    for position, candidate in enumerate(decision.ranked):
        guest = facts.as_guest(request.for_host(hosts[candidate.host]))
        refusal = reserve.refusal(candidate.host, guest, ha_options)
        if not refusal:
            last = decision.ranked[:position] if reserve.warns else ()
            rejected = {} if reserve.warns else _rejected(refusals)
            return choose.PlacementDecision(
                (*decision.ranked[position:], *last), {**decision.rejected, **rejected}
            )
        refusals[candidate.host] = _broken("it", refusal)
    if reserve.warns:
        return replace(decision, warning=refusals[decision.ranked[0].host])
    return choose.PlacementDecision((), {**decision.rejected, **_rejected(refusals)})


def filter_moves(
    decision: choose.PlacementDecision,
    reserve: ha_provider.CapacityReserve | None,
    guest: facts.Guest,
    first: str | None = None,
) -> tuple[choose.PlacementDecision, dict[str, str]]:
    """Return (the Decision without hosts on which a migrated guest breaks the reserve, host to
    warning). first: the host that the operator named; of the other hosts, only those ranked before
    the first intact one are checked."""
    if reserve is None:
        return decision, {}
    refusals: dict[str, str] = {}
    for candidate in sorted(decision.ranked, key=lambda entry: entry.host != first):
        refusal = reserve.refusal(candidate.host, guest)
        if refusal:
            refusals[candidate.host] = _broken("it", refusal)
        elif candidate.host != first:
            break
    unbroken = [entry for entry in decision.ranked if entry.host not in refusals]
    last = [entry for entry in decision.ranked if entry.host in refusals]
    if reserve.warns:
        return replace(decision, ranked=(*unbroken, *last)), refusals
    rejected = {**decision.rejected, **_rejected(refusals)}
    return choose.PlacementDecision(tuple(unbroken), rejected), {}


def spare_reserve(
    decision: choose.PlacementDecision,
    reserve: ha_provider.CapacityReserve | None,
    guest: facts.Guest,
) -> choose.PlacementDecision:
    """Return the Decision with a host on which a guest that must move keeps the reserve intact, if
    one exists, and count the guest there."""
    if reserve is None or not decision.ranked:
        return decision
    ranked = [*decision.ranked]
    chosen = next(
        (candidate for candidate in ranked if not reserve.refusal(candidate.host, guest)), ranked[0]
    )
    reserve.take(chosen.host, guest)
    return replace(
        decision, ranked=(chosen, *(candidate for candidate in ranked if candidate is not chosen))
    )


def on_current_host(
    provider: ha_provider.HaProvider | None,
    fleet: Fleet,
    host: str,
    name: str,
    clone_name: str | None = None,
    runs: bool = True,
) -> str:
    """Return the warning if starting or copying a guest on its host breaks the reserve, or "".
    clone_name: the name of the copy. runs: whether the guest will run. Raises Refused if the
    reserve is enforced."""
    if provider is None or not provider.has_reserve:
        return ""
    hosts, _ = inventory.gather(fleet)
    reserve = provider.capacity_reserve(hosts)
    host_guests = [guest for entry in hosts if entry.name == host for guest in entry.guests]
    guest = next((guest for guest in host_guests if guest.name == name), None)
    if reserve is None or guest is None:  # its host says what is wrong
        return ""
    state = "running" if runs else guest.state
    refusal = reserve.refusal(host, replace(guest, name=clone_name or name, state=state))
    message = _broken(f"{clone_name or name} on {host}", refusal)
    if refusal and not reserve.warns:
        raise errors.Refused(f"{message}; overcommit=True ignores that")
    return message if refusal else ""


def _broken(subject: str, detail: str) -> str:
    """Return the sentence about the broken reserve; its details name guests of other users."""
    return (
        f"{subject} would violate virt:ha:reserve: "
        f"{confidential.sensitive(detail, confidential.ROOM)}"
    )


def _rejected(refusals: Mapping[str, str]) -> dict[str, choose.Reason]:
    return {host: (FILTER, reason) for host, reason in refusals.items()}
