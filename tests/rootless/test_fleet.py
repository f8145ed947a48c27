"""The Fleet with a real bus: answers, timeouts, and the hosts that it believes."""

import os
import re
import shutil
import time

import pytest

from saltvirt import errors
from saltvirt.fleet import answer, client, proof
from tests.clock import until
from tests.lab import paths, process
from tests.rootless.cloud import PATIENCE_S

SLEEP = "virt.takes"
STOLEN = {"said": {"return": {"stolen": "running"}, "retcode": 0}, "proof": "AAAA"}


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """A busy machine takes its time to ask a minion whether it is at work."""
    monkeypatch.setattr(client, "PROBE_S", 60)


@pytest.fixture
def fleet(cloud):
    with cloud.fleet() as found:
        yield found


def test_each_host_answers_for_itself_and_signs(cloud, fleet):
    assert fleet.hosts() == list(cloud.hosts)
    found = fleet.gather(cloud.hosts, "virt.vm_state")
    assert {host: one.data for host, one in found.items()} == {
        host: {"test": "running"} for host in cloud.hosts
    }
    unsigned = cloud.salt("hv1", proof.FUNCTION, "virt.vm_state")["hv1"]
    assert set(unsigned) == {"said", "proof"}


def test_a_host_that_is_none_is_named_with_those_that_are(fleet):
    with pytest.raises(errors.NotFound, match="'hv9' is not a hypervisor of this master"):
        fleet.hosts("hv9")


@pytest.mark.parametrize(
    ("fun", "kwarg", "words"),
    [
        ("virt.vm_info", {"vm_": "nobody"}, "nobody"),
        ("virt.no_such_function", None, "no_such_function"),
        ("virt.breaks", {"message": "on purpose"}, "on purpose"),
    ],
)
def test_what_fails_on_a_host_is_one_line_of_that_host(fleet, fun, kwarg, words):
    found = fleet.gather(["hv1"], fun, kwarg)["hv1"]
    assert (found.kind, found.data) == (answer.FAILED, None)
    assert words in found.error
    assert "\n" not in found.error


def jobs(cloud, fleet, fun):
    """How many jobs of a function were published by now."""
    cloud.asked_by_now(fleet)
    return sum(one.tag.endswith("/new") and one.data["fun"] == fun for one in cloud.events.store)


def test_one_job_has_several_calls_and_each_is_answered_for_itself(cloud, fleet):
    before = jobs(cloud, fleet, proof.EACH)
    calls = [{"vm_": "test"}, {"vm_": "nobody"}, {"vm_": "test"}]
    first, second, third = fleet.each("hv1", "virt.vm_info", calls)
    assert first.get()["test"]["state"] == third.get()["test"]["state"] == "running"
    assert (second.kind, second.data) == (answer.FAILED, None) and "nobody" in second.error
    assert jobs(cloud, fleet, proof.EACH) == before + 1


class Clock:
    """Seconds since it was made, and no more than ``most_s``, however slow the machine is; until
    somebody is seen to be at work: then it is ``jump_s`` later. What never happens has an end."""

    def __init__(self, most_s, jump_s=0):
        self.began, self.most_s, self.jump_s = time.monotonic(), most_s, jump_s

    def __call__(self):
        now_s = time.monotonic() - self.began
        return now_s if now_s > PATIENCE_S else min(now_s, self.most_s)

    def watch(self, fleet, monkeypatch):
        proven = fleet.verify

        def heard(host, jid, fun, event):
            found = proven(host, jid, fun, event)
            if fun == client.WORKING and found and found["return"]:
                self.most_s += self.jump_s
                self.began -= self.jump_s
            return found

        monkeypatch.setattr(fleet, "verify", heard)


