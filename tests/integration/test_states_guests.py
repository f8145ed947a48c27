"""States of guests with each parameter: exact, idempotent, harmless. The guests have nothing to
boot."""

import pytest

from tests.integration.hv import file_disk, guest

pytestmark = pytest.mark.lab

IMAGES = "/srv/salt-images"
BARE = {"cpu": 1, "mem": 64, "disks": [], "interfaces": []}
SYSTEM = {"name": "system", "size": 4}
DATA = {"name": "data", "size": 2, "format": "raw", "cache": "none"}
NIC = {"name": "eth0", "source": "br0", "mac": "52:54:00:00:5a:01"}
KERNEL = "/boot/vmlinuz-lab"
# QEMU, which is not root, reads it
ISO = "/var/lib/libvirt/images/lab.iso"
CELLS = {0: {"cpus": "0", "memory": "64m"}, 1: {"cpus": "1", "memory": "64m"}}
TUNING = {
    "vcpupin": {0: "0", 1: "0-1"}, "emulatorpin": "0-1", "shares": 2048, "period": 100000,
    "quota": -1, "vcpusched": [{"scheduler": "fifo", "priority": 1, "vcpus": "0"}],
}  # fmt: skip
# parameters, one more after the other; a path that the changes must have
DEFINED = [
    ({"cpu": 2}, "vcpu:maximum"),
    ({"cpu": {"maximum": 2, "current": 1}}, "vcpu:current"),
    ({"cpu": {"maximum": 2, "mode": "custom", "model": "qemu64",
     "features": {"lahf_lm": "optional"},
              "topology": {"sockets": 1, "cores": 1, "threads": 2}}}, "cpu:model"),
    ({"cpu": {"maximum": 2, "tuning": TUNING, "iothreads": 2}}, "iothreads"),
    ({"cpu": {"vcpus": {0: {"enabled": True, "hotpluggable": False}, 1: {"enabled": False}}}},
     "vcpus"),
    ({"mem": "128MiB"}, "memory_kib"),
    ({"cpu": {"maximum": 2, "numa": CELLS}}, "cpu:cells"),
    ({"mem": {"boot": 128, "current": 96}}, "current_memory_kib"),
    ({"mem": {"boot": 128, "max": "1g", "slots": 4, "hard_limit": "2g", "soft_limit": "1g"}},
     "memory_slots"),
    ({"mem": {"boot": 128, "nosharepages": True, "locked": True, "source": "memfd",
      "access": "shared"}},
     "memory_backing"),
    ({"disks": [SYSTEM]}, "disks:vda"),
    ({"disks": [SYSTEM, DATA]}, "disks:vdb"),
    ({"disks": [{**SYSTEM, "size": 8}, DATA]}, "disks:vda:size_bytes"),
    ({"disks": [{**SYSTEM, "size": 8, "cache": "writeback"}, {**DATA, "serial": "d1"}]},
     "disks:vdb:serial"),
    ({"disks": [SYSTEM, DATA, {"name": "cd", "device": "cdrom"}]}, "disks:hda"),
    ({"disks": [SYSTEM, DATA, {"name": "cd", "device": "cdrom", "source_file": ISO}]},
     "disks:hda"),
    ({"disks": [SYSTEM, DATA, {"name": "s", "size": 1, "model": "scsi"}]}, "disks:sda"),
    ({"interfaces": [NIC]}, "nics:"),
    ({"interfaces": [{**NIC, "model": "e1000"}]}, "model"),
    ({"interfaces": [NIC, {"name": "eth1", "type": "user"}]}, "nics:"),
    ({"interfaces": [{**NIC, "type": "user", "source": None}]}, "type"),
    ({"graphics": {"type": "vnc"}}, "graphics:vnc"),
    ({"graphics": {"type": "vnc", "password": "s3cret", "keymap": "de"}}, "password"),
    ({"graphics": {"type": "spice", "port": 5999}}, "graphics:spice"),
    ({"graphics": {"type": "none"}}, "graphics:spice"),
    ({"boot": {"kernel": KERNEL, "cmdline": "quiet"}}, "os:kernel"),
    ({"boot": {"kernel": None, "cmdline": None}}, "os:kernel"),
    ({"boot": {"efi": True}}, "os"),
    ({"boot_dev": "network hd"}, "os:boots"),
    ({"numatune": {"memory": {"mode": "strict", "nodeset": 0}}}, "numatune"),
    ({"hypervisor_features": {"kvm-hint-dedicated": True}}, "features"),
    ({"kvm_hidden": True}, "features"),
    ({"clock": {"utc": False}}, "clock"),
    ({"clock": {"timezone": "CET", "timers": {"rtc": {"tickpolicy": "catchup"}}}}, "clock"),
    ({"serials": [{"type": "tcp", "port": 2345, "protocol": "telnet"}]}, "serials"),
    ({"consoles": [{"type": "tcp", "port": 2345}, {"type": "pty", "target_type": "virtio"}]},
     "consoles"),
    ({"stop_on_reboot": True}, "on_reboot"),
    ({"stop_on_reboot": False}, "on_reboot"),
    ({"on_reboot": "destroy"}, "on_reboot"),
    ({"on_crash": "preserve"}, "on_crash"),
    ({"on_reboot": "restart", "on_poweroff": "restart"}, "on_poweroff"),
    ({"host_devices": ["pci_0000_00_04_0"]}, "host_devices"),
    ({"host_devices": [{"type": "pci", "bus": "1", "slot": "2", "function": "0"}]}, "host_devices"),
    ({"host_devices": []}, "host_devices"),
    ({"autostart": True}, "autostart"),
    ({"autostart": False}, "autostart"),
    ({"tpm": True}, "tpms"),
    ({"tpm": {"version": "2.0", "model": "tpm-tis"}}, "tpms"),
    ({"tpm": False}, "tpms"),
    ({"rng": {"rate": 1024, "period": 1000}}, "rngs"),
    ({"watchdog": {"model": "i6300esb", "action": "reset"}}, "watchdogs"),
    ({"memballoon": {"model": "virtio", "period": 7}}, "memballoon"),
    ({"guest_agent": False}, "channels"),
    ({"title": "a guest of the lab", "description": "for tests"}, "title"),
    ({"metadata": {"owner": "me", "ticket": "1"}}, "metadata:owner"),
    ({"metadata": {"owner": "you", "ticket": None}}, "metadata:ticket"),
]  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def files(hv):
    hv.sh(f"cp $(ls /boot/vmlinuz-*-amd64 | head -1) {KERNEL}; truncate -s 1M {ISO}")
    yield
    hv.sh(f"rm -f {KERNEL} {ISO}")


