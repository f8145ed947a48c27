import pytest

pytest.importorskip("libvirt")

from saltvirt.host.provision.progress_rate import ProgressReporter

MIB = 2**20


def told(steps, total):
    """What is said of copying to each (second, MiB)."""
    said, now = [], [0.0]
    pace = ProgressReporter(
        lambda step, text, **data: said.append((step, text, data)), "copy", "disk", lambda: now[0]
    )
    for second, mib in steps:
        now[0] = second
        pace(mib * MIB, total and total * MIB)
    return said


def test_percent_speed_and_what_is_left_once_a_second():
    said = told([(0.5, 10), (1.0, 20), (1.5, 30), (2.0, 50), (2.5, 100)], 100)
    assert [text for _, text, _ in said] == [
        "disk: 20 %, 20 MiB/s, 4 s left", "disk: 50 %, 25 MiB/s, 2 s left",
        "disk: 100 %, 40 MiB/s, 0 s left",
    ]  # fmt: skip
    assert said[0][2] == {"percent": 20, "speed_bytes": 20 * MIB, "left_s": 4.0}


def test_short_work_says_nothing():
    assert told([(0.2, 50), (0.4, 100)], 100) == []


def test_where_nobody_knows_how_much_there_is():
    assert told([(2, 300)], None)[0][1] == "disk: 300 MiB, 150 MiB/s"
