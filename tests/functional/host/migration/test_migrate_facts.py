"""The facts about a guest and its target before a migration that tests/integration does not have:
with libvirt's test driver, and with a private libvirtd where storage must be real."""

# ruff: noqa: F811
import os
import shutil
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

libvirt = pytest.importorskip("libvirt")

from saltvirt import errors
from saltvirt.host.migration import (
    block_devices,
    facts,
    guest_disks,
    remote_storage,
    same_content,
    secrets,
    volumes,
)
from saltvirt.host.storage import files
from saltvirt.migration.facts import (
    BackingFile,
    DeviceIdentity,
    DiskReport,
    GuestReport,
    MachineReport,
    NetworkSource,
    PoolReport,
    PoolSourceReport,
    SecretReference,
    StorageServer,
    VolumeIdentity,
)
from saltvirt.migration.journal import PendingFile
from tests.functional.conftest import EMPTY
from tests.functional.daemon import libvirtd  # noqa: F401
from tests.functional.host.migration.test_migrate_faults import dom  # noqa: F401

REPORT = GuestReport("web1", "u", "hv1", True, "running", arch="x86_64", virt_type="qemu")
LOGICAL = (
    "<pool type='logical'><name>vg</name><source><name>vg</name></source>"
    "<target><path>/dev/vg</path></target></pool>"
)
RBD = (
    "<pool type='rbd'><name>far</name><source><host name='mon' port='3300'/>"
    "<name>{}</name></source></pool>"
)
WWN = "3600140512345678abcdefabcdefabcde"


@pytest.fixture
def conn():
    found = libvirt.open(EMPTY)
    yield found
    found.close()


@pytest.fixture
def real(libvirtd, tmp_path):
    """A host with a folder, and a copy of an image in it."""
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "base.raw").write_bytes(b"image" * 100_000 + bytes(2**20))
    found = libvirt.open(libvirtd.uri)
    yield found
    assert [one.name() for one in found.listAllStoragePools()] == []
    found.close()


def disks(conn, *xml):
    root = ElementTree.fromstring(f"<domain><devices>{''.join(xml)}</devices></domain>")
    return guest_disks.read(root, conn)


# -- a guest ------------------------------------------------------------------------------


class Jobless:
    """A domain of the test driver, which knows no jobs."""

    def __init__(self, dom):
        self._dom = dom

    def __getattr__(self, name):
        return getattr(self._dom, name)

    def jobInfo(self):
        return [0]


def test_a_disk_that_qemu_encrypts_is_told(conn):
    secret = "<encryption format='luks'><secret type='passphrase' uuid='{}'/></encryption>"
    source, target = "<source file='/x'>{}</source>", "<target dev='vda'/>"
    texts = (source.format("") + target + secret, source.format(secret) + target,
             source.format("") + target)  # fmt: skip
    found = [disks(conn, f"<disk type='dir'>{text}</disk>")[0].encrypted for text in texts]
    assert found == [True, True, False]


@pytest.mark.parametrize("active", [True, False])
def test_disks_that_a_running_guest_gets_at_its_next_start_are_told_apart(dom, tmp_path, active):
    paths = [str(tmp_path / name) for name in ("a", "b", "iso")]
    for path in paths:
        Path(path).write_bytes(bytes(4096))
    one = "<disk type='file'><driver name='qemu' type='raw'/><source file='{}'/><target dev='{}'/>"
    first, second, *_ = (
        one.format(path, f"vd{name}") for path, name in zip(paths, "abc", strict=True)
    )
    empty = "<disk type='file' device='cdrom'><target dev='hdc'/><readonly/></disk>"
    text, conn = dom.XMLDesc(), dom.connect()
    now = text.replace("</devices>", f"{first}</disk></devices>")
    dom = conn.defineXML(now)
    if active:
        dom.create()
    conn.defineXML(now.replace("</devices>", f"{second}</disk>{empty}</devices>"))
    report = facts.guest(Jobless(dom))
    has = [disk.source for disk in report.disks if disk.source]
    later = [(disk.target, disk.source, disk.size_bytes) for disk in report.pending_disks]
    assert (has, later) == (([paths[0]], [("vdb", paths[1], 4096)]) if active else (paths[:2], []))
    assert set(facts.paths(report)) == set(paths[:2]), "the target is asked about both"


