"""The verbs that change a guest by its name, with emulated guests of a private libvirtd."""

import hashlib
import importlib.util
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from salt.exceptions import CommandExecutionError

from saltvirt import errors
from saltvirt.fleet.answer import FAILED, Answer
from saltvirt.images import cache
from saltvirt.operations.cluster import ha_provider
from saltvirt.xml.domain.domain import Domain
from saltvirt.xml.domain.metadata import NAMESPACE
from tests.functional.cloud import Fleet
from tests.functional.conftest import REPOSITORY, load
from tests.functional.daemon import libvirtd  # noqa: F401

MIB = 2**20
SYSTEM = {"name": "system", "size": 16, "format": "qcow2"}


@pytest.fixture
def cloud(libvirtd, tmp_path, monkeypatch):  # noqa: F811
    """The runner over one host, and the guest ``g1``, which runs without a system of its own."""
    (tmp_path / "images").mkdir()
    modules = load(
        libvirtd.uri, images=str(tmp_path / "images"), lock=str(tmp_path / "lock"),
        placement={"reserved_memory_kib": 0, "memory_ratio": 10, "reserved_disk_bytes": 0},
    )  # fmt: skip
    path = REPOSITORY / "_runners" / "virt_change.py"
    spec = importlib.util.spec_from_file_location("runner", path)
    runner = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(runner)
    fleet = Fleet(modules, tmp_path)
    fleet.opts["timeout"] = 5
    fleet.__class__ = type("Cloud", (Fleet,), {
        "__enter__": lambda self: self, "__exit__": lambda self, *_: None,
    })  # fmt: skip
    monkeypatch.setattr(runner, "Fleet", lambda _opts: fleet)
    runner.__opts__ = fleet.opts
    conn = libvirt.open(libvirtd.uri)
    nic = {"name": "eth0", "type": "user", "mac": "52:54:00:00:00:01"}
    modules["virt.init"](
        "g1", 1, 64, disks=[SYSTEM], interfaces=[nic], nic=None, seed=False, hypervisor="qemu"
    )

    def call(verb, *args, **kwargs):
        data = getattr(runner, verb)("g1", *args, **kwargs)["data"]
        assert ("retcode" in data) is (data["g1"]["result"] is False)
        return SimpleNamespace(**{"changes": {}, **data["g1"]})

    yield SimpleNamespace(
        call=call, conn=conn, dom=conn.lookupByName("g1"), modules=modules, opts=fleet.opts,
        fleet=fleet, images=tmp_path / "images", runner=runner,
    )  # fmt: skip
    for dom in conn.listAllDomains():
        if dom.isActive():
            dom.destroy()
        dom.undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_NVRAM)
    conn.close()


def xml(cloud):
    return cloud.dom.XMLDesc(0), cloud.dom.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)


def test_an_update_says_what_changes_now_and_what_at_the_next_start(cloud):
    before, given = xml(cloud), {"cpu": 2, "mem": 96, "title": "shop", "autostart": True}
    planned = cloud.call("update", **given, test=True)
    assert (planned.result, xml(cloud), cloud.dom.autostart()) == (None, before, 0)
    done = cloud.call("update", **given)
    assert (
        done.comment
        == planned.comment.replace("would be changed", "was changed")
        == (
            "g1 on hv1 was changed: title: none -> shop, autostart: False -> True; "
            f"will change at the next start: {', '.join(done.pending)}"
        )
    )
    assert (done.changes, done.pending) == (planned.changes, planned.pending)
    assert done.changes["memory_kib"] == {"old": 64 * 1024, "new": 96 * 1024}
    assert done.pending[:2] == ["memory (64 MiB now, then 96 MiB)", "vCPUs (1 now, then 2)"]
    assert (cloud.dom.autostart(), cloud.dom.info()[1:4:2]) == (1, [64 * 1024, 1])
    again = cloud.call("update", **given)
    assert (again.changes, again.pending) == ({}, done.pending)
    assert again.comment.startswith("g1 on hv1 is as given; will change at the next start: ")
    cloud.dom.destroy()
    off = cloud.call("update", cpu=1)
    assert off.comment == "g1 on hv1 was changed: maximum of vCPUs: 2 -> 1"
    assert (off.pending, off.state) == ([], "shutdown")


