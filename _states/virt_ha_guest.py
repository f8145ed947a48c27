"""
Guests that high availability keeps, as states of an orchestration on the master.
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt.states import ha_guests, result

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


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
    A guest that high availability keeps. What is kept is the master's to say: this state is for
    ``salt-run state.orchestrate``, and fails on a minion that is no master's. What is not given
    stays as it is.

    :param name: of the guest
    :param priority: a whole number; guests with a higher one are started first
    :param restarts: how often it is started again on its host when it failed there
    :param relocates: how often it is then tried on another
    :param failback: whether it goes back to a host that it likes better: ``live`` (or True),
        ``restart`` (it is shut down and started there) or False
    :param state: ``started`` or ``stopped``
    :param group: a rule of ``virt.ha_rule`` that it joins
    :param agent_silent_s: it has failed when its guest agent is silent for so many seconds

    :return: ``changes``: ``ha``, with ``old`` and ``new``. A guest that is tied to its host fails
        with every reason, with ``test=True``, too

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
    A guest that high availability does not keep. It stays as it is, where it is. For
    ``salt-run state.orchestrate``, as :func:`ha_enabled`.

    :param name: of the guest

    :return: ``changes``: ``ha``, with ``old`` and ``new``; none for a guest that it does not keep

    .. code-block:: yaml

        web1:
          virt.ha_disabled

    CLI Example:

    .. code-block:: bash

        salt-run state.orchestrate_single fun=virt.ha_disabled name=web1
    """
    return result.run("virt.ha_disabled", locals(), __salt__, __opts__["test"], ha_guests.disabled)
