"""The records of a host about guests that run from a backup, and the processes that read it: real
files, locks and processes, guests of libvirt's test driver."""

import dataclasses
import fcntl
import functools
import io
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

import saltvirt
from saltvirt import errors
from saltvirt.backup.export import live_restore_build, live_restore_server, live_restores
from saltvirt.backup.export.live_restores import LiveRestoreRecord
from saltvirt.backup.model.answers import ShownBackup
from saltvirt.backup.model.pins import COMPLETE, DISCONNECTED, MISSING, OFF
from saltvirt.host.domain import guest_lock
from saltvirt.host.provision import guest_builder
from saltvirt.system import paths

UUID, OTHER = "b7d1f0a2-52a3-4c0e-9d53-0f8f6e1f4d11", "c8d1f0a2-52a3-4c0e-9d53-0f8f6e1f4d11"
IDENT = "000001-20261126T160000Z-0123abcd"
STOOD = LiveRestoreRecord("web1", UUID, IDENT, "b1", 1, "", ("vda",))
BELOW = """<backingStore type='network'><format type='raw'/>
<source protocol='nbd' name='vda'><host transport='unix' socket='{}'/></source>
<backingStore/></backingStore>"""
WEB1 = """<domain type='test'><name>web1</name><uuid>{}</uuid><memory>1024</memory>
<os><type>hvm</type></os><devices><disk type='file' device='disk'>
<driver name='qemu' type='qcow2'/><source file='/x/web1.qcow2'/>{}<target dev='vda'/></disk>
</devices></domain>"""
# holds the lock as the process does that shows a backup; to SIGTERM it is deaf
DEAF = """import fcntl, os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
file = open(sys.argv[1], "a+")
fcntl.flock(file, fcntl.LOCK_EX)
file.write(str(os.getpid()))
file.flush()
print("it has it", flush=True)
time.sleep(100)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(live_restores, "FOLDER", str(tmp_path / "stands"))
    monkeypatch.setattr(live_restores, "_LOCK_WAIT_S", 0.3)
    monkeypatch.setattr(live_restore_server, "_POLL_S", 0.02)
    return tmp_path


@pytest.fixture
def short():
    """A socket's path has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="sv-") as path:
        yield Path(path)


def defined(conn, stands_on_it=True, uuid=UUID):
    below = BELOW.format(live_restore_server.socket_path("web1")) if stands_on_it else ""
    return conn.defineXML(WEB1.format(uuid, below))


def asked(folder):
    return live_restore_server.LiveRestoreServerRequest(
        "web1", "test:///default", None, None, str(folder / "locks"), "a certificate", "a key"
    )


@pytest.mark.parametrize("holds", [
    b"", b"{", b"[]", b'{"guest": "web1"}', b"\xff", b"[" * 100_000, None,
], ids=["empty", "half", "a list", "too little", "no text", "deep", "a folder"])  # fmt: skip
def test_what_is_damaged_is_named_and_lets_nothing_be_done(holds):
    live_restores.store(STOOD)
    path = live_restores._path("web1")
    os.unlink(path)
    if holds is None:
        os.mkdir(path)
    else:
        with open(path, "wb") as file:
            file.write(holds)
    for ask in (
        lambda: live_restores.load("web1"), lambda: [*live_restores.load_all()],
        lambda: live_restores.may_start("web1"),
        lambda: live_restores.refuse("virt.migrate to hv2", "web1"),
    ):  # fmt: skip
        with pytest.raises(errors.OperationFailed, match=r"cannot be read.*repair it"):
            ask()
    live_restores.refuse("virt.start", "web1")
    live_restores.refuse("virt.migrate to hv2", "web2")


def test_what_is_put_down_is_there_until_it_is_forgotten():
    assert [*live_restores.load_all()] == [] and live_restores.load("web1") is None
    live_restores.store(STOOD)
    live_restores.store(LiveRestoreRecord("a/b", OTHER, IDENT, "b1", 1, "", ()))
    assert sorted(one.guest for one in live_restores.load_all()) == ["a/b", "web1"]
    assert live_restores.load("web1") == STOOD
    with pytest.raises(errors.Refused, match=r"virt\.clone is refused until all its"):
        live_restores.refuse("virt.clone", "web1")
    for _ in range(2):
        live_restores.forget("web1")
    live_restores.refuse("virt.clone", "web1")


def test_what_is_put_down_is_on_the_disk_with_its_name(folder, monkeypatch):
    """Lost in a power cut, nothing would show the guest its backup any more."""
    synced, sync = [], os.fsync

    def syncs(fd):
        sync(fd)
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))

    monkeypatch.setattr(os, "fsync", syncs)
    live_restores.store(STOOD)
    assert synced[-1] == live_restores.FOLDER
    assert [os.path.dirname(one) for one in synced[:-1]] == [live_restores.FOLDER]


