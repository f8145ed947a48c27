"""start, shutdown, force_off, pause, resume, reboot and reset by the guest's name, on whichever
host it is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from saltvirt import errors, names
from saltvirt.answers.power import PowerChange
from saltvirt.diff.pending import sentence
from saltvirt.fleet.answer import DOWN
from saltvirt.fleet.client import Fleet
from saltvirt.operations.cluster import failover_capacity, find, ha_provider, start_safety
from saltvirt.operations.core.operation import Checked, Reasons, Result
from saltvirt.operations.journal import intent_log, location_cache
from saltvirt.placement import account, policy
from saltvirt.placement.calls import CHECK_START, POWER, PowerRequest, StartCheckRequest

RUNNING, PAUSED, OFF = "running", "paused", "shutdown"
# how long a host waits for another operation on the guest: host.domain.guest_lock
LOCK_WAIT_S = 20


@dataclass(frozen=True)
class Verb:
    """host_verb: the verb of the host's ``virt.power``. before: states in which it is possible.
    after: the resulting state in libvirt. runs: the guest starts writing to its disks. waits: for
    the guest's system. repeatable: possible in the resulting state. managed: possible
    for a guest that high availability manages, which continues to run."""

    host_verb: str
    before: tuple[str, ...]
    after: str
    done: str
    runs: bool = False
    waits: bool = False
    repeatable: bool = False
    managed: bool = False


VERBS = {
    "start": Verb("start", (OFF, "crashed"), RUNNING, "started", runs=True),
    "shutdown": Verb("shutdown", (RUNNING,), OFF, "shut down", waits=True),
    "force_off": Verb("stop", (RUNNING, PAUSED, "pmsuspended", "crashed"), OFF, "powered off"),
    "pause": Verb("pause", (RUNNING,), PAUSED, "paused"),
    "resume": Verb("resume", (PAUSED, "pmsuspended"), RUNNING, "resumed", runs=True),
    "reboot": Verb(
        "reboot", (RUNNING,), RUNNING, "rebooted", waits=True, repeatable=True, managed=True
    ),
    "reset": Verb("reset", (RUNNING, PAUSED), RUNNING, "reset", repeatable=True),
}


@dataclass(frozen=True)
class PowerPlan:
    """host: where the guest is. before, after: its states before and after the verb."""

    host: str
    before: str
    after: str

    @property
    def nothing(self) -> bool:
        return self.before == self.after


def plan(
    fleet: Fleet, name: str, verb_name: str, only: str | None = None, reasons: Reasons | None = None
) -> PowerPlan:
    """Return the PowerPlan. Changes nothing. only: the host that has the guest, which the operator
    knows to run on no other. Raises NotFound, InvalidInput (impossible in this state),
    OperationFailed."""
    name = names.existing_guest(name)
    last_seen = find.last_seen(fleet, name) if _single_host_ok(verb_name, only) else None
    if last_seen:
        return _planned(name, verb_name, *last_seen)
    return _plan_from_all(fleet, name, verb_name, only, reasons or Reasons(first=True))


def _single_host_ok(verb_name: str, only: str | None) -> bool:
    """Return whether the verb is harmless even if a second host has the guest."""
    return not (VERBS[verb_name].runs or only)


def _plan_from_all(
    fleet: Fleet, name: str, verb_name: str, only: str | None, reasons: Reasons
) -> PowerPlan:
    """Return the PowerPlan from the answers of all hosts."""
    locations, host = _locate(fleet, name, only)
    power_plan = _planned(name, verb_name, host, locations.guests[name][host])
    if VERBS[verb_name].runs and not power_plan.nothing and not only:
        with reasons:
            start_safety.check(fleet, locations, name, host, f"host={host}")
    return power_plan


def _planned(name: str, verb_name: str, host: str, before: str) -> PowerPlan:
    """Return the PowerPlan. Raises InvalidInput if the verb is impossible in this state."""
    verb = VERBS[verb_name]
    if verb_name == "reset" and before == PAUSED:
        return PowerPlan(host, before, PAUSED)
    if before not in (*verb.before, verb.after):
        remedy = verb_name != "resume" and before in VERBS["resume"].before
        hint = f"; virt.resume {name} resumes it" if remedy else ""
        raise errors.InvalidInput(f"{name} on {host} is {before} and cannot be {verb.done}{hint}")
    return PowerPlan(host, before, verb.after)


def _locate(fleet: Fleet, name: str, only: str | None) -> tuple[find.Locations, str]:
    """Return (find.Locations, the guest's host)."""
    locations = find.locations(fleet)
    host = locations.host_of(name)
    if only not in (None, host):
        raise errors.NotFound(f"{name} is on {host}, not on {only}")
    location_cache.store(fleet.opts, name, host)
    return locations, host


def locate_for_write(fleet: Fleet, name: str, only: str | None = None) -> tuple[str, str]:
    """Return (host, state) of a guest whose disks are to be written to, whether the guest runs or
    not. only: as for :func:`plan`. Raises NotFound, OperationFailed."""
    name = names.existing_guest(name)
    locations, host = _locate(fleet, name, only)
    state = locations.guests[name][host]
    if state != RUNNING and not only:
        start_safety.check(fleet, locations, name, host)
    return host, state


def host_for_write(fleet: Fleet, name: str, only: str | None = None) -> str:
    """Return the host of such a guest; see :func:`locate_for_write`."""
    return locate_for_write(fleet, name, only)[0]


def placement_terms(fleet: Fleet) -> account.PlacementTerms:
    """Return the master's policy, by which a host admits a guest or its growth."""
    return account.terms(None, policy.of_master(fleet.opts))


class Lifecycle:
    """Performs one of VERBS. The host confirms the result with libvirt in the same job.

    A guest that is already in the desired state is not changed. wait_s: the limit for the guest's
    system. options: further arguments of the host's ``virt.start``. host: the guest's host, if the
    operator knows that it is on no other. provider: its failover reserve limits a start, unless
    ``overcommit`` is given.
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
        """Return the resulting state; for a start, also check whether the host admits it."""
        name, reasons = self.name, Reasons()
        with reasons:
            with reasons:
                self._refuse_managed(names.existing_guest(name))
            power_plan = plan(self.fleet, name, self.verb, self.host, reasons)
            if self.verb == "start" and not power_plan.nothing:
                with reasons:
                    request = StartCheckRequest(
                        name=names.existing_guest(name),
                        placement=placement_terms(self.fleet),
                        overcommit=self.options.get("overcommit"),
                    )
                    CHECK_START.ask(self.fleet, power_plan.host, request)
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
        """Perform the verb. Raises NotFound, InvalidInput, OperationFailed, NoRoom, Refused."""
        name = names.existing_guest(self.name)
        self._refuse_managed(name)
        done = self._on_cached_host(name) if _single_host_ok(self.verb, self.host) else None
        if done:
            return done
        power_plan = _plan_from_all(self.fleet, name, self.verb, self.host, Reasons(first=True))
        if self._is_done(power_plan):
            return self._result(power_plan)
        self._check_reserve(power_plan.host)
        power = POWER.ask(self.fleet, power_plan.host, self._request(name))
        if power.before is None:
            raise errors.NotFound(
                f"{name} is no longer on {power_plan.host}: run the command again"
            )
        return self._verify(name, power_plan.host, power)

    def _refuse_managed(self, name: str) -> None:
        if not VERBS[self.verb].managed:
            ha_provider.refuse_managed(self.fleet.opts, name)

    def _on_cached_host(self, name: str) -> Result | None:
        """Perform the verb on the host where the guest was last seen, if that host alone can
        confirm that it has the guest. Return None if it cannot, or was not reached: then nothing
        was changed.

        If the host fails, the hint is removed, because the guest may be on another host.
        """
        host = find.cached_host(self.fleet, name)
        if host is None:
            return None
        request = replace(self._request(name), last_seen=True)
        timeout_s = max(self.fleet.opts["timeout"], LOCK_WAIT_S) + self.wait_s
        answer = POWER.reply(
            self.fleet, host, request, timeout_s=timeout_s, long=False, patient=True
        )
        if answer.kind == DOWN:
            return None
        try:
            power = answer.get()
        except errors.VirtError:
            location_cache.forget(self.fleet.opts, name)
            raise
        return self._verify(name, host, power) if power.before else None

    def _request(self, name: str) -> PowerRequest:
        """Return the request to the host."""
        verb = VERBS[self.verb]
        request = PowerRequest(name=name, verb=verb.host_verb, states=verb.before)
        if self.verb == "start":
            overcommit = self.options.get("overcommit")
            return replace(request, placement=placement_terms(self.fleet), overcommit=overcommit)
        return replace(request, timeout=self.wait_s) if VERBS[self.verb].waits else request

    def _verify(self, name: str, host: str, power: PowerChange) -> Result:
        """Return the result of the host. Raises InvalidInput; OperationFailed if the state is not
        the desired one."""
        power_plan = _planned(name, self.verb, host, str(power.before))
        if self._is_done(power_plan):
            return self._result(power_plan)
        if power.after != power_plan.after:
            waited = f" after {self.wait_s:.0f} s" if self.wait_s else ""
            raise errors.OperationFailed(
                f"{name} on {host} is {power.after}{waited}, not {power_plan.after}"
            )
        if self.verb == "start":  # a started guest is wanted, whatever operation created it
            intent_log.forget(self.fleet.opts, name)
        return self._result(power_plan, power.pending)

    def _result(self, power_plan: PowerPlan, pending: tuple[str, ...] = ()) -> Result:
        details: dict[str, Any] = {"host": power_plan.host, "state": power_plan.after}
        if self.verb == "reboot":
            details["pending"] = list(pending)
        if self._is_done(power_plan):
            return Result(self.name, self._already(power_plan), details=details)
        message = self._with_warning(
            f"{self.name} on {power_plan.host} was {VERBS[self.verb].done}"
        )
        if pending:
            message += f"; it {sentence(pending)}; shut it down and start it for that"
        return Result(self.name, message, _changes(power_plan), details)

    def _check_reserve(self, host: str) -> None:
        """Raise Refused if the guest would use capacity that is reserved for failover."""
        self._warning = failover_capacity.on_current_host(
            self.provider, self.fleet, host, self.name
        )

    def _with_warning(self, message: str) -> str:
        return "; ".join(filter(None, (message, self._warning)))

    def _is_done(self, power_plan: PowerPlan) -> bool:
        return power_plan.nothing and not VERBS[self.verb].repeatable

    def _already(self, power_plan: PowerPlan) -> str:
        return f"{self.name} on {power_plan.host} is {power_plan.after} already"


def _changes(power_plan: PowerPlan) -> dict[str, Any]:
    return (
        {} if power_plan.nothing else {"state": {"old": power_plan.before, "new": power_plan.after}}
    )
