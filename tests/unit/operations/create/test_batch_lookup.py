"""Many guests are created at the same time, and several of them share a query of all hosts."""

import threading
import time
from concurrent.futures import Future
from types import SimpleNamespace

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.operations.create import batch_lookup
from tests.clock import until

# who would wait for others for so long does not end within a test
FOREVER_S = 600


def begun(work, *args):
    """The Future of what is done in a thread that nobody waits for when the test fails."""
    done = Future()

    def run():
        try:
            done.set_result(work(*args))
        except BaseException as exc:
            done.set_exception(exc)

    threading.Thread(target=run, daemon=True).start()
    return done


def told(waiting):
    return [one.result(timeout=60) for one in waiting]


class Fleet:
    """rested: how often its connection was let go of before it was used. rests: is called then."""

    def __init__(self, rests=lambda: None):
        self.rested, self.rests = 0, rests

    def disconnect(self):
        self.rested += 1
        self.rests()


def all_look(one, count):
    return [begun(one.query_locations, Fleet()) for _ in range(count)]


@pytest.fixture
def looks(monkeypatch):
    """find.locations in its place. answers: what it says, one after the other; goes_on: an Event
    that each look waits for; under_way: how many there are now, and most: were at once."""
    found = SimpleNamespace(answers=[], asked=[], under_way=0, most=0, goes_on=threading.Event())
    found.goes_on.set()

    def locations(fleet):
        found.asked.append(fleet)
        found.under_way += 1
        found.most = max(found.most, found.under_way)
        assert found.goes_on.wait(120)
        found.under_way -= 1
        said = found.answers.pop(0)
        if isinstance(said, Exception):
            raise said
        return said

    monkeypatch.setattr(batch_lookup.find, "locations", locations)
    yield found
    found.goes_on.set()


def test_one_look_is_for_all_that_came_before_it_began(looks):
    looks.answers = ["first", "second"]
    one = batch_lookup.LookupQueue(at_once=1, size=3, coming=9, wait_s=FOREVER_S)
    two = all_look(one, 2)
    until(lambda: len(one.waiting) == 2, "both wait for a third")
    time.sleep(0.1)
    assert looks.asked == []
    assert told([*two, *all_look(one, 1)]) == ["first"] * 3
    assert told(all_look(one, 3)) == ["second"] * 3
    assert len(looks.asked) == 2


def test_of_few_hosts_those_who_come_within_a_moment_share_a_look(looks, monkeypatch):
    looks.answers = ["found", "again"]
    monkeypatch.setattr(batch_lookup, "MOMENT_S", FOREVER_S)
    one = batch_lookup.LookupQueue(at_once=2, size=1, coming=2, wait_s=FOREVER_S)
    with one.slot() as first, one.slot() as second:
        waiting = [begun(first, Fleet())]
        until(lambda: len(one.waiting) == 1, "the first waits a moment")
        time.sleep(0.1)
        assert looks.asked == []
        assert told([*waiting, begun(second, Fleet())]) == ["found"] * 2
    monkeypatch.setattr(batch_lookup, "MOMENT_S", 0.01)
    one = batch_lookup.LookupQueue(at_once=1, size=1, coming=9, wait_s=FOREVER_S)
    assert told(all_look(one, 1)) == ["again"], "and no longer"


def test_nobody_looks_without_the_last_that_comes_however_slow_that_one_is(looks, monkeypatch):
    looks.answers = ["found", "again"]
    monkeypatch.setattr(batch_lookup, "MOMENT_S", FOREVER_S)
    one = batch_lookup.LookupQueue(at_once=2, size=1, coming=2, wait_s=FOREVER_S)
    with one.slot() as first, one.slot() as second:
        waiting = [begun(first, Fleet())]
        until(lambda: len(one.waiting) == 1, "the first waits")
        slow = Fleet(rests=lambda: time.sleep(0.3))
        assert told([begun(second, slow), *waiting]) == ["found"] * 2


@pytest.mark.parametrize("size", [2, 3])
def test_of_many_hosts_nobody_looks_after_a_moment(looks, monkeypatch, size):
    looks.answers = ["found"]
    monkeypatch.setattr(batch_lookup, "MOMENT_S", 0.01)
    one = batch_lookup.LookupQueue(at_once=1, size=size, coming=9, wait_s=FOREVER_S)
    waiting = all_look(one, size - 1)
    until(lambda: len(one.waiting) == size - 1, "they wait for one more")
    time.sleep(0.1)
    assert looks.asked == []
    assert told([*waiting, *all_look(one, 1)]) == ["found"] * size


def test_who_waits_for_others_keeps_no_connection_meanwhile(looks):
    looks.answers = ["found"]
    one, fleet = batch_lookup.LookupQueue(at_once=1, size=2, coming=9, wait_s=FOREVER_S), Fleet()
    first = begun(one.query_locations, fleet)
    until(lambda: one.waiting, "it waits")
    assert fleet.rested == 1
    assert told([first, *all_look(one, 1)]) == ["found"] * 2


