"""The hypervisor features of a guest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from saltvirt.spec.base import REMOVE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from saltvirt.design.context import Context
    from saltvirt.xml.domain.domain import Domain

RETRIES = 8191  # as in libvirt's documentation, and as guests of Hyper-V expect

OFF_WHEN_ABSENT = ("kvm_hint_dedicated", "kvm_hidden", "kvm_poll_control")


def apply(spec: Mapping[str, Any] | None, domain: Domain, context: Context) -> None:
    """Apply hypervisor_features to a domain."""
    for name, value in (spec or {}).items():
        if value is REMOVE:
            setattr(domain.features, name, None)
        elif value is False and name in OFF_WHEN_ABSENT and not getattr(domain.features, name):
            continue
        else:
            setattr(domain.features, name, value)
    features = domain.features
    if spec and "hyperv_vendor_id_value" in spec:
        features.hyperv_vendor_id = True if features.hyperv_vendor_id_value else None
    if spec and spec.get("hyperv_spinlocks_retries") is REMOVE:
        features.hyperv_spinlocks = None
    elif features.hyperv_spinlocks_retries:
        features.hyperv_spinlocks = True
    elif features.hyperv_spinlocks:
        features.hyperv_spinlocks_retries = RETRIES
    del context


def default(domain: Domain, context: Context, spec: Mapping[str, Any] | None) -> None:
    """Enable ACPI, APIC and PAE for new guests if the hypervisor supports them."""
    requested = spec or {}
    if context.guest.os_type != "hvm":
        return
    for name in ("acpi", "apic", "pae"):
        if name in context.guest.features and requested.get(name) is None:
            setattr(domain.features, name, True)
