"""The runner's report of the cloud's certificates, and their rotation to another authority.
Authorities and certificates are real; hosts answer with what they were issued."""

import datetime

import pytest

pytest.importorskip("salt")

from saltvirt.answers.certificates import CertificateInfo
from saltvirt.errors import NotFound, PkiError
from saltvirt.fleet.answer import SILENT, Answer
from saltvirt.pki.authority import ca, cloud, crl, policy, rotation
from saltvirt.pki.common import certs
from tests.functional.pki.test_pki_life import DAY, Office

USES = ("server", "client", "qemu-server", "qemu-client")


class Hosts:
    """Stands for the Fleet: hypervisors that take what the master gives, unless they are late."""

    def __init__(self, office, *names):
        self.office, self.names = office, list(names)
        self.daemon, self.kept, self.silent = "serves", {}, set()

    def direct_hosts(self):
        if not self.names:
            raise NotFound("virt:hosts matches nobody")
        return list(self.names)

    def facts(self, host):
        """What virt.tls_info says of a host that has these certificates."""
        given = self.kept.get(host) or self.office.give(host)
        pem = {name: text.encode() for name, text in given.items() if name.endswith("cert.pem")}
        bundles = (certs.load_certs(pem[f"libvirt.{name}cacert.pem"]) for name in ("", "qemu-"))
        return {
            "certs": {
                use: certs.describe(certs.load_certs(pem[f"libvirt.{use}cert.pem"])[0])
                for use in USES
            },
            "trusted": [certs.fingerprint(cert) for bundle in bundles for cert in bundle],
            "daemon": self.daemon,
            "problems": [],
        }

    def ask(self, hosts, function, _request, **_options):
        for host in hosts:
            if host in self.silent:
                yield Answer(host, error=SILENT, kind=SILENT)
                continue
            found = self.facts(host)
            shown = function == "virt.tls_info"
            yield Answer(host, found if shown else {"changes": {}, "info": found})

    def rotate(self, *skip):
        said = []
        return cloud.rotate(self, self.office.store, self.office.rules, skip, said.append)

    def shown(self, *args, **kwargs):
        return cloud.overview(self, self.office.store, self.office.rules, *args, **kwargs)


@pytest.fixture
def hosts(tmp_path):
    office = Office(tmp_path)
    office.now = datetime.datetime.now(datetime.timezone.utc)
    office.give("hv1")
    return Hosts(office, "hv1")


def test_a_host_that_has_what_it_was_given_is_no_problem(hosts):
    found = hosts.shown()
    assert cloud.problems(found) == {}
    assert set(found["hosts"]["hv1"]["certificates"]) == set(USES)
    assert found["hosts"]["hv1"]["daemon"] == "serves"


def test_one_that_never_had_a_certificate_is_not_found(hosts):
    with pytest.raises(NotFound, match="web1 is not a hypervisor of this master and never had a"):
        hosts.shown("web1")
    hosts.names.append("hv2")
    shown = hosts.shown("hv2", ask=False)["hosts"]["hv2"]
    assert shown == {
        "certificates": {},
        "problems": ["the host has no certificates: apply virt.keys"],
    }


def test_one_that_virt_hosts_lost_is_named_until_it_is_revoked(hosts):
    hosts.names = []
    (problem,) = hosts.shown()["hosts"]["hv1"]["problems"]
    assert (
        problem
        == "virt:hosts does not match this host; if it is gone, run salt-run virt.revoke hv1"
    )
    crl.revoke(hosts.office.store, "hv1")
    shown = hosts.shown()["hosts"]["hv1"]
    assert (shown["revoked"], shown["problems"]) == (True, [])
    rows = cloud.table(hosts.shown())
    assert [row[-1] for row in rows if row[0] == "hv1"] == ["revoked"] * 4


def test_a_certificate_that_is_not_on_its_host_is_named(hosts):
    facts = hosts.facts("hv1")
    records = cloud.HostRecords(hosts.office.store, hosts.office.rules).certificates("hv1")
    gone = facts["certs"].pop("server")
    facts["certs"]["other"] = gone
    facts["certs"]["client"] = {**facts["certs"]["client"], "sha256": "00"}
    installed = CertificateInfo.from_answer(facts, "hv1").certs
    assert cloud.compare(records, installed) == [
        "server: missing on the host: apply virt.keys",
        f"client: the host has a different one ({gone['issuer']}): apply virt.keys",
        f"other: not issued by this master ({gone['issuer']}): apply virt.keys",
    ]


