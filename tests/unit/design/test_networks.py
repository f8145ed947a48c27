"""Networks, pools and volumes: requests as libvirt's XML, and requests that are refused."""

import pytest

from saltvirt.design import network, pool, secret, volume
from saltvirt.diff import network_changes, pool_changes
from saltvirt.errors import InvalidInput
from saltvirt.spec import network as network_spec
from saltvirt.spec import pool as pool_spec
from saltvirt.spec import volume as volume_spec
from saltvirt.xml.network.network import Network
from tests import golden
from tests.golden.cases import NETWORKS, POOLS, POOLS_OF_OURS, SECRET, VOLUMES

NET = {"cidr": "10.0.0.0/24"}
MIXED = {"start": "10.0.0.2", "end": "2001:db8::9"}
BACKWARDS = {"start": "10.0.0.9", "end": "10.0.0.2"}
STRANGER = {"ip": "10.1.0.2", "name": "a"}
USER = {"username": "u"}


def net(name="net1", actual=None, **arguments):
    return network.build(network_spec.parse(name, **arguments), actual)


@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name):
    golden.same(f"networks/{name}.xml", net(name, **NETWORKS[name]).tostring(indent=True))


@pytest.mark.parametrize("name", [*POOLS, *POOLS_OF_OURS])
def test_pools(name):
    kind, arguments = {**POOLS, **POOLS_OF_OURS}[name]
    made = pool.build(pool_spec.parse(name, kind, **arguments), secret_uuid=SECRET)
    golden.same(f"pools/{name}.xml", made.tostring(indent=True))


@pytest.mark.parametrize("name", VOLUMES)
def test_volumes(name):
    made = volume.build(volume_spec.parse(f"{name}.img", **VOLUMES[name]))
    golden.same(f"volumes/{name}.xml", made.tostring(indent=True))


def test_the_secret_of_a_pool():
    spec = pool_spec.parse("rbd", "rbd", **POOLS["rbd"][1])
    golden.same("secrets/pool.xml", secret.for_pool(spec).tostring(indent=True))
    assert "c2VjcmV0" not in repr(spec)
    iscsi = secret.build("iscsi", "target1", uuid=SECRET)
    assert (iscsi.usage_target, iscsi.usage, iscsi.uuid) == ("target1", "target1", SECRET)
    assert secret.build("volume", "/a").usage == "/a"


