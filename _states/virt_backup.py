"""
Backups of guests, as a state of an orchestration on the master.
"""

import time
from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt.states import backed_up as backing_up
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
    now = time.time()
    return result.run(
        "virt.backed_up",
        {"name": name, "hours": hours, "to": to, "kwargs": kwargs},
        __salt__,
        __opts__["test"],
        lambda host, name, **given: backing_up.backed_up(host, name, now, **given),
    )
