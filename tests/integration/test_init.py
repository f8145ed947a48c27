"""Creating, changing, cloning and removing guests with a real QEMU; virsh and qemu-img confirm the
results."""

import contextlib
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.integration.hypervisor import IMAGES, Hypervisor

pytestmark = pytest.mark.lab
MIB = 1024**2
IMAGE = "/var/tmp/tiny.raw"
GUESTS = ["t1", "t2", "t3", "t4"]
PLAIN = {"seed": False, "start": False}
SYSTEM = {"name": "system", "size": 64}


@pytest.fixture(scope="module")
def hv(lab):
    """A hypervisor with a small image that holds data, and none of our guests."""
    found = Hypervisor(lab, lab.hosts[0])
    found.forget(*GUESTS)
    # a boot sector that stops the CPU, 4 MiB of data, the rest is a hole
    found.sh(
        f"dd if=/dev/urandom of={IMAGE} bs=1M count=4 status=none; truncate -s 32M {IMAGE}; "
        rf"printf '\364\353\375' | dd of={IMAGE} conv=notrunc status=none; "
        rf"printf '\125\252' | dd of={IMAGE} bs=1 seek=510 conv=notrunc status=none"
    )
    yield found
    found.forget(*GUESTS)
    found.close()


@pytest.fixture(autouse=True)
def clean(hv):
    """No guest of the last test is left."""
    yield
    hv.forget(*set(GUESTS).intersection(hv.names("--all")))


def allocated(hv, path):
    return int(hv.sh(f"stat -c %b {path}")) * 512


def test_init_start_and_purge(hv):
    made = hv.call("init", "t1", 2, 128, image=IMAGE, disks=[SYSTEM], seed=False, enable_vnc=True)
    assert (made["state"], made["host"], made["pub_key"]) == ("running", hv.name, None)
    assert hv.state("t1") == "running"
    path = f"{IMAGES}/t1_system.qcow2"
    assert made["disks"] == [
        {"target": "vda", "path": path, "format": "qcow2", "size_bytes": 64 * MIB}
    ]
    tree = hv.xml("t1")
    assert tree.find("devices/disk/source").get("file") == path
    assert (tree.findtext("vcpu"), tree.findtext("memory")) == ("2", str(128 * 1024))
    assert tree.find("devices/interface/source").get("bridge") == "br0"
    assert tree.find("devices/interface/mac").get("address") == made["nics"][0]["mac"]
    assert tree.find("devices/graphics").get("port") == made["graphics"]["port"]
    assert hv.image(path)["virtual-size"] == 64 * MIB
    assert allocated(hv, path) <= allocated(hv, IMAGE) * 1.05 + MIB
    assert hv.call("purge", "t1") is True
    assert "t1" not in hv.names("--all")
    assert not [name for name in hv.files() if name.startswith("t1")]
    assert hv.sh(f"ls {IMAGE}").strip() == IMAGE


@pytest.mark.parametrize("format", ["raw", "qcow2"])
def test_the_disk_is_the_image_with_the_profiles_size(hv, format):
    hv.call("init", "t1", 1, 64, image=IMAGE, disks=[{**SYSTEM, "format": format}], **PLAIN)
    path = f"{IMAGES}/t1_system.{format}"
    info = hv.image(path)
    assert (info["format"], info["virtual-size"]) == (format, 64 * MIB)
    hv.sh(f"qemu-img compare -q -f raw -F {format} {IMAGE} {path}")
    assert allocated(hv, path) <= allocated(hv, IMAGE) * 1.05 + MIB


def test_an_overlay_boots_and_has_its_backing_format(hv):
    made = hv.call("init", "t1", 1, 64, image=IMAGE, enable_qcow=True, seed=False)
    info = hv.image(f"{IMAGES}/t1_system.qcow2")
    assert (info["backing-filename"], info["backing-filename-format"]) == (IMAGE, "raw")
    assert made["state"] == hv.state("t1") == "running"
    assert hv.call("purge", "t1") is True
    assert hv.sh(f"ls {IMAGE}").strip() == IMAGE


