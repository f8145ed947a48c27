"""The users of a file, rule by rule: use, doubt, and neither."""

# ruff: noqa: F811
import contextlib
import itertools
import os
import re
import stat
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.backup.export import replaced_guest
from saltvirt.backup.export.replaced_guest import ReplacedGuest
from saltvirt.host.domain import metadata
from saltvirt.host.storage import (
    answers,
    chains,
    foreign_guests,
    identity,
    references,
    sharing,
    unchanged_disks,
    usage,
)
from saltvirt.host.storage.usage import StorageUser, Usage
from saltvirt.system import bounded_io, mounts
from tests.functional.host.storage.test_usage import create, disk, place  # noqa: F401

NAS = ("server", "nas")


# -- what is known of who uses what -------------------------------------------------------


def test_who_could_reach_it_and_who_of_them_runs():
    found = Usage()
    found.add(["/a", NAS], StorageUser("web2", running=True))
    found.add(["/a"], StorageUser("web1"))
    found.add(["/a"], StorageUser("/over", file="/over"))
    found.folders.append(("/f", StorageUser("web3", running=True)))
    found.folders.append(("/g/", StorageUser("web4")))
    assert found.guests(["/a"]) == ["web1", "web2"]
    assert found.guests([NAS]) == found.running(["/a"]) == ["web2"]
    assert found.users_of(["/a"]) == ["/over", "web1", "web2"]
    assert found.users_of(["/a"], ["/over"]) == ["web1", "web2"]
    assert found.keep_reason(["/a"], ["/over"]) == "used by web1, web2"
    assert found.running(["/f/x"]) == found.users_of(["/f"]) == ["web3"]
    assert found.users_of(["/g/x"]) == ["web4"]
    for other in ("/fx", "/", NAS, ("volume", "/f", "x")):
        assert found.guests([other]) == (["web2"] if other == NAS else [])
    assert found.keep_reason(["/b"]) is None


def test_a_doubt_is_said_once_and_of_many_the_first_two():
    found = Usage()
    for text in ("a", "a", "b"):
        found.add_unknown(text)
    words = "it cannot be proven to be unused: "
    assert found.unproven_reason([]) == f"{words}a; b"
    found.add_unknown("c")
    assert found.unproven_reason([]) == f"{words}a; b; and 1 more"
    found.add_unknown("d")
    assert found.unproven_reason([]) == found.keep_reason([]) == f"{words}a; b; and 2 more"


def test_a_doubt_about_an_image_is_none_for_what_is_deleted_with_it():
    found = Usage(images={"/a": "of a", "/b": "of b"}, private={7: ["seven"]})
    words = "it cannot be proven to be unused: "
    assert found.unproven_reason([]) == found.keep_reason([]) == f"{words}of a; of b"
    assert found.unproven_reason([], ["/a"]) == found.keep_reason([], ["/a"]) == f"{words}of b"
    assert found.keep_reason([], ["/a", "/b"]) is None
    found.add_unknown("c")
    assert found.unproven_reason([], ["/a"]) == f"{words}c; of b"


def test_the_doubt_about_a_users_guests_is_about_what_he_may_open(monkeypatch):
    monkeypatch.setattr(
        foreign_guests, "may_open", lambda uid, path: path in (f"/of/{uid}", "pool/x")
    )
    found = Usage(private={7: ["seven", "7"], 8: ["eight"]})
    words = "it cannot be proven to be unused: "
    assert found.unproven_reason(["/of/9"]) is None
    assert found.unproven_reason(["pool/x"]) is None, "no file of this host"
    assert found.unproven_reason(["/of/9", "/of/7"]) == f"{words}seven; 7"
    assert found.keep_reason([NAS, "/of/8"]) == f"{words}eight"


# -- what a path is found by --------------------------------------------------------------


@pytest.fixture
def far(place, monkeypatch):
    """The libvirt of another machine: of its files nothing is seen."""
    monkeypatch.setattr(usage.connection, "is_local", lambda conn: False)
    return place


def test_a_file_of_another_machine_is_its_path(far, monkeypatch):
    path = str(far.base)
    for same in (path, f"{path}/../base.raw"):
        assert usage.keys_of(far.conn, same) == {path}, "what this machine has there is another"
    assert usage.is_there(far.conn, "/nowhere")
    assert usage.others_may_have(far.conn, path) == "its host is another machine"
    monkeypatch.setattr(unchanged_disks, "is_open", None)
    monkeypatch.setattr(unchanged_disks, "prevent_open", None)
    assert usage.open_reason(far.conn, path) is None
    with usage.prevent_open(far.conn, [path]) as held:
        assert held == {path: None}


def test_the_folder_of_a_pool_of_another_machine_is_not_looked_for_here(far, monkeypatch):
    monkeypatch.setattr(bounded_io, "room", None)
    answers.pool(far.pool("there", far.base.parent, start=True))


def test_a_part_of_a_device_is_found_by_all_of_it(place, monkeypatch):
    path, whole = str(place.base), str(place.above)
    monkeypatch.setattr(
        identity, "underlying_paths", lambda asked: [whole] if asked == path else []
    )
    assert usage.keys_of(place.conn, path) == {("whole", whole)} | identity.keys_of(path)


def test_what_is_there_and_who_else_may_have_it(place, monkeypatch):
    assert usage.is_there(place.conn, str(place.base))
    assert not usage.is_there(place.conn, "/nowhere/x")
    assert usage.is_there(place.conn, "pool/x")
    assert usage.others_may_have(place.conn, "pool/x") == "it is on a server"
    with monkeypatch.context() as patch:
        patch.setattr(unchanged_disks, "is_open", None)
        patch.setattr(unchanged_disks, "prevent_open", None)
        assert usage.open_reason(place.conn, "pool/x") is None
        with usage.prevent_open(place.conn, ["pool/x"]) as held:
            assert held == {"pool/x": None}
    monkeypatch.setattr(sharing, "sharing_reason", lambda path: f"nfs4 has {path}")
    assert usage.others_may_have(place.conn, "/x") == "nfs4 has /x"


def test_who_opens_it_between_the_two_questions_is_said(place, monkeypatch):
    monkeypatch.setattr(unchanged_disks, "prevent_open", lambda path: contextlib.nullcontext(True))
    path = str(place.base)
    with usage.prevent_open(place.conn, [path]) as held:
        assert held == {path: usage._open_text(path)}
    assert f"has it open ('fuser -v {path}' shows which)" in usage._open_text(path)


