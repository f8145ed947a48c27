"""A file system whose server is dead, like hard-mounted NFS: whoever uses it waits forever. Checks
before deletions and inventories do not wait."""

import errno
import fcntl
import math
import os
import signal
import threading
import time

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.host.domain import overview, purge
from saltvirt.host.node import inventory
from saltvirt.host.provision import existing_disk
from saltvirt.host.storage import pools, sharing, unchanged_disks, usage, volumes
from saltvirt.images import storage
from saltvirt.placement import facts, policy
from saltvirt.placement.filters import disk as disk_filter
from saltvirt.placement.filters import pools as pools_filter
from saltvirt.system import bounded_io, file_probe, mounts
from tests.fakes import inventory as inventories
from tests.functional import hung, hung_disk
from tests.functional.host.storage.test_usage import create, disk, place  # noqa: F401


@pytest.fixture
def dead(tmp_path, monkeypatch):
    """The path of a folder whose file system does not respond."""
    monkeypatch.setattr(bounded_io, "ANSWER_TIMEOUT_S", 1)
    monkeypatch.setattr(bounded_io, "LIST_TIMEOUT_S", 1)
    monkeypatch.setattr(bounded_io, "_table", [])
    folder = tmp_path / "dead"
    folder.mkdir()
    with hung.mounted(folder):
        yield str(folder)


@pytest.fixture(autouse=True)
def clock():
    began = time.monotonic()
    yield
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("ask", ["stat", "lexists", "locked", "files", "names"])
def test_each_question_has_an_end(dead, ask, monkeypatch):
    with (
        bounded_io.record_timeouts() as silent,
        pytest.raises(bounded_io.StorageTimeout, match=f"{dead} does not respond"),
    ):
        getattr(bounded_io, ask)(f"{dead}/x")
    assert silent == {dead}
    monkeypatch.setattr(bounded_io, "ANSWER_TIMEOUT_S", 600)
    monkeypatch.setattr(bounded_io, "LIST_TIMEOUT_S", 600)
    with pytest.raises(bounded_io.StorageTimeout):
        getattr(bounded_io, ask)(f"{dead}/y")  # it is asked only once


def test_what_leads_there_by_a_link_has_an_end(dead, tmp_path):
    os.symlink(dead, tmp_path / "link")
    with pytest.raises(bounded_io.StorageTimeout):
        bounded_io.stat(str(tmp_path / "link" / "x"))
    assert bounded_io.real(str(tmp_path / "link" / "x")) == str(tmp_path / "link" / "x")
    assert bounded_io.lexists(str(tmp_path / "link"))


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """Our own folder ``far``, of which all questions go to the process beside us."""
    folder = tmp_path / "far"
    folder.mkdir()
    row = mounts.Mount("0:40", "/", str(folder), "nfs4", "nas:/export")
    real = mounts.read
    monkeypatch.setattr(mounts, "read", lambda: [*real(), row])
    monkeypatch.setattr(bounded_io, "_table", [])
    monkeypatch.setattr(bounded_io, "ANSWER_TIMEOUT_S", 60)
    monkeypatch.setattr(bounded_io, "LIST_TIMEOUT_S", 60)
    return folder


def test_one_that_answers_is_read_as_any_other(asked, tmp_path):
    (asked / "in").mkdir()
    (asked / "in" / "b\udcff").write_bytes(b"12345")
    os.symlink("in/b\udcff", asked / "a")
    os.symlink("../..", asked / "in" / "up")
    os.symlink("round", asked / "round")
    os.symlink(asked, tmp_path / "link")
    os.mkfifo(asked / "fifo")
    for path in (asked / "a", tmp_path / "link" / "in" / ".." / "a", asked / "in" / "up" / "far"):
        assert bounded_io.real(str(path)) == os.path.realpath(path)
        assert bounded_io.stat(str(path)).st_ino == os.stat(path).st_ino
    assert bounded_io.head(str(asked / "a"), 3) == b"123"
    assert bounded_io.head(str(asked / "fifo"), 3) is None
    assert sorted(bounded_io.files_below(str(asked))) == sorted(
        [str(asked / "a"), str(asked / "in" / "b\udcff")]
    )
    assert bounded_io.lexists(str(asked / "round"))
    assert not bounded_io.lexists(str(asked / "none"))
    for path, error in ((asked / "none", FileNotFoundError), (asked / "round", OSError)):
        with pytest.raises(error):
            bounded_io.stat(str(path))
    assert bounded_io.real(str(asked / "round")) == str(asked / "round")
    assert bounded_io.real("/with\0nul") == "/with\0nul"
    with pytest.raises(ValueError, match="null"):
        bounded_io.stat(f"{asked}/with\0nul")


