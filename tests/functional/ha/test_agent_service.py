"""Real agents on one machine: they communicate over TLS, each has its own libvirt (the test
driver), and a master with real decisions controls them."""

import signal
import sys
import threading
from dataclasses import replace
from types import SimpleNamespace
from unittest import mock

import pytest

pytest.importorskip("salt")
libvirt = pytest.importorskip("libvirt")

from saltvirt.ha.agent import definitions, feeder, service, settings
from saltvirt.ha.agent.inbox import PeerRequest
from saltvirt.ha.agent.instances import Instance
from saltvirt.ha.fencing.agents import FenceOutcome
from saltvirt.ha.fencing.setting import FenceRequest, FenceSetting
from saltvirt.ha.model import agent_view, decide, messages, view
from saltvirt.ha.model.messages import Heartbeat, ReceivedHeartbeat
from saltvirt.ha.transport import frames, tls
from saltvirt.ha.transport.peer_connection import PeerTiming
from saltvirt.ha.transport.peer_network import PeerNetwork
from saltvirt.host.domain import guest_lock
from saltvirt.placement.facts import Guest
from saltvirt.placement.facts import Host as Room
from tests.clock import until
from tests.functional.ha.test_peer_network import Authority
from tests.unit.ha.agent.test_agent import Driver, holding

HOSTS = ("hv1", "hv2", "hv3")
POLICY = {
    "beat_s": 0.2, "suspect_s": 15, "feed_lease_s": 20, "watchdog_s": 30, "lead_lease_s": 2,
    "margin_s": 0.2, "clock_drift": 0.001,
}  # fmt: skip
# of those that give a silent host up soon
SOON = {"suspect_s": 3, "feed_lease_s": 4, "watchdog_s": 5}
DOMAIN = """<domain type='test'><name>web1</name><memory unit='MiB'>64</memory><vcpu>1</vcpu>
<os><type>hvm</type></os></domain>"""
NODE = "<node><cpu><mhz>1</mhz><model>x</model><active>4</active><nodes>1</nodes></cpu></node>"


class Master:
    """The engine's heart: what it saw, what it decided, what it told."""

    def __init__(self, own, ports):
        self.beats, self.journal, self.definitions = {}, [], {}
        self.wanted, self.fences, self.armed, self.levels = {}, {}, True, 1
        self.proves, self.call, self.fenced = True, None, []
        self.state = view.initial_state("salt", view.SavedMasterState(), service.boottime())
        self.network = PeerNetwork(own, self.on_frame, PeerTiming(0.2, 0.7, 30, 2))
        for name, port in ports.items():
            self.network.add_peer(name, "127.0.0.1", port)
        self.ends = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def on_frame(self, name, kind, body):
        if kind == frames.BEAT:
            beat = Heartbeat.from_answer(body, name)
            self.beats = {**self.beats, name: ReceivedHeartbeat(beat, service.boottime())}
        elif kind == frames.DEFINITION:
            self.definitions[body["name"]] = body
            for host in HOSTS:
                self.network.send(host, frames.frame(kind, body))
        elif kind == frames.JOURNAL:
            self.journal.append((name, body["action"]))
        elif kind == frames.FENCED:
            self.fenced.append((name, body))

    def run(self):
        while not self.ends.wait(0.2):
            decision = decide.decide(self.view(), self.state, service.boottime())
            self.state, self.call = decision.state, decision.message
            for host in HOSTS:
                last = self.beats.get(host)
                call = decide.without_stored(decision.message, last.beat if last else None)
                self.network.send(host, frames.frame(frames.CALL, call.to_answer()))
            for fence in decision.fences if self.proves else ():
                self.fences = {**self.fences, fence.host: view.FenceResult(fence.attempt, view.OFF)}

    def view(self):
        room = {"types": ("test",), "arch": "i686"}
        return view.View(
            masters=("salt",),
            members=HOSTS,
            beats=self.beats,
            placement_hosts={name: Room(name, 8, 8 * 1024**2, **room) for name in HOSTS},
            guests=self.wanted,
            fence_levels=dict.fromkeys(HOSTS, self.levels),
            fences=self.fences,
            armed=self.armed,
            policy=view.HaPolicy(**POLICY),
        )

    def hosts(self):
        return {name: one.state for name, one in self.state.saved.registry.hosts.items()}

    def place(self, name="web1"):
        record = self.state.saved.registry.guests.get(name)
        return (record.state, record.host) if record else None

    def end(self):
        self.ends.set()
        self.thread.join(60)
        self.network.close()


