"""Pools and volumes with libvirt's test driver; tests/integration has real disks."""

import os

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from salt.exceptions import CommandExecutionError

from saltvirt import errors
from saltvirt.host.storage import pool_source, pool_state, sharing, volume_content, volume_state
from saltvirt.host.storage import pools as host_pools
from saltvirt.host.storage import volumes as host_volumes
from saltvirt.spec import pool as pool_spec
from saltvirt.spec import volume as volume_spec
from saltvirt.states import pools
from saltvirt.states import volumes as volumes_state

TARGET = {"target": "/srv/lab"}


@pytest.fixture(autouse=True)
def only_default(conn):
    """No pool but the test driver's own, which is empty, before and after."""
    yield conn
    for pool in conn.listAllStoragePools():
        if not pool.isActive():
            pool.create()
        for volume in pool.listAllVolumes():
            volume.delete()
        if pool.name() != "default-pool":
            persistent = pool.isPersistent()
            pool.destroy()
            if persistent:
                pool.undefine()


def names(conn):
    return sorted(pool.name() for pool in conn.listAllStoragePools())


def xml(conn, name="lab"):
    return conn.storagePoolLookupByName(name).XMLDesc()


def volumes_of(conn, name="default-pool"):
    return sorted(conn.storagePoolLookupByName(name).listVolumes())


def test_reading(virt, conn):
    pool = conn.storagePoolLookupByName("default-pool")
    assert virt["virt.list_pools"]() == ["default-pool"]
    assert virt["virt.pool_get_xml"]("default-pool") == pool.XMLDesc()
    assert virt["virt.pool_list_volumes"]("default-pool") == []
    assert virt["virt.pool_info"]() == {
        "default-pool": {
            "uuid": pool.UUIDString(), "state": "running", "capacity": pool.info()[1],
            "allocation": 0, "free": pool.info()[3], "autostart": False, "persistent": True,
            "pending": False, "target_path": "/default-pool", "type": "dir",
        }
    }  # fmt: skip


def test_a_host_without_pools(empty):
    assert empty["virt.list_pools"]() == []
    assert empty["virt.pool_info"]() == {}
    assert empty["virt.volume_infos"]() == {}


def test_what_is_not_there(virt):
    assert virt["virt.pool_info"]("nosuch") == {}
    assert virt["virt.volume_infos"]("nosuch") == {}
    assert virt["virt.volume_infos"]("default-pool", "nosuch") == {}
    for function in (
        *("get_xml", "start", "stop", "build", "undefine", "delete", "refresh"),
        *("set_autostart", "list_volumes"),
    ):
        with pytest.raises(CommandExecutionError, match=r"no storage pool 'nosuch' on .*default"):
            virt[f"virt.pool_{function}"]("nosuch")
    with pytest.raises(CommandExecutionError, match="no volume 'x' in storage pool default-pool"):
        virt["virt.volume_delete"]("default-pool", "x")


@pytest.mark.parametrize("start", [True, False])
def test_define(virt, conn, start):
    assert virt["virt.pool_define"]("lab", "dir", start=start, **TARGET) is True
    pool = conn.storagePoolLookupByName("lab")
    assert (bool(pool.isActive()), bool(pool.isPersistent())) == (start, True)
    with pytest.raises(CommandExecutionError, match="storage pool lab already exists"):
        virt["virt.pool_define"]("lab", "dir", **TARGET)


def test_define_transient(virt, conn):
    virt["virt.pool_define"]("lab", "dir", transient=True, **TARGET)
    pool = conn.storagePoolLookupByName("lab")
    assert pool.isActive()
    assert not pool.isPersistent()


@pytest.mark.parametrize(
    ("ptype", "arguments", "error"),
    [
        ("dri", TARGET, "dri"),
        ("dir", {}, "needs target"),
        ("dir", {"target": "srv"}, "absolute path"),
        ("dir", {**TARGET, "permissions": {"mode": "9"}}, "octal"),
        ("dir", {**TARGET, "permissions": {"ower": 1}}, "owner"),
        ("netfs", TARGET, "needs source"),
        ("dir", {**TARGET, "colour": "red"}, "unknown argument: colour"),
    ],
)
def test_define_refuses(virt, conn, ptype, arguments, error):
    with pytest.raises(CommandExecutionError, match=error):
        virt["virt.pool_define"]("lab", ptype, **arguments)
    assert names(conn) == ["default-pool"]


def test_define_without_a_name_is_refused(virt, conn):
    with pytest.raises(CommandExecutionError, match="name is missing"):
        virt["virt.pool_define"](None, "dir", **TARGET)
    assert names(conn) == ["default-pool"]


