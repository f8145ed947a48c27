"""A guest of which nothing is to be done, and the record after a row of the table."""

from dataclasses import replace

import pytest

from saltvirt.ha.model.registry import PLACED, RECOVERING, STOPPED
from saltvirt.ha.model.transitions import Row
from tests.unit.ha import made


def test_a_guest_that_runs_where_it_is_to_run_is_left_alone():
    case = made.case()
    assert case.runs() and case.next() is None


def test_of_the_rows_of_its_state_the_first_that_holds_is_taken():
    down = made.record(state=RECOVERING, host="", places=())
    assert made.case(down).next().condition == "has_room"
    case = made.case(down, wanted=made.wanted(wanted=STOPPED))
    assert (case.next().condition, case.next().to) == ("is_to_stop", STOPPED)


@pytest.mark.parametrize("said, why", [("", "the row's"), ("the case's", "the case's")])
def test_a_row_changes_the_state_and_says_why_and_since_which_version(said, why):
    case = made.case()
    case.reason = said
    row = Row(PLACED, "runs", RECOVERING, "the row's")
    expected = replace(case.record, state=RECOVERING, why=why, changed=9)
    assert case.changed(row, 9) == expected
