"""The description of the hypervisor, compared with virsh and the machine."""

import json
from xml.etree import ElementTree

import pytest

from tests.integration.hv import guest

pytestmark = pytest.mark.lab


@pytest.fixture
def running(hv):
    hv.define("", guest("weight", memory_mib=128))
    hv.virsh("start", "weight")
    yield
    hv.virsh("destroy", "weight")
    hv.virsh("undefine", "weight")


def test_node_info(hv):
    told, found = hv.facts("nodeinfo"), hv.call("virt.node_info")
    assert found["cpumodel"] == told["CPU model"]
    assert found["cpus"] == int(told["CPU(s)"])
    assert found["sockets"] == int(told["CPU socket(s)"])
    assert found["cpucores"] == int(told["Core(s) per socket"])
    assert found["cputhreads"] == int(told["Thread(s) per core"])
    assert found["numanodes"] == int(told["NUMA cell(s)"])
    assert found["phymemory"] == int(told["Memory size"].split()[0]) // 1024


def test_a_running_guest_takes_memory_and_cpus(hv, running):
    memory, cpus = hv.call("virt.freemem"), hv.call("virt.freecpu")
    hv.virsh("destroy", "weight")
    assert hv.call("virt.freemem") == memory + 128
    assert hv.call("virt.freecpu") == cpus + 1
    hv.virsh("start", "weight")
    assert hv.call("virt.freemem") == memory


def test_capabilities(hv):
    told = ElementTree.fromstring(hv.virsh("capabilities"))
    found = hv.call("virt.capabilities")
    assert found["host"]["uuid"] == told.findtext("host/uuid")
    assert found["host"]["cpu"]["model"] == told.findtext("host/cpu/model")
    assert found["host"]["migration"]["live"] is True
    assert [guest["arch"]["name"] for guest in found["guests"]] == [
        arch.get("name") for arch in told.findall("guest/arch")
    ]
    (x86,) = [g["arch"] for g in found["guests"] if g["arch"]["name"] == "x86_64"]
    pc = told.find("guest/arch[@name='x86_64']/machine[.='pc']").get("canonical")
    assert "pc" in x86["machines"][pc]["alternate_names"]
    assert "qemu" in x86["domains"]


def test_domain_capabilities(hv):
    wanted = {"arch": "x86_64", "machine": "q35", "domain": "qemu"}
    told = ElementTree.fromstring(
        hv.virsh("domcapabilities", "--arch", "x86_64", "--machine", "q35", "--virttype", "qemu")
    )
    found = hv.call("virt.domain_capabilities", **wanted)
    for key, path in (("emulator", "path"), ("machine", "machine"), ("domain", "domain")):
        assert found[key] == told.findtext(path)
    assert found["max_vcpus"] == int(told.find("vcpu").get("max"))
    assert found["devices"]["disk"]["bus"] == [
        value.text for value in told.findall("devices/disk/enum[@name='bus']/value")
    ]


def test_all_capabilities(hv):
    told = ElementTree.fromstring(hv.virsh("capabilities"))
    found = hv.call("virt.all_capabilities")
    kinds = {
        (arch.get("name"), kind.get("type"))
        for arch in told.findall("guest/arch")
        for kind in arch.findall("domain")
    }
    assert {(caps["arch"], caps["domain"]) for caps in found["domains"]} == kinds
    assert not [caps for caps in found["domains"] if "error" in caps]
    assert found["host"] == hv.call("virt.capabilities")


def test_cpu_baseline(hv):
    hv.sh("virsh capabilities > /root/caps.xml")
    told = ElementTree.fromstring(hv.virsh("cpu-baseline", "/root/caps.xml"))
    found = ElementTree.fromstring(hv.call("virt.cpu_baseline"))
    assert found.findtext("model") == told.findtext("model")
    short = hv.call("virt.cpu_baseline", out="salt")
    assert short["model"] == told.findtext("model")
    assert short["features"] == [feature.get("name") for feature in told.findall("feature")]
    full = hv.call("virt.cpu_baseline", out="salt", full=True)
    assert set(full["features"]) > set(short["features"])
    kept = hv.call("virt.cpu_baseline", out="salt", migratable=True)
    assert set(kept["features"]) <= set(short["features"])