class Cloud:
    """Three agents and a master."""

    def __init__(self, folder):
        self.folder, self.agents, self.threads = folder, {}, {}
        self.ca = Authority(folder / "ca", "CA")
        self.ports = {name: _port() for name in HOSTS}
        self.master = None

    def begun(self, name, **more):
        """An agent that does nothing yet."""
        home = self.folder / name
        home.mkdir(exist_ok=True)
        node = home / "node.xml"
        node.write_text(NODE)
        found = settings.parse(
            {
                "host": name,
                "members": {host: f"127.0.0.1:{port}" for host, port in self.ports.items()},
                "masters": ["salt"],
                "state": str(home / "state"),
                "run": str(home / "run"),
                "uri": f"test://{node}",
                "watchdog": str(home / "watchdog") if (home / "watchdog").exists() else None,
                "policy": POLICY,
                **more,
            },
            "test",
        )
        self.agents[name] = service.Service(found)
        return self.agents[name]

    def start(self, name, **more):
        one = self.begun(name, **more)
        self.threads[name] = threading.Thread(target=one.run, daemon=True)
        self.threads[name].start()
        return one

    def kill(self, name):
        """As by SIGKILL: nothing is said, and its guests run on."""
        one = self.agents.pop(name)
        one.exit_reason = "killed"
        one.wake.set()
        self.threads[name].join(60)
        one.close()

    def end(self):
        if self.master:
            self.master.end()
        for name in list(self.agents):
            self.kill(name)


def _port():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


@pytest.fixture
def soon(monkeypatch):
    for name, seconds in SOON.items():
        monkeypatch.setitem(POLICY, name, seconds)


@pytest.fixture
def cloud(tmp_path, monkeypatch):
    monkeypatch.setattr(guest_lock, "FOLDER", str(tmp_path / "locks"))
    one, daemons = Cloud(tmp_path), {}

    def connected(guests):
        """The test driver forgets what its last connection had: this one outlives the agent."""
        uri = guests.config.uri
        guests._conn = daemons[uri] = daemons.get(uri) or libvirt.open(uri)
        return guests._conn

    monkeypatch.setattr(service.Guests, "_connected", connected)
    monkeypatch.setattr(service.Guests, "_close", lambda guests: None)
    own = property(lambda found: one.ca.credentials(found.host))
    monkeypatch.setattr(settings.AgentSettings, "credentials", own)
    yield one
    one.end()


@pytest.fixture
def three(cloud):
    for name in HOSTS:
        cloud.start(name)
    own = tls.PeerCredentials(str(cloud.ca.folder / "ca.pem"), cloud.ca.credentials("salt").client)
    cloud.master = Master(own, cloud.ports)
    return cloud


def wanted(host):
    return {"web1": view.GuestConfig("web1", host, size=Guest("web1", vcpus=1, memory_kib=65536))}


def running(cloud, name):
    """A guest that libvirt of that host has and runs."""
    until(lambda: cloud.agents[name].guests._conn, "libvirt")
    dom = cloud.agents[name].guests._conn.defineXML(DOMAIN)
    dom.create()


def test_agents_hear_each_other_and_hold_their_lease_without_a_master(cloud):
    for name in HOSTS:
        cloud.start(name)
    for one in cloud.agents.values():
        until(lambda one=one: len(one.inbox.beats) == 2, "the beats of two peers")
        until(lambda one=one: len(one.state.acks) == 2, "the acknowledgements")


