"""
The hypervisor itself: what it has, what it can do, what its guests leave of it.

Every function that asks libvirt takes ``connection``, ``username`` and ``password``;
what is not given comes from ``virt:connection:uri`` and ``virt:connection:auth``.

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
    CPU and memory of the host.

    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict: ``cpumodel`` (the architecture), ``cpus`` (threads that are online),
        ``cpumhz``, ``phymemory`` (MiB), ``numanodes``, ``sockets`` (in a node), ``cpucores``
        (in a socket), ``cputhreads`` (in a core)

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.node_info
    """
    with _connect(kwargs) as conn:
        return info.node(conn)


def freemem(**kwargs):
    """
    Memory of the host that no running guest holds.

    256 MiB are kept for the host itself. Guests that are shut off hold nothing.

    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: MiB, as int; below zero when more was given than is there

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.freemem
    """
    with _connect(kwargs) as conn:
        return info.free_memory_mib(conn)


def freecpu(**kwargs):
    """
    CPUs of the host less the vCPUs of running guests.

    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a number, as int; below zero when more was given than is there

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.freecpu
    """
    with _connect(kwargs) as conn:
        return info.free_cpus(conn)


def node_devices(**kwargs):
    """
    Devices of the host that a guest can be given, and its network cards.

    PCI bridges, USB hubs and interfaces without hardware (bridges, taps) are left out.

    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a list of dicts. PCI and USB devices: ``caps``, ``name`` (libvirt's),
        ``vendor_id``, ``product_id``, ``vendor`` and ``product`` where known, ``address``
        (``0000:00:1f.2``, or ``001:003`` for bus and device), ``PCI class``, ``virtual
        functions``, ``physical function``. Network cards: ``caps``, ``name``, ``address``
        (MAC), ``device name`` (of the PCI device), ``state``. A device that cannot be read:
        ``name`` and ``error``.

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.node_devices
    """
    with _connect(kwargs) as conn:
        return devices.devices(conn)


def virt_type():
    """
    What this machine itself is, by Salt's grain ``virtual``: ``physical``, ``kvm``, …

    :return: a string

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.virt_type
    """
    return __grains__["virtual"]


def get_hypervisor():
    """
    The kind of hypervisor that this machine is.

    Read from files alone: libvirt's daemon (one for all, or one for each hypervisor)
    must run or wait on its socket, and there must be something for it to run.

    :return: ``kvm``, ``xen``, ``bhyve``, ``lxc``, or ``qemu`` where QEMU has no /dev/kvm;
        None when it is no hypervisor

    CLI Example:

    .. code-block:: bash

        salt '*' virt.get_hypervisor
    """
    return detect.detect(os.uname().machine)["type"]


def is_hyper():
    """
    Is this machine a hypervisor of any kind?

    :return: True or False

    CLI Example:

    .. code-block:: bash

        salt '*' virt.is_hyper
    """
    return detect.detect(os.uname().machine)["hypervisor"]


def capabilities(**kwargs):
    """
    What the host's CPU, memory and security are, and which guests it can run.

    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict: ``host`` (``uuid``, ``cpu``, ``power_management``, ``migration``,
        ``topology``, ``cache``, ``security``) and ``guests``, a list of ``os_type``,
        ``arch`` (``name``, ``wordsize``, ``emulator``, ``machines``, ``domains``) and
        ``features``. See https://libvirt.org/formatcaps.html

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.capabilities
    """
    with _connect(kwargs) as conn:
        return query.host(conn)


def domain_capabilities(emulator=None, arch=None, machine=None, domain=None, **kwargs):
    """
    What a guest of one kind can have here: CPU models, devices, firmware.

    What is not given, libvirt chooses; the values are those of :func:`capabilities`.

    :param emulator: path of the emulator
    :param arch: CPU architecture, e.g. ``x86_64``
    :param machine: machine type, e.g. ``q35``
    :param domain: domain type, e.g. ``kvm`` or ``qemu``
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict: ``emulator``, ``domain``, ``machine``, ``arch``, ``max_vcpus``,
        ``iothreads``, ``os``, ``cpu``, ``devices``, ``features``.
        See https://libvirt.org/formatdomaincaps.html

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.domain_capabilities arch=x86_64 domain=kvm
    """
    with _connect(kwargs) as conn:
        return query.domain(conn, emulator, arch, machine, domain)


def all_capabilities(**kwargs):
    """
    :func:`capabilities`, and :func:`domain_capabilities` of each kind of guest, in one call.

    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict: ``host`` and ``domains``, a list. A kind that libvirt cannot answer for
        has an ``error`` beside its ``emulator``, ``arch`` and ``domain``; the rest is there.

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.all_capabilities
    """
    with _connect(kwargs) as conn:
        return query.everything(conn)


def cpu_baseline(full=False, migratable=False, out="libvirt", **kwargs):
    """
    The best CPU definition for guests of this host.

    :param full: list every CPU feature, not only those on top of the nearest model
    :param migratable: leave out features that a guest cannot be migrated with
    :param out: ``libvirt`` for XML to use in a guest, ``salt`` for a dict
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a string of XML, or a dict with ``model``, ``vendor`` and ``features`` (names)

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
    The disk and nic profiles that a guest can be made with here, defaults filled in.

    They come from ``virt:disk`` and ``virt:nic`` of the configuration (minion, master or
    pillar), and ``default`` is always there.

    :param hypervisor: domain type to show them for, e.g. ``kvm`` or ``xen``; default the
        host's own, KVM before others
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict: ``disk`` and ``nic``, each a dict of profile name to a list of devices

    :raises Unsupported: libvirt can run no guest here

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
    Which Salt Virt, Salt, Python and libvirt are used here.

    libvirt's daemon is not asked: it may be down.

    :return: a dict: ``salt_virt``, ``way`` (``sync`` or ``pip``: how it came here), ``digest``
        (12 hexadecimal digits of the library's files, the same for the same files by either way),
        ``path`` (the folder that it is imported from), ``salt``, ``python``, ``libvirt`` (of the
        library; None without the Python binding)

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.versions
    """
    return version.versions(connection.library_version()).to_answer()


def nesthash(value=None):
    """
    A dictionary that makes dictionaries of its own kind for keys it does not have.

    For templates and other modules, which fill in nested data with it.

    :param value: a dict to begin with

    :return: the dict

    CLI Example:

    .. code-block:: bash

        salt-call virt.nesthash "{a: 1}"
    """
    return collections.defaultdict(nesthash, base.mapping(value or {}, "value"))
