"""Unusual answers of hosts and targets during backups, as the master treats them."""

import contextlib
import dataclasses
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.backup.manager import backup, files, live_restore, schedules, target_upkeep
from saltvirt.backup.manager import restore as restoring
from saltvirt.backup.manager.restore import RestoreBackup, RestoreRequest
from saltvirt.backup.model import chains
from saltvirt.backup.model.answers import (
    BackupPlan,
    BackupReader,
    BackupResult,
    GuestInspection,
    InPlaceCheck,
    ListedBackup,
    PlannedDisk,
    ServedDisk,
    Serving,
    ShownBackup,
)
from saltvirt.backup.model.files import FileListing
from saltvirt.backup.model.pins import (
    COMPLETE,
    DISCONNECTED,
    MISSING,
    OFF,
    PULLING,
    BackupPin,
    LiveRestoreStatus,
    PinnedBackup,
)
from saltvirt.backup.model.policy import TargetPolicy
from saltvirt.backup.model.upkeep_answers import VerifyReport
from saltvirt.fleet import keys
from saltvirt.operations.journal import slots
from saltvirt.xml.domain.metadata import NAMESPACE
from tests.clock import Clock, until
from tests.fakes.fleet import Fleet

IDENT = "000001-20261126T160000Z-0123abcd"
TARGETS = {
    "vault": {"host": "b1", "folder": "/b"},
    "far": {"host": "b2", "folder": "/far", "mounted": True},
    "each": {"folder": "/each"},
}
LOOK = GuestInspection("u", True, (), ("c1", "c2"), {}, "web1")


class Cloud(Fleet):
    """hv1 and hv2, and what all hosts say: function to an answer."""

    def __init__(self, tmp_path, targets=None, **says):
        targets = TARGETS if targets is None else targets
        super().__init__(tmp_path, {"backup": {"targets": targets}}, hv1={}, hv2={})
        self.says = {f"virt.{name}": said for name, said in says.items()}
        self.told = []

    def hosts(self, only=None):
        return [only] if only else ["hv1", "hv2"]

    def connected(self, hosts):
        return self.there & {*hosts}

    there = frozenset(("hv1", "hv2"))

    def said(self, host, fun, kwarg):
        return self.says[fun]

    def fire_event(self, tag, data):
        self.told.append((tag.rsplit("/", 1)[-1], data["message"]))


def plan(*needed, superseded=()):
    disks = (PlannedDisk("vda", reason="first"),)
    return BackupPlan(IDENT, disks, needed, superseded=superseded)


def needed(cloud, look=LOOK, mine=None):
    made = backup.CreateBackup(cloud, "web1", "vault", cloud.report())
    found = backup._BackupJob("hv1", "b1", look, mine or plan())
    others = [one for one in made._policy().targets.values() if one.name != "vault"]
    return made, found, made._other_targets(cloud, others, found)


def stay(cloud, made, found, others):
    """(the checkpoints that stay, what is left)."""
    mine = chains.checkpoint(IDENT)
    left = made._prune_checkpoints(found, BackupResult(IDENT, 0, 0, (mine,)), others)
    [told] = [told for _, fun, told in cloud.asked if fun == "virt.backup_end"]
    assert told["good"] is True and mine in told["needed"]
    return {*told["needed"]} - {mine}, left


def test_a_target_that_is_not_mounted_may_still_need_each_checkpoint(tmp_path):
    """What is below its mount point then is no target: it would need none of them."""

    def says(_host, kwarg):
        if kwarg.get("mounted"):
            return errors.InvalidInput(f"{kwarg['folder']} is not mounted")
        return plan()

    cloud = Cloud(tmp_path, backup_plan=says, backup_end={"reason": None, "leftovers": []})
    made, found, kept = needed(cloud)
    assert kept.silent == ("far",)
    assert stay(cloud, made, found, kept) == (
        {"c1", "c2"}, ("retained the checkpoints of the backups at far, which does not answer",)
    )  # fmt: skip


def test_what_the_other_targets_need_is_asked_of_their_machines(tmp_path):
    cloud = Cloud(tmp_path, backup_plan=lambda host, _: plan(f"of {host}", superseded=(host,)))
    others = needed(cloud)[2]
    assert (others.needed, others.superseded) == ({"of b2", "of hv1"}, {"b2", "hv1"})
    assert {host: told["mounted"] for host, _, told in cloud.asked} == {"b2": True, "hv1": False}


