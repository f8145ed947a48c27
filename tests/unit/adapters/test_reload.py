"""An adapter names what it uses of the library, and imports it when a function uses it."""

import ast
import builtins
import shutil
import sys
import threading

import pytest

import saltvirt
from tests.tools import api
from tests.unit.adapters.test_fresh import package  # noqa: F401 - a fixture

ADAPTERS = [
    path
    for folder in ("_modules", "_runners", "_states")
    for path in sorted((api.REPOSITORY / folder).glob("*.py"))
    if "saltvirt.fresh()" in path.read_text(encoding="utf-8")
]


def held():
    return {name for name in sys.modules if name.startswith("saltvirt.")}


def block(path):
    """What an adapter imports in ``with saltvirt.later()``: (module, name) of each."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.With):
            assert ast.unparse(node.items[0].context_expr) == "saltvirt.later()"
            for one in node.body:
                yield from ((one.module, alias.name) for alias in one.names)


def test_nothing_is_imported_before_it_is_used_and_all_of_it_then(package):  # noqa: F811
    import saltvirt

    with saltvirt.later():
        from saltvirt import names, units
        from saltvirt.host.domain import lookup
    assert held() == set()
    assert not hasattr(names, "__file__")
    assert held() == set()
    assert units.parse_count("4", "cpu") == 4
    assert {"saltvirt.names", "saltvirt.units", "saltvirt.host.domain.lookup"} <= held()
    assert lookup.state_name(1) == "running"


def test_a_query_imports_nothing_of_what_features_do(package):  # noqa: F811
    """Each query asks the features for warnings: their hooks import the rest when they need it."""
    from saltvirt.fleet import client  # noqa: F401
    from saltvirt.operations.access import runner  # noqa: F401
    from saltvirt.operations.cluster import find, hooks, idle_notice  # noqa: F401

    assert len(hooks.installed()) == 2
    unused = ("backup.model", "backup.target", "design", "ha.agent", "host", "pki", "xml")
    assert not {name for name in held() if name.removeprefix("saltvirt.").startswith(unused)}


def test_all_blocks_of_a_file_are_one_group(package):  # noqa: F811
    """Several adapters are published as one file."""
    import saltvirt

    with saltvirt.later():
        from saltvirt import names
    with saltvirt.later():
        from saltvirt import units
    assert names.guest("web1") == "web1"
    assert "saltvirt.units" in held()
    assert units.parse_count("4", "cpu") == 4


def test_what_the_process_holds_already_is_that_module():
    from saltvirt import units as real

    with saltvirt.later():
        from saltvirt import units
    assert units is real


def test_what_is_set_is_set_in_the_module_itself(package):  # noqa: F811
    import saltvirt

    with saltvirt.later():
        from saltvirt.system import paths
    old = paths.STATE
    paths.STATE = "/elsewhere"
    from saltvirt.system import paths as real

    assert real.STATE == "/elsewhere" != old


def test_files_that_a_sync_changed_since_are_not_mixed_in(package):  # noqa: F811
    import saltvirt

    with saltvirt.later():
        from saltvirt import units
    (package / "added.py").write_text("X = 1\n")
    with pytest.raises(saltvirt.importlib.import_module("saltvirt.errors").StaleLibrary):
        units.parse_count("4", "cpu")


def test_the_adapter_of_an_old_library_does_not_use_the_new_one(package):  # noqa: F811
    import saltvirt

    with saltvirt.later():
        from saltvirt import units
    (package / "added.py").write_text("X = 1\n")
    assert saltvirt.fresh() is not saltvirt
    with pytest.raises(Exception, match=r"saltutil.refresh_modules"):
        units.parse_count("4", "cpu")


def test_an_import_that_fails_is_tried_again_at_the_next_use(package):  # noqa: F811
    import saltvirt

    with saltvirt.later():
        from saltvirt import units
    sys.modules["saltvirt.units"] = None
    with pytest.raises(ImportError):
        units.parse_count("4", "cpu")
    del sys.modules["saltvirt.units"]
    assert units.parse_count("4", "cpu") == 4


def test_another_thread_imports_as_ever_meanwhile(package):  # noqa: F811
    import saltvirt

    got = []
    with saltvirt.later():
        thread = threading.Thread(target=lambda: got.append(__import__("saltvirt.units")))
        thread.start()
        thread.join()
    assert "saltvirt.units" in held()
    assert got == [saltvirt]


def test_imports_are_pythons_own_afterwards_also_after_a_failure():
    before = builtins.__import__
    with pytest.raises(RuntimeError), saltvirt.later():
        raise RuntimeError
    assert builtins.__import__ is before


ADAPTER = """
import saltvirt
saltvirt = saltvirt.fresh()
with saltvirt.later():
    from saltvirt import {0}
def go():
    return {0}.WORDS
"""


@pytest.fixture
def loaded(package, tmp_path):  # noqa: F811
    """Loads an adapter that uses a module of the library, as Salt does after each refresh."""
    config, loader = pytest.importorskip("salt.config"), pytest.importorskip("salt.loader")
    opts = config.minion_config(None)
    folder = tmp_path / "modules"
    folder.mkdir()
    opts.update(module_dirs=[str(folder)], grains={"id": "hv1"})

    def load(uses):
        for one in ("before", "after"):
            (package / f"{one}.py").unlink(missing_ok=True)
        (package / f"{uses}.py").write_text(f"WORDS = {uses!r}\n")
        adapter = folder / "virt_tried.py"
        adapter.write_text(ADAPTER.format(uses))
        shutil.rmtree(folder / "__pycache__", ignore_errors=True)
        functions = loader.minion_mods(opts, whitelist=["virt_tried"])
        assert "virt_tried.go" in functions
        return functions

    yield load
    for name in [name for name in sys.modules if name.endswith(".virt_tried")]:
        del sys.modules[name]


def test_an_adapter_that_is_executed_again_needs_nothing_of_an_older_library(loaded):
    """Salt 3008 does so in the module of the first time, as in a run of states that syncs."""
    loaded("before")
    assert loaded("after")["virt_tried.go"]() == "after"


def test_an_adapter_that_is_executed_often_keeps_its_modules_once(loaded):
    for _ in range(5):
        functions = loaded("before")
    import saltvirt

    [group] = saltvirt._groups.values()
    assert [*group] == ["saltvirt.before"]
    assert functions["virt_tried.go"]() == "before"


def test_other_threads_may_import_with_keywords_meanwhile():
    got = []
    with saltvirt.later():
        thread = threading.Thread(
            target=lambda: got.append(__import__("saltvirt.units", fromlist=["units"]))
        )
        thread.start()
        thread.join()
    assert [one.__name__ for one in got] == ["saltvirt.units"]


def test_two_copies_of_the_library_at_once_leave_imports_as_they_were(package):  # noqa: F811
    import saltvirt as old

    real = builtins.__import__
    try:
        one = old.later()
        one.__enter__()
        (package / "added.py").write_text("X = 1\n")
        two = old.fresh().later()
        two.__enter__()
        one.__exit__(None, None, None)
        two.__exit__(None, None, None)
        from saltvirt import units

        assert units.__file__
    finally:
        builtins.__import__ = real


@pytest.mark.parametrize("path", ADAPTERS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_adapters_name_modules_of_the_library_and_nothing_else(path):
    found = list(block(path))
    assert found
    for module, name in found:
        place = api.REPOSITORY.joinpath("_utils", *module.split("."), name)
        assert place.with_suffix(".py").exists(), f"{path.name}: {module}.{name} is no module"
