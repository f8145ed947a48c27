"""``ha`` of virt.init and virt.deployed, and the reserve, with hosts of plain data."""

import importlib.util
import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.ha.manager import files, inventory_poller, status_file
from saltvirt.ha.manager.cluster_provider import ClusterHaProvider
from saltvirt.ha.manager.desired_state import DesiredStateStore
from saltvirt.ha.manager.enable import Enable, HaOptions, Ignore
from saltvirt.ha.model import reserve
from saltvirt.ha.model.policy import HaPolicy
from saltvirt.ha.model.registry import MAINTENANCE, UP, HaGuestRecord, HostRecord, Registry
from saltvirt.ha.model.view import GuestRule, SavedMasterState, View
from saltvirt.operations.cluster import (
    capacity_claims,
    failover_capacity,
    ha_provider,
    hooks,
    inventory,
)
from saltvirt.operations.core import operation, report
from saltvirt.operations.core.report import Report
from saltvirt.operations.create import deploy, explain, init_list
from saltvirt.operations.create.cluster_snapshot import ClusterSnapshot
from saltvirt.operations.create.identity import CloneGuest, RenameGuest
from saltvirt.operations.create.init import Init
from saltvirt.operations.create.init_list import InitList
from saltvirt.operations.create.request import InitRequest
from saltvirt.operations.guest.lifecycle import Lifecycle
from saltvirt.operations.move.evacuate import Evacuate
from saltvirt.operations.move.migrate import Migrate
from saltvirt.operations.move.rebalance import Rebalance
from saltvirt.placement import facts, policy
from saltvirt.placement.facts import Host
from tests.lab.paths import REPOSITORY
from tests.machine import open_files
from tests.unit.ha.manager import HaCloud, guest

BY = policy.from_config(None, None)
# more than half of a host's 512 GiB
BIG_GIB = 300


@pytest.fixture
def cloud(tmp_path):
    return HaCloud(tmp_path, {})


@pytest.fixture
def narrow(tmp_path):
    """The guest of hv000 has room on hv002 alone; another one has on both others."""
    big, old = guest(memory_kib=BIG_GIB << 20), guest(memory_kib=240 << 20)
    found = HaCloud(tmp_path, {"hv000": {"big0": big}, "hv001": {"old1": old}}, reserve=1)
    Enable(found, "big0", HaOptions()).run()
    return found


@pytest.fixture
def full(tmp_path):
    """Each of three hosts has a guest that needs more than the half of one; the third has room."""
    big = guest(memory_kib=BIG_GIB << 20)
    found = HaCloud(tmp_path, {"hv000": {"big0": big}, "hv001": {"big1": big}}, reserve=1)
    for name in ("big0", "big1"):
        Enable(found, name, HaOptions()).run()
    return found


def wishes(cloud):
    return DesiredStateStore(cloud.opts).read()


def steps(cloud):
    return [tag.rpartition("/")[2] for tag, _ in cloud.told]


def init(cloud, name="web1", mem=512, **more):
    more.setdefault("arguments", {"seed": False})
    wanted = InitRequest(name, 1, mem, None, **more)
    report = Report(cloud, name, "init")
    return Init(cloud, BY, wanted, report, provider=hooks.ha_provider(cloud.opts))


# -- virt.init -------------------------------------------------------------------------------------


def test_a_guest_is_made_started_and_then_given(cloud):
    one = init(cloud, ha={"priority": 7, "failback": False})
    found = one.check()
    assert "it would be added to high availability" in found.comment
    assert wishes(cloud).guests == {} and "virt.init" not in steps(cloud)
    seen = []
    cloud.first = lambda host, fun, kwarg: seen.append((fun, dict(wishes(cloud).guests)))
    done = one.run()
    host = done.details["host"]
    kept = wishes(cloud).sized_guests["web1"]
    assert (kept.host, kept.desired_state, kept.priority, kept.failback) == (
        host,
        "started",
        7,
        False,
    )
    assert kept.size.memory_kib == 512 << 10
    assert done.changes["ha"]["new"]["priority"] == 7
    assert "the engine virt_ha is not running" in done.comment
    assert "ha" not in str(cloud.guests)
    begun = [given for fun, given in seen if fun == "virt.power"]
    assert begun == [{}], "who keeps it knows nothing of it before it runs"


@pytest.mark.parametrize("ha", (None, False))
def test_nothing_is_asked_for_a_guest_that_is_not_to_be_kept(cloud, ha, monkeypatch):
    monkeypatch.setattr(ClusterHaProvider, "plan_change", lambda *_asked, **_more: 1 / 0)
    init(cloud, ha=ha).run()
    assert wishes(cloud).guests == {}
    plain = dict(cloud.jobs)
    cloud.published.clear()
    del cloud.opts["virt"]["ha"]
    init(cloud, "web2").run()
    assert cloud.jobs == plain


def test_without_a_word_of_configuration_no_file_is_read(cloud, monkeypatch):
    del cloud.opts["virt"]["ha"]
    assert hooks.ha_provider(cloud.opts) is None
    monkeypatch.setattr(DesiredStateStore, "read", lambda _: 1 / 0)
    init(cloud).run()
    with pytest.raises(errors.InvalidInput, match="high availability is not configured"):
        init(cloud, "web2", ha=True).run()
    assert init(cloud, "web2", ha=True).check().reasons


def test_one_that_would_be_tied_to_its_host_is_refused_before_anything_is_made(cloud):
    cloud.disks["web1"] = "/srv/web1.qcow2"
    cloud.bases["vda"] = "/srv/_base/debian"
    found = init(cloud, ha=True).check()
    assert len(found.reasons) == 2, found.reasons
    assert "disk vda is /srv/web1.qcow2" in found.reasons[0]
    assert "disk vda depends on /srv/_base/debian" in found.reasons[1]
    with pytest.raises(errors.InvalidInput, match=r"web1 could only run on hv00\d: disk vda"):
        init(cloud, ha=True).run()
    assert not any(cloud.guests.values()) and wishes(cloud).guests == {}


