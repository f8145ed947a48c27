"""Networks on libvirt's test driver; with bridges and DHCP: tests/integration."""

import errno
import os
import socket
import struct
import subprocess
import sys
from xml.etree import ElementTree

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from salt.exceptions import CommandExecutionError

from saltvirt.host.network import host_addresses, links, network_state, networks
from saltvirt.spec.network import parse
from saltvirt.states.networks import DesiredNetwork

IP = {"cidr": "10.9.0.0/24", "dhcp_ranges": [{"start": "10.9.0.10", "end": "10.9.0.99"}]}
DIRECT = {"interfaces": "eth8 eth9"}


@pytest.fixture(autouse=True)
def only_default(conn):
    """No network but the test driver's own, before and after."""
    yield conn
    for network in conn.listAllNetworks():
        if network.name() != "default":
            if network.isActive():
                network.destroy()
            network.undefine()


def xml(conn, name="lab"):
    return conn.networkLookupByName(name).XMLDesc()


def names(conn):
    return sorted(network.name() for network in conn.listAllNetworks())


def test_reading(virt, conn):
    network = conn.networkLookupByName("default")
    assert virt["virt.list_networks"]() == ["default"]
    assert virt["virt.network_get_xml"]("default") == network.XMLDesc()
    assert virt["virt.network_info"]() == {
        "default": {
            "uuid": network.UUIDString(), "bridge": "virbr0", "forward": "nat", "active": True,
            "autostart": False, "persistent": True, "pending": False, "leases": [],
        }
    }  # fmt: skip


def test_a_host_without_networks(empty):
    assert empty["virt.list_networks"]() == []
    assert empty["virt.network_info"]() == {}


def test_what_is_not_there(virt):
    assert virt["virt.network_info"]("nosuch") == {}
    for function in ("get_xml", "start", "stop", "undefine", "set_autostart"):
        with pytest.raises(CommandExecutionError, match=r"no network 'nosuch' on .*default"):
            virt[f"virt.network_{function}"]("nosuch")


@pytest.mark.parametrize("start", [True, False])
@pytest.mark.parametrize("autostart", [True, False])
def test_define(virt, conn, start, autostart):
    assert virt["virt.network_define"](
        "lab", None, "nat", ipv4_config=IP, start=start, autostart=autostart
    )
    network = conn.networkLookupByName("lab")
    assert (bool(network.isActive()), bool(network.autostart())) == (start, autostart)


def test_define_keeps_vport_and_tag(virt, conn):
    """Salt took them out of the wrong place and lost them."""
    virt["virt.network_define"]("lab", "ovs0", "bridge", vport="openvswitch", tag=42)
    assert '<virtualport type="openvswitch"' in xml(conn).replace("'", '"')
    assert '<tag id="42"' in xml(conn).replace("'", '"')


def test_define_twice_is_refused(virt, conn):
    virt["virt.network_define"]("lab", None, "nat", ipv4_config=IP)
    with pytest.raises(CommandExecutionError, match="network lab already exists"):
        virt["virt.network_define"]("lab", None, "nat", ipv4_config=IP)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"forward": "nta"}, "forward"),
        ({"forward": "bridge"}, "needs bridge"),
        ({"forward": "nat", "ipv4_config": {"cidr": "10.9.0.0/24", "dhcp": 1}}, "dhcp"),
        ({"forward": "hostdev", "bridge": "br0", "addresses": "0000:03:10.1"}, "bridge"),
        ({"forward": "nat", "ipv4_config": IP, "colour": "red"}, "unknown argument: colour"),
    ],
)
def test_define_refuses(virt, conn, arguments, error):
    with pytest.raises(CommandExecutionError, match=error):
        virt["virt.network_define"]("lab", arguments.pop("bridge", None), **arguments)
    assert names(conn) == ["default"]


def test_update_twice_and_with_test(virt, conn):
    virt["virt.network_define"]("lab", None, "nat", ipv4_config=IP, start=False)
    update = virt["virt.network_update"]
    assert update("lab", None, "nat", ipv4_config=IP) is False
    before = xml(conn)
    assert update("lab", None, "nat", ipv4_config=IP, mtu=1400, test=True) is True
    assert xml(conn) == before
    assert update("lab", None, "nat", ipv4_config=IP, mtu=1400) is True
    assert "1400" in xml(conn)
    assert update("lab", None, "nat", ipv4_config=IP, mtu=1400) is False
    with pytest.raises(CommandExecutionError, match="no network 'other'"):
        update("other", None, "nat", ipv4_config=IP)


