"""
Start, stop, snapshot, rename, copy and remove guests of the cloud, and manage their owners.

Owners and labels are for ``virt:rights``: docs/how-to/rights.md.

Every function that changes guests accepts ``test=True``: show what would be done, and change
nothing.
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt.fleet.client import Fleet
from saltvirt.operations.access import runner

with saltvirt.later():
    from saltvirt import errors, settings, units
    from saltvirt.operations.access import authorize as authorize_operation
    from saltvirt.operations.access import (
        set_owner as owner_operation,  # a function here has the same name
    )
    from saltvirt.operations.cluster import hooks
    from saltvirt.operations.core import operation, report
    from saltvirt.operations.create import eject, identity
    from saltvirt.operations.guest import lifecycle
    from saltvirt.operations.guest import purge as purge_operation
    from saltvirt.operations.guest import snapshots as snapshot_operations
    from saltvirt.spec import values

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def _verb(name, verb, test, wait_s=0, options=None, host=None):
    with Fleet(__opts__) as fleet:
        provider = hooks.ha_provider(__opts__) if verb == "start" else None
        change = lifecycle.Lifecycle(fleet, name, verb, wait_s, options, host, provider)
        return operation.perform(change, test)


@runner.reporting_guests
def start(name, test=False, overcommit=False, host=None):
    """
    Start a guest. The host refuses if its running guests would exceed the limits of
    ``virt:placement`` for memory or vCPUs. The start is also refused if the guest's disks are on
    shared storage and a hypervisor that may run it does not answer.

    :param name: name of the guest
    :param test: show what would be done; change nothing
    :param overcommit: start the guest even if the host does not have enough capacity, or if
        capacity of ``virt:ha:reserve`` would be used
    :param host: hypervisor of the guest, if you know that it runs nowhere else although hosts do
        not answer

    :return: under the guest's name ``result``, ``comment``, ``changes``, ``host``, ``state``

    CLI Example:

    .. code-block:: bash

        salt-run virt.start web1
    """
    options = {"overcommit": True} if overcommit else None
    return _verb(name, "start", test, options=options, host=host)


@runner.reporting_guests
def shutdown(name, test=False, timeout=60):
    """
    Ask the operating system of a guest to shut down (ACPI power button, every 10 s), and wait until
    the guest is off. To power off a guest, use ``salt-run virt.force_off`` or, on a host,
    ``salt HOST virt.stop``.

    :param name: name of the guest
    :param test: show what would be done; change nothing
    :param timeout: seconds to wait; a guest that is still running after that is not powered off,
        and the call fails

    :return: under the guest's name ``result``, ``comment``, ``changes``, ``host``, ``state``

    CLI Example:

    .. code-block:: bash

        salt-run virt.shutdown web1
    """
    return _verb(name, "shutdown", test, units.parse_number(timeout, "timeout"))


@runner.reporting_destructive
def force_off(name, test=False):
    """
    Power off a guest immediately.

    :param name: name of the guest
    :param test: show what would be done; change nothing

    :return: under the guest's name ``result``, ``comment``, ``changes``, ``host``, ``state``

    CLI Example:

    .. code-block:: bash

        salt-run virt.force_off web1
    """
    return _verb(name, "force_off", test)


@runner.reporting_guests
def pause(name, test=False):
    """
    Pause a guest. It keeps its memory and gets no CPU time.

    :param name: name of the guest
    :param test: show what would be done; change nothing

    :return: under the guest's name ``result``, ``comment``, ``changes``, ``host``, ``state``

    CLI Example:

    .. code-block:: bash

        salt-run virt.pause web1
    """
    return _verb(name, "pause", test)


@runner.reporting_guests
def resume(name, test=False, host=None):
    """
    Resume a paused guest. Refused if the guest's disks are on shared storage and a hypervisor that
    may run it does not answer.

    :param name: name of the guest
    :param test: show what would be done; change nothing
    :param host: hypervisor of the guest, if you know that it runs nowhere else although hosts do
        not answer

    :return: under the guest's name ``result``, ``comment``, ``changes``, ``host``, ``state``

    CLI Example:

    .. code-block:: bash

        salt-run virt.resume web1
    """
    return _verb(name, "resume", test, host=host)


@runner.reporting_destructive
def reset(name, test=False):
    """
    Reset a guest, like its reset button.

    :param name: name of the guest
    :param test: show what would be done; change nothing

    :return: under the guest's name ``result``, ``comment``, ``changes``, ``host``, ``state``

    CLI Example:

    .. code-block:: bash

        salt-run virt.reset web1
    """
    return _verb(name, "reset", test)


@runner.reporting_guests
def snapshots(name):
    """
    List the snapshots of a guest, the oldest first: time, kind (internal or external), state of the
    guest, and parent snapshot.

    :param name: name of the guest

    :return: under the guest's name ``result``, ``comment``, ``host``, and ``snapshots``, a list of
        dictionaries: ``name``, ``created``, ``external``, ``state``, ``parent``, ``current``,
        ``description``

    CLI Example:

    .. code-block:: bash

        salt-run virt.snapshots web1
    """
    with Fleet(__opts__) as fleet:
        return snapshot_operations.listing(fleet, name).answer()


@runner.reporting_guests
def snapshot(name, snapshot=None, test=False, host=None, disk_only=None, quiesce=False):
    """
    Take a snapshot of a guest. For a guest that is off, it is refused under the same conditions as
    a start.

    An internal snapshot is stored in the guest's qcow2 disks and includes the memory of a running
    guest; an external one includes only the disks. The kind depends on the guest: UEFI firmware,
    raw disks and disks on block devices require external snapshots. The comment says what is not
    saved, and that the guest cannot migrate live while it has snapshots.

    :param name: name of the guest
    :param snapshot: name of the snapshot; default: the guest's name and the time
    :param test: show what would be done; change nothing
    :param host: hypervisor of the guest, if you know that it runs nowhere else although hosts do
        not answer
    :param disk_only: True: an external snapshot; False: an internal one; default: depends on the
        guest
    :param quiesce: have the guest agent freeze the file systems first; the snapshot is external

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
        taken = snapshot_operations.TakeSnapshot(fleet, name, snapshot, host, disk_only, quiesce)
        return operation.perform(taken, test)


