"""Whether a name is free if a host does not answer, and how a missing answer is resolved."""

import random
import re
import threading
import time

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.fleet import answer
from saltvirt.fleet.answer import FAILED, Answer
from saltvirt.operations.cluster import find, start_safety, unique
from saltvirt.operations.core.report import Report
from saltvirt.operations.create.identity import CloneGuest, RenameGuest
from saltvirt.operations.create.init import Init
from saltvirt.operations.create.request import InitRequest
from saltvirt.operations.guest import lifecycle
from saltvirt.operations.guest.lifecycle import Lifecycle
from saltvirt.operations.journal import intent_log, slots
from saltvirt.placement import policy
from saltvirt.revert import UndoStack
from tests.clock import Clock
from tests.fakes.fleet import Fleet, failed

HOST = {"cpus": 8, "memory_kib": 16 << 20, "types": ["kvm"], "guests": {}}
HOST["images_folder"] = {"path": "/x", "total_bytes": 1 << 40, "free_bytes": 1 << 40}


def silent(host):
    return {"*": answer.silent(host, 15, busy=True)}


def init(cloud, name="web1", **more):
    wanted = InitRequest(
        name, 1, 64, None, arguments={"seed": more.pop("seed", False)}, start=False, **more
    )
    return Init(cloud, policy.from_config(None, None), wanted, Report(cloud, name, "init"))


MAKES = {"virt.inventory": HOST, "virt.init": {"name": "web1", "pub_key": None, "disks": []},
         "virt.vm_state": {"web1": "shutdown"},
         "virt.leftovers": {"guests": {}, "unfinished": [], "migrations": {}}}  # fmt: skip


def test_a_name_that_may_be_on_a_silent_host_is_refused_unless_the_operator_knows(tmp_path):
    cloud = Fleet(tmp_path, hv1=MAKES, hv2=silent("hv2"))
    with pytest.raises(errors.OperationFailed, match=r"hv2: no answer in 15 s.*name_is_free=True"):
        init(cloud).run()
    assert ("hv1", "virt.init") not in cloud.called
    assert init(cloud, name_is_free=True).run().details["host"] == "hv1"


def test_a_guest_with_a_key_is_made_while_the_master_has_seen_no_key_of_it(tmp_path):
    cloud = Fleet(tmp_path, hv1=MAKES, hv2=silent("hv2"))
    assert init(cloud, seed=True).run().details["host"] == "hv1"
    (tmp_path / "minions_rejected").mkdir(exist_ok=True)
    (tmp_path / "minions_rejected" / "web1").touch()
    with pytest.raises(errors.OperationFailed, match="it may be on a host"):
        init(cloud, seed=True).run()


def test_where_libvirt_alone_is_silent_its_files_tell(tmp_path):
    hung = {"*": failed("libvirt does not answer"), "virt.names_on_disk": ["db1"]}
    cloud = Fleet(tmp_path, hv1=MAKES, hv2=hung)
    assert init(cloud).run().details["host"] == "hv1"
    with pytest.raises(errors.AlreadyExists, match="on hv2, whose libvirt does not answer"):
        init(cloud, "db1").run()


@pytest.mark.parametrize("said", [None, 7, "db1", {"db1": 1}])
def test_what_is_no_list_of_names_tells_nothing_of_files(tmp_path, said):
    cloud = Fleet(tmp_path, hv1={"virt.names_on_disk": said}, hv2={"virt.names_on_disk": ["db1"]})
    assert find.NamesOnDisk(["hv1", "hv2"]).names(cloud) == {"hv2": {"db1"}}


def test_a_host_that_says_nothing_of_guests_has_none(tmp_path):
    cloud = Fleet(tmp_path, hv1={"virt.vm_state": None}, hv2={"virt.vm_state": {"web1": "running"}})
    assert find.locations(cloud).guests == {"web1": {"hv2": "running"}}


