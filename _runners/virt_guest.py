"""
The life of guests by name, wherever they are: start and stop, snapshots, another name, the end.

Every verb takes ``test=True``: it then shows what it would do, and changes nothing.
"""

import logging
from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt.fleet.client import Fleet
from saltvirt.operations.core import result

with saltvirt.later():
    from saltvirt import errors, settings, units
    from saltvirt.ha.manager import factory
    from saltvirt.operations.access import authorize as authorizing
    from saltvirt.operations.core import operation, report
    from saltvirt.operations.create import eject, identity
    from saltvirt.operations.guest import lifecycle
    from saltvirt.operations.guest import purge as purging
    from saltvirt.operations.guest import snapshots as of_snapshots
    from saltvirt.spec import values

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

log = logging.getLogger(__name__)

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def _verb(name, verb, test, wait_s=0, options=None, host=None):
    with Fleet(__opts__) as fleet:
        keeps = factory.ha_provider(__opts__) if verb == "start" else None
        change = lifecycle.Lifecycle(fleet, name, verb, wait_s, options, host, keeps)
        return operation.perform(change, test)


@result.reporting
def start(name, test=False, overcommit=False, host=None):
    """
    Start a guest. Its host refuses where the guests that run there would then have more memory or
    vCPUs than placement allows (``virt:placement``), and while a hypervisor is silent that may run
    it, too, on disks that other hosts may have.

    :param name: of the guest
    :param test: show what would be done, change nothing
    :param overcommit: start it all the same where there is no room, or it takes of what
        ``virt:ha:reserve`` keeps
    :param host: where it is: you know that it runs nowhere else, whoever is silent

    :return: under the guest's name ``result``, ``comment``, ``changes``, ``host``, ``state``

    CLI Example:

    .. code-block:: bash

        salt-run virt.start web1
    """
    options = {"overcommit": True} if overcommit else None
    return _verb(name, "start", test, options=options, host=host)


@result.reporting
def shutdown(name, test=False, timeout=60):
    """
    Ask the system in a guest to power down (the ACPI power button, again every 10 s), and wait
    until it has. ``salt-run virt.force_off`` pulls the plug, as ``salt HOST virt.stop`` does.

    :param name: of the guest
    :param test: show what would be done, change nothing
    :param timeout: seconds to wait; a guest that is still on then is left on, and named

    :return: under the guest's name ``result``, ``comment``, ``changes``, ``host``, ``state``

    CLI Example:

    .. code-block:: bash

        salt-run virt.shutdown web1
    """
    return _verb(name, "shutdown", test, units.parse_number(timeout, "timeout"))


@result.reporting
def stop(name, test=False, timeout=60):
    """
    The old name of :func:`shutdown`, until the next release: it asks the guest's system. On a host
    ``virt.stop`` pulls the plug; by name ``salt-run virt.force_off`` does.

    :param name: of the guest
    :param test: show what would be done, change nothing
    :param timeout: seconds to wait; a guest that is still on then is left on, and named

    :return: as :func:`shutdown`

    CLI Example:

    .. code-block:: bash

        salt-run virt.stop web1
    """
    log.warning("virt.stop is deprecated: use virt.shutdown; virt.force_off pulls the plug")
    return _verb(name, "shutdown", test, units.parse_number(timeout, "timeout"))


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


@result.reporting
def snapshots(name):
    """
    The snapshots of a guest, wherever it is, the oldest first: when each was taken, its kind
    (internal or external), the guest's state then, and the snapshot that it is on top of.

    :param name: of the guest

    :return: under the guest's name ``result``, ``comment``, ``host``, and ``snapshots``, a list of
        dicts: ``name``, ``created``, ``external``, ``state``, ``parent``, ``current``,
        ``description``

    CLI Example:

    .. code-block:: bash

        salt-run virt.snapshots web1
    """
    with Fleet(__opts__) as fleet:
        return of_snapshots.listing(fleet, name).answer()


