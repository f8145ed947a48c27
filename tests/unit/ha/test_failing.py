"""What is seen of a guest that fails while its host is well: docs/ha.md has it in a table."""

from dataclasses import replace

import pytest

from saltvirt.ha import facts, failing
from saltvirt.ha.facts import GuestStatus

RUNS = GuestStatus(1, facts.RUNNING)


@pytest.mark.parametrize(
    "state, said",
    [
        (facts.CRASHED, "QEMU or its kernel crashed"),
        (facts.FAILED, "it did not start"),
        (facts.STOPPED, "it went down by itself"),
        (facts.STARTING, ""),
        (facts.RUNNING, ""),
        (facts.INCOMING, ""),
        (facts.OFF, ""),
    ],
)
@pytest.mark.parametrize("seen", ["", "libvirt's words"])
def test_a_guest_has_failed_when_it_is_down_unasked(state, said, seen):
    assert failing.failure(GuestStatus(1, state, seen=seen), 1) == (said and (seen or said))


@pytest.mark.parametrize(
    "trouble, mended",
    [
        ("", None),
        (facts.PANICKED, True),
        (facts.IO_FAILED, True),
        (facts.WATCHDOG, True),
        (facts.SILENT, True),
        (facts.FULL, False),
        (facts.UNCLEAR, False),
    ],
)
@pytest.mark.parametrize("seen", ["", "libvirt's words"])
def test_what_ails_one_that_runs_is_mended_by_a_restart_or_is_in_its_way(trouble, mended, seen):
    there = replace(RUNS, trouble=trouble, seen=seen)
    said = seen or trouble
    assert failing.failure(there, 1) == (said if mended else "")
    assert failing.obstacle(there) == (said if mended is False else "")


@pytest.mark.parametrize("state", [facts.STARTING, facts.INCOMING, facts.OFF])
def test_nothing_ails_one_that_does_not_run(state):
    assert failing.failure(GuestStatus(1, state, trouble=facts.PANICKED, resets=5), 1) == ""
    assert failing.obstacle(GuestStatus(1, state, trouble=facts.FULL)) == ""


@pytest.mark.parametrize(
    "resets, restarts, said",
    [
        (0, 0, ""),
        (1, 1, ""),
        (2, 1, "its watchdog has reset it 2 times"),
        (1, 0, "its watchdog has reset it 1 times"),
    ],
)
def test_a_guest_has_failed_when_its_watchdog_reset_it_more_often_than_it_may_be_restarted(
    resets, restarts, said
):
    assert failing.failure(replace(RUNS, resets=resets), restarts) == said
