"""The differences between the requested and the existing definition of a guest."""

from xml.etree import ElementTree

import pytest

from saltvirt.design import caps, domain
from saltvirt.design.context import GuestInputs
from saltvirt.design.source import Source
from saltvirt.diff.changes import changes
from saltvirt.errors import InvalidInput, Unsupported
from saltvirt.spec import guest
from saltvirt.xml.devices.audio import Audio, RedirDevice
from saltvirt.xml.devices.disk_backing import BackingStore
from saltvirt.xml.devices.watchdog import Watchdog
from tests import golden

CAPS = caps.parse(golden.read("caps/qemu.xml"), golden.read("caps/qemu-kvm-domain.xml"))
MADE = Source(path="/srv/web1_system.qcow2", format="qcow2", created=True)


def given(**sources):
    numbers = iter(range(1, 100))
    return GuestInputs(
        sources={"system": MADE, **sources},
        mac=lambda _nic: f"52:54:00:00:00:{next(numbers):02x}",
    )


def existing(**arguments):
    arguments = {"cpu": 2, "mem": 512, **arguments}
    return domain.build(guest.parse("web1", **arguments), CAPS, given())


def update(actual, sources=None, **arguments):
    """(changes, changes once they are applied)"""
    spec = guest.parse("web1", update=True, **arguments)
    wanted = domain.amend(spec, actual, CAPS, given(**(sources or {})))
    again = domain.amend(spec, wanted, CAPS, given(**(sources or {})))
    assert changes(again, wanted) == []
    return changes(wanted, actual)


def shown(found):
    return {change.path: (change.old, change.new, change.live) for change in found}


def test_nothing_asked_for_is_nothing_changed():
    assert update(existing(enable_vnc=True)) == []


def test_the_same_again_is_nothing_changed():
    arguments = {"cpu": 2, "mem": 512, "graphics": "vnc", "disk": "default", "nic": "default"}
    assert update(existing(graphics="vnc"), **arguments) == []


def test_memory_and_cpus():
    found = shown(update(existing(), cpu={"maximum": 4, "current": 3}, mem=1024))
    assert found == {
        "memory_kib": (524288, 1048576, False),
        "current_memory_kib": (524288, 1048576, False),
        "vcpu:maximum": (2, 4, False),
        "vcpu:current": (2, 3, False),
    }


def test_a_balloon_that_is_no_longer_asked_for_is_given_back_while_the_guest_runs():
    actual = existing(mem={"boot": 1024, "current": 512})
    found = shown(update(actual, mem={"current": None}))
    assert found == {"current_memory_kib": (524288, 1048576, True)}


def test_cpus_and_memory_within_the_maximum_are_live():
    actual = existing(cpu={"maximum": 4, "current": 2}, mem={"boot": 1024, "current": 512})
    found = shown(update(actual, cpu={"current": 3}, mem={"current": 768}))
    assert found == {
        "vcpu:current": (2, 3, True),
        "current_memory_kib": (524288, 786432, True),
    }


def test_none_takes_a_setting_away():
    actual = existing(
        mem={"boot": 512, "hard_limit": "1g"},
        cpu={"maximum": 2, "tuning": {"vcpupin": {0: "1", 1: "0"}}},
        boot={"kernel": "/k", "cmdline": "quiet"},
    )
    found = shown(
        update(
            actual,
            mem={"hard_limit": None},
            cpu={"tuning": {"vcpupin": {0: None}}},
            boot={"cmdline": None},
        )
    )
    assert found == {
        "memtune:hard_limit_kib": (1048576, None, False),
        "cputune:vcpupins:0:vcpu": (0, None, False),
        "cputune:vcpupins:0:cpuset": ("1", None, False),
        "os:cmdline": ("quiet", None, False),
    }


def test_a_disk_is_attached_and_detached():
    actual = existing()
    data = {"name": "data", "size": 100}
    disks = [{"name": "system"}, data]
    sources = {"data": Source(path="/srv/web1_data.qcow2", format="qcow2", created=True)}
    (change,) = update(actual, sources, disks=disks)
    assert (change.path, change.action, change.live) == ("disks:vdb", "attach", True)
    assert "/srv/web1_data.qcow2" in change.xml
    spec = guest.parse("web1", update=True, disks=disks)
    more = domain.amend(spec, actual, CAPS, given(**sources))
    assert [own.path for own in more.record.disks] == [
        "/srv/web1_system.qcow2",
        "/srv/web1_data.qcow2",
    ]
    (change,) = update(more, disks=[{"name": "system"}])
    assert (change.path, change.action) == ("disks:vdb", "detach")


