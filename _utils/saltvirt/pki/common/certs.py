"""Create, parse and compare keys and certificates, without file access."""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from saltvirt.errors import PkiError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cryptography.hazmat.primitives.asymmetric.types import (
        CertificateIssuerPublicKeyTypes,
        CertificatePublicKeyTypes,
    )

SERVER = "server"
CLIENT = "client"
_EKU = {SERVER: ExtendedKeyUsageOID.SERVER_AUTH, CLIENT: ExtendedKeyUsageOID.CLIENT_AUTH}
# GnuTLS refuses a certificate that is not valid yet; clocks may differ by this time
BACKDATE = datetime.timedelta(days=2)
_SHA = hashes.SHA256()
# types of keys that can sign
PrivateKey = (
    rsa.RSAPrivateKey
    | ec.EllipticCurvePrivateKey
    | dsa.DSAPrivateKey
    | ed25519.Ed25519PrivateKey
    | ed448.Ed448PrivateKey
)
KINDS = ("ec", "ec384", "rsa", "rsa4096")


_USAGES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
    *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)


@dataclass(frozen=True)
class Leaf:
    """The properties of a host's certificate. purpose: SERVER or CLIENT. days: whole days."""

    subject: x509.Name
    names: tuple[str, ...]
    purpose: str
    days: int


def utcnow() -> datetime.datetime:
    """The current time in UTC, to the second."""
    return datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0)


def new_key(kind: str = "ec") -> rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey:
    """Generate a private key. kind: ``ec`` (P-256), ``ec384``, ``rsa`` (3072 bits), ``rsa4096``."""
    if kind.startswith("rsa"):
        return rsa.generate_private_key(65537, 4096 if kind == "rsa4096" else 3072)
    return ec.generate_private_key(ec.SECP384R1() if kind == "ec384" else ec.SECP256R1())


def key_pem(key: PrivateKey) -> bytes:
    """The key as PKCS#8, not encrypted, as libvirt and QEMU read it."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def cert_pem(*certs: x509.Certificate | x509.CertificateRevocationList) -> bytes:
    """All certificates as one PEM text."""
    return b"".join(cert.public_bytes(serialization.Encoding.PEM) for cert in certs)


def load_key(pem: bytes | None) -> PrivateKey:
    """Load the private key of a PEM text. Raises PkiError."""
    try:
        key = serialization.load_pem_private_key(pem or b"", password=None)
    except (ValueError, TypeError) as exc:
        raise PkiError("not a readable private key") from exc
    if not isinstance(key, PrivateKey):
        raise PkiError("the key cannot sign")
    return key


def load_certs(pem: bytes | None) -> list[x509.Certificate]:
    """Load all certificates of a PEM text, at least one. Raises PkiError."""
    try:
        certificates = x509.load_pem_x509_certificates(pem or b"")
    except ValueError as exc:
        raise PkiError("not a readable certificate") from exc
    if not certificates:
        raise PkiError("not a readable certificate")
    return certificates


def not_before(cert: x509.Certificate) -> datetime.datetime:
    """The start of the validity, in UTC."""
    start: datetime.datetime | None = getattr(
        cert, "not_valid_before_utc", None
    )  # cryptography < 42 has it without zone
    return start or cert.not_valid_before.replace(tzinfo=datetime.timezone.utc)


def not_after(cert: x509.Certificate) -> datetime.datetime:
    """The end of the validity, in UTC."""
    end: datetime.datetime | None = getattr(cert, "not_valid_after_utc", None)
    return end or cert.not_valid_after.replace(tzinfo=datetime.timezone.utc)


def fingerprint(cert: x509.Certificate) -> str:
    """The SHA-256 of the certificate, in lower hex."""
    return cert.fingerprint(hashes.SHA256()).hex()


def serial(cert: x509.Certificate) -> str:
    """The serial number in lower hex."""
    return f"{cert.serial_number:x}"


def public_bytes(key: PrivateKey | x509.Certificate | x509.CertificateSigningRequest) -> bytes:
    """The public key of a key, certificate or signing request, for comparison."""
    public = key.public_key()
    return public.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def hex_digest(data: bytes) -> str:
    """The SHA-256 of bytes, in lower hex."""
    return hashlib.sha256(data).hexdigest()


def belong_together(cert: x509.Certificate, key: PrivateKey) -> bool:
    """Whether the certificate is for that private key."""
    return public_bytes(cert) == public_bytes(key)


def signed_by(cert: x509.Certificate, issuer: x509.Certificate) -> bool:
    """Whether the issuer's key has signed the certificate."""
    try:
        cert.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def names(cert: x509.Certificate) -> list[str]:
    """The names and addresses of the certificate as text, in their order."""
    try:
        general_names = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [str(item.value) for item in general_names]


def is_ca(cert: x509.Certificate) -> bool:
    """Whether the certificate may sign certificates."""
    try:
        basic = cert.extensions.get_extension_for_class(x509.BasicConstraints).value
    except x509.ExtensionNotFound:
        return False
    return bool(basic.ca)


