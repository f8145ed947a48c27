"""The files that the deletion of a snapshot changes, and their users, with libvirt's test
driver."""

import contextlib
from xml.etree import ElementTree

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.host.snapshot import affected_files
from saltvirt.host.storage import usage
from saltvirt.system import bounded_io
from tests.functional.host.snapshot.test_snapshots_shared import layer, layered
from tests.functional.host.storage.test_shared import nas  # noqa: F401
from tests.functional.host.storage.test_usage import create, disk, place  # noqa: F401

VERB = "virt.revert"
MIXED = """<domainsnapshot><name>mixed</name><state>disk-snapshot</state>
<creationTime>5</creationTime>
<memory snapshot='no'/><disks>
<disk name='vda' snapshot='external' type='file'><driver type='qcow2'/><source file='{one}'/></disk>
<disk name='vdb' snapshot='external' type='block'><driver type='qcow2'/><source dev='/dev/vg/x'/>
</disk><disk name='vdc' snapshot='no'/></disks>{domain}</domainsnapshot>"""


@pytest.mark.parametrize(
    ("source", "where"),
    [
        ("", None),
        ("<source/>", None),
        ("<source file='/a'/>", "/a"),
        ("<source dev='/dev/a'/>", "/dev/a"),
        ("<source protocol='rbd' name='pool/a'/>", "pool/a"),
    ],
)
def test_where_a_disk_has_its_data(source, where):
    assert affected_files._data_source(ElementTree.fromstring(f"<disk>{source}</disk>")) == where


@pytest.fixture
def mixed(place):  # noqa: F811
    """(the domain, its snapshot): two layers, one of them on a device, and a disk without one."""
    drives = "".join(
        disk(place.root / "other" / f"{target}.raw", "raw", target) for target in ("vdb", "vdc")
    )
    dom = place.guest(disk(place.base, "raw") + drives, name="web1")
    text = MIXED.format(one="/nowhere/one", domain=dom.XMLDesc(0))
    return dom, dom.snapshotCreateXML(text, libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_REDEFINE)


def test_layers_are_those_of_external_snapshots(mixed):
    dom, _ = mixed
    dom.snapshotCreateXML("<domainsnapshot><name>inner</name></domainsnapshot>")
    assert affected_files.layers(dom.listAllSnapshots()) == {"/nowhere/one", "/dev/vg/x"}
    assert affected_files.layers([]) == set()


def test_a_layer_is_merged_into_what_is_next_below(place, monkeypatch):  # noqa: F811
    dom, first, second = layered(place)
    both = {one.getName(): one for one in dom.listAllSnapshots()}
    assert affected_files.merged_paths([both["two"]]) == {first, second}
    assert affected_files.merged_paths([both["one"]]) == {str(place.base), first}
    monkeypatch.chdir(place.root)
    (place.root / "pool").mkdir()
    create("pool/a", place.base)
    monkeypatch.setattr(affected_files, "layers", lambda snapshots: {"pool/a"})
    assert affected_files.merged_paths([]) == {"pool/a"}, "what a server has is read by nobody here"


def test_what_is_in_use_are_the_disks_that_it_puts_back(mixed, place):  # noqa: F811
    dom, snapshot = mixed
    assert affected_files.current_sources(dom, snapshot) == {
        str(place.base),
        str(place.root / "other" / "vdb.raw"),
    }


def test_a_snapshot_may_name_a_disk_by_its_path(mixed, place, monkeypatch):  # noqa: F811
    dom, snapshot = mixed
    node = ElementTree.fromstring(f"<disk name='{place.root}/other/vdc.raw'/>")
    monkeypatch.setattr(affected_files, "_external", lambda snapshot: [node])
    assert affected_files.current_sources(dom, snapshot) == {str(place.root / "other" / "vdc.raw")}


def test_where_nothing_changes_nobody_is_asked(nas, monkeypatch):  # noqa: F811
    dom = nas.guest(disk(nas.base, "raw"), name="web1")
    stake = affected_files.assess(nas.conn, dom, set(), VERB)
    assert stake == affected_files.AffectedFiles(VERB)
    monkeypatch.setattr(usage, "read", None)
    affected_files.refuse(nas.conn, dom, stake)


class Told:
    """A snapshot as another driver may tell of it."""

    def getXMLDesc(self):
        return (
            "<domainsnapshot><disks><disk name='vda' snapshot='external'/></disks></domainsnapshot>"
        )