def test_what_a_silent_host_was_told_to_make_is_not_made_elsewhere(tmp_path):
    cloud = Fleet(tmp_path, hv1=MAKES, hv2=silent("hv2"))
    intent_log.PendingCreate(cloud.opts, "web1", "virt.init", UndoStack()).record_host("hv2")
    with pytest.raises(errors.OperationFailed, match=r"hv2 was asked to create web1 by virt\.init"):
        init(cloud, seed=True).run()


@pytest.mark.parametrize(
    ("begins", "at_work", "refused"),
    [("hv1", {"web1": "virt.init, process 7"}, True), ("hv1", {"web2": "x"}, False),
     ("hv1", {}, False), ("hv9", {"web1": "x"}, False), (None, {"web1": "x"}, False)],
)  # fmt: skip
def test_what_a_host_still_works_at_is_not_made_again(tmp_path, begins, at_work, refused):
    """Its runner died, and it has no domain of the name yet."""
    said = {"guests": {}, "unfinished": [], "migrations": {}, "at_work": at_work}
    cloud = Fleet(tmp_path, hv1={"virt.leftovers": said})
    if begins:
        intent_log.PendingCreate(cloud.opts, "web1", "virt.init", UndoStack()).record_host(begins)
    if refused:
        with pytest.raises(errors.OperationFailed, match="still working on web1: virt"):
            unique.check(cloud, "web1", {})
    else:
        unique.check(cloud, "web1", {})
    unique.check(cloud, "web1", {"hv1": "down"}, name_is_free=True)


def test_where_all_hosts_answer_none_is_asked_for_its_files(tmp_path):
    cloud = Fleet(tmp_path, hv1=MAKES)
    only = find.Locations({"web1": {"hv1": "shutdown"}})
    cloud.ask = None
    unique.check(cloud, "web1", {})
    unique.resolve(cloud, None, "web1", "hv1", query_locations=lambda _fleet: only)


def test_the_files_of_silent_hosts_are_read_once_and_count_as_long_as_they_are_silent(tmp_path):
    hung = {"virt.names_on_disk": ["db1"]}
    cloud = Fleet(tmp_path, hv1=hung, hv2=hung)
    files = find.NamesOnDisk(["hv1", "hv2"])
    for name in ("web1", "web2"):
        assert unique.silent(cloud, name, {"hv1": "down", "hv2": "down"}, files) == {}
    assert cloud.called == [("hv1", "virt.names_on_disk"), ("hv2", "virt.names_on_disk")]
    with pytest.raises(errors.AlreadyExists, match="on hv1, whose libvirt"):
        unique.silent(cloud, "db1", {"hv1": "down"}, files)
    assert unique.silent(cloud, "db1", {}, files) == {}, "they answer again, and were asked"


def test_one_that_comes_first_waits_for_the_other_to_go(tmp_path, monkeypatch):
    cloud = Fleet(tmp_path, hv1={"virt.vm_state": {"web1": "shutdown"}}, hv2={"virt.vm_state": {}})
    steps, now = [], Clock()
    told = type("R", (), {"step": lambda _self, step, text: steps.append(step)})()

    def sleep(seconds):
        Clock.sleep(now, seconds)
        there = {"web1": "shutdown"} if len(now.slept) < 3 else {}
        cloud.answers["hv2"]["virt.vm_state"] = there

    now.sleep = sleep
    monkeypatch.setattr(unique, "time", now)
    unique.resolve(cloud, told, "web1", "hv1")
    assert (now.slept, steps) == ([], [])
    sleep(0)
    unique.resolve(cloud, told, "web1", "hv1")
    assert (now.slept[1:], steps) == ([unique.POLL_S] * 2, ["twice"])
    monkeypatch.setattr(unique, "YIELD_S", -1)
    cloud.answers["hv2"]["virt.vm_state"] = {"web1": "shutdown"}
    now.slept.clear()
    with pytest.raises(errors.AlreadyExists, match="created on hv2 at the same time as on hv1"):
        unique.resolve(cloud, told, "web1", "hv1")
    cloud.answers["hv2"]["virt.vm_state"] = {"web1": "shutdown"}
    now.slept.clear()
    with pytest.raises(errors.AlreadyExists, match="created on hv1 at the same time as on hv2"):
        unique.resolve(cloud, told, "web1", "hv2")
    assert now.slept == []


