"""Check a definition without defining it: with libvirt, and on this host."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from saltvirt import errors
from saltvirt.host.connection import is_local, libvirt, translate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from saltvirt.xml.domain.domain import Domain

_FORMAT = "qemu-argv"
_ZONES = "/usr/share/zoneinfo"


def refuse_rejected(
    conn: libvirt.virConnect, desired: Domain, actual: Domain | None = None
) -> None:
    """Raise libvirt's error for a definition that it would refuse to define or to start.

    libvirt parses and validates the definition as if it started the guest, but changes nothing.
    Drivers other than QEMU's cannot do that. actual: the definition of an existing guest, whose own
    faults are not those of the request.
    """
    zone = desired.clock.timezone
    if zone and (actual is None or actual.clock.timezone != zone):
        _refuse_zone(zone)
    exc = _rejection(conn, desired)
    if exc is None or (actual is not None and _rejection(conn, actual) is not None):
        return
    raise translate(exc, "define the domain") from exc


def _rejection(conn: libvirt.virConnect, definition: Domain) -> libvirt.libvirtError | None:
    """Return libvirt's error about a definition; None for errors about the host, such as a volume
    that is still to be created."""
    about_definition = {
        libvirt.VIR_ERR_XML_ERROR,
        libvirt.VIR_ERR_XML_DETAIL,
        libvirt.VIR_ERR_CONFIG_UNSUPPORTED,
        libvirt.VIR_ERR_ARGUMENT_UNSUPPORTED,
    }
    # libvirt converts interfaces to type ethernet here, and 9.0 crashes with one of type hostdev
    checked = definition.copy()
    checked.interfaces = []
    try:
        conn.domainXMLToNative(_FORMAT, checked.tostring(), 0)
    except libvirt.libvirtError as exc:
        return exc if exc.get_error_code() in about_definition else None
    return None


def _refuse_zone(zone: str) -> None:
    """Raise InvalidInput for an unknown time zone: libvirt accepts any, and QEMU then uses UTC."""
    path = os.path.normpath(os.path.join(_ZONES, zone))
    is_known = path.startswith(f"{_ZONES}/") and os.path.isfile(path)
    if os.path.isdir(_ZONES) and not is_known:
        raise errors.InvalidInput(f"clock:timezone {zone!r} is unknown; an example: Europe/Berlin")


def refuse_missing(conn: libvirt.virConnect, definition: Domain) -> None:
    """Raise NotFound if the definition has a file, folder or input device that this host lacks."""
    for label, path, is_there in _paths(definition) if is_local(conn) else ():
        if not is_there:
            raise errors.NotFound(f"{label}: {path} does not exist on this host")


def _paths(definition: Domain) -> Iterator[tuple[str, str, bool]]:
    """Yield (argument, path, whether it exists)."""
    for name, path in (
        ("boot: loader", definition.os.loader),
        ("boot: nvram", definition.os.nvram_template),
        *((f"inputs: {item.type}", item.source_dev) for item in definition.inputs),
    ):
        if path:
            yield name, path, os.path.exists(path)
    for item in definition.filesystems:
        if item.source_dir:
            label = f"filesystems: {item.target}: the folder"
            yield label, item.source_dir, os.path.isdir(item.source_dir)
