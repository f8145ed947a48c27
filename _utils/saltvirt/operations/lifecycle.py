"""start, stop, force_off, pause, resume, reset: by the guest's name, wherever it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from saltvirt import errors, names
from saltvirt.answers.power import Power
from saltvirt.fleet.answer import DOWN
from saltvirt.fleet.client import Fleet
from saltvirt.operations import alone, begun, find, hints, keepers, reserved
from saltvirt.operations.operation import Checked, Reasons, Result
from saltvirt.placement import account, policy

RUNNING, PAUSED, OFF = "running", "paused", "shutdown"
# so long a host waits until another operation on the guest has ended: host.domain.guest_lock
AT_ONCE_S = 20


@dataclass(frozen=True)
class Verb:
    """asked: the verb of the host's ``virt.power``. before: states it makes sense in. after: what
    libvirt must say. runs: the guest writes to its disks then, and did not before."""

    asked: str
    before: tuple[str, ...]
    after: str
    done: str
    runs: bool = False


VERBS = {
    "start": Verb("start", (OFF, "crashed"), RUNNING, "started", runs=True),
    "shutdown": Verb("shutdown", (RUNNING,), OFF, "shut down"),
    "force_off": Verb("stop", (RUNNING, PAUSED, "pmsuspended", "crashed"), OFF, "powered off"),
    "pause": Verb("pause", (RUNNING,), PAUSED, "paused"),
    "resume": Verb("resume", (PAUSED, "pmsuspended"), RUNNING, "resumed", runs=True),
    "reset": Verb("reset", (RUNNING, PAUSED), RUNNING, "reset"),
}


@dataclass(frozen=True)
class PowerPlan:
    """host: where the guest is. before, after: its state now, and when the verb was done."""

    host: str
    before: str
    after: str

    @property
    def nothing(self) -> bool:
        return self.before == self.after


def _start(fleet: Fleet, name: str, options: dict[str, Any]) -> dict[str, Any]:
    """The arguments by which a host starts it: it admits by the master's policy."""
    terms = account.terms(None, policy.of_master(fleet.opts))
    return {"name": names.guest(name), **options, "placement": terms.to_answer()}


def plan(
    fleet: Fleet,
    name: str,
    verb_name: str,
    only: str | None = None,
    reasons: Reasons | None = None,
) -> PowerPlan:
    """The PowerPlan. Changes nothing. only: the host that has it; the operator knows that it runs
    on no other. Raises NotFound, InvalidInput (the verb makes no sense now), OperationFailed."""
    name = names.guest(name)
    seen = find.last_seen(fleet, name) if _one_will_do(verb_name, only) else None
    if seen:
        return _planned(name, verb_name, *seen)
    return _of_all(fleet, name, verb_name, only, reasons or Reasons(first=True))


def _one_will_do(verb_name: str, only: str | None) -> bool:
    """Whether it does no harm where the guest should be on a second host, too."""
    return not (VERBS[verb_name].runs or only)


def _of_all(
    fleet: Fleet, name: str, verb_name: str, only: str | None, reasons: Reasons
) -> PowerPlan:
    """The PowerPlan by what all hosts say."""
    locations, host = _on(fleet, name, only)
    found = _planned(name, verb_name, host, locations.guests[name][host])
    if VERBS[verb_name].runs and not found.nothing and not only:
        with reasons:
            alone.check(fleet, locations, name, host, f"host={host}")
    return found


def _planned(name: str, verb_name: str, host: str, before: str) -> PowerPlan:
    """Raises InvalidInput where the verb makes no sense."""
    verb = VERBS[verb_name]
    if verb_name == "reset" and before == PAUSED:
        return PowerPlan(host, before, PAUSED)
    if before not in (*verb.before, verb.after):
        raise errors.InvalidInput(f"{name} on {host} is {before}: cannot {verb_name} it")
    return PowerPlan(host, before, verb.after)


def _on(fleet: Fleet, name: str, only: str | None) -> tuple[find.Locations, str]:
    """(find.Locations, the host that has the guest)."""
    locations = find.locations(fleet)
    host = locations.host_of(name)
    if only not in (None, host):
        raise errors.NotFound(f"{name} is on {host}, not on {only}")
    hints.keep(fleet.opts, name, host)
    return locations, host


def writes(fleet: Fleet, name: str, only: str | None = None) -> str:
    """The host of a guest whose disks are to be written to, whether it runs or not. only: as for
    :func:`plan`. Raises NotFound, OperationFailed."""
    name = names.guest(name)
    locations, host = _on(fleet, name, only)
    if locations.guests[name][host] != RUNNING and not only:
        alone.check(fleet, locations, name, host)
    return host


