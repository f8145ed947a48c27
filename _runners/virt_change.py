"""
Change guests of the cloud: CPUs, memory, devices, disk sizes and autostart, and reboot them; delete
volumes.

Every function accepts ``test=True``: show what would be done, and change nothing.
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt.fleet.client import Fleet
from saltvirt.operations.access import runner

with saltvirt.later():
    from saltvirt import errors, settings, units
    from saltvirt.operations.core import operation
    from saltvirt.operations.guest import devices, lifecycle, volume_deletion
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
    force=False,
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
    :param detach: names or targets of the disks to detach; they are not deleted. A disk that the
        guest does not have is refused. True: all disks that ``disks`` does not list, except the
        boot disk
    :param live: False: all changes take effect at the next start
    :param overcommit: change it even if the host does not have enough free capacity; default:
        ``virt:overcommit`` of the host
    :param force: also give it the MAC of another guest of the host
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
            update_operations.UpdateGuest(fleet, name, options, overcommit, force), test
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
    is_enabled = values.boolean(enabled, "enabled")
    with Fleet(__opts__) as fleet:
        return operation.perform(update_operations.SetAutostart(fleet, name, is_enabled), test)


# the arguments of virt.attach for each kind of device
_OF_DEVICE = {
    "disk": {"disk", "size", "pool", "source", "format", "existing", "model", "overcommit"},
    "network": {"network", "mac", "model", "force"}, "bridge": {"bridge", "mac", "model", "force"},
    "iso": {"iso", "disk"},
}  # fmt: skip


def _one_of(verb, **devices_given):
    """The one device that is given. Raises InvalidInput."""
    given = [kind for kind, value in devices_given.items() if value not in (None, False, "")]
    if len(given) != 1:
        choices = " or ".join(devices_given)
        raise errors.InvalidInput(f"virt.{verb} takes one device: {choices}")
    return given[0]


def _refuse_others(kind, arguments):
    """Refuse arguments of virt.attach for another kind of device. Raises InvalidInput."""
    argument_names = {word for word, value in arguments.items() if value is not None}
    for word in sorted(argument_names - _OF_DEVICE[kind]):
        kinds = " or ".join(device for device in _OF_DEVICE if word in _OF_DEVICE[device])
        raise errors.InvalidInput(f"{word} is for {kinds}, not for {kind}")


@runner.reporting_guests
def attach(
    name,
    disk=None,
    size=None,
    pool=None,
    source=None,
    format=None,
    existing=None,
    network=None,
    bridge=None,
    mac=None,
    model=None,
    iso=None,
    test=False,
    overcommit=None,
    force=False,
):
    """
    Attach a disk, an interface or an ISO image to a guest, also while it runs.

    What a running guest cannot take, such as an additional CD drive, takes effect at its next
    start; the comment and ``pending`` say so.

    :param name: name of the guest
    :param disk: name of a disk, such as ``data``; with ``iso``: name or target of the CD drive
    :param size: size of a new disk: MiB, or a size such as ``20GiB``
    :param pool: storage pool or folder of the disk; default: ``virt:images`` of the host
    :param source: existing disk: an absolute path on the host, or a volume of ``pool``; it is used
        unchanged and never deleted. A disk of another guest is refused
    :param format: ``qcow2``, ``raw`` and others; required for an existing file that looks like
        qcow2
    :param existing: True: attach the disk that the guest had under this name, such as one that was
        detached; ``virt.purge`` keeps it
    :param network: libvirt network of a new interface
    :param bridge: bridge of a new interface
    :param mac: MAC of the interface; default: one that is free. The MAC of another guest of the
        host is refused without ``force``
    :param model: model of the interface, or bus of the disk, such as ``virtio``
    :param iso: image to insert into a CD drive: ``salt://…``, ``https://…``, a path on the host or
        ``pool://POOL/VOLUME``. A guest without a CD drive gets one
    :param test: show what would change; change nothing
    :param overcommit: attach it even if the host does not have enough free capacity; default:
        ``virt:overcommit`` of the host
    :param force: attach the interface also with the MAC of another guest of the host

    :return: as ``virt.update``

    CLI Example:

    .. code-block:: bash

        salt-run virt.attach web1 data size=20GiB
        salt-run virt.attach web1 data source=/srv/disks/data.qcow2 format=qcow2
        salt-run virt.attach web1 network=lan
        salt-run virt.attach web1 iso=salt://debian.iso
    """
    if overcommit is not None:
        overcommit = values.boolean(overcommit, "overcommit")
    existing = values.boolean(existing, "existing") if existing is not None else None
    devices_given = {"network": network, "bridge": bridge, "iso": iso}
    kind = _one_of("attach", disk=None if iso else disk, **devices_given)
    disk_options = {"size": size, "pool": pool, "source": source, "format": format}
    disk_options.update(existing=existing, overcommit=overcommit)
    device_options = {**disk_options, "disk": disk, "mac": mac, "model": model}
    device_options["force"] = force or None
    _refuse_others(kind, {**devices_given, **device_options})
    with Fleet(__opts__) as fleet:
        if kind == "iso":
            return operation.perform(devices.InsertIso(fleet, name, iso, disk), test)
        if kind == "disk":
            new = {
                "name": disk, "size": size, "pool": pool, "source_file": source, "format": format,
                "existing": existing, "model": model,
            }  # fmt: skip
            return operation.perform(devices.AttachDisk(fleet, name, new, overcommit), test)
        new = {"type": kind, "source": network or bridge, "mac": mac, "model": model}
        return operation.perform(devices.AttachInterface(fleet, name, new, force), test)


@runner.reporting_guests
def detach(name, disk=None, interface=None, iso=None, test=False, force=False):
    """
    Detach a disk or an interface from a guest, or eject an ISO image, also while it runs. Disks are
    not deleted.

    A disk or interface that the system of a running guest does not release leaves the guest when it
    stops; the call then fails and says so.

    :param name: name of the guest
    :param disk: name or target of the disk
    :param interface: MAC or name of the interface
    :param iso: ``True``: eject the medium of the first CD drive; or the name or target of a drive
    :param test: show what would change; change nothing
    :param force: also detach the disk from which the guest boots

    :return: as ``virt.update``

    CLI Example:

    .. code-block:: bash

        salt-run virt.detach web1 data
        salt-run virt.detach web1 interface=52:54:00:8f:2a:11
        salt-run virt.detach web1 iso=True
    """
    kind = _one_of("detach", disk=disk, interface=interface, iso=iso)
    with Fleet(__opts__) as fleet:
        if kind == "disk":
            return operation.perform(devices.DetachDisk(fleet, name, disk, force), test)
        if kind == "interface":
            return operation.perform(devices.DetachInterface(fleet, name, interface), test)
        return operation.perform(devices.EjectIso(fleet, name, iso), test)


@runner.reporting
def volume_delete(pool, volume, host=None, test=False):
    """
    Delete a volume of a storage pool, with its data, such as a disk that was detached.

    A volume that a guest or an image needs is kept. If other hosts can reach the volume, all hosts
    are asked, and each of them must answer that it does not use it. On the host itself,
    ``salt HOST virt.volume_delete POOL VOLUME force=True`` skips these checks.

    :param pool: name of the storage pool, which must be running
    :param volume: name of the volume, as ``virt.volumes`` lists it
    :param host: minion id of the host; required if several hosts have a volume of this name in a
        pool of this name
    :param test: only report what would be deleted, or why the volume stays

    :return: under ``POOL/VOLUME``: ``result``, ``comment``, ``host``, ``changes``: ``volume``

    CLI Example:

    .. code-block:: bash

        salt-run virt.volume_delete images web1_data test=True
        salt-run virt.volume_delete images web1_data host=hyper1
    """
    with Fleet(__opts__) as fleet:
        deletion = volume_deletion.VolumeDeletion(fleet, str(pool), str(volume), host)
        return operation.perform(deletion, test)
