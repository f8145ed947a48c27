"""The pure plan of an evacuation; the operation runs in the lab."""

import threading
import time
from collections import Counter
from dataclasses import replace

import pytest

pytest.importorskip("salt")

from saltvirt.errors import (
    ConnectionFailed,
    InvalidInput,
    MigrationFailed,
    NotFound,
    OperationFailed,
)
from saltvirt.fleet.answer import Answer, down
from saltvirt.operations.cluster import ha_provider, inventory
from saltvirt.operations.journal import evacuated, location_cache
from saltvirt.operations.move import evacuate, moves
from saltvirt.operations.move.evacuate import Evacuate, RestoreHost
from saltvirt.operations.move.rebalance import Rebalance
from saltvirt.placement import policy, rebalance
from saltvirt.placement.facts import Guest, Host, StorageSpace
from tests.clock import until
from tests.fakes.fleet import Silent, Told
from tests.unit.placement import NOTHING_BESIDE

GIB_KIB = 1024**2
PLAIN = policy.from_config(NOTHING_BESIDE)


def host(name, *sizes):
    guests = tuple(
        Guest(f"{name}-{i}", state="running", vcpus=1, memory_kib=size * GIB_KIB)
        for i, size in enumerate(sizes)
    )
    return Host(name, cpus=8, memory_kib=8 * GIB_KIB, guests=guests, types=("kvm",))


def test_the_biggest_guest_is_placed_first_and_counts_for_the_next():
    targets, unplaced = evacuate.plan([host("a", 2, 5), host("b"), host("c", 2)], "a", PLAIN)
    assert targets == {"a-1": "b", "a-0": "c"}
    assert unplaced == {}


def test_who_finds_no_place_is_named_with_the_reasons():
    targets, unplaced = evacuate.plan([host("a", 5, 5), host("b")], "a", PLAIN)
    assert list(targets.values()) == ["b"]
    assert "b: 5120 MiB of memory requested" in unplaced["a-1"]


class Room:
    """That host is to stay free, where another one will do; it counts what came."""

    warns, spared = False, "b"

    def __init__(self):
        self.taken = []

    def refusal(self, host, guest, wish=None):
        return "it is kept free" if host == self.spared else ""

    def take(self, host, guest, wish=None):
        self.taken.append((host, guest.name))


def test_the_reserve_is_spared_where_it_can_be():
    hosts, plans, room = [host("a", 5, 2), host("b"), host("c", 2)], {}, Room()
    targets, unplaced = evacuate.plan(hosts, "a", PLAIN, plans, room)
    assert (targets, unplaced) == ({"a-0": "c", "a-1": "b"}, {})
    assert room.taken == [("c", "a-0"), ("b", "a-1")]
    assert plans["a-0"].targets.names == ["c", "b"]


def test_a_host_in_maintenance_takes_nobody():
    targets, unplaced = evacuate.plan(
        [host("a", 1), replace(host("b"), maintenance="x")], "a", PLAIN
    )
    assert targets == {}
    assert "in maintenance: x" in unplaced["a-0"]


def test_moves_carry_on_past_a_failure_and_end_with_what_is_left():
    def migrate(guest, target):
        if guest == "b":
            raise MigrationFailed("b is on a CD")
        return target

    planned = [
        moves.GuestMove(guest, "h0", host)
        for guest, host in (("a", "h1"), ("b", "h1"), ("c", "h2"))
    ]
    told = Told()
    outcome = moves.run(planned, migrate, told)
    assert outcome.moved == {"a": "h1", "c": "h2"}
    assert outcome.text() == "2 moved, 1 left: b: b is on a CD"
    assert sorted(told.lines) == ["a is on h1", "b stays: b is on a CD", "c is on h2"]
    assert moves.run(planned[:1], migrate, told).text() == "1 moved"


def test_who_is_interrupted_begins_no_further_move():
    begun = []

    class Interrupted(Silent):
        def step(self, step, text, **data):
            raise KeyboardInterrupt

    def migrate(guest, target):
        begun.append(guest)
        return target

    planned = [moves.GuestMove("a", "h0", "h1"), moves.GuestMove("b", "h2", "h3")]
    with pytest.raises(KeyboardInterrupt):
        moves.run(planned, migrate, Interrupted())
    assert begun == ["a"]


