"""Renewal, rotation, revocation and adoption, with a clock that the test sets."""

import base64
import datetime
import shutil
import subprocess
import threading
import time
from types import SimpleNamespace

import pytest

pytest.importorskip("salt")
import itertools

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa

from saltvirt.errors import InvalidInput, NotFound, PkiError
from saltvirt.pki.authority import cloud, crl, issue, policy, request_rules, responder, rotation
from saltvirt.pki.authority.store import CertificateStore
from saltvirt.pki.common import certs
from saltvirt.pki.host import request, validity
from saltvirt.system import file_lock
from tests.clock import until

DAY, SHA = datetime.timedelta(days=1), hashes.SHA256()
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)


class Office:
    """A store and a policy, with a clock."""

    def __init__(self, folder, **settings):
        self.now = START
        self.store = CertificateStore(folder, lambda: self.now)
        self.rules = policy.CertificatePolicy(hosts="*", **settings)

    def give(self, host="hv1", known=(), **arguments):
        asked = request_rules.parse("_", arguments, {})
        return responder._respond(self.store, self.rules, host, asked, {}, known)

    def cert(self, name="servercert", host="hv1", **arguments):
        return certs.load_certs(self.give(host, **arguments)[f"libvirt.{name}.pem"].encode())[0]

    def trusted(self, **arguments):
        return certs.load_certs(self.give(**arguments)["libvirt.cacert.pem"].encode())


@pytest.fixture
def office(tmp_path):
    return Office(tmp_path)


def openssl_verify(folder, ca_pem, cert_pem, purpose="sslserver", at=None):
    (folder / "ca.pem").write_text(ca_pem)
    (folder / "cert.pem").write_text(cert_pem)
    argv = ["openssl", "verify", "-x509_strict", "-purpose", purpose, "-CAfile"]
    at = ["-attime", str(int(at.timestamp()))] if at else []
    argv += [str(folder / "ca.pem"), *at, str(folder / "cert.pem")]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("key", ["ec", "ec384", "rsa"])
def test_another_implementation_accepts_the_certificates(tmp_path, key):
    office = Office(tmp_path, key=key)
    office.now = certs.utcnow()
    given = office.give()
    for name, purpose in (("servercert", "sslserver"), ("clientcert", "sslclient")):
        done = openssl_verify(
            tmp_path, given["libvirt.cacert.pem"], given[f"libvirt.{name}.pem"], purpose
        )
        assert done.returncode == 0, done.stderr


def test_a_certificate_is_for_the_id_the_short_name_and_what_the_master_configured(tmp_path):
    office = Office(tmp_path, names={"hv1.a.org": ["10.0.0.1", "storage1"]}, domain="b.org")
    assert certs.names(office.cert(host="hv1.a.org")) == [
        "hv1.a.org",
        "10.0.0.1",
        "storage1",
        "hv1",
    ]
    assert certs.names(office.cert(host="hv2")) == ["hv2", "hv2.b.org"]


def test_a_name_that_the_master_gave_to_another_host_is_not_to_be_claimed(tmp_path):
    """With trust_grains; the other may have no certificate yet."""
    office = Office(tmp_path, trust_grains=True, domain="x.org", names={"hv2": ["vip", "10.0.0.9"]})
    grains = {"fqdn": "vip", "host": "hv2", "fqdn_ip4": ["10.0.0.9", "10.0.0.1"], "fqdn_ip6": []}
    asked = request_rules.parse("_", {}, {})
    given = responder._respond(office.store, office.rules, "hv1", asked, grains)
    cert = certs.load_certs(given["libvirt.servercert.pem"].encode())[0]
    assert set(certs.names(cert)) == {"hv1", "hv1.x.org", "10.0.0.1"}
    grains["fqdn"] = "hv2.x.org"
    given = responder._respond(office.store, office.rules, "hv1", asked, grains)
    cert = certs.load_certs(given["libvirt.servercert.pem"].encode())[0]
    assert "hv2.x.org" not in certs.names(cert)