class Keeping:
    """What gives a guest to its keeper, and says something else than usual."""

    def __init__(self, done):
        self.done = done

    def run(self):
        return self.done


@pytest.mark.parametrize("keeping", (None, Keeping(operation.Several(()))))
def test_a_guest_that_somebody_else_has_given_meanwhile_is_made_all_the_same(
    cloud, monkeypatch, keeping
):
    monkeypatch.setattr(ClusterHaProvider, "plan_change", lambda *_asked, **_more: keeping)
    done = init(cloud, ha=True).run()
    assert done.details["state"] == "running" and "ha" not in done.changes


def test_that_it_was_given_is_a_step_of_its_own(cloud):
    host = init(cloud, ha=True).run().details["host"]
    [told] = [data for tag, data in cloud.told if tag.endswith("/kept")]
    assert (told["message"], told["host"]) == ("web1: added to high availability", host)


@pytest.mark.parametrize("told", (
    {"definition": "<domain"}, {"definition": 7}, {}, {"definition": "<domain/>", "bases": 7},
    {"definition": '<!DOCTYPE x [<!ENTITY a "b">]><domain>&a;</domain>'},
))  # fmt: skip
def test_a_host_that_tells_no_definition_is_named_and_nothing_is_made(cloud, told):
    """Another version of Salt Virt, or worse."""
    whole = cloud.virt_init

    def virt_init(host, name, cpu, mem, test=False, **more):
        return {"disks": [], **told} if test else whole(host, name, cpu, mem, **more)

    cloud.virt_init = virt_init
    with pytest.raises((errors.BadAnswer, errors.ConnectionFailed), match="hv00"):
        init(cloud, ha=True).run()
    assert not any(cloud.guests.values()) and wishes(cloud).guests == {}


def test_what_was_made_and_is_tied_all_the_same_goes_again(cloud):
    cloud.backing["web1"] = "/srv/_base/debian"
    with pytest.raises(errors.InvalidInput, match="depends on /srv/_base/debian"):
        init(cloud, ha=True).run()
    assert not any(cloud.guests.values()) and wishes(cloud).guests == {}


