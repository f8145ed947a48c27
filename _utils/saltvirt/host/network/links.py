"""Network devices of this network namespace, queried through netlink.

In a container, /sys/class/net may show the devices of another namespace; netlink does not.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator

_GETLINK, _REQUEST, _DUMP, _DONE, _ERROR = 18, 0x001, 0x300, 3, 2
_IFNAME, _MASTER, _LINKINFO, _INFO_KIND = 3, 10, 18, 1
_HEADER, _IFINFO = 16, 16
BRIDGES = ("bridge", "openvswitch")


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (kind, content) of netlink attributes."""
    offset = 0
    while offset + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, offset)
        if length < 4:
            return
        yield kind & 0x3FFF, data[offset + 4 : offset + length]
        offset += (length + 3) & ~3


def _text(data: bytes) -> str:
    return data.rstrip(b"\0").decode(errors="replace")


def _link(data: bytes) -> tuple[str, str]:
    """Return (name, kind) of a device; kind is empty for hardware."""
    attributes = dict(_attributes(data[_IFINFO:]))
    inner = dict(_attributes(attributes.get(_LINKINFO, b"")))
    return _text(attributes.get(_IFNAME, b"")), _text(inner.get(_INFO_KIND, b""))


def _messages(netlink: socket.socket) -> Iterator[bytes]:
    while True:
        data = netlink.recv(1 << 18)
        offset = 0
        while offset + _HEADER <= len(data):
            length, kind = struct.unpack_from("=IH", data, offset)
            if kind == _DONE:
                return
            if kind == _ERROR:
                code = struct.unpack_from("=i", data, offset + _HEADER)[0]
                raise OSError(-code, os.strerror(-code))
            yield data[offset + _HEADER : offset + length]
            offset += (length + 3) & ~3


def _devices() -> list[bytes]:
    """Return the kernel's message about each device."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
        body = struct.pack("=BxHiII", socket.AF_UNSPEC, 0, 0, 0, 0)
        header = struct.pack("=IHHII", _HEADER + len(body), _GETLINK, _REQUEST | _DUMP, 1, 0)
        netlink.send(header + body)
        return list(_messages(netlink))


def kinds() -> dict[str, str]:
    """Return {name: kind} of all devices, e.g. ``{"br0": "bridge", "eth0": "", "tap3": "tun"}``."""
    return dict(map(_link, _devices()))


def bridge_ports() -> set[str]:
    """Return the names of the devices that are ports of a bridge of any kind."""
    masters = ((_link(device)[0], dict(_attributes(device[_IFINFO:]))) for device in _devices())
    return {name for name, attributes in masters if any(attributes.get(_MASTER, b""))}


def bridges() -> list[str]:
    """Return the names of the Linux and Open vSwitch bridges."""
    return sorted(name for name, kind in kinds().items() if kind in BRIDGES)
