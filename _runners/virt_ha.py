"""
Manage high availability.

See docs/how-to/ha.md.

Every function that makes changes accepts ``test=True``: show what would be done, and change
nothing.
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt.fleet.client import Fleet
from saltvirt.operations.access import runner

with saltvirt.later():
    from saltvirt.ha.manager import arm, enable, fencing, move, rule, setup, status
    from saltvirt.operations.core import operation

if TYPE_CHECKING:
    from salt_dunders import __opts__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


@runner.reporting_guests
def ha_enable(
    name,
    priority=None,
    restarts=None,
    relocates=None,
    failback=None,
    state=None,
    group=None,
    agent_silent_s=None,
    test=False,
):
    """
    Enable high availability for a guest, or change its settings: if its host fails, the guest is
    started on another host once it is proven that it does not run anywhere.

    Refused, with all reasons, if the guest depends on local resources of its host: disks, backing
    images, UEFI variables or TPM state on storage that no other host can access, or host devices.
    The guest no longer starts with its host: the HA manager starts it.

    :param name: name of the guest
    :param priority: integer; guests with a higher priority are started first; default 0
    :param restarts: number of restarts on the same host after a failure; default 1
    :param relocates: number of attempts on other hosts after that; default 1
    :param failback: whether the guest returns to a preferred host once that is back: ``live`` (or
        True, the default), ``restart`` (it is shut down and started there, for guests that cannot
        migrate live) or False
    :param state: desired state, ``started`` or ``stopped``; default: the current state
    :param group: rule of ``virt.ha_rule`` that the guest joins
    :param agent_silent_s: timeout in seconds of a guest agent that has answered since the guest's
        start; then the running guest counts as failed. At least 30, and longer than the guest takes
        to boot; 0 (default): disabled
    :param test: show what would be written, or all reasons against it

    :return: under the guest's name ``result``, ``comment``, ``changes``

    CLI Example:

    .. code-block:: bash

        salt-run virt.ha_enable web1
        salt-run virt.ha_enable web1 priority=10 group=webs
        salt-run virt.ha_enable web1 state=stopped
        salt-run virt.ha_enable web1 agent_silent_s=180
    """
    request = enable.HaOptions(
        priority, restarts, relocates, failback, state, group, agent_silent_s
    )
    with Fleet(__opts__) as fleet:
        return operation.perform(enable.Enable(fleet, name, request), test)


@runner.reporting_guests
def ha_disable(name, missing=False, test=False):
    """
    Disable high availability for a guest. The guest itself is not changed, and starts with its host
    again if it did before. The result is False until a majority of the hosts has confirmed it:
    until then, agents enforce the previous state, and a guest that is migrated or started is
    killed.

    :param name: name of the guest
    :param missing: True: a guest that is not managed is no error
    :param test: show what would be removed

    :return: under the guest's name ``result``, ``comment``, ``changes``

    CLI Example:

    .. code-block:: bash

        salt-run virt.ha_disable web1
    """
    with Fleet(__opts__) as fleet:
        return operation.perform(enable.Disable(fleet, name, missing), test)


@runner.reporting_guests
def ha_ignore(name, off=False, test=False):
    """
    Make high availability ignore a guest temporarily, in order to stop it or to work on it
    manually. The result is False until a majority of the hosts has confirmed it: a guest that is
    migrated or started before is killed.

    :param name: name of the guest
    :param off: stop ignoring the guest: its current state (started or stopped) and host become the
        desired ones. Refused for a guest that was moved away from a host that may still have a copy
        of it
    :param test: show what would change

    :return: under the guest's name ``result``, ``comment``, ``changes``

    CLI Example:

    .. code-block:: bash

        salt-run virt.ha_ignore web1
        salt-run virt.ha_ignore web1 off=True
    """
    with Fleet(__opts__) as fleet:
        return operation.perform(enable.Ignore(fleet, name, off), test)


@runner.reporting
def ha_move(name, host, live=True, test=False):
    """
    Make high availability move a guest to another host, and wait until the engine reports where it
    is.

    :param name: name of the guest
    :param host: minion id of the hypervisor
    :param live: migrate live; False: shut down the guest and start it there
    :param test: show the current host, or the reasons against it

    :return: under the guest's name ``result``, ``comment``, ``changes``

    CLI Example:

    .. code-block:: bash

        salt-run virt.ha_move web1 hyper2
    """
    with Fleet(__opts__) as fleet:
        return operation.perform(move.MoveGuest(fleet, name, host, live), test)


@runner.reporting
def ha_setup(host=None, test=False):
    """
    Install the agents on the hosts of ``virt:ha:members``, and send them their settings, which must
    be equal on all hosts. Run it again after each change of ``virt:ha``.

    :param host: minion id of one hypervisor; default: all members
    :param test: show what would change on each host

    :return: host to ``result``, ``comment``, ``changes``

    CLI Example:

    .. code-block:: bash

        salt-run virt.ha_setup test=True
        salt-run virt.ha_setup
    """
    with Fleet(__opts__) as fleet:
        return operation.perform(setup.Setup(fleet, host), test)


@runner.reporting
def ha_rule(
    name,
    guests=None,
    affinity=None,
    anti_affinity=None,
    hosts=None,
    host_affinity=None,
    remove=False,
    test=False,
):
    """
    Define a placement rule: keep guests on the same host, on different hosts, or on certain hosts.

    :param name: name of the rule
    :param guests: names, as a list or separated by commas; ``virt.ha_enable NAME group=`` adds
        guests
    :param affinity: keep the guests on the same host: ``strict``: a guest stays down rather than
        violate the rule; or ``preferred``
    :param anti_affinity: keep the guests on different hosts: ``strict`` or ``preferred``
    :param hosts: hosts with ranks; the host with the highest rank is preferred:
        ``hyper1:2,hyper2:1``
    :param host_affinity: with ``hosts``: ``strict`` (default): on no other hosts; or ``preferred``
    :param remove: remove the rule; its guests are not moved
    :param test: show the resulting rule

    :return: under the rule's name ``result``, ``comment``, ``changes``

    CLI Example:

    .. code-block:: bash

        salt-run virt.ha_rule webs guests=web1,web2 anti_affinity=strict
        salt-run virt.ha_rule near guests=db1 hosts=hyper1:2,hyper2:1 host_affinity=preferred
        salt-run virt.ha_rule webs remove=True
    """
    arguments = {
        "guests": guests,
        "affinity": affinity,
        "anti_affinity": anti_affinity,
        "hosts": hosts,
        "host_affinity": host_affinity,
    }
    with Fleet(__opts__) as fleet:
        return operation.perform(rule.ConfigureRule(fleet, name, arguments, remove is True), test)


@runner.reporting
def ha_arm(test=False):
    """
    Arm high availability again: failed hosts are fenced, and their guests are started elsewhere.

    :param test: show whether anything would change

    :return: under ``ha`` ``result`` (False if no majority of the hosts has confirmed it within a
        minute, or if the engine is not running), ``comment``, ``changes``

    CLI Example:

    .. code-block:: bash

        salt-run virt.ha_arm
    """
    with Fleet(__opts__) as fleet:
        return operation.perform(arm.Arm(fleet, True), test)


@runner.reporting
def ha_disarm(test=False):
    """
    Disarm high availability for the whole cloud: nothing is fenced or restarted, and the hosts'
    watchdogs are disabled. Use it before work on the network or on all hosts at once.

    :param test: show whether anything would change

    :return: under ``ha`` ``result`` (False while a host has not reported that its watchdog is
        disabled), ``comment``, ``changes``

    CLI Example:

    .. code-block:: bash

        salt-run virt.ha_disarm
    """
    with Fleet(__opts__) as fleet:
        return operation.perform(arm.Arm(fleet, False), test)


@runner.reporting
def ha_confirm_off(host, test=False):
    """
    Confirm that a host is off, or will never again write to its guests' disks, after you have
    checked it. Its guests are then started elsewhere. If this is wrong, the guests run twice and
    their disks are destroyed.

    The confirmation is valid until the host boots again. It is refused if the host still sends
    heartbeats, or if its minion answers.

    :param host: minion id of the hypervisor
    :param test: show which guests would be started elsewhere

    :return: under the host's name ``result``, ``comment``, ``changes``

    CLI Example:

    .. code-block:: bash

        salt-run virt.ha_confirm_off hyper3
    """
    with Fleet(__opts__) as fleet:
        return operation.perform(arm.ConfirmOff(fleet, host), test)


@runner.reporting
def ha_status():
    """
    Show the status of high availability: the leader, the hosts, the guests, what would happen if a
    host failed now, and the last decisions with their reasons. It is read from the master's own
    files, so it does not depend on any host.

    The exit code is 1 if there is a problem: the engine is not running, there is no leader, a host
    is not up, a guest is blocked or in an error state, or the guests of a host could not be placed
    elsewhere.

    :return: under ``ha``: ``result``, ``comment`` (all problems), ``configured``, ``armed``,
        ``engine``, ``quorum``, ``hosts``, ``guests``, ``rules``, ``losses`` (host to where its
        guests would go), ``decisions``, ``journal``, ``problems``, ``table``

    CLI Example:

    .. code-block:: bash

        salt-run virt.ha_status
        salt-run virt.ha_status --out=json
    """
    with Fleet(__opts__) as fleet:
        return operation.perform(status.HaStatus(fleet))


@runner.reporting
def ha_simulate(lose, test=False):
    """
    Simulate the failure of a host, with the current data of all hosts: show where the guests of
    high availability would be started. Changes nothing.

    :param lose: minion id of the hypervisor
    :param test: no effect, as nothing is changed

    :return: under the host's name ``result`` (False if a guest could not be placed, or a member did
        not answer), ``comment``, ``moved`` (guest to host), ``unplaced`` (guest to the reason),
        ``table``

    CLI Example:

    .. code-block:: bash

        salt-run virt.ha_simulate lose=hyper2
    """
    with Fleet(__opts__) as fleet:
        return operation.perform(status.Simulate(fleet, lose), test)


@runner.reporting
def fence(host, test=False):
    """
    Switch off a host with its fence devices, in their order, until one of them confirms that it is
    off. Its guests of high availability are then started elsewhere.

    :param host: minion id of the hypervisor
    :param test: switch nothing off; query the status of each fence device, to check the connection
        and the credentials

    :return: under the host's name ``result``, ``comment``, ``changes``; with ``test`` a ``table``
        of the fence devices

    CLI Example:

    .. code-block:: bash

        salt-run virt.fence hyper2 test=True
        salt-run virt.fence hyper2
    """
    with Fleet(__opts__) as fleet:
        return operation.perform(fencing.FenceHost(fleet, host), test)
