"""
The life of guests by name, wherever they are: start and stop, snapshots, another name, the end.

Every verb takes ``test=True``: it then shows what it would do, and changes nothing.
"""

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt import errors, names, units
from saltvirt.fleet import authorise, pillars, target
from saltvirt.fleet.client import Fleet
from saltvirt.fleet.keys import KeyStore
from saltvirt.operations import find, lifecycle, operation, result, snapshots
from saltvirt.operations import lock as locks
from saltvirt.operations import report as reports
from saltvirt.operations.identity import Clone, Rename
from saltvirt.operations.purge import Purge

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def _verb(name, verb, test, wait_s=0, options=None, host=None):
    with Fleet(__opts__) as fleet:
        change = lifecycle.Lifecycle(fleet, name, verb, wait_s, options, host)
        return operation.perform(change, test)


@result.reporting
def start(name, test=False, overcommit=False, host=None):
    """
    Start a guest. Its host refuses where the guests that run there would then have more memory or
    vCPUs than placement allows (``virt:placement``), and while a hypervisor is silent that may run
    it, too, on disks that other hosts may have.

    :param name: of the guest
    :param test: show what would be done, change nothing
    :param overcommit: start it all the same where there is no room
    :param host: where it is: you know that it runs nowhere else, whoever is silent

    :return: under the guest's name ``result``, ``comment``, ``changes``, ``host``, ``state``

    CLI Example:

    .. code-block:: bash

        salt-run virt.start web1
    """
    options = {"overcommit": True} if overcommit else None
    return _verb(name, "start", test, options=options, host=host)


@result.reporting
def stop(name, test=False, timeout=60):
    """
    Ask the system in a guest to power down, and wait until it has.

    :param name: of the guest
    :param test: show what would be done, change nothing
    :param timeout: seconds to wait; a guest that is still on then is left on, and named

    :return: under the guest's name ``result``, ``comment``, ``changes``, ``host``, ``state``

    CLI Example:

    .. code-block:: bash

        salt-run virt.stop web1
    """
    return _verb(name, "stop", test, units.parse_number(timeout, "timeout"))


@result.reporting
def force_off(name, test=False):
    """
    Power a guest off at once, as pulling its plug would.

    :param name: of the guest
    :param test: show what would be done, change nothing

    :return: under the guest's name ``result``, ``comment``, ``changes``, ``host``, ``state``

    CLI Example:

    .. code-block:: bash

        salt-run virt.force_off web1
    """
    return _verb(name, "force_off", test)


@result.reporting
def pause(name, test=False):
    """
    Pause a guest: it keeps its memory and gets no CPU.

    :param name: of the guest
    :param test: show what would be done, change nothing

    :return: under the guest's name ``result``, ``comment``, ``changes``, ``host``, ``state``

    CLI Example:

    .. code-block:: bash

        salt-run virt.pause web1
    """
    return _verb(name, "pause", test)


@result.reporting
def resume(name, test=False, host=None):
    """
    Resume a paused guest. Refused while a hypervisor is silent that may run it, too, on disks that
    other hosts may have.

    :param name: of the guest
    :param test: show what would be done, change nothing
    :param host: where it is: you know that it runs nowhere else, whoever is silent

    :return: under the guest's name ``result``, ``comment``, ``changes``, ``host``, ``state``

    CLI Example:

    .. code-block:: bash

        salt-run virt.resume web1
    """
    return _verb(name, "resume", test, host=host)


@result.reporting
def reset(name, test=False):
    """
    Reset a guest, as its reset button would.

    :param name: of the guest
    :param test: show what would be done, change nothing

    :return: under the guest's name ``result``, ``comment``, ``changes``, ``host``, ``state``

    CLI Example:

    .. code-block:: bash

        salt-run virt.reset web1
    """
    return _verb(name, "reset", test)


def _alone(name, verb):
    return locks.guest(__opts__, names.guest(name), verb)


@result.reporting
def snapshot(name, snapshot=None, test=False, host=None):
    """
    Take a snapshot of a guest, wherever it runs. Of one that is off, refused as a start is.

    :param name: of the guest
    :param snapshot: the snapshot's name; default: the guest's name and the time
    :param test: show what would be done, change nothing
    :param host: where it is: you know that it runs nowhere else, whoever is silent
    :return: under the guest's name ``result``, ``comment``, ``changes``, ``host``

    CLI Example:

    .. code-block:: bash

        salt-run virt.snapshot web1 before-upgrade
    """
    name = str(name)
    arguments = {"domain": name, "name": snapshot}
    with Fleet(__opts__) as fleet, locks.guest(__opts__, names.guest(name), "virt.snapshot"):
        host, there = snapshots.there(fleet, name, host)
        if snapshot and str(snapshot) in there:
            raise errors.AlreadyExists(f"{name} on {host} has a snapshot {snapshot} already")
        if test:
            comment = f"a snapshot of {name} on {host} would be taken"
            return result.planned(name, comment, {"snapshot": snapshot}, host=host)
        told = fleet.one(host, "virt.snapshot", arguments, long=True)
    comment = f"snapshot {told['name']} of {name} on {host} was taken"
    return result.done(name, comment, {"snapshot": told["name"]}, host=host)


