"""What a master records of the events that hosts report, and what it does not believe."""

import pytest

pytest.importorskip("salt")

from saltvirt.answers import host_events
from saltvirt.fleet import proof
from saltvirt.fleet.minion import event_reports
from saltvirt.operations.cluster import event_receiver
from saltvirt.operations.inspect import activity
from saltvirt.operations.journal import activity_log, event_log, location_cache
from saltvirt.operations.journal.activity_log import LogEntry
from tests.clock import Clock
from tests.unit.fleet.test_proof import minions, travelled  # noqa: F401

NOW_S = 1795953600.0  # 2026-11-29 12:00 UTC


@pytest.fixture
def cloud(tmp_path, minions, monkeypatch):  # noqa: F811
    return Cloud(tmp_path, minions, monkeypatch)


class Cloud:
    """A master that receives the reports of hv1 and hv2, and a minion web1."""

    def __init__(self, tmp_path, minions, monkeypatch):  # noqa: F811
        self.opts = {"cachedir": str(tmp_path)}
        self.now_s, self.clock = NOW_S, Clock()
        self.minions = {**minions, "hv2": minions["hv1"]}
        keys = {host: key for host, (_, key) in self.minions.items()}
        monkeypatch.setattr(event_receiver.target, "hosts", lambda _opts: ["hv1", "hv2", "below"])
        monkeypatch.setattr(
            event_receiver, "KeyStore", lambda _opts: type("Keys", (), {"of_host": keys.get})
        )
        self.receiver = self.new_receiver()
        self.reporters = {host: self.reporter(host) for host in self.minions}

    def new_receiver(self):
        return event_receiver.EventReceiver(self.opts, lambda: self.now_s, self.clock)

    def reporter(self, host):
        opts = {**self.minions[host][0], "id": host}
        return event_reports.EventReporter(opts, 60, lambda: self.now_s)

    def signed(self, host, report=None):
        payload = (report or self.reporters[host].report()).to_answer()
        opts = {**self.minions[host][0], "id": host}
        return proof.sign(opts, host_events.JID, host_events.FUNCTION, payload)

    def send(self, host, data=None, tag=None):
        """A report arrives as the event of some minion; a second passes."""
        data = {"id": "any", "data": travelled(data or self.signed(host))}
        self.receiver.receive(tag or f"{host_events.TAG}{host}", data)
        self.now_s += 1

    def log(self, name=None, limit=50, limited=False):
        entries = activity.listing(self.opts, name, limit, limited)["log"]["entries"]
        return [(entry["guest"] or entry["host"], entry.get("state")) for entry in entries]


def test_an_event_is_recorded_once_also_over_restarts_of_the_engines(cloud):
    cloud.reporters["hv1"].add("web1", "crashed")
    cloud.send("hv1")
    cloud.send("hv1")  # it repeats recent events
    cloud.receiver = cloud.new_receiver()
    cloud.send("hv1")
    assert cloud.log("web1") == [("web1", "crashed")]
    cloud.reporters["hv1"] = cloud.reporter("hv1")
    cloud.reporters["hv1"].add("web1", "io_error", "vda, enospc, pause")
    cloud.send("hv1")
    [_, entry] = activity.listing(cloud.opts, "web1", 50, False)["log"]["entries"]
    assert entry == {
        "time": "2026-11-29T12:00:03Z", "seconds": 0.0, "user": "libvirt", "verb": "event",
        "guest": "web1", "host": "hv1", "result": False, "state": "io error",
        "comment": "I/O error: vda, enospc, pause",
    }  # fmt: skip


def test_what_a_host_has_not_signed_is_not_recorded(cloud):
    for host in ("hv1", "web1"):
        cloud.reporters[host].add("web1", "crashed")
    own = cloud.signed("hv1")
    cloud.send("hv2", own)  # of another host
    cloud.send("web1", cloud.signed("web1"))  # of no hypervisor
    cloud.send("below", own)  # whose key this master does not have
    cloud.send("hv1", {**own, "proof": "AAAA"})
    cloud.send("hv1", {**own, "said": {**own["said"], "session": "other"}})
    for data in (None, [], {"said": 1}, {"said": {}, "proof": own["proof"]}):
        cloud.receiver.receive(f"{host_events.TAG}hv1", {"data": data})
    cloud.receiver.receive(f"{host_events.TAG}hv1", None)
    assert cloud.log() == []
    cloud.send("hv1", own)
    assert cloud.log() == [("web1", "crashed")]


