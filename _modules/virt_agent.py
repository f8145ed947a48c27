"""
Commands and files by a guest's own agent (QEMU's), for guests without a minion. From the master:
``salt-run virt.exec``, ``virt.put`` and ``virt.get``, which put neither command nor content into a
job; see docs/console.md.

:depends: libvirt-python in Salt's own Python
"""

import base64 as base64s  # the name is an argument's here
from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt import errors, names, settings, units
    from saltvirt.console.guestagent import agent_request
    from saltvirt.host import connection
    from saltvirt.host.domain import lookup
    from saltvirt.spec import values
    from saltvirt.system import atomic_file

if TYPE_CHECKING:
    from salt_dunders import __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def exec(vm_, cmd, shell=False, env=None, timeout=60, base64=False, **kwargs):
    """
    Run a command in a guest, by its agent, as the agent's user (root). The command and what it
    prints are in the job: ``salt-run virt.exec`` keeps both out of it, and gives it an input.

    :param vm_: name of the domain
    :param cmd: a text, split into words as a shell would, or a list of words. No shell reads it
    :param shell: True: ``/bin/sh -c`` in the guest reads the text
    :param env: a dict of names to texts: the whole environment of the command, but for ``PATH``,
        which it has in any case; default: the agent's
    :param timeout: seconds that it is waited for, at most 86400. It goes on after that
    :param base64: return what it printed as it is, in base64
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict: ``pid``, ``has_ended``, ``exit_code``, ``signal`` (null where it has none),
        ``stdout``, ``stderr`` (at most 256 KiB of each, without control characters), ``truncated``

    :raises Unsupported: no agent answers, or it runs no commands
    :raises ConnectionFailed: the agent hangs

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.exec web1 'systemctl is-active nginx'
    """
    from saltvirt.console.host import guest_exec  # noqa: PLC0415 - needs the binding

    argv = agent_request.argv(cmd, values.boolean(shell, "shell"))
    seconds = values.number(1, agent_request.MAX_TIMEOUT_S)(timeout, "timeout")
    command, is_raw = (
        agent_request.Command(argv, agent_request.variables(env), seconds),
        values.boolean(base64, "base64"),
    )
    agent_request.validate(command, b"")
    with _connect(kwargs) as conn:
        result, *outputs = guest_exec.run(_agent(conn, vm_), command)
    out, err = (
        base64s.b64encode(output_bytes).decode()
        if is_raw
        else agent_request.printable(output_bytes)
        for output_bytes in outputs
    )
    return {
        "pid": result.pid, "has_ended": result.has_ended, "exit_code": result.exit_code,
        "signal": result.signal, "stdout": out, "stderr": err, "truncated": result.is_cut,
    }  # fmt: skip


def put(vm_, local, remote, mode=None, overwrite=False, atomic=True, **kwargs):
    """
    Copy a file of this host into a guest, by its agent. It is there whole or not at all.

    :param vm_: name of the domain
    :param local: the path of the file on this host
    :param remote: the whole path of the new file in the guest
    :param mode: its permissions, such as ``'0640'``; default ``'0600'``
    :param overwrite: True: what is there is replaced
    :param atomic: False: written straight to its place, without a shell in the guest; what fails
        leaves a part of it
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: the size in bytes

    :raises AlreadyExists: something has this name in the guest
    :raises Unsupported: no agent answers, or it writes no files

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.put web1 /srv/files/motd /etc/motd mode=0644
    """
    from saltvirt.console.host import guest_files  # noqa: PLC0415 - needs the binding

    is_atomic, is_overwrite = (
        values.boolean(atomic, "atomic"),
        values.boolean(overwrite, "overwrite"),
    )
    request = agent_request.PutFile(
        _path(remote, "remote"), agent_request.permissions(mode), is_overwrite, is_atomic
    )
    with _connect(kwargs) as conn, atomic_file.open_existing(_path(local, "local")) as file:
        with guest_files.Incoming(_agent(conn, vm_), request) as incoming:
            while data := file.read(guest_files.PIECE_BYTES):
                incoming.write(data)
            incoming.end()
        return incoming.size_bytes


def get(vm_, remote, local, overwrite=False, most="1GiB", **kwargs):
    """
    Copy a file of a guest to this host, by its agent. It is there whole or not at all, and root
    alone can read it; no link on this host is followed.

    :param vm_: name of the domain
    :param remote: the path of the file in the guest
    :param local: the path of the new file on this host
    :param overwrite: True: a file that is there is replaced
    :param most: nothing larger
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: the size in bytes

    :raises AlreadyExists: something has this name here
    :raises NotFound: no such file in the guest
    :raises InvalidInput: it is larger than ``most``

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.get web1 /var/log/syslog /root/web1.log
    """
    from saltvirt.console.host import guest_files  # noqa: PLC0415 - needs the binding

    limit, path = units.parse_bytes(most, argument="most"), _path(remote, "remote")
    is_overwrite = values.boolean(overwrite, "overwrite")
    with (
        _connect(kwargs) as conn,
        atomic_file.create(_path(local, "local"), is_overwrite) as write,
        guest_files.Outgoing(_agent(conn, vm_), path) as file,
    ):
        return agent_request.copy_limited(file.read, write, limit, path)


def _connect(kwargs):
    return connection.connect(settings.connection(__salt__["config.get"], kwargs))


def _agent(conn, vm_):
    from saltvirt.console.host import agent  # noqa: PLC0415 - needs the binding

    return agent.for_domain(lookup.lookup(conn, names.existing_guest(vm_)))


def _path(value, argument):
    if not isinstance(value, str) or not value or "\0" in value:
        raise errors.InvalidInput(
            f"{argument} must be the path of a file, not {units.short_repr(value)}"
        )
    return value