def test_a_host_is_never_busier_than_its_limit_and_the_others_go_on_meanwhile():
    lock, busy, most = threading.Lock(), Counter(), Counter()
    planned = [
        moves.GuestMove(f"g{i}", source, f"t{i % 3}") for i, source in enumerate("aaaaabbbbb")
    ]
    by_guest = {move.guest: move for move in planned}

    def migrate(guest, target):
        hosts = (by_guest[guest].source, target, "all")
        with lock:
            busy.update(hosts)
            for host in hosts:
                most[host] = max(most[host], busy[host])
        until(lambda: most["all"] == 3, "as many as may be at once")
        time.sleep(0.02)
        with lock:
            busy.subtract(hosts)
        return target

    outcome = moves.run(planned, migrate, Silent(), (3, 2))
    assert len(outcome.moved) == 10
    assert most["all"] == 3
    assert max(most[host] for host in most if host != "all") == 2


def stuck():
    raise MigrationFailed("it is on a CD")


class Cloud:
    """hv1 is drained; hv2 takes. Guests are names to hosts; some hosts may be silent."""

    def __init__(self, tmp_path, guests, mark=None, silent=()):
        self.opts = {"cachedir": str(tmp_path)}
        named = (mark or {}).get("guests", ())
        evacuated.store(self.opts, "hv1", {f"uuid-{name}": name for name in named})
        self.guests, self.mark, self.silent = dict(guests), mark, silent
        self.uuids = {}
        self.unfinished, self.pinned, self.keys = {}, {}, []
        self.marks, self.looks = [], []
        self.when_marked = None

    def hosts(self, only=None):
        if only not in (None, "hv1", "hv2", "hv3"):
            raise NotFound(f"{only} is not a hypervisor of this master")
        return [only] if only else ["hv1", "hv2", "hv3"]

    def ask(self, hosts, fun, kwarg=None, **_options):
        for name in hosts:
            if name in self.silent:
                yield down(name)
            else:
                yield Answer(name, getattr(self, "_" + fun.rpartition(".")[2])(name))

    def _inventory(self, host):
        if host == "hv1":
            self.looks.append(self.mark)
        facts = {"vcpus": 1, "memory_kib": 1024, "state": "running"}
        return {
            "cpus": 8, "memory_kib": 16 << 20, "types": ["kvm"], "arches": ["x86_64"],
            "guests": {
                g: {**facts, "uuid": self.uuid(g)} for g, on in self.guests.items() if on == host
            },
            "maintenance": (self.mark or {}).get("reason") if host == "hv1" else None,
        }  # fmt: skip

    def uuid(self, guest):
        return self.uuids.get(guest, f"uuid-{guest}")

    def _migrate_locations(self, host):
        here = self._vm_state(host)
        return {
            "guests": here, "unfinished": [n for n, on in self.unfinished.items() if on == host],
            "uuids": {name: self.uuid(name) for name in here},
            "maintenance": (self.mark or {}).get("reason") if host == "hv1" else None,
        }  # fmt: skip

    def each(self, host, fun, calls, **_options):
        assert fun == "virt.migratable"
        for call in calls:
            why = self.pinned.get(call["vm_"], [])
            yield Answer(host, {"migratable": not why, "reasons": why, "pinned": bool(why)})

    def _vm_state(self, host):
        return {guest: "running" for guest, on in self.guests.items() if on == host}

    def call(self, host, fun, kwarg=None, **_options):
        assert (host, fun) == ("hv1", "virt.maintenance")
        if kwarg.get("off"):
            self.mark = {"reason": None, "guests": kwarg["guests"]} if kwarg["guests"] else None
        elif kwarg:
            self.mark = dict(kwarg)
        if kwarg:
            self.marks.append(self.mark)
            if self.when_marked:
                self.when_marked, call = None, self.when_marked
                call()
        return self.mark

    def move(self, guest, target):
        assert guest in self.mark["guests"], "written down before it leaves"
        self.guests[guest] = target
        return target


def drain(cloud, move=None, **more):
    one = Evacuate(cloud, "hv1", PLAIN, move or cloud.move, Silent(), limits=(2, 2), **more)
    return outcome_of(one.run())


def bring_back(cloud, move):
    return RestoreHost(cloud, "hv1", move, Silent(), (2, 2))


def outcome_of(done):
    """What was moved, and what was left and why: of its answer."""
    found = moves.MovesOutcome(done.changes["moved"], done.details["left"])
    assert done.complete == (not found.unmoved)
    assert done.comment.endswith(f": {found.text()}")
    return found


def test_a_guest_that_is_made_while_the_host_is_drained_is_moved_too(tmp_path):
    cloud = Cloud(tmp_path, {"a": "hv1"})
    cloud.when_marked = lambda: cloud.guests.update(late="hv1")
    assert drain(cloud).moved.keys() == {"a", "late"}
    cloud = Cloud(tmp_path, {"a": "hv1"})

    def move(guest, target):
        if guest == "a":
            cloud.guests["later"] = "hv1"
        return cloud.move(guest, target)

    outcome = drain(cloud, move)
    assert outcome.moved.keys() == {"a", "later"}
    assert "hv1" not in cloud.guests.values()
    assert cloud.mark["guests"] == ["a", "later"]