def test_one_below_another_is_asked_for_itself(asked, monkeypatch):
    """What is dead below costs nothing of what is above it."""
    below = asked / "in" / "below"
    (below / "x").mkdir(parents=True)
    row, real = mounts.Mount("0:41", "/", str(below), "nfs4", "dead:/export"), mounts.read
    monkeypatch.setattr(mounts, "read", lambda: [*real(), row])
    assert bounded_io.real(f"{below}/x/../x") == f"{below}/x"
    monkeypatch.setattr(bounded_io, "_silent", {str(below): math.inf})
    with pytest.raises(bounded_io.StorageTimeout, match=f"{below} does not respond"):
        bounded_io.stat(f"{below}/x")
    assert bounded_io.names(str(asked)) == ["in"]


def test_who_ends_without_an_answer_is_silent_and_the_next_is_asked(asked, monkeypatch, tmp_path):
    mute = tmp_path / "mute.py"
    mute.write_text("import socket\nsocket.socket(fileno=0).recv(65536)\n")
    bounded_io._abandon_worker()
    with monkeypatch.context() as patch:
        patch.setattr(bounded_io.file_probe, "__file__", str(mute))
        with pytest.raises(bounded_io.StorageTimeout, match=f"{asked} does not respond"):
            bounded_io.stat(str(asked))
    monkeypatch.setattr(bounded_io, "_silent", {})
    assert bounded_io.stat(str(asked)).st_ino == os.stat(asked).st_ino


def test_a_process_that_was_forked_has_its_own_to_ask(asked):
    assert bounded_io.stat(str(asked))
    before = bounded_io._worker[0].process.pid
    child = os.fork()
    if not child:
        os._exit(
            0 if bounded_io.stat(str(asked)) and bounded_io._worker[0].process.pid != before else 1
        )
    assert os.waitpid(child, 0)[1] == 0
    assert bounded_io.stat(str(asked))
    assert bounded_io._worker[0].process.pid == before


def test_a_process_that_was_forked_while_another_thread_asked_can_ask(asked):
    """It has that thread's lock, and not the thread."""
    held, end = threading.Event(), threading.Event()

    def hold():
        with bounded_io._locks[0]:
            held.set()
            end.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if not child:
        signal.alarm(120)
        os._exit(0 if bounded_io.stat(str(asked)) else 1)
    end.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


def test_what_is_held_there_is_held_by_us(asked):
    """The process beside us opens it, and hands it over with its locks."""
    (asked / "disk").write_bytes(b"12345")
    path = str(asked / "disk")
    with unchanged_disks.prevent_open(path) as taken:
        assert not taken
        assert bounded_io.locked(path)
        bounded_io._abandon_worker()
        assert bounded_io.locked(path)
    assert not bounded_io.locked(path)
    with unchanged_disks.UnchangedDisks("g1", [path]) as held:
        assert bounded_io.locked(path)
        held.check()
    assert not bounded_io.locked(path)
    with storage.open_for_reading(path) as file:
        assert file.read() == b"12345"
        assert not os.get_inheritable(file.fileno())
    with open(path, "rb") as file:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, file_probe.flock(fcntl.F_RDLCK, file_probe.USED))
        with unchanged_disks.prevent_open(path) as taken:
            assert taken
    with open(path, "r+b") as file:
        fcntl.fcntl(
            file,
            fcntl.F_OFD_SETLK,
            file_probe.flock(fcntl.F_WRLCK, file_probe.USED + file_probe.WRITE),
        )
        with (
            pytest.raises(errors.OperationFailed, match="open for writing"),
            unchanged_disks.UnchangedDisks("g", [path]),
        ):
            pass
    for what in (asked, asked / "none"):
        with unchanged_disks.prevent_open(str(what)) as taken:
            assert not taken
        with pytest.raises((errors.OperationFailed, errors.ImageError, OSError)):
            storage.descriptor(str(what))
        with (
            pytest.raises(errors.OperationFailed),
            unchanged_disks.UnchangedDisks("g1", [str(what)]),
        ):
            pass


