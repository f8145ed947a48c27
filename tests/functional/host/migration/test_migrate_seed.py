"""The seed volume of a guest moves with it, between two private libvirtds."""

# ruff: noqa: F811
import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

libvirt = pytest.importorskip("libvirt")

from saltvirt import errors
from saltvirt.host.domain import snapshot_state
from saltvirt.host.migration import api, departures, facts, reservations
from saltvirt.host.provision import seed_drive
from tests.functional.daemon import Daemon, libvirtd  # noqa: F401
from tests.functional.host.migration.test_migrate_faults import job  # noqa: F401

XML = """
<domain type='qemu'><name>web1</name><memory>65536</memory>
  <os><type arch='x86_64'>hvm</type></os>
  <metadata><saltvirt:guest xmlns:saltvirt='https://saltproject.io/xmlns/salt-virt/1' version='1'>
    <saltvirt:disk target='hda' path='{own}'/></saltvirt:guest></metadata>
  <devices><disk type='file' device='cdrom'><driver name='qemu' type='raw'/>
    <source file='{seed}'/><target dev='hda' bus='ide'/><readonly/></disk></devices>
</domain>
"""


@pytest.fixture(scope="module")
def other():
    """A libvirtd whose /var/lib is nobody else's."""
    if os.geteuid() != 0:
        pytest.skip("a libvirtd of our own needs root")
    found = Daemon(alone=True)
    try:
        found.wait()
        yield found
    finally:
        found.stop()


class Pair:
    """Two hosts, and a stopped guest on the first, whose volume for cloud-init is ``seed``."""

    def __init__(self, source, target, folder):
        self.source, self.target = source, target
        self.seed = Path(folder, "_seed", "web1.iso")
        self.seed.parent.mkdir()
        self.seed.write_bytes(b"private key" * 1000)
        self.there = Path(f"/proc/{target.inside[1].partition('=')[2]}/root{self.seed}")

    def define(self, own=None):
        self.dom = self.conn.defineXML(XML.format(seed=self.seed, own=own or self.seed))


@pytest.fixture
def pair(libvirtd, other, job, tmp_path, monkeypatch):
    monkeypatch.setattr(departures, "FOLDER", str(tmp_path / "moved"))
    monkeypatch.setattr(reservations, "FOLDER", str(tmp_path / "reservations"))
    monkeypatch.setattr(facts, "host_uuid", lambda _conn: "the first")
    folder = tempfile.mkdtemp(dir="/var/lib", prefix="sv")
    found = Pair(libvirtd, other, folder)
    found.conn, found.peer = libvirt.open(libvirtd.uri), libvirt.open(other.uri)
    monkeypatch.setattr(api, "_connected", lambda _job: api.contextlib.nullcontext(found.peer))
    found.job = replace(job)
    yield found
    for conn in (found.conn, found.peer):
        for dom in conn.listAllDomains():
            dom.undefine()
        conn.close()
    shutil.rmtree(folder)


def test_the_volume_moves_with_the_guest_and_is_deleted_at_the_source_once(pair):
    pair.define()
    before = pair.seed.read_bytes()
    done = api.migrate(pair.conn, pair.job)
    assert (done.outcome, done.disks, done.retained) == ("moved", {"hda": "seed"}, {})
    assert done.deleted == (str(pair.seed),)
    assert not pair.seed.exists()
    assert pair.there.read_bytes() == before
    assert pair.there.stat().st_mode & 0o777 == 0o600
    assert str(pair.seed) in pair.peer.lookupByName("web1").XMLDesc()


def test_the_volume_of_another_guest_is_not_taken_for_it(pair):
    """hv2 has a volume of that name: an earlier web1 may be seeded by it."""
    pair.define()
    pair.there.parent.mkdir(parents=True)
    pair.there.write_bytes(b"another key")
    with pytest.raises(errors.TargetRefused, match=r"already has another file of that name"):
        api.migrate(pair.conn, pair.job)
    assert pair.there.read_bytes() == b"another key"
    assert pair.seed.exists() and pair.dom.isPersistent()


def test_a_volume_that_the_record_does_not_name_stays_and_is_named(pair):
    pair.define(own="/elsewhere/_seed/web1.iso")
    with pytest.raises(errors.TargetRefused, match=r"virt.seed_eject web1 ejects"):
        api.migrate(pair.conn, pair.job)
    assert pair.seed.exists() and not pair.there.exists()


def test_the_volume_stays_where_the_move_fails_and_the_target_is_told_of_its_copy(
    pair, monkeypatch
):
    pair.define()

    def define(*_args):
        raise errors.OperationFailed("libvirt has died")

    monkeypatch.setattr("saltvirt.host.migration.offline.define", define)
    with pytest.raises(errors.MigrationFailed, match="libvirt has died; web1 stays") as caught:
        api.migrate(pair.conn, pair.job)
    assert pair.seed.exists() and pair.dom.isPersistent()
    assert f"{pair.seed} on " in caught.value.text, "its minion deletes it: virt.migrate_clean"


def test_a_host_with_another_folder_of_images_ejects_what_came(pair):
    pair.define()
    assert seed_drive.eject(pair.conn, "web1", "/srv/other-images") is True
    assert not pair.seed.exists()
    assert str(pair.seed) not in pair.dom.XMLDesc()
    assert seed_drive.eject(pair.conn, "web1", "/srv/other-images") is False


@pytest.mark.parametrize("was_there", [False, True])
def test_the_variables_of_its_snapshots_move_with_a_stopped_guest(pair, monkeypatch, was_there):
    """libvirt keeps them in no snapshot: a revert there would leave those of today."""
    folder = pair.seed.parent.parent / "snapshots"
    monkeypatch.setattr(snapshot_state, "FOLDER", str(folder))
    pair.define()
    uuid = pair.dom.UUIDString()
    for name in ("s1@1/variables", "s2@2/no-variables/", "s3@3.part/variables"):
        path = folder / uuid / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True)
        if not name.endswith("/"):
            path.write_bytes(b"of that day")
    there = Path(str(pair.there).replace(str(pair.seed), str(folder)), uuid)
    if was_there:
        (there / "s1@1").mkdir(parents=True)
        (there / "s1@1" / "variables").write_bytes(b"of that day")
    assert api.migrate(pair.conn, pair.job).outcome == "moved"
    assert (there / "s1@1" / "variables").read_bytes() == b"of that day"
    assert [*(there / "s2@2" / "no-variables").iterdir()] == []
    assert not (there / "s3@3.part").exists()
    assert not (folder / uuid).exists()