@pytest.mark.parametrize(("given", "text"), [
    ({}, "nothing to change: give cpu, mem"), ({"cpus": 2}, "did you mean 'cpu'?"),
    ({"cpu": 2, "tset": True}, "virt.update: unknown 'tset', did you mean 'test'?"),
    ({"mem": 2}, "mem=2 is 2 MiB: give MiB"), ({"mem": {"current": "2MiB"}}, "is 2 MiB"),
    ({"cpu": 0, "title": "shop"}, "cpu cannot be 0: leave it out"),
    ({"cpu": "x"}, "not a positive whole number"), ({"image": "a"}, "image is for new guests"),
    ({"graphics": {"type": "vnc", "password": "s3"}}, "all minions could read the password"),
    ({"disks": "vda"}, "disks must be a list"), ({"cpu": 1, "live": "maybe"}, "live"),
])  # fmt: skip
def test_a_wrong_update_asks_no_host(cloud, given, text):
    cloud.fleet.asked.clear()
    for test in (True, False):
        failed = cloud.call("update", **given, test=test)
        assert failed.result is False and text in failed.comment
    assert cloud.fleet.asked == []


def test_growth_needs_room_and_what_the_guest_refuses_fails_the_verb(cloud):
    before = xml(cloud)
    for verb, args, kwargs in (
        ("update", (), {"mem": "9999GiB"}), ("update", (), {"cpu": 200}),
        ("resize", ("system", "9999TiB"), {}),
        ("update", (), {"disks": [{"name": "data", "size": "9999TiB", "format": "raw"}]}),
    ):  # fmt: skip
        for test in (True, False):
            failed = cloud.call(verb, *args, **kwargs, test=test)
            assert failed.comment.startswith("refused: no room: hv1: "), failed
    assert xml(cloud) == before
    done = cloud.call("update", disks=[{"name": "data", "size": 4}])
    assert done.changes["disks:vdb"]["new"].endswith("g1_data.qcow2")
    refused = cloud.call("update", detach="data")  # it has no system that releases the disk
    assert refused.result is False and "has not released it" in refused.errors[0]
    assert "the running guest refused: disks:vdb" in refused.comment


def test_a_disk_grows_by_its_name_or_target_running_or_off(cloud):
    size = lambda: cloud.dom.blockInfo("vda")[0] // MIB  # noqa: E731
    assert cloud.call("resize", "system", 20, test=True).result is None
    assert size() == 16
    done = cloud.call("resize", "system", 20)
    assert done.comment == (
        "disk system of g1 on hv1 grew from 16 MiB to 20 MiB; grow its partitions and file systems "
        "in the guest"
    )
    assert (size(), done.pending) == (20, [])
    assert cloud.call("resize", "vda", 20).comment == "disk vda of g1 on hv1 has 20 MiB already"
    assert "never shrunk" in cloud.call("resize", "vda", 19, test=True).comment
    assert "g1 has no disk data; it has system (vda)" in cloud.call("resize", "data", 30).comment
    cloud.dom.destroy()
    assert cloud.call("resize", "system", "24MiB").changes == {
        "disks:system:size_bytes": {"old": 20 * MIB, "new": 24 * MIB}
    }
    assert size() == 24


def test_a_reboot_is_one_that_libvirt_reports(cloud):
    failed = cloud.call("reboot", 1)
    assert failed.result is False and "g1 has not rebooted within 1 s" in failed.comment
    cloud.call("update", cpu=2)
    timer = threading.Timer(1, cloud.dom.reset)
    timer.start()
    done = cloud.call("reboot", 30)
    timer.join()
    assert (done.result, done.state) == (True, "running")
    assert done.comment.startswith("g1 on hv1 was rebooted; it will change at the next start: vCPU")
    assert done.pending[0] == "vCPUs (1 now, then 2)"
    cloud.dom.destroy()
    assert cloud.call("reboot", test=True).comment == (
        "g1 on hv1 is shutdown and cannot be rebooted"
    )


