"""
Create, change, snapshot and remove guests of a hypervisor, and leftovers of operations.

Every function that uses libvirt accepts ``connection``, ``username`` and ``password``; the defaults
are ``virt:connection:uri`` and ``virt:connection:auth``.

:depends: libvirt-python in Salt's own Python; qemu-img; libguestfs to seed images
"""

from dataclasses import replace
from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt import errors, settings, units
    from saltvirt.answers import creation as creation_answers
    from saltvirt.answers import removal as removal_answer
    from saltvirt.answers import snapshots as snapshot_answer
    from saltvirt.fleet.minion import client, files
    from saltvirt.host import connection
    from saltvirt.host.domain import creation, guest_lock, lookup, removal, resize
    from saltvirt.host.domain import power as host_power  # a function of virt has the same name
    from saltvirt.host.domain import purge as host_purge  # a function here has the same name
    from saltvirt.host.migration import departures, move_journal
    from saltvirt.host.provision import (
        admission,
        create,
        disk_journal,
        guest_builder,
        guest_tools,
        images_folder,
        seed_drive,
    )
    from saltvirt.host.provision import clone as host_clone  # a function here has the same name
    from saltvirt.host.provision import rename as host_rename
    from saltvirt.host.provision import update as host_update
    from saltvirt.host.snapshot import snapshots
    from saltvirt.host.storage import sharing
    from saltvirt.spec import deploy as deploy_spec
    from saltvirt.spec import disk as disk_spec  # an argument here has the same name
    from saltvirt.spec import guest, profiles, values
    from saltvirt.spec import nic as nic_spec  # an argument here has the same name

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__virtualname__ = "virt"
__outputter__ = saltvirt.OUTPUTTERS


def __virtual__():
    return __virtualname__


def _connect(kwargs):
    return connection.connect(settings.connection(__salt__["config.get"], kwargs))


def _split(kwargs):
    """Split the keyword arguments into those of the connection and all others."""
    connect_args = {key: kwargs.pop(key) for key in settings.CONNECTION if key in kwargs}
    return connect_args, kwargs


def _admission_config(options):
    """The AdmissionConfig of a call; removes its arguments from the keyword arguments."""
    return admission.config_of(__salt__["config.get"], options)


def _guest_spec(options, **arguments):
    """The GuestSpec of an adapter's arguments, with the host's profiles. options: its ``**kwargs``,
    which may have any name."""
    guest.refuse_unknown(options)
    host_profiles = profiles.read(__salt__["config.get"])
    return guest.parse(known_profiles=host_profiles, **{**arguments, **options})


def _refuse_own_id(name):
    """Raise InvalidInput if a guest would have the minion id of this host: the master knows only
    one minion with this id."""
    if str(name).lower() == str(__opts__["id"]).lower():
        raise errors.InvalidInput(f"{name} cannot be a guest's name: it is this host's minion id")


