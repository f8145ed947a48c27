"""Keys without a guest: only keys that certainly have no owner are deleted."""

import os

import pytest

pytest.importorskip("salt.key")

from saltvirt import errors
from saltvirt.fleet import authorization, target
from saltvirt.fleet.answer import down
from saltvirt.fleet.pillars import Pillars
from saltvirt.operations import repair
from saltvirt.operations.journal import lock
from tests.fakes.fleet import Fleet, Silent
from tests.functional.fleet.test_keys import events, opts, pairs, store  # noqa: F401


class Cloud(Fleet):
    """guests: host to the names that it has; None: it does not answer."""

    def __init__(self, opts, guests):  # noqa: F811
        super().__init__()
        self.opts, self.guests = opts, guests

    def hosts(self, only=None):
        return sorted(self.guests)

    def ask(self, hosts, fun, kwarg=None, **options):
        if fun == "test.ping":
            assert options == {"signed": False}, "a guest's minion signs nothing"
        return super().ask(hosts, fun, kwarg)

    def said(self, host, fun, kwarg):
        if fun == "test.ping":
            return True if host in self.pings else down(host)
        if self.guests[host] is None:
            return down(host)
        states = dict.fromkeys(self.guests[host], "running")
        whole = {"guests": states, "unfinished": [], "migrations": {}}
        return whole if fun == "virt.leftovers" else states


@pytest.fixture
def cloud(opts, store, pairs, monkeypatch):  # noqa: F811
    opts["virt"] = {"hosts": "hv*"}
    found = Cloud(opts, {"hv1": [], "hv2": []})
    found.store, found.deleted, found.connected, found.pings = store, [], set(), set()
    monkeypatch.setattr(target, "accepted", lambda _opts: ["hv1", "hv2", "hv3", "web1"])
    monkeypatch.setattr(target, "connected", lambda _opts, ids: found.connected & set(ids))
    monkeypatch.setattr(type(store), "delete", lambda _self, name: found.deleted.append(name))
    store.accept("web1", pairs[0], host="hv1")
    return found


def finding(cloud):
    found, unreachable = repair.find_leftovers(cloud)
    return ([one for one in found if one.code == repair.KEY] or [None])[0], unreachable


def test_a_key_whose_host_has_no_such_guest_goes(cloud):
    one, unreachable = finding(cloud)
    assert (one.guest, unreachable) == ("web1", {})
    assert repair.repair_all([one], Silent())[0] == {"web1": "key deleted"}
    assert cloud.deleted == ["web1"]


def test_a_hypervisor_that_virt_hosts_lost_is_not_heard(cloud, pairs):  # noqa: F811
    del cloud.guests["hv1"]
    one, unreachable = finding(cloud)
    assert one is None
    [(host, reason)] = unreachable.items()
    assert host == "hv1"
    assert reason.startswith("virt:hosts does not match it, but guests were created on it")


def test_one_that_once_made_a_guest_counts_too(cloud):
    authorization.Authorizations(cloud.opts).grant("hv3", "old")
    authorization.Authorizations(cloud.opts).revoke("hv3", "old")
    one, unreachable = finding(cloud)
    assert (one, list(unreachable)) == (None, ["hv3"])


@pytest.mark.parametrize("made", ["", "hv9"])
def test_of_a_host_that_is_gone_or_not_recorded_a_person_decides(cloud, pairs, made):  # noqa: F811
    cloud.store.accept("web2", pairs[1], host=made)
    found, _ = repair.find_leftovers(cloud)
    [one] = [one for one in found if one.guest == "web2"]
    assert (one.repair, one.command) == (None, "salt web2 test.ping")
    assert "salt-key" not in " ".join([one.problem, one.remedy, one.evidence])


def an_init_under_way(cloud):
    return lock.guest(cloud.opts, "web1", "virt.init")


def made_meanwhile(cloud):
    cloud.guests["hv2"] = ["web1"]


