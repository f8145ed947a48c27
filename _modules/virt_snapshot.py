"""
Manage snapshots of guests.

Every function accepts ``connection``, ``username`` and ``password``; the defaults are
``virt:connection:uri`` and ``virt:connection:auth``.

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
    List the snapshots of one guest, or of all guests.

    :param domain: name of the guest; None: all guests
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary of guest names to lists of dictionaries, or ``N/A`` if there are no
        snapshots: ``name``, ``created`` (local time), ``running`` (the guest was running, and its
        memory is included), ``current``, ``state`` (``running``, ``shutoff``, ``disk-snapshot`` and
        others), ``parent``, ``description``, ``external`` (in files of its own). A guest that
        cannot be read has a dictionary with ``error``.

    :raises NotFound: the guest does not exist

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

    An internal snapshot is stored in the guest's disks, which must be qcow2, and includes the
    memory of a running guest, which is paused while its memory is written. An external snapshot
    includes only the disks: each disk file is left unchanged, and the guest continues in a new
    overlay on top of it. A guest with UEFI firmware, a raw disk or a disk on a block device can
    only have external snapshots. A guest cannot have snapshots of both kinds, and cannot migrate
    live while it has any.

    Firmware variables and the state of an emulated TPM are saved on this host and restored by
    :func:`revert_snapshot`; if this is not possible, ``notes`` says so.

    :param domain: name of the guest
    :param name: name of the snapshot; default: the guest's name with date and time
    :param suffix: suffix of the name, appended with a dash
    :param description: description of the snapshot
    :param disk_only: True: an external snapshot; False: an internal one; default: depends on the
        guest
    :param quiesce: have the guest agent freeze the file systems first; the snapshot is external
    :param test: show what would be done; change nothing
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary with the snapshot's ``name``, and ``notes`` (sentences), if there are any,
        for example about data that is not saved with it

    :raises NotFound: the guest does not exist
    :raises InvalidInput: the name is that of the guest, or QEMU could not find it again
    :raises AlreadyExists: a snapshot of this name exists
    :raises Refused: the guest has snapshots of the other kind, or there is not enough disk space
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
    Delete snapshots of a guest. The guest and its disks are not changed. libvirt can delete some
    snapshots only in a certain order, or only while the guest is off or running: this order is
    used; if it is impossible, nothing is deleted, and the error says what to do first.

    :param name: name of the guest
    :param names: names of the snapshots; if one is unknown, none is deleted
    :param all: True: delete all snapshots of the guest
    :param children: True: also delete the snapshots based on them
    :param test: show what would be done; change nothing
    :param unused: files on shared storage that no other host uses, as the caller has verified;
        ``salt-run virt.delete_snapshots`` verifies it
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary: ``deleted`` (name to description) and ``available`` (remaining snapshots,
        as in :func:`list_snapshots`); with ``test`` ``deleted``, and, if there are any, ``shared``
        and ``own``: files to ask other hosts about, by path

    :raises NotFound: the guest or snapshot does not exist
    :raises InvalidInput: neither names nor ``all`` are given
    :raises Refused: another guest, or possibly another host, needs a file that would be merged; or
        another snapshot has to be deleted too, or the guest has to be stopped or started first

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
    guest_disks = stake.own_files if stake.shared else {}
    return {"shared": sharing.as_data(stake.shared), "own": sharing.as_data(guest_disks)}


def revert_snapshot(name, vm_snapshot=None, cleanup=False, test=False, unused=(), **kwargs):
    """
    Revert a guest to a snapshot. Later changes are lost.

    After a revert to an external snapshot, the guest is off. If other snapshots would be lost or
    corrupted, such as those on top of an external one, ``cleanup`` is required.

    :param name: name of the guest
    :param vm_snapshot: name of the snapshot; default: the one before the current one
    :param cleanup: True: delete all newer snapshots
    :param test: show what would be done; change nothing
    :param unused: files on shared storage that no other host uses, as the caller has verified;
        ``salt-run virt.revert`` verifies it
    :param overcommit: start a guest that is off with the memory of a snapshot even if the host does
        not have enough free memory or CPUs; default: ``virt:overcommit``, else False
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary: ``reverted`` (the name) and ``deleted`` (a list of names; ``N/A`` without
        ``cleanup``); ``notes`` (sentences) if something could not be restored; with ``test`` also,
        if there are any, ``shared`` and ``own``: files to ask other hosts about, by path

    :raises NotFound: the guest or snapshot does not exist, or there is none before the current one
    :raises NoRoom: the guest would be started, and the host does not have enough free memory or
        CPUs
    :raises InvalidInput: other snapshots would be lost, or another program has a checkpoint of the
        guest
    :raises Refused: another guest, or possibly another host, needs an overlay or disk that would be
        lost; or the snapshot cannot be restored completely, because the guest no longer has one of
        its disks

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
