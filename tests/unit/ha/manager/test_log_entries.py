"""The decisions of high availability in virt.log."""

import json

import pytest

pytest.importorskip("salt")

from saltvirt.ha.manager.journal import HaJournal
from saltvirt.operations.inspect.activity import listing
from saltvirt.operations.journal import activity_log
from saltvirt.operations.journal.activity_log import LogEntry

LINES = [
    ("09:00:00", "host", "hv1", {"old": "online", "new": "fencing", "reason": "silent"}),
    ("09:00:01", "fence", "hv1", {"old": "", "new": "started", "reason": "attempt 1"}),
    ("09:00:09", "fence", "hv1", {"old": "started", "new": "timed out", "reason": "ipmilan"}),
    ("09:01:00", "guest", "web1", {"old": "fence", "new": "started", "reason": "hv1 is off"}),
    ("09:01:02", "host", "hv2", {"guest": "web1", "action": "start", "reason": "as decided"}),
    ("09:02:00", "request", "web1", {"verb": "ha_enable", "reason": "x"}),
    ("09:02:00", "definition", "web1", {"host": "hv2"}),
]


@pytest.fixture
def opts(tmp_path):
    """A master with a journal, and a verb that was called between two decisions."""
    found = {"cachedir": str(tmp_path), "virt": {"ha": {"members": ["hv1", "hv2"]}}}
    path = HaJournal(found).path
    path.parent.mkdir(parents=True)
    lines = [
        json.dumps({"at": f"2026-11-29T{at}Z", "kind": kind, "name": name, **details})
        for at, kind, name, details in LINES
    ]
    lines += ['{"at": 7, "kind": "guest", "name": "web1"}', '{"at": "2026', "7"]
    path.write_text("\n".join(lines), encoding="utf-8")
    entry = LogEntry("2026-11-29T09:00:30Z", 1, "anna", "start", "web2", "hv2", True, "runs")
    activity_log.append(found, [entry])
    return found


def test_decisions_are_among_the_changes_in_their_order(opts):
    rows = listing(opts, None, 50, False)["log"]["table"]
    assert [row[1:6] for row in rows[1:]] == [
        ["ha", "ha host", None, "hv1", "fencing"], ["ha", "fence", None, "hv1", "started"],
        ["ha", "fence", None, "hv1", "timed out"], ["anna", "start", "web2", "hv2", "done"],
        ["ha", "ha guest", "web1", None, "started"], ["ha", "ha host", "web1", "hv2", "start"],
    ]  # fmt: skip
    assert rows[5][6] == "from fence: hv1 is off"
    assert len(listing(opts, None, 2, False)["log"]["entries"]) == 2


def test_decisions_about_a_guest_or_a_host(opts):
    guest = listing(opts, "web1", 50, False)["log"]["entries"]
    assert [entry["comment"] for entry in guest] == ["from fence: hv1 is off", "as decided"]
    host = listing(opts, "hv1", 50, False)["log"]["entries"]
    assert [(entry["state"], entry["result"]) for entry in host] == [
        ("fencing", True), ("started", True), ("timed out", False),
    ]  # fmt: skip


def test_a_limited_user_sees_no_reasons(opts):
    found = listing(opts, "web1", 50, True)["log"]["entries"]
    assert [entry["comment"] for entry in found] == ["decided by high availability"] * 2


def test_a_host_puts_no_text_into_the_log_of_a_limited_user(opts):
    HaJournal(opts).write("definition", "web1")  # ends the damaged line
    acts = ("start web1", "ask the owner of payroll-db for web1")
    for action in acts:
        HaJournal(opts).write("host", "hv2", guest="web1", action=action, reason="x")
    found = listing(opts, "web1", 50, False)["log"]["entries"][-2:]
    assert [(entry["state"], entry["comment"]) for entry in found] == [
        ("start", f"{acts[0]}: x"), ("other", f"{acts[1]}: x"),
    ]  # fmt: skip
    assert "payroll-db" not in str(listing(opts, "web1", 50, True))


def test_without_high_availability_its_journal_is_not_read(opts):
    del opts["virt"]
    assert [e["user"] for e in listing(opts, None, 50, False)["log"]["entries"]] == ["anna"]
