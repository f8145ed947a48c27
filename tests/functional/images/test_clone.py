"""Cloning, growing, consoles and screenshots with libvirt's test driver and real disks."""

import errno
import json
import os
import re
import struct
import subprocess
import threading
import zlib

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.host.domain import metadata
from saltvirt.host.provision import admission, clone, guest_builder
from saltvirt.images import header
from saltvirt.xml.domain.domain import Domain
from tests.functional import asking
from tests.functional.host.provision.test_init import MIB, host, image, info  # noqa: F401


@pytest.fixture
def original(host, image, tmp_path):  # noqa: F811
    """A stopped guest with a disk of its own, an ISO, and an interface."""
    (tmp_path / "cd.iso").write_bytes(bytes(1024))
    host.init(
        "web1",
        image=image,
        disks=[
            {"name": "system", "size": 16, "format": "raw"},
            {"name": "cd", "device": "cdrom", "source_file": str(tmp_path / "cd.iso")},
        ],
        interfaces=[{"name": "eth0", "type": "network", "source": "default"}],
    )
    with open(host.images / "web1_system.raw", "r+b") as file:
        file.seek(4 * MIB)
        file.write(b"the guest's own data")
    return host


def test_a_copy_in_a_pool_that_guests_cannot_name_is_named_by_its_server():
    from saltvirt.design.source import Source
    from saltvirt.host.provision import clone, disk_build
    from saltvirt.spec.disk import DiskSpec, NetworkSourceSpec
    from saltvirt.xml.devices.disk import Disk
    from saltvirt.xml.domain.metadata import GuestRecord

    disk, made = Disk(target="vda", type="volume"), GuestRecord()
    place = Source(server=NetworkSourceSpec("rbd", "rbd/web2"))
    work = disk_build.DiskBuild(DiskSpec(name="vda"), pool="ceph", volume="web2", direct=place)
    clone.CloneBuilder.redirect_disk(made, disk, work)
    assert (disk.type, disk.source.protocol, disk.source.name) == ("network", "rbd", "rbd/web2")
    assert [(own.pool, own.volume) for own in made.disks] == [("ceph", "web2")]


def test_a_clone_has_a_disk_an_identity_and_a_record_of_its_own(original):
    made = original.modules["virt.clone"]("web1", "web2")
    old, new = (original.conn.lookupByName(name).XMLDesc() for name in ("web1", "web2"))
    copy = original.images / "web2_system.raw"
    assert copy.read_bytes() == (original.images / "web1_system.raw").read_bytes()
    assert str(copy) in new
    assert "web1_system" not in new.replace(f"{original.images}/web1_system.raw</saltvirt", "")
    assert "cd.iso" in new
    assert made["nics"][0]["mac"] not in old
    assert made["uuid"] not in old
    original.modules["virt.purge"]("web2")
    assert not copy.exists()
    assert (original.images / "web1_system.raw").exists()


def test_what_a_copy_shares_with_its_original_is_told(original):
    dom = original.conn.lookupByName("web1")
    more = (
        "<serial type='tcp'><source mode='bind' host='127.0.0.1' service='2333'/></serial>"
        "<serial type='file'><source path='/x/web1.out'/><log file='/x/web1.log'/></serial>"
        "<tpm model='tpm-tis'><backend type='emulator' version='2.0'/></tpm></devices>"
    )
    original.conn.defineXML(dom.XMLDesc().replace("</devices>", more))
    told = original.modules["virt.clone"]("web1", "web2")["warnings"]
    assert told == [
        f"web2 has {what}, as web1 has: change one of them before both run"
        for what in (
            "the tcp 127.0.0.1:2333 of a serial port or channel",
            "the file /x/web1.out of a serial port or channel",
            "the log /x/web1.log",
        )
    ] + ["web2 has an empty TPM: secrets sealed to the TPM of web1 cannot be opened"]


def test_no_copy_gets_the_name_of_a_disk_of_another_guest(original):
    lent = original.images / "web10_data.raw"
    lent.write_bytes(bytes(4096))
    dom = original.conn.lookupByName("web1")
    disk = f"<disk type='file'><source file='{lent}'/><target dev='vdz'/></disk></devices>"
    original.conn.defineXML(dom.XMLDesc().replace("</devices>", disk))
    original.modules["virt.clone"]("web1", "web2")
    found = sorted(path.name for path in original.images.glob("web2*"))
    assert "web2_vdz.raw" in found and "web20_data.raw" not in found


