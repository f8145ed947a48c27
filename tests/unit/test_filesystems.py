"""File systems as the kernel lists them."""

from saltvirt.host.storage import filesystems

TEXT = """27 1 254:0 / / rw - ext4 /dev/vda rw
30 27 254:1 / /data rw shared:1 - xfs /dev/vdb rw
31 27 254:1 /vm /var/lib/libvirt/images rw - xfs /dev/vdb rw
32 27 0:50 / /mnt/with\\040space rw - nfs4 nas:/export rw,vers=4.2
33 27 0:22 / /proc rw - proc proc rw
34 27 7:1 / /snap/x ro - squashfs /dev/loop1 ro
nonsense
"""


def test_two_places_of_one_file_system_are_one():
    found = filesystems.parse(TEXT)
    assert found["/data"].id == found["/var/lib/libvirt/images"].id == "/data"
    assert (found["/"].local, found["/data"].local) == (True, True)
    assert not found["/proc"].local
    assert not found["/snap/x"].local


def test_what_other_hosts_reach_has_their_name_for_it():
    found = filesystems.parse(TEXT)["/mnt/with space"]
    assert (found.shared, found.local) == ("nfs nas:/export", False)
    assert filesystems.parse(TEXT)["/data"].shared is None


def test_sizes_are_those_of_the_file_system(monkeypatch):
    root = filesystems.Mount("/", "/", "ext4", "/dev/vda")
    far = filesystems.Mount("/tmp", "/tmp", "nfs", "nas:/tmp")
    assert filesystems.sizes(root)["total_bytes"] > 0
    assert filesystems.sizes(far)["total_bytes"] > 0