def silent(*_args, **_more):
    raise bounded_io.StorageTimeout("/nas")


def test_who_does_not_answer_has_it_and_keeps_it(place, monkeypatch):
    path = str(place.base)
    monkeypatch.setattr(bounded_io, "lexists", silent)
    assert usage.is_there(place.conn, path)
    monkeypatch.setattr(unchanged_disks, "prevent_open", silent)
    with usage.prevent_open(place.conn, [path]) as held:
        assert held == {path: "/nas does not respond"}
    monkeypatch.setattr(bounded_io, "locked", silent)
    assert usage.open_reason(place.conn, path) == "/nas does not respond"
    monkeypatch.setattr(unchanged_disks, "prevent_open", None)
    with usage.prevent_open(place.conn, [path]) as held:
        assert held == {path: "/nas does not respond"}, "and it is not asked again"


def test_what_a_server_has_is_found_by_its_name_in_any_address(place, monkeypatch):
    found = usage.keys_of(place.conn, "gluster://h/pool/x")
    assert found == {("server", "gluster://h/pool/x"), ("server", "pool/x")}
    assert usage.keys_of(place.conn, "pool/x") == {("server", "pool/x")}
    there = usage.file_identity(place.conn, "gluster://h/pool/x")
    assert there == sharing.FileIdentity(
        "gluster://h/pool/x", names=("gluster://h/pool/x", "pool/x")
    )
    assert usage.file_identity(place.conn, str(place.base)) == sharing.file_identity(
        str(place.base)
    )
    monkeypatch.setattr(
        usage,
        "keys_of",
        lambda conn, path: {("server", "b"), ("server", "a"), ("volume", "p", "x")},
    )
    assert usage.file_identity(place.conn, "a").names == ("a", "b")


def test_a_volume_is_found_by_its_pool_its_path_and_its_name_on_a_server(place):
    volume = {"path": "gluster://h/pool/x"}
    assert usage.keys(place.conn, "p", "x", volume) == {
        *(("volume", "p", "x"), ("server", "gluster://h/pool/x"), ("server", "pool/x"))
    }
    path = str(place.base)
    found = usage.keys(place.conn, "p", "x", {"path": path})
    assert found == {("volume", "p", "x"), ("server", path)} | identity.keys_of(path)
    assert ("server", "") in usage.keys(place.conn, "p", "x", {})


def volume_of(place, name, backing=None, kind="qcow2", base_kind=None, pool="there"):
    """A volume of a pool of the test driver's, which keeps a definition and no file."""
    below = f"<format type='{base_kind}'/>" if base_kind else ""
    below = f"<backingStore><path>{backing}</path>{below}</backingStore>" if backing else ""
    text = (
        f"<volume><name>{name}</name><capacity>1024</capacity>"
        f"<target><format type='{kind}'/></target>{below}</volume>"
    )
    return place.conn.storagePoolLookupByName(pool).createXML(text, 0)


@pytest.mark.parametrize(
    ("kind", "source", "names"),
    [
        ("rbd", "<host name='h'/><name>ceph</name>", {"ceph/x"}),
        ("dir", "", set()),
        ("mpath", "", set()),
    ],
)
def test_a_volume_of_a_server_has_the_servers_name(place, kind, source, names):
    pool = place.conn.storagePoolDefineXML(
        f"<pool type='{kind}'><name>there</name><source>{source}</source>"
        f"<target><path>{place.base.parent}</path></target></pool>",
        0,
    )
    pool.create(0)
    volume = volume_of(place, "x")
    found = usage.keys_of_volume(place.conn, volume)
    assert {key[1] for key in found if key[0] == "server"} == {volume.path(), *names}
    assert ("volume", "there", "x") in found


def test_of_a_pool_counts_what_is_in_it_and_what_guests_have_of_it(place):
    pool = place.pool("there", place.base.parent, start=True)
    volume_of(place, "made.raw", kind="raw")
    inner, beside = str(place.base.parent / "of-guest.raw"), str(place.root / "data2" / "x.raw")
    place.guest(
        disk(inner, "raw") + disk(beside, "raw", "vdb")
        + "<disk type='volume'><source pool='there' volume='lost'/><target dev='vdc'/></disk>"
        + "<disk type='volume'><source pool='other' volume='lost'/><target dev='vdd'/></disk>"
    )  # fmt: skip
    used = usage.read(place.conn)
    found = usage.keys_of_pool(place.conn, used, pool)
    made = str(place.base.parent / "made.raw")
    assert {inner, made, ("volume", "there", "lost"), ("volume", "there", "made.raw")} <= found
    assert beside not in found
    assert ("volume", "other", "lost") not in found
    pool.destroy()
    stopped = usage.keys_of_pool(place.conn, used, pool)
    assert inner in stopped
    assert made not in stopped


def test_of_a_pool_in_a_folder_that_is_a_link_counts_what_guests_have_by_either_name(place):
    (place.root / "link").symlink_to(place.base.parent)
    pool = place.pool("there", place.root / "link")
    used = Usage()
    names = [f"{place.root}/link/x", f"{place.base.parent}/y"]
    for name in (*names, f"{place.root}/link2/x"):
        used.add([name], StorageUser("web1"))
    assert usage.keys_of_pool(place.conn, used, pool) == set(names)


def test_a_pool_without_a_folder_has_its_volumes_alone(place):
    pool = place.conn.storagePoolDefineXML(
        "<pool type='rbd'><name>there</name><source><host name='h'/><name>ceph</name></source>"
        "</pool>"
    )
    place.guest(disk(place.base, "raw"))
    assert usage.keys_of_pool(place.conn, usage.read(place.conn), pool) == set()


# -- what guests of this libvirt need -----------------------------------------------------


def test_a_guest_that_is_asked_for_does_not_count_and_what_it_is_based_on_does(place):
    dom = place.guest(disk(create(place.above, place.base)))
    uuid = dom.UUIDString()
    assert place.why(place.above) == "used by web1"
    assert place.why(place.above, exclude_uuid=uuid) is None
    assert place.why(exclude_uuid=uuid, images=False) == f"used by {place.above}"
    assert place.why(exclude_uuid=uuid, images=False, doomed=[str(place.above)]) is None
    assert place.why(exclude_uuid="none") == "used by web1"