def test_what_the_master_lost_is_not_shown_and_what_is_damaged_is_a_problem(hosts):
    store = hosts.office.store
    (path,) = store.host("hv1").glob("clientcert.pem")
    kept = path.read_bytes()
    path.unlink()
    records = cloud.HostRecords(store, hosts.office.rules).certificates("hv1")
    assert set(records) == set(USES) - {"client"}
    path.write_bytes(kept)
    store.path("cacert.pem").write_text("nothing")
    found = hosts.shown(ask=False)
    assert "readable" in found["CA"]["libvirt"]["problem"]
    assert found["hosts"]["hv1"]["certificates"] == {}
    assert set(cloud.problems(found)) == {"CA libvirt", "hv1"}


def test_what_will_be_replaced_is_told_with_the_reason(hosts):
    office = hosts.office
    office.rules = policy.CertificatePolicy(hosts="*", names={"hv1": ["vip"]})
    records = cloud.HostRecords(office.store, office.rules).certificates("hv1")
    assert records["server"]["problem"] == "its names have changed"
    problems = hosts.shown(ask=False)["hosts"]["hv1"]["problems"]
    assert f"server: {records['server']['problem']}: apply virt.keys" in problems
    office.rules = policy.CertificatePolicy(hosts="*", trust_grains=True)
    records = cloud.HostRecords(office.store, office.rules).certificates("hv1")
    assert all("problem" not in about for about in records.values())


def test_a_rotation_waits_for_every_host_in_each_step(hosts):
    office = hosts.office
    hosts.kept["hv1"] = office.give("hv1")
    assert hosts.rotate() == (rotation.TRUST, {"hv1": "does not trust both CAs"})
    assert "also_trusted" in cloud.authorities(office.store)["libvirt"]
    hosts.silent.add("hv1")
    assert hosts.rotate() == (rotation.TRUST, {"hv1": SILENT})
    hosts.silent.clear()
    hosts.kept["hv1"] = office.give("hv1")  # it trusts both, and has certificates of the old
    assert hosts.rotate() == (rotation.REISSUE, {"hv1": "still has certificates of the old CA"})
    del hosts.kept["hv1"]
    hosts.daemon = "the daemon still uses certificate 1f"
    assert hosts.rotate() == (rotation.REISSUE, {"hv1": "the daemon still uses certificate 1f"})
    hosts.daemon = "does not listen"
    assert hosts.rotate() == (None, {})
    assert rotation.phase(office.store) is None
    assert "also_trusted" not in cloud.authorities(office.store)["libvirt"]


def test_a_rotation_locks_out_no_host_that_virt_hosts_does_not_match(hosts):
    """As when the master has lost the grains that its target asks for."""
    store = hosts.office.store
    hosts.office.give("hv2")
    why = ("virt:hosts does not match this host: run salt-run virt.revoke hv2 if it is gone; "
        "skip=hv2 locks it out")  # fmt: skip
    assert cloud.rotation_plan(hosts, store, ()) == (None, {"hv1": None, "hv2": why})
    assert hosts.rotate() == (rotation.TRUST, {"hv2": why})
    rotation.swap(store)
    assert hosts.rotate() == (rotation.REISSUE, {"hv2": why})
    hosts.office.give("hv2")  # of the new authority
    assert hosts.rotate() == (None, {})


@pytest.mark.parametrize("leave", ["skip", "revoke", "expire"])
def test_a_rotation_waits_for_no_host_that_is_given_up(hosts, leave):
    office = hosts.office
    office.give("hv2")
    if leave == "revoke":
        crl.revoke(office.store, "hv2")
    if leave == "expire":
        office.now += 400 * DAY
    assert hosts.rotate(*["hv2"] if leave == "skip" else []) == (None, {})


def test_a_host_that_is_to_be_skipped_is_one(hosts):
    with pytest.raises(NotFound, match="skip: this master has no hypervisor hv7"):
        hosts.rotate("hv1", "hv7")
    assert rotation.phase(hosts.office.store) is None