@pytest.mark.parametrize(
    ("arguments", "path", "value"),
    [
        ({"enable_vnc": True}, "devices/graphics@type", "vnc"),
        ({"serial_type": "pty"}, "devices/serial@type", "pty"),
        ({"boot_dev": "network hd"}, "os/boot@dev", "network"),
        ({"stop_on_reboot": True}, "on_reboot", "destroy"),
        ({"clock": {"utc": False}}, "clock@offset", "localtime"),
        ({"cpu": {"maximum": 2, "current": 1}}, "vcpu@current", "1"),
        ({"mem": {"boot": 128, "current": 64}}, "currentMemory", "65536"),
        ({"boot": {"efi": True}}, "os@firmware", "efi"),
    ],
)
def test_each_argument_reaches_libvirt(hv, arguments, path, value):
    answer = hv.call("init", **{"name": "t1", "cpu": 1, "mem": 64, **PLAIN, **arguments})
    assert "ERROR" not in answer, answer
    place, _, attribute = path.partition("@")
    tree = hv.xml("t1")
    node = tree.find(place)
    if (place, attribute) == ("os", "firmware") and not node.get("firmware"):
        node, attribute, value = tree.find("os/loader"), "type", "pflash"
    assert (node.get(attribute) if attribute else node.text) == value
    assert hv.call("purge", "t1") is True


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"name": "test one"}, "cannot be a guest's name"),
        ({"cpu": 99}, "refused: .* 99 vCPUs requested, the host has"),
        ({"mem": "9TiB"}, "refused: .* MiB of memory requested"),
        ({"image": "/nowhere.img"}, "image /nowhere.img does not exist"),
        ({"image": "salt://nowhere.img"}, "nowhere.img does not exist on the master"),
        ({"image": "/etc/passwd"}, "/etc/passwd is not a disk image"),
        ({"disk": "nope"}, "unknown 'nope'"),
        ({"interfaces": [{"name": "eth0", "bridge": "nobr"}]}, "refused: .*has no bridge nobr"),
        ({"disks": [{"name": "system", "size": 8}]}, "are never shrunk"),
        ({"disks": [{"name": "d", "size": 8, "pool": "none"}]}, "no storage pool .*'none'"),
    ],
)
def test_what_is_wrong_is_refused_and_nothing_changes(hv, wrong, why):
    before = hv.names("--all"), hv.files()
    right = {"name": "t1", "cpu": 1, "mem": 64, "image": IMAGE, **PLAIN}
    answer = hv.call("init", **{**right, **wrong})
    assert re.fullmatch(f"ERROR: .*{why}.*", answer)
    assert (hv.names("--all"), hv.files()) == before


def test_a_guest_that_cannot_start_leaves_nothing(hv):
    before = hv.names("--all"), hv.files()
    busy = {"name": "e", "type": "user"}
    vnc = {"type": "vnc", "listen": "203.0.113.9"}  # no address of this host
    answer = hv.call(
        "init", "t1", 1, 64, image=IMAGE, seed=False, graphics=vnc, nic=None, interfaces=[busy]
    )
    assert answer.startswith("ERROR: cannot start t1: ")
    assert (hv.names("--all"), hv.files()) == before


def test_seeding_what_holds_no_system_leaves_nothing(hv):
    before = hv.names("--all"), hv.files()
    answer = hv.call("init", "t1", 1, 64, image=IMAGE, start=False)
    assert answer.startswith("ERROR: cannot seed ")
    assert (hv.names("--all"), hv.files()) == before


