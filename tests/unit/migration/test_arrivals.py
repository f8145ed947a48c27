from saltvirt.migration import arrivals


def test_a_promise_is_told_by_the_name_of_its_file():
    promise = arrivals.Arrival("we~b1", 2**19, 2, 1000)
    assert arrivals.parse(promise.file) == promise
    for other in ("web1", "web1~1~2", "web1~a~2~3", ".hidden"):
        assert arrivals.parse(other) is None


def test_only_those_count_that_are_under_way():
    """Whenever they were made: a large copy takes longer, and renews its promise."""
    ages = {"a~1024~1~1000": 3601, "b~1024~1~1000": 0, "c~1024~1~1000": 3599, "notes": 0}
    found = arrivals.pending(ages, present={"b"})
    assert [a.name for a in found] == ["c"], "a was not renewed for an hour, b is there"


def test_a_promise_is_renewed_often_enough():
    assert 4 * arrivals.RENEW_S < arrivals.KEEP_S


def test_a_clock_that_was_put_back_ends_no_promise():
    assert arrivals.pending({"a~1~1~9": -7200}, ()) == [arrivals.Arrival("a", 1, 1, 9)]