def test_a_new_disk_has_the_cache_mode_of_its_storage():
    """If its definition has none; a disk that the guest has stays as it is."""
    on_shared = {"data": Source(path="/srv/nfs/web1_data.qcow2", format="qcow2", cache="none")}
    given_modes = ({}, "'none'"), ({"cache": "writeback"}, "'writeback'"), ({"cache": None}, "")
    for words, cache in given_modes:
        disks = [{"name": "system"}, {"name": "data", "size": 100, **words}]
        (change,) = update(existing(), on_shared, disks=disks)
        assert (f"cache={cache}" if cache else "<driver") in change.xml.replace('"', "'")
        assert cache or "cache" not in change.xml
    old = existing()
    known = {"system": Source(path=MADE.path, format="qcow2", cache="none")}
    assert update(old, known, disks=[{"name": "system"}]) == []


def test_another_file_does_not_get_the_layers_below_the_old_one():
    actual = existing()
    actual.disks[0].backing_store = BackingStore(type="file", format="qcow2")
    other = {"name": "system", "source_file": "/srv/other.qcow2", "target": "vda"}
    spec = guest.parse("web1", update=True, disks=[other])
    elsewhere = Source(path="/srv/other.qcow2", format="qcow2")
    targets = {"system": "vda"}
    known = GuestInputs(sources={"system": elsewhere}, disk_targets=targets)
    wanted = domain.amend(spec, actual, CAPS, known)
    (disk,) = wanted.disks
    assert (disk.source.file, disk.need().find("backingStore")) == ("/srv/other.qcow2", None)


def test_a_block_device_goes_only_with_an_empty_list():
    block = {"name": "lv", "source_file": "/dev/vg0/lv"}
    actual = existing(disks=[block])
    assert update(actual, disks=[{"name": "system"}]) == []
    found = update(actual, disks=[])
    assert {change.path for change in found} == {"disks:vda", "disks:vdb"}


def test_a_block_source_needs_no_size_and_stays():
    block = {"name": "lv", "source_file": "/dev/vg0/lv"}
    actual = existing(disks=[block])
    assert update(actual, disks=[{"name": "system"}, block]) == []


def test_the_medium_of_a_cd_drive():
    cd = {"name": "cd", "device": "cdrom", "source_file": "/iso/a.iso"}
    actual = existing(disks=[cd])
    (change,) = update(actual, disks=[{"name": "system"}, {**cd, "source_file": "/iso/b.iso"}])
    assert (change.action, change.live) == ("medium", True)
    assert (change.old, change.new) == ("/iso/a.iso", "/iso/b.iso")
    (change,) = update(actual, disks=[{"name": "system"}, {**cd, "source_file": None}])
    assert (change.action, change.new) == ("medium", None)
    empty = {"name": "cd", "device": "cdrom", "source_file": None}
    (change,) = update(existing(), disks=[{"name": "system"}, empty])
    assert (change.action, change.old, change.new) == ("attach", None, "an empty drive")


def test_moving_a_nic_keeps_its_mac():
    actual = existing()
    found = update(actual, interfaces=[{"name": "eth0", "network": "lan"}])
    assert all(change.live and change.action == "update" for change in found)
    assert 'address="52:54:00:00:00:01"' in found[0].xml
    assert shown(found) == {
        "nics:52:54:00:00:00:01:bridge": ("br0", None, True),
        "nics:52:54:00:00:00:01:network": (None, "lan", True),
        "nics:52:54:00:00:00:01:type": ("bridge", "network", True),
    }


def test_a_nic_that_libvirt_cannot_reconnect_waits_for_the_next_start():
    changes = update(existing(), interfaces=[{"name": "eth0", "type": "user"}])
    assert changes
    assert not [change.path for change in changes if change.live]


