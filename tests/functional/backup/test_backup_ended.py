"""The end of a backup on its hypervisor after the exporting process was killed."""

import os
import socket
import tempfile

import pytest

pytest.importorskip("libvirt")

from saltvirt.backup.export import api, request
from saltvirt.backup.export.request import EndRequest


@pytest.fixture
def folder():
    """A short path: a socket's has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="sv-") as path:
        yield path


@pytest.mark.parametrize("end", ["told", "begun anew"])
def test_what_a_process_that_was_killed_listened_on_is_gone(folder, monkeypatch, conn, end):
    """Its guest may have another name by the next backup, and then nobody looks for it."""
    monkeypatch.setattr(request, "RUN", folder)
    monkeypatch.setattr(request, "JOURNALS", os.path.join(folder, "journals"))
    for path in (
        request.socket_path("web1"),
        request.exports_path("web1"),
        request.socket_path("web2"),
    ):
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
    if end == "told":
        ended = api.end(conn, "web1", EndRequest("000001-20261123T155220Z-00000000", False))
        assert "died" in ended.reason
    else:
        api.clean(conn, "web1")
    left = [name for name in os.listdir(folder) if not name.endswith(".lock")]
    assert left == [os.path.basename(request.socket_path("web2"))]
