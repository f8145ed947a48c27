"""Creating, copying, renaming and changing disks and guests if something is in the way, with
libvirt's test driver and real disks in its pools."""

# ruff: noqa: F811
import contextlib
import os
from xml.etree import ElementTree

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.diff.change import Change
from saltvirt.host.provision import (
    clone,
    disk_build,
    disk_match,
    existing_disk,
    guest_builder,
    guest_tools,
    hotplug,
    image_location,
    images_folder,
    pool_disk,
    rename,
    reservation,
    seed_drive,
    update,
)
from saltvirt.host.provision.admission import AdmissionConfig
from saltvirt.migration import reservation as lasting
from saltvirt.revert import UndoStack
from saltvirt.seed import keys
from saltvirt.spec.deploy import DeploySpec
from saltvirt.spec.disk import DiskSpec
from saltvirt.xml.devices.disk import Disk
from saltvirt.xml.domain.domain import Domain
from tests.functional.host.provision.test_init import MIB, files, host, image, info, names  # noqa: F401
from tests.functional.host.provision.test_update import SYSTEM, guest  # noqa: F401
from tests.functional.host.storage.test_usage import GUEST
from tests.functional.host.storage.test_usage import disk as usage_disk

NO_SEED = "this host cannot seed: pass seed=False"
LOGICAL = (
    "<pool type='logical'><name>vg</name><source><name>vg</name></source>"
    "<target><path>/dev/vg</path></target></pool>"
)


@pytest.fixture(autouse=True)
def only_default(conn):
    """No pool but the test driver's own afterwards, and that one empty."""
    yield
    for pool in conn.listAllStoragePools():
        if pool.name() != "default-pool":
            if pool.isActive():
                pool.destroy()
            with contextlib.suppress(libvirt.libvirtError):
                pool.undefine()
        elif not pool.isActive():
            pool.create()
    for volume in conn.storagePoolLookupByName("default-pool").listAllVolumes():
        volume.delete()


@pytest.fixture
def pool(host, tmp_path):
    """Makes a pool in a real folder: ``pool("p")``, its folder."""

    def make(name):
        folder = tmp_path / name
        folder.mkdir()
        host.conn.storagePoolCreateXML(
            f"<pool type='dir'><name>{name}</name><target><path>{folder}</path></target></pool>"
        )
        return folder

    return make


def volume(host, pool, name, content=bytes(MIB)):
    """A volume that libvirt knows, with its file."""
    found = host.conn.storagePoolLookupByName(pool)
    found.createXML(f"<volume><name>{name}</name><capacity>{MIB}</capacity></volume>")
    path = found.storageVolLookupByName(name).path()
    with open(path, "wb") as file:
        file.write(content)
    return path


def tree(host, name):
    return ElementTree.fromstring(host.conn.lookupByName(name).XMLDesc())


def tools(host, **more):
    return guest_builder.Tools(AdmissionConfig(lambda *_: None, str(host.images)), **more)


# -- who seeds ----------------------------------------------------------------------------


def test_where_nothing_seeds_that_is_said_before_anything_is_made(host, image):
    with pytest.raises(errors.VirtError, match=NO_SEED):
        host.init(image=image, seed=True, seed_cmd="no.such")
    assert (names(host), files(host)) == (["test"], [])
    host.init("web1", image=image)
    dom = host.conn.lookupByName("web1")
    wanted = guest_builder.GuestRequest("web2", seed=True)
    with pytest.raises(errors.Unsupported, match=NO_SEED):
        clone.CloneBuilder(host.conn, dom, wanted, tools(host)).check()
    with pytest.raises(errors.Unsupported, match=NO_SEED):
        rename.GuestRename(host.conn, dom, wanted, tools(host)).check()
    with pytest.raises(errors.Unsupported, match=NO_SEED):
        tools(host).seed("web2", "/x", "raw", [])


def test_a_guest_that_is_planned_is_not_seeded():
    with pytest.raises(errors.OperationFailed, match="a planned guest is not seeded"):
        guest_builder.refuse_seeding("web1", "/x", "raw", [])


