"""
States for the high availability agent of a hypervisor.
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt.states import ha_agent as ha_agent_states
    from saltvirt.states import result

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def ha_agent(name, settings=None, **kwargs):
    """
    Ensure that the high availability agent is installed, and optionally that it has the given
    settings.

    :param name: name of the state; not used otherwise
    :param settings: as for ``virt.ha_settings``; by default, the settings are left unchanged

    CLI Example:

    .. code-block:: bash

        salt hv1 state.single virt.ha_agent name=agent
    """
    return result.run(
        "virt.ha_agent", locals(), __salt__, __opts__["test"], ha_agent_states.installed
    )
