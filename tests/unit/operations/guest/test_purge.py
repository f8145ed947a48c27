"""The removal of a guest with hosts of plain data: what other hosts must confirm first."""

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.answers.guest_calls import PLAN_ORPHAN_REMOVAL
from saltvirt.fleet.answer import Answer, down
from saltvirt.fleet.keys import KeyStore
from saltvirt.operations.cluster import shared_storage_check
from saltvirt.operations.cluster.find import BELOW_SYNDIC
from saltvirt.operations.guest import purge
from saltvirt.operations.guest.purge import Purge
from saltvirt.operations.journal import evacuated, intent_log, location_cache, lock
from saltvirt.operations.journal.intent_log import PendingCreate
from saltvirt.revert import UndoStack

MISFIT = "its answer to virt.storage_users is not what this version expects"
NFS = {"/nfs/a": {"path": "/nfs/a"}, "/nfs/b": {"path": "/nfs/b"}}
SHARED = {"delete": ["/own"], "keep": {"/nfs/a": "?", "/nfs/b": "?", "/iso": "a medium"},
          "shared": NFS, "unsure": ["/nfs/a", "/nfs/b"]}  # fmt: skip


class Cloud:
    """web1 is on hv1. plans: what hv1 says it would do; users: host to its answer who uses what."""

    def __init__(self, tmp_path, plans=None, **users):
        self.opts = {"cachedir": str(tmp_path), "pki_dir": str(tmp_path)}
        self.plans, self.users, self.asked = plans, users, []
        self.guests = {"hv1": {"web1": "shutdown"}}
        self.used = {}
        self.fails = None
        self.left = {}

    def hosts(self, only=None):
        return ["hv1", *self.users]

    def ask(self, hosts, fun, kwarg=None, **_options):
        for host in hosts:
            if fun == "virt.vm_state":
                yield Answer(host, dict(self.guests.get(host, {})))
            elif fun == "virt.inventory":
                yield self.inventory
            else:
                assert (fun, kwarg) == ("virt.storage_users", {"places": self.plans["shared"]})
                self.asked.append((host, fun))
                said = self.users[host]
                yield said if isinstance(said, Answer) else Answer(host, said)

    def call(self, host, fun, kwarg=None, *, long=None, **_options):
        if fun == "virt.vm_state":
            return dict(self.guests[host])
        if fun == "virt.leftovers":
            return {"guests": {}, "migrations": {}, "unfinished": ["web1"], "used": self.used}
        self.asked.append((host, fun, kwarg, long))
        if kwarg.get("test"):
            return self.plans
        if self.fails:
            raise self.fails
        self.guests[host].pop(kwarg["vm_"], None)
        return {"left": self.left} if self.left else True


NOBODY = {"/nfs/a": None, "/nfs/b": None}


UNMATCHED = shared_storage_check.unmatched


@pytest.fixture(autouse=True)
def nobody_else(monkeypatch):
    """No host was lost by virt:hosts."""
    monkeypatch.setattr(shared_storage_check, "unmatched", lambda opts, hosts: {})


def test_without_shared_disks_nobody_else_is_asked(tmp_path):
    cloud = Cloud(tmp_path, {"delete": ["/own"], "keep": {}, "shared": {}}, hv2=NOBODY)
    expected = purge.Removal(delete=["/own"], keep={}, unused=[], unsure=[])
    assert purge.plan(cloud, "hv1", "web1", dirs=True) == expected
    asked = {"vm_": "web1", "test": True, "dirs": True}
    assert cloud.asked == [("hv1", "virt.purge", asked, False)]
    cloud.plans = {}
    nothing = purge.Removal(delete=[], keep={}, unused=[], unsure=[])
    assert purge.plan(cloud, "hv1", "web1", PLAN_ORPHAN_REMOVAL) == nothing
    cloud.plans = {"delete": "/own"}
    with pytest.raises(errors.ConnectionFailed, match=r"hv1: its answer .*: delete is not a list"):
        purge.plan(cloud, "hv1", "web1")


