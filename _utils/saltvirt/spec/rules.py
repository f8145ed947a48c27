"""Conditions between the arguments of a guest, and shorthands for some of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from saltvirt.errors import InvalidInput
from saltvirt.spec import chardev, graphics, values

if TYPE_CHECKING:
    from collections.abc import Mapping

    from saltvirt.spec.guest_spec import GuestSpec


def shorthands(spec: GuestSpec, options: Mapping[str, Any]) -> None:
    """Expand the shorthand arguments."""
    if values.boolean(options.get("enable_vnc") or False, "enable_vnc") and spec.graphics is None:
        spec.graphics = graphics.parse_graphics("vnc")
    kind = options.get("serial_type")
    if kind not in (None, "None", "none", "") and spec.serials is None:
        spec.serials = chardev.parse({"type": kind}, "serial_type")
        spec.consoles = spec.consoles or chardev.parse({"type": kind}, "serial_type")
    if options.get("stop_on_reboot") is not None:
        _stop_on_reboot(spec, values.boolean(options["stop_on_reboot"], "stop_on_reboot"))
    if options.get("kvm_hidden") is not None:
        hidden = values.boolean(options["kvm_hidden"], "kvm_hidden")
        spec.features = {**(spec.features or {}), "kvm_hidden": hidden}


def _stop_on_reboot(spec: GuestSpec, stop: bool) -> None:
    if stop and spec.on_reboot not in (None, "destroy"):
        raise InvalidInput("stop_on_reboot and on_reboot contradict each other")
    spec.on_reboot = spec.on_reboot or ("destroy" if stop else "restart")


def agree(spec: GuestSpec) -> None:
    """Raise InvalidInput for contradictory disks, interfaces or boot orders."""
    targets = [disk.target for disk in spec.disks or () if disk.target]
    for target in targets:
        if targets.count(target) > 1:
            raise InvalidInput(f"disks: the target {target} is requested twice")
    macs = [nic.mac for nic in spec.nics or () if nic.mac]
    for mac in macs:
        if macs.count(mac) > 1:
            raise InvalidInput(f"interfaces: the mac {mac} is requested twice")
    ordered = [item.name for item in (*(spec.disks or ()), *(spec.nics or ())) if item.boot_order]
    if spec.boot_dev and ordered:
        raise InvalidInput(
            f"boot_dev and the boot_order of {ordered[0]} exclude each other: give one"
        )


def complete(spec: GuestSpec, options: Mapping[str, Any]) -> None:
    """Check that a new guest has all required arguments. Raises InvalidInput."""
    if not spec.cpu.maximum:
        raise InvalidInput("cpu is missing: the number of virtual CPUs")
    if not spec.memory.boot_kib:
        raise InvalidInput("mem is missing: the memory in MiB")
    if spec.deploy.image:
        _assign_image(spec, options)
    elif spec.deploy.image_hash:
        raise InvalidInput("image_hash needs image")
    made_from = [disk for disk in spec.disks or () if disk.image and disk.device == "disk"]
    if spec.deploy.overlay and not made_from:
        raise InvalidInput("overlay and enable_qcow need image, the base image")
    for disk in made_from:
        if spec.deploy.overlay and disk.overlay_image is None:
            disk.overlay_image = True


def _assign_image(spec: GuestSpec, options: Mapping[str, Any]) -> None:
    """Set the image of the first hard disk; it overrides the profile's image, but not the
    caller's."""
    image = spec.deploy.image
    disk = next((disk for disk in spec.disks or () if disk.device == "disk"), None)
    if disk is None:
        raise InvalidInput("image needs a disk, but the disk profile has none")
    requested_images = [
        item.get("image") for item in options.get("disks") or () if item.get("name") == disk.name
    ]
    if any(requested_images) and requested_images[-1] != image:
        raise InvalidInput(f"image and the image of disk {disk.name} contradict each other")
    disk.image = image
    disk.image_hash = spec.deploy.image_hash or disk.image_hash
