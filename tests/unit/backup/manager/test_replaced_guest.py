"""Confirm or undo an in-place restore: the requests of the master to hosts of plain data."""

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.backup.manager.replaced_guest import CommitRestore, RollbackRestore
from saltvirt.fleet.answer import Answer, down
from saltvirt.operations.cluster import ha_provider, shared_storage_check
from saltvirt.operations.journal import lock
from tests.unit.operations.guest.test_purge import Cloud as Purged

NFS = {"/nfs/a": {"path": "/nfs/a"}, "/nfs/b": {"path": "/nfs/b"}}
PLAN = {"delete": ["/old"], "keep": {"/nfs/a": "?", "/nfs/b": "?", "/iso": "a medium"},
        "shared": NFS}  # fmt: skip
GONE = {"delete": ["/nfs/a", "/old"], "keep": {"/iso": "a medium", "/nfs/b": "hv2: db1 has it"}}


class Report:
    def __init__(self):
        self.steps = []

    def step(self, what, comment, **more):
        self.steps.append((what, comment, more))

    def done(self, comment, **more):
        self.step("done", comment, **more)


class Cloud(Purged):
    """web1 is on hv1, off; hv2 has db1, which uses /nfs/b. left: what an undo cannot delete."""

    def __init__(self, tmp_path, left=(), refused=None):
        super().__init__(tmp_path, PLAN, hv2={"/nfs/a": None, "/nfs/b": "db1 has it"})
        self.guests = {"hv1": {"web1": "shutdown"}, "hv2": {"db1": "running"}}
        self.left, self.refused, self.done, self.down = left, refused, [], set()
        self.detached = []

    def hosts(self, only=None):
        if only not in (None, "hv1", "hv2"):
            raise errors.NotFound(f"{only} is not a hypervisor of this master")
        return ["hv1", "hv2"]

    def ask(self, hosts, fun, kwarg=None, **options):
        for host in hosts:
            if host in self.down:
                yield down(host)
            elif fun == "virt.storage_users":
                assert kwarg == {"places": NFS}
                yield Answer(host, self.users.get(host, dict.fromkeys(NFS)))
            else:
                yield from super().ask([host], fun, kwarg, **options)

    def call(self, host, fun, kwarg=None, *, long=None, **_options):
        if fun == "virt.shared_disks":
            return {"/nfs/a": "nfs"}
        self.done.append((host, fun, kwarg, long))
        if self.refused:
            raise errors.Refused(self.refused)
        if fun == "virt.backup_undo":
            more = {"detached": self.detached} if self.detached else {}
            return {"leftovers": list(self.left), **more}
        assert fun == "virt.backup_confirm"
        return self.plans if kwarg.get("test") else GONE


@pytest.fixture
def cloud(tmp_path, monkeypatch):
    monkeypatch.setattr(shared_storage_check, "unmatched", lambda _opts, _hosts: {})
    return Cloud(tmp_path)


ASKED = ("hv1", "virt.backup_confirm", {"vm_": "web1", "test": True}, False)
UNDONE = {"name": "web1", "stop": False}


def test_what_is_confirmed_goes_when_the_other_hosts_do_not_use_it(cloud):
    report = Report()
    found = CommitRestore(cloud, "web1", report).run()
    told = {"vm_": "web1", "unused": ["/nfs/a"]}
    assert cloud.done == [ASKED, ("hv1", "virt.backup_confirm", told, True)]
    comment = ("deleted the previous disks of web1 on hv1: /nfs/a, /old; retained /iso: a medium; "
               "retained /nfs/b: hv2: db1 has it")  # fmt: skip
    assert (found.comment, found.changes) == (comment, {"deleted": ["/nfs/a", "/old"]})
    assert found.details == {"host": "hv1", "keep": GONE["keep"]}
    assert report.steps == [("done", comment, {"host": "hv1"})]


def test_a_look_deletes_nothing_and_says_the_same(cloud):
    found = CommitRestore(cloud, "web1", Report()).check()
    assert cloud.done == [ASKED]
    assert (found.changes, found.reasons) == ({"deleted": ["/nfs/a", "/old"]}, ())
    assert found.comment == (
        "would delete the previous disks of web1 on hv1: /nfs/a, /old; retained /nfs/b: hv2: "
        "db1 has it; retained /iso: a medium"
    )
    assert found.details == {"host": "hv1", "keep": GONE["keep"]}
    cloud.plans = {"delete": [], "keep": {}}
    assert CommitRestore(cloud, "web1", Report()).check().comment.endswith("on hv1: nothing")


