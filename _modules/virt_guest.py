"""
Making, changing and copying guests of a hypervisor.

:depends: libvirt-python in Salt's own Python; qemu-img; libguestfs to seed images
"""

from dataclasses import replace
from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt import errors, settings, units
    from saltvirt.fleet.minion import client, files
    from saltvirt.host import connection
    from saltvirt.host.domain import guest_lock, resize
    from saltvirt.host.domain import power as powering  # the name is a function's in virt
    from saltvirt.host.migration import departures
    from saltvirt.host.provision import (
        admission,
        create,
        guest_builder,
        guest_tools,
        images_folder,
        seed_drive,
    )
    from saltvirt.host.provision import clone as cloning  # the name is a function's here
    from saltvirt.host.provision import rename as renaming
    from saltvirt.host.provision import update as updating
    from saltvirt.spec import deploy as deploy_spec
    from saltvirt.spec import disk as disk_spec  # the name is an argument here
    from saltvirt.spec import guest, profiles, values

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def _connect(kwargs):
    return connection.connect(settings.connection(__salt__["config.get"], kwargs))


def _split(kwargs):
    """(connection arguments, all the others)."""
    connect_args = {key: kwargs.pop(key) for key in settings.CONNECTION if key in kwargs}
    return connect_args, kwargs


def _admission_config(options):
    """The admission that a call asks for; takes its words out of the keyword arguments."""
    return admission.config_of(__salt__["config.get"], options)


def _guest_spec(arguments, **extra):
    """The GuestSpec of an adapter's arguments, with the host's profiles."""
    host_profiles = profiles.read(__salt__["config.get"])
    return guest.parse(**arguments, known_profiles=host_profiles, **extra)


def _refuse_own_id(name):
    """Raises InvalidInput if a guest would have the minion id of this host: the master knows one
    minion by it."""
    if str(name).lower() == str(__opts__["id"]).lower():
        raise errors.InvalidInput(f"{name} cannot be a guest's name: it is this host's minion id")


def _submit_key(name, deploy, answer):
    """What was made, as plain data. Its key is handed in; the master accepts it when it gave the
    permission for the name. The answer says so if the master did not accept it."""
    handed = answer.pub_key and deploy.approve_key and __opts__.get("file_client") != "local"
    if handed and not client.submit_key(__salt__, name, answer.pub_key):
        answer = replace(
            answer, warnings=(*answer.warnings, client.pending_key_note(name, __opts__["id"]))
        )
    return answer.to_answer()


def _tools(name, deploy, admission_config, verb="init"):
    ask, read_file = client.virtkey(__salt__), files.Chunks(__opts__).read
    return guest_tools.MinionTools(__salt__, __opts__, ask, read_file).tools(
        name, deploy, admission_config, verb
    )


