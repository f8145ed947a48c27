"""Simulated machines, and the masters among them, which run the real ``decide``. Each machine has a
drifting clock of its own."""

from dataclasses import replace

from saltvirt.ha.model import committed_config, decide, leadership, view
from saltvirt.ha.model.messages import ReceivedHeartbeat
from saltvirt.ha.model.registry import CommittedConfig


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
        self.kept, self.state = view.SavedMasterState(), None
        self.running, self.wanted = 0, {}
        self.policy, self.program = world.scenario.policy, "1"
        # of several: what its file says (a number of World.said), what of it is not agreed on yet
        self.file, self.offers = CommittedConfig(), ()

    def start(self):
        if self.state is None:
            self.running += 1
            self.inbox, self.arrived = [], {}
            self.state = view.initial_state(self.name, self.kept, self.now())
            self.world.say(self.name, "starts")
            self.tick(self.running)

    def stop(self):
        if self.state is not None:
            self.state = None
            self.world.say(self.name, "is killed")

    def use(self, key, value):
        """Other settings, or another program: by them it begins anew."""
        if key == "program":
            self.program = value
        else:
            self.policy = replace(self.policy, **{key: float(value)})
        if self.state is not None:
            self.stop()
            self.start()

    def tick(self, running):
        if self.state is None or running != self.running:
            return
        world = self.world
        world.at(self.policy.beat_s / self.rate, self.tick, running)
        self.receive()
        if world.shares:
            self.listen()
        seen = self.view()
        decision = decide.decide(seen, self.state, self.now())
        if decision.changes and world.shares:
            world.acts(self.name, seen)
        if decision.changes or decision.fences:
            world.leads(self.name, decision.state.saved.term)
        self.state = decision.state
        self.kept = decision.state.saved
        for one in decision.changes:
            world.decided += 1
            world.say(self.name, f"{one.kind} {one.name}: {one.old} → {one.new}", one.reason)
        for host in world.hosts.values():
            world.send(
                self, host, "call", decide.without_stored(decision.message, self.last_beat(host))
            )
        for fence in decision.fences:
            world.hosts[fence.host].fence(fence, self.name)

    def listen(self):
        """To a person, who goes to the one who leads, and to what others have agreed on."""
        agreed = self.state.saved.registry.config
        members = self.state.saved.registry.members or tuple(self.world.hosts)
        beats = [message for (kind, _), (_, message) in self.arrived.items() if kind == "beat"]
        told = [committed_config.find_committed(beats, members)]
        leads = self.state.leading_s is not None
        if leads and leadership.is_settled(self.state):
            told.append(agreed)
        news = max(
            (one for one in told if one.text), key=lambda one: one.stamp, default=CommittedConfig()
        )
        self.file, self.offers, lost = committed_config.merge(self.file, self.offers, news)
        self.world.given_up += lost
        last = str(len(self.world.said) - 1)
        if leads and self.state.ready and last not in (self.file.text, agreed.text):
            self.hear_a_person()

    def hear_a_person(self):
        self.file = replace(self.file, text=str(len(self.world.said) - 1))
        self.offers = (*self.offers, committed_config.digest(self.file.text))

    def acted_by(self):
        """What it acts by: what was agreed on, or its own file where nothing was."""
        agreed = self.state.saved.registry.config
        known = agreed.text and self.state.ready and agreed.stamp >= self.file.stamp
        return int((agreed if known else self.file).text or 0)

    def last_beat(self, host):
        found = self.arrived.get(("beat", host.name))
        return found[1] if found else None

    def view(self):
        world = self.world
        beats = self.heard("beat", ReceivedHeartbeat)
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
            placement_hosts=world.rooms,
            guests=self.wanted,
            rules=tuple(world.scenario.rules),
            relocations=said["wishes"],
            fence_levels=dict.fromkeys(world.hosts, 1),
            fences=world.fences,
            confirmed=said["confirmed"],
            maintenance=frozenset(world.maintenance),
            armed=said["armed"],
            own_config=self.file if world.shares else None,
            policy=self.policy,
            program=self.program,
        )
