"""The number of voices that is enough. Any two groups that are large enough have a host in common,
or the master."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

# with two hosts, the master has a voice if no other master exists
THIRD = 2


def master_votes(members: Collection[str], sole_master: bool) -> bool:
    """Return whether the master's own voice counts in addition to those of the hosts."""
    return len(members) == THIRD and sole_master


def majority(members: Collection[str], sole_master: bool) -> int:
    """Return the smallest number of voices that is more than half of all."""
    return (len(members) + master_votes(members, sole_master)) // 2 + 1


def voices(hosts: Iterable[str], members: Collection[str], sole_master: bool) -> int:
    """Return the number of voices of those hosts and of the master that counts them."""
    return len(set(hosts) & set(members)) + master_votes(members, sole_master)


def peers_needed(members: Collection[str]) -> int:
    """Return the number of peers that form a majority together with the host itself."""
    return len(members) // 2