def test_one_process_keeps_it_shown():
    assert live_restores.server_pid("web1") is None
    with live_restores.server_lock("web1"):
        assert live_restores.server_pid("web1") == os.getpid()
        refused = pytest.raises(errors.OperationFailed, match="another process serves the backup")
        with refused, live_restores.server_lock("web1"):
            pass
    assert live_restores.server_pid("web1") is None, (
        "what it wrote there says nothing without its lock"
    )


@pytest.mark.parametrize("text", ["", "none", "0"])
def test_one_that_has_not_said_yet_who_it_is_cannot_be_named(text):
    with open(live_restores._lock("web1"), "a+", encoding="ascii") as file:
        file.write(text)
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        assert live_restores.server_pid("web1") is None


def test_who_looks_at_this_moment_keeps_nobody_from_it(monkeypatch):
    monkeypatch.setattr(live_restores, "_LOCK_WAIT_S", 30)
    with open(live_restores._lock("web1"), "a+", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        threading.Timer(0.1, fcntl.flock, (file, fcntl.LOCK_UN)).start()
        with live_restores.server_lock("web1"):
            assert live_restores.server_pid("web1") == os.getpid()


def test_one_that_hears_no_signal_is_killed(monkeypatch):
    monkeypatch.setattr(live_restore_build, "_ENDS_S", 0.2)
    argv = [sys.executable, "-c", DEAF, live_restores._lock("web1")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline()
        reaps = threading.Thread(target=process.wait)
        reaps.start()
        live_restore_build.stop_server("web1")
        reaps.join()
        assert process.returncode == -9


def test_one_that_cannot_be_ended_is_named(monkeypatch):
    """Its lock is held by another one than it says."""
    monkeypatch.setattr(live_restore_build, "_ENDS_S", 0.1)
    with (
        subprocess.Popen(["true"]) as process,
        live_restores.server_lock("web1"),
        open(live_restores._lock("web1"), "w", encoding="ascii") as file,
    ):
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # its number is nobody else's
        file.write(str(process.pid))
        file.flush()
        with pytest.raises(errors.OperationFailed, match=f"process {process.pid} does not stop"):
            live_restore_build.stop_server("web1")


def test_what_stands_on_nothing_any_more_is_forgotten(conn):
    live_restores.store(STOOD)
    defined(conn, stands_on_it=False)
    assert live_restore_build.read_status(conn, "web1").state == COMPLETE
    assert live_restores.load("web1") is None
    assert live_restore_build.read_status(conn, "web1").backup_id is None


@pytest.mark.parametrize("there", [True, False], ids=["over", "new"])
def test_of_one_that_is_just_made_nobody_says_that_it_needs_no_backup(conn, folder, there):
    """Its master may have died, and another one asks whether the backup can be let go."""
    if there:
        defined(conn, stands_on_it=False)
    locks = str(folder / "locks")
    made = functools.partial(guest_lock.acquire, locks, "virt.backup_restore", "web1")
    waits = functools.partial(
        pytest.raises, errors.OperationFailed, match="created on this host, .* wait"
    )
    with made(), waits():
        live_restore_build.read_status(conn, "web1", locks)
    with guest_lock.acquire(locks, "virt.setmem", "web1"):
        assert live_restore_build.read_status(conn, "web1", locks).state == (
            COMPLETE if there else MISSING
        )
    live_restores.store(STOOD)
    with made(), live_restores.server_lock("web1"), waits():
        live_restore_build.read_status(conn, "web1", locks)


@pytest.mark.parametrize("uuid", [None, OTHER])
def test_of_one_that_is_gone_nothing_is_kept_once_nobody_shows_it(conn, uuid):
    live_restores.store(STOOD)
    if uuid:
        defined(conn, uuid=uuid)
    with live_restores.server_lock("web1"):
        assert live_restore_build.read_status(conn, "web1").state == MISSING and live_restores.load(
            "web1"
        )
    found = live_restore_build.read_status(conn, "web1")
    assert (found.state, found.backup_id) == (MISSING, IDENT) and live_restores.load("web1") is None


def test_how_far_is_one_that_is_off_and_one_of_which_nothing_is_known(conn):
    defined(conn)
    found = live_restore_build.read_status(conn, "web1")
    assert (found.state, found.backup_id) == (DISCONNECTED, None) and "is missing" in found.reason
    live_restores.store(STOOD)
    found = live_restore_build.read_status(conn, "web1")
    assert (found.state, found.percent, found.disks) == (OFF, 0, {"vda": 0})
    assert found.reason == "the live restore server died"
    with live_restores.server_lock("web1"):
        assert live_restore_build.read_status(conn, "web1").reason is None


def test_another_backup_than_it_stands_on_is_not_shown_to_a_guest(conn, folder):
    how = live_restore_build.LiveRestoreOptions("", asked(folder))
    shown = ShownBackup("000002-x", "web1", "b1", 1, "<domain/>", (), "")
    with pytest.raises(errors.NotFound, match="web1 does not run from a backup on this host"):
        live_restore_build.resume(conn, how, "web1", shown)
    live_restores.store(STOOD)
    with pytest.raises(
        errors.BadAnswer, match=f"web1 runs from the backup {IDENT}, but 000002-x is exported"
    ):
        live_restore_build.resume(conn, how, "web1", shown)
    assert live_restores.load("web1") == STOOD


def test_one_that_stands_on_a_backup_is_not_restored_once_more(conn):
    live_restores.store(STOOD)
    shown = ShownBackup(IDENT, "web1", "b1", 1, "<domain/>", (), "")
    request = guest_builder.GuestRequest("web1")
    one = live_restore_build.LiveRestoreBuilder(conn, request, SimpleNamespace(), shown, "", True)
    with pytest.raises(errors.Refused, match="already runs from a backup"):
        one.check()


def run(monkeypatch, capsys, request):
    """The program, in this process: (its exit code, what it says)."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(request.to_answer())))
    monkeypatch.setattr(live_restore_server.signal, "signal", lambda *_: None)
    return live_restore_server.main([]), json.loads(capsys.readouterr().out)


def test_the_program_says_why_it_shows_nothing(conn, folder, monkeypatch, capsys):
    code, said = run(monkeypatch, capsys, asked(folder))
    assert (code, said) == (1, {"error": "web1 does not run from a backup"})
    with live_restores.server_lock("web1"):
        code, said = run(monkeypatch, capsys, asked(folder))
    assert code == 1 and "another process serves" in said["error"]
    assert live_restores.server_pid("web1") is None


def test_as_whom_qemu_runs(conn):
    assert live_restore_server._qemu_user(conn) == (os.geteuid(), os.getegid()), (
        "this driver does not say"
    )
    models = "".join(
        f"<secmodel><model>{model}</model><baselabel type='kvm'>{label}</baselabel></secmodel>"
        for model, label in (("apparmor", "1:2"), ("dac", "+64055:+108"))
    )
    told = f"<capabilities><host>{models}</host></capabilities>"
    assert live_restore_server._qemu_user(SimpleNamespace(getCapabilities=lambda: told)) == (
        64055,
        108,
    )


class Dead:
    """A server that has died."""

    is_running = False

    def __init__(self):
        self.ended = threading.Event()

    def end(self):
        self.ended.set()


def test_what_cannot_be_begun_again_now_is_tried_again(conn, folder, short, monkeypatch):
    """/run was full, say: the guest waits, and goes on by itself."""
    live_restores.store(STOOD)
    defined(conn)
    begun = []
    (short / "full").write_text("")
    monkeypatch.setattr(live_restore_server, "SOCKETS", str(short / "full" / "sockets"))
    monkeypatch.setattr(live_restore_server, "_RETRY_S", 0)
    kept = live_restore_server.LiveRestoreServer(asked(folder))
    kept._server = dead = Dead()
    begin = kept.begin
    kept.begin = lambda: begun.append(1) or begin()
    thread = threading.Thread(target=kept.run)
    thread.start()
    until(lambda: len(begun) > 3 or not thread.is_alive())
    assert thread.is_alive() and not dead.ended.is_set()
    kept.begin = lambda: None
    (short / "full").unlink()
    kept.signalled = True
    thread.join(60)
    assert dead.ended.is_set() and live_restores.load("web1") == STOOD


def until(ready):
    end = time.monotonic() + 180
    while not ready() and time.monotonic() < end:
        time.sleep(0.02)


def test_of_a_guest_that_is_gone_it_ends_and_nothing_is_kept(conn, folder, short, monkeypatch):
    monkeypatch.setattr(live_restore_server, "SOCKETS", str(short))
    live_restores.store(STOOD)
    kept = live_restore_server.LiveRestoreServer(asked(folder))
    kept.run()
    assert live_restores.load("web1") is None


def test_one_that_stands_on_nothing_does_at_an_error_what_it_did_before(
    conn, folder, short, monkeypatch
):
    monkeypatch.setattr(live_restore_server, "SOCKETS", str(short))
    live_restores.store(
        LiveRestoreRecord("web1", UUID, IDENT, "b1", 1, "", ("vda",), None, {"vda": ("report", "")})
    )
    stops = "type='qcow2' error_policy='stop' rerror_policy='stop'"
    conn.defineXML(WEB1.format(UUID, "").replace("type='qcow2'", stops))
    live_restore_server.LiveRestoreServer(asked(folder)).run()
    text = conn.lookupByName("web1").XMLDesc(0)
    assert "error_policy='report'" in text and "stop" not in text
    assert live_restores.load("web1") is None
    with guest_lock.acquire(str(folder / "locks"), "virt.clone", "web1"):
        pass


def test_its_policies_come_back_when_libvirt_is_through_with_the_end_of_the_job(
    conn, folder, monkeypatch
):
    """Defined before, the definition is used by libvirt after it was freed."""
    live_restores.store(STOOD)
    defined(conn, stands_on_it=False).create()
    jobs = [{"cur": 1}, {}]
    monkeypatch.setattr(libvirt.virDomain, "blockJobInfo", lambda *_: jobs.pop(0))
    kept = live_restore_server.LiveRestoreServer(asked(folder))
    assert not kept._is_finished(conn) and live_restores.load("web1")
    assert kept._is_finished(conn) and live_restores.load("web1") is None


def test_a_guest_that_paused_again_before_its_last_blocks_came_in_runs_on(
    conn, folder, monkeypatch
):
    """Nobody would look at it any more."""
    live_restores.store(STOOD)
    dom = defined(conn, stands_on_it=False)
    dom.create()
    dom.suspend()
    monkeypatch.setattr(libvirt.virDomain, "blockJobInfo", lambda *_: {})
    at_error = [libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_IOERROR]
    monkeypatch.setattr(libvirt.virDomain, "state", lambda *_: at_error)
    assert (
        live_restore_server.LiveRestoreServer(asked(folder))._is_finished(conn)
        and live_restores.load("web1") is None
    )
    monkeypatch.undo()
    assert dom.state()[0] == libvirt.VIR_DOMAIN_RUNNING


def test_the_program_hears_what_it_is_to_show(folder, monkeypatch):
    """Another one stands in for it."""
    told, program = folder / "told", folder / "program"
    program.write_text(f"#!/bin/sh\ncat > {told}\necho '{{\"begun\": true}}'\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(paths, "RUN", str(folder / "run"))
    library = os.path.dirname(saltvirt.__file__)
    live_restore_build.begin(live_restore_build.LiveRestoreOptions(library, asked(folder)))
    assert live_restore_server.LiveRestoreServerRequest.from_answer(
        json.loads(told.read_text()), "x"
    ) == asked(folder)
    program.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(errors.OperationFailed, match="the live restore server died"):
        live_restore_build.begin(live_restore_build.LiveRestoreOptions(library, asked(folder)))


def test_the_program_shows_it_to_the_guests_qemu_alone_until_the_guest_is_gone(
    conn, folder, short, monkeypatch, capsys
):
    """Where the other machine is connected, its server is another one here."""
    sockets, found = short / "sockets", {}
    monkeypatch.setattr(live_restore_server, "SOCKETS", str(sockets))
    monkeypatch.setattr(paths, "RUN", str(folder / "run"))

    def hand_on(far, path):
        names = ("ca-cert.pem", "client-cert.pem", "client-key.pem")
        found["texts"] = [Path(far.certificates, name).read_text() for name in names]
        found["far"] = (far.host, far.port, far.exports, path)
        Path(path).touch(0o666)
        return found.setdefault("server", Dead())

    monkeypatch.setattr(live_restore_server.daemon, "reexport", hand_on)
    live_restores.store(dataclasses.replace(STOOD, authority="an authority"))
    keep = live_restore_server.LiveRestoreServer.run

    def kept(self):
        [socket] = sockets.iterdir()
        found["mode"] = socket.stat().st_mode & 0o777
        found["left"] = [one for one in (folder / "run").iterdir() if one.is_dir()]
        keep(self)

    monkeypatch.setattr(live_restore_server.LiveRestoreServer, "run", kept)
    monkeypatch.setattr(
        live_restore_server.LiveRestoreServer, "_restart_daemon", lambda _self: None
    )
    assert run(monkeypatch, capsys, asked(folder)) == (0, {"begun": True})
    assert found["texts"] == ["an authority", "a certificate", "a key"]
    assert found["far"] == ("b1", 1, ("vda",), live_restore_server.socket_path("web1"))
    assert (found["mode"], found["left"]) == (0o600, []), "the key lies nowhere any more"
    assert found["server"].ended.is_set() and [*sockets.iterdir()] == []
    assert live_restores.load("web1") is None