def _fill(folder):
    (folder / "in").mkdir()
    (folder / "in" / "web1.raw").write_bytes(b"x" * 5000)
    create(folder / "in" / "web2.qcow2", "/none/base.raw")


@pytest.fixture
def disk_dies(tmp_path, monkeypatch):
    """A disk of this machine's own with an ext4 that is mounted here."""
    monkeypatch.setattr(bounded_io, "ANSWER_TIMEOUT_S", 1)
    monkeypatch.setattr(bounded_io, "LIST_TIMEOUT_S", 1)
    with hung_disk.made(tmp_path, _fill) as found:
        monkeypatch.setattr(bounded_io, "_table", [])
        monkeypatch.setattr(bounded_io, "_silent", {})
        yield found


def test_a_disk_of_our_own_that_is_gone_holds_nobody_up(disk_dies, place):  # noqa: F811
    """ext4 on a LUN whose last path is gone: the kernel waits for it to come back."""
    path = f"{disk_dies.folder}/in/web1.raw"
    place.guest(disk(f"{disk_dies.folder}/in/web2.qcow2", "raw"))
    dom = place.guest(disk(path, "raw"), name="web2")
    disk_dies.dies()
    for ask in ("stat", "lexists", "locked", "files", "names", "open_read"):
        with pytest.raises(bounded_io.StorageTimeout, match=f"{disk_dies.folder} does not respond"):
            getattr(bounded_io, ask)(path)
    with pytest.raises(bounded_io.StorageTimeout, match=f"{disk_dies.device} does not respond"):
        bounded_io.head(disk_dies.device, 1 << 17)
    found = purge.plan(place.conn, dom)
    assert (found.delete, found.keep) == ([], {path: f"{disk_dies.folder} does not respond"})
    assert f"files on {disk_dies.folder}: it does not respond" in place.why()
    assert read(place.conn, disk_dies.folder)["silent"] == [disk_dies.folder]


def test_a_device_that_is_gone_is_a_doubt(disk_dies, place):  # noqa: F811
    """Any image might lie on it, and be based on what is to be deleted."""
    assert place.why() is None
    disk_dies.dies()
    place.guest(disk(disk_dies.device, "qcow2").replace("file", "block").replace("block=", "dev="))
    assert f"files on {disk_dies.device}: it does not respond" in place.why()


def test_what_is_in_memory_or_on_the_systems_own_disk_is_asked_by_us(monkeypatch):
    rows = [
        mounts.Mount("254:0", "/", "/", "ext4", "/dev/vda"),
        mounts.Mount("254:0", "/srv", "/mnt", "ext4", "/dev/vda"),
        mounts.Mount("0:5", "/", "/tmp", "tmpfs", "tmpfs"),
        mounts.Mount("254:1", "/", "/data", "xfs", "/dev/vdb"),
        mounts.Mount("0:50", "/", "/merged", "overlay", "overlay"),
        mounts.Mount("0:51", "/", "/data/nas", "nfs4", "nas:/x"),
    ]
    monkeypatch.setattr(mounts, "read", lambda: rows)
    monkeypatch.setattr(bounded_io, "_table", [])
    assert bounded_io._far_mounts() == ("/data/nas", "/merged", "/data")
    rows[0] = mounts.Mount("0:40", "/", "/", "nfs4", "nas:/root")
    monkeypatch.setattr(bounded_io, "_table", [])
    assert "/" in bounded_io._far_mounts()


def test_who_is_interrupted_does_not_take_the_answer_for_that_to_the_next_question(
    asked, monkeypatch
):
    """What is made is taken back then, and asks again."""
    (asked / "there").touch()

    def stopped(*_):
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(bounded_io, "_receive", stopped)
        with pytest.raises(SystemExit):
            bounded_io.lexists(str(asked / "none"))
    assert bounded_io.lexists(str(asked / "there"))
    assert not bounded_io.lexists(str(asked / "none"))


