"""Hostile images as volumes of a real storage pool, through each function of pools and volumes:
libvirt detects their formats from their content and runs qemu-img accordingly."""

import contextlib
import errno
import os
import shutil
from types import SimpleNamespace

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.host.storage import upload
from tests.functional import asking
from tests.functional.conftest import load
from tests.functional.daemon import libvirtd  # noqa: F401
from tests.functional.hostile import only
from tests.functional.hostile_images import CANARY, IMAGES, MIB, Bait, Qcow2
from tests.functional.images.test_hostile_images import holds_bait, judged

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a libvirtd of our own needs root")

QUICK = ["qcow2 on a path, raw", "qcow2 on a fifo"]
UNREADABLE = ["qcow2 on escapes", "qcow2 on half a character"]
NOWHERE = ["qcow2 on a name too long", "qcow2 on what is below a file"]
# the kernel may keep root, too, from the root of another process
FORBIDDEN = "qcow2 on another's root"
# what cannot lie in a pool as a volume: libvirt passes it over
NO_VOLUME = {f"a {kind}" for kind in ("fifo", "socket", "device", "circle", "nowhere", "descriptor",
                                      "memory")}  # fmt: skip
# libvirt reads every byte of a hole: a quarter of an hour for 1 TiB
HOLLOW = {"raw of 1 TiB", "raw of 15 TiB"}
# qemu-img has two minutes to say how large a copy will be, and needs them where tables are huge
MEASURED = {"qcow2 of 1 EiB"}
GUEST = """<domain type='qemu'><name>owner</name><memory>65536</memory><os><type>hvm</type></os>
<devices><disk type='file'><driver name='qemu' type='{}'/><source file='{}'/>
<target dev='vda' bus='virtio'/></disk></devices></domain>"""


@pytest.fixture(scope="module")
def loaded(libvirtd, tmp_path_factory):  # noqa: F811
    folder = tmp_path_factory.mktemp("host")
    (folder / "images").mkdir()
    places = {"images": str(folder / "images"), "lock": str(folder / "lock")}
    conn = libvirt.open(libvirtd.uri)
    yield load(libvirtd.uri, overcommit=True, **places), folder / "images", conn
    conn.close()


@pytest.fixture
def host(loaded, tmp_path):
    """A hypervisor with a started pool ``p``, in which ``good.qcow2`` lies, and a bait."""
    modules, images, conn = loaded
    folder, elsewhere = tmp_path / "pool", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    bait = Bait(elsewhere / "shadow", folder / "neighbour.raw")
    bait.file.write_bytes(bytes(510) + b"\x55\xaa" + CANARY * 10_000)
    bait.beside.write_bytes(bytes(510) + b"\x55\xaa" + CANARY * 1000)
    Qcow2().write(folder / "good.qcow2")
    modules["virt.pool_define"]("p", "dir", target=str(folder))
    found = SimpleNamespace(
        call=lambda name, *a, **k: asking.answer(modules, f"virt.{name}", *a, **k)
    )
    found.folder, found.images, found.bait, found.conn = folder, images, bait, conn
    found.seen = {path: path.read_bytes() for path in (bait.file, bait.beside)}
    yield found
    for dom in conn.listAllDomains():
        dom.undefine()
    pool = conn.storagePoolLookupByName("p")
    if pool.isActive():
        pool.destroy()
    pool.undefine()
    shutil.rmtree(images)
    images.mkdir()


def put(host, name):
    """The image as the volume ``evil`` of the pool."""
    IMAGES[name](host.folder / "evil", host.bait)
    try:
        host.call("pool_refresh", "p")
    except errors.OperationFailed as exc:
        assert str(exc).isprintable()
        pytest.skip("libvirt itself refreshes no pool that has it")


def init(host, **more):
    host.call("init", "web1", 1, 64, seed=False, start=False, nic=None, **more)


def _given(host, **more):
    init(host, disk=None, disks=[{"name": "d", "pool": "p", "source_file": "evil", **more}])


def _based(host):
    base = {"path": str(host.folder / "evil"), "format": "qcow2"}
    host.call("volume_define", "p", "new", 1, format="qcow2", backing_store=base)