@pytest.fixture(autouse=True)
def clean(hv):
    yield
    for name in hv.table("list", "--all", "--name"):
        if name.startswith("lab"):
            hv.sh(f"virsh -q destroy {name}", check=False)
            hv.virsh("undefine", "--nvram", "--snapshots-metadata", "--managed-save", name)
    hv.sh(f"rm -rf {IMAGES}/lab* /var/tmp/lab*")


def definition(answer):
    """What a state's answer shows of the guest's settings."""
    (shown,) = answer["changes"].values()
    return shown["definition"]


def test_a_guest_in_each_parameter(applied, hv):
    made = applied.changes("defined", "lab1", **BARE)
    assert made["changes"] == {"lab1": {"definition": True}}
    assert hv.virsh("domstate", "lab1").strip() == "shut off"
    given = dict(BARE)
    for row, path in DEFINED:
        given.update(row)
        done = applied.changes("defined", "lab1", **given)
        assert any(path in key for key in definition(done)), f"{row}: {done}"
        assert "s3cret" not in str(done)
    # what only a new guest takes is no difference of one that is there
    only_new = {"vm_type": "kvm", "os_type": "hvm", "arch": "x86_64", "machine": "pc",
                "seed": False, "install": False, "image": "/nowhere", "image_hash": "sha256=1",
                "config": {"log_level": "info"}, "grains": {"roles": ["web"]},
                "pub_key": "one", "priv_key": "two", "startup_states": "highstate"}  # fmt: skip
    applied.quiet("defined", "lab1", **given, **only_new)
    # profiles, and all of it at once, for a new guest
    applied.changes("defined", "lab3", cpu=1, mem=64, disk_profile="default", nic_profile="default")
    applied.quiet("defined", "lab3", cpu=1, mem=64)
    assert hv.virsh("domiflist", "lab3").split()[2] == "br0"
    applied.changes("defined", "lab2", **given, machine="pc", vm_type="qemu")


