"""The master's connection to guests: tickets, hypervisors that lie or do not answer, and messages
to pages; without guests."""

import contextlib
import dataclasses
import json
import os
import runpy
import socket
import ssl
import threading
import time
from types import SimpleNamespace

import pytest

pytest.importorskip("salt")
pytest.importorskip("tornado")
pytest.importorskip("cryptography")

from saltvirt import errors
from saltvirt.answers import reach
from saltvirt.console.master import agent_client, guest_connection, tickets
from saltvirt.pki.common import certs
from saltvirt.pki.host import own_pair
from saltvirt.system import tls_listener
from saltvirt.web import cluster_view, page_events, page_session, serve
from tests.clock import until
from tests.lab.paths import REPOSITORY
from tests.unit.placement.test_choose import guest as placed
from tests.unit.placement.test_choose import host as host_with

DIGEST = "a" * 64
SECRET = "s" * 43


@pytest.fixture
def opts(tmp_path):
    return {"cachedir": str(tmp_path), "sock_dir": str(tmp_path)}


def made(opts, secret=SECRET, user=None):
    with tickets.issuing(opts, user, tickets.digest(secret)):
        pass
    return tickets.folder(opts) / tickets.digest(secret)


# -- tickets ---------------------------------------------------------------------------------------


def test_a_secret_is_good_for_one_ticket(opts):
    path = made(opts)
    with pytest.raises(errors.AlreadyExists, match="use another secret"):
        made(opts)
    assert tickets.redeem(opts, SECRET).is_page and not path.exists()


def test_a_ticket_that_is_being_made_is_none_yet(opts):
    with tickets.issuing(opts, None, tickets.digest(SECRET)), pytest.raises(errors.Denied):
        tickets.redeem(opts, SECRET)
    assert tickets.redeem(opts, SECRET).is_page


def test_no_ticket_is_left_where_it_could_not_be_made(opts):
    with pytest.raises(ZeroDivisionError), tickets.issuing(opts, None, DIGEST):
        raise ZeroDivisionError
    assert os.listdir(tickets.folder(opts)) == [".lock"]


def test_a_folder_that_leads_elsewhere_is_not_used(opts, tmp_path):
    place = tickets.folder(opts)
    place.parent.mkdir(parents=True)
    (tmp_path / "theirs").mkdir()
    place.symlink_to(tmp_path / "theirs")
    with pytest.raises(errors.OperationFailed, match="only this user can access"):
        made(opts)
    assert os.listdir(tmp_path / "theirs") == []


@pytest.mark.parametrize("name", [DIGEST, "x"])
@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 100_000, '{"user": 7}', None])
def test_what_is_no_ticket_goes_when_it_is_old(opts, name, text):
    kept = made(opts)
    path = tickets.folder(opts) / name
    if text is None:
        path.symlink_to("/etc/passwd")
    else:
        path.write_text(text)
    made(opts, "t" * 43)
    assert os.path.lexists(path), "somebody may be writing it"
    old = time.time() - 301
    os.utime(path, (old, old), follow_symlinks=False)
    made(opts, "u" * 43)
    assert not os.path.lexists(path) and kept.exists()


def test_a_ticket_that_nobody_used_goes_when_it_is_no_good(opts, monkeypatch):
    path, now = made(opts), time.time()
    monkeypatch.setattr(tickets, "time", SimpleNamespace(time=lambda: now + 31))
    made(opts, "t" * 43)
    assert not path.exists()


# -- the way ---------------------------------------------------------------------------------------


@pytest.fixture
def hypervisor(monkeypatch):
    """begin(what it does with a caller) → the way to it."""
    monkeypatch.setattr(guest_connection, "CONNECT_TIMEOUT_S", 60)
    own, caller = (
        own_pair.generate(reach.CERTIFICATE_NAME, certs.SERVER),
        own_pair.generate(reach.CERTIFICATE_NAME, certs.CLIENT),
    )
    shown = tls_listener.TlsCredentials(own.authority, own.certificate, own.key, caller.authority)
    context = tls_listener.context(shown, ssl.PROTOCOL_TLS_SERVER)
    with contextlib.ExitStack() as ends:

        def begin(does):
            listener = ends.enter_context(socket.create_server(("127.0.0.1", 0)))

            def serve_one():
                with contextlib.suppress(OSError):
                    line, _ = listener.accept()
                    with context.wrap_socket(line, server_side=True) as tls:
                        does(tls)
                        tls.recv(1)

            threading.Thread(target=serve_one, daemon=True).start()
            port = listener.getsockname()[1]
            return guest_connection.GuestConnection("web1", "u", "hv1", "display", "vnc",
            "127.0.0.1", port,
            own.authority,
                           caller.certificate, caller.key)  # fmt: skip

        yield begin


