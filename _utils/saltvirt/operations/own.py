"""Whose guests are whose, and their labels: shown, and said by those who have the master."""

from __future__ import annotations

from typing import Any

from saltvirt import errors, names, units
from saltvirt.fleet.client import Fleet
from saltvirt.operations import find, inventory, owners
from saltvirt.operations.operation import Checked, Reasons, Result
from saltvirt.placement import facts
from saltvirt.rights import grants

# host to its guests by name
Guests = dict[str, dict[str, facts.Guest]]


def _all(fleet: Fleet) -> tuple[find.Locations, Guests]:
    """(which host has which guest, the guests), by what all hosts say."""
    hosts, unreachable = inventory.gather(fleet)
    guests = {host.name: {one.name: one for one in host.guests} for host in hosts}
    states = {
        host: {name: one.state for name, one in there.items()} for host, there in guests.items()
    }
    return find.Locations(find.by_name(states), unreachable), guests


class Own:
    """Writes down whose a guest is; owner None: nobody's who is limited."""

    def __init__(self, fleet: Fleet, name: str, owner: object) -> None:
        self.fleet, self.name, self.owner = fleet, str(name), owner

    def _plan(self) -> tuple[str, str | None, str | None]:
        """(the guest's UUID, its owner, who is to be). Raises InvalidInput, NotFound."""
        name = names.there(self.name)
        owner = None if self.owner in (None, "") else _text("owner must be a user", self.owner)
        if owner and owner.startswith((grants.GROUP, grants.EVERYBODY)):
            raise errors.InvalidInput(
                f"owner must be one user, not {units.shown(owner)}: what several users may do to a "
                "guest is granted by its name, or by a label of virt.label"
            )
        uuid = _uuid(self.fleet, name)
        return uuid, owners.of(self.fleet.opts, uuid).owner, owner

    def check(self) -> Checked:
        """Whose it would be."""
        reasons = Reasons()
        with reasons:
            _, before, owner = self._plan()
            words = f"{self.name} would be {_whose(owner)}"
            changes = _changes("owner", before, owner)
            return Checked(self.name, words, changes, nothing=not changes)
        return reasons.checked(self.name)

    def run(self) -> Result:
        """Raises InvalidInput, NotFound, OperationFailed."""
        with owners.one_at_a_time(self.fleet.opts):
            uuid, before, owner = self._plan()
            owners.give(self.fleet.opts, uuid, self.name, owner)
            owners.forget_unrecorded(self.fleet.opts, self.name)
        words = f"{self.name} is {_whose(owner)}"
        return Result(self.name, words, _changes("owner", before, owner))


class Label:
    """Writes down the labels of a guest: a list, or one, or None for none."""

    def __init__(self, fleet: Fleet, name: str, labels: object) -> None:
        self.fleet, self.name, self.labels = fleet, str(name), labels

    def _plan(self) -> tuple[str, list[str], list[str]]:
        """(the guest's UUID, its labels, those it is to have). Raises InvalidInput, NotFound."""
        name, given = names.there(self.name), self.labels
        several = given if isinstance(given, list) else [] if given in (None, "") else [given]
        labels = sorted({_text("labels must be texts", one) for one in several})
        uuid = _uuid(self.fleet, name)
        return uuid, list(owners.of(self.fleet.opts, uuid).labels), labels

    def check(self) -> Checked:
        """What it would have."""
        reasons = Reasons()
        with reasons:
            _, before, labels = self._plan()
            words = f"{self.name} would have {_shown(labels)}"
            changes = _changes("labels", before, labels)
            return Checked(self.name, words, changes, nothing=not changes)
        return reasons.checked(self.name)

    def run(self) -> Result:
        """Raises InvalidInput, NotFound, OperationFailed."""
        with owners.one_at_a_time(self.fleet.opts):
            uuid, before, labels = self._plan()
            owners.label(self.fleet.opts, uuid, self.name, tuple(labels))
        words = f"{self.name} has {_shown(labels)}"
        return Result(self.name, words, _changes("labels", before, labels))


def _uuid(fleet: Fleet, name: str) -> str:
    """The guest's. Raises NotFound; OperationFailed where another guest has it, too: one of the
    hosts does not say the truth."""
    locations, guests = _all(fleet)
    host = locations.host_of(name)
    uuid = guests[host][name].uuid
    mine = owners.known_by(uuid)
    for other, there in sorted(guests.items()):
        for one in there.values():
            if mine and one.name != name and owners.known_by(one.uuid) == mine:
                raise errors.OperationFailed(
                    f"{name} on {host} has the UUID of {one.name} on {other}: which is it?"
                )
    return uuid


def _text(wanted: str, value: object) -> str:
    """A text of one line; YAML reads one of digits as a number."""
    fits = isinstance(value, (str, int)) and not isinstance(value, bool)
    if not fits or not str(value).isprintable() or not str(value):
        raise errors.InvalidInput(f"{wanted}, not {units.shown(value)}")
    return str(value)


def _whose(owner: str | None) -> str:
    return "nobody's" if owner is None else f"{owner}'s"


def _shown(labels: list[str]) -> str:
    return f"the labels {', '.join(labels)}" if labels else "no label"


def _changes(what: str, before: object, after: object) -> dict[str, Any]:
    return {} if before == after else {what: {"old": before, "new": after}}


def owned(fleet: Fleet) -> dict[str, Any]:
    """As virt.owners shows it. Raises InvalidInput for what virt:rights has wrong."""
    grants.read(fleet.opts)
    locations, guests = _all(fleet)
    everyone = {name: one for there in guests.values() for name, one in there.items()}
    found = {name: owners.of(fleet.opts, one.uuid) for name, one in sorted(everyone.items())}
    rows = [
        [name, one.owner, ", ".join(one.labels), ", ".join(sorted(locations.guests[name]))]
        for name, one in found.items()
    ]
    about = {
        "table": [["guest", "owner", "labels", "host"], *rows],
        "guests": {name: one.owner for name, one in found.items()},
        "labels": {name: list(one.labels) for name, one in found.items() if one.labels},
        "unreachable": locations.unreachable,
    }
    return {"owners": about, **({"retcode": 1} if locations.unreachable else {})}
