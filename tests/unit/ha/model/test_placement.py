"""The placement of a guest: the hosts that accept it, their order, and the reasons of the
others."""

from dataclasses import replace

import pytest

from saltvirt.ha.model import messages
from saltvirt.ha.model.host_capacity import HostCapacity
from saltvirt.ha.model.messages import GuestStatus
from saltvirt.ha.model.registry import (
    BLOCKED,
    ERROR,
    FENCED,
    IGNORED,
    MAINTENANCE,
    PLACED,
    RECOVERING,
    SUSPECTED,
    UP,
    GuestLocation,
    HostRecord,
)
from saltvirt.ha.model.view import AFFINITY, ANTI_AFFINITY, GuestRule, HostBinding
from saltvirt.placement import filters
from saltvirt.placement.facts import Guest, Host
from tests.unit.ha.model import made

DOWN = made.record("", boot=0, run=False, locations=(), last="")
BOTH = GuestRule(("web1", "web2"), AFFINITY)


def room(records=None, hosts=None, beats=(), guests=(), **seen):
    """records: of guests that the registry knows. guests: those of high availability, where these
    are not web1 and all of which there is a record."""
    records = records or {}
    wanted = {name: made.wanted(name) for name in guests or ("web1", *records)}
    view = made.seen(beats, guests=wanted, **seen)
    return HostCapacity(view, made.registry(records, hosts), made.NOW_S)


def sized(**gib):
    """Hosts with so much memory, of which the host keeps half a GiB and a guest takes more than
    one; and with one CPU that is promised once for each GiB."""
    return {
        name: Host(name, most, most * 1024**2, types=("kvm",), ratios={"cpu": 1.0})
        for name, most in gib.items()
    }


@pytest.mark.parametrize("host, beat, why", [
    ({}, {}, ""),
    ({"state": MAINTENANCE}, {}, "in maintenance"),
    ({"state": SUSPECTED}, {}, "suspected"),
    ({"state": FENCED}, {}, "fenced"),
    ({}, {"at_s": made.NOW_S - 5.9}, ""),
    ({}, {"at_s": made.NOW_S - 6}, "silent"),
    ({"boot": 2}, {}, "it is shutting down"),
    ({}, {"phase": messages.LEAVING}, "it is shutting down"),
    ({}, {"phase": messages.RESTING}, "it is shutting down"),
    ({}, {"storage_silent_s": 0.0}, ""),
    ({}, {"storage_silent_s": 9.9}, ""),
    ({}, {"storage_silent_s": 10}, "it cannot reach its storage"),
])  # fmt: skip
def test_a_host_takes_guests_while_it_is_up_and_heard_and_well(host, beat, why):
    hosts = {"h1": HostRecord(**{"state": UP, "boot": 1, **host})}
    assert room(hosts=hosts, beats=[made.beat(**beat)]).usable("h1", "web1") == why


def test_a_host_that_knows_of_no_storage_misses_none_however_soon_it_would():
    policy = replace(made.POLICY, storage_lost_s=1)
    assert room(policy=policy).usable("h1", "web1") == ""


def test_a_host_that_was_never_heard_is_silent():
    found = room()
    del found.view.beats["h1"]
    assert found.usable("h1", "web1") == "silent"


def test_a_host_takes_no_guest_before_its_room_is_known():
    rooms = sized(h2=8)
    found = room(placement_hosts=rooms, hosts={"h3": HostRecord(FENCED)})
    why = "h1: its capacity is not known yet; h3: fenced"
    assert found.ranked("web1") == (["h2"], why)
    assert room(placement_hosts={}, members=("h1", "h2")).ranked("web1") == (
        [], "h1: its capacity is not known yet; h2: its capacity is not known yet",
    )  # fmt: skip


def test_a_guest_without_any_room_has_the_reason_of_each_host_in_order():
    found = room(
        placement_hosts=sized(h1=2, h2=1, h3=8), hosts={"h3": HostRecord(MAINTENANCE)},
        members=("h3", "h2", "h1"),
    )  # fmt: skip
    assert found.ranked("web1")[0] == ["h1"]
    ranked, why = found.ranked("web1", ["h1"])
    assert ranked == []
    assert why.startswith("h1: the guest failed there; h3: in maintenance; h2: ")


def test_a_guest_that_all_hosts_take_has_no_reason():
    ranked, why = room().ranked("web1")
    assert (sorted(ranked), why) == (["h1", "h2", "h3"], "")