def process(hv, name):
    """What tells one run of a guest from the next."""
    return hv.sh(f"cat /run/libvirt/qemu/{name}.pid; virsh domid {name}")


def test_a_running_guest_gets_what_it_can_and_is_never_restarted(applied, hv):
    given = {"cpu": {"maximum": 2, "current": 1}, "mem": {"boot": 128, "current": 96}}
    disks = [SYSTEM, {"name": "cd", "device": "cdrom"}]
    made = applied.changes("running", "lab1", **given, disks=disks)
    assert made["changes"]["lab1"] == {
        "definition": True,
        "disks": {"vda": f"{IMAGES}/lab1_system.qcow2"},
        "started": True,
    }
    run = process(hv, "lab1")
    # what is changed at once
    disks = [
        {**SYSTEM, "size": 6},
        DATA,
        {**disks[1], "source_file": ISO},
    ]
    nics = [{"name": "eth0", "source": "br0"}, {"name": "eth1", "type": "user"}]
    now = {"cpu": {"current": 2}, "mem": {"current": 128}, "title": "one", "metadata": {"a": "b"}}
    for row in [{word: value} for word, value in now.items()] + [
        {"disks": disks},
        {"interfaces": nics},
    ]:
        given.update(row)
        done = applied.changes("running", "lab1", **given)
        assert all(change["live"] for change in definition(done).values()), done
        assert done["comment"] == "lab1 was changed"
    running = hv.virsh("dumpxml", "lab1")
    for word in ("lab1_data.raw", "lab.iso", ">131072</currentMemory>", "<title>one"):
        assert word in running
    assert "virtual size: 6 MiB" in hv.sh(f"qemu-img info -U {IMAGES}/lab1_system.qcow2")
    # what waits for the next start
    later = {"boot_dev": "network", "clock": {"utc": False}, "on_crash": "preserve"}
    done = applied.changes("running", "lab1", **given, **later)
    assert "will change at the next start: clock" in done["comment"]
    given.update(later)
    done = applied.changes("defined", "lab1", **given, live=False, description="later")
    assert not definition(done)["description"]["live"]
    assert process(hv, "lab1") == run
    applied.quiet("defined", "lab1", update=False, mem=512)
    applied.quiet("running", "lab1")


def test_what_libvirt_fills_in_at_the_start_is_no_difference(applied, hv):
    tcp, cd = {"type": "tcp", "port": 2346}, {"name": "cd", "device": "cdrom"}
    given = {
        "cpu": {"maximum": 2, "topology": {"sockets": 1, "cores": 2, "threads": 1}}, "mem": 128,
        "machine": "q35", "boot": {"efi": True}, "tpm": True, "rng": True, "watchdog": "i6300esb",
        "graphics": {"type": "spice", "password": "s3cret"}, "clock": {"timezone": "CET"},
        "disks": [SYSTEM, {"name": "s", "size": 1, "model": "scsi"}, cd], "autostart": True,
        "interfaces": [{"name": "eth0", "source": "br0"}, {"name": "eth1", "type": "user"}],
        "serials": [tcp], "consoles": [tcp], "metadata": {"owner": "me"}, "on_crash": "preserve",
        "hypervisor_features": {"kvm-hint-dedicated": True}, "guest_agent": True,
        "memballoon": {"model": "virtio", "period": 7},
    }  # fmt: skip
    applied.changes("running", "lab1", **given)
    run = process(hv, "lab1")
    applied.quiet("defined", "lab1", **given)
    applied.changes("powered_off", "lab1")
    applied.quiet("defined", "lab1", **given)
    assert applied.changes("running", "lab1", **given)["changes"] == {"lab1": {"started": True}}
    assert process(hv, "lab1") != run


