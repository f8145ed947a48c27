"""Is a name free? A host that does not answer may have a guest of it: silence is no proof.

And is it still ours when the guest is there? Another master, or a person on a host, may have made
one of the same name meanwhile: each shows its own before it looks for another, so that at
least one of two sees both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from saltvirt import errors
from saltvirt.fleet.client import Fleet
from saltvirt.fleet.keys import KeyStore
from saltvirt.operations import begun, find
from saltvirt.operations.report import Report

# asks all hosts where the guests are
Look = Callable[[Fleet], find.Locations]
# what an operator says who knows that no silent host has such a guest
ARGUMENT = "name_is_free"
# of two that were made at once one may take so long to go; and so often it is looked for
YIELD_S, LOOK_S = 60, 2


def check(
    fleet: Fleet,
    name: str,
    unreachable: dict[str, str],
    *,
    seeded: bool = False,
    sure: bool = False,
    files: find.Files | None = None,
) -> None:
    """Raises unless no host that did not answer can have a guest of this name.

    unreachable: host to why it did not answer; the others were asked. Where only libvirt is silent,
    its files tell the names. seeded: a new guest with a key: no guest of that name with one is
    anywhere, as long as the master has never seen a key of it. sure: the operator says so. files:
    of the unreachable, when many names are asked about.
    Raises AlreadyExists, OperationFailed.
    """
    _not_at_work(fleet, name, unreachable)
    if not unreachable or sure:
        return
    never = seeded and KeyStore(fleet.opts).status(name) is None
    _of_silent(fleet, name, unreachable, never, files)


def refuse_case(name: str, guests: Mapping[str, Iterable[str]]) -> None:
    """Raises AlreadyExists where a guest has this name but for the case of its letters. guests: the
    name of each to its hosts."""
    for other, hosts in sorted(guests.items()):
        if other != name and other.lower() == name.lower():
            raise errors.AlreadyExists(
                f"{name}: {other} exists already, on {', '.join(sorted(hosts))}, and host names do "
                "not differ by case"
            )


def refuse_alike(name: str, others: Iterable[str]) -> None:
    """Raises InvalidInput where another guest that is asked for has this name but for the case."""
    for other in others:
        if other.lower() == name.lower():
            raise errors.InvalidInput(
                f"{other} and {name}: host names do not differ by case, so these are one"
            )


def refuse_key(keys: KeyStore, name: str) -> None:
    """Raises KeyRefused if the master accepted a key for this name, of which no host has a guest:
    asked when the name was found free, for the key of a guest that exists must stay."""
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
    sure: bool = False,
    look: Look = find.locations,
) -> None:
    """Raises unless the guest that was made on the host is the only one of its name.

    Of two that were made at once the one on the host that comes first by its name stays, when the
    other one goes. That is taken back by whoever made it, as is this one when this raises: it
    must not have been started. seeded, sure: as in :func:`check`, when the name was found free.
    look: asks all hosts, after it is called: so after the guest was made.
    Raises AlreadyExists, OperationFailed.
    """
    end, now = None, look(fleet)
    while True:
        others = sorted(set(now.guests.get(name, {})) - {host})
        if not others:
            break
        places = ", ".join(others)
        if others[0] < host or (end is not None and time.monotonic() > end):
            raise errors.AlreadyExists(
                f"{name} was created on {places} at the same moment as on {host}: that on {host} "
                "is removed"
            )
        if end is None:
            end = time.monotonic() + YIELD_S
            report.step("twice", f"{name}: made on {places}, too: that one has to go")
        time.sleep(LOOK_S)
        now = find.locations(fleet)
    unreachable = {one: why for one, why in now.unreachable.items() if one != host}
    if unreachable and not sure:
        _of_silent(fleet, name, unreachable, seeded, now.files)


def _of_silent(
    fleet: Fleet,
    name: str,
    unreachable: dict[str, str],
    never: bool,
    files: find.Files | None = None,
) -> None:
    """Raises when the guest may be on a host that does not answer. never: none with a key is."""
    there = silent(fleet, name, unreachable, files)
    record = begun.of(fleet.opts, name)
    if record and record.host in there:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.since))
        raise errors.OperationFailed(
            f"{record.host} was asked to create {name} by {record.what} at {since} and "
            f"does not answer now: {there[record.host]}; {_advice()}"
        )
    if there and not never:
        why = "; ".join(f"{host}: {reason}" for host, reason in sorted(there.items()))
        raise errors.OperationFailed(
            f"{name}: it may be on a host that does not answer: {why}; {_advice()}"
        )


def _not_at_work(fleet: Fleet, name: str, unreachable: dict[str, str]) -> None:
    """Raises OperationFailed while a host goes on with what a runner that died told it: before it
    has a domain of the name, for it may be fetching the image."""
    record = begun.of(fleet.opts, name)
    if not record or record.host in unreachable or record.host not in fleet.hosts():
        return
    owner = find.leftovers(fleet, record.host).at_work.get(name)
    if owner:
        raise errors.OperationFailed(
            f"{record.host} is still at work on {name}: {owner}; wait for it"
        )


def _advice() -> str:
    return (
        f"wait for it, or give {ARGUMENT}=True when you know that none of them has a guest of that "
        "name"
    )


def silent(
    fleet: Fleet, name: str, unreachable: dict[str, str], files: find.Files | None = None
) -> dict[str, str]:
    """Those of the unreachable of which nothing is known. files: of these, when others want to know
    of them, too. Raises AlreadyExists."""
    known = (files or find.Files(unreachable)).names(fleet)
    for host in sorted(known):
        if name in known[host] and host in unreachable:
            raise errors.AlreadyExists(
                f"{name} exists already, on {host}, whose libvirt does not answer"
            )
    return {host: why for host, why in unreachable.items() if host not in known}
