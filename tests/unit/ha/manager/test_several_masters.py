"""Several masters agree on the desired state: real engines with their own files, and pure agents. A
master learns from the hosts what other masters have requested."""

import json
from dataclasses import replace

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.ha.manager import files, status_file
from saltvirt.ha.manager.admin_request import AdminRequest
from saltvirt.ha.manager.config import HaConfig, Member
from saltvirt.ha.manager.desired_state import DesiredState, DesiredStateStore
from saltvirt.ha.model import agent, agent_view, committed_config
from saltvirt.ha.model.messages import Heartbeat, LeaderMessage, ReceivedMessage
from saltvirt.ha.model.registry import CommittedConfig
from saltvirt.ha.model.view import GuestConfig
from saltvirt.placement.policy import PlacementPolicy
from tests.unit.ha.manager import test_engine

NAMES, HOSTS = ("a", "b"), ("hv1", "hv2", "hv3")


class Cloud:
    """Two masters and three hosts."""

    def __init__(self, folder):
        self.folder, self.now_s = folder, 100.0
        self.engines, self.touched, self.calls = {}, {}, {host: {} for host in HOSTS}
        self.states = {
            host: agent_view.initial_state(host, 1, agent_view.SavedAgentState(), 5)
            for host in HOSTS
        }
        for name in NAMES:
            self.start(name)

    def opts(self, name):
        return {"cachedir": str(self.folder / name), "id": name}

    def start(self, name):
        """It begins, or is killed and begins anew."""
        touched = self.touched[name] = test_engine.Still()
        members = {host: Member(host) for host in HOSTS}
        world = test_engine.EngineContext(
            touched, touched, touched, lambda *one: touched.fired.append(one), lambda: self.now_s
        )
        found = HaConfig(name, NAMES, members)
        self.engines[name] = test_engine.Engine(self.opts(name), found, PlacementPolicy(), world)

    def go(self, beats, *but):
        """So many beats, in which these masters hear and say nothing."""
        for _ in range(beats):
            for name in set(NAMES) - set(but):
                self.touched[name].told.clear()
                self.engines[name].safe_beat()
                assert self.engines[name].problem == ""
                for host, kind, body in self.touched[name].told:
                    if kind == "call":
                        call = LeaderMessage.from_answer(json.loads(json.dumps(body)), name)
                        self.calls[host][name] = ReceivedMessage(call, self.now_s)
            self.now_s += 1
            for host, state in self.states.items():
                told = agent_view.AgentView(messages=dict(self.calls[host]))
                taken = agent.step(state, told, self.now_s, self.engines["a"].config.policy)
                self.states[host] = taken.state
                for name in set(NAMES) - set(but):
                    body = json.loads(json.dumps(taken.beat.to_master().to_answer()))
                    self.engines[name].inbox.receive(host, "beat", body)

    def offer(self, name, guest):
        """A person gives a guest to high availability there."""
        wanted = GuestConfig(guest, "hv1")
        store = DesiredStateStore(self.opts(name))
        store.offer("x", lambda old: replace(old, guests={**old.guests, guest: wanted}))

    def file(self, name):
        return set(DesiredStateStore(self.opts(name)).read().guests)

    def leader(self):
        [name] = [n for n, one in self.engines.items() if one.state.leading_s is not None]
        return name


@pytest.fixture
def cloud(tmp_path):
    return Cloud(tmp_path)


def test_a_master_that_nobody_told_anything_learns_what_the_other_was_told(cloud):
    cloud.go(8)
    assert not any(one.state.leading_s is not None for one in cloud.engines.values())
    cloud.offer("a", "web1")
    cloud.go(12)
    assert cloud.leader() == "a"
    assert cloud.file("a") == cloud.file("b") == {"web1"}
    assert not DesiredStateStore(cloud.opts("a")).read().offers
    assert set(cloud.engines["a"].registry.guests) == {"web1"}
    asked = [call.message.ask_config for calls in cloud.calls.values() for call in calls.values()]
    assert set(asked) == {""}, "who has learned it asks no more"


def test_a_stale_master_that_comes_back_acts_by_what_was_agreed_on_meanwhile(cloud):
    cloud.offer("a", "web1")
    cloud.go(12)
    cloud.offer("a", "web2")
    cloud.go(8, "b")
    assert set(cloud.engines["a"].registry.guests) == {"web1", "web2"}
    assert cloud.file("b") == {"web1"}
    cloud.start("b")
    looked = []
    real = cloud.engines["b"].view
    cloud.engines["b"].view = lambda now_s: looked.append(real(now_s)) or looked[-1]
    cloud.go(20, "a")
    engine = cloud.engines["b"]
    assert cloud.file("b") == {"web1", "web2"} == set(engine.registry.guests)
    assert engine.state.leading_s is not None
    assert DesiredStateStore(cloud.opts("b")).read().offers == ()


def test_a_stale_master_whose_file_learns_nothing_offers_nothing_older(cloud, monkeypatch):
    cloud.offer("a", "web1")
    cloud.go(12)
    cloud.offer("b", "old")
    cloud.offer("a", "web2")
    cloud.go(8, "b")

    def full(*_args):
        raise errors.OperationFailed("its disk is full")

    monkeypatch.setattr(committed_config, "host_to_ask", lambda *_: "")
    monkeypatch.setattr(DesiredStateStore, "learn", full)
    cloud.go(20, "a")
    engine = cloud.engines["b"]
    assert engine.state.leading_s is not None and "its disk is full" in engine.state_warning
    assert set(engine.registry.guests) == {"web1", "web2"}
    assert cloud.file("b") == {"web1", "old"}