def _submit_key(name, deploy, answer):
    """Return the new guest as plain data, and submit its key; the master accepts it if it has
    authorized the name. If the master does not accept it, the answer has a warning."""
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
    image=None,
    image_hash=None,
    overlay=None,
    enable_qcow=None,
    enable_vnc=None,
    serial_type=None,
    config=None,
    grains=None,
    autosign_grains=None,
    startup_states=None,
    approve_key=None,
    user_data=None,
    autostart=None,
    metadata=None,
    test=False,
    definition=False,
    overcommit=None,
    placement=None,
    unless_moved=False,
    from_master=False,
    **kwargs,
):
    """
    Create a guest on this host with its disks, definition and minion, and start it.

    All arguments are checked before anything is changed. The host then admits the guest under a
    lock, so that memory, CPUs and disk space are never allocated twice; if a later step fails,
    everything is rolled back. ``salt-run virt.init`` does the same, and also selects the host and
    accepts the guest's key. If you call this function directly with ``start``, it submits the key
    to the master, which accepts it if the name was authorized before; otherwise the key stays
    pending until you run ``salt-key -a``.

    :param name: name of the guest, also its minion id and host name
    :param cpu: number of virtual CPUs, or a dictionary: ``maximum``, ``current``,
        ``placement``, ``cpuset``, ``vcpus``, ``mode``, ``model``, ``topology``, ``features``,
        ``cache``, ``numa``, ``tuning``, ``iothreads``
    :param mem: memory in MiB, a size such as ``2GiB``, or a dictionary: ``boot``,
        ``current``, ``max``, ``slots``, ``hard_limit``, ``soft_limit``, ``swap_hard_limit``,
        ``min_guarantee``, ``hugepages``, ``nosharepages``, ``locked``, ``source``, ``access``,
        ``allocation``, ``discard``
    :param nic: interface profile (``virt:nic``); None: no profile
    :param interfaces: list of dictionaries that override the profile's interfaces of the same
        ``name``: ``type`` (bridge, network, direct, user), ``source``, ``mac``, ``model``, ``vlan``
        and others
    :param hypervisor: ``kvm``, ``qemu``, ``xen``, ``lxc`` and others; default: the best that the
        host supports. ``kvm`` on a host without KVM results in an emulated guest, with a warning
    :param start: start the guest
    :param disk: disk profile (``virt:disk``); None: no profile
    :param disks: list of dictionaries that override the profile's disks of the same ``name``:
        ``size`` (MiB), ``format``, ``pool`` (a folder or a storage pool), ``image``,
        ``overlay_image``, ``source_file`` (an existing file, device or volume, which is used
        unchanged and never deleted; if its header names a file in another folder, that must be
        given as ``backing_store_path``, unless a domain of this host declares it), ``model`` (the
        bus), ``device`` (disk, cdrom, floppy, lun), ``source`` (rbd, gluster, iscsi, nbd, http and
        others), ``cache``, ``io`` and others
    :param saltenv: environment of ``salt://`` images
    :param seed: write the minion's configuration and keys to the disk that is created from an
        image; ``cloud-init``: write them to a volume for cloud-init in the guest
    :param install: install a minion if the image contains none
    :param pub_key: PEM of the guest's public key; by default, the host generates a new key pair
    :param priv_key: PEM of the matching private key
    :param seed_cmd: function that seeds the disk
    :param graphics: dictionary: ``type`` (vnc, spice, none), ``listen``, ``port`` and others. By
        default, the display listens on 127.0.0.1
    :param os_type: ``hvm``, ``xen``, ``linux``, ``exe``; default: from the capabilities
    :param arch: architecture; default: the host's
    :param boot: dictionary: ``kernel``, ``initrd``, ``cmdline``; ``efi``, or ``loader`` and
        ``nvram``
    :param boot_dev: devices to boot from, in order: ``hd``, ``cdrom``, ``network``, ``fd``
    :param numatune: dictionary: ``memory`` and ``memnodes``
    :param hypervisor_features: dictionary, for example ``{"kvm-hint-dedicated": True}``
    :param clock: dictionary: ``utc``, ``timezone``, ``adjustment``, ``timers``
    :param serials: list of serial ports
    :param consoles: list of consoles
    :param stop_on_reboot: power off the guest instead of rebooting
    :param host_devices: list of host devices to assign to the guest: names of
        ``virt.node_devices``, PCI or USB addresses
    :param image: image of the first disk: ``salt://…``, an absolute path on this host,
        ``pool://POOL/VOLUME``, ``http(s)://…`` or ``ftp://…``
    :param image_hash: expected hash of the image, or the URL of a file that lists it
    :param overlay: create a thin qcow2 overlay of the image instead of a copy
    :param enable_qcow: Salt's name of ``overlay``
    :param enable_vnc: add a VNC display
    :param serial_type: ``pty``, ``tcp`` and others: add a serial port and a console of that type
    :param config: dictionary of minion options
    :param grains: dictionary of grains
    :param autosign_grains: dictionary of grains for the master's autosigning
    :param startup_states: ``highstate``, ``top`` or a list of states for the first start
    :param approve_key: submit the guest's key to the master, which accepts it if
        ``salt-run virt.authorize`` was run for the name
    :param user_data: additional user data for cloud-init, in any supported format: text, or a
        ``salt://`` file that is rendered by Jinja with ``name``, ``nics`` and ``grains_of_guest``
    :param autostart: start the guest with the host
    :param metadata: dictionary of texts for the guest's record
    :param test: perform all checks that are possible without changes and downloads, and show what
        would be created
    :param definition: with ``test``: also return the XML
    :param overcommit: do it even if the host does not have enough free capacity; default:
        ``virt:overcommit``, else False
    :param placement: the master's policy, sent by the runner; default: ``virt:placement`` of this
        host
    :param unless_moved: refuse a guest that was migrated away from this host, as the states do
    :param from_master: set by the runner: request the secret arguments from the master
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``; and
        the arguments of the guest's definition that are not listed here, such as ``os``
        (``windows``, ``linux``, ``win11`` …), ``machine``, ``tpm``, ``rng`` and ``watchdog``

    :return: a dictionary: ``name``, ``host``, ``uuid``, ``state``, ``disks`` (``target``, ``path``,
        ``format``, ``size_bytes``), ``nics`` (``mac``, ``source``, ``type``), ``graphics`` and
        ``pub_key`` (PEM, None if the guest was not seeded); ``warnings``, if there are any, is a
        list of texts, for example that the master has not accepted the guest's key

    :raises InvalidInput: an argument is invalid, or the image is larger than the disk
    :raises AlreadyExists: the name, or a disk file, exists
    :raises Refused: this host does not have enough memory, CPUs or disk space, or does not have the
        bridge, network or pool
    :raises ImageError: the image is not a disk image, is damaged, or has another hash
    :raises SeedFailed: the system in the image could not be prepared

    CLI Example:

    .. code-block:: bash

        salt 'hypervisor' virt.init vm_name 4 512 image=salt://path/to/image.qcow2
        salt 'hypervisor' virt.init vm_name 4 512 nic=profile disk=profile
        salt 'hypervisor' virt.init vm_name 2 1GiB image=/images/debian.qcow2 seed=False
    """
    connect, extra = _split(kwargs)
    admission_config = _admission_config({"placement": placement, "overcommit": overcommit})
    test = values.flag(test, "test")
    _refuse_own_id(name)
    moved_reason = departures.departure_reason(str(name)) if unless_moved else None
    if moved_reason:
        raise errors.Refused(moved_reason)
    deploy = deploy_spec.DeploySpec(
        start=start, image=image, image_hash=image_hash, overlay=overlay, enable_qcow=enable_qcow,
        saltenv=saltenv, seed=seed, install=install, seed_cmd=seed_cmd, config=config,
        pub_key=pub_key, priv_key=priv_key, grains=grains, autosign_grains=autosign_grains,
        startup_states=startup_states, user_data=user_data, approve_key=approve_key,
    )  # fmt: skip
    secrets = client.secrets(__salt__, __opts__, name) if from_master else {}
    spec = _guest_spec(
        {**extra, **secrets}, name=name, cpu=cpu, mem=mem, deploy=deploy, nic=nic,
        interfaces=interfaces, hypervisor=hypervisor, disk=disk, disks=disks, graphics=graphics,
        os_type=os_type, arch=arch, boot=boot, boot_dev=boot_dev, numatune=numatune,
        hypervisor_features=hypervisor_features, clock=clock, serials=serials, consoles=consoles,
        stop_on_reboot=stop_on_reboot, host_devices=host_devices, enable_vnc=enable_vnc,
        serial_type=serial_type, autostart=autostart, metadata=metadata,
    )  # fmt: skip
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
    detach_interfaces=None,
    **kwargs,
):
    """
    Update an existing guest. Settings that are not given are left unchanged.

    The parameters are those of ``virt.init``. ``None`` in a dictionary removes that setting.
    Settings that libvirt can change on a running guest change immediately: current CPUs and memory,
    disks and interfaces, the medium of a drive, disk sizes. All others take effect at the guest's
    next start, and each call lists them. A change that a running guest refused is tried again by
    the next call. A running guest returns memory only if ``mem`` has ``current``. A second call
    finds nothing to change.

    :param name: name of the guest
    :param cpu: number of virtual CPUs, or a dictionary; 0: unchanged
    :param mem: memory in MiB, a size, or a dictionary; 0: unchanged
    :param disk_profile: disk profile of the disks
    :param disks: disks of the guest, each identified by its ``name``; None: unchanged. A disk that
        is not listed is kept, unless ``detach`` is given. A larger ``size`` grows a disk that was
        created for the guest and that no other guest uses
    :param detach: disks to detach; they are not deleted. A list: the disks of these names or
        targets. True: all disks that ``disks`` does not list, except the boot disk. False: none,
        and a change that would replace a disk is refused. (Salt 3007 detached all disks that were
        not listed.)
    :param nic_profile: interface profile of the interfaces
    :param interfaces: complete list of interfaces, each identified by its ``mac`` or its ``name``;
        None: unchanged
    :param detach_interfaces: list of MACs or names of interfaces to detach; ``interfaces`` is then
        not the complete list: those that it does not list are kept
    :param graphics: the display; ``{"type": "none"}`` removes it
    :param live: False: all changes take effect at the next start
    :param boot: dictionary, as for ``virt.init``
    :param numatune: dictionary, as for ``virt.init``
    :param test: only show what would change
    :param boot_dev: devices to boot from, in order
    :param hypervisor_features: dictionary, as for ``virt.init``
    :param clock: dictionary, as for ``virt.init``
    :param serials: complete list of serial ports; None: unchanged
    :param consoles: complete list of consoles; None: unchanged
    :param stop_on_reboot: True: power off the guest instead of rebooting; False: reboot; None:
        unchanged
    :param host_devices: complete list of host devices; None: unchanged
    :param autostart: whether the guest starts with the host; None: unchanged (Salt 3007 disabled
        it)
    :param overcommit: do it even if the host does not have enough free capacity; default:
        ``virt:overcommit``, else False
    :param placement: the master's policy, sent by the runner; default: ``virt:placement`` of this
        host
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary: ``definition`` (whether anything differs), ``changes`` (list of ``path``,
        ``old``, ``new``, ``live``), ``cpu`` and ``mem`` (True if they change), ``disk`` and
        ``interface`` (XML of devices that are ``attached``, ``detached``, ``updated``), and
        ``errors``: changes that a running guest refused. If there are pending changes: ``pending``,
        a list of texts about changes that take effect at the next start, including those of earlier
        calls, and the same as a sentence in ``comment``. ``warnings``: settings that were left
        unchanged, with the reasons. ``missing``: what was to be detached and does not exist, such
        as ``disk data``. ``absent``: files of ``boot`` that do not exist on the host, without which
        the guest cannot start. ``duplicates``: new MACs that another guest of the host has

    :raises NotFound: the domain does not exist
    :raises InvalidInput: an argument is invalid
    :raises Refused: this host does not have enough free capacity

    CLI Example:

    .. code-block:: bash

        salt '*' virt.update domain cpu=2 mem=1024
    """
    arguments = dict(locals())
    for key in ("kwargs", "live", "test", "detach", "detach_interfaces"):
        del arguments[key]
    connect, extra = _split(kwargs)
    admission_config = _admission_config(extra)
    is_live, is_test = values.flag(live, "live"), values.flag(test, "test")
    detached = disk_spec.detach(detach, "detach")
    leaving_nics = nic_spec.detach(detach_interfaces, "detach_interfaces")
    update_mode = host_update.UpdateOptions(is_live, detached, is_test, leaving_nics)
    arguments.update(cpu=cpu or None, mem=mem or None)
    spec = _guest_spec(extra, **arguments, update=True)
    with _connect(connect) as conn:
        return host_update.update(
            conn, spec, _tools(name, spec.deploy, admission_config, "update"), update_mode
        )


