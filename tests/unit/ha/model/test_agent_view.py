"""The state of an agent after a restart, and what it writes before it announces it."""

from dataclasses import replace

import pytest

from saltvirt.ha.model import agent_view
from saltvirt.ha.model.agent_view import AgentState
from saltvirt.ha.model.messages import (
    LEAVING,
    SHUT_DOWN,
    WORKING,
    FenceVote,
    HeartbeatAck,
    HostState,
)
from tests.unit.ha.model import made

PROMISED = {"h3": FenceVote(1, 1, 4)}
SAID = HostState(boot=1, seq=7, armed=True, watchdog_s=10)
KEPT = replace(made.agent().saved, fence_votes=PROMISED, host_states={"h2": SAID}, claim=7)
# all that there is to know
LATE = AgentState(
    "h1", 3, KEPT, 90000, True, 89000, 5, 80, {89000: 89.0}, {"h2": HeartbeatAck(1, 7)},
    {"h2": 89.5},
    88.5, 70, {"web1": 4}, LEAVING, 85000,
)  # fmt: skip


def test_beats_are_numbered_by_the_clock_and_the_lead_counts_as_granted_just_now():
    expected = AgentState("h1", 3, KEPT, seq=12500, since_s=12.5, granted_s=12.5)
    assert agent_view.initial_state("h1", 3, KEPT, 12.5) == expected


@pytest.mark.parametrize("now_s, seq", [(91.5, 91500), (12.5, 90000)])
def test_an_agents_restart_forgets_what_it_heard_and_not_what_it_said_and_did(now_s, seq):
    """And no number of a beat is used twice."""
    assert LATE.after_restart(now_s) == AgentState(
        "h1", 3, KEPT, seq, True, 89000, now_s, now_s, tried={"web1": 4}, phase=LEAVING,
        phase_seq=85000, first_seq=seq + 1,
    )  # fmt: skip


def test_after_it_was_given_up_a_host_counts_as_booted_anew():
    assert LATE.after_reboot() == AgentState(
        "h1", 4, KEPT, 90000, False, 0, 5, 80, {}, LATE.acks, LATE.heard_s, None, 70, {}, WORKING,
        85000, 90001,
    )  # fmt: skip


@pytest.mark.parametrize(
    "change, news",
    [
        ({}, False),
        ({"claim": 8}, False),
        ({"term": 2}, True),
        ({"leader": "m2"}, True),
        ({"fence_votes": {}}, True),
        ({"fence_votes": {"h3": FenceVote(1, 1, 5)}}, True),
        ({"host_states": {}}, True),
        ({"host_states": {"h2": replace(SAID, seq=8)}}, False),
        ({"host_states": {"h2": replace(SAID, boot=2)}}, True),
        ({"host_states": {"h2": replace(SAID, armed=False)}}, True),
        ({"host_states": {"h2": replace(SAID, watchdog_s=11)}}, True),
        ({"host_states": {"h2": replace(SAID, phase=SHUT_DOWN)}}, True),
        ({"host_states": {"h2": replace(SAID, freeze=True)}}, True),
        ({"pending": made.registry(version=6)}, True),
        ({"pending": made.registry(term=2)}, True),
        ({"registry": made.registry(version=6)}, True),
    ],
)
def test_only_numbers_of_beats_and_calls_go_out_before_they_are_written_down(change, news):
    assert agent_view.must_save(KEPT, replace(KEPT, **change)) is news
