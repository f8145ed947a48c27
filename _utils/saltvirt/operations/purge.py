"""Remove a guest, its own disks and its key."""

from saltvirt import errors, names
from saltvirt.fleet import syndic
from saltvirt.fleet.keys import KeyStore
from saltvirt.operations import away, begun, find, lock, proof


def check(fleet, name, delete_key=True):
    """(host, what the host would delete and keep, whether a key would go, why it stays). Changes
    nothing."""
    name = names.guest(name)
    host, _ = find.locate(fleet, name)
    goes, why = _key(fleet, name, host) if delete_key else (False, None)
    return host, plan(fleet, host, name), goes, why


def plan(fleet, host, name, function="virt.purge", **options):
    """What ``virt.purge`` would do on the host, the other hosts asked: a dict with ``delete``,
    ``keep``, ``unused`` (what they do not use) and ``unsure`` (own disks that stay). Changes
    nothing. function: another one that takes and answers the same."""
    found = fleet.one(host, function, {"vm_": name, "test": True, **options}, long=False)
    found = {"delete": [], "keep": {}, **(found if isinstance(found, dict) else {})}
    places = found.get("shared") or {}
    unused, why = proof.elsewhere(fleet, host, places)
    keep = {path: words for path, words in found["keep"].items() if path not in unused}
    return {
        "delete": sorted({*found["delete"], *unused}), "keep": {**keep, **why}, "unused": unused,
        "unsure": sorted({*found.get("unsure", ())} - {*unused}),
    }  # fmt: skip


def on_host(fleet, host, name, **options):
    """Purges the guest there; what was deleted and what stayed. What other hosts may have goes
    only when each of them said that it does not use it."""
    found = plan(fleet, host, name, **options)
    asked = {"vm_": name, "unused": found.pop("unused"), **options}
    fleet.one(host, "virt.purge", asked, long=True)
    return found


def made(fleet, host, name):
    """Removes the disks that an operation which died has made for a guest on the host. Raises
    OperationFailed when something stays."""
    found = plan(fleet, host, name, "virt.remove_made")
    try:
        fleet.one(host, "virt.remove_made", {"vm_": name, "unused": found["unused"]}, long=True)
    except errors.OperationFailed as exc:
        why = "; ".join(f"{path} stays: {words}" for path, words in found["keep"].items())
        raise errors.OperationFailed(why or exc.text) from exc


def leftover(fleet, host, name):
    """Purges a guest that an init has half made. Raises OperationFailed, before anything is
    changed, when a disk would stay: without its record it would be nobody's."""
    found = plan(fleet, host, name)
    for path in found["unsure"]:
        raise errors.OperationFailed(f"{path} on {host} stays: {found['keep'][path]}")
    return on_host(fleet, host, name)


def run(fleet, name, delete_key=True, on=None):
    """Returns (host, what was deleted and kept there, whether a key was deleted, why it stays).

    on: the host that must have it. The key goes when it was accepted for this guest of this host.
    Raises NotFound, OperationFailed; the key stays when the guest could not be removed.
    """
    name = names.guest(name)
    with lock.guest(fleet.opts, name, "virt.purge"):
        host, _ = find.locate(fleet, name)
        if on not in (None, host):
            raise errors.OperationFailed(f"{name} is on {host} now, not on {on}: it stays")
        removed = on_host(fleet, host, name)
        if name in (fleet.one(host, "virt.vm_state") or {}):
            raise errors.OperationFailed(f"{host}: libvirt still has {name}")
        begun.forget(fleet.opts, name)
        away.forget(fleet.opts, name)
        goes, why = _key(fleet, name, host) if delete_key else (False, None)
        if goes:
            KeyStore(fleet.opts).delete(name)
        return host, removed, goes, why


def _key(fleet, name, host):
    """(whether the guest's key goes with it, why it stays when there is one that does not)."""
    keys = KeyStore(fleet.opts)
    if syndic.below(fleet.opts, host):
        return False, f"{host} is below a syndic: its own master has the key, if it has one"
    if keys.status(name) is None:
        return False, None
    why = keys.stays(name, host)
    return why is None, why
