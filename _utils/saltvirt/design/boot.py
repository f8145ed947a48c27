"""The guest's boot: firmware, kernel, order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.design.put import is_given, put, replace
from saltvirt.errors import InvalidInput, Unsupported
from saltvirt.spec.base import REMOVE, value_or_none
from saltvirt.xml.devices.hostdev import HostDevice
from saltvirt.xml.devices.interface import Interface
from saltvirt.xml.domain.os import ENROLLED_KEYS, SECURE_BOOT, Boot, FirmwareFeature

if TYPE_CHECKING:
    from saltvirt.design.context import Context
    from saltvirt.spec.boot import BootSpec
    from saltvirt.spec.guest_spec import GuestSpec
    from saltvirt.xml.devices.disk import Disk
    from saltvirt.xml.domain.domain import Domain
    from saltvirt.xml.domain.os import Os

_FIRMWARE_KEYS, _KERNEL_KEYS = (
    ("efi", "loader", "secure", "enrolled_keys"),
    ("kernel", "initrd", "cmdline"),
)
# architectures whose machines boot only with EFI
NO_BIOS = ("aarch64", "armv7l", "riscv64", "loongarch64")


def apply(spec: GuestSpec, domain: Domain, context: Context) -> None:
    """Apply a GuestSpec's boot and boot_dev to a domain."""
    _refuse(spec, context.guest.os_type)
    if spec.boot_dev and domain.bootloader:
        raise Unsupported(f"boot_dev: this guest boots with the bootloader {domain.bootloader}")
    if spec.boot is not None:
        put(domain.os, spec.boot)
        _require_kernel(spec.boot, domain.os, context)
        _firmware(spec.boot, domain.os, context)
        _secure(spec.boot, domain, context)
    if spec.boot_dev is not None:
        replace(domain.os, "boots", [Boot(dev=dev) for dev in spec.boot_dev])
        for device in (*domain.disks, *domain.interfaces, *domain.host_devices, *domain.redirdevs):
            # libvirt accepts only one of the two notations
            for said_there in device.need().findall("boot"):
                device.need().remove(said_there)


def _require_kernel(spec: BootSpec, os: Os, context: Context) -> None:
    """Raise InvalidInput for an initrd or a command line without kernel, which QEMU refuses."""
    for word in ("initrd", "cmdline"):
        if context.guest.os_type == "hvm" and is_given(getattr(spec, word)) and not os.kernel:
            raise InvalidInput(f"boot: {word} needs kernel")


def _refuse(spec: GuestSpec, os_type: str) -> None:
    """Raise Unsupported for settings that libvirt would drop: only machines have firmware."""
    if os_type == "hvm":
        return
    for word in (*_FIRMWARE_KEYS, *(_KERNEL_KEYS if os_type == "exe" else ())):
        if spec.boot and is_given(getattr(spec.boot, word)):
            raise Unsupported(f"boot: {word}: a guest of OS type {os_type} has none")
    if spec.boot_dev:
        raise Unsupported(f"boot_dev: a guest of OS type {os_type} has no devices to boot from")


def ordered(spec: GuestSpec) -> bool:
    """True if the devices themselves have a boot order."""
    return any(item.boot_order for item in (*(spec.disks or ()), *(spec.nics or ())))


def give_way(domain: Domain, actual: Domain) -> None:
    """Clear the boot order of a device whose number another device gets: libvirt accepts each
    number only once."""
    before = {_key(device): device.boot_order for device in _bootable(actual)}
    after = [device for device in _bootable(domain) if device.boot_order]
    fresh = {device.boot_order for device in after if before.get(_key(device)) != device.boot_order}
    for device in after:
        if device.boot_order in fresh and before.get(_key(device)) == device.boot_order:
            device.boot_order = None


def _bootable(domain: Domain) -> list[Disk | Interface | HostDevice]:
    return [*domain.disks, *domain.interfaces, *domain.host_devices]


def _key(device: Disk | Interface | HostDevice) -> tuple[object, ...]:
    """The key of a device among those of its kind."""
    if isinstance(device, HostDevice):
        return device.TAG, device.source_key()
    return device.TAG, device.mac if isinstance(device, Interface) else device.target


