"""How a person gets to a guest's screen and serial port."""

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
    """One display: where it listens, and the commands to reach it."""
    kind, port = node.get("type"), int(node.get("port") or -1)
    found: dict[str, Any] = {
        "type": kind,
        "listen": node.get("listen") or "127.0.0.1",
        "port": None,
    }
    socket = node.get("socket") or next((n.get("socket") for n in node.iter("listen")), None)
    if socket:
        found["socket"] = socket
    if port <= 0:
        return found
    found["port"] = port
    viewer = _VIEWER.get(kind or "", "{0}:{1}")
    if found["listen"] in ("127.0.0.1", "::1", "localhost"):
        address = _bracketed(found["listen"])
        found["tunnel"] = f"ssh -N -L {port}:{address}:{port} root@{host}"
        found["connect"] = viewer.format("localhost", port)
    else:
        reached = host if found["listen"] in _ANY else _bracketed(found["listen"])
        found["connect"] = viewer.format(reached, port)
    return found


def _serial(node: Element, name: str, host: str, uri: str) -> dict[str, Any]:
    """One serial port or console: its device, and the command to reach it."""
    target = node.find("target")
    port = int(target.get("port", 0)) if target is not None else 0
    found: dict[str, Any] = {"type": node.get("type"), "port": port}
    source = node.find("source")
    if found["type"] == "pty":
        found["path"] = node.get("tty") or (source.get("path") if source is not None else None)
        alias = node.find("alias")
        device = f" --devname {alias.get('name')}" if alias is not None else ""
        found["connect"] = f"ssh -t root@{host} virsh -c {uri} console {name}{device}"
    elif found["type"] == "tcp" and source is not None:
        found["connect"] = f"nc {source.get('host')} {source.get('service')}"
    elif source is not None and source.get("path"):
        found["path"] = source.get("path")
    return found


def console(conn: libvirt.virConnect, name: str) -> dict[str, Any]:
    """The guest's displays and serial ports as plain data; see ``virt.console``."""
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
    """The same as Facts; see ``virt.display``."""
    found = console(conn, name)
    return Displays(
        lookup.lookup(conn, name).UUIDString(), found["host"], found["state"],
        (
            *(
                Display(
                    one["type"] or "?", one["listen"] if one["port"] else None, one["port"],
                    one.get("socket"), one.get("connect"), one.get("tunnel"),
                )
                for one in found["graphics"]
            ),
            *(
                Display("serial", socket=one.get("path"), connect=one.get("connect"))
                for one in found["serials"]
            ),
        ),
    )  # fmt: skip
