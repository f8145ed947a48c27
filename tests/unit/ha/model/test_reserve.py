"""The guests of failed hosts, and the reserve. Each host has 7.5 GiB for guests, which is enough
for two guests of 3 GiB."""

from dataclasses import replace

import pytest

from saltvirt.ha.model import registry, reserve
from saltvirt.ha.model.registry import GuestLocation, HostRecord
from saltvirt.ha.model.reserve import Reserve
from saltvirt.ha.model.view import ANTI_AFFINITY, GuestRule
from saltvirt.placement.facts import Guest, Host
from tests.unit.ha.model import made

GIB = 1024**2


def sized(name, gib=3):
    return Guest(name, vcpus=1, memory_kib=int(gib * GIB))


def cloud(*, hosts=made.HOSTS, count=1, rules=(), priority=None, placement_hosts=None, **guests):
    """(View, Registry). guests: name to (host, GiB). count: of the policy's reserve."""
    known = {name: made.record(host) for name, (host, _) in guests.items()}
    wanted = {
        name: replace(
            made.wanted(name, host), size=sized(name, gib), priority=(priority or {}).get(name, 0)
        )
        for name, (host, gib) in guests.items()
    }
    view = made.seen(
        members=hosts,
        beats=[made.beat(host) for host in hosts],
        guests=wanted,
        rules=rules,
        placement_hosts={name: Host(name, 8, 8 * GIB, types=("kvm",)) for name in hosts}
        | (placement_hosts or {}),
        policy=replace(made.POLICY, reserve=count),
    )
    up = {name: HostRecord(registry.UP, boot=1) for name in hosts}
    return view, replace(made.registry(known, members=hosts), hosts=up)


def lose(of, *hosts, **more):
    return reserve.simulate_loss(*of, hosts, made.NOW_S, **more)


# what becomes of them


def test_the_guests_of_a_host_that_dies_go_to_the_others_and_take_their_room():
    of = cloud(a=("h1", 3), b=("h1", 3), c=("h2", 3), d=("h3", 3))
    found = lose(of, "h1")
    assert found.hosts == ("h1",)
    assert {*found.placements} == {"a", "b"} and {*found.placements.values()} == {"h2", "h3"}
    assert found.unplaced == {}


def test_who_finds_no_host_is_named_with_why():
    of = cloud(a=("h1", 3), b=("h1", 5), c=("h2", 3), d=("h3", 3))
    found = lose(of, "h1")
    assert {*found.placements} == {"a"} and [*found.unplaced] == ["b"]
    assert "h1: lost" in found.unplaced["b"] and "memory" in found.unplaced["b"]


@pytest.mark.parametrize("priority, stays", [({}, "b"), ({"b": 1}, "a"), ({"a": 1}, "b")])
def test_who_matters_more_gets_the_room_and_of_equals_the_first_by_name(priority, stays):
    of = cloud(a=("h1", 3), b=("h1", 3), c=("h2", 3), d=("h3", 6), priority=priority)
    assert [*lose(of, "h1").unplaced] == [stays]


def test_two_hosts_die_at_once():
    of = cloud(a=("h1", 3), b=("h2", 3), c=("h3", 1))
    assert lose(of, "h1", "h2").placements == {"a": "h3", "b": "h3"}
    assert lose(of, "h1", "h2").text() == "if h1 and h2 failed, no host would have capacity for "


def test_what_may_run_there_counts_and_what_nobody_wants_any_more_does_not():
    view, known = cloud(a=("h1", 3), b=("h2", 3), c=("h1", 3))
    moving = replace(known.guests["b"], locations=(GuestLocation("h2", 1), GuestLocation("h1", 1)))
    known = replace(known, guests={**known.guests, "b": moving})
    view = replace(view, guests={name: one for name, one in view.guests.items() if name != "c"})
    assert {*lose((view, known), "h1").placements} == {"a", "b"}


def test_a_guest_that_waits_for_a_host_needs_one_besides():
    view, known = cloud(a=("h1", 3), b=("h2", 3))
    nowhere = replace(known.guests["b"], locations=(), host="")
    known = replace(known, guests={**known.guests, "b": nowhere})
    assert {*lose((view, known), "h1").placements} == {"a"}
    assert {*lose((view, known), "h1", waiting=["b"]).placements} == {"a", "b"}