def checkpoints(*days):
    return [f"salt-virt.000001-202611{day:02d}T000000Z-00000000" for day in days]


def test_only_what_a_target_of_ours_has_made_goes(tmp_path, monkeypatch):
    """Another master's, those of a folder of the host, and a user's stay."""
    own, old, theirs, others, users = *checkpoints(20, 19, 18, 17), "a-users"
    look = GuestInspection("u", True, (), (own, old, theirs, others, users), {}, "web1")
    now = "2026-11-26T00:00:00Z"
    monkeypatch.setattr(backup.record, "format_time", lambda _seconds: now)
    cloud = Cloud(tmp_path, backup_plan=lambda *_: plan(theirs, superseded=(old,)),
                  backup_end={"reason": None, "leftovers": []})  # fmt: skip
    found = needed(cloud, look, plan(own))
    assert stay(cloud, *found)[0] == {theirs, others, users}


@pytest.mark.parametrize("is_silent", [False, True])
def test_one_that_nobody_knows_goes_after_a_month(tmp_path, monkeypatch, is_silent):
    lost, user = checkpoints(1)[0], "a-users"
    look = GuestInspection("u", True, (), (lost, user), {}, "web1")
    monkeypatch.setattr(backup.record, "format_time", lambda _seconds: "2026-12-02T00:00:00Z")
    says = errors.ConnectionFailed("silent") if is_silent else plan()
    cloud = Cloud(tmp_path, backup_plan=says, backup_end={"reason": None, "leftovers": []})
    assert stay(cloud, *needed(cloud, look))[0] == ({lost, user} if is_silent else {user})


def test_other_targets_are_asked_by_a_fleet_of_its_own_in_the_other_thread(tmp_path, monkeypatch):
    cloud, other = Cloud(tmp_path), Cloud(tmp_path, backup_plan=plan("c1"))
    opened = []

    @contextlib.contextmanager
    def own(opts, like):
        opened.append((opts, like))
        yield other

    monkeypatch.setattr(backup, "Fleet", own)
    made = backup.CreateBackup(cloud, "web1", "vault", cloud.report())
    target, found = made._policy().targets["vault"], backup._BackupJob("hv1", "b1", LOOK, plan())
    assert made._query_others(target, found).needed == {"c1"}
    assert opened == [(cloud.opts, cloud)] and cloud.asked == []
    cloud.opts["virt"]["backup"]["targets"] = {"vault": TARGETS["vault"]}
    assert made._query_others(target, found) == backup._OtherTargets() and len(opened) == 1


def test_who_has_waited_looks_again(tmp_path):
    """Meanwhile the guest may have another disk, and the target another backup."""
    cloud = Cloud(tmp_path)
    made, looked = backup.CreateBackup(cloud, "web1", "vault", cloud.report()), []
    made._prepare = lambda _target, _reader: looked.append(1) or SimpleNamespace(host="hv1")
    made._execute = lambda _target, _found: len(looked)
    target = made._policy().targets["vault"]
    with ThreadPoolExecutor(1) as pool:
        with slots.backing_up(cloud.opts, {"hv1": 1}, {"vault": 4}, print, "the backup of web2"):
            done = pool.submit(made._create, target)
            until(lambda: cloud.told, "it waits")
            assert not done.done()
        assert done.result(60) == 2
    [(step, words)] = cloud.told
    assert step == "wait" and words.startswith("web1: waiting: ")
    assert made._create(target) == 3


def test_what_could_not_be_ended_is_said_and_the_backup_is_good(tmp_path):
    cloud = Cloud(tmp_path, backup_end=errors.OperationFailed("libvirt does not end it"))
    made = backup.CreateBackup(cloud, "web1", None, cloud.report())
    found = backup._BackupJob("hv1", "b1", LOOK, plan())
    assert made._end_export(found, False, ()) == "hv1: libvirt does not end it"
    assert made._prune_checkpoints(found, BackupResult(IDENT, 0, 0), backup._OtherTargets()) == (
        "hv1 may still export the disks: end that with virt.backup_end",
    )