def test_nics_come_and_go():
    two = [{"name": "eth0"}, {"name": "eth1", "network": "lan"}]
    (change,) = update(existing(), interfaces=two)
    assert (change.action, change.new["source"]) == ("attach", "lan")
    (change,) = update(existing(interfaces=two), interfaces=[{"name": "eth1", "network": "lan"}])
    assert (change.action, change.old["source"]) == ("detach", "br0")


def test_a_password_is_never_shown():
    actual = existing(graphics={"type": "vnc", "password": "old-one"})
    (change,) = update(actual, graphics={"type": "vnc", "password": "hush-hush"})
    assert change.live
    assert "hush" not in repr(change) + str(change.show())
    assert "old-one" not in repr(change) + str(change.show())
    assert "hush-hush" in change.xml


def test_a_first_password_waits_for_the_next_start():
    (change,) = update(existing(graphics="vnc"), graphics={"type": "vnc", "password": "x"})
    assert not change.live


def test_the_controller_comes_before_its_disk():
    wish = [{"name": "system"}, {"name": "s", "source_file": "/s.img", "model": "scsi"}]
    found = update(existing(), disks=wish)
    assert [(change.subject, change.action, change.live) for change in found] == [
        ("controllers", "attach", True),
        ("disks", "attach", True),
    ]


def test_the_display_goes_and_comes():
    (change,) = update(existing(graphics="vnc"), graphics={"type": "none"})
    assert (change.path, change.new) == ("graphics:vnc", None)
    found = shown(update(existing(), graphics="spice"))
    assert found["graphics:spice"] == (None, "spice", False)
    assert "channels" in found


def test_size_and_autostart():
    actual = existing()
    found = changes(actual, actual, sizes={"vda": (1, 2), "vdb": (2, 2)}, autostart=(True, False))
    assert [(c.path, c.action, c.live) for c in found] == [
        ("disks:vda:size_bytes", "resize", True),
        ("autostart", "set", True),
    ]
    assert changes(actual, actual, autostart=(None, True)) == []


def test_without_live_all_wait_for_the_next_start():
    actual = existing(cpu={"maximum": 4, "current": 2})
    wanted = domain.amend(guest.parse("web1", update=True, cpu={"current": 3}), actual, CAPS)
    assert [change.live for change in changes(wanted, actual, live=False)] == [False]


def test_firmware_that_libvirt_chose_is_no_difference():
    """S#59188"""
    actual = existing(boot={"efi": True})
    actual.os.loader = "/usr/share/OVMF/OVMF_CODE_4M.fd"
    actual.os.loader_type, actual.os.loader_readonly = "pflash", True
    actual.os.nvram = "/var/lib/libvirt/qemu/nvram/web1_VARS.fd"
    actual.os.nvram_template = "/usr/share/OVMF/OVMF_VARS_4M.fd"
    assert update(actual, boot={"efi": True}) == []
    assert changes(existing(boot={"efi": True}), actual) == []
    found = shown(update(actual, boot={"efi": False}))
    assert found["os:firmware"] == ("efi", None, False)


@pytest.mark.parametrize("boot", [{"efi": False}, {"loader": "/l", "nvram": "/t"}])
def test_variables_of_the_firmware_go_with_it_however_libvirt_writes_them(boot):
    actual = existing(boot={"efi": True})
    nvram = ElementTree.fromstring("<nvram type='file'><source file='/v/web1_VARS.fd'/></nvram>")
    actual.os.need().append(nvram)
    wanted = domain.amend(guest.parse("web1", update=True, boot=boot), actual, CAPS)
    assert "web1_VARS" in actual.tostring()
    assert "web1_VARS" not in wanted.tostring()
    assert (wanted.os.need().find("nvram") is None) == ("nvram" not in boot)


def test_a_number_of_cpus_means_that_all_of_them_run():
    actual = existing(cpu={"maximum": 4, "current": 2})
    assert shown(update(actual, cpu=4)) == {"vcpu:current": (2, 4, True)}
    assert shown(update(actual, cpu=1)) == {
        "vcpu:current": (2, 1, True),
        "vcpu:maximum": (4, 1, False),
    }


