"""The master's folder of authorities, its authorities, and revocations, step by step."""

import datetime
import json
import os

import pytest

pytest.importorskip("salt")

from cryptography import x509

from saltvirt.errors import InvalidInput, NotFound, PkiError
from saltvirt.pki.authority import ca, crl, rotation
from saltvirt.pki.authority.policy import CertificatePolicy
from saltvirt.pki.authority.store import AUTHORITIES, USES, CertificateStore
from saltvirt.pki.common import certs, files
from saltvirt.system import atomic_file

DAY = datetime.timedelta(days=1)
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
POLICY = CertificatePolicy(hosts="*")
KEY = certs.new_key()


class Master(CertificateStore):
    """A Store with a clock that the test turns."""

    def __init__(self, folder):
        self.time = START
        super().__init__(folder, lambda: self.time)

    def issued(self, host, days=365):
        """Gives a host a certificate, as ``issued/`` keeps it."""
        folder = self.host(host) / "issued"
        folder.mkdir(parents=True, exist_ok=True)
        cert = certs.self_signed(KEY, certs.subject(host), days, self.time)
        (folder / f"{certs.serial(cert)}.pem").write_bytes(certs.cert_pem(cert))
        return cert


@pytest.fixture
def store(tmp_path):
    return Master(tmp_path)


@pytest.fixture
def made(store):
    ca.ensure(store, POLICY)
    return store


def free(path, shared=False):
    """Whether nobody holds a lock."""
    try:
        with files.locked(path, shared=shared, timeout_s=0):
            return True
    except PkiError:
        return False


def content(store):
    return {
        path.name: path.read_bytes()
        for path in store.base.iterdir()
        if path.name.endswith(".pem") and "crl" not in path.name
    }


# the folder


@pytest.mark.parametrize(
    "host",
    ["", "a/b", "a\0b", ".x", "cakey.pem", "ca.info", "rotation.json", "revoked.json",
     "x" * 256, "é" * 128, "a\nb", "\x1b[2J", "\udc80"],
)  # fmt: skip
def test_no_id_is_a_file_of_the_store(store, host):
    with pytest.raises(InvalidInput, match="cannot be the minion id") as raised:
        store.host(host)
    assert repr(host[:100]) in raised.value.text


def test_hosts_are_the_folders(store, tmp_path):
    for name in ("hv1", "x" * 255):
        assert store.host(name) == tmp_path / "libvirt" / name
    assert store.hosts() == []
    for name in ("hv2", "hv1", ".sweep"):
        store.base.joinpath(name).mkdir(parents=True)
    store.path("cakey.pem").write_text("x")
    assert store.hosts() == ["hv1", "hv2"]


def test_the_files_of_a_host_have_libvirts_names():
    files_of = [(use.key, use.cert) for use in USES]
    assert files_of == [
        (f"{name}key.pem", f"{name}cert.pem")
        for name in ("server", "client", "qemu-server", "qemu-client")
    ]


def test_who_changes_authorities_is_alone(store):
    store.base.mkdir(mode=0o755)
    left = store.path(".saltvirt-left")
    left.write_text("x")
    with store.exclusive():
        assert store.base.stat().st_mode & 0o777 == 0o700
        assert not left.exists()
        assert not free(store.path(".lock"), shared=True)
        assert free(store.path(".turn"))
    assert free(store.path(".lock"))


def test_certificates_are_issued_beside_each_other_one_host_at_a_time(store):
    files.folder(store.base)
    with store.issuing("hv1"):
        pass
    folder = store.host("hv1")
    folder.chmod(0o755)
    lefts = [folder / ".saltvirt-a", folder / "issued" / ".saltvirt-b"]
    for left in lefts:
        left.write_text("x")
    with store.issuing("hv1") as given:
        assert given == folder
        assert folder.stat().st_mode & 0o777 == 0o700
        assert not any(left.exists() for left in lefts)
        assert free(store.path(".lock"), shared=True)
        assert not free(store.path(".lock"))
        assert not free(folder / ".lock")
        assert free(store.path(".turn"))
        with store.issuing("hv2"):
            pass
    assert free(folder / ".lock")