def test_of_a_guest_that_has_left_the_host_is_said(cloud):
    cloud.guests = {"hv1": {}, "hv2": {}}
    for one in (CommitRestore, RollbackRestore):
        with pytest.raises(errors.NotFound):
            one(cloud, "web1", Report()).run()
        assert one(cloud, "web1", Report()).check().reasons
    assert cloud.done == []
    CommitRestore(cloud, "web1", Report(), host="hv2").run()
    CommitRestore(cloud, "web1", Report(), host="hv2").check()
    RollbackRestore(cloud, "web1", Report(), host="hv2").run()
    assert {host for host, *_ in cloud.done} == {"hv2"}
    with pytest.raises(errors.NotFound, match="hv9 is not a hypervisor"):
        RollbackRestore(cloud, "web1", Report(), host="hv9").run()


def test_what_is_undone_is_said_by_its_host(cloud):
    report = Report()
    found = RollbackRestore(cloud, "web1", report).run()
    assert cloud.done == [("hv1", "virt.backup_undo", UNDONE, True)]
    assert (found.comment, found.changes) == (
        "rolled back web1 on hv1; the guest is off", {"undone": True}
    )  # fmt: skip
    assert found.complete and found.details == {"host": "hv1"}
    assert report.steps == [("done", found.comment, {"host": "hv1"})]
    RollbackRestore(cloud, "web1", report, stop=True, host="hv1").run()
    assert cloud.done[-1] == ("hv1", "virt.backup_undo", {**UNDONE, "stop": True}, True)
    cloud.left = ["/new is in use"]
    short = RollbackRestore(cloud, "web1", report).run()
    assert not short.complete
    assert short.comment.endswith(
        "/new is in use: run virt.backup_undo again when that is resolved"
    )
    cloud.left, cloud.detached = [], ["/added"]
    more = RollbackRestore(cloud, "web1", report).run()
    assert more.complete and more.details["detached"] == ["/added"]
    assert more.comment.endswith(
        "; detached /added, which was attached after the restore, and retained it"
    )


def test_a_look_at_what_would_be_undone(cloud):
    found = RollbackRestore(cloud, "web1", Report()).check()
    assert cloud.done == [("hv1", "virt.backup_undo", {**UNDONE, "test": True}, True)]
    comment = "would roll back web1 on hv1 and delete the disks of the restore"
    assert (found.comment, found.changes) == (comment, {"undone": True})
    assert (found.reasons, found.details) == ((), {"host": "hv1"})
    cloud.refused = "it runs"
    assert RollbackRestore(cloud, "web1", Report()).check().reasons == ("refused: it runs",)


def test_a_guest_that_is_kept_or_at_work_is_left_alone(cloud):
    ha_provider.store_managed(cloud.opts, {"web1": "high availability: virt.ha_disable web1 first"})
    with pytest.raises(errors.OperationFailed, match="is managed by high availability"):
        RollbackRestore(cloud, "web1", Report()).run()
    with lock.guest(cloud.opts, "web1", "virt.start"):
        busy, kept = RollbackRestore(cloud, "web1", Report()).check().reasons
        assert "is under way" in busy and "is managed by" in kept
        assert "is under way" in CommitRestore(cloud, "web1", Report()).check().reasons[0]
        for one in (CommitRestore, RollbackRestore):
            with pytest.raises(errors.OperationFailed, match="is under way"):
                one(cloud, "web1", Report()).run()
    assert all(asked[2].get("test") for asked in cloud.done)


def test_one_that_another_host_could_have_is_not_brought_back(cloud):
    cloud.down.add("hv2")
    with pytest.raises(errors.OperationFailed, match="hv2"):
        RollbackRestore(cloud, "web1", Report()).run()
    assert cloud.done == []
    RollbackRestore(cloud, "web1", Report(), host="hv1").run()  # the operator knows


@pytest.mark.parametrize("one", [CommitRestore, RollbackRestore])
def test_a_name_that_is_none_asks_nobody(cloud, one):
    with pytest.raises(errors.InvalidInput):
        one(cloud, "../x", Report()).run()
    assert one(cloud, "../x", Report()).check().reasons
    assert cloud.done == []
