"""Normalize domains to plain data, so that only relevant differences remain.

libvirt fills in settings that a definition does not contain: addresses, aliases, ports, models. If
the desired definition does not contain a setting, libvirt's choice is not a difference.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from saltvirt.design.chardevs import mirrored
from saltvirt.design.plain_data import plain
from saltvirt.design.source import disk_locations
from saltvirt.spec.sysinfo import GROUPS
from saltvirt.spec.values import numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from saltvirt.xml.base import Element
    from saltvirt.xml.devices.chardev import Console
    from saltvirt.xml.devices.disk import Disk
    from saltvirt.xml.devices.graphics import Graphics, Listen
    from saltvirt.xml.devices.interface import Interface
    from saltvirt.xml.devices.vsock import Vsock
    from saltvirt.xml.domain.domain import Domain

# internal data of libvirt, never a difference
_NOISE = (
    "alias", "address", "tty", "backing_store", "mirror_job", "index", "state", "snapshot",
    "seclabels", "tray",
)  # fmt: skip
# property of an element: libvirt's default
_DEFAULTS: dict[str, dict[str, Any]] = {
    "disk": {"device": "disk", "driver_name": "qemu", "driver_type": "raw"},
    "interface": {"link_state": "up", "isolated_port": False},
    "watchdog": {"action": "reset"},
    "tpm": {"version": "2.0"},
    "timer": {},
}
# property of an element that libvirt fills in if it is not given
_FILLED = {
    "disk": ("read_only", "source"),
    "interface": ("mac", "target", "driver_name", "model", "queues", "mtu", "managed"),
    "serial": ("target_type", "target_port", "target_model", "source"),
    "console": ("target_type", "target_port", "source"),
    "channel": ("source", "target_port"),
    "video": ("vram_kib", "heads", "primary", "accel3d"),
    "graphics": ("listens", "websocket", "image_compression"),
    "tpm": ("persistent_state", "version"),
    "rng": ("model",),
    "memballoon": ("stats_period_s", "autodeflate", "free_page_reporting"),
    "controller": ("model", "ports"),
    "input": ("bus",),
    "filesystem": ("type", "access_mode", "driver_type", "driver_format"),
    "cpu": ("mode", "model", "check", "match", "fallback", "migratable", "vendor"),
    "os": ("machine", "arch", "loader_type", "loader_readonly", "loader_secure", "nvram",
           "nvram_template", "smbios", "firmware_features"),
    "features": ("hyperv_mode", "gic_version"),
    "clock": ("basis",),
    "vcpu": ("placement",),
    "numatune": ("placement",),
}  # fmt: skip

# libvirt's own socket of a display, below a folder of this run
_DISPLAY_SOCKET = re.compile(r"/domain-\d+-[^/]*/(vnc|spice)\.sock$")

# the keys from the top of nested dictionaries to a value
Path = tuple[str, ...]


def settings(desired: Domain, actual: Domain) -> tuple[dict[Path, Any], dict[Path, Any]]:
    """({path: value} desired, {path: value} actual) of everything except devices."""
    pair = [_settings(domain) for domain in (desired, actual)]
    new, old = pair
    for name in ("cpu", "os", "features", "clock", "vcpu", "numatune"):
        _fill(name, new.setdefault(name, {}), old.get(name, {}))
    _firmware(new["os"], old.setdefault("os", {}))
    if not any(device.boot_order for device in (*desired.disks, *desired.interfaces)):
        _boots(new["os"], old["os"])
    for name in ("emulator", "uuid", "generation_id", "vcpus"):
        if name not in new:
            old.pop(name, None)
    return dict(leaves(new)), dict(leaves(old))


_DEVICES = (
    "disks", "interfaces", "graphics", "serials", "consoles", "channels", "inputs", "tpms",
    "sounds", "videos", "host_devices", "watchdogs", "memballoon", "rngs", "controllers",
    "filesystems", "record", "osinfo_id", "audios", "redirdevs", "memory_devices", "panics",
    "iommus", "vsocks",
)  # fmt: skip


def _settings(domain: Domain) -> dict[str, Any]:
    data = plain(domain, skip=(*_NOISE, *_DEVICES))
    data.pop("id", None)
    vcpu = data.get("vcpu", {})
    if "maximum" in vcpu:
        vcpu.setdefault("current", vcpu["maximum"])
    if domain.cpu.clusters == 1:
        data["cpu"].pop("clusters")  # libvirt before 10.1 has no clusters
    if vcpu.get("placement") == "static":
        vcpu.pop("placement")
    data.setdefault("current_memory_kib", data.get("memory_kib"))
    data.setdefault("on_poweroff", "destroy")
    data.setdefault("on_reboot", "restart")
    data.setdefault("on_crash", "destroy")
    data.setdefault("clock", {}).setdefault("offset", "utc")
    if domain.memory_backing.hugepages and len(domain.memory_backing.pages):
        data["memory_backing"].pop("hugepages")
    _key_lists(data)
    data["sysinfo"] = _sysinfo(data.pop("sysinfos", []))
    return data


def _sysinfo(items: list[dict[str, Any]]) -> dict[str, Any]:
    """{group: {name: text}} of the SMBIOS tables, and {"fw_cfg": {name: text}}."""
    result: dict[str, Any] = {}
    for item in items:
        groups = {name: item[name] for name in (*GROUPS, "entries") if name in item}
        for index, board in enumerate(item.get("baseboards", [])):
            groups[f"baseboard:{index}" if index else "baseboard"] = board.get("entries", [])
        for group, entries in groups.items():
            texts = {e.get("name", ""): e.get("text") or e.get("file") for e in entries}
            result["fw_cfg" if group == "entries" else group] = texts
        if "oem_strings" in item:
            result["oem_strings"] = [entry.get("text", "") for entry in item["oem_strings"]]
    return result


_KEYS = (
    (("cpu", "features"), "name"),
    (("cpu", "cells"), "id"),
    (("clock", "timers"), "name"),
    (("os", "firmware_features"), "name"),
    (("cputune", "vcpupins"), "vcpu"),
    (("cputune", "iothreadpins"), "iothread"),
    (("numatune", "memnodes"), "cellid"),
)


def _key_lists(data: dict[str, Any]) -> None:
    """Convert lists without significant order to dictionaries."""
    if "vcpus" in data:
        data["vcpus"] = {state["id"]: state for state in data["vcpus"]}
    for (group, name), key in _KEYS:
        items = data.get(group, {}).get(name)
        if items:
            data[group][name] = {item.get(key, index): item for index, item in enumerate(items)}
    for name, word in (("vcpuscheds", "vcpus"), ("iothreadscheds", "iothreads")):
        items = data.get("cputune", {}).get(name)
        if items:  # libvirt writes an element for each thread
            data["cputune"][name] = {
                number: {key: value for key, value in item.items() if key != word}
                for item in items
                for number in numbers(item.get(word))
            }
    for cell in data.get("cpu", {}).get("cells", {}).values():
        if cell.get("unit") == "KiB":
            cell.pop("unit")
    for page in data.get("memory_backing", {}).get("pages", ()):
        if page.get("unit") == "KiB":
            page.pop("unit")


def _firmware(new: dict[str, Any], old: dict[str, Any]) -> None:
    """Keep libvirt's choice of an automatically selected firmware."""
    if new.get("firmware") and new.get("firmware") == old.get("firmware"):
        for name in ("loader", "nvram", "loader_type", "loader_readonly", "nvram_template"):
            if name not in new:
                old.pop(name, None)