@result.reporting
def revert(name, snapshot=None, test=False, cleanup=False, host=None):
    """
    Put a guest back to a snapshot, wherever it runs. One that is off, refused as a start is.

    Layers of an external snapshot on storage that several hosts may have are lost only when every
    hypervisor has answered that it does not need them.

    :param name: of the guest
    :param snapshot: the snapshot's name; default: the one before the current
    :param test: show what would be done, change nothing
    :param cleanup: also delete all snapshots that are newer than it, or on top of it
    :param host: where it is: you know that it runs nowhere else, whoever is silent
    :return: under the guest's name ``result``, ``comment``, ``changes``, ``host``

    CLI Example:

    .. code-block:: bash

        salt-run virt.revert web1 before-upgrade
    """
    name = str(name)
    with Fleet(__opts__) as fleet, locks.guest(__opts__, names.guest(name), "virt.revert"):
        host, there = snapshots.there(fleet, name, host)
        parents = [one["parent"] for one in there.values() if one["current"]]
        wanted = snapshot or next(iter(parents), None)
        if wanted not in there:
            about = f"snapshot {wanted}" if wanted else "snapshot before the current one"
            known = ", ".join(there) or "none"
            raise errors.NotFound(f"{name} on {host} has no {about}; it has: {known}")
        asked = host, "virt.revert_snapshot", {
            "name": name, "vm_snapshot": wanted, "cleanup": bool(cleanup),
        }  # fmt: skip
        if test:
            snapshots.plan(fleet, *asked)
            comment = f"{name} on {host} would be put back to {wanted}"
            return result.planned(name, comment, {"reverted": wanted}, host=host)
        told = snapshots.run(fleet, *asked)
    comment = f"{name} on {host} was put back to {wanted}"
    return result.done(name, comment, {"reverted": told}, host=host)


@result.reporting
def delete_snapshots(name, *names, children=False, test=False, **kwargs):
    """
    Delete snapshots of a guest, wherever it runs. The guest and its disks stay as they are. Of
    one that is off, refused as a start is.

    The layer of an external snapshot is merged into the file below it. On storage that several
    hosts may have that is done only when every hypervisor has answered that it needs neither.

    :param name: of the guest
    :param names: the snapshots' names; one that is unknown fails the call before any is deleted
    :param children: with each also those taken on top of it
    :param test: show what would be done, change nothing
    :param kwargs: ``all=True`` to delete every snapshot of the guest; ``host``, where it is, as for
        ``virt.revert``

    :return: under the guest's name ``result``, ``comment``, ``changes``, ``host``

    CLI Example:

    .. code-block:: bash

        salt-run virt.delete_snapshots web1 before-upgrade
        salt-run virt.delete_snapshots web1 all=True
    """
    name, options = str(name), _options(kwargs)
    everything = bool(options.pop("all", False))
    for word in set(options) - {"host"}:
        raise errors.InvalidInput(f"{word} is no argument of virt.delete_snapshots")
    with Fleet(__opts__) as fleet, _alone(name, "virt.snapshot"):
        host, there = snapshots.there(fleet, name, options.pop("host", None))
        wanted = list(there) if everything else [str(one) for one in names]
        asked = host, "virt.delete_snapshots", {
            "name": name, "names": wanted, "children": bool(children),
        }  # fmt: skip
        if test:
            told, _ = snapshots.plan(fleet, *asked)
            gone = {"deleted": sorted(told["deleted"])}
            comment = f"{', '.join(gone['deleted'])} of {name} on {host} would be deleted"
            return result.planned(name, comment, gone, host=host)
        told = snapshots.run(fleet, *asked)
    gone = {"deleted": sorted(told["deleted"])}
    comment = f"{', '.join(gone['deleted'])} of {name} on {host} deleted"
    return result.done(name, comment, gone, host=host)


@result.reporting
def purge(name, delete_key=True, test=False):
    """
    Remove a guest with its own disks, and its minion key. Nothing else is deleted.

    A disk on storage that several hosts may have goes only when every hypervisor has answered
    that it does not use it. What stays is named.

    :param name: of the guest
    :param delete_key: also delete the guest's key from the master; a key that this master did not
        accept for a guest of that host stays, and is named
    :param test: show what would be deleted and what would stay, change nothing

    :return: under the guest's name ``result``, ``comment``, ``changes``, ``host``

    CLI Example:

    .. code-block:: bash

        salt-run virt.purge web1
    """
    with Fleet(__opts__) as fleet:
        return operation.perform(Purge(fleet, name, delete_key), test)


