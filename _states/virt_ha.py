"""
States for high availability: the agent of a hypervisor, and guests, on the master.
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt.states import ha_agent as ha_agent_states
    from saltvirt.states import ha_guests, result

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

    :return: ``changes``: file or service to the action

    CLI Example:

    .. code-block:: bash

        salt hv1 state.single virt.ha_agent name=agent
    """
    return result.run(
        "virt.ha_agent", locals(), __salt__, __opts__["test"], ha_agent_states.installed
    )


def ha_enabled(
    name,
    priority=None,
    restarts=None,
    relocates=None,
    failback=None,
    state=None,
    group=None,
    agent_silent_s=None,
    **kwargs,
):
    """
    Ensure that high availability manages a guest. For ``salt-run state.orchestrate``: the state
    fails on a minion that is not the master's. Settings that are not given are left unchanged.

    :param name: name of the guest
    :param priority: integer; guests with a higher priority are started first
    :param restarts: number of restarts on the same host after a failure
    :param relocates: number of attempts on other hosts after that
    :param failback: whether the guest returns to a preferred host: ``live`` (or True), ``restart``
        (it is shut down and started there) or False
    :param state: ``started`` or ``stopped``
    :param group: rule of ``virt.ha_rule`` that the guest joins
    :param agent_silent_s: timeout of the guest agent in seconds; then the guest counts as failed

    :return: ``changes``: ``ha``, with ``old`` and ``new``. The state fails, also with
        ``test=True``, if the guest depends on local resources of its host; the comment lists them

    .. code-block:: yaml

        web1:
          virt.ha_enabled:
            - priority: 10

    CLI Example:

    .. code-block:: bash

        salt-run state.orchestrate_single fun=virt.ha_enabled name=web1 priority=10
    """
    return result.run("virt.ha_enabled", locals(), __salt__, __opts__["test"], ha_guests.enabled)


def ha_disabled(name, **kwargs):
    """
    Ensure that high availability does not manage a guest. The guest itself is not changed. For
    ``salt-run state.orchestrate``, as :func:`ha_enabled`.

    :param name: name of the guest

    :return: ``changes``: ``ha``, with ``old`` and ``new``; empty if the guest was not managed

    .. code-block:: yaml

        web1:
          virt.ha_disabled

    CLI Example:

    .. code-block:: bash

        salt-run state.orchestrate_single fun=virt.ha_disabled name=web1
    """
    return result.run("virt.ha_disabled", locals(), __salt__, __opts__["test"], ha_guests.disabled)
