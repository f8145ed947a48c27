"""What a caller of Salt 3007's RunnerClient finds in the answers."""

import importlib.util

import pytest

pytest.importorskip("salt")

from tests.functional.cloud import Fleet
from tests.functional.conftest import REPOSITORY, load


@pytest.fixture
def runner(tmp_path, monkeypatch, conn):
    """The runner over one host on libvirt's test driver, which has the guest ``test``."""
    spec = importlib.util.spec_from_file_location("runner", REPOSITORY / "_runners/virt.py")
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
