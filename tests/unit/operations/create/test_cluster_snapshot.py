"""Many guests at once: the number of queries and their results. tests/counted.py defines what
counts as a job."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.fleet import progress, target
from saltvirt.operations.cluster import unique
from saltvirt.operations.core import operation
from saltvirt.operations.create import cluster_snapshot, deploy, init
from saltvirt.operations.create import request as request_module
from saltvirt.placement import choose, facts, policy
from tests.clock import Clock
from tests.counted import Cloud

POLICY = policy.from_config(None, None)


def wishes(count, **more):
    asked = {"mem": 2048, "cpu": 2, "seed": False, **more}
    return [deploy.parse_guest(f"web{number:03}", asked, "shop") for number in range(count)]


# -- the choice ---------------------------------------------------------------------------


def test_a_host_that_did_not_change_is_found_as_if_it_were_looked_at_again():
    """Choices remembers what it found of hosts: it must not show."""
    dice = random.Random(7)
    hosts = {
        f"hv{n}": facts.Host(
            f"hv{n}", cpus=dice.choice((4, 8)), memory_kib=dice.choice((8, 16)) << 20,
            types=("kvm",), disk_total_bytes=1 << 40, disk_free_bytes=1 << 40,
        )
        for n in range(6)
    }  # fmt: skip
    remembers = choose.HostSelector(POLICY)
    for number in range(120):
        groups = dice.choice(((), (), ("web",)))
        request = facts.PlacementRequest(
            f"g{number}", 1, dice.choice((1, 2)) << 20, groups=groups, group_policy="separate"
        )
        found = remembers.choose(hosts.values(), request)
        assert found == choose.choose(hosts.values(), request, POLICY)
        if found.ranked and dice.random() < 0.8:
            best = found.ranked[0].host
            guest = facts.Guest(request.name, "", "running", 1, request.memory_kib, groups=groups)
            hosts[best] = replace(hosts[best], guests=(*hosts[best].guests, guest))
        if dice.random() < 0.1:
            gone = dice.choice(sorted(hosts))
            hosts[gone] = replace(hosts[gone], guests=())


# -- the plan -----------------------------------------------------------------------------


def test_a_plan_asks_all_hosts_twice_however_many_guests_it_is_for(tmp_path):
    """Once what they have, and once what a guest of that kind would take."""
    cloud = Cloud(tmp_path, hosts=20)
    found = deploy.plan(cloud, POLICY, wishes(200), "shop")
    assert len(found.placed) == 200
    assert (cloud.jobs, cloud.minions) == ({"virt.inventory": 2}, {"virt.inventory": 40})


def test_guests_that_differ_in_their_addresses_and_groups_are_of_one_kind(tmp_path):
    cloud = Cloud(tmp_path, hosts=3)
    guests = [
        deploy.parse_guest(
            f"web{n}",
            {"mem": 64, "seed": False, "groups": [f"g{n}"],
             "interfaces": [{"name": "eth0", "mac": f"52:54:00:00:00:{n:02}"}]},
            "shop",
        )
        for n in range(9)
    ]  # fmt: skip
    assert len(deploy.plan(cloud, POLICY, guests, "shop").placed) == 9
    assert cloud.jobs == {"virt.inventory": 2}
    kinds = {
        cluster_snapshot.kind_of(one) for one in (*guests, *wishes(1, nic="other"), *wishes(1))
    }
    assert len(kinds) == 3


def test_the_files_of_a_silent_libvirt_are_read_once_for_all_names(tmp_path):
    cloud = Cloud(tmp_path, hosts=5, dead=["hv001", "hv002"])
    found = deploy.plan(cloud, POLICY, wishes(30), "shop")
    assert len(found.failed) == 30  # they may be there, and the master knows no better
    assert cloud.jobs == {"virt.inventory": 1, "virt.names_on_disk": 1}
    sure = deploy.plan(cloud, POLICY, wishes(30, name_is_free=True), "shop")
    assert len(sure.placed) == 30
    assert not {"hv001", "hv002"} & set(sure.placed.values())


def test_a_host_that_refused_is_asked_again_and_no_other(tmp_path):
    cloud = Cloud(tmp_path, hosts=3)
    seen = cluster_snapshot.ClusterSnapshot(cloud, POLICY)
    guests = wishes(9)
    where = {w.name: seen.place_guest(cloud, w, w.request()).ranked[0].host for w in guests}
    full = where["web000"]
    theirs = {f"other{n}": {"vcpus": 1, "memory_kib": 1 << 20, "state": "running"} for n in (1, 2)}
    cloud.guests[full].update(theirs)
    made = [name for name, host in where.items() if host == full][1]
    cloud.guests[full][made] = {"vcpus": 2, "memory_kib": 2 << 20, "state": "running"}
    cloud.published.clear()
    seen.refresh_host(cloud, full, guest_name="web000")
    again = seen.place_guest(cloud, guests[0], guests[0].request(), [full]).ranked[0].host
    assert again != full == where[made]
    assert cloud.published == [("virt.inventory", [full])]
    [host] = [host for host in seen.hosts if host.name == full]
    come = sorted(name for name, host in where.items() if host == full and name != "web000")
    assert sorted(guest.name for guest in host.guests) == sorted([*theirs, *come])
    assert [seen.host_of(name) for name in ("web000", made)] == [again, full]
    assert sum(len(one.guests) for one in seen.hosts) == len(guests) + len(theirs), "each once"


def test_a_host_that_died_meanwhile_gets_nothing_more(tmp_path):
    cloud = Cloud(tmp_path, hosts=2)
    seen = cluster_snapshot.ClusterSnapshot(cloud, POLICY)
    [one] = wishes(1)
    first = seen.place_guest(cloud, one, one.request()).ranked[0].host
    cloud.dead.add(first)
    seen.refresh_host(cloud, first, guest_name=one.name)
    assert first in seen.unreachable
    assert [host.name for host in seen.hosts] == [name for name in cloud.names if name != first]
    assert seen.place_guest(cloud, one, one.request()).ranked[0].host != first
    cloud.dead.clear()
    assert seen.host_of("nobody") is None


def test_a_host_that_died_is_named_where_a_guest_for_ha_is_checked(tmp_path):
    """Another thread has asked the host again since the guest was placed on it."""
    cloud, [one] = Cloud(tmp_path, hosts=2), wishes(1)
    seen = cluster_snapshot.ClusterSnapshot(cloud, POLICY, provider=Keeper())
    making = init.Init(cloud, POLICY, one, None, seen, provider=seen._provider)
    making.ha_options = "kept"
    cloud.dead.add("hv001")
    seen.refresh_host(cloud, "hv001", guest_name="nobody")
    with pytest.raises(errors.Refused, match="hv001: "):
        making.check_resources("hv001", operation.Reasons(first=True))


def test_a_busy_host_is_waited_for(tmp_path):
    cloud = Cloud(tmp_path, hosts=3)
    cloud.busy = {"hv001"}
    seen = cluster_snapshot.ClusterSnapshot(cloud, POLICY)
    [one] = wishes(1, host="hv001")
    assert [best.host for best in seen.place_guest(cloud, one, one.request()).ranked] == ["hv001"]
    assert [host.needs is not None for host in seen.hosts] == [True] * 3


def test_hosts_that_did_not_change_are_not_looked_at_again(tmp_path, monkeypatch):
    cloud, looked, kept = Cloud(tmp_path, hosts=6), [], choose._first

    def first_reason(host, asked, *more):
        if asked.name in ("web000", "web001", "web002"):
            looked.append(host.name)
        return kept(host, asked, *more)

    monkeypatch.setattr(choose, "_first", first_reason)
    seen = cluster_snapshot.ClusterSnapshot(cloud, POLICY)
    first, second, third = wishes(3)
    best = seen.place_guest(cloud, first, first.request()).ranked[0].host
    assert looked == cloud.names
    seen.place_guest(cloud, second, second.request())
    assert looked == [*cloud.names, best]
    third.arguments = dict(reversed(third.arguments.items()))
    seen.place_guest(cloud, third, third.request())
    assert len(looked) == 8
    assert cloud.jobs == {"virt.inventory": 2}


def test_what_a_guest_takes_by_the_profiles_of_its_host_counts_once(tmp_path):
    seen = cluster_snapshot.ClusterSnapshot(cloud := Cloud(tmp_path, hosts=1), POLICY)
    for one in wishes(2):
        seen.place_guest(cloud, one, one.request())
    [host] = seen.hosts
    assert sum(store.promised_bytes for store in host.storage.values()) == 2 * (10 << 30)


def test_a_guest_that_is_nowhere_any_more_is_not_counted_where_it_was(tmp_path):
    cloud = Cloud(tmp_path, hosts=1)
    seen = cluster_snapshot.ClusterSnapshot(cloud, POLICY)
    one, other = wishes(2)
    for each in (one, other):
        seen.place_guest(cloud, each, each.request())
    cloud.dead.add("hv000")
    seen.refresh_host(cloud, "hv000", guest_name=other.name)
    assert not seen.place_guest(cloud, one, one.request()).ranked
    cloud.dead.clear()
    seen.refresh_host(cloud, "hv000", guest_name=other.name)
    assert [host.guests for host in seen.hosts] == [()]


def test_a_host_that_answers_again_is_not_unreachable(tmp_path):
    cloud = Cloud(tmp_path, hosts=2)
    seen = cluster_snapshot.ClusterSnapshot(cloud, POLICY)
    for dead in ({"hv000"}, set()):
        cloud.dead = dead
        seen.refresh_host(cloud, "hv000", guest_name="nobody")
    [one] = wishes(1)
    found = seen.place_guest(cloud, one, one.request())
    assert {candidate.host for candidate in found.ranked} == {"hv000", "hv001"}
    assert (found.rejected, seen.unreachable) == ({}, {})


def test_a_guest_that_exists_by_now_counts_once(tmp_path):
    cloud = Cloud(tmp_path, hosts=2)
    seen = cluster_snapshot.ClusterSnapshot(cloud, POLICY)
    one, other = wishes(2)
    hosts = [seen.place_guest(cloud, each, each.request()).ranked[0].host for each in (one, other)]
    cloud.guests[hosts[0]][one.name] = {"vcpus": 2, "memory_kib": 2 << 20, "state": "running"}
    seen.refresh_host(cloud, hosts[0], guest_name="nobody")
    seen.withdraw(cloud, hosts[1], other.name)
    assert [guest.name for host in seen.hosts for guest in host.guests] == [one.name]


@pytest.mark.parametrize("count", [1, 2])
def test_a_host_that_refuses_one_of_many_is_asked_again(tmp_path, count):
    cloud = Cloud(tmp_path, hosts=2)
    seen = cluster_snapshot.ClusterSnapshot(cloud, POLICY)
    *others, one = wishes(count)
    for each in (*others, one):
        host = seen.place_guest(cloud, each, each.request()).ranked[0].host
    before = dict(cloud.jobs)
    seen.withdraw(cloud, host, one.name)
    assert (cloud.jobs != before) is (count > 1)
    assert one.name not in {guest.name for found in seen.hosts for guest in found.guests}
    found = seen.place_guest(cloud, one, one.request(), excluded=[host])
    assert host not in {candidate.host for candidate in found.ranked}
    seen.withdraw(cloud, found.ranked[0].host, one.name)
    assert seen.host_of(one.name) is None


def test_of_each_host_that_did_not_answer_is_told_once(tmp_path):
    cloud = Cloud(tmp_path, hosts=3, dead=["hv000"])
    seen = cluster_snapshot.ClusterSnapshot(cloud, POLICY)
    assert [*seen.take_unreported()] == ["hv000"]
    assert seen.take_unreported() == {}
    cloud.dead.add("hv001")
    seen.refresh_host(cloud, "hv001", guest_name="nobody")
    assert [*seen.take_unreported()] == ["hv001"]


@pytest.mark.parametrize(
    ("asked", "others"), [({}, True), ({"seed": True}, True), ({"seed": False}, False),
                          ({"seed": False, "user_data": "x"}, True)],
)  # fmt: skip
def test_a_guest_with_a_key_is_placed_on_no_host_below_a_syndic(
    tmp_path, monkeypatch, asked, others
):
    monkeypatch.setattr(target, "accepted", lambda _opts: ["hv001", "hv002"])
    cloud = Cloud(tmp_path, hosts=3)
    cloud.opts["order_masters"] = True
    seen = cluster_snapshot.ClusterSnapshot(cloud, POLICY)
    one = request_module.InitRequest("web1", 1, 64, None, arguments=asked)
    found = seen.place_guest(cloud, one, one.request())
    why = ("syndic", "hv000 is below a syndic and submits the key of web1 to its own master: run "
                     "this on that master, or use seed=False and no secret arguments")  # fmt: skip
    assert found.rejected == ({"hv000": why} if others else {})
    assert "hv000" not in {one.host for one in found.ranked} or not others
    assert len(found.ranked) == 3 - others


class Keeper:
    """Keeps nothing on hv000. broken: the wishes that would break its room. rooms: what was taken
    of each one that was made."""

    warns = True

    def __init__(self, broken=()):
        self.rooms, self.broken = [], broken

    def rejected_hosts(self, name, _wish, hosts):
        return {host.name: ("ha", f"{name}: not here") for host in hosts if host.name == "hv000"}

    def capacity_reserve(self, _hosts):
        self.rooms.append([])
        return self

    def refusal(self, host, _guest, wish=None):
        return f"{wish} {host}" if wish in self.broken else ""

    def take(self, host, guest, wish=None):
        self.rooms[-1].append((host, guest.name, wish))


def test_what_keeps_a_guest_says_which_hosts_are_none_for_it(tmp_path):
    cloud = Cloud(tmp_path, hosts=2)
    seen = cluster_snapshot.ClusterSnapshot(cloud, POLICY, provider=Keeper())
    kept, other = wishes(2)
    found = seen.place_guest(cloud, kept, kept.request(), ha_options="kept")
    assert found.rejected == {"hv000": ("ha", f"{kept.name}: not here")}
    assert not seen.place_guest(cloud, other, other.request()).rejected
    nobody = cluster_snapshot.ClusterSnapshot(cloud, POLICY)
    assert not nobody.place_guest(cloud, kept, kept.request(), ha_options="kept").rejected


def test_what_a_guest_would_break_is_told_of_it_alone(tmp_path):
    cloud = Cloud(tmp_path, hosts=2)
    seen = cluster_snapshot.ClusterSnapshot(cloud, POLICY, provider=Keeper(broken=["kept"]))
    kept, other = wishes(2)
    seen.place_guest(cloud, kept, kept.request(), ha_options="kept")
    seen.place_guest(cloud, other, other.request())
    why = "it would violate virt:ha:reserve: kept hv001"
    assert [seen.warning_of(name) for name in (kept.name, other.name, "nobody")] == [why, "", ""]


def test_guests_that_are_kept_take_their_room_again_when_a_host_has_changed(tmp_path):
    cloud, keeper = Cloud(tmp_path, hosts=2), Keeper()
    seen = cluster_snapshot.ClusterSnapshot(cloud, POLICY, provider=keeper)
    kept, other, late = wishes(3)
    seen.place_guest(cloud, kept, kept.request(), ha_options="kept")
    seen.place_guest(cloud, other, other.request())
    seen.refresh_host(cloud, "hv000", guest_name="nobody")
    seen.place_guest(cloud, late, late.request())
    assert keeper.rooms[-1][0] == ("hv001", kept.name, "kept")
    assert [guest for _, guest, _ in keeper.rooms[-1]] == [kept.name, late.name]


# -- what is made -------------------------------------------------------------------------


@pytest.fixture
def deployed(monkeypatch):
    """Deploys guests on a Cloud of tests/counted.py; its Result."""

    def run(cloud, guests, at_once=4, name="shop"):
        monkeypatch.setattr(deploy, "Fleet", cloud)
        return deploy.Deploy(cloud, POLICY, guests, name, at_once=at_once).run()

    return run


@pytest.mark.parametrize(("hosts", "guests"), [(200, 120), (60, 40)])
def test_what_a_guest_of_many_costs(tmp_path, deployed, hosts, guests):
    """No more than four minions and a tenth of the hosts are asked a guest, all jobs counted on
    every host: it was two questions to all hosts a guest, beside four to its own."""
    cloud = Cloud(tmp_path, hosts)
    done = deployed(cloud, wishes(guests))
    assert done.complete, done.comment
    jobs, minions = cloud.jobs, cloud.minions
    assert jobs["virt.init"] == jobs["virt.power"] == guests
    assert jobs["virt.inventory"] == 2
    looks = [asked for fun, asked in cloud.published if fun == "virt.vm_state" and len(asked) > 1]
    assert all(len(asked) == hosts for asked in looks)
    plan = 2 * hosts
    assert sum(minions.values()) - plan <= guests * (4 + hosts / 10)
    assert {one["state"] for host in cloud.guests.values() for one in host.values()} == {"running"}


def test_each_guest_is_looked_for_after_it_was_made_and_before_it_is_started(tmp_path, deployed):
    """Every host, by a question that was published after the guest was there: of two masters that
    make a guest of the same name one at least sees both, as ever."""
    cloud, seen, wrong = Cloud(tmp_path, hosts=30), {}, []

    def first(host, fun, kwarg):
        name = (kwarg or {}).get("name")
        with cloud.lock:
            if fun == "virt.vm_state" and not kwarg:
                for guest in (one for has in cloud.guests.values() for one in has):
                    seen.setdefault(guest, set()).add(host)
            if fun == "virt.power" and seen.get(name) != set(cloud.names):
                wrong.append((name, seen.get(name)))

    cloud.first = first
    assert deployed(cloud, wishes(50)).complete
    assert (wrong, len(seen)) == ([], 50)


def test_one_that_another_master_made_meanwhile_is_not_made_twice(tmp_path, deployed, monkeypatch):
    """It came to be after the plan, and before this one was there."""
    monkeypatch.setattr(unique, "time", Clock())
    cloud = Cloud(tmp_path, hosts=10)
    theirs = {"vcpus": 1, "memory_kib": 1 << 20, "state": "running", "uuid": "theirs"}

    def first(host, fun, kwarg):
        if fun == "virt.init" and kwarg["name"] == "web003":
            cloud.guests["hv000" if host != "hv000" else "hv001"]["web003"] = theirs

    cloud.first = first
    done = deployed(cloud, wishes(12))
    assert list(done.details["failed"]) == ["web003"]
    assert "at the same time" in done.details["failed"]["web003"]
    there = [one for has in cloud.guests.values() for name, one in has.items() if name == "web003"]
    assert there == [theirs]
    assert sum(len(has) for has in cloud.guests.values()) == 12


def test_a_host_that_refuses_is_passed_over_and_it_alone_is_asked_again(tmp_path, deployed):
    cloud = Cloud(tmp_path, hosts=5)
    cloud.full_kib = {"hv000": 4 << 20}
    cloud.refuses = {"hv001": "refused: hv001: it does not like it"}
    done = deployed(cloud, wishes(20))
    assert done.complete, done.comment
    assert not cloud.guests["hv001"]
    assert len(cloud.guests["hv000"]) == 2
    asked = [hosts for fun, hosts in cloud.published if fun == "virt.inventory"]
    assert asked[:2] == [cloud.names, cloud.names]
    assert {host for hosts in asked[2:] for host in hosts} == {"hv000", "hv001"}
    assert all(len(hosts) == 1 for hosts in asked[2:])


def test_a_guest_that_must_be_on_a_host_is_made_nowhere_else(tmp_path, deployed):
    cloud = Cloud(tmp_path, hosts=2)
    cloud.refuses = {"hv001": "refused: no room: hv001: full"}
    done = deployed(cloud, wishes(1, host="hv001"))
    assert (done.complete, cloud.jobs["virt.init"]) == (False, 1)
    assert done.details["failed"] == {"web000": "refused: no host took web000: hv001: full"}


def test_where_nobody_takes_it_any_more_all_refusals_are_told(tmp_path, deployed):
    cloud = Cloud(tmp_path, hosts=2)
    cloud.refuses = dict.fromkeys(cloud.names, "refused: no room: full")
    [why] = deployed(cloud, wishes(1)).details["failed"].values()
    assert (why.count("full"), cloud.jobs["virt.init"]) == (2, 2)


def test_a_host_that_died_after_the_plan_gets_no_guest_and_costs_one_try(tmp_path, deployed):
    cloud = Cloud(tmp_path, hosts=4)
    tried = []

    def first(host, fun, kwarg):
        if fun == "virt.init":
            cloud.dead.add("hv002")
            tried.extend([host] if host == "hv002" else [])

    cloud.first = first
    done = deployed(cloud, wishes(12, name_is_free=True), at_once=1)
    assert done.complete, done.comment
    assert not cloud.guests["hv002"]
    assert tried == ["hv002"]


@pytest.mark.parametrize("at_once", [1, 3])
def test_so_many_are_made_at_a_time_and_those_that_are_looked_for_take_no_turn(
    tmp_path, deployed, at_once
):
    cloud, lock, at_work, most = Cloud(tmp_path, hosts=50), threading.Lock(), set(), []
    all_of_them = threading.Barrier(at_once)

    def first(_host, fun, kwarg):
        if fun == "virt.init":
            with lock:
                at_work.add(kwarg["name"])
                most.append(len(at_work))
            all_of_them.wait(120)
            at_work.discard(kwarg["name"])

    cloud.first = first
    assert deployed(cloud, wishes(3 * at_once), at_once=at_once).complete
    assert max(most) == at_once


def test_two_deployments_at_once_promise_no_host_more_than_it_has(tmp_path, monkeypatch):
    """Both plan on the same picture; what a host admits decides."""
    cloud = Cloud(tmp_path, hosts=6)
    cloud.full_kib = dict.fromkeys(cloud.names, 8 << 20)  # four guests each
    monkeypatch.setattr(deploy, "Fleet", cloud)
    names = {"a": [], "b": []}
    for number, wanted in enumerate(wishes(24)):
        names["ab"[number % 2]].append(replace(wanted))
    with ThreadPoolExecutor() as pool:
        runs = [
            pool.submit(deploy.Deploy(cloud, POLICY, guests, name).run)
            for name, guests in names.items()
        ]
        done = [run.result() for run in runs]
    assert [one.comment for one in done if not one.complete] == []
    assert {host: len(has) for host, has in cloud.guests.items()} == dict.fromkeys(cloud.names, 4)


# -- what is shown of them -----------------------------------------------------------------


def test_lines_of_many_threads_are_fired_one_after_the_other():
    """Salt's channel raised "This event loop is already running" when two were at once."""
    at_once, most = [], []

    class Channel:
        def fire_event(self, data, _tag):
            at_once.append(data)
            most.append(len(at_once))
            time.sleep(0.001)
            at_once.pop()

    one = type(lambda: None)((lambda: None).__code__, {"__jid_event__": Channel()})
    screen = progress.ProgressDisplay({"virt.x": one}, "virt_query")
    with ThreadPoolExecutor(4) as pool:
        both = ((screen.line, ("a",)), (screen.update, (7, "b")))
        for done in [pool.submit(say, *what) for say, what in both * 20]:
            done.result()
    assert (len(most), max(most)) == (40, 1)
