"""A backup is shown to one hypervisor for as long as that reads it, and then no more."""

import io
import json
import os
import socket
import threading

import pytest

pytest.importorskip("cryptography")

from saltvirt import doors
from saltvirt.backuphost import apart, show
from saltvirt.pki.common import certs
from saltvirt.pki.host import own_pair
from tests.functional.backed_up import MIB, UUID
from tests.functional.pulled import FIRST_PORT, HAS_LIBNBD, HOST, PORTS, Pulled

pytestmark = pytest.mark.skipif(not HAS_LIBNBD, reason="no libnbd")


@pytest.fixture
def shown(tmp_path, monkeypatch):
    """(the guest, its backup, the port): by the program itself, as a thread."""
    guest = Pulled(tmp_path, tmp_path / "target")
    guest.write(MIB, 300_000, byte=1)
    ident, _ = guest.back_up()
    said, told = [], threading.Event()
    monkeypatch.setattr(show, "_RUN", str(tmp_path / "run"))
    monkeypatch.setattr(show, "_LOOK_S", 0.1)
    monkeypatch.setattr(apart, "say", lambda data: (said.append(data), told.set()))
    pair = own_pair.made(HOST, certs.SERVER)
    who = doors.Credentials(pair.authority, pair.certificate, pair.key, guest.reader.authority)
    asked = show.ShowRequest(
        guest.target.folder.root, UUID, ident, doors.Door(HOST, FIRST_PORT, PORTS, who)
    )
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(asked.to_answer())))
    thread = threading.Thread(target=show.main, args=([],))
    thread.start()
    assert told.wait(30) and "port" in said[0], said
    yield guest, ident, said[0]["port"]
    show.hide(guest.reader.authority)
    thread.join(30)
    assert not thread.is_alive()


def is_open(port):
    with socket.socket() as trial:
        return trial.connect_ex((HOST, port)) == 0


def folders(tmp_path):
    return [one for one in os.listdir(tmp_path / "run") if one.startswith("show-")]


def test_it_ends_when_it_is_said_to_whom_it_is_shown_no_more(shown, tmp_path):
    guest, ident, port = shown
    assert guest.target.is_used(UUID, ident) and folders(tmp_path)
    other = own_pair.made(HOST, certs.CLIENT).authority
    assert show.hide(other) is False and is_open(port)
    assert show.hide(guest.reader.authority) is True
    ended = threading.Event()
    for _ in range(100):
        if not folders(tmp_path):
            break
        ended.wait(0.1)
    assert folders(tmp_path) == [] and not is_open(port)
    assert not guest.target.is_used(UUID, ident)
    assert show.hide(guest.reader.authority) is False
