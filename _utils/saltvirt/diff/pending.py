"""Changes of a running guest that take effect at its next start.

The running definition is the stored one as completed by libvirt for this run, so most settings that
only the running definition contains are not differences.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from saltvirt.diff import changes
from saltvirt.units import human_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from saltvirt.diff.change import Change
    from saltvirt.xml.devices.interface import Interface
    from saltvirt.xml.domain.domain import Domain

MEMORY = "current_memory_kib"
# QEMU rounds memory to its own pages
_ROUNDED_KIB = 2048
# libvirt completes these for each run: the CPU from the host's, the firmware from its descriptors
_COMPLETED = re.compile(
    r"os:(loader|nvram|firmware_)|features:(smm|hyperv_mode)$|clock:(basis|adjustment)$|metadata:|os$"
)
_FEATURE = re.compile(r"cpu:features:([^:]+):(\w+)")
_ON, _OFF = ("require", "force"), ("disable", "forbid")
# for other hypervisors, only these parts of the running definition are compared
_PLAIN = re.compile(
    r"vcpu:(maximum|current)$|(current_)?memory_kib$|(disks|nics):[^:]+(:[0-9a-f:]{14})?$"
)
_NAMES = {
    "memory_kib": "memory", MEMORY: "current memory", "max_memory_kib": "memory with modules",
    "vcpu:maximum": "maximum of vCPUs", "vcpu:current": "vCPUs",
    "os:boots": "boot devices",
}  # fmt: skip
_DEVICES = {"disks": "disk", "nics": "interface", "graphics": "display"}
# longer values, lists and whole devices are not shown
_SHOWN = 200


def pending_changes(running: Domain, stored: Domain) -> list[Change]:
    """The list of Change from ``running`` to ``stored``; ``live``: whether libvirt can do it now.

    running: the running definition, stored: the one for the next start, both with passwords or both
    without.
    """
    running = running.copy()
    requested = {(nic.mac or "").lower(): nic for nic in stored.interfaces}
    for nic in running.interfaces:
        _as_requested(nic, requested.get((nic.mac or "").lower()))
    differences = changes.changes(stored, running)
    return [change for change in differences if _is_pending(change, running, stored)]


def is_plain(path: str) -> bool:
    """Whether the running definition of every hypervisor contains the setting at this path of a
    Change."""
    return bool(_PLAIN.match(path))


def pending_texts(differences: Iterable[Change]) -> list[str]:
    """Texts about pending changes: the setting, its current value and its value after the next
    start."""
    merged: dict[str, Change] = {}
    values_by_path: dict[str, tuple[Any, Any]] = {}
    differences = list(differences)
    paths = {change.path for change in differences}
    for change in differences:
        if change.path == MEMORY and (
            "memory_kib" in paths or (change.new or 0) < (change.old or 0)
        ):
            continue  # the balloon sets it; a start would not change it
        merged[change.path] = change
        old = values_by_path.get(change.path, (change.old, None))[0]
        values_by_path[change.path] = old, change.new
    return [_description(path, *values_by_path[path]) for path in merged]


def sentence(texts: Iterable[str]) -> str:
    """The result of :func:`pending_texts` as part of a sentence; empty if there are none."""
    texts = list(texts)
    return f"will change at the next start: {', '.join(texts)}" if texts else ""


def add_to_answer(status: dict[str, Any], differences: Iterable[Change]) -> None:
    """Add pending changes to an answer, if there are any."""
    texts = pending_texts(differences)
    if texts:
        status["pending"], status["comment"] = texts, sentence(texts)


def change_texts(values_by_path: Mapping[str, tuple[Any, Any]]) -> list[str]:
    """Texts about changes that were made: path of a Change to its old and new value."""
    changed = dict(values_by_path)
    for total, current in (("memory_kib", MEMORY), ("vcpu:maximum", "vcpu:current")):
        if total in changed and changed.get(current, (0, 0))[1] in (None, changed[total][1]):
            changed.pop(current, None)
    return [_change_text(path, old, new) for path, (old, new) in changed.items()]


def _change_text(path: str, old: Any, new: Any) -> str:
    sides = [_shown(path, value) for value in (old, new)]
    return f"{_name(path)}: {sides[0]} -> {sides[1]}" if all(sides) else _name(path)


def _name(path: str) -> str:
    name = _NAMES.get(path)
    if name is None:
        kind, _, rest = path.partition(":")
        rest = rest.removesuffix(":size_bytes")
        name = f"{_DEVICES[kind]} {rest}" if kind in _DEVICES and rest else path
    return name


def _description(path: str, old: Any, new: Any) -> str:
    name = _name(path)
    sides = [_shown(path, value) for value in (old, new)]
    return f"{name} ({sides[0]} now, then {sides[1]})" if all(sides) else name


def _shown(path: str, value: Any) -> str:
    """Format a value for the user; empty if it is too long."""
    if value is None:
        return "none"
    if path.endswith("memory_kib"):
        return human_bytes(value * 1024)
    if path.endswith("size_bytes"):
        return human_bytes(value)
    if isinstance(value, dict):
        value = value.get("source") or value.get("type")
    text = str(value)
    fits = isinstance(value, (str, int, float)) and len(text) <= _SHOWN and "<" not in text
    return text if fits else ""


def _is_pending(change: Change, running: Domain, stored: Domain) -> bool:
    path = change.path
    if running.type not in ("qemu", "kvm", "test") and not _PLAIN.match(path):
        return False
    if path.endswith(":plug_order") and change.new is None:
        return False  # libvirt numbers the vCPUs of a guest that some can be plugged into
    if path.endswith("memory_kib"):
        return bool(abs((change.new or 0) - (change.old or 0)) >= _ROUNDED_KIB)
    if path.startswith("cpu:"):
        return _is_cpu_lacking(change, running, stored)
    if path in ("os:loader", "os:firmware"):
        return _other_firmware(running, stored, path)
    return (path == "os:loader_secure" and bool(change.new)) or not _COMPLETED.match(path)


def _is_cpu_lacking(change: Change, running: Domain, stored: Domain) -> bool:
    feature = _FEATURE.match(change.path)
    if feature:
        return feature[2] == "policy" and _other_policy(change)
    if change.path in ("cpu:mode", "cpu:model"):
        return _other_cpu(running, stored)
    return change.path.startswith(("cpu:topology", "cpu:cells"))


def _other_policy(change: Change) -> bool:
    """Whether the guest was started without a CPU feature of its definition. A required feature may
    be disabled nevertheless, if neither QEMU nor the host supports it."""
    if change.new in _ON:
        return change.old is None
    return change.new in _OFF and change.old not in _OFF


def _other_cpu(running: Domain, stored: Domain) -> bool:
    """Compare CPU models: libvirt replaces host-model by the actual model, and a model by an
    equivalent one."""
    modes = running.cpu.mode or "custom", stored.cpu.mode or "custom"
    if not stored.cpu or modes[1] == "host-model":
        return modes[0] in ("host-passthrough", "maximum")
    if modes == ("custom", "custom"):
        return bool(stored.cpu.model) and running.cpu.model != stored.cpu.model
    return modes[0] != modes[1]


def _other_firmware(running: Domain, stored: Domain, path: str) -> bool:
    """Whether only one of the two definitions has its own firmware."""
    if path == "os:loader" and stored.os.loader:
        return running.os.loader != stored.os.loader
    has_firmware = bool(running.os.loader or running.os.firmware == "efi")
    requests_firmware = bool(stored.os.loader or stored.os.firmware == "efi")
    return has_firmware != requests_firmware and path == (
        "os:firmware" if stored.os.firmware else "os:loader"
    )


def _as_requested(nic: Interface, requested: Interface | None) -> None:
    """Revert settings that a running interface has from its network: the bridge or device, and the
    network's own VLAN, limits and port type."""
    if not nic.network:
        return
    nic.type = "network"
    nic.bridge = nic.dev = nic.mode = None
    for name in ("vlan", "virtualport", "bandwidth"):
        if requested is None or not getattr(requested, name):
            setattr(nic, name, None)
