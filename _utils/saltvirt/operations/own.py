"""Whose guests are whose: shown, and said by those who have the master."""

from __future__ import annotations

from typing import Any

from saltvirt import errors, names, units
from saltvirt.fleet.client import Fleet
from saltvirt.operations import find, inventory, owners
from saltvirt.operations.operation import Checked, Reasons, Result
from saltvirt.placement import facts
from saltvirt.rights import grants


def _all(fleet: Fleet) -> tuple[find.Locations, dict[str, facts.Guest]]:
    """(which host has which guest, the guests by name), by what all hosts say."""
    hosts, unreachable = inventory.gather(fleet)
    guests = {host.name: {one.name: one for one in host.guests} for host in hosts}
    states = {
        host: {name: one.state for name, one in there.items()} for host, there in guests.items()
    }
    everyone = {name: one for there in guests.values() for name, one in there.items()}
    return find.Locations(find.by_name(states), unreachable), everyone


class Own:
    """Writes down whose a guest is; owner None: nobody's who is limited."""

    def __init__(self, fleet: Fleet, name: str, owner: object) -> None:
        self.fleet, self.name, self.owner = fleet, str(name), owner

    def _plan(self) -> tuple[str, str | None, str | None]:
        """(the guest's UUID, its owner, who is to be). Raises InvalidInput, NotFound."""
        name, owner = names.there(self.name), self.owner
        if owner is not None and (not isinstance(owner, (str, int)) or isinstance(owner, bool)):
            raise errors.InvalidInput(f"owner must be a user, not {units.shown(owner)}")
        owner = None if owner in (None, "") else str(owner)
        if owner and not owner.isprintable():
            raise errors.InvalidInput(f"owner must be a user, not {units.shown(owner)}")
        locations, guests = _all(self.fleet)
        locations.host_of(name)
        uuid = guests[name].uuid
        return uuid, owners.of(self.fleet.opts, uuid), owner

    def check(self) -> Checked:
        """Whose it would be."""
        reasons = Reasons()
        with reasons:
            _, before, owner = self._plan()
            words = f"{self.name} would be {_whose(owner)}"
            return Checked(self.name, words, _changes(before, owner), nothing=before == owner)
        return reasons.checked(self.name)

    def run(self) -> Result:
        """Raises InvalidInput, NotFound, OperationFailed."""
        uuid, before, owner = self._plan()
        owners.give(self.fleet.opts, uuid, self.name, owner)
        return Result(self.name, f"{self.name} is {_whose(owner)}", _changes(before, owner))


def _whose(owner: str | None) -> str:
    return "nobody's" if owner is None else f"{owner}'s"


def _changes(before: str | None, owner: str | None) -> dict[str, Any]:
    return {} if before == owner else {"owner": {"old": before, "new": owner}}


def owned(fleet: Fleet) -> dict[str, Any]:
    """As virt.owners shows it. Raises InvalidInput for what virt:rights has wrong."""
    grants.read(fleet.opts)
    locations, guests = _all(fleet)
    rows = [
        [name, owners.of(fleet.opts, one.uuid), ", ".join(sorted(locations.guests[name]))]
        for name, one in sorted(guests.items())
    ]
    about = {
        "table": [["guest", "owner", "host"], *rows],
        "guests": {name: owner for name, owner, _ in rows},
        "unreachable": locations.unreachable,
    }
    return {"owners": about, **({"retcode": 1} if locations.unreachable else {})}