@pytest.mark.usefixtures("soon")
def test_a_guest_is_adopted_where_it_runs_and_started_elsewhere_when_its_host_is_fenced(three):
    running(three, "hv1")
    three.master.wanted = wanted("hv1")
    until(lambda: three.master.place() == ("placed", "hv1"), "it is placed")
    until(lambda: three.agents["hv1"].instances.get("web1").epoch, "it is adopted")
    until(
        lambda: three.agents["hv2"].guests.definition_cache.get("web1"),
        "its definition goes around",
    )
    before = three.agents["hv1"].instances.get("web1").epoch
    three.kill("hv1")
    until(
        lambda: any(
            copy.state == messages.RUNNING and copy.epoch > before
            for copy in (one.instances.get("web1") for one in three.agents.values())
            if copy
        ),
        "it runs elsewhere",
    )
    host = three.master.place()[1]
    assert host in ("hv2", "hv3")
    until(lambda: (host, "start web1") in three.master.journal, "its journal")


def leased(cloud):
    """Its guest's disks are, and nothing else proves anything of its host, which is silent."""
    running(cloud, "hv1")
    cloud.master.levels = 0
    [one] = wanted("hv1").values()
    cloud.master.wanted = {"web1": replace(one, leased=True)}
    until(lambda: cloud.master.place() == ("placed", "hv1"), "it is placed")
    until(lambda: cloud.agents["hv1"].instances.get("web1").epoch, "it is adopted")
    for host in HOSTS[1:]:
        until(
            lambda host=host: cloud.agents[host].guests.definition_cache.get("web1"),
            "its definition is known",
        )
    cloud.kill("hv1")


@pytest.mark.usefixtures("soon")
def test_a_guest_whose_lease_another_host_gets_goes_on_there(three, monkeypatch):
    tried = holding(monkeypatch, 3)
    leased(three)
    until(lambda: three.master.place()[0] == "placed" and three.master.place()[1] != "hv1", "it is")
    host = three.master.place()[1]
    assert len(tried) == 4
    one = three.agents[host]
    until(lambda: one.instances.get("web1").state == messages.RUNNING, "it runs")
    assert (one.guests.domain("web1").state()[0], one.instances.leases()) == (1, {})
    assert (host, "lease web1") in three.master.journal


@pytest.mark.usefixtures("soon")
def test_a_guest_whose_lease_nobody_gets_stays_where_it_is(three, monkeypatch):
    """Its host lives, and is heard again."""
    tried = holding(monkeypatch, 10**6)
    leased(three)
    until(lambda: len(tried) > 3, "tries")
    assert three.master.place() == ("blocked", "hv1")
    assert all(one.instances.leases() == {} for one in three.agents.values())
    three.start("hv1")
    until(lambda: three.master.place() == ("placed", "hv1"), "it is placed")
    before = len(tried)
    until(lambda: three.master.hosts()["hv1"] == "up", "its host is up")
    for one in three.agents.values():
        assert one.instances.leases() == {}
    assert len(tried) <= before + 1


@pytest.mark.usefixtures("soon")
def test_a_host_runs_a_fence_for_the_master_while_that_gives_the_other_up(three):
    ran, other = [], three.agents["hv2"]
    other.fencing._off = lambda fence: ran.append(fence) or FenceOutcome("off")
    fence = FenceSetting("fence_x", {"ip": "10.0.0.1"})

    def asks(attempt):
        asked = FenceRequest("hv1", attempt, fence).to_answer()
        three.master.network.send("hv2", frames.frame(frames.FENCE, asked))

    def answers():
        return {told["attempt"]: (name, told["state"]) for name, told in three.master.fenced}

    def fenced():
        """As the engine asks: once more while the last was refused, for what is asked now. A master
        that is late leads no more for a moment, and asks by another ballot then."""
        ballot = three.master.call.ballots.get("hv1")
        if ballot is not None:
            asks(f"{ballot.term}.{ballot.ballot}.3")
        return ("hv2", "off") in answers().values()

    running(three, "hv1")
    three.master.proves, three.master.wanted = False, wanted("hv1")
    until(lambda: three.master.place() == ("placed", "hv1"), "it is placed")
    until(lambda: asks("1.1.0") or "1.1.0" in answers(), "how it ended")
    assert answers() == {"1.1.0": ("hv2", "timed out")} and ran == []
    three.kill("hv1")
    until(fenced, "it is fenced")
    assert {told["host"] for _, told in three.master.fenced} == {"hv1"}
    assert ran and all(one == fence for one in ran)