@pytest.mark.parametrize(
    ("host", "others", "settings", "names"),
    [
        ("hv1.a.org", ["hv1.b.org"], {}, ["hv1.a.org"]),
        ("hv1.a.org", ["HV1.b.org"], {}, ["hv1.a.org"]),
        ("hv1.a.org", ["hv1"], {}, ["hv1.a.org"]),
        ("hv1", ["hv1.a.org"], {}, ["hv1"]),
        ("hv1", ["hv1.a.org"], {"domain": "b.org"}, ["hv1", "hv1.b.org"]),
        ("hv1", ["hv1.b.org"], {"domain": "b.org"}, ["hv1"]),
        ("hv1.a.org", ["hv1.b.org"], {"names": {"hv1.a.org": ["hv1"]}}, ["hv1.a.org", "hv1"]),
        ("hv1.b.org", ["hv1.a.org"], {"names": {"hv1.a.org": ["hv1"]}}, ["hv1.b.org"]),
        ("hv1.a.org", ["hv2.a.org"], {}, ["hv1.a.org", "hv1"]),
        ("hv1", ["hv2"], {"names": {"hv1": ["hv2", "x"]}}, ["hv1", "x"]),
        ("hv1", ["hv2"], {"names": {"hv1": ["vip"], "hv2": ["vip"]}}, ["hv1", "vip"]),
    ],
)
@pytest.mark.parametrize("issued", [True, False])
def test_a_name_that_two_ids_could_have_is_nobodys(
    tmp_path, host, others, settings, names, issued
):  # fmt: skip
    """Else whoever has it could be the other one, to those that use it."""
    office = Office(tmp_path, **settings)
    known = [host, *others]
    for other in others if issued else ():
        office.give(other, known=known)
    assert certs.names(office.cert(host=host, known=known)) == names


def test_a_certificate_for_what_became_anothers_name_is_told_until_it_is_revoked(office):
    """It had the short name before there was a host of that id."""
    office.give("hv1.a.org")
    office.give("hv1")
    office.give("hv1.a.org")

    def told(host="hv1.a.org"):
        return cloud.HostRecords(office.store, office.rules).foreign_names(host)

    assert told("hv1") == []
    assert len(told()) == 1
    assert "a certificate for hv1, a name of hv1: run salt-run virt.revoke hv1.a.org" in told()[0]
    office.rules = policy.CertificatePolicy(hosts="*", names={"hv1.a.org": ["vip"], "hv2": ["VIP"]})
    assert len(told()) == 1, "what the master gives to both is meant"
    office.give("hv1.a.org")
    assert len(told()) == 1
    crl.revoke(office.store, "hv1.a.org")
    crl.readmit(office.store, "hv1.a.org")
    office.give("hv1.a.org")
    assert told() == []


def test_the_name_of_a_host_that_was_revoked_is_free(office):
    known = ["hv1.a.org", "hv1.b.org"]
    office.give("hv1.a.org", known=known)
    assert certs.names(office.cert(host="hv1.b.org", known=known)) == ["hv1.b.org"]
    crl.revoke(office.store, "hv1.a.org")
    assert certs.names(office.cert(host="hv1.b.org", known=known)) == ["hv1.b.org", "hv1"]


@pytest.mark.parametrize(("host", "known"), [("hv1", ["HV1"]), ("a b", []), ("ü", [])])
def test_an_id_that_is_no_name_of_its_own_gets_nothing(office, host, known):
    with pytest.raises(PkiError, match=f"{host}: no certificate can be issued for this name"):
        office.give(host, known=known)


def test_what_a_minion_claims_has_a_shape_and_an_end(tmp_path):
    """With trust_grains."""
    office = Office(tmp_path, trust_grains=True)
    asked = request_rules.parse("_", {}, {})
    many = [f"10.0.{n // 250}.{n % 250 + 1}" for n in range(9000)]
    for grains in (
        {"fqdn": 7, "host": ["hv9"], "fqdn_ip4": 7, "fqdn_ip6": {"a": 1}},
        {"fqdn_ip4": "10.0.0.1", "fqdn_ip6": None},
        {"fqdn_ip4": [7, None, {}], "fqdn_ip6": [["::2"]]},
    ):
        given = responder._respond(office.store, office.rules, "hv1", asked, grains)
        cert = certs.load_certs(given["libvirt.servercert.pem"].encode())[0]
        assert certs.names(cert) == ["hv1"]
    given = responder._respond(office.store, office.rules, "hv1", asked, {"fqdn_ip4": many})
    cert = certs.load_certs(given["libvirt.servercert.pem"].encode())[0]
    assert certs.names(cert) == ["hv1", *many[:32]]


