"""What persons want travels with the registry: a master whose disk is lost learns it from the
hosts, and several masters agree on it so.

A master that leads offers what its own file says, if nothing was agreed on after that upon which
the file was made; it holds when a majority of the hosts keeps it. Others learn it from the hosts.
"""

from __future__ import annotations

import collections
import functools
import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

from saltvirt.ha import safety
from saltvirt.ha.registry import Registry, Wished

if TYPE_CHECKING:
    from collections.abc import Collection

    from saltvirt.ha.facts import Beat
    from saltvirt.ha.view import MasterState, View


@functools.lru_cache(maxsize=4)
def digest(text: str) -> str:
    """What stands for a text. Equal ones are of equal texts."""
    return hashlib.sha256(text.encode()).hexdigest()


def offered(registry: Registry, own: Wished | None, version: int, alone: bool = False) -> Registry:
    """The registry of that version, with what persons want at this master. alone: nobody else has
    to agree: what its own file says holds."""
    known = registry.wished
    if own is None or not own.text or own.text == known.text:
        return registry
    if own.stamp < known.stamp and not alone:
        return registry
    return replace(registry, wished=Wished(registry.term, version, own.text))


def is_blind(registry: Registry, own: Wished | None) -> bool:
    """It knows nothing of what persons want, and there are masters that may."""
    return own is not None and not own.text and not registry.wished.text


def to_ask(state: MasterState, view: View) -> str:
    """The host that is to tell what was agreed on last, or nothing."""
    if view.alone or view.wished is None or state.leading_s is not None or not view.beats:
        return ""
    members = state.kept.registry.members or view.members
    stamp, found = known_by_most([one.beat for one in view.beats.values()], members)
    if stamp <= view.wished.stamp:
        return ""
    hosts = [
        one for one in view.beats.values()
        if (one.beat.wished.stamp, one.beat.wished.digest) == (stamp, found)
    ]  # fmt: skip
    return max(hosts, key=lambda one: one.at_s).beat.host


def known_by_most(beats: Collection[Beat], members: Collection[str]) -> tuple[tuple[int, int], str]:
    """(The stamp, the digest) of the last that a majority of all hosts has, or has had: what was
    agreed on. A host that lies, alone, makes no wish of a person."""
    for stamp in sorted({one.wished.stamp for one in beats}, reverse=True):
        hosts = [one.host for one in beats if one.wished.stamp >= stamp]
        if safety.is_enough(hosts, members, False):
            found = collections.Counter(
                one.wished.digest for one in beats if one.wished.stamp == stamp
            )
            return stamp, found.most_common(1)[0][0]
    return (0, 0), ""


def agreed(beats: Collection[Beat], members: Collection[str]) -> Wished:
    """The text of that which hosts have sent, or nothing. Agents of a version before tell no
    digest."""
    stamp, found = known_by_most(beats, members)
    for one in beats:
        wished = one.wished
        if wished.text and wished.stamp == stamp and found in ("", digest(wished.text)):
            return replace(wished, digest="")
    return Wished()


def learned(
    own: Wished, offers: tuple[str, ...], news: Wished
) -> tuple[Wished, tuple[str, ...], bool]:
    """(What the file is to say, what of it nobody agreed on yet, whether a wish was given up).

    own: what it says. offers: ``digest`` of every text that it has had since it was made upon what
    was agreed on, of its own the last one. news: what was agreed on.
    """
    if not news.text or news.stamp < own.stamp:
        return own, offers, False
    if own.text == news.text:
        return news, (), False
    if digest(news.text) in offers:
        later = offers[offers.index(digest(news.text)) + 1 :]
        return replace(news, text=own.text), later, False
    return (own, offers, False) if news.stamp == own.stamp else (news, (), bool(offers))
