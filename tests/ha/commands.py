"""The commands of scenarios, and how a scenario is run."""

from dataclasses import replace

from saltvirt.ha.model import messages, reserve, view
from saltvirt.ha.model import registry as registry_states
from saltvirt.ha.model.messages import OFF, RUNNING, STOPPED
from saltvirt.ha.model.registry import CommittedConfig
from tests.ha.grammar import MASTER, BadScenario
from tests.ha.hosts import NUMBERS, WISHES, Copy
from tests.ha.scenario import guest, switch
from tests.ha.world import World

# a step has settled when nothing happened for so long, and is given up after MOST_S
QUIET_S, MOST_S = 40, 1800
DELAY = "delay"
FAILS = ("fail_start", "fail_migrate")
# what befalls a guest that is of high availability no longer, too
BY_HAND = ("disable", "enable", "move", "crash")
# by what a guest fails that does not end: guest NAME crash REASON
TROUBLES = {
    "": "", "panic": messages.PANICKED, "io": messages.IO_FAILED, "watchdog": messages.WATCHDOG,
    "silent": messages.SILENT, "full": messages.FULL,
}  # fmt: skip


def run(scenario, quiet_s=QUIET_S, most_s=MOST_S):
    """The World after all steps of a scenario."""
    world = World(scenario)
    world.settle(quiet_s, most_s)
    for step in scenario.commands:
        for command in step:
            do(world, command)
        world.settle(quiet_s, most_s)
    return world


def do(world, command):
    """Carries out one command. Raises BadScenario for one that there is not."""
    words = command.split()
    name = words[0] if words else ""
    if name == DELAY:
        world.run_until(world.time + float(words[1]))
        return
    function = COMMANDS.get(name)
    if function is None:
        raise BadScenario(f"unknown command {command}; known: {', '.join(sorted(COMMANDS))}, delay")
    world.say("scenario", command)
    world.commanded = world.time
    try:
        function(world, *words[1:])
    except (KeyError, TypeError, IndexError) as exc:
        raise BadScenario(f"{command}: {exc}") from exc


def _machine(world, name):
    return world.masters[name] if name in world.masters else world.hosts[name]


def _power(world, name, to):
    host = world.hosts[name]
    if switch(to, "power"):
        host.power_on()
    else:
        host.power_off("its power was cut")


def _network(world, name, to):
    _machine(world, name).network = switch(to, "network")


def _storage(world, name, to, seconds="0"):
    host = world.hosts[name]
    if to == "slow":
        host.slow_s = float(seconds)
    else:
        host.storage, host.slow_s = switch(to, "storage"), 0.0


def _heartbeat(world, name, to):
    """The pool by which hosts hear each other; guests' disks are elsewhere."""
    world.hosts[name].heartbeat = switch(to, "heartbeat")


def _disk(world, name, to, seconds="0"):
    """The host's own disk."""
    host = world.hosts[name]
    host.disk_full, host.disk_slow_s = to == "full", float(seconds)


def _run(world, name, to):
    """What outlives the agent, but not its host."""
    host = world.hosts[name]
    host.run_full = to == "full" and host.is_on
    if host.state is not None and not host.run_full:
        host.runtime = host.state


def _settings(world, name, key, value=""):
    """What its configuration says; usual: the same as all others have."""
    machine, usual = _machine(world, name), world.scenario.policy
    if key != "usual":
        machine.use(key, value)
    elif (machine.policy, machine.program) != (usual, "1"):
        machine.policy = usual
        machine.use("program", "1")


def _liar(world, name, to):
    world.hosts[name].liar = to if to in (NUMBERS, WISHES) else switch(to, "liar")


def _bmc(world, name, to):
    host = world.hosts[name]
    if to == "lies":
        host.lies = True
    else:
        host.bmc, host.lies = ("on" if switch(to, "bmc") else "off"), False


def _watchdog(world, name, to):
    host = world.hosts[name]
    host.watchdog = switch(to, "watchdog")
    if not host.watchdog:
        host.device_armed = False


def _cut(world, one, other, way="both"):
    _machine(world, one), _machine(world, other)
    world.cuts.add((one, other))
    if way != "oneway":
        world.cuts.add((other, one))


def _heal(world, *pair):
    if pair:
        world.cuts -= {pair, pair[::-1]}
    else:
        world.cuts.clear()