def test_a_host_that_shows_another_guest_is_not_read(tmp_path):
    shown = Serving("another", "hv1", 1, "crash", "", (ServedDisk("vda", 1, "", "vda"),), "")
    cloud = Cloud(tmp_path, backup_begin=shown)
    made = backup.CreateBackup(cloud, "web1", None, cloud.report())
    found = backup._BackupJob("hv1", "b1", LOOK, plan())
    with pytest.raises(errors.BadAnswer, match="hv1 exports another guest than it inspected"):
        made._copy_disks(made._policy().targets["vault"], found)
    assert [fun for _, fun, _ in cloud.asked] == ["virt.backup_begin"]


@pytest.mark.parametrize(("skipped", "why"), [
    ({"sda": "it is read-only", "sdb": "it is transient"},
     "sda: it is read-only; sdb: it is transient"),
    ({}, "it has no disks"),
])  # fmt: skip
def test_without_a_disk_there_is_no_backup_and_it_is_said_why(tmp_path, monkeypatch, skipped, why):
    monkeypatch.setattr(backup.lifecycle, "host_for_write", lambda *_: "hv1")
    cloud = Cloud(tmp_path, backup_look=GuestInspection("u", True, (), (), skipped, "web1"))
    made = backup.CreateBackup(cloud, "web1", "vault", cloud.report())
    with pytest.raises(errors.InvalidInput, match=f"web1 has no disk that .*: {why}$"):
        made._prepare(made._policy().target("vault"))


@pytest.mark.parametrize(("there", "asked"), [
    ({"hv1", "hv2"}, "hv1"), ({"hv2"}, "hv2"), (set(), "hv1"),
])  # fmt: skip
def test_a_target_that_all_mount_is_asked_of_the_first_that_is_there(tmp_path, there, asked):
    cloud = Cloud(tmp_path)
    cloud.there = there
    assert target_upkeep.target_host(cloud, TargetPolicy("each", None, "/each")) == asked
    assert target_upkeep.target_host(cloud, TargetPolicy("vault", "b1", "/b")) == "b1"


def test_a_guest_without_a_backup_there_is_named(tmp_path):
    cloud = Cloud(tmp_path, backup_verify=VerifyReport())
    [said] = target_upkeep.Verify(cloud, "web1", "vault", cloud.report()).run().parts
    assert (said.comment, said.complete) == ("vault has no backup of web1", True)


def progress(watch, *events):
    """What is seen of events while it is asked."""
    cloud, seen = Cloud("/nowhere"), []
    report = cloud.report()
    report.progress = lambda percent, text: seen.append((percent, text))
    for tag, event in events:
        watch(cloud, report)(tag, event)
    return seen


def test_how_far_it_is_read_is_shown():
    def verify(cloud, report):
        return target_upkeep.Verify(cloud, None, None, report)._watch

    told = {"name": "web1", "backup": IDENT, "percent": 7}
    assert progress(
        verify, ("x/verify", told), ("x/pull", told), ("x/verify", {"percent": None})
    ) == [(7, f"web1: {IDENT}: 7 % verified")]

    def made(cloud, report):
        return backup.CreateBackup(cloud, "web1", None, report)._watch

    assert progress(made, ("x", {"percent": 0}), ("x", {})) == [(0, "web1: 0 % read")]


@pytest.mark.parametrize(("given", "why"), [
    ({"new": "web2", "in_place": True}, "new=NAME cannot be combined with in_place or disk"),
    ({"new": "web2", "disk": "vda"}, "new=NAME cannot be combined with in_place or disk"),
    ({"stop": True}, "stop=True requires in_place=True"),
    ({"missing": True, "in_place": True}, "missing=True applies to a guest"),
    ({"missing": True, "disk": "vda"}, "missing=True applies to a guest"),
    ({"instant": True, "disk": "vda"}, "instant=True restores a guest"),
])  # fmt: skip
def test_what_makes_no_sense_together_is_refused_before_anybody_is_asked(tmp_path, given, why):
    cloud = Cloud(tmp_path)
    one = RestoreBackup(cloud, RestoreRequest("web1", **given), cloud.report())
    assert why in one.check().answer()["web2" if "new" in given else "web1"]["comment"]
    with pytest.raises(errors.InvalidInput, match=why):
        one.run()
    assert cloud.asked == []


