"""A host's keys and certificates: keep valid ones and replace the others."""

from __future__ import annotations

import contextlib
import datetime
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from saltvirt import units
from saltvirt.errors import InvalidInput, PkiError
from saltvirt.pki.authority import ca
from saltvirt.pki.authority.policy import CertificatePolicy
from saltvirt.pki.authority.store import CertificateStore
from saltvirt.pki.common import certs, files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cryptography.hazmat.primitives.asymmetric.types import (
        CertificatePublicKeyTypes,
    )

    from saltvirt.pki.authority.ca import Authority
    from saltvirt.pki.authority.request_rules import SigningRequest
    from saltvirt.pki.authority.store import Use
    from saltvirt.pki.common.certs import PrivateKey

log = logging.getLogger(__name__)
_DAY = datetime.timedelta(days=1)
# limit of certificates per CA, host and use within this time
MAX_ISSUED, ISSUE_WINDOW = 30, 30 * _DAY
_RSA_BITS = (2048, 4096)
_CURVES = (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)
_PARTS = {
    x509.oid.NameOID.COUNTRY_NAME: "country",
    x509.oid.NameOID.STATE_OR_PROVINCE_NAME: "state",
    x509.oid.NameOID.LOCALITY_NAME: "locality",
    x509.oid.NameOID.ORGANIZATION_NAME: "organization",
}


@dataclass(frozen=True)
class CertificateRequest:
    """The required properties of a host's certificates.

    days: lifetime of a new one. max_days: longest lifetime of an existing one, or None. subject:
    requested parts. revoked: serial numbers.
    """

    host: str
    names: tuple[str, ...]
    days: int
    max_days: int | None
    subject: dict[str, str]
    revoked: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Case:
    """The data for issuing one host's certificates. Its process holds the host's lock."""

    store: CertificateStore
    policy: CertificatePolicy
    folder: Path
    authorities: dict[str, Authority]
    cert_request: CertificateRequest

    def authority(self, use: Use) -> Authority:
        """The CA that signs for the use."""
        return self.authorities[use.authority]


def make_cert_request(
    policy: CertificatePolicy,
    request: SigningRequest,
    host: str,
    names: Iterable[str],
    revoked: Iterable[str] = (),
) -> CertificateRequest:
    """The CertificateRequest of a signing request, within the limits of the policy."""
    days = min(policy.days, request.days or policy.days)
    parts = {**request.subject, **policy.subject}
    max_days = days if request.days else None
    return CertificateRequest(host, tuple(names), days, max_days, parts, frozenset(revoked))


def fault(case: Case, use: Use, cert: x509.Certificate) -> str | None:
    """Why a certificate must be replaced, in a few words; None if it is valid."""
    if not certs.signed_by(cert, case.authority(use).cert):
        return f"issued by another CA ({cert.issuer.rfc4514_string()})"
    if certs.serial(cert) in case.cert_request.revoked:
        return "revoked"
    return _wrong_content(case, use, cert) or _wrong_time(case, use, cert)


def _wrong_content(case: Case, use: Use, cert: x509.Certificate) -> str | None:
    if not certs.has_purpose(cert, use.purpose):
        return f"not for a {use.purpose}"
    if set(certs.names(cert)) != set(case.cert_request.names):
        return "its names have changed"
    if _subject(case.cert_request, cert) != cert.subject:
        return "its subject has changed"
    return None


def _wrong_time(case: Case, use: Use, cert: x509.Certificate) -> str | None:
    now, start, end = case.store.now(), certs.not_before(cert), certs.not_after(cert)
    if now >= end:
        return f"expired on {end:%Y-%m-%d}"
    if now < start:
        return f"not valid before {start:%Y-%m-%d}"
    max_days = case.cert_request.max_days
    if max_days and certs.lifetime(cert) > (max_days + 1) * _DAY:
        return "a shorter lifetime is requested"
    # near the CA's expiry, a new one would not live longer
    best = min(now + case.cert_request.days * _DAY, certs.not_after(case.authority(use).cert))
    if certs.needs_renewal(cert, now) and best - end > certs.lifetime(cert) / 3:
        return f"renewed: {units.pluralize((end - now).days, 'day')} left"
    return None


