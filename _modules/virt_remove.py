"""
Remove guests of a hypervisor, and leftovers of interrupted operations.

:depends: libvirt-python in Salt's own Python
"""

import dataclasses
from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt import errors, settings
    from saltvirt.answers import creation as creation_answers
    from saltvirt.answers import removal as removal_answer
    from saltvirt.backup.export import request as backup_request
    from saltvirt.host import connection
    from saltvirt.host.domain import creation, guest_lock, lookup, removal
    from saltvirt.host.domain import purge as host_purge  # a function here has the same name
    from saltvirt.host.migration import departures, move_journal
    from saltvirt.host.provision import admission, disk_journal
    from saltvirt.host.provision import leftovers as host_leftovers
    from saltvirt.host.storage import shared_writable, sharing, usage
    from saltvirt.spec import base, values

if TYPE_CHECKING:
    from salt_dunders import __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def _connect(kwargs):
    return connection.connect(settings.connection(__salt__["config.get"], kwargs))


def _admission():
    return admission.AdmissionConfig.configured(__salt__["config.get"])


def undefine(vm_, **kwargs):
    """
    Undefine a stopped domain and remove its NVRAM. Its disks and its TPM state are kept.

    libvirt refuses if the domain has saved memory or snapshots; ``virt.purge`` removes those, too.

    :param vm_: name of the domain
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True, after libvirt has confirmed it

    :raises OperationFailed: the domain is running, or libvirt refused

    CLI Example:

    .. code-block:: bash

        salt '*' virt.undefine <domain>
    """
    admission_config = _admission()
    with admission_config.guest("virt.undefine", vm_), _connect(kwargs) as conn:
        return removal.undefine(conn, lookup.lookup(conn, vm_))


def purge(
    vm_, dirs=False, removables=False, disks="own", test=False, unused=(), force=True, **kwargs
):
    """
    Remove a guest and its own disks. Nothing else is deleted.

    The own disks of a guest that ``virt.init`` created are those of its record, and the files of
    its snapshots. For any other domain, they are its writable disks. The following are never
    deleted: disks that another domain uses or is based on, removable media, shared or read-only
    disks, images of the cache, and block devices outside libvirt's pools. Disks that other hosts
    may have, for example on NFS, are not deleted either: ``salt-run virt.purge`` queries the other
    hosts. If it cannot be proven that no other guest uses a disk, it is kept. Saved memory,
    snapshots, NVRAM and TPM state are deleted with the guest, except NVRAM and TPM state that other
    hosts may have or that are not in libvirt's default location for this guest, because a
    definition may name the distribution's own template. An interrupted migration of the guest from
    this host is finished first; if the guest is, or may be, on the target then, nothing is removed.
    If it fails, you can call it again.

    :param vm_: name of the domain
    :param dirs: also remove folders below ``virt:images`` that are empty afterwards
    :param removables: accepted for compatibility with Salt 3007; removable media are never deleted
    :param disks: ``own``, as above; ``made``: only disks of a record of Salt Virt, so none of other
        domains; ``none``
    :param test: only show what would be deleted
    :param unused: paths on shared storage that no other host uses, as the caller has verified; the
        runner verifies it with ``virt.storage_users``
    :param force: False: refuse a guest that is not off, as ``salt-run virt.purge`` does; by default
        it is powered off, as with Salt 3007
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True, after the disks are deleted and libvirt no longer lists the domain; if some of
        its own disks are kept, a dictionary instead: ``left`` (path to the reason); with ``test`` a
        dictionary: ``delete`` (paths), ``keep`` (path to the reason) and, if there are any,
        ``shared`` (files to ask other hosts about, by path) and ``unsure`` (the guest's own disks
        that are kept)

    :raises NotFound: the domain does not exist
    :raises OperationFailed: a disk could not be deleted; the domain is then still defined

    CLI Example:

    .. code-block:: bash

        salt '*' virt.purge <domain>
        salt '*' virt.purge <domain> test=True
    """
    disks = values.choice("own", "made", "none")(disks, "disks")
    unused, dirs = values.paths(unused, "unused"), values.flag(dirs, "dirs")
    admission_config = _admission()
    with _connect(kwargs) as conn:
        if values.flag(test, "test"):
            todo = host_purge.plan(
                conn, lookup.lookup(conn, vm_), admission_config.cache_dir, disks, unused
            )
            places, unsure = sharing.as_data(todo.shared), tuple(todo.uncertain)
            delete = (*todo.delete, *todo.variables)
            return removal_answer.RemovalPlan(delete, todo.keep, places, unsure).to_answer()
        dom = lookup.lookup(conn, vm_)
        host_purge.not_at_work(dom)  # checked before waiting for the lock
        _end_migration(dom)
        with admission_config.guest("virt.purge", vm_):
            result = host_purge.purge(
                conn,
                vm_,
                admission_config.cache_dir,
                admission_config.images_dir,
                dirs,
                disks,
                unused,
                values.boolean(force, "force"),
            )
    departures.forget(str(vm_))
    leftovers = {path: result.keep[path] for path in result.uncertain}
    return {"left": leftovers} if leftovers else True


def _end_migration(dom):
    """Finish an interrupted migration of the domain, which is impossible once the domain is
    removed."""
    if move_journal.load_for_domain(dom) is None:
        return
    recovery = __salt__["virt.migrate_recover"](dom.name())
    if recovery["outcome"] == "moved":
        raise errors.OperationFailed(
            f"{dom.name()} is on {recovery['target']}: its migration from here was broken off, "
            f"and is "
            "completed now"
        )


