"""Disk arguments that Salt 3007 accepted, with libvirt's test driver and real files."""

import os
import re
import subprocess

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.errors import InvalidInput
from saltvirt.host.provision import admission, disks
from saltvirt.host.storage import pool_source
from saltvirt.spec.disk import DiskSpec
from saltvirt.xml.devices.interface import Interface
from saltvirt.xml.domain.domain import Domain
from tests.functional import asking
from tests.functional.conftest import load
from tests.functional.host.provision.test_init import MIB, host, image, info  # noqa: F401
from tests.functional.host.provision.test_update import guest  # noqa: F401

SYSTEM = {"name": "system", "size": 16, "format": "raw"}


def qcow2(path, size="8M", *more):
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", *more, path, size], check=True)
    return str(path)


def attach(on, name, path, format="qcow2", target="vdb"):
    """Gives a guest a disk as an operator does, by libvirt."""
    xml = (
        f"<disk type='file' device='disk'><driver name='qemu' type='{format}'/>"
        f"<source file='{path}'/><target dev='{target}' bus='virtio'/></disk></devices>"
    )
    dom = on.conn.lookupByName(name)
    on.conn.defineXML(dom.XMLDesc(2).replace("</devices>", xml))


def size(path):
    return info(str(path))["virtual-size"]


def test_a_profile_does_not_grow_the_disk_that_a_user_named(guest, tmp_path):  # noqa: F811
    data = qcow2(tmp_path / "data.qcow2")
    attach(guest, "g1", data)
    named = {"name": "data", "source_file": data, "format": "qcow2", "size": 64}
    status = guest.update(disks=[SYSTEM, named])
    assert (status["definition"], size(data)) == (False, 8 * MIB)
    (warning,) = status["warnings"]
    assert data in warning
    assert "was not created for this guest" in warning
    by_target = {"name": "other", "target": "vdb"}
    with pytest.raises(errors.InvalidInput, match=r"disk other: g1 has its disk data .* at vdb"):
        guest.update(disks=[SYSTEM, {**by_target, "size": 64}])
    guest.update(disks=[SYSTEM, by_target])
    assert guest.update(disks=[SYSTEM, {**by_target, "size": 64}])["definition"] is False
    assert size(data) == 8 * MIB


def test_no_update_grows_what_another_guest_stands_on(guest, tmp_path):  # noqa: F811
    base = str(guest.images / "g1_system.raw")
    guest.init("g2", image=guest.image)
    overlay = qcow2(tmp_path / "over.qcow2", "32M", "-b", base, "-F", "raw")
    attach(guest, "g2", overlay)
    status = guest.update(disks=[{**SYSTEM, "size": 32}])
    assert (status["definition"], os.path.getsize(base)) == (False, 16 * MIB)
    assert "g2 uses it" in status["warnings"][0]
    with pytest.raises(errors.VirtError, match=r"g1_system.raw.*g2 uses it"):
        guest.modules["virt.resize_disk"]("g1", "vda", 32)
    assert os.path.getsize(base) == 16 * MIB


def test_no_update_grows_a_disk_below_saved_memory(guest):  # noqa: F811
    dom = guest.conn.lookupByName("g1")
    if not dom.isActive():
        dom.create()
    dom.managedSave()
    try:
        for test in (True, False):
            status = guest.update(disks=[{**SYSTEM, "size": 32}], test=test)
            assert "g1: it has saved memory" in status["warnings"][0]
        assert os.path.getsize(guest.images / "g1_system.raw") == 16 * MIB
    finally:
        dom.managedSaveRemove()


def test_the_disk_that_salt_3007_made_grows(guest):  # noqa: F811
    dom = guest.conn.lookupByName("g1")
    guest.conn.defineXML(re.sub(r"(?s)<metadata.*</metadata>", "", dom.XMLDesc(2)))
    assert "saltvirt" not in guest.conn.lookupByName("g1").XMLDesc(2)
    assert guest.update(disks=[{**SYSTEM, "size": 32}])["definition"] is True
    assert os.path.getsize(guest.images / "g1_system.raw") == 32 * MIB


