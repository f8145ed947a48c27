"""The process that exports the disks of a guest, run in this process, with real QEMU in a private
libvirtd. test_backup_served.py has the tests that need neither."""

# ruff: noqa: F811
import contextlib
import errno
import io
import json
import os
import socket
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("libvirt")
pytest.importorskip("cryptography")

import libvirt
import libvirt_qemu

from saltvirt import errors
from saltvirt.backup.export import api, export_server, request, running
from saltvirt.backup.export.request import BackupJournal, EndRequest, ServeRequest
from saltvirt.backup.model import chains, record
from saltvirt.backup.model.answers import PlannedDisk, Serving
from saltvirt.host.domain import guest_lock
from saltvirt.images import bitmaps
from saltvirt.pki.host import own_pair
from saltvirt.system import tls_listener
from tests.clock import until
from tests.functional.backed_up import MIB, qemu_img
from tests.functional.backing import AT, GUEST
from tests.functional.backup.test_backup_relay import qemu_img as read_by
from tests.functional.backup.test_backup_relay import reading
from tests.functional.backup.test_backup_served import (
    IDENT,
    OTHER,
    Served,
    folder,  # noqa: F401
    nothing_is_left,
    pair,  # noqa: F401
)
from tests.functional.daemon import libvirtd  # noqa: F401
from tests.functional.pulled import FIRST_PORT, HOST, PORTS, trusting

pytestmark = pytest.mark.skipif(
    not os.path.exists("/usr/bin/qemu-storage-daemon"), reason="no qemu-storage-daemon"
)
PIECE, CHECKPOINT = 65536, chains.checkpoint(IDENT)


@pytest.fixture
def conn(libvirtd):
    found = libvirt.open(libvirtd.uri)
    yield found
    for dom in found.listAllDomains():
        with contextlib.suppress(libvirt.libvirtError):
            dom.destroy()
        dom.undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA)
    found.close()


@pytest.fixture
def off(conn, folder):
    """A guest that is off."""
    path = f"{folder}/web1.qcow2"
    qemu_img("create", "-q", "-f", "qcow2", path, str(MIB))
    return conn.defineXML(GUEST.format(path))


@pytest.fixture
def runs(off, folder, monkeypatch):
    """The same, which runs. Its QEMU and this process have no folder in common but the test's."""
    off.create()
    monkeypatch.setattr(running, "_QEMU_FOLDERS", folder)
    os.mkdir(f"{folder}/domain-{off.ID()}-web1")
    return off


@pytest.fixture
def reader(folder):
    return own_pair.permanent(f"{folder}/reader", "reader")


@pytest.fixture
def asked(libvirtd, folder, pair, reader):
    told = tls_listener.TlsCredentials(pair.authority, pair.certificate, pair.key, reader.authority)
    return ServeRequest(
        "web1", IDENT, (PlannedDisk("vda", reason="the first"),), libvirtd.uri, None, None,
        f"{folder}/locks", f"{folder}/images/_backup", HOST,
        tls_listener.TlsEndpoint(HOST, FIRST_PORT, PORTS, told),
    )  # fmt: skip


@contextlib.contextmanager
def serving(asked):
    with BackupJournal("web1").lock() as journal, export_server._listen("web1") as listener:
        found = Served(asked, journal, listener)
        try:
            yield found
        finally:
            found.keeper.signalled = True
            assert found.ends()


@pytest.fixture
def served(runs, asked):
    with serving(asked) as found:
        yield found


def write(dom, byte):
    """The guest's first piece."""
    told = f'qemu-io -d {AT} "write -P {byte} 0 {PIECE}"'
    hmp = libvirt_qemu.VIR_DOMAIN_QEMU_MONITOR_COMMAND_HMP
    assert not libvirt_qemu.qemuMonitorCommand(dom, told, hmp)


def is_backed_up(dom):
    """Whether libvirt has a backup of it under way."""
    try:
        return bool(dom.backupGetXMLDesc(0))
    except libvirt.libvirtError as exc:
        assert exc.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN_BACKUP
        return False


def names(dom):
    return [one.getName() for one in dom.listAllCheckpoints(0)]


