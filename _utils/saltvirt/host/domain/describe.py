"""Convert a domain's XML and statistics to the data that users of Salt know.

Pure: this module neither calls libvirt nor opens files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict, overload

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from saltvirt.host.domain.stats import Reading

_VOLATILE_SOURCE = {"network": ("portid", "bridge")}
_LOCAL = ("file", "block")
_GRAPHICS = ("autoport", "keymap", "listen", "port", "type")

# libvirt's statistics of a domain, or of one of its disks
Stats = dict[str, Any]


class Nic(TypedDict, total=False):
    """An interface; keys that its definition lacks are absent. source, driver, address,
    virtualport: the attributes of that element."""

    type: str | None
    mac: str | None
    model: str | None
    target: str | None
    source: dict[str, str]
    driver: dict[str, str]
    address: dict[str, str]
    virtualport: dict[str, str]


# the backing file of a disk, and its own backing file
Backing = TypedDict(
    "Backing",
    {"file": "str", "file format": "str | None", "backing file": "Backing"},
    total=False,
)
# sizes in bytes; error: why they are unknown. disk_info.complete adds the values that are only
# in the image
DiskInfo = TypedDict(
    "DiskInfo",
    {
        "file": "str | None",
        "type": "str",
        "path": "str",
        "file format": "str | None",
        "virtual size": "int",
        "disk size": "int | None",
        "cluster size": "int | None",
        "snapshots": "list[dict[str, Any]]",
        "backing file": "Backing | DiskInfo",
        "error": "str | None",
    },
    total=False,
)


class Vm(TypedDict, total=False):
    """The answer of virt.vm_info. cputime is in ns, memory in KiB; pending: what changes at the
    next start; addresses: those known without asking the guest. A domain that cannot be read has
    only state and error."""

    cpu: int
    cputime: int
    disks: dict[str, DiskInfo]
    graphics: dict[str, str]
    nics: dict[str, Nic]
    uuid: str
    loader: dict[str, str]
    on_crash: str
    on_reboot: str
    on_poweroff: str
    maxMem: int
    mem: int
    state: str
    pending: list[str]
    addresses: list[str]
    autostart: bool
    error: str | None


@overload
def _text(tree: Element, path: str, default: str) -> str: ...
@overload
def _text(tree: Element, path: str, default: None = None) -> str | None: ...
def _text(tree: Element, path: str, default: str | None = None) -> str | None:
    value = tree.findtext(path)
    return value.strip() if value and value.strip() else default


def nic(node: Element) -> Nic:
    """Return one interface as a dict: type, mac, model, target, source, address, virtualport…"""
    interface: Nic = {"type": node.get("type")}
    for part in node:
        if part.tag == "mac":
            interface["mac"] = part.get("address")
        elif part.tag == "model":
            interface["model"] = part.get("type")
        elif part.tag == "target":
            interface["target"] = part.get("dev")
        elif part.tag == "source":
            interface["source"] = dict(part.attrib)
        elif part.tag == "driver":
            interface["driver"] = dict(part.attrib)
        elif part.tag == "address":
            interface["address"] = dict(part.attrib)
        elif part.tag == "virtualport":
            interface["virtualport"] = dict(part.attrib)
    for volatile in _VOLATILE_SOURCE.get(interface["type"] or "", ()):
        interface.get("source", {}).pop(volatile, None)
    return interface


def nics(tree: Element) -> dict[str, Nic]:
    """Return the interfaces by MAC address."""
    all_nics = (nic(node) for node in tree.iterfind("devices/interface"))
    return {mac: interface for interface in all_nics if (mac := interface.get("mac"))}


def macs(tree: Element) -> list[str]:
    """Return the MAC addresses in the order of the devices."""
    return [node.get("address", "") for node in tree.iterfind("devices/interface/mac")]


def graphics(tree: Element) -> dict[str, str]:
    """Return the display's attributes, always with Salt's five keys; unset ones are ``"None"``."""
    attributes = dict.fromkeys(_GRAPHICS, "None")
    for node in tree.iterfind("devices/graphics"):
        attributes.update((k, v) for k, v in node.attrib.items() if k != "passwd")
    return attributes


def loader(tree: Element) -> dict[str, str]:
    """Return the firmware's path and attributes; path is ``"None"`` without firmware."""
    node = tree.find("os/loader")
    if node is None:
        return {"path": "None"}
    return {"path": _text(tree, "os/loader", "None"), **node.attrib}


def _network_source(node: Element, device: str | None) -> str:
    protocol, name = node.get("protocol", ""), node.get("name") or ""
    host = node.find("host")
    if device != "cdrom" or host is None:
        return f"{protocol}:{name}" if name else protocol
    address = host.get("name", "")
    if host.get("port"):
        address += f":{host.get('port')}"
    query = f"?{node.get('query')}" if node.get("query") else ""
    return f"{protocol}://{address}/{name.lstrip('/')}{query}"


