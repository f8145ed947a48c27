"""Back up the guests whose last good backup is too old, several at a time."""

from __future__ import annotations

import fnmatch
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from saltvirt import errors, settings, units
from saltvirt.answers.creation import Phase
from saltvirt.answers.guest_calls import SWEEP_BACKUPS, HostRequest
from saltvirt.backup.manager import backup, target_upkeep
from saltvirt.backup.model import age, backup_schedule, policy
from saltvirt.backup.model.answers import ListedBackup
from saltvirt.fleet.client import Fleet
from saltvirt.operations.cluster import inventory
from saltvirt.operations.core.operation import Checked, Result, Several, failure
from saltvirt.operations.core.report import Lines, OneByOne, Report
from saltvirt.operations.journal import location_cache, lock
from saltvirt.placement import facts

_MAX_AT_ONCE = 100
_HOUR_S = 3600
# the holder of a guest's lock during a backup
BACKUP = "virt.backup"


@dataclass(frozen=True)
class OverdueRequest:
    """Which guests to back up.

    guests: shell patterns of names. age_s: the maximum age of the last good backup. target_name:
    the target of new backups and of the last good backup; None: the default target, and a good
    backup at any target counts. at_once: the maximum number of backups at a time. only_configured:
    only guests with a backup schedule of their own.
    """

    guests: tuple[str, ...]
    age_s: float
    target_name: str | None
    at_once: int
    only_configured: bool = False

    @classmethod
    def parse(
        cls,
        guests: object,
        hours: object,
        target_name: object,
        at_once: object,
        only_configured: bool = False,
    ) -> OverdueRequest:
        """Parse the arguments of the user. Raises InvalidInput."""
        several = [guests] if isinstance(guests, str) else guests
        if not isinstance(several, list) or not all(
            isinstance(pattern, str) for pattern in several
        ):
            raise errors.InvalidInput(
                f"guests must be a pattern of names or a list of them, not "
                f"{units.short_repr(guests)}"
            )
        if target_name is not None and not isinstance(target_name, str):
            raise errors.InvalidInput(
                f"to must be the name of a target, not {units.short_repr(target_name)}"
            )
        seconds = units.parse_number(hours, "hours") * _HOUR_S
        count = min(units.parse_count(at_once, "at_once"), _MAX_AT_ONCE)
        return cls(tuple(several), seconds, target_name, count, only_configured)

    def names(self, guest: facts.Guest) -> bool:
        """Return whether a pattern matches the name of the guest."""
        return self.matches(guest.name)

    def matches(self, name: str) -> bool:
        """Return whether a pattern matches the name."""
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self.guests)

    def criteria_for(self, guest: facts.Guest) -> _Criteria | None:
        """Return what applies to a guest, from its own schedule if it has one; None: no backup."""
        if not self.names(guest):
            return None
        schedule = backup_schedule.from_text(guest.backup)
        if schedule is None:
            return None if self.only_configured else _Criteria(self.age_s, self.target_name)
        if not schedule.is_enabled:
            return None
        age_s = self.age_s if schedule.hours is None else schedule.hours * _HOUR_S
        return _Criteria(age_s, schedule.target or self.target_name)


@dataclass(frozen=True)
class _Criteria:
    """The maximum age and the target for one guest; see OverdueRequest."""

    age_s: float
    target_name: str | None


@dataclass(frozen=True)
class _OverdueGuest:
    """A guest to back up. reason: why it is overdue. host: the host of the guest."""

    reason: str
    target_name: str | None
    host: str