def test_update_twice_and_with_test(virt, conn):
    virt["virt.pool_define"]("lab", "dir", **TARGET)
    update = virt["virt.pool_update"]
    assert update("lab", "dir", **TARGET) is False
    before = xml(conn)
    assert update("lab", "dir", target="/srv/other", test=True) is True
    assert xml(conn) == before
    with pytest.raises(CommandExecutionError, match="no storage pool 'other'"):
        update("other", "dir", **TARGET)


def test_life(virt, conn):
    virt["virt.pool_define"]("lab", "dir", start=False, **TARGET)
    pool = conn.storagePoolLookupByName("lab")
    assert virt["virt.pool_build"]("lab") is True
    assert virt["virt.pool_start"]("lab") is True
    assert pool.isActive()
    assert virt["virt.pool_build"]("lab") is True  # it runs: there is nothing to build
    assert virt["virt.pool_refresh"]("lab") is True
    with pytest.raises(CommandExecutionError, match=r"cannot delete the resources of .* lab"):
        virt["virt.pool_delete"]("lab")
    for state, on in (("on", 1), (False, 0), (True, 1), ("off", 0)):
        assert virt["virt.pool_set_autostart"]("lab", state) is True
        assert pool.autostart() == on
    assert virt["virt.pool_stop"]("lab") is True
    assert not pool.isActive()
    with pytest.raises(CommandExecutionError, match="volumes of storage pool lab"):
        virt["virt.pool_list_volumes"]("lab")
    assert virt["virt.pool_delete"]("lab") is True
    assert virt["virt.pool_undefine"]("lab") is True
    assert names(conn) == ["default-pool"]


def test_volumes(virt, conn):
    assert virt["virt.volume_define"]("default-pool", "a.raw", 8, allocation="1M") is True
    assert virt["virt.volume_define"]("default-pool", "b.raw", "1G", format="raw") is True
    pool = conn.storagePoolLookupByName("default-pool")
    assert pool.storageVolLookupByName("a.raw").info()[1:] == [8 << 20, 1 << 20]
    assert pool.storageVolLookupByName("b.raw").info()[1:] == [1 << 30, 0]
    assert virt["virt.pool_list_volumes"]("default-pool") == ["a.raw", "b.raw"]
    assert virt["virt.volume_infos"]("default-pool", "a.raw") == {
        "default-pool": {
            "a.raw": {
                "type": "file", "key": "/default-pool/a.raw", "path": "/default-pool/a.raw",
                "capacity": 8 << 20, "allocation": 1 << 20, "used_by": [],
                "backing_store": None, "format": "raw",
            }
        }
    }  # fmt: skip
    with pytest.raises(CommandExecutionError, match=r"already exists|already exists"):
        virt["virt.volume_define"]("default-pool", "a.raw", 8)
    assert virt["virt.volume_clone"]("default-pool", "a.raw", "c.raw") is True
    assert pool.storageVolLookupByName("c.raw").info()[1] == 8 << 20
    assert virt["virt.volume_delete"]("default-pool", "a.raw") is True
    assert volumes_of(conn) == ["b.raw", "c.raw"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"name": "a", "size": 0}, "size"),
        ({"name": "../a", "size": 8}, "volume's name"),
        ({"name": "a", "size": 8, "allocation": 9}, "allocation is more than size"),
        ({"name": "a", "size": 8, "backing_store": {"path": "/x"}}, "format are needed"),
        ({"name": "a", "size": 8, "pool": "nosuch"}, "no storage pool 'nosuch'"),
    ],
)
def test_volume_define_refuses(virt, conn, arguments, error):
    with pytest.raises(CommandExecutionError, match=error):
        virt["virt.volume_define"](**{"pool": "default-pool", **arguments})
    assert volumes_of(conn) == []


def test_volumes_from_xml(virt, conn, tmp_path):
    text = "<volume><name>{}</name><capacity>1024</capacity></volume>"
    assert virt["virt.define_vol_xml_str"](text.format("x"), "default-pool") is True
    (tmp_path / "v.xml").write_text(text.format("y"))
    assert virt["virt.define_vol_xml_path"](str(tmp_path / "v.xml"), pool="default-pool") is True
    assert volumes_of(conn) == ["x", "y"]
    with pytest.raises(CommandExecutionError, match="no storage pool 'default' on"):
        virt["virt.define_vol_xml_str"](text.format("z"))
    with pytest.raises(CommandExecutionError, match="/nowhere"):
        virt["virt.define_vol_xml_path"]("/nowhere", pool="default-pool")


