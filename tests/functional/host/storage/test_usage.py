"""The users of a file, with libvirt's test driver, real images and links. Each case is one way to
need ``base``, found by a single condition."""

import os
import subprocess

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.host.domain import purge, removal
from saltvirt.host.provision import disk_build, disks
from saltvirt.host.snapshot import affected_files
from saltvirt.host.storage import chains, identity, pool_state, references, usage, volume_state
from saltvirt.revert import UndoStack
from saltvirt.spec.disk import DiskSpec
from saltvirt.system import mounts
from tests.functional.conftest import load

MIB = 1024**2
GUEST = """<domain type='test'><name>{name}</name><memory unit='MiB'>16</memory>
{more}<os><type>hvm</type>{os}</os><devices>{devices}</devices></domain>"""
DISK = """<disk type='file' device='{device}'><driver name='qemu' type='{format}'/>
<source file='{path}'/>{below}<target dev='{target}'/></disk>"""


def disk(path, format="qcow2", target="vda", device="disk", below=""):
    return DISK.format(path=path, format=format, target=target, device=device, below=below)


def create(path, backing=None, kind="raw", option=""):
    argv = ["qemu-img", "create", "-q", "-f", "qcow2"]
    argv += ["-u", "-b", str(backing), "-F", kind] if backing else []
    argv += ["-o", option] if option else []
    subprocess.run([*argv, str(path), "8M"], check=True)
    return path


class Place:
    """A host with a file ``base`` that is to be deleted."""

    def __init__(self, conn, root):
        self.conn, self.root = conn, root
        for name in ("data", "other", "images"):
            (root / name).mkdir()
        self.base = root / "data" / "base.raw"
        self.base.write_bytes(bytes(510) + b"\x55\xaa" + bytes(MIB))
        self.above = root / "other" / "above.qcow2"

    def guest(self, devices="", os="", more="", name="web1"):
        return self.conn.defineXML(GUEST.format(name=name, devices=devices, os=os, more=more))

    def pool(self, name, folder, kind="dir", start=False):
        source = "<source><host name='nas'/><dir path='/x'/></source>" if kind == "netfs" else ""
        text = (
            f"<pool type='{kind}'><name>{name}</name>{source}"
            f"<target><path>{folder}</path></target></pool>"
        )
        made = self.conn.storagePoolDefineXML(text, 0)
        if start:
            made.create(0)
        return made

    def why(self, path=None, doomed=(), **options):
        path = str(path or self.base)
        found = usage.read(self.conn, sibling_paths=[path], **options)
        return found.keep_reason(usage.keys_of(self.conn, path), doomed)


@pytest.fixture
def place(conn, tmp_path):
    yield Place(conn, tmp_path)
    for pool in conn.listAllStoragePools():
        if pool.name() != "default-pool":
            if pool.isActive():
                pool.destroy()
            pool.undefine()
    for dom in conn.listAllDomains():
        if dom.name() != "test":
            for snapshot in dom.listAllSnapshots():
                snapshot.delete(0)


def test_a_file_that_nobody_needs(place):
    place.guest(disk(create(place.above)))
    assert place.why() is None


def _file(place):
    place.guest(disk(place.base, "raw"))


def _overlay(place):
    place.guest(disk(create(place.above, place.base)))


def _overlay_on_an_overlay(place):
    middle = create(place.root / "other" / "middle.qcow2", place.base)
    place.guest(disk(create(place.above, middle, "qcow2")))


def _relative(place):
    place.guest(disk(create(place.above, "../data/base.raw")))


def _relative_to_a_link(place):
    """QEMU looks beside the name that it was given."""
    create(place.above, "base.raw")
    os.symlink(place.above, place.base.parent / "link.qcow2")
    place.guest(disk(place.base.parent / "link.qcow2"))


def _json(place):
    name = f'json:{{"driver":"raw","file":{{"driver":"file","filename":"{place.base}"}}}}'
    place.guest(disk(create(place.above, name)))


def _file_protocol(place):
    place.guest(disk(create(place.above, f"file:{place.base}")))


def _data_file(place):
    create(place.above, option=f"data_file={place.base}")
    place.base.write_bytes(bytes(510) + b"\x55\xaa" + bytes(MIB))
    place.guest(disk(place.above))