def clone(vm_, name, seed=None, start=False, test=False, **kwargs):
    """
    Clone a stopped guest, with disks, addresses and an identity of its own.

    Writable disks are copied, sparse or by reflink; removable media, shared and read-only disks are
    used by both guests. MAC addresses and UUID are new; the UEFI variables are copied. The host
    admits the clone like a new guest. If the clone is seeded, network configuration for MAC
    addresses of the original is changed to those of the clone, and an interface to which Salt Virt
    or cloud-init gave a fixed address uses DHCP.

    :param vm_: name of the domain to clone; it must be shut off
    :param name: name of the clone, also its minion id and host name
    :param seed: give the clone's minion its own keys, configuration and host name; default: if
        ``virt.init`` seeded the original
    :param start: start the clone
    :param test: change nothing; return a dictionary of ``disks``: target to the path of the copy
    :param config: dictionary of minion options
    :param install: install a minion if there is none
    :param pub_key: PEM of the clone's public key; by default, the host generates a new key pair
    :param priv_key: PEM of the matching private key
    :param grains: dictionary of grains
    :param autosign_grains: dictionary of grains for the master's autosigning
    :param startup_states: ``highstate``, ``top`` or a list of states for the first start
    :param autostart: start the clone with the host
    :param overcommit: do it even if the host does not have enough free capacity; default:
        ``virt:overcommit``, else False
    :param placement: the master's policy, sent by the runner; default: ``virt:placement`` of this
        host
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: as ``virt.init``; ``warnings``, if there are any, is a list of texts, for example about
        fixed addresses that the clone does not have

    :raises NotFound: the domain does not exist
    :raises AlreadyExists: the new name, or a disk file, exists
    :raises Refused: the original runs, or this host does not have enough memory, CPUs or disk space
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
            seed = host_clone.was_seeded(conn, vm_)
        seed, start = values.boolean(seed, "seed"), values.flag(start, "start")
        guest = guest_builder.GuestRequest(str(name), seed, start, autostart)
        tools = _tools(name, deploy, admission_config, "clone")
        if test:
            return host_clone.preview(conn, vm_, guest, tools)
        answer = host_clone.clone(conn, vm_, guest, tools)
    return _submit_key(name, deploy, answer)


def rename(vm_, name, seed=None, test=False, **kwargs):
    """
    Rename a stopped guest, with its disk files and the identity of its minion.

    Its UUID, MAC addresses, machine-id and SSH host keys are kept. Files that ``virt.init`` named
    after the guest are renamed; others keep their names. ``salt-run virt.rename`` does the same,
    and also accepts the new key and deletes the old one.

    :param vm_: name of the domain; it must be shut off
    :param name: the new name, also its minion id and host name
    :param seed: give the minion the new name and new keys; default: if ``virt.init`` seeded the
        guest
    :param test: change nothing; return a dictionary of ``disks``, each path to the new one, and, if
        there are any, ``unrenamed`` as below
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary: ``name``, ``host``, ``uuid``, ``state``, ``disks`` (new paths of renamed
        files), ``unrenamed`` (paths of files that are named after the guest and keep their names,
        with the reason: others use them) and ``pub_key`` (PEM, None if the guest was not seeded);
        ``warnings`` as for ``virt.init``

    :raises NotFound: the domain does not exist
    :raises AlreadyExists: the new name, or a disk file, exists
    :raises Refused: the guest runs, or has snapshots or saved memory

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
            seed = host_clone.was_seeded(conn, vm_)
        guest = guest_builder.GuestRequest(str(name), values.boolean(seed, "seed"))
        tools = _tools(name, deploy, admission_config, "rename")
        if values.flag(test, "test"):
            return host_rename.preview(conn, vm_, guest, tools)
        answer = host_rename.rename(conn, vm_, guest, tools)
    return _submit_key(name, deploy, answer)