def test_what_goes_together_is_not_refused():
    for given in (
        {"instant": True, "in_place": True, "disk": "vda"}, {"in_place": True, "stop": True},
    ):  # fmt: skip
        RestoreRequest("web1", **given).check()


UUID = "b7d1f0a2-52a3-4c0e-9d53-0f8f6e1f4d11"
SEEDED = f"<domain><metadata><guest xmlns='{NAMESPACE}' seeded='yes'/></metadata></domain>"
SHOWN = ShownBackup(IDENT, "web1", "b1", 1, SEEDED, (), "PEM")
READER = BackupReader("PEM")


def test_a_guest_that_is_meant_by_its_uuid_is_called_as_it_was(tmp_path):
    """Not as its UUID is written: two guests may have had the name."""
    several = [
        ListedBackup(f"{number}-x", guest="web1", uuid=uuid).to_answer()
        for number, uuid in (("000001", UUID), ("000002", UUID.replace("b7", "c8")))
    ]
    cloud = Cloud(
        tmp_path, backup_list=several, inventory={},
        vm_state=lambda host, _: {"web1": "running"} if host == "hv2" else {},
    )  # fmt: skip
    one = RestoreBackup(cloud, RestoreRequest(UUID, target_name="vault"), cloud.report())
    assert "web1 already exists on hv2" in one.check().answer()["web1"]["comment"]
    with pytest.raises(errors.AlreadyExists, match="web1 already exists on hv2"):
        one.run()
    found = RestoreBackup(
        cloud, RestoreRequest(UUID, target_name="vault", missing=True), cloud.report()
    ).run()
    assert (found.subject, found.comment) == ("web1", "web1 exists on hv2 and is running")
    other = RestoreBackup(
        cloud, RestoreRequest(UUID, target_name="vault", new="web9"), cloud.report()
    )
    assert "web9" in other.check().answer()
    none = RestoreBackup(
        cloud, RestoreRequest(UUID.replace("b7", "d9"), target_name="vault"), cloud.report()
    )
    with pytest.raises(errors.NotFound, match=r"no backup of d9d1.* in the target vault found$"):
        none.run()


def test_with_missing_a_guest_that_is_there_stays_as_it_is(tmp_path):
    cloud = Cloud(tmp_path, vm_state=lambda host, _: {"web1": "running"} if host == "hv2" else {})
    one = RestoreBackup(cloud, RestoreRequest("web1", missing=True), cloud.report())
    for said in (one.check(), one.run()):
        assert (said.comment, said.changes) == ("web1 exists on hv2 and is running", {})
    assert {fun for _, fun, _ in cloud.asked} == {"virt.vm_state"}


@pytest.mark.parametrize(("given", "there", "where"), [
    ({"disk": "vda"}, {"hv2": UUID}, "hv2"),
    ({"disk": "vda"}, {}, "hv1"),
    ({"disk": "vda"}, {"hv1": UUID, "hv2": UUID}, "hv1"),
    ({"disk": "vda", "host": "hv3"}, {"hv2": UUID}, "hv3"),
    ({"new": "web2"}, {"hv2": UUID}, "hv1"),
])  # fmt: skip
def test_a_disk_as_a_file_is_made_where_its_guest_is_by_now(
    tmp_path, monkeypatch, given, there, where
):
    hosts = [
        SimpleNamespace(name=host, guests=[SimpleNamespace(name="web1", uuid=uuid)])
        for host, uuid in there.items()
    ]
    monkeypatch.setattr(restoring.inventory, "gather", lambda _fleet: (hosts, {}))
    kept = ListedBackup(IDENT, guest="web1", uuid=UUID, host="hv1", disks={"vda": "full"})
    cloud = Cloud(tmp_path, backup_list=[kept.to_answer()])
    one = RestoreBackup(cloud, RestoreRequest("web1", target_name="vault", **given), cloud.report())
    assert one._plan().host == where