def _symbolic_link(place):
    os.symlink(place.root / "data", place.root / "link")
    place.guest(disk(place.root / "link" / "base.raw", "raw"))


def _hard_link(place):
    """As a bind mount is: another path, the same inode."""
    os.link(place.base, place.root / "other" / "same.raw")
    place.guest(disk(place.root / "other" / "same.raw", "raw"))


def _declared_chain(place):
    """The definition names what the file, which is not here, cannot."""
    inner = f"<format type='raw'/><source file='{place.base}'/>"
    below = f"<backingStore type='file'>{inner}</backingStore>"
    (place.root / "other" / "x").touch()
    place.guest(disk(place.above, below=below))


def _inactive_definition(place):
    dom = place.guest(disk(place.root / "other" / "now.raw", "raw"))
    dom.create()
    place.guest(disk(place.base, "raw"), more=f"<uuid>{dom.UUIDString()}</uuid>")


def _snapshot(place):
    dom = place.guest(disk(place.base, "raw"))
    dom.snapshotCreateXML("<domainsnapshot><name>one</name></domainsnapshot>")
    place.guest(more=f"<uuid>{dom.UUIDString()}</uuid>")


def _medium(place):
    place.guest(disk(place.base, "raw", "hda", "cdrom"))


def _kernel(place):
    place.guest(os=f"<kernel>{place.base}</kernel>")


def _initrd(place):
    place.guest(os=f"<initrd>{place.base}</initrd>")


def _firmware(place):
    place.guest(os=f"<loader readonly='yes' type='pflash'>{place.base}</loader>")


def _nvram(place):
    place.guest(os=f"<loader type='pflash'>/x</loader><nvram>{place.base}</nvram>")


def _nvram_in_a_source(place):
    source = f"<nvram type='file'><source file='{place.base}'/></nvram>"
    place.guest(os=f"<loader type='pflash'>/x</loader>{source}")


def _folder(place):
    place.guest(
        f"<filesystem type='mount'><source dir='{place.root}/data'/><target dir='d'/></filesystem>"
    )


def _volume(place):
    pool = place.pool("there", place.base.parent, start=True)
    pool.createXML("<volume><name>base.raw</name><capacity>1024</capacity></volume>", 0)
    text = "<disk type='volume'><source pool='there' volume='base.raw'/><target dev='vda'/></disk>"
    place.guest(text)


def _volume_of_a_stopped_pool(place):
    place.pool("there", place.base.parent)
    text = "<disk type='volume'><source pool='there' volume='base.raw'/><target dev='vda'/></disk>"
    place.guest(text)


def _record(place):
    place.guest(
        more="<metadata><sv:guest xmlns:sv='https://saltproject.io/xmlns/salt-virt/1' version='1'>"
        f"<sv:disk target='vdb' path='{place.base}'/></sv:guest></metadata>"
    )


def _record_of_a_volume(place):
    place.pool("there", place.base.parent)
    place.guest(
        more="<metadata><sv:guest xmlns:sv='https://saltproject.io/xmlns/salt-virt/1' version='1'>"
        "<sv:disk target='vdb' pool='there' volume='base.raw'/></sv:guest></metadata>"
    )


@pytest.mark.parametrize(
    "need",
    [
        *(
            _record_of_a_volume,
            _file,
            _overlay,
            _overlay_on_an_overlay,
            _relative,
            _relative_to_a_link,
            _json,
        ),
        *(_file_protocol, _data_file, _symbolic_link, _hard_link, _declared_chain),
        *(_inactive_definition, _snapshot, _medium, _kernel, _initrd, _firmware, _nvram),
        *(_nvram_in_a_source, _folder, _volume, _volume_of_a_stopped_pool, _record),
    ],
)
def test_what_a_guest_needs_stays(place, need):
    need(place)
    assert place.why(images=False) == "used by web1"


def test_what_is_beside_a_folder_of_a_guest_is_not_in_it(place):
    _folder(place)
    for beside in ("data2", "other"):
        (place.root / beside).mkdir(exist_ok=True)
        (place.root / beside / "base.raw").touch()
        assert place.why(place.root / beside / "base.raw", images=False) is None


