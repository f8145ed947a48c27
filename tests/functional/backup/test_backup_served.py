"""The process that exports the disks of a guest: what ends it. With QEMU's storage daemon and a
guest of libvirt's test driver that is off."""

import contextlib
import errno
import io
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading

import pytest

pytest.importorskip("libvirt")
pytest.importorskip("cryptography")

from saltvirt import errors
from saltvirt.backup.export import api, export_server, request, running
from saltvirt.backup.export.request import BackupJournal, BackupSession, EndRequest, ServeRequest
from saltvirt.backup.model import record
from saltvirt.backup.model.answers import PlannedDisk
from saltvirt.host.domain import guest_lock
from saltvirt.images import bitmaps
from saltvirt.pki.common import certs
from saltvirt.pki.host import own_pair
from saltvirt.system import tls_listener
from tests.clock import until
from tests.functional.backed_up import MIB, UUID, qemu_img
from tests.functional.pulled import FIRST_PORT, HOST, PORTS

pytestmark = pytest.mark.skipif(
    not os.path.exists("/usr/bin/qemu-storage-daemon"), reason="no qemu-storage-daemon"
)
IDENT, OTHER = "000001-20261126T155220Z-00000000", "000002-20261126T155220Z-00000000"
DIED = "the process that exported the disks died"
WEB1 = f"""<domain type='test'><name>web1</name><uuid>{UUID}</uuid><memory>1024</memory>
<os><type>hvm</type></os><devices><disk type='file' device='disk'>
<driver name='qemu' type='qcow2'/><source file='{{}}'/><target dev='vda'/></disk></devices>
</domain>"""


@pytest.fixture(scope="module")
def pair():
    return own_pair.generate(HOST, certs.SERVER)


@pytest.fixture
def folder(monkeypatch):
    """Of all that a backup writes here; a short path: a socket's has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="sv-") as path:
        monkeypatch.setattr(request, "RUN", path)
        monkeypatch.setattr(request, "JOURNALS", f"{path}/journals")
        monkeypatch.setattr(export_server, "_POLL_S", 0.05)
        yield path


@pytest.fixture
def guest(conn, folder):
    """The path of its disk."""
    path = f"{folder}/web1.qcow2"
    qemu_img("create", "-q", "-f", "qcow2", path, str(MIB))
    conn.defineXML(WEB1.format(path))
    return path


@pytest.fixture
def asked(guest, folder, pair):
    told = tls_listener.TlsCredentials(pair.authority, pair.certificate, pair.key, pair.authority)
    return ServeRequest(
        "web1", IDENT, (PlannedDisk("vda", reason="the first"),), "test:///default", None, None,
        f"{folder}/locks", f"{folder}/images/_backup", HOST,
        tls_listener.TlsEndpoint(HOST, FIRST_PORT, PORTS, told),
    )  # fmt: skip


class Served:
    """As the program has it, in a thread of this process."""

    def __init__(self, asked, journal, listener):
        self.keeper, self.asked = export_server.ExportServer(asked, journal), asked
        self.serving = self.keeper.begin()
        self.thread = threading.Thread(
            target=export_server._serve_until_end, args=(self.keeper, asked, listener)
        )
        self.thread.start()

    def ends(self):
        self.thread.join(60)
        return not self.thread.is_alive()


@pytest.fixture
def served(asked):
    with BackupJournal("web1").lock() as journal, export_server._listen("web1") as listener:
        found = Served(asked, journal, listener)
        yield found
        found.keeper.signalled = True
        assert found.ends()


def nothing_is_left(folder, conn):
    assert BackupJournal("web1").read() is None
    for path in (request.exports_path("web1"), f"{folder}/images/_backup/web1@{HOST}"):
        assert not os.path.lexists(path)


@pytest.mark.parametrize("says", [
    b"", b"\n", b"{", b"[]\n", b'{"backup_id": 1, "good": true}\n',
    b"[" * 100_000 + b"\n", b"\xff\n",
], ids=["nothing", "no line", "half", "a list", "a number", "deep", "no text"])  # fmt: skip
def test_who_says_nothing_that_is_understood_ends_no_backup(served, says):
    """It may be a job that was killed between its call and its words."""
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(request.socket_path("web1"))
        line.sendall(says)
        line.shutdown(socket.SHUT_WR)
        line.settimeout(60)
        assert line.recv(1) == b""  # it is through with this one
    assert "running on this host" in api._send("web1", EndRequest(OTHER, False))["error"]
    assert api._send("web1", EndRequest(IDENT, True)) == {"reason": None, "leftovers": []}
    assert served.ends()


def test_who_does_not_wait_for_his_answer_ends_no_backup(served):
    for _ in range(5):
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(request.socket_path("web1"))
            line.sendall(json.dumps(EndRequest(OTHER, False).to_answer()).encode() + b"\n")
    assert "running on this host" in api._send("web1", EndRequest(OTHER, False))["error"]
    assert served.thread.is_alive()


def test_the_disks_of_one_that_is_saved_are_as_after_a_power_cut(asked, conn):
    """It has not ended: what it had in memory is in no backup."""
    dom = conn.lookupByName("web1")
    dom.create()
    dom.managedSave(0)
    with BackupJournal("web1").lock() as journal:
        one = export_server.ExportServer(asked, journal)
        told = one.begin()
        one.end()
    assert told.consistency == record.CRASH
    assert told.note == "the guest has saved memory, which is not backed up"


def test_it_ends_when_somebody_starts_the_guest(served, conn, folder):
    """Whose disks may be block devices: on those QEMU's locks do not meet."""
    conn.lookupByName("web1").create()
    assert served.ends()
    why = api._end_reason("web1", IDENT)
    assert why == "the guest was started while its disks were read"
    nothing_is_left(folder, conn)


