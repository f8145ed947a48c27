"""A spec and a host's capabilities result in a domain."""

import pytest

from saltvirt import errors
from saltvirt.design import caps, domain
from saltvirt.design.context import GuestInputs
from saltvirt.design.source import Source
from saltvirt.errors import InvalidInput, Unsupported, VirtError
from saltvirt.spec import guest
from tests import golden
from tests.golden.cases import DOMAINS, USB_DEVICE

UUID = "7f0e3f5e-2b0b-4c8e-8b39-5b3c1f1a1c11"


def host(name="qemu", domain_caps="qemu-kvm-domain"):
    xml = golden.read(f"caps/{domain_caps}.xml") if domain_caps else None
    return caps.parse(golden.read(f"caps/{name}.xml"), xml)


def made(**sources):
    numbers = iter(range(1, 100))
    found = {
        "system": Source(path="/srv/images/web1_system.qcow2", format="qcow2", created=True),
        "data": Source(path="/srv/images/web1_data.qcow2", format="qcow2", created=True),
    }
    return GuestInputs(
        uuid=UUID,
        mac=lambda _nic: f"52:54:00:00:00:{next(numbers):02x}",
        sources={**found, **sources},
        node_devices={"usb_1_1_2": USB_DEVICE},
    )


def build(capabilities=None, **arguments):
    spec = guest.parse("web1", **{"cpu": 2, "mem": 512, **arguments})
    return domain.build(spec, capabilities or host(), made())


def test_a_simple_guest():
    golden.same("domains/simple.xml", build(enable_vnc=True).tostring(indent=True))


@pytest.mark.parametrize("name", DOMAINS)
def test_domains(name):
    capabilities, of_domain, arguments = DOMAINS[name]
    built = build(host(capabilities, of_domain), **arguments)
    golden.same(f"domains/{name}.xml", built.tostring(indent=True))


def test_without_kvm_there_is_one_warning():
    text = golden.read("caps/qemu.xml").replace("<domain type='kvm'/>", "")
    plain = caps.parse(text, golden.read("caps/qemu-tcg-domain.xml"))
    warnings = []
    built = domain.build(guest.parse("web1", 2, 512), plain, made(), warnings)
    assert built.type == "qemu"
    assert built.cpu.model == "Westmere"
    assert len(warnings) == 1
    golden.same("domains/emulated.xml", built.tostring(indent=True))


def test_the_disks_we_made_are_recorded():
    disk = build().record.disks[0]
    assert (disk.target, disk.path) == ("vda", "/srv/images/web1_system.qcow2")


def test_secure_boot_where_no_firmware_can():
    with pytest.raises(Unsupported, match="secure"):
        build(boot={"efi": True, "secure": True})
    text = golden.read("caps/qemu-kvm-domain.xml")
    can = text.replace("<enum name='secure'>", "<enum name='secure'><value>yes</value>")
    able = caps.parse(golden.read("caps/qemu.xml"), can)
    built = build(able, boot={"efi": True, "secure": True}, machine="q35")
    assert (built.os.firmware, built.os.loader_secure, built.features.smm) == ("efi", True, True)


def test_efi_where_there_is_no_firmware():
    text = golden.read("caps/qemu-kvm-domain.xml").replace("<value>efi</value>", "")
    plain = caps.parse(golden.read("caps/qemu.xml"), text)
    with pytest.raises(Unsupported, match="no EFI firmware"):
        build(plain, boot={"efi": True})


