"""How tests run: allowed skips, installed packages, and processes that end with their parent."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import conftest
from tests.clock import until
from tests.lab import packages, paths, process, rerun, rootless, skips, suite, testenv
from tests.lab.recipe import SALTS
from tests.tools import sealed

pytest_plugins = ["pytester"]

# a shell that runs us in the background has SIGINT ignored
SLEEPER = """
import signal
from tests.lab import process
signal.signal(signal.SIGINT, signal.default_int_handler)
process.run_bound(["sh", "-c", "echo $$; exec sleep 600"])
"""


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_what_we_run_ends_with_us_however_we_end(how):
    """`timeout make test-matrix` ends make and us alone; the lab's owner must not live on."""
    with subprocess.Popen(
        [sys.executable, "-c", SLEEPER],
        cwd=paths.REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as parent:
        pid = int(parent.stdout.readline())
        began = process.started(pid)
        parent.send_signal(how)
        parent.wait()
    end = time.monotonic() + 180
    while process.started(pid) == began and time.monotonic() < end:
        time.sleep(0.02)
    assert process.started(pid) != began


DAEMON = """
import time
from tests.functional.daemon import Daemon
found = Daemon()
found.wait()
print(found.process.pid, found.folder, flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="a libvirtd of our own needs root")
def test_a_libvirtd_of_a_test_ends_with_it_when_it_is_killed():
    with subprocess.Popen(
        [sys.executable, "-c", DAEMON], cwd=paths.REPOSITORY, stdout=subprocess.PIPE, text=True
    ) as parent:
        pid, folder = parent.stdout.readline().split()
        family = process.family(int(pid))
        parent.kill()
    assert len(family) >= 3, "unshare, the shell in it and libvirtd"
    end = time.monotonic() + 180
    while time.monotonic() < end and (
        os.path.exists(folder) or any(process.started(one) == when for one, when in family)
    ):
        time.sleep(0.02)
    assert not os.path.exists(folder)
    assert not [one for one, when in family if process.started(one) == when]


def test_the_list_of_allowed_skips_is_read_whole():
    [one, two] = skips.allowed("# why\n\nslow: .*\n  no nbd\n")
    assert one.fullmatch("slow: SLOW=1 runs it")
    assert two.fullmatch("no nbd")
    assert not two.fullmatch("no nbd, and no qemu-img")


def test_what_was_skipped_is_counted_by_reason():
    slow = "slow: SLOW=1 runs it"
    assert skips.counted([]) == ("skipped: nothing", [])
    line, wrong = skips.counted([slow, "no qemu-img", slow])
    assert line == f"skipped: 3: 2 ({slow}), 1 (no qemu-img)"
    assert wrong == ["no qemu-img"]


RUN = """
import pytest

def test_one():
    pytest.skip({reason!r})

def test_two():
    pass
"""


@pytest.mark.parametrize(
    ("reason", "strict", "code"),
    [
        ("no qemu-img here", True, 1),
        ("no qemu-img here", False, 0),
        ("this kernel has no device-mapper: no logical volume can be made", True, 0),
    ],
)
@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_a_skip_that_is_not_allowed_fails_the_run(pytester, reason, strict, code, workers):
    pytester.makeconftest((paths.REPOSITORY / "tests/conftest.py").read_text())
    pytester.makepyfile(RUN.format(reason=reason))
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_XDIST")}
    env["PYTHONPATH"] = str(paths.REPOSITORY)
    env[skips.STRICT] = "1" if strict else ""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *workers, pytester.path],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout
    assert f"skipped: 1: 1 ({reason})" in done.stdout
    assert ("may not be skipped" in done.stdout) is bool(code)


def test_a_module_that_is_not_collected_for_want_of_something_counts(pytester):
    pytester.makeconftest((paths.REPOSITORY / "tests/conftest.py").read_text())
    pytester.makepyfile("import pytest\npytest.importorskip('nothing_of_that_name')\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", pytester.path],
        env={**os.environ, "PYTHONPATH": str(paths.REPOSITORY), skips.STRICT: "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "could not import 'nothing_of_that_name'" in done.stdout


def test_a_failure_is_said_before_the_end(pytester):
    pytester.makeconftest((paths.REPOSITORY / "tests/conftest.py").read_text())
    pytester.makepyfile("def test_it():\n    assert 1 == 2")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", pytester.path],
        env={**os.environ, "PYTHONPATH": str(paths.REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    before, _, _ = done.stdout.partition("= FAILURES =")
    assert "failed in call: test_a_failure_is_said_before_the_end.py::test_it" in before
    assert "assert 1 == 2" in before


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["-q", "tests/unit"], True),
        (["tests/unit/test_suite.py", "-k", "x"], True),
        (["tests/unit", "tests/functional"], False),
        (["-q"], False),
    ],
)
def test_the_unit_tests_want_no_more_than_python(arguments, expected):
    assert suite.only_unit(arguments) is expected


@pytest.fixture
def calls(monkeypatch):
    """What is called of what runs everything, and the exit code of each name."""
    said, codes = [], {}

    def called(name, *arguments):
        said.append(name if name == "prepare" else (name, *arguments))
        return codes.get(name, 0)

    monkeypatch.setattr(packages, "why_not", lambda: None)
    monkeypatch.setattr(packages, "ensure", lambda _say, wanted: said.append(wanted))
    monkeypatch.setattr(suite, "prepare", lambda _say: called("prepare"))
    monkeypatch.setattr(suite, "compile_tests", lambda *_: said.append("compile"))
    monkeypatch.setattr(suite, "module", lambda name, words, _say: called(name, *words))
    monkeypatch.setattr(suite, "pytest", lambda words, _say, *_: called("pytest", words[0]))
    return said, codes


def test_all_tests_run_when_the_tree_is_linted_and_all_is_prepared(calls):
    said, codes = calls
    codes["pytest"] = 3
    assert suite.everything([], print) == 3
    first, *between, last = said
    assert (first, last) == (packages.PYTHON, ("pytest", "tests/integration"))
    assert set(between) == {"prepare", "compile", *suite.LINT}


@pytest.mark.parametrize("why", [None, "no root"])
def test_no_test_runs_in_a_tree_that_is_not_linted(calls, monkeypatch, why):
    said, codes = calls
    monkeypatch.setattr(packages, "why_not", lambda: why)
    codes["ruff"] = 5
    assert suite.everything([], print) == 5
    assert [one for one in said if one[0] in ("mypy", "pytest")] == []
    codes.clear()
    said.clear()
    assert suite.everything([], print) == 0
    assert said[-1] == ("pytest", "tests/unit" if why else "tests/integration")


def test_what_tests_import_is_compiled_once_and_outside_of_the_tree(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "REPOSITORY", tmp_path / "tree")
    monkeypatch.setenv("SALTVIRT_PYTHON_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setattr(testenv, "python", lambda _say: sys.executable)
    tests = tmp_path / "tree/tests"
    tests.mkdir(parents=True)
    (tests / "test_it.py").write_text("import helper\n\ndef test_it():\n    assert helper.ONE\n")
    (tests / "helper.py").write_text("ONE = 1\n")

    def compiled():
        below = testenv.bytecode() / str(tests).lstrip("/")
        return {path.name.partition(".")[0]: path.stat().st_ino for path in below.iterdir()}

    suite.compile_tests(["tests"], print)
    first = compiled()
    assert set(first) == {"helper", "test_it"}
    assert not list(tests.rglob("*.pyc"))
    assert suite.pytest(["-q", "tests"], print) == 0
    assert compiled() == first
    (tests / "helper.py").unlink()
    suite.compile_tests(["tests"], print)  # it was done before, and is not tried
    assert compiled() == first


def test_the_longest_files_are_there_and_begin_first():
    one, other, *_ = conftest.LONGEST
    assert all((paths.REPOSITORY / name).is_file() for name in conftest.LONGEST)
    items = [
        SimpleNamespace(nodeid=f"{name}::test_x", get_closest_marker=lambda _: None)
        for name in ("tests/a.py", other, "tests/b.py", one)
    ]
    conftest.pytest_collection_modifyitems(None, items)
    names = [item.nodeid.partition(":")[0] for item in items]
    assert names == [other, one, "tests/a.py", "tests/b.py"]


SLOW = """
import pytest

@pytest.mark.parametrize("n", range(5))
def test_some(n):
    pass

@pytest.mark.slow
@pytest.mark.parametrize("n", range(5))
def test_all(n):
    pass

@pytest.mark.parametrize("n", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_one(n):
    pass
"""


@pytest.mark.parametrize(
    ("slow", "counts"),
    [("", {"passed": 6, "skipped": 2, "deselected": 4}), ("1", {"passed": 12})],
)
def test_of_many_slow_cases_one_is_reported(pytester, monkeypatch, slow, counts):
    pytester.makeconftest((paths.REPOSITORY / "tests/conftest.py").read_text())
    pytester.makeini("[pytest]\nmarkers = slow: not now")
    pytester.makepyfile(SLOW)
    monkeypatch.setenv("SLOW", slow)
    monkeypatch.setenv("PYTHONPATH", str(paths.REPOSITORY))
    done = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    assert done.parseoutcomes() == counts


def test_the_python_of_another_salt_has_everything_else_too():
    pinned, other = testenv.requirements(), testenv.requirements("3007")
    assert [line for line in pinned if line not in other] == [f"salt=={SALTS['3008']}"]
    assert f"salt=={SALTS['3007']}" in other
    assert testenv.requirements("3008") == pinned


def test_nobody_gets_what_is_not_committed_yet_and_nothing_that_git_ignores(tmp_path):
    tree = tmp_path / "tree"
    subprocess.run(["git", "init", "-q", tree], check=True)
    for name in ("folder/new", "gone", "made.pyc"):
        (tree / name).parent.mkdir(exist_ok=True)
        (tree / name).write_text(name)
    (tree / ".gitignore").write_text("*.pyc\n")
    subprocess.run(["git", "add", "gone"], cwd=tree, check=True)
    (tree / "gone").unlink()
    (tree / "link").symlink_to("folder")
    rootless.copy(tree, tmp_path / "copy")
    assert (tmp_path / "copy/link/new").exists()
    found = sorted(path.name for path in (tmp_path / "copy").rglob("*") if path.is_file())
    assert found == [".gitignore", "new"]


def test_no_package_is_listed_twice():
    assert len(set(packages.ALL)) == len(packages.ALL)


def test_who_stands_still_goes_on_whatever_of_it_ended_meanwhile():
    """A shell whose children end all the time, a thousand a second."""
    argv = ["sh", "-c", "while :; do sh -c 'true & true & wait' & true; wait; done"]
    with subprocess.Popen(argv) as shell:
        try:
            for _ in range(30):
                with process.still(shell.pid):
                    until(lambda: states(shell.pid) <= {"T", "Z"}, "stillness", 2)
                until(lambda: "T" not in states(shell.pid), "all of them", 2)
        finally:
            shell.kill()


def states(pid):
    """The letters that proc(5) has for what a process and those below it are doing."""
    found = [process.stat(one) for one, _ in process.family(pid)]
    return {its[0] for its in found if its}


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can delete what is everybody's")
def test_what_is_changed_by_a_mutation_run_costs_the_machine_nothing(tmp_path):
    """One of its changes deleted /dev/null."""
    name = f".salt-virt-{tmp_path.name}-{os.getpid()}"
    kept = [Path(folder, name) for folder in ("/dev", "/run", "/var/lib", paths.REPOSITORY)]
    gone = tmp_path / name
    for path in (*kept, gone):
        path.touch()
    try:
        subprocess.run(sealed.argv(["rm", "-f", *kept, gone]), capture_output=True, check=False)
        assert [path for path in (*kept, gone) if path.exists()] == kept
    finally:
        for path in kept:
            path.unlink(missing_ok=True)


FLAKY = """
import pathlib, pytest

@pytest.mark.parametrize("name", ["a b", "c/d::e"])
def test_second_time(name):
    mark = pathlib.Path(name.replace("/", "_").replace(" ", "_"))
    if not mark.exists():
        mark.touch()
        raise AssertionError("the first time")

def test_good():
    pass

def test_skip():
    pytest.skip({reason!r})
"""


@pytest.mark.parametrize(
    ("reason", "code"),
    [("slow: SLOW=1 runs it", rerun.PASSED), ("no qemu-img here", skips.BESIDE_FAILURES)],
)
@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_what_pytest_records_is_what_runs_again(pytester, reason, code, workers):
    pytester.makeconftest((paths.REPOSITORY / "tests/conftest.py").read_text())
    pytester.makepyfile(test_flaky=FLAKY.format(reason=reason))
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_XDIST")}
    env |= {"PYTHONPATH": str(paths.REPOSITORY), skips.STRICT: "1"}

    def run(*arguments):
        argv = [sys.executable, "-m", "pytest", "-o", "cache_dir=cache", *arguments]
        return subprocess.run(argv, env=env, check=False, capture_output=True).returncode

    first = run(*workers)
    failed = rerun.recorded("cache")
    assert len(failed) == 2
    lines = []
    assert rerun.second_run(first, failed, run, lines.append) == code
    assert len(lines) == (3 if code == rerun.PASSED else 0)
