"""TLS contexts: what each purpose requires of the peer, with real connections."""

import socket
import ssl
import threading

import pytest

pytest.importorskip("cryptography")

from saltvirt import errors
from saltvirt.ha.transport import tls
from saltvirt.pki.common import certs
from saltvirt.pki.host import own_pair
from saltvirt.system import tls_listener
from saltvirt.system.tls_listener import CertificateFiles

NAME = "hv1"
SERVER, CLIENT = ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT


class Side:
    """The files of a new authority and of a certificate that it has issued."""

    def __init__(self, folder, name, use):
        self.pair = own_pair.generate(name, use)
        self.files = CertificateFiles(str(folder / f"{name}.crt"), str(folder / f"{name}.key"))
        self.authority = str(folder / f"{name}.ca")
        for path, text in zip(
            (*self.files, self.authority),
            (self.pair.certificate, self.pair.key, self.pair.authority),
            strict=True,
        ):
            (folder / path).write_text(text, encoding="ascii")


@pytest.fixture
def server(tmp_path):
    return Side(tmp_path, NAME, certs.SERVER)


@pytest.fixture
def client(tmp_path):
    return Side(tmp_path, "client", certs.CLIENT)


def connect(server_context, client_context, name=NAME):
    """The version of TLS of a connection and what the client hears. Raises SSLError, OSError."""
    failures = []

    def serve(raw_socket):
        try:
            with raw_socket, server_context.wrap_socket(raw_socket, server_side=True) as one:
                one.sendall(b"x")
        except OSError as exc:
            failures.append(exc)

    here, there = socket.socketpair()
    thread = threading.Thread(target=serve, args=(there,))
    thread.start()
    try:
        here.settimeout(60)
        with here, client_context.wrap_socket(here, server_hostname=name) as one:
            return one.recv(1), one.version()
    finally:
        thread.join()
        if failures:
            raise failures[0]


def of_client(server, client=None):
    context = tls_listener.new_context(CLIENT, client and client.files)
    tls_listener.require_peer(context, ca_pem=server.pair.authority)
    return context


def test_a_server_without_peers_accepts_all_clients(server):
    heard = connect(tls_listener.new_context(SERVER, server.files), of_client(server))
    assert heard == (b"x", "TLSv1.3")


def test_a_client_requires_the_authority_and_the_name(server, client):
    context = tls_listener.new_context(SERVER, server.files)
    with pytest.raises(OSError, match=r"(?i)unknown ca|verify failed"):
        connect(context, of_client(client))
    with pytest.raises(OSError, match=r"(?i)mismatch|alert"):
        connect(context, of_client(server), "hv2")


def test_a_server_that_requires_a_peer_refuses_all_others(tmp_path, server, client):
    context = tls_listener.new_context(SERVER, server.files)
    tls_listener.require_peer(context, ca_file=client.authority)
    assert connect(context, of_client(server, client))[0] == b"x"
    with pytest.raises(OSError, match="did not return a certificate"):
        connect(context, of_client(server))
    (tmp_path / "other").mkdir()
    with pytest.raises(OSError, match="verify failed"):
        connect(context, of_client(server, Side(tmp_path / "other", "client", certs.CLIENT)))


@pytest.mark.parametrize("text", ["", "no certificate"])
def test_an_authority_that_is_none_admits_nobody(server, text):
    context = tls_listener.new_context(SERVER, server.files)
    with pytest.raises((OSError, ValueError)):
        tls_listener.require_peer(context, ca_pem=text)
    assert context.verify_mode is ssl.CERT_REQUIRED
    credentials = tls_listener.TlsCredentials(
        server.pair.authority, server.pair.certificate, server.pair.key, text
    )
    with pytest.raises(errors.OperationFailed, match="invalid certificates for TLS"):
        tls_listener.context(credentials)


def test_agents_use_nothing_older_than_tls_1_3(server, client):
    context = tls.to_listen(tls.PeerCredentials(client.authority, client.files, server.files))
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, False)
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3
    assert connect(context, of_client(server, client)) == (b"x", "TLSv1.3")
    older = of_client(server, client)
    older.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(OSError, match=r"(?i)protocol|version"):
        connect(context, older)
    other = tls_listener.new_context(SERVER, server.files)
    assert other.minimum_version is ssl.TLSVersion.TLSv1_2
    assert connect(other, older) == (b"x", "TLSv1.2")


def test_an_agent_names_the_file_that_it_cannot_use(tmp_path, server, client):
    missing = str(tmp_path / "missing")
    for credentials, path in (
        (tls.PeerCredentials(missing, client.files), missing),
        (tls.PeerCredentials(client.authority, CertificateFiles(missing, missing)), missing),
        (tls.PeerCredentials(client.files.key, client.files), client.files.key),
        (tls.PeerCredentials(server.authority, client.files, revoked=client.files.key),
         client.files.key),
    ):  # fmt: skip
        with pytest.raises(errors.ConnectionFailed, match=f"^{path}: "):
            tls.to_connect(credentials)
