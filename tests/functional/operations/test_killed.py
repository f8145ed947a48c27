"""Leftovers of a killed verb: nothing is lost, the repeated verb completes or reports them, and
they are listed."""

import contextlib
import json
import os
import shutil
import subprocess

import pytest

pytest.importorskip("libvirt")
pytest.importorskip("salt")

import libvirt

from saltvirt import errors, seed
from saltvirt.answers import guest_calls
from saltvirt.host.migration import reservations
from saltvirt.host.provision import disk_journal
from saltvirt.host.storage import pool_state
from saltvirt.seed import tree
from saltvirt.spec import pool as pool_spec
from saltvirt.states.pools import DesiredPool
from tests.functional import asking, killing
from tests.functional.conftest import load
from tests.functional.daemon import libvirtd  # noqa: F401
from tests.functional.seed.test_seed import expect_seeded, system

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
        disk_journal.FOLDER = str(folder / "making")
        reservations.FOLDER = str(folder / "arrivals")
        placement = {"reserved_memory_kib": 0, "memory_ratio": 100, "reserved_disk_bytes": 0}
        self.modules = load(
            uri, images=str(self.images), lock=str(folder / "lock"), placement=placement
        )
        for verb in ("update", "purge", "snapshot", "pool_define", "volume_define"):
            self.modules[f"virt.{verb}"]  # loaded once, not in each process

    def call(self, verb, *args, **kwargs):
        return asking.answer(self.modules, f"virt.{verb}", *args, **kwargs)

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
        guest_calls.LIST_LEFTOVERS.read(found, "hv1")
        return found

    def files(self):
        """The files below the images folder."""
        there = (path for path in self.images.rglob("*") if path.is_file())
        return sorted(str(path.relative_to(self.images)) for path in there)

    def nobodys(self):
        """The files that no guest has and no list names."""
        told = {
            os.path.basename(path)
            for about in self.left()["orphaned_disks"].values()
            for path in (*about["disks"], *about["unsure"])
        }
        inactive = libvirt.VIR_DOMAIN_XML_INACTIVE
        with self.conn() as conn:
            used = " ".join(dom.XMLDesc(inactive) for dom in conn.listAllDomains())
        return [file for file in self.files() if file not in told and file not in used]


class Update(Host):
    """A disk from an image, an empty one, and one in a pool for a guest that is there."""

    FILES = (
        "host/provision/update.py", "host/provision/disk_journal.py", "host/provision/disks.py",
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
            [path] = self.left()["orphaned_disks"]["g1"]["unsure"]
            assert path in str(exc) or "g1_pooled" in str(exc)
            os.unlink(path)
            with self.conn() as conn:
                conn.storagePoolLookupByName("p").refresh(0)
            self.act()
        assert self.act() == []
        assert self.files() == ["g1_copy.qcow2", "g1_empty.raw", "g1_pooled"]
        assert self.left()["orphaned_disks"] == {}
        assert not os.listdir(self.folder / "making")
        assert not os.listdir(self.folder / "arrivals")
        self.call("purge", "g1")
        assert self.files() == []


class Rename(Host):
    """A stopped guest with two disks, one of them in a pool."""

    FILES = (
        "host/provision/rename.py", "host/provision/disk_journal.py", "revert.py",
        "host/provision/undo_disks.py",
    )  # fmt: skip

    def prepare(self):
        self.clear()
        with self.conn() as conn:
            conn.storagePoolDefineXML(POOL.format(self.images), 0).create(0)
            conn.defineXML(GUEST.format(name="web1", disks=""))
        disks = [
            {"name": "system", "size": 2, "format": "raw"},
            {"name": "data", "size": 2, "format": "raw", "pool": "p"},
        ]
        self.call("update", "web1", disks=disks)
        for name in ("web1_system.raw", "web1_data"):
            (self.images / name).write_bytes(OURS)

    def act(self):
        return self.call("rename", "web1", "web2")["disks"]

    def after(self):
        assert self.nobodys() == []
        there = self.call("list_domains")
        if there == ["web1"]:
            self.act()
        assert self.call("list_domains") == ["web2"]
        # one that was killed when all was done has left notes, by both names, of nothing
        for name in ("web1", "web2"):
            if self.left()["orphaned_disks"] or os.listdir(self.folder / "making"):
                assert self.call("remove_made", name) is True
        assert self.files() == ["web2_data", "web2_system.raw"]
        assert {(self.images / file).read_bytes() for file in self.files()} == {OURS}
        assert not os.listdir(self.folder / "making")
        with self.conn() as conn:
            assert "web1" not in conn.lookupByName("web2").XMLDesc()
        self.call("purge", "web2")
        assert self.files() == []


class Purge(Rename):
    """The same killed, and then the guest is purged under the name that it has."""

    def after(self):
        [name] = self.call("list_domains")
        self.call("purge", name)
        assert self.nobodys() == []


class Revert(Host):
    """Back to the first of two external snapshots; what it had then is there, and nothing else."""

    FILES = ("host/snapshot/snapshots.py", "host/snapshot/layers.py")

    def prepare(self):
        self.clear()
        base = self.images / "web1.qcow2"
        subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", base, "2M"], check=True)
        self.write(base, 1)
        disk = DISK.format(format="qcow2", path=base, target="vda")
        with self.conn() as conn:
            conn.defineXML(GUEST.format(name="web1", disks=disk))
        for number, name in enumerate(("one", "two"), 2):
            self.call("snapshot", "web1", name, disk_only=True)
            self.write(self.images / f"web1.{name}", number)

    @staticmethod
    def write(path, value):
        argv = ["qemu-io", "-f", "qcow2", "-c", f"write -P {value} 0 64k", path]
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)

    def act(self):
        return self.call("revert_snapshot", "web1", "one", cleanup=True)

    def after(self):
        assert self.act()["reverted"] == "one"
        assert self.files() == ["web1.one", "web1.qcow2"]
        argv = ["qemu-io", "-f", "qcow2", "-c", "read -P 1 0 64k", self.images / "web1.one"]
        said = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
        assert "failed" not in said
        with self.conn() as conn:
            assert str(self.images / "web1.one") in conn.lookupByName("web1").XMLDesc()
        assert [one["name"] for one in self.call("list_snapshots", "web1")["web1"]] == ["one"]