def test_a_volume_of_a_guest_is_not_deleted_unless_forced(virt, conn):
    """Also not when the guest names it by pool and volume, or as a part of its disk."""
    virt["virt.volume_define"]("default-pool", "a.raw", 8)
    virt["virt.volume_define"]("default-pool", "b.raw", 8)
    disks = (
        "<disk type='file'><source file='/default-pool/a.raw'/><target dev='vdx'/></disk>"
        "<disk type='volume'><source pool='default-pool' volume='b.raw'/>"
        "<target dev='vdy'/></disk>"
    )
    text = conn.lookupByName("test").XMLDesc()
    text = text.replace("<name>test<", "<name>web1<").replace("6695eb01", "6695eb02")
    conn.defineXML(text.replace("</devices>", disks + "</devices>"))
    found = virt["virt.volume_infos"]()["default-pool"]
    assert {name: volume["used_by"] for name, volume in found.items()} == {
        "a.raw": ["web1"],
        "b.raw": ["web1"],
    }
    for name in ("a.raw", "b.raw"):
        with pytest.raises(CommandExecutionError, match="the backing file of a disk, of web1"):
            virt["virt.volume_delete"]("default-pool", name)
    assert virt["virt.volume_delete"]("default-pool", "a.raw", force=True) is True
    assert volumes_of(conn) == ["b.raw"]
    conn.lookupByName("web1").undefine()


def test_a_pool_that_does_not_run(virt, conn):
    virt["virt.pool_define"]("lab", "dir", start=False, **TARGET)
    assert virt["virt.pool_info"]("lab")["lab"]["state"] == "inactive"
    assert list(virt["virt.volume_infos"]()) == []
    with pytest.raises(CommandExecutionError, match=r"storage pool lab on .* is not running"):
        virt["virt.volume_delete"]("lab", "x")


def test_a_flag_that_is_the_text_false_is_no_permission(virt, conn):
    virt["virt.volume_define"]("default-pool", "a.raw", 8)
    found = virt["virt.pool_remove"]("default-pool", purge="False", test=True)
    assert "deleted_volumes" not in found["changes"]
    with pytest.raises(CommandExecutionError, match="shrink=True"):
        virt["virt.volume_resize"]("default-pool", "a.raw", 4, shrink="False")
    calls = (
        ("volume_delete", "default-pool", "a.raw", "x"),
        ("volume_remove", "default-pool", "a.raw", "x"),
        ("pool_remove", "default-pool", False, "x"),
        ("pool_build", "default-pool", "x"),
        ("network_remove", "default", "x"),
        ("network_remove", "default", False, "x"),
        ("pool_remove", "default-pool", False, False, "x"),
    )
    for function, *given in calls:
        with pytest.raises(CommandExecutionError, match="'x' is not true or false"):
            virt[f"virt.{function}"](*given)


def test_an_upload_of_what_is_not_there(virt, conn):
    virt["virt.volume_define"]("default-pool", "a.raw", 8)
    with pytest.raises(CommandExecutionError, match="cannot read /nowhere"):
        virt["virt.volume_upload"]("default-pool", "a.raw", "/nowhere")
    with pytest.raises(CommandExecutionError, match="size"):
        virt["virt.volume_resize"]("default-pool", "a.raw", "big")
    with pytest.raises(CommandExecutionError, match="libvirt rejects this argument: int too big"):
        virt["virt.volume_resize"]("default-pool", "a.raw", 2**44)
    with pytest.raises(CommandExecutionError, match="shrink=True"):
        virt["virt.volume_resize"]("default-pool", "a.raw", 4)


def test_a_disk_whose_volume_is_gone_cannot_grow(virt, conn):
    disk = (
        "<disk type='volume'><source pool='default-pool' volume='gone'/><target dev='vdy'/></disk>"
    )
    text = conn.lookupByName("test").XMLDesc()
    text = text.replace("<name>test<", "<name>web1<").replace("6695eb01", "6695eb02")
    conn.defineXML(text.replace("</devices>", disk + "</devices>"))
    with pytest.raises(CommandExecutionError, match="vdy of web1: no volume gone"):
        virt["virt.resize_disk"]("web1", "vdy", 8)
    conn.lookupByName("web1").undefine()


class MadeTransient:
    """A pool that somebody else makes transient just before it is asked whether it is."""

    def __init__(self, conn, pool):
        self.conn, self.pool = conn, pool

    def __getattr__(self, name):
        return getattr(self.pool, name)

    def isPersistent(self):
        if not self.pool.isActive():
            text = self.pool.XMLDesc()
            self.pool.undefine()
            self.conn.storagePoolCreateXML(text)
        return self.pool.isPersistent()