def test_a_report_that_is_sent_again_does_not_hide_that_the_host_is_silent(cloud):
    former = cloud.signed("hv1")
    cloud.send("hv1", former)
    for _ in range(60):
        cloud.clock.now += 5
        cloud.now_s += 5
        cloud.send("hv1", former)
        cloud.receiver.check_silence()
    assert cloud.log("hv1") == [("hv1", "silent")]
    cloud.send("hv1")
    assert cloud.log("hv1") == [("hv1", "silent"), ("hv1", "returned")]
    future = cloud.reporters["hv1"].report()
    cloud.send("hv1", cloud.signed("hv1", event_reports.EventReport("s", cloud.now_s + 9999, 1)))
    assert event_log.states(cloud.opts)["hv1"].sent_s < future.sent_s + 1


def test_two_engines_of_a_host_report_each_event_once(cloud):
    """After the minion was killed, its former engine can remain."""
    for number in range(12):
        cloud.reporters["hv1"] = cloud.reporter("hv1")
        cloud.reporters["hv1"].add("web1", "crashed")
        cloud.send("hv1")
        assert len(cloud.log("web1")) == number + 1
    engines = [cloud.reporters["hv1"], cloud.reporter("hv1")]
    engines[1].add("web1", "panicked")
    for _ in range(5):
        for engine in engines:
            cloud.send("hv1", cloud.signed("hv1", engine.report()))
        cloud.receiver = cloud.new_receiver()
    assert len(cloud.log("web1")) == 13
    long = event_reports.EventReport("s" * 1000, cloud.now_s, 1)
    cloud.send("hv1", cloud.signed("hv1", long))
    assert len(event_log.states(cloud.opts)["hv1"].session) < 100


def test_a_clock_that_was_ahead_does_not_hide_events_after_its_correction(cloud, caplog):
    cloud.now_s += 3000
    ahead = cloud.signed("hv1")
    cloud.now_s -= 3000
    cloud.send("hv1", ahead)
    cloud.reporters["hv1"].add("web1", "crashed")
    cloud.send("hv1")
    assert cloud.log("web1") == [("web1", "crashed")]
    for _ in range(3):
        future = event_reports.EventReport("s", cloud.now_s + 9999, 1)
        cloud.send("hv1", cloud.signed("hv1", future))
    assert caplog.text.count("hv1: no events are recorded: its clock is more than an hour") == 1


def test_forged_reports_do_not_fill_the_log_file(cloud, caplog):
    for _ in range(20):
        cloud.send("hv1", {**cloud.signed("hv1"), "proof": "AAAA"})
    assert caplog.text.count("not signed") == 1


def test_hosts_are_not_silent_because_the_master_did_not_listen(cloud):
    cloud.send("hv1")
    cloud.send("hv2")
    cloud.clock.now += 600  # its machine was paused
    cloud.send("hv2")
    cloud.receiver.check_silence()
    assert cloud.log() == []
    for _ in range(40):
        cloud.clock.now += 5
        cloud.receiver.check_silence()
    assert cloud.log() == [("hv1", "silent"), ("hv2", "silent")]


