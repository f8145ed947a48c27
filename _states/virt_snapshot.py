"""
Snapshots of guests as states.

The state's name is a guest's, or a pattern as a shell has it (``web*``) for all guests of
this host that fit.
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
    Guests with a snapshot.

    With ``snapshot`` there is one of that name afterwards, and the next apply changes
    nothing. Without, each apply takes another one, called after guest, date and time.

    :param name: of a guest, or a pattern
    :param suffix: appended to the snapshot's name, after a dash
    :param connection: libvirt URI, overriding ``virt:connection:uri``
    :param username: to connect with, overriding ``virt:connection:auth:username``
    :param password: to connect with, overriding ``virt:connection:auth:password``
    :param snapshot: the snapshot's name
    :param description: words to remember it by
    :param disk_only: True for an external snapshot of the disks alone, False for an internal one;
        default: what suits the guest, see ``virt.snapshot`` of the execution module
    :param quiesce: have the guest's agent settle its file systems first; the snapshot is external
    :param keep: without ``snapshot``: how many of the guest's snapshots of this suffix stay. The
        older ones are deleted when the new one is taken; the result is False if libvirt does not
        delete them. Default: all stay, and each apply needs more room

    :return: ``changes``: ``saved``: a list of ``domain``, ``snapshot``, its name, ``notes`` on
        what is not saved with it, and ``deleted``, the names of older ones. A test writes
        ``DATE-TIME`` for the moment that is not yet

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
    The old name of ``virt.snapshot``.

    :param name: of a guest, or a pattern
    :param suffix: appended to the snapshot's name, after a dash
    :param connection: libvirt URI, overriding ``virt:connection:uri``
    :param username: to connect with, overriding ``virt:connection:auth:username``
    :param password: to connect with, overriding ``virt:connection:auth:password``

    :return: what ``virt.snapshot`` returns

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
    Puts guests back to a snapshot, each time that it is applied. What came after is lost.

    :param name: of a guest, or a pattern
    :param snapshot: the snapshot's name; default the one before the current
    :param cleanup: delete all snapshots that are newer than it
    :param connection: libvirt URI, overriding ``virt:connection:uri``
    :param username: to connect with, overriding ``virt:connection:auth:username``
    :param password: to connect with, overriding ``virt:connection:auth:password``

    :return: ``changes``: ``reverted``: a list of ``domain``, ``current`` (the snapshot),
        ``deleted`` (names; ``N/A`` without ``cleanup``) and ``notes`` on what is not as it was

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
