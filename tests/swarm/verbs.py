"""The calls of the swarm, and whether the answers are right."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.swarm.kinds import DEAD, GUESTS, HUNG, LIVING, SLOW

# of a host that did not answer, by its kind
SAID = {DEAD: "down: ", HUNG: "no answer in "}
NEW = "new"
# MiB: of each new guest, and of its disk
MEMORY, DISK = 512, 64


@dataclass
class Verb:
    """name: after ``virt.``. arguments, named: as typed. check: of (Verb, Swarm, answer), the
    sentences that say what is wrong with it. code: of the exit, when all is right."""

    name: str
    check: Callable[..., list[str]]
    arguments: list[Any] = field(default_factory=list)
    named: dict[str, Any] = field(default_factory=dict)
    code: int = 0
    guests: list[str] = field(default_factory=list)


def every(swarm, deployed):
    """The verbs in their order. deployed: so many guests at once."""
    leaves = swarm.of(LIVING)[0]
    names = [f"{NEW}{one:03}" for one in range(deployed + 1)]
    given = {
        "hypervisor": "test", "seed": False, "name_is_free": True,
        "disks": [{"name": "system", "size": DISK}],
    }  # fmt: skip
    defaults = {**given, "mem": MEMORY}
    ill = int(bool(swarm.of(*SAID)))
    return [
        Verb("query", asked(lambda said: said.get("vm_info")), code=ill),
        Verb("list", asked(lambda said: [name for of in said.values() for name in of]), code=ill),
        Verb("host_info", asked(lambda said: said.get("guests"), len), code=ill),
        Verb("init", made, [names[0], 1, MEMORY, None], given, guests=names[:1]),
        Verb(
            "deployed", made,
            named={"guests": {name: {} for name in names[1:]}, "defaults": defaults},
            guests=names[1:],
        ),
        Verb("evacuate", evacuated, [leaves], guests=[f"{leaves}-g{n}" for n in range(GUESTS)]),
    ]  # fmt: skip


def asked(take, how=sorted):
    """The check of a verb that asks every host. take: what the answer of a host has of its guests;
    how: what is compared of them."""

    def check(_verb, swarm, said):
        there = swarm.ask("guests")
        wrong = [] if set(said) - {"retcode"} == set(there) else ["other hosts than there are"]
        for name, kind in swarm.kinds.items():
            about = said.get(name)
            if kind in SAID:
                right = isinstance(about, dict) and about.get("error", "").startswith(SAID[kind])
            else:
                found = take(about) if isinstance(about, dict) and "error" not in about else None
                found = found if how is len or found is None else how(found)
                right = found == how(there[name])
            wrong += [] if right else [f"{name}, which is {kind}: {json.dumps(about)[:200]}"]
        return wrong

    return check


def made(verb, swarm, said):
    """Each new guest runs on the host of which the answer says so, and on no other."""
    about = said.get(verb.guests[0]) or said.get("default") or {}
    places = {name: one.get("new") for name, one in about.get("changes", {}).items()}
    if "host" in about:
        places = {verb.guests[0]: about["host"]}
    wrong = [] if about.get("result") is True else [str(about.get("comment", said))[:500]]
    for name in verb.guests:
        there = where(swarm, name)
        if there != {places.get(name): True}:
            wrong.append(f"{name}: said to be on {places.get(name)}, runs on {there}")
    return wrong


def evacuated(verb, swarm, said):
    """Nothing is left there, and each of its guests runs on one other host that answers."""
    [leaves] = verb.arguments
    about = said.get(leaves) or {}
    wrong = [] if about.get("result") is True else [str(about.get("comment", said))[:500]]
    left = swarm.ask("guests")[leaves]
    wrong += [f"still on {leaves}: {', '.join(left)}"] if left else []
    for name in verb.guests:
        there = where(swarm, name)
        if list(there.values()) != [True] or not set(there) <= set(swarm.of(LIVING, SLOW)):
            wrong.append(f"{name} is on {there}")
    return wrong


def where(swarm, name):
    """Host to whether the guest runs there, of all that have it."""
    return {one: has[name] for one, has in swarm.ask("guests").items() if name in has}


def ask(verb, swarm, master, cost):
    """(the Cost of the verb, what is wrong with its answer).

    master, cost: of tests.swarm.measured.
    """
    before = swarm.ask("told")
    found = cost(master, lambda: swarm.typed(f"virt.{verb.name}", *verb.arguments, **verb.named))
    found.told = swarm.ask("told") - before
    text = swarm.said.read_text(errors="replace")
    try:
        said = json.loads(text[text.index("{\n") :])
        wrong = verb.check(verb, swarm, said)
    except ValueError:
        wrong = [f"no JSON: {text[-300:]!r}"]
    if found.code != verb.code:
        wrong.append(f"exit code {found.code}, not {verb.code}")
    return found, wrong
