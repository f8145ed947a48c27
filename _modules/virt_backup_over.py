"""
Backups that took the place of a guest: how it was is kept until that is confirmed or undone.
``salt-run virt.backup_restore NAME over=True`` begins it.
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


def backup_over(name, stop=False, **kwargs):
    """
    Whether a backup can take the place of a guest here.

    :param name: the guest's name
    :param stop: True: it may be powered off for that
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict: ``uuid``, ``active`` (it runs), ``why`` (all that is against it), ``waits``
        (the backup that has taken its place and was not confirmed yet, or null)

    :raises NotFound: no such guest

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.backup_over web1
    """
    from saltvirt.backup.export import in_place_restore  # noqa: PLC0415 - needs the binding

    with _connect(kwargs) as conn:
        return in_place_restore.inspect(
            conn, names.existing_guest(name), values.flag(stop, "stop")
        ).to_answer()


def backup_confirm(vm_, test=False, unused=(), **kwargs):
    """
    The guest that a backup has made stays: the disks that it had before are deleted, those that
    are its own and that nobody else uses.

    :param vm_: the guest's name
    :param test: only say what would be deleted
    :param unused: paths on storage that other hosts may have, of which the caller knows from all
        of them that nobody there uses them; the runner asks by ``virt.storage_users``
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict: ``delete`` (paths), ``keep`` (path to the reason) and where there are any
        ``shared`` (what to ask other hosts about, by path) and ``unsure`` (disks of its own that
        stay)

    :raises NotFound: no backup has taken its place, or it was confirmed
    :raises OperationFailed: a disk could not be deleted; it can be called again

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
    The guest is again as it was before a backup took its place. The disks that were made of the
    backup are deleted, with all that was written to them since.

    :param name: the guest's name
    :param stop: power it off for that
    :param test: only raise why it would not be done
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict: ``left`` (what could not be taken away, and why), and where there are any
        ``detached`` (disks that were attached since; they stay, and the guest has them no more)

    :raises NotFound: no backup has taken its place, or it was confirmed
    :raises Refused: it runs, has snapshots or saved memory, or a disk that it had is gone

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
