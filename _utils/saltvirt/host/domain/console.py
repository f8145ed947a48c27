"""Access to a guest's screen and serial ports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from saltvirt.answers.reach import Display, Displays
from saltvirt.host.domain import lookup, stats

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    import libvirt

_VIEWER = {"vnc": "vncviewer {0}:{1}", "spice": "remote-viewer spice://{0}:{1}"}
_ANY = ("0.0.0.0", "::", "")


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _screen(node: Element, host: str) -> dict[str, Any]:
    """Return one display: where it listens, and the commands to reach it."""
    kind, port = node.get("type"), int(node.get("port") or -1)
    display: dict[str, Any] = {
        "type": kind,
        "listen": node.get("listen") or "127.0.0.1",
        "port": None,
    }
    socket = node.get("socket") or next((n.get("socket") for n in node.iter("listen")), None)
    if socket:
        display["socket"] = socket
    if port <= 0:
        return display
    display["port"] = port
    viewer = _VIEWER.get(kind or "", "{0}:{1}")
    if display["listen"] in ("127.0.0.1", "::1", "localhost"):
        address = _bracketed(display["listen"])
        display["tunnel"] = f"ssh -N -L {port}:{address}:{port} root@{host}"
        display["connect"] = viewer.format("localhost", port)
    else:
        host_address = host if display["listen"] in _ANY else _bracketed(display["listen"])
        display["connect"] = viewer.format(host_address, port)
    return display


def _serial(node: Element, name: str, host: str, uri: str) -> dict[str, Any]:
    """Return one serial port or console: its device, and the command to reach it."""
    target = node.find("target")
    port = int(target.get("port", 0)) if target is not None else 0
    serial: dict[str, Any] = {"type": node.get("type"), "port": port}
    source = node.find("source")
    if serial["type"] == "pty":
        serial["path"] = node.get("tty") or (source.get("path") if source is not None else None)
        alias = node.find("alias")
        device = f" --devname {alias.get('name')}" if alias is not None else ""
        serial["connect"] = f"ssh -t root@{host} virsh -c {uri} console {name}{device}"
    elif serial["type"] == "tcp" and source is not None:
        serial["connect"] = f"nc {source.get('host')} {source.get('service')}"
    elif source is not None and source.get("path"):
        serial["path"] = source.get("path")
    return serial


def console(conn: libvirt.virConnect, name: str) -> dict[str, Any]:
    """Return the guest's displays and serial ports as plain data; see ``virt.console``."""
    dom = lookup.lookup(conn, name)
    tree, host = stats.tree(dom), conn.getHostname()
    return {
        "name": name,
        "host": host,
        "state": lookup.state(dom),
        "graphics": [_screen(node, host) for node in tree.iterfind("devices/graphics")],
        "serials": [
            _serial(node, name, host, conn.getURI()) for node in tree.iterfind("devices/serial")
        ],
    }


def displays(conn: libvirt.virConnect, name: str) -> Displays:
    """Return the displays and serial ports as messages; see ``virt.display``."""
    details = console(conn, name)
    return Displays(
        lookup.lookup(conn, name).UUIDString(), details["host"], details["state"],
        (
            *(
                Display(
                    device["type"] or "?", device["listen"] if device["port"] else None,
                    device["port"],
                    device.get("socket"), device.get("connect"), device.get("tunnel"),
                )
                for device in details["graphics"]
            ),
            *(
                Display("serial", socket=device.get("path"), connect=device.get("connect"))
                for device in details["serials"]
            ),
        ),
    )  # fmt: skip
