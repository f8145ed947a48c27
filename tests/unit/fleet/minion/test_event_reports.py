"""The reports of a host about libvirt's events."""

import pytest

pytest.importorskip("salt")

from saltvirt.fleet.minion import event_reports


def reporter():
    return event_reports.EventReporter({"id": "hv1", "pki_dir": "/nonexistent"}, 60, lambda: 1e9)


def test_one_engine_of_a_host_reports_at_a_time(tmp_path):
    """A minion with two masters starts the engine for each of them."""
    opts, waits = {"cachedir": str(tmp_path)}, []
    first = event_reports.only_reporter(opts)
    first.__enter__()

    def pause(seconds):
        waits.append(seconds)
        if len(waits) == 2:
            first.__exit__(None, None, None)

    with event_reports.only_reporter(opts, pause):
        assert len(waits) == 2
    with event_reports.only_reporter(opts, pytest.fail):
        pass


def test_an_engine_reports_where_no_lock_is_possible(tmp_path):
    (tmp_path / "virt").write_text("")
    with event_reports.only_reporter({"cachedir": str(tmp_path)}, pytest.fail):
        pass


def test_a_libvirt_that_ends_again_and_again_is_reported_up_to_a_limit():
    one = reporter()
    for _ in range(500):
        one.add(None, "libvirt_lost")
        one.add(None, "listening")
    one.add("web1", "crashed")
    states = [event.state for event in one.report().events]
    assert states.count("libvirt_lost") <= event_reports.MAX_PER_HOUR
    assert states.count("unlogged") == 2
    assert states[-1] == "crashed"


def test_a_report_that_cannot_be_sent_does_not_end_the_reports(monkeypatch):
    one, sent = reporter(), []

    def send_all(_opts, messages):
        sent.append(messages)
        one.add("web1", "crashed")
        if len(sent) == 1:
            raise RuntimeError("no event loop")
        one.stop()

    monkeypatch.setattr(event_reports.proof, "sign", lambda *_arguments: {})
    monkeypatch.setattr(event_reports.events, "send_all", send_all)
    monkeypatch.setattr(event_reports, "_PAUSE_S", 0)
    one.add("web1", "crashed")
    one.run()
    assert len(sent) == 2
