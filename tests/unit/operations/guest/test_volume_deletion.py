"""The deletion of a volume, with hosts of plain data: which host, and what others must confirm."""

import pytest

pytest.importorskip("salt")

from saltvirt.fleet.answer import Answer, down
from saltvirt.operations.cluster import shared_storage_check
from saltvirt.operations.guest.volume_deletion import VolumeDeletion

PATH = "/nfs/v"
NFS = {PATH: {"path": PATH}}
SILENT = down("hv3")


class Cloud:
    """Each host has the pool ``store``. volumes: host to its volumes, or to its Answer. users: host
    to its answer who uses the volume."""

    def __init__(self, volumes, shared=None, **users):
        self.opts, self.volumes, self.shared, self.users = {}, volumes, shared or {}, users
        self.deleted = None

    def hosts(self, only=None):
        return list(self.volumes)

    def ask(self, hosts, fun, kwarg=None, **_options):
        for host in hosts:
            if fun == "virt.storage_users":
                yield Answer(host, self.users[host])
                continue
            assert fun == "virt.volumes"
            found = self.volumes[host]
            if not isinstance(found, Answer):
                found = Answer(host, {"store": {"volumes": {name: {} for name in found}}})
            yield found

    def gather(self, hosts, fun, kwarg=None, **options):
        return {answer.host: answer for answer in self.ask(hosts, fun, kwarg)}

    def call(self, host, fun, kwarg=None, **_options):
        assert fun == "virt.remove_volume"
        if not kwarg.get("test"):
            self.deleted = host, kwarg["unused"]
        return {"path": PATH, "allocation": 2048, "keep": None, "shared": self.shared}


@pytest.fixture(autouse=True)
def nobody_else(monkeypatch):
    """No host was lost by virt:hosts."""
    monkeypatch.setattr(shared_storage_check, "unmatched", lambda opts, hosts: {})


@pytest.mark.parametrize(("volumes", "text"), [
    ({"hv1": "v", "hv2": "v"}, "several hosts have a volume store/v (hv1, hv2): give host="),
    ({"hv1": "v", "hv3": SILENT}, f"may have a volume store/v (hv3: {SILENT.error}): host=hv1"),
    ({"hv1": "a", "hv3": SILENT}, f"may have a volume store/v (hv3: {SILENT.error}): give host="),
    ({"hv1": "a"}, "no volume store/v in a running storage pool of any host"),
])  # fmt: skip
def test_a_volume_that_is_not_on_one_host_needs_the_host(volumes, text):
    cloud = Cloud(volumes)
    refused = VolumeDeletion(cloud, "store", "v").check().answer()["store/v"]
    assert refused["result"] is False and text in refused["comment"]
    if "v" in volumes["hv1"]:
        done = VolumeDeletion(cloud, "store", "v", "hv1").run()
        assert done.comment == "volume store/v was deleted on hv1, which frees 2 KiB"
        assert cloud.deleted == ("hv1", [])


def test_an_empty_host_is_none():
    cloud = Cloud({"hv1": "v", "hv2": ""})
    VolumeDeletion(cloud, "store", "v", "").run()
    assert cloud.deleted == ("hv1", [])


def test_other_hosts_must_say_that_they_do_not_use_a_shared_volume():
    hosts = {"hv1": "v", "hv2": "v", "hv4": ""}
    cloud = Cloud(hosts, NFS, hv2={PATH: None}, hv4={PATH: None})
    VolumeDeletion(cloud, "store", "v", "hv1").run()
    assert cloud.deleted == ("hv1", [PATH])
    for answer, reason in (({PATH: "used by db1"}, "hv4: used by db1"), ({}, "does not include")):
        cloud = Cloud(hosts, NFS, hv2={PATH: None}, hv4=answer)
        planned = VolumeDeletion(cloud, "store", "v", "hv1").check()
        assert planned.comment.startswith("volume store/v stays on hv1: hv4: ")
        assert reason in planned.comment
        with pytest.raises(Exception, match="volume store/v stays on hv1"):
            VolumeDeletion(cloud, "store", "v", "hv1").run()
        assert cloud.deleted is None