def silent_meanwhile(cloud):
    cloud.guests["hv2"] = None


def lost_meanwhile(cloud):
    del cloud.guests["hv1"]


def reported_meanwhile(cloud):
    cloud.connected = {"web1"}


def answers_from_behind_nat(cloud):
    cloud.pings = {"web1"}


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (an_init_under_way, "web1: virt.init, process"),
        (made_meanwhile, "it is on hv2 now"),
        (silent_meanwhile, "not every host answered: hv2: down"),
        (lost_meanwhile, "not every host answered: hv1: virt:hosts does not match it"),
        (reported_meanwhile, "its key stays: a minion uses it"),
        (answers_from_behind_nat, "its key stays: a minion uses it"),
    ],
)
def test_what_happens_between_looking_and_mending_is_seen(cloud, event, why):
    one, _ = finding(cloud)
    held = event(cloud)
    if held:
        held.__enter__()
    _, left = repair.repair_all([one], Silent())
    if held:
        held.__exit__(None, None, None)
    assert why in left["web1"]
    assert "salt-key" not in left["web1"]
    assert cloud.deleted == []


def test_an_error_of_the_lock_is_one_line(cloud):
    with (
        lock.guest(cloud.opts, "web1", "virt.purge"),
        pytest.raises(errors.OperationFailed, match=r"web1: virt\.purge, process .* is under way"),
    ):
        repair._delete_key(cloud, "web1")


@pytest.mark.parametrize("name", ["../../x", "", ".x", "a/b", "a\0b"])
def test_what_a_host_calls_a_guest_is_no_path_of_the_master(cloud, name):
    calls = (
        lambda: lock.guest(cloud.opts, name, "x").__enter__(),
        lambda: lock.guest_owner(cloud.opts, name),
    )
    for call in calls:
        with pytest.raises(errors.InvalidInput, match="cannot be a guest's name"):
            call()


class Killed(BaseException):
    """What ends the process at once."""


@pytest.mark.parametrize("after", range(8))
def test_a_crash_while_a_key_comes_in_leaves_none_that_nobody_finds(
    cloud, store, pairs, monkeypatch, after  # noqa: F811
):  # fmt: skip
    """kill -9 of the master's worker at each write, of pillar, record and key."""
    writes = []

    def counted(call):
        def wrapped(*given, **more):
            writes.append(given)
            if len(writes) > after:
                raise Killed
            return call(*given, **more)

        return wrapped

    authorization.Authorizations(cloud.opts).grant("hv1", "web7", pillar={"token": "t"})
    with monkeypatch.context() as patch:
        patch.setattr("saltvirt.system.atomic_file.os.replace", counted(os.replace))
        patch.setattr(type(store._store), "store", counted(type(store._store).store))
        try:
            done = authorization.submit_key(cloud.opts, store, "hv1", "web7", pairs[1])
        except Killed:
            done = False
    assert done is (after >= len(writes))
    if store.status("web7") == "accepted":
        assert store.host_of("web7") == "hv1"
        assert Pillars(cloud.opts).load("web7", store.accepted) == {"token": "t"}
        found, _ = repair.find_leftovers(cloud)
        assert [(one.code, one.repair is not None) for one in found if one.guest == "web7"] == [
            (repair.KEY, True)
        ]
    else:
        assert done is False
        assert "web7" not in store.guest_ids()


def test_a_key_that_somebody_else_accepted_later_is_none_of_ours(store, pairs):  # noqa: F811
    """Its record is of the key, and not of the name alone."""
    store.accept("web1", pairs[0], host="hv1")
    store._store.store("web1", pairs[1])  # salt-key -d, and -a of another machine
    assert store.host_of("web1") is None
    assert store.guest_ids() == []
    assert "it was not accepted here for a guest" in store.retain_reason("web1", "hv1")
    with pytest.raises(errors.KeyRefused, match="another key for web1"):
        store.accept("web1", pairs[2], replace=True, host="hv1")
