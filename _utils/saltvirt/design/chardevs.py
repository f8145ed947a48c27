"""Serial ports, consoles and the channel to the guest agent."""

from saltvirt.errors import InvalidInput
from saltvirt.xml.chardev import Channel, Console, Serial

AGENT = "org.qemu.guest_agent.0"


def build(cls, spec):
    """A Serial or Console for a CharSpec."""
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
    device.target_port = spec.target_port
    device.target_type = spec.target_type
    device.log_file = spec.log_file
    return device


def apply(spec, domain, context):
    """Lays a GuestSpec's serials and consoles onto a domain: a list given is all there is."""
    del context
    for name, cls in (("serials", Serial), ("consoles", Console)):
        wanted = getattr(spec, name)
        if wanted is None:
            continue
        new = [build(cls, item) for item in wanted]
        there = list(getattr(domain, name))
        if name == "consoles" and mirrored(there, new, domain):
            there = there[1:]
        if not _same(there, new):
            setattr(domain, name, new)
    if spec.consoles:
        _agree(domain)


def _agree(domain):
    """Raises InvalidInput for a first console that libvirt would overwrite: it takes it for
    the first serial port, whatever else was asked for."""
    serial, console = next(iter(domain.serials), None), domain.consoles[0]
    if serial and console.target_type in (None, "serial") and not covers(serial, _bare(console)):
        raise InvalidInput(
            f"consoles: the first one is on the first serial port, of type {serial.type}: give "
            "both the same, or the console target_type virtio"
        )


def _bare(console):
    """A console without its target, to compare with a serial port."""
    console = console.copy()
    console.target_type = console.target_port = None
    return console


def mirrored(there, new, domain):
    """True when the first console is the one libvirt put on the first serial port."""
    if not there or not len(domain.serials) or there[0].target_type != "serial":
        return False
    return not new or new[0].target_type not in (None, "serial")


def _same(old, new):
    """Whether the devices there are what was asked for; what was not said counts not."""
    if len(old) != len(new):
        return False
    return all(covers(was, item) for was, item in zip(old, new, strict=True))


def covers(old, new):
    """True when every property that ``new`` has is so in ``old``."""
    names = ("type", "protocol", "target_port", "target_type", "log_file")
    parts = ("mode", "path", "host", "service", "tls")
    pairs = [(getattr(old, n), getattr(new, n)) for n in names]
    if new.type != "pty" or new.source.path:
        pairs += [(getattr(old.source, n), getattr(new.source, n)) for n in parts]
    return all(want is None or want == is_ for is_, want in pairs)


def default(domain, context):
    """A serial port with a console on it, so that every guest can be reached without network."""
    if len(domain.serials) or len(domain.consoles):
        return
    if context.qemu or (context.xen and context.guest.os_type == "hvm"):
        domain.serials.append(Serial(type="pty"))
        domain.consoles.append(Console(type="pty", target_type="serial"))
    elif context.xen or context.container:
        domain.consoles.append(Console(type="pty"))


def agent(domain, context, wanted):
    """The channel of the QEMU guest agent: there by default with QEMU."""
    there = [item for item in domain.channels if item.name == AGENT]
    if wanted is False:
        for channel in list(domain.channels):
            if channel.name == AGENT:
                domain.channels.remove(channel)
    elif not there and context.qemu:
        domain.channels.append(Channel(type="unix", target_type="virtio", name=AGENT))
