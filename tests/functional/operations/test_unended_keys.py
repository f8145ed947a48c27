"""The key of a guest whose init was killed: it is needed to complete the guest, and removed with a
partially created one."""

# ruff: noqa: F811
from pathlib import Path

import pytest

pytest.importorskip("salt.key")

from saltvirt import errors
from saltvirt.fleet.pillars import Pillars
from saltvirt.operations.create import interrupted_create
from saltvirt.operations.journal import intent_log
from tests.functional.fleet.test_keys import events, opts, pairs, store  # noqa: F401
from tests.unit.operations.create.test_interrupted_create import HALF, WEB, Cloud, plan, told


@pytest.fixture
def cloud(tmp_path, opts):
    def made(*args, **more):
        found = Cloud(tmp_path, *args, **more)
        found.opts = opts
        return found

    return made


def test_one_without_its_key_or_pillar_is_named_only(cloud, store, pairs):
    there = cloud(WEB)
    told(there)
    seeded = {"web1": {"mem": 1024, "image": "salt://debian.qcow2"}}
    assert "given up or killed" in plan(there, seeded).text()
    for bare in ({**seeded["web1"], "seed": False}, {"mem": 1024}):
        assert plan(there, {"web1": bare}).pending_start == {"web1": "hv1"}, (
            "such a guest has no key"
        )
    store.accept("web1", pairs[0], host="hv2")
    assert "given up or killed" in plan(there, seeded).text(), "the key of a guest of hv2"
    store.rebind("web1", "hv2", "hv1")
    assert plan(there, seeded).pending_start == {"web1": "hv1"}
    with_pillar = {"web1": {**seeded["web1"], "pillar": {"a": 1}}}
    assert "given up or killed" in plan(there, with_pillar).text()
    Pillars(there.opts).store("web1", pairs[0], {"a": 1})
    assert plan(there, with_pillar).pending_start == {"web1": "hv1"}
    other = {"web1": {**seeded["web1"], "pillar": {"a": 2}}}
    assert "given up or killed" in plan(there, other).text(), "it has another pillar"


def test_one_whose_key_was_taken_back_is_named_only(cloud, store, pairs, opts):
    there = cloud(WEB)
    told(there)
    store.accept("web1", pairs[0], host="hv1")
    seeded = {"web1": {"mem": 1024, "image": "salt://debian.qcow2"}}
    assert plan(there, seeded).pending_start == {"web1": "hv1"}
    Path(opts["pki_dir"], "minions", "web1").unlink()
    assert "given up or killed" in plan(there, seeded).text()


@pytest.mark.parametrize("opts", ["this Salt"], indirect=True)
def test_its_host_is_asked_again_before_it_goes_and_its_key_goes_along(
    cloud,
    store,
    pairs,
):
    there = cloud(HALF, [])
    store.accept("web1", pairs[0], host="hv1")
    with pytest.raises(errors.OperationFailed, match="on hv1 was changed meanwhile"):
        interrupted_create.remove(there, "web1", "hv1")
    assert store.accepted("web1")
    there.left["unfinished"] = ["web1"]
    told(there)
    interrupted_create.remove(there, "web1", "hv1")
    assert intent_log.load(there.opts, "web1") is None
    assert ("hv1", "virt.purge") in there.called
    assert store.accepted("web1") is None


def test_a_key_of_another_hosts_guest_stays(cloud, store, pairs):
    there = cloud(HALF, ["web1"])
    store.accept("web1", pairs[0], host="hv2")
    interrupted_create.remove(there, "web1", "hv1")
    assert store.accepted("web1")
