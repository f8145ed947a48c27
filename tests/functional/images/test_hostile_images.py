"""Hostile images through each function: no other file is read, nothing hangs or grows, and one line
is reported."""

import contextlib
import os
import resource
import shutil
import struct
import subprocess
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.host.domain import disk_info
from saltvirt.host.migration import guest_disks
from saltvirt.host.storage import chains
from saltvirt.images import cache, chain, clone, header, inspect
from tests.driver import only_test
from tests.functional import asking
from tests.functional.conftest import load_with_folders
from tests.functional.hostile import only
from tests.functional.hostile_images import CANARY, IMAGES, MIB, Bait, Qcow2, Watch

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="special files and name spaces: root")

LONGEST_S = 60
OWN_MEMORY = 256 * MIB
# what is a disk all the same, with its size as QEMU tells it; all else is refused
DISKS = {
    "qcow2 with an empty backing name": MIB,
    "qcow2 with a backing name in its own header": MIB,
    "qcow2 of version 2": MIB,
    "qcow2 marked dirty": MIB,
    "qcow2 of 777 bytes": 512,
    "qcow2 of 1 EiB": 2**60,
    "qcow2 with an L1 table in its header": MIB,
    "qcow2 with its refcounts beyond all": MIB,
    "qcow2 with snapshots beyond its end": MIB,
    "qcow2 that is a compressed bomb": 2**40,
    "qcow2 that ends behind its header": MIB,
    "VDI that is a difference": MIB,
    "VPC of fixed size, as raw": 1079808,
    "DMG behind an MBR": 66048,
    "raw of 777 bytes": 1024,
    "raw of 1 TiB": 2**40,
    "raw of 15 TiB": 15 * 2**40,
}
# of those, what a download is not admitted with: its tables are read through
TORN = {
    "qcow2 with an L1 table in its header",
    "qcow2 with its refcounts beyond all",
    "qcow2 with snapshots beyond its end",
    "qcow2 that is a compressed bomb",
    "qcow2 that ends behind its header",
}
# attacks of each kind, for what takes longer
SOME = [
    "qcow2 on a path", "qcow2 on json", "qcow2 on escapes", "qcow2 on a fifo", "qcow2 on itself",
    "qcow2 with a data file", "qcow2 with feature names for a terminal", "qcow2 of no size",
    "qcow2 with names of snapshots for a terminal", "VMDK of text, monolithicFlat",
    "VMDK flat inside", "VDI with 2^29 blocks", "packed by gzip", "a fifo", "a memory",
]  # fmt: skip


def some(*more, of=IMAGES):
    """Those of SOME by default, all of them when slow tests are asked for."""
    return only(*SOME, *more, of=of)


@pytest.fixture
def bait(tmp_path):
    folder = tmp_path / "hypervisor"
    folder.mkdir()
    elsewhere = folder / "shadow"
    elsewhere.write_bytes(bytes(510) + b"\x55\xaa" + CANARY * 10_000)
    (tmp_path / "here").mkdir()
    beside = tmp_path / "here" / "neighbour.raw"
    beside.write_bytes(bytes(510) + b"\x55\xaa" + CANARY * 1000)
    return Bait(elsewhere, beside)


@pytest.fixture
def place(tmp_path, bait):
    """Where the image comes to lie."""
    return tmp_path / "here" / "image"


def everything(*folders):
    """All names below the folders, with kinds and sizes."""
    found = {}
    for folder in folders:
        for top, names, files in os.walk(folder):
            for name in names + files:
                status = os.lstat(os.path.join(top, name))
                size = status.st_size if name in files else None
                found[os.path.join(top, name)] = (status.st_mode, size)
    return found


@contextlib.contextmanager
def judged(longest_s=LONGEST_S):
    """What a door says is one line and one of our errors; it neither hangs nor grows."""
    said = SimpleNamespace(error=None)
    begin = sum(os.times()[:4])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        yield said
    except errors.VirtError as exc:
        said.error = one_line(exc)
    took = sum(os.times()[:4]) - begin  # of this process and its tools: hosts are busy
    assert took < longest_s, took
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak
    assert grown * 1024 < OWN_MEMORY, grown


def one_line(exc):
    told = str(exc)
    assert told.isprintable() and told, repr(told[:300])
    assert len(told) < 3000, len(told)
    assert CANARY.decode() not in told
    return told


def holds_bait(path):
    """Whether what was made has the canary in its data; holes are passed over."""
    with open(path, "rb") as file:
        end = 0
        while True:
            try:
                start = os.lseek(file.fileno(), end, os.SEEK_DATA)
            except OSError:  # only a hole is left
                return False
            end = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            if CANARY in os.pread(file.fileno(), end - start, start):
                return True


