"""What is shown of high availability, and what would become of a host's guests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from saltvirt import errors, units
from saltvirt.fleet.client import Fleet
from saltvirt.ha.registry import BLOCKED, ERROR, FENCED, FENCING, NEW, SUSPECTED, UNKNOWN, UP
from saltvirt.ha.registry import STOPPED as STATE_STOPPED
from saltvirt.ha.reserve import Lost
from saltvirt.ha.view import IGNORED
from saltvirt.hamaster import config
from saltvirt.hamaster.journal import Journal
from saltvirt.hamaster.outlook import Outlook
from saltvirt.hamaster.person import Person
from saltvirt.hamaster.seen import Engine
from saltvirt.hamaster.wishes import Wishes, remade
from saltvirt.operations import inventory
from saltvirt.operations.operation import Checked, Reasons, Result
from saltvirt.placement import policy

ABOUT = "ha"
_LAST = 20
_BAD_HOSTS = (SUSPECTED, FENCING, FENCED, UNKNOWN)
_BAD_GUESTS = (BLOCKED, ERROR)


class Status:
    """All that is known: of files of this master alone, nobody is asked."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.person = Person(fleet, "ha_status")

    def check(self) -> Checked:
        """The same as run: it changes nothing."""
        found = self.run()
        return Checked(found.about, found.comment, more=found.more, complete=found.complete,
                       nothing=found.complete)  # fmt: skip

    def run(self) -> Result:
        """Raises InvalidInput, OperationFailed for a damaged file."""
        if not config.is_configured(self.fleet.opts):
            words = "high availability is not configured (virt:ha)"
            return Result(ABOUT, words, more={"configured": False})
        settings, engine = self.person.config, self.person.engine
        wishes, lost = self._wishes()
        hosts = {name: _host(name, settings, engine) for name in settings.members}
        guests = {name: _guest(name, wishes, engine) for name in sorted(wishes.guests)}
        wrong = [*lost, *_wrong(wishes, engine, hosts, guests, self._nobody_spoke())]
        wrong += _unlike(wishes, engine, hosts)
        wrong += [why for why in _reserve(settings, engine)["short"] if why not in wrong]
        more = {
            "configured": True,
            "armed": wishes.armed,
            "engine": {
                "running": not engine.why, "why": engine.why, "leading": engine.seen.leading,
                "leader": engine.seen.leader, "settled": engine.seen.settled,
            },
            "quorum": {
                "members": len(settings.members), "heard": engine.seen.heard,
                "needed": engine.seen.needed,
            },
            "hosts": hosts,
            "guests": guests,
            "rules": {name: rule.to_answer() for name, rule in sorted(wishes.rules.items())},
            "reserve": _reserve(settings, engine),
            "losses": {name: one.to_answer() for name, one in engine.seen.outlook.losses.items()},
            "decisions": [one.to_answer() for one in engine.seen.decided],
            "journal": Journal(self.fleet.opts).last(_LAST),
            "problems": wrong,
            "table": _table(hosts, guests),
        }  # fmt: skip
        comment = "; ".join(wrong) if wrong else _well(settings, wishes, hosts, guests)
        return Result(ABOUT, comment, more=more, complete=not wrong)

    def _wishes(self) -> tuple[Wishes, list[str]]:
        """(What persons want, that it is lost). Raises OperationFailed for a damaged file."""
        try:
            return self.person.store.read(), []
        except errors.OperationFailed as exc:
            if self.person.store.path.exists():
                raise
            return remade(self.person.engine.registry), [exc.text]

    def _nobody_spoke(self) -> bool:
        """Of several masters none that knows of no wish asks for the lead."""
        return self.person.several and not self.person.store.path.exists()


def _host(name: str, settings: config.HaConfig, engine: Engine) -> dict[str, Any]:
    record, seen = engine.registry.host(name), engine.seen.hosts.get(name)
    loss = engine.seen.outlook.losses.get(name)
    return {
        "state": record.state,
        "why": record.why,
        "boot": record.boot,
        "heard_s": seen.heard_s if seen and not engine.why else None,
        "watchdog": "armed" if seen and seen.armed else "at rest",
        "fences": [one.agent for one in settings.members[name].fences],
        "last_fence": seen.fence if seen else "",
        "differs": seen.differs if seen else "",
        "moved": dict(loss.moved) if loss else {},
        "unplaced": sorted(loss.unplaced) if loss else [],
    }


def _guest(name: str, wishes: Wishes, engine: Engine) -> dict[str, Any]:
    wanted, record = wishes.guests[name], engine.registry.guests.get(name)
    tied = engine.seen.outlook.tied.get(name)
    return {
        "state": record.state if record else NEW,
        "why": record.why if record else "",
        "host": (record.host or record.last) if record else wanted.host,
        "wanted": wanted.wanted,
        "priority": wanted.priority,
        "may_run_on": sorted({place.host for place in record.places}) if record else [],
        "tied": f"it can run on {tied.host} alone: {tied.why}" if tied else "",
    }