def test_a_record_is_there_or_not_or_damaged(store, monkeypatch):
    files.folder(store.base)
    assert store.record("x.json", 7) == 7
    store.write_record("x.json", {"b": 1, "a": 2})
    assert store.record("x.json", 7) == {"a": 2, "b": 1}
    assert store.path("x.json").read_text() == '{\n "a": 2,\n "b": 1\n}'
    store.path("x.json").write_text("{")
    with pytest.raises(PkiError, match=r"x.json is damaged: restore it from a backup"):
        store.record("x.json", 7)
    synced = []
    monkeypatch.setattr(atomic_file, "sync", lambda path, _fd=None: synced.append(str(path)))
    for _ in range(2):
        store.write_record("x.json", None)
        assert not store.path("x.json").exists()
    assert synced == [str(store.base)] * 2, "also after a power cut"


def test_each_damaged_file_is_kept_by_a_name_of_its_own(store):
    files.folder(store.base)
    path = store.path("x.pem")
    found = []
    for text in ("one", "two", "three"):
        path.write_text(text)
        found.append(store.preserve(path))
    names = [f"x.pem.20260101T000000{end}" for end in ("", ".1", ".2")]
    assert found == [store.path("aside") / name for name in names]
    assert [kept.read_text() for kept in found] == ["one", "two", "three"]
    path.write_text("")
    assert not store.preserve(path).exists()


# the authorities


def test_authorities_are_made_once(made, monkeypatch):
    before = content(made)
    monkeypatch.setattr(made, "exclusive", None)  # who asks for certificates waits for nobody
    assert sorted(before) == ["cacert.pem", "cakey.pem", "qemu-cacert.pem", "qemu-cakey.pem"]
    ca.ensure(made, POLICY)
    assert content(made) == before
    found = ca.current(made)
    assert set(found) == set(AUTHORITIES)
    assert found["libvirt"].cert != found["qemu"].cert
    assert found["libvirt"].trusted == before["cacert.pem"]


def test_each_missing_authority_is_made_and_no_other(made, caplog):
    """Also where a later certificate of the same key lies beside the other one."""
    key = ca.read(made, "libvirt").key
    later = certs.self_signed(key, certs.subject("CA"), 9, START)
    before = content(made)
    for name in ("qemu-cakey.pem", "qemu-cacert.pem"):
        made.path(name).unlink()
    made.path("next-cacert.pem").write_bytes(certs.cert_pem(later))
    with caplog.at_level("INFO"):
        ca.ensure(made, POLICY)
    assert [one.message for one in caplog.records] == [
        f"created the certificate authority {made.path('qemu-cacert.pem')}"
    ]
    made.path("next-cacert.pem").unlink()
    now = content(made)
    assert sorted(now) == sorted(before)
    assert {name for name in now if now[name] == before[name]} == {"cakey.pem", "cacert.pem"}


@pytest.mark.parametrize("gone", ["cakey.pem", "cacert.pem"])
def test_half_of_an_authority_is_never_replaced(made, gone):
    made.path(gone).unlink()
    before = content(made)
    ca.ensure(made, POLICY)
    assert content(made) == before
    with pytest.raises(PkiError, match=f"{gone} is missing: restore it"):
        ca.current(made)


@pytest.mark.parametrize("whose", ["its own", "another"])
def test_an_authority_that_was_being_made_is_finished_by_its_own_certificate(made, whose):
    made.path("cacert.pem").rename(made.path("next-cacert.pem"))
    if whose == "another":
        made.path("qemu-cacert.pem").write_bytes(made.path("next-cacert.pem").read_bytes())
        ca.prepare(made, POLICY, "libvirt")
        made.path("next-cakey.pem").unlink()
    ca.ensure(made, POLICY)
    assert made.path("cacert.pem").exists() == (whose == "its own")


def test_an_authority_is_of_one_organization_and_has_a_name_of_its_own(made):
    cert = ca.read(made, "libvirt").cert
    words = cert.subject.rfc4514_string()
    assert "O=Salted" in words
    assert f"Salt Virt libvirt CA 2026-01-01 {ca.unique_tag(ca.read(made, 'libvirt').key)}" in words
    assert len(ca.unique_tag(KEY)) == 6
    ca.prepare(made, CertificatePolicy(subject={"organization": "Ours"}), "qemu")
    assert "O=Ours" in ca.read(made, "qemu", "next-").cert.subject.rfc4514_string()


