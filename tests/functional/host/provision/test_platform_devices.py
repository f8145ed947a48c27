"""Devices and settings of a guest on a private libvirtd: accepted, unchanged by a second apply,
removed on request, and changed while the guest runs where libvirt can."""

import functools
import os
import subprocess

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.design.plain_data import plain
from saltvirt.host.provision.guest_definition import stored
from saltvirt.xml.storage.pool import Pool
from tests.functional.daemon import libvirtd  # noqa: F401
from tests.functional.host.provision.test_pending import MAC, SYSTEM, host  # noqa: F401
from tests.golden.cases import POOLS_OF_OURS

DEVICES = {
    "panic": "isa",
    "sound": "ich9",
    "video": {"model": "vga", "vram": 32},
    "iommu": {"model": "intel", "intremap": True},
}


def paths(answer):
    return {change["path"]: (change["old"], change["new"]) for change in answer["changes"]}


def apply_twice(host, **arguments):  # noqa: F811
    answer = host.update(**arguments)
    assert host.update(**arguments)["changes"] == []
    return answer


def test_devices_of_the_platform(host):  # noqa: F811
    host.init(machine="q35", graphics="vnc", on_crash="coredump-restart", **DEVICES)
    assert host.update(**DEVICES)["changes"] == []
    running = host.running()
    assert [running.panics[0].model, running.sounds[0].model, running.videos[0].model,
            running.iommus[0].model] == ["isa", "ich9", "vga", "intel"]  # fmt: skip
    answer = apply_twice(
        host, panic=False, sound="ac97", video="none", iommu={"intremap": None, "eim": False}
    )
    assert paths(answer) == {
        "panic": ("isa", None),
        "sound:model": ("ich9", "ac97"),
        "video:model": ("vga", "none"),
        "iommu:intremap": (True, None),
        "iommu:eim": (None, False),
    }
    assert not any(change["live"] for change in answer["changes"])
    assert "panic (isa now, then none)" in answer["pending"]


def test_a_device_that_was_removed_returns_and_changes_its_model(host):  # noqa: F811
    host.init(machine="q35", graphics="vnc", start=False, video=False, memballoon=False,
              iommu={"intremap": True})  # fmt: skip
    answer = apply_twice(host, video=True, memballoon=True, iommu="virtio")
    assert paths(answer) == {
        "video:model": ("none", "virtio"),
        "memballoon:model": ("none", "virtio"),
        "iommu:model": ("intel", "virtio"),
        "iommu:intremap": (True, None),
    }
    answer = apply_twice(host, iommu="intel", video={"model": "vga", "vram": 5})
    assert paths(answer)["iommu:model"] == ("virtio", "intel")


@pytest.mark.parametrize("given, text", [
    ({"iommu": {"aw_bits": 40}}, "aw_bits of the model intel must be 39 or 48"),
    ({"video": {"model": "vga", "accel3d": True}}, "accel3d needs model: virtio, not vga"),
    ({"video": {"model": "virtio", "accel3d": True}}, "accel3d needs a display with OpenGL"),
    ({"disks": [{**SYSTEM, "iotune": {"total_iops_sec": 10**16}}]}, "must be at most 10{15}"),
    ({"disks": [{**SYSTEM, "iotune": {"total_bytes_sec": 10**9, "total_bytes_sec_max": 10**10,
                                      "total_bytes_sec_max_length": 10**6}}]}, "must be at most"),
])  # fmt: skip
def test_what_qemu_refuses_at_the_start_is_refused_before(host, given, text):  # noqa: F811
    with pytest.raises(errors.VirtError, match=text.replace("10{15}", str(10**15))):
        host.init(machine="q35", graphics="vnc", **given)
    assert host.conn.listAllDomains() == []
    host.init(machine="q35", graphics="vnc", start=False)
    with pytest.raises(errors.VirtError, match=text.replace("10{15}", str(10**15))):
        host.update(**given)
    gl = {"iommu": {"aw_bits": 39}, "video": {"model": "virtio", "accel3d": True}}
    assert host.update(graphics="egl-headless", **gl)["changes"]