def test_who_still_comes_after_the_last_look_is_named(tmp_path):
    """Until now the host counted as drained."""
    cloud, made = Cloud(tmp_path, {"g0": "hv1"}), []

    def move(guest, target):
        made.append(f"late{len(made)}")
        cloud.guests[made[-1]] = "hv1"
        return cloud.move(guest, target)

    outcome = drain(cloud, move)
    assert len(outcome.moved) == evacuate.MAX_ROUNDS
    assert list(outcome.unmoved) == [made[-1]]
    assert "arrived on hv1 during the evacuation" in outcome.unmoved[made[-1]]
    cloud = Cloud(tmp_path, {"g0": "hv1", "cd": "hv1"})
    outcome = drain(cloud, lambda guest, target: stuck() if guest == "cd" else move(guest, target))
    assert outcome.unmoved["cd"] == "it is on a CD", "and not that it came late"


def test_who_could_not_be_moved_is_tried_once_and_named(tmp_path):
    cloud, tried = Cloud(tmp_path, {"a": "hv1", "b": "hv1"}), []

    def move(guest, target):
        tried.append(guest)
        if guest == "b":
            raise MigrationFailed("b is on a CD")
        return cloud.move(guest, target)

    outcome = drain(cloud, move)
    assert sorted(tried) == ["a", "b"]
    assert outcome.unmoved == {"b": "b is on a CD"}
    assert cloud.mark["guests"] == ["a"]
    assert set(evacuated.load(cloud.opts, "hv1").values()) == {"a"}, "the other one never left"


def test_a_drain_that_is_killed_leaves_the_names(tmp_path):
    cloud = Cloud(tmp_path, {"a": "hv1", "b": "hv1"}, {"reason": "x", "guests": ["before"]})

    class Killed(BaseException):
        pass

    def move(guest, target):
        cloud.move(guest, target)
        raise Killed

    with pytest.raises(Killed):
        drain(cloud, move)
    assert set(cloud.mark["guests"]) == {"before", "a", "b"}
    assert set(evacuated.load(cloud.opts, "hv1").values()) == {"before", "a", "b"}


def test_the_host_is_closed_before_it_is_looked_at_and_looked_at_no_more_than_needed(tmp_path):
    cloud, told = Cloud(tmp_path, {"a": "hv1"}), Told()
    Evacuate(cloud, "hv1", PLAIN, cloud.move, told, "new disks").run()
    assert all(mark["reason"] == "new disks" for mark in cloud.looks)
    assert len(cloud.looks) == 2
    assert told.lines == ["hv1 gets no new guests: new disks", f"a is on {cloud.guests['a']}"]


def test_a_host_that_is_unknown_or_silent_is_neither_marked_nor_planned(tmp_path):
    cloud = Cloud(tmp_path, {"a": "hv1"}, silent=["hv2"])
    nobody = Evacuate(cloud, "hv9", PLAIN, cloud.move, Silent())
    for one in (nobody, RestoreHost(cloud, "hv9", cloud.move, Silent())):
        with pytest.raises(NotFound, match="hv9"):
            one.run()
        assert one.check().reasons == ("hv9 is not a hypervisor of this master",)
    cloud.silent = ["hv1"]
    [why] = Evacuate(cloud, "hv1", PLAIN, cloud.move, Silent()).check().reasons
    assert why.startswith("hv1: down")
    with pytest.raises(ConnectionFailed, match="hv1: down"):
        drain(cloud)
    assert cloud.guests == {"a": "hv1"}


@pytest.mark.parametrize("fails", [False, True])
def test_a_host_that_falls_silent_while_it_is_drained_is_no_failure_of_what_was_done(
    tmp_path, fails
):
    cloud = Cloud(tmp_path, {"a": "hv1"})

    def move(guest, target):
        cloud.silent = ["hv1"]
        return stuck() if fails else cloud.move(guest, target)

    outcome = drain(cloud, move)
    assert outcome.moved.keys() == (set() if fails else {"a"})
    assert outcome.unmoved.keys() == ({"a", "hv1"} if fails else {"hv1"})
    assert outcome.unmoved["hv1"].startswith("its remaining guests are unknown: hv1: down")


def test_the_mark_is_set_whatever_the_reason_and_asked_for(tmp_path):
    cloud = Cloud(tmp_path, {})
    for none in ("", None):
        drain(cloud, reason=none)
        assert cloud.mark["reason"] == "evacuated"
    cloud.call = lambda *args, **kwargs: None
    with pytest.raises(OperationFailed, match="hv1 did not record its maintenance"):
        drain(cloud)


