"""Resources of the host, and what its running guests leave free."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from saltvirt.host.connection import libvirt

# memory reserved for the host's system, as in Salt
RESERVED_MIB = 256


def node(conn: libvirt.virConnect) -> dict[str, Any]:
    """Return CPU and memory of the host; see ``virt.node_info``."""
    model, memory, cpus, mhz, nodes, sockets, cores, threads = conn.getInfo()
    return {
        "cpucores": cores,
        "cpumhz": mhz,
        "cpumodel": str(model),
        "cpus": cpus,
        "cputhreads": threads,
        "numanodes": nodes,
        "phymemory": memory,
        "sockets": sockets,
    }


def free_memory_mib(conn: libvirt.virConnect) -> int:
    """Return the memory that is not used by running guests, in MiB, less a reserve for the
    system."""
    held_kib = sum(memory for memory, _cpus in _running(conn))
    return int(conn.getInfo()[1]) - RESERVED_MIB - held_kib // 1024


def free_cpus(conn: libvirt.virConnect) -> int:
    """Return the host's CPUs less the vCPUs of running guests; negative if overcommitted."""
    return int(conn.getInfo()[2]) - sum(cpus for _memory, cpus in _running(conn))


def _running(conn: libvirt.virConnect) -> Iterator[tuple[int, int]]:
    """Yield (memory in KiB, vCPUs) of each running guest, without Xen's Domain-0."""
    for domain in conn.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE):
        with contextlib.suppress(libvirt.libvirtError):  # stopped since the listing
            if domain.ID() > 0:
                yield domain.info()[2], domain.info()[3]
