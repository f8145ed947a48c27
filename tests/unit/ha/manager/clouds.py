"""The simulator's clouds with the real engine and its files instead of the pure decisions. The
engine can be killed at each external action."""

import itertools
import json
import os
from dataclasses import replace
from unittest import mock

from saltvirt.ha.manager import config, files
from saltvirt.ha.manager.desired_state import DesiredState, DesiredStateStore
from saltvirt.ha.manager.engine import Engine
from saltvirt.ha.manager.engine import EngineContext as Touched
from saltvirt.ha.model import view
from saltvirt.ha.model.messages import LeaderMessage
from saltvirt.placement.policy import PlacementPolicy
from tests.ha import machines

# what the engine does to the world, where it may be killed: before it is done, and after
TELLS, WRITES, FENCES = "tells", "writes", "fences"


class Killed(BaseException):
    """kill -9."""


class EngineMaster(machines.Machine):
    """A machine with the engine. folder: what outlives it. dies: called with what it does;
    it raises Killed."""

    folder = None
    dies = staticmethod(lambda what: None)

    def __init__(self, cloud, name):
        super().__init__(cloud, name)
        self.opts = {"cachedir": str(self.folder / name), "id": name}
        self.kept, self.state, self.running = view.SavedMasterState(), None, 0
        self.engine, self.wishes = None, None
        self.levels = dict.fromkeys(cloud.hosts, 1)

    # what the simulator's commands do

    def start(self):
        if self.state is not None:
            return
        if self.kept == view.SavedMasterState():  # at first, or its disk was lost
            (files.folder(self.opts) / "state.json").unlink(missing_ok=True)
        self.running += 1
        self.inbox, self.arrived = [], {}
        members = {name: config.Member(name) for name in self.world.hosts}
        found = config.HaConfig(
            self.name, self.world.scenario.masters, members, policy=self.world.policy
        )
        self._wish()
        touched = Touched(
            self, self, self, lambda tag, data: json.dumps((tag, data)), self.now, program="1"
        )
        self.engine = Engine(self.opts, found, PlacementPolicy(), touched)
        self.state = self.engine.state
        self.world.say(self.name, "starts")
        self.tick(self.running)

    def stop(self):
        if self.state is not None:
            self.state = self.engine = None
            self.world.say(self.name, "is killed")

    def tick(self, running):
        if self.state is None or running != self.running:
            return
        self.world.at(self.world.policy.beat_s / self.rate, self.tick, running)
        self.receive()
        self._wish()
        for (kind, sender), (_, beat) in self.arrived.items():
            if kind == "beat":
                self.engine.inbox.clock = lambda at=self.arrived[kind, sender][0]: self.now(at)
                self.engine.inbox.receive(sender, kind, json.loads(json.dumps(beat.to_answer())))
        try:
            with mock.patch("saltvirt.system.atomic_file.os.replace", self._replace):
                self.engine.beat()
        except Killed:
            self.kept = self._on_disk()
            self.stop()
            self.world.at(3, self.start)
            return
        self.state, self.kept = self.engine.state, self.engine.state.saved

    def _on_disk(self):
        return (
            files.read(files.folder(self.opts) / "state.json", view.SavedMasterState) or self.kept
        )

    def _replace(self, source, target, **options):
        self.dies(WRITES)
        os.rename(source, target, **options)
        self.dies(WRITES)

    def _wish(self):
        cloud = self.world
        wishes = DesiredState(
            armed=cloud.armed,
            guests={name: replace(one, size=view.GuestConfig("").size)
                    for name, one in cloud.wanted.items()},
            sizes={name: one.size for name, one in cloud.wanted.items()},
            rules={str(place): rule for place, rule in enumerate(cloud.scenario.rules)},
            relocations=dict(cloud.wishes), confirmed=dict(cloud.confirmed),
        )  # fmt: skip
        if wishes != self.wishes:
            store, alone = DesiredStateStore(self.opts), len(cloud.masters) == 1
            (store.change if alone else store.offer)(
                "the test",
                lambda old: replace(
                    wishes, base_term=old.base_term, base_version=old.base_version,
                    offers=old.offers,
                ),
            )  # fmt: skip
            self.wishes = wishes

    # what the engine touches

    def send(self, host, kind, body):
        self.dies(TELLS)
        if kind == "call":
            call = LeaderMessage.from_answer(json.loads(json.dumps(body)), self.name)
            self.world.send(self, self.world.hosts[host], kind, call)

    @property
    def results(self):
        return self.world.fences

    def begin(self, fence):
        self.dies(FENCES)
        self.world.hosts[fence.host].fence(fence, self.name)
        self.dies(FENCES)
        return True

    def take_finished(self):
        return []

    @property
    def hosts(self):
        closed = self.world.maintenance
        return {
            name: replace(one, maintenance="disks" if name in closed else None)
            for name, one in self.world.rooms.items()
        }

    @property
    def answered_s(self):
        return {
            name: self.now()
            for name, host in self.world.hosts.items()
            if host.is_on and not host.hung
            and self.world.connected(self, host) and self.world.connected(host, self)
        }  # fmt: skip


class Deaths:
    """Kills at every so many things that are done, of one kind; so many times at most."""

    def __init__(self, what, every, most=8):
        self.what, self.every, self.count, self.most = what, every, itertools.count(1), most
        self.killed = 0

    def __call__(self, what):
        lives = what != self.what or self.killed >= self.most
        if not lives and next(self.count) % self.every == 0:
            self.killed += 1
            raise Killed
