"""Find what prevents a guest from being started on another host: resources of its present host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from xml.etree.ElementTree import Element

from saltvirt.placement.facts import Host

# default folders of libvirt, if a definition names no path
VARIABLES = "/var/lib/libvirt/qemu/nvram"
TPM_STATE = "/var/lib/libvirt/swtpm"
# maximum length of a backing chain
_MAX_CHAIN = 400


def reasons(root: Element, host: Host, disks: Mapping[str, Any]) -> Iterator[str]:
    """Yield every reason, as a sentence.

    root: the definition. host: the guest's host, from its inventory. disks: the result of
    ``virt.get_disks``, with the backing images of each.
    """
    for disk in root.iterfind("devices/disk"):
        target = disk.find("target")
        name = target.get("dev", "?") if target is not None else "?"
        yield from _disk(name, disk, host)
        yield from _chain(name, disks.get(name), host)
    yield from _firmware(root, host)
    for memory in root.iterfind("devices/memory/source/path"):
        if not is_shared(host, memory.text or ""):
            yield f"its memory {memory.text} is on {host.name} only"
    for kind in ("serial", "parallel", "console", "channel"):
        for device in root.iterfind(f"devices/{kind}[@type='dev']/source"):
            yield f"its {kind} port is the device {device.get('path')} of {host.name}"
    for kind in ("evdev", "passthrough"):
        for device in root.iterfind(f"devices/input[@type='{kind}']/source"):
            path = device.get("dev") or device.get("evdev")
            yield f"its input is the device {path} of {host.name}"
    if root.find("devices/smartcard[@mode='host']") is not None:
        yield f"its smartcard is a device of {host.name}"
    for tpm in root.iterfind("devices/tpm/backend"):
        yield from _tpm(tpm, host)
    for device in root.iterfind("devices/hostdev"):
        yield f"it uses a {device.get('type') or 'host'} device of {host.name}: detach the device"
    for nic in root.iterfind("devices/interface[@type='hostdev']"):
        mac = nic.find("mac")
        address = mac.get("address") if mac is not None else "?"
        yield f"its interface {address} is a device of {host.name}"
    for folder in root.iterfind("devices/filesystem/target"):
        yield f"it mounts the folder {folder.get('dir')} of {host.name}: detach the folder"


def is_shared(host: Host, path: str) -> bool:
    """Whether other hosts can access a path of the host."""
    store = host.storage.get(host.folder_store(path))
    return bool(store and store.shared)


def _disk(name: str, disk: Element, host: Host) -> Iterator[str]:
    if disk.find("backingStore/source[@protocol='nbd']/host[@transport='unix']") is not None:
        yield f"disk {name} still depends on a backup that {host.name} reads"
    source, kind = disk.find("source"), disk.get("type") or "file"
    if source is None or kind == "network":
        return
    pool = source.get("pool")
    path = source.get("file") or source.get("dev") or source.get("dir")
    if kind == "volume" and pool:
        if not _is_shared_pool(host, pool):
            yield (
                f"disk {name} is in the pool {pool} of {host.name}, which other hosts cannot access"
            )
    elif kind == "block":
        yield f"disk {name} is the device {path} of {host.name}: move it to a shared pool"
    elif path and kind == "file":
        if not is_shared(host, path):
            yield f"disk {name} is {path} on {host.name} only, not on shared storage"
    elif path or kind not in ("file", "volume"):
        yield f"disk {name} has the type {kind}, which is bound to {host.name}"


def _is_shared_pool(host: Host, pool: str) -> bool:
    if pool not in host.pools:
        return False
    store = host.storage.get(host.pool_store(pool))
    return bool(host.pools[pool].shared or (store and store.shared))


def _chain(name: str, disk: Any, host: Host) -> Iterator[str]:
    """Yield the backing images of a disk that other hosts cannot access."""
    for _ in range(_MAX_CHAIN):
        disk = disk.get("backing file") if isinstance(disk, Mapping) else None
        if not isinstance(disk, Mapping):
            return
        path = disk.get("file")
        if isinstance(path, str) and path.startswith("/") and not is_shared(host, path):
            yield f"disk {name} depends on {path}, which is on {host.name} only"


def _firmware(root: Element, host: Host) -> Iterator[str]:
    system = root.find("os")
    if system is None:
        return
    for word in ("kernel", "initrd", "dtb"):
        path = system.findtext(word)
        if path and not is_shared(host, path):
            yield f"its {word} {path} is on {host.name} only"
    nvram, loader = system.find("nvram"), system.find("loader")
    stateless = loader is not None and loader.get("stateless") == "yes"
    if nvram is None and (system.get("firmware") != "efi" or stateless):
        return
    source = nvram.find("source") if nvram is not None else None
    if nvram is not None and nvram.get("type", "file") != "file":
        return
    path = source.get("file") if source is not None else getattr(nvram, "text", None)
    if not is_shared(host, path or VARIABLES):
        yield (
            f"its UEFI variables are {path or f'below {VARIABLES}'} on {host.name} only: move "
            "them to shared storage"
        )


def _tpm(backend: Element, host: Host) -> Iterator[str]:
    if backend.get("type") != "emulator":
        yield f"its TPM is a device of {host.name}"
        return
    source = backend.find("source")
    path = source.get("path") if source is not None else None
    if not is_shared(host, path or TPM_STATE):
        yield (
            f"the state of its TPM is {path or f'below {TPM_STATE}'} on {host.name} only: move it "
            "to shared storage"
        )
