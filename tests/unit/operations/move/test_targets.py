"""Possible targets of a guest: the requirements of init apply, and a target that refuses is
replaced."""

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.fleet.answer import FAILED, Answer
from saltvirt.operations.move import evacuate, migrate
from saltvirt.placement import policy
from tests.fakes import inventory as inventories
from tests.unit.operations.move.test_migrate import DONE, Cloud, Report, inventory

GIB = 1024**3


class Choosy(Cloud):
    """Hosts of which some refuse, or say more of themselves and of their guests."""

    def __init__(self, tmp_path, refuse=(), hosts=None, guests=None, **there):
        super().__init__(tmp_path, **there)
        self.refuse, self.about, self.of_guests = dict(refuse), hosts or {}, guests or {}

    def ask(self, hosts, fun, kwarg=None, **options):
        for answer in super().ask(hosts, fun, kwarg, **options):
            if fun == "virt.inventory" and answer.ok:
                answer.data.update(self.about.get(answer.host, {}))
                for name, more in self.of_guests.items():
                    if name in answer.data["guests"]:
                        answer.data["guests"][name].update(more)
            yield answer

    def _migrate(self, host, asked):
        if asked["target"] in self.refuse:
            self.asked.append((host, asked))
            return Answer(host, error=self.refuse[asked["target"]], kind=FAILED)
        return super()._migrate(host, asked)

    def tried(self):
        return [asked["target"] for _, asked in self.asked if isinstance(asked, dict)]


def run(cloud, target="", by=None, **options):
    others = options.pop("others", False)
    by = by or policy.PlacementPolicy()
    one = migrate.Migrate(cloud, by, "web1", target, Report(), options, others)
    return one.run().answer()["web1"]


def four():
    return {"hv1": {"web1": "running"}, "hv2": {}, "hv3": {}, "hv4": {}}


NO_ROOM = "refused: cannot migrate web1 from hv1: {}: 1024 MiB of memory requested, 0 free"


def test_a_target_that_refuses_is_replaced_by_the_next(tmp_path):
    cloud = Choosy(tmp_path, {h: NO_ROOM.format(h) for h in ("hv2", "hv3")}, **four())
    found = run(cloud)
    assert found["changes"]["host"]["new"] == "hv4"
    assert cloud.tried()[-1] == "hv4"
    assert len(set(cloud.tried())) == len(cloud.tried())


def test_when_all_refuse_each_is_named_with_its_reason(tmp_path):
    cloud = Choosy(tmp_path, {h: NO_ROOM.format(h) for h in ("hv2", "hv3", "hv4")}, **four())
    with pytest.raises(
        errors.Refused, match=r"no host took web1 from hv1: hv\d: .*; hv\d: "
    ) as exc:
        run(cloud)
    assert all(f"{host}: 1024 MiB" in exc.value.text for host in ("hv2", "hv3", "hv4"))
    assert exc.value.text.count("refused: ") == 1


def test_what_failed_for_another_reason_is_not_tried_elsewhere(tmp_path):
    first = Choosy(tmp_path, **four())
    run(first)
    (best,) = first.tried()
    cloud = Choosy(tmp_path, {best: "aborted: no progress for 150 s; web1 runs on hv1"}, **four())
    with pytest.raises(errors.OperationFailed, match="no progress"):
        run(cloud)
    assert cloud.tried() == [best]


def test_a_named_target_that_refuses_is_the_answer(tmp_path):
    cloud = Choosy(tmp_path, {"hv2": NO_ROOM.format("hv2")}, **four())
    with pytest.raises(errors.Refused, match="hv2: 1024 MiB"):
        run(cloud, "hv2")
    assert cloud.tried() == ["hv2"]


def test_evacuate_and_rebalance_go_on_to_the_next(tmp_path):
    """Their plan is a wish: the target is named, and another will do."""
    cloud = Choosy(tmp_path, {"hv2": NO_ROOM.format("hv2")}, **four())
    assert run(cloud, "hv2", others=True)["changes"]["host"]["new"] in ("hv3", "hv4")
    assert cloud.tried()[0] == "hv2"


