"""The engine: libvirt's events about a guest of a hypervisor arrive on the master's bus."""

import pytest

from tests.clock import until
from tests.rootless.cloud import ENGINE


@pytest.fixture
def guest(cloud):
    """The guest ``test`` of hv1, at libvirt itself."""
    return cloud.libvirtds["hv1"].connection.lookupByName("test")


def test_the_life_of_a_guest(cloud, guest):
    def told(event, detail):
        tag = f"{ENGINE}/test+unix/default/domain/lifecycle"
        wanted = {"event": event, "detail": detail}
        found = [one.data["data"] for one in cloud.events.store if one.tag == tag]
        return [data for data in found if wanted.items() <= data.items()]

    def suspended():
        guest.suspend()
        guest.resume()
        return told("resumed", "unpaused")

    until(suspended, f"an event of the engine, of {[one.tag for one in cloud.events.store][-9:]}")
    guest.destroy()
    guest.create()
    [data] = until(lambda: told("started", "booted"), "the start")
    assert (data["domain"]["name"], data["domain"]["uuid"]) == ("test", guest.UUIDString())
    assert data["uri"] == cloud.libvirtds["hv1"].uri
    assert told("stopped", "destroyed")
