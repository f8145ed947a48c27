"""Capabilities as libvirt reports them, and the guests that they permit."""

import pytest

from saltvirt.design import caps
from saltvirt.errors import InvalidInput, Unsupported
from tests import golden


def read(name, domain=None):
    of_domain = golden.read(f"caps/{domain}.xml") if domain else None
    return caps.parse(golden.read(f"caps/{name}.xml"), of_domain)


def test_qemu():
    found = read("qemu", "qemu-kvm-domain")
    assert (found.host.arch, found.host.cpu_vendor) == ("x86_64", "AMD")
    assert (found.host.cpus, found.host.memory_kib) == (2, 5728468)
    assert found.host.page_sizes_kib == (4, 2048, 1048576)
    assert [(cell.id, cell.cpus) for cell in found.host.cells] == [(0, (0, 1))]
    assert found.host.security_models == ("dac",)
    assert found.host.live_migration
    assert not found.host.iommu
    assert found.virt_types == ("kvm", "qemu")
    domain = found.domain
    assert (domain.virt_type, domain.arch, domain.machine) == ("kvm", "x86_64", "pc-i440fx-7.2")
    assert domain.max_vcpus == 255
    assert domain.iothreads
    assert domain.firmware == ("efi",)
    assert not domain.secure_boot
    assert domain.loaders == ("/usr/share/OVMF/OVMF_CODE_4M.fd",)
    assert domain.allows("disk", "bus", "sata")
    assert not domain.allows("graphics", "type", "rdp")
    assert domain.allows("crypto", "model", "virtio") is None
    assert domain.has("tpm")
    assert domain.has("nothing-we-know") is None
    assert domain.features["hyperv"] and not domain.features["sev"]
    assert "host-passthrough" in domain.cpu_modes
    assert domain.cpu_models["486"] and not domain.cpu_models["EPYC"]


def test_the_guest_that_fits_best():
    found = read("qemu")
    guest, kind = found.choose()
    assert (guest.arch, guest.os_type, kind) == ("x86_64", "hvm", "kvm")
    assert guest.machine("q35") == "pc-q35-7.2"
    assert guest.machine("nonsense") is None
    assert guest.emulator("kvm") == "/usr/bin/qemu-system-x86_64"
    assert found.choose(arch="i686")[0].emulator("qemu") == "/usr/bin/qemu-system-i386"
    assert found.choose(virt_type="qemu")[1] == "qemu"


def test_what_the_host_cannot_run():
    with pytest.raises(Unsupported, match=r"cannot run xen hvm aarch64; it can: kvm hvm i686"):
        read("qemu").choose("aarch64", "hvm", "xen")
    with pytest.raises(Unsupported, match="it can: no guests"):
        caps.parse("<capabilities><host/></capabilities>").choose()


def test_xen_prefers_full_virtualisation():
    found = read("xen", "xen-hvm-domain")
    guest, kind = found.choose()
    assert (guest.os_type, guest.arch, kind) == ("hvm", "x86_64", "xen")
    assert guest.loader == "/usr/lib/xen/boot/hvmloader"
    assert found.choose(os_type="xen")[0].machine("xenpv") == "xenpv"
    assert found.domain.has("rng") is False


def test_containers_and_the_test_driver():
    assert read("lxc").choose()[1] == "lxc"
    assert read("test").choose()[1] == "test"


def test_an_emulator_of_its_own_for_one_virt_type():
    xml = """<capabilities><host><cpu><arch>aarch64</arch></cpu></host><guest>
      <os_type>hvm</os_type><arch name='aarch64'><emulator>/usr/bin/qemu-system-aarch64</emulator>
      <machine canonical='virt-7.2'>virt</machine><domain type='qemu'/>
      <domain type='kvm'><emulator>/usr/bin/qemu-kvm</emulator></domain></arch></guest>
      </capabilities>"""
    guest, kind = caps.parse(xml).choose()
    assert (guest.emulator(kind), guest.emulator("qemu")) == (
        "/usr/bin/qemu-kvm",
        "/usr/bin/qemu-system-aarch64",
    )


def test_a_host_that_says_nothing_of_itself():
    found = caps.parse("<capabilities/>")
    assert (found.host, found.guests) == (caps.HostCapabilities(), ())


def test_another_document_is_refused():
    with pytest.raises(InvalidInput, match="capabilities"):
        caps.parse("<domain/>")
    with pytest.raises(InvalidInput, match="domainCapabilities"):
        caps.parse_domain("<capabilities/>")
