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

from saltvirt.ha.model import safety
from saltvirt.ha.model.registry import CommittedConfig, Registry

if TYPE_CHECKING:
    from collections.abc import Collection

    from saltvirt.ha.model.messages import Heartbeat
    from saltvirt.ha.model.view import MasterState, View


@functools.lru_cache(maxsize=4)
def digest(text: str) -> str:
    """What stands for a text. Equal ones are of equal texts."""
    return hashlib.sha256(text.encode()).hexdigest()


def with_offer(
    registry: Registry, own_config: CommittedConfig | None, version: int, sole_master: bool = False
) -> Registry:
    """The registry of that version, with what persons want at this master. sole_master: nobody else
    has
    to agree: what its own file says holds."""
    current = registry.wished
    if own_config is None or not own_config.text or own_config.text == current.text:
        return registry
    if own_config.stamp < current.stamp and not sole_master:
        return registry
    return replace(registry, wished=CommittedConfig(registry.term, version, own_config.text))


def is_blind(registry: Registry, own_config: CommittedConfig | None) -> bool:
    """It knows nothing of what persons want, and there are masters that may."""
    return own_config is not None and not own_config.text and not registry.wished.text


def host_to_ask(state: MasterState, view: View) -> str:
    """The host that is to tell what was agreed on last, or nothing."""
    if view.sole_master or view.own_config is None or state.leading_s is not None or not view.beats:
        return ""
    members = state.saved.registry.members or view.members
    stamp, text_digest = majority_config([arrived.beat for arrived in view.beats.values()], members)
    if stamp <= view.own_config.stamp:
        return ""
    hosts = [
        arrived for arrived in view.beats.values()
        if (arrived.beat.wished.stamp, arrived.beat.wished.digest) == (stamp, text_digest)
    ]  # fmt: skip
    return max(hosts, key=lambda arrived: arrived.at_s).beat.host


def majority_config(
    beats: Collection[Heartbeat], members: Collection[str]
) -> tuple[tuple[int, int], str]:
    """(The stamp, the digest) of the last that a majority of all hosts has, or has had: what was
    agreed on. A host that lies, alone, makes no wish of a person."""
    for stamp in sorted({beat.wished.stamp for beat in beats}, reverse=True):
        hosts = [beat.host for beat in beats if beat.wished.stamp >= stamp]
        if safety.is_enough(hosts, members, False):
            digests = collections.Counter(
                beat.wished.digest for beat in beats if beat.wished.stamp == stamp
            )
            return stamp, digests.most_common(1)[0][0]
    return (0, 0), ""


def find_committed(beats: Collection[Heartbeat], members: Collection[str]) -> CommittedConfig:
    """The text of that which hosts have sent, or nothing. Agents of a version before tell no
    digest."""
    stamp, text_digest = majority_config(beats, members)
    for beat in beats:
        config = beat.wished
        if config.text and config.stamp == stamp and text_digest in ("", digest(config.text)):
            return replace(config, digest="")
    return CommittedConfig()


def merge(
    own_config: CommittedConfig, offers: tuple[str, ...], committed: CommittedConfig
) -> tuple[CommittedConfig, tuple[str, ...], bool]:
    """(What the file is to say, what of it nobody agreed on yet, whether a wish was given up).

    own_config: what it says. offers: ``digest`` of every text that it has had since it was made
    upon what
    was agreed on, of its own the last one. committed: what was agreed on.
    """
    if not committed.text or committed.stamp < own_config.stamp:
        return own_config, offers, False
    if own_config.text == committed.text:
        return committed, (), False
    if digest(committed.text) in offers:
        later = offers[offers.index(digest(committed.text)) + 1 :]
        return replace(committed, text=own_config.text), later, False
    return (
        (own_config, offers, False)
        if committed.stamp == own_config.stamp
        else (committed, (), bool(offers))
    )
