"""Decisions and comments of states."""

import pytest

from saltvirt.errors import InvalidInput, NotFound, OperationFailed, Unsupported
from saltvirt.states import guests, outcome, power, result


class Host:
    """Answers of the execution module, and what it was called with."""

    test = False

    def __init__(self, **answers):
        self.answers = {"creation_phase": {"phase": "complete", "used": None}, **answers}
        self.calls = []
        self.keeps = ""

    def ha_reason(self, _name):
        return self.keeps

    def call(self, function, *args, **kwargs):
        if function != "creation_phase":
            self.calls.append((function, *args))
        answer = self.answers[function]
        answer = answer(*args) if callable(answer) else answer
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_an_answer_without_changes_is_no_question():
    assert result.answer("a", {}, "fine", test=True)["result"] is True
    assert result.answer("a", {"a": 1}, "more", test=True)["result"] is None
    assert result.answer("a", {"a": 1}, "more")["result"] is True


def test_a_minion_without_our_module_is_one_line_and_no_traceback():
    host = result.StateHost({"test.ping": bool}, {}, True)
    with pytest.raises(Unsupported, match=r"^this minion has no virt.pool_converge: .*sync_all"):
        host.call("pool_converge", "data")


def test_a_failure_keeps_what_was_done_and_says_why():
    answer = result.answer("a", {"a": 1}, "a changed", True, [OperationFailed("no start")])
    assert answer == {
        "name": "a",
        "changes": {"a": 1},
        "result": False,
        "comment": "a changed. no start",
    }


def state(host, name, known, **more):
    return result.answer(name, {"given": {"known": known, **more}}, str(host.connect))


@pytest.mark.parametrize(
    ("kwargs", "comment"),
    [
        ({"knwon": 1}, "virt.x: unknown 'knwon', did you mean 'known'?"),
        ({"usernam": 1}, "virt.x: unknown 'usernam', did you mean 'username'?"),
        ({"__id__": "x"}, "{'connection': 'test:///'}"),
        ({"also": 2}, "{'connection': 'test:///'}"),
        ({"aggregate": True}, "{'connection': 'test:///'}"),
        ({"pillar": {"a": 1}, "pillar_enc": "gpg"}, "{'connection': 'test:///'}"),
        ({"concurrent": True}, "{'connection': 'test:///'}"),
    ],
)
def test_words_that_no_state_knows_are_refused(kwargs, comment):
    given = {"name": "a", "known": 1, "connection": "test:///", "username": None, "kwargs": kwargs}
    assert result.run("virt.x", given, {}, False, state, ["also"])["comment"] == comment


def test_what_the_execution_module_raises_is_the_answer():
    def fails(host, name):
        return host.call("start", name)

    def start(name, connection):
        raise OperationFailed(f"cannot start {name} at {connection}")

    given = {"name": "a", "connection": "test:///", "kwargs": {}}
    answer = result.run("virt.x", given, {"virt.start": start}, False, fails)
    assert (answer["result"], answer["comment"]) == (False, "cannot start a at test:///")


def test_a_name_means_itself_and_a_pattern_all_that_fit():
    there = Host(list_domains=["web1", "web2", "db", "web[1]"])
    assert power.matching(there, "web[1]") == ["web[1]"]
    assert power.matching(there, "web?") == ["web1", "web2"]
    with pytest.raises(NotFound, match="no guest of this host matches mail"):
        power.matching(there, "mail*")


@pytest.mark.parametrize(
    ("names", "result", "comment"),
    [([], True, "No guest is running"), (["a", "b"], False, "Running guests: a, b")],
)
def test_a_host_on_which_guests_run_is_not_idle(names, result, comment):
    answer = power.no_guests(Host(running_names=names), "idle")
    assert (answer["result"], answer["changes"], answer["comment"]) == (result, {}, comment)


@pytest.mark.parametrize(
    ("changes", "done", "test", "comment"),
    [
        ({"a": 1}, [], False, "Pool p updated. Read this"),
        ({"a": 1}, [], True, "Pool p would be updated. Read this"),
        ({"a": 1}, ["defined", "started", "defined"], True, "Pool p would be defined, started. R"),
        ({}, [], True, "Pool p is in the desired state. Read this"),
    ],
)
def test_what_was_done_is_one_line(changes, done, test, comment):
    found = outcome.StateOutcome("pool p", changes, done, ["Read this"]).show(test)
    assert found["changes"] == changes
    assert found["comment"].startswith(comment)


def test_one_that_fails_does_not_keep_the_others():
    states = {"a": "running", "b": "shutdown", "c": "running"}
    host = Host(
        list_domains=list(states),
        vm_state=lambda name: {name: states[name]},
        stop=lambda name: OperationFailed(f"cannot stop {name}") if name == "a" else True,
    )
    answer = power.powered_off(host, "*")
    assert answer["changes"] == {"unpowered": [{"domain": "c", "stop": True}]}
    assert (answer["result"], answer["comment"]) == (False, "powered off: c. cannot stop a")


