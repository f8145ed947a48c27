"""start, stop, force_off, pause, resume, reset: by the guest's name, wherever it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from saltvirt import errors, names
from saltvirt.answers.power import PowerChange
from saltvirt.fleet.answer import DOWN
from saltvirt.fleet.client import Fleet
from saltvirt.operations.cluster import failover_capacity, find, ha_provider, start_safety
from saltvirt.operations.core.operation import Checked, Reasons, Result
from saltvirt.operations.journal import intent_log, location_cache
from saltvirt.placement import account, policy

RUNNING, PAUSED, OFF = "running", "paused", "shutdown"
# so long a host waits until another operation on the guest has ended: host.domain.guest_lock
LOCK_WAIT_S = 20


@dataclass(frozen=True)
class Verb:
    """asked: the verb of the host's ``virt.power``. before: states it makes sense in. after: what
    libvirt must say. runs: the guest writes to its disks then, and did not before."""

    host_verb: str
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
    last_seen = find.last_seen(fleet, name) if _single_host_ok(verb_name, only) else None
    if last_seen:
        return _planned(name, verb_name, *last_seen)
    return _plan_from_all(fleet, name, verb_name, only, reasons or Reasons(first=True))


def _single_host_ok(verb_name: str, only: str | None) -> bool:
    """Whether it does no harm where the guest should be on a second host, too."""
    return not (VERBS[verb_name].runs or only)


def _plan_from_all(
    fleet: Fleet, name: str, verb_name: str, only: str | None, reasons: Reasons
) -> PowerPlan:
    """The PowerPlan by what all hosts say."""
    locations, host = _locate(fleet, name, only)
    power_plan = _planned(name, verb_name, host, locations.guests[name][host])
    if VERBS[verb_name].runs and not power_plan.nothing and not only:
        with reasons:
            start_safety.check(fleet, locations, name, host, f"host={host}")
    return power_plan


def _planned(name: str, verb_name: str, host: str, before: str) -> PowerPlan:
    """Raises InvalidInput where the verb makes no sense."""
    verb = VERBS[verb_name]
    if verb_name == "reset" and before == PAUSED:
        return PowerPlan(host, before, PAUSED)
    if before not in (*verb.before, verb.after):
        raise errors.InvalidInput(f"{name} on {host} is {before}: cannot {verb_name} it")
    return PowerPlan(host, before, verb.after)


def _locate(fleet: Fleet, name: str, only: str | None) -> tuple[find.Locations, str]:
    """(find.Locations, the host that has the guest)."""
    locations = find.locations(fleet)
    host = locations.host_of(name)
    if only not in (None, host):
        raise errors.NotFound(f"{name} is on {host}, not on {only}")
    location_cache.store(fleet.opts, name, host)
    return locations, host


def host_for_write(fleet: Fleet, name: str, only: str | None = None) -> str:
    """The host of a guest whose disks are to be written to, whether it runs or not. only: as for
    :func:`plan`. Raises NotFound, OperationFailed."""
    name = names.guest(name)
    locations, host = _locate(fleet, name, only)
    if locations.guests[name][host] != RUNNING and not only:
        start_safety.check(fleet, locations, name, host)
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
        provider: ha_provider.HaProvider | None = None,
    ) -> None:
        self.fleet, self.name, self.verb = fleet, str(name), verb
        self.wait_s, self.options, self.host = wait_s, options or {}, host
        starts = verb == "start" and not self.options.get("overcommit")
        self.provider, self._warning = provider if starts else None, ""

    def check(self) -> Checked:
        """What state it would have; of a start also whether its host would admit it."""
        name, reasons = self.name, Reasons()
        with reasons:
            with reasons:
                ha_provider.refuse_managed(self.fleet.opts, names.guest(name))
            power_plan = plan(self.fleet, name, self.verb, self.host, reasons)
            if self.verb == "start" and not power_plan.nothing:
                arguments = {**_start(self.fleet, name, self.options), "test": True}
                with reasons:
                    self.fleet.call(power_plan.host, "virt.start", arguments)
                with reasons:
                    self._check_reserve(power_plan.host)
            reasons.raise_first()
            details = {"host": power_plan.host, "state": power_plan.before}
            if self._is_done(power_plan):
                return Checked(name, self._already(power_plan), details=details, nothing=True)
            message = self._with_warning(
                f"{name} on {power_plan.host} would be {VERBS[self.verb].done}"
            )
            return Checked(name, message, _changes(power_plan), details)
        return reasons.checked(name)

    def run(self) -> Result:
        """Raises NotFound, InvalidInput, OperationFailed, NoRoom, Refused."""
        name = names.guest(self.name)
        ha_provider.refuse_managed(self.fleet.opts, name)
        done = self._on_cached_host(name) if _single_host_ok(self.verb, self.host) else None
        if done:
            return done
        power_plan = _plan_from_all(self.fleet, name, self.verb, self.host, Reasons(first=True))
        if self._is_done(power_plan):
            return self._result(power_plan)
        self._check_reserve(power_plan.host)
        arguments = self._arguments(name)
        response = self.fleet.call(power_plan.host, "virt.power", arguments, long=True)
        power = PowerChange.from_answer(response, power_plan.host)
        if power.before is None:
            raise errors.NotFound(
                f"{name} is no longer on {power_plan.host}: run the command again"
            )
        return self._verify(name, power_plan.host, power)

    def _on_cached_host(self, name: str) -> Result | None:
        """Done by the host where the guest was last seen, when that alone can say that this is the
        one. None when it is not, or was told nothing: then nothing was done.

        A host that fails at it is asked first no more: it may be for the guest's being elsewhere.
        """
        host = find.cached_host(self.fleet, name)
        if host is None:
            return None
        arguments = {**self._arguments(name), "last_seen": True}
        timeout_s = max(self.fleet.opts["timeout"], LOCK_WAIT_S) + self.wait_s
        answer = self.fleet.gather(
            [host], "virt.power", arguments, timeout_s=timeout_s, patient=True
        )[host]
        if answer.kind == DOWN:
            return None
        try:
            power = PowerChange.from_answer(answer.get(), host)
        except errors.VirtError:
            location_cache.forget(self.fleet.opts, name)
            raise
        return self._verify(name, host, power) if power.before else None

    def _arguments(self, name: str) -> dict[str, Any]:
        """The arguments of the host's ``virt.power``."""
        verb = VERBS[self.verb]
        arguments: dict[str, Any] = {"name": name, "verb": verb.host_verb, "when": [*verb.before]}
        if self.verb == "start":
            arguments |= _start(self.fleet, name, self.options)
        if self.verb == "shutdown":
            arguments["timeout"] = self.wait_s
        return arguments

    def _verify(self, name: str, host: str, power: PowerChange) -> Result:
        """What its host has done. Raises InvalidInput, OperationFailed when it is not as wanted."""
        power_plan = _planned(name, self.verb, host, str(power.before))
        if self._is_done(power_plan):
            return self._result(power_plan)
        if power.after != power_plan.after:
            waited = f" after {self.wait_s:.0f} s" if self.wait_s else ""
            raise errors.OperationFailed(
                f"{name} on {host} is {power.after}{waited}, not {power_plan.after}"
            )
        if self.verb == "start":  # whoever made it: somebody wants it
            intent_log.forget(self.fleet.opts, name)
        return self._result(power_plan)

    def _result(self, power_plan: PowerPlan) -> Result:
        details = {"host": power_plan.host, "state": power_plan.after}
        if self._is_done(power_plan):
            return Result(self.name, self._already(power_plan), details=details)
        message = self._with_warning(
            f"{self.name} on {power_plan.host} was {VERBS[self.verb].done}"
        )
        return Result(self.name, message, _changes(power_plan), details)

    def _check_reserve(self, host: str) -> None:
        """Raises Refused where it would take room that is kept."""
        self._warning = failover_capacity.on_current_host(
            self.provider, self.fleet, host, self.name
        )

    def _with_warning(self, message: str) -> str:
        return "; ".join(filter(None, (message, self._warning)))

    def _is_done(self, power_plan: PowerPlan) -> bool:
        return power_plan.nothing and self.verb != "reset"

    def _already(self, power_plan: PowerPlan) -> str:
        return f"{self.name} on {power_plan.host} is {power_plan.after} already"


def _changes(power_plan: PowerPlan) -> dict[str, Any]:
    return (
        {} if power_plan.nothing else {"state": {"old": power_plan.before, "new": power_plan.after}}
    )
