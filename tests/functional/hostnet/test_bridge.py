"""The bridge with a host's own address: the files for each network configuration system."""

import importlib.util
import json
import re
from types import SimpleNamespace

import pytest

from saltvirt.errors import InvalidInput, OperationFailed, Unsupported, VirtError
from saltvirt.ha.agent import install, managed_guests
from saltvirt.host.node import running_guests
from saltvirt.hostnet.bridge import bridges, ifcfg, ifupdown, netplan, networkd, networkmanager, ovs
from saltvirt.hostnet.bridge import plan as plans
from saltvirt.hostnet.bridge.plan import BridgeHost, BridgeVlan
from tests import golden
from tests.functional.conftest import REPOSITORY, load

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
    files = networkd.plan("br0", "eth0", path, NETWORKD, "02:00:00:00:00:01").files
    by_name = {name.rsplit("/", 1)[1]: text for name, text in files.items()}
    assert set(by_name) == {"0-br0.netdev", "0-br0.network", "0-br0-port.network"}
    assert all(name < "00-first.network" for name in by_name)
    assert "MACAddress=02:00:00:00:00:01" in by_name["0-br0.netdev"]
    assert by_name["0-br0.network"].split() == NETWORKD.replace("eth0", "br0").split()
    assert "Bridge=br0" in by_name["0-br0-port.network"]


@pytest.mark.parametrize(
    ("client", "added"), [("ff0000002a00020000ab", "IAID=42\n"), ("01020000000001", "")]
)
def test_networkd_keeps_the_name_by_which_the_dhcp_server_knows_the_host(tmp_path, client, added):
    link = '[{"address": "02:00:00:00:00:01", "ifindex": 7}]'
    lease = {"run/systemd/netif/leases/7": f"ADDRESS=10.0.0.9\nCLIENTID={client}\n"}
    files = {"etc/systemd/network/10-eth0.network": NETWORKD, **lease}
    found = networkd.find("br0", "eth0", host(tmp_path, files, {**SAID, "ip -j": link}))
    assert found.files["/etc/systemd/network/0-br0.network"].partition("[DHCPv4]\n")[2] == added
    planned = host(tmp_path / "n", {"etc/netplan/50-x.yaml": NETPLAN, **lease}, {"ip -j": link})
    more = netplan.find("br0", "eth0", planned).files
    path = "/etc/systemd/network/10-netplan-br0.network.d/salt-virt.conf"
    assert more.get(path, "").partition("[DHCPv4]\n")[2] == added


def test_ifupdown_the_stanza_becomes_the_bridges():
    plan = ifupdown.plan("br0", "eth0", "/etc/network/interfaces", INTERFACES)
    text = plan.files["/etc/network/interfaces"]
    assert "auto br0\niface br0 inet static\n    pre-up ip link show br0" in text
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
    with pytest.raises(Unsupported, match="yourself"):
        ifupdown.plan("br0", "eth0", "/etc/network/interfaces", text)


@pytest.mark.parametrize(
    ("line", "lines"),
    [
        ("allow-hotplug eth0", ["auto br0"]),
        ("allow-hotplug eth1 eth0 eth0.5", ["auto br0", "allow-hotplug eth1 eth0.5"]),
        ("auto lo eth0", ["auto lo br0"]),
        ("allow-auto\teth0", ["allow-auto\tbr0"]),
        ("allow-hotplug eth1", ["allow-hotplug eth1"]),
    ],
)
def test_ifupdown_the_bridge_comes_up_at_the_start_of_the_host(line, lines):
    """udev reports no bridge that allow-hotplug could bring up."""
    text = INTERFACES.replace("allow-hotplug eth0", line)
    found = ifupdown.plan("br0", "eth0", "/i", text).files["/i"].splitlines()
    first = found.index("iface lo inet loopback") + 2
    assert found[first : found.index("iface br0 inet static")] == lines


@pytest.mark.parametrize("line", ["", "auto /eth0", "auto eth1"])
def test_ifupdown_the_bridge_comes_up_where_another_file_starts_the_interface(line):
    """The host lost its network at the next start, long after the bridge was confirmed."""
    text = INTERFACES.replace("allow-hotplug eth0", line)
    found = ifupdown.plan("br0", "eth0", "/i", text).files["/i"]
    assert "\n\nauto br0\n\niface eth0 inet manual\n" in found


def test_ifupdown_options_may_be_set_off_by_tabs():
    text = INTERFACES.replace("address 10", "address\t10")
    assert "address\t10.0.0.5/24" in ifupdown.plan("br0", "eth0", "/i", text).files["/i"]


DUAL = """\
auto eth0 eth0.100
iface eth0 inet static
    address 10.0.0.5/24
    mtu 9000
    up ip route add 10.5.0.0/16 via 10.0.0.9 dev eth0
iface eth0 inet6 static
    address fd00::5/64

iface eth0.100 inet static
    address 10.1.0.5/24
iface vlan7 inet manual
    vlan-raw-device eth0
"""