@runner.reporting_destructive
def revert(name, snapshot=None, test=False, cleanup=False, host=None):
    """
    Revert a guest to a snapshot. For a guest that is off, it is refused under the same conditions
    as a start.

    If other snapshots would be lost or corrupted, such as those on top of an external one,
    ``cleanup`` is required. The comment lists what could not be restored: firmware variables or TPM
    state that were not saved, and disks that were attached later, which are detached and kept.

    Overlays of an external snapshot on shared storage are only discarded if every hypervisor has
    confirmed that it does not need them.

    :param name: name of the guest
    :param snapshot: name of the snapshot; default: the one before the current one
    :param test: show what would be done; change nothing
    :param cleanup: also delete all snapshots that are newer or based on it
    :param host: hypervisor of the guest, if you know that it runs nowhere else although hosts do
        not answer
    :return: under the guest's name ``result``, ``comment``, ``changes``, ``host``

    CLI Example:

    .. code-block:: bash

        salt-run virt.revert web1 before-upgrade
    """
    cleanup = values.boolean(cleanup, "cleanup")
    if snapshot == "":  # as of a variable that is not set
        raise errors.InvalidInput("snapshot is empty: leave it out for the one before the current")
    with Fleet(__opts__) as fleet:
        return operation.perform(
            snapshot_operations.RevertToSnapshot(fleet, name, snapshot, cleanup, host), test
        )


