"""A guest that does not run moves: its definition, disks and firmware variables as files."""

import os

from saltvirt import errors
from saltvirt.host import migrate_store
from saltvirt.host.connection import libvirt, translated
from saltvirt.migration import storage

_MODE = "0600"


def definition(dom):
    """The XML by which another host can define the guest, secrets and all."""
    inactive = libvirt.VIR_DOMAIN_XML_INACTIVE if dom.isPersistent() else 0
    return dom.XMLDesc(libvirt.VIR_DOMAIN_XML_SECURE | inactive)


def move(peer, dom, job, undo):
    """Copies the disks' files and defines the guest on the target.

    job: has ``report``, ``plans`` and ``order``. undo: a Revert that learns what was made.
    The guest's definition stays here: the caller confirms first, then forgets it.
    """
    report, order = job.report, job.order
    for plan in storage.copied(job.plans):
        order.say(f"copying disk {plan.target} of {report['name']}")
        with migrate_store.opened(peer, os.path.dirname(plan.path)) as pool:
            migrate_store.upload(migrate_store.volume(pool, plan.path), plan.path)
    if report["nvram"] and os.path.exists(report["nvram"]):
        _nvram(peer, report["nvram"], undo)
    with translated():
        still_off(dom)
        there = peer.defineXML(definition(dom))
        undo.push("undefine it on the target", _undefine, there)
        _snapshots(dom, there)
        still_off(dom)


def still_off(dom):
    """Raises MigrationFailed when somebody has started the guest meanwhile."""
    if dom.isActive():
        raise errors.MigrationFailed(f"{dom.name()} was started while it was being moved")


def _nvram(peer, path, undo):
    with migrate_store.opened(peer, os.path.dirname(path), create=True) as pool:
        if migrate_store.volume(pool, path) is not None:
            raise errors.MigrationFailed(f"the target already has {path}")
        undo.push(f"delete {path} on the target", migrate_store.delete, peer, path)
        migrate_store.upload(migrate_store.create(pool, path, "raw", 0, mode=_MODE), path)


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