def _wrong(
    wishes: Wishes,
    engine: Engine,
    hosts: dict[str, Any],
    guests: dict[str, Any],
    nobody_spoke: bool,
) -> Iterator[str]:
    """Every reason for the exit code 1."""
    if engine.why:
        yield engine.why
    elif nobody_spoke and not engine.seen.leader:
        yield (
            "no master leads: of several masters none does before a person said what is wanted: "
            "salt-run virt.ha_enable NAME, of the first guest, on one of them"
        )
    elif not engine.seen.leading and not engine.seen.leader:
        yield (
            f"no master leads: {engine.seen.heard} of {len(hosts)} hosts are heard, "
            f"{engine.seen.needed} are needed"
        )
    for name, one in hosts.items():
        if one["state"] in _BAD_HOSTS and (wishes.guests or one["state"] != UNKNOWN):
            yield f"{name} is {one['state']}" + (f": {one['why']}" if one["why"] else "")
    for name, one in guests.items():
        if one["state"] in _BAD_GUESTS:
            yield f"{name} is {one['state']}: {one['why']}"
        elif strangers := set(one["may_run_on"]) - hosts.keys():
            yield (
                f"{name} may run on {', '.join(sorted(strangers))}, which is no member of virt:ha: "
                "nobody watches it"
            )
        elif one["tied"]:
            yield f"{name} would not run again if its host died: {one['tied']}"
    for name, one in hosts.items():
        if one["unplaced"]:
            yield f"if {name} died, no host would take {', '.join(one['unplaced'])}"


def _unlike(wishes: Wishes, engine: Engine, hosts: dict[str, Any]) -> Iterator[str]:
    """What machines have not alike, and what was lost."""
    yield from engine.seen.warnings
    if wishes.remade:
        yield (
            "what persons want was lost, and was made anew from what the hosts keep: priorities, "
            "tries, failback and rules are as by default: say them again"
        )
    for name, one in hosts.items():
        if one["differs"]:
            yield (
                f"the agent of {name} has {one['differs']}, not those of this master: its watchdog "
                "proves nothing; restart salt-master, then salt-run virt.ha_setup"
            )


def _reserve(settings: config.HaConfig, engine: Engine) -> dict[str, Any]:
    """For the loss of how many hosts room is kept; what is short of it, by what the engine saw."""
    count = settings.policy.reserve
    sets = [(tuple(name.split(" and ")), one) for name, one in engine.seen.outlook.losses.items()]
    short = [
        Lost(hosts, one.moved, one.unplaced).text()
        for hosts, one in sets
        if count and len(hosts) <= count and one.unplaced
    ]
    return {"hosts": count, "policy": settings.reserve_policy, "short": short}


def _well(
    settings: config.HaConfig, wishes: Wishes, hosts: dict[str, Any], guests: dict[str, Any]
) -> str:
    left = sum(one["wanted"] == IGNORED for one in guests.values())
    off = sum(one["state"] == STATE_STOPPED for one in guests.values())
    words = [f"{'armed' if wishes.armed else 'DISARMED'}: {units.counted(len(hosts), 'host')}",
             units.counted(len(guests), "guest")]  # fmt: skip
    words += [f"{off} of them stopped"] if off else []
    words += [f"{left} of them ignored"] if left else []
    if settings.policy.reserve:
        words += [f"room is kept for the loss of {units.counted(settings.policy.reserve, 'host')}"]
    return ", ".join(words)


def _table(hosts: dict[str, Any], guests: dict[str, Any]) -> list[list[Any]]:
    rows: list[list[Any]] = [["what", "name", "state", "host", "because"]]
    rows += [["host", name, one["state"], "", _because(one)] for name, one in hosts.items()]
    rows += [["guest", name, one["state"], one["host"], one["why"]] for name, one in guests.items()]
    return rows


def _because(host: dict[str, Any]) -> str:
    """Of a host that is up: what would become of its guests."""
    if host["state"] != UP:
        return str(host["why"])
    if host["unplaced"]:
        return f"if it died, no host would take {', '.join(host['unplaced'])}"
    if host["moved"]:
        return f"if it died, {units.counted(len(host['moved']), 'guest')} would run elsewhere"
    return ""


class Simulate:
    """What would become of the guests of high availability if a host died now."""

    def __init__(self, fleet: Fleet, lose: str) -> None:
        self.fleet, self.host = fleet, str(lose)
        self.person = Person(fleet, "ha_simulate")

    def check(self) -> Checked:
        """The same as run: it changes nothing."""
        reasons = Reasons()
        with reasons:
            found = self.run()
            return Checked(found.about, found.comment, more=found.more, complete=found.complete,
                           nothing=found.complete)  # fmt: skip
        return reasons.checked(self.host)

    def run(self) -> Result:
        """Raises NotFound, InvalidInput, ConnectionFailed when the host cannot be asked."""
        settings, wishes = self.person.config, self.person.store.read()
        self.person.member(self.host)
        hosts, unreachable = inventory.gather(self.fleet)
        if self.host in unreachable:
            raise errors.ConnectionFailed(f"{self.host}: {unreachable[self.host]}")
        tied = self.person.engine.seen.outlook.tied
        outlook = Outlook(settings, wishes, hosts, policy.of_master(self.fleet.opts), tied)
        loss = outlook.lose(self.host)
        rows: list[list[Any]] = [["guest", "started on", "reason"]]
        rows += [[name, host, ""] for name, host in loss.moved.items()]
        rows += [[name, None, why] for name, why in loss.unplaced.items()]
        silent = {name: unreachable[name] for name in settings.members if name in unreachable}
        words = (
            f"if {self.host} died, {units.counted(len(loss.moved), 'guest')} would be started "
            f"elsewhere, {len(loss.unplaced)} nowhere"
        )
        words += f"; not counted: {', '.join(silent)}" if silent else ""
        more = {"table": rows, "moved": loss.moved, "unplaced": loss.unplaced, "silent": silent}
        return Result(self.host, words, more=more, complete=not (loss.unplaced or silent))
