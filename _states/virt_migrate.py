"""
Which host a guest is on, as a state of the hypervisors.
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt.states import migrations, result

if TYPE_CHECKING:
    from salt_dunders import __grains__, __opts__, __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def _migrate(state, arguments, function):
    arguments["me"] = __grains__["id"]
    return result.run(
        state, arguments, __salt__, __opts__["test"], function, migrations.arguments()
    )


def migrated(name, target, connection=None, username=None, password=None, **kwargs):
    """
    A guest of this host that is to be on another one: it is moved there, running or not.

    When it is not here, the other host is asked whether it has it; if not, the state fails.

    :param name: of the guest; no pattern
    :param target: the host it shall be on, or its URI, as for ``virt.migrate``
    :param connection: URI of our own libvirt, overriding ``virt:connection:uri``
    :param username: to connect with on the target
    :param password: to connect with on the target
    :param policy: and every other option of ``virt.migrate``: ``max_bandwidth``, ``timeout``,
        ``copy_storage``, ``postcopy``…

    :return: ``changes``: the guest's name to ``host``: ``old`` and ``new``. A test makes all the
        checks of both hosts and fails with their reasons.

    .. code-block:: yaml

        web1:
          virt.migrated:
            - target: hyper2

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' state.single virt.migrated web1 target=hyper2
    """
    return _migrate("virt.migrated", locals(), migrations.migrated)


def on_host(name, target, connection=None, username=None, password=None, **kwargs):
    """
    A guest that is on one certain host of the cloud; for all hypervisors at once.

    The host that has the guest moves it to ``target``. On all others there is nothing to do. On
    ``target`` itself the state fails as long as the guest has not come.

    :param name: of the guest; no pattern
    :param target: the host it shall be on, or its URI, as for ``virt.migrate``
    :param connection: URI of our own libvirt, overriding ``virt:connection:uri``
    :param username: to connect with on the target
    :param password: to connect with on the target
    :param policy: and every other option of ``virt.migrate``

    :return: what ``virt.migrated`` returns

    .. code-block:: yaml

        web1:
          virt.on_host:
            - target: hyper2

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' state.single virt.on_host web1 target=hyper2
    """
    return _migrate("virt.on_host", locals(), migrations.on_host)
