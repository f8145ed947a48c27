"""Which guests' disks are leased by the locks that QEMU takes."""

from xml.etree import ElementTree

import pytest

from saltvirt.hamaster.definitions import Definition
from saltvirt.hamaster.leased import Leased, is_leased

DISK = "<disk type='file'><source file='/srv/shared/web1.raw'/></disk>"
CD = "<disk type='file' device='cdrom'><source file='/x.iso'/><readonly/></disk>"
NVRAM = "<os><nvram>/srv/shared/web1.fd</nvram></os>"


def xml(devices, more=""):
    return f"<domain><name>web1</name>{more}<devices>{devices}</devices></domain>"


@pytest.mark.parametrize("found", [xml(DISK), xml(DISK + CD), xml(DISK, NVRAM)])
def test_all_that_it_writes_to_is_on_such_storage(found):
    assert is_leased(ElementTree.fromstring(found), ["/srv/shared/"])


@pytest.mark.parametrize(
    "found",
    [
        xml(""),
        xml(CD),
        xml(DISK + DISK.replace("/srv/shared/web1.raw", "/srv/other/web1.raw")),
        xml(DISK.replace("web1.raw", "../other/web1.raw")),
        xml(DISK.replace("/srv/shared", "/srv/shared2")),
        xml(DISK.replace("</disk>", "<shareable/></disk>")),
        xml("<disk type='network'><source protocol='gluster' name='ha/x'/></disk>"),
        xml("<disk type='volume'><source pool='p' volume='v'/></disk>"),
        xml("<disk type='block'><source dev='/srv/shared/x'/></disk>"),
        xml(DISK + "<tpm><backend type='emulator'/></tpm>"),
        xml(DISK + "<filesystem><target dir='x'/></filesystem>"),
        xml(DISK, NVRAM.replace("/srv/shared", "/var/lib")),
        xml(DISK, "<os firmware='efi'/>"),
        xml(DISK, "<os><nvram type='block'><source dev='/dev/x'/></nvram></os>"),
    ],
)
def test_what_qemu_locks_not_there_is_not_leased(found):
    assert not is_leased(ElementTree.fromstring(found), ["/srv/shared"])


def test_it_is_looked_at_anew_when_the_definition_changes():
    one = Leased(["/srv/shared"])
    known = {"web1": Definition("web1", "a", xml(DISK)), "web2": Definition("web2", "b", xml(CD))}
    assert one.look(known) == one.look(known) == {"web1"}
    assert one.look({"web1": Definition("web1", "c", xml(CD))}) == frozenset()
    assert Leased([]).look(known) == frozenset()