NEEDS = {
    "bridges": ["br7"], "networks": ["lan"], "labels": {"rack": "a"}, "groups": ["web"],
    "group_policy": "separate", "disks": [{"size_bytes": 10 * GIB, "pool": "ssd"}],
}  # fmt: skip
FITS = {"bridges": ["br7"], "networks": ["lan"], "labels": {"rack": "a"},
        "pools": {"ssd": {"free_bytes": 20 * GIB}}}  # fmt: skip


@pytest.mark.parametrize(
    ("lacks", "words"),
    [
        ({"bridges": []}, "has no bridge br7"),
        ({"networks": []}, "has no active libvirt network lan"),
        ({"labels": {}}, "lacks the label rack"),
        ({"pools": {}}, "has no storage pool ssd"),
        ({"pools": {"ssd": {"free_bytes": 5 * GIB}}}, "10 GiB requested of pool ssd, 5 GiB free"),
        ({"guests": {"web2": {"state": "running", "groups": ["web"]}}}, "already has web2"),
    ],
)
def test_what_init_honoured_holds_for_the_next_host(tmp_path, lacks, words):
    there = {"hv1": {"web1": "running"}, "hv2": {}, "hv3": {}}
    about = {"hv2": {**FITS, **lacks}, "hv3": FITS}
    cloud = Choosy(tmp_path, hosts=about, guests={"web1": NEEDS}, **there)
    assert run(cloud)["changes"]["host"]["new"] == "hv3"
    again = Choosy(tmp_path, hosts={"hv2": about["hv2"]}, guests={"web1": NEEDS},
                   hv1={"web1": "running"}, hv2={})  # fmt: skip
    with pytest.raises(errors.Refused, match=words):
        run(again)
    with pytest.raises(errors.Refused, match=words):
        run(again, "hv2")
    assert again.tried() == []
    assert run(again, "hv2", overcommit=True)["changes"]["host"]["new"] == "hv2"
    hosts = [inventories.host(h, {**inventory(g), **about.get(h, {})})
             for h, g in (("hv1", {"web1": "running"}), ("hv2", {}), ("hv3", {}))]  # fmt: skip
    data = {**inventory({"web1": "running"})["guests"]["web1"], **NEEDS}
    hosts[0] = inventories.host("hv1", {**inventory({}), "guests": {"web1": data}})
    targets, unplaced = evacuate.plan(hosts, "hv1", policy.PlacementPolicy())
    assert (targets, unplaced) == ({"web1": "hv3"}, {})


class Keeps:
    """Who keeps room: which hosts he looked at; why: host to what would break there."""

    def __init__(self, why=None, has_reserve=True):
        self.has_reserve, self.why, self.warns, self.seen = has_reserve, why or {}, False, None

    def capacity_reserve(self, hosts):
        self.seen = [host.name for host in hosts]
        return self

    def refusal(self, host, guest):
        return self.why.get(host)


def targets(cloud, request, keeper=None):
    return migrate.targets(cloud, policy.PlacementPolicy(), "web1", "hv1", request, keeper)


@pytest.mark.parametrize(
    ("has_reserve", "overcommit"), [(True, False), (False, False), (True, True)]
)
def test_room_that_is_kept_is_that_of_all_hosts_and_not_who_overcommits(
    tmp_path, has_reserve, overcommit
):
    cloud, keeper = Choosy(tmp_path, **four()), Keeps({"hv2": "x"}, has_reserve)
    request = migrate.MigrationRequest("hv2", False, overcommit)
    if has_reserve and not overcommit:
        cloud.down = {"hv4"}
        with pytest.raises(errors.Refused) as raised:
            targets(cloud, request, keeper)
        assert raised.value.text.endswith("hv2: it would violate virt:ha:reserve: x")
        assert keeper.seen == ["hv1", "hv2", "hv3"]
    else:
        assert (targets(cloud, request, keeper).names, keeper.seen) == (["hv2"], None)


