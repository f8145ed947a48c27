"""The speed at which a disk is read: ``virt:backup:bandwidth``."""

import pytest

from saltvirt.backup.target import pull
from tests.clock import Clock

MIB = 1024**2


@pytest.mark.parametrize(("limit", "seconds"), [(None, 0), (1, 100), (10, 10), (25, 4)])
def test_so_much_is_read_in_a_second_at_most(monkeypatch, limit, seconds):
    clock = Clock(1000)
    monkeypatch.setattr(pull, "time", clock)
    told = []
    progress = pull._PullProgress(100 * MIB, told.append, limit)
    for _ in range(100):
        progress.add(MIB)
    assert clock.now - 1000 == pytest.approx(seconds)
    assert told[-1]["done_bytes"] <= 100 * MIB


def test_a_slow_host_is_not_made_up_for_by_waiting(monkeypatch):
    clock = Clock(1000)
    monkeypatch.setattr(pull, "time", clock)
    progress = pull._PullProgress(100 * MIB, lambda said: None, 10)
    for _ in range(100):
        clock.now += 1
        progress.add(MIB)
    assert clock.slept[1:] == []  # the first has nothing before it


def test_the_limit_travels_with_the_work():
    job = pull.PullJob("/b", "hv1", 10809, "/pki", (), 7)
    assert pull.PullJob.from_answer(job.to_answer(), "x").bandwidth_mib_s == 7