def test_a_test_of_a_clone_says_what_it_would_take_and_makes_nothing(original):
    before = sorted(original.images.iterdir())
    found = original.modules["virt.clone"]("web1", "web2", test=True)
    assert str(original.images / "web2_system.raw") in str(found)
    assert sorted(original.images.iterdir()) == before
    assert "web2" not in original.modules["virt.list_domains"]()


def test_a_clone_does_not_get_what_told_the_original_who_it_is(original, tmp_path):
    """A volume for cloud-init holds the original's private key."""
    dom = original.conn.lookupByName("web1")
    own = f'<saltvirt:disk target="hda" path="{tmp_path}/cd.iso"/></saltvirt:guest>'
    original.conn.defineXML(dom.XMLDesc().replace("</saltvirt:guest>", own))
    original.modules["virt.clone"]("web1", "web2")
    assert "cd.iso" not in original.conn.lookupByName("web2").XMLDesc()
    assert "cd.iso" in dom.XMLDesc()


def test_a_copy_is_seeded_with_its_own_and_the_originals_mac_addresses(original):
    """All network configuration that seeding and cloud-init write is bound to them."""
    given = []

    def seeder(name, path, format, nics):
        given.append((name, os.path.basename(path), format, nics))
        tools.warn("told")
        return "KEY"

    given_here = {"lock": f"{original.images}/lock", "images": str(original.images)}
    given_here["placement"] = {"reserved_memory_kib": 0, "memory_ratio": 10}

    def get(key, default=None, **_):
        return given_here.get(key.removeprefix("virt:"), default)

    tools = guest_builder.Tools(admission.config_of(get, {}), seeder=seeder)
    request = guest_builder.GuestRequest("web2", seed=True)
    made = clone.clone(original.conn, "web1", request, tools)
    [old], [new] = (
        Domain.fromstring(original.conn.lookupByName(name).XMLDesc()).interfaces
        for name in ("web1", "web2")
    )
    nics = [{"mac": new.mac, "original_mac": old.mac}]
    assert given == [("web2", "web2_system.raw", "raw", nics)]
    assert old.mac != new.mac
    assert (made.pub_key, made.warnings) == ("KEY", ("told",))


def test_a_copy_that_is_not_seeded_has_the_minion_of_its_original(original):
    dom = original.conn.lookupByName("web1")
    record = metadata.of_domain(dom).copy()
    record.seeded = True
    metadata.write(dom, record)
    original.modules["virt.clone"]("web1", "web2", seed=False)
    assert clone.was_seeded(original.conn, "web2")


VARIABLES = ["<nvram template='/t'>{}</nvram>",
             "<nvram template='/t' type='file'><source file='{}'/></nvram>"]  # fmt: skip


@pytest.mark.parametrize("nvram", VARIABLES)
def test_a_clone_does_not_write_to_the_originals_variables(original, nvram):
    dom = original.conn.lookupByName("web1")
    os_ = "<loader readonly='yes' type='pflash'>/x</loader>" + nvram.format("/x/web1_VARS.fd")
    original.conn.defineXML(dom.XMLDesc().replace("<boot dev", f"{os_}<boot dev", 1))
    assert "web1_VARS" in dom.XMLDesc()
    original.modules["virt.clone"]("web1", "web2")
    made = original.conn.lookupByName("web2").XMLDesc()
    assert "web1_VARS" not in made
    assert "<nvram template='/t'/>" in made


@pytest.mark.parametrize("taken", [False, True])
def test_a_clone_gets_a_copy_of_the_originals_variables(original, tmp_path, taken):
    """By an entry in them a system boots whose installer has left no other way."""
    old, new = tmp_path / "web1_VARS.fd", tmp_path / "web2_VARS.fd"
    old.write_bytes(b"entries")
    dom = original.conn.lookupByName("web1")
    os_ = "<loader readonly='yes' type='pflash'>/x</loader>" + VARIABLES[0].format(old)
    original.conn.defineXML(dom.XMLDesc().replace("<boot dev", f"{os_}<boot dev", 1))
    if taken:
        new.write_bytes(b"another's")
    made = original.modules["virt.clone"]("web1", "web2")
    assert new.read_bytes() == (b"another's" if taken else b"entries")
    words = f"web2 starts with the firmware variables in {new}, which remain from an earlier guest"
    assert (words in str(made.get("warnings"))) is taken
    assert old.read_bytes() == b"entries"


