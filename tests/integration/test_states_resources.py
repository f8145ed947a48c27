"""States of networks, pools, volumes and images with each parameter: exact, idempotent,
harmless."""

import pytest

from tests.integration.hv import file_disk, guest
from tests.integration.test_pools import device, group, need  # noqa: F401 - the first is a fixture

pytestmark = pytest.mark.lab

RANGE = [{"start": "10.99.0.10", "end": "10.99.0.99"}]
IP = {"cidr": "10.99.0.0/24", "dhcp_ranges": RANGE}
SEVEN = {"ip": "10.99.0.7", "mac": "52:54:00:00:00:07", "name": "seven"}
NAT = {"forward": "nat", "ipv4_config": IP}
PORTGROUP = {"name": "web", "default": True, "bandwidth": {"inbound": {"average": 1000}}}
DNS = {
    "forwarders": [{"domain": "example.com", "addr": "10.0.0.1"}],
    "txt": {"example.com": "v=spf1 a -all"},
    "hosts": {"10.99.0.8": ["eight", "acht"]},
    "srvs": [{"name": "ldap", "protocol": "tcp", "target": "l.example.com", "port": 389}],
}
# what is added to a NAT network, one after the other, and the key of ``changes`` it must have
ADDED = [
    ("bridge", "labbr1", "bridge"),
    ("ipv4_config", {**IP, "hosts": [SEVEN]}, "ip/hosts"),
    ("ipv4_config", {**IP, "hosts": [{**SEVEN, "name": "sieben"}]}, "ip/hosts"),
    ("ipv4_config", {**IP, "dhcp_ranges": [{"start": "10.99.0.20", "end": "10.99.0.29"}]},
     "ip/ranges"),
    ("ipv4_config", {**IP, "bootp": {"file": "a.0"}, "tftp": "/srv"}, "tftp"),
    ("ipv6_config", {"cidr": "fd99::/64"}, "fd99::1/64"),
    ("autostart", False, "autostart"),
    ("mtu", 1400, "mtu"),
    ("domain", {"name": "lab.test", "localOnly": True}, "domain_name"),
    ("nat", {"port": {"start": 500, "end": 1000}}, "forward/nat_port_start"),
    ("dns", DNS, "dns/hosts"),
    ("dns", {**DNS, "txt": {"example.com": "other"}}, "dns/txts"),
    ("portgroups", [PORTGROUP], "portgroups"),
    ("dev", "br0", "forward/interfaces"),
    ("stp", False, "stp"),
    ("delay", 3, "delay_s"),
    ("isolated_ports", True, "isolated_ports"),
]  # fmt: skip
# other kinds, which need not be startable here. That libvirt takes hostdev's addresses needs a
# card with virtual functions
KINDS = [
    {"forward": "route", "ipv4_config": IP},
    {"forward": "open", "ipv4_config": IP, "bandwidth": {"inbound": {"average": 2000}}},
    {"ipv4_config": IP},
    {"forward": "bridge", "bridge": "br0"},
    {"forward": "bridge", "bridge": "br0", "vport": "openvswitch"},
    {"forward": "bridge", "bridge": "br0", "vport": "openvswitch", "tag": 42},
    {"forward": "private", "interfaces": "eth8 eth9"},
    {"forward": "vepa", "interfaces": "eth8"},
    {"forward": "passthrough", "interfaces": ["eth8"]},
    {"forward": "hostdev", "physical_function": "eth8"},
]


@pytest.fixture(autouse=True)
def clean(hv):
    yield
    for name in hv.table("list", "--all", "--name"):
        if name.startswith("lab"):
            hv.sh(f"virsh -q destroy {name}; virsh -q undefine {name}", check=False)
    for kind in ("net", "pool"):
        for name in hv.table(f"{kind}-list", "--all", "--name"):
            if name.startswith("lab"):
                hv.sh(f"virsh -q {kind}-destroy {name}; virsh -q {kind}-undefine {name}",
                      check=False)  # fmt: skip
    hv.sh("rm -rf /srv/labpool")


def test_a_defined_network_in_each_parameter(applied, hv):
    made = applied.changes("network_defined", "lab1", **NAT)
    assert made["changes"]["defined"] == {"old": False, "new": True}
    assert hv.facts("net-info", "lab1")["Active"] == "no"
    parameters = dict(NAT)
    for word, value, path in ADDED:
        parameters[word] = value
        found = applied.changes("network_defined", "lab1", **parameters)["changes"]
        assert any(path in key for key in found), f"{word}: {found}"
    applied.changes("network_defined", "lab1", **NAT)