def _options(kwargs):
    return {key: value for key, value in kwargs.items() if not key.startswith("__")}


@result.reporting
def rename(name, new, test=False, **kwargs):
    """
    Give a stopped guest another name: its definition, the files of its disks, the identity of
    its minion and its key.

    :param name: of the guest
    :param new: the new name; its minion id and host name, too
    :param test: show what would be done, change nothing
    :param kwargs: ``seed=False`` leaves what is in its disks as it is; ``name_is_free=True`` when
        a hypervisor does not answer, and you know that it has no guest of the new name

    :return: under the new name ``result``, ``comment``, ``changes``, ``host``

    CLI Example:

    .. code-block:: bash

        salt-run virt.rename web1 web2
    """
    name, new, options = str(name), str(new), _options(kwargs)
    sure = bool(options.pop("name_is_free", False))
    with Fleet(__opts__) as fleet:
        report = reports.of_runner(fleet, new, "rename", __salt__)
        return operation.perform(Rename(fleet, report, name, new, options, sure), test)


@result.reporting
def clone(name, new, start=False, test=False, **kwargs):
    """
    Copy a stopped guest under a new name, on its host, with disks, addresses and an identity of
    its own; the copy's key is accepted.

    :param name: of the guest to copy
    :param new: name of the copy; its minion id and host name, too
    :param start: start the copy
    :param test: show what would be done, change nothing
    :param kwargs: any other argument of ``virt.clone`` on a hypervisor; ``name_is_free=True`` when
        a hypervisor does not answer, and you know that it has no guest of the copy's name

    :return: under the copy's name ``result``, ``comment``, ``changes``, ``host``, ``state``

    CLI Example:

    .. code-block:: bash

        salt-run virt.clone web1 web2 start=True
    """
    name, new, options = str(name), str(new), _options(kwargs)
    sure = bool(options.pop("name_is_free", False))
    with Fleet(__opts__) as fleet:
        report = reports.of_runner(fleet, new, "clone", __salt__)
        copy = Clone(fleet, report, name, new, options, sure, start=start)
        return operation.perform(copy, test)


@result.reporting
def authorize(name, host, pillar=None, test=False):
    """
    Let one hypervisor hand in the minion key of one new guest, once, within ten minutes.

    For ``virt.init`` or ``seed.apply`` called directly on that hypervisor; ``salt-run
    virt.init`` needs no such permission.

    :param name: of the guest
    :param host: minion id of the hypervisor
    :param pillar: dict that this master will add to the guest's pillar, as with ``virt.init``
    :param test: show what would be done, change nothing

    :return: under the guest's name ``result`` and ``comment``

    CLI Example:

    .. code-block:: bash

        salt-run virt.authorize web1 hyper1
    """
    name = target.refuse_host(__opts__, names.guest(str(name)))
    with Fleet(__opts__) as fleet:
        fleet.hosts(host)
    authorise.refuse_others(__opts__, host, name)
    if pillar:
        pillars.check(__opts__, pillar)
    words = f"hand in the key of {name} once, within {authorise.LIFETIME_S // 60} minutes"
    changes = {"authorized": host}
    if test:
        return result.planned(name, f"{host} would be allowed to {words}", changes)
    authorise.Authorisations(__opts__).grant(host, name, pillar=pillar)
    return result.done(name, f"{host} may {words}", changes)


@result.reporting
def seed_eject(name, test=False):
    """
    Take the volume for cloud-init from a guest and delete it: it holds the guest's key.

    ``virt.init`` with ``wait=True`` does it. For a reactor on ``salt/minion/*/start``: minions
    that are no guests of this master's own are passed over without asking a host, and one that
    has never reached this master keeps its volume, for that event can be forged.

    :param name: of the guest
    :param test: show what would be done, change nothing

    :return: under the guest's name ``result``, ``comment``, ``changes``

    CLI Example:

    .. code-block:: bash

        salt-run virt.seed_eject web1
    """
    name = names.guest(str(name))
    if name not in KeyStore(__opts__).ours():
        return result.done(name, f"{name} is no guest that this master made")
    if not target.reported(__opts__, name):
        raise errors.OperationFailed(
            f"{name} has not reached this master yet: its volume for cloud-init stays"
        )
    with Fleet(__opts__) as fleet, locks.guest(__opts__, name, "virt.seed_eject"):
        host, _ = find.locate(fleet, name)
        if test:
            return result.planned(name, f"{name} on {host} would lose its volume", host=host)
        taken = fleet.one(host, "virt.seed_eject", {"name": name}, long=True)
    changes = {"ejected": True} if taken else {}
    return result.done(name, f"{name} on {host} has no volume for cloud-init", changes, host=host)
