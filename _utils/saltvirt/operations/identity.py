"""A guest under another name: renamed, or copied."""

import contextlib

from saltvirt import errors, names
from saltvirt.fleet.keys import KeyStore
from saltvirt.fleet.pillars import Pillars
from saltvirt.operations import find, lock
from saltvirt.operations.init import deliver
from saltvirt.revert import Revert


def check(fleet, name, new, function, options=None):
    """(host, what the host's function would do). Changes nothing.

    function: ``virt.rename`` or ``virt.clone``. options: more arguments of it.
    Raises NotFound, AlreadyExists, KeyRefused, and what the host refuses.
    """
    name, new = names.guest(name), names.guest(new)
    census = find.census(fleet)
    host = census.host_of(name)
    if new in census.guests:
        places = ", ".join(sorted(census.guests[new]))
        raise errors.AlreadyExists(f"{new} exists already, on {places}")
    if KeyStore(fleet.opts).status(new) == "accepted":
        raise errors.KeyRefused(
            f"the master already has an accepted key for {new}: it belongs to another machine; "
            f"remove it with salt-key -d {new} if that one is gone"
        )
    asked = {"vm_": name, "name": new, **(options or {}), "test": True}
    return host, fleet.one(host, function, asked, long=True)


def rename(fleet, report, name, new, options=None):
    """(host, the host's answer). Whatever fails, the guest has its old name and key again."""
    with _both(fleet, report, name, new, "virt.rename"):
        host, _ = check(fleet, name, new, "virt.rename", options)
        with Revert() as undo:
            made = _renamed(fleet, report, host, (name, new), options)
            undo.push(f"rename {new} back to {name}", _back, fleet, report, host, (new, name))
            told = Pillars(fleet.opts).of(name, KeyStore(fleet.opts).public)
            deliver(fleet, report, host, made, undo, pillar=told if made["pub_key"] else None)
            left = fleet.one(host, "virt.vm_state")
            if name in left or new not in left:
                raise errors.OperationFailed(f"{host}: libvirt has no {new} in place of {name}")
            undo.success()
        if made["pub_key"]:
            KeyStore(fleet.opts).delete(name)
            Pillars(fleet.opts).remove(name)
        return host, made


@contextlib.contextmanager
def _both(fleet, report, name, new, what):
    """Holds the locks of both names; a failure is an event, too."""
    if names.guest(name) == names.guest(new):
        raise errors.InvalidInput(f"{name} is its name already")
    with lock.guest(fleet.opts, name, what), lock.guest(fleet.opts, new, what):
        try:
            yield
        except errors.VirtError as exc:
            report.failed(exc)
            raise


def _renamed(fleet, report, host, pair, options=None):
    asked = {"vm_": pair[0], "name": pair[1], **(options or {})}
    watch = (f"salt/virt/{pair[1]}/rename/", report.host_says)
    return fleet.one(host, "virt.rename", asked, long=True, watch=watch)


def _back(fleet, report, host, pair):
    """The old name again; a minion in it gets new keys once more."""
    made = _renamed(fleet, report, host, pair)
    if made["pub_key"]:
        KeyStore(fleet.opts).accept(pair[1], made["pub_key"], replace=True)


def clone(fleet, report, name, new, start=False, options=None):
    """(host, the host's answer, libvirt's word for the copy's state)."""
    with _both(fleet, report, name, new, "virt.clone"):
        host, _ = check(fleet, name, new, "virt.clone", options)
        asked = {"vm_": name, "name": new, **(options or {}), "start": False, "approve_key": False}
        watch = (f"salt/virt/{new}/clone/", report.host_says)
        with Revert() as undo:
            made = fleet.one(host, "virt.clone", asked, long=True, watch=watch)
            undo.push(f"purge {new} on {host}", fleet.one, host, "virt.purge", {"vm_": new})
            state = deliver(fleet, report, host, made, undo, start=start)
            undo.success()
        return host, made, state
