"""The resources that a guest's definition takes from a host and requires of it, for placement."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from saltvirt.answers.creation import Phase
from saltvirt.host.connection import libvirt
from saltvirt.host.domain import creation
from saltvirt.host.domain.metadata import of_tree
from saltvirt.placement import facts

# the CPU mode that names a model which the host must support
_NAMED = "custom"


def definitions(dom: libvirt.virDomain, active: bool) -> list[Element]:
    """Return the parsed definitions of a domain: for its next start and, if it runs, as it runs
    now."""
    flags = [libvirt.VIR_DOMAIN_XML_INACTIVE, *([0] if active else [])]
    return [ElementTree.fromstring(dom.XMLDesc(flag)) for flag in flags]


def read(name: str, trees: list[Element]) -> facts.Guest:
    """Return the placement facts of the guest, without its state.

    trees: its definition for the next start and, if it runs, as it runs now. Both count; of two
    numbers the larger one does.
    """
    first = trees[0]
    kind = first.find("os/type")
    record = of_tree(first)
    phase = creation.of_record(record)
    options = {entry.key: entry.value for entry in record.entries} if record else {}
    return facts.Guest(
        name=name,
        vcpus=max(int(tree.findtext("vcpu") or 1) for tree in trees),
        memory_kib=max(int(tree.findtext("memory") or 0) for tree in trees),
        max_memory_kib=max(int(tree.findtext("maxMemory") or 0) for tree in trees),
        page_kib=next((page for page in map(page_kib, trees) if page is not None), None),
        creating=phase is not Phase.COMPLETE,
        interrupted=phase is Phase.INTERRUPTED,
        type=first.get("type"),
        arch=kind.get("arch") if kind is not None else None,
        cpu_model=_cpu_model(first),
        bridges=frozenset(name for tree in trees for name in _plugged(tree, "bridge")),
        networks=frozenset(name for tree in trees for name in _plugged(tree, "network")),
        # the options with which the runner created the guest are stored in its record
        groups=tuple((options.get("groups") or "").split()),
        deployment=options.get("deployment"),
        group_policy=options.get("group_policy") or None,
        labels=_mapping(options.get("labels")),
        prefer=_mapping(options.get("prefer")),
        backup=options.get("backup") or None,
    )


def page_kib(tree: Element) -> int | None:
    """Return the size of the guest's huge pages: 0 for the host's default size, None without huge
    pages."""
    pages = tree.find("memoryBacking/hugepages")
    if pages is None:
        return None
    page = pages.find("page")
    return _kib(page.get("size"), page.get("unit")) if page is not None else 0


def _kib(size: str | None, unit: str | None) -> int:
    """Convert a size to KiB. libvirt writes KiB, but a definition that libvirt has not rewritten
    may have another unit."""
    factor = {"k": 1, "m": 1024, "g": 1024**2}.get((unit or "KiB")[:1].lower(), 1)
    return int(size or 0) * factor


def _cpu_model(tree: Element) -> str | None:
    cpu = tree.find("cpu")
    if cpu is None or cpu.get("mode", _NAMED) != _NAMED:
        return None
    return (cpu.findtext("model") or "").strip() or None


def _plugged(tree: Element, kind: str) -> Iterator[str]:
    for source in tree.iterfind(f"devices/interface[@type='{kind}']/source"):
        name = source.get(kind)
        if name:
            yield name


def _mapping(text: str | None) -> dict[str, Any]:
    """Return a mapping that was stored as JSON; an empty one if the text is something else."""
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
