"""
States for the host of a guest.
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
    Ensure that a guest of this host is on another host; it is migrated there, running or not.

    If neither this host nor the other host has the guest, the state fails.

    :param name: name of the guest; not a pattern
    :param target: the other host, or its URI, as for ``virt.migrate``
    :param connection: URI of this host's libvirt, overriding ``virt:connection:uri``
    :param username: user name on the target
    :param password: password on the target
    :param policy: and all other options of ``virt.migrate``: ``max_bandwidth``, ``timeout``,
        ``copy_storage``, ``postcopy`` and so on

    :return: ``changes``: the guest's name to ``host``: ``old`` and ``new``. With ``test=True`` all
        checks of both hosts are performed, and the state fails with their reasons.

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
    Ensure that a guest is on a certain host of the cloud. Apply this state to all hypervisors.

    The host that has the guest migrates it to ``target``. On all other hosts there is nothing to
    do. On ``target``, the state fails until the guest has arrived.

    :param name: name of the guest; not a pattern
    :param target: the other host, or its URI, as for ``virt.migrate``
    :param connection: URI of this host's libvirt, overriding ``virt:connection:uri``
    :param username: user name on the target
    :param password: password on the target
    :param policy: and all other options of ``virt.migrate``

    :return: as ``virt.migrated``

    .. code-block:: yaml

        web1:
          virt.on_host:
            - target: hyper2

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' state.single virt.on_host web1 target=hyper2
    """
    return _migrate("virt.on_host", locals(), migrations.on_host)
