"""Every message in a file of high availability can be read again, also by the next version: the
largest and the smallest one of each."""

import dataclasses
import importlib
import json
import pkgutil
import types
import typing
from pathlib import Path

import pytest

pytest.importorskip("salt")
pytest.importorskip("libvirt")

import saltvirt
from saltvirt import schema
from saltvirt.ha.agent import instances
from saltvirt.ha.agent.instances import Instance, InstanceFile

LIBRARY = Path(saltvirt.__file__).parent
PACKAGES = ("agent", "fencing", "manager", "model")


def all_facts():
    for package in PACKAGES:
        for found in pkgutil.iter_modules([str(LIBRARY / "ha" / package)]):
            if found.name != "__main__":
                importlib.import_module(f"saltvirt.ha.{package}.{found.name}")
    waiting, facts = [schema.Message], set()
    while waiting:
        for kind in waiting.pop().__subclasses__():
            waiting.append(kind)
            if kind.__module__.startswith("saltvirt.ha."):
                facts.add(kind)
    return sorted(facts, key=lambda kind: (kind.__module__, kind.__name__))


def full(kind):  # noqa: PLR0911 - a table
    """A value of that type in which nothing is as by default."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return full(next(one for one in inner if one is not type(None)))
    if origin is typing.Annotated:
        return 7
    if origin is dict:
        return {"web1": full(inner[1])}
    if origin in (list, tuple, frozenset):
        return origin([full(inner[0])])
    if kind is typing.Any:
        return {"some": [1, "text"]}
    if isinstance(kind, type) and issubclass(kind, schema.Message):
        return whole(kind)
    return {str: "text", bool: True, int: 7, float: 7.5}[kind]


def whole(kind):
    hints = typing.get_type_hints(kind, include_extras=True)
    told = {one.name for one in schema._keys(kind)}
    found = {
        one.name: full(hints[one.name]) for one in dataclasses.fields(kind) if one.name in told
    }
    if kind.NAMED_BY:
        found[kind.NAMED_BY] = "web1"
    return kind(**found)


def smallest(kind):
    needed = [
        one.name for one in dataclasses.fields(kind)
        if one.default is one.default_factory is dataclasses.MISSING
    ]  # fmt: skip
    every = whole(kind)
    return kind(**{name: getattr(every, name) for name in needed})


def read_again(fact):
    data = json.loads(json.dumps(fact.to_answer()))
    if fact.NAMED_BY:
        data[fact.NAMED_BY] = getattr(fact, fact.NAMED_BY)
    return type(fact).from_answer(data, "a file")


FACTS = all_facts()


def test_there_are_some():
    names = {kind.__name__ for kind in FACTS}
    assert {"SavedFile", "BootFile", "Runtime", "InstanceFile", "DesiredState"} <= names
    assert {"SavedMasterState", "Heartbeat", "LeaderMessage", "HostState", "Registry"} <= names
    assert {"Terms", "EngineReport", "InventoryFile"} <= names


@pytest.mark.parametrize("kind", FACTS, ids=lambda kind: kind.__name__)
def test_what_is_written_can_be_read(kind):
    for fact in (whole(kind), smallest(kind)):
        assert read_again(fact) == fact


@pytest.mark.parametrize("kind", FACTS, ids=lambda kind: kind.__name__)
def test_what_the_next_version_writes_beside_it_is_passed_over(kind):
    fact = whole(kind)
    data = {**json.loads(json.dumps(fact.to_answer())), "of the next version": {"x": -1}}
    if fact.NAMED_BY:
        data[fact.NAMED_BY] = getattr(fact, fact.NAMED_BY)
    assert kind.from_answer(data, "a file") == fact


def test_no_number_that_is_written_is_below_zero():
    """A sign that meant something could not be read again: no agent began any more."""
    for name in ("instances.py", "guests.py"):
        assert "lease=-" not in (LIBRARY / "ha/agent" / name).read_text()


def test_a_lease_that_may_be_held_is_read_again():
    copy = Instance(1, "off", lease=7, lease_unsure=True)
    found = InstanceFile("a", {"web1": copy})
    assert read_again(found) == found and not copy.has_lease


def test_a_lease_that_may_be_held_stays_so_for_the_next_agent(tmp_path):
    path = tmp_path / "guests.json"
    unsure, held = Instance(1, "off", lease=7, lease_unsure=True), Instance(1, "off", lease=8)
    found = instances.InstanceTable(str(path), "a", 5)
    found.put("web1", unsure)
    found.put("db1", held)
    again = instances.InstanceTable(str(path), "a", 5)
    assert (again.get("web1"), again.get("db1"), again.leases()) == (unsure, held, {"db1": 8})