def resize_disk(vm_, disk, size, test=False, **kwargs):
    """
    Grow a disk of a guest, also while the guest runs. Disks are never shrunk.

    Partitions and file systems in the guest are not changed.

    :param vm_: name of the domain
    :param disk: target of the disk, such as ``vda``, or its name, such as ``system``
    :param size: MiB, or a size such as ``20GiB``
    :param test: perform all checks, and change nothing
    :param overcommit: do it even if the host does not have enough free capacity; default:
        ``virt:overcommit``, else False
    :param placement: the master's policy, sent by the runner; default: ``virt:placement`` of this
        host
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary: ``before`` and ``after`` in bytes, as reported by libvirt or the image

    :raises NotFound: the domain or disk does not exist
    :raises InvalidInput: the size is smaller than the current one
    :raises Refused: the host does not have enough disk space

    CLI Example:

    .. code-block:: bash

        salt '*' virt.resize_disk <domain> vda 20GiB
    """
    size_bytes, admission_config = units.parse_bytes(size), _admission_config(kwargs)
    with admission_config.guest("virt.resize_disk", vm_), _connect(kwargs) as conn:
        is_test = values.flag(test, "test")
        before, after = resize.grow(conn, vm_, disk, size_bytes, admission_config, is_test)
    return {"before": before, "after": after}


