"""Disks are exported by NBD over TLS to a single machine, with real certificates and QEMU's own
programs."""

import contextlib
import dataclasses
import json
import os
import resource
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time

import pytest

pytest.importorskip("cryptography")

from saltvirt import errors
from saltvirt.backup.target import daemon, relay, show
from saltvirt.pki.common import certs
from saltvirt.pki.host import own_pair
from saltvirt.system import tls_listener
from tests.clock import until
from tests.functional.pulled import FIRST_PORT, PORTS, trusting

pytestmark = pytest.mark.skipif(
    not os.path.exists("/usr/bin/qemu-storage-daemon"), reason="no qemu-storage-daemon"
)
HOST = "127.0.0.1"
SIZE = 24 * 1024**2


@pytest.fixture
def disk(tmp_path):
    path = tmp_path / "disk.raw"
    path.write_bytes(os.urandom(SIZE))
    return path


@pytest.fixture
def reader(tmp_path):
    return own_pair.permanent(str(tmp_path / "reader"), "reader")


@pytest.fixture
def shown(tmp_path, disk, reader):
    """The relay before a disk, and the authority of what it shows."""
    inner = str(tmp_path / "nbd")
    server = daemon.begin([daemon.ExportedDisk(str(disk), "raw", "vda")], inner)
    pair = own_pair.generate(HOST, certs.SERVER)
    credentials = tls_listener.TlsCredentials(
        pair.authority, pair.certificate, pair.key, reader.authority
    )
    door = relay.begin(tls_listener.TlsEndpoint(HOST, FIRST_PORT, PORTS, credentials), inner)
    yield door, pair.authority
    door.end()
    server.end()


def qemu_img(folder, door, *words):
    """qemu-img on what is shown, with a folder of certificates."""
    credentials = {"qom-type": "tls-creds-x509", "id": "t", "dir": folder, "endpoint": "client",
                   "sanity-check": False}  # fmt: skip
    source = {"driver": "nbd", "export": "vda", "tls-creds": "t",
              "server": {"type": "inet", "host": HOST, "port": str(door.port)}}  # fmt: skip
    argv = ["qemu-img", words[0], "--object", json.dumps(credentials), *words[1:-1]]
    argv += [f"json:{json.dumps(source)}", *words[-1:]] if words[-1] else [
        f"json:{json.dumps(source)}"]  # fmt: skip
    return subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)


def test_who_was_named_reads_it_all(shown, reader, disk, tmp_path):
    door, authority = shown
    copy = tmp_path / "copy.raw"
    with trusting(reader, authority, "shown") as folder:
        done = qemu_img(folder, door, "convert", "-O", "raw", str(copy))
        assert done.returncode == 0, done.stderr
    assert copy.read_bytes() == disk.read_bytes()
    assert not os.path.exists(folder)


@pytest.mark.parametrize("who", ["another", "a server of the same side", "nobody"])
def test_nobody_else_is_let_in(shown, reader, tmp_path, who):
    """QEMU itself would let in a server's certificate of the authority that it trusts."""
    door, authority = shown
    other = own_pair.permanent(str(tmp_path / "other"), "reader")
    if who == "a server of the same side":
        other = own_pair.generate(HOST, certs.SERVER)
    with trusting(other, authority, "shown") as folder:
        if who == "nobody":
            os.unlink(f"{folder}/client-cert.pem")
            os.unlink(f"{folder}/client-key.pem")
        assert qemu_img(folder, door, "info", "").returncode
    with trusting(reader, authority, "shown") as folder:
        assert qemu_img(folder, door, "info", "").returncode == 0


def test_a_reader_is_not_deceived_by_another_server(shown, reader):
    """Whoever took the address has no certificate that the reader was told of."""
    door, _ = shown
    another = own_pair.generate(HOST, certs.SERVER)
    with trusting(reader, another.authority, "shown") as folder:
        assert qemu_img(folder, door, "info", "").returncode