def test_netmask_prefix_and_cidr_are_the_same():
    ways = (
        {"cidr": "10.0.0.0/24"},
        {"address": "10.0.0.1", "prefix": 24},
        {"address": "10.0.0.1", "netmask": "255.255.255.0"},
        {"cidr": "10.0.0.1", "prefix": 24},
    )
    texts = {net(forward="nat", ipv4_config=way).tostring() for way in ways}
    assert len(texts) == 1
    actual = Network.fromstring(texts.pop().replace('prefix="24"', 'netmask="255.255.255.0"'))
    wanted = net(forward="nat", ipv4_config=ways[0])
    assert network_changes.changes(wanted, actual) == []


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        ("bridge is not possible", {"forward": "hostdev", "bridge": "br0"}),
        ("addresses or physical_function", {"forward": "hostdev"}),
        ("needs bridge", {"forward": "bridge"}),
        ("ipv4_config is not", {"forward": "bridge", "bridge": "b", "ipv4_config": NET}),
        ("needs interfaces", {"forward": "vepa"}),
        ("needs ipv4_config", {"forward": "nat"}),
        ("tag is not possible", {"tag": 5}),
        ("did you mean 'bridge'", {"brigde": "br0"}),
        ("is not in 10.0.0.0/24", {"ipv4_config": {**NET, "hosts": [STRANGER]}}),
        ("start is behind", {"ipv4_config": {**NET, "dhcp_ranges": [BACKWARDS]}}),
        ("of two IP versions", {"ipv4_config": {**NET, "dhcp_ranges": [MIXED]}}),
        ("not IPv6", {"ipv6_config": NET}),
        ("ipv4_config: cidr is missing", {"ipv4_config": {"prefix": 24}}),
        ("vport: type is missing; one of", {"vport": {"parameters": {}}}),
        ("network: name is missing", {"name": None}),
        ("passthrough needs interfaces or", {"forward": "passthrough"}),
        ("addresses '046d:c52b' is not a PCI address such as 0000:04:00.1",
         {"forward": "hostdev", "addresses": "0000:04:00.1 046d:c52b"}),
        ("network:nat:address: start and end are needed",
         {"forward": "nat", "ipv4_config": NET, "nat": {"address": {"start": "10.0.0.1"}}}),
        ("network:domain: name is missing", {"domain": {"localOnly": True}}),
        (r"portgroups\[0\]: name is missing", {"portgroups": [{"default": True}]}),
        (r"forwarders\[0\]: domain or addr is needed", {"dns": {"forwarders": [{}]}}),
        (r"srvs\[0\]: name and protocol are needed", {"dns": {"srvs": [{"name": "ldap"}]}}),
        (r"dhcp_ranges\[0\]: start and end are needed",
         {"ipv4_config": {**NET, "dhcp_ranges": [{"start": "10.0.0.2"}]}}),
        (r"hosts\[0\]: ip is missing", {"ipv4_config": {**NET, "hosts": [{"name": "a"}]}}),
        ("bootp: file is missing", {"ipv4_config": {**NET, "bootp": {"server": "10.0.0.1"}}}),
        ("'10.0.0.0/33' is not an address with its network",
         {"ipv4_config": {"cidr": "10.0.0.0/33"}}),
        ("10.1.0.2 of dhcp_ranges is not in 10.0.0.0/24",
         {"ipv4_config": {**NET, "dhcp_ranges": [{"start": "10.0.0.2", "end": "10.1.0.2"}]}}),
    ],
)  # fmt: skip
def test_what_libvirt_would_refuse_is_refused_before(message, arguments):
    with pytest.raises(InvalidInput, match=message):
        net(**arguments)


@pytest.mark.parametrize(
    ("message", "kind", "arguments"),
    [
        ("needs target", "dir", {}),
        ("needs source_hosts", "netfs", {"target": "/a", "source_dir": "/b"}),
        ("has no source_hosts", "dir", {"target": "/a", "source_hosts": ["x"]}),
        ("unknown 'foo'", "foo", {}),
        ("did you mean 'permissions'", "dir", {"target": "/a", "permisions": {}}),
        ("octal", "dir", {"target": "/a", "permissions": {"mode": "0999"}}),
        ("either password or secret", "rbd", {"source_name": "a", "source_auth": USER}),
        ("auth: username is missing", "rbd", {"source_name": "a", "source_auth": {"type": "ceph"}}),
        ("secret: type and value are needed", "rbd",
         {"source_name": "a", "source_auth": {**USER, "secret": {"type": "uuid"}}}),
        (r"devices\[0\]: path is missing", "disk", {"source_devices": [{"part_separator": True}]}),
        ("pool p: ptype is missing; one of dir, disk, ", None, {}),
    ],
)  # fmt: skip
def test_wrong_pools_are_refused(message, kind, arguments):
    with pytest.raises(InvalidInput, match=message):
        pool_spec.parse("p", kind, **arguments)


@pytest.mark.parametrize(
    ("message", "name", "arguments"),
    [
        ("name is missing", None, {"size": 1}),
        ("volume v: size is missing", "v", {"size": None}),
    ],
)
def test_wrong_volumes_are_refused(message, name, arguments):
    with pytest.raises(InvalidInput, match=message):
        volume_spec.parse(name, **arguments)


def test_a_pool_of_another_type_keeps_its_uuid_and_nothing_of_its_source():
    nfs = {"target": "/a", "source_hosts": ["h"], "source_dir": "/b", "source_format": "nfs"}
    actual = pool.build(pool_spec.parse("p", "netfs", **nfs))
    actual.uuid, actual.source.vendor = SECRET, "acme"
    wanted = pool.build(pool_spec.parse("p", "fs", target="/a", source_devices=["/dev/b"]), actual)
    assert (wanted.uuid, wanted.source.format, wanted.source.vendor) == (SECRET, None, None)


