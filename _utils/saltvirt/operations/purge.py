"""Remove a guest, its own disks and its key."""

from saltvirt import errors, names
from saltvirt.fleet.keys import KeyStore
from saltvirt.operations import begun, find, lock


def check(fleet, name, delete_key=True):
    """(host, what the host would delete and keep, whether a key would go, why it stays). Changes
    nothing."""
    name = names.guest(name)
    host, _ = find.locate(fleet, name)
    goes, why = _key(KeyStore(fleet.opts), name, host) if delete_key else (False, None)
    return host, fleet.one(host, "virt.purge", {"vm_": name, "test": True}, long=False), goes, why


def run(fleet, name, delete_key=True, on=None):
    """Returns (host, what the host says it removed, whether a key was deleted, why it stays).

    on: the host that must have it. The key goes when it was accepted for this guest of this host.
    Raises NotFound, OperationFailed; the key stays when the guest could not be removed.
    """
    name = names.guest(name)
    with lock.guest(fleet.opts, name, "virt.purge"):
        host, _ = find.locate(fleet, name)
        if on not in (None, host):
            raise errors.OperationFailed(f"{name} is on {host} now, not on {on}: it stays")
        removed = fleet.one(host, "virt.purge", {"vm_": name}, long=True)
        if name in (fleet.one(host, "virt.vm_state") or {}):
            raise errors.OperationFailed(f"{host}: libvirt still has {name}")
        begun.forget(fleet.opts, name)
        keys = KeyStore(fleet.opts)
        goes, why = _key(keys, name, host) if delete_key else (False, None)
        if goes:
            keys.delete(name)
        return host, removed, goes, why


def _key(keys, name, host):
    """(whether the guest's key goes with it, why it stays when there is one that does not)."""
    if keys.status(name) is None:
        return False, None
    why = keys.stays(name, host)
    return why is None, why
