"""A copy by Salt Virt reports its progress and can be aborted."""

import pytest

from saltvirt.errors import MigrationFailed
from saltvirt.host.migration import move_journal, progress
from tests.clock import Clock


@pytest.fixture
def journal(tmp_path):
    with move_journal.MigrationJournal(tmp_path, "web1") as found:
        yield found


def test_it_tells_each_half_second_how_far_it_is(journal, monkeypatch):
    told, clock = [], Clock()
    monkeypatch.setattr(progress, "time", clock)
    watch = progress.Watch(journal, told.append)
    watch.begin()
    for now, done in ((0.1, 10), (0.6, 600), (0.7, 700), (1.2, 900)):
        clock.now = now
        watch(done, 1000)
    assert [event["percent"] for event in told] == [60, 90]
    assert told[0]["remaining_bytes"] == 400
    assert told[0]["speed"] == 1000
    assert told[1]["speed"] == 500


def test_who_asks_another_process_to_end_is_heard(journal, tmp_path):
    watch = progress.Watch(journal, print)
    watch.begin()
    asking = move_journal.MigrationJournal(tmp_path, "web1")
    assert move_journal.at_work(asking)
    asking.request_abort()
    with pytest.raises(MigrationFailed, match="aborted"):
        watch.begin()


def test_a_wish_to_end_is_not_for_the_next_migration(tmp_path):
    journal = move_journal.MigrationJournal(tmp_path, "web1")
    journal.request_abort()
    with journal:
        assert not journal.abort_requested()
    assert not move_journal.at_work(journal)


def test_a_long_copy_says_now_and_then_that_it_lives(journal, monkeypatch):
    clock, beats = Clock(), []
    monkeypatch.setattr(progress, "time", clock)
    watch = progress.Watch(journal, lambda event: None, lambda: beats.append(1))
    watch.begin()
    for now, done in ((0.6, 1), (1.2, 2), (1.8, 3)):
        clock.now = now
        watch(done, 10)
    assert len(beats) == 4


def test_no_more_is_sent_in_a_second_than_the_host_may(journal, tmp_path, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    watch = progress.Watch(journal, lambda _event: None, bytes_s=1000)
    watch.begin()
    for done in range(250, 3001, 250):
        watch(done, 3000)
        assert clock.now * 1000 == pytest.approx(done)
    watch.begin()
    asking = move_journal.MigrationJournal(tmp_path, "web1")
    asking.request_abort()
    before = clock.now
    with pytest.raises(MigrationFailed, match="aborted"):
        watch(10**9, 10**9)
    assert clock.now - before <= progress.POLL_S, "and virt.migrate_abort is heard meanwhile"