@pytest.mark.parametrize("rule, host, why", [
    (GuestRule(("web1",), "", {"h1": 0}), "h1", ""),
    (GuestRule(("web1",), "", {"h1": 0}), "h3", "a strict rule requires other hosts"),
    (GuestRule(("web1",), "", {"h1": 0}, strict=False), "h3", ""),
    (GuestRule(("web2",), "", {"h1": 0}), "h3", ""),
    (GuestRule(("web1", "web2"), ANTI_AFFINITY), "h2", (
        "a guest of the same strict anti-affinity rule is there"
    )),
    (GuestRule(("web1", "web2"), ANTI_AFFINITY), "h1", ""),
    (GuestRule(("web1", "web2"), ANTI_AFFINITY, strict=False), "h2", ""),
    (GuestRule(("web2", "web3"), ANTI_AFFINITY), "h2", ""),
    (BOTH, "h2", ""),
    (BOTH, "h3", "a guest of the same strict affinity rule is on another host"),
    (GuestRule(("web1", "web2"), AFFINITY, strict=False), "h3", ""),
    (GuestRule(("web2", "web3"), AFFINITY), "h3", ""),
    (GuestRule(("web1", "web4"), AFFINITY), "h3", ""),  # that one is nowhere
])  # fmt: skip
def test_a_strict_rule_keeps_a_guest_off_a_host(rule, host, why):
    records = {"web1": made.record("h1"), "web2": made.record("h2")}
    found = room(records, rules=(rule,))
    assert found.conflict("web1", host) == why
    assert (host in found.ranked("web1")[0]) is not bool(why)


def test_a_guest_that_is_tied_to_a_host_goes_to_no_other():
    tied = {"web1": HostBinding("h1", "its disk is there")}
    found = room({"web2": made.record("h1")}, bindings=tied, rules=(BOTH,))
    why = "it can run on h1 only: its disk is there"
    assert found.ranked("web1") == (["h1"], f"h2: {why}; h3: {why}")


@pytest.mark.parametrize("there, record, left_over", [
    (None, made.record("h1"), False),
    (made.RUNS, made.record("h1"), True),
    (GuestStatus(1, messages.STARTING), made.record("h1"), True),
    (GuestStatus(1, messages.CRASHED), made.record("h1"), False),
    (made.RUNS, made.record("h2"), False),
    (made.RUNS, made.record("h1", target="h2"), False),
    (made.RUNS, DOWN, True),
    (made.RUNS, None, False),
])  # fmt: skip
def test_a_host_gets_no_guest_of_which_an_older_start_is_alive_there(there, record, left_over):
    records = {"web1": record} if record else {}
    beat = made.beat("h2", guests={"web1": there} if there else {})
    why = "an outdated instance of it still runs there" if left_over else ""
    assert room(records, beats=[beat]).conflict("web1", "h2") == why


@pytest.mark.parametrize("gone, left_over", [(1, True), (2, False)])
def test_nothing_is_left_over_from_a_boot_that_is_proven_to_be_over(gone, left_over):
    hosts = {"h2": HostRecord(FENCED, boot=1, dead_before=gone)}
    beat = made.beat("h2", guests={"web1": made.RUNS})
    found = room({"web1": made.record("h1")}, hosts, [beat])
    assert bool(found.conflict("web1", "h2")) is left_over


def test_nothing_is_left_over_on_a_host_that_was_never_heard():
    found = room({"web1": made.record()})
    del found.view.beats["h2"]
    assert found.conflict("web1", "h2") == ""


def test_the_highest_rank_of_all_rules_counts_and_none_is_zero():
    rules = (
        GuestRule(("web1",), "", {"h1": 2, "h2": 1}, strict=False),
        GuestRule(("web1", "web2"), "", {"h1": 1, "h3": -1}, strict=False),
        GuestRule(("web2",), "", {"h3": 9}, strict=False),
        GuestRule(("web1", "web2"), ANTI_AFFINITY),
    )  # fmt: skip
    found = room(rules=rules)
    assert [found.rank("web1", host) for host in made.HOSTS] == [2, 1, 0]
    assert room().rank("web1", "h1") == 0


SPREAD = {"web1": made.record("h1"), "web2": made.record("h2"), "web3": made.record("h3")}
MORE = {"web4": made.record("h2"), "web5": made.record("h1")}


def together(*guests):
    return GuestRule(("web1", *guests), AFFINITY, strict=False)


def apart(*guests):
    return GuestRule(("web1", *guests), ANTI_AFFINITY, strict=False)


def hosts(**ranks):
    return GuestRule(("web1",), "", ranks, strict=False)


