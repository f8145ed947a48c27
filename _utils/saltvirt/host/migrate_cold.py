"""A guest that does not run moves: its definition, disks and firmware variables as files."""

import os

from saltvirt import errors
from saltvirt.host import migrate_prepare
from saltvirt.host.connection import libvirt, translated
from saltvirt.migration import storage


def definition(dom):
    """The XML by which another host can define the guest, secrets and all."""
    inactive = libvirt.VIR_DOMAIN_XML_INACTIVE if dom.isPersistent() else 0
    return dom.XMLDesc(libvirt.VIR_DOMAIN_XML_SECURE | inactive)


def move(target, dom, report, plans, unchanged):
    """Copies the disks' files and defines the guest on the target.

    target: a migrate_prepare.Target. unchanged: the Still of the disks. The guest's definition
    stays here: the caller confirms first, then forgets it.
    """
    for plan in storage.copied(plans):
        target.say(f"copying disk {plan.target} of {report['name']}")
        migrate_prepare.copy(target, plan)
    unchanged.check()
    if report["nvram"] and os.path.exists(report["nvram"]):
        target.copy(report["nvram"])
    with translated():
        still_off(dom)
        there = target.peer.defineXML(definition(dom))
        target.undo.push("undefine it on the target", _undefine, there)
        _snapshots(dom, there)
        still_off(dom)


def still_off(dom):
    """Raises MigrationFailed when somebody has started the guest meanwhile."""
    if dom.isActive():
        raise errors.MigrationFailed(f"{dom.name()} was started while it was being moved")


def _undefine(there):
    there.undefineFlags(
        libvirt.VIR_DOMAIN_UNDEFINE_KEEP_NVRAM | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
    )


def _snapshots(dom, there):
    """Tells the target of the snapshots that travelled inside of the disks."""
    current = dom.snapshotCurrent().getName() if dom.hasCurrentSnapshot() else None
    for snapshot in dom.listAllSnapshots(libvirt.VIR_DOMAIN_SNAPSHOT_LIST_TOPOLOGICAL):
        flags = libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_REDEFINE
        if snapshot.getName() == current:
            flags |= libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_CURRENT
        there.snapshotCreateXML(snapshot.getXMLDesc(libvirt.VIR_DOMAIN_SNAPSHOT_XML_SECURE), flags)