def init(
    name,
    cpu,
    mem,
    nic="default",
    interfaces=None,
    hypervisor=None,
    start=True,
    disk="default",
    disks=None,
    saltenv="base",
    seed=True,
    install=True,
    pub_key=None,
    priv_key=None,
    seed_cmd="seed.apply",
    graphics=None,
    os_type=None,
    arch=None,
    boot=None,
    boot_dev=None,
    numatune=None,
    hypervisor_features=None,
    clock=None,
    serials=None,
    consoles=None,
    stop_on_reboot=False,
    host_devices=None,
    **kwargs,
):
    """
    Make a guest on this host: its disks, its definition, its minion; and start it.

    All is checked before anything is changed. The host then admits the guest under a lock,
    so that memory, CPUs and disk space are never promised twice; whatever fails later is
    undone. ``salt-run virt.init`` does the same and also chooses the host and accepts the
    guest's key. Called directly with ``start``, this hands the key to the master, which
    accepts it if it authorised the name before; else the key waits for ``salt-key -a``.

    :param name: of the guest: also its minion id and host name
    :param cpu: number of virtual CPUs, or a dictionary: ``maximum``, ``current``,
        ``placement``, ``cpuset``, ``vcpus``, ``mode``, ``model``, ``topology``, ``features``,
        ``cache``, ``numa``, ``tuning``, ``iothreads``
    :param mem: memory in MiB, a size such as ``2GiB``, or a dictionary: ``boot``,
        ``current``, ``max``, ``slots``, ``hard_limit``, ``soft_limit``, ``swap_hard_limit``,
        ``min_guarantee``, ``hugepages``, ``nosharepages``, ``locked``, ``source``, ``access``,
        ``allocation``, ``discard``
    :param nic: interface profile (``virt:nic``); None for none
    :param interfaces: list of dictionaries, laid over the profile's by ``name``: ``type``
        (bridge, network, direct, user), ``source``, ``mac``, ``model``, ``vlan``, …
    :param hypervisor: ``kvm``, ``qemu``, ``xen``, ``lxc``…; default: the best the host has.
        ``kvm`` on a host without KVM gives an emulated guest, with a warning
    :param start: start it when all is done
    :param disk: disk profile (``virt:disk``); None for none
    :param disks: list of dictionaries, laid over the profile's by ``name``: ``size`` (MiB),
        ``format``, ``pool`` (a folder or a storage pool), ``image``, ``overlay_image``,
        ``source_file`` (an existing file, device or volume, used as it is and never
        deleted; what its header names in another folder has to be named with
        ``backing_store_path``, unless a domain of this host has declared it), ``model``
        (the bus), ``device`` (disk, cdrom, floppy, lun), ``source``
        (rbd, gluster, iscsi, nbd, http…), ``cache``, ``io``, …
    :param saltenv: where ``salt://`` addresses are looked up
    :param seed: put the minion's configuration and keys into the disk made from an image;
        ``cloud-init`` puts them on a volume that cloud-init in the guest reads
    :param install: install a minion in an image that has none
    :param pub_key: PEM of the guest's public key; default: a new pair is made here
    :param priv_key: PEM of the private key that belongs to it
    :param seed_cmd: the function that seeds
    :param graphics: dictionary: ``type`` (vnc, spice, none), ``listen``, ``port``… The
        display listens on 127.0.0.1 unless told otherwise
    :param os_type: ``hvm``, ``xen``, ``linux``, ``exe``; default: by capabilities
    :param arch: default: the host's own
    :param boot: dictionary: ``kernel``, ``initrd``, ``cmdline``; ``efi``, or ``loader`` and
        ``nvram``
    :param boot_dev: devices to boot from, in order: ``hd``, ``cdrom``, ``network``, ``fd``
    :param numatune: dictionary: ``memory`` and ``memnodes``
    :param hypervisor_features: dictionary, e.g. ``{"kvm-hint-dedicated": True}``
    :param clock: dictionary: ``utc``, ``timezone``, ``adjustment``, ``timers``
    :param serials: list of serial ports
    :param consoles: list of consoles
    :param stop_on_reboot: stop where the guest would reboot
    :param host_devices: list of the host's devices to hand to the guest: names of
        ``virt.node_devices``, PCI or USB addresses
    :param image: what the first disk is made from: ``salt://…``, an absolute path on this
        host, ``pool://POOL/VOLUME``, ``http(s)://…`` or ``ftp://…``
    :param image_hash: what its hash must be, or the address of a file that lists it
    :param overlay: (or ``enable_qcow``) a thin qcow2 overlay on the image instead of a copy
    :param enable_vnc: a VNC display
    :param serial_type: ``pty``, ``tcp``…: a serial port and console of that type
    :param config: dictionary of minion options to seed with
    :param grains: dictionary of grains to seed with
    :param autosign_grains: dictionary of grains by which the master signs
    :param startup_states: ``highstate``, ``top`` or a list of states for the first start
    :param approve_key: hand the guest's key to the master, which accepts it when ``salt-run
        virt.authorize`` allowed it
    :param user_data: more for cloud-init, in any form that it takes: a text, or a ``salt://``
        file rendered by Jinja with ``name``, ``nics`` and ``grains_of_guest``
    :param autostart: start the guest with the host
    :param test: check what can be checked before anything is changed or fetched, and say what
        would be made
    :param definition: with ``test``: the XML that it would have, too
    :param overcommit: do it also where the host has promised its room to others; default:
        ``virt:overcommit``, else False
    :param placement: what the runner sends: the master's policy; default: ``virt:placement`` here
    :param unless_moved: refuse a guest that was moved away from this host, as the states do
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict: ``name``, ``host``, ``uuid``, ``state``, ``disks`` (``target``, ``path``,
        ``format``, ``size_bytes``), ``nics`` (``mac``, ``source``, ``type``), ``graphics`` and
        ``pub_key`` (PEM, None when it was not seeded); ``warnings``, if there are any, is a list
        of texts, such as that the master has not accepted the guest's key

    :raises InvalidInput: an argument is wrong, or the image is larger than the disk
    :raises AlreadyExists: the name, or a file where a disk would go
    :raises Refused: this host lacks memory, CPUs, space, a bridge, a network or a pool
    :raises ImageError: the image is no disk image, damaged, or not the demanded one
    :raises SeedFailed: the system in the image could not be prepared

    CLI Example:

    .. code-block:: bash

        salt 'hypervisor' virt.init vm_name 4 512 image=salt://path/to/image.qcow2
        salt 'hypervisor' virt.init vm_name 4 512 nic=profile disk=profile
        salt 'hypervisor' virt.init vm_name 2 1GiB image=/images/debian.qcow2 seed=False
    """
    arguments = {key: value for key, value in locals().items() if key != "kwargs"}
    connect, extra = _split(kwargs)
    admission_config = _admission_config(extra)
    test, definition = values.flag(extra.pop("test", False), "test"), extra.pop("definition", False)
    _refuse_own_id(name)
    moved_reason = (
        departures.departure_reason(str(name)) if extra.pop("unless_moved", False) else None
    )
    if moved_reason:
        raise errors.Refused(moved_reason)
    if extra.pop("from_master", False):
        extra.update(client.secrets(__salt__, __opts__, name))
    spec = _guest_spec({**arguments, **extra})
    with _connect(connect) as conn:
        if test:
            tools = _tools(spec.name, spec.deploy, admission_config)
            return create.preview(conn, spec, tools, definition=definition is True)
        answer = create.create(conn, spec, _tools(spec.name, spec.deploy, admission_config))
    departures.forget(spec.name)
    return _submit_key(spec.name, spec.deploy, answer)