class Lifecycle:
    """Does one of VERBS; its host asks libvirt what became of it, in the same job.

    A guest that already is as wanted is left alone. wait_s: how many seconds the guest's own system
    may take. options: more arguments of the host's ``virt.start``. host: where it is and nowhere
    else, though not every host answers. keeper: whose room a start leaves free, but by overcommit.
    """

    def __init__(
        self,
        fleet: Fleet,
        name: str,
        verb: str,
        wait_s: float = 0,
        options: dict[str, Any] | None = None,
        host: str | None = None,
        keeper: keepers.Keeper | None = None,
    ) -> None:
        self.fleet, self.name, self.verb = fleet, str(name), verb
        self.wait_s, self.options, self.host = wait_s, options or {}, host
        starts = verb == "start" and not self.options.get("overcommit")
        self.keeper, self._warning = keeper if starts else None, ""

    def check(self) -> Checked:
        """What state it would have; of a start also whether its host would admit it."""
        name, reasons = self.name, Reasons()
        with reasons:
            with reasons:
                keepers.refuse(self.fleet.opts, names.guest(name))
            found = plan(self.fleet, name, self.verb, self.host, reasons)
            if self.verb == "start" and not found.nothing:
                asked = {**_start(self.fleet, name, self.options), "test": True}
                with reasons:
                    self.fleet.one(found.host, "virt.start", asked)
                with reasons:
                    self._spares(found.host)
            reasons.hold()
            more = {"host": found.host, "state": found.before}
            if self._is_done(found):
                return Checked(name, self._already(found), more=more, nothing=True)
            words = self._warned(f"{name} on {found.host} would be {VERBS[self.verb].done}")
            return Checked(name, words, _changes(found), more)
        return reasons.checked(name)

    def run(self) -> Result:
        """Raises NotFound, InvalidInput, OperationFailed, NoRoom, Refused."""
        name = names.guest(self.name)
        keepers.refuse(self.fleet.opts, name)
        done = self._where_last_seen(name) if _one_will_do(self.verb, self.host) else None
        if done:
            return done
        found = _of_all(self.fleet, name, self.verb, self.host, Reasons(first=True))
        if self._is_done(found):
            return self._done(found)
        self._spares(found.host)
        asked = self._asked(name)
        said = self.fleet.one(found.host, "virt.power", asked, long=True)
        told = Power.from_answer(said, found.host)
        if told.before is None:
            raise errors.NotFound(f"{name} is no longer on {found.host}: run the command again")
        return self._judged(name, found.host, told)

    def _where_last_seen(self, name: str) -> Result | None:
        """Done by the host where the guest was last seen, when that alone can say that this is the
        one. None when it is not, or was told nothing: then nothing was done.

        A host that fails at it is asked first no more: it may be for the guest's being elsewhere.
        """
        host = find.hinted(self.fleet, name)
        if host is None:
            return None
        asked = {**self._asked(name), "last_seen": True}
        timeout_s = max(self.fleet.opts["timeout"], AT_ONCE_S) + self.wait_s
        answer = self.fleet.gather([host], "virt.power", asked, timeout_s=timeout_s, patient=True)[
            host
        ]
        if answer.kind == DOWN:
            return None
        try:
            told = Power.from_answer(answer.get(), host)
        except errors.VirtError:
            hints.forget(self.fleet.opts, name)
            raise
        return self._judged(name, host, told) if told.before else None

    def _asked(self, name: str) -> dict[str, Any]:
        """The arguments of the host's ``virt.power``."""
        verb = VERBS[self.verb]
        asked: dict[str, Any] = {"name": name, "verb": verb.asked, "when": [*verb.before]}
        if self.verb == "start":
            asked |= _start(self.fleet, name, self.options)
        if self.verb == "shutdown":
            asked["timeout"] = self.wait_s
        return asked

    def _judged(self, name: str, host: str, told: Power) -> Result:
        """What its host has done. Raises InvalidInput, OperationFailed when it is not as wanted."""
        found = _planned(name, self.verb, host, str(told.before))
        if self._is_done(found):
            return self._done(found)
        if told.after != found.after:
            waited = f" after {self.wait_s:.0f} s" if self.wait_s else ""
            raise errors.OperationFailed(
                f"{name} on {host} is {told.after}{waited}, not {found.after}"
            )
        if self.verb == "start":  # whoever made it: somebody wants it
            begun.forget(self.fleet.opts, name)
        return self._done(found)

    def _done(self, found: PowerPlan) -> Result:
        more = {"host": found.host, "state": found.after}
        if self._is_done(found):
            return Result(self.name, self._already(found), more=more)
        words = self._warned(f"{self.name} on {found.host} was {VERBS[self.verb].done}")
        return Result(self.name, words, _changes(found), more)

    def _spares(self, host: str) -> None:
        """Raises Refused where it would take room that is kept."""
        self._warning = reserved.on_its_host(self.keeper, self.fleet, host, self.name)

    def _warned(self, words: str) -> str:
        return "; ".join(filter(None, (words, self._warning)))

    def _is_done(self, found: PowerPlan) -> bool:
        return found.nothing and self.verb != "reset"

    def _already(self, found: PowerPlan) -> str:
        return f"{self.name} on {found.host} is {found.after} already"


def _changes(found: PowerPlan) -> dict[str, Any]:
    return {} if found.nothing else {"state": {"old": found.before, "new": found.after}}
