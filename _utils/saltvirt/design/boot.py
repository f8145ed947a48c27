"""How the guest boots: firmware, kernel, order."""

from saltvirt.design.put import put, replace, said
from saltvirt.errors import Unsupported
from saltvirt.spec.base import REMOVE
from saltvirt.xml.os import Boot


def apply(spec, domain, context):
    """Lays a GuestSpec's boot and boot_dev onto a domain."""
    if spec.boot is not None:
        put(domain.os, spec.boot, "kernel", "initrd", "cmdline")
        _firmware(spec.boot, domain.os, context)
    if spec.boot_dev is not None:
        replace(domain.os, "boots", [Boot(dev=dev) for dev in spec.boot_dev])
        for device in (*domain.disks, *domain.interfaces):
            device.boot_order = None  # libvirt takes one way of saying it, not both


def _firmware(spec, os, context):
    if said(spec.loader) and said(spec.nvram):
        os.firmware = None
        if os.loader != spec.loader:
            os.loader, os.loader_type, os.loader_readonly = spec.loader, "pflash", True
        if os.nvram_template != spec.nvram:
            os.nvram = None
            os.nvram_template = spec.nvram
    elif spec.efi:
        _automatic(spec, os, context)
    elif spec.efi is False or spec.loader is REMOVE:
        os.firmware = None
        os.loader = os.loader_type = os.loader_readonly = os.loader_secure = None
        os.nvram = os.nvram_template = None


def _automatic(spec, os, context):
    """Let libvirt choose the firmware; what it chose before stays."""
    known = context.domain
    if known is not None and "efi" not in known.firmware:
        raise Unsupported("boot: efi: this host has no EFI firmware (package ovmf or edk2)")
    if os.firmware != "efi":
        os.loader = os.loader_type = os.loader_readonly = None
        os.nvram = os.nvram_template = None
        os.firmware = "efi"
    if spec.secure is not None:
        os.loader_secure = spec.secure or None