def _based_by_xml(host):
    base = f"<path>{host.folder}/evil</path><format type='qcow2'/>"
    xml = f"<volume><name>new</name><capacity>{MIB}</capacity><target><format type='qcow2'/>"
    host.call("define_vol_xml_str", f"{xml}</target><backingStore>{base}</backingStore></volume>",
              pool="p")  # fmt: skip


def _onto(host):
    host.call("volume_upload", "p", "evil", str(host.folder / "good.qcow2"))


DOORS = {
    "volume_clone": lambda host: host.call("volume_clone", "p", "evil", "new"),
    "volume_resize": lambda host: host.call("volume_resize", "p", "evil", "1G"),
    "volume_define on it": _based,
    "define_vol_xml_str on it": _based_by_xml,
    "volume_upload onto it": _onto,
    "image": lambda host: init(host, image="pool://p/evil"),
    "overlay": lambda host: init(host, image="pool://p/evil", enable_qcow=True),
    "image_fetch": lambda host: host.call("image_fetch", "pool://p/evil"),
    "source_file": _given,
    "source_file of a format": lambda host: _given(host, format="qcow2"),
}
VOLUMES = [name for name in IMAGES if name not in NO_VOLUME]
# nothing of these may be used, by any door but that which writes over them; what lies BESIDE it
# where the caller says the format
LED = {"qcow2 on a path, raw", "qcow2 on a fifo", "qcow2 with a data file"}
BESIDE = {"qcow2 on a fifo"}


def unharmed(host):
    """What only the hypervisor may read was neither changed nor copied to anywhere."""
    for path, content in host.seen.items():
        assert path.read_bytes() == content
    for folder in (host.folder, host.images):
        for path in folder.rglob("*"):
            if path.is_file() and not path.is_symlink() and path not in host.seen:
                assert not holds_bait(path), path


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", only(*QUICK, of=VOLUMES))
def test_a_door_of_a_pool(host, name, door):
    if name in HOLLOW and door == "volume_clone":
        pytest.skip("libvirt reads through its hole")
    put(host, name)
    before = sorted(os.listdir(host.folder))
    longest = {"longest_s": 600} if name in MEASURED and door == "volume_clone" else {}
    with judged(**longest) as said:
        DOORS[door](host)
    unharmed(host)
    if said.error:
        assert sorted(os.listdir(host.folder)) == before
        assert host.conn.listAllDomains() == []
    elif "onto" not in door:
        assert name not in LED or (name in BESIDE and "format" in door), "it was taken"


@pytest.mark.parametrize("name", only(*UNREADABLE, *NOWHERE, FORBIDDEN, of=VOLUMES))
def test_one_bad_volume_costs_its_own_entry(host, name):
    put(host, name)
    with judged():
        told = host.call("volume_infos")["p"]
    assert told["good.qcow2"]["capacity"] == MIB
    assert CANARY.decode() not in repr(told)
    with judged():
        assert "good.qcow2" in host.call("pool_list_volumes", "p")
    with judged():
        host.call("pool_info", "p")
    with judged():
        host.call("inventory")
    if name == FORBIDDEN and not os.access("/proc/1/root/etc/passwd", os.R_OK):
        with pytest.raises(errors.InvalidInput, match=f"files of {host.folder}/evil"):
            host.call("volume_delete", "p", "good.qcow2")
        assert host.call("volume_delete", "p", "evil") is True
    assert host.call("volume_delete", "p", "good.qcow2") is True
    unharmed(host)


@pytest.mark.parametrize("name", only(QUICK[0], UNREADABLE[1], "QED on a path", of=VOLUMES))
def test_an_upload_is_data(host, tmp_path, name):
    """Whatever is in the file: what lies in the volume afterwards is that, and leads nowhere."""
    source = tmp_path / "elsewhere/source"
    IMAGES[name](source, host.bait)
    host.call("volume_define", "p", "evil", "1M", format="raw")
    with judged() as said:
        host.call("volume_upload", "p", "evil", str(source))
    if said.error:
        assert "fit" in said.error or "no file" in said.error
        return
    size = source.stat().st_size
    with open(source, "rb") as one, open(host.folder / "evil", "rb") as other:
        assert one.read() == other.read(size)
    with judged():
        DOORS["volume_clone"](host)
    unharmed(host)


def _says(domain, code):
    found = libvirt.libvirtError("it is QED")
    found.err = (code, domain, "it is QED", 0, "", "", "", 0, 0)
    return found


