"""Deployments that find guests of a killed init, with a cloud of plain data."""

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.operations.create import deploy, interrupted_create
from saltvirt.operations.create.init import Init
from saltvirt.operations.journal import intent_log, lock
from saltvirt.placement import policy
from saltvirt.revert import UndoStack
from tests.fakes.fleet import Fleet

HOST = {"cpus": 8, "memory_kib": 16 << 20, "types": ["kvm"], "guests": {}}
HOST["images_folder"] = {"path": "/x", "total_bytes": 1 << 40, "free_bytes": 1 << 40}
WEB = {"vcpus": 1, "memory_kib": 1 << 20, "state": "shutdown", "deployment": "shop"}
HALF = {**WEB, "creating": True}
WISH = {"web1": {"mem": 1024, "seed": False}}


class Cloud(Fleet):
    """Two hosts; the guest is on hv1. ``unfinished``, ``used``, ``at_work``: what hv1 says of
    it."""

    def __init__(self, tmp_path, guest=None, unfinished=(), at_work=None, used=None):
        super().__init__(tmp_path, hv1={}, hv2={})
        self.guests = {"hv1": {"web1": guest}} if guest else {}
        self.left = {"unfinished": list(unfinished), "at_work": at_work or {}, "used": used or {}}

    def said(self, host, fun, kwarg):
        guests = self.guests.get(host, {})
        if fun == "virt.purge" and not kwarg.get("test"):
            self.guests.pop(host, None)
            return True
        if fun == "virt.power":
            self.guests[host][kwarg["name"]] = {**WEB, "state": "running"}
            return {"before": "shutdown", "after": "running"}
        return {
            "virt.inventory": {**HOST, "guests": guests},
            "virt.leftovers": {"guests": {}, "migrations": {}, **self.left},
            "virt.purge": {"delete": [], "keep": {}},
            "virt.vm_state": {name: one["state"] for name, one in guests.items()},
        }.get(fun, {})


def plan(cloud, guests=None):
    wishes = [deploy.parse_guest(name, said, "shop") for name, said in (guests or WISH).items()]
    return deploy.plan(cloud, policy.from_config(None, None), wishes, "shop")


def told(cloud, what="virt.init", host="hv1", starting=False, operation=None):
    one = intent_log.PendingCreate(cloud.opts, "web1", what, UndoStack(), operation)
    one.record_host(host)
    if starting:
        one.mark_started()


def test_what_a_dead_init_half_made_goes_and_is_made_again(tmp_path):
    found = plan(Cloud(tmp_path, HALF, ["web1"]))
    assert (found.recreate, found.placed, found.existing) == ({"web1": "hv1"}, {"web1": "hv1"}, {})
    assert found.changes() == {"web1": {"old": "hv1", "new": "hv1"}}
    assert (
        "partially created by an interrupted init, and would be removed before: web1 on hv1"
        in found.text(test=True)
    )


@pytest.mark.parametrize(
    ("guest", "unfinished", "words"),
    [
        (HALF, [], "it is being created on hv1: run this again"),
        (
            {**HALF, "deployment": "other"},
            ["web1"],
            "of another operation: see salt-run virt.repair name=web1",
        ),
        (
            {**HALF, "deployment": None},
            ["web1"],
            "of another operation: see salt-run virt.repair name=web1",
        ),
    ],
)
def test_what_is_not_proven_is_named_only(tmp_path, guest, unfinished, words):
    found = plan(Cloud(tmp_path, guest, unfinished))
    assert (found.recreate, found.placed, found.existing) == ({}, {}, {"web1": "hv1"})
    assert words in found.text()


@pytest.mark.parametrize("state", ["running", "shutdown"])
def test_what_was_started_since_its_creation_was_interrupted_stays(tmp_path, state):
    guest = {**HALF, "state": state, "interrupted": True}
    cloud = Cloud(tmp_path, guest, ["web1"], used={"web1": "it was started at noon"})
    found = plan(cloud)
    assert (found.recreate, found.placed, found.existing) == ({}, {}, {"web1": "hv1"})
    words = "its creation on hv1 was interrupted, but it was started at noon: it stays as it is"
    assert words in found.text()
    with pytest.raises(errors.OperationFailed, match="web1 on hv1 stays: it was started at noon"):
        interrupted_create.remove(cloud, "web1", "hv1")
    assert cloud.guests["hv1"] == {"web1": guest}


def test_a_whole_one_that_was_never_started_is_started(tmp_path):
    cloud = Cloud(tmp_path, WEB)
    told(cloud)
    found = plan(cloud)
    assert (found.pending_start, found.placed, found.recreate) == ({"web1": "hv1"}, {}, {})
    assert "created by an interrupted init, which would be ended: web1 on hv1" in found.text(
        test=True
    )
    (wish,) = (deploy.parse_guest(name, said, "shop") for name, said in WISH.items())
    report = type("Report", (), {"step": lambda *_, **__: None})()
    with pytest.raises(errors.OperationFailed, match="on hv2 was changed meanwhile"):
        interrupted_create.start(cloud, policy.from_config(None, None), wish, "hv2", report)
    real, known = cloud.answer, []

    def asked(host, function, kwarg):
        if function == "virt.power":
            known.append(intent_log.load(cloud.opts, "web1").started)
        return real(host, function, kwarg)

    cloud.answer = asked
    state = interrupted_create.start(cloud, policy.from_config(None, None), wish, "hv1", report)
    assert state == "running"
    assert known == [True], "written down before the host is told: it may have run from then on"
    assert ("hv1", "virt.power") in cloud.called
    assert intent_log.load(cloud.opts, "web1") is None
    with pytest.raises(errors.OperationFailed, match="on hv1 was changed meanwhile"):
        interrupted_create.start(cloud, policy.from_config(None, None), wish, "hv1", report)


