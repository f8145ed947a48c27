"""The hosts that get certificates, and the mode, from the master's configuration."""

import pytest

pytest.importorskip("salt")

from saltvirt import settings
from saltvirt.errors import PkiError
from saltvirt.fleet import seal
from saltvirt.pki.authority import authorize, ca, crl, request_rules, responder, rotation
from saltvirt.pki.authority.policy import CertificatePolicy
from saltvirt.pki.authority.store import USES, CertificateStore
from saltvirt.pki.common import certs
from saltvirt.pki.host.request import signing_request
from tests.unit.pki.authority.test_authorize import opts  # noqa: F401

CERTS = [f"libvirt.{use.cert}" for use in USES]
KEYS = [f"libvirt.{use.key}" for use in USES]


@pytest.fixture
def master(opts):  # noqa: F811
    """Asks as a minion: (host, what it asks for, settings below virt) → its pillar."""
    opts["minimum_auth_version"] = 3

    def ask(host="hv1", asked=None, grains=None, **virt):
        given = {"hosts": "hv*", **virt}

        get = settings.of_master({"virt": given})
        return responder.answer(opts, get, host, ("_", asked or {}, {}), grains or {})

    ask.opts, ask.store = opts, CertificateStore(opts["pki_dir"])
    return ask


def names_in(pem):
    return certs.names(certs.load_certs(pem.encode())[0])


def test_a_hypervisor_gets_its_certificates_and_keys(master):
    found = master()
    assert found["libvirt.mode"] == "pillar"
    assert set(CERTS) | set(KEYS) <= set(found)
    assert "libvirt.sealed" not in found
    assert names_in(found["libvirt.servercert.pem"]) == ["hv1"]
    assert {"libvirt.cacert.pem", "libvirt.qemu-cacert.pem"} <= set(found)
    assert not {"libvirt.subjects", "libvirt.pending", "libvirt.error"} & set(found)
    assert master() == found, "the same again"


def test_who_is_no_hypervisor_gets_nothing_and_makes_nothing(master, caplog):
    assert master("web1") == {}
    assert master("hv3") == {}, "its key is not accepted"
    assert master(hosts=None) == {}
    assert not master.store.base.exists()
    assert master(pki={"mode": "x"}) == {}
    assert "no libvirt certificates are issued: virt:pki:mode" in caplog.text


def test_a_salt_that_does_not_prove_who_asks_gives_nobody_any(master, caplog):
    master.opts["minimum_auth_version"] = 2
    found = master()
    assert list(found) == ["libvirt.error"]
    assert "a minion may ask in the name of another" in found["libvirt.error"]
    assert "no libvirt certificates for hv1: minimum_auth_version" in caplog.text


def test_what_may_not_be_asked_for_is_one_sentence(master):
    assert master(asked={"days": 1}) == {
        "libvirt.error": "unknown argument of the libvirt pillar: days"
    }


def test_a_question_makes_nothing(master):
    pending = {"libvirt.mode": "pillar", "libvirt.pending": [use.name for use in USES]}
    assert master(asked={"dry": True}) == pending
    assert not master.store.base.exists()
    assert master(asked={"dry": True, "subjects": True}) == {**pending, "libvirt.subjects": []}
    made = master()
    found = master(asked={"dry": True})
    assert found["libvirt.pending"] == []
    assert not set(KEYS) & set(found)
    assert {name: found[name] for name in CERTS} == {name: made[name] for name in CERTS}
    (master.store.host("hv1") / "clientcert.pem").unlink()
    found = master(asked={"dry": True})
    assert (found["libvirt.pending"], "libvirt.clientcert.pem" in found) == (["client"], False)
    assert not (master.store.host("hv1") / "clientcert.pem").exists()


def test_keys_are_sealed_to_whom_gave_one_to_seal_to(master):
    receiver = seal.Receiver("hv1")
    found = master(asked={"seal": receiver.public})
    assert not set(KEYS) & set(found)
    assert sorted(receiver.open(found["libvirt.sealed"])) == sorted(KEYS)


def test_a_key_that_never_leaves_the_host_is_certified(master):
    csr = {"pki": {"mode": "csr"}}
    names = [use.name for use in USES]
    found = master(**csr)
    assert (found["libvirt.mode"], found["libvirt.pending"]) == ("csr", names)
    assert not {*KEYS, *CERTS} & set(found)
    own = certs.new_key()
    found = master(asked={"csr": {"client": signing_request(own)}}, **csr)
    assert found["libvirt.pending"] == [name for name in names if name != "client"]
    assert {*KEYS, *CERTS} & set(found) == {"libvirt.clientcert.pem"}
    given = certs.load_certs(found["libvirt.clientcert.pem"].encode())[0]
    assert certs.public_bytes(given) == certs.public_bytes(own)
    found = master(asked={"dry": True}, **csr)
    assert found["libvirt.pending"] == [name for name in names if name != "client"]
    assert {*KEYS, *CERTS} & set(found) == {"libvirt.clientcert.pem"}


