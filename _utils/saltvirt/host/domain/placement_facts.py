"""What a guest's definition says of what it takes and needs of a host: for placement."""

import json
from xml.etree import ElementTree

from saltvirt.host.connection import libvirt
from saltvirt.host.domain.metadata import of_tree

# a CPU mode that names a model which the host must be able to give
_NAMED = "custom"


def definitions(dom, active):
    """The parsed definitions of a domain: for its next start, and where it runs as it is now."""
    flags = [libvirt.VIR_DOMAIN_XML_INACTIVE, *([0] if active else [])]
    return [ElementTree.fromstring(dom.XMLDesc(flag)) for flag in flags]


def read(trees):
    """The facts of a guest, as plain data; see ``virt.inventory``. What is not set is not there.

    trees: its definition for the next start, and where it runs as it is now: both count, and of
    two numbers the larger one.
    """
    first = trees[0]
    kind = first.find("os/type")
    record = of_tree(first)
    found = {
        "vcpus": max(int(tree.findtext("vcpu") or 1) for tree in trees),
        "memory_kib": max(int(tree.findtext("memory") or 0) for tree in trees),
        "max_memory_kib": max(int(tree.findtext("maxMemory") or 0) for tree in trees),
        "page_kib": next((page for page in map(page_kib, trees) if page is not None), None),
        "creating": bool(record and record.creating),
        "type": first.get("type"),
        "arch": kind.get("arch") if kind is not None else None,
        "cpu_model": _cpu_model(first),
        "bridges": sorted({name for tree in trees for name in _plugged(tree, "bridge")}),
        "networks": sorted({name for tree in trees for name in _plugged(tree, "network")}),
        **_wish(record),
    }
    kept = ("vcpus", "memory_kib", "groups", "deployment")
    page = found.pop("page_kib")  # of which 0 says something
    found = {key: value for key, value in found.items() if value or key in kept}
    return found if page is None else {**found, "page_kib": page}


def page_kib(tree):
    """The size of its huge pages: 0 for the host's usual ones, None without."""
    pages = tree.find("memoryBacking/hugepages")
    if pages is None:
        return None
    page = pages.find("page")
    return _kib(page.get("size"), page.get("unit")) if page is not None else 0


def _kib(size, unit):
    """libvirt writes KiB; a definition that nobody has read back may have another unit."""
    factor = {"k": 1, "m": 1024, "g": 1024**2}.get((unit or "KiB")[:1].lower(), 1)
    return int(size) * factor


def _cpu_model(tree):
    cpu = tree.find("cpu")
    if cpu is None or cpu.get("mode", _NAMED) != _NAMED:
        return None
    return (cpu.findtext("model") or "").strip() or None


def _plugged(tree, kind):
    for source in tree.iterfind(f"devices/interface[@type='{kind}']/source"):
        if source.get(kind):
            yield source.get(kind)


def _wish(record):
    """What the runner was asked for when it made the guest; it is kept with it."""
    entries = {entry.key: entry.value for entry in record.entries} if record else {}
    return {
        "groups": (entries.get("groups") or "").split(),
        "deployment": entries.get("deployment"),
        "group_policy": entries.get("group_policy"),
        "labels": _mapping(entries.get("labels")),
        "prefer": _mapping(entries.get("prefer")),
    }


def _mapping(text):
    """A mapping that was written as JSON; none where somebody has written something else."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
