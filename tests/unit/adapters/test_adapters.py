"""What Salt's loader would see in the adapters."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("_modules", "_runners", "_states", "_pillar", "_grains", "_engines")
FILES = [path for folder in FOLDERS for path in sorted((ROOT / folder).glob("*.py"))]


def is_module(dotted):
    path = ROOT / "_utils" / dotted.replace(".", "/")
    return path.with_suffix(".py").exists() or path.is_dir()


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_no_function_of_the_library_becomes_one_of_salt(path):
    """The loader gives users every function that it finds in the file, also imported ones."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("saltvirt"):
            for alias in node.names:
                name = alias.asname or alias.name
                allowed = (
                    is_module(f"{node.module}.{alias.name}")
                    or name.startswith("_")
                    or name[0].isupper()
                )
                assert allowed, f"{path.name} would give users virt.{name}"


@pytest.mark.parametrize("folder", ["_modules", "_runners", "_states"])
def test_no_two_files_give_the_same_function(folder):
    seen = {}
    for path in sorted((ROOT / folder).glob("virt*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                assert node.name not in seen, f"{node.name}: {path.name} and {seen[node.name]}"
                seen[node.name] = path.name