def test_a_host_that_answers_for_another_guest_is_not_believed(tmp_path):
    made = {"name": "web9", "state": "shutdown"}
    cloud = Cloud(tmp_path, backup_restore=lambda *_: {**MADE, **made})
    one = RestoreBackup(cloud, RestoreRequest("web1"), cloud.report())
    found = SimpleNamespace(host="hv1", target=TargetPolicy("vault", "b1", "/b"))
    with pytest.raises(errors.BadAnswer, match="hv1 answers for web9 instead of web1"):
        one._create_guest(found, SHOWN, READER)


@pytest.mark.parametrize("seed", [None, True, False])
def test_the_key_of_a_second_guest_comes_in_or_the_guest_goes_again(tmp_path, monkeypatch, seed):
    """Its minion would be denied, or take itself for the original's."""
    gone, asked = [], RestoreRequest("web1", new="web2", seed=seed)
    cloud = Cloud(tmp_path, backup_restore={**MADE, "name": "web2", "pub_key": "KEY"})
    monkeypatch.setattr(restoring.purge, "on_host", lambda _, *where: gone.append(where))
    monkeypatch.setattr(restoring.authorization.syndic, "below", lambda *_: False)
    cloud.opts["minimum_auth_version"] = 3
    one = RestoreBackup(cloud, asked, cloud.report())
    found = SimpleNamespace(host="hv1", target=TargetPolicy("vault", "b1", "/b"))
    if seed is False:
        assert one._create_with_key(found, SHOWN, READER).name == "web2"
    else:
        with pytest.raises(errors.KeyRefused, match="hv1: the master did not get the key of web2"):
            one._create_with_key(found, SHOWN, READER)
    assert gone == ([] if seed is False else [("hv1", "web2")])
    [(_, _, told)] = cloud.asked
    assert told.get("seed") is seed and told["itself"] is False


def test_a_second_guest_does_not_take_the_key_of_another_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(restoring.KeyStore, "status", lambda *_: "accepted")
    cloud = Cloud(tmp_path, inventory={}, vm_state={})
    for seed, refused in ((None, True), (False, False)):
        asked = RestoreRequest("web1", new="web2", seed=seed)
        words = RestoreBackup(cloud, asked, cloud.report()).check().answer()["web2"]["comment"]
        assert ("run salt-key -d web2" in words) is refused


def test_another_backup_than_was_asked_for_is_put_nowhere(tmp_path):
    """And it is shown no more."""
    shown = {"backup_id": "000009-x", "guest": "web1", "host": "b1", "port": 1, "definition": "",
             "disks": [], "authority": "pem"}  # fmt: skip
    cloud = Cloud(
        tmp_path, backup_reader=BackupReader("pem"), backup_show=shown, backup_hide=True,
        backup_restore=MADE,
    )  # fmt: skip
    one = RestoreBackup(cloud, RestoreRequest("web1", in_place=True), cloud.report())
    found = SimpleNamespace(
        host="hv1", machine="b1", target=TargetPolicy("vault", "b1", "/b"),
        backup=ListedBackup(IDENT, guest="web1", uuid="u"),
    )  # fmt: skip
    with pytest.raises(errors.BadAnswer, match=f"b1 exports 000009-x instead of {IDENT}"):
        one._create(found)
    asked = [fun for _, fun, _ in cloud.asked]
    assert asked == ["virt.backup_reader", "virt.backup_show", "virt.backup_hide"]


def test_each_reason_against_a_restore_over_a_guest_is_said(tmp_path):
    over = InPlaceCheck("u", True, ("it runs", "it has snapshots"))
    cloud = Cloud(
        tmp_path, backup_over=over, vm_state={"web1": "running"}, backup_list=[], inventory={}
    )
    cloud.hosts = lambda only=None: ["hv1"]
    one = RestoreBackup(
        cloud, RestoreRequest("web1", in_place=True, target_name="vault"), cloud.report()
    )
    said = one.check().answer()["web1"]
    assert said["result"] is False
    assert "it runs" in said["comment"] and "it has snapshots" in said["comment"]
    with pytest.raises(errors.Refused, match=r"^refused: it runs$"):
        one.run()


MADE = {"name": "web1", "state": "shutdown", "uuid": "u", "disks": [], "mac": []}


def stands(*hosts):
    return [PinnedBackup("u", IDENT, BackupPin("web1", host)).to_answer() for host in hosts]


