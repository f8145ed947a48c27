"""A folder of images whose file system is not mounted: nothing is created on the disk below it."""

import contextlib
import os
import subprocess

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.system import bounded_io, mount_guard, mounts
from tests.functional.conftest import load_with_folders
from tests.functional.host.provision.test_init import files, host, image, names  # noqa: F401

DISK = {"name": "system", "size": 1, "format": "raw"}
HINT = (
    r"run 'mount {0}', or, if {0} is no longer a mount point, "
    r"{1}'salt-call virt.forget_mount {0}'$"
)


@pytest.fixture(autouse=True)
def configuration(tmp_path, monkeypatch):
    """Neither this machine's fstab nor its units, and a record of its own."""
    for name in ("fstab", "units"):
        monkeypatch.setattr(mount_guard, name.upper(), str(tmp_path / name))
    monkeypatch.setattr(mount_guard, "FOLDER", str(tmp_path / "mount-points"))


def mount(folder):
    folder.mkdir(exist_ok=True, parents=True)
    argv = ["mount", "-t", "tmpfs", "-o", "size=32m", "images", str(folder)]
    if os.geteuid() or subprocess.run(argv, check=False, capture_output=True).returncode:
        pytest.skip("tmpfs cannot be mounted here")


def unmount(folder):
    subprocess.run(["umount", str(folder)], check=True)


@contextlib.contextmanager
def mounted_at(folder):
    mount(folder)
    try:
        yield
    finally:
        unmount(folder)


def refused(folder, call, accept=""):
    """The call is refused with what to type, and the folder stays empty."""
    with pytest.raises(errors.Refused, match=HINT.format(folder, accept)) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert list(folder.iterdir()) == []
    return str(caught.value)


def test_a_master_is_told_of_what_is_not_mounted(tmp_path):
    """It tells the old host of a guest that moves here, which cannot ask this host's files."""
    folder = tmp_path / "images"
    lines = f"server:/a {folder} nfs defaults\nserver:/b {tmp_path}/b nfs noauto\n/dev/a / ext4\n"
    (tmp_path / "fstab").write_text(lines)
    with mounted_at(folder):
        mount_guard.remember(str(folder / "web1"))
        assert mount_guard.unmounted_points() == []
    assert mount_guard.unmounted_points() == [str(folder)]
    (tmp_path / "fstab").unlink()
    assert mount_guard.unmounted_points() == [str(folder)], "it is remembered"


def test_a_server_that_does_not_answer_keeps_no_master_waiting(tmp_path, monkeypatch):
    """The answer is about all that has to do with moves: it comes without the hung file system."""

    def real(path):
        assert path not in {mount.mount_point for mount in mounts.read()}, "known without a look"
        raise bounded_io.StorageTimeout("/srv")

    monkeypatch.setattr(bounded_io, "real", real)
    (tmp_path / "fstab").write_bytes(
        f"a /proc proc\nb {tmp_path}/x nfs\nc /\udcff nfs\n".encode(errors="surrogateescape")
    )
    assert mount_guard.unmounted_points() == []
    monkeypatch.setattr(bounded_io, "real", str)
    assert mount_guard.unmounted_points() == [f"{tmp_path}/x"]


@pytest.mark.parametrize("test", [False, True])
def test_a_disk_is_not_made_on_the_disk_below(host, test):  # noqa: F811
    with mounted_at(host.images):
        host.init("g1", disks=[DISK])
    said = refused(host.images, lambda: host.init("g2", disks=[DISK], test=test))
    assert said.startswith(f"refused: {host.images} is not mounted on this host, and guests'")
    assert names(host) == ["g1", "test"]
    with mounted_at(host.images):
        host.init("g2", disks=[DISK])


def test_nor_that_of_an_update_or_a_drive_or_an_image(host, image):  # noqa: F811
    with mounted_at(host.images):
        host.init("g1", disks=[DISK])
    more = [{"name": "system"}, {**DISK, "name": "data"}]
    update = host.modules["virt.update"]
    refused(host.images, lambda: update("g1", disks=more, test=True))
    refused(host.images, lambda: update("g1", disks=more))
    folder = host.images / "_base"
    refused(host.images, lambda: mount_guard.make_folder(str(folder)))


def test_an_image_is_not_kept_on_the_disk_below(host, tmp_path, monkeypatch):  # noqa: F811
    from saltvirt.images import cache

    with mounted_at(host.images):
        host.init("g1", disks=[DISK])
    client = pytest.fail
    monkeypatch.setattr(cache, "_client", lambda *_: client)
    refused(host.images, lambda: cache.fetch("https://x.example/a.qcow2", str(host.images)))


def test_a_mount_point_that_is_given_up_is_forgotten_once(host):  # noqa: F811
    with mounted_at(host.images):
        host.init("g1", disks=[DISK])
    refused(host.images, lambda: host.init("g2", disks=[DISK]))
    assert host.modules["virt.forget_mount"](f"{host.images}/") is True
    host.init("g2", disks=[DISK])
    assert host.modules["virt.forget_mount"](str(host.images)) is False


def test_what_is_mounted_above_a_folder_is_remembered_too(host):  # noqa: F811
    outer = host.images.parent / "outer"
    with mounted_at(outer):
        inner = outer / "guests"
        host.init("g1", disks=[{**DISK, "pool": str(inner)}])
    refused(outer, lambda: host.init("g2", disks=[{**DISK, "pool": str(inner)}]))
    host.init("g3", disks=[DISK])


