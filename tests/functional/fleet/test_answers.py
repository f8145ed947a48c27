"""virt.answers: several calls of one function in one job, signed as one answer."""

import errno
import importlib.util
import os

import pytest

pytest.importorskip("salt")
pytest.importorskip("libvirt")

import salt.utils.event
from salt.exceptions import SaltException

import saltvirt
from saltvirt import errors
from saltvirt.fleet import answer, proof
from saltvirt.host.node import job_steps
from tests.clock import until
from tests.functional.conftest import REPOSITORY, load
from tests.unit.fleet.test_proof import make_key

JID = "20261123090000000001"


@pytest.fixture
def host(tmp_path):
    """(the module of a host on libvirt's test driver, its public key)."""
    path = REPOSITORY / "_modules" / "virt_host.py"
    spec = importlib.util.spec_from_file_location("virt_host", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    private, public = make_key()
    (tmp_path / "minion.pem").write_bytes(private)
    module.__opts__ = {"id": "hv1", "pki_dir": str(tmp_path)}
    module.__salt__ = load("test:///default", lock=str(tmp_path / "lock"))
    module.__context__ = {}
    return module, public


def asked(host, fun, calls):
    """What the runner makes of the host's answer to each of the calls."""
    module, public = host
    returned = proof.verify("hv1", JID, fun, module.answers(fun, calls, __pub_jid=JID), public)
    return answer.split_answers(answer.from_return("hv1", returned), fun, len(calls))


def test_each_call_says_what_it_would_have_said_alone(host, conn):
    calls = [{"vm_": "test"}, {"vm_": "test", "nonsense": 1}, {"vm_": "gone"}, {}]
    found = asked(host, "virt.vm_state", calls)
    alone = [host[0].answer("virt.vm_state", call, __pub_jid=JID)["said"] for call in calls]
    again = [answer.from_return("hv1", one) for one in alone]
    assert found == again
    assert [one.ok for one in found] == [True, False, False, True]
    assert found[0].get() == {"test": "running"}
    assert host[0].__context__ == {"retcode": 1}, "of those that were asked alone"


def test_one_that_fails_stops_none_after_it(host, conn):
    calls = [
        {"name": name, "verb": verb, "states": ["running"]}
        for name, verb in (("gone", "stop"), ("test", "nonsense"), ("test", "stop"))
    ]
    gone, bad, done = asked(host, "virt.power", calls)
    assert gone.get() == {"before": None, "after": None}
    assert not bad.ok
    assert done.get() == {"before": "running", "after": "shutdown"}
    assert not conn.lookupByName("test").isActive()


@pytest.mark.parametrize(
    ("fun", "each", "words"),
    [
        ("cmd.run", [{"cmd": "id"}], "must be a function of virt"),
        ("virt.vm_state", {"vm_": "test"}, "each must be a list"),
        ("virt.vm_state", ["test"], r"each\[0\] must be a dictionary, not str"),
        (7, [], "must be a function of virt"),
    ],
)
def test_what_the_runner_never_asks_is_refused(host, fun, each, words):
    with pytest.raises(errors.InvalidInput, match=words):
        host[0].answers(fun, each)


@pytest.mark.parametrize(("fun", "said"), [
    ("virt.no_such", "'virt.no_such' is not available."),
    ("virt.breaks", "internal error: ZeroDivisionError('division by zero') "
                    "(the host's minion log has the traceback)"),
    ("virt.vm_state", "ERROR: no guest 'gone' on "),
    ("virt.fills", "ERROR: cannot write its files: No space left on device"),
])  # fmt: skip
def test_what_fails_by_itself_is_told_as_a_person_reads_it(host, conn, caplog, fun, said):
    """A fault of ours has its traceback in the host's log, and nothing else has one."""
    module = host[0]

    def fill():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    module.__salt__["virt.breaks"], module.__salt__["virt.fills"] = lambda: 1 / 0, fill
    kwarg = {"vm_": "gone"} if fun == "virt.vm_state" else {}
    told = module.answer(fun, kwarg, __pub_jid=JID)["said"]
    assert told["return"].startswith(said) and told["retcode"] == 1
    assert module.__context__ == {"retcode": 1}
    assert ("Traceback" in caplog.text) is (fun == "virt.breaks")


def test_a_call_of_a_handler_is_searched_in_no_module_of_salt(host, conn):
    """Salt loads all modules of a minion before it says that none has the function."""

    class Modules(dict):
        def __contains__(self, function):
            raise AssertionError(f"{function} is searched")

    module, _ = host
    module.__salt__ = Modules(module.__salt__)
    said = module.answer("virt.usage", {}, __pub_jid=JID)["said"]
    assert (said["retcode"], set(said["return"]["guests"])) == (0, {"test"})


# -- what is told meanwhile -----------------------------------------------------------------------


@pytest.fixture
def bus(monkeypatch):
    """Messages that the minion was given for its master; ``raises``: instead."""

    class Bus:
        messages, raises = [], None

        def __init__(self, opts, listen=True):
            assert (opts["id"], listen) == ("hv1", False)

        def __enter__(self):
            return self

        def __exit__(self, *_error):
            return False

        def fire_event(self, data, tag):
            if self.raises:
                raise self.raises
            self.messages.append((tag, data))

    Bus.messages = []
    monkeypatch.setattr(salt.utils.event, "MinionEvent", Bus)
    return Bus


def tell(module, several):
    """A function of the host that tells these steps, one a call."""
    alone = []
    module.__salt__["virt.tells"] = lambda step: job_steps.send_step(
        lambda tag, data: alone.append((tag, data)), f"salt/virt/web1/init/{step}", {"step": step}
    )
    module.answers("virt.tells", [{"step": step} for step in several], __pub_jid=JID)
    return alone


def test_steps_of_a_job_of_many_go_out_together_and_arrive_as_if_alone(host, bus):
    assert tell(host[0], ["check", "disk"]) == []
    [(tag, sent)] = bus.messages
    assert tag == "fire_master"
    assert [one["tag"] for one in sent["events"]] == [
        "salt/virt/web1/init/check", "salt/virt/web1/init/disk",
    ]  # fmt: skip
    # what a master fires of a single event is the whole message, of several the data of each
    assert sent["events"][0]["data"] == {
        "id": "hv1", "cmd": "_minion_event", "pretag": None, "data": {"step": "check"},
        "tag": "salt/virt/web1/init/check",
    }  # fmt: skip


def test_a_step_waits_for_no_long_work_to_end(bus):
    with job_steps.batch_events(bus.messages.append):
        job_steps.send_step(None, "salt/virt/web1/init/disk", {})
        until(lambda: bus.messages, "the step to be told")
    assert [[tag for tag, _ in one] for one in bus.messages] == [["salt/virt/web1/init/disk"]]


def test_what_was_told_before_a_failure_is_not_lost(bus):
    with pytest.raises(ValueError, match="ends"), job_steps.batch_events(bus.messages.append):
        job_steps.send_step(None, "salt/virt/web1/init/disk", {})
        raise ValueError("it ends")
    assert len(bus.messages) == 1
    alone = []
    job_steps.send_step(lambda tag, data: alone.append((tag, data)), "x", {})
    assert alone == [("x", {})], "afterwards each goes alone"


@pytest.mark.parametrize("error", [OSError("no bus"), SaltException("no minion")])
def test_a_minion_that_passes_nothing_on_stops_no_work(host, bus, error, caplog):
    bus.raises = error
    assert tell(host[0], ["check"]) == []
    assert "1 events of steps were not sent" in caplog.text


def test_where_no_minion_runs_each_step_goes_alone(host, bus):
    host[0].__opts__["__cli"] = "salt-call"
    assert [tag for tag, _ in tell(host[0], ["check"])] == ["salt/virt/web1/init/check"]
    assert bus.messages == []


@pytest.mark.parametrize("function", ["answer", "answers"])
def test_a_library_that_was_replaced_meanwhile_is_said_signed(host, monkeypatch, function):
    """As by a minion that has begun the job before a sync, and has imported nothing yet."""
    module, public = host

    def check():
        raise errors.StaleLibrary("saltvirt was updated while this process ran")

    monkeypatch.setattr(saltvirt, "check", check)
    monkeypatch.setattr(saltvirt, "fresh", lambda: saltvirt)
    for name in ("errors", "base", "values"):
        monkeypatch.setattr(module, name, saltvirt.Later(f"saltvirt.{name}", {}))
    returned = getattr(module, function)("virt.vm_state", [], __pub_jid=JID)
    proven = proof.verify("hv1", JID, "virt.vm_state", returned, public)
    found = answer.from_return("hv1", proven)
    assert found.kind == answer.FAILED
    assert found.error == "saltvirt was updated while this process ran"
