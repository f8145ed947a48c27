"""A host's report about a job: whether it is running, and the time of its last step."""

import os
import shutil
import subprocess

import pytest

pytest.importorskip("salt.payload")

import salt.payload

from saltvirt.host.node import job_steps
from tests.functional.conftest import EMPTY, load

JID = "20261121010203000001"


@pytest.fixture
def worker():
    """A process that Salt takes for a job of its minion."""
    sleep = shutil.which("sleep")
    with subprocess.Popen(["salt-minion-of-a-test", "600"], executable=sleep) as one:
        yield one.pid
        one.kill()


@pytest.fixture
def host(tmp_path, worker):
    """The loaded modules, on a host whose minion works at JID."""
    found = load(EMPTY, lock=str(tmp_path / "locks"), images=str(tmp_path))
    proc = tmp_path / "cache" / "proc"
    proc.mkdir(parents=True)
    found.pack["__opts__"]["cachedir"] = found.opts["cachedir"] = str(tmp_path / "cache")
    job = {"jid": JID, "pid": worker, "fun": "virt.answer", "tgt": "hv1"}
    (proc / JID).write_bytes(salt.payload.dumps(job))
    return found


def test_it_tells_when_the_last_step_was_and_how_long_that_may_take(host, tmp_path, worker):
    where, working = tmp_path / "locks" / "steps", host["virt.working"]
    assert working("20261121010203000002") == {}
    assert working(JID) == {"pid": worker}
    host["virt.init"]("web1", 1, 64, disk=None, nic=None, seed=False, start=False)
    assert 0 <= job_steps.last_step(where, os.getpid())["quiet_s"] < 60
    job_steps.record_step(where, 1800)
    os.rename(where / str(os.getpid()), where / str(worker))
    told = working(JID)
    assert (told["pid"], told["within_s"]) == (worker, 1800)
    assert 0 <= told["quiet_s"] < 60


def test_steps_go_with_their_process(tmp_path, worker):
    job_steps.record_step(tmp_path)
    for pid in (worker, 999999999, "999999999.new"):
        (tmp_path / str(pid)).write_text("{}")
    job_steps.clear_steps(tmp_path)
    assert os.listdir(tmp_path) == [str(worker)]
    job_steps.clear_steps(tmp_path / "none")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"at": "x", "within_s": 0}', "\0"])
def test_a_broken_file_is_no_step(host, tmp_path, worker, text):
    where = tmp_path / "locks" / "steps"
    where.mkdir(parents=True)
    (where / str(worker)).write_text(text)
    assert host["virt.working"](JID) == {"pid": worker}