@pytest.mark.parametrize("rules, last, order", [
    ([], "", "h3 h2 h1"),  # as placement has it: the most free memory first
    ([], "h1", "h1 h3 h2"),
    ([hosts(h1=1, h2=2)], "", "h2 h1 h3"),
    ([hosts(h1=1, h2=1)], "h3", "h2 h1 h3"),
    ([apart("web3")], "h3", "h2 h1 h3"),
    ([apart("web2", "web3")], "", "h1 h3 h2"),
    ([apart("web2", "web4"), apart("web3")], "", "h1 h3 h2"),  # of two, one is the lesser evil
    ([together("web2")], "h1", "h2 h1 h3"),
    ([together("web2", "web3")], "h1", "h3 h2 h1"),
    ([together("web2"), together("web4", "web3")], "h3", "h2 h3 h1"),
    ([apart("web2"), together("web2")], "h2", "h2 h3 h1"),
    ([hosts(h1=1), apart("web5")], "h3", "h1 h3 h2"),  # a rank comes before that
])  # fmt: skip
def test_the_order_is_by_rank_then_by_rules_then_the_last_host_then_placement(rules, last, order):
    records = {**SPREAD, **MORE, "web1": replace(DOWN, last=last)}
    found = room(records, rules=tuple(rules), placement_hosts=sized(h1=8, h2=16, h3=24))
    assert found.ranked("web1") == (order.split(), "")


def test_a_guest_that_the_registry_does_not_know_yet_was_nowhere_last():
    assert room(placement_hosts=sized(h1=8, h2=16, h3=24)).ranked("web1") == (
        ["h3", "h2", "h1"],
        "",
    )


def test_the_guests_of_a_host_are_its_own_and_those_that_the_registry_has_there():
    own, before = Guest("own", vcpus=1, memory_kib=1), Guest("web1", vcpus=1, memory_kib=1)
    rooms = {"h1": Host("h1", 8, 8 * 1024**2, guests=(before, own))}
    records = {
        "web1": made.record("h2"),
        "web3": made.record("h1", target="h2", locations=()),
        "web2": made.record("h3", locations=(GuestLocation("h1", 1), GuestLocation("h3", 1))),
        "gone": made.record("h1"),
        "web4": DOWN,
    }
    found = room(records, guests=["web1", "web2", "web3", "web4"], placement_hosts=rooms)
    off, runs = Guest("", state="shutdown", vcpus=3), Guest("web2", state="running", vcpus=2)
    found.view.guests["web3"] = replace(made.wanted("web3"), size=off)
    found.view.guests["web2"] = replace(made.wanted("web2"), size=runs)
    assert found.hosts["h1"].guests == (own, runs, Guest("web3", state="running", vcpus=3))
    assert found.hosts["h1"].guests[1] is runs  # thousands of guests need not be copied
    assert found.guests_on == {
        "h1": {"web2", "web3", "gone"}, "h2": {"web1", "web3"}, "h3": {"web2"},
    }  # fmt: skip


@pytest.mark.parametrize("changes, there", [
    ({"state": ERROR, "run": False, "locations": ()}, False),
    ({"state": ERROR, "run": False}, True),  # it may run still
    ({"state": ERROR, "locations": ()}, True),  # it is left as it is, to be looked at
    ({"state": IGNORED, "run": False, "locations": ()}, True),  # a person may have started it
    ({"state": PLACED, "locations": ()}, True),
])  # fmt: skip
def test_a_guest_that_is_to_be_down_and_is_keeps_no_other_one_off_its_host(changes, there):
    records = {"web1": DOWN, "web2": made.record("h2", **changes)}
    found = room(records, rules=(GuestRule(("web1", "web2"), ANTI_AFFINITY),))
    assert bool(found.conflict("web1", "h2")) is there


def test_a_guest_is_not_in_its_own_way():
    rooms = sized(h1=2, h2=2)
    records = {"web1": made.record("h1"), "web2": made.record("h2")}
    found = room(records, placement_hosts=rooms, members=("h1", "h2"))
    assert found.ranked("web1")[0] == ["h1"] and found.ranked("web2")[0] == ["h2"]


