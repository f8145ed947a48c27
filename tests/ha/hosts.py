"""Simulated hypervisors, which run the real ``step`` of the agent: with power, a watchdog, a
management board, and guests that arrive, leave and crash."""

from dataclasses import dataclass, replace

from saltvirt.ha.model import agent_facts, agent_view, committed_config, state_disk, view
from saltvirt.ha.model.messages import (
    ALIVE,
    CRASHED,
    FAILED,
    INCOMING,
    OFF,
    RUNNING,
    SHUT_DOWN,
    STARTING,
    STOPPED,
    GuestStatus,
    HostState,
    ReceivedHeartbeat,
    ReceivedMessage,
)
from saltvirt.ha.model.registry import CommittedConfig
from tests.ha.machines import Machine

# how long things take, in seconds
BOOT_S, START_S, STOP_S, MIGRATE_S, MIGRATE_PATIENCE_S, HALT_S = 15, 2, 3, 5, 15, 2
# an agent looks at libvirt once a second
LOOK_S = 1
# what was cut or healed has its effect after so long
SETTLES_S = 10


NUMBERS, WISHES = "numbers", "wishes"


def as_nobody_could_lead(beat):
    """One beat is of a later term than any; the next grants the lead by times that no lead can
    last, and tells of a registry that nobody has."""
    if beat.seq % 2:
        return replace(beat, term=beat.term + 1000)
    terms = replace(beat.terms, lead_lease_s=0, clock_drift=1)
    return replace(beat, terms=terms, stored_term=beat.term, stored=2**60)


def like(beat, before):
    """The same, with the very objects of the one before where they are equal."""
    old, new = vars(before), vars(beat)
    return changed(beat, {name: old[name] for name in new if new[name] == old[name]})


def changed(beat, values):
    """A copy of the beat with other values: what ``replace`` makes, in a tenth of its time. The
    simulation copies beats more often than it does anything else."""
    copy = object.__new__(type(beat))
    vars(copy).update(vars(beat))
    vars(copy).update(values)
    return copy


class Disk(state_disk.StateDisk):
    """What a host has on its own disk, which may be full, or slow."""

    def __init__(self, host):
        super().__init__(host.kept)
        self.host = host

    def begin(self, saved):
        slow_s = self.host.disk_slow_s
        if self.host.disk_full:
            self.finish(written=False)
        elif slow_s:
            self.host.world.at(slow_s, self.wrote)
        else:
            self.wrote()

    def wrote(self):
        """It is there, unless the agent that wrote it is there no longer."""
        if self.host.disk is self:
            self.finish(written=True)
            self.host.kept = self.saved


@dataclass
class Copy:
    """A guest on a host. writes: the epoch that it writes with. trouble: what ails it; resets: so
    often it has reset itself. shut: the storage gave its lease to another host, and lets nothing
    more of it through, whoever has the lease since: it must be started anew. seen_from: one that
    came in is taken for one on its way until libvirt is looked at again."""

    epoch: int
    state: str
    writes: int = 0
    migrated: int = 0
    busy: int = 0  # a number that whoever began something must find again when it ends
    moving_since: float | None = None
    trouble: str = ""
    resets: int = 0
    shut: bool = False
    seen_from: float = 0


