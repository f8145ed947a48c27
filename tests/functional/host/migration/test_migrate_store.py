"""Folders of a host through libvirt's pools with the test driver, and their backing chains."""

import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from xml.etree import ElementTree

import pytest

libvirt = pytest.importorskip("libvirt")

from saltvirt.host.migration import confirm, guest_disks, remote_storage
from saltvirt.host.storage import files
from saltvirt.migration import storage
from saltvirt.migration.facts import GuestReport
from tests.clock import Clock


def pools(conn):
    return [pool.name() for pool in conn.listAllStoragePools()]


def leave(conn, folder):
    """A pool as a killed process leaves it."""
    conn.storagePoolCreateXML(remote_storage._pool_xml(folder), 0)


def test_a_folder_without_a_pool_gets_one_for_the_block(conn):
    before = pools(conn)
    with remote_storage.open_pool(conn, "/srv/images") as pool:
        assert pool.name() in pools(conn)
        remote_storage.create(pool, "/srv/images/web1_vda.qcow2", "qcow2", 2**30)
        assert remote_storage.volume(pool, "/srv/images/web1_vda.qcow2") is not None
        assert remote_storage.volume(pool, "/srv/images/other") is None
    assert pools(conn) == before


def test_the_users_pool_is_used_and_stays(conn):
    folder = "/default-pool"
    with remote_storage.open_pool(conn, folder) as pool:
        assert pool.name() == "default-pool"
    assert "default-pool" in pools(conn)


def test_a_pool_that_a_killed_process_left_is_no_obstacle(conn, monkeypatch):
    """It is one that we have seen for so long, whatever clock its name was made by."""
    monkeypatch.setattr(remote_storage, "STALE_S", 0.5)
    leave(conn, "/srv/images")
    with remote_storage.open_pool(conn, "/srv/images") as pool:
        assert pool is not None
    assert pools(conn) == ["default-pool"]


@pytest.mark.parametrize("ahead_s", [3600, -3600])
def test_a_pool_is_not_taken_from_another_by_a_clock_that_goes_wrong(conn, monkeypatch, ahead_s):
    monkeypatch.setattr(remote_storage, "PATIENCE_S", 0.5)
    with monkeypatch.context() as patch:
        patch.setattr(remote_storage, "time", Clock(time.time() - ahead_s))
        leave(conn, "/srv/images")
    with (
        pytest.raises(remote_storage.errors.OperationFailed, match="another migration"),
        remote_storage.open_pool(conn, "/srv/images"),
    ):
        pass
    assert len(pools(conn)) == 2
    for pool in conn.listAllStoragePools():
        if remote_storage.is_transient(pool):
            pool.destroy()


def test_a_pool_that_another_migration_needs_is_waited_for(conn, monkeypatch):
    monkeypatch.setattr(remote_storage, "PATIENCE_S", 0.5)
    leave(conn, "/srv/images")
    with (
        pytest.raises(remote_storage.errors.OperationFailed, match="another migration"),
        remote_storage.open_pool(conn, "/srv/images"),
    ):
        pass


@pytest.mark.parametrize("name", ["salt-virt-data", "salt-virt-1-0a0b0c0d"])
def test_a_users_pool_is_the_users_whatever_its_name(conn, name):
    """Its name says nothing: only what we made ourselves is ever destroyed or undefined."""
    folder = f"<target><path>/srv/{name}</path></target>"
    pool = conn.storagePoolDefineXML(f"<pool type='dir'><name>{name}</name>{folder}</pool>", 0)
    pool.create(0)
    with remote_storage.open_pool(conn, f"/srv/{name}") as found:
        assert found.name() == name
    remote_storage.remove_folder(conn, f"/srv/{name}")
    assert pool.isActive()
    assert pool.isPersistent()
    pool.destroy()
    with remote_storage.open_pool(conn, f"/srv/{name}") as found:
        assert found.isActive()
    assert not pool.isActive()
    assert name in pools(conn)
    pool.undefine()


class Filling:
    """A pool in which libvirt fills a volume for a user: it cannot be refreshed."""

    def __init__(self, pool, refusals):
        self.pool, self.refusals = pool, refusals

    def refresh(self, flags):
        if self.refusals:
            self.refusals -= 1
            raise libvirt.libvirtError("pool 'data' has asynchronous jobs running.")
        return self.pool.refresh(flags)

    def __getattr__(self, name):
        return getattr(self.pool, name)