def update(
    name,
    cpu=0,
    mem=0,
    disk_profile=None,
    disks=None,
    nic_profile=None,
    interfaces=None,
    graphics=None,
    live=True,
    boot=None,
    numatune=None,
    test=False,
    boot_dev=None,
    hypervisor_features=None,
    clock=None,
    serials=None,
    consoles=None,
    stop_on_reboot=None,
    host_devices=None,
    autostart=None,
    detach=False,
    **kwargs,
):
    """
    Change an existing guest to what is asked for, and nothing else of it.

    The parameters are those of ``virt.init``. What is not given stays as it is; ``None``
    inside of a dictionary takes that setting away. What libvirt can change on a running
    guest is changed at once: current CPUs and memory, disks and interfaces, the medium of a
    drive, disk sizes; all else comes with the guest's next start, and each call says what that is.
    What a running guest refused is tried again by the next call. A running guest gives memory back
    only if ``mem`` has ``current``. A second call finds nothing to change.

    :param name: of the guest
    :param cpu: number of virtual CPUs, or a dictionary; 0 leaves it
    :param mem: memory in MiB, a size, or a dictionary; 0 leaves it
    :param disk_profile: disk profile that the disks shall follow
    :param disks: disks that the guest shall have, each known by its ``name``; None leaves them.
        One that is not listed stays, unless ``detach`` says otherwise. A larger ``size`` grows a
        disk that was made for the guest and that no other guest uses
    :param detach: which disks leave the guest; they are not deleted. A list of names or targets:
        those. True: all that ``disks`` does not list, but never the one that the guest boots
        from. False: none, and a change that would replace a disk is refused. (Salt 3007 detached
        all that were not listed.)
    :param nic_profile: interface profile that the interfaces shall follow
    :param interfaces: all the interfaces that there shall be, each known by its ``mac`` or its
        ``name``; None leaves them
    :param graphics: the display; ``{"type": "none"}`` removes it
    :param live: False: everything waits for the next start
    :param boot: dictionary, as for ``virt.init``
    :param numatune: dictionary, as for ``virt.init``
    :param test: only say what would change
    :param boot_dev: devices to boot from, in order
    :param hypervisor_features: dictionary, as for ``virt.init``
    :param clock: dictionary, as for ``virt.init``
    :param serials: all the serial ports that there shall be; None leaves them
    :param consoles: all the consoles that there shall be; None leaves them
    :param stop_on_reboot: True: stop where the guest would reboot; False: reboot; None leaves it
    :param host_devices: all the host's devices that it shall have; None leaves them
    :param autostart: whether it starts with the host; None leaves it. (With Salt 3007 every
        update without this parameter switched it off.)
    :param overcommit: do it also where the host has promised its room to others; default:
        ``virt:overcommit``, else False
    :param placement: what the runner sends: the master's policy; default: ``virt:placement`` here
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict: ``definition`` (whether anything differs), ``changes`` (list of ``path``,
        ``old``, ``new``, ``live``), ``cpu`` and ``mem`` (True when they change), ``disk`` and
        ``interface`` (XML of what is ``attached``, ``detached``, ``updated``), and ``errors``:
        what a running guest did not take. ``pending``: what it gets only at its next start, a
        list of texts, also of what an earlier call has changed, and the same as a sentence in
        ``comment``; both only if there is something. ``warnings``: what was left as it is, and why

    :raises NotFound: there is no such domain
    :raises InvalidInput: an argument is wrong
    :raises Refused: this host has no room for what the guest gets more

    CLI Example:

    .. code-block:: bash

        salt '*' virt.update domain cpu=2 mem=1024
    """
    arguments = dict(locals())
    for key in ("kwargs", "live", "test", "detach"):
        del arguments[key]
    connect, extra = _split(kwargs)
    admission_config = _admission_config(extra)
    is_live, is_test = values.flag(live, "live"), values.flag(test, "test")
    update_mode = updating.UpdateOptions(is_live, disk_spec.detach(detach, "detach"), is_test)
    arguments.update(cpu=cpu or None, mem=mem or None, **extra)
    spec = _guest_spec(arguments, update=True)
    with _connect(connect) as conn:
        return updating.update(
            conn, spec, _tools(name, spec.deploy, admission_config, "update"), update_mode
        )