@pytest.mark.parametrize("name", ["cakey.pem", "cacert.pem"])
def test_a_file_of_an_authority_is_readable_by_nobody_else(made, caplog, name):
    assert "readable by others" not in caplog.text
    made.path(name).chmod(0o644)
    ca.read(made, "libvirt")
    assert made.path(name).stat().st_mode & 0o777 == 0o600
    assert f"{name} was readable by others" in caplog.text


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("cakey.pem", b"x", "cakey.pem is .*restore it"),
        ("cacert.pem", b"x", "cacert.pem is .*restore it"),
        ("cakey.pem", certs.key_pem(KEY), "does not belong to"),
    ],
)
def test_a_damaged_authority_is_said(made, name, data, why):
    made.path(name).write_bytes(data)
    with pytest.raises(PkiError, match=why):
        ca.current(made)


def test_a_certificate_of_a_host_is_no_authority(made):
    signer = ca.read(made, "libvirt")
    wanted = certs.Leaf(certs.subject("hv1"), ("hv1",), certs.SERVER, 9)
    leaf = certs.leaf(KEY.public_key(), wanted, (signer.key, signer.cert)[::-1], START)
    made.path("cakey.pem").write_bytes(certs.key_pem(KEY))
    made.path("cacert.pem").write_bytes(certs.cert_pem(leaf))
    with pytest.raises(PkiError, match="is not a CA certificate"):
        ca.current(made)


def test_an_authority_holds_from_its_first_instant_to_before_its_last(made):
    cert, instant = ca.read(made, "libvirt").cert, datetime.timedelta(seconds=1)
    for made.time in (certs.not_before(cert), certs.not_after(cert) - instant):
        ca.current(made)
    made.time = certs.not_before(cert) - instant
    with pytest.raises(PkiError, match="set the clock"):
        ca.current(made)
    made.time = certs.not_after(cert)
    with pytest.raises(PkiError, match=r"expired .* virt.rotate_ca"):
        ca.current(made)


# one authority for another


def phases(store):
    """The phase and what is there beside the present authorities."""
    found = sorted(name for name in content(store) if name.startswith(("next-", "old-")))
    return rotation.phase(store), found


def beside(kind):
    names = ("cacert.pem", "cakey.pem", "qemu-cacert.pem", "qemu-cakey.pem")
    return [f"{kind}-{name}" for name in names]


def test_a_rotation_step_by_step(made, monkeypatch):
    first = ca.read(made, "libvirt")
    assert phases(made) == (None, [])
    assert rotation.expected(made)["issuers"] == {
        ca.read(made, name).cert.subject.rfc4514_string() for name in AUTHORITIES
    }
    for step in (rotation.swap, rotation.finish):
        with pytest.raises(PkiError, match="the rotation is in phase None"):
            step(made)
    made.path("old-cakey.pem").write_text("of an earlier one")

    rotation.begin(made, POLICY)
    assert phases(made) == (rotation.TRUST, beside("next"))
    coming = ca.read(made, "libvirt", "next-")
    assert coming.also_trusted == ()
    assert ca.read(made, "libvirt").also_trusted == (coming.cert,)
    trusted = rotation.expected(made)["trusted"]
    assert {certs.fingerprint(first.cert), certs.fingerprint(coming.cert)} <= trusted
    assert len(trusted) == 4
    rotation.begin(made, POLICY)
    assert ca.read(made, "libvirt", "next-").cert == coming.cert
    with pytest.raises(PkiError, match="in phase trust, not reissue"):
        rotation.finish(made)
    rotation.resume(made)
    assert phases(made) == (rotation.TRUST, beside("next"))

    rotation.swap(made)
    assert phases(made) == (rotation.REISSUE, beside("old"))
    assert ca.read(made, "libvirt").cert == coming.cert
    assert ca.read(made, "libvirt").also_trusted == (first.cert,)
    with pytest.raises(PkiError, match="in phase reissue, not trust"):
        rotation.swap(made)
    rotation.begin(made, POLICY)
    assert phases(made) == (rotation.REISSUE, beside("old"))

    synced, real = [], atomic_file.sync

    def sync(folder, dir_fd=None):
        real(folder, dir_fd)
        synced.append(phases(made))

    monkeypatch.setattr(atomic_file, "sync", sync)
    rotation.finish(made)
    assert phases(made) == synced[-1] == (None, []), "also after a power cut"
    assert not made.path(rotation.RECORD).exists()
    assert ca.read(made, "libvirt").also_trusted == ()