def test_ifupdown_both_families_move_and_vlans_stay():
    plan = ifupdown.plan("br0", "eth0", "/i", DUAL)
    lines = [line.strip() for line in plan.files["/i"].splitlines()]
    assert lines[:2] == ["auto br0 eth0.100", "iface br0 inet static"]
    assert "iface br0 inet6 static" in lines and "iface eth0.100 inet static" in lines
    assert "vlan-raw-device eth0" in lines
    assert "up ip route add 10.5.0.0/16 via 10.0.0.9 dev br0" in lines
    assert lines.index("mtu 9000") + 1 == lines.index("pre-up ip link set eth0 mtu 9000")
    [made] = [line for line in lines if "type bridge" in line]
    assert "ip link add br0 address $(cat /sys/class/net/eth0/address) type bridge" in made
    assert plan.before[-1] == ("ifdown", "--force", "eth0")
    assert {("ifdown", "--force", "eth0.100"), ("ifdown", "--force", "vlan7")} < {*plan.before}
    assert plan.apply == (("ifup", "br0"), ("ifup", "eth0.100"), ("ifup", "vlan7"))
    assert plan.undo[1:] == (("ifup", "eth0"), ("ifup", "eth0.100"), ("ifup", "vlan7"))


@pytest.mark.parametrize(
    ("added", "reason"),
    [
        (
            "    bond-slaves eth1 eth2\n",
            "'bond-slaves' for eth0, which is not supported for a bridge",
        ),
        ("    vlan-raw-device eth1\n", "'vlan-raw-device' for eth0"),
        ("    up ethtool -K eth0 gro off\n", "'up ethtool -K eth0 gro off', which refers to eth0"),
        ("    up ethtool -K $IFACE gro off\n", "which refers to eth0"),
        ("iface eth0:1 inet static\n    address 10.0.0.6\n", "has aliases of eth0"),
        ("iface eth0 ipx static\n", "does not have one plain"),
    ],
)
def test_ifupdown_what_a_bridge_cannot_take_over_is_refused(added, reason):
    with pytest.raises(Unsupported, match=re.escape(reason)):
        ifupdown.plan("br0", "eth0", "/i", INTERFACES + added)


@pytest.mark.parametrize("interface", ["eth0.100", "vlan7", "bond0"])
def test_ifupdown_a_vlan_or_bond_under_the_address_is_refused(interface):
    with pytest.raises(Unsupported, match=f"{interface} is itself a VLAN, a bond or a bridge"):
        ifupdown.plan("br0", interface, "/i", INTERFACES.replace("eth0", interface))


def test_ifupdown_stanzas_in_two_files_are_refused(tmp_path):
    more = "iface eth0 inet6 auto\n"
    files = {"etc/network/interfaces": INTERFACES, "etc/network/interfaces.d/six": more}
    with pytest.raises(Unsupported, match=r"interfaces\.d/six both have a stanza for eth0"):
        ifupdown.find("br0", "eth0", host(tmp_path, files))


def test_networkd_the_port_keeps_the_mtu():
    text = NETWORKD + "\n[Link]\nMTUBytes=9000\n"
    files = networkd.plan("br0", "eth0", "/n/10-eth0.network", text, "02:00:00:00:00:01").files
    assert files["/n/0-br0-port.network"].endswith("\n[Link]\nMTUBytes=9000\n")
    assert "MTUBytes=9000" in files["/n/0-br0.network"]


@pytest.mark.parametrize("name", ["", "../x", "a b", "b" * 16, "-r"])
def test_a_name_that_is_none_is_refused_before_anything_changes(name):
    with pytest.raises(InvalidInput):
        bridges.create_bridge(name, "eth0", (None, None))


def host(tmp_path, files=None, told=None):
    """A host with these files, whose programs say this (by their first two words)."""
    for path, text in (files or {}).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    told = {"ip -j": '[{"address": "02:00:00:00:00:01"}]', **(told or {})}
    return BridgeHost(
        lambda argv: told.get(" ".join(argv[:2]), ""), json.loads, json.dumps, tmp_path
    )


# JSON is YAML, and the library is handed its parser
NETPLAN = json.dumps({
    "network": {
        "version": 2,
        "ethernets": {
            "eth0": {"match": {"macaddress": "02:00:00:00:00:01"}, "set-name": "eth0",
                     "mtu": 9000, "addresses": ["10.0.0.5/24"],
                     "routes": [{"to": "default", "via": "10.0.0.1"}]},
            "eth1": {"dhcp4": True},
        },
    }
})  # fmt: skip


