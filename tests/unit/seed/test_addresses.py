"""Texts of network configuration, before and after their fixed addresses are removed."""

import configparser

import pytest

from saltvirt.seed import addresses

NETWORKD = """\
[Match]
MACAddress=52:54:00:00:00:01
[Network]
DHCP=no
Address=10.0.0.5/24
Gateway=10.0.0.1
DNS=10.0.0.2
Domains=example.org
[Route]
Gateway=10.0.0.1
[Address]
Address=fd00::5/64
"""
KEYFILE = """\
[connection]
id=salt-virt-0
[ethernet]
mac-address=52:54:00:00:00:01
[ipv4]
method=manual
may-fail=false
address1=10.0.0.5/24,10.0.0.1
address2=10.0.0.6/24
gateway=10.0.0.1
route1=0.0.0.0/0,10.0.0.1
dns=10.0.0.2;
[ipv6]
method=disabled
"""
IFUPDOWN = """\
auto lo
iface lo inet loopback

auto virt0
iface virt0 inet static
  address 10.0.0.5/24
  gateway 10.0.0.1
  dns-nameservers 10.0.0.2
iface virt0 inet static
  address 10.0.0.6/24
iface virt0 inet6 static
  address fd00::5/64
    post-up route add default gw 10.0.0.1 || true
# another
iface virt1 inet dhcp
"""
IFCFG = """\
# Created by cloud-init on instance boot automatically, do not edit.
BOOTPROTO=none
DEVICE=eth0
GATEWAY=10.0.0.1
HWADDR=52:54:00:00:00:01
IPADDR=10.0.0.5
NETMASK=255.255.255.0
ONBOOT=yes
"""


def test_networkd_asks_dhcp_and_keeps_name_servers():
    assert addresses.in_networkd(NETWORKD)
    found = addresses.networkd(NETWORKD)
    assert not addresses.in_networkd(found)
    assert found == (
        "[Match]\nMACAddress=52:54:00:00:00:01\n[Network]\nDHCP=yes\nDNS=10.0.0.2\n"
        "Domains=example.org\n"
    )


def test_network_manager_asks_dhcp_for_the_families_that_had_addresses():
    assert addresses.in_keyfile(KEYFILE)
    found = configparser.ConfigParser()
    found.read_string(addresses.keyfile(KEYFILE))
    assert dict(found["ipv4"]) == {"method": "auto", "may-fail": "false", "dns": "10.0.0.2;"}
    assert dict(found["ipv6"]) == {"method": "disabled"}
    assert not addresses.in_keyfile(addresses.keyfile(KEYFILE))


def test_ifup_gets_one_stanza_for_an_interface_and_family():
    assert addresses.in_ifupdown(IFUPDOWN)
    assert addresses.ifupdown(IFUPDOWN).splitlines() == [
        "auto lo",
        "iface lo inet loopback",
        "",
        "auto virt0",
        "iface virt0 inet dhcp",
        "  dns-nameservers 10.0.0.2",
        "iface virt0 inet6 auto",
        "# another",
        "iface virt1 inet dhcp",
    ]


def test_network_scripts_ask_dhcp():
    assert addresses.in_ifcfg(IFCFG)
    assert addresses.ifcfg(IFCFG).splitlines()[1:] == [
        "DEVICE=eth0", "HWADDR=52:54:00:00:00:01", "ONBOOT=yes", "BOOTPROTO=dhcp",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "fixed"),
    [
        ("ethernets:\n  e:\n    addresses:\n    - 10.0.0.5/24\n", True),
        ('{"ethernets": {"e": {"addresses": ["fd00::5/64"]}}}', True),
        ("ethernets:\n  e:\n    addresses: [10.0.0.5/24, 10.0.0.6/24]\n", True),
        ("e:\n  nameservers:\n    addresses: [10.0.0.2]\n  routes:\n  - to: 10.1.0.0/16\n", False),
        ("ethernets:\n  e:\n    dhcp4: true\n", False),
    ],
)
def test_what_netplan_would_give(text, fixed):
    assert addresses.in_netplan(text) is fixed
