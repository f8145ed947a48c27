"""Check that a guest's name is unique. A host that does not answer may have a guest of that name.

The name is checked again after the guest was created: another master, or a user of a host, may have
created a guest of the same name at the same time. Each creates its guest before it looks for
others, so at least one of the two finds both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from saltvirt import errors
from saltvirt.fleet.client import Fleet
from saltvirt.fleet.keys import KeyStore
from saltvirt.operations.cluster import find
from saltvirt.operations.core.report import Report
from saltvirt.operations.journal import intent_log

# queries the locations of all guests from all hosts
LocationQuery = Callable[[Fleet], find.Locations]
# the argument with which the operator confirms that no silent host has such a guest
ARGUMENT = "name_is_free"
# how long one of two guests that were created at the same time has to disappear; poll interval
YIELD_S, POLL_S = 60, 2


def check(
    fleet: Fleet,
    name: str,
    unreachable: dict[str, str],
    *,
    seeded: bool = False,
    name_is_free: bool = False,
    names_on_disk: find.NamesOnDisk | None = None,
) -> None:
    """Raise unless no silent host can have a guest of this name.

    unreachable: host to why it did not answer; all other hosts were asked. If only libvirt does not
    answer, its files have the names. seeded: the new guest has a key; if the master has never seen
    a key of the name, no guest with a key has it. name_is_free: the operator confirms it.
    names_on_disk: of the unreachable hosts, if many names are checked. Raises AlreadyExists,
    OperationFailed.
    """
    _refuse_at_work(fleet, name, unreachable)
    if not unreachable or name_is_free:
        return
    never_seen = seeded and KeyStore(fleet.opts).status(name) is None
    _refuse_silent(fleet, name, unreachable, never_seen, names_on_disk)


def refuse_case(name: str, guests: Mapping[str, Iterable[str]]) -> None:
    """Raise AlreadyExists if a guest's name differs only by case. guests: name to its hosts."""
    for existing_name, hosts in sorted(guests.items()):
        if existing_name != name and existing_name.lower() == name.lower():
            raise errors.AlreadyExists(
                f"{name}: {existing_name} already exists, on {', '.join(sorted(hosts))}, and host "
                "names do not differ by case"
            )


def refuse_alike(name: str, guest_names: Iterable[str]) -> None:
    """Raise InvalidInput if the name of another requested guest differs only by case."""
    for guest_name in guest_names:
        if guest_name.lower() == name.lower():
            raise errors.InvalidInput(
                f"{guest_name} and {name}: host names do not differ by case, so these are the same"
            )


def refuse_key(keys: KeyStore, name: str) -> None:
    """Raise KeyRefused if the master has accepted a key for this name and no host has the guest.
    Call this after the name was found free: the key of an existing guest must stay."""
    if keys.status(name) != "accepted":
        return
    host = keys.host_of(name)
    if host is None:
        raise errors.KeyRefused(
            f"the master already has an accepted key for {name}: it belongs to another machine, "
            "which is no guest; choose another name, or remove the key with "
            f"salt-key -d {name} if that machine is gone"
        )
    raise errors.KeyRefused(
        f"the master already has an accepted key for {name}, of a guest on "
        f"{host or 'a host not recorded'} that no hypervisor has now: salt-run virt.repair "
        f"name={name} shows what to do"
    )


def resolve(
    fleet: Fleet,
    report: Report,
    name: str,
    host: str,
    *,
    seeded: bool = False,
    name_is_free: bool = False,
    query_locations: LocationQuery = find.locations,
) -> None:
    """Raise unless the guest that was created on the host is the only one of its name.

    Of two guests that were created at the same time, the one on the host whose name comes first
    stays if the other one disappears. The other one is removed by its creator, and so is this one
    if this function raises; so it must not have been started. seeded, name_is_free: as for
    :func:`check`. query_locations: queries all hosts after it is called, so after the guest was
    created. Raises AlreadyExists, OperationFailed.
    """
    end, guest_locations = None, query_locations(fleet)
    while True:
        other_hosts = sorted(set(guest_locations.guests.get(name, {})) - {host})
        if not other_hosts:
            break
        places = ", ".join(other_hosts)
        if other_hosts[0] < host or (end is not None and time.monotonic() > end):
            raise errors.AlreadyExists(
                f"{name} was created on {places} at the same time as on {host}: the one on {host} "
                "is removed"
            )
        if end is None:
            end = time.monotonic() + YIELD_S
            report.step("twice", f"{name}: also created on {places}: that one has to be removed")
        time.sleep(POLL_S)
        guest_locations = find.locations(fleet)
    unreachable = {
        other_host: reason
        for other_host, reason in guest_locations.unreachable.items()
        if other_host != host
    }
    if unreachable and not name_is_free:
        _refuse_silent(fleet, name, unreachable, seeded, guest_locations.names_on_disk)


def _refuse_silent(
    fleet: Fleet,
    name: str,
    unreachable: dict[str, str],
    never_seen: bool,
    names_on_disk: find.NamesOnDisk | None = None,
) -> None:
    """Raise if the guest may be on a host that does not answer. never_seen: no guest with a key has
    the name."""
    silent_hosts = silent(fleet, name, unreachable, names_on_disk)
    record = intent_log.load(fleet.opts, name)
    if record and record.host in silent_hosts:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.since))
        raise errors.OperationFailed(
            f"{record.host} was asked to create {name} by {record.function} at {since} and "
            f"does not answer now: {silent_hosts[record.host]}; {_advice()}"
        )
    if silent_hosts and not never_seen:
        message = "; ".join(f"{host}: {reason}" for host, reason in sorted(silent_hosts.items()))
        raise errors.OperationFailed(
            f"{name}: it may be on a host that does not answer: {message}; {_advice()}"
        )


def _refuse_at_work(fleet: Fleet, name: str, unreachable: dict[str, str]) -> None:
    """Raise OperationFailed while a host works on the request of a runner that died: the host may
    be fetching the image, before it defines a domain of that name."""
    record = intent_log.load(fleet.opts, name)
    if not record or record.host in unreachable or record.host not in fleet.hosts():
        return
    owner = find.leftovers(fleet, record.host).at_work.get(name)
    if owner:
        raise errors.OperationFailed(
            f"{record.host} is still working on {name}: {owner}; wait for it"
        )


def _advice() -> str:
    return (
        f"wait for it, or give {ARGUMENT}=True if you know that none of them has a guest of that "
        "name"
    )


def silent(
    fleet: Fleet,
    name: str,
    unreachable: dict[str, str],
    names_on_disk: find.NamesOnDisk | None = None,
) -> dict[str, str]:
    """Return the unreachable hosts whose guest names are unknown, with the reasons. names_on_disk:
    of these hosts, if many names are checked. Raises AlreadyExists."""
    names_by_host = (names_on_disk or find.NamesOnDisk(unreachable)).names(fleet)
    for host in sorted(names_by_host):
        if name in names_by_host[host] and host in unreachable:
            raise errors.AlreadyExists(
                f"{name} already exists, on {host}, whose libvirt does not answer"
            )
    return {host: reason for host, reason in unreachable.items() if host not in names_by_host}