MODES = [
    ("nat", None, {"ipv4_config": IP}),
    ("route", None, {"ipv4_config": IP}),
    ("open", None, {"ipv4_config": IP}),
    (None, None, {"ipv4_config": IP}),
    ("bridge", "br7", {}),
    ("private", None, DIRECT),
    ("vepa", None, DIRECT),
    ("passthrough", None, DIRECT),
    ("hostdev", None, {"addresses": "0000:03:10.1"}),
]


@pytest.mark.parametrize("new", MODES, ids=lambda m: str(m[0]))
@pytest.mark.parametrize("old", MODES, ids=lambda m: str(m[0]))
def test_every_change_of_forward_mode_applies(virt, conn, old, new):
    """Salt's NAT to bridge gave XML that libvirt refused."""
    mode, bridge, rest = old
    virt["virt.network_define"]("lab", bridge, mode, start=False, autostart=False, **rest)
    uuid = conn.networkLookupByName("lab").UUIDString()
    mode, bridge, rest = new
    assert virt["virt.network_update"]("lab", bridge, mode, **rest) is (old != new)
    assert virt["virt.network_update"]("lab", bridge, mode, **rest) is False
    assert virt["virt.network_info"]("lab")["lab"]["forward"] == mode
    assert conn.networkLookupByName("lab").UUIDString() == uuid
    assert (f"mode='{mode}'" in xml(conn)) is bool(mode)


def test_prefix_and_netmask_are_the_same(virt, conn):
    conn.networkDefineXML(
        "<network><name>lab</name><forward mode='nat'/>"
        "<ip address='10.9.0.1' netmask='255.255.255.0'>"
        "<dhcp><range start='10.9.0.10' end='10.9.0.99'/></dhcp></ip></network>"
    )
    assert virt["virt.network_update"]("lab", None, "nat", ipv4_config=IP) is False


def test_life(virt, conn):
    virt["virt.network_define"]("lab", None, "nat", ipv4_config=IP, start=False, autostart=False)
    network = conn.networkLookupByName("lab")
    assert virt["virt.network_start"]("lab") is True
    assert network.isActive()
    with pytest.raises(CommandExecutionError, match="cannot start network lab"):
        virt["virt.network_start"]("lab")
    for state, on in (("on", 1), (False, 0), (True, 1), ("off", 0)):
        assert virt["virt.network_set_autostart"]("lab", state) is True
        assert network.autostart() == on
    with pytest.raises(CommandExecutionError, match="on or off"):
        virt["virt.network_set_autostart"]("lab", "maybe")
    assert virt["virt.network_stop"]("lab") is True
    assert not network.isActive()
    assert virt["virt.network_undefine"]("lab") is True
    assert names(conn) == ["default"]


def test_an_error_of_libvirt_is_one_line(conn):
    from saltvirt.host import connection

    with pytest.raises(CommandExecutionError) as caught, connection.translated("define it"):
        conn.networkDefineXML("<network>\n<")
    assert str(caught.value).startswith("cannot define it: ")
    assert "\n" not in str(caught.value)


def test_an_error_that_is_not_about_the_name_is_libvirts_own():
    closed = libvirt.open("test:///default")
    closed.close()
    with pytest.raises(libvirt.libvirtError, match="invalid connection"):
        networks.lookup(closed, "default")


# libvirt 11 deletes a host's own device when it cannot make a bridge of that name. Each host has lo
TAKEN = "network lab: this host already has a device lo, and libvirt would create a"


@pytest.mark.parametrize(("start", "autostart"), [(True, False), (False, True)])
def test_a_bridge_named_as_a_device_of_the_host_is_refused(virt, conn, start, autostart):
    how = {"start": start, "autostart": autostart}
    with pytest.raises(CommandExecutionError, match=TAKEN):
        virt["virt.network_define"]("lab", "lo", "nat", ipv4_config=IP, **how)
    assert names(conn) == ["default"]


