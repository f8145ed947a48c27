"""Simulated machines: hosts with power, networks, storage, watchdogs and management boards,
masters, guests that write to their disks. They run the real ``decide`` and the real ``step`` of the
agent.

Time is simulated; each machine has a clock of its own that drifts.
"""

import heapq
import random
from dataclasses import dataclass, replace

from saltvirt.ha import agent, agent_known, agent_view, decide, lead, view, wished
from saltvirt.ha.facts import (
    ALIVE,
    CRASHED,
    FAILED,
    INCOMING,
    IO_FAILED,
    OFF,
    RUNNING,
    STARTING,
    STOPPED,
    ArrivedBeat,
    ArrivedCall,
    GuestThere,
)
from saltvirt.ha.registry import Wished
from saltvirt.placement.facts import Host as Room

# how long things take, in seconds
BOOT_S, START_S, STOP_S, MIGRATE_S, MIGRATE_PATIENCE_S, HALT_S = 15, 2, 3, 5, 15, 2
# the storage gives a lease to another host when the one that has it did not renew it for so long
LEASE_S = 15
# a master of many reads what has come only twice a beat
READS_LATE = 11
# what was cut or healed has its effect after so long
SETTLES_S = 10


@dataclass
class Copy:
    """A guest on a host. writes: the epoch that it writes with. trouble: what ails it; resets: so
    often it has reset itself. shut: the storage gave its lease to another host, and lets nothing
    more of it through, whoever has the lease since: it must be started anew."""

    epoch: int
    state: str
    writes: int = 0
    migrated: int = 0
    busy: int = 0  # a number that whoever began something must find again when it ends
    moving_since: float | None = None
    trouble: str = ""
    resets: int = 0
    shut: bool = False


class Machine:
    """What hosts and masters have in common: a clock, a network, an inbox."""

    def __init__(self, world, name):
        self.world, self.name = world, name
        drift = world.scenario.policy.clock_drift
        self.rate = 1 + world.random.uniform(-drift, drift)
        self.offset = world.random.uniform(0, 10_000)
        self.wall_s = 0.0
        self.network = True
        self.inbox = []
        self.arrived = {}

    def now(self, at=None):
        """Its clock. It counts from no common time, and is set by nobody."""
        return self.offset + (self.world.time if at is None else at) * self.rate

    def receive(self):
        """What came since: of each sender the last."""
        left = []
        for at, kind, sender, message in self.inbox:
            if at <= self.world.time:
                self.arrived[kind, sender] = (at, message)
            else:
                left.append((at, kind, sender, message))
        self.inbox = left

    def heard(self, kind, make):
        return {
            sender: make(message, self.now(at))
            for (what, sender), (at, message) in self.arrived.items()
            if what == kind
        }


