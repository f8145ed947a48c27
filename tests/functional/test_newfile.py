"""A new file that gets its name when it is whole."""

import os
import resource

import pytest

from saltvirt import errors
from saltvirt.system import atomic_file


def made(path, data=b"new", overwrite=False):
    with atomic_file.create(str(path), overwrite) as write:
        write(data)


def test_it_is_there_whole_and_for_one_alone(tmp_path):
    path = tmp_path / "a"
    with atomic_file.create(str(path), False) as write:
        write(b"1" * 100_000)
        [part] = tmp_path.iterdir()
        assert part != path and part.stat().st_mode & 0o777 == 0o600
        write(b"2")
    assert path.read_bytes() == b"1" * 100_000 + b"2"
    assert path.stat().st_mode & 0o777 == 0o600 and os.listdir(tmp_path) == ["a"]


def test_what_fails_leaves_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError), atomic_file.create(str(tmp_path / "a"), False) as write:
        write(b"1")
        _ = 1 / 0
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kind", ["file", "link", "dangling"])
def test_what_is_there_stays_and_is_not_followed(tmp_path, kind):
    other, path = tmp_path / "other", tmp_path / "a"
    if kind == "file":
        path.write_text("old")
    else:
        path.symlink_to(other)
        if kind == "link":
            other.write_text("old")
    with pytest.raises(errors.AlreadyExists, match="overwrite=True"):
        made(path)
    assert not other.exists() or other.read_text() == "old"
    made(path, overwrite=True)
    assert path.read_text() == "new" and not path.is_symlink()
    assert not other.exists() or other.read_text() == "old"


def test_what_comes_meanwhile_stays(tmp_path):
    with (
        pytest.raises(errors.AlreadyExists),
        atomic_file.create(str(tmp_path / "a"), False) as write,
    ):
        write(b"ours")
        (tmp_path / "a").write_text("theirs")
    assert (tmp_path / "a").read_text() == "theirs" and os.listdir(tmp_path) == ["a"]


def test_a_folder_that_is_none_and_one_in_the_place(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for path in ("none/a", "link/a", "real", ""):
        for overwrite in (True, False):
            with pytest.raises(errors.InvalidInput):
                made(f"{tmp_path}/{path}", overwrite=overwrite)
    assert os.listdir(tmp_path / "real") == []


def test_only_files_are_read(tmp_path):
    (tmp_path / "a").write_text("text")
    os.mkfifo(tmp_path / "fifo")
    with atomic_file.open_existing(str(tmp_path / "a")) as file:
        assert file.read() == b"text"
    for path in ("fifo", "none", "", "a\0b"):
        with pytest.raises(errors.InvalidInput), atomic_file.open_existing(f"{tmp_path}/{path}"):
            pass
    with pytest.raises(errors.InvalidInput), atomic_file.open_existing("/dev/zero"):
        pass


@pytest.mark.parametrize("path", ["/", "/tmp/a\0b"])
def test_what_can_be_the_name_of_no_file(path):
    with pytest.raises(errors.InvalidInput, match="is not the path of a file"):
        made(path)


def test_what_the_system_refuses_is_said_of_the_path(tmp_path):
    for path, words in {
        f"{tmp_path}/{'x' * 256}": "xxx … cannot be written: File name too long",
        "/proc/a": "'/proc/a' cannot be written: No such file or directory",
    }.items():
        with pytest.raises(errors.OperationFailed, match=words):
            made(path)
    assert os.listdir(tmp_path) == []


def test_a_full_disk_leaves_nothing(tmp_path):
    """The system takes a part of what is written, and then no more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    writing = atomic_file.create(str(tmp_path / "a"), False)
    with (
        pytest.raises(errors.OperationFailed, match="cannot be written: File too large"),
        writing as write,
    ):
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
        try:
            write(b"1" * 5000)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.listdir(tmp_path) == []


def test_a_folder_that_comes_meanwhile_stays(tmp_path):
    path = tmp_path / "a"
    refused = pytest.raises(errors.OperationFailed, match="cannot be written: Is a directory")
    with refused, atomic_file.create(str(path), True) as write:
        write(b"ours")
        path.mkdir()
    assert path.is_dir() and os.listdir(tmp_path) == ["a"]
