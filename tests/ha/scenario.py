"""A scenario: hosts, guests, rules, commands and the end that is expected, from YAML."""

from dataclasses import dataclass, field

import yaml

from saltvirt.ha.policy import HaPolicy
from saltvirt.ha.view import APART, PREFERRED, TOGETHER, GuestRule, GuestWanted
from saltvirt.placement.facts import Guest

MASTER = "master"


@dataclass
class HostSetup:
    """A machine as it is at first."""

    cpus: int = 8
    memory_mib: int = 65536
    power: bool = True
    network: bool = True
    storage: bool = True
    bmc: bool = True
    watchdog: bool = True
    heartbeat: bool = True


@dataclass
class Scenario:
    """masters: their names. commands: steps, each a list of commands. seed: of delays and drift.
    impatient: a master asks for the lead whoever has it, as one of another version might."""

    hosts: dict[str, HostSetup]
    guests: dict[str, GuestWanted]
    rules: list[GuestRule]
    policy: HaPolicy
    commands: list[list[str]]
    masters: tuple[str, ...] = (MASTER,)
    expect: dict = field(default_factory=dict)
    seed: int = 0
    says: str = ""
    impatient: bool = False


class BadScenario(Exception):
    """What is wrong with it, in one line."""


def switch(value, what):
    """True for on."""
    if isinstance(value, bool):
        return value
    if str(value) in ("on", "off"):
        return str(value) == "on"
    raise BadScenario(f"{what} must be on or off, not {value}")


def load(text):
    """The Scenario in a YAML text."""
    data = yaml.safe_load(text) or {}
    known = {"hosts", "guests", "rules", "commands", "expect", "masters", "seed", "says",
             "impatient", *HaPolicy.__dataclass_fields__}  # fmt: skip
    unknown = sorted(set(data) - known)
    if unknown:
        raise BadScenario(f"unknown key {unknown[0]}; known: {', '.join(sorted(known))}")
    hosts = {str(name): _host(name, one or {}) for name, one in (data.get("hosts") or {}).items()}
    if not hosts:
        raise BadScenario("hosts is missing")
    guests = {
        str(name): guest(str(name), one or {}) for name, one in (data.get("guests") or {}).items()
    }
    policy = HaPolicy(**{k: v for k, v in data.items() if k in HaPolicy.__dataclass_fields__})
    return Scenario(
        hosts,
        guests,
        [_rule(one) for one in data.get("rules") or []],
        policy,
        [_step(one) for one in data.get("commands") or []],
        tuple(data.get("masters") or (MASTER,)),
        data.get("expect") or {},
        int(data.get("seed") or 0),
        str(data.get("says") or ""),
        switch(data.get("impatient", False), "impatient"),
    )


def _host(name, given):
    made = {}
    for key, value in given.items():
        if key not in HostSetup.__dataclass_fields__:
            raise BadScenario(f"host {name}: unknown key {key}")
        made[key] = int(value) if key in ("cpus", "memory_mib") else switch(value, f"{name}: {key}")
    return HostSetup(**made)


def guest(name, given):
    """A GuestWanted from its mapping."""
    keys = {"host", "state", "vcpus", "memory_mib", "priority", "restarts", "relocates",
            "failback", "lease"}  # fmt: skip
    unknown = sorted(set(given) - keys)
    if unknown:
        raise BadScenario(f"guest {name}: unknown key {unknown[0]}")
    wanted = str(given.get("state", "started"))
    if wanted not in ("started", "stopped", "ignored"):
        raise BadScenario(f"guest {name}: state must be started, stopped or ignored, not {wanted}")
    return GuestWanted(
        name,
        host=str(given.get("host") or ""),
        wanted=wanted,
        priority=int(given.get("priority", 0)),
        restarts=int(given.get("restarts", 1)),
        relocates=int(given.get("relocates", 1)),
        failback=switch(given.get("failback", True), f"{name}: failback"),
        leased=switch(given.get("lease", False), f"{name}: lease"),
        size=Guest(
            name, vcpus=int(given.get("vcpus", 1)),
            memory_kib=int(given.get("memory_mib", 1024)) * 1024,
        ),
    )  # fmt: skip


def _rule(given):
    guests = tuple(given.get("guests") or ())
    if "hosts" in given:
        hosts = given["hosts"]
        ranks = dict(hosts) if isinstance(hosts, dict) else dict.fromkeys(hosts, 1)
        strict = given.get("only", PREFERRED) != PREFERRED
        return GuestRule(guests, hosts={str(k): int(v) for k, v in ranks.items()}, strict=strict)
    for kind in (APART, TOGETHER):
        if kind in given:
            return GuestRule(guests, kind, strict=given[kind] != PREFERRED)
    raise BadScenario(f"a rule has hosts, apart or together: {given}")


def _step(given):
    commands = given if isinstance(given, list) else [given]
    return [str(one).strip() for one in commands]
