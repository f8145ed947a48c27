"""``virt.backed_up`` reports the answer of the runner's ``virt.backup_due`` about one guest."""

import pytest

from saltvirt.states import backed_up, result


class Runner:
    """The master's runner, which answers that of web1."""

    def __init__(self, answer):
        self.answer, self.asked = answer, []

    def __call__(self, verb, kwarg):
        self.asked.append((verb, kwarg))
        return self.answer

    def apply(self, name="web1", test=False, **given):
        host = result.StateHost({"saltutil.runner": self}, {}, test)
        return backed_up.backed_up(host, name, **given)


def said(**about):
    return {"data": {"web1": about}, "outputter": "x"}


def test_a_young_one_is_left():
    runner = Runner(said(result=True, comment="web1 has the backup 7 at vault", changes={}))
    found = runner.apply(hours=7, to="vault")
    assert (found["result"], found["changes"]) == (True, {})
    assert found["comment"] == "web1 has the backup 7 at vault"
    asked = {"guests": ["web1"], "hours": 7, "to": "vault", "test": False}
    assert runner.asked == [("virt.backup_due", asked)]


def test_else_one_is_made():
    runner = Runner(said(result=True, comment="made", changes={"backup": "x"}))
    found = runner.apply()
    assert found == {"name": "web1", "result": True, "comment": "made", "changes": {"backup": "x"}}


def test_with_test_it_is_only_said():
    runner = Runner(said(result=None, comment="it would be", changes={"backup": None}))
    found = runner.apply(test=True)
    assert (found["result"], runner.asked[0][1]["test"]) == (None, True)


def test_a_name_is_no_pattern():
    runner = Runner(said(result=True, comment=""))
    runner.apply("a[b]*")
    assert runner.asked[0][1]["guests"] == ["a[[]b][*]"]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (said(result=False, comment="the target is full", changes={}), "the target is full"),
        ({"data": {"hv1": {"comment": "hv1 is silent", "result": False}}}, "hv1 is silent"),
        ({"data": {"virt": {"result": False, "comment": "no such target"}}}, "no such target"),
    ],
)
def test_what_fails_is_no_success_and_the_verb_says_why(answer, words):
    found = Runner(answer).apply()
    assert (found["result"], found["comment"]) == (False, words)


@pytest.mark.parametrize("answer", [{"data": [7]}, {"data": {"hv1": {"comment": ""}}}, "x", None])
def test_what_says_nothing_of_it_is_no_answer(answer):
    found = Runner(answer).apply()
    assert found["result"] is False
    where = "This state is for an orchestration on the master"
    assert found["comment"] == f"virt.backup_due gave no answer: {answer}. {where}"


def test_on_a_minion_it_says_where_it_belongs():
    found = backed_up.backed_up(result.StateHost({}, {}, False), "web1")
    assert (found["result"], found["comment"]) == (
        False, "this state is for an orchestration on the master",
    )  # fmt: skip