@pytest.mark.parametrize(
    "names, text", [(None, "a, b"), (["b"], "b"), ((), "")], ids=["all", "some", "none"]
)
def test_what_is_short_is_one_line(names, text):
    lost = reserve.HostLoss(("h1", "h2"), {}, {"a": "why", "b": "why"})
    assert lost.text(names) == f"if h1 and h2 failed, no host would have capacity for {text}"


# which losses are looked at


@pytest.mark.parametrize(
    "count, sets",
    [
        (0, []),
        (1, [("h1",), ("h2",), ("h3",)]),
        (2, [("h1", "h2"), ("h1", "h3"), ("h2", "h3")]),
        (3, [made.HOSTS]),
        (4, [made.HOSTS]),
    ],
)
def test_each_set_of_so_many_hosts_is_looked_at(count, sets):
    assert reserve.worst(*cloud(count=count), made.NOW_S) == sets


def test_a_host_that_is_not_up_is_lost_already():
    view, known = cloud(count=2)
    known = replace(known, hosts={**known.hosts, "h2": HostRecord(registry.SUSPECTED, boot=1)})
    assert reserve.worst(view, known, made.NOW_S) == [("h1", "h3")]


def many(number, **guests):
    hosts = tuple(f"h{one:02}" for one in range(number))
    return cloud(hosts=hosts, count=2, **guests)


def test_of_sixty_sets_and_fewer_each_is_looked_at(monkeypatch):
    assert len(reserve.worst(*many(11), made.NOW_S)) == 55
    monkeypatch.setattr(reserve, "MAX_SETS", 55)
    assert len(reserve.worst(*many(11), made.NOW_S)) == 55
    monkeypatch.setattr(reserve, "MAX_SETS", 54)
    assert len(reserve.worst(*many(11), made.NOW_S)) == 10


def test_of_one_host_each_is_looked_at_however_many_there_are(monkeypatch):
    monkeypatch.setattr(reserve, "MAX_SETS", 2)
    assert reserve.worst(*cloud(), made.NOW_S) == [("h1",), ("h2",), ("h3",)]


def with_room(host, gib):
    return {host: Host(host, 8, gib * GIB, types=("kvm",))}


def test_of_more_each_host_is_looked_at_with_the_one_that_takes_the_most():
    """That is the room that is free on it, and what its guests of high availability need. What
    others need is no loss."""
    sets = reserve.worst(*many(12, placement_hosts=with_room("h07", 16)), made.NOW_S)
    assert len(sets) == 11 and all("h07" in one for one in sets)
    assert sets == sorted(tuple(sorted(one)) for one in sets)
    # a guest takes none of it away: what is free is less, what has to go is more
    sets = reserve.worst(*many(12, placement_hosts=with_room("h07", 16), a=("h07", 15)), made.NOW_S)
    assert all("h07" in one for one in sets)
    other = replace(with_room("h07", 16)["h07"], guests=(sized("other", 14),))
    sets = reserve.worst(*many(12, placement_hosts={"h07": other}), made.NOW_S)
    assert sets[0] == ("h00", "h01") and ("h00", "h07") in sets and ("h01", "h07") not in sets


def test_a_guest_that_nobody_wants_any_more_is_no_loss():
    view, known = many(12, placement_hosts=with_room("h07", 16), a=("h01", 7))
    assert all("h07" in one for one in reserve.worst(replace(view, guests={}), known, made.NOW_S))


def test_a_host_of_which_no_room_is_known_takes_none():
    view, known = many(12, placement_hosts=with_room("h00", 1))
    view = replace(
        view,
        placement_hosts={name: one for name, one in view.placement_hosts.items() if name != "h07"},
    )
    sets = reserve.worst(view, known, made.NOW_S)
    assert ("h01", "h07") in sets and ("h00", "h01") in sets


# what a guest more would break

FULL = {"a": ("h1", 3), "b": ("h2", 3), "c": ("h3", 3)}


def kept(**how):
    return Reserve(*cloud(**{**FULL, **how}), made.NOW_S)


def test_the_losses_that_leave_somebody_without_a_place_are_short():
    assert kept().shortfalls == []
    [found] = kept(a=("h1", 6)).shortfalls
    assert (found.hosts, [*found.unplaced]) == (("h1",), ["a"])


