"""The names of hypervisors: no name belongs to two hosts."""

import pytest

from saltvirt import settings
from saltvirt.errors import InvalidInput
from saltvirt.pki.authority import policy
from saltvirt.pki.authority.naming import Names
from saltvirt.pki.authority.policy import CertificatePolicy


def names(host, known=(), grains=None, revoked=(), **settings):
    return Names(CertificatePolicy(**settings), {host, *known}, revoked).for_host(host, grains)


@pytest.mark.parametrize(
    ("host", "known", "settings", "expected"),
    [
        ("hv1", (), {}, ["hv1"]),
        ("hv1.a.org", (), {}, ["hv1.a.org", "hv1"]),
        ("hv1", (), {"domain": "a.org"}, ["hv1", "hv1.a.org"]),
        ("hv1.b.org", (), {"domain": "a.org"}, ["hv1.b.org", "hv1"]),
        ("10.0.0.1", (), {"domain": "a.org"}, ["10.0.0.1"]),
        ("hv1.a.org", ["hv1"], {}, ["hv1.a.org"]),
        ("hv1.a.org", ["HV1"], {}, ["hv1.a.org"]),
        ("hv1.a.org", ["hv1.b.org"], {}, ["hv1.a.org"]),
        ("hv1.a.org", ["x"], {"names": {"x": ["hv1"]}}, ["hv1.a.org"]),
        ("hv1.a.org", (), {"names": {"x": ["hv1"]}}, ["hv1.a.org"]),
        ("hv1", ["x"], {"names": {"hv1": ["s1", "x", "X"]}}, ["hv1", "s1"]),
        ("hv1", (), {"names": {"hv1": ["s1", "s1", "127.0.0.1", "localhost"]}}, ["hv1", "s1"]),
        ("hv1", ["HV1"], {}, []),
        ("hv1", (), {"names": {"HV1": ["s1"]}}, []),
        ("localhost", (), {}, []),
        ("-", (), {}, []),
    ],
)
def test_the_names_of_a_host(host, known, settings, expected):
    assert names(host, known, **settings) == expected


def test_what_follows_from_the_id_of_a_revoked_host_is_free_and_its_id_is_not():
    assert names("hv1.a.org", ["hv1.b.org"], revoked=["hv1.b.org"]) == ["hv1.a.org", "hv1"]
    assert names("hv1.a.org", ["hv1"], revoked=["hv1"]) == ["hv1.a.org"]


GRAINS = {"fqdn": "hv1.c.org", "host": "other", "fqdn_ip4": ["10.0.0.1"], "fqdn_ip6": ("fe80::1",)}


def test_what_a_minion_says_of_itself_counts_where_the_master_says_so():
    assert names("hv1", grains=GRAINS) == ["hv1"]
    told = names("hv1", grains=GRAINS, trust_grains=True)
    assert told == ["hv1", "hv1.c.org", "other", "10.0.0.1", "fe80::1"]
    assert names("hv1", ["other"], grains=GRAINS, trust_grains=True) == [
        "hv1", "hv1.c.org", "10.0.0.1", "fe80::1"
    ]  # fmt: skip
    given = {"x": ["FE80:0::1", "10.0.0.1"]}
    assert names("hv1", grains=GRAINS, trust_grains=True, names=given) == [
        "hv1", "hv1.c.org", "other"
    ]  # fmt: skip
    assert names("hv1", ["y.c.org"], grains={"host": "y"}, trust_grains=True) == ["hv1"]
    assert names("hv1", trust_grains=True) == ["hv1"]


def test_of_what_a_minion_says_there_is_an_end():
    many = {"fqdn_ip4": [f"10.0.0.{n}" for n in range(1, 100)], "fqdn_ip6": "fe80::1", "host": 7}
    found = policy.claimed_names(many)
    assert found[:2] == [None, 7]
    assert found[2:] == many["fqdn_ip4"][: policy._MAX_CLAIMED]
    assert policy.valid_names(found) == found[2:]


def test_whose_a_name_is():
    known = Names(CertificatePolicy(names={"hv2": ["s1"], "hv3": ["S1", "hv1"]}), ["hv1", "hv2"])
    assert known.owners("hv1", "s1") == ["hv2", "hv3"]
    assert known.owners("hv2", "s1") == ["hv3"]
    assert known.owners("hv2", "HV1") == ["hv1", "hv3"]
    assert known.owners("hv1", "none") == []


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        ("a", True), ("a.b", True), ("a_b.c-d", True), ("10.0.0.1", True), ("::1", True),
        ("", False), (7, False), (None, False), ("a b", False), ("a.", False), ("*.a", False),
        ("a" * 63, True), ("a" * 64, False), (".".join(["a" * 61] * 4 + ["b" * 5]), True),
        (".".join(["a" * 61] * 4 + ["b" * 6]), False),
    ],
)  # fmt: skip
def test_what_a_certificate_can_be_for(name, valid):
    assert policy.valid_name(name) is valid


@pytest.mark.parametrize("name", sorted(policy._LOOPBACK_NAMES))
def test_what_every_machine_calls_itself_is_nobodys(name):
    assert policy.valid_names([name, "a", "a"]) == ["a"]


def test_one_name_in_several_spellings():
    assert policy.same_name("HV1.A.org") == "hv1.a.org"
    assert policy.same_name("FE80:0:0::1") == "fe80::1"


@pytest.mark.parametrize(
    ("name", "value", "good"),
    [
        ("country", "DE", True), ("country", "D", False), ("country", "DEU", False),
        ("country", "D1", False), ("state", "DEU", True), ("organization", "x" * 64, True),
        ("organization", "x" * 65, False), ("locality", "", False), ("locality", "a\nb", False),
        ("locality", 7, True),
    ],
)  # fmt: skip
def test_the_parts_of_a_distinguished_name(name, value, good):
    if good:
        assert policy.word(name, value) == str(value)
    else:
        with pytest.raises(InvalidInput, match=f"virt:pki:{name} is"):
            policy.word(name, value)


def configured(**pki):
    return policy.policy(settings.of_master({"virt": {"hosts": "L@hv1", "pki": pki}}))


def test_the_policy_is_the_masters_configuration():
    assert configured() == CertificatePolicy(hosts="L@hv1")
    given = {
        "mode": "csr", "key": "rsa", "ca_name": "Ours", "ca_days": 10, "days": 5, "domain": "a.org",
        "names": {"hv1": "s1", "hv2": ["s2", None, "10.0.0.2"]}, "trust_grains": True,
        "country": "DE",
    }  # fmt: skip
    assert configured(**given) == CertificatePolicy(
        hosts="L@hv1", mode="csr", key="rsa", ca_name="Ours", ca_days=10, days=5, domain="a.org",
        names={"hv1": ["s1"], "hv2": ["s2", "10.0.0.2"]}, trust_grains=True,
        subject={"country": "DE"},
    )  # fmt: skip


@pytest.mark.parametrize(
    "pki",
    [
        {"mode": "x"}, {"key": "dsa"}, {"days": 0}, {"days": 36501}, {"ca_days": 36501},
        {"domain": "a b"}, {"names": {"hv1": 7}}, {"names": {"hv1": ["a b"]}}, {"country": "X"},
        {"trust_grains": "yes"}, {"ca_name": "x" * 65},
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused(pki):
    with pytest.raises(InvalidInput, match="virt:pki:"):
        configured(**pki)
