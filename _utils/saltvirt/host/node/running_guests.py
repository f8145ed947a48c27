"""Which guests run here, from files alone: the daemon may be stopped, or not there any more."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

_DRIVERS = ("qemu", "lxc")


def names(root: str | Path = "/run/libvirt", proc: str | Path = "/proc") -> list[str]:
    """The guests whose process lives, sorted. libvirt keeps a file about each that runs."""
    status_files = (path for driver in _DRIVERS for path in Path(root, driver).glob("*.xml"))
    return sorted(path.stem for path in status_files if _is_alive(path, proc))


def _is_alive(path: Path, proc: str | Path) -> bool:
    try:
        status = ElementTree.parse(path).getroot()
    except FileNotFoundError:  # the guest ended meanwhile
        return False
    except ElementTree.ParseError:
        return True  # rather one too many than a guest whose hypervisor is taken away
    return status.tag == "domstatus" and Path(proc, status.get("pid", "none")).exists()
