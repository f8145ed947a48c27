"""One job for all guests that wait for a host: requests, answers, and failures."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.answers.calls import Call
from saltvirt.answers.guest_calls import LIST_STATES
from saltvirt.fleet import answer
from saltvirt.fleet.answer import Answer
from saltvirt.operations.create import batch_queue
from saltvirt.operations.create import batched_jobs as joint_module
from saltvirt.operations.create.batched_jobs import MAX_BATCH, SINGLE_JOBS, BatchedJobs
from saltvirt.operations.journal import slots
from saltvirt.schema import Message
from tests.clock import until


@dataclass(frozen=True)
class NameRequest(Message):
    name: str


POWER, INIT = Call("power", NameRequest, Any), Call("init", NameRequest, Any)


class Fleet:
    """Answers each call with its name; while ``held`` is clear, none of its jobs ends."""

    def __init__(self, tmp_path, says=None):
        self.opts = {"cachedir": str(tmp_path), "virt": {}}
        self.jobs, self.options, self.says = [], [], says
        self.held = threading.Event()
        self.held.set()

    def each(self, host, fun, calls, **options):
        self.jobs.append((host, fun, [call["name"] for call in calls]))
        self.options.append(options)
        assert self.held.wait(120)
        if isinstance(self.says, BaseException):
            raise self.says
        return [Answer(host, data=(host, call["name"])) for call in calls]

    def gather(self, hosts, fun, kwarg, **options):
        self.options.append(options)
        return {host: Answer(host, data=kwarg) for host in hosts}


def asked(together, fleet, several, host="hv1", call=POWER):
    """Futures of as many threads, in the order of the names."""
    pool = ThreadPoolExecutor(len(several))
    try:
        return [pool.submit(together.ask, fleet, host, call, NameRequest(name)) for name in several]
    finally:
        pool.shutdown(wait=False)


def test_who_waits_while_a_host_is_at_work_goes_to_it_in_one_job(tmp_path):
    fleet, together = Fleet(tmp_path), BatchedJobs(4, gather_s=0)
    fleet.held.clear()
    [first] = asked(together, fleet, ["web0"])
    until(lambda: fleet.jobs, "the first job")
    others = asked(together, fleet, [f"web{n}" for n in range(1, 6)])
    until(lambda: len(together._queues["hv1", "power"].waiting) == 5, "the others to wait")
    fleet.held.set()
    assert [one.result(60).data for one in [first, *others]] == [
        ("hv1", f"web{n}") for n in range(6)
    ]
    assert [len(names) for _, _, names in fleet.jobs] == [1, 5]


def test_those_who_come_at_one_moment_are_one_job_of_so_many_at_most(tmp_path, monkeypatch):
    monkeypatch.setattr(joint_module, "MAX_GATHER_S", 60)
    fleet, together = Fleet(tmp_path), BatchedJobs(4, gather_s=1)
    several = [f"web{n}" for n in range(MAX_BATCH + 5)]
    found = {one.result(60).data[1] for one in asked(together, fleet, several)}
    assert found == set(several)
    sizes = [len(names) for _, _, names in fleet.jobs]
    assert sum(sizes) == len(several) and max(sizes) <= MAX_BATCH and len(sizes) <= 4, sizes


def test_when_all_that_are_expected_have_come_nobody_is_waited_for(tmp_path):
    fleet, together = Fleet(tmp_path), BatchedJobs(4, gather_s=600)
    together.coming = {"hv1": 3}
    several = asked(together, fleet, ["a", "b", "c"])
    assert [one.result(60).data[1] for one in several] == ["a", "b", "c"]
    [again] = asked(together, fleet, ["d"])
    assert again.result(60).data == ("hv1", "d"), "one that comes once more waits for nobody"
    assert [len(names) for _, _, names in fleet.jobs] == [3, 1]


def test_another_host_or_function_does_not_wait(tmp_path):
    fleet, together = Fleet(tmp_path), BatchedJobs(4, gather_s=0)
    fleet.held.clear()
    waiting = [
        *asked(together, fleet, ["a"]), *asked(together, fleet, ["b"], host="hv2"),
        *asked(together, fleet, ["c"], call=INIT),
    ]  # fmt: skip
    until(lambda: len(fleet.jobs) == 3, "all three jobs")
    fleet.held.set()
    assert [one.result(60).data for one in waiting] == [("hv1", "a"), ("hv2", "b"), ("hv1", "c")]


@pytest.mark.parametrize(("at_once", "jobs"), [(1, 1), (2, 2)])
def test_so_many_jobs_make_guests_at_a_time_and_each_holds_the_masters_slot(
    tmp_path, at_once, jobs
):
    fleet, together = Fleet(tmp_path), BatchedJobs(at_once, gather_s=0)
    fleet.held.clear()
    waiting = [
        *asked(together, fleet, ["a"], call=INIT),
        *asked(together, fleet, ["b"], host="hv2", call=INIT),
    ]
    until(lambda: len(fleet.jobs) == jobs, "the jobs that may run")
    until(lambda: _slots_held(tmp_path) == jobs, "their slots")
    assert len(fleet.jobs) == jobs
    fleet.held.set()
    assert {one.result(60).data for one in waiting} == {("hv1", "a"), ("hv2", "b")}
    assert len(fleet.jobs) == 2 and _slots_held(tmp_path) == 0


def _slots_held(tmp_path):
    folder = tmp_path / "virt" / "slots"
    free = 0
    for path in folder.glob("init.*"):
        handle = slots.file_lock.take(path, "a test")
        if handle is not None:
            free += 1
            os.close(handle)
    return len([*folder.glob("init.*")]) - free


def test_what_ends_a_job_ends_each_that_it_was_for_and_nobody_else(tmp_path):
    fleet, together = Fleet(tmp_path, errors.ConnectionFailed("the Salt master")), BatchedJobs(4)
    for one in asked(together, fleet, ["a", "b"]):
        with pytest.raises(errors.ConnectionFailed, match="the Salt master"):
            one.result(60)
    fleet.says = None
    [one] = asked(together, fleet, ["c"])
    assert one.result(60).data == ("hv1", "c")


def test_who_did_not_get_a_slot_is_asked_for_by_nobody_else(tmp_path, monkeypatch):
    """Its failure was reported: what another job made of it nobody would read."""
    fleet, together = Fleet(tmp_path), BatchedJobs(4, gather_s=0)
    late = errors.OperationFailed("it is not its turn yet")

    def full(*_arguments):
        raise late

    with monkeypatch.context() as patch:
        patch.setattr(slots, "deploying", full)
        with pytest.raises(errors.OperationFailed, match="not its turn"):
            together.ask(fleet, "hv1", INIT, NameRequest("web1"))
    assert together.ask(fleet, "hv1", INIT, NameRequest("web2")).data == ("hv1", "web2")
    assert fleet.jobs == [("hv1", "virt.init", ["web2"])]


def test_an_answer_too_few_is_nobodys(tmp_path):
    """Who waits for the one that is missing would wait for ever."""
    fleet, joint = Fleet(tmp_path), BatchedJobs(4)
    joint.coming = {"hv1": 2}
    real = fleet.each
    fleet.each = lambda *given, **how: real(*given, **how)[:1]
    failed = [one.exception(20) for one in asked(joint, fleet, ["a", "b"])]
    assert [type(one) for one in failed if one] == [ValueError]


def test_each_is_told_the_steps_of_its_own_guest_that_are_news(tmp_path):
    fleet, together, told, ended = Fleet(tmp_path), BatchedJobs(4), [], []
    watch = ("salt/virt/web1/init/", lambda tag, _data: told.append(tag))
    quiet = (120, 900, lambda: ended.append(True))
    together.ask(fleet, "hv1", INIT, NameRequest("web1"), watch, quiet)
    [options] = fleet.options
    prefix, tell = options["watch"]
    assert prefix == "salt/virt/"
    tell("salt/virt/web1/init/disk", {})
    tell("salt/virt/web1/init/warning", {})
    tell("salt/virt/web1/init/seed", {"within_s": 60})
    tell("salt/virt/web10/init/warning", {})
    assert told == ["salt/virt/web1/init/warning", "salt/virt/web1/init/seed"]
    quiet_s, most_s, when_quiet = options["on_stall"]
    when_quiet()
    assert (quiet_s, most_s, ended) == (120, 900, [True])


def test_a_question_without_a_watcher_subscribes_to_nothing(tmp_path):
    fleet = Fleet(tmp_path)
    BatchedJobs(4).ask(fleet, "hv1", POWER, NameRequest("web1"))
    assert fleet.options == [{"watch": None, "on_stall": None}]


def test_alone_each_has_a_job_of_its_own(tmp_path):
    fleet = Fleet(tmp_path)
    watch = ("salt/virt/web1/init/", print)
    found = SINGLE_JOBS.ask(fleet, "hv1", INIT, NameRequest("web1"), watch)
    assert found.data == {"name": "web1"}
    assert fleet.options == [{"long": True, "watch": watch, "on_stall": None}]


def test_a_job_is_as_patient_as_the_least_patient_of_those_it_is_for(tmp_path):
    fleet, together, told = Fleet(tmp_path), BatchedJobs(4), []
    together.coming = {"hv1": 2}
    pool = ThreadPoolExecutor(2)
    both = [
        pool.submit(together.ask, fleet, "hv1", INIT, NameRequest(name), None, quiet)
        for name, quiet in (
            ("a", (120, 300, lambda: told.append("a"))), ("b", (60, 900, lambda: told.append("b"))),
        )
    ]  # fmt: skip
    assert all(one.result(60) for one in both)
    [options] = fleet.options
    quiet_s, most_s, when_quiet = options["on_stall"]
    when_quiet()
    assert (quiet_s, most_s, sorted(told)) == (60, 300, ["a", "b"])


def test_to_start_guests_takes_no_slot_and_a_guest_of_many_none_of_its_own(tmp_path):
    fleet, together = Fleet(tmp_path), BatchedJobs(4, gather_s=0)
    fleet.held.clear()
    [one] = asked(together, fleet, ["a"])
    until(lambda: fleet.jobs, "the job")
    assert _slots_held(tmp_path) == 0
    with together.deploying(fleet.opts, print, "virt.init of a") as slot:
        assert _slots_held(tmp_path) == 0
        slot.close()
    fleet.held.set()
    assert one.result(60).data == ("hv1", "a")


def test_alone_each_has_a_slot_of_its_own(tmp_path):
    opts = {"cachedir": str(tmp_path), "virt": {}}
    with SINGLE_JOBS.deploying(opts, print, "virt.init of web1") as slot:
        assert _slots_held(tmp_path) == 1
        slot.close()
        assert _slots_held(tmp_path) == 0


def test_the_slot_of_a_job_is_freed_when_its_host_is_quiet(tmp_path):
    fleet, together = Fleet(tmp_path), BatchedJobs(4, gather_s=0)
    fleet.held.clear()
    pool = ThreadPoolExecutor(1)
    quiet = (120, 900, lambda: None)
    one = pool.submit(together.ask, fleet, "hv1", INIT, NameRequest("a"), None, quiet)
    until(lambda: fleet.options, "the job")
    assert _slots_held(tmp_path) == 1
    fleet.options[0]["on_stall"][2]()
    assert _slots_held(tmp_path) == 0
    fleet.held.set()
    assert one.result(60).data == ("hv1", "a")


# -- who waits, and who wakes whom: without threads, so each time the same -------------------------


class Others:
    """In the place of a Condition and of the clock: what others do while one waits. happens: what
    is called then, one after the other; None: a pause is over, of a second."""

    def __init__(self, line, monkeypatch, *happens):
        self.now, self.pauses, self.happens, self.told = 100, 0, list(happens), []
        self.line = line
        line.changed = self
        monkeypatch.setattr(joint_module, "time", self)

    def monotonic(self):
        return self.now

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        pass

    def notify_all(self):
        self.told.append((len(self.line.waiting), self.line.is_busy))

    def wait_for(self, over, most_s=None):
        self.pauses += most_s is not None
        while not over() and self.happens:
            event = self.happens.pop(0)
            if event is None:
                break
            event()
        else:
            assert over() or most_s, "it waits for ever"
            return
        assert most_s, "nobody who waits for an answer gives up"
        self.now += most_s


def line_of(joint, expected=None, is_busy=False):
    """The queue of one function of one host."""
    line = joint_module._HostQueue("hv1", POWER, expected, 1, joint._create_slots)
    line.is_busy = is_busy
    joint._queues["hv1", "power"] = line
    return line


def ask(joint, fleet):
    return joint.ask(fleet, "hv1", POWER, NameRequest("web1"))


def comes(line):
    """Somebody else, who then waits."""
    call = joint_module._GuestCall(None, NameRequest("other"), None, None)
    line.waiting.append(batch_queue.QueuedRequest(call))


def test_others_are_woken_when_one_comes_when_the_answers_are_there_and_when_nobody_asks(
    tmp_path, monkeypatch
):
    fleet, joint = Fleet(tmp_path), BatchedJobs(4)
    others = Others(line_of(joint), monkeypatch, None)
    assert ask(joint, fleet).data == ("hv1", "web1")
    assert others.told == [(1, False), (0, True), (0, False)]


def test_who_got_an_answer_with_others_asks_nobody_and_leaves_them_at_it(tmp_path, monkeypatch):
    fleet, joint = Fleet(tmp_path), BatchedJobs(4)
    line = line_of(joint, is_busy=True)

    def answered():
        line.waiting.pop().set_result(Answer("hv1", data="with others"))

    Others(line, monkeypatch, answered)
    assert ask(joint, fleet).data == "with others"
    assert (fleet.jobs, line.is_busy) == ([], True)


def test_who_waited_longest_asks_when_nobody_does(tmp_path, monkeypatch):
    fleet, joint = Fleet(tmp_path), BatchedJobs(4)
    line = line_of(joint, is_busy=True)
    Others(line, monkeypatch, lambda: setattr(line, "is_busy", False), None)
    real, busy = fleet.each, []
    fleet.each = lambda *given, **how: busy.append(line.is_busy) or real(*given, **how)
    assert ask(joint, fleet).data == ("hv1", "web1")
    assert (busy, line.is_busy) == ([True], False)


@pytest.mark.parametrize(
    ("happens", "pauses", "guests"),
    [
        (["nobody"], 1, 1), (["one", "nobody"], 2, 2), (["one", "two", "nobody"], 3, 4),
        (["one"] * 9, 3, 4), (["many"], 1, MAX_BATCH),
    ],
)  # fmt: skip
def test_so_long_others_are_waited_for(tmp_path, monkeypatch, happens, pauses, guests):
    fleet, joint = Fleet(tmp_path), BatchedJobs(4)
    line = line_of(joint)
    number = {"nobody": 0, "one": 1, "two": 2, "many": MAX_BATCH - 1}
    said = []
    for word in happens:
        said += [*[lambda: comes(line)] * number[word], None]
    others = Others(line, monkeypatch, *said)
    ask(joint, fleet)
    assert others.pauses == pauses
    assert [len(names) for _, _, names in fleet.jobs] == [guests]


@pytest.mark.parametrize(("asked", "pauses"), [(0, 1), (1, 1), (2, 0), (5, 0)])
def test_who_had_an_answer_already_is_expected_no_more(tmp_path, monkeypatch, asked, pauses):
    fleet, joint = Fleet(tmp_path), BatchedJobs(4)
    line = line_of(joint, expected=3 - asked)
    happens = [*[lambda: comes(line)] * (2 - asked), *[None] * (asked > 1)]
    others = Others(line, monkeypatch, *happens)
    ask(joint, fleet)
    assert (others.pauses, others.now) == (pauses, 100)


# -- what such a job answers ----------------------------------------------------------------------

WHOLE = Answer("hv1", data=[
    {"return": {"web1": "running"}, "retcode": 0},
    {"return": "ERROR: refused: no room: memory", "retcode": 1},
])  # fmt: skip


def test_each_call_has_its_own_answer():
    first, second = answer.split_answers(WHOLE, "virt.vm_state", 2)
    assert first.get() == {"web1": "running"}
    with pytest.raises(errors.NoRoom, match="hv1: memory"):
        second.get()


@pytest.mark.parametrize("kind", [answer.DOWN, answer.SILENT, answer.LOST, answer.FAILED])
def test_what_became_of_the_job_became_of_each(kind):
    whole = Answer("hv1", error="why", kind=kind)
    assert answer.split_answers(whole, "virt.vm_state", 2) == [whole, whole]


@pytest.mark.parametrize("said", [None, {}, "x", [], WHOLE.data[:1], [*WHOLE.data, {}], 7])
def test_an_answer_that_is_not_one_of_each_is_of_nobody(said):
    found = answer.split_answers(Answer("hv1", data=said), "virt.vm_state", 2)
    assert [one.kind for one in found] == [answer.BAD] * 2


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ({"return": ["web1"], "retcode": 0}, answer.BAD),
        ({"return": {"web1": 7}, "retcode": 0}, answer.BAD),
        ("running", answer.FAILED), (None, answer.FAILED), ({}, answer.BAD),
        ({"return": "ERROR: x", "retcode": 1}, answer.FAILED),
    ],
)  # fmt: skip
def test_one_that_misfits_spoils_no_other(said, kind):
    whole = Answer("hv1", data=[said, WHOLE.data[0]])
    read = LIST_STATES.function, LIST_STATES.read
    first, second = (one.parse(*read) for one in answer.split_answers(whole, "virt.vm_state", 2))
    assert first.kind == kind and not first.ok
    assert second.ok