def test_a_disk_that_is_there_is_used_when_that_is_said(host, image):  # noqa: F811
    """Undefine and apply again."""
    host.init(image=image, disks=[SYSTEM])
    path = host.images / "g1_system.raw"
    host.modules["virt.undefine"]("g1")
    before = path.read_bytes()
    with pytest.raises(
        errors.VirtError, match=r"g1_system.raw already exists .* existing: True uses it"
    ):
        host.init(image=image, disks=[SYSTEM])
    made = host.init(image=image, disks=[{**SYSTEM, "existing": True}])
    assert made["disks"][0]["path"] == str(path)
    assert path.read_bytes() == before
    host.modules["virt.purge"]("g1")
    assert path.read_bytes() == before
    with pytest.raises(errors.VirtError, match="existing"):
        host.init(disks=[{**SYSTEM, "existing": True, "source_file": str(path)}])


def test_a_disk_that_is_not_there_is_made_all_the_same(host, image):  # noqa: F811
    host.init(image=image, disks=[{**SYSTEM, "existing": True}])
    assert size(host.images / "g1_system.raw") == 16 * MIB
    host.modules["virt.purge"]("g1")
    assert not (host.images / "g1_system.raw").exists()


def test_an_update_uses_it_too(guest):  # noqa: F811
    data = guest.images / "g1_data.raw"
    data.write_bytes(bytes(8 * MIB))
    disk = {"name": "data", "size": 8, "format": "raw"}
    with pytest.raises(
        errors.VirtError, match=r"g1_data.raw already exists .* existing: True uses it"
    ):
        guest.update(disks=[SYSTEM, disk])
    guest.update(disks=[SYSTEM, {**disk, "existing": True}])
    xml = guest.conn.lookupByName("g1").XMLDesc(2)
    assert str(data) in xml.split("<devices>")[1]
    assert [own.path for own in Domain.fromstring(xml).record.disks] == [
        str(guest.images / "g1_system.raw")
    ]


@pytest.mark.parametrize("way", ["existing", "source_file"])
def test_no_disk_of_another_guest_is_taken(host, tmp_path, image, way):  # noqa: F811
    """Neither one it writes to, nor the base of one, nor a medium."""
    path = str(host.images / "g1_system.qcow2")
    how = {"existing": True} if way == "existing" else {"source_file": path}
    disks = [{"name": "system", "format": "qcow2", **how}]
    host.init("g2", image=image)
    for used in ("disk", "base", "medium"):
        qcow2(path)
        if used == "base":
            over = qcow2(tmp_path / "over.qcow2", "32M", "-b", path, "-F", "qcow2")
            attach(host, "g2", over, target="vdc")
        else:
            attach(host, "g2", path, target="vdd")
        if used == "medium":
            xml = host.conn.lookupByName("g2").XMLDesc(2)
            host.conn.defineXML(
                re.sub(r"(<target dev='vdd' bus='virtio'/>)", r"\1<readonly/>", xml)
            )
        with pytest.raises(errors.VirtError, match=r"g1_system.qcow2 is .*g2"):
            host.init(disks=disks)
        host.conn.defineXML(re.sub(r"(?s)<disk(?:(?!</disk>).)*vd[cd](?:(?!</disk>).)*</disk>", "",
                                   host.conn.lookupByName("g2").XMLDesc(2)))  # fmt: skip


def test_a_volume_that_is_there(host, image):  # noqa: F811
    pool = host.conn.storagePoolLookupByName("default-pool")
    volume = "<volume><name>g1_system</name><capacity>8388608</capacity></volume>"
    pool.createXML(volume)
    disk = {"name": "system", "pool": "default-pool", "format": "raw", "size": 8}
    with pytest.raises(
        errors.VirtError, match=r"already has a volume g1_system.* existing: True uses it"
    ):
        host.init(disks=[disk])
    with pytest.raises(errors.VirtError, match="neither a file nor a block device"):
        host.init(disks=[{**disk, "existing": True}])  # the test driver has no files


def test_a_volume_that_is_missing_is_said_to_be(host):  # noqa: F811
    for disk, why in (
        (
            {"pool": "default-pool", "source_file": "nosuch"},
            "nosuch does not exist in pool default-pool",
        ),
        ({"source_file": f"{host.images}/nosuch"}, "nosuch does not exist on this host"),
    ):
        with pytest.raises(errors.VirtError, match=why):
            host.init(disks=[{"name": "a", **disk}])


