"""Guests that Salt 3007 created: the same arguments change nothing. The definitions were recorded
with libvirt 9.0."""

import pytest

from saltvirt.design import caps, domain
from saltvirt.design.context import GuestInputs
from saltvirt.design.source import Source
from saltvirt.diff.changes import changes
from saltvirt.errors import InvalidInput, Unsupported
from saltvirt.spec import guest, pool
from saltvirt.xml.domain.domain import Domain
from tests import golden

CAPS = caps.parse(golden.read("caps/qemu.xml"), golden.read("caps/qemu-kvm-domain.xml"))
SYSTEM = Source(path="/srv/salt-images/g1_system.qcow2", format="qcow2")
XML = """<domain type='kvm'><name>g1</name><uuid>5dde2424-7483-4008-af40-e4b0eabf27e7</uuid>
<memory unit='KiB'>65536</memory><currentMemory unit='KiB'>65536</currentMemory>
<vcpu placement='static'>1</vcpu>
<os><type arch='x86_64' machine='pc-i440fx-7.2'>hvm</type><boot dev='hd'/></os>
<features><acpi/><apic/><pae/></features>
{settings}
<on_poweroff>destroy</on_poweroff><on_reboot>restart</on_reboot><on_crash>destroy</on_crash>
<devices><emulator>/usr/bin/qemu-system-x86_64</emulator>
<disk type='file' device='disk'><driver name='qemu' type='qcow2' cache='none' io='native'/>
<source file='/srv/salt-images/g1_system.qcow2'/><target dev='vda' bus='virtio'/></disk>
{devices}
<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>
<memballoon model='virtio'/></devices></domain>"""
UTC = "<clock offset='utc'/>"
DRIVE = """<disk type='{}' device='cdrom'>
<driver name='qemu' type='raw' cache='none' io='native'/>{}
<target dev='hda' bus='ide'/><readonly/></disk>"""
BY_HTTP = "<source protocol='http' name='/a.iso'><host name='example.org' port='80'/></source>"
CD = {"name": "cd", "device": "cdrom"}


def there(devices="", settings=UTC):
    return Domain.fromstring(XML.format(devices=devices, settings=settings))


def amended(actual, warnings=None, **arguments):
    spec = guest.parse("g1", update=True, **arguments)
    return domain.amend(spec, actual, CAPS, GuestInputs(sources={"system": SYSTEM}), warnings)


def found(actual, **arguments):
    return [(c.path, c.old, c.new) for c in changes(amended(actual, **arguments), actual)]


@pytest.mark.parametrize(
    ("drive", "medium"),
    [
        (("file", ""), {}),
        (("file", ""), {"source_file": None}),
        (("file", ""), {"io": "native"}),
        (("file", "<source file='/iso/a.iso'/>"), {"source_file": "/iso/a.iso"}),
        (("network", BY_HTTP), {"source_file": "http://example.org/a.iso"}),
        (("network", BY_HTTP), {"source_file": "http://example.org/a.iso", "io": "native"}),
    ],
)
def test_a_drive_with_native_io_stays(drive, medium):
    actual = there(DRIVE.format(*drive))
    assert found(actual, disks=[{"name": "system", "size": 8}, {**CD, **medium}]) == []


@pytest.mark.parametrize(
    ("drive", "medium"),
    [
        (("file", ""), {"source_file": "http://example.org/a.iso"}),
        (("file", "<source file='/iso/a.iso'/>"), {}),
        (("network", BY_HTTP), {"source_file": "/iso/a.iso"}),
    ],
)
def test_a_drive_with_native_io_gets_another_medium(drive, medium):
    actual = there(DRIVE.format(*drive))
    wanted = amended(actual, disks=[{"name": "system"}, {**CD, **medium}])
    assert [change.action for change in changes(wanted, actual)] == ["medium"]
    assert (wanted.disks[1].io, wanted.disks[1].cache) == ("native", "none")


TELNET = """<serial type='tcp'><source mode='bind' host='0.0.0.0' service='{0}'/>
<protocol type='telnet'/><target type='isa-serial' port='0'/></serial>"""
ITS_CONSOLE = """<console type='tcp'><source mode='bind' host='0.0.0.0' service='{0}'/>
<protocol type='telnet'/><target type='serial' port='0'/></console>"""
OPEN = "serial port 0 still listens on all addresses of the host"