def test_a_guest_that_is_given_to_a_cloud_at_work_runs_on_where_it_is(three):
    """Its host tells nothing of it before it knows that it is one of high availability."""
    running(three, "hv1")
    until(lambda: set(three.master.hosts().values()) == {"up"}, "all hosts are up")
    three.master.wanted = wanted("hv1")
    until(lambda: three.master.place() == ("placed", "hv1"), "it is placed")
    until(lambda: ("hv1", "adopt web1") in three.master.journal, "it is adopted")
    assert [what for _, what in three.master.journal] == ["adopt web1"]
    record = three.master.state.saved.registry.guests["web1"]
    assert three.agents["hv1"].instances.get("web1").epoch == record.epoch


def test_a_guest_that_is_alive_and_has_failed_is_killed_and_started_anew(three):
    running(three, "hv1")
    three.master.wanted = wanted("hv1")
    until(lambda: three.master.place() == ("placed", "hv1"), "it is placed")
    one = three.agents["hv1"]
    until(lambda: one.instances.get("web1").epoch, "it is adopted")
    adopted = one.instances.get("web1").epoch
    number = one.guests.domain("web1").ID()
    one.guests.health._set_trouble("web1", messages.PANICKED, "its kernel panicked")
    until(lambda: one.instances.get("web1").epoch == adopted + 1, "it is started anew")
    until(lambda: three.master.place() == ("placed", "hv1"), "it is placed")
    assert one.guests.domain("web1").ID() != number
    journal = [what for _, what in three.master.journal]
    assert journal == ["adopt web1", "kill web1", "start web1"]


def test_a_killed_agent_comes_back_and_its_guests_run_on(three):
    (three.folder / "hv1/watchdog").touch()
    running(three, "hv1")
    three.master.wanted = wanted("hv1")
    until(lambda: three.master.place() == ("placed", "hv1"), "it is placed")
    three.kill("hv1")
    one = three.start("hv1")
    assert one.instances.is_known
    assert one.instances.statuses(["web1"])["web1"].state == messages.RUNNING
    until(lambda: three.master.beats["hv1"].beat.seq > one.state.seq - 3, "its beats")
    assert three.master.place() == ("placed", "hv1")


def test_the_watchdog_is_armed_while_a_guest_runs_and_rests_when_the_agent_stops(
    cloud, monkeypatch
):
    driver = Driver(monkeypatch)
    for name in HOSTS:
        (cloud.folder / name).mkdir()
        (cloud.folder / name / "watchdog").touch()
        cloud.start(name)
    own = tls.PeerCredentials(str(cloud.ca.folder / "ca.pem"), cloud.ca.credentials("salt").client)
    cloud.master = Master(own, cloud.ports)
    running(cloud, "hv1")
    cloud.master.wanted = wanted("hv1")
    one = cloud.agents["hv1"]
    until(lambda: one.watchdog.is_armed, "it is armed")
    assert not cloud.agents["hv2"].watchdog.is_armed
    fed = driver.fed
    until(lambda: driver.fed > fed + 2, "it is fed")

    # killed, it is armed again before anything else; its guests are not killed for that
    cloud.kill("hv1")
    one = cloud.start("hv1")
    assert one.watchdog.is_armed and one.state.believed
    until(lambda: cloud.master.beats["hv1"].beat.armed, "it says so")
    assert one.instances.get("web1").state == messages.RUNNING

    monkeypatch.setattr(service.shutdown_reason, "detect", lambda: agent_view.STOP)
    one.on_signal(15, None)
    cloud.threads["hv1"].join(60)
    assert one.exit_reason == service.STOP and not one.watchdog.is_armed
    assert (cloud.folder / "hv1/watchdog").read_bytes().endswith(b"V")
    assert one.instances.get("web1").state == messages.RUNNING


def test_a_watchdog_is_not_fed_by_an_agent_that_comes_back_too_late(cloud, monkeypatch):
    Driver(monkeypatch)
    (cloud.folder / "hv1").mkdir()
    (cloud.folder / "hv1/watchdog").touch()
    one = cloud.start("hv1")
    until(lambda: one.instances.is_known, "libvirt")
    cloud.kill("hv1")
    state = one.state
    state.believed, state.lease_from_s = True, service.boottime() - POLICY["feed_lease_s"]
    one.store.save_runtime(state)
    assert not cloud.start("hv1").watchdog.is_armed


