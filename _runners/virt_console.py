"""
Into a guest without its network: its serial console, commands and files by its agent. See
docs/console.md.
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt.fleet.client import Fleet
from saltvirt.operations.core import result

with saltvirt.later():
    from saltvirt import errors, units
    from saltvirt.console.guestagent import agent_request
    from saltvirt.console.master import agent_client as guests
    from saltvirt.console.master import console as consoles  # the name is a function's here
    from saltvirt.operations.core import report
    from saltvirt.spec import values

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


@result.reporting
def console(name, force=False, escape="^]"):
    """
    A guest's serial console on this terminal, through the master: no SSH, and no port of a
    hypervisor that others can use. What is typed and shown is in no job, event or log. For
    ``salt-run`` on the master alone.

    :param name: of the guest
    :param force: take the console from whoever has it
    :param escape: what leaves the console: ``^`` and the key that is held with Ctrl

    :return: under the guest's name ``result``, ``comment``, ``host``. The exit code is 1 where the
        console ended otherwise than by the escape

    CLI Example:

    .. code-block:: bash

        salt-run virt.console web1
    """
    with Fleet(__opts__) as fleet:
        taken = values.boolean(force, "force")
        return consoles.run(fleet, str(name), taken, str(escape))


@result.reporting
def exec(name, cmd, shell=False, env=None, stdin=None, timeout=60, base64=False):
    """
    Run a command in a guest, by QEMU's guest agent, as the agent's user (root). Neither the command
    nor its input goes through a job of the hypervisor; the arguments and the answer of this very
    verb are in the master's job cache and events, as those of all are: a password belongs into
    ``stdin``.

    :param name: of the guest
    :param cmd: a text, split into words as a shell would, or a list of words. No shell reads it
    :param shell: True: ``/bin/sh -c`` in the guest reads the text
    :param env: a dict of names to texts: the whole environment of the command, but for ``PATH``,
        which it has in any case; default: the agent's
    :param stdin: the path of a file of the master that the command reads, of at most 64 KiB, or
        ``-``: what ``salt-run`` itself is given. For those alone who have the master
    :param timeout: seconds that it is waited for, at most 86400. It goes on after that: the answer
        says its process id
    :param base64: return what it printed as it is, in base64

    :return: under the guest's name ``result``, ``comment``, ``host``, ``pid``, ``exit_code``,
        ``signal`` (that killed it), ``stdout`` and ``stderr`` (at most 256 KiB of each, without
        control characters), ``truncated``. The exit code is 1 where that of the command is not 0

    CLI Example:

    .. code-block:: bash

        salt-run virt.exec web1 'systemctl is-active nginx'
        salt-run virt.exec web1 'df -h | tail -1' shell=True
        echo 'root:secret' | salt-run virt.exec web1 chpasswd stdin=-
    """
    if stdin is not None:
        guests.require_local_user(__opts__)
    raw, seconds = (
        values.boolean(base64, "base64"),
        values.number(1, agent_request.MAX_TIMEOUT_S)(timeout, "timeout"),
    )
    argv = agent_request.argv(cmd, values.boolean(shell, "shell"))
    command = agent_request.Command(argv, agent_request.variables(env), seconds)
    request = guests.ExecRequest(command, guests.read_input(stdin), raw)
    with Fleet(__opts__) as fleet:
        return guests.run(fleet, str(name), request)


@result.reporting
def put(name, local, remote, mode=None, overwrite=False, atomic=True):
    """
    Copy a file of the master into a guest, by QEMU's guest agent. It is there whole or not at all.
    For those alone who have the master.

    :param name: of the guest
    :param local: the path of the file on the master
    :param remote: the whole path of the new file in the guest
    :param mode: its permissions, such as ``'0640'``; default: those of the file on the master. It
        belongs to the agent's user (root)
    :param overwrite: True: what is there is replaced
    :param atomic: False: written straight to its place, without a shell in the guest (Windows, or
        an agent that runs no commands); what fails leaves a part of it

    :return: under the guest's name ``result``, ``comment``, ``changes`` (``path``), ``host``,
        ``size_bytes``

    CLI Example:

    .. code-block:: bash

        salt-run virt.put web1 /srv/files/minion.conf /etc/salt/minion overwrite=True
    """
    guests.require_local_user(__opts__)
    is_atomic, is_overwrite = (
        values.boolean(atomic, "atomic"),
        values.boolean(overwrite, "overwrite"),
    )
    copy = guests.FileCopy(_text(local, "local"), _text(remote, "remote"), is_overwrite)
    with Fleet(__opts__) as fleet:
        progress = report.of_runner(fleet, str(name), "put", __salt__)
        return guests.put(
            fleet, str(name), copy, agent_request.permissions(mode), is_atomic, progress
        )


@result.reporting
def get(name, remote, local, overwrite=False, most="1GiB"):
    """
    Copy a file of a guest to the master, by QEMU's guest agent. It is there whole or not at all,
    and root alone can read it; no link on the master is followed. For those alone who have the
    master.

    :param name: of the guest
    :param remote: the path of the file in the guest
    :param local: the path of the new file on the master
    :param overwrite: True: a file that is there is replaced
    :param most: nothing larger

    :return: under the guest's name ``result``, ``comment``, ``changes`` (``path``), ``host``,
        ``size_bytes``

    CLI Example:

    .. code-block:: bash

        salt-run virt.get web1 /var/log/syslog /root/web1.log
    """
    guests.require_local_user(__opts__)
    copy = guests.FileCopy(
        _text(local, "local"), _text(remote, "remote"), values.boolean(overwrite, "overwrite")
    )
    limit = units.parse_bytes(most, argument="most")
    with Fleet(__opts__) as fleet:
        progress = report.of_runner(fleet, str(name), "get", __salt__)
        return guests.get(fleet, str(name), copy, limit, progress)


def _text(value, argument):
    if not isinstance(value, str) or not value or "\0" in value:
        raise errors.InvalidInput(
            f"{argument} must be the path of a file, not {units.short_repr(value)}"
        )
    return value
