"""The configuration that operators request, which travels with the registry: a master whose disk is
lost gets it from the hosts, and several masters agree on it through the hosts.

A leading master offers the text of its own file if no later text was agreed on since the one on
which the file is based. The offer is valid when a majority of the hosts stores it. Other masters
get it from the hosts.
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
    """Return the digest of a text. Equal digests mean equal texts."""
    return hashlib.sha256(text.encode()).hexdigest()


def with_offer(
    registry: Registry, own_config: CommittedConfig | None, version: int, sole_master: bool = False
) -> Registry:
    """Return the registry of that version, with the configuration that this master offers.
    sole_master: no other master has to agree, so the text of the master's own file is valid."""
    current = registry.config
    if own_config is None or not own_config.text or own_config.text == current.text:
        return registry
    if own_config.stamp < current.stamp and not sole_master:
        return registry
    return replace(registry, config=CommittedConfig(registry.term, version, own_config.text))


def is_blind(registry: Registry, own_config: CommittedConfig | None) -> bool:
    """Return whether the master knows no configuration while other masters exist that may know
    it."""
    return own_config is not None and not own_config.text and not registry.config.text


def host_to_ask(state: MasterState, view: View) -> str:
    """Return the host that is to send the configuration that was agreed on last, or ""."""
    if view.sole_master or view.own_config is None or state.leading_s is not None or not view.beats:
        return ""
    members = state.saved.registry.members or view.members
    stamp, text_digest = majority_config([arrived.beat for arrived in view.beats.values()], members)
    if stamp <= view.own_config.stamp:
        return ""
    hosts = [
        arrived for arrived in view.beats.values()
        if (arrived.beat.config.stamp, arrived.beat.config.digest) == (stamp, text_digest)
    ]  # fmt: skip
    return max(hosts, key=lambda arrived: arrived.at_s).beat.host


def majority_config(
    beats: Collection[Heartbeat], members: Collection[str]
) -> tuple[tuple[int, int], str]:
    """Return (stamp, digest) of the last configuration that a majority of all hosts has or had: the
    one that was agreed on. A single host that lies cannot forge what operators requested."""
    for stamp in sorted({beat.config.stamp for beat in beats}, reverse=True):
        hosts = [beat.host for beat in beats if beat.config.stamp >= stamp]
        if safety.is_enough(hosts, members, False):
            digests = collections.Counter(
                beat.config.digest for beat in beats if beat.config.stamp == stamp
            )
            return stamp, digests.most_common(1)[0][0]
    return (0, 0), ""


def find_committed(beats: Collection[Heartbeat], members: Collection[str]) -> CommittedConfig:
    """Return the committed configuration with the text that a host has sent, or an empty one.
    Agents of an older version send no digest."""
    stamp, text_digest = majority_config(beats, members)
    for beat in beats:
        config = beat.config
        if config.text and config.stamp == stamp and text_digest in ("", digest(config.text)):
            return replace(config, digest="")
    return CommittedConfig()


def merge(
    own_config: CommittedConfig, offers: tuple[str, ...], committed: CommittedConfig
) -> tuple[CommittedConfig, tuple[str, ...], bool]:
    """Return (the configuration for the file, digests of its texts that are not agreed on yet,
    whether the request of an operator was given up).

    own_config: the present content of the file. offers: ``digest`` of each text that the file has
    had since it was based on an agreed configuration; the last one is of own_config. committed: the
    configuration that was agreed on.
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