def source_of(node: Element) -> str | None:
    """Return what a disk (or backingStore) element reads from: path, pool/volume, URL, or None."""
    source = node.find("source")
    if source is None:
        return None
    kind = node.get("type")
    if kind == "volume":
        return f"{source.get('pool')}/{source.get('volume')}"
    if kind == "network":
        return _network_source(source, node.get("device"))
    return source.get({"block": "dev", "dir": "dir"}.get(kind or "", "file"))


def _backing(node: Element) -> Backing | None:
    below = node.find("backingStore")
    path = source_of(below) if below is not None else None
    if below is None or not path:
        return None
    backing: Backing = {"file": path}
    form = below.find("format")
    if form is not None:
        backing["file format"] = form.get("type")
    nested = _backing(below)
    if nested:
        backing["backing file"] = nested
    return backing


def block_stats(stats: Stats) -> dict[str, Stats]:
    """Return libvirt's ``block.N.…`` statistics of the top images as {target: {key: value}}."""
    by_target: dict[str, Stats] = {}
    for index in range(stats.get("block.count", 0)):
        prefix = f"block.{index}."
        block = {k[len(prefix) :]: v for k, v in stats.items() if k.startswith(prefix)}
        if "name" in block:
            by_target.setdefault(block["name"], block)
    return by_target


def disk(node: Element, stats: Stats, active: bool) -> DiskInfo:
    """Return one disk as a dict: file, type, file format, sizes in bytes, backing file."""
    details: DiskInfo = {"file": source_of(node), "type": node.get("device", "disk")}
    driver = node.find("driver")
    if driver is not None and driver.get("type"):
        details["file format"] = driver.get("type")
    if "capacity" in stats:
        details["virtual size"] = stats["capacity"]
        # the allocated size; the statistic has another name for a stopped domain
        details["disk size"] = stats.get("physical" if active else "allocation", 0)
    elif stats and node.get("type") in _LOCAL and details["type"] == "disk":
        details["error"] = (
            "libvirt cannot read this disk: check that its pool is started and its file exists"
        )
    backing = _backing(node)
    if backing:
        details["backing file"] = backing
    return details


def disks(tree: Element, stats: Stats, active: bool) -> dict[str, DiskInfo]:
    """Return the disks that have a source, by target (vda, sda, …)."""
    sizes = block_stats(stats)
    by_target = {}
    for node in tree.iterfind("devices/disk"):
        target = node.find("target")
        name = target.get("dev") if target is not None else None
        if name and source_of(node) is not None:
            by_target[name] = disk(node, sizes.get(name, {}), active)
    return by_target


def vcpus(tree: Element, stats: Stats) -> int:
    """Return the current number of virtual CPUs."""
    node = tree.find("vcpu")
    configured = int(node.get("current") or node.text or 1) if node is not None else 1
    return int(stats.get("vcpu.current", configured))


def memory_kib(tree: Element, stats: Stats) -> tuple[int, int]:
    """Return (maximum, current) memory in KiB."""
    maximum = int(_text(tree, "memory", "0"))
    current = int(_text(tree, "currentMemory", str(maximum)))
    return stats.get("balloon.maximum", maximum), stats.get("balloon.current", current)


def cpu_time(stats: Stats) -> int:
    """Return the CPU time in ns of a running domain: its total, or that of its vCPUs if the host
    has no control groups."""
    if "cpu.time" in stats:
        return int(stats["cpu.time"])
    times = (stats.get(f"vcpu.{n}.time", 0) for n in range(stats.get("vcpu.maximum", 0)))
    return sum(times)


def vm(reading: Reading) -> Vm:
    """Return the answer of virt.vm_info for one domain; only ``state`` and ``error`` if it is
    unreadable."""
    if reading.tree is None:
        return {"state": reading.state, "error": reading.error}
    tree, stats = reading.tree, reading.stats
    maximum, current = memory_kib(tree, stats)
    details: Vm = {
        "cpu": vcpus(tree, stats),
        "cputime": cpu_time(stats) if reading.active else 0,
        "disks": disks(tree, stats, reading.active),
        "graphics": graphics(tree),
        "nics": nics(tree),
        "uuid": _text(tree, "uuid", ""),
        "loader": loader(tree),
        "on_crash": _text(tree, "on_crash", ""),
        "on_reboot": _text(tree, "on_reboot", ""),
        "on_poweroff": _text(tree, "on_poweroff", ""),
        "maxMem": maximum,
        "mem": current,
        "state": reading.state,
    }
    if reading.pending is not None:
        details["pending"] = reading.pending
    return details