class Delete(Revert):
    """Both external snapshots are deleted, or the verb says why not: no layer is lost."""

    FILES = ("host/snapshot/snapshots.py", "host/snapshot/affected_files.py")

    def act(self):
        with contextlib.suppress(Exception):  # before libvirt 9.0 it merges no external ones
            self.call("delete_snapshots", "web1", all=True)

    def after(self):
        self.act()
        with self.conn() as conn:
            named = conn.lookupByName("web1").XMLDesc()
        path = next(path for path in self.images.iterdir() if f"'{path}'" in named)
        argv = ["qemu-io", "-f", "qcow2", "-c", "read -P 3 0 64k", path]
        said = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
        assert "failed" not in said


class Prune(Host):
    """An image of the cache that nobody needs."""

    FILES = ("images/cache.py", "host/storage/image_users.py")

    def prepare(self):
        self.clear()
        cache = self.images / "_base"
        (cache / ".meta").mkdir(parents=True, exist_ok=True)
        (cache / "debian-0.raw").write_bytes(bytes(MIB))
        meta = {"file": "debian-0.raw", "format": "raw", "size_bytes": MIB, "sums": {"sha256": "0"},
                "source": "salt://debian.raw", "fetched": 0}  # fmt: skip
        note = cache / ".meta" / "debian-0.raw.json"
        note.write_text(json.dumps(meta))
        os.utime(note, (0, 0))

    def act(self):
        return self.call("image_prune")

    def after(self):
        known = sorted(self.call("images"))
        there = [file for file in self.files() if file.endswith(".raw")]
        assert there == [f"_base/{one}" for one in known], "an image that nobody knows"
        self.act()
        assert not [file for file in self.files() if file.endswith(".raw")]


class Eject(Host):
    """The volume for cloud-init holds the guest's key: it goes with the guest at the latest."""

    FILES = ("host/provision/seed_drive.py", "host/domain/metadata.py")

    def prepare(self):
        self.clear()
        (self.images / "_seed").mkdir(exist_ok=True)
        iso = self.images / "_seed" / "web1.iso"
        iso.write_bytes(bytes(2048))
        record = (
            "<metadata><saltvirt:guest xmlns:saltvirt='https://saltproject.io/xmlns/salt-virt/1' "
            f"version='1'><saltvirt:disk target='sda' path='{iso}'/></saltvirt:guest></metadata>"
        )
        drive = (
            f"<disk type='file' device='cdrom'><driver name='qemu' type='raw'/>"
            f"<source file='{iso}'/><target dev='sda' bus='sata'/><readonly/></disk>"
        )
        xml = GUEST.format(name="web1", disks=drive).replace("<memory>", record + "<memory>")
        with self.conn() as conn:
            conn.defineXML(xml)

    def act(self):
        return self.call("seed_eject", "web1")

    def after(self):
        if os.stat(self.folder).st_ino % 2:  # either is asked for next
            self.act()
            assert self.act() is False
            with self.conn() as conn:
                assert "web1.iso" not in conn.lookupByName("web1").XMLDesc()
        self.call("purge", "web1")
        assert self.files() == []