def _subject(cert_request: CertificateRequest, present: x509.Certificate | None) -> x509.Name:
    """The distinguished name. Parts that are not requested are taken from the current
    certificate."""
    parts = dict(cert_request.subject)
    if present is None:
        parts.setdefault("organization", "Salted")  # Salt's default
    else:
        for attribute in present.subject:
            part = _PARTS.get(attribute.oid)
            if part and isinstance(attribute.value, str):
                parts.setdefault(part, attribute.value)
    return certs.subject(cert_request.host, **parts)


def stored(folder: Path, use: Use) -> tuple[PrivateKey | None, x509.Certificate | None, str | None]:
    """(key or None, certificate or None, why they are unusable or None) on the master."""
    key_pem, cert_pem = files.read(folder / use.key), files.read(folder / use.cert)
    try:
        key = None if key_pem is None else certs.load_key(key_pem)
    except PkiError as exc:
        return None, stored_cert(folder, use), f"{use.key} is {exc}"
    try:
        cert = None if cert_pem is None else certs.load_certs(cert_pem)[0]
    except PkiError as exc:
        return key, None, f"{use.cert} is {exc}"
    if key is not None and cert is not None and not certs.belong_together(cert, key):
        return None, None, f"{use.key} and {use.cert} do not belong together"
    return key, cert, None


def stored_cert(folder: Path, use: Use) -> x509.Certificate | None:
    """The certificate on the master, or None if there is no readable one."""
    try:
        return certs.load_certs(files.read(folder / use.cert))[0]
    except PkiError:
        return None


def pair(case: Case, use: Use) -> tuple[PrivateKey, x509.Certificate, str | None]:
    """(key, certificate, why it was issued or None) of one use. The key is generated here."""
    folder = case.folder
    key, cert, reason = stored(folder, use)
    for name in (use.key, use.cert):
        files.private(folder / name)
    if key is not None and cert is not None:
        reason = fault(case, use, cert)
        if reason is None:
            return key, cert, None
    first = key is None and cert is None
    reason = reason or ("first certificate" if first else "the key or the certificate was missing")
    refuse_more(case, use)
    _keep_damaged(case, use, key, cert)
    key = certs.new_key(case.policy.key)
    cert = sign(case, use, key.public_key(), cert)
    files.write(folder / use.key, certs.key_pem(key))
    files.write(folder / use.cert, certs.cert_pem(cert))
    log.info("new %s certificate for %s: %s", use.name, case.cert_request.host, reason)
    return key, cert, reason


def _keep_damaged(
    case: Case, use: Use, key: PrivateKey | None, cert: x509.Certificate | None
) -> None:
    """Save unreadable files for inspection; valid certificates are in issued/."""
    for name, good in ((use.key, key), (use.cert, cert)):
        if good is None and (case.folder / name).exists():
            saved_path = case.store.preserve(case.folder / name)
            log.warning("%s was damaged; it is saved as %s", case.folder / name, saved_path)


def sign(
    case: Case, use: Use, public: CertificatePublicKeyTypes, present: x509.Certificate | None = None
) -> x509.Certificate:
    """Issue a certificate and record it in ``issued/`` before it is handed out."""
    request, authority = case.cert_request, case.authority(use)
    spec = certs.Leaf(_subject(request, present), request.names, use.purpose, request.days)
    cert = certs.leaf(public, spec, (authority.cert, authority.key), case.store.now())
    if present is not None:
        _remember(case, present)
    _remember(case, cert)
    _forget_expired(case)
    return cert


