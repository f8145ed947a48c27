"""A qemu-nbd that lies, dies or does not start is reported in one line, and a daemon that does not
end is killed."""

import errno
import os
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
import time

import pytest

from saltvirt import errors
from saltvirt.backup.target import daemon, reader

NEW, SIZE = b"NBDMAGICIHAVEOPT", 2**20


@pytest.fixture
def said():
    """A reader to whom a server says some bytes, and then no more; and what the server heard."""
    lines = []

    def begin(data):
        here, there = socket.socketpair()
        lines.extend([here, there])
        there.sendall(data)
        there.shutdown(socket.SHUT_WR)
        return reader.Reader(here), there

    yield begin
    for one in lines:
        one.close()


def greeting(flags, padding=b""):
    return NEW + struct.pack(">H", flags) + struct.pack(">QH", SIZE, 0) + padding


@pytest.mark.parametrize(
    "data",
    [b"SSH-2.0-OpenSSH_9.2p1 ", NEW[::-1] + b"\0\3", NEW + struct.pack(">H", 2)],
)
def test_what_is_no_server_of_today_is_said(said, data):
    with pytest.raises(reader.TemporaryFailure, match="unexpected answer of qemu-nbd"):
        said(data)


@pytest.mark.parametrize("length", [0, 17, 27, 28 + 123])
def test_one_that_ends_while_it_greets(said, length):
    with pytest.raises(EOFError, match="qemu-nbd closed the connection"):
        said(greeting(1, bytes(124))[:length])


@pytest.mark.parametrize(("flags", "padding", "told"), [(1, bytes(124), 1), (3, b"", 3)])
def test_zeros_behind_the_greeting_are_passed_over(said, flags, padding, told):
    """A server that does not leave them out sends 124, and then what is asked for."""
    answer = struct.pack(">IIQ", 0x67446698, 0, 1) + b"data"
    one, there = said(greeting(flags, padding) + answer)
    assert one.size_bytes == SIZE
    assert one.read(512, 4) == b"data"
    one.close()
    assert there.recv(1000) == (
        struct.pack(">I8sII", told, b"IHAVEOPT", 1, 0)
        + struct.pack(">IHHQQI", 0x25609513, 0, 0, 1, 512, 4)
        + struct.pack(">IHHQQI", 0x25609513, 0, 2, 2, 0, 0)
    )


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (struct.pack(">IIQ", 0x67446698, errno.EIO, 1), reader.Unreadable, "^at 512: Input/output"),
        (
            struct.pack(">IIQ", 0x67446698, errno.EINVAL, 1),
            reader.TemporaryFailure,
            ("^at 512: Invalid arg"),
        ),
        (
            struct.pack(">IIQ", 0x67446698, errno.ENOMEM, 1),
            reader.TemporaryFailure,
            ("^at 512: Cannot alloc"),
        ),
        (
            struct.pack(">IIQ", 0x67446698, 0, 2),
            reader.TemporaryFailure,
            ("unexpected answer of qemu-nbd"),
        ),
        (struct.pack(">IIQ", 1, 0, 1), reader.TemporaryFailure, "unexpected answer of qemu-nbd"),
        (
            struct.pack(">IIQ", 0x67446698, 0, 1) + b"dat",
            reader.TemporaryFailure,
            ("^at 512: qemu-nbd closed"),
        ),
        (b"", reader.TemporaryFailure, "^at 512: qemu-nbd closed the connection$"),
    ],
)
def test_what_cannot_be_read_is_said_with_its_place(said, answer, kind, words):
    """What is no error of the disk says nothing of it."""
    one, _ = said(greeting(3) + answer)
    with pytest.raises(kind, match=words):
        one.read(512, 4)


def test_one_that_is_silent_says_nothing_of_the_disk():
    here, there = socket.socketpair()
    with here, there:
        there.sendall(greeting(3))
        here.settimeout(0.2)
        one = reader.Reader(here)
        with pytest.raises(reader.TemporaryFailure, match="qemu-nbd did not answer for 120 s"):
            one.read(512, 4)


def test_what_is_said_of_a_disk_while_its_reader_lives_is_believed(tmp_path, monkeypatch):
    disk = tmp_path / "disk"
    disk.write_bytes(bytes(4096))
    monkeypatch.setattr(reader, "_DIES_S", 0.1)
    damaged = pytest.raises(reader.Unreadable, match="it has a hole")
    with damaged, reader.open_image(["-f", "raw", str(disk)]):
        raise reader.Unreadable("it has a hole")


