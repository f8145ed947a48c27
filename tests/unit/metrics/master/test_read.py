"""The master's metrics from the answers of its own verbs."""

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.metrics.master import read
from saltvirt.placement.facts import Guest, Host, StorageSpace
from saltvirt.placement.policy import PlacementPolicy

STATUS = {
    "configured": True, "armed": False, "problems": ["hv2 is fencing"],
    "engine": {"running": True, "problem": "", "leading": False, "leader": "other",
               "settled": True},
    "hosts": {"hv1": {"state": "up", "unplaced": ["a", "b"]},
              "hv2": {"state": "fencing", "unplaced": []}},
    "guests": {"a": {"state": "blocked"}},
}  # fmt: skip


def samples(families):
    return {
        (family.name, *sorted(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def test_high_availability():
    found = samples(read.ha_metrics(STATUS))
    assert found["ha_armed",] == 0
    assert (found["ha_leading",], found["ha_led",], found["ha_problems",]) == (0, 1, 1)
    assert found["ha_host_state", ("host", "hv2"), ("state", "fencing")] == 1
    assert found["ha_host_unplaced_guests", ("host", "hv1")] == 2
    assert found["ha_guest_state", ("guest", "a"), ("state", "blocked")] == 1
    assert read.ha_metrics({"configured": False}) == []


def test_backups():
    def backup(when, wrong=None):
        about = {"backup_id": "1", "guest": "a", "stored_bytes": 10}
        return {**about, "taken_at": when, "problem": wrong}

    said = {
        "vault": [backup("2026-11-23T10:00:00Z"), backup("2026-11-22T10:00:00+00:00"),
                  backup("2026-11-24T10:00:00Z", "it is cut"), backup(None, "no record"),
                  backup("9999-01-01T00:00:00Z"), backup("0001-01-01T00:00:00+23:00"),
                  backup("yesterday"), backup([7])],
        "unreachable": {"far": "it is down"}, "retcode": 1,
    }  # fmt: skip
    found = samples(read.backup_metrics(said, 1795600000))
    assert found["backup_last_timestamp_seconds", ("guest", "a"), ("target", "vault")] == 1795428000
    assert found["backup_invalid", ("target", "vault")] == 2
    assert found["backup_stored_bytes", ("target", "vault")] == 80
    assert found["backup_target_answers", ("target", "vault")] == 1
    assert found["backup_target_answers", ("target", "far")] == 0


def test_a_verb_that_fails_is_named_with_its_line():
    failed = {"virt": {"result": False, "comment": "virt:ha:members must be a dict"}, "retcode": 1}
    functions = {"virt.ha_status": lambda: {"data": failed}}
    with pytest.raises(errors.OperationFailed, match=r"^virt\.ha_status: virt:ha:members must be"):
        read._call_runner(functions, "virt.ha_status")
    asked = {"virt.certs": lambda **asked: {"data": {"virt": {"comment": "no verb's"}, **asked}}}
    assert read._call_runner(asked, "virt.certs", ask=False)["ask"] is False


def test_what_is_read_is_what_is_configured():
    assert set(read.reads({}, {})) == {"hosts", "authorities"}
    targets = {"virt": {"backup": {"targets": {"vault": {"host": "hv1", "path": "/srv"}}}}}
    found = read.reads(targets, {"virt.ha_status": lambda: {"data": {"ha": STATUS}},
                                 "virt.backups": lambda: {"data": {"vault": []}}})  # fmt: skip
    assert set(found) == {"hosts", "authorities", "ha", "backups"}
    assert samples(found["ha"]())["ha_armed",] == 0
    assert samples(found["backups"]())["backup_target_answers", ("target", "vault")] == 1


def test_authorities():
    certs = {"certificates": {"CA": {
        "libvirt": {"not_after": "2027-01-01T00:00:00Z"}, "vnc": {"problem": "it is damaged"},
        "spice": {"not_after": "never"},
    }}}  # fmt: skip
    found = samples(read.authority_metrics(certs))
    assert found == {
        ("authority_up", ("authority", "libvirt")): 1, ("authority_up", ("authority", "vnc")): 0,
        ("authority_up", ("authority", "spice")): 1,
        ("authority_not_after_timestamp_seconds", ("authority", "libvirt")): 1798761600,
    }  # fmt: skip


def test_shared_storage_is_counted_once():
    shared, own = StorageSpace(100, 60, 10, shared="nfs filer:/disks"), StorageSpace(50, 50)
    hosts = [
        Host(name, 8, 8 << 20, stores={"/disks": shared, "/": own}, mounts={"/disks": "/disks"})
        for name in ("hv1", "hv2")
    ]
    policy = PlacementPolicy()
    at = ("storage", "nfs filer:/disks")
    assert samples(read._shared(hosts, policy)) == {
        ("shared_storage_free_bytes", at): 60,
        ("shared_storage_promisable_bytes", at): hosts[0].free_store_bytes(policy, "/disks"),
    }


def test_what_hosts_say(monkeypatch):
    """A guest is on two hosts when it runs on both: one that is off there does not count."""
    asked = []

    class Fleet:
        def __init__(self, opts):
            asked.append(opts)

        def __enter__(self):
            return self

        def __exit__(self, *_exc):
            asked.append("let go")

    def runs(*names):
        return tuple(Guest(name, state="running") for name in names)

    own = StorageSpace(100, 60, shared="nfs filer:/disks")
    hosts = [
        Host("hv1", 8, 8 << 20, runs("twice", "once"), stores={"/d": own}, mounts={"/d": "/d"}),
        Host("hv2", 8, 8 << 20, (*runs("twice"), Guest("once"))),
    ]
    monkeypatch.setattr(read, "Fleet", Fleet)
    monkeypatch.setattr(read.inventory, "gather", lambda _fleet: (hosts, {"gone": "down"}))
    opts = {"virt": {"placement": {}}}
    found = samples(read.reads(opts, {})["hosts"]())
    assert asked == [opts, "let go"]
    assert {name[1][1]: up for name, up in found.items() if name[0] == "host_answers"} == {
        "gone": 0, "hv1": 1, "hv2": 1,
    }  # fmt: skip
    assert found["guest_running_hosts", ("guest", "twice")] == 2
    assert ("guest_running_hosts", ("guest", "once")) not in found
    assert found["shared_storage_free_bytes", ("storage", "nfs filer:/disks")] == 60
