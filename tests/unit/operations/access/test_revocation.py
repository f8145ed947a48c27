"""A hypervisor that may still run guests is not revoked by mistake."""

import os

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.fleet import target
from saltvirt.fleet.answer import down
from saltvirt.operations.access import revocation
from saltvirt.operations.cluster import shared_storage_check
from saltvirt.operations.journal import location_cache
from saltvirt.pki.authority import crl
from saltvirt.pki.authority.store import CertificateStore
from tests.fakes.fleet import Fleet


class Cloud(Fleet):
    """running: host to the guests whose processes live there; has: host to its guests and their
    states. One that is not in it, or None, is down."""

    def __init__(self, tmp_path, **running):
        super().__init__(tmp_path, hv1={}, hv2={})
        self.running, self.has = running, {}

    def said(self, host, fun, kwarg):
        known = {"virt.vm_state": self.has, "virt.running_names": self.running}[fun]
        return down(host) if known.get(host) is None else known[host]


@pytest.fixture
def cloud(tmp_path, monkeypatch):
    """virt:hosts does not match hv9 any more, whose minion is accepted."""
    monkeypatch.setattr(target, "hosts", lambda _opts: ["hv1", "hv2"])
    monkeypatch.setattr(target, "accepted", lambda _opts: ["hv1", "hv2", "hv9", "web1"])
    return Cloud(tmp_path, hv9=None, hv2=[])


@pytest.mark.parametrize("host", ["hv9", "hv2"])
def test_a_host_that_runs_guests_is_refused_whether_virt_hosts_matches_it_or_not(cloud, host):
    cloud.running[host] = [f"web{number}" for number in range(1, 8)]
    with pytest.raises(errors.OperationFailed) as caught:
        revocation.refuse_running(cloud, host)
    text = caught.value.text
    assert text.startswith(f"{host} still runs web1, web2, web3, web4, web5 and 2 more: ")
    assert f"salt-run virt.evacuate {host}" in text and "force=True" in text


def test_a_host_that_runs_none_may_go_whatever_it_had_before(cloud):
    location_cache.store_host(cloud.opts, "hv9", {"web1": "running"})
    cloud.running["hv9"] = []
    revocation.refuse_running(cloud, "hv9")


def heard(cloud, at, host, *guests, state="running"):
    location_cache.store_host(cloud.opts, host, dict.fromkeys(guests, state))
    os.utime(location_cache._host_path(cloud.opts, host), (at, at))


def test_a_silent_host_is_refused_as_long_as_no_other_has_its_guests(cloud):
    heard(cloud, 100, "hv9", "web1", "web2")
    heard(cloud, 101, "hv1", "web1")
    with pytest.raises(errors.OperationFailed, match=r"^hv9 does not answer, and had web2 when "):
        revocation.refuse_running(cloud, "hv9")
    heard(cloud, 102, "hv2", "web2")
    revocation.refuse_running(cloud, "hv9")


def test_a_guest_that_came_from_a_host_that_is_off_since_is_not_taken_for_being_there(cloud):
    """It was evacuated from hv1, which was powered off before it was heard once more."""
    heard(cloud, 100, "hv1", "web1")
    heard(cloud, 200, "hv9", "web1")
    with pytest.raises(errors.OperationFailed, match=r"^hv9 does not answer, and had web1 when "):
        revocation.refuse_running(cloud, "hv9")


def test_a_definition_that_is_off_elsewhere_is_no_sign_that_the_guest_has_moved(cloud):
    """A migration that was killed has left it, and the guest runs where nobody answers."""
    heard(cloud, 100, "hv9", "web1")
    heard(cloud, 200, "hv1", "web1", state="shutdown")
    with pytest.raises(errors.OperationFailed, match=r"^hv9 does not answer, and had web1 when "):
        revocation.refuse_running(cloud, "hv9")
    heard(cloud, 100, "hv9", "web1", state="shutdown")
    revocation.refuse_running(cloud, "hv9")


def test_a_guest_that_was_moved_away_is_looked_for_on_the_other_hosts(cloud):
    """The host was evacuated and powered off, and nobody has asked for its guests since."""
    heard(cloud, 100, "hv9", "web1")
    heard(cloud, 100, "hv1")
    cloud.has = {"hv1": {"web1": "running"}, "hv2": {}}
    revocation.refuse_running(cloud, "hv9")
    heard(cloud, 100, "hv9", "web1")
    cloud.has = {"hv1": {"web1": "shutdown"}}
    with pytest.raises(errors.OperationFailed, match=r"had web1 when it last answered"):
        revocation.refuse_running(cloud, "hv9")


def test_on_a_master_without_hypervisors_what_was_heard_decides(cloud, monkeypatch):
    monkeypatch.setattr(Cloud, "hosts", lambda _self: ["hv9"])
    revocation.refuse_running(cloud, "hv9")

    def none(_self):
        raise errors.NotFound("no hypervisor")

    monkeypatch.setattr(Cloud, "hosts", none)
    revocation.refuse_running(cloud, "hv9")


def test_a_host_whose_key_was_taken_back_is_not_asked(cloud):
    revocation.refuse_running(cloud, "hv77")
    location_cache.store_host(cloud.opts, "hv77", {"db1": "running"})
    with pytest.raises(errors.OperationFailed, match=r"had db1 when it last answered"):
        revocation.refuse_running(cloud, "hv77")


def test_a_host_is_known_by_the_guests_that_were_made_on_it(cloud, monkeypatch):
    monkeypatch.setattr(shared_storage_check, "guest_hosts", lambda _opts: {"hv9"})
    assert revocation.is_known(cloud, "hv9") and not revocation.is_known(cloud, "hv77")


def test_a_check_counts_the_certificates_or_gives_every_reason(cloud, tmp_path):
    store = CertificateStore(tmp_path)
    cloud.running["hv9"] = ["web1"]
    runs, unknown = revocation.check(cloud, store, "hv9", undo=False, force=False).reasons
    assert runs.startswith("hv9 still runs web1: ")
    assert unknown == "hv9 never had a certificate; hosts with certificates: none"
    [unknown] = revocation.check(cloud, store, "hv9", undo=False, force=True).reasons
    store.host("hv9").mkdir(parents=True)
    checked = revocation.check(cloud, store, "hv9", undo=False, force=True)
    assert checked.comment == "0 certificates of hv9 would be revoked on every hypervisor"
    [reason] = revocation.check(cloud, store, "hv9", undo=True, force=False).reasons
    assert reason == "hv9 is not revoked; revoked: none"
    assert not crl.banned(store, "hv9")
    crl.revoke(store, "hv9")
    checked = revocation.check(cloud, store, "hv9", undo=True, force=False)
    assert (checked.comment, crl.banned(store, "hv9")) == ("hv9 would be admitted again", True)