def seed_eject(name, last_seen=False, **kwargs):
    """
    Detach and delete a guest's cloud-init volume, which contains the guest's key.

    Call it when the guest's minion has connected; ``salt-run virt.init … wait=True`` does this.

    :param name: name of the guest
    :param last_seen: no other host was queried
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True if there was a volume, False if there was none; with ``last_seen``, None if the
        guest may be on another host: then nothing is done

    :raises NotFound: the guest does not exist on this host

    CLI Example:

    .. code-block:: bash

        salt hv1 virt.seed_eject web1
    """
    lock_dir = guest_lock.folder(__salt__["config.get"])
    with guest_lock.acquire(lock_dir, "virt.seed_eject", name), _connect(kwargs) as conn:
        if last_seen and host_power.before(conn, name, last_seen) is None:
            return None
        folder = images_folder.configured(__salt__["config.get"]).folder
        return seed_drive.eject(conn, name, folder)


def _admission():
    return admission.AdmissionConfig.configured(__salt__["config.get"])


def undefine(vm_, **kwargs):
    """
    Undefine a stopped domain and remove its NVRAM. Its disks and its TPM state are kept.

    libvirt refuses if the domain has saved memory or snapshots; ``virt.purge`` removes those, too.

    :param vm_: name of the domain
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True, after libvirt has confirmed it

    :raises OperationFailed: the domain is running, or libvirt refused

    CLI Example:

    .. code-block:: bash

        salt '*' virt.undefine <domain>
    """
    admission_config = _admission()
    with admission_config.guest("virt.undefine", vm_), _connect(kwargs) as conn:
        return removal.undefine(conn, lookup.lookup(conn, vm_))


