"""Decide how to complete a guest whose init was killed, from what is proven about it."""

from __future__ import annotations

from saltvirt import errors
from saltvirt.answers.creation import Phase
from saltvirt.fleet.client import Fleet
from saltvirt.fleet.keys import KeyStore
from saltvirt.fleet.pillars import Pillars
from saltvirt.operations.cluster import find, unique
from saltvirt.operations.core.report import Report
from saltvirt.operations.create.init import deliver
from saltvirt.operations.create.request import InitRequest
from saltvirt.operations.guest import purge
from saltvirt.operations.journal import intent_log, lock
from saltvirt.placement import facts
from saltvirt.placement.policy import PlacementPolicy

# remove the guest and create it again; or start it, because it is complete and was never started
RECREATE, START = "again", "start"


def judge(
    fleet: Fleet, init_request: InitRequest, guest: facts.Guest, host: str, deployment: str
) -> tuple[str | None, str | None]:
    """Return (RECREATE, START or None; the note for a guest that stays as it is, or None).

    guest: on ``host``. Changes nothing.
    """
    opts, name = fleet.opts, init_request.name
    record = intent_log.load(opts, name)
    in_deployment = guest.deployment == str(deployment)
    if lock.guest_owner(opts, name):
        return None, None
    if guest.phase is not Phase.COMPLETE:
        return _judge_partial(fleet, name, host, in_deployment)
    if record is None or record.host != host or guest.state == "running":
        return None, None
    message = (
        f"{record.function} for it was given up or killed: see salt-run virt.repair name={name}"
    )
    never_started = record.function == "virt.init" and not record.started
    is_off = guest.state == "shutdown"
    if not (
        in_deployment and never_started and is_off and _is_registered(fleet, init_request, host)
    ):
        return None, message
    # a guest of the same deployment that another master created since has the deployment's name,
    # too
    leftovers = find.leftovers(fleet, host)
    return (None, message) if intent_log.is_by_another(name, record, leftovers) else (START, None)


def _judge_partial(
    fleet: Fleet, name: str, host: str, in_deployment: bool
) -> tuple[str | None, str | None]:
    leftovers = find.leftovers(fleet, host)
    if name not in leftovers.unfinished:
        return None, f"it is being created on {host}: run this again when that is done"
    if name in leftovers.used:
        return None, (
            f"its creation on {host} was interrupted, but {leftovers.used[name]}: it stays as it "
            f"is; see salt-run virt.repair name={name}"
        )
    if in_deployment:
        return RECREATE, None
    return (
        None,
        f"partially created by an interrupted init of another operation: see salt-run virt.repair "
        f"name={name}",
    )


def _is_registered(fleet: Fleet, init_request: InitRequest, host: str) -> bool:
    """Return whether the master has the key and the pillar of the guest."""
    keys, seeded = KeyStore(fleet.opts), init_request.seeded and init_request.image
    if seeded and not (
        keys.accepted(init_request.name) and keys.host_of(init_request.name) == host
    ):
        return False
    return (
        not init_request.pillar
        or Pillars(fleet.opts).load(init_request.name, keys.accepted) == init_request.pillar
    )


def remove(fleet: Fleet, name: str, host: str) -> None:
    """Remove a partial guest; the host verifies again that no process works on it. The key is
    deleted if the master accepted it for this guest."""
    with lock.guest(fleet.opts, name, "virt.deployed"):
        purge.purge_partial(fleet, host, name)
        keys = KeyStore(fleet.opts)
        if keys.retain_reason(name, host) is None:
            keys.delete(name)
        intent_log.forget(fleet.opts, name)


def start(
    fleet: Fleet,
    policy: PlacementPolicy,
    init_request: InitRequest,
    host: str,
    report: Report,
    query_locations: unique.LocationQuery = find.locations,
) -> str:
    """Complete an interrupted init by starting the guest, and return its state in libvirt.
    query_locations: queries all hosts after it is called."""
    with lock.guest(fleet.opts, init_request.name, "virt.deployed"):
        record = intent_log.load(fleet.opts, init_request.name)
        if record is None or record.host != host or record.started:
            raise errors.OperationFailed(
                f"{init_request.name} on {host} was changed meanwhile: run this again"
            )
        # a guest of another master is an error with its host, and neither is started
        query_locations(fleet).host_of(init_request.name)
        intent_log.mark_started(fleet.opts, init_request.name)
        start_policy = policy if init_request.start else None
        state = deliver(fleet, report, host, init_request.name, start_policy=start_policy)
        intent_log.forget(fleet.opts, init_request.name)
        return state
