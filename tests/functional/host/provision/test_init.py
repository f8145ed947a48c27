"""Creation and removal of guests with libvirt's test driver and real disks."""

import contextlib
import json
import os
import subprocess
from dataclasses import fields, replace
from types import SimpleNamespace

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.host.provision import admission, create, disk_build, disks, guest_builder
from saltvirt.host.storage import usage
from saltvirt.images import clone, sources
from saltvirt.placement.calls import CreateRequest
from saltvirt.rights import confidential
from saltvirt.seed import backends
from saltvirt.spec.disk import DiskSpec
from tests.functional.conftest import load_with_folders
from tests.functional.host.storage.test_still_needed import opened
from tests.functional.host.storage.test_usage import GUEST, disk
from tests.tools import api

MIB = 1024**2
RAW_GUEST = """<domain type='test'><name>raw</name><memory>65536</memory><os><type>hvm</type></os>
<devices><disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='{}'/>
<target dev='vda' bus='virtio'/></disk></devices></domain>"""


def info(path):
    argv = ["qemu-img", "info", "--output=json", path]
    return json.loads(subprocess.run(argv, check=True, capture_output=True).stdout)


@pytest.fixture
def image(tmp_path):
    """A raw disk of 8 MiB with a boot sector's signature and some data."""
    path = tmp_path / "base.raw"
    path.write_bytes(bytes(510) + b"\x55\xaa" + b"data" * 1024)
    os.truncate(path, 8 * MIB)
    return str(path)


@pytest.fixture
def host(conn, tmp_path):
    """A host on the test driver: its modules, its libvirt, its images folder."""
    images = tmp_path / "images"
    modules = load_with_folders(tmp_path)

    def init(name="g1", cpu=1, mem=64, **more):
        arguments = {"seed": False, "start": False, "nic": None, **more}
        return modules["virt.init"](name, cpu, mem, **arguments)

    return SimpleNamespace(modules=modules, conn=conn, images=images, init=init)


def names(host):
    return sorted(dom.name() for dom in host.conn.listAllDomains())


def files(host):
    return sorted(str(path.relative_to(host.images)) for path in host.images.rglob("*"))


def test_a_copy_of_the_image_with_the_profiles_size(host, image):
    made = host.init(image=image, disks=[{"name": "system", "size": 16}])
    path = str(host.images / "g1_system.qcow2")
    assert made["disks"] == [
        {"target": "vda", "path": path, "format": "qcow2", "size_bytes": 16 * MIB}
    ]
    assert (made["name"], made["state"], made["pub_key"]) == ("g1", "shutdown", None)
    assert (info(path)["format"], info(path)["virtual-size"]) == ("qcow2", 16 * MIB)
    dom = host.conn.lookupByName("g1")
    assert path in dom.XMLDesc()
    assert made["uuid"] == dom.UUIDString()


def test_a_test_says_what_would_be_made_and_touches_nothing(host, image):
    given = {"image": image, "disks": [{"name": "system", "size": 16}]}
    told = host.init(test=True, **given)
    assert (names(host), files(host)) == (["test"], [])
    made = host.init(**given)
    assert told["disks"] == made["disks"]
    for wrong in ({"name": "g1"}, {"cpu": 17}, {"disk": "nope"}, {"name": "g2", "colour": "red"}):
        with pytest.raises(errors.VirtError, match=r"already exists|vCPUs|unknown"):
            host.init(test=True, **{"name": "g3", **wrong})


def test_the_arguments_that_the_master_sends_are_parameters():
    [init] = (function for function in api.ours("modules.virt") if function.name == "init")
    parameters = {parameter.partition("=")[0] for parameter in init.parameters}
    assert {field.name for field in fields(CreateRequest)} - parameters == {"options"}


@pytest.mark.parametrize("word", ["update", "known_profiles", "deploy"])
@pytest.mark.parametrize("function", ["init", "update"])
def test_parameters_of_the_parser_are_not_arguments_of_the_user(host, function, word):
    host.init(disk=None)
    with pytest.raises(errors.InvalidInput, match=f"argument: unknown '{word}'"):
        if function == "init":
            host.init(name="g2", disk=None, **{word: True})
        else:
            host.modules["virt.update"]("g1", **{word: True})
    assert names(host) == ["g1", "test"]


def test_a_test_answers_the_definition_to_who_asks_for_it(host, image):
    given = {"image": image, "disks": [{"name": "system", "size": 16}, {"name": "b", "size": 8}],
             "graphics": {"type": "vnc", "password": "hush"}}  # fmt: skip
    assert "definition" not in host.init(test=True, **given)
    told = host.init(test=True, definition=True, **given)
    assert str(host.images / "g1_system.qcow2") in told["definition"]
    assert "hush" not in str(told) and told["bases"] == {}
    told = host.init(test=True, definition=True, enable_qcow=True, **given)
    assert told["bases"] == {"vda": image}
    assert (names(host), files(host)) == (["test"], [])