def given_to_the_program(monkeypatch, asked):
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(asked.to_answer())))
    monkeypatch.setattr(export_server.signal, "signal", lambda *_: None)


def test_a_guest_that_runs_is_shown_as_it_was_and_may_be_stopped_meanwhile(
    runs, asked, conn, folder, reader, tmp_path, monkeypatch, capsys
):
    given_to_the_program(monkeypatch, asked)
    write(runs, 7)
    codes = []
    thread = threading.Thread(target=lambda: codes.append(export_server.main([])))
    thread.start()
    said = until(lambda: capsys.readouterr().out, "it is shown")
    found = Serving.from_answer(json.loads(said)["serving"], HOST)
    assert (found.consistency, found.note) == (record.CRASH, "no guest agent answers")
    write(runs, 9)
    copy = tmp_path / "copy.raw"
    with trusting(reader, found.authority, "serving") as trusted:
        door = SimpleNamespace(port=found.port)
        done = read_by(trusted, door, "convert", "-O", "raw", str(copy))
    assert done.returncode == 0, done.stderr
    assert copy.read_bytes() == b"\7" * PIECE + bytes(MIB - PIECE)
    with guest_lock.acquire(asked.locks, "virt.stop", "web1", wait_s=0):
        ended = api.end(conn, "web1", EndRequest(IDENT, True, (CHECKPOINT,)))
    thread.join(60)
    assert (ended.reason, ended.leftovers, codes) == (None, (), [0])
    assert runs.isActive() and not is_backed_up(runs) and names(runs) == [CHECKPOINT]
    nothing_is_left(folder, conn)


@pytest.mark.parametrize("where", ["images", "journals"])
def test_where_nothing_can_be_written_that_is_said_and_nothing_is_begun(
    runs, asked, conn, folder, monkeypatch, capsys, where
):
    with open(f"{folder}/{where}", "w", encoding="ascii"):
        pass
    given_to_the_program(monkeypatch, asked)
    assert export_server.main([]) == 1
    said = json.loads(capsys.readouterr().out)["error"]
    assert said.startswith(f"cannot export the disks of web1: {folder}/{where}"), said
    os.unlink(f"{folder}/{where}")
    assert not is_backed_up(runs) and names(runs) == []
    nothing_is_left(folder, conn)


@pytest.mark.parametrize("is_off", [False, True])
def test_of_one_that_cannot_be_shown_no_checkpoint_is_left(runs, asked, conn, folder, is_off):
    """The ports are the last that it needs: what records from the backup on is there by then. That
    of the backup before stays."""
    with serving(asked) as served:
        api.end(conn, "web1", EndRequest(IDENT, True, (CHECKPOINT,)))
        assert served.ends()
    if is_off:
        runs.destroyFlags(libvirt.VIR_DOMAIN_DESTROY_GRACEFUL)
    with socket.create_server((HOST, 0)) as taken:
        door = tls_listener.TlsEndpoint(HOST, taken.getsockname()[1], 1, asked.endpoint.credentials)
        other = replace(asked, backup_id=OTHER, endpoint=door)
        with (
            BackupJournal("web1").lock() as journal,
            pytest.raises(errors.OperationFailed, match="port"),
        ):
            export_server.ExportServer(other, journal).begin()
    assert names(runs) == [CHECKPOINT]
    if is_off:
        assert [*bitmaps.read(f"{folder}/web1.qcow2")] == [CHECKPOINT]
    nothing_is_left(folder, conn)


def test_where_who_asked_for_it_has_died_nothing_is_left(runs, asked, conn, folder, monkeypatch):
    """Nobody else knows where it is shown: no backup stands on its checkpoint."""
    given_to_the_program(monkeypatch, asked)
    reads, writes = os.pipe()
    os.close(reads)
    with contextlib.suppress(BrokenPipeError), open(writes, "w", encoding="ascii") as out:
        monkeypatch.setattr(sys, "stdout", out)
        assert export_server.main([]) == 1
    assert runs.isActive() and not is_backed_up(runs) and names(runs) == []
    nothing_is_left(folder, conn)


