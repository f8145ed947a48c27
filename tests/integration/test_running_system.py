"""A running Debian and live changes: it releases devices, answers and powers off."""

import json
import time

import pytest

from tests.integration.hypervisor import IMAGES, Hypervisor

pytestmark = [pytest.mark.lab, pytest.mark.slow]
IMAGE = "/var/lib/libvirt/images/debian.qcow2"
NAME = "sys1"
SYSTEM, DATA = {"name": "system"}, {"name": "data", "size": 16}
ETH0, ETH1 = {"name": "eth0"}, {"name": "eth1", "bridge": "br0"}


@pytest.fixture(scope="module")
def hv(lab):
    """A hypervisor whose guest NAME has booted: its agent answers."""
    found = Hypervisor(lab, lab.hosts[0])
    found.forget(NAME)
    made = found.call("init", NAME, 1, 512, image=IMAGE, enable_qcow=True, seed=False)
    assert made["state"] == "running", made
    lab.wait(lambda: addresses(found), "the guest's agent", timeout_s=240, every_s=3)
    yield found
    found.forget(NAME)
    found.close()


def addresses(hv):
    facts = hv.call("guest_addresses", NAME)[NAME].values()
    return [one for fact in facts if fact["source"] == "agent" for one in fact["addresses"]]


def seen(hv):
    """The MAC addresses that its kernel knows, by its agent."""
    ask = ["virsh", "qemu-agent-command", NAME, '{"execute": "guest-network-get-interfaces"}']
    told = json.loads(hv.lab.exec(hv.name, ask).stdout)["return"]
    return {one.get("hardware-address") for one in told}


def test_its_agent_tells_its_address(hv):
    found = [one["address"] for one in addresses(hv) if one["type"] == "ipv4"]
    assert found
    assert found[0] in hv.virsh("domifaddr", NAME, "--source", "agent")


def test_devices_come_and_go_while_it_runs(hv):
    status = hv.call("update", NAME, disks=[SYSTEM, DATA], interfaces=[ETH0, ETH1])
    assert "errors" not in status, status
    assert f"{IMAGES}/{NAME}_data.qcow2" in hv.virsh("domblklist", NAME)
    assert len(hv.xml(NAME).findall("devices/interface")) == 2
    macs = {mac.get("address") for mac in hv.xml(NAME).iterfind("devices/interface/mac")}
    hv.lab.wait(lambda: macs <= seen(hv), "its kernel has taken the interface in")
    time.sleep(3)  # and the disk, which its agent does not tell of
    status = hv.call("update", NAME, disks=[SYSTEM], interfaces=[ETH0], detach=True)
    assert "errors" not in status, status
    assert "_data.qcow2" not in hv.virsh("domblklist", NAME)
    assert len(hv.xml(NAME).findall("devices/interface")) == 1
    assert f"{NAME}_data.qcow2" in hv.files()


def test_it_gives_memory_back_and_its_disk_grows(hv):
    assert hv.call("setmem", NAME, 400) is True

    def has_kib():
        return int(hv.virsh("dommemstat", NAME).split("actual ")[1].split()[0])

    hv.lab.wait(lambda: has_kib() < 500 * 1024, "it gives memory back", 60)
    grown = hv.call("resize_disk", NAME, "vda", "10GiB")["after"]
    assert str(grown) in hv.virsh("domblkinfo", NAME, "vda")


def test_it_powers_off_when_asked(hv):
    assert hv.call("shutdown", NAME) is True
    hv.lab.wait(lambda: hv.state(NAME) == "shut off", "the power-off", timeout_s=90, every_s=2)
