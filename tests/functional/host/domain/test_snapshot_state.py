"""The files that are saved with a snapshot and restored."""

from types import SimpleNamespace

import pytest

pytest.importorskip("libvirt")

from saltvirt.host.domain import snapshot_state
from saltvirt.host.storage import files
from saltvirt.snapshot.tree import SnapshotNode

SNAPSHOT = SnapshotNode("s1", created=1, variables=True, tpm=True)
DEFINITION = """<domain><name>g</name><os><loader type='pflash'>x</loader><nvram>{}</nvram></os>
<devices><tpm><backend type='emulator'/></tpm></devices></domain>"""


def guest(nvram):
    return SimpleNamespace(
        XMLDesc=lambda _flags: DEFINITION.format(nvram), UUIDString=lambda: "u",
        name=lambda: "g", isActive=lambda: 0,
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(snapshot_state, "FOLDER", str(tmp_path / "snapshots"))
    monkeypatch.setattr(files, "_VARIABLES", str(tmp_path))
    monkeypatch.setattr(files, "TPM_STATE", str(tmp_path / "tpm"))
    monkeypatch.setattr(snapshot_state.connection, "is_local", lambda _conn: True)
    (tmp_path / "tpm/u").mkdir(parents=True)
    (tmp_path / "tpm/u/permall").write_text("keys")
    return tmp_path


def test_variables_that_were_not_saved_are_named_and_stay(folder):
    """The TPM state was saved, the variables not: they were in a file that may be of others."""
    snapshot_state.save(None, guest(folder / "custom.fd"), SNAPSHOT)
    now = folder / "g_VARS.fd"
    now.write_text("boot entries")
    assert snapshot_state.not_restored(guest(now), SNAPSHOT) == [
        "the firmware variables are not reverted: s1 does not contain them"
    ]
    snapshot_state.restore(None, guest(now), SNAPSHOT)
    assert now.read_text() == "boot entries"


def test_variables_that_were_not_there_yet_go(folder):
    now = folder / "g_VARS.fd"
    snapshot_state.save(None, guest(now), SNAPSHOT)
    now.write_text("boot entries")
    assert snapshot_state.not_restored(guest(now), SNAPSHOT) == []
    snapshot_state.restore(None, guest(now), SNAPSHOT)
    assert not now.exists()
