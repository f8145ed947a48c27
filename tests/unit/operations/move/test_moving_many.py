"""Evacuate and rebalance plan in one pass over one inventory, and correct the plan with the hosts'
answers. tests/counted.py defines what counts as a job."""

import importlib.util
from collections import Counter

import pytest

pytest.importorskip("salt")

from saltvirt.fleet.answer import down
from saltvirt.operations.move import migrate
from tests.counted import Cloud
from tests.lab.paths import REPOSITORY

GIB_KIB = 1 << 20
HOSTS = 50


def guest(state="running", gib=4):
    return {"vcpus": 2, "memory_kib": gib * GIB_KIB, "state": state}


class Moving(Cloud):
    """heard: (function, hosts, arguments) of each question."""

    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        self.heard, self.opts["sock_dir"] = [], self.opts["pki_dir"]

    def ask(self, hosts, fun, kwarg=None, **options):
        self.heard.append((fun, tuple(hosts), kwarg))
        return super().ask(hosts, fun, kwarg, **options)

    def of(self, fun):
        return [hosts for asked, hosts, _ in self.heard if asked == fun]


@pytest.fixture
def runner(tmp_path, monkeypatch):
    """A function: what a verb of _runners/virt_migrate.py answers over a Cloud."""
    spec = importlib.util.spec_from_file_location("runner", REPOSITORY / "_runners/virt_migrate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def run(cloud, verb, *args, **more):
        module.__opts__, module.__salt__ = cloud.opts, {"event.send": lambda *_a, **_k: None}
        monkeypatch.setattr(module, "Fleet", cloud)
        monkeypatch.setattr(migrate, "Fleet", cloud)
        return getattr(module, verb)(*args, **more)["data"]

    return run


def drained(tmp_path, count=10, **more):
    return Moving(tmp_path, HOSTS, {"hv000": {f"web{n}": guest() for n in range(count)}}, **more)


# -- what it costs ------------------------------------------------------------------------------


def test_a_guest_that_leaves_an_evacuated_host_costs_two_jobs_to_three_hosts(tmp_path, runner):
    """It was three jobs, two of them to all hosts: what all have was asked for each guest."""
    cloud = drained(tmp_path)
    found = runner(cloud, "evacuate", "hv000")["hv000"]
    assert (found["result"], len(found["changes"]["moved"])) == (True, 10)
    assert cloud.guests["hv000"] == {}
    # beside its own two: the mark is read and set, read and set with the names, and read at the
    # end; all hosts are looked at, and it again, also for a migration that it alone can end
    assert cloud.jobs == {
        "virt.maintenance": 5, "virt.inventory": 2, "virt.migrate_locations": 11,
        "virt.migrate": 10,
    }  # fmt: skip
    assert [len(hosts) for hosts in cloud.of("virt.inventory")] == [HOSTS, 1]
    assert [len(hosts) for hosts in cloud.of("virt.migrate_locations")] == [*[2] * 10, 1]


def test_a_guest_that_makes_the_cloud_even_costs_three_jobs_to_five_hosts(tmp_path, runner):
    """It was four, three of them to all hosts."""
    many = {f"web{n}": guest(gib=60) for n in range(8)}
    cloud = Moving(tmp_path, HOSTS, {"hv000": many})
    found = runner(cloud, "rebalance", apply=True, threshold=0)["rebalance"]
    moved = found["changes"]["moved"]
    assert (found["result"], len(moved)) == (True, 6)
    assert cloud.jobs == {
        "virt.inventory": 1 + 6, "virt.migrate_locations": 6, "virt.migrate": 6,
        "virt.migratable": 1,
    }  # fmt: skip
    sizes = Counter(len(hosts) for hosts in cloud.of("virt.inventory"))
    assert sizes == {HOSTS: 1, 2: 6}
    assert {len(hosts) for hosts in cloud.of("virt.migrate_locations")} == {2}


# -- and what is still found --------------------------------------------------------------------


def test_a_target_that_refuses_is_passed_over_for_the_next_of_the_plan(tmp_path, runner):
    cloud = drained(tmp_path)
    planned = runner(cloud, "evacuate", "hv000", test=True)["hv000"]["moves"]
    cloud.heard.clear()
    full = planned["web3"]
    cloud.refuses = {full: "no room"}
    found = runner(cloud, "evacuate", "hv000")["hv000"]
    assert found["result"] is True
    moved = found["changes"]["moved"]
    assert moved["web3"] not in (full, "hv000")
    there = {host for name, host in planned.items() if host != full}
    assert there <= set(moved.values())
    refused = Counter(asked["vm_"] for fun, _, asked in cloud.heard if fun == "virt.migrate")
    assert refused["web3"] == 2
    assert [len(hosts) for hosts in cloud.of("virt.inventory")] == [HOSTS, 1]
    assert (moved["web3"],) in cloud.of("virt.migrate_locations")  # what it says of itself


@pytest.mark.parametrize("how", ["closed", "dead"])
def test_a_target_that_closes_or_dies_meanwhile_gets_nobody(tmp_path, runner, how):
    cloud = drained(tmp_path, 1)
    gone = runner(cloud, "evacuate", "hv000", test=True)["hv000"]["moves"]["web0"]

    def meanwhile(_host, fun, _asked):
        if fun == "virt.migrate_locations" and how == "closed":
            cloud.marks[gone] = {"reason": "disks", "guests": []}
        elif fun == "virt.migrate_locations":
            cloud.dead.add(gone)

    cloud.first = meanwhile
    found = runner(cloud, "evacuate", "hv000")["hv000"]
    assert found["result"] is True
    assert found["changes"]["moved"]["web0"] not in (gone, "hv000")
    targets = {asked["target"] for fun, _, asked in cloud.heard if fun == "virt.migrate"}
    assert gone not in targets


def test_where_all_refuse_each_says_why(tmp_path, runner):
    cloud = Moving(tmp_path, 3, {"hv000": {"web0": guest()}})
    cloud.refuses = {"hv001": "no room", "hv002": "no bridge"}
    found = runner(cloud, "evacuate", "hv000")
    assert found["retcode"] == 1
    why = found["hv000"]["left"]["web0"]
    assert why.startswith("refused: no host took web0 from hv000: ")
    assert "hv001: no room" in why
    assert "hv002: no bridge" in why


@pytest.mark.parametrize("state", ["shutdown", "crashed"])
def test_of_one_that_is_off_all_are_asked_for_it_may_run_elsewhere(tmp_path, runner, state):
    cloud = Moving(tmp_path, HOSTS, {"hv000": {"web0": guest(state)}})
    assert runner(cloud, "evacuate", "hv000")["hv000"]["result"] is True
    assert [len(hosts) for hosts in cloud.of("virt.migrate_locations")] == [2, HOSTS, 1]
    assert [len(hosts) for hosts in cloud.of("virt.inventory")] == [HOSTS, 1]
    cloud = Moving(tmp_path, HOSTS, {"hv000": {"web0": guest(state)}, "hv033": {"web0": guest()}})
    why = runner(cloud, "evacuate", "hv000")["hv000"]["left"]["web0"]
    assert "is on more than one host: hv000" in why


def test_one_that_is_on_its_target_already_is_not_taken_for_another(tmp_path, runner):
    cloud = drained(tmp_path, 1)
    target = runner(cloud, "evacuate", "hv000", test=True)["hv000"]["moves"]["web0"]

    def appears(_host, fun, _asked):
        if fun == "virt.migrate_locations":
            cloud.guests[target]["web0"] = guest()

    cloud.first = appears
    why = runner(cloud, "evacuate", "hv000")["hv000"]["left"]["web0"]
    assert "is on more than one host: hv000" in why
    assert cloud.of("virt.migrate") == []


@pytest.mark.parametrize("what", ["unfinished", "target_leftovers"])
def test_what_an_earlier_migration_has_left_is_looked_for_everywhere(
    tmp_path, runner, what, monkeypatch
):
    cloud = drained(tmp_path, 1)
    locations = cloud.virt_migrate_locations
    cloud.virt_migrate_locations = lambda host: {**locations(host), what: ["web0"]}
    done = []
    monkeypatch.setattr(
        migrate.Migrate, "_clean_targets", lambda one: done.append("target_leftovers")
    )

    def ended(one, _host, _seen):
        done.append("unfinished")
        cloud.virt_migrate_locations = locations
        return migrate.RecoveryResult(outcome="undone")

    monkeypatch.setattr(migrate.Migrate, "_end_earlier", ended)
    assert runner(cloud, "evacuate", "hv000")["hv000"]["result"] is True
    assert done == [what]
    assert HOSTS in {len(hosts) for hosts in cloud.of("virt.migrate_locations")}


def test_one_that_was_moved_by_somebody_else_meanwhile_is_found_where_it_is(tmp_path, runner):
    cloud = drained(tmp_path, 1)

    def moves(_host, fun, _asked):
        if fun == "virt.migrate_locations" and "web0" in cloud.guests["hv000"]:
            cloud.guests["hv044"]["web0"] = cloud.guests["hv000"].pop("web0")

    cloud.first = moves
    found = runner(cloud, "evacuate", "hv000")["hv000"]
    assert found["result"] is True
    assert "web0" not in cloud.guests["hv000"]
    # it is asked for anew, as for a guest that nobody has planned
    assert [len(hosts) for hosts in cloud.of("virt.inventory")][:2] == [HOSTS, HOSTS]


def test_a_guest_that_went_to_another_host_than_planned_is_counted_there(tmp_path, runner):
    cloud = Moving(tmp_path, 8, {"hv000": {f"web{n}": guest(gib=60) for n in range(8)}})
    table = runner(cloud, "rebalance", threshold=0)["rebalance"]["table"]
    planned = {row[0]: row[2] for row in table[1:]}
    first = table[1][0]
    cloud.refuses = {planned[first]: "no room"}
    cloud.heard.clear()
    found = runner(cloud, "rebalance", apply=True, threshold=0)["rebalance"]
    taken = found["changes"]["moved"][first]
    assert taken not in (planned[first], "hv000")
    assert cloud.of("virt.inventory")[1] == tuple(sorted({"hv000", planned[first], taken}))


@pytest.mark.parametrize("stay", [123, "123", ["123"], "web1, 123,"])
def test_a_name_of_digits_stays_as_any_other(tmp_path, runner, stay):
    """YAML reads it as a number."""
    found = runner(drained(tmp_path, 1), "rebalance", stay=stay)["rebalance"]
    assert "no guest 123" in found["comment"]


def test_what_is_no_list_of_names_is_refused(tmp_path, runner):
    found = runner(drained(tmp_path, 1), "rebalance", stay={"web1": 1})
    assert "stay: " in str(found)
    assert "is not a list of names" in str(found)


def test_a_silent_host_of_a_move_ends_a_rebalance(tmp_path, runner):
    many = {f"web{n}": guest(gib=60) for n in range(8)}
    cloud = Moving(tmp_path, 8, {"hv000": many})
    inventory = cloud.virt_inventory
    cloud.virt_inventory = lambda host, guest=None: (
        down(host) if cloud.of("virt.migrate") and host != "hv000" else inventory(host, guest)
    )
    found = runner(cloud, "rebalance", apply=True, threshold=0)
    assert found["retcode"] == 1
    left = found["rebalance"]["left"]
    assert len(found["rebalance"]["changes"]["moved"]) == 1
    assert {"plan again" in why for why in left.values()} == {True}


def test_a_plan_is_kept_with_the_host_that_was_chosen_first_and_the_terms_of_all(tmp_path, runner):
    cloud = drained(tmp_path, 3)
    runner(cloud, "evacuate", "hv000")
    sent = [asked for fun, _, asked in cloud.heard if fun == "virt.migrate"]
    assert all(asked["placement"]["policy"] for asked in sent)
    assert len({asked["target"] for asked in sent}) == 3
