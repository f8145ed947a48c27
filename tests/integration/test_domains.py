"""Descriptions of domains and their lifecycle with a real QEMU; virsh confirms the results."""

import json
import re
import time

import pytest

from tests.integration.hypervisor import Hypervisor

pytestmark = pytest.mark.lab
MAC = "52:54:00:00:0d:01"
ON, OFF = "dom-on", "dom-off"


@pytest.fixture(scope="module")
def hv(lab):
    """A hypervisor with one running and one stopped domain, neither made by us."""
    found = Hypervisor(lab, lab.hosts[0])
    found.forget(ON, OFF, "dom-new", "dom-tmp")
    found.define(ON, MAC)
    found.define(OFF, "52:54:00:00:0d:02")
    yield found
    found.forget(ON, OFF, "dom-new", "dom-tmp")
    found.close()


@pytest.fixture
def running(hv):
    """The domain ON, running whatever the test before did."""
    if hv.state(ON) == "paused":
        hv.virsh("resume", ON)
    elif hv.state(ON) != "running":
        hv.virsh("start", ON)
    return hv


def test_lists_and_states(running):
    assert running.call("list_domains") == running.names("--all")
    assert running.call("list_active_vms") == running.names()
    assert running.call("list_inactive_vms") == running.names("--inactive")
    states = running.call("vm_state")
    assert (states[ON], states[OFF]) == ("running", "shutdown")
    assert running.call("vm_state", OFF) == {OFF: "shutdown"}


def test_full_info_and_vm_info(running):
    info = running.call("full_info")
    assert set(info["vm_info"]) == set(running.names("--all"))
    on, off = info["vm_info"][ON], info["vm_info"][OFF]
    assert (on["state"], on["cpu"], on["maxMem"]) == ("running", 1, 64 * 1024)
    assert (off["state"], off["cpu"], off["mem"]) == ("shutdown", 1, 48 * 1024)
    assert on["uuid"] == running.virsh("domuuid", ON).strip()
    port = 5900 + int(running.virsh("vncdisplay", ON).rsplit(":", 1)[1])
    assert on["graphics"]["port"] == str(port)
    for vm in (on, off):
        disk = vm["disks"]["vda"]
        assert (disk["virtual size"], disk["file format"]) == (64 * 1024**2, "qcow2")
        blocks = int(running.sh(f"stat -c %b {disk['file']}"))
        assert disk["disk size"] == blocks * 512
    nodeinfo = running.virsh("nodeinfo")
    assert info["node_info"]["cpus"] == int(re.search(r"CPU\(s\):\s+(\d+)", nodeinfo)[1])
    assert running.call("vm_info", ON)[ON]["disks"]["vda"]["cluster size"] == 65536


def test_getters(running):
    assert running.call("get_macs", ON) == [MAC]
    nic = running.call("get_nics", ON)[MAC]
    assert (nic["type"], nic["source"], nic["model"]) == ("bridge", {"bridge": "br0"}, "virtio")
    assert nic["target"] in running.virsh("domiflist", ON)
    graphics = running.call("get_graphics", ON)
    assert (graphics["type"], graphics["listen"]) == ("vnc", "127.0.0.1")
    assert running.call("get_loader", ON) == {"path": "None"}
    assert running.call("get_xml", ON).strip() == running.virsh("dumpxml", ON).strip()


def test_get_disks_shows_the_chain_and_image_snapshots(hv):
    hv.sh("qemu-img create -q -f qcow2 -b dom-off.qcow2 -F qcow2 /var/tmp/dom-off.top.qcow2")
    hv.sh("qemu-img snapshot -c first /var/tmp/dom-off.top.qcow2")
    hv.sh("sed s,dom-off.qcow2,dom-off.top.qcow2, /var/tmp/dom-off.xml > /var/tmp/dom-off.2.xml")
    hv.virsh("define", "/var/tmp/dom-off.2.xml")
    disk = hv.call("get_disks", OFF)["vda"]
    hv.virsh("define", "/var/tmp/dom-off.xml")
    assert disk["backing file"]["file"] == "/var/tmp/dom-off.qcow2"
    assert [snapshot["tag"] for snapshot in disk["snapshots"]] == ["first"]


VOLUME = (
    "<disk type='volume' device='disk'><source pool='dom-tmp' volume='v1'/>"
    "<target dev='vdb' bus='virtio'/></disk>"
)