def test_a_mode_that_yaml_read_as_a_number():
    spec = pool_spec.parse("p", "dir", target="/a", permissions={"mode": 0o711})
    assert spec.permissions.mode == "0711"


def test_every_change_of_forward_mode_gives_a_valid_network():
    actual = net("nat", **NETWORKS["nat"])
    actual.uuid = SECRET
    for name, arguments in NETWORKS.items():
        wanted = net("nat", actual, **arguments)
        assert wanted.uuid == SECRET
        if arguments.get("forward") in ("bridge", "vepa", "hostdev"):
            assert len(wanted.ips) == 0
            assert wanted.mac is None
        assert bool(network_changes.changes(wanted, actual)) == (name != "nat")


def live(old, new):
    return network_changes.changes(net("n", **new), net("n", **old))


def test_a_new_dhcp_host_is_added_in_place():
    old = {"forward": "nat", "ipv4_config": {"cidr": "10.0.0.0/24"}}
    new = {"forward": "nat", "ipv4_config": {"cidr": "10.0.0.0/24"}}
    new["ipv4_config"]["hosts"] = [{"ip": "10.0.0.7", "mac": "52:54:00:00:00:07"}]
    (change,) = live(old, new)
    assert (change.live, change.command, change.section) == (True, "add", "ip-dhcp-host")
    assert change.parent_index == 0
    assert change.xml == '<host mac="52:54:00:00:00:07" ip="10.0.0.7" />'
    (gone,) = live(new, old)
    assert gone.command == "delete"


def test_a_changed_portgroup_is_modified_in_place():
    old = {"forward": "bridge", "bridge": "b", "portgroups": [{"name": "a"}]}
    new = {"forward": "bridge", "bridge": "b", "portgroups": [{"name": "a", "default": True}]}
    (change,) = live(old, new)
    assert (change.command, change.section) == ("modify", "portgroup")


def test_with_a_new_mode_nothing_is_live():
    old = {"forward": "nat", "ipv4_config": {"cidr": "10.0.0.0/24"}}
    found = live(old, {"forward": "private", "interfaces": "eth1"})
    assert found
    assert not any(change.live for change in found)


def test_pool_changes():
    kind, arguments = POOLS["dir"]
    actual = pool.build(pool_spec.parse("p", kind, **arguments))
    actual.uuid = SECRET
    plain = pool.build(pool_spec.parse("p", "dir", target="/srv/pool/"), actual)
    assert plain.uuid == SECRET
    assert pool_changes.changes(plain, actual) == []
    moved = pool.build(pool_spec.parse("p", "dir", target="/other"), actual)
    (change,) = pool_changes.changes(moved, actual)
    assert change.show() == {"path": "path", "old": "/srv/pool", "new": "/other", "live": False}


def test_a_volume_group_is_called_as_its_pool_and_keeps_its_devices():
    made = pool.build(pool_spec.parse("vg0", "logical", source_devices=[{"path": "/dev/sda"}]))
    assert made.source.name == "vg0"
    again = pool.build(pool_spec.parse("vg0", "logical"), made)
    assert [device.path for device in again.source.devices] == ["/dev/sda"]
    assert pool_changes.changes(again, made) == []


def test_a_first_dns_record_can_be_added_while_the_network_runs():
    actual = Network.fromstring("<network><name>n</name><forward mode='nat'/></network>")
    wanted = Network.fromstring(
        "<network><name>n</name><forward mode='nat'/><dns><txt name='a' value='b'/></dns></network>"
    )
    found = network_changes.changes(wanted, actual)
    assert [(change.section, change.live) for change in found] == [("dns-txt", True)]


def test_functions_that_libvirt_lists_for_a_running_card_are_no_difference():
    text = (
        "<network><name>n</name><forward mode='{}' managed='yes'><pf dev='eth0'/>{}"
        "</forward></network>"
    )
    address = "<address type='pci' domain='0' bus='3' slot='16' function='1'/>"
    for mode, listed in (("hostdev", address), ("passthrough", "<interface dev='eth1'/>")):
        wanted, running = (Network.fromstring(text.format(mode, x)) for x in ("", listed))
        assert network_changes.changes(wanted, running) == []


