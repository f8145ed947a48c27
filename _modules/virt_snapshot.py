"""
Snapshots of guests.

Every function takes ``connection``, ``username`` and ``password``; what is not given
comes from ``virt:connection:uri`` and ``virt:connection:auth``.

:depends: libvirt-python in Salt's own Python
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt import settings
    from saltvirt.answers import snapshots as snapshot_answer
    from saltvirt.host import connection
    from saltvirt.host.domain import guest_lock
    from saltvirt.host.provision import admission
    from saltvirt.host.snapshot import snapshots
    from saltvirt.host.storage import sharing
    from saltvirt.spec import values

if TYPE_CHECKING:
    from salt_dunders import __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def _connect(kwargs):
    return connection.connect(settings.connection(__salt__["config.get"], kwargs))


def _locked(operation, *names):
    return guest_lock.acquire(
        guest_lock.folder(__salt__["config.get"]), f"virt.{operation}", *names
    )


def list_snapshots(domain=None, **kwargs):
    """
    The snapshots of one guest, or of all.

    :param domain: the guest's name; None for all
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict of guest name to a list of dicts, or ``N/A`` when it has none: ``name``,
        ``created`` (local time), ``running`` (the guest ran, and its memory is in it),
        ``current``, ``state`` (``running``, ``shutoff``, ``disk-snapshot``, …), ``parent``,
        ``description``, ``external`` (in files of its own). A guest that cannot be read has
        a dict with ``error``.

    :raises NotFound: no such guest

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.list_snapshots
        salt 'hyper1' virt.list_snapshots web1
    """
    with _connect(kwargs) as conn:
        return snapshots.listing(conn, domain)


def snapshot(
    domain,
    name=None,
    suffix=None,
    description=None,
    disk_only=None,
    quiesce=False,
    test=False,
    **kwargs,
):
    """
    Take a snapshot of a guest.

    An internal snapshot is inside the guest's disks, which must be qcow2, and holds the memory of
    a running guest, which is paused while its memory is written. An external one is of the disks
    alone: each disk's file stays as it is, and the guest goes on in a new layer on top of it. A
    guest with UEFI firmware, a raw disk or a disk on a block device can have external snapshots
    only. A guest has snapshots of one kind at a time. While it has any, it cannot migrate live.

    Firmware variables and the state of an emulated TPM are saved on this host and put back by
    :func:`revert_snapshot`; ``notes`` say so if that is not possible.

    :param domain: the guest's name
    :param name: the snapshot's name; default the guest's name with date and time
    :param suffix: appended to the name, after a dash
    :param description: words to remember it by
    :param disk_only: True for an external snapshot, False for an internal one; default: what suits
        the guest
    :param quiesce: have the guest's agent settle its file systems first; the snapshot is external
    :param test: only say what would be done
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict with the snapshot's ``name``, and ``notes`` (sentences) if there is anything
        particular about it, such as what is not saved with it

    :raises NotFound: no such guest
    :raises InvalidInput: the name is the guest's own, or QEMU would not find it again
    :raises AlreadyExists: the guest has a snapshot of that name
    :raises Refused: the guest has snapshots of the other kind, or there is no room
    :raises Unsupported: the guest cannot have a snapshot of that kind

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' virt.snapshot web1
        salt 'hyper1' virt.snapshot web1 name=before-upgrade disk_only=True
    """
    if disk_only is not None:
        disk_only = values.boolean(disk_only, "disk_only")
    request = snapshots.SnapshotRequest(
        name,
        suffix,
        description,
        disk_only,
        values.boolean(quiesce, "quiesce"),
        admission.AdmissionConfig.configured(__salt__["config.get"]).images_dir,
    )
    if values.boolean(test or False, "test"):
        with _connect(kwargs) as conn:
            result = snapshots.plan_create(conn, domain, request)
    else:
        with _locked("snapshot", domain), _connect(kwargs) as conn:
            result = snapshots.create(conn, domain, request)
    return snapshot_answer.SnapshotTaken(result.name, result.notes).to_answer()


def delete_snapshots(name, *names, **kwargs):
    """
    Delete snapshots of a guest. The guest and its disks stay as they are. libvirt can delete some
    snapshots only in one order, or only while the guest is off or running: that order is used, or
    the error says what to do first, and nothing is deleted.

    :param name: the guest's name
    :param names: the snapshots' names; one that is unknown fails the call before any is
        deleted
    :param all: True to delete every snapshot of the guest
    :param children: True to delete with each also those taken on top of it
    :param test: only say what would be done
    :param unused: files on storage that other hosts may have, of which the caller knows from all of
        them that nobody there uses them; ``salt-run virt.delete_snapshots`` asks them
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict: ``deleted`` (name to description) and ``available`` (what is left, as
        :func:`list_snapshots` has it); with ``test`` ``deleted``, and where there are any
        ``shared`` and ``own``: what to ask other hosts about, by path

    :raises NotFound: no such guest or snapshot
    :raises InvalidInput: neither names nor ``all``
    :raises Refused: somebody else needs a file that would be merged, or other hosts may; another
        snapshot has to be deleted with it, or the guest stopped or started first

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' virt.delete_snapshots web1 before-upgrade
        salt 'hyper1' virt.delete_snapshots web1 all=True
    """
    everything = values.boolean(kwargs.pop("all", False), "all")
    children = values.boolean(kwargs.pop("children", False), "children")
    test = values.boolean(kwargs.pop("test", False) or False, "test")
    unused = kwargs.pop("unused", ())
    names = (*names, *kwargs.pop("names", ()))
    if test:
        with _connect(kwargs) as conn:
            deletable, stake = snapshots.plan_delete(conn, name, names, everything, children)
        return snapshot_answer.SnapshotsDeleted(
            deleted=deletable, **_file_identities(stake)
        ).to_answer()
    with _locked("delete_snapshots", name), _connect(kwargs) as conn:
        return snapshots.delete(conn, name, names, everything, children, unused)


def _file_identities(stake):
    guest_disks = stake.own if stake.shared else {}
    return {"shared": sharing.as_data(stake.shared), "own": sharing.as_data(guest_disks)}


def revert_snapshot(name, vm_snapshot=None, cleanup=False, test=False, unused=(), **kwargs):
    """
    Put a guest back to where it was at a snapshot. What came after is lost.

    After an external snapshot of the disks alone the guest is shut off. Snapshots that would be
    lost or corrupted by it, such as those on top of an external one, need ``cleanup``.

    :param name: the guest's name
    :param vm_snapshot: the snapshot's name; default the one before the current
    :param cleanup: True to delete all snapshots that are newer than it
    :param test: only say what would be done
    :param unused: files on storage that other hosts may have, of which the caller knows from all of
        them that nobody there uses them; ``salt-run virt.revert`` asks them
    :param overcommit: start a guest that is off, with a snapshot's memory, also where the host has
        promised its memory or CPUs to others; default: ``virt:overcommit``, else False
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict: ``reverted`` (the name) and ``deleted`` (a list of names; ``N/A``
        without ``cleanup``); ``notes`` (sentences) if anything is not as it was at the snapshot;
        with ``test`` also, where there are any, ``shared`` and ``own``: what to ask other hosts
        about, by path

    :raises NotFound: no such guest or snapshot, or none before the current
    :raises NoRoom: the guest would be started, and the host's memory or CPUs are promised to others
    :raises InvalidInput: others would be lost, or something else has a checkpoint of the guest
    :raises Refused: somebody else needs a layer or a disk that would be lost, or other hosts may;
        or not all of the snapshot can be put back, as a disk of it is not the guest's any more

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' virt.revert_snapshot web1
        salt 'hyper1' virt.revert_snapshot web1 before-upgrade cleanup=True
    """
    places, cleanup = {}, values.boolean(cleanup, "cleanup")
    config = admission.config_of(__salt__["config.get"], kwargs)
    if values.boolean(test or False, "test"):
        with _connect(kwargs) as conn:
            outcome, stake = snapshots.plan_revert(conn, name, vm_snapshot, cleanup, config)
        places = _file_identities(stake)
    else:
        with _locked("revert_snapshot", name), _connect(kwargs) as conn:
            outcome = snapshots.revert(conn, name, vm_snapshot, cleanup, unused, config)
    deleted = outcome.deleted if cleanup else snapshots.NONE
    return snapshot_answer.SnapshotReverted(
        reverted=outcome.name, deleted=deleted, notes=outcome.notes, **places
    ).to_answer()