def test_one_that_is_to_stay_off_is_ended_and_not_started(tmp_path):
    cloud = Cloud(tmp_path, WEB)
    told(cloud)
    wish = deploy.parse_guest("web1", {**WISH["web1"], "start": False}, "shop")
    report = type("Report", (), {"step": lambda *_, **__: None})()
    state = interrupted_create.start(cloud, policy.from_config(None, None), wish, "hv1", report)
    assert (state, intent_log.load(cloud.opts, "web1")) == ("shutdown", None)
    assert ("hv1", "virt.power") not in cloud.called


@pytest.mark.parametrize(("mark", "starts"), [("a", True), ("b", False), (None, False)])
def test_one_that_another_operation_has_made_since_is_named_and_not_started(tmp_path, mark, starts):
    cloud = Cloud(tmp_path, WEB)
    cloud.left["operations"] = {"web1": mark} if mark else {}
    told(cloud, operation="a")
    found = plan(cloud)
    assert found.pending_start == ({"web1": "hv1"} if starts else {})
    assert starts or "see salt-run virt.repair name=web1" in found.text()


def test_one_that_another_master_has_made_meanwhile_is_named_and_none_is_started(tmp_path):
    cloud = Cloud(tmp_path, WEB)
    told(cloud)
    cloud.guests["hv2"] = {"web1": WEB}
    (wish,) = (deploy.parse_guest(name, said, "shop") for name, said in WISH.items())
    with pytest.raises(errors.OperationFailed, match=r"more than one host: hv1 .*virt\.repair"):
        interrupted_create.start(cloud, policy.from_config(None, None), wish, "hv1", None)
    assert ("hv1", "virt.power") not in cloud.called
    assert intent_log.load(cloud.opts, "web1").started is False


@pytest.mark.parametrize(
    ("guest", "note"),
    [
        (WEB, {"starting": True}),  # it may have run, and been stopped by who owns it
        ({**WEB, "deployment": "other"}, {}),
        ({**WEB, "state": "paused"}, {}),
        (WEB, {"what": "virt.clone"}),
    ],
)
def test_one_that_may_have_run_is_named_only(tmp_path, guest, note):
    cloud = Cloud(tmp_path, guest)
    told(cloud, **note)
    found = plan(cloud)
    assert (found.pending_start, found.placed, found.existing) == ({}, {}, {"web1": "hv1"})
    assert "was given up or killed: see salt-run virt.repair name=web1" in found.text()


@pytest.mark.parametrize("begins", [None, "hv2"])
def test_one_of_which_nothing_was_begun_on_its_host_is_there(tmp_path, begins):
    cloud = Cloud(tmp_path, WEB)
    if begins:
        told(cloud, host=begins)
    found = plan(cloud, {"web1": {**WISH["web1"], "start": False}})
    assert (found.existing, found.pending_start, found.differences) == ({"web1": "hv1"}, {}, {})


def test_one_that_was_told_to_start_meanwhile_is_not_started_again(tmp_path):
    cloud = Cloud(tmp_path, WEB)
    told(cloud, starting=True)
    (wish,) = (deploy.parse_guest(name, said, "shop") for name, said in WISH.items())
    with pytest.raises(errors.OperationFailed, match="on hv1 was changed meanwhile"):
        interrupted_create.start(cloud, policy.from_config(None, None), wish, "hv1", None)
    assert ("hv1", "virt.power") not in cloud.called


def test_one_that_runs_is_there(tmp_path):
    cloud = Cloud(tmp_path, {**WEB, "state": "running"})
    told(cloud, starting=True)
    assert plan(cloud).text() == "existing: 1"


def test_while_an_operation_is_at_work_nothing_is_done(tmp_path):
    cloud = Cloud(tmp_path, HALF, ["web1"])
    with lock.guest(cloud.opts, "web1", "virt.init"):
        found = plan(cloud)
        assert (found.recreate, found.placed, found.existing) == ({}, {}, {"web1": "hv1"})
        with pytest.raises(errors.OperationFailed, match="under way"):
            interrupted_create.remove(cloud, "web1", "hv1")
    assert ("hv1", "virt.purge") not in cloud.called


def test_what_a_host_still_works_at_is_not_made_elsewhere(tmp_path):
    """Its runner was killed while it fetches the image: it has no domain of the name yet."""
    cloud = Cloud(tmp_path, at_work={"web1": "virt.init, process 7, since today"})
    told(cloud)
    found = plan(cloud)
    assert found.placed == {}
    assert "hv1 is still working on web1: virt.init, process 7" in found.failed["web1"]
    (wish,) = (deploy.parse_guest(name, said, "shop") for name, said in WISH.items())
    report = type("Report", (), {"step": lambda *_, **__: None, "failed": lambda *_: None})()
    with pytest.raises(errors.OperationFailed, match="still working on web1"):
        Init(cloud, policy.from_config(None, None), wish, report).run()
