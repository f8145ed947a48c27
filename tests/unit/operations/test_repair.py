"""The findings of virt.repair, their messages and repairs, with hosts of plain data."""

import copy
import json
import shlex

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.fleet import private
from saltvirt.fleet.answer import Answer, down
from saltvirt.fleet.authorization import Authorizations
from saltvirt.fleet.pillars import Pillars
from saltvirt.operations import repair
from saltvirt.operations.access import owners
from saltvirt.operations.cluster import find, ha_provider, shared_storage_check
from saltvirt.operations.journal import intent_log, lock
from saltvirt.revert import UndoStack
from tests.fakes.fleet import Fleet, Silent


class Cloud(Fleet):
    """left: host to what its virt.leftovers says; None: the host does not answer. called: what was
    changed."""

    called = ()

    def __init__(self, tmp_path, left):
        super().__init__(tmp_path)
        self.left, self.called = left, []

    def hosts(self, only=None):
        return sorted(self.left)

    def said(self, host, fun, kwarg):
        return down(host) if self.left[host] is None else self.left[host]

    def call(self, host, fun, kwarg=None, **_options):
        if fun == "virt.leftovers":
            return self.left[host]
        with (
            pytest.raises(errors.OperationFailed, match="is under way"),
            lock.guest(self.opts, kwarg["vm_"], "virt.init"),
        ):
            pass
        if kwarg.get("test"):
            return {"delete": [], "keep": {}}
        self.called.append((host, fun, kwarg["vm_"]))
        return True


def left(guests=(), unfinished=(), **migrations):
    return {
        "guests": dict.fromkeys([*guests, *unfinished], "shutdown"),
        "unfinished": list(unfinished),
        "migrations": {k: {"target": v, "at_work": False} for k, v in migrations.items()},
    }


@pytest.fixture
def cloud(tmp_path):
    return Cloud(
        tmp_path,
        {"hv1": left(["two"], ["a", "b"]), "hv2": left(["two"], m="qemu+tls://hv1/system")},
    )


def test_each_finding_has_a_code_an_id_its_evidence_and_its_command(cloud):
    found, unreachable = repair.find_leftovers(cloud)
    assert not unreachable
    assert [one.id for one in found] == [
        "creation-interrupted:a:hv1", "creation-interrupted:b:hv1", "migration-interrupted:m:hv2",
        "two-hosts:two",
    ]  # fmt: skip
    for one in found:
        data = one.data()
        assert data["code"] in repair.CODES
        assert data["evidence"]
        assert data["command"]
    assert found[0].command == "salt-run virt.repair apply=True finding=creation-interrupted:a:hv1"


def test_one_that_was_started_since_is_for_a_person_and_stays(tmp_path):
    said = {**left(unfinished=["a", "b"]), "used": {"a": "it is running"}}
    cloud = Cloud(tmp_path, {"hv1": said})
    found, _ = repair.find_leftovers(cloud)
    one = next(one for one in found if one.guest == "a")
    assert (one.id, one.repair) == ("creation-interrupted:a:hv1", None)
    assert one.problem == "its creation on hv1 was interrupted, but it is running"
    assert one.command == (
        "one of: salt hv1 virt.mark_complete vm_=a; salt-run virt.purge name=a force=True"
    )
    repaired, stays = repair.repair_all(found, Silent())
    assert (list(repaired), list(stays)) == (["b"], ["a"])
    assert f"({one.command})" in stays["a"]
    assert cloud.called == [("hv1", "virt.purge", "b")]


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        ({"name": "a"}, ["creation-interrupted:a:hv1"]),
        (
            {"selector": "creation-interrupted"},
            ["creation-interrupted:a:hv1", "creation-interrupted:b:hv1"],
        ),
        ({"selector": "creation-interrupted:b:hv1"}, ["creation-interrupted:b:hv1"]),
        ({"name": "a", "selector": "two-hosts"}, []),
        ({}, None),
    ],
)
def test_one_guest_and_one_finding_can_be_chosen(cloud, options, ids):
    everything, _ = repair.find_leftovers(cloud)
    found = [one.id for one in repair.select_findings(everything, **options)]
    assert found == (ids if ids is not None else [one.id for one in everything])