def test_autostart_is_not_for_a_guest_that_high_availability_manages(cloud):
    assert cloud.call("autostart", "on", test=True).comment == "g1 would start with its host hv1"
    assert cloud.call("autostart", "on").comment == "g1 starts with its host hv1"
    assert cloud.dom.autostart() == 1
    assert cloud.call("autostart", True).comment == "g1 starts with its host hv1 already"
    assert cloud.call("autostart", "off").comment == "g1 does not start with its host hv1"
    ha_provider.store_managed(cloud.opts, {"g1": "high availability"})
    for verb, given in (("autostart", {"enabled": True}), ("update", {"autostart": True})):
        for test in (True, False):
            assert "g1 is managed by" in cloud.call(verb, **given, test=test).comment
    assert cloud.call("autostart", "off").result is True
    assert cloud.dom.autostart() == 0
    assert cloud.call("reboot", test=True).result is None


def test_a_disk_is_attached_and_detached(cloud, tmp_path):
    own = str(cloud.images / "g1_data.qcow2")
    planned = cloud.call("attach", "data", size=8, test=True)
    assert (planned.result, planned.changes) == (None, {"disks:vdb": {"old": None, "new": own}})
    done = cloud.call("attach", "data", size=8)
    assert done.comment == f"g1 on hv1 was changed: disk vdb: none -> {own}"
    assert cloud.dom.blockInfo("vdb")[0] == 8 * MIB
    assert cloud.call("attach", "data", size=8).comment == "g1 on hv1 is as given"
    assert "has a disk data already: virt.resize" in cloud.call("attach", "data", size=9).comment
    other = tmp_path / "other.qcow2"
    other.write_bytes((cloud.images / "g1_system.qcow2").read_bytes())
    before = xml(cloud)
    for args, given, text in (
        ((), {}, "takes one device"), (("a",), {"network": "n"}, "takes one device"),
        (("a",), {}, "give either the size of a new disk, or the source"),
        (("a",), {"source": str(other)}, "looks like qcow2: set its format"),
        (("a",), {"source": "/gone"}, "/gone does not exist on this host"),
        (("vdisk",), {"size": "9999TiB"}, "refused: no room: hv1: "),
        (("a",), {"size": 8, "source": "/a"}, "give either the size of a new disk, or the source"),
        (("vdz",), {"size": 8}, "disk vdz: that is a target"),
        (("a",), {"size": 8, "mac": "52:54:00:00:00:09"}, "mac is for network or bridge"),
        ((), {"iso": "/a.iso", "size": 8}, "size is for disk, not for iso"),
        ((), {"iso": "a.iso"}, "iso a.iso is neither an absolute path nor an address"),
        ((), {"network": "none"}, "has no active libvirt network none"),
        ((), {"bridge": "none"}, "has no bridge none"),
    ):  # fmt: skip
        for test in (True, False):
            failed = cloud.call("attach", *args, **given, test=test)
            assert failed.result is False and text in failed.comment, failed
    # the disk that it has under another name keeps its name
    system = {"source": str(cloud.images / "g1_system.qcow2")}
    assert cloud.call("attach", "a", **system).comment == "g1 on hv1 is as given"
    for disk in ("system", "vda"):
        for test in (True, False):
            text = f"refused: g1 on hv1 boots from {disk}: force=True detaches it anyway"
            assert cloud.call("detach", disk, test=test).comment == text
    assert "None is not true or false" in cloud.call("autostart", None).comment
    for test in (True, False):
        absent = "g1 on hv1 has no disk gone to detach"
        assert cloud.call("detach", "gone", test=test).comment == absent
        given = {"title": "shop", "detach": ["gone", "lost"], "detach_interfaces": ["eth9"]}
        absent = "g1 on hv1 has no disk gone, disk lost, interface eth9 to detach"
        assert cloud.call("update", **given, test=test).comment == absent
        absent = "hv1 does not have kernel /nope to boot from"
        assert cloud.call("update", boot={"kernel": "/nope"}, test=test).comment == absent
    assert xml(cloud) == before
    assert cloud.call("attach", "other", source=str(other), format="qcow2").result is True
    # the guest, without a system, releases no disk
    assert "has not released it" in cloud.call("detach", "data").comment
    assert [*cloud.call("attach", "new", size=8).changes] == ["disks:vdd"]
    assert "existing: True uses it" in cloud.call("attach", "data", size=8).comment
    assert cloud.call("attach", "data", existing=True).changes == {
        "disks:vdb": {"old": None, "new": own}
    }
    assert own not in {disk.path for disk in Domain.fromstring(xml(cloud)[1]).record.disks}
    cloud.dom.managedSave()
    assert "has saved memory" in cloud.call("attach", "newer", size=8).comment
    cloud.dom.managedSaveRemove()
    assert all(cloud.call("detach", disk).result for disk in ("new", "newer"))
    snapshot = cloud.dom.snapshotCreateXML("<domainsnapshot><name>s</name></domainsnapshot>")
    done = cloud.call("detach", "data")
    assert done.changes == {"disks:vdb": {"old": own, "new": None}}
    assert "g1 has snapshots: those that contain the detached disk cannot be" in done.comment
    snapshot.delete(libvirt.VIR_DOMAIN_SNAPSHOT_DELETE_METADATA_ONLY)
    assert Path(own).exists()
    assert cloud.call("detach", "system", force=True).result is True
    assert [disk.target for disk in Domain.fromstring(xml(cloud)[1]).disks] == ["vdc"]


