"""Answers of the runner as callers of Salt 3007's RunnerClient expect them."""

import fcntl
import importlib.util

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.host.domain import addresses
from saltvirt.operations.access import owners
from saltvirt.operations.cluster import hooks
from saltvirt.operations.guest import lifecycle
from tests.functional.cloud import Fleet
from tests.functional.conftest import REPOSITORY, load

CLOUD = "saltvirt.pki.authority.cloud"


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
    monkeypatch.setattr(module, "Fleet", lambda _opts: fleet, raising=False)
    module.__opts__, module.__salt__ = {"cachedir": str(tmp_path)}, {}
    return module


@pytest.mark.parametrize("runner", ["virt_inspect"], indirect=True)
def test_vm_info_has_the_guest_by_its_name(runner):
    answer = runner.vm_info("test")
    found = answer["data"]["hv1"]
    assert list(found) == ["test"]
    assert (found["test"]["state"], found["test"]["addresses"]) == ("running", [])


@pytest.mark.parametrize("runner", ["virt_inspect"], indirect=True)
def test_vm_info_has_all_about_a_guest(runner, conn, tmp_path):
    guest = conn.lookupByName("test")
    for snapshot in ("before", "after"):
        guest.snapshotCreateXML(f"<domainsnapshot><name>{snapshot}</name></domainsnapshot>")
    opts = runner.Fleet({}).opts
    owners.set_owner(opts, guest.UUIDString(), "test", "anna")
    owners.set_labels(opts, guest.UUIDString(), "test", ("web", "shop"))
    answer = runner.vm_info("test")["data"]
    found = answer["hv1"]["test"]
    assert "retcode" not in answer and "unknown" not in found
    assert (found["owner"], found["labels"]) == ("anna", ["web", "shop"])
    assert [(s["name"], s["current"]) for s in found["snapshots"]] == [
        ("before", False), ("after", True)
    ]  # fmt: skip
    assert found["usage"]["memory_bytes"] == 2 << 30
    assert found["usage"]["cpu_percent"] is not None
    guest.destroy()
    off = runner.vm_info("test")["data"]["hv1"]["test"]
    assert (off["state"], off["usage"], off["autostart"]) == ("shutdown", None, False)


@pytest.mark.parametrize("runner", ["virt_inspect"], indirect=True)
def test_vm_info_of_a_paused_guest_does_not_ask_its_agent(runner, conn, monkeypatch):
    monkeypatch.setattr(addresses, "has_agent", lambda _dom: True)
    guest = conn.lookupByName("test")
    guest.suspend()
    try:
        answer = runner.vm_info("test")["data"]
    finally:
        guest.resume()
    assert "retcode" not in answer
    assert (answer["hv1"]["test"]["state"], answer["hv1"]["test"]["addresses"]) == ("paused", [])


@pytest.mark.parametrize("runner", ["virt_inspect"], indirect=True)
def test_vm_info_says_what_is_unknown(runner, conn, monkeypatch):
    """A hook of a feature, a damaged record of the owner, an agent that is busy."""
    opts = runner.Fleet({}).opts
    uuid = conn.lookupByName("test").UUIDString()
    owners.set_owner(opts, uuid, "test", "anna")
    owners._path(opts, uuid).write_text("{", encoding="utf-8")

    def busy(_dom):
        raise errors.OperationFailed("the guest agent is busy")

    monkeypatch.setattr(addresses, "of_agent", busy)
    described = {"backups": None, "unknown": {"backups": "vault: no answer"}}
    monkeypatch.setattr(hooks, "describe_guest", lambda *_asked: [dict(described)])
    answer = runner.vm_info("test")["data"]
    found = answer["hv1"]["test"]
    assert answer["retcode"] == 1
    assert found["state"] == "running"
    assert found["unknown"]["addresses"] == "the guest agent is busy"
    assert found["unknown"]["backups"] == "vault: no answer"
    assert "is damaged" in found["unknown"]["owner"]


@pytest.mark.parametrize("runner", ["virt_inspect"], indirect=True)
def test_query_has_what_host_info_had(runner):
    found = runner.query("hv1")["data"]["hv1"]
    assert {"freecpu", "freemem", "node_info", "vm_info"} <= set(found)


@pytest.mark.parametrize("runner", ["virt_guest"], indirect=True)
def test_a_word_that_deletes_no_snapshot_deletes_none(runner):
    failed = runner.delete_snapshots("test", al=True)["data"]
    assert failed["retcode"] == 1
    assert "al is not an argument of virt.delete_snapshots" in str(failed)


def test_power_a_guest_that_is_paused_stays_so_over_a_reset(runner, conn, tmp_path):
    conn.lookupByName("test").suspend()
    found = lifecycle.plan(runner.Fleet({}), "test", "reset")
    assert (found.host, found.before, found.after) == ("hv1", "paused", "paused")


def test_when_no_host_is_free_each_ones_reason_is_said(runner):
    """The test driver's host has promised more memory than it has."""
    failed = runner.next_host()["data"]
    assert failed["retcode"] == 1
    assert "no host is free: hv1: " in str(failed)


