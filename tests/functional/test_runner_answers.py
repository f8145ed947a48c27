"""What a caller of Salt 3007's RunnerClient finds in the answers."""

import importlib.util

import pytest

pytest.importorskip("salt")

from tests.functional.cloud import Fleet
from tests.functional.conftest import REPOSITORY, load


@pytest.fixture(params=["virt"])
def runner(request, tmp_path, monkeypatch, conn):
    """A file of the runner over one host on libvirt's test driver, which has the guest ``test``."""
    path = REPOSITORY / "_runners" / f"{request.param}.py"
    spec = importlib.util.spec_from_file_location("runner", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    fleet = Fleet(load("test:///default"), tmp_path)
    fleet.__class__ = type("Cloud", (Fleet,), {
        "__enter__": lambda self: self, "__exit__": lambda self, *_: None,
    })  # fmt: skip
    monkeypatch.setattr(module, "Fleet", lambda _opts: fleet)
    module.__opts__ = {}
    return module


def test_vm_info_has_the_guest_by_its_name(runner):
    answer = runner.vm_info("test")
    found = answer["data"]["hv1"]
    assert found["test"]["state"] == "running"
    assert found["vm_info"] == {"test": found["test"]}


def test_query_has_what_host_info_had(runner):
    found = runner.query("hv1")["data"]["hv1"]
    assert {"freecpu", "freemem", "node_info", "vm_info"} <= set(found)


@pytest.mark.parametrize("runner", ["virt_guest"], indirect=True)
def test_an_old_name_answers_as_the_new_one(runner):
    answer = runner.stop("test")
    assert answer["outputter"] == "virt_query"
    assert answer["data"]["test"]["comment"] == "test on hv1 was shut down"
    failed = runner.stop("gone")["data"]
    assert (failed["retcode"], failed["gone"]["result"]) == (1, False)
    assert runner.stop("test", timeout="soon") == runner.shutdown("test", timeout="soon")
