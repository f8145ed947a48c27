"""``python3 -m tests.ha.random --runs N --seed S``: random clouds, random faults, and what must
hold whatever happens. Each run has a number, which makes it again; one that fails is made shorter,
and printed as a scenario.

- No guest is ever written to by two hosts, nor by an older start of it.
- When all is whole again, each host is up and each guest runs, in bounded time.
- Nobody fences himself where nothing but masters failed; no host is fenced, by another or by its
  watchdog, that is at rest, or that a majority of the others hears.
- Never are more than ``max_fences`` hosts fenced in a window.
"""

import argparse
import contextlib
import random
import sys
import time

import yaml

from saltvirt.ha.model import leadership
from tests.ha import commands, scenario

# from the end of all faults until every guest runs
BOUND_S = 400
SHRINKS = 150


def draw(seed, trap=0.5):
    """The scenario of a seed, as plain data. trap: how likely it has one."""
    rng = random.Random(seed)
    count = rng.choice((2, 3, 3, 3, 4, 5, 5))
    bmc, heartbeat = rng.random() < 0.55, rng.random() < 0.5
    hosts = {
        f"h{n}": {"watchdog": rng.random() < 0.85, "bmc": bmc, "heartbeat": heartbeat}
        for n in range(1, count + 1)
    }
    guests = {
        f"g{n}": {"host": rng.choice(list(hosts)), "priority": rng.randrange(3),
                  "restarts": 2, "relocates": 3, "lease": rng.random() < 0.15}
        for n in range(1, rng.choice((2, 3, 4)) + 1)
    }  # fmt: skip
    masters = ["master"] if count == 2 or rng.random() < 0.6 else ["master", "master2"]
    only_masters = rng.random() < 0.08
    steps, world = [], _Drawn(rng, list(hosts), list(guests), masters, seed)
    for _ in range(rng.randint(3, 9)):
        step = [world.command(only_masters) for _ in range(rng.choice((1, 1, 1, 2, 2, 3)))]
        steps.append([*step, f"delay {rng.choice((1, 2, 4, 7, 12, 20, 35, 50, 70))}"])
    if not only_masters and rng.random() < trap:
        steps.insert(rng.randrange(len(steps) + 1), _trap(rng, list(hosts), masters))
    steps = [
        [cut for one in step for cut in _cuts(rng, one, list(hosts), masters)] for step in steps
    ]
    data = {
        "seed": seed, "hosts": hosts, "guests": guests, "masters": masters,
        "max_fences": rng.choice((1, 2, 2)), "commands": steps,
        "shutdown_policy": rng.choice(("freeze", "failover", "migrate", "conditional")),
        "says": "only masters" if only_masters else "",
        "impatient": len(masters) > 1 and rng.random() < 0.4,
    }  # fmt: skip
    more = random.Random(f"{seed}, and more")
    if len(masters) > 1 and not only_masters and more.random() < trap / 2:
        if more.random() < 0.5:
            data |= {"suspect_s": 3, "lead_lease_s": 30, "impatient": True}
            steps.append(_long_lead(more, list(hosts), masters))
        else:
            steps.append(_comes_back(more, list(hosts), masters))
    if len(masters) > 1 and not only_masters and more.random() < trap / 4:
        steps.append(_unheard(more, list(hosts), masters))
    if len(masters) > 1 and not only_masters and more.random() < trap / 4:
        data |= {"suspect_s": 3, "lead_lease_s": 30, "impatient": True}
        steps.append(_asks_early(more, list(hosts), masters))
    short = random.Random(f"{seed}, and short grants")
    if len(masters) > 1 and not only_masters and short.random() < trap / 4:
        data |= {"suspect_s": 6, "lead_lease_s": 30, "impatient": True}
        steps.append(_short_grants(short, list(hosts), masters))
    few = random.Random(f"{seed}, and a few")
    if len(masters) > 1 and not only_masters and few.random() < trap / 4:
        steps.append(_only_a_few(few, list(hosts), list(guests), masters))
    _differing(random.Random(f"{seed}, and terms"), steps, list(hosts), masters, only_masters, trap)
    if not only_masters:
        steps += _persons(seed, list(hosts), masters, trap)
    back = random.Random(f"{seed}, and back")
    if back.random() < 0.3:
        name, ranks = back.choice(list(guests)), back.sample(list(hosts), min(count, 3))
        guests[name]["failback"] = "restart"
        data["rules"] = [{"guests": [name], "host_affinity": "preferred",
                          "hosts": {host: rank for rank, host in enumerate(ranks, 1)}}]  # fmt: skip
    return data