def test_a_path_that_merely_stands_in_a_guest_that_is_asked_for_says_nothing_of_it(place):
    above = create(place.base.parent / "loose.qcow2", place.base)
    dom = place.guest(os=f"<kernel>{above}</kernel>")
    assert place.why(exclude_uuid=dom.UUIDString()) == f"used by {above}"


def test_a_disk_that_a_guest_has_as_raw_is_no_image_and_what_merely_stands_there_is(place):
    create(place.above, place.base)
    place.pool("there", place.above.parent)
    dom = place.guest(disk(place.above, "raw"))
    assert place.why() is None
    dom.undefine()
    place.guest(os=f"<kernel>{place.above}</kernel>")
    assert place.why() == f"used by {place.above}"


def test_what_runs_is_known(place):
    dom = place.guest(disk(place.base, "raw"))
    keys = usage.keys_of(place.conn, str(place.base))
    assert usage.read(place.conn).running(keys) == []
    dom.create()
    assert usage.read(place.conn).running(keys) == ["web1"]
    assert usage.read(place.conn).guests(keys) == ["web1"]


@pytest.mark.parametrize(
    ("code", "doubt"),
    [(libvirt.VIR_ERR_NO_DOMAIN, False), (libvirt.VIR_ERR_INTERNAL_ERROR, True)],
)
def test_a_guest_that_went_meanwhile_needs_nothing(place, monkeypatch, code, doubt):
    def fail(dom):
        raise failure(code)

    monkeypatch.setattr(usage, "domain_xmls", fail)
    assert (place.why() is not None) is doubt


def failure(code):
    found = libvirt.libvirtError("no")
    found.err = (code, 0, "no", 2, None, None, None, 0, 0)
    return found


class Definitions:
    """A domain as libvirt tells of it, where the test driver cannot."""

    def __init__(self, code=None, saved=False):
        self.code, self.saved = code, saved

    def XMLDesc(self, flags):
        return f"<domain n='{flags}'/>"

    def hasManagedSaveImage(self, flags):
        return self.saved and not flags

    def managedSaveGetXMLDesc(self, flags):
        return f"<saved n='{flags}'/>"

    def listAllSnapshots(self, flags):
        if self.code is not None:
            raise failure(self.code)
        return described("snapshot", flags & libvirt.VIR_DOMAIN_SNAPSHOT_LIST_ROOTS)

    def listAllCheckpoints(self, flags):
        return described("checkpoint", flags & libvirt.VIR_DOMAIN_CHECKPOINT_LIST_ROOTS)


def described(kind, roots):
    """One, and one on that."""
    both = [
        SimpleNamespace(getXMLDesc=lambda flags, n=number: f"<{kind} n='{n}' flags='{flags}'/>")
        for number in (1, 2)
    ]
    return both[:1] if roots else both


def test_all_definitions_of_a_guest_count():
    """Without what is secret in them."""
    inactive = f"<domain n='{libvirt.VIR_DOMAIN_XML_INACTIVE}'/>"
    first = ["<domain n='0'/>", inactive]
    checkpoints = [f"<checkpoint n='{number}' flags='0'/>" for number in (1, 2)]
    found = [*first, *(f"<snapshot n='{number}' flags='0'/>" for number in (1, 2)), *checkpoints]
    assert list(usage.domain_xmls(Definitions())) == found
    assert list(usage.domain_xmls(Definitions(saved=True))) == [*found, "<saved n='0'/>"]
    for code in (
        *(libvirt.VIR_ERR_NO_SUPPORT, libvirt.VIR_ERR_OPERATION_UNSUPPORTED),
        *(libvirt.VIR_ERR_NO_DOMAIN_SNAPSHOT, libvirt.VIR_ERR_NO_DOMAIN_CHECKPOINT),
    ):
        assert list(usage.domain_xmls(Definitions(code))) == [*first, *checkpoints]
    with pytest.raises(libvirt.libvirtError):
        list(usage.domain_xmls(Definitions(libvirt.VIR_ERR_INTERNAL_ERROR)))


SERVED = (
    "<disk type='network'><driver type='{}'/><source protocol='rbd' name='p/v'><host name='h'/>"
    "</source>{}<target dev='vda'/></disk>"
)


@pytest.mark.parametrize(
    ("format", "below", "doubt"),
    [("raw", "", False), ("qcow2", "", True), ("qcow2", "<backingStore/>", False)],
)
def test_what_a_disk_on_a_server_is_based_on_is_not_known(place, format, below, doubt):
    place.guest(SERVED.format(format, below))
    words = "p/v, a disk of web1, is on a server"
    assert (words in (place.why() or "")) is doubt
    assert usage.read(place.conn).guests(usage.keys_of(place.conn, "p/v")) == ["web1"]


POOLED = "<disk type='volume'>{}<source pool='{}' volume='{}'/>{}<target dev='vda'/></disk>"
QCOW2 = "<driver type='qcow2'/>"


def test_a_volume_that_is_there_is_no_doubt(place):
    place.pool("there", place.above.parent, start=True)
    volume_of(place, create(place.above).name)
    place.guest(POOLED.format(QCOW2, "there", place.above.name, ""))
    assert place.why(place.above) == "used by web1"
    assert place.why() is None


def test_disks_that_are_no_files_of_a_guest_that_is_asked_for(place):
    nowhere = POOLED.format(QCOW2, "gone", "v", "").replace("vda", "vdb")
    dom = place.guest(SERVED.format("qcow2", "") + nowhere)
    assert place.why(exclude_uuid=dom.UUIDString()) is None


@pytest.mark.parametrize(
    ("driver", "below", "doubt"),
    [
        *((QCOW2, "", True), (QCOW2, "<backingStore/>", False)),
        *(("<driver type='raw'/>", "", False), ("", "", False)),
    ],
)
def test_what_a_volume_that_is_nowhere_is_based_on_is_not_known(place, driver, below, doubt):
    place.guest(POOLED.format(driver, "gone", "v", below))
    assert ("gone/v, a disk of web1, does not exist" in (place.why() or "")) is doubt


def test_a_volume_that_no_pool_knows_lies_below_the_target_of_one_with_files(place):
    place.pool("there", place.base.parent, start=True)
    reader = usage._UsageReader(place.conn, None)
    made = volume_of(place, "made.raw", kind="raw")
    assert reader.volume_path(("there", "made.raw")) == made.path()
    assert reader.volume_path(("there", "base.raw")) == str(place.base)
    assert reader.volume_path(("gone", "base.raw")) is None
    place.conn.storagePoolDefineXML(
        "<pool type='logical'><name>vg</name><source><name>vg</name></source>"
        "<target><path>/dev/vg</path></target></pool>"
    )
    assert reader.volume_path(("vg", "base.raw")) is None