@pytest.mark.parametrize("rule, friend, fit", [
    (BOTH, DOWN, "h2 h3"),
    (BOTH, None, "h2 h3"),
    (GuestRule(("web1", "web2"), AFFINITY, strict=False), DOWN, "h1 h2 h3"),
    (GuestRule(("web1", "web2"), ANTI_AFFINITY), DOWN, "h1 h2 h3"),
    (GuestRule(("web1", "web9"), AFFINITY), DOWN, "h1 h2 h3"),  # not of high availability
    (BOTH, made.record("h1"), ""),
])  # fmt: skip
@pytest.mark.parametrize("cpus", [None, 8])
def test_a_host_has_room_for_those_that_must_come_after_a_guest_as_well(rule, friend, fit, cpus):
    rooms = sized(h1=2, h2=3, h3=4)
    if cpus:
        rooms = {name: replace(one, cpus=cpus) for name, one in rooms.items()}
    else:
        many = {name: replace(one, cpus=one.cpus - 1) for name, one in rooms.items()}
        rooms = {name: replace(one, memory_kib=64 * 1024**2) for name, one in many.items()}
    records = {"web2": friend, "db1": made.record("h3")}
    records = records if friend else {}
    found = room(records, guests=["web1", "web2", "db1"], rules=(rule,), placement_hosts=rooms)
    assert sorted(found.ranked("web1")[0]) == fit.split()


def test_where_there_is_no_room_for_all_that_belong_together_a_guest_goes_by_itself():
    found = room(guests=["web1", "web2"], rules=(BOTH,), placement_hosts=sized(h1=2, h2=1))
    assert found.ranked("web1")[0] == ["h1"]


EMPTIED = {"h1": HostRecord(MAINTENANCE, boot=1)}


@pytest.mark.parametrize("state, beat, emptied", [
    (UP, {}, False),
    (MAINTENANCE, {}, True),
    (MAINTENANCE, None, True),
    (UP, None, False),
    (UP, {"phase": messages.RESTING}, False),
    (UP, {"phase": messages.LEAVING}, True),
    (UP, {"phase": messages.LEAVING, "freeze": True}, False),
    (UP, {"phase": messages.LEAVING, "boot": 2}, False),
    (UP, {"phase": messages.SHUT_DOWN}, True),
    (SUSPECTED, {"phase": messages.LEAVING}, False),
    (UP, {"storage_silent_s": 19.9}, False),
    (UP, {"storage_silent_s": 20}, True),
])  # fmt: skip
def test_guests_that_must_be_together_leave_a_host_one_after_the_other_where_all_are_to(
    state, beat, emptied
):
    records = {"web1": made.record("h1"), "web2": made.record("h1")}
    found = room(records, {"h1": HostRecord(state, boot=1)}, [made.beat(**beat or {})],
                 rules=(BOTH,))  # fmt: skip
    if beat is None:
        del found.view.beats["h1"]
    why = "" if emptied else "a guest of the same strict affinity rule is on another host"
    assert found.conflict("web1", "h2") == why


def test_a_host_that_knows_of_no_storage_is_not_left_for_it_however_soon_it_would_be():
    records = {"web1": made.record("h1"), "web2": made.record("h1")}
    found = room(records, rules=(BOTH,), policy=replace(made.POLICY, storage_lost_s=1))
    assert found.conflict("web1", "h2")


@pytest.mark.parametrize("record, more, follows", [
    (made.record("h1"), {}, True),
    (made.record("h1", state=BLOCKED), {}, True),
    (made.record("h1", state=ERROR), {}, False),
    (made.record("h1", state=IGNORED), {}, False),
    (made.record("h2"), {}, True),
    (made.record("h3"), {}, False),
    (made.record("h1"), {"bindings": {"web2": HostBinding("h1", "")}}, False),
    (made.record("h1"), {"rules": (BOTH, GuestRule(("web2",), "", {"h1": 1}))}, False),
])  # fmt: skip
def test_a_guest_leaves_one_that_it_must_be_with_only_where_that_follows(record, more, follows):
    records = {"web1": made.record("h1"), "web2": record}
    found = room(records, EMPTIED, **{"rules": (BOTH,), **more})
    assert (found.conflict("web1", "h2") == "") is follows


@pytest.mark.parametrize("h2, h3, first", [(2, 3, ["h3"]), (2, 2, [])])
def test_guests_that_must_be_together_leave_a_host_for_one_that_takes_both(h2, h3, first):
    records = {"web1": made.record("h1"), "web2": made.record("h1")}
    found = room(records, EMPTIED, rules=(BOTH,), placement_hosts=sized(h1=8, h2=h2, h3=h3))
    assert found.ranked("web1")[0] == first
    if first:
        found.take("web1", "h3", starts=False)
        assert found.ranked("web2")[0] == first


def test_those_that_are_down_do_not_hold_up_the_others_on_a_host_that_all_are_to_leave():
    rule = GuestRule(("web1", "web2", "web3"), AFFINITY)
    records = {"web1": made.record("h1"), "web2": made.record("h1"), "web3": DOWN}
    found = room(records, EMPTIED, rules=(rule,), placement_hosts=sized(h1=8, h2=2, h3=3))
    assert found.ranked("web1")[0] == ["h3"]