def test_a_network_that_would_take_a_device_of_the_host_is_not_started(virt, conn):
    define = virt["virt.network_define"]
    define("lab", "lo", "nat", ipv4_config=IP, start=False, autostart=False)
    network = conn.networkLookupByName("lab")
    with pytest.raises(CommandExecutionError, match=TAKEN):
        virt["virt.network_start"]("lab")
    with pytest.raises(CommandExecutionError, match=TAKEN):
        virt["virt.network_set_autostart"]("lab", "on")
    assert (network.isActive(), network.autostart()) == (0, 0)
    assert virt["virt.network_set_autostart"]("lab", "off") is True
    virt["virt.network_update"]("lab", "own0", "nat", ipv4_config=IP)
    assert virt["virt.network_start"]("lab") is True
    with pytest.raises(CommandExecutionError, match=TAKEN):
        virt["virt.network_update"]("lab", "lo", "nat", ipv4_config=IP)
    assert network.bridgeName() == "own0"


@pytest.mark.parametrize("test", [True, False])
def test_a_state_refuses_a_bridge_named_as_a_device_of_the_host(conn, test):
    def converge(running, autostart):
        spec = parse("lab", bridge="lo", forward="nat", ipv4_config=IP)
        return network_state.converge(conn, DesiredNetwork(spec, running, autostart), test)

    for running, autostart in ((True, False), (False, True)):
        with pytest.raises(CommandExecutionError, match=TAKEN):
            converge(running, autostart)
        assert names(conn) == ["default"]
    networks.define(conn, parse("lab", bridge="lo", forward="nat", ipv4_config=IP), False, False)
    for running, autostart in ((True, False), (False, True)):
        with pytest.raises(CommandExecutionError, match=TAKEN):
            converge(running, autostart)
    assert not conn.networkLookupByName("lab").autostart()
    assert converge(False, False)


def test_a_network_that_runs_is_not_started_again(conn):
    there = conn.networkLookupByName("default")
    assert network_state._start_again(conn, there) is None
    assert there.isActive()
    there.destroy()
    network_state._start_again(conn, there)
    assert there.isActive()


def test_a_guest_with_an_interface_on_no_network_is_none_of_a_networks(conn):
    dom = conn.createXML(
        "<domain type='test'><name>apart</name><memory>1024</memory><os><type>hvm</type></os>"
        "<devices><interface type='user'/></devices></domain>"
    )
    there = conn.networkLookupByName("default")
    assert [name for name, _ in network_state._interfaces(conn, there)] == ["test"]
    dom.destroy()


# -- what the kernel tells of this host ----------------------------------------------------------


def attribute(kind, content):
    padding = b"\0" * (-len(content) % 4)
    return struct.pack("=HH", 4 + len(content), kind) + content + padding


def test_an_attribute_without_a_length_ends_what_is_read():
    good = attribute(3, b"br0\0")
    assert dict(links._attributes(good)) == {3: b"br0\0"}
    assert dict(links._attributes(good + b"\0" * 8 + good)) == {3: b"br0\0"}


def test_an_error_of_the_kernel_is_one_of_the_system():
    ours, kernels = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, kernels:
        kernels.send(struct.pack("=IHHIIi", 36, 2, 0, 1, 0, -errno.EPERM) + b"\0" * 16)
        with pytest.raises(PermissionError):
            list(links._messages(ours))


