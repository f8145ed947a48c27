"""The certificates of a host: requirements, replacement, and their number."""

import datetime
from types import SimpleNamespace

import pytest

pytest.importorskip("salt")

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from saltvirt.errors import InvalidInput, PkiError
from saltvirt.pki.authority import ca, issue
from saltvirt.pki.authority.policy import CertificatePolicy
from saltvirt.pki.authority.store import USES, CertificateStore
from saltvirt.pki.common import certs

DAY = datetime.timedelta(days=1)
SECOND = datetime.timedelta(seconds=1)
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
SERVER, CLIENT, QEMU, _ = USES
CA_DAYS = 4000


def authority(name, days=CA_DAYS):
    key = certs.new_key()
    return ca.Authority(name, key, (certs.self_signed(key, certs.subject(name), days, START),))


AUTHORITIES = {name: authority(name) for name in ("libvirt", "qemu")}
KEY = certs.new_key()


class Host:
    """One host's certificates, with a clock that the test turns."""

    def __init__(self, folder):
        self.now = START
        self.folder = folder / "hv1"
        (self.folder / "issued").mkdir(parents=True)
        self.store = CertificateStore(folder, lambda: self.now)
        self.defaults = {
            "host": "hv1",
            "names": ("hv1",),
            "days": 90,
            "max_days": None,
            "subject": {},
        }
        self.authorities = dict(AUTHORITIES)

    def case(self, **changes):
        want = issue.CertificateRequest(**{**self.defaults, **changes})
        rules = CertificatePolicy(hosts="*")
        return issue.Case(self.store, rules, self.folder, self.authorities, want)

    def sign(self, use=SERVER, present=None, **changes):
        return issue.sign(self.case(**changes), use, KEY.public_key(), present)

    def pair(self, use=SERVER, **changes):
        return issue.pair(self.case(**changes), use)

    def fault(self, cert, use=SERVER, **changes):
        return issue.fault(self.case(**changes), use, cert)

    def issued(self):
        return sorted(path.stem for path in (self.folder / "issued").iterdir())

    def file(self, name):
        return self.folder / name


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


# -- what it must be ----------------------------------------------------------------------


def asked(**more):
    return SimpleNamespace(**{"days": None, "subject": {}, **more})


def test_the_masters_policy_is_the_most_that_a_host_gets():
    rules = CertificatePolicy(hosts="*", days=100, subject={"organization": "Ours"})
    found = issue.make_cert_request(rules, asked(), "hv1", ["a", "b"], ["7"])
    assert (found.host, found.names, found.revoked) == ("hv1", ("a", "b"), frozenset({"7"}))
    assert (found.days, found.max_days, found.subject) == (100, None, {"organization": "Ours"})
    more = {"organization": "Mine", "country": "DE"}
    for days, given in ((101, 100), (99, 99)):
        found = issue.make_cert_request(rules, asked(days=days, subject=more), "hv1", [])
        assert (found.days, found.max_days) == (given, given)
        assert found.subject == {"organization": "Ours", "country": "DE"}


def test_a_good_certificate_has_no_fault(host):
    assert host.fault(host.sign()) is None
    assert host.fault(host.sign(names=("a", "hv1")), names=("hv1", "a")) is None, "in any order"


def test_each_fault_is_named(host):
    cert = host.sign()
    assert host.fault(cert, QEMU) == "issued by another CA (CN=libvirt)"
    assert host.fault(cert, revoked=frozenset({certs.serial(cert)})) == "revoked"
    assert host.fault(cert, revoked=frozenset({"7"})) is None
    assert host.fault(cert, CLIENT) == "not for a client"
    assert host.fault(cert, names=("hv1", "hv2")) == "its names have changed"
    assert host.fault(cert, subject={"organization": "x"}) == "its subject has changed"