def test_where_the_variables_of_a_guest_are_that_names_none(tmp_path, monkeypatch):
    """Where libvirt chooses the firmware only a running guest's definition names them."""
    monkeypatch.setattr(files, "_VARIABLES", str(tmp_path))
    root = ElementTree.fromstring("<domain><name>web1</name><os firmware='efi'/></domain>")
    assert files.variables_of(root) is None, "it never ran"
    (tmp_path / "web1_VARS.qcow2").touch()
    assert files.variables_of(root) == f"{tmp_path}/web1_VARS.qcow2"


def test_a_snapshot_that_goes_meanwhile_is_none(dom):
    snapshot = dom.snapshotCreateXML("<domainsnapshot><name>s1</name></domainsnapshot>")
    snapshot.delete(0)
    with facts.skip_deleted():
        snapshot.getXMLDesc(0)
    closed = libvirt.open(EMPTY)
    closed.close()
    with pytest.raises(libvirt.libvirtError, match="invalid"), facts.skip_deleted():
        closed.listAllDomains()


def test_a_device_of_the_host_is_named_by_its_address():
    text = (
        "<hostdev mode='subsystem' type='pci'><source><address domain='0x0000' bus='0x06'/>"
        "</source></hostdev>"
    )
    assert facts._hostdev(ElementTree.fromstring(text)) == "pci bus=0x06 domain=0x0000"
    nic = "<interface type='hostdev'><mac address='52:54:00:00:00:07'/></interface>"
    plain = "<interface type='bridge'><mac address='52:54:00:00:00:08'/></interface>"
    root = ElementTree.fromstring(f"<domain><devices>{text}{nic}{plain}</devices></domain>")
    assert facts._hostdevs(root) == (
        "pci bus=0x06 domain=0x0000", "network interface 52:54:00:00:00:07",
    )  # fmt: skip
    assert facts._hostdev(ElementTree.fromstring("<hostdev mode='capabilities'/>")) == (
        "capabilities"
    )


def test_a_disk_on_a_server_is_told_with_its_servers(conn):
    [found] = disks(
        conn,
        "<disk type='network'><source protocol='rbd' name='rbd/web1'><host name='mon' port='3300'/>"
        "<host transport='unix'/></source><target dev='vda'/></disk>",
    )
    servers = (StorageServer("mon", "3300"), StorageServer(None, None, "unix"))
    assert found.network == NetworkSource("rbd", "rbd/web1", servers)
    assert (found.error, found.chain, found.is_local) == (None, (), False)


def test_a_file_that_a_server_hides_from_root_is_in_trouble(conn, tmp_path, monkeypatch):
    path = tmp_path / "vda"
    path.write_bytes(bytes(512))
    monkeypatch.setattr(guest_disks.shared_folders, "is_hidden", lambda one: one == str(path))
    [found] = disks(conn, f"<disk type='file'><source file='{path}'/><target dev='vda'/></disk>")
    assert found.error == guest_disks.shared_folders.HIDDEN
    pool = conn.storagePoolCreateXML(
        f"<pool type='dir'><name>p</name><target><path>{tmp_path}</path></target></pool>"
    )
    pool.createXML("<volume><name>vda</name><capacity>512</capacity></volume>")
    found = volumes.inspect_local(
        conn, DiskReport("vda", "volume", pool=PoolReport("p"), volume="vda")
    )
    assert found.error == guest_disks.shared_folders.HIDDEN


def test_a_device_that_a_guest_only_reads_is_not_read_by_us(conn):
    if not Path("/dev/loop0").is_block_device():
        pytest.skip("no loop device here")
    xml = "<disk type='block'><source dev='/dev/loop0'/><target dev='vda'/>{}</disk>"
    [found] = disks(conn, xml.format("<readonly/>"))
    assert found.identity == VolumeIdentity(device=DeviceIdentity(None, (None,)))
    assert (found.size_bytes, found.chain) == (0, ())


def test_what_names_nothing_has_no_path():
    assert guest_disks.path(None) is None
    assert guest_disks.path(ElementTree.fromstring("<source/>")) is None


# -- devices and volumes ------------------------------------------------------------------