def test_netplan_the_addresses_move_and_the_cable_stays(tmp_path):
    found = netplan.find("br0", "eth0", host(tmp_path, {"etc/netplan/50-x.yaml": NETPLAN}))
    network = json.loads(found.files["/etc/netplan/50-x.yaml"])["network"]
    eth0, br0 = network["ethernets"]["eth0"], network["bridges"]["br0"]
    assert network["ethernets"]["eth1"] == {"dhcp4": True}
    assert eth0["set-name"] == "eth0" and eth0["mtu"] == 9000
    assert "addresses" not in eth0 and eth0["dhcp4"] is False
    assert br0["addresses"] == ["10.0.0.5/24"]
    assert br0["routes"] == [{"to": "default", "via": "10.0.0.1"}]
    assert br0["interfaces"] == ["eth0"] and br0["macaddress"] == "02:00:00:00:00:01"
    assert br0["parameters"] == {"stp": False, "forward-delay": 0}
    assert found.apply == (("netplan", "apply"),)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("network: [", "50-x.yaml is no YAML: while parsing"),
        ("just words", "50-x.yaml is not valid netplan configuration"),
        ("network: [a]", "50-x.yaml is not valid netplan configuration"),
        ("network: {bridges: {br1: text}}", "50-x.yaml is not valid netplan configuration"),
        ("network: {ethernets: {eth0: {match: x}}}", "is not valid netplan configuration"),
    ],
)
def test_netplan_files_that_netplan_does_not_read_are_named(tmp_path, text, why):
    (tmp_path / "etc/netplan").mkdir(parents=True)
    (tmp_path / "etc/netplan/50-x.yaml").write_text(text)
    load, dump = adapter({})._yaml()
    one = BridgeHost(lambda _argv: "", load, dump, tmp_path)
    with pytest.raises(Unsupported, match=why):
        netplan.find("br0", "eth0", one)


def test_netplan_settings_in_two_files_move_in_both(tmp_path):
    dns = {"nameservers": {"addresses": ["9.9.9.9"]}}
    more = json.dumps({"network": {"ethernets": {"eth0": dns}}})
    files = {"etc/netplan/50-x.yaml": NETPLAN, "etc/netplan/60-y.yaml": more}
    found = netplan.find("br0", "eth0", host(tmp_path, files)).files
    second = json.loads(found["/etc/netplan/60-y.yaml"])["network"]
    assert second["bridges"]["br0"] == dns


def test_netplan_takes_a_section_without_content_for_none(tmp_path):
    tree = json.loads(NETPLAN)
    tree["network"] |= {"bridges": None, "bonds": None}
    there = host(tmp_path, {"etc/netplan/50-x.yaml": json.dumps(tree)})
    moved = json.loads(netplan.find("br0", "eth0", there).files["/etc/netplan/50-x.yaml"])
    assert list(moved["network"]["bridges"]) == ["br0"]
    assert netplan.tagged(BridgeVlan("br5", "eth0", 5), there)


def test_netplan_that_does_not_know_the_interface_leaves_it_to_the_next(tmp_path):
    renamed = netplan.find("br0", "eth9", host(tmp_path, {"etc/netplan/50-x.yaml": NETPLAN}))
    assert renamed is not None
    elsewhere = host(tmp_path, told={"ip -j": '[{"address": "02:00:00:00:00:99"}]'})
    assert netplan.find("br0", "eth9", elsewhere) is None


# nmcli 1.42 of a profile that has no 802-1x settings
PROFILE = """\
connection.type:802-3-ethernet
802-3-ethernet.mtu:9000
ipv4.method:manual
ipv4.addresses:10.0.0.5/24
ipv4.gateway:10.0.0.1
ipv4.dns:
ipv4.route-metric:-1
ipv6.method:auto
ipv6.addresses:fd00::5/64
connection.zone:
ipv4.never-default:yes
"""


def test_networkmanager_the_profiles_settings_move(tmp_path):
    told = {"ip -j": '[{"address": "02:00:00:00:00:01"}]'}

    profiles = "Wired\n"

    def run(argv):
        if "--active" in argv:
            return "eth1:other\neth0:aaaa-bbbb\n"
        if "NAME" in argv:
            return profiles
        if "connection" in argv:
            assert (argv[:3], argv[-1]) == (("nmcli", "-t", "-f"), "aaaa-bbbb")
            return PROFILE
        return told.get(" ".join(argv[:2]), "100 (connected)")

    found = networkmanager.find("br0", "eth0", BridgeHost(run, None, None, tmp_path))
    bridge = found.apply[0]
    assert bridge[bridge.index("bridge.mac-address") + 1] == "02:00:00:00:00:01"
    assert bridge[bridge.index("ipv4.addresses") + 1] == "10.0.0.5/24"
    assert bridge.index("ipv4.addresses") < bridge.index("ipv4.method")
    assert bridge[bridge.index("ipv6.addresses") + 1] == "fd00::5/64"
    assert not {"ipv4.route-metric", "ipv4.dns", "connection.zone"} & {*bridge}
    assert bridge[bridge.index("ipv4.never-default") + 1] == "yes"
    assert bridge[bridge.index("ipv6.method") + 1] == "auto"
    assert found.apply[1][-2:] == ("802-3-ethernet.mtu", "9000")
    assert not {"connection.type", "802-3-ethernet.mtu"} & {*bridge}
    assert ("nmcli", "connection", "delete", "br0", "br0-port-eth0") in found.undo
    assert networkmanager.find("br0", "eth2", BridgeHost(run, None, None, tmp_path)) is None
    # the way back would delete the operator's own, too
    for name in ("br0", "br0-port-eth0"):
        profiles = f"Wired\n{name}\n"
        with pytest.raises(Unsupported, match=f"profile {name} already configures br0, but"):
            networkmanager.find("br0", "eth0", BridgeHost(run, None, None, tmp_path))


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"connection.type": "bond"}, "eth0 has a profile of NetworkManager of type bond"),
        ({"connection.type": "vlan"}, "of type vlan"),
        ({"802-1x.eap": "tls"}, r"with a login \(802.1X\)"),
    ],
)
def test_networkmanager_a_profile_that_no_port_can_have_is_refused(values, reason):
    with pytest.raises(Unsupported, match=reason):
        networkmanager.plan("br0", "eth0", "aaaa", values, "02:00:00:00:00:01")