def test_a_running_network_in_each_parameter(applied, hv):
    applied.changes("network_running", "lab1", **NAT)
    assert hv.facts("net-info", "lab1")["Active"] == "yes"
    parameters = dict(NAT)
    # what needs another start, all at once; then what is changed as it runs
    started_again = [row for row in ADDED if row[0] not in ("dns", "portgroups", "autostart")]
    parameters.update({word: value for word, value, _ in started_again})
    parameters["dns"] = {"forwarders": DNS["forwarders"]}
    done = applied.changes("network_running", "lab1", **parameters)
    assert "restarted" in done["comment"]
    since = hv.sh("ip -o link show labbr1")
    parameters["ipv4_config"] = {**parameters["ipv4_config"], "hosts": [SEVEN]}
    applied.changes("network_running", "lab1", **parameters)
    assert "seven" in hv.sh("cat /var/lib/libvirt/dnsmasq/lab1.hostsfile")
    parameters.update(dns=DNS, portgroups=[PORTGROUP], autostart=False)
    done = applied.changes("network_running", "lab1", **parameters)
    assert "restarted" not in done["comment"]
    parameters["dns"] = {**DNS, "txt": {"example.com": "other"}}
    done = applied.changes("network_running", "lab1", **parameters)
    assert "restarted" not in done["comment"]
    assert hv.sh("ip -o link show labbr1").split(":")[0] == since.split(":")[0]


def on_network(name):
    """A running guest's interface on a network."""
    return f"<interface type='network'><source network='{name}'/><model type='virtio'/></interface>"


def test_guests_keep_their_network(applied, hv):
    applied.changes("network_running", "lab1", bridge="labbr1", **NAT)
    hv.define("", guest("labguest", on_network("lab1")))
    hv.virsh("start", "labguest")
    tap = hv.sh("virsh -q domiflist labguest").split()[0]
    in_bridge = f"ip -o link show {tap} | grep -q 'master labbr1'"
    more = {"bridge": "labbr1", "mtu": 1400, **NAT}
    done = applied.changes("network_running", "lab1", **more)
    assert "labguest uses it (restart: True restarts it now)" in done["comment"]
    assert "mtu 1500" in hv.sh("ip link show labbr1")
    live = {**more, "ipv4_config": {**IP, "hosts": [SEVEN]}}
    applied.changes("network_running", "lab1", **live)
    assert "seven" in hv.sh("cat /var/lib/libvirt/dnsmasq/lab1.hostsfile")
    assert "labguest" in applied.fails("network_absent", "lab1")
    hv.sh(in_bridge)
    applied.changes("network_running", "lab1", restart=True, **live)
    assert "mtu 1400" in hv.sh("ip link show labbr1")
    hv.sh(in_bridge)
    hv.virsh("destroy", "labguest")
    applied.changes("network_absent", "lab1")
    assert "lab1" not in hv.table("net-list", "--all", "--name")


def test_a_network_of_each_kind_becomes_any_other(applied, hv):
    applied.changes("network_defined", "lab1", **NAT)
    uuid = hv.facts("net-info", "lab1")["UUID"]
    for parameters in KINDS:
        applied.changes("network_defined", "lab1", **parameters)
    assert hv.facts("net-info", "lab1")["UUID"] == uuid


def test_what_is_wrong_with_a_network_is_said(applied, hv):
    text = applied.fails("network_running", "lab1", **NAT, domian="lab.test")
    assert text == "virt.network_running: unknown 'domian', did you mean 'domain'?"
    text = applied.fails("network_defined", "lab1", forward="nat", ipv4_config={"cdir": "x"})
    assert "ipv4_config: unknown 'cdir', did you mean 'cidr'?" in text
    before = applied.written()
    answer = applied("network_running", "lab2", **NAT, bridge="br0")
    assert (answer["result"], answer["changes"]) == (False, {})
    assert "lab2: this host already has a device br0" in answer["comment"]
    hv.sh("ip link show br0")
    assert applied.written() == before