def test_xen_has_no_channel_for_spice():
    """S#59416"""
    for name in ("xen-hvm", "xen-pv"):
        kind, of_domain, arguments = DOMAINS[name]
        built = build(host(kind, of_domain), **{**arguments, "graphics": "spice"})
        assert len(built.channels) == 0
    assert len(build(graphics="spice").channels) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"graphics": "rdp"}, "no rdp"),
        ({"disks": [{"name": "a", "model": "xen"}]}, "no bus 'xen'"),
        ({"cpu": 4096}, "at most 255 CPUs"),
        ({"machine": "virt"}, "machine 'virt'"),
        ({"tpm": {"type": "passthrough"}, "capabilities": ("xen", "xen-hvm-domain")}, None),
        ({"arch": "sparc"}, "cannot run sparc"),
        ({"disks": [{"name": "b", "size": 1}]}, "is unknown"),
        ({"disks": [{"name": "a", "source_file": "/a", "target": "vda"},
                    {"name": "b", "source_file": "/b", "target": "vda"}]}, "requested twice"),
        ({"disks": [{"name": "a", "source_file": "/a", "iothread_id": 2}]}, "0 iothreads"),
        ({"disks": [{"name": "a", "source_file": "/a", "io": "native", "cache": "writeback"}]},
         "needs cache none"),
        ({"rng": True, "capabilities": ("xen", "xen-hvm-domain")}, "no random number device"),
        ({"disks": [{"name": "cd", "device": "cdrom"}], "capabilities": ("lxc", None)},
         "disk cd: a container takes image files and block devices"),
        ({"host_devices": ["usb_9_9"]}, "no device 'usb_9_9'"),
        ({"mem": 512, "cpu": {"maximum": 1, "numa": {0: {"cpus": 0, "memory": "1g"}}}}, "1 GiB"),
        ({"boot": {"enrolled_keys": False}}, "enrolled_keys: give efi: True"),
        ({"filesystems": [{"source": "/a", "target": "a", "accessmode": "squash"}]}, "driver 9p"),
        ({"filesystems": [{"source": "/a", "target": "a", "driver": "9p", "cache": "none"}]},
         "a: cache is for driver virtiofs"),
        ({"disks": [{"name": "a", "source_file": "/a", "iotune": {"size_iops_sec": 4096}}]},
         "size_iops_sec needs a limit of operations"),
        ({"disks": [{"name": "a", "source_file": "/a", "iotune": {"group_name": "g"}}]},
         "group_name needs a limit"),
    ],
)  # fmt: skip
def test_what_the_host_cannot_do_is_said_before(arguments, message):
    arguments = dict(arguments)
    capabilities = host(*arguments.pop("capabilities", ("qemu", "qemu-kvm-domain")))
    if message is None:
        assert build(capabilities, **arguments).tpms
        return
    with pytest.raises(VirtError, match=message) as error:
        build(capabilities, **arguments)
    assert "\n" not in str(error.value)


def without(start, end):
    """A QEMU host of which libvirt does not tell what stands between two texts."""
    text = golden.read("caps/qemu-kvm-domain.xml")
    before, rest = text.split(start, 1)
    return caps.parse(golden.read("caps/qemu.xml"), before + start + end + rest.split(end, 1)[1])


@pytest.mark.parametrize(
    ("start", "end", "arguments", "message"),
    [
        ("<tpm supported='yes'>", "</tpm>", {"tpm": True}, "tpm: this host has no emulator"),
        ("<disk supported='yes'>", "</disk>", {}, "names no bus for a disk"),
    ],
)
def test_a_host_whose_device_can_be_nothing(start, end, arguments, message):
    with pytest.raises(Unsupported, match=message):
        build(without(start, end), **arguments)


def test_a_host_whose_guests_have_no_tpm():
    text = golden.read("caps/qemu-kvm-domain.xml").replace(
        "<tpm supported='yes'>", "<tpm supported='no'>"
    )
    with pytest.raises(Unsupported, match="tpm: this host's guests have none"):
        build(caps.parse(golden.read("caps/qemu.xml"), text), tpm=True)


def test_a_host_without_devices_of_its_own_for_guests():
    text = golden.read("caps/qemu-kvm-domain.xml").replace(
        "<hostdev supported='yes'>", "<hostdev supported='no'>"
    )
    with pytest.raises(Unsupported, match="host_devices: this host's guests can have none"):
        build(caps.parse(golden.read("caps/qemu.xml"), text), host_devices=["0000:03:00.0"])


def test_the_bus_of_a_lun_and_of_a_disk_on_vmware():
    lun = {"name": "a", "device": "lun", "source_file": "/dev/b"}
    (disk,) = build(disk=None, disks=[lun]).disks
    assert (disk.device, disk.bus, disk.target) == ("lun", "scsi", "sda")
    esx = """<capabilities><host><cpu><arch>x86_64</arch></cpu></host><guest><os_type>hvm</os_type>
      <arch name='x86_64'><domain type='vmware'/></arch></guest></capabilities>"""
    (disk,) = build(caps.parse(esx)).disks
    assert (disk.bus, disk.target) == ("scsi", "sda")