def test_a_disk_on_a_stopped_pool_costs_only_itself(hv):
    hv.sh("mkdir -p /var/tmp/pool; virsh pool-create-as dom-tmp dir --target /var/tmp/pool")
    hv.virsh("vol-create-as", "dom-tmp", "v1", "8M")
    hv.sh(f'echo "{VOLUME}" > /var/tmp/vol.xml')
    hv.virsh("attach-device", "--config", OFF, "/var/tmp/vol.xml")
    try:
        assert hv.call("vm_info")[OFF]["disks"]["vdb"]["virtual size"] == 8 * 1024**2
        hv.virsh("pool-destroy", "dom-tmp")
        info = hv.call("vm_info")[OFF]
        assert "dom-tmp" in info["disks"]["vdb"]["error"]
        assert info["disks"]["vda"]["virtual size"] == 64 * 1024**2
        assert hv.call("vm_info", OFF)[OFF]["disks"]["vdb"]["error"]
    finally:
        hv.virsh("define", "/var/tmp/dom-off.xml")
        hv.sh("rm -rf /var/tmp/pool /var/tmp/vol.xml")


@pytest.mark.parametrize(
    ("function", "before", "after"),
    [
        ("pause", "virsh resume {0}; true", "paused"),
        ("resume", "virsh suspend {0}", "running"),
        ("stop", "virsh start {0}; true", "shut off"),
        ("start", "virsh destroy {0}", "running"),
    ],
)
def test_lifecycle_ends_in_the_state_it_promises(running, function, before, after):
    running.sh(before.format(ON))
    assert running.call(function, ON) is True
    assert running.state(ON) == after


class Events:
    """What QEMU reports of ON while a block runs; begins to listen before it."""

    def __init__(self, hv, event):
        self.hv = hv
        self.event = event
        self.file = f"/var/tmp/{ON}.event"
        watch = f"timeout 600 virsh qemu-monitor-event {ON} --event {event} > {self.file}"
        hv.sh(f": > {self.file}; ({watch}) >/dev/null 2>&1 &")

    def _came(self, timeout_s=2):
        """Whether the event came by now or comes within the time."""
        end = time.monotonic() + timeout_s
        while self.event not in self.hv.sh(f"cat {self.file}"):
            if time.monotonic() > end:
                return False
            time.sleep(0.25)
        return True

    def come_of(self, function):
        """It is called until the event comes: nobody knows when libvirt begins to listen, nor when
        the BIOS reads the keyboard, which is once it has given up looking for a system."""

        def called():
            assert self.hv.call(function, ON) is True
            return self._came()

        self.hv.lab.wait(called, f"{self.event} of {function}")


@pytest.mark.parametrize(
    ("function", "event"),
    [
        ("reset", "RESET"),
        ("shutdown", "POWERDOWN"),
        ("reboot", "POWERDOWN"),
        ("ctrl_alt_del", "RESET"),
    ],
)
def test_what_is_sent_to_the_guest_arrives_in_qemu(running, function, event):
    Events(running, event).come_of(function)


@pytest.mark.parametrize(
    ("function", "name", "words"),
    [
        ("start", ON, "cannot start dom-on: .*already running"),
        ("resume", OFF, "cannot resume dom-off: "),
        ("stop", OFF, "cannot stop dom-off: .*not running"),
        ("start", "nobody", "no guest 'nobody' on "),
        ("undefine", ON, "cannot undefine dom-on: "),
    ],
)
def test_a_refusal_is_one_line_with_libvirts_words(running, function, name, words):
    assert re.fullmatch(f"ERROR: {words}.*", running.call(function, name))


def test_a_start_that_fails_says_so(hv):
    hv.sh("mv /var/tmp/dom-off.qcow2 /var/tmp/dom-off.away")
    try:
        answer = hv.call("start", OFF)
        assert answer.startswith("ERROR: cannot start dom-off: ")
        assert "No such file" in answer
        assert hv.state(OFF) == "shut off"
    finally:
        hv.sh("mv /var/tmp/dom-off.away /var/tmp/dom-off.qcow2")


def test_autostart(hv):
    assert hv.call("set_autostart", OFF, "on") is True
    assert "Autostart:      enable" in hv.virsh("dominfo", OFF)
    assert hv.call("set_autostart", OFF, "off") is True
    assert "Autostart:      disable" in hv.virsh("dominfo", OFF)


def test_memory_and_vcpus_of_a_stopped_guest(hv):
    assert hv.call("setmem", OFF, 96) is True
    assert hv.call("setvcpus", OFF, 1) is True
    tree = hv.xml(OFF)
    assert (tree.findtext("memory"), tree.findtext("currentMemory")) == ("98304", "98304")
    assert tree.findtext("vcpu") == "1"