def test_a_pool_that_becomes_transient_while_it_is_removed(conn, monkeypatch):
    text = "<pool type='dir'><name>lab</name><target><path>/srv/lab</path></target></pool>"
    found = MadeTransient(conn, conn.storagePoolDefineXML(text))
    monkeypatch.setattr(pool_state.pools, "lookup", lambda *_: found)
    assert pool_state.remove(conn, "lab").changes == {"stopped": True, "undefined": True}
    assert names(conn) == ["default-pool"]


@pytest.mark.parametrize("devices", ["", "<device path='/dev/lun'/>"])
def test_what_other_hosts_may_have_is_not_deleted_with_its_pool(conn, monkeypatch, devices):
    """A volume group without volumes, on a device of a storage network."""
    place = "/dev/lun" if devices else "/dev/vg"
    text = (
        f"<pool type='logical'><name>vg</name><source>{devices}<name>vg</name></source>"
        "<target><path>/dev/vg</path></target></pool>"
    )
    monkeypatch.setattr(
        sharing, "sharing_reason", lambda path: "its device" if path == place else None
    )
    pool = conn.storagePoolDefineXML(text)
    pool.create()
    for test in (True, False):
        with pytest.raises(errors.InvalidInput, match="pool vg: other hosts may use it"):
            pool_state.remove(conn, "vg", purge=True, test=test)
    assert pool.isActive()
    pool.destroy()
    with pytest.raises(errors.InvalidInput, match="pool vg: other hosts may use it"):
        host_volumes.delete_pool(conn, pool)
    pool.create()
    done = pool_state.remove(conn, "vg", purge=True, force=True)
    assert (done.changes["deleted"], names(conn)) == (True, ["default-pool"])


@pytest.mark.parametrize(("kind", "why"), [("logical", None), ("dir", "nfs4")])
def test_what_a_pool_is_made_of_goes_with_it(conn, monkeypatch, kind, why):
    """Of a pool of files that is its folder, and only an empty one."""
    monkeypatch.setattr(sharing, "sharing_reason", lambda path: why)
    conn.storagePoolDefineXML(
        f"<pool type='{kind}'><name>vg</name><source><name>vg</name></source>"
        "<target><path>/srv/vg</path></target></pool>"
    ).create()
    assert pool_state.remove(conn, "vg", purge=True).changes["deleted"] is True
    assert names(conn) == ["default-pool"]


@pytest.mark.parametrize("there", [True, False])
def test_a_pool_that_does_not_run_is_not_purged_unless_it_is_gone(conn, tmp_path, there):
    """Its volumes are not known. Of one that was being purged the folder is gone."""
    folder = tmp_path / "lab"
    if there:
        folder.mkdir()
    conn.storagePoolDefineXML(
        f"<pool type='dir'><name>lab</name><target><path>{folder}</path></target></pool>"
    )
    if there:
        with pytest.raises(errors.InvalidInput, match=r"lab on .* is not active, so its"):
            pool_state.remove(conn, "lab", purge=True)
        assert names(conn) == ["default-pool", "lab"]
    else:
        assert pool_state.remove(conn, "lab", purge=True).changes == {"undefined": True}
        assert names(conn) == ["default-pool"]


def test_of_a_volume_group_that_does_not_run_nothing_is_known(conn):
    conn.storagePoolDefineXML(
        "<pool type='logical'><name>vg</name><source><name>vg</name></source>"
        "<target><path>/dev/none</path></target></pool>"
    )
    with pytest.raises(errors.InvalidInput, match=r"vg on .* is not active"):
        pool_state.remove(conn, "vg", purge=True)


def test_what_a_server_gives_stays_with_it(conn):
    conn.storagePoolDefineXML(
        "<pool type='iscsi'><name>lun</name><source><host name='nas'/><device path='iqn.x'/>"
        "</source><target><path>/dev/disk/by-path</path></target></pool>"
    ).create()
    done = pool_state.remove(conn, "lun", purge=True)
    assert done.changes == {"stopped": True, "undefined": True}
    assert done.notes == ["Volumes of a pool of type iscsi cannot be deleted"]


def test_of_another_machine_a_pool_may_be_in_the_folder_of_another(conn, monkeypatch):
    """Its files cannot be looked at."""
    for name, folder in (("one", "/srv/lab"), ("two", "/srv/lab/two")):
        conn.storagePoolDefineXML(
            f"<pool type='dir'><name>{name}</name><target><path>{folder}</path></target></pool>"
        )
    pool = conn.storagePoolLookupByName("one")
    with pytest.raises(errors.InvalidInput, match="storage pool two is inside it"):
        pool_state._refuse_nested(conn, pool)
    monkeypatch.setattr(pool_state.connection, "is_local", lambda conn: False)
    pool_state._refuse_nested(conn, pool)