def test_what_a_guest_has_in_its_saved_memory_stays(place):
    text = GUEST.format(name="web1", devices=disk(place.base, "raw"), os="", more="")

    class Saved:
        def XMLDesc(self, flags):
            return "<domain/>"

        def hasManagedSaveImage(self, flags):
            return True

        def managedSaveGetXMLDesc(self, flags):
            return text

        def listAllSnapshots(self, flags):
            return []

        listAllCheckpoints = listAllSnapshots

    assert text in list(usage.domain_xmls(Saved()))


def _beside(place):
    return create(place.base.parent / "loose.qcow2", place.base)


def _in_a_pool(place):
    place.pool("there", place.above.parent, start=True)
    return create(place.above, place.base)


def _in_a_stopped_pool(place):
    place.pool("there", place.above.parent)
    return create(place.above, place.base)


def _in_the_images_folder(place):
    (place.root / "images" / "deep").mkdir()
    return create(place.root / "images" / "deep" / "loose.qcow2", place.base)


@pytest.mark.parametrize("need", [_beside, _in_a_pool, _in_a_stopped_pool, _in_the_images_folder])
def test_an_image_that_no_guest_names_needs_what_it_stands_on(place, need):
    above = need(place)
    below = place.root / "images"
    assert place.why(below_folder=str(below)) == f"used by {above}"
    assert place.why(below_folder=str(below), doomed={str(above)}) is None  # they go together


def test_a_disk_that_a_record_alone_names_is_an_image_as_any_other(place):
    _record(place)
    record_of = place.conn.lookupByName("web1").XMLDesc().replace(str(place.base), str(place.above))
    place.conn.defineXML(record_of)
    create(place.above, place.base)
    place.pool("there", place.above.parent)
    assert place.why() == f"used by {place.above}"


def test_a_loop_device_needs_its_file(place, monkeypatch):
    device = place.root / "loop0"
    device.touch()
    monkeypatch.setattr(
        identity, "underlying_paths", lambda path: [str(place.base)] if path == str(device) else []
    )
    place.guest(disk(device, "raw"))
    assert place.why() == "used by web1"


def test_what_this_host_has_mounted_stays(place, monkeypatch):
    lines = {mounts.TABLE: [f"1 2 3:4 / /mnt rw - ext4 {place.base} rw"]}
    monkeypatch.setattr(mounts, "lines", lambda path: lines.get(path, []))
    assert place.why() == "used by this host, mounted at /mnt"
    lines[mounts.TABLE] = [f"1 2 3:4 / /home/eve/x rw - fuse.mine {place.base} rw"]
    assert place.why() is None, "any user names his own FUSE as he likes"


def _unknown_format(place):
    place.above.write_bytes(b"x" * MIB)
    place.guest(disk(place.above, "qed"))


def _damaged(place):
    place.above.write_bytes(b"QFI\xfb" + bytes(1000))
    place.guest(disk(place.above))


def _not_mounted(place):
    place.guest(disk(place.above))  # in a folder without any file


def _in_a_pool_that_is_gone(place):
    place.guest(
        "<disk type='volume'><driver type='qcow2'/><source pool='gone' volume='v'/>"
        "<target dev='vda'/></disk>"
    )


def _on_a_server(place):
    place.guest(
        "<disk type='network'><driver type='qcow2'/><source protocol='rbd' name='p/v'>"
        "<host name='h'/></source><target dev='vda'/></disk>"
    )


def _base_on_a_server(place):
    place.guest(disk(create(place.above, "nbd://h/x", "qcow2")))


def _a_pool_that_is_silent(place):
    place.pool("nas", place.root / "mount", "netfs")


@pytest.mark.parametrize(
    "doubt",
    [
        *(_unknown_format, _damaged, _not_mounted, _on_a_server, _base_on_a_server),
        *(_a_pool_that_is_silent, _in_a_pool_that_is_gone),
    ],
)
def test_what_cannot_be_read_proves_nothing(place, doubt):
    doubt(place)
    assert place.why().startswith("it cannot be proven to be unused: ")


def test_what_cannot_be_opened_proves_nothing(place, monkeypatch):
    place.guest(disk(create(place.above)))

    def refuse(path, format=None):
        try:
            raise PermissionError(13, "Permission denied")
        except OSError as exc:
            raise chains.errors.ImageError(f"cannot read image {path}") from exc

    monkeypatch.setattr(chains.header, "read", refuse)
    assert "cannot determine the backing files of web1: cannot read image" in place.why()


