"""Guests whose disks are protected by leases: the locks that QEMU takes."""

from xml.etree import ElementTree

import pytest

from saltvirt.ha.manager.definitions import StoredDefinition
from saltvirt.ha.manager.leases import LeaseDetector, PoolLocator, is_leased

DISK = "<disk type='file'><source file='/srv/shared/web1.raw'/></disk>"
CD = "<disk type='file' device='cdrom'><source file='/x.iso'/><readonly/></disk>"
NVRAM = "<os><nvram>/srv/shared/web1.fd</nvram></os>"
EFI = "<os firmware='efi'><nvram type='file'><source file='/srv/shared/web1.fd'/></nvram></os>"
LOADER = "<os><loader type='pflash'>/srv/other/code.fd</loader></os>"
QEMU = "xmlns:q='http://libvirt.org/schemas/domain/qemu/1.0'"


def xml(devices, more=""):
    return f"<domain><name>web1</name>{more}<devices>{devices}</devices></domain>"


def data_in(path):
    """A disk whose data lie in a file beside it."""
    store = f"<dataStore type='file'><source file='{path}'/></dataStore>"
    return DISK.replace("/></disk>", f">{store}</source></disk>")


@pytest.mark.parametrize(
    "found",
    [
        xml(DISK),
        xml(DISK + CD),
        xml(data_in("/srv/shared/web1.data")),
        xml(DISK, NVRAM),
        xml(DISK, EFI),
        xml(DISK, LOADER.replace("type", "readonly='yes' type")),
        xml(DISK, LOADER.replace("pflash", "rom")),
        xml(DISK, LOADER.replace("other", "shared")),
        xml(DISK + "<memory model='dimm'><target/></memory>"),
    ],
)
def test_all_that_it_writes_to_is_on_such_storage(found):
    assert is_leased(ElementTree.fromstring(found), ["/srv/shared/"])


def test_each_of_its_files_may_be_on_another_such_storage():
    found = ElementTree.fromstring(xml(DISK + DISK.replace("shared", "too"), NVRAM))
    assert is_leased(found, iter(["/srv/shared", "/srv/too"]))
    assert not is_leased(found, ["/srv/shared"])
    assert not is_leased(found, ["/srv/too"])


@pytest.mark.parametrize(
    "found",
    [
        xml(""),
        xml(CD),
        xml(DISK + DISK.replace("/srv/shared/web1.raw", "/srv/other/web1.raw")),
        xml(DISK.replace("web1.raw", "../other/web1.raw")),
        xml(DISK.replace("/srv/shared", "/srv/shared2")),
        xml(DISK.replace("</disk>", "<shareable/></disk>")),
        xml(DISK + DISK.replace("</disk>", "<shareable/></disk>")),
        xml("<disk type='file' device='floppy'/>"),
        xml(data_in("/srv/other/web1.data")),
        xml(data_in("/srv/shared/x").replace("source file='/srv/shared/x'", "source dev='/dev/x'")),
        xml("<disk type='network'><source protocol='gluster' name='ha/x'/></disk>"),
        xml("<disk type='volume'><source pool='p' volume='v'/></disk>"),
        xml("<disk type='block'><source dev='/srv/shared/x'/></disk>"),
        xml(DISK + "<tpm><backend type='emulator'/></tpm>"),
        xml(DISK + "<filesystem><target dir='x'/></filesystem>"),
        xml(DISK + "<memory model='nvdimm'><source><path>/srv/shared/x</path></source></memory>"),
        xml(DISK + "<pstore backend='acpi-erst'><path>/srv/shared/x</path></pstore>"),
        xml(DISK, f"<q:commandline {QEMU}><q:arg value='-s'/></q:commandline>"),
        xml(DISK, f"<q:override {QEMU}/>"),
        xml(DISK, LOADER),
        xml(DISK, LOADER.replace("type", "readonly='no' type")),
        xml(DISK, NVRAM.replace("/srv/shared", "/var/lib")),
        xml(DISK, "<os firmware='efi'/>"),
        xml(DISK, "<os><nvram type='block'><source dev='/dev/x'/></nvram></os>"),
    ],
)
def test_what_qemu_locks_not_there_is_not_leased(found):
    assert not is_leased(ElementTree.fromstring(found), ["/srv/shared"])


def test_it_is_looked_at_anew_when_the_definition_changes():
    one = LeaseDetector(["/srv/shared"])
    known = {
        "web1": StoredDefinition("web1", "a", xml(DISK)),
        "web2": StoredDefinition("web2", "b", xml(CD)),
    }
    assert one.evaluate(known) == {"web1"}
    assert one.evaluate({"web1": StoredDefinition("web1", "a", "not read again")}) == {"web1"}
    assert one.evaluate({"web1": StoredDefinition("web1", "c", xml(CD))}) == frozenset()
    assert one.evaluate({}) == frozenset()


def test_without_such_storage_no_definition_is_read():
    assert (
        LeaseDetector([]).evaluate({"web1": StoredDefinition("web1", "a", "not read")})
        == frozenset()
    )


def test_the_pools_of_guests_are_looked_up_anew_when_a_definition_changes():
    xml = "<domain><devices><disk type='file'><source file='{}'/></disk></devices></domain>"
    volume = xml.replace("type='file'", "type='volume'").replace("file='{}'", "pool='p' volume='v'")
    one = PoolLocator(["/srv/a", "/srv/b"])
    web1, db1 = (
        StoredDefinition("web1", "1", xml.format("/srv/b/x")),
        StoredDefinition("db1", "2", volume),
    )
    known = {"web1": web1, "db1": db1}
    found = one.evaluate(known)
    assert found == {"web1": ("/srv/b",)} and one.evaluate(known) is found
    moved = StoredDefinition("web1", "3", xml.format("/srv/a/x"))
    assert one.evaluate({"web1": moved}) == {"web1": ("/srv/a",)}
