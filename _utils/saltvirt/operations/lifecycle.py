"""start, stop, force_off, pause, resume, reset: by the guest's name, wherever it runs."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import Any

from saltvirt import errors, names
from saltvirt.fleet.client import Fleet
from saltvirt.operations import alone, begun, find, hints
from saltvirt.operations.operation import Checked, Reasons, Result
from saltvirt.placement import account, policy

RUNNING, PAUSED, OFF = "running", "paused", "shutdown"
PAUSE_S = 1
# a system that boots does not hear the button: as on the host it is pressed again
PRESS_AGAIN_S = 10


@dataclass(frozen=True)
class Verb:
    """function: on the host. before: states it makes sense in. after: what libvirt must say.

    parameter: Salt's own signatures differ in how they name the guest. runs: the guest writes to
    its disks then, and did not before.
    """

    function: str
    before: tuple[str, ...]
    after: str
    done: str
    parameter: str = "vm_"
    runs: bool = False


VERBS = {
    "start": Verb("virt.start", (OFF, "crashed"), RUNNING, "started", "name", runs=True),
    "shutdown": Verb("virt.shutdown", (RUNNING,), OFF, "shut down"),
    "force_off": Verb(
        "virt.stop", (RUNNING, PAUSED, "pmsuspended", "crashed"), OFF, "powered off", "name"
    ),
    "pause": Verb("virt.pause", (RUNNING,), PAUSED, "paused"),
    "resume": Verb("virt.resume", (PAUSED, "pmsuspended"), RUNNING, "resumed", runs=True),
    "reset": Verb("virt.reset", (RUNNING, PAUSED), RUNNING, "reset"),
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
    """The arguments of the host's ``virt.start``: it admits by the master's policy."""
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
    verb, name = VERBS[verb_name], names.guest(name)
    reasons = reasons or Reasons(first=True)
    seen = None if verb.runs or only else find.last_seen(fleet, name)
    if seen:
        host, before = seen
    else:
        locations, host = _on(fleet, name, only)
        before = locations.guests[name][host]
    if verb_name == "reset" and before == PAUSED:
        return PowerPlan(host, before, PAUSED)
    if before not in (*verb.before, verb.after):
        raise errors.InvalidInput(f"{name} on {host} is {before}: cannot {verb_name} it")
    if verb.runs and before != verb.after and not only:
        with reasons:
            alone.check(fleet, locations, name, host)
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
    """Does one of VERBS, and confirms it with libvirt.

    A guest that already is as wanted is left alone. wait_s: how many seconds the guest's own system
    may take. options: more arguments of the host's ``virt.start``. host: where it is and nowhere
    else, though not every host answers.
    """

    def __init__(
        self,
        fleet: Fleet,
        name: str,
        verb: str,
        wait_s: float = 0,
        options: dict[str, Any] | None = None,
        host: str | None = None,
    ) -> None:
        self.fleet, self.name, self.verb = fleet, str(name), verb
        self.wait_s, self.options, self.host = wait_s, options or {}, host

    def check(self) -> Checked:
        """What state it would have; of a start also whether its host would admit it."""
        name, reasons = self.name, Reasons()
        with reasons:
            found = plan(self.fleet, name, self.verb, self.host, reasons)
            if self.verb == "start" and not found.nothing:
                asked = {**_start(self.fleet, name, self.options), "test": True}
                with reasons:
                    self.fleet.one(found.host, "virt.start", asked)
            reasons.hold()
            more = {"host": found.host, "state": found.before}
            if self._is_done(found):
                return Checked(name, self._already(found), more=more, nothing=True)
            words = f"{name} on {found.host} would be {VERBS[self.verb].done}"
            return Checked(name, words, _changes(found), more)
        return reasons.checked(name)

    def run(self) -> Result:
        """Raises NotFound, InvalidInput, OperationFailed, NoRoom."""
        found = plan(self.fleet, self.name, self.verb, self.host)
        more = {"host": found.host, "state": found.after}
        if self._is_done(found):
            return Result(self.name, self._already(found), more=more)
        self._do(found)
        words = f"{self.name} on {found.host} was {VERBS[self.verb].done}"
        return Result(self.name, words, _changes(found), more)

    def _is_done(self, found: PowerPlan) -> bool:
        return found.nothing and self.verb != "reset"

    def _already(self, found: PowerPlan) -> str:
        return f"{self.name} on {found.host} is {found.after} already"

    def _do(self, found: PowerPlan) -> None:
        fleet, host, verb = self.fleet, found.host, VERBS[self.verb]
        name = names.guest(self.name)
        starts = self.verb == "start"
        asked = _start(fleet, name, self.options) if starts else {verb.parameter: name}
        fleet.one(host, verb.function, asked, long=True)
        pressed = time.monotonic()
        end = pressed + self.wait_s
        while True:
            after = fleet.one(host, "virt.vm_state", {"vm_": name}).get(name)
            if after == found.after:
                if starts:  # whoever made it: somebody wants it
                    begun.forget(fleet.opts, name)
                return
            if time.monotonic() >= end:
                waited = f" after {self.wait_s:.0f} s" if self.wait_s else ""
                raise errors.OperationFailed(
                    f"{name} on {host} is {after}{waited}, not {found.after}"
                )
            if self.verb == "shutdown" and time.monotonic() - pressed >= PRESS_AGAIN_S:
                pressed = time.monotonic()
                with contextlib.suppress(errors.OperationFailed):  # it is off by now: asked above
                    fleet.one(host, verb.function, {verb.parameter: name}, long=True)
            time.sleep(PAUSE_S)


def _changes(found: PowerPlan) -> dict[str, Any]:
    return {} if found.nothing else {"state": {"old": found.before, "new": found.after}}
