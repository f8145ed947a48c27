"""
States for the guests of a hypervisor: their definition, power, snapshots and host.

.. code-block:: yaml

    web1:
      virt.running:
        - cpu: 2
        - mem: 2GiB
        - image: salt://debian.qcow2
        - disks:
          - name: system
            size: 20GiB
        - interfaces:
          - name: eth0
            source: br0

With ``test=True`` each state reports what it would change, and changes nothing. A running guest is
never restarted: settings that cannot be changed live take effect at its next start, and the comment
lists them.

The name of a state of power or snapshots is the name of a guest, or a shell pattern (``web*``) for
all matching guests of this host.
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt.states import deployments, guests, migrations, power, result, snapshots

if TYPE_CHECKING:
    from salt_dunders import __grains__, __opts__, __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def _guest(state, arguments, function):
    # an image is looked up in the environment of the SLS
    arguments["kwargs"].setdefault("saltenv", globals().get("__env__") or "base")
    return result.run(state, arguments, __salt__, __opts__["test"], function, guests.arguments())


def defined(
    name,
    cpu=None,
    mem=None,
    vm_type=None,
    disk_profile=None,
    disks=None,
    nic_profile=None,
    interfaces=None,
    graphics=None,
    seed=True,
    install=True,
    pub_key=None,
    priv_key=None,
    connection=None,
    username=None,
    password=None,
    os_type=None,
    arch=None,
    boot=None,
    numatune=None,
    boot_dev=None,
    hypervisor_features=None,
    clock=None,
    serials=None,
    consoles=None,
    stop_on_reboot=None,
    live=True,
    host_devices=None,
    autostart=None,
    update=True,
    detach=False,
    **kwargs,
):
    """
    Ensure that a guest is defined on this host. A missing guest is created, an existing guest is
    updated.

    The parameters are those of ``virt.init`` and ``virt.update``. Settings that are not given are
    left unchanged. A new guest is not started; an existing guest keeps its power state.

    :param name: name of the guest
    :param cpu: number of virtual CPUs, or a dictionary
    :param mem: memory in MiB, a size such as ``2GiB``, or a dictionary
    :param vm_type: ``kvm``, ``qemu``, ``xen`` and others; only for a new guest
    :param disk_profile: disk profile (``virt:disk``) of the disks
    :param disks: list of disks that override the profile's disks of the same ``name``, which also
        identifies a disk in later updates. Without a profile and a list, a new guest gets the
        profile ``default``; an existing guest keeps its disks
    :param nic_profile: interface profile (``virt:nic``) of the interfaces
    :param interfaces: list of interfaces, likewise identified by their ``name``. Interfaces that
        are neither in the list nor in the profile are removed
    :param graphics: the display; ``type: none`` removes it
    :param seed: write the minion's configuration and keys to a new disk that is created from an
        image
    :param install: install a minion if the image contains none
    :param pub_key: PEM of the guest's public key; by default, the host generates a new key pair
    :param priv_key: PEM of the matching private key
    :param connection: libvirt URI, overriding ``virt:connection:uri``
    :param username: user name, overriding ``virt:connection:auth:username``
    :param password: password, overriding ``virt:connection:auth:password``
    :param os_type: ``hvm``, ``xen`` and others; only for a new guest
    :param arch: only for a new guest
    :param boot: dictionary: ``kernel``, ``initrd``, ``cmdline``; ``efi``, or ``loader`` and
        ``nvram``
    :param numatune: dictionary: ``memory`` and ``memnodes``
    :param boot_dev: devices to boot from, in order: ``network hd``
    :param hypervisor_features: dictionary, e.g. ``kvm-hint-dedicated: True``
    :param clock: dictionary: ``utc``, ``timezone``, ``adjustment``, ``timers``
    :param serials: complete list of serial ports
    :param consoles: complete list of consoles
    :param stop_on_reboot: True: power off instead of rebooting; False: reboot; by default, the
        setting is left unchanged
    :param live: False: all changes take effect at the guest's next start
    :param host_devices: complete list of host devices
    :param autostart: whether the guest starts with the host; by default, the setting is left
        unchanged (Salt 3007 disabled it)
    :param update: False: do not change an existing guest
    :param detach: disks to detach; their data is kept. A list: the disks of these names or targets.
        True: all disks that are not listed, except the boot disk. By default, no disk is detached,
        and a change that would replace a disk is refused
    :param image: image of the first disk of a new guest; also ``image_hash``, ``overlay``,
        ``config``, ``grains``, ``autosign_grains``, ``startup_states``, ``user_data``,
        ``seed_cmd``, ``approve_key``, as for ``virt.init``
    :param on_crash: ``destroy``, ``restart``, ``preserve``, ``coredump-destroy`` and others; also
        ``on_poweroff`` and ``on_reboot``
    :param tpm: True, or a dictionary: ``version``, ``model``
    :param metadata: dictionary of your own values, stored in the guest's definition; ``null``
        removes a value
    :param title: title of the guest; also ``description``

    :return: ``changes``: the guest's name to ``definition``: True for a new guest, with the paths
        of its ``disks``; otherwise each changed setting with ``old``, ``new`` and ``live`` (whether
        a running guest gets it immediately)

    Further parameters: ``os``, ``machine``, ``inputs``, ``rng``, ``watchdog``,
    ``memballoon``, ``guest_agent``, ``pcie_ports``, ``kvm_hidden``, ``enable_vnc``,
    ``serial_type``. ``null`` in a dictionary removes that setting. Any other parameter is an error.

    .. code-block:: yaml

        web1:
          virt.defined:
            - cpu: 2
            - mem: 2GiB
            - on_crash: restart
            - autostart: True

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' state.single virt.defined web1 cpu=2 mem=2GiB test=True
    """
    return _guest("virt.defined", locals(), guests.defined)


def running(
    name,
    cpu=None,
    mem=None,
    vm_type=None,
    disk_profile=None,
    disks=None,
    nic_profile=None,
    interfaces=None,
    graphics=None,
    seed=True,
    install=True,
    pub_key=None,
    priv_key=None,
    connection=None,
    username=None,
    password=None,
    os_type=None,
    arch=None,
    boot=None,
    boot_dev=None,
    numatune=None,
    hypervisor_features=None,
    clock=None,
    serials=None,
    consoles=None,
    stop_on_reboot=None,
    host_devices=None,
    autostart=None,
    update=True,
    live=True,
    detach=False,
    **kwargs,
):
    """
    Ensure that a guest is running on this host. A missing guest is created, an existing guest is
    updated and started.

    The parameters are those of :func:`defined`. A new guest is created and started as by
    ``virt.init``: if a step fails, everything is rolled back. A paused or suspended guest is
    resumed.

    :return: as ``virt.defined``, and ``started`` or ``resumed``: True

    .. code-block:: yaml

        existing guest:
          virt.running:
            - name: web1

        web2:
          virt.running:
            - cpu: 2
            - mem: 2GiB
            - image: salt://debian.qcow2

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' state.single virt.running web1
    """
    return _guest("virt.running", locals(), guests.running)


def absent(name, connection=None, username=None, password=None, disks=True, **kwargs):
    """
    Ensure that a guest does not exist on this host.

    A running guest is powered off. The disks that were created for it, its saved memory, snapshots
    and NVRAM are deleted. All other disks are kept and listed in the comment: existing disks that
    were assigned to it, disks of other guests, removable media, and all disks of a domain that
    ``virt.init`` did not create.

    :param name: name of the guest; not a pattern
    :param connection: libvirt URI, overriding ``virt:connection:uri``
    :param username: user name, overriding ``virt:connection:auth:username``
    :param password: password, overriding ``virt:connection:auth:password``
    :param disks: False: keep all disks

    :return: ``changes``: the guest's name to ``undefined: True`` and ``deleted``, the paths of
        deleted disks

    .. code-block:: yaml

        web1:
          virt.absent

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' state.single virt.absent web1
    """
    return result.run("virt.absent", locals(), __salt__, __opts__["test"], guests.absent)


def stopped(
    name, connection=None, username=None, password=None, timeout=120, force=False, **kwargs
):
    """
    Ensure that guests are off; their operating system is asked to shut down.

    The operating system of each guest is asked to shut down. If a guest is paused or does not
    react, the state fails; without ``force``, it is not powered off.

    :param name: name of a guest, or a pattern
    :param connection: libvirt URI, overriding ``virt:connection:uri``
    :param username: user name, overriding ``virt:connection:auth:username``
    :param password: password, overriding ``virt:connection:auth:password``
    :param timeout: seconds to wait for each guest; 0: only send the request
    :param force: power off guests that are not off after that time

    :return: ``changes``: ``stopped``: a list of ``domain``, ``shutdown: True``

    .. code-block:: yaml

        web1:
          virt.stopped

        all test guests:
          virt.stopped:
            - name: test*
            - timeout: 60
            - force: True

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' state.single virt.stopped web1
    """
    return result.run("virt.stopped", locals(), __salt__, __opts__["test"], power.stopped)


def powered_off(name, connection=None, username=None, password=None, **kwargs):
    """
    Ensure that guests are off, without a shutdown. Data that they have not written is lost.

    :param name: name of a guest, or a pattern
    :param connection: libvirt URI, overriding ``virt:connection:uri``
    :param username: user name, overriding ``virt:connection:auth:username``
    :param password: password, overriding ``virt:connection:auth:password``

    :return: ``changes``: ``unpowered``: a list of ``domain``, ``stop: True``

    .. code-block:: yaml

        web1:
          virt.powered_off

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' state.single virt.powered_off 'test*'
    """
    return result.run("virt.powered_off", locals(), __salt__, __opts__["test"], power.powered_off)


def unpowered(name, connection=None, username=None, password=None, **kwargs):
    """
    Old name of ``virt.powered_off``.

    :param name: name of a guest, or a pattern
    :param connection: libvirt URI, overriding ``virt:connection:uri``
    :param username: user name, overriding ``virt:connection:auth:username``
    :param password: password, overriding ``virt:connection:auth:password``

    :return: as ``virt.powered_off``

    .. code-block:: yaml

        web1:
          virt.unpowered

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' state.single virt.unpowered web1
    """
    return result.run("virt.unpowered", locals(), __salt__, __opts__["test"], power.powered_off)


def rebooted(name, connection=None, username=None, password=None, **kwargs):
    """
    Ask the operating systems of guests to reboot, at every apply.

    Use it with requisites (``onchanges``). A reboot does not apply the pending changes of
    ``virt.defined``: this needs ``virt.stopped`` and then ``virt.running``.

    :param name: name of a guest, or a pattern
    :param connection: libvirt URI, overriding ``virt:connection:uri``
    :param username: user name, overriding ``virt:connection:auth:username``
    :param password: password, overriding ``virt:connection:auth:password``

    :return: ``changes``: ``rebooted``: a list of ``domain``, ``reboot: True``. The state fails for
        a guest that is not running.

    .. code-block:: yaml

        web1:
          virt.rebooted:
            - onchanges:
              - file: /srv/web1/settings

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' state.single virt.rebooted web1
    """
    return result.run("virt.rebooted", locals(), __salt__, __opts__["test"], power.rebooted)


def no_guests(name, **kwargs):
    """
    Check that no guest is running on this host; otherwise the state fails and lists them. It does
    not stop guests: migrate them with ``salt-run virt.evacuate``, or stop them.

    :param name: name of the state; not used otherwise

    :return: ``result``: False if a guest runs; ``changes`` is empty

    CLI Example:

    .. code-block:: bash

        salt hv1 state.single virt.no_guests name=idle
    """
    return result.run("virt.no_guests", locals(), __salt__, __opts__["test"], power.no_guests)


def snapshot(
    name,
    suffix=None,
    connection=None,
    username=None,
    password=None,
    snapshot=None,
    description=None,
    disk_only=None,
    quiesce=False,
    keep=None,
    **kwargs,
):
    """
    Ensure that guests have a snapshot.

    With ``snapshot``, a snapshot of that name is taken unless it exists. Without it, every apply
    takes a snapshot that is named after the guest, the date and the time.

    :param name: name of a guest, or a pattern
    :param suffix: suffix of the snapshot's name, appended with a dash
    :param connection: libvirt URI, overriding ``virt:connection:uri``
    :param username: user name, overriding ``virt:connection:auth:username``
    :param password: password, overriding ``virt:connection:auth:password``
    :param snapshot: name of the snapshot
    :param description: description of the snapshot
    :param disk_only: True: an external snapshot of the disks only; False: an internal snapshot;
        default: depends on the guest, see ``virt.snapshot`` of the execution module
    :param quiesce: have the guest agent freeze the file systems first; the snapshot is external
    :param keep: without ``snapshot``: number of snapshots with this suffix to keep. Older ones are
        deleted when the new one has been taken; if libvirt cannot delete them, the result is False.
        Default: keep all, so every apply needs more disk space

    :return: ``changes``: ``saved``: a list of ``domain``, ``snapshot`` (its name), ``notes`` on
        data that is not saved with it, and ``deleted`` (names of older ones). With ``test=True``
        the name contains ``DATE-TIME``

    .. code-block:: yaml

        web1:
          virt.snapshot:
            - snapshot: before-upgrade

        periodic snapshots:
          virt.snapshot:
            - name: web*
            - suffix: periodic
            - keep: 7

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' state.single virt.snapshot web1 suffix=periodic
    """
    return result.run("virt.snapshot", locals(), __salt__, __opts__["test"], snapshots.taken)


def saved(name, suffix=None, connection=None, username=None, password=None, **kwargs):
    """
    Old name of ``virt.snapshot``.

    :param name: name of a guest, or a pattern
    :param suffix: suffix of the snapshot's name, appended with a dash
    :param connection: libvirt URI, overriding ``virt:connection:uri``
    :param username: user name, overriding ``virt:connection:auth:username``
    :param password: password, overriding ``virt:connection:auth:password``

    :return: as ``virt.snapshot``

    .. code-block:: yaml

        web1:
          virt.saved:
            - suffix: periodic

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' state.single virt.saved web1 suffix=periodic
    """
    return result.run(
        "virt.saved", locals(), __salt__, __opts__["test"], snapshots.taken, snapshots.arguments()
    )


def reverted(
    name, snapshot=None, cleanup=False, connection=None, username=None, password=None, **kwargs
):
    """
    Revert guests to a snapshot, at every apply. Later changes are lost.

    :param name: name of a guest, or a pattern
    :param snapshot: name of the snapshot; default: the one before the current one
    :param cleanup: delete all newer snapshots
    :param connection: libvirt URI, overriding ``virt:connection:uri``
    :param username: user name, overriding ``virt:connection:auth:username``
    :param password: password, overriding ``virt:connection:auth:password``

    :return: ``changes``: ``reverted``: a list of ``domain``, ``current`` (the snapshot),
        ``deleted`` (names; ``N/A`` without ``cleanup``) and ``notes`` on data that could not be
        restored

    .. code-block:: yaml

        web1:
          virt.reverted:
            - snapshot: before-upgrade
            - cleanup: True

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' state.single virt.reverted web1 snapshot=before-upgrade
    """
    return result.run("virt.reverted", locals(), __salt__, __opts__["test"], snapshots.reverted)


def _migrate(state, arguments, function):
    arguments["me"] = __grains__["id"]
    return result.run(
        state, arguments, __salt__, __opts__["test"], function, migrations.arguments()
    )


def migrated(name, target, connection=None, username=None, password=None, **kwargs):
    """
    Ensure that a guest of this host is on another host; it is migrated there, running or not.

    If neither this host nor the other host has the guest, the state fails.

    :param name: name of the guest; not a pattern
    :param target: the other host, or its URI, as for ``virt.migrate``
    :param connection: URI of this host's libvirt, overriding ``virt:connection:uri``
    :param username: user name on the target
    :param password: password on the target
    :param policy: and all other options of ``virt.migrate``: ``max_bandwidth``, ``timeout``,
        ``copy_storage``, ``postcopy`` and so on

    :return: ``changes``: the guest's name to ``host``: ``old`` and ``new``. With ``test=True`` all
        checks of both hosts are performed, and the state fails with their reasons.

    .. code-block:: yaml

        web1:
          virt.migrated:
            - target: hyper2

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' state.single virt.migrated web1 target=hyper2
    """
    return _migrate("virt.migrated", locals(), migrations.migrated)


def on_host(name, target, connection=None, username=None, password=None, **kwargs):
    """
    Ensure that a guest is on a certain host of the cloud. Apply this state to all hypervisors.

    The host that has the guest migrates it to ``target``. On all other hosts there is nothing to
    do. On ``target``, the state fails until the guest has arrived.

    :param name: name of the guest; not a pattern
    :param target: the other host, or its URI, as for ``virt.migrate``
    :param connection: URI of this host's libvirt, overriding ``virt:connection:uri``
    :param username: user name on the target
    :param password: password on the target
    :param policy: and all other options of ``virt.migrate``

    :return: as ``virt.migrated``

    .. code-block:: yaml

        web1:
          virt.on_host:
            - target: hyper2

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' state.single virt.on_host web1 target=hyper2
    """
    return _migrate("virt.on_host", locals(), migrations.on_host)


def deployed(name, guests, defaults=None, remove=False, at_once=4, **kwargs):
    """
    Ensure that the guests of a list exist in the cloud. Missing guests are placed, created and
    started; existing guests are not changed, and the comment lists their differences. For
    ``salt-run state.orchestrate``; see :func:`running` for the guests of a single hypervisor.

    :param name: name of the deployment
    :param guests: dictionary of guest names to dictionaries: ``cpu`` (1), ``mem``, ``image``,
        ``size`` (of the disk ``system`` of the default profile), ``disk`` and ``nic`` (profile
        names), ``groups``, ``group_policy``, ``host``, ``wait``, and all other arguments of
        ``virt.init``. ``ha`` (True, False or a dictionary, as for ``virt.init``) also applies to
        existing guests: high availability is enabled or disabled for them. So does ``backup``, the
        schedule of ``virt.backup_due``: ``{hours: 24, to: vault}``, True, or False for none
    :param defaults: dictionary of default values for all guests
    :param remove: also remove guests that were created for this deployment and are no longer
        listed, with their own disks and keys. An empty list removes nothing.
    :param at_once: maximum number of guests that are created at the same time

    :return: ``changes``: guest to ``old`` and ``new`` host, and changes of ``ha`` and ``backup``.
        With ``test=True`` nothing is created. If a guest fails, the others are created, and
        ``result`` is False.

    .. code-block:: yaml

        shop:
          virt.deployed:
            - defaults:
                image: salt://debian.qcow2
            - guests:
                web1: {cpu: 2, mem: 2GiB, groups: [web], ha: true}
                web2: {cpu: 2, mem: 2GiB, groups: [web]}

    CLI Example:

    .. code-block:: bash

        salt-run state.orchestrate_single fun=virt.deployed name=shop guests='{web1: {mem: 512}}'
    """
    return result.run("virt.deployed", locals(), __salt__, __opts__["test"], deployments.deployed)