def test_who_is_let_in_reads_what_is_the_guests(hypervisor):
    with guest_connection.connect(hypervisor(lambda line: line.sendall(b"ok\nRFB"))) as line:
        assert line.recv(3) == b"RFB" and line.gettimeout() is None


@pytest.mark.parametrize("does, error, words", [
    (lambda line: line.sendall(b"no web1 is off\n"), errors.OperationFailed, "^hv1: web1 is off$"),
    (lambda line: line.unwrap(), errors.OperationFailed, "closed without a message"),
    (lambda line: line.sendall(b"x" * 5000), errors.OperationFailed, "hv1: xxx"),
])  # fmt: skip
def test_a_hypervisor_that_lets_nobody_in_is_named_with_its_reason(hypervisor, does, error, words):
    with pytest.raises(error, match=words):
        guest_connection.connect(hypervisor(does))


def test_a_hypervisor_that_says_nothing_is_not_waited_for_without_end(hypervisor, monkeypatch):
    monkeypatch.setattr(guest_connection, "CONNECT_TIMEOUT_S", 0.5)
    with pytest.raises(errors.ConnectionFailed, match="cannot connect to hv1 at 127"):
        guest_connection.connect(hypervisor(lambda line: line.recv(1)))


# -- the engine ------------------------------------------------------------------------------------


@pytest.mark.parametrize("address, port, origins, words", [
    ("everywhere", 8003, None, "address must be an IP address"),
    ("127.0.0.1", True, None, "port must be a number"), ("::1", 0, None, "port must be"),
    ("127.0.0.1", "8003", None, "port must be"),
    ("127.0.0.1", 8003, "example.com", "origins must be a list of addresses such as https://"),
    ("127.0.0.1", 8003, ["https://a", 7], "origins must be"),
])  # fmt: skip
def test_a_wrong_option_of_the_engine_is_one_line(opts, address, port, origins, words):
    with pytest.raises(errors.InvalidInput, match=f"the engine virt_reach: {words}") as raised:
        serve.run(opts, address, port, origins, lambda: False)
    assert "\n" not in raised.value.text


def test_a_port_that_is_taken_is_one_line(opts):
    found = []

    def run(port):
        try:
            serve.run(opts, "127.0.0.1", port, ("https://a",), lambda: False)
        except errors.VirtError as exc:
            found.append(exc)

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        thread = threading.Thread(target=run, args=(port,))  # it makes a loop of its own
        thread.start()
        thread.join(60)
    assert [type(one) for one in found] == [errors.OperationFailed]
    assert found[0].text.startswith(f"cannot listen on 127.0.0.1 port {port}: ")


def test_the_engine_is_for_a_master_and_rests_before_it_is_begun_again(caplog, monkeypatch):
    engine = runpy.run_path(str(REPOSITORY / "_engines/virt_reach.py"))
    rests = []
    start = engine["start"]
    monkeypatch.setitem(start.__globals__, "time", SimpleNamespace(sleep=rests.append))
    for role, words in (("minion", "is for a master, not for a minion"),
                        ("master", "the engine virt_reach: port must be")):  # fmt: skip
        monkeypatch.setitem(start.__globals__, "__opts__", {"__role": role})
        start(port="x")
        assert words in caplog.text
    assert rests == [10, 10]


# -- commands and files ----------------------------------------------------------------------------


def test_a_line_that_breaks_is_named_with_its_guest_and_host(monkeypatch):
    found = guest_connection.GuestConnection(
        "web1", "u", "hv1", "agent", "agent", "127.0.0.1", 1, "", "", ""
    )
    ours, theirs = socket.socketpair()
    monkeypatch.setattr(agent_client.guest_connection, "request_relay", lambda *_: found)
    monkeypatch.setattr(agent_client.guest_connection, "connect", lambda _way: ours)
    theirs.close()
    with (
        pytest.raises(errors.ConnectionFailed, match=r"^web1 on hv1: the connection ended: "),
        agent_client.agent_stream(None, "web1") as (host, talk),
    ):
        assert host == "hv1"
        talk.ask("exec")
    assert ours.fileno() < 0