@pytest.mark.skipif(os.geteuid() != 0, reason="devices of a network namespace need root")
def test_a_device_that_is_in_a_bridge_is_told_from_one_that_is_not():
    """Open vSwitch has its taps in a device of its own: the kernel moves none of them."""
    script = (
        "ip link add name b0 type bridge; "
        "ip link add name in0 master b0 type veth peer name out0; "
        f"{sys.executable} -c 'from saltvirt.host.network import links; "
        'print(sorted(links.bridge_ports()), links.kinds()["b0"])\''
    )
    done = subprocess.run(
        ["unshare", "--net", "bash", "-c", script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "['in0'] bridge", done.stderr


def test_only_a_linux_bridge_gets_its_guests_back(conn, monkeypatch):
    there = conn.networkLookupByName("default")
    tap = ElementTree.fromstring("<interface><target dev='vnet0'/></interface>")
    monkeypatch.setattr(network_state, "_interfaces", lambda *_: [("web1", tap), ("web2", tap)])
    ran = []
    monkeypatch.setattr(network_state.tools, "run", lambda argv, _what: ran.append(argv[-3:]))
    bridge = there.bridgeName()
    monkeypatch.setattr(network_state.networks, "start", lambda network: network.create())
    for kind, plugged, again in (
        ("bridge", set(), 2), ("bridge", {"vnet0"}, 0), ("openvswitch", set(), 0),
    ):  # fmt: skip
        monkeypatch.setattr(links, "kinds", lambda kind=kind: {bridge: kind, "vnet0": "tun"})
        monkeypatch.setattr(links, "bridge_ports", lambda plugged=plugged: plugged)
        there.destroy()
        network_state._start_again(conn, there)
        assert ran == [["vnet0", "master", bridge]] * again
        ran.clear()


def test_the_addresses_of_this_host_are_those_that_others_reach(monkeypatch):
    told = subprocess.run(["ip", "-o", "addr", "show"], capture_output=True, text=True, check=True)
    here = host_addresses.global_addresses()
    assert all(f" {address}/" in told.stdout for address in here)
    assert not {"127.0.0.1", "::1"} & set(here)
    assert [host_addresses.global_addresses(address) for address in here] == [
        [address] for address in here
    ]
    assert host_addresses.global_addresses("localhost") == []
    assert host_addresses.global_addresses("no such name") == []
    monkeypatch.setenv("PATH", "/no/such/folder")
    assert host_addresses.global_addresses() == []


def test_a_network_that_goes_while_they_are_read_costs_only_itself(conn):
    conn.networkDefineXML("<network><name>going</name></network>")

    class Going:
        def listAllNetworks(self):
            found = conn.listAllNetworks()
            conn.networkLookupByName("going").undefine()
            return found

    found = networks.infos(Going())
    assert sorted(found) == ["default", "going"]
    assert "no network with matching" in found["going"]["error"]
    assert found["default"]["active"] is True


def test_the_default_port_group_moves_on_a_network_that_runs(virt, conn):
    def groups():
        found = ElementTree.fromstring(xml(conn)).iterfind("portgroup")
        return {one.get("name"): (one.get("default"), len(one)) for one in found}

    first = [{"name": "p", "default": True}]
    assert virt["virt.network_define"]("lab", None, None, portgroups=first)
    moved = [{"name": "q", "default": True}, {"name": "p"}]
    assert virt["virt.network_update"]("lab", None, None, portgroups=moved) is True
    assert groups() == {"p": (None, 0), "q": ("yes", 0)}
    assert virt["virt.network_update"]("lab", None, None, portgroups=moved[::-1]) is False
    back = [{"name": "q"}, {"name": "p", "default": True}]
    assert virt["virt.network_update"]("lab", None, None, portgroups=back) is True
    # of a change that fails nothing stays
    slow = {"bandwidth": {"inbound": {"average": 100}}}
    wrong = [{"name": "q", **slow}, *({"name": name, "default": True} for name in "prs")]
    with pytest.raises(CommandExecutionError, match="Only one default is allowed"):
        virt["virt.network_update"]("lab", None, None, portgroups=wrong)
    assert groups() == {"p": ("yes", 0), "q": (None, 0)}
    assert virt["virt.network_update"]("lab", None, None, portgroups=back) is False


def test_a_flag_that_is_the_text_false_is_false(virt, conn):
    assert virt["virt.network_define"]("lab", None, None, start="False", autostart="False") is True
    network = conn.networkLookupByName("lab")
    assert (network.isActive(), network.autostart()) == (0, 0)
    changed = {"domain": "example.com"}
    assert virt["virt.network_update"]("lab", None, None, test="False", **changed) is True
    assert virt["virt.network_update"]("lab", None, None, **changed) is False
    virt["virt.network_converge"]("lab", running="False", autostart="False", test="no")
    assert (network.isActive(), network.autostart()) == (0, 0)
    virt["virt.network_remove"]("lab", test="False")
    assert "lab" not in names(conn)


def test_who_cannot_be_started_without_it_is_named(virt, conn):
    virt["virt.network_define"]("lab", None, None)
    guest = conn.defineXML(
        "<domain type='test'><name>off</name><memory>1024</memory><os><type>hvm</type></os>"
        "<devices><interface type='network'><source network='lab'/></interface></devices></domain>"
    )
    try:
        words = "off cannot be started without it: each has an interface on it"
        for test in (True, False):
            found = virt["virt.network_remove"]("lab", test=test)
            assert found["comment"].endswith(f"removed. {words}")
    finally:
        guest.undefine()