WICKED = """\
BOOTPROTO='static'
STARTMODE='auto'
IPADDR='10.0.0.5/24'
IPADDR_1='10.0.0.6/24'
MTU='9000'
ETHTOOL_OPTIONS=''
"""


def test_wicked_the_address_lines_and_the_routes_move(tmp_path):
    files = {
        "etc/sysconfig/network/ifcfg-eth0": WICKED,
        "etc/sysconfig/network/ifroute-eth0": "default 10.0.0.1 - eth0\n",
    }
    found = ifcfg.find("br0", "eth0", host(tmp_path, files, {"sh -c": "/usr/sbin/wicked"}))
    folder = "/etc/sysconfig/network"
    bridge = found.files[f"{folder}/ifcfg-br0"].splitlines()
    port = found.files[f"{folder}/ifcfg-eth0"].splitlines()
    assert {"IPADDR='10.0.0.5/24'", "IPADDR_1='10.0.0.6/24'", "BOOTPROTO='static'"} <= {*bridge}
    assert {"BRIDGE='yes'", "BRIDGE_PORTS='eth0'", "LLADDR='02:00:00:00:00:01'"} <= {*bridge}
    assert port == ["BOOTPROTO='none'", "STARTMODE='auto'", "MTU='9000'", "ETHTOOL_OPTIONS=''"]
    assert found.files[f"{folder}/ifroute-br0"] == "default 10.0.0.1 - br0\n"
    assert found.files[f"{folder}/ifroute-eth0"] is None
    assert found.apply[-1] == ("wicked", "ifup", "br0")
    assert found.undo == (("wicked", "ifdown", "br0"), ("ip", "link", "delete", "br0"),
                          ("wicked", "ifup", "eth0"))  # fmt: skip


def test_wicked_a_route_in_the_file_of_all_routes_is_not_lost(tmp_path):
    files = {"etc/sysconfig/network/ifcfg-eth0": WICKED,
             "etc/sysconfig/network/routes": "default 192.0.2.1 - eth0\n"}  # fmt: skip
    there = host(tmp_path, files, {"sh -c": "/usr/sbin/wicked"})
    with pytest.raises(Unsupported, match="network/routes has routes through eth0: move them"):
        ifcfg.find("br0", "eth0", there)
    path = tmp_path / "etc/sysconfig/network/routes"
    path.write_text("# default 192.0.2.1 - eth0\ndefault 192.0.2.1 - eth01\n")
    assert ifcfg.find("br0", "eth0", there)


SCRIPTS = """\
TYPE=Ethernet
BOOTPROTO=dhcp
DEFROUTE=yes
NAME=eth0
UUID=5fb06bd0-0bb0-7ffb-45f1-d6edd65f3e03
DEVICE=eth0
ONBOOT=yes
"""


def test_network_scripts_the_device_keeps_its_name(tmp_path):
    files = {"etc/sysconfig/network-scripts/ifcfg-eth0": SCRIPTS}
    told = {"sh -c": "/usr/sbin/ifup"}
    probe = host(tmp_path, files, told)
    found = ifcfg.find("br0", "eth0", probe)
    bridge = found.files["/etc/sysconfig/network-scripts/ifcfg-br0"].splitlines()
    port = found.files["/etc/sysconfig/network-scripts/ifcfg-eth0"].splitlines()
    assert bridge[:6] == [
        *("DEVICE=br0", "TYPE=Bridge", "ONBOOT=yes", "STP=off", "DELAY=0"),
        "MACADDR=02:00:00:00:00:01",
    ]
    assert bridge[6:] == ["BOOTPROTO=dhcp", "DEFROUTE=yes"]
    assert {"BOOTPROTO=none", "BRIDGE=br0", "DEVICE=eth0", "TYPE=Ethernet"} <= {*port}
    assert "BOOTPROTO=dhcp" not in port