def test_a_file_to_boot_from_that_does_not_exist_is_named(host):  # noqa: F811
    boot = {"kernel": "/nope", "initrd": "/etc/hostname"}
    warning = "boot: kernel /nope does not exist on this host: the guest cannot start"
    answer = host.init(machine="q35", start=False)
    assert warning not in answer.get("warnings", [])
    answer = host.update(boot=boot)
    assert (answer["warnings"], answer["absent"]) == ([warning], ["kernel /nope"])
    assert "absent" not in host.update(boot=boot), "it is the guest's already"
    created = host.modules["virt.init"](
        "g2", 1, 64, disks=[SYSTEM], nic=None, seed=False, hypervisor="qemu", start=False, boot=boot
    )
    assert warning in created["warnings"]


def test_a_vsock(host):  # noqa: F811
    live = os.path.exists("/dev/vhost-vsock")
    host.init(vsock=True, start=live)
    assert host.update(vsock=True)["changes"] == []
    assert paths(apply_twice(host, vsock=77)) == {
        "vsock:auto": (True, None),
        "vsock:cid": (None, 77),
    }
    assert paths(apply_twice(host, vsock="auto"))["vsock:cid"] == (77, None)
    answer = apply_twice(host, vsock=False)
    assert paths(answer) == {"vsock": ("virtio", None)}
    assert answer["changes"][0]["live"] is live


def test_limits_of_a_disk(host):  # noqa: F811
    def live(iotune):
        answer = apply_twice(host, disks=[{"name": "system", "iotune": iotune}])
        assert answer.get("errors") is None
        assert [(c["path"], c["live"]) for c in answer["changes"]] == [("disks:vda:iotune", True)]
        assert "pending" not in answer
        return plain(host.running().disks[0].iotune)

    host.init(disks=[{**SYSTEM, "iotune": {"total_iops_sec": 500}}])
    assert (
        host.update(disks=[{"name": "system", "iotune": {"total_iops_sec": 500}}])["changes"] == []
    )
    burst = {
        "total_bytes_sec": "10M",
        "total_bytes_sec_max": "20M",
        "total_bytes_sec_max_length": 5,
    }
    limits = live(burst)
    assert (limits["total_iops_sec"], limits["total_bytes_sec_max"]) == (500, 20 << 20)
    limits = live({"read_iops_sec": 100, "write_iops_sec": 50, "total_bytes_sec": None,
                   "total_bytes_sec_max": None, "total_bytes_sec_max_length": None})  # fmt: skip
    limits.pop("group_name", None)
    assert limits == {"read_iops_sec": 100, "write_iops_sec": 50}
    assert not {word for word in live(None) if word.endswith("_sec")}
    with pytest.raises(errors.InvalidInput, match="total_bytes_sec_max needs total_bytes_sec"):
        host.update(disks=[{"name": "system", "iotune": {"total_bytes_sec_max": 5}}])
    live({"total_bytes_sec": "10M", "total_bytes_sec_max": "20M"})
    with pytest.raises(errors.InvalidInput, match=r"max \(20971520\) must be more than total_byt"):
        host.update(disks=[{"name": "system", "iotune": {"total_bytes_sec": "20M"}}])


def test_another_cache_of_a_block_device_needs_no_word_about_io(host):  # noqa: F811
    device = {"name": "data", "source_file": "/dev/loop7", "format": "raw"}
    host.init(disks=[SYSTEM, {**device, "cache": "none", "io": "native"}], start=False)
    answer = apply_twice(host, disks=[SYSTEM, {**device, "cache": "writeback"}])
    assert paths(answer) == {
        "disks:vdb:cache": ("none", "writeback"), "disks:vdb:io": ("native", None),
    }  # fmt: skip
    apply_twice(host, disks=[SYSTEM, {**device, "cache": "default"}])


