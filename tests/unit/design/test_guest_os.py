"""The operating system of a guest: what it changes, and that settings of the user take
precedence."""

from dataclasses import replace

import pytest

from saltvirt.design import caps, domain
from saltvirt.design.operating_system import GuestOs
from saltvirt.diff.changes import changes
from saltvirt.errors import InvalidInput
from saltvirt.spec import guest
from tests import golden
from tests.unit.design.test_changes import given

ALL = [
    "relaxed", "vapic", "spinlocks", "vpindex", "runtime", "synic", "stimer", "reset",
    "frequencies", "reenlightenment", "tlbflush", "ipi", "evmcs", "avic",
]  # fmt: skip
WANTED = {*ALL} - {"reset", "reenlightenment", "evmcs", "avic"}
WINDOWS = GuestOs("windows", "windows", virtio_disk=False, virtio_nic=False, pcie=True)
WIN11 = GuestOs("win11", "windows", "http://microsoft.com/win/11", False, False, True, True)
LINUX = GuestOs("linux", "linux")
DATA = {"name": "data", "source_file": "/srv/data.qcow2", "format": "qcow2"}


def host(*reported, machine="pc-i440fx-7.2"):
    """Capabilities with these enlightenments; without any, as of an older libvirt."""
    text = golden.read("caps/qemu-kvm-domain.xml").replace("pc-i440fx-7.2", machine)
    start, end = text.index("<hyperv"), text.index("</hyperv>") + len("</hyperv>")
    values = "".join(f"<value>{name}</value>" for name in reported)
    block = f"<hyperv supported='yes'><enum name='features'>{values}</enum></hyperv>"
    return caps.parse(
        golden.read("caps/qemu.xml"), text[:start] + (block if reported else "") + text[end:]
    )


def inputs(guest_os):
    return given() if guest_os is None else _with(given(), guest_os)


def _with(result, guest_os):
    result.os = guest_os
    return result


def made(guest_os=WINDOWS, of_host=None, warnings=None, **more):
    spec = guest.parse("web1", 2, 512, os=guest_os.name, **more)
    return domain.build(spec, of_host or host(*ALL), inputs(guest_os), warnings)


def enlightened(built):
    return {name for name in ALL if getattr(built.features, f"hyperv_{name}")}


def timers(built):
    return [timer.name for timer in built.clock.timers]


def test_windows():
    built = made()
    assert enlightened(built) == WANTED
    assert built.features.hyperv_spinlocks_retries == 8191
    assert (built.clock.offset, timers(built)) == (
        "localtime",
        ["rtc", "pit", "hpet", "hypervclock"],
    )
    assert (built.disks[0].bus, built.interfaces[0].model) == ("sata", "e1000")
    assert (built.record.os, built.osinfo_id) == ("windows", None)
    assert (built.cpu.sockets, built.cpu.cores, built.cpu.threads) == (1, 2, 1)
    assert made(machine="q35").interfaces[0].model == "e1000e"


def test_the_whole_definition_of_windows_11():
    golden.same("domains/windows-11.xml", made(WIN11).tostring(indent=True))


def test_the_host_decides_which_enlightenments_there_are():
    assert enlightened(made(of_host=host())) == {"relaxed", "vapic", "spinlocks"}
    assert enlightened(made(of_host=host("stimer", "synic", "ipi", "vendor_id"))) == set()
    text = golden.read("caps/qemu-kvm-domain.xml")
    start, end = text.index("<hyperv"), text.index("</hyperv>") + len("</hyperv>")
    without = text[:start] + "<hyperv supported='no'/>" + text[end:]
    assert enlightened(made(of_host=caps.parse(golden.read("caps/qemu.xml"), without))) == set()


@pytest.mark.parametrize(("mode", "count"), [("passthrough", 0), ("custom", len(WANTED))])
def test_all_of_the_host_are_all(mode, count):
    actual = domain.build(guest.parse("web1", 2, 512), host(*ALL), given())
    actual.features.hyperv_mode = mode
    assert len(enlightened(amended(actual, WINDOWS))) == count


