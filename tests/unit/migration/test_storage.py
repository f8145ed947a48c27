from saltvirt.migration import storage
from tests.unit.migration import facts

MIB = 2**20


def plan(disk, seen=None, copy_storage=None):
    return storage.plan([disk], seen or {}, copy_storage)[0]


def test_a_plain_disk_is_copied_at_what_it_uses():
    found = plan(facts.disk())
    assert (found.how, found.moved_bytes, found.size_bytes) == ("copy", 10 * MIB, 2**30)
    assert storage.mode([found]) == "all"
    assert storage.needed([found]) == {"/vm": 10 * MIB}


def test_an_overlay_stays_one_and_its_base_is_brought_when_it_lacks():
    disk = facts.disk(chain=[facts.BASE])
    found = plan(disk)
    assert (found.how, found.moved_bytes, found.backing) == ("overlay", 10 * MIB, facts.BASE)
    assert found.bases == [facts.BASE]
    assert storage.mode([found]) == "incremental"
    assert storage.needed([found]) == {"/vm": 10 * MIB, "/images": 2**28}
    there = plan(disk, {facts.BASE["path"]: {"exists": True, "shared": False}})
    assert there.bases == []


def test_an_overlay_can_be_flattened():
    found = plan(facts.disk(chain=[facts.BASE]), copy_storage="all")
    assert (found.how, found.moved_bytes, found.backing) == ("copy", 10 * MIB + 2**28, None)
    assert storage.mode([found]) == "all"


def test_a_whole_chain_comes_deepest_first():
    middle = facts.BASE | {"path": "/images/middle.qcow2"}
    found = plan(facts.disk(chain=[middle, facts.BASE]))
    assert [b["path"] for b in found.bases] == ["/images/debian.qcow2", "/images/middle.qcow2"]
    assert found.backing == middle


def test_what_is_not_copied():
    assert (
        plan(facts.disk(), {"/vm/web1_vda.qcow2": {"exists": True, "shared": True}}).how == "shared"
    )
    assert plan(facts.disk(type="network", source="pool/img")).how == "shared"
    assert plan(facts.disk(device="cdrom", read_only=True)).how == "keep"
    assert storage.mode([plan(facts.disk(read_only=True))]) is None


def test_libvirt_is_told_only_of_what_we_proved_ourselves():
    file = plan(facts.disk(), {"/vm/web1_vda.qcow2": {"exists": True, "shared": True}})
    assert storage.proven([file])
    assert not storage.proven([plan(facts.disk(type="network", source="pool/img"))])
    assert not storage.proven([plan(facts.disk())])