def test_an_agent_that_is_killed_while_it_arms_leaves_a_watchdog_that_the_next_one_feeds(
    cloud, monkeypatch
):
    Driver(monkeypatch)
    (cloud.folder / "hv1").mkdir()
    (cloud.folder / "hv1/watchdog").touch()
    one = cloud.start("hv1")
    until(lambda: one.instances.is_known, "libvirt")
    cloud.kill("hv1")
    one.state.lease_from_s = service.boottime()
    monkeypatch.setattr(one.watchdog, "arm", lambda: None)  # it is killed before, or right after
    one.arm()
    assert not one.state.believed
    # before its first beat, at which it needs none
    assert cloud.begun("hv1").watchdog.is_armed


def test_a_watchdog_of_which_nothing_can_be_written_is_not_opened(cloud, monkeypatch):
    Driver(monkeypatch)
    (cloud.folder / "hv1").mkdir()
    (cloud.folder / "hv1/watchdog").touch()
    one = cloud.start("hv1")
    until(lambda: one.instances.is_known, "libvirt")
    cloud.kill("hv1")

    def full(*_args, **_more):
        raise OSError(28, "No space left on device", "runtime.json")

    monkeypatch.setattr("saltvirt.system.atomic_file.write", full)
    one.arm()
    assert not one.watchdog.is_armed


def test_a_watchdog_that_nobody_needs_before_it_is_known_is_put_at_rest(cloud, monkeypatch):
    """Found in a lab: it stayed armed, and the next agent, which did not know, fed it no more."""
    Driver(monkeypatch)
    (cloud.folder / "hv1").mkdir()
    (cloud.folder / "hv1/watchdog").touch()
    for name in HOSTS:
        cloud.start(name)
    own = tls.PeerCredentials(str(cloud.ca.folder / "ca.pem"), cloud.ca.credentials("salt").client)
    cloud.master = Master(own, cloud.ports)
    one = cloud.agents["hv1"]
    until(lambda: one.state.saved.registry.members, "a registry")
    one.watchdog.arm()
    until(lambda: (cloud.folder / "hv1/watchdog").read_bytes().endswith(b"V"), "it is at rest")
    assert not one.watchdog.is_armed and not one.state.believed


def test_an_agent_that_runs_anew_leaves_no_watchdog_that_the_next_does_not_know_of(
    cloud, monkeypatch
):
    Driver(monkeypatch)
    (cloud.folder / "hv1").mkdir()
    (cloud.folder / "hv1/watchdog").touch()
    one = cloud.start("hv1")
    until(lambda: one.instances.is_known, "libvirt")
    one.watchdog.arm()
    one.on_signal(1, None)
    cloud.threads["hv1"].join(60)
    cloud.agents.pop("hv1").close()
    assert not one.watchdog.is_armed
    assert (cloud.folder / "hv1/watchdog").read_bytes().endswith(b"V")


def test_nothing_is_told_that_is_not_written_down(three, monkeypatch):
    """A disk that takes nothing more: the agent grants nothing new, and stays."""
    until(lambda: three.master.state.leading_s, "the lead")
    one = three.agents["hv1"]
    full = OSError(28, "No space left on device")

    def keep(kept):
        raise full

    monkeypatch.setattr(one.store, "save", keep)
    seq = one.state.seq
    until(lambda: one.state.seq > seq + 1, "what was being written meanwhile is written")
    before = one.state.saved
    running(three, "hv2")
    three.master.wanted = wanted("hv2")
    until(lambda: three.master.place() == ("placed", "hv2"), "the others go on")
    assert agent_view.must_save(before, one.state.saved) is False
    seq = one.state.seq
    until(lambda: three.master.beats["hv1"].beat.seq > seq, "it is heard still")
    assert three.master.beats["hv1"].beat.stored == before.pending.version


