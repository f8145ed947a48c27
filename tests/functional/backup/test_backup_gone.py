"""A guest of a silent host is restored elsewhere only with a proof that the host is off."""

import importlib.util
import os
import time
from dataclasses import replace

import pytest

pytest.importorskip("salt")
pytest.importorskip("libvirt")

from saltvirt.fleet.answer import DOWN, Answer
from saltvirt.ha.manager import files, status_file
from saltvirt.ha.model.registry import FENCED, SUSPECTED, HostRecord, Registry
from saltvirt.ha.model.view import SavedMasterState
from saltvirt.system import file_lock
from tests.functional.backed_up import UUID, Guest
from tests.functional.cloud import Fleet
from tests.functional.conftest import REPOSITORY, load

pytestmark = pytest.mark.skipif(not os.path.exists("/usr/bin/qemu-img"), reason="no qemu-img")


class Cloud(Fleet):
    """hv1 had the guest and is silent; hv2 has the target, and answers."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def hosts(self, only=None):
        return ["hv1", "hv2"]

    def seen(self, hosts):
        return {"hv2"} & set(hosts)

    def ask(self, hosts, fun, kwarg=None, **options):
        for host in hosts:
            if host == "hv1":
                yield Answer("hv1", error="no connection", kind=DOWN)
                continue
            for answer in super().ask([host], fun, kwarg):
                yield replace(answer, host=host)


@pytest.fixture
def run(tmp_path, monkeypatch, conn):
    """The verb with test=True, on a master whose high availability says this of hv1."""
    guest = Guest(tmp_path / "target")
    guest.back_up()
    path = REPOSITORY / "_runners" / "virt_backup.py"
    spec = importlib.util.spec_from_file_location("runner", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    fleet = Cloud(load("test:///default", lock=str(tmp_path / "lock")), tmp_path)
    vault = {"host": "hv2", "folder": guest.target.folder.root}
    fleet.opts["virt"] = {"backup": {"targets": {"vault": vault}}}
    monkeypatch.setattr(module, "Fleet", lambda _opts: fleet)
    module.__opts__, module.__salt__ = fleet.opts, {}

    def call(state=None, works=True, **given):
        if state:
            fleet.opts["virt"]["ha"] = {"members": {"hv1": {}, "hv2": {}}}
            kept = SavedMasterState(
                registry=Registry(hosts={"hv1": HostRecord(state, reason="off")})
            )
            files.write(status_file.state_path(fleet.opts), kept)
            files.write(
                status_file.report_path(fleet.opts), status_file.EngineReport(time.time(), "m")
            )
            if works:
                os.set_inheritable(
                    file_lock.take(status_file.lock_path(fleet.opts), "the engine"), False
                )
        found = module.backup_restore("web1", test=True, **given)["data"]
        return found[given.get("new", "web1")]

    return call


def test_silence_is_no_proof(run):
    found = run(host="hv2")
    assert found["result"] is False
    assert "it may be on a host that does not answer: hv1" in found["comment"]


@pytest.mark.parametrize(
    ("state", "works", "done"),
    [(FENCED, True, None), (SUSPECTED, True, False), (FENCED, False, False)],
)
def test_it_is_what_high_availability_has_proven(run, state, works, done):
    found = run(state, works, host="hv2")
    assert found["result"] is done, found
    assert "on hv2 from 000001" in found["comment"] or done is False


def test_the_operator_may_know(run):
    assert run(host="hv2", name_is_free=True)["result"] is None


def test_it_is_not_made_beside_itself_when_it_is_called_otherwise(run, conn):
    """Two would have one UUID and one MAC address, and their backups be taken for one guest's."""
    dom = conn.defineXML(
        f"<domain type='test'><name>web9</name><uuid>{UUID}</uuid><memory>1024</memory>"
        "<os><type>hvm</type></os></domain>"
    )
    try:
        found = run(host="hv2", name_is_free=True)
        assert found["result"] is False
        assert "exists as web9 on hv2: restore it under another name" in found["comment"]
        assert run(host="hv2", new="web7", name_is_free=True)["result"] is None
    finally:
        dom.undefine()
