"""
Access guests without their network.

See docs/how-to/consoles.md.
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt.fleet.client import Fleet
from saltvirt.operations.access import runner

with saltvirt.later():
    from saltvirt import units
    from saltvirt.console.guestagent import agent_request
    from saltvirt.console.master import agent_client, verbs
    from saltvirt.console.master import (
        console as console_operation,  # a function here has the same name
    )
    from saltvirt.operations.access import access_check
    from saltvirt.operations.core import report
    from saltvirt.spec import values

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


@runner.reporting
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


@runner.reporting
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


@runner.reporting
def put(name, local, remote, mode=None, overwrite=False, atomic=True, test=False):
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
    :param test: read the local file and connect to the agent; change nothing

    :return: under the guest's name ``result``, ``comment``, ``changes`` (``path``), ``host``,
        ``size_bytes``

    CLI Example:

    .. code-block:: bash

        salt-run virt.put web1 /srv/files/minion.conf /etc/salt/minion overwrite=True
    """
    agent_client.require_local_user(__opts__)
    copy, is_atomic = _file_copy(local, remote, overwrite), values.boolean(atomic, "atomic")
    permissions = agent_request.permissions(mode)
    with Fleet(__opts__) as fleet:
        if values.boolean(test, "test"):
            return agent_client.check_put(fleet, str(name), copy).answer()
        progress = report.of_runner(fleet, str(name), "put", __salt__)
        return agent_client.put(fleet, str(name), copy, permissions, is_atomic, progress)


@runner.reporting
def get(name, remote, local, overwrite=False, max_size="1GiB", test=False):
    """
    Copy a file of a guest to the master through the QEMU guest agent. The file appears only when it
    is complete, and only root can read it; links on the master are not followed. Administrators
    only.

    :param name: name of the guest
    :param remote: path of the file in the guest
    :param local: path of the new file on the master
    :param overwrite: True: replace an existing file
    :param max_size: maximum size in MiB, or with a unit
    :param test: check the local path and connect to the agent; change nothing

    :return: under the guest's name ``result``, ``comment``, ``changes`` (``path``), ``host``,
        ``size_bytes``

    CLI Example:

    .. code-block:: bash

        salt-run virt.get web1 /var/log/syslog /root/web1.log
    """
    agent_client.require_local_user(__opts__)
    copy = _file_copy(local, remote, overwrite)
    limit = units.parse_bytes(max_size, argument="max_size")
    with Fleet(__opts__) as fleet:
        if values.boolean(test, "test"):
            return agent_client.check_get(fleet, str(name), copy).answer()
        progress = report.of_runner(fleet, str(name), "get", __salt__)
        return agent_client.get(fleet, str(name), copy, limit, progress)


def _file_copy(local, remote, overwrite):
    paths = agent_request.file_path(local, "local"), agent_request.file_path(remote, "remote")
    return agent_client.FileCopy(*paths, values.boolean(overwrite, "overwrite"))


@runner.reporting
def display(name):
    """
    List the displays and serial ports of a guest, and the commands that open them. A display that
    listens only on its host is reached through an SSH tunnel. Passwords are not shown.

    :param name: name of the guest

    :return: under the guest's name ``result``, ``comment``, ``host``, ``uuid``, ``state``,
        ``displays`` (list of ``type``: ``vnc``, ``spice``, ``serial`` and so on, ``listen``,
        ``port``, ``socket``, ``connect``, ``tunnel``: command to run before ``connect``)

    CLI Example:

    .. code-block:: bash

        salt-run virt.display web1
    """
    with Fleet(__opts__) as fleet:
        return verbs.display(fleet, str(name))


@runner.reporting
def screenshot(name, width=480, screen=0, dest=None, overwrite=False):
    """
    Take a small screenshot of a running guest.

    :param name: name of the guest
    :param width: maximum width in pixels
    :param screen: number of the screen
    :param dest: path of a new PNG file on the master, which only root can read. Its folder must
        exist, and links are not followed. For users of the master only, not for salt-api
    :param overwrite: True: replace an existing file

    :return: under the guest's name ``result``, ``comment``, ``host``; ``png`` in base64, or with
        ``dest`` ``changes`` (``path``) and ``size_bytes``

    CLI Example:

    .. code-block:: bash

        salt-run virt.screenshot web1 dest=/root/web1.png width=1280
        salt-run virt.screenshot web1 --out=json | jq -r .web1.png | base64 -d > web1.png
    """
    if dest is None:
        with Fleet(__opts__) as fleet:
            return verbs.screenshot(fleet, str(name), width, screen)
    agent_client.require_local_user(__opts__)
    path, replace = agent_request.file_path(dest, "dest"), values.boolean(overwrite, "overwrite")
    with Fleet(__opts__) as fleet:
        return verbs.save_screenshot(fleet, str(name), width, screen, path, replace)


@runner.reporting
def ticket(name, kind="display", digest=None, screen=0, force=False):
    """
    Create a ticket for a guest's display or serial port. It can be used once, within 30 seconds, by
    the user who requested it: the guest's hypervisor waits for the engine ``virt_reach`` of this
    master, and the engine for the secret whose SHA-256 digest is given here. The web page uses it;
    see docs/how-to/consoles.md.

    :param name: name of the guest
    :param kind: ``display`` or ``serial``
    :param digest: SHA-256 (64 hexadecimal digits) of a secret of 32 to 128 letters, digits, ``-``
        and ``_``. The secret itself is only sent to the WebSocket
    :param screen: number of the display
    :param force: disconnect the current user of the serial port

    :return: under the guest's name ``result``, ``comment``, ``host``, ``uuid``, ``kind``, ``type``
        (``vnc``, ``spice``, ``pty``), ``seconds`` (validity)

    CLI Example:

    .. code-block:: bash

        salt-run virt.ticket web1 serial digest="$(printf %s "$SECRET" | sha256sum | cut -c-64)"
    """
    user = access_check.requesting_user(__opts__)
    with Fleet(__opts__) as fleet:
        return verbs.ticket(fleet, user, str(name), str(kind), digest, screen=screen, force=force)


@runner.reporting
def watch(digest):
    """
    Create a ticket for events of the cloud. It can be used once, within 30 seconds, by the user who
    requested it. The web page uses it: the engine ``virt_reach`` of this master then queries the
    hypervisors once for all pages, and sends each page what its user may see; see web.md.

    :param digest: SHA-256 (64 hexadecimal digits) of a secret of 32 to 128 letters, digits, ``-``
        and ``_``. The secret itself is only sent to the WebSocket

    :return: under ``page`` ``result``, ``comment``, ``seconds`` (validity)

    CLI Example:

    .. code-block:: bash

        salt-run virt.watch digest="$(printf %s "$SECRET" | sha256sum | cut -c-64)"
    """
    return verbs.watch(__opts__, access_check.requesting_user(__opts__), digest)
