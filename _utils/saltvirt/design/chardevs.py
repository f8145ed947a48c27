"""Serial ports, consoles and the channel to the guest agent."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from saltvirt.design.put import put
from saltvirt.errors import InvalidInput
from saltvirt.xml.devices.chardev import Channel, CharDevice, Console, Serial

if TYPE_CHECKING:
    from collections.abc import Sequence

    from saltvirt.design.context import Context
    from saltvirt.spec.chardev import CharSpec
    from saltvirt.spec.guest_spec import GuestSpec
    from saltvirt.xml.domain.domain import Domain

C = TypeVar("C", bound=CharDevice)

AGENT = "org.qemu.guest_agent.0"
EVERYWHERE = ("0.0.0.0", "::")
OPEN = "{} still listens on all addresses of the host; {}: 127.0.0.1 restricts it"


def build(cls: type[C], spec: CharSpec) -> C:
    """Build a Serial or Console with the settings of a CharSpec only."""
    device = cls(type=spec.type)
    if spec.type in ("tcp", "udp"):
        device.source.mode = "bind" if spec.type == "tcp" else "connect"
        device.source.host, device.source.service = spec.host, spec.port
        device.source.tls = spec.tls
    elif spec.type == "unix":
        device.source.mode, device.source.path = "bind", spec.path
    elif spec.path:
        device.source.path = spec.path
    if spec.type == "tcp":
        device.protocol = spec.protocol
    return put(device, spec)


def apply(spec: GuestSpec, domain: Domain, context: Context) -> None:
    """Apply a GuestSpec's serials and consoles to a domain; a given list is complete.

    An existing device that does not contradict its spec is kept.
    """
    for name, cls, word in (("serials", Serial, "serial port"), ("consoles", Console, "console")):
        char_specs = getattr(spec, name)
        if char_specs is None:
            continue
        existing = list(getattr(domain, name))
        if name == "consoles" and mirrored(
            existing, [build(cls, item) for item in char_specs], domain
        ):
            existing = existing[1:]
        pairs = [
            (item, existing[index] if index < len(existing) else None)
            for index, item in enumerate(char_specs)
        ]
        retained = [old if _is_retained(old, build(cls, item)) else None for item, old in pairs]
        if len(existing) != len(char_specs) or not all(retained):
            new = zip(char_specs, retained, strict=True)
            setattr(
                domain,
                name,
                [old or _new(cls, item, domain, index) for index, (item, old) in enumerate(new)],
            )
        for index, (item, old) in enumerate(zip(char_specs, retained, strict=True)):
            if old is not None and item.host is None and old.source.host in EVERYWHERE:
                context.warnings.append(OPEN.format(f"{word} {index}", "host"))
    if spec.consoles:
        _agree(domain)


def _is_retained(old: CharDevice | None, requested: CharDevice) -> bool:
    return old is not None and covers(old, requested)


def _new(cls: type[C], spec: CharSpec, domain: Domain, index: int) -> C:
    """Build a new device; a first console uses the first serial port, with its settings if
    possible."""
    serial = next(iter(domain.serials), None)
    requested = build(cls, spec)
    on_it = cls is Console and index == 0 and requested.target_type in (None, "serial")
    if on_it and serial and covers(serial, _bare(requested)):
        spec = replace(
            spec, type=serial.type, path=serial.source.path, host=serial.source.host,
            port=serial.source.service, protocol=serial.protocol,
        )  # fmt: skip
    return build(cls, spec.complete())


def _agree(domain: Domain) -> None:
    """Raise InvalidInput for a first console that libvirt would overwrite: libvirt treats it as the
    first serial port."""
    serial, console = next(iter(domain.serials), None), domain.consoles[0]
    if serial and console.target_type in (None, "serial") and not covers(serial, _bare(console)):
        raise InvalidInput(
            f"consoles: the first one is on the first serial port, of type {serial.type}: give "
            "both the same, or the console target_type virtio"
        )


def _bare(console: CharDevice) -> CharDevice:
    """A console without its target, for comparison with a serial port."""
    console = console.copy()
    console.target_type = console.target_port = None
    return console


def mirrored(existing: Sequence[CharDevice], new: Sequence[CharDevice], domain: Domain) -> bool:
    """True if the first console is the one that libvirt added for the first serial port."""
    if not existing or not len(domain.serials) or existing[0].target_type != "serial":
        return False
    return not new or new[0].target_type not in (None, "serial")


def covers(old: CharDevice, new: CharDevice) -> bool:
    """True if all properties of ``new`` have the same values in ``old``."""
    names = ("type", "protocol", "target_port", "target_type", "log_file")
    parts = ("mode", "path", "host", "service", "tls")
    pairs = [(getattr(old, n), getattr(new, n)) for n in names]
    if new.type != "pty" or new.source.path:
        pairs += [(getattr(old.source, n), getattr(new.source, n)) for n in parts]
    return all(new_value is None or new_value == is_ for is_, new_value in pairs)


def default(domain: Domain, context: Context) -> None:
    """Add a serial port with a console, so that every guest is accessible without network."""
    if len(domain.serials) or len(domain.consoles):
        return
    if context.qemu or (context.xen and context.guest.os_type == "hvm"):
        domain.serials.append(Serial(type="pty"))
        domain.consoles.append(Console(type="pty", target_type="serial"))
    elif context.xen or context.container:
        domain.consoles.append(Console(type="pty"))


def agent(domain: Domain, context: Context, enabled: bool | None) -> None:
    """Add or remove the channel of the QEMU guest agent; with QEMU it exists by default."""
    agents = [item for item in domain.channels if item.name == AGENT]
    if enabled is False:
        for channel in list(domain.channels):
            if channel.name == AGENT:
                domain.channels.remove(channel)
    elif not agents and context.qemu:
        domain.channels.append(Channel(type="unix", target_type="virtio", name=AGENT))
