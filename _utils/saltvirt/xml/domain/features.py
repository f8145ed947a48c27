"""The hypervisor features of a guest."""

from saltvirt.xml.base import Element, Prop
from saltvirt.xml.kinds import FLAG, INT, STATE


class Features(Element):
    """``<features>``."""

    TAG = "features"

    acpi = Prop("acpi", FLAG)
    apic = Prop("apic", FLAG)
    pae = Prop("pae", FLAG)
    hap = Prop("hap", STATE)
    viridian = Prop("viridian", FLAG)
    privnet = Prop("privnet", FLAG)
    hyperv_mode = Prop("hyperv/@mode")
    hyperv_relaxed = Prop("hyperv/relaxed", STATE)
    hyperv_vapic = Prop("hyperv/vapic", STATE)
    hyperv_spinlocks = Prop("hyperv/spinlocks", STATE)
    hyperv_spinlocks_retries = Prop("hyperv/spinlocks/@retries", INT)
    hyperv_vpindex = Prop("hyperv/vpindex", STATE)
    hyperv_synic = Prop("hyperv/synic", STATE)
    hyperv_stimer = Prop("hyperv/stimer", STATE)
    hyperv_reset = Prop("hyperv/reset", STATE)
    hyperv_runtime = Prop("hyperv/runtime", STATE)
    hyperv_frequencies = Prop("hyperv/frequencies", STATE)
    hyperv_reenlightenment = Prop("hyperv/reenlightenment", STATE)
    hyperv_tlbflush = Prop("hyperv/tlbflush", STATE)
    hyperv_ipi = Prop("hyperv/ipi", STATE)
    hyperv_evmcs = Prop("hyperv/evmcs", STATE)
    hyperv_avic = Prop("hyperv/avic", STATE)
    hyperv_vendor_id = Prop("hyperv/vendor_id", STATE)
    hyperv_vendor_id_value = Prop("hyperv/vendor_id/@value")
    kvm_hidden = Prop("kvm/hidden", STATE)
    kvm_hint_dedicated = Prop("kvm/hint-dedicated", STATE)
    kvm_poll_control = Prop("kvm/poll-control", STATE)
    pvspinlock = Prop("pvspinlock", STATE)
    pmu = Prop("pmu", STATE)
    vmport = Prop("vmport", STATE)
    smm = Prop("smm", STATE)
    ioapic = Prop("ioapic/@driver")
    gic_version = Prop("gic/@version")
    vmcoreinfo = Prop("vmcoreinfo", STATE)
