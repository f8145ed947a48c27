"""
Manage the high availability agent of this hypervisor.

See docs/how-to/ha.md.
"""

import saltvirt

saltvirt = saltvirt.fresh()
with saltvirt.later():
    from saltvirt.ha.agent import install, managed_guests

__virtualname__ = "virt"
__outputter__ = saltvirt.OUTPUTTERS


def __virtual__():
    return __virtualname__


def ha_install(test=False):
    """
    Install the high availability agent as the service ``salt-virt-ha.service``: a program of a
    single file that runs with the distribution's Python and libvirt binding. It starts only when it
    has settings (``virt.ha_settings``). A running agent is replaced by the new program; its
    watchdog stays armed, and guests continue to run.

    :param test: only show what would change

    :return: ``changes``: file or service to the action; ``comment``

    :raises OperationFailed: the new program cannot run here; the old one is kept

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.ha_install
    """
    return install.install(next(iter(saltvirt.__path__)), test).to_answer()


def ha_settings(settings, test=False):
    """
    Write the agent's settings to ``/etc/salt-virt/ha.json``, and start or reload the agent. All
    hosts must have the same members, masters and policy.

    :param settings: dictionary: ``host`` (this minion's id, as in its certificate), ``members``
        (all hosts, each with its address or ``ADDRESS:PORT``), ``masters`` (names in the masters'
        certificates), ``port`` (16516), ``watchdog`` (device or null), ``pools`` (folders on shared
        file systems), ``policy`` (settings of docs/how-to/ha.md)
    :param test: only show what would change

    :return: ``changes``: file or service to the action; ``comment``

    :raises InvalidInput: lists all errors; nothing was changed

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.ha_settings '{host: hyper1, members: {hyper1: 10.0.0.1, hyper2: 10.0.0.2}}'
    """
    return install.configure(settings, test).to_answer()


def ha_kept(name):
    """
    Check whether high availability manages a guest of the cloud, according to this host's agent:
    then ``virt.running`` and ``virt.defined`` neither create nor start it here.

    :param name: name of the guest

    :return: a message; empty for a guest that is not managed or is ignored (``virt.ha_ignore``),
        and on a host without agent

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.ha_kept web1
    """
    return managed_guests.describe(str(name))
