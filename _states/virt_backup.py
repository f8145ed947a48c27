"""
Backups of guests, as a state of an orchestration on the master.
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt.states import backed_up as backing_up
    from saltvirt.states import restored as restoring
    from saltvirt.states import result

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def backed_up(name, hours=24, to=None, **kwargs):
    """
    The guest has a good backup that is younger; else one is made. For ``salt-run
    state.orchestrate``; ``virt.backup_verify`` reads back what is there.

    :param name: the guest's name
    :param hours: so old may the last good backup be
    :param to: at this target; default: at any, and a new one is made at the default target

    :return: ``changes``: ``backup``, what the new one is called. With ``test=True`` the same, and
        nothing is made.

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
        backing_up.backed_up,
    )


def restored(name, of=None, backup=None, to=None, host=None, **kwargs):
    """
    The guest is there; where it is not, it is made from a backup, and is off. For ``salt-run
    state.orchestrate``. One that is there is left as it is, whatever is in it.

    :param name: the guest's name
    :param of: the guest that was backed up; default: this one, with its UUID and addresses. Of
        another name it gets its own
    :param backup: the backup's name, its number, or ``latest``, which is the default
    :param to: the target that has it; default: as for ``virt.backup``
    :param host: the hypervisor; default: that which had the guest

    :return: ``changes``: ``backup``, of which it was made. With ``test=True`` the same, and nothing
        is made.

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
        {"name": name, "of": of, "backup": backup, "to": to, "host": host, "kwargs": kwargs},
        __salt__,
        __opts__["test"],
        restoring.restored,
    )