@pytest.mark.parametrize("refusals", [1, 1000])
def test_a_users_pool_at_work_is_waited_for_then_used_as_it_is(conn, monkeypatch, refusals):
    monkeypatch.setattr(remote_storage, "BUSY_S", 0.6)
    found = Filling(conn.storagePoolLookupByName("default-pool"), refusals)
    monkeypatch.setattr(remote_storage, "_find", lambda *_: found)
    with remote_storage.open_pool(conn, "/default-pool") as pool:
        path = "/default-pool/web1_vda.qcow2"
        remote_storage.create(pool, path, "qcow2", 2**20)
        assert remote_storage.volume(pool, path) is not None
        with pytest.raises(remote_storage.errors.VirtError, match="exists"):
            remote_storage.create(pool, path, "qcow2", 2**20)
        remote_storage.volume(pool, path).delete(0)


class Unreadable(Filling):
    """A pool with a file that libvirt may not read: it stops the pool over it."""

    def refresh(self, _flags):
        self.pool.destroy()
        raise libvirt.libvirtError("cannot read header '/x': Permission denied")


def test_a_users_pool_that_cannot_be_looked_into_is_not_left_stopped(conn, monkeypatch):
    pool = conn.storagePoolLookupByName("default-pool")
    monkeypatch.setattr(remote_storage, "_find", lambda *_: Unreadable(pool, 0))
    with (
        pytest.raises(remote_storage.errors.OperationFailed, match="Permission denied"),
        remote_storage.open_pool(conn, "/default-pool"),
    ):
        pass
    assert pool.isActive()


def test_what_an_image_stands_on(tmp_path):
    base, middle, top = (str(tmp_path / name) for name in ("base", "middle", "top"))
    run = ["qemu-img", "create", "-q", "-f", "qcow2"]
    try:
        subprocess.run([*run, base, "10M"], check=True)
    except FileNotFoundError:
        pytest.skip("qemu-img is not installed")
    subprocess.run([*run, "-b", base, "-F", "qcow2", middle], check=True)
    subprocess.run([*run, "-b", "middle", "-F", "qcow2", top], check=True)
    assert [image.path for image in guest_disks.images(top, "qcow2")] == [top, middle, base]
    assert files.chain_paths(top) == [top, middle, base]
    assert files.chain_paths(str(tmp_path / "gone")) == [str(tmp_path / "gone")]


DISK = """<domain><devices><disk type='file' device='disk'><driver name='qemu' type='qcow2'/>
<source file='{}'/><target dev='vda'/></disk></devices></domain>"""


@pytest.mark.parametrize("below", [False, True])
def test_a_disk_whose_data_is_in_another_file_is_not_moved(conn, tmp_path, below):
    """Only the file that the disk names would come along: an empty map of data that stays here."""
    image, data, top = (str(tmp_path / name) for name in ("disk.qcow2", "data.raw", "top"))
    run = ["qemu-img", "create", "-q", "-f", "qcow2"]
    subprocess.run([*run, "-o", f"data_file={data},data_file_raw=on", image, "1M"], check=True)
    if below:
        subprocess.run([*run, "-b", image, "-F", "qcow2", top], check=True)
    root = ElementTree.fromstring(DISK.format(top if below else image))
    [disk] = guest_disks.read(root, conn)
    [plan] = storage.plan([disk], {})
    assert plan.method == storage.REFUSED
    assert plan.reason == (
        f"{image} stores its data in another file, {data}: convert it to an image "
        "without one (qemu-img convert)"
    )


def test_several_at_once_get_the_folder_one_after_the_other(conn):
    def use(_number):
        for _ in range(300):
            with remote_storage.open_pool(conn, "/srv/images") as pool:
                if pool is None:
                    return False
        return True

    with ThreadPoolExecutor(max_workers=8) as workers:
        assert all(workers.map(use, range(8)))
    assert pools(conn) == ["default-pool"]


def test_deleting_says_whether_there_was_something(conn):
    path = "/default-pool/web1_vda.qcow2"
    with remote_storage.open_pool(conn, "/default-pool") as pool:
        remote_storage.create(pool, path, "qcow2", 2**20)
    assert remote_storage.delete(conn, path) is True
    assert remote_storage.delete(conn, path) is False


def test_a_file_that_is_still_there_is_not_reported_as_deleted(conn, tmp_path):
    left, gone = tmp_path / "web1_vda.qcow2", tmp_path / "gone.qcow2"
    left.touch()  # the test driver's pools show no real files
    report = GuestReport("web1", "6f3c7a4e-62c7-4d5f-8f0e-0d8f0b6c9b11", "hv1", False, "shutdown")
    deleted, kept = confirm.remove_source(conn, report, [str(left), str(gone)])
    assert deleted == []
    assert list(kept) == [str(left)]


def test_an_error_is_not_taken_for_an_absent_volume(conn):
    pool = conn.storagePoolLookupByName("default-pool")
    pool.destroy()
    try:
        with pytest.raises(remote_storage.errors.OperationFailed):
            remote_storage.volume(pool, "/default-pool/web1_vda.qcow2")
    finally:
        pool.create()  # the driver may outlive this test
