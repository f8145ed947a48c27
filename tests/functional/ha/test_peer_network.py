"""The messages of agents and masters of high availability: frames over mutual TLS."""

import asyncio
import contextlib
import datetime
import json
import os
import random
import socket
import ssl
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("salt")

from cryptography import x509
from cryptography.hazmat.primitives import hashes

from saltvirt.errors import ConnectionFailed
from saltvirt.ha.transport import frames, peer_network, tls
from saltvirt.ha.transport.peer_connection import MAX_WAITING, Outbox, PeerConnection, PeerTiming
from saltvirt.ha.transport.peer_connection import cancel_all as ended_tasks
from saltvirt.ha.transport.peer_network import PeerNetwork
from saltvirt.pki.common import certs
from saltvirt.system.tls_listener import CertificateFiles
from tests.clock import until

PACE = PeerTiming(beat_s=0.3, quiet_s=0.3, silent_s=120, connect_s=2)
# of one that gives a silent one up soon
IMPATIENT = replace(PACE, silent_s=1.5)
NOW = datetime.datetime.now(datetime.timezone.utc)
DAY = datetime.timedelta(days=1)
KEY = certs.new_key()


class Authority:
    """A CA in a folder, and what it signed."""

    def __init__(self, folder, name, now=NOW):
        self.folder, self.name = folder, name
        folder.mkdir()
        self.key = certs.new_key()
        self.cert = certs.self_signed(self.key, certs.subject(name), 100, now)
        (folder / "ca.pem").write_bytes(certs.cert_pem(self.cert))

    def pair(self, name, purpose, common_name=None, now=NOW):
        wanted = certs.Leaf(certs.subject(common_name or name), (name,), purpose, 9)
        cert = certs.leaf(KEY.public_key(), wanted, (self.cert, self.key), now)
        at = self.folder / f"{name}-{purpose}"
        at.with_suffix(".crt").write_bytes(certs.cert_pem(cert))
        at.with_suffix(".key").write_bytes(certs.key_pem(KEY))
        return CertificateFiles(str(at.with_suffix(".crt")), str(at.with_suffix(".key"))), cert

    def credentials(self, name, revoked=None, now=NOW):
        return tls.PeerCredentials(
            str(self.folder / "ca.pem"),
            self.pair(name, certs.CLIENT, now=now)[0],
            self.pair(name, certs.SERVER, now=now)[0],
            revoked,
        )


class End:
    """One that talks, and what it heard."""

    def __init__(self, own, name, pace=PACE):
        self.name, self.heard, self.fails = name, [], False
        self.network = PeerNetwork(own, self.on_frame, pace)

    def on_frame(self, name, kind, body):
        if self.fails:
            raise ValueError("cannot read it")
        self.heard.append((name, kind, body))

    def listen(self, members=("hv2", "hv3"), masters=("salt",)):
        return self.network.listen("127.0.0.1", 0, members, masters)


@pytest.fixture
def ca(tmp_path):
    return Authority(tmp_path / "ca", "CA")


@pytest.fixture
def end(ca):
    ends = []

    def make(name, own=None, pace=PACE):
        ends.append(End(own or ca.credentials(name), name, pace))
        return ends[-1]

    yield make
    for one in ends:
        one.network.close()


@pytest.fixture
def lines(caplog):
    caplog.set_level("INFO")
    return lambda: [record.getMessage() for record in caplog.records]


def beat(host, **more):
    return frames.frame(frames.BEAT, {"host": host, **more})


