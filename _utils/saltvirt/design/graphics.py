"""The guest's display."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.design.chardevs import EVERYWHERE, OPEN
from saltvirt.errors import Unsupported
from saltvirt.spec.base import REMOVE, given
from saltvirt.xml.chardev import Channel
from saltvirt.xml.controller import Controller
from saltvirt.xml.graphics import Graphics, Listen
from saltvirt.xml.input import Input
from saltvirt.xml.video import Video

if TYPE_CHECKING:
    from saltvirt.design.context import Context
    from saltvirt.spec.graphics import GraphicsSpec, ListenSpec
    from saltvirt.xml.domain import Domain

LOCAL = "127.0.0.1"
SPICE_CHANNEL = "com.redhat.spice.0"


def apply(spec: GraphicsSpec | None, domain: Domain, context: Context) -> None:
    """Lays a GraphicsSpec onto a domain: there is one display, or none."""
    if spec is None:
        return
    if spec.type == "none":
        domain.graphics = []
        _without_spice(domain)
        return
    if not context.allows("graphics", "type", spec.type):
        raise Unsupported(f"graphics: this host's guests have no {spec.type}")
    same = [item for item in domain.graphics if item.type == spec.type]
    if not same:
        domain.graphics = [Graphics(type=spec.type)]
        same = [domain.graphics[0]]
        fresh = True
    else:
        fresh = False
    _edit(same[0], spec, fresh)
    place = given(spec.listen)
    if not fresh and not _placed(place) and _everywhere(same[0]):
        context.warnings.append(OPEN.format(f"display {spec.type}", "listen"))
    if spec.type != "spice":
        _without_spice(domain)
    elif _has_channel(context) and not any(c.name == SPICE_CHANNEL for c in domain.channels):
        domain.channels.append(Channel(type="spicevmc", target_type="virtio", name=SPICE_CHANNEL))
    video(domain, context)


def _has_channel(context: Context) -> bool:
    return context.qemu and context.allows("channel", "type", "spicevmc", unknown=context.qemu)


def _edit(graphics: Graphics, spec: GraphicsSpec, fresh: bool) -> None:
    port, tls_port = given(spec.port), given(spec.tls_port)
    graphics.socket = None
    if port or tls_port:
        graphics.autoport = False
        graphics.port, graphics.tls_port = port, tls_port
    elif fresh or REMOVE in (spec.port, spec.tls_port):
        graphics.autoport = True
        graphics.port, graphics.tls_port = None, None
    place = given(spec.listen)
    if fresh or (place and not _as_it_is(graphics, place)):
        listen(graphics, place)
    for name in ("password", "keymap", "websocket"):
        value = getattr(spec, name)
        if value is not None:
            setattr(graphics, name, given(value))


def _placed(listen: ListenSpec | None) -> bool:
    """Whether a ListenSpec says where."""
    return listen is not None and (listen.type != "address" or bool(listen.address))


def _as_it_is(graphics: Graphics, listen: ListenSpec) -> bool:
    """Whether a display listens on some address already, and no other was named."""
    return not _placed(listen) and any(item.type == "address" for item in graphics.listens)


def _everywhere(graphics: Graphics) -> bool:
    return any(item.address in EVERYWHERE for item in graphics.listens)


def listen(graphics: Graphics, spec: ListenSpec | None) -> None:
    """Where a display listens: as asked, else on the host itself only."""
    wanted = Listen(type=spec.type if spec else "address")
    if spec is None or wanted.type == "address":
        wanted.address = (spec.address if spec else None) or LOCAL
    elif wanted.type == "network":
        wanted.network = spec.network
    elif wanted.type == "socket":
        wanted.socket = spec.socket
        graphics.autoport = graphics.port = graphics.websocket = None  # a socket has no port
    now = [(i.type, i.address if i.type == "address" else i.network) for i in graphics.listens]
    # libvirt says an address twice, others say it in one of the two places
    one = ("address", wanted.address)
    there = {*(now or [("address", graphics.listen)]), ("address", graphics.listen or one[1])}
    if wanted.type == "address" and there == {one}:
        return
    graphics.listen = wanted.address
    if now != [(wanted.type, wanted.address if wanted.type == "address" else wanted.network)]:
        graphics.listens = [wanted]


def _without_spice(domain: Domain) -> None:
    """Takes away what works through a SPICE display only."""
    for name, word in (("channels", "spicevmc"), ("redirdevs", "spicevmc"), ("audios", "spice")):
        view = getattr(domain, name)
        for item in view:
            if item.type == word:
                view.remove(item)


def inputs(domain: Domain, context: Context) -> None:
    """Keyboard and pointer for a display on machines that have none of their own."""
    if not context.qemu or not len(domain.graphics) or context.guest.arch in ("x86_64", "i686"):
        return
    if not len(domain.inputs):
        domain.controllers.append(Controller(type="usb", model="qemu-xhci"))
        for kind in ("keyboard", "tablet"):
            domain.inputs.append(Input(type=kind, bus="usb"))


def video(domain: Domain, context: Context) -> None:
    """A graphics card for a display, where libvirt would not choose a good one."""
    if len(domain.videos) or not context.qemu or not len(domain.graphics):
        return
    for model in ("virtio", "vga", "cirrus"):
        if context.allows("video", "modelType", model):
            domain.videos.append(Video(model=model))
            return