def test_it_is_good_from_its_first_second_to_its_last(host):
    cert = host.sign(days=9)
    start, end = certs.not_before(cert), certs.not_after(cert)
    for now, fault in (
        (start - SECOND, f"not valid before {start:%Y-%m-%d}"),
        (start, None),
        (end, f"expired on {end:%Y-%m-%d}"),
    ):
        host.now = now
        assert host.fault(cert, days=9) == fault
    host.now = end - SECOND
    assert host.fault(cert, days=9) == "renewed: 0 days left"
    host.now = end - DAY
    assert host.fault(cert, days=9) == "renewed: 1 day left"


@pytest.mark.parametrize(("max_days", "shorter"), [(89, False), (88, True), (None, False)])
def test_a_lifetime_that_is_asked_for_is_the_most_but_for_a_day(host, max_days, shorter):
    fault = host.fault(host.sign(), max_days=max_days)
    assert fault == ("a shorter lifetime is requested" if shorter else None)


def test_it_is_renewed_where_a_new_one_lives_longer_by_more_than_a_third(host):
    """Near the end of the CA a new one ends with the old one."""
    cert = host.sign()
    for rest, renewed in ((90, False), (120, False), (121, True)):
        host.authorities["libvirt"] = SimpleNamespace(
            cert=certs.self_signed(
                AUTHORITIES["libvirt"].key, certs.subject("libvirt"), rest, START
            )
        )
        host.now = START + 61 * DAY
        assert (host.fault(cert) == "renewed: 29 days left") is renewed, rest
    host.now = START + 60 * DAY
    assert host.fault(cert) is None, "a third is left"


def test_what_nobody_asks_for_stays_in_the_subject(host):
    first = host.sign()
    assert first.subject == certs.subject("hv1", organization="Salted")
    more = {"country": "DE", "state": "BY", "locality": "N", "organization": "O"}
    second = host.sign(subject=more)
    assert second.subject == certs.subject("hv1", **more)
    assert host.sign(present=second).subject == second.subject
    third = host.sign(present=second, subject={"locality": "M"})
    assert third.subject == certs.subject("hv1", **{**more, "locality": "M"})
    assert host.sign(present=host.sign(subject={"organization": ""})).subject == certs.subject(
        "hv1"
    )


def test_a_part_of_a_subject_that_is_not_ours_goes(host):
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "x"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "O"),
        ]
    )
    foreign = certs.self_signed(KEY, name, 9, START)
    assert host.sign(present=foreign).subject == certs.subject("hv1", organization="O")


# -- a pair that is on the master ---------------------------------------------------------


def test_a_pair_is_made_once_and_kept_to_the_master(host):
    key, cert, why = host.pair()
    assert why == "first certificate"
    assert certs.belong_together(cert, key)
    assert host.file("serverkey.pem").read_bytes() == certs.key_pem(key)
    assert host.file("servercert.pem").read_bytes() == certs.cert_pem(cert)
    assert host.issued() == [certs.serial(cert)]
    for name in ("serverkey.pem", "servercert.pem"):
        host.file(name).chmod(0o644)
    again = host.pair()
    assert (certs.key_pem(again[0]), *again[1:]) == (certs.key_pem(key), cert, None)
    for name in ("serverkey.pem", "servercert.pem"):
        assert host.file(name).stat().st_mode & 0o777 == 0o600
    assert not host.file("aside").exists()
    other = host.pair(names=("hv1", "vip"))
    assert other[2] == "its names have changed"
    assert not certs.belong_together(other[1], key), "with a key of its own"
    assert host.issued() == sorted(certs.serial(one) for one in (cert, other[1]))
    assert not host.file("aside").exists(), "what was good is in issued/"


def test_what_is_signed_and_what_was_damaged_is_in_the_log(host, caplog):
    caplog.set_level("INFO")
    host.pair()
    host.file("serverkey.pem").write_bytes(b"x")
    host.pair()
    issue.sign_request(host.case(), CLIENT, csr(KEY))
    why = "serverkey.pem is not a readable private key"
    kept = next(host.file("aside").iterdir())
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "new server certificate for hv1: first certificate"),
        ("WARNING", f"{host.file('serverkey.pem')} was damaged; it is saved as {kept}"),
        ("INFO", f"new server certificate for hv1: {why}"),
        ("INFO", "signed the client certificate of hv1: first certificate"),
    ]