def test_what_all_others_do_not_use_goes(tmp_path):
    cloud = Cloud(tmp_path, SHARED, hv2=NOBODY, hv3={**NOBODY, "/nfs/b": "used by db1"})
    found = purge.plan(cloud, "hv1", "web1")
    assert found == purge.Removal(
        delete=["/nfs/a", "/own"], unused=["/nfs/a"], unsure=["/nfs/b"],
        keep={"/iso": "a medium", "/nfs/b": "hv3: used by db1"},
    )  # fmt: skip
    assert [one[0] for one in cloud.asked] == ["hv1", "hv2", "hv3"]


def test_the_host_is_known_to_have_the_guest_no_more(tmp_path):
    """It may be powered off and revoked next."""
    cloud = Cloud(tmp_path, SHARED, hv2=NOBODY)
    Purge(cloud, "web1").run()
    assert location_cache.unseen_guests(cloud.opts, "hv1")[0] == []
    assert location_cache.last_seen(cloud.opts, "web1", ["hv1"]) is None


def test_a_disk_that_somebody_began_to_use_since_the_plan_is_not_said_to_be_deleted(tmp_path):
    cloud = Cloud(tmp_path, SHARED, hv2=NOBODY)
    cloud.left = {"/nfs/b": "used by db1"}
    found = purge.on_host(cloud, "hv1", "web1")
    assert found.delete == ["/nfs/a", "/own"]
    assert found.keep == {"/iso": "a medium", "/nfs/b": "used by db1"}
    assert found.unsure == ["/nfs/b"]
    cloud = Cloud(tmp_path, SHARED, hv2=NOBODY)
    cloud.left = {"/own": "used by db1"}
    assert Purge(cloud, "web1").run().comment.endswith("; /own stays: used by db1")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (down("hv2"), f"hv2: {down('hv2').error}"),
        ({}, "hv2: its answer does not include the path"),
        ([], f"hv2: {MISFIT}: it is not a mapping"),
        (True, f"hv2: {MISFIT}: it is not a mapping"),
        (NOBODY, None),
    ],
)
def test_who_does_not_say_it_keeps_it(tmp_path, said, why):
    cloud = Cloud(tmp_path, SHARED, hv2=said)
    unused, kept = shared_storage_check.unused_elsewhere(cloud, "hv1", NFS)
    assert kept == (dict.fromkeys(NFS, why) if why else {})
    assert unused == ([] if why else sorted(NFS))


def test_who_was_not_asked_keeps_it_too(tmp_path, monkeypatch):
    monkeypatch.setattr(
        shared_storage_check, "unmatched", lambda opts, hosts: {"hv9": "not matched"}
    )
    cloud = Cloud(tmp_path, SHARED, hv2={**NOBODY, "/nfs/b": "used by db1"})
    unused, kept = shared_storage_check.unused_elsewhere(cloud, "hv1", NFS)
    assert unused == []
    assert kept == {
        "/nfs/a": "hv9: not matched", "/nfs/b": "hv2: used by db1; hv9: not matched"
    }  # fmt: skip
    monkeypatch.setattr(shared_storage_check, "unmatched", lambda opts, hosts: {})
    cloud.opts["order_masters"] = True
    cloud.users["hv2"] = NOBODY
    assert shared_storage_check.unused_elsewhere(cloud, "hv1", NFS) == (
        [],
        dict.fromkeys(NFS, BELOW_SYNDIC),
    )
    assert shared_storage_check.unused_elsewhere(cloud, "hv1", {}) == ([], {})