def test_a_guest_runs_while_its_process_lives(tmp_path):
    for folder in ("run/qemu", "proc/11"):
        (tmp_path / folder).mkdir(parents=True)
    for name, text in (
        *(("lives", "<domstatus state='running' pid='11'/>"), ("dead", "<domstatus pid='12'/>")),
        *(("half", "<domstatus"), ("other", "<capabilities/>")),
    ):
        (tmp_path / f"run/qemu/{name}.xml").write_text(text)
    (tmp_path / "run/qemu/driver.pid").write_text("11")
    (tmp_path / "run/qemu/ended.xml").symlink_to(tmp_path / "gone")  # between two looks
    assert running_guests.names(tmp_path / "run", tmp_path / "proc") == ["half", "lives"]


VLAN = BridgeVlan("br100", "eth0", 100)
WAYS = {
    "networkd": (networkd, {"etc/systemd/network/10-eth0.network": NETWORKD}),
    "netplan": (netplan, {"etc/netplan/50-x.yaml": NETPLAN}),
    "networkmanager": (networkmanager, {}),
    "ifupdown": (ifupdown, {"etc/network/interfaces": INTERFACES}),
    "wicked": (ifcfg, {"etc/sysconfig/network/ifcfg-eth0": WICKED}),
    "network-scripts": (ifcfg, {"etc/sysconfig/network-scripts/ifcfg-eth0": SCRIPTS}),
}
SAID = {
    "networkctl status": "Network File: /etc/systemd/network/10-eth0.network\n",
    "nmcli -t": "eth0:aaaa-bbbb\n",
    "nmcli -g": "100 (connected)\n",
    "sh -c": "/usr/sbin/it",
}


@pytest.mark.parametrize("way", WAYS)
def test_over_a_vlan_each_way_writes_its_own_files(tmp_path, way):
    manager, files = WAYS[way]
    found = manager.tagged(VLAN, host(tmp_path, files, SAID))
    told = [f"== {path}\n{text}" for path, text in found.files.items()]
    for name in ("before", "apply", "undo"):
        told.append(f"== {name}\n" + "".join(f"{' '.join(x)}\n" for x in getattr(found, name)))
    golden.same(f"bridges/vlan-{way}.txt", "\n".join(told))
    # the interface's own file, and so its address, is nobody's to change
    assert not {f"/{path}" for path in files} & set(found.files)


@pytest.mark.parametrize("way", WAYS)
def test_over_a_vlan_of_an_interface_it_does_not_know_each_way_passes(tmp_path, way):
    assert WAYS[way][0].tagged(VLAN, host(tmp_path)) is None


def test_over_a_vlan_networkd_refuses_a_file_for_many_interfaces(tmp_path):
    path = "etc/systemd/network/10-eth0.network"
    many = host(tmp_path, {path: NETWORKD.replace("Name=eth0", "Name=eth*")}, SAID)
    with pytest.raises(Unsupported, match="is not for eth0 only"):
        networkd.tagged(VLAN, many)


def test_over_a_vlan_ifupdown_wants_its_folder_read(tmp_path):
    text = INTERFACES.replace("source ", "# source ")
    with pytest.raises(Unsupported, match=r"lacks the line 'source /etc/network/interfaces\.d/\*'"):
        ifupdown.tagged(VLAN, host(tmp_path, {"etc/network/interfaces": text}))


def test_a_tagged_interface_has_a_name_that_the_kernel_takes():
    assert BridgeVlan("b", "enp0s31f6", 4094).port == "enp0s31f6.4094"
    assert BridgeVlan("b", "enp130s0f0np0", 100).port == "vlan100"


@pytest.mark.parametrize("vlan", [0, 4095, -1, "x", "1 2", 1.5, True])
def test_a_vlan_that_is_none_is_refused_before_anything_changes(vlan):
    with pytest.raises(InvalidInput, match="invalid VLAN"):
        bridges.create_bridge("br100", "eth0", (None, None), vlan=vlan)


def kept(folder, **about):
    (folder / about["bridge"]).mkdir()
    made = {"files": {}, "port": about["interface"], "vlan": None, "type": "linux", **about}
    (folder / about["bridge"] / "made.json").write_text(json.dumps(made), encoding="utf-8")


def test_a_bridge_below_others_stays_until_they_are_gone(tmp_path, monkeypatch):
    monkeypatch.setattr(bridges, "SAVED_FOLDER", tmp_path)
    kept(tmp_path, bridge="br0", interface="nosuch0")
    kept(tmp_path, bridge="br100", interface="nosuch0", vlan=100, port="nosuch0.100")
    assert bridges.bridge_record("br100")["vlan"] == 100
    with pytest.raises(OperationFailed, match=r"^br100 is on a VLAN of nosuch0: remove it"):
        bridges.remove_bridge("br0")
    assert bridges.bridge_record("br0")


OVS = {"ovs-vsctl --version": "ovs-vsctl 3.1", "ovs-vsctl --timeout=10": "some-uuid\n"}


def linked(tmp_path, **about):
    told = json.dumps([{"ifname": "eth2", "addr_info": [], **about}])
    return host(tmp_path, told={**OVS, "ip -j": told})


