"""
Change guests of the cloud: CPUs, memory, devices, disk sizes and autostart, and reboot them.

Every function accepts ``test=True``: show what would be done, and change nothing.
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt.fleet.client import Fleet
from saltvirt.operations.access import runner

with saltvirt.later():
    from saltvirt import settings, units
    from saltvirt.operations.core import operation
    from saltvirt.operations.guest import lifecycle
    from saltvirt.operations.guest import update as update_operations
    from saltvirt.spec import values

if TYPE_CHECKING:
    from salt_dunders import __opts__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


@runner.reporting_guests
def update(
    name,
    cpu=None,
    mem=None,
    disks=None,
    interfaces=None,
    boot=None,
    autostart=None,
    test=False,
    detach=None,
    live=True,
    overcommit=None,
    **kwargs,
):
    """
    Change a guest. Settings that are not given are left unchanged.

    Settings that libvirt can change on a running guest change immediately: current CPUs and memory,
    disks and interfaces, the medium of a drive, disk sizes. All others take effect at the guest's
    next start; the comment and ``pending`` name them.

    :param name: name of the guest
    :param cpu: number of virtual CPUs, or a dictionary as for ``virt.init`` of a hypervisor
    :param mem: memory in MiB, a size such as ``2GiB``, or a dictionary
    :param disks: list of disks, each identified by its ``name``; a disk that is not listed is kept,
        unless ``detach`` names it
    :param interfaces: complete list of interfaces, each identified by its ``mac`` or its ``name``
    :param boot: dictionary: ``kernel``, ``initrd``, ``cmdline``; ``efi``, or ``loader`` and
        ``nvram``
    :param autostart: whether the guest starts with its host
    :param test: show what would change; change nothing
    :param detach: names or targets of the disks to detach; they are not deleted. True: all disks
        that ``disks`` does not list, except the boot disk
    :param live: False: all changes take effect at the next start
    :param overcommit: change it even if the host does not have enough free capacity; default:
        ``virt:overcommit`` of the host
    :param kwargs: any other argument of the guest's definition, such as ``graphics``, ``boot_dev``,
        ``clock``, ``title`` and ``description``: docs/reference/definitions.md

    :return: under the guest's name ``result``, ``comment``, ``changes`` (setting to ``old`` and
        ``new``), ``host``, ``state``, ``pending`` (texts: what takes effect at the next start) and,
        if there are any, ``errors`` (texts: what the running guest refused; then ``result`` is
        False)

    CLI Example:

    .. code-block:: bash

        salt-run virt.update web1 cpu=2 mem=2GiB
        salt-run virt.update web1 boot_dev='[cdrom, hd]' test=True
    """
    options = {
        **settings.user_kwargs(kwargs),
        "cpu": cpu, "mem": mem, "disks": disks, "interfaces": interfaces, "boot": boot,
        "autostart": None if autostart is None else values.boolean(autostart, "autostart"),
        "detach": detach or None, "live": None if live else False,
    }  # fmt: skip
    if overcommit is not None:
        overcommit = values.boolean(overcommit, "overcommit")
    with Fleet(__opts__) as fleet:
        return operation.perform(
            update_operations.UpdateGuest(fleet, name, options, overcommit), test
        )


@runner.reporting_guests
def resize(name, disk, size, test=False, overcommit=None):
    """
    Grow a disk of a guest, also while the guest runs. Disks are never shrunk.

    Partitions and file systems in the guest are not changed.

    :param name: name of the guest
    :param disk: name of the disk, such as ``system``, or its target, such as ``vda``
    :param size: new size: MiB, or a size such as ``20GiB``
    :param test: perform all checks; change nothing
    :param overcommit: grow it even if the host does not have enough free capacity; default:
        ``virt:overcommit`` of the host

    :return: under the guest's name ``result``, ``comment``, ``changes``, ``host``, ``state`` and
        ``pending``, which is empty: the running guest has the new size

    CLI Example:

    .. code-block:: bash

        salt-run virt.resize web1 system 20GiB
    """
    if overcommit is not None:
        overcommit = values.boolean(overcommit, "overcommit")
    with Fleet(__opts__) as fleet:
        return operation.perform(
            update_operations.ResizeDisk(fleet, name, disk, size, overcommit), test
        )


@runner.reporting_guests
def reboot(name, timeout=120, test=False):
    """
    Ask the operating system of a guest to reboot, again every 10 s, and wait until libvirt reports
    the reboot. Changes that wait for the next start of the guest do not take effect: shut it down
    and start it for that.

    :param name: name of the guest
    :param timeout: seconds to wait; a guest that has not rebooted by then is not reset, and the
        call fails
    :param test: show what would be done; change nothing

    :return: under the guest's name ``result``, ``comment``, ``changes``, ``host``, ``state``,
        ``pending`` (texts: what takes effect at the next start)

    CLI Example:

    .. code-block:: bash

        salt-run virt.reboot web1
    """
    wait_s = units.parse_number(timeout, "timeout")
    with Fleet(__opts__) as fleet:
        return operation.perform(lifecycle.Lifecycle(fleet, name, "reboot", wait_s), test)


@runner.reporting_guests
def autostart(name, enabled=True, test=False):
    """
    Set whether a guest starts with its host. High availability starts the guests that it manages:
    they cannot have autostart.

    :param name: name of the guest
    :param enabled: ``on`` or ``off``
    :param test: show what would change; change nothing

    :return: under the guest's name ``result``, ``comment``, ``changes``, ``host``, ``state``,
        ``pending``

    CLI Example:

    .. code-block:: bash

        salt-run virt.autostart web1 on
    """
    with Fleet(__opts__) as fleet:
        return operation.perform(update_operations.SetAutostart(fleet, name, enabled), test)
