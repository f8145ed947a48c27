"""Failed tests of a run, and a second, single run of each to tell flaky tests from broken ones.

A test that passes the second time is flaky: the run passes, and the test is listed at the end.
A test that fails twice fails the run, and so do more than three flaky tests.
"""

import contextlib
import json
from pathlib import Path

OPTION = "--rerun-failed"
FLAKY_LIMIT = 3
# pytest's exit codes
PASSED, FAILED = 0, 1
# more failures than this are a broken tree: running each again would only take time
RERUN_LIMIT = 12


def recorded(folder):
    """List the node ids that pytest's cache in a folder records as failed."""
    with contextlib.suppress(FileNotFoundError):
        path = Path(folder) / "v/cache/lastfailed"
        return sorted(json.loads(path.read_text(encoding="utf-8")))
    return []


def second_run(code, failed, run, say):
    """Run each failed test once more, by itself, and return the exit code of both runs.

    code: pytest's exit code of the first run. failed: node ids. run: takes a node id and returns
    pytest's exit code. say: takes a line of text.
    """
    if code != FAILED or not failed or len(failed) > RERUN_LIMIT:
        return code
    say(f"{len(failed)} failed: running each of them once more, alone")
    codes = {test: run(test) for test in failed}
    broken = [test for test in failed if codes[test] != PASSED]
    flaky = [test for test in failed if codes[test] == PASSED]
    for title, tests in (("flaky, to be fixed next", flaky), ("failed twice", broken)):
        for test in tests:
            say(f"{title}: {test}")
    if len(flaky) > FLAKY_LIMIT:
        say(f"{len(flaky)} flaky tests: more than {FLAKY_LIMIT} fail the run")
    return FAILED if broken or len(flaky) > FLAKY_LIMIT else PASSED
