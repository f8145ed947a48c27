"""The engine: libvirt's events about a guest of a hypervisor arrive on the master's bus."""

import pytest

from tests.clock import until
from tests.rootless.cloud import ENGINE


@pytest.fixture
def guest(cloud):
    """The guest ``test`` of hv1, at libvirt itself."""
    return cloud.libvirtds["hv1"].connection.lookupByName("test")


def test_the_life_of_a_guest(cloud, guest):
    def events(event, detail):
        tag = f"{ENGINE}/test+unix/default/domain/lifecycle"
        wanted = {"event": event, "detail": detail}
        entries = [entry for entry in cloud.events.store if entry.tag == tag]
        return [entry for entry in entries if wanted.items() <= entry.data["data"].items()]

    def suspended():
        guest.suspend()
        guest.resume()
        return events("resumed", "unpaused")

    reason = f"an event of the engine, of {[entry.tag for entry in cloud.events.store][-9:]}"
    last = until(suspended, reason)[-1].stamp

    # other tests start the same guest: only later events count
    def new_events(event, detail):
        return [entry.data["data"] for entry in events(event, detail) if entry.stamp > last]

    guest.destroy()
    guest.create()
    [data] = until(lambda: new_events("started", "booted"), "the start")
    assert (data["domain"]["name"], data["domain"]["uuid"]) == ("test", guest.UUIDString())
    assert data["uri"] == cloud.libvirtds["hv1"].uri
    assert new_events("stopped", "destroyed")
