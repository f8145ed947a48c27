"""Running guests, from files alone: libvirt may be stopped or removed."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

_DRIVERS = ("qemu", "lxc")


def names(root: str | Path = "/run/libvirt", proc: str | Path = "/proc") -> list[str]:
    """Return the sorted names of the guests whose process exists, from libvirt's status files."""
    status_files = (path for driver in _DRIVERS for path in Path(root, driver).glob("*.xml"))
    return sorted(path.stem for path in status_files if _is_alive(path, proc))


def _is_alive(path: Path, proc: str | Path) -> bool:
    try:
        status = ElementTree.parse(path).getroot()
    except FileNotFoundError:  # the guest stopped meanwhile
        return False
    except ElementTree.ParseError:
        return True  # better one guest too many than removing the hypervisor of a running guest
    return status.tag == "domstatus" and Path(proc, status.get("pid", "none")).exists()