@pytest.mark.parametrize(
    ("mode", "wish"),
    [
        ("pillar", "organization"), ("pillar", "expiration_days"), ("csr", "organization"),
        ("csr", "expiration_days"), ("csr", "key"),
    ],
)  # fmt: skip
def test_nobody_makes_the_authority_sign_without_end(tmp_path, mode, wish):
    """What has been signed for a host is kept until it expires, and revoked with it."""
    office = Office(tmp_path, mode=mode)
    key = certs.new_key()

    def asked(number):
        more = {"organization": f"o{number}"} if wish == "organization" else {}
        more |= {"expiration_days": 364 - 3 * number} if wish == "expiration_days" else {}
        if mode == "csr":
            mine = certs.new_key() if wish == "key" else key
            more["csr"] = {"client": request.signing_request(mine)}
        return more

    for number in range(issue.MAX_ISSUED):
        office.now += datetime.timedelta(hours=1)
        last = office.cert("clientcert", **asked(number))
    issued = len(list((office.store.host("hv1") / "issued").iterdir()))
    with pytest.raises(
        PkiError, match=r"hv1 has received 30 \w+ certificates within 30 days.* before"
    ):
        office.give(**asked(issue.MAX_ISSUED))
    if mode == "pillar" or wish == "key":
        assert office.cert("clientcert") == last, "what it has is as good as before"
    assert len(list((office.store.host("hv1") / "issued").iterdir())) == issued
    office.give("hv2", **asked(0))
    office.now = START + datetime.timedelta(hours=1) + issue.ISSUE_WINDOW
    assert office.cert("clientcert", **asked(issue.MAX_ISSUED)) != last
    crl.revoke(office.store, "hv1")
    crl.readmit(office.store, "hv1")
    for number in range(3):
        office.give(**asked(40 + number))


def test_a_new_authority_gives_to_whom_the_old_one_gave_enough(office, monkeypatch):
    monkeypatch.setattr(issue, "MAX_ISSUED", 1)
    office.give()
    with pytest.raises(PkiError, match="has received 1 server certificates"):
        office.give(organization="x")
    rotation.begin(office.store, office.rules)
    rotation.swap(office.store)
    office.give()


@pytest.mark.parametrize("issued", [True, False])
def test_another_hosts_name_is_not_to_be_claimed_by_another_spelling_of_it(tmp_path, issued):
    names = {"hv2": ["vip", "fd00::1", "::ffff:1"]}
    office = Office(tmp_path, trust_grains=True, domain="x.org", names=names)
    if issued:
        office.give("hv2")
    mixed = {"fqdn": "HV2.x.ORG", "host": "Hv2", "fqdn_ip4": [], "fqdn_ip6": ["FD00:0::0001"]}
    for host in ("VIP", "Hv2"):
        asked = request_rules.parse("_", {}, {})
        told = {**mixed, "host": host}
        given = responder._respond(office.store, office.rules, "hv1", asked, told)
        cert = certs.load_certs(given["libvirt.servercert.pem"].encode())[0]
        assert set(certs.names(cert)) == {"hv1", "hv1.x.org"}


def test_it_is_renewed_when_less_than_a_third_is_left(office):
    first = office.cert()
    office.now = START + 243 * DAY
    assert office.cert() == first
    office.now = START + 244 * DAY
    second = office.cert()
    assert certs.not_after(second) == office.now + 365 * DAY
    assert office.cert() == second


def test_a_certificate_of_one_day_is_renewed_in_its_last_hours_only(office):
    first = office.cert(expiration_days=1)
    office.now += DAY / 2
    assert office.cert(expiration_days=1) == first
    office.now += DAY / 3
    assert certs.not_after(office.cert(expiration_days=1)) == office.now + DAY


def test_near_the_end_of_the_ca_nothing_is_renewed_over_and_over(tmp_path):
    office = Office(tmp_path, ca_days=400)
    office.cert()
    office.now = START + 390 * DAY
    last = office.cert()
    assert certs.not_after(last) == START + 400 * DAY
    office.now += DAY
    assert office.cert() == last


def test_an_expired_ca_is_said_with_what_to_do(tmp_path):
    office = Office(tmp_path, ca_days=30)
    office.give()
    office.now = START + 31 * DAY
    with pytest.raises(PkiError, match=r"expired on 2026-01-31 .* virt.rotate_ca"):
        office.give()


def test_a_clock_that_is_years_behind_is_said(office):
    office.give()
    office.now = START - 1000 * DAY
    with pytest.raises(PkiError, match="set the clock"):
        office.give()


