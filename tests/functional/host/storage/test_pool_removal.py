"""What is deleted with a storage pool or a volume, what is kept, and why."""

# ruff: noqa: F811
import contextlib

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.host.storage import (
    pool_state,
    secret,
    sharing,
    unchanged_disks,
    upload,
    usage,
    volume_state,
    volumes,
)
from saltvirt.spec.volume import parse
from saltvirt.states.volumes import DesiredVolume
from tests.functional.host.storage.test_usage import create, disk, place  # noqa: F401


@pytest.fixture
def pool(place):
    """A pool that runs, with base.raw in it."""
    made = place.pool("there", place.base.parent, start=True)
    volume(made, "base.raw")
    return made


def volume(pool, name):
    return pool.createXML(f"<volume><name>{name}</name><capacity>1024</capacity></volume>", 0)


def names(place):
    return {one.name() for one in place.conn.listAllStoragePools()}


def remove(place, **how):
    return pool_state.remove(place.conn, "there", **how)


# -- a pool -------------------------------------------------------------------------------


def test_what_is_not_there_needs_no_removal(place):
    found = pool_state.remove(place.conn, "nothing", purge=True)
    assert (found.changes, found.actions) == ({}, [])
    assert found.unchanged_text == "is not there"


def test_who_cannot_be_started_without_it_is_named(place, pool):
    place.conn.defineXML(
        "<domain type='test'><name>off</name><memory>1024</memory><os><type>hvm</type></os>"
        "<devices><disk type='volume'><source pool='there' volume='base.raw'/>"
        "<target dev='vda'/></disk></devices></domain>"
    )
    for test in (True, False):
        [note] = remove(place, test=test).notes
        assert note.startswith("off cannot start without it: each has a disk")


@pytest.mark.parametrize("purge", [True, False])
def test_what_would_go_is_said_and_stays(place, pool, purge):
    found = remove(place, purge=purge, test=True)
    deleted = {"deleted_volumes": ["base.raw"], "deleted": True} if purge else {}
    assert found.changes == {"stopped": True, "undefined": True, **deleted}
    assert found.actions == ["purged" if purge else "removed; its content is not deleted"]
    assert (pool.isActive(), pool.isPersistent(), pool.listVolumes()) == (1, 1, ["base.raw"])


def test_the_file_systems_of_zfs_stay_when_its_volumes_go(place):
    """libvirt shows none of them, and destroys them all with the pool."""
    text = "<pool type='zfs'><name>there</name><source><name>tank</name></source></pool>"
    place.conn.storagePoolDefineXML(text, 0).create(0)
    found = remove(place, purge=True)
    assert "deleted" not in found.changes
    assert "zpool destroy tank deletes everything" in found.notes[0]
    assert "there" not in names(place)


def test_what_a_pool_holds_stays_unless_it_is_purged(place, pool):
    other = place.pool("other", place.above.parent)
    assert remove(place).changes == {"stopped": True, "undefined": True}
    assert "there" not in names(place)
    assert pool_state.remove(place.conn, "other").changes == {"undefined": True}
    with pytest.raises(libvirt.libvirtError):
        other.isPersistent()


@pytest.mark.parametrize(
    ("purge", "runs", "words"),
    [
        (False, False, None), (False, True, "has volumes of web1; force: True removes it"),
        (True, False, "has volumes of web1; force: True deletes it"),
    ],
)  # fmt: skip
def test_a_pool_that_guests_have_volumes_of(place, pool, purge, runs, words):
    dom = place.guest(disk(place.base, "raw"))
    if runs:
        dom.create()
    assert volumes.users_of_pool(place.conn, pool) == (["web1"], ["web1"] if runs else [])
    if words:
        with pytest.raises(errors.InvalidInput, match=words):
            remove(place, purge=purge, test=True)
        assert pool.listVolumes() == ["base.raw"]
    assert remove(place, purge=purge, force=bool(words)).changes["undefined"]
    assert "there" not in names(place)
    if runs:
        dom.destroy()


def test_a_pool_that_does_not_run_hides_what_it_holds(place, pool):
    pool.destroy()
    with pytest.raises(errors.InvalidInput, match="is not active, so its volumes are unknown"):
        remove(place, purge=True)
    assert "there" in names(place)
    assert remove(place).changes == {"undefined": True}


def test_of_a_pool_whose_folder_is_gone_the_definition_goes(place):
    """It was being deleted, and the process was killed."""
    place.pool("there", place.root / "gone")
    found = remove(place, purge=True)
    assert (found.changes, found.notes) == ({"undefined": True}, [])


def pool_of(place, kind, target="/srv/there"):
    source = "<host name='h'/><name>there</name><device path='/dev/x'/><dir path='/x'/>"
    source += "<adapter type='scsi_host' name='scsi_host0'/>"
    return place.conn.storagePoolDefineXML(
        f"<pool type='{kind}'><name>there</name><source>{source}</source>"
        f"<target><path>{target}</path></target></pool>"
    )