def test_who_names_nobody_may_have_any(tmp_path):
    found = targets(Choosy(tmp_path, **four()), migrate.MigrationRequest())
    assert sorted(found.names) == ["hv2", "hv3", "hv4"]


def test_the_masters_policy_goes_with_the_request(tmp_path):
    """W2: the source judged by its own configuration."""
    by = policy.from_config({"memory_ratio": 2, "stopped_ratio": 0.5})
    cloud = Choosy(tmp_path, hv1={"web1": "running"}, hv2={})
    run(cloud, "hv2", by)
    assert cloud.asked[0][1]["placement"] == {"policy": by.to_wire()}
    assert policy.from_config(cloud.asked[0][1]["placement"]["policy"]) == by


def test_a_host_with_a_wrong_ratio_is_named_and_the_others_go_on(tmp_path):
    """D23: one host's '4x' broke all placement."""
    cloud = Choosy(tmp_path, hosts={"hv2": {"ratios": {"cpu": "4x"}}}, hv1={"web1": "running"},
                   hv2={}, hv3={})  # fmt: skip
    assert run(cloud)["changes"]["host"]["new"] == "hv3"
    alone = Choosy(tmp_path, hosts=cloud.about, hv1={"web1": "running"}, hv2={})
    with pytest.raises(errors.Refused, match="hv2: virt:ratios: cpu must be a number from 0"):
        run(alone)


def test_test_true_shows_the_target_that_would_take_it(tmp_path):
    cloud = Choosy(tmp_path, **four())
    said = {"migratable": False, "reasons": ["hv: no"]}
    order = []

    def one(host, fun, kwarg=None, **options):
        order.append(kwarg["target"])
        return dict(said) if len(order) < 3 else {"migratable": True, "reasons": []}

    cloud.call = one
    assert check(cloud).changes == {"host": {"old": "hv1", "new": order[-1]}}
    assert len(set(order)) == 3
    assert DONE["outcome"] == "moved"


def test_overcommit_is_for_a_host_that_is_named(tmp_path):
    """It was a traceback, after the guest had been announced to move to None."""
    cloud = Choosy(tmp_path, **four())
    with pytest.raises(errors.InvalidInput, match="overcommit=True requires a target"):
        run(cloud, overcommit=True)
    [why] = check(cloud, overcommit=True).reasons
    assert why.startswith("overcommit=True requires a target")
    with pytest.raises(errors.InvalidInput, match="overcommit 'yes' must be True or False"):
        run(cloud, "hv2", overcommit="yes")
    cloud.down = {"hv2"}
    with pytest.raises(errors.Refused, match="no host can take web1 from hv1: hv2: down"):
        migrate.targets(
            cloud,
            policy.PlacementPolicy(),
            "web1",
            "hv1",
            migrate.MigrationRequest("hv2", False, True),
        )


def check(cloud, target="", **options):
    return migrate.Migrate(
        cloud, policy.PlacementPolicy(), "web1", target, Report(), options
    ).check()


def test_whom_placement_excludes_is_no_target_but_may_be_named(tmp_path):
    by = policy.PlacementPolicy(exclude=("hv2", "hv3"))
    cloud = Choosy(tmp_path, **four())
    assert run(cloud, by=by)["changes"]["host"]["new"] == "hv4"
    named = Choosy(tmp_path, **four())
    assert run(named, "hv3", by)["changes"]["host"]["new"] == "hv3"
    plan = Choosy(tmp_path, {"hv3": NO_ROOM.format("hv3")}, **four())
    assert run(plan, "hv3", by, others=True)["changes"]["host"]["new"] == "hv4"