# -- an image that lies on the host -------------------------------------------------------


@pytest.mark.parametrize("name", IMAGES)
def test_a_file_on_the_host(tmp_path, bait, place, name):
    IMAGES[name](place, bait)
    before = everything(tmp_path)
    with Watch(bait.file) as watch, judged() as said:
        found = cache.fetch(str(place), tmp_path / "images")
    assert (said.error is None) == (name in DISKS), said.error
    if name in DISKS:
        assert found.virtual_size_bytes == DISKS[name]
    assert not watch.seen
    assert everything(tmp_path) == before


WAYS = {
    "raw": {"format": "raw"},
    "qcow2": {"format": "qcow2"},
    "overlay": {"format": "qcow2", "overlay": True},
}


MADE = ["qcow2 of 777 bytes", "qcow2 of 1 EiB", "qcow2 that is a compressed bomb",
        "qcow2 with snapshots beyond its end", "raw of 777 bytes", "raw of 15 TiB"]  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", some(*MADE, of=DISKS))
def test_a_disk_made_of_it(tmp_path, bait, place, name, way):
    """It is as large as was said and takes no room that nobody looked for; or nothing is left."""
    IMAGES[name](place, bait)
    info = inspect.inspect(place)
    before = everything(tmp_path)
    target = tmp_path / "disk"
    made = None
    with Watch(bait.file) as watch, judged():
        made = clone.clone(info, target, **WAYS[way])
    assert not watch.seen
    if made is None:
        assert everything(tmp_path) == before
        return
    assert os.stat(target).st_blocks * 512 < 16 * MIB
    assert not holds_bait(target)
    base = {"folders": ["/"], "format": made.format}
    assert inspect.inspect(target, **base).virtual_size_bytes == made.size_bytes == DISKS[name]


# -- an image that comes from elsewhere ---------------------------------------------------


class Served:
    """A server with one file, which may be any."""

    def __init__(self, path):
        self.path = path

    def version(self, _source):
        return {"ETag": "1"}

    def fetch(self, _source, target, version, _progress):
        shutil.copyfile(self.path, target)
        os.truncate(target, min(os.path.getsize(self.path), 64 * MIB))
        return version


DOWNLOADED = [name for name in IMAGES if not name.startswith(("a ", "raw of 1"))]


@pytest.mark.parametrize("name", some(*TORN, "qcow2 on the bait beside it, raw", of=DOWNLOADED))
def test_a_download(tmp_path, bait, place, name):
    IMAGES[name](place, bait)
    images = tmp_path / "images"
    good = tmp_path / "good.qcow2"
    Qcow2().write(good)
    cache.fetch("salt://good.qcow2", images, Served(good))
    before = everything(images)
    with Watch(bait.file, bait.beside) as watch, judged() as said:
        cache.fetch("salt://evil.qcow2", images, Served(place))
    assert (said.error is None) == (name in {*DISKS} - TORN), said.error
    assert not watch.seen
    left = {path: kind for path, kind in everything(images).items() if "/.locks/" not in path}
    if said.error:
        assert str(images) not in said.error  # the user knows the address, not our folders
        assert left == {path: kind for path, kind in before.items() if "/.locks/" not in path}


# -- the doors of a host ------------------------------------------------------------------


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """The modules, which take a while to load, their images folder, and libvirt."""
    folder = tmp_path_factory.mktemp("host")
    conn = libvirt.open("test:///default")
    yield load_with_folders(folder), folder / "images", conn
    conn.close()


@pytest.fixture
def host(loaded):
    """A hypervisor on libvirt's test driver, with its images folder, which is empty."""
    modules, images, conn = loaded
    only_test(conn)

    def init(disks=None, **more):
        given = {"seed": False, "start": False, "nic": None, "disk": None, **more}
        if disks:
            given["disks"] = disks
        return modules["virt.init"]("evil", 1, 64, **given)

    yield SimpleNamespace(modules=modules, conn=conn, images=images, init=init)
    only_test(conn)
    shutil.rmtree(images)
    images.mkdir()


def _image(host, path, _bait):
    host.init(image=str(path), disk="default")


def _overlay(host, path, _bait):
    host.init(image=str(path), disk="default", enable_qcow=True)


def _fetch(host, path, _bait):
    host.modules["virt.image_fetch"](str(path))


def _hash(host, path, _bait):
    host.modules["virt.image_fetch"](str(path), image_hash="sha256:" + 64 * "0")


def _there(host, path, _bait):
    host.init([{"name": "d", "source_file": str(path)}])


def _declared(host, path, _bait):
    host.init([{"name": "d", "source_file": str(path), "format": "qcow2"}])


