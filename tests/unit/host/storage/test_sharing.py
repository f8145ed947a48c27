"""Whether only this host can reach a path: each condition, with mounts as the kernel shows them."""

import os
import stat
from types import SimpleNamespace

import pytest

pytest.importorskip("salt")

from saltvirt.host.storage import identity, sharing
from saltvirt.system import bounded_io, mounts

DISK = os.makedev(8, 16)


class Machine:
    """Block devices by path, and their folders below /sys."""

    def __init__(self, root, monkeypatch):
        self.root, self.devices, self.table = root, {}, []
        self.kind = stat.S_IFBLK
        self.sys, self.numbers = root / "sys", root / "numbers"
        self.numbers.mkdir()
        real = bounded_io.stat

        def seen(path):
            if path in self.devices:
                return SimpleNamespace(st_mode=self.kind, st_rdev=self.devices[path])
            return real(path)

        monkeypatch.setattr(bounded_io, "stat", seen)
        # the table below is not of this machine's file systems
        monkeypatch.setattr(bounded_io, "_far_mounts", tuple)
        monkeypatch.setattr(sharing, "_DEVICES", str(self.numbers))
        monkeypatch.setattr(mounts, "read", lambda: list(mounts.parse(self.table)))

    def device(self, number, folder, **files):
        """Its number, in a folder of /sys with these files."""
        there = self.sys / folder
        there.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            path = there / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")
        (self.numbers / f"{os.major(number)}:{os.minor(number)}").symlink_to(there)
        return number


@pytest.fixture
def machine(tmp_path, monkeypatch):
    return Machine(tmp_path, monkeypatch)


@pytest.fixture
def own(monkeypatch):
    numbers = {DISK}
    monkeypatch.setattr(sharing, "_own_device", lambda number: number in numbers)
    return numbers


# -- a path -------------------------------------------------------------------------------


def test_of_a_device_its_own_counts_and_of_a_file_what_is_mounted(machine, own, tmp_path):
    machine.devices = {"/dev/own": DISK, "/dev/lun": DISK + 1}
    machine.table = ["1 0 0:40 / / rw - nfs4 nas:/x rw"]
    assert sharing.sharing_reason("/dev/own") is None
    assert sharing.sharing_reason("/dev/lun") == "other hosts may use its device"
    assert sharing.sharing_reason(str(tmp_path)) == "nfs4 at /"
    machine.table.append(f"2 1 0:41 / {tmp_path}/x rw - tmpfs tmpfs rw")
    assert sharing.sharing_reason(f"{tmp_path}/x/gone") is None
    assert sharing.sharing_reason(f"{tmp_path}/x") == "nfs4 at /", (
        "what is not there is asked by its folder"
    )
    (tmp_path / "x").mkdir()
    assert sharing.sharing_reason(f"{tmp_path}/x") is None


def test_what_tells_it_on_other_hosts(machine, tmp_path):
    path = tmp_path / "file"
    path.touch()
    (tmp_path / "link").symlink_to(path)
    assert sharing.file_identity(str(tmp_path / "link")) == sharing.FileIdentity(
        str(path), os.stat(path).st_ino
    )
    assert sharing.file_identity(str(tmp_path / "gone")) == sharing.FileIdentity(
        str(tmp_path / "gone")
    )
    machine.devices["/dev/lun"] = machine.device(DISK, "a/sda", wwid="b", device__serial="a")
    assert sharing.file_identity("/dev/lun") == sharing.FileIdentity("/dev/lun", ids=("a", "b"))
    assert sharing.as_data({"/x": sharing.FileIdentity("/x", 7)}) == {
        "/x": {"path": "/x", "inode": 7, "ids": [], "names": []}
    }


def test_what_a_device_is_called_on_every_host(machine):
    number = machine.device(DISK, "a/dm-0", dm__uuid="mpath-1", device__wwid="2", wwid="3")
    assert list(sharing._ids(number)) == ["mpath-1", "2", "3"]
    machine.device(DISK + 1, "a/sdb", wwid="4")
    part = machine.device(DISK + 2, "a/sdb/sdb1", partition="1", wwid="own")
    assert list(sharing._ids(part)) == ["4-part1"]
    assert list(sharing._ids(DISK + 3)) == []


# -- what is mounted ----------------------------------------------------------------------

