"""``virt.backed_up``: one that is young enough is left, else one is made, and only then."""

import pytest

from saltvirt.errors import InvalidInput
from saltvirt.states import backed_up, result

NOW_S = 1_763_913_600  # 2025-11-23T16:00:00Z


def backup(when, wrong=None, ident="000001-20251123T150000Z-00000001"):
    return {"ident": ident, "when": when, "wrong": wrong, "guest": "web1"}


class Runner:
    """The master's runner, with these backups; asked: which verbs with which arguments."""

    def __init__(self, **listed):
        self.listed, self.asked = listed, []
        self.made = {"web1": {"result": True, "comment": "made", "changes": {"backup": "x"}}}

    def __call__(self, verb, kwarg):
        self.asked.append((verb, kwarg))
        return {"data": self.listed if verb == "virt.backups" else self.made, "outputter": "x"}

    def apply(self, test=False, **given):
        self.asked = []
        host = result.StateHost({"saltutil.runner": self}, {}, test)
        return backed_up.backed_up(host, "web1", NOW_S, **given)

    @property
    def verbs(self):
        return [verb for verb, _ in self.asked]


def test_a_young_one_is_left():
    runner = Runner(vault=[backup("2025-11-23T10:00:00Z")], other=[backup("2020-01-01T00:00:00Z")])
    found = runner.apply(hours=7)
    assert (found["result"], found["changes"]) == (True, {})
    assert found["comment"] == (
        "web1 has the backup 000001-20251123T150000Z-00000001 at vault, 6.0 hours old"
    )
    assert runner.asked == [("virt.backups", {"name": "web1", "to": None})]


@pytest.mark.parametrize(
    "listed",
    [
        {},
        {"vault": []},
        {"vault": [backup("2025-11-22T15:59:59Z")]},
        {"vault": [backup("2025-11-23T15:00:00Z", wrong="vda: it is gone")]},
        {"vault": [backup("2099-01-01T00:00:00Z")]},
        {"vault": [backup(None)]},
        {"vault": [backup("soon")]},
        {"vault": "x", "unreachable": {"vault": "down"}},
        {"vault": [None, 7]},
    ],
)
def test_else_one_is_made(listed):
    runner = Runner(**listed)
    found = runner.apply(to="vault")
    assert found == {"name": "web1", "result": True, "comment": "made", "changes": {"backup": "x"}}
    assert runner.asked[1] == ("virt.backup", {"name": "web1", "to": "vault", "test": False})


def test_with_test_it_is_only_said():
    runner = Runner()
    assert runner.apply(test=True)["result"] is None
    assert runner.asked[1][1]["test"] is True


def test_one_that_fails_is_no_success():
    runner = Runner()
    runner.made = {"web1": {"result": False, "comment": "the target is full"}, "retcode": 1}
    found = runner.apply()
    assert (found["result"], found["comment"]) == (False, "the target is full")
    runner.made = {"virt": {"result": False, "comment": "no such target"}, "retcode": 1}
    found = runner.apply()
    assert found["result"] is False and "no such target" in found["comment"]


def test_on_a_minion_it_says_where_it_belongs():
    found = backed_up.backed_up(result.StateHost({}, {}, False), "web1", NOW_S)
    assert (found["result"], found["comment"]) == (
        False, "this state is for an orchestration on the master",
    )  # fmt: skip


def test_hours_that_are_none_are_refused():
    with pytest.raises(InvalidInput, match="hours must be a number"):
        Runner().apply(hours="soon")