def test_while_a_way_back_is_armed_what_it_puts_back_stays(tmp_path, monkeypatch):
    """A minion died over its own network: the timer of its change has still to put it back."""
    monkeypatch.setattr(bridges, "SAVED_FOLDER", tmp_path)
    kept = tmp_path / "br0"
    kept.mkdir()
    (kept / "old-0").write_text("as it was")
    calls = []

    def run(argv):
        calls.append(argv)
        return "ActiveState=active\n" if argv[:2] == ("systemctl", "show") else ""

    monkeypatch.setattr(bridges.program, "run", run)
    found = SimpleNamespace(files={}, before=[], apply=[], undo=[["true"]])
    about = {"bridge": "br0", "interface": "eth0", "port": "eth0", "vlan": None, "type": "linux"}
    with pytest.raises(OperationFailed, match=r"salt-virt-network-back\.timer"):
        bridges._make(about, found, None, 1)
    assert (kept / "old-0").read_text() == "as it was"
    assert len(calls) == 1


def test_open_vswitch_makes_the_bridge_with_its_port_and_deletes_both(tmp_path):
    link_local = {"addr_info": [{"local": "fe80::1", "scope": "link"}]}
    found = ovs.plan("ovs0", "eth2", linked(tmp_path, **link_local))
    assert [" ".join(argv) for argv in found.apply] == [
        "ovs-vsctl --timeout=30 --may-exist add-br ovs0",
        "ovs-vsctl --timeout=30 --may-exist add-port ovs0 eth2",
        "ip link set eth2 up",
        "ip link set ovs0 up",
    ]
    assert found.undo == (("ovs-vsctl", "--timeout=30", "--if-exists", "del-br", "ovs0"),)
    assert found.files == {}
    assert "eth2" not in str(ovs.plan("ovs0", None, linked(tmp_path)))


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({"addr_info": [{"local": "10.0.0.5", "scope": "global"}]}, "has the address 10.0.0.5"),
        ({"master": "br0"}, "eth2 is a port of br0"),
    ],
)
def test_open_vswitch_takes_no_interface_that_is_in_use(tmp_path, about, said):
    with pytest.raises(Unsupported, match=said):
        ovs.plan("ovs0", "eth2", linked(tmp_path, **about))


def test_open_vswitch_that_is_not_there_or_does_not_run_is_said(tmp_path):
    with pytest.raises(Unsupported, match="install Open vSwitch"):
        ovs.plan("ovs0", None, host(tmp_path))
    elsewhere = host(tmp_path, told={**OVS, "ovs-vsctl --timeout=10": "ovs0\n"})
    with pytest.raises(Unsupported, match="has a bridge ovs0"):
        ovs.plan("ovs0", None, elsewhere)  # or the way back would delete what is another's
    stopped = host(tmp_path, told={"ovs-vsctl --version": "3.1"})
    with pytest.raises(Unsupported, match="does not respond"):
        ovs.plan("ovs0", None, stopped)
    with pytest.raises(Unsupported, match=r"^the host has no interface eth7$"):
        ovs.plan("ovs0", "eth7", host(tmp_path, told={**OVS, "ip -j": ""}))


def test_of_a_bridge_of_open_vswitch_its_own_database_tells_the_ports():
    asked = []
    told = ovs.ports("ovs0", lambda argv: asked.append(argv) or "eth2\nvnet0\n")
    assert told == ["eth2", "vnet0"]
    assert asked == [("ovs-vsctl", "--timeout=10", "list-ports", "ovs0")]


def test_netplan_with_two_entries_of_one_interface_is_left_to_a_person(tmp_path):
    tree = json.loads(NETPLAN)
    tree["network"]["ethernets"]["lan"] = {"match": {"macaddress": "02:00:00:00:00:01"}}
    with pytest.raises(
        Unsupported, match="netplan's eth0 and lan both match eth0: create the bridge yourself"
    ):
        netplan.find("br0", "eth0", host(tmp_path, {"etc/netplan/50-x.yaml": json.dumps(tree)}))


@pytest.mark.parametrize("path", ["n/a", "/run/systemd/network/10-netplan-eth0.network"])
def test_networkd_leaves_what_no_file_of_the_host_configures_to_the_next(tmp_path, path):
    told = {"networkctl status": f"Network File: {path}\n"}
    assert networkd.find("br0", "eth0", host(tmp_path, told=told)) is None


def test_ifupdown_takes_the_file_that_has_the_stanza(tmp_path):
    files = {
        "etc/network/interfaces": "source /etc/network/interfaces.d/*\n",
        "etc/network/interfaces.d/lan": "auto eth0\niface eth0 inet dhcp\n",
    }
    found = ifupdown.find("br0", "eth0", host(tmp_path, files))
    [(path, text)] = found.files.items()
    assert path == "/etc/network/interfaces.d/lan"
    assert text.startswith("auto br0\niface br0 inet dhcp\n    pre-up")
    assert ifupdown.find("br0", "eth1", host(tmp_path, files)) is None