def _persons(seed, hosts, masters, trap):
    """What persons do with a guest that is left to them; and a host that lies of their wishes."""
    if (left := random.Random(f"{seed}, and left alone")).random() < 0.2:
        yield _left_alone(left, hosts)
    if (taken := random.Random(f"{seed}, and taken")).random() < 0.2:
        yield _taken_back(taken, hosts)
    lies = random.Random(f"{seed}, and lies")
    if len(masters) > 1 and len(hosts) > 2 and lies.random() < trap / 4:
        yield _lies_of_wishes(lies, hosts, masters)


def _differing(rng, steps, hosts, masters, only_masters, trap):
    """Disks that are full or slow, settings and programs that differ, and members that lie."""
    if only_masters:
        return
    for _ in range(rng.choice((0, 0, 1, 3))):
        host, step = rng.choice(hosts), rng.choice(steps)
        step.insert(rng.randrange(len(step) + 1), rng.choice((
            f"disk {host} full", f"disk {host} slow {rng.choice((1, 4, 20))}", f"disk {host} on",
            f"run {host} full", f"run {host} on",
            f"settings {rng.choice([host, *masters])} {_setting(rng)}",
        )))  # fmt: skip
    if rng.random() < trap / 2:
        steps.append(_differing_trap(rng, hosts, masters))
    if len(hosts) > 2 and rng.random() < 0.1:
        step = rng.choice(steps)
        step.insert(rng.randrange(len(step) + 1), f"liar {rng.choice(hosts)} numbers")


def _setting(rng):
    return rng.choice((
        "feed_lease_s 30", "feed_lease_s 5", "watchdog_s 30", "lead_lease_s 4", "lead_lease_s 20",
        "clock_drift 0.2", "suspect_s 4", "program 2",
    ))  # fmt: skip


def _left_alone(rng, hosts):
    """A guest is ignored; a person starts it, perhaps elsewhere, and gives it back."""
    host = rng.choice(hosts)
    before = rng.choice((["guest g1 stopped", "delay 12"], [f"reboot {host}", "delay 40"], []))
    after = rng.choice(([], ["guest g1 crash", "delay 5"], [f"reboot {host}", "delay 40"]))
    gone = rng.choice(([], [f"network {host} off"], [f"agent {host} kill"], [f"power {host} off"]))
    return [*before, "guest g1 ignored", "delay 10", *after, f"guest g1 start {host}", "delay 5",
            "guest g1 started", *gone, "delay 60"]  # fmt: skip


def _lies_of_wishes(rng, hosts, masters):
    """A host tells wishes of long ago as those that were agreed on last; a person wants another
    thing, and one who may lead begins anew."""
    return [
        *_whole(hosts, masters),
        "guest g1 stopped",
        "delay 30",
        f"liar {rng.choice(hosts)} wishes",
        "delay 10",
        f"master {rng.choice(masters)} forget",
        "delay 30",
        "guest g1 started",
        "delay 30",
    ]


