"""
Access guests: screens, serial ports, addresses, and commands and files through the guest agent.

For guests without a minion. From the master, use ``salt-run virt.exec``, ``virt.put`` and
``virt.get``, which put neither commands nor content into a job; see docs/how-to/consoles.md.

:depends: libvirt-python in Salt's own Python
"""

import base64 as base64_codec
from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt import names, settings, units
    from saltvirt.console.guestagent import agent_request
    from saltvirt.host import connection
    from saltvirt.host.domain import addresses, lookup
    from saltvirt.host.domain import console as host_console  # a function here has the same name
    from saltvirt.host.domain import screenshot as host_screenshot
    from saltvirt.spec import values
    from saltvirt.system import atomic_file

if TYPE_CHECKING:
    from salt_dunders import __salt__

__virtualname__ = "virt"
__outputter__ = saltvirt.OUTPUTTERS

SCREENSHOTS = "/var/cache/salt-virt/screenshots"


def __virtual__():
    return __virtualname__


def _connect(kwargs):
    return connection.connect(settings.connection(__salt__["config.get"], kwargs))


def console(vm_, **kwargs):
    """
    Show a guest's displays and serial ports, with the commands to connect to them.

    :param vm_: name of the domain
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary: ``name``, ``host``, ``state``, ``graphics`` (list of ``type``,
        ``listen``, ``port``, ``connect``, and ``tunnel``: the ssh command to run first if the
        display only listens on the host itself) and ``serials`` (list of ``type``, ``port``,
        ``path``, ``connect``). A guest that is off has no ports

    :raises NotFound: the domain does not exist

    CLI Example:

    .. code-block:: bash

        salt '*' virt.console <domain>
    """
    with _connect(kwargs) as conn:
        return host_console.console(conn, vm_)


def guest_addresses(vm_=None, **kwargs):
    """
    List the IP addresses of one guest, or of all running guests.

    The sources are, in this order: the DHCP server of libvirt's networks, the guest agent if it is
    connected, and the host's ARP table. The timeout for each is two seconds.

    :param vm_: name of a domain; default: all active domains
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary of domain names to dictionaries of MAC addresses to ``interface``,
        ``source`` (``lease``, ``agent``, ``arp``) and ``addresses`` (list of ``address``,
        ``prefix``, ``type``); empty if unknown

    :raises NotFound: the domain does not exist

    CLI Example:

    .. code-block:: bash

        salt '*' virt.guest_addresses <domain>
    """
    with _connect(kwargs) as conn:
        return addresses.addresses(conn, vm_)


def screenshot(vm_, path=None, screen=0, **kwargs):
    """
    Take a screenshot of a running guest.

    :param vm_: name of the domain
    :param path: absolute path of the PNG on this host; default: a new file in
        ``virt:screenshots`` (``/var/cache/salt-virt/screenshots``), readable by root only
    :param screen: number of the screen
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: the path of the PNG

    :raises OperationFailed: the guest is not running, has no screen, or the file cannot be written

    CLI Example:

    .. code-block:: bash

        salt '*' virt.screenshot <domain>
    """
    folder = settings.folder(__salt__["config.get"], "screenshots", SCREENSHOTS)
    number = values.number(0, 2**31)(screen, "screen")
    with _connect(kwargs) as conn:
        data = host_screenshot.take(conn, lookup.lookup(conn, vm_), number)
    return host_screenshot.save(data, vm_, folder, path)


def exec(vm_, cmd, shell=False, env=None, timeout=60, base64=False, **kwargs):
    """
    Run a command in a guest through its agent, as the agent's user (root). The command and its
    output are part of the job: ``salt-run virt.exec`` avoids this, and supports an input.

    :param vm_: name of the domain
    :param cmd: command line, which is split into words as by a shell, or a list of words. It is not
        passed to a shell
    :param shell: True: run the text with ``/bin/sh -c`` in the guest
    :param env: dictionary: the complete environment of the command, except ``PATH``, which is
        always set; default: the agent's environment
    :param timeout: seconds to wait, at most 86400. The command continues after that
    :param base64: return the unmodified output in base64
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary: ``pid``, ``has_ended``, ``exit_code``, ``signal`` (null if none),
        ``stdout``, ``stderr`` (at most 256 KiB each, without control characters), ``truncated``

    :raises Unsupported: the agent does not answer, or does not run commands
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
        base64_codec.b64encode(output_bytes).decode()
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
    Copy a file of this host to a guest through its agent. The file appears only when it is
    complete.

    :param vm_: name of the domain
    :param local: path of the file on this host
    :param remote: absolute path of the new file in the guest
    :param mode: permissions, such as ``'0640'``; default ``'0600'``
    :param overwrite: True: replace an existing file
    :param atomic: False: write directly to the destination, without a shell in the guest; a failure
        leaves a partial file
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: the size in bytes

    :raises AlreadyExists: a file of this name exists in the guest
    :raises Unsupported: the agent does not answer, or does not write files

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
        agent_request.file_path(remote, "remote"),
        agent_request.permissions(mode),
        is_overwrite,
        is_atomic,
    )
    with (
        _connect(kwargs) as conn,
        atomic_file.open_existing(agent_request.file_path(local, "local")) as file,
    ):
        with guest_files.Incoming(_agent(conn, vm_), request) as incoming:
            while data := file.read(guest_files.PIECE_BYTES):
                incoming.write(data)
            incoming.end()
        return incoming.size_bytes


def get(vm_, remote, local, overwrite=False, max_size="1GiB", **kwargs):
    """
    Copy a file of a guest to this host through its agent. The file appears only when it is
    complete, and only root can read it; links on this host are not followed.

    :param vm_: name of the domain
    :param remote: path of the file in the guest
    :param local: path of the new file on this host
    :param overwrite: True: replace an existing file
    :param max_size: maximum size in MiB, or with a unit
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: the size in bytes

    :raises AlreadyExists: a file of this name exists here
    :raises NotFound: the file does not exist in the guest
    :raises InvalidInput: the file is larger than ``max_size``

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.get web1 /var/log/syslog /root/web1.log
    """
    from saltvirt.console.host import guest_files  # noqa: PLC0415 - needs the binding

    limit, path = (
        units.parse_bytes(max_size, argument="max_size"),
        agent_request.file_path(remote, "remote"),
    )
    is_overwrite = values.boolean(overwrite, "overwrite")
    with (
        _connect(kwargs) as conn,
        atomic_file.create(agent_request.file_path(local, "local"), is_overwrite) as write,
        guest_files.Outgoing(_agent(conn, vm_), path) as file,
    ):
        return agent_request.copy_limited(file.read, write, limit, path)


def _agent(conn, vm_):
    from saltvirt.console.host import agent  # noqa: PLC0415 - needs the binding

    return agent.for_domain(lookup.lookup(conn, names.existing_guest(vm_)))