def test_fewer_cpus_take_their_pins_and_the_topology_with_them():
    tuning = {"vcpupin": {0: 0, 3: 1}, "vcpusched": [{"scheduler": "rr", "priority": 1}]}
    topology = {"sockets": 2, "cores": 2, "threads": 1}
    actual = existing(cpu={"maximum": 4, "topology": topology, "tuning": tuning})
    wanted = domain.amend(guest.parse("web1", update=True, cpu=2), actual, CAPS)
    assert [pin.vcpu for pin in wanted.cputune.vcpupins] == [0]
    assert [sched.vcpus for sched in wanted.cputune.vcpuscheds] == ["0-1"]
    assert (wanted.cpu.sockets, wanted.cpu.cores) == (1, 2)
    odd = domain.amend(guest.parse("web1", update=True, cpu=3), actual, CAPS)
    assert (odd.cpu.sockets, odd.cpu.cores, odd.cpu.threads) == (3, 1, 1)


def test_fewer_cpus_than_numa_cells_name():
    numa = {0: {"cpus": "0-1", "memory": "256"}, 1: {"cpus": "2-3", "memory": "256"}}
    actual = existing(cpu={"maximum": 4, "numa": numa})
    with pytest.raises(InvalidInput, match="cell 1 has CPU 3"):
        update(actual, cpu=2)


def test_another_cpu_mode_forgets_the_model():
    actual = existing(cpu={"maximum": 2, "model": "EPYC", "vendor": "AMD"})
    wanted = domain.amend(
        guest.parse("web1", update=True, cpu={"mode": "host-passthrough"}), actual, CAPS
    )
    assert (wanted.cpu.mode, wanted.cpu.model, wanted.cpu.vendor) == (
        "host-passthrough",
        None,
        None,
    )


@pytest.mark.parametrize("before", [None, True, {"model": "tpm-crb"}])
def test_a_tpm_1_2_has_the_interface_of_its_time(before):
    asked = {"tpm": {"version": "1.2"}}
    made = existing(**asked) if before is None else existing(tpm=before)
    (tpm,) = domain.amend(guest.parse("web1", update=True, **asked), made, CAPS).tpms
    assert (tpm.model, tpm.version) == ("tpm-tis", "1.2")


def test_a_place_in_the_boot_order_is_taken_from_who_had_it():
    data = {"name": "data", "source_file": "/srv/data.raw", "format": "raw"}
    actual = existing(disks=[{"name": "system", "boot_order": 1}, {**data, "boot_order": 2}])
    found = shown(update(actual, disks=[{"name": "system"}, {**data, "boot_order": 1}]))
    assert found == {
        "disks:vda:boot_order": (1, None, False), "disks:vdb:boot_order": (2, 1, False)
    }  # fmt: skip
    found = shown(update(actual, interfaces=[{"name": "eth0", "boot_order": 1}]))
    assert found["disks:vda:boot_order"] == (1, None, False) and len(found) == 2


def test_boot_dev_takes_the_order_off_host_devices():
    actual = existing(host_devices=["0000:3b:00.0"])
    actual.host_devices[0].boot_order = 1
    actual.os.boots = []
    wanted = domain.amend(guest.parse("web1", update=True, boot_dev="network"), actual, CAPS)
    assert [device.boot_order for device in wanted.host_devices] == [None]


def test_another_tpm():
    actual = existing(tpm=True)
    wish = {"tpm": {"type": "passthrough", "device": "/dev/tpm0"}}
    assert update(actual, **wish)
    (tpm,) = domain.amend(guest.parse("web1", update=True, **wish), actual, CAPS).tpms
    assert (tpm.backend, tpm.device_path, tpm.version) == ("passthrough", "/dev/tpm0", None)


def test_what_needs_spice_goes_with_it():
    actual = existing(graphics="spice")
    actual.audios.append(Audio(id=1, type="spice"))
    actual.redirdevs.append(RedirDevice(bus="usb", type="spicevmc"))
    wanted = domain.amend(guest.parse("web1", update=True, graphics="vnc"), actual, CAPS)
    assert (len(wanted.audios), len(wanted.redirdevs), len(wanted.channels)) == (0, 0, 1)


def test_what_libvirt_and_qemu_add_by_themselves_is_no_difference():
    """The disk to boot from, the watchdog of the machine q35, the port of a web socket."""
    actual = existing(machine="q35", graphics={"type": "vnc", "websocket": -1})
    assert [item.dev for item in actual.os.boots] == ["hd"]
    actual.watchdogs.append(Watchdog(model="itco", action="reset"))
    assert update(actual, boot_dev=[], watchdog=False) == []
    actual.graphics[0].websocket = None
    assert update(actual, graphics={"type": "vnc", "websocket": -1}) == []
    actual.watchdogs[0].model = "i6300esb"
    assert "watchdogs" in shown(update(actual, watchdog=False))


