"""The use of resources between two readings of counters."""

import pytest

from saltvirt.answers.inspection import GuestUsage
from saltvirt.host.inspect import counters
from saltvirt.host.inspect.counters import GuestCounters, HostCounters

STATS = {
    "block.count": 2, "block.0.rd.bytes": 1000, "block.1.rd.bytes": 500, "block.0.wr.bytes": 7,
    "net.count": 1, "net.0.rx.bytes": 30, "net.0.tx.bytes": 40,
}  # fmt: skip


def reading(at_s, busy=0, total=0, **guests):
    return HostCounters(at_s, busy, total, guests)


def guest(read_bytes, cpu_ns=0, domain_id=1):
    return GuestCounters(domain_id, cpu_ns, {"disk_read_bytes": read_bytes})


def test_devices_are_added_up():
    assert counters.of_guest(3, 5, STATS) == GuestCounters(3, 5, {
        "disk_read_bytes": 1500, "disk_written_bytes": 7, "network_received_bytes": 30,
        "network_sent_bytes": 40,
    })  # fmt: skip
    assert counters.of_guest(3, 5, {}).devices["disk_read_bytes"] == 0


def test_waiting_for_a_disk_is_idle_time():
    assert counters.of_cpus("cpu  10 1 5 70 12 1 1 0 3 0\ncpu0 1 2\n") == (18, 100)


def test_rates_of_a_guest():
    before, after = reading(10, a=guest(100, 0)), reading(12, a=guest(2100, 500_000_000))
    rates = counters.guest_rates(before, after, "a")
    assert (rates["disk_read_bytes_s"], rates["cpu_percent"]) == (1000, 25.0)
    assert rates["network_sent_bytes_s"] == 0


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, reading(12, a=guest(1))),
        (reading(10), reading(12, a=guest(1))),  # it has arrived
        (reading(10, a=guest(100)), reading(12)),  # it is off
        (reading(10, a=guest(100)), reading(12, a=guest(1, domain_id=2))),  # it was restarted
        (reading(12, a=guest(100)), reading(12, a=guest(100))),
    ],
)
def test_rates_are_unknown_unless_the_guest_ran_all_the_time(before, after):
    assert counters.guest_rates(before, after, "a") == {}


def test_the_host():
    assert counters.cpu_percent(reading(1, 50, 100), reading(2, 125, 200)) == 75.0
    assert counters.cpu_percent(reading(1, 50, 100), reading(2, 50, 100)) is None
    assert counters.cpu_percent(None, reading(2, 50, 100)) is None


def test_unknown_rates_of_guests_do_not_count():
    known = GuestUsage(state="running", vcpus=1, disk_read_bytes_s=5)
    unknown = GuestUsage(state="running", vcpus=1)
    assert counters.summed_rates([known, unknown, known])["disk_read_bytes_s"] == 10
    assert counters.summed_rates([unknown])["disk_read_bytes_s"] is None
    assert counters.summed_rates([])["disk_read_bytes_s"] == 0


def test_a_reading_of_before_the_last_boot_is_not_compared_with():
    readings = [reading(100), reading(9.5), reading(8), reading(1)]
    assert counters.baseline(readings, 10, 1, 5) == readings[2]
    assert counters.baseline(readings, 10, 3, 5) is None
