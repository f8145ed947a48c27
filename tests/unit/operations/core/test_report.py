import pytest

pytest.importorskip("salt")

from saltvirt.fleet import progress
from saltvirt.operations.core import report as reports
from saltvirt.operations.core.report import Report


class Bus:
    def __init__(self, **opts):
        self.events, self.opts = [], opts

    def fire_event(self, tag, data):
        self.events.append((tag, data))


class Channel:
    """What Salt gives to a runner for its lines."""

    def __init__(self):
        self.events = []

    def fire_event(self, data, suffix):
        assert suffix == "progress"
        assert data.pop("outputter") == "virt_query"
        self.events.append(data)


@pytest.fixture
def channel():
    return Channel()


@pytest.fixture
def screen(channel):
    def function():
        """The one of several files named virt that Salt gave the channel to."""

    given = type(function)(function.__code__, {"__jid_event__": channel})
    return progress.ProgressDisplay(
        {"virt.query": test_nobody_waits, "virt.init": given}, "virt_query"
    )


def test_a_step_is_a_line_and_an_event(screen, channel):
    bus = Bus()
    Report(bus, "web1", "init", screen).step("placed", "on hv1", host="hv1")
    assert channel.events == [{"message": "on hv1"}]
    assert bus.events == [
        ("salt/virt/web1/init/placed", {"guest": "web1", "message": "on hv1", "host": "hv1"})
    ]


def test_of_long_work_a_log_gets_each_tenth_and_a_terminal_all(screen, channel):
    report = Report(Bus(), "web1", "migrate", screen)
    for percent in range(101):
        report.progress(percent, f"{percent} %")
    report.show("done")
    report.progress(1, "1 %")
    assert len(channel.events) == 103
    logged = [event["message"] for event in channel.events if not event.get("passing")]
    assert logged == [*(f"{tenth} %" for tenth in range(0, 101, 10)), "done", "1 %"]
    again = [event.get("again") for event in channel.events]
    assert again == [False, *[True] * 100, None, False], "a line that stays is never replaced"


def test_a_hosts_own_steps(screen, channel):
    report = Report(Bus(), "web1", "init", screen)
    report.host_event("salt/virt/web1/init/copy", {"message": "disk: 5 %", "percent": 5})
    report.host_event("salt/virt/web1/init/start", {"message": "starting it"})
    assert [event["message"] for event in channel.events] == [
        "web1: disk: 5 %", "web1: starting it"
    ]  # fmt: skip
    assert "again" in channel.events[0]
    assert "again" not in channel.events[1]
    report.host_event("salt/virt/web1/init/seed", {})
    assert channel.events[2] == {"message": "web1: seed"}, "of a step without words its name"


def test_an_operation_that_failed_is_an_event_and_no_line(screen, channel):
    bus = Bus()
    Report(bus, "web1", "init", screen).failed(ValueError("no room"))
    assert bus.events == [("salt/virt/web1/init/failed", {"guest": "web1", "message": "no room"})]
    assert channel.events == []


@pytest.mark.parametrize(("output", "lines"), [(None, 1), ("json", 0)])
def test_a_runner_shows_its_lines_unless_clean_data_is_asked_for(channel, output, lines):
    def function():
        """As in the fixture."""

    given = type(function)(function.__code__, {"__jid_event__": channel})
    bus = Bus(output=output)
    reports.of_runner(bus, "web1", "init", {"virt.init": given}).step("placed", "on hv1")
    assert len(channel.events) == lines
    assert [tag for tag, _ in bus.events] == ["salt/virt/web1/init/placed"]


def test_clean_data_has_no_lines(channel):
    silent = progress.ProgressDisplay({"virt.init": test_nobody_waits}, "virt_query", silent=True)
    silent.line("x")
    silent.update(1, "1 %")
    assert channel.events == []


def test_nobody_waits():
    Report(Bus(), "web1", "init").progress(1, "1 %")
    progress.ProgressDisplay({"virt.init": test_nobody_waits}, "virt_query").line("x")


def test_a_warning_of_several_guests_is_printed_once(screen, channel):
    """As that a host has no KVM; for a single guest it is printed each time."""
    shared = reports.OneByOne(screen)
    for guest, message in (("web1", "no KVM"), ("web2", "no KVM"), ("web2", "no room")):
        Report(Bus(), guest, "init", shared).host_event("virt/warning", {"message": message})
    Report(Bus(), "web2", "init", shared).host_event("virt/disk", {"message": "no KVM"})
    lines = [event["message"] for event in channel.events]
    assert lines == ["web1: no KVM", "web2: no room", "web2: no KVM"]
    for guest in ("web3", "web4"):
        Report(Bus(), guest, "init", screen).host_event("virt/warning", {"message": "no KVM"})
    assert len(channel.events) == 5
