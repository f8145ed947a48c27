"""Storage pools of real folders and loop devices, as virsh and the machine show them."""

from xml.etree import ElementTree

import pytest

pytestmark = pytest.mark.lab

FOLDER = "/srv/labpool"


def group(hv):
    """The name of a volume group: LVM sees the loop devices of all labs of this machine."""
    return f"labvg-{hv.lab.name}"


@pytest.fixture(autouse=True)
def clean(hv):
    yield
    for name in hv.table("pool-list", "--all", "--name"):
        if name.startswith("lab"):
            hv.sh(f"virsh -q pool-destroy {name}; virsh -q pool-undefine {name}", check=False)
    hv.sh(f"rm -rf {FOLDER}; vgremove -ffy {group(hv)}", check=False)


@pytest.fixture
def device(hv):
    """An empty loop device of 200 MiB."""
    path = hv.sh("truncate -s 200M /root/disk.img && losetup --find --show /root/disk.img").strip()
    hv.sh(f"wipefs -aq {path}")
    yield path
    hv.sh("for p in $(virsh -q pool-list --name); do case $p in lab*) virsh pool-destroy $p;; esac;"
          f" done; vgremove -ffy {group(hv)}; wipefs -aq {path}; losetup -d {path}; "
          "rm /root/disk.img", check=False)  # fmt: skip


def need(hv, kind):
    """Skip where libvirt lacks the backend: Debian 13 has each in a package of its own."""
    told = ElementTree.fromstring(hv.virsh("pool-capabilities"))
    if told.find(f"pool[@type='{kind}']").get("supported") != "yes":
        pytest.skip(f"this libvirt has no storage backend for {kind}")


def xml(hv, name, *flags):
    return ElementTree.fromstring(hv.virsh("pool-dumpxml", name, *flags))


def info(hv, name):
    return hv.facts("pool-info", "--bytes", name)


def test_capabilities(hv):
    told = ElementTree.fromstring(hv.virsh("pool-capabilities"))
    found = hv.call("virt.pool_capabilities")
    assert found["computed"] is False
    assert {pool["name"]: pool["supported"] for pool in found["pool_types"]} == {
        pool.get("type"): pool.get("supported") == "yes" for pool in told.findall("pool")
    }
    (folder,) = [pool for pool in found["pool_types"] if pool["name"] == "dir"]
    assert folder["options"]["volume"]["default_format"] == "raw"
    assert "qcow2" in folder["options"]["volume"]["targetFormatType"]


def test_a_folder_from_nothing_to_nothing(hv):
    words = {"target": FOLDER, "permissions": {"mode": "0750", "owner": 0, "group": 0}}
    text = hv.refuses("virt.pool_define", "lab1", "dir", **words)
    assert FOLDER in text  # it is not there, and not asked to be made
    assert "lab1" not in hv.call("virt.list_pools")
    assert hv.call("virt.pool_define", "lab1", "dir", start=False, **words) is True
    assert hv.call("virt.pool_build", "lab1") is True
    assert hv.sh(f"stat -c '%a %F' {FOLDER}").strip() == "750 directory"
    assert hv.call("virt.pool_start", "lab1") is True
    assert hv.call("virt.list_pools") == hv.table("pool-list", "--all", "--name")
    told, found = info(hv, "lab1"), hv.call("virt.pool_info", "lab1")["lab1"]
    assert (told["State"], found["state"]) == ("running", "running")
    assert (found["uuid"], found["capacity"]) == (told["UUID"], int(told["Capacity"]))
    assert (found["type"], found["target_path"], found["pending"]) == ("dir", FOLDER, False)
    assert hv.call("virt.pool_get_xml", "lab1").strip() == hv.virsh("pool-dumpxml", "lab1").strip()

    hv.sh(f"qemu-img create -q -f qcow2 {FOLDER}/new.qcow2 1M")
    assert hv.call("virt.pool_list_volumes", "lab1") == []
    assert hv.call("virt.pool_refresh", "lab1") is True
    assert (
        hv.call("virt.pool_list_volumes", "lab1") == hv.table("vol-list", "lab1") == ["new.qcow2"]
    )

    assert hv.call("virt.pool_set_autostart", "lab1", "on") is True
    assert info(hv, "lab1")["Autostart"] == "yes"
    assert hv.call("virt.pool_set_autostart", "lab1", "off") is True
    assert info(hv, "lab1")["Autostart"] == "no"
    assert "active" in hv.refuses("virt.pool_delete", "lab1")
    assert hv.call("virt.pool_stop", "lab1") is True
    assert info(hv, "lab1")["State"] == "inactive"
    assert "not empty" in hv.refuses("virt.pool_delete", "lab1")
    hv.sh(f"rm {FOLDER}/new.qcow2")
    assert hv.call("virt.pool_delete", "lab1") is True
    assert hv.sh(f"test -e {FOLDER} || echo gone").strip() == "gone"
    assert hv.call("virt.pool_undefine", "lab1") is True
    assert "lab1" not in hv.table("pool-list", "--all", "--name")