def raw(ca, name, port, purpose=certs.CLIENT):
    """A connection of that name's certificate, to say anything by."""
    own = ca.credentials(name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(own.ca)
    pair = own.client if purpose == certs.CLIENT else own.server
    context.load_cert_chain(pair.certificate, pair.key)
    return context.wrap_socket(socket.create_connection(("127.0.0.1", port), 60))


def ended(connection):
    connection.settimeout(60)
    try:
        while connection.recv(4096):
            pass
    except (OSError, ssl.SSLError) as exc:
        return not isinstance(exc, TimeoutError)
    return True


def test_two_hear_each_other_and_know_who_speaks(end):
    one, two = end("hv1"), end("hv2")
    two.network.add_peer("hv1", "127.0.0.1", one.listen())
    two.network.send("hv1", beat("hv2", seq=7))
    until(lambda: one.heard, "the beat")
    assert one.heard == [("hv2", "beat", {"host": "hv2", "seq": 7})]
    until(lambda: two.network.heard_s("hv1") is not None, "a hello")
    until(lambda: one.network.heard_s("hv2") < 2, "a word of late")
    assert one.network.heard_s("hv3") is None


def test_an_agent_answers_a_master_on_the_masters_connection(end):
    agent, master = end("hv1"), end("salt")
    master.network.add_peer("hv1", "127.0.0.1", agent.listen())
    master.network.send("hv1", frames.frame(frames.CALL, {"master": "salt"}))
    until(lambda: agent.heard, "the call")
    agent.network.send("salt", beat("hv1"))
    until(lambda: master.heard, "the beat")
    assert agent.heard == [("salt", "call", {"master": "salt"})]
    assert master.heard == [("hv1", "beat", {"host": "hv1"})]


def test_who_speaks_for_another_is_cut_off_and_not_heard(end, ca, lines):
    agent = end("hv1")
    found = raw(ca, "hv2", agent.listen())
    found.sendall(beat("hv3").data)
    assert ended(found)
    assert agent.heard == []
    until(lambda: "connection from 127.0.0.1: a beat claims to be from hv3" in lines(), "the line")


def test_a_host_cannot_call_nor_a_master_beat(end, ca):
    agent = end("hv1")
    port = agent.listen()
    host, master = raw(ca, "hv2", port), raw(ca, "salt", port)
    host.sendall(frames.frame(frames.CALL, {"master": "hv2"}).data + beat("hv2").data)
    master.sendall(beat("salt").data + frames.frame(frames.CALL, {"master": "salt"}).data)
    until(lambda: len(agent.heard) == 2, "what each may say")
    assert sorted(one[:2] for one in agent.heard) == [("hv2", "beat"), ("salt", "call")]


def test_an_unknown_kind_is_passed_over(end, ca):
    agent = end("hv1")
    found = raw(ca, "hv2", agent.listen())
    found.sendall(frames.frame("later", {}).data + beat("hv2").data)
    until(lambda: agent.heard, "the beat")
    assert [one[1] for one in agent.heard] == ["beat"]


@pytest.mark.parametrize(
    "name, purpose", [("hv9", certs.CLIENT), ("hv1.evil", certs.CLIENT), ("hv2", certs.SERVER)]
)
def test_strangers_are_turned_away(end, ca, name, purpose):
    agent = end("hv1")
    found = raw(ca, name, agent.listen(), purpose)
    found.sendall(beat("hv2").data)
    assert ended(found)
    assert agent.heard == []


def test_another_authority_is_nobody(end, tmp_path, lines):
    agent = end("hv1")
    other = Authority(tmp_path / "other", "other")
    evil = end("hv2", other.credentials("hv2"))
    evil.network.add_peer("hv1", "127.0.0.1", agent.listen())
    evil.network.send("hv1", beat("hv2"))
    until(lambda: any("TLS" in line for line in lines()), "the line")
    assert agent.heard == []


def test_who_answers_at_the_address_of_another_is_not_believed(end, lines):
    agent, master = end("hv2"), end("salt")
    port = agent.listen()
    master.network.add_peer("hv1", "127.0.0.1", port)
    until(lambda: any("the peer is hv2" in line for line in lines()), "the line")
    agent.network.send("salt", beat("hv2"))
    time.sleep(0.3)
    assert master.heard == []


def revocations(ca, cert, now=NOW):
    entry = x509.RevokedCertificateBuilder().serial_number(cert.serial_number)
    found = x509.CertificateRevocationListBuilder().issuer_name(ca.cert.subject)
    return (
        found.last_update(now - DAY)
        .next_update(now + 9 * DAY)
        .add_revoked_certificate(entry.revocation_date(now).build())
        .sign(ca.key, hashes.SHA256())
    )


@pytest.mark.parametrize("when", (NOW, NOW - 200 * DAY, NOW + 200 * DAY))
def test_who_was_revoked_is_turned_away_and_nobody_else(end, tmp_path, lines, when):
    """Whatever the clocks say: hosts of one night's expiry must not take each other for dead."""
    path, ca = tmp_path / "crl.pem", Authority(tmp_path / "then", "CA", when)
    agent = end("hv1", ca.credentials("hv1", str(path), when))
    good, bad = (end(name, ca.credentials(name, now=when)) for name in ("hv3", "hv2"))
    cert = certs.load_certs((ca.folder / "hv2-client.crt").read_bytes())[0]
    path.write_bytes(certs.cert_pem(revocations(ca, cert, when)))
    port = agent.listen()
    for one in (bad, good):
        one.network.add_peer("hv1", "127.0.0.1", port)
        one.network.send("hv1", beat(one.name))
    until(lambda: any("CERTIFICATE_VERIFY_FAILED" in line for line in lines()), "the line")
    until(lambda: agent.heard, "the beat of one that is not revoked")
    assert [one[0] for one in agent.heard] == ["hv3"]


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x00",
        b"\x00\x00\x00\x04nope",
        b"\x00\x00\x00\x02[]",
        b'\x00\x00\x00\x10{"kind": "beat"}',
        frames.HEAD.pack(200_000) + b"[" * 200_000,
        frames.HEAD.pack(39) + b'{"kind":"beat","body":{"host":"hv2",\xff\xff\xff',
        frames.HEAD.pack(48) + b'{"kind":"beat","body":{"host":"hv2","a":NaN   }}',
        beat("hv2").data[:4] + b"{" * len(beat("hv2").data[4:]),
    ],
)
def test_what_is_no_frame_ends_the_connection(end, ca, data):
    agent = end("hv1")
    found = raw(ca, "hv2", agent.listen())
    found.sendall(data)
    assert ended(found)
    assert agent.heard == []


