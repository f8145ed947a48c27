"""docs/reference/definitions.md names every key that users can write."""

import importlib
import pkgutil
from pathlib import Path

import pytest

import saltvirt.spec
from saltvirt.spec import features, guest, pool
from saltvirt.spec.base import Spec

MANUAL = Path(__file__).resolve().parents[3] / "docs" / "reference" / "definitions.md"


def keys():
    for module in pkgutil.iter_modules(saltvirt.spec.__path__):
        loaded = importlib.import_module(f"saltvirt.spec.{module.name}")
        for value in vars(loaded).values():
            own = isinstance(value, type) and value.__module__ == loaded.__name__
            if own and issubclass(value, Spec):
                for key in value.keys():  # noqa: SIM118 - a method of Part
                    yield value.__name__, key
    yield from (("guest", word) for word in guest.arguments())
    yield from (("features", word) for word in (*features.SWITCHES, *features.VALUES))


# the words of a profile, and Salt's other names of hypervisor, in virt.init's own manual
ELSEWHERE = {"disk", "disk_profile", "nic", "nic_profile", "hypervisor_type", "vm_type"}


@pytest.mark.parametrize(("of", "key"), sorted(set(keys())))
def test_a_key_is_explained(of, key):
    text = MANUAL.read_text(encoding="utf-8")
    headings = [line for line in text.splitlines() if line.startswith("### ")]
    known = any(f"`{key}{end}" in text for end in "`:") or any(key in line for line in headings)
    assert known or key in ELSEWHERE


def test_the_table_of_pools():
    text = MANUAL.read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    rows = {cell[0]: cell[1:] for cell in cells if len(cell) == 3}
    for name, kind in pool.TYPES.items():
        needs, may = rows[name]
        assert needs == ", ".join(f"`{word}`" for word in kind.required)
        assert {word.strip("`") for word in may.split(", ") if word} == set(kind.optional)