def test_a_pool_that_cannot_be_started_anew_runs_with_what_it_had(virt, conn, monkeypatch):
    virt["virt.pool_define"]("lab", "dir", **TARGET)

    def fails(*_):
        raise errors.OperationFailed("cannot build it")

    monkeypatch.setattr(pool_state.pools, "build", fails)
    spec = pool_spec.parse("lab", "dir", target="/srv/other")
    with pytest.raises(errors.OperationFailed, match="cannot build it"):
        pool_state.converge(conn, pools.DesiredPool("lab", spec, True, False, restart=True))
    assert conn.storagePoolLookupByName("lab").isActive()
    assert "<path>/srv/lab</path>" in xml(conn)


def test_a_pool_of_guests_is_not_deleted(virt, conn):
    disk = "<disk type='volume'><source pool='default-pool' volume='a'/><target dev='vdy'/></disk>"
    text = conn.lookupByName("test").XMLDesc()
    text = text.replace("<name>test<", "<name>web1<").replace("6695eb01", "6695eb02")
    conn.createXML(text.replace("</devices>", disk + "</devices>"))
    virt["virt.volume_define"]("default-pool", "a", 8)
    with pytest.raises(CommandExecutionError, match="default-pool has volumes of web1"):
        virt["virt.pool_delete"]("default-pool")
    with pytest.raises(CommandExecutionError, match="a in default-pool is open in web1: shut it"):
        virt["virt.volume_clone"]("default-pool", "a", "b")
    assert volumes_of(conn) == ["a"]


def test_a_volume_of_a_volume_group_has_all_its_room(virt, conn):
    """With less it would be a snapshot to LVM."""
    conn.storagePoolDefineXML(
        "<pool type='logical'><name>vg</name><source><name>vg</name></source>"
        "<target><path>/dev/vg</path></target></pool>"
    ).create()
    virt["virt.volume_define"]("vg", "lv", 8)
    pool = conn.storagePoolLookupByName("vg")
    assert pool.storageVolLookupByName("lv").info()[1:] == [8 << 20, 8 << 20]
    assert volume_content._free_bytes(pool) == pool.info()[3], "no folder tells its room"


def test_the_permissions_of_a_volume(virt, conn, tmp_path):
    folder = tmp_path / "lab"
    folder.mkdir()
    virt["virt.pool_define"]("lab", "dir", target=str(folder))
    virt["virt.volume_define"]("lab", "a", 8)

    def converge(**given):
        spec = volume_spec.parse("a", 8, permissions=given)
        return volume_state.converge(conn, volumes_state.DesiredVolume("lab", spec))

    with pytest.raises(errors.OperationFailed, match=f"volume a: {folder}/a: No such file"):
        converge(owner=os.geteuid(), mode="0640")
    (folder / "a").touch(0o600)
    with pytest.raises(errors.Unsupported, match=f"label of {folder}/a cannot be changed: use ch"):
        converge(label="system_u:object_r:x_t:s0", mode="0640")
    assert (folder / "a").stat().st_mode & 0o777 == 0o600
    group = 4002 if os.geteuid() == 0 else os.getegid()
    assert set(converge(owner=os.geteuid(), group=group, mode="0640").changes) >= {"mode"}
    there = (folder / "a").stat()
    assert (there.st_uid, there.st_gid, there.st_mode & 0o777) == (os.geteuid(), group, 0o640)


def test_a_connection_that_is_closed_is_not_taken_for_a_pool_that_is_gone():
    closed = libvirt.open("test:///default")
    closed.close()
    with pytest.raises(libvirt.libvirtError, match="invalid connection"):
        host_pools.lookup(closed, "default-pool")


def test_a_secret_that_cannot_be_looked_for_is_named_as_the_pool_does(conn):
    """The test driver has no secrets: on a host that has them it is named by its use."""
    pool = conn.storagePoolDefineXML(
        "<pool type='rbd'><name>far</name><source><host name='mon' port='3300'/><name>rbd</name>"
        "<auth type='ceph' username='salt'><secret uuid='2ec115d7-3a88-3ceb-bc12-0ac909a6fd87'/>"
        "</auth></source></pool>"
    )
    found = pool_source.direct(conn, pool, "web1_vda").server.auth
    assert (found.usage, found.uuid) == (None, "2ec115d7-3a88-3ceb-bc12-0ac909a6fd87")
    assert found.username == "salt"