@pytest.mark.parametrize("shared", [False, True])
def test_a_raw_disk_of_a_guest_that_is_off_has_no_writer(asked, conn, folder, shared):
    """QEMU itself tolerates one. Of a disk that guests share, another guest may be the writer."""
    path = f"{folder}/web1.raw"
    qemu_img("create", "-q", "-f", "raw", path, str(MIB))
    xml = WEB1.format(path).replace("'qcow2'", "'raw'")
    conn.defineXML(xml.replace("</disk>", "<shareable/></disk>") if shared else xml)
    argv = ["qemu-io", "-f", "raw", "-c", "write -q 0 512", path]
    with BackupJournal("web1").lock() as journal:
        one = export_server.ExportServer(asked, journal)
        one.begin()
        done = subprocess.run(argv, check=False, capture_output=True, text=True)
        assert ('Failed to get "write" lock' in done.stderr) is not shared
        one.end()
    subprocess.run(argv, check=True)


def test_it_ends_what_it_began(served, conn, folder):
    """libvirt's driver takes no checkpoint of a guest that is off: the disk is read all the same,
    and the next time it is read whole."""
    assert (
        os.path.exists(request.exports_path("web1"))
        and BackupJournal("web1").read().backup_id == IDENT
    )
    [disk] = served.serving.disks
    assert (disk.checkpoint, served.serving.consistency) == (None, record.STOPPED)
    assert api.end(conn, "web1", EndRequest(IDENT, True)).reason is None
    assert served.ends()
    nothing_is_left(folder, conn)
    assert bitmaps.read(f"{folder}/web1.qcow2") == {}


def test_one_that_nobody_reads_gives_way_to_another(served, conn, folder, monkeypatch):
    monkeypatch.setattr(export_server, "ABANDONED_S", 0)
    assert "error" not in api._send("web1", EndRequest(request.ANY_BACKUP, False))
    assert served.ends()
    nothing_is_left(folder, conn)


