"""
Guests as they shall be, as states.

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

With ``test=True`` each says what it would change, and changes nothing. A guest that runs is
never restarted: what cannot be changed on it comes with its next start, and the comment says
what that is.
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
    # an image is looked up where the SLS came from
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
    A guest that is defined on this host: made when it is not there, else brought to what is given.

    The parameters are those of ``virt.init`` and ``virt.update``. What is not given stays as it
    is. A guest that is made is not started; one that is there keeps running, or not.

    :param name: of the guest
    :param cpu: number of virtual CPUs, or a dictionary
    :param mem: memory in MiB, a size such as ``2GiB``, or a dictionary
    :param vm_type: ``kvm``, ``qemu``, ``xen``…; only for a new guest
    :param disk_profile: disk profile (``virt:disk``) that the disks follow
    :param disks: list of disks, laid over the profile's by ``name``, by which a disk is known from
        then on. Without profile and list a new guest gets the profile ``default``; the disks of an
        existing one stay
    :param nic_profile: interface profile (``virt:nic``) that the interfaces follow
    :param interfaces: list of interfaces, likewise known by their ``name``. Interfaces that are in
        neither list nor profile go
    :param graphics: the display; ``type: none`` removes it
    :param seed: put the minion's configuration and keys into a new disk made from an image
    :param install: install a minion in an image that has none
    :param pub_key: PEM of the guest's public key; default: a new pair is made here
    :param priv_key: PEM of the private key that belongs to it
    :param connection: libvirt URI, overriding ``virt:connection:uri``
    :param username: to connect with, overriding ``virt:connection:auth:username``
    :param password: to connect with, overriding ``virt:connection:auth:password``
    :param os_type: ``hvm``, ``xen``…; only for a new guest
    :param arch: only for a new guest
    :param boot: dictionary: ``kernel``, ``initrd``, ``cmdline``; ``efi``, or ``loader`` and
        ``nvram``
    :param numatune: dictionary: ``memory`` and ``memnodes``
    :param boot_dev: devices to boot from, in order: ``network hd``
    :param hypervisor_features: dictionary, e.g. ``kvm-hint-dedicated: True``
    :param clock: dictionary: ``utc``, ``timezone``, ``adjustment``, ``timers``
    :param serials: all the serial ports that there shall be
    :param consoles: all the consoles that there shall be
    :param stop_on_reboot: True: stop where the guest would reboot; False: reboot; not given: as it
        is
    :param live: False: what changes waits for the guest's next start
    :param host_devices: all the host's devices that it shall have
    :param autostart: whether it starts with the host; not given: as it is. (With Salt 3007 every
        apply without it switched it off.)
    :param update: False: a guest that exists is not changed
    :param detach: which disks leave the guest; their data is never deleted. A list of names or
        targets: those. True: all that are not listed, but never the one that the guest boots from.
        Without it they stay, and a change that would replace one is refused
    :param image: what the first disk of a new guest is made from; also ``image_hash``,
        ``overlay``, ``config``, ``grains``, ``autosign_grains``, ``startup_states``,
        ``user_data``, ``seed_cmd``, ``approve_key``, as for ``virt.init``
    :param on_crash: ``destroy``, ``restart``, ``preserve``, ``coredump-destroy``…; also
        ``on_poweroff`` and ``on_reboot``
    :param tpm: True, or a dictionary: ``version``, ``model``
    :param metadata: dictionary of words of your own, kept with the guest; ``null`` takes one away
    :param title: a line about the guest; also ``description``

    :return: ``changes``: the guest's name to ``definition``: True for a new guest, with the paths
        of its ``disks``; else each setting that differs, with ``old``, ``new`` and ``live``
        (whether a running guest gets it at once)

    Also taken: ``machine``, ``rng``, ``watchdog``, ``memballoon``, ``guest_agent``, ``pcie_ports``,
    ``kvm_hidden``, ``enable_vnc``, ``serial_type``. What is not given stays as it is; ``null``
    inside of a dictionary takes that setting away. Any other word is an error.

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
    A guest that runs on this host: made when it is not there, else brought to what is given; and
    started.

    The parameters are those of :func:`defined`, and all that is said there holds. A new guest is
    made and started in one, as by ``virt.init``: when a step fails, nothing is left. A paused or
    sleeping guest runs on.

    :return: what ``virt.defined`` returns, and ``started`` or ``resumed``: True

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
    No such guest on this host.

    One that runs has its power pulled. The disks that were made for it go with it, and its saved
    memory, snapshots and NVRAM. All other disks stay, and the comment names them: given ones,
    those of another guest, media, and all disks of a domain that ``virt.init`` did not make.

    :param name: of the guest; no pattern
    :param connection: libvirt URI, overriding ``virt:connection:uri``
    :param username: to connect with, overriding ``virt:connection:auth:username``
    :param password: to connect with, overriding ``virt:connection:auth:password``
    :param disks: False: all its disks stay

    :return: ``changes``: the guest's name to ``undefined: True`` and ``deleted``, the disks' paths

    .. code-block:: yaml

        web1:
          virt.absent

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' state.single virt.absent web1
    """
    return result.run("virt.absent", locals(), __salt__, __opts__["test"], guests.absent)