def test_restore_keeps_who_is_on_a_silent_host_and_who_could_not_come(tmp_path):
    away = {"a": "hv2", "b": "hv3", "stuck": "hv2", "back": "hv1"}
    mark = {"reason": "disks", "guests": ["a", "b", "back", "stuck"]}
    cloud = Cloud(tmp_path, away, mark, silent=["hv3"])

    def move(guest, target):
        assert cloud.mark["reason"] is None, "nobody may come to a host in maintenance"
        if guest == "stuck":
            raise MigrationFailed("no")
        return cloud.move(guest, target)

    outcome = outcome_of(bring_back(cloud, move).run())
    assert outcome.moved == {"a": "hv1"}
    assert set(outcome.unmoved) == {"b", "stuck"}
    assert "hv3: down" in outcome.unmoved["b"]
    assert cloud.mark == {"reason": None, "guests": ["b", "stuck"]}
    cloud.silent = ()
    outcome = outcome_of(bring_back(cloud, cloud.move).run())
    assert outcome.moved == {"b": "hv1", "stuck": "hv1"}
    assert cloud.mark is None
    with pytest.raises(InvalidInput, match="not in maintenance"):
        bring_back(cloud, cloud.move).run()
    assert bring_back(cloud, cloud.move).check().reasons == ("hv1 is not in maintenance",)


@pytest.mark.parametrize("ours", [{"purged"}, set()])
def test_restore_forgets_who_was_purged_when_every_host_was_heard(tmp_path, ours):
    """A purge takes the guest off this master's list; the host goes on naming it."""
    cloud = Cloud(tmp_path, {}, {"reason": "x", "guests": ["purged"]})
    evacuated.store(cloud.opts, "hv1", dict.fromkeys(ours, "purged"))
    assert bring_back(cloud, cloud.move).check().details["table"] == [["guest", "comes from"]]
    bring_back(cloud, cloud.move).run()
    assert cloud.mark is None


def test_a_host_cannot_name_a_guest_that_was_never_moved_away_from_it(tmp_path):
    cloud = Cloud(tmp_path, {"a": "hv1", "db": "hv3"})
    drain(cloud)
    cloud.mark["guests"].append("db")
    checked = bring_back(cloud, cloud.move).check()
    assert checked.changes == {"moved": {"a": "hv1"}}
    [stays] = checked.details["table"][2:]
    assert stays[0] == "db"
    assert "but this master did not move it" in stays[1]
    outcome = outcome_of(bring_back(cloud, cloud.move).run())
    assert outcome.moved == {"a": "hv1"}
    assert outcome.unmoved.keys() == {"db"}
    assert cloud.guests == {"a": "hv1", "db": "hv3"}
    assert evacuated.load(cloud.opts, "hv1") == {}, "a later maintenance begins with nobody"


def test_what_a_host_names_while_it_is_drained_is_not_believed_later(tmp_path):
    cloud = Cloud(tmp_path, {"a": "hv1", "db": "hv3"}, {"reason": "x", "guests": []})
    cloud.mark["guests"].append("db")
    drain(cloud)
    assert cloud.mark["guests"] == ["a", "db"]
    checked = bring_back(cloud, cloud.move).check()
    assert [row[0] for row in checked.details["table"][2:]] == ["db"]


class Uneven(Cloud):
    """hv1 is full, and a host in maintenance counts for nothing."""

    def _inventory(self, host):
        facts = {"vcpus": 1, "memory_kib": 4 * GIB_KIB, "state": "running"}
        found = super()._inventory(host)
        found["guests"] = {g: facts for g, on in self.guests.items() if on == host}
        found["maintenance"] = "disks" if host == "hv3" else None
        return found

    def move(self, guest, target):
        self.guests[guest] = target
        return target


def even(cloud, move):
    one = balance(cloud, move)
    planned = one.check().details["table"][1:]
    assert [row[1:3] for row in planned[:2]] == [["hv1", "hv2"]] * 2
    return [row[0] for row in planned], outcome_of(one.run())


def balance(cloud, move):
    return Rebalance(cloud, PLAIN, rebalance.THRESHOLD, move, Silent())


def four_on_one(tmp_path):
    return Uneven(tmp_path, {**{f"g{i}": "hv1" for i in range(4)}, "kept": "hv3"})


def test_the_planned_moves_are_made_as_long_as_the_cloud_is_as_planned(tmp_path):
    cloud = four_on_one(tmp_path)
    planned, outcome = even(cloud, cloud.move)
    assert outcome.moved == dict.fromkeys(planned, "hv2")
    assert outcome.unmoved == {}


