"""The operating system of a guest by name: families, and the short names of osinfo-db."""

from __future__ import annotations

import difflib
import glob
import re
from collections.abc import Iterator
from xml.etree import ElementTree

from saltvirt import errors
from saltvirt.design.operating_system import WINDOWS, GuestOs

# later ones override earlier ones, as in libosinfo
FOLDERS = ("/usr/share/osinfo/os", "/usr/local/share/osinfo/os", "/etc/osinfo/os")


def _windows(name: str, id: str | None = None, secure: bool = False) -> GuestOs:
    return GuestOs(name, WINDOWS, id, virtio_disk=False, virtio_nic=False, pcie=True, secure=secure)


_FAMILIES = {
    name: GuestOs(name, name)
    for name in ("linux", "freebsd", "netbsd", "openbsd", "dragonflybsd")
} | {
    WINDOWS: _windows(WINDOWS),
    "generic": GuestOs("generic", "generic", virtio_disk=False, virtio_nic=False),
}  # fmt: skip
# for hosts without osinfo-db, or with an older one: libosinfo's identifier without the version
_VENDORS = {
    "debian": ("http://debian.org/debian/", ("10", "11", "12", "13")),
    "ubuntu": ("http://ubuntu.com/ubuntu/", ("20.04", "22.04", "24.04", "26.04")),
    "rhel": ("http://redhat.com/rhel/", ("8.0", "9.0", "10.0")),
    "almalinux": ("http://almalinux.org/almalinux/", ("8", "9", "10")),
    "rocky": ("http://rockylinux.org/rocky/", ("8", "9", "10")),
    "centos-stream": ("http://centos.org/centos-stream/", ("8", "9", "10")),
}
_WINDOWS_IDS = {
    "win10": "10", "win11": "11", "win2k16": "2k16", "win2k19": "2k19", "win2k22": "2k22",
    "win2k25": "2k25",
}  # fmt: skip
_FAMILY_OF = {"winnt": WINDOWS, "win9x": "generic", "win16": "generic"}
# libosinfo's devices, as virtio 0.9 and 1.0
_VIRTIO_DISK = {"http://pcisig.com/pci/1af4/1001", "http://pcisig.com/pci/1af4/1042"}
_VIRTIO_NIC = {"http://pcisig.com/pci/1af4/1000", "http://pcisig.com/pci/1af4/1041"}
_E1000E = "http://pcisig.com/pci/8086/10d3"
# the first Windows of each line that requires secure boot
_SECURE = ("win11",)


def find(name: str) -> GuestOs:
    """Return the GuestOs of a family or short name. Raises InvalidInput with the closest name."""
    if name in _FAMILIES:
        return _FAMILIES[name]
    guest_os = _from_database(name) or _builtin().get(name)
    if guest_os is None:
        raise errors.InvalidInput(f"os: unknown {name!r}, {_hint(name)}")
    return guest_os


def _hint(name: str) -> str:
    """Return what to type instead of an unknown name."""
    if name in _VENDORS:
        names = (f"{name}{version}" for version in _VENDORS[name][1])
        return f"give its version, for example {', '.join(names)}"
    choices = [*_FAMILIES, *_builtin(), *_short_ids()]
    short = name.replace("windows", "win", 1)
    near = [short] if short in choices else difflib.get_close_matches(name, choices, n=1)
    return f"did you mean {near[0]!r}?" if near else f"families: {', '.join(_FAMILIES)}"


def _builtin() -> dict[str, GuestOs]:
    result = {
        f"{vendor}{version}": GuestOs(f"{vendor}{version}", "linux", base + version)
        for vendor, (base, versions) in _VENDORS.items()
        for version in versions
    }
    for name, version in _WINDOWS_IDS.items():
        url = f"http://microsoft.com/win/{version}"
        result[name] = _windows(name, url, secure=name in _SECURE)
    return result


def _texts() -> Iterator[str]:
    """Yield the text of each definition; an unreadable file has none."""
    for folder in FOLDERS:
        for path in sorted(glob.glob(f"{folder}/*/*.xml")):
            try:
                with open(path, encoding="utf-8") as file:
                    yield file.read()
            except (OSError, UnicodeDecodeError):
                continue


_SHORT_ID = re.compile(r"<short-id>\s*([^<\s]+)\s*</short-id>")


def _short_ids() -> set[str]:
    return {name.lower() for text in _texts() for name in _SHORT_ID.findall(text)}


def _from_database(name: str) -> GuestOs | None:
    """Return the GuestOs of a short name of osinfo-db; None if it has none."""
    texts = list(_texts())
    elements = [
        element
        for text in texts
        if name in (word.lower() for word in _SHORT_ID.findall(text))
        for element in _parsed(text)
    ]
    if not elements:
        return None
    element = elements[-1]
    devices = _devices(element, texts)
    family = (element.findtext("family") or "").strip()
    family = _FAMILY_OF.get(family, family)
    is_windows = family == WINDOWS
    return GuestOs(
        name,
        family,
        element.get("id"),
        virtio_disk=bool(_VIRTIO_DISK & devices),
        virtio_nic=bool(_VIRTIO_NIC & devices),
        pcie=_E1000E in devices,
        secure=is_windows and _requires_efi(element),
    )


def _requires_efi(element: ElementTree.Element) -> bool:
    """Return whether a system does not boot from BIOS."""
    return element.find("firmware[@type='bios'][@supported='false']") is not None


def _parsed(text: str) -> list[ElementTree.Element]:
    """Return the definition in a text; none if it is damaged."""
    try:
        element = ElementTree.fromstring(text).find("os")
    except ElementTree.ParseError:
        return []
    return [] if element is None else [element]


def _devices(element: ElementTree.Element, texts: list[str]) -> set[str]:
    """Return the devices that a system supports, and those of the systems it derives from."""
    devices, removed, visited = set[str](), set[str](), set[str]()
    waiting = [element]
    while waiting:
        current = waiting.pop(0)
        for device in current.findall("devices/device"):
            is_removed = device.get("removed") == "true"
            (removed if is_removed else devices).add(device.get("id", ""))
        for parent in (*current.findall("derives-from"), *current.findall("clones")):
            parent_id = parent.get("id", "")
            if parent_id not in visited:
                visited.add(parent_id)
                marker = f'<os id="{parent_id}"'
                waiting.extend(e for text in texts if marker in text for e in _parsed(text))
    return devices - removed
