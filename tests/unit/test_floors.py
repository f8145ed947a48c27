"""The floors of the library: who may import whom (docs: "The library's floors")."""

import ast
import sys
from pathlib import Path

import pytest

LIBRARY = Path(__file__).resolve().parents[2] / "_utils" / "saltvirt"
FLOOR = {
    "errors": 0, "plain": 0, "units": 0, "names": 0, "settings": 0, "spec": 0, "xml": 0,
    "design": 0, "diff": 0, "placement": 0, "migration": 0, "render": 0, "revert": 0, "states": 0,
    "host": 1, "hostnet": 1, "images": 1, "seed": 1,
    "fleet": 2, "minion": 2, "operations": 2, "pki": 2,
}  # fmt: skip
FOREIGN = {0: set(), 1: {"libvirt", "libvirt_qemu"}, 2: {"salt", "cryptography"}}
MAY_USE_FLOORS = {0: {0}, 1: {0, 1}, 2: {0, 2}}
# what would give floor 0 a clock, files or processes
IMPURE = {"os", "time", "subprocess", "socket", "pathlib", "tempfile", "shutil", "random"}
FILES = sorted(LIBRARY.rglob("*.py"))


def room(path):
    return path.relative_to(LIBRARY).parts[0].removesuffix(".py")


def imports(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module == "saltvirt":
                yield from (f"saltvirt.{alias.name}" for alias in node.names)
            else:
                yield node.module


# the package itself belongs to no floor
ON_FLOORS = [path for path in FILES if path != LIBRARY / "__init__.py"]


@pytest.mark.parametrize("path", ON_FLOORS, ids=lambda p: str(p.relative_to(LIBRARY)))
def test_imports_stay_on_their_floor(path):
    floor = FLOOR[room(path)]
    for name in imports(path):
        top, _, rest = name.partition(".")
        if top == "saltvirt":
            if rest:
                assert FLOOR[rest.split(".")[0]] in MAY_USE_FLOORS[floor], f"{path} imports {name}"
        elif room(path) == "errors":
            assert name == "salt.exceptions"
        elif top in sys.stdlib_module_names:
            assert floor != 0 or top not in IMPURE, f"{path}: {name} is not pure"
        else:
            assert top in FOREIGN[floor], f"{path} imports {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(LIBRARY)))
def test_the_library_knows_no_dunders_of_salt(path):
    names = {n.id for n in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(n, ast.Name)}
    dunders = {"__salt__", "__opts__", "__grains__", "__pillar__", "__context__", "__jid_event__"}
    assert not names & dunders
