"""Each optional feature can be removed: the rest of the tree does not need it."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.tools import api, features

FOLDERS = (
    *(folder for folder in features.ADAPTERS), "_utils", "docs", "formulas", "tests",
)  # fmt: skip
# in the tree without the feature: imports each module of the library, and each adapter with all
# modules that it uses
IMPORT_ALL = """
import contextlib, importlib, importlib.util, pathlib, pkgutil, sys
import saltvirt
names = [module.name for module in pkgutil.walk_packages(saltvirt.__path__, "saltvirt.")]
paths = [path for folder in sys.argv[1:] for path in pathlib.Path(folder).glob("*.py")]
saltvirt.later = contextlib.nullcontext
for name in [*names, *paths]:
    try:
        if isinstance(name, str):
            importlib.import_module(name)
        else:
            spec = importlib.util.spec_from_file_location(f"adapter_{name.stem}", name)
            spec.loader.exec_module(importlib.util.module_from_spec(spec))
    except ModuleNotFoundError as exc:
        if exc.name.startswith("saltvirt"):
            raise
from saltvirt.host import hooks
hooks.installed()
"""
# what the library's own tests and the manual's say without delay
QUICK = ("tests/unit/tree/test_layers.py", "tests/unit/answers")


@pytest.fixture(params=features.FEATURES, ids=str)
def rest(request, tmp_path):
    """A copy of the tree without one feature."""
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc", "venv")
    for name in FOLDERS:
        shutil.copytree(api.REPOSITORY / name, tmp_path / name, ignore=ignored, symlinks=True)
    for path in api.REPOSITORY.iterdir():
        if path.is_file() and not path.name.startswith(".git"):
            shutil.copy2(path, tmp_path / path.name)
    features.remove(tmp_path, features.FEATURES[request.param])
    return tmp_path


def run(tree, *argv):
    """Run Python in a tree; return what it prints. An exit code fails the test."""
    environment = {**os.environ, "PYTHONPATH": f"{tree}:{tree / '_utils'}"}
    done = subprocess.run(
        [sys.executable, *argv],
        cwd=tree, env=environment, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def check_rest(tree, *arguments):
    """Run tests of a tree."""
    return run(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments)


def test_the_rest_imports_nothing_of_a_feature(rest):
    files = [
        path for name in ("_utils", *features.ADAPTERS) for path in (rest / name).rglob("*.py")
    ]
    missing = {path: features.missing_imports(rest, path) for path in files}
    assert {path: names for path, names in missing.items() if names} == {}
    run(rest, "-c", IMPORT_ALL, *features.ADAPTERS)
    run(rest, "-m", "tests.tools.docs")
    check_rest(rest, *QUICK)


# the rules of rights, and the manual's table of syndics, name the verbs of all features
OF_ALL_FEATURES = (
    "tests/unit/fleet/test_syndic.py::test_the_manual_says_of_each_verb_what_it_does_over_a_syndic",
    "tests/unit/rights/test_grants.py::test_no_rule_is_of_a_verb_that_is_not_there",
    "tests/unit/rights/test_grants.py::test_salt_loads_nothing_from_the_runners_but_these",
)


@pytest.mark.slow
def test_the_unit_tests_of_the_rest_pass_without_a_feature(rest):
    run(rest, "-m", "tests.tools.docs")
    check_rest(rest, "tests/unit", *(f"--deselect={name}" for name in OF_ALL_FEATURES))
