"""A copy that we make tells how it goes, and can be ended."""

import pytest

from saltvirt.errors import MigrationFailed
from saltvirt.host.migration import move_journal, progress


@pytest.fixture
def journal(tmp_path):
    with move_journal.Journal(tmp_path, "web1") as found:
        yield found


def test_it_tells_each_half_second_how_far_it_is(journal, monkeypatch):
    told, clock = [], iter([0.0, 0.0, 0.1, 0.6, 0.7, 1.2])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    watch = progress.Watch(journal, told.append)
    watch.begin()
    for done in (10, 600, 700, 900):
        watch(done, 1000)
    assert [event["percent"] for event in told] == [60, 90]
    assert told[0]["remaining_bytes"] == 400
    assert told[0]["speed"] == 1000
    assert told[1]["speed"] == 500


def test_who_asks_another_process_to_end_is_heard(journal, tmp_path):
    watch = progress.Watch(journal, print)
    watch.begin()
    asking = move_journal.Journal(tmp_path, "web1")
    assert move_journal.at_work(asking)
    asking.ask_to_end()
    with pytest.raises(MigrationFailed, match="aborted"):
        watch.begin()


def test_a_wish_to_end_is_not_for_the_next_migration(tmp_path):
    journal = move_journal.Journal(tmp_path, "web1")
    journal.ask_to_end()
    with journal:
        assert not journal.is_to_end()
    assert not move_journal.at_work(journal)


def test_a_long_copy_says_now_and_then_that_it_lives(journal, monkeypatch):
    clock, beats = iter([0.0, 0.0, 0.6, 1.2, 1.8]), []
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    watch = progress.Watch(journal, lambda event: None, lambda: beats.append(1))
    watch.begin()
    for done in (1, 2, 3):
        watch(done, 10)
    assert len(beats) == 4