@pytest.mark.parametrize(("what", "why"), [
    ("signal", "the export was ended by a signal"),
    ("nobody", "nothing was read for -1 s"),
    ("daemon", "the disks are no longer exported"),
])  # fmt: skip
def test_why_it_ended_by_itself_is_said_to_who_asks_later(
    served, conn, folder, monkeypatch, what, why
):
    if what == "signal":
        served.keeper.signalled = True
    elif what == "nobody":
        monkeypatch.setattr(export_server, "IDLE_S", -1)
    else:
        served.keeper._server.end()
    assert served.ends()
    nothing_is_left(folder, conn)
    assert why in api._end_reason("web1", IDENT)
    assert api._end_reason("web1", OTHER) is None


@pytest.mark.parametrize(("what", "why"), [
    ("room", "has less than 1048576 TiB free for the blocks that the guest overwrites"),
    ("disks", "the disks of web1 changed meanwhile: repeat the command"),
    ("gone", "web1"),
    ("port", "too many connections are open"),
])  # fmt: skip
def test_what_cannot_be_begun_leaves_nothing(asked, conn, folder, monkeypatch, what, why):
    with contextlib.ExitStack() as stack:
        if what == "room":
            monkeypatch.setattr(export_server, "RESERVED_BYTES", 2**60)
        elif what == "disks":
            asked = replaced(asked, disks=(PlannedDisk("vdb"),))
        elif what == "gone":
            conn.lookupByName("web1").undefine()
        else:
            taken = stack.enter_context(socket.create_server((HOST, 0)))
            door = tls_listener.TlsEndpoint(
                HOST, taken.getsockname()[1], 1, asked.endpoint.credentials
            )
            asked = replaced(asked, endpoint=door)
        with BackupJournal("web1").lock() as journal, pytest.raises(errors.VirtError, match=why):
            export_server.ExportServer(asked, journal).begin()
    nothing_is_left(folder, conn)
    assert bitmaps.read(f"{folder}/web1.qcow2") == {}


def replaced(asked, **given):
    return ServeRequest(**{**asked.__dict__, **given})


@pytest.mark.parametrize("there", ["gone", "another", "itself"])
def test_what_a_process_that_died_had_begun_is_ended(guest, conn, folder, there):
    """Of one that is off now, or is another guest of the name, libvirt is asked nothing."""
    scratch = f"{folder}/images/_backup/web1@{HOST}"
    os.makedirs(scratch)
    uuid = UUID if there == "itself" else UUID.replace("b7", "c8")
    journal = BackupJournal("web1")
    journal.write(
        BackupSession("web1", uuid, IDENT, scratch, active=there != "itself", frozen=True)
    )
    if there == "gone":
        conn.lookupByName("web1").undefine()
    api.clean(conn, "web1")
    nothing_is_left(folder, conn)


def test_what_another_host_keeps_on_the_same_storage_stays(asked, conn, folder):
    """This host died in a backup of the guest, which now is backed up where it was started."""
    mine, others = (
        running.scratch_folder(asked),
        running.scratch_folder(replaced(asked, host="hv2")),
    )
    for path in (mine, others):
        running.make_scratch(path)
    BackupJournal("web1").write(BackupSession("web1", UUID, IDENT, mine, active=True))
    conn.lookupByName("web1").undefine()
    assert api.sweep(conn) == ["web1"]
    assert not os.path.exists(mine) and os.path.isdir(others)


def test_its_process_has_died_where_it_had_begun_that_backup_and_no_other(guest, conn, folder):
    for ident, why in ((None, None), (OTHER, None), (IDENT, DIED)):
        if ident:
            BackupJournal("web1").write(
                BackupSession("web1", UUID, ident, f"{folder}/scratch", active=False)
            )
        assert api.end(conn, "web1", EndRequest(IDENT, False)).reason == why
        nothing_is_left(folder, conn)


