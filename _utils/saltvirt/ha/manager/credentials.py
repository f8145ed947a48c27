"""The master's certificate for connections to the agents, in ``pki_dir/virt-ha``, issued by the
cloud's CA like those of the hosts."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable
from pathlib import Path

from saltvirt import errors, settings
from saltvirt.ha.transport import tls
from saltvirt.pki.authority import ca, policy, responder
from saltvirt.pki.authority.ca import Authority
from saltvirt.pki.authority.store import CertificateStore
from saltvirt.pki.common import certs, files
from saltvirt.system import file_lock
from saltvirt.system.tls_listener import CertificateFiles

log = logging.getLogger(__name__)

_AUTHORITY = "libvirt"
_CERT, _KEY, _CA, _REVOKED = "clientcert.pem", "clientkey.pem", "cacert.pem", "cacrl.pem"


def ensure(
    opts: file_lock.Opts, name: str, clock: Callable[[], datetime.datetime] = certs.utcnow
) -> tls.PeerCredentials:
    """Return the paths of a valid certificate for that name. Create or renew it if necessary.

    Raises VirtError if the CA cannot be read.
    """
    rules = policy.policy(settings.of_master(opts))
    store = CertificateStore(opts["pki_dir"], clock)
    folder = files.folder(Path(opts["pki_dir"], "virt-ha"))
    responder.prepare(store, rules)
    with store.exclusive():
        authority = ca.read(store, _AUTHORITY)
        revoked = files.read(store.path("crl.pem"))
    with files.locked(folder / ".lock"):
        reason = _renewal_reason(folder, name, authority, store.now())
        if reason:
            log.info("a new certificate of %s for high availability: %s", name, reason)
            _make(folder, name, authority, rules, store.now())
        _put(folder / _CA, authority.trusted)
        if revoked:
            _put(folder / _REVOKED, revoked)
    pair = CertificateFiles(str(folder / _CERT), str(folder / _KEY))
    return tls.PeerCredentials(str(folder / _CA), pair, revoked=str(folder / _REVOKED))


def _renewal_reason(folder: Path, name: str, authority: Authority, now: datetime.datetime) -> str:
    """Return why a new certificate is needed, or nothing."""
    try:
        cert = certs.load_certs(files.read(folder / _CERT))[0]
        key = certs.load_key(files.read(folder / _KEY))
    except errors.PkiError as exc:
        return exc.text
    if not certs.belong_together(cert, key):
        return "the key does not belong to the certificate"
    if not certs.signed_by(cert, authority.cert):
        return "another CA has issued it"
    if certs.names(cert) != [name] or not certs.has_purpose(cert, certs.CLIENT):
        return "it has another name"
    return "it expires soon" if certs.needs_renewal(cert, now) else ""


def _make(
    folder: Path,
    name: str,
    authority: Authority,
    rules: policy.CertificatePolicy,
    now: datetime.datetime,
) -> None:
    key = certs.new_key(rules.key)
    template = certs.Leaf(certs.subject(name, **rules.subject), (name,), certs.CLIENT, rules.days)
    cert = certs.leaf(key.public_key(), template, (authority.cert, authority.key), now)
    new = {_KEY: certs.key_pem(key), _CERT: certs.cert_pem(cert)}
    files.write_all(files.NewFile(folder / file_name, data) for file_name, data in new.items())


def _put(path: Path, data: bytes) -> None:
    if files.read(path) != data:
        files.write(path, data)