def test_who_became_silent_while_it_was_made_may_have_one_too(tmp_path):
    cloud = Fleet(tmp_path, hv1={"virt.vm_state": {"web1": "shutdown"}}, hv2=silent("hv2"))
    with pytest.raises(errors.OperationFailed, match="may be on a host that does not answer: hv2"):
        unique.resolve(cloud, None, "web1", "hv1")
    unique.resolve(cloud, None, "web1", "hv1", name_is_free=True)
    unique.resolve(cloud, None, "web1", "hv1", seeded=True)
    cloud.answers["hv1"] = silent("hv1")
    cloud.answers["hv2"] = {"virt.vm_state": {}}
    unique.resolve(cloud, None, "web1", "hv1")


def test_a_copy_or_a_new_name_is_the_same(tmp_path):
    has = {"virt.vm_state": {"a": "shutdown"}, "virt.clone": {"disks": {}}, "*": {}}
    cloud = Fleet(tmp_path, hv1=has, hv2=silent("hv2"))
    report = Report(cloud, "b", "clone")
    [why] = CloneGuest(cloud, report, "a", "b").check().reasons
    assert why.startswith("b: it may be on a host that does not answer")
    assert CloneGuest(cloud, report, "a", "b", name_is_free=True).check().details == {"host": "hv1"}
    assert find.locations(cloud).unreachable


def lost(**leftovers):
    said = {"guests": {}, "unfinished": [], "migrations": {}, **leftovers}
    return {**MAKES, "virt.init": answer.lost("hv1"), "virt.leftovers": said, "virt.purge": {}}


def made_by(one, cloud):
    """The Init, whose own guest it is that hv1 has."""
    cloud.answers["hv1"]["virt.leftovers"]["operations"] = {"web1": one.init_request.operation}
    return one


@pytest.mark.parametrize("more", [{}, {"unfinished": ["web1"]}])
@pytest.mark.parametrize("operations", [{}, {"web1": "another master's"}])
def test_another_ones_guest_is_not_taken_for_the_one_whose_answer_is_lost(
    tmp_path, operations, more
):
    has = lost(guests={"web1": "running"}, operations=operations, **more)
    has["virt.vm_state"] = failed("gone wrong")
    cloud = Fleet(tmp_path, hv1=has)
    with pytest.raises(errors.AlreadyExists, match="created by another operation") as caught:
        init(cloud).run()
    assert ("hv1", "virt.purge") not in cloud.called
    assert "virt.purge" not in caught.value.text


def test_no_advice_after_a_lost_answer_deletes_a_guest(tmp_path):
    texts = []
    for said in (answer.stalled("hv1", 900), answer.lost("hv1")):
        cloud = Fleet(tmp_path, hv1={**lost(guests={"web1": "running"}), "virt.init": said})
        one = init(cloud)
        one.init_request.image, one.init_request.arguments["seed"] = "/a", True
        with pytest.raises(errors.ConnectionFailed) as caught:
            made_by(one, cloud).run()
        texts.append(caught.value.text)
    assert "the master did not get its key" in texts[1]
    assert not any("virt.purge" in text for text in texts), texts


def test_an_init_whose_answer_is_lost_is_settled_by_what_the_host_has(tmp_path):
    cloud = Fleet(tmp_path, hv1=lost(guests={"web1": "shutdown"}))
    one = made_by(init(cloud), cloud)
    assert one.run().details["state"] == "shutdown"
    assert ("hv1", "virt.purge") not in cloud.called, "what succeeded is not undone"
    assert intent_log.load(cloud.opts, "web1") is None


