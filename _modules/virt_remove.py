"""
Removing guests of a hypervisor, and what interrupted operations have left of them.

:depends: libvirt-python in Salt's own Python
"""

import dataclasses
from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt import errors, settings
    from saltvirt.answers import creation as phases
    from saltvirt.answers import removal as removal_answer
    from saltvirt.backup.export import request as backup_request
    from saltvirt.host import connection
    from saltvirt.host.domain import creation, guest_lock, lookup, removal
    from saltvirt.host.domain import purge as purging  # the name is a function's here
    from saltvirt.host.migration import departures, move_journal
    from saltvirt.host.provision import admission, disk_journal
    from saltvirt.host.provision import leftovers as left
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
    Remove the definition of a stopped domain, and its NVRAM. Its disks and its TPM's state stay.

    libvirt refuses while there is saved memory or a snapshot of it; ``virt.purge`` removes
    those too.

    :param vm_: name of the domain
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True, after libvirt no longer lists it

    :raises OperationFailed: it runs, or libvirt refused; the message has its words

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
    Remove a guest and its own disks, and nothing else.

    Of a guest that ``virt.init`` made, its own disks are those that its record names, and
    the files of its snapshots. Of any other domain they are its writable disks. What another
    domain uses or is based on, the medium of a drive, a shared or read-only disk, an image of
    the cache and a block device outside of libvirt's pools are never deleted. Nor is what other
    hosts may have, too, as on NFS: ``salt-run virt.purge`` asks them. Where it cannot be proven
    that nobody else uses a disk, it stays. Saved memory, snapshots, NVRAM and TPM state go with
    the guest, except NVRAM and TPM state that other hosts may have, or that are not in the place
    that libvirt chooses for this guest: a definition may name the distribution's own template.
    A migration of the guest from here that was broken off is ended first; where the guest is on the
    target then, or may be, nothing is removed. After a failure it can be called again.

    :param vm_: name of the domain
    :param dirs: also remove the folders below ``virt:images`` that are empty afterwards.
        Folders that hold anything are never removed
    :param removables: accepted as by Salt 3007; media are never deleted, as other guests may
        use them tomorrow
    :param disks: ``own``, as above; ``made``: only those that a record of ours names, so of any
        other domain none; ``none``
    :param test: only say what would be deleted
    :param unused: paths on storage that other hosts may have, of which the caller knows from all
        of them that nobody there uses them; the runner asks by ``virt.storage_users``
    :param force: False: refuse a guest that is not off, as ``salt-run virt.purge`` does; by
        default it is powered off, as by Salt 3007
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True, after the disks are gone and libvirt no longer lists the domain; where some of
        its own disks stay a dict in its place: ``left`` (path to the reason); with ``test``
        a dict: ``delete`` (paths), ``keep`` (path to the reason) and where there
        are any ``shared`` (what to ask other hosts about, by path) and ``unsure`` (the guest's own
        disks that stay)

    :raises NotFound: there is no such domain
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
            todo = purging.plan(
                conn, lookup.lookup(conn, vm_), admission_config.cache_dir, disks, unused
            )
            places, unsure = sharing.as_data(todo.shared), tuple(todo.uncertain)
            delete = (*todo.delete, *todo.variables)
            return removal_answer.RemovalPlan(delete, todo.keep, places, unsure).to_answer()
        dom = lookup.lookup(conn, vm_)
        purging.not_at_work(dom)  # said at once
        _end_migration(dom)
        with admission_config.guest("virt.purge", vm_):
            result = purging.purge(
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
    """Ends a migration of the domain that was broken off: without the domain nobody could."""
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
    Which disks of a domain other hosts may have, so that a copy of it there could write to them.

    :param vm_: name of the domain
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict of disk to the reason; empty when all that it writes to is this host's own

    :raises NotFound: there is no such domain

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.shared_disks web1
    """
    with _connect(kwargs) as conn:
        return shared_writable.shared_disks(lookup.lookup(conn, vm_))


def storage_users(places, **kwargs):
    """
    Who on this host could reach what lies on storage that hosts share. Changes nothing.

    :param places: path to a dict that describes it: ``path``, ``inode``, ``ids``, ``names``; as
        ``virt.purge`` with ``test=True`` returns them in ``shared``
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: each path to the reason to keep it, or None when nobody here can reach it

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
        raise errors.InvalidInput(f"{exc}; give those of virt.purge test=True") from exc
    with _connect(kwargs) as conn:
        return usage.users_here(conn, identities, _admission().images_dir)


def leftovers(**kwargs):
    """
    What interrupted operations have left on this host. Changes nothing.

    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict: ``guests`` (name to state), ``unfinished`` (names of guests whose
        creation was interrupted), ``used`` (those of them that run or were ever started, to how
        that is known), ``migrations`` (as ``virt.migrate_unfinished``), ``left``
        (``NAME@HOST`` of what a host that did not answer may hold for a guest),
        ``target_leftovers`` (guests of whose undone migrations to this host something is
        still here), ``at_work`` (guest to the operation that is at work on it, its process and
        since when),
        ``operations`` (guest to the mark of the ``salt-run virt.init`` that made it) and ``made``
        (guest to what an operation that died has left of disks that it made for it: ``what`` the
        operation was, ``disks`` that can go, and ``unsure``, path to why it stays); ``backups``
        (guests of whose backups something is left by processes that died: ``virt.backup_sweep``
        ends it)

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.leftovers
    """
    with _connect(kwargs) as conn:
        report = left.read(conn, guest_lock.folder(__salt__["config.get"]))
    return dataclasses.replace(
        report, backups=tuple(backup_request.interrupted_guests())
    ).to_answer()


def creation_phase(vm_, **kwargs):
    """
    How far the creation of a guest has come.

    :param vm_: name of the domain
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict: ``phase``: ``creating``, ``interrupted`` (the process that created the guest
        ended before the guest was complete) or ``complete``; ``used``: of an interrupted one that
        runs or was ever started, how that is known; else None

    :raises NotFound: there is no such domain

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.creation_phase web1
    """
    with _connect(kwargs) as conn:
        dom = lookup.lookup(conn, vm_)
        phase = creation.of_domain(dom)
        used = creation.evidence_of_use(dom) if phase is phases.Phase.INTERRUPTED else None
        return {"phase": phase.value, "used": used}


def mark_complete(vm_, **kwargs):
    """
    Keep a guest whose creation was interrupted as it is: from now on it counts as complete.

    Until then it cannot be started, changed or moved, and a guest that was never started is
    removed when it is created again. Its disks may be missing or empty, and the system in them may
    lack its host name and its minion's key: look at the guest first.

    :param vm_: name of the domain
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True; False when its creation was not interrupted

    :raises NotFound: there is no such domain
    :raises Incomplete: it is being created

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.mark_complete web1
    """
    with _admission().guest("virt.mark_complete", vm_), _connect(kwargs) as conn:
        dom = lookup.lookup(conn, vm_)
        if creation.of_domain(dom) is not phases.Phase.INTERRUPTED:
            creation.require_complete(dom, "mark")
            return False
        creation.complete(dom)
        return True


def remove_made(vm_, test=False, unused=(), **kwargs):
    """
    Remove the disks that an operation which died has made for a guest and not given to it.

    Only what is proven to be made by it, and used by nobody. What other hosts may have, too, stays:
    ``salt-run virt.repair`` asks them. The rest is named and stays.

    :param vm_: name of the guest, which need not be there any more
    :param test: only say what would be deleted
    :param unused: paths on storage that other hosts may have, of which the caller knows from all
        of them that nobody there uses them; the runner asks by ``virt.storage_users``
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True, when nothing of it is left; with ``test`` a dict: ``delete`` (paths), ``keep``
        (path to the reason) and where there are any ``shared`` (what to ask other hosts about)

    :raises OperationFailed: something stays; the message says what, and why

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