def test_the_names_of_all_are_told_to_hypervisors(master):
    assert master(asked={"hosts": True}, pki={"names": {"hv2": ["s2"]}}) == {
        "libvirt.hosts": {"hv1": ["hv1"], "hv2": ["hv2", "s2"]}
    }
    assert not master.store.base.exists(), "nothing is made for it"
    master("hv2")
    crl.revoke(master.store, "hv2")
    assert master(asked={"hosts": True}) == {"libvirt.hosts": {"hv1": ["hv1"]}}
    found = master("hv2", {"hosts": True})
    assert "the certificates of hv2 were revoked" in found["libvirt.error"]
    assert master("web1", {"hosts": True}) == {}


def test_a_revoked_host_gets_nothing_of_any_kind(master):
    master()
    crl.revoke(master.store, "hv1")
    for asked in ({}, {"dry": True}, {"subjects": True}, {"hosts": True}):
        found = master(asked=asked)
        assert list(found) == ["libvirt.error"], asked
    assert "libvirt.cacrl.pem" in master("hv2"), "the others hear of it"
    assert "libvirt.qemu-cacrl.pem" in master("hv2")


def test_one_that_was_revoked_while_it_waited_gets_nothing(master, monkeypatch):
    master()
    told = iter([False, True])
    monkeypatch.setattr(crl, "banned", lambda store, host: next(told))
    assert "were revoked" in master()["libvirt.error"]


def test_the_subjects_are_those_of_all_that_are_not_revoked(master):
    master()
    master("hv2")
    subjects = master(asked={"subjects": True})["libvirt.subjects"]
    assert [one.split(",")[0] for one in subjects] == ["CN=hv1", "CN=hv2"]
    assert master(asked={"subjects": True, "dry": True})["libvirt.subjects"] == subjects
    crl.revoke(master.store, "hv2")
    assert master(asked={"subjects": True})["libvirt.subjects"] == subjects[:1]
    (master.store.host("hv1") / "clientcert.pem").unlink()
    assert master(asked={"subjects": True, "dry": True})["libvirt.subjects"] == []


def test_an_id_that_another_host_has_in_other_capitals_gets_nothing(master):
    (master.store.host("HV1")).mkdir(parents=True)
    assert "no certificate can be issued for this name" in master()["libvirt.error"]
    assert master("hv2", {"hosts": True}) == {"libvirt.hosts": {"hv2": ["hv2"]}}
    assert not (master.store.host("hv1") / "servercert.pem").exists()


def test_what_a_minion_says_of_itself_counts_where_the_master_says_so(master):
    told = {"fqdn": "hv1.c.org"}
    assert names_in(master(grains=told)["libvirt.servercert.pem"]) == ["hv1"]
    found = master(grains=told, pki={"trust_grains": True})
    assert names_in(found["libvirt.servercert.pem"]) == ["hv1", "hv1.c.org"]


def test_a_name_of_one_that_has_no_certificate_yet_is_not_anothers(master):
    found = master("hv1", pki={"names": {"hv1": ["s1", "hv2"]}})
    assert names_in(found["libvirt.servercert.pem"]) == ["hv1", "s1"]


def test_a_rotation_that_was_killed_goes_on_before_anything_is_made(master, monkeypatch):
    done = []
    monkeypatch.setattr(rotation, "resume", lambda store: done.append(store.base.exists()))
    master()
    assert done == [False]


def test_the_lists_are_made_again_where_they_are_not_what_is_revoked(master, monkeypatch):
    master()
    made = []
    monkeypatch.setattr(crl, "rebuild", made.append)
    responder.prepare(master.store, CertificatePolicy())
    assert made == []
    monkeypatch.setattr(crl, "outdated", lambda store: True)
    responder.prepare(master.store, CertificatePolicy())
    assert made == [master.store]
    assert ca.current(master.store)


def test_without_a_hypervisor_that_is_named_the_authority_is_not_made(master, monkeypatch):
    def refused(*_):
        raise PkiError("no")

    monkeypatch.setattr(authorize, "resolve", lambda *_: {"hv1"})
    monkeypatch.setattr(request_rules, "parse", refused)
    assert master() == {"libvirt.error": "no"}
    assert not master.store.base.exists()
