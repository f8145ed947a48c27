"""Which files and volumes domains use, down to the images they are based on."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from xml.etree import ElementTree

from saltvirt import errors
from saltvirt.host.connection import libvirt, skip_undefined
from saltvirt.host.storage import bounded_io
from saltvirt.images import chain

# where libvirt keeps the variables of a firmware for which a definition names no file
_VARIABLES = "/var/lib/libvirt/qemu/nvram"
# where it keeps the state of an emulated TPM, in a folder of the guest's UUID
TPM_STATE = "/var/lib/libvirt/swtpm"
# the kinds of disks that a guest keeps its data on
_WRITABLE_DEVICES = ("disk", "lun")


def real(path: str) -> str:
    """The path without links, so that two names of a file are one. What is no path, as the name
    of a volume on a server, stays as it is."""
    return bounded_io.real(path) if path.startswith("/") else path


def chain_paths(path: str, format: str | None = None) -> list[str]:
    """The file and all that it is based on, as real paths.

    format: what is declared of it; see saltvirt.images.chain.
    """
    backing_chain = chain.read(path, format)
    return [link.path for link in backing_chain.links] + list(backing_chain.data_files)


def format_of(node: ElementTree.Element) -> str | None:
    """The format that an element with a source declares for it, or None."""
    if node.tag == "nvram":
        return node.get("format", "raw")
    kind = node.find("driver" if node.tag == "disk" else "format")
    return kind.get("type") if kind is not None else None


def declared(disk: ElementTree.Element) -> str:
    """The format that a definition declares for a disk; libvirt takes raw where it says none."""
    return format_of(disk) or "raw"


def variables(nvram: ElementTree.Element) -> str | None:
    """Where the firmware's variables are, in both of libvirt's ways to write it; "" for what is no
    file of this host, None where libvirt has not chosen yet."""
    source = nvram.find("source")
    return nvram.text or None if source is None else source.get("file", "")


def variables_of(root: ElementTree.Element) -> str | None:
    """The file of a guest's firmware's variables, or None; "" where they are in no file. root: its
    definition.

    Where libvirt chooses the firmware, older ones name the file in a running guest's alone.
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
    """Where libvirt keeps the variables of a guest whose definition names no file for them."""
    return os.path.join(_VARIABLES, f"{guest}_VARS.{suffix}")


def are_own_variables(path: str, guest: str) -> bool:
    """Whether a file of firmware variables belongs to this guest: libvirt has named it after the
    guest, in its own folder. Any other file may be the template of all guests of the host."""
    folder, name = os.path.split(real(path))
    return folder == real(_VARIABLES) and name.startswith(f"{guest}_VARS.")


def named_paths(
    conn: libvirt.virConnect, tree: ElementTree.Element
) -> Iterator[tuple[str, str | None]]:
    """(path, declared format or None) of every local path that a domain's XML names as storage,
    firmware files included. A disk in a pool is there by the path of its volume."""
    for node in tree.iter():
        source = node.find("source")
        if source is not None:
            for path in {source.get("file"), source.get("dev"), _volume_of(conn, source)}:
                if path and path.startswith("/"):
                    yield path, format_of(node)
        elif node.tag == "nvram" and (variables_path := variables(node) or "").startswith("/"):
            yield variables_path, format_of(node)


def format_by_domains(conn: libvirt.virConnect, path: str) -> str | None:
    """The format that this host's domains declare for what lies at a path; None when none does.

    Where one says raw its guest may have written anything there: then it is raw.
    """
    real_path, formats = real(path), set[str]()
    for dom in conn.listAllDomains():
        for tree in trees(dom):
            formats |= {
                format or "raw"
                for candidate, format in named_paths(conn, tree)
                if real(candidate) == real_path
            }
    return "raw" if "raw" in formats else min(formats, default=None)


def _volume_of(conn: libvirt.virConnect, source: ElementTree.Element) -> str | None:
    if not source.get("volume"):
        return None
    return volume_path(conn, source.get("pool"), source.get("volume"))


def paths(tree: ElementTree.Element) -> set[str]:
    """Every local path that a domain's XML names as storage, firmware files included."""
    sources = {
        value
        for node in tree.iter("source")
        for value in (node.get("file"), node.get("dev"))
        if value and value.startswith("/")
    }
    return sources | set(filter(None, map(variables, tree.iter("nvram"))))


def trees(dom: libvirt.virDomain) -> list[ElementTree.Element]:
    """The domain's XML as it runs and as it starts next, parsed."""
    parsed = []
    for flags in (0, libvirt.VIR_DOMAIN_XML_INACTIVE):
        with skip_undefined():
            parsed.append(ElementTree.fromstring(dom.XMLDesc(flags)))
    return parsed


def volume_path(conn: libvirt.virConnect, pool: str | None, volume: str | None) -> str | None:
    """The path of a pool's volume, or None when it (or its pool) is not there."""
    if not pool or not volume:
        return None
    try:
        return conn.storagePoolLookupByName(pool).storageVolLookupByName(volume).path()
    except libvirt.libvirtError:
        return None


def require_pool(conn: libvirt.virConnect, name: str) -> None:
    """Raises OperationFailed for a pool that is there but not started: what it holds is not
    known then."""
    with contextlib.suppress(libvirt.libvirtError):
        if not conn.storagePoolLookupByName(name).isActive():
            raise errors.OperationFailed(f"storage pool {name} is not started: start it first")


def volume_paths(conn: libvirt.virConnect, tree: ElementTree.Element) -> set[str]:
    """The paths of the disks that a domain's XML gives as pool and volume."""
    pairs = [(s.get("pool"), s.get("volume")) for s in tree.iter("source") if s.get("volume")]
    return {path for path in (volume_path(conn, *pair) for pair in pairs) if path}


def writable(conn: libvirt.virConnect, tree: ElementTree.Element) -> set[str]:
    """The real paths of the disks that a domain may write to."""
    writable_paths = set()
    for node in tree.iterfind("devices/disk"):
        source = node.find("source")
        read_only = node.find("readonly") is not None or node.find("shareable") is not None
        if source is None or read_only or node.get("device", "disk") not in _WRITABLE_DEVICES:
            continue
        path = source.get("file") or source.get("dev")
        if source.get("volume"):
            path = volume_path(conn, source.get("pool"), source.get("volume"))
        if path:
            writable_paths.add(real(path))
    return writable_paths


def is_regular(path: str) -> bool:
    """True for a plain file of this host."""
    try:
        return stat.S_ISREG(bounded_io.stat(path).st_mode)
    except (OSError, ValueError):
        return False
