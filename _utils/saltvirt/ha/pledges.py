"""What a host has last said of itself, as far as the leader may believe it.

A host's own beat proves who speaks; what others tell of a silent host does not. So another host's
word can take away a proof, but only the same word of a majority can make one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from saltvirt.ha import facts, safety
from saltvirt.ha.facts import OVER, WORKING, Pledge
from saltvirt.ha.policy import Terms

if TYPE_CHECKING:
    from saltvirt.ha.view import MasterState, View


def of(name: str, state: MasterState, view: View) -> Pledge:
    """The pledge of a host: the last that it said to this master; of a silent host also what it
    said to others since, in the boot that the registry has."""
    own = state.kept.pledges.get(name, Pledge())
    registry = state.kept.registry
    if not registry.is_asked_about(name):
        return own
    boot = registry.host(name).boot
    told = {
        peer: word
        for peer, arrived in view.beats.items()
        if peer != name
        and (word := arrived.beat.pledges.get(name)) is not None
        and word.boot == boot
        and facts.order(word) > facts.order(own)
    }
    if not told:
        return own
    if safety.may_believe(told, registry.members):
        return weakest([*told.values()])
    return weakest([*told.values(), own if own.boot == boot else Pledge(boot)])


def weakest(words: list[Pledge]) -> Pledge:
    """The pledge by which the least is proven."""
    first = words[0]
    alike = all(one.terms == first.terms for one in words)
    return replace(
        first,
        armed=all(one.armed for one in words),
        watchdog_s=max(one.watchdog_s for one in words),
        phase=OVER if all(one.phase == OVER for one in words) else WORKING,
        freeze=any(one.freeze for one in words),
        terms=first.terms if alike else Terms(),
    )