def test_a_code_that_is_none_is_refused(cloud):
    with pytest.raises(errors.InvalidInput, match="finding=half-mad: no such finding; a code"):
        repair.select_findings([], selector="half-mad")


def test_only_what_was_chosen_is_mended(cloud):
    found, _ = repair.find_leftovers(cloud)
    repaired, remaining = repair.repair_all(repair.select_findings(found, name="b"), Silent())
    assert cloud.called == [("hv1", "virt.purge", "b")]
    assert (repaired, remaining) == ({"b": "removed from hv1"}, {})


def test_one_that_was_made_whole_since_it_was_found_half_made_stays(cloud):
    """Somebody has purged it and made it anew while others were repaired."""
    found, _ = repair.find_leftovers(cloud)
    cloud.left["hv1"] = left(["two", "b"], ["a"])
    cloud.left["hv1"]["guests"]["b"] = "running"
    repaired, remaining = repair.repair_all(
        repair.select_findings(found, selector="creation-interrupted"), Silent()
    )
    assert cloud.called == [("hv1", "virt.purge", "a")]
    assert list(repaired) == ["a"]
    assert remaining["b"].endswith("b on hv1 was changed meanwhile: run this again")


@pytest.mark.parametrize(
    ("target", "words"), [("hv2", "to hv2, and"), ("", "to another host, and")]
)
def test_where_a_migration_went_is_said_as_far_as_it_is_known(cloud, target, words):
    cloud.left["hv1"]["migrations"] = {"gone": {"target": target, "at_work": False}}
    [found] = [one for one in repair.find_leftovers(cloud)[0] if one.guest == "gone"]
    assert (found.code, found.host) == (repair.MIGRATION, "hv1")
    assert found.remedy == "both hosts are asked, and the migration is completed or undone"
    assert words in found.evidence


def test_a_journal_that_cannot_be_read_is_for_a_person(cloud):
    cloud.left["hv2"]["migrations"]["m"] = {"target": "", "at_work": False, "problem": "x.json: no"}
    [found] = repair.select_findings(repair.find_leftovers(cloud)[0], name="m")
    assert found.repair is None
    assert "x.json: no" in found.remedy
    assert repair.repair_all([found], Silent())[0] == {}


def on_two(cloud, **states):
    for host, state in states.items():
        cloud.left[host]["guests"]["two"] = state
    found = [one for one in repair.find_leftovers(cloud)[0] if one.code == repair.DUPLICATE_GUEST]
    return found[0] if found else None


def test_what_is_advised_for_a_guest_on_two_hosts_deletes_no_disk(cloud):
    """Both definitions can name the same disk."""
    twice = on_two(cloud)
    assert twice.repair is None
    words = " ".join([twice.remedy, twice.command, twice.problem, twice.evidence])
    assert "purge" not in words
    assert "stop the other one and undefine it" in twice.remedy
    ways = "salt hv1 virt.undefine vm_=two; salt hv2 virt.undefine vm_=two"
    assert twice.command == f"one of: {ways}"
    with pytest.raises(errors.OperationFailed) as caught:
        find.Locations({"two": {"hv1": "running", "hv2": "shutdown"}}).host_of("two")
    assert "purge" not in caught.value.text
    assert "virt.repair name=two" in caught.value.text


@pytest.mark.parametrize("state", ["running", "paused", "pmsuspended", "crashed", "nostate"])
def test_the_definition_of_a_guest_that_is_not_off_is_never_offered(cloud, state):
    assert on_two(cloud, hv1=state).command == "salt hv2 virt.undefine vm_=two"
    shown = "salt hv1 virt.vm_info vm_=two; salt hv2 virt.vm_info vm_=two"
    assert on_two(cloud, hv1=state, hv2="running").command == shown