def test_who_once_handed_in_a_key_and_is_accepted_is_one_that_was_not_asked(tmp_path, monkeypatch):
    opts = Cloud(tmp_path).opts
    for host in ("hv1", "hv3", "gone"):
        (tmp_path / "virtkeys" / host).mkdir(parents=True)
    monkeypatch.setattr(KeyStore, "hosts", lambda self: {"hv2", "hv4"})
    monkeypatch.setattr(
        shared_storage_check.target, "accepted", lambda opts: ["hv1", "hv3", "hv4", "web1"]
    )
    why = "virt:hosts does not match it, but guests were created on it"
    found = UNMATCHED(opts, ["hv1", "hv2"])
    assert found.keys() == {"hv3", "hv4"}
    advice = "if it is no longer a hypervisor: salt-run virt.revoke hv3"
    assert found["hv3"] == f"{why}; {advice}"
    monkeypatch.setattr(shared_storage_check.target, "accepted", None)
    assert UNMATCHED(opts, ["hv1", "hv2", "hv3", "hv4", "gone"]) == {}


def test_a_purge_hands_over_what_the_others_said(tmp_path):
    cloud = Cloud(tmp_path, SHARED, hv2={**NOBODY, "/nfs/b": "used by db1"})
    found = purge.on_host(cloud, "hv1", "web1", dirs=True)
    assert found.done() == {
        "delete": ["/nfs/a", "/own"], "unsure": ["/nfs/b"],
        "keep": {"/iso": "a medium", "/nfs/b": "hv2: used by db1"},
    }  # fmt: skip
    asked = {"vm_": "web1", "unused": ["/nfs/a"], "dirs": True}
    assert cloud.asked[-1] == ("hv1", "virt.purge", asked, True)


def test_what_an_operation_that_died_has_made_goes_or_is_named(tmp_path):
    cloud = Cloud(tmp_path, SHARED, hv2=NOBODY)
    purge.remove_orphans(cloud, "hv1", "web1")
    asked = {"vm_": "web1", "unused": sorted(NFS)}
    assert cloud.asked[-1] == ("hv1", "virt.remove_made", asked, True)
    cloud.fails = errors.OperationFailed("hv1: no")
    with pytest.raises(errors.OperationFailed) as caught:
        purge.remove_orphans(cloud, "hv1", "web1")
    assert caught.value.text == "/iso stays: a medium"
    cloud.plans = {"delete": ["/own"], "keep": {}, "shared": {}}
    with pytest.raises(errors.OperationFailed) as caught:
        purge.remove_orphans(cloud, "hv1", "web1")
    assert caught.value.text == "hv1: no"


def test_of_a_half_made_guest_all_goes_or_nothing(tmp_path):
    cloud = Cloud(tmp_path, SHARED, hv2={**NOBODY, "/nfs/b": "used by db1"})
    with pytest.raises(errors.OperationFailed) as caught:
        purge.purge_partial(cloud, "hv1", "web1")
    assert caught.value.text == "/nfs/b on hv1 stays: hv2: used by db1"
    assert "web1" in cloud.guests["hv1"]
    cloud.users["hv2"], cloud.used = NOBODY, {"web1": "it is running"}
    with pytest.raises(errors.OperationFailed, match="web1 on hv1 stays: it is running"):
        purge.purge_partial(cloud, "hv1", "web1")
    assert "web1" in cloud.guests["hv1"]
    cloud.used = {}
    assert purge.purge_partial(cloud, "hv1", "web1").delete == ["/nfs/a", "/nfs/b", "/own"]
    assert cloud.guests == {"hv1": {}}
    assert cloud.asked[-1][2]["force"] is False


@pytest.fixture
def keys(monkeypatch):
    """The KeyStore of a master: a key of web1, why it stays, and what was deleted."""
    found = {"status": "accepted", "stays": None, "deleted": []}
    monkeypatch.setattr(KeyStore, "status", lambda self, name: found["status"])
    monkeypatch.setattr(KeyStore, "retain_reason", lambda self, name, host: found["stays"])
    monkeypatch.setattr(KeyStore, "delete", lambda self, name: found["deleted"].append(name))
    return found


OWN = {"delete": ["/own"], "keep": {"/iso": "a medium"}, "shared": {}}