def test_why_a_chain_is_not_known_to_its_end_is_said(place):
    place.guest(disk(create(place.above, "nbd://nas/x", "qcow2")))
    assert f"files of web1: {place.above} has the backing file nbd://nas/x" in place.why()


def test_an_image_on_what_cannot_be_opened_is_named_and_itself_can_go(place, modules, monkeypatch):
    far, over, read = create(place.above), place.base.parent / "over.qcow2", chains.header.read
    pool = _two_volumes(place)
    create(over, far, "qcow2")

    def refuse(path, format=None):
        if path != str(far):
            return read(path, format)
        exc = chains.errors.ImageError(f"cannot read image {path}: Permission denied")
        raise exc from PermissionError(13, "Permission denied")

    monkeypatch.setattr(chains.header, "read", refuse)
    with pytest.raises(errors.InvalidInput, match=f"files of {over}: cannot read"):
        modules["virt.volume_delete"]("there", "base.raw")
    assert modules["virt.volume_delete"]("there", "over.qcow2") is True
    assert pool.listVolumes() == ["base.raw"]


def test_a_guest_that_cannot_be_read_proves_nothing(place, monkeypatch):
    def fail(dom):
        raise libvirt.libvirtError("no answer")

    monkeypatch.setattr(usage, "domain_xmls", fail)
    assert "cannot read test" in place.why()


def test_a_disk_that_was_deleted_long_ago_is_no_doubt(place):
    (place.root / "other" / "neighbour").touch()
    place.guest(disk(place.above))
    assert place.why() is None


def test_a_guest_that_is_being_made_has_no_disk_yet(place):
    from saltvirt.host.domain import metadata

    place.guest(
        disk(place.above),
        more="<metadata><sv:guest xmlns:sv='https://saltproject.io/xmlns/salt-virt/1' version='1' "
        f"creating='{metadata.worker()}'/></metadata>",
    )
    assert place.why() is None


def test_a_chain_that_is_declared_to_its_end_needs_no_reading(place):
    place.guest(disk(place.above, below="<backingStore/>"))
    assert place.why() is None


def test_what_a_guest_wrote_into_a_raw_disk_is_not_believed(place):
    """Else it could keep its neighbours' disks from being deleted, or hang the host."""
    create(place.above, place.base)
    place.guest(disk(place.above, "raw"))
    assert place.why() is None


def test_the_definition_of_a_guest_can_hold_any_path(place):
    place.guest(disk("/no/such/folder/x", "raw"), os="<kernel>/no/such</kernel>")
    names = [one.path for one in references.references_of(_tree(place, "web1"))]
    assert {"/no/such", "/no/such/folder/x"} <= set(names)
    assert place.why() is None


def _tree(place, name):
    from xml.etree import ElementTree

    return ElementTree.fromstring(place.conn.lookupByName(name).XMLDesc())


def test_purge_keeps_the_base_of_what_it_keeps(place):
    """An own disk that stays, for another guest needs it, keeps all below it."""
    middle = create(place.root / "data" / "middle.qcow2", place.base)
    dom = place.guest(disk(middle) + disk(place.base, "raw", "vdb"), name="old")
    place.guest(disk(create(place.above, middle, "qcow2")))
    found = purge.plan(place.conn, dom)
    assert found.delete == []
    assert found.keep == {str(middle): "used by web1", str(place.base): "used by web1"}
    place.conn.lookupByName("web1").undefine()
    place.above.unlink()
    assert purge.plan(place.conn, dom).delete == [str(place.base), str(middle)]


def test_what_stays_keeps_what_it_stands_on(place):
    """Nobody else needs the base: only the disk above it, which another guest has as raw data."""
    middle = create(place.root / "data" / "middle.qcow2", place.base)
    dom = place.guest(disk(middle) + disk(place.base, "raw", "vdb"), name="old")
    assert purge.plan(place.conn, dom).delete == [str(place.base), str(middle)]
    place.guest(disk(middle, "raw"))
    assert purge.plan(place.conn, dom).keep == {
        str(middle): "used by web1",
        str(place.base): f"used by {middle}",
    }


@pytest.fixture
def modules(place):
    return load("test:///default", images=str(place.root / "images"), lock=str(place.root / "l"))