@pytest.mark.parametrize("host", ["hv1", "hv2"])
@pytest.mark.parametrize("what", ["at_work", "migrations", "here"])
def test_a_guest_on_its_way_is_on_two_hosts_and_nothing_is_said_of_it(cloud, host, what):
    """Its target has it paused, its source running: neither is to be undefined."""
    assert on_two(cloud, hv1="running", hv2="paused") is not None
    if what == "here":
        with lock.guest(cloud.opts, "two", "virt.migrate"):
            assert on_two(cloud) is None
        return
    moving = {"target": "qemu+tls://x/system", "at_work": True}
    cloud.left[host].setdefault(what, {})["two"] = (
        moving if what == "migrations" else "virt.migrate"
    )
    assert on_two(cloud) is None
    assert not [one for one in repair.find_leftovers(cloud)[0] if one.guest == "two"]


def test_one_that_was_moved_between_two_answers_is_not_on_two_hosts(cloud, monkeypatch):
    """Its old host spoke before the move, its new one after it."""
    whole, asked = cloud.ask, []

    def ask(hosts, function, kwarg=None, **options):
        asked.append(list(hosts))
        for answer in whole(hosts, function, kwarg, **options):
            yield Answer(answer.host, copy.deepcopy(answer.data))
        cloud.left["hv1"]["guests"].pop("two", None)

    monkeypatch.setattr(cloud, "ask", ask)
    assert on_two(cloud) is None
    assert asked == [["hv1", "hv2"], ["hv1", "hv2"]]


def test_one_that_began_to_move_between_two_answers_is_not_on_two_hosts(cloud, monkeypatch):
    """The second look, for another guest, is the first that finds it on both."""
    whole, asked = cloud.ask, []

    def ask(hosts, function, kwarg=None, **options):
        asked.append(list(hosts))
        for answer in whole(hosts, function, kwarg, **options):
            found = copy.deepcopy(answer.data)
            if len(asked) > 1:
                found["guests"]["moves"] = "running"
            yield Answer(answer.host, found)

    monkeypatch.setattr(cloud, "ask", ask)
    for host in ("hv1", "hv2"):
        cloud.left[host]["guests"]["two"] = "shutdown"
    twice = [
        one.guest for one in repair.find_leftovers(cloud)[0] if one.code == repair.DUPLICATE_GUEST
    ]
    assert (twice, len(asked)) == (["two"], 2)


def test_only_who_has_one_twice_is_asked_again_and_his_silence_proves_nothing(cloud, monkeypatch):
    cloud.left["hv3"], whole, asked = left(["x"]), cloud.ask, []

    def ask(hosts, function, kwarg=None, **options):
        asked.append(list(hosts))
        for answer in whole(hosts, function, kwarg, **options):
            yield down(answer.host) if len(asked) > 1 and answer.host == "hv2" else answer

    monkeypatch.setattr(cloud, "ask", ask)
    assert on_two(cloud) is None
    assert asked == [["hv1", "hv2", "hv3"], ["hv1", "hv2"]]
    cloud.left["hv1"]["guests"].pop("two")
    repair.find_leftovers(cloud)
    assert len(asked) == 3


def test_what_a_person_decides_is_left_and_what_is_mended_is_told(cloud):
    told = []
    report = type("R", (), {"step": lambda _self, step, text: told.append((step, text))})()
    found, _ = repair.find_leftovers(cloud)
    repaired, remaining = repair.repair_all(
        repair.select_findings(found, selector="creation-interrupted"), report
    )
    assert told == [("repaired", f"{name}: removed from hv1") for name in "ab"]
    assert (list(repaired), remaining) == (["a", "b"], {})
    repaired, remaining = repair.repair_all(
        repair.select_findings(found, selector="two-hosts"), report
    )
    assert (repaired, len(told)) == ({}, 2)
    assert remaining["two"].startswith("is on more than one host: hv1 (shutdown), hv2 (shutdown): ")


