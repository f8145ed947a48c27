"""How many are enough. Two of any of these groups have a host in common, or the master."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

# with two hosts the master, if there is no other, has a voice
THIRD = 2


def master_votes(members: Collection[str], sole_master: bool) -> bool:
    """Whether the master's own voice counts beside the hosts'."""
    return len(members) == THIRD and sole_master


def majority(members: Collection[str], sole_master: bool) -> int:
    """So many voices are more than half of all."""
    return (len(members) + master_votes(members, sole_master)) // 2 + 1


def voices(hosts: Iterable[str], members: Collection[str], sole_master: bool) -> int:
    """How many voices those hosts have, and the master who counts them."""
    return len(set(hosts) & set(members)) + master_votes(members, sole_master)


def peers_needed(members: Collection[str]) -> int:
    """So many peers make a majority with the host itself."""
    return len(members) // 2