# -- the execution module ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def virt():
    return load("test:///default")


def test_a_bridge_that_is_not_ours_is_left(virt):
    left = "nosuch9 was not created by virt.bridge_create and is not changed"
    assert virt["virt.bridge_remove"]("nosuch9") == left


def test_a_bridge_of_ours_whose_file_was_changed_since_is_left(tmp_path, monkeypatch):
    module = adapter({})
    monkeypatch.setattr(module.bridges, "SAVED_FOLDER", tmp_path)
    monkeypatch.setattr(module.bridges, "exists", lambda _name: True)
    file = tmp_path / "10-br0.network"
    file.write_text("by hand")
    kept(tmp_path, bridge="br0", interface="nosuch0", files={str(file): "0" * 64})
    with pytest.raises(VirtError, match=f"{file} has changed since br0 was created"):
        module.bridge_remove("br0")
    assert file.read_text() == "by hand"


def test_a_host_whose_watchdog_is_fed_for_guests_keeps_its_address(tmp_path, monkeypatch):
    """A change that fails cuts it off until it is reset."""
    module, guests, done = adapter({}), ["web1", "web2"], []
    monkeypatch.setattr(module.bridges, "SAVED_FOLDER", tmp_path)
    monkeypatch.setattr(module.bridges, "exists", lambda _name: False)
    for name in ("create_bridge", "create_ovs_bridge", "remove_bridge"):
        monkeypatch.setattr(module.bridges, name, lambda *given: done.append(given) or "done")
    monkeypatch.setattr(install, "member_name", lambda: "hv1")
    on_host = {"hv1": guests}
    monkeypatch.setattr(managed_guests, "assigned", lambda host: on_host.get(host, []))
    kept(tmp_path, bridge="br1", interface="eth1", files={})
    for call in (module.bridge_create, lambda **more: module.bridge_remove("br1", **more)):
        with pytest.raises(VirtError, match=r"guests here \(web1, web2\).* virt.evacuate hv1\)"):
            call()
        assert done == []
        assert call(force=True) == "done"
        done.clear()
    for options in ({"vlan": 100}, {"type": "ovs"}):
        assert module.bridge_create(**options) == "done"
    guests.clear()
    assert module.bridge_create() == "done"


def test_a_file_that_is_no_utf_8_keeps_its_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(bridges, "SAVED_FOLDER", tmp_path / "kept")
    file = tmp_path / "etc/network/interfaces"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"# f\xfcr hv1\niface eth0 inet dhcp\n")
    found = ifupdown.find("br0", "eth0", BridgeHost(lambda _argv: "", root=tmp_path))
    [text] = plans.shown(found.files).values()
    assert text.startswith("# f\ufffdr hv1\n")
    found.files[str(file)] = found.files.pop("/etc/network/interfaces")
    about = {"bridge": "br0", "interface": "eth0", "port": "eth0", "vlan": None, "type": "linux"}
    bridges._save(about, found)
    kept_of = tmp_path / "kept/br0"
    assert (kept_of / "new-0").read_bytes().startswith(b"# f\xfcr hv1\n")
    made = json.loads((kept_of / "undone.json").read_text())
    assert bridges._changed(made) == str(file)
    file.write_bytes((kept_of / "new-0").read_bytes())
    assert bridges._changed(made) is None


@pytest.mark.parametrize("function", ["bridge_create", "bridge_plan"])
@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"type": "brctl"}, "type: 'brctl' is not a type of bridge: use linux or ovs"),
        ({"type": "ovs", "vlan": 7}, "vlan is not for a bridge of type ovs"),
        ({"type": "ovs", "interface": "a b"}, "'a b' is not a valid name of an interface"),
        ({"type": "linux", "vlan": "7x"}, "invalid VLAN '7x'"),
    ],
)
def test_a_slip_is_said_before_anything_changes(virt, function, given, why):
    with pytest.raises(VirtError, match=why) as raised:
        virt[f"virt.{function}"]("nosuch9", **given)
    assert type(raised.value).__name__ == "InvalidInput"


def test_the_master_that_must_be_reached_is_the_one_that_this_minion_has():
    for opts, wanted in (
        ({"master": "salt", "master_ip": "10.0.0.1", "master_port": 4507}, ("10.0.0.1", 4507)),
        ({"master": "salt"}, ("salt", 4506)),
        ({"master": ["a", "b"]}, None),
        ({"master": "salt", "file_client": "local"}, None),
    ):
        module = adapter(opts)
        assert module._probe() == wanted


def test_what_is_written_for_netplan_is_yaml_of_blocks():
    load_yaml, dump = adapter({})._yaml()
    tree = {"network": {"bridges": {"br0": {"interfaces": ["eth0"], "dhcp4": True}}}}
    text = dump(tree)
    assert load_yaml(text) == tree
    assert "{" not in text
    # YAML 1.1 takes six pairs of digits for a number
    read = load_yaml("a: 52:54:00:12:34:56\nb: 9000\nc: true\nd: -1\ne: null\nf: 0123\ng: 0")
    assert read == {"a": "52:54:00:12:34:56", "b": 9000, "c": True, "d": -1, "e": None,
                    "f": "0123", "g": 0}  # fmt: skip
    assert load_yaml(dump(read)) == read