def test_a_folder_is_used_with_all_that_is_in_it(place):
    used, user = usage._UsageReader(place.conn, None), StorageUser("web1")
    used.name(references.StorageReference(path=str(place.root), folder=True, format="raw"), user)
    used.name(references.StorageReference(folder=True), user)
    used.name(references.StorageReference(path=str(place.base), format="raw"), user)
    assert used.usage.folders == [(str(place.root), user)]


def test_images_that_no_guest_names_count_where_they_are_asked_for(place):
    loose = create(place.base.parent / "loose.qcow2", place.base)
    assert place.why(images=False) is None
    assert place.why() == f"used by {loose}"


# -- another machine ----------------------------------------------------------------------


def chain_of(far, *parts):
    """A pool of another machine with volumes, each (name, what it is based on, that one's
    format)."""
    far.pool("there", "/far", start=True)
    for name, below, kind in parts:
        volume_of(far, name, below, kind="raw" if name.endswith("raw") else "qcow2", base_kind=kind)


def test_of_another_machine_the_files_of_this_one_say_nothing(far, monkeypatch):
    create(far.base.parent / "loose.qcow2", far.base)
    create(far.root / "images" / "loose.qcow2", far.base)
    row = f"1 2 3:4 / /mnt rw - ext4 {far.base} rw"
    monkeypatch.setattr(mounts, "lines", lambda path: [row] if path == mounts.TABLE else [])
    uuid = far.guest(disk(create(far.above, far.base))).UUIDString()
    assert far.why(below_folder=str(far.root / "images"), exclude_uuid=uuid) is None
    monkeypatch.setattr(usage.connection, "is_local", lambda conn: True)
    assert far.why(below_folder=str(far.root / "images")) is not None


@pytest.mark.parametrize(
    ("format", "mid", "used"),
    [
        ("qcow2", "qcow2", {"top", "mid", "base"}),
        ("qcow2", "raw", {"top", "mid"}),
        ("raw", "qcow2", {"top"}),
        (None, "qcow2", {"top"}),
    ],
)
def test_of_another_machine_the_volumes_tell(far, format, mid, used):
    chain_of(
        far,
        ("base", None, None), ("mid", "/far/base", "qcow2"), ("top", "/far/mid", mid),
    )  # fmt: skip
    reader = usage._UsageReader(far.conn, None)
    reader.name(references.StorageReference(path="/far/top", format=format), StorageUser("web1"))
    assert set(reader.usage.users) == {f"/far/{name}" for name in used}
    assert reader.usage.unknown == []
    reader.name(references.StorageReference(path="/far/x/../y", format="raw"), StorageUser("web1"))
    assert "/far/y" in reader.usage.users


def test_of_another_machine_what_is_in_no_pool_is_a_doubt(far):
    chain_of(far, ("top", "/gone/base", "qcow2"))
    far.guest(disk("/far/top"))
    assert "/gone/base, which web1 uses, is not in a storage pool" in far.why()
    far.guest(disk("/far/top", below="<backingStore/>"), name="web2")
    reader = usage._UsageReader(far.conn, None)
    reader.remote_chain(
        "/far/top",
        references.StorageReference(format="qcow2", chain_complete=True),
        StorageUser("web2"),
    )
    assert reader.usage.unknown == []


def test_of_another_machine_a_ring_has_an_end(far):
    chain_of(far, ("one", "/far/two", "qcow2"), ("two", "/far/one", "qcow2"))
    reader = usage._UsageReader(far.conn, None)
    reader.remote_chain(
        "/far/one", references.StorageReference(format="qcow2"), StorageUser("web1")
    )
    assert set(reader.usage.users) == {"/far/one", "/far/two"}
    assert reader.usage.unknown == []


def test_of_another_machine_a_base_without_a_format_may_be_based_on_another(far, monkeypatch):
    chain_of(far, ("base", None, None), ("mid", "/far/base", "raw"), ("top", None, None))
    real = usage.volume_content.definition
    untold = SimpleNamespace(backing_path="/far/mid", backing_format=None)
    monkeypatch.setattr(
        usage.volume_content,
        "definition",
        lambda volume: untold if volume.name() == "top" else real(volume),
    )
    reader = usage._UsageReader(far.conn, None)
    reader.remote_chain(
        "/far/top", references.StorageReference(format="qcow2"), StorageUser("web1")
    )
    assert set(reader.usage.users) == {"/far/top", "/far/mid", "/far/base"}


def test_of_another_machine_what_cannot_be_said_is_a_doubt(far, monkeypatch):
    chain_of(far, ("top", None, None))

    def fail(volume):
        raise errors.OperationFailed("no text")

    monkeypatch.setattr(usage.volume_content, "definition", fail)
    reader = usage._UsageReader(far.conn, None)
    reader.remote_chain(
        "/far/top", references.StorageReference(format="qcow2"), StorageUser("web1")
    )
    assert reader.usage.unknown == ["no text"]


# -- pools and images that no guest names -------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "active", "mounted", "doubt"),
    [
        *(("dir", False, False, False), ("netfs", False, False, True)),
        *(("netfs", False, True, False), ("netfs", True, False, False)),
    ],
)
def test_a_pool_that_is_not_started_hides_what_is_not_mounted(
    place, monkeypatch, kind, active, mounted, doubt
):
    folder = place.root / "other"
    real = mounts.read()
    row = mounts.Mount("0:9", "/", str(folder), "nfs4", "nas:/x")
    monkeypatch.setattr(mounts, "read", lambda: [*real, row] if mounted else real)
    place.pool("nas", folder, kind, start=active)
    assert ("storage pool nas is inactive" in (place.why() or "")) is doubt


@pytest.mark.parametrize(("kind", "doubt"), [("gluster", True), ("rbd", False), ("dir", True)])
def test_of_another_machine_a_pool_that_is_not_started_hides_what_has_files(far, kind, doubt):
    source = "<source><host name='h'/><name>x</name><dir path='/'/></source>"
    target = "<target><path>/far</path></target>" if kind == "dir" else ""
    far.conn.storagePoolDefineXML(
        f"<pool type='{kind}'><name>x</name>{source if kind != 'dir' else ''}{target}</pool>", 0
    )
    assert ("storage pool x is inactive" in (far.why() or "")) is doubt