def test_variables_have_their_name_only_when_they_are_whole(original, tmp_path, monkeypatch):
    old, new = tmp_path / "web1_VARS.fd", tmp_path / "web2_VARS.fd"
    old.write_bytes(b"entries")
    dom = original.conn.lookupByName("web1")
    os_ = "<loader readonly='yes' type='pflash'>/x</loader>" + VARIABLES[0].format(old)
    original.conn.defineXML(dom.XMLDesc().replace("<boot dev", f"{os_}<boot dev", 1))
    half = []

    def copyfileobj(source, target):
        target.write(source.read(3))
        target.flush()
        half.append(new.exists())
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(clone.shutil, "copyfileobj", copyfileobj)
    with pytest.raises(errors.OperationFailed, match=f"cannot copy {old} to {new}: No space left"):
        original.modules["virt.clone"]("web1", "web2")
    assert half == [False]
    assert not [path for path in tmp_path.iterdir() if "web2" in path.name]
    assert not [dom for dom in original.conn.listAllDomains() if dom.name() == "web2"]
    monkeypatch.undo()
    original.modules["virt.clone"]("web1", "web2")
    assert new.read_bytes() == b"entries" and new.stat().st_mode & 0o777 == 0o600


def test_an_overlay_of_an_image_in_another_folder_is_copied_whole(host, image):  # noqa: F811
    host.init("web1", image=image, enable_qcow=True)
    base = header.read(str(host.images / "web1_system.qcow2"), "qcow2").backing
    assert not base.startswith(str(host.images))
    host.modules["virt.clone"]("web1", "web2")
    copy = str(host.images / "web2_system.qcow2")
    assert header.read(copy, "qcow2").backing is None
    with open(copy, "rb") as file:
        assert file.read()


def test_a_copy_does_not_stand_on_the_layers_of_its_original(host, image):  # noqa: F811
    """They are in the definition after a snapshot and an update. What the original has below its
    layer would show through wherever the copy, which is whole, has holes."""
    host.init("web1", image=image, disks=[{"name": "system", "format": "qcow2"}])
    path, base = host.images / "web1_system.qcow2", host.images / "web1_base.qcow2"
    path.rename(base)
    create = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", str(base), str(path)]
    subprocess.run(create, check=True)
    layers = (
        f"<backingStore type='file'><format type='qcow2'/><source file='{base}'/><backingStore/>"
        f"</backingStore><target dev='vda'"
    )
    text = host.conn.lookupByName("web1").XMLDesc().replace("<target dev='vda'", layers)
    host.conn.defineXML(text)
    assert base.name in host.conn.lookupByName("web1").XMLDesc()
    host.modules["virt.clone"]("web1", "web2")
    copy = host.images / "web2_system.qcow2"
    assert "backing-filename" not in info(copy)
    assert base.name not in host.conn.lookupByName("web2").XMLDesc()


def test_a_running_guest_is_not_cloned(original):
    original.conn.lookupByName("web1").create()
    with pytest.raises(errors.VirtError, match=r"web1 is running: stop it first") as caught:
        original.modules["virt.clone"]("web1", "web2")
    assert type(caught.value).__name__ == "Refused"
    assert not (original.images / "web2_system.raw").exists()


@pytest.mark.parametrize(("name", "why"), [("test", "already exists"), ("a/b", "cannot be")])
def test_a_name_that_cannot_be_is_refused(original, name, why):
    with pytest.raises(errors.VirtError, match=why):
        original.modules["virt.clone"]("web1", name)


def test_a_stopped_guests_disk_grows_and_never_shrinks(host, image):  # noqa: F811
    host.init(image=image, disks=[{"name": "system", "size": 16}])
    path = host.images / "g1_system.qcow2"
    xml = host.conn.lookupByName("g1").XMLDesc()
    host.conn.defineXML(xml.replace("<target", "<driver name='qemu' type='qcow2'/><target", 1))
    resize = host.modules["virt.resize_disk"]
    assert resize("g1", "vda", 32) == {"before": 16 * MIB, "after": 32 * MIB}
    assert info(str(path))["virtual-size"] == 32 * MIB
    with pytest.raises(errors.VirtError, match=r"has 32 MiB; disks are never shrunk"):
        resize("g1", "vda", 24)
    with pytest.raises(errors.VirtError, match=r"g1 has no disk vdz; it has system \(vda\)"):
        resize("g1", "vdz", 64)
    assert info(str(path))["virtual-size"] == 32 * MIB