def test_the_scsi_controller_is_removed_only_without_disks(host):  # noqa: F811
    host.init(scsi_controller=True, start=False)
    assert [item.type for item in stored(host.conn.lookupByName("g1")).controllers].count("scsi")
    apply_twice(host, scsi_controller=False)
    data = {"name": "data", "size": 4, "model": "scsi"}
    host.update(disks=[SYSTEM, data])
    with pytest.raises(errors.InvalidInput, match="has disks or devices on it"):
        host.update(scsi_controller="none")


def test_an_isolated_port(host):  # noqa: F811
    # libvirt reads and writes the ports of its own network namespace there
    mount = [*host.daemon.inside, "mount", "-t", "sysfs", "none", "/sys"]
    subprocess.run(mount, check=True)
    network = host.conn.networkDefineXML("<network><name>lan</name><bridge name='br7'/></network>")
    network.create()
    nic = {"name": "eth0", "network": "lan", "mac": MAC}
    host.init(interfaces=[nic])
    answer = apply_twice(host, interfaces=[{**nic, "isolated": True}])
    assert [c["live"] for c in answer["changes"]] == [True]
    assert "pending" not in answer
    port = host.running().interfaces[0].target
    flag = [*host.daemon.inside, "cat", f"/sys/class/net/{port}/brport/isolated"]
    assert subprocess.run(flag, capture_output=True, text=True, check=True).stdout.strip() == "1"
    apply_twice(host, interfaces=[{**nic, "isolated": None}])
    assert subprocess.run(flag, capture_output=True, text=True, check=True).stdout.strip() == "0"


def test_sysinfo_and_the_scsi_controller(host):  # noqa: F811
    sysinfo = {
        "system": {"serial": "ds=nocloud;s=http://192.0.2.1/a,b/"},
        "chassis": {"asset": "inventory 4711"},
        "oem_strings": ["one"],
        "fw_cfg": {"opt/org.example/role": "hush"},
    }
    scsi = {"queues": 2, "iothread_id": 1}
    data = {"name": "data", "size": 4, "model": "scsi"}
    host.init(cpu={"maximum": 1, "iothreads": 1}, disks=[SYSTEM, data], sysinfo=sysinfo,
              scsi_controller=scsi)  # fmt: skip
    assert host.update(sysinfo=sysinfo, scsi_controller=scsi)["changes"] == []
    assert host.running().os.smbios == "sysinfo"
    answer = apply_twice(
        host,
        sysinfo={"chassis": None, "fw_cfg": {"opt/org.example/role": "hash"}},
        scsi_controller={"queues": None, "iothread_id": None},
    )
    assert paths(answer) == {
        "sysinfo:chassis:asset": ("inventory 4711", None),
        "sysinfo:fw_cfg:opt/org.example/role": ("(hidden)", "(hidden)"),
        "controllers:scsi0:iothread": (1, None),
        "controllers:scsi0:queues": (2, None),
    }


def test_folders_of_the_host(host, tmp_path):  # noqa: F811
    folders = [{"source": str(tmp_path), "target": name} for name in ("one", "two")]
    host.init(filesystems=folders[:1], start=False)
    dom = host.conn.lookupByName("g1")
    assert host.update(filesystems=folders[:1])["changes"] == []
    assert stored(dom).memory_backing.access == "shared"
    answer = apply_twice(host, filesystems=[*folders[:1], {**folders[1], "driver": "9p"}])
    assert paths(answer) == {"filesystems:two": (None, str(tmp_path))}
    answer = apply_twice(host, filesystems=[{**folders[0], "cache": "always"}])
    assert paths(answer) == {
        "filesystems:two": (str(tmp_path), None),
        "filesystems:one:cache_mode": (None, "always"),
    }
    plan9 = {**folders[0], "driver": "9p"}
    apply_twice(host, filesystems=[plan9])
    with pytest.raises(errors.InvalidInput, match="one: cache is for driver virtiofs"):
        host.update(filesystems=[{**folders[0], "cache": "always"}])
    apply_twice(host, filesystems=[{**folders[0], "accessmode": "mapped"}])
    apply_twice(host, filesystems=[{**folders[0], "accessmode": None}])
    assert paths(apply_twice(host, filesystems=[])) == {"filesystems:one": (str(tmp_path), None)}
    with pytest.raises(errors.InvalidInput, match="requested twice"):
        host.update(filesystems=[folders[0], folders[0]])