@pytest.mark.parametrize(
    ("code", "doubt"),
    [(libvirt.VIR_ERR_NO_STORAGE_POOL, False), (libvirt.VIR_ERR_INTERNAL_ERROR, True)],
)
def test_a_pool_that_went_meanwhile_has_nothing(place, code, doubt):
    class Pool:
        def name(self):
            return "p"

        def isActive(self):
            raise failure(code)

    reader = usage._UsageReader(place.conn, None)
    reader.pool(Pool())
    assert bool(reader.usage.unknown) is doubt
    assert not doubt or reader.usage.unknown[0].startswith("storage pool p: ")


def test_a_folder_that_cannot_be_read_is_a_doubt_and_one_that_is_gone_is_none(place, monkeypatch):
    reader = usage._UsageReader(place.conn, None)
    reader.folder(str(place.root / "gone"))
    assert reader.usage.unknown == []
    for ask, name in ((reader.folder, "files"), (reader.image_tree, "files_below")):

        def refuse(folder):
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(bounded_io, name, refuse)
        ask("/x")
        assert reader.usage.unknown == ["cannot search /x: Permission denied"]
        reader.usage.unknown.clear()
    monkeypatch.setattr(bounded_io, "files_below", silent)
    reader.image_tree("/x")
    assert reader.usage.unknown == [], "who asked has taken note"


def test_a_volume_is_read_by_its_header_or_told_by_libvirt(place, monkeypatch):
    """A device's definition counts beside its header; of what a server has it is all there is."""
    place.pool("there", place.above.parent, start=True)
    create(place.above, place.base)
    volume = volume_of(place, "above.qcow2", "/told/base")

    def users():
        reader = usage._UsageReader(place.conn, None)
        reader.volume(volume)
        return {key for key in reader.usage.users if isinstance(key, str)}

    assert users() == {str(place.base)}
    monkeypatch.setattr(usage, "_mode", lambda path: stat.S_IFBLK)
    assert users() == {str(place.base), "/told/base"}
    monkeypatch.setattr(usage, "_mode", lambda path: 0)
    assert users() == {"/told/base"}


def test_a_volume_whose_storage_does_not_answer_is_a_doubt(place, monkeypatch):
    place.pool("there", place.above.parent, start=True)
    path, real = str(create(place.above)), bounded_io.stat
    volume_of(place, "above.qcow2", "/told/base")
    monkeypatch.setattr(
        bounded_io,
        "stat",
        lambda asked: bounded_io._raise_timeout("/nas") if asked == path else real(asked),
    )
    assert "cannot check the users of files on /nas: it does not respond" in place.why()


def test_a_device_that_does_not_answer_is_not_asked_of_libvirt(place, monkeypatch):
    """libvirtd would wait for it, and all others for libvirtd."""
    place.pool("there", place.above.parent, start=True)
    volume = volume_of(place, "above.qcow2", place.base)
    monkeypatch.setattr(usage, "_mode", lambda path: stat.S_IFBLK)
    monkeypatch.setattr(bounded_io, "head", silent)
    reader = usage._UsageReader(place.conn, None)
    reader.volume(volume)
    assert (reader.usage.users, reader.usage.unknown) == ({}, [])


def test_what_a_path_is_and_whose(place, monkeypatch):
    path = str(place.base)
    assert (stat.S_ISREG(usage._mode(path)), usage._owner(path)) == (True, os.getuid())
    assert (usage._mode("/gone"), usage._owner("/gone")) == (0, None)
    monkeypatch.setattr(bounded_io, "stat", silent)
    assert (usage._mode(path), usage._owner(path)) == (usage._NO_ANSWER, None)


SERVER = "<source><host name='h'/><device path='/dev/x'/><name>there</name></source>"


def pool_without_files(place, target, kind="rbd"):
    made = place.conn.storagePoolDefineXML(
        f"<pool type='{kind}'><name>there</name>{SERVER}<target><path>{target}</path></target>"
        "</pool>"
    )
    made.create(0)


def test_a_volume_in_no_folder_needs_what_it_stands_on(place, monkeypatch):
    pool_without_files(place, "/told")
    volume = volume_of(place, "x", place.base)
    assert place.why() == f"used by {volume.path()}"
    monkeypatch.setattr(
        identity, "underlying_paths", lambda path: ["/dev/all"] if path == str(place.base) else []
    )
    reader = usage._UsageReader(place.conn, None)
    reader.volume(volume)
    assert str(place.base) in reader.usage.users
    assert not any(key[0] == "whole" for key in reader.usage.users), "a part is not all of it"


def test_the_target_of_a_pool_without_files_is_no_folder_of_images(place):
    create(place.above, place.base)
    pool_without_files(place, place.above.parent, "disk")
    assert place.why() is None


def test_an_image_that_cannot_be_read_is_a_doubt(place, monkeypatch):
    found = chains.ChainScan([str(place.above)], unreadable="cannot read it")
    monkeypatch.setattr(chains, "read", lambda path: found)
    reader = usage._UsageReader(place.conn, None)
    reader.image(str(place.above))
    reader.image(str(place.above))
    [(file, doubt)] = reader.usage.images.items()
    assert doubt == f"cannot determine the files of {place.above}: cannot read it"
    assert reader.usage.unknown == []
    assert reader.usage.keep_reason(["/x"]) == f"it cannot be proven to be unused: {doubt}"
    assert reader.usage.keep_reason(["/x"], [file]) is None
    assert file == identity.real(str(place.above))


class Elsewhere:
    """A volume with another path."""

    def __init__(self, volume, path):
        self._volume, self._path = volume, path

    def path(self):
        return self._path

    def __getattr__(self, name):
        return getattr(self._volume, name)


def test_a_volume_that_is_not_here_is_no_file_of_this_host(place, monkeypatch):
    place.pool("there", place.above.parent, start=True)
    create(place.above, place.base)
    monkeypatch.chdir(place.above.parent)
    reader = usage._UsageReader(place.conn, None)
    reader.volume(Elsewhere(volume_of(place, "x"), place.above.name))
    reader.local = False
    reader.volume(volume_of(place, place.above.name))
    assert reader.usage.users == {}