def test_what_goes_wrong_while_it_is_shown_is_said_and_ends_it(
    runs, asked, conn, folder, monkeypatch, capsys
):
    """Its checkpoint stays: the target may have read all of it."""
    given_to_the_program(monkeypatch, asked)

    def full(*_):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(export_server, "_serve_until_end", full)
    assert export_server.main([]) == 1
    shown, said = map(json.loads, capsys.readouterr().out.splitlines())
    assert shown["serving"]["host"] == HOST
    assert said == {"error": "cannot export the disks of web1: Too many open files"}
    assert not is_backed_up(runs) and names(runs) == [CHECKPOINT]
    nothing_is_left(folder, conn)


def test_while_somebody_reads_it_goes_on(served, reader, monkeypatch):
    kept, found = served.keeper, served.serving
    with reading(SimpleNamespace(port=found.port), found.authority, reader):
        until(lambda: kept._relay.has_readers, "he is let in")
        kept._last_s = time.monotonic() - 2 * export_server.IDLE_S
        assert kept.stop_reason() is None and kept.idle_s() < export_server.ABANDONED_S
        other = api._send("web1", EndRequest(OTHER, False))
        assert "running on this host" in other["error"]
    until(lambda: not kept._relay.has_readers, "he has gone")
    monkeypatch.setattr(export_server, "IDLE_S", -1)
    assert served.ends()
    assert "nothing was read" in api._end_reason("web1", IDENT)


@pytest.mark.parametrize(("what", "why"), [
    ("room", "has less than 1048576 TiB free for the blocks that the guest overwrites"),
    ("stopped", "the guest was stopped, or libvirt ended its backup"),
    ("ended", "the guest was stopped, or libvirt ended its backup"),
    ("signal", "the export was ended by a signal"),
])  # fmt: skip
def test_what_ends_it_leaves_nothing_of_it(served, runs, conn, folder, monkeypatch, what, why):
    assert served.thread.is_alive() and is_backed_up(runs)
    if what == "room":
        monkeypatch.setattr(export_server, "RESERVED_BYTES", 2**60)
    elif what == "stopped":
        runs.destroy()
    elif what == "ended":
        runs.abortJob()
    else:
        served.keeper.signalled = True
    assert served.ends()
    assert why in api._end_reason("web1", IDENT)
    assert bool(runs.isActive()) is (what != "stopped")
    assert what == "stopped" or not is_backed_up(runs)
    nothing_is_left(folder, conn)


def test_what_one_that_died_began_of_a_guest_that_runs_is_ended_by_the_next(
    runs, asked, conn, folder
):
    with BackupJournal("web1").lock() as journal:
        dead = export_server.ExportServer(asked, journal)
        dead.begin()
        dead._relay.end()
    assert is_backed_up(runs) and os.listdir(f"{folder}/images/_backup/web1@{HOST}")
    api.clean(conn, "web1")
    assert runs.isActive() and not is_backed_up(runs)
    nothing_is_left(folder, conn)


def test_what_libvirt_does_not_end_is_said_and_is_ended_later(
    runs, asked, conn, folder, monkeypatch
):
    with monkeypatch.context() as broken, serving(asked) as served:
        broken.setattr(running, "_ENDS_S", 0)
        broken.setattr(libvirt.virDomain, "abortJob", lambda _dom: 0)
        with pytest.raises(errors.OperationFailed, match="libvirt does not end the backup of web1"):
            api.end(conn, "web1", EndRequest(IDENT, True))
        assert served.ends()
    assert is_backed_up(runs) and BackupJournal("web1").read().backup_id == IDENT
    assert "died" in api.end(conn, "web1", EndRequest(IDENT, True)).reason
    assert not is_backed_up(runs)
    nothing_is_left(folder, conn)


@pytest.mark.parametrize("good", [True, False])
def test_of_one_that_is_off_the_file_records_from_now_on_where_the_backup_is_good(
    off, asked, conn, folder, good
):
    with serving(asked) as served:
        [disk] = served.serving.disks
        assert disk.checkpoint == CHECKPOINT
        assert api.end(conn, "web1", EndRequest(IDENT, good, (CHECKPOINT,))).leftovers == ()
        assert served.ends()
    kept = [CHECKPOINT] if good else []
    assert names(off) == kept and [*bitmaps.read(f"{folder}/web1.qcow2")] == kept
    nothing_is_left(folder, conn)


