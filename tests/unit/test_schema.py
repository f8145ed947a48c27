"""Messages: how plain data is read, and which key is named if it is invalid."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest

from saltvirt.errors import BadAnswer
from saltvirt.schema import NUMBER_LIMIT, CachedReader, Mark, Message, mismatch, optional, transient


@dataclass(frozen=True)
class Part(Message):
    NAMED_BY: ClassVar[str] = "name"

    name: str
    size_bytes: int
    ready: bool = False


@dataclass(frozen=True)
class Whole(Message):
    ratio: float
    parts: dict[str, Part] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    several: list[int] = field(default_factory=list)
    names: frozenset[str] = frozenset()
    why: str | None = None
    rare: int | None = optional(None)
    labels: dict[str, Any] = optional({})
    here: int = transient(0)
    any: Any = None
    either: str | tuple[str, ...] = optional("")
    maybe: tuple[str, ...] | bool | None = optional(None)
    mark: Mark | None = optional(None)


FULL = {
    "ratio": 1.5, "parts": {"a": {"size_bytes": 3, "ready": True}}, "words": ["x", "y"],
    "several": [1, 2], "names": ["n", "o"], "why": "full", "rare": 0, "labels": {"a": [1]},
    "any": {"x": None},
}  # fmt: skip


def test_plain_data_comes_and_goes():
    found = Whole.from_answer(FULL, "hv1")
    assert found == Whole(
        1.5, {"a": Part("a", 3, True)}, ("x", "y"), [1, 2], frozenset("no"), "full", 0, {"a": [1]},
        any={"x": None},
    )  # fmt: skip
    assert found.to_answer() == FULL
    assert Whole.from_answer(json.loads(json.dumps(FULL)), "hv1") == found


@pytest.mark.parametrize("mark", [0, 2**63, 2**64 - 1, None])
def test_what_is_only_compared_has_64_bits(mark):
    found = Whole.from_answer({"ratio": 1, "mark": mark}, "hv1")
    assert found.mark == mark
    assert Whole.from_answer(found.to_answer(), "hv1") == found


@pytest.mark.parametrize("mark", [-1, 2**64, 1.5, 7.0, True, "7"])
def test_what_is_only_compared_is_a_whole_number(mark):
    assert mismatch({"ratio": 1, "mark": mark}, Whole) == "mark is not a number from 0"


def test_the_other_side_may_be_of_another_version():
    newer = {
        **FULL,
        "of another": 1,
        "here": 7,
        "parts": {"a": {"size_bytes": 3, "speed": "x"}},
    }
    found = Whole.from_answer(newer, "hv1")
    assert (found.here, found.parts) == (0, {"a": Part("a", 3)})
    older = Whole.from_answer({"ratio": 1}, "hv1")
    assert older == Whole(1.0)
    assert list(older.to_answer()) == ["ratio", "parts", "words", "several", "names", "why", "any"]


@pytest.mark.parametrize(
    ("wrong", "where"),
    [
        ({"ratio": "1"}, "ratio is not a number from 0"), ({"ratio": True}, "ratio is not a"),
        ({"ratio": -1}, "ratio is not"), ({"ratio": NUMBER_LIMIT}, "ratio is not"),
        ({"ratio": float("nan")}, "ratio is not"), ({"parts": []}, "parts is not a mapping"),
        ({"parts": {1: {}}}, "parts is not a mapping"), ({"parts": {"a": 1}}, "parts.a is"),
        ({"parts": {"a": {}}}, "parts.a is not complete: size_bytes is missing"),
        ({"parts": {"a": {"size_bytes": 1, "ready": 1}}}, "parts.a.ready is not true or false"),
        ({"words": "x"}, "words is not a list"), ({"words": ["x", 1]}, "words.1 is not text"),
        ({"several": [1.5, None]}, "several.1 is not"), ({"names": {"a": 1}}, "names is not a"),
        ({"why": 1}, "why is not text"), ({"rare": "x"}, "rare is not"),
        ({"labels": None}, "labels is not a mapping"),
        ({"either": None}, "either is not a list"), ({"either": [1]}, "either.0 is not text"),
        ({"maybe": "x"}, "maybe is not true or false"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_with_its_key_and_whose_it_is(wrong, where):
    with pytest.raises(BadAnswer) as caught:
        Whole.from_answer({**FULL, **wrong}, "hv1")
    assert caught.value.text.startswith(f"hv1: {where}")
    assert mismatch({**FULL, **wrong}, Whole).startswith(where)


@pytest.mark.parametrize(
    ("either", "maybe", "found"),
    [("x", [], ("x", ())), ([], True, ((), True)), (["x"], None, (("x",), None))],
)
def test_one_of_several_types(either, maybe, found):
    whole = Whole.from_answer({**FULL, "either": either, "maybe": maybe}, "hv1")
    assert (whole.either, whole.maybe) == found
    assert whole.to_answer()["either"] == either


@pytest.mark.parametrize("data", [None, [], "x", 1])
def test_what_is_no_mapping_is_no_fact(data):
    with pytest.raises(BadAnswer, match=r"^web1\.json: it is not a mapping$"):
        Whole.from_answer(data, "web1.json")


def test_what_fits_is_no_misfit():
    assert mismatch(FULL, Whole) is None
    assert mismatch({}, Whole) == "it is not complete: ratio is missing"


def test_what_comes_again_is_read_again_only_where_it_is_another_object():
    again = CachedReader(Whole)
    one = again.read(FULL, "hv1")
    same = again.read({**FULL, "why": "no"}, "hv1")
    assert same == Whole.from_answer({**FULL, "why": "no"}, "hv1")
    assert same.parts is one.parts
    equal = again.read(json.loads(json.dumps(FULL)), "hv1")
    assert equal == one and equal.parts is not one.parts


def test_what_comes_again_is_refused_as_what_comes_once():
    again = CachedReader(Whole)
    again.read(FULL, "hv1")
    for wrong in ({**FULL, "words": 7}, {key: FULL[key] for key in FULL if key != "ratio"}):
        with pytest.raises(BadAnswer) as found:
            again.read(wrong, "hv1")
        with pytest.raises(BadAnswer) as once:
            Whole.from_answer(wrong, "hv1")
        assert str(found.value) == str(once.value)
    assert again.read(FULL, "hv1") == Whole.from_answer(FULL, "hv1")
