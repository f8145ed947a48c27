"""A hand on a migration that runs."""

import contextlib
import time

from saltvirt import errors
from saltvirt.host import domain
from saltvirt.host.connection import libvirt, translated

_WAIT_S = 30


def _outgoing(dom):
    """Whether libvirt is moving the domain away at this moment."""
    if not dom.isActive():
        return False
    with contextlib.suppress(libvirt.libvirtError):
        stats = dom.jobStats()
        outgoing = stats.get("operation") == libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_OUT
        return outgoing and stats.get("type") in (1, 2)
    return False


def _running(conn, name):
    dom = domain.lookup(conn, name)
    if not _outgoing(dom):
        raise errors.OperationFailed(f"{name} is not being migrated from {conn.getHostname()}")
    return dom


def abort(conn, name):
    """Ends the migration; True once libvirt has no more of it."""
    with translated(f"abort the migration of {name}"):
        dom = _running(conn, name)
        dom.abortJob()
        deadline = time.monotonic() + _WAIT_S
        while _outgoing(dom):
            if time.monotonic() > deadline:
                raise errors.OperationFailed(
                    f"{name}: libvirt took the command, but still migrates after {_WAIT_S} s"
                )
            time.sleep(0.2)
    return True


def start_postcopy(conn, name):
    """Lets the guest run on the target before its memory is all there."""
    with translated(f"start post-copy of {name}"):
        _running(conn, name).migrateStartPostCopy()
    return True