def test_what_is_left_of_another_time_is_trusted_in_no_rotation(made):
    ca.prepare(made, POLICY, "libvirt")
    assert ca.read(made, "libvirt").also_trusted == ()


def test_a_swap_that_was_killed_is_finished(made, monkeypatch):
    first = ca.read(made, "libvirt")
    rotation.begin(made, POLICY)
    coming = ca.read(made, "libvirt", "next-")
    moved, real = [], files.rename

    def rename(source, target):
        if moved:
            raise ZeroDivisionError
        moved.append(source)
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(files, "rename", rename)
        with pytest.raises(ZeroDivisionError):
            rotation.swap(made)
    assert rotation.phase(made) == rotation.SWAPPING
    rotation.resume(made)
    assert phases(made) == (rotation.REISSUE, beside("old"))
    assert ca.read(made, "libvirt").cert == coming.cert
    assert ca.read(made, "libvirt", "old-").cert == first.cert


def test_a_damaged_authority_is_changed_for_another(made):
    made.path("cakey.pem").write_text("x")
    rotation.begin(made, POLICY)
    assert phases(made) == (rotation.TRUST, beside("next"))


def test_who_asks_for_certificates_waits_for_no_rotation(made, monkeypatch):
    rotation.begin(made, POLICY)
    monkeypatch.setattr(made, "exclusive", None)
    rotation.resume(made)


def test_a_swap_that_another_process_has_just_finished_is_not_done_again(made, monkeypatch):
    before, seen = content(made), iter([rotation.SWAPPING, None])
    with monkeypatch.context() as patch:
        patch.setattr(rotation, "phase", lambda _store: next(seen))
        rotation.resume(made)
    assert content(made) == before
    assert rotation.phase(made) is None


def test_the_pair_that_an_operator_brings_is_the_next(made):
    ca.prepare(made, POLICY, "libvirt")
    brought = ca.read(made, "libvirt", "next-").cert
    ca.prepare(made, POLICY, "qemu")
    made.path("next-qemu-cakey.pem").unlink()  # no pair
    half = made.path("next-qemu-cacert.pem").read_bytes()
    rotation.begin(made, POLICY)
    assert ca.read(made, "libvirt", "next-").cert == brought
    assert made.path("next-qemu-cacert.pem").read_bytes() != half


def test_a_pair_that_does_not_hold_yet_is_refused(made):
    made.time += 9 * DAY
    ca.prepare(made, POLICY, "libvirt")
    made.time -= 9 * DAY
    with pytest.raises(PkiError, match="set the clock"):
        rotation.begin(made, POLICY)
    assert rotation.phase(made) is None


# what is revoked


def lists(store, prefix=""):
    """Issuer → the serials of its list."""
    path = store.path(f"{prefix}crl.pem")
    parts = (path.read_bytes() if path.exists() else b"").split(b"-----BEGIN")[1:]
    found = [x509.load_pem_x509_crl(b"-----BEGIN" + part) for part in parts]
    return {one.issuer: {f"{entry.serial_number:x}" for entry in one} for one in found}


def test_all_that_a_host_was_given_is_revoked_and_no_more(made):
    given = {certs.serial(made.issued("hv1")) for _ in range(2)}
    pem = certs.cert_pem(made.issued("hv1"))
    use = made.host("hv1") / "servercert.pem"
    use.write_bytes(pem)
    given.add(certs.serial(certs.load_certs(pem)[0]))
    (made.host("hv1") / "issued" / "0.pem").write_text("damaged")
    made.issued("hv2")
    assert (crl.banned(made, "hv1"), crl.revoked_serials(made)) == (False, set())
    assert not crl.outdated(made)
    assert crl.revoke(made, "hv1") == 3
    assert (crl.banned(made, "hv1"), crl.banned(made, "hv2")) == (True, False)
    assert crl.revoked_serials(made) == given
    for name, prefix in AUTHORITIES.items():
        assert lists(made, prefix) == {ca.read(made, name).cert.subject: given}
    assert crl.record(made)["hosts"] == ["hv1"]