def test_a_check_of_a_copy_gives_every_reason_and_asks_the_agent_for_nothing(monkeypatch, tmp_path):
    connection = SimpleNamespace(host="hv1")
    monkeypatch.setattr(agent_client.guest_connection, "request_relay", lambda *_: connection)
    ours, theirs = socket.socketpair()
    monkeypatch.setattr(agent_client.guest_connection, "connect", lambda _way: ours.dup())
    local = tmp_path / "motd"
    local.write_text("hello")
    copy = agent_client.FileCopy(str(local), "/etc/motd")
    checked = agent_client.check_put(None, "web1", copy)
    assert checked.comment == f"{local}, 5 B, would be copied to /etc/motd of web1 on hv1"
    replacing = dataclasses.replace(copy, overwrite=True)
    assert agent_client.check_put(None, "web1", replacing).comment.endswith(
        "of web1 on hv1, and replace an existing file"
    )
    [reason] = agent_client.check_get(None, "web1", copy).reasons
    assert "motd" in reason and "exists" in reason
    got = agent_client.check_get(None, "web1", replacing).comment
    assert got.endswith(f"on hv1 would be copied to {local}, and replace an existing file")
    assert local.read_text() == "hello" and os.listdir(tmp_path) == ["motd"]
    theirs.setblocking(False)
    with pytest.raises(BlockingIOError):
        theirs.recv(1)

    def refuse(*_):
        raise errors.OperationFailed("web1 is off")

    monkeypatch.setattr(agent_client.guest_connection, "request_relay", refuse)
    gone = agent_client.FileCopy(str(tmp_path / "gone"), "/etc/motd")
    missing, off = agent_client.check_put(None, "web1", gone).reasons
    assert "gone" in missing and off == "web1 is off"
    ours.close()
    theirs.close()


def test_what_a_command_reads_is_a_file_of_the_master_that_is_not_too_long(tmp_path):
    path = tmp_path / "in"
    path.write_bytes(b"\0input")
    assert agent_client.read_input(None) == b"" and agent_client.read_input(str(path)) == b"\0input"
    with pytest.raises(errors.VirtError, match="none"):
        agent_client.read_input(str(tmp_path / "none"))
    path.write_bytes(bytes(64 * 1024 + 1))
    with pytest.raises(errors.InvalidInput, match="more than 64 KiB: copy it with"):
        agent_client.read_input(str(path))


def test_what_a_command_reads_may_be_typed(tmp_path, monkeypatch):
    path = tmp_path / "in"
    path.write_bytes(b"typed")
    with open(path) as file:
        monkeypatch.setattr(agent_client.sys, "stdin", file)
        assert agent_client.read_input("-") == b"typed"
    ours, theirs = os.openpty()
    os.close(theirs)  # its terminal is gone
    with open(ours) as file:
        monkeypatch.setattr(agent_client.sys, "stdin", file)
        with pytest.raises(errors.InvalidInput, match="stdin='-' cannot be read: Input/output"):
            agent_client.read_input("-")


# -- what pages see --------------------------------------------------------------------------------


@pytest.mark.parametrize("fault, words", [
    (errors.ConnectionFailed("the master does not run"), "the master does not run"),
    (ValueError("x"), "the hypervisors cannot be queried; the reason is in the master's log"),
])  # fmt: skip
def test_a_cloud_that_cannot_be_asked_is_said_to_every_page(opts, fault, words):
    def fleet(_opts):
        raise fault

    one = cluster_view.ClusterView(opts, lambda: False, fleet)
    one.last = one._query_cluster()
    found = one.for_user("anna")
    assert (found.snapshot.error, found.texts) == (words, {})
    page = page_session.PageSession(one, "anna", None, None)
    assert json.loads(page._snapshot_text(found))["error"] == words
    for user in ("bob", "eve"):
        one.for_user(user)
    assert set(one._user_views) == {"eve"}, "who is gone is not remembered for ever"


@pytest.mark.parametrize("about, shown", [
    (None, {}), ("", {}), ([], {}), (7, {}), ({"vm_info": None}, {"vm_info": None}),
    ({"vm_info": {"web1": None}}, {"vm_info": {}}),
])  # fmt: skip
def test_a_host_that_says_nothing_of_its_guests_takes_no_page_from_anybody(opts, about, shown):
    assert cluster_view._shown_query(about) == shown
    one = cluster_view.ClusterView(opts, lambda: False)
    good = {"vm_info": {"web2": {"state": "running"}}}
    one.last = cluster_view.ViewSnapshot(1, 0.0, {"hv1": about, "hv2": good})
    found = one.for_user(None)
    assert found.guests == {"web2"} and json.loads(found.texts["hv1"][1])["query"] == shown