@pytest.mark.parametrize(
    ("error", "doubts"),
    [
        (failure(libvirt.VIR_ERR_NO_STORAGE_VOL), 0), (failure(libvirt.VIR_ERR_INTERNAL_ERROR), 1),
        (errors.OperationFailed("no text"), 1), (bounded_io.StorageTimeout("/nas"), 0),
    ],
)  # fmt: skip
def test_a_volume_that_went_meanwhile_is_none_and_one_that_cannot_be_read_is_a_doubt(
    place, error, doubts
):
    def fail():
        raise error

    reader = usage._UsageReader(place.conn, None)
    reader.volume(SimpleNamespace(path=fail))
    assert len(reader.usage.unknown) == doubts


# -- this host itself ---------------------------------------------------------------------


def test_what_this_host_swaps_to_stays(place, monkeypatch):
    lines = {usage._SWAPS: ["Filename Type Size", f"{place.base} file 1 0 -2"]}
    monkeypatch.setattr(mounts, "lines", lambda path: lines.get(path, []))
    assert place.why() == "used by this host, as swap"
    lines[usage._SWAPS] = [f"{place.base} Type", "swap.raw file 1 0 -2"]
    assert place.why() is None


def test_a_mount_whose_source_is_but_a_name_uses_no_file(place, monkeypatch):
    monkeypatch.chdir(place.base.parent)
    row = f"1 2 3:4 / /mnt rw - tmpfs {place.base.name} rw"
    monkeypatch.setattr(mounts, "lines", lambda path: [row] if path == mounts.TABLE else [])
    assert place.why() is None


def test_what_this_host_shows_as_a_loop_device_stays(place, monkeypatch):
    real = os.listdir
    monkeypatch.setattr(
        os, "listdir", lambda path=".": ["sda", "loop7"] if path == "/sys/block" else real(path)
    )
    parts = {"/dev/loop7": [str(place.base)], "/dev/sda": [str(place.above)]}
    monkeypatch.setattr(identity, "underlying_paths", lambda path: parts.get(path, []))
    place.above.touch()
    assert place.why() == "used by this host, as /dev/loop7"
    assert place.why(place.above) is None


# -- which of them go ---------------------------------------------------------------------


def decided(place, candidates, used=None, **more):
    found = usage.decide(place.conn, candidates, used or Usage(), **more)
    return found[:2]


def test_what_is_not_there_is_deleted_already_and_what_is_kept_says_why(place):
    base, gone = str(place.base), "/nowhere/x"
    used = Usage()
    used.add([gone], StorageUser("web1"))
    assert decided(place, {base: None, gone: None}, used) == (sorted([base, gone]), {})
    assert decided(place, {base: "a medium", gone: None}, used) == ([gone], {base: "a medium"})
    used.add([base], StorageUser("web2"))
    assert decided(place, {base: "a medium"}, used) == ([], {base: "used by web2"})


def test_what_stays_keeps_what_it_is_based_on_and_so_on(place):
    paths = [str(place.root / "data" / name) for name in ("a", "b", "c", "d")]
    used = Usage()
    for above, below in itertools.pairwise(paths):
        open(below, "w", encoding="utf-8").close()
        used.add([below], StorageUser(above, file=above))
    open(paths[0], "w", encoding="utf-8").close()
    assert decided(place, dict.fromkeys(paths), used) == (paths, {})
    used.add([paths[1]], StorageUser("web1"))
    kept = {paths[1]: "used by web1", paths[2]: f"used by {paths[1]}"}
    kept[paths[3]] = f"used by {paths[2]}"
    assert decided(place, dict.fromkeys(paths), used) == ([paths[0]], kept)


def test_what_others_may_have_goes_when_they_were_asked(place, monkeypatch):
    base = str(place.base)
    monkeypatch.setattr(sharing, "sharing_reason", lambda path: "nfs4")
    words = "other hosts may use it (nfs4) and were not asked; salt-run asks them"
    delete, keep, places = usage.decide(place.conn, {base: None}, Usage())
    assert (delete, keep, list(places)) == ([], {base: words}, [base])
    assert places[base] == sharing.file_identity(base)
    found = usage.decide(place.conn, {base: None}, Usage(), unused=[base])
    assert found == ([base], {}, {})
    used = Usage(unknown=["who knows"])
    delete, keep, places = usage.decide(place.conn, {base: None}, used)
    assert (delete, places) == ([], {})
    assert "who knows" in keep[base]


def test_what_does_not_answer_stays(place, monkeypatch):
    base = str(place.base)

    def asked(conn, path):
        for one in bounded_io._recorders:
            one.update(["/b", "/a"])
        return frozenset({path})

    monkeypatch.setattr(usage, "keys_of", asked)
    assert decided(place, {base: None}) == ([], {base: "/a, /b does not respond"})


@pytest.mark.parametrize("driver", ["<driver name='qemu' type='raw'/>", ""])
def test_what_the_guest_itself_wrote_into_its_raw_disk_keeps_nothing(place, driver):
    """The guest that is purged: by its definition the disk is raw, or libvirt takes it for that."""
    create(place.above, place.base)
    place.pool("there", place.above.parent, start=True)
    source = f"<source file='{place.above}'/><target dev='vda'/>"
    dom = place.guest(f"<disk type='file' device='disk'>{driver}{source}</disk>")
    assert place.why(exclude_uuid=dom.UUIDString()) is None


def test_what_a_volume_of_the_guest_itself_is_based_on_stays(place):
    create(place.above, place.base)
    place.pool("there", place.above.parent, start=True)
    source = "<source pool='there' volume='above.qcow2'/><target dev='vda'/>"
    dom = place.guest(
        f"<disk type='volume' device='disk'><driver name='qemu' type='qcow2'/>{source}</disk>"
    )
    assert place.why(exclude_uuid=dom.UUIDString(), images=False) == f"used by {place.above}"


def test_a_guest_that_is_being_made_has_no_disk_yet_whatever_else_tells_of_it(place):
    more = (
        "<metadata><sv:guest xmlns:sv='https://saltproject.io/xmlns/salt-virt/1' version='1' "
        f"creating='{metadata.worker()}'/></metadata>"
    )
    dom = place.guest(disk(place.above), more=more)
    snapshot = (
        "<domainsnapshot><name>one</name><state>shutoff</state><creationTime>7</creationTime>"
        f"<memory snapshot='no'/>{dom.XMLDesc(0)}</domainsnapshot>"
    )
    text = re.sub("(?s)<metadata>.*</metadata>", "", snapshot)
    dom.snapshotCreateXML(text, libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_REDEFINE)
    assert place.why() is None