def test_a_ban_survives_a_power_cut(made, monkeypatch):
    made.issued("hv1")
    synced, real = [], atomic_file.sync

    def sync(folder, dir_fd=None):
        real(folder, dir_fd)
        synced.append((folder, crl.banned(made, "hv1")))

    monkeypatch.setattr(atomic_file, "sync", sync)
    crl.revoke(made, "hv1")
    assert synced[0] == (made.host("hv1"), True)


def test_a_host_is_banned_by_each_of_both_notes(made):
    made.issued("hv1")
    crl.revoke(made, "hv1")
    (made.host("hv1") / ".banned").rmdir()
    assert crl.banned(made, "hv1")
    (made.host("hv2") / ".banned").mkdir(parents=True)
    assert crl.banned(made, "hv2")
    for host in ("hv1", "hv2"):
        crl.readmit(made, host)
        assert not crl.banned(made, host)


def test_who_is_readmitted_has_new_certificates_alone(made):
    with pytest.raises(
        NotFound, match="hv1 never had a certificate; hosts with certificates: none"
    ):
        crl.revoke(made, "hv1")
    with pytest.raises(NotFound, match="hv1 is not revoked; revoked: none"):
        crl.readmit(made, "hv1")
    for host in ("hv1", "hv2"):
        made.issued(host)
        crl.revoke(made, host)
    with pytest.raises(
        NotFound, match="hv3 never had a certificate; hosts with certificates: hv1, hv2"
    ):
        crl.revoke(made, "hv3")
    with pytest.raises(NotFound, match="hv3 is not revoked; revoked: hv1, hv2"):
        crl.readmit(made, "hv3")
    revoked = crl.revoked_serials(made)
    crl.readmit(made, "hv1")
    assert crl.record(made)["hosts"] == ["hv2"]
    assert crl.revoked_serials(made) == revoked
    assert len(revoked) == 2


def test_what_was_revoked_before_keeps_its_time(made):
    cert = made.issued("hv1")
    crl.revoke(made, "hv1")
    made.time += DAY
    crl.revoke(made, "hv1")
    assert crl.record(made)["serials"][certs.serial(cert)]["revoked"] == START.isoformat()


def test_a_list_that_says_something_else_is_outdated(made):
    made.issued("hv1")
    crl.revoke(made, "hv1")
    assert not crl.outdated(made)
    path = made.path("qemu-crl.pem")
    good, others = path.read_bytes(), made.path("crl.pem").read_bytes()
    for bad in (None, b"x", good + b"-----BEGIN X509 CRL-----\nx\n", others):
        path.unlink() if bad is None else path.write_bytes(bad)
        assert crl.outdated(made)
        path.write_bytes(good)
    known = crl.record(made)
    about = next(iter(known["serials"].values()))
    made.write_record(crl.RECORD, {**known, "serials": {**known["serials"], "ff": about}})
    assert crl.outdated(made)
    with made.exclusive():
        crl.rebuild(made)
    assert not crl.outdated(made)


def test_one_list_of_several_that_lacks_something_is_outdated(made):
    made.issued("hv1")
    crl.revoke(made, "hv1")
    rotation.begin(made, POLICY)
    assert not crl.outdated(made)
    known, signers = crl.record(made)["serials"], crl._signers(made, "libvirt")
    parts = [crl._signed(one, {} if one.also_trusted else known, made.time) for one in signers]
    made.path("crl.pem").write_bytes(b"".join(parts))
    assert len(lists(made)) == 2
    assert crl.outdated(made)


