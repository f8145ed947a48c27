"""What the host itself has, and what its running guests leave of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from saltvirt.host.connection import libvirt

# what the host's own system is left, as Salt always reckoned it
RESERVED_MIB = 256


def node(conn: libvirt.virConnect) -> dict[str, Any]:
    """CPU and memory of the host: see ``virt.node_info``."""
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
    """Memory that no running guest holds, in MiB, less what the system keeps."""
    held_kib = sum(memory for memory, _cpus in _running(conn))
    return int(conn.getInfo()[1]) - RESERVED_MIB - held_kib // 1024


def free_cpus(conn: libvirt.virConnect) -> int:
    """CPUs of the host less the vCPUs of running guests; below zero when overcommitted."""
    return int(conn.getInfo()[2]) - sum(cpus for _memory, cpus in _running(conn))


def _running(conn: libvirt.virConnect) -> Iterator[tuple[int, int]]:
    """(memory in KiB, vCPUs) of each running guest; Xen's Domain-0 is the host, no guest."""
    for domain in conn.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE):
        with contextlib.suppress(libvirt.libvirtError):  # stopped since it was listed
            if domain.ID() > 0:
                yield domain.info()[2], domain.info()[3]