class Master(Machine):
    """A machine with the engine virt_ha."""

    def __init__(self, world, name):
        super().__init__(world, name)
        self.kept, self.state = view.MasterKept(), None
        self.running, self.wanted = 0, {}
        # of several: what its file says (a number of World.said), what of it is not agreed on yet
        self.file, self.offers = Wished(), ()

    def start(self):
        if self.state is None:
            self.running += 1
            self.inbox, self.arrived = [], {}
            self.state = view.begun(self.name, self.kept, self.now())
            self.world.say(self.name, "starts")
            self.tick(self.running)

    def stop(self):
        if self.state is not None:
            self.state = None
            self.world.say(self.name, "is killed")

    def tick(self, running):
        if self.state is None or running != self.running:
            return
        world = self.world
        world.at(world.policy.beat_s / self.rate, self.tick, running)
        self.receive()
        if world.shares:
            self.listen()
        seen = self.view()
        decision = decide.decide(seen, self.state, self.now())
        if decision.decided and world.shares:
            world.acts(self.name, seen)
        if decision.decided or decision.fences:
            world.leads(self.name, decision.state.kept.term)
        self.state = decision.state
        self.kept = decision.state.kept
        for one in decision.decided:
            world.decided += 1
            world.say(self.name, f"{one.what} {one.name}: {one.old} → {one.new}", one.why)
        for host in world.hosts.values():
            world.send(self, host, "call", decide.spared(decision.call, self.last_beat(host)))
        for fence in decision.fences:
            world.hosts[fence.host].fence(fence, self.name)

    def listen(self):
        """To a person, who goes to the one who leads, and to what others have agreed on."""
        agreed, told = self.state.kept.registry.wished, [Wished()]
        told += [at[1].wished for (kind, _), at in self.arrived.items() if kind == "beat"]
        leads = self.state.leading_s is not None
        if leads and lead.is_settled(self.state):
            told.append(agreed)
        news = max((one for one in told if one.text), key=lambda one: one.stamp, default=Wished())
        self.file, self.offers, lost = wished.learned(self.file, self.offers, news)
        self.world.given_up += lost
        last = str(len(self.world.said) - 1)
        if leads and self.state.ready and last not in (self.file.text, agreed.text):
            self.hear_a_person()

    def hear_a_person(self):
        self.file = replace(self.file, text=str(len(self.world.said) - 1))
        self.offers = (*self.offers, wished.digest(self.file.text))

    def acted_by(self):
        """What it acts by: what was agreed on, or its own file where nothing was."""
        agreed = self.state.kept.registry.wished
        known = agreed.text and self.state.ready and agreed.stamp >= self.file.stamp
        return int((agreed if known else self.file).text or 0)

    def last_beat(self, host):
        found = self.arrived.get(("beat", host.name))
        return found[1] if found else None

    def view(self):
        world = self.world
        beats = self.heard("beat", ArrivedBeat)
        said = world.said[self.acted_by()] if world.shares else world.now_said()
        if self.wanted != said["guests"]:  # one object for as long as nothing changes
            self.wanted = dict(said["guests"])
        answered = {
            name: self.now()
            for name, host in world.hosts.items()
            if host.is_on and not host.hung
            and world.connected(self, host) and world.connected(host, self)
        }  # fmt: skip
        return view.View(
            masters=world.scenario.masters,
            members=tuple(world.hosts),
            beats=beats,
            answered_s=answered,
            rooms=world.rooms,
            guests=self.wanted,
            rules=tuple(world.scenario.rules),
            wishes=said["wishes"],
            fence_levels=dict.fromkeys(world.hosts, 1),
            fences=world.fences,
            confirmed=said["confirmed"],
            maintenance=frozenset(world.maintenance),
            armed=said["armed"],
            wished=self.file if world.shares else None,
            policy=world.policy,
        )


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
        self.kept = agent_view.Kept()
        self.runtime = self.state = None
        self.ticks, self.told = 0, None
        self.device_armed, self.fed = False, 0
        self.asked, self.rested = "", False
        self.copies = {}
        self.wrote_at = None
        self.slow_s = 0.0
        self.last_lease = False

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
            self.runtime = agent_view.begun(self.name, self.boot, self.kept, self.now())
            self.start_agent()

    def power_off(self, why):
        if not self.is_on:
            return
        self.is_on = False
        self.state = self.runtime = None
        self.device_armed = False
        for copy in self.copies.values():
            copy.state, copy.busy = OFF, copy.busy + 1
            copy.moving_since = None
        self.world.say(self.name, "power off", why)

    # the agent

    def start_agent(self):
        if self.is_on and self.runtime is not None and self.state is None:
            self.asked, self.rested = "", False
            self.state = self.runtime.begun(self.now())
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
        world.at(world.policy.beat_s / self.rate, self.tick, ticks)
        if self.hung:
            return
        self.receive()
        taken = agent.step(self.state, self.view(), self.now(), world.policy)
        self.state = self.runtime = taken.state
        self.kept = taken.state.kept
        self.tell(taken.beat)
        self.last_lease = False
        for action in taken.actions:
            self.act(action)
            if self.state is None:
                break

    def names(self, calls):
        """Guests of high availability, as far as it has heard: of others it tells nothing."""
        kept = self.state.kept
        told = [one.call.registry for one in calls.values() if one.call.registry]
        return {name for one in (kept.registry, kept.pending, *told) for name in one.guests}

    def view(self):
        world, calls = self.world, self.heard("call", ArrivedCall)
        return agent_view.AgentView(
            beats=self.heard("beat", ArrivedBeat),
            stored={
                name: ArrivedBeat(beat, self.now())
                for name, beat in world.heartbeats.items()
                if name != self.name
            } if self.storage and self.heartbeat else {},
            calls=calls,
            guests={
                name: GuestThere(
                    copy.epoch, copy.state, copy.migrated, copy.trouble, resets=copy.resets
                )
                for name, copy in self.copies.items() if name in self.names(calls)
            },
            watchdog=self.watchdog,
            works=self.watchdog and self.device_armed,
            watchdog_s=world.policy.watchdog_s,
            storage_silent_s=self.storage_silent_s(),
            asked="stop" if self.asked == "restart" else self.asked,
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
                world.send(self, other, "beat", replace(peers, acks=own))
        # as it comes when what has not changed is not said again
        before, self.told = self.told, beat.to_master()
        self.told = self.told.like(before) if before else self.told
        for master in world.masters.values():
            world.send(self, master, "beat", self.told)
        if self.wrote_at is None:
            self.wrote_at = world.time
        if self.storage:
            world.at(self.slow_s + 0.01, self.written, peers, world.time)

    def written(self, beat, at):
        if self.storage:
            if self.heartbeat:
                self.world.heartbeats[self.name] = beat
            self.wrote_at = max(self.wrote_at or 0, at)

    def act(self, action):
        do = getattr(self, "do_" + action.kind.replace(" ", "_"))
        if action.kind not in (agent_view.FEED, agent_view.ADOPT, agent_view.DROP):
            what = f"{action.kind} {action.guest} {action.host}".strip()
            if self.announces(action):
                self.world.say(self.name, what, action.why)
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
            self.world.at(self.world.policy.watchdog_s / self.rate, self.unfed, self.fed)

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
        copy = self.copies.setdefault(action.guest, Copy(0, OFF))
        copy.epoch, copy.state, copy.busy = action.epoch, STARTING, copy.busy + 1
        copy.migrated, copy.moving_since, copy.trouble, copy.resets = 0, None, "", 0
        copy.shut = False
        self.world.at(START_S, self.started, action.guest, copy.busy)

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
        return able and agent_known.consents(
            self.state, action.guest, action.epoch, self.now(), self.world.policy
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
        there.state, there.writes = RUNNING, action.epoch
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
        self.boot += 1
        self.state = self.runtime = self.state.renewed()

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
        them: what nobody can tell it, it cannot know."""
        world = self.world
        if self.hung or self.state is None or world.time - world.commanded < 2 * SETTLES_S:
            return False
        if not self.is_there_for_long():
            return False
        hears = [other.name for other in world.hosts.values()
                 if other is not self and other.state is not None and not other.hung
                 and other.is_there_for_long()
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
        self.world.fences[self.name] = view.FenceSeen(fence.attempt, outcome)
        self.world.say(master, f"fence of {self.name}: {outcome}", f"attempt {fence.attempt}")


class World:
    """All of it, and the time."""

    def __init__(self, scenario):
        self.scenario, self.policy = scenario, scenario.policy
        self.random = random.Random(scenario.seed)
        self.time, self.queue, self.count = 0.0, [], 0
        self.timeline, self.violations, self.last_change = [], [], 0.0
        self.cuts, self.heartbeats, self.disks, self.leases = set(), {}, {}, {}
        self.lease_answers, self.fences, self.confirmed = {}, {}, {}
        self.fail_start, self.fail_migrate = {}, {}
        self.wanted, self.wishes = dict(scenario.guests), {}
        self.maintenance, self.armed = set(), True
        self.self_fenced, self.fenced, self.decided = [], [], 0
        self.unjust, self.commanded = [], 0.0
        self.hosts = {name: Host(self, name, one) for name, one in scenario.hosts.items()}
        self.masters = {name: Master(self, name) for name in scenario.masters}
        self.rooms = {
            name: Room(name, one.cpus, one.memory_mib * 1024, types=("kvm",), arch="x86_64")
            for name, one in scenario.hosts.items()
        }
        self.at(1, self.write)
        for name, host in self.hosts.items():
            if scenario.hosts[name].power:
                network = host.network
                host.power_on()
                host.network = network
        self.said, self.acted, self.given_up = [], 0, 0
        self.said.append({**self.now_said(), "guests": dict(self.wanted)})
        self.persons = random.Random(f"{scenario.seed}, persons")
        several = len(scenario.masters) > 1
        self.shares = several and all(hasattr(one, "file") for one in self.masters.values())
        if self.shares:
            self.at(0.5, self.say_again)
        for place, master in enumerate(self.masters.values()):
            self.at(0.3 + place, master.start)

    # time

    def at(self, delay, function, *args):
        self.count += 1
        heapq.heappush(self.queue, (self.time + delay, self.count, function, args))

    def run_until(self, until):
        queue = self.queue
        while queue and queue[0][0] <= until:
            self.time, _, function, args = heapq.heappop(queue)
            function(*args)
        self.time = max(self.time, until)

    # what persons want

    def now_said(self):
        return {"guests": self.wanted, "wishes": self.wishes, "armed": self.armed,
                "confirmed": self.confirmed}  # fmt: skip

    def say_again(self):
        """What persons want now. At times it is said at a master that does not lead."""
        self.at(1, self.say_again)
        said = {key: one if key == "armed" else dict(one) for key, one in self.now_said().items()}
        news = said != self.said[-1]
        self.said += [said] if news else []
        unheard = not any(one.file.text for one in self.masters.values())
        running = [one for one in self.masters.values() if one.state is not None]
        if running and (unheard or (news and self.persons.random() < 0.3)):
            self.persons.choice(running).hear_a_person()

    def acts(self, name, seen):
        """Once it was acted by what persons wanted, nobody goes by what they wanted before."""
        number = self.masters[name].acted_by()
        if number < self.acted:
            self.violations.append(f"{name} acts by wishes {number}, {self.acted} were acted by")
        self.acted = number

    def leads(self, name, term):
        """Nobody decides once a majority has granted the lead to one who came after him."""
        later = [host for host in self.hosts.values() if host.kept.term > term]
        if 2 * len(later) > len(self.hosts):
            self.violations.append(f"{name} decides, and leads no more")

    def settle(self, quiet_s, most_s):
        """Runs on until nothing has happened for so long, and no host is about to go down. Returns
        whether it came to that."""
        end = self.time + most_s
        self.last_change = self.time
        while self.time < end:
            until = self.last_change + quiet_s
            if until <= self.time:
                if not any(host.goes_down() for host in self.hosts.values()):
                    return True
                until = self.time + 1
            self.run_until(min(until, end))
        return False

    def say(self, actor, action, why=""):
        self.last_change = self.time
        entry = {"time": round(self.time, 2), "actor": actor, "action": action, "why": why}
        self.timeline.append(entry)

    # networks

    def connected(self, one, other):
        """Whether what one sends comes to the other."""
        if not (one.network and other.network) or (one.name, other.name) in self.cuts:
            return False
        return getattr(one, "is_on", True) and getattr(other, "is_on", True)

    def send(self, one, other, kind, message):
        if self.connected(one, other) and getattr(other, "state", None) is not None:
            delay = self.random.uniform(0.001, 0.05)
            delay *= READS_LATE if isinstance(other, Master) else 1
            other.inbox.append((self.time + delay, kind, one.name, message))

    # disks

    def write(self):
        """Each guest writes its epoch to its disk once a second; who writes behind another is
        found."""
        self.at(1, self.write)
        for host in self.hosts.values():
            if not host.is_on or host.hung or not host.storage:
                continue
            for name, copy in host.copies.items():
                if copy.state != RUNNING:
                    continue
                if not copy.shut and self.take_lease(name, host.name):
                    self.wrote(name, host.name, copy.writes)
                else:
                    copy.trouble = IO_FAILED

    def wrote(self, name, host, epoch):
        last = self.disks.get(name)
        if last is not None and (epoch < last[0] or (epoch == last[0] and host != last[1])):
            found = {"time": round(self.time, 2), "guest": name, "host": host, "epoch": epoch,
                     "disk": {"epoch": last[0], "host": last[1]}}  # fmt: skip
            self.violations.append(found)
        else:
            self.disks[name] = (epoch, host)

    def take_lease(self, name, host):
        """The storage's leases, of guests that have one: whether the host may write."""
        wanted = self.wanted.get(name)
        if wanted is None or not wanted.leased:
            return True
        holder, at = self.leases.get(name, (host, 0))
        if holder != host and self.hosts[holder].is_on and self.time - at < LEASE_S:
            return False
        old = self.hosts[holder].copies.get(name)
        if holder != host and old is not None:
            old.shut = True
        self.leases[name] = (host, self.time)
        return True

    # what is seen at the end

    def newest(self):
        """The newest registry of all masters."""
        return max((m.kept.registry for m in self.masters.values()), key=lambda r: r.stamp)

    def end(self):
        newest = self.newest()
        hosts = {
            name: {
                "power": "on" if host.is_on else "off",
                "state": newest.host(name).state,
                "why": newest.host(name).why,
                "watchdog": "armed" if host.device_armed else "rests",
            }
            for name, host in self.hosts.items()
        }
        guests = {}
        for name in self.wanted:
            record = newest.guests.get(name)
            runs = [host.name for host in self.hosts.values() if host.runs(name)]
            guests[name] = {
                "host": runs[0] if runs else (record.host or record.last if record else ""),
                "state": record.state if record else "new",
                "running": bool(runs),
                "wanted": self.wanted[name].wanted,
                "epoch": record.epoch if record else 0,
                "why": record.why if record else "",
            }
        return {"hosts": hosts, "guests": guests, "armed": newest.armed}
