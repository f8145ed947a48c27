"""Snapshots of a guest, wherever it runs."""

from saltvirt import errors
from saltvirt.operations import lifecycle, proof


def there(fleet, name, only=None):
    """(host, name to what is known of it) of a guest's snapshots, of which some are to be taken,
    put back or deleted. only: as for lifecycle.plan."""
    host = lifecycle.writes(fleet, name, only)
    found = fleet.one(host, "virt.list_snapshots", {"domain": name}, long=False).get(name)
    return host, {one["name"]: one for one in found if isinstance(found, list)}


def plan(fleet, host, function, arguments):
    """(what the host would do, the files that no other host uses). Changes nothing.

    Raises Refused when one of the files that are merged, begin anew or go may be needed on another
    host: where all have not said that it is not.
    """
    told = fleet.one(host, function, {**arguments, "test": True}, long=False)
    shared = told.get("shared") or {}
    _, why = proof.elsewhere(fleet, host, {**(told.get("own") or {}), **shared} if shared else {})
    for path in sorted(set(shared) & set(why)):
        raise errors.Refused(
            f"{path} on {host} would be lost, and other hosts may need it: {why[path]}"
        )
    return told, sorted(shared)


def run(fleet, host, function, arguments):
    """Does it after the other hosts were asked; what the host answered."""
    _, unused = plan(fleet, host, function, arguments)
    return fleet.one(host, function, {**arguments, "unused": unused}, long=True)