def test_a_logical_volume_is_known_by_its_group_and_another_device_by_its_number(conn):
    pool = conn.storagePoolCreateXML(LOGICAL)
    volume = pool.createXML("<volume><name>lv</name><capacity>512</capacity></volume>")
    assert block_devices.identity(conn, volume.path()) == DeviceIdentity(volume.key(), ())
    pool = conn.storagePoolCreateXML(
        "<pool type='scsi'><name>san</name><source><adapter type='scsi_host' name='host0'/>"
        "</source><target><path>/dev/disk/by-path</path></target></pool>"
    )
    volume = pool.createXML("<volume><name>lun</name><capacity>512</capacity></volume>")
    assert block_devices.volume_identity(volume) == DeviceIdentity(None, (None,)), (
        "its key is a path"
    )


def test_a_host_that_does_not_tell_its_disks_has_none_with_a_number(conn):
    """Nor has one that was pulled out since they were listed."""

    class Gone:
        def XMLDesc(self, _flags):
            raise libvirt.libvirtError("no node device")

    class Node:
        def XMLDesc(self, _flags):
            return (
                "<device><devnode type='dev'>/dev/sda</devnode><capability type='storage'>"
                f"<serial>{WWN}</serial></capability></device>"
            )

    class Host:
        def listAllDevices(self, _flags):
            return [Gone(), Node()]

    assert list(block_devices._disks(Host())) == [(["/dev/sda"], WWN)]
    closed = libvirt.open(EMPTY)
    closed.close()
    assert list(block_devices._disks(closed)) == []


def test_what_the_target_has_at_the_path_of_a_device(conn, monkeypatch):
    """Shared is only what both know by one number; what can be filled there is copied."""
    monkeypatch.setattr(remote_storage, "refresh", lambda pool: None)  # the test driver forgets
    pool = conn.storagePoolCreateXML(LOGICAL)
    pool.createXML("<volume><name>old</name><capacity>512</capacity></volume>")
    numbers = {"/dev/vg/same": WWN}

    def told(_conn, path):
        return DeviceIdentity(None, (numbers.get(path),))

    monkeypatch.setattr(block_devices, "identity", told)
    own = DiskReport("vda", "block", identity=VolumeIdentity(device=DeviceIdentity(None, (WWN,))))
    plain = DiskReport("vda", "block")

    def seen(name, disk, where=pool):
        found = facts._device(conn, where, f"/dev/vg/{name}", disk)
        return found.exists, found.shared, found.pool, found.reason

    assert seen("same", own)[:3] == (False, True, "vg")
    assert seen("new", own) == (False, False, "vg", None)
    assert seen("old", own)[:3] == (True, None, "vg")
    assert "another device" in seen("old", own)[3]
    assert "no world-wide number" in seen("old", plain)[3]
    why = seen("new", plain, None)
    assert why[:3] == (False, None, None)
    assert why[3].endswith("and the target has no storage pool to which it could be copied")
    report = GuestReport(
        "web1", "u", "hv1", True, "running", disks=(DiskReport("vda", "block", "/dev/vg/new"),)
    )
    places, free = facts._folders(conn, report, {})
    assert (places["/dev/vg/new"].pool, places["/dev/vg/new"].shared) == ("vg", False)
    assert list(free) == ["/dev/vg"]


def test_a_volume_of_devices_or_of_a_server_on_the_target(conn, monkeypatch):
    pool = conn.storagePoolCreateXML(LOGICAL)
    pool.createXML("<volume><name>lv</name><capacity>512</capacity></volume>")
    mine = PoolReport("vg", "logical", "/dev/vg")
    disk = DiskReport("vda", "block", "/dev/vg/lv", pool=mine, volume="lv")
    found, _ = volumes.inspect_remote(conn, disk, mine, None)
    assert (found.exists, found.shared) == (True, None)
    assert "no world-wide number" in found.reason
    gone = DiskReport("vda", "block", "/dev/vg/new", pool=mine, volume="new")
    found, _ = volumes.inspect_remote(conn, gone, mine, None)
    assert (found.exists, found.shared, found.reason) == (False, False, None)
    far = conn.storagePoolCreateXML(RBD.format("rbd"))
    far.createXML("<volume><name>web1</name><capacity>512</capacity></volume>")
    disk = volumes.inspect_local(
        conn, DiskReport("vda", "volume", pool=PoolReport("far"), volume="web1")
    )
    assert (disk.type, disk.is_local) == ("network", False)
    found, _ = volumes.inspect_remote(conn, disk, disk.pool, None)
    assert (found.exists, found.shared) == (True, True)
    source = PoolSourceReport((StorageServer("other", "3300"),), name="rbd")
    found, _ = volumes.inspect_remote(conn, disk, PoolReport("far", "rbd", "", source), None)
    assert found.shared is None
    assert "different sources" in found.reason
    direct = "<source pool='vg' volume='lv' mode='direct'/><target dev='vda'/>"
    [found] = disks(conn, f"<disk type='volume'>{direct}</disk>")
    assert found.type == "network"