@pytest.mark.parametrize("skew", [-1, 1])
def test_a_host_whose_clock_is_a_day_off_accepts_a_new_certificate(office, tmp_path, skew):
    given = office.give()
    done = openssl_verify(
        tmp_path,
        given["libvirt.cacert.pem"],
        given["libvirt.servercert.pem"],
        at=START + skew * DAY,
    )
    assert done.returncode == 0, done.stderr


def test_a_changed_name_gives_a_new_certificate(tmp_path):
    office = Office(tmp_path)
    first = office.cert()
    office.rules = policy.CertificatePolicy(hosts="*", names={"hv1": ["10.0.0.1"]})
    assert certs.names(office.cert()) == ["hv1", "10.0.0.1"]
    assert certs.serial(office.cert()) != certs.serial(first)


def test_salts_parameters_shape_the_certificate_and_stay_when_nobody_asks(office):
    requested = {"country": "DE", "organization": "Example", "expiration_days": 30}
    cert = office.cert(**requested)
    assert cert.subject.rfc4514_string() == "CN=hv1,O=Example,C=DE"
    assert certs.not_after(cert) == START + 30 * DAY
    assert office.cert() == cert
    assert office.cert(**requested) == cert


def test_a_minion_cannot_lengthen_its_certificate(office):
    assert certs.not_after(office.cert(expiration_days=36500)) == START + 365 * DAY


@pytest.mark.parametrize("damage", [b"", b"-----BEGIN PRIVATE KEY-----\nMIG", None, "other"])
@pytest.mark.parametrize("name", ["serverkey.pem", "servercert.pem"])
def test_a_damaged_pair_is_made_anew_and_kept_aside(office, damage, name):
    office.give()
    path = office.store.host("hv1") / name
    if damage == "other":
        office.give("hv2")
        damage = (office.store.host("hv2") / name).read_bytes()
    path.unlink() if damage is None else path.write_bytes(damage)
    given = office.give()
    key = certs.load_key(given["libvirt.serverkey.pem"].encode())
    cert = certs.load_certs(given["libvirt.servercert.pem"].encode())[0]
    assert certs.belong_together(cert, key)
    aside = [item.read_bytes() for item in (path.parent / "aside").glob(f"{name}*")]
    assert aside == ([damage] if damage else [])


@pytest.mark.parametrize("damage", [b"", b"-----BEGIN", None])
@pytest.mark.parametrize("name", ["cakey.pem", "cacert.pem"])
def test_a_damaged_ca_is_never_replaced_silently(office, damage, name):
    office.give()
    path = office.store.path(name)
    path.unlink() if damage is None else path.write_bytes(damage)
    other = office.store.path("cacert.pem" if name == "cakey.pem" else "cakey.pem")
    before = other.read_bytes()
    with pytest.raises(PkiError, match="restore it from a backup"):
        office.give()
    assert other.read_bytes() == before


def test_a_renamed_minion_is_another_host_and_the_old_name_can_be_revoked(office):
    old = office.cert(host="hv1")
    new = office.cert(host="hv1b")
    assert certs.names(new) == ["hv1b"]
    crl.revoke(office.store, "hv1")
    assert certs.serial(old) in crl.revoked_serials(office.store)
    assert certs.serial(new) not in crl.revoked_serials(office.store)


# revocation


def listed(pem):
    from cryptography import x509

    text = pem.encode().split(b"-----BEGIN X509 CRL-----")[1:]
    lists = [x509.load_pem_x509_crl(b"-----BEGIN X509 CRL-----" + part) for part in text]
    return [{f"{entry.serial_number:x}" for entry in item} for item in lists]


def test_every_certificate_that_a_host_was_given_is_revoked(office):
    first = office.cert()
    office.now += 300 * DAY
    second = office.cert()
    office.give("hv2")
    crl.revoke(office.store, "hv1")
    (serials,) = listed(office.give("hv2")["libvirt.cacrl.pem"])
    assert {certs.serial(first), certs.serial(second)} <= serials


@pytest.mark.parametrize("days", [200, 800], ids=["then it expires", "it had expired"])
def test_a_revoked_certificate_is_listed_as_long_as_its_ca_is_trusted(office, days):
    """High availability looks at no dates: to it one that has expired is as good as any."""
    first = office.cert("clientcert")
    office.give("hv2")
    office.now += days * DAY
    office.give()
    crl.revoke(office.store, "hv1")
    office.now += 800 * DAY
    crl.revoke(office.store, "hv2")
    (serials,) = listed(office.give("hv3")["libvirt.cacrl.pem"])
    assert certs.serial(first) in serials