class _HostSlots:
    """The queue of guests, with a maximum number of backups per host.

    A guest whose host has no free slot does not delay guests on other hosts. guests: guest to host.
    """

    def __init__(self, guests: Mapping[str, str], per_host: int) -> None:
        self._hosts, self._waiting, self._per_host = dict(guests), list(guests), per_host
        self._busy: Counter[str] = Counter()
        self._changed = threading.Condition()

    def take(self) -> str | None:
        """Return the next guest, or None if the queue is empty."""
        with self._changed:
            while self._waiting:
                for name in self._waiting:
                    if self._busy[self._hosts[name]] < self._per_host:
                        self._waiting.remove(name)
                        self._busy[self._hosts[name]] += 1
                        return name
                self._changed.wait()
            return None

    def clear(self) -> None:
        """Empty the queue."""
        with self._changed:
            self._waiting.clear()
            self._changed.notify_all()

    def release(self, name: str) -> None:
        """Free the slot of a guest on its host."""
        with self._changed:
            self._busy[self._hosts[name]] -= 1
            self._changed.notify_all()


class BackUpOverdue:
    """Back up all overdue guests. screen: shows the steps. clock: seconds since 1970."""

    def __init__(
        self,
        fleet: Fleet,
        request: OverdueRequest,
        screen: Lines | None,
        requester: str,
        clock: Callable[[], float],
    ) -> None:
        self.fleet, self.request, self.requester, self.clock = fleet, request, requester, clock
        self.screen = OneByOne(screen)

    def check(self) -> Several:
        """Return the last good backup of each guest, or that a backup would be created."""
        overdue, young, silent = self._select()
        would = [
            Checked(name, f"{guest.reason}: would back it up", {"backup": None})
            for name, guest in overdue.items()
        ]
        well = [Checked(name, reason, nothing=True) for name, reason in young.items()]
        return Several((*would, *well, *silent))

    def run(self) -> Several:
        """Create the backups. The failure of one backup does not affect the others.

        Raises NotFound, InvalidInput, ConnectionFailed.
        """
        overdue, young, silent = self._select()
        # remove what interrupted backups have left, which takes the space of new ones
        SWEEP_BACKUPS.gather(self.fleet, self.fleet.hosts(), HostRequest(), long=False)
        backup_policy = policy.read(settings.of_master(self.fleet.opts))
        turns = _HostSlots(
            {name: item.host for name, item in overdue.items()}, backup_policy.at_once_per_host
        )
        results: dict[str, Result] = {}

        def work() -> None:
            while (name := turns.take()) is not None:
                try:
                    results[name] = self._back_up(name, overdue[name].target_name)
                finally:
                    turns.release(name)

        with ThreadPoolExecutor(max_workers=self.request.at_once) as pool:
            try:
                for item in [pool.submit(work) for _ in range(self.request.at_once)]:
                    item.result()
            finally:
                turns.clear()  # after Ctrl-C, no further backup begins
        well = [Result(name, reason) for name, reason in young.items()]
        return Several((*(results[name] for name in overdue), *well, *silent))

    def _back_up(self, name: str, target_name: str | None) -> Result:
        try:
            with Fleet(self.fleet.opts, like=self.fleet) as fleet:
                report = Report(fleet, name, "backup", self.screen)
                return backup.CreateBackup(
                    fleet, name, target_name, report, requester=self.requester
                ).run()
        except Exception as exc:
            return Result(name, failure(exc, f"the backup of {name}"), complete=False)

    def _select(self) -> tuple[dict[str, _OverdueGuest], dict[str, str], tuple[Result, ...]]:
        """Return the overdue guests, the reason for each other guest, and hosts with errors."""
        backup_policy = policy.read(settings.of_master(self.fleet.opts))
        listed, silence = self._list_backups()
        if (
            not self.request.only_configured
            and (name := backup_policy.target(self.request.target_name).name) in silence
        ):
            raise silence[name]
        hosts, unreachable = inventory.gather(self.fleet)
        overdue: dict[str, _OverdueGuest] = {}
        young: dict[str, str] = {}
        now_s = self.clock()
        places = {member.name: host.name for host in hosts for member in host.guests}
        complete_guests = [
            member for host in hosts for member in host.guests if member.phase is Phase.COMPLETE
        ]
        failed: list[Result] = []
        for guest in sorted(complete_guests, key=lambda member: member.name):
            criteria = self.request.criteria_for(guest)
            if criteria is None:
                continue
            try:
                name = backup_policy.target(criteria.target_name).name
                if name in silence:
                    raise silence[name]
            except errors.VirtError as exc:
                failed.append(Result(guest.name, exc.text, complete=False))
                continue
            listings = {name: listed[name]} if criteria.target_name else listed
            age_s, reason = _latest_backup(listings, guest, now_s)
            at_work = lock.guest_owner(self.fleet.opts, guest.name) or ""
            if age_s < criteria.age_s:
                young[guest.name] = reason
            elif at_work.startswith(BACKUP):  # a large backup of an earlier run of the schedule
                young[guest.name] = f"{reason}: {at_work}, is in progress"
            else:
                overdue[guest.name] = _OverdueGuest(
                    reason, criteria.target_name, places[guest.name]
                )
        silent = tuple(
            Result(host, self._silence(host, reason, places), complete=False)
            for host, reason in sorted(unreachable.items())
        )
        if not (overdue or young or silent or failed):
            self._refuse_empty(complete_guests)
        return overdue, young, (*failed, *silent)

    def _silence(self, host: str, reason: str, places: Mapping[str, str]) -> str:
        """Return the comment about a host that does not answer, with the requested guests that it
        had. places: where the other hosts have guests."""
        text = f"cannot list the guests of {host}: {reason}"
        unseen, last_heard = location_cache.unseen_guests(self.fleet.opts, host)
        missing = [name for name in unseen if name not in places and self.request.matches(name)]
        if missing:
            text += f"; last seen there ({last_heard}): {', '.join(missing)}"
        return text

    def _refuse_empty(self, guests: Iterable[facts.Guest]) -> None:
        """Raise NotFound, because a schedule without any guest is a mistake.

        Guests whose schedule disables backups count as guests.
        """
        names, matching = ", ".join(self.request.guests), [*filter(self.request.names, guests)]
        if not matching:
            raise errors.NotFound(f"no guest matches {names}")
        if all(backup_schedule.from_text(guest.backup) is None for guest in matching):
            raise errors.NotFound(
                f"none of the guests {names} has a backup schedule, which scheduled=True "
                "requires: set backup in virt_deploy, or omit scheduled"
            )

    def _list_backups(self) -> tuple[dict[str, list[ListedBackup]], dict[str, errors.VirtError]]:
        """Return the backups at each target, and the error of each target that does not answer.

        No guest is backed up to a target that does not answer.
        """
        listings, silence = {}, {}
        for target in target_upkeep.select_targets(self.fleet, None):
            try:
                listings[target.name] = backup.list_at(self.fleet, target, None, None, True)
            except errors.VirtError as exc:
                silence[target.name] = exc
        return listings, silence


