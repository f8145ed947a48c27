"""The meaning of a host's return event."""

import pytest

from saltvirt import errors
from saltvirt.answers.guest_calls import LIST_STATES
from saltvirt.fleet import answer


def failed(text):
    return answer.from_return("hv1", {"return": text, "retcode": 1, "success": False})


def test_data():
    assert answer.from_return("hv1", {"return": {}, "retcode": 0, "success": True}).get() == {}
    assert answer.from_return("hv1", {"return": None}).get() is None


@pytest.mark.parametrize(
    ("said", "kind", "text"),
    [
        ("ERROR: no such disk", errors.OperationFailed, "hv1: no such disk"),
        ("ERROR: refused: full", errors.Refused, "refused: hv1: full"),
        ("ERROR: refused: hv1: full", errors.Refused, "refused: hv1: full"),
        ("'virt.x' is not available.", errors.OperationFailed, "hv1: 'virt.x' is not available."),
        ("two\n lines", errors.OperationFailed, "hv1: two lines"),
    ],
)
def test_errors_are_one_line_with_the_host(said, kind, text):
    with pytest.raises(kind) as caught:
        failed(said).get()
    assert caught.value.text == text


def test_a_traceback_is_not_shown():
    said = "It raised: Traceback (most recent call last):\n  x\nKeyError: 'ret'"
    assert failed(said).error == (
        "internal error: KeyError: 'ret' (the host's minion log has the traceback)"
    )


@pytest.mark.parametrize("said", [{"retcode": 1}, {"success": False}])
def test_what_salt_calls_failed_is_no_data(said):
    assert answer.from_return("hv1", {"return": "no", "retcode": 0, **said}).error == "no"


def test_of_several_calls_one_that_has_no_answer_failed():
    whole = answer.Answer("hv1", data=[{"return": 1}, None])
    first, second = answer.split_answers(whole, "virt.start", 2)
    assert (first.data, second.data, second.kind) == (1, None, answer.FAILED)


def test_down_and_silent():
    """Of one without a connection the master knows no more, but what it said that is no answer."""
    for kind, word in ((answer.FAILED, "down: no connection"), (answer.BAD, "not its key")):
        ping = answer.Answer("hv1", error="not its key", kind=kind)
        assert word in answer.down("hv1", ping).error
    with pytest.raises(errors.ConnectionFailed, match="hv1: down"):
        answer.down("hv1").get()
    assert answer.silent("hv1", 7.4).error == "no answer in 7 s"


def test_each_way_of_giving_no_answer_has_its_kind_and_its_words():
    told = {
        answer.silent("hv1", 14.6): ("no answer", "no answer in 15 s"),
        answer.silent("hv1", 15, busy=True): ("no answer", "libvirt or the storage may hang"),
        answer.stalled("hv1", 900): ("no answer", "no progress for 900 s (virt:stall_timeout)"),
        answer.endless("hv1", 86400): ("no answer", "at work for 86400 s (virt:job_timeout)"),
        answer.lost("hv1"): (
            "lost",
            "finished the job, but the answer did not reach the master",
        ),
        answer.unproven("hv1"): (
            "bad",
            "Salt Virt is missing there or has another version (run salt hv1",
        ),
    }
    for one, (kind, words) in told.items():
        assert (one.host, one.data, one.kind, one.ok) == ("hv1", None, kind, False)
        assert words in one.error
        with pytest.raises(errors.ConnectionFailed, match="hv1: "):
            one.get()
    assert "hang" not in answer.silent("hv1", 15).error


def test_an_answer_of_another_type_is_an_error_of_that_host():
    data = {"return": ["web1"]}
    bad = answer.from_return("hv1", data).parse(LIST_STATES.function, LIST_STATES.read)
    assert (bad.kind, bad.data) == ("bad", None)
    assert "its answer to virt.vm_state is not what this version expects" in bad.error
    data = {"return": {"web1": "running"}}
    good = answer.from_return("hv1", data).parse(LIST_STATES.function, LIST_STATES.read)
    assert (good.kind, good.error, good.data) == (None, None, {"web1": "running"})


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (7, "failed: 7"),
        (None, "failed: None"),
        (["x", {"a": 1}], "failed: ['x', {'a': 1}]"),
        ("ERROR: a\n\n  b \n", "a b"),
        ("a\n \nb", "a b"),
        ("\n \n", "failed"),
        ("", "failed"),
    ],
)
def test_what_failed_is_one_line_whatever_it_is(said, line):
    found = answer.from_return("hv1", {"return": said, "retcode": 1})
    assert (found.kind, found.error) == ("failed", line)
