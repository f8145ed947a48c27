"""The events that the engine virt_reach sends to pages: one query for all, and to each user what
the rights allow."""

import contextlib
import hashlib
import json
import secrets
import threading

import pytest

pytest.importorskip("libvirt")
pytest.importorskip("tornado")
pytest.importorskip("cryptography")

from saltvirt import errors
from saltvirt.console.master import tickets, verbs
from saltvirt.operations.access import owners
from saltvirt.placement import facts as placement_facts
from saltvirt.web import cluster_view, page_events, proxy, usage_history
from tests.clock import until
from tests.functional.console.test_reach import NOT_GOOD, _listens
from tests.functional.daemon import libvirtd  # noqa: F401 - a fixture
from tests.functional.reached import Browser, Reached

# of anna all that is hers; of ops all
RIGHTS = {
    "grants": [
        {"who": "ops", "verbs": ["*"], "everything": True},
        {"who": "*", "verbs": ["use"], "owned": True},
        {"who": "carl", "verbs": ["start"], "guests": ["*"]},
    ]
}


@pytest.fixture
def cloud(libvirtd, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr(cluster_view, "MIN_INTERVAL_S", 0.2)
    # what others write to this machine's disk meanwhile would be told
    monkeypatch.setattr(placement_facts.Host, "free_disk_bytes", lambda *_: 2**30)
    found = Reached(libvirtd.uri, tmp_path)
    found.opts["engines"] = ["virt_reach"]
    monkeypatch.setattr(cluster_view.ClusterView, "_listen", lambda _self: None)
    until(lambda: _listens(found.port), "the proxy listens")
    yield found
    found.close()


@pytest.fixture
def page(cloud):
    with contextlib.ExitStack() as stack:

        def opened(user=None):
            one = Browser(cloud.url)
            stack.callback(one.close)
            assert one.begin(_ticket(cloud, user)) == {"page": True}
            return one

        yield opened


def _ticket(cloud, user):
    secret = secrets.token_urlsafe(32)
    digest = hashlib.sha256(secret.encode()).hexdigest()
    assert verbs.watch(cloud.opts, user, digest)["page"]["result"] is True
    return secret


def told(page, word):
    """The next message that has it."""
    while True:
        found = json.loads(page.receive())
        if word in found:
            return found


def looked(page):
    """The answer to its question for a look, with what was told of hosts before it."""
    hosts = {}
    while True:
        found = json.loads(page.receive())
        hosts |= found.get("hosts", {})
        if "answered" in found:
            return {**found, "hosts": hosts}


def _names(message):
    return sorted(
        name for one in message["hosts"].values() for name in one["query"].get("vm_info", {})
    )


def asked(cloud):
    return [fun for fun, _ in cloud.fleet.asked].count("virt.full_info")


def test_what_changed_is_told_and_nothing_else(cloud, page):
    dom = cloud.guest()
    one = page()
    first = told(one, "hosts")
    assert _names(first) == ["web1"] and first["hosts"]["hv1"]["info"]["guests"] == 1
    one.say("look")
    again = told(one, "answered")
    assert (again["hosts"], again["gone"], again["answered"]) == ({}, [], 1)
    dom.suspend()
    cloud.disarmed = True
    one.say("look")
    news_of_it = told(one, "hosts")
    guests = news_of_it["hosts"]["hv1"]["query"]["vm_info"]
    assert (guests["web1"]["state"], news_of_it["disarmed"]) == ("paused", True)


def test_the_usage_of_the_last_hour_is_told_to_who_may_see_it(cloud, page, monkeypatch):
    monkeypatch.setattr(usage_history, "INTERVAL_S", 0)
    cloud.guest()
    cloud.opts["virt"]["rights"] = RIGHTS
    one, other = page("ops"), page("anna")
    first = told(one, "usage")["usage"][-1]
    assert first["hosts"]["hv1"]["guests"]["web1"]["state"] == "running"
    one.say("look")
    (news,) = told(one, "usage")["usage"]
    assert news["at"] > first["at"] and news["hosts"]["hv1"]["cpus"] > 0
    third = page("ops")
    *past, last = told(third, "usage")["usage"]
    assert past[0]["at"] == first["at"] < last["at"]
    assert all("guests" not in sample["hosts"]["hv1"] for sample in past)
    assert "usage" not in told(other, "hosts")


def test_thirty_pages_are_one_question(cloud, page, monkeypatch):
    monkeypatch.setattr(cluster_view, "MIN_INTERVAL_S", 2)
    cloud.guest()
    before = asked(cloud)
    all_of_them = [page() for _ in range(30)]
    for one in all_of_them:
        assert _names(told(one, "hosts")) == ["web1"]
    for one in all_of_them:
        one.say("look")
    for one in all_of_them:
        assert told(one, "answered")["answered"] == 1
    assert asked(cloud) - before <= 4


def test_each_sees_what_is_granted_and_hears_of_no_other(cloud, page):
    hers, his = cloud.guest("anna1"), cloud.guest("bob1")
    cloud.opts["virt"]["rights"] = RIGHTS
    for dom, user in ((hers, "anna"), (his, "bob")):
        owners.set_owner(cloud.opts, dom.UUIDString(), dom.name(), user)
    ops, anna, bob = page("ops"), page("anna"), page("bob")
    assert _names(told(ops, "hosts")) == ["anna1", "bob1"]
    seen = told(anna, "hosts")
    assert _names(seen) == ["anna1"] and "info" not in seen["hosts"]["hv1"]
    assert "bob" not in json.dumps(seen)
    assert _names(told(bob, "hosts")) == ["bob1"]
    events = cloud.rules.view
    events.handle_event("salt/virt/bob1/start/begun", {"message": "words of bob1"})
    events.handle_event(
        "salt/run/1/ret", {"fun": "runner.virt.start", "user": "bob", "return": "his"}
    )
    waits = "it waits for virt.init of bob1, process 7"
    events.handle_event("salt/virt/anna1/start/begun", {"message": waits})
    with owners.making(cloud.opts, {"new1": owners.PendingGuest("anna", 1, 1, 1)}):
        events.handle_event("salt/virt/new1/init/copy", {"message": "a copy", "percent": 30})
        assert [told(anna, "event")["event"] for _ in range(2)] == [
            [
                "salt/virt/anna1/start/begun",
                {"message": "it waits for virt.init of a guest, process 7"},
            ],
            ["salt/virt/new1/init/copy", {"message": "a copy", "percent": 30}],
        ]
    heard = [told(bob, "event")["event"] for _ in range(2)]
    assert heard[0] == ["salt/virt/bob1/start/begun", {"message": "words of bob1"}]
    assert heard[1] == ["salt/run/1/ret", {"fun": "runner.virt.start", "return": "his"}]
    assert [told(ops, "event")["event"][0] for _ in range(3)] == [
        "salt/virt/bob1/start/begun", "salt/virt/anna1/start/begun", "salt/virt/new1/init/copy",
    ]  # fmt: skip
    # it becomes hers: at the next look she sees it, and he no more
    owners.set_owner(cloud.opts, his.UUIDString(), "bob1", "anna")
    for one, names in ((anna, ["anna1", "bob1"]), (bob, [])):
        one.say("look")
        assert _names(looked(one)) == names


def test_who_may_no_more_is_shown_out(cloud, page, monkeypatch):
    monkeypatch.setattr(proxy, "RECHECK_S", 0.1)
    cloud.opts["virt"]["rights"] = RIGHTS
    one = page("anna")
    cloud.opts["virt"]["rights"] = {"grants": []}
    assert one.end == (4001, "anna may no longer watch the cloud")


def test_an_error_in_the_rights_shows_nothing_to_anybody(cloud, page):
    cloud.guest()
    cloud.opts["virt"]["rights"] = RIGHTS
    one = page("ops")
    assert _names(told(one, "hosts")) == ["web1"]
    cloud.opts["virt"]["rights"] = {"grants": "all"}
    one.say("look")
    assert "virt:rights is invalid" in json.loads(one.receive())["error"]


def test_a_ticket_is_good_once_and_only_where_the_engine_is(cloud):
    secret = _ticket(cloud, "anna")
    one, two = Browser(cloud.url), Browser(cloud.url)
    try:
        assert one.begin(secret) == {"page": True}
        assert two.begin(secret) == NOT_GOOD
    finally:
        one.close()
        two.close()
    cloud.opts["engines"] = [{"virt_exporter": {}}]
    with pytest.raises(errors.OperationFailed, match="no engine virt_reach"):
        verbs.watch(cloud.opts, "anna", "0" * 64)
    cloud.opts["engines"] = [{"virt_reach": {"port": 1}}]
    assert verbs.watch(cloud.opts, "anna", "0" * 64)["page"]["seconds"] == tickets.LIFE_S


def test_a_page_says_nothing_but_look(page):
    one = page()
    one.say("look at that")
    assert one.end == (1000, "unexpected message")


def test_who_says_look_without_end_gets_no_more_than_others(cloud, page, monkeypatch):
    monkeypatch.setattr(cluster_view, "MIN_INTERVAL_S", 2)
    one = page()
    told(one, "hosts")
    before = asked(cloud)
    for _ in range(500):
        one.say("look")
    assert 0 < told(one, "answered")["answered"] <= 100
    assert asked(cloud) - before <= 2


def test_nobody_watches_nobody_is_asked(cloud, page):
    one = page()
    told(one, "hosts")
    one.close()
    until(lambda: not cloud.rules.view._watching, "it is gone")
    before = asked(cloud)
    cloud.rules.view.handle_event("salt/run/1/ret", {"fun": "runner.virt.start", "user": "root"})
    gone = threading.Event()
    gone.wait(1)
    assert asked(cloud) == before


@pytest.mark.parametrize(
    ("tag", "data", "found"),
    [
        ("salt/run/1/ret", {"fun": "runner.virt.query", "user": "a"}, (False, False)),
        ("salt/run/1/ret", {"fun": "runner.virt.snapshots", "user": "a"}, (False, False)),
        ("salt/run/1/ret", {"fun": "runner.virt.start", "user": "a"}, (True, True)),
        ("salt/run/1/new", {"fun": "runner.virt.start", "user": "a"}, None),
        ("salt/run/1/ret", {"fun": "runner.test.arg", "user": "a"}, None),
        ("salt/virt/web1/init/done", {"message": 1}, (True, True)),
        ("salt/virt/migrate/web1/progress", {"percent": 3}, (False, True)),
        ("salt/engines/libvirt_events/x", {}, (True, False)),
        ("salt/virt/ha/request", {}, (True, False)),
        ("salt/job/1/ret/hv1", {"return": {}}, None),
        ("salt/virt/web1/init/copy", {"cmd": "_minion_event", "data": "none"}, (False, True)),
        ("salt/virt/web1", {}, None),
    ],
)
def test_which_events_concern_pages(tag, data, found):
    told_of = page_events.read(tag, data)
    assert (told_of and (told_of.needs_refresh, told_of.is_shown)) == found
