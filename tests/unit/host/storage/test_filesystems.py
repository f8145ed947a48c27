"""File systems as the kernel lists them."""

import pytest

from saltvirt.host.storage import filesystems
from saltvirt.system import mounts

TEXT = """27 1 254:0 / / rw - ext4 /dev/vda rw
30 27 254:1 / /data rw shared:1 - xfs /dev/vdb rw
31 27 254:1 /vm /var/lib/libvirt/images rw - xfs /dev/vdb rw
32 27 0:50 / /mnt/with\\040space rw - nfs4 nas:/export rw,vers=4.2
33 27 0:22 / /proc rw - proc proc rw
34 27 7:1 / /snap/x ro - squashfs /dev/loop1 ro
nonsense
"""


def test_two_places_of_one_file_system_are_one():
    found = filesystems.parse(TEXT.splitlines())
    assert found["/data"].id == found["/var/lib/libvirt/images"].id == "/data"
    assert (found["/"].local, found["/data"].local) == (True, True)
    assert not found["/proc"].local
    assert not found["/snap/x"].local


def test_what_other_hosts_reach_has_their_name_for_it():
    found = filesystems.parse(TEXT.splitlines())["/mnt/with space"]
    assert (found.shared, found.local) == ("nfs nas:/export", False)
    assert filesystems.parse(TEXT.splitlines())["/data"].shared is None


def test_sizes_are_those_of_the_file_system(monkeypatch):
    root = filesystems.MountedFilesystem("/", "/", "ext4", "/dev/vda")
    far = filesystems.MountedFilesystem("/tmp", "/tmp", "nfs", "nas:/tmp")
    assert filesystems.sizes(root)["total_bytes"] > 0
    assert filesystems.sizes(far)["total_bytes"] > 0


@pytest.mark.parametrize("end", ["\r", "\x0b", "\x0c", "\x1c", "\x1e", "\x85", "\u2028", "\u2029"])
def test_a_user_who_mounts_a_fuse_forges_no_row(tmp_path, end):
    """The kernel spells out a space and a line feed in a name, and nothing else."""
    forged = "1 2 254:0 / /var/lib/libvirt rw - ext4 /dev/vda rw".replace(" ", "\u2003")
    name = f"/home/eve/{end}{forged}{end}x"
    table = tmp_path / "mountinfo"
    table.write_text(
        "27 1 254:0 / / rw - ext4 /dev/vda rw\n"
        "30 27 0:50 / /var/lib/libvirt rw - nfs4 nas:/x rw\n"
        f"31 27 0:51 / {name} rw - fuse.mine mine rw\n",
        newline="\n",
    )
    found = mounts.read(str(table))
    assert [one.mount_point for one in found] == ["/", "/var/lib/libvirt", name]
    assert mounts.mount_of(found, "/var/lib/libvirt/x").kind == "nfs4"


def test_a_fuse_is_on_no_device_whatever_it_is_called():
    rows = [
        "31 27 0:51 / /home/eve/x rw - fuse.mine /dev/vda rw",
        "32 1 8:1 / /n rw - fuseblk /dev/sdb rw",
    ]
    found = filesystems.parse(rows)
    assert [found["/home/eve/x"].local, found["/n"].local] == [False, True]


def test_a_name_is_told_without_its_escapes():
    (found,) = mounts.parse([r"1 2 0:5 / /a\134040b\040c\012d - fuse a\043b rw"])
    assert (found.mount_point, found.source) == ("/a\\040b c\nd", "a#b")
