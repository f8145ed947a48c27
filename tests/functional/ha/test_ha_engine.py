"""The engine in real time: real TLS, real files, a real fence program, and pure agents instead of
hosts."""

import runpy
import shutil
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("salt")

from saltvirt.ha.fencing import agents as fences
from saltvirt.ha.manager import config, credentials, serve, status_file
from saltvirt.ha.manager.desired_state import DesiredState, DesiredStateStore
from saltvirt.ha.model import agent, agent_view
from saltvirt.ha.model.messages import (
    GuestStatus,
    Heartbeat,
    LeaderMessage,
    ReceivedHeartbeat,
    ReceivedMessage,
)
from saltvirt.ha.model.policy import HaPolicy
from saltvirt.ha.model.view import GuestConfig
from saltvirt.ha.transport import frames, tls
from saltvirt.ha.transport.peer_connection import PeerTiming
from saltvirt.ha.transport.peer_network import PeerNetwork
from saltvirt.pki.authority import ca
from saltvirt.pki.authority.store import CertificateStore
from saltvirt.pki.common import certs
from saltvirt.placement.facts import Guest, Host
from saltvirt.system.tls_listener import CertificateFiles
from tests.clock import until
from tests.lab.paths import REPOSITORY
from tests.unit.ha.fencing.test_agents import OFF, ON, Bmc

TIMES = {
    "beat_s": 0.3, "suspect_s": 2, "feed_lease_s": 2.5, "watchdog_s": 2, "lead_lease_s": 2,
    "margin_s": 0.5,
}  # fmt: skip
NAMES = ("hv1", "hv2", "hv3")


class Agent(threading.Thread):
    """A host: the pure agent over real TLS. Its guests run by its word."""

    def __init__(self, name, own, policy):
        super().__init__(name=name, daemon=True)
        self.own, self.policy = own, policy
        self.lock, self.ends = threading.Lock(), threading.Event()
        self.beats, self.calls, self.guests = {}, {}, {}
        self.network = PeerNetwork(own, self.receive, PeerTiming(beat_s=0.3, quiet_s=1, silent_s=4))
        self.port = self.network.listen("127.0.0.1", 0, NAMES, ("salt",))

    def receive(self, name, kind, body):
        with self.lock:
            if kind == "beat":
                self.beats[name] = ReceivedHeartbeat(
                    Heartbeat.from_answer(body, name), time.monotonic()
                )
            elif kind == "call":
                self.calls[name] = ReceivedMessage(
                    LeaderMessage.from_answer(body, name), time.monotonic()
                )

    def run(self):
        state = agent_view.initial_state(
            self.name, 1, agent_view.SavedAgentState(), time.monotonic()
        )
        while not self.ends.wait(self.policy.beat_s):
            with self.lock:
                told = agent_view.AgentView(
                    dict(self.beats), {}, dict(self.calls), dict(self.guests)
                )
            taken = agent.step(state, told, time.monotonic(), self.policy)
            state = taken.state
            for one in (*NAMES, "salt"):
                if one != self.name:
                    self.network.send(one, frames.frame("beat", taken.beat.to_answer()))
            for action in taken.actions:
                if action.kind in (agent_view.START, agent_view.ADOPT):
                    self.guests[action.guest] = GuestStatus(action.epoch, "running")

    def cut(self):
        """Its power is gone."""
        self.ends.set()
        self.network.close()


@pytest.fixture
def cloud(tmp_path, monkeypatch):
    """(the master's options, the agents by name, the engine's events)."""
    monkeypatch.setattr(fences, "PATH", f"{tmp_path}:/usr/bin:/bin")
    opts = {"id": "salt_master", "cachedir": str(tmp_path / "cache"), "sock_dir": str(tmp_path),
            "pki_dir": str(tmp_path / "pki"), "virt": {"hosts": "hv*"}}  # fmt: skip
    (tmp_path / "pki").mkdir()
    own = credentials.ensure(opts, "salt")
    authority = ca.read(CertificateStore(opts["pki_dir"]), "libvirt")
    policy = HaPolicy(**TIMES)
    agents = {name: Agent(name, pair(tmp_path, authority, name, own.ca), policy) for name in NAMES}
    bmc = Bmc(tmp_path)
    bmc.does(off=ON, status=OFF)
    fence = {"agent": "fence_fake", "options": {"password_file": str(bmc.password)}}
    members = {
        name: {"address": "127.0.0.1", "port": one.port, "fences": [fence]}
        for name, one in agents.items()
    }
    opts["virt"]["ha"] = {"members": members, **TIMES}
    for one in agents.values():
        for other in agents.values():
            if one is not other:
                one.network.add_peer(other.name, "127.0.0.1", other.port)
        one.start()
    yield opts, agents, []
    for one in agents.values():
        one.cut()


