"""All that a host knows about a guest."""

from __future__ import annotations

from typing import Any

from saltvirt import errors
from saltvirt.answers.inspection import GuestDetails
from saltvirt.host import connection
from saltvirt.host.connection import libvirt
from saltvirt.host.domain import addresses, lookup, overview
from saltvirt.host.inspect import usage
from saltvirt.host.snapshot import snapshots


def read(conn: libvirt.virConnect, name: str, folder: str) -> GuestDetails:
    """Return the details of a guest. folder: as for ``usage.measure``. Raises NotFound."""
    dom = lookup.lookup(conn, name)
    measurement = usage.GuestMeasurement(conn, dom, folder) if dom.isActive() else None
    details: dict[str, Any] = {**overview.vm_info(conn, name)[name]}
    unknown: dict[str, str] = {}
    if details.get("state") == "running":  # the agent of a paused guest would not respond
        try:
            reported = addresses.of_agent(dom)
        except errors.OperationFailed as exc:
            reported, unknown["addresses"] = [], exc.text
        ips = dict.fromkeys([*details.get("addresses", ()), *reported])
        details["addresses"] = addresses.in_order(ips)[: addresses.MAX_ADDRESSES]
    try:
        listed = snapshots.listing(conn, name)[name]
        details["snapshots"] = listed if isinstance(listed, list) else []
    except libvirt.libvirtError as exc:
        unknown["snapshots"] = connection.translate(exc).text
    if measurement:
        try:
            used = measurement.result()
            details["usage"] = used and used.to_answer()
        except libvirt.libvirtError as exc:
            unknown["usage"] = connection.translate(exc).text
    return GuestDetails.from_answer({**details, "unknown": unknown}, name)