def clone(vm_, name, seed=None, start=False, test=False, **kwargs):
    """
    Copy a stopped guest under a new name, with disks, addresses and identity of its own.

    The disks that it writes to are copied, sparse or by reflink; media, shared and read-only
    disks are used by both. MAC addresses and UUID are new; the variables of UEFI are copied.
    The host admits the copy as it admits a new guest. When the copy is seeded, network
    configuration that is bound to MAC addresses of the original is bound to those of the copy,
    and an interface to which Salt Virt or cloud-init gave a fixed address asks DHCP.

    :param vm_: name of the domain to copy; it must be shut off
    :param name: of the copy: also its minion id and host name
    :param seed: give the copy's minion its own keys, configuration and host name; default:
        when the original was seeded by ``virt.init``
    :param start: start the copy when all is done
    :param test: change nothing: return a dict of ``disks``, the target to the path of the copy
    :param config: dictionary of minion options to seed with
    :param install: install a minion where there is none
    :param pub_key: PEM of the copy's public key; default: a new pair is made here
    :param priv_key: PEM of the private key that belongs to it
    :param grains: dictionary of grains to seed with
    :param autosign_grains: dictionary of grains by which the master signs
    :param startup_states: ``highstate``, ``top`` or a list of states for the first start
    :param autostart: start the copy with the host
    :param overcommit: do it also where the host has promised its room to others; default:
        ``virt:overcommit``, else False
    :param placement: what the runner sends: the master's policy; default: ``virt:placement`` here
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: what ``virt.init`` returns; ``warnings``, if there are any, is a list of texts, such as
        which fixed addresses the copy does not have

    :raises NotFound: there is no such domain
    :raises AlreadyExists: the new name, or a file where a disk would go
    :raises Refused: the original runs, or this host lacks memory, CPUs or space
    :raises Unsupported: a disk is neither a file nor a volume of a storage pool

    CLI Example:

    .. code-block:: bash

        salt 'hypervisor' virt.clone web1 web2 start=True
    """
    connect, extra = _split(kwargs)
    admission_config = _admission_config(extra)
    autostart, test = (
        values.flag(extra.pop("autostart", False), "autostart"), values.flag(test, "test"),
    )  # fmt: skip
    if extra.pop("from_master", False):
        extra.update(client.secrets(__salt__, __opts__, name))
    _refuse_own_id(name)
    deploy = deploy_spec.DeploySpec.parse(extra, "clone")
    with _connect(connect) as conn:
        if seed is None:
            seed = cloning.was_seeded(conn, vm_)
        seed, start = values.boolean(seed, "seed"), values.flag(start, "start")
        guest = guest_builder.GuestRequest(str(name), seed, start, autostart)
        tools = _tools(name, deploy, admission_config, "clone")
        if test:
            return cloning.preview(conn, vm_, guest, tools)
        answer = cloning.clone(conn, vm_, guest, tools)
    return _submit_key(name, deploy, answer)