FOLDER = "/srv/labpool"
DIR = {"ptype": "dir", "target": f"{FOLDER}/a"}
CHAP = {"username": "admin", "password": "S3cr3t-of-the-pool"}
ISCSI = {
    "ptype": "iscsi", "target": "/dev/disk/by-path",
    "source": {"hosts": ["a.example.com"], "devices": ["iqn.2014-01.com.example:disks"],
               "auth": CHAP},
}  # fmt: skip
# pools that need not be startable here, each changed into the next of its list
POOLS = [
    [DIR, {**DIR, "target": f"{FOLDER}/b"}, {**DIR, "permissions": [{"mode": "0750"}]},
     {**DIR, "permissions": {"mode": 0o755, "group": 4}}, {**DIR, "autostart": False}],
    [ISCSI, {**ISCSI, "source": {**ISCSI["source"], "hosts": ["b.example.com:3261"]}}],
    [{"ptype": "netfs", "target": f"{FOLDER}/n",
      "source": {"dir": "/x", "hosts": ["a.example.com"], "format": form}}
     for form in ("nfs", "cifs")],
    [{"ptype": "rbd", "source": {"name": name, "hosts": ["a.example.com"]}} for name in "ab"],
    [{"ptype": "iscsi-direct",
      "source": {"hosts": ["a.example.com"], "devices": ["iqn.2014-01.com.example:d"],
                 "initiator": f"iqn.2014-01.com.example:{n}"}} for n in "ab"],
    [{"ptype": "scsi", "target": "/dev/disk/by-path",
      "source": {"adapter": {"type": "scsi_host", "name": name}}}
     for name in ("scsi_host1", "scsi_host2")],
]  # fmt: skip


@pytest.mark.parametrize("kinds", POOLS, ids=lambda kinds: kinds[0]["ptype"])
def test_a_pool_defined_in_each_parameter(applied, hv, kinds):
    need(hv, kinds[0]["ptype"])
    for parameters in kinds:
        applied.changes("pool_defined", "labpool", **parameters)
    assert hv.facts("pool-info", "labpool")["State"] == "inactive"
    applied.changes("pool_deleted", "labpool")


def test_a_password_is_compared_and_never_shown(applied, hv):
    applied.changes("pool_defined", "labpool", **ISCSI)
    other = {**ISCSI["source"], "auth": {**CHAP, "password": "An0ther-secret"}}
    done = applied.changes("pool_defined", "labpool", **{**ISCSI, "source": other})
    assert done["changes"] == {"password": {"old": "(hidden)", "new": "(hidden)"}}
    uuid = hv.sh("virsh -q secret-list | grep pool_labpool").split()[0]
    assert hv.sh(f"base64 -d /etc/libvirt/secrets/{uuid}.base64") == "An0ther-secret"
    assert "An0ther" not in str(applied.written())
    text = applied.fails("pool_defined", "labpool", **{**ISCSI, "source": {**other, "hots": []}})
    assert "source: unknown 'hots', did you mean 'hosts'?" in text
    applied.changes("pool_deleted", "labpool")
    assert "pool_labpool" not in hv.sh("virsh -q secret-list")


def test_a_running_folder(applied, hv):
    text = applied.fails("pool_running", "labpool")
    assert "give ptype to create it" in text
    applied.changes("pool_running", "labpool", **DIR)
    assert hv.facts("pool-info", "labpool")["State"] == "running"
    applied.changes("pool_running", "labpool", autostart=False)
    hv.virsh("pool-destroy", "labpool")
    hv.sh(f"rmdir {FOLDER}/a")
    applied.changes("pool_running", "labpool", autostart=False)
    wanted = {**DIR, "permissions": {"mode": "0751", "group": 4}}
    applied.changes("pool_running", "labpool", **wanted)
    assert hv.sh(f"stat -c '%a %g' {FOLDER}/a").split() == ["751", "4"]
    hv.sh(f"chmod 711 {FOLDER}/a; virsh -q pool-refresh labpool")
    applied.changes("pool_running", "labpool", **wanted)
    assert hv.sh(f"stat -c %a {FOLDER}/a").strip() == "751"
    applied.changes("volume_defined", "v.qcow2", pool="labpool", size=8, format="qcow2")
    hv.define("", guest("labguest", file_disk(f"{FOLDER}/a/v.qcow2")))
    hv.virsh("start", "labguest")
    other = {**DIR, "target": f"{FOLDER}/b"}
    done = applied.changes("pool_running", "labpool", **other)
    assert "labguest has volumes of it open (restart: True restarts it now)" in done["comment"]
    assert hv.sh("virsh -q vol-list labpool").split()[0] == "v.qcow2"
    assert "labguest" in applied.fails("pool_deleted", "labpool")
    applied.changes("pool_running", "labpool", restart=True, **other)
    assert hv.sh("virsh -q vol-list labpool") == ""
    applied.changes("pool_running", "labpool", restart=True, **DIR)
    hv.virsh("destroy", "labguest")
    assert "labguest" in applied.fails("pool_deleted", "labpool", purge=True)
    hv.virsh("undefine", "labguest")
    text = applied.fails("pool_deleted", "labpool", prurge=True)
    assert text == "virt.pool_deleted: unknown 'prurge', did you mean 'purge'?"
    done = applied.changes("pool_deleted", "labpool", purge=True)
    assert done["changes"] == {
        "deleted_volumes": ["v.qcow2"], "stopped": True, "deleted": True, "undefined": True,
    }  # fmt: skip
    assert hv.sh(f"ls {FOLDER}").split() == ["b"]


