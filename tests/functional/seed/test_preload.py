"""The modules that a minion has loaded before it forks a process for a job."""

import subprocess
import sys

import pytest

from tests.functional.conftest import REPOSITORY

pytest.importorskip("libvirt")
pytest.importorskip("salt")

PROBE = """
import sys
import salt.config, salt.loader
sys.path.insert(0, "_utils")
cli, hypervisor, broken = sys.argv[1:]
if broken == "binding":
    sys.modules["libvirt"] = None
if broken == "file":
    sys.modules["saltvirt.host.provision.create"] = 1  # whatever goes wrong in there
    del sys.modules["saltvirt.host.provision.create"]
    import importlib
    real = importlib.import_module
    def import_module(name, *args):
        if name == "saltvirt.host.provision.create":
            raise SyntaxError("half written")
        return real(name, *args)
    importlib.import_module = import_module
opts = salt.config.minion_config(None)
opts.update(__cli=cli, module_dirs=["_modules"], grains_dirs=["_grains"], grains={"id": "hv1"})
from saltvirt.host.node import detect
detect.detect = lambda machine: {"hypervisor": hypervisor == "yes"}
grains = salt.loader.grain_funcs(opts)
print(grains["virt_host.virt_host"]())
held = {name for name in sys.modules if name.startswith("saltvirt")}
modules = salt.loader.minion_mods(opts)
for name in ("virt.init", "virt.migrate", "virt.volume_infos", "virt.firewall"):
    name in modules
later = {name for name in sys.modules if name.startswith("saltvirt")} - held
print(len(held), len(later))
"""


def probe(cli="salt-minion", hypervisor="yes", broken=""):
    """(what the grain said, how many parts are held, how many a job imports)."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, cli, hypervisor, broken],
        cwd=REPOSITORY, capture_output=True, text=True, check=True,
    )  # fmt: skip
    grain, numbers = done.stdout.strip().splitlines()[-2:]
    return grain, *map(int, numbers.split())


def test_the_jobs_of_a_hypervisors_minion_import_nothing_of_the_library():
    _, held, later = probe()
    assert held > 200
    assert later == 0


@pytest.mark.parametrize(("cli", "hypervisor"), [("salt-call", "yes"), ("salt-minion", "no")])
def test_where_no_jobs_of_ours_are_forked_nothing_is_held(cli, hypervisor):
    _, held, _ = probe(cli, hypervisor)
    assert held < 20


def test_a_minion_that_runs_no_guests_imports_next_to_nothing():
    """Salt loads all modules of a minion that is asked for one that is not there, as the
    pkg.installed of Debian does each time: none of ours needs the library for that."""
    _, _, later = probe(hypervisor="no")
    assert later < 20


RUNNERS = """
import sys
import salt.config, salt.loader
sys.path.insert(0, "_utils")
opts = salt.config.master_config(None)
opts.update(runner_dirs=["_runners"], extension_modules="")
assert "virt.query" in salt.loader.runner(opts)
held = {name for name in sys.modules if name.startswith("saltvirt")}
print(len(held), *(name in held for name in ("saltvirt.operations.create.init",
"saltvirt.ha.manager")))
"""


def test_a_salt_run_imports_what_its_verb_needs_and_no_other():
    """Of each runner the answers of its verbs, and what calls the hosts, are imported at once."""
    done = subprocess.run(
        [sys.executable, "-c", RUNNERS],
        cwd=REPOSITORY, capture_output=True, text=True, check=True,
    )  # fmt: skip
    number, *held = done.stdout.split()
    assert int(number) < 100
    assert held == ["False", "False"]


def test_without_the_binding_nothing_is_held_so_that_it_is_found_when_it_comes():
    _, held, _ = probe(broken="binding")
    assert held < 20


def test_what_a_sync_left_out_is_found_after_the_next_one(tmp_path):
    """Salt's gitfs can miss a file when many ask for it at once. Without its first file the
    library is an empty one to Python; it must not stay so in the minion."""
    library = tmp_path / "saltvirt"
    (library / "host").mkdir(parents=True)
    text = (
        "import sys, runpy; sys.path.insert(0, sys.argv[1])\n"
        "try: runpy.run_path('_grains/virt_host.py')\n"
        "except ImportError as exc: print(exc, 'saltvirt' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", text, str(tmp_path)],
        cwd=REPOSITORY, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip().endswith("run saltutil.sync_all again False")


def test_a_file_that_cannot_be_imported_costs_the_grain_nothing():
    grain, _, _ = probe(broken="file")
    assert grain == "{'virt_host': {'hypervisor': True}}"
