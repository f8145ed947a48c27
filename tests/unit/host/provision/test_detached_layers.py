"""Which file a disk gets that left a guest with external snapshots: that with the latest data."""

from types import SimpleNamespace

import pytest

pytest.importorskip("libvirt")

from saltvirt import errors
from saltvirt.host.provision.disk_match import DiskMatch
from saltvirt.host.storage import files
from saltvirt.spec.disk import DiskSpec
from saltvirt.system import bounded_io
from saltvirt.xml.domain.domain import Domain

VOLUMES = {("fast", "g1_data"): "/fast/g1_data"}


class Snapshot:
    """A snapshot, as libvirt returns it. disks: target to (base, layer)."""

    def __init__(self, name, parent=None, reverted=None, is_current=False, **disks):
        bases = "".join(
            f"<disk><source file='{base}'/><target dev='{dev}'/></disk>"
            for dev, (base, _) in disks.items()
        )
        layers = {dev: layer for dev, (_, layer) in disks.items()}
        self.is_current = is_current
        self.text = (
            f"<domainsnapshot><name>{name}</name>"
            + (f"<parent><name>{parent}</name></parent>" if parent else "")
            + self.listed("disks", layers) + self.listed("revertDisks", reverted or {})
            + f"<domain><devices>{bases}</devices></domain></domainsnapshot>"
        )  # fmt: skip

    @staticmethod
    def listed(tag, layers):
        return f"<{tag}>" + "".join(
            f"<disk name='{dev}' snapshot='external'><source file='{path}'/></disk>"
            for dev, path in layers.items()
        ) + f"</{tag}>"  # fmt: skip

    def getXMLDesc(self, _flags):
        return self.text

    def isCurrent(self):
        return int(self.is_current)


@pytest.fixture
def known(monkeypatch):
    """A function that returns (file, base) for a disk of the guest ``g1`` with these snapshots."""
    missing = set()
    monkeypatch.setattr(bounded_io, "lexists", lambda path: path not in missing)
    monkeypatch.setattr(files, "volume_path", lambda conn, *volume: VOLUMES.get(volume))

    def call(name, *snapshots, driver="QEMU", lost=(), others=(), **options):
        missing.update(lost)
        match = object.__new__(DiskMatch)
        match.guest, match.targets = "g1", {}
        match.actual = match.upgraded = Domain.fromstring("<domain><name>g1</name></domain>")
        match.conn = SimpleNamespace(getType=lambda: driver)
        match.dom = SimpleNamespace(listAllSnapshots=lambda _flags: list(snapshots))
        if driver != "QEMU":
            del match.dom.listAllSnapshots
        spec = DiskSpec(name=name, existing=True, **options)
        match.specs = [spec, *others]
        found, base = match._known_spec(spec)
        call.spec = found
        return found.source_file, base

    return call


S1 = {"vdb": ("/i/g1_data.qcow2", "/i/g1_data.s1")}
S2 = {"vdb": ("/i/g1_data.s1", "/i/g1_data.s2")}


def test_the_newest_layer_of_the_current_branch_is_used(known):
    layers = Snapshot("s1", **S1), Snapshot("s2", "s1", is_current=True, **S2)
    assert known("data", *layers) == ("/i/g1_data.s2", "/i/g1_data.qcow2")
    layers = Snapshot("s1", is_current=True, **S1), Snapshot("s2", "s1", **S2)
    assert known("data", *layers) == ("/i/g1_data.s1", "/i/g1_data.qcow2")


def test_after_a_revert_by_libvirt_the_layer_of_the_revert_is_used(known):
    """libvirt 9.9 and later: the first layer has what the revert has discarded."""
    reverted = {"vdb": "/i/g1_data.1796"}
    first = Snapshot("s1", reverted=reverted, is_current=True, **S1)
    assert known("data", first) == ("/i/g1_data.1796", "/i/g1_data.qcow2")
    later = Snapshot("s3", "s1", is_current=True, vdb=("/i/g1_data.1796", "/i/g1_data.s3"))
    first = Snapshot("s1", reverted=reverted, **S1)
    assert known("data", first, later) == ("/i/g1_data.s3", "/i/g1_data.qcow2")


@pytest.mark.parametrize(("base", "options"), [
    ("/i/g1_data.old.qcow2", {}),  # of the disk data.old
    ("/fast/g1_data.1", {}),  # of the disk data.1, in a pool
    ("/slow/g1_data", {"pool": "fast"}),
    ("/i/g1_data.qcow2", {"pool": "/slow"}),
])  # fmt: skip
def test_the_layer_of_another_file_is_not_used(known, base, options):
    of_other = Snapshot("s1", is_current=True, vdb=(base, "/i/layer"))
    assert known("data", of_other, **options) == (None, None)


def test_a_layer_in_the_pool_of_the_request_is_used(known):
    in_pool = Snapshot("s1", is_current=True, vdb=("/fast/g1_data", "/i/layer"))
    assert known("data", in_pool, pool="fast") == ("/i/layer", "/fast/g1_data")


def test_a_lost_layer_is_not_replaced_by_an_empty_disk(known):
    layer = Snapshot("s1", is_current=True, **S1)
    with pytest.raises(errors.NotFound, match=r"/i/g1_data\.s1 does not exist on this host"):
        known("data", layer, lost=["/i/g1_data.s1"], size_bytes=2**30)


def test_an_image_is_not_written_to_a_layer(known):
    layer = Snapshot("s1", is_current=True, **S1)
    known("data", layer, image="salt://images/db.qcow2")
    assert known.spec.image is None


def test_the_target_of_another_requested_disk_is_not_used(known):
    layer = Snapshot("s1", is_current=True, **S1)
    known("data", layer)
    assert known.spec.target == "vdb"
    known("data", layer, others=[DiskSpec(name="more", target="vdb")])
    assert known.spec.target is None


def test_a_guest_of_another_driver_has_no_layers(known):
    """Xen and LXC have no snapshots: the question would be an error."""
    assert known("data", driver="Xen") == (None, None)
