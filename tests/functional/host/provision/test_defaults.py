"""Defaults of new guests on a private libvirtd: QEMU starts with them, a second apply changes
nothing, and an existing guest does not get them."""

import json
import re

import libvirt
import pytest

from saltvirt import errors
from saltvirt.host.provision.guest_definition import stored
from saltvirt.spec import guest
from saltvirt.xml.domain.domain import Domain
from tests import golden
from tests.functional.daemon import libvirtd  # noqa: F401
from tests.functional.host.provision.test_pending import NIC, SYSTEM, host, state  # noqa: F401

FORMER = json.loads(golden.read("former.json"))
INACTIVE = libvirt.VIR_DOMAIN_XML_INACTIVE
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


POINTER = {"inputs": ["tablet", {"type": "keyboard", "bus": "virtio"}]}


def inputs(domain):
    return sorted((item.type, item.bus) for item in domain.inputs if item.bus != "ps2")


def test_inputs(host):  # noqa: F811
    host.init(graphics="vnc", **POINTER)
    assert inputs(host.running()) == [("keyboard", "virtio"), ("tablet", "usb")]
    assert host.update(**POINTER)["changes"] == []
    answer = host.update(inputs=["tablet", {"type": "mouse", "bus": "ps2"}])
    assert [change["path"] for change in answer["changes"]] == ["inputs"]
    assert any("inputs" in text for text in answer["pending"])
    assert host.update(inputs=["tablet"])["changes"] == []
    assert len(host.update(inputs=[])["changes"]) == 1
    assert host.update(inputs=[])["changes"] == []
    assert host.update(graphics="vnc")["changes"] == []


def test_an_input_device_of_the_host(host):  # noqa: F811
    keyboard = {"type": "evdev", "source": "/dev/input/event3", "grab": True, "repeat": True}
    host.init(inputs=[keyboard], start=False)
    assert host.update(inputs=[keyboard])["changes"] == []
    (device,) = [item for item in stored(host.conn.lookupByName("g1")).inputs if item.source_dev]
    assert (device.type, device.source_dev, device.grab, device.repeat) == (
        "evdev", "/dev/input/event3", "all", True,
    )  # fmt: skip
    assert host.update(inputs=[{**keyboard, "grab": False}])["changes"]
    assert host.update(inputs=[{**keyboard, "grab": False}])["changes"] == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("tablet", "inputs must be a list"),
        (["tabelt"], "did you mean 'tablet'|tabelt"),
        (["tablet", {"type": "tablet"}], "tablet is requested twice"),
        ([{"type": "tablet", "bus": "ps2"}], "a tablet is on the bus usb or virtio"),
        ([{"type": "evdev"}], "source is missing"),
        ([{"type": "mouse", "source": "/dev/x"}], "source is for type evdev"),
        ([{"bus": "usb"}], "type is missing"),
    ],
)
def test_inputs_that_cannot_be(wrong, message):
    with pytest.raises(errors.InvalidInput, match=message):
        guest.parse("g1", update=True, inputs=wrong)


def test_a_guest_of_an_earlier_version_does_not_get_the_defaults(host):  # noqa: F811
    host.init(start=False, **REPEATED)
    own = stored(host.conn.lookupByName("g1"))
    former = Domain.fromstring("\n".join(FORMER["vnc"]["xml"]))
    former.name, former.uuid, former.type = "g1", own.uuid, own.type
    former.cpu, former.record.disks, former.record.devices = own.cpu, own.record.disks, None
    former.disks[0].source, former.interfaces = own.disks[0].source, own.interfaces
    former.memory_kib = former.current_memory_kib = own.memory_kib
    former.vcpu.maximum = 1
    host.conn.defineXML(former.tostring())
    dom = host.conn.lookupByName("g1")
    before = dom.XMLDesc(0)
    assert host.update(**REPEATED)["changes"] == []
    run = state(host.modules)
    given = {"cpu": 1, "mem": 128, "vm_type": "qemu", **REPEATED}
    assert run("g1", **given)["changes"] == {"g1": {"started": True}}
    assert run("g1", **given)["changes"] == {}
    answer = host.update(cpu=2, mem=256)
    assert {change["path"].partition(":")[0] for change in answer["changes"]} == {
        "vcpu", "memory_kib", "current_memory_kib",
    }  # fmt: skip
    host.update(cpu=1, mem=128)
    assert without_record(dom.XMLDesc(INACTIVE)) == without_record(before)


def without_record(text):
    return re.sub(r"<metadata\b.*</metadata>", "", text, flags=re.DOTALL)
