"""No guest starts on a volume while it is written over, on a libvirtd of our own with QEMU."""

import os

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from salt.exceptions import CommandExecutionError

from saltvirt.host.storage import upload
from tests.functional.daemon import libvirtd  # noqa: F401
from tests.functional.test_snapshot_kinds import host  # noqa: F401

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a libvirtd of our own needs root")


def test_no_guest_starts_on_a_volume_that_is_written_over(host, tmp_path, monkeypatch):  # noqa: F811
    path = host.disk("g.raw", "raw")
    text = f"<pool type='dir'><name>p</name><target><path>{path.parent}</path></target></pool>"
    host.conn.storagePoolDefineXML(text).create()
    dom = host.define(host.device(path, format="raw"))
    (tmp_path / "file").write_bytes(b"x" * 4096)
    send, started = upload._send, []

    def slow(*arguments):
        """The guest is started when the upload has begun."""
        with pytest.raises(libvirt.libvirtError, match="lock"):
            dom.create()
        started.append(dom.isActive())
        send(*arguments)

    monkeypatch.setattr(upload, "_send", slow)
    assert host.call("volume_upload", "p", "g.raw", str(tmp_path / "file")) is True
    assert started == [0] and path.read_bytes()[:4097] == b"x" * 4096 + b"\0"
    dom.create()
    with pytest.raises(CommandExecutionError, match="is open in g"):
        host.call("volume_upload", "p", "g.raw", str(tmp_path / "file"))
