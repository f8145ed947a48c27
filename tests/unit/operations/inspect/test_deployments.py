"""The list of deployments: what each lists, and what the hosts have."""

import json
import time

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.operations.create import deploy
from saltvirt.operations.inspect import deployments
from saltvirt.operations.journal import deployment_record, location_cache, lock, times
from saltvirt.placement import policy
from tests.unit.operations.create.test_deploy import Cloud

FACTS = {"vcpus": 1, "memory_kib": 1 << 20, "state": "running"}
SHOP = {**FACTS, "deployment": "shop"}


def deployed(cloud, guests, *, deployment="shop", **options):
    """Run a deployment that creates nothing, because its hosts have or refuse each guest."""
    requests = [deploy.parse_guest(name, guest, deployment) for name, guest in guests.items()]
    placement_policy = policy.from_config(None, None)
    return deploy.Deploy(cloud, placement_policy, requests, deployment, user="ann", **options).run()


def shown(cloud, name="shop", **options):
    return deployments.listing(cloud, name, **options)["deployments"]["deployments"][name]


def statuses(deployment):
    return {name: guest["status"] for name, guest in deployment["guests"].items()}


def test_a_list_is_compared_with_what_the_hosts_have(tmp_path):
    cloud = Cloud(tmp_path, {"hv1": {"web1": SHOP, "old": SHOP}, "hv2": {"by-hand": FACTS}})
    big = {"mem": "900GiB", "image": "https://ann:secret@example.com/a.qcow2?sig=1", "size": "9GiB"}
    guests = {"web1": {"mem": 1024}, "by-hand": {"mem": 1024}, "big": big}
    assert not deployed(cloud, guests).complete
    shop = shown(cloud)
    assert statuses(shop) == {
        "big": "missing", "by-hand": "present", "old": "kept", "web1": "present",
    }  # fmt: skip
    assert shop["comment"] == ("shop: 2 guests present; missing: big; not listed and kept: old")
    assert (shop["result"], shop["user"], shop["remove"]) == (False, "ann", False)
    assert shop["counts"] == {"present": 2, "missing": 1, "unknown": 0, "to_remove": 0, "kept": 1}
    missing, by_hand, old = (shop["guests"][name] for name in ("big", "by-hand", "old"))
    assert "no host can take it" in missing["reason"]
    assert (missing["memory_mib"], missing["size_bytes"]) == (900 << 10, 9 << 30)
    assert missing["image"] == "https://…@example.com/a.qcow2?…"
    assert (by_hand["created_by_deployment"], by_hand["host"]) == (False, "hv2")
    assert by_hand["reason"] == "not created by this deployment"
    assert (old["listed"], old["created_by_deployment"]) == (False, True)
    assert "secret" not in json.dumps(deployments.listing(cloud, None))


def test_a_deployment_of_another_master_is_known_by_its_guests(tmp_path):
    shop = shown(Cloud(tmp_path, {"hv1": {"web1": SHOP}}))
    assert (shop["time"], shop["result"], statuses(shop)) == (None, None, {"web1": "present"})
    assert shop["guests"]["web1"]["listed"] is None


def test_a_guest_on_a_silent_host_is_not_missing(tmp_path):
    cloud = Cloud(tmp_path, {"hv1": {}, "hv2": {"web1": SHOP}})
    deployed(cloud, {"web1": {"mem": 1024}})
    location_cache.store_host(cloud.opts, "hv2", {"web1": "running"})
    cloud.down = {"hv2"}
    answer = deployments.listing(cloud, "shop")
    shop = answer["deployments"]["deployments"]["shop"]
    assert answer["retcode"] == 1
    assert list(answer["deployments"]["unreachable"]) == ["hv2"]
    assert statuses(shop) == {"web1": "unknown"}
    assert "last seen on hv2, which does not respond" in shop["guests"]["web1"]["reason"]


def test_what_was_to_be_removed_and_was_not_has_the_reason(tmp_path, monkeypatch):
    def refuse(_opts, _name):
        raise errors.InvalidInput("high availability manages it")

    monkeypatch.setattr(deploy.ha_provider, "refuse_managed", refuse)
    cloud = Cloud(tmp_path, {"hv1": {"web1": SHOP, "old": SHOP}})
    deployed(cloud, {"web1": {"mem": 1024}}, remove=True)
    old = shown(cloud)["guests"]["old"]
    assert (old["status"], old["reason"]) == ("to_remove", "high availability manages it")


