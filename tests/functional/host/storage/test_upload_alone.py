"""No guest starts on a volume while it is overwritten or copied. In a private libvirtd."""

import os

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from salt.exceptions import CommandExecutionError

from saltvirt.host.storage import upload, volume_content
from tests.functional.daemon import libvirtd  # noqa: F401
from tests.functional.host.domain.test_snapshot_kinds import host  # noqa: F401

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


def test_no_guest_starts_on_a_volume_that_is_copied(host, monkeypatch):  # noqa: F811
    path = host.disk("g.qcow2")
    text = f"<pool type='dir'><name>p</name><target><path>{path.parent}</path></target></pool>"
    host.conn.storagePoolDefineXML(text).create()
    dom, tried = host.define(host.device(path)), []

    def started(*_):
        with pytest.raises(libvirt.libvirtError, match="lock"):
            dom.create()
        tried.append(dom.isActive())

    monkeypatch.setattr(volume_content, "refuse_oversized", started)
    assert host.call("volume_clone", "p", "g.qcow2", "copy.qcow2") is True
    assert tried == [0] and (path.parent / "copy.qcow2").exists()
    dom.create()