@pytest.mark.parametrize("runner", ["virt_pki"], indirect=True)
def test_a_ca_that_some_still_trust_is_no_rotation_that_is_done(runner, tmp_path, monkeypatch):
    runner.__opts__ = {"pki_dir": str(tmp_path)}
    late = {"hv7": "down", "hv2": "no answer"}
    for told, comment in (
        ((None, late), "the new CA is in use; still trusting the old one: hv2 (no answer); "
                       "hv7 (down): apply virt.keys there. "),
        (("trust", late), "the rotation waits in phase 'trust' for hv2 (no answer); hv7 (down). "),
    ):  # fmt: skip
        monkeypatch.setattr(f"{CLOUD}.rotate", lambda *_asked, told=told: told)
        found = runner.rotate_ca()["data"]
        assert (found["retcode"], found["CA"]["result"]) == (1, False)
        assert found["CA"]["comment"].startswith(comment)


@pytest.mark.parametrize("runner", ["virt_pki"], indirect=True)
@pytest.mark.parametrize(
    ("told", "result", "comment"),
    [
        ((None, {"hv1": None, "hv2": None}), None,
         "both CAs would be replaced, and the certificates of hv1, hv2"),
        (("trust", {"hv1": None, "hv2": "down"}), False,
         "the rotation in phase 'trust' would continue, and the certificates of hv1, hv2; it would "
         "wait for hv2 (down)"),
    ],
)  # fmt: skip
def test_the_plan_of_a_rotation(runner, tmp_path, monkeypatch, told, result, comment):
    runner.__opts__ = {"pki_dir": str(tmp_path)}
    monkeypatch.setattr(f"{CLOUD}.rotation_plan", lambda *_asked: told)
    monkeypatch.setattr(f"{CLOUD}.rotate", None)
    found = runner.rotate_ca(test=True)["data"]
    assert found["CA"] == {"result": result, "comment": comment}
    assert ("retcode" in found) is (result is False)


@pytest.mark.parametrize("runner", ["virt_pki"], indirect=True)
@pytest.mark.parametrize(
    ("skip", "names"),
    [("hv1, 10", ["hv1", "10"]), (10, ["10"]), (None, []), ([10, "b"], ["10", "b"])],
)
def test_who_is_not_waited_for_in_a_rotation(runner, tmp_path, monkeypatch, skip, names):
    """YAML reads a name of digits as a number."""
    runner.__opts__ = {"pki_dir": str(tmp_path)}
    given = []
    monkeypatch.setattr(
        runner.cloud, "rotate",
        lambda _fleet, _store, _rules, skip, _report: given.extend(skip) or (None, {}),
    )  # fmt: skip
    assert runner.rotate_ca(skip=skip)["data"]["CA"]["result"] is True
    assert given == names


@pytest.mark.parametrize("runner", ["virt_deploy"], indirect=True)
def test_what_a_start_has_run_is_told_as_it_ended(runner, tmp_path, monkeypatch):
    ran = []
    runner.__opts__ = {"cachedir": str(tmp_path)}
    monkeypatch.setattr("saltvirt.fleet.target.hosts", lambda _opts: ["hv1"])
    done = {"outputter": "highstate", "retcode": 1}
    runner.__salt__ = {"state.orchestrate": lambda **asked: ran.append(asked) or done}
    found = runner.started("hv1")["data"]
    assert found["hv1"]["result"] is False
    assert found["hv1"]["comment"] == "hv1: virt.orch.hypervisor failed"
    assert found["hv1"]["orchestration"] == done
    assert (found["retcode"], ran) == (1, [{"mods": "virt.orch.hypervisor",
                                            "pillar": {"hypervisor": "hv1"}}])  # fmt: skip
    assert "nothing to do" in runner.started("web1")["data"]["web1"]["comment"]
    with (tmp_path / "virt/starts/hv1.next").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        waits = runner.started("hv1")["data"]["hv1"]
    assert (waits["result"], len(ran)) == (True, 1)
    assert "another run is waiting" in waits["comment"]


OTHERS = "<domain type='test'><name>my guest</name><memory>8192</memory><os><type>hvm</type></os>"


@pytest.mark.parametrize("runner", ["virt_guest", "virt_inspect"], indirect=True)
def test_a_guest_of_others_may_have_any_name(runner, conn):
    conn.defineXML(f"{OTHERS}</domain>")
    runner.Fleet({}).opts["timeout"] = 5
    if hasattr(runner, "vm_info"):
        assert list(runner.vm_info("my guest")["data"]["hv1"]) == ["my guest"]
        found = [runner.locate("my guest"), runner.addresses("my guest")]
    else:
        found = [runner.start("my guest", overcommit=True), runner.snapshot("my guest", "s1"),
                 runner.snapshots("my guest"), runner.force_off("my guest")]  # fmt: skip
    assert [answer["data"]["my guest"]["result"] for answer in found] == [True] * len(found)


@pytest.mark.parametrize("runner", ["virt_guest"], indirect=True)
def test_a_variable_that_is_not_set_names_no_snapshot(runner, conn):
    guest = conn.lookupByName("test")
    for name in "ab":
        guest.snapshotCreateXML(f"<domainsnapshot><name>{name}</name></domainsnapshot>")
    for test in (True, False):
        told = runner.revert("test", "", test=test)["data"]["test"]
        assert told["result"] is False and "snapshot is empty" in told["comment"]
        told = runner.delete_snapshots("test", "a", all=True, test=test)["data"]["test"]
        assert told["result"] is False and "all=True deletes every snapshot" in told["comment"]
    assert guest.snapshotNum() == 2