def test_of_two_persons_at_two_masters_one_is_followed_and_the_other_is_told(cloud):
    cloud.offer("a", "web1")
    cloud.go(12)
    cloud.offer("b", "web3")
    cloud.offer("a", "web2")
    cloud.go(8, "b")
    cloud.go(8)
    assert cloud.file("a") == cloud.file("b") == {"web1", "web2"}
    [lost] = (cloud.folder / "b/virt/ha").glob("desired_state-given-up-*.json")
    assert set(files.read(lost, DesiredState).guests) == {"web1", "web3"}
    journal = (cloud.folder / "b/virt/ha/journal.jsonl").read_text()
    assert "given up" in journal and lost.name in journal
    assert set(cloud.engines["a"].registry.guests) == {"web1", "web2"}


def test_what_was_wanted_of_a_master_that_dies_before_it_is_agreed_on_is_not_acted_by(cloud):
    cloud.offer("a", "web1")
    cloud.go(12)
    cloud.offer("a", "web2")
    cloud.go(14, "a")
    assert cloud.engines["b"].state.leading_s is not None
    assert set(cloud.engines["b"].registry.guests) == {"web1"}
    cloud.offer("b", "web3")
    cloud.go(4, "a")
    cloud.start("a")
    cloud.go(8)
    assert cloud.file("a") == cloud.file("b") == {"web1", "web3"}
    assert len([*(cloud.folder / "a/virt/ha").glob("desired_state-given-up-*.json")]) == 1


def test_a_lost_file_is_learned_again_and_never_taken_for_no_wishes(cloud):
    cloud.offer("a", "web1")
    cloud.go(12)
    (cloud.folder / "a/virt/ha/desired_state.json").unlink()
    cloud.go(4)
    assert cloud.file("a") == {"web1"}
    assert set(cloud.engines["a"].registry.guests) == {"web1"}


def test_who_holds_the_file_holds_up_no_engine(cloud):
    cloud.offer("a", "web1")
    store = DesiredStateStore(cloud.opts("a"))
    with files.locked(store.path.with_suffix(".lock"), "a verb that hangs"):
        cloud.go(12)
        assert set(cloud.engines["a"].registry.guests) == {"web1"}
        assert "is running" in cloud.engines["a"].state_warning
    cloud.go(2)
    assert store.read().offers == () and cloud.engines["a"].state_warning == ""


def test_wishes_that_cannot_be_read_stop_the_engine_and_are_not_taken_for_none(cloud):
    cloud.offer("a", "web1")
    cloud.go(12)
    engine = cloud.engines["a"]
    kept = engine.state.saved
    bad = replace(kept.registry, config=replace(kept.registry.config, text="{"))
    engine.state = replace(engine.state, saved=replace(kept, registry=bad))
    engine.safe_beat()
    assert "cannot be read" in engine.problem


A, B = CommittedConfig(1, 3, "a"), CommittedConfig(1, 5, "b")


@pytest.mark.parametrize(
    "own, offers, news, found",
    [
        (A, (), B, (B, (), False)),  # it is behind
        (B, (), A, (B, (), False)),  # they are
        (A, (), CommittedConfig(2, 1, "b"), (CommittedConfig(2, 1, "b"), (), False)),
        (replace(A, text="b"), ("b",), B, (B, (), False)),  # that was its own
        (replace(A, text="c"), ("b", "c"), B, (replace(B, text="c"), ("c",), False)),
        (replace(A, text="c"), ("c",), B, (B, (), True)),
        (replace(A, text="c"), ("c",), A, (replace(A, text="c"), ("c",), False)),
        (A, ("c", "a"), A, (A, (), False)),  # a person took it back
        (A, (), CommittedConfig(), (A, (), False)),
    ],
)
def test_what_a_file_says_after_something_was_agreed_on(own, offers, news, found):
    offered = tuple(committed_config.digest(one) for one in offers)
    left = tuple(committed_config.digest(one) for one in found[1])
    assert committed_config.merge(own, offered, news) == (found[0], left, found[2])


def test_a_host_tells_what_was_agreed_on_to_a_master_that_asks(cloud):
    cloud.offer("a", "web1")
    cloud.go(12)
    beat = cloud.engines["b"].inbox.beats()["hv1"].beat
    assert beat.config.stamp > (0, 0) and beat.config.text == ""
    assert beat.to_peers().config == Heartbeat("hv1", 1, 1).config


@pytest.mark.parametrize("leader, why", [("b", "b leads"), ("a", None), ("", None)])
def test_a_person_is_sent_to_the_master_that_leads(cloud, leader, why, monkeypatch):
    members = dict.fromkeys(HOSTS, "10.0.0.1")
    given = {"name": "a", "masters": list(NAMES), "members": members}
    opts = {**cloud.opts("a"), "virt": {"ha": given}}
    files.write(status_file.state_path(opts), cloud.engines["a"].state.saved)

    class Fleet:
        def __init__(self):
            self.opts = opts

        def fire_event(self, tag, data):
            pass

    person = AdminRequest(Fleet(), "ha_enable")
    found = status_file.EngineReport(0, "a", leading=leader == "a", leader=leader)
    monkeypatch.setattr(
        status_file,
        "load",
        lambda _: status_file.EngineStatus("", found, cloud.engines["a"].registry),
    )
    monkeypatch.setattr("saltvirt.ha.manager.admin_request.WAIT_S", 0.1)
    wanted = {"web1": GuestConfig("web1", "hv1")}
    if why:
        with pytest.raises(errors.OperationFailed, match=why):
            person.submit("web1", "x", lambda old: replace(old, guests=wanted))
        assert cloud.file("a") == set()
    else:
        person.submit("web1", "x", lambda old: replace(old, guests=wanted))
        assert cloud.file("a") == {"web1"}
        assert "have not agreed" in person.notice