def test_a_limited_user_sees_own_guests_and_nothing_of_the_call(tmp_path):
    cloud = Cloud(tmp_path, {"hv1": {"web1": SHOP, "theirs": SHOP},
                             "hv2": {"db1": {**FACTS, "deployment": "other"}}})  # fmt: skip
    deployed(cloud, {"web1": {"mem": 1024}, "big": {"mem": "900GiB"}})
    own = {"can_see": lambda name, _uuid: name == "web1"}
    shop = shown(cloud, **own)
    assert (statuses(shop), shop["user"], shop["time"]) == ({"web1": "present"}, None, None)
    answer = deployments.listing(cloud, None, **own)["deployments"]
    assert list(answer["deployments"]) == ["shop"]
    assert not any(word in str(answer) for word in ("theirs", "big", "other", "db1", "ann"))
    with pytest.raises(errors.NotFound, match="no deployment 'other'"):
        deployments.listing(cloud, "other", **own)


def test_a_mistyped_name_is_told_the_closest(tmp_path):
    cloud = Cloud(tmp_path, {"hv1": {"web1": SHOP}})
    with pytest.raises(errors.NotFound, match="no deployment 'shpo'; did you mean 'shop'"):
        deployments.listing(cloud, "shpo")


def test_a_deployment_whose_guests_are_gone_is_forgotten_after_a_month(tmp_path):
    cloud = Cloud(tmp_path)
    deployed(cloud, {"big": {"mem": "900GiB"}})
    [record] = deployment_record.read_all(cloud.opts).values()
    assert statuses(shown(cloud)) == {"big": "missing"}
    month_ago = times.recorded(time.time() - 31 * 86400)
    deployment_record.store(cloud.opts, deploy.replace(record, time=month_ago))
    cloud.down = {"hv2"}
    assert list(deployments.listing(cloud, None)["deployments"]["deployments"]) == ["shop"]
    cloud.down = set()
    assert deployments.listing(cloud, None)["deployments"]["title"] == "no deployments"
    assert not deployment_record.read_all(cloud.opts)


def test_a_record_that_a_new_call_has_replaced_is_not_forgotten(tmp_path, monkeypatch):
    cloud, read_all = Cloud(tmp_path), deployment_record.read_all
    deployed(cloud, {"big": {"mem": "900GiB"}})
    [record] = read_all(cloud.opts).values()
    old = deploy.replace(record, time="2026-01-01T00:00:00Z")
    deployment_record.store(cloud.opts, old)

    def read_then_deploy(opts):
        records = read_all(opts)
        deployment_record.store(opts, record)
        return records

    monkeypatch.setattr(deployment_record, "read_all", read_then_deploy)
    assert deployments.listing(cloud, None)["deployments"]["title"] == "no deployments"
    assert read_all(cloud.opts) == {"shop": record}


def test_a_record_replaces_no_lock(tmp_path):
    """A lock that is held is a file that must stay."""
    opts = {"cachedir": str(tmp_path)}
    with lock.deployment(opts, "shop"):
        locks = {path: path.stat().st_ino for path in tmp_path.rglob("*") if path.is_file()}
        record = deployment_record.DeploymentRecord("shop", "", "ann", False, {})
        deployment_record.store(opts, record)
        assert list(deployment_record.read_all(opts)) == ["shop"]
        assert locks
        assert {path: path.stat().st_ino for path in locks} == locks


def test_records_are_limited(tmp_path, monkeypatch):
    monkeypatch.setattr(deployment_record, "MAX_RECORDS", 2)
    opts = {"cachedir": str(tmp_path)}
    for number in range(4):
        now = times.recorded()
        record = deployment_record.DeploymentRecord(f"d{number}", now, "ann", False, {})
        deployment_record.store(opts, record)
        time.sleep(0.02)
    assert sorted(deployment_record.read_all(opts)) == ["d2", "d3"]