def test_node_devices(hv):
    found = {device["name"]: device for device in hv.call("virt.node_devices")}
    for name in hv.table("nodedev-list", "--cap", "pci"):
        told = ElementTree.fromstring(hv.virsh("nodedev-dumpxml", name)).find("capability")
        if told.find("capability[@type='pci-bridge']") is not None:
            assert name not in found
            continue
        numbers = [int(told.findtext(tag)) for tag in ("domain", "bus", "slot", "function")]
        assert found[name]["address"] == "{:04x}:{:02x}:{:02x}.{:x}".format(*numbers)
        assert found[name]["vendor_id"] == told.find("vendor").get("id")
    assert "lo" not in found


def test_it_is_a_hypervisor(hv):
    kvm = hv.sh("test -e /dev/kvm && echo yes", check=False).strip() == "yes"
    assert hv.call("virt.is_hyper") is True
    assert hv.call("virt.get_hypervisor") == ("kvm" if kvm else "qemu")
    assert hv.call("virt.virt_type") == hv.call("grains.get", "virtual")
    grain = hv.call("grains.get", "virt_host")
    assert (grain["hypervisor"], grain["daemons"], grain["kvm"]) == (True, ["libvirtd"], kvm)


def test_the_minion_holds_the_library_for_its_jobs(hv):
    """The grain had it imported: the forks that run the jobs begin sooner."""
    maps = hv.sh("cat $(pgrep -f salt-minion | sed 's|.*|/proc/&/maps|')", check=False)
    assert "libvirtmod" in maps


SOCKETS = "libvirtd.socket libvirtd-ro.socket libvirtd-admin.socket"


def test_it_is_one_while_the_daemon_sleeps_and_none_without_its_socket(hv):
    """libvirtd behind a socket is no process: Salt took such a host for no hypervisor."""
    try:
        hv.sh("systemctl stop libvirtd.service")
        assert hv.sh("systemctl is-active libvirtd.service", check=False).strip() == "inactive"
        assert hv.call("virt.is_hyper") is True
        assert hv.call("virt.node_info")["cpus"] > 0  # and it wakes up
        hv.sh(f"systemctl stop {SOCKETS} libvirtd; rm -f /run/libvirt/libvirt-sock*")
        assert hv.call("virt.is_hyper") is False
        assert hv.call("virt.get_hypervisor") is None
        assert "cannot connect to" in hv.refuses("virt.node_info")
    finally:
        hv.sh(f"systemctl restart {SOCKETS} && systemctl start libvirtd")
    assert hv.call("virt.is_hyper") is True


def test_profiles(hv):
    """Those of the minion's configuration, in the shape that Salt's documents print."""
    assert hv.call("virt.get_profiles")["nic"]["default"][0]["source"] == "br0"
    conf = "/etc/salt/minion.d/profiles.conf"
    lines = ["virt:", "  disk:", "    two:", "    - system:", "        size: 1"]
    lines += ["    - data:", "        size: 2"]
    try:
        hv.sh(f"printf '%s\\n' {' '.join(repr(line) for line in lines)} > {conf}")
        found = json.loads(hv.sh("salt-call --out=json virt.get_profiles"))["local"]
    finally:
        hv.sh(f"rm -f {conf}")
    assert sorted(found["disk"]) == ["default", "two"]
    assert [disk["size"] for disk in found["disk"]["two"]] == [1, 2]


def test_a_wrong_uri_and_a_typo(hv):
    assert "cannot connect to" in hv.refuses("virt.node_info", connection="qemu:///nowhere")
    assert "unknown argument: conection" in hv.refuses("virt.freemem", conection="qemu:///system")


def test_a_dictionary_of_dictionaries(hv):
    assert hv.call("virt.nesthash", {"a": 1}) == {"a": 1}
    assert hv.call("virt.nesthash") == {}