def test_to_look_changes_nothing(tmp_path, keys):
    cloud = Cloud(tmp_path, OWN)
    found = Purge(cloud, "web1").check()
    assert found.comment == (
        "web1 would be removed from hv1, with /own and its key; /iso stays: a medium"
    )
    assert (found.changes["key"], found.details, found.reasons) == (True, {"host": "hv1"}, ())
    assert found.changes["removed"]["delete"] == ["/own"]
    assert (keys["deleted"], cloud.guests["hv1"]) == ([], {"web1": "shutdown"})
    cloud.plans, keys["stays"] = {"delete": [], "keep": {}}, "another's"
    found = Purge(cloud, "web1").check()
    assert found.comment == (
        "web1 would be removed from hv1, with no disks; its key stays: another's"
    )
    assert found.changes["key"] is False
    assert "no guest 'x' on any hypervisor" in Purge(cloud, "x").check().reasons


def test_the_key_of_a_guest_that_may_run_on_a_silent_host_stays(tmp_path, keys, monkeypatch):
    """It is off here: virsh migrate leaves such a definition. The guest that runs has that key."""
    silent = {"hv2": "down: no connection to the master"}
    cloud = Cloud(tmp_path, OWN)
    cloud.guests = {"hv1": {"web1": "shutdown"}}
    monkeypatch.setattr(shared_storage_check, "unmatched", lambda opts, hosts: silent)
    why = f"the guest may run on a host that does not answer (hv2: {silent['hv2']})"
    found = Purge(cloud, "web1").check()
    assert f"; its key stays: {why}" in found.comment
    done = Purge(cloud, "web1").run()
    assert (keys["deleted"], cloud.guests["hv1"]) == ([], {})
    assert f"; its key stays: {why}" in done.comment
    cloud.guests = {"hv1": {"web1": "running"}}
    assert "and its key from the master" in Purge(cloud, "web1", force=True).run().comment


def test_all_that_the_master_knows_of_it_goes(tmp_path, keys):
    cloud = Cloud(tmp_path, OWN)
    PendingCreate(cloud.opts, "web1", "virt.init", UndoStack()).record_host("hv1")
    done = Purge(cloud, "web1", expected_host="hv1").run()
    assert done.comment == (
        "web1 was removed from hv1 and its key from the master; /iso stays: a medium"
    )
    assert done.changes == {
        "removed": True, "delete": ["/own"], "keep": {"/iso": "a medium"}, "unsure": []
    }  # fmt: skip
    assert done.details == {"host": "hv1"}
    assert (keys["deleted"], intent_log.load(cloud.opts, "web1")) == (["web1"], None)
    assert location_cache.load(cloud.opts, "web1") is None
    asked = {"vm_": "web1", "unused": [], "force": False}
    assert cloud.asked[-1] == ("hv1", "virt.purge", asked, True)


@pytest.mark.parametrize("state", ["running", "paused", "pmsuspended"])
def test_a_guest_that_is_not_off_goes_only_by_force(tmp_path, keys, state):
    cloud = Cloud(tmp_path, OWN)
    cloud.guests["hv1"]["web1"] = state
    words = f"web1 is {state} on hv1: salt-run virt.shutdown web1 shuts it down; force=True powers"
    assert words in Purge(cloud, "web1").check().reasons[0]
    with pytest.raises(errors.OperationFailed, match=words):
        Purge(cloud, "web1").run()
    assert "web1" in cloud.guests["hv1"] and keys["deleted"] == []
    assert Purge(cloud, "web1", force=True).check().reasons == ()
    Purge(cloud, "web1", force=True).run()
    assert cloud.asked[-1] == ("hv1", "virt.purge", {"vm_": "web1", "unused": []}, True)
    assert keys["deleted"] == ["web1"]


@pytest.mark.parametrize(
    ("given", "status", "stays", "words"),
    [
        (True, "accepted", "another's", "; its key stays: another's"),
        (True, None, "another's", ""),
        (False, "accepted", None, ""),
    ],
)
def test_a_key_that_is_not_its_own_stays(tmp_path, keys, given, status, stays, words):
    keys.update(status=status, stays=stays)
    cloud = Cloud(tmp_path, {"delete": [], "keep": {}})
    assert Purge(cloud, "web1", delete_key=given).run().comment == (
        f"web1 was removed from hv1{words}"
    )
    assert keys["deleted"] == []