def test_what_still_fits_after_each_loss_breaks_nothing():
    assert kept().refusal("h1", sized("d", 1)) == ""


def test_what_only_takes_room_that_others_would_need_is_named():
    """No host is to take it when its own dies, but nobody can go where it is."""
    one = kept()
    assert one.refusal("h1", sized("e", 4)) == ""  # h3 has the room as well
    one.take("h3", sized("d", 4))
    assert one.refusal("h1", sized("e", 4)) == "if h2 failed, no host would have capacity for b"


def test_a_guest_of_high_availability_needs_a_place_itself():
    wanted = made.wanted("d")
    assert (
        kept().refusal("h1", sized("d", 5), wanted)
        == "if h1 failed, no host would have capacity for d"
    )
    assert kept().refusal("h1", sized("d", 5)) == ""
    assert kept().refusal("h1", sized("d", 3), wanted) == ""


def test_what_was_short_before_is_no_reason():
    """Only who has no place by it is named, and the loss by which."""
    one = kept(a=("h1", 6))
    assert one.refusal("h2", sized("d", 1)) == ""
    assert (
        one.refusal("h1", sized("d", 5), made.wanted("d"))
        == "if h1 failed, no host would have capacity for d"
    )


def test_each_loss_that_is_worse_by_it_is_named():
    one = kept(a=("h1", 5), b=("h2", 5), c=("h3", 1))
    assert one.refusal("h3", sized("d", 3)) == (
        "if h1 failed, no host would have capacity for a; "
        "if h2 failed, no host would have capacity for b"
    )


def test_a_guest_that_moves_takes_its_room_along():
    """It is counted once: where it goes, not where it is by what its host said."""
    for beside in ((), (sized("x", 1),)):
        there = replace(with_room("h1", 8)["h1"], guests=(sized("d", 4), *beside))
        assert kept(placement_hosts={"h1": there}).refusal("h3", sized("d", 4)) == ""
        assert kept(placement_hosts={"h1": there}).refusal("h3", sized("e", 4)) != ""


def test_a_host_that_is_not_known_takes_no_room():
    assert kept().refusal("h9", sized("d", 3)) == ""


def test_rules_count_as_they_are_then():
    apart = (GuestRule(("a", "b"), ANTI_AFFINITY), GuestRule(("a", "c"), ANTI_AFFINITY))
    assert kept().refusal("h1", sized("d", 1), None, apart) == ""
    why = "if h1 failed, no host would have capacity for a"
    assert kept().refusal("h1", sized("d", 1), made.wanted("d"), apart).startswith(why)
    one = kept()
    one.take("h1", sized("d", 1), made.wanted("d"), apart)
    assert {lost.hosts for lost in one.shortfalls} >= {("h1",)}


def test_what_was_taken_counts_for_the_next():
    one = kept()
    assert one.refusal("h2", sized("e")) == ""
    one.take("h1", sized("d"), made.wanted("d"))
    assert one.shortfalls == [] and one.refusal("h2", sized("e", 1)) == ""
    assert one.refusal("h2", sized("e")).startswith(
        "if h1 failed, no host would have capacity for "
    )


# how many fit


def fit(one, gib=1, **most):
    return one.fits({host: sized("new", gib) for host in most}, most)


@pytest.mark.parametrize(
    "how, most, number",
    [
        ({}, {"h1": 4}, 4),  # h2 and h3 have room for each other's
        ({}, {"h1": 4, "h2": 1, "h3": 1}, 6),
        ({}, {"h1": 4, "h2": 4, "h3": 4}, 6),  # room for one guest has to be on two hosts
        ({}, {"h1": 1, "h2": 1, "h3": 1}, 3),
        ({}, {"h1": 0, "h2": 0, "h3": 0}, 0),
        ({}, {}, 0),
        ({"a": ("h1", 6)}, {"h1": 1, "h2": 4, "h3": 4}, 3),  # who has no place now is no reason
        ({}, {"h1": 1, "h9": 5}, 6),  # it takes no room that is known
        ({"count": 0}, {"h1": 4, "h2": 4, "h3": 4}, 12),
    ],
)
def test_as_many_fit_as_leave_room_for_the_loss_of_a_host(how, most, number):
    assert fit(kept(**how), **most) == number