def test_what_is_half_made_is_removed_and_what_is_not_there_is_not_looked_for(tmp_path):
    cloud = Fleet(tmp_path, hv1=lost(guests={"web1": "shutdown"}, unfinished=["web1"]))
    with pytest.raises(errors.Refused, match="the partially created web1 was removed"):
        made_by(init(cloud), cloud).run()
    assert ("hv1", "virt.purge") in cloud.called
    cloud = Fleet(tmp_path, hv1=lost())
    with pytest.raises(errors.Refused, match="nothing was created there"):
        init(cloud).run()
    assert ("hv1", "virt.purge") not in cloud.called


def test_an_init_that_is_given_up_is_written_down_until_it_is_known_what_became_of_it(tmp_path):
    given_up = {**MAKES, "virt.init": answer.stalled("hv1", 900)}
    cloud = Fleet(tmp_path, hv1=given_up)
    with pytest.raises(errors.ConnectionFailed, match=r"virt:stall_timeout.*may still be creating"):
        init(cloud).run()
    assert intent_log.load(cloud.opts, "web1").host == "hv1"
    cloud = Fleet(tmp_path, hv1={**MAKES, "virt.init": failed("no such image")})
    with pytest.raises(errors.OperationFailed, match="no such image"):
        init(cloud).run()
    assert intent_log.load(cloud.opts, "web1") is None


def test_a_start_whose_answer_is_missing_is_asked_about_and_nothing_is_undone(tmp_path):
    started = {**MAKES, "virt.power": answer.lost("hv1"), "virt.vm_state": {"web1": "running"}}
    cloud = Fleet(tmp_path, hv1=started)
    one = init(cloud)
    one.init_request.start = True
    assert one.run().details["state"] == "running"
    assert ("hv1", "virt.purge") not in cloud.called


def test_what_could_not_be_undone_is_named_and_written_down(tmp_path):
    broken = {
        **MAKES,
        "virt.vm_state": failed("gone wrong"),
        "virt.purge": failed("disk busy"),
    }
    cloud = Fleet(tmp_path, hv1=broken)
    with pytest.raises(errors.OperationFailed, match=r"gone wrong; could not undo: purge web1"):
        init(cloud).run()
    assert intent_log.load(cloud.opts, "web1").host == "hv1"


@pytest.mark.parametrize("stays", [False, True])
def test_a_guest_whose_start_is_refused_is_removed_before_another_host_is_asked(tmp_path, stays):
    nothing = {"virt.vm_state": {}}
    full = {
        **MAKES,
        **nothing,
        "virt.power": failed("refused: no room: 0 KiB are free"),
    }
    full["virt.purge"] = failed("disk busy") if stays else {}
    starts = {"virt.power": {"before": "shutdown", "after": "running"}}
    cloud = Fleet(tmp_path, hv1=full, hv2={**MAKES, **nothing, **starts})
    one = init(cloud, host=None)
    one.init_request.start = True
    if stays:
        with pytest.raises(errors.OperationFailed, match=r"0 KiB .*not undo: purge web1 on hv1"):
            one.run()
        assert ("hv2", "virt.init") not in cloud.called
        assert intent_log.load(cloud.opts, "web1").host == "hv1"
        return
    assert one.run().details["host"] == "hv2"
    assert cloud.called.index(("hv1", "virt.purge")) < cloud.called.index(("hv2", "virt.init"))


def test_a_host_that_is_gone_was_told_nothing_and_the_next_is_tried(tmp_path):
    gone = {**MAKES, "virt.init": answer.down("hv1"), "virt.vm_state": {}}
    cloud = Fleet(tmp_path, hv1=gone, hv2=MAKES)
    placed = init(cloud, host=None).run()
    assert placed.details["host"] == "hv2"
    cloud = Fleet(tmp_path, hv1=gone)
    with pytest.raises(errors.Refused, match="hv1: down"):
        init(cloud).run()
    assert intent_log.load(cloud.opts, "web1") is None