@pytest.mark.parametrize("own", [True, False])
def test_another_function_seeds_as_it_was_called_by_salt_3007(own):
    called = []
    functions = {"my.seed": lambda path, **more: called.append((path, more))}
    private, public = keys.generate() if own else (None, None)
    deploy = DeploySpec.parse(
        {"seed_cmd": "my.seed", "config": {"a": 1}, "priv_key": private, "pub_key": public}, "init"
    )
    minion = guest_tools.MinionTools(functions, {}, None, None)
    told = minion._seeder(deploy, None, None, print)("web1", "/vm/web1", "raw", [])
    [(path, more)] = called
    assert (path, more["id_"], more["config"], more["install"]) == (
        *("/vm/web1", "web1", {"a": 1}, True),
    )
    assert keys.public_of(more["priv_key"]).strip() == more["pub_key"].strip() == told.strip()
    assert not own or more["priv_key"] == private
    other = DeploySpec.parse({"seed_cmd": "no.seed"}, "init")
    assert minion._seeder(other, None, None, print) is None


def test_user_data_that_the_master_lacks_is_named():
    functions = {"cp.get_template": lambda *_args, **_more: ""}
    deploy = DeploySpec.parse({"seed": "cloud-init", "user_data": "salt://none"}, "init")
    minion = guest_tools.MinionTools(functions, {}, None, None)
    with pytest.raises(errors.NotFound, match="user_data salt://none does not exist or cannot be"):
        minion._user_data(deploy, "web1", [])


# -- a copy -------------------------------------------------------------------------------


@pytest.fixture
def web1(host, image):
    """A stopped guest with a disk of its own."""
    host.init("web1", image=image, disks=[{"name": "system", "size": 16, "format": "raw"}])
    return host


def with_disk(host, xml, name="web1"):
    text = host.conn.lookupByName(name).XMLDesc()
    return host.conn.defineXML(text.replace("</devices>", f"{xml}</devices>", 1))


def test_a_clone_of_volumes_and_of_disks_of_other_names(web1, pool, tmp_path):
    folder = pool("p")
    volume(web1, "p", "web1_data.raw", b"data" * 1000)
    (tmp_path / "lent.img").write_bytes(b"lent" * 1000)
    cached = web1.images / "_base"
    cached.mkdir(exist_ok=True)
    (cached / "web1_x.raw").write_bytes(b"base" * 1000)
    for target, kind, source in (
        ("vdb", "volume", "pool='p' volume='web1_data.raw'"),
        ("vdc", "file", f"file='{tmp_path}/lent.img'"),
        ("vdd", "file", f"file='{cached}/web1_x.raw'"),
    ):  # fmt: skip
        with_disk(web1, f"<disk type='{kind}'><source {source}/><target dev='{target}'/></disk>")
    with_disk(web1, "<graphics type='vnc' port='5907' autoport='no'/>")
    places = {
        "vda": str(web1.images / "web2_system.raw"), "vdb": "p/web2_data.raw",
        "vdc": f"{tmp_path}/web2_vdc.img", "vdd": str(web1.images / "web2_x.raw"),
    }  # fmt: skip
    before = files(web1)
    assert web1.modules["virt.clone"]("web1", "web2", test=True) == {"disks": places}
    assert files(web1) == before
    web1.modules["virt.clone"]("web1", "web2")
    made = tree(web1, "web2")
    [source] = made.findall("devices/disk[@type='volume']/source")
    assert (source.get("pool"), source.get("volume")) == ("p", "web2_data.raw")
    assert (folder / "web2_data.raw").read_bytes()[:4000] == b"data" * 1000
    assert (tmp_path / "web2_vdc.img").read_bytes()[:4000] == b"lent" * 1000
    graphics = made.find("devices/graphics")
    assert (graphics.get("port"), graphics.get("autoport")) == ("-1", "yes")
    own = [one for one in made.iter() if one.tag.endswith("}disk")]
    assert {(one.get("pool"), one.get("volume")) for one in own} >= {("p", "web2_data.raw")}
    with pytest.raises(errors.VirtError, match=r"disk vdc: web3_vdc\.img already exists"):
        (tmp_path / "web3_vdc.img").touch()
        web1.modules["virt.clone"]("web1", "web3")


def test_a_disk_that_is_neither_a_file_nor_a_volume_is_not_cloned(web1):
    with_disk(web1, "<disk type='block'><source dev='/dev/vg/none'/><target dev='vdb'/></disk>")
    with pytest.raises(
        errors.Unsupported, match=r"disk vdb of web1 is on /dev/vg/none: only files"
    ):
        web1.modules["virt.clone"]("web1", "web2")
    assert pool_disk.volume_of_path(web1.conn, "/dev/vg/none") == (None, None)
    found = web1.conn.storagePoolLookupByName("default-pool")
    found.createXML("<volume><name>v</name><capacity>1024</capacity></volume>")
    assert pool_disk.volume_of_path(web1.conn, "/default-pool/v") == ("default-pool", "v")


