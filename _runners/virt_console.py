"""
Access guests without their network: serial console, and commands and files through the guest agent.
See docs/how-to/console.md.
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt.fleet.client import Fleet
from saltvirt.operations.core import result

with saltvirt.later():
    from saltvirt import errors, units
    from saltvirt.console.guestagent import agent_request
    from saltvirt.console.master import agent_client
    from saltvirt.console.master import (
        console as console_operation,  # a function here has the same name
    )
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
    Connect this terminal to a guest's serial console through the master, without SSH and without a
    port of the hypervisor that others can use. Input and output are not stored in jobs, events or
    logs. Only available with ``salt-run`` on the master.

    :param name: name of the guest
    :param force: disconnect the current user of the console
    :param escape: escape key: ``^`` and the key that is pressed with Ctrl

    :return: under the guest's name ``result``, ``comment``, ``host``. The exit code is 1 unless the
        console was left with the escape key

    CLI Example:

    .. code-block:: bash

        salt-run virt.console web1
    """
    with Fleet(__opts__) as fleet:
        taken = values.boolean(force, "force")
        return console_operation.run(fleet, str(name), taken, str(escape))


@result.reporting
def exec(name, cmd, shell=False, env=None, stdin=None, timeout=60, base64=False):
    """
    Run a command in a guest through the QEMU guest agent, as the agent's user (root). Neither the
    command nor its input is part of a job on the hypervisor, but the arguments and the answer of
    this function are in the master's job cache and events: pass passwords in ``stdin``.

    :param name: name of the guest
    :param cmd: command line, which is split into words as by a shell, or a list of words. It is not
        passed to a shell
    :param shell: True: run the text with ``/bin/sh -c`` in the guest
    :param env: dictionary: the complete environment of the command, except ``PATH``, which is
        always set; default: the agent's environment
    :param stdin: path of a file on the master with the command's input, at most 64 KiB, or ``-``:
        the input of ``salt-run``. Administrators only
    :param timeout: seconds to wait, at most 86400. The command continues after that; the answer
        contains its process id
    :param base64: return the unmodified output in base64

    :return: under the guest's name ``result``, ``comment``, ``host``, ``pid``, ``exit_code``,
        ``signal`` (that killed the command), ``stdout`` and ``stderr`` (at most 256 KiB each,
        without control characters), ``truncated``. The exit code is 1 if the command's is not 0

    CLI Example:

    .. code-block:: bash

        salt-run virt.exec web1 'systemctl is-active nginx'
        salt-run virt.exec web1 'df -h | tail -1' shell=True
        echo 'root:secret' | salt-run virt.exec web1 chpasswd stdin=-
    """
    if stdin is not None:
        agent_client.require_local_user(__opts__)
    raw, seconds = (
        values.boolean(base64, "base64"),
        values.number(1, agent_request.MAX_TIMEOUT_S)(timeout, "timeout"),
    )
    argv = agent_request.argv(cmd, values.boolean(shell, "shell"))
    command = agent_request.Command(argv, agent_request.variables(env), seconds)
    request = agent_client.ExecRequest(command, agent_client.read_input(stdin), raw)
    with Fleet(__opts__) as fleet:
        return agent_client.run(fleet, str(name), request)


@result.reporting
def put(name, local, remote, mode=None, overwrite=False, atomic=True):
    """
    Copy a file of the master to a guest through the QEMU guest agent. The file appears only when it
    is complete. Administrators only.

    :param name: name of the guest
    :param local: path of the file on the master
    :param remote: absolute path of the new file in the guest
    :param mode: permissions, such as ``'0640'``; default: those of the file on the master. The file
        belongs to the agent's user (root)
    :param overwrite: True: replace an existing file
    :param atomic: False: write directly to the destination, without a shell in the guest (for
        Windows, or an agent that runs no commands); a failure leaves a partial file

    :return: under the guest's name ``result``, ``comment``, ``changes`` (``path``), ``host``,
        ``size_bytes``

    CLI Example:

    .. code-block:: bash

        salt-run virt.put web1 /srv/files/minion.conf /etc/salt/minion overwrite=True
    """
    agent_client.require_local_user(__opts__)
    is_atomic, is_overwrite = (
        values.boolean(atomic, "atomic"),
        values.boolean(overwrite, "overwrite"),
    )
    copy = agent_client.FileCopy(_text(local, "local"), _text(remote, "remote"), is_overwrite)
    with Fleet(__opts__) as fleet:
        progress = report.of_runner(fleet, str(name), "put", __salt__)
        return agent_client.put(
            fleet, str(name), copy, agent_request.permissions(mode), is_atomic, progress
        )


@result.reporting
def get(name, remote, local, overwrite=False, most="1GiB"):
    """
    Copy a file of a guest to the master through the QEMU guest agent. The file appears only when it
    is complete, and only root can read it; links on the master are not followed. Administrators
    only.

    :param name: name of the guest
    :param remote: path of the file in the guest
    :param local: path of the new file on the master
    :param overwrite: True: replace an existing file
    :param most: maximum size

    :return: under the guest's name ``result``, ``comment``, ``changes`` (``path``), ``host``,
        ``size_bytes``

    CLI Example:

    .. code-block:: bash

        salt-run virt.get web1 /var/log/syslog /root/web1.log
    """
    agent_client.require_local_user(__opts__)
    copy = agent_client.FileCopy(
        _text(local, "local"), _text(remote, "remote"), values.boolean(overwrite, "overwrite")
    )
    limit = units.parse_bytes(most, argument="most")
    with Fleet(__opts__) as fleet:
        progress = report.of_runner(fleet, str(name), "get", __salt__)
        return agent_client.get(fleet, str(name), copy, limit, progress)


def _text(value, argument):
    if not isinstance(value, str) or not value or "\0" in value:
        raise errors.InvalidInput(
            f"{argument} must be the path of a file, not {units.short_repr(value)}"
        )
    return value
