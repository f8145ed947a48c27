"""A scenario: hosts, guests, rules, commands and the expected end, from YAML."""

import re
from dataclasses import dataclass, field

import yaml

from saltvirt.ha.agent import settings
from saltvirt.ha.model.policy import HaPolicy
from saltvirt.ha.model.view import (
    AFFINITY,
    ANTI_AFFINITY,
    HOST_AFFINITY,
    LIVE,
    PREFERRED,
    RESTART,
    STRICT,
    GuestConfig,
    GuestRule,
)
from saltvirt.placement.facts import Guest
from tests.ha import grammar
from tests.ha.grammar import BadScenario

MASTER = grammar.MASTER
NAME = re.compile(r"[^\s,]{1,100}")
GUEST_KEYS = {"host", "state", "vcpus", "memory_mib", "priority", "restarts", "relocates",
              "failback", "lease"}  # fmt: skip


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
    guests: dict[str, GuestConfig]
    rules: list[GuestRule]
    policy: HaPolicy
    commands: list[list[str]]
    masters: tuple[str, ...] = (MASTER,)
    expect: dict = field(default_factory=dict)
    seed: int = 0
    says: str = ""
    impatient: bool = False


def switch(value, what):
    """True for on."""
    if isinstance(value, bool):
        return value
    if str(value) in ("on", "off"):
        return str(value) == "on"
    raise BadScenario(f"{what} must be on or off, not {value}")


def load(text):
    """The Scenario in a YAML text. Raises BadScenario."""
    data = _mapping(_parsed(text), "a scenario")
    known = {"hosts", "guests", "rules", "commands", "expect", "masters", "seed", "says",
             "impatient", *HaPolicy.__dataclass_fields__}  # fmt: skip
    _known(data, known, "a scenario")
    hosts = {name: _host(name, one) for name, one in _named(data, "hosts").items()}
    if not hosts:
        raise BadScenario("hosts is missing")
    guests = {name: guest(name, one) for name, one in _named(data, "guests").items()}
    made = Scenario(
        hosts,
        guests,
        [_rule(one) for one in _list(data, "rules")],
        _policy({k: v for k, v in data.items() if k in HaPolicy.__dataclass_fields__}),
        [_step(one) for one in _list(data, "commands")],
        tuple(_name(one, "masters") for one in _list(data, "masters")) or (MASTER,),
        _expect(data.get("expect")),
        _number(data.get("seed") or 0, "seed", -(2**63)),
        str(data.get("says") or ""),
        switch(data.get("impatient", False), "impatient"),
    )
    _refer(made)
    return made


def _parsed(text):
    try:
        return yaml.safe_load(text) or {}
    except (yaml.YAMLError, ValueError, RecursionError) as exc:
        raise BadScenario(f"it is no YAML: {' '.join(str(exc).split())}") from exc


def _mapping(value, what):
    if not isinstance(value, dict):
        raise BadScenario(f"{what} must be a mapping, not {value}")
    return value


def _list(data, key):
    found = data.get(key)
    if found is not None and not isinstance(found, list):
        raise BadScenario(f"{key} must be a list, not {found}")
    return found or []


def _name(value, what):
    """YAML takes on, off, yes and no for true and false, so none of them can be a name."""
    if isinstance(value, (bool, float)) or not NAME.fullmatch(str(value)):
        raise BadScenario(f"{what}: a name is one word, not {value}")
    return str(value)


def _named(data, kind):
    given = _mapping(data.get(kind) or {}, kind)
    return {_name(key, kind): _mapping(one or {}, f"{kind}: {key}") for key, one in given.items()}


def _known(given, known, whose):
    unknown = sorted(str(key) for key in given if key not in known)
    if unknown:
        raise BadScenario(f"{whose}: unknown key {unknown[0]}; known: {', '.join(sorted(known))}")


def _number(value, what, least=0):
    try:
        found = int(str(value))
    except ValueError as exc:
        raise BadScenario(f"{what} must be a whole number, not {value}") from exc
    if not least <= found < 2**63:
        raise BadScenario(f"{what} must be a whole number from {least}, not {value}")
    return found


def _policy(given):
    """The times and counts of virt:ha, as its settings are checked."""
    wrong = settings.policy_problems(given)
    if wrong:
        raise BadScenario(wrong[0].removeprefix("policy."))
    return HaPolicy(**given)