def test_two_findings_of_one_guest_are_both_told(tmp_path):
    cloud = Cloud(tmp_path, {"hv1": left([], ["a"]), "hv2": left([], ["a"])})
    found, _ = repair.find_leftovers(cloud)
    assert [one.id for one in found] == ["creation-interrupted:a:hv1", "creation-interrupted:a:hv2"]
    repaired, _ = repair.repair_all(
        repair.select_findings(found, selector=repair.CREATION), Silent()
    )
    assert repaired == {"a": "removed from hv1; removed from hv2"}


def test_a_guest_whose_owner_was_not_recorded_is_named(tmp_path):
    cloud = Cloud(tmp_path, {"hv1": left(["web1"]), "hv2": left([])})
    cloud.left["hv1"]["guests"]["web1"] = "running"
    for name in ("web1", "gone"):
        path = tmp_path / "virt/rights/making" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(owners.PendingGuest("anna b", 1, 1, 1).to_answer()))
    [found], _ = repair.find_leftovers(cloud)
    assert (found.id, found.repair) == ("owner-not-recorded:web1", None)
    assert found.problem == "created for anna b, and the master did not record the owner"
    assert found.command == "salt-run virt.set_owner web1 'anna b'"
    with owners.making(cloud.opts, {"web1": owners.PendingGuest("anna b", 1, 1, 1)}):
        assert repair.find_leftovers(cloud)[0] == [], "a guest is being created"
    assert repair.find_leftovers(cloud)[0] == []


def test_a_guest_whose_init_was_given_up_or_killed_is_named_until_somebody_wants_it(tmp_path):
    cloud = Cloud(tmp_path, {"hv1": left(["whole"], ["half"]), "hv2": None})
    for name, host in (("whole", "hv1"), ("half", "hv1"), ("later", "hv2"), ("none", "hv1")):
        intent_log.PendingCreate(cloud.opts, name, "virt.init", UndoStack()).record_host(host)
    found, _ = repair.find_leftovers(cloud)
    assert [one.id for one in found] == ["creation-interrupted:half:hv1", "given-up:later:hv2",
                                         "given-up:whole:hv1"]  # fmt: skip
    whole = found[2].data()
    assert not whole["repairs"]
    assert (
        whole["what"] == "created on hv1 by virt.init, which was given up or killed; it is shutdown"
    )
    assert found[1].problem.endswith("hv2 does not answer now: down: no connection to the master")
    cloud.left["hv1"]["guests"]["whole"] = "running"
    assert "given-up:whole:hv1" not in [one.id for one in repair.find_leftovers(cloud)[0]]
    cloud.left["hv1"]["guests"]["whole"] = "shutdown"
    with lock.guest(cloud.opts, "whole", "virt.init"):
        assert "given-up:whole:hv1" not in [one.id for one in repair.find_leftovers(cloud)[0]]
    intent_log.forget(cloud.opts, "whole")
    assert "given-up:whole:hv1" not in [one.id for one in repair.find_leftovers(cloud)[0]]


def test_to_look_says_all_and_changes_nothing(cloud):
    cloud.left["hv3"] = None
    found = repair.Repair(cloud, Silent()).check()
    comment = "4 leftovers on the hosts that answered"
    assert (found.comment, found.complete, cloud.called) == (comment, False, [])
    rows = found.details["table"]
    assert [row[0] for row in rows] == ["name", "a", "b", "m", "two", "hv3"]
    assert rows[1][2:] == ["removed from hv1", "salt-run virt.repair apply=True "
                           "finding=creation-interrupted:a:hv1"]  # fmt: skip
    assert rows[5] == ["hv3", down("hv3").error, "", ""]
    assert set(found.changes["repaired"]) == {"a", "b", "m"}, "of the other a person decides"
    assert [one["name"] for one in found.details["findings"]] == ["a", "b", "m", "two"]
    cloud.left = {"hv1": left()}
    found = repair.Repair(cloud, Silent()).check()
    assert (found.comment, found.complete) == ("no leftovers", True)