def test_a_disk_that_moves_at_the_next_start_is_neither_layered_nor_merged(cloud):
    """libvirt would store the new file only for a disk at the same target: the next start would use
    a file without the latest data, or one that is gone."""
    snapshot, delete = cloud.modules["virt.snapshot"], cloud.modules["virt.delete_snapshots"]
    assert cloud.call("attach", "data", size=8).result is True
    for test in (True, False):
        told = cloud.call("attach", "data", size=8, model="usb", test=test)
        assert told.result is False and "has a disk data already" in told.comment
    snapshot("g1", "before", disk_only=True)
    moved = cloud.call("update", disks=[{"name": "data", "model": "sata"}])
    assert f"disk sda (none now, then {cloud.images}/g1_data.before)" in moved.pending
    for test in (True, False):
        for act in (
            lambda: snapshot("g1", "after", disk_only=True, test=test),  # noqa: B023
            lambda: delete("g1", "before", test=test),  # noqa: B023
        ):
            with pytest.raises(CommandExecutionError, match=r"disk vdb .* another target or file"):
                act()
    assert cloud.call("resize", "data", 12, test=True).result is None
    assert cloud.call("resize", "data", 12).result is True
    cloud.call("update", disks=[{"name": "data", "model": "virtio", "target": "vdb"}])
    delete("g1", "before")
    cloud.dom.destroy()
    cloud.dom.create()
    assert [Path(disk.source.file).name for disk in Domain.fromstring(xml(cloud)[0]).disks] == [
        "g1_system.qcow2", "g1_data.qcow2",
    ]  # fmt: skip
    assert cloud.dom.blockInfo("vdb")[0] == 12 * MIB