@pytest.mark.parametrize(
    ("port", "arguments"),
    [
        (23023, {"serials": [{}]}),
        (23023, {"serials": [{"type": "tcp"}]}),
        (2222, {"serials": [{"port": 2222}]}),
        (2222, {"serials": [{"type": "tcp", "port": 2222, "protocol": "telnet"}]}),
        (2222, {"serials": [{"port": 2222}], "consoles": [{"port": 2222}]}),
        (23023, {"consoles": [{"type": "tcp"}]}),
        (23023, {"consoles": [{}]}),
    ],
)
def test_serial_ports_that_are_there_stay_and_their_open_door_is_said(port, arguments):
    devices = (TELNET + ITS_CONSOLE).format(port)
    actual = there(devices)
    assert found(actual, **arguments) == []
    warnings = []
    amended(actual, warnings, **arguments)
    assert OPEN in warnings[0] or "console 0 still listens" in warnings[0]
    warnings.clear()
    amended(there(devices.replace("0.0.0.0", "127.0.0.1")), warnings, **arguments)
    assert warnings == []


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ({}, ("pty", None, None, None)),
        ({"type": "tcp"}, ("tcp", "127.0.0.1", 23023, "telnet")),
        ({"port": 2222}, ("tcp", "127.0.0.1", 2222, "telnet")),
        ({"host": "10.0.0.1"}, ("tcp", "10.0.0.1", 23023, "telnet")),
        ({"protocol": "raw", "port": 1}, ("tcp", "127.0.0.1", 1, "raw")),
        ({"port": 2222, "host": "0.0.0.0"}, ("tcp", "0.0.0.0", 2222, "telnet")),
        ({"type": "udp", "port": 3}, ("udp", "127.0.0.1", 3, None)),
    ],
)
def test_a_serial_port_is_of_the_kind_that_its_values_are_for(said, kept):
    actual = there()
    for name in ("serials", "consoles"):
        (device,) = getattr(amended(actual, **{name: [said]}), name)
        source = device.source
        assert (device.type, source.host, source.service, device.protocol) == kept


def test_another_port_is_a_change_and_takes_the_safe_address():
    actual = there((TELNET + ITS_CONSOLE).format(2222))
    (serial,) = amended(actual, serials=[{"port": 2223}]).serials
    assert (serial.source.host, serial.source.service) == ("127.0.0.1", 2223)
    (serial,) = amended(actual, serials=[{"port": 2222, "host": "127.0.0.1"}]).serials
    assert (serial.source.host, serial.source.service) == ("127.0.0.1", 2222)


def test_a_console_on_the_serial_port_takes_what_was_not_said_from_it():
    both = {"serials": [{"port": 2222}], "consoles": [{"type": "tcp"}]}
    wanted = amended(there(), **both)
    assert (wanted.consoles[0].source.service, wanted.consoles[0].type) == (2222, "tcp")


VNC = """<graphics type='vnc' port='-1' autoport='yes' listen='0.0.0.0'>
<listen type='address' address='0.0.0.0'/></graphics>
<video><model type='cirrus' vram='16384' heads='1' primary='yes'/></video>"""


@pytest.mark.parametrize("listen", [{}, {"listen": {"type": "address"}}])
def test_a_display_that_is_there_stays_and_its_open_door_is_said(listen):
    actual = there(VNC)
    assert found(actual, graphics={"type": "vnc", **listen}) == []
    warnings = []
    amended(actual, warnings, graphics={"type": "vnc", **listen})
    assert "display vnc still listens on all addresses of the host" in warnings[0]
    warnings.clear()
    amended(actual, warnings, graphics={"type": "vnc", "listen": "0.0.0.0"})
    amended(actual, warnings, mem=64)
    assert warnings == []
    display = amended(there(), graphics={"type": "vnc", **listen}).graphics[0]
    assert display.listens[0].address == "127.0.0.1"


@pytest.mark.parametrize(
    ("clock", "settings"),
    [
        ({"adjustment": "reset"}, "<clock offset='utc' adjustment='reset'/>"),
        ({"utc": False, "adjustment": "reset"}, "<clock offset='localtime' adjustment='reset'/>"),
        ({"adjustment": 3600}, "<clock offset='variable' adjustment='3600' basis='utc'/>"),
    ],
)
def test_an_adjusted_clock_stays(clock, settings):
    assert found(there(settings=settings), clock=clock) == []
    made, wanted = amended(there(), clock=clock).clock, there(settings=settings).clock
    for name in ("offset", "adjustment", "basis"):
        assert getattr(made, name) == getattr(wanted, name)


def test_a_clock_that_is_not_adjusted_any_more():
    actual = there(settings="<clock offset='localtime' adjustment='reset'/>")
    assert found(actual, clock={"utc": False, "adjustment": None}) == [
        ("clock:adjustment", "reset", None)
    ]


def test_a_switch_that_is_off_is_one_that_is_not_there():
    assert found(there(), hypervisor_features={"kvm-hint-dedicated": False}) == []
    actual = there()
    actual.features.kvm_hint_dedicated = True
    assert found(actual, hypervisor_features={"kvm-hint-dedicated": False}) == [
        ("features:kvm_hint_dedicated", True, False)
    ]


TIMERS = {"hpet": {"present": False}, "rtc": {"tickpolicy": "catchup", "track": "wall"}}
CELLS = {0: {"cpus": "0", "memory": 32}, 1: {"cpus": "1", "memory": 32}}
PINS = {0: "0", 1: "1"}


