"""The guests that have no good backup that is young enough are backed up, several at once."""

from __future__ import annotations

import fnmatch
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from saltvirt import errors, settings, units
from saltvirt.backupmaster import backup, keep
from saltvirt.backups import age, policy, wish
from saltvirt.backups.answers import ListedBackup
from saltvirt.creation import Phase
from saltvirt.fleet.client import Fleet
from saltvirt.operations import inventory, lock
from saltvirt.operations.operation import Checked, Result, Several, failure
from saltvirt.operations.report import Lines, OneByOne, Report
from saltvirt.placement import facts

_MOST_AT_ONCE = 100
_HOUR_S = 3600
# how a guest's lock is held
BACKUP = "virt.backup"


@dataclass(frozen=True)
class DueRequest:
    """guests: shell patterns of names. age_s: so old may a guest's last good backup be. to: the
    target, where that backup is, too; None: it may be at any, and a new one is made at the one that
    is meant. at_once: so many guests at a time. said: only guests that say how they are to be
    backed up."""

    guests: tuple[str, ...]
    age_s: float
    to: str | None
    at_once: int
    said: bool = False

    @classmethod
    def parse(
        cls, guests: object, hours: object, to: object, at_once: object, said: bool = False
    ) -> DueRequest:
        """What was typed. Raises InvalidInput."""
        several = [guests] if isinstance(guests, str) else guests
        if not isinstance(several, list) or not all(isinstance(one, str) for one in several):
            raise errors.InvalidInput(
                f"guests must be a pattern of names or a list of them, not {units.shown(guests)}"
            )
        if to is not None and not isinstance(to, str):
            raise errors.InvalidInput(f"to must be the name of a target, not {units.shown(to)}")
        seconds = units.parse_number(hours, "hours") * _HOUR_S
        count = min(units.parse_count(at_once, "at_once"), _MOST_AT_ONCE)
        return cls(tuple(several), seconds, to, count, said)

    def names(self, guest: facts.Guest) -> bool:
        """Whether a guest has one of the names."""
        return any(fnmatch.fnmatchcase(guest.name, pattern) for pattern in self.guests)

    def of(self, guest: facts.Guest) -> _Asked | None:
        """What is asked of a guest, which may say it itself; None where nothing is."""
        if not self.names(guest):
            return None
        own = wish.of_text(guest.backup)
        if own is None:
            return None if self.said else _Asked(self.age_s, self.to)
        if not own.is_wanted:
            return None
        age_s = self.age_s if own.hours is None else own.hours * _HOUR_S
        return _Asked(age_s, own.to or self.to)


@dataclass(frozen=True)
class _Asked:
    """Of one guest; as a DueRequest has it."""

    age_s: float
    to: str | None


@dataclass(frozen=True)
class _IsDue:
    """why: it is. to: the target. host: of the guest."""

    why: str
    to: str | None
    host: str


class _Turns:
    """Who is next: of each host so many at a time as it may have, so that nobody waits for a place
    at one while another host has some. guests: to their hosts."""

    def __init__(self, guests: Mapping[str, str], per_host: int) -> None:
        self._hosts, self._waiting, self._per_host = dict(guests), list(guests), per_host
        self._busy: Counter[str] = Counter()
        self._changed = threading.Condition()

    def take(self) -> str | None:
        """A guest; None where none is left."""
        with self._changed:
            while self._waiting:
                for name in self._waiting:
                    if self._busy[self._hosts[name]] < self._per_host:
                        self._waiting.remove(name)
                        self._busy[self._hosts[name]] += 1
                        return name
                self._changed.wait()
            return None

    def done(self, name: str) -> None:
        """Its host has a place again."""
        with self._changed:
            self._busy[self._hosts[name]] -= 1
            self._changed.notify_all()