@pytest.mark.parametrize("active", [True, False])
def test_of_a_pool_of_a_storage_network_nothing_is_deleted(place, monkeypatch, active):
    made = pool_of(place, "iscsi", target="/dev/disk/by-path")
    if active:
        made.create()
        volume(made, "unit:0:0:1")
    monkeypatch.setattr(pool_state.pools, "delete", None)
    found = remove(place, purge=True)
    stopped = {"stopped": True} if active else {}
    assert found.changes == {**stopped, "undefined": True}
    assert found.notes == ["Volumes of a pool of type iscsi cannot be deleted"]
    assert "there" not in names(place)


@pytest.mark.parametrize(("kind", "goes"), [("disk", False), ("logical", True)])
def test_what_libvirt_cannot_delete_stays(place, monkeypatch, kind, goes):
    monkeypatch.setattr(sharing, "sharing_reason", lambda path: None)
    pool_of(place, kind).create()
    assert remove(place, purge=True, test=True).changes.get("deleted", False) is goes


def test_a_volume_group_that_does_not_run_may_have_volumes(place):
    """Its folder below /dev is there while it runs alone."""
    pool_of(place, "logical", "/dev/gone")
    with pytest.raises(errors.InvalidInput, match="is not active, so its volumes are unknown"):
        remove(place, purge=True)


def made(place, persistent):
    if persistent:
        return place.pool("there", place.above.parent, start=True)
    target = f"<target><path>{place.above.parent}</path></target>"
    return place.conn.storagePoolCreateXML(f"<pool type='dir'><name>there</name>{target}</pool>")


@pytest.mark.parametrize("persistent", [True, False])
def test_a_pool_that_cannot_be_deleted_runs_again(place, monkeypatch, caplog, persistent):
    """One that is transient is gone when it is stopped."""
    pool = made(place, persistent)

    def fail(_pool):
        raise errors.OperationFailed("busy")

    monkeypatch.setattr(pool_state.pools, "delete", fail)
    with pytest.raises(errors.OperationFailed, match="busy"):
        remove(place, purge=True)
    assert ("there" in names(place)) is persistent
    assert not persistent or pool.isActive()
    assert "could not undo" not in caplog.text


@pytest.mark.parametrize("purge", [True, False])
@pytest.mark.parametrize("persistent", [True, False])
def test_the_secret_of_a_pool_goes_with_its_definition(place, monkeypatch, persistent, purge):
    made(place, persistent)
    told = []
    monkeypatch.setattr(secret, "forget_for_pool", lambda conn, pool: told.append(pool.name))
    remove(place, purge=purge)
    assert (told, "there" in names(place)) == (["there"], False)


def test_of_two_pools_that_have_nothing_of_each_other_one_goes(place, pool):
    (place.root / "data2").mkdir()
    place.pool("beside", place.root / "data2")
    place.conn.storagePoolDefineXML(
        "<pool type='rbd'><name>far</name><source><host name='h'/><name>p</name></source></pool>"
    )
    assert remove(place, purge=True).changes["deleted"] is True
    assert names(place) >= {"beside", "far"}


def test_folders_of_another_machine_are_not_looked_at(place, pool, monkeypatch):
    (place.root / "same").symlink_to(place.base.parent)
    place.pool("same", place.root / "same")
    monkeypatch.setattr(pool_state.connection, "is_local", lambda conn: False)
    pool_state._refuse_nested(place.conn, pool)


@pytest.mark.parametrize("test", [True, False])
def test_what_others_need_of_a_pool_is_no_reason_where_it_is_forced(place, pool, test):
    create(place.base.parent / "over.qcow2", place.base)
    words = r"base.raw in there: it is the backing file of .*over.qcow2"
    with pytest.raises(errors.InvalidInput, match=words):
        remove(place, purge=True, test=test)
    found = remove(place, purge=True, force=True, test=test)
    assert found.changes["deleted_volumes"] == ["base.raw"]


@pytest.mark.parametrize(("kind", "local"), [("disk", True), ("dir", False)])
def test_a_link_is_a_folder_of_this_host_alone(place, monkeypatch, kind, local):
    (place.root / "there").symlink_to(place.above.parent)
    monkeypatch.setattr(sharing, "sharing_reason", lambda path: None)
    pool_of(place, kind, place.root / "there").create()
    monkeypatch.setattr(pool_state.connection, "is_local", lambda conn: local)
    found = remove(place, purge=True, test=True, force=True)
    assert ("deleted" in found.changes, found.notes) == (kind == "dir", [])


def test_to_know_which_guests_have_it_no_image_is_read(place, pool, monkeypatch):
    monkeypatch.setattr(usage._UsageReader, "pool", None)
    assert volumes.users_of_pool(place.conn, pool) == ([], [])
    [one] = pool.listAllVolumes()
    assert volumes.users(place.conn, one)[0].guests([str(place.base)]) == []


# -- a volume -----------------------------------------------------------------------------


def test_a_volume_that_nobody_needs_goes(place, pool):
    assert volumes.delete(place.conn, "there", "base.raw") is True
    assert pool.listVolumes() == []