SYSTEM = "1 0 8:16 / / rw - ext4 /nowhere rw"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("2 1 8:16 / /data rw - xfs /nowhere rw", None),
        ("2 1 0:42 / /data rw - tmpfs tmpfs rw", None),
        ("2 1 8:17 / /data rw - xfs /nowhere rw", "other hosts may use the device of /data"),
        ("2 1 0:40 / /data rw - nfs4 nas:/x rw", "nfs4 at /data"),
        ("2 1 8:16 /a/b /data rw - xfs /nowhere rw", None),
        ("2 1 8:17 /a /data rw - xfs /nowhere rw", "not see completely"),
        ("2 1 0:42 /@d /data rw - btrfs /nowhere rw,subvolid=5,subvol=/@d", None),
        ("2 1 0:42 /@d /data rw - btrfs /nowhere rw,subvol=/@d2", "not see completely"),
        ("2 1 0:42 /@d /data rw - btrfs /dev/lun rw,subvol=/@d", "the device of /data"),
    ],
)
def test_a_file_system_is_own_when_all_of_it_and_its_device_are(machine, own, line, words):
    machine.devices["/dev/lun"] = DISK + 1
    machine.table = [SYSTEM, line]
    found = sharing._mount_reason("/data/x")
    assert found is None if words is None else words in found


def test_where_nothing_is_known_of_what_is_mounted_nothing_is_proven(machine):
    assert sharing.sharing_reason("/x") == "its mount point is unknown"


@pytest.mark.parametrize(
    ("root", "seen", "whole"),
    [("/a/b", "/a", True), ("/a/b", "/a/", True), ("/ab", "/a", False), ("/a", "/a", False)],
)
def test_a_folder_of_a_file_system_is_whole_where_one_above_it_is_mounted(
    machine, root, seen, whole
):
    rows = ["3 1 8:17 / /else rw - xfs /nowhere rw", f"4 1 8:18 {seen} /seen rw - xfs /nowhere rw"]
    rows.append(f"5 1 8:18 {root} /data rw - xfs /nowhere rw")
    there = list(mounts.parse(rows))
    assert sharing._is_complete(there[-1], there) is whole


def test_the_device_below_a_file_system(machine):
    machine.devices = {"/dev/lun": DISK + 1, "lun": DISK + 1}

    def of(number, source):
        return sharing._device_of(mounts.Mount(number, "/", "/x", "ext4", source))

    assert of("8:16", "/dev/lun") == DISK + 1
    assert of("8:16", "/nowhere") == of("8:16", "lun") == of("8:16", "/") == DISK
    assert of("0:7", "/nowhere") is None


# -- a device -----------------------------------------------------------------------------


def test_a_device_that_is_not_known_is_nobodys(machine):
    assert sharing._own_device(DISK) is False


@pytest.mark.parametrize(
    ("folder", "is_own"),
    [
        ("devices/pci0/ata1/host0/block/sda", True), ("devices/pci0/usb1/block/sda", True),
        ("devices/mmc_host/mmc0/block/mmcblk0", True), ("devices/pci0/host0/block/sda", True),
        ("devices/pci0/nvme/nvme0/nvme0n1", True), ("devices/pci0/block/sda", False),
        ("devices/host3/session1/block/sda", False), ("devices/host1/rport-1/block/sda", False),
        ("devices/host1/end_device-1/block/sda", False), ("devices/host1/fc_x/block/sda", False),
        ("devices/nvme-fabrics/ctl/nvme0n1", False), ("devices/virtio1/host0/block/sda", False),
        ("devices/vbd-1/host0/block/xvda", False), ("devices/virtual/block/ram0", True),
        ("devices/virtual/block/zram12", True), ("devices/virtual/block/zd16", True),
        ("devices/virtual/block/nbd0", False), ("devices/virtual/host0/block/sda", False),
    ],
)  # fmt: skip
def test_how_a_device_is_attached(machine, folder, is_own):
    assert sharing._own_device(machine.device(DISK, folder)) is is_own


def test_several_ways_are_a_storage_network(machine):
    folder = "devices/pci0/host0/block/sda"
    assert sharing._own_device(machine.device(DISK, folder, dm__uuid="mpath-1")) is False
    assert sharing._own_device(machine.device(DISK + 1, f"{folder}b", dm__uuid="LVM-mpath-"))


def test_a_device_is_own_when_all_its_parts_are(machine, monkeypatch):
    number = machine.device(DISK, "devices/virtual/block/dm-0", slaves__sda="", slaves__c0x1="")
    os.rename(machine.sys / "devices/virtual/block/dm-0/slaves/c0x1",
              machine.sys / "devices/virtual/block/dm-0/slaves/cciss!c0d1")  # fmt: skip
    here = {"/dev/sda", "/dev/cciss/c0d1"}
    monkeypatch.setattr(sharing, "_own_path", lambda path: path in here)
    assert sharing._own_device(number) is True
    here.remove("/dev/sda")
    assert sharing._own_device(number) is False
    nothing = machine.device(DISK + 1, "devices/pci0/host0/block/sdb")
    (machine.sys / "devices/pci0/host0/block/sdb/slaves").mkdir()
    assert sharing._own_device(nothing) is True