def shared_disks(vm_, **kwargs):
    """
    List the disks of a domain that other hosts may have, so that a copy of the domain there could
    write to them.

    :param vm_: name of the domain
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary of disks to the reason; empty if all writable disks are local to this host

    :raises NotFound: the domain does not exist

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.shared_disks web1
    """
    with _connect(kwargs) as conn:
        return shared_writable.shared_disks(lookup.lookup(conn, vm_))


def storage_users(places, **kwargs):
    """
    Check whether this host uses files on shared storage. Changes nothing.

    :param places: dictionary of paths to their descriptions: ``path``, ``inode``, ``ids``,
        ``names``; as in ``shared`` of ``virt.purge`` with ``test=True``
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: each path to the reason to keep it, or None if nothing on this host uses it

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.storage_users '{/nfs/web1.qcow2: {path: /nfs/web1.qcow2}}'
    """
    try:
        identities = [
            sharing.FileIdentity.from_answer(identity, "places")
            for identity in base.mapping(places, "places").values()
        ]
    except errors.BadAnswer as exc:
        raise errors.InvalidInput(f"{exc}; pass the entries of virt.purge test=True") from exc
    with _connect(kwargs) as conn:
        return usage.users_here(conn, identities, _admission().images_dir)


def leftovers(**kwargs):
    """
    List leftovers of interrupted operations on this host. Changes nothing.

    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary: ``guests`` (name to state), ``unfinished`` (guests whose creation was
        interrupted), ``used`` (those of them that run or were ever started, with the evidence),
        ``migrations`` (as ``virt.migrate_unfinished``), ``left`` (``NAME@HOST``: leftovers of a
        guest that an unreachable host may have), ``target_leftovers`` (guests whose rolled back
        migration to this host has left something), ``at_work`` (guest to the running operation, its
        process and start time), ``operations`` (guest to the mark of the ``salt-run virt.init``
        that created it), ``made`` (guest to disks that an interrupted operation created for it:
        ``what`` operation, ``disks`` that can be removed, and ``unsure``, path to the reason why it
        is kept) and ``backups`` (guests whose backups have leftovers of processes that died:
        ``virt.backup_sweep`` removes them)

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.leftovers
    """
    with _connect(kwargs) as conn:
        report = host_leftovers.read(conn, guest_lock.folder(__salt__["config.get"]))
    return dataclasses.replace(
        report, backups=tuple(backup_request.interrupted_guests())
    ).to_answer()


def creation_phase(vm_, **kwargs):
    """
    Show the phase of a guest's creation.

    :param vm_: name of the domain
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary: ``phase``: ``creating``, ``interrupted`` (the process that created the
        guest ended before the guest was complete) or ``complete``; ``used``: for an interrupted
        guest that runs or was ever started, the evidence; otherwise None

    :raises NotFound: the domain does not exist

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.creation_phase web1
    """
    with _connect(kwargs) as conn:
        dom = lookup.lookup(conn, vm_)
        phase = creation.of_domain(dom)
        used = (
            creation.evidence_of_use(dom) if phase is creation_answers.Phase.INTERRUPTED else None
        )
        return {"phase": phase.value, "used": used}


def mark_complete(vm_, **kwargs):
    """
    Mark a guest whose creation was interrupted as complete, and keep it as it is.

    Until then it cannot be started, changed or migrated, and if it was never started, it is removed
    when it is created again. Check the guest first: its disks may be missing or empty, and the
    system in them may lack its host name and its minion key.

    :param vm_: name of the domain
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True; False if its creation was not interrupted

    :raises NotFound: the domain does not exist
    :raises Incomplete: it is being created

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.mark_complete web1
    """
    with _admission().guest("virt.mark_complete", vm_), _connect(kwargs) as conn:
        dom = lookup.lookup(conn, vm_)
        if creation.of_domain(dom) is not creation_answers.Phase.INTERRUPTED:
            creation.require_complete(dom, "mark")
            return False
        creation.complete(dom)
        return True


def remove_made(vm_, test=False, unused=(), **kwargs):
    """
    Remove disks that an interrupted operation created for a guest and did not attach.

    Only disks that are proven to be created by it and unused are removed. Disks that other hosts
    may have are kept: ``salt-run virt.repair`` queries the other hosts. All other disks are
    reported and kept.

    :param vm_: name of the guest, which need not exist any more
    :param test: only show what would be deleted
    :param unused: paths on shared storage that no other host uses, as the caller has verified; the
        runner verifies it with ``virt.storage_users``
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True, if nothing is left; with ``test`` a dictionary: ``delete`` (paths), ``keep``
        (path to the reason) and, if there are any, ``shared`` (files to ask other hosts about)

    :raises OperationFailed: something is kept; the message has the reasons

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.remove_made web1 test=True
    """
    unused = values.paths(unused, "unused")
    lock_dir = guest_lock.folder(__salt__["config.get"])
    with _connect(kwargs) as conn:
        if values.flag(test, "test"):
            todo = disk_journal.find_leftovers(conn, str(vm_), unused)
            delete = tuple(sorted([*todo.delete, *todo.extra_links]))
            return removal_answer.RemovalPlan(
                delete, todo.keep, sharing.as_data(todo.shared)
            ).to_answer()
        with guest_lock.acquire(lock_dir, "virt.remove_made", vm_):
            plan = disk_journal.remove(conn, str(vm_), unused)
    if plan.keep:
        stay = "; ".join(f"{path} stays: {reason}" for path, reason in plan.keep.items())
        raise errors.OperationFailed(stay)
    return True