def test_settings_of_the_user_take_precedence():
    built = made(
        hypervisor="kvm",
        hypervisor_features={"hyperv-vpindex": False, "hyperv-reenlightenment": True},
        clock={"utc": True, "timers": {"hpet": {"present": True}}},
        disks=[{"name": "system", "model": "virtio"}, DATA],
        interfaces=[{"name": "eth0", "model": "virtio"}, {"name": "eth1", "network": "lan"}],
    )
    assert enlightened(built) == WANTED - {"vpindex", "synic", "stimer", "tlbflush", "ipi"} | {
        "reenlightenment"
    }
    assert built.features.hyperv_vpindex is False
    assert (built.clock.offset, timers(built)) == ("utc", ["hpet"])
    assert [disk.bus for disk in built.disks] == ["virtio"] * 2
    assert [nic.model for nic in built.interfaces] == ["virtio"] * 2
    assert made(hypervisor="kvm").interfaces[0].model == "e1000"


def test_queues_of_a_profile_do_not_refuse_a_system_without_virtio():
    """libvirt drops them for other models."""
    nic = {"name": "eth0", "queues": 4}
    assert made(LINUX, interfaces=[nic]).interfaces[0].queues == 4
    built = made(interfaces=[nic])
    assert (built.interfaces[0].model, built.interfaces[0].queues) == ("e1000", None)
    with pytest.raises(InvalidInput, match="queues is for model virtio"):
        made(interfaces=[{**nic, "model": "e1000"}])


def test_another_system_changes_nothing_but_its_name():
    built, plain = made(LINUX), domain.build(guest.parse("web1", 2, 512), host(*ALL), given())
    assert built.record.os == "linux"
    built.record.os = None
    assert built.tostring() == plain.tostring()


def test_windows_11_tells_what_it_requires():
    warnings = []
    assert made(WIN11, warnings=warnings).osinfo_id == "http://microsoft.com/win/11"
    assert warnings == [
        "os win11 requires UEFI with secure boot and a TPM 2.0: give machine: q35, "
        "boot: {efi: True, secure: True}, tpm: True"
    ]
    warnings.clear()
    able = host(*ALL)
    able = replace(able, domain=replace(able.domain, secure_boot=True))
    made(WIN11, able, warnings, machine="q35", boot={"efi": True, "secure": True}, tpm=True)
    assert warnings == []


def amended(actual, guest_os, of_host=None, **more):
    spec = guest.parse("web1", update=True, os=guest_os.name, **more)
    return domain.amend(spec, actual, of_host or host(*ALL), inputs(guest_os))


def paths(wanted, actual):
    return [change.path for change in changes(wanted, actual)]


def test_an_existing_guest_gets_it_once():
    actual = domain.build(guest.parse("web1", 2, 512), host(*ALL), given())
    actual.features.hyperv_ipi = False
    wanted = amended(actual, WINDOWS)
    assert enlightened(wanted) == WANTED - {"ipi"}
    assert (wanted.disks[0].bus, wanted.interfaces[0].model) == ("virtio", "virtio")
    found = paths(wanted, actual)
    assert {"os", "clock:offset", "clock:timers:hypervclock:present"} <= {*found}
    assert paths(amended(wanted, WINDOWS), wanted) == []
    built = made(of_host=host("relaxed"))
    assert paths(amended(built, WINDOWS), built) == [], "on a host with more enlightenments"
    built.features.hyperv_relaxed = None
    assert paths(amended(built, WINDOWS), built) == []
    assert paths(amended(built, LINUX), built) == ["os"]


@pytest.mark.parametrize("model", ["sata", "virtio"])
def test_a_further_disk_has_the_bus_of_the_first(model):
    actual = made(disks=[{"name": "system", "model": model}])
    spec = guest.parse("web1", update=True, disks=[{"name": "system"}, DATA])
    assert [disk.bus for disk in domain.amend(spec, actual, host(), given()).disks] == [model] * 2
