"""The state of a guest's TPM as a backup reads it."""

import os
from xml.etree import ElementTree

import pytest

pytest.importorskip("libvirt")

from saltvirt.backup.export import guest_state
from saltvirt.backup.model import archive

ROOT = ElementTree.fromstring(
    "<domain><uuid>u</uuid><devices><tpm><backend type='emulator'/></tpm></devices></domain>"
)


def test_of_more_files_than_a_tpm_has_none_is_read(tmp_path, monkeypatch):
    """Who got hold of swtpm fills no memory of the process that serves the backup."""
    monkeypatch.setattr(guest_state.files, "TPM_STATE", str(tmp_path))
    monkeypatch.setattr(guest_state.connection, "is_local", lambda _conn: True)
    monkeypatch.setattr(
        guest_state, "_open_child", lambda name, fd: os.open(name, os.O_RDONLY, dir_fd=fd)
    )
    (tmp_path / "u").mkdir()
    for number in range(archive.MAX_FILES):
        (tmp_path / "u" / str(number)).write_bytes(b"x")
    (tmp_path / "u" / ".lock").touch()
    assert len(guest_state._tpm(None, ROOT)) == archive.MAX_FILES
    (tmp_path / "u" / "more").write_bytes(b"x")
    reads = []
    monkeypatch.setattr(guest_state, "_read_stable", lambda name, _fd: reads.append(name))
    with pytest.raises(guest_state._NotSaved, match="it has too many files"):
        guest_state._tpm(None, ROOT)
    assert reads == []