def _shutdown(world, name, kind="shutdown"):
    host = world.hosts[name]
    if host.is_on and host.state is not None:
        host.asked = kind
    elif host.is_on and not host.hung:
        host.power_off("it was shut down without its agent")
        if kind == "reboot":
            world.at(2, host.power_on)


def _reboot(world, name):
    _shutdown(world, name, "reboot")


def _agent(world, name, to):
    host = world.hosts[name]
    if to == "start":
        host.start_agent()
    elif to == "kill":
        host.kill_agent()
    elif host.state is not None:
        host.asked = {"stop": "stop", "restart": "restart"}[to]


def _master(world, *words):
    name, to = words if len(words) == 2 else (MASTER, words[0])
    if name not in world.masters and len(world.masters) == 1:
        name = next(iter(world.masters))
    master = world.masters[name]
    if to in ("stop", "restart", "forget"):
        master.stop()
    if to == "forget":
        master.kept = view.SavedMasterState()
        master.file, master.offers = CommittedConfig(), ()
    if to == "start":
        master.start()
    elif to in ("restart", "forget"):
        world.at(1, master.start)
    elif to != "stop":
        raise BadScenario(f"master {to}: stop, start, restart or forget")


def _say(world, name):
    """What persons want now is said at that master, whoever leads."""
    if world.shares:
        world.masters[name].hear_a_person()


def _maintenance(world, name, to):
    _machine(world, name)
    (world.maintenance.add if switch(to, "maintenance") else world.maintenance.discard)(name)


def _hang(world, name, to):
    world.hosts[name].hang(switch(to, "hang"))


def _confirm(world, name):
    world.confirmed[name] = world.hosts[name].boot


def _guest(world, name, what, *words):
    if name not in world.wanted and what not in ("add", *BY_HAND, *FAILS):
        if name not in world.disabled:
            raise BadScenario(f"guest {name} {what}: it is not there")
        world.say("scenario", f"guest {name} is refused", "it was taken from high availability")
        return
    if what in OF_GUEST:
        OF_GUEST[what](world, name, *words)
    elif what in ("started", "stopped", "ignored"):
        _want(world, name, what)
    elif what in (view.MIGRATE, view.RELOCATE):
        world.hosts[words[0]]
        number = 1 + max((one.number for one in world.wishes.values()), default=0)
        world.wishes[name] = view.RelocationRequest(number, what, words[0])
        world.at(120, _forget, world, name, number)
    elif what in ("crash", "resets", "healed"):
        for host in world.hosts.values():
            _ails(host, name, what, *words)
    elif what in FAILS:
        getattr(world, what)[name] = int(words[0]) if words else 1
    else:
        raise BadScenario(f"guest {name} {what}: unknown")


def _delete(world, name):
    world.wanted.pop(name)
    for host in world.hosts.values():
        for of_host in (host.copies, host.defined, host.definitions):
            of_host.pop(name, None)
    for of_guest in (world.disks, world.leases, world.lease_answers, world.known):
        of_guest.pop(name, None)  # another of that name has another disk


def _changed(world, name):
    """It has another definition, with a disk or a snapshot more."""
    for host in _runs(world, name):
        world.hosts[host].defined[name] = world.known.get(name, 0) + 1


def _want(world, name, what):
    """One that was ignored is looked for where it is; the verb refuses it elsewhere than the engine
    left it."""
    old, host = world.wanted[name], world.wanted[name].host
    if old.desired_state == view.IGNORED != what:
        record = world.newest().guests.get(name)
        places = {place.host for place in record.locations} if record else set()
        host = next(iter(_runs(world, name)), host)
        agent = world.hosts.get(host)
        if agent is not None and _runs(world, name) and _is_over(agent):
            world.say("scenario", f"guest {name} is refused", f"{host} shuts down")
            return
        if places and host not in places and _runs(world, name):
            world.say("scenario", f"guest {name} is refused", f"it was left on {sorted(places)}")
            return
    world.wanted[name] = replace(old, desired_state=what, host=host)


def _is_over(host):
    """Its agent says that nothing will run there before it is started anew."""
    return host.said is not None and host.said.phase == messages.SHUT_DOWN


def _disable(world, name):
    """It stays as it is, and is no longer of high availability."""
    world.disabled.add(name)
    world.wanted.pop(name, None)
    world.wishes.pop(name, None)