def test_what_its_reader_refuses_ends_the_connection(end, ca):
    agent = end("hv1")
    found = raw(ca, "hv2", agent.listen())
    agent.fails = True
    found.sendall(beat("hv2").data)
    assert ended(found)


def test_one_that_falls_silent_is_cut_off(end, ca):
    agent = end("hv1", pace=IMPATIENT)
    began = time.monotonic()
    found = raw(ca, "hv2", agent.listen())
    found.sendall(b"\x00\x00")
    assert ended(found)
    assert time.monotonic() - began > 1


def test_those_that_prove_nothing_take_no_place_from_others(end):
    agent, peer = end("hv1", pace=IMPATIENT), end("hv2")
    port = agent.listen()
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(30)]
    peer.network.add_peer("hv1", "127.0.0.1", port)
    peer.network.send("hv1", beat("hv2"))
    until(lambda: agent.heard, "the beat")
    for one in silent:
        one.close()


def test_one_that_takes_no_connection_is_tried_again_and_again_by_one_at_a_time(ca):
    with contextlib.ExitStack() as stack:
        deaf = stack.enter_context(socket.socket())
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        where = deaf.getsockname()
        stack.enter_context(socket.create_connection(where))  # its queue is full

        def half_open():
            """Of /proc/net/tcp: SYN_SENT to that port."""
            rows = Path("/proc/net/tcp").read_text().splitlines()
            return sum(f":{where[1]:04X} 02 " in row for row in rows)

        one = PeerNetwork(ca.credentials("hv1"), lambda *_frame: None, replace(PACE, connect_s=0.2))
        stack.callback(one.close)
        one.add_peer("hv2", *where)
        for _ in range(2):
            until(lambda: half_open() == 1, "it tries")
            until(lambda: half_open() == 0, "it gave up")


def test_it_connects_again_when_the_other_comes_back(end, lines):
    peer, agent = end("hv2"), end("hv1")
    port = agent.listen()
    peer.network.add_peer("hv1", "127.0.0.1", port)
    peer.network.send("hv1", beat("hv2", seq=1))
    until(lambda: agent.heard, "the first")
    agent.network.close()
    until(lambda: any("no connection: " in line for line in lines()), "it knows that it is alone")
    for seq in range(2, 9):
        peer.network.send("hv1", beat("hv2", seq=seq))
        time.sleep(0.05)
    again = end("hv1")
    again.network.listen("127.0.0.1", port, ("hv2",), ())
    until(lambda: again.heard, "the newest")
    assert [one[2]["seq"] for one in again.heard] == [8]


