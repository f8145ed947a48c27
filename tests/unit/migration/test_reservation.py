import pytest

from saltvirt.migration import reservation


def test_a_promise_is_told_by_the_name_of_its_file():
    made = reservation.Reservation("we~b1", 2**19, 2, 1000)
    assert reservation.parse(made.file) == made
    for other in ("web1", "web1~1~2", "web1~a~2~3", "web1~²~1~1", ".hidden"):
        assert reservation.parse(other) is None


def test_only_those_count_that_are_under_way():
    """Whenever they were made: a large copy takes longer, and renews its promise."""
    ages = {"a~1024~1~1000": 3601, "b~1024~1~1000": 0, "c~1024~1~1000": 3600, "notes": 0}
    found = reservation.pending(ages, present={"b"})
    assert [a.name for a in found] == ["c"], "a was not renewed for an hour, b is there"


def test_a_promise_is_renewed_often_enough():
    assert 4 * reservation.RENEW_S < reservation.KEEP_S


def test_a_clock_that_was_put_back_ends_no_promise():
    assert reservation.pending({"a~1~1~9": -7200}, ()) == [reservation.Reservation("a", 1, 1, 9)]


FULL = reservation.Reservation("web1", 2**19, 2, 1000, (("/vm/a b!c", 5), ("pool~1", 7)), 2048)


def test_a_promise_tells_of_disks_and_huge_pages():
    assert reservation.parse(FULL.file) == FULL
    assert "/" not in FULL.file
    usual = reservation.Reservation("web1", 2**19, 2, 1000, page_kib=0)
    assert reservation.parse(usual.file) == usual, "the host's usual size is one, too"


@pytest.mark.parametrize("more", ["p", "pmany", "p²", "dmuch@/vm", "d@/vm", "x5"])
def test_what_a_promise_says_that_we_do_not_know_is_passed_over(more):
    """As a later version may, or whoever can write there."""
    found = reservation.parse(f"web1~1024~2~1000!{more}!d5@/vm")
    assert found == reservation.Reservation("web1", 1024, 2, 1000, (("/vm", 5),))


def promise(*places, name="web1"):
    return reservation.Reservation(name, 1024, 2, 1000, tuple((place, 5) for place in places))


def test_a_place_that_is_too_long_stands_for_itself_by_a_folder_above_it():
    fixed = len(promise("").file)
    fits = promise("a" * (255 - fixed))
    assert len(fits.file) == 255
    assert reservation.parse(fits.file) == fits
    deep = "/vm/" + "a" * 100 + "/" + "b" * 100
    room = 255 - fixed - len(deep) - 2 * deep.count("/")
    fits = promise(deep + "b" * room)
    assert (len(fits.file), reservation.parse(fits.file)) == (255, fits)
    longer = promise(deep + "b" * (room + 1))
    assert reservation.parse(longer.file) == promise("/vm/" + "a" * 100)
    assert reservation.parse(promise("/" + "a" * 300).file) == promise("/")


def test_each_of_many_disks_has_its_part_of_the_name():
    short, long = "/vm", "/srv/" + "a" * 150
    assert reservation.parse(promise(short, long).file) == promise(short, long), "what is left"
    many = promise(*[f"/srv/{letter * 60}/{letter * 60}" for letter in "abcd"])
    assert len(many.file) <= 255
    found = reservation.parse(many.file).disks
    assert len(found) == 4
    assert all(place.startswith("/srv") for place, _ in found)


def test_what_has_no_room_in_the_name_is_left_out_and_the_guest_still_counts():
    pool = promise("p" * 300, "/vm")
    assert reservation.parse(pool.file) == promise("/vm")
    crowded = promise("/vm", name="g" * 242)
    assert len(crowded.file) <= 255
    assert reservation.parse(crowded.file) == promise(name="g" * 242)
