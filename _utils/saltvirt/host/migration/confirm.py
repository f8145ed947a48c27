"""After the move: is it true, and what may go."""

from __future__ import annotations

import os
from collections.abc import Iterable

from saltvirt import errors
from saltvirt.host.connection import libvirt, translated
from saltvirt.host.domain import checkpoints as known
from saltvirt.host.migration import remote_storage, target_leftovers
from saltvirt.host.storage import files, usage
from saltvirt.migration.facts import GuestReport
from saltvirt.migration.journal import JournalEntry


def find(conn: libvirt.virConnect, guest_uuid: str) -> libvirt.virDomain | None:
    """The domain of that UUID, or None."""
    try:
        return conn.lookupByUUIDString(guest_uuid)
    except libvirt.libvirtError as exc:
        if exc.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
            return None
        raise


def confirm(
    conn: libvirt.virConnect,
    peer: libvirt.virConnect,
    report: GuestReport,
    persistent: bool = True,
) -> libvirt.virDomain:
    """The guest's domain on the target, when it is there for good and no longer here.

    Raises MigrationFailed, which says what libvirt shows on both ends.
    """
    with translated():
        there = find(peer, report.uuid)
        here = find(conn, report.uuid)
        if there is None or bool(there.isActive()) != report.active:
            seen = "not active" if report.active else "active"
            raise errors.MigrationFailed(
                f"libvirt reported success, but on {peer.getHostname()} the guest is "
                f"{'unknown' if there is None else seen}; nothing was removed"
            )
        if persistent and not there.isPersistent():
            raise errors.MigrationFailed(f"the guest is not defined on {peer.getHostname()}")
        if here is not None and here.isActive():
            raise errors.MigrationFailed(
                f"split brain: the guest is running on both {peer.getHostname()} and "
                f"{conn.getHostname()}; nothing was removed"
            )
    return there


def autostart(conn: libvirt.virConnect, peer: libvirt.virConnect, report: GuestReport) -> None:
    """Lets the target start the guest with itself as this host did, which libvirt does not carry
    over; and this host no more, where its definition stays.

    Only when the guest is not this host's any more: after a loss of power it would run on both.
    """
    with translated():
        here, there = find(conn, report.uuid), find(peer, report.uuid)
        if here is not None and here.isPersistent():
            here.setAutostart(0)
        if there is not None and there.isPersistent():
            there.setAutostart(int(report.autostart))


def not_by_itself(dom: libvirt.virDomain, report: GuestReport) -> None:
    """This host does not start the guest with itself while it is handed over: a host that lost its
    power just then would start its old copy at boot. Who ends the migration sets it again, here or
    there."""
    if report.autostart:
        with translated():
            dom.setAutostart(0)


def by_itself(conn: libvirt.virConnect, report: GuestReport) -> None:
    """The guest stays here, and starts with the host as before."""
    if report.autostart:
        with translated():
            here = find(conn, report.uuid)
            if here is not None and here.isPersistent():
                here.setAutostart(1)


def checkpoints(peer: libvirt.virConnect, entry: JournalEntry) -> dict[str, str]:
    """Tells the target of the guest's checkpoints: libvirt brings their bitmaps, but not them. Of a
    guest that is not there, nothing.

    Returns the name of each that the target did not take to its reason: the next backup reads
    whole what would have stood on it.
    """
    try:
        there = find(peer, entry.report.uuid)
        return known.tell(there, entry.checkpoints) if there is not None else {}
    except libvirt.libvirtError as exc:  # the move stands all the same
        return {"all": str(exc)}


def remove_source(
    conn: libvirt.virConnect, report: GuestReport, paths: Iterable[str]
) -> tuple[list[str], dict[str, str]]:
    """Deletes the disks that the guest left here. Returns (deleted, kept with the reason).

    paths: of what was copied and stayed here. One of which it is not proven that nobody else
    could reach it is kept; all of them when the guest itself is here again.
    """
    paths = list(paths)
    with translated():
        if find(conn, report.uuid) is not None:
            return [], dict.fromkeys(paths, f"{report.name} is defined here")
        names = {files.real(path): path for path in paths}
        with usage.closed(conn, names) as held:
            used = usage.read(conn, report.uuid, beside=paths)
            doomed, stay, elsewhere = usage.decide(conn, held, used)
            try:
                if elsewhere:
                    target_leftovers.note_here(report.name, filter(os.path.isfile, elsewhere))
            except (errors.VirtError, OSError) as exc:  # the move stands all the same
                note = f"it could not be noted: {exc}"
                stay.update((path, f"{stay[path]}; {note}") for path in elsewhere)
            deleted, kept = [], {names[path]: why for path, why in stay.items()}
            for real in doomed:
                path = names[real]
                # the disk, not the link to it; a device by its name
                place = real if os.path.isfile(real) else path
                try:
                    gone = remote_storage.delete(conn, place)
                    if gone and os.path.islink(path):
                        os.unlink(path)
                    if os.path.lexists(place):
                        kept[path] = "libvirt's storage pool does not show it"
                    elif gone:
                        deleted.append(path)
                except errors.VirtError as exc:
                    kept[path] = str(exc)
    return deleted, kept