@pytest.mark.parametrize("need", [_overlay, _symbolic_link, _hard_link, _snapshot])
def test_a_volume_that_a_guest_can_reach_is_not_deleted(place, modules, need):
    pool = place.pool("there", place.base.parent, start=True)
    pool.createXML("<volume><name>base.raw</name><capacity>1024</capacity></volume>", 0)
    need(place)
    with pytest.raises(errors.VirtError, match=r"base.raw in there: it is a disk, .* of web1"):
        modules["virt.volume_delete"]("there", "base.raw")
    with pytest.raises(errors.InvalidInput, match=r"the backing file of a disk, of web1"):
        volume_state.remove(place.conn, "there", "base.raw")
    assert pool.listVolumes() == ["base.raw"]


def test_a_volume_is_not_deleted_in_doubt(place, modules):
    pool = place.pool("there", place.base.parent, start=True)
    pool.createXML("<volume><name>base.raw</name><capacity>1024</capacity></volume>", 0)
    _damaged(place)
    with pytest.raises(errors.VirtError, match=r"base.raw in there: it cannot be proven"):
        modules["virt.volume_delete"]("there", "base.raw")
    assert modules["virt.volume_delete"]("there", "base.raw", force=True) is True


def _two_volumes(place):
    """A pool with base.raw and an overlay of it."""
    create(place.base.parent / "over.qcow2", place.base)
    pool = place.pool("there", place.base.parent, start=True)
    for name in ("base.raw", "over.qcow2"):
        pool.createXML(f"<volume><name>{name}</name><capacity>1024</capacity></volume>", 0)
    return pool


def purged(place, **options):
    return pool_state.remove(place.conn, "there", purge=True, **options)


def test_the_volumes_of_a_pool_go_together(place):
    _two_volumes(place)
    assert purged(place).changes["deleted_volumes"] == ["base.raw", "over.qcow2"]


@pytest.mark.parametrize("need", [_overlay, _symbolic_link, _hard_link])
def test_a_pool_is_not_purged_of_what_a_guest_can_reach(place, need):
    pool = _two_volumes(place)
    need(place)
    with pytest.raises(errors.InvalidInput, match="has volumes of web1; force"):
        purged(place)
    assert (len(pool.listVolumes()), pool.isActive()) == (2, 1)


def test_a_pool_is_not_purged_of_the_base_of_an_image_elsewhere(place):
    pool = _two_volumes(place)
    place.pool("elsewhere", place.above.parent)
    create(place.above, place.base)
    with pytest.raises(errors.InvalidInput, match=f"it is the backing file of {place.above}"):
        purged(place)
    assert len(pool.listVolumes()) == 2


def test_a_pool_with_another_one_in_its_folder_is_not_purged(place):
    pool = _two_volumes(place)
    (place.base.parent / "deep").mkdir()
    place.pool("deep", place.base.parent / "deep")
    with pytest.raises(errors.InvalidInput, match="storage pool deep is inside it"):
        purged(place, force=True)
    assert len(pool.listVolumes()) == 2


def test_a_pool_on_the_files_of_another_is_not_purged(place):
    pool = _two_volumes(place)
    os.symlink(place.base.parent, place.root / "same")
    place.pool("same", place.root / "same")
    with pytest.raises(errors.InvalidInput, match="storage pool same uses the same files"):
        purged(place)
    assert len(pool.listVolumes()) == 2


def test_a_pools_folder_that_is_a_link_stays(place):
    os.symlink(place.base.parent, place.root / "there")
    pool = place.pool("there", place.root / "there", start=True)
    pool.createXML("<volume><name>base.raw</name><capacity>1024</capacity></volume>", 0)
    found = purged(place, test=True)
    assert "deleted" not in found.changes
    assert "is a symbolic link and is not deleted" in found.notes[0]


@pytest.mark.parametrize("nvram", ["used", "shared", "mine"])
def test_the_variables_of_firmware_go_only_when_they_are_proven_unused(place, monkeypatch, nvram):
    path = create(place.root / "old_VARS.fd")
    monkeypatch.setattr(removal.files, "_VARIABLES", str(place.root))
    os_ = f"<loader type='pflash'>/x</loader><nvram>{path}</nvram>"
    dom = place.guest(os=os_, name="old")
    if nvram == "used":
        place.guest(os=os_)
    if nvram == "shared":
        monkeypatch.setattr(usage.sharing, "sharing_reason", lambda path: "nfs4")
    with removal.variables(place.conn, dom) as what:
        assert what == ("NVRAM" if nvram == "mine" else "KEEP_NVRAM")