def rename(vm_, name, seed=None, test=False, **kwargs):
    """
    Give a stopped guest another name, with its disks' files and the identity of its minion.

    Its UUID, MAC addresses, machine-id and SSH host keys stay. The files that ``virt.init``
    named after the guest get its new name; others keep theirs. ``salt-run virt.rename`` does the
    same and also accepts the new key and deletes the old one.

    :param vm_: name of the domain; it must be shut off
    :param name: the new name: also its minion id and host name
    :param seed: give the minion the new name and keys of its own; default: when the guest was
        seeded by ``virt.init``
    :param test: change nothing: return a dict of ``disks``, each path to the new one, and where
        there are any ``kept``, as below
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict: ``name``, ``host``, ``uuid``, ``state``, ``disks`` (paths that were renamed),
        ``kept`` (path of each that was named after the guest and keeps its name, to the reason:
        others know it by that) and ``pub_key`` (PEM, None when it was not seeded); ``warnings`` as
        of ``virt.init``

    :raises NotFound: there is no such domain
    :raises AlreadyExists: the new name, or a file where a disk would go
    :raises Refused: it runs, or has snapshots or saved memory

    CLI Example:

    .. code-block:: bash

        salt 'hypervisor' virt.rename web1 web2
    """
    connect, extra = _split(kwargs)
    admission_config = _admission_config(extra)
    _refuse_own_id(name)
    deploy = deploy_spec.DeploySpec.parse(extra, "rename")
    with _connect(connect) as conn:
        if seed is None:
            seed = cloning.was_seeded(conn, vm_)
        guest = guest_builder.GuestRequest(str(name), values.boolean(seed, "seed"))
        tools = _tools(name, deploy, admission_config, "rename")
        if values.flag(test, "test"):
            return renaming.preview(conn, vm_, guest, tools)
        answer = renaming.rename(conn, vm_, guest, tools)
    return _submit_key(name, deploy, answer)


def resize_disk(vm_, disk, size, **kwargs):
    """
    Make a disk of a guest larger, also while it runs. Disks are never shrunk.

    The partitions and file systems in it are the guest's own matter.

    :param vm_: name of the domain
    :param disk: target of the disk, such as ``vda``
    :param size: MiB, or a size such as ``20GiB``
    :param overcommit: do it also where the host has promised its room to others; default:
        ``virt:overcommit``, else False
    :param placement: what the runner sends: the master's policy; default: ``virt:placement`` here
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict: ``before`` and ``after``, in bytes, read back from libvirt or the image

    :raises NotFound: there is no such domain or disk
    :raises InvalidInput: the size is less than what it has
    :raises Refused: the host has not that much space

    CLI Example:

    .. code-block:: bash

        salt '*' virt.resize_disk <domain> vda 20GiB
    """
    size_bytes, admission_config = units.parse_bytes(size), _admission_config(kwargs)
    with admission_config.guest("virt.resize_disk", vm_), _connect(kwargs) as conn:
        before, after = resize.grow(conn, vm_, disk, size_bytes, admission_config)
    return {"before": before, "after": after}


def seed_eject(name, last_seen=False, **kwargs):
    """
    Take the volume for cloud-init from a guest and delete it: it holds the guest's key.

    To be called when the guest has reported in; ``salt-run virt.init … wait=True`` does it.

    :param name: of the guest
    :param last_seen: as for ``virt.power``: no other host was asked where the guest is
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True when there was one, False when there was none; None, with ``last_seen``, when the
        guest may be on another host: nothing is done then

    :raises NotFound: there is no such guest here

    CLI Example:

    .. code-block:: bash

        salt hv1 virt.seed_eject web1
    """
    lock_dir = guest_lock.folder(__salt__["config.get"])
    with guest_lock.acquire(lock_dir, "virt.seed_eject", name), _connect(kwargs) as conn:
        if last_seen and powering.before(conn, name, last_seen) is None:
            return None
        folder = images_folder.configured(__salt__["config.get"]).folder
        return seed_drive.eject(conn, name, folder)
