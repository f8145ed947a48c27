"""Has the host on which a migration was broken off end it, with what the other hosts say of its
guest: by its own and the target's libvirt that host would not find a guest that has gone on."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from saltvirt import errors
from saltvirt.answers.guests import MigrationFacts
from saltvirt.answers.migration import Recovered, UnfinishedMigration
from saltvirt.fleet import answer
from saltvirt.fleet.client import Fleet
from saltvirt.migration import transport

# the guest's name, or NAME@HOST, to its migration
Unfinished = dict[str, UnfinishedMigration]


def ended(
    fleet: Fleet,
    host: str,
    name: str,
    said: Mapping[str, MigrationFacts],
    lost: str | None = None,
    removed: bool = False,
) -> Recovered:
    """What the host answers. said: host to what it says of itself, of all that answered. lost,
    removed: see the host's ``virt.migrate_recover``. Raises as Fleet.one does."""
    asked: dict[str, Any] = {"vm_": name, **({"lost": lost} if lost else {})}
    asked |= {"removed": True} if removed else {}
    elsewhere = _elsewhere(fleet, host, name, said)
    if elsewhere:
        asked["elsewhere"] = elsewhere
    found = fleet.one(host, "virt.migrate_recover", asked, long=True)
    return Recovered.from_answer(found, host)


def unfinished(data: Any, host: str) -> Unfinished:
    """What a host answers to ``virt.migrate_unfinished``. Raises BadAnswer."""
    return {name: UnfinishedMigration.from_answer(one, host) for name, one in data.items()}


def _elsewhere(fleet: Fleet, host: str, name: str, said: Mapping[str, MigrationFacts]) -> list[str]:
    """The hosts besides the two of the migration that have its guest, under whatever name."""
    found, _ = answer.facts(fleet.ask([host], "virt.migrate_unfinished"), unfinished)
    about = found.get(host, {}).get(name)
    if about is None or about.uuid is None:
        return []
    two = {host}
    with contextlib.suppress(errors.InvalidInput):
        two.add(transport.parse(about.target).host)
    return sorted(
        one for one, its in said.items() if one not in two and about.uuid in its.uuids.values()
    )