def test_events_are_told_by_the_rights_of_the_last_look(opts, monkeypatch):
    """Each question for a user's groups may be a round trip to a directory: events are many."""
    opts.update(
        pki_dir=opts["cachedir"],
        virt={"rights": {"eauth": "ldap", "grants": [
            {"who": "%web", "verbs": ["query"], "guests": ["web*"]},
            {"who": "ops", "verbs": ["query"], "everything": True},
        ]}},
    )  # fmt: skip
    asked = []

    def groups(_opts, _eauth, user):
        asked.append(user)
        return ("web",)

    monkeypatch.setattr(cluster_view.access_check.requester, "groups", groups)
    one = cluster_view.ClusterView(opts, lambda: False)
    one._watching += [None, None]
    one.last = cluster_view.ViewSnapshot(1, 0.0, hosts=[host_with("hv1", [placed("web1")])],
                         query={"hv1": {"vm_info": {"web1": {}, "db1": {}}}})  # fmt: skip
    for user, hears in (("anna", [True, False]), ("ops", [True, True])):
        one.for_user(user)
        before = len(asked)
        for _ in range(10):
            told = [
                one.event_for_user(
                    user, page_events.PageEvent(f"salt/virt/{name}/init/copy", {"text": "x"}, name)
                )
                for name in ("web1", "db1")
            ]
            assert [each is not None for each in told] == hears
        assert len(asked) == before
    one.last = cluster_view.ViewSnapshot(2, 0.0, error="no hypervisor")
    assert (
        one.event_for_user("anna", page_events.PageEvent("salt/virt/web1/init/copy", {}, "web1"))
        is None
    )
    assert (
        one.event_for_user("ops", page_events.PageEvent("salt/virt/web1/init/copy", {}, "web1"))
        == {}
    )


def test_an_event_of_others_is_no_news(opts):
    one, heard = cluster_view.ClusterView(opts, lambda: False), []
    one._watching.append(SimpleNamespace(event_received=heard.append))
    for tag, data in (("salt/job/1/new", {}), ("salt/virt/x", {}), ("", {"name": "web1"})):
        before = one._next_at
        one.handle_event(tag, data)
        assert one._next_at == before and heard == []


@pytest.fixture
def view(opts, monkeypatch):
    """A view of a fleet without hosts, whose threads end at once."""
    monkeypatch.setattr(cluster_view, "_RETRY_S", 0.01)
    monkeypatch.setattr(cluster_view, "MIN_INTERVAL_S", 0.01)
    fleet = contextlib.nullcontext(SimpleNamespace(hosts=lambda: []))
    with contextlib.closing(
        cluster_view.ClusterView(opts, lambda: False, lambda _opts: fleet)
    ) as found:
        yield found


def test_events_that_cannot_be_read_are_tried_again(view, monkeypatch, caplog):
    tried = []

    def broken(*_words, **_more):
        tried.append(1)
        raise OSError("no bus")

    monkeypatch.setattr(cluster_view.salt.utils.event, "get_event", broken)
    with view.subscribed(SimpleNamespace(snapshot_taken=lambda: None)):
        until(lambda: len(tried) > 1, "another try")
    assert "cannot read the master's events for pages" in caplog.text


def test_what_comes_on_the_bus_is_told_to_who_watches(view, monkeypatch):
    data = {"percent": 30}
    coming = [None, {"tag": "salt/virt/web1/init/copy", "data": None}]
    coming.append({"tag": "salt/virt/web1/init/copy", "data": data})
    over = threading.Event()

    def get_event(**_how):
        return coming.pop(0) if coming else over.wait(0.01)

    bus = contextlib.nullcontext(SimpleNamespace(get_event=get_event))
    monkeypatch.setattr(cluster_view.salt.utils.event, "get_event", lambda *_words, **_more: bus)
    heard = []
    with view.subscribed(SimpleNamespace(snapshot_taken=lambda: None, event_received=heard.append)):
        until(lambda: heard, "the event")
    assert [(told.tag, told.data) for told in heard] == [("salt/virt/web1/init/copy", data)]


def test_an_event_of_which_it_is_not_known_who_may_hear_is_told_to_nobody(opts):
    class Blind:
        def event_for_user(self, user, told):
            raise errors.Denied("virt:rights is damaged")

    page = page_session.PageSession(Blind(), "anna", None, None)
    told = page_events.PageEvent("salt/virt/x", {"name": "web1"}, subject="web1")
    assert page._event_data(told) is None