def test_a_program_that_dies_before_it_has_read_what_it_is_to_do(asked, conn, folder, monkeypatch):
    """More than a pipe holds, so that it is noticed each time."""
    monkeypatch.setattr(sys, "executable", "/bin/false")
    disks = tuple(PlannedDisk("vda", reason="x" * 1000) for _ in range(200))
    with pytest.raises(errors.OperationFailed, match="cannot export the disks of web1"):
        api.begin(os.path.dirname(api.__file__), conn, replaced(asked, disks=disks))
    nothing_is_left(folder, conn)


def test_a_journal_that_is_damaged_is_named(folder):
    journal = BackupJournal("web1")
    os.makedirs(request.JOURNALS)
    for text in ("", "{", "[]", '{"guest": 1}'):
        with open(journal._path, "w", encoding="utf-8") as file:
            file.write(text)
        with pytest.raises(errors.BadAnswer, match=journal._path):
            journal.read()


def test_one_backup_of_a_guest_at_a_time(folder):
    refused = pytest.raises(errors.OperationFailed, match="another backup of web1 is running")
    with (
        BackupJournal("web1").lock(),
        BackupJournal("web2").lock(),
        refused,
        BackupJournal("web1").lock(),
    ):
        pass
    with BackupJournal("web1").lock():
        pass


# -- the program ---------------------------------------------------------------------------------


