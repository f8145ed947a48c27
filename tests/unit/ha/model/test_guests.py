"""A guest that needs no action, and its record after a row of the table."""

from dataclasses import replace

import pytest

from saltvirt.ha.model import guest_desired, guest_placing, transitions
from saltvirt.ha.model.registry import PLACED, RECOVERING, STOPPED
from saltvirt.ha.model.transitions import GuestRow
from tests.unit.ha.model import made


def test_a_guest_that_runs_where_it_is_to_run_is_left_alone():
    case = made.case()
    assert guest_placing.runs(case) and transitions.next_guest_row(case) is None


def test_of_the_rows_of_its_state_the_first_that_holds_is_taken():
    down = made.record(state=RECOVERING, host="", locations=())
    assert transitions.next_guest_row(made.case(down)).condition is guest_placing.can_be_placed
    case = made.case(down, wanted=made.wanted(desired_state=STOPPED))
    row = transitions.next_guest_row(case)
    assert (row.condition, row.to) == (guest_desired.is_to_stop, STOPPED)


@pytest.mark.parametrize("said, why", [
    (None, "the row's"), (lambda _: "", "the row's"), (lambda _: "the case's", "the case's"),
])  # fmt: skip
def test_a_row_changes_the_state_and_says_why_and_since_which_version(said, why):
    case = made.case()
    row = GuestRow((PLACED,), guest_placing.runs, RECOVERING, "the row's", detail=said)
    expected = replace(case.record, state=RECOVERING, reason=why, changed=9)
    assert row.apply(case, 9) == expected