def test_a_part_that_is_not_there_is_nobodys(monkeypatch):
    assert sharing._own_path("/nowhere") is False
    monkeypatch.setattr(
        sharing, "_own_device", lambda number: number == os.stat("/dev/null").st_rdev
    )
    assert sharing._own_path("/dev/null") is True
    assert sharing._own_path("/dev/zero") is False


def test_a_loop_device_is_as_own_as_its_file(machine, monkeypatch):
    number = machine.device(DISK, "devices/virtual/block/loop0", loop__backing_file="/nas/x")
    for why in (None, "nfs4"):
        monkeypatch.setattr(
            sharing, "sharing_reason", lambda path, why=why: why if path == "/nas/x" else "?"
        )
        assert sharing._own_device(number) is (why is None)


@pytest.mark.parametrize(
    ("ways", "is_own"),
    [
        (["pcie"], True), (["pcie", "pcie"], True), (["pcie", "tcp"], False), (["rdma"], False),
        ([], False),
    ],
)  # fmt: skip
def test_a_drive_with_several_ways_is_own_when_all_of_them_are(machine, ways, is_own):
    folder = "devices/virtual/nvme-subsystem/nvme-subsys0"
    number = machine.device(DISK, f"{folder}/nvme0n1")
    for place, way in enumerate(ways):
        (machine.sys / folder / f"nvme{place}").mkdir()
        (machine.sys / folder / f"nvme{place}" / "transport").write_text(f"{way}\n")
    assert sharing._own_device(number) is is_own


def test_a_drive_of_another_kind_is_no_subsystem(machine):
    number = machine.device(DISK, "devices/virtual/other/nvme0n1")
    (machine.sys / "devices/virtual/other/nvme0").mkdir()
    (machine.sys / "devices/virtual/other/nvme0/transport").write_text("pcie\n")
    assert sharing._own_device(number) is False


def test_a_disk_that_was_given_to_this_machine_is_own_where_its_system_lies(machine):
    """On the disk, on a partition of it, or on what stands on that."""
    folder = "devices/pci0/virtio1/block/vda"
    disk = machine.device(DISK, folder)
    part = machine.device(DISK + 1, f"{folder}/vda1", partition="1")
    other = machine.device(DISK + 2, "devices/pci0/virtio2/block/vdb")
    upper = machine.device(DISK + 3, "devices/virtual/block/dm-0")
    (machine.sys / "devices/virtual/block/dm-0/slaves").mkdir()
    (machine.sys / "devices/virtual/block/dm-0/slaves/vda1").symlink_to(
        machine.sys / folder / "vda1"
    )
    assert [sharing._own_device(one) for one in (disk, part, other)] == [False] * 3
    for minor in (16, 17, 19):
        machine.table = [
            "1 0 8:18 / / rw - ext4 /nowhere rw", f"2 1 8:{minor} / / rw - ext4 /nowhere rw",
            "3 2 8:18 / /data rw - ext4 /nowhere rw",
        ]  # fmt: skip
        assert [sharing._own_device(one) for one in (disk, part, other)] == [True, True, False]
    machine.table = ["1 0 0:7 / / rw - overlay over rw"]
    assert sharing._own_device(disk) is False
    assert upper


# -- what tells one file from another -----------------------------------------------------


def test_two_paths_of_one_thing_share_a_key(machine, tmp_path):
    path = tmp_path / "a"
    path.touch()
    (tmp_path / "x").mkdir()
    os.link(path, tmp_path / "b")
    (tmp_path / "c").symlink_to(path)
    seen = os.stat(path)
    inode = ("file", seen.st_dev, seen.st_ino)
    assert identity.keys_of(f"{tmp_path}/x/../a") == {str(path), inode}
    assert identity.keys_of(str(tmp_path / "b")) == {str(tmp_path / "b"), inode}
    assert identity.keys_of(str(tmp_path / "c")) == {str(tmp_path / "c"), str(path), inode}
    machine.devices = {"/dev/a": DISK, "/dev/b": DISK}
    assert identity.keys_of("/dev/a") == {"/dev/a", ("device", DISK)}
    assert identity.keys_of("/nowhere") == {"/nowhere"}