class Instants(Cloud):
    """web1 stands on a backup of the vault, on these hosts. says: a Standing, or several, one after
    the other; of a host, where it is a dict."""

    def __init__(self, tmp_path, *says, hosts=("hv1",), **more):
        self.standings = iter(says)
        super().__init__(
            tmp_path, {"vault": TARGETS["vault"]}, backup_stands=stands(*hosts),
            backup_standing=self.standing, backup_let_go=True, **more,
        )  # fmt: skip

    def standing(self, host, _kwarg):
        said = next(self.standings)
        return said[host] if isinstance(said, dict) else said

    def instant(self, name="web1", timeout_s=100):
        clock = Clock()
        return live_restore.FinishLiveRestore(self, name, self.report(), timeout_s, clock.sleep)

    def let_go(self):
        return [told for _, fun, told in self.asked if fun == "virt.backup_let_go"]


@pytest.mark.parametrize(("name", "about", "words"), [
    ("web1", "web1", "web1 does not run from a backup"),
    (None, "all", "no guest runs from a backup"),
])  # fmt: skip
def test_where_nobody_stands_on_a_backup_it_is_said(tmp_path, name, about, words):
    cloud = Instants(tmp_path, hosts=())
    for said in (cloud.instant(name).run(), cloud.instant(name).check()):
        [part] = said.parts
        assert (part.subject, part.comment, part.complete) == (about, words, True)


@pytest.mark.parametrize(("state", "words"), [
    (COMPLETE, f"web1 on hv1 is completely restored and no longer needs {IDENT}"),
    (MISSING, f"web1 is no longer on hv1: it does not need {IDENT}"),
])  # fmt: skip
def test_what_is_not_needed_any_more_is_let_go(tmp_path, state, words):
    cloud = Instants(
        tmp_path, LiveRestoreStatus(PULLING, IDENT, 7), *[LiveRestoreStatus(state, IDENT)] * 2
    )
    [part] = cloud.instant().run().parts
    assert (part.comment, part.changes, part.complete) == (words, {"released": IDENT}, True)
    assert cloud.let_go() == [
        {"folder": "/b", "mounted": False, "uuid": "u", "backup": IDENT,
         "guest": "web1", "host": "hv1"},
    ]  # fmt: skip
    assert cloud.told == [("done", words)]


def test_a_guest_that_stands_on_another_backup_stands_on_this_no_more(tmp_path):
    cloud = Instants(tmp_path, *[LiveRestoreStatus(PULLING, "000002-x", 7)] * 2)
    assert cloud.instant().run().parts[0].changes == {"released": IDENT}
    assert len(cloud.let_go()) == 1


def test_one_that_is_off_is_not_waited_for(tmp_path):
    cloud = Instants(tmp_path, LiveRestoreStatus(OFF, IDENT, 7))
    [part] = cloud.instant().run().parts
    assert part.comment == f"web1 is off; 7 % of web1 is restored to hv1 from {IDENT}: " + (
        "virt.start web1 continues the restore"
    )
    assert not part.complete and cloud.let_go() == []


def test_one_that_stays_cut_off_is_named_with_why(tmp_path):
    """What is shown anew is cut off again."""
    cut = LiveRestoreStatus(DISCONNECTED, IDENT, 7, True, "b1 does not answer")
    cloud = Instants(
        tmp_path, cut, cut, backup_reader=BackupReader("pem"), backup_again=cut,
        backup_show={"backup_id": IDENT, "guest": "web1", "host": "b1", "port": 1, "definition": "",
                     "disks": [], "authority": "pem"},
    )  # fmt: skip
    [part] = cloud.instant(timeout_s=0).run().parts
    words = (
        "web1 has lost the connection to its backup: b1 does not answer, and the guest is paused "
        f"at an unreadable block; 7 % of web1 is restored to hv1 from {IDENT}"
    )
    assert (part.comment, part.complete) == (words, False)
    assert [one[0] for one in cloud.told] == ["reconnect", "disconnected"]