class Due:
    """screen: where steps are shown. clock: seconds since 1970."""

    def __init__(
        self,
        fleet: Fleet,
        asked: DueRequest,
        screen: Lines | None,
        by: str,
        clock: Callable[[], float],
    ) -> None:
        self.fleet, self.asked, self.by, self.clock = fleet, asked, by, clock
        self.screen = OneByOne(screen)

    def check(self) -> Several:
        """Of each guest its last good backup, or that one would be made."""
        due, young, silent = self._looked()
        would = [
            Checked(name, f"{one.why}: it would be backed up", {"backup": None})
            for name, one in due.items()
        ]
        well = [Checked(name, why, nothing=True) for name, why in young.items()]
        return Several((*would, *well, *silent))

    def run(self) -> Several:
        """Raises NotFound, InvalidInput, ConnectionFailed; what becomes of one guest hinders no
        other."""
        due, young, silent = self._looked()
        # what backups that died have left takes the room of those that come
        for _ in self.fleet.ask(self.fleet.hosts(), "virt.backup_sweep"):
            pass
        known = policy.read(settings.of_master(self.fleet.opts))
        turns = _Turns({name: one.host for name, one in due.items()}, known.at_once_per_host)
        made: dict[str, Result] = {}

        def work() -> None:
            while (name := turns.take()) is not None:
                try:
                    made[name] = self._made(name, due[name].to)
                finally:
                    turns.done(name)

        with ThreadPoolExecutor(max_workers=self.asked.at_once) as pool:
            for one in [pool.submit(work) for _ in range(self.asked.at_once)]:
                one.result()
        well = [Result(name, why) for name, why in young.items()]
        return Several((*(made[name] for name in due), *well, *silent))

    def _made(self, name: str, to: str | None) -> Result:
        try:
            with Fleet(self.fleet.opts, like=self.fleet) as fleet:
                report = Report(fleet, name, "backup", self.screen)
                return backup.Backup(fleet, name, to, report, by=self.by).run()
        except Exception as exc:
            return Result(name, failure(exc, f"the backup of {name}"), complete=False)

    def _looked(self) -> tuple[dict[str, _IsDue], dict[str, str], tuple[Result, ...]]:
        """(guest to why it is due, guest to why it is not, hosts that were not heard)."""
        known = policy.read(settings.of_master(self.fleet.opts))
        listed, silence = self._listed()
        if not self.asked.said and (name := known.target(self.asked.to).name) in silence:
            raise silence[name]
        hosts, unreachable = inventory.gather(self.fleet)
        due: dict[str, _IsDue] = {}
        young: dict[str, str] = {}
        now_s = self.clock()
        places = {one.name: host.name for host in hosts for one in host.guests}
        there = [one for host in hosts for one in host.guests if one.phase is Phase.COMPLETE]
        failed: list[Result] = []
        for guest in sorted(there, key=lambda one: one.name):
            asked = self.asked.of(guest)
            if asked is None:
                continue
            try:
                name = known.target(asked.to).name
                if name in silence:
                    raise silence[name]
            except errors.VirtError as exc:
                failed.append(Result(guest.name, exc.text, complete=False))
                continue
            at = {name: listed[name]} if asked.to else listed
            age_s, why = _last(at, guest, now_s)
            at_work = lock.at_work(self.fleet.opts, guest.name) or ""
            if age_s < asked.age_s:
                young[guest.name] = why
            elif at_work.startswith(BACKUP):  # an earlier run of the schedule, for a big one
                young[guest.name] = f"{why}: {at_work}, is under way"
            else:
                due[guest.name] = _IsDue(why, asked.to, places[guest.name])
        silent = tuple(
            Result(host, f"what guests {host} has is not known: {why}", complete=False)
            for host, why in sorted(unreachable.items())
        )
        if not (due or young or silent or failed):
            self._refuse_nobody(there)
        return due, young, (*failed, *silent)

    def _refuse_nobody(self, there: Iterable[facts.Guest]) -> None:
        """Raises NotFound: a schedule that backs up nobody is a mistake. Guests that ask for no
        backup are none."""
        names, meant = ", ".join(self.asked.guests), [*filter(self.asked.names, there)]
        if not meant:
            raise errors.NotFound(f"there is no guest {names}")
        if all(wish.of_text(one.backup) is None for one in meant):
            raise errors.NotFound(
                f"none of the guests {names} says how it is to be backed up, and said=True asks "
                "for those that do: set backup in virt_deploy, or leave said out"
            )

    def _listed(self) -> tuple[dict[str, list[ListedBackup]], dict[str, errors.VirtError]]:
        """(each target's backups, why a target does not say). One that does not answer has none
        that are known; who wants a backup there gets none."""
        found, silence = {}, {}
        for one in keep.chosen(self.fleet, None):
            try:
                found[one.name] = backup.at(self.fleet, one, None, None, True)
            except errors.VirtError as exc:
                silence[one.name] = exc
        return found, silence


def _last(
    listed: Mapping[str, Iterable[ListedBackup]], guest: facts.Guest, now_s: float
) -> tuple[float, str]:
    """(the age of a guest's last good backup at any of the targets, which it is)."""
    found = [
        (last[0], where, last[1].ident)
        for where, several in listed.items()
        if (last := age.newest(several, guest.uuid, now_s)) is not None
    ]
    wrong = "".join(_newest_wrong(several, guest.uuid, at) for at, several in listed.items())
    if not found:
        return math.inf, f"{guest.name} has no good backup{wrong}"
    age_s, where, ident = min(found)
    words = f"{guest.name} has the backup {ident} at {where}, {age_s / _HOUR_S:.1f} hours old"
    return age_s, words + wrong


def _newest_wrong(several: Iterable[ListedBackup], uuid: str, where: str) -> str:
    """What is wrong with a guest's newest backup at a target, or with its time."""
    mine = [one for one in several if one.uuid == uuid]
    last = max(mine, key=lambda one: one.ident, default=None)
    if last is None:
        return ""
    if last.wrong:
        return f"; the newest at {where}, {last.ident}, is not good: {last.wrong}"
    if last.age_s is not None and last.age_s < 0:
        return f"; {last.ident} at {where} is of a time to come: look at the clock there"
    return ""
