"""Folders in storage pools, and the version of new images, in a private libvirtd."""

import json
import os
import subprocess

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.host.provision import disk_build, pool_disk
from saltvirt.host.storage import pool_state
from saltvirt.images import bitmaps
from saltvirt.spec.disk import DiskSpec
from tests.functional.conftest import load
from tests.functional.daemon import libvirtd  # noqa: F401

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a libvirtd of our own needs root")


@pytest.fixture
def conn(libvirtd):  # noqa: F811
    found = libvirt.open(libvirtd.uri)
    yield found
    for pool in found.listAllStoragePools():
        if pool.isActive():
            pool.destroy()
        pool.undefine()
    found.close()


@pytest.fixture
def pool(conn, tmp_path):
    (tmp_path / "p").mkdir()
    return pool_of(conn, tmp_path / "p")


def pool_of(conn, path):
    text = f"<pool type='dir'><name>p</name><target><path>{path}</path></target></pool>"
    found = conn.storagePoolDefineXML(text)
    found.create()
    return found


def test_a_folder_among_the_volumes_is_said_before_anything_is_deleted(conn, pool, tmp_path):
    """libvirt deletes a, then fails at m."""
    for name in ("a", "z"):
        (tmp_path / "p" / name).write_bytes(b"1")
    folder = tmp_path / "p" / "m"
    folder.mkdir()
    (folder / "file").touch()
    for test in (True, False):
        with pytest.raises(errors.InvalidInput, match=rf"these are not: {folder}"):
            pool_state.remove(conn, "p", purge=True, test=test)
    assert sorted(os.listdir(tmp_path / "p")) == ["a", "m", "z"] and pool.isActive()
    (folder / "file").unlink()
    pool_state.remove(conn, "p", purge=True)
    assert not (tmp_path / "p").exists()


@pytest.mark.parametrize("folder", ["/usr/share/OVMF", "/etc/libvirt", "/var/lib/libvirt/qemu"])
def test_no_folder_of_the_system_is_purged(conn, folder):
    if not os.path.isdir(folder):
        pytest.skip(f"no {folder}")
    pool_of(conn, folder)
    with pytest.raises(errors.InvalidInput, match=f"cannot purge .*: {folder} is a system fo"):
        pool_state.remove(conn, "p", purge=True, force=True, test=True)


@pytest.mark.parametrize("path", ["/", "/srv", "/usr", "/var/lib/libvirt/qemu/nvram"])
def test_which_folders_are_of_the_system(path):
    assert pool_state._is_system_path(path)


@pytest.mark.parametrize("path", ["/srv/images", "/var/lib/libvirt/images", "/usrlocal", "/tmp/p"])
def test_which_are_not(path):
    assert not pool_state._is_system_path(path)


def compat(path):
    argv = ["qemu-img", "info", "--output=json", str(path)]
    told = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    return json.loads(told)["format-specific"]["data"]["compat"]


def test_a_new_image_in_a_pool_can_store_bitmaps_of_backups(libvirtd, pool, tmp_path):  # noqa: F811
    """libvirt makes qcow2 of version 2 unless it is told."""
    work = disk_build.DiskBuild(
        DiskSpec(size_bytes=2**20), volume="g_system", pool="p", format="qcow2"
    )
    pool.createXML(pool_disk._xml(work, "dir"))
    load(libvirtd.uri)["virt.volume_define"]("p", "v", 1, format="qcow2")
    for name in ("g_system", "v"):
        path = tmp_path / "p" / name
        assert compat(path) == "1.1" and not bitmaps.is_old(str(path))


def test_an_image_of_version_2_is_known(tmp_path):
    path = str(tmp_path / "old.qcow2")
    argv = ["qemu-img", "create", "-q", "-f", "qcow2", "-o", "compat=0.10", path, "1M"]
    subprocess.run(argv, check=True)
    assert bitmaps.is_old(path)
    assert not bitmaps.is_old(str(tmp_path / "gone"))


def test_who_has_volumes_in_a_folder_that_the_pool_leaves_is_said(conn, pool, tmp_path):
    pool.createXML("<volume><name>v</name><capacity>1048576</capacity></volume>")
    text = """<domain type='qemu'><name>g</name><memory unit='MiB'>32</memory>
    <os><type arch='x86_64'>hvm</type></os><devices><disk type='volume' device='disk'>
    <source pool='p' volume='v'/><target dev='vda' bus='virtio'/></disk></devices></domain>"""
    dom = conn.defineXML(text)
    try:
        virt = load(conn.getURI())
        old, new = tmp_path / "p", tmp_path / "q"
        given = {"ptype": "dir", "target": str(new), "running": True}
        for test in (True, False):
            said = virt["virt.pool_converge"]("p", **given, test=test)["comment"]
            assert said.endswith(
                f"{old} contains volumes of g: these guests start only if {new} contains the "
                "volumes too"
            )
        dom.undefine()
        dom = None
        given["target"] = str(old)
        assert "Volumes of" not in virt["virt.pool_converge"]("p", **given)["comment"]
    finally:
        if dom:
            dom.undefine()