def test_a_certificate_that_is_not_there_is_said_and_waited_for(end, ca, lines):
    own = ca.credentials("hv2")
    aside = f"{own.client.certificate}.aside"
    os.rename(own.client.certificate, aside)
    agent, peer = end("hv1"), end("hv2", own)
    peer.network.add_peer("hv1", "127.0.0.1", agent.listen())
    peer.network.send("hv1", beat("hv2"))
    until(lambda: any("No such file" in line for line in lines()), "the line")
    os.rename(aside, own.client.certificate)
    until(lambda: agent.heard, "the beat")


def test_one_that_is_slow_to_prove_itself_is_waited_for(end, ca):
    """A master that begins has all agents to greet at once."""
    master = end("salt", pace=replace(PACE, connect_s=0.5))
    own = ca.credentials("hv1")
    context = tls.to_listen(own)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        master.network.add_peer("hv1", *listener.getsockname())
        found, _ = listener.accept()
        time.sleep(0.9)
        listener.settimeout(0.1)
        with pytest.raises(TimeoutError):
            listener.accept()
        found = context.wrap_socket(found, server_side=True)
        found.sendall(beat("hv1").data)
        until(lambda: master.heard, "the beat")
        found.close()


def test_a_taken_port_is_said(end):
    port = end("hv1").listen()
    with pytest.raises(ConnectionFailed, match="Address already in use"):
        end("hv2").network.listen("127.0.0.1", port, (), ())


def test_a_newer_connection_takes_the_place_of_the_older(end, ca):
    agent = end("hv1")
    port = agent.listen()
    older = raw(ca, "hv2", port)
    older.sendall(beat("hv2").data)
    until(lambda: agent.heard, "the first")
    newer = raw(ca, "hv2", port)
    newer.sendall(beat("hv2").data)
    until(lambda: len(agent.heard) == 2, "the second")
    assert ended(older)


def test_it_may_be_told_and_closed_by_any_thread(end):
    one = end("hv1")
    threads = [
        threading.Thread(target=one.network.send, args=("hv2", beat("hv1"))) for _ in range(9)
    ]
    for thread in threads:
        thread.start()
    one.network.close()
    one.network.close()
    one.network.send("hv2", beat("hv1"))


def test_a_connection_ends_though_something_is_said_at_that_moment():
    async def ends():
        ours, theirs = socket.socketpair()
        line = PeerConnection(lambda _: frames.FROM_MEMBERS, PACE, Outbox(), print, print)
        await asyncio.get_running_loop().create_connection(lambda: line, sock=ours)
        work = asyncio.ensure_future(line.run())
        await asyncio.sleep(0.05)
        line.outbox.put(beat("hv1"))
        line.flush()
        work.cancel()
        done, _ = await asyncio.wait([work], timeout=60)
        theirs.close()
        return work in done

    assert asyncio.run(ends())


def test_what_lost_its_cancel_is_cancelled_again():
    async def work():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(600)
        await asyncio.sleep(600)

    async def ends():
        task = asyncio.ensure_future(work())
        await asyncio.sleep(0)
        await asyncio.wait_for(ended_tasks([task]), 60)
        return task.cancelled()

    assert asyncio.run(ends())


def reads(connection):
    """The frames that come, as they are on the line."""
    buffer = b""
    while True:
        while len(buffer) < 4 or len(buffer) < 4 + frames.length(buffer[:4]):
            came = connection.recv(1 << 20)
            assert came, "the connection has ended"
            buffer += came
        end = 4 + frames.length(buffer[:4])
        yield json.loads(buffer[4:end])
        buffer = buffer[end:]


def hello(**body):
    return frames.frame(frames.HELLO, body).data


def test_one_that_takes_changes_is_told_what_changed_on_its_own_connection(end, ca):
    agent = end("hv1")
    port = agent.listen()
    for _ in range(2):
        found = raw(ca, "salt", port)
        found.sendall(hello(changes=True) + frames.frame(frames.CALL, {"master": "salt"}).data)
        until(lambda: agent.heard, "the call")
        told, beats = [], (one for one in reads(found) if one["kind"] == "beat")
        for seq in (1, 2, 2):
            agent.network.send("salt", beat("hv1", seq=seq, guests={"web1": {"epoch": 1}}))
            told.append(next(beats))
        assert told == [
            {"kind": "beat", "body": {"host": "hv1", "seq": 1, "guests": {"web1": {"epoch": 1}}}},
            {"kind": "beat", "body": {"host": "hv1", "seq": 2}, "changes": True},
            {"kind": "beat", "body": {"host": "hv1"}, "changes": True},
        ]
        found.close()
        agent.heard.clear()