def test_what_a_ca_has_signed_that_nobody_trusts_any_more_is_forgotten(office):
    first = office.cert("clientcert")
    crl.revoke(office.store, "hv1")
    office.give("hv2")
    office.now += 800 * DAY
    rotation.begin(office.store, office.rules)
    assert certs.serial(first) in crl.revoked_serials(office.store)
    rotation.swap(office.store)
    office.give("hv2")
    rotation.finish(office.store)
    office.now += DAY
    crl.revoke(office.store, "hv2")
    assert certs.serial(first) not in crl.revoked_serials(office.store)
    crl.readmit(office.store, "hv2")
    office.give("hv2")
    issued = [certs.not_after(one) for one in issue.issued(office.store.host("hv2"))]
    assert issued and min(issued) > office.now


def test_a_revoked_host_gets_nothing_until_it_is_readmitted_with_new_ones(office):
    first = office.cert()
    crl.revoke(office.store, "hv1")
    with pytest.raises(PkiError, match=r"virt.revoke hv1 undo=True"):
        office.give()
    crl.readmit(office.store, "hv1")
    second = office.cert()
    assert certs.serial(second) != certs.serial(first)
    assert certs.serial(first) in crl.revoked_serials(office.store)


def test_a_list_outlives_its_ca_so_that_it_never_locks_everybody_out(office):
    from cryptography import x509

    office.give()
    crl.revoke(office.store, "hv1")
    found = x509.load_pem_x509_crl(office.give("hv2")["libvirt.cacrl.pem"].encode())
    end = getattr(found, "next_update_utc", None) or found.next_update
    assert end >= START + 3650 * DAY


def test_a_lost_list_is_made_again(office):
    office.give()
    crl.revoke(office.store, "hv1")
    before = listed(office.give("hv2")["libvirt.cacrl.pem"])
    office.store.path("crl.pem").unlink()
    assert listed(office.give("hv2")["libvirt.cacrl.pem"]) == before


def test_revoking_a_host_that_never_was_one_names_those_that_were(office):
    office.give("hv2")
    with pytest.raises(NotFound, match="hosts with certificates: hv2"):
        crl.revoke(office.store, "hv1")
    with pytest.raises(NotFound, match="not revoked"):
        crl.readmit(office.store, "hv2")


def in_background(call):
    """(thread, list that its result or error comes into)."""
    found = []

    def run():
        try:
            found.append(call())
        except PkiError as exc:
            found.append(exc)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, found


@pytest.fixture
def waits(monkeypatch):
    """The threads that have waited for a lock of the store."""
    found = set()

    def sleep(seconds):
        found.add(threading.get_ident())
        time.sleep(seconds)

    monkeypatch.setattr(file_lock, "time", SimpleNamespace(**{**vars(time), "sleep": sleep}))
    return found


def test_one_who_waited_for_the_lock_while_it_was_revoked_gets_nothing(office, waits):
    """It was judged before; S6."""
    first = office.cert()
    office.now += 300 * DAY  # what it asks for would be renewed
    with office.store.exclusive():
        asking, given = in_background(office.give)
        until(lambda: asking.ident in waits, "who asks waits for the lock")
        revoking, _ = in_background(lambda: crl.revoke(office.store, "hv1"))
        until(lambda: revoking.ident in waits, "who revokes waits for the lock")
        assert asking.is_alive()
    asking.join()
    revoking.join()
    assert "were revoked" in str(given[0])
    issued = list((office.store.host("hv1") / "issued").glob("*.pem"))
    serials = {certs.serial(certs.load_certs(path.read_bytes())[0]) for path in issued}
    assert certs.serial(first) in serials
    assert serials <= crl.revoked_serials(office.store)


def test_it_is_banned_while_its_revocation_still_waits(office, waits):
    office.give()
    office.give("hv2")
    with office.store.issuing("hv2"):
        revoking, _ = in_background(lambda: crl.revoke(office.store, "hv1"))
        until(lambda: revoking.ident in waits, "who revokes waits for the lock")
        assert revoking.is_alive()
        with pytest.raises(PkiError, match="were revoked"):
            office.give()
    revoking.join()