def _taken_back(rng, hosts):
    """A guest is taken back, or ignored, and a person moves it; its host boots, or it is given
    again, and then its host is lost."""
    host, other = rng.choice(hosts), rng.choice(hosts)
    first = rng.choice(("ignored", "disable", "disable"))
    boots = rng.choice(([], [f"reboot {host}", "delay 60", f"guest g1 move {other}"]))
    again = ["guest g1 disable", "delay 15", "guest g1 enable", "delay 15"]
    lost = rng.choice(([f"power {host} off"], [f"network {host} off"], ["guest g1 crash"]))
    crashes = ["guest g1 crash", "delay 8"] * rng.randint(0, 3)
    return [*crashes, f"guest g1 {first}", "delay 10", f"guest g1 move {host}", "delay 5", *boots,
            *again[2 if first == "disable" else 0:], *lost, "delay 60"]  # fmt: skip


def _differing_trap(rng, hosts, masters):
    """The watchdog alone could prove anything, and its times are not what the leader thinks; or a
    host lies of another one; or a disk takes nothing while something happens elsewhere."""
    host = rng.choice(hosts)
    others = [one for one in hosts if one != host]
    off = [f"{what} {one} off" for what in ("bmc", "heartbeat") for one in hosts]
    kind = rng.random()
    if kind < 0.3:
        said = f"settings {host} {rng.choice(('feed_lease_s 40', 'watchdog_s 40', 'program 2'))}"
        gone = [f"network {host} off"]
        way = rng.choice(([said, "delay 20", *gone], [*gone, "delay 3", said], [said, *gone]))
        return [*_whole(hosts, masters), *off, *way, "delay 120"]
    if kind < 0.5 and len(hosts) > 2:
        liar = rng.choice(others)
        return [*_whole(hosts, masters), *off, f"watchdog {host} off", "delay 20",
                f"liar {liar} on", f"network {host} off", "delay 75"]  # fmt: skip
    if kind < 0.75 and len(masters) > 1:
        first, second = rng.sample(masters, 2)
        cuts = [f"cut {host} {one}" for one in (*others, second)]
        return [*_whole(hosts, masters), *off, f"master {second} stop", "delay 20",
                f"master {second} start", *cuts, "delay 9", f"settings {host} feed_lease_s 90",
                "delay 9", f"master {first} stop", "delay 150"]  # fmt: skip
    disk = rng.choice((f"disk {host} full", f"run {host} full", f"disk {host} slow 25"))
    then = rng.choice((f"reboot {others[0]}", f"agent {others[0]} restart", "guest g1 crash",
                       f"agent {others[0]} kill", f"master {masters[0]} restart"))  # fmt: skip
    return [*_whole(hosts, masters), disk, "delay 5", then, "delay 60"]


def _whole(hosts, masters):
    """All that was broken before is whole again."""
    for what in ("network", "storage", "heartbeat", "watchdog", "disk", "run", "power"):
        yield from (f"{what} {one} on" for one in hosts)
    yield from (f"liar {one} off" for one in hosts)
    yield from (f"settings {one} usual" for one in (*hosts, *masters))
    yield from (f"hang {one} off" for one in hosts)
    yield from (f"maintenance {one} off" for one in hosts)
    yield from (f"network {one} on" for one in masters)
    yield from (f"master {one} start" for one in masters)
    yield from ("heal", "ha arm", "delay 40")
    yield from (f"agent {one} start" for one in hosts)
    yield "delay 60"


def _long_lead(rng, hosts, masters):
    """The lead is granted for longer than it takes to give up a host. The one who leads reaches one
    host alone, while the others would follow another master."""
    host = rng.choice(hosts)
    first, second = rng.sample(masters, 2)
    others = [one for one in hosts if one != host]
    cuts = [f"cut {host} {one}" for one in (*others, second)]
    cuts += [f"cut {first} {one}" for one in (*others, second)]
    off = [f"{what} {one} off" for what in ("bmc", "heartbeat") for one in hosts]
    return [*_whole(hosts, masters), *off, *cuts, "delay 75"]


def _asks_early(rng, hosts, masters):
    """The lead is granted for long. The one who leads is cut off; another, who has just begun,
    asks for it at once, while the first may still decide."""
    first, second = rng.sample(masters, 2)
    cuts = [f"cut {first} {one}" for one in (*hosts, second)]
    return [*_whole(hosts, masters), f"master {second} stop", "delay 75", *cuts,
            f"master {second} start", "delay 60"]  # fmt: skip


