"""Storage that other hosts may have: what belongs to this host alone, and which hosts are asked."""

import os

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.fleet.answer import Answer, down
from saltvirt.host.domain import purge
from saltvirt.host.provision import disks
from saltvirt.host.storage import identity, shared_writable, sharing, usage, volume_state
from saltvirt.operations.cluster import shared_storage_check
from saltvirt.operations.guest import purge as purging
from saltvirt.spec.disk import DiskSpec
from saltvirt.system import mounts
from tests.functional.host.storage.test_usage import create, disk, place  # noqa: F401

ROOT = "1 0 254:0 / / rw - ext4 /dev/vda rw"


def table(monkeypatch, *lines):
    monkeypatch.setattr(mounts, "lines", lambda path: [*lines] if path == mounts.TABLE else [])


@pytest.fixture
def own(monkeypatch):
    """The devices that are this machine's own are those of ``own``."""
    numbers = {os.makedev(254, 0)}
    monkeypatch.setattr(sharing, "_own_device", lambda number: number in numbers)
    return numbers


@pytest.mark.parametrize(
    "line",
    [
        "2 1 254:0 / /data rw - xfs /nonexistent rw",
        "2 1 0:40 / /data rw - tmpfs tmpfs rw",
        "2 1 0:41 / /data rw - overlay over rw",
        "2 1 254:0 /srv/images /data rw - ext4 /nonexistent rw",  # bound; its whole is at /
        "2 1 0:42 /@data /data rw - btrfs /nonexistent rw,subvol=/@data",
    ],
)
def test_what_is_this_hosts_own(monkeypatch, own, line):
    table(monkeypatch, ROOT, line)
    assert sharing.sharing_reason("/data/x") is None


def test_the_root_of_a_system_is_its_own_also_when_it_is_a_folder(monkeypatch, own):
    table(monkeypatch, "1 0 254:0 /machines/one / rw - ext4 /dev/vda rw")
    assert sharing.sharing_reason("/data/x") is None


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("2 1 0:40 / /data rw - nfs4 nas:/export rw", "nfs4 at /data"),
        ("2 1 0:40 / /data rw - nfs nas:/export rw", "nfs at /data"),
        ("2 1 0:40 / /data rw - cifs //nas/export rw", "cifs at /data"),
        ("2 1 0:40 / /data rw - fuse.glusterfs nas:vol rw", r"fuse.glusterfs at /data"),
        ("2 1 0:40 / /data rw - fuse.sshfs nas: rw", r"fuse.sshfs at /data"),
        ("2 1 0:40 / /data rw - ceph 1.2.3.4:/ rw", "ceph at /data"),
        ("2 1 0:40 / /data rw - gfs2 /dev/vda rw", "gfs2 at /data"),
        ("2 1 0:40 / /data rw - 9p share rw", "9p at /data"),
        ("2 1 0:40 / /data rw - virtiofs share rw", "virtiofs at /data"),
        ("2 1 0:40 / /data rw - newfs what rw", "newfs at /data"),
        ("2 1 254:9 /lab/shared /data rw - ext4 /dev/vdx rw", "does not see completely"),
        ("2 1 8:16 / /data rw - xfs /nonexistent rw", "other hosts may use the device of /data"),
    ],
)
def test_what_other_hosts_may_have(monkeypatch, own, line, words):
    table(monkeypatch, ROOT, line)
    assert words in sharing.sharing_reason("/data/x")


def test_where_nothing_is_known_of_the_mounts_nothing_is_proven(monkeypatch):
    table(monkeypatch)
    assert sharing.sharing_reason("/data/x") == "its mount point is unknown"


def device(tmp_path, monkeypatch, folder, **files):
    """A device whose folder below /sys is this one."""
    there = tmp_path / "sys" / folder
    there.mkdir(parents=True)
    for name, text in files.items():
        (there / name.replace("__", "/")).parent.mkdir(parents=True, exist_ok=True)
        (there / name.replace("__", "/")).write_text(text)
    (tmp_path / "numbers").mkdir()
    os.symlink(there, tmp_path / "numbers" / "8:16")
    monkeypatch.setattr(sharing, "_DEVICES", str(tmp_path / "numbers"))
    return os.makedev(8, 16)