@pytest.mark.parametrize(
    "wrong",
    [
        {"image": "/nowhere/x.raw"},
        {"image": "pool://default-pool/x"},
        {"image": "http://127.0.0.1:9/x.qcow2"},
        {"image_hash": "sha256=abc"},
        {"image_hash": "0" * 64},
        {"image_hash": "/nowhere/SHA256SUMS"},
        {"disks": [{"name": "system", "size": 1}]},
    ],
    ids=lambda wrong: "-".join(map(str, next(iter(wrong.items())))),
)
def test_a_test_says_of_the_image_what_init_would_say(host, image, wrong):
    given = {"image": image, "disks": [{"name": "system", "size": 16}], **wrong}
    said = []
    for test in (True, False):
        with pytest.raises(errors.VirtError) as caught:
            host.init(test=test, **given)
        said.append(str(caught.value))
    assert said[0] == said[1]
    assert (names(host), [path for path in files(host) if "_base" not in path]) == (["test"], [])


def test_a_test_asks_the_master_for_the_image_and_copies_nothing(host, conn, tmp_path):
    def never(*_):
        raise AssertionError("fetched")

    there = {"hash_type": "sha256", "hsum": "0" * 64}
    spec = DiskSpec(name="system", image="salt://debian.qcow2")
    admission_config = admission.AdmissionConfig(None, str(tmp_path / "images"))
    for answer in ({}, there):
        master = sources.SaltFiles(
            {"cp.hash_file": lambda *_, said=answer, **__: said}, "base", never
        )
        work = disk_build.DiskBuild(spec, make=True)
        missing = pytest.raises(errors.NotFound, match=r"salt://debian.qcow2 does not exist")
        expected = contextlib.nullcontext() if answer else missing
        with expected:
            guest_builder.Tools(admission_config, master).inspect_images(conn, [work])
        assert work.image is None
    assert not list((tmp_path / "images").iterdir())


def test_only_what_was_made_is_purged_when_that_is_asked_for(host, tmp_path):
    data = tmp_path / "data.raw"
    data.write_bytes(bytes(MIB))
    xml = (
        "<domain type='test'><name>foreign</name><memory>1024</memory><os><type>hvm</type></os>"
        f"<devices><disk type='file'><source file='{data}'/><target dev='vda'/></disk></devices>"
        "</domain>"
    )
    for which, plan in [
        ("none", {"delete": [], "keep": {str(data): "not created for this guest"}}),
        ("made", {"delete": [], "keep": {str(data): "not created for this guest"}}),
        ("own", {"delete": [str(data)], "keep": {}}),
    ]:
        host.conn.defineXML(xml)
        assert host.modules["virt.purge"]("foreign", disks=which, test=True) == plan
        assert data.exists()
        assert host.modules["virt.purge"]("foreign", disks=which) is True
        assert names(host) == ["test"]
        assert data.exists() is (which != "own")


def test_the_record_names_what_was_made_and_is_finished(host, image):
    host.init(image=image, disks=[{"name": "system", "size": 16}])
    uri = "https://saltproject.io/xmlns/salt-virt/1"
    record = host.conn.lookupByName("g1").metadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, uri)
    assert str(host.images / "g1_system.qcow2") in record
    assert image in record
    assert "creating" not in record


def test_an_overlay_has_its_backing_file_and_format(host, image):
    host.init(image=image, enable_qcow=True)
    found = info(str(host.images / "g1_system.qcow2"))
    assert (found["backing-filename"], found["backing-filename-format"]) == (image, "raw")
    assert found["virtual-size"] == 8192 * MIB


def test_disks_without_image_and_a_given_one(host, tmp_path):
    data = tmp_path / "data.raw"
    data.write_bytes(bytes(MIB))
    disks = [
        {"name": "system", "size": 4, "format": "raw"},
        {"name": "data", "source_file": str(data), "format": "raw"},
    ]
    made = host.init(disks=disks)
    assert [disk["path"] for disk in made["disks"]] == [
        str(host.images / "g1_system.raw"),
        str(data),
    ]
    host.modules["virt.purge"]("g1")
    assert files(host) == []
    assert data.exists()


def test_start_is_read_back(host, image):
    assert host.init(image=image, start=True)["state"] == "running"
    assert host.conn.lookupByName("g1").isActive()


@pytest.mark.parametrize(
    ("wrong", "kind", "why"),
    [
        ({"name": "a b"}, "InvalidInput", "cannot be a guest's name"),
        ({"name": "../x"}, "InvalidInput", "cannot be a guest's name"),
        ({"name": "test"}, "AlreadyExists", "test already exists on"),
        ({"cpu": 0}, "InvalidInput", "cpu"),
        ({"cpu": 17}, "NoRoom", "17 vCPUs requested, the host has 16 CPUs"),
        ({"mem": "two"}, "InvalidInput", "mem"),
        ({"mem": "1TiB"}, "NoRoom", "1048576 MiB of memory requested"),
        ({"image": "/nowhere"}, "NotFound", "image /nowhere does not exist"),
        ({"image": "/etc/hostname"}, "ImageError", "is not a disk image"),
        ({"image": "pool://no/x.qcow2"}, "NotFound", "use storage pool no"),
        ({"image": "pool://default-pool/x"}, "NotFound", "default-pool has no volume x"),
        ({"image": "pool://x"}, "InvalidInput", "pool://POOL/VOLUME"),
        ({"disk": "nope"}, "InvalidInput", "disk profile: unknown 'nope'"),
        ({"nic": "nope"}, "InvalidInput", "nic profile: unknown 'nope'"),
        ({"disks": [{"name": "system", "size": 1}]}, "InvalidInput", "are never shrunk"),
        ({"disks": [{"name": "d", "size": 1, "pool": "no"}]}, "NotFound", "use storage pool no"),
        ({"interfaces": [{"name": "e", "bridge": "nobr"}]}, "Refused", "no bridge nobr"),
        ({"interfaces": [{"name": "e", "network": "non"}]}, "Refused", "no active .* network non"),
        ({"disks": [{"name": "system", "size": "999PiB"}]}, "NoRoom", "of disk space requested"),
        ({"colour": "red"}, "InvalidInput", "unknown 'colour'"),
        (
            {"interfaces": [{"name": "e", "type": "user", "addresses": ["192.0.2.7/24"]}]},
            "InvalidInput",
            "interface e: addresses are written when",
        ),
        ({"pillar": {"a": 1}}, "InvalidInput", "salt-run virt.authorize"),
    ],
)
def test_what_is_wrong_is_refused_and_nothing_changes(host, image, wrong, kind, why):
    before = names(host)
    with pytest.raises(errors.VirtError, match=why) as caught:
        host.init(**{"image": image, **wrong})
    assert type(caught.value).__name__ == kind
    assert "\n" not in str(caught.value)
    assert names(host) == before
    assert files(host) == []


