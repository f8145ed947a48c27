"""A host whose Salt lacks the libvirt binding: every function reports it with the remedy."""

import ast
import json
import subprocess
import sys

import pytest

from tests.functional.conftest import REPOSITORY, load
from tests.tools import api

pytest.importorskip("salt")

CALLS = """
import json, sys
sys.modules["libvirt"] = None  # as if it were not installed
import salt.config, salt.loader
opts = salt.config.minion_config(None)
opts["module_dirs"] = [sys.argv[1]]
opts["grains"] = {"id": "hv1", "kernel": "Linux", "virtual": "physical"}
opts["states_dirs"] = [sys.argv[1].replace("_modules", "_states")]
virt = salt.loader.minion_mods(opts, context={})
if sys.argv[3] == "states":
    virt = salt.loader.states(opts, virt, {}, None)
answers = {}
for name, args in json.loads(sys.argv[2]).items():
    try:
        answers[name] = repr(virt["virt." + name](*args))
    except Exception as exc:
        answers[name] = f"{type(exc).__name__}: {exc}"
print(json.dumps(answers))
"""
# a good value for each parameter that must be given
VALUES = {
    "memory": 64, "vcpus": 1, "path": __file__, "bridge": "br0", "forward": "bridge", "size": 8,
    "cpu": 1, "mem": 64, "ptype": "mpath", "source": "pool://images/i.qcow2", "places": {},
}  # fmt: skip
# they say that they are gone, or read a file
FREE = {
    *("seed_non_shared_migrate", "migrate_non_shared", "migrate_non_shared_inc"),
    "migrate_unfinished",
}


def asks_libvirt(function):
    words = (":param connection:", ":param kwargs: ``connection``")
    return any(word in function.docstring for word in words) and function.name not in FREE


def without_binding(calls, kind="modules"):
    done = subprocess.run(
        [sys.executable, "-c", CALLS, str(REPOSITORY / "_modules"), json.dumps(calls), kind],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
        env={"PYTHONPATH": f"{REPOSITORY}:{REPOSITORY}/_utils"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def arguments(function):
    given = (p for p in function.parameters if "=" not in p and not p.startswith("*"))
    return [VALUES.get(name, "x") for name in given]


def test_every_function_names_the_python_and_the_command():
    """Salt's own words were that the function is not available."""
    calls = {f.name: arguments(f) for f in api.ours("modules.virt") if asks_libvirt(f)}
    assert len(calls) > 75
    answers = without_binding(calls)
    assert sorted(answers) == sorted(calls)
    for name, answer in answers.items():
        assert answer.startswith("BindingMissing: the libvirt binding is missing in"), (
            f"{name}: {answer}"
        )
        assert f"{sys.executable} -m pip install libvirt-python" in answer, name
        assert "import of libvirt halted" in answer, name  # the ImportError itself


def test_every_state_fails_with_the_python_and_the_command():
    calls = {f.name: arguments(f) for f in api.ours("states.virt") if asks_libvirt(f)}
    calls["running"] = ["x"]  # its parameters are said elsewhere
    assert {"defined", "stopped", "snapshot", "on_host"} < set(calls)
    for name, answer in without_binding(calls, "states").items():
        assert "'result': False" in answer, f"{name}: {answer}"
        assert f"the libvirt binding is missing in {sys.executable}" in answer, name


def test_what_needs_no_binding_is_there_whatever_was_called_before():
    """A file that loads not makes Salt's lazy loader give up on the others of its name."""
    answers = without_binding({"list_domains": [], "tls_info": ["/nowhere"], "is_hyper": []})
    assert answers["list_domains"].startswith("BindingMissing")
    assert "certs" in answers["tls_info"]
    assert answers["is_hyper"] in ("True", "False")


def test_no_file_of_virt_refuses_to_load():
    """One that returns False from __virtual__ hides the others: see above."""
    for path in sorted((REPOSITORY / "_modules").glob("virt*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name == "__virtual__":
                assert "return False" not in ast.unparse(node), path.name


def test_each_file_is_found_whichever_was_loaded_before():
    for function in {f.path: f for f in api.ours("modules.virt")}.values():
        virt = load("test:///default")
        assert callable(virt["virt.nesthash"])
        assert callable(virt[f"virt.{function.name}"])


def test_without_the_binding_there_is_no_version_of_libvirts_library(monkeypatch):
    from saltvirt.host import connection

    assert connection.library_version().count(".") == 2
    monkeypatch.setattr(connection, "IMPORT_ERROR", ImportError("no module named libvirt"))
    assert connection.library_version() is None