@pytest.mark.parametrize(
    ("folder", "files", "is_own"),
    [
        ("devices/pci0/ata1/host0/target0/block/sda", {}, True),
        ("devices/pci0/virtio1/block/vda", {}, False),
        ("devices/pci0/virtio1/host0/target0/block/sda", {}, False),
        ("devices/vbd-51712/block/xvda", {}, False),
        ("devices/pci0/host0/target0:2:0/block/sda", {}, True),
        ("devices/pci0/nvme/nvme0/nvme0n1", {}, True),
        ("devices/virtual/block/zram0", {}, True),
        ("devices/platform/host3/session1/target3/block/sdb", {}, False),
        ("devices/pci0/host1/rport-1:0-0/target/block/sdc", {}, False),
        ("devices/pci0/host1/port-1/end_device-1/target/block/sdc", {}, False),
        ("devices/virtual/block/dm-1", {"dm__uuid": "mpath-3600"}, False),
        ("devices/virtual/block/drbd0", {}, False),
        ("devices/virtual/block/nbd0", {}, False),
        ("devices/virtual/nvme-fabrics/ctl/nvme0n1", {}, False),
        ("devices/rbd/0/block/rbd0", {}, False),
    ],
)
def test_devices(tmp_path, monkeypatch, folder, files, is_own):
    assert sharing._own_device(device(tmp_path, monkeypatch, folder, **files)) is is_own


@pytest.mark.parametrize("root", ["vda", "vda/vda1", "mapper"])
def test_a_virtual_machines_disk_is_its_own_where_its_system_lies(tmp_path, monkeypatch, root):
    """Who gives a disk to a virtual machine may give it to another one, too."""
    folder = "devices/pci0/virtio1/block"
    number = device(tmp_path, monkeypatch, f"{folder}/vda/vda3", partition="3")
    blocks, numbers = tmp_path / "sys" / folder, tmp_path / "numbers"
    (blocks / "vda" / "vda1").mkdir()
    (blocks / "vda" / "vda1" / "partition").write_text("1")
    (blocks / "vdb").mkdir()
    (numbers / "8:32").symlink_to(blocks / "vdb")
    if root == "mapper":
        (blocks / "dm-0" / "slaves").mkdir(parents=True)
        (blocks / "dm-0" / "slaves" / "vda1").symlink_to(blocks / "vda" / "vda1")
        (numbers / "254:0").symlink_to(blocks / "dm-0")
    else:
        (numbers / "254:0").symlink_to(blocks / root)
    table(monkeypatch, "1 0 254:0 / / rw - ext4 /nonexistent rw")
    assert sharing._own_device(number)
    assert not sharing._own_device(os.makedev(8, 32))


def test_what_is_gone_by_now_is_not_proven_to_be_this_hosts_own(tmp_path, monkeypatch):
    """Also a drive between the look at its number and at its ways."""
    device(tmp_path, monkeypatch, "devices/pci0/ata1/host0/target0/block/sda")
    assert sharing._own_device(os.makedev(8, 17)) is False
    assert sharing._own_nvme(str(tmp_path / "nvme-subsystem" / "nvme-subsys0" / "nvme0n1")) is False


def test_a_device_is_as_own_as_its_parts(tmp_path, monkeypatch):
    number = device(tmp_path, monkeypatch, "devices/virtual/block/dm-2", slaves__sdq="")
    for is_own in (True, False):
        monkeypatch.setattr(sharing, "_own_path", lambda path, own=is_own: own)
        assert sharing._own_device(number) is is_own


def test_several_ways_to_a_device_are_a_storage_network(tmp_path, monkeypatch):
    parts = {"slaves__sdq": "", "dm__uuid": "mpath-3600"}
    number = device(tmp_path, monkeypatch, "devices/virtual/block/dm-2", **parts)
    monkeypatch.setattr(sharing, "_own_path", lambda path: True)
    assert sharing._own_device(number) is False


@pytest.fixture
def nas(place, monkeypatch):  # noqa: F811
    """All of the host's folder ``data`` is other hosts', too."""
    folder = identity.real(place.root / "data")
    real = sharing.sharing_reason
    monkeypatch.setattr(
        sharing,
        "sharing_reason",
        lambda path: "nfs4" if f"{path}/".startswith(f"{folder}/") else real(path),
    )
    return place


def test_purge_keeps_what_other_hosts_may_have(nas):
    dom = nas.guest(disk(nas.base, "raw"), name="web1")
    found = purge.plan(nas.conn, dom)
    assert found.delete == []
    assert found.keep[str(nas.base)].startswith("other hosts may use it (nfs4)")
    assert found.uncertain == [str(nas.base)]
    assert found.shared[str(nas.base)].inode == nas.base.stat().st_ino
    assert purge.plan(nas.conn, dom, unused=[str(nas.base)]).delete == [str(nas.base)]
    purge.purge(nas.conn, "web1")
    assert nas.base.exists()


def test_a_proof_of_another_disk_is_none_of_this(nas):
    dom = nas.guest(disk(nas.base, "raw"), name="web1")
    assert purge.plan(nas.conn, dom, unused=[str(nas.above)]).delete == []


