"""Running fences: their start, the detection of their end, and results that are no proof."""

import queue
from types import SimpleNamespace

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.ha.fencing.agents import FenceOutcome
from saltvirt.ha.fencing.setting import FenceSetting
from saltvirt.ha.manager.config import Member
from saltvirt.ha.manager.fencer import MAX_FENCES, FenceAgentPool, FenceEnd
from saltvirt.ha.model.view import Fence, FenceResult
from tests.clock import until
from tests.unit.ha.manager.test_remote_fences import at_work, no_thread

LEVELS = (FenceSetting("fence_a"), FenceSetting("fence_b"), FenceSetting("fence_c", hosts=("hv2",)))


class Fences(FenceAgentPool):
    """hv1 and many more have three fences each, the last run by hv2; hv0 has none. Each fence that
    began ends when it is told to."""

    def __init__(self):
        members = {f"hv{number}": Member("", fences=LEVELS) for number in range(1, MAX_FENCES + 2)}
        self.says = {one.agent: queue.SimpleQueue() for one in LEVELS}
        super().__init__({"hv0": Member(""), **members}, lambda one: self.said(one.hosts, one))
        self.remote = SimpleNamespace(off=lambda fence, one: self.said((fence.host, "hv2"), one))

    def said(self, where, setting):
        found = self.says[setting.agent].get(timeout=120)
        if isinstance(found, Exception):
            raise found
        return FenceOutcome(found, " by ".join(where))

    def begins(self, attempt="4.7.0", level=0, host="hv1"):
        return self.begin(Fence(host, level, attempt))

    def end(self, says, level=0):
        """One that is at work, by its level, ends so."""
        self.says[LEVELS[level].agent].put(says)
        [found] = until(self.take_finished, "its end")
        return found

    def ends(self, attempt, says):
        self.begins(attempt)
        return self.end(says)


def test_how_many_fences_a_host_has():
    levels = Fences().levels
    assert (levels["hv0"], levels["hv1"], len(levels)) == (0, 3, MAX_FENCES + 2)


@pytest.mark.parametrize("level, words", [(0, ""), (1, ""), (2, "hv1 by hv2")])
def test_a_fence_ends_once_and_is_seen(level, words):
    fences = Fences()
    assert fences.begins(level=level) is True
    assert (fences.results, fences.take_finished()) == ({}, [])
    found = fences.end("off", level)
    assert found == FenceEnd(
        Fence("hv1", level, "4.7.0"), LEVELS[level].agent, FenceOutcome("off", words)
    )
    assert fences.take_finished() == []
    assert fences.results == {"hv1": FenceResult("4.7.0", "off")}


def test_all_that_ended_meanwhile_are_told_at_once():
    fences = Fences()
    for level, says in enumerate(("on", "off")):
        fences.begins(f"4.7.{level}", level)
        fences.says[LEVELS[level].agent].put(says)
    until(lambda: "fence hv1" not in at_work(), "their ends")
    assert {end.outcome.state for end in fences.take_finished()} == {"on", "off"}


@pytest.mark.parametrize("host, level", [("hv0", 0), ("hv1", 3), ("hv99", 0)])
def test_what_is_no_fence_is_not_begun(host, level):
    fences = Fences()
    assert fences.begins(host=host, level=level) is False


def test_a_fence_is_not_begun_while_it_is_at_work_but_the_next_one_is():
    fences = Fences()
    assert fences.begins() is True
    assert fences.begins("4.7.3") is False
    assert fences.begins("4.7.1", level=1) is True
    fences.end("on", level=1)
    assert fences.begins("4.7.3") is False
    fences.end("on")
    assert fences.begins("4.7.3") is True
    fences.end("on")


def test_only_so_many_are_at_work_at_once():
    fences = Fences()
    assert all(fences.begins(host=f"hv{number}") for number in range(1, MAX_FENCES + 1))
    assert fences.begins(host=f"hv{MAX_FENCES + 1}") is False
    fences.end("off")
    assert fences.begins(host=f"hv{MAX_FENCES + 1}") is True
    for _ in range(MAX_FENCES):
        fences.end("off")


def test_a_fence_at_work_keeps_no_engine_from_its_end():
    fences = Fences()
    fences.begins()
    assert at_work()["fence hv1"] is True
    fences.end("on")


@pytest.mark.parametrize("raised, words", [
    (errors.OperationFailed("not installed"), "not installed"),
    (ValueError("x"), "internal error: ValueError('x')"),
])  # fmt: skip
def test_a_fence_that_fails_is_no_proof_and_may_be_run_again(caplog, raised, words):
    fences = Fences()
    assert fences.ends("4.7.0", raised).outcome == FenceOutcome("timed out", words)
    assert fences.results == {"hv1": FenceResult("4.7.0", "timed out")}
    assert ("the fence of hv1" in caplog.messages) is words.startswith("internal error")
    assert fences.begins("4.7.1") is True
    fences.end("off")


def test_a_fence_for_which_there_is_no_thread_has_failed_and_may_be_run_again(monkeypatch):
    """The master has no memory for one; it was held to be at work for ever."""
    fences = Fences()
    with monkeypatch.context() as without:
        no_thread(without)
        assert fences.begins() is True
    [found] = fences.take_finished()
    assert found.outcome == FenceOutcome("timed out", "can't start new thread")
    assert fences.results == {"hv1": FenceResult("4.7.0", "timed out")}
    assert fences.begins("4.7.1") is True
    fences.end("off")


@pytest.mark.parametrize("first, then, proves", [
    (("4.7.0", "off"), ("4.7.1", "timed out"), "4.7.0"),
    (("4.7.0", "off"), ("4.7.1", "on"), "4.7.0"),
    (("4.7.0", "on"), ("4.7.1", "off"), "4.7.1"),
    (("4.7.0", "timed out"), ("4.7.1", "on"), "4.7.1"),
    (("4.7.0", "off"), ("4.8.0", "on"), "4.8.0"),
    (("4.7.0", "off"), ("5.7.0", "on"), "5.7.0"),
    (("4.9.0", "on"), ("4.10.0", "on"), "4.10.0"),
    (("4.8.0", "off"), ("4.7.1", "on"), "4.8.0"),
    (("4.8.0", "off"), ("4.7.1", "off"), "4.8.0"),
    (("5.1.0", "on"), ("4.7.1", "off"), "5.1.0"),
])  # fmt: skip
def test_what_is_seen_of_a_host_is_the_proof_of_its_last_question_or_its_last_end(
    first, then, proves
):
    """A fence may end when another one has seen the host off, or its question is no more."""
    fences = Fences()
    fences.ends(*first)
    fences.ends(*then)
    assert fences.results == {"hv1": FenceResult(proves, dict([first, then])[proves])}


def test_what_is_seen_of_one_host_is_nothing_of_another():
    fences = Fences()
    fences.ends("4.7.0", "off")
    fences.begins("4.7.0", host="hv2")
    fences.end("on")
    assert fences.results == {"hv1": FenceResult("4.7.0", "off"), "hv2": FenceResult("4.7.0", "on")}
