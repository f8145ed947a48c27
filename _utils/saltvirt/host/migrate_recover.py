"""After a failure or a kill: where does the guest run, and what may be cleaned."""

import contextlib
import os
from dataclasses import replace

from saltvirt import errors
from saltvirt.host import domain, migrate_facts, migrate_finish, migrate_store
from saltvirt.host.connection import libvirt, translated
from saltvirt.migration import transport as transports

MOVED = "moved"
UNDONE = "undone"

# virDomainPausedReason: waiting for the other end of a migration
_BY_MIGRATION = (2, 12)


def _state(dom):
    """(word, whether a migration holds it paused) of a domain that may be None."""
    if dom is None:
        return "gone", False
    code, why = dom.state()
    word = migrate_facts.STATES.get(code, "unknown")
    return word, word == "paused" and why in _BY_MIGRATION


def settle(conn, peer, report):
    """Sees to it that the guest is on one host only: MOVED or UNDONE.

    A copy on the target that never ran is ended; a guest that a broken migration left
    paused here runs on, when the target certainly has none. Raises MigrationFailed when a
    person must decide, ConnectionFailed when the target cannot be asked.
    """
    with translated():
        if not peer.isAlive():
            raise errors.ConnectionFailed("the target cannot be asked what it has")
        here = migrate_finish.find(conn, report["uuid"])
        there = migrate_finish.find(peer, report["uuid"])
        return _decide(here, there, report, peer.getHostname())


def _decide(here, there, report, host):
    ours, waits_here = _state(here)
    theirs, waits_there = _state(there)
    name = report["name"]
    if theirs == "gone":
        return _only_here(here, ours, waits_here, report)
    if ours in ("gone", "shutdown") and theirs == "running":
        return _gone_over(here)
    if ours == "gone":
        return MOVED
    if waits_here and theirs == "running":
        here.destroy()
        return _gone_over(here)
    if ours == "running" and (waits_there or theirs == "shutdown"):
        _end(there)
        return UNDONE
    if ours == "shutdown" and theirs == "shutdown" and not report["active"]:
        _end(there)
        return UNDONE
    if ours == "running" and theirs == "running":
        there.suspend()
        raise errors.MigrationFailed(
            f"{name} came to run on both hosts; it was paused on {host}: keep one, and "
            "virt.stop and virt.undefine the other"
        )
    raise errors.MigrationFailed(
        f"{name} is {ours} here and {theirs} on {host}: decide which one is to live"
    )


def _only_here(here, ours, waiting, report):
    if ours == "gone":
        raise errors.MigrationFailed(
            f"{report['name']} is on neither host; its definition is in the journal of the "
            "migration on its old host, its disks were not touched"
        )
    if waiting and report["state"] == "running":
        here.resume()
    return UNDONE


def _gone_over(here):
    if here is not None and here.isPersistent():
        undefine(here)
    return MOVED


def undefine(dom):
    """Forgets the definition here; the variable store of its firmware goes with it."""
    wanted = ("MANAGED_SAVE", "SNAPSHOTS_METADATA", "NVRAM")
    number = sum(getattr(libvirt, f"VIR_DOMAIN_UNDEFINE_{name}") for name in wanted)
    dom.undefineFlags(number)


def _end(dom):
    """Removes a copy that never ran."""
    if dom.isActive():
        dom.destroy()
    with contextlib.suppress(libvirt.libvirtError):  # a transient one is gone by now
        dom.undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_KEEP_NVRAM)


def recover(conn, journal, order):
    """Ends what the journal tells of: a dict with ``outcome`` MOVED or UNDONE.

    Raises OperationFailed while libvirt itself is still at it, MigrationFailed when a
    person must decide, ConnectionFailed when the target cannot be asked.
    """
    entry = journal.read()
    report = entry["report"]
    if _replaced(conn, report):
        return _forgotten(journal, order, entry)
    here = migrate_finish.find(conn, report["uuid"])
    if here is not None and here.isActive() and here.jobInfo()[0] in (1, 2):
        raise errors.OperationFailed(
            f"libvirt is still moving {report['name']} to {entry['target']}: wait for it, "
            "or end it with virt.migrate_abort"
        )
    with _at(order, entry["target"]) as peer:
        outcome = settle(conn, peer, report)
        result = {
            "name": report["name"],
            "outcome": outcome,
            "source": report["host"],
            "target": peer.getHostname(),
            "live": report["active"],
            "deleted": [],
            "kept": {},
        }
        if outcome == UNDONE:
            result["deleted"] = clean_target(peer, entry["created"])
        elif not entry["keep_source"]:
            deleted, kept = migrate_finish.remove_source(conn, report, entry["copied"])
            result.update(deleted=deleted, kept=kept)
    journal.close()
    return result


def _replaced(conn, report):
    """Whether another guest has this name here by now: the one of the journal was removed."""
    found = domain.find(conn, report["name"])
    return found is not None and found.UUIDString() != report["uuid"]


def _forgotten(journal, order, entry):
    """Cleans up after a guest that is no more."""
    report = entry["report"]
    with _at(order, entry["target"]) as peer:
        there = migrate_finish.find(peer, report["uuid"])
        gone = clean_target(peer, entry["created"]) if there is None else []
    journal.close()
    return {"name": report["name"], "outcome": UNDONE, "deleted": gone, "kept": {}}


def _at(order, uri):
    """The connection to the target that a journal names."""
    return replace(order, transport=transports.parse(uri)).peer()


def clean_target(peer, paths):
    """Deletes what was prepared on the target, unless a domain there uses it."""
    with translated():
        used = "".join(dom.XMLDesc(0) for dom in peer.listAllDomains())
    gone = []
    for path in reversed(paths):
        if f"'{path}'" not in used and not _stood_on(peer, path, paths):
            migrate_store.delete(peer, path)
            gone.append(path)
    return gone


def _stood_on(peer, path, paths):
    """Whether a volume of the folders at hand stands on that one."""
    for folder in {os.path.dirname(p) for p in paths}:
        with migrate_store.opened(peer, folder) as pool:
            for found in pool.listAllVolumes() if pool is not None else []:
                with contextlib.suppress(libvirt.libvirtError):
                    if f"<path>{path}</path>" in found.XMLDesc(0).partition("<backingStore>")[2]:
                        return True
    return False
