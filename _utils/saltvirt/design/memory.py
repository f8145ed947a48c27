"""The guest's memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.design.put import is_given, put, replace
from saltvirt.errors import InvalidInput
from saltvirt.spec.devices import NONE
from saltvirt.spec.memory import MemorySpec
from saltvirt.units import human_bytes
from saltvirt.xml.domain.memory_backing import HugePage

if TYPE_CHECKING:
    from saltvirt.design.context import Context
    from saltvirt.spec.guest_spec import GuestSpec
    from saltvirt.spec.memory import PageSpec
    from saltvirt.xml.domain.domain import Domain
    from saltvirt.xml.domain.memory_backing import MemoryBacking


def agree(spec: GuestSpec, domain: Domain) -> None:
    """Make memory, NUMA cells and balloon consistent, as libvirt requires.

    spec: GuestSpec; without any of them, nothing is changed. Raises InvalidInput if the requested
    memory differs from that of the requested cells.
    """
    if spec.memory == MemorySpec() and spec.cpu.numa is None and spec.memballoon is None:
        return
    cells = sum(cell.memory_kib or 0 for cell in domain.cpu.cells)
    total = cells + _modules(domain) if cells else 0
    if total and total != domain.memory_kib:
        if is_given(spec.memory.boot_kib) and spec.memory.boot_kib != cells:
            raise InvalidInput(
                f"mem {human_bytes(spec.memory.boot_kib * 1024)} is not what cpu:numa makes: "
                f"{human_bytes(total * 1024)}"
            )
        now = domain.current_memory_kib
        follows = now is None or now == domain.memory_kib
        domain.memory_kib = total
        if follows or (now or 0) > total:
            domain.current_memory_kib = total
    if domain.memballoon.model == NONE and domain.memory_kib:
        domain.current_memory_kib = domain.memory_kib


def _modules(domain: Domain) -> int:
    """The memory of memory modules and virtio devices, which libvirt includes in the guest's
    memory."""
    module_count = [item for item in domain.memory_devices if item.model != "sgx-epc"]
    return sum(item.size_kib or 0 for item in module_count)


def apply(spec: MemorySpec, domain: Domain, context: Context) -> None:
    """Apply a MemorySpec to a domain. An empty spec changes nothing."""
    del context
    if spec == MemorySpec():
        return
    follows = domain.current_memory_kib in (None, domain.memory_kib)
    put(domain, spec)
    is_ballooned = (
        not follows
        and spec.current_kib is None
        and (domain.current_memory_kib or 0) <= (domain.memory_kib or 0)
    )
    if is_given(spec.boot_kib) and not is_given(spec.current_kib) and not is_ballooned:
        # the balloon follows, unless it was set to its own value that is still valid
        domain.current_memory_kib = spec.boot_kib
    put(domain.memtune, spec)
    put(domain.memory_backing, spec)
    _hugepages(spec.hugepages, domain.memory_backing)


def _hugepages(spec: list[PageSpec] | None, backing: MemoryBacking) -> None:
    if spec is None:
        return
    if not spec:
        backing.pages = []
        backing.hugepages = None
        return
    pages = [
        HugePage(size=page.size_kib, unit="KiB", nodeset=page.nodeset)
        for page in spec
        if page.size_kib
    ]
    replace(backing, "pages", pages)
    backing.hugepages = True
