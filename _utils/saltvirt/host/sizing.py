"""How much memory and how many CPUs an existing domain has."""

from saltvirt import errors
from saltvirt.host import connection
from saltvirt.host.connection import libvirt


def _apply(dom, change, value, *, maximum, maximum_flag, config):
    """Sets a live value and the stored one, as the domain's state and ``config`` ask."""
    if dom.isActive():
        fits = value <= maximum
        if not fits and not config:
            raise errors.Unsupported(
                f"{dom.name()} was started with a maximum of {maximum}, less than {value}: stop "
                "it first, or give config=True to have the change at its next start"
            )
        if fits:
            change(value, libvirt.VIR_DOMAIN_AFFECT_LIVE)
        if not config:
            return
    stored = libvirt.VIR_DOMAIN_AFFECT_CONFIG
    change(value, stored | maximum_flag)
    change(value, stored)


def set_memory(dom, memory_kib, config=False):
    """Gives the domain this much memory, in KiB.

    A stopped one gets it as maximum and current amount. A running one gets it through its
    balloon, up to its maximum; with ``config`` also (or, above the maximum, only) from
    its next start on.
    """
    with connection.translated(f"set the memory of {dom.name()}"):
        flag = libvirt.VIR_DOMAIN_MEM_MAXIMUM
        maximum = dom.info()[1]
        _apply(
            dom, dom.setMemoryFlags, memory_kib, maximum=maximum, maximum_flag=flag, config=config
        )
    return True


def set_vcpus(dom, vcpus, config=False):
    """Gives the domain this many vCPUs; see :func:`set_memory` for when."""
    with connection.translated(f"set the vCPUs of {dom.name()}"):
        flag = libvirt.VIR_DOMAIN_VCPU_MAXIMUM
        maximum = dom.maxVcpus() if dom.isActive() else vcpus
        _apply(dom, dom.setVcpusFlags, vcpus, maximum=maximum, maximum_flag=flag, config=config)
    return True
