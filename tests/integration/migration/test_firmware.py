"""UEFI variables and a TPM's state move with a running guest."""

import pytest

from tests.integration.migration import test_cold
from tests.integration.migration.test_failures import closed

pytestmark = [pytest.mark.lab, pytest.mark.slow]
NVRAM = "/var/lib/libvirt/qemu/nvram"
# the kernel that we hand in is not signed for Secure Boot
EFI = """<os firmware='efi'><firmware><feature enabled='no' name='secure-boot'/>
<feature enabled='no' name='enrolled-keys'/></firmware>"""
TPM = "<tpm model='tpm-crb'><backend type='emulator' version='2.0'/></tpm>"


def uefi(guests, name, devices=""):
    guest = guests(name, devices=devices, memory=256)
    guest.xml = guest.xml.replace("<os>", EFI).replace("'pc'", "'q35'")
    return guest.define("hv1")


def there(lab, host, path):
    return lab.exec(host, ["test", "-e", path], check=False).returncode == 0


def test_they_come_along_live(cloud, guests):
    guest = uefi(guests, "uefi1", TPM).start("hv1")
    store, uuid = f"{NVRAM}/uefi1_VARS.fd", cloud.exec("hv1", "virsh domuuid uefi1").stdout.strip()
    state = f"/var/lib/libvirt/swtpm/{uuid}/tpm2/tpm2-00.permall"
    before = test_cold.sums(cloud, "hv1", store)
    assert there(cloud, "hv1", state)
    done = cloud.run("virt.migrate", "uefi1", "hv2")
    assert done.rc == 0, done.stdout
    guest.is_whole_on("hv2")
    assert test_cold.sums(cloud, "hv2", store) == before
    assert there(cloud, "hv2", state)
    assert not there(cloud, "hv1", store)
    assert not there(cloud, "hv1", state)
    cloud.exec("hv2", "virsh destroy uefi1")
    done = cloud.run("virt.migrate", "uefi1", "hv1")
    assert done.rc == 1
    assert "the guest has a TPM" in done.stdout
    assert guest.states() == {"hv2": "shut off"}


def test_a_failure_leaves_no_variables_behind(cloud, guests):
    guest = uefi(guests, "uefi2").start("hv1")
    with closed(cloud, "49152:49215"):
        done = cloud.run("virt.migrate", "uefi2", "hv2")
    assert done.rc == 1
    guest.is_whole_on("hv1")
    assert there(cloud, "hv1", f"{NVRAM}/uefi2_VARS.fd")
    assert not there(cloud, "hv2", f"{NVRAM}/uefi2_VARS.fd")