def _latest_backup(
    listed: Mapping[str, Iterable[ListedBackup]], guest: facts.Guest, now_s: float
) -> tuple[float, str]:
    """Return the age of a guest's last good backup at any of the targets, and its description."""
    candidates = [
        (last[0], target_name, last[1].backup_id)
        for target_name, several in listed.items()
        if (last := age.newest(several, guest.uuid, now_s)) is not None
    ]
    wrong = "".join(
        _newest_wrong(several, guest.uuid, target) for target, several in listed.items()
    )
    if not candidates:
        return math.inf, f"{guest.name} has no good backup{wrong}"
    age_s, target_name, backup_id = min(candidates)
    text = (
        f"the last backup of {guest.name} is {backup_id} at {target_name}, "
        f"{age_s / _HOUR_S:.1f} hours old"
    )
    return age_s, text + wrong


def _newest_wrong(several: Iterable[ListedBackup], uuid: str, target_name: str) -> str:
    """Return the problem of a guest's newest backup at a target, or of its time."""
    own_backups = [entry for entry in several if entry.uuid == uuid]
    last = max(own_backups, key=lambda entry: entry.backup_id, default=None)
    if last is None:
        return ""
    if last.problem:
        return (
            f"; the newest backup at {target_name}, {last.backup_id}, is not good: {last.problem}"
        )
    if last.age_s is not None and last.age_s < 0:
        return (
            f"; {last.backup_id} at {target_name} is in the future: check the clock of its machine"
        )
    return ""
