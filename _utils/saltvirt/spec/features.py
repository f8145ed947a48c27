"""The user's arguments in ``hypervisor_features``."""

from __future__ import annotations

from typing import Any

from saltvirt.errors import InvalidInput
from saltvirt.spec import values
from saltvirt.spec.base import REMOVE, mapping, unknown

SWITCHES = {
    name.replace("_", "-"): name
    for name in (
        "kvm_hint_dedicated", "kvm_hidden", "kvm_poll_control", "acpi", "apic", "pae", "hap",
        "viridian", "privnet", "pvspinlock", "pmu", "vmport", "smm", "vmcoreinfo",
        "hyperv_relaxed", "hyperv_vapic", "hyperv_spinlocks", "hyperv_vpindex", "hyperv_synic",
        "hyperv_stimer", "hyperv_reset", "hyperv_runtime", "hyperv_frequencies",
        "hyperv_reenlightenment", "hyperv_tlbflush", "hyperv_ipi", "hyperv_evmcs", "hyperv_avic",
    )
}  # fmt: skip
_VENDOR_ID_LENGTH = 12


def _vendor_id(value: Any, argument: str) -> str:
    """The vendor that Hyper-V reports, such as ``Microsoft Hv``."""
    vendor_id = values.line(value, argument)
    if len(vendor_id.encode()) > _VENDOR_ID_LENGTH or "," in vendor_id:
        raise InvalidInput(
            f"{argument} {value!r} must have at most {_VENDOR_ID_LENGTH} characters and no comma"
        )
    return vendor_id


VALUES = {
    "hyperv-spinlocks-retries": ("hyperv_spinlocks_retries", values.number(4095)),
    "hyperv-vendor-id": ("hyperv_vendor_id_value", _vendor_id),
    "ioapic": ("ioapic", values.choice("kvm", "qemu")),
    "gic-version": ("gic_version", values.choice("2", "3", "host")),
}


def parse_features(value: Any, argument: str = "hypervisor_features") -> dict[str, Any] | None:
    """{property of xml.features.Features: value} from the user's dictionary, or None.

    Dashes and underscores in names are equivalent.
    """
    if value is None:
        return None
    properties = {}
    for name, item in mapping(value, argument).items():
        word = str(name).replace("_", "-")
        if word in SWITCHES:
            properties[SWITCHES[word]] = (
                REMOVE if item is None else values.boolean(item, f"{argument}:{name}")
            )
        elif word in VALUES:
            target, check = VALUES[word]
            properties[target] = REMOVE if item is None else check(item, f"{argument}:{name}")
        else:
            raise unknown(name, [*SWITCHES, *VALUES], argument)
    return properties