@pytest.mark.parametrize("name", ["serverkey.pem", "servercert.pem"])
def test_half_a_pair_is_no_first_one(host, name):
    host.pair()
    host.file(name).unlink()
    assert host.pair()[2] == "the key or the certificate was missing"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("serverkey.pem", "serverkey.pem is not a readable private key"),
        ("servercert.pem", "servercert.pem is not a readable certificate"),
    ],
)
def test_what_cannot_be_read_is_said_and_kept(host, name, why):
    host.pair()
    host.file(name).write_bytes(b"x")
    assert host.pair()[2] == why
    [kept] = host.file("aside").iterdir()
    assert kept.name.startswith(f"{name}.")


def test_two_halves_of_two_pairs_are_no_pair(host):
    _, cert, _ = host.pair()
    host.file("serverkey.pem").write_bytes(certs.key_pem(KEY))
    key, other, why = issue.stored(host.folder, SERVER)
    assert (key, other) == (None, None)
    assert why == "serverkey.pem and servercert.pem do not belong together"
    assert host.pair()[1] != cert
    assert len(list(host.file("aside").iterdir())) == 2


def test_a_damaged_key_leaves_the_certificate(host):
    _, cert, _ = host.pair()
    host.file("serverkey.pem").write_bytes(b"x")
    key, found, why = issue.stored(host.folder, SERVER)
    assert (key, found, why) == (None, cert, "serverkey.pem is not a readable private key")
    host.file("servercert.pem").write_bytes(b"x")
    assert issue.stored(host.folder, SERVER)[1] is None
    assert issue.stored_cert(host.folder, SERVER) is None
    assert issue.stored_cert(host.folder, CLIENT) is None
    host.file("serverkey.pem").unlink()
    assert issue.stored(host.folder, SERVER) == (
        *(None, None, "servercert.pem is not a readable certificate"),
    )


# -- what it was given --------------------------------------------------------------------


def test_what_was_given_is_remembered_before_anybody_has_it(host):
    foreign = certs.self_signed(KEY, certs.subject("hv1"), 9, START)
    cert = host.sign(present=foreign)
    assert host.issued() == sorted(map(certs.serial, (foreign, cert)))
    assert set(issue.issued(host.folder)) == {foreign, cert}
    (host.folder / "issued" / "1.pem").write_bytes(b"x")
    (host.folder / "issued" / "2").write_bytes(certs.cert_pem(cert))
    assert len(list(issue.issued(host.folder))) == 2


def test_what_had_expired_before_any_trusted_ca_began_is_forgotten(host):
    (host.folder / "issued" / "0.pem").write_bytes(b"x")
    old, young = host.sign(days=1), host.sign(days=2)
    given = ["0", *map(certs.serial, (old, young))]
    host.store.base.mkdir()
    path = ca.paths(host.store, "libvirt")[1]
    for begins, gone in (
        (START, None), (certs.not_after(old) - SECOND, None),
        (certs.not_after(old), certs.serial(old)),
    ):  # fmt: skip
        host.now = begins + certs.BACKDATE
        made = certs.self_signed(KEY, certs.subject("CA"), CA_DAYS, host.now)
        path.write_bytes(certs.cert_pem(made))
        given.append(certs.serial(host.sign()))
        assert host.issued() == sorted({*given} - {gone})


