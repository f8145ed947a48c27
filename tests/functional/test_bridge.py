"""The bridge under a host's own address: what is written for each way to configure a network."""

import pytest

from saltvirt.errors import InvalidInput, Unsupported
from saltvirt.host import bridge

NETWORKD = """\
[Match]
Name=eth0

[Network]
Address=10.0.0.5/24
Gateway=10.0.0.1
DNS=10.0.0.1
"""
INTERFACES = """\
source /etc/network/interfaces.d/*

auto lo
iface lo inet loopback

allow-hotplug eth0
iface eth0 inet static
    address 10.0.0.5/24
    gateway 10.0.0.1
"""


def test_networkd_the_address_moves_and_the_hardware_address_stays():
    path = "/etc/systemd/network/10-eth0.network"
    files = bridge.plan_networkd("br0", "eth0", path, NETWORKD, "02:00:00:00:00:01").files
    by_name = {name.rsplit("/", 1)[1]: text for name, text in files.items()}
    assert set(by_name) == {"0-br0.netdev", "0-br0.network", "0-br0-port.network"}
    assert all(name < "00-first.network" for name in by_name)
    assert "MACAddress=02:00:00:00:00:01" in by_name["0-br0.netdev"]
    assert by_name["0-br0.network"].split() == NETWORKD.replace("eth0", "br0").split()
    assert "Bridge=br0" in by_name["0-br0-port.network"]


def test_ifupdown_the_stanza_becomes_the_bridges():
    plan = bridge.plan_ifupdown("br0", "eth0", "/etc/network/interfaces", INTERFACES)
    text = plan.files["/etc/network/interfaces"]
    assert "allow-hotplug br0\niface br0 inet static\n    pre-up ip link show br0" in text
    assert "    address 10.0.0.5/24\n    gateway 10.0.0.1\n" in text
    assert text.endswith("\niface eth0 inet manual\n")
    assert "iface lo inet loopback" in text
    assert plan.before == (("ifdown", "--force", "eth0"),)


@pytest.mark.parametrize(
    "text",
    [
        INTERFACES + "iface eth0 inet dhcp\n",
        INTERFACES + "    bridge_ports eth0\n",
        INTERFACES.replace("iface eth0 inet ", "iface eth0 inet6 "),
    ],
)
def test_ifupdown_what_is_not_plain_is_left_to_a_person(text):
    with pytest.raises(Unsupported, match="by hand"):
        bridge.plan_ifupdown("br0", "eth0", "/etc/network/interfaces", text)


@pytest.mark.parametrize("name", ["", "../x", "a b", "b" * 16, "-r"])
def test_a_name_that_is_none_is_refused_before_anything_changes(name):
    with pytest.raises(InvalidInput):
        bridge.over(name, "eth0")