def test_who_makes_no_progress_gives_his_place_to_others(tmp_path):
    cloud = Fleet(tmp_path, hv1=MAKES)
    cloud.opts["virt"] = {"inits_at_once": 1, "queue_timeout": 1}
    gather, got = cloud.gather, []

    def hanging(hosts, fun, kwarg=None, **options):
        if fun == "virt.init":
            with pytest.raises(errors.OperationFailed), slots.deploying(cloud.opts, got.append):
                pass
            after_s, _max_s, report_idle = options["on_stall"]
            assert after_s == slots.QUIET_S
            report_idle()
            with slots.deploying(cloud.opts, got.append):
                got.append("a place")
        return gather(hosts, fun, kwarg)

    cloud.gather = hanging
    init(cloud).run()
    assert got[-1] == "a place"


def test_who_is_left_out_is_said(tmp_path):
    cloud = Fleet(tmp_path, hv1=MAKES, hv2=silent("hv2"))
    told = []
    cloud.fire_event = lambda tag, data: told.append((tag, data["message"]))
    init(cloud, name_is_free=True).run()
    tag, text = told[0]
    assert tag == "salt/virt/web1/init/unreachable"
    assert text.startswith("web1: without hv2: no answer in 15 s")


# -- two masters of the same hosts --------------------------------------------------------------


class Hosts:
    """hv1 to hv3 with their libvirt, which any number of masters ask; rarely at once."""

    def __init__(self, seed):
        self.guests = {f"hv{number}": {} for number in (1, 2, 3)}
        self.lock, self.random, self.most = threading.Lock(), random.Random(seed), 0

    def call(self, host, fun, kwarg):
        time.sleep(self.random.choice((0, 0, 0.001, 0.003)))
        with self.lock:
            return self.do(self.guests[host], fun, kwarg or {})

    def do(self, has, fun, kwarg):
        name = kwarg.get("name") or kwarg.get("vm_")
        if fun == "virt.inventory":
            facts = {"vcpus": 1, "memory_kib": 1}
            there = {one: {**facts, "state": state} for one, state in has.items()}
            return {**HOST, "guests": there}
        if fun == "virt.init":
            if name in has:
                return failed(f"{name} already exists")
            has[name] = "shutdown"
            return {"name": name, "pub_key": None, "disks": []}
        if fun == "virt.power":
            before, has[name] = has[name], "running"
            running = [one for one in self.guests.values() if one.get(name) == "running"]
            self.most = max(self.most, len(running))
            return {"before": before, "after": "running"}
        if fun == "virt.purge":
            return {} if kwarg.get("test") else has.pop(name)
        return dict(has)


class Master(Fleet):
    def __init__(self, tmp_path, hosts):
        super().__init__(tmp_path, **{host: {} for host in hosts.guests})
        self.real = hosts

    def said(self, host, fun, kwarg):
        return self.real.call(host, fun, kwarg)


