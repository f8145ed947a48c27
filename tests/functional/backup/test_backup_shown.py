"""A backup is exported to one hypervisor only as long as it reads."""

import io
import json
import os
import socket
import threading
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from saltvirt import errors
from saltvirt.backup.model.catalog import Catalog, StoredBackup
from saltvirt.backup.model.pins import BackupPin
from saltvirt.backup.model.verification import Verification
from saltvirt.backup.target import pins, show
from saltvirt.pki.common import certs
from saltvirt.pki.host import own_pair
from saltvirt.system import detached, tls_listener
from tests.functional.backed_up import MIB, UUID, XML
from tests.functional.hostile_nbd import waited
from tests.functional.pulled import FIRST_PORT, HAS_LIBNBD, HOST, LIBRARY, PORTS, SIZE, Pulled

pytestmark = pytest.mark.skipif(not HAS_LIBNBD, reason="no libnbd")


WHO = BackupPin("web1", "hv1", "2026-11-26T15:00:00Z")


@pytest.fixture
def guest(tmp_path):
    """With one backup."""
    found = Pulled(tmp_path, tmp_path / "target")
    found.write(MIB, 300_000, byte=1)
    found.back_up()
    return found


def asked_of(guest, stand=None, ports=PORTS):
    pair = own_pair.generate(HOST, certs.SERVER)
    who = tls_listener.TlsCredentials(
        pair.authority, pair.certificate, pair.key, guest.reader.authority
    )
    door = tls_listener.TlsEndpoint(HOST, FIRST_PORT, ports, who)
    [ident] = guest.target.catalog(UUID).backups
    return show.ShowRequest(guest.target.folder.root, UUID, ident, door, stand)


@pytest.fixture
def shown(guest, tmp_path, monkeypatch):
    """(the guest, its backup, the port): by the program itself, as a thread."""
    said, told = [], threading.Event()
    monkeypatch.setattr(show, "_RUN", str(tmp_path / "run"))
    monkeypatch.setattr(show, "_POLL_S", 0.1)
    monkeypatch.setattr(detached, "send", lambda data: (said.append(data), told.set()))
    asked = asked_of(guest)
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(asked.to_answer())))
    thread = threading.Thread(target=show.main, args=([],))
    thread.start()
    assert told.wait(60) and "port" in said[0], said
    yield guest, asked.backup_id, said[0]["port"]
    show.hide(guest.reader.authority)
    thread.join(60)
    assert not thread.is_alive()


def is_open(port):
    with socket.socket() as trial:
        return trial.connect_ex((HOST, port)) == 0


def folders(tmp_path):
    return [one for one in os.listdir(tmp_path / "run") if one.startswith("show-")]


def test_it_ends_when_it_is_said_to_whom_it_is_shown_no_more(shown, tmp_path):
    guest, ident, port = shown
    assert guest.target.is_used(UUID, ident) and folders(tmp_path)
    other = own_pair.generate(HOST, certs.CLIENT).authority
    assert show.hide(other) is False and is_open(port)
    assert show.hide(guest.reader.authority) is True
    assert waited(lambda: not folders(tmp_path), 60) and not is_open(port)
    # the folder goes before the backup is let go
    assert waited(lambda: not guest.target.is_used(UUID, ident), 30)
    assert show.hide(guest.reader.authority) is False


def record_of(guest):
    [ident] = guest.target.catalog(UUID).backups
    return Path(guest.target.folder.root, UUID, ident)


def test_the_program_shows_it_to_who_stands_on_it_until_he_is_let_go(guest):
    """It is another process: the job that began it is over."""
    asked = asked_of(guest, WHO)
    found = show.show(LIBRARY, asked, HOST)
    assert (found.backup_id, found.guest, found.definition) == (asked.backup_id, "web1", XML)
    assert [(one.target, one.size_bytes) for one in found.disks] == [("vda", SIZE)]
    assert is_open(found.port) and guest.target.is_used(UUID, asked.backup_id)
    assert pins.load(guest.target.folder, UUID, asked.backup_id) == (WHO,)
    assert pins.remove_pin(guest.target.folder, UUID, asked.backup_id, WHO)
    assert waited(lambda: not guest.target.is_used(UUID, asked.backup_id), 30)
    assert not is_open(found.port)


