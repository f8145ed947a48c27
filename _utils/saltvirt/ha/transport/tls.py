"""Mutual TLS 1.3 with certificates of the cloud's CA."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from saltvirt import errors
from saltvirt.system import tls_listener
from saltvirt.system.tls_listener import CertificateFiles

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_NAME_LENGTH = 64  # maximum length of a common name in X.520


# X509_V_FLAG_NO_CHECK_TIME of OpenSSL: a clock that jumps, or certificates that expire on all hosts
# in one night, must not make hosts fence each other. To exclude a host, revoke its certificate or
# remove it from the members.
_NO_CHECK_TIME = 0x200000


@dataclass(frozen=True)
class PeerCredentials:
    """Paths of the CA's certificate, its revocation list if there is one, the client's certificate,
    with which this side connects, and the server's, with which it listens.

    They are read for each connection: a renewed certificate is used for the next one.
    """

    ca: str
    client: CertificateFiles
    server: CertificateFiles | None = None
    revoked: str | None = None


def to_connect(credentials: PeerCredentials) -> ssl.SSLContext:
    """Create the context of a client. Raises ConnectionFailed if a file is missing or invalid."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, credentials, credentials.client)


def to_listen(credentials: PeerCredentials) -> ssl.SSLContext:
    """Create the context of a server. Raises ConnectionFailed."""
    if credentials.server is None:
        raise errors.ConnectionFailed("no server certificate is configured")
    return _context(ssl.PROTOCOL_TLS_SERVER, credentials, credentials.server)


def _context(protocol: int, credentials: PeerCredentials, pair: CertificateFiles) -> ssl.SSLContext:
    path = pair.certificate
    try:
        context = tls_listener.new_context(protocol, pair, ssl.TLSVersion.TLSv1_3)
        context.check_hostname = False  # the caller compares the complete common name: see name()
        context.verify_flags |= _NO_CHECK_TIME
        path = credentials.ca
        tls_listener.require_peer(context, ca_file=path)
        if credentials.revoked and os.path.exists(credentials.revoked):
            path = credentials.revoked
            context.load_verify_locations(path)
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    except OSError as exc:  # includes SSLError
        raise errors.ConnectionFailed(f"{path}: {exc.strerror or exc}") from exc
    return context


def name(ssl_object: ssl.SSLObject | ssl.SSLSocket | None) -> str:
    """Return the only common name of the peer's verified certificate; empty: it has none, or
    several."""
    certificate = ssl_object.getpeercert() if ssl_object else None
    subject = cast("Iterable[Iterable[tuple[str, str]]]", (certificate or {}).get("subject", ()))
    names = [value for part in subject for key, value in part if key == "commonName"]
    return names[0] if len(names) == 1 else ""