def test_a_transient_pool(applied, hv):
    applied.changes("pool_running", "labpool", transient=True, **DIR)
    assert hv.facts("pool-info", "labpool")["Persistent"] == "no"
    applied.changes("pool_running", "labpool", **DIR)
    assert hv.facts("pool-info", "labpool")["Persistent"] == "yes"
    other = {**DIR, "target": f"{FOLDER}/b", "transient": True}
    applied.changes("pool_running", "labpool", **other)
    assert hv.facts("pool-info", "labpool")["Persistent"] == "no"
    applied.changes("pool_running", "labpool", **{**DIR, "transient": True})
    applied.changes("pool_deleted", "labpool")


@pytest.mark.parametrize("kind", ["disk", "fs", "logical"])
def test_a_pool_on_a_device_is_built_once(applied, hv, device, kind):  # noqa: F811
    need(hv, kind)
    form = {"disk": "gpt", "fs": "ext4", "logical": "lvm2"}[kind]
    wanted = {"ptype": kind, "source": {"devices": [device], "format": form}}
    wanted |= {"target": f"{FOLDER}/m"} if kind == "fs" else {}
    if kind == "logical":
        wanted["source"]["name"] = group(hv)
    applied.changes("pool_running", "labpool", **wanted)
    hv.virsh("pool-destroy", "labpool")
    applied.changes("pool_running", "labpool", **wanted)
    hv.sh("virsh -q pool-destroy labpool; virsh -q pool-undefine labpool")
    applied.changes("pool_running", "labpool", **wanted)
    applied.changes("pool_deleted", "labpool")


VOLUME = {"pool": "labpool", "size": 8, "format": "qcow2"}


def test_a_volume_in_each_parameter(applied, hv):
    applied.changes("pool_running", "labpool", **DIR)
    base = {"path": f"{FOLDER}/a/base", "format": "raw"}
    own = {"mode": "0640", "owner": 0, "group": 4}
    more = {"base": {"pool": "labpool", "size": "4MiB", "allocation": 4, "type": "file"},
            "top": {**VOLUME, "backing_store": base}, "own": {**VOLUME, "permissions": own},
            "nocow": {**VOLUME, "nocow": True}}  # fmt: skip
    for name, parameters in more.items():
        applied.changes("volume_defined", name, **parameters)
    assert hv.sh(f"stat -c '%b %B' {FOLDER}/a/base").split() == ["8192", "512"]
    applied.changes(
        "volume_defined", "own", **{**VOLUME, "size": "16M", "permissions": {"mode": 0o600}}
    )
    assert hv.sh(f"stat -c '%a %g' {FOLDER}/a/own").split() == ["600", "4"]
    assert "shrink: True" in applied.fails("volume_defined", "own", **VOLUME)
    applied.changes("volume_defined", "thin", pool="labpool", size=8)
    applied.changes("volume_defined", "thin", pool="labpool", size=2, shrink=True)
    for parameters, words in (
        ({"format": "raw"}, "format qcow2, not raw"),
        ({"type": "block"}, "type file, not block"),
        ({"backing_store": base}, f"backing store none, not {FOLDER}/a/base (raw)"),
        ({"nocwo": True}, "unknown 'nocwo', did you mean 'nocow'?"),
        ({"size": "4 bananas"}, "size"),
    ):
        assert words in applied.fails("volume_defined", "nocow", **{**VOLUME, **parameters})
    planned, done = (
        applied("volume_defined", "x", test, pool="nosuch", size=8) for test in (True, False)
    )
    # another state of the SLS may define the pool
    assert (planned["result"], done["result"], done["changes"]) == (None, False, {})
    assert "no storage pool nosuch yet" in planned["comment"]
    assert "no storage pool 'nosuch'" in done["comment"]
    hv.sh(f"qemu-img create -q -f raw {FOLDER}/a/found 8M")
    applied.quiet("volume_defined", "found", pool="labpool", size=8)
    assert f"{FOLDER}/a/top" in applied.fails("volume_absent", "base", pool="labpool")
    hv.define("", guest("labguest", file_disk(f"{FOLDER}/a/own")))
    hv.virsh("start", "labguest")
    applied.quiet("volume_defined", "own", **{**VOLUME, "size": 16, "permissions": {"owner": 0}})
    assert "labguest" in applied.fails("volume_defined", "own", **{**VOLUME, "size": 32})
    assert "labguest" in applied.fails("volume_absent", "own", pool="labpool")
    hv.virsh("destroy", "labguest")
    applied.changes("volume_absent", "own", pool="labpool", force=True)
    applied.quiet("volume_absent", "own", pool="nosuch")


