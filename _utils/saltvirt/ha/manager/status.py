"""The status of high availability, and the simulated failure of a host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from saltvirt import errors, units
from saltvirt.fleet.client import Fleet
from saltvirt.ha.manager import config
from saltvirt.ha.manager.admin_request import AdminRequest
from saltvirt.ha.manager.desired_state import DesiredState, rebuild
from saltvirt.ha.manager.failover_simulation import FailoverSimulation
from saltvirt.ha.manager.journal import HaJournal
from saltvirt.ha.manager.status_file import EngineStatus
from saltvirt.ha.model.registry import BLOCKED, ERROR, FENCED, FENCING, NEW, SUSPECTED, UNKNOWN, UP
from saltvirt.ha.model.registry import STOPPED as STATE_STOPPED
from saltvirt.ha.model.reserve import HostLoss
from saltvirt.ha.model.view import IGNORED
from saltvirt.operations.cluster import inventory
from saltvirt.operations.core.operation import Checked, Reasons, Result
from saltvirt.placement import policy

ABOUT = "ha"
_LAST = 20
_BAD_HOSTS = (SUSPECTED, FENCING, FENCED, UNKNOWN)
_BAD_GUESTS = (BLOCKED, ERROR)


def _unchanged(result: Result) -> Checked:
    """Return the check of an operation that changes nothing."""
    complete = result.complete
    return Checked(
        result.subject, result.comment, {}, result.details, complete=complete, nothing=complete
    )


class HaStatus:
    """Everything that is known, from files of this master only."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.request = AdminRequest(fleet, "ha_status")

    def check(self) -> Checked:
        """The same as run: it changes nothing."""
        return _unchanged(self.run())

    def run(self) -> Result:
        """Raises InvalidInput, OperationFailed for a damaged file."""
        if not config.is_configured(self.fleet.opts):
            message = "high availability is not configured (virt:ha)"
            return Result(ABOUT, message, details={"configured": False})
        settings, engine = self.request.config, self.request.engine
        desired, file_problems = self._desired()
        hosts = {name: _host(name, settings, engine) for name in settings.members}
        guests = {name: _guest(name, desired, engine) for name in sorted(desired.guests)}
        report, reserve = engine.report, _reserve(settings, engine)
        losses = report.simulation.losses
        problems = [
            *file_problems,
            *_problems(desired, engine, hosts, guests, self._has_no_state()),
        ]
        problems += _differences(desired, engine, hosts)
        problems += [shortfall for shortfall in reserve["short"] if shortfall not in problems]
        details = {
            "configured": True,
            "armed": desired.armed,
            "engine": {
                "running": not engine.problem, "problem": engine.problem, "leading": report.leading,
                "leader": report.leader, "settled": report.settled,
            },
            "quorum": {
                "members": len(settings.members), "heard": report.heard, "needed": report.needed,
            },
            "hosts": hosts,
            "guests": guests,
            "rules": {name: rule.to_answer() for name, rule in sorted(desired.rules.items())},
            "reserve": reserve,
            "losses": {name: loss.to_answer() for name, loss in losses.items()},
            "decisions": [item.to_answer() for item in report.changes],
            "journal": HaJournal(self.fleet.opts).last(_LAST),
            "problems": problems,
            "table": _table(hosts, guests),
        }  # fmt: skip
        comment = "; ".join(problems) if problems else _summary(settings, desired, hosts, guests)
        return Result(ABOUT, comment, details=details, complete=not problems)

    def _desired(self) -> tuple[DesiredState, list[str]]:
        """Return the desired state, and the problem if it is lost. Raises OperationFailed for a
        damaged file."""
        try:
            return self.request.store.read(), []
        except errors.OperationFailed as exc:
            if self.request.store.path.exists():
                raise
            return rebuild(self.request.engine.registry), [exc.text]

    def _has_no_state(self) -> bool:
        """Whether this is one of several masters and has no desired state: such a master does not
        ask for the lead."""
        return self.request.multi_master and not self.request.store.path.exists()


