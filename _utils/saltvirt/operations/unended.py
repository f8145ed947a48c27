"""A guest whose init was killed: what is proven of it, and so what ends it."""

from __future__ import annotations

from saltvirt import errors
from saltvirt.creation import Phase
from saltvirt.fleet.client import Fleet
from saltvirt.fleet.keys import KeyStore
from saltvirt.fleet.pillars import Pillars
from saltvirt.operations import begun, find, lock, purge, unique
from saltvirt.operations.init import InitRequest, deliver
from saltvirt.operations.report import Report
from saltvirt.placement import facts
from saltvirt.placement.policy import PlacementPolicy

# it goes and is made again; all of it is there, and it was never started
AGAIN, START = "again", "start"


def judge(
    fleet: Fleet, wanted: InitRequest, guest: facts.Guest, host: str, deployment: str
) -> tuple[str | None, str | None]:
    """(AGAIN, START or None, what to say of a guest that stays as it is or None).

    wanted: InitRequest. guest: facts.Guest, on ``host``. Changes nothing.
    """
    opts, name = fleet.opts, wanted.name
    record = begun.of(opts, name)
    ours = guest.deployment == str(deployment)
    if lock.at_work(opts, name):
        return None, None
    if guest.phase is not Phase.COMPLETE:
        return _half(fleet, name, host, ours)
    if record is None or record.host != host or guest.state == "running":
        return None, None
    words = f"{record.what} of it was given up or killed: see salt-run virt.repair name={name}"
    never = record.what == "virt.init" and not record.started
    off = guest.state == "shutdown"
    if not (ours and never and off and _known(fleet, wanted, host)):
        return None, words
    # one of the same set that another master made since has the set's name, too
    there = find.leftovers(fleet, host)
    return (None, words) if begun.by_another(name, record, there) else (START, None)


def _half(fleet: Fleet, name: str, host: str, ours: bool) -> tuple[str | None, str | None]:
    has = find.leftovers(fleet, host)
    if name not in has.unfinished:
        return None, f"it is being created on {host}: run this again when that is done"
    if name in has.used:
        return None, (
            f"its creation on {host} was interrupted, but {has.used[name]}: it stays as it is; see "
            f"salt-run virt.repair name={name}"
        )
    if ours:
        return AGAIN, None
    return (
        None,
        f"partially created by an interrupted init of somebody else: see salt-run virt.repair "
        f"name={name}",
    )


def _known(fleet: Fleet, wanted: InitRequest, host: str) -> bool:
    """Whether the master has what it keeps of such a guest: its key and its pillar."""
    keys, seeded = KeyStore(fleet.opts), wanted.seeded and wanted.image
    if seeded and not (keys.accepted(wanted.name) and keys.host_of(wanted.name) == host):
        return False
    return not wanted.pillar or Pillars(fleet.opts).of(wanted.name, keys.accepted) == wanted.pillar


def remove(fleet: Fleet, name: str, host: str) -> None:
    """Takes away what is half made; its host proves again that nobody works on it. The key goes
    that the master accepted for this very guest."""
    with lock.guest(fleet.opts, name, "virt.deployed"):
        purge.leftover(fleet, host, name)
        keys = KeyStore(fleet.opts)
        if keys.stays(name, host) is None:
            keys.delete(name)
        begun.forget(fleet.opts, name)


def start(
    fleet: Fleet,
    policy: PlacementPolicy,
    wanted: InitRequest,
    host: str,
    report: Report,
    look: unique.Look = find.locations,
) -> str:
    """Ends what the killed one had left to do; libvirt's word for the guest's state then. look:
    asks all hosts, after it is called."""
    with lock.guest(fleet.opts, wanted.name, "virt.deployed"):
        record = begun.of(fleet.opts, wanted.name)
        if record is None or record.host != host or record.started:
            raise errors.OperationFailed(
                f"{wanted.name} on {host} was changed meanwhile: run this again"
            )
        look(fleet).host_of(wanted.name)  # one of another master is named, and neither is started
        begun.starting(fleet.opts, wanted.name)
        by = policy if wanted.start else None
        state = deliver(fleet, report, host, wanted.name, start_by=by)
        begun.forget(fleet.opts, wanted.name)
        return state