@pytest.mark.parametrize("before", [False, True])
def test_a_guest_that_a_full_host_has_paused_runs_on_when_the_backup_has_ended(
    asked, runs, conn, folder, monkeypatch, before
):
    """Unless it was paused before the backup: that was another error."""
    now = [before]
    monkeypatch.setattr(running, "is_paused_by_io", lambda _dom: now[0])
    with serving(asked) as served:
        now[0] = True
        runs.suspend()
        monkeypatch.setattr(export_server, "RESERVED_BYTES", 2**60)
        assert served.ends()
    assert (runs.state()[0] == libvirt.VIR_DOMAIN_PAUSED) is before
    nothing_is_left(folder, conn)


def test_room_is_looked_at_also_while_libvirt_does_not_answer(served, monkeypatch):
    def silent(_self):
        raise errors.ConnectionFailed("libvirt is being restarted")

    monkeypatch.setattr(export_server.ExportServer, "_failure_reason", silent)
    assert served.keeper.stop_reason() is None
    monkeypatch.setattr(export_server, "RESERVED_BYTES", 2**60)
    assert "the blocks that the guest overwrites" in served.keeper.stop_reason()


def fallocated(path, size):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)


def test_how_fast_it_fills_says_how_much_room_is_needed(tmp_path, monkeypatch):
    free = [1000 * MIB]
    monkeypatch.setattr(
        export_server.os, "statvfs", lambda _path: SimpleNamespace(f_bavail=free[0], f_frsize=1)
    )
    scratch = export_server.ScratchSpace(str(tmp_path / "not yet"))
    scratch.check()
    fallocated(tmp_path / "not yet/web1/vda.qcow2", 10 * MIB)
    scratch.check()
    # at this rate it is full before it is looked again
    fallocated(tmp_path / "not yet/web1/vdb.qcow2", 100 * MIB)
    with pytest.raises(errors.OperationFailed, match=r"has less than 1\.03 GiB free"):
        scratch.check()


def test_what_one_guest_may_overwrite_has_a_limit_of_its_own(asked, runs, folder):
    with serving(replace(asked, scratch_mib=1)) as served:
        assert served.keeper.stop_reason() is None
        fallocated(Path(folder) / "images/_backup/other/vda.qcow2", 2 * MIB)
        assert served.keeper.stop_reason() is None
        fallocated(Path(folder) / f"images/_backup/web1@{HOST}/more", 2 * MIB)
        assert served.ends()
    why = json.loads(Path(request.end_reason_path("web1")).read_text())["reason"]
    assert "take more than 1 MiB in " in why and "virt:backup:scratch_mib" in why


def test_a_disk_that_is_allocated_beside_it_ends_no_backup(tmp_path, monkeypatch):
    free = [1000 * MIB]
    monkeypatch.setattr(
        export_server.os, "statvfs", lambda _path: SimpleNamespace(f_bavail=free[0], f_frsize=1)
    )
    scratch = export_server.ScratchSpace(str(tmp_path / "_backup"))
    scratch.check()
    free[0] -= 200 * MIB
    scratch.check()
    free[0] = 255 * MIB
    with pytest.raises(errors.OperationFailed, match="has less than 256 MiB free"):
        scratch.check()


def test_what_a_dead_one_left_of_any_guest_is_ended_by_the_next_of_another(
    runs, asked, conn, folder, monkeypatch
):
    """Of a guest that is on another host by now nobody would ask for a backup here."""
    with BackupJournal("web1").lock() as journal:
        dead = export_server.ExportServer(asked, journal)
        dead.begin()
        dead._relay.end()
        assert api.sweep(conn) == [], "it is at work"
    runs.destroy()
    runs.undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA)
    assert os.path.isdir(f"{folder}/images/_backup/web1@{HOST}")
    assert api.sweep(conn) == ["web1"]
    nothing_is_left(folder, conn)
    assert api.sweep(conn) == []