def test_a_detached_disk_comes_back_with_the_layers_of_its_snapshots(cloud):
    """The file below them has none of the later writes, and writes to it would damage them."""
    cloud.dom.destroy()
    cloud.call("attach", "more", size=8)
    cloud.call("attach", "data", size=8)
    for name in ("s1", "s2"):
        cloud.modules["virt.snapshot"]("g1", name, disk_only=True)
    layer = f"{cloud.images}/g1_data.s2"
    assert cloud.call("detach", "data").result is True
    for test in (True, False):
        back = cloud.call("attach", "data", existing=True, test=test)
        assert back.changes == {"disks:vdc": {"old": None, "new": layer}}, back.comment
    assert cloud.call("update", disks=[{"name": "data", "size": 8}]).changes == {}
    cloud.dom.create()
    assert cloud.modules["virt.delete_snapshots"]("g1", all=True)
    files = [Path(disk.source.file).name for disk in Domain.fromstring(xml(cloud)[1]).disks]
    assert files == ["g1_system.qcow2", "g1_more.qcow2", "g1_data.qcow2"]
    assert sorted(path.name for path in cloud.images.glob("g1_*")) == sorted(files)
    again = cloud.call("update", disks=[{"name": "data", "size": 8}])
    assert (again.result, again.changes) == (True, {}), again.comment


def test_a_guest_of_others_gets_a_disk_and_no_frozen_snapshot_without_an_agent(cloud):
    cloud.dom.destroy()
    metadata = libvirt.VIR_DOMAIN_METADATA_ELEMENT
    cloud.dom.setMetadata(metadata, None, None, NAMESPACE, libvirt.VIR_DOMAIN_AFFECT_CONFIG)
    given = {"disks": [{"name": "data", "size": 8}]}
    assert "whose name is not recorded: vda" in cloud.call("update", **given).comment
    assert cloud.call("attach", "data", size=8, test=True).result is None
    assert [*cloud.call("attach", "data", size=8).changes] == ["disks:vdb"]
    gone = cloud.call("attach", "raw", existing=True)
    assert f"{cloud.images}/g1_raw.qcow2 does not exist on this host" in gone.comment
    cloud.dom.create()
    for test in (True, False):
        with pytest.raises(CommandExecutionError, match="guest agent of g1 is not connected"):
            cloud.modules["virt.snapshot"]("g1", "q", quiesce=True, test=test)


def test_an_interface_is_attached_and_detached_beside_the_others(cloud):
    network = cloud.conn.networkDefineXML(
        "<network><name>lan</name><bridge name='sv-lan0'/></network>"
    )
    macs = lambda: [nic.mac for nic in Domain.fromstring(xml(cloud)[1]).interfaces]  # noqa: E731
    eth0 = "52:54:00:00:00:01"
    cloud.dom.destroy()
    network.create()
    try:
        planned, done = (cloud.call("attach", network="lan", test=test) for test in (True, False))
        assert (planned.changes, planned.result, done.result) == (done.changes, None, True)
        [new] = set(macs()) - {eth0}
        assert [*done.changes] == [f"nics:{new}"]
        assert (
            f"has an interface {new} already"
            in cloud.call("attach", network="lan", mac=new).comment
        )
        # a device without a setting is no new device
        definition = xml(cloud)[1].replace("<model type='virtio'/>", "", 1)
        cloud.conn.defineXML(definition)
        first = {"network": "lan", "mac": eth0, "model": "e1000"}
        assert f"has an interface {eth0} already" in cloud.call("attach", **first).comment
        cloud.call("attach", network="lan")
        assert len(set(macs())) == 3
        taken = "52:54:00:00:00:0b"
        nic = {"name": "eth0", "network": "lan", "mac": taken}
        cloud.modules["virt.init"](
            "g2", 1, 64, disks=[SYSTEM], interfaces=[nic], nic=None, seed=False,
            hypervisor="qemu", start=False,
        )  # fmt: skip
        other_nic = {"network": "lan", "mac": taken}
        before, same = xml(cloud), {"interfaces": [*({"mac": mac} for mac in macs()), other_nic]}
        for verb, given in (("attach", other_nic), ("update", same)):
            for test in (True, False):
                refused = cloud.call(verb, **given, test=test)
                assert f"would have the MAC {taken} of g2: force=True" in refused.comment
            assert xml(cloud) == before
        done = cloud.call("attach", **other_nic, force=True)
        assert done.result is True and "also has an interface with the MAC" in done.comment
        assert cloud.call("update", title="shop", **same).result is True, "it has the MAC already"
        assert cloud.call("detach", interface=taken).result is True
        assert cloud.call("detach", interface=new.upper()).result is True
        assert cloud.call("detach", interface="eth0").result is True
        assert len(macs()) == 1 and not {eth0, new} & {*macs()}
        for gone in ("eth0", new):
            assert f"no interface {gone} to detach" in cloud.call("detach", interface=gone).comment
    finally:
        network.destroy()
        network.undefine()


