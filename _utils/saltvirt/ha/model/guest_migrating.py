"""Guests that migrate or are to migrate: away from a host, to a better host, or to a host that an
operator has requested: conditions and changes of the table of guests."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from saltvirt.ha.model.guest_case import hosts_failed, let_go
from saltvirt.ha.model.guest_failing import failure
from saltvirt.ha.model.messages import ALIVE, RUNNING
from saltvirt.ha.model.registry import MAINTENANCE, UP, GuestLocation
from saltvirt.ha.model.view import MIGRATE, RELOCATE, RESTART

if TYPE_CHECKING:
    from saltvirt.ha.model.guest_case import GuestCase
    from saltvirt.ha.model.registry import HaGuestRecord

# the first wait after a failed migration, which doubles with each further failure; the maximum
# waits for planned migrations and for those to a better host
WAIT_S, WAIT_PLANNED_S, MAX_WAIT_S = 10, 30, 600
_DOUBLED = 8


def has_arrived(case: GuestCase) -> bool:
    record = case.record
    beat = case.beat(record.target, record.target_boot)
    status = beat.guests.get(case.name) if beat else None
    return status is not None and status.state == RUNNING and status.epoch == record.epoch + 1


def migration_failed(case: GuestCase) -> bool:
    status = case.status
    return bool(
        case.record.target
        and status is not None
        and status.state == RUNNING
        and status.migrated > case.record.epoch
    )


def was_lost_in_migration(case: GuestCase) -> bool:
    """Return whether the guest left its host and did not arrive at the target of its
    migration."""
    record, status = case.record, case.status
    if case.host_beat is None or (status and status.state in ALIVE):
        return False
    beat = case.beat(record.target, record.target_boot)
    is_certain = beat is not None or lost_its_target(case)
    return is_certain and not case.is_coming


def lost_its_target(case: GuestCase) -> bool:
    target = GuestLocation(case.record.target, case.record.target_boot)
    return bool(case.record.target) and target not in case.locations


def is_where_requested(case: GuestCase) -> bool:
    """Return whether the guest already is on the requested host, which it reached in another
    way."""
    record, request = case.record, case.view.relocations.get(case.name)
    new = (
        request is not None and request.number > record.last_request and request.host == record.host
    )
    return new and not record.target


def is_to_relocate(case: GuestCase) -> bool:
    return bool(case.requested_host(RELOCATE)) and not case.record.target and case.registry.armed


def goal(case: GuestCase) -> str:
    """Return the host to which the guest is to migrate, or ""."""
    record, host = case.record, case.host
    if not _is_well(case):
        return ""
    target = case.requested_host(MIGRATE)
    if target and target in case.capacity.ranked(case.name)[0]:
        return target
    leaving = case.leaving_beat
    if host.state == MAINTENANCE or (leaving and leaving.live):
        waited = _has_waited(case, WAIT_PLANNED_S)
        return next(iter(case.capacity.ranked(case.name, [record.host])[0]), "") if waited else ""
    return _better(case) if case.config.failback is True else ""


def _is_well(case: GuestCase) -> bool:
    """Return whether the guest runs where it should, and no change of it is in progress."""
    record, status = case.record, case.status
    is_settled = record.run and not record.target and len(record.locations) <= 1
    runs = status is not None and status.state == RUNNING and status.epoch == record.epoch
    return is_settled and runs


def _has_waited(case: GuestCase, max_s: float) -> bool:
    """Return whether enough time has passed since the guest's last migration failed: the wait
    doubles with each failure in a row, up to max_s."""
    record = case.record
    if not record.turned:
        return True
    running_since = case.state.ran_s.get(case.name)
    wait_s = min(WAIT_S * 2 ** min(record.turned - 1, _DOUBLED), max_s)
    return (
        running_since is not None
        and running_since[0] == record.epoch
        and case.now_s - running_since[1] >= wait_s
    )


def _better(case: GuestCase) -> str:
    """Return a host that the guest prefers to its present one, which has no problem; or ""."""
    record = case.record
    if case.host.state != UP or record.failed or not _has_waited(case, MAX_WAIT_S):
        return ""
    home, liked = _home(case), _liked(case)
    if not (home or liked):
        return ""
    excluded = [location.host for location in record.refused
            if location.boot == case.registry.host(location.host).boot]  # fmt: skip
    ranked, _ = case.capacity.ranked(case.name, excluded)
    if home in ranked:
        return home
    return ranked[0] if ranked and ranked[0] in liked else ""


def _home(case: GuestCase) -> str:
    """Return the host that the guest left for a planned change, unless the guest prefers its
    present host; or ""."""
    home, host, rank = case.record.home, case.record.host, case.capacity.rank
    takes = home != host and case.capacity.usable(home, case.name) == ""
    return home if takes and rank(case.name, home) >= rank(case.name, host) else ""


def _liked(case: GuestCase) -> set[str]:
    """Return the hosts that the guest prefers to its present one, according to the ranks of
    rules."""
    own_rank = case.capacity.rank(case.name, case.record.host)
    rules = [rule for rule in case.view.rules if case.name in rule.guests]
    return {host for rule in rules for host, rank in rule.hosts.items() if rank > own_rank}


def is_to_migrate(case: GuestCase) -> bool:
    return bool(goal(case)) and case.registry.armed


def back(case: GuestCase) -> str:
    """Return the better host on which the guest is to be started after it is shut down on its
    present host, or ""."""
    if case.config.failback != RESTART or not _is_well(case):
        return ""
    best = _better(case)
    return "" if case.capacity.is_awaited(best) else best


def is_to_restart_elsewhere(case: GuestCase) -> bool:
    return bool(back(case)) and case.registry.armed


def failed_on_better_host(case: GuestCase) -> bool:
    """Return whether the guest does not start on the better host, to which it went with a stop and
    a start, after it ran without problems on the earlier one."""
    record = case.record
    return bool(record.origin) and record.better == record.host and bool(failure(case))


def going_back_reason(case: GuestCase) -> str:
    return f"it failed: {failure(case)}; it is started on {case.record.origin} again"


# changes of the record


def arrive(case: GuestCase, record: HaGuestRecord) -> HaGuestRecord:
    request = case.view.relocations.get(case.name)
    is_fulfilled = request is not None and request.host == record.target
    home = "" if record.target == record.home else record.home
    return replace(
        record, host=record.target, boot=record.target_boot, last=record.target,
        epoch=record.epoch + 1, run=True, target="", target_boot=0, locations=case.locations,
        home=home, turned=0,
        last_request=request.number if request and is_fulfilled else record.last_request,
    )  # fmt: skip


def turn_back(case: GuestCase, record: HaGuestRecord) -> HaGuestRecord:
    request = case.view.relocations.get(case.name)
    tried = request is not None and (request.kind, request.host) == (MIGRATE, record.target)
    return replace(
        record, target="", target_boot=0, epoch=record.epoch + 2, locations=case.locations,
        last_request=request.number if request and tried else record.last_request,
        turned=record.turned + 1,
    )  # fmt: skip


def complete_request(case: GuestCase, record: HaGuestRecord) -> HaGuestRecord:
    return replace(record, last_request=case.view.relocations[case.name].number)


def relocate_to(case: GuestCase, record: HaGuestRecord) -> HaGuestRecord:
    request = case.view.relocations[case.name]
    return let_go(replace(record, better=request.host, last_request=request.number), gentle=True)


def restart_there(case: GuestCase, record: HaGuestRecord) -> HaGuestRecord:
    host = back(case)
    case.capacity.take(case.name, host)
    return let_go(replace(record, better=host, origin=record.host), gentle=True)


def go_back(_case: GuestCase, record: HaGuestRecord) -> HaGuestRecord:
    """Return the record of a guest that goes back to the host where it ran. The guest does not go
    to the better host again before that host has booted again, because the guest is down during
    each attempt. This uses up no try."""
    earlier = (location for location in record.refused if location.host != record.host)
    refused = (*earlier, GuestLocation(record.host, record.boot))
    failed = hosts_failed(record)
    changed = replace(record, refused=refused, failed=failed, better=record.origin, origin="")
    return let_go(changed, gentle=True)


def send(case: GuestCase, record: HaGuestRecord) -> HaGuestRecord:
    host = goal(case)
    boot = case.registry.host(host).boot
    planned = case.host.state == MAINTENANCE or case.leaving_beat is not None
    case.capacity.take(case.name, host, starts=False)
    return replace(
        record, target=host, target_boot=boot,
        locations=(*record.locations, GuestLocation(host, boot)),
        home=(record.home or record.host) if planned else record.home,
    )  # fmt: skip