def test_no_disk_goes_by_omission(applied, hv):
    hv.sh(f"truncate -s 1M /var/tmp/lab-block; cp {ISO} /var/tmp/lab-given.raw")
    loop = hv.sh("losetup -f --show /var/tmp/lab-block").strip()
    try:
        given = {"name": "given", "source_file": "/var/tmp/lab-given.raw", "format": "raw"}
        disks = [SYSTEM, DATA, given, {"name": "lv", "source_file": loop}]
        disks.append({"name": "cd", "device": "cdrom", "source_file": ISO})
        applied.changes("running", "lab1", cpu=1, mem=64, disks=disks, interfaces=[])
        for fewer in (disks[:1], disks[1:3], [], disks[3:]):
            applied.quiet("running", "lab1", disks=fewer)
        other = {
            "name": "other",
            "target": "vdc",
            "source_file": ISO,
            "format": "raw",
        }
        text = applied.fails("running", "lab1", disks=[SYSTEM, other])
        assert text.startswith("/var/tmp/lab-given.raw would be detached from vdc: detach=True")
        more = applied.changes("running", "lab1", disks=[{"name": "more", "size": 1}])
        assert list(definition(more)) == ["disks:vde"]
        applied.changes("powered_off", "lab1")
        gone = applied.changes("defined", "lab1", disks=disks[:1] + disks[3:], detach=True)
        assert definition(gone)["disks:vdc"]["new"] is None
        assert {"lab1_data.raw", "lab1_more.qcow2"} <= set(hv.sh(f"ls {IMAGES}").split())
    finally:
        hv.sh(f"virsh destroy lab1; losetup -d {loop}", check=False)


def test_on_and_off_from_every_state(applied, hv):
    for name in ("lab1", "lab2"):
        applied.changes("defined", name, **BARE)
    applied.quiet("stopped", "lab*")
    applied.quiet("powered_off", "lab1", connection="qemu:///system", username=None)
    assert applied.changes("running", "lab1")["changes"] == {"lab1": {"started": True}}
    hv.virsh("suspend", "lab1")
    assert "is paused" in failing(applied, "stopped", "lab1", timeout=2)
    assert applied.changes("running", "lab1")["changes"] == {"lab1": {"resumed": True}}
    text = failing(applied, "stopped", "lab1", timeout=1)
    assert text.startswith("lab1: no response to ACPI shutdown within 1 s")
    assert hv.virsh("domstate", "lab1").strip() == "running"
    applied.changes("running", "lab2")
    done = applied.changes("stopped", "lab[12]", timeout=1, force=True)
    assert done["changes"] == {
        "stopped": [{"domain": n, "shutdown": True} for n in ("lab1", "lab2")]
    }
    for state in ("powered_off", "unpowered"):
        applied.changes("running", "lab1")
        done = applied.changes(state, "lab?")
        assert done["changes"] == {"unpowered": [{"domain": "lab1", "stop": True}]}
    assert applied.fails("stopped", "nope*") == "no guest of this host matches nope*"
    # one that has no definition
    hv.sh(f"cat > /root/x.xml <<'X'\n{guest('lab3')}\nX\nvirsh -q create /root/x.xml")
    applied.quiet("running", "lab3")
    assert "lab3 is transient" in applied.fails("running", "lab3", mem=96)
    hv.virsh("destroy", "lab3")


