"""The definition of a stopped guest, adapted to the other host."""

# ruff: noqa: F811
import pytest

libvirt = pytest.importorskip("libvirt")

from saltvirt import errors
from saltvirt.host.migration import offline, prepare, target_files
from saltvirt.migration.facts import GuestReport, MachineReport, TargetReport
from tests.functional.conftest import EMPTY
from tests.functional.host.migration.test_migrate_faults import dom  # noqa: F401

XML = "<domain><devices><emulator>/usr/bin/kvm</emulator></devices></domain>"
REPORT = GuestReport("web1", "u", "hv1", False, "shutdown", emulator="/usr/bin/kvm")


@pytest.mark.parametrize(
    ("has", "theirs", "path"),
    [
        (False, "/usr/libexec/qemu-kvm", "/usr/libexec/qemu-kvm"),
        (True, "/usr/libexec/qemu-kvm", "/usr/bin/kvm"),
        (None, None, "/usr/bin/kvm"),
        (None, "/usr/libexec/qemu-kvm", "/usr/bin/kvm"),
        (False, None, "/usr/bin/kvm"),
    ],
)
def test_the_targets_own_emulator_takes_the_place_of_one_that_it_lacks(has, theirs, path):
    host = TargetReport("hv2", machine=MachineReport(emulator=theirs, has_emulator=has))
    text = offline.for_target(XML, REPORT, host)
    assert text == XML.replace("/usr/bin/kvm", path)
    snapshot = f"<domainsnapshot>{XML}<inactiveDomain/></domainsnapshot>"
    assert path in offline.for_target(snapshot, REPORT, host)


def test_a_guest_whose_emulator_is_not_known_has_the_one_that_it_names():
    host = TargetReport("hv2", machine=MachineReport(emulator="/usr/bin/x", has_emulator=False))
    report = GuestReport("web1", "u", "hv1", False, "shutdown")
    assert offline.for_target("<emulator></emulator>", report, host) == "<emulator></emulator>"


SECRET = "<graphics type='vnc' passwd='s3cret'/></devices>"


def with_password(dom):
    return dom.connect().defineXML(dom.XMLDesc().replace("</devices>", SECRET))


def test_a_definition_is_whole_and_of_the_next_start(dom):
    guest = with_password(dom)
    guest.create()
    inactive = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE
    guest.connect().defineXML(guest.XMLDesc(inactive).replace(">65536<", ">32768<"))
    text = offline.definition(guest)
    assert "passwd='s3cret'" in text
    assert ">32768<" in text
    assert " id='" not in text
    guest.undefine()
    text = offline.definition(guest)
    assert "passwd='s3cret'" in text
    assert " id='" in text, "it has no other"
    guest.destroy()


class Target:
    """What is asked of the other host, in its order."""

    def __init__(self):
        self.done = []

    def report_step(self, text):
        self.done.append(text)

    def copy(self, path):
        self.done.append(path)


@pytest.mark.parametrize("there", [True, False])
def test_what_of_a_guest_is_copied(tmp_path, monkeypatch, there):
    """libvirt makes the variables of a guest that never ran."""
    target, store = Target(), tmp_path / "web1_VARS.fd"
    if there:
        store.touch()
    monkeypatch.setattr(
        prepare, "copy_owned_files", lambda to, plan: to.done.append(("own", plan.target))
    )
    monkeypatch.setattr(
        offline.target_files, "copy", lambda to, plan: to.done.append(("copy", plan.target))
    )
    monkeypatch.setattr(offline.storage, "copied_plans", lambda plans: plans[1:])

    class Plan:
        def __init__(self, target):
            self.target = target

    offline.copy(target, REPORT, [Plan("vda"), Plan("vdb")], str(store))
    assert target.done == [
        ("own", "vda"), ("own", "vdb"), "copying disk vdb of web1", ("copy", "vdb"),
        *([str(store)] if there else []),
    ]  # fmt: skip
    target.done.clear()
    offline.copy(target, REPORT, [], None)
    assert target.done == []


HOST = TargetReport("hv2", machine=MachineReport(emulator="/usr/bin/theirs", has_emulator=False))


@pytest.fixture
def peer():
    conn = libvirt.open(EMPTY)
    yield conn
    for left in conn.listAllDomains():
        for snapshot in left.listAllSnapshots():
            snapshot.delete(0)
        left.undefine()
    conn.close()


@pytest.mark.parametrize("current", [True, False])
def test_the_target_has_the_definition_and_all_snapshots(dom, peer, current):
    guest = with_password(dom)
    for name in ("s1", "s2"):
        guest.snapshotCreateXML(f"<domainsnapshot><name>{name}</name></domainsnapshot>")
    if not current:
        guest.snapshotLookupByName("s2").delete(0)
    else:
        guest.revertToSnapshot(guest.snapshotLookupByName("s1"))
    offline.define(target_files.MigrationTarget(peer, None, None, None), guest, REPORT, HOST)
    there = peer.lookupByUUIDString(guest.UUIDString())
    assert "passwd='s3cret'" in there.XMLDesc(libvirt.VIR_DOMAIN_XML_SECURE)
    names = {one.getName(): one for one in there.listAllSnapshots()}
    assert set(names) == ({"s1", "s2"} if current else {"s1"})
    assert there.snapshotCurrent().getName() == guest.snapshotCurrent().getName() == "s1"
    secure = libvirt.VIR_DOMAIN_SNAPSHOT_XML_SECURE
    assert all("passwd='s3cret'" in one.getXMLDesc(secure) for one in names.values())
    assert guest.isPersistent(), "it stays until the move is confirmed"
    for snapshot in guest.listAllSnapshots():
        snapshot.delete(0)


def test_a_guest_without_snapshots_comes_with_none(dom, peer):
    offline.define(target_files.MigrationTarget(peer, None, None, None), dom, REPORT, HOST)
    assert peer.lookupByName("web1").listAllSnapshots() == []


def test_the_emulator_of_the_target_is_in_the_definition_and_in_the_snapshots(dom, peer):
    dom.snapshotCreateXML("<domainsnapshot><name>s1</name></domainsnapshot>")
    mine = GuestReport("web1", "u", "hv1", False, "shutdown", emulator="/usr/bin/mine")
    guest = dom.connect().defineXML(
        dom.XMLDesc().replace("<devices>", "<devices><emulator>/usr/bin/mine</emulator>", 1)
    )
    guest.snapshotLookupByName("s1").delete(0)
    guest.snapshotCreateXML("<domainsnapshot><name>s1</name></domainsnapshot>")
    offline.define(target_files.MigrationTarget(peer, None, None, None), guest, mine, HOST)
    there = peer.lookupByName("web1")
    [snapshot] = there.listAllSnapshots()
    for text in (there.XMLDesc(), snapshot.getXMLDesc()):
        assert "<emulator>/usr/bin/theirs</emulator>" in text
    guest.snapshotLookupByName("s1").delete(0)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_guest_that_is_started_meanwhile_is_not_moved(dom, peer, monkeypatch, when):
    if when == "before":
        dom.create()
    else:
        monkeypatch.setattr(offline, "_snapshots", lambda dom, there, fitted: dom.create())
    with pytest.raises(errors.MigrationFailed, match="web1 was started during its migration"):
        offline.define(target_files.MigrationTarget(peer, None, None, None), dom, REPORT, HOST)
    assert (len(peer.listAllDomains()) == 0) == (when == "before")
