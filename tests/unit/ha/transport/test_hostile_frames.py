"""Invalid messages between hosts and masters: each is refused in one line or is valid data, no
sender is accepted in the name of another, and no unexpected exception is raised."""

import json
import os
import queue
from types import SimpleNamespace

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.ha.agent import definitions, settings
from saltvirt.ha.agent import inbox as of_agent
from saltvirt.ha.agent.fencing import FenceRunner
from saltvirt.ha.agent.service import Service
from saltvirt.ha.fencing import setting
from saltvirt.ha.fencing.setting import FenceReply, FenceRequest, FenceSetting
from saltvirt.ha.manager import inbox as of_master
from saltvirt.ha.manager.definitions import DefinitionStore
from saltvirt.ha.manager.engine import Engine
from saltvirt.ha.manager.journal import HaJournal
from saltvirt.ha.manager.remote_fences import RemoteFences
from saltvirt.ha.model.messages import (
    FenceVote,
    GuestStatus,
    Heartbeat,
    HeartbeatAck,
    HostState,
    LeaderMessage,
)
from saltvirt.ha.model.registry import GuestLocation, HaGuestRecord, HostRecord, Registry
from saltvirt.ha.transport import addresses, frames
from tests.functional import hostile
from tests.strategies import TEXT, cut, parsed_or_refused, twisted

XML = "<domain type='kvm'><name>web1</name><uuid>u</uuid><memory>9</memory><vcpu>1</vcpu></domain>"
REGISTRY = Registry(
    guests={"web1": HaGuestRecord(locations=(GuestLocation("hv1", 1),))},
    hosts={"hv2": HostRecord("fine")},
)
BEAT = Heartbeat(
    "hv1", 1, 7, guests={"web1": GuestStatus(1, "running")}, acks={"hv2": HeartbeatAck(1, 3)},
    silent_s={"hv3": 2.5}, fence_votes={"hv3": FenceVote(1, 1, 1)},
    host_states={"hv3": HostState(1, 2, True)},
    leases={"web1": 4}, registry=REGISTRY,
)  # fmt: skip
CALL = LeaderMessage("m", 1, 5, leading=True, acks={"hv1": HeartbeatAck(1, 3)},
ballots={"hv3": FenceVote(1, 1, 1)},
            registry=REGISTRY)  # fmt: skip
SIZE = {"vcpus": 1, "memory_kib": 9}
WORDS = {
    frames.BEAT: BEAT.to_answer(), frames.CALL: CALL.to_answer(),
    frames.DEFINITION: {"name": "web1", "digest": "d", "xml": XML, "size": SIZE},
    frames.FENCE: FenceRequest("hv3", "1.1.1", FenceSetting("fence_none", {"ip": "x"})).to_answer(),
    frames.FENCED: FenceReply("hv3", "1.1.1", "off", "it is off").to_answer(),
    frames.JOURNAL: {"action": "start", "guest": "web1", "reason": "because"},
    frames.INCOMING: {"guest": "web1", "epoch": 1},
    frames.INCOMING_ANSWER: {"guest": "web1", "epoch": 1, "yes": True},
}  # fmt: skip
SETTINGS = {
    "host": "hv1", "members": {"hv1": "10.0.0.1", "hv2": "10.0.0.2:17000"}, "masters": ["salt"],
    "policy": {"watchdog_s": 20},
}  # fmt: skip
FENCE = {"agent": "fence_ipmilan", "options": {"ip": "10.0.0.9"}, "from": ["hv2"]}
SLOW = bool(os.environ.get("SLOW"))
VALUES = tuple(one for one in hostile.VALUES if SLOW or not isinstance(one, str) or len(one) < 1000)
MORE = ("\ud800", hostile.nested(150), hostile.nested(320), hostile.nested(480), 10**400, 1e308)


@pytest.fixture(autouse=True)
def logged(caplog):
    """What is logged is text that every log can keep, whoever said it."""
    yield
    for one in caplog.get_records("call"):
        one.getMessage().encode()


def cases(kind):
    """Bodies as they come through a frame."""
    speaker = WORDS[kind].get(frames.SPEAKER.get(kind), "x")
    found = hostile.twisted(WORDS[kind], (*VALUES, *MORE))
    for (where, *_), body in hostile.sample(found, kind, None if SLOW else 600):
        try:
            text = json.dumps({"kind": kind, "body": body})
            yield where, frames.parse(text.encode(), speaker)[1]
        except (errors.VirtError, ValueError, TypeError, RecursionError):
            continue  # no JSON has it, or it speaks for another


def hold(kind, hear):
    """hear: called with each wrong body; what is wrong with what comes of it, by its place."""
    wrong, count = {}, 0
    for where, body in cases(kind):
        count += 1
        try:
            hear(body)
        except errors.VirtError as exc:
            if len(exc.text.splitlines()) > 1 or len(exc.text) > 5000:
                wrong[where] = exc.text[:200]
        except Exception as exc:
            wrong[where] = f"{exc!r}"[:200]
    assert count > 20
    assert not wrong, wrong


