"""The property that a key declares gets the value of the key."""

from dataclasses import dataclass

from saltvirt.design.put import clear, put
from saltvirt.spec import values
from saltvirt.spec.base import Spec, key
from saltvirt.xml.base import Child, Element, Prop
from saltvirt.xml.kinds import INT


class Inner(Element):
    TAG = "inner"

    limit = Prop("@limit", INT)


class Outer(Element):
    TAG = "outer"

    size = Prop("@size", INT)
    label = Prop("label")
    depth = Prop("part/@depth", INT)
    inner = Child("inner", Inner)


class Special(Outer):
    TAG = "special"


@dataclass
class PartSpec(Spec):
    depth: int | None = key(values.count, xml=Outer.depth)


@dataclass
class OuterSpec(Spec):
    size: int | None = key(values.count, xml=Outer.size)
    name: str | None = key(values.text)
    limit: int | None = key(values.count, xml=Inner.limit)
    part: PartSpec | None = key(PartSpec.parse, xml=PartSpec)  # noqa: RUF009


def parsed(**given):
    return OuterSpec.parse(given, "outer")


def test_only_what_is_given_goes_to_its_own_element():
    outer = Outer(size=7, label="x")
    put(outer, parsed(limit=3, name="ours"))
    assert outer.tostring().strip() == '<outer size="7"><label>x</label></outer>'
    put(outer.inner, parsed(size=8, limit=3))
    assert outer.tostring().strip() == '<outer size="7"><label>x</label><inner limit="3" /></outer>'


def test_a_further_field_is_named_with_its_property():
    outer = Outer()
    put(outer, parsed(size=1, name="ours"), label="name")
    assert outer.tostring().strip() == '<outer size="1"><label>ours</label></outer>'


def test_what_a_user_removes_is_taken_away_with_all_of_a_part():
    outer = Special(size=7, depth=2)
    put(outer, parsed(size=None, part={"depth": 3}))
    assert (outer.size, outer.depth) == (None, 3)
    put(outer, parsed(part={"depth": None}))
    assert outer.depth is None
    outer.depth = 2
    put(outer, parsed(part=None))
    assert outer.tostring().strip() == "<special />"


def test_all_that_keys_set_is_taken_away_and_nothing_else():
    outer = Outer(size=7, label="x", depth=2)
    clear(outer, OuterSpec)
    assert outer.tostring().strip() == "<outer><label>x</label></outer>"