def test_when_it_cannot_be_written_down_the_guest_goes_again_and_nobody_keeps_it(
    cloud, monkeypatch
):
    whole = DesiredStateStore.guard
    monkeypatch.setattr(DesiredStateStore, "guard", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        init(cloud, ha=True).run()
    monkeypatch.setattr(DesiredStateStore, "guard", whole)
    assert not any(cloud.guests.values()) and wishes(cloud).guests == {}


def test_of_several_masters_it_is_given_on_the_one_who_leads_or_not_made(tmp_path, monkeypatch):
    cloud = HaCloud(tmp_path, {}, masters=["salt", "salt2"])
    for why in (init(cloud, ha=True).check().reasons[0], _raised(init(cloud, ha=True))):
        assert "with several masters, run the command on the one that leads" in why
    found = deployed(cloud, monkeypatch, {"web1": {"ha": True}, "web2": {}})
    assert [*found["failed"]] == ["web1"] and "web2" in found["changes"]
    assert "web1" not in str(cloud.guests)


def _raised(one):
    with pytest.raises(errors.OperationFailed) as caught:
        one.run()
    return caught.value.text


@pytest.mark.parametrize(("ha", "words"), (
    ("yes", "ha must be True, False or a mapping of priority, restarts"),
    (1, "ha must be True"),
    ({"prioritty": 1}, "unknown 'prioritty', did you mean 'priority'"),
    ({7: 1}, "unknown '7'"),
    ({"priority": -1}, "priority must be a whole number"),
    ({"group": "none"}, "rule 'none' does not exist"),
    ({"state": "stopped"}, "contradicts start=True"),
))  # fmt: skip
def test_a_wrong_wish_is_refused_before_anything_is_asked(cloud, ha, words):
    with pytest.raises((errors.InvalidInput, errors.NotFound), match=words):
        init(cloud, ha=ha).run()
    assert any(words.split(" '")[0] in one for one in init(cloud, ha=ha).check().reasons)
    assert cloud.published == []


def test_it_goes_to_members_and_where_its_rules_let_it(cloud):
    Enable(cloud, "web1", HaOptions())
    cloud.guests["hv000"]["web1"] = guest()
    Enable(cloud, "web1", HaOptions()).run()
    rule = GuestRule(("web1",), "anti_affinity", strict=True)
    hosts = GuestRule((), "", {"hv000": 1, "hv001": 1}, strict=True)

    def make(known):
        return type(known)(guests=known.guests, sizes=known.sizes,
                           rules={"apart": rule, "few": hosts})  # fmt: skip

    DesiredStateStore(cloud.opts).change("the test", make)
    assert init(cloud, "web2", ha={"group": "apart"}).run().details["host"] != "hv000"
    found = init(cloud, "web3", ha={"group": "few"}, host="hv002").check()
    assert "a strict rule requires other hosts" in found.comment
    assert "web2" in wishes(cloud).rules["apart"].guests
    del cloud.opts["virt"]["ha"]["members"]["hv002"]
    with pytest.raises(errors.Refused, match="hv002: is not a member of high availability"):
        init(cloud, "web4", ha=True, host="hv002").run()
    assert init(cloud, "web4", host="hv002").run().details["host"] == "hv002"


NEW = {
    "init": lambda cloud: init(cloud, "web1", name_is_free=True),
    "clone": lambda cloud: CloneGuest(
        cloud, Report(cloud, "x", "clone"), "db1", "web1", name_is_free=True
    ),
    "rename": lambda cloud: RenameGuest(cloud, Report(cloud, "x", "rename"), "db1", "web1",
    name_is_free=True),
}  # fmt: skip


@pytest.mark.parametrize("verb", NEW)
def test_a_name_that_is_kept_is_not_given_to_a_second_guest(cloud, verb):
    """It is on no host while it waits to be started anew."""
    cloud.guests["hv000"] = {"web1": guest(), "db1": guest(state="shutdown")}
    Enable(cloud, "web1", HaOptions()).run()
    del cloud.guests["hv000"]["web1"]
    with pytest.raises(errors.OperationFailed, match="web1 is managed by high availability"):
        NEW[verb](cloud).run()
    assert any("is managed by" in one for one in NEW[verb](cloud).check().reasons)


def test_nor_is_that_of_one_that_is_ignored(cloud):
    cloud.guests["hv000"]["web1"] = guest()
    Enable(cloud, "web1", HaOptions()).run()
    Ignore(cloud, "web1").run()
    del cloud.guests["hv000"]["web1"]
    with pytest.raises(errors.AlreadyExists, match="web1 is the name of a guest of high"):
        init(cloud, name_is_free=True).run()


# -- several ---------------------------------------------------------------------------------------


def many(cloud, monkeypatch, count, test=False, mem=512, **more):
    monkeypatch.setattr(init_list, "Fleet", cloud)
    asked = [InitRequest(f"web{number}", 1, mem, None, arguments={"seed": False}, **more)
             for number in range(count)]  # fmt: skip
    one = InitList(cloud, BY, asked, 4, provider=hooks.ha_provider(cloud.opts))
    return operation.perform(one, test)


def test_all_of_a_list_are_given(cloud, monkeypatch):
    found = many(cloud, monkeypatch, 6, test=True, ha=True)
    assert all("would be added to high availability" in one["comment"] for one in found.values())
    assert wishes(cloud).guests == {}
    found = many(cloud, monkeypatch, 6, ha=True)
    assert "retcode" not in found
    assert sorted(wishes(cloud).guests) == sorted(found)


def test_what_ties_alike_guests_to_a_host_is_asked_of_it_once(cloud, monkeypatch):
    asked, ties = [], ClusterHaProvider.local_resources

    def counted(keeper, fleet, name, host, arguments):
        asked.append(host.name)
        return ties(keeper, fleet, name, host, arguments)

    monkeypatch.setattr(ClusterHaProvider, "local_resources", counted)
    assert "retcode" not in many(cloud, monkeypatch, 6, ha=True)
    assert len(asked) == len(set(asked)) > 1


def test_all_of_a_list_that_would_be_tied_are_refused(cloud, monkeypatch):
    cloud.bases["vda"] = "/srv/_base/debian"
    for test in (True, False):
        found = many(cloud, monkeypatch, 3, test=test, ha=True)
        assert found.pop("retcode") == 1
        assert all("/srv/_base/debian" in one["comment"] for one in found.values()), found
    assert not any(cloud.guests.values())


# -- the reserve -----------------------------------------------------------------------------------


def test_what_would_take_the_last_room_for_the_loss_of_a_host_is_refused(full):
    """hv002 alone could take the guest of a host that dies."""
    with pytest.raises(errors.Refused, match="hv002: it would violate virt:ha:reserve: if hv00"):
        init(full, "huge", BIG_GIB << 10).run()
    found = init(full, "huge", BIG_GIB << 10).check()
    assert "no host would have capacity for big0" in found.comment
    assert init(full, "small", 1024).run().details["host"]
    del full.opts["virt"]["ha"]["reserve"]
    assert init(full, "huge", BIG_GIB << 10).run().details["host"] == "hv002"


def test_one_goes_where_it_breaks_nothing(narrow):
    """By placement it would go to the empty host."""
    found = init(narrow, "mid", 240 << 10).check()
    assert found.details["host"] == "hv001"
    assert [row[-2] for row in found.details["table"] if row[0] == "hv002"] == ["reserve"]
    assert init(narrow, "mid", 240 << 10).run().details["host"] == "hv001"


def test_virt_explain_shows_it(narrow):
    def decide(**more):
        wanted = InitRequest("mid", 1, 240 << 10, None, arguments={"seed": False}, **more)
        return explain.decide(narrow, BY, wanted, hooks.ha_provider(narrow.opts))[0]

    assert decide().ranked[0].host == "hv001"
    assert decide().rejected["hv002"][0] == "reserve"
    del narrow.opts["virt"]["ha"]["members"]["hv001"]
    assert decide(ha=True).rejected["hv001"][1].startswith("is not a member of high availability")
    narrow.opts["virt"]["ha"]["reserve_policy"] = "warn"
    assert "it would violate virt:ha:reserve" in decide(ha=True).warning


def test_where_a_warning_is_wanted_it_is_made_with_one(full):
    full.opts["virt"]["ha"]["reserve_policy"] = "warn"
    done = init(full, "huge", BIG_GIB << 10).run()
    assert "it would violate virt:ha:reserve: if hv000 failed" in done.comment
    assert "warning" in steps(full)


def test_with_a_warning_it_goes_all_the_same_where_it_breaks_nothing(narrow):
    narrow.opts["virt"]["ha"]["reserve_policy"] = "warn"
    found = init(narrow, "mid", 240 << 10).check()
    assert found.details["host"] == "hv001" and "reserve" not in found.comment


def test_the_next_host_that_is_asked_keeps_it_too(narrow):
    narrow.refuses["hv001"] = "refused: no room: it says so: memory"
    with pytest.raises(errors.Refused, match="no host took mid"):
        init(narrow, "mid", 240 << 10).run()
    assert not narrow.guests["hv002"]


def test_of_a_list_each_takes_of_it(full, monkeypatch):
    """Of four guests of 90 GiB each that find room, hv002 may get two."""
    found = many(full, monkeypatch, 8, mem=90 << 10)
    assert found.pop("retcode") == 1
    assert len([one for one in found.values() if one["result"]]) == 6
    assert len(full.guests["hv002"]) == 2


def second_of(cloud, monkeypatch, how, mem):
    """A deployment of a guest for hv002; raises Refused when it was refused."""
    if how == "one":
        init(cloud, "late", mem, host="hv002").run()
        return
    if how == "list":
        found = many(cloud, monkeypatch, 1, mem=mem, host="hv002")
        words = found.get("retcode") and str(found)
    else:
        found = deployed(cloud, monkeypatch, {"late": {"mem": mem, "host": "hv002"}})
        words = found["result"] is False and str(found["failed"])
    if words:
        raise errors.Refused(words)


@pytest.mark.parametrize("how", ["one", "list", "deployed"])
def test_of_two_at_one_moment_the_second_sees_what_the_first_has_got(full, monkeypatch, how):
    """The hosts were asked before the first one got its host, which has room for one of the two."""
    mem, gather, begun = 180 << 10, inventory.gather, []

    def ask(*given, **more):
        found = gather(*given, **more)
        if not begun:
            begun.append("first")
            init(full, "first", mem, host="hv002").run()
        return found

    monkeypatch.setattr(inventory, "gather", ask)
    with pytest.raises(errors.Refused, match="it would violate virt:ha:reserve: if hv00"):
        second_of(full, monkeypatch, how, mem)
    assert [*full.guests["hv002"]] == ["first"]
    second_of(full, monkeypatch, how, 1024)  # for which there is room beside it


@pytest.mark.parametrize("how", ["one", "list", "deployed"])
def test_one_that_is_still_being_made_has_its_room(full, monkeypatch, how):
    """Its host tells nothing of it yet. What fails gives its room back."""
    mem, seen = 180 << 10, []

    def first(host, fun, _kwarg):
        if fun == "virt.init" and not seen:
            seen.append(host)
            with pytest.raises(errors.Refused, match="it would violate virt:ha:reserve: if hv00"):
                second_of(full, monkeypatch, how, mem)
            raise errors.OperationFailed("its disk is full")

    full.first = first
    with pytest.raises(errors.OperationFailed):
        init(full, "early", mem, host="hv002").run()
    assert seen == ["hv002"]
    second_of(full, monkeypatch, how, mem)
    assert len(full.guests["hv002"]) == 1


def test_one_that_failed_meanwhile_takes_no_room(full, monkeypatch):
    mem, gather, begun = 180 << 10, inventory.gather, []

    def fails(_host, fun, _kwarg):
        if fun == "virt.init":
            full.first = lambda *_: None
            raise errors.OperationFailed("its disk is full")

    def ask(*given, **more):
        found = gather(*given, **more)
        if not begun:
            begun.append("first")
            full.first = fails
            with pytest.raises(errors.OperationFailed):
                init(full, "first", mem, host="hv002").run()
        return found

    monkeypatch.setattr(inventory, "gather", ask)
    assert init(full, "late", mem, host="hv002").run().details["host"] == "hv002"


def promise_of(cloud, name):
    """The host that a guest is promised, as every operation on this master reads it."""
    path = Path(cloud.opts["cachedir"], "virt/promised", name)
    return json.loads(path.read_text(encoding="utf-8"))["host"] if path.exists() else None


def test_when_a_host_refuses_the_next_one_is_promised(full):
    full.refuses["hv002"], seen = "refused: no image", []

    def first(host, fun, _kwarg):
        if fun == "virt.init":
            seen.append((host, promise_of(full, "late")))

    full.first = first
    host = init(full, "late", 1024).run().details["host"]
    assert seen == [("hv002", "hv002"), (host, host)]
    assert promise_of(full, "late") == host


def test_what_fails_of_many_gives_its_room_back_while_the_others_are_at_work(full):
    keeper = hooks.ha_provider(full.opts)
    full.refuses = dict.fromkeys(full.names, "refused: no image")
    with capacity_claims.open_claims(full.opts, keeper) as promises:
        seen = ClusterSnapshot(full, BY, provider=keeper, claims=promises)
        wanted = InitRequest("late", 1, 1024, None, arguments={"seed": False})
        seen.place_guest(full, wanted, wanted.request())
        assert promise_of(full, "late") == "hv002"
        with pytest.raises(errors.Refused, match="no host took late"):
            Init(full, BY, wanted, Report(full, "late", "init"), seen, provider=keeper).run()
        assert promise_of(full, "late") is None


def test_one_that_was_purged_since_has_no_room_any_more(full):
    assert init(full, "first", 180 << 10, host="hv002").run().details["host"] == "hv002"
    full.guests["hv002"].clear()
    assert init(full, "late", 180 << 10, host="hv002").run().details["host"] == "hv002"


@pytest.mark.parametrize("text", (
    "", "{", "[]", '{"host": 1}', '{"by": "a", "host": "hv002", "guest": 1, "ha": null}',
    '{"by": "../x", "host": "hv002", "guest": {"memory_kib": 188743680}, "ha": null}',
))  # fmt: skip
def test_a_damaged_promise_stops_nobody(full, text):
    folder = Path(full.opts["cachedir"]) / "virt/promised"
    folder.mkdir(parents=True)
    (folder / "first").write_text(text, encoding="utf-8")
    (folder / "withdrawn").symlink_to("nowhere")
    os.utime(folder / "first", (time.time() + 60,) * 2)
    assert init(full, "late", 180 << 10, host="hv002").run().details["host"] == "hv002"


def test_a_promise_by_a_rule_that_is_gone_since_has_its_room(full):
    with capacity_claims.open_claims(full.opts, hooks.ha_provider(full.opts)) as promises:
        early = facts.Guest("early", vcpus=1, memory_kib=180 << 20)
        promises.claim("hv002", early, {"group": "gone"})
        with pytest.raises(errors.Refused, match="it would violate virt:ha:reserve"):
            init(full, "late", 180 << 10, host="hv002").run()


def test_of_two_of_one_name_the_first_has_the_promise(full):
    """One of them will be refused, and takes nothing of the other away."""
    keeper = hooks.ha_provider(full.opts)
    with (
        capacity_claims.open_claims(full.opts, keeper) as one,
        capacity_claims.open_claims(full.opts, keeper) as other,
    ):
        one.claim("hv002", facts.Guest("web1"), None)
        other.claim("hv001", facts.Guest("web1"), None)
        other.withdraw("web1")
        assert promise_of(full, "web1") == "hv002"


def test_of_a_guest_that_its_host_does_not_tell_of_nothing_is_said(full):
    """Its host says what is wrong with it."""
    keeper = hooks.ha_provider(full.opts)
    assert failover_capacity.on_current_host(keeper, full, "hv002", "nobody") == ""


@pytest.mark.parametrize("name", ("../../wishes", ".hidden", "", "a/b", "a\nb"))
def test_what_is_no_guest_s_name_is_kept_by_nobody(cloud, name):
    """A host may call one of its own anything."""
    assert ha_provider.manager_of(cloud.opts, name) == ""


def test_promises_of_many_hold_one_file_open_and_old_ones_go(full):
    folder, before = Path(full.opts["cachedir"]) / "virt/promised", open_files()
    with capacity_claims.open_claims(full.opts, hooks.ha_provider(full.opts)) as promises:
        for number in range(50):
            promises.claim("hv002", facts.Guest(f"web{number}"), None)
        assert open_files() == before + 1
    assert len([*folder.glob("web*")]) == 50 and not [*folder.glob(".of-*")]
    (folder / ".of-crashed").touch()
    for path in (*folder.glob("web*"), *folder.glob(".of-*")):
        os.utime(path, (1, 1))
    init(full).run()
    assert [path.name for path in folder.glob("web*")] == ["web1"]
    assert not [*folder.glob(".of-*")]


def test_where_no_room_is_kept_nothing_is_promised(cloud):
    init(cloud).run()
    assert not (Path(cloud.opts["cachedir"]) / "virt/promised").exists()


def test_a_guest_that_is_nowhere_needs_room_besides(full):
    """Its host died a moment ago; who deploys now does not take its room."""
    del full.guests["hv000"]["big0"]
    full.dead = {"hv000"}
    with pytest.raises(
        errors.Refused, match=r"if hv00\d failed, no host would have capacity for big0"
    ):
        init(full, "huge", BIG_GIB << 10, name_is_free=True).run()


def test_so_many_hosts_as_the_reserve_is_for(tmp_path):
    cloud = HaCloud(tmp_path, {"hv000": {"a": guest(memory_kib=200 << 20)},
                               "hv001": {"b": guest(memory_kib=200 << 20)}})  # fmt: skip
    for name in ("a", "b"):
        Enable(cloud, name, HaOptions()).run()
    for number, refused in ((1, False), (2, True)):
        cloud.opts["virt"]["ha"]["reserve"] = number
        found = init(cloud, "huge", 250 << 10).check()
        assert bool(found.reasons) is refused, found.comment
    assert "if hv000 and hv001 failed, no host would have capacity for b" in found.comment


def test_of_many_hosts_the_worst_are_lost_together():
    hosts = {
        f"hv{number:02}": Host(f"hv{number:02}", 8, (8 + number) << 20) for number in range(20)
    }
    records = {name: HostRecord("up") for name in hosts}
    view = View(("salt",), tuple(hosts), {}, placement_hosts=hosts, policy=HaPolicy(reserve=2))
    found = reserve.worst(view, Registry(hosts=records), 0)
    assert len(found) == 19  # the two largest are each other's
    assert all("hv19" in one or "hv18" in one for one in found)
    view = replace(view, policy=HaPolicy(reserve=1))
    assert reserve.worst(view, Registry(hosts=records), 0) == [(name,) for name in sorted(hosts)]
    few = {name: records[name] for name in list(records)[:4]}
    view = replace(view, policy=HaPolicy(reserve=2))
    assert len(reserve.worst(view, Registry(hosts=few), 0)) == 6


@pytest.mark.parametrize(("key", "value", "words"), (
    ("reserve_policy", "maybe", "one of refuse, warn"), ("reserve", 0.5, "a whole number from 0"),
))  # fmt: skip
def test_a_wrong_setting_is_named(cloud, key, value, words):
    cloud.opts["virt"]["ha"][key] = value
    with pytest.raises(errors.InvalidInput, match=f"virt:ha:{key} must be {words}"):
        init(cloud).run()


def test_ha_enable_warns_where_that_is_wanted(full):
    full.guests["hv002"]["big2"] = guest(memory_kib=BIG_GIB << 20)
    with pytest.raises(errors.OperationFailed, match="big2 would violate virt:ha:reserve"):
        Enable(full, "big2", HaOptions()).run()
    full.opts["virt"]["ha"]["reserve_policy"] = "warn"
    assert (
        "big2 would violate virt:ha:reserve: if hv0"
        in Enable(full, "big2", HaOptions()).run().comment
    )


def test_a_move_keeps_it_unless_a_person_wants_it(narrow):
    narrow.guests["hv000"]["mid"] = guest(memory_kib=203 << 20)

    def move(target, **options):
        report = Report(narrow, "mid", "migrate")
        keeps = hooks.ha_provider(narrow.opts)
        return Migrate(narrow, BY, "mid", target, report, options, provider=keeps)

    found = move("hv002").check()
    assert "hv002: it would violate virt:ha:reserve" in found.comment
    with pytest.raises(errors.Refused, match="hv002: it would violate virt:ha:reserve"):
        move("hv002").run()
    assert move(None).check().changes["host"]["new"] == "hv001"
    assert move("hv002", overcommit=True).check().changes["host"]["new"] == "hv002"
    narrow.opts["virt"]["ha"]["reserve_policy"] = "warn"
    assert "it would violate virt:ha:reserve" in move("hv002").check().comment
    move("hv002").run()
    assert "warning" in steps(narrow)


def test_a_start_keeps_it_unless_a_person_wants_it(narrow):
    narrow.opts["virt"]["placement"] = {"stopped_ratio": 0}
    narrow.guests["hv002"]["mid"] = guest(memory_kib=203 << 20, state="shutdown")

    def start(**options):
        keeps = hooks.ha_provider(narrow.opts)
        return Lifecycle(narrow, "mid", "start", options=options, provider=keeps)

    why = "mid on hv002 would violate virt:ha:reserve: if hv000 failed, no host"
    why += " would have capacity for big0"
    assert any(why in one for one in start().check().reasons)
    with pytest.raises(errors.Refused, match=why):
        start().run()
    assert narrow.guests["hv002"]["mid"]["state"] == "shutdown"
    assert why not in start(overcommit=True).check().comment
    narrow.opts["virt"]["ha"]["reserve_policy"] = "warn"
    assert why in start().check().comment
    assert why in start().run().comment
    assert narrow.guests["hv002"]["mid"]["state"] == "running"


def test_a_copy_keeps_it_unless_a_person_wants_it(narrow):
    narrow.guests["hv002"]["mid"] = guest(memory_kib=110 << 20, state="shutdown")
    narrow.virt_clone = lambda _host, **_asked: {"disks": {}}

    def copy(**options):
        keeps, report = hooks.ha_provider(narrow.opts), Report(narrow, "new", "clone")
        return CloneGuest(narrow, report, "mid", "new", {"seed": False, **options}, provider=keeps)

    why = "new on hv002 would violate virt:ha:reserve: if hv000 failed, no host"
    why += " would have capacity for big0"
    assert any(why in one for one in copy().check().reasons)
    with pytest.raises(errors.Refused, match=why):
        copy().run()
    assert not copy(overcommit=True).check().reasons
    narrow.opts["virt"]["ha"]["reserve_policy"] = "warn"
    assert why in copy().check().comment and not copy().check().reasons


def test_a_rebalance_keeps_it(narrow):
    narrow.guests["hv000"]["mid"] = guest(memory_kib=203 << 20)
    even = Rebalance(narrow, BY, 0, lambda *_: None, Report(narrow, "x", "rebalance"))
    assert even.check().changes["moved"]["mid"] == "hv002"
    even.provider = hooks.ha_provider(narrow.opts)
    why = "the plan ends here: mid on hv002 would violate virt:ha:reserve: if hv000 failed"
    found = even.check()
    assert found.changes["moved"] == {} and why in found.comment
    done = even.run()
    assert done.changes["moved"] == {} and why in done.comment and "warning" in steps(narrow)
    narrow.opts["virt"]["ha"]["reserve_policy"] = "warn"
    even.provider = hooks.ha_provider(narrow.opts)
    assert even.check().changes["moved"]["mid"] == "hv002"
    assert "mid on hv002 would violate virt:ha:reserve" in even.check().comment


def test_nobody_waits_for_those_who_are_kept_while_all_is_disarmed(cloud):
    cloud.guests["hv000"]["web1"] = guest()
    Enable(cloud, "web1", HaOptions()).run()

    def stuck(_seconds):
        raise AssertionError("it waits")

    def drain():
        keeps, report = hooks.ha_provider(cloud.opts), Report(cloud, "hv000", "evacuate")
        return Evacuate(cloud, "hv000", BY, None, report, provider=keeps, wait=stuck)

    with pytest.raises(AssertionError, match="it waits"):
        drain().run()
    files.write(
        status_file.state_path(cloud.opts), SavedMasterState(1, Registry(1, 3, armed=False))
    )
    why = "high availability is disarmed: run salt-run virt.ha_arm; "
    assert (
        drain().run().details["left"]["web1"].startswith(f"{why}it is managed by high availability")
    )
    [row] = [row for row in drain().check().details["table"] if row[0] == "web1"]
    assert row[2].startswith(f"{why}managed by high availability")


@pytest.mark.parametrize(("hosts", "guests", "words"), (
    ({}, {}, ""), ({"hv000": UP}, {}, "the engine virt_ha does not know yet that hv000"),
    ({"hv000": MAINTENANCE}, {}, ""), ({"hv000": MAINTENANCE, "hv001": UP}, {"web1": "hv001"}, ""),
    ({"hv000": MAINTENANCE}, {"web2": "hv000", "web1": "hv000"},
     "migrating to the host: web1, web2"),
))  # fmt: skip
def test_whether_guests_may_still_come_to_a_host(cloud, monkeypatch, hosts, guests, words):
    registry = Registry(
        1, 3, hosts={name: HostRecord(state) for name, state in hosts.items()},
        guests={name: HaGuestRecord(target=host) for name, host in guests.items()},
    )  # fmt: skip
    keeps, leads = (
        hooks.ha_provider(cloud.opts),
        status_file.EngineReport(0, "salt", leading=True),
    )
    monkeypatch.setattr(
        status_file, "load", lambda _opts: status_file.EngineStatus("", leads, registry)
    )
    assert keeps.pending_arrivals("hv000").startswith(words) and bool(
        keeps.pending_arrivals("hv000")
    ) is bool(words)
    assert keeps.pending_arrivals("hv9") == ""
    for other in (status_file.EngineStatus("it hangs", leads, registry),
                  status_file.EngineStatus("", replace(leads, leading=False),
                  registry)):  # fmt: skip
        monkeypatch.setattr(status_file, "load", lambda _opts, other=other: other)
        assert keeps.pending_arrivals("hv000") == ""


def test_the_engine_is_told_to_ask_the_hosts(cloud):
    keeps, path = hooks.ha_provider(cloud.opts), inventory_poller.refresh_path(cloud.opts)
    keeps.refresh()
    before = path.stat().st_mtime_ns
    os.utime(path, (1, 1))
    keeps.refresh()
    assert path.stat().st_mtime_ns >= before


def _runner(cloud, verb):
    """The file of the runner that has the verb, of that cloud."""
    path = REPOSITORY / "_runners" / ("virt.py" if verb == "capacity" else "virt_inspect.py")
    spec = importlib.util.spec_from_file_location("runner_of_keepers", path)
    runner = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(runner)
    runner.__opts__, runner.__salt__, runner.Fleet = cloud.opts, {}, cloud
    return runner


def test_who_looks_at_the_cloud_is_told_that_all_is_disarmed(cloud, tmp_path):
    assert hooks.idle_reason(cloud.opts) == ""
    files.write(
        status_file.state_path(cloud.opts), SavedMasterState(1, Registry(1, 3, armed=False))
    )
    assert (
        hooks.idle_reason(cloud.opts) == "high availability is disarmed: run salt-run virt.ha_arm"
    )
    status_file.state_path(cloud.opts).write_text("{", encoding="utf-8")
    assert hooks.idle_reason(cloud.opts) == ""  # what is damaged stops nobody who only looks
    assert hooks.idle_reason({"cachedir": str(tmp_path)}) == ""


@pytest.mark.parametrize("verb", ["query", "list", "host_info", "capacity", "versions"])
def test_each_verb_that_shows_the_cloud_says_that_all_is_disarmed(cloud, monkeypatch, verb):
    """Before it asks anybody, as events to the person alone: the data is as it is elsewhere."""
    runner, said = _runner(cloud, verb), []

    def stop(*_):
        raise errors.OperationFailed("no more is looked at here")

    monkeypatch.setattr(report.ProgressDisplay, "line", lambda _screen, text: said.append(text))
    monkeypatch.setattr(cloud, "hosts", stop)
    monkeypatch.setattr(runner.inventory, "gather", stop)
    ask = getattr(runner, verb)
    asked = (1, 512) if verb == "capacity" else ()
    assert ask(*asked)["data"]["retcode"] == 1
    assert said == []
    files.write(
        status_file.state_path(cloud.opts), SavedMasterState(1, Registry(1, 3, armed=False))
    )
    assert ask(*asked)["data"]["retcode"] == 1
    assert said == ["high availability is disarmed: run salt-run virt.ha_arm"]


def test_how_many_more_fit(full):
    keeps = hooks.ha_provider(full.opts)
    wanted = InitRequest("capacity", 1, 50 << 10, None)
    hosts, _ = inventory.gather(full)
    shown = keeps.capacity(hosts, wanted.request(), dict.fromkeys(full.names, 9))
    assert (shown["hosts"], shown["policy"], shown["short"]) == (1, "refuse", [])
    # with 4 of them on hv002 the 300 GiB of another host still fit there
    assert shown["fit"] == 9 + 9 + 4


# -- virt.deployed ---------------------------------------------------------------------------------


def deployed(cloud, monkeypatch, guests, test=False, **more):
    monkeypatch.setattr(deploy, "Fleet", cloud)
    asked = [deploy.parse_guest(name, {"mem": 512, "seed": False, **one}, "shop")
             for name, one in guests.items()]  # fmt: skip
    one = deploy.Deploy(cloud, BY, asked, "shop", provider=hooks.ha_provider(cloud.opts), **more)
    return operation.perform(one, test)["shop"]


def test_a_deployment_gives_its_guests_once_and_takes_them_back(cloud, monkeypatch):
    cloud.guests["hv000"]["web1"] = guest(memory_kib=512 << 10)
    listed = {"web1": {"ha": {"priority": 3}}, "web2": {"ha": True}, "web3": {}}
    found = deployed(cloud, monkeypatch, listed, test=True)
    assert found["result"] is None and wishes(cloud).guests == {}
    assert found["changes"]["web1"]["ha"]["new"]["priority"] == 3
    assert "web2 would be added to high availability" in found["comment"]
    found = deployed(cloud, monkeypatch, listed)
    assert found["result"] is True
    assert sorted(wishes(cloud).guests) == ["web1", "web2"]
    assert found["changes"]["web2"]["ha"]["old"] is None and found["changes"]["web2"]["new"]
    assert "ha" not in found["changes"]["web3"]
    found = deployed(cloud, monkeypatch, listed)
    assert (found["result"], found["changes"]) == (True, {})
    found = deployed(cloud, monkeypatch, {**listed, "web1": {"ha": False}}, test=True)
    assert found["changes"] == {"web1": {"ha": {**found["changes"]["web1"]["ha"], "new": None}}}
    assert sorted(wishes(cloud).guests) == ["web1", "web2"]
    found = deployed(cloud, monkeypatch, {**listed, "web1": {"ha": False}, "web2": {}})
    assert sorted(wishes(cloud).guests) == ["web2"]
    again = {**listed, "web1": {"ha": False}}
    assert deployed(cloud, monkeypatch, again)["changes"] == {}


def test_what_is_only_said_of_a_place_is_said_of_that_guest_alone(full, monkeypatch):
    full.opts["virt"]["ha"]["reserve_policy"] = "warn"
    listed = {"huge": {"mem": BIG_GIB << 10}, "small": {"mem": 64, "host": "hv000"}}
    said = deployed(full, monkeypatch, listed, test=True)["comment"]
    assert "; huge: it would violate virt:ha:reserve: if hv00" in said
    assert "small: " not in said


@pytest.mark.parametrize("starts", (True, False))
def test_one_that_had_only_its_start_left_is_kept_when_it_runs(cloud, monkeypatch, starts):
    cloud.guests["hv000"]["web1"] = guest(memory_kib=512 << 10, state="shutdown")
    monkeypatch.setattr(
        deploy.interrupted_create, "judge", lambda *_asked: (deploy.interrupted_create.START, None)
    )

    def start(_fleet, _policy, _wanted, host, *_more):
        if not starts:
            raise errors.OperationFailed("hv000: memory")
        cloud.guests[host]["web1"]["state"] = "running"

    monkeypatch.setattr(deploy.interrupted_create, "start", start)
    found = deployed(cloud, monkeypatch, {"web1": {"ha": True}})
    assert [*wishes(cloud).guests] == (["web1"] if starts else [])
    assert found["failed"] == ({} if starts else {"web1": "hv000: memory"})


def test_one_that_is_made_again_is_given_by_its_init_alone(cloud, monkeypatch):
    cloud.guests["hv000"]["web1"] = guest(memory_kib=512 << 10, state="shutdown")
    monkeypatch.setattr(
        deploy.interrupted_create,
        "judge",
        lambda *_asked: (deploy.interrupted_create.RECREATE, None),
    )
    wanted = deploy.parse_guest("web1", {"mem": 512, "seed": False, "ha": True}, "shop")
    found = deploy.plan(cloud, BY, [wanted], "shop", provider=hooks.ha_provider(cloud.opts))
    assert (found.recreate, found.ha) == ({"web1": "hv000"}, {})
    # its host would say that there is one of the name already
    monkeypatch.setattr(ClusterHaProvider, "local_resources", lambda *_asked: 1 / 0)
    assert not deployed(cloud, monkeypatch, {"web1": {"ha": True}}, test=True)["failed"]


def test_one_that_is_there_and_whose_wish_is_wrong_has_failed(cloud, monkeypatch):
    cloud.guests["hv000"]["web1"] = guest(memory_kib=512 << 10)
    listed = {"web1": {"ha": {"group": "gone"}}, "web2": {}}
    for test in (True, False):
        found = deployed(cloud, monkeypatch, listed, test=test)
        assert found["result"] is False and [*found["failed"]] == ["web1"]
        assert "gone" in found["failed"]["web1"]
    assert "web2" in str(cloud.guests) and wishes(cloud).guests == {}


def test_one_that_is_not_given_whole_has_failed(cloud, monkeypatch):
    cloud.guests["hv000"]["web1"] = guest(memory_kib=512 << 10)
    done = operation.Result("web1", "given, but its host is silent", {"ha": 1}, complete=False)
    monkeypatch.setattr(ClusterHaProvider, "plan_change", lambda *_asked, **_more: Keeping(done))
    found = deployed(cloud, monkeypatch, {"web1": {"ha": True}})
    assert found["failed"] == {"web1": "given, but its host is silent"}
    assert found["result"] is False


def test_one_that_nobody_is_to_keep_is_not_said_to_be_given(cloud, monkeypatch):
    found = deployed(cloud, monkeypatch, {"web1": {}, "web2": {"ha": True}}, test=True)
    assert "ha" not in found["changes"]["web1"]
    assert "web1 would be added" not in found["comment"]
    assert "web2 would be added" in found["comment"]


def test_one_that_is_tied_fails_and_the_others_are_made(cloud, monkeypatch):
    cloud.guests["hv000"]["web1"] = guest(memory_kib=512 << 10)
    cloud.disks["web1"] = cloud.disks["web2"] = "/srv/x.qcow2"
    listed = {"web1": {"ha": True}, "web2": {"ha": True}, "web3": {"ha": True}}
    for test in (True, False):
        found = deployed(cloud, monkeypatch, listed, test=test)
        assert found["result"] is False and sorted(found["failed"]) == ["web1", "web2"]
        assert all("/srv/x.qcow2" in why for why in found["failed"].values())
    assert [*wishes(cloud).guests] == ["web3"]
    assert "web2" not in str(cloud.guests)


def test_a_guest_that_waits_for_its_start_is_not_made_a_second_time(cloud, monkeypatch):
    listed = {"web1": {"ha": True, "name_is_free": True}}
    deployed(cloud, monkeypatch, listed)
    [host] = [one for one in cloud.names if cloud.guests[one]]
    cloud.guests[host].clear()
    for test in (True, False):
        found = deployed(cloud, monkeypatch, listed, test=test)
        assert "web1 is managed by high availability" in found["failed"]["web1"]
    assert not any(cloud.guests.values())


def test_one_that_is_no_longer_listed_is_not_removed_while_it_is_kept(cloud, monkeypatch):
    cloud.guests["hv000"]["web1"] = guest(deployment="shop")
    Enable(cloud, "web1", HaOptions()).run()
    for test in (True, False):
        found = deployed(cloud, monkeypatch, {"web2": {}}, test=test, remove=True)
        assert "web1 is managed by high availability" in found["failed"]["web1"]
    assert "web1" in cloud.guests["hv000"]


# -- the runner ------------------------------------------------------------------------------------


def test_virt_capacity_shows_what_fits_while_the_reserve_is_kept(full):
    runner = _runner(full, "capacity")

    def capacity():
        return runner.capacity(1, 50 << 10)["data"]["capacity"]

    shown = capacity()
    # with 4 more on hv002 a guest of 300 GiB of another host still fits there
    assert (shown["total"], shown["total_with_reserve"]) == (4 + 4 + 10, 4 + 4 + 4)
    assert "12 with capacity reserved for the loss of 1 host" in shown["title"]
    assert shown["reserve"] == {"hosts": 1, "policy": "refuse", "fit": 12, "short": []}
    full.guests["hv002"]["old"] = guest(memory_kib=BIG_GIB << 20)
    assert "if hv000 failed, no host would have capacity for big0" in capacity()["title"]
    del full.opts["virt"]["ha"]
    assert not {"reserve", "total_with_reserve"} & {*capacity()}