def default(spec: GuestSpec, domain: Domain, context: Context) -> None:
    """Set the default boot of a new guest: from its disk, and with EFI if there is no BIOS."""
    if context.guest.os_type != "hvm":
        return
    if spec.boot_dev is None and not ordered(spec):
        domain.os.boots.append(Boot(dev="hd"))
    firmware = context.domain.firmware if context.domain else ()
    if spec.boot is None and context.guest.arch in NO_BIOS and "efi" in firmware:
        domain.os.firmware = "efi"
        _ask_for(domain.os, secure=False)


def _firmware(spec: BootSpec, os: Os, context: Context) -> None:
    if is_given(spec.loader) and is_given(spec.nvram):
        os.firmware = None
        os.firmware_features = []
        if os.loader != spec.loader:
            os.loader, os.loader_type, os.loader_readonly = spec.loader, "pflash", True
        if os.nvram_template != spec.nvram:
            os.forget_variables()
            os.nvram_template = spec.nvram
    elif spec.efi:
        _automatic(spec, os, context)
    elif spec.efi is False or spec.loader is REMOVE:
        os.firmware = os.loader_secure = None
        os.firmware_features = []
        _choose_anew(os)


def _automatic(spec: BootSpec, os: Os, context: Context) -> None:
    """Let libvirt choose the firmware; its previous choice is kept."""
    if os.firmware == "efi":
        return
    domain_caps = context.domain
    if domain_caps is not None and "efi" not in domain_caps.firmware:
        raise Unsupported("boot: efi: this host has no EFI firmware (package ovmf or edk2)")
    _choose_anew(os)
    os.firmware = "efi"
    _ask_for(os, secure=False)


def _choose_anew(os: Os) -> None:
    """Clear the firmware's files, so that libvirt chooses them."""
    os.loader = os.loader_type = os.loader_readonly = None
    os.forget_variables()
    os.nvram_template = None


def _ask_for(os: Os, secure: bool, enrolled: bool | None = None) -> None:
    """Request firmware with secure boot and enrolled keys, or without either. If libvirt is free to
    choose, it takes the first firmware that fits the machine: for q35, the one that only runs
    signed systems. enrolled: None: keys only with secure boot.
    """
    switches = {ENROLLED_KEYS: secure if enrolled is None else enrolled, SECURE_BOOT: secure}
    features = [FirmwareFeature(enabled=value, name=name) for name, value in switches.items()]
    replace(os, "firmware_features", features)
    os.loader_secure = secure or None


def _firmware_features(spec: BootSpec, os: Os) -> None:
    """Request the secure boot and keys of a spec; what it does not name stays as it is."""
    if spec.secure is None and spec.enrolled_keys is None:
        return
    secure = bool(os.secure if spec.secure is None else spec.secure)
    enrolled = os.enrolled if secure is os.secure else None
    if spec.enrolled_keys is not None:
        enrolled = value_or_none(spec.enrolled_keys)
    if enrolled and not secure:
        raise Unsupported("boot: enrolled_keys: give secure: True too")
    other_keys = spec.enrolled_keys is not None and os.enrolled is not enrolled
    if os.secure is not secure or other_keys:
        _choose_anew(os)
    _ask_for(os, secure, enrolled)


def _secure(spec: BootSpec, domain: Domain, context: Context) -> None:
    """Set secure boot in the firmware, and the CPU mode that protects it."""
    if spec.secure and context.domain and not context.domain.secure_boot:
        raise Unsupported("boot: secure: no firmware for this machine type supports it; try q35")
    if domain.os.firmware == "efi":
        _firmware_features(spec, domain.os)
    elif is_given(spec.enrolled_keys):
        raise Unsupported("boot: enrolled_keys: give efi: True and secure: True too")
    elif spec.secure and not domain.os.loader:
        raise Unsupported("boot: secure: give efi: True too")
    elif spec.secure is not None:
        domain.os.loader_secure = spec.secure or None
    if spec.secure:
        domain.features.smm = True