@pytest.fixture
def program(asked, monkeypatch):
    """Runs it in this process: its exit code."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(asked.to_answer())))
    monkeypatch.setattr(export_server.signal, "signal", lambda *_: None)
    return lambda: export_server.main([])


def test_a_guest_that_is_off_stays_off_until_its_backup_is_told_to_end(
    program, asked, conn, folder, capsys
):
    seen = []

    def ends():
        until(lambda: os.path.exists(request.exports_path("web1")), "its disks are shown")
        lock = guest_lock.acquire(asked.locks, "virt.start", "web1", wait_s=0)
        with contextlib.suppress(errors.OperationFailed), lock:
            seen.append("it can be started")
        seen.append(api.end(conn, "web1", EndRequest(IDENT, False)))

    thread = threading.Thread(target=ends)
    thread.start()
    assert program() == 0
    thread.join(60)
    assert [(one.reason, one.leftovers) for one in seen] == [(None, ())]
    assert json.loads(capsys.readouterr().out)["serving"]["uuid"] == UUID
    with guest_lock.acquire(asked.locks, "virt.start", "web1", wait_s=0):
        nothing_is_left(folder, conn)


def test_the_program_says_why_nothing_is_shown(program, folder, capsys):
    with BackupJournal("web1").lock():
        assert program() == 1
    said = json.loads(capsys.readouterr().out)
    assert said == {
        "error": "another backup of web1 is running on this host: wait until it is done"
    }


def test_that_a_disk_is_full_is_said(program, folder, conn, monkeypatch, capsys):
    def full(_handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", full)
        assert program() == 1
    said = json.loads(capsys.readouterr().out)["error"]
    assert said == "cannot export the disks of web1: No space left on device"
    nothing_is_left(folder, conn)


def test_where_who_asked_for_it_has_died_nothing_stays_shown(program, folder, conn, monkeypatch):
    """Nobody else knows that there is something to end."""
    reads, writes = os.pipe()
    os.close(reads)
    with contextlib.suppress(BrokenPipeError), open(writes, "w", encoding="ascii") as out:
        monkeypatch.setattr(sys, "stdout", out)
        assert program() == 1
    nothing_is_left(folder, conn)


@pytest.mark.parametrize(("says", "why"), [
    ("", "cannot export the disks of web1: its last words"),
    ("no JSON", "cannot export the disks of web1: its last words"),
    ('{"error": "it has no room"}', "^it has no room$"), ("{}", "no reason was given"),
])  # fmt: skip
def test_a_program_that_shows_nothing_says_why_or_is_ended(
    asked, conn, folder, monkeypatch, says, why
):
    script = f"{folder}/program"
    with open(script, "w", encoding="ascii") as file:
        line = f"echo '{says}'" if says else "true"
        file.write(f"#!/bin/sh\necho 'its last words' >&2; {line}; exec sleep 600\n")
    os.chmod(script, 0o755)
    monkeypatch.setattr(sys, "executable", script)
    monkeypatch.setattr(api, "_BEGINS_S", 60 if says else 3)
    with pytest.raises(errors.OperationFailed, match=why):
        api.begin(os.path.dirname(os.path.dirname(api.__file__)), conn, asked)
    nothing_is_left(folder, conn)


def test_one_that_is_silent_when_it_is_to_end_is_still_at_work(conn, folder, monkeypatch):
    """Nothing of it is taken away under it."""
    monkeypatch.setattr(api, "_ENDS_S", 0.1)
    with BackupJournal("web1").lock(), socket.socket(socket.AF_UNIX) as listener:
        listener.bind(request.socket_path("web1"))
        listener.listen()
        with pytest.raises(errors.OperationFailed, match="another backup of web1 is running"):
            api.end(conn, "web1", EndRequest(IDENT, True))
        assert os.path.exists(request.socket_path("web1"))


def test_what_it_cannot_end_is_said(asked, conn, folder):
    """By a listener that answers as the program does."""

    def answers(listener):
        with export_server._accept(listener) as (_, answer):
            answer({"error": "libvirt does not end the backup of web1"})

    with export_server._listen("web1") as listener:
        for call in (lambda: api.end(conn, "web1", EndRequest(IDENT, True)),
                     lambda: api.begin("/nonexistent", conn, asked)):  # fmt: skip
            listener.settimeout(60)
            thread = threading.Thread(target=answers, args=(listener,))
            thread.start()
            with pytest.raises(errors.OperationFailed, match="libvirt does not end the backup"):
                call()
            thread.join(60)


@pytest.mark.parametrize("hears", [True, False])
def test_one_that_dies_while_it_is_told_to_end_is_cleaned_away(conn, folder, hears):
    def dies(listener):
        with listener.accept()[0] as line:
            if hears:
                line.makefile().readline()

    with export_server._listen("web1") as listener:
        listener.settimeout(60)
        thread = threading.Thread(target=dies, args=(listener,))
        thread.start()
        assert "died" in api.end(conn, "web1", EndRequest(IDENT, True)).reason
        thread.join(60)
    assert not os.path.lexists(request.socket_path("web1"))


# -- libvirt, and the guest, meanwhile -----------------------------------------------------------


def test_while_libvirt_is_away_a_backup_goes_on_and_its_end_is_left_to_others(
    asked, folder, monkeypatch
):
    monkeypatch.setattr(export_server, "_BACK_S", 0.1)
    away = replaced(asked, uri=f"qemu+unix:///system?socket={folder}/none")
    journal = BackupJournal("web1")
    journal.write(BackupSession("web1", UUID, IDENT, f"{folder}/scratch", active=True))
    kept = export_server.ExportServer(away, journal)
    assert kept.stop_reason() is None
    with pytest.raises(errors.ConnectionFailed):
        kept.end()
    assert journal.read() is not None
    monkeypatch.setattr(export_server, "IDLE_S", -1)
    assert kept.stop_reason() == "nothing was read for -1 s"


def test_a_guest_that_is_gone_meanwhile_is_no_fault(asked, conn, folder):
    kept = export_server.ExportServer(asked, BackupJournal("web1"))
    conn.lookupByName("web1").undefine()
    assert kept.stop_reason() == "the guest was stopped, or libvirt ended its backup"
    assert kept.prune_checkpoints(EndRequest(IDENT, True)) == ()


def test_why_libvirt_does_not_say_whether_it_is_served_is_kept(asked, conn, folder):
    """This driver has no backups."""
    conn.lookupByName("web1").create()
    kept = export_server.ExportServer(asked, BackupJournal("web1"))
    kept._session = BackupSession("web1", UUID, IDENT, f"{folder}/scratch", active=True)
    assert "not supported by the connection driver" in kept.stop_reason()
