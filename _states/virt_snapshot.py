"""
States for the snapshots of guests.

The name of these states is the name of a guest, or a shell pattern (``web*``) for all matching
guests of this host.
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt.states import result, snapshots

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def snapshot(
    name,
    suffix=None,
    connection=None,
    username=None,
    password=None,
    snapshot=None,
    description=None,
    disk_only=None,
    quiesce=False,
    keep=None,
    **kwargs,
):
    """
    Ensure that guests have a snapshot.

    With ``snapshot``, a snapshot of that name is taken unless it exists. Without it, every apply
    takes a snapshot that is named after the guest, the date and the time.

    :param name: name of a guest, or a pattern
    :param suffix: suffix of the snapshot's name, appended with a dash
    :param connection: libvirt URI, overriding ``virt:connection:uri``
    :param username: user name, overriding ``virt:connection:auth:username``
    :param password: password, overriding ``virt:connection:auth:password``
    :param snapshot: name of the snapshot
    :param description: description of the snapshot
    :param disk_only: True: an external snapshot of the disks only; False: an internal snapshot;
        default: depends on the guest, see ``virt.snapshot`` of the execution module
    :param quiesce: have the guest agent freeze the file systems first; the snapshot is external
    :param keep: without ``snapshot``: number of snapshots with this suffix to keep. Older ones are
        deleted when the new one has been taken; if libvirt cannot delete them, the result is False.
        Default: keep all, so every apply needs more disk space

    :return: ``changes``: ``saved``: a list of ``domain``, ``snapshot`` (its name), ``notes`` on
        data that is not saved with it, and ``deleted`` (names of older ones). With ``test=True``
        the name contains ``DATE-TIME``

    .. code-block:: yaml

        web1:
          virt.snapshot:
            - snapshot: before-upgrade

        periodic snapshots:
          virt.snapshot:
            - name: web*
            - suffix: periodic
            - keep: 7

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' state.single virt.snapshot web1 suffix=periodic
    """
    return result.run("virt.snapshot", locals(), __salt__, __opts__["test"], snapshots.taken)


def saved(name, suffix=None, connection=None, username=None, password=None, **kwargs):
    """
    Old name of ``virt.snapshot``.

    :param name: name of a guest, or a pattern
    :param suffix: suffix of the snapshot's name, appended with a dash
    :param connection: libvirt URI, overriding ``virt:connection:uri``
    :param username: user name, overriding ``virt:connection:auth:username``
    :param password: password, overriding ``virt:connection:auth:password``

    :return: as ``virt.snapshot``

    .. code-block:: yaml

        web1:
          virt.saved:
            - suffix: periodic

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' state.single virt.saved web1 suffix=periodic
    """
    return result.run(
        "virt.saved", locals(), __salt__, __opts__["test"], snapshots.taken, snapshots.arguments()
    )


def reverted(
    name,
    snapshot=None,
    cleanup=False,
    connection=None,
    username=None,
    password=None,
    **kwargs,
):
    """
    Revert guests to a snapshot, at every apply. Later changes are lost.

    :param name: name of a guest, or a pattern
    :param snapshot: name of the snapshot; default: the one before the current one
    :param cleanup: delete all newer snapshots
    :param connection: libvirt URI, overriding ``virt:connection:uri``
    :param username: user name, overriding ``virt:connection:auth:username``
    :param password: password, overriding ``virt:connection:auth:password``

    :return: ``changes``: ``reverted``: a list of ``domain``, ``current`` (the snapshot),
        ``deleted`` (names; ``N/A`` without ``cleanup``) and ``notes`` on data that could not be
        restored

    .. code-block:: yaml

        web1:
          virt.reverted:
            - snapshot: before-upgrade
            - cleanup: True

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' state.single virt.reverted web1 snapshot=before-upgrade
    """
    return result.run("virt.reverted", locals(), __salt__, __opts__["test"], snapshots.reverted)
