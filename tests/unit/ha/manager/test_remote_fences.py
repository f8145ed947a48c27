"""Fences that other hosts run for the leader: the hosts that it asks, and the answers that it
accepts."""

import threading

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.ha.agent.fencing import FenceRunner
from saltvirt.ha.fencing.agents import FenceOutcome
from saltvirt.ha.fencing.setting import FenceSetting
from saltvirt.ha.manager import remote_fences
from saltvirt.ha.manager.config import Member
from saltvirt.ha.manager.fencer import FenceAgentPool
from saltvirt.ha.manager.remote_fences import RemoteFences
from saltvirt.ha.model.messages import FenceVote, LeaderMessage, ReceivedMessage
from saltvirt.ha.model.view import Fence, FenceResult
from tests.clock import Clock, until

SETTING = FenceSetting("fence_x", {"ip": "10.1.0.1"}, "/etc/salt/bmc", ("hv2", "hv3"))
FENCE = Fence("hv1", 0, "4.7.0")


def at_work():
    """The threads of fences → does the process end without them?"""
    return {one.name: one.daemon for one in threading.enumerate() if one.name.startswith("fence ")}


def no_thread(monkeypatch):
    """Python has none for a fence."""

    real = threading.Thread.start

    def start(thread):
        if thread.name.startswith("fence "):
            raise RuntimeError("can't start new thread")
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)


class Hosts:
    """says: what a host answers when it is asked; one that is not there says nothing."""

    def __init__(self, **says):
        self.says, self.heard, self.asked = says, {"hv2", "hv3"}, []
        self.on_asked = lambda: None
        self.remote = RemoteFences(self.tell, self.heard.__contains__)

    def tell(self, host, kind, body):
        self.asked.append((host, kind, body))
        self.on_asked()
        if host in self.says:
            told = {"host": "hv1", "attempt": body["attempt"], **self.says[host]}
            threading.Thread(target=self.remote.handle_reply, args=(host, told)).start()

    def names(self):
        return [host for host, _, _ in self.asked]


def test_the_first_that_sees_it_off_is_the_last_that_is_asked():
    hosts = Hosts(hv2={"state": "off"}, hv3={"state": "off"})
    assert hosts.remote.off(FENCE, SETTING) == FenceOutcome("off", "from hv2: off")
    [(host, kind, body)] = hosts.asked
    assert (host, kind) == ("hv2", "fence")
    assert body == {"host": "hv1", "attempt": "4.7.0", "fence": SETTING.to_answer()}


def test_one_that_does_not_reach_the_board_is_followed_by_the_next():
    hosts = Hosts(hv2={"state": "timed out", "message": "no route\x1b"}, hv3={"state": "off"})
    found = hosts.remote.off(FENCE, SETTING)
    assert (found.state, hosts.names()) == ("off", ["hv2", "hv3"])
    assert "from hv2: timed out: no route" in found.message and "\x1b" not in found.message


def test_one_that_is_gone_is_not_asked_and_one_that_dies_meanwhile_is_given_up(monkeypatch):
    monkeypatch.setattr(remote_fences, "_POLL_S", 0.01)
    hosts = Hosts()
    hosts.heard.discard("hv2")
    hosts.on_asked = threading.Timer(0.1, hosts.heard.clear).start
    assert hosts.remote.off(FENCE, SETTING).state == "timed out"
    assert hosts.names() == ["hv3"]


def test_one_that_says_nothing_is_not_waited_for_without_end(monkeypatch):
    monkeypatch.setattr(remote_fences, "_POLL_S", 0.01)
    monkeypatch.setattr(remote_fences, "TIMEOUT_S", 0.05)
    found = Hosts().remote.off(FENCE, SETTING)
    assert found.state == "timed out" and found.message.count("no answer within") == 2


def test_nobody_is_believed_for_more_than_he_was_asked(monkeypatch):
    monkeypatch.setattr(remote_fences, "_POLL_S", 0.01)
    hosts = Hosts()
    told = {"host": "hv1", "attempt": "4.7.0", "state": "off"}
    hosts.remote.handle_reply("hv2", told)  # before it was asked
    found = []
    worker = threading.Thread(target=lambda: found.append(hosts.remote.off(FENCE, SETTING)))
    worker.start()
    until(lambda: hosts.asked, "the question")
    hosts.remote.handle_reply("hv3", told)
    hosts.remote.handle_reply("hv2", {**told, "attempt": "4.7.1"})
    hosts.remote.handle_reply("hv2", {**told, "host": "hv9"})
    with pytest.raises(errors.BadAnswer, match=r"state 'off{18}'$"):
        hosts.remote.handle_reply("hv2", {**told, "state": f"off{'f' * 30}"})
    assert not found
    hosts.heard.clear()
    worker.join(60)
    assert found[0].state == "timed out"
    assert hosts.remote._pending == {}, "it keeps nothing of those that it asked"


def test_an_attempt_goes_to_other_hosts_where_its_fence_says_so():
    hosts = Hosts(hv2={"state": "off"})
    fencer = FenceAgentPool({"hv1": Member("hv1", fences=(SETTING,))}, lambda _: 1 / 0)
    fencer.remote = hosts.remote
    fencer.begin(FENCE)
    until(lambda: fencer.results, "it ended")
    assert fencer.results == {"hv1": FenceResult("4.7.0", "off")}


