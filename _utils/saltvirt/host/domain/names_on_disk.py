"""The names of this host's domains, read from libvirt's files, to check whether a name is free
while libvirt does not answer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from saltvirt import errors

# definitions, and the state of running domains
FOLDERS = ("/etc/libvirt", "/run/libvirt")
# libvirt's stateful domain drivers by URI scheme
DRIVERS = {"qemu": "qemu", "kvm": "qemu", "lxc": "lxc", "xen": "libxl", "libxl": "libxl"}


def read(uri: str | None, folders: Sequence[str] = FOLDERS) -> list[str]:
    """Return the sorted names of the domains that are defined or run.

    uri: of the connection, None for libvirt's default. Raises Unsupported if libvirt stores them
    elsewhere: on another host, for an unprivileged user, or not in files.
    """
    parts = urlsplit(uri or "")
    scheme = parts.scheme.partition("+")[0]
    is_supported = scheme in DRIVERS and parts.path in ("/system", "/") and not parts.hostname
    if uri and not is_supported:
        raise errors.Unsupported(f"cannot tell where the libvirt of {uri} stores its domains")
    drivers = {DRIVERS[scheme]} if uri else set(DRIVERS.values())
    candidates = [Path(folder, driver) for folder in folders for driver in sorted(drivers)]
    existing = [path for path in candidates if path.is_dir()]
    if not any(path.parent == Path(folders[0]) for path in existing):
        raise errors.Unsupported(f"libvirt keeps no definitions in {folders[0]}")
    return sorted({file.stem for path in existing for file in path.glob("*.xml")})
