"""How a table is read, and that each of its rows can be."""

import pytest

from saltvirt.ha.model import guests, hosts, registry, transitions
from saltvirt.ha.model.transitions import Row


class Case:
    """Some conditions hold, others do not; others again are not there."""

    def holds(self):
        return True

    def fails(self):
        return False


EARLY, LATE = Row("a", "holds", "b", "early"), Row("a", "holds", "c", "late")
NOT, OTHER = Row("a", "fails", "d", "not"), Row("b", "holds", "a", "other")


@pytest.mark.parametrize(
    "rows, row",
    [((EARLY, LATE), EARLY), ((LATE, EARLY), LATE), ((NOT, OTHER, LATE), LATE), ((NOT,), None),
     ((OTHER,), None), ((EARLY, Row("a", "is_not_there", "d", "")), EARLY)],
)  # fmt: skip
def test_the_first_row_of_a_state_whose_condition_holds_is_taken(rows, row):
    assert transitions.first(transitions.by_state(rows), "a", Case()) is row


@pytest.mark.parametrize(
    "table, case, states",
    [(transitions.HOSTS, hosts.HostCase, transitions.HOST_STATES),
     (transitions.GUESTS, guests.GuestCase, transitions.GUEST_STATES)],
)  # fmt: skip
def test_each_row_leads_to_a_state_by_a_condition_and_a_change_that_are_there(table, case, states):
    known = {state.name for state in states}
    for row in table:
        assert {row.state, row.to} <= known and row.reason
        assert callable(getattr(case, row.condition)) and callable(getattr(case, row.action))


def test_what_is_up_is_left_in_doubt_before_it_is_given_up():
    """A host that was not suspected first is never fenced."""
    before = {row.state for row in transitions.HOSTS if row.to == registry.FENCING}
    assert before == {registry.SUSPECTED}
