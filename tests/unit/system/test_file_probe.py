"""Questions about files, each by itself. test_hung.py has a file system that hangs."""

import base64
import errno
import fcntl
import json
import os
import socket
import stat
import threading

import pytest

from saltvirt.system import file_probe
from tests.machine import open_files

# as QEMU has an image: to write (it shares nothing but reading), and to read
WRITING = [file_probe.USED + n for n in (0, 1, 3)] + [file_probe.UNSHARED + n for n in (1, 3)]
READING = [file_probe.USED, file_probe.UNSHARED + 1, file_probe.UNSHARED + 3]


@pytest.fixture
def disk(tmp_path):
    path = tmp_path / "disk.raw"
    path.write_bytes(b"0123456789")
    return path


@pytest.fixture
def lock(disk):
    """Locks bytes of the disk as another process would: its descriptor is one of its own."""
    fds = []

    def take(bytes_, kind=fcntl.F_RDLCK):
        fds.append(os.open(disk, os.O_RDWR))
        for byte in bytes_:
            fcntl.fcntl(fds[-1], fcntl.F_OFD_SETLK, file_probe.flock(kind, byte))
        return fds[-1]

    yield take
    for fd in fds:
        os.close(fd)


def held(path, fd):
    """The bytes that somebody else's lock to write would be refused for."""
    other = os.open(path, os.O_RDWR)
    try:
        found = [byte for byte in range(300) if file_probe.is_locked(other, byte)]
    finally:
        os.close(other)
        os.close(fd)
    return found


