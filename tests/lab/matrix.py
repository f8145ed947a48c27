"""The tests of every pair of a Debian release and a Salt version, as a table."""

import os
import time

from tests.lab import layers, packages, paths, process, testenv
from tests.lab.recipe import SALTS, SUITES, Recipe
from tests.lab.sh import LabError

# column → pytest's arguments; "releases" is between this pair's Debian and the other one
PARTS = {
    "tutorial": ("tests/integration/test_tutorial.py",),
    "keys": ("tests/integration/test_keys.py",),
    "states": (
        "tests/integration/test_states_resources.py",
        "tests/integration/test_states_guests.py",
    ),
    "migration": ("tests/integration/migration/test_live.py",),
    "releases": ("tests/integration/migration/test_releases.py",),
    "update": ("tests/integration/test_update.py", "tests/integration/test_previous.py"),
}
# of these the slow tests, too
SLOW = ("tutorial", "releases", "update")


def matrix(only, parts, say):
    """Run the parts' tests in labs of each pair and print the table; 1 if one failed.

    only: pairs, such as "12/3008"; parts: names of PARTS. None: all.
    """
    packages.ensure(say)
    unknown = [part for part in parts or () if part not in PARTS]
    if unknown:
        raise LabError(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    rows, chosen = [], parts or list(PARTS)
    for debian, salt in pairs(only):
        began, verdicts = time.monotonic(), {}
        for part in chosen:
            say(f"Debian {debian}, Salt {salt}: {part}")
            verdicts[part] = verdict(Recipe(debian, salt), part, say)
        rows.append((debian, salt, verdicts, time.monotonic() - began))
        print(table(rows, chosen), flush=True)
    return int(any(found != "passed" for _, _, verdicts, _ in rows for found in verdicts.values()))


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


def verdict(recipe, part, say):
    """ "passed", "failed", or why there was no lab."""
    try:
        layers.layers(recipe, say)
        if part == "releases":
            layers.layers(recipe.other, say)
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
    if part in SLOW:
        env["SLOW"] = "1"
    argv = [str(python), "-m", "pytest", "-q", "-m", "lab", *PARTS[part]]
    code = process.run_bound(argv, cwd=paths.REPOSITORY, env=env)
    # pytest's 5: nothing ran
    return {0: "passed", 5: "nothing ran"}.get(code, "failed")


def table(rows, parts=tuple(PARTS)):
    """The rows (debian, salt, {part: verdict}, seconds) as text."""
    lines = [f"{'Debian':8}{'Salt':8}{''.join(f'{part:13}' for part in parts)}{'seconds':>7}"]
    for debian, salt, verdicts, seconds in rows:
        found = "".join(f"{verdicts[part]:13}" for part in parts)
        lines.append(f"{debian:8}{salt:8}{found}{seconds:7.0f}")
    return "\n".join(lines)