def test_after_a_move_that_failed_the_rest_is_planned_without_that_guest(tmp_path):
    cloud, tried = four_on_one(tmp_path), []

    def move(guest, target):
        tried.append(guest)
        return stuck() if guest == "g0" else cloud.move(guest, target)

    planned, outcome = even(cloud, move)
    assert planned == ["g0", "g1"]
    assert outcome.unmoved == {"g0": "it is on a CD"}
    assert outcome.moved == {"g1": "hv2", "g2": "hv2"}
    assert tried == ["g0", "g1", "g2"]


def test_a_guest_that_can_go_nowhere_is_in_no_plan_and_is_named(tmp_path):
    """It was chosen by each plan, and ended each run before the first move."""
    cloud = four_on_one(tmp_path)
    cloud.pinned["g0"] = ["it has 2 snapshots"]
    planned, outcome = even(cloud, cloud.move)
    assert planned == ["g1", "g2", "g0"]
    assert (outcome.moved, outcome.unmoved) == ({"g1": "hv2", "g2": "hv2"}, {})
    one = balance(four_on_one(tmp_path), cloud.move)
    one.fleet.pinned["g0"] = ["it has 2 snapshots"]
    found = one.check()
    assert found.details["stay"] == {"g0": "it has 2 snapshots"}
    assert found.details["table"][-1] == ["g0", None, None, None, "it has 2 snapshots"]


def test_a_guest_that_a_person_names_stays(tmp_path):
    cloud = four_on_one(tmp_path)
    one = Rebalance(
        cloud, PLAIN, rebalance.THRESHOLD, cloud.move, Silent(), stay=["g0", "g1", "g2"]
    )
    assert one.check().changes == {"moved": {"g3": "hv2"}}
    mistyped = Rebalance(cloud, PLAIN, rebalance.THRESHOLD, cloud.move, Silent(), stay=["g0", "gO"])
    assert mistyped.check().reasons == ("stay: no guest gO on any hypervisor",)
    with pytest.raises(NotFound, match="stay: no guest gO on any hypervisor"):
        mistyped.run()
    location_cache.store_host(cloud.opts, "hv3", {"g9": "running"})
    cloud.silent = ["hv3"]
    mistyped.stay = {"g9", "gO"}
    (reason,) = mistyped.check().reasons
    assert reason == "stay: no guest gO on any hypervisor that answered (not: hv3)"


def test_when_somebody_else_changes_the_cloud_the_rest_of_the_plan_is_left(tmp_path):
    cloud = four_on_one(tmp_path)

    def move(guest, target):
        cloud.guests["new"] = "hv2"
        return cloud.move(guest, target)

    planned, outcome = even(cloud, move)
    assert outcome.moved == {planned[0]: "hv2"}
    assert outcome.unmoved.keys() == {planned[1]}
    assert "as planned; plan again" in outcome.unmoved[planned[1]]


def test_a_difference_of_just_the_least_gain_is_as_planned(tmp_path, monkeypatch):
    cloud = four_on_one(tmp_path)
    found, _ = inventory.gather(cloud)
    hosts = {host.name: host for host in found if not host.maintenance}
    now = rebalance.score([*hosts.values()], PLAIN)
    monkeypatch.setattr(rebalance, "LEAST_GAIN", now - 0.25)
    planned = [rebalance.RebalanceMove(f"g{i}", "hv1", "hv1", 0.5, 0.25) for i in range(2)]
    assert len(balance(cloud, cloud.move).move(hosts, planned).moved) == 2


def test_where_there_is_no_host_that_is_the_reason(tmp_path):
    cloud = four_on_one(tmp_path)

    def none(_only=None):
        raise NotFound("no hypervisor")

    cloud.hosts = none
    one = balance(cloud, cloud.move)
    assert one.check().reasons == ("no hypervisor",)
    with pytest.raises(NotFound):
        one.run()


def test_the_plan_of_each_has_the_hosts_of_its_ranking_and_what_the_one_before_left():
    """So that no host is asked again: the first of them, the next where that refuses."""
    plans = {}
    hosts = [host("a", 6, 3), host("b"), host("c", 1)]
    targets, _ = evacuate.plan(hosts, "a", PLAIN, plans)
    assert targets == {"a-0": "b", "a-1": "c"}
    assert {name: (one.source, one.targets.names) for name, one in plans.items()} == {
        "a-0": ("a", ["b", "c"]), "a-1": ("a", ["c"]),
    }  # fmt: skip


