"""
States for the power of guests.

The name of these states is the name of a guest, or a shell pattern (``web*``) for all matching
guests of this host.
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
    Ensure that guests are off; their operating system is asked to shut down.

    The operating system of each guest is asked to shut down. If a guest is paused or does not
    react, the state fails; without ``force``, it is not powered off.

    :param name: name of a guest, or a pattern
    :param connection: libvirt URI, overriding ``virt:connection:uri``
    :param username: user name, overriding ``virt:connection:auth:username``
    :param password: password, overriding ``virt:connection:auth:password``
    :param timeout: seconds to wait for each guest; 0: only send the request
    :param force: power off guests that are not off after that time

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
    Ensure that guests are off, without a shutdown. Data that they have not written is lost.

    :param name: name of a guest, or a pattern
    :param connection: libvirt URI, overriding ``virt:connection:uri``
    :param username: user name, overriding ``virt:connection:auth:username``
    :param password: password, overriding ``virt:connection:auth:password``

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
    Old name of ``virt.powered_off``.

    :param name: name of a guest, or a pattern
    :param connection: libvirt URI, overriding ``virt:connection:uri``
    :param username: user name, overriding ``virt:connection:auth:username``
    :param password: password, overriding ``virt:connection:auth:password``

    :return: as ``virt.powered_off``

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
    Ask the operating systems of guests to reboot, at every apply.

    Use it with requisites (``onchanges``). A reboot does not apply the pending changes of
    ``virt.defined``: this needs ``virt.stopped`` and then ``virt.running``.

    :param name: name of a guest, or a pattern
    :param connection: libvirt URI, overriding ``virt:connection:uri``
    :param username: user name, overriding ``virt:connection:auth:username``
    :param password: password, overriding ``virt:connection:auth:password``

    :return: ``changes``: ``rebooted``: a list of ``domain``, ``reboot: True``. The state fails for
        a guest that is not running.

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
    Check that no guest is running on this host; otherwise the state fails and lists them. It does
    not stop guests: migrate them with ``salt-run virt.evacuate``, or stop them.

    :param name: name of the state; not used otherwise

    CLI Example:

    .. code-block:: bash

        salt hv1 state.single virt.no_guests name=idle
    """
    return result.run("virt.no_guests", locals(), __salt__, __opts__["test"], power.no_guests)