def failing(applied, *state, **parameters):
    """The comment of a state that can fail only when it is done; a test promises the change."""
    assert applied(*state, True, **parameters)["result"] is None
    answer = applied(*state, False, **parameters)
    assert (answer["result"], answer["changes"]) == (False, {}), answer
    return answer["comment"]


def test_a_reboot_is_asked_for_at_each_apply(applied, hv):
    applied.changes("running", "lab1", **BARE)
    applied.changes("defined", "lab2", **BARE)
    run = process(hv, "lab1")
    told = applied("rebooted", "lab1", True)
    assert told["result"] is None
    for _ in range(2):
        done = applied("rebooted", "lab1")
        assert (done["result"], done["changes"]) == (True, told["changes"])
    assert process(hv, "lab1") == run
    assert "domain is not running" in applied.fails("rebooted", "lab2")
    mixed = applied("rebooted", "lab*")
    assert (mixed["result"], mixed["changes"]) == (False, done["changes"])


def snapshots(hv, name):
    return hv.virsh("snapshot-list", name, "--name").split()


def test_snapshots(applied, hv):
    for name in ("lab1", "lab2"):
        applied.changes("running", name, cpu=1, mem=64, disks=[SYSTEM], interfaces=[])
    done = applied.changes("snapshot", "lab*", snapshot="first", description="the first")
    assert done["changes"] == {
        "saved": [{"domain": n, "snapshot": "first"} for n in ("lab1", "lab2")]
    }
    applied.changes("saved", "lab1", suffix="b", snapshot="second")
    assert snapshots(hv, "lab1") == ["first", "second-b"]
    assert snapshots(hv, "lab2") == ["first"]
    # without a name another one at each apply
    before = applied.written()
    told = applied("snapshot", "lab2", True, suffix="periodic")
    assert told["changes"] == {"saved": [{"domain": "lab2", "snapshot": "lab2-DATE-TIME-periodic"}]}
    assert (told["result"], applied.written()) == (None, before)
    (made,) = applied("snapshot", "lab2", suffix="periodic")["changes"]["saved"]
    assert made["snapshot"] in snapshots(hv, "lab2")
    assert made["snapshot"].startswith("lab2-20")
    assert made["snapshot"].endswith("-periodic")
    # back
    told = applied("reverted", "lab*", True, snapshot="first", cleanup=True)
    assert told["result"] is None
    assert snapshots(hv, "lab1") == ["first", "second-b"]
    done = applied("reverted", "lab*", snapshot="first", cleanup=True)
    assert (done["result"], done["changes"].keys()) == (True, told["changes"].keys())
    planned, reverted = told["changes"]["reverted"], done["changes"]["reverted"]
    for (note,) in [each.pop("notes") for each in reverted]:
        assert "the clock of lab" in note  # no agent of these guests answers
    assert reverted == planned
    assert reverted[0] == {"domain": "lab1", "current": "first", "deleted": ["second-b"]}
    assert snapshots(hv, "lab1") == snapshots(hv, "lab2") == ["first"]
    assert "no snapshot before the current one" in applied.fails("reverted", "lab1")
    assert "has no snapshot nope; it has first" in applied.fails(
        "reverted", "lab1", snapshot="nope"
    )
    # disks that hold no snapshot
    applied.changes("running", "lab3", cpu=1, mem=64, disks=[DATA], interfaces=[])
    (saved,) = applied("snapshot", "lab3", snapshot="in it")["changes"]["saved"]
    assert saved["snapshot"] == "in it"
    assert any(note.startswith("the snapshot is external") for note in saved["notes"]), saved
    applied.changes("snapshot", "lab3", snapshot="beside", disk_only=True)
    refused = applied.fails("snapshot", "lab3", snapshot="q", quiesce=True, disk_only=False)
    assert "quiesce is for" in refused