def test_what_would_be_done_is_a_table_with_who_would_stay_and_why(tmp_path):
    cloud = Cloud(tmp_path, {"a": "hv1", "b": "hv1"}, silent=["hv2"])
    found = Evacuate(cloud, "hv1", PLAIN, cloud.move, Silent()).check()
    assert found.comment == "hv1: 2 would move, 0 would stay"
    rows = [["guest", "goes to", "reason"], ["a", "hv3", ""], ["b", "hv3", ""]]
    assert (found.subject, found.changes) == ("hv1", {"moved": {"a": "hv3", "b": "hv3"}})
    assert found.details == {"table": rows, "moves": {"a": "hv3", "b": "hv3"}, "left": {}}
    cloud.silent = ["hv2", "hv3"]
    found = Evacuate(cloud, "hv1", PLAIN, cloud.move, Silent()).check()
    why = found.details["left"]["a"]
    assert why == "there is no other host"
    assert found.details["table"][1:] == [["a", None, why], ["b", None, why]]


# -- guests that somebody else moves ---------------------------------------------------------------


KEPT = "high availability: virt.ha_move"


def kept(cloud, *names):
    ha_provider.store_managed(cloud.opts, dict.fromkeys(names, KEPT))


def test_who_is_kept_is_moved_by_his_keeper_and_waited_for(tmp_path):
    cloud, told = Cloud(tmp_path, {"a": "hv1", "web1": "hv1", "web2": "hv1"}), Told()
    kept(cloud, "web1", "web2", "elsewhere")
    waited = []

    def wait(seconds):
        waited.append(seconds)
        if len(waited) in (100, 210):  # each within its time
            cloud.guests[f"web{len(waited) // 100}"] = "hv3"

    one = Evacuate(cloud, "hv1", PLAIN, cloud.move, told, timeout=600, wait=wait)
    done = one.run()
    assert done.complete and done.changes["moved"] == {"a": "hv3", "web1": "hv3", "web2": "hv3"}
    assert "2 guests (web1, web2) left to their manager" in told.lines
    assert "1 guest (web2) left to their manager" in told.lines
    assert cloud.mark["guests"] == ["a"], "restore leaves the others to their keeper, too"
    assert set(evacuated.load(cloud.opts, "hv1").values()) == {"a"}


def test_who_is_kept_and_does_not_leave_is_named_with_his_keeper(tmp_path):
    cloud, waited = Cloud(tmp_path, {"web1": "hv1"}), []
    kept(cloud, "web1")
    outcome = drain(cloud, timeout="30", wait=waited.append)
    assert sum(waited) == 30
    assert outcome.unmoved == {"web1": f"it did not leave within 30 s; it is managed by {KEPT}"}
    assert cloud.guests == {"web1": "hv1"}


class Brings:
    """A Keeper of which only that matters. why: what it says, one after the other, then nothing."""

    def __init__(self, *why):
        self.why, self.asked = [*why], 0

    def capacity_reserve(self, _hosts):
        return None

    def idle_reason(self):
        return ""

    def refresh(self):
        self.asked += 1

    def pending_arrivals(self, host):
        assert host == "hv1"
        return self.why.pop(0) if self.why else ""


def test_an_empty_host_is_not_done_while_its_keeper_may_still_bring_guests(tmp_path):
    """Else one is started, or moved, there a moment after a person was told that it is empty."""
    cloud, keeper, waited = Cloud(tmp_path, {"web1": "hv2"}), Brings("not seen", "web1 comes"), []
    kept(cloud, "web1")

    def wait(seconds):
        waited.append(seconds)
        if len(waited) == 2:  # it came when it was no longer said to come
            cloud.guests["web1"] = "hv1"
        if len(waited) == 3:
            cloud.guests["web1"] = "hv3"

    outcome = drain(cloud, provider=keeper, timeout=60, wait=wait)
    assert (len(waited), keeper.asked) == (3, 1)
    assert (outcome.unmoved, outcome.moved) == ({}, {"web1": "hv3"})


def test_a_host_to_which_guests_may_still_come_is_named(tmp_path):
    cloud, waited = Cloud(tmp_path, {"web1": "hv2"}), []
    kept(cloud, "web1")
    outcome = drain(cloud, provider=Brings(*["not seen"] * 9), timeout=20, wait=waited.append)
    assert sum(waited) == 20
    assert outcome.unmoved == {"hv1": "guests may still move to it: not seen"}


def test_nobody_is_waited_for_where_nobody_is_kept(tmp_path):
    assert drain(Cloud(tmp_path, {}), provider=Brings("not seen"), wait=stuck).unmoved == {}


def test_who_is_kept_and_off_is_not_waited_for(tmp_path):
    cloud = Cloud(tmp_path, {"web1": "hv1"})
    kept(cloud, "web1")
    running = cloud._inventory

    def off(host):
        found = running(host)
        return {**found, "guests": {g: {**f, "state": "shutdown"}
                                    for g, f in found["guests"].items()}}  # fmt: skip

    cloud._inventory = off
    assert drain(cloud, wait=stuck).unmoved == {}


