"""Evaluation of the tables; each row can be reached."""

import pytest

from saltvirt.ha.model import registry, transitions
from saltvirt.ha.model.guest_case import GuestCase
from saltvirt.ha.model.transitions import GuestRow


def holds(_case):
    return True


def fails(_case):
    return False


EARLY, LATE = GuestRow(("a",), holds, "b", "early"), GuestRow(("a", "b"), holds, "c", "late")
NOT, OTHER = GuestRow(("a",), fails, "d", "not"), GuestRow(("b",), holds, "a", "other")


@pytest.mark.parametrize(
    "rows, row",
    [((EARLY, LATE), EARLY), ((LATE, EARLY), LATE), ((NOT, OTHER, LATE), LATE), ((NOT,), None),
     ((OTHER,), None), ((EARLY, GuestRow(("a",), None, "d", "")), EARLY)],
)  # fmt: skip
@pytest.mark.parametrize("read", [transitions.next_guest_row, transitions.next_host_row])
def test_the_first_row_of_a_state_whose_condition_holds_is_taken(read, rows, row, monkeypatch):
    for table in ("_GUEST_ROWS", "_HOST_ROWS"):
        monkeypatch.setattr(transitions, table, transitions.by_state(rows))
    case = GuestCase("web1", registry.HaGuestRecord("a"), *[None] * 6)
    assert read(case) is row


@pytest.mark.parametrize(
    "table, states",
    [(transitions.HOSTS, transitions.HOST_STATES), (transitions.GUESTS, transitions.GUEST_STATES)],
)
def test_each_row_leads_from_states_to_a_state_for_a_reason(table, states):
    known = {state.name for state in states}
    for row in table:
        assert {*row.states, row.to} <= known and row.states and row.reason


def test_what_is_up_is_left_in_doubt_before_it_is_given_up():
    """A host that was not suspected first is never fenced."""
    before = {row.states for row in transitions.HOSTS if row.to == registry.FENCING}
    assert before == {(registry.SUSPECTED,)}
