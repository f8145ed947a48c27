from saltvirt.migration import arrivals


def test_a_promise_is_told_by_the_name_of_its_file():
    promise = arrivals.Arrival("we~b1", 2**19, 2, 1000)
    assert arrivals.parse(promise.file) == promise
    for other in ("web1", "web1~1~2", "web1~a~2~3", ".hidden"):
        assert arrivals.parse(other) is None


def test_only_those_count_that_are_under_way():
    files = ["a~1024~1~1000", "b~1024~1~1000", "c~1024~1~5000", "notes"]
    found = arrivals.pending(files, 5001, present={"b"})
    assert [a.name for a in found] == ["c"], "a is an hour old, b is there"