def test_the_proof_of_others_does_not_beat_a_guest_of_this_host(nas):
    dom = nas.guest(disk(nas.base, "raw"), name="web1")
    nas.guest(disk(create(nas.above, nas.base)), name="web2")
    assert purge.plan(nas.conn, dom, unused=[str(nas.base)]).keep == {str(nas.base): "used by web2"}


def test_a_volume_that_other_hosts_may_have_is_not_deleted(nas):
    pool = nas.pool("there", nas.base.parent, start=True)
    pool.createXML("<volume><name>base.raw</name><capacity>1024</capacity></volume>", 0)
    with pytest.raises(errors.InvalidInput, match=r"other hosts may use it \(nfs4\)"):
        volume_state.remove(nas.conn, "there", "base.raw")
    assert volume_state.remove(nas.conn, "there", "base.raw", force=True).changes


def asked(nas, **more):
    """What this host says of a disk that another one describes."""
    given = {"path": "/elsewhere/web1.raw", **more}
    return usage.users_here(nas.conn, [sharing.FileIdentity(**given)])[given["path"]]


def test_a_host_that_uses_nothing_of_it(nas):
    nas.guest(disk(nas.base, "raw"))
    assert asked(nas, inode=1) is None


def test_the_same_file_under_another_path(nas):
    nas.guest(disk(nas.base, "raw"))
    assert asked(nas, inode=nas.base.stat().st_ino) == "used by web1"


def test_a_device_is_the_same_by_its_ids(nas, monkeypatch):
    """Devices have no inode that another host could tell them by."""
    nas.guest(disk(nas.base, "raw"))
    monkeypatch.setattr(
        sharing, "file_identity", lambda path: sharing.FileIdentity(path, ids=("wwn-1",))
    )
    assert asked(nas, ids=("wwn-2",)) is None
    assert asked(nas, ids=("wwn-1",)) == "used by web1"


def test_the_same_path(nas):
    nas.guest(disk(nas.base, "raw"))
    assert asked(nas, path=str(nas.base)) == "used by web1"


def test_the_same_name_where_the_storage_is_not_mounted(nas):
    nas.guest(disk(nas.root / "gone" / "web1.raw", "raw"))
    assert asked(nas) == "used by web1"


def test_the_base_of_a_guest_elsewhere(nas):
    nas.guest(disk(create(nas.above, nas.base)))
    assert asked(nas, inode=nas.base.stat().st_ino) == "used by web1"


def test_what_is_this_hosts_own_is_not_meant(nas):
    mine = nas.root / "other" / "web1.raw"
    mine.touch()
    nas.guest(disk(mine, "raw"))
    assert asked(nas, inode=mine.stat().st_ino) is None


def test_what_a_server_has(nas):
    nas.guest(
        "<disk type='network'><driver type='raw'/><source protocol='rbd' name='pool/web1'/>"
        "<target dev='vda'/></disk>"
    )
    assert asked(nas, path="pool/web1", names=["pool/web1"]) == "used by web1"


def test_a_folder_that_a_guest_is_given(nas):
    nas.guest(f"<filesystem><source dir='{nas.base.parent}'/><target dir='d'/></filesystem>")
    assert asked(nas, inode=1) == "used by web1"


def test_a_host_in_doubt_proves_nothing(nas):
    nas.guest(disk(nas.above))
    assert asked(nas, inode=1).startswith("it cannot be proven")


class Cloud:
    def __init__(self, *answers, **opts):
        self.answers = {answer.host: answer for answer in answers}
        self.opts = opts
        self.called = []

    def hosts(self, only=None):
        return ["hv1", *self.answers]

    def ask(self, hosts, function, kwarg=None, **_options):
        self.called.append((function, sorted(hosts)))
        yield from (self.answers[host] for host in hosts)

    def call(self, host, function, kwarg=None, **_options):
        if function == "virt.leftovers":
            return {"guests": {}, "migrations": {}, "unfinished": ["web1"]}
        self.called.append((host, function, kwarg))
        if kwarg.get("test"):
            return {
                "delete": ["/own"], "keep": {"/nfs/a": "asked?", "/cd": "a medium"},
                "shared": {"/nfs/a": {"path": "/nfs/a"}}, "unsure": ["/nfs/a"],
            }  # fmt: skip
        return True


@pytest.fixture
def no_master(monkeypatch):
    """A master whose hosts are all matched."""
    monkeypatch.setattr(shared_storage_check, "unmatched", lambda opts, hosts: {})


def free(host):
    return Answer(host, {"/nfs/a": None})


