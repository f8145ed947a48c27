"""Keys and certificates as values, and invalid ones."""

import datetime
import ipaddress

import pytest

pytest.importorskip("salt")

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa, x25519
from cryptography.x509.oid import ExtendedKeyUsageOID

from saltvirt.errors import PkiError
from saltvirt.pki.common import certs

DAY = datetime.timedelta(days=1)
SECOND = datetime.timedelta(seconds=1)
NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
KEY = certs.new_key()
CA = certs.self_signed(KEY, certs.subject("CA"), 100, NOW)


def leaf(days=9, now=NOW, names=("hv1",), purpose=certs.SERVER, issuer=(CA, KEY)):
    wanted = certs.Leaf(certs.subject("hv1"), names, purpose, days)
    return certs.leaf(KEY.public_key(), wanted, issuer, now)


def extension(cert, kind):
    return cert.extensions.get_extension_for_class(kind)


@pytest.mark.parametrize(
    ("kind", "shape"),
    [("ec", "secp256r1"), ("ec384", "secp384r1"), ("rsa", 3072), ("rsa4096", 4096)],
)
def test_kinds_of_keys(monkeypatch, kind, shape):
    made = []
    monkeypatch.setattr(rsa, "generate_private_key", lambda *of: made.append(of))
    found = certs.new_key(kind)
    assert made == ([] if kind.startswith("ec") else [(65537, shape)])
    assert found is None or found.curve.name == shape
    assert kind in certs.KINDS


def test_a_key_is_written_as_libvirt_reads_it():
    pem = certs.key_pem(KEY)
    assert pem.startswith(b"-----BEGIN PRIVATE KEY-----")
    assert certs.public_bytes(certs.load_key(pem)) == certs.public_bytes(KEY)
    for edwards in (ed25519.Ed25519PrivateKey, ed448.Ed448PrivateKey):
        key = edwards.generate()
        assert certs.public_bytes(certs.load_key(certs.key_pem(key))) == certs.public_bytes(key)
        assert certs.digest(key) is None
    assert isinstance(certs.digest(KEY), hashes.SHA256)


@pytest.mark.parametrize("pem", [None, b"", b"x", b"-----BEGIN PRIVATE KEY-----\nMIG"])
def test_what_is_no_key(pem):
    with pytest.raises(PkiError, match="not a readable private key"):
        certs.load_key(pem)


def test_a_key_with_a_password_and_one_that_cannot_sign_are_none():
    private = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
    hidden = KEY.private_bytes(*private, serialization.BestAvailableEncryption(b"x"))
    with pytest.raises(PkiError, match="not a readable private key"):
        certs.load_key(hidden)
    agrees = x25519.X25519PrivateKey.generate()
    with pytest.raises(PkiError, match="the key cannot sign"):
        certs.load_key(agrees.private_bytes(*private, serialization.NoEncryption()))


def test_certificates_in_their_order():
    other = leaf()
    assert certs.load_certs(certs.cert_pem(CA, other)) == [CA, other]
    for pem in (None, b"", b"x", certs.key_pem(KEY)):
        with pytest.raises(PkiError, match="not a readable certificate"):
            certs.load_certs(pem)


def test_an_empty_list_of_certificates_is_none(monkeypatch):
    monkeypatch.setattr(x509, "load_pem_x509_certificates", lambda pem: [])
    with pytest.raises(PkiError, match="not a readable certificate"):
        certs.load_certs(b"")