def test_a_link_to_the_file_system_does_not_lead_past_it(host, tmp_path):  # noqa: F811
    data = tmp_path / "data"
    host.images.rmdir()
    host.images.symlink_to(data / "images")
    with mounted_at(data):
        (data / "images").mkdir()
        host.init("g1", disks=[DISK])
    refused(data, lambda: host.init("g2", disks=[DISK]))


def test_fstab_says_it_before_the_first_guest(host, tmp_path):  # noqa: F811
    table = tmp_path / "fstab"
    table.write_text(f"nas:/x {host.images} nfs defaults 0 0\n", "utf-8")
    accept = f"remove it from {table} and run "
    refused(host.images, lambda: host.init("g1", disks=[DISK]), accept)
    with mounted_at(host.images):
        host.init("g1", disks=[DISK])
    table.write_text(f"nas:/x {host.images} nfs noauto 0 0\n", "utf-8")
    host.modules["virt.forget_mount"](str(host.images))
    host.init("g2", disks=[DISK])


def test_a_mount_point_of_fstab_may_be_a_link(host, tmp_path):  # noqa: F811
    real = tmp_path / "real"
    link = tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    (tmp_path / "fstab").write_text(f"nas:/x {link} nfs defaults 0 0\n", "utf-8")
    with mounted_at(real):
        host.init("g1", disks=[{**DISK, "pool": str(link)}])


@pytest.mark.parametrize("kind", ["mount", "automount"])
def test_an_enabled_unit_says_it(host, tmp_path, kind):  # noqa: F811
    wanted = tmp_path / "units" / "multi-user.target.wants"
    wanted.mkdir(parents=True)
    unit = f"[{kind.title()}]\nWhat=nas:/x\nWhere={host.images}\n"
    (tmp_path / "units" / f"images.{kind}").write_text(unit, "utf-8")
    host.init("g1", disks=[DISK])
    (host.images / "g1_system.raw").unlink()
    (wanted / f"images.{kind}").symlink_to(tmp_path / "units" / f"images.{kind}")
    with pytest.raises(errors.Refused, match=f"and {tmp_path}/units lists it"):
        host.init("g2", disks=[DISK])


def test_what_is_mounted_when_it_is_looked_into_is_mounted(host, tmp_path, monkeypatch):  # noqa: F811
    (tmp_path / "fstab").write_text(f"nas:/x {host.images} nfs defaults 0 0\n", "utf-8")
    real, looked = mounts.read, []
    monkeypatch.setattr(mount_guard.bounded_io, "names", lambda path: looked.append(path) or [])

    def read(*_):
        kind = "nfs4" if looked else "autofs"
        return [*real(), mounts.Mount("0:99", "/", str(host.images), kind, "x")]

    monkeypatch.setattr(mounts, "read", read)
    mount_guard.refuse_unmounted(str(host.images / "_base"))
    assert looked == [str(host.images)]


def test_a_pool_of_a_folder_that_is_not_mounted_gets_no_volume(conn, tmp_path):
    folder = tmp_path / "pool"
    xml = f"<pool type='dir'><name>nas</name><target><path>{folder}</path></target></pool>"
    folder.mkdir()
    conn.storagePoolCreateXML(xml)
    modules = load_with_folders(tmp_path)
    given = {"seed": False, "start": False, "nic": None, "disks": [{**DISK, "pool": "nas"}]}
    with mounted_at(folder):
        modules["virt.init"]("g1", 1, 64, **given)
    refused(folder, lambda: modules["virt.init"]("g2", 1, 64, **given))
    assert conn.storagePoolLookupByName("nas").listVolumes() == ["g1_system"]
    refused(folder, lambda: modules["virt.volume_define"]("nas", "v.raw", 8))
    refused(folder, lambda: modules["virt.volume_clone"]("nas", "g1_system", "copy"))
    with mounted_at(folder):
        modules["virt.volume_define"]("nas", "v.raw", 8)
    (tmp_path / "fstab").write_text(f"server:/a {folder} nfs defaults 0 0\n")
    modules["virt.pool_define"]("below", "dir", target=f"{folder}/x", start=False)
    listed = rf"remove it from {tmp_path}/fstab and run "
    refused(folder, lambda: modules["virt.pool_build"]("below"), listed)


def test_a_pool_of_a_folder_that_is_not_mounted_is_not_purged(conn, tmp_path):
    """What is on the file system that is missing would stay, and nobody would know of it."""
    folder = tmp_path / "pool"
    folder.mkdir()
    (tmp_path / "fstab").write_text(f"server:/a {folder} nfs defaults 0 0\n")
    xml = f"<pool type='dir'><name>nas</name><target><path>{folder}</path></target></pool>"
    conn.storagePoolDefineXML(xml).create()
    modules = load_with_folders(tmp_path)
    for test in (True, False):
        for call, why in (
            (("pool_remove", "nas", True), "its volumes cannot be deleted"),
            (("volume_remove", "nas", "v.raw"), "whether volume v.raw is there is not known"),
            (("volume_converge", "nas", "v.raw", 8), "nothing is created in"),
        ):
            with pytest.raises(errors.Refused, match=rf"is not mounted on this host.*{why}"):
                modules[f"virt.{call[0]}"](*call[1:], test=test)
    assert folder.is_dir() and conn.storagePoolLookupByName("nas").isActive()
    assert modules["virt.pool_remove"]("nas")["changes"]["undefined"]


def test_a_record_that_cannot_be_written_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(mount_guard, "FOLDER", f"{os.devnull}/x")
    folder = tmp_path / "images"
    failed = pytest.raises(errors.OperationFailed, match="cannot record the mount point")
    with mounted_at(folder), failed:
        mount_guard.make_folder(str(folder))