def test_a_disk_from_before_a_backup_took_its_place_is_used_on_this_machine(place, monkeypatch):
    monkeypatch.setattr(replaced_guest, "FOLDER", str(place.root / "aside"))
    dom = place.guest("")
    before = dom.XMLDesc(0).replace("</devices>", f"{disk(place.base, 'raw')}</devices>")
    replaced_guest.store(ReplacedGuest(dom.UUIDString(), "web1", "000001-x", before, ()))
    assert place.why() == "used by web1 before it was replaced by 000001-x"
    assert place.why(exclude_uuid=dom.UUIDString()) is None
    (place.root / "aside" / f"{dom.UUIDString()}.json").write_text("{")
    assert place.why(exclude_uuid=dom.UUIDString()).startswith("it cannot be proven to be unused")
    monkeypatch.setattr(usage.connection, "is_local", lambda conn: False)
    assert place.why() is None


# -- what another host asks about ---------------------------------------------------------


def test_an_image_that_goes_with_what_is_asked_about_is_no_user(place, monkeypatch):
    monkeypatch.setattr(sharing, "sharing_reason", lambda path: "nfs4")
    above = create(place.base.parent / "above.qcow2", place.base)
    place.pool("there", place.base.parent)
    base, top = (usage.file_identity(place.conn, str(one)) for one in (place.base, above))
    found = usage.users_here(place.conn, [base])
    assert found == {str(place.base): f"used by {above}"}
    assert usage.users_here(place.conn, [base, top]) == {str(place.base): None, str(above): None}
    other = sharing.FileIdentity("/far/above.qcow2", inode=1)
    assert usage.users_here(place.conn, [base, other])[str(place.base)] == f"used by {above}"


def test_who_has_a_folder_that_others_may_have_may_have_anything_in_it(place, monkeypatch):
    monkeypatch.setattr(sharing, "sharing_reason", lambda path: "nfs4" if path == "/nas" else None)
    used = Usage(folders=[("/nas", StorageUser("web1")), ("/own", StorageUser("web2"))])
    asked = sharing.FileIdentity("/far/x")
    assert list(usage._matching_users(used, asked)) == [StorageUser("web1")]


@pytest.mark.parametrize(
    ("path", "more", "same"),
    [
        ("/far/base.raw", {}, False), ("/far/base.raw", {"inode": 0}, True),
        ("/far/other.raw", {"inode": 0}, False), ("/far/base.raw", {"inode": 1}, False),
        ("/far/base.raw", {"ids": ("wwn", "x")}, True), ("/far/base.raw", {"ids": ("y",)}, False),
    ],
)  # fmt: skip
def test_what_is_surely_the_same(place, monkeypatch, path, more, same):
    real = sharing.file_identity
    ids = ("wwn", "z")
    monkeypatch.setattr(
        sharing, "file_identity", lambda path: sharing.FileIdentity(path, real(path).inode, ids=ids)
    )
    if more.get("inode") == 0:
        more = {"inode": place.base.stat().st_ino}
    assert usage._is_same(str(place.base), sharing.FileIdentity(path, **more)) is same


def test_the_name_of_what_a_server_has_is_surely_the_same():
    there = sharing.FileIdentity("gluster://h/pool/x", names=("pool/x",))
    assert usage._is_same("gluster://other/pool/x", there)
    assert not usage._is_same("gluster://other/pool2/x", there)


@pytest.mark.parametrize(
    ("path", "more", "why", "may"),
    [
        ("{base}", {}, "nfs4", True), ("/far/base.raw", {}, "nfs4", True),
        ("/far/x", {}, "nfs4", False), ("/far/x", {"inode": 0}, "nfs4", True),
        ("/far/x", {"ids": ("wwn",)}, "nfs4", True), ("/far/x", {"ids": ("y",)}, "nfs4", False),
        ("{base}", {"inode": 0}, None, False),
    ],
)  # fmt: skip
def test_what_may_be_the_same(place, monkeypatch, path, more, why, may):
    real = sharing.file_identity
    monkeypatch.setattr(
        sharing,
        "file_identity",
        lambda path: sharing.FileIdentity(path, real(path).inode, ids=("wwn",)),
    )
    monkeypatch.setattr(sharing, "sharing_reason", lambda path: why)
    if "inode" in more:
        more = {"inode": place.base.stat().st_ino}
    there = sharing.FileIdentity(path.format(base=place.base), **more)
    assert usage._may_be_same(str(place.base), there) is may


@pytest.mark.parametrize("answers", [True, False])
def test_what_is_not_to_be_seen_may_be_the_same_by_its_name(place, monkeypatch, answers):
    if not answers:
        monkeypatch.setattr(bounded_io, "lexists", silent)
    gone = "/nowhere/base.raw"
    assert usage._may_be_same(gone, sharing.FileIdentity("/far/base.raw"))
    assert usage._may_be_same(gone, sharing.FileIdentity(gone))
    assert not usage._may_be_same(gone, sharing.FileIdentity("/far/other.raw"))


# -- what is gone -------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["fstab", "pool", "started pool", "folder", "mounted", "beside"])
def test_a_file_is_surely_gone_where_nothing_is_to_be_mounted(place, monkeypatch, where):
    folder = place.root / "other"
    (folder / "neighbour").touch()
    if where in ("fstab", "mounted"):
        monkeypatch.setattr(mounts, "to_mount", lambda: [f"{folder}/"])
    if where == "beside":
        monkeypatch.setattr(mounts, "to_mount", lambda: [f"{place.root}/oth", f"{folder}/deeper"])
    if where == "mounted":
        row = mounts.Mount("0:9", "/", f"{folder}/", "nfs4", "nas:/x")
        monkeypatch.setattr(mounts, "read", lambda: [row])
    if where in ("pool", "started pool"):
        place.pool("nas", folder, "netfs", start=where == "started pool")
    if where == "folder":
        place.pool("images", folder)
    gone = usage._surely_gone(place.conn, str(folder / "x"))
    assert gone is (where in ("started pool", "folder", "mounted", "beside"))


def test_in_an_empty_folder_or_none_it_may_be_on_what_is_not_mounted(place):
    assert not usage._surely_gone(place.conn, str(place.root / "images" / "x"))
    assert not usage._surely_gone(place.conn, str(place.root / "none" / "x"))


def tree(text):
    return ElementTree.fromstring(text)


# -- guests of users' own -----------------------------------------------------------------


