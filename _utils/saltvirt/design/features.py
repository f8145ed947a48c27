"""What the hypervisor offers the guest."""

from saltvirt.spec.base import REMOVE


def apply(spec, domain, context):
    """Lays the dictionary of hypervisor_features onto a domain."""
    for name, value in (spec or {}).items():
        if value is REMOVE:
            setattr(domain.features, name, None)
        else:
            setattr(domain.features, name, value)
    if spec and spec.get("hyperv_vendor_id_value"):
        domain.features.hyperv_vendor_id = True
    if spec and spec.get("hyperv_spinlocks_retries"):
        domain.features.hyperv_spinlocks = True
    del context


def default(domain, context, spec):
    """ACPI, APIC and PAE for new guests whose hypervisor has them."""
    said = spec or {}
    if context.guest.os_type != "hvm":
        return
    for name in ("acpi", "apic", "pae"):
        if name in context.guest.features and said.get(name) is None:
            setattr(domain.features, name, True)