def test_a_revocation_that_was_killed_can_be_done_again_or_undone(office, monkeypatch):
    office.give()
    with monkeypatch.context() as patch:
        patch.setattr(CertificateStore, "exclusive", lambda _self: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            crl.revoke(office.store, "hv1")
    with pytest.raises(PkiError, match="were revoked"):
        office.give()
    office.give("hv2")
    assert [name.split(",")[0] for name in responder._subjects(office.store)] == ["CN=hv2"]
    crl.readmit(office.store, "hv1")
    office.give()


def test_requests_without_pause_do_not_keep_a_change_waiting(office):
    """Each begins before the one before it has ended: shared, the lock is never free."""
    office.give()
    over = threading.Event()

    def ask(number):
        while not over.is_set():
            with office.store.issuing(f"hv{number}"):
                time.sleep(0.2)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(20)]
    for number, thread in enumerate(threads):
        thread.start()
        time.sleep(0.01 * (number % 3))
    began = time.monotonic()
    try:
        with office.store.exclusive():
            took_s = time.monotonic() - began
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert took_s < 60


# rotation


def works(client, server, bundle_of_client, bundle_of_server):
    """Would client and server accept each other?"""
    return any(certs.signed_by(server, c) for c in bundle_of_client) and any(
        certs.signed_by(client, c) for c in bundle_of_server
    )


def test_in_every_step_of_a_rotation_every_pair_of_hosts_can_talk(office):
    def snapshot():
        return [(office.cert("clientcert", h), office.cert("servercert", h), office.trusted(host=h))
                for h in ("hv1", "hv2")]  # fmt: skip

    phases = [snapshot()]
    rotation.begin(office.store, office.rules)
    phases.append(snapshot())
    rotation.swap(office.store)
    phases.append(snapshot())
    rotation.finish(office.store)
    phases.append(snapshot())
    for before, after in itertools.pairwise(phases):
        for one in (before[0], after[0]):
            for two in (before[1], after[1]):
                assert works(one[0], two[1], one[2], two[2])
                assert works(two[0], one[1], two[2], one[2])
    assert phases[0][0][2] != phases[3][0][2]
    assert len(phases[3][0][2]) == 1


def test_a_rotation_is_not_begun_twice(office):
    office.give()
    rotation.begin(office.store, office.rules)
    coming = office.store.path("next-cacert.pem").read_bytes()
    rotation.begin(office.store, office.rules)
    assert office.store.path("next-cacert.pem").read_bytes() == coming


@pytest.mark.parametrize("lost", ["next-cakey.pem", "next-cacert.pem"])
def test_half_a_coming_ca_is_made_anew(office, lost):
    """Who made it died between its key and its certificate; or an operator has put a key there,
    and not yet the certificate, which another CA signs: it is not lost."""
    office.give()
    rotation.begin(office.store, office.rules)
    office.store.path(lost).unlink()
    office.store.path(rotation.RECORD).unlink()
    [half] = {"next-cakey.pem", "next-cacert.pem"} - {lost}
    content = office.store.path(half).read_bytes()
    rotation.begin(office.store, office.rules)
    [kept] = office.store.base.glob(f"{half}.*")
    assert kept.read_bytes() == content
    assert kept.stat().st_mode & 0o077 == 0
    rotation.swap(office.store)
    assert rotation.phase(office.store) == rotation.REISSUE


def test_revoked_stays_revoked_through_a_rotation(office):
    old = office.cert()
    office.give("hv2")
    crl.revoke(office.store, "hv1")
    rotation.begin(office.store, office.rules)
    assert len(listed(office.give("hv2")["libvirt.cacrl.pem"])) == 2
    rotation.swap(office.store)
    assert all(certs.serial(old) in s for s in listed(office.give("hv2")["libvirt.cacrl.pem"]))
    rotation.finish(office.store)
    assert len(listed(office.give("hv2")["libvirt.cacrl.pem"])) == 1


def test_a_rotation_does_not_go_on_without_the_old_ca(office):
    """Nothing is put in its place: every certificate of the old CA would be trusted by nobody."""
    office.give()
    rotation.begin(office.store, office.rules)
    key = office.store.path("cakey.pem")
    kept = key.rename(key.with_name("elsewhere"))
    for _ in range(2):
        with pytest.raises(PkiError, match=r"cakey.pem is missing: restore it"):
            rotation.swap(office.store)
    kept.rename(key)
    rotation.swap(office.store)
    assert rotation.phase(office.store) == rotation.REISSUE