def test_an_image_is_fetched_once_in_each_version(applied, hv):
    """A server of the host itself: what is at the address changes."""
    hv.sh("mkdir -p /srv/www; cd /srv/www; qemu-img create -q -f qcow2 lab.qcow2 1M;"
          " rm -rf /srv/salt-images/_base;"
          " systemd-run -q --unit labweb --working-directory /srv/www"
          " python3 -m http.server 8099 --bind 127.0.0.1")  # fmt: skip
    try:
        address = "http://127.0.0.1:8099/lab.qcow2"
        up = "bash -c 'echo > /dev/tcp/127.0.0.1/8099' && echo up"
        hv.lab.wait(lambda: hv.sh(up, check=False), "the web server")
        first = applied.changes("image_cached", address)
        assert first["changes"] == {"image": {"old": None, "new": address}}
        (name,) = hv.sh("ls /srv/salt-images/_base").split()
        hv.sh("cd /srv/www; qemu-img create -q -f qcow2 lab.qcow2 2M; touch -d tomorrow lab.qcow2")
        again = applied.changes("image_cached", address)
        assert again["changes"] == {"image": {"old": name, "new": address}}
        digest = hv.sh("sha256sum /srv/www/lab.qcow2").split()[0]
        applied.quiet("image_cached", address, image_hash=digest)
        applied.quiet("image_cached", "/srv/www/lab.qcow2")
        text = applied.fails("image_cached", address, image_hsah=digest)
        assert text == "virt.image_cached: unknown 'image_hsah', did you mean 'image_hash'?"
        assert "HTTP 404" in applied.fails("image_cached", "http://127.0.0.1:8099/nosuch.qcow2")
    finally:
        hv.sh("systemctl stop labweb; rm -rf /srv/www /srv/salt-images/_base")


# the hypervisor's SLS of Salt's tutorial, as Salt's compiler has it
TUTORIAL = {
    "libvirt": {
        "pkg": ["installed"],
        "file": ["managed", {"name": "/root/sysconfig-libvirtd"},
                 {"contents": 'LIBVIRTD_ARGS="--listen"'}, {"require": [{"pkg": "libvirt"}]}],
        "virt": ["keys", {"require": [{"pkg": "libvirt"}]}],
        "service": ["running", {"name": "libvirtd"}, {"watch": [{"file": "libvirt"}]}],
    },
    "eth0": {"network": ["managed", {"type": "eth"}, {"bridge": "br0"}]},
    "br0": {"network": ["managed", {"type": "bridge"}, {"require": [{"network": "eth0"}]}]},
}  # fmt: skip


@pytest.mark.parametrize(("module", "found"), [("libvirt", False), ("virt", True)])
def test_salts_tutorial_but_for_one_requisite(applied, module, found):
    require = {"require": [{"pkg": "libvirt"}, {"network": "br0"}, {module: "libvirt"}]}
    high = {name: {k: [*v] for k, v in body.items()} for name, body in TUTORIAL.items()}
    high["libvirt"]["service"].append(require)
    for body in high.values():
        body.update(__sls__="tutorial", __env__="base")
    told = str(applied.high(high))
    refused = "does not exist for requisite" in told or "requisites were not found" in told
    assert refused is not found, told