def test_what_tells_it_from_others():
    cert = leaf()
    assert certs.serial(cert) == hex(cert.serial_number)[2:]
    assert certs.fingerprint(cert) == cert.fingerprint(hashes.SHA256()).hex()
    assert (
        certs.hex_digest(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    )
    assert certs.belong_together(cert, KEY)
    assert not certs.belong_together(cert, certs.new_key())
    assert certs.public_bytes(cert) == certs.public_bytes(KEY)
    assert certs.signed_by(cert, CA)
    assert not certs.signed_by(cert, certs.self_signed(certs.new_key(), CA.subject, 9, NOW))
    assert not certs.signed_by(cert, certs.self_signed(KEY, certs.subject("other"), 9, NOW))


def test_a_time_without_a_zone_is_utc():
    class Old:
        """As cryptography before 42 has it."""

        not_valid_before = NOW.replace(tzinfo=None)
        not_valid_after = (NOW + DAY).replace(tzinfo=None)

    assert (certs.not_before(Old()), certs.not_after(Old())) == (NOW, NOW + DAY)
    assert certs.utcnow().microsecond == 0
    assert abs(certs.utcnow() - datetime.datetime.now(datetime.timezone.utc)) < 60 * SECOND


def test_an_authority_signs_certificates_and_lists_and_no_other_authority():
    made = certs.self_signed(KEY, certs.subject("CA"), 100, NOW)
    assert certs.is_ca(made)
    basic = extension(made, x509.BasicConstraints)
    assert (basic.critical, basic.value.ca, basic.value.path_length) == (True, True, 0)
    usage = extension(made, x509.KeyUsage)
    assert usage.critical
    yes = {name for name in certs._USAGES[:7] if getattr(usage.value, name)}
    assert yes == {"key_cert_sign", "crl_sign"}
    assert (made.subject, made.issuer) == (certs.subject("CA"), certs.subject("CA"))
    assert (certs.not_before(made), certs.not_after(made)) == (NOW - 2 * DAY, NOW + 100 * DAY)
    assert not extension(made, x509.SubjectKeyIdentifier).critical


@pytest.mark.parametrize("purpose", [certs.SERVER, certs.CLIENT])
def test_a_certificate_of_a_host_is_for_one_purpose(purpose):
    names = ("hv1", "10.0.0.1", "fd00::1")
    cert = leaf(names=names, purpose=purpose)
    assert certs.names(cert) == list(names)
    kinds = [type(one.value) for one in extension(cert, x509.SubjectAlternativeName).value]
    assert kinds == [str, ipaddress.IPv4Address, ipaddress.IPv6Address]
    basic = extension(cert, x509.BasicConstraints)
    assert (basic.critical, basic.value.ca, basic.value.path_length) == (True, False, None)
    assert not certs.is_ca(cert)
    usage = extension(cert, x509.KeyUsage)
    assert usage.critical
    yes = {name for name in certs._USAGES[:7] if getattr(usage.value, name)}
    assert yes == {"digital_signature", "key_encipherment"}
    soft = (x509.ExtendedKeyUsage, x509.SubjectAlternativeName, x509.AuthorityKeyIdentifier)
    assert not any(extension(cert, kind).critical for kind in soft)
    assert (cert.subject, cert.issuer) == (certs.subject("hv1"), CA.subject)
    for other in (certs.SERVER, certs.CLIENT):
        assert certs.has_purpose(cert, other) is (other == purpose)
    assert certs.signed_by(cert, CA)


def test_a_certificate_never_outlives_its_authority():
    assert certs.not_after(leaf(days=99)) == NOW + 99 * DAY
    assert certs.not_after(leaf(days=101)) == NOW + 100 * DAY
    assert certs.not_before(leaf()) == NOW - 2 * DAY
    assert certs.not_before(leaf(now=NOW + 9 * DAY)) == NOW + 7 * DAY
    young = certs.self_signed(KEY, certs.subject("CA"), 9, NOW + DAY)
    assert certs.not_before(leaf(issuer=(young, KEY))) == NOW - DAY


def with_extensions(*extensions):
    made = (
        x509.CertificateBuilder().subject_name(CA.subject).issuer_name(CA.subject)
        .public_key(KEY.public_key()).serial_number(7).not_valid_before(NOW)
        .not_valid_after(NOW + DAY)
    )  # fmt: skip
    for one in extensions:
        made = made.add_extension(one, critical=False)
    return made.sign(KEY, certs.digest(KEY))


def test_what_says_nothing_is_for_nothing():
    bare = with_extensions()
    assert certs.names(bare) == []
    assert not certs.is_ca(bare)
    assert certs.has_purpose(bare, certs.SERVER) is False
    own = certs.authority_identifier(bare)
    assert own == x509.AuthorityKeyIdentifier.from_issuer_public_key(KEY.public_key())
    named = x509.SubjectKeyIdentifier(b"own way")
    found = certs.authority_identifier(with_extensions(named))
    assert found.key_identifier == b"own way"
    assert extension(leaf(), x509.AuthorityKeyIdentifier).value.key_identifier == (
        extension(CA, x509.SubjectKeyIdentifier).value.digest
    )


@pytest.mark.parametrize(
    ("usages", "serves"),
    [
        (("digital_signature", "key_encipherment"), True), (("digital_signature",), False),
        (("key_encipherment",), False),
    ],
)  # fmt: skip
def test_the_strictest_libvirt_wants_both_usages(usages, serves):
    extended = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    usage = certs._key_usage(**dict.fromkeys(usages, True))
    assert certs.has_purpose(with_extensions(extended, usage), certs.SERVER) is serves
    assert not certs.has_purpose(with_extensions(extended), certs.SERVER)


def test_how_long_it_lives_and_when_it_is_due():
    cert = leaf(days=9)
    assert certs.lifetime(cert) == 9 * DAY
    assert certs.lifetime(with_extensions()) == DAY, "of somebody else's"
    two = with_extensions()
    assert certs.not_after(two) - certs.not_before(two) == DAY
    assert not certs.needs_renewal(cert, NOW + 6 * DAY)
    assert certs.needs_renewal(cert, NOW + 6 * DAY + SECOND)


def test_a_lifetime_of_just_the_time_before_is_whole():
    class Short:
        not_valid_before_utc, not_valid_after_utc = NOW, NOW + certs.BACKDATE

    assert certs.lifetime(Short()) == certs.BACKDATE


def test_the_parts_of_a_name():
    found = certs.subject("x" * 65, organization="O", state="S", locality="L", country="DE")
    assert found.rfc4514_string() == f"CN={'x' * 64},O=O,L=L,ST=S,C=DE"
    assert certs.subject("x", organization=None, state="").rfc4514_string() == "CN=x"


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (NOW - 2 * DAY - SECOND, "is not valid yet: set this host's clock"),
        (NOW - 2 * DAY, None), (NOW + 9 * DAY - SECOND, None),
        (NOW + 9 * DAY, "expired on 2026-01-10"),
    ],
)  # fmt: skip
def test_whether_it_holds_now(monkeypatch, now, words):
    monkeypatch.setattr(certs, "utcnow", lambda: now)
    assert certs.wrong_now(leaf(days=9)) == words


def test_what_people_are_told_of_it():
    cert = leaf()
    assert certs.describe(cert) == {
        "subject": "CN=hv1", "issuer": "CN=CA", "serial": certs.serial(cert), "names": ["hv1"],
        "not_before": "2025-12-30T00:00:00+00:00", "not_after": "2026-01-10T00:00:00+00:00",
        "sha256": certs.fingerprint(cert),
    }  # fmt: skip


def test_a_signing_request_as_text():
    made = x509.CertificateSigningRequestBuilder().subject_name(certs.subject("x"))
    csr = made.sign(KEY, certs.digest(KEY))
    assert x509.load_pem_x509_csr(certs.csr_pem(csr).encode()) == csr
    assert certs.public_bytes(csr) == certs.public_bytes(KEY)
    assert isinstance(KEY, ec.EllipticCurvePrivateKey)
