"""start, stop, force_off, pause, resume, reset: by the guest's name, wherever it runs."""

import contextlib
import time
from dataclasses import dataclass

from saltvirt import errors, names
from saltvirt.operations import alone, begun, find
from saltvirt.placement import account
from saltvirt.placement import policy as policies

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
    before: tuple
    after: str
    done: str
    parameter: str = "vm_"
    runs: bool = False


VERBS = {
    "start": Verb("virt.start", (OFF, "crashed"), RUNNING, "started", "name", runs=True),
    "stop": Verb("virt.shutdown", (RUNNING,), OFF, "shut down"),
    "force_off": Verb(
        "virt.stop", (RUNNING, PAUSED, "pmsuspended", "crashed"), OFF, "powered off", "name"
    ),
    "pause": Verb("virt.pause", (RUNNING,), PAUSED, "paused"),
    "resume": Verb("virt.resume", (PAUSED, "pmsuspended"), RUNNING, "resumed", runs=True),
    "reset": Verb("virt.reset", (RUNNING, PAUSED), RUNNING, "reset"),
}


@dataclass(frozen=True)
class Plan:
    """host: where the guest is. before, after: its state now, and when the verb was done."""

    host: str
    before: str
    after: str

    @property
    def nothing(self):
        return self.before == self.after


def look(fleet, name, verb_name, options=None, host=None):
    """The Plan, after the host was asked whether it would do it. Changes nothing.

    Raises what :func:`run` would raise before it changes something.
    """
    plan = check(fleet, name, verb_name, host)
    if verb_name == "start" and not plan.nothing:
        fleet.one(plan.host, "virt.start", {**_start(fleet, name, options), "test": True})
    return plan


def _start(fleet, name, options):
    """The arguments of the host's ``virt.start``: it admits by the master's policy."""
    terms = account.terms(None, policies.of_master(fleet.opts))
    return {"name": names.guest(name), **(options or {}), "placement": terms}


def check(fleet, name, verb_name, only=None):
    """The Plan. Changes nothing. only: the host that has it; the operator knows that it runs on no
    other. Raises NotFound, InvalidInput (the verb makes no sense now), OperationFailed."""
    verb, name = VERBS[verb_name], names.guest(name)
    census, host = _on(fleet, name, only)
    before = census.guests[name][host]
    if verb_name == "reset" and before == PAUSED:
        return Plan(host, before, PAUSED)
    if before not in (*verb.before, verb.after):
        raise errors.InvalidInput(f"{name} on {host} is {before}: cannot {verb_name} it")
    if verb.runs and before != verb.after and not only:
        alone.check(fleet, census, name, host)
    return Plan(host, before, verb.after)


def _on(fleet, name, only):
    """(find.Census, the host that has the guest)."""
    census = find.census(fleet)
    host = census.host_of(name)
    if only not in (None, host):
        raise errors.NotFound(f"{name} is on {host}, not on {only}")
    return census, host


def writes(fleet, name, only=None):
    """The host of a guest whose disks are to be written to, whether it runs or not. only: as for
    :func:`check`. Raises NotFound, OperationFailed."""
    name = names.guest(name)
    census, host = _on(fleet, name, only)
    if census.guests[name][host] != RUNNING and not only:
        alone.check(fleet, census, name, host)
    return host


def run(fleet, name, verb_name, wait_s=0, options=None, host=None):
    """Does the verb and confirms it with libvirt; the Plan as it came true.

    A guest that already is as wanted is left alone. wait_s: how long the guest's own system may
    take. options: more arguments of the host's ``virt.start``. host: where it is and nowhere else,
    though not every host answers. Raises NotFound, InvalidInput,
    OperationFailed, NoRoom.
    """
    verb = VERBS[verb_name]
    name = names.guest(name)
    plan = check(fleet, name, verb_name, host)
    if plan.nothing and verb_name != "reset":
        return plan
    starts = verb_name == "start"
    asked = _start(fleet, name, options) if starts else {verb.parameter: name}
    fleet.one(plan.host, verb.function, asked, long=True)
    pressed = time.monotonic()
    end = pressed + wait_s
    while True:
        after = fleet.one(plan.host, "virt.vm_state", {"vm_": name}).get(name)
        if after == plan.after:
            if verb_name == "start":  # whoever made it: somebody wants it
                begun.forget(fleet.opts, name)
            return plan
        if time.monotonic() >= end:
            waited = f" after {wait_s:.0f} s" if wait_s else ""
            raise errors.OperationFailed(
                f"{name} on {plan.host} is {after}{waited}, not {plan.after}"
            )
        if verb_name == "stop" and time.monotonic() - pressed >= PRESS_AGAIN_S:
            pressed = time.monotonic()
            with contextlib.suppress(errors.OperationFailed):  # it is off by now: asked above
                fleet.one(plan.host, verb.function, {verb.parameter: name}, long=True)
        time.sleep(PAUSE_S)