def test_the_old_key_is_gone_when_the_rotation_is_done(office):
    office.give()
    key = office.store.path("cakey.pem").read_bytes()
    rotation.begin(office.store, office.rules)
    rotation.swap(office.store)
    rotation.finish(office.store)
    found = [path for path in office.store.base.rglob("*") if path.is_file()]
    assert all(path.read_bytes() != key for path in found)


# other people's CAs


def certtool(folder, *args):
    subprocess.run(["certtool", *args], cwd=folder, check=True, capture_output=True)


def old_salt_ca(base):
    """What Salt's own ext_pillar did."""
    base.mkdir(parents=True)
    (base / "ca.info").write_text("cn = salted\nca\ncert_signing_key")
    certtool(base, "--generate-privkey", "--outfile", "cakey.pem")
    certtool(base, "--generate-self-signed", "--load-privkey", "cakey.pem",
             "--template", "ca.info", "--outfile", "cacert.pem")  # fmt: skip
    for name in ("cakey.pem", "cacert.pem", "ca.info"):
        (base / name).chmod(0o644)


def test_the_ca_of_salts_old_pillar_is_adopted(tmp_path):
    if not shutil.which("certtool"):
        pytest.skip("certtool is not installed")
    office = Office(tmp_path)
    old_salt_ca(office.store.base)
    office.now = certs.utcnow() + DAY / 24
    paths = [office.store.path(name) for name in ("cacert.pem", "cakey.pem")]
    before = [path.read_bytes() for path in paths]
    given = office.give()
    assert [path.read_bytes() for path in paths] == before
    done = openssl_verify(tmp_path, given["libvirt.cacert.pem"], given["libvirt.servercert.pem"])
    assert done.returncode == 0, done.stderr
    assert office.store.path("cakey.pem").stat().st_mode & 0o777 == 0o600


def test_a_ca_that_may_not_sign_lists_publishes_none_and_says_how_to_shut_a_host_out(tmp_path):
    """GnuTLS does not believe such a list, and libvirtd would not listen any more."""
    if not shutil.which("certtool"):
        pytest.skip("certtool is not installed")
    office = Office(tmp_path)
    old_salt_ca(office.store.base)
    office.now = certs.utcnow() + DAY / 24
    office.give("hv1")
    with pytest.raises(PkiError, match=r"run salt-run virt.rotate_ca"):
        crl.revoke(office.store, "hv1")
    assert "libvirt.cacrl.pem" not in office.give("hv2")
    with pytest.raises(PkiError, match="were revoked"):
        office.give("hv1")
    rotation.begin(office.store, office.rules)
    rotation.swap(office.store)
    rotation.finish(office.store)
    assert len(listed(office.give("hv2")["libvirt.cacrl.pem"])) == 1


def test_an_intermediate_ca_with_its_chain_is_used(office, tmp_path):
    root_key, middle_key = certs.new_key(), certs.new_key("rsa")
    root = certs.self_signed(root_key, certs.subject("Root"), 9000, START)
    from cryptography import x509

    middle = (
        x509.CertificateBuilder()
        .subject_name(certs.subject("Middle"))
        .issuer_name(root.subject)
        .public_key(middle_key.public_key())
        .serial_number(7)
        .not_valid_before(START - DAY)
        .not_valid_after(START + 900 * DAY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(root_key, certs.digest(root_key))
    )
    office.store.base.mkdir(parents=True)
    office.store.path("cakey.pem").write_bytes(certs.key_pem(middle_key))
    office.store.path("cacert.pem").write_bytes(certs.cert_pem(middle, root))
    given = office.give()
    assert certs.load_certs(given["libvirt.cacert.pem"].encode()) == [middle, root]
    assert certs.signed_by(office.cert(), middle)


def test_a_chain_in_the_wrong_order_is_refused_with_the_right_one(office):
    office.store.base.mkdir(parents=True)
    keys = [certs.new_key(), certs.new_key()]
    found = [certs.self_signed(k, certs.subject(f"CA{n}"), 900, START) for n, k in enumerate(keys)]
    office.store.path("cakey.pem").write_bytes(certs.key_pem(keys[0]))
    office.store.path("cacert.pem").write_bytes(certs.cert_pem(*reversed(found)))
    with pytest.raises(PkiError, match="its chain after it"):
        office.give()


# signing requests


def test_a_signing_request_gets_no_name_it_asks_for(tmp_path):
    from cryptography import x509

    office = Office(tmp_path, mode="csr")
    key = certs.new_key()
    csr = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(certs.subject("hv2"))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("hv2")]), critical=False)
        .sign(key, certs.digest(key))
    )
    cert = office.cert(csr={"server": certs.csr_pem(csr)})
    assert certs.names(cert) == ["hv1"]
    assert cert.subject.rfc4514_string() == "CN=hv1,O=Salted"
    assert certs.belong_together(cert, key)
    assert not (office.store.host("hv1") / "serverkey.pem").exists()


