"""Changes of a running guest, confirmed in libvirt's XML."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from saltvirt import errors
from saltvirt.design.plain_data import declarations, plain
from saltvirt.host import connection
from saltvirt.host.connection import libvirt
from saltvirt.host.domain import lifecycle, metadata, resize
from saltvirt.xml.device import Device
from saltvirt.xml.devices.disk import Disk
from saltvirt.xml.devices.hostdev import HostDevice
from saltvirt.xml.devices.interface import Interface
from saltvirt.xml.devices.iotune import IoTune
from saltvirt.xml.devices.vsock import Vsock
from saltvirt.xml.domain.domain import Domain

if TYPE_CHECKING:
    from saltvirt.diff.change import Change

# how long a guest may take to release a device
RELEASE_TIMEOUT_S = 8
MAX_MEDIUM_TRIES = 40
_STEP_S = 0.25


def _vcpus(dom: libvirt.virDomain, _change: Change, desired: Domain) -> None:
    vcpus = desired.vcpu.current or desired.vcpu.maximum or 1
    dom.setVcpusFlags(vcpus, libvirt.VIR_DOMAIN_AFFECT_LIVE)


def _memory(dom: libvirt.virDomain, _change: Change, desired: Domain) -> None:
    memory_kib = desired.current_memory_kib or desired.memory_kib or 0
    dom.setMemoryFlags(memory_kib, libvirt.VIR_DOMAIN_AFFECT_LIVE)


def _title(dom: libvirt.virDomain, change: Change, _desired: Domain) -> None:
    kind = libvirt.VIR_DOMAIN_METADATA_TITLE
    dom.setMetadata(kind, change.new, None, None, libvirt.VIR_DOMAIN_AFFECT_LIVE)


def _description(dom: libvirt.virDomain, change: Change, _desired: Domain) -> None:
    kind = libvirt.VIR_DOMAIN_METADATA_DESCRIPTION
    dom.setMetadata(kind, change.new, None, None, libvirt.VIR_DOMAIN_AFFECT_LIVE)


def _without_address(text: str, kinds: Collection[str]) -> str:
    """Return a device's XML without its alias, and without an address of these types.

    The address may differ between the running guest and its definition.
    """
    device = ElementTree.fromstring(text)
    for part in (*device.findall("address"), *device.findall("alias")):
        if part.tag == "alias" or not kinds or part.get("type") in kinds:
            device.remove(part)
    return ElementTree.tostring(device, encoding="unicode")


def _attach(dom: libvirt.virDomain, change: Change, _desired: Domain) -> None:
    text = _without_address(change.xml, ("pci",))
    dom.attachDeviceFlags(text, libvirt.VIR_DOMAIN_AFFECT_LIVE)


def _update(dom: libvirt.virDomain, change: Change, _desired: Domain) -> None:
    dom.updateDeviceFlags(_without_address(change.xml, ()), libvirt.VIR_DOMAIN_AFFECT_LIVE)


def _medium(dom: libvirt.virDomain, change: Change, desired: Domain) -> None:
    """Change the medium. A booting system can close the tray before the medium is inserted:
    retry."""
    for _ in range(MAX_MEDIUM_TRIES - 1):
        try:
            return _update(dom, change, desired)
        except libvirt.libvirtError as exc:
            if "ray of " not in str(exc):
                raise
            time.sleep(_STEP_S)
    return _update(dom, change, desired)


# subject of a change: the class of its devices, their list in a domain, and what identifies one
_DEVICES: dict[str, tuple[type[Device], str, Callable[[Any], object]]] = {
    "disks": (Disk, "disks", lambda disk: disk.target),
    "nics": (Interface, "interfaces", lambda nic: nic.mac),
    "host_devices": (HostDevice, "host_devices", lambda device: device.source_key()),
    "vsock": (Vsock, "vsocks", lambda _vsock: None),
}


def _running(dom: libvirt.virDomain, device_kind: str) -> Mapping[object, Device]:
    """Return {identifier: device} of the running guest's devices of a kind."""
    running = Domain.fromstring(dom.XMLDesc(0))
    _, name, identifier = _DEVICES[device_kind]
    return {identifier(device): device for device in getattr(running, name)}


def _key(change: Change) -> object:
    kind, _, identifier = _DEVICES[change.subject]
    return identifier(kind.fromstring(change.xml))


def _detach(dom: libvirt.virDomain, change: Change, _desired: Domain) -> None:
    key = _key(change)
    device = _running(dom, change.subject).get(key)
    if device is None:  # only the stored definition had it
        return
    dom.detachDeviceFlags(device.tostring(), libvirt.VIR_DOMAIN_AFFECT_LIVE)
    deadline = time.monotonic() + RELEASE_TIMEOUT_S
    while key in _running(dom, change.subject):
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"{change.path}: the guest has not released it; it is removed when the guest stops"
            )
        time.sleep(_STEP_S)


def _limit(dom: libvirt.virDomain, change: Change, _desired: Domain) -> None:
    """Set the limits of a disk; those that it does not have are 0."""
    disk = Disk.fromstring(change.xml)
    parameters = {**dict.fromkeys(declarations(IoTune), 0), **plain(disk.iotune)}
    if not disk.iotune.group_name:
        del parameters["group_name"]
    dom.setBlockIoTune(disk.target or "", parameters, libvirt.VIR_DOMAIN_AFFECT_LIVE)


def _record(dom: libvirt.virDomain, _change: Change, desired: Domain) -> None:
    metadata.write(dom, desired.record)


_BY_PATH = {
    "vcpu:current": _vcpus,
    "current_memory_kib": _memory,
    "title": _title,
    "description": _description,
}
_BY_ACTION = {
    "attach": _attach, "detach": _detach, "update": _update, "medium": _medium, "limit": _limit,
}  # fmt: skip


def _handler(change: Change) -> Callable[[libvirt.virDomain, Change, Domain], None]:
    if change.subject in ("metadata", "os"):
        return _record
    return _BY_PATH.get(change.path) or _BY_ACTION[change.action]


def apply(
    conn: libvirt.virConnect, dom: libvirt.virDomain, desired: Domain, changes: Iterable[Change]
) -> list[str]:
    """Apply the live changes; return messages about failures.

    The guest's definition contains failed changes nevertheless, so they take effect at the next
    start. Disks are grown and autostart is set for stopped guests as well.
    """
    failures, applied = [], set[str]()
    for change in changes:
        try:
            if change.action == "resize":
                target = change.path.split(":")[1]
                resize.grow(conn, dom.name(), target, change.new)
            elif change.subject == "autostart":
                lifecycle.set_autostart(dom, change.new)
            elif change.live and dom.isActive() and (change.xml or change.path) not in applied:
                applied.add(change.xml or change.path)
                _handler(change)(dom, change, desired)
        except libvirt.libvirtError as exc:
            failures.append(
                connection.translate(exc, f"change {change.path} of the running guest").text
            )
        except (errors.VirtError, TimeoutError) as exc:
            failures.append(str(exc))
    return failures