def test_the_room_of_one_that_is_on_its_way_there_is_counted_once():
    records = {"web1": made.record("h1"), "web2": made.record("h1", target="h2")}
    found = room(records, EMPTIED, rules=(BOTH,), placement_hosts=sized(h1=8, h2=3, h3=8))
    assert found.ranked("web1")[0] == ["h2"]


@pytest.mark.parametrize("records, busy, awaited", [
    ({}, False, False),
    ({"web2": made.record(state=RECOVERING)}, False, False),
    ({"web2": replace(DOWN, better="h1", origin="h2")}, False, False),
    ({"web2": made.record(state=RECOVERING), "web3": made.record(state=RECOVERING)}, True, True),
    ({"web2": made.record(state=RECOVERING), "web3": made.record(state=PLACED)}, False, False),
    ({"web2": made.record(state=RECOVERING), "web3": made.record(state=BLOCKED)}, False, False),
    ({"web2": made.record(state=RECOVERING), "web3": made.record(state=RECOVERING, run=False)},
     False, False),
    ({"web2": made.record(state=RECOVERING), "web3": replace(DOWN, better="h1", origin="h2")},
     False, True),
    ({"web2": made.record(state=RECOVERING), "web3": replace(DOWN, better="h1")}, False, False),
    ({"web2": replace(DOWN, better="h1", origin="h2"),
      "web3": replace(DOWN, better="h1", origin="h3")}, False, True),
    ({"web2": made.record(state=RECOVERING),
      "web3": made.record(better="h1", origin="h2")}, False, False),
])  # fmt: skip
def test_so_many_guests_as_may_start_on_a_host_at_one_time(records, busy, awaited):
    found = room(records, policy=replace(made.POLICY, starts_at_once=2))
    assert (found.is_busy("h1"), found.is_awaited("h1")) == (busy, awaited)
    assert (found.is_busy("h2"), found.is_awaited("h2")) == (False, False)


def test_where_one_may_start_at_one_time_one_does():
    found = room(policy=replace(made.POLICY, starts_at_once=1))
    assert (found.is_busy("h1"), found.is_awaited("h1")) == (False, False)


@pytest.mark.parametrize("starts, busy", [(True, True), (False, False)])
def test_a_guest_takes_of_its_hosts_room_and_of_its_starts(starts, busy):
    one = {"web2": made.record("h1", state=RECOVERING)}
    policy = replace(made.POLICY, starts_at_once=2)
    found = room(one, placement_hosts=sized(h1=4, h2=4), policy=policy)
    found.take("web1", "h1", starts=starts)
    assert found.is_busy("h1") is busy
    assert [guest.name for guest in found.hosts["h1"].guests] == ["web1", "web2"]
    found.take("web1", "h9")  # one of which no room is known
    assert (found.guests_on["h9"], found.starting["h9"]) == ({"web1"}, 1)


@pytest.fixture(name="looks")
def looks_fixture(monkeypatch):
    """The hosts that placement looked at, in their order."""
    looked, reason = [], filters.ALL[0].reason

    def counted(host, *rest):
        looked.append(host.name)
        return reason(host, *rest)

    monkeypatch.setattr(filters.ALL[0], "reason", counted)
    return looked


def test_of_like_guests_only_hosts_that_changed_are_looked_at_again(looks):
    found = room({"web2": made.record("h1")})
    found.ranked("web1")
    found.ranked("web1")
    assert looks == ["h1", "h2", "h3"]
    found.take("web1", "h2")
    found.ranked("web2")
    assert looks == ["h1", "h2", "h3", "h1", "h2"]


def test_a_guest_whose_friend_is_there_needs_no_room_but_its_own(looks):
    found = room(
        {"web2": made.record("h2")}, rules=(BOTH,), placement_hosts=sized(h1=3, h2=3, h3=3)
    )
    assert (found.ranked("web1")[0], looks) == (["h2"], ["h2"])


def test_what_a_like_room_found_out_of_hosts_holds_where_they_are_the_same(looks):
    now = room({"web2": made.record("h1")}, guests=["web1", "web2", "web3"])
    now.ranked("web1")
    small = replace(now.view.placement_hosts["h1"], memory_kib=2 * 1024**2)
    view = replace(now.view, placement_hosts={**now.view.placement_hosts, "h1": small})
    more = made.registry({"web2": made.record("h1"), "web3": made.record("h3")})
    looks.clear()
    after = HostCapacity(view, more, made.NOW_S, now)
    assert after.hosts == HostCapacity(view, more, made.NOW_S).hosts
    assert sorted(after.ranked("web1")[0]) == ["h2", "h3"]
    assert looks == ["h1", "h3"]