def test_an_iso_is_inserted_and_ejected(cloud, tmp_path):
    first, second = cloud.images / "a.iso", tmp_path / "b.iso"
    for path in (first, second):
        path.write_bytes(b"\0" * 0x8001 + b"CD001" + bytes(10_000))
    assert "has no CD drive with a medium" in cloud.call("detach", iso=True).comment
    # a disk of its own whose record has no path
    (tmp_path / "pool").mkdir()
    cloud.conn.storagePoolCreateXML(
        f"<pool type='dir'><name>p1</name><target><path>{tmp_path}/pool</path></target></pool>"
    )
    assert cloud.call("attach", "data", size=8, pool="p1").result is True
    done = cloud.call("attach", iso=str(first))
    assert f"disk hda (none now, then {first})" in done.pending
    cloud.dom.destroy()
    cloud.dom.create()
    drive = lambda: next(  # noqa: E731
        disk.source.location() for disk in Domain.fromstring(xml(cloud)[0]).disks
        if disk.device == "cdrom"
    )  # fmt: skip
    assert drive() == str(first)
    assert cloud.call("attach", "hda", iso=f"file-{second}").result is False
    done = cloud.call("attach", iso=str(second))
    assert done.comment == f"g1 on hv1 was changed: disk hda: {first} -> {second}"
    assert (done.pending, drive()) == ([], str(second))
    assert cloud.call("detach", iso="hda", test=True).result is None
    done = cloud.call("detach", iso="hda")
    assert (done.comment, done.pending, drive()) == (
        f"g1 on hv1 was changed: disk hda: {second} -> none",
        [],
        None,
    )
    for first_drive in (True, "true"):
        assert cloud.call("detach", iso=first_drive).comment == "g1 on hv1 is as given"
    assert "has no CD drive sdb" in cloud.call("detach", iso="sdb").comment
    cloud.conn.storagePoolLookupByName("p1").destroy()


def test_a_cd_image_of_the_cache_is_for_drives_only(cloud, tmp_path, monkeypatch):
    """The minion fetches it from the master."""
    path = tmp_path / "served.iso"
    path.write_bytes(b"\0" * 0x8001 + b"CD001" + bytes(10_000))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    master = SimpleNamespace(
        version=lambda _source: {"hash_type": "sha256", "hsum": digest, "size": 10_000},
        fetch=lambda _source, part, version, _done: shutil.copy(path, part) and version,
    )
    folder = str(cloud.images)
    assert cache.find_local("salt://d.iso", folder, master, cdrom=True) is None
    with pytest.raises(errors.ImageError, match="attach it as a cdrom"):
        cache.fetch("salt://d.iso", folder, master)
    image = cache.fetch("salt://d.iso", folder, master, cdrom=True)
    assert image.path.endswith(".iso")
    for read in (cache.fetch, cache.find_local):
        with pytest.raises(errors.ImageError, match="attach it as a cdrom"):
            read("salt://d.iso", folder, master)
        assert read("salt://d.iso", folder, master, cdrom=True) == image
        with pytest.raises(errors.ImageError, match="attach it as a cdrom"):
            read(str(path), folder)
        assert read(str(path), folder, cdrom=True).path == str(path)
    ask, asked = cloud.fleet.ask, []

    def answers(hosts, fun, kwarg=None, **options):
        if fun != "virt.image_fetch":
            return ask(hosts, fun, kwarg, **options)
        asked.append(kwarg)
        return [Answer("hv1", data={"path": None if kwarg.get("test") else image.path})]

    monkeypatch.setattr(cloud.fleet, "ask", answers)
    planned = cloud.call("attach", iso="salt://d.iso", test=True)
    assert planned.comment == "salt://d.iso would be fetched to hv1 and inserted into g1"
    assert cloud.call("attach", iso="salt://d.iso").result is True
    requested = {"source": "salt://d.iso", "cdrom": True}
    assert asked == [{**requested, "test": True}, requested]
    assert image.path in xml(cloud)[1]
    secret = cloud.call("attach", iso="https://u:password@h/d.iso?signature=1", test=True)
    assert secret.comment == "https://…@h/d.iso?… would be fetched to hv1 and inserted into g1"
    assert secret.changes == {"iso": {"old": None, "new": "https://…@h/d.iso?…"}}


