"""A libvirt that hangs, at the connection and during a call."""

import contextlib
import inspect
import os
import shutil
import signal
import socket
import subprocess
import threading
import time

import pytest

libvirt = pytest.importorskip("libvirt")

from saltvirt import errors, settings
from saltvirt.host import connection
from saltvirt.images import cache
from saltvirt.seed import guestfish
from saltvirt.system import file_lock, tools
from tests.clock import until


def test_who_lets_nobody_in_is_named_within_the_time(tmp_path):
    path = str(tmp_path / "sock")
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(path)
        deaf.listen()
        where = settings.Connection(f"qemu+unix:///system?socket={path}", timeout_s=1)
        began = time.monotonic()
        with (
            pytest.raises(errors.ConnectionFailed, match=r"does not answer within 1 s .*timeout"),
            connection.connect(where),
        ):
            pass
        assert time.monotonic() - began < 60


def test_of_another_host_it_may_be_the_port():
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        where = settings.Connection(
            f"qemu+tcp://127.0.0.1:{deaf.getsockname()[1]}/system", timeout_s=1
        )
        with pytest.raises(errors.ConnectionFailed, match="is its port closed, or does its"):
            connection.connect(where).__enter__()


def test_the_limit_is_configured():
    configured = {"virt:connection:timeout": 7}
    assert settings.connection(configured.get, {}).timeout_s == 7
    with pytest.raises(errors.InvalidInput, match="virt:connection:timeout"):
        settings.connection(lambda key, default: "soon", {})


@pytest.fixture
def daemon(tmp_path):
    """(the process, its socket) of a libvirtd of nobody's own."""
    if os.geteuid() != 0 or not shutil.which("libvirtd"):
        pytest.skip("needs root and libvirtd")
    tmp_path.chmod(0o755)
    home = tmp_path / "home"
    home.mkdir()
    shutil.chown(home, "nobody")
    for folder in home.parents:  # nobody must come through
        if folder.stat().st_uid == os.geteuid() and str(folder).startswith("/tmp/"):
            folder.chmod(folder.stat().st_mode | 0o011)
    places = dict.fromkeys(("HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"), home)
    argv = ["setpriv", "--reuid=nobody", "--clear-groups", "libvirtd"]
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen(argv, env={**os.environ, **places}, stderr=log, stdout=log)
    path = home / "libvirt" / "libvirt-sock"
    end = time.monotonic() + 180
    while not path.exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.1)
    assert path.exists(), (tmp_path / "log").read_text()
    yield process, path
    process.send_signal(signal.SIGCONT)
    process.kill()
    process.wait()


def test_a_libvirt_that_is_restarted_while_it_is_asked_is_said_to_be(daemon):
    """In libvirt's own words, from the second question on, it is an internal error of a socket."""
    process, path = daemon
    where = settings.Connection(f"test+unix:///default?socket={path}", timeout_s=30)
    words = "^libvirt was restarted or stopped during the request: .*client socket is closed"
    with pytest.raises(errors.ConnectionFailed, match=words), connection.connect(where) as conn:
        process.kill()
        process.wait()
        with contextlib.suppress(libvirt.libvirtError):
            conn.listAllDomains()
        conn.listAllDomains()


def test_an_error_of_a_libvirt_that_is_there_stays_what_it_is(daemon):
    where = settings.Connection(f"test+unix:///default?socket={daemon[1]}", timeout_s=30)
    with (
        pytest.raises(errors.OperationFailed, match="already running"),
        connection.connect(where) as conn,
    ):
        conn.lookupByName("test").create()


def test_who_stops_to_answer_in_mid_work_is_named(daemon, monkeypatch):
    process, path = daemon
    monkeypatch.setattr(connection, "_ALIVE_EVERY_S", 1)
    monkeypatch.setattr(connection, "_ALIVE_TIMES", 2)
    where = settings.Connection(f"test+unix:///default?socket={path}")
    with (
        pytest.raises(errors.ConnectionFailed, match="libvirt does not answer any more"),
        connection.connect(where) as conn,
    ):
        assert conn.listAllDomains()
        process.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        try:
            conn.listAllDomains()
        finally:
            assert time.monotonic() - began < 60


def test_a_guestfish_that_hangs_is_ended(tmp_path, monkeypatch):
    fake = tmp_path / "guestfish"
    fake.write_text("#!/bin/sh\necho $$ > " + str(tmp_path / "pid") + "\nexec sleep 1000\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(guestfish, "_COMMAND_S", 5)
    with (
        pytest.raises(errors.SeedFailed, match="did not respond within 5 s"),
        guestfish.Session() as session,
    ):
        session.run("launch")
    assert not os.path.exists(f"/proc/{(tmp_path / 'pid').read_text().strip()}")


def test_a_tool_that_hangs_is_ended():
    assert inspect.signature(tools.run).parameters["timeout_s"].default == tools.TIMEOUT_S
    with pytest.raises(errors.OperationFailed, match=r"cannot rest: sleep took longer than 0\.2 s"):
        tools.run(["sleep", "60"], "rest", timeout_s=0.2)


def test_who_waits_for_another_that_fetches_the_same_image_tells_how_far_it_is(tmp_path):
    told, folder = [], str(tmp_path)
    part, source = cache._Folder(folder), "salt://big.qcow2"
    part.make()
    lock = part.path(".locks", cache.key(source))

    class Client:
        def version(self, _source):
            raise errors.NotFound("it ends here")

    def fetch():
        wish = cache._ImageRequest(
            source, Client(), None, lambda done, total: told.append((done, total))
        )
        with pytest.raises(errors.NotFound):
            cache._shared(part, wish)

    with file_lock.exclusive(lock):
        with open(part.path(".partial", cache.key(source)), "wb") as file:
            file.write(b"x" * 5)
        thread = threading.Thread(target=fetch)
        thread.start()
        until(lambda: (5, None) in told, "how far the other one is")
    thread.join(60)
