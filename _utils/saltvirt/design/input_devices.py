"""Keyboards and pointing devices of the guest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.design.caps import X86
from saltvirt.errors import Unsupported
from saltvirt.spec.input import EVDEV
from saltvirt.xml.devices.controller import Controller
from saltvirt.xml.devices.input import BUILT_IN, Input

if TYPE_CHECKING:
    from saltvirt.design.context import Context
    from saltvirt.spec.guest_spec import GuestSpec
    from saltvirt.spec.input import InputSpec
    from saltvirt.xml.domain.domain import Domain


def apply(spec: GuestSpec, domain: Domain, context: Context) -> None:
    """Apply a GuestSpec's inputs to a domain, as a complete list. Devices that belong to the
    machine, as those of PS/2, are kept."""
    if spec.inputs is None:
        return
    if spec.inputs and not context.qemu:
        raise Unsupported(f"inputs: guests of {context.virt_type} have none")
    existing = [item for item in domain.inputs if item.bus not in BUILT_IN]
    domain.inputs = [item for item in domain.inputs if item.bus in BUILT_IN]
    for input_spec in spec.inputs:
        device = _device(input_spec)
        if device.bus in BUILT_IN and context.guest.arch not in X86:
            raise Unsupported(f"inputs: machine {domain.os.machine} has no bus {device.bus}")
        same = next((item for item in existing if _key(item) == _key(device)), None)
        if same is not None:
            existing.remove(same)
            device = same.copy()
            _grab(input_spec, device)
        elif device.bus in BUILT_IN and any(_key(item) == _key(device) for item in domain.inputs):
            continue
        domain.inputs.append(device)
    _usb(domain)


def _device(spec: InputSpec) -> Input:
    device = Input(type=spec.type, bus=None if spec.type == EVDEV else spec.bus or "usb")
    device.source_dev = spec.source
    _grab(spec, device)
    return device


def _grab(spec: InputSpec, device: Input) -> None:
    """Let the guest take the host's device, or both use it; what is not given is unchanged."""
    if spec.grab is not None:
        device.grab = "all" if spec.grab else None
    if spec.repeat is not None:
        device.repeat = spec.repeat or None


def _key(device: Input) -> tuple[str | None, ...]:
    return device.type, device.bus, device.source_dev


def _usb(domain: Domain) -> None:
    """Add the USB 3 controller for a new guest's USB devices: libvirt's default is USB 1.1."""
    has_usb = any(item.bus == "usb" for item in domain.inputs)
    if has_usb and not any(item.type == "usb" for item in domain.controllers):
        domain.controllers.append(Controller(type="usb", model="qemu-xhci"))


def default(spec: GuestSpec, domain: Domain, context: Context) -> None:
    """Add pointing device and keyboard for the display of a new guest. A tablet reports absolute
    positions, so that the pointer is where the client shows it. x86 has a PS/2 keyboard."""
    if spec.inputs is not None or not context.qemu or not len(domain.graphics):
        return
    for kind in ("tablet",) if context.guest.arch in X86 else ("keyboard", "tablet"):
        domain.inputs.append(Input(type=kind, bus="usb"))
    _usb(domain)