@pytest.mark.parametrize("disk", ["full", "slow"])
def test_a_host_whose_disk_takes_nothing_keeps_its_lease_when_a_peer_says_something_new(
    three, monkeypatch, disk
):
    """Found by reading: its peers and the master acknowledged each beat, and its power was cut."""
    until(lambda: three.master.state.leading_s, "the lead")
    one, goes_on, began = three.agents["hv1"], threading.Event(), threading.Event()

    def keep(kept):
        began.set()
        if disk == "full":
            raise OSError(28, "No space left on device")
        goes_on.wait()

    peer = three.agents["hv2"]
    until(lambda: "hv2" in one.state.acks and "hv2" in three.master.beats, "the peer")
    boot = peer.state.boot

    def renewed():
        if peer.state.boot == boot:  # its own thread may have been in the midst of a beat
            peer.renew()
        return three.master.beats["hv2"].beat.boot > boot

    with monkeypatch.context() as patch:
        patch.setattr(one.store, "save", keep)
        until(renewed, "the peer is another one")
        until(began.is_set, "it is being written")
        lease_s, heard = one.state.lease_from_s, three.master.beats["hv1"].beat.seq
        until(lambda: one.state.lease_from_s > lease_s + 5 * POLICY["beat_s"], "the lease")
        assert one.state.acks["hv2"].boot == boot
        # peers may have acknowledged what the master has not looked at yet
        until(lambda: three.master.beats["hv1"].beat.seq > heard, "it is heard")
    goes_on.set()
    until(lambda: one.state.acks["hv2"].boot > boot, "it acknowledges what it has written")


def test_a_watchdog_is_fed_whatever_the_agent_is_about(monkeypatch):
    fed, now = threading.Event(), [100.0]
    device = mock.Mock(feed=fed.set)
    one = feeder.Feeder(device, mock.Mock(), view.HaPolicy(beat_s=0.02), lambda: now[0])
    one.begin()
    one.feed_until(105)
    for _ in range(3):
        fed.clear()
        until(fed.is_set, "it is fed again")
    now[0] = 105
    one.feed_until(105)
    calls = []
    device.feed = lambda: calls.append(1)
    one._feed()
    one.feed_until(None)
    one._feed()
    assert calls == []
    one.end()


def test_of_two_threads_that_are_stopped_before_they_feed_only_one_feeds_late():
    """The proof bears one that was stopped: each of two fed for a whole time-out of the watchdog
    more."""
    fed, now, stopped, goes_on = [], [100.0], threading.Event(), threading.Event()

    def feed():
        stopped.set()
        assert goes_on.wait(60)
        fed.append(now[0])

    device = mock.Mock(feed=feed)
    one = feeder.Feeder(device, mock.Mock(), view.HaPolicy(beat_s=2), lambda: now[0])
    first = threading.Thread(target=one.feed_until, args=(105,))
    first.start()
    assert stopped.wait(60)
    second = threading.Thread(target=one._feed)
    looked = threading.Event()
    one._clock = lambda: looked.set() or now[0]
    second.start()
    assert not looked.wait(0.2), "it looks once the first has fed"
    now[0] = 114.0
    goes_on.set()
    first.join()
    second.join()
    assert fed == [114.0]


@pytest.mark.parametrize("part", ["disk", "guests", "network"])
def test_a_watchdog_is_fed_until_the_next_program_is_run(cloud, monkeypatch, part):
    """An update while the disk was slow: unfed for as long as the writer was waited for, and for
    the start of the next program on top of that."""
    one, fed = cloud.begun("hv1"), threading.Event()
    monkeypatch.setattr(one.watchdog, "feed", fed.set)
    one.feeder._every_s = 0.01
    one.feeder.begin()
    one.feeder.feed_until(one.clock() + 600)
    what, name = getattr(one, part), "close" if part == "network" else "end"
    end = getattr(what, name)

    def slow():
        fed.clear()
        assert fed.wait(60), "it is fed meanwhile"
        end()
        ends.append(part)

    ends = []
    monkeypatch.setattr(what, name, slow)
    cloud.agents.pop("hv1").close()
    assert ends == [part]
    assert one.feeder._stopped.is_set()


def test_a_program_that_could_not_take_over_does_not(cloud, caplog):
    """SIGHUP ran it all the same: exit code 78, and the watchdog was armed."""
    one = cloud.start("hv1")
    until(lambda: one.instances.is_known, "libvirt")
    one._trial = lambda: "policy.x is unknown"
    one.on_signal(signal.SIGHUP, None)
    until(lambda: "continuing with the old program and settings" in caplog.text, "the line")
    assert one.exit_reason is None
    one._trial = str
    one.on_signal(signal.SIGHUP, None)
    until(lambda: one.exit_reason == service.RESTART, "it switches to the new version")