def test_a_folder_that_is_shared_and_shows_no_file_of_it_proves_nothing(conn):
    pool = conn.storagePoolCreateXML(
        "<pool type='dir'><name>p</name><target><path>/srv/p</path></target></pool>"
    )
    found = facts._path(pool, "/srv/p/web1", (True, None))
    assert (found.exists, found.shared) == (False, None)
    assert found.reason == "the target shares the folder, but does not show /srv/p/web1"


# -- the other host -----------------------------------------------------------------------


def test_what_the_other_libvirt_cannot_say_of_a_machine_is_the_reason(conn):
    assert "not support" in facts._machine(conn, REPORT).error
    closed = libvirt.open(EMPTY)
    closed.close()
    assert facts._links(closed) is None


@pytest.mark.parametrize(
    ("cpu", "words"),
    [
        (None, None), ("<cpu mode='maximum'/>", None),
        ("<cpu mode='custom' match='exact'><model>nosuch</model></cpu>", "nosuch"),
    ],
)  # fmt: skip
def test_whether_the_cpu_of_a_guest_runs_there(conn, real, cpu, words):
    report = GuestReport("w", "u", "hv1", True, "x", arch="x86_64", virt_type="qemu", cpu=cpu)
    found = facts._cpu_error(real, report)
    assert words in found if words else found is None
    assert facts._cpu_error(conn, report) is None, "a libvirt that cannot compare refuses nothing"


def test_an_emulator_of_another_name_is_there_when_it_runs(real, tmp_path):
    emulator = tmp_path / "kvm"
    emulator.symlink_to(shutil.which("qemu-system-x86_64"))

    def asked(path):
        report = GuestReport(
            "w", "u", "hv1", True, "x", arch="x86_64", virt_type="qemu", emulator=path
        )
        found = facts._machine(real, report)
        assert found.error is None
        return found.has_emulator

    assert asked(str(emulator))
    assert not asked(str(tmp_path / "none"))
    assert MachineReport().has_emulator is None


# -- files of the other host --------------------------------------------------------------


def base(path, **more):
    return BackingFile(str(path), "raw", file_bytes=os.path.getsize(path), **more)


def test_a_backing_file_that_is_there_is_read_once(real, tmp_path, monkeypatch):
    """Both hosts are this one; what is compared lies at one path."""
    path = tmp_path / "there" / "base.raw"

    def same():
        with remote_storage.open_pool(real, str(path.parent)) as pool:
            seen = facts._path(pool, str(path), (False, None))
            seen, answer = facts._base(real, pool, seen, base(path))
        return seen.incoming, answer()

    assert same() == (False, True)
    monkeypatch.setattr(remote_storage, "begin_compare", None)
    assert same() == (False, True), "it is remembered"
    assert same_content.equals_remote(real, str(path))
    assert not same_content.equals_remote(real, str(tmp_path / "there" / "none"))


@pytest.mark.parametrize("at", ["begin", "hole", "end", None])
def test_an_image_that_is_another_one_is_noticed(real, tmp_path, at):
    theirs, ours = tmp_path / "there" / "base.raw", tmp_path / "ours.raw"
    content = bytearray(theirs.read_bytes())
    if at == "begin":
        content[3] ^= 1
    elif at == "hole":
        content[-5] ^= 1
    elif at == "end":
        content += b"more"
    ours.write_bytes(content)
    os.truncate(theirs, 500_000)
    os.truncate(theirs, 500_000 + 2**20)  # a hole at its end
    with remote_storage.open_pool(real, str(theirs.parent)) as pool:
        there = remote_storage.volume(pool, str(theirs))
        answer = same_content.begin(there, str(ours), "uuid", str(tmp_path / "record.json"))
    assert answer() == (at is None)
    assert (tmp_path / "record.json").exists() == (at is None)