@pytest.mark.parametrize("purpose", [certs.CLIENT, certs.SERVER])
@pytest.mark.usefixtures("shown")
def test_a_certificate_for_a_server_is_none_for_a_reader(tmp_path, purpose):
    """Also of the authority that is trusted, were its key not forgotten."""
    signing, key = certs.new_key(), certs.new_key()
    now = certs.utcnow()
    top = certs.self_signed(signing, certs.subject("top"), 10, now)
    leaf = certs.Leaf(certs.subject("hv2"), ("hv2",), purpose, 10)
    cert = certs.leaf(key.public_key(), leaf, (top, signing), now)
    pair = own_pair.generate(HOST, certs.SERVER)
    told = certs.cert_pem(top).decode()
    credentials = tls_listener.TlsCredentials(pair.authority, pair.certificate, pair.key, told)
    door = relay.begin(
        tls_listener.TlsEndpoint(HOST, FIRST_PORT, PORTS, credentials), str(tmp_path / "nbd")
    )
    try:
        mine = own_pair.OwnPair(told, certs.cert_pem(cert).decode(), certs.key_pem(key).decode())
        with trusting(mine, pair.authority, "shown") as folder:
            done = qemu_img(folder, door, "info", "")
        assert (done.returncode == 0) is (purpose == certs.CLIENT), done
    finally:
        door.end()


