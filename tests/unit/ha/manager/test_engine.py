"""The real engine with its files in the simulator's clouds: the results equal those of the pure
decisions, also if it is killed at an external action."""

import os
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Protocol
from unittest import mock

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.fleet.answer import Answer, down
from saltvirt.ha.agent import definitions
from saltvirt.ha.manager import desired_state, files, inventory_poller, serve, status_file
from saltvirt.ha.manager.config import HaConfig, Member
from saltvirt.ha.manager.definitions import DefinitionStore
from saltvirt.ha.manager.desired_state import DesiredState
from saltvirt.ha.manager.engine import Engine, EngineContext, Fences
from saltvirt.ha.manager.journal import HaJournal
from saltvirt.ha.manager.leases import LeaseDetector
from saltvirt.ha.model import agent, agent_view
from saltvirt.ha.model.host_capacity import HostCapacity
from saltvirt.ha.model.messages import Heartbeat, LeaderMessage, ReceivedMessage, digest
from saltvirt.ha.model.policy import HaPolicy
from saltvirt.ha.model.registry import CommittedConfig, GuestLocation, HaGuestRecord, HostRecord
from saltvirt.ha.model.view import GuestConfig, HostBinding, RelocationRequest
from saltvirt.placement.facts import Guest, Host, StorageSpace
from saltvirt.placement.policy import PlacementPolicy
from tests.bench import ha_cost
from tests.clock import until
from tests.ha import simulate, world
from tests.lab.paths import REPOSITORY
from tests.unit.ha.manager import clouds

FOLDER = REPOSITORY / "tests/ha/scenarios"
# a host that is reported again and again until a person confirms that it is off never settles
MOST_S = 300