def test_one_that_gathers_hears_all_and_is_woken_seldom(end):
    agent, master = end("hv1"), end("salt", pace=replace(PACE, gather_s=1))
    looked = []
    select = master.network._loop._selector.select
    master.network._loop._selector.select = lambda *wait: looked.append(1) or select(*wait)
    master.network.add_peer("hv1", "127.0.0.1", agent.listen())
    until(lambda: agent.network.heard_s("salt") is not None, "a hello")
    looked.clear()
    for at in range(20):
        agent.network.send("salt", frames.frame(frames.JOURNAL, {"at": at}))
        time.sleep(0.02)
    until(lambda: len(master.heard) == 20, "all")
    assert [body["at"] for _, _, body in master.heard] == [*range(20)]
    assert len(looked) < 15


def test_one_that_takes_no_changes_is_told_all(end, ca):
    agent = end("hv1")
    found = raw(ca, "salt", agent.listen())
    found.sendall(hello() + frames.frame(frames.CALL, {"master": "salt"}).data)
    until(lambda: agent.heard, "the call")
    for seq in (1, 2):
        agent.network.send("salt", beat("hv1", seq=seq, guests={}))
    told = next(one for one in reads(found) if one["kind"] == "beat" and one["body"]["seq"] == 2)
    assert told == {"kind": "beat", "body": {"host": "hv1", "seq": 2, "guests": {}}}


def test_a_beat_is_heard_as_it_was_said_however_it_came(end):
    agent, master = end("hv1"), end("salt")
    master.network.add_peer("hv1", "127.0.0.1", agent.listen())
    until(lambda: agent.network.heard_s("salt") is not None, "a hello")
    rng, said = random.Random(1), []
    for seq in range(200):
        guests = {f"g{n}": {"epoch": n} for n in range(rng.choice((1, 1, 2)))}
        body = {"host": "hv1", "seq": seq, "a": rng.choice([None, 0.5]), "guests": guests}
        if rng.random() < 0.1:
            del body["a"]
        said.append(("hv1", "beat", body))
        agent.network.send("salt", frames.frame("beat", body))
        time.sleep(rng.choice((0, 0, 0.002)))
    until(lambda: master.heard and master.heard[-1] == said[-1], "the last")
    assert all(one in said for one in master.heard)


def test_a_slow_reader_gets_the_newest_and_nothing_is_said_of_what_he_never_got(end, ca):
    agent = end("hv1")
    found = raw(ca, "salt", agent.listen())
    found.sendall(hello(changes=True) + frames.frame(frames.CALL, {"master": "salt"}).data)
    until(lambda: agent.heard, "the call")
    for seq in range(60):
        agent.network.send("salt", beat("hv1", seq=seq, guests={"much": f"{seq:09}" * 100_000}))
        time.sleep(0.005)
    until(lambda: not agent.network._outgoing, "it knows of all before the first is read")
    known, seqs = None, []
    for one in reads(found):
        if one["kind"] != "beat":
            continue
        known = {**known, **one["body"]} if one.get("changes") else one["body"]
        assert known["guests"]["much"] == f"{known['seq']:09}" * 100_000
        seqs.append(known["seq"])
        if known["seq"] == 59:
            break
    assert seqs == sorted(seqs) and len(seqs) < 50


@pytest.mark.parametrize(
    "said",
    [
        [{"kind": "beat", "body": {"host": "hv2"}, "changes": True}],
        [{"kind": "beat", "body": {"host": "hv2"}},
         {"kind": "beat", "body": {"host": "hv2", "more": 1}, "changes": True}],
        [{"kind": "beat", "body": {"host": "hv2"}},
         {"kind": "beat", "body": {"seq": 1}, "changes": True}],
        [{"kind": "beat", "body": {"host": "hv2"}},
         {"kind": "journal", "body": {"host": "hv2"}, "changes": True}],
    ],
)  # fmt: skip
def test_changes_of_what_was_not_told_end_the_connection(end, ca, said):
    agent = end("hv1")
    found = raw(ca, "hv2", agent.listen())
    for one in said:
        data = json.dumps(one).encode()
        found.sendall(frames.HEAD.pack(len(data)) + data)
    assert ended(found)
    assert len(agent.heard) == len(said) - 1


