"""Reservations of a target for arriving guests, as its libvirt's pools show them."""

# ruff: noqa: F811
import contextlib
import json
import os

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.host.migration import remote_storage, reservations
from saltvirt.migration import reservation
from saltvirt.migration.facts import GuestReport, TargetReport
from saltvirt.migration.reservation import Reservation
from saltvirt.system import file_lock, paths
from tests.clock import Clock
from tests.functional.conftest import EMPTY
from tests.functional.daemon import libvirtd  # noqa: F401

GUEST = GuestReport("web1", "u", "hv1", False, "shutdown", memory_kib=1024, vcpus=2)
NOW = 1_000_000


@pytest.fixture
def peer(monkeypatch):
    """The target's libvirt; its folder of reservations has a pool, as the test driver forgets what
    was in one that passes. When what was written is in ``written``: no time is known else."""
    conn, written = libvirt.open(EMPTY), {}
    conn.storagePoolCreateXML(
        "<pool type='dir'><name>kept</name>"
        f"<target><path>{reservations.FOLDER}</path></target></pool>"
    )
    monkeypatch.setattr(reservations, "time", Clock(NOW))
    monkeypatch.setattr(
        remote_storage, "written_at",
        lambda volume: written.get(".clock" if volume.name()[0] == "." else volume.name()),
    )  # fmt: skip
    conn.written = written
    yield conn
    conn.close()


def pool_of(peer):
    return peer.storagePoolLookupByName("kept")


def files(peer):
    return sorted(pool_of(peer).listVolumes())


def put(peer, *names):
    for file in names:
        remote_storage.create(pool_of(peer), f"{reservations.FOLDER}/{file}", "raw", 0)


def test_only_what_is_in_that_folder_is_one():
    assert reservations.is_reservation(f"{reservations.FOLDER}/web1~1~1~1")
    for other in ("/vm/web1~1~1~1", f"{reservations.FOLDER}/x/y", reservations.FOLDER):
        assert not reservations.is_reservation(other)


def test_what_a_guest_will_have_is_in_the_name_of_its_reservation(peer):
    path = reservations.reservation_path(GUEST, [])
    assert path == f"{reservations.FOLDER}/{Reservation('web1', 1024, 2, NOW).file}"


def test_what_another_host_has_promised(peer):
    put(peer, f"a~1~1~{NOW}", f"b~1~1~{NOW}", f"c~1~1~{NOW}", "notes")
    there = reservations.remote(peer, {"b"}, without={f"c~1~1~{NOW}"})
    assert there == [Reservation("a", 1, 1, NOW)]
    assert files(peer) == [*(f"{name}~1~1~{NOW}" for name in "abc"), "notes"]


def test_a_host_without_the_folder_has_promised_nothing(peer, monkeypatch):
    monkeypatch.setattr(reservations, "FOLDER", "/dev/none")
    assert reservations.remote(peer, ()) == []


def test_they_are_as_old_as_the_clock_of_their_host_says(peer):
    put(peer, "a~1~1~1", f"b~1~1~{NOW - 7}")
    peer.written.update({".clock": 5000.5, "a~1~1~1": 4000.0})
    assert reservations._ages(pool_of(peer)) == {"a~1~1~1": 1000.5, f"b~1~1~{NOW - 7}": 7}
    del peer.written[".clock"]
    ages = {"a~1~1~1": NOW - 1, f"b~1~1~{NOW - 7}": 7}
    assert reservations._ages(pool_of(peer)) == ages, "by their names"


def test_where_there_is_none_no_clock_is_asked_for(peer, monkeypatch):
    put(peer, "notes", "a~1~1~1")
    monkeypatch.setattr(reservations, "_clock", None)
    assert reservations._ages(pool_of(peer), without=("a~1~1~1",)) == {}


class Changing:
    """A pool in which one was released since it was listed."""

    def __init__(self, pool):
        self._pool = pool

    def __getattr__(self, name):
        return getattr(self._pool, name)

    def listVolumes(self):
        return [*self._pool.listVolumes(), "gone~1~1~1"]


def test_one_that_was_released_just_now_is_none(peer):
    put(peer, "a~1~1~1")
    assert list(reservations._ages(Changing(pool_of(peer)))) == ["a~1~1~1"]
    reservations._tidy(Changing(pool_of(peer)), "gone")


def test_the_clock_is_an_empty_file_that_goes_again(peer, monkeypatch):
    seen, real = [], remote_storage.create

    def create(pool, path, *how, **more):
        found = real(pool, path, *how, **more)
        seen.append((os.path.dirname(path), found.info()[1], more))
        return found

    monkeypatch.setattr(remote_storage, "create", create)
    peer.written[".clock"] = 7.0
    assert reservations._clock(pool_of(peer)) == 7
    assert seen == [(reservations.FOLDER, 0, {"mode": "0600"})]
    assert files(peer) == []


def test_what_an_earlier_attempt_left_goes_and_what_died(peer):
    old, young = NOW - reservation.KEEP_S - 1, NOW - reservation.KEEP_S
    put(peer, f"web1~1~1~{NOW}", f"a~1~1~{old}", f"b~1~1~{young}", "notes")
    reservations._tidy(pool_of(peer), "web1")
    assert files(peer) == [f"b~1~1~{young}", "notes"]


