"""A host whose Salt lacks the libvirt binding: every function says so, and what mends it."""

import json
import subprocess
import sys

import pytest

from tests.functional.conftest import REPOSITORY
from tests.tools import api

pytest.importorskip("salt")

CALLS = """
import json, sys
sys.modules["libvirt"] = None  # as if it were not installed
import salt.config, salt.loader
opts = salt.config.minion_config(None)
opts["module_dirs"] = [sys.argv[1]]
opts["grains"] = {"id": "hv1", "kernel": "Linux"}
virt = salt.loader.minion_mods(opts, context={})
answers = {}
for name in json.loads(sys.argv[2]):
    try:
        answers[name] = repr(virt["virt." + name]())
    except Exception as exc:
        answers[name] = f"{type(exc).__name__}: {exc}"
print(json.dumps(answers))
"""
FREE = {f.name for f in api.ours("modules.virt") if f.path == "_modules/virt_tls.py"}


def test_every_function_names_the_python_and_the_command():
    names = sorted({function.name for function in api.ours("modules.virt")} - FREE)
    done = subprocess.run(
        [sys.executable, "-c", CALLS, str(REPOSITORY / "_modules"), json.dumps(names)],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
        env={"PYTHONPATH": f"{REPOSITORY}:{REPOSITORY}/_utils"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout.splitlines()[-1])
    assert sorted(answers) == names
    for name, answer in answers.items():
        assert answer.startswith("BindingMissing: the libvirt binding is missing in"), name
        assert f"{sys.executable} -m pip install libvirt-python" in answer, name
        assert "import of libvirt halted" in answer, name  # the ImportError itself


def test_where_the_binding_is_it_is_silent(virt):
    assert virt["virt.virt_type"].__module__ != "salt.loaded.ext.module.virt_binding"
    assert virt["virt.is_hyper"]() in (True, False)


def test_each_file_is_found_whichever_was_loaded_before():
    """One file that loads not makes Salt's lazy loader give up on the others of its name."""
    from tests.functional.conftest import load

    for function in {f.path: f for f in api.ours("modules.virt")}.values():
        virt = load("test:///default")
        assert callable(virt["virt.nesthash"])
        assert callable(virt[f"virt.{function.name}"])