def test_a_host_that_falls_silent_while_the_kept_are_waited_for_is_named(tmp_path):
    cloud = Cloud(tmp_path, {"web1": "hv1"})
    kept(cloud, "web1")

    def wait(_seconds):
        cloud.silent = ["hv1"]

    assert "its remaining guests are unknown: hv1: down" in drain(cloud, wait=wait).unmoved["hv1"]


@pytest.mark.parametrize("when", ["moved", "looked at", "looked at again", "left"])
def test_whenever_a_host_with_kept_guests_falls_silent_what_was_done_is_said(tmp_path, when):
    """Before it is known whether they are there, or after some of them have gone."""
    cloud = Cloud(tmp_path, {"a": "hv1", "web1": "hv1", "web2": "hv1"})
    kept(cloud, "web1", "web2")
    inventory_of, after = cloud._inventory, {"looked at": 2, "looked at again": 3}.get(when, 0)

    def move(guest, target):
        cloud.silent = ["hv1"] if when == "moved" else []
        return cloud.move(guest, target)

    def look(host):
        found = inventory_of(host)
        if len(cloud.looks) == after:
            cloud.silent = ["hv1"]
        return found

    def wait(_seconds):
        if when == "left" and cloud.guests["web1"] == "hv2":
            cloud.silent = ["hv1"]
        cloud.guests["web1"] = "hv2"

    cloud._inventory = look
    keeper = Brings("")
    outcome = drain(cloud, move, provider=keeper, timeout=60, wait=wait)
    assert (keeper.why == [""]) is (when == "moved"), "of one that is silent nobody is asked"
    gone = when == "left"
    assert outcome.moved.keys() == ({"a", "web1"} if gone else {"a"})
    assert outcome.unmoved["hv1"].startswith("its remaining guests are unknown: hv1: down")
    assert (cloud.guests["web1"] == "hv1") is (when in ("moved", "looked at"))


def test_who_is_kept_is_said_beforehand_and_a_time_that_is_none(tmp_path):
    cloud = Cloud(tmp_path, {"a": "hv1", "web1": "hv1", "elsewhere": "hv2"})
    kept(cloud, "web1", "elsewhere")
    found = Evacuate(cloud, "hv1", PLAIN, cloud.move, Silent()).check()
    assert found.details["table"][1:] == [["web1", None, f"managed by {KEPT}"], ["a", "hv3", ""]]
    assert found.comment == "hv1: 1 would move, 0 would stay"
    wrong = Evacuate(cloud, "hv1", PLAIN, cloud.move, Silent(), timeout="soon")
    assert "timeout must be a number" in wrong.check().reasons[0]
    with pytest.raises(InvalidInput, match="timeout must be a number"):
        wrong.run()
    assert cloud.marks == []


def test_who_is_kept_and_fits_nowhere_is_his_keepers_alone(tmp_path):
    cloud = Cloud(tmp_path, {"a": "hv1", "web1": "hv1"}, silent=["hv2", "hv3"])
    kept(cloud, "web1")
    found = Evacuate(cloud, "hv1", PLAIN, cloud.move, Silent()).check()
    assert found.details["left"] == {"a": "there is no other host"}


class Spares(Brings):
    """A Keeper of a Room. refused: so many moves from now on one breaks it; None: none does."""

    def __init__(self, warns=False, refused=None):
        super().__init__()
        self.warns, self.refused, self.taken, self.seen = warns, refused, [], []

    def capacity_reserve(self, hosts):
        self.seen.append([host.name for host in hosts])
        return self

    def refusal(self, host, guest, wish=None):
        none = self.refused is None or len(self.taken) < self.refused
        return "" if none else f"if {host} died"

    def take(self, host, guest, wish=None):
        self.taken.append((host, guest.name))


def test_the_reserve_counts_for_who_leaves(tmp_path):
    cloud, keeper = Cloud(tmp_path, {"a": "hv1"}), Spares()
    keeper.refusal = lambda host, guest, wish=None: "it is kept" if host == "hv3" else ""
    assert Evacuate(cloud, "hv1", PLAIN, cloud.move, Silent()).check().details["moves"] == {
        "a": "hv3"
    }
    one = Evacuate(cloud, "hv1", PLAIN, cloud.move, Silent(), provider=keeper)
    assert one.check().details["moves"] == {"a": "hv2"}
    assert keeper.seen == [["hv1", "hv2", "hv3"]]


