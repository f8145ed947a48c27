"""A cloud of many hosts on one machine (tests/swarm): whether the answers of its verbs are
right."""

import subprocess
import sys

import pytest

from tests.lab import paths, process
from tests.swarm import kinds, measured, seen
from tests.tools import docs

pytest.importorskip("salt.config")
pytest.importorskip("libvirt")

# the slow test has the others
VERBS = ("query", "init", "evacuate")


def swarm(*arguments):
    """(exit code, the lines that are printed) of a swarm."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.swarm", *map(str, arguments)],
        cwd=paths.REPOSITORY, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=False, preexec_fn=process.die_with_parent,
    )  # fmt: skip
    return done.returncode, done.stdout.splitlines()


def test_hosts_that_live_answer_and_one_that_is_dead_is_named():
    """A hung one would be waited for; the slow test has them."""
    # who waits for a dead one waits for no time-out: this is for a machine that is busy
    only = [word for verb in VERBS for word in ("--only", verb)]
    code, lines = swarm(4, "--ill", 1, "--timeout", 60, *only)
    assert code == 0, "\n".join(lines)
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| 4 |")]
    assert {row[1]: row[-1] for row in rows} == {f"`virt.{verb}`": "right" for verb in VERBS}


@pytest.mark.slow
def test_fifty_hosts_of_which_some_are_hung_or_slow():
    code, lines = swarm(50, "--timeout", 30)
    assert code == 0, "\n".join(lines)


def test_the_ill_are_spread_and_of_each_kind():
    found = kinds.of([str(number) for number in range(20)], 3)
    assert sorted(kind for kind in found.values() if kind != kinds.LIVING) == sorted(kinds.ILL)
    assert [number for number, kind in found.items() if kind != kinds.LIVING] == ["3", "9", "16"]
    assert set(kinds.of(["1"], 0).values()) == {kinds.LIVING}


def test_a_wrong_answer_is_said_in_the_table():
    cost = measured.Cost(1.26, jobs=3)
    assert seen.row(20, "list", cost).endswith(" | 3 | 0 | right |")
    assert seen.row(20, "list", cost, wrong=True).endswith(" | WRONG |")


def test_the_page_and_the_plot_are_made_from_what_was_seen():
    pages = docs.pages()
    for name in ("explanation/limits.md", "explanation/scale.svg"):
        path = docs.DOCS / name
        assert path.read_text(encoding="utf-8") == pages[path], "make docs"