def test_only_the_newest_of_a_slot_waits():
    box = Outbox()
    for seq in range(3):
        box.put(beat("hv1", seq=seq))
        box.put(frames.frame(frames.DEFINITION, {"name": "web1", "digest": seq}))
        box.put(frames.frame(frames.JOURNAL, {"at": seq}))
    waiting = [json.loads(one.data[4:])["body"] for one in box.waiting.values()]
    assert waiting == [
        {"at": 0},
        {"at": 1},
        {"host": "hv1", "seq": 2},
        {"name": "web1", "digest": 2},
        {"at": 2},
    ]


def test_what_waits_is_bounded():
    box = Outbox()
    for at in range(MAX_WAITING + 5):
        box.put(frames.frame(frames.JOURNAL, {"at": at}))
    assert (len(box.waiting), box.dropped) == (MAX_WAITING, 5)


def test_a_frame_has_a_bound():
    with pytest.raises(frames.BadFrame, match="the maximum is"):
        frames.frame("definition", {"name": "x", "xml": "x" * frames.MAX_BYTES})


def test_what_does_not_end_in_time_keeps_nobody_who_closes(ca, monkeypatch, caplog):
    async def stubborn():
        while not goes.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.05)

    goes = threading.Event()
    monkeypatch.setattr(peer_network, "_CLOSE_S", 0.2)
    one = PeerNetwork(ca.credentials("hv9"), lambda *_frame: None, PACE)
    one._run(one.begin, stubborn())
    closer = threading.Thread(target=one.close)
    closer.start()
    until(lambda: "did not close within" in caplog.text, "it is said")
    goes.set()
    closer.join(60)
    assert not closer.is_alive()


def test_one_who_gathers_says_at_once_what_it_has_to_say_and_hurries_when_it_is_told():
    """What others say waits for more; what is to be said does not wait for that."""
    polled = []
    gathering = peer_network._Gathering(0.5)
    loop = asyncio.SelectorEventLoop(gathering)
    gathering._woken = _Polled(polled)
    one, other = socket.socketpair()
    loop.add_reader(one.fileno(), lambda: None)
    other.send(b"beat")
    gathering.select(0)
    assert polled == [500]
    gathering.hurries_until_s = time.monotonic() + 60
    gathering.select(0)
    assert polled == [500, 100]
    loop.call_soon_threadsafe(lambda: None)
    assert len(gathering.select(0)) == 2
    assert polled == [500, 100]
    one.close(), other.close(), loop.close()


class _Polled:
    def __init__(self, seen):
        self.seen = seen

    def poll(self, most_ms):
        self.seen.append(most_ms)


def test_one_without_a_certificate_to_show_takes_nobody_and_says_why(end, ca, lines):
    known = ca.credentials("hv1")
    one = end("hv1", tls.PeerCredentials(known.ca, known.client))
    port = one.listen()
    with socket.create_connection(("127.0.0.1", port), 60) as stranger:
        assert ended(stranger)
    until(lambda: any("no server certificate is configured" in one for one in lines()), "the line")


def test_a_port_that_takes_nobody_for_a_while_is_named_and_tried_again(end, lines):
    """As where there are too many open files."""
    one, two = end("hv1"), end("hv2")
    with socket.socket() as port:
        port.bind(("127.0.0.1", 0))
        port.setblocking(False)
        one.network._begin(peer_network._accept(one.network, port, {"hv2": frames.FROM_MEMBERS}))
        until(lambda: any("the listening port" in one for one in lines()), "the line")
        port.listen()
        two.network.add_peer("hv1", *port.getsockname())
        two.network.send("hv1", beat("hv2", seq=7))
        until(lambda: one.heard, "the beat")
        one.network.close()


def test_who_is_turned_away_again_and_again_is_named_once_until_many_others_were(
    lines, monkeypatch
):
    monkeypatch.setattr(peer_network._ComplaintLog, "MAX_CLIENTS", 2)
    one = peer_network._ComplaintLog()
    for who in ("a", "a", "b", "a", "c", "a", "c"):
        one.record(who, "no certificate")
    said = [line.split()[2] for line in lines() if line.endswith(": no certificate")]
    assert said == ["a:", "b:", "c:", "a:"]