DOWN = f"hv3: {down('hv3').error}"


@pytest.mark.parametrize(
    ("options", "comment", "repaired", "complete"),
    [
        ({"name": "a"}, "1 repaired", {"a": "removed from hv1"}, True),
        ({"selector": "creation-interrupted:a:hv1"}, "1 repaired", {"a": "removed from hv1"}, True),
        ({"name": "nobody"}, f"0 repaired, 1 left; {DOWN}", None, False),
        ({"selector": "key-without-guest"}, f"0 repaired, 1 left; {DOWN}", None, False),
    ],
)
def test_who_was_not_heard_matters_where_nothing_was_found(
    cloud, options, comment, repaired, complete
):
    cloud.left["hv3"] = None
    found = repair.Repair(cloud, Silent(), **options).run()
    assert (found.subject, found.comment, found.complete) == ("repair", comment, complete)
    assert found.changes == ({"repaired": repaired} if repaired else {})
    assert bool(found.details["left"]) is not complete


def test_what_is_left_of_all_is_named_with_who_was_not_heard(cloud):
    cloud.left = {"hv1": left([], ["a"]), "hv3": None}
    found = repair.Repair(cloud, Silent()).run()
    assert found.comment == f"1 repaired, 1 left; {DOWN}"
    assert (found.complete, found.changes) == (False, {"repaired": {"a": "removed from hv1"}})
    with pytest.raises(errors.InvalidInput, match="no such finding"):
        repair.Repair(cloud, Silent(), selector="half-mad")


def test_the_key_of_a_guest_that_is_there_is_nobodys_business(tmp_path, monkeypatch):
    cloud = Cloud(tmp_path, {"hv1": left(["web1"])})
    monkeypatch.setattr(repair.KeyStore, "guest_ids", lambda self: ["web1", "web2", "web3"])
    hosts = {"web1": "hv1", "web2": "hv1", "web3": ""}
    monkeypatch.setattr(repair.KeyStore, "host_of", lambda self, name: hosts[name])
    found = [one for one in repair.find_leftovers(cloud)[0] if one.code == repair.KEY]
    assert [(one.guest, one.remedy == "key deleted") for one in found] == [
        ("web2", True), ("web3", False)
    ]  # fmt: skip
    assert "for a guest of hv1;" in found[0].evidence
    assert "for a guest of a host not recorded;" in found[1].evidence
    cloud.opts["order_masters"] = True
    found = [one for one in repair.find_leftovers(cloud)[0] if one.code == repair.KEY]
    assert [one.repair for one in found] == [None, None]


def test_nothing_of_a_guest_that_is_kept_is_repaired(tmp_path, monkeypatch):
    """It is on no host while it waits for its start: its key was deleted."""
    cloud = Cloud(tmp_path, {"hv1": left([], ["half"])})
    monkeypatch.setattr(repair.KeyStore, "guest_ids", lambda self: ["web1"])
    monkeypatch.setattr(repair.KeyStore, "host_of", lambda self, name: "hv1")
    [key] = [one for one in repair.find_leftovers(cloud)[0] if one.code == repair.KEY]
    ha_provider.store_managed(cloud.opts, {"web1": "somebody", "half": "somebody"})
    assert [one.code for one in repair.find_leftovers(cloud)[0]] == [repair.CREATION]
    with pytest.raises(errors.OperationFailed, match="web1 is managed by somebody"):
        key.repair()
    found = repair.Repair(cloud, Silent()).run()
    assert "half is managed by somebody" in found.comment
    assert cloud.called == []