@pytest.mark.usefixtures("no_master")
def test_all_hosts_have_to_say_that_they_do_not_use_it():
    cloud = Cloud(free("hv2"), free("hv3"))
    done = purging.on_host(cloud, "hv1", "web1")
    assert (done.delete, done.keep) == (["/nfs/a", "/own"], {"/cd": "a medium"})
    assert cloud.called[1] == ("virt.storage_users", ["hv2", "hv3"])
    assert cloud.called[-1] == ("hv1", "virt.purge", {"vm_": "web1", "unused": ["/nfs/a"]})


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (down("hv3"), "hv3: down: no connection to the master"),
        (Answer("hv3", {"/nfs/a": "used by web1"}), "hv3: used by web1"),
        (Answer("hv3", {}), "hv3: its answer does not include the path"),
        (Answer("hv3", True), "hv3: its answer to virt.storage_users is not what this version"),
        (Answer("hv3", error="'virt.storage_users' is not available."), "not available"),
    ],
)
@pytest.mark.usefixtures("no_master")
def test_silence_and_doubt_keep_it(answer, words):
    cloud = Cloud(free("hv2"), answer)
    done = purging.on_host(cloud, "hv1", "web1")
    assert words in done.keep["/nfs/a"]
    assert done.delete == ["/own"]
    assert cloud.called[-1][2]["unused"] == []
    with pytest.raises(errors.OperationFailed, match=r"/nfs/a on hv1 stays"):
        purging.purge_partial(cloud, "hv1", "web1")


def test_a_hypervisor_that_virt_hosts_lost_keeps_it(monkeypatch):
    """The cache of its grains is gone: it is not asked, and may run the guest."""
    lost = {"hv4": "virt:hosts does not match it"}
    monkeypatch.setattr(
        shared_storage_check, "unmatched", lambda opts, hosts: lost if "hv4" not in hosts else {}
    )
    done = purging.on_host(Cloud(free("hv2")), "hv1", "web1")
    assert done.delete == ["/own"]
    assert "hv4: virt:hosts does not match it" in done.keep["/nfs/a"]


def test_a_master_of_masters_does_not_know_all_hosts(no_master):
    done = purging.on_host(Cloud(free("hv2"), order_masters=True), "hv1", "web1")
    assert "hosts below a syndic that does not answer" in done.keep["/nfs/a"]
    assert done.delete == ["/own"]


def test_nobody_is_asked_about_what_is_the_hosts_own():
    assert shared_storage_check.unused_elsewhere(Cloud(down("hv2")), "hv1", {}) == ([], {})


def test_which_disks_a_copy_elsewhere_could_write_to(nas):
    own = nas.root / "other" / "own.raw"
    remote = """<disk type='network' device='disk'><driver name='qemu' type='raw'/><source
    protocol='rbd' name='pool/web1'><host name='ceph'/></source><target dev='vdc'/></disk>"""
    pool = nas.pool("there", nas.root / "data", start=True)
    pool.createXML("<volume><name>base.raw</name><capacity>1024</capacity></volume>", 0)
    nas.pool("gone", nas.root / "other")
    volume = """<disk type='volume' device='disk'><driver name='qemu' type='raw'/>
    <source pool='{}' volume='{}'/><target dev='{}'/></disk>"""
    disks = [
        disk(own, "raw"),
        disk(nas.base, "raw", "vdb"),
        disk(nas.root / "data" / "cd.iso", "raw", "hda", "cdrom", "<readonly/>"),
        remote,
        volume.format("there", "base.raw", "vdd"),
        volume.format("gone", "x.raw", "vde"),
    ]
    dom = nas.guest("".join(disks))
    assert shared_writable.shared_disks(dom) == {
        str(nas.base): "nfs4", "pool/web1": "it is on a server",
        "gone/x.raw": "its storage pool or volume does not exist",
    }  # fmt: skip
    dom.undefine()
    assert shared_writable.shared_disks(nas.guest(disk(own, "raw"))) == {}


@pytest.mark.parametrize(("line", "cache"), [
    ("2 1 0:40 / {} rw - nfs4 nfs1:/guests rw", "none"),
    ("2 1 0:40 / {} rw - fuse.glusterfs gluster1:data rw", "none"),
    ("2 1 0:41 / {} rw - xfs /dev/vdb rw", None),
], ids=["NFS", "GlusterFS", "XFS"])  # fmt: skip
def test_a_new_disk_that_other_hosts_reach_bypasses_the_hosts_cache(
    conn, monkeypatch, tmp_path, line, cache
):
    """Its guest could not move to one of them while it runs otherwise."""
    table(monkeypatch, ROOT, line.format(os.path.realpath(tmp_path)))
    spec = DiskSpec.parse({"name": "system", "size": 8}, "disks")
    assert disks.plan_disk(conn, spec, "g1", str(tmp_path), "kvm").source.cache == cache