def test_absent_takes_what_was_made_and_no_more(applied, hv):
    hv.sh(f"cp {ISO} /var/tmp/lab-given.raw; cp {ISO} /var/tmp/lab-foreign.raw")
    given = {"name": "given", "source_file": "/var/tmp/lab-given.raw", "format": "raw"}
    applied.changes("running", "lab1", cpu=1, mem=64, disks=[SYSTEM, given], interfaces=[])
    applied.changes("snapshot", "lab1", snapshot="beside", disk_only=True)
    hv.define("", guest("lab2", file_disk("/var/tmp/lab-foreign.raw", kind="raw")))
    done = applied.changes("absent", "lab1")
    system = f"{IMAGES}/lab1_system"
    assert done["changes"] == {
        "lab1": {"undefined": True, "deleted": [f"{system}.beside", f"{system}.qcow2"]}
    }
    assert "kept: /var/tmp/lab-given.beside (not created for this guest)" in done["comment"]
    assert applied.changes("absent", "lab2")["changes"] == {"lab2": {"undefined": True}}
    applied.changes("running", "lab3", cpu=1, mem=64, disks=[SYSTEM], interfaces=[])
    assert applied.changes("absent", "lab3", disks=False)["changes"] == {
        "lab3": {"undefined": True}
    }
    assert not [name for name in hv.table("list", "--all", "--name") if name.startswith("lab")]
    left = hv.sh(f"ls -d {IMAGES}/lab* /var/tmp/lab-given* /var/tmp/lab-foreign*").split()
    assert {
        "/var/tmp/lab-given.raw",
        "/var/tmp/lab-foreign.raw",
        f"{IMAGES}/lab3_system.qcow2",
    } <= set(left)
    assert not [path for path in left if "lab1_system" in path]
    applied.quiet("absent", "lab*")


def test_what_is_wrong_is_said_and_changes_nothing(applied, hv):
    applied.changes("defined", "lab1", **BARE)
    text = applied.fails("defined", "lab1", grafics={"type": "vnc"})
    assert text == "virt.defined: unknown 'grafics', did you mean 'graphics'?"
    for state in ("stopped", "powered_off", "unpowered", "rebooted", "saved", "reverted", "absent"):
        assert "unknown 'conection', did you mean 'connection'?" in applied.fails(
            state, "lab1", conection="x"
        )
    assert "unknown 'suffx', did you mean 'suffix'?" in applied.fails("snapshot", "lab1", suffx="x")
    assert "did you mean 'target'?" in applied.fails("migrated", "lab1", target="hv2", targt="hv2")
    assert "unknown 'start'" in applied.fails("defined", "lab1", start=True)
    for row, text in [
        ({"cpu": {"maximun": 2}}, "cpu: unknown 'maximun', did you mean 'maximum'?"),
        ({"mem": "1TiB"}, "of memory requested"),
        ({"disk_profile": "nope"}, "disk profile: unknown 'nope'"),
        ({"interfaces": [{"name": "e", "source": "nobr"}]}, "no bridge nobr"),
        ({"disks": [{"name": "x"}]}, "disk x: size is missing"),
    ]:
        assert text in applied.fails("running", "lab1", **row)
        assert text in applied.fails("running", "lab9", **{**BARE, **row})
    assert "give cpu and mem to create it" in applied.fails("running", "lab9")
    assert "cannot be a guest's name" in applied.fails("running", "lab 9", **BARE)
    assert "cannot connect to test:///nowhere" in applied.fails(
        "running", "lab1", connection="test:///nowhere"
    )
    # libvirt's own words when it does not start, again and again
    hv.sh(f"mkdir -p {IMAGES}; truncate -s 1M {IMAGES}/lab-gone.raw")
    gone = {"name": "gone", "source_file": f"{IMAGES}/lab-gone.raw", "format": "raw"}
    applied.changes("defined", "lab1", disks=[gone])
    hv.sh(f"rm {IMAGES}/lab-gone.raw")
    for _ in range(2):
        assert "lab-gone.raw': No such file" in failing(applied, "running", "lab1")
    # a new guest that does not start is not made
    before = applied.written()
    nowhere = {"type": "vnc", "listen": {"type": "address", "address": "203.0.113.9"}}
    assert "203.0.113.9" in failing(applied, "running", "lab9", **BARE, graphics=nowhere)
    assert applied.written() == before