def test_what_the_target_took_away_is_not_called_left(cloud, monkeypatch):
    said = {"leftovers": {}, "retained": {"/a": "it stays", "/b": "a device"}, "outcome": "undone"}
    cloud.call = lambda *_args, **_more: said
    monkeypatch.setattr(repair.target_leftovers, "clean_everywhere", lambda *_: (["/a"], {}, {}))
    with pytest.raises(errors.OperationFailed) as caught:
        repair._end_migrations(cloud, "hv2", "m")
    assert caught.value.text == "/b stays: a device"


@pytest.mark.parametrize(("outcome", "new"), [("moved", "hv1"), ("undone", "hv2")])
def test_the_key_of_a_guest_whose_migration_is_completed_goes_with_it(
    cloud, monkeypatch, outcome, new
):
    """Else a purge would leave it, and its old host would stay the one that answers for it."""
    cloud.call = lambda *_args, **_more: {"outcome": outcome, "deleted": [], "retained": {}}
    cloud.left["hv1"]["guests"]["m"] = "running"
    bound = []
    monkeypatch.setattr(
        repair.recover.KeyStore, "rebind", lambda _self, *about: bound.append(about)
    )
    repair._end_migrations(cloud, "hv2", "m")
    assert bound == ([("m", "hv2", new)] if outcome == "moved" else [])


def test_what_the_master_keeps_of_a_guest_that_never_came_is_found_and_removed(tmp_path):
    cloud = Cloud(tmp_path, {"hv1": left()})
    pillars, permissions = Pillars(cloud.opts), Authorizations(cloud.opts)
    pillars.store("web8", "a key that is gone", {"token": "hush"})
    private.write(str(tmp_path / "virtkeys" / "hv1" / "web7"), '{"expires_s": 1}')
    found, _ = repair.find_leftovers(cloud)
    assert [one.id for one in found] == ["permission-expired:web7:hv1", "pillar-without-key:web8"]
    assert "hush" not in str([one.data() for one in found])
    repaired, unmended = repair.repair_all(found, Silent())
    assert (sorted(repaired), unmended) == (["web7", "web8"], {})
    assert list(permissions.expired()) == []
    assert not pillars.remove("web8")
    assert repair.find_leftovers(cloud) == ([], {})


def test_what_a_target_still_holds_says_nothing_of_a_guest_on_two_hosts(cloud):
    """The one is taken away by the migration's own clean-up, of the other a person decides."""
    cloud.left["hv1"]["purgeable"] = ["two@hv3"]
    found = [one.id for one in repair.find_leftovers(cloud)[0] if one.guest == "two"]
    assert sorted(found) == ["left-on-target:two:hv3", "two-hosts:two"]


@pytest.mark.parametrize(("mark", "named"), [("ours", True), ("theirs", False), (None, False)])
def test_the_guest_of_another_is_not_the_one_that_was_given_up(tmp_path, mark, named):
    """Somebody made one of the name there since, or before: the mark in its record says whose."""
    cloud = Cloud(tmp_path, {"hv1": left(["web1"])})
    cloud.left["hv1"]["operations"] = {"web1": mark} if mark else {}
    intent_log.PendingCreate(cloud.opts, "web1", "virt.init", UndoStack(), "ours").record_host(
        "hv1"
    )
    assert [one.id for one in repair.find_leftovers(cloud)[0]] == ["given-up:web1:hv1"] * named
    cloud.left["hv1"] = None
    assert [one.id for one in repair.find_leftovers(cloud)[0]] == ["given-up:web1:hv1"]


@pytest.mark.parametrize(("marks", "named"), [({}, True), ({"web1": "an init's"}, False)])
def test_a_copy_that_was_given_up_has_no_mark(tmp_path, marks, named):
    cloud = Cloud(tmp_path, {"hv1": {**left(["web1"]), "operations": marks}})
    intent_log.PendingCreate(cloud.opts, "web1", "virt.clone", UndoStack()).record_host("hv1")
    assert [one.id for one in repair.find_leftovers(cloud)[0]] == ["given-up:web1:hv1"] * named