@pytest.mark.parametrize(
    ("before", "after", "gone"),
    [
        (
            {"cpu": {"maximum": 2, "tuning": {"vcpupin": PINS}}},
            {"cpu": {"tuning": {"vcpupin": {0: "0"}}}},
            "cputune:vcpupins:1:cpuset",
        ),
        (
            {"cpu": {"maximum": 2, "iothreads": 2, "tuning": {"iothreadpin": {1: "0", 2: "1"}}}},
            {"cpu": {"tuning": {"iothreadpin": {2: "1"}}}},
            "cputune:iothreadpins:1:cpuset",
        ),
        (
            {"cpu": {"features": {"pcid": "require", "x2apic": "disable"}}},
            {"cpu": {"features": {"pcid": "require"}}},
            "cpu:features:x2apic:policy",
        ),
        (
            {"cpu": {"maximum": 2, "numa": CELLS}, "numatune": {"memnodes": {
                0: {"mode": "strict", "nodeset": 0}, 1: {"mode": "strict", "nodeset": 0}}}},
            {"numatune": {"memnodes": {0: {"mode": "strict", "nodeset": 0}}}},
            "numatune:memnodes:1:nodeset",
        ),
        ({"clock": {"timers": TIMERS}}, {"clock": {"timers": {"hpet": {"present": False}}}},
         "clock:timers:rtc:track"),
        ({"clock": {"timers": TIMERS}},
         {"clock": {"timers": {"hpet": {"present": False}, "rtc": {"track": "wall"}}}},
         "clock:timers:rtc:tickpolicy"),
        ({"clock": {"utc": False}}, {"clock": {"utc": None}}, "clock:offset"),
    ],
)  # fmt: skip
def test_a_dictionary_is_all_there_shall_be(before, after, gone):
    actual = amended(there(), **before)
    paths = {path: new for path, _, new in found(actual, **after)}
    assert paths[gone] in (None, "utc")
    assert found(amended(actual, **after), **after) == []
    assert found(actual, **before) == []


@pytest.mark.parametrize("timers", [{}, {"hpet": {"present": False}}])
def test_timers_alone_leave_the_time_as_it_is(timers):
    for clock in ({"utc": False}, {"timezone": "Europe/Paris"}, {"adjustment": 3600, "utc": False}):
        actual = amended(there(), clock={**clock, "timers": {"rtc": {"track": "wall"}}})
        changed = [path for path, _, _ in found(actual, clock={"timers": timers})]
        assert changed and all(path.startswith("clock:timers") for path in changed)
    new = domain.build(
        guest.parse("n", 1, 512, disk=None, clock={"timers": timers}), CAPS, GuestInputs()
    )
    assert new.clock.offset == "utc"


def test_none_takes_one_away_and_leaves_the_others():
    actual = amended(there(), clock={"timers": TIMERS})
    wanted = amended(actual, clock={"timers": {"rtc": None}})
    assert [timer.name for timer in wanted.clock.timers] == ["hpet"]


@pytest.mark.parametrize(("block", "kind"), [(False, "file"), (True, "block")])
def test_xen_gets_a_pools_volume_by_its_path(block, kind):
    xen = caps.parse(golden.read("caps/xen.xml"), golden.read("caps/xen-pv-domain.xml"))
    source = Source(path="/p/g1_system", block=block, pool="p", volume="g1_system", direct=True)
    spec = guest.parse("g1", 1, 64, os_type="xen", disk="default", nic=None)
    (disk,) = domain.build(spec, xen, GuestInputs(sources={"system": source})).disks
    assert (disk.type, disk.source.file or disk.source.dev) == (kind, "/p/g1_system")
    assert disk.source.pool is None


@pytest.mark.parametrize("name", ["web 1", "wéb", "a@b", "-x", "x" * 230])
def test_a_guest_that_is_there_may_have_any_name_of_libvirts(name):
    assert guest.parse(name, update=True, mem=64).name == name
    with pytest.raises(InvalidInput, match="cannot be a guest's name"):
        guest.parse(name, 1, 64)


@pytest.mark.parametrize("name", ["", " ", "..", "a/b", "../x", "a\nb"])
def test_what_is_no_name_to_libvirt_is_none_here(name):
    with pytest.raises(InvalidInput, match="cannot be a guest's name"):
        guest.parse(name, update=True, mem=64)


@pytest.mark.parametrize("word", ["esxi", "esx", "vmware"])
def test_words_for_vmware(word):
    spec = guest.parse("g1", 1, 64, hypervisor=word)
    assert (spec.hypervisor, spec.nics[0].source, spec.nics[0].model) == (
        "vmware", "DEFAULT", "e1000",
    )  # fmt: skip


def test_a_share_of_cifs_has_no_slash():
    hosts = {"source_hosts": ["nas"], "target": "/mnt/x"}
    for kind, shown in (("cifs", "share/sub"), ("nfs", "/share/sub")):
        spec = pool.parse("p", "netfs", source_dir="/share/sub", source_format=kind, **hosts)
        assert spec.source_dir == shown


def test_firmware_that_is_there_is_not_looked_for_again():
    text = golden.read("caps/qemu-kvm-domain.xml").replace("<value>efi</value>", "")
    without = caps.parse(golden.read("caps/qemu.xml"), text)
    actual = there()
    actual.os.firmware = "efi"
    spec = guest.parse("g1", update=True, boot={"efi": True})
    assert changes(domain.amend(spec, actual, without), actual) == []
    with pytest.raises(Unsupported, match="no EFI firmware"):
        domain.amend(spec, there(), without)
