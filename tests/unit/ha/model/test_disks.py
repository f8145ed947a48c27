"""A host that has lost one of several pools: only guests that use this pool are moved."""

from xml.etree import ElementTree

import pytest

from saltvirt.ha.model import disks, guest_failover, host_capacity
from tests.unit.ha.model import made
from tests.unit.ha.model.made import NOW_S, POLICY, RUNS

LOST = {
    "storage_silent_s": POLICY.storage_lost_s,
    "pools_silent": {"/srv/b": POLICY.storage_lost_s},
}
FILE = "<disk type='file'><source file='{}'/></disk>"
VOLUME = "<disk type='volume'><source pool='p' volume='v'/></disk>"
CDROM = "<disk type='file' device='cdrom'/>"


@pytest.mark.parametrize(
    "xml, found",
    [
        (FILE.format("/srv/a/x.qcow2"), ("/srv/a",)),
        (FILE.format("/srv/a/x") + FILE.format("/srv/b/y") + CDROM, ("/srv/a", "/srv/b")),
        (FILE.format("/srv/ab/x"), ()),
        (FILE.format("/srv/c/../b/x"), ("/srv/b",)),
        (FILE.format("/srv/a/x") + VOLUME, None),
        ("", ()),
    ],
)
def test_the_pools_of_a_guest_are_those_its_files_are_on(xml, found):
    root = ElementTree.fromstring(f"<domain><devices>{xml}</devices></domain>")
    assert disks.pools(root, ["/srv/a", "/srv/b"]) == found


def test_its_variables_count_too():
    root = ElementTree.fromstring("<domain><os><nvram>/srv/b/web1.fd</nvram></os></domain>")
    assert disks.pools(root, ["/srv/a", "/srv/b"]) == ("/srv/b",)


@pytest.mark.parametrize(
    "pools, lost",
    [
        ({}, True),  # nobody can tell where it is
        ({"web1": ("/srv/a",)}, False),
        ({"web1": ("/srv/b",)}, True),
        ({"web1": ("/srv/a", "/srv/b")}, True),
        ({"web1": ()}, False),
    ],
)
def test_a_guest_is_taken_from_a_host_that_lost_its_pool(pools, lost):
    told = made.beat(guests={"web1": RUNS}, **LOST)
    assert guest_failover.has_no_storage(made.case(beats=[told], pools=pools)) is lost
    sees = made.seen([made.beat(**LOST)], pools=pools, guests={"web1": made.wanted()})
    room = host_capacity.HostCapacity(sees, made.registry(), NOW_S)
    assert room.usable("h1", "web1") == ("it cannot reach its storage" if lost else "")


def test_of_a_host_of_an_older_version_one_number_counts_for_all():
    told = made.beat(guests={"web1": RUNS}, storage_silent_s=POLICY.storage_lost_s)
    assert guest_failover.has_no_storage(made.case(beats=[told], pools={"web1": ("/srv/a",)}))