def test_a_guests_raw_disk_is_copied_as_the_raw_disk_it_is(host, tmp_path):
    """Its guest wrote a qcow2 header into it, which names a file of this host."""
    disk = tmp_path / "guest.raw"
    argv = ["qemu-img", "create", "-f", "qcow2", "-u", "-b", "/etc/shadow", "-F", "raw"]
    subprocess.run([*argv, disk, "8M"], check=True, capture_output=True)
    with pytest.raises(errors.VirtError, match="refers to /etc/shadow"):
        host.init(image=str(disk))
    host.conn.defineXML(RAW_GUEST.format(disk))
    made = host.init(image=str(disk), disks=[{"name": "system", "format": "raw"}])
    content = disk.read_bytes()
    with open(made["disks"][0]["path"], "rb") as file:
        assert file.read(len(content)) == content


def write_header(disk, backing):
    """What a guest could write to its raw disk."""
    argv = ["qemu-img", "create", "-f", "qcow2", "-u", "-b", backing, "-F", "raw"]
    subprocess.run([*argv, disk, "8M"], check=True, capture_output=True)


def test_a_header_in_a_lent_raw_disk_does_not_make_it_the_guests_own(host, image, tmp_path):
    lent = tmp_path / "lent.raw"
    lent.write_bytes(bytes(MIB))
    given = {"name": "lent", "source_file": str(lent), "format": "raw"}
    made = host.init(image=image, disks=[{"name": "system"}, given])
    write_header(lent, made["disks"][0]["path"])
    host.modules["virt.purge"]("g1")
    assert lent.exists()
    assert files(host) == []


def test_a_pipe_as_a_backing_name_hangs_no_purge(host, image, tmp_path):
    pipe, other = tmp_path / "pipe", tmp_path / "other.qcow2"
    os.mkfifo(pipe)
    write_header(other, pipe)
    host.conn.defineXML(RAW_GUEST.format(other).replace("'raw'", "'qcow2'"))
    host.init(image=image)
    host.modules["virt.purge"]("g1")
    assert files(host) == []
    assert host.modules["virt.image_prune"]() == {"removed": [], "retained": {}}