def lifetime(cert: x509.Certificate) -> datetime.timedelta:
    """The length of the validity, without the backdated time before it was issued."""
    total = not_after(cert) - not_before(cert)
    return total - BACKDATE if total > BACKDATE else total


def needs_renewal(cert: x509.Certificate, now: datetime.datetime) -> bool:
    """Whether less than a third of the lifetime is left."""
    return not_after(cert) - now < lifetime(cert) / 3


def subject(common_name: str, **parts: str | None) -> x509.Name:
    """A distinguished name. parts: country, state, locality, organization; each or None."""
    order = (
        (NameOID.COUNTRY_NAME, parts.get("country")),
        (NameOID.STATE_OR_PROVINCE_NAME, parts.get("state")),
        (NameOID.LOCALITY_NAME, parts.get("locality")),
        (NameOID.ORGANIZATION_NAME, parts.get("organization")),
        (NameOID.COMMON_NAME, common_name[:64]),  # X.520's longest common name
    )
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in order if value])


def alternative_names(hostnames: Iterable[str]) -> x509.SubjectAlternativeName:
    """The names as an extension: addresses as IP addresses, the others as DNS names."""
    general_names: list[x509.GeneralName] = []
    for name in hostnames:
        try:
            general_names.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            general_names.append(x509.DNSName(name))
    return x509.SubjectAlternativeName(general_names)


def _key_usage(**yes: bool) -> x509.KeyUsage:
    return x509.KeyUsage(**{**dict.fromkeys(_USAGES, False), **yes})


def _builder(
    name: x509.Name,
    issuer: x509.Name,
    public: CertificatePublicKeyTypes,
    start: datetime.datetime,
    end: datetime.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def self_signed(
    key: PrivateKey, name: x509.Name, days: int, now: datetime.datetime
) -> x509.Certificate:
    """A CA's own certificate for that key."""
    end = now + datetime.timedelta(days=days)
    return (
        _builder(name, name, key.public_key(), now - BACKDATE, end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(key_cert_sign=True, crl_sign=True), critical=True)
        .sign(key, digest(key))
    )


def digest(key: PrivateKey) -> hashes.SHA256 | None:
    """The hash for a key's signatures; None for Edwards curves, which need none."""
    return None if isinstance(key, (ed25519.Ed25519PrivateKey, ed448.Ed448PrivateKey)) else _SHA


def authority_identifier(issuer: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    """The issuer's own key identifier, which a foreign CA may have computed differently."""
    try:
        key_identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        public = cast("CertificateIssuerPublicKeyTypes", issuer.public_key())
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(public)
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(key_identifier)


def leaf(
    public: CertificatePublicKeyTypes,
    spec: Leaf,
    issuer: tuple[x509.Certificate, PrivateKey],
    now: datetime.datetime,
) -> x509.Certificate:
    """Issue a host's certificate for its public key.

    spec: its properties. issuer: (certificate, key) of the CA. The certificate does not outlive the
    CA's.
    """
    issuer_cert, issuer_key = issuer
    start = max(now - BACKDATE, not_before(issuer_cert))
    end = min(now + datetime.timedelta(days=spec.days), not_after(issuer_cert))
    # keyEncipherment has no meaning for EC keys, but libvirt before 10 requires it
    usage = _key_usage(digital_signature=True, key_encipherment=True)
    return (
        _builder(spec.subject, issuer_cert.subject, public, start, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage([_EKU[spec.purpose]]), critical=False)
        .add_extension(alternative_names(spec.names), critical=False)
        .add_extension(authority_identifier(issuer_cert), critical=False)
        .sign(issuer_key, digest(issuer_key))
    )


def has_purpose(cert: x509.Certificate, purpose: str) -> bool:
    """Whether its key usages allow the purpose, also for the strictest version of libvirt."""
    try:
        extended = cert.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        usage = cert.extensions.get_extension_for_class(x509.KeyUsage).value
    except x509.ExtensionNotFound:
        return False
    return _EKU[purpose] in extended and usage.digital_signature and usage.key_encipherment


def wrong_now(cert: x509.Certificate) -> str | None:
    """Why the certificate is not valid now, as a clause; None if it is valid."""
    if utcnow() >= not_after(cert):
        return f"expired on {not_after(cert):%Y-%m-%d}"
    if utcnow() < not_before(cert):
        return "is not valid yet: set this host's clock"
    return None


def describe(cert: x509.Certificate) -> dict[str, Any]:
    """A description of a certificate as plain data."""
    return {
        "subject": cert.subject.rfc4514_string(),
        "issuer": cert.issuer.rfc4514_string(),
        "serial": serial(cert),
        "not_before": not_before(cert).isoformat(),
        "not_after": not_after(cert).isoformat(),
        "sha256": fingerprint(cert),
        "names": names(cert),
    }


def csr_pem(csr: x509.CertificateSigningRequest) -> str:
    """A signing request as PEM text."""
    return csr.public_bytes(serialization.Encoding.PEM).decode()