def test_several_go_down_side_by_side():
    host = Host(list_domains=["a", "b"], vm_state=lambda name: {name: "running"}, shutdown=True)
    assert power.stopped(host, "*", 5, False)["result"] is True
    asked = [call for call in host.calls if call[0] == "shutdown"]
    assert asked == [("shutdown", name) for name in "abab"]


def test_a_disk_that_is_replaced_is_one_difference():
    out = {"path": "disks:vda", "old": "/a", "new": None, "live": True}
    into = {"path": "disks:vda", "old": None, "new": "/b", "live": False}
    assert guests.differences([out, into]) == {
        "disks:vda": {"old": "/a", "new": "/b", "live": False}
    }


GUEST = {"update": True, "live": True, "detach": False, "cpu": 1, "mem": 64}


@pytest.mark.parametrize(
    ("given", "profiles"),
    [
        ({}, {}),
        ({"disks": []}, {"disk": None}),
        ({"disks": [], "disk_profile": "big"}, {}),
        ({"interfaces": [], "nic_profile": None}, {"nic": None}),
    ],
)
def test_a_list_without_a_profile_is_all_there_shall_be(given, profiles):
    seen = {}

    class Init(Host):
        def call(self, function, *args, **kwargs):
            seen.update(kwargs)
            return super().call(function, *args, **kwargs)

    guests.defined(Init(list_domains=[], init={"disks": []}), "a", **GUEST, **given)
    assert {word: seen[word] for word in ("disk", "nic") if word in seen} == profiles


@pytest.mark.parametrize("given", [GUEST, {**GUEST, "update": False}])
def test_a_guest_whose_creation_was_interrupted_is_made_anew(given):
    host = Host(
        list_domains=["a"],
        creation_phase={"phase": "interrupted", "used": None},
        init={"disks": [{"target": "vda", "path": "/a"}]},
    )
    answer = guests.running(host, "a", **given)
    assert answer["changes"] == {"a": {"definition": True, "disks": {"vda": "/a"}, "started": True}}
    assert [call[0] for call in host.calls] == ["list_domains", "init"]


@pytest.mark.parametrize(
    ("phase", "used", "kept", "words"),
    [
        ("interrupted", "it is running", "", "was interrupted, but it is running: it stays"),
        ("interrupted", None, "a is kept", "was interrupted, but a is kept: it stays"),
        ("creating", None, "", "a is being created: apply the state again"),
    ],
)
def test_a_guest_whose_creation_has_not_ended_is_left_alone(phase, used, kept, words):
    host = Host(list_domains=["a"], creation_phase={"phase": phase, "used": used})
    host.keeps = kept
    for state in (guests.running, guests.defined):
        with pytest.raises(OperationFailed, match=words):
            state(host, "a", **GUEST)
    assert {call[0] for call in host.calls} == {"list_domains"}


@pytest.mark.parametrize(
    ("state", "done", "ok"),
    [
        ("running", {}, True),
        ("paused", {"a": {"resumed": True}}, True),
        ("pmsuspended", {"a": {"resumed": True}}, True),
        ("shutdown", {"a": {"started": True}}, True),
        ("crashed", {}, False),
    ],
)
def test_running_from_each_state(state, done, ok):
    host = Host(list_domains=["a"], vm_state={"a": state}, start=True, resume=True)
    host.answers["update"] = {"definition": False}
    answer = guests.running(host, "a", **GUEST)
    assert (answer["result"], answer["changes"]) == (ok, done)


KEPT = "a is kept by high availability on hv2 (salt-run virt.ha_status)"


def test_a_guest_that_is_kept_is_neither_made_nor_started_here():
    """It may run elsewhere: a highstate while its old host boots started it a second time."""
    host = Host(list_domains=[], init={"disks": []})
    host.keeps = KEPT
    with pytest.raises(OperationFailed, match=r"kept by high availability on hv2 .*created again"):
        guests.running(host, "a", **GUEST)
    for state in ("shutdown", "paused"):
        host = Host(list_domains=["a"], vm_state={"a": state}, update={"definition": False})
        host.keeps = KEPT
        answer = guests.running(host, "a", **GUEST)
        assert answer["result"] is False
        assert f"{KEPT}, and it is not running here: it is not started" in answer["comment"]
        assert {call[0] for call in host.calls} == {"list_domains", "update", "vm_state"}
    host = Host(list_domains=["a"], vm_state={"a": "running"}, update={"definition": False})
    host.keeps = KEPT
    assert guests.running(host, "a", **GUEST)["result"] is True


def test_one_that_is_kept_does_not_start_with_its_host():
    given = {}

    class Update(Host):
        def call(self, function, *args, **kwargs):
            given.update(kwargs)
            return super().call(function, *args, **kwargs)

    host = Update(list_domains=["a"], vm_state={"a": "running"}, update={"definition": False})
    host.keeps = KEPT
    answer = guests.defined(host, "a", **GUEST, autostart=True)
    assert answer["comment"] == f"a is in the desired state; {KEPT}, which starts it, not its host"
    assert given["cpu"] == 1 and "autostart" not in given


def test_a_hypervisor_has_no_say_in_what_is_kept():
    with pytest.raises(InvalidInput, match="ha can only be set by the master"):
        guests.running(Host(list_domains=[]), "a", **GUEST, ha=True)
