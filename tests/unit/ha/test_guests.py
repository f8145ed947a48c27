"""A guest of which nothing is to be done, and the record after a row of the table."""

from dataclasses import replace

import pytest

from saltvirt.ha.registry import PLACED, RECOVERING
from saltvirt.ha.transitions import Row
from tests.unit.ha import made


def test_a_guest_that_runs_where_it_is_to_run_is_left_alone():
    case = made.case()
    assert case.runs() and case.next() is None


@pytest.mark.parametrize("said, why", [("", "the row's"), ("the case's", "the case's")])
def test_a_row_changes_the_state_and_says_why_and_since_which_version(said, why):
    case = made.case()
    case.why = said
    row = Row(PLACED, "runs", RECOVERING, "the row's")
    expected = replace(case.record, state=RECOVERING, why=why, changed=9)
    assert case.changed(row, 9) == expected
