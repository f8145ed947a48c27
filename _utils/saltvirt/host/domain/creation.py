"""The phase of a guest's creation on this host, and whether the guest was ever started.

A guest is defined before its disks are created. Its record names the process that creates it until
the guest is complete. All code that needs the phase uses this module.
"""

from __future__ import annotations

import contextlib
import glob
import gzip
import os
import re
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, cast

from saltvirt import errors
from saltvirt.answers.creation import Phase
from saltvirt.host import connection
from saltvirt.host.connection import libvirt
from saltvirt.host.domain import lookup, metadata
from saltvirt.xml.domain.domain import Domain

if TYPE_CHECKING:
    from xml.etree import ElementTree

    from saltvirt.xml.domain.metadata import GuestRecord

LOGS = "/var/log/libvirt"
# folder of libvirt's guest logs by virConnectGetType
_FOLDERS = {"QEMU": "qemu", "LXC": "lxc"}
_START = re.compile(rb"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)\.\d+\+0000: starting up")


def of_record(record: GuestRecord) -> Phase:
    """Return the phase of a guest with this GuestRecord."""
    if not (record and record.creating):
        return Phase.COMPLETE
    return Phase.CREATING if metadata.works(record.creating) else Phase.INTERRUPTED


def of_tree(tree: ElementTree.Element) -> Phase:
    """Return the phase of the guest with this parsed definition."""
    return of_record(metadata.of_tree(tree))


def of_domain(dom: libvirt.virDomain) -> Phase:
    """Return the phase of the guest, according to its stored definition."""
    return of_record(_record(dom))


def _record(dom: libvirt.virDomain) -> GuestRecord:
    return Domain.fromstring(dom.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)).record


def require_complete(dom: libvirt.virDomain, action: str) -> None:
    """Raise Incomplete unless the guest is complete. action: the refused action, as in "cannot
    start web1"."""
    with connection.translated():
        phase = of_domain(dom)
    if phase is Phase.COMPLETE:
        return
    prefix = f"cannot {action} {dom.name()} on {dom.connect().getHostname()}"
    if phase is Phase.CREATING:
        raise errors.Incomplete(f"{prefix}: it is being created: wait until its creation ends")
    raise errors.Incomplete(
        f"{prefix}: its creation was interrupted: run salt-run virt.repair name={dom.name()}"
    )


def interrupted(conn: libvirt.virConnect, name: str) -> libvirt.virDomain | None:
    """Return the domain of this name if its creation was interrupted, else None."""
    dom = lookup.find(conn, name)
    return dom if dom and of_domain(dom) is Phase.INTERRUPTED else None


def evidence_of_use(dom: libvirt.virDomain) -> str | None:
    """Return, as text, what shows that the guest runs or was started since it was defined; None if
    nothing does."""
    if dom.isActive():
        return f"it is {lookup.state(dom)}"
    with contextlib.suppress(libvirt.libvirtError):  # the driver does not support it
        if dom.hasManagedSaveImage():
            return "it has saved memory"
    with contextlib.suppress(libvirt.libvirtError):
        if dom.snapshotNum():
            return "it has snapshots"
    started_at = _last_start(dom)
    return f"it was started at {started_at}" if started_at else None


def refuse_used(dom: libvirt.virDomain) -> None:
    """Raise Incomplete if a guest whose creation was interrupted runs or was ever started: it may
    hold data that exists nowhere else."""
    evidence = evidence_of_use(dom)
    if evidence:
        name, host = dom.name(), dom.connect().getHostname()
        raise errors.Incomplete(
            f"{name} on {host} was not changed: its creation was interrupted, but "
            f"{evidence}: salt {host} virt.mark_complete {name} keeps it as it is, "
            f"salt-run virt.purge {name} force=True deletes it with its disks"
        )


def complete(dom: libvirt.virDomain) -> None:
    """Record that the guest is complete."""
    record = _record(dom).copy()
    record.creating = record.mark = None
    with connection.translated(f"mark {dom.name()} as complete"):
        metadata.write(dom, record)


def _last_start(dom: libvirt.virDomain) -> str | None:
    """Return the time of the guest's last start since it was defined, from libvirt's log; None if
    it was not started, or the log is not on this host."""
    conn = dom.connect()
    folder = _FOLDERS.get(conn.getType())
    if folder is None or not connection.is_local(conn):
        return None
    created = _record(dom).created or ""
    starts = (start for file in _logs(folder, dom.name()) for start in _starts(file))
    last = max(starts, default="")
    return last if last >= created else None


def _logs(folder: str, name: str) -> list[str]:
    """Return the logs of a guest, including rotated ones."""
    return glob.glob(f"{glob.escape(os.path.join(LOGS, folder, name))}.log*")


def _starts(path: str) -> Iterator[str]:
    """Return the start times in one log of a guest, in the format of GuestRecord.created."""
    opener = gzip.open if path.endswith(".gz") else open
    with contextlib.suppress(OSError, EOFError), opener(path, "rb") as file:
        for line in cast("IO[bytes]", file):
            match = _START.match(line)
            if match:
                yield f"{match[1].decode()}T{match[2].decode()}Z"