def purge(
    vm_, dirs=False, removables=False, disks="own", test=False, unused=(), force=True, **kwargs
):
    """
    Remove a guest and its own disks. Nothing else is deleted.

    The own disks of a guest that ``virt.init`` created are those of its record, and the files of
    its snapshots. For any other domain, they are its writable disks. The following are never
    deleted: disks that another domain uses or is based on, removable media, shared or read-only
    disks, images of the cache, and block devices outside libvirt's pools. Disks that other hosts
    may have, for example on NFS, are not deleted either: ``salt-run virt.purge`` queries the other
    hosts. If it cannot be proven that no other guest uses a disk, it is kept. Saved memory,
    snapshots, NVRAM and TPM state are deleted with the guest, except NVRAM and TPM state that other
    hosts may have or that are not in libvirt's default location for this guest, because a
    definition may name the distribution's own template. An interrupted migration of the guest from
    this host is finished first; if the guest is, or may be, on the target then, nothing is removed.
    If it fails, you can call it again.

    :param vm_: name of the domain
    :param dirs: also remove folders below ``virt:images`` that are empty afterwards
    :param removables: accepted for compatibility with Salt 3007; removable media are never deleted
    :param disks: ``own``, as above; ``made``: only disks of a record of Salt Virt, so none of other
        domains; ``none``
    :param test: only show what would be deleted
    :param unused: paths on shared storage that no other host uses, as the caller has verified; the
        runner asks all other hosts
    :param force: False: refuse a guest that is not off, as ``salt-run virt.purge`` does; by default
        it is powered off, as with Salt 3007
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True, after the disks are deleted and libvirt no longer lists the domain; if some of
        its own disks are kept, a dictionary instead: ``left`` (path to the reason); with ``test`` a
        dictionary: ``delete`` (paths), ``keep`` (path to the reason) and, if there are any,
        ``shared`` (files to ask other hosts about, by path) and ``unsure`` (the guest's own disks
        that are kept)

    :raises NotFound: the domain does not exist
    :raises OperationFailed: a disk could not be deleted; the domain is then still defined

    CLI Example:

    .. code-block:: bash

        salt '*' virt.purge <domain>
        salt '*' virt.purge <domain> test=True
    """
    disks = values.choice("own", "made", "none")(disks, "disks")
    unused, dirs = values.paths(unused, "unused"), values.flag(dirs, "dirs")
    force, admission_config = values.boolean(force, "force"), _admission()
    cache_dir = admission_config.cache_dir
    with _connect(kwargs) as conn:
        if values.flag(test, "test"):
            todo = host_purge.plan(conn, lookup.lookup(conn, vm_), cache_dir, disks, unused)
            places, unsure = sharing.as_data(todo.shared), tuple(todo.uncertain)
            delete = (*todo.delete, *todo.variables)
            return removal_answer.RemovalPlan(delete, todo.keep, places, unsure).to_answer()
        dom = lookup.lookup(conn, vm_)
        host_purge.not_at_work(dom)  # checked before waiting for the lock
        _end_migration(dom)
        with admission_config.guest("virt.purge", vm_):
            result = host_purge.purge(
                conn, vm_, cache_dir, admission_config.images_dir, dirs, disks, unused, force
            )
    departures.forget(str(vm_))
    leftovers = {path: result.keep[path] for path in result.uncertain}
    return {"left": leftovers} if leftovers else True


def _end_migration(dom):
    """Finish an interrupted migration of the domain, which is impossible once the domain is
    removed."""
    if move_journal.load_for_domain(dom) is None:
        return
    recovery = __salt__["virt.migrate_recover"](dom.name())
    if recovery["outcome"] == "moved":
        raise errors.OperationFailed(
            f"{dom.name()} is on {recovery['target']}: its migration from here was interrupted, "
            "and is completed now"
        )


def creation_phase(vm_, **kwargs):
    """
    Show the phase of a guest's creation.

    :param vm_: name of the domain
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary: ``phase``: ``creating``, ``interrupted`` (the process that created the
        guest ended before the guest was complete) or ``complete``; ``used``: for an interrupted
        guest that runs or was ever started, the evidence; otherwise None

    :raises NotFound: the domain does not exist

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.creation_phase web1
    """
    with _connect(kwargs) as conn:
        dom = lookup.lookup(conn, vm_)
        phase = creation.of_domain(dom)
        used = (
            creation.evidence_of_use(dom) if phase is creation_answers.Phase.INTERRUPTED else None
        )
        return {"phase": phase.value, "used": used}


def mark_complete(vm_, **kwargs):
    """
    Mark a guest whose creation was interrupted as complete, and keep it as it is.

    Until then it cannot be started, changed or migrated, and if it was never started, it is removed
    when it is created again. Check the guest first: its disks may be missing or empty, and the
    system in them may lack its host name and its minion key.

    :param vm_: name of the domain
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True; False if its creation was not interrupted

    :raises NotFound: the domain does not exist
    :raises Incomplete: it is being created

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.mark_complete web1
    """
    with _admission().guest("virt.mark_complete", vm_), _connect(kwargs) as conn:
        dom = lookup.lookup(conn, vm_)
        if creation.of_domain(dom) is not creation_answers.Phase.INTERRUPTED:
            creation.require_complete(dom, "mark")
            return False
        creation.complete(dom)
        return True