@pytest.fixture
def run(tmp_path, monkeypatch):
    """run(name of a scenario, what kills, what changes its text) → its outcome."""
    monkeypatch.setattr(os, "fsync", lambda _handle: None)  # no power is cut here

    def run(name, dies=None, change=str):
        made = {"folder": tmp_path, "dies": staticmethod(dies or (lambda what: None))}
        monkeypatch.setattr(world, "Master", type("Master", (clouds.EngineMaster,), made))
        text = change((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
        return simulate.outcome(text, MOST_S)

    return run


SOME = (
    "bmc-times-out", "disarm-while-fencing", "guest-crashes", "maintenance-on", "master-forgets",
    "master-two-split-heals", "power-cut-person", "power-cut-with-bmc", "network-of-a-host",
)  # fmt: skip


def test_it_looks_at_the_loss_of_so_many_as_the_reserve_is_for(run, tmp_path):
    run("reserve-is-used", change=lambda text: text.replace("reserve: 1", "reserve: 2"))
    [path] = tmp_path.glob("*/virt/ha/simulation.json")
    found = files.read(path, status_file.SimulationReport)
    assert any(" and " in name for name in found.losses), found.losses


def test_what_it_says_of_losses_is_soon_of_the_hosts_as_they_are(run, tmp_path):
    """Found in a lab: of three hosts two were said to be in maintenance for minutes after it."""
    steps = "[maintenance hyper2 on, maintenance hyper3 on, delay 70, maintenance hyper2 off, " \
            "maintenance hyper3 off, delay 40]"  # fmt: skip

    def change(text):
        text = text.replace("[maintenance hyper1 on]", steps)
        return text.replace("db1: {host: hyper2}", "db1: {host: hyper1}")

    run("maintenance-on", change=change)
    [path] = tmp_path.glob("*/virt/ha/simulation.json")
    found = files.read(path, status_file.SimulationReport).losses
    assert found["hyper1"].placements and not any(one.unplaced for one in found.values()), found


@pytest.mark.parametrize("name", SOME)
def test_it_ends_as_its_decisions_do(run, name):
    found = run(name)
    assert found["violations"] == []
    assert found["unexpected"] == []


DEATHS = (
    (clouds.WRITES, 3, "power-cut-with-bmc"), (clouds.WRITES, 2, "network-of-a-host"),
    (clouds.TELLS, 41, "power-cut-with-bmc"), (clouds.FENCES, 1, "power-cut-with-bmc"),
)  # fmt: skip


@pytest.mark.parametrize("what, every, name", DEATHS)
def test_killed_wherever_it_touches_the_world_no_guest_runs_twice(run, what, every, name):
    dies = clouds.Deaths(what, every)
    found = run(name, dies)
    assert dies.killed > 1
    assert found["violations"] == []
    assert all(guest["running"] for guest in found["end"]["guests"].values())


# -- one engine by itself --------------------------------------------------------------------------


class Still:
    """A world in which nothing happens but what a test does."""

    def __init__(self):
        self.now_s, self.told, self.fired, self.ends = 100.0, [], [], []
        self.levels, self.results, self.hosts, self.answered_s = {}, {}, {}, {}

    def send(self, host, kind, body):
        self.told.append((host, kind, body))

    def begin(self, _fence):
        return True

    def take_finished(self):
        found, self.ends = self.ends, []
        return found

    def engine(self, opts, **more):
        members = {name: Member(name) for name in ("hv1", "hv2", "hv3")}
        found = HaConfig("salt", more.pop("masters", ("salt",)), members, **more)
        touched = EngineContext(
            self, self, self, lambda *one: self.fired.append(one), lambda: self.now_s
        )
        return Engine(opts, found, PlacementPolicy(), touched)


@pytest.fixture
def still():
    return Still()


@pytest.fixture
def opts(tmp_path):
    return {"cachedir": str(tmp_path), "id": "salt"}


def leads(engine, still, beats=6):
    """Three agents answer until this master leads."""
    states = {
        name: agent_view.initial_state(name, 1, agent_view.SavedAgentState(), 5)
        for name in engine.config.members
    }
    for _ in range(beats):
        engine.safe_beat()
        calls = {host: body for host, kind, body in still.told if kind == "call"}
        still.told.clear()
        still.now_s += 1
        for name, state in states.items():
            call = ReceivedMessage(LeaderMessage.from_answer(calls[name], "salt"), still.now_s)
            seen_ = agent_view.AgentView(messages={"salt": call})
            taken = agent.step(state, seen_, still.now_s, engine.config.policy)
            states[name] = taken.state
            engine.inbox.receive(name, "beat", taken.beat.to_answer())
    return states


def test_nothing_goes_out_before_what_must_not_be_forgotten_is_written(still, opts, monkeypatch):
    engine = still.engine(opts)
    order = []
    write = files.write
    monkeypatch.setattr(files, "write", lambda *a: (order.append("write"), write(*a)))
    still.send = lambda host, kind, body: order.append("tell")
    engine.inbox.receive("hv1", "beat", Heartbeat("hv1", 1, 1).to_answer())
    engine.inbox.receive("hv2", "beat", Heartbeat("hv2", 1, 1).to_answer())
    engine.beat()
    assert order == ["write", "tell", "tell", "tell"]


def test_what_cannot_be_written_is_not_told_either(still, opts, monkeypatch):
    engine = still.engine(opts)
    engine.inbox.receive("hv1", "beat", Heartbeat("hv1", 1, 1).to_answer())
    engine.inbox.receive("hv2", "beat", Heartbeat("hv2", 1, 1).to_answer())
    before = engine.state

    def full(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "write", full)
    engine.safe_beat()
    calls = [LeaderMessage.from_answer(body, "salt") for _, _, body in still.told]
    assert calls == [LeaderMessage("salt", 0, 0, asks=False)] * 3 and engine.state is before
    still.told.clear()
    assert "No space left" in engine.problem
    assert (
        "No space left"
        in files.read(status_file.report_path(opts), status_file.EngineReport).problem
    )
    monkeypatch.undo()
    engine.safe_beat()
    assert engine.problem == "" and len(still.told) == 3


def test_a_master_whose_disk_takes_nothing_hears_the_hosts_still(still, opts, monkeypatch):
    """A host that no other one heard cut its power, because the master's disk was full."""
    engine = still.engine(opts)
    states = leads(engine, still, 8)
    still.told.clear()
    for name, boot in (("hv1", 2), ("hv2", 1), ("hv3", 1)):
        beat = Heartbeat(name, boot, states[name].seq + 1, armed=False)
        engine.inbox.receive(name, "beat", replace(
            beat, terms=engine.inbox.beats()[name].beat.terms,
            watchdog_s=engine.inbox.beats()[name].beat.watchdog_s,
        ).to_answer())  # fmt: skip
    full = mock.Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr(files, "write", full)
    engine.safe_beat()
    for call in [
        LeaderMessage.from_answer(body, "salt") for _, kind, body in still.told if kind == "call"
    ]:
        assert set(call.acks) == {"hv2", "hv3"} and call.acks["hv2"].seq == states["hv2"].seq + 1
        assert not (call.asks or call.leading or call.ballots or call.registry)
    assert "No space left" in engine.problem and len(still.told) == 3
    monkeypatch.undo()
    engine.safe_beat()
    assert set(engine.state.acks) == {"hv1", "hv2", "hv3"} and engine.problem == ""


def _problem_shown(opts):
    found = files.read(status_file.report_path(opts), status_file.EngineReport)
    return found and found.problem


@pytest.mark.parametrize("where", ["take_finished", "hosts"])
def test_a_fault_of_its_own_ends_one_beat_and_not_the_engine(still, opts, monkeypatch, where):
    """What is seen is asked for again to be shown: that may fail the same way."""

    def broken(_still):
        raise ValueError("broken")

    engine, stop = still.engine(opts, policy=HaPolicy(beat_s=0.01)), threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(Still, where, property(broken), raising=False)
        thread = threading.Thread(target=engine.run, args=(stop,), daemon=True)
        thread.start()
        until(lambda: engine.problem, "its problem")
        assert engine.problem == "the engine does not act: internal error: ValueError('broken')"
    until(lambda: engine.problem == "", "the next beat")
    until(lambda: _problem_shown(opts) == "", "that it is shown")
    stop.set()
    thread.join(60)
    assert not thread.is_alive()


def test_what_can_be_told_to_nobody_is_done_all_the_same(still, opts, monkeypatch, caplog):
    """The journal and what is shown cannot be written; Salt's bus is gone."""
    for path in (HaJournal(opts).path, status_file.report_path(opts)):
        path.mkdir(parents=True)

    def gone(*_told):
        raise RuntimeError("no bus")

    monkeypatch.setattr(still, "fired", SimpleNamespace(append=gone))
    engine = still.engine(opts)
    leads(engine, still, 12)
    assert {one.state for one in engine.registry.hosts.values()} == {"up"}
    assert engine.problem == ""
    for words in ("the journal of high availability: ", "cannot send the event about hv1: no bus",
                  "cannot write the engine's report: "):  # fmt: skip
        assert words in caplog.text


def test_a_host_is_heard_until_it_is_silent_for_too_long(still, opts):
    engine = still.engine(opts)
    assert not engine.hears("hv1")
    engine.inbox.receive("hv1", "beat", Heartbeat("hv1", 1, 1).to_answer())
    assert engine.hears("hv1") and not engine.hears("hv2")
    still.now_s += engine.config.policy.suspect_s
    assert not engine.hears("hv1")


def test_a_beat_that_only_counts_is_not_written(still, opts, monkeypatch):
    engine = still.engine(opts)
    leads(engine, still)
    written = []
    monkeypatch.setattr(files, "write", lambda *a: written.append(a))
    leads_on = Heartbeat.from_answer(engine.inbox.beats()["hv1"].beat.to_answer(), "hv1")
    engine.inbox.receive("hv1", "beat", replace(leads_on, seq=leads_on.seq + 1).to_answer())
    engine.beat()
    assert written == []
    engine.inbox.receive(
        "hv1", "beat", replace(leads_on, seq=leads_on.seq + 2, armed=True).to_answer()
    )
    engine.beat()
    assert len(written) == 1


def test_what_it_sees_is_shown(still, opts):
    engine = still.engine(opts)
    leads(engine, still, 12)
    found = files.read(status_file.report_path(opts), status_file.EngineReport)
    assert (found.leading, found.leader, found.settled) == (True, "salt", True)
    assert (found.heard, found.needed) == (3, 2)
    assert found.hosts["hv1"].boot == 1 and found.hosts["hv1"].heard_s < 2
    assert {one.new for one in found.changes} == {"returning", "up"}
    tags = {tag for tag, _ in still.fired}
    assert "salt/virt/ha/host/hv1" in tags
    assert HaJournal(opts).last(1)[0]["new"] == "up"


def test_what_is_large_is_written_only_when_it_changes(still, opts):
    still.hosts = {name: Host(name, 8, 1 << 23) for name in ("hv1", "hv2", "hv3")}
    engine = still.engine(opts)
    leads(engine, still, 30)
    large, small = status_file.simulation_path(opts), status_file.report_path(opts)
    view = engine.view(still.now_s)
    assert files.read(large, status_file.SimulationReport).losses.keys() == still.hosts.keys()
    for path in (large, small):
        path.write_text("")
    engine._write_report(view, still.now_s)
    assert files.read(small, status_file.EngineReport).leading and large.read_text() == ""
    engine._losses = {**engine._losses, "hv1": status_file.LossReport({"web1": "hv2"})}
    engine._write_report(view, still.now_s)
    assert files.read(large, status_file.SimulationReport).losses["hv1"].placements == {
        "web1": "hv2"
    }


def grown(gib):
    """Three hosts; the guest of the second has so much memory."""
    size = {"hv1": 6, "hv2": gib, "hv3": 7}
    return {
        name: Host(name, 8, 8 << 20, types=("kvm",), guests=(
            Guest(f"on-{name}", state="running", vcpus=1, memory_kib=gib << 20),
        ))
        for name, gib in size.items()
    }  # fmt: skip


@pytest.fixture
def keeps(still, opts):
    """An engine that keeps on-hv1, for which hv2 has room."""
    engine = still.engine(opts, policy=HaPolicy(reserve=1))
    still.hosts = grown(1)
    leads(engine, still, 12)
    wanted = {"on-hv1": GuestConfig("on-hv1", "hv1")}
    engine.store.change("x", lambda old: replace(old, guests=wanted))
    engine.beat()
    placed = HaGuestRecord("placed", host="hv1", run=True, locations=(GuestLocation("hv1", 1),))
    registry = replace(engine.registry, guests={"on-hv1": placed})
    engine.state = replace(engine.state, saved=replace(engine.state.saved, registry=registry))
    return engine


def unplaced(engine, still, seconds, **changed):
    """Who would find no place if hv1 died, after so many seconds of thinking. changed: of what the
    engine sees."""
    view = replace(engine.view(still.now_s), **changed)
    for _ in range(seconds):  # whose clock stands still, so that all hosts are heard
        engine._simulated_s -= 1
        engine._simulate_losses(view, still.now_s)
    return set(engine._losses["hv1"].unplaced)


def test_one_that_is_no_longer_tied_is_soon_seen_to_have_a_place(keeps, still):
    """Found in a lab: its host was back before its storage, and was said for three minutes to have
    its disk alone."""
    assert unplaced(keeps, still, 180) == set()
    bindings = {"on-hv1": HostBinding("hv1", "its disk")}
    assert unplaced(keeps, still, 20, bindings=bindings) == {"on-hv1"}
    assert unplaced(keeps, still, 20) == set()


def test_what_found_no_place_is_looked_at_again_in_each_turn(keeps, still):
    assert unplaced(keeps, still, 180) == set()
    still.hosts = grown(7)
    assert unplaced(keeps, still, 240) == {"on-hv1"}
    still.hosts = grown(1)
    assert unplaced(keeps, still, 70) == set()


def test_a_guest_that_grew_and_takes_what_is_kept_for_a_loss_is_told_once(keeps, still):
    """Whoever grew it: on a hypervisor nobody knows the reserve."""

    def told():
        still.fired.clear()
        for _ in range(9):  # each host's loss in turn
            keeps._simulated_s = float("-inf")
            keeps._simulate_losses(keeps.view(still.now_s), still.now_s)
        return [(one["name"], one["old"], one["new"], one["message"]) for tag,
        one in still.fired
                if tag == "salt/virt/ha/reserve/hv1"]  # fmt: skip

    assert told() == []
    still.hosts = grown(7)
    why = "if hv1 failed, no host would have capacity for on-hv1"
    assert told() == [("hv1", "sufficient", "insufficient", why)]
    assert told() == []
    still.hosts = grown(1)
    assert told() == [("hv1", "insufficient", "sufficient", "there is capacity for all guests")]


def test_by_wishes_that_cannot_be_read_no_guest_is_forgotten(still, opts):
    engine = still.engine(opts)
    leads(engine, still)
    good = {"web1": GuestConfig("web1", "hv1")}
    engine.store.change("x", lambda old: replace(old, guests=good))
    engine.safe_beat()
    still.told.clear()
    text = engine.store.path.read_text()
    engine.store.path.write_text("{")
    engine.safe_beat()
    still.now_s += 6
    engine.safe_beat()
    assert len(still.told) == 6 and set(engine.desired.guests) == {"web1"}
    shown = files.read(status_file.report_path(opts), status_file.EngineReport)
    assert "the last desired state that it could read" in shown.problem
    engine.store.path.write_text(text)
    engine.safe_beat()
    assert engine.state_warning == ""
    engine.store.path.write_text("{")
    with pytest.raises(errors.OperationFailed):
        still.engine(opts)


def given(engine, still, opts):
    """An engine that leads, two guests of which a majority keeps what persons want."""
    leads(engine, still)
    good = {"web1": GuestConfig("web1", "hv1", priority=7), "db1": GuestConfig("db1", "hv2")}
    engine.store.change("x", lambda old: replace(old, guests=good))
    return leads(engine, still, 8)


def told_by(engine, still, states, beats=12):
    """The agents, which keep what they kept, answer a master."""
    for _ in range(beats):
        engine.safe_beat()
        calls = {host: body for host, kind, body in still.told if kind == "call"}
        still.told.clear()
        still.now_s += 1
        for name, state in states.items():
            call = ReceivedMessage(LeaderMessage.from_answer(calls[name], "salt"), still.now_s)
            taken = agent.step(state, agent_view.AgentView(messages={"salt": call}), still.now_s,
                               engine.config.policy)  # fmt: skip
            states[name] = taken.state
            engine.inbox.receive(name, "beat", taken.beat.to_answer())


def test_a_missing_file_of_wishes_never_means_that_there_are_no_guests(still, opts, caplog):
    """All guests were struck off on all hosts, and ha_status said that all was well."""
    engine = still.engine(opts)
    given(engine, still, opts)
    engine.store.path.unlink()
    assert set(engine.registry.guests) == {"web1", "db1"}
    with pytest.raises(
        errors.OperationFailed, match="is missing, although high availability manages guests"
    ):
        engine.store.change("x", lambda old: replace(old, armed=False))
    engine.safe_beat()
    assert engine.store.read().guests["web1"].priority == 7
    assert set(engine.registry.guests) == {"web1", "db1"} and engine.state_warning == ""
    assert "was written again from the last known state" in caplog.text


def test_a_master_that_was_set_up_anew_learns_the_wishes_from_the_hosts(still, opts, tmp_path):
    states = given(still.engine(opts), still, opts)
    anew = still.engine({**opts, "cachedir": str(tmp_path / "anew")})
    told_by(anew, still, states)
    assert anew.state.leading_s is not None and anew.store.read().guests["web1"].priority == 7
    assert set(anew.registry.guests) == {"web1", "db1"}


def test_without_any_copy_of_the_wishes_the_guests_that_were_decided_on_are_kept(
    still, opts, tmp_path
):
    """As hosts have them of a version that did not tell them."""
    states = given(still.engine(opts), still, opts)
    for state in states.values():
        for one in (state.saved.pending, state.saved.registry):
            object.__setattr__(one, "config", CommittedConfig())
    anew = still.engine({**opts, "cachedir": str(tmp_path / "anew")})
    told_by(anew, still, states)
    found = anew.store.read()
    assert found.rebuilt and set(found.guests) == set(anew.registry.guests) == {"web1", "db1"}
    anew.store.change("a person", lambda old: replace(old, armed=True))
    assert not anew.store.read().rebuilt


def enabled(store, name):
    """As by virt.ha_enable."""
    new = GuestConfig(name, "hv3")
    store.change("x", lambda old: replace(old, guests={**old.guests, name: new}))


@pytest.mark.parametrize("restarts", [True, False])
def test_a_guest_that_is_given_where_all_files_were_lost_strikes_off_no_other(
    still, opts, tmp_path, caplog, restarts
):
    """virt.ha_enable made a file that named one guest: all others were struck off on all hosts."""
    engine = still.engine(opts)
    states = given(engine, still, opts)
    if restarts:
        engine = still.engine({**opts, "cachedir": str(tmp_path / "anew")})
    else:
        shutil.rmtree(engine.store.path.parent)
    enabled(engine.store, "mail")
    told_by(engine, still, states)
    found = engine.store.read()
    assert set(found.guests) == set(engine.registry.guests) == {"web1", "db1", "mail"}
    assert found.guests["web1"].priority == 7 and not found.fresh and engine.state_warning == ""
    assert "the last known state was added" in caplog.text


def test_the_first_guest_of_all_is_one(still, opts):
    engine = still.engine(opts)
    enabled(engine.store, "web1")
    leads(engine, still, 8)
    assert set(engine.registry.guests) == {"web1"} and not engine.store.read().fresh


def test_what_was_lost_is_joined_with_what_was_said_since():
    wish = RelocationRequest(2, "move", "hv2")
    before = DesiredState(
        armed=False, guests={"a": GuestConfig("a", "hv1"), "b": GuestConfig("b", "hv1")}, number=5
    )
    own = DesiredState(
        guests={"b": GuestConfig("b", "hv2")}, relocations={"b": wish}, number=2, fresh=True
    )
    found = desired_state.merge_states(own, before)
    assert {name: one.host for name, one in found.guests.items()} == {"a": "hv1", "b": "hv2"}
    assert (found.armed, found.number, found.relocations["b"].number) == (False, 7, 7)
    assert desired_state.merge_states(own, DesiredState()) == replace(own, fresh=False)


def test_a_file_that_does_not_even_name_no_guests_is_damaged(still, opts):
    engine = still.engine(opts)
    given(engine, still, opts)
    engine.store.path.write_text("{}")
    engine.safe_beat()
    assert "has no entry for guests" in engine.state_warning
    assert set(engine.registry.guests) == {"web1", "db1"}


def test_who_is_kept_is_told_to_other_verbs_again(still, opts, monkeypatch):
    engine = still.engine(opts)
    given(engine, still, opts)
    folder = Path(opts["cachedir"]) / "virt" / "keepers"
    shutil.rmtree(folder)
    still.now_s += 61
    engine.safe_beat()
    assert sorted(os.listdir(folder)) == ["db1", "web1"]
    full = mock.Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr(engine.store, "guard", full)
    engine.own_desired = replace(engine.own_desired, number=9)
    engine.safe_beat()
    assert "other verbs do not know yet" in engine.state_warning
    monkeypatch.undo()
    engine.safe_beat()
    assert engine.state_warning == ""


def test_the_files_leave_the_cache_when_they_can(tmp_path):
    opts = {"cachedir": str(tmp_path / "cache/salt/master"), "id": "salt"}
    old = tmp_path / "cache/salt/master/virt/ha"
    old.mkdir(parents=True)
    (old / "desired_state.json").write_text('{"guests": {}}')
    assert files.folder(opts) == old
    assert files.move_folder(opts) == ""
    new = tmp_path / "lib/salt/master/virt/ha"
    assert files.folder(opts) == new and (new / "desired_state.json").exists()
    assert files.move_folder(opts) == ""


def test_where_they_cannot_leave_the_cache_that_is_said(tmp_path):
    opts = {"cachedir": str(tmp_path / "cache/salt/master"), "id": "salt"}
    (tmp_path / "lib").write_text("no folder")
    assert "a cache that may be deleted" in files.move_folder(opts)
    assert files.folder(opts) == tmp_path / "cache/salt/master/virt/ha"


def test_one_of_several_masters_that_knows_no_wishes_asks_for_no_lead(still, opts):
    engine = still.engine(opts, masters=("salt", "salt2"))
    leads(engine, still)
    assert engine.state.leading_s is None
    engine.safe_beat()
    assert not any(body["asks"] for _, kind, body in still.told if kind == "call")


@pytest.mark.parametrize("body", (
    {}, {"host": "hv2", "boot": 1, "seq": 1}, {"host": "hv1", "boot": -1, "seq": 1},
    {"host": "hv1", "boot": 1, "seq": 1, "guests": {"web1": 7}},
    {"host": "hv1", "boot": 1, "seq": 1, "registry": {"guests": []}},
))  # fmt: skip
def test_a_beat_that_is_none_is_refused(still, opts, body):
    engine = still.engine(opts)
    with pytest.raises(errors.BadAnswer):
        engine.inbox.receive("hv1", "beat", body)
    with pytest.raises(errors.BadAnswer):
        engine.inbox.receive("nobody", "beat", Heartbeat("nobody", 1, 1).to_answer())
    assert engine.inbox.beats() == {}


def test_an_older_beat_takes_no_newer_ones_place(still, opts):
    engine = still.engine(opts)
    for seq in (5, 4):
        engine.inbox.receive("hv1", "beat", Heartbeat("hv1", 1, seq).to_answer())
    assert engine.inbox.beats()["hv1"].beat.seq == 5
    engine.inbox.receive("hv1", "beat", Heartbeat("hv1", 2, 1).to_answer())
    assert engine.inbox.beats()["hv1"].beat.boot == 2


# -- definitions -----------------------------------------------------------------------------------


def definition(name="web1", uuid="1", more=""):
    xml = f"<domain><name>{name}</name><uuid>{uuid}</uuid>{more}</domain>"
    return {"name": name, "digest": "x", "xml": xml, "size": {"vcpus": 1}}


@pytest.fixture
def cloud(still, opts):
    engine = still.engine(opts)
    wanted = {"web1": GuestConfig("web1", "hv1")}
    engine.store.change("x", lambda old: replace(old, guests=wanted))
    engine.beat()
    return engine


LOCAL = "<devices><disk type='file'><source file='/srv/x'/><target dev='vdb'/></disk></devices>"


def test_a_guest_that_was_tied_to_its_host_since_is_shown_and_goes_nowhere_else(cloud, still, opts):
    still.hosts = {name: Host(name, 8, 1 << 23) for name in cloud.config.members}
    record = HaGuestRecord(
        "placed", host="hv1", boot=1, run=True, locations=(GuestLocation("hv1", 1),)
    )
    known = replace(cloud.state.saved.registry, guests={"web1": record}, version=1)
    cloud.state = replace(cloud.state, saved=replace(cloud.state.saved, registry=known))
    cloud.inbox.receive("hv1", "definition", definition())
    cloud.beat()
    assert cloud.view(still.now_s).bindings == {}
    cloud.inbox.receive("hv1", "definition", definition(more=LOCAL))
    cloud._process_messages()
    found = cloud.view(still.now_s)
    why = "disk vdb is /srv/x on hv1 only, not on shared storage"
    assert found.bindings == {"web1": HostBinding("hv1", why)}
    room = HostCapacity(
        found, replace(known, hosts=dict.fromkeys(known.members, HostRecord("up"))), 0
    )
    assert room.ranked("web1")[0] == [] and why in room.ranked("web1")[1]
    lost = replace(cloud.state.saved.registry, version=2, guests={"web1": HaGuestRecord("blocked")})
    cloud.state = replace(cloud.state, saved=replace(cloud.state.saved, registry=lost))
    assert (
        cloud.view(still.now_s).bindings == found.bindings
    )  # its host is gone: it is tied all the same
    shared = StorageSpace(9, 9, 0, shared="nfs filer:/srv")
    still.hosts = {"hv1": Host("hv1", 8, 1 << 23, stores={"/": shared}, mounts={"/": "/"})}
    cloud.state = replace(cloud.state, saved=replace(cloud.state.saved, registry=known))
    assert cloud.view(still.now_s).bindings == {}


def test_of_a_guest_that_runs_nowhere_its_last_host_alone_tells_the_definition(cloud, still):
    """The host where it was given has died since, and is back with an older one."""
    new, old = definition(more="<vcpu>2</vcpu>"), definition(more="<vcpu>1</vcpu>")
    record = HaGuestRecord("stopped", last="hv2")
    known = replace(cloud.state.saved.registry, guests={"web1": record}, version=1)
    cloud.state = replace(cloud.state, saved=replace(cloud.state.saved, registry=known))
    cloud.inbox.receive("hv2", "definition", new)
    cloud.inbox.receive("hv1", "definition", old)
    cloud._process_messages()
    assert cloud.definitions.by_name["web1"].xml == new["xml"]
    assert cloud.definitions.by_name["web1"].host == "hv2"


def test_a_guest_on_storage_that_leases_is_known_to_be_leased(cloud, still):
    cloud._lease_detector = LeaseDetector(["/srv"])
    assert not cloud.view(still.now_s).guests["web1"].leased
    cloud.inbox.receive("hv1", "definition", definition(more=LOCAL))
    cloud._process_messages()
    assert cloud.view(still.now_s).guests["web1"].leased


def test_a_definition_is_kept_and_told_to_all_who_are_heard(cloud, still, opts):
    cloud.inbox.receive("hv1", "definition", definition())
    for host in ("hv1", "hv2"):
        cloud.inbox.receive(host, "beat", Heartbeat(host, 1, 1).to_answer())
    still.told.clear()
    cloud.beat()
    told = [(host, body["name"]) for host, kind, body in still.told if kind == "definition"]
    assert told == [("hv1", "web1"), ("hv2", "web1")]
    assert still.engine(opts).definitions.by_name == cloud.definitions.by_name
    still.told.clear()
    cloud.inbox.receive("hv1", "definition", definition(more="<vcpu>2</vcpu>"))
    cloud.inbox.receive("hv2", "beat", Heartbeat("hv2", 2, 1).to_answer())
    cloud.beat()
    assert [kind for _, kind, _ in still.told].count("definition") == 2


def names_of(found, definitions="", host="hv2", guests=("web1", "web2")):
    beat = Heartbeat(host, 1, 1, definitions=definitions)
    return [one.name for one in found.unsent(beat, guests)]


def test_what_was_told_is_told_again_one_at_a_time_until_the_host_says_that_it_has_it(opts):
    """An agent that ended before it had written it down would never have it."""
    found = DefinitionStore(opts)
    assert names_of(found) == []
    for name in ("web1", "web2"):
        found.put("hv1", definition(name, name))
    told = [names_of(found) for _ in range(5)]
    assert told == [["web1", "web2"], ["web1"], ["web2"], ["web1"], ["web2"]]
    has = digest({name: one.digest for name, one in found.by_name.items()})
    assert names_of(found, has) == []
    found.put("hv1", definition("web2", "web2", "<vcpu>3</vcpu>"))
    assert names_of(found, has) == ["web2"]
    assert [len(names_of(found, has)) for _ in range(2)] == [1, 1]
    found.retain_only(["web2"])
    assert names_of(found) == ["web2"]


def test_a_host_and_a_master_agree_on_what_it_keeps(opts, tmp_path):
    master = DefinitionStore(opts)
    host = definitions.DefinitionCache(str(tmp_path / "kept"), ())
    for name in ("web1", "web2", "old"):
        told = definition(name, name, "<memory>1024</memory>")
        master.put("hv1", told)
        host.put(definitions.parse(name, told["xml"]))
    guests = {"web1": 1, "web2": 2}
    assert names_of(master, host.digest(guests), guests=guests) == []
    assert names_of(master, host.digest({"web1": 1}), guests=guests) != []


@pytest.mark.parametrize("host, body", (
    ("hv2", definition()), ("hv1", definition("web2")), ("hv1", {"name": "web1"}),
    ("hv1", {**definition(), "xml": "<domain><name>db1</name></domain>"}),
    ("hv1", {**definition(), "xml": "<domain"}), ("hv1", {**definition(), "name": "../web1"}),
    ("hv1", {**definition(), "xml": "<!DOCTYPE x><domain><name>web1</name></domain>"}),
    ("hv1", {**definition(), "xml": "x" * (1 << 21)}), ("hv1", {**definition(), "xml": 7}),
), ids=lambda one: str(one)[:50])  # fmt: skip
def test_what_a_host_may_not_say_is_passed_over(cloud, host, body):
    cloud.inbox.receive(host, "definition", body)
    cloud.safe_beat()
    assert cloud.problem == "" and cloud.definitions.by_name == {}
    assert not list(cloud.definitions.folder.glob("**/*"))


@pytest.mark.parametrize("damaged", ["{", "[]", '{"name": "../x", "digest": "", "xml": ""}',
                                     '{"name": "web2", "digest": "", "xml": ""}'])  # fmt: skip
def test_a_definition_that_is_damaged_is_passed_over_and_told_again(cloud, opts, damaged):
    cloud.inbox.receive("hv1", "definition", definition())
    cloud.safe_beat()
    path = cloud.definitions.folder / "web1.json"
    path.write_text(damaged)
    again = DefinitionStore(opts)
    assert again.by_name == {}
    assert again.put("hv1", definition()) and set(DefinitionStore(opts).by_name) == {"web1"}


def test_another_guest_of_the_same_name_takes_no_place(cloud):
    cloud.inbox.receive("hv1", "definition", definition())
    cloud.inbox.receive("hv1", "definition", definition(uuid="2"))
    cloud.safe_beat()
    assert "<uuid>1</uuid>" in cloud.definitions.by_name["web1"].xml


def test_a_guest_that_is_taken_back_leaves_no_definition(cloud):
    cloud.inbox.receive("hv1", "definition", definition())
    cloud.safe_beat()
    cloud.store.change("x", lambda old: old.without("web1"))
    cloud.safe_beat()
    assert cloud.definitions.by_name == {} and not list(cloud.definitions.folder.glob("*"))


def test_what_a_host_did_is_in_the_journal(cloud, opts):
    body = {"action": "start", "guest": "web1", "reason": "it is\nits own", "at": 7}
    cloud.inbox.receive("hv1", "journal", body)
    cloud.inbox.receive("hv1", "journal", {})
    cloud.inbox.receive("hv1", "unknown", {})
    cloud.safe_beat()
    lines = HaJournal(opts).last(2)
    assert (lines[0]["action"], lines[0]["reason"]) == ("start", "it is its own")


# -- the hosts' room -------------------------------------------------------------------------------


def test_a_host_that_is_silent_keeps_what_it_told():
    answers = [[Host("hv1", 8, 9), Host("hv2", 8, 9)], [Host("hv2", 9, 9)]]
    now = iter((5.0, 6.0, 7.0, 8.0))

    def ask(members):
        assert members == ("hv1", "hv2")
        if not answers:
            raise faults.pop()
        return answers.pop(0)

    faults = [ValueError("x"), errors.ConnectionFailed("no master")]
    found = inventory_poller.InventoryPoller(ask, ("hv1", "hv2"), lambda: next(now))
    for _ in range(4):
        found.poll()
    assert {name: host.cpus for name, host in found.hosts.items()} == {"hv1": 8, "hv2": 9}
    assert found.answered_s == {"hv1": 5.0, "hv2": 6.0}


def test_an_engine_that_begins_shows_nothing_of_the_one_before_it(tmp_path, monkeypatch):
    """virt.ha_setup was refused right after salt-master was restarted, as it asks for: the file of
    the engine before still told its settings."""
    members = {"hv1": {"address": "10.0.0.1"}}
    opts = {"id": "salt", "cachedir": str(tmp_path), "virt": {"ha": {"members": members}}}
    files.write_volatile(
        status_file.report_path(opts), status_file.EngineReport(1.0, "salt", settings="of before")
    )
    begun = []

    def ensure(opts, _name):
        begun.append(status_file.load(opts))
        raise errors.OperationFailed("as far as this test goes")

    monkeypatch.setattr(serve.credentials, "ensure", ensure)
    with pytest.raises(errors.OperationFailed, match="as far as"):
        serve.serve(opts, lambda *_: None, threading.Event())
    [found] = begun
    assert (found.problem, found.report.settings) == ("the engine virt_ha has just started", "")


def test_an_engine_that_begins_while_no_minion_answers_knows_what_was_told(tmp_path, caplog):
    """No guest was placed until minions answered, with the proof there and agents heard."""
    path = tmp_path / "capacity.json"
    told = {"hv1": {"cpus": 8, "memory_kib": 9}, "hv2": {"cpus": "many"}, "hv9": {"cpus": 1}}
    inventory_poller.write(path, told)
    known = serve.cached_hosts(path)

    def ask(_members):
        raise errors.ConnectionFailed("no minion answers")

    found = inventory_poller.InventoryPoller(ask, ("hv1", "hv2"), lambda: 5.0, cached=known)
    found.poll()
    assert {name: host.cpus for name, host in found.hosts.items()} == {"hv1": 8}
    assert found.answered_s == {}
    path.write_text("{")
    assert serve.cached_hosts(path) == [] and "cannot be read" in caplog.text
    assert serve.cached_hosts(tmp_path / "none") == []
    inventory_poller.write(path, {"hv1": object()})
    assert "cannot save" in caplog.text


def test_hosts_are_asked_at_once_when_somebody_wants_it(tmp_path):
    asked, path = [], tmp_path / "ask"

    def ask(_members):
        asked.append(1)
        return [Host("hv1", 8, 9)]

    found = inventory_poller.InventoryPoller(ask, ("hv1",), lambda: 5.0, path)
    found.begin()
    until(lambda: len(asked) == 1, "they are asked")
    path.touch()
    until(lambda: len(asked) == 2, "they are asked again")
    found.end()


def test_a_dead_host_holds_up_nobody_elses_room():
    """Else a guest of a host that died while the engine began would wait for its time-out."""
    go = threading.Event()

    def ask(_members):
        yield Host("hv1", 8, 9)
        go.wait(60)
        yield Host("hv2", 8, 9)

    found = inventory_poller.InventoryPoller(ask, ("hv1", "hv2"), lambda: 5.0)
    found.begin()
    until(lambda: set(found.hosts) == {"hv1"}, "the first is known")
    go.set()
    until(lambda: set(found.hosts) == {"hv1", "hv2"}, "both are known")
    found.end()


class Fleet:
    """A master's hypervisors: no member is among them that it has not accepted."""

    def __init__(self, opts):
        assert opts["id"] == "salt_master"

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        pass

    def hosts(self):
        return ["alone", "hv1", "hv2", "hv3"]

    def ask(self, hosts, fun, _request, **_options):
        assert (hosts, fun) == (["hv1", "hv2", "hv3"], "virt.inventory")
        yield down("hv3")
        yield Answer("hv2", data="what?")
        yield Answer("hv1", data={"cpus": 8, "memory_kib": 9})


def test_members_alone_are_asked_and_one_that_tells_nothing_costs_no_other(
    monkeypatch, caplog, tmp_path
):
    caplog.set_level("INFO", serve.__name__)
    monkeypatch.setattr(serve, "Fleet", Fleet)
    ask = serve._make_ask({"id": "salt_master", "cachedir": str(tmp_path)})
    [told] = ask(("hv3", "hv2", "hv1", "not accepted"))
    assert (told.name, told.cpus) == ("hv1", 8)
    assert "hv3: cannot update its capacity: down: no connection" in caplog.text
    assert "hv2: cannot update its capacity: its answer to virt.inventory is not" in caplog.text


def test_the_bench_has_all_that_the_engine_asks_of_fences():
    asked = {*vars(Fences), *Fences.__annotations__} - {*vars(Protocol), "remote"}
    public = {name for name in asked if not name.startswith("_")}
    assert public >= {"begin", "results"} and public <= {*dir(ha_cost.NoFences)}
