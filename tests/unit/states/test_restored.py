"""``virt.restored`` passes its arguments to the master's verb, which decides."""

import pytest

from saltvirt.states import restored, result


def apply(said, test=False, **given):
    asked = []

    def runner(verb, kwarg):
        asked.append((verb, kwarg))
        return {"data": {"web1": said}}

    host = result.StateHost({"saltutil.runner": runner}, {}, test)
    return restored.restored(host, "web1", **given), asked


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, {"name": "web1"}),
        ({"source": "web1", "backup": 7}, {"name": "web1", "backup": 7}),
        (
            {"source": "old", "to": None, "host": "hv2"},
            {"name": "old", "new": "web1", "host": "hv2"},
        ),
    ],
)
def test_it_is_made_where_it_is_missing(given, named):
    said = {"result": True, "comment": "web1 was made", "changes": {"backup": "x"}}
    found, asked = apply(said, **given)
    assert asked == [("virt.backup_restore", {**named, "missing": True, "test": False})]
    assert (found["result"], found["changes"]) == (True, {"backup": "x"})


def test_with_test_it_is_only_said():
    said = {"result": None, "comment": "would be", "changes": {"backup": "x"}}
    found, asked = apply(said, test=True)
    assert found["result"] is None and asked[0][1]["test"] is True


def test_one_that_fails_is_no_success():
    found, _ = apply({"result": False, "comment": "the backup is not good"})
    assert (found["result"], found["comment"]) == (False, "the backup is not good")
