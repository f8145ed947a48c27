"""The hypervisors that ``virt:hosts`` names among the accepted minions, as Salt reads it."""

import pytest

pytest.importorskip("salt")

import salt.config

from saltvirt.errors import PkiError
from saltvirt.pki.authority import authorize
from saltvirt.pki.authority.policy import CertificatePolicy


@pytest.fixture
def opts(tmp_path):
    found = salt.config.master_config(None)
    found.update(
        pki_dir=str(tmp_path / "pki"), cachedir=str(tmp_path / "cache"), key_cache="",
        sock_dir=str(tmp_path / "sock"), minion_data_cache=True,
    )  # fmt: skip
    for name in ("minions", "minions_pre", "minions_rejected", "minions_denied"):
        (tmp_path / "pki" / name).mkdir(parents=True)
    for name in ("hv1", "hv2", "web1"):
        (tmp_path / "pki" / "minions" / name).write_text("key")
    (tmp_path / "pki" / "minions_pre" / "hv3").write_text("key")
    return found


@pytest.mark.parametrize(
    ("expression", "hosts"),
    [
        ("hv*", {"hv1", "hv2"}),
        ("L@hv1,hv3,hv9", {"hv1"}),
        ("( hv* or web* ) and not hv2", {"hv1", "web1"}),
        ("G@virt_host:hypervisor:True", set()),
        ("nobody", set()),
    ],
)
def test_only_accepted_minions_of_which_the_master_knows_it_are_hypervisors(
    opts, expression, hosts
):
    assert authorize.resolve(opts, expression) == hosts


def test_who_is_allowed_and_the_log_says_why_another_is_not(opts, caplog):
    rules = CertificatePolicy(hosts="L@hv1,hv3")
    assert authorize.allowed(opts, rules, "hv1") is True
    assert not caplog.text
    assert authorize.allowed(opts, rules, "hv2") is False
    assert "does not match it; add it there if it is a hypervisor" in caplog.text
    assert authorize.allowed(opts, rules, "hv3") is False
    assert authorize.allowed(opts, CertificatePolicy(hosts=None), "hv1") is False
    assert "virt:hosts is not set" in caplog.text


@pytest.mark.parametrize("hosts", [["hv1"], {"hv1": None}, 7])
def test_a_target_is_a_text(opts, hosts):
    with pytest.raises(PkiError, match="virt:hosts must be a compound target, not"):
        authorize.expand(CertificatePolicy(hosts=hosts), opts)


@pytest.mark.parametrize(
    ("hosts", "claimed"),
    [
        ("hv1 or G@os:Debian", "grains"),
        ("not P@os:Deb.*", "grains"),
        ("( hv1 and I@a:b )", "pillar"),
        ("J@a:b or S@10.0.0.0/8", "addresses and pillar"),
        ("N@text", "grains"),
        ("hv1 or N@list", "pillar"),
        ("N@deep", "grains"),
        ("N@round", "addresses"),
    ],
)
def test_what_a_minion_says_of_itself_makes_it_no_hypervisor(opts, hosts, claimed):
    """Through groups in groups, also when one names itself."""
    opts["nodegroups"] = {
        "text": "hv1 or G@os:Debian", "list": ["hv1", "or", "I@a:b"], "deep": "hv9 or N@text",
        "round": "N@round or S@10.0.0.0/8",
    }  # fmt: skip
    with pytest.raises(PkiError, match=rf"matches {claimed}, which a minion reports"):
        authorize.expand(CertificatePolicy(hosts=hosts), opts)
    assert authorize.expand(CertificatePolicy(hosts=hosts, trust_grains=True), opts) == hosts


@pytest.mark.parametrize(
    "hosts", ["hv1", "L@hv1,G@x", "E@G.*", "N@names", "N@gone", "( not hv1 )", "L@claims"]
)
def test_names_are_no_claims(opts, hosts, caplog):
    """Nor is a host of the name of a group."""
    opts["nodegroups"] = {
        "names": ["hv1", "or", "N@more"], "more": "L@hv2", "claims": "G@os:Debian",
    }  # fmt: skip
    assert authorize.expand(CertificatePolicy(hosts=hosts), opts) == hosts
    assert not caplog.text
