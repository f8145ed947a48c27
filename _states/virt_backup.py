"""
Backup states for orchestrations on the master.
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt.states import backed_up as backup_states
    from saltvirt.states import restored as restore_states
    from saltvirt.states import result

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def backed_up(name, hours=24, to=None, **kwargs):
    """
    Ensure that a guest has a valid backup of at most the given age; otherwise back it up. For
    ``salt-run state.orchestrate``. Use ``virt.backup_verify`` to verify existing backups.

    :param name: name of the guest
    :param hours: maximum age of the last valid backup
    :param to: target of the backup; default: any target counts, and a new backup goes to the
        default target

    :return: ``changes``: ``backup``, the name of the new backup. With ``test=True`` nothing is
        created.

    .. code-block:: yaml

        web1:
          virt.backed_up:
            - hours: 26
            - to: vault

    CLI Example:

    .. code-block:: bash

        salt-run state.orchestrate_single fun=virt.backed_up name=web1
    """
    return result.run(
        "virt.backed_up",
        {"name": name, "hours": hours, "to": to, "kwargs": kwargs},
        __salt__,
        __opts__["test"],
        backup_states.backed_up,
    )


def restored(name, source=None, backup=None, to=None, host=None, **kwargs):
    """
    Ensure that a guest exists; a missing guest is restored from a backup, and is off. An existing
    guest is not changed. For ``salt-run state.orchestrate``.

    :param name: name of the guest
    :param source: guest whose backup is restored; default: this guest, with its UUID and addresses.
        If it is another guest, the restored guest gets its own
    :param backup: name or number of the backup, or ``latest`` (default)
    :param to: target that has the backup; default: as for ``virt.backup``
    :param host: the hypervisor; default: the one that had the guest

    :return: ``changes``: ``backup``, the backup that was restored. With ``test=True`` nothing is
        created.

    .. code-block:: yaml

        web1:
          virt.restored:
            - to: vault
            - host: hyper2

    CLI Example:

    .. code-block:: bash

        salt-run state.orchestrate_single fun=virt.restored name=web1
    """
    return result.run(
        "virt.restored",
        {
            "name": name,
            "source": source,
            "backup": backup,
            "to": to,
            "host": host,
            "kwargs": kwargs,
        },
        __salt__,
        __opts__["test"],
        restore_states.restored,
    )
