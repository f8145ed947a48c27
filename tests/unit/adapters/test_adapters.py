"""The adapters as Salt's loader loads them."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("_modules", "_runners", "_states", "_pillar", "_grains", "_engines")
FILES = [path for folder in FOLDERS for path in sorted((ROOT / folder).glob("*.py"))]


def is_module(dotted):
    path = ROOT / "_utils" / dotted.replace(".", "/")
    return path.with_suffix(".py").exists() or path.is_dir()


def imported_functions(path):
    """The names that a file imports from the library and that are neither modules, classes nor
    private."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("saltvirt"):
            for alias in node.names:
                name = alias.asname or alias.name
                is_private = name.startswith("_") or name[0].isupper()
                if not is_private and not is_module(f"{node.module}.{alias.name}"):
                    yield name


def test_no_function_of_the_library_becomes_one_of_salt():
    """The loader gives users every function that it finds in the file, also imported ones."""
    found = {path.name: list(imported_functions(path)) for path in FILES}
    assert {name: names for name, names in found.items() if names} == {}


@pytest.mark.parametrize("folder", ["_modules", "_runners", "_states"])
def test_no_two_files_give_the_same_function(folder):
    seen = {}
    for path in sorted((ROOT / folder).glob("virt*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                assert node.name not in seen, f"{node.name}: {path.name} and {seen[node.name]}"
                seen[node.name] = path.name