# as Salt's manual printed it, but for the MAC address: the printed one, 01:23:…, is a multicast
# address, which no interface can have
PRINTED = """
domain_name:
  virt.running:
    - cpu: 2
    - mem: 2048
    - disk_profile: prod
    - boot_dev: network hd
    - disks:
      - name: system
        size: 8192
        overlay_image: True
        pool: default
        image: /path/to/image.qcow2
      - name: data
        size: 16834
    - nic_profile: prod
    - interfaces:
      - name: eth0
        mac: {mac}
      - name: eth1
        type: network
        source: admin
    - graphics:
        type: spice
        listen:
            type: address
            address: 192.168.0.125
"""
PROFILES = {"disk": {"prod": [{"system": {"size": 4096}}]}, "nic": {"prod": [{"eth0": None}]}}
ADMIN = "<network><name>admin</name><ip address='10.9.0.1' netmask='255.255.255.0'/></network>"
AROUND = """
mkdir -p /path/to && ln -sf /var/lib/libvirt/images/debian.qcow2 /path/to/image.qcow2
ip address replace 192.168.0.125/32 dev lo
virsh -q pool-create-as default dir --target /srv/labdefault --build
virsh -q net-create /root/x.xml
"""
AWAY = """
virsh -q destroy domain_name; virsh -q undefine domain_name --nvram
virsh -q net-destroy admin; virsh -q pool-destroy default
ip address del 192.168.0.125/32 dev lo
rm -rf /path/to /srv/labdefault /srv/salt-images/domain_name_*
"""


def highstate(lab, host, mac, test=False):
    """What `state.apply` of the printed SLS answers on a host."""
    text = PRINTED.format(mac=mac)
    lab.exec("master", ["tee", "/srv/salt/printed.sls"], input=text)
    words = {"test": test, "pillar": {"virt": PROFILES}, "timeout": 300}
    (answer,) = lab.call(host, "state.apply", "printed", **words).values()
    return answer


@pytest.mark.slow
def test_the_sls_that_salts_manual_printed(lab, hv):
    """Made from the image, seeded, started; shut down by its own system, and removed."""
    hv.sh(f"cat > /root/x.xml <<'X'\n{ADMIN}\nX\n{AROUND}")
    try:
        answer = highstate(lab, hv.name, "01:23:45:67:89:AB")
        assert "is a multicast address" in answer["comment"]
        mac = "02:23:45:67:89:AB"
        told = highstate(lab, hv.name, mac, test=True)
        assert told["result"] is None, told
        assert "domain_name" not in hv.table("list", "--all", "--name")
        done = highstate(lab, hv.name, mac)
        assert (done["result"], done["changes"]) == (True, told["changes"]), done
        for test in (True, False):
            again = highstate(lab, hv.name, mac, test)
            assert (again["result"], again["changes"]) == (True, {}), again
        xml = hv.virsh("dumpxml", "domain_name")
        for word in ("192.168.0.125", "network='admin'", "'br0'", mac.lower(), 'seeded="yes"'):
            assert word in xml
        stop = ("state.single", "virt.stopped", "domain_*", "timeout=400")  # it boots slowly
        (stop,) = lab.call(hv.name, *stop, timeout=450).values()
        assert stop["result"], stop
        assert hv.virsh("domstate", "domain_name").strip() == "shut off"
        (gone,) = lab.call(hv.name, "state.single", "virt.absent", "domain_name").values()
        assert len(gone["changes"]["domain_name"]["deleted"]) == 2, gone
    finally:
        hv.sh(AWAY, check=False)
        lab.exec("master", "rm -f /srv/salt/printed.sls")
