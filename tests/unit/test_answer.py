"""What a host's return event means."""

import pytest

from saltvirt import errors
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


def test_down_and_silent():
    with pytest.raises(errors.ConnectionFailed, match="hv1: down"):
        answer.down("hv1").get()
    assert answer.silent("hv1", 7.4).error == "no answer in 7 s"
