"""A guest under another name: renamed, or copied."""

import contextlib

from saltvirt import errors, names
from saltvirt.fleet import authorise, secret, target
from saltvirt.fleet.answer import DOWN
from saltvirt.fleet.keys import KeyStore
from saltvirt.fleet.pillars import Pillars
from saltvirt.operations import away, find, inventory, lock, purge, unique
from saltvirt.operations.begun import Begun
from saltvirt.operations.init import deliver, handed_in
from saltvirt.placement import policy as policies
from saltvirt.revert import Revert


def check(fleet, name, new, function, options=None, sure=False):
    """(host, what the host's function would do). Changes nothing.

    function: ``virt.rename`` or ``virt.clone``. options: more arguments of it. sure: no host that
    does not answer has a guest of the new name.
    Raises NotFound, AlreadyExists, KeyRefused, and what the host refuses.
    """
    host, _, found = _checked(fleet, name, new, function, options, sure)
    return host, found


def _checked(fleet, name, new, function, options=None, sure=False):
    """(host, the arguments for it without ``test``, what it would do)."""
    name, new = names.guest(name), target.refuse_host(fleet.opts, names.guest(new))
    census = find.census(fleet)
    host = census.host_of(name)
    if new in census.guests:
        places = ", ".join(sorted(census.guests[new]))
        raise errors.AlreadyExists(f"{new} exists already, on {places}")
    unique.check(fleet, new, census.unheard, sure=sure)
    if KeyStore(fleet.opts).status(new) == "accepted":
        raise errors.KeyRefused(
            f"the master already has an accepted key for {new}: it belongs to another machine; "
            f"remove it with salt-key -d {new} if that one is gone"
        )
    asked = {"vm_": name, "name": new, **(options or {})}
    if function == "virt.clone":
        asked["placement"] = inventory.terms(fleet, host, policies.of_master(fleet.opts))
    seen = {**secret.without(asked), "test": True}
    return host, asked, fleet.one(host, function, seen, long=True)


def rename(fleet, report, name, new, options=None, sure=False):
    """(host, the host's answer). Whatever fails, the guest has its old name and key again."""
    with _both(fleet, report, name, new, "virt.rename"):
        host, _ = check(fleet, name, new, "virt.rename", options, sure)
        with Revert() as undo:
            told = Pillars(fleet.opts).of(name, KeyStore(fleet.opts).public)
            with _keys_come(fleet, host, new, undo, options, pillar=told):
                made = _renamed(fleet, report, host, (name, new), options)
                undo.push(f"rename {new} back to {name}", _back, fleet, report, host, (new, name))
                handed_in(fleet, report, host, new, made)
            unique.settle(fleet, report, new, host, sure=sure)
            deliver(fleet, report, host, new)
            left = fleet.one(host, "virt.vm_state")
            if name in left or new not in left:
                raise errors.OperationFailed(f"{host}: libvirt has no {new} in place of {name}")
            undo.success()
        for gone in (name, new):
            away.forget(fleet.opts, gone)
        if made.get("pub_key"):
            _forget(fleet, report, host, name)
        return host, made


def _keys_come(fleet, host, new, undo, options, **told):
    """As authorise.handing_in, unless the guest gets no key and is told nothing."""
    if (options or {}).get("seed") is False and not told.get("secret"):
        return contextlib.nullcontext()
    return authorise.handing_in(fleet, host, new, undo, **told)


def _forget(fleet, report, host, name):
    """The key of the old name goes, when it is this guest's."""
    keys = KeyStore(fleet.opts)
    why = keys.stays(name, host) if keys.status(name) else None
    if why:
        report.step("warning", f"{name}: its key stays: {why}")
        return
    keys.delete(name)
    Pillars(fleet.opts).remove(name)


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
    asked = {"vm_": pair[0], "name": pair[1], **(options or {}), "approve_key": True}
    watch = (f"salt/virt/{pair[1]}/rename/", report.host_says)
    return fleet.one(host, "virt.rename", asked, long=True, watch=watch)


def _back(fleet, report, host, pair):
    """The old name again; a minion in it gets new keys once more."""
    told = Pillars(fleet.opts).of(pair[1], KeyStore(fleet.opts).public)
    with authorise.Authorisations(fleet.opts).held(host, pair[1], told, replace=True):
        made = _renamed(fleet, report, host, pair)
        handed_in(fleet, report, host, pair[1], made)


def clone(fleet, report, name, new, start=False, options=None, sure=False):
    """(host, the host's answer, libvirt's word for the copy's state)."""
    with _both(fleet, report, name, new, "virt.clone"):
        host, asked, _ = _checked(fleet, name, new, "virt.clone", options, sure)
        asked = {**asked, "start": False, "approve_key": True}
        watch = (f"salt/virt/{new}/clone/", report.host_says)
        asked, hidden = secret.split(asked)
        secret.refuse_claimed(fleet.opts, host, hidden)
        undo = Revert()
        with Begun(fleet.opts, new, "virt.clone", undo) as told, undo:
            told.on(host)
            with _keys_come(fleet, host, new, undo, options, secret=hidden):
                made = _made(fleet, host, new, asked, watch)
                undo.push(f"purge {new} on {host}", purge.on_host, fleet, host, new)
                handed_in(fleet, report, host, new, made)
            unique.settle(fleet, report, new, host, sure=sure)
            told.starting()
            state = deliver(
                fleet, report, host, new, start=start, policy=policies.of_master(fleet.opts)
            )
            undo.success()
        return host, made, state


def _made(fleet, host, new, asked, watch):
    """What the host answered to ``virt.clone``. Raises, with what to do, when it gave no answer."""
    made = fleet.gather([host], "virt.clone", asked, long=True, watch=watch)[host]
    if made.kind == DOWN:
        raise errors.OperationFailed(f"{host}: {made.error}; nothing was made")
    try:
        return made.get()
    except errors.ConnectionFailed as exc:
        raise errors.ConnectionFailed(
            f"{exc.text}; it may be making {new}, or have made it: salt-run virt.repair "
            f"name={new} shows what is left of it"
        ) from exc
