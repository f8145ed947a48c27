"""Failures of a guest whose host is well, as listed in ha.md."""

from dataclasses import replace

import pytest

from saltvirt.ha.model import failures, messages
from saltvirt.ha.model.messages import GuestStatus

RUNS = GuestStatus(1, messages.RUNNING)


@pytest.mark.parametrize(
    "state, said",
    [
        (messages.CRASHED, "QEMU or the guest's kernel crashed"),
        (messages.FAILED, "it did not start"),
        (messages.STOPPED, "it shut down by itself"),
        (messages.STARTING, ""),
        (messages.RUNNING, ""),
        (messages.INCOMING, ""),
        (messages.OFF, ""),
    ],
)
@pytest.mark.parametrize("seen", ["", "libvirt's words"])
def test_a_guest_has_failed_when_it_is_down_unasked(state, said, seen):
    assert failures.failure(GuestStatus(1, state, detail=seen), 1) == (said and (seen or said))


@pytest.mark.parametrize(
    "trouble, mended",
    [
        ("", None),
        (messages.PANICKED, True),
        (messages.IO_FAILED, True),
        (messages.WATCHDOG, True),
        (messages.SILENT, True),
        (messages.FULL, False),
        (messages.UNCLEAR, False),
    ],
)
@pytest.mark.parametrize("seen", ["", "libvirt's words"])
def test_what_ails_one_that_runs_is_mended_by_a_restart_or_is_in_its_way(trouble, mended, seen):
    there = replace(RUNS, trouble=trouble, detail=seen)
    said = seen or trouble
    assert failures.failure(there, 1) == (said if mended else "")
    assert failures.obstacle(there) == (said if mended is False else "")


@pytest.mark.parametrize("state", [messages.STARTING, messages.INCOMING, messages.OFF])
def test_nothing_ails_one_that_does_not_run(state):
    assert failures.failure(GuestStatus(1, state, trouble=messages.PANICKED, resets=5), 1) == ""
    assert failures.obstacle(GuestStatus(1, state, trouble=messages.FULL)) == ""


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
    assert failures.failure(replace(RUNS, resets=resets), restarts) == said
