"""Migrations that were broken off: what there is of them, and ending one."""

from saltvirt import errors, names
from saltvirt.fleet.keys import KeyStore
from saltvirt.operations import lock, migrate


def recover(fleet, name, report, lost=None):
    """Ends a broken-off migration of the guest; (the host it began on, what that host says).

    lost: see the host's ``virt.migrate_recover``. Raises InvalidInput when the host that is said
    to be lost answers and has the guest.
    """
    name = names.guest(str(name))
    with lock.guest(fleet.opts, name, "virt.migrate_recover"):
        seen = migrate.census(fleet)
        host = seen.unfinished.get(name) or _left_by(fleet, name)
        if host is None:
            raise errors.OperationFailed(_none_unfinished(name, seen))
        asked = {"vm_": name}
        if lost:
            state = seen.guests.get(name, {}).get(lost)
            if state:
                raise errors.InvalidInput(f"{lost} answers, and {name} is {state} there")
            report.step("lost", f"{name} goes on without {lost}, which a person gave up")
            asked["lost"] = str(lost)
        found = fleet.one(host, "virt.migrate_recover", asked, long=True)
        places = sorted(migrate.census(fleet).guests.get(name, {}))
        if len(places) == 1:
            KeyStore(fleet.opts).moved(name, host, places[0])
        return host, {"left": {}, **found}


def _none_unfinished(name, seen):
    text = f"no host that answers has an unfinished migration of {name}"
    silent = ", ".join(f"{host}: {why}" for host, why in sorted(seen.unheard.items()))
    return f"{text}; not asked: {silent}" if silent else text


def _left_by(fleet, name):
    """The host that knows of something left for the guest on a host that did not answer."""
    found = unfinished(fleet)[0]
    return next((host for host, known in found.items() for k in known if k.startswith(f"{name}@")),
                None)  # fmt: skip


def unfinished(fleet):
    """(host to what its ``virt.migrate_unfinished`` says, host to why it was not heard)."""
    found, unheard = {}, {}
    for answer in fleet.ask(fleet.hosts(), "virt.migrate_unfinished"):
        if not answer.ok:
            unheard[answer.host] = answer.error
        elif answer.data:
            found[answer.host] = answer.data
    return found, unheard


def recovered(name, host, found):
    """What ``virt.migrate_recover`` of the host did, as a sentence."""
    left = [f"something may be left on {on}: {why}" for on, why in sorted(found["left"].items())]
    undone = f"{name} is on {host}" if left else f"{name} is on {host}; the target was cleaned"
    said = {migrate.MOVED: f"{name} is on the target; {host} was cleaned", "undone": undone}
    return "; ".join([said.get(found.get("outcome"), f"{name}: nothing was to be moved"), *left])


def listed(found, unheard):
    """What ``unfinished`` found, as a sentence."""
    guests = sorted({name for known in found.values() for name in known})
    parts = [", ".join(guests) or "no migration is unfinished"]
    return "; ".join(
        parts + [f"{host} was not asked: {why}" for host, why in sorted(unheard.items())]
    )
