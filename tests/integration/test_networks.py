"""Virtual networks, as virsh, ip and dnsmasq show them."""

from xml.etree import ElementTree

import pytest

pytestmark = pytest.mark.lab

IP = {"cidr": "10.99.0.0/24", "dhcp_ranges": [{"start": "10.99.0.10", "end": "10.99.0.99"}]}
HOST = {"ip": "10.99.0.7", "mac": "52:54:00:00:00:07", "name": "seven"}


@pytest.fixture(autouse=True)
def clean(hv):
    yield
    for name in hv.table("net-list", "--all", "--name"):
        if name.startswith("lab"):
            hv.sh(f"virsh -q net-destroy {name}; virsh -q net-undefine {name}", check=False)


def xml(hv, name, *flags):
    return ElementTree.fromstring(hv.virsh("net-dumpxml", name, *flags))


def info(hv, name):
    return hv.facts("net-info", name)


def test_a_nat_network_with_everything(hv):
    dns = {
        "forwarders": [{"domain": "example.com", "addr": "10.0.0.1"}],
        "txt": {"example.com": "v=spf1 a -all"},
        "hosts": {"10.99.0.8": ["eight", "acht"]},
        "srvs": [{"name": "ldap", "protocol": "tcp", "target": "l.example.com", "port": 389}],
    }
    ports = {"start": 500, "end": 1000}
    hv.sh("mkdir -p /srv/tftp")
    assert hv.call(
        *("virt.network_define", "lab1", "labbr1", "nat"), dns=dns, mtu=1400, nat={"port": ports},
        ipv4_config={**IP, "hosts": [HOST], "tftp": "/srv/tftp", "bootp": {"file": "a.0"}},
        ipv6_config={"cidr": "fd99::/64"}, domain={"name": "lab.test", "localOnly": True},
    )  # fmt: skip
    told = xml(hv, "lab1")
    assert told.find("bridge").get("name") == "labbr1"
    assert "mtu 1400" in hv.sh("ip link show labbr1")
    addresses = hv.sh("ip address show labbr1")
    assert "10.99.0.1/24" in addresses
    assert "fd99::1/64" in addresses
    assert told.find("forward/nat/port").attrib == {"start": "500", "end": "1000"}
    assert told.find("domain").attrib == {"name": "lab.test", "localOnly": "yes"}
    assert told.find("dns/txt").get("value") == "v=spf1 a -all"
    assert [h.text for h in told.findall("dns/host/hostname")] == ["eight", "acht"]
    assert told.find("dns/srv").get("port") == "389"
    assert told.find("dns/forwarder").get("addr") == "10.0.0.1"
    assert told.find("ip/tftp").get("root") == "/srv/tftp"
    assert told.find("ip/dhcp/bootp").get("file") == "a.0"
    hosts = hv.sh("cat /var/lib/libvirt/dnsmasq/lab1.hostsfile")
    assert "52:54:00:00:00:07,10.99.0.7,seven" in hosts
    about = info(hv, "lab1")
    assert (about["Active"], about["Autostart"], about["Persistent"]) == ("yes", "yes", "yes")
    assert "lab1 already exists" in hv.refuses("virt.network_define", "lab1", None, "nat",
                                                 ipv4_config=IP)  # fmt: skip


def test_reading(hv):
    assert hv.call("virt.list_networks") == hv.table("net-list", "--all", "--name")
    found = hv.call("virt.network_info", "default")["default"]
    about = info(hv, "default")
    assert (found["uuid"], found["bridge"]) == (about["UUID"], about["Bridge"])
    assert found["active"] is (about["Active"] == "yes")
    assert hv.call("virt.network_get_xml", "default").strip() == (
        hv.virsh("net-dumpxml", "default").strip()
    )
    assert hv.call("virt.network_info", "nosuch") == {}
    assert "no network 'nosuch'" in hv.refuses("virt.network_get_xml", "nosuch")


def test_a_lease_is_shown(hv):
    hv.call("virt.network_define", "lab1", "labbr1", "nat", ipv4_config=IP)
    lease = '[{"ip-address": "10.99.0.42", "mac-address": "52:54:00:00:00:42", "hostname": "x",'
    lease += ' "expiry-time": 4000000000}]'
    hv.sh(f"echo '{lease}' > /var/lib/libvirt/dnsmasq/labbr1.status")
    assert "10.99.0.42" in hv.virsh("net-dhcp-leases", "lab1")
    (found,) = hv.call("virt.network_info", "lab1")["lab1"]["leases"]
    assert (found["ipaddr"], found["mac"], found["hostname"], found["type"]) == (
        "10.99.0.42", "52:54:00:00:00:42", "x", "ipv4",
    )  # fmt: skip


