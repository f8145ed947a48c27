"""The tutorial on every pair of a Debian release and a Salt version, as a table."""

import os
import time

from tests.lab import layers, packages, paths, process, testenv
from tests.lab.recipe import SALTS, SUITES, Recipe
from tests.lab.sh import LabError

TEST = "tests/integration/test_tutorial.py"


def matrix(only, say):
    """Run the tutorial test in a lab of each pair and print the table; 1 if one failed."""
    packages.ensure(say)
    rows = []
    for debian, salt in pairs(only):
        say(f"Debian {debian}, Salt {salt}")
        began = time.monotonic()
        verdict = tutorial(Recipe(debian, salt), say)
        rows.append((debian, salt, verdict, time.monotonic() - began))
    print(table(rows))
    return int(any(verdict != "passed" for _, _, verdict, _ in rows))


def pairs(only=None):
    """All pairs, or the ones given as "12/3006"."""
    every = [(debian, salt) for debian in SUITES for salt in sorted(SALTS)]
    if not only:
        return every
    wanted = [tuple(text.split("/")) for text in only]
    wrong = [text for text, pair in zip(only, wanted, strict=True) if pair not in every]
    if wrong:
        raise LabError(f"no such pair: {', '.join(wrong)}; a pair is such as 12/3008")
    return wanted


def tutorial(recipe, say):
    """ "passed", "failed", or why there was no lab."""
    try:
        layers.layers(recipe, say)
        python = testenv.python(say)
    except LabError as exc:
        say(exc)
        return "not built"
    env = {
        **os.environ,
        "SALTVIRT_LAB_DEBIAN": recipe.debian,
        "SALTVIRT_LAB_SALT": recipe.salt,
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    argv = [str(python), "-m", "pytest", "-q", "-m", "lab", TEST]
    code = process.run_bound(argv, cwd=paths.REPOSITORY, env=env)
    # pytest's 5: nothing ran
    return {0: "passed", 5: "nothing ran"}.get(code, "failed")


def table(rows):
    """The rows (debian, salt, verdict, seconds) as text."""
    lines = [f"{'Debian':8}{'Salt':8}{'tutorial':14}{'seconds':>7}"]
    lines += [f"{d:8}{s:8}{verdict:14}{seconds:7.0f}" for d, s, verdict, seconds in rows]
    return "\n".join(lines)
