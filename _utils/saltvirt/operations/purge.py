"""Remove a guest, its own disks and its key."""

from saltvirt import errors, names
from saltvirt.fleet.keys import KeyStore
from saltvirt.fleet.pillars import Pillars
from saltvirt.operations import find, lock


def check(fleet, name, delete_key=True):
    """(host, what the host would delete and keep, whether a key would go). Changes nothing."""
    name = names.guest(name)
    host, _ = find.locate(fleet, name)
    has_key = delete_key and KeyStore(fleet.opts).status(name) is not None
    return host, fleet.one(host, "virt.purge", {"vm_": name, "test": True}), has_key


def run(fleet, name, delete_key=True):
    """Returns (host, what the host says it removed, whether a key was deleted).

    Raises NotFound, OperationFailed; the key stays when the guest could not be removed.
    """
    name = names.guest(name)
    with lock.guest(fleet.opts, name, "virt.purge"):
        host, _ = find.locate(fleet, name)
        removed = fleet.one(host, "virt.purge", {"vm_": name}, long=True)
        if name in (fleet.one(host, "virt.vm_state") or {}):
            raise errors.OperationFailed(f"{host}: libvirt still has {name}")
        Pillars(fleet.opts).remove(name)
        keys = KeyStore(fleet.opts)
        had_key = delete_key and keys.status(name) is not None
        if had_key:
            keys.delete(name)
        return host, removed, had_key