def test_a_clone_that_is_seeded_has_no_addresses_of_its_own(web1):
    seeded = []
    wanted = guest_builder.GuestRequest("web2", seed=True)
    with_tools = tools(web1, seeder=lambda *given: seeded.append(given) or "PEM")
    with_tools.admission_config = AdmissionConfig(
        lambda key, default=None: str(web1.images.parent / "lock") if "lock" in key else default,
        str(web1.images), overcommit=True,
    )  # fmt: skip
    made = clone.clone(web1.conn, "web1", wanted, with_tools)
    assert made.pub_key == "PEM"
    assert seeded == [("web2", str(web1.images / "web2_system.raw"), "raw", [])]


# -- another name -------------------------------------------------------------------------


def test_the_volumes_of_a_guest_get_its_new_name_and_no_others(web1, pool):
    """Also not one of that very name in another pool."""
    for name in ("one", "two"):
        folder = pool(name)
        volume(web1, name, "web1_data.raw", name.encode())
        target = {"one": "vdb", "two": "vdc"}[name]
        with_disk(
            web1,
            f"<disk type='volume'><source pool='{name}' volume='web1_data.raw'/>"
            f"<target dev='{target}'/></disk>",
        )
    own = '<saltvirt:disk target="vdb" pool="one" volume="web1_data.raw"/>'
    own += f'<saltvirt:disk target="vdd" path="{folder}/other.raw"/></saltvirt:guest>'
    text = web1.conn.lookupByName("web1").XMLDesc()
    web1.conn.defineXML(text.replace("</saltvirt:guest>", own))
    (folder / "other.raw").touch()
    web1.modules["virt.rename"]("web1", "web2")
    found = {
        source.get("pool"): source.get("volume")
        for source in tree(web1, "web2").findall("devices/disk[@type='volume']/source")
    }
    assert found == {"one": "web2_data.raw", "two": "web1_data.raw"}
    assert sorted(os.listdir(folder)) == ["other.raw", "web1_data.raw"]
    assert os.listdir(folder.parent / "one") == ["web2_data.raw"]


# -- new disks ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "kind", "why"),
    [
        ([{"name": "cd", "device": "cdrom", "source_file": "/nowhere/x.iso"}], "NotFound",
         "disk cd: /nowhere/x.iso does not exist on this host"),
        ([{"name": "system", "source_file": "BASE", "image": "BASE"}], "AlreadyExists",
         "disk system: .*base.raw already exists and image would overwrite it"),
        ([{"name": "a", "size": 1, "source_file": "FOLDER/x"},
          {"name": "b", "size": 1, "source_file": "FOLDER/x"}], "InvalidInput",
         "two disks have the same path, .*/x"),
        ([{"name": "d", "size": 1, "pool": "off"}], "OperationFailed",
         "storage pool off is not started"),
        ([{"name": "d", "device": "cdrom", "pool": "default-pool", "source_file": "no.iso"}],
         "NotFound", r"disk d: pool default-pool has no volume no\.iso"),
        ([{"name": "d", "pool": "far", "image": "BASE"}], "Unsupported",
         "disk d: a pool of type rbd cannot store an image: far"),
    ],
)  # fmt: skip
def test_a_disk_that_cannot_be_is_refused_and_nothing_changes(host, image, asked, kind, why):
    for xml in (
        "<pool type='dir'><name>off</name><target><path>/srv/off</path></target></pool>",
        "<pool type='rbd'><name>far</name><source><host name='mon'/><name>rbd</name></source>"
        "</pool>",
    ):
        host.conn.storagePoolDefineXML(xml)
    host.conn.storagePoolLookupByName("far").create()
    places = {"BASE": image, "FOLDER/x": f"{host.images}/x"}
    given = [{key: places.get(value, value) for key, value in one.items()} for one in asked]
    with pytest.raises(errors.VirtError, match=why) as caught:
        host.init(disks=given)
    assert type(caught.value).__name__ == kind
    assert (names(host), files(host)) == (["test"], [])