def test_what_is_not_good_is_shown_to_nobody(guest):
    asked = asked_of(guest, WHO)
    os.truncate(record_of(guest) / "vda.qcow2", 1000)
    with pytest.raises(errors.BadAnswer, match=f"backup {asked.backup_id} is not good: "):
        show.show(LIBRARY, asked, HOST)
    assert pins.load(guest.target.folder, UUID, asked.backup_id) == ()


def test_why_the_program_does_not_begin_is_said(guest):
    """No port is free for it; it ends, and nobody uses the backup any more."""
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        asked = asked_of(guest)
        door = tls_listener.TlsEndpoint(HOST, port, 1, asked.endpoint.credentials)
        full = f"the ports from {port} to {port} are in use"
        with pytest.raises(errors.OperationFailed, match=full):
            show.show(LIBRARY, show.ShowRequest(asked.folder, UUID, asked.backup_id, door), HOST)
    assert waited(lambda: not guest.target.is_used(UUID, asked.backup_id), 30)


def test_one_that_is_damaged_is_shown_to_who_asks_for_what_can_be_read(guest):
    asked = asked_of(guest)
    guest.target.save_verification(
        UUID, asked.backup_id, Verification("2026-11-23T16:30:00Z", ("vda",), {"vda": "x"})
    )
    with pytest.raises(errors.BadAnswer, match="is not good: vda: x"):
        show.show(LIBRARY, asked, HOST)
    with pytest.raises(errors.NotFound, match="has no disk 'vdz'"):
        show.show(LIBRARY, replace(asked, disk="vdz"), HOST)
    found = show.show(LIBRARY, replace(asked, damaged=True), HOST)
    assert found.damaged and [one.target for one in found.disks] == ["vda"] and is_open(found.port)
    show.hide(guest.reader.authority)
    os.truncate(record_of(guest) / "vda.qcow2", 1000)
    with pytest.raises(errors.BadAnswer, match=r"no part of backup .* can be read"):
        show.show(LIBRARY, replace(asked, damaged=True), HOST)


def test_one_bad_disk_hides_no_other(guest):
    [found] = guest.target.catalog(UUID).records
    both = replace(found, disks=(found.disks[0], replace(found.disks[0], target="vdb")))
    mark = Verification("2026-11-23T16:30:00Z", ("vda", "vdb"), {"vdb": "x"})
    lengths = {name: 0 for one in both.disks for name in (one.file, one.checksums)}
    lengths |= {one.file: one.stored_bytes for one in both.disks}
    stock = Catalog([StoredBackup(both.backup_id, both, lengths=lengths, verification=mark)])
    assert stock.broken_disks(both.backup_id) == {"vdb": "x"}
    assert stock.disk_problem(both.backup_id, "vda") is None
    asked = replace(asked_of(guest), disk="vda")
    assert [one.target for one in asked.disks(guest.target, both)] == ["vda"]


def test_a_damaged_one_shows_no_disk_that_cannot_be_opened(guest):
    """So that it is in the way of no other. Whether it was ever read back is not asked."""
    asked = replace(asked_of(guest), damaged=True)
    assert show.show(LIBRARY, asked, HOST).damaged, "else what cannot be read ends the restore"
    show.hide(guest.reader.authority)
    [found] = guest.target.catalog(UUID).records
    assert [one.target for one in asked.disks(guest.target, found)] == ["vda"]
    with open(record_of(guest) / "vda.qcow2", "r+b") as file:
        file.seek(24)
        file.write(b"\0\0\0\1")  # of the size in its header
    assert asked.disks(guest.target, found) == []
    with pytest.raises(errors.BadAnswer, match="none of its files can be opened"):
        show.show(LIBRARY, asked, HOST)