# -- one guest's own ----------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch):
    """What the account of the target was asked about; ``why`` it says no."""

    class Asked:
        why, hosts = (), []

        def reasons(self, report, host, request):
            assert (report, request) == (GUEST, "request")
            self.hosts.append(host)
            return iter(self.why)

    found = Asked()
    found.hosts = []
    monkeypatch.setattr(reservations.capacity, "reasons", found.reasons)
    monkeypatch.setattr(reservations.facts, "domains", lambda peer: ())
    return found


def reserve(peer):
    path = reservations.reservation_path(GUEST, [])
    reservations.reserve(peer, path, GUEST, TargetReport("hv2", cpus=9), "request")
    return path


def test_it_is_written_down_first_and_counted_then(peer, asked):
    """So that of two that come at once at least one sees the other."""
    put(peer, f"db1~1~1~{NOW}", f"web1~9~9~{NOW - 5}")
    path = reserve(peer)
    mine = reservation.parse(os.path.basename(path))
    [host] = asked.hosts
    assert host.reservations == (Reservation("db1", 1, 1, NOW), mine)
    assert (host.hostname, host.cpus) == ("hv2", 9)
    assert files(peer) == [f"db1~1~1~{NOW}", mine.file]
    assert pool_of(peer).storageVolLookupByName(mine.file).info()[1] == 0


def test_what_was_promised_to_others_since_is_refused(peer, asked):
    asked.why = ("no memory", "no CPUs")
    with pytest.raises(errors.TargetRefused, match=r"refused: no memory; no CPUs$"):
        reserve(peer)
    assert files(peer) == []


def test_what_is_released_are_reservations_alone(peer):
    put(peer, "a~1~1~1", "b~1~1~1")
    path = f"{reservations.FOLDER}/a~1~1~1"
    paths = [path, f"{reservations.FOLDER}/gone~1~1~1", "/vm/web1_vda"]
    assert reservations.release(peer, paths) == [path]
    assert files(peer) == ["b~1~1~1"]


def test_one_that_was_cleaned_away_is_made_again_to_be_renewed(libvirtd, tmp_path, monkeypatch):
    folder = tmp_path / "arrivals"
    monkeypatch.setattr(reservations, "FOLDER", str(folder))
    conn, path = libvirt.open(libvirtd.uri), f"{folder}/web1~1~1~1"
    for _ in range(2):
        reservations.renew(conn, path)
        [file] = folder.iterdir()
        assert (file.name, file.read_bytes()) == ("web1~1~1~1", b".")
        assert file.stat().st_mode & 0o777 == 0o600
        os.utime(file, (5, 5))
    conn.close()


def test_a_renewal_that_was_not_written_is_none(libvirtd, tmp_path, monkeypatch):
    def full(stream):
        raise libvirt.libvirtError("No space left on device")

    monkeypatch.setattr(reservations, "FOLDER", str(tmp_path / "arrivals"))
    monkeypatch.setattr(libvirt.virStream, "finish", full)
    conn = libvirt.open(libvirtd.uri)
    with pytest.raises(errors.VirtError, match="No space left on device"):
        reservations.renew(conn, f"{tmp_path}/arrivals/web1~1~1~1")
    conn.close()


def test_the_first_one_makes_their_folder(libvirtd, tmp_path, monkeypatch, asked):
    monkeypatch.setattr(reservations, "FOLDER", str(tmp_path / "arrivals"))
    conn = libvirt.open(libvirtd.uri)
    path = reserve(conn)
    assert [str(file) for file in (tmp_path / "arrivals").iterdir()] == [path]
    conn.close()


# -- this host's own ----------------------------------------------------------------------


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "RUN", str(tmp_path / "run"))
    return tmp_path / "run" / "arrivals.json"


def test_what_was_seen_is_written_down_when_it_changes(run, tmp_path, monkeypatch):
    folder = tmp_path / "arrivals"
    folder.mkdir()
    (folder / "a~1~1~1").touch()
    assert len(reservations.local((), str(folder))) == 1
    [(file, (time_ns, since))] = json.loads(run.read_text()).items()
    assert (file, time_ns) == ("a~1~1~1", (folder / file).stat().st_mtime_ns)
    assert run.parent.stat().st_mode & 0o777 == 0o700
    with monkeypatch.context() as patch:
        patch.setattr(reservations, "_write", None)
        assert len(reservations.local((), str(folder))) == 1
    for damage in ("{", "\udcff"):
        run.write_bytes(damage.encode(errors="surrogateescape"))
        assert len(reservations.local((), str(folder))) == 1
        assert json.loads(run.read_text())["a~1~1~1"][1] >= since


def test_who_writes_it_down_just_now_is_not_waited_for(run, tmp_path):
    with contextlib.suppress(FileExistsError):
        run.parent.mkdir(mode=0o700)
    with file_lock.exclusive(f"{run}.lock", timeout_s=0):
        reservations._write(str(run), {})
    assert not run.exists()
    reservations._write(str(run), {})
    assert json.loads(run.read_text()) == {}


def test_where_others_can_write_nothing_is_written_down(run, tmp_path):
    run.parent.mkdir()
    run.parent.chmod(0o777)
    reservations._write(str(run), {})
    assert list(run.parent.iterdir()) == []