def test_a_host_that_reports_much_displaces_nothing_of_others(cloud, tmp_path, monkeypatch):
    monkeypatch.setattr(event_log, "MAX_BYTES", 4000)
    activity_log.append(
        cloud.opts, [LogEntry("2026-11-29T11:00:00Z", 1, "ann", "init", "db1", "hv2", True, "")]
    )
    cloud.reporters["hv2"].add("db1", "panicked")
    cloud.send("hv2")
    for number in range(100):
        for event in range(10):
            cloud.reporters["hv1"].add(f"web{number}-{event}", "crashed")
        cloud.send("hv1")
    entries = cloud.log(limit=20)
    assert {("db1", None), ("db1", "panicked")} <= {*entries}
    assert len(entries) <= 21
    files = [path for path in (tmp_path / "virt/events").iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 20_000


def test_a_guest_in_a_loop_is_recorded_up_to_a_limit(cloud):
    for _ in range(500):
        cloud.reporters["hv1"].add("web1", "rebooted")
        cloud.send("hv1")
    entries = cloud.log("web1", 500)
    assert len(entries) == event_reports.MAX_PER_HOUR + 1
    assert entries[-1] == ("web1", "unlogged")
    cloud.reporters["hv1"].add("web1", "crashed")
    cloud.send("hv1")
    assert cloud.log("web1", 500)[-1] == ("web1", "crashed")
    cloud.now_s += 3600
    cloud.reporters["hv1"].add("web1", "rebooted")
    cloud.send("hv1")
    assert cloud.log("web1", 500)[-1] == ("web1", "rebooted")


def test_a_start_is_one_event(cloud):
    """libvirt reports two: that the CPUs run, and the start."""
    for guest, state in (
        ("db1", "resumed"), ("web1", "resumed"), ("db1", "started"), ("web1", "started"),
        ("web1", "paused"), ("web1", "resumed"),
    ):  # fmt: skip
        cloud.reporters["hv1"].add(guest, state)
    states = [(event.guest, event.state) for event in cloud.reporters["hv1"].report().events]
    assert states == [
        ("db1", "started"), ("web1", "started"), ("web1", "paused"), ("web1", "resumed"),
    ]  # fmt: skip


def test_a_host_reports_nothing_about_a_guest_that_never_was_there(cloud):
    for host in ("hv1", "hv2"):
        cloud.reporters[host].add("web1", "crashed")
        cloud.send(host)
    location_cache.store_host(cloud.opts, "hv1", {"web1": "running"})
    location_cache.store_host(cloud.opts, "hv2", {"db1": "running"})
    entries = activity.listing(cloud.opts, "web1", 50, False)["log"]["entries"]
    assert [entry["host"] for entry in entries] == ["hv1"]
    moved = LogEntry("2026-11-29T10:00:00Z", 1, "ann", "init", "web1", "hv2", True, "")
    activity_log.append(cloud.opts, [moved])  # it was there
    entries = activity.listing(cloud.opts, "web1", 50, False)["log"]["entries"]
    assert [entry["host"] for entry in entries] == ["hv2", "hv1", "hv2"]


def test_a_limited_user_sees_events_of_a_known_guest_only(cloud):
    cloud.reporters["hv1"].add("web1", "crashed")
    cloud.reporters["hv1"].add(None, "listening")
    cloud.send("hv1")
    assert cloud.log("web1", limited=True) == []
    location_cache.store_host(cloud.opts, "hv1", {"web1": "running"})
    assert cloud.log("web1", limited=True) == [("web1", "crashed")]
    assert cloud.log("hv1", limited=True) == []
    location_cache.store_host(cloud.opts, "hv2", {"web1": "running"})  # it says
    assert cloud.log("web1", limited=True) == []
    assert cloud.log("web1") == [("web1", "crashed")]


def test_the_effect_of_a_verb_is_no_event(cloud):
    started = LogEntry("2026-11-29T12:00:05Z", 5, "ann", "start", "web1", "hv1", True, "")
    activity_log.append(cloud.opts, [started])
    for state in ("started", "crashed"):
        cloud.reporters["hv1"].add("web1", state)
    cloud.send("hv1")
    cloud.now_s += 60
    cloud.reporters["hv1"].add("web1", "stopped")
    cloud.send("hv1")
    assert [state for _, state in cloud.log("web1")] == ["crashed", None, "stopped"]


def test_the_log_names_what_is_not_configured(cloud, monkeypatch):
    def notice(limited=False):
        return activity.listing(cloud.opts, None, 50, limited)["log"]["notice"]

    assert notice().startswith("events of libvirt are not recorded: add the engine virt_log")
    assert notice(limited=True) == ""
    cloud.send("hv1")
    assert notice() == ""
    monkeypatch.setattr(event_log.time, "time", lambda: 4e9)
    assert notice().startswith("no host has reported events since ")


@pytest.mark.parametrize(
    ("event", "data", "expected"),
    [
        ("lifecycle", {"event": "stopped", "detail": "shutdown"}, ("stopped", "")),
        ("lifecycle", {"event": "stopped", "detail": "destroyed"}, ("stopped", "destroyed")),
        ("lifecycle", {"event": "stopped", "detail": "crashed"}, ("crashed", "")),
        ("lifecycle", {"event": "suspended", "detail": "ioerror"}, ("paused", "ioerror")),
        ("lifecycle", {"event": "crashed", "detail": "panicked"}, ("panicked", "")),
        ("lifecycle", {"event": "undefined", "detail": "removed"}, ("removed", "")),
        ("lifecycle", {"event": "undefined", "detail": "renamed"}, None),
        ("lifecycle", {"event": "defined", "detail": "updated"}, None),
        ("watchdog", {"action": "reset"}, ("watchdog", "reset")),
        ("io_error", {"dev": "vda", "reason": "enospc", "action": "pause", "srcPath": "/x"},
         ("io_error", "vda, enospc, pause")),
        ("balloon_change", {"actual": 1}, None),
    ],
)  # fmt: skip
def test_an_event_of_libvirt_has_a_state_and_a_description(event, data, expected):
    assert host_events.from_libvirt(event, data) == expected
    if expected:
        assert host_events.describe(*expected)


def test_each_failure_is_one_and_each_filter_exists():
    events = pytest.importorskip("saltvirt.host.node.events")
    assert len(events.parse_filters([*host_events.FILTERS])) == len(host_events.FILTERS)
    failed = host_events.HostEvent(1, 0, "web1", "paused", "ioerror")
    assert failed.is_failure
    assert not host_events.HostEvent(1, 0, "web1", "paused").is_failure
