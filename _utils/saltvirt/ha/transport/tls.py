"""TLS 1.3 by which both sides prove who they are, with certificates of the cloud's own CA."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from saltvirt import errors

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_NAME_LENGTH = 64  # X.520's longest common name


@dataclass(frozen=True)
class Pair:
    """Paths of a certificate and its key."""

    certificate: str
    key: str


# X509_V_FLAG_NO_CHECK_TIME of OpenSSL: a clock that jumps, or certificates that expire on all hosts
# in one night, must not have hosts take each other for dead. Who is turned away is revoked, or is
# no member.
_NO_CHECK_TIME = 0x200000


@dataclass(frozen=True)
class PeerCredentials:
    """Paths: the CA's certificate, its list of revoked ones if there is one; the pair of purpose
    client, by which this side connects, and that of purpose server, by which it listens.

    They are read for each connection: what was renewed is used at the next one.
    """

    ca: str
    client: Pair
    server: Pair | None = None
    revoked: str | None = None


def to_connect(credentials: PeerCredentials) -> ssl.SSLContext:
    """The context of one that connects. Raises ConnectionFailed: a file is missing or bad."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, credentials, credentials.client)


def to_listen(credentials: PeerCredentials) -> ssl.SSLContext:
    """The context of one that was connected to. Raises ConnectionFailed."""
    if credentials.server is None:
        raise errors.ConnectionFailed("no certificate of purpose server")
    return _context(ssl.PROTOCOL_TLS_SERVER, credentials, credentials.server)


def _context(protocol: int, credentials: PeerCredentials, pair: Pair) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the name is compared in full: see name()
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= _NO_CHECK_TIME
    path = pair.certificate
    try:
        context.load_cert_chain(pair.certificate, pair.key)
        path = credentials.ca
        context.load_verify_locations(credentials.ca)
        if credentials.revoked and os.path.exists(credentials.revoked):
            path = credentials.revoked
            context.load_verify_locations(credentials.revoked)
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    except OSError as exc:  # ssl's own errors are OSErrors, too
        raise errors.ConnectionFailed(f"{path}: {exc.strerror or exc}") from exc
    return context


def name(ssl_object: ssl.SSLObject | ssl.SSLSocket | None) -> str:
    """The one common name of the other side's verified certificate; empty: it has none."""
    certificate = ssl_object.getpeercert() if ssl_object else None
    subject = cast("Iterable[Iterable[tuple[str, str]]]", (certificate or {}).get("subject", ()))
    names = [value for part in subject for key, value in part if key == "commonName"]
    return names[0] if len(names) == 1 else ""
