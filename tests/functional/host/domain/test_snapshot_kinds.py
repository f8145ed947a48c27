"""Snapshots of guests with real disks, firmware and TPM, in a private libvirtd with QEMU; qemu-io
reads the disks."""

import os
import subprocess
from pathlib import Path

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from salt.exceptions import CommandExecutionError

from saltvirt.host.domain import snapshot_state
from saltvirt.host.storage import files
from tests.functional.conftest import load
from tests.functional.daemon import libvirtd  # noqa: F401

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="a libvirtd of our own needs root"),
    pytest.mark.skipif(not os.path.exists("/usr/bin/qemu-io"), reason="no qemu-io"),
]
GUEST = """<domain type='qemu'><name>{name}</name><memory unit='MiB'>32</memory>
<os><type arch='x86_64' machine='q35'>hvm</type>{os}</os><features><acpi/></features>
<devices>{devices}</devices></domain>"""
DISK = """<disk type='{kind}' device='disk'><driver name='qemu' type='{format}'/>
<source {source}/><target dev='{target}' bus='virtio'/></disk>"""
OVMF = "/usr/share/OVMF/OVMF_CODE_4M.fd"
UEFI = "<loader readonly='yes' type='pflash'>" + OVMF + "</loader><nvram>{}</nvram>"
TPM = "<tpm model='tpm-crb'><backend type='emulator' version='2.0'/></tpm>"
NO_OVMF = pytest.mark.skipif(not os.path.exists(OVMF), reason="no OVMF")


def run(*argv):
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def write(path, pattern):
    run("qemu-io", "-c", f"write -P {pattern} 0 64k", str(path))


def holds(path, pattern, format="qcow2"):
    argv = ["qemu-io", "-f", format, "-c", f"read -P {pattern} 0 64k", str(path)]
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


class Host:
    """A guest called g on the libvirtd."""

    def __init__(self, libvirtd, folder):  # noqa: F811
        self.virt = load(
            libvirtd.uri,
            images=str(folder / "images"),
            lock=str(folder / "lock"),
            locks=str(folder / "locks"),
        )
        self.conn, self.folder = libvirt.open(libvirtd.uri), folder
        (folder / "images").mkdir()

    def disk(self, name, format="qcow2", size="8M"):
        path = self.folder / "images" / name
        run("qemu-img", "create", "-q", "-f", format, str(path), size)
        return path

    def device(self, path, target="vda", format="qcow2"):
        return DISK.format(kind="file", format=format, source=f"file='{path}'", target=target)

    def define(self, devices, os="", name="g"):
        self.dom = self.conn.defineXML(GUEST.format(name=name, os=os, devices=devices))
        return self.dom

    def now(self, target="vda"):
        """The file that the guest's disk has now."""
        root = files.trees(self.dom)[0]
        for disk in root.iterfind("devices/disk"):
            if disk.find("target").get("dev") == target:
                return disk.find("source").get("file")
        return None

    def names(self):
        return sorted(one.getName() for one in self.dom.listAllSnapshots())

    def call(self, function, *arguments, **more):
        return self.virt[f"virt.{function}"](*arguments, **more)

    def end(self):
        for dom in self.conn.listAllDomains():
            if dom.isActive():
                dom.destroy()
            dom.undefineFlags(
                libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
                | libvirt.VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA
                | libvirt.VIR_DOMAIN_UNDEFINE_KEEP_NVRAM
            )
        for pool in self.conn.listAllStoragePools():
            pool.destroy()
            pool.undefine()
        self.conn.close()