@pytest.mark.parametrize("format", [None, "qcow2", "raw"])
def test_a_disk_that_looks_like_more_than_raw_needs_a_format(host, tmp_path, format):
    disk = tmp_path / "old.img"
    write_header(disk, "/etc/shadow")
    given = {"name": "old", "source_file": str(disk), **({"format": format} if format else {})}
    if format is None:
        with pytest.raises(errors.VirtError, match="looks like qcow2: set its format"):
            host.init(disk=None, disks=[given])
        shared = RAW_GUEST.format(disk).replace("<target", "<shareable/><target")
        host.conn.defineXML(shared)  # what it declares holds for the disk
        given["shareable"] = True
    if format == "qcow2":
        with pytest.raises(
            errors.VirtError, match="has the backing file /etc/shadow, in another folder"
        ):
            host.init(disk=None, disks=[given])
        given |= {"backing_store_path": "/etc/shadow", "backing_store_format": "raw"}
    found = host.init(disk=None, disks=[given])
    assert found["disks"][0]["format"] == (format or "raw")


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a loop device: needs root")
def test_an_operators_device_is_filled_with_an_image_and_never_deleted(host, image, tmp_path):
    """A storage pool lists it, as that of a volume group lists all of its volumes."""
    (tmp_path / "back").write_bytes(bytes(16 * MIB))
    argv = ["losetup", "-f", "--show", tmp_path / "back"]
    device = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
    try:
        pool = host.conn.storagePoolCreateXML(
            "<pool type='dir'><name>vg</name><target><path>/dev</path></target></pool>"
        )
        name = os.path.basename(device)
        pool.createXML(
            f"<volume type='block'><name>{name}</name><capacity>1048576</capacity></volume>"
        )
        disks = [{"name": "system", "source_file": device, "image": image}]
        host.init(disk=None, disks=disks)
        with open(device, "rb") as file:
            assert file.read(514)[510:] == b"\x55\xaada"
        host.modules["virt.purge"]("g1")
        assert pool.listVolumes() == [name]
        assert "g1" not in names(host)
        pool.destroy()
    finally:
        subprocess.run(["losetup", "-d", device], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a loop device: needs root")
def test_no_image_is_written_onto_a_device_that_the_kernel_has(host, image, tmp_path):
    """A ZFS pool's, or an array's: no mount and no guest names the device."""
    back = tmp_path / "back"
    back.write_bytes(bytes(16 * MIB))
    argv = ["losetup", "-f", "--show", back]
    device = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
    holder = os.open(device, os.O_RDWR | os.O_EXCL)
    disks = [{"name": "system", "source_file": device, "image": image}]
    try:
        with pytest.raises(errors.Refused, match=r"cannot overwrite .*: this host itself uses it"):
            host.init(disk=None, disks=disks)
        assert not any(back.read_bytes())
        os.close(holder)
        holder = None
        host.init(disk=None, disks=disks)
        host.modules["virt.purge"]("g1")
    finally:
        if holder is not None:
            os.close(holder)
        subprocess.run(["losetup", "-d", device], check=True)


def test_a_disk_that_another_guest_got_while_the_image_was_fetched_is_not_written(
    host, tmp_path, monkeypatch
):
    """Of two inits that name one device the slower one would write over the other's disk."""
    path = tmp_path / "lent.raw"
    path.write_bytes(bytes(MIB))
    given = {"name": "lent", "source_file": str(path), "format": "raw"}
    fetch = create.CreationBuilder.fetch

    def slow(one):
        fetch(one)
        if one.spec.name == "g1":
            host.init("g2", disk=None, disks=[given])

    monkeypatch.setattr(create.CreationBuilder, "fetch", slow)
    with pytest.raises(errors.Refused, match=rf"{path} is a disk of g2"):
        host.init("g1", disk=None, disks=[given])
    assert "g1" not in names(host)
    assert "g2" in names(host)


def test_a_pipe_is_not_waited_for_to_be_uploaded(host, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    pool = host.conn.storagePoolLookupByName("default-pool")
    pool.createXML("<volume><name>v</name><capacity>1048576</capacity></volume>")
    try:
        with pytest.raises(errors.VirtError, match="not a file or block device"):
            host.modules["virt.volume_upload"]("default-pool", "v", str(tmp_path / "pipe"))
    finally:
        pool.storageVolLookupByName("v").delete()


def test_a_disk_that_came_read_only_takes_what_a_snapshot_holds(host, image):
    """libvirt cannot merge into a file of mode 0444, as early migrations left it."""
    disk = host.init(image=image)["disks"][0]["path"]
    host.modules["virt.snapshot"]("g1", "before")
    os.chmod(disk, 0o444)
    os.chmod(image, 0o444)
    host.modules["virt.delete_snapshots"]("g1", "before")
    assert os.stat(disk).st_mode & 0o777 == 0o600
    assert os.stat(image).st_mode & 0o777 == 0o444


def test_a_disk_is_a_file_or_a_block_device(host, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/zero", str(tmp_path / "pipe"), str(tmp_path)):
        with pytest.raises(errors.VirtError, match="neither a file nor a block device"):
            host.init(disk=None, disks=[{"name": "d", "source_file": path, "format": "raw"}])


def test_a_second_init_of_the_name_leaves_the_first_alone(host, image):
    host.init(image=image)
    before = host.conn.lookupByName("g1").XMLDesc()
    with pytest.raises(errors.VirtError, match="g1 already exists"):
        host.init(image=image)
    assert host.conn.lookupByName("g1").XMLDesc() == before
    assert files(host) == ["g1_system.qcow2"]


def test_a_file_in_the_way_is_left_as_it_is(host, image):
    (host.images / "g1_system.qcow2").write_text("precious")
    with pytest.raises(errors.VirtError, match="already exists and is not overwritten"):
        host.init(image=image)
    assert (host.images / "g1_system.qcow2").read_text() == "precious"
    assert "g1" not in names(host)


def test_two_inits_share_no_state(host, image, tmp_path):
    other = tmp_path / "other.raw"
    other.write_bytes(bytes(510) + b"\x55\xaa" + b"else" * 1024)
    host.init("one", image=image, enable_qcow=True)
    host.init("two", image=str(other), enable_qcow=True)
    assert info(str(host.images / "one_system.qcow2"))["backing-filename"] == image
    assert info(str(host.images / "two_system.qcow2"))["backing-filename"] == str(other)


def test_purge_removes_the_guests_disks_and_nothing_else(host, image):
    host.init("keep", image=image)
    host.init(image=image)
    (host.images / "notes.txt").write_text("mine")
    assert host.modules["virt.purge"]("g1") is True
    assert names(host) == ["keep", "test"]
    assert files(host) == ["keep_system.qcow2", "notes.txt"]
    assert os.path.exists(image)


def test_purge_leaves_what_another_guest_stands_on(host, image, tmp_path):
    host.init("below", disks=[{"name": "system", "size": 8, "format": "raw"}], disk=None)
    base, top = host.images / "below_system.raw", host.images / "above_system.qcow2"
    on_top_of(base, top, "raw")
    host.conn.defineXML(above(top))
    host.modules["virt.purge"]("below")
    assert names(host) == ["above", "test"]
    assert base.exists()


@pytest.mark.parametrize("how", ["overlay", "backing_store_path", "below"])
def test_nothing_is_made_on_top_of_a_disk_that_a_guest_writes_to(host, image, tmp_path, how):
    host.init("below", image=image, disks=[{"name": "system", "size": 16, "format": "raw"}])
    base, kind = host.images / "below_system.raw", "raw"
    if how == "below":  # what is on top of it is nobody's
        top = host.images / "top.qcow2"
        argv = ["qemu-img", "create", "-q", "-f", "qcow2", "-b", base, "-F", "raw", top]
        subprocess.run(argv, check=True)
        base, kind = top, "qcow2"
    disk = {"name": "b", "size": 16}
    disk |= {"backing_store_path": str(base), "backing_store_format": kind}
    if how == "overlay":
        (tmp_path / "link").symlink_to(base)
        disk = {"name": "b", "size": 16, "image": str(tmp_path / "link"), "overlay_image": True}
    before = files(host)
    for test in (True, False):
        with pytest.raises(errors.Refused, match=r"a disk of below, which writes to it"):
            host.init("above", disk=None, disks=[disk], test=test)
    with pytest.raises(errors.Refused, match=r"a disk of below, which writes to it"):
        host.modules["virt.update"]("below", disks=[{"name": "system"}, disk])
    assert (names(host), files(host)) == (["below", "test"], before)
    if how == "overlay":
        del disk["overlay_image"]
        host.init("copy", disk=None, disks=[disk])


def above(path):
    """The definition of a guest, by plain libvirt, with the overlay at a path."""
    xml = RAW_GUEST.replace("<name>raw", "<name>above").replace("type='raw'", "type='qcow2'")
    return xml.format(path)


def on_top_of(base, top, kind="qcow2"):
    argv = ["qemu-img", "create", "-q", "-f", "qcow2", "-b", base, "-F", kind, top]
    subprocess.run(argv, check=True)
    return {"name": "top", "source_file": str(top), "format": "qcow2"}


def test_no_disk_is_used_that_is_based_on_what_a_guest_writes_to(host):
    host.init("below", disk=None, disks=[{"name": "system", "size": 8}])
    disk = on_top_of(host.images / "below_system.qcow2", host.images / "middle.qcow2")
    disk = on_top_of(disk["source_file"], host.images / "top.qcow2")
    host.init("other", disk=None, disks=[{"name": "system", "size": 8}])
    for test in (True, False):
        with pytest.raises(errors.Refused, match=r"top.qcow2 is based on .*, a disk of below"):
            host.init("above", disk=None, disks=[disk], test=test)
        with pytest.raises(errors.Refused, match=r"top.qcow2 is based on .*, a disk of below"):
            host.modules["virt.update"]("other", disks=[{"name": "system"}, disk], test=test)
        with pytest.raises(errors.InvalidInput, match=r"which is disk vda of below: each write"):
            host.modules["virt.update"]("below", disks=[{"name": "system"}, disk], test=test)
    # a layer in the place of the disk
    more = {"disks": [{**disk, "name": "system"}], "detach": ["system"]}
    host.modules["virt.update"]("below", **more)
    assert "top.qcow2" in host.conn.lookupByName("below").XMLDesc()


def test_no_guest_is_started_that_damages_the_disk_of_another(host):
    """As somebody has made one with plain libvirt."""
    host.init("below", disk=None, disks=[{"name": "system", "size": 8}])
    disk = on_top_of(host.images / "below_system.qcow2", host.images / "top.qcow2")
    host.conn.defineXML(above(disk["source_file"]))
    for test in (True, False):
        with confidential.collect() as parts, pytest.raises(errors.Refused) as caught:
            host.modules["virt.start"]("below", test=test)
        assert "below writes to a disk on which the disk of another" in caught.value.text
        assert f"({host.images}/top.qcow2 of above): each write" in caught.value.text
        told = confidential.redact(caught.value.text, parts)
        assert "(somebody): each write" in told and "top.qcow2" not in told
    assert host.modules["virt.start"]("above") is True
    host.modules["virt.stop"]("above")
    host.conn.lookupByName("above").undefine()
    assert host.modules["virt.start"]("below") is True


def test_the_module_seeds_only_what_nobody_uses(host, image, monkeypatch):
    seeded = []
    monkeypatch.setattr(backends, "apply", lambda path, *_: seeded.append(os.path.basename(path)))

    def seed(path, **more):
        return host.modules["seed.apply"](str(path), "any", approve_key=False, **more)

    host.init("one", image=image, disks=[{"name": "system", "size": 16}])
    disk, dom = host.images / "one_system.qcow2", host.conn.lookupByName("one")
    assert seed(disk, format="qcow2") is True
    dom.create()
    with pytest.raises(errors.Refused, match=r"cannot seed .*one_system.qcow2: one uses it"):
        seed(disk, format="qcow2")
    dom.managedSave()
    with pytest.raises(errors.Refused, match="cannot seed a disk of one: it has saved memory"):
        seed(disk, format="qcow2")
    dom.managedSaveRemove()
    assert seed(disk, format="qcow2") is True
    on_top_of(disk, host.images / "top.qcow2")
    host.conn.defineXML(above(host.images / "top.qcow2"))
    with pytest.raises(errors.Refused, match=r"top.qcow2 of above is based on it"):
        seed(disk, format="qcow2")
    (host.images / "_base").mkdir()
    os.link(image, host.images / "_base" / "image.raw")
    with pytest.raises(errors.Refused, match="is a cached image, from which guests are"):
        seed(host.images / "_base" / "image.raw", format="raw")
    assert seeded == ["one_system.qcow2"] * 2


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a loop device: needs root")
@pytest.mark.parametrize("first", ["disk", "lun"])
def test_a_lun_is_one_guests_and_not_the_hosts(host, tmp_path, first):
    (tmp_path / "back").write_bytes(bytes(16 * MIB))
    argv = ["losetup", "-f", "--show", tmp_path / "back"]
    device = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
    try:
        disk = {"name": "lun", "source_file": device, "model": "scsi"}
        host.init("one", disk=None, disks=[{**disk, "device": first}])
        for kind in ("lun", "disk"):
            with pytest.raises(errors.Refused, match=rf"{device} is (a disk of|used by) one"):
                host.init("two", disk=None, disks=[{**disk, "device": kind}])
        host.modules["virt.purge"]("one")
        subprocess.run(["mkfs.ext4", "-q", device], check=True)
        (tmp_path / "mounted").mkdir()
        refused = pytest.raises(errors.Refused, match="used by this host")
        with mounted(device, tmp_path / "mounted"), refused:
            host.init("two", disk=None, disks=[{**disk, "device": "lun"}])
    finally:
        subprocess.run(["losetup", "-d", device], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a loop device: needs root")
def test_no_disk_is_a_copy_of_a_device_that_a_guest_writes_to(host, image):
    """Locks of files tell of a running guest; those of a device do not leave its own /dev."""
    argv = ["losetup", "-f", "--show", image]
    device = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
    try:
        host.init("one", disk=None, disks=[{"name": "a", "source_file": device}], start=True)
        copy = {"name": "b", "size": 16, "image": device}
        for test in (True, False):
            with pytest.raises(errors.Refused, match="a disk of one, which runs and writes to it"):
                host.init("two", disk=None, disks=[copy], test=test)
        host.modules["virt.stop"]("one")
        host.init("two", disk=None, disks=[copy])
    finally:
        subprocess.run(["losetup", "-d", device], check=True)


@pytest.mark.parametrize("verb", ["init", "update"])
def test_no_guest_writes_to_its_disk_while_that_is_copied(host, image, monkeypatch, verb):
    """A guest that is off when its disk is taken for an image may be started while that is read."""
    host.init("web1", image=image, disks=[{"name": "system", "size": 16}])
    source = str(host.images / "web1_system.qcow2")
    disk = {"name": "copy", "size": 16, "image": source}
    if verb == "update":
        host.init("web9", disks=[{"name": "system", "size": 4}])
    fill, said = clone._fill, []

    def filled(*arguments):
        method = fill(*arguments)
        argv = ["qemu-io", "-c", "write -P 7 0 64k", source]
        said.append(subprocess.run(argv, capture_output=True, text=True, check=False).stderr)
        return method

    monkeypatch.setattr(clone, "_fill", filled)
    if verb == "init":
        host.init("web9", disks=[disk])
    else:
        host.modules["virt.update"]("web9", disks=[disk])
    assert ['Failed to get "write" lock' in words for words in said] == [True]


def test_an_image_that_is_copied_is_open_to_who_would_remove_it(host, image):
    work = disk_build.DiskBuild(
        DiskSpec(name="system"), make=True, image=SimpleNamespace(path=image)
    )
    with disks.images_unchanged([work]):
        assert "has it open" in usage.open_reason(host.conn, image)
    assert usage.open_reason(host.conn, image) is None


def test_what_was_written_to_an_image_while_it_was_copied_is_no_disk(host, image, monkeypatch):
    """As on a device, where QEMU's locks are not seen."""
    fill = clone._fill

    def filled(*arguments):
        method = fill(*arguments)
        with open(image, "r+b") as file:
            file.write(b"torn")
        return method

    monkeypatch.setattr(clone, "_fill", filled)
    with pytest.raises(errors.OperationFailed, match=r"base.raw was written to during the copy"):
        host.init("web9", image=image, disks=[{"name": "system", "size": 16}])
    assert (names(host), files(host)) == (["test"], [])


def test_a_mac_of_another_guest_is_said(host):
    nics = [{"name": "lan", "type": "network", "source": "default", "mac": "52:54:00:00:00:0A"}]
    assert "warnings" not in host.init("web1", interfaces=nics)
    words = "web1 also has an interface with the MAC 52:54:00:00:00:0a: in a common network"
    for told in (
        host.init("web2", interfaces=nics),
        host.modules["virt.update"]("web2", interfaces=nics),
    ):
        assert [words in one for one in told["warnings"]] == [True]


def test_a_disk_called_seed_is_no_drive_of_cloud_init(host, image):
    """It was the drive's volume, which is deleted when the guest has read it."""
    disks = [{"name": "system", "size": 16}, {"name": "seed", "size": 4}]
    given = {"seed": "cloud-init", "image": image, "disks": disks, "test": True}
    found = [disk["path"] for disk in host.init(**given)["disks"]]
    names = ["g1_system.qcow2", "g1_seed.qcow2", "_seed/g1.iso"]
    assert found == [str(host.images / name) for name in names]


def test_an_image_for_a_volume_that_is_there_is_refused(host, image):
    """It was left out without a word."""
    pool = host.conn.storagePoolLookupByName("default-pool")
    pool.createXML("<volume><name>there</name><capacity>16777216</capacity></volume>")
    disk = {"name": "system", "pool": "default-pool", "source_file": "there", "image": image}
    with pytest.raises(errors.AlreadyExists, match="there, which an image does not over"):
        host.init(disk=None, disks=[disk])


@contextlib.contextmanager
def mounted(device, folder):
    subprocess.run(["mount", device, folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


def test_a_disk_is_shared_by_all_its_guests_or_by_none(host, tmp_path):
    (tmp_path / "quorum").write_bytes(bytes(MIB))
    disk = {"name": "quorum", "source_file": str(tmp_path / "quorum"), "format": "raw"}
    shared = {**disk, "shareable": True}
    host.init("one", disk=None, disks=[disk])
    with pytest.raises(errors.Refused, match="a disk of one, whose definition does not share it"):
        host.init("two", disk=None, disks=[shared])
    os.link(tmp_path / "quorum", tmp_path / "second")
    with pytest.raises(
        errors.Refused, match="quorum is a disk of one, whose definition does not share it"
    ):
        host.init("two", disk=None, disks=[{**shared, "source_file": str(tmp_path / "second")}])
    host.modules["virt.update"]("one", disks=[shared])
    host.init("two", disk=None, disks=[shared])


def test_a_new_disk_that_is_shared_is_raw(host):
    """libvirt starts no guest with one of another format."""
    made = host.init("one", disk=None, disks=[{"name": "a", "size": 4, "shareable": True}])
    assert [disk["format"] for disk in made["disks"]] == ["raw"]
    assert files(host) == ["one_a.raw"]


def test_what_a_disk_is_based_on_is_shared_by_nobody(host, image):
    host.init("above", image=image, enable_qcow=True)
    shared = {"name": "a", "source_file": image, "format": "raw", "shareable": True}
    for test in (True, False):
        with pytest.raises(errors.Refused, match=r"of above is based on .*: no guest may write"):
            host.init("two", disk=None, disks=[shared], test=test)


FOREIGN = """
<domain type='test'><name>foreign</name><memory unit='MiB'>16</memory>
<os><type>hvm</type></os><devices>
<disk type='file' device='disk'><source file='{0}/own.raw'/><target dev='vda'/></disk>
<disk type='file' device='disk'><source file='{0}/shared.raw'/><target dev='vdb'/><shareable/>
</disk>
<disk type='file' device='disk'><source file='{0}/ro.raw'/><target dev='vdc'/><readonly/></disk>
<disk type='file' device='cdrom'><source file='{0}/cd.iso'/><target dev='hda'/></disk>
</devices></domain>
"""


@pytest.mark.parametrize("options", [{}, {"dirs": True, "removables": True}])
def test_purge_of_a_foreign_domain_spares_media_and_shared_disks(host, options):
    folder = host.images / "sub"
    folder.mkdir()
    for name in ("own.raw", "shared.raw", "ro.raw", "cd.iso"):
        (folder / name).write_bytes(bytes(1024))
    host.conn.defineXML(FOREIGN.format(folder))
    assert host.modules["virt.purge"]("foreign", **options) is True
    assert files(host) == ["sub", "sub/cd.iso", "sub/ro.raw", "sub/shared.raw"]


@pytest.mark.parametrize("dirs", [True, False])
def test_dirs_removes_only_folders_that_are_empty(host, dirs):
    folder = host.images / "sub"
    folder.mkdir()
    host.init(disk=None, disks=[{"name": "d", "size": 1, "pool": str(folder)}])
    host.modules["virt.purge"]("g1", dirs=dirs)
    assert folder.exists() is not dirs
    assert host.images.exists()


def test_undefine_keeps_the_disks_and_refuses_a_running_guest(host, image):
    host.init(image=image, start=True)
    with pytest.raises(errors.VirtError, match="cannot undefine g1: it is running"):
        host.modules["virt.undefine"]("g1")
    host.conn.lookupByName("g1").destroy()
    assert host.modules["virt.undefine"]("g1") is True
    assert names(host) == ["test"]
    assert files(host) == ["g1_system.qcow2"]


def test_the_leftover_of_an_init_that_died_is_cleaned_by_the_next(host, image):
    host.init(image=image)
    xml = host.conn.lookupByName("g1").XMLDesc()
    host.conn.defineXML(xml.replace('created="', 'creating="1:1:dead" created="'))
    host.init(image=image)
    assert files(host) == ["g1_system.qcow2"]
    assert "creating" not in host.conn.lookupByName("g1").XMLDesc()


def test_a_guest_that_is_being_made_is_not_touched(host, image):
    from saltvirt.host.domain import metadata

    host.init(image=image)
    xml = host.conn.lookupByName("g1").XMLDesc()
    host.conn.defineXML(xml.replace('created="', f'creating="{metadata.worker()}" created="'))
    with pytest.raises(errors.VirtError, match=r"g1 is being created on .* right now"):
        host.init(image=image)
    assert files(host) == ["g1_system.qcow2"]


def test_a_disk_that_qemu_img_refuses_leaves_no_file(host):
    disks = [{"name": "system", "size": "7E", "format": "raw"}]
    with pytest.raises(errors.VirtError, match="too large"):
        host.init(disks=disks, overcommit=True)
    assert names(host) == ["test"]
    assert files(host) == []


def test_a_failure_after_the_disks_undoes_everything(host, image, monkeypatch):
    """The guest's start fails, as qemu's would: its disk folder is the real thing here."""
    from saltvirt import errors
    from saltvirt.host.domain import lifecycle

    def refuse(dom):
        raise errors.OperationFailed(f"cannot start {dom.name()}: no")

    monkeypatch.setattr(lifecycle, "start", refuse)
    with pytest.raises(errors.VirtError, match="cannot start g1: no"):
        host.init(image=image, start=True)
    assert names(host) == ["test"]
    assert files(host) == []


@pytest.mark.parametrize("who", ["a QEMU", "a guest", "another file"])
def test_an_undo_leaves_a_disk_that_somebody_uses_by_now_and_its_record(
    host, image, monkeypatch, who
):
    from saltvirt import errors
    from saltvirt.host.domain import lifecycle

    path = host.images / "g1_system.qcow2"
    with contextlib.ExitStack() as stack:

        def refuse(dom):
            if who == "a QEMU":
                stack.enter_context(opened(path, "qcow2"))
            elif who == "a guest":
                host.conn.defineXML(GUEST.format(name="web2", more="", os="", devices=disk(path)))
            else:
                path.rename(host.images / "moved")
                path.write_text("theirs")
            raise errors.OperationFailed("cannot start: no")

        monkeypatch.setattr(lifecycle, "start", refuse)
        words = {
            "a QEMU": "has it open",
            "a guest": "used by web2",
            "another file": "a different file",
        }
        with pytest.raises(
            errors.VirtError, match=rf"no; could not undo: delete .*{words[who]}.*defined"
        ):
            host.init(image=image, start=True)
    assert path.exists()
    assert "g1" in names(host)


@pytest.mark.parametrize("verb", ["init", "clone", "rename"])
@pytest.mark.parametrize("as_text", [str, str.upper])
def test_no_guest_has_the_minion_id_of_its_host(host, image, verb, as_text):
    """The master would deny its key, and hand what is for one to the other."""
    name = as_text(host.modules.opts["id"])
    given = {"init": (name, 1, 64), "clone": ("g1", name), "rename": ("g1", name)}[verb]
    host.init(image=image, disks=[{"name": "system", "size": 16}])
    for test in (True, False):
        with pytest.raises(errors.InvalidInput, match=f"{name} cannot .*this host's minion id"):
            host.modules[f"virt.{verb}"](*given, test=test)
    assert names(host) == ["g1", "test"]


@pytest.mark.parametrize("accepted", [True, False])
def test_an_answer_says_that_the_master_did_not_accept_the_key(host, image, monkeypatch, accepted):
    known, handed = host.modules["virt.init"].__globals__, []

    def hand_in(_functions, name, key):
        handed.append((name, key))
        return accepted

    def tools(*asked, real=known["_tools"]):
        return replace(real(*asked), seeder=lambda *_disk: f"key of {asked[0]}")

    monkeypatch.setitem(known, "_tools", tools)
    monkeypatch.setattr(known["client"], "submit_key", hand_in)
    given = {"image": image, "disks": [{"name": "system", "size": 16}], "seed": True}
    found = [
        host.init(**given),
        host.modules["virt.clone"]("g1", "g2"),
        host.modules["virt.rename"]("g2", "g3"),
    ]
    assert handed == [(name, f"key of {name}") for name in ("g1", "g2", "g3")]
    for answer, (name, _) in zip(found, handed, strict=True):
        said = answer.get("warnings", [])
        assert len(said) == (not accepted), said
        for text in said:
            assert text.startswith(f"the master has not accepted the key of {name}: salt-key -l")
            assert f"virt.authorize {name} {host.modules.opts['id']}, before" in text
    assert "warnings" not in host.init(name="g4", approve_key=False, **given)
    assert len(handed) == 3


@pytest.mark.parametrize("kind", [errors.Refused, errors.NoRoom])
def test_a_refusal_that_could_not_be_undone_is_none(host, image, monkeypatch, kind):
    """After a refusal the runner has another host create the guest: it would be there twice."""
    path, stays = host.images / "g1_system.qcow2", contextlib.ExitStack()

    def refuse(_builder):
        stays.enter_context(opened(path, "qcow2"))
        raise kind("8 GiB are promised to others")

    monkeypatch.setattr(create.CreationBuilder, "start", refuse)
    with stays, pytest.raises(errors.OperationFailed) as caught:
        host.init(image=image, start=True)
    begins, _, left = caught.value.text.partition("; could not undo: ")
    assert begins == "8 GiB are promised to others" and str(path) in left
    assert path.exists() and "g1" in names(host)


@pytest.mark.parametrize(
    ("size_bytes", "by_default", "left"),
    [(None, True, None), (None, False, None), (2**20, True, None), (2**30, True, 2**30)],
)
def test_a_disk_of_which_nobody_said_a_size_takes_any_image(size_bytes, by_default, left):
    """A device that is there has no size of ours at all."""
    spec = SimpleNamespace(name="system", size_bytes=size_bytes, size_is_default=by_default)
    image = SimpleNamespace(virtual_size_bytes=2**25)
    disks.check_image_size(SimpleNamespace(spec=spec, image=image))
    assert spec.size_bytes == left
