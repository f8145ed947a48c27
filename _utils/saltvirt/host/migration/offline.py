"""Migrate a guest that is off: its definition, disks and firmware variables, as files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from xml.sax.saxutils import escape

from saltvirt import errors
from saltvirt.host.connection import libvirt, translated
from saltvirt.host.domain import lookup, snapshot_state
from saltvirt.host.migration import confirm, prepare, target_files
from saltvirt.migration import storage
from saltvirt.migration.facts import GuestReport, TargetReport


def definition(dom: libvirt.virDomain) -> str:
    """Return the XML with which another host can define the guest, including secrets."""
    inactive = libvirt.VIR_DOMAIN_XML_INACTIVE if dom.isPersistent() else 0
    return dom.XMLDesc(libvirt.VIR_DOMAIN_XML_SECURE | inactive)


def for_target(text: str, report: GuestReport, host: TargetReport) -> str:
    """Return the XML of a guest or its snapshot as the target can run it: with the target's
    emulator if it lacks the guest's one (distributions install it at different paths)."""
    emulator, target_emulator = report.emulator, host.machine.emulator
    if host.machine.has_emulator is not False or not emulator or not target_emulator:
        return text
    return text.replace(f"<emulator>{escape(emulator)}<", f"<emulator>{escape(target_emulator)}<")


def copy(
    target: target_files.MigrationTarget,
    report: GuestReport,
    plans: Iterable[storage.DiskPlan],
    variables: str | None,
) -> None:
    """Copy the files of the disks. variables: the file of firmware variables, if it is copied."""
    for plan in plans:
        prepare.copy_owned_files(target, plan)
    for plan in storage.copied_plans(plans):
        target.report_step(f"copying disk {plan.target} of {report.name}")
        target_files.copy(target, plan)
    if variables and os.path.exists(variables):
        target.copy(variables)
    _copy_saved_state(target, report)


def _copy_saved_state(target: target_files.MigrationTarget, report: GuestReport) -> None:
    """Copy the state that is saved beside libvirt for the guest's snapshots, because the source
    deletes it with the guest."""
    paths, empty = snapshot_state.list_saved(report.uuid)
    for folder in empty:
        target.create_folder(os.path.join(folder, "-"))
    for path in paths:
        if (
            target.size(path) is None
        ):  # otherwise the target has it already, from this same snapshot
            target.copy(path)


def define(
    target: target_files.MigrationTarget,
    dom: libvirt.virDomain,
    report: GuestReport,
    host: TargetReport,
) -> None:
    """Define the guest on the target, whose report is ``host``. The source keeps its definition:
    the caller confirms first, then undefines it."""
    with translated():
        still_off(dom)
        _not_there(target.peer, dom)
        target_dom = target.peer.defineXML(for_target(definition(dom), report, host))
        _snapshots(dom, target_dom, lambda text: for_target(text, report, host))
        still_off(dom)


def _not_there(peer: libvirt.virConnect, dom: libvirt.virDomain) -> None:
    """Raise AlreadyExists if the guest was defined on the target meanwhile: libvirt would replace
    it."""
    if confirm.find(peer, dom.UUIDString()) or lookup.find(peer, dom.name()):
        raise errors.AlreadyExists(f"{dom.name()} has just appeared on {peer.getHostname()}")


def still_off(dom: libvirt.virDomain) -> None:
    """Raise MigrationFailed if the guest was started meanwhile."""
    if dom.isActive():
        raise errors.MigrationFailed(f"{dom.name()} was started during its migration")


def _snapshots(
    dom: libvirt.virDomain, target_dom: libvirt.virDomain, adapt: Callable[[str], str]
) -> None:
    """Define the guest's snapshots on the target; their data came with the disks. adapt: see
    for_target."""
    current = dom.snapshotCurrent().getName() if dom.hasCurrentSnapshot() else None
    for snapshot in dom.listAllSnapshots(libvirt.VIR_DOMAIN_SNAPSHOT_LIST_TOPOLOGICAL):
        flags = libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_REDEFINE
        if snapshot.getName() == current:
            flags |= libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_CURRENT
        text = snapshot.getXMLDesc(libvirt.VIR_DOMAIN_SNAPSHOT_XML_SECURE)
        target_dom.snapshotCreateXML(adapt(text), flags)
