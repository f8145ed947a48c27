"""
Manage restores that replaced a guest: the replaced guest is kept until the restore is confirmed or
undone. ``salt-run virt.backup_restore NAME over=True`` starts it.
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt import names, settings
    from saltvirt.answers import removal as removal_answer
    from saltvirt.host import connection
    from saltvirt.host.provision import admission
    from saltvirt.host.storage import sharing
    from saltvirt.spec import values

if TYPE_CHECKING:
    from salt_dunders import __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def _connect(kwargs):
    return connection.connect(settings.connection(__salt__["config.get"], kwargs))


def _admission():
    return admission.AdmissionConfig.configured(__salt__["config.get"])


def backup_confirm(vm_, test=False, unused=(), **kwargs):
    """
    Keep a guest that was restored from a backup: the disks of the replaced guest are deleted if
    they are its own and no other guest uses them.

    :param vm_: name of the guest
    :param test: only show what would be deleted
    :param unused: paths on shared storage that no other host uses, as the caller has verified; the
        runner verifies it with ``virt.storage_users``
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary: ``delete`` (paths), ``keep`` (path to the reason) and, if there are any,
        ``shared`` (files to ask other hosts about, by path) and ``unsure`` (its own disks that are
        kept)

    :raises NotFound: it was not replaced by a backup, or the restore was confirmed
    :raises OperationFailed: a disk could not be deleted; you can call it again

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.backup_confirm web1 test=True
    """
    from saltvirt.backup.export import in_place_restore  # noqa: PLC0415 - needs the binding

    name, unused_paths = names.existing_guest(vm_), values.paths(unused, "unused")
    with _connect(kwargs) as conn:
        if values.flag(test, "test"):
            outcome = in_place_restore.plan(conn, name, unused_paths)
        else:
            outcome = in_place_restore.confirm(conn, _admission(), name, unused_paths)
    places, unsure = sharing.as_data(outcome.shared), tuple(outcome.uncertain)
    return removal_answer.RemovalPlan(
        tuple(outcome.delete), outcome.keep, places, unsure
    ).to_answer()


def backup_undo(name, stop=False, test=False, **kwargs):
    """
    Bring a guest back that was replaced by a backup. The restored disks are deleted, including
    everything that was written to them since.

    :param name: name of the guest
    :param stop: power off the guest first
    :param test: only raise the reason against it
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary: ``left`` (leftovers that could not be removed, with the reasons), and, if
        there are any, ``detached`` (disks that were attached since; they are kept, but no longer
        attached)

    :raises NotFound: it was not replaced by a backup, or the restore was confirmed
    :raises Refused: the guest runs, has snapshots or saved memory, or one of its previous disks
        does not exist

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.backup_undo web1
    """
    from saltvirt.backup.export import in_place_restore  # noqa: PLC0415 - needs the binding

    with _connect(kwargs) as conn:
        guest, flags = (
            names.existing_guest(name),
            (values.flag(stop, "stop"), values.flag(test, "test")),
        )
        return in_place_restore.undo(conn, _admission(), guest, *flags).to_answer()
