"""What belongs to each optional feature, and its removal from a tree.

``tests/functional/tree/test_features.py`` removes each feature from a copy and tests the rest.
"""

from __future__ import annotations

import ast
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

LIBRARY = "_utils/saltvirt"
ADAPTERS = ("_modules", "_states", "_grains", "_engines", "_runners", "_pillar", "_output")


@dataclass(frozen=True)
class Feature:
    """The parts of a feature. packages: of the library. files: further modules of the library,
    adapters, parts of formulas, pages of the manual and tests, as patterns below the root of the
    tree. Tests that import the feature belong to it, too."""

    packages: tuple[str, ...]
    files: tuple[str, ...]


FEATURES = {
    "ha": Feature(
        ("ha",),
        (
            "_*/virt_ha.py", "_utils/saltvirt/states/ha_*.py", "formulas/libvirt/ha.sls",
            "docs/how-to/ha.md", "docs/explanation/ha-design.md", "docs/diagrams/failover.*",
            "tests/ha", "tests/*/ha", "tests/integration/test_ha*.py", "tests/bench/ha*.py",
        ),
    ),
    "backup": Feature(
        ("backup",),
        (
            "_*/virt_backup.py", "_utils/saltvirt/xml/domain/backup.py",
            "_utils/saltvirt/states/backed_up.py", "_utils/saltvirt/states/restored.py",
            "formulas/virt/backups", "docs/how-to/backups.md", "tests/backup", "tests/*/backup",
            "tests/integration/test_backup*.py", "tests/bench/backup*.py",
        ),
    ),
    "console": Feature(
        ("console", "web"),
        (
            "_*/virt_console.py", "_engines/virt_reach.py", "formulas/virt/page",
            "docs/how-to/consoles.md", "docs/how-to/web.md", "docs/static/page-*",
            "tests/*/console", "tests/*/web", "tests/integration/test_page*.py",
            "tests/integration/test_reach*.py", "tests/bench/page*.py",
        ),
    ),
    "metrics": Feature(
        ("metrics",),
        (
            "_*/virt_metrics.py", "_engines/virt_exporter.py", "formulas/libvirt/metrics.sls",
            "formulas/virt/monitoring", "docs/how-to/metrics.md", "docs/static/dashboard.*",
            "tests/*/metrics", "tests/integration/test_metrics*.py", "tests/functional/metered.py",
            "tests/bench/exporter.py", "tests/perses",
        ),
    ),
}  # fmt: skip


def remove(tree: Path, feature: Feature) -> None:
    """Remove a feature from a tree: its files, the rows of the manual about them, and the tests
    that import any of them. Raises AssertionError if a pattern matches nothing."""
    removed = [f"{LIBRARY}/{name}" for name in feature.packages]
    for pattern in feature.files:
        matching = [str(path.relative_to(tree)) for path in tree.glob(pattern)]
        assert matching, f"{pattern}: no such file"
        removed += matching
    for name in removed:
        path = tree / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    _remove_rows(tree, removed)
    modules = [name.removeprefix(f"{LIBRARY}/").replace("/", ".") for name in removed]
    for path in tree.glob("tests/tools/*.txt"):
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        rest = [line for line in lines if not line.startswith((*removed, *modules))]
        path.write_text("".join(rest), encoding="utf-8")
    tests = [path for path in tree.glob("tests/**/*.py") if path.parent.name != "tools"]
    while broken := [path for path in tests if missing_imports(tree, path)]:
        for path in broken:
            path.unlink()
        tests = [path for path in tests if path not in broken]


def _remove_rows(tree: Path, removed: list[str]) -> None:
    """Remove the rows of tables and the entries of lists that name a removed file."""
    below = [name.removeprefix(f"{LIBRARY}/") for name in removed if name.startswith(LIBRARY)]
    pages = [Path(name).name for name in removed if name.endswith(".md")]
    names = [rf"`{re.escape(name)}[/`.]" for name in [*below, *removed]]
    names += [rf"\b{re.escape(page)}\b" for page in pages]
    row = re.compile(
        rf"^\s*(?:[|\-*]|how-to/|explanation/).*(?:{'|'.join(names)}).*\n", re.MULTILINE
    )
    for path in [*tree.glob("docs/**/*.md"), *tree.glob("*.md")]:
        text = path.read_text(encoding="utf-8")
        path.write_text(row.sub("", text), encoding="utf-8")


def missing_imports(tree: Path, path: Path) -> list[str]:
    """Return the modules of the library and of the tests that a file imports and that the tree does
    not have."""
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return [name for name in names if not _exists(tree, name)]


def _exists(tree: Path, module: str) -> bool:
    """Return whether a module exists, or one that defines the name after the last dot."""
    package, _, name = module.rpartition(".")
    top = module.partition(".")[0]
    if top not in ("saltvirt", "tests") or not package:
        return True
    root = tree / "_utils" if top == "saltvirt" else tree
    place = root.joinpath(*package.split("."))
    if place.with_suffix(".py").exists() or (place / f"{name}.py").exists():
        return True
    if (place / name / "__init__.py").exists():
        return True
    init = place / "__init__.py"
    return init.exists() and name in init.read_text(encoding="utf-8")
