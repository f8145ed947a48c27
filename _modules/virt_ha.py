"""
High availability's agent on this hypervisor.

See docs/ha.md.
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
    The agent of high availability as a service of this host: ``salt-virt-ha.service``, a program
    of one file that the distribution's own Python runs, with its binding of libvirt. It does not
    start before it has settings (``virt.ha_settings``). An agent at work goes on by the new
    program; its watchdog stays armed, guests run on.

    :param test: only tell what would change

    :return: ``changes``: file or service to what was done with it; ``comment``

    :raises OperationFailed: the new program cannot be run here; the old one stays

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.ha_install
    """
    return dataclasses.asdict(install.install(next(iter(saltvirt.__path__)), test))


def ha_settings(settings, test=False):
    """
    Writes the agent's settings to ``/etc/salt-virt/ha.json``, and starts it, or has it go on by
    them. All hosts must have the same members, masters and policy.

    :param settings: a dict: ``host`` (this minion's id, as in its certificate), ``members`` (all
        hosts, each with its address or ``ADDRESS:PORT``), ``masters`` (names in the certificates
        of masters), ``port`` (16516), ``watchdog`` (a device, or null), ``pools`` (folders of
        file systems that hosts share), ``policy`` (settings of docs/ha.md)
    :param test: only tell what would change

    :return: ``changes``: file or service to what was done with it; ``comment``

    :raises InvalidInput: with all that is wrong; nothing was changed

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.ha_settings '{host: hyper1, members: {hyper1: 10.0.0.1, hyper2: 10.0.0.2}}'
    """
    return dataclasses.asdict(install.configure(settings, test))


def ha_fence(agent, options=None, password_file=None, action="status"):
    """
    Runs a fence agent on this hypervisor, which reaches a management board that the master does
    not: what ``salt-run virt.fence`` has done here for a fence with ``from``.

    :param agent: a program of ClusterLabs' fence-agents, such as ``fence_ipmilan``
    :param options: its own, as a mapping; no password
    :param password_file: a file of this host that has the password in its first line, and that
        only its owner may read
    :param action: ``status``, which changes nothing, or ``off``, after which the status is asked

    :return: ``state`` (``on``, ``off``, or ``timed out`` for all that is no answer); ``words``:
        what the agent said

    :raises InvalidInput: for what no fence agent is told
    :raises OperationFailed: the agent is not installed, or the file of the password is none

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
    Whether high availability keeps a guest, wherever it runs, as the agent of this host has it:
    then ``virt.running`` and ``virt.defined`` neither make nor start it here.

    :param name: of the guest

    :return: a sentence that says so; empty for one that is not kept, or is ignored
        (``virt.ha_ignore``), and on a host without an agent

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.ha_kept web1
    """
    return managed_guests.describe(str(name))
