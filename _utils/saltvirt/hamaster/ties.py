"""Guests that were free to run elsewhere when they were given to high availability, and whose
definition has tied them to their host since: a disk of its own storage was added, a device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from xml.etree import ElementTree

from saltvirt.ha.registry import GuestRecord, Registry
from saltvirt.ha.view import Tied
from saltvirt.hamaster import suits
from saltvirt.hamaster.definitions import Definition
from saltvirt.placement.facts import Host


@dataclass(frozen=True)
class _Seen:
    digest: str
    room: Host
    tied: Tied | None


class Ties:
    """What was found of each guest; found anew when its definition or its host changes, and for
    one that is tied whenever its host tells of its storage."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def look(
        self, definitions: Iterable[Definition], registry: Registry, rooms: Mapping[str, Host]
    ) -> dict[str, Tied]:
        """By the guests' names."""
        old, self._seen = self._seen, {}
        for one in definitions:
            seen = old.get(one.name)
            room = rooms.get(_host(registry.guests.get(one.name)))
            if room is not None and not _holds(seen, one, room):
                seen = _Seen(one.digest, room, _tied(one, room))
            if seen is not None:
                self._seen[one.name] = seen
        return {name: seen.tied for name, seen in self._seen.items() if seen.tied}


def _host(record: GuestRecord | None) -> str:
    """Where it is, or was last."""
    if record is None:
        return ""
    places = {place.host for place in record.places}
    return places.pop() if len(places) == 1 else record.last


def _holds(seen: _Seen | None, one: Definition, room: Host) -> bool:
    if seen is None or (seen.digest, seen.room.name) != (one.digest, room.name):
        return False
    return seen.tied is None or seen.room is room


def _tied(one: Definition, room: Host) -> Tied | None:
    why = list(suits.reasons(ElementTree.fromstring(one.xml), room, {}))
    return Tied(room.name, "; ".join(why)) if why else None