@pytest.mark.parametrize(
    ("fun", "signed"),
    [
        (SLEEP, True),
        # a guest's minion has no library: it is asked by Salt's own find_job, and signs nothing
        ("test.sleep", False),
    ],
)
def test_a_host_at_work_is_waited_for_three_times_the_time_out(cloud, fun, signed):
    with cloud.fleet(Clock(most_s=2.9)) as fleet:
        found = fleet.gather(["hv1"], fun, {"length": 2}, timeout_s=1, signed=signed)["hv1"]
    assert found.get() is True


def test_and_no_longer(cloud, monkeypatch):
    clock = Clock(most_s=2.9, jump_s=1)
    with cloud.fleet(clock) as fleet:
        clock.watch(fleet, monkeypatch)
        found = fleet.gather(["hv1"], SLEEP, {"length": 60}, timeout_s=1)["hv1"]
    assert found.kind == answer.SILENT
    # a quick machine hears that it is at work before the three time-outs, a slow one after them
    assert re.match("no answer in [34] s: its minion works at the job", found.error)


def test_a_long_job_is_waited_for_while_there_is_progress(fleet):
    assert fleet.call("hv1", SLEEP, {"length": 3}, timeout_s=1) is True


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ({"stall_timeout": 2}, "no progress for 2 s (virt:stall_timeout)"),
        ({"job_timeout": 2}, "at work for 2 s (virt:job_timeout)"),
    ],
)
def test_a_long_job_has_an_end(cloud, limit, words):
    with cloud.fleet(virt={"hosts": "hv*", **limit}) as fleet:
        found = fleet.gather(["hv1"], SLEEP, {"length": 12}, timeout_s=1, long=True)["hv1"]
    assert found.kind == answer.SILENT
    assert words in found.error


def test_who_waits_is_told_once_that_it_takes_long(fleet):
    told = []
    quiet = (1, 60, lambda: told.append(True))
    assert fleet.call("hv1", SLEEP, {"length": 4}, timeout_s=1, on_stall=quiet) is True
    assert told == [True]


def test_the_steps_of_a_host_are_shown_while_it_works(fleet):
    seen = []
    sent = {"tag": "rootless/step/hv1", "data": {"step": "half\x1b[2J", "percent": 50}}
    watch = ("rootless/step", lambda tag, data: seen.append((tag, data)))
    for one in fleet.ask(["hv1"], "virt.steps", sent, watch=watch):
        assert one.get() is True
    [(tag, data)] = seen
    assert tag == "rootless/step/hv1"
    assert (data["step"], data["percent"]) == ("half", 50)


class Deaf:
    """The master's bus without the returns of a job: ``lost`` is how many did not arrive."""

    def __init__(self, fleet, monkeypatch):
        self.lost = 0
        self.get_event = fleet.client.event.get_event
        monkeypatch.setattr(fleet.client.event, "get_event", self.heard)

    def heard(self, **how):
        event = self.get_event(**how)
        if event and how.get("match_type") == "regex" and "/ret/" in event["tag"]:
            self.lost += 1
            return None
        return event


def test_a_return_that_the_bus_lost_is_read_where_the_master_wrote_it_down(fleet, monkeypatch):
    deaf = Deaf(fleet, monkeypatch)
    found = fleet.gather(["hv1"], "virt.vm_state", timeout_s=1, long=True)["hv1"]
    assert (found.get(), deaf.lost) == ({"test": "running"}, 1)


def test_a_return_that_is_nowhere_is_lost_and_not_waited_for(fleet, monkeypatch):
    Deaf(fleet, monkeypatch)
    monkeypatch.setattr(client, "RETURNS_S", 2)
    monkeypatch.setattr(fleet.client, "get_cache_returns", lambda jid: {})
    found = fleet.gather(["hv1"], "virt.vm_state", timeout_s=2, long=True)["hv1"]
    assert found.kind == answer.LOST
    with pytest.raises(errors.ConnectionFailed, match="the answer did not reach the master"):
        found.get()


@pytest.fixture
def gone(cloud):
    """hv3, which was accepted and has no connection."""
    keys = os.path.join(cloud.opts()["pki_dir"], "minions")
    shutil.copy(os.path.join(keys, "hv2"), os.path.join(keys, "hv3"))
    yield "hv3"
    os.unlink(os.path.join(keys, "hv3"))