def test_parallel_inits_never_get_the_same_memory(lab, hv):
    total = int(re.search(r"Memory size:\s+(\d+) KiB", hv.virsh("nodeinfo"))[1]) // 1024
    taken = sum(int(hv.xml(name).findtext("memory")) for name in hv.names("--all")) // 1024
    wanted = int((total - taken - 512) * 0.4)
    others = [Hypervisor(lab, hv.name) for _ in GUESTS]

    def init(caller, name):
        return caller.call("init", name, 1, wanted, image=IMAGE, **PLAIN)

    with ThreadPoolExecutor(len(GUESTS)) as pool:
        answers = list(pool.map(init, others, GUESTS))
    for caller in others:
        caller.close()
    made = [name for name, answer in zip(GUESTS, answers, strict=True) if "name" in answer]
    refused = [answer for answer in answers if "refused: " in answer]
    assert (len(made), len(refused)) == (2, 2), answers
    assert set(hv.names("--all")).intersection(GUESTS) == set(made)


def test_one_name_asked_for_four_times_is_made_once(lab, hv):
    others = [Hypervisor(lab, hv.name) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        answers = list(
            pool.map(lambda c: c.call("init", "t1", 1, 64, image=IMAGE, **PLAIN), others)
        )
    for caller in others:
        caller.close()
    errors = [answer for answer in answers if isinstance(answer, str)]
    assert len(errors) == 3, answers
    assert all(re.search("already exists|being created", error) for error in errors)
    assert hv.names("--all").count("t1") == 1
    hv.sh(f"qemu-img compare -q -f raw -F qcow2 {IMAGE} {IMAGES}/t1_system.qcow2")


# the disk's copy stands still as soon as it has begun
HELD = "/run/held"
HOLD = (
    f"rm -f {HELD}; (until pkill -STOP -f 'qemu-im[g] convert'; do sleep 0.01; done; touch {HELD}) "
    ">/dev/null 2>&1 &"
)


def test_an_init_that_was_killed_is_cleaned_up_by_the_next(lab, hv):
    hv.sh("qemu-img create -q -f qcow2 /var/tmp/big.qcow2 2G")
    hv.sh("qemu-io -c 'write -P 7 0 900M' /var/tmp/big.qcow2 >/dev/null")
    victim = Hypervisor(lab, hv.name, tag="victim-of-the-test")
    hv.sh(HOLD)
    victim.send(
        "init",
        "t1",
        1,
        64,
        image="/var/tmp/big.qcow2",
        disks=[{"name": "system", "size": 4096, "format": "raw"}],
        **PLAIN,
    )
    lab.wait(lambda: hv.sh(f"ls {HELD}", check=False), "the disk is being made")
    lab.kill(hv.name, "victim-of-the-test")
    with contextlib.suppress(BrokenPipeError):
        victim.close()
    assert "creating=" in hv.virsh("dumpxml", "t1")
    made = hv.call("init", "t1", 1, 64, image=IMAGE, disks=[SYSTEM], **PLAIN)
    assert made["state"] == "shutdown"
    assert "creating=" not in hv.virsh("dumpxml", "t1")
    left = hv.sh(f"find {IMAGES} -maxdepth 1 -name '*t1*' -printf '%f\\n'").split()
    assert left == ["t1_system.qcow2"]
    hv.sh("rm /var/tmp/big.qcow2")


def test_volumes_of_a_pool_come_and_go_with_the_guest(hv):
    hv.sh("mkdir -p /var/tmp/pool; virsh pool-define-as tpool dir --target /var/tmp/pool")
    hv.virsh("pool-start", "tpool")
    try:
        disks = [{**SYSTEM, "pool": "tpool"}, {"name": "d", "pool": "tpool", "size": 8}]
        hv.call("init", "t1", 1, 64, image=IMAGE, disks=disks, **PLAIN)
        volumes = hv.virsh("vol-list", "tpool")
        assert "t1_system" in volumes
        assert "t1_d" in volumes
        source = hv.xml("t1").find("devices/disk/source")
        assert (source.get("pool"), source.get("volume")) == ("tpool", "t1_system")
        hv.virsh("start", "t1")
        hv.virsh("pool-destroy", "tpool")
        assert "tpool is not started" in hv.call("purge", "t1")
        assert "t1" in hv.names("--all")
        hv.virsh("pool-start", "tpool")
        assert hv.call("purge", "t1") is True
        assert "t1_" not in hv.virsh("vol-list", "tpool")
    finally:
        hv.sh("virsh pool-destroy tpool; virsh pool-undefine tpool; rm -rf /var/tmp/pool")


def test_an_image_onto_a_block_device(hv):
    device = hv.sh("truncate -s 48M /var/tmp/t1.dev; losetup -f --show /var/tmp/t1.dev").strip()
    disks = [{"name": "system", "source_file": device, "image": IMAGE}]
    try:
        made = hv.call("init", "t1", 1, 64, disks=disks, **PLAIN)
        assert isinstance(made, dict), made
        assert made["disks"][0]["path"] == device, made
        assert hv.xml("t1").find("devices/disk/source").get("dev") == device
        hv.sh(f"cmp -n {32 * MIB} {IMAGE} {device}")
        assert f"{device} is a disk of t1" in hv.call("init", "t2", 1, 64, disks=disks, **PLAIN)
        assert (
            hv.call("update", "t1", disks=[{"name": "system", "source_file": device}])["changes"]
            == []
        )
        assert hv.call("purge", "t1") is True
        assert hv.sh(f"test -b {device} && echo there").strip() == "there"
    finally:
        hv.sh(f"losetup -d {device}; rm /var/tmp/t1.dev")


def test_purge_takes_snapshots_saved_memory_and_nvram_along(hv):
    answer = hv.call(
        "init", "t1", 1, 64, image=IMAGE, disks=[SYSTEM], seed=False, boot={"efi": True}
    )
    assert answer["state"] == "running", answer
    hv.virsh("snapshot-create-as", "t1", "s1", "--disk-only")
    assert [name for name in hv.files() if "s1" in name]
    nvram = hv.xml("t1").findtext("os/nvram")
    hv.virsh("managedsave", "t1")
    assert hv.sh(f"ls {nvram}").strip() == nvram
    assert hv.call("purge", "t1") is True
    assert "t1" not in hv.names("--all")
    assert not [name for name in hv.files() if name.startswith("t1")]
    assert not hv.sh(f"ls {nvram} /var/lib/libvirt/qemu/save/t1.save 2>/dev/null || true").strip()


def test_purge_spares_what_is_not_the_guests_own(hv):
    hv.sh("truncate -s 8M /var/tmp/shared.raw /var/tmp/cd.iso")
    disks = [
        SYSTEM,
        {"name": "mine", "source_file": "/var/tmp/shared.raw", "format": "raw"},
        {"name": "cd", "device": "cdrom", "source_file": "/var/tmp/cd.iso"},
    ]
    hv.call("init", "t1", 1, 64, image=IMAGE, disks=disks, **PLAIN)
    assert "is a disk of t1" in hv.call("init", "t2", 1, 64, image=IMAGE, disks=disks, **PLAIN)
    assert hv.call("purge", "t1", dirs=True, removables=True) is True
    assert hv.sh("ls /var/tmp/shared.raw /var/tmp/cd.iso").split() == [
        "/var/tmp/cd.iso",
        "/var/tmp/shared.raw",
    ]
    hv.sh("rm /var/tmp/shared.raw /var/tmp/cd.iso")


def test_update_changes_a_running_guest_at_once(hv):
    hv.call(
        "init",
        "t1",
        {"maximum": 2, "current": 1},
        64,
        image=IMAGE,
        disks=[SYSTEM],
        seed=False,
        graphics={"type": "vnc", "password": "first"},
    )
    more = [SYSTEM, {"name": "data", "size": 8, "model": "usb"}, {"name": "v", "size": 4}]
    cd = {"name": "cd", "device": "cdrom"}
    status = hv.call(
        "update",
        "t1",
        cpu={"current": 2},
        disks=[*more, cd],
        title="the title",
        interfaces=[{"name": "eth0"}, {"name": "eth1", "type": "user"}],
    )
    assert "errors" not in status, status
    assert re.search(r"current\s+live\s+2", hv.virsh("vcpucount", "t1"))
    for live in (hv.xml("t1"), hv.xml("t1", "--inactive")):
        files = [s.get("file") for s in live.iterfind("devices/disk[@device='disk']/source")]
        assert sorted(files) == sorted(
            f"{IMAGES}/t1_{name}.qcow2" for name in ("data", "system", "v")
        )
        assert len(live.findall("devices/interface")) == 2
        assert live.findtext("title") == "the title"
    now, later = (
        [mac.get("address") for mac in tree.iterfind("devices/interface/mac")]
        for tree in (hv.xml("t1"), hv.xml("t1", "--inactive"))
    )
    assert now == later
    hv.sh("cp /var/tmp/tiny.raw /var/tmp/t1.iso")
    hv.virsh("destroy", "t1")  # a CD drive on IDE comes with the next start
    hv.virsh("start", "t1")
    disks = [more[0], more[2], {**cd, "source_file": "/var/tmp/t1.iso"}]
    secret = {"type": "vnc", "password": "second"}
    status = hv.call("update", "t1", disks=disks, graphics=secret, detach=["data"])
    assert "errors" not in status, status
    tree = hv.xml("t1", "--security-info")
    assert tree.find("devices/disk[@device='cdrom']/source").get("file") == "/var/tmp/t1.iso"
    assert tree.find("devices/graphics").get("passwd") == "second"
    assert "second" not in str(status)
    assert f"{IMAGES}/t1_data.qcow2" not in hv.virsh("domblklist", "t1")
    assert hv.call("update", "t1", disks=disks)["changes"] == []


def test_update_says_what_the_guest_did_not_take_at_once(hv):
    hv.call("init", "t1", 1, 64, image=IMAGE, disks=[SYSTEM, {"name": "v", "size": 4}], seed=False)
    status = hv.call("update", "t1", disks=[SYSTEM], mem=128, detach=True)
    assert status["errors"] == [
        "disks:vdb: the guest has not released it; it is removed when the guest stops"
    ]
    assert [c["path"] for c in status["changes"] if not c["live"]] == [
        "current_memory_kib",
        "memory_kib",
        "disks:vdb",
    ]
    hv.virsh("destroy", "t1")
    tree = hv.xml("t1")
    assert (len(tree.findall("devices/disk")), tree.findtext("memory")) == (1, "131072")


def test_resize_disk_while_running_and_stopped(hv):
    hv.call("init", "t1", 1, 64, image=IMAGE, disks=[SYSTEM], seed=False)
    assert hv.call("resize_disk", "t1", "vda", 96) == {"before": 64 * MIB, "after": 96 * MIB}
    assert str(96 * MIB) in hv.virsh("domblkinfo", "t1", "vda")
    assert "never shrunk" in hv.call("resize_disk", "t1", "vda", 64)
    hv.virsh("destroy", "t1")
    assert hv.call("resize_disk", "t1", "vda", "128MiB")["after"] == 128 * MIB
    assert hv.image(f"{IMAGES}/t1_system.qcow2")["virtual-size"] == 128 * MIB


def test_clone(hv):
    hv.call("init", "t1", 1, 64, image=IMAGE, disks=[SYSTEM], seed=False)
    assert "t1 is running: stop it first" in hv.call("clone", "t1", "t2")
    hv.virsh("destroy", "t1")
    made = hv.call("clone", "t1", "t2", start=True)
    assert made["state"] == hv.state("t2") == "running"
    old, new = hv.xml("t1"), hv.xml("t2")
    assert old.findtext("uuid") != new.findtext("uuid")
    for path in ("devices/interface/mac", "devices/disk/source"):
        assert old.find(path).attrib != new.find(path).attrib
    hv.virsh("destroy", "t2")
    hv.sh(f"qemu-img compare -q {IMAGES}/t1_system.qcow2 {IMAGES}/t2_system.qcow2")
    hv.call("purge", "t2")
    assert hv.files().count("t1_system.qcow2") == 1
