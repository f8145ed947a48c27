"""Proofs that two hosts have the same storage: equal names are none."""

from dataclasses import replace

import pytest

from saltvirt.migration import shared
from saltvirt.migration.facts import (
    DeviceIdentity,
    NetworkSource,
    PoolReport,
    PoolSourceReport,
    StorageServer,
    VolumeIdentity,
)

WWN = "3600140512345678abcdefabcdefabcde"


@pytest.mark.parametrize(
    ("fs", "network"),
    [("nfs4", True), ("nfs", True), ("cifs", True), ("fuse.glusterfs", True), ("fuse.sshfs", True),
     ("ceph", True), ("ext4", False), ("xfs", False), ("overlay", False), ("fuseblk", False),
     (None, False)],
)  # fmt: skip
def test_which_file_systems_come_from_a_server(fs, network):
    assert shared.on_network(fs) == network


@pytest.mark.parametrize(
    ("number", "known"),
    [(WWN, True), ("0x5000c500a1b2c3d4", True), ("eui.0025385b71b0a1c2", True), ("QM00001", False),
     ("QEMU_HARDDISK_QM00001", False), ("1ATA_QEMU_HARDDISK_QM00001", False), ("", False),
     (None, False), (f"{WWN} partition 2", True)],
)  # fmt: skip
def test_which_numbers_no_other_device_has(number, known):
    assert shared.world_wide(number) == known


@pytest.mark.parametrize(
    ("hosts", "words"),
    [
        ([], "names no server"),
        ([StorageServer("localhost")], "each host itself"),
        ([StorageServer("ceph1"), StorageServer("127.0.0.1")], "each host itself"),
        ([StorageServer(transport="unix")], "a socket of this host"),
    ],
)
def test_a_network_disk_of_a_server_that_is_another_one_there(hosts, words):
    assert words in shared.network(NetworkSource("rbd", "p/i", tuple(hosts)))


def test_a_network_disk_of_named_servers_is_the_same_one_everywhere():
    hosts = [StorageServer("ceph1", "6789"), StorageServer("10.0.0.2")]
    assert shared.network(NetworkSource("rbd", "p/i", tuple(hosts))) is None


def pool(**source):
    own = {"hosts": (StorageServer("san1", ""),), "devices": ("iqn.2026-11.org:one",)}
    return PoolReport("san", "iscsi", source=PoolSourceReport(**{**own, **source}))


LUN = VolumeIdentity(WWN, 2**30)


def test_a_servers_volume_is_shared_by_server_target_and_key():
    assert shared.served(pool(), pool(), LUN, replace(LUN, device=DeviceIdentity())) is None


@pytest.mark.parametrize(
    ("there", "volume", "words"),
    [
        (pool(hosts=(StorageServer("san2", ""),)), LUN, "different sources (san1 and san2)"),
        (pool(devices=("iqn.2026-11.org:two",)), LUN, "different sources"),
        (pool(), None, "does not show the volume"),
        (pool(), replace(LUN, key="3600140500000000000000000000000ff"), "another volume"),
        (pool(), replace(LUN, size_bytes=2**31), "another volume"),
    ],
)
def test_equal_names_of_pools_and_volumes_prove_nothing(there, volume, words):
    assert words in shared.served(pool(), there, LUN, volume)


def test_a_pool_from_each_host_itself_is_not_shared():
    own = pool(hosts=(StorageServer("127.0.0.1", ""),))
    assert "each host itself" in shared.served(own, own, LUN, LUN)


def lv(volume="Kd8s-1", *devices):
    return DeviceIdentity(volume, devices or (WWN,))


def test_a_logical_volume_is_shared_by_its_uuid_and_the_numbers_of_its_devices():
    assert shared.device(lv(), lv()) is None
    assert shared.device(lv(None), lv(None)) is None


@pytest.mark.parametrize(
    ("here", "there", "words"),
    [
        (lv(), lv("other"), "another device"),
        (lv(), lv("Kd8s-1", WWN.replace("6", "7")), "another device"),
        (lv("Kd8s-1", WWN, ""), lv("Kd8s-1", WWN, ""), "no world-wide number"),
        (lv("Kd8s-1", "QM00001"), lv("Kd8s-1", "QM00001"), "no world-wide number"),
        (DeviceIdentity("Kd8s-1"), DeviceIdentity("Kd8s-1"), "no world-wide"),
    ],
)
def test_a_copied_volume_group_is_not_a_shared_one(here, there, words):
    """A clone of the disk has the same UUIDs of LVM."""
    assert words in shared.device(here, there)


def test_a_server_without_a_name_is_a_socket_of_each_host():
    for host in (StorageServer("g1", transport="unix"), StorageServer("", transport="tcp")):
        source = NetworkSource("gluster", "vol/img", (host,))
        assert "server is a socket of this host" in shared.network(source)


def test_different_sources_are_both_shown():
    one, none = pool(dir="/vm"), pool()
    assert "(/vm and nothing)" in shared.served(one, none, LUN, LUN)
    assert "(nothing and san1)" in shared.served(pool(hosts=()), none, LUN, LUN)