def test_update(hv):
    words = {"target": FOLDER, "permissions": {"mode": "0750"}}
    hv.call("virt.pool_define", "lab1", "dir", build=True, **words)
    assert hv.call("virt.pool_update", "lab1", "dir", **words) is False
    assert hv.call("virt.pool_update", "lab1", "dir", target=f"{FOLDER}/") is False
    other = {"target": FOLDER, "permissions": {"mode": "0700"}}
    before = hv.virsh("pool-dumpxml", "lab1", "--inactive")
    assert hv.call("virt.pool_update", "lab1", "dir", test=True, **other) is True
    assert hv.virsh("pool-dumpxml", "lab1", "--inactive") == before
    assert hv.call("virt.pool_update", "lab1", "dir", **other) is True
    assert xml(hv, "lab1", "--inactive").findtext("target/permissions/mode") == "0700"
    assert xml(hv, "lab1", "--inactive").findtext("uuid") == xml(hv, "lab1").findtext("uuid")
    assert hv.call("virt.pool_update", "lab1", "dir", **other) is False
    assert hv.call("virt.pool_info", "lab1")["lab1"]["pending"] is True


KINDS = {
    "fs": {"target": FOLDER, "source_format": "ext4"},
    "logical": {},
    "disk": {"source_format": "gpt"},
}


def given(hv, kind, device):
    """The words for a pool of that kind on a device."""
    named = {"source_name": group(hv)} if kind == "logical" else {}
    return {**KINDS[kind], **named, "source_devices": [device]}


@pytest.mark.parametrize("kind", KINDS)
def test_a_device_is_built_once(hv, device, kind):
    """Building again, stopped or running, must not destroy what is there."""
    need(hv, kind)
    words = given(hv, kind, device)
    hv.call("virt.pool_define", "lab1", kind, start=False, **words)
    assert hv.call("virt.pool_build", "lab1") is True
    mark = {
        "fs": f"blkid -o value -s UUID {device}",
        "logical": f"vgs --noheadings -o vg_uuid {group(hv)} 2>/dev/null",
        "disk": f"blkid -o value -s PTUUID {device}",
    }[kind]
    built = hv.sh(mark).strip()
    assert built
    assert hv.call("virt.pool_build", "lab1") is True
    assert hv.call("virt.pool_start", "lab1") is True
    assert hv.call("virt.pool_build", "lab1") is True
    assert hv.sh(mark).strip() == built
    assert info(hv, "lab1")["State"] == "running"
    assert hv.call("virt.pool_update", "lab1", kind, **words) is False
    if kind == "fs":
        assert FOLDER in hv.sh("cat /proc/mounts")
        assert hv.call("virt.volume_define", "lab1", "a.raw", 8) is True
        assert hv.sh(f"stat -c %s {FOLDER}/a.raw").strip() == str(8 << 20)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_on_a_device_is_not_overwritten_unless_asked(hv, device, kind):
    need(hv, kind)
    hv.sh(f"mkfs.ext2 -q -L precious {device}")
    before = hv.sh(f"sha256sum {device}")
    words = given(hv, kind, device)
    hv.call("virt.pool_define", "lab1", kind, start=False, **words)
    assert "cannot build storage pool lab1" in hv.refuses("virt.pool_build", "lab1")
    assert hv.sh(f"sha256sum {device}") == before
    assert hv.call("virt.pool_build", "lab1", overwrite=True) is True
    assert hv.call("virt.pool_start", "lab1") is True
    assert "precious" not in hv.sh(f"blkid -p -o value -s LABEL {device}", check=False)


