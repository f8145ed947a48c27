"""A wish and a host's capabilities make a domain."""

import pytest

from saltvirt.design import caps, domain
from saltvirt.design.context import Given
from saltvirt.design.source import Source
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
        "system": Source(path="/srv/images/web1_system.qcow2", format="qcow2", made=True),
        "data": Source(path="/srv/images/web1_data.qcow2", format="qcow2", made=True),
    }
    return Given(
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


@pytest.mark.parametrize("word", ["cpu", "mem"])
def test_cpu_and_memory_are_needed(word):
    with pytest.raises(Exception, match=f"{word} is missing"):
        build(**{word: None})
