"""Locked files of the master: the holder, and the timeout of others."""

import fcntl
import os
import stat

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.operations.journal import lock
from saltvirt.system import file_lock
from tests.clock import Clock
from tests.machine import open_files


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "lock")


def opts(tmp_path, **virt):
    return {"cachedir": str(tmp_path / "cache"), "virt": virt}


def test_who_has_a_lock_is_written_into_it(path):
    with open(path, "w", encoding="utf-8") as file:
        file.write("x" * 1000)
    handle = file_lock.take(path, "virt.init of web1")
    assert os.path.getsize(path) < 200, "what was there is gone"
    said = file_lock.owner(path)
    assert said.startswith(f"virt.init of web1, process {os.getpid()} of ")
    assert said.endswith(" UTC")
    assert file_lock.take(path, "another") is None
    assert file_lock.owner(path) == said
    os.close(handle)
    assert file_lock.owner(path) == said, "who had it last"


def test_a_lock_is_the_masters_own(path):
    before = os.umask(0)
    try:
        os.close(file_lock.take(path, "x"))
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_whether_a_lock_is_taken(path):
    assert file_lock.is_taken(path) is False
    assert not os.path.exists(path), "to look makes no file"
    handle, fds = file_lock.take(path, "x"), open_files()
    assert file_lock.is_taken(path) is True
    assert file_lock.take(path, "y") is None
    assert open_files() == fds
    os.close(handle)
    assert file_lock.is_taken(path) is False
    assert open_files() == fds - 1