def _enable(world, name):
    """It is given to high availability where it runs; refused while the engine has it still."""
    host = next(iter(_runs(world, name)), "")
    if name in world.wanted or not host or name in world.newest().guests:
        world.say("scenario", f"guest {name} is not given")
        return
    old = world.scenario.guests.get(name) or guest(name, {})
    world.wanted[name] = replace(old, desired_state="started", host=host)


def _move(world, name, host):
    """A person migrates it live, while high availability leaves it alone."""
    wanted, source = world.wanted.get(name), next(iter(_runs(world, name)), "")
    there = world.hosts[host]
    kept = wanted is not None and wanted.desired_state != view.IGNORED
    if (
        kept
        or _may_start(world, name)
        or not source
        or source == host
        or not there.is_on
        or there.hung
    ):
        world.say("scenario", f"guest {name} is not moved by hand")
        return
    world.hosts[source].copies[name].state = STOPPED
    there.defined[name] = world.hosts[source].defined.pop(name, 0)
    epoch, _ = world.disks.get(name, (0, ""))
    world.disks[name] = epoch, host
    there.copies[name] = replace(there.copies.get(name, Copy(0, OFF)), state=RUNNING, writes=epoch)


def _may_start(world, name):
    """Whether virt.ha_ignore and virt.ha_disable say that agents may start the guest still, as no
    majority of them goes by it: a person neither moves nor starts it then."""
    registry = world.newest()
    record = registry.guests.get(name)
    if record is None or record.state != registry_states.IGNORED:
        return record is not None
    heard = [one for one in world.hosts.values() if one.said is not None]
    confirmed = [one for one in heard if one.said.applied >= record.changed]
    return 2 * len(confirmed) <= len(world.hosts)


def _start(world, name, host):
    """A person starts one that is ignored, where it runs nowhere."""
    there = world.hosts[host]
    ignored = world.wanted[name].desired_state == view.IGNORED and not _may_start(world, name)
    if not ignored or _runs(world, name) or not there.is_on:
        world.say("scenario", f"guest {name} is not started by hand")
        return
    epoch, _ = world.disks.get(name, (0, ""))
    world.disks[name] = epoch, host
    there.defined[name] = world.known.get(name, 0)
    copy = there.copies.get(name, Copy(0, OFF))
    there.copies[name] = replace(copy, state=RUNNING, writes=epoch, trouble="")


def _runs(world, name):
    return [one.name for one in world.hosts.values() if one.runs(name)]


def _add(world, name, host, *words):
    runs = _runs(world, name)
    if runs and words == ("running",):
        raise BadScenario(f"guest {name} add: it runs on {runs[0]}")
    world.wanted[name] = world.scenario.guests.get(name) or guest(name, {})
    world.wanted[name] = replace(world.wanted[name], host=host, desired_state="started")
    master = next(iter(world.masters.values()))
    why = reserve.refusal(master.view(), world.newest(), name, master.now())
    if why:
        del world.wanted[name]
        world.say("scenario", f"guest {name} is refused", why)
    elif words == ("running",):  # as a person has started it
        world.hosts[host].copies[name] = Copy(0, RUNNING)


def _ails(host, name, what, reason=""):
    copy = host.copies.get(name, Copy(0, OFF))
    if what == "crash":
        host.crash(name, TROUBLES[reason])
    elif what == "resets":
        copy.resets += 1
    else:
        copy.trouble = ""


def _forget(world, name, number):
    """A wish has an end."""
    if name in world.wishes and world.wishes[name].number == number:
        del world.wishes[name]


def _ha(world, to):
    world.armed = {"arm": True, "disarm": False}[to]


def _clock(world, name, seconds):
    """The time of day is set; nothing in high availability looks at it."""
    _machine(world, name).wall_s += float(seconds)


OF_GUEST = {"add": _add, "delete": _delete, "disable": _disable, "enable": _enable, "move": _move,
            "changed": _changed, "start": _start}  # fmt: skip
COMMANDS = {
    "power": _power, "network": _network, "storage": _storage, "bmc": _bmc, "watchdog": _watchdog,
    "cut": _cut, "heal": _heal, "shutdown": _shutdown, "reboot": _reboot, "agent": _agent,
    "master": _master, "maintenance": _maintenance, "hang": _hang, "heartbeat": _heartbeat,
    "disk": _disk, "run": _run, "settings": _settings, "liar": _liar, "say": _say,
    "confirm": _confirm, "guest": _guest, "ha": _ha, "clock": _clock,
}  # fmt: skip