@pytest.mark.parametrize("csr", [{"ca": "x"}, "x", {"server": "x"}, {"server": "x" * 9000}, [1]])
def test_what_is_no_signing_request_is_refused(tmp_path, csr):
    with pytest.raises(InvalidInput):
        Office(tmp_path, mode="csr").give(csr=csr)


def _signed_by(key):
    from cryptography import x509

    builder = x509.CertificateSigningRequestBuilder().subject_name(certs.subject("x"))
    made = builder.sign(key, None if isinstance(key, ed25519.Ed25519PrivateKey) else SHA)
    return certs.csr_pem(made)


@pytest.mark.parametrize("curve", [ec.SECP256R1, ec.SECP384R1, ec.SECP521R1])
def test_keys_of_the_usual_curves_are_signed(curve):
    key = ec.generate_private_key(curve())
    assert certs.public_bytes(issue.read_csr(_signed_by(key))) == certs.public_bytes(key)


@pytest.mark.parametrize("bits", [2048, 4096])
def test_rsa_keys_of_the_usual_sizes_are_signed(bits):
    key = rsa.generate_private_key(65537, bits)
    assert issue.read_csr(_signed_by(key)).public_key().key_size == bits


@pytest.mark.parametrize(
    "make",
    [
        lambda: rsa.generate_private_key(65537, 1024),
        lambda: rsa.generate_private_key(65537, 2040),
        lambda: rsa.generate_private_key(65537, 4104),
        lambda: dsa.generate_private_key(2048),
        lambda: ec.generate_private_key(ec.SECP256K1()),
        lambda: ec.generate_private_key(ec.SECP224R1()),
        lambda: ec.generate_private_key(ec.BrainpoolP256R1()),
        ed25519.Ed25519PrivateKey.generate,
    ],
)
def test_a_key_of_another_kind_or_size_is_not(make):
    with pytest.raises(InvalidInput, match="must be RSA with 2048 to 4096 bits, or use the curve"):
        issue.read_csr(_signed_by(make()))


@pytest.mark.parametrize("place", [-12, -40])
def test_a_request_that_its_key_did_not_sign_is_refused(place):
    """Somebody else's public key is no key of the host."""
    lines = _signed_by(certs.new_key("rsa")).splitlines()
    body = base64.b64decode("".join(lines[1:-1]))
    forged = body[:place] + bytes([body[place] ^ 1]) + body[place:][1:]
    pem = "\n".join([lines[0], base64.encodebytes(forged).decode().strip(), lines[-1]])
    with pytest.raises(InvalidInput, match="not signed by its own key"):
        issue.read_csr(pem)


def test_until_when_the_certificates_of_a_host_hold_is_read_from_its_files(tmp_path):
    base, conf = tmp_path / "pki", tmp_path / "qemu.conf"
    for place, days in (("libvirt/clientcert", 900), ("qemu/client-cert", 1), ("qemu/x", 1)):
        pem = base / f"{place}.pem"
        pem.parent.mkdir(parents=True, exist_ok=True)
        start = certs.utcnow() - 2 * DAY
        pem.write_bytes(
            certs.cert_pem(certs.self_signed(certs.new_key(), certs.subject("hv1"), days, start))
        )
    (base / "qemu/server-cert.pem").write_text("no certificate")
    found = validity.local_certificates("hv1", base, conf)
    assert sorted(found) == ["client", "qemu-client"]
    assert (found["client"].host, found["client"].problem) == ("hv1", None)
    assert found["client"].valid_until > str(certs.utcnow() + 800 * DAY)
    assert found["qemu-client"].problem.startswith("expired on 20")
    conf.write_text(f'migrate_tls_x509_cert_dir = "{base}/qemu"\n')
    assert sorted(validity.local_certificates("hv1", base, conf)) == ["client", "qemu-client"]
    conf.write_text(f'migrate_tls_x509_cert_dir = "{tmp_path}/other"\n')
    assert list(validity.local_certificates("hv1", base, conf)) == ["client"]