def test_what_is_said_before_tls_gets_no_further(shown):
    """No option but TLS, none that is long, no plain reader; and others are served meanwhile."""
    door, _ = shown
    with socket.create_connection((HOST, door.port), timeout=60) as line:
        assert line.recv(18)[:16] == b"NBDMAGICIHAVEOPT"
        line.sendall(struct.pack(">I", 3) + struct.pack(">8sII", b"IHAVEOPT", 7, 4) + b"vda!")
        reply = line.recv(20)
        assert struct.unpack(">QIII", reply)[2] == 2**31 + 5  # TLS is required
        line.sendall(struct.pack(">8sII", b"IHAVEOPT", 7, 2**31))
        assert line.recv(1) == b""
    done = subprocess.run(
        ["qemu-img", "info", f"nbd://{HOST}:{door.port}/vda"],
        capture_output=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode
    assert not door.has_readers


@contextlib.contextmanager
def reading(door, authority, reader):
    """A connection of who may, to the server behind."""
    context = ssl.create_default_context(cadata=authority)
    with trusting(reader, authority, "shown") as folder:
        context.load_cert_chain(f"{folder}/client-cert.pem", f"{folder}/client-key.pem")
    line = socket.create_connection((HOST, door.port), timeout=60)
    line.recv(18)
    line.sendall(struct.pack(">I", 3) + struct.pack(">8sII", b"IHAVEOPT", 5, 0))
    assert struct.unpack(">QIII", line.recv(20))[2] == 1
    with context.wrap_socket(line, server_hostname=HOST) as tls:
        # NBD_OPT_LIST reaches the server behind
        tls.sendall(struct.pack(">8sII", b"IHAVEOPT", 3, 0))
        said = b""
        while b"vda" not in said:
            said += tls.recv(100)
        yield tls


def test_who_reads_is_known_and_is_shown_out_at_the_end(shown, reader):
    door, authority = shown
    with reading(door, authority, reader) as tls:
        assert door.has_readers
        door.end()
        with contextlib.suppress(OSError):
            assert tls.recv(1) == b""
    until(lambda: not door.has_readers, "nobody reads")
    with pytest.raises(OSError):
        socket.create_connection((HOST, door.port), timeout=5)


def test_it_is_shown_as_long_as_somebody_reads_and_a_while_after(shown, reader, disk, monkeypatch):
    door, authority = shown
    monkeypatch.setattr(show, "_POLL_S", 0.05)
    server = daemon.begin([daemon.ExportedDisk(str(disk), "raw", "vda")], f"{disk}.nbd")
    keeps = threading.Thread(target=show._serve_until_idle, args=(server, door, lambda: True, 0.5))
    with reading(door, authority, reader):
        keeps.start()
        time.sleep(1.2)
        assert keeps.is_alive() and server.is_running
    keeps.join(60)
    assert not keeps.is_alive() and not server.is_running
    with pytest.raises(OSError):
        socket.create_connection((HOST, door.port), timeout=5)


def test_when_all_ports_are_taken_it_says_so(shown):
    door, _ = shown
    pair = own_pair.generate(HOST, certs.SERVER)
    credentials = tls_listener.TlsCredentials(
        pair.authority, pair.certificate, pair.key, pair.authority
    )
    with pytest.raises(errors.OperationFailed, match=f"the ports from {door.port} to {door.port}"):
        relay.begin(tls_listener.TlsEndpoint(HOST, door.port, 1, credentials), "/nowhere")


@pytest.mark.skipif(not os.path.exists("/proc/net/if_inet6"), reason="no IPv6")
def test_a_door_of_both_kinds_of_addresses_lets_in_both():
    """A mapped address can be listened on only where IPv4 is let in."""
    listener = tls_listener.listening(
        tls_listener.TlsEndpoint("::ffff:127.0.0.1", FIRST_PORT, PORTS, None), 1, "no door is free"
    )
    with listener, socket.create_connection((HOST, listener.getsockname()[1]), timeout=60):
        assert listener.accept()[1][0] == "::ffff:127.0.0.1"


@pytest.mark.parametrize("spoiled", ["reader", "certificate", "key"])
def test_what_is_no_certificate_opens_no_door_and_is_not_repeated(spoiled):
    pair = own_pair.generate(HOST, certs.SERVER)
    told = tls_listener.TlsCredentials(pair.authority, pair.certificate, pair.key, pair.authority)
    told = dataclasses.replace(told, **{spoiled: "no PEM at all\n"})
    with pytest.raises(errors.OperationFailed, match="invalid certificates for TLS") as failed:
        relay.begin(tls_listener.TlsEndpoint(HOST, FIRST_PORT, PORTS, told), "/nowhere")
    assert "no PEM" not in str(failed.value) and pair.key not in str(failed.value)


def test_of_many_strangers_the_last_is_sent_away_and_others_come_later(
    tmp_path, reader, monkeypatch
):
    monkeypatch.setattr(relay, "_STRANGERS", 1)
    pair = own_pair.generate(HOST, certs.SERVER)
    told = tls_listener.TlsCredentials(pair.authority, pair.certificate, pair.key, reader.authority)
    door = relay.begin(
        tls_listener.TlsEndpoint(HOST, FIRST_PORT, PORTS, told), str(tmp_path / "nbd")
    )
    try:
        with socket.create_connection((HOST, door.port), timeout=60) as first:
            assert len(first.recv(18)) == 18
            with socket.create_connection((HOST, door.port), timeout=60) as second:
                assert second.recv(18) == b""
        until(lambda: _greets(door.port), "it greets again")
    finally:
        door.end()


def test_one_address_takes_no_places_from_others_however_often_it_comes(
    tmp_path, reader, monkeypatch
):
    monkeypatch.setattr(relay, "_STRANGERS", 8)
    pair = own_pair.generate(HOST, certs.SERVER)
    told = tls_listener.TlsCredentials(pair.authority, pair.certificate, pair.key, reader.authority)
    door = relay.begin(
        tls_listener.TlsEndpoint(HOST, FIRST_PORT, PORTS, told), str(tmp_path / "nbd")
    )
    try:
        with contextlib.ExitStack() as held:
            at = HOST, door.port
            many = [
                held.enter_context(socket.create_connection(at, 10, ("127.0.0.2", 0)))
                for _ in range(8)
            ]
            assert [len(one.recv(18)) for one in many] == [18, 18, 0, 0, 0, 0, 0, 0]
            assert _greets(door.port)
            many[0].close()
            until(lambda: _greets(door.port, "127.0.0.2"), "it may come again")
    finally:
        door.end()


CALLS = """
import socket, sys
port = int(input())
line = socket.create_connection(("127.0.0.1", port), timeout=60)
print(len(line.recv(18)))
"""


def test_one_who_comes_while_no_more_files_can_be_opened_is_let_in_afterwards(tmp_path, reader):
    """The door stays: what the system refuses once is asked again."""
    pair = own_pair.generate(HOST, certs.SERVER)
    told = tls_listener.TlsCredentials(pair.authority, pair.certificate, pair.key, reader.authority)
    door = relay.begin(
        tls_listener.TlsEndpoint(HOST, FIRST_PORT, PORTS, told), str(tmp_path / "nbd")
    )
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    try:
        with subprocess.Popen([sys.executable, "-c", CALLS], **pipes) as caller:
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
            try:
                print(door.port, file=caller.stdin, flush=True)
                time.sleep(0.5)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            assert caller.stdout.readline() == "18\n"
        assert _greets(door.port)
    finally:
        door.end()


def _greets(port, own="127.0.0.1"):
    with socket.create_connection((HOST, port), 60, (own, 0)) as line:
        return len(line.recv(18)) == 18


def test_whose_door_it_is(shown, reader):
    door, authority = shown
    assert relay.has_authority(HOST, door.port, authority)
    assert not relay.has_authority(HOST, door.port, reader.authority)


@pytest.mark.parametrize(
    "said",
    [
        b"SSH-2.0-OpenSSH_9.2 and so on",
        b"NBDMAGICIHAVEOPT\0\3" + struct.pack(">QIII", 0x3E889045565A9, 5, 2**31 + 1, 0),
        b"NBDMAGICIHAVEOPT\0\3" + bytes(20),
        b"",
    ],
)
def test_what_answers_otherwise_is_not_the_door(reader, said):
    """Somebody else has the port by now: another program, or a server without TLS."""
    with socket.create_server((HOST, 0)) as listener:

        def answer():
            line, _ = listener.accept()
            with line, contextlib.suppress(OSError):
                line.sendall(said)
                line.shutdown(socket.SHUT_WR)
                line.recv(16)

        other = threading.Thread(target=answer)
        other.start()
        assert not relay.has_authority(HOST, listener.getsockname()[1], reader.authority)
        other.join(60)


def test_a_disk_that_cannot_be_shown_is_said_to_be_with_why(tmp_path):
    words = r"^the disks cannot be exported: .*Could not open '.*/gone': No such file or directory"
    with pytest.raises(errors.OperationFailed, match=words):
        daemon.begin(
            [daemon.ExportedDisk(str(tmp_path / "gone"), "raw", "vda")], str(tmp_path / "nbd")
        )


def test_a_machine_keeps_its_own_and_makes_it_anew_when_it_is_spoiled(tmp_path):
    folder = str(tmp_path / "own")
    first = own_pair.permanent(folder, "reader")
    assert own_pair.permanent(folder, "reader") == first
    for name in (own_pair.KEY, own_pair.CERTIFICATE, own_pair.AUTHORITY):
        path = os.path.join(folder, name)
        assert os.stat(path).st_mode & 0o777 == 0o600
        with open(path, "w", encoding="ascii") as file:
            file.write("spoiled")
        again = own_pair.permanent(folder, "reader")
        assert again != first
        first = again
    assert os.stat(folder).st_mode & 0o777 == 0o700


@pytest.mark.parametrize("name", (own_pair.KEY, own_pair.CERTIFICATE, own_pair.AUTHORITY))
def test_files_of_two_pairs_are_no_pair(tmp_path, name):
    """As where one was put back from an older copy of the machine."""
    folder, other = tmp_path / "own", tmp_path / "other"
    first, foreign = (
        own_pair.permanent(str(folder), "reader"),
        own_pair.permanent(str(other), "reader"),
    )
    (folder / name).write_bytes((other / name).read_bytes())
    again = own_pair.permanent(str(folder), "reader")
    assert again not in (first, foreign)
    assert own_pair.permanent(str(folder), "reader") == again


def test_its_key_is_in_no_text_about_it(tmp_path):
    pair = own_pair.generate(HOST, certs.SERVER)
    credentials = tls_listener.TlsCredentials(
        pair.authority, pair.certificate, pair.key, pair.authority
    )
    for one in (pair, credentials, tls_listener.TlsEndpoint(HOST, 1, 1, credentials)):
        assert "PRIVATE" not in repr(one)


@pytest.mark.parametrize("told", [None, 7, "", "x" * 9000, "leaf", "two", "\ud800"])
def test_what_another_machine_tells_is_one_authority_or_refused(told):
    pair = own_pair.generate(HOST, certs.SERVER)
    told = {"leaf": pair.certificate, "two": 2 * pair.authority}.get(told, told)
    with pytest.raises(errors.InvalidInput, match="reader is not a single CA certificate"):
        own_pair.authority(told, "reader")


def test_a_name_that_no_certificate_can_have_is_refused():
    with pytest.raises(errors.InvalidInput, match="not a DNS name"):
        own_pair.generate("hv 1", certs.SERVER)
