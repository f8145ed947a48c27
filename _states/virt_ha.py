"""
High availability's agent on a hypervisor, as states.
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt.states import ha_agent as agents
    from saltvirt.states import result

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def ha_agent(name, settings=None, **kwargs):
    """
    The agent of high availability is installed; with settings it works by them.

    :param name: of the state; nothing else is made of it
    :param settings: as for ``virt.ha_settings``; default: those that are there stay

    CLI Example:

    .. code-block:: bash

        salt hv1 state.single virt.ha_agent name=agent
    """
    return result.run("virt.ha_agent", locals(), __salt__, __opts__["test"], agents.installed)
