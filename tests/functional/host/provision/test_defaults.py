"""Defaults of new guests on a private libvirtd: QEMU starts with them, a second apply changes
nothing, and an existing guest does not get them."""

import pytest

from saltvirt.xml.domain.domain import Domain
from tests.functional.daemon import libvirtd  # noqa: F401
from tests.functional.host.provision.test_pending import NIC, SYSTEM, host  # noqa: F401

TIMERS = [("rtc", "catchup", None), ("pit", "delay", None), ("hpet", None, False)]
REPEATED = {"graphics": "vnc", "disks": [SYSTEM], "interfaces": [NIC], "clock": {"utc": True}}


def timers(domain):
    return [(timer.name, timer.tickpolicy, timer.present) for timer in domain.clock.timers]


@pytest.mark.parametrize("machine", ["pc", "q35"])
def test_a_new_guest_starts_with_the_defaults(host, machine):  # noqa: F811
    host.init(machine=machine, **REPEATED)
    running = host.running()
    assert timers(running) == TIMERS
    assert ("tablet", "usb") in [(item.type, item.bus) for item in running.inputs]
    usb = [item.model for item in running.controllers if item.type == "usb"]
    assert usb == ["qemu-xhci"]
    assert host.update(**REPEATED)["changes"] == []
    assert host.texts() == []


def test_requested_timers_are_complete(host):  # noqa: F811
    clock = {"timers": {"hpet": {"present": True}}}
    host.init(clock=clock, start=False)
    defined = Domain.fromstring(host.conn.lookupByName("g1").XMLDesc(0))
    assert timers(defined) == [("hpet", None, True)]
    assert host.update(clock=clock)["changes"] == []


def test_an_existing_guest_does_not_get_the_defaults(host):  # noqa: F811
    host.init(start=False, **REPEATED)
    former = Domain.fromstring(host.conn.lookupByName("g1").XMLDesc(0))
    former.clock.timers, former.inputs = [], []
    former.controllers = [item for item in former.controllers if item.type != "usb"]
    host.conn.defineXML(former.tostring())
    before = host.conn.lookupByName("g1").XMLDesc(0)
    assert host.update(**REPEATED)["changes"] == []
    assert host.conn.lookupByName("g1").XMLDesc(0) == before