def test_the_default_profile_keeps_a_larger_image(host, tmp_path):  # noqa: F811
    big = qcow2(tmp_path / "big.qcow2", "10G")
    made = host.init(image=big, disk="default")
    assert (
        made["disks"][0]["size_bytes"] == size(host.images / "g1_system.qcow2") == 10 * 1024 * MIB
    )
    host.modules["virt.purge"]("g1")
    for more in ({"disks": [{"name": "system", "size": 8192}]}, {"disk": "big"}):
        with pytest.raises(errors.VirtError, match=r"never shrunk|unknown 'big'"):
            host.init(image=big, **more)


POOLS = {
    "rbd": "<name>cold</name><host name='mon1' port='6789'/><host name='mon2' port='6789'/>"
    "<auth type='ceph' username='admin'><secret usage='ceph.admin'/></auth>",
    "gluster": "<name>vol0</name><host name='gl1'/><dir path='/'/>",
    "sheepdog": "<name>sd</name><host name='sh1' port='7000'/>",
}
NAMES = {"rbd": "cold/g1_system", "gluster": "vol0/g1_system", "sheepdog": "g1_system"}


@pytest.fixture(params=POOLS)
def server(request, host):  # noqa: F811
    """(kind, pool) of a pool whose volumes libvirt takes as network disks only."""
    xml = f"<pool type='{request.param}'><name>far</name><source>{POOLS[request.param]}</source>"
    pool = host.conn.storagePoolDefineXML(xml + "</pool>")
    pool.create()
    yield request.param, pool
    for volume in pool.listAllVolumes():
        volume.delete()
    pool.destroy()
    pool.undefine()


FAR = {"name": "system", "pool": "far", "size": 8}


def test_a_volume_on_a_server_is_a_network_disk(host, server):  # noqa: F811
    kind, pool = server
    made = host.init(disks=[FAR])
    assert pool.listVolumes() == ["g1_system"]
    assert (made["disks"][0]["pool"], made["disks"][0]["volume"]) == ("far", "g1_system")
    disk = host.conn.lookupByName("g1").XMLDesc(2).split("<disk ")[1].split("</disk>")[0]
    assert f"protocol='{kind}' name='{NAMES[kind]}'" in disk
    assert disk.count("<host ") == POOLS[kind].count("<host ")
    assert ("usage='ceph.admin'" in disk) == (kind == "rbd")
    again = host.modules["virt.update"]("g1", disks=[FAR])
    assert (again["definition"], again["changes"]) == (False, [])
    assert "<saltvirt:disk" in host.conn.lookupByName("g1").XMLDesc(2)
    (path,) = host.modules["virt.purge"]("g1", test=True)["keep"]  # other hosts may use it, too
    host.modules["virt.purge"]("g1", unused=[path])
    assert pool.listVolumes() == []


def test_a_guest_of_salt_3007_on_a_server(host, server):  # noqa: F811
    kind, pool = server
    pool.createXML("<volume><name>g1_system</name><capacity>8388608</capacity></volume>")
    hosts = re.findall("<host [^>]*>", POOLS[kind])
    xml = (
        "<domain type='test'><name>g1</name><memory>65536</memory><os><type>hvm</type></os>"
        "<devices><disk type='network' device='disk'>"
        "<driver name='qemu' type='raw' cache='none' io='native'/>"
        f"<source protocol='{kind}' name='{NAMES[kind]}'>{''.join(hosts)}</source>"
        "<target dev='vda' bus='virtio'/></disk></devices></domain>"
    )
    host.conn.defineXML(xml)
    for disk in (FAR, {"name": "system", "pool": "far", "source_file": "g1_system"}):
        status = host.modules["virt.update"]("g1", disks=[disk])
        assert (status["definition"], status["changes"]) == (False, [])
    with pytest.raises(errors.VirtError, match=f"{NAMES[kind]} is a disk of g1"):
        host.init("g2", disks=[{"name": "a", "pool": "far", "source_file": "g1_system"}])
    assert pool.listVolumes() == ["g1_system"]


def test_a_volume_on_a_server_that_another_guest_uses_is_kept(host, server):  # noqa: F811
    _, pool = server
    host.init(disks=[FAR])
    xml = host.conn.lookupByName("g1").XMLDesc(2)
    xml = re.sub("(?s)<metadata.*</metadata>|<uuid>.*</uuid>", "", xml)
    host.conn.defineXML(xml.replace("<name>g1</name>", "<name>g2</name>", 1))
    (path,) = host.modules["virt.purge"]("g1", test=True)["keep"]
    assert host.modules["virt.purge"]("g1", unused=[path]) == {"left": {path: "used by g2"}}
    assert pool.listVolumes() == ["g1_system"]