SMALL = {"a": ("h1", 1), "b": ("h2", 1), "c": ("h3", 1)}


@pytest.mark.parametrize(
    "how, gib, most, few, number",
    [
        ({}, 1, 4, 3, 6),
        ({}, 1, 4, 2, 3),
        ({}, 1, 1, 2, 3),
        (SMALL, 1.5, 4, 3, 10),
        (SMALL, 1.5, 4, 2, 9),
    ],
)
def test_of_many_hosts_each_gets_the_same_part(monkeypatch, how, gib, most, few, number):
    monkeypatch.setattr(reserve, "FEW_HOSTS", few)
    assert fit(kept(**how), gib, h1=most, h2=most, h3=most) == number


def test_what_is_over_goes_to_hosts_one_by_one():
    """b fits h1 and a fits h2 beside one each; h2 is said to take many, so its part is small."""
    assert fit(kept(a=("h1", 1), b=("h2", 6), c=("h3", 7)), 0.125, h1=2, h2=40) == 2


def test_a_loss_is_looked_at_again_only_where_somebody_goes_to_what_gets_fuller(monkeypatch):
    one, looked = Reserve(*cloud(a=("h1", 3)), made.NOW_S), []
    [to] = {host for lost in one._losses.values() for host in lost.placements.values()}
    other = next(host for host in made.HOSTS if host not in ("h1", to))
    whole = reserve.simulate_loss
    monkeypatch.setattr(reserve, "simulate_loss", lambda *how: looked.append(how[2]) or whole(*how))
    assert (fit(one, **{to: 0, other: 1}), looked) == (1, [])
    assert (fit(one, **{to: 1, other: 0}), looked) == (1, [("h1",)])


# a guest that is to be given to high availability


def given(host="h1", gib=3, count=1, **guests):
    """Why d may not be."""
    view, known = cloud(**{**FULL, "d": ("", gib), **guests}, count=count)
    view = replace(view, guests={**view.guests, "d": replace(view.guests["d"], host=host)})
    others = {name: one for name, one in known.guests.items() if name != "d"}
    return reserve.refusal(view, replace(known, guests=others), "d", made.NOW_S)


@pytest.mark.parametrize("host, at", [("h1", "h1"), ("h3", "h3"), ("", "h2")])
def test_one_is_taken_in_where_the_reserve_holds_with_it(host, at):
    """host: where it is; at: that, or where it would go, as h2 has the most room."""
    assert given(host) == given(host, 4) == ""
    assert given(host, 5, b=("h2", 1)) == f"if {at} failed, no host would have capacity for d"
    assert given(host, 5, b=("h2", 1), count=0) == given(host, 8, count=0) == ""


def test_one_that_no_host_takes_now_is_told_why():
    assert "memory" in given("h1", 8)


def test_one_that_is_known_already_is_counted_once():
    """As it is to be: it was smaller, and somewhere else."""
    of = cloud(**FULL, d=("h1", 4))
    view = replace(of[0], guests={**of[0].guests, "d": replace(of[0].guests["d"], host="h3")})
    assert reserve.refusal(view, of[1], "d", made.NOW_S) == ""
    of = cloud(**{**FULL, "b": ("h2", 1)}, d=("h1", 5))
    why = "if h1 failed, no host would have capacity for d"
    assert reserve.refusal(*of, "d", made.NOW_S) == why
    apart = (GuestRule(("a", "d"), ANTI_AFFINITY),)
    of = cloud(a=("h1", 3), b=("h2", 1), c=("h3", 5), d=("h2", 1), rules=apart)
    why = "if h1 failed, no host would have capacity for a"
    assert reserve.refusal(*of, "d", made.NOW_S) == why


def test_the_room_that_it_has_now_is_short_already():
    """Nobody has room for b, with d in high availability or not."""
    there = replace(with_room("h1", 8)["h1"], guests=(sized("d", 4), sized("x", 1)))
    view, known = cloud(
        a=("h3", 1), b=("h2", 3), c=("h3", 4), d=("h1", 4), placement_hosts={"h1": there}
    )
    known = replace(known, guests={name: known.guests[name] for name in "abc"})
    assert reserve.refusal(view, known, "d", made.NOW_S) == ""