def test_one_that_lets_us_in_and_is_silent_says_nothing_of_the_disk(monkeypatch, tmp_path):
    here, there = socket.socketpair()
    here.settimeout(0.2)
    monkeypatch.setattr(reader, "_connect", lambda _where, _process: here)
    with (
        here,
        there,
        pytest.raises(reader.TemporaryFailure, match="qemu-nbd did not answer for 120 s"),
    ):
        reader._handshake("", None)


def tool(tmp_path, monkeypatch, script):
    """A qemu-nbd. None: none is installed."""
    (tmp_path / "bin").mkdir()
    for name in ("setpriv", "sleep", "bash"):
        os.symlink(shutil.which(name), tmp_path / "bin" / name)
    if script:
        (tmp_path / "bin/qemu-nbd").write_text(f"#!/bin/bash\n{script}\n")
        (tmp_path / "bin/qemu-nbd").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


@pytest.mark.skipif(not shutil.which("setpriv"), reason="no setpriv")
@pytest.mark.parametrize("with_setpriv", [True, False])
def test_without_the_tool_it_is_said_what_is_missing(tmp_path, monkeypatch, with_setpriv):
    tool(tmp_path, monkeypatch, None)
    if not with_setpriv:
        os.unlink(tmp_path / "bin/setpriv")
    missing = pytest.raises(errors.Unsupported, match="qemu-nbd is not installed")
    with missing, reader.open_image(["-f", "raw", "/dev/null"]):
        pytest.fail("it is shown")


@pytest.mark.skipif(not shutil.which("setpriv"), reason="no setpriv")
@pytest.mark.parametrize(
    ("script", "kind", "words"),
    [
        ("exec sleep 600", reader.TemporaryFailure, r"^qemu-nbd did not start within 0\.5 s$"),
        ("kill -9 $$", reader.TemporaryFailure, "^qemu-nbd was killed$"),
        ("kill -TERM $$", reader.TemporaryFailure, "^qemu-nbd was killed by signal SIGTERM$"),
        (
            "echo no; echo such disk >&2; exit 1",
            reader.TemporaryFailure,
            ("^qemu-nbd does not start: such d"),
        ),
        ("exit 1", reader.TemporaryFailure, "^qemu-nbd does not start: no output$"),
    ],
)
def test_one_that_does_not_begin(tmp_path, monkeypatch, script, kind, words):
    tool(tmp_path, monkeypatch, script)
    monkeypatch.setattr(reader, "_BEGINS_S", 0.5 if "sleep" in script else 60)
    began = time.monotonic()
    unreadable = pytest.raises(kind, match=words)
    with unreadable, reader.open_image(["-f", "raw", "/dev/null"]):
        pytest.fail("it is shown")
    assert time.monotonic() - began < 60  # it does not go on


def test_one_that_is_gone_once_it_was_called_says_why(tmp_path):
    """It listens before it opens the file."""
    argv = ["bash", "-c", "echo damaged >&2; exec sleep 60"]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "nbd"))
        listener.listen(1)

        def close():
            listener.accept()[0].close()

        closes = threading.Thread(target=close)
        closes.start()
        with subprocess.Popen(argv, stderr=subprocess.PIPE) as process:
            assert process.stderr.peek(1)  # it has said it
            with pytest.raises(
                reader.TemporaryFailure, match=r"^qemu-nbd does not start: damaged$"
            ):
                reader._handshake(str(tmp_path / "nbd"), process)
        closes.join(60)
    assert process.returncode == -9


def test_a_daemon_that_does_not_end_by_itself_is_ended(monkeypatch):
    monkeypatch.setattr(daemon, "_ENDS_S", 0.2)
    script = "trap '' TERM; echo ready; while :; do sleep 0.1; done"
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(["bash", "-c", script], stdout=subprocess.PIPE, stderr=log)
        with process:
            assert process.stdout.readline() == b"ready\n"
            server = daemon.StorageDaemon(process, log)
            assert server.is_running
            server.end()
            assert not server.is_running and process.returncode == -9


def test_without_the_daemon_it_is_said_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(errors.Unsupported, match="qemu-storage-daemon is not installed"):
        daemon.begin([], str(tmp_path / "nbd"))