def _host(name, given):
    _known(given, set(HostSetup.__dataclass_fields__), f"host {name}")
    made = {}
    for key, value in given.items():
        what = f"host {name}: {key}"
        numbers = ("cpus", "memory_mib")
        made[key] = _number(value, what, 1) if key in numbers else switch(value, what)
    return HostSetup(**made)


def guest(name, given):
    """A GuestWanted from its mapping."""
    _known(given, GUEST_KEYS, f"guest {name}")
    wanted = str(given.get("state", "started"))
    if wanted not in ("started", "stopped", "ignored"):
        raise BadScenario(f"guest {name}: state must be started, stopped or ignored, not {wanted}")

    def number(key, default, least=0):
        return _number(given.get(key, default), f"guest {name}: {key}", least)

    return GuestConfig(
        name,
        host=_name(given["host"], f"guest {name}: host") if given.get("host") else "",
        desired_state=wanted,
        priority=number("priority", 0, -(2**31)),
        restarts=number("restarts", 1),
        relocates=number("relocates", 1),
        failback=_failback(given.get("failback", True), f"guest {name}: failback"),
        leased=switch(given.get("lease", False), f"guest {name}: lease"),
        size=Guest(
            name, vcpus=number("vcpus", 1, 1), memory_kib=number("memory_mib", 1024, 1) * 1024
        ),
    )  # fmt: skip


def _failback(value, what):
    return value if value == RESTART else value == LIVE or switch(value, what)


def _rule(given):
    _known(
        _mapping(given, "a rule"),
        {"guests", "hosts", HOST_AFFINITY, ANTI_AFFINITY, AFFINITY},
        "a rule",
    )
    guests = tuple(_name(one, "a rule's guests") for one in _list(given, "guests"))
    if not guests:
        raise BadScenario(f"a rule has guests: {given}")
    kinds = [kind for kind in ("hosts", ANTI_AFFINITY, AFFINITY) if kind in given]
    if len(kinds) != 1:
        raise BadScenario(f"a rule has one of hosts, affinity and anti_affinity: {given}")
    if kinds != ["hosts"]:
        return GuestRule(guests, kinds[0], strict=_strict(given, kinds[0]))
    hosts = given["hosts"]
    ranks = hosts if isinstance(hosts, dict) else dict.fromkeys(_list(given, "hosts"), 1)
    ranks = {_name(k, "a rule's hosts"): _number(v, f"rank of {k}", -(2**31))
             for k, v in ranks.items()}  # fmt: skip
    return GuestRule(guests, hosts=ranks, strict=_strict(given, HOST_AFFINITY))


def _strict(given, key):
    found = given.get(key, PREFERRED)
    if found not in (STRICT, PREFERRED):
        raise BadScenario(f"a rule: {key} must be strict or preferred, not {found}")
    return found == STRICT


def _step(given):
    commands = given if isinstance(given, list) else [given]
    for one in commands:
        if not isinstance(one, str):
            raise BadScenario(f"commands: a step is a list of commands, which are words, not {one}")
    return [one.strip() for one in commands]


def _expect(given):
    found = _mapping(given or {}, "expect")
    _known(found, {"hosts", "guests", "fences", "self_fenced", "armed"}, "expect")
    for kind in ("hosts", "guests"):
        for name, wanted in _mapping(found.get(kind) or {}, f"expect: {kind}").items():
            _mapping(wanted, f"expect: {name}")
    return found


def _refer(made):
    """Whatever is named is there, and every command is one: before the first is carried out."""
    both = sorted({*made.masters} & {*made.hosts})
    if both:
        raise BadScenario(f"{both[0]} is a host and a master")
    said = [one.split() for step in made.commands for one in step]
    added = {words[1] for words in said if words[:1] == ["guest"] and words[2:3] == ["add"]}
    guests = {*made.guests, *added}
    for one in made.guests.values():
        if one.host and one.host not in made.hosts:
            raise BadScenario(f"guest {one.name}: there is no host {one.host}")
    for rule in made.rules:
        for what, named, there in (
            ("guest", rule.guests, guests), ("host", rule.hosts, made.hosts),
        ):  # fmt: skip
            for missing in sorted({*named} - {*there}):
                raise BadScenario(f"a rule: there is no {what} {missing}")
    for step in made.commands:
        for command in step:
            grammar.check(command, {"HOST": made.hosts, "MASTER": made.masters, "GUEST": guests})