def _host(name: str, settings: config.HaConfig, engine: EngineStatus) -> dict[str, Any]:
    record, report = engine.registry.host(name), engine.report.hosts.get(name)
    loss = engine.report.simulation.losses.get(name)
    return {
        "state": record.state,
        "reason": record.reason,
        "boot": record.boot,
        "heard_s": report.heard_s if report and not engine.problem else None,
        "watchdog": "armed" if report and report.armed else "disarmed",
        "fences": [fence.agent for fence in settings.members[name].fences],
        "last_fence": report.fence if report else "",
        "differs": report.differs if report else "",
        "moved": dict(loss.placements) if loss else {},
        "unplaced": sorted(loss.unplaced) if loss else [],
    }


def _guest(name: str, desired: DesiredState, engine: EngineStatus) -> dict[str, Any]:
    guest_config, record = desired.guests[name], engine.registry.guests.get(name)
    binding = engine.report.simulation.bindings.get(name)
    return {
        "state": record.state if record else NEW,
        "reason": record.reason if record else "",
        "host": (record.host or record.last) if record else guest_config.host,
        "desired_state": guest_config.desired_state,
        "priority": guest_config.priority,
        "may_run_on": sorted({location.host for location in record.locations}) if record else [],
        "binding": f"it can run on {binding.host} only: {binding.reason}" if binding else "",
    }


def _problems(
    desired: DesiredState,
    engine: EngineStatus,
    hosts: dict[str, Any],
    guests: dict[str, Any],
    has_no_state: bool,
) -> Iterator[str]:
    """Yield every reason for the exit code 1."""
    if engine.problem:
        yield engine.problem
    elif has_no_state and not engine.report.leader:
        yield (
            "no master leads: with several masters, none does before the first request: run "
            "salt-run virt.ha_enable NAME on one of them"
        )
    elif not engine.report.leading and not engine.report.leader:
        yield (
            f"no master leads: {engine.report.heard} of {len(hosts)} hosts respond, "
            f"{engine.report.needed} are needed"
        )
    for name, item in hosts.items():
        if item["state"] in _BAD_HOSTS and (desired.guests or item["state"] != UNKNOWN):
            yield f"{name} is {item['state']}" + (f": {item['reason']}" if item["reason"] else "")
    for name, item in guests.items():
        if item["state"] in _BAD_GUESTS:
            yield f"{name} is {item['state']}: {item['reason']}"
        elif non_members := set(item["may_run_on"]) - hosts.keys():
            yield (
                f"{name} may run on {', '.join(sorted(non_members))}, which is not a member of "
                "virt:ha and is not monitored"
            )
        elif item["binding"]:
            yield f"{name} could not be started elsewhere if its host failed: {item['binding']}"
    for name, item in hosts.items():
        if item["unplaced"]:
            yield f"if {name} failed, no host would have capacity for {', '.join(item['unplaced'])}"


def _differences(
    desired: DesiredState, engine: EngineStatus, hosts: dict[str, Any]
) -> Iterator[str]:
    """Yield differences between machines, and what was lost."""
    yield from engine.report.warnings
    if desired.rebuilt:
        yield (
            "the desired state was lost and was rebuilt from the hosts: priorities, restarts, "
            "relocates, failback and rules have their defaults: set them again"
        )
    for name, host in hosts.items():
        if host["differs"]:
            yield (
                f"the agent of {name} has {host['differs']} than this master, so its watchdog "
                "proves nothing: restart salt-master, then run salt-run virt.ha_setup"
            )