def _refused(*_, **__):
    raise PermissionError(errno.EACCES, "Permission denied")


def _no_process(*_, **__):
    raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")


@pytest.mark.parametrize("fault", ["file system", "process"])
def test_a_file_of_which_nobody_could_tell_is_not_taken_for_gone(
    asked,
    place,  # noqa: F811
    monkeypatch,
    fault,
):
    """What is gone needs no more questions: with it there is nothing to delete."""
    path = asked / "web1.raw"
    path.write_bytes(b"x")
    place.guest(disk(path, "raw"))
    dom = place.guest(disk(path, "raw"), name="web2")
    assert purge.plan(place.conn, dom).delete == []
    if fault == "process":
        monkeypatch.setattr(bounded_io, "_worker", [])
        monkeypatch.setattr(bounded_io.subprocess, "Popen", _no_process)
    else:
        monkeypatch.setitem(file_probe.QUERIES, "file_stat", _refused)
        monkeypatch.setattr(bounded_io, "_far_mounts", tuple)
    assert purge.plan(place.conn, dom).delete == []


def test_a_disk_there_stays_and_is_named(dead, place):  # noqa: F811
    dom = place.guest(disk(f"{dead}/web1.raw", "raw"))
    found = purge.plan(place.conn, dom)
    assert found.delete == []
    assert found.keep == {f"{dead}/web1.raw": f"{dead} does not respond"}


def test_with_a_guest_that_may_stand_on_it_nothing_is_proven(dead, place):  # noqa: F811
    place.guest(disk(f"{dead}/web1.qcow2"))
    assert f"files on {dead}: it does not respond" in place.why()


def test_a_pool_there_is_a_doubt(dead, place, monkeypatch):  # noqa: F811
    place.pool("nas", dead)
    assert f"files on {dead}: it does not respond" in place.why()


def test_an_image_below_a_folder_there_is_a_doubt(dead, place):  # noqa: F811
    assert f"files on {dead}: it does not respond" in place.why(below_folder=str(place.root))


def test_a_folder_of_images_that_cannot_be_read_is_a_doubt(place, monkeypatch):  # noqa: F811
    folder = place.root / "images"
    folder.mkdir(exist_ok=True)
    assert place.why(below_folder=str(folder)) is None
    names = file_probe.names
    monkeypatch.setitem(
        file_probe.QUERIES,
        "names",
        lambda path, *most: _refused() if path == str(folder) else names(path, *most),
    )
    assert f"cannot search {folder}: Permission denied" in place.why(below_folder=str(folder))


def test_a_chain_that_leads_there(dead, place):  # noqa: F811
    place.guest(disk(create(place.above, f"{dead}/base.raw")))
    assert f"files on {dead}: it does not respond" in place.why()


def test_a_link_beside_it_that_leads_there(dead, place):  # noqa: F811
    os.symlink(f"{dead}/x", place.base.parent / "link")
    assert f"files on {dead}: it does not respond" in place.why()


def test_what_another_host_asks_about_is_in_doubt(dead, place):  # noqa: F811
    place.guest(disk(f"{dead}/web1.raw", "raw"))
    found = usage.users_here(place.conn, [sharing.FileIdentity("/nfs/x.raw", inode=7)])
    assert f"files on {dead}: it does not respond" in found["/nfs/x.raw"]


def test_it_may_be_other_hosts(dead):
    assert sharing.sharing_reason(f"{dead}/x") == f"fuse.hung at {dead}"


def read(conn, folder):
    return inventory.read(conn, lambda key, default=None: default, folder).to_answer()


def test_an_inventory_goes_on_and_names_it(dead, place):  # noqa: F811
    """Its pool, its guests' disks, its folder of images."""
    place.pool("nas", dead, start=True)
    volume = "<disk type='volume'><source pool='nas' volume='v'/><target dev='vdb'/></disk>"
    place.guest(disk(f"{dead}/web1.raw", "raw") + volume)
    place.guest(disk(place.base, "raw"), name="web2")
    found = read(place.conn, f"{dead}/images")
    assert found["silent"] == [dead]
    assert set(found["guests"]) == {"test", "web1", "web2"}
    assert found["guests"]["web2"]["disks"][0]["size_bytes"] > 0
    assert found["pools"]["nas"]["store"] == dead
    assert (found["stores"][dead]["free_bytes"], found["images"]) == (0, [])