def test_a_beat_tells_what_proofs_depend_on(three):
    until(lambda: len(three.master.beats) == 3, "beats")
    beat = three.master.beats["hv1"].beat
    assert beat.terms == view.HaPolicy(**POLICY).terms("")
    assert beat.settings == three.agents["hv2"].settings.digest


def test_an_agent_that_does_not_know_its_guests_says_nothing(cloud, monkeypatch):
    monkeypatch.setattr(service.Guests, "_poll", lambda self, conn: None)
    one, two = cloud.start("hv1"), None
    two = cloud.start("hv2")
    until(lambda: one.network.heard_s("hv2") is not None, "a hello")
    assert one.inbox.beats == {} and two.inbox.beats == {}


def test_a_beat_that_fails_is_not_the_last(cloud, monkeypatch, caplog):
    one = cloud.start("hv1")
    until(lambda: one.instances.is_known, "libvirt")
    monkeypatch.setattr(one, "view", lambda now_s: 1 / 0)
    until(lambda: "a heartbeat failed" in caplog.text, "the line")
    monkeypatch.undo()
    seq = one.state.seq
    until(lambda: one.state.seq > seq + 2, "beats")


def test_a_question_that_fails_is_not_the_last(cloud, monkeypatch, caplog):
    one = cloud.start("hv1")
    until(lambda: one.instances.is_known, "libvirt")
    monkeypatch.setattr(one.fencing, "handle", lambda *_: 1 / 0)
    for kind in (frames.FENCE, frames.DEFINITION):
        one.inbox.requests.put(PeerRequest("salt", kind, {"name": "web1", "xml": DOMAIN}, 0))
    one.wake.set()
    until(lambda: one.guests.definition_cache.get("web1"), "the answer to the one after it")
    assert "fence from salt failed: division by zero" in caplog.text and one.exit_reason is None


def test_an_incoming_guest_is_taken_only_by_the_registrys_word(three):
    one = three.agents["hv1"]
    assert not one.consents("web1", 2)
    three.agents["hv2"].ask("hv1", "web1", 2)
    never_s = 1e12  # what libvirt has is of before
    one.instances.put("web1", Instance(1, messages.RUNNING, since_s=never_s))
    assert not one.migrations.expect("web1", 2)
    one.instances.put("web1", Instance(1, messages.STOPPED, since_s=never_s))
    assert one.migrations.expect("web1", 2)
    assert one.instances.get("web1").state == messages.INCOMING


def test_a_taken_port_is_tried_again(cloud, caplog):
    import socket

    with socket.create_server(("127.0.0.1", cloud.ports["hv1"])):
        cloud.start("hv1")
        until(lambda: "Address already in use" in caplog.text, "the line")
    two = cloud.start("hv2")
    until(lambda: cloud.agents["hv1"].inbox.beats, "the beats of hv2")
    until(lambda: two.inbox.beats, "the beats of hv1")


def test_a_renewed_agent_has_nothing_from_before(cloud):
    one = cloud.start("hv1")
    until(lambda: one.instances.is_known, "libvirt")
    boot = one.state.boot
    one.instances.put("web1", Instance(1, messages.STOPPED))
    one.renew()
    assert one.state.boot == boot + 1 and one.instances.get("web1") is None
    cloud.kill("hv1")
    assert cloud.start("hv1").state.boot == boot + 1


# a pool's process: what hv2 has written there, whose number is how it was begun
PEER = """
import json, sys
for line in sys.stdin.buffer:
    beat = {**json.loads(line), "host": "hv2", "seq": int(sys.argv[1])}
    print(json.dumps({"beats": {"hv2": beat, "hv1": {**beat, "host": "hv1"}}}), flush=True)
"""