@pytest.mark.parametrize(
    ("kind", "source", "is_block"),
    [
        ("logical", "<name>vg</name>", True),
        ("iscsi", "<host name='nas'/><device path='iqn.2026-01.org.example:a'/>", True),
        ("dir", "", False),
        ("rbd", "<host name='mon'/><name>rbd</name>", False),
    ],
)
def test_a_volume_is_a_block_device_where_its_pool_says_so(conn, kind, source, is_block):
    target = "<target><path>/srv/p</path></target>"
    pool = conn.storagePoolDefineXML(
        f"<pool type='{kind}'><name>p</name><source>{source}</source>{target}</pool>"
    )
    pool.create()
    try:
        planned = pool_disk.plan(conn, DiskSpec(name="d", pool="p", device="disk"), "g1", "qcow2")
        build = disk_build.DiskBuild(DiskSpec(name="d"), **planned)
        assert bool(build.source.block) is is_block
    finally:
        pool.destroy()
        pool.undefine()


def test_an_empty_disk_stands_on_what_the_operator_names(host, image):
    base = {"backing_store_path": image, "backing_store_format": "raw"}
    host.init(disks=[{"name": "d", "size": 16, "format": "qcow2", **base}])
    found = info(str(host.images / "g1_d.qcow2"))
    assert (found["backing-filename"], found["backing-filename-format"]) == (image, "raw")
    host.init("g2", disks=[{"name": "d", "size": 16, "pool": "default-pool", **base}])
    made = host.conn.storagePoolLookupByName("default-pool").storageVolLookupByName("g2_d")
    root = ElementTree.fromstring(made.XMLDesc())
    assert root.findtext("backingStore/path") == image


def test_a_disk_without_a_place_is_named():
    with pytest.raises(errors.OperationFailed, match="disk d has no path"):
        _ = disk_build.DiskBuild(DiskSpec(name="d")).file