def _boots(new: dict[str, Any], old: dict[str, Any]) -> None:
    """Ignore libvirt's default boot order, the disk."""
    if "boots" not in new and old.get("boots") == [{"dev": "hd"}]:
        old.pop("boots")


def _fill(
    kind: str, new: dict[str, Any], old: dict[str, Any], removed: Collection[str] = ()
) -> None:
    """Copy settings that the desired device does not contain from the actual one."""
    for name, value in _DEFAULTS.get(kind, {}).items():
        new.setdefault(name, value)
        old.setdefault(name, value)
    for name in _FILLED.get(kind, ()):
        if name not in new:
            if name in old and name not in removed:
                new[name] = old[name]
        elif isinstance(new[name], dict) and isinstance(old.get(name), dict):
            new[name] = {**old[name], **new[name]}


def leaves(data: Mapping[Any, Any], path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """(path, value) of everything in nested dictionaries."""
    for key, value in data.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*path, str(key)))
        elif value not in ({}, [], None):
            yield (*path, str(key)), value


def devices(
    desired: Element, actual: Element, removed: Collection[str] = ()
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The (desired, actual) data of two devices of the same kind, for comparison. removed:
    properties to remove, which are not copied from the actual device."""
    new, old = _device(desired), _device(actual)
    _fill(desired.TAG, new, old, removed)
    return new, old


def _device(device: Element) -> dict[str, Any]:
    data = plain(device, skip=_NOISE)
    special: dict[str, Callable[[Any, dict[str, Any]], None]] = {
        "disk": _disk, "graphics": _graphics, "interface": _interface, "vsock": _vsock,
    }  # fmt: skip
    if device.TAG == "console":
        data.pop("target_port", None)  # libvirt numbers them itself
    if device.TAG in special:
        special[device.TAG](device, data)
    return data


def _disk(disk: Disk, data: dict[str, Any]) -> None:
    """Reduce a source to its location."""
    data.pop("type", None)
    if disk.shareable and disk.cache == "none":
        data.pop("cache")  # libvirt starts such a disk without a cache
    data["source"] = sorted(disk_locations(disk)) or None
    if disk.device in ("cdrom", "floppy"):
        data["read_only"] = True if disk.device == "cdrom" else disk.read_only
        if not data["source"]:
            data["driver_type"] = "raw"
    if data["source"] is None:
        data.pop("source")
        data["empty"] = True


def _graphics(graphics: Graphics, data: dict[str, Any]) -> None:
    if any(item.type == "socket" for item in graphics.listens):
        data.pop("autoport", None)
        data.pop("socket", None)
    elif graphics.autoport is not False and not graphics.socket:
        data["autoport"] = True
        for name in ("port", "tls_port"):
            data.pop(name, None)
    if graphics.websocket == -1:
        data.pop("websocket")
    listens = [_listen(item) for item in graphics.listens]
    if not listens and graphics.listen:
        listens = [{"type": "address", "address": graphics.listen}]
    data["listens"] = listens
    data.pop("listen", None)
    if not listens:
        data.pop("listens")


def _listen(item: Listen) -> dict[str, str | None]:
    properties = {"type": item.type}
    for name in ("address", "network", "socket"):
        value = getattr(item, name)
        if value is not None and name == item.type and not _DISPLAY_SOCKET.search(value):
            properties[name] = value
    return properties


def consoles(desired: Domain, actual: Domain) -> tuple[list[Console], list[Console]]:
    """The two lists without the console that libvirt adds for the first serial port."""
    new, old = list(desired.consoles), list(actual.consoles)
    return new, old[1:] if mirrored(old, new, desired) else old


def _interface(nic: Interface, data: dict[str, Any]) -> None:
    if nic.mac:
        data["mac"] = nic.mac.lower()
    port = data.get("virtualport", {})
    if port.get("type") == "openvswitch":
        port.pop("interfaceid", None)


def _vsock(vsock: Vsock, data: dict[str, Any]) -> None:
    """Ignore the CID that libvirt chose for this run."""
    if vsock.auto:
        data.pop("cid", None)
    else:
        data.pop("auto", None)