@result.reporting
def snapshot(name, snapshot=None, test=False, host=None, disk_only=None, quiesce=False):
    """
    Take a snapshot of a guest, wherever it runs. Of one that is off, refused as a start is.

    An internal snapshot is inside the guest's qcow2 disks and holds the memory of a running guest;
    an external one is of the disks alone. The kind is chosen from the guest: UEFI firmware, a raw
    disk or a disk on a block device need external ones. The comment says what is not saved, and
    that the guest cannot migrate live while it has snapshots.

    :param name: of the guest
    :param snapshot: the snapshot's name; default: the guest's name and the time
    :param test: show what would be done, change nothing
    :param host: where it is: you know that it runs nowhere else, whoever is silent
    :param disk_only: True for an external snapshot, False for an internal one; default: what suits
        the guest
    :param quiesce: have the guest's agent settle its file systems first; the snapshot is external

    :return: under the guest's name ``result``, ``comment``, ``changes``, ``host``

    CLI Example:

    .. code-block:: bash

        salt-run virt.snapshot web1 before-upgrade
        salt-run virt.snapshot web1 before-upgrade disk_only=True quiesce=True
    """
    if disk_only is not None:
        disk_only = values.boolean(disk_only, "disk_only")
    quiesce = values.boolean(quiesce, "quiesce")
    with Fleet(__opts__) as fleet:
        taken = of_snapshots.TakeSnapshot(fleet, name, snapshot, host, disk_only, quiesce)
        return operation.perform(taken, test)


@result.reporting
def revert(name, snapshot=None, test=False, cleanup=False, host=None):
    """
    Put a guest back to a snapshot, wherever it runs. One that is off, refused as a start is.

    Snapshots that would be lost or corrupted by it, such as those on top of an external one, need
    ``cleanup``. The comment says what is not as it was at the snapshot: firmware variables or TPM
    state that were not saved, and disks that came later, which are detached and stay.

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
    cleanup = values.boolean(cleanup, "cleanup")
    with Fleet(__opts__) as fleet:
        return operation.perform(
            of_snapshots.RevertToSnapshot(fleet, name, snapshot, cleanup, host), test
        )


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
    options = settings.user_kwargs(kwargs)
    everything = values.boolean(options.pop("all", False), "all")
    children = values.boolean(children, "children")
    snapshots = None if everything else [str(snapshot) for snapshot in names]
    for word in set(options) - {"host"}:
        raise errors.InvalidInput(f"{word} is no argument of virt.delete_snapshots")
    with Fleet(__opts__) as fleet:
        deletion = of_snapshots.DeleteSnapshots(
            fleet, name, snapshots, children, options.get("host")
        )
        return operation.perform(deletion, test)


@result.reporting
def purge(name, delete_key=True, test=False, force=False):
    """
    Remove a guest with its own disks, and its minion key. Nothing else is deleted.

    A guest that is not off is refused: shut it down first, or give ``force``.

    A disk on storage that several hosts may have goes only when every hypervisor has answered
    that it does not use it. What stays is named.

    :param name: of the guest
    :param delete_key: also delete the guest's key from the master; a key that this master did not
        accept for a guest of that host stays, and is named
    :param test: show what would be deleted and what would stay, change nothing
    :param force: power off a guest that is not off, and remove it

    :return: under the guest's name ``result``, ``comment``, ``changes``, ``host``

    CLI Example:

    .. code-block:: bash

        salt-run virt.purge web1
        salt-run virt.purge web1 force=True
    """
    forced = values.boolean(force, "force")
    with Fleet(__opts__) as fleet:
        return operation.perform(purging.Purge(fleet, name, delete_key, force=forced), test)


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
    name, new, options = str(name), str(new), settings.user_kwargs(kwargs)
    sure = values.boolean(options.pop("name_is_free", False), "name_is_free")
    with Fleet(__opts__) as fleet:
        progress = report.of_runner(fleet, new, "rename", __salt__)
        return operation.perform(
            identity.RenameGuest(fleet, progress, name, new, options, sure), test
        )


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
    name, new, options = str(name), str(new), settings.user_kwargs(kwargs)
    sure = values.boolean(options.pop("name_is_free", False), "name_is_free")
    with Fleet(__opts__) as fleet:
        progress = report.of_runner(fleet, new, "clone", __salt__)
        keeps = factory.ha_provider(__opts__)
        copy = identity.CloneGuest(
            fleet, progress, name, new, options, sure, start=start, provider=keeps
        )
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
    with Fleet(__opts__) as fleet:
        return operation.perform(authorizing.Authorize(fleet, name, host, pillar), test)


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
    with Fleet(__opts__) as fleet:
        return operation.perform(eject.Eject(fleet, name), test)