def test_a_layer_that_another_guest_needs_is_not_merged(place):
    layer = create(place.above, place.base)
    dom = place.guest(disk(layer), name="old")
    stake = affected_files.AffectedFiles("virt.revert", {str(layer), str(place.base)})
    affected_files.refuse(place.conn, dom, stake)
    place.guest(disk(place.base, "raw"))
    with pytest.raises(errors.Refused, match=r"base.raw would be lost, but web1 needs it"):
        affected_files.refuse(place.conn, dom, stake)


def test_a_device_that_was_given_to_a_guest_is_not_its_own(place, monkeypatch):
    """An image was written onto it; it was there before."""
    made = (
        "<metadata><sv:guest xmlns:sv='https://saltproject.io/xmlns/salt-virt/1' version='1'>"
        f"<sv:disk target='vda' path='{place.base}'/></sv:guest></metadata>"
    )
    dom = place.guest(disk(place.base, "raw"), more=made, name="old")
    assert purge.plan(place.conn, dom).delete == [str(place.base)]
    monkeypatch.setattr(disks.existing_disk, "is_block", lambda path: path == str(place.base))
    assert purge.plan(place.conn, dom).keep == {str(place.base): "not created for this guest"}


@pytest.mark.parametrize(
    ("need", "words"),
    [(_overlay, "is used by web1"), (_damaged, "base.raw: it cannot be proven")],
)
def test_no_image_is_written_over_what_somebody_needs(place, monkeypatch, need, words):
    need(place)
    monkeypatch.setattr(disks.existing_disk, "is_block", lambda path: True)
    work = disk_build.DiskBuild(DiskSpec(name="d", device="disk"), make=True, path=str(place.base))
    with pytest.raises(errors.Refused, match=words):
        disks.refuse_in_use(place.conn, [work], "new")


@pytest.mark.parametrize(
    ("begins", "shared", "words"),
    [
        (bytes(MIB), "iscsi", None),
        (bytes(510) + b"\x55\xaa", None, None),
        (bytes(510) + b"\x55\xaa", "iscsi", "other hosts may use it (iscsi), and it is not empty"),
        (None, "iscsi", "other hosts may use it (iscsi), and it cannot be read: No such file"),
    ],
)
def test_no_image_is_written_over_a_disk_of_another_host(place, monkeypatch, begins, shared, words):
    """A LUN that this host sees, too: no lock of QEMU's reaches from one host to the other."""
    path = place.root / "lun"
    if begins is not None:
        path.write_bytes(begins + bytes(MIB))
    monkeypatch.setattr(disks.existing_disk, "is_block", lambda path: True)
    monkeypatch.setattr(usage, "others_may_have", lambda conn, path: shared)
    work = disk_build.DiskBuild(DiskSpec(name="d", device="disk"), make=True, path=str(path))
    if words is None:
        disks.refuse_in_use(place.conn, [work], "new")
    else:
        with pytest.raises(errors.Refused) as caught:
            disks.refuse_in_use(place.conn, [work], "new")
        assert caught.value.reason.startswith(f"cannot overwrite {path}: {words}")


@pytest.mark.parametrize("shared", ["iscsi", None])
def test_what_a_failed_init_wrote_onto_a_shared_device_is_not_in_the_way_of_the_next(
    place, monkeypatch, shared
):
    path = place.root / "lun"
    path.write_bytes(bytes(2 * MIB))

    def clone(_image, path, *_more, **_how):
        with open(path, "r+b") as file:
            file.write(b"x" * 2 * MIB)

    monkeypatch.setattr(disks.existing_disk, "is_block", lambda path: True)
    monkeypatch.setattr(usage, "others_may_have", lambda conn, path: shared)
    monkeypatch.setattr(disks.clone, "clone", clone)
    work = disk_build.DiskBuild(DiskSpec(name="d", device="disk"), make=True, path=str(path))
    with pytest.raises(errors.OperationFailed), UndoStack() as undo:
        disks.make(place.conn, work, undo)
        raise errors.OperationFailed("later")
    assert not undo.failed
    assert any(path.read_bytes()[:MIB]) is (shared is None)
    assert any(path.read_bytes()[MIB:])
    assert path.stat().st_size == 2 * MIB
