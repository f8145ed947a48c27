"""
High availability: which guests are kept running when a host dies, and what is known of it.

See docs/ha.md.

Every verb that changes something takes ``test=True``: it then shows what it would do, and changes
nothing.
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt.fleet.client import Fleet
from saltvirt.operations.core import result

with saltvirt.later():
    from saltvirt.ha.manager import arm, enable, fencing, move, rule, setup, status
    from saltvirt.operations.core import operation

if TYPE_CHECKING:
    from salt_dunders import __opts__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


@result.reporting
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
    Give a guest to high availability, or change how it is kept: when its host dies it is started on
    another one, once it is proven that it runs nowhere.

    It is refused, with every reason, for a guest that is tied to its host: disks, images below
    them, UEFI variables or a TPM's state on storage that no other host reaches, devices of the
    host. It does not start with its host any more: that is the manager's to do.

    :param name: of the guest
    :param priority: a whole number; guests with a higher one are started first; default 0
    :param restarts: how often it is started again on its host when it failed there; default 1
    :param relocates: how often it is then tried on another; default 1
    :param failback: whether it goes back to a host that it likes better, once that is back:
        ``live`` (or True, the default), ``restart`` (it is shut down and started there, for guests
        that cannot migrate live) or False
    :param state: ``started`` or ``stopped``: what it is to be; default: as it is now
    :param group: a rule of ``virt.ha_rule`` that it joins
    :param agent_silent_s: it has failed, too, when its guest agent answered in this start and then
        does not for so many seconds while it runs; from 30, and longer than it takes to boot; 0:
        never, as by default
    :param test: show what would be written, or all that is against it

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


@result.reporting
def ha_disable(name, missing=False, test=False):
    """
    Take a guest from high availability. It stays as it is, where it is, and starts with its host
    again if it did before. The result is False as long as no majority of the hosts has confirmed
    it: agents go by what was decided before, and a guest that is moved or started then is killed.

    :param name: of the guest
    :param missing: True: a guest that it does not keep is no error
    :param test: show what would be taken back

    :return: under the guest's name ``result``, ``comment``, ``changes``

    CLI Example:

    .. code-block:: bash

        salt-run virt.ha_disable web1
    """
    with Fleet(__opts__) as fleet:
        return operation.perform(enable.Disable(fleet, name, missing), test)


@result.reporting
def ha_ignore(name, off=False, test=False):
    """
    Have high availability leave a guest alone for a while, whatever becomes of it: to stop it, or
    to work on it by hand. The result is False as long as no majority of the hosts has confirmed it:
    a guest that is moved or started then is killed.

    :param name: of the guest
    :param off: it is no longer ignored: it is to be what it is then, started or stopped, on the
        host where it is then. Refused for one that was moved away from a host where a copy of it
        may be left
    :param test: show what would be so

    :return: under the guest's name ``result``, ``comment``, ``changes``

    CLI Example:

    .. code-block:: bash

        salt-run virt.ha_ignore web1
        salt-run virt.ha_ignore web1 off=True
    """
    with Fleet(__opts__) as fleet:
        return operation.perform(enable.Ignore(fleet, name, off), test)


@result.reporting
def ha_move(name, host, live=True, test=False):
    """
    Have high availability move a guest to another host. It waits until the engine says where it is.

    :param name: of the guest
    :param host: minion id of the hypervisor
    :param live: while it runs; False: it is shut down and started there
    :param test: show from where it would go, or what is against it

    :return: under the guest's name ``result``, ``comment``, ``changes``

    CLI Example:

    .. code-block:: bash

        salt-run virt.ha_move web1 hyper2
    """
    with Fleet(__opts__) as fleet:
        return operation.perform(move.MoveGuest(fleet, name, host, live), test)


@result.reporting
def ha_setup(host=None, test=False):
    """
    Install the agents on the hosts that ``virt:ha:members`` names, and tell them their settings,
    which all must have alike. Again after each change of ``virt:ha``.

    :param host: minion id of one hypervisor; default: all members
    :param test: show what would change on each

    :return: host to ``result``, ``comment``, ``changes``

    CLI Example:

    .. code-block:: bash

        salt-run virt.ha_setup test=True
        salt-run virt.ha_setup
    """
    with Fleet(__opts__) as fleet:
        return operation.perform(setup.Setup(fleet, host), test)


@result.reporting
def ha_rule(
    name,
    guests=None,
    apart=None,
    together=None,
    hosts=None,
    only=None,
    remove=False,
    test=False,
):
    """
    Keep guests together or apart, or on some hosts.

    :param name: of the rule
    :param guests: names, as a list or with commas; more join by ``virt.ha_enable NAME group=``
    :param apart: ``strict``: a guest stays down before it shares a host with another one of the
        rule; or ``preferred``
    :param together: the same of guests that are to be on one host
    :param hosts: hosts with ranks, the higher the better: ``hyper1:2,hyper2:1``
    :param only: with ``hosts``: ``strict``, the default: on no others; or ``preferred``
    :param remove: the rule is removed; its guests stay where they are
    :param test: show what the rule would be

    :return: under the rule's name ``result``, ``comment``, ``changes``

    CLI Example:

    .. code-block:: bash

        salt-run virt.ha_rule webs guests=web1,web2 apart=strict
        salt-run virt.ha_rule near guests=db1 hosts=hyper1:2,hyper2:1 only=preferred
        salt-run virt.ha_rule webs remove=True
    """
    arguments = {
        "guests": guests,
        "apart": apart,
        "together": together,
        "hosts": hosts,
        "only": only,
    }
    with Fleet(__opts__) as fleet:
        return operation.perform(rule.ConfigureRule(fleet, name, arguments, remove is True), test)


@result.reporting
def ha_arm(test=False):
    """
    Arm high availability again: hosts that are gone are fenced, their guests started elsewhere.

    :param test: show whether anything would change

    :return: under ``ha`` ``result`` (False when no majority of the hosts has confirmed it within a
        minute, or the engine does not run), ``comment``, ``changes``

    CLI Example:

    .. code-block:: bash

        salt-run virt.ha_arm
    """
    with Fleet(__opts__) as fleet:
        return operation.perform(arm.Arm(fleet, True), test)


@result.reporting
def ha_disarm(test=False):
    """
    Disarm high availability for the whole cloud: nothing is fenced, nothing is restarted, the
    hosts' watchdogs are at rest. Before work on the network or on all hosts at once.

    :param test: show whether anything would change

    :return: under ``ha`` ``result`` (False while a host's watchdog is not known to be at rest),
        ``comment``, ``changes``

    CLI Example:

    .. code-block:: bash

        salt-run virt.ha_disarm
    """
    with Fleet(__opts__) as fleet:
        return operation.perform(arm.Arm(fleet, False), test)


@result.reporting
def ha_confirm_off(host, test=False):
    """
    Say that a host is off, or will never again write to its guests' disks: you looked. Its guests
    are started elsewhere by your word. If it is wrong, they run twice and their disks are lost.

    It holds for this start of the host: once it has booted again, it is as any other. It is refused
    of a host that is heard, or whose minion answers.

    :param host: minion id of the hypervisor
    :param test: show which guests would be started elsewhere

    :return: under the host's name ``result``, ``comment``, ``changes``

    CLI Example:

    .. code-block:: bash

        salt-run virt.ha_confirm_off hyper3
    """
    with Fleet(__opts__) as fleet:
        return operation.perform(arm.ConfirmOff(fleet, host), test)


@result.reporting
def ha_status():
    """
    All that is known of high availability: who leads, the hosts, the guests, what would happen if a
    host died now, the last decisions and why. It is read of the master's own files: nobody is
    asked, and it answers when hosts do not.

    The exit code is 1 when anything is wrong: the engine does not run, nobody leads, a host is not
    up, a guest is blocked or in error, a host's guests would find no room.

    :return: under ``ha``: ``result``, ``comment`` (all that is wrong), ``configured``, ``armed``,
        ``engine``, ``quorum``, ``hosts``, ``guests``, ``rules``, ``losses`` (host to where its
        guests would go), ``decisions``, ``journal``, ``problems``, ``table``

    CLI Example:

    .. code-block:: bash

        salt-run virt.ha_status
        salt-run virt.ha_status --out=json
    """
    with Fleet(__opts__) as fleet:
        return operation.perform(status.HaStatus(fleet))


@result.reporting
def ha_simulate(lose, test=False):
    """
    What would become of the guests of high availability if a host died now, by what all hosts say
    of themselves at this moment. Changes nothing.

    :param lose: minion id of the hypervisor
    :param test: the same: it changes nothing

    :return: under the host's name ``result`` (False when a guest would find no room, or a member
        did not answer), ``comment``, ``moved`` (guest to host), ``unplaced`` (guest to why),
        ``table``

    CLI Example:

    .. code-block:: bash

        salt-run virt.ha_simulate lose=hyper2
    """
    with Fleet(__opts__) as fleet:
        return operation.perform(status.Simulate(fleet, lose), test)


@result.reporting
def fence(host, test=False):
    """
    Switch a host off by its fences, in their order, until one of them sees it off. Its guests of
    high availability are then started elsewhere.

    :param host: minion id of the hypervisor
    :param test: switch nothing: ask each fence for its status, so that you know that it is reached
        and that its credentials work

    :return: under the host's name ``result``, ``comment``, ``changes``; with ``test`` a ``table``
        of the fences

    CLI Example:

    .. code-block:: bash

        salt-run virt.fence hyper2 test=True
        salt-run virt.fence hyper2
    """
    with Fleet(__opts__) as fleet:
        return operation.perform(fencing.FenceHost(fleet, host), test)
