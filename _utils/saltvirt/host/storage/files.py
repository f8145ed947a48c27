"""Files and volumes that domains use, down to their base images."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from xml.etree import ElementTree

from saltvirt import errors
from saltvirt.host.connection import libvirt, skip_undefined
from saltvirt.images import chain
from saltvirt.system import bounded_io

# libvirt's folder for firmware variables whose file the definition does not name
_VARIABLES = "/var/lib/libvirt/qemu/nvram"
# libvirt's folder for the state of emulated TPMs, in subfolders named by the guest's UUID
TPM_STATE = "/var/lib/libvirt/swtpm"
# disk devices that a guest can write to
_WRITABLE_DEVICES = ("disk", "lun")


def real(path: str) -> str:
    """Return the path without symbolic links. Names that are not paths, as on a server, are
    unchanged."""
    return bounded_io.real(path) if path.startswith("/") else path


def chain_paths(path: str, format: str | None = None) -> list[str]:
    """Return the real paths of a file and all its backing files.

    format: the declared format; see saltvirt.images.chain.
    """
    backing_chain = chain.read(path, format)
    return [link.path for link in backing_chain.links] + list(backing_chain.data_files)


def format_of(node: ElementTree.Element) -> str | None:
    """Return the format that an element with a source declares, or None."""
    if node.tag == "nvram":
        return node.get("format", "raw")
    kind = node.find("driver" if node.tag == "disk" else "format")
    return kind.get("type") if kind is not None else None


def declared(disk: ElementTree.Element) -> str:
    """Return the format that a definition declares for a disk; raw, as in libvirt, if it has
    none."""
    return format_of(disk) or "raw"


def variables(nvram: ElementTree.Element) -> str | None:
    """Return the path of the firmware variables, from either syntax of libvirt.

    Returns "" if they are not a file on this host, and None if libvirt has not chosen a path yet.
    """
    source = nvram.find("source")
    return nvram.text or None if source is None else source.get("file", "")


def variables_of(root: ElementTree.Element) -> str | None:
    """Return the file of a guest's firmware variables; "" if they are in no file, None without any.

    root: the definition. With automatic firmware selection, old libvirt versions name the file only
    in the definition of a running guest.
    """
    system, nvram = root.find("os"), root.find("os/nvram")
    path_text = variables(nvram) if nvram is not None else None
    if path_text is not None or system is None or system.get("firmware") != "efi":
        return path_text
    for suffix in ("fd", "qcow2"):
        path = os.path.join(_VARIABLES, f"{root.findtext('name')}_VARS.{suffix}")
        if os.path.exists(path):
            return path
    return None


def own_variables(guest: str, suffix: str) -> str:
    """Return the path where libvirt stores the variables if the definition has none."""
    return os.path.join(_VARIABLES, f"{guest}_VARS.{suffix}")


def are_own_variables(path: str, guest: str) -> bool:
    """Return whether a firmware variables file belongs to this guest.

    libvirt names its own files after the guest, in its own folder. Any other file may be a template
    for all guests.
    """
    folder, name = os.path.split(real(path))
    return folder == real(_VARIABLES) and name.startswith(f"{guest}_VARS.")


def named_paths(
    conn: libvirt.virConnect, tree: ElementTree.Element
) -> Iterator[tuple[str, str | None]]:
    """Yield (path, declared format or None) of each local path that a domain's XML uses as storage.

    This includes firmware files, and the paths of pool volumes.
    """
    for node in tree.iter():
        source = node.find("source")
        if source is not None:
            for path in {source.get("file"), source.get("dev"), _volume_of(conn, source)}:
                if path and path.startswith("/"):
                    yield path, format_of(node)
        elif node.tag == "nvram" and (variables_path := variables(node) or "").startswith("/"):
            yield variables_path, format_of(node)


def format_by_domains(conn: libvirt.virConnect, path: str) -> str | None:
    """Return the format that the domains of this host declare for a path, or None.

    If one of them declares raw, the result is raw, because its guest may have written any header.
    """
    real_path, formats = real(path), set[str]()
    for dom in conn.listAllDomains():
        for tree in trees(dom):
            declared_paths = named_paths(conn, tree)
            formats |= {fmt or "raw" for name, fmt in declared_paths if real(name) == real_path}
    return "raw" if "raw" in formats else min(formats, default=None)


def _volume_of(conn: libvirt.virConnect, source: ElementTree.Element) -> str | None:
    if not source.get("volume"):
        return None
    return volume_path(conn, source.get("pool"), source.get("volume"))


def paths(tree: ElementTree.Element) -> set[str]:
    """Return each local path that a domain's XML uses as storage, including firmware files."""
    values = {node.get(key) for node in tree.iter("source") for key in ("file", "dev")}
    sources = {value for value in values if value and value.startswith("/")}
    return sources | set(filter(None, map(variables, tree.iter("nvram"))))


def trees(dom: libvirt.virDomain) -> list[ElementTree.Element]:
    """Return the parsed XML of the running domain and of its next start."""
    parsed = []
    for flags in (0, libvirt.VIR_DOMAIN_XML_INACTIVE):
        with skip_undefined():
            parsed.append(ElementTree.fromstring(dom.XMLDesc(flags)))
    return parsed


def volume_path(conn: libvirt.virConnect, pool: str | None, volume: str | None) -> str | None:
    """Return the path of a pool's volume, or None if the pool or volume does not exist."""
    if not pool or not volume:
        return None
    try:
        return conn.storagePoolLookupByName(pool).storageVolLookupByName(volume).path()
    except libvirt.libvirtError:
        return None


def source_path(conn: libvirt.virConnect, source: ElementTree.Element) -> str | None:
    """Return the path of a ``<source>``; None on a server, or if the volume does not exist."""
    if source.get("volume"):
        return volume_path(conn, source.get("pool"), source.get("volume"))
    return source.get("file") or source.get("dev")


def require_pool(conn: libvirt.virConnect, name: str) -> None:
    """Raise OperationFailed if a pool exists but is inactive, since its content is then unknown."""
    with contextlib.suppress(libvirt.libvirtError):
        if not conn.storagePoolLookupByName(name).isActive():
            raise errors.OperationFailed(f"storage pool {name} is not started: start it first")


def volume_paths(conn: libvirt.virConnect, tree: ElementTree.Element) -> set[str]:
    """Return the paths of the disks that a domain's XML specifies as pool and volume."""
    pairs = [(s.get("pool"), s.get("volume")) for s in tree.iter("source") if s.get("volume")]
    return {path for path in (volume_path(conn, *pair) for pair in pairs) if path}


def writable(conn: libvirt.virConnect, tree: ElementTree.Element) -> set[str]:
    """Return the real paths of the disks that a domain may write to."""
    writable_paths = set()
    for node in tree.iterfind("devices/disk"):
        source = node.find("source")
        read_only = node.find("readonly") is not None or node.find("shareable") is not None
        if source is None or read_only or node.get("device", "disk") not in _WRITABLE_DEVICES:
            continue
        path = source_path(conn, source)
        if path:
            writable_paths.add(real(path))
    return writable_paths


def is_regular(path: str) -> bool:
    """Return whether the path is a regular file on this host."""
    try:
        return stat.S_ISREG(bounded_io.stat(path).st_mode)
    except (OSError, ValueError):
        return False