def test_two_of_one_name_are_told_apart(tmp_path):
    """The one on hv2 was made when hv1 had been silent for long."""
    said = {
        "hv1": errors.OperationFailed("no libvirt"),
        "hv2": LiveRestoreStatus(PULLING, IDENT, 7),
    }
    cloud = Instants(tmp_path, *[said] * 2, hosts=("hv1", "hv2"))
    found = cloud.instant().check().answer()
    assert found[f"web1 on hv1, {IDENT}"]["comment"] == "hv1: no libvirt" and found["retcode"] == 1
    assert found[f"web1 on hv2, {IDENT}"]["result"] is True and len(found) == 3


def test_a_target_that_tells_no_list_is_named_and_nobody_is_taken_for_standing(tmp_path):
    cloud = Instants(tmp_path)
    cloud.says["virt.backup_stands"] = {"web1": "hv1"}
    [part] = cloud.instant().run().parts
    assert not part.complete and "b1: its answer to " in part.comment


def test_files_that_are_not_shown_or_are_missing_are_named(tmp_path):
    told = {"name": "a", "kind": "file", "size_bytes": 1, "mode": "0644"}
    seen = FileListing.from_answer(
        {"backup_id": IDENT, "guest": "web1", "files": [told], "omitted": 5,
         "missing": {"/srv": "it is encrypted"}}, "x",
    )  # fmt: skip
    cloud = Cloud(tmp_path, backup_ls=seen)
    said = files.ListFiles(
        cloud, files.FilesRequest("web1", "/etc", target_name="vault"), cloud.report()
    ).run()
    assert said.comment == (
        f"/etc of web1 has 6 items in {IDENT}; showing 1; /srv is not mounted: it is encrypted"
    )
    assert not said.complete


def wish(tmp_path, before=None, **options):
    cloud = Cloud(tmp_path, backup_wish=before)
    found = schedules.BackupSchedules(cloud.opts)
    return cloud, found, found.take_options("web1", options)


def test_backup_in_the_metadata_and_beside_it_is_a_contradiction(tmp_path):
    with pytest.raises(errors.InvalidInput, match="guest web1: backup is set twice"):
        wish(tmp_path, backup={"to": "vault"}, metadata={"backup": "no"})
    with pytest.raises(errors.NotFound, match="unknown backup target 'valt'"):
        wish(tmp_path, backup={"to": "valt"})


@pytest.mark.parametrize("before", [7, ["yes"], {"backup": "yes"}, True])
def test_how_it_was_backed_up_is_a_text_or_nothing(tmp_path, before):
    cloud, found, _ = wish(tmp_path, before, backup=False)
    with pytest.raises(errors.ConnectionFailed, match=r"hv1: its answer .*: it is not text"):
        found.apply(cloud, "web1", "hv1", False)


def test_one_that_says_so_already_is_not_changed(tmp_path):
    cloud, found, options = wish(tmp_path, "no", backup=False, mem=1)
    assert options == {"mem": 1, "metadata": {"backup": "no"}}
    assert found.apply(cloud, "web1", "hv1", False) is None
    assert found.apply(cloud, "web2", "hv1", False) is None
    assert [told["name"] for _, _, told in cloud.asked] == ["web1"]
    cloud.says["virt.backup_wish"] = None
    said = found.apply(cloud, "web1", "hv1", True)
    assert said.changes == {"backup": {"old": None, "new": "no"}}
    assert said.comment == "would set the backup schedule of web1: no"


@pytest.mark.parametrize(("more", "says"), [({}, True), ({"new": "web2"}, False)])
def test_that_a_purge_has_removed_the_key_of_a_restored_minion_is_said(
    tmp_path, monkeypatch, more, says
):
    """Its minion would wait, and nobody would know for what."""
    record = f"<guest xmlns='{NAMESPACE}' seeded='yes'/>"
    definition = f"<domain><metadata>{record}</metadata></domain>"
    shown = ShownBackup(IDENT, "web1", "b1", 1, definition, (), "PEM")
    cloud = Cloud(tmp_path)
    one = RestoreBackup(cloud, RestoreRequest("web1", **more), cloud.report())
    assert ("no accepted key for web1: start the guest" in one._lacks_key(shown)) is says
    assert one._lacks_key(dataclasses.replace(shown, definition="<domain/>")) == ""
    monkeypatch.setattr(keys.KeyStore, "accepted", lambda _self, _name: "PEM")
    assert one._lacks_key(shown) == ""