class PoolDeleted(Host):
    """A pool with its volumes and its folder."""

    FILES = ("host/storage/pool_state.py", "host/storage/pools.py")

    def prepare(self):
        self.clear()
        (self.images / "p").mkdir(exist_ok=True)
        with self.conn() as conn:
            pool = conn.storagePoolDefineXML(POOL.format(self.images / "p"), 0)
            pool.create(0)
        for name in ("a", "b"):
            self.call("volume_define", "p", name, 1)

    def act(self):
        with self.conn() as conn:
            return pool_state.remove(conn, "p", purge=True).changes

    def after(self):
        try:
            self.act()
        except errors.InvalidInput as exc:
            assert "virt.pool_running starts it" in exc.text
            self.call("pool_start", "p")
            self.act()
        assert self.call("list_pools") == []
        assert self.files() == []
        assert not (self.images / "p").exists()


class Upload(Host):
    """A file with a hole at its end, into a volume that is larger."""

    FILES = ("host/storage/upload.py",)

    def prepare(self):
        self.clear()
        with self.conn() as conn:
            conn.storagePoolDefineXML(POOL.format(self.images), 0).create(0)
        self.call("volume_define", "p", "v", 8)
        source = self.folder / "source"
        with open(source, "wb") as file:
            file.write(OURS * 4096)
            file.truncate(2 * MIB)
            file.seek(3 * MIB)
            file.write(OURS)
            file.truncate(4 * MIB)

    def act(self):
        return self.call("volume_upload", "p", "v", str(self.folder / "source"), sparse=True)

    def after(self):
        self.act()
        there, source = self.images / "v", self.folder / "source"
        assert there.stat().st_size == 8 * MIB
        assert there.read_bytes()[: 4 * MIB] == source.read_bytes()


class Seed(Host):
    """A folder with a system is seeded."""

    FILES = ("seed/guest.py", "seed/tree.py")

    def prepare(self):
        shutil.rmtree(self.images)
        system(self.images)

    def act(self):
        data = seed.SeedData(
            id="web1.example.org", private_key="PRIVATE", public_key="PUBLIC",
            master=["10.0.0.1", "10.0.0.2"], master_public_key="MASTER\n",
            hostname="web1.example.org", grains={"role": "web"}, autosign_grains={"ticket": "42"},
            startup_states=["base.first", "web"],
        )  # fmt: skip
        seed.apply(str(self.images), None, data)
        with tree.DirTree(str(self.images)) as found:
            expect_seeded(found, data)

    def after(self):
        self.act()
        assert not list(self.images.rglob(".salt-virt*"))


class Pool(Host):
    """A pool as a state wants it: there, running, started with the host; then another folder."""

    FILES = ("host/storage/pool_state.py", "host/storage/pools.py")

    def prepare(self):
        self.clear()

    def act(self):
        for folder in ("one", "two"):
            spec = pool_spec.parse("p", "dir", target=str(self.images / folder))
            desired = DesiredPool("p", spec, True, True, restart=True)
            with self.conn() as conn:
                pool_state.converge(conn, desired)

    def after(self):
        self.act()
        with self.conn() as conn:
            [pool] = conn.listAllStoragePools()
            assert (pool.isActive(), pool.autostart(), pool.isPersistent()) == (1, 1, 1)
            assert str(self.images / "two") in pool.XMLDesc(0)


class Volume(Upload):
    """A volume is copied and grown."""

    FILES = ("host/storage/volumes.py", "host/storage/volume_state.py")

    def act(self):
        if "w" not in self.names():
            self.call("volume_clone", "p", "v", "w")
        return self.call("volume_resize", "p", "w", 16)

    def names(self):
        self.call("pool_refresh", "p")
        return self.call("pool_list_volumes", "p")

    def after(self):
        self.act()
        assert self.names() == ["v", "w"]
        assert (self.images / "w").stat().st_size == 16 * MIB


class Grow(Rename):
    """A disk of a stopped guest grows."""

    FILES = ("host/domain/resize.py",)

    def act(self):
        return self.call("resize_disk", "web1", "vda", 4)

    def after(self):
        assert self.act()["after"] == 4 * MIB
        disk = self.images / "web1_system.raw"
        assert disk.stat().st_size == 4 * MIB
        assert disk.read_bytes()[: len(OURS)] == OURS
        assert self.nobodys() == []


_SLOW = [Purge, Delete, Eject, PoolDeleted, Seed, Pool, Volume, Grow]


@pytest.mark.parametrize(
    "scenario",
    [
        Update, Rename, Revert, Prune, Upload,
        *(pytest.param(one, marks=pytest.mark.slow) for one in _SLOW),
    ],
)  # fmt: skip
def test_what_was_killed_is_ended_by_the_same_verb_and_nothing_is_lost(request, tmp_path, scenario):
    killing.run(scenario, request.getfixturevalue("libvirtd"), tmp_path)