def test_a_logical_volume(hv, device):
    need(hv, "logical")
    if "device-mapper" not in hv.sh("cat /proc/misc"):
        pytest.skip("this kernel has no device-mapper: no logical volume can be made")
    words = given(hv, "logical", device)
    hv.call("virt.pool_define", "lab1", "logical", build=True, **words)
    assert hv.call("virt.volume_define", "lab1", "lv1", 8) is True
    assert "lv1" in hv.sh(f"lvs --noheadings -o lv_name {group(hv)}")


def test_a_pool_that_broke_costs_only_its_own_entry(hv):
    """A folder deleted behind libvirt's back."""
    for name in ("lab1", "lab2"):
        hv.call("virt.pool_define", name, "dir", target=f"{FOLDER}/{name}", build=True)
        hv.call("virt.volume_define", name, "a.raw", 1)
    hv.sh(f"rm -rf {FOLDER}/lab1")
    found = hv.call("virt.volume_infos")
    assert found["lab2"]["a.raw"]["capacity"] == 1 << 20
    assert "error" in found["lab1"]["a.raw"]
    assert set(hv.call("virt.pool_info")) >= {"lab1", "lab2"}


def test_an_iscsi_password_becomes_a_secret_and_goes_with_the_pool(hv):
    need(hv, "iscsi")
    words = {
        "target": "/dev/disk/by-path", "source_hosts": ["10.255.255.1:3260"],
        "source_devices": ["iqn.2026-01.test:disk"],
    }  # fmt: skip
    auth = {"username": "salt", "password": "hush-hush"}
    hv.call("virt.pool_define", "lab1", "iscsi", start=False, source_auth=auth, **words)
    told = xml(hv, "lab1").find("source/auth")
    assert (told.get("type"), told.get("username")) == ("chap", "salt")
    (uuid,) = hv.table("secret-list")
    assert told.find("secret").get("uuid") == uuid
    assert "hush" not in hv.virsh("secret-dumpxml", uuid) + hv.virsh("pool-dumpxml", "lab1")
    assert hv.sh(f"test -e /etc/libvirt/secrets/{uuid}.base64 && echo stored").strip() == "stored"
    wanted = {**words, "source_auth": auth}
    assert hv.call("virt.pool_update", "lab1", "iscsi", test=True, **wanted) is False
    assert hv.call("virt.pool_undefine", "lab1") is True
    assert hv.table("secret-list") == []


def test_a_failed_pool_leaves_no_secret(hv):
    text = hv.refuses(
        *("virt.pool_define", "lab1", "rbd"), source_hosts=["10.255.255.1:6789"],
        source_name="rbd", source_auth={"username": "salt", "password": "not base64!"},
    )  # fmt: skip
    assert "base64" in text
    hv.refuses(
        *("virt.pool_define", "lab1", "iscsi"), target="/dev/disk/by-path",
        source_hosts=["127.0.0.1:1"], source_devices=["iqn.2026-01.test:disk"],
        source_auth={"username": "salt", "password": "x"},
    )  # fmt: skip
    assert hv.table("secret-list") == []
    assert "lab1" not in hv.table("pool-list", "--all", "--name")
