"""
Show the resources and capabilities of the hypervisor.

Every function that uses libvirt accepts ``connection``, ``username`` and ``password``; the defaults
are ``virt:connection:uri`` and ``virt:connection:auth``.

:depends: libvirt-python in Salt's own Python
"""

import collections
import os
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt import errors, settings, version
    from saltvirt.host import connection
    from saltvirt.host.capabilities import query
    from saltvirt.host.node import detect, devices, info
    from saltvirt.spec import base, profiles

if TYPE_CHECKING:
    from salt_dunders import __grains__, __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def _connect(kwargs):
    return connection.connect(settings.connection(__salt__["config.get"], kwargs))


def node_info(**kwargs):
    """
    Show CPU and memory of the host.

    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary: ``cpumodel`` (the architecture), ``cpus`` (online threads), ``cpumhz``,
        ``phymemory`` (MiB), ``numanodes``, ``sockets`` (of a node), ``cpucores`` (of a socket),
        ``cputhreads`` (of a core)

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.node_info
    """
    with _connect(kwargs) as conn:
        return info.node(conn)


def freemem(**kwargs):
    """
    Show the memory of the host that is not allocated to running guests.

    256 MiB are reserved for the host itself. Guests that are off are not counted.

    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: MiB, as int; negative if memory is overcommitted

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.freemem
    """
    with _connect(kwargs) as conn:
        return info.free_memory_mib(conn)


def freecpu(**kwargs):
    """
    Show the number of the host's CPUs minus the vCPUs of running guests.

    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a number, as int; negative if CPUs are overcommitted

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.freecpu
    """
    with _connect(kwargs) as conn:
        return info.free_cpus(conn)


def node_devices(**kwargs):
    """
    List the host devices that can be assigned to guests, and the network cards.

    PCI bridges, USB hubs and virtual interfaces (bridges, taps) are not listed.

    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a list of dictionaries. PCI and USB devices: ``caps``, ``name`` (libvirt's),
        ``vendor_id``, ``product_id``, ``vendor`` and ``product`` if known, ``address``
        (``0000:00:1f.2``, or ``001:003`` for bus and device), ``PCI class``, ``virtual functions``,
        ``physical function``. Network cards: ``caps``, ``name``, ``address`` (MAC), ``device name``
        (of the PCI device), ``state``. A device that cannot be read: ``name`` and ``error``.

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.node_devices
    """
    with _connect(kwargs) as conn:
        return devices.devices(conn)


def virt_type():
    """
    Show what kind of machine this is, from Salt's grain ``virtual``: ``physical``, ``kvm`` and
    others.

    :return: a string

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.virt_type
    """
    return __grains__["virtual"]


def get_hypervisor():
    """
    Show which kind of hypervisor this machine is.

    Only files are read: libvirt's daemon (monolithic or modular) must run or have an active socket,
    and a hypervisor must be available to it.

    :return: ``kvm``, ``xen``, ``bhyve``, ``lxc``, or ``qemu`` if there is no /dev/kvm; None if it
        is not a hypervisor

    CLI Example:

    .. code-block:: bash

        salt '*' virt.get_hypervisor
    """
    return detect.detect(os.uname().machine)["type"]


def is_hyper():
    """
    Check whether this machine is a hypervisor.

    :return: True or False

    CLI Example:

    .. code-block:: bash

        salt '*' virt.is_hyper
    """
    return detect.detect(os.uname().machine)["hypervisor"]


def capabilities(**kwargs):
    """
    Show the host's capabilities: CPU, memory, security, and which guests it can run.

    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary: ``host`` (``uuid``, ``cpu``, ``power_management``, ``migration``,
        ``topology``, ``cache``, ``security``) and ``guests``, a list of ``os_type``, ``arch``
        (``name``, ``wordsize``, ``emulator``, ``machines``, ``domains``) and ``features``. See
        https://libvirt.org/formatcaps.html

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.capabilities
    """
    with _connect(kwargs) as conn:
        return query.host(conn)