def test_a_scheduler_of_the_emulator_is_taken_away():
    sched = {"scheduler": "rr", "priority": 3}
    actual = existing(cpu={"maximum": 2, "tuning": {"emulatorsched": sched}})
    assert (actual.cputune.emulatorsched, actual.cputune.emulatorsched_priority) == ("rr", 3)
    spec = guest.parse("web1", update=True, cpu={"tuning": {"emulatorsched": None}})
    assert not domain.amend(spec, actual, CAPS, given()).cputune


def test_a_target_that_is_asked_for_goes_to_no_disk_before_it():
    first, second = ({"name": name, "source_file": f"/{name}"} for name in "bc")
    found = update(existing(), disks=[{"name": "system"}, first, {**second, "target": "vdb"}])
    assert [(one.path, one.new) for one in found] == [("disks:vdc", "/b"), ("disks:vdb", "/c")]
    other_bus = {"name": "system", "model": "scsi"}
    found = update(existing(), disks=[other_bus, {**second, "target": "sda"}])
    wanted = {"disks:vda": None, "disks:sdb": MADE.path, "disks:sda": "/c"}
    assert {one.path: one.new for one in found if one.path != "controllers"} == wanted


def test_a_disk_gets_another_bus():
    """With a target that is free on it, no address, and as the guest's own as before."""
    actual = existing()
    actual.disks[0].address.type = "pci"
    spec = guest.parse("web1", update=True, disks=[{"name": "system", "model": "scsi"}])
    known = Source(path=MADE.path, format="qcow2")
    wanted = domain.amend(spec, actual, CAPS, GuestInputs(sources={"system": known}))
    (disk,) = wanted.disks
    assert (disk.bus, disk.target, disk.source.file) == ("scsi", "sda", MADE.path)
    assert not disk.address
    assert [(own.target, own.path) for own in wanted.record.disks] == [("sda", MADE.path)]


def test_states_of_single_cpus_follow_their_number():
    actual = existing(cpu={"maximum": 4, "current": 2, "vcpus": {3: {"enabled": True}}})
    assert [state.enabled for state in actual.vcpus] == [True, False, False, True]
    wanted = domain.amend(guest.parse("web1", update=True, cpu={"current": 3}), actual, CAPS)
    assert [state.enabled for state in wanted.vcpus] == [True, True, False, True]
    gone = guest.parse("web1", update=True, cpu={"vcpus": None})
    assert len(domain.amend(gone, actual, CAPS).vcpus) == 0


def test_a_port_stays_until_it_is_taken_away():
    actual = existing(graphics={"type": "vnc", "port": 5907})
    assert update(actual, graphics="vnc") == []
    found = shown(update(actual, graphics={"type": "vnc", "port": None}))
    assert found["graphics:vnc:port"] == (5907, None, False)


def test_another_file_at_the_same_target():
    wish = [{"name": "other", "target": "vda", "source_file": "/b.img", "format": "raw"}]
    found = update(existing(), disks=wish)
    assert [(change.action, change.old, change.new) for change in found] == [
        ("detach", "/srv/web1_system.qcow2", None),
        ("attach", None, "/b.img"),
    ]
    spec = guest.parse("web1", update=True, disks=wish)
    assert len(domain.amend(spec, existing(), CAPS, given()).record.disks) == 0


def test_boot_order_of_devices_takes_the_place_of_boot_dev():
    actual = existing()
    wish = {"disks": [{"name": "system", "boot_order": 1}]}
    found = shown(update(actual, **wish))
    assert found["os:boots"] == ([{"dev": "hd"}], None, False)
    assert found["disks:vda:boot_order"] == (None, 1, False)
    wanted = domain.amend(guest.parse("web1", update=True, **wish), actual, CAPS, given())
    back = domain.amend(guest.parse("web1", update=True, boot_dev="hd"), wanted, CAPS)
    assert back.disks[0].boot_order is None