def test_an_image_that_is_shorter_is_still_coming_and_one_by_content_is_not_read(real, tmp_path):
    folder = tmp_path / "there" / "_base"
    (folder / ".meta").mkdir(parents=True)
    cached = folder / "debian-0123456789abcdef.qcow2"
    shutil.copy(tmp_path / "there" / "base.raw", cached)
    (folder / ".meta" / f"{cached.name}.json").write_text("{}")

    def seen(path, **more):
        with remote_storage.open_pool(real, str(path.parent)) as pool:
            found = facts._path(pool, str(path), (False, None))
            wanted = BackingFile(str(path), "raw", **{"file_bytes": path.stat().st_size, **more})
            found, same = facts._base(real, pool, found, wanted)
        return found.incoming, same()

    assert seen(cached) == (False, True)
    assert seen(cached, file_bytes=2**30) == (True, True)
    assert seen(tmp_path / "there" / "base.raw", file_bytes=2**30) == (False, False)


def test_a_file_that_becomes_shorter_while_it_is_copied_is_named(real, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(os.urandom(3 * remote_storage._BLOCK))
    path = str(tmp_path / "there" / "copy")
    with remote_storage.open_pool(real, str(tmp_path / "there")) as pool:
        found = remote_storage.create(pool, path, "raw", 0)
        send = remote_storage.begin_upload(found, str(source))
    with pytest.raises(errors.OperationFailed, match=f"{source} became shorter while it was copi"):
        send(lambda done, total: os.truncate(source, remote_storage._BLOCK))
    assert real.isAlive()


def test_a_folder_that_cannot_be_made_there_is_an_error(real, tmp_path):
    folder = tmp_path / "there" / "base.raw" / "in"
    with (
        pytest.raises((errors.VirtError, libvirt.libvirtError), match=r"base\.raw"),
        remote_storage.open_pool(real, str(folder), create=True),
    ):
        pass


def test_a_folder_that_must_be_there_is_named(conn):
    with (
        pytest.raises(errors.OperationFailed, match="has no folder /dev/mapper"),
        remote_storage.require_pool(conn, "/dev/mapper"),
    ):
        pass


def test_another_error_is_none_of_what_is_gone():
    closed = libvirt.open(EMPTY)
    closed.close()
    with pytest.raises(libvirt.libvirtError, match="invalid"), remote_storage.skip_deleted():
        closed.listAllStoragePools()


def test_of_a_device_nothing_is_known_before_it_is_made(conn, monkeypatch):
    monkeypatch.setattr(remote_storage, "refresh", lambda pool: None)  # the test driver forgets
    pool = conn.storagePoolCreateXML(LOGICAL)
    assert remote_storage.sign(pool, "/dev/vg/lv") == PendingFile("/dev/vg/lv", None)
    pending = PendingFile("/dev/vg/lv", None)
    assert remote_storage.inspect_claim(conn, pending) == (None, None)
    found = remote_storage.create(pool, "/dev/vg/lv", "raw", 2**20)
    assert found.info()[1:] == [2**20, 2**20], "all of its room"
    look, why = remote_storage.inspect_claim(conn, pending)
    assert look is None
    assert "a device that the migration was about to create" in why


def test_a_device_of_another_size_than_the_guests_is_not_left_there(conn, monkeypatch):
    """A pool of whole extents rounds: LVM's are 4 MiB."""
    pool = conn.storagePoolCreateXML(LOGICAL)
    rounded = "<volume><name>lv</name><capacity>4194304</capacity></volume>"
    monkeypatch.setattr(remote_storage, "_create_volume", lambda pool, xml: pool.createXML(rounded))
    with pytest.raises(errors.OperationFailed, match="/dev/vg/lv would have a different size"):
        remote_storage.create(pool, "/dev/vg/lv", "raw", 2**20)
    assert pool.listVolumes() == []


def test_a_thin_volume_names_what_it_is_based_on(conn):
    pool = conn.storagePoolCreateXML(
        "<pool type='dir'><name>p</name><target><path>/srv/p</path></target></pool>"
    )
    backing = BackingFile("/srv/p/base.raw", "raw")
    found = remote_storage.create(pool, "/srv/p/web1", "qcow2", 2**20, backing)
    root = ElementTree.fromstring(found.XMLDesc())
    assert root.findtext("backingStore/path") == "/srv/p/base.raw"
    assert root.find("backingStore/format").get("type") == "raw"


def test_the_cpu_of_a_host_is_asked_for_where_a_guest_has_just_that(conn, real):
    """libvirt's test driver has a model in its capabilities, and so has QEMU's."""
    found = facts.host_cpu(conn)
    assert found is None or found.model
    mine = facts.host_cpu(real)
    assert mine is not None and mine.model
    assert facts._is_hosts(ElementTree.fromstring("<cpu mode='host-passthrough'/>"))
    assert not facts._is_hosts(ElementTree.fromstring("<cpu mode='host-model'/>"))
    assert not facts._is_hosts(None)


SECRET = (
    "<secret ephemeral='no' private='yes'><uuid>{0}</uuid>"
    "<usage type='ceph'><name>client.virt</name></usage></secret>"
)
UUID = "2ec115d7-3a88-3ceb-bc12-0ac909a6fd87"


def test_a_secret_of_libvirt_is_known_and_missed_on_the_target(real, libvirtd):
    """By libvirt's own list of them; the value is never read."""
    text = (
        "<domain><devices><disk type='network'><source protocol='rbd' name='p/v'>"
        "<auth username='virt'><secret type='ceph' {}/></auth></source><target dev='vda'/>"
        "<encryption format='luks'><secret type='passphrase' uuid='{}'/></encryption></disk>"
        "<tpm model='tpm-crb'><backend type='emulator'><encryption secret='{}'/></backend></tpm>"
        "</devices></domain>"
    )
    luks, tpm = UUID.replace("2ec1", "3ec1"), UUID.replace("2ec1", "4ec1")
    found = real.secretDefineXML(SECRET.format(UUID))
    try:
        for named in (f"uuid='{UUID}'", "usage='client.virt'"):
            root = ElementTree.fromstring(text.format(named, luks, tpm))
            ceph, *more = secrets.references(real, root)
            by = ("ceph", "client.virt") if "usage" in named else ()
            assert ceph == SecretReference("disk vda", UUID, "ceph client.virt", *by)
            assert more == [
                SecretReference("disk vda", luks, "volume"), SecretReference("the TPM", tpm, "vtpm")
            ]  # fmt: skip
            assert secrets.missing(real, [ceph, *more]) == tuple(more)
    finally:
        found.undefine()
    assert secrets.missing(real, [ceph]) == (ceph,)


def test_a_secret_that_is_named_by_its_usage_may_have_another_uuid_on_the_target(real, libvirtd):
    """libvirt makes one on each host where the definition has none."""
    by_uuid = SecretReference("disk vda", UUID, "ceph client.virt")
    by_usage = replace(by_uuid, usage_type="ceph", usage_id="client.virt")
    found = real.secretDefineXML(SECRET.format(UUID.replace("2ec1", "5ec1")))
    try:
        assert secrets.missing(real, [by_uuid, by_usage]) == (by_uuid,)
    finally:
        found.undefine()
    assert secrets.missing(real, [by_usage]) == (by_usage,)


def test_a_libvirt_that_keeps_no_secrets_is_no_reason(conn):
    assert secrets.missing(conn, [SecretReference("disk vda", UUID)]) == ()


def test_the_cids_of_a_vsock():
    vsock = "<domain><devices><vsock><cid {}/></vsock></devices></domain>"
    fixed, auto, running = (
        ElementTree.fromstring(vsock.format(text))
        for text in ("auto='no' address='3'", "auto='yes'", "auto='yes' address='5'")
    )
    assert facts._cids([fixed]) == {3}
    assert facts._cids([auto]) == facts._cids([auto, running]) == set()


def test_a_guest_that_was_started_again_runs_by_another_process(dom):
    assert facts.process(dom) is None
    dom.create()
    first = facts.process(dom)
    assert first == facts.process(dom)
    dom.destroy()
    dom.create()
    assert facts.process(dom) != first
    dom.destroy()
