"""Show and change the owners and the labels of guests. Requires access to the master."""

from __future__ import annotations

from typing import Any

from saltvirt import errors, names, units
from saltvirt.fleet.client import Fleet
from saltvirt.operations.access import owners
from saltvirt.operations.cluster import find, inventory
from saltvirt.operations.core.operation import Checked, Reasons, Result
from saltvirt.placement import facts
from saltvirt.rights import grants

# host to its guests by name
Guests = dict[str, dict[str, facts.Guest]]


def _query_guests(fleet: Fleet) -> tuple[find.Locations, Guests]:
    """Return (which host has which guest, the guests) as reported by all hosts."""
    hosts, unreachable = inventory.gather(fleet)
    guests = {host.name: {guest.name: guest for guest in host.guests} for host in hosts}
    states = {
        host: {name: guest.state for name, guest in host_guests.items()}
        for host, host_guests in guests.items()
    }
    last_seen = find.last_seen_lookup(fleet.opts, unreachable)
    return find.Locations(find.by_name(states), unreachable, last_seen=last_seen), guests


class SetOwner:
    """Record the owner of a guest; None: no owner."""

    def __init__(self, fleet: Fleet, name: str, owner: object) -> None:
        self.fleet, self.name, self.owner = fleet, str(name), owner

    def _plan(self) -> tuple[str, str | None, str | None]:
        """Return (UUID, current owner, new owner). Raises InvalidInput, NotFound."""
        name = names.existing_guest(self.name)
        owner = None if self.owner in (None, "") else _text("owner must be a user", self.owner)
        if owner and owner.startswith((grants.GROUP, grants.EVERYBODY)):
            raise errors.InvalidInput(
                f"owner must be one user, not {units.short_repr(owner)}: what several users may do "
                "to a guest is granted by its name, or by a label of virt.label"
            )
        uuid = _uuid(self.fleet, name)
        return uuid, owners.load(self.fleet.opts, uuid).owner, owner

    def check(self) -> Checked:
        """Return who would be the owner."""
        reasons = Reasons()
        with reasons:
            _, before, owner = self._plan()
            changes = _changes("owner", before, owner)
            message = f"{self.name} {'would be' if changes else 'is'} {_owner_text(owner)}"
            return Checked(self.name, message, changes, nothing=not changes)
        return reasons.checked(self.name)

    def run(self) -> Result:
        """Record the owner. Raises InvalidInput, NotFound, OperationFailed."""
        with owners.one_at_a_time(self.fleet.opts):
            uuid, before, owner = self._plan()
            owners.set_owner(self.fleet.opts, uuid, self.name, owner)
            owners.forget_unrecorded(self.fleet.opts, self.name)
        message = f"{self.name} is {_owner_text(owner)}"
        return Result(self.name, message, _changes("owner", before, owner))


class SetLabels:
    """Replace the labels of a guest: a list, one label, or None for none."""

    def __init__(self, fleet: Fleet, name: str, labels: object) -> None:
        self.fleet, self.name, self.labels = fleet, str(name), labels

    def _plan(self) -> tuple[str, list[str], list[str]]:
        """Return (UUID, current labels, new labels). Raises InvalidInput, NotFound."""
        name, value = names.existing_guest(self.name), self.labels
        values = value if isinstance(value, list) else [] if value in (None, "") else [value]
        labels = sorted({_text("labels must be texts", label) for label in values})
        uuid = _uuid(self.fleet, name)
        return uuid, list(owners.load(self.fleet.opts, uuid).labels), labels

    def check(self) -> Checked:
        """Return which labels the guest would have."""
        reasons = Reasons()
        with reasons:
            _, before, labels = self._plan()
            changes = _changes("labels", before, labels)
            message = f"{self.name} {'would have' if changes else 'has'} {_labels_text(labels)}"
            return Checked(self.name, message, changes, nothing=not changes)
        return reasons.checked(self.name)

    def run(self) -> Result:
        """Record the labels. Raises InvalidInput, NotFound, OperationFailed."""
        with owners.one_at_a_time(self.fleet.opts):
            uuid, before, labels = self._plan()
            owners.set_labels(self.fleet.opts, uuid, self.name, tuple(labels))
        message = f"{self.name} has {_labels_text(labels)}"
        return Result(self.name, message, _changes("labels", before, labels))


def _uuid(fleet: Fleet, name: str) -> str:
    """Return the guest's UUID. Raises NotFound; OperationFailed if another guest has the same UUID,
    because one of the hosts reports a wrong one."""
    locations, guests = _query_guests(fleet)
    host = locations.host_of(name)
    uuid = guests[host][name].uuid
    normalized = owners.normalize_uuid(uuid)
    for other_host, host_guests in sorted(guests.items()):
        for guest in host_guests.values():
            if (
                normalized
                and guest.name != name
                and owners.normalize_uuid(guest.uuid) == normalized
            ):
                raise errors.OperationFailed(
                    f"{name} on {host} has the UUID of {guest.name} on {other_host}: "
                    "two guests cannot share a UUID"
                )
    return uuid


def _text(requirement: str, value: object) -> str:
    """Return a text of one line. YAML reads a text of digits as a number."""
    is_valid = isinstance(value, (str, int)) and not isinstance(value, bool)
    if not is_valid or not str(value).isprintable() or not str(value):
        raise errors.InvalidInput(f"{requirement}, not {units.short_repr(value)}")
    return str(value)


def _owner_text(owner: str | None) -> str:
    return "without an owner" if owner is None else f"owned by {owner}"


def _labels_text(labels: list[str]) -> str:
    return f"the labels {', '.join(labels)}" if labels else "no label"


def _changes(field: str, before: object, after: object) -> dict[str, Any]:
    return {} if before == after else {field: {"old": before, "new": after}}


def list_owners(fleet: Fleet) -> dict[str, Any]:
    """Return the data of virt.owners. Raises InvalidInput if virt:rights is invalid."""
    grants.read(fleet.opts)
    locations, guests = _query_guests(fleet)
    all_guests = {
        name: entry for host_guests in guests.values() for name, entry in host_guests.items()
    }
    records = {
        name: owners.load(fleet.opts, entry.uuid) for name, entry in sorted(all_guests.items())
    }
    rows = [
        [name, entry.owner, ", ".join(entry.labels), ", ".join(sorted(locations.guests[name]))]
        for name, entry in records.items()
    ]
    report = {
        "table": [["guest", "owner", "labels", "host"], *rows],
        "guests": {name: entry.owner for name, entry in records.items()},
        "labels": {name: list(entry.labels) for name, entry in records.items() if entry.labels},
        "unreachable": locations.unreachable,
    }
    if not locations.unreachable:
        return {"owners": report}
    title = "the owners of the guests of hosts that did not answer are unknown: "
    report["title"] = title + locations.unreachable_text()
    return {"owners": report, "retcode": 1}