def pair(folder, authority, name, trusted):
    key = certs.new_key()
    pairs = []
    for purpose in (certs.CLIENT, certs.SERVER):
        wanted = certs.Leaf(certs.subject(name), (name,), purpose, 9)
        cert = certs.leaf(key.public_key(), wanted, (authority.cert, authority.key), certs.utcnow())
        at = folder / f"{name}-{purpose}"
        at.with_suffix(".crt").write_bytes(certs.cert_pem(cert))
        at.with_suffix(".key").write_bytes(certs.key_pem(key))
        pairs.append(CertificateFiles(str(at.with_suffix(".crt")), str(at.with_suffix(".key"))))
    return tls.PeerCredentials(trusted, *pairs)


@pytest.fixture
def engine(cloud):
    """begin() → what ends it."""
    opts, _, fired = cloud
    rooms = [Host(name, 8, 1 << 23, types=("kvm",), arch="x86_64") for name in NAMES]
    running = []

    def begin():
        stop = threading.Event()
        thread = threading.Thread(
            target=serve.serve,
            args=(opts, lambda tag, data: fired.append((tag, data)), stop),
            kwargs={"ask": lambda _members: rooms}, daemon=True,
        )  # fmt: skip
        thread.start()

        def end():
            stop.set()
            thread.join(60)
            assert not thread.is_alive()

        running.append(end)
        return end

    yield begin
    for end in running:
        end()


def look(opts):
    return status_file.load(opts)


def test_a_host_dies_is_fenced_and_its_guest_runs_elsewhere_also_over_the_engines_restart(
    cloud, engine
):
    opts, agents, fired = cloud
    agents["hv1"].guests["web1"] = GuestStatus(0, "running")
    size = Guest("web1", vcpus=1, memory_kib=1 << 18)
    known = DesiredState(guests={"web1": GuestConfig("web1", "hv1")}, sizes={"web1": size})
    DesiredStateStore(opts).change("the test", lambda _old: known)
    end = engine()
    until(lambda: is_placed(opts, "hv1"), "web1 is placed")
    end()
    engine()
    until(lambda: look(opts).report.leading and is_placed(opts, "hv1"), "it leads again")
    agents["hv1"].cut()
    until(lambda: is_placed(opts, "hv2") or is_placed(opts, "hv3"), "web1 runs elsewhere", 60)
    assert look(opts).registry.host("hv1").state == "fenced"
    told = [(tag, data["new"]) for tag, data in fired if tag.startswith("salt/virt/ha/fence")]
    assert told == [("salt/virt/ha/fence/hv1", "started"), ("salt/virt/ha/fence/hv1", "off")]
    runs = [name for name in ("hv2", "hv3") if "web1" in agents[name].guests]
    assert len(runs) == 1


def is_placed(opts, host):
    found = look(opts)
    record = found.registry.guests.get("web1")
    return not found.problem and record and (record.state, record.host) == ("placed", host)


# -- its certificate -------------------------------------------------------------------------------


def test_its_certificate_is_kept_while_it_holds_and_renewed_in_time(tmp_path):
    opts = {"pki_dir": str(tmp_path), "virt": {"hosts": "hv*"}}
    first = credentials.ensure(opts, "salt")
    before = Path(first.client.certificate).read_bytes()
    assert credentials.ensure(opts, "salt") == first
    assert Path(first.client.certificate).read_bytes() == before
    [cert] = certs.load_certs(before)
    assert certs.names(cert) == ["salt"] and certs.has_purpose(cert, certs.CLIENT)
    late = certs.not_after(cert) - (certs.not_after(cert) - certs.not_before(cert)) / 10
    credentials.ensure(opts, "salt", lambda: late)
    after = Path(first.client.certificate).read_bytes()
    assert after != before
    credentials.ensure(opts, "other")
    assert Path(first.client.certificate).read_bytes() != after