def test_a_running_network_takes_what_it_can_at_once(hv):
    hv.call("virt.network_define", "lab1", "labbr1", "nat", ipv4_config=IP)
    wanted = {"ipv4_config": {**IP, "hosts": [HOST]}, "dns": {"txt": {"a": "b"}}}
    before = hv.virsh("net-dumpxml", "lab1")
    assert hv.call("virt.network_update", "lab1", "labbr1", "nat", test=True, **wanted) is True
    assert hv.virsh("net-dumpxml", "lab1") == before
    assert hv.call("virt.network_update", "lab1", "labbr1", "nat", **wanted) is True
    for flags in ((), ("--inactive",)):
        told = xml(hv, "lab1", *flags)
        assert told.find("ip/dhcp/host").get("mac") == HOST["mac"]
        assert told.find("dns/txt").get("name") == "a"
    assert "seven" in hv.sh("cat /var/lib/libvirt/dnsmasq/lab1.hostsfile")
    assert hv.call("virt.network_info", "lab1")["lab1"]["pending"] is False
    assert hv.call("virt.network_update", "lab1", "labbr1", "nat", **wanted) is False


def test_nat_to_bridge_applies_at_the_next_start(hv):
    hv.call("virt.network_define", "lab1", None, "nat", ipv4_config=IP)
    uuid = xml(hv, "lab1").findtext("uuid")
    assert hv.call("virt.network_update", "lab1", "br0", "bridge") is True
    assert xml(hv, "lab1").find("forward").get("mode") == "nat"
    assert hv.call("virt.network_info", "lab1")["lab1"]["pending"] is True
    assert hv.call("virt.network_stop", "lab1") is True
    assert hv.call("virt.network_start", "lab1") is True
    told = xml(hv, "lab1")
    assert (told.find("forward").get("mode"), told.find("bridge").get("name")) == ("bridge", "br0")
    assert told.findtext("uuid") == uuid
    assert hv.call("virt.network_info", "lab1")["lab1"]["pending"] is False
    assert hv.call("virt.network_update", "lab1", "br0", "bridge", test=True) is False


@pytest.mark.parametrize("mode", ["private", "vepa", "passthrough"])
def test_direct_modes_need_no_bridge(hv, mode):
    hv.sh("ip link add dm0 type dummy", check=False)
    assert hv.call("virt.network_define", "lab1", None, mode, interfaces="dm0") is True
    told = xml(hv, "lab1")
    assert told.find("forward").get("mode") == mode
    assert told.find("forward/interface").get("dev") == "dm0"
    assert hv.call("virt.network_update", "lab1", None, mode, interfaces="dm0") is False


def test_hostdev_takes_no_bridge_and_what_libvirt_refuses_leaves_nothing(hv):
    text = hv.refuses("virt.network_define", "lab1", "br0", "hostdev", addresses="0000:03:10.1")
    assert "bridge is not possible" in text
    (device,) = [d for d in hv.call("virt.node_devices") if d.get("caps") == "net"][:1]
    address = device["device name"].removeprefix("pci_").replace("_", ":", 2).replace("_", ".")
    text = hv.refuses("virt.network_define", "lab1", None, "hostdev", addresses=address)
    assert "SR-IOV" in text
    assert "lab1" not in hv.table("net-list", "--all", "--name")


def test_open_vswitch_and_vlans(hv):
    hv.call(
        *("virt.network_define", "lab1", "ovs0", "bridge"), start=False, autostart=False,
        vport={"type": "openvswitch", "parameters": {"profileid": "p1"}},
        tag={"trunk": True, "tags": [{"id": 42, "nativeMode": "untagged"}, {"id": 47}]},
    )  # fmt: skip
    told = xml(hv, "lab1")
    assert told.find("virtualport").get("type") == "openvswitch"
    assert told.find("virtualport/parameters").get("profileid") == "p1"
    assert [tag.attrib for tag in told.findall("vlan/tag")] == [
        {"id": "42", "nativeMode": "untagged"}, {"id": "47"},
    ]  # fmt: skip
    assert (info(hv, "lab1")["Active"], info(hv, "lab1")["Autostart"]) == ("no", "no")


def test_life(hv):
    hv.call("virt.network_define", "lab1", None, "route", ipv4_config=IP, start=False)
    assert hv.call("virt.network_start", "lab1") is True
    assert info(hv, "lab1")["Active"] == "yes"
    assert "already active" in hv.refuses("virt.network_start", "lab1")
    assert hv.call("virt.network_set_autostart", "lab1", "off") is True
    assert info(hv, "lab1")["Autostart"] == "no"
    assert hv.call("virt.network_stop", "lab1") is True
    assert info(hv, "lab1")["Active"] == "no"
    assert hv.call("virt.network_undefine", "lab1") is True
    assert "lab1" not in hv.table("net-list", "--all", "--name")


def test_what_does_not_start_leaves_nothing(hv):
    hv.call("virt.network_define", "lab1", "labbr1", "nat", ipv4_config=IP)
    other = {"cidr": "10.98.0.0/24"}
    assert "labbr1" in hv.refuses("virt.network_define", "lab2", "labbr1", "nat", ipv4_config=other)
    text = hv.refuses("virt.network_define", "lab3", "labbr3", "nat", ipv4_config=IP)
    assert "cannot start network lab3" in text
    assert [n for n in hv.table("net-list", "--all", "--name") if n.startswith("lab")] == ["lab1"]
