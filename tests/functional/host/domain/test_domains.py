"""A domain of ours, defined in a real libvirt and read back, shows no difference. QEMU's driver
runs in this process (``qemu:///embed``) with a folder of its own: it parses, checks and completes
definitions as the daemon does, and starts nothing."""

import pytest

from saltvirt.design import caps, domain
from saltvirt.diff.changes import changes
from saltvirt.spec import guest
from saltvirt.xml.domain.domain import Domain
from tests.functional.embedded import connection
from tests.golden.cases import DOMAINS
from tests.unit.design.test_domain import host, made

libvirt = pytest.importorskip("libvirt")

QEMU = [name for name, (kind, _, _) in DOMAINS.items() if kind == "qemu"]


@pytest.fixture
def qemu():
    return connection()


def defined(conn, wanted):
    """What libvirt makes of a definition."""
    flags = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE
    there = conn.defineXML(wanted.tostring())
    try:
        return Domain.fromstring(there.XMLDesc(flags))
    finally:
        there.undefine()


def round_trip(conn, capabilities, arguments):
    arguments = {"cpu": 2, "mem": 512, **arguments}
    wanted = domain.build(guest.parse("web1", **arguments), capabilities, made())
    actual = defined(conn, wanted)
    assert changes(wanted, actual) == []
    again = guest.parse("web1", update=True, **without_profiles(arguments))
    amended = domain.amend(again, actual, capabilities, made())
    assert changes(amended, actual) == []
    assert changes(amended, defined(conn, amended)) == []


def without_profiles(arguments):
    """The same wish as an update gives it: with the profile that init took by itself."""
    return {"disk": "default", "nic": "default", **arguments}


@pytest.mark.parametrize("name", QEMU)
def test_qemu(qemu, name):
    kind, of_domain, arguments = DOMAINS[name]
    round_trip(qemu, host(kind, of_domain), arguments)


# need a pool, a secret, a device or huge pages of the host, or are refused by its CPU
NOT_HERE = {"cpu-all", "memory-all", "numatune-auto", "clock-timers", "disks", "disks-network",
            "spice-network", "host-devices", "devices-none", "devices-of-the-host"}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in QEMU if name not in NOT_HERE])
def test_qemu_has_all_the_devices(qemu, name):
    kind, of_domain, arguments = DOMAINS[name]
    spec = guest.parse("web1", **{"cpu": 2, "mem": 512, **arguments})
    built = domain.build(spec, host(kind, of_domain), made())
    assert "qemu-system" in qemu.domainXMLToNative("qemu-argv", built.tostring())


# an update changes neither architecture nor machine
UPDATED = [name for name in QEMU if not {"arch", "machine"} & set(DOMAINS[name][2])]


@pytest.mark.parametrize("name", UPDATED)
def test_an_update_to_everything_and_again(qemu, name):
    kind, of_domain, arguments = DOMAINS[name]
    capabilities = host(kind, of_domain)
    simple = domain.build(guest.parse("web1", 2, 2048), capabilities, made())
    spec = guest.parse("web1", update=True, **arguments)
    first = domain.amend(spec, defined(qemu, simple), capabilities, made())
    actual = defined(qemu, first)
    assert changes(first, actual) == []
    assert changes(domain.amend(spec, actual, capabilities, made()), actual) == []


# what contradicts itself unless the one is taken away with the other; the USB 1.1
# controller has two ports
EXCLUSIVE = {("memory-all", "numatune-auto"), ("numatune-auto", "memory-all"),
             ("cpu-all", "numatune-auto"), ("cpu-all", "memory-all"),
             ("cpu-all", "cpu-host"), ("cpu-all", "disks"), ("cpu-all", "disks-limits"),
             ("nics", "devices-of-the-host"),
             ("host-devices", "inputs")}  # fmt: skip
# have a disk sda, at the address that libvirt has given to the host's SCSI device
SDA = {name for name in QEMU if any(
    disk.get("model") == "scsi" or disk.get("device") in ("cdrom", "lun")
    for disk in DOMAINS[name][2].get("disks", ())
)}  # fmt: skip


@pytest.mark.parametrize("first", [name for name in QEMU if not DOMAINS[name][2].get("arch")])
def test_an_update_from_each_to_each(qemu, first):
    capabilities = host("qemu", "qemu-kvm-domain")
    arguments = {"cpu": 2, "mem": 512, **DOMAINS[first][2]}
    wanted = domain.build(guest.parse("web1", **arguments), capabilities, made())
    start = defined(qemu, wanted)
    for second in QEMU:
        if first == "devices-of-the-host" and second in SDA:
            continue
        other_machine = {"arch", "machine"} & DOMAINS[second][2].keys()
        if (first, second) in EXCLUSIVE or other_machine:
            continue
        wish = {**DOMAINS[second][2], "machine": None}
        spec = guest.parse("web1", update=True, **wish)
        changed = domain.amend(spec, start, capabilities, made())
        actual = defined(qemu, changed)
        assert changes(changed, actual) == [], second
        assert changes(domain.amend(spec, actual, capabilities, made()), actual) == [], second


def everything_removed(arguments):
    """The same keys, each with None: the wish to take them away."""
    return {
        word: dict.fromkeys(value)
        for word, value in arguments.items()
        if word in ("cpu", "mem", "boot", "numatune", "hypervisor_features", "clock")
        and isinstance(value, dict)
    }


@pytest.mark.parametrize("name", ["cpu-all", "memory-all", "boot-kernel", "boot-loader",
                                  "features", "clock-timers", "clock-zone"])  # fmt: skip
def test_an_update_that_takes_everything_away(qemu, name):
    kind, of_domain, arguments = DOMAINS[name]
    capabilities = host(kind, of_domain)
    full = {"cpu": 2, "mem": 512, **arguments}
    actual = defined(qemu, domain.build(guest.parse("web1", **full), capabilities, made()))
    away = everything_removed(arguments)
    for word, key in (("cpu", "maximum"), ("mem", "boot"), ("mem", "current")):
        away.get(word, {}).pop(key, None)
    spec = guest.parse("web1", update=True, **away)
    wanted = domain.amend(spec, actual, capabilities, made())
    assert changes(wanted, actual)
    back = defined(qemu, wanted)
    assert changes(domain.amend(spec, back, capabilities, made()), back) == []


def test_with_the_capabilities_of_this_very_libvirt(qemu):
    found = caps.parse(qemu.getCapabilities(), qemu.getDomainCapabilities())
    assert found.domain.machine
    round_trip(qemu, found, {"enable_vnc": True})


def test_the_test_driver(conn):
    kind, of_domain, arguments = DOMAINS["test"]
    round_trip(conn, host(kind, of_domain), arguments)