def test_what_had_expired_before_any_trusted_ca_began_leaves_the_lists(made):
    first = made.issued("hv1", days=1)
    made.issued("hv2", days=9)
    for host in ("hv1", "hv2"):
        crl.revoke(made, host)
    last = certs.not_after(first) + certs.BACKDATE
    for begins, left in (
        (last - datetime.timedelta(seconds=1), {"hv1", "hv2"}), (last, {"hv2"}),
        (last + 8 * DAY, set()),
    ):  # fmt: skip
        before = crl.record(made)["serials"]
        made.time = begins
        rotation.begin(made, POLICY)
        rotation.swap(made)
        assert crl.record(made)["serials"] == before, "the old one is trusted still"
        rotation.finish(made)
        assert {about["host"] for about in crl.record(made)["serials"].values()} == left
    assert crl.record(made)["hosts"] == ["hv1", "hv2"]
    assert lists(made) == {}
    assert not made.path("crl.pem").exists()


def test_of_cas_that_are_not_there_nothing_is_known(store):
    assert ca.oldest_start(store) < START - 50 * 365 * DAY


def test_every_authority_that_hosts_may_trust_signs_a_list(made):
    made.issued("hv1")
    crl.revoke(made, "hv1")
    counts = [len(lists(made))]
    for step in (lambda: rotation.begin(made, POLICY), lambda: rotation.swap(made),
                 lambda: rotation.finish(made)):  # fmt: skip
        step()
        counts.append(len(lists(made)))
        assert not crl.outdated(made)
    assert counts == [1, 2, 2, 1]
    ca.prepare(made, POLICY, "libvirt")
    crl.rebuild(made)
    assert len(lists(made)) == 1
    rotation.begin(made, POLICY)
    made.path("next-cakey.pem").unlink()  # its certificate is trusted, and nothing signs with it
    crl.rebuild(made)
    assert len(lists(made)) == 1


def test_a_list_holds_from_before_now_until_its_authority_ends(made):
    made.issued("hv1")
    cert = ca.read(made, "libvirt").cert
    for made.time in (START, START + 9 * DAY, certs.not_after(cert) + DAY):
        signed = crl._signed(ca.read(made, "libvirt"), {}, made.time)
        one = x509.load_pem_x509_crl(signed)
        begin = (getattr(one, "last_update_utc", None) or
                 one.last_update.replace(tzinfo=datetime.timezone.utc))  # fmt: skip
        end = (getattr(one, "next_update_utc", None) or
               one.next_update.replace(tzinfo=datetime.timezone.utc))  # fmt: skip
        assert begin == max(made.time - certs.BACKDATE, certs.not_before(cert))
        assert end == max(made.time + DAY, certs.not_after(cert))
        number = one.extensions.get_extension_for_class(x509.CRLNumber)
        whose = one.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier)
        assert number.value.crl_number == int(made.time.timestamp())
        assert (number.critical, whose.critical) == (False, False)


def test_an_authority_that_may_not_sign_lists_is_said(made):
    def usage(crl_sign):
        name = certs.subject("Old CA")
        builder = (
            x509.CertificateBuilder().subject_name(name).issuer_name(name)
            .public_key(KEY.public_key()).serial_number(7)
            .not_valid_before(START - DAY).not_valid_after(START + DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        )  # fmt: skip
        if crl_sign is not None:
            use = certs._key_usage(key_cert_sign=True, crl_sign=crl_sign)
            builder = builder.add_extension(use, critical=True)
        cert = builder.sign(KEY, certs.digest(KEY))
        made.path("cakey.pem").write_bytes(certs.key_pem(KEY))
        made.path("cacert.pem").write_bytes(certs.cert_pem(cert))
        return ca.read(made, "libvirt")

    assert crl.may_sign(usage(None))
    assert crl.may_sign(usage(True))
    assert not crl.may_sign(usage(False))
    made.issued("hv1")
    with pytest.raises(PkiError, match=r"the libvirt CA may not sign CRLs .*virt.rotate_ca"):
        crl.revoke(made, "hv1")
    assert crl.banned(made, "hv1")
    assert lists(made) == {}
    assert len(lists(made, "qemu-")) == 1
    assert json.loads(made.path(crl.RECORD).read_text())["hosts"] == ["hv1"]
    assert os.listdir(made.host("hv1") / "issued")
    for step in (lambda: rotation.begin(made, POLICY), lambda: rotation.swap(made)):
        step()  # a list of the new CA alone would have OpenSSL refuse all of the old one's
        assert lists(made) == {} and not crl.outdated(made)
    rotation.finish(made)
    assert len(lists(made)) == 1 and not crl.outdated(made)
