"""The ext_pillar ``libvirt``, compiled by Salt itself."""

import pytest

pytest.importorskip("salt")
import salt.utils.minions

from saltvirt.pki.authority import crl
from saltvirt.pki.authority.store import CertificateStore
from saltvirt.pki.common import certs
from saltvirt.pki.host import converge
from tests.functional.pki_master import Master, tree

ON_DEMAND = {"libvirt": "_"}
NAMES = [
    f"libvirt.{prefix}{name}.pem"
    for prefix in ("", "qemu-")
    for name in ("cacert", "servercert", "serverkey", "clientcert", "clientkey")
]


@pytest.fixture
def master(tmp_path):
    return Master(tmp_path, hosts="hv*").accept("hv1", "hv2", "web1")


def test_a_hypervisor_gets_everything_that_salts_state_places(master):
    pillar = master.pillar("hv1", ON_DEMAND)
    assert set(NAMES) <= set(pillar)
    assert (master.store / "hv1" / "serverkey.pem").read_text() == pillar["libvirt.serverkey.pem"]


def test_asking_again_gives_the_same(master):
    assert master.pillar("hv1", ON_DEMAND) == master.pillar("hv1", ON_DEMAND)


@pytest.mark.parametrize("version", [2, None, "3"])
def test_where_salt_does_not_prove_who_asks_no_certificate_is_given(master, version):
    """Else an accepted minion that asks in the name of a hypervisor could have its key."""
    before = master.pillar("hv1", ON_DEMAND)
    assert "libvirt.error" not in before
    master.opts["minimum_auth_version"] = version
    for asked in (ON_DEMAND, {"libvirt": {"hosts": True}}, {"libvirt": {"dry": True}}):
        pillar = master.pillar("hv1", asked)
        assert list(pillar) == ["libvirt.error"]
        assert "issues no certificates; set it to 3" in pillar["libvirt.error"]
    del master.opts["minimum_auth_version"]
    assert "update Salt" in master.pillar("hv2", ON_DEMAND)["libvirt.error"]
    assert not (master.store / "hv2").exists()


def test_a_short_name_of_two_hypervisors_is_in_the_certificate_of_neither(tmp_path):
    """Also before the second one has asked for any."""
    ids = "hv1.a.org", "hv1.b.org"
    master = Master(tmp_path, hosts="hv*").accept(*ids)
    told = master.pillar(ids[0], {"libvirt": {"hosts": True}})["libvirt.hosts"]
    assert told == {one: [one] for one in ids}
    for one in ids:
        cert = certs.load_certs(master.pillar(one, ON_DEMAND)["libvirt.servercert.pem"].encode())[0]
        assert certs.names(cert) == [one]


def test_all_hypervisors_share_one_ca(master):
    one, two = master.pillar("hv1", ON_DEMAND), master.pillar("hv2", ON_DEMAND)
    assert one["libvirt.cacert.pem"] == two["libvirt.cacert.pem"]
    assert one["libvirt.serverkey.pem"] != two["libvirt.serverkey.pem"]


def test_qemu_has_a_ca_that_libvirtd_does_not_trust(master):
    pillar = master.pillar("hv1", ON_DEMAND)
    ca = certs.load_certs(pillar["libvirt.cacert.pem"].encode())[0]
    leaf = certs.load_certs(pillar["libvirt.qemu-clientcert.pem"].encode())[0]
    assert not certs.signed_by(leaf, ca)


def test_a_guest_gets_nothing_and_nothing_is_made_for_it(master):
    master.pillar("hv1", ON_DEMAND)
    before = tree(master.store)
    assert master.pillar("web1", ON_DEMAND) == {}
    assert tree(master.store) == before


def test_a_guest_that_is_first_makes_no_ca(master):
    assert master.pillar("web1", ON_DEMAND) == {}
    assert not master.store.exists()


@pytest.mark.parametrize(
    "forged",
    [
        {"minion_id": "hv1"},
        {"command": "hv1"},
        {"hosts": "*"},
        {"opts": {"virt": {"hosts": "*"}}},
        ["hv1"],
        "hv1",
        None,
    ],
)
def test_forged_arguments_give_a_guest_nothing(master, forged):
    pillar = master.pillar("web1", {"libvirt": forged}, override={"virt": {"hosts": "*"}})
    assert not [key for key in pillar if key.startswith("libvirt.")]
    assert not master.store.exists()


def test_a_minion_that_is_not_accepted_gets_nothing(master):
    assert master.pillar("hv9", ON_DEMAND) == {}
    assert not master.store.exists()


def test_without_configuration_nobody_gets_anything_and_the_log_says_what_to_set(tmp_path, caplog):
    master = Master(tmp_path).accept("hv1")
    assert master.pillar("hv1", ON_DEMAND) == {}
    assert "virt:hosts is not set" in caplog.text


@pytest.mark.parametrize("hosts", ["G@virtual:physical", "hv1 or P@os:Deb.*", "N@metal", "I@a:b"])
def test_what_minions_claim_counts_for_nothing_unless_the_master_says_so(tmp_path, hosts, caplog):
    master = Master(tmp_path, hosts=hosts).accept("hv1", "web1")
    master.opts["nodegroups"] = {"metal": "G@virtual:physical"}
    assert master.pillar("web1", ON_DEMAND, grains={"virtual": "physical", "os": "Debian"}) == {}
    assert not master.store.exists()
    assert "trust_grains" in caplog.text


