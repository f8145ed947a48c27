"""Retention: the backups that rules keep, the only good one, and whole chains."""

import dataclasses
import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saltvirt.backup.model import record, retention
from saltvirt.backup.model.catalog import StoredBackup
from saltvirt.backup.model.retention import Retention
from saltvirt.backup.model.verification import Verification
from tests.unit.backup.model import made

RULES = ("last", "hourly", "daily", "weekly", "monthly", "yearly")
NOON = datetime.datetime(2026, 11, 23, 12)  # a Monday


def at(number, when, parent=None, **other):
    told = f"{when:%Y-%m-%dT%H:%M:%SZ}"
    return made.backup(number, [made.disk(parent=parent, of=number)], taken_at=told, **other)


def every(hours, count):
    return [at(n + 1, NOON + datetime.timedelta(hours=hours * n)) for n in range(count)]


def kept(backups, held=None, **rules):
    """The numbers of those that stay."""
    found = retention.judge(made.stock(*backups), Retention(**rules), held or {})
    return sorted(int(one.backup_id[:6]) for one in found if one.retained)


def why(backups, number, **rules):
    found = retention.judge(made.stock(*backups), Retention(**rules))
    return next(one.reason for one in found if one.backup_id == made.ident(number))


def test_the_last():
    assert kept(every(1, 9), last=3) == [7, 8, 9]


def test_the_last_of_each_hour_and_day():
    half_hours = every(0.5, 9)  # 12:00 to 16:00
    assert kept(half_hours, hourly=3) == [6, 8, 9]
    assert kept(every(6, 9), daily=2) == [6, 9]  # until Wednesday, 12:00


def test_a_week_begins_on_monday():
    days = [at(n + 1, NOON + datetime.timedelta(days=n - 2)) for n in range(10)]
    assert kept(days, weekly=2) == [9, 10]  # the next Sunday and Monday
    assert kept(days, weekly=3) == [2, 9, 10]