def test_the_plan_of_a_rotation_changes_nothing(hosts):
    store = hosts.office.store
    before = cloud.authorities(store)
    assert cloud.rotation_plan(hosts, store, ()) == (None, {"hv1": None})
    hosts.silent.add("hv1")
    assert cloud.rotation_plan(hosts, store, ()) == (None, {"hv1": SILENT})
    assert cloud.rotation_plan(hosts, store, ("hv1",)) == (None, {})
    assert (cloud.authorities(store), rotation.phase(store)) == (before, None)
    rotation.begin(store, hosts.office.rules)
    assert cloud.rotation_plan(hosts, store, ()) == (rotation.TRUST, {"hv1": SILENT})
    assert rotation.phase(store) == rotation.TRUST


def test_of_an_authority_that_has_ended_nobody_is_waited_for(hosts):
    """Nothing works with it any more, so that no step makes it worse."""
    office = hosts.office
    end = certs.not_after(ca.read(office.store, "libvirt").cert)
    office.now = end - DAY
    rotation.begin(office.store, office.rules)
    office.now = end + DAY
    assert "expired" in cloud.authorities(office.store)["libvirt"]["problem"]
    hosts.silent.add("hv1")
    assert hosts.rotate() == (rotation.REISSUE, {"hv1": SILENT})


@pytest.mark.parametrize("wrong", ["the clock", "a key"])
def test_a_rotation_does_not_begin_while_it_is_unknown_whether_the_ca_holds(hosts, wrong):
    """A host that is not waited for would not trust the new CA."""
    office = hosts.office
    hosts.silent.add("hv1")
    if wrong == "the clock":
        office.now -= 3000 * DAY
    else:
        office.store.path("cakey.pem").write_text("half a key")
    words = {"the clock": "set the clock", "a key": "restore it from a backup"}[wrong]
    with pytest.raises(PkiError, match=words):
        hosts.rotate()
    assert rotation.phase(office.store) is None


def test_a_master_without_hypervisors_revokes_all_the_same(hosts):
    hosts.names = []
    said = []
    assert cloud.revoke(hosts, hosts.office.store, "hv1", said.append) == {}
    assert said == ["hv1: 4 certificates revoked; the host can request no new ones"]
    assert crl.banned(hosts.office.store, "hv1")


def test_one_that_was_revoked_before_is_not_waited_for(hosts):
    """The master gives it no list, whether it answers or not."""
    hosts.names += ["hv2", "hv3"]
    for name in hosts.names:
        hosts.office.give(name)
    crl.revoke(hosts.office.store, "hv3")
    hosts.silent.add("hv3")
    assert cloud.revoke(hosts, hosts.office.store, "hv2", str) == {}


def test_a_hypervisor_that_never_had_a_certificate_is_revoked_if_it_is_known(hosts):
    """Nobody has to be told; what waited for it does not any more."""
    store, said = hosts.office.store, []
    with pytest.raises(NotFound, match="hv9 never had a certificate"):
        cloud.revoke(hosts, store, "hv9", said.append)
    assert not crl.banned(store, "hv9")
    assert cloud.revoke(hosts, store, "hv9", said.append, is_hypervisor=True) == {}
    assert said == ["hv9: has no certificates, and can request none"]
    assert crl.record(store)["hosts"] == ["hv9"] and crl.banned(store, "hv9")
    assert cloud.overview(hosts, store, hosts.office.rules, "hv9", False)["hosts"]["hv9"] == {
        "certificates": {}, "problems": [], "revoked": True,
    }  # fmt: skip
    crl.readmit(store, "hv9")
    assert not crl.banned(store, "hv9")


def test_an_authority_that_ends_soon_is_a_problem(hosts):
    """On its last day all certificates of all hosts end with it."""
    store = hosts.office.store
    end = certs.not_after(ca.read(store, "libvirt").cert)
    for days, soon in ((61, False), (59, True), (1, True)):
        store.now = lambda days=days: end - DAY * days
        found = cloud.authorities(store)["libvirt"]
        assert ("problem" in found) is soon
    assert found["problem"] == (
        f"expires on {end.date().isoformat()}, with every certificate that it has issued: "
        "run salt-run virt.rotate_ca"
    )
    _, row = cloud.table({"CA": {"libvirt": found}, "hosts": {}})
    assert (row[5], row[-1]) == (1, found["problem"])