def test_what_a_device_is_made_of(machine, monkeypatch):
    monkeypatch.setattr(identity, "_DEVICES", str(machine.numbers))
    paths = {"/dev/sda": DISK, "/dev/sda1": DISK + 1, "/dev/loop0": DISK + 2, "/dev/md0": DISK + 3}
    machine.devices = paths
    machine.device(DISK, "a/cciss!c0d0")
    machine.device(DISK + 1, "a/cciss!c0d0/p1", partition="1")
    machine.device(DISK + 2, "a/loop0", loop__backing_file="/srv/a b")
    machine.device(DISK + 3, "a/md0", slaves__sda="")
    os.rename(machine.sys / "a/md0/slaves/sda", machine.sys / "a/md0/slaves/cciss!c0d0")
    found = {path: identity.underlying_paths(path) for path in paths}
    assert found == {
        "/dev/sda": [], "/dev/sda1": ["/dev/cciss/c0d0"], "/dev/loop0": ["/srv/a b"],
        "/dev/md0": ["/dev/cciss/c0d0"],
    }  # fmt: skip
    machine.kind = stat.S_IFCHR
    assert identity.underlying_paths("/dev/md0") == [], "another kind of device has other numbers"
    assert identity.underlying_paths(str(machine.root)) == []
    assert identity.underlying_paths("/nowhere") == []


def test_what_lies_on_parts_of_one_disk_is_asked_for_once(machine, monkeypatch):
    """And what the kernel says no parts of is a disk itself, also one that is gone by now."""
    monkeypatch.setattr(bounded_io, "_DEVICES", str(machine.numbers))
    numbers = {"/dev/sda1": DISK + 1, "/dev/sdb": DISK + 16}
    machine.device(DISK + 1, "a/cciss!c0d0/p1", partition="1")
    machine.device(DISK + 16, "a/sdb")

    def seen(path):
        return SimpleNamespace(st_mode=machine.kind, st_rdev=numbers[path])

    monkeypatch.setattr(bounded_io, "os", SimpleNamespace(**{**vars(os), "stat": seen}))
    assert [bounded_io._disks(path) for path in numbers] == ["/dev/cciss/c0d0", "/dev/sdb"]
    machine.kind = stat.S_IFREG
    assert bounded_io._disks("/dev/sdb") is None


def test_what_is_mounted_is_read_as_the_kernel_says_it(tmp_path):
    table = tmp_path / "mountinfo"
    table.write_text(
        "1 0 8:16 / / rw,x shared:1 master:2 - ext4 /dev/a rw,y\n"
        "2 1 8:17 /a\\040b /c\\134\\011d rw - xfs /dev/b\\012\nbroken\n1 2 3 4 - ext4 x y\n"
        "3 1 0:3 / /short rw - tmpfs\n4 1 0:4 / /five - tmpfs five\n"
    )
    assert mounts.read(str(table)) == [
        mounts.Mount("8:16", "/", "/", "ext4", "/dev/a", "rw,y"),
        mounts.Mount("8:17", "/a b", "/c\\\td", "xfs", "/dev/b\n", ""),
        mounts.Mount("0:4", "/", "/five", "tmpfs", "five", ""),
    ]
    assert mounts.read(str(tmp_path / "none")) == []
    assert [mounts.is_fuse(kind) for kind in ("fuse", "fuse.x", "fuseblk", "ext4")] == [
        *(True, True, False, False)
    ]


def test_of_what_is_mounted_over_each_other_the_last_shows():
    def row(place, source):
        return mounts.Mount("0:1", "/", place, "tmpfs", source)

    there = [row("/", "1"), row("/a", "2"), row("/a/b", "3"), row("/a", "4"), row("/ab/", "5")]
    for path, source in (("/", "1"), ("/x", "1"), ("/a", "4"), ("/a/x", "4"), ("/a/b/c", "3"),
                         ("/ab", "5"), ("/abc", "1")):  # fmt: skip
        assert mounts.mount_of(there, path).source == source, path
    assert mounts.mount_of(there[1:], "/x") is None


def test_what_is_mounted_at_a_start(tmp_path):
    table = tmp_path / "fstab"
    table.write_text(
        "# /dev/z /z ext4\n  # /dev/y /y ext4\n/dev/a /a/ ext4\nUUID=1\t/b\\040c  ext4\n"
        "/swap none swap\nshort\n\nlast /l"
    )
    assert list(mounts.to_mount(str(table))) == ["/a", "/b c", "/l"]
    assert list(mounts.to_mount(str(tmp_path / "none"))) == []