def test_months_and_years():
    months = [at(n + 1, datetime.datetime(2025 + n // 12, n % 12 + 1, 5)) for n in range(24)]
    assert kept(months, monthly=2) == [23, 24]
    assert kept(months, yearly=5) == [12, 24]


def test_an_hour_without_a_backup_takes_no_place():
    assert kept([at(1, NOON), at(2, NOON + datetime.timedelta(days=40))], daily=2) == [1, 2]


def test_one_backup_may_be_of_several_rules():
    assert kept(every(24, 9), last=1, daily=3) == [7, 8, 9]
    assert why(every(24, 9), 9, last=1, daily=3) == "among the last 1"
    assert why(every(24, 9), 8, last=1, daily=3) == "among the 3 daily"
    assert why(every(24, 9), 1, last=1, daily=3) == "no rule keeps it"


def test_without_a_rule_all_stay():
    assert kept(every(1, 4)) == [1, 2, 3, 4]
    assert why(every(1, 4), 1) == "retention is not set"


def test_what_a_chain_needs_stays():
    day = datetime.timedelta(days=1)
    chain = [at(1, NOON), *(at(n, NOON + n * day, parent=n - 1) for n in (2, 3))]
    assert kept([*chain, at(4, NOON + 4 * day)], last=2) == [1, 2, 3, 4]
    assert why([*chain, at(4, NOON + 4 * day)], 1, last=2) == f"{made.ident(3)} depends on it"
    assert kept([*chain, at(4, NOON + 4 * day), at(5, NOON + 5 * day)], last=2) == [4, 5]


def broken(number, parent=None):
    mark = Verification("2026-11-23T16:00:00Z", ("vda",), {"vda": "the piece at 0 is another"})
    return made.backup(number, [made.disk(parent=parent, of=number)], mark)


def test_one_that_is_not_good_takes_no_place_and_stays_by_the_same_rules():
    assert kept([made.backup(1), broken(2), made.backup(3)], last=2) == [1, 2, 3]
    assert kept([made.backup(1), broken(2), made.backup(3), made.backup(4)], last=2) == [3, 4]
    words = "among the last 2, although it is not good: vda: the piece"
    assert why([broken(1), made.backup(2)], 1, last=2).startswith(words)
    words = "no rule keeps it, and it is not good: vda: the piece"
    assert why([broken(1), made.backup(2)], 1, last=1).startswith(words)


def test_a_broken_base_takes_none_of_its_thirty_children_along():
    base = dataclasses.replace(broken(1), result_error=None)
    children = made.chain(range(2, 31), first=1)
    assert kept([base, *children, made.backup(31)], last=30, daily=30, monthly=12) == [
        *range(1, 32)
    ]


def test_the_only_good_one_stays_whatever_came_after():
    assert kept([made.backup(1), *(broken(n) for n in range(2, 9))], last=1) == list(range(1, 9))


def test_the_last_of_a_disk_that_later_ones_skip_stays():
    """As an encrypted disk, which is in no backup of a guest that is off."""
    both = [made.backup(n, [made.disk(of=n), made.disk("vdb", of=n)]) for n in (1, 2)]
    skipped = {"vdb": "it is encrypted by libvirt", "sda": "a drive for cdrom"}
    later = [made.backup(n, skipped=skipped) for n in range(3, 9)]
    assert kept([*both, *later], last=3) == [2, 6, 7, 8]
    assert (
        why([*both, *later], 2, last=3)
        == f"the newest good backup with vdb, which {made.ident(8)} skips"
    )
    again = made.backup(9, [made.disk(of=9), made.disk("vdb", of=9)])
    assert kept([*both, *later, again], last=3) == [7, 8, 9]
    detached = made.backup(9)
    assert kept([*both, *later, detached], last=3) == [7, 8, 9]


def test_of_a_disk_that_later_ones_skip_the_last_that_can_be_read_stays():
    mark = Verification(
        "2026-11-23T16:00:00Z", ("vda", "vdb"), {"vdb": "the piece at 0 is another"}
    )
    disks = [[made.disk(of=n), made.disk("vdb", of=n)] for n in (1, 2)]
    backups = [made.backup(1, disks[0]), made.backup(2, disks[1], mark)]
    backups += [made.backup(n, skipped={"vdb": "its size is 0"}) for n in (3, 4)]
    assert kept(backups, last=1) == [1, 4]


@pytest.mark.parametrize("what", [record.TPM, record.FIRMWARE])
def test_the_last_state_that_later_ones_skip_stays(what):
    """As that of a TPM at a target that has no key any more."""
    state = [made.disk(record.STATE, of=n, checkpoint=None) for n in (1, 2)]
    both = [made.backup(n, state=one) for n, one in enumerate(state, 1)]
    other = made.disk(record.STATE, of=3, checkpoint=None)
    part = made.backup(3, state=other, skipped={what: "it would lie there in plain"})
    later = [made.backup(n, skipped={what: "it would lie there in plain"}) for n in (4, 5, 6)]
    assert kept([*both, part, *later], last=2) == [2, 5, 6]
    assert why([*both, *later], 2, last=2).startswith(f"the newest good backup with {what}")


def test_one_that_stays_for_one_of_its_disks_stays_whole():
    """The other disk of the one above was resized, and read whole."""
    first = made.backup(1, [made.disk(of=1), made.disk("vdb", of=1)])
    second = made.backup(2, [made.disk(parent=1, of=2), made.disk("vdb", parent=1, of=2)])
    third = made.backup(3, [made.disk(of=3), made.disk("vdb", of=3)])
    fourth = made.backup(4, [made.disk(parent=3, of=4), made.disk("vdb", of=4)])
    fifth = made.backup(5, [made.disk(of=5), made.disk("vdb", parent=2, of=5)])
    assert kept([first, second, third, fourth, fifth], last=1) == [1, 2, 5]
    other = made.backup(2, [made.disk(parent=1, of=2), made.disk("vdb", of=2)])
    assert kept([first, other, third, fourth, fifth], last=1) == [1, 2, 5]


def test_with_no_good_one_nothing_goes():
    assert kept([broken(1), broken(2)], last=1) == [1, 2]


def test_what_stands_on_a_broken_one_is_broken():
    backups = [made.backup(1), broken(2), made.backup(3, [made.disk(parent=2, of=3)])]
    assert kept(backups, last=1) == [1, 2, 3]
    assert kept([*backups, made.backup(4)], last=1) == [4]


def test_nothing_older_goes_than_one_whose_record_cannot_be_read():
    backups = [made.backup(1), made.backup(2), StoredBackup(made.ident(3), record_error="x")]
    later = [made.backup(n) for n in (4, 5, 6)]
    assert kept([*backups, *later], last=1) == [1, 2, 3, 6]
    assert "remove it manually" in why([*backups, *later], 3, last=1)
    assert "may depend on it" in why([*backups, *later], 1, last=1)


def test_what_stands_on_one_that_cannot_be_read_stays_as_it_may_be_good():
    """However far above; what stands on nothing of it goes."""
    below = [made.backup(1), StoredBackup(made.ident(2), record_error="x")]
    backups = [*below, *made.chain([3, 4], first=2), *made.chain([5, 6]), made.backup(7)]
    assert kept(backups, last=1) == [1, 2, 3, 4, 7]
    said = f"{made.ident(2)}, on which it depends, may be good"
    assert why(backups, 3, last=1) == said
    assert why(backups, 4, last=1) == said
    # somebody has looked at it, and removed it
    assert kept([one for one in backups if one.backup_id != made.ident(2)], last=1) == [7]


def test_one_of_which_nobody_can_tell_whether_it_is_good_stays_with_its_chain():
    told = "verified.json cannot be read"
    mark = Verification("2026-11-23T16:00:00Z", broken_disks={"vda": told})
    unsure = dataclasses.replace(at(2, NOON, parent=1, verified=mark), result_error=told)
    backups = [made.backup(1), unsure, at(3, NOON, parent=2), broken(4), made.backup(5)]
    assert kept(backups, last=1) == [1, 2, 3, 5]
    assert why(backups, 2, last=1) == f"it may be good: {told}"


def test_what_is_being_read_stays_with_what_it_stands_on():
    backups = [*made.chain([1, 2, 3]), made.backup(4)]
    assert kept(backups, last=1) == [4]
    held = {made.ident(2): retention.READ}
    assert kept(backups, held, last=1) == [1, 2, 4]
    found = retention.judge(made.stock(*backups), Retention(last=1), held)
    assert [one.reason for one in found if one.backup_id == made.ident(2)] == [
        "the backup is being read"
    ]


def test_a_clock_that_was_wrong_once_keeps_its_backup_no_longer():
    wrong = [at(1, NOON), at(2, datetime.datetime(2099, 1, 1)), *every(24, 5)[2:]]
    assert kept(wrong, daily=3) == [3, 4, 5]


def test_children_are_removed_before_what_they_stand_on():
    found = retention.judge(made.stock(*made.chain([1, 2, 3]), made.backup(4)), Retention(last=1))
    assert [one.backup_id for one in found] == [made.ident(n) for n in (4, 3, 2, 1)]


def mended(backup):
    return dataclasses.replace(backup, verification=None)


@st.composite
def stocks(draw):
    found, when = [], NOON
    for number in range(1, draw(st.integers(0, 12)) + 1):
        when += datetime.timedelta(hours=draw(st.integers(-5, 400)))
        kind = draw(st.sampled_from(["good"] * 6 + ["broken", "unread", "gone"]))
        parent = draw(st.sampled_from([None, *range(max(1, number - 3), number)]))
        if kind == "unread":
            found.append(StoredBackup(made.ident(number), record_error="x"))
        elif kind == "broken":
            found.append(broken(number, parent))
        elif kind == "good":
            found.append(at(number, when, parent=parent))
    return made.stock(*found)


@given(stocks(), st.tuples(*(st.integers(0, 3) for _ in RULES)), st.data())
def test_whenever_it_is_killed_all_that_is_left_is_whole(stock, counts, data):
    rules = Retention(*counts)
    found = retention.judge(stock, rules)
    assert [one.backup_id for one in found] == sorted(stock.backups, reverse=True)
    gone = [one.backup_id for one in found if not one.retained]
    gone = gone[: data.draw(st.integers(0, len(gone)))]
    left = made.stock(*(one for one in stock if one.backup_id not in gone))
    # what was good, and is there, is good
    assert left.good_ids == [one for one in stock.good_ids if one not in gone]
    if stock.good_ids:
        assert stock.good_ids[-1] in left.good_ids
    # one that is broken stays where it would if it were good
    found = retention.judge(made.stock(*(mended(one) for one in stock)), rules)
    as_good = {one.backup_id for one in found if one.reason.startswith("among")}
    assert as_good <= {one.backup_id for one in retention.judge(stock, rules) if one.retained}
    # what the rule says of the last ones holds
    assert set(stock.good_ids[len(stock.good_ids) - rules.last :] if rules.last else []) <= set(
        left.good_ids
    )


@given(stocks(), st.tuples(*(st.integers(0, 3) for _ in RULES)))
def test_a_second_prune_removes_nothing_more(stock, counts):
    rules = Retention(*counts)
    stays = [one.backup_id for one in retention.judge(stock, rules) if one.retained]
    left = made.stock(*(one for one in stock if one.backup_id in stays))
    assert all(one.retained for one in retention.judge(left, rules))