def test_what_a_user_may_not_have_named_before_counts_for_each_guest(place, monkeypatch):
    monkeypatch.setattr(foreign_guests, "may_open", lambda uid, path: True)
    reader = usage._UsageReader(place.conn, None)
    name = references.StorageReference(path=str(place.base), format="raw")
    for who in ("one", "one", "two"):
        assert reader.private(name, foreign_guests.ForeignDefinition(tree("<a/>"), who, 7), 7)
    assert reader.usage.guests([str(place.base)]) == ["one", "two"]
    assert reader.file_counts == {7: 4}


@pytest.mark.parametrize("most", [1, 2])
def test_a_user_who_names_more_than_anybody_has_is_not_known(place, monkeypatch, most):
    """Each name counts, and each file of its chain."""
    monkeypatch.setattr(foreign_guests, "may_open", lambda uid, path: True)
    monkeypatch.setattr(foreign_guests, "MAX_FILES", most)
    reader = usage._UsageReader(place.conn, None)
    who = foreign_guests.ForeignDefinition(tree("<a/>"), "one", 7)
    assert (
        reader.private(references.StorageReference(path=str(place.base), format="raw"), who, 7)
        is True
    )
    assert reader.usage.private == {}
    assert (
        reader.private(references.StorageReference(path=str(place.above), format="raw"), who, 7)
        is False
    )
    words = (
        f"cannot determine the files of the guests of user 7: they refer to more than {most} files"
    )
    assert reader.usage.private == {7: [words]}
    assert reader.usage.guests([str(place.base), str(place.above)]) == ["one"]
    assert reader.usage.guests([str(place.above)]) == []


def test_what_a_users_guest_is_based_on_counts_where_he_may_open_it(place, monkeypatch):
    monkeypatch.setattr(foreign_guests, "may_open", lambda uid, path: path == "/b")
    reader = usage._UsageReader(place.conn, None)
    who = foreign_guests.ForeignDefinition(tree("<a/>"), "one", 7)
    for number, more in enumerate(({}, {"unreadable": "u"}, {"broken": "b"})):
        found = chains.ChainScan(["/a", "/b"], **more)
        monkeypatch.setattr(chains, "read", lambda path, format, found=found: found)
        assert reader.private(
            references.StorageReference(path=f"/{number}", format="qcow2"), who, 7
        )
    assert set(reader.usage.users) == {"/b"}
    words = "cannot determine the files of one: "
    assert reader.usage.private == {7: [f"{words}u", f"{words}b"]}


def test_a_volume_or_a_folder_of_a_users_guest(place, monkeypatch):
    monkeypatch.setattr(foreign_guests, "may_open", lambda uid, path: True)
    reader = usage._UsageReader(place.conn, None)
    who = foreign_guests.ForeignDefinition(tree("<a/>"), "one", 7)
    volume = references.StorageReference(volume=("p", "v"), format="raw")
    assert reader.private(volume, who, 7)
    assert reader.usage.private == {7: ["one has a disk in a storage pool that is unknown here"]}
    folder = references.StorageReference(path=str(place.base.parent), folder=True, format="raw")
    for owner, seen in ((8, []), (7, [str(place.base.parent)])):
        monkeypatch.setattr(usage, "_owner", lambda path, owner=owner: owner)
        reader.visited.clear()
        assert reader.private(folder, who, 7)
        assert [path for path, _ in reader.usage.folders] == seen
    plain = references.StorageReference(path=str(place.above), format="raw")
    assert reader.private(plain, who, 7)
    assert len(reader.usage.folders) == 1


@pytest.mark.parametrize(("long", "counts"), [(usage._MAX_PATH, True), (4097, False)])
def test_the_longest_path_that_is_asked_about(place, monkeypatch, long, counts):
    monkeypatch.setattr(foreign_guests, "may_open", lambda uid, path: True)
    reader = usage._UsageReader(place.conn, None)
    path = "/" + "a" * (long - 1)
    who = foreign_guests.ForeignDefinition(tree("<a/>"), "one", 7)
    assert reader.private(references.StorageReference(path=path, format="raw"), who, 7)
    assert (path in reader.usage.users) is counts


@pytest.mark.parametrize(("neighbour", "closed", "doubt"), [(0, 0, 1), (1, 0, 0), (0, 1, 0)])
def test_what_a_users_guest_is_based_on_and_is_not_there(place, neighbour, closed, doubt):
    if neighbour:
        (place.root / "other" / "neighbour").touch()
    reader = usage._UsageReader(place.conn, None)
    who = foreign_guests.ForeignDefinition(tree("<a/>"), "one", 7)
    name = references.StorageReference(
        path=str(place.above), format="qcow2", chain_complete=bool(closed)
    )
    assert reader.private(name, who, 7)
    text = f"cannot determine the files of one: {place.above} does not exist"
    assert reader.usage.private == ({7: [text]} if doubt else {})


def test_the_guest_that_is_asked_for_does_not_count_by_another_driver_either(place):
    who = foreign_guests.ForeignDefinition(
        tree(f"<domain><uuid>u</uuid><x>{place.base}</x></domain>"), "one (lxc:///system)"
    )
    for but, users in ((None, ["one (lxc:///system)"]), ("u", []), ("v", ["one (lxc:///system)"])):
        reader = usage._UsageReader(place.conn, but)
        reader.foreign(who)
        assert reader.usage.guests([str(place.base)]) == users


def test_a_users_guest_needs_what_he_may_open_until_he_has_named_too_much(place, monkeypatch):
    monkeypatch.setattr(foreign_guests, "may_open", lambda uid, path: False)
    names = [str(place.base), str(place.above)]
    text = "".join(f"<x>{name}</x>" for name in names)
    theirs = foreign_guests.ForeignDefinition(tree(f"<domain>{text}</domain>"), "one", 7)
    reader = usage._UsageReader(place.conn, None)
    reader.foreign(theirs)
    assert reader.usage.guests(names) == []
    asked = []
    for goes_on, most in ((True, 2), (False, 1)):
        monkeypatch.setattr(
            reader, "private", lambda name, *_, on=goes_on: asked.append(name.path) or on
        )
        reader.foreign(theirs)
        assert asked == names[:most]
        asked.clear()


def test_a_doubt_about_users_is_theirs_and_of_the_system_everybodys(place):
    reader = usage._UsageReader(place.conn, None)
    for uid in (7, 7, None, None):
        reader.foreign(foreign_guests.UnreadableForeign(f"of {uid}", uid))
    assert reader.usage.private == {7: ["of 7"]}
    assert reader.usage.unknown == ["of None"]
