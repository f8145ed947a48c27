from dataclasses import replace

import pytest

from saltvirt.migration import storage
from saltvirt.migration.facts import DiskReport, LocationReport
from tests.unit.migration import facts

MIB = 2**20


APART = facts.place()
BOTH = facts.place(True, True)
GLUSTER = {"protocol": "gluster", "name": "vol/img", "hosts": [{"name": "g1", "port": "24007"}]}


def plan(disk, seen=None, copy_storage=None):
    """disk: as plain data."""
    report = DiskReport.from_answer(disk, "hv1")
    return storage.plan([report], {report.key: APART, **(seen or {})}, copy_storage)[0]


def test_the_volume_that_seeds_the_guest_is_copied_unless_it_is_there():
    path = "/srv/i/_seed/web1.iso"
    iso = facts.report(device="cdrom", target="sda", source=path, read_only=True, seed=True,
                       format="raw", used_bytes=4096)  # fmt: skip
    [one] = storage.plan([iso], {path: facts.place(False, False, path=path)})
    assert (one.method, one.target_path, one.source_files) == (storage.SEED, path, [path])
    assert storage.required_space([one]) == {"/srv/i/_seed": 4096}
    assert storage.mode([one]) is None and storage.copied_plans([one]) == []
    for seen in (facts.place(True, True), facts.place(True, False), facts.place(False, None)):
        [one] = storage.plan([iso], {path: seen})
        assert (one.method, one.source_files) == (storage.KEEP, [])


def test_a_plain_disk_is_copied_at_what_it_uses():
    found = plan(facts.disk())
    assert (found.method, found.moved_bytes, found.size_bytes) == ("copy", 10 * MIB, 2**30)
    assert storage.mode([found]) == "all"
    assert storage.required_space([found]) == {"/vm": 10 * MIB}


def test_an_overlay_stays_one_and_its_base_is_brought_when_it_lacks():
    disk = facts.disk(chain=[facts.BASE])
    found = plan(disk)
    assert (found.method, found.moved_bytes, found.backing) == (
        "overlay",
        10 * MIB,
        facts.backing(),
    )
    assert found.bases == (facts.backing(),)
    assert storage.mode([found]) == "incremental"
    assert storage.required_space([found]) == {"/vm": 10 * MIB, "/images": 2**28}
    there = plan(disk, {facts.BASE["path"]: facts.place(True)})
    assert there.bases == ()
    half = plan(disk, {facts.BASE["path"]: facts.place(True, incoming=True)})
    assert half.bases == (facts.backing(),), "another migration still copies it there"


def test_an_overlay_can_be_flattened():
    found = plan(facts.disk(chain=[facts.BASE]), copy_storage="all")
    assert (found.method, found.moved_bytes, found.backing) == ("copy", 10 * MIB + 2**28, None)
    assert storage.mode([found]) == "all"


def test_a_whole_chain_comes_deepest_first():
    middle = facts.BASE | {"path": "/images/middle.qcow2"}
    found = plan(facts.disk(chain=[middle, facts.BASE]))
    assert [b.path for b in found.bases] == ["/images/debian.qcow2", "/images/middle.qcow2"]
    assert found.backing == facts.backing(path=middle["path"])


def test_what_is_not_copied():
    assert plan(facts.disk(), {"/vm/web1_vda.qcow2": BOTH}).method == "shared"
    assert plan(facts.disk(type="network", source="vol/img", network=GLUSTER)).method == "shared"
    assert plan(facts.disk(device="cdrom", read_only=True)).method == "keep"
    assert storage.mode([plan(facts.disk(read_only=True))]) is None


@pytest.mark.parametrize("kind", ["dir", "fs", "netfs", "logical"])
def test_a_pools_volume_is_copied_to_where_that_pool_is_on_the_target(kind):
    seen = {"data/web1_vda": facts.place(path="/srv/other/web1_vda", pool="data")}
    found = plan(facts.volume(kind), seen)
    assert (found.method, found.path, found.target_path) == (
        "copy",
        "/data/web1_vda",
        "/srv/other/web1_vda",
    )
    assert storage.required_space([found]) == {"/srv/other": 10 * MIB}


@pytest.mark.parametrize(
    ("disk", "seen", "words"),
    [
        (facts.volume(), LocationReport(), "is not known"),
        (
            facts.volume(),
            LocationReport(error="hv2 has no storage pool data"),
            "no storage pool data",
        ),
        (facts.volume(), LocationReport(reason="nobody can write there"), "nobody can write"),
        (facts.volume(error="storage pool data is not started here"), APART, "not started here"),
        (facts.volume("disk", type="block"), APART, "pool of type disk cannot be copied"),
        (facts.volume("scsi"), APART, "pool of type scsi cannot be copied"),
        (facts.volume("iscsi"), LocationReport(reason="has another volume"), "another volume"),
        (facts.volume("rbd"), LocationReport(reason="different sources"), "different sources"),
        (facts.volume(fs="nfs4"), APART, "network file system here (nfs4)"),
        (facts.volume(fs="fuse.glusterfs"), APART, "mount the same one"),
        (facts.disk(type="nvme", source=None), APART, "cannot leave its host"),
        (facts.disk(type="network", network=GLUSTER | {"hosts": []}), APART, "names no server"),
    ],
)
def test_what_is_refused(disk, seen, words):
    """In doubt a disk stays where it is; libvirt's own check then stays on, whatever else was
    proven."""
    found = plan(disk, {DiskReport.from_answer(disk, "hv1").key: seen})
    assert found.method == "refused"
    assert words in found.reason
    proven = plan(facts.disk(), {"/vm/web1_vda.qcow2": BOTH})
    assert not storage.is_proven_shared([proven, found])
    assert storage.copied_plans([found]) == []