def domain_capabilities(emulator=None, arch=None, machine=None, domain=None, **kwargs):
    """
    Show the capabilities for a kind of guest: CPU models, devices, firmware.

    By default, libvirt selects the values; they are those of :func:`capabilities`.

    :param emulator: path of the emulator
    :param arch: CPU architecture, for example ``x86_64``
    :param machine: machine type, for example ``q35``
    :param domain: domain type, for example ``kvm`` or ``qemu``
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary: ``emulator``, ``domain``, ``machine``, ``arch``, ``max_vcpus``,
        ``iothreads``, ``os``, ``cpu``, ``devices``, ``features``. See
        https://libvirt.org/formatdomaincaps.html

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.domain_capabilities arch=x86_64 domain=kvm
    """
    with _connect(kwargs) as conn:
        return query.domain(conn, emulator, arch, machine, domain)


def all_capabilities(**kwargs):
    """
    Show :func:`capabilities`, and :func:`domain_capabilities` of each kind of guest.

    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary: ``host`` and ``domains``, a list. If libvirt cannot report a kind, it has
        an ``error`` with its ``emulator``, ``arch`` and ``domain``.

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.all_capabilities
    """
    with _connect(kwargs) as conn:
        return query.everything(conn)


def cpu_baseline(full=False, migratable=False, out="libvirt", **kwargs):
    """
    Compute the best CPU definition for guests of this host.

    :param full: list all CPU features, not only those in addition to the closest model
    :param migratable: exclude features that prevent migration
    :param out: ``libvirt``: XML for a guest; ``salt``: a dictionary
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: XML text, or a dictionary with ``model``, ``vendor`` and ``features`` (names)

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.cpu_baseline migratable=True out=salt
    """
    if out not in ("libvirt", "salt"):
        raise errors.InvalidInput(f"out must be libvirt or salt, not {out!r}")
    with _connect(kwargs) as conn:
        cpu = query.cpu_baseline(conn, full, migratable)
    if out == "libvirt":
        return ElementTree.tostring(cpu, encoding="unicode")
    return {
        "model": cpu.findtext("model"),
        "vendor": cpu.findtext("vendor"),
        "features": [feature.get("name") for feature in cpu.findall("feature")],
    }


def get_profiles(hypervisor=None, **kwargs):
    """
    Show the disk and NIC profiles for guests of this host, with defaults.

    They are configured as ``virt:disk`` and ``virt:nic`` (minion, master or pillar). ``default``
    always exists.

    :param hypervisor: domain type, for example ``kvm`` or ``xen``; default: the host's, preferably
        KVM
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary: ``disk`` and ``nic``, each a dictionary of profile names to lists of
        devices

    :raises Unsupported: libvirt cannot run guests on this host

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.get_profiles
        salt 'hyper*' virt.get_profiles hypervisor=xen
    """
    with _connect(kwargs) as conn:
        hypervisor = hypervisor or query.preferred_type(conn)
    return profiles.show(profiles.read(__salt__["config.get"]), hypervisor)


def versions():
    """
    Show the versions of Salt Virt, Salt, Python and libvirt on this host.

    libvirt's daemon is not queried, so it may be down.

    :return: a dictionary: ``salt_virt``, ``way`` (``sync`` or ``pip``: how it was installed),
        ``digest`` (12 hexadecimal digits over the library's files, independent of how it was
        installed), ``path`` (folder that it is imported from), ``salt``, ``python``, ``libvirt``
        (of the library; None without the Python binding)

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.versions
    """
    return version.versions(connection.library_version()).to_answer()


def nesthash(value=None):
    """
    Return a dictionary that creates nested dictionaries for missing keys.

    For templates and other modules that build nested data.

    :param value: initial dictionary

    :return: the dictionary

    CLI Example:

    .. code-block:: bash

        salt-call virt.nesthash "{a: 1}"
    """
    return collections.defaultdict(nesthash, base.mapping(value or {}, "value"))