def test_a_plain_file_is_raw_and_one_that_cannot_be_read_is_refused(host, tmp_path, monkeypatch):
    path = tmp_path / "data.img"
    path.write_bytes(bytes(MIB))
    spec = DiskSpec(name="data", device="disk")
    assert existing_disk.format_of(host.conn, spec, str(path)) == "raw"

    def fails(_path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(existing_disk.header, "looks_like", fails)
    with pytest.raises(errors.InvalidInput, match=f"disk data: cannot read {path}: Permission den"):
        existing_disk.format_of(host.conn, spec, str(path))


def test_a_partition_is_called_as_the_next_of_its_disk(conn):
    found = conn.storagePoolCreateXML(
        "<pool type='disk'><name>sd</name><source><device path='/dev/sdx'/>"
        "<format type='gpt'/></source><target><path>/dev</path></target></pool>"
    )
    assert pool_disk._partition(found, found.listVolumes()) == "sdx1"
    for name in ("sdx1", "sdx10"):
        found.createXML(f"<volume><name>{name}</name><capacity>1024</capacity></volume>")
    assert pool_disk._partition(found, found.listVolumes()) == "sdx11"
    assert pool_disk._partition(found, ["sdx1"]) == "sdx2", "one that is removed before"


def test_an_image_goes_onto_a_volume_of_devices_as_its_bare_bytes(conn, monkeypatch):
    conn.storagePoolCreateXML(LOGICAL)
    copied, undo = [], UndoStack()
    monkeypatch.setattr(
        pool_disk.clone, "clone", lambda *given, **more: copied.append((given, more["size_bytes"]))
    )
    work = disk_build.DiskBuild(
        DiskSpec(name="d", size_bytes=MIB), make=True, format="raw", pool="vg", volume="web1_d"
    )
    work.image = "an image"
    pool_disk.make(conn, work, undo)
    assert copied == [(("an image", "/dev/vg/web1_d", "raw"), MIB)]
    made = conn.storagePoolLookupByName("vg").storageVolLookupByName("web1_d")
    assert made.info()[1:] == [MIB, MIB]


def test_an_image_of_a_pool_whose_volumes_are_nowhere_here_is_refused(conn):
    found = conn.storagePoolLookupByName("default-pool")
    found.createXML("<volume><name>v</name><capacity>1024</capacity></volume>")
    with pytest.raises(errors.Unsupported, match="a file or device on this host, but /default"):
        image_location.find(conn, "pool://default-pool/v")


def test_where_images_are_cached_when_disks_go_to_a_pool_of_devices(conn):
    conn.storagePoolCreateXML(LOGICAL)
    settings = {"virt:images": "vg", "virt:connection:uri": "test:///default"}
    found = images_folder.configured(lambda key, default=None: settings.get(key, default))
    assert (found.folder, found.pool) == (images_folder.settings.IMAGES_FOLDER, "vg")


# -- what a failure leaves ----------------------------------------------------------------


def test_a_leftover_of_which_a_disk_may_be_needed_stays_whole(host, image):
    host.init(image=image)
    text = host.conn.lookupByName("g1").XMLDesc()
    host.conn.defineXML(text.replace('created="', 'creating="1:1:dead" created="'))
    host.conn.storagePoolDefineXML(
        "<pool type='netfs'><name>nas</name><source><host name='nas'/><dir path='/x'/></source>"
        "<target><path>/mnt/none</path></target></pool>"
    )
    with pytest.raises(
        errors.VirtError, match=r"g1 was partially created .*g1_system\.qcow2 is kept"
    ):
        host.init(image=image)
    assert files(host) == ["g1_system.qcow2"]
    assert "creating" in host.conn.lookupByName("g1").XMLDesc()


def test_a_guest_that_was_started_and_failed_after_that_is_ended(host, image, monkeypatch):
    def fails(*_):
        raise errors.OperationFailed("nobody can say how it is")

    monkeypatch.setattr(guest_builder.GuestBuilder, "result", fails)
    with pytest.raises(errors.VirtError, match="nobody can say how it is"):
        host.init(image=image, start=True)
    assert (names(host), files(host)) == (["test"], [])


def test_room_that_cannot_be_written_down_is_none(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(
        errors.OperationFailed, match=r"cannot record the reservation for web1: .*dir"
    ):
        reservation.GrowthReservation("web1", folder=str(tmp_path / "file" / "in"))
    room = reservation.GrowthReservation("web1", folder=str(tmp_path / "room"))
    [path] = (tmp_path / "room").iterdir()
    os.utime(path, (1, 1))
    room.renew()
    assert path.stat().st_mtime == 1, "it was made just now"
    monkeypatch.setattr(lasting, "RENEW_S", -1)
    room.renew()
    assert path.stat().st_mtime > 1
    room.release()
    room.renew()


def test_the_volume_for_cloud_init_leaves_a_running_guest(host, image, monkeypatch):
    host.init("web1", image=image)
    path = seed_drive.path(str(host.images), "web1")
    os.makedirs(os.path.dirname(path))
    with open(path, "wb") as file:
        file.write(bytes(2048))
    dom = with_disk(
        host,
        f"<disk type='file' device='cdrom'><source file='{path}'/><target dev='hda' bus='ide'/>"
        "<readonly/></disk>",
    )
    dom.create()
    live = []
    monkeypatch.setattr(seed_drive, "_change", lambda _dom, _volume, *flags: live.append(flags))
    assert seed_drive.eject(host.conn, "web1", str(host.images)) is True
    inactive = libvirt.VIR_DOMAIN_XML_INACTIVE
    assert live == [(libvirt.VIR_DOMAIN_AFFECT_LIVE, 0),
                    (libvirt.VIR_DOMAIN_AFFECT_CONFIG, inactive)]  # fmt: skip
    assert not os.path.exists(path)
    assert seed_drive.eject(host.conn, "web1", str(host.images)) is False
    for fault, words in ((FileNotFoundError(2, "gone"), None), (PermissionError(1, "no"), "no")):
        with open(path, "wb") as file:
            file.write(bytes(2048))

        def fails(_path, fault=fault):
            raise fault

        with monkeypatch.context() as patch:
            patch.setattr(seed_drive.os, "unlink", fails)
            if words is None:
                assert seed_drive._delete(host.conn, dom, path) is False
            else:
                with pytest.raises(errors.OperationFailed, match=f"cannot delete {path}: no"):
                    seed_drive._delete(host.conn, dom, path)


# -- an update ----------------------------------------------------------------------------


def test_a_new_disk_is_made_of_its_image(guest):
    data = {"name": "data", "image": guest.image, "format": "raw"}
    done = guest.modules["virt.update"]("g1", disks=[SYSTEM, data])
    assert done["definition"] is True
    with open(guest.images / "g1_data.raw", "rb") as made, open(guest.image, "rb") as base:
        assert made.read(8192) == base.read(8192)


def test_a_disk_of_others_whose_size_nobody_knows_is_left(guest):
    """One of the guest's own, that is asked to be larger, is an error."""
    path = guest.images / "lent.raw"
    lent = {"name": "lent", "source_file": str(path), "format": "raw"}
    path.write_bytes(bytes(MIB))
    guest.update(disks=[SYSTEM, lent])
    path.unlink()
    asked = {"disks": [SYSTEM, {**lent, "size": 64}], "test": True}
    told = guest.modules["virt.update"]("g1", **asked)
    assert "lent" not in str(told.get("warnings", ""))
    (guest.images / "g1_system.raw").unlink()
    with pytest.raises(errors.VirtError, match="g1_system"):
        guest.modules["virt.update"]("g1", disks=[{**SYSTEM, "size": 64}, lent], test=True)


def test_a_disk_that_a_web_server_has_is_nobodys_own():
    disk = Disk.fromstring(
        "<disk type='network'><source protocol='http' name='g1_data'/><target dev='vdb'/></disk>"
    )
    assert not disk_match._has_own_name("g1", DiskSpec(name="data"), disk)


def test_what_could_not_be_undone_is_said(guest, monkeypatch):
    """Somebody uses by then what was made."""
    path = guest.images / "g1_data.raw"

    def fails(*_):
        guest.conn.defineXML(GUEST.format(name="web2", more="", os="", devices=usage_disk(path)))
        raise errors.OperationFailed("libvirt says no")

    monkeypatch.setattr(update.lookup, "define", fails)
    data = {"name": "data", "size": 4, "format": "raw"}
    with pytest.raises(errors.VirtError, match=r"libvirt says no; could not undo: .*used by web2"):
        guest.modules["virt.update"]("g1", disks=[SYSTEM, data])
    assert path.exists()


# -- on a running guest -------------------------------------------------------------------


def test_a_description_shows_at_once(guest):
    guest.conn.lookupByName("g1").create()
    done = guest.modules["virt.update"]("g1", description="the one")
    assert done["definition"] is True
    dom = guest.conn.lookupByName("g1")
    assert dom.metadata(libvirt.VIR_DOMAIN_METADATA_DESCRIPTION, None, 1) == "the one"


NIC = (
    "<interface type='network'><mac address='52:54:00:00:00:0a'/><source network='default'/>"
    "</interface>"
)
USB = (
    "<hostdev mode='subsystem' type='usb'><source><vendor id='0x1234'/><product id='0xbeef'/>"
    "</source></hostdev>"
)


@pytest.mark.parametrize(
    ("what", "xml"),
    [
        ("nics", NIC), ("host_devices", USB),
        ("disks", "<disk type='file'><source file='/x'/><target dev='vdx'/></disk>"),
    ],
)  # fmt: skip
def test_a_device_that_came_for_the_next_start_is_not_taken_from_the_running_guest(conn, what, xml):
    dom = conn.lookupByName("test")
    key = hotplug._key(Change(what, f"{what}:x", xml=xml))
    assert key not in hotplug._running(dom, what)
    model = Domain.fromstring(dom.XMLDesc().replace("</devices>", f"{xml}</devices>"))
    there = {"nics": model.interfaces, "host_devices": model.host_devices, "disks": model.disks}[
        what
    ]
    assert len(there) == len(hotplug._running(dom, what)) + 1
    hotplug._detach(dom, Change(what, f"{what}:x", action="detach", xml=xml), model)


class Tray:
    """A running guest that closes the tray of its drive a few times in that very moment."""

    def __init__(self, closes, words="Tray of device 'sata0' is not open"):
        self.closes, self.words = closes, words
        self.put = []

    def XMLDesc(self, _flags):
        return "<domain><devices/></domain>"

    def updateDeviceFlags(self, xml, _flags):
        if self.closes:
            self.closes -= 1
            raise libvirt.libvirtError(self.words)
        self.put.append(xml)


def test_a_medium_is_put_in_again_when_the_tray_was_closed(monkeypatch):
    monkeypatch.setattr(hotplug, "_STEP_S", 0)
    xml = "<disk type='file' device='cdrom'><source file='/x.iso'/><target dev='sda'/></disk>"
    change = Change("disks", "disks:sda", action="medium", xml=xml)
    tray = Tray(hotplug.MAX_MEDIUM_TRIES - 1)
    hotplug._medium(tray, change, None)
    assert len(tray.put) == 1
    for closes, words in ((hotplug.MAX_MEDIUM_TRIES, "Tray of x"), (1, "no such drive")):
        with pytest.raises(libvirt.libvirtError, match=words):
            hotplug._medium(Tray(closes, words), change, None)