def pixels(data):
    """(width, height, raw rows) of an RGB PNG, read by the rules of the format."""
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    at, body, size = 8, b"", None
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        chunk = data[at + 8 : at + 8 + length]
        assert zlib.crc32(kind + chunk) == struct.unpack(">I", data[at + 8 + length :][:4])[0]
        if kind == b"IHDR":
            size = struct.unpack(">II", chunk[:8])
        elif kind == b"IDAT":
            body += chunk
        at += length + 12
    return (*size, zlib.decompress(body))


def test_a_ppm_picture_becomes_the_same_png():
    from saltvirt.host.domain import screenshot

    rows = [b"\xff\0\0\0\xff\0", b"\0\0\xff\xff\xff\xff"]
    found = pixels(screenshot.png_of_ppm(b"P6\n# made by QEMU\n2 2\n255\n" + b"".join(rows)))
    assert found == (2, 2, b"\0" + rows[0] + b"\0" + rows[1])


def test_screenshot_writes_a_private_file(virt, conn, tmp_path):
    path = tmp_path / "new" / "shot.png"
    assert virt["virt.screenshot"]("test", path=str(path)) == str(path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(errors.VirtError, match=r"path 'shot.png' is not absolute"):
        virt["virt.screenshot"]("test", path="shot.png")


CONSOLES = """
<domain type='test'><name>seen</name><memory unit='MiB'>16</memory><os><type>hvm</type></os>
<devices><graphics type='vnc' port='{}' listen='{}'/>
<serial type='tcp'><source mode='bind' host='127.0.0.1' service='4555'/></serial></devices></domain>
"""


@pytest.mark.parametrize(
    ("listen", "tunnel", "connect"),
    [
        ("127.0.0.1", "ssh -N -L 5907:127.0.0.1:5907 root@{}", "vncviewer localhost:5907"),
        ("0.0.0.0", None, "vncviewer {}:5907"),
        ("10.1.1.1", None, "vncviewer 10.1.1.1:5907"),
    ],
)
def test_console_says_how_to_connect(virt, conn, listen, tunnel, connect):
    conn.createXML(CONSOLES.format(5907, listen))
    found = virt["virt.console"]("seen")
    host = conn.getHostname()  # noqa: F811
    assert found["graphics"][0].get("tunnel") == (tunnel and tunnel.format(host))
    assert found["graphics"][0]["connect"] == connect.format(host)
    assert found["serials"][0]["connect"] == "nc 127.0.0.1 4555"


def test_guest_addresses_never_wait(virt, conn):
    everybody = virt["virt.guest_addresses"]()
    assert list(everybody) == ["test"]
    assert json.dumps(everybody)
    leased = virt["virt.guest_addresses"]("test")["test"]
    for mac, facts in leased.items():
        assert mac in subprocess.list2cmdline(virt["virt.get_macs"]("test"))
        assert facts["addresses"]


def marked(host, name):  # noqa: F811
    """The entries of a guest's record."""
    from saltvirt.host.domain import metadata

    entries = metadata.of_domain(host.conn.lookupByName(name)).entries
    return {entry.key: entry.value for entry in entries}


MARKS = {"deployment": "shop", "groups": "web", "owner": "ann"}


def test_a_clone_is_not_of_its_originals_deployment(host, image):  # noqa: F811
    """``virt.deployed remove=True`` purges what bears its mark and is not listed."""
    host.init("web1", image=image, disks=[{"name": "system", "size": 16}], metadata=MARKS)
    host.modules["virt.clone"]("web1", "web2")
    assert marked(host, "web2") == {"groups": "web", "owner": "ann"}
    assert marked(host, "web1") == MARKS
    told = asking.answer(host.modules, "virt.inventory")["guests"]
    assert (told["web1"]["deployment"], told["web2"]["deployment"]) == ("shop", None)


def test_a_clone_is_another_machine_to_those_who_ask_what_it_is(original):
    dom = original.conn.lookupByName("web1")
    genid = "<genid>43dc0cf8-809b-4adb-9bea-a9abb5f3d90e</genid><memory"
    xml = dom.XMLDesc().replace("<memory", genid, 1)
    port = "<virtualport type='openvswitch'><parameters interfaceid='{}'/></virtualport>"
    port = port.format("09b11c53-8b5c-4eeb-8f00-d84eaa0aaa4f")
    original.conn.defineXML(xml.replace("</interface>", f"{port}</interface>", 1))
    original.modules["virt.clone"]("web1", "web2")
    new = original.conn.lookupByName("web2").XMLDesc()
    assert "<genid>" in new
    assert "43dc0cf8" not in new
    assert "09b11c53" not in new
    assert "openvswitch" in new


def test_a_shared_disk_that_was_made_for_the_original_is_shared_with_its_clone(host, image):  # noqa: F811
    disks = [{"name": "system", "size": 16}, {"name": "quorum", "size": 1, "shareable": True}]
    host.init("web1", image=image, disks=disks)
    host.modules["virt.clone"]("web1", "web2")
    xml = host.conn.lookupByName("web2").XMLDesc()
    assert "web1_quorum" in xml
    host.modules["virt.purge"]("web2")
    assert any("web1_quorum" in path.name for path in host.images.iterdir())


@pytest.mark.parametrize("shared", ["", "<shareable/>"])
def test_a_lun_that_its_guest_has_for_itself_is_not_given_to_a_clone(original, shared):
    dom = original.conn.lookupByName("web1")
    lun = f"<disk type='block' device='lun'><source dev='/dev/null'/><target dev='sdb'/>{shared}"
    original.conn.defineXML(dom.XMLDesc().replace("</devices>", f"{lun}</disk></devices>"))
    if shared:
        original.modules["virt.clone"]("web1", "web2")
        return
    for test in (True, False):
        with pytest.raises(errors.Unsupported, match=r"disk sdb of web1 is a LUN, /dev/null"):
            original.modules["virt.clone"]("web1", "web2", test=test)
    assert "web2" not in original.modules["virt.list_domains"]()


def test_memory_that_is_kept_in_a_file_is_not_given_to_a_clone(original):
    xml = original.conn.lookupByName("web1").XMLDesc()
    slots = "<maxMemory slots='2' unit='MiB'>256</maxMemory><memory unit='MiB'>128</memory>"
    numa = "<cpu><numa><cell id='0' cpus='0' memory='64' unit='MiB'/></numa></cpu><devices>"
    module = (
        "<memory model='nvdimm'><source><path>/nowhere/data</path></source><target>"
        "<size unit='MiB'>64</size><node>0</node></target></memory></devices>"
    )
    xml = re.sub(r"<memory .*?</memory>", slots, xml).replace("<devices>", numa)
    original.conn.defineXML(xml.replace("</devices>", module))
    with pytest.raises(errors.Unsupported, match=r"memory of .* is backed by /nowhere/data"):
        original.modules["virt.clone"]("web1", "web2")


def test_a_clone_runs_beside_an_original_with_a_fixed_cid(original):
    dom = original.conn.lookupByName("web1")
    vsock = "<vsock model='virtio'><cid auto='no' address='7'/></vsock></devices>"
    original.conn.defineXML(dom.XMLDesc().replace("</devices>", vsock))
    original.modules["virt.clone"]("web1", "web2")
    cid = original.conn.lookupByName("web2").XMLDesc().partition("<cid ")[2]
    assert cid.startswith("auto='yes'/>")
    assert "address='7'" in dom.XMLDesc()


def test_a_clone_is_of_its_original_as_it_is_when_its_lock_is_held(original):
    """An update that ended while the clone waited for the lock was not in the copy."""
    config = admission.AdmissionConfig.configured(original.modules["config.get"])
    web1 = original.conn.lookupByName("web1")
    wanted = guest_builder.GuestRequest("web2")
    waiting = clone.CloneBuilder(original.conn, web1, wanted, guest_builder.Tools(config))
    data = {"name": "data", "size": 4, "format": "raw"}
    original.modules["virt.update"]("web1", disks=[data], title="second")
    waiting.run()
    copy = Domain.fromstring(original.conn.lookupByName("web2").XMLDesc())
    files = [disk.source.file for disk in copy.disks if disk.device == "disk"]
    assert files == [str(original.images / f"web2_{name}.raw") for name in ("system", "data")]
    assert copy.title == "second"


@pytest.fixture
def mid_copy(monkeypatch):
    """A callable that has another one called in the middle of each copy of a disk."""
    from saltvirt.images import clone as copying

    whole = copying._fill

    def call(act):
        def fill(task, part):
            method = whole(task, part)
            act()
            return method

        monkeypatch.setattr(copying, "_fill", fill)

    return call


def test_a_guest_that_libvirt_starts_in_mid_copy_has_no_clone(original, mid_copy):
    dom = original.conn.lookupByName("web1")
    mid_copy(dom.create)
    with pytest.raises(errors.VirtError, match=r"web1 is running: stop it first"):
        original.modules["virt.clone"]("web1", "web2")
    assert not (original.images / "web2_system.raw").exists()
    assert "web2" not in [found.name() for found in original.conn.listAllDomains()]


def test_a_guest_that_ran_and_stopped_in_mid_copy_has_no_clone(original, mid_copy):
    def ran():
        with open(original.images / "web1_system.raw", "r+b") as file:
            file.write(b"written by the guest")

    mid_copy(ran)
    with pytest.raises(
        errors.VirtError, match=r"was written to during the copy; the copy was deleted"
    ):
        original.modules["virt.clone"]("web1", "web2")
    assert not (original.images / "web2_system.raw").exists()


def test_what_we_start_in_mid_copy_waits_and_then_says_who_is_at_work(
    original, mid_copy, monkeypatch
):
    from saltvirt.host.domain import guest_lock

    monkeypatch.setattr(guest_lock, "WAIT_S", 0.2)
    said = []

    def another():
        for function in ("virt.start", "virt.purge", "virt.update", "virt.snapshot"):
            try:
                original.modules[function]("web1")
            except Exception as exc:
                said.append(str(exc))

    def start():
        thread = threading.Thread(target=another)
        thread.start()
        thread.join()

    mid_copy(start)
    original.modules["virt.clone"]("web1", "web2")
    assert len(said) == 4
    assert all("operation is in progress on this host, virt.clone" in one for one in said)
    assert original.modules["virt.start"]("web1") is True


def test_a_guest_with_saved_memory_is_not_cloned(original):
    dom = original.conn.lookupByName("web1")
    dom.create()
    dom.managedSave()
    with pytest.raises(errors.VirtError, match=r"web1 has saved memory"):
        original.modules["virt.clone"]("web1", "web2")


def test_a_real_qemu_does_not_start_on_a_disk_that_is_copied(tmp_path, mid_copy, monkeypatch):
    """``virsh start`` in mid-copy: it is refused, and the copy is whole."""
    from saltvirt.host.provision import admission, guest_builder
    from saltvirt.host.provision import clone as cloning
    from tests.functional.embedded import connection

    # an own QEMU driver has no networks and pools to admit by
    monkeypatch.setattr(admission, "check", lambda *_arguments, **_more: None)
    monkeypatch.setattr(admission, "recheck", lambda *_arguments: None)
    qemu, disk = connection(), tmp_path / "still1_vda.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", disk, "8M"], check=True)
    subprocess.run(["qemu-io", "-c", "write -P 7 0 1M", disk], check=True, capture_output=True)
    dom = qemu.defineXML(
        "<domain type='qemu'><name>still1</name><memory unit='MiB'>32</memory><vcpu>1</vcpu>"
        "<os><type>hvm</type></os><devices><disk type='file' device='disk'>"
        f"<driver name='qemu' type='qcow2'/><source file='{disk}'/><target dev='vda' bus='virtio'/>"
        "</disk></devices></domain>"
    )
    given = {"virt:lock": str(tmp_path / "lock")}
    tools = guest_builder.Tools(
        admission.AdmissionConfig(lambda key, default=None: given.get(key, default), str(tmp_path))
    )
    said = []

    def start():
        with pytest.raises(libvirt.libvirtError) as refused:
            dom.create()
        said.append(str(refused.value))

    mid_copy(start)
    made = None
    try:
        made = cloning.clone(qemu, "still1", guest_builder.GuestRequest("still2"), tools)
        assert 'Failed to get "write" lock' in said[0]
        copy = str(tmp_path / "still2_vda.qcow2")
        subprocess.run(["qemu-img", "compare", "-q", disk, copy], check=True)
        dom.create()
        dom.destroy()
    finally:
        dom.undefine()
        if made:
            qemu.lookupByName("still2").undefine()


def test_a_disk_has_no_bitmaps_of_what_it_is_made_from(tmp_path):
    """A backup of the original has left one; the copy's first backup is none of its increments."""
    from saltvirt.images import bitmaps, clone, inspect

    old, new = str(tmp_path / "old.qcow2"), str(tmp_path / "new.qcow2")
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", old, "4M"], check=True)
    subprocess.run(["qemu-io", "-c", "write -q -P 7 1M 64k", "-f", "qcow2", old], check=True)
    assert not inspect.inspect(old, "qcow2").bitmaps
    bitmaps.add(old, "salt-virt.1")
    found = inspect.inspect(old, "qcow2")
    assert found.bitmaps
    clone.clone(found, new, "qcow2")
    assert (list(bitmaps.read(old)), bitmaps.read(new)) == (["salt-virt.1"], {})
    subprocess.run(["qemu-img", "compare", "-q", old, new], check=True)