def test_a_host_without_a_connection_is_down_and_holds_up_nobody(cloud, fleet, gone):
    assert fleet.hosts() == [*cloud.hosts, gone]
    found = fleet.gather(fleet.hosts(), "virt.vm_state")
    assert [found[host].ok for host in cloud.hosts] == [True, True]
    assert found[gone].kind == answer.DOWN


def test_a_host_that_is_down_is_told_to_do_nothing(cloud, fleet, gone):
    before = cloud.asked_by_now(fleet)
    with pytest.raises(errors.ConnectionFailed, match="hv3: down: no connection to the master"):
        fleet.call(gone, "virt.define", {"xml": "<domain/>"}, timeout_s=2)
    fleet.call("hv1", "virt.list_domains")
    until(lambda: "virt.list_domains" in cloud.asked()[before:], "the last question")
    assert cloud.asked()[before:] == ["test.ping", "virt.list_domains"]


def test_of_a_host_that_is_down_no_call_is_answered(fleet, gone):
    found = fleet.each(gone, "virt.vm_info", [{"vm_": "test"}, {"vm_": "nobody"}], timeout_s=2)
    assert [(one.kind, one.data) for one in found] == [(answer.DOWN, None)] * 2


@pytest.fixture
def of_masters(cloud, tmp_path):
    """Fleet of a master of masters, which has the key of hv1 and not that of hv2."""
    (tmp_path / "minions").mkdir()
    keys = os.path.join(cloud.opts()["pki_dir"], "minions")
    shutil.copy(os.path.join(keys, "hv1"), tmp_path / "minions")
    with cloud.fleet(order_masters=True, pki_dir=str(tmp_path), syndic_wait=3) as found:
        yield found
    os.unlink(os.path.join(cloud.opts()["cachedir"], "virt/below"))


def test_a_master_of_masters_finds_who_has_another_master_by_asking(of_masters):
    assert of_masters.hosts() == ["hv1", "hv2"]
    assert of_masters.direct_hosts() == ["hv1"]
    found = of_masters.gather(["hv1", "hv2"], "virt.vm_state")
    assert found["hv1"].get() == found["hv2"].get() == {"test": "running"}


@pytest.fixture(scope="module")
def forger(cloud):
    """hv2 answers for hv1 as well, whose minion is stopped; what Fleet had for both."""
    modules = cloud.minions["hv2"].config["extension_modules"]
    shutil.copy(paths.REPOSITORY / "tests/integration/forge.py", f"{modules}/modules/")
    clock = Clock(most_s=1.9)
    with cloud.fleet(clock) as fleet, process.still(cloud.minions["hv1"].pid):
        given = {"host": "hv1", "data": STOLEN, "seconds": 12}
        jid = fleet.client.cmd_async("hv2", "forge.returns", kwarg=given)
        until(lambda: jid in os.listdir(cloud.proc("hv2")), "the forger")
        answers = {}
        for one in fleet.ask(cloud.hosts, "virt.vm_state", timeout_s=2):
            answers[one.host] = one
            clock.most_s = PATIENCE_S  # hv2 has its time to answer, hv1 its time-out
        yield answers
    until(lambda: cloud.salt("hv1", "test.ping").get("hv1") is True, "hv1")
    os.unlink(f"{modules}/modules/forge.py")


def test_a_host_that_stands_still_is_silent_and_holds_up_nobody(forger):
    assert forger["hv2"].get() == {"test": "running"}
    assert not forger["hv1"].ok


def test_nobody_answers_for_another_host(cloud, forger):
    assert forger["hv1"].data is None
    assert forger["hv1"].kind in (answer.SILENT, answer.BAD)
    kept = [path for path in cloud.written_jobs() if b"stolen" in path.read_bytes()]
    assert kept, "the forger was never heard, so nothing was tried"