def test_memory_and_vcpus_of_a_running_guest(running):
    assert running.call("setvcpus", ON, 2) is True
    assert re.search(r"current\s+live\s+2", running.virsh("vcpucount", ON))
    assert "maximum of 65536, less than 131072" in running.call("setmem", ON, 128)
    assert running.call("setmem", ON, 128, config=True) is True
    assert running.xml(ON, "--inactive").findtext("currentMemory") == "131072"
    assert running.xml(ON).findtext("memory") == "65536"


def test_counters(running):
    used = running.call("vm_cputime", ON)[ON]
    assert used["cputime"] > 0
    assert 0 <= used["cputime_percent"] <= 100
    assert running.call("vm_cputime", OFF)[OFF] == {"cputime": 0, "cputime_percent": 0}
    assert OFF in running.call("vm_netstats")
    assert set(running.call("vm_diskstats")) == set(running.names())

    def counted(word, *command):
        return int(re.search(rf"{word} (\d+)", running.virsh(*command))[1])

    def received():  # nobody is at that address: the bridge floods ARP
        running.sh("ping -c 2 -W 1 10.77.0.249 || true")
        return counted("rx_bytes", "domifstat", ON, MAC)

    # its BIOS may be at its begin
    reads = running.lab.wait(lambda: counted("rd_req", "domblkstat", ON, "vda"), "a read")
    assert running.call("vm_diskstats", ON)[ON]["rd_req"] >= reads
    got = running.lab.wait(received, "a packet")
    assert running.call("vm_netstats", ON)[ON]["rx_bytes"] >= got


def test_definitions_and_transient_domains(hv):
    change = "s,dom-off,dom-new,g; s,0d:02,0d:03,; /uuid/d"
    text = " ".join(hv.sh(f'sed "{change}" /var/tmp/dom-off.xml').split())
    assert hv.call("define_xml_str", text) is True
    assert hv.state("dom-new") == "shut off"
    assert hv.call("undefine", "dom-new") is True
    assert "dom-new" not in hv.names("--all")
    hv.sh(f'cat > /var/tmp/dom-new.xml <<"E"\n{text}\nE')
    assert hv.call("define_xml_path", "/var/tmp/dom-new.xml") is True
    assert hv.state("dom-new") == "shut off"
    hv.virsh("undefine", "dom-new")
    hv.sh("qemu-img create -q -f qcow2 /var/tmp/dom-new.qcow2 8M")
    for function, source in (("create_xml_str", text), ("create_xml_path", "/var/tmp/dom-new.xml")):
        assert hv.call(function, source) is True
        assert "Persistent:     no" in hv.virsh("dominfo", "dom-new")
        hv.virsh("destroy", "dom-new")


def test_console_leads_to_the_display(running):
    found = running.call("console", ON)
    [screen] = found["graphics"]
    port = screen["port"]
    assert screen["tunnel"] == f"ssh -N -L {port}:127.0.0.1:{port} root@{running.name}"
    look = f"import socket; print(socket.create_connection(('127.0.0.1', {port})).recv(3))"
    assert "RFB" in running.sh(f'python3 -c "{look}"')
    [serial] = found["serials"]
    assert f"console {ON}" in serial["connect"]
    assert running.sh(f"test -c {serial['path']} && echo there").strip() == "there"


def test_guest_addresses_from_the_arp_table(running):
    running.sh(f"ip neigh replace 10.77.0.250 lladdr {MAC} dev br0 nud reachable")
    try:
        facts = running.call("guest_addresses", ON)[ON][MAC]
        assert facts["source"] == "arp"
        assert facts["addresses"][0]["address"] == "10.77.0.250"
        assert ON in running.call("guest_addresses")
    finally:
        running.sh("ip neigh del 10.77.0.250 dev br0")


def test_screenshot_is_a_picture_of_the_screen(running):
    path = running.call("screenshot", ON)
    assert path.endswith(".png")
    head = running.sh(f"head -c 24 {path} | od -An -tx1").split()
    assert head[:8] == ["89", "50", "4e", "47", "0d", "0a", "1a", "0a"]
    assert int("".join(head[16:20]), 16) >= 640
    running.sh(f"rm {path}")


def test_a_password_of_the_display_is_never_shown(hv):
    secret = "s/type='vnc'/type='vnc' passwd='hush'/"
    hv.sh(f'sed "{secret}" /var/tmp/dom-off.xml > /var/tmp/dom-off.3.xml')
    hv.virsh("define", "/var/tmp/dom-off.3.xml")
    assert "hush" in hv.virsh("dumpxml", "--security-info", OFF)
    everything = [hv.call(f, OFF) for f in ("get_graphics", "get_xml", "vm_info", "console")]
    hv.virsh("define", "/var/tmp/dom-off.xml")
    assert "hush" not in json.dumps(everything)