def _below(host, path, _bait):
    given = {"backing_store_path": str(path), "backing_store_format": "qcow2"}
    host.init([{"name": "d", "size": 16, "format": "qcow2", **given}])


def _seed(host, path, _bait):
    host.modules["seed.apply"](str(path), "evil", approve_key=False)


DOORS = {
    "image": _image,
    "overlay": _overlay,
    "image_fetch": _fetch,
    "image_hash": _hash,
    "source_file": _there,
    "source_file, qcow2": _declared,
    "backing_store_path": _below,
    "seed.apply": _seed,
}
EMPTY = {"qcow2 of no size", "qcow2 of one byte"}
EVIL = [name for name in IMAGES if name not in DISKS and name not in EMPTY]
# a base in the same folder is taken where the caller says the format
BESIDE = ["qcow2 on the bait beside it, raw"]
# attacks that only what follows a header falls for
LED = ["qcow2 on a path", "qcow2 on a path, raw", "qcow2 on json", "qcow2 with a data file"]
QUICK = [*LED, "qcow2 with feature names for a terminal", "VMDK flat inside", "a fifo"]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", only(*QUICK, of=EVIL))
def test_a_door_of_the_host(tmp_path, host, bait, place, name, door):
    IMAGES[name](place, bait)
    before = everything(host.images, tmp_path / "here")
    with judged() as said:
        DOORS[door](host, place, bait)
    there = host.conn.listAllDomains()
    if said.error is None:
        said_by_caller = door.startswith("source_file") or name in BESIDE
        assert said_by_caller and name not in LED, "it was taken"
        return
    assert [dom.name() for dom in there] == ["test"]
    found = everything(host.images, tmp_path / "here")
    left = {path: kind for path, kind in found.items() if "/_base" not in path}
    assert left == before


def test_a_disk_on_another_folders_is_meant_when_it_is_named(tmp_path, host, bait, place):
    IMAGES["qcow2 on a path, raw"](place, bait)
    disk = {"name": "d", "source_file": str(place), "format": "qcow2"}
    with pytest.raises(errors.InvalidInput, match=r"backing_store_path: .*shadow"):
        host.init([disk])
    named = {"backing_store_path": str(bait.file), "backing_store_format": "raw"}
    host.init([{**disk, **named}])
    assert "evil" in [dom.name() for dom in host.conn.listAllDomains()]


GUEST = """<domain type='test'><name>evil</name><memory>65536</memory><os><type>hvm</type></os>
<devices><disk type='file' device='disk'><driver name='qemu' type='{}'/><source file='{}'/>
<target dev='vda' bus='virtio'/></disk></devices></domain>"""


@pytest.mark.parametrize("name", only(*QUICK, of=EVIL))
def test_a_guest_that_wrote_it_to_its_raw_disk(tmp_path, host, bait, place, name):
    """Whatever a guest wrote there is data: nothing it names is opened, needed or deleted."""
    IMAGES[name](place, bait)
    host.conn.defineXML(GUEST.format("raw", place))
    with Watch(bait.file) as watch:
        with judged():
            told = host.modules["virt.get_disks"]("evil")
            assert CANARY.decode() not in repr(told)
        with judged():
            host.modules["virt.vm_info"]("evil")
        with judged():
            host.modules["virt.full_info"]()
        with judged():
            asking.answer(host.modules, "virt.inventory")
        with judged():
            plan = host.modules["virt.purge"]("evil", test=True, disks="own")
            assert str(bait.file) not in plan["delete"] + list(plan["keep"])
    # a link that lies in the folder of disks is looked at for its own sake
    assert not watch.seen or name == "qcow2 on a link"


OF_A_GUEST = {
    "shared": lambda host, path, _bait: host.init(
        [{"name": "d", "source_file": str(path), "format": "qcow2", "shareable": True}]
    ),
    **{name: DOORS[name] for name in ("backing_store_path", "image", "overlay")},
}


@pytest.mark.parametrize("door", OF_A_GUEST)
@pytest.mark.parametrize("name", [LED[0], *BESIDE])
def test_a_raw_disk_of_a_guest_is_no_qcow2_whatever_it_and_the_caller_say(
    host, bait, place, name, door
):
    """The format of its definition holds: whatever looks like another one its guest wrote."""
    IMAGES[name](place, bait)
    host.conn.defineXML(GUEST.format("raw", place).replace("evil", "owner"))
    with Watch(bait.file, bait.beside) as watch, judged() as said:
        OF_A_GUEST[door](host, place, bait)
    assert not watch.seen
    if "image" in door or door == "overlay":
        return  # it is taken for the raw image that it is
    assert "is raw by the definition of its guest" in said.error
    assert sorted(dom.name() for dom in host.conn.listAllDomains()) == ["owner", "test"]