def _short_grants(rng, hosts, masters):
    """Most hosts grant the lead for a shorter time than the masters go by, one for as long. The one
    who leads is cut off; the hosts soon follow another, while the first could decide still."""
    first, second = rng.sample(masters, 2)
    cuts = [f"cut {first} {one}" for one in (*hosts, second)]
    short = [f"settings {one} lead_lease_s 3" for one in rng.sample(hosts, len(hosts) // 2 + 1)]
    return [*_whole(hosts, masters), f"master {second} stop", *short, "delay 75",
            f"master {second} start", "delay 5", *cuts, "delay 45"]  # fmt: skip


def _only_a_few(rng, hosts, guests, masters):
    """The one who leads, and a host, are cut off from all others just when guests fail: what he
    decides then that host alone keeps, and others decide otherwise."""
    host = rng.choice(hosts)
    first, second = rng.sample(masters, 2)
    others = [one for one in hosts if one != host]
    cuts = [f"cut {one} {other}" for one in (first, host) for other in (*others, second)]
    there = [f"guest {one} migrate {host}" for one in guests]
    return [*_whole(hosts, masters), f"master {second} stop", *there, "delay 75",
            f"master {second} start", "delay 5", *cuts,
            *(f"guest {one} crash" for one in guests), "delay 75"]  # fmt: skip


def _comes_back(rng, hosts, masters):
    """One who led is cut off; another leads and decides; that one dies, and the first is back with
    what it knew."""
    first, second = rng.sample(masters, 2)
    off = [f"power {rng.choice(hosts)} off"] if rng.random() < 0.5 else []
    cuts = [f"cut {first} {one}" for one in (*hosts, second)]
    said = ["guest g1 stopped", "delay 2", f"say {first}", "delay 12", "guest g1 started"]
    return [*_whole(hosts, masters), *cuts, "delay 25", *off, "guest g1 crash", "delay 30", *said,
            "delay 30", f"master {second} stop", f"delay {rng.choice((1, 9, 15))}", "heal",
            "delay 20", "guest g1 crash", "delay 75"]  # fmt: skip


def _unheard(rng, hosts, masters):
    """The one who leads hears all, and nobody hears him; another leads; then a host is lost."""
    first = rng.choice(masters)
    cuts = [f"cut {first} {one} oneway" for one in hosts]
    return [*_whole(hosts, masters), *cuts, "delay 40", f"power {rng.choice(hosts)} off",
            "guest g1 crash", "delay 75"]  # fmt: skip


def _cuts(rng, command, hosts, masters):
    """``alone HOST`` and ``island`` as cuts."""
    if command == "island":
        all_of_them = [*hosts, *masters]
        inside = rng.sample(hosts, rng.randint(1, (len(hosts) + 1) // 2))
        inside += [one for one in masters if rng.random() < 0.2]
        outside = [one for one in all_of_them if one not in inside]
        return [f"cut {one} {other}" for one in inside for other in outside]
    if not command.startswith("alone "):
        return [command]
    name = command.split()[1]
    others = [one for one in [*hosts, *masters] if one != name and rng.random() < 0.85]
    way = rng.choice(("", "", "in", "out"))
    if way == "in":
        return [f"cut {other} {name} oneway" for other in others]
    return [f"cut {name} {other}" + (" oneway" if way else "") for other in others]


def _trap(rng, hosts, masters):
    """A step in which the proof hangs on one thing alone, and something happens meanwhile."""
    host = rng.choice(hosts)
    kind = rng.random()
    if kind < 0.15:
        return _no_watchdog(host, hosts)
    if kind < 0.25:  # it said that its guests wait for it, and then it sends no heartbeats
        return [f"agent {host} stop", "delay 8", f"network {host} off", "delay 40"]
    if kind < 0.35:  # the masters alone do not hear it, and all else is well
        boards = [f"bmc {one} off" for one in hosts]
        cuts = [f"cut {host} {one}" for one in masters]
        return [*_whole(hosts, masters), *boards, *cuts, "delay 75"]
    if len(masters) > 1 and rng.random() < 0.4:
        return _deposed(rng, host, hosts, masters)
    silence = [f"heartbeat {one} off" for one in hosts if rng.random() < 0.9]
    boards = [f"bmc {one} off" for one in hosts]
    others = [f"cut {host} {one}" for one in hosts if one != host]
    gone = rng.choice((
        [f"network {host} off"], [f"alone {host}"], ["island"], [f"hang {host} on"],
        [*others, f"cut {host} {rng.choice(masters)}"],
    ))  # fmt: skip
    then = rng.choice((
        [], [f"agent {host} stop"], ["ha disarm"], [f"watchdog {host} off"], [f"shutdown {host}"],
        [f"master {rng.choice(masters)} restart"], [f"network {host} on", "delay 2", *gone],
        [f"hang {host} off"], [f"storage {host} off", "delay 30", f"storage {host} on"],
    ))  # fmt: skip
    return [*boards, *silence, *gone, f"delay {rng.choice((1, 3, 6, 9, 14))}", *then, "delay 75"]


def _no_watchdog(host, hosts):
    """Only a fence could prove anything, and it cannot."""
    off = [f"watchdog {one} off" for one in hosts]
    return [*off, "delay 30", f"bmc {host} off", f"network {host} off", "delay 75"]


def _deposed(rng, host, hosts, masters):
    """The one who leads has given up a host; he is cut off, and another master hears it again. Or
    the host reaches him alone, and he it, while the other one is heard by a majority."""
    first, second = masters
    if rng.random() < 0.5:
        apart = [f"cut {first} {one}" for one in [*hosts, second]]
        wait = f"delay {rng.choice((9, 12, 15))}"
        return [f"bmc {host} off", f"network {host} off", wait, *apart,
                f"network {host} on", f"bmc {host} on", "delay 75"]  # fmt: skip
    alone = [f"cut {host} {one}" for one in hosts if one != host]
    silence = [f"heartbeat {one} off" for one in hosts] + [f"bmc {one} off" for one in hosts]
    return [*silence, *alone, f"cut {host} {second}", f"master {second} restart", "delay 75"]


class _Drawn:
    def __init__(self, rng, hosts, guests, masters, seed):
        self.rng, self.hosts, self.guests, self.masters = rng, hosts, guests, masters
        # of its own: what else a seed draws stays as it was
        self.ills = random.Random(f"ills {seed}")

    def command(self, only_masters):
        rng = self.rng
        if only_masters:
            return self.master()
        weights = {
            "power": 5, "network": 6, "cut": 6, "alone": 6, "island": 3, "heal": 4, "bmc": 2,
            "lies": 1, "heartbeat": 1, "storage": 3, "slow": 1, "hang": 5, "master": 4, "agent": 3,
            "guest": 5, "shutdown": 2,
            "maintenance": 2, "ha": 1, "clock": 1, "watchdog": 1,
        }  # fmt: skip
        kind = rng.choices(list(weights), list(weights.values()))[0]
        return getattr(self, kind)()

    def host(self):
        return self.rng.choice(self.hosts)

    def switch(self, on=0.5):
        return "on" if self.rng.random() < on else "off"

    def power(self):
        return f"power {self.host()} {self.switch()}"

    def network(self):
        return f"network {self.host()} {self.switch(0.4)}"

    def storage(self):
        return f"storage {self.host()} {self.switch()}"

    def slow(self):
        return f"storage {self.host()} slow {self.rng.choice((2, 8, 25))}"

    def bmc(self):
        return f"bmc {self.host()} {self.switch(0.2)}"

    def lies(self):
        return f"bmc {self.host()} lies"

    def watchdog(self):
        return f"watchdog {self.host()} {self.switch()}"

    def cut(self):
        one, other = self.rng.sample([*self.hosts, *self.masters], 2)
        return f"cut {one} {other}" + (" oneway" if self.rng.random() < 0.4 else "")

    def alone(self):
        """A host, or a master, that most others are cut off from, perhaps one way."""
        return f"alone {self.rng.choice([*self.hosts, *self.hosts, *self.masters])}"

    def island(self):
        """Some are cut off from the rest."""
        return "island"

    def heartbeat(self):
        return f"heartbeat {self.host()} {self.switch()}"

    def heal(self):
        return "heal"

    def hang(self):
        return f"hang {self.host()} {self.switch(0.4)}"

    def master(self):
        name = self.rng.choice(self.masters)
        return f"master {name} {self.rng.choice(('stop', 'start', 'restart', 'restart'))}"

    def agent(self):
        return f"agent {self.host()} {self.rng.choice(('stop', 'start', 'restart', 'kill'))}"

    def shutdown(self):
        return f"{self.rng.choice(('shutdown', 'reboot'))} {self.host()}"

    def maintenance(self):
        return f"maintenance {self.host()} {self.switch(0.4)}"

    def ha(self):
        return f"ha {self.rng.choice(('disarm', 'arm', 'arm'))}"

    def clock(self):
        return f"clock {self.host()} +{self.rng.choice((60, 3600))}"

    def guest(self):
        name = self.rng.choice(self.guests)
        what = self.rng.choice(("crash", "migrate", "migrate", "relocate", "fail_start 1",
                                "fail_migrate 1", "stopped", "started", "started"))  # fmt: skip
        where = f" {self.host()}" if what in ("migrate", "relocate") else ""
        if what == "crash":
            what = self.ills.choice(("crash", *(f"crash {one}" for one in commands.TROUBLES if one),
                                     "resets"))  # fmt: skip
        return f"guest {name} {what}{where}"


def failures(data):
    """What did not hold in a scenario (plain data), one sentence each."""
    given = scenario.load(yaml.safe_dump(data)) if isinstance(data, dict) else data
    world = commands.World(given)
    with _patience(given):
        if _goes_through(world, given):
            return [_violation(world)]
    return _ends(world, given)


@contextlib.contextmanager
def _patience(given):
    """What is safe must not hang on the manners of masters; that all is well again may."""
    real = leadership.may_ask
    if given.impatient:
        leadership.may_ask = lambda *_: True
    try:
        yield
    finally:
        leadership.may_ask = real


def _goes_through(world, given):
    """All commands of a scenario; whether two hosts wrote."""
    world.run_until(60)
    for step in given.commands:
        for command in step:
            if not _is_beyond(world, command):
                commands.do(world, command)
            if world.violations:
                return True
    return False


def _is_beyond(world, command):
    """A watchdog that breaks while nobody on its host could notice: ha.md says that this is
    not survived."""
    words = command.split()
    if words[0] != "watchdog" or words[2] != "off":
        return False
    host = world.hosts[words[1]]
    return host.is_on and (host.hung or host.state is None)


def _ends(world, given):
    """What does not hold when all is whole again."""
    by_watchdog = len(world.self_fenced)
    _heal(world)
    end = world.time + BOUND_S
    while world.time < end and not world.violations and _down(world):
        world.run_until(world.time + 10)
        _switch_on(world)  # a fence that was under way has ended, too
    if world.violations:
        return [_violation(world)]
    found = [f"{name}: {why}" for name, why in _down(world).items()]
    if given.says == "only masters" and by_watchdog + len(world.self_fenced):
        found.append(f"{world.self_fenced} fenced themselves")
    return found + world.unjust[:1] + _too_many(world)


def _violation(world):
    return f"two hosts wrote: {world.violations[0]}"


def _heal(world):
    """All is whole again; what is off is switched on; who was proven to be off is confirmed."""
    for name in world.masters:
        commands.do(world, f"settings {name} usual")
        commands.do(world, f"master {name} start")
        commands.do(world, f"network {name} on")
    for name, host in world.hosts.items():
        for what in ("network", "storage", "heartbeat", "bmc", "watchdog", "disk", "run"):
            commands.do(world, f"{what} {name} on")
        commands.do(world, f"liar {name} off")
        commands.do(world, f"settings {name} usual")
        commands.do(world, f"hang {name} off")
        commands.do(world, f"maintenance {name} off")
        if not host.is_on:
            commands.do(world, f"power {name} on")
        commands.do(world, f"agent {name} start")
    for command in ("heal", "ha arm"):
        commands.do(world, command)
    for name in world.wanted:
        commands.do(world, f"guest {name} healed")
        commands.do(world, f"guest {name} started")
    world.run_until(world.time + 30)  # a host that was about to end by itself has ended
    _switch_on(world)


def _switch_on(world):
    """Hosts that are off, and agents that do not run."""
    for name, host in world.hosts.items():
        if not host.is_on:
            commands.do(world, f"power {name} on")
        commands.do(world, f"agent {name} start")


def _down(world):
    """{guest or host: why} of those that are not as they should be when nothing is broken."""
    end = world.end()
    guests = {
        name: f"{one['state']} {one['why']}"
        for name, one in end["guests"].items()
        if not one["running"] and one["state"] != "error" and one["wanted"] != "ignored"
    }
    hosts = {
        name: f"{one['state']} {one['why']}"
        for name, one in end["hosts"].items()
        if one["power"] == "off" or one["state"] != "up"
    }
    return {**guests, **hosts}


def _too_many(world):
    window, most = world.policy.fence_window_s, world.policy.max_fences
    for at, _ in world.fenced:
        hosts = {name for when, name in world.fenced if at <= when < at + window}
        if len(hosts) > most:
            return [f"{sorted(hosts)} were fenced in {window} s, {most} may be"]
    return []


def shrink(data, fails=failures, tries=SHRINKS):
    """A shorter scenario that still fails."""
    left = tries
    changed = True
    while changed and left > 0:
        changed = False
        for shorter in _shorter(data):
            left -= 1
            if fails(shorter):
                data, changed = shorter, True
                break
            if left <= 0:
                break
    return data


def _shorter(data):
    steps = data["commands"]
    for place in range(len(steps)):
        yield {**data, "commands": steps[:place] + steps[place + 1 :]}
    for place, step in enumerate(steps):
        for one in range(len(step)):
            less = step[:one] + step[one + 1 :]
            yield {**data, "commands": [*steps[:place], less, *steps[place + 1 :]]}
    for name in data["guests"]:
        if len(data["guests"]) > 1 and not any(f" {name} " in c for s in steps for c in s):
            yield {**data, "guests": {k: v for k, v in data["guests"].items() if k != name}}


def run(runs, seed, say=print, stop_after=5):
    """Runs so many; returns the seeds that failed."""
    failed, began = [], time.monotonic()
    for number in range(seed, seed + runs):
        data = draw(number)
        found = failures(data)
        if found:
            failed.append(number)
            say(f"seed {number}: {'; '.join(found)}")
            if len(failed) >= stop_after:
                break
        if (number - seed + 1) % 500 == 0:
            rate = (number - seed + 1) / (time.monotonic() - began)
            say(f"{number - seed + 1} runs, {len(failed)} failed, {rate:.1f} runs/s")
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--all", action="store_true", help="go on after five have failed")
    asked = parser.parse_args()
    failed = run(asked.runs, asked.seed, lambda line: print(line, flush=True),
                 asked.runs if asked.all else 5)  # fmt: skip
    if failed:
        shortest = shrink(draw(failed[0]))
        print(f"seed {failed[0]}, as short as it fails:\n{yaml.safe_dump(shortest)}")
        print("; ".join(failures(shortest)))
    print(f"{asked.runs} runs from seed {asked.seed}: {len(failed)} failed {failed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
