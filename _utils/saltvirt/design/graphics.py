"""The guest's display."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.design.chardevs import EVERYWHERE, OPEN
from saltvirt.design.put import put
from saltvirt.errors import Unsupported
from saltvirt.spec.base import REMOVE, value_or_none
from saltvirt.xml.devices.chardev import Channel
from saltvirt.xml.devices.graphics import Graphics, Listen
from saltvirt.xml.devices.video import Video

if TYPE_CHECKING:
    from saltvirt.design.context import Context
    from saltvirt.spec.graphics import GraphicsSpec, ListenSpec
    from saltvirt.xml.domain.domain import Domain

LOCAL = "127.0.0.1"
SPICE_CHANNEL = "com.redhat.spice.0"


def apply(spec: GraphicsSpec | None, domain: Domain, context: Context) -> None:
    """Apply a GraphicsSpec to a domain, which has at most one display."""
    if spec is None:
        return
    if spec.type == "none":
        domain.graphics = []
        _without_spice(domain)
        return
    if not context.allows("graphics", "type", spec.type):
        raise Unsupported(f"graphics: this host's guests have no {spec.type}")
    same = [item for item in domain.graphics if item.type == spec.type]
    fresh = not same
    if fresh:
        domain.graphics = [Graphics(type=spec.type)]
        same = [domain.graphics[0]]
    _edit(same[0], spec, fresh)
    listen_spec = value_or_none(spec.listen)
    if not fresh and not _is_placed(listen_spec) and _listens_anywhere(same[0]):
        context.warnings.append(OPEN.format(f"display {spec.type}", "listen"))
    if spec.type != "spice":
        _without_spice(domain)
    elif _has_channel(context) and not any(c.name == SPICE_CHANNEL for c in domain.channels):
        domain.channels.append(Channel(type="spicevmc", target_type="virtio", name=SPICE_CHANNEL))
    video(domain, context)


def _has_channel(context: Context) -> bool:
    return context.qemu and context.allows("channel", "type", "spicevmc", unknown=context.qemu)


def _edit(graphics: Graphics, spec: GraphicsSpec, fresh: bool) -> None:
    port, tls_port = value_or_none(spec.port), value_or_none(spec.tls_port)
    graphics.socket = None
    if port or tls_port:
        graphics.autoport = False
        graphics.port, graphics.tls_port = port, tls_port
    elif fresh or REMOVE in (spec.port, spec.tls_port):
        graphics.autoport = True
        graphics.port, graphics.tls_port = None, None
    listen_spec = value_or_none(spec.listen)
    if fresh or (listen_spec and not _is_unchanged(graphics, listen_spec)):
        listen(graphics, listen_spec)
    put(graphics, spec)


def _is_placed(listen: ListenSpec | None) -> bool:
    """Whether a ListenSpec names an address, network or socket."""
    return listen is not None and (listen.type != "address" or bool(listen.address))


def _is_unchanged(graphics: Graphics, listen: ListenSpec) -> bool:
    """Whether a display already listens on an address, and no other one was requested."""
    return not _is_placed(listen) and any(item.type == "address" for item in graphics.listens)


def _listens_anywhere(graphics: Graphics) -> bool:
    return any(item.address in EVERYWHERE for item in graphics.listens)


def listen(graphics: Graphics, spec: ListenSpec | None) -> None:
    """Set where a display listens: as requested, otherwise on the host itself only."""
    desired = Listen(type=spec.type if spec else "address")
    if spec is None or desired.type == "address":
        desired.address = (spec.address if spec else None) or LOCAL
    elif desired.type == "network":
        desired.network = spec.network
    elif desired.type == "socket":
        desired.socket = spec.socket
        graphics.autoport = graphics.port = graphics.websocket = None  # a socket has no port
    listens = [_address_of(item) for item in graphics.listens]
    # libvirt writes an address twice, other tools in one of the two places
    first = ("address", graphics.listen or desired.address)
    current = {*(listens or [("address", graphics.listen)]), first}
    if desired.type == "address" and current == {("address", desired.address)}:
        return
    graphics.listen = desired.address
    if listens != [_address_of(desired)]:
        graphics.listens = [desired]


def _address_of(item: Listen) -> tuple[str | None, str | None]:
    return item.type, item.address if item.type == "address" else item.network


def _without_spice(domain: Domain) -> None:
    """Remove devices that only work with a SPICE display."""
    for name, word in (("channels", "spicevmc"), ("redirdevs", "spicevmc"), ("audios", "spice")):
        view = getattr(domain, name)
        for item in view:
            if item.type == word:
                view.remove(item)


def video(domain: Domain, context: Context) -> None:
    """Add a graphics card for a display, because libvirt's default is unsuitable."""
    if len(domain.videos) or not context.qemu or not len(domain.graphics):
        return
    for model in ("virtio", "vga", "cirrus"):
        if context.allows("video", "modelType", model):
            domain.videos.append(Video(model=model))
            return