@pytest.mark.parametrize(
    ("source_file", "more", "expected"),
    [
        ("/dev/vg/data", {}, ("none", "native")),
        ("/dev/vg/data", {"io": "threads"}, ("none", "threads")),
        ("/dev/vg/data", {"cache": "writeback"}, ("writeback", None)),
        ("/srv/data.raw", {}, (None, None)),
    ],
)
def test_a_block_device_bypasses_the_cache_of_the_host(source_file, more, expected):
    built = build(disks=[{"name": "x", "source_file": source_file, **more}])
    disk = built.disks[len(built.disks) - 1]
    assert (disk.cache, disk.io) == expected


@pytest.mark.parametrize(
    ("block", "given", "expected"),
    [
        (True, {}, ("none", "native")),
        (True, {"cache": "writeback"}, ("writeback", None)),
        (False, {}, (None, None)),
    ],
)
def test_a_pool_of_block_devices_bypasses_the_cache_of_the_host(block, given, expected):
    source = Source(pool="vg", volume="web1_system", format="raw", created=True, block=block)
    spec = guest.parse("web1", 1, 512, disks=[{"name": "system", "pool": "vg", **given}])
    (disk,) = domain.build(spec, host(), made(system=source)).disks
    assert (disk.type, disk.cache, disk.io) == ("volume", *expected)


@pytest.mark.parametrize("cache", ["writeback", None])
def test_another_cache_takes_the_default_io_with_it(cache):
    data = {"name": "x", "source_file": "/dev/vg/data"}
    actual = build(disks=[{"name": "system"}, data])
    spec = guest.parse("web1", update=True, disks=[{**data, "cache": cache}])
    (disk,) = domain.amend(spec, actual, host(), made()).disks
    assert (disk.source.dev, disk.cache, disk.io) == ("/dev/vg/data", cache, None)


def test_native_io_needs_no_cache():
    (disk,) = build(disks=[{"name": "system", "io": "native"}]).disks
    assert (disk.io, disk.cache) == ("native", "none")


def test_a_container_on_a_block_device():
    lxc = host("lxc", None)
    (root,) = build(lxc, disk=None, disks=[{"name": "a", "source_file": "/dev/vg0/a"}]).filesystems
    assert (root.type, root.source_dev, root.source_file) == ("block", "/dev/vg0/a", None)
    assert (root.target, root.driver_type) == ("/", None)


def test_xen_of_which_libvirt_does_not_tell_a_machine():
    assert build(host("xen", None)).os.machine == "xenfv"


def test_spinlocks_of_hyper_v_have_a_number_of_retries():
    features = build(hypervisor_features={"hyperv-spinlocks": True}).features
    assert (features.hyperv_spinlocks, features.hyperv_spinlocks_retries) == (True, 8191)


def test_a_display_listens_on_the_host_only():
    for kind in ("vnc", "spice"):
        (display,) = build(graphics=kind).graphics
        assert (display.listen, display.listens[0].address) == ("127.0.0.1", "127.0.0.1")
        assert display.autoport


def test_each_argument_of_the_runner_reaches_the_domain():
    """S#40212"""
    built = build(enable_vnc=True, serial_type="tcp", cpu=3, mem=768)
    assert [display.type for display in built.graphics] == ["vnc"]
    assert [serial.type for serial in built.serials] == ["tcp"]
    assert (built.vcpu.maximum, built.memory_kib) == (3, 768 * 1024)


def test_a_balloon_that_is_not_there_cannot_take_memory():
    built = build(mem={"boot": 512, "current": 256}, memballoon="none")
    assert built.current_memory_kib == 512 * 1024


def test_devices_that_cannot_be_given():
    spec = guest.parse("web1", 1, 512, host_devices=["usb_1_1_2"])
    given = made()
    given.node_devices["usb_1_1_2"] = "<device><capability type='net'/></device>"
    with pytest.raises(InvalidInput, match="neither a PCI nor a USB"):
        domain.build(spec, host(), given)
    xml = """<device><capability type='pci'><domain>0</domain><bus>3</bus><slot>0x1f</slot>
      <function>2</function></capability></device>"""
    given.node_devices["usb_1_1_2"] = "<device><capability type='pci'/></device>"
    with pytest.raises(InvalidInput, match="<capability> has no <domain>"):
        domain.build(spec, host(), given)
    given.node_devices["usb_1_1_2"] = xml
    (device,) = domain.build(spec, host(), given).host_devices
    assert device.source_key() == ("pci", 0, 3, 0x1F, 2)


@pytest.mark.parametrize("word", ["cpu", "mem"])
def test_cpu_and_memory_are_needed(word):
    with pytest.raises(errors.VirtError, match=f"{word} is missing"):
        build(**{word: None})