def refuse_more(case: Case, use: Use) -> None:
    """Raise PkiError for a host that has reached its limit, by changing its request or key each
    time."""
    now, authority = case.store.now(), case.authority(use).cert
    times = sorted(
        issued_at
        for cert in issued(case.folder)
        if now - (issued_at := certs.not_before(cert) + certs.BACKDATE) < ISSUE_WINDOW
        and certs.has_purpose(cert, use.purpose)
        and certs.serial(cert) not in case.cert_request.revoked
        and certs.signed_by(cert, authority)
    )
    if len(times) >= MAX_ISSUED:
        host, free = case.cert_request.host, times[-MAX_ISSUED] + ISSUE_WINDOW
        raise PkiError(
            f"{host} has received {len(times)} {use.name} certificates within "
            f"{ISSUE_WINDOW.days} days, and receives no more before {free:%Y-%m-%d %H:%M} "
            "UTC: find out what requests different ones each time (organization, "
            "expiration_days, a new key); to issue new ones now, run salt-run virt.revoke "
            f"{host} force=True, then salt-run virt.revoke {host} undo=True"
        )


def issued(folder: Path) -> Iterator[x509.Certificate]:
    """The certificates that trusted CAs have issued to the folder's host, including expired
    ones."""
    for path in (folder / "issued").glob("*.pem"):
        with contextlib.suppress(PkiError):
            yield certs.load_certs(files.read(path))[0]


def _remember(case: Case, cert: x509.Certificate) -> None:
    files.write(case.folder / "issued" / f"{certs.serial(cert)}.pem", certs.cert_pem(cert))


def _forget_expired(case: Case) -> None:
    """Remove records of certificates that no host accepts any more."""
    oldest_start = ca.oldest_start(case.store)
    for path in (case.folder / "issued").glob("*.pem"):
        try:
            cert = certs.load_certs(files.read(path))[0]
        except PkiError:
            continue
        if certs.not_after(cert) <= oldest_start:
            path.unlink()


def sign_request(case: Case, use: Use, csr_pem: str) -> tuple[x509.Certificate, str | None]:
    """(certificate, why it was issued or None) for a key that only the host has."""
    csr = read_csr(csr_pem)
    cert = stored_cert(case.folder, use)
    reason: str | None
    if cert is None:
        reason = "first certificate"
    elif certs.public_bytes(cert) != certs.public_bytes(csr):
        reason = "the host has a new key"
    else:
        reason = fault(case, use, cert)
        if reason is None:
            return cert, None
    refuse_more(case, use)
    cert = sign(case, use, csr.public_key(), cert)
    files.write(case.folder / use.cert, certs.cert_pem(cert))
    # a key from before the mode csr is not used any more
    (case.folder / use.key).unlink(missing_ok=True)
    log.info("signed the %s certificate of %s: %s", use.name, case.cert_request.host, reason)
    return cert, reason


def read_csr(pem: str) -> x509.CertificateSigningRequest:
    """Load a signing request whose signature proves possession of the key. Its names are ignored.

    Raises InvalidInput for any other request, and for a type of key that libvirt's peers may not
    support.
    """
    try:
        csr = x509.load_pem_x509_csr(pem.encode())
        public = csr.public_key()
    except (ValueError, UnsupportedAlgorithm) as exc:
        raise InvalidInput("not a readable certificate signing request") from exc
    if not _may_be_signed(public):
        raise InvalidInput(
            "the key of a signing request must be RSA with 2048 to 4096 bits, or use the "
            "curve P-256, P-384 or P-521"
        )
    if not csr.is_signature_valid:
        raise InvalidInput("the certificate signing request is not signed by its own key")
    return csr


def _may_be_signed(public: CertificatePublicKeyTypes) -> bool:
    if isinstance(public, rsa.RSAPublicKey):
        return _RSA_BITS[0] <= public.key_size <= _RSA_BITS[1]
    return isinstance(public, ec.EllipticCurvePublicKey) and isinstance(public.curve, _CURVES)


def uses_to_renew(case: Case, uses: Iterable[Use]) -> list[str]:
    """The names of the uses whose certificate is missing, unusable or due for renewal."""
    names = []
    for use in uses:
        cert = stored_cert(case.folder, use)
        if cert is None or fault(case, use, cert):
            names.append(use.name)
    return names