@pytest.mark.parametrize("name", ("clientcert.pem", "clientkey.pem"))
def test_a_damaged_half_is_made_anew(tmp_path, name):
    opts = {"pki_dir": str(tmp_path), "virt": {"hosts": "hv*"}}
    credentials.ensure(opts, "salt")
    path = tmp_path / "virt-ha" / name
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text("damaged")
    found = credentials.ensure(opts, "salt")
    assert tls.to_connect(found)


@pytest.mark.parametrize("foreign, why", (
    (("clientkey.pem",), "the key does not belong to the certificate"),
    (("clientkey.pem", "clientcert.pem"), "another CA has issued it"),
), ids=("key", "both"))  # fmt: skip
def test_what_is_another_clouds_is_made_anew(tmp_path, caplog, foreign, why):
    caplog.set_level("INFO")
    own, other = (
        {"pki_dir": str(tmp_path / name), "virt": {"hosts": "hv*"}} for name in ("own", "other")
    )
    for opts in (own, other):
        Path(opts["pki_dir"]).mkdir()
        credentials.ensure(opts, "salt")
    for name in foreign:
        shutil.copy(tmp_path / "other/virt-ha" / name, tmp_path / "own/virt-ha" / name)
    found = credentials.ensure(own, "salt")
    assert why in caplog.text and tls.to_connect(found)
    before = Path(found.client.certificate).read_bytes()
    credentials.ensure(own, "salt")
    assert Path(found.client.certificate).read_bytes() == before


def test_it_knows_whom_the_cloud_has_revoked(tmp_path):
    opts = {"pki_dir": str(tmp_path), "virt": {"hosts": "hv*"}}
    found = credentials.ensure(opts, "salt")
    store = CertificateStore(opts["pki_dir"])
    assert not Path(found.revoked).exists()
    store.path("crl.pem").write_bytes(b"whom")
    credentials.ensure(opts, "salt")
    assert Path(found.revoked).read_bytes() == b"whom"


def test_a_certificate_that_cannot_be_renewed_is_named_and_tried_again(
    tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(serve, "RENEW_S", 0.01)
    opts = {"pki_dir": str(tmp_path / "pki"), "virt": {"hosts": "hv*"}}
    (tmp_path / "pki").write_text("no folder")
    own, stop = config.HaConfig("salt", ("salt",), {}), threading.Event()
    thread = threading.Thread(target=serve._renew_credentials, args=(opts, own, stop), daemon=True)
    thread.start()
    until(lambda: "the certificate of this master for high availability: " in caplog.text, "words")
    (tmp_path / "pki").unlink()
    (tmp_path / "pki").mkdir()
    until((tmp_path / "pki/virt-ha/clientcert.pem").exists, "it is made")
    stop.set()
    thread.join(60)
    assert not thread.is_alive()


def test_settings_that_are_wrong_begin_nothing(tmp_path):
    opts = {"cachedir": str(tmp_path), "virt": {"ha": {}}}
    with pytest.raises(config.errors.InvalidInput):
        serve.serve(opts, lambda *_: None, threading.Event())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("role, words", (
    ("minion", "is for a master, not for a minion"), ("master", "virt:ha:members"),
))  # fmt: skip
def test_salts_engine_says_why_it_does_not_run_and_rests(
    tmp_path, monkeypatch, caplog, role, words
):
    found = runpy.run_path(str(REPOSITORY / "_engines/virt_ha.py"))
    rests, start = [], found["start"]
    monkeypatch.setitem(start.__globals__, "time", SimpleNamespace(sleep=rests.append))
    opts = {"__role": role, "cachedir": str(tmp_path), "sock_dir": str(tmp_path), "id": "x",
            "virt": {"ha": {"members": 7}}}  # fmt: skip
    monkeypatch.setitem(start.__globals__, "__opts__", opts)
    start()
    [line] = [one.getMessage() for one in caplog.records if one.levelname == "CRITICAL"]
    assert line.startswith("high availability does not run: ") and words in line
    assert len(rests) == 1 and found["__virtual__"]() == "virt_ha"
