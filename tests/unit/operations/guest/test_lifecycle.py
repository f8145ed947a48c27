"""Power verbs by a guest's name: requests to hosts, and messages."""

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.fleet.answer import FAILED, Answer
from saltvirt.operations.cluster import failover_capacity, ha_provider
from saltvirt.operations.guest.lifecycle import VERBS, Lifecycle
from saltvirt.operations.journal import intent_log, location_cache
from saltvirt.revert import UndoStack
from tests.counted import Cloud

WEB1 = {"vcpus": 1, "memory_kib": 1 << 20}
RUN, PAUSE, OFF = "running", "paused", "shutdown"


def cloud_with(tmp_path, state, host="hv1", **virt):
    found = Cloud(tmp_path, 2, **virt)
    found.names = ["hv1", "hv2"]
    found.guests = {"hv1": {}, "hv2": {}}
    found.guests[host] = {"web1": {**WEB1, "state": state}}
    return found


def heard_by(cloud):
    """(function, arguments) of each question that is asked from now on."""
    heard = []
    cloud.first = lambda _host, fun, kwarg: heard.append((fun, kwarg))
    return heard


@pytest.mark.parametrize(
    ("verb", "before", "after"),
    [
        ("start", OFF, RUN), ("start", "crashed", RUN), ("shutdown", RUN, OFF),
        ("force_off", PAUSE, OFF), ("force_off", "crashed", OFF), ("pause", RUN, PAUSE),
        ("resume", PAUSE, RUN), ("resume", "pmsuspended", RUN), ("reset", RUN, RUN),
    ],
)  # fmt: skip
def test_a_check_says_what_a_run_does(tmp_path, verb, before, after):
    cloud = cloud_with(tmp_path, before)
    checked = Lifecycle(cloud, "web1", verb).check()
    assert cloud.guests["hv1"]["web1"]["state"] == before
    done = Lifecycle(cloud, "web1", verb).run()
    change = {} if before == after else {"state": {"old": before, "new": after}}
    assert checked.changes == done.changes == change
    assert checked.comment == f"web1 on hv1 would be {VERBS[verb].done}"
    assert done.comment == f"web1 on hv1 was {VERBS[verb].done}"
    assert checked.details == {"host": "hv1", "state": before}
    assert done.details == {"host": "hv1", "state": after}
    assert cloud.guests["hv1"]["web1"]["state"] == after
    assert not checked.nothing


def test_a_host_may_take_its_time_for_it(tmp_path):
    """A start can wait for storage, a shutdown for the guest."""
    cloud = cloud_with(tmp_path, OFF)
    Lifecycle(cloud, "web1", "start").run()
    assert "virt.power" in cloud.unhurried


@pytest.mark.parametrize(
    ("verb", "state"), [("start", RUN), ("shutdown", OFF), ("force_off", OFF), ("pause", PAUSE)]
)
def test_one_that_is_so_already_is_left_alone(tmp_path, verb, state):
    cloud = cloud_with(tmp_path, state)
    for one in (Lifecycle(cloud, "web1", verb).check(), Lifecycle(cloud, "web1", verb).run()):
        assert (one.comment, one.changes) == (f"web1 on hv1 is {state} already", {})
        assert one.details == {"host": "hv1", "state": state}
    assert Lifecycle(cloud, "web1", verb).check().nothing
    assert not {"virt.power", "virt.start"} & {fun for fun, _ in cloud.published[-1:]}


@pytest.mark.parametrize(
    ("verb", "state", "refusal"),
    [
        ("start", PAUSE, "cannot be started; virt.resume web1 resumes it"),
        ("shutdown", PAUSE, "cannot be shut down; virt.resume web1 resumes it"),
        ("pause", OFF, "cannot be paused"),
        ("resume", OFF, "cannot be resumed"),
        ("reset", OFF, "cannot be reset"),
    ],
)
def test_a_verb_that_is_impossible_in_this_state_is_refused(tmp_path, verb, state, refusal):
    cloud = cloud_with(tmp_path, state)
    words = f"web1 on hv1 is {state} and {refusal}"
    with pytest.raises(errors.InvalidInput, match=words):
        Lifecycle(cloud, "web1", verb).run()
    assert Lifecycle(cloud, "web1", verb).check().reasons == (words,)
    assert cloud.guests["hv1"]["web1"]["state"] == state