def test_a_plan_that_is_answered_shows_no_secrets():
    tree = {"network": {
        "wifis": {"wl0": {"access-points": {"home": {"password": "geheim1"}}}},
        "tunnels": {"wg0": {"key": "geheim2", "keys": {"private": "geheim3"}}},
        "ethernets": {"eth1": {"auth": {"client-key-password": "geheim4"}}},
        "bridges": {"br0": {"addresses": ["10.0.0.5/24"]}},
    }}  # fmt: skip
    _load, dump = adapter({})._yaml()
    ifupdown_text = "iface wl0 inet dhcp\n    wpa-psk geheim5\n\twireless-key s:geheim6\nauto br0\n"
    ini = "[X]\nPresharedKey = geheim7\nWPA_PSK='geheim8'\nAddress=10.0.0.5/24\n"
    files = {"a": dump(tree), "b": ifupdown_text, "c": ini, "d": None}
    found = plans.shown(files)
    assert "geheim" not in str(found)
    assert found["d"] is None
    assert "- 10.0.0.5/24" in found["a"] and "access-points" in found["a"]
    assert found["b"] == (
        "iface wl0 inet dhcp\n    wpa-psk (hidden)\n\twireless-key (hidden)\nauto br0\n"
    )
    assert "Address=10.0.0.5/24" in found["c"]


DEFINED = [
    (netplan, {"etc/netplan/9.yaml": '{"network": {"bridges": {"br0": {}}}}',
               "etc/netplan/1.yaml": '{"network": {"ethernets": {"eth0": {"dhcp4": true}}}}'}),
    (ifupdown, {"etc/network/interfaces": "source /etc/network/interfaces.d/*\n\n"
                "iface eth0 inet dhcp\n",
                "etc/network/interfaces.d/br0": "iface br0 inet manual\n"}),
    (ifcfg, {"etc/sysconfig/network/ifcfg-eth0": "BOOTPROTO='dhcp'\n",
             "etc/sysconfig/network/ifcfg-br0": "BRIDGE='yes'\n"}),
    (networkd, {"etc/systemd/network/10-eth0.network": NETWORKD,
                "etc/systemd/network/0-br0.netdev": "[NetDev]\n"}),
]  # fmt: skip


@pytest.mark.parametrize(("way", "files"), DEFINED, ids=lambda one: getattr(one, "__name__", ""))
def test_what_configures_the_bridge_already_is_neither_changed_nor_deleted(tmp_path, way, files):
    found = "Network File: /etc/systemd/network/10-eth0.network"
    told = {"sh -c": "here", "networkctl status": found}
    there = host(tmp_path, files, told)
    for make in (
        lambda: way.find("br0", "eth0", there),
        lambda: way.tagged(BridgeVlan("br0", "eth0", 7), there),
    ):
        with pytest.raises(Unsupported, match=r"/\S+ already configures br0, but the bridge is"):
            make()
    last = list(files)[-1] if way is not netplan else "etc/netplan/9.yaml"
    (tmp_path / last).unlink()
    assert way.find("br0", "eth0", there)
    assert way.tagged(BridgeVlan("br0", "eth0", 7), there)


def test_networkd_drop_ins_of_the_interfaces_file_move_along(tmp_path):
    path = "etc/systemd/network/10-eth0.network"
    files = {
        path: "[Match] \nName=eth0\n\n[Network]\nAddress=10.0.0.5/24",
        "usr/lib/systemd/network/10-eth0.network.d/a.conf": "[Network]\nDNS=10.0.0.66\n",
        f"{path}.d/a.conf": "[Network]\nDNS=10.0.0.1\n",
        f"{path}.d/b.conf": "[Match]\nKernelVersion=6\n[Route]\nGateway=10.0.0.9\n",
        f"{path}.d/c.conf": "[Link]\nMTUBytes = 9000\n",
    }
    told = {"networkctl status": f"Network File: /{path}\n    /{path}.d/a.conf"}
    plan = networkd.find("br0", "eth0", host(tmp_path, files, told))
    text = plan.files["/etc/systemd/network/0-br0.network"]
    assert text.count("[Match]") == 1 and "eth0" not in text and "KernelVersion" not in text
    assert "DNS=10.0.0.1\n" in text and "10.0.0.66" not in text
    assert "[Route]\nGateway=10.0.0.9\n" in text
    assert "MTUBytes = 9000" in plan.files["/etc/systemd/network/0-br0-port.network"]


def adapter(opts):
    """The execution module itself, with these options of a minion."""
    path = REPOSITORY / "_modules" / "virt_network.py"
    spec = importlib.util.spec_from_file_location("virt_network_module", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.__opts__ = opts
    return module
