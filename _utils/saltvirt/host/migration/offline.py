"""A guest that does not run moves: its definition, disks and firmware variables as files."""

import os
from xml.sax.saxutils import escape

from saltvirt import errors
from saltvirt.host.connection import libvirt, translated
from saltvirt.host.domain import lookup
from saltvirt.host.migration import confirm, prepare
from saltvirt.migration import storage


def definition(dom):
    """The XML by which another host can define the guest, secrets and all."""
    inactive = libvirt.VIR_DOMAIN_XML_INACTIVE if dom.isPersistent() else 0
    return dom.XMLDesc(libvirt.VIR_DOMAIN_XML_SECURE | inactive)


def for_target(text, report, host):
    """The XML of a guest or of its snapshot as the target can run it: its own emulator in place of
    one that it does not have (distributions put it at different paths)."""
    if host["has_emulator"] is not False or not host["emulator"]:
        return text
    ours, theirs = (f"<emulator>{escape(e)}<" for e in (report["emulator"], host["emulator"]))
    return text.replace(ours, theirs)


def copy(target, report, plans, variables):
    """Copies the disks' files. target: a prepare.Target; variables: also those of the firmware."""
    for plan in plans:
        prepare.own(target, plan)
    for plan in storage.copied(plans):
        target.say(f"copying disk {plan.target} of {report['name']}")
        prepare.copy(target, plan)
    if variables and os.path.exists(report["nvram"]):
        target.copy(report["nvram"])


def define(target, dom, report, host):
    """Defines the guest on the target, whose report is ``host``. Its definition stays here: the
    caller confirms first, then forgets it."""
    with translated():
        still_off(dom)
        _not_there(target.peer, dom)
        there = target.peer.defineXML(for_target(definition(dom), report, host))
        _snapshots(dom, there, lambda text: for_target(text, report, host))
        still_off(dom)


def _not_there(peer, dom):
    """Raises AlreadyExists where somebody has defined it meanwhile: libvirt would replace that."""
    if confirm.find(peer, dom.UUIDString()) or lookup.find(peer, dom.name()):
        raise errors.AlreadyExists(f"{dom.name()} has just appeared on {peer.getHostname()}")


def still_off(dom):
    """Raises MigrationFailed when somebody has started the guest meanwhile."""
    if dom.isActive():
        raise errors.MigrationFailed(f"{dom.name()} was started while it was being moved")


def _snapshots(dom, there, fitted):
    """Tells the target of the snapshots that travelled with the disks. fitted: see for_target."""
    current = dom.snapshotCurrent().getName() if dom.hasCurrentSnapshot() else None
    for snapshot in dom.listAllSnapshots(libvirt.VIR_DOMAIN_SNAPSHOT_LIST_TOPOLOGICAL):
        flags = libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_REDEFINE
        if snapshot.getName() == current:
            flags |= libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_CURRENT
        text = snapshot.getXMLDesc(libvirt.VIR_DOMAIN_SNAPSHOT_XML_SECURE)
        there.snapshotCreateXML(fitted(text), flags)