def test_a_volume_is_deleted_once_no_guest_uses_it(cloud, tmp_path):
    (tmp_path / "store").mkdir()
    target = f"<target><path>{tmp_path}/store</path></target>"
    pool = cloud.conn.storagePoolDefineXML(f"<pool type='dir'><name>store</name>{target}</pool>")
    pool.create()
    definition = "<volume><name>data.raw</name><capacity>1048576</capacity></volume>"
    path = Path(pool.createXML(definition).path())
    assert cloud.call("attach", "data", source="data.raw", pool="store").result is True

    def delete(*args, **given):
        data = cloud.runner.volume_delete("store", *(args or ("data.raw",)), **given)["data"]
        (one,) = (data[key] for key in data if key != "retcode")
        assert ("retcode" in data) is (one["result"] is False)
        return one["result"], one["comment"]

    kept = "volume store/data.raw stays on hv1: it is a disk, or the backing file of a disk, of g1"
    assert delete(test=True) == delete() == delete(host="hv1") == (False, kept)
    cloud.dom.destroy()
    assert delete() == (False, kept)
    assert cloud.call("detach", "data").result is True
    text = "volume store/data.raw would be deleted on hv1, which frees 1 MiB"
    assert delete(test=True) == (None, text)
    assert path.exists()
    assert delete() == (True, text.replace("would be", "was"))
    assert not path.exists() and pool.listVolumes() == []
    assert delete() == (False, "no volume store/data.raw in a running storage pool of any host")
    assert "no volume 'data.raw' in storage pool store" in delete(host="hv1")[1]
    pool.destroy()
    assert "storage pool store on" in delete(host="hv1", test=True)[1]
    pool.undefine()


def test_a_guest_that_has_moved_meanwhile_is_followed(cloud, monkeypatch):
    """The second host has the modules of the first one."""
    ask, hosts, left = cloud.fleet.ask, ["hv1", "hv2"], []

    def answers(asked_hosts, fun, kwarg=None, **options):
        for host in asked_hosts:
            is_there = host == ("hv2" if left else "hv1")
            if fun == "virt.vm_state" and not is_there:
                yield Answer(host, data={})
                continue
            if fun == "virt.update" and host == "hv1":  # it leaves before the host's lock
                left.append(host)
                yield Answer(host, error="no guest 'g1' on hv1", kind=FAILED)
                continue
            yield from (replace(item, host=host) for item in ask([host], fun, kwarg, **options))

    monkeypatch.setattr(cloud.fleet, "ask", answers)
    monkeypatch.setattr(cloud.fleet, "hosts", lambda only=None: [only] if only else hosts)
    for test in (True, False):
        left.clear()
        assert cloud.call("update", title="shop", test=test).host == "hv2"
        assert left == ["hv1"]
    left.clear()
    assert cloud.call("attach", "data", size=8).host == "hv2"
    # an error of a guest that is there is no reason to ask others
    left.clear()
    left.append("hv1")
    cloud.fleet.asked.clear()
    assert cloud.call("update", mem="9999GiB").result is False
    assert [fun for fun, _ in cloud.fleet.asked].count("virt.update") == 1