@runner.reporting_destructive
def delete_snapshots(name, *names, children=False, test=False, **kwargs):
    """
    Delete snapshots of a guest. The guest and its disks are not changed. For a guest that is off,
    it is refused under the same conditions as a start.

    The overlay of an external snapshot is merged into its backing file. On shared storage, this
    requires that every hypervisor has confirmed that it needs neither.

    :param name: name of the guest
    :param names: names of the snapshots; if one is unknown, none is deleted
    :param children: also delete the snapshots based on them
    :param test: show what would be done; change nothing
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
    if everything and names:
        raise errors.InvalidInput("all=True deletes every snapshot: name none, or leave all out")
    snapshots = None if everything else [str(snapshot) for snapshot in names]
    for word in set(options) - {"host"}:
        raise errors.InvalidInput(f"{word} is not an argument of virt.delete_snapshots")
    with Fleet(__opts__) as fleet:
        deletion = snapshot_operations.DeleteSnapshots(
            fleet, name, snapshots, children, options.get("host")
        )
        return operation.perform(deletion, test)


@runner.reporting_destructive
def purge(name, delete_key=True, test=False, force=False):
    """
    Remove a guest, its own disks and its minion key. Nothing else is deleted.

    A guest that is not off is refused: shut it down first, or use ``force``.

    A disk on shared storage is only deleted if every hypervisor has confirmed that it does not use
    it. Disks that are kept are listed.

    :param name: name of the guest
    :param delete_key: also delete the guest's key from the master; a key that this master did not
        accept for a guest of that host is kept and reported
    :param test: show what would be deleted and what would be kept; change nothing
    :param force: power off a guest that is not off, then remove it

    :return: under the guest's name ``result``, ``comment``, ``changes``, ``host``

    CLI Example:

    .. code-block:: bash

        salt-run virt.purge web1
        salt-run virt.purge web1 force=True
    """
    forced = values.boolean(force, "force")
    with Fleet(__opts__) as fleet:
        return operation.perform(purge_operation.Purge(fleet, name, delete_key, force=forced), test)


@runner.reporting
def rename(name, new, test=False, **kwargs):
    """
    Rename a stopped guest: its definition, its disk files, the identity of its minion and its key.

    :param name: name of the guest
    :param new: the new name, also its minion id and host name
    :param test: show what would be done; change nothing
    :param kwargs: ``seed=False`` leaves what is in its disks as it is; ``name_is_free=True`` when
        a hypervisor does not answer, and you know that it has no guest of the new name

    :return: under the new name ``result``, ``comment``, ``changes``, ``host``

    CLI Example:

    .. code-block:: bash

        salt-run virt.rename web1 web2
    """
    name, new, options = str(name), str(new), settings.user_kwargs(kwargs)
    name_is_free = values.boolean(options.pop("name_is_free", False), "name_is_free")
    with Fleet(__opts__) as fleet:
        progress = report.of_runner(fleet, new, "rename", __salt__)
        return operation.perform(
            identity.RenameGuest(fleet, progress, name, new, options, name_is_free), test
        )


@runner.reporting
def clone(name, new, start=False, test=False, **kwargs):
    """
    Clone a stopped guest on its host, with disks, addresses and an identity of its own; the clone's
    key is accepted.

    :param name: name of the guest to clone
    :param new: name of the clone, also its minion id and host name
    :param start: start the clone
    :param test: show what would be done; change nothing
    :param kwargs: any other argument of ``virt.clone`` on a hypervisor; ``name_is_free=True`` when
        a hypervisor does not answer, and you know that it has no guest of the copy's name

    :return: under the clone's name ``result``, ``comment``, ``changes``, ``host``, ``state``

    CLI Example:

    .. code-block:: bash

        salt-run virt.clone web1 web2 start=True
    """
    name, new, options = str(name), str(new), settings.user_kwargs(kwargs)
    name_is_free = values.boolean(options.pop("name_is_free", False), "name_is_free")
    with Fleet(__opts__) as fleet:
        progress = report.of_runner(fleet, new, "clone", __salt__)
        provider = hooks.ha_provider(__opts__)
        copy = identity.CloneGuest(
            fleet, progress, name, new, options, name_is_free, start=start, provider=provider
        )
        return operation.perform(copy, test)


@runner.reporting
def authorize(name, host, pillar=None, test=False):
    """
    Authorize a hypervisor to submit the minion key of a new guest, once, within ten minutes.

    Use it before you call ``virt.init`` or ``seed.apply`` directly on that hypervisor;
    ``salt-run virt.init`` does not need it.

    :param name: name of the guest
    :param host: minion id of the hypervisor
    :param pillar: dictionary that the master adds to the guest's pillar, as with ``virt.init``
    :param test: show what would be done; change nothing

    :return: under the guest's name ``result`` and ``comment``

    CLI Example:

    .. code-block:: bash

        salt-run virt.authorize web1 hyper1
    """
    with Fleet(__opts__) as fleet:
        return operation.perform(authorize_operation.Authorize(fleet, name, host, pillar), test)


@runner.reporting_guests
def seed_eject(name, test=False):
    """
    Detach and delete a guest's cloud-init volume, which contains the guest's key.

    ``virt.init`` with ``wait=True`` does this. For a reactor on ``salt/minion/*/start``: minions
    that are not guests of this master are skipped without a query to any host. A guest that has
    never connected to this master keeps its volume, because the event can be forged.

    :param name: name of the guest
    :param test: show what would be done; change nothing

    :return: under the guest's name ``result``, ``comment``, ``changes``

    CLI Example:

    .. code-block:: bash

        salt-run virt.seed_eject web1
    """
    with Fleet(__opts__) as fleet:
        return operation.perform(eject.Eject(fleet, name), test)


@runner.reporting_guests
def set_owner(name, owner=None, test=False):
    """
    Set the owner of a guest, for ``owned`` grants and quotas of ``virt:rights``. A limited user
    automatically owns the guests that the user deploys.

    :param name: name of the guest
    :param owner: user name as in Salt's eauth; default: no owner
    :param test: show what would be recorded; change nothing

    :return: under the guest's name ``result``, ``comment``, ``changes`` (``owner``: ``old``,
        ``new``)

    CLI Example:

    .. code-block:: bash

        salt-run virt.set_owner web1 anna
    """
    with Fleet(__opts__) as fleet:
        return operation.perform(owner_operation.SetOwner(fleet, name, owner), test)


@runner.reporting_guests
def label(name, labels=None, test=False):
    """
    Set the labels of a guest, for grants of ``virt:rights`` by ``labels``; they replace all
    previous labels. They are the master's own records and have no other effect: the ``labels`` of
    ``virt.init`` are those that a *host* must have.

    :param name: name of the guest
    :param labels: a label or a list of labels; default: none
    :param test: show what would be recorded; change nothing

    :return: under the guest's name ``result``, ``comment``, ``changes`` (``labels``: ``old``,
        ``new``)

    CLI Example:

    .. code-block:: bash

        salt-run virt.label web1 '[web, prod]'
    """
    with Fleet(__opts__) as fleet:
        return operation.perform(owner_operation.SetLabels(fleet, name, labels), test)


@runner.reporting
def owners():
    """
    List the owners of guests, or show what is wrong in ``virt:rights``; until that is fixed, users
    have no rights.

    :return: under ``owners``: ``table``, ``guests`` (name to user or null), ``labels`` (name to a
        list), ``unreachable``: host to the reason; then the exit code is 1, and ``title`` names
        these hosts

    CLI Example:

    .. code-block:: bash

        salt-run virt.owners
    """
    with Fleet(__opts__) as fleet:
        return owner_operation.list_owners(fleet)