class Host(Machine):
    """A hypervisor with the agent."""

    def __init__(self, world, name, setup):
        super().__init__(world, name)
        self.setup, self.network, self.storage = setup, setup.network, setup.storage
        self.heartbeat = setup.heartbeat
        self.bmc, self.lies = ("on" if setup.bmc else "off"), False
        self.watchdog = setup.watchdog
        self.is_on = self.hung = False
        self.boot = 0
        self.kept = agent_view.SavedAgentState()
        self.runtime = self.state = None
        self.ticks, self.told = 0, None
        self.device_armed, self.fed = False, 0
        self.asked, self.rested = "", False
        self.copies = {}
        self.wrote_at = None
        self.slow_s = 0.0
        self.last_lease = False
        self.disk, self.disk_full, self.disk_slow_s = Disk(self), False, 0.0
        self.run_full, self.said = False, None
        # which definition libvirt has of a guest, and which masters told, by number
        self.defined, self.definitions = {}, {}
        self.policy, self.program, self.liar = world.scenario.policy, "1", False

    # power

    def power_on(self):
        if not self.is_on:
            self.is_on, self.hung, self.network = True, False, True
            self.boot += 1
            self.asked = ""
            self.world.say(self.name, "power on")
            self.world.at(BOOT_S, self.booted, self.boot)

    def booted(self, boot):
        if self.is_on and self.boot == boot:
            self.wrote_at = None
            self.inbox, self.arrived = [], {}
            self.runtime = agent_view.initial_state(self.name, self.boot, self.kept, self.now())
            self.start_agent()

    def power_off(self, why):
        if not self.is_on:
            return
        self.is_on = False
        self.state = self.runtime = self.disk = self.said = None
        self.device_armed = self.run_full = False
        for copy in self.copies.values():
            copy.state, copy.busy = OFF, copy.busy + 1
            copy.moving_since = None
        self.world.say(self.name, "power off", why)

    # the agent

    def start_agent(self):
        if self.is_on and self.runtime is not None and self.state is None:
            self.asked, self.rested = "", False
            self.state = self.runtime.after_restart(self.now())
            self.disk, self.said = Disk(self), None
            self.ticks += 1
            self.world.say(self.name, "agent starts")
            self.tick(self.ticks)

    def goes_down(self):
        """It waits for its guests before it switches itself off."""
        waits = self.is_on and not self.hung and self.state is not None
        return waits and self.asked in ("shutdown", "reboot")

    def kill_agent(self):
        self.state = None
        self.world.say(self.name, "agent is killed")

    def tick(self, ticks):
        if self.state is None or ticks != self.ticks:
            return
        world = self.world
        world.at(self.policy.beat_s / self.rate, self.tick, ticks)
        if self.hung:
            return
        self.receive()
        self.hear_definitions()
        taken = self.take_step()
        self.state = taken.state
        if not self.run_full:
            self.runtime = taken.state
        self.said = taken.beat
        self.tell(self.as_told(taken.beat))
        self.last_lease = False
        for action in taken.actions:
            self.act(action)
            if self.state is None:
                break

    def take_step(self):
        """Its step. Where its restart would not find what it must, it begins nothing."""
        seen, now_s = self.view(), self.now()
        policy = self.policy
        if self.program != "1":  # another program may feed by other rules than those it announces
            policy = replace(policy, feed_lease_s=5 * policy.feed_lease_s)
        if self.run_full and self.said is not None:
            return state_disk.read_only_step(self.state, self.said, seen, now_s, policy)
        return state_disk.durable_step(self.state, seen, now_s, policy, self.disk)

    def as_told(self, beat):
        """A liar says of all others that nobody hears them, and what would make a proof of them; or
        numbers by which nobody could lead; or that what persons wanted at first was agreed on last.
        """
        beat = changed(beat, {"terms": self.policy.terms(self.program)})
        if not self.liar:
            return beat
        if self.liar == NUMBERS:
            return as_nobody_could_lead(beat)
        if self.liar == WISHES:
            return replace(
                beat, config=CommittedConfig(2**40, 1, "0", committed_config.digest("0"))
            )
        others = [name for name in self.world.hosts if name != self.name]
        boots = {name: one.boot for name, one in self.state.saved.registry.hosts.items()}
        terms = self.policy.terms(self.program)
        words = {
            name: HostState(boots.get(name, 1), 2**40, True, 0, SHUT_DOWN, False, terms)
            for name in others
        }
        return replace(beat, host_states=words, silent_s=dict.fromkeys(others, 1000.0))

    def hear_definitions(self):
        """It tells those of its guests, and is told all that masters know."""
        world = self.world
        for master in world.masters.values():
            if master.state is None or not world.connected(self, master):
                continue
            records = master.state.saved.registry.guests
            for name, copy in self.copies.items():
                may = name in records and any(
                    at.host == self.name for at in records[name].locations
                )
                if copy.state == RUNNING and may:
                    number = max(self.defined.get(name, 0), world.known.get(name, 0))
                    world.known[name] = number
            if world.connected(master, self):
                self.definitions.update(world.known)

    def use(self, key, value):
        """Other settings, or another program, by which its agent goes on: as by SIGHUP."""
        if key == "program":
            self.program = value
        else:
            self.policy = replace(self.policy, **{key: float(value)})
        if self.state is not None:
            self.kill_agent()
            self.start_agent()

    def names(self, calls):
        """Guests of high availability, as far as it has heard: of others it tells nothing."""
        kept = self.state.saved
        told = [one.message.registry for one in calls.values() if one.message.registry]
        return {name for one in (kept.registry, kept.pending, *told) for name in one.guests}

    def view(self):
        world, calls = self.world, self.heard("call", ReceivedMessage)
        return agent_view.AgentView(
            beats=self.heard("beat", ReceivedHeartbeat),
            stored={
                name: ReceivedHeartbeat(beat, self.now())
                for name, beat in world.heartbeats.items()
                if name != self.name
            } if self.storage and self.heartbeat else {},
            messages=calls,
            guests={
                name: GuestStatus(
                    copy.epoch, INCOMING if world.time < copy.seen_from else copy.state,
                    copy.migrated, copy.trouble, resets=copy.resets,
                )
                for name, copy in self.copies.items() if name in self.names(calls)
            },
            watchdog=self.watchdog,
            works=self.watchdog and self.device_armed,
            watchdog_s=self.policy.watchdog_s,
            program=self.program,
            definitions=frozenset(self.definitions),
            storage_silent_s=self.storage_silent_s(),
            request="stop" if self.asked == "restart" else self.asked,
            leases={
                name: version for name, (host, version) in world.lease_answers.items()
                if host == self.name
            },
        )  # fmt: skip

    def storage_silent_s(self):
        return 0.0 if self.wrote_at is None else self.world.time - self.wrote_at

    def tell(self, beat):
        world = self.world
        peers = beat.to_peers()
        for other in world.hosts.values():
            if other is not self:
                own = {other.name: peers.acks[other.name]} if other.name in peers.acks else {}
                world.send(self, other, "beat", changed(peers, {"acks": own}))
        # as it comes when what has not changed is not said again
        before, self.told = self.told, beat.to_master()
        self.told = like(self.told, before) if before else self.told
        for master in world.masters.values():
            world.send(self, master, "beat", self.told)
        if self.wrote_at is None:
            self.wrote_at = world.time
        if self.storage:
            world.at(self.slow_s + 0.01, self.write_to_pool, peers, world.time)

    def write_to_pool(self, beat, at):
        if self.storage:
            if self.heartbeat:
                self.world.heartbeats[self.name] = beat
            self.wrote_at = max(self.wrote_at or 0, at)

    def act(self, action):
        do = getattr(self, "do_" + action.kind.replace(" ", "_"))
        if action.kind not in (agent_view.FEED, agent_view.ADOPT, agent_view.DROP):
            what = f"{action.kind} {action.guest} {action.host}".strip()
            if self.announces(action):
                self.world.say(self.name, what, action.reason)
        do(action)

    def announces(self, action):
        """What is begun once is told once."""
        copy = self.copies.get(action.guest)
        moving = copy is not None and copy.moving_since is not None
        return not (
            action.kind in (agent_view.SEND_AWAY, agent_view.STOP_GUEST, agent_view.LEASE)
            and moving
        )

    # its watchdog: a device that cuts the power by itself

    def do_feed(self, _action=None):
        self.last_lease = True
        if self.device_armed and self.watchdog:
            self.fed += 1
            by_s = self.policy.watchdog_s if self.state is None else self.state.watchdog_s
            self.world.at(by_s / self.rate, self.unfed, self.fed)

    def do_arm(self, action):
        self.device_armed = True
        self.do_feed(action)

    def do_disarm(self, _action):
        self.device_armed = False

    def unfed(self, fed):
        if self.is_on and self.device_armed and self.watchdog and fed == self.fed:
            self.world.self_fenced.append(self.name)
            if self.is_heard() and not self.world.scenario.impatient:
                self.world.unjust.append(f"{self.name} cut its power, and a majority hears it")
            self.power_off("its watchdog was not fed")

    def hang(self, on):
        if on and not self.hung:
            self.hung = True
            self.world.say(self.name, "hangs")
        elif self.hung and not on:
            self.hung = False
            self.world.say(self.name, "goes on")
            if self.last_lease:  # it was stopped between its look at the lease and the feeding
                self.do_feed()

    # guests

    def do_start(self, action):
        self.give_back(action.guest)
        self.define(action.guest)
        copy = self.copies.setdefault(action.guest, Copy(0, OFF))
        copy.epoch, copy.state, copy.busy = action.epoch, STARTING, copy.busy + 1
        copy.migrated, copy.moving_since, copy.trouble, copy.resets = 0, None, "", 0
        copy.shut = False
        self.world.at(START_S, self.started, action.guest, copy.busy)

    def define(self, name):
        """It is started by what libvirt has of it, else by what masters told."""
        number = self.defined.setdefault(name, self.definitions.get(name, 0))
        if number < self.world.known.get(name, 0):
            self.world.violations.append(f"{self.name} starts {name} by an old definition")

    def started(self, name, busy):
        copy = self.copies.get(name)
        if not self.is_on or copy is None or copy.busy != busy or copy.state != STARTING:
            return
        world = self.world
        if world.fail_start.get(name, 0) > 0:
            world.fail_start[name] -= 1
            copy.state = FAILED
            world.say(self.name, f"guest {name} failed to start")
        elif not world.take_lease(name, self.name):
            copy.state = FAILED
            if world.hosts[world.leases[name][0]].runs(name):
                world.violations.append(f"{self.name} started {name}, which runs elsewhere")
        elif not self.storage:
            copy.state = FAILED
            world.say(self.name, f"guest {name} failed to start", "no storage")
        else:
            copy.state, copy.writes = RUNNING, copy.epoch
            world.say(self.name, f"guest {name} runs", f"epoch {copy.epoch}")

    def do_adopt(self, action):
        copy = self.copies[action.guest]
        copy.epoch = copy.writes = action.epoch

    def do_stop(self, action):
        copy = self.copies.get(action.guest)
        if copy and copy.state in ALIVE and copy.moving_since is None:
            copy.busy += 1
            copy.moving_since = self.world.time
            self.world.at(STOP_S, self.stopped, action.guest, copy.busy)

    def stopped(self, name, busy):
        copy = self.copies.get(name)
        if self.is_on and copy and copy.busy == busy:
            if self.hung:
                self.world.at(1, self.stopped, name, busy)
                return
            copy.state, copy.moving_since = STOPPED, None
            self.world.say(self.name, f"guest {name} is down")

    def do_kill(self, action):
        self.give_back(action.guest)
        copy = self.copies.get(action.guest)
        if copy is not None:
            copy.state, copy.busy, copy.moving_since = STOPPED, copy.busy + 1, None

    def give_back(self, name):
        """The lease of a guest that does not run."""
        if self.world.lease_answers.get(name, ("", 0))[0] == self.name:
            del self.world.lease_answers[name]

    def do_drop(self, action):
        del self.copies[action.guest]
        self.defined.pop(action.guest, None)

    def do_lease(self, action):
        if self.storage and self.world.take_lease(action.guest, self.name):
            self.world.lease_answers[action.guest] = (self.name, action.epoch)

    def do_migrate(self, action):
        world, copy = self.world, self.copies[action.guest]
        target = world.hosts[action.host]
        consents = target.consents(action) and world.connected(self, target)
        if copy.moving_since is None:
            copy.moving_since = world.time
        there = target.copies.get(action.guest)
        if copy.state != RUNNING or (there is not None and there.state in ALIVE):
            return
        if not consents:
            if world.time - copy.moving_since > MIGRATE_PATIENCE_S:
                copy.migrated, copy.moving_since = action.epoch, None
                world.say(self.name, f"migration of {action.guest} failed", "no target")
            return
        copy.busy += 1
        there = Copy(action.epoch, INCOMING, busy=1)
        target.copies[action.guest] = there
        world.at(MIGRATE_S, self.migrated, action, target, copy, copy.busy, there)

    def consents(self, action):
        """What the target's own agent says when a guest is about to come."""
        able = self.is_on and not self.hung and self.storage and self.state is not None
        return able and agent_facts.consents(
            self.state, action.guest, action.epoch, self.now(), self.policy
        )

    def migrated(self, action, target, copy, busy, there):
        world, name = self.world, action.guest
        if not self.is_on or self.copies.get(name) is not copy or copy.busy != busy:
            if target.copies.get(name) is there and there.state == INCOMING:
                there.state, there.busy = STOPPED, there.busy + 1
            return
        arrived = target.is_on and target.copies.get(name) is there and there.state == INCOMING
        fails = world.fail_migrate.get(name, 0) > 0
        linked = world.connected(self, target) and not self.hung and not target.hung
        if fails:
            world.fail_migrate[name] -= 1
        if fails or not arrived or not linked:
            copy.migrated, copy.moving_since = action.epoch, None
            if arrived:
                there.state, there.busy = STOPPED, there.busy + 1
            world.say(self.name, f"migration of {name} failed")
            return
        del self.copies[name]
        target.defined[name] = self.defined.pop(name, 0)
        there.state, there.writes = RUNNING, action.epoch
        there.seen_from = world.time + LOOK_S
        world.leases[name] = (target.name, world.time)
        world.say(target.name, f"guest {name} runs", f"migrated from {self.name}")

    def runs(self, name):
        return self.is_on and name in self.copies and self.copies[name].state == RUNNING

    def crash(self, name, trouble=""):
        """It ends; with a trouble it is alive, and writes on as one may that is not paused."""
        copy = self.copies.get(name)
        if copy and copy.state == RUNNING and trouble:
            copy.trouble = trouble
            self.world.say(self.name, f"guest {name} is ill", trouble)
        elif copy and copy.state == RUNNING:
            copy.state, copy.busy, copy.moving_since = CRASHED, copy.busy + 1, None
            self.world.say(self.name, f"guest {name} crashes")

    # its end

    def do_exit(self, action):
        restarts = self.asked == "restart"
        self.state, self.asked, self.rested = None, "", True
        if restarts:
            self.world.at(2, self.start_agent)

    def do_renew(self, _action):
        self.state = self.runtime = self.state.after_reboot()
        self.boot = self.state.boot

    def do_power_off(self, _action):
        reboots = self.asked == "reboot"
        self.world.at(HALT_S, self.halted, self.boot, reboots)
        self.state = None

    def halted(self, boot, reboots):
        if self.boot == boot and self.is_on:
            self.power_off("it was shut down in order")
            if reboots:
                self.world.at(2, self.power_on)

    # its management board, asked by a fence agent on a master

    def fence(self, fence, master):
        world = self.world
        world.fenced.append((world.time, self.name))
        if self.is_on and (self.rested or self.is_heard()):
            world.unjust.append(f"{self.name} was fenced, which is at rest or heard by a majority")
        world.say(master, f"fences {self.name}", f"attempt {fence.attempt}")
        world.at(world.random.uniform(1, 4), self.fence_ends, fence, master)

    def is_heard(self):
        """A majority of the others has heard it for long, by the network as it is, and it hears
        them: what nobody can tell it, it cannot know. One whose /run is full tells nothing new."""
        world = self.world
        if self.hung or self.state is None or world.time - world.commanded < 2 * SETTLES_S:
            return False
        if not self.is_there_for_long():
            return False
        hears = [other.name for other in world.hosts.values()
                 if other is not self and other.state is not None and not other.hung
                 and other.is_there_for_long() and not other.run_full
                 and world.connected(self, other) and world.connected(other, self)]  # fmt: skip
        return 2 * len(hears) >= len(world.hosts)

    def is_there_for_long(self):
        return self.state.since_s <= self.now(self.world.time - 2 * SETTLES_S)

    def fence_ends(self, fence, master):
        outcome = view.TIMED_OUT
        if self.bmc == "on":
            self.power_off("its management board was told to")
            outcome = view.TIMED_OUT if self.lies else view.OFF
        delay = 0 if outcome == view.OFF else 10
        self.world.at(delay, self.fence_told, fence, master, outcome)

    def fence_told(self, fence, master, outcome):
        self.world.fences[self.name] = view.FenceResult(fence.attempt, outcome)
        self.world.say(master, f"fence of {self.name}: {outcome}", f"attempt {fence.attempt}")
