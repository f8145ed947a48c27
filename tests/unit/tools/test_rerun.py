"""The runs of tests that a second run of the failures turns into a success."""

import pytest

from tests.lab import rerun, skips


def second_run(failed, passing, code=rerun.FAILED):
    """(exit code, tests that ran again, lines) of a second run in which `passing` pass."""
    again, lines = [], []

    def run(test):
        again.append(test)
        return rerun.PASSED if test in passing else rerun.FAILED

    return rerun.second_run(code, failed, run, lines.append), again, lines


def test_a_test_that_passes_the_second_time_is_listed_as_flaky():
    code, again, lines = second_run(["a", "b"], {"a", "b"})
    assert (code, again) == (rerun.PASSED, ["a", "b"])
    assert lines[1:] == ["flaky, to be fixed next: a", "flaky, to be fixed next: b"]


def test_a_second_failure_fails_the_run():
    code, _, lines = second_run(["a", "b"], {"a"})
    assert code == rerun.FAILED
    assert lines[1:] == ["flaky, to be fixed next: a", "failed twice: b"]


@pytest.mark.parametrize(("number", "code"), [(3, rerun.PASSED), (4, rerun.FAILED)])
def test_more_than_three_flaky_tests_fail_the_run(number, code):
    tests = [f"t{i}" for i in range(number)]
    assert second_run(tests, set(tests))[0] == code


@pytest.mark.parametrize("code", [0, 2, 3, 4, 5, skips.BESIDE_FAILURES])
def test_a_run_that_ended_in_another_way_is_not_repeated(code):
    assert second_run(["a"], {"a"}, code) == (code, [], [])


def test_a_broken_tree_is_not_run_again_test_by_test():
    tests = [f"t{i}" for i in range(rerun.RERUN_LIMIT + 1)]
    assert second_run(tests, set(tests)) == (rerun.FAILED, [], [])