@pytest.fixture
def host(libvirtd, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr(snapshot_state, "FOLDER", str(tmp_path / "snapshots"))
    monkeypatch.setattr(files, "_VARIABLES", str(tmp_path))
    found = Host(libvirtd, tmp_path)
    yield found
    found.end()


@pytest.fixture
def mixed(host):
    """A guest with an external snapshot b on top of an internal one a, as libvirt itself takes
    them; its disk was full of 1 at a, of 2 at b, and of 3 since."""
    path = host.disk("g.qcow2")
    dom = host.define(host.device(path))
    write(path, 1)
    host.call("snapshot", "g", "a")
    write(path, 2)
    dom.snapshotCreateXML(
        "<domainsnapshot><name>b</name></domainsnapshot>",
        libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_DISK_ONLY,
    )
    write(host.now(), 3)
    return host


def test_both_kinds_beside_one_another_are_not_taken(host):
    path = host.disk("g.qcow2")
    host.define(host.device(path))
    host.call("snapshot", "g", "a")
    with pytest.raises(CommandExecutionError, match=r"g has internal snapshots .a.*delete those"):
        host.call("snapshot", "g", "b", disk_only=True)
    host.call("delete_snapshots", "g", "a")
    host.call("snapshot", "g", "b", disk_only=True)
    found = host.call("snapshot", "g", "c", test=True)
    assert found == {
        "name": "c",
        "notes": ["the snapshot is external, because its snapshots are external (b)"],
    }
    host.call("snapshot", "g", "c")
    assert all(one["external"] for one in host.call("list_snapshots", "g")["g"])
    assert host.names() == ["b", "c"]


def test_an_internal_snapshot_is_not_put_back_below_an_external_one(mixed):
    """The layer of b would stand on another state than that on which it was begun."""
    for test in (True, False):
        with pytest.raises(CommandExecutionError, match=r"b would be lost: they are based on a"):
            mixed.call("revert_snapshot", "g", "a", test=test)
    assert holds(mixed.now(), 3) and mixed.names() == ["a", "b"]


def test_with_cleanup_the_external_one_goes_with_its_layer(mixed):
    layer = mixed.now()
    found = mixed.call("revert_snapshot", "g", "a", cleanup=True)
    assert found == {"reverted": "a", "deleted": ["b"]}
    assert (mixed.names(), os.path.exists(layer)) == (["a"], False)
    assert holds(mixed.now(), 1) and mixed.now() != layer


def test_all_of_a_mixed_chain_are_deleted_in_an_order_that_libvirt_takes(mixed):
    with pytest.raises(CommandExecutionError, match=r"its parent a is internal"):
        mixed.call("delete_snapshots", "g", "b", test=True)
    assert list(mixed.call("delete_snapshots", "g", all=True)["deleted"]) == ["a", "b"]
    assert mixed.names() == [] and holds(mixed.now(), 3)


def test_of_a_running_guest_with_a_mixed_chain_nothing_goes_half(mixed):
    mixed.dom.create()
    with pytest.raises(CommandExecutionError, match=r"snapshot a of g cannot be deleted:.*stop"):
        mixed.call("delete_snapshots", "g", all=True)
    assert mixed.names() == ["a", "b"]


def test_the_older_of_two_external_ones_is_not_half_deleted(host):
    path = host.disk("g.qcow2")
    host.define(host.device(path))
    for name, pattern in (("a", 1), ("b", 2), (None, 3)):
        write(host.now(), pattern)
        if name:
            host.call("snapshot", "g", name, disk_only=True)
    with pytest.raises(CommandExecutionError, match=r"snapshot a .*delete b with it, or start"):
        host.call("delete_snapshots", "g", "a")
    host.dom.create()
    host.call("delete_snapshots", "g", "a")
    assert host.names() == ["b"]
    host.dom.destroy()
    host.call("revert_snapshot", "g", "b")
    assert holds(host.now(), 2)


def test_a_guest_without_snapshots_has_none_to_delete(host):
    host.define(host.device(host.disk("g.qcow2")))
    found = host.call("delete_snapshots", "g", all=True)
    assert found == {"available": {"g": "N/A"}, "deleted": {}}
    with pytest.raises(CommandExecutionError, match=r"specify the snapshots of g"):
        host.call("delete_snapshots", "g")


@pytest.mark.parametrize("runs", [True, False])
def test_a_raw_disk_has_external_snapshots(host, runs):
    system, data = host.disk("g.qcow2"), host.disk("g.raw", "raw")
    host.define(host.device(system) + host.device(data, "vdb", "raw"))
    run("qemu-io", "-f", "raw", "-c", "write -P 1 0 64k", str(data))
    if runs:
        host.dom.create()
    with pytest.raises(CommandExecutionError, match=r"cannot have an internal snapshot: its disk"):
        host.call("snapshot", "g", "i", disk_only=False)
    notes = host.call("snapshot", "g", "a", test=True)["notes"]
    assert notes[0] == "the snapshot is external, because its disk vdb is raw, not qcow2"
    assert ("does not contain the memory" in str(notes)) is runs
    assert host.names() == []
    host.call("snapshot", "g", "a")
    if runs:
        host.dom.destroy()
    write(host.now("vdb"), 2)
    assert holds(data, 1, "raw")
    host.call("revert_snapshot", "g", "a")
    assert not holds(host.now("vdb"), 2) and holds(data, 1, "raw")
    host.call("delete_snapshots", "g", "a")
    assert host.now("vdb") == str(data)


@pytest.fixture
def pool(host):
    """A pool with a volume of each format."""
    text = f"<pool type='dir'><name>p</name><target><path>{host.folder}/p</path></target></pool>"
    (host.folder / "p").mkdir()
    pool = host.conn.storagePoolDefineXML(text)
    pool.create()
    for format in ("raw", "qcow2"):
        run("qemu-img", "create", "-q", "-f", format, f"{host.folder}/p/v.{format}", "8M")
    pool.refresh()
    return pool


@pytest.mark.parametrize("runs", [True, False])
@pytest.mark.parametrize("format", ["raw", "qcow2"])
def test_a_volume_has_snapshots_too(host, pool, runs, format):
    path = f"{host.folder}/p/v.{format}"
    source = f"pool='p' volume='v.{format}'"
    host.define(DISK.format(kind="volume", format=format, source=source, target="vda"))
    run("qemu-io", "-f", format, "-c", "write -P 1 0 64k", path)
    for disk_only in (None, True) if format == "qcow2" else (None,):
        if runs:
            host.dom.create()
        host.call("snapshot", "g", "a", disk_only=disk_only)
        if runs:
            host.dom.destroy()
        external = format == "raw" or disk_only
        now = host.now() or path
        assert (now == f"{host.folder}/p/v.a") is bool(external)
        write(now, 2)
        host.call("revert_snapshot", "g", "a")
        if host.dom.isActive():
            host.dom.destroy()
        assert not holds(host.now() or path, 2) and holds(path, 1, format)
        host.call("delete_snapshots", "g", all=True)
        assert host.now() in (None, path) and not os.path.exists(f"{host.folder}/p/v.a")


def test_where_there_is_no_room_none_is_taken(host, monkeypatch):
    from saltvirt.host.snapshot import snapshots

    host.define(host.device(host.disk("g.qcow2")))
    monkeypatch.setattr(snapshots, "_free", lambda path: 1000)
    with pytest.raises(CommandExecutionError, match=r"needs 1 MiB in the file system of"):
        host.call("snapshot", "g", "a")
    monkeypatch.setattr(snapshots, "_free", lambda path: 2 * 1024**2)
    notes = host.call("snapshot", "g", "a", disk_only=True)["notes"]
    assert "may grow to 8 MiB" in notes[0] and "has only 2 MiB free" in notes[0]


@NO_OVMF
@pytest.mark.parametrize("runs", [True, False])
def test_the_firmware_variables_go_back_with_the_disk(host, runs):
    nvram = host.folder / "g_VARS.fd"
    nvram.write_bytes(Path("/usr/share/OVMF/OVMF_VARS_4M.fd").read_bytes())
    host.define(host.device(host.disk("g.qcow2")), UEFI.format(nvram))
    if runs:
        host.dom.create()
    found = host.call("snapshot", "g", "a", test=True)
    assert (
        found["notes"][0]
        == "the snapshot is external, because it boots with UEFI firmware (pflash)"
    )
    assert "not saved" not in str(found)
    host.call("snapshot", "g", "a")
    if runs:
        host.dom.destroy()
    then = nvram.read_bytes()
    nvram.write_bytes(b"later" + then[5:])
    assert "notes" not in host.call("revert_snapshot", "g", "a", test=True)
    assert nvram.read_bytes() != then
    host.call("revert_snapshot", "g", "a")
    assert nvram.read_bytes() == then
    host.dom.create()  # it starts with them
    host.dom.destroy()
    host.call("delete_snapshots", "g", "a")
    assert not os.path.exists(snapshot_state.FOLDER) or os.listdir(snapshot_state.FOLDER) == []


@NO_OVMF
def test_a_guest_that_was_never_started_gets_new_variables(host):
    nvram = host.folder / "g_VARS.fd"
    host.define(host.device(host.disk("g.qcow2")), UEFI.format(nvram))
    host.call("snapshot", "g", "a")
    nvram.write_bytes(b"later")
    host.call("revert_snapshot", "g", "a")
    assert not nvram.exists()


@NO_OVMF
def test_variables_that_are_not_saved_are_said_before_and_after(host):
    template = host.folder / "template.fd"
    template.write_bytes(Path("/usr/share/OVMF/OVMF_VARS_4M.fd").read_bytes())
    host.define(host.device(host.disk("g.qcow2")), UEFI.format(template))
    words = f"its firmware variables in {template} are not saved with it"
    assert words in host.call("snapshot", "g", "a", test=True)["notes"][1]
    assert words in host.call("snapshot", "g", "a")["notes"][1]
    later = b"of all guests" + template.read_bytes()[13:]
    template.write_bytes(later)
    words = ["the firmware variables are not reverted: a does not contain them"]
    assert host.call("revert_snapshot", "g", "a", test=True)["notes"] == words
    assert host.call("revert_snapshot", "g", "a")["notes"] == words
    assert template.read_bytes() == later


def test_the_state_of_a_tpm_goes_back_with_the_disk(host, monkeypatch):
    monkeypatch.setattr(files, "TPM_STATE", str(host.folder / "swtpm"))
    host.define(host.device(host.disk("g.qcow2")) + TPM)
    state = host.folder / "swtpm" / host.dom.UUIDString() / "tpm2"
    state.mkdir(parents=True)
    (state / "tpm2-00.permall").write_bytes(b"then")
    (state / ".lock").touch()
    host.call("snapshot", "g", "a")
    kept = [path for path in (host.folder / "snapshots").rglob("*") if path.is_file()]
    assert [path.read_bytes() for path in kept] == [b"then"]
    assert os.stat(host.folder / "snapshots").st_mode & 0o077 == 0
    (state / "tpm2-00.permall").write_bytes(b"later")
    (state / "tpm2-00.volatilestate").write_bytes(b"later")
    host.call("revert_snapshot", "g", "a")
    assert {path.name: path.read_bytes() for path in state.iterdir()} == {
        "tpm2-00.permall": b"then", ".lock": b"",
    }  # fmt: skip
    host.call("purge", "g")
    assert not (host.folder / "snapshots" / host.dom.UUIDString()).exists()


def test_a_guest_that_was_backed_up_goes_back_to_an_external_snapshot(host):
    """libvirt before 9.9 does nothing with a snapshot beside a checkpoint."""
    from saltvirt import names

    path = host.disk("g.qcow2")
    host.define(host.device(path))
    host.dom.create()
    for name in ("s1", "s2"):
        host.call("snapshot", "g", name, disk_only=True)
    name = names.CHECKPOINT + "000001-20261126T160000Z-0123abcd"
    disks = "<disks><disk name='vda' checkpoint='bitmap'/></disks>"
    host.dom.checkpointCreateXML(f"<domaincheckpoint><name>{name}</name>{disks}</domaincheckpoint>")
    found = host.call("revert_snapshot", "g", "s1", cleanup=True)
    assert found == {"reverted": "s1", "deleted": ["s2"]}
    assert (host.names(), host.dom.isActive(), host.dom.listAllCheckpoints()) == (["s1"], 0, [])
    assert host.dom.snapshotCurrent().getName() == "s1"
    host.dom.create()


def checkpointed(dom):
    """Make a checkpoint of a guest as a backup does, and stop it."""
    from saltvirt import names

    name = names.CHECKPOINT + "000001-20261126T160000Z-0123abcd"
    disks = "<disks><disk name='vda' checkpoint='bitmap'/></disks>"
    dom.create()
    dom.checkpointCreateXML(f"<domaincheckpoint><name>{name}</name>{disks}</domaincheckpoint>")
    dom.destroy()
    return name


def test_a_volume_of_a_guest_that_was_backed_up_and_is_off_has_snapshots(host, pool):
    source = "pool='p' volume='v.qcow2'"
    dom = host.define(DISK.format(kind="volume", format="qcow2", source=source, target="vda"))
    name = checkpointed(dom)
    host.call("snapshot", "g", "a", disk_only=True)
    assert (host.names(), [one.getName() for one in dom.listAllCheckpoints()]) == (["a"], [name])
    host.call("delete_snapshots", "g", all=True)
    assert host.names() == [] and host.now() == f"{host.folder}/p/v.qcow2"


def test_a_guest_that_was_backed_up_goes_back_though_a_medium_is_gone(host):
    iso = host.disk("s.iso", "raw", "1M")
    drive = (
        f"<disk type='file' device='cdrom'><driver name='qemu' type='raw'/><source file='{iso}'/>"
        "<target dev='sda' bus='sata'/><readonly/></disk>"
    )
    dom = host.define(host.device(host.disk("g.qcow2")) + drive)
    host.call("snapshot", "g", "a")
    checkpointed(dom)
    iso.unlink()
    assert host.call("revert_snapshot", "g", "a")["reverted"] == "a"


def test_a_checkpoint_of_others_refuses_before_anything_is_done(host):
    host.define(host.device(host.disk("g.qcow2")))
    host.dom.create()
    host.call("snapshot", "g", "s1", disk_only=True)
    disks = "<disks><disk name='vda' checkpoint='bitmap'/></disks>"
    host.dom.checkpointCreateXML(f"<domaincheckpoint><name>other</name>{disks}</domaincheckpoint>")
    for test in (True, False):
        with pytest.raises(CommandExecutionError, match=r"it has checkpoints of another program"):
            host.call("revert_snapshot", "g", "s1", test=test)
    assert host.dom.isActive()


def test_a_disk_that_came_later_is_named_and_stays_in_the_record(host):
    system, data = host.disk("g.qcow2"), host.disk("g_data.qcow2")
    record = (
        "<metadata><s:guest xmlns:s='https://saltproject.io/xmlns/salt-virt/1' version='1'>{}"
        "</s:guest></metadata>"
    )
    one = f"<s:disk target='vda' path='{system}'/>"
    text = GUEST.format(name="g", os="", devices=host.device(system))
    text = text.replace("<memory", record.format(one) + "<memory", 1)
    host.dom = host.conn.defineXML(text)
    host.call("snapshot", "g", "a")
    both = host.device(system) + host.device(data, "vdb")
    text = GUEST.format(name="g", os="", devices=both).replace(
        "<memory",
        f"<uuid>{host.dom.UUIDString()}</uuid>"
        + record.format(one + f"<s:disk target='vdb' path='{data}'/>")
        + "<memory",
        1,
    )
    host.conn.defineXML(text)
    words = [
        f"disk vdb was attached after snapshot a and is detached; its file {data} is not deleted"
    ]
    assert host.call("revert_snapshot", "g", "a", test=True)["notes"] == words
    assert host.call("revert_snapshot", "g", "a")["notes"] == words
    assert host.now("vdb") is None and data.exists()
    host.call("purge", "g")
    assert not data.exists() and not system.exists()


def test_nothing_changes_the_disks_below_saved_memory(host, tmp_path):
    """The next start resumes that memory, which would damage the file systems of other disks."""
    path = host.disk("g.qcow2")
    host.define(host.device(path))
    host.call("snapshot", "g", "a", disk_only=True)
    layer = host.now()
    text = f"<pool type='dir'><name>p</name><target><path>{path.parent}</path></target></pool>"
    host.conn.storagePoolDefineXML(text).create()
    (tmp_path / "file").write_bytes(b"other")
    host.dom.create()
    host.dom.managedSave()
    before = Path(layer).read_bytes()
    try:
        for call in (
            *(("snapshot", "g", "b"), ("revert_snapshot", "g", "a")),
            *(("delete_snapshots", "g", "a"), ("resize_disk", "g", "vda", "16MiB")),
            ("volume_upload", "p", os.path.basename(layer), str(tmp_path / "file")),
            ("volume_resize", "p", os.path.basename(layer), "16MiB"),
        ):
            only = ("resize_disk", "volume_upload", "volume_resize")
            asked = (False,) if call[0] in only else (True, False)
            for test in asked:
                with pytest.raises(CommandExecutionError, match=r"g: it has saved memory.*start g"):
                    host.call(*call, **({"test": True} if test else {}))
        base = {"path": str(path), "format": "qcow2"}
        with pytest.raises(CommandExecutionError, match=r"g: it has saved memory.*start g"):
            host.call("volume_converge", "p", "g.a", "16MiB", backing_store=base, test=True)
        assert (host.names(), Path(layer).read_bytes()) == (["a"], before)
        host.dom.create()
    finally:
        if host.dom.hasManagedSaveImage():
            host.dom.managedSaveRemove()
    host.call("snapshot", "g", "b")
    assert host.names() == ["a", "b"]


@pytest.mark.parametrize("other", [False, True])
def test_the_layer_of_a_disk_that_was_detached_stays(host, other):
    """It holds all that was written to that disk since the snapshot; the guest stays up."""
    system, data, third = (host.disk(f"g{name}.qcow2") for name in ("", "_data", "_other"))
    host.define(host.device(system) + host.device(data, "vdb"))
    host.call("snapshot", "g", "a", disk_only=True)
    layer = host.now("vdb")
    write(layer, 2)
    host.dom.detachDeviceFlags(host.device(layer, "vdb"), libvirt.VIR_DOMAIN_AFFECT_CONFIG)
    if other:
        host.dom.attachDeviceFlags(host.device(third, "vdb"), libvirt.VIR_DOMAIN_AFFECT_CONFIG)
    host.dom.create()
    words = rf"snapshot a has the layer {layer} of disk vdb, which g has no longer: attach"
    for call in (("revert_snapshot", "g", "a"), ("delete_snapshots", "g", "a")):
        for test in (True, False):
            with pytest.raises(CommandExecutionError, match=words):
                host.call(*call, test=test)
    assert (host.names(), host.dom.isActive(), holds(host.folder / layer, 2)) == (["a"], 1, True)
    host.dom.destroy()
    if other:
        host.dom.detachDeviceFlags(host.device(third, "vdb"), libvirt.VIR_DOMAIN_AFFECT_CONFIG)
    host.dom.attachDeviceFlags(host.device(layer, "vdb"), libvirt.VIR_DOMAIN_AFFECT_CONFIG)
    host.call("delete_snapshots", "g", "a")
    assert host.now("vdb") == str(data) and holds(data, 2)