class Agent:
    """What of the agent's service takes words."""

    def __init__(self):
        self.inbox = of_agent.AgentInbox(("m",), lambda: 1.0)
        self.kept, self.told, self.fenced = [], [], []
        self.guests = self.migrations = self.network = self
        self.fencing = FenceRunner("hv1", lambda: self.inbox.leader_messages, lambda: 1.0, 9,
        self.tell_master,
                               self.fenced.append)  # fmt: skip
        self.guests.definition_cache = self

    def put(self, found):
        assert found.name == "web1"

    def consents(self, _guest, _epoch):
        return True

    def handle_answer(self, _host, guest, epoch, _yes):
        assert isinstance(guest, str) and isinstance(epoch, int)

    def send(self, host, frame):
        assert host == "x" and frame.data

    def tell_master(self, master, told):
        assert master == "x" and json.dumps(told.to_answer())


@pytest.mark.parametrize("kind", [*WORDS])
def test_an_agent_takes_no_harm(kind):
    agent = Agent()
    sender = "m" if kind == frames.CALL else "hv1" if kind == frames.BEAT else "x"

    def hear(body):
        agent.inbox.on_frame(sender, kind, body)
        assert {*agent.inbox.beats, *agent.inbox.leader_messages} <= {sender}
        agent.inbox.believable(2.0, ())
        with pytest.raises(queue.Empty):
            while True:
                Service._handle(agent, agent.inbox.requests.get_nowait())
        Service._handle(agent, of_agent.PeerRequest("x", kind, body, 1.0))

    hold(kind, hear)
    # the master was never heard to lead but in its own words
    assert kind == frames.CALL or not agent.fenced


@pytest.mark.parametrize("kind", [frames.BEAT, frames.DEFINITION, frames.JOURNAL, frames.FENCED])
def test_a_master_takes_no_harm(kind, tmp_path):
    opts = {"cachedir": str(tmp_path)}
    box = of_master.MasterInbox(("hv1", "hv2"), lambda: 1.0)
    remote, kept = RemoteFences(lambda *_: None, lambda _host: True), DefinitionStore(opts)

    class Master:
        inbox, journal = box, HaJournal(opts)
        _journal_act = Engine._journal_act

    Master.remote = remote
    Master.desired = SimpleNamespace(guests={"web1"})
    Master._definition = lambda _self, host, body: kept.put(host, body)

    def hear(body):
        box.receive("hv1", kind, body)
        assert {*box.beats()} <= {"hv1"}
        Engine._process_messages(Master())
        assert {*kept.by_name} <= {"web1"}
        assert {path.name for path in kept.folder.glob("*")} <= {"web1.json"}
        DefinitionStore(opts)

    hold(kind, hear)
    for line in HaJournal(opts).last(10):
        assert line["kind"] == "host" and line["name"] == "hv1" and line["guest"] in ("", "web1")


def test_a_host_displaces_no_message_of_another_and_fills_no_journal():
    now_s = 0.0
    box = of_master.MasterInbox(("hv1", "hv2"), lambda: now_s)
    for _ in range(of_master.JOURNAL_LINES):
        box.receive("hv1", frames.JOURNAL, {})
        assert len(box.take_messages()) == 1
    for kind in (frames.JOURNAL, frames.DEFINITION):
        box.receive("hv1", kind, {})
    assert [kind for _, kind, _ in box.take_messages()] == [frames.DEFINITION]
    now_s = 3600.0
    box.receive("hv1", frames.JOURNAL, {})
    assert [kind for _, kind, _ in box.take_messages()] == [frames.JOURNAL]
    box.receive("hv2", frames.FENCED, {"id": 1})
    for _ in range(of_master.MAX_MESSAGES + 1):
        box.receive("hv1", frames.DEFINITION, {})
    assert ("hv2", frames.FENCED, {"id": 1}) in box.take_messages()


test_it_is_parsed_or_refused_in_one_line = parsed_or_refused({
    "heartbeat": (twisted(WORDS[frames.BEAT]), lambda data: Heartbeat.from_answer(data, "hv1")),
    "call": (twisted(WORDS[frames.CALL]), lambda data: LeaderMessage.from_answer(data, "m")),
    "frame": (
        cut(json.dumps({"kind": "beat", "body": {"host": "x"}})),
        lambda text: frames.parse(text.encode("utf-8", "surrogatepass"), "x"),
    ),
    "settings": (twisted(SETTINGS), lambda data: settings.parse(data, "ha.json")),
    "address": (
        TEXT | cut("10.0.0.1:17000") | cut("[::1]:17"), lambda text: addresses.parse(text, 1),
    ),
    "fence": (twisted(FENCE), lambda data: setting.parse("hv1", data)),
    "definition": (cut(XML), lambda text: definitions.parse("web1", text)),
})  # fmt: skip