def _reserve(settings: config.HaConfig, engine: EngineStatus) -> dict[str, Any]:
    """Return for the loss of how many hosts capacity is reserved, and what is missing, from the
    engine's report."""
    count = settings.policy.reserve
    sets = [
        (tuple(name.split(" and ")), loss) for name, loss in engine.report.simulation.losses.items()
    ]
    shortfalls = [
        HostLoss(hosts, loss.placements, loss.unplaced).text()
        for hosts, loss in sets
        if count and len(hosts) <= count and loss.unplaced
    ]
    return {"hosts": count, "policy": settings.reserve_policy, "short": shortfalls}


def _summary(
    settings: config.HaConfig, desired: DesiredState, hosts: dict[str, Any], guests: dict[str, Any]
) -> str:
    ignored = sum(guest["desired_state"] == IGNORED for guest in guests.values())
    stopped = sum(guest["state"] == STATE_STOPPED for guest in guests.values())
    parts = [f"{'armed' if desired.armed else 'DISARMED'}: {units.pluralize(len(hosts), 'host')}",
             units.pluralize(len(guests), "guest")]  # fmt: skip
    parts += [f"{stopped} of them stopped"] if stopped else []
    parts += [f"{ignored} of them ignored"] if ignored else []
    if settings.policy.reserve:
        parts += [
            "capacity is reserved for the loss of "
            f"{units.pluralize(settings.policy.reserve, 'host')}"
        ]
    return ", ".join(parts)


def _table(hosts: dict[str, Any], guests: dict[str, Any]) -> list[list[Any]]:
    rows: list[list[Any]] = [["kind", "name", "state", "host", "reason"]]
    rows += [["host", name, item["state"], "", _reason(item)] for name, item in hosts.items()]
    rows += [
        ["guest", name, item["state"], item["host"], item["reason"]]
        for name, item in guests.items()
    ]
    return rows


def _reason(host: dict[str, Any]) -> str:
    """Return what would happen to the guests of a host that is up; otherwise the reason of its
    state."""
    if host["state"] != UP:
        return str(host["reason"])
    if host["unplaced"]:
        return f"if it failed, no host would have capacity for {', '.join(host['unplaced'])}"
    if host["moved"]:
        return (
            f"if it failed, {units.pluralize(len(host['moved']), 'guest')} would be started "
            "elsewhere"
        )
    return ""


class Simulate:
    """Simulate the failure of a host now."""

    def __init__(self, fleet: Fleet, lose: str) -> None:
        self.fleet, self.host = fleet, str(lose)
        self.request = AdminRequest(fleet, "ha_simulate")

    def check(self) -> Checked:
        """The same as run: it changes nothing."""
        reasons = Reasons()
        with reasons:
            return _unchanged(self.run())
        return reasons.checked(self.host)

    def run(self) -> Result:
        """Raises NotFound, InvalidInput; ConnectionFailed if the host does not answer."""
        settings, desired = self.request.config, self.request.store.read()
        self.request.member(self.host)
        hosts, unreachable = inventory.gather(self.fleet)
        if self.host in unreachable:
            raise errors.ConnectionFailed(f"{self.host}: {unreachable[self.host]}")
        bindings = self.request.engine.report.simulation.bindings
        simulation = FailoverSimulation(
            settings, desired, hosts, policy.of_master(self.fleet.opts), bindings
        )
        loss = simulation.simulate_loss(self.host)
        rows: list[list[Any]] = [["guest", "started on", "reason"]]
        rows += [[name, host, ""] for name, host in loss.placements.items()]
        rows += [[name, None, reason] for name, reason in loss.unplaced.items()]
        silent = {name: unreachable[name] for name in settings.members if name in unreachable}
        message = (
            f"if {self.host} failed, {units.pluralize(len(loss.placements), 'guest')} would be "
            f"started elsewhere, {len(loss.unplaced)} nowhere"
        )
        message += f"; not counted: {', '.join(silent)}" if silent else ""
        details = {
            "table": rows,
            "moved": loss.placements,
            "unplaced": loss.unplaced,
            "silent": silent,
        }
        return Result(self.host, message, details=details, complete=not (loss.unplaced or silent))
