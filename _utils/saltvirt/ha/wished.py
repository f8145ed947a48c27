"""What persons want travels with the registry: a master whose disk is lost learns it from the
hosts, and several masters agree on it so.

A master that leads offers what its own file says, if nothing was agreed on after that upon which
the file was made; it holds when a majority of the hosts keeps it. Others learn it from the hosts.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

from saltvirt.ha.registry import Registry, Wished

if TYPE_CHECKING:
    from saltvirt.ha.view import MasterState, View


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
    last = max(view.beats.values(), key=lambda one: (one.beat.wished.stamp, one.at_s)).beat
    return last.host if last.wished.stamp > view.wished.stamp else ""


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
