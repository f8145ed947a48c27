"""``virt.backup_prune`` and ``virt.backup_verify``: the runner with the host's own functions and
real backups."""

import importlib.util
import json
import os
from pathlib import Path

import pytest

pytest.importorskip("salt")

from tests.functional.backed_up import UUID, Guest, assert_whole
from tests.functional.cloud import Fleet
from tests.functional.conftest import REPOSITORY, load

pytestmark = pytest.mark.skipif(not os.path.exists("/usr/bin/qemu-img"), reason="no qemu-img")


@pytest.fixture
def guest(tmp_path):
    """Three backups on each other, then one by itself."""
    found = Guest(tmp_path / "target")
    for number in (1, 2, 3):
        found.write(number, number)
        found.back_up()
    found.back_up(whole=True)
    return found


@pytest.fixture
def run(tmp_path, monkeypatch, guest):
    """Calls a verb, on a master with these settings of ``virt:backup``."""
    path = REPOSITORY / "_runners" / "virt_backup.py"
    spec = importlib.util.spec_from_file_location("runner", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    fleet = Fleet(load("test:///default", lock=str(tmp_path / "lock")), tmp_path)
    fleet.__class__ = type("Cloud", (Fleet,), {
        "__enter__": lambda self: self, "__exit__": lambda self, *_: None,
        "seen": lambda self, hosts: set(hosts),
    })  # fmt: skip
    monkeypatch.setattr(module, "Fleet", lambda _opts: fleet)
    module.__opts__, module.__salt__ = {}, {}
    vault = {"host": "hv1", "folder": guest.target.folder.root, "retention": {"last": 1}}

    def call(verb, *arguments, targets=None, **named):
        fleet.opts["virt"] = {"backup": {"targets": targets or {"vault": vault}}}
        found = getattr(module, verb)(*arguments, **named)["data"]
        json.dumps(found)  # it is plain data
        return found

    call.vault, call.count = vault, 1
    return call


def left(guest):
    return sorted(guest.target.catalog(UUID).backups)


def test_prune_shows_first_and_then_removes_the_same(run, guest, tmp_path):
    made = left(guest)
    shown = run("backup_prune", test=True)["vault"]
    assert shown["result"] is None and left(guest) == made
    assert shown["comment"] == "would remove 3 backups from vault and retain 1"
    assert shown["changes"] == {"web1": {"removed": made[2::-1]}}
    assert shown["backups"] == {"web1": {made[3]: "among the last 1"}}
    done = run("backup_prune")["vault"]
    assert (done["result"], done["changes"]) == (True, shown["changes"])
    assert done["comment"] == "removed 3 backups from vault and retained 1"
    assert left(guest) == [made[3]] == assert_whole(guest, tmp_path)
    again = run("backup_prune", test=True)["vault"]
    assert (again["result"], again["changes"]) == (True, {})


def test_a_guest_that_neither_a_target_nor_a_host_has_is_an_error(run, guest):
    assert len(run("backups", "web1")["vault"]) == 4
    assert run("backups", "test") == {"vault": []}, "a guest of libvirt's test driver"
    failed = run("backups", "wbe1")
    assert failed["wbe1"]["comment"] == (
        "no target has a backup of wbe1, and no host has such a guest"
    )
    assert failed["retcode"] == 1


def test_prune_of_one_guest(run, guest):
    assert run("backup_prune", "web2") == {
        "vault": {"result": True, "comment": "vault has no backup of web2", "changes": {}}
    }
    assert len(left(guest)) == 4
    assert list(run("backup_prune", UUID)["vault"]["changes"]) == ["web1"]
    assert len(left(guest)) == 1


def test_without_retention_nothing_goes_and_it_is_said(run, guest):
    found = run("backup_prune", targets={"vault": {**run.vault, "retention": {}}})["vault"]
    assert found["comment"] == (
        "removed 0 backups from vault and retained 4: no retention is configured "
        "(virt:backup:retention)"
    )
    assert len(left(guest)) == 4


def test_a_guest_whose_backup_is_being_made_hinders_nothing_and_is_named(run, guest):
    with guest.target.lock(UUID):
        found = run("backup_prune")
    assert found["retcode"] == 1
    assert found["vault"]["result"] is False
    assert "is locked by another process" in found["vault"]["trouble"]["web1"]
    assert len(left(guest)) == 4


def test_a_target_that_is_gone_is_named_and_the_other_is_pruned(run, guest):
    gone = {**run.vault, "folder": "/nonexistent/b"}
    found = run("backup_prune", targets={"gone": gone, "vault": run.vault})
    assert found["retcode"] == 1
    assert found["gone"]["result"] is False
    assert "cannot use the folder /nonexistent/b" in found["gone"]["comment"]
    assert found["vault"]["result"] is True and len(left(guest)) == 1


def test_one_that_has_to_be_mounted_and_is_not(run, guest):
    found = run("backup_prune", targets={"vault": {**run.vault, "mounted": True}})
    assert found["retcode"] == 1
    assert "is not mounted" in str(found)
    assert len(left(guest)) == 4


def test_verify_says_what_is_broken_and_the_exit_code_is_1(run, guest):
    made = left(guest)
    found = run("backup_verify")
    assert found["vault"]["comment"] == "verified 4 backups at vault: all good"
    assert [row[2] for row in found["vault"]["table"][1:]] == ["good"] * 4
    assert "retcode" not in found
    path = Path(guest.target.folder.root, UUID, made[0], "vda.qcow2")
    data = bytearray(path.read_bytes())
    data[data.index(b"\1" * 65536)] ^= 1
    path.write_bytes(data)
    found = run("backup_verify")
    assert found["retcode"] == 1 and found["vault"]["result"] is False
    assert found["vault"]["comment"] == "verified 4 backups at vault: 3 not good"
    told = {one["backup_id"]: one for one in found["vault"]["backups"]}
    assert "differ from what was backed up" in told[made[0]]["problem"]
    assert told[made[1]]["verification"]["broken_disks"] == {}
    assert told[made[1]]["problem"].startswith(f"vda: {made[0]}, on which it depends: the ")
    assert told[made[3]]["problem"] is None
    assert guest.target.catalog(UUID).good_ids == [made[3]]


def test_verify_of_what_is_asked(run, guest):
    made = left(guest)

    def read(*arguments):
        return [one["backup_id"] for one in run("backup_verify", *arguments)["vault"]["backups"]]

    assert read("web1", "latest") == [made[3]]
    assert read("web1", 2) == [made[1]]
    due = run("backup_verify", days=7)["vault"]["backups"]
    assert [one["backup_id"] for one in due] == [made[0], made[2]]
    assert run("backup_verify", days=7)["vault"]["comment"] == (
        "verified 0 backups at vault: none was due"
    )
    assert run("backup_verify", "web1", "77")["retcode"] == 1
    shown = run("backup_verify", test=True)["vault"]
    assert (shown["result"], shown["comment"]) == (
        None, "hv1 would verify the backups of all guests at vault: all",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "named", "words"),
    [
        ((), {"to": "valt"}, "unknown backup target 'valt'; known: vault"),
        ((), {"days": "soon"}, "days must be a number"),
        ((), {"backup": ["x"]}, "backup must be a name or a number"),
        (("a/b",), {}, "cannot be a guest's name"),
    ],
)
def test_a_users_mistake_is_one_line(run, arguments, named, words):
    found = run("backup_verify", *arguments, **named)
    assert found["retcode"] == 1
    assert words in str(found)


def test_without_a_target_it_is_said_what_to_set(run):
    found = run("backup_prune", targets={"x": {}})
    assert "virt:backup:targets:x:folder is not set" in str(found)


def test_those_not_read_back_for_the_longest_time_come_first(run, guest):
    made = left(guest)
    for several in ([made[0], made[1]], [made[2], made[3]], [made[0], made[1]]):
        found = run("backup_verify", limit=2)["vault"]["backups"]
        assert sorted(one["backup_id"] for one in found) == several
        for one in several:  # of the same second they would be as old as the next ones
            path = next(Path(guest.target.folder.root).glob(f"*/{one}/verified.json"))
            told = json.loads(path.read_text())
            told["verified_at"] = f"2025-01-0{1 + run.count}T00:00:00Z"
            path.write_text(json.dumps(told))
        run.count += 1