def test_who_was_given_enough_gets_none_for_a_time(host, monkeypatch):
    monkeypatch.setattr(issue, "MAX_ISSUED", 2)
    first = host.sign()
    issue.refuse_more(host.case(), SERVER)
    host.now += DAY
    last = host.sign()
    issue.refuse_more(host.case(), CLIENT)
    issue.refuse_more(host.case(), QEMU)
    issue.refuse_more(host.case(revoked=frozenset({certs.serial(first)})), SERVER)
    with pytest.raises(PkiError, match=r"has received 2 server .* before 2026-01-31 00:00"):
        issue.refuse_more(host.case(), SERVER)
    third = host.sign()
    with pytest.raises(PkiError, match=r"has received 3 server .* before 2026-02-01 00:00"):
        issue.refuse_more(host.case(), SERVER)
    (host.folder / "issued" / f"{certs.serial(third)}.pem").unlink()
    host.now = START + issue.ISSUE_WINDOW - SECOND
    with pytest.raises(PkiError, match="has received 2"):
        issue.refuse_more(host.case(), SERVER)
    host.now = START + issue.ISSUE_WINDOW
    issue.refuse_more(host.case(), SERVER)
    assert host.issued() == sorted(map(certs.serial, (first, last)))


def test_what_another_authority_gave_is_not_counted(host, monkeypatch):
    monkeypatch.setattr(issue, "MAX_ISSUED", 1)
    host.sign()
    host.authorities["libvirt"] = authority("libvirt")
    issue.refuse_more(host.case(), SERVER)
    host.sign()
    for ask in (lambda: issue.refuse_more(host.case(), SERVER), host.pair):
        with pytest.raises(PkiError, match="has received 1"):
            ask()
    assert not host.file("serverkey.pem").exists()


# -- a key that only the host has ---------------------------------------------------------


def csr(key):
    builder = x509.CertificateSigningRequestBuilder().subject_name(certs.subject("x"))
    return certs.csr_pem(builder.sign(key, certs.digest(key)))


def test_a_host_keeps_its_own_key(host, monkeypatch):
    host.file("serverkey.pem").write_bytes(b"from before")
    cert, why = issue.sign_request(host.case(), SERVER, csr(KEY))
    assert why == "first certificate"
    assert host.file("servercert.pem").read_bytes() == certs.cert_pem(cert)
    assert not host.file("serverkey.pem").exists()
    assert certs.belong_together(cert, KEY)
    assert issue.sign_request(host.case(), SERVER, csr(KEY)) == (cert, None)
    other = ec.generate_private_key(ec.SECP256R1())
    second, why = issue.sign_request(host.case(), SERVER, csr(other))
    assert why == "the host has a new key"
    assert certs.belong_together(second, other)
    third, why = issue.sign_request(host.case(names=("a",)), SERVER, csr(other))
    assert why == "its names have changed"
    monkeypatch.setattr(issue, "MAX_ISSUED", 3)
    with pytest.raises(PkiError, match="has received 3"):
        issue.sign_request(host.case(), SERVER, csr(KEY))
    assert issue.sign_request(host.case(names=("a",)), SERVER, csr(other)) == (third, None)
    with pytest.raises(InvalidInput, match="not a readable certificate signing request"):
        issue.sign_request(host.case(), SERVER, "x")


def test_a_subject_stays_with_a_signing_request_too(host):
    issue.sign_request(host.case(subject={"country": "DE"}), SERVER, csr(KEY))
    cert, _ = issue.sign_request(host.case(names=("a",)), SERVER, csr(KEY))
    assert cert.subject == certs.subject("hv1", organization="Salted", country="DE")


def test_what_is_due_is_named(host):
    assert issue.uses_to_renew(host.case(), (SERVER, CLIENT)) == ["server", "client"]
    host.pair(SERVER)
    host.pair(CLIENT)
    assert issue.uses_to_renew(host.case(), (SERVER, CLIENT)) == []
    host.pair(CLIENT, names=("a",))
    assert issue.uses_to_renew(host.case(), (SERVER, CLIENT)) == ["client"]
    host.file("clientcert.pem").write_bytes(b"x")
    assert issue.uses_to_renew(host.case(), (SERVER, CLIENT)) == ["client"]
