"""A long-lived process does not combine an old and a new library."""

import importlib
import os
import sys

import pytest


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A copy of the real package, alone in sys.modules for this test."""
    import shutil
    from pathlib import Path

    source = Path(__file__).resolve().parents[3] / "_utils" / "saltvirt"
    shutil.copytree(source, tmp_path / "saltvirt", ignore=shutil.ignore_patterns("__pycache__"))
    kept = {n: m for n, m in sys.modules.items() if n.split(".")[0] == "saltvirt"}
    for name in kept:
        del sys.modules[name]
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    yield tmp_path / "saltvirt"
    for name in [n for n in sys.modules if n.split(".")[0] == "saltvirt"]:
        del sys.modules[name]
    sys.modules.update(kept)


def test_unchanged_files_are_not_imported_again(package):
    import saltvirt

    assert saltvirt.fresh() is saltvirt
    saltvirt.check()


def test_a_changed_file_is_imported_again_with_its_submodules(package):
    import saltvirt
    import saltvirt.errors

    old = saltvirt.errors
    (package / "errors.py").write_text((package / "errors.py").read_text() + "\nNEW = 1\n")
    new = saltvirt.fresh()
    from saltvirt import errors

    assert new is not saltvirt
    assert errors is not old
    assert errors.NEW == 1
    assert new.fresh() is new


def test_the_old_copy_refuses_and_says_what_to_do(package):
    import saltvirt
    from saltvirt.errors import StaleLibrary

    (package / "added.py").write_text("X = 1\n")
    with pytest.raises(StaleLibrary, match=r"saltutil.refresh_modules"):
        saltvirt.check()


def test_folders_that_vanish_while_it_looks_are_no_failure(package, monkeypatch):
    """A sync removes the files of the version before, and the folders that are empty then."""
    import saltvirt

    listed = os.scandir

    def scandir(folder):
        if os.path.basename(folder) == "xml":
            raise FileNotFoundError(folder)
        return listed(folder)

    monkeypatch.setattr(os, "scandir", scandir)
    assert saltvirt.stale()


def test_what_python_keeps_beside_the_sources_is_not_looked_at(package, monkeypatch):
    import saltvirt

    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "odd.py").write_text("")
    assert not saltvirt.stale()