def test_who_comes_while_a_look_is_under_way_gets_the_next(looks):
    """What was made after it began is not surely seen by it."""
    looks.answers = ["first", "second"]
    looks.goes_on.clear()
    one = batch_lookup.LookupQueue(at_once=1, size=1, coming=9, wait_s=FOREVER_S)
    first = all_look(one, 1)
    until(lambda: looks.asked, "a look is under way")
    late = all_look(one, 2)
    until(lambda: len(one.waiting) == 2, "two wait for the next")
    time.sleep(0.1)
    looks.goes_on.set()
    assert told([*first, *late]) == ["first", "second", "second"]
    assert (len(looks.asked), looks.most) == (2, 1)


def test_nobody_waits_for_those_that_do_not_come(looks):
    looks.answers = ["found"]
    one = batch_lookup.LookupQueue(at_once=3, size=50, coming=4, wait_s=FOREVER_S)
    with one.slot() as first, one.slot() as second:
        waiting = [begun(turn, Fleet()) for turn in (first, second)]
        until(lambda: len(one.waiting) == 2, "both wait")
        with one.slot():  # it fails
            pass
        time.sleep(0.1)
        assert looks.asked == []
        with one.slot():  # so does the fourth
            pass
        assert told(waiting) == ["found", "found"]
    assert len(looks.asked) == 1


def test_nobody_waits_for_others_for_long(looks):
    looks.answers = ["found"]
    one = batch_lookup.LookupQueue(at_once=1, size=50, coming=50, wait_s=0.2)
    assert told(all_look(one, 1)) == ["found"]


def test_who_came_last_waits_no_longer_than_who_came_first(looks):
    looks.answers = ["first", "second"]
    looks.goes_on.clear()
    one = batch_lookup.LookupQueue(at_once=1, size=50, coming=50, wait_s=0)
    first = all_look(one, 1)
    until(lambda: looks.asked, "a look is under way")
    second = all_look(one, 1)
    until(lambda: len(one.waiting) == 1, "it has waited long enough")
    one._wait_s = FOREVER_S
    one.waiting[0].joined_s -= FOREVER_S
    third = all_look(one, 1)
    until(lambda: len(one.waiting) == 2, "one more came")
    looks.goes_on.set()
    assert told([*first, *second, *third]) == ["first", "second", "second"]


def test_of_a_look_that_fails_each_asks_for_himself(looks):
    looks.answers = [errors.ConnectionFailed("no master"), "second"]
    one = batch_lookup.LookupQueue(at_once=1, size=2, coming=9, wait_s=FOREVER_S)
    both = all_look(one, 2)
    failed = [each.exception(timeout=60) for each in both]
    assert sorted(map(type, failed), key=str) == [type(None), errors.ConnectionFailed]
    assert [each.result() for each in both if not each.exception()] == ["second"]
    assert len(looks.asked) == 2


def test_no_more_are_made_at_a_time_than_have_a_turn(looks):
    looks.answers = ["found"]
    one = batch_lookup.LookupQueue(at_once=1, size=1, coming=3)
    came = threading.Event()

    def next_one():
        with one.slot():
            came.set()

    with one.slot() as first:
        second = begun(next_one)
        assert not came.wait(0.2)
        first(Fleet())
        assert came.wait(60)
        told([second])
        third = begun(next_one)
        told([third])


def test_while_some_wait_for_a_look_others_are_made(looks):
    """One has the turn, three are looked for, and three wait to be."""
    looks.answers = ["found"] * 12
    looks.goes_on.clear()
    made = []

    def make(number, turn):
        made.append(number)
        if number == 5:
            raise errors.OperationFailed("broken")
        return turn(Fleet())

    done = begun(lambda: list(batch_lookup.create_each(range(12), make, at_once=1, hosts=15)))
    until(lambda: len(made) >= 8, "all that may be made are")
    time.sleep(0.2)
    assert len(made) == 8  # one of them has failed
    looks.goes_on.set()
    [found] = told([done])
    assert sorted(number for number, _ in found) == [*range(12)]
    failed = {number: one.exception() for number, one in found if one.exception()}
    assert list(failed) == [5]
    assert {one.result() for number, one in found if number not in failed} == {"found"}
    assert len(looks.asked) < 11


def test_after_an_interrupt_no_further_one_is_made():
    made = []

    def make(number, _turn):
        made.append(number)
        time.sleep(0.02)

    each = batch_lookup.create_each(range(50), make, at_once=1, hosts=1)
    next(each)
    each.close()
    assert len(made) < 5


def test_where_there_is_nothing_to_make_nothing_is_made():
    assert list(batch_lookup.create_each([], None, at_once=1, hosts=0)) == []


@pytest.mark.parametrize(("hosts", "size"), [(0, 1), (3, 1), (10, 2), (200, 20), (2000, 20)])
def test_for_how_many_a_look_at_so_many_hosts_is(hosts, size):
    assert batch_lookup.size_for(hosts) == size