def test_containers():
    lxc = caps.parse(golden.read("caps/lxc.xml"))
    actual = domain.build(guest.parse("web1", 1, 512), lxc, given())
    same = guest.parse("web1", update=True, disk="default", nic="default")
    assert changes(domain.amend(same, actual, lxc, given()), actual) == []
    other = guest.parse("web1", update=True, disks=[{"name": "a", "source_file": "/b"}])
    with pytest.raises(Unsupported, match="cannot be changed"):
        domain.amend(other, actual, lxc, given())


@pytest.mark.parametrize(("left", "gone"), (
    (["usb_1_1_3"], ["usb:1133:49271"]), ([], ["usb:1133:49271", "usb:1133:49272"]),
))  # fmt: skip
def test_devices_of_the_host_that_are_not_asked_for_again_are_taken_away(left, gone):
    usb = """<device><capability type='usb_device'><bus>1</bus><device>{0}</device>
      <product id='0xc07{1}'/><vendor id='0x046d'/></capability></device>"""
    known = given()
    known.node_devices.update(usb_1_1_2=usb.format(2, 7), usb_1_1_3=usb.format(3, 8))
    spec = guest.parse("web1", 1, 512, host_devices=["usb_1_1_2", "usb_1_1_3"])
    actual = domain.build(spec, CAPS, known)
    spec = guest.parse("web1", update=True, host_devices=left)
    found = changes(domain.amend(spec, actual, CAPS, known), actual)
    assert {(one.path, one.action, one.new) for one in found} == {
        (f"host_devices:{key}", "detach", None) for key in gone
    }


@pytest.mark.parametrize("model", ("virtio", "none"))
def test_a_balloon_that_nobody_had_defined(model):
    actual = existing()
    for node in actual.node.findall("devices/memballoon"):
        actual.node.find("devices").remove(node)
    found = shown(update(actual, memballoon=model))
    assert found == {"memballoon": (None, model, False)}


def test_a_tpm_that_is_not_wanted_any_more():
    assert "tpms" in shown(update(existing(tpm=True), tpm="none"))


def test_an_old_word_of_xens():
    xen = caps.parse(golden.read("caps/xen.xml"), golden.read("caps/xen-pv-domain.xml"))
    actual = domain.build(guest.parse("web1", 1, 512, os_type="xen"), xen, given())
    actual.os.type = "linux"
    spec = guest.parse("web1", update=True, mem=512)
    assert changes(domain.amend(spec, actual, xen, given()), actual) == []


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ({"boot_dev": "network hd"}, "os:boots"),
        ({"boot": {"kernel": "/k"}}, "os:kernel"),
        ({"boot": {"efi": True}}, "os:firmware"),
        ({"numatune": {"memory": {"mode": "strict", "nodeset": 0}}}, "numatune:mode"),
        ({"hypervisor_features": {"kvm-hint-dedicated": True}}, "features:kvm_hint_dedicated"),
        ({"clock": {"utc": False}}, "clock:offset"),
        ({"clock": {"timers": {"hpet": {"present": True}}}}, "clock:timers:hpet:present"),
        ({"serials": [{"type": "tcp", "port": 2222}]}, "serials"),
        ({"consoles": [{"type": "pty", "target_type": "virtio"}]}, "consoles"),
        ({"stop_on_reboot": True}, "on_reboot"),
        ({"on_crash": "restart"}, "on_crash"),
        ({"title": "a"}, "title"),
        ({"metadata": {"owner": "me"}}, "metadata:owner"),
        ({"rng": False}, "rngs"),
        ({"watchdog": "i6300esb"}, "watchdogs"),
        ({"tpm": True}, "tpms"),
        ({"memballoon": "none"}, "memballoon:model"),
        ({"host_devices": ["0000:03:00.0"]}, "host_devices:pci:0:3:0:0"),
        ({"guest_agent": False}, "channels"),
        ({"cpu": {"features": {"pcid": "require"}}}, "cpu:features:pcid:policy"),
        ({"cpu": {"iothreads": 2}}, "iothreads"),
        ({"mem": {"max": "2g", "slots": 4}}, "max_memory_kib"),
        ({"mem": {"hugepages": [{"size": "2m"}]}}, "memory_backing:pages"),
    ],
)
def test_each_thing_that_can_change(arguments, path):
    assert path in shown(update(existing(), **arguments))
