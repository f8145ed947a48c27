"""Verify a migration, then clean up on the source."""

from __future__ import annotations

import os
from collections.abc import Iterable

from saltvirt import errors
from saltvirt.host.connection import libvirt, translated
from saltvirt.host.domain import checkpoints as guest_checkpoints
from saltvirt.host.migration import remote_storage, target_leftovers
from saltvirt.host.storage import files, usage
from saltvirt.migration.facts import GuestReport
from saltvirt.migration.journal import JournalEntry


def find(conn: libvirt.virConnect, guest_uuid: str) -> libvirt.virDomain | None:
    """Return the domain of that UUID, or None."""
    try:
        return conn.lookupByUUIDString(guest_uuid)
    except libvirt.libvirtError as exc:
        if exc.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
            return None
        raise


def confirm(
    conn: libvirt.virConnect, peer: libvirt.virConnect, report: GuestReport, persistent: bool = True
) -> libvirt.virDomain:
    """Return the guest's domain on the target if it is there for good and no longer on the source.

    Raises MigrationFailed with what libvirt shows on both hosts.
    """
    with translated():
        target_dom = find(peer, report.uuid)
        source_dom = find(conn, report.uuid)
        if target_dom is None or bool(target_dom.isActive()) != report.active:
            observed = "not active" if report.active else "active"
            raise errors.MigrationFailed(
                f"libvirt reported success, but on {peer.getHostname()} the guest is "
                f"{'unknown' if target_dom is None else observed}; nothing was deleted"
            )
        if persistent and not target_dom.isPersistent():
            raise errors.MigrationFailed(f"the guest is not defined on {peer.getHostname()}")
        if source_dom is not None and source_dom.isActive():
            raise errors.MigrationFailed(
                f"split brain: the guest is running on both {peer.getHostname()} and "
                f"{conn.getHostname()}; nothing was deleted"
            )
    return target_dom


def transfer_autostart(
    conn: libvirt.virConnect, peer: libvirt.virConnect, report: GuestReport
) -> None:
    """Set autostart on the target as it was on the source, which libvirt does not transfer, and
    disable it on the source if the definition stays there.

    Call this only when the guest has left the source: after a power failure it would otherwise
    start on both hosts.
    """
    with translated():
        source_dom, target_dom = find(conn, report.uuid), find(peer, report.uuid)
        if source_dom is not None and source_dom.isPersistent():
            source_dom.setAutostart(0)
        if target_dom is not None and target_dom.isPersistent():
            target_dom.setAutostart(int(report.autostart))


def disable_autostart(dom: libvirt.virDomain, report: GuestReport) -> None:
    """Disable autostart on the source during the hand-over: a host that loses its power then would
    start its old copy at boot. The end of the migration enables it again, on one of the hosts."""
    if report.autostart:
        with translated():
            dom.setAutostart(0)


def restore_autostart(conn: libvirt.virConnect, report: GuestReport) -> None:
    """Restore autostart of a guest that stays on the source."""
    if report.autostart:
        with translated():
            source_dom = find(conn, report.uuid)
            if source_dom is not None and source_dom.isPersistent():
                source_dom.setAutostart(1)


def send_checkpoints(peer: libvirt.virConnect, entry: JournalEntry) -> dict[str, str]:
    """Define the guest's checkpoints on the target: libvirt transfers their bitmaps, but not the
    checkpoints. Does nothing for a guest that the target does not have.

    Returns each checkpoint that the target rejected, with the reason: the next backup cannot be
    based on it.
    """
    try:
        target_dom = find(peer, entry.report.uuid)
        if target_dom is None:
            return {}
        return guest_checkpoints.redefine(target_dom, entry.checkpoints)
    except libvirt.libvirtError as exc:  # the migration has succeeded nevertheless
        return {"all": str(exc)}


def remove_source(
    conn: libvirt.virConnect, report: GuestReport, paths: Iterable[str]
) -> tuple[list[str], dict[str, str]]:
    """Delete the disks that the guest left on the source. Return (deleted, {path: reason} of those
    kept).

    paths: of copied disks. A disk is kept if it is not proven that no other guest or host can use
    it; all are kept if the guest is on the source again.
    """
    paths = list(paths)
    with translated():
        if find(conn, report.uuid) is not None:
            return [], dict.fromkeys(paths, f"{report.name} is defined on this host")
        names = {files.real(path): path for path in paths}
        with usage.prevent_open(conn, names) as claims:
            used = usage.read(conn, report.uuid, sibling_paths=paths)
            deletable, reasons, shared_paths = usage.decide(conn, claims, used)
            try:
                if shared_paths:
                    target_leftovers.record_local(report.name, filter(os.path.isfile, shared_paths))
            except (errors.VirtError, OSError) as exc:  # the migration has succeeded nevertheless
                note = f"it could not be recorded: {exc}"
                reasons.update((path, f"{reasons[path]}; {note}") for path in shared_paths)
            deleted, retained = [], {names[path]: reason for path, reason in reasons.items()}
            for real in deletable:
                path = names[real]
                # the disk itself, not a link to it; a device by its name
                volume_path = real if os.path.isfile(real) else path
                try:
                    was_deleted = remote_storage.delete(conn, volume_path)
                    if was_deleted and os.path.islink(path):
                        os.unlink(path)
                    if os.path.lexists(volume_path):
                        retained[path] = "libvirt's storage pool does not show it"
                    elif was_deleted:
                        deleted.append(path)
                except errors.VirtError as exc:
                    retained[path] = str(exc)
    return deleted, retained