@pytest.mark.parametrize(
    "note",
    [b"{", b"\xff", b"[]", b"{}", b'{"host": 7}', b'{"host": "hv1", "function": "virt.init"}'],
)
def test_a_damaged_note_of_what_was_begun_names_nothing(tmp_path, note):
    cloud = Cloud(tmp_path, {"hv1": left(["web1"])})
    intent_log.PendingCreate(cloud.opts, "web1", "virt.init", UndoStack()).record_host("hv1")
    (tmp_path / "virt" / "begun" / "web1").write_bytes(note)
    assert intent_log.load(cloud.opts, "web1") is None
    assert repair.find_leftovers(cloud)[0] == []


def with_disks(unsure=None, **more):
    """A host that has disks which were being made for web1."""
    made = {
        "operation": "virt.update",
        "disks": ["/i/web1_data.raw"],
        "unsure": unsure or {},
        **more,
    }
    return {**left(["web1"]), "orphaned_disks": {"web1": made}}


def test_disks_that_an_update_has_made_for_no_guest_are_named_and_taken_away(tmp_path):
    cloud = Cloud(tmp_path, {"hv1": with_disks()})
    [one], _ = repair.find_leftovers(cloud)
    assert (one.id, one.host) == ("disk-without-guest:web1:hv1", "hv1")
    assert "/i/web1_data.raw on hv1" in one.problem
    assert one.command == "salt-run virt.repair apply=True finding=disk-without-guest:web1:hv1"
    repaired, remaining = repair.repair_all([one], Silent())
    assert (repaired, remaining) == ({"web1": "removed from hv1"}, {})
    assert cloud.called == [("hv1", "virt.remove_made", "web1")]


def test_of_a_disk_that_cannot_be_proven_to_be_ours_a_person_decides(tmp_path):
    cloud = Cloud(tmp_path, {"hv1": with_disks({"/i/web1_x": "look whose it is"}, disks=[])})
    [one], _ = repair.find_leftovers(cloud)
    assert not one.data()["repairs"]
    assert "/i/web1_x: look whose it is" in one.remedy
    assert one.command == "salt hv1 virt.remove_made web1 test=True"


def test_of_disks_on_shared_storage_the_other_hosts_are_asked(tmp_path, monkeypatch):
    cloud = Cloud(tmp_path, {"hv1": with_disks()})
    path = "/i/web1_data.raw"
    asked = {"delete": [], "keep": {path: "on NFS"}, "shared": {path: {}}}
    stays = errors.OperationFailed("/i/web1_data.raw stays: were not asked")

    def one(host, function, kwarg=None, **_options):
        if kwarg.get("test"):
            return asked
        if kwarg["unused"] != [path]:
            raise stays
        return True

    monkeypatch.setattr(cloud, "call", one)
    words = "hv2: used by db1"
    for found, result in [
        (([path], {}), ({"web1": "removed from hv1"}, {})),
        (([], {path: words}), ({}, f"{path} stays: {words}")),
    ]:
        monkeypatch.setattr(shared_storage_check, "unused_elsewhere", lambda *_, found=found: found)
        repaired, remaining = repair.repair_all(repair.find_leftovers(cloud)[0], Silent())
        assert repaired == result[0]
        assert str(result[1]) in str(remaining)


@pytest.mark.parametrize("name", ["a; reboot", "$(reboot)", "a' b", "a\nreboot"])
def test_a_name_that_a_host_made_up_is_no_command(tmp_path, name):
    cloud = Cloud(tmp_path, {"hv1": left([name], [f"{name};"]), "hv2": left([name])})
    found, _ = repair.find_leftovers(cloud)
    assert {one.code for one in found} == {repair.CREATION, repair.DUPLICATE_GUEST}
    for one in found:
        for command in one.command.removeprefix("one of: ").split("; salt "):
            words = shlex.split(command)
            assert any(word in (f"vm_={name}", f"finding={one.id}") for word in words), command