def remove_made(vm_, test=False, unused=(), **kwargs):
    """
    Remove disks that an interrupted operation created for a guest and did not attach.

    Only disks that are proven to be created by it and unused are removed. Disks that other hosts
    may have are kept: ``salt-run virt.repair`` queries the other hosts. All other disks are
    reported and kept.

    :param vm_: name of the guest, which need not exist any more
    :param test: only show what would be deleted
    :param unused: paths on shared storage that no other host uses, as the caller has verified; the
        runner asks all other hosts
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True, if nothing is left; with ``test`` a dictionary: ``delete`` (paths), ``keep``
        (path to the reason) and, if there are any, ``shared`` (files to ask other hosts about)

    :raises OperationFailed: something is kept; the message has the reasons

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.remove_made web1 test=True
    """
    unused = values.paths(unused, "unused")
    lock_dir = guest_lock.folder(__salt__["config.get"])
    with _connect(kwargs) as conn:
        if values.flag(test, "test"):
            todo = disk_journal.find_leftovers(conn, str(vm_), unused)
            delete = tuple(sorted([*todo.delete, *todo.extra_links]))
            return removal_answer.RemovalPlan(
                delete, todo.keep, sharing.as_data(todo.shared)
            ).to_answer()
        with guest_lock.acquire(lock_dir, "virt.remove_made", vm_):
            plan = disk_journal.remove(conn, str(vm_), unused)
    if plan.keep:
        stay = "; ".join(f"{path} stays: {reason}" for path, reason in plan.keep.items())
        raise errors.OperationFailed(stay)
    return True


def _locked(operation, *names):
    return guest_lock.acquire(
        guest_lock.folder(__salt__["config.get"]), f"virt.{operation}", *names
    )


def list_snapshots(domain=None, **kwargs):
    """
    List the snapshots of one guest, or of all guests.

    :param domain: name of the guest; None: all guests
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary of guest names to lists of dictionaries, or ``N/A`` if there are no
        snapshots: ``name``, ``created`` (local time), ``running`` (the guest was running, and its
        memory is included), ``current``, ``state`` (``running``, ``shutoff``, ``disk-snapshot`` and
        others), ``parent``, ``description``, ``external`` (in files of its own). A guest that
        cannot be read has a dictionary with ``error``.

    :raises NotFound: the guest does not exist

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.list_snapshots
        salt 'hyper1' virt.list_snapshots web1
    """
    with _connect(kwargs) as conn:
        return snapshots.listing(conn, domain)


def snapshot(
    domain,
    name=None,
    suffix=None,
    description=None,
    disk_only=None,
    quiesce=False,
    test=False,
    **kwargs,
):
    """
    Take a snapshot of a guest.

    An internal snapshot is stored in the guest's disks, which must be qcow2, and includes the
    memory of a running guest, which is paused while its memory is written. An external snapshot
    includes only the disks: each disk file is left unchanged, and the guest continues in a new
    overlay on top of it. A guest with UEFI firmware, a raw disk or a disk on a block device can
    only have external snapshots. A guest cannot have snapshots of both kinds, and cannot migrate
    live while it has any.

    Firmware variables and the state of an emulated TPM are saved on this host and restored by
    :func:`revert_snapshot`; if this is not possible, ``notes`` says so.

    :param domain: name of the guest
    :param name: name of the snapshot; default: the guest's name with date and time
    :param suffix: suffix of the name, appended with a dash
    :param description: description of the snapshot
    :param disk_only: True: an external snapshot; False: an internal one; default: depends on the
        guest
    :param quiesce: have the guest agent freeze the file systems first; the snapshot is external
    :param test: show what would be done; change nothing
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary with the snapshot's ``name``, and ``notes`` (sentences), if there are any,
        for example about data that is not saved with it

    :raises NotFound: the guest does not exist
    :raises InvalidInput: the name is that of the guest, or QEMU could not find it again
    :raises AlreadyExists: a snapshot of this name exists
    :raises Refused: the guest has snapshots of the other kind, or there is not enough disk space
    :raises Unsupported: the guest cannot have a snapshot of that kind

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' virt.snapshot web1
        salt 'hyper1' virt.snapshot web1 name=before-upgrade disk_only=True
    """
    if disk_only is not None:
        disk_only = values.boolean(disk_only, "disk_only")
    quiesce = values.boolean(quiesce, "quiesce")
    images_dir = admission.AdmissionConfig.configured(__salt__["config.get"]).images_dir
    request = snapshots.SnapshotRequest(name, suffix, description, disk_only, quiesce, images_dir)
    if values.boolean(test or False, "test"):
        with _connect(kwargs) as conn:
            result = snapshots.plan_create(conn, domain, request)
    else:
        with _locked("snapshot", domain), _connect(kwargs) as conn:
            result = snapshots.create(conn, domain, request)
    return snapshot_answer.SnapshotTaken(result.name, result.notes).to_answer()


