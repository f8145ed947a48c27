"""
Guests that shall be off, and reboots, as states.

The name of a state that acts is a guest's, or a pattern as a shell has it (``web*``) for all
guests of this host that fit.
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt.states import power, result

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def stopped(
    name, connection=None, username=None, password=None, timeout=120, force=False, **kwargs
):
    """
    Guests that are off, shut down by their own system.

    The system in each is asked to power down and waited for. A guest that is paused, or whose
    system does not listen, makes the state fail; nothing else is done to it without ``force``.

    :param name: of a guest, or a pattern
    :param connection: libvirt URI, overriding ``virt:connection:uri``
    :param username: to connect with, overriding ``virt:connection:auth:username``
    :param password: to connect with, overriding ``virt:connection:auth:password``
    :param timeout: seconds to wait for each; 0 only asks it
    :param force: pull the power of one that is not off by then

    :return: ``changes``: ``stopped``: a list of ``domain``, ``shutdown: True``

    .. code-block:: yaml

        web1:
          virt.stopped

        all test guests:
          virt.stopped:
            - name: test*
            - timeout: 60
            - force: True

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' state.single virt.stopped web1
    """
    return result.run("virt.stopped", locals(), __salt__, __opts__["test"], power.stopped)


def powered_off(name, connection=None, username=None, password=None, **kwargs):
    """
    Guests that are off, by pulling their power. What they had not written is lost.

    :param name: of a guest, or a pattern
    :param connection: libvirt URI, overriding ``virt:connection:uri``
    :param username: to connect with, overriding ``virt:connection:auth:username``
    :param password: to connect with, overriding ``virt:connection:auth:password``

    :return: ``changes``: ``unpowered``: a list of ``domain``, ``stop: True``

    .. code-block:: yaml

        web1:
          virt.powered_off

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' state.single virt.powered_off 'test*'
    """
    return result.run("virt.powered_off", locals(), __salt__, __opts__["test"], power.powered_off)


def unpowered(name, connection=None, username=None, password=None, **kwargs):
    """
    The old name of ``virt.powered_off``.

    :param name: of a guest, or a pattern
    :param connection: libvirt URI, overriding ``virt:connection:uri``
    :param username: to connect with, overriding ``virt:connection:auth:username``
    :param password: to connect with, overriding ``virt:connection:auth:password``

    :return: what ``virt.powered_off`` returns

    .. code-block:: yaml

        web1:
          virt.unpowered

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' state.single virt.unpowered web1
    """
    return result.run("virt.unpowered", locals(), __salt__, __opts__["test"], power.powered_off)


def rebooted(name, connection=None, username=None, password=None, **kwargs):
    """
    Asks the systems in guests to reboot, each time that it is applied.

    It is meant for requisites (``onchanges``). A reboot does not bring what ``virt.defined``
    left for the next start: that needs ``virt.stopped`` and then ``virt.running``.

    :param name: of a guest, or a pattern
    :param connection: libvirt URI, overriding ``virt:connection:uri``
    :param username: to connect with, overriding ``virt:connection:auth:username``
    :param password: to connect with, overriding ``virt:connection:auth:password``

    :return: ``changes``: ``rebooted``: a list of ``domain``, ``reboot: True``. A guest that does
        not run makes the state fail.

    .. code-block:: yaml

        web1:
          virt.rebooted:
            - onchanges:
              - file: /srv/web1/settings

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' state.single virt.rebooted web1
    """
    return result.run("virt.rebooted", locals(), __salt__, __opts__["test"], power.rebooted)


def no_guests(name, **kwargs):
    """
    No guest runs here; else it fails and names them. It stops none: migrate them with
    ``salt-run virt.evacuate``, or stop them.

    :param name: of the state; nothing else is made of it

    CLI Example:

    .. code-block:: bash

        salt hv1 state.single virt.no_guests name=idle
    """
    return result.run("virt.no_guests", locals(), __salt__, __opts__["test"], power.no_guests)