def test_only_the_two_hosts_are_asked_when_one_is_named(tmp_path):
    cloud, asked = Choosy(tmp_path, hv1={"a": "running", "web1": "running"}, hv2={}, hv3={}), []
    ask = cloud.ask
    cloud.ask = lambda hosts, fun, *args, **more: (
        asked.append((fun, sorted(hosts))), ask(hosts, fun, *args, **more))[1]  # fmt: skip
    cloud.of_guests = {"a": {"memory_kib": 2**30}, "web1": {"memory_kib": 2**20}}
    assert run(cloud, "hv2")["changes"]["host"]["new"] == "hv2", "web1's needs, not its neighbour's"
    assert ("virt.inventory", ["hv1", "hv2"]) in asked


def test_a_wished_target_that_has_no_room_any_more_is_replaced_and_none_is_tried_twice(tmp_path):
    full = {"hv2": {"cpus": 0}}
    cloud = Choosy(tmp_path, hosts=full, **four())
    cloud.maintenance = {"hv2": "disks"}
    assert run(cloud, "hv2", others=True)["changes"]["host"]["new"] in ("hv3", "hv4")
    none = Choosy(tmp_path, {h: NO_ROOM.format(h) for h in ("hv2", "hv3", "hv4")}, **four())
    with pytest.raises(errors.Refused, match="no host took web1"):
        run(none, "hv4", others=True)
    assert sorted(none.tried()) == ["hv2", "hv3", "hv4"]


def test_a_named_target_without_room_is_refused_with_what_both_hosts_say(tmp_path):
    cloud = Choosy(tmp_path, hosts={"hv2": {"cpus": 0}}, **four())
    cloud.recovered = {"migratable": False, "reasons": ["hv2 lacks its CPU model"]}
    with pytest.raises(errors.Refused, match=r"the host has 0 CPUs.*; hv2 lacks its CPU model"):
        run(cloud, "hv2")
    assert len(check(cloud, "hv2").reasons) == 2
    cloud.about = {h: {"cpus": 0} for h in ("hv2", "hv3", "hv4")}
    cloud.asked = []
    with pytest.raises(errors.Refused) as exc:
        run(cloud)
    for why in (exc.value.text, *check(cloud).reasons):
        assert "hv2, hv3, hv4: 1 vCPU requested" in why
        assert "CPU model" not in why, "of no target nobody is asked"
    assert cloud.asked == []


def test_test_true_says_of_a_named_host_what_would_be_in_the_way(tmp_path):
    cloud = Choosy(tmp_path, **four())
    there = check(cloud, "hv1")
    assert (there.comment, there.nothing) == ("web1 is on hv1 already", True)
    cloud.maintenance = {"hv2": "disks"}
    assert check(cloud, "hv2").reasons == ("hv2 is in maintenance: disks",)
    assert cloud.asked == [("hv1", "virt.migratable")]
    cloud.asked = []
    [why] = check(cloud, "hv9").reasons
    assert "hv9" in why
    assert cloud.asked == []
    said = {"migratable": False, "reasons": ["vda is a CD", "a TPM"], "disks": {"vda": "refused"}}
    cloud.recovered = said
    refused = check(cloud, "hv3")
    assert refused.reasons == ("vda is a CD", "a TPM")
    assert refused.comment == "web1 cannot be moved to hv3: vda is a CD; a TPM"
    assert len(cloud.asked) == 1, "another host was not requested"
    cloud.asked = []
    refused = check(cloud)
    target = refused.comment.removeprefix("web1 cannot be moved to ").partition(":")[0]
    assert target in ("hv3", "hv4")
    [why] = refused.reasons
    assert why.startswith(f"{target}: "), "the best one"
    assert why.count("vda is a CD; a TPM") == 3, "each host with its reasons"
    assert len(cloud.asked) == 3
    cloud.recovered, cloud.asked = {**said, "pinned": True}, []
    check(cloud)
    assert len(cloud.asked) == 1, "what is the guest's own holds for every target"