@pytest.mark.parametrize("verb", ["start", "force_off"])
def test_one_that_is_kept_by_somebody_is_left_to_him(tmp_path, verb):
    """Another host may start it this moment."""
    cloud = cloud_with(tmp_path, OFF if verb == "start" else RUN)
    ha_provider.store_managed(cloud.opts, {"web1": "somebody"})
    [why] = Lifecycle(cloud, "web1", verb).check().reasons
    assert why.startswith("web1 is managed by somebody")
    heard = heard_by(cloud)
    with pytest.raises(errors.OperationFailed, match="web1 is managed by somebody"):
        Lifecycle(cloud, "web1", verb).run()
    assert heard == []


def test_a_reset_leaves_one_paused_that_was(tmp_path):
    cloud = cloud_with(tmp_path, PAUSE)
    cloud.virt_power = lambda _host, **_asked: {"before": PAUSE, "after": PAUSE}
    done = Lifecycle(cloud, "web1", "reset").run()
    assert (done.comment, done.changes) == ("web1 on hv1 was reset", {})
    cloud.virt_power = lambda _host, **_asked: {"before": PAUSE, "after": RUN}
    with pytest.raises(errors.OperationFailed, match="web1 on hv1 is running, not paused"):
        Lifecycle(cloud, "web1", "reset").run()


def test_a_start_goes_by_the_masters_policy_and_what_was_said(tmp_path):
    cloud = cloud_with(tmp_path, OFF, placement={"memory_ratio": 2.0})
    heard = heard_by(cloud)
    start = Lifecycle(cloud, "web1", "start", options={"overcommit": True})
    start.check()
    start.run()
    told = [one for one in heard if one[0] != "virt.vm_state"]
    (tested, admits), (done, asked) = told
    assert (tested, done) == ("virt.start", "virt.power")
    assert admits.pop("test") is True
    assert admits["placement"]["policy"]["memory_ratio"] == 2.0
    more = {"verb": "start", "states": [OFF, "crashed"]}
    assert asked == {**admits, **more} == {**asked, "name": "web1", "overcommit": True}


def test_what_a_host_would_not_admit_is_told_by_a_check(tmp_path):
    cloud = cloud_with(tmp_path, OFF)
    cloud.virt_start = lambda host, **_asked: Answer(host, error="no room: full", kind=FAILED)
    assert Lifecycle(cloud, "web1", "start").check().reasons == ("hv1: no room: full",)


def test_a_check_names_all_that_is_in_the_way_of_a_start(tmp_path):
    """That a host is silent which may run it, and that its own would not admit it."""
    cloud = cloud_with(tmp_path, OFF)
    cloud.dead = {"hv2"}
    cloud.virt_shared_disks = lambda _host, vm_: {f"/nfs/{vm_}.qcow2": "nfs4 at /nfs"}
    cloud.virt_start = lambda host, **_asked: Answer(host, error="no room: full", kind=FAILED)
    silent, full = Lifecycle(cloud, "web1", "start").check().reasons
    assert "hv2" in silent
    assert full == "hv1: no room: full"


def test_who_says_which_host_it_is_is_told_where_it_was_last_seen_there_too(tmp_path):
    cloud = cloud_with(tmp_path, RUN)
    location_cache.store(cloud.opts, "web1", "hv1")
    with pytest.raises(errors.NotFound, match="web1 is on hv1, not on hv2"):
        Lifecycle(cloud, "web1", "force_off", host="hv2").run()
    assert cloud.guests["hv1"]["web1"]["state"] == RUN


def test_only_a_start_needs_the_room_that_is_kept(tmp_path, monkeypatch):
    keeper, asked = object(), []
    monkeypatch.setattr(
        failover_capacity, "on_current_host", lambda *about: asked.append(about[0]) or ""
    )
    Lifecycle(cloud_with(tmp_path, PAUSE), "web1", "resume", provider=keeper).run()
    Lifecycle(cloud_with(tmp_path, OFF), "web1", "start", provider=keeper).run()
    assert asked == [None, keeper]


def test_only_a_start_ends_what_a_killed_init_wrote_down(tmp_path):
    cloud = cloud_with(tmp_path, RUN)

    intent_log.PendingCreate(cloud.opts, "web1", "virt.init", UndoStack()).record_host("hv1")
    Lifecycle(cloud, "web1", "force_off").run()
    assert intent_log.load(cloud.opts, "web1")
    Lifecycle(cloud, "web1", "start").run()
    assert intent_log.load(cloud.opts, "web1") is None
