"""Hosts on which a guest would take room that is kept for the loss of others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from saltvirt import confidential, errors
from saltvirt.fleet.client import Fleet
from saltvirt.operations import inventory, keepers
from saltvirt.placement import choose, facts

# what says so, as placement's filters have names
FILTER = "reserve"


def best(
    decision: choose.Decision,
    room: keepers.Room | None,
    request: facts.PlacementRequest,
    hosts: Mapping[str, facts.Host],
    wish: Any = None,
) -> choose.Decision:
    """The Decision that begins with a host on which the guest breaks nothing. Those before it are
    rejected. Where only a warning is wanted they come last, and if all break it the first stays,
    with the warning.

    Those after it were not looked at: who goes on to the next calls this again.
    """
    if room is None or not decision.ranked:
        return decision
    broken: dict[str, str] = {}
    for place, candidate in enumerate(decision.ranked):
        guest = facts.as_guest(request.at(hosts[candidate.host]))
        why = room.refusal(candidate.host, guest, wish)
        if not why:
            last = decision.ranked[:place] if room.warns else ()
            rejected = {} if room.warns else _rejected(broken)
            return choose.Decision(
                (*decision.ranked[place:], *last), {**decision.rejected, **rejected}
            )
        broken[candidate.host] = _broken("it", why)
    if room.warns:
        return replace(decision, warning=broken[decision.ranked[0].host])
    return choose.Decision((), {**decision.rejected, **_rejected(broken)})


def each(
    decision: choose.Decision,
    room: keepers.Room | None,
    guest: facts.Guest,
    first: str | None = None,
) -> tuple[choose.Decision, dict[str, str]]:
    """(the Decision without the hosts on which a guest that moves breaks anything, host to what is
    only said of it). first: a host that a person has named: of the others only those are looked at
    that come before one on which nothing is broken."""
    if room is None:
        return decision, {}
    broken: dict[str, str] = {}
    for candidate in sorted(decision.ranked, key=lambda one: one.host != first):
        why = room.refusal(candidate.host, guest)
        if why:
            broken[candidate.host] = _broken("it", why)
        elif candidate.host != first:
            break
    whole = [one for one in decision.ranked if one.host not in broken]
    last = [one for one in decision.ranked if one.host in broken]
    if room.warns:
        return replace(decision, ranked=(*whole, *last)), broken
    rejected = {**decision.rejected, **_rejected(broken)}
    return choose.Decision(tuple(whole), rejected), {}


def sparing(
    decision: choose.Decision, room: keepers.Room | None, guest: facts.Guest
) -> choose.Decision:
    """The Decision that begins with a host on which a guest that must move breaks nothing, if there
    is one: it has that then."""
    if room is None or not decision.ranked:
        return decision
    ranked = [*decision.ranked]
    best = next((one for one in ranked if not room.refusal(one.host, guest)), ranked[0])
    room.take(best.host, guest)
    return replace(decision, ranked=(best, *(one for one in ranked if one is not best)))


def on_its_host(
    keeper: keepers.Keeper | None,
    fleet: Fleet,
    host: str,
    name: str,
    copy: str | None = None,
    runs: bool = True,
) -> str:
    """What it would break that a guest of the host starts, or is copied there, where that is only
    said; else nothing. copy: the name of the copy. runs: it will run. Raises Refused."""
    if keeper is None or not keeper.keeps_room:
        return ""
    hosts, _ = inventory.gather(fleet)
    room = keeper.room(hosts)
    found = [guest for one in hosts if one.name == host for guest in one.guests]
    guest = next((guest for guest in found if guest.name == name), None)
    if room is None or guest is None:  # its host says what is wrong
        return ""
    state = "running" if runs else guest.state
    why = room.refusal(host, replace(guest, name=copy or name, state=state))
    words = _broken(f"{copy or name} on {host}", why)
    if why and not room.warns:
        raise errors.Refused(f"{words}; overcommit=True does it all the same")
    return words if why else ""


def _broken(what: str, why: str) -> str:
    """The sentence about what breaks the reserve; why names the guests of others."""
    return f"{what} would break virt:ha:reserve: {confidential.part(why, confidential.ROOM)}"


def _rejected(broken: Mapping[str, str]) -> dict[str, choose.Reason]:
    return {host: (FILTER, why) for host, why in broken.items()}