@pytest.mark.parametrize("hosts", ["L@hv1,hv2", "N@metal", "E@hv\\d", "hv* and not hv2"])
def test_targets_by_name_work(tmp_path, hosts):
    master = Master(tmp_path, hosts=hosts).accept("hv1", "hv2", "web1")
    master.opts["nodegroups"] = {"metal": ["hv1", "or", "hv2"]}
    assert master.pillar("hv1", ON_DEMAND)
    assert master.pillar("web1", ON_DEMAND) == {}


def test_a_resource_that_a_guest_registered_is_no_hypervisor_that_others_are_told_of(tmp_path):
    register = getattr(salt.utils.minions, "update_resource_index", None)
    master = Master(tmp_path, hosts="L@hv1,hv9").accept("hv1", "web1")
    if register:  # Salt 3008
        register(master.opts, "web1", {"dummy": ["hv9"]})
    pillar = master.pillar("hv1", {"libvirt": {"hosts": True}})
    assert pillar["libvirt.hosts"].keys() == {"hv1"}


def test_a_revoked_hypervisor_is_none_that_others_let_in_and_is_told_of_no_other(master):
    for host in ("hv1", "hv2"):
        master.pillar(host, ON_DEMAND)
    crl.revoke(CertificateStore(master.pki), "hv2")
    assert master.pillar("hv1", {"libvirt": {"hosts": True}})["libvirt.hosts"].keys() == {"hv1"}
    told = master.pillar("hv2", {"libvirt": {"hosts": True}})
    assert "libvirt.hosts" not in told
    assert "were revoked" in told["libvirt.error"]


def test_a_minions_grains_put_no_name_into_its_certificate(master):
    pillar = master.pillar("hv1", ON_DEMAND, grains={"fqdn": "hv2", "host": "hv2", "id": "hv2"})
    cert = certs.load_certs(pillar["libvirt.servercert.pem"].encode())[0]
    assert certs.names(cert) == ["hv1"]


def test_sealed_keys_are_nowhere_in_the_pillar_and_open_only_for_the_asker(master):
    from saltvirt.errors import PkiError
    from saltvirt.fleet import seal

    mine, other = seal.Receiver("hv1"), seal.Receiver("hv1")
    pillar = master.pillar("hv1", {"libvirt": {"seal": mine.public}})
    assert "PRIVATE" not in repr(pillar)
    stored = (master.store / "hv1" / "serverkey.pem").read_text()
    assert mine.open(pillar["libvirt.sealed"])["libvirt.serverkey.pem"] == stored
    with pytest.raises(PkiError, match="another request"):
        other.open(pillar["libvirt.sealed"])


def test_without_a_master_nothing_is_made(master):
    """As salt-call --local compiles the pillar: by a minion of its own."""
    master.opts["__role"] = "minion"
    assert master.pillar("hv1", {**ON_DEMAND, "virtkey": {"name": "web1", "key": "key"}}) == {}
    assert not master.store.exists()


def test_files_of_the_master_are_the_owners_alone(master):
    master.pillar("hv1", ON_DEMAND)
    for path in [master.store, *master.store.rglob("*")]:
        assert not path.stat().st_mode & 0o077, path


def host(master, folder, name="hv1", **requested):
    return converge.TlsHost(name, master.ext(name), str(folder), requested, reload=False)


def test_the_state_places_everything_once(master, tmp_path):
    etc = tmp_path / "etc"
    first = converge.converge(host(master, etc))
    assert {"cacert", "serverkey", "servercert", "qemu-clientkey"} <= set(first.changes)
    assert converge.converge(host(master, etc)).changes == {}
    assert (etc / "libvirt/private/serverkey.pem").stat().st_mode & 0o777 == 0o600
    assert (etc / "libvirt/private").stat().st_mode & 0o777 == 0o700
    assert (etc / "qemu/ca-cert.pem").stat().st_mode & 0o777 == 0o644


def test_a_dry_run_makes_nothing_here_nor_on_the_master(master, tmp_path):
    etc = tmp_path / "etc"
    planned = converge.plan(host(master, etc))
    assert not etc.exists()
    assert not master.store.exists()
    done = converge.converge(host(master, etc)).changes
    assert set(planned.changes) == set(done) - {"cacert", "qemu-cacert"}
    assert converge.plan(host(master, etc)).changes == {}


def test_csr_mode_keeps_the_keys_on_the_host(tmp_path):
    master = Master(tmp_path, hosts="hv*", pki={"mode": "csr"}).accept("hv1")
    etc = tmp_path / "etc"
    converge.converge(host(master, etc))
    key = (etc / "libvirt/private/serverkey.pem").read_bytes()
    assert certs.load_key(key)
    assert all(key not in data for data in tree(master.folder / "pki").values())
    assert converge.converge(host(master, etc)).changes == {}
    assert (etc / "libvirt/private/serverkey.pem").read_bytes() == key


def test_a_hypervisor_learns_the_names_of_the_others_and_a_guest_does_not(master):
    from saltvirt.pki.authority import crl
    from saltvirt.pki.authority.store import CertificateStore
    from saltvirt.pki.host import request

    master.pillar("hv1", ON_DEMAND)
    master.pillar("hv2", ON_DEMAND)
    assert request.subjects(master.ext("hv1"), "hv1") == ["CN=hv1,O=Salted", "CN=hv2,O=Salted"]
    crl.revoke(CertificateStore(master.pki), "hv2")
    assert request.patterns(request.subjects(master.ext("hv1"), "hv1")) == [
        "CN=hv1,O=Salted",
        "O=Salted,CN=hv1",
    ]
    assert master.pillar("web1", {"libvirt": {"dry": True, "subjects": True}}) == {}