def test_what_somebody_else_put_there_stays():
    from saltvirt.xml.storage.pool import Pool

    options = "<o:options xmlns:o='http://libvirt.org/x'><o:option value='v'/></o:options>"
    there = Network.fromstring(f"<network><name>n</name><forward mode='nat'/>{options}</network>")
    spec = network_spec.parse("n", bridge=None, forward="nat", ipv4_config=NET)
    assert 'value="v"' in network.build(spec, there).tostring()
    there = Pool.fromstring(
        "<pool type='dir'><name>p</name><refresh><volume allocation='capacity'/></refresh></pool>"
    )
    assert "refresh" in pool.build(pool_spec.parse("p", "dir", target="/p"), there).tostring()


def test_dhcp_hosts_by_address():
    """Salt 3007's template took a dictionary, its documents showed the list."""
    hosts = {"10.0.0.7": {"mac": "52:54:00:00:00:07", "name": "a"}, "10.0.0.8": {"id": "x"}}
    listed = [{"ip": ip, **host} for ip, host in hosts.items()]
    found = {
        net(forward="nat", ipv4_config={**NET, "hosts": way}).tostring() for way in (hosts, listed)
    }
    assert len(found) == 1
    assert 'ip="10.0.0.8"' in found.pop()
    for wrong in ({"10.0.0.7": None}, {"10.0.0.7": "a"}, {"seven": {"name": "a"}}):
        with pytest.raises(InvalidInput, match="hosts"):
            net(forward="nat", ipv4_config={**NET, "hosts": wrong})


def test_what_others_said_and_we_cannot_say_stays():
    actual = Network.fromstring(
        "<network trustGuestRxFilters='yes'><name>lan</name><forward mode='hostdev' managed='yes'>"
        "<driver name='vfio' model='m'/><pf dev='eth2'/></forward></network>"
    )
    spec = network_spec.parse("lan", forward="hostdev", physical_function="eth2")
    wanted = network.build(spec, actual)
    assert network_changes.changes(wanted, actual) == []
    assert wanted.forward.node.find("driver").attrib == {"name": "vfio", "model": "m"}
    assert wanted.node.get("trustGuestRxFilters") == "yes"
    actual = Network.fromstring(
        "<network><name>lan</name><forward mode='nat'/>"
        "<bridge name='b1' macTableManager='libvirt'/>"
        "<dns forwardPlainNames='no'/><ip address='192.0.2.1' prefix='24' localPtr='yes'>"
        "<dhcp><range start='192.0.2.2' end='192.0.2.9'><lease expiry='24' unit='hours'/></range>"
        "</dhcp></ip><portgroup name='a' trustGuestRxFilters='yes'/></network>"
    )
    dhcp = [{"start": "192.0.2.2", "end": "192.0.2.9", "lease": 86400}]
    ipv4 = {"cidr": "192.0.2.1/24", "dhcp_ranges": dhcp}
    spec = network_spec.parse("lan", forward="nat", ipv4_config=ipv4, portgroups=[{"name": "a"}])
    wanted = network.build(spec, actual)
    assert network_changes.changes(wanted, actual) == []
    text = wanted.tostring()
    for word in ("macTableManager", "forwardPlainNames", "localPtr", "trustGuestRxFilters"):
        assert word in text, word
    dhcp[0]["lease"] = 7200
    shorter = network_spec.parse("lan", forward="nat", ipv4_config=ipv4)
    assert {c.path for c in network_changes.changes(network.build(shorter, actual), actual)} == {
        "ip/ranges"
    }
    less = network_spec.parse("lan", forward="nat", ipv4_config={"cidr": "192.0.2.1/24"})
    assert {c.path for c in network_changes.changes(network.build(less, actual), actual)} == {
        "ip/ranges"
    }


def test_forwarding_is_nat_unless_said_otherwise():
    actual = Network.fromstring(
        "<network><name>lan</name><forward/><ip address='192.0.2.1' prefix='24'/></network>"
    )
    spec = network_spec.parse("lan", forward="nat", ipv4_config={"cidr": "192.0.2.1/24"})
    assert network_changes.changes(network.build(spec, actual), actual) == []
