"""What a verb that was killed has left: nothing is lost, the verb again ends it or names what is
there, and what is left is listed."""

import contextlib
import os
import subprocess

import pytest

pytest.importorskip("libvirt")
pytest.importorskip("salt")

import libvirt

from saltvirt.fleet import shape
from saltvirt.host.migration import reservations
from saltvirt.host.provision import making
from tests.functional import killing
from tests.functional.conftest import load
from tests.functional.daemon import libvirtd  # noqa: F401

MIB = 1024**2
OURS = b"what the guest wrote"
GUEST = """<domain type='qemu'><name>{name}</name><memory>65536</memory>
<os><type arch='x86_64'>hvm</type></os><devices>{disks}</devices></domain>"""
DISK = """<disk type='file' device='disk'><driver name='qemu' type='{format}'/>
<source file='{path}'/><target dev='{target}' bus='virtio'/></disk>"""
POOL = "<pool type='dir'><name>p</name><target><path>{}</path></target></pool>"


class Host:
    """A hypervisor on a libvirtd of our own: its modules, and a folder of its own."""

    FILES = ()

    def __init__(self, uri, folder):
        self.uri, self.folder, self.images = uri, folder, folder / "images"
        self.images.mkdir(exist_ok=True)
        making.FOLDER = str(folder / "making")
        reservations.FOLDER = str(folder / "arrivals")
        placement = {"reserved_memory_kib": 0, "memory_ratio": 100, "reserved_disk_bytes": 0}
        self.modules = load(
            uri, images=str(self.images), lock=str(folder / "lock"), placement=placement
        )
        for verb in ("update", "leftovers", "purge", "snapshot", "pool_define", "volume_define"):
            self.modules[f"virt.{verb}"]  # loaded once, not in each process

    def call(self, verb, *args, **kwargs):
        return self.modules[f"virt.{verb}"](*args, **kwargs)

    @contextlib.contextmanager
    def conn(self):
        conn = libvirt.open(self.uri)
        try:
            yield conn
        finally:
            conn.close()

    def clear(self):
        """No guests, no pools, no files."""
        with self.conn() as conn:
            for dom in conn.listAllDomains():
                dom.undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA)
            for pool in conn.listAllStoragePools():
                with contextlib.suppress(libvirt.libvirtError):
                    pool.destroy()
                with contextlib.suppress(libvirt.libvirtError):
                    pool.undefine()
        subprocess.run(["find", self.folder, "-type", "f", "-delete"], check=True)

    def left(self):
        """What the host says that is left, in the shape that the master expects."""
        found = self.call("leftovers")
        shape.check("virt.leftovers", {}, found)
        return found

    def files(self):
        """The files below the images folder."""
        there = (path for path in self.images.rglob("*") if path.is_file())
        return sorted(str(path.relative_to(self.images)) for path in there)

    def nobodys(self):
        """The files that no guest has and no list names."""
        told = {
            os.path.basename(path)
            for about in self.left()["made"].values()
            for path in (*about["disks"], *about["unsure"])
        }
        inactive = libvirt.VIR_DOMAIN_XML_INACTIVE
        with self.conn() as conn:
            used = " ".join(dom.XMLDesc(inactive) for dom in conn.listAllDomains())
        return [file for file in self.files() if file not in told and file not in used]


class Update(Host):
    """A disk from an image, an empty one, and one in a pool for a guest that is there."""

    FILES = (
        "host/provision/update.py", "host/provision/making.py", "host/provision/disks.py",
        "host/provision/pool_disk.py", "host/provision/reservation.py", "images/clone.py",
        "revert.py",
    )  # fmt: skip

    def prepare(self):
        self.clear()
        base = self.folder / "base.raw"
        base.write_bytes(bytes(510) + b"\x55\xaa" + b"data" * 1024)
        os.truncate(base, 2 * MIB)
        with self.conn() as conn:
            conn.defineXML(GUEST.format(name="g1", disks=""))
            conn.storagePoolDefineXML(POOL.format(self.images), 0).create(0)

    def act(self):
        disks = [
            {"name": "copy", "image": str(self.folder / "base.raw")},
            {"name": "empty", "size": 4, "format": "raw"},
            {"name": "pooled", "size": 4, "pool": "p"},
        ]
        return self.call("update", "g1", disks=disks)["changes"]

    def after(self):
        assert self.nobodys() == []
        try:
            self.act()
        except Exception as exc:
            # made by libvirt a moment before it could be known as ours
            [path] = self.left()["made"]["g1"]["unsure"]
            assert path in str(exc) or "g1_pooled" in str(exc)
            os.unlink(path)
            with self.conn() as conn:
                conn.storagePoolLookupByName("p").refresh(0)
            self.act()
        assert self.act() == []
        assert self.files() == ["g1_copy.qcow2", "g1_empty.raw", "g1_pooled"]
        assert self.left()["made"] == {}
        assert not os.listdir(self.folder / "making")
        assert not os.listdir(self.folder / "arrivals")
        self.call("purge", "g1")
        assert self.files() == []


def test_update(libvirtd, tmp_path):  # noqa: F811
    killing.run(Update, libvirtd, tmp_path)