@pytest.mark.parametrize("seed", range(40))
def test_two_masters_never_run_two_guests_of_a_name(tmp_path, monkeypatch, seed):
    monkeypatch.setattr(unique, "YIELD_S", 0.1)
    monkeypatch.setattr(unique, "POLL_S", 0.002)
    hosts, ended = Hosts(seed), []
    places = hosts.random.sample(sorted(hosts.guests), 2) if seed % 4 else [None, None]

    def deploy(number, place):
        folder = tmp_path / str(number)
        folder.mkdir()
        one = init(Master(folder, hosts), host=place)
        one.init_request.start = True
        try:
            ended.append(one.run().details["host"])
        except errors.VirtError as exc:
            ended.append(exc.text)

    threads = [threading.Thread(target=deploy, args=given) for given in enumerate(places)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    there = [host for host, has in hosts.guests.items() if has]
    assert hosts.most <= 1
    assert there == [one for one in ended if one in hosts.guests]
    for text in set(ended) - set(there):
        assert "already exists" in text or "at the same time" in text


@pytest.mark.parametrize(("own", "other"), [("hv1", "hv2"), ("hv2", "hv1")])
def test_one_that_was_there_before_stays_whatever_its_host_is_called(
    tmp_path, monkeypatch, own, other
):
    """The other master has looked before ours was there: it sees one, and starts it."""
    monkeypatch.setattr(unique, "YIELD_S", 0.02)
    monkeypatch.setattr(unique, "POLL_S", 0.002)
    hosts = Hosts(0)
    do = hosts.do

    def meanwhile(has, fun, kwarg):
        done = do(has, fun, kwarg)
        if fun == "virt.init":
            hosts.guests[other]["web1"] = "running"
        return done

    hosts.do = meanwhile
    with pytest.raises(errors.AlreadyExists, match=f"created on {other} at the same time"):
        init(Master(tmp_path, hosts), host=own).run()
    assert [host for host, has in hosts.guests.items() if has] == [other]


@pytest.mark.parametrize("verb", ["virt.clone", "virt.rename"])
def test_a_copy_or_a_new_name_looks_again_too(tmp_path, monkeypatch, verb):
    hosts = Hosts(0)
    hosts.guests["hv2"]["a"] = "shutdown"

    def do(has, fun, kwarg):
        if fun == verb and not kwarg.get("test"):
            hosts.guests["hv1"]["b"] = "running"
            has[kwarg["name"]] = "shutdown"
            if verb == "virt.rename":
                has.pop(kwarg["vm_"])
            return {"name": kwarg["name"], "pub_key": None, "disks": []}
        return Hosts.do(hosts, has, fun, kwarg)

    hosts.do = do
    cloud = Master(tmp_path, hosts)
    kind = {"virt.clone": CloneGuest, "virt.rename": RenameGuest}[verb]
    with pytest.raises(errors.AlreadyExists, match="b was created on hv1 at the same time"):
        kind(cloud, Report(cloud, "b", "x"), "a", "b").run()
    assert hosts.guests["hv2"] == {"a": "shutdown"}


# -- a guest that is off here, while a host is silent -------------------------------------------

OFF = {"virt.vm_state": {"web1": "shutdown"}, "virt.start": True,
       "virt.shared_disks": {"/nfs/web1.qcow2": "nfs4 at /nfs"}}  # fmt: skip


@pytest.mark.parametrize("verb", ["start", "resume"])
def test_no_guest_on_shared_disks_is_started_beside_a_silent_host(tmp_path, verb):
    state = {"web1": "paused" if verb == "resume" else "shutdown"}
    cloud = Fleet(tmp_path, hv1={**OFF, "virt.vm_state": state}, hv2=silent("hv2"))
    words = r"web1 stays .*/nfs/web1.qcow2 \(nfs4 at /nfs\).*hv2: no answer.*give host=hv1"
    with pytest.raises(errors.OperationFailed, match=words):
        Lifecycle(cloud, "web1", verb).run()
    assert ("hv1", "virt.power") not in cloud.called
    [why] = Lifecycle(cloud, "web1", verb).check().reasons
    assert re.match(words, why)
    assert ("hv1", "virt.power") not in cloud.called
    assert lifecycle.plan(cloud, "web1", verb, "hv1").host == "hv1"
    with pytest.raises(errors.NotFound, match="is on hv1, not on hv2"):
        lifecycle.plan(cloud, "web1", verb, "hv2")
    cloud.answers["hv1"]["virt.shared_disks"] = {}
    assert lifecycle.plan(cloud, "web1", verb).host == "hv1"


def test_nor_is_it_put_back_to_a_snapshot(tmp_path):
    cloud = Fleet(tmp_path, hv1=OFF, hv2=silent("hv2"))
    with pytest.raises(errors.OperationFailed, match="it may run on one that does not answer"):
        lifecycle.host_for_write(cloud, "web1")
    assert lifecycle.host_for_write(cloud, "web1", "hv1") == "hv1"
    cloud.answers["hv1"] = {**OFF, "virt.vm_state": {"web1": "running"}}
    assert lifecycle.host_for_write(cloud, "web1") == "hv1"


def test_what_stops_a_guest_asks_nobody_else(tmp_path):
    cloud = Fleet(tmp_path, hv1={**OFF, "virt.vm_state": {"web1": "running"}}, hv2=silent("hv2"))
    assert lifecycle.plan(cloud, "web1", "force_off").host == "hv1"
    assert lifecycle.plan(cloud, "web1", "start").nothing
    assert ("hv1", "virt.shared_disks") not in cloud.called


def test_where_the_files_of_a_hung_libvirt_tell_the_guest_starts(tmp_path):
    hung = {"*": failed("libvirt does not answer"), "virt.names_on_disk": ["db1"]}
    cloud = Fleet(tmp_path, hv1=OFF, hv2=hung)
    assert lifecycle.plan(cloud, "web1", "start").host == "hv1"
    hung["virt.names_on_disk"] = ["web1"]
    with pytest.raises(errors.AlreadyExists, match="on hv2, whose libvirt does not answer"):
        lifecycle.plan(cloud, "web1", "start")


def test_a_host_that_is_not_even_known_is_silent_too(tmp_path, monkeypatch):
    """Below a syndic; or one that made guests and that virt:hosts does not match any more."""
    cloud = Fleet(tmp_path, hv1=OFF)
    assert lifecycle.plan(cloud, "web1", "start").host == "hv1"
    cloud.opts["order_masters"] = True
    with pytest.raises(errors.OperationFailed, match="this master has syndics"):
        lifecycle.plan(cloud, "web1", "start")
    cloud.opts["order_masters"] = False
    monkeypatch.setattr(
        start_safety.shared_storage_check,
        "unmatched",
        lambda *_: {"hv9": "virt:hosts does not match"},
    )
    with pytest.raises(errors.OperationFailed, match="hv9: virt:hosts does not match"):
        lifecycle.plan(cloud, "web1", "start")


def test_what_stands_beside_an_error_is_no_answer(tmp_path):
    """Whatever a host sends along with a failure, it says nothing of names."""
    failed = Answer("hv2", ["web1"], error="it broke", kind=FAILED)
    cloud = Fleet(tmp_path, hv1=MAKES, hv2={"virt.names_on_disk": failed})
    with pytest.raises(errors.OperationFailed, match=r"web1: it may be on a host .* hv2: silent"):
        unique.check(cloud, "web1", {"hv2": "silent"})
    cloud = Fleet(tmp_path, hv2={"virt.vm_state": Answer("hv2", {"a": "running"}, "it broke")})
    assert find.locations(cloud) == find.Locations({}, {"hv2": "it broke"})


def test_where_a_guest_is_and_what_it_does_there(tmp_path):
    cloud = Fleet(tmp_path, hv1={"virt.vm_state": {}}, hv2={"virt.vm_state": {"web1": "paused"}})
    assert find.locate(cloud, "web1") == ("hv2", "paused")
    assert find.locations(cloud, ["hv1"]) == find.Locations({}, {})


def test_a_guest_that_is_nowhere_is_said_with_who_was_not_heard():
    with pytest.raises(errors.NotFound) as said:
        find.Locations({}, {}).host_of("web1")
    assert str(said.value) == "no guest 'web1' on any hypervisor"
    with pytest.raises(errors.NotFound) as said:
        find.Locations({}, {"hv2": "down", "hv1": "no answer"}).host_of("web1")
    assert str(said.value).endswith("hypervisor that answered (hv1: no answer; hv2: down)")