@pytest.mark.skipif(not os.path.exists("/usr/lib/qemu/virtiofsd"), reason="no virtiofsd")
def test_a_folder_of_a_running_guest(host, tmp_path):  # noqa: F811
    folder = {"source": str(tmp_path), "target": "one"}
    host.init(filesystems=[folder])
    assert [item.target for item in host.running().filesystems] == ["one"]
    answer = apply_twice(host, filesystems=[folder, {**folder, "target": "two"}])
    assert [change["live"] for change in answer["changes"]] == [False]
    assert any("filesystems:two" in text for text in answer["pending"])
    notes = host.modules["virt.snapshot"]("g1", name="s1")["notes"]
    assert any("its memory cannot be saved with a folder of the host (one)" in n for n in notes)
    [snapshot] = host.conn.lookupByName("g1").listAllSnapshots()
    snapshot.delete(libvirt.VIR_DOMAIN_SNAPSHOT_DELETE_METADATA_ONLY)


def test_a_scsi_device_and_a_virtual_function_are_accepted(host):  # noqa: F811
    nic = {"name": "eth1", "hostdev": "0000:03:10.1", "vlan": 42, "mac": "52:54:00:00:00:07"}
    disk = {"type": "scsi", "adapter": "scsi_host9", "bus": 0, "target": 0, "unit": 0}
    host.init(host_devices=[disk], interfaces=[nic], start=False)
    again = {"host_devices": [disk], "interfaces": [nic]}
    assert host.update(**again)["changes"] == []
    dom = host.conn.lookupByName("g1")
    assert (stored(dom).interfaces[0].type, stored(dom).interfaces[0].model) == ("hostdev", None)
    assert [item.model for item in stored(dom).controllers if item.type == "scsi"] == [
        "virtio-scsi"
    ]
    bridge = {"name": "eth1", "type": "user", "mac": "52:54:00:00:00:07"}
    apply_twice(host, host_devices=[], interfaces=[bridge])
    assert not len(stored(dom).host_devices)
    apply_twice(host, interfaces=[nic])
    assert stored(dom).interfaces[0].source == "0000:03:10.1"


def test_options_of_a_pool(host):  # noqa: F811
    kind, arguments = POOLS_OF_OURS["nfs-options"]
    host.modules["virt.pool_define"]("share", kind, start=False, **arguments)
    pool = host.conn.storagePoolLookupByName("share")
    update = functools.partial(host.modules["virt.pool_update"], "share", kind)
    try:
        definition = Pool.fromstring(pool.XMLDesc(libvirt.VIR_STORAGE_XML_INACTIVE))
        assert [option.name for option in definition.mount_options] == ["noatime", "nconnect=4"]
        assert definition.source.protocol_version == "4.2"
        assert update(**arguments) is False
        unnamed = {**arguments, "source_mount_opts": None, "source_protocol_ver": None}
        assert update(**unnamed) is False  # they are kept
        assert update(**{**arguments, "source_mount_opts": []}) is True
        assert "mount_opts" not in pool.XMLDesc(libvirt.VIR_STORAGE_XML_INACTIVE)
        with pytest.raises(errors.InvalidInput, match="no passwords here"):
            update(**{**arguments, "source_mount_opts": ["password=x"]})
    finally:
        pool.undefine()


def test_secure_boot_without_enrolled_keys(host):  # noqa: F811
    boot = {"efi": True, "secure": True, "enrolled_keys": False}
    host.init(machine="q35", boot=boot)
    system = host.running().os
    assert (system.loader_secure, system.nvram_template.rpartition("/")[2]) == (
        True,
        "OVMF_VARS_4M.fd",
    )
    assert apply_twice(host, boot=boot)["changes"] == []
    assert host.texts() == []
