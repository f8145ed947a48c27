"""
Manage the high availability agent of this hypervisor.

See docs/how-to/ha.md.
"""

import dataclasses

import saltvirt

saltvirt = saltvirt.fresh()
with saltvirt.later():
    from saltvirt import errors
    from saltvirt.ha.agent import install, managed_guests
    from saltvirt.ha.fencing import agents, setting

__virtualname__ = "virt"


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
    return dataclasses.asdict(install.install(next(iter(saltvirt.__path__)), test))


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
    return dataclasses.asdict(install.configure(settings, test))


def ha_fence(agent, options=None, password_file=None, action="status"):
    """
    Run a fence agent on this hypervisor, for a management board that the master cannot reach.
    ``salt-run virt.fence`` uses it for fence devices with ``from``.

    :param agent: program of ClusterLabs' fence-agents, such as ``fence_ipmilan``
    :param options: dictionary of the agent's options, without password
    :param password_file: file on this host with the password in its first line, readable only by
        its owner
    :param action: ``status``, which changes nothing, or ``off``, followed by a status query

    :return: ``state`` (``on``, ``off``, or ``timed out`` if there is no valid answer); ``words``:
        the agent's output

    :raises InvalidInput: an invalid agent, option or action
    :raises OperationFailed: the agent is not installed, or the password file is invalid

    CLI Example:

    .. code-block:: bash

        salt hyper2 virt.ha_fence fence_ipmilan '{ip: 10.9.0.1, username: salt}' /etc/salt/bmc1
    """
    agent_setting = dict(setting.mapping(options or {}, "options", None))
    if password_file:
        agent_setting["password_file"] = password_file
    fence_agent = setting.parse("virt.ha_fence", {"agent": agent, "options": agent_setting})
    if action not in ("status", "off"):
        raise errors.InvalidInput("action must be status or off")
    return dataclasses.asdict(
        agents.off(fence_agent) if action == "off" else agents.status(fence_agent)
    )


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