def test_libvirt_is_not_asked_for_the_statistics_of_disks_there(dead, place):  # noqa: F811
    place.guest(disk(f"{dead}/web1.raw", "raw"))

    class Watched:
        """libvirt waits in a lock of its own then, and all others with it."""

        def __getattr__(self, name):
            return getattr(place.conn, name)

        def getAllDomainStats(self, wanted, flags):
            assert not wanted & libvirt.VIR_DOMAIN_STATS_BLOCK, "all are asked"
            return place.conn.getAllDomainStats(wanted, flags)

        def domainListGetStats(self, doms, wanted, flags):
            if wanted & libvirt.VIR_DOMAIN_STATS_BLOCK:
                assert "web1" not in {dom.name() for dom in doms}
            return place.conn.domainListGetStats(doms, wanted, flags)

    found = inventory.read(Watched(), lambda key, default=None: default, str(place.root))
    found = found.to_answer()
    assert found["guests"]["web1"]["state"] == "shutdown"
    assert overview.full_info(Watched())["vm_info"]["web1"]["state"] == "shutdown"
    assert "web1" in overview.vm_diskstats(Watched(), "web1")


def test_no_guest_is_placed_there(dead, place):  # noqa: F811
    place.pool("nas", dead, start=True)
    host = inventories.host("hv1", read(place.conn, f"{dead}/images"))
    request = facts.PlacementRequest("web1", 1, 1, pools={"nas": 1}, disk_bytes=1)
    words = pools_filter.reason(host, request, policy.PlacementPolicy())
    assert words == f"pool nas is on {dead}, which does not respond"
    assert disk_filter.reason(host, request, policy.PlacementPolicy()) == f"{dead} does not respond"


def test_what_is_open_is_not_known_there(dead, place):  # noqa: F811
    """A file system that dies after everything else was asked."""
    with pytest.raises(bounded_io.StorageTimeout):
        unchanged_disks.is_open(f"{dead}/x")
    with pytest.raises(bounded_io.StorageTimeout), unchanged_disks.prevent_open(f"{dead}/x"):
        pass
    with pytest.raises(bounded_io.StorageTimeout):
        existing_disk.is_block(f"{dead}/x")
    assert usage.open_reason(place.conn, f"{dead}/x") == f"{dead} does not respond"


def test_libvirt_is_not_sent_into_a_pool_there(dead, place, monkeypatch):  # noqa: F811
    """It would wait with its lock on the pool, and everybody who asks for the pool with it."""
    pool = place.pool("nas", dead, start=True)
    pool.createXML("<volume><name>v</name><capacity>1024</capacity></volume>", 0)
    other = "<volume><name>w</name><capacity>1024</capacity></volume>"
    for doing, ask in {
        "refresh storage pool nas": lambda: pools.refresh(pool),
        "stop storage pool nas": lambda: pools.stop(pool),
        "start storage pool nas": lambda: pools.start(pool),
        "delete the resources of storage pool nas": lambda: pools.delete(pool),
        "use volume v in storage pool nas": lambda: volumes.lookup(place.conn, "nas", "v"),
        "create a volume in storage pool nas": lambda: volumes.define_xml(place.conn, "nas", other),
    }.items():
        with pytest.raises(errors.OperationFailed, match=f"^cannot {doing}: {dead} does not resp"):
            ask()
    with pytest.raises(errors.OperationFailed, match=f"{dead} does not respond"):
        volumes.clone(place.conn, "nas", "v", "w")
    assert pool.isActive()
    assert pool.listVolumes() == ["v"]
    place.guest("<disk type='volume'><source pool='nas' volume='v'/><target dev='vda'/></disk>")
    found = overview.vm_info(place.conn)["web1"]["disks"]["vda"]
    assert found["error"] == f"{dead} does not respond"


def test_volumes_are_listed_without_those_of_it(dead, place):  # noqa: F811
    pool = place.pool("nas", dead, start=True)
    pool.createXML("<volume><name>v</name><capacity>1024</capacity></volume>", 0)
    assert volumes.infos(place.conn)["nas"] == {
        "v": {"error": f"{dead} does not respond", "used_by": []}
    }