@pytest.mark.parametrize(
    ("held", "others", "words"),
    [
        ("it is open", None, "volume base.raw in there: it is open; force=True deletes it"),
        (None, "nfs4 at /x", r"other hosts may use it \(nfs4 at /x\) and were not asked"),
        ("it is open", "nfs4 at /x", "base.raw in there: it is open; force=True"),
    ],
)
def test_a_volume_stays_while_it_is_open_or_others_may_have_it(
    place, pool, monkeypatch, held, others, words
):
    monkeypatch.setattr(usage, "open_reason", lambda conn, path: held)
    monkeypatch.setattr(sharing, "sharing_reason", lambda path: others)
    with pytest.raises(errors.InvalidInput, match=words):
        volumes.delete(place.conn, "there", "base.raw")
    with pytest.raises(errors.InvalidInput, match=words):
        volumes.delete_all(place.conn, "there", ["base.raw"])
    assert pool.listVolumes() == ["base.raw"]
    volumes.delete_all(place.conn, "there", ["base.raw"], force=True)
    assert pool.listVolumes() == []


def test_a_volume_that_others_may_have_is_not_written_over(place, pool, monkeypatch, tmp_path):
    monkeypatch.setattr(sharing, "sharing_reason", lambda path: "nfs4 at /x")
    new, words = tmp_path / "new", r"overwrite volume base\.raw in there: other .*force=True"
    new.write_bytes(b"new")
    size, before = pool.storageVolLookupByName("base.raw").info()[1], place.base.read_bytes()
    with pytest.raises(errors.InvalidInput, match=words):
        upload.upload(place.conn, "there", "base.raw", str(new), upload.UploadRange())
    with pytest.raises(errors.InvalidInput, match=words):
        volumes.resize(place.conn, "there", "base.raw", size - 512, shrink=True)
    spec = parse("base.raw", "512B", format="raw", permissions={"mode": "0640"})
    monkeypatch.setattr(volumes, "resize", pytest.fail)
    mode = place.base.stat().st_mode
    for test in (True, False):
        with pytest.raises(errors.InvalidInput, match=words):
            desired = DesiredVolume("there", spec, shrink=True)
            volume_state.converge(place.conn, desired, test)
    assert place.base.stat().st_mode == mode
    assert place.base.read_bytes() == before


def test_who_uses_it_is_said_before_who_has_it_open(place, pool, monkeypatch):
    place.guest(disk(place.base, "raw"))
    monkeypatch.setattr(usage, "open_reason", lambda conn, path: "it is open")
    with pytest.raises(errors.InvalidInput, match="the backing file of a disk, of web1"):
        volumes.delete(place.conn, "there", "base.raw")


def test_a_volume_and_what_stands_on_it_go_together_alone(place, pool):
    over = create(place.base.parent / "over.qcow2", place.base)
    volume(pool, "over.qcow2")
    words = f"volume base.raw in there: it is the backing file of {over}; force=True deletes it"
    with pytest.raises(errors.InvalidInput, match=words):
        volumes.delete(place.conn, "there", "base.raw")
    with pytest.raises(errors.InvalidInput, match=words):
        volumes.delete_all(place.conn, "there", ["base.raw"])
    volumes.delete_all(place.conn, "there", ["base.raw", "over.qcow2"])
    assert pool.listVolumes() == []


def test_nobody_opens_it_while_it_goes(place, pool, monkeypatch):
    taken = []

    @contextlib.contextmanager
    def closed(path):
        taken.append(path)
        yield False
        taken.append("let go")

    monkeypatch.setattr(unchanged_disks, "prevent_open", closed)
    [one] = pool.listAllVolumes()
    with volumes.ensure_unused(place.conn, "there", [one]):
        assert taken == [str(place.base)]
    assert taken == [str(place.base), "let go"]
    volumes.refuse_used(place.conn, "there", [one])
    assert pool.listVolumes() == ["base.raw"]


def test_a_pool_that_a_guest_has_a_disk_in_is_not_deleted(place, pool):
    place.guest(disk(place.base, "raw"))
    pool.destroy()
    with pytest.raises(errors.InvalidInput, match="storage pool there has volumes of web1"):
        volumes.delete_pool(place.conn, pool)
    place.conn.lookupByName("web1").undefine()
    assert volumes.delete_pool(place.conn, pool) is True


def test_of_a_pool_that_runs_libvirt_deletes_nothing(place, monkeypatch):
    """It says so itself."""
    made = pool_of(place, "logical", "/dev/there")
    made.create()
    monkeypatch.setattr(sharing, "sharing_reason", lambda path: "its device")
    with pytest.raises(errors.OperationFailed, match="is active"):
        volumes.delete_pool(place.conn, made)


def test_what_is_read_of_a_volume_without_a_guest(place, pool):
    [one] = pool.listAllVolumes()
    used, keys = volumes.users(place.conn, one)
    assert (str(place.base) in keys, used.guests(keys)) == (True, [])
    place.guest(disk(place.base, "raw"))
    used, keys = volumes.users(place.conn, one)
    assert used.guests(keys) == ["web1"]