@pytest.mark.parametrize(
    ("said", "fails"),
    [
        (errors.OperationFailed("it is QED"), None),
        (_says(libvirt.VIR_FROM_STORAGE, libvirt.VIR_ERR_SYSTEM_ERROR), None),
        (_says(libvirt.VIR_FROM_STORAGE, libvirt.VIR_ERR_NO_STORAGE_VOL), "it is QED"),
    ],
)
def test_an_upload_of_what_cannot_be_told_has_not_failed(host, monkeypatch, said, fails):
    real, told = upload.volumes.describe, []

    def untold(volume):
        told.append(volume)
        if len(told) > 1:  # what was uploaded
            raise said
        return real(volume)

    host.call("volume_define", "p", "evil", "1M", format="raw")
    monkeypatch.setattr(upload.volumes, "describe", untold)
    with pytest.raises(errors.VirtError, match=fails) if fails else contextlib.nullcontext():
        assert host.call("volume_upload", "p", "evil", str(host.folder / "good.qcow2")) is True


@pytest.mark.parametrize("sparse", [True, False])
def test_a_file_that_cannot_be_read_to_its_end_leaves_the_volume_as_large_as_it_was(
    host, tmp_path, monkeypatch, sparse
):
    source, real = tmp_path / "elsewhere/source", os.lseek
    source.write_bytes(b"x" * 65536)
    host.call("volume_define", "p", "v", "1M", format="raw")

    def fails(descriptor, at, what):
        if what == os.SEEK_DATA or (what == os.SEEK_SET and at):
            raise OSError(errno.EIO, "Input/output error")
        return real(descriptor, at, what)

    def torn(*_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(upload.os, "lseek", fails)
    monkeypatch.setattr(upload._SparseReader, "read", torn)
    with pytest.raises(errors.OperationFailed, match=f"upload {source}: Input/output"):
        host.call("volume_upload", "p", "v", str(source), sparse=sparse)
    monkeypatch.undo()
    assert (host.folder / "v").stat().st_size == MIB
    assert host.call("volume_upload", "p", "v", str(source), sparse=sparse) is True


def test_a_volume_that_goes_while_it_is_written_has_not_got_it(host, tmp_path, monkeypatch):
    source, read = tmp_path / "elsewhere/source", upload._SparseReader.read
    source.write_bytes(b"x" * 65536)
    host.call("volume_define", "p", "v", "1M", format="raw")

    def meanwhile(*words):
        (host.folder / "v").unlink(missing_ok=True)
        return read(*words)

    monkeypatch.setattr(upload._SparseReader, "read", meanwhile)
    with pytest.raises(errors.NotFound, match=f"upload {source} to volume v in storage pool p"):
        host.call("volume_upload", "p", "v", str(source))


@pytest.mark.parametrize(
    "door",
    ["volume_clone", "volume_resize", "volume_define on it", "define_vol_xml_str on it"],
)
def test_what_a_guest_wrote_to_its_raw_disk_is_not_followed(host, door):
    """Not even to where a volume may have a backing file."""
    host.conn.defineXML(GUEST.format("raw", host.folder / "evil"))
    put(host, "qcow2 on the bait beside it, raw")
    with pytest.raises(errors.ImageError, match="raw by the definition of its guest, but qcow2"):
        DOORS[door](host)
    unharmed(host)


def test_a_copy_that_would_fill_the_pool_is_not_begun(host):
    """However small the file is: it can name one block of data very often."""
    put(host, "qcow2 that is a compressed bomb")
    with pytest.raises(errors.ImageError, match=r"a copy of .*/evil takes 1 TiB, .* free"):
        DOORS["volume_clone"](host)
    assert not (host.folder / "new").exists()
    assert host.call("volume_clone", "p", "good.qcow2", "new") is True


def test_a_disk_on_another_is_cloned_where_a_guest_declares_it(host):
    host.conn.defineXML(GUEST.format("qcow2", host.folder / "evil"))
    Qcow2(backing=b"good.qcow2").write(host.folder / "evil")
    host.call("pool_refresh", "p")
    assert DOORS["volume_clone"](host) is True
    host.conn.lookupByName("owner").undefine()
    with pytest.raises(errors.ImageError, match=r"a guest could have written that .* qemu-img"):
        host.call("volume_clone", "p", "evil", "another")