def test_what_is_seen_of_a_link_and_of_what_it_leads_to(disk, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(disk)
    assert stat.S_ISLNK(file_probe.file_stat(link)["st_mode"])
    assert file_probe.file_stat(link, True)["st_size"] == 10
    found = os.stat(disk)
    assert file_probe.file_stat(disk) == {
        field: getattr(found, field) for field in file_probe._FIELDS
    }


def test_a_way_is_walked_until_its_first_link(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "link").symlink_to("../else")
    assert file_probe.walk(str(tmp_path), ["a", "b", "gone"]) == [3, None]
    assert file_probe.walk(str(tmp_path), ["a", "link", "x"]) == [1, "../else"]
    assert file_probe.walk(str(tmp_path), []) == [0, None]


def test_the_names_in_a_folder_and_their_kinds(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "to_file").symlink_to("file")
    (tmp_path / "to_folder").symlink_to("folder")
    os.mkfifo(tmp_path / "pipe")
    expected = [
        ["file", file_probe.FILE], ["folder", file_probe.FOLDER], ["pipe", file_probe.OTHER_KIND],
        ["to_file", file_probe.LINK], ["to_folder", file_probe.LINK],
    ]  # fmt: skip
    assert sorted(file_probe.names(tmp_path)) == expected
    assert sorted(file_probe.names(tmp_path, 5)) == expected
    with pytest.raises(OSError, match=os.strerror(errno.E2BIG)) as refused:
        file_probe.names(tmp_path, 4)
    assert refused.value.errno == errno.E2BIG


def test_only_what_holds_data_is_opened(disk, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert file_probe.open_checked(pipe) is None
    assert file_probe.open_checked(tmp_path) is None
    before = open_files()
    fd = file_probe.open_checked(disk)
    assert os.read(fd, 20) == b"0123456789"
    assert not os.get_inheritable(fd)
    assert fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
    os.close(fd)
    assert file_probe.open_checked(disk, [stat.S_IFDIR]) is None
    assert open_files() == before, "none is left open"


def test_the_first_bytes_of_what_holds_data(disk, tmp_path):
    assert base64.b64decode(file_probe.head(disk, 4)) == b"0123"
    assert file_probe.head(tmp_path, 4) is None
    assert file_probe.head("/proc/self/status", 4) == "", "a file of the kernel's is not read"


@pytest.mark.parametrize("bytes_", [WRITING, READING, [file_probe.USED + 4], [file_probe.UNSHARED]])
def test_a_lock_of_qemus_is_seen(disk, lock, bytes_):
    assert file_probe.locked(disk) is False
    lock(bytes_)
    assert file_probe.locked(disk) is True


def test_other_locks_and_what_is_no_file_are_no_qemus(disk, lock, tmp_path):
    lock(
        [
            0,
            file_probe.USED - 1,
            file_probe.USED + 5,
            file_probe.UNSHARED - 1,
            file_probe.UNSHARED + 5,
        ]
    )
    assert file_probe.locked(disk) is False
    assert file_probe.locked(tmp_path / "gone") is False
    assert file_probe.locked(tmp_path) is False


@pytest.mark.parametrize(
    "what", [file_probe.locked, file_probe.lock_against_open, file_probe.lock_against_write]
)
def test_nothing_is_left_open(disk, lock, what):
    before = open_files()
    answer = what(disk)
    if what is not file_probe.locked:
        os.close(answer[1])
    assert open_files() == before


def test_where_locks_are_not_known_nothing_is_said_of_them(disk, monkeypatch):
    def none(*_):
        raise OSError(errno.ENOLCK, "none")

    monkeypatch.setattr(file_probe.fcntl, "fcntl", none)
    assert file_probe.locked(disk) is False
    taken, fd = file_probe.lock_against_open(disk)
    os.close(fd)
    assert taken is False
    answer, fd = file_probe.lock_against_write(disk)
    os.close(fd)
    assert answer == (False, None)


@pytest.mark.parametrize("code", [errno.EAGAIN, errno.EACCES, errno.EIO])
def test_a_lock_that_is_refused_is_somebodys(disk, monkeypatch, code):
    def refused(*_):
        raise OSError(code, "why")

    monkeypatch.setattr(file_probe.fcntl, "fcntl", refused)
    taken, fd = file_probe.lock_against_open(disk)
    os.close(fd)
    assert taken is (code != errno.EIO)
    answer, fd = file_probe.lock_against_write(disk)
    os.close(fd)
    assert answer == ((False, "why") if code == errno.EIO else (True, None))


def test_what_is_opened_is_given_with_its_descriptor(disk, tmp_path):
    said, fd = file_probe.open_read(disk)
    assert (said, os.read(fd, 4)) == (None, b"0123")
    os.close(fd)
    assert file_probe.open_read(tmp_path) == (None, None)


def test_no_qemu_opens_what_was_closed(disk):
    taken, fd = file_probe.lock_against_open(disk)
    assert taken is False
    assert held(disk, fd) == [file_probe.UNSHARED + n for n in file_probe.PERMISSIONS]


@pytest.mark.parametrize("byte", [file_probe.USED + n for n in file_probe.PERMISSIONS])
def test_who_has_it_open_is_seen_when_it_is_closed(disk, lock, byte):
    lock([byte])
    taken, fd = file_probe.lock_against_open(disk)
    os.close(fd)
    assert taken is True


def test_a_qemu_that_only_does_not_share_it_has_not_opened_it(disk, lock):
    lock([file_probe.UNSHARED])
    taken, fd = file_probe.lock_against_open(disk)
    os.close(fd)
    assert taken is False


def test_what_is_no_file_is_not_closed(tmp_path):
    assert file_probe.lock_against_open(tmp_path) == (False, None)
    assert file_probe.lock_against_open("/dev/null") == (False, None)
    assert file_probe.lock_against_write(tmp_path) == ((False, None), None)


def test_no_qemu_writes_to_what_was_stilled(disk):
    answer, fd = file_probe.lock_against_write(disk)
    assert answer == (False, None)
    assert held(disk, fd) == [file_probe.USED, file_probe.UNSHARED + 1, file_probe.UNSHARED + 3]


@pytest.mark.parametrize(
    ("byte", "writes"),
    [
        (file_probe.USED + file_probe.WRITE, True),
        (file_probe.USED + file_probe.RESIZE, True),
        (file_probe.UNSHARED + file_probe.READ, True),
        (file_probe.USED + file_probe.READ, False),
        (file_probe.UNSHARED + file_probe.WRITE, False),
    ],
)
def test_who_may_write_to_it_is_seen_when_it_is_stilled(disk, lock, byte, writes):
    lock([byte])
    answer, fd = file_probe.lock_against_write(disk)
    os.close(fd)
    assert answer == (writes, None)


def test_the_room_of_a_file_system(tmp_path):
    found = os.statvfs(tmp_path)
    unit, units, free = file_probe.room(tmp_path)
    assert (unit, units) == (found.f_frsize, found.f_blocks)
    assert 0 < free <= units


def ask(*questions):
    """What the program answers to these, one after the other: (answer, its descriptor or None)."""
    ours, theirs = socket.socketpair()
    served = threading.Thread(target=file_probe._serve, args=(theirs,))
    served.start()
    try:
        for question in questions:
            ours.sendall(json.dumps(question).encode() + b"\n")
            text, fds, _, _ = socket.recv_fds(ours, 65536, 1)
            yield json.loads(text), next(iter(fds), None)
    finally:
        ours.close()
        theirs.shutdown(socket.SHUT_RDWR)
        served.join()
        theirs.close()


def test_each_question_has_its_answer(disk, tmp_path):
    gone = str(tmp_path / "gone")
    names, nothing, opened, folder = ask(
        ("names", str(tmp_path)),
        ("file_stat", gone),
        ("open_read", str(disk)),
        ("open_read", str(tmp_path)),
    )
    assert names == ({"answer": [["disk.raw", file_probe.FILE]]}, None)
    assert nothing == ({"error": errno.ENOENT}, None)
    assert opened[0] == {"answer": None}
    assert os.read(opened[1], 4) == b"0123"
    os.close(opened[1])
    assert folder == ({"answer": None}, None)


def test_the_program_keeps_no_descriptor(disk):
    before = open_files()
    for _, fd in ask(("lock_against_open", str(disk)), ("lock_against_write", str(disk))):
        os.close(fd)
    assert open_files() == before