@pytest.mark.parametrize("name", ["x" * 300, "\ud800", "ä" * 200, "a\nb"])
def test_a_name_that_no_file_can_have_does_not_keep_the_others_from_being_mended(tmp_path, name):
    cloud = Cloud(tmp_path, {"hv1": left(["c"], [name, "c"])})
    found, _ = repair.find_leftovers(cloud)
    repaired, unmended = repair.repair_all(found, Silent())
    assert list(repaired) == ["c"]
    assert "cannot be a guest's name" in unmended[name]


def test_what_an_undone_migration_left_on_its_target_is_found_and_taken_away(cloud):
    cloud.left["hv1"]["target_leftovers"] = ["web1"]
    (one,) = repair.select_findings(repair.find_leftovers(cloud)[0], "web1")
    assert one.id == "left-on-target:web1:hv1"
    kept = {"/a": "used by db1"}
    real = cloud.call

    def clean(host, function, kwarg=None, **options):
        real(host, function, {**kwarg, "test": False}, **options)
        return (
            {"delete": [], "keep": kept} if kwarg.get("test") else {"deleted": [], "retained": kept}
        )

    cloud.call = clean
    assert repair.repair_all([one], Silent())[1]["web1"].endswith("hv1: /a stays: used by db1")
    kept = {}
    assert repair.repair_all([one], Silent()) == ({"web1": "removed from hv1"}, {})
    assert ("hv1", "virt.migrate_clean", "web1") in cloud.called


def test_what_was_handed_to_a_target_that_is_silent_is_not_called_removed(cloud):
    cloud.left["hv1"]["purgeable"] = ["web1@hv3"]
    (one,) = repair.select_findings(repair.find_leftovers(cloud)[0], "web1")
    kept = {"/a": "it stays until hv3 knows that nobody uses it"}
    said = {"outcome": "nothing", "leftovers": {}, "retained": kept}
    cloud.call = lambda *_args, **_more: said
    assert repair.repair_all([one], Silent())[1]["web1"].endswith("/a stays: " + kept["/a"])
    said = {"outcome": "moved", "leftovers": {}, "retained": {"/b": "used by db1"}}
    assert repair.repair_all([one], Silent()) == ({"web1": "removed from hv3"}, {})


@pytest.mark.parametrize("said", [{}, {"leftovers": {"hv3": "it does not answer"}}])
def test_a_migration_that_was_broken_off_is_ended_by_its_source_alone(cloud, monkeypatch, said):
    asked = []

    def one(host, function, kwarg=None, **options):
        asked.append((host, function, kwarg, options))
        return said

    monkeypatch.setattr(cloud, "call", one)
    found = repair.select_findings(repair.find_leftovers(cloud)[0], selector=repair.MIGRATION)
    repaired, remaining = repair.repair_all(found, Silent())
    assert asked == [("hv2", "virt.migrate_recover", {"vm_": "m"}, {"long": True})]
    assert list(repaired) == ([] if said else ["m"])
    assert ("hv3: it does not answer" in remaining.get("m", "")) is bool(said)
    cloud.left["hv1"]["target_leftovers"] = ["other"]
    found = repair.select_findings(repair.find_leftovers(cloud)[0], selector=repair.TARGET_FILES)
    asked.clear()
    repair.repair_all(found, Silent())
    assert [function for _, function, *_ in asked if function == "virt.migrate_recover"] == []


def test_a_backup_whose_process_died_is_ended_where_it_was(cloud, monkeypatch):
    asked = []
    cloud.left["hv2"]["backups"] = ["web1"]

    def call(*args, **more):
        asked.append((*args, more))
        return ["web1"]

    monkeypatch.setattr(cloud, "call", call)
    [one] = repair.select_findings(repair.find_leftovers(cloud)[0], selector=repair.BACKUP)
    assert one.id == "backup-interrupted:web1:hv2" and asked == []
    repaired, remaining = repair.repair_all([one], Silent())
    assert list(repaired) == ["web1"] and remaining == {}
    assert asked == [("hv2", "virt.backup_sweep", {}, {"long": True})]
