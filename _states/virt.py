"""
States for the guests of a hypervisor.

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
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt.states import guests, result

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

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

    Further parameters: ``machine``, ``rng``, ``watchdog``, ``memballoon``, ``guest_agent``,
    ``pcie_ports``, ``kvm_hidden``, ``enable_vnc``, ``serial_type``. ``null`` in a dictionary
    removes that setting. Any other parameter is an error.

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

        a guest that is there already:
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
