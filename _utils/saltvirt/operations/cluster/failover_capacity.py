"""Hosts on which a guest would take room that is kept for the loss of others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from saltvirt import errors
from saltvirt.fleet.client import Fleet
from saltvirt.operations.cluster import ha_provider, inventory
from saltvirt.placement import choose, facts
from saltvirt.rights import confidential

# what says so, as placement's filters have names
FILTER = "reserve"


def best(
    decision: choose.PlacementDecision,
    reserve: ha_provider.CapacityReserve | None,
    request: facts.PlacementRequest,
    hosts: Mapping[str, facts.Host],
    ha_options: Any = None,
) -> choose.PlacementDecision:
    """The Decision that begins with a host on which the guest breaks nothing. Those before it are
    rejected. Where only a warning is wanted they come last, and if all break it the first stays,
    with the warning.

    Those after it were not looked at: who goes on to the next calls this again.
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
    """(the Decision without the hosts on which a guest that moves breaks anything, host to what is
    only said of it). first: a host that a person has named: of the others only those are looked at
    that come before one on which nothing is broken."""
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
    """The Decision that begins with a host on which a guest that must move breaks nothing, if there
    is one: it has that then."""
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
    """What it would break that a guest of the host starts, or is copied there, where that is only
    said; else nothing. clone_name: the name of the copy. runs: it will run. Raises Refused."""
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
        raise errors.Refused(f"{message}; overcommit=True does it all the same")
    return message if refusal else ""


def _broken(subject: str, detail: str) -> str:
    """The sentence about what breaks the reserve; why names the guests of others."""
    return (
        f"{subject} would break virt:ha:reserve: "
        f"{confidential.sensitive(detail, confidential.ROOM)}"
    )


def _rejected(refusals: Mapping[str, str]) -> dict[str, choose.Reason]:
    return {host: (FILTER, reason) for host, reason in refusals.items()}