def test_of_a_peer_the_newest_beat_of_all_pools_counts_while_they_are_read(cloud, monkeypatch):
    kept = []

    def argv(folder, _host, part="pool"):
        if part != "pool":
            kept.append(folder)
            return ["cat"]
        return [sys.executable, "-c", PEER, folder[1:]]

    monkeypatch.setattr(service.pool_heartbeat, "worker_argv", argv)
    monkeypatch.setattr(service.PoolKeys, "is_of", lambda *_: True)
    one = cloud.start("hv1", pools=["/7", "/9", "/8"])
    assert kept == ["/7", "/9", "/8"]
    until(lambda: all(pool.beats for pool in one.pools), "the pools are read")
    stored = one.stored(service.boottime())
    assert {name: found.beat.seq for name, found in stored.items()} == {"hv2": 9}
    processes = [pool._worker._process for pool in one.pools]
    late = max(pool.read_s for pool in one.pools) + POLICY["suspect_s"] + 60
    assert one.stored(late) == {}
    cloud.kill("hv1")
    assert [process.wait(30) for process in processes] == [-9] * 3


def test_an_agent_that_can_write_nothing_says_nothing_new(cloud, monkeypatch, caplog):
    """And is heard: it fed its watchdog no more, and said nothing at all."""
    one = cloud.start("hv1")
    until(lambda: one._last_beat, "a beat")

    def full(_state):
        raise OSError(28, "No space left on device", "/run/x/runtime.json")

    with monkeypatch.context() as patch:
        patch.setattr(one.store, "save_runtime", full)
        until(lambda: "cannot write /run/x/runtime.json: No space left" in caplog.text, "the line")
        said = one._last_beat
        seq = one.state.seq
        one.stop_request = "stop"
        until(lambda: one.state.seq > seq + 2, "beats")
        assert one.state.phase == messages.WORKING and one._last_beat is said
    until(lambda: one.state.phase == messages.RESTING, "what it is about")


def test_a_definition_of_a_guest_that_is_kept_no_more_is_forgotten(cloud):
    one = cloud.start("hv1")
    until(lambda: one.instances.is_known, "libvirt")
    one.send_definition(definitions.parse("web1", DOMAIN))
    until(lambda: not one._definitions, "it is forgotten")


def test_masters_are_told_why_a_guest_stayed(three):
    until(lambda: len(three.master.beats) == 3, "beats")
    three.agents["hv1"].report_stayed("web1", "hv2", "libvirt is away")
    until(lambda: ("hv1", "no migration of web1 to hv2") in three.master.journal, "the line")


@pytest.mark.parametrize("sender, kind, body, words", [
    ("salt", frames.DEFINITION, {"name": "web1", "xml": "<dom\x1b[2J"}, "definition from salt: "),
    ("salt", frames.DEFINITION, {"name": "web1"}, "definition from salt: the request has no xml"),
    ("hv2", frames.INCOMING, {"guest": "web1", "epoch": "5"},
     "incoming from hv2: the request has no epoch"),
    ("hv2", frames.INCOMING, {"epoch": 5}, "incoming from hv2: the request has no guest"),
    ("hv2", frames.JOURNAL, {"guest": 7}, ""),
])  # fmt: skip
def test_what_is_no_question_is_named_and_the_next_one_answered(
    cloud, caplog, sender, kind, body, words
):
    one = cloud.start("hv1")
    until(lambda: one.instances.is_known, "libvirt")
    one.inbox.on_frame(sender, kind, body)
    good = {"name": "web9", "xml": DOMAIN.replace("web1", "web9")}
    one.inbox.on_frame("salt", frames.DEFINITION, good)
    until(lambda: one.guests.definition_cache.get("web9"), "the next one")
    said = [record.getMessage() for record in caplog.records]
    found = [line for line in said if f" from {sender}: " in line]
    assert [line.startswith(words) for line in found] == ([True] if words else [])
    assert "\x1b" not in caplog.text


def test_what_waits_for_a_guest_ends_when_it_is_ignored_or_taken_back():
    """Its start waited for the lock of its disk, up to 100 s, and then went on by itself."""
    left = []
    guests = SimpleNamespace(managed=frozenset({"web1", "db1"}), release=left.append)
    one = SimpleNamespace(guests=guests, managed=lambda: frozenset({"db1"}), names=set, owned=set)
    service.Service._update_guests(one)
    assert left == ["web1"] and guests.managed == {"db1"}