@pytest.mark.parametrize("format", ["qcow2", None])
@pytest.mark.parametrize(
    "name",
    only(*QUICK, "QED on deep json", "qcow2 with names of snapshots for a terminal", of=IMAGES),
)
def test_what_a_disk_stands_on_is_told_whatever_is_in_it(tmp_path, bait, place, name, format):
    """To know what is needed; and what qemu-img is asked is one line where it refuses."""
    IMAGES[name](place, bait)
    with judged():
        chains.read(str(place), format)
        chain.read(str(place), format)
    for ask in (disk_info.read, guest_disks.images):
        with judged():
            ask(str(place), format or "qcow2")


# -- headers of noise ---------------------------------------------------------------------

HEADS = {
    "qcow2": Qcow2(backing=b"base", extensions=[(0x6803F857, b"names"), (0x44415441, b"data")]),
    "qcow2 v2": Qcow2(version=2, backing=b"json:{}"),
    "qcow": Qcow2(version=1, backing=b"base"),
}


def _qed():
    head = struct.pack("<4sIIIQQQQQII", b"QED\0", 65536, 4, 1, 1, 0, 0, 65536, MIB, 72, 4)
    return head.ljust(72, b"\0") + b"base"


def heads():
    """Whole headers, as they are torn below."""
    text = b'# Disk DescriptorFile\ncreateType="monolithicSparse"\nparentCID=ffffffff\n'
    vmdk = struct.pack("<4sIIQQQQ", b"KDMV", 1, 3, 2048, 128, 1, 20).ljust(512, b"\0") + text
    return [one.bytes() for one in HEADS.values()] + [_qed(), vmdk]


NUMBERS = [0, 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1, 104, 512, 65536]
DEFAULT = settings(max_examples=1500 if os.environ.get("SLOW") else 100, deadline=None,
                   derandomize=True, database=None)  # fmt: skip


@st.composite
def torn(draw):
    """A header with some of its fields and bytes changed, cut or grown."""
    head = bytearray(draw(st.sampled_from(heads())).ljust(1200, b"\0"))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(4, 120) | st.integers(0, len(head) - 9))
        if draw(st.booleans()):
            order = draw(st.sampled_from([">Q", "<Q"]))
            struct.pack_into(order, head, at, draw(st.sampled_from(NUMBERS)))
        else:
            noise = draw(st.binary(max_size=40))
            head[at : at + len(noise)] = noise
    return bytes(head[: draw(st.integers(0, len(head)))])


@DEFAULT
@given(torn())
def test_a_torn_header_is_read_or_refused(head):
    try:
        found = header.detect(head, "image")
    except errors.ImageError as exc:
        one_line(exc)
        return
    for name in (found.backing, found.backing_format, found.data_file):
        assert name is None or ("\0" not in name and len(name) <= 1200)
    for name in (found.backing, found.data_file):
        with contextlib.suppress(errors.ImageError):  # only what lies in the folder is left
            assert not name or inspect._inside(name, "/images/i", ["/images"]).startswith("/images")


@DEFAULT
@given(st.text(max_size=1100) | st.binary(max_size=1000).map(lambda b: b.decode("utf-8", "ignore")))
def test_any_name_of_a_backing_file_leads_nowhere_else(name):
    name = name.replace("\0", "")
    with contextlib.suppress(errors.ImageError, OSError):
        assert inspect._inside(name, "/images/i", ["/images"]).startswith("/images")
    found = chains.ChainScan()
    chains._candidates(found, "/images/i", name, None)
    chains._candidates(found, "/images/i", "json:" + name, None)
    chains._candidates(found, "/images/i", "json:" + '{"a":[' * len(name), None)


@pytest.mark.parametrize("format", ["qcow2", "raw"])
def test_an_image_that_is_replaced_after_it_was_looked_at_leads_nowhere(
    tmp_path, monkeypatch, format
):
    """Somebody may write to the folder that the operator has named."""
    secret, image, other = (tmp_path / name for name in ("secret", "image.qcow2", "other.qcow2"))
    secret.write_bytes(b"root:$6$secret" * 5000)
    qemu_img = ["qemu-img", "create", "-q", "-f", "qcow2"]
    subprocess.run([*qemu_img, image, "1M"], check=True)
    subprocess.run([*qemu_img, "-b", secret, "-F", "raw", other, "1M"], check=True)
    real = clone.inspect.inspect

    def replaced(*args, **more):
        found = real(*args, **more)
        os.replace(other, image)
        return found

    monkeypatch.setattr(clone.inspect, "inspect", replaced)
    with pytest.raises(errors.ImageError):
        clone.clone(real(str(image)), str(tmp_path / "disk"), format)
    assert sorted(os.listdir(tmp_path)) == ["image.qcow2", "secret"]