@pytest.mark.parametrize(("warns", "moved"), [(False, 1), (True, 2)])
def test_a_rebalance_takes_of_the_reserve_what_it_moves_and_ends_before_it_is_broken(
    tmp_path, warns, moved
):
    cloud, keeper = four_on_one(tmp_path), Spares(warns, refused=1)
    one, told = balance(cloud, cloud.move), Told()
    one.provider, one.report = keeper, told
    checked = one.check()
    assert (len(checked.changes["moved"]), len(keeper.taken)) == (moved, 1)
    assert "would violate virt:ha:reserve: if hv2 died" in checked.comment
    assert checked.comment.count("the plan ends here") == (not warns)
    keeper.taken.clear()
    assert len(one.run().changes["moved"]) == moved
    assert "would violate virt:ha:reserve: if hv2 died" in told.lines[0]


def test_a_rebalance_that_breaks_nothing_says_nothing_of_the_reserve(tmp_path):
    cloud, keeper = four_on_one(tmp_path), Spares()
    one, told = balance(cloud, cloud.move), Told()
    one.provider, one.report = keeper, told
    assert "reserve" not in one.check().comment
    assert {host for host, _ in keeper.taken} == {"hv2"} and len(keeper.taken) == 2
    assert len(one.run().changes["moved"]) == 2
    assert [line for line in told.lines if "is on hv2" not in line] == []


def test_a_host_that_is_empty_is_asked_alone(tmp_path, monkeypatch):
    cloud, asked = Cloud(tmp_path, {"a": "hv1"}), []
    real = inventory.gather
    monkeypatch.setattr(
        inventory, "gather", lambda fleet, hosts: asked.append(hosts) or real(fleet, hosts)
    )
    assert drain(cloud).moved
    assert asked == [["hv1", "hv2", "hv3"], ["hv1"]]


# -- the plans of a rebalance ---------------------------------------------------------------------


def test_where_a_planned_target_refuses_the_next_best_is_known_and_never_the_source(tmp_path):
    hosts = [host("hv1", 6, 1, 1), host("hv2"), host("hv3", 4)]
    cloud, plans = {one.name: one for one in hosts}, {}
    planned = [
        rebalance.RebalanceMove("hv1-1", "hv1", "hv3", 0.5, 0.3),
        rebalance.RebalanceMove("hv1-0", "hv1", "hv2", 0.3, 0.1),
        rebalance.RebalanceMove("hv1-2", "hv1", "hv3", 0.1, 0.05),
    ]
    uneven = four_on_one(tmp_path)
    Rebalance(uneven, PLAIN, 0, uneven.move, Silent(), plans)._store_plans(cloud, planned)
    assert {name: (one.source, one.targets.names) for name, one in plans.items()} == {
        "hv1-1": ("hv1", ["hv3", "hv2"]), "hv1-0": ("hv1", ["hv2"]),
        "hv1-2": ("hv1", ["hv3", "hv2"]),
    }  # fmt: skip


def test_what_is_planned_is_written_down_before_it_is_done_and_not_for_a_test(tmp_path):
    cloud, plans, known = four_on_one(tmp_path), {}, []

    def move(guest, target):
        known.append(guest in plans)
        return cloud.move(guest, target)

    one = Rebalance(cloud, PLAIN, rebalance.THRESHOLD, move, Silent(), plans)
    assert one.check().changes["moved"] and plans == {}
    assert one.run().complete
    assert known == [True, True]


def test_the_score_after_each_move_is_told_to_three_places(tmp_path):
    after = [row[3] for row in balance(four_on_one(tmp_path), None).check().details["table"][1:]]
    planned = balance(four_on_one(tmp_path), None)._plan()[1]
    assert after == [round(move.after, 3) for move in planned]
    assert any(round(move.after, 4) != round(move.after, 3) for move in planned)


def test_hosts_that_are_asked_again_are_counted_once_and_the_others_as_they_were(
    tmp_path, monkeypatch
):
    nfs = {"vms": StorageSpace(10, 10, 4, shared="nfs:/vms")}
    old = {name: replace(host(name, 1), stores=nfs) for name in ("hv1", "hv2", "hv3")}
    new = [replace(host("hv1"), stores=nfs), replace(host("hv2", 1), maintenance="disks")]
    asked = []
    monkeypatch.setattr(inventory, "gather", lambda _fleet, hosts: asked.append(hosts) or (new, {}))
    found = balance(four_on_one(tmp_path), None)._refresh_hosts(old, {"hv2", "hv1"})
    assert asked == [["hv1", "hv2"]]
    assert found.keys() == {"hv1", "hv3"}, "no guest goes to one that is in maintenance"
    assert (found["hv1"].guests, found["hv3"].guests) == ((), old["hv3"].guests)
    assert [one.stores["vms"].elsewhere_bytes for one in found.values()] == [4, 4]