def test_what_other_hosts_may_have_is_named_by_the_purge_that_leaves_it(host, server):  # noqa: F811
    """Found by make chaos: it said True."""
    _, pool = server
    host.init(disks=[FAR])
    [(path, why)] = host.modules["virt.purge"]("g1")["left"].items()
    assert "other hosts may use it" in why and path.endswith("g1_system")
    assert pool.listVolumes() == ["g1_system"]


@pytest.mark.parametrize(("kind", "block"), [("dir", False), ("logical", True), ("mpath", True)])
def test_a_pool_for_xen_and_one_of_multipath(conn, kind, block):
    source = "<source><name>vg</name></source>" if kind == "logical" else ""
    xml = f"<pool type='{kind}'><name>x</name>{source}<target><path>/x/y</path></target></pool>"
    pool = conn.storagePoolDefineXML(xml)
    found = pool_source.direct(conn, pool, "g1_system", xen=True)
    path = re.search("<path>(.*)</path>", pool.XMLDesc())[1]
    assert (found.kind, found.path) == ("block" if block else "file", f"{path}/g1_system")
    assert (pool_source.direct(conn, pool, "g1_system") is None) == (kind != "mpath")
    pool.undefine()


def on_host(images, tmp_path, **more):
    placement = {"reserved_memory_kib": 0, "memory_ratio": 10, "reserved_disk_bytes": 0}
    return load(
        "test:///default", images=images, lock=str(tmp_path / "lock"), placement=placement, **more
    )


def test_virt_images_may_name_a_pool(conn, tmp_path):
    modules = on_host("default-pool", tmp_path)
    given = {"disks": [{"name": "system", "size": 8}], "disk": None, "nic": None}
    given.update(seed=False, start=False)
    made = modules["virt.init"]("g1", 1, 64, **given)
    assert (made["disks"][0]["pool"], made["disks"][0]["volume"]) == ("default-pool", "g1_system")
    pool = conn.storagePoolLookupByName("default-pool")
    assert pool.listVolumes() == ["g1_system"]
    more = [{"name": "system"}, {"name": "data"}]
    modules["virt.update"]("g1", disks=[more[0], {**more[1], "size": 8}])
    assert sorted(pool.listVolumes()) == ["g1_data", "g1_system"]
    assert modules["virt.update"]("g1", disks=more)["definition"] is False
    assert asking.answer(
        modules, "virt.inventory", guest={"name": "g2", "cpu": 1, "mem": 64, **given}
    )["guest"]["pools"] == {"default-pool": 8 * MIB}
    modules["virt.purge"]("g1")
    assert pool.listVolumes() == []


@pytest.mark.parametrize("value", ["images", "./images", "nosuch pool"])
def test_a_relative_path_is_refused(conn, tmp_path, monkeypatch, value):
    monkeypatch.chdir(tmp_path)
    modules = on_host(value, tmp_path)
    for call in (
        lambda: modules["virt.init"]("g1", 1, 64, seed=False, nic=None),
        lambda: asking.answer(modules, "virt.inventory"),
        modules["virt.images"],
        lambda: modules["virt.image_fetch"]("/x.qcow2"),
    ):
        with pytest.raises(
            errors.VirtError, match=r"neither an absolute path nor a storage pool of"
        ):
            call()
    assert sorted(path.name for path in tmp_path.iterdir()) in ([], ["lock"])


def test_a_disk_of_vmware_is_not_made_in_a_folder_of_this_host(conn, tmp_path):
    spec = DiskSpec.parse({"name": "system", "size": 8}, "disks")
    with pytest.raises(InvalidInput, match="datastores: set pool"):
        disks.plan_disk(conn, spec, "g1", str(tmp_path), "vmware")
    built = Domain(type="vmware", name="g1")
    built.memory_kib = 1024
    built.interfaces.append(Interface(type="bridge", bridge="DEFAULT"))
    assert admission.request_of(built).bridges == frozenset()
    built.type = "kvm"
    assert admission.request_of(built).bridges == {"DEFAULT"}
