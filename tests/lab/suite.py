"""Run the tests: all of them where a lab is possible, otherwise the unit tests."""

import os
import tempfile
from concurrent.futures import ThreadPoolExecutor

from tests.lab import kvm, layers, packages, paths, process, rerun, skips, testenv
from tests.lab.recipe import Recipe
from tests.lab.sh import run

# what takes longest begins first; single files of that in tests/conftest.py
# those of functional last: tests of open files would count what servers of pages leave behind
ALL = ("tests/integration", "tests/rootless", "tests/unit", "tests/functional")
# each has up to two labs
MOST_WORKERS, WORKER_GIB = 4, 4
LINT = (
    ("ruff", "check", "."), ("ruff", "format", "--check", "."), ("mypy",), ("tests.tools.commits",),
)  # fmt: skip


def everything(arguments, say):
    """Lint the tree while what is missing is prepared, and run all tests; the exit code.

    With ``--rerun-failed`` among the arguments each failed test is run once more, alone.
    """
    again = rerun.OPTION in arguments
    arguments = [word for word in arguments if word != rerun.OPTION]
    reason = packages.why_not()
    if reason:
        say(f"only the unit tests run: {reason}")
        return lint([], say) or pytest(["tests/unit", *arguments], say)
    packages.ensure(say, packages.PYTHON)
    there = [folder for folder in ALL if (paths.REPOSITORY / folder).exists()]
    with ThreadPoolExecutor() as pool:
        prepared = pool.submit(prepare, say)
        code = lint([], say)
        if not code:
            compile_tests(there, say)
        prepared.result()
    arguments = [*there, "--durations=15", *side_by_side(), *arguments]
    if code:
        return code
    return run_twice(arguments, say) if again else strictly(arguments, say)


def strictly(arguments, say):
    """Run pytest so that a test that was skipped for want of something fails the run."""
    return pytest(arguments, say, {skips.STRICT: "1"})


def run_twice(arguments, say):
    """Run pytest, and each failed test once more by itself; the exit code of both runs."""
    with tempfile.TemporaryDirectory(prefix="salt-virt-failed-") as folder:
        cache = ["-o", f"cache_dir={folder}"]
        code = strictly([*cache, *arguments], say)
        failed = rerun.recorded(folder)
    return rerun.second_run(code, failed, lambda test: strictly([test], say), say)


def lint(arguments, say):
    """Run ruff, mypy --strict and the check of commit messages. Return the first bad exit code."""
    codes = (module(name, [*words, *arguments], say) for name, *words in LINT)
    return next(filter(None, codes), 0)


def prepare(say):
    """Install what the tests call, and build what a lab is made of."""
    packages.ensure(say)
    kvm.tell_the_library(layers.layers(Recipe(), say).image)


def compile_tests(folders, say):
    """Have the tests and what they import compiled, if this tree never was: each worker would
    compile all of it."""
    if testenv.bytecode().exists():
        return
    argv = [testenv.python(say), "-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only"]
    env = {**os.environ, **testenv.compiling()}
    run([*argv, *folders], check=False, env=env, cwd=paths.REPOSITORY)


def side_by_side():
    """pytest's arguments for some workers, each with labs of its own; none in a kept lab.

    Two more than there are cores: half of a lab's time is waiting, for Salt's time-outs and for
    guests that boot. Where memory is scarce, fewer.
    """
    if os.environ.get("SALTVIRT_LAB_KEEP") == "1":
        return []
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**30
    workers = max(1, min((os.cpu_count() or 1) + 2, MOST_WORKERS, gib // WORKER_GIB))
    return ["-n", str(workers), "--dist", "loadfile", "--no-loadscope-reorder"]


def pytest(arguments, say, also=None):
    """Run pytest in the tests' environment; its exit code. What its tests call is installed
    first where we may. also: more of the environment."""
    if not packages.why_not() and not only_unit(arguments):
        packages.ensure(say)
    return module("pytest", arguments, say, {**testenv.compiling(), **(also or {})})


def only_unit(arguments):
    """Are all the paths among pytest's arguments below tests/unit?"""
    named = [word for word in arguments if word.startswith("tests/")]
    return bool(named) and all(word.startswith("tests/unit") for word in named)


def module(name, arguments, say, also=None):
    """Run a module of the tests' environment; its exit code."""
    argv = [str(testenv.python(say)), "-m", name, *arguments]
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **(also or {})}
    return process.run_bound(argv, cwd=paths.REPOSITORY, env=env)


def bench(name, arguments, say):
    """Run a file of tests/bench; its exit code. What it calls is installed first."""
    packages.ensure(say)
    return module(f"tests.bench.{name}", arguments, say)


def corpus(arguments, say):
    """Read, edit and define the definitions of libvirt's own tests; the exit code."""
    packages.ensure(say)
    return module("tests.corpus", arguments, say, {"PYTHONPATH": "_utils"})


def chaos(arguments, say):
    """Run random steps in a lab; the exit code. What they call is installed first."""
    packages.ensure(say)
    return module("tests.chaos.run", arguments, say)


def backup_random(arguments, say):
    """Run random steps for backups in a lab; the exit code."""
    packages.ensure(say)
    return module("tests.backup.run", arguments, say)


def life(arguments, say):
    """Run every verb after every other verb in a lab; the exit code."""
    packages.ensure(say)
    return module("tests.life.run", arguments, say)