# -- the host that runs it -------------------------------------------------------------------------


class Runs:
    """hv2's agent, and what it hears of the master salt."""

    def __init__(self, **call):
        self.clock, self.told, self.ran = Clock(100), [], []
        ballots = {"hv1": FenceVote(3, 4, 7)}
        self.call = LeaderMessage("salt", 4, 1, **{"leading": True, "ballots": ballots, **call})
        self.at_s, self.gate = 99, threading.Event()
        self.gate.set()
        self.one = FenceRunner("hv2", self.calls, self.clock.monotonic, 6, self.tell, self.off)

    def calls(self):
        return {"salt": ReceivedMessage(self.call, self.at_s)} if self.call else {}

    def tell(self, master, told):
        self.told.append((master, told))

    def off(self, setting):
        self.ran.append(setting)
        self.gate.wait(120)
        return FenceOutcome("off", "done")

    def asks(self, master="salt", **more):
        body = {"host": "hv1", "attempt": "4.7.0", "fence": SETTING.to_answer(), **more}
        before = len(self.told)
        self.one.handle(master, body)
        until(lambda: len(self.told) > before, "an answer")
        return self.told[-1][1]


def test_a_host_runs_the_fence_that_it_is_asked_for_and_says_how_it_ended():
    runs = Runs()
    told = runs.asks()
    assert (told.host, told.attempt, told.state, told.message) == ("hv1", "4.7.0", "off", "done")
    assert runs.ran == [SETTING] and runs.told[0][0] == "salt"


@pytest.mark.parametrize("call, asked, why", (
    ({"leading": False}, {}, "no current leader message from salt"),
    ({}, {"master": "other"}, "no current leader message from other"),
    ({"ballots": {}}, {}, "salt no longer asks to fence hv1"),
    ({"ballots": {}}, {"attempt": "4"}, "salt no longer asks to fence hv1"),
    ({"ballots": {}}, {"attempt": ""}, "salt no longer asks to fence hv1"),
    ({}, {"attempt": "4.6.0"}, "salt no longer asks to fence hv1"),
    ({}, {"attempt": "4"}, "salt no longer asks to fence hv1"),
    ({}, {"host": "hv3"}, "salt no longer asks to fence hv3"),
    ({}, {"host": "hv2"}, "a host does not fence itself"),
    ({}, {"fence": {"agent": "sh"}}, "agent must be the name of a fence agent"),
    ({}, {"fence": {"agent": "fence_x", "options": {"a": "x\naction=on"}}}, "single line of text"),
    ({}, {"fence": {"agent": "fence_x", "password_file": "x"}}, "must be an absolute path"),
))  # fmt: skip
def test_a_question_that_is_wrong_or_no_longer_right_is_not_followed(call, asked, why):
    runs = Runs(**call)
    told = runs.asks(**asked)
    assert told.state == "timed out" and why in told.message and runs.ran == []


def test_a_question_that_came_late_is_not_followed():
    """It waited for a connection; the host that it is about may be well by now."""
    runs = Runs()
    runs.at_s = 94
    assert "no current leader message" in runs.asks().message and runs.ran == []
    runs.call = None
    assert "no current leader message" in runs.asks().message and runs.ran == []


def test_what_is_no_question_is_refused():
    with pytest.raises(errors.BadAnswer):
        Runs().one.handle("salt", {"host": "hv1"})


def test_a_fence_is_run_once_at_a_time():
    runs = Runs()
    runs.gate.clear()
    body = {"host": "hv1", "attempt": "4.7.0", "fence": SETTING.to_answer()}
    runs.one.handle("salt", body)
    until(lambda: runs.ran, "it runs")
    assert "already running" in runs.asks(attempt="4.7.1").message
    runs.gate.set()
    until(lambda: runs.told[-1][1].state == "off", "it ended")
    assert runs.asks(attempt="4.7.2").state == "off"


def test_a_fence_at_work_keeps_no_agent_from_its_end():
    runs = Runs()
    runs.gate.clear()
    runs.one.handle("salt", {"host": "hv1", "attempt": "4.7.0", "fence": SETTING.to_answer()})
    until(lambda: runs.ran, "it runs")
    assert at_work()["fence hv1"] is True
    runs.gate.set()
    until(lambda: runs.told, "it ended")


def test_a_fence_for_which_there_is_no_thread_is_told_and_may_be_run_again(monkeypatch):
    """The host has no memory for one; it was held to be at work for ever."""
    runs = Runs()
    with monkeypatch.context() as without:
        no_thread(without)
        told = runs.asks()
    assert (told.state, told.message) == ("timed out", "can't start new thread")
    assert runs.asks(attempt="4.7.1").state == "off"


def test_whom_a_host_fences_for_whom_is_in_its_journal(caplog):
    Runs().asks()
    assert caplog.messages == [
        "fencing for salt: hv1 with fence_x", "result of the fence of hv1: off done",
    ]  # fmt: skip


def test_an_agent_that_cannot_be_run_is_told():
    runs = Runs()

    def off(_setting):
        raise errors.OperationFailed("fence_x is not installed here")

    runs.one._off = off
    assert runs.asks().message == "fence_x is not installed here"
    assert runs.asks().state == "timed out"
