"""The types that the master expects are those of the hosts' answers, with libvirt's test driver."""

import pytest

pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt.answers import guest_calls, host_calls, inspect_calls
from saltvirt.migration import calls as migration_calls
from saltvirt.placement import calls as placement_calls
from saltvirt.snapshot import calls as snapshot_calls
from tests.functional import asking
from tests.functional.host.provision.test_init import host, image  # noqa: F401

NOTHING, TEST = guest_calls.HostRequest(), guest_calls.NamedGuestRequest("test")
ASKED = [
    (guest_calls.LIST_STATES, guest_calls.GuestsRequest()),
    (inspect_calls.GUEST_DETAILS, TEST),
    (guest_calls.SHOW_HOST, NOTHING),
    (guest_calls.LIST_LEFTOVERS, NOTHING),
    (guest_calls.LIST_ADDRESSES, TEST),
    (guest_calls.LIST_DISKS, TEST),
    (guest_calls.GET_XML, TEST),
    (guest_calls.SET_AUTOSTART, guest_calls.AutostartRequest("test", "off")),
    (guest_calls.SHARED_DISKS, TEST),
    (guest_calls.STORAGE_USERS, guest_calls.StorageUsersRequest({"/a": {"path": "/a"}})),
    (guest_calls.RUNNING_NAMES, NOTHING),
    (guest_calls.PLAN_PURGE, guest_calls.PurgePlanRequest("test")),
    (guest_calls.PLAN_ORPHAN_REMOVAL, guest_calls.PurgePlanRequest("test")),
    (guest_calls.REMOVE_ORPHANS, guest_calls.OrphanRequest("test")),
    (guest_calls.EJECT_SEED, guest_calls.EjectRequest("none", last_seen=True)),
    (host_calls.MAINTENANCE, host_calls.MaintenanceRequest()),
    (host_calls.VERSIONS, NOTHING),
    (host_calls.CERTIFICATES, NOTHING),
    (placement_calls.INVENTORY, placement_calls.InventoryRequest()),
    (placement_calls.POWER, placement_calls.PowerRequest(
        name="test", verb="pause", states=("running",), last_seen=True)),
    (migration_calls.LOCATIONS, NOTHING),
    (migration_calls.LIST_UNFINISHED, NOTHING),
    (migration_calls.PLAN_CLEANUP, migration_calls.CleanPlanRequest("test")),
    (snapshot_calls.TAKE_SNAPSHOT, snapshot_calls.TakeSnapshotRequest("test", "s1")),
    (snapshot_calls.LIST_SNAPSHOTS, snapshot_calls.SnapshotsRequest("test")),
]  # fmt: skip


@pytest.mark.parametrize(("call", "request_"), ASKED, ids=lambda value: getattr(value, "name", ""))
def test_what_a_host_answers_fits(host, call, request_):  # noqa: F811
    call.read(asking.answer(host.modules, call.function, **request_.to_answer()), "hv1")


def test_what_a_host_answers_of_a_guest_that_it_made_fits(host, image):  # noqa: F811
    disks = [{"name": "system", "size": 16}]
    made = host.init("a", image=image, disks=disks)
    assert placement_calls.CREATE.read(made, "hv1").name == "a"
    copied = host.modules["virt.clone"]("a", "b")
    assert placement_calls.CLONE.read(copied, "hv1").name == "b"
    renamed = host.modules["virt.rename"]("b", "c")
    assert placement_calls.RENAME.read(renamed, "hv1").name == "c"