def test_the_key_of_a_guest_below_a_syndic_is_its_own_masters(tmp_path, keys, monkeypatch):
    monkeypatch.setattr(purge.syndic, "below", lambda opts, host: host == "hv1")
    cloud = Cloud(tmp_path, {"delete": [], "keep": {}})
    assert "its key stays: hv1 is below a syndic" in Purge(cloud, "web1").run().comment
    assert keys["deleted"] == []


def test_on_another_host_it_stays(tmp_path, keys):
    cloud = Cloud(tmp_path, OWN)
    with pytest.raises(errors.OperationFailed, match="web1 is on hv1 now, not on hv2: it stays"):
        Purge(cloud, "web1", expected_host="hv2").run()
    assert (cloud.asked, keys["deleted"]) == ([], [])


def test_while_another_operation_is_at_work_it_stays(tmp_path, keys):
    cloud = Cloud(tmp_path, OWN)
    with (
        lock.guest(cloud.opts, "web1", "virt.init"),
        pytest.raises(errors.OperationFailed, match=r"virt\.init, .* is under way"),
    ):
        Purge(cloud, "web1").run()
    assert cloud.asked == []


def test_a_guest_that_is_still_there_keeps_its_key(tmp_path, keys, monkeypatch):
    cloud = Cloud(tmp_path, OWN)
    monkeypatch.setattr(purge, "on_host", lambda *_args, **_more: purge.Removal([], {}, [], []))
    with pytest.raises(errors.OperationFailed, match="hv1: libvirt still has web1"):
        Purge(cloud, "web1").run()
    assert keys["deleted"] == []


def test_what_is_written_down_of_guests_that_are_away_is_the_masters_own(tmp_path):
    opts = {"cachedir": str(tmp_path)}
    assert evacuated.load(opts, "hv1") == {}
    evacuated.store(opts, "hv1", {"u2": "b", "u1": "a"})
    [path] = (tmp_path / "virt" / "away").iterdir()
    assert path.read_text(encoding="utf-8") == '{"u1": "a", "u2": "b"}'
    evacuated.store(opts, "hv1", {})
    evacuated.store(opts, "hv1", {})
    assert not path.exists()
    path.write_text("{")
    assert evacuated.load(opts, "hv1") == {}


HOST = {"cpus": 8, "memory_kib": 16 << 20, "types": ["kvm"]}
HOST["images_folder"] = {"path": "/x", "total_bytes": 1 << 40, "free_bytes": 1 << 40}
WEB = {"vcpus": 1, "memory_kib": 1 << 20, "state": "running"}


@pytest.mark.parametrize(
    ("guests", "words"),
    [
        ({"web1": {**WEB, "deployment": "shop"}}, None),
        (
            {"web1": {**WEB, "deployment": "bar"}},
            "web1 on hv1 no longer belongs to deployment shop",
        ),
        ({"web1": WEB}, "web1 on hv1 no longer belongs to deployment shop: it stays"),
        (
            {"web2": {**WEB, "deployment": "shop"}},
            "web1 on hv1 no longer belongs to deployment shop",
        ),
        (None, f"hv1: {down('hv1').error}"),
    ],
)
def test_one_that_a_deployment_lists_no_more_is_of_it_when_it_goes(tmp_path, guests, words):
    """Somebody may have purged it meanwhile, and made another of its name there."""
    cloud = Cloud(tmp_path, {"delete": ["/own"], "keep": {}, "shared": {}})
    cloud.inventory = down("hv1") if guests is None else Answer("hv1", {**HOST, "guests": guests})
    one = Purge(cloud, "web1", expected_host="hv1", deployment="shop")
    if words is None:
        assert one.run().changes["removed"] is True
        return
    with pytest.raises(errors.VirtError) as caught:
        one.run()
    assert caught.value.text.startswith(words)
    assert cloud.guests == {"hv1": {"web1": "shutdown"}}
    assert cloud.asked == []
