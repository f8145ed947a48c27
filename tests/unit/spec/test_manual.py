"""docs/reference/definitions.md names every key that users can write."""

import importlib
import pkgutil
from pathlib import Path

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


def test_each_key_is_explained():
    text = MANUAL.read_text(encoding="utf-8")
    headings = "\n".join(line for line in text.splitlines() if line.startswith("### "))
    missing = {
        (of, key)
        for of, key in keys()
        if not any(f"`{key}{end}" in text for end in "`:") and key not in headings
    }
    assert {pair for pair in missing if pair[1] not in ELSEWHERE} == set()


def test_the_table_of_pools():
    text = MANUAL.read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    rows = {cell[0]: cell[1:] for cell in cells if len(cell) == 3}
    for name, kind in pool.TYPES.items():
        needs, may = rows[name]
        assert needs == ", ".join(f"`{word}`" for word in kind.required)
        assert {word.strip("`") for word in may.split(", ") if word} == set(kind.optional)