def test_a_network_file_system_is_copied_from_when_that_is_asked_for():
    assert plan(facts.volume(fs="nfs4"), copy_storage="all").method == "copy"


def test_a_shared_overlay_gets_the_image_that_the_target_lacks():
    disk = facts.disk(chain=[facts.BASE])
    found = plan(disk, {"/vm/web1_vda.qcow2": BOTH})
    assert (found.method, found.bases) == ("shared", (facts.backing(),))
    assert storage.required_space([found]) == {"/images": 2**28}


def test_the_disk_before_a_snapshot_moves_with_it():
    own = facts.BASE | {"owned": True, "path": "/vm/web1_vda.old"}
    old = facts.backing(owned=True, path=own["path"])
    found = plan(facts.disk(chain=[own, facts.BASE]), {own["path"]: APART})
    assert (found.method, found.copied_files, found.bases) == (
        "overlay",
        (old,),
        (facts.backing(),),
    )
    assert found.source_files == ["/vm/web1_vda.qcow2", "/vm/web1_vda.old"]
    assert found.moved_bytes == 10 * MIB + 2**28
    assert storage.required_space([found]) == {"/vm": 10 * MIB + 2**28, "/images": 2**28}
    flat = plan(facts.disk(chain=[own]), {own["path"]: APART}, "all")
    assert (flat.method, flat.copied_files) == ("copy", ())
    assert flat.source_files == ["/vm/web1_vda.qcow2", "/vm/web1_vda.old"]
    seen = BOTH
    both = plan(facts.disk(chain=[own]), {"/vm/web1_vda.qcow2": seen, own["path"]: seen})
    assert (both.method, both.copied_files, both.source_files) == ("shared", (), [])


def test_libvirt_is_told_only_of_what_we_proved_ourselves():
    file = plan(facts.disk(), {"/vm/web1_vda.qcow2": BOTH})
    assert storage.is_proven_shared([file])
    network = plan(facts.disk(type="network", source="vol/img", network=GLUSTER))
    assert not storage.is_proven_shared([network])
    assert not storage.is_proven_shared([plan(facts.disk())])


def test_libvirt_is_told_when_one_of_several_disks_was_proven():
    seen = {"/vm/web1_vda.qcow2": BOTH, "/vm/b": APART}
    both = storage.plan([facts.report(), facts.report(target="vdb", source="/vm/b")], seen)
    assert [one.method for one in both] == ["shared", "copy"]
    assert storage.is_proven_shared(both) is True


def test_what_copied_disks_may_become_is_promised():
    """A disk grows to its virtual size; an image that is brought is as large as it is."""
    disks = [
        facts.report(chain=[facts.BASE]),
        facts.report(target="vdb", source="/vm/b", size_bytes=5),
        facts.report(target="vdc", source="/vm/c"), facts.report(target="vdd", source="/d"),
    ]  # fmt: skip
    seen = dict.fromkeys(("/vm/web1_vda.qcow2", "/vm/b", "/d"), APART)
    seen["/vm/c"] = BOTH
    plans = storage.plan(disks, seen)
    plans[1] = replace(plans[1], moved_bytes=7)
    assert storage.promised_space(plans) == (("/", 2**30), ("/images", 2**28), ("/vm", 2**30 + 7))


def test_files_of_the_image_cache_are_known_by_their_names():
    name = "/images/_base/debian-0123456789abcdef.qcow2"
    assert storage.by_content(name) is True
    assert storage.by_content("/images/debian.qcow2") is False
    assert storage.incoming_path(name) == "/images/_base/.debian-0123456789abcdef.qcow2.coming"


def test_an_empty_drive_is_kept():
    found = plan(facts.disk(device="floppy", source=None))
    assert (found.method, found.path, found.target_path) == ("keep", "", "")
    assert facts.report(source=None).key == ""


def test_a_medium_that_could_not_be_looked_at_is_refused():
    found = plan(facts.disk(device="cdrom", read_only=True, error="nobody can look there"))
    assert (found.method, found.reason) == ("refused", "nobody can look there")


def test_room_is_needed_in_the_topmost_folder_too():
    assert storage.required_space([plan(facts.disk(source="/d"), {"/d": APART})]) == {"/": 10 * MIB}