def delete_snapshots(name, *names, **kwargs):
    """
    Delete snapshots of a guest. The guest and its disks are not changed. libvirt can delete some
    snapshots only in a certain order, or only while the guest is off or running: this order is
    used; if it is impossible, nothing is deleted, and the error says what to do first.

    :param name: name of the guest
    :param names: names of the snapshots; if one is unknown, none is deleted
    :param all: True: delete all snapshots of the guest
    :param children: True: also delete the snapshots based on them
    :param test: show what would be done; change nothing
    :param unused: files on shared storage that no other host uses, as the caller has verified;
        ``salt-run virt.delete_snapshots`` verifies it
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary: ``deleted`` (name to description) and ``available`` (remaining snapshots,
        as in :func:`list_snapshots`); with ``test`` ``deleted``, and, if there are any, ``shared``,
        files to ask other hosts about, and ``guest_disks``, the guest's other disks, by path

    :raises NotFound: the guest or snapshot does not exist
    :raises InvalidInput: neither names nor ``all`` are given
    :raises Refused: another guest, or possibly another host, needs a file that would be merged; or
        another snapshot has to be deleted too, or the guest has to be stopped or started first

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' virt.delete_snapshots web1 before-upgrade
        salt 'hyper1' virt.delete_snapshots web1 all=True
    """
    everything = values.boolean(kwargs.pop("all", False), "all")
    children = values.boolean(kwargs.pop("children", False), "children")
    test = values.boolean(kwargs.pop("test", False) or False, "test")
    unused = kwargs.pop("unused", ())
    names = (*names, *kwargs.pop("names", ()))
    if test:
        with _connect(kwargs) as conn:
            deletable, stake = snapshots.plan_delete(conn, name, names, everything, children)
        return snapshot_answer.SnapshotsDeleted(
            deleted=deletable, **_file_identities(stake)
        ).to_answer()
    with _locked("delete_snapshots", name), _connect(kwargs) as conn:
        return snapshots.delete(conn, name, names, everything, children, unused)


def _file_identities(stake):
    guest_disks = stake.own_files if stake.shared else {}
    return {"shared": sharing.as_data(stake.shared), "guest_disks": sharing.as_data(guest_disks)}


def revert_snapshot(name, vm_snapshot=None, cleanup=False, test=False, unused=(), **kwargs):
    """
    Revert a guest to a snapshot. Later changes are lost.

    After a revert to an external snapshot, the guest is off. If other snapshots would be lost or
    corrupted, such as those on top of an external one, ``cleanup`` is required.

    :param name: name of the guest
    :param vm_snapshot: name of the snapshot; default: the one before the current one
    :param cleanup: True: delete all newer snapshots
    :param test: show what would be done; change nothing
    :param unused: files on shared storage that no other host uses, as the caller has verified;
        ``salt-run virt.revert`` verifies it
    :param overcommit: start a guest that is off with the memory of a snapshot even if the host does
        not have enough free memory or CPUs; default: ``virt:overcommit``, else False
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary: ``reverted`` (the name) and ``deleted`` (a list of names; ``N/A`` without
        ``cleanup``); ``notes`` (sentences) if something could not be restored; with ``test`` also,
        if there are any, ``shared``, files to ask other hosts about, and ``guest_disks``, the
        guest's other disks, by path

    :raises NotFound: the guest or snapshot does not exist, or there is none before the current one
    :raises NoRoom: the guest would be started, and the host does not have enough free memory or
        CPUs
    :raises InvalidInput: other snapshots would be lost, or another program has a checkpoint of the
        guest
    :raises Refused: another guest, or possibly another host, needs an overlay or disk that would be
        lost; or the snapshot cannot be restored completely, because the guest no longer has one of
        its disks

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' virt.revert_snapshot web1
        salt 'hyper1' virt.revert_snapshot web1 before-upgrade cleanup=True
    """
    places, cleanup = {}, values.boolean(cleanup, "cleanup")
    config = admission.config_of(__salt__["config.get"], kwargs)
    if values.boolean(test or False, "test"):
        with _connect(kwargs) as conn:
            outcome, stake = snapshots.plan_revert(conn, name, vm_snapshot, cleanup, config)
        places = _file_identities(stake)
    else:
        with _locked("revert_snapshot", name), _connect(kwargs) as conn:
            outcome = snapshots.revert(conn, name, vm_snapshot, cleanup, unused, config)
    deleted = outcome.deleted if cleanup else snapshots.NONE
    return snapshot_answer.SnapshotReverted(
        reverted=outcome.name, deleted=deleted, notes=outcome.notes, **places
    ).to_answer()