def test_who_only_looks_is_in_nobodys_way(path):
    with open(path, "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        assert file_lock.is_taken(path) is False


@pytest.mark.parametrize("why", [KeyError, OSError])
def test_a_user_without_a_name_has_a_number(path, monkeypatch, why):
    def unknown():
        raise why

    monkeypatch.setattr(file_lock.getpass, "getuser", unknown)
    os.close(file_lock.take(path, "x"))
    assert f"of {os.getuid()}, since" in file_lock.owner(path)


def test_of_an_owner_so_much_is_told_and_no_more(path):
    assert file_lock.owner(path) == "an operation"
    with open(path, "wb") as file:
        pass
    assert file_lock.owner(path) == "an operation"
    with open(path, "wb") as file:
        file.write(b"\xff" + b"x" * 1000)
    assert file_lock.owner(path) == "\ufffd" + "x" * (file_lock._MAX_OWNER_BYTES - 1)


@pytest.fixture
def clock(monkeypatch):
    """The seconds that the waits see go by."""
    now = Clock()
    monkeypatch.setattr(file_lock, "time", now)
    return now


def test_a_wait_ends_with_what_is_found_be_it_false(tmp_path, clock):
    answers = [None, None, 0]
    assert file_lock.wait(opts(tmp_path), lambda: answers.pop(0), lambda: "x") == 0
    assert clock.slept == [0.5, 0.5]


def test_nobody_waits_without_end(tmp_path, clock):
    asked = []
    with pytest.raises(errors.OperationFailed) as caught:
        file_lock.wait(opts(tmp_path, queue_timeout=2), lambda: asked.append(1), lambda: "of web2")
    assert caught.value.text == (
        "waited 2 s (virt:queue_timeout), and it is not its turn yet: of web2"
    )
    assert len(asked) == 6, "at 0, 0.5, 1, 1.5, 2 and once when the time is over"
    assert file_lock.queue_timeout_s(opts(tmp_path)) == file_lock.QUEUE_TIMEOUT_S


@pytest.mark.parametrize("name", ["", "a/b", "a\0b", ".x", "a\nb", "x" * 256, "\u20ac" * 86])
def test_what_can_be_no_name_of_a_file_is_no_guest(tmp_path, name):
    with (
        pytest.raises(errors.InvalidInput, match="cannot be a guest's name"),
        lock.guest(opts(tmp_path), name, "x"),
    ):
        pass
    with pytest.raises(errors.InvalidInput):
        lock.guest_owner(opts(tmp_path), name)


@pytest.mark.parametrize("name", ["web1", "x" * 255, "\u20ac" * 85, "a b"])
def test_one_operation_on_a_guest_at_a_time(tmp_path, name):
    config = opts(tmp_path)
    assert lock.guest_owner(config, name) is None
    with lock.guest(config, name, "virt.init"):
        assert lock.guest_owner(config, name).startswith("virt.init, process")
        with lock.guest(config, "other", "x"):
            pass
        with (
            pytest.raises(errors.OperationFailed, match=r"virt\.init, process .* is under way"),
            lock.guest(config, name, "virt.purge"),
        ):
            pass
    assert lock.guest_owner(config, name) is None
    before = open_files()
    with pytest.raises(ZeroDivisionError), lock.guest(config, name, "x"):
        raise ZeroDivisionError
    assert open_files() == before
    assert lock.guest_owner(config, name) is None


def test_who_was_only_looked_at_is_asked_a_second_time(tmp_path, monkeypatch):
    config = opts(tmp_path)
    real, answers, now = file_lock.take, [None], Clock()
    monkeypatch.setattr(lock, "time", now)
    monkeypatch.setattr(file_lock, "take", lambda *a: answers.pop() if answers else real(*a))
    with lock.guest(config, "web1", "virt.init"):
        assert len(now.slept) == 1
        assert lock.guest_owner(config, "web1")


def test_one_deployment_of_a_name_at_a_time_and_those_of_other_names_besides(tmp_path, clock):
    config = opts(tmp_path, queue_timeout=1)
    for _ in range(2):
        with lock.deployment(config, "../a b"):
            [path] = (tmp_path / "cache" / "virt" / "deployments").iterdir()
            assert file_lock.is_taken(path)
            with (
                pytest.raises(
                    errors.OperationFailed,
                    match=r"not its turn yet: virt.deployed \.\./a b, process",
                ),
                lock.deployment(config, "../a b"),
            ):
                pass
            with lock.deployment(config, "b"):
                pass
        assert not file_lock.is_taken(path)
        (path.parent / path.name).unlink()
        [other] = path.parent.iterdir()
        other.unlink()
    before = open_files()
    with pytest.raises(ZeroDivisionError), lock.deployment(config, "a"):
        raise ZeroDivisionError
    assert open_files() == before


# -- locks of any file ----------------------------------------------------------------------------


def test_a_lock_is_shared_or_exclusive(path):
    first = file_lock.acquire(path, shared=True)
    second = file_lock.acquire(path, shared=True)
    assert first is not None and second is not None and file_lock.acquire(path) is None
    os.close(first)
    os.close(second)
    with open(path) as file:
        assert file_lock.lock(file)
        assert file_lock.acquire(path, shared=True) is None
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_a_wait_for_a_lock_ends_with_its_timeout(path, monkeypatch):
    handle, clock = file_lock.acquire(path), Clock()
    monkeypatch.setattr(file_lock, "time", clock)
    before = open_files()
    assert file_lock.acquire(path, timeout_s=3) is None and open_files() == before
    assert 3 <= clock.monotonic() < 4
    monkeypatch.setattr(clock, "sleep", lambda _seconds: os.close(handle))
    os.close(file_lock.acquire(path, timeout_s=3))


def test_a_link_in_the_place_of_a_lock_is_an_error(tmp_path):
    (tmp_path / "lock").symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="symbolic"):
        file_lock.acquire(tmp_path / "lock")
    assert not (tmp_path / "other").exists()


def test_where_there_are_no_locks_it_is_an_error_and_nothing_stays_open(path, monkeypatch):
    def none(_file, _how):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    before = open_files()
    with pytest.raises(OSError, match="No locks"):
        file_lock.acquire(path)
    assert open_files() == before


def test_a_lock_whose_file_was_removed_is_worth_nothing(path):
    handle = file_lock.acquire(path)
    assert file_lock.is_current(handle, path)
    os.unlink(path)
    assert not file_lock.is_current(handle, path)
    os.close(file_lock.acquire(path))
    assert not file_lock.is_current(handle, path)
    os.close(handle)