def test_a_drive_without_a_medium_and_a_layer_without_a_place_are_nowhere(nas, monkeypatch):  # noqa: F811
    empty = "<disk type='file' device='cdrom'><target dev='sda' bus='sata'/></disk>"
    dom = nas.guest(disk(nas.base, "raw") + empty, name="web1")
    assert set(affected_files.assess(nas.conn, dom, {"/x"}, VERB).own_files) == {str(nas.base)}
    assert affected_files.layers([Told()]) == set()
    node = ElementTree.fromstring("<disk name='sda' snapshot='external'/>")
    monkeypatch.setattr(affected_files, "_external", lambda snapshot: [node])
    assert affected_files.current_sources(dom, Told()) == set()


def test_what_other_hosts_may_have_is_told_apart(nas):  # noqa: F811
    dom, first, second = layered(nas)
    stake = affected_files.assess(nas.conn, dom, {str(nas.base), "/gone/x"}, VERB)
    assert (stake.verb, stake.changed) == (VERB, {str(nas.base), "/gone/x"})
    assert set(stake.shared) == {str(nas.base)}
    assert set(stake.own_files) == {first, second}
    assert stake.shared[str(nas.base)] == usage.file_identity(nas.conn, str(nas.base))


def test_what_only_this_host_has_needs_no_question(place):  # noqa: F811
    dom, first, _ = layered(place)
    stake = affected_files.assess(place.conn, dom, {first}, VERB)
    assert (stake.shared, stake.own_files) == ({}, {})
    affected_files.refuse(place.conn, dom, stake)


def test_a_disk_of_a_pool_is_the_guests_own(place):  # noqa: F811
    """It is based on what is changed, by a name that only libvirt has."""
    pool = place.pool("there", place.root / "other", start=True)
    above = create(place.root / "other" / "above.qcow2", place.base)
    pool.createXML("<volume><name>above.qcow2</name><capacity>1</capacity></volume>", 0)
    dom = place.guest(
        "<disk type='volume'><driver name='qemu' type='qcow2'/><source pool='there' "
        "volume='above.qcow2'/><target dev='vda'/></disk>"
    )
    stake = affected_files.AffectedFiles(VERB, {str(place.base)})
    affected_files.refuse(place.conn, dom, stake)
    place.guest(disk(above), name="web2")
    with pytest.raises(errors.Refused, match=r"base.raw would be lost, but web2 needs it"):
        affected_files.refuse(place.conn, dom, stake)


def test_a_doubt_is_a_reason(place):  # noqa: F811
    dom = place.guest(disk(place.base, "raw"), name="web1")
    create(place.above, place.root / "images" / "gone.qcow2", "qcow2")
    place.guest(disk(place.above), name="web2")
    with pytest.raises(errors.Refused, match="would be lost, but it cannot be proven to be unused"):
        affected_files.refuse(
            place.conn, dom, affected_files.AffectedFiles(VERB, {str(place.base)})
        )


def test_what_does_not_answer_is_a_reason(place, monkeypatch):  # noqa: F811
    dom = place.guest(disk(place.base, "raw"), name="web1")
    real = usage.keys_of

    def hung(conn, path):
        with contextlib.suppress(bounded_io.StorageTimeout):
            bounded_io._raise_timeout("/nfs")
        return real(conn, path)

    monkeypatch.setattr(usage, "keys_of", hung)
    with pytest.raises(errors.Refused, match=r"base.raw would be lost, but /nfs does not respond"):
        affected_files.refuse(
            place.conn, dom, affected_files.AffectedFiles(VERB, {str(place.base)})
        )


def test_a_proof_is_for_its_own_path(nas):  # noqa: F811
    dom = nas.guest(disk(nas.base, "raw"), name="web1")
    stake = affected_files.assess(nas.conn, dom, {str(nas.base)}, VERB)
    with pytest.raises(errors.Refused, match=r"base.raw would be lost, but other hosts may need"):
        affected_files.refuse(nas.conn, dom, stake, ["/other"])
    affected_files.refuse(nas.conn, dom, stake, [str(nas.base)])


def test_what_a_server_has_is_looked_for_by_its_name(place, monkeypatch):  # noqa: F811
    """And not in a folder of that name here."""
    monkeypatch.chdir(place.root)
    (place.root / "pool").touch()
    dom = place.guest(disk(place.base, "raw"), name="web1")
    stake = affected_files.assess(place.conn, dom, {"pool/a"}, VERB)
    assert list(stake.shared) == ["pool/a"]
    with pytest.raises(errors.Refused, match="pool/a would be lost, but other hosts may need it"):
        affected_files.refuse(place.conn, dom, stake)
    affected_files.refuse(place.conn, dom, stake, ["pool/a"])


def test_layers_of_another_snapshot_of_the_guest_are_its_own(nas):  # noqa: F811
    dom = nas.guest(disk(nas.base, "raw"), name="web1")
    first = layer(dom, "one", nas.base)
    stake = affected_files.assess(nas.conn, nas.conn.lookupByName("web1"), {str(nas.base)}, VERB)
    assert set(stake.own_files) == {first}
