"""Local resources of a guest."""

from xml.etree import ElementTree

import pytest

from saltvirt.ha.manager import local_resources
from saltvirt.placement.facts import Host, StoragePool, StorageSpace

SHARED = StorageSpace(10, 10, 0, shared="nfs filer:/disks")
HOST = Host(
    "hv1", 8, 1 << 23,
    stores={"/disks": SHARED, "/": StorageSpace(10, 10)},
    mounts={"/disks": "/disks", "/": "/"}, images_store="/",
    pools={"ours": StoragePool(10, 10, 0, store="/"), "all": StoragePool(10, 10, 0, store="/disks"),
           "ceph": StoragePool(10, 10, 0, shared="rbd mon pool")},
)  # fmt: skip


def found(devices="", system="", disks=None):
    root = ElementTree.fromstring(f"<domain><os>{system}</os><devices>{devices}</devices></domain>")
    return list(local_resources.reasons(root, HOST, disks or {}))


def disk(kind, source, device="disk"):
    return f"<disk type='{kind}' device='{device}'><source {source}/><target dev='vda'/></disk>"


FREE = (
    disk("file", "file='/disks/web1.qcow2'"), disk("network", "protocol='rbd' name='x'"),
    disk("volume", "pool='all' volume='x'"), disk("volume", "pool='ceph' volume='x'"),
    "<disk type='file' device='cdrom'><target dev='sda'/></disk>",
    "<tpm><backend type='emulator'><source type='dir' path='/disks/tpm'/></backend></tpm>",
    "<interface type='network'><source network='default'/></interface>",
    "<memory model='nvdimm'><source><path>/disks/nv</path></source></memory>",
    "<serial type='pty'/><input type='tablet'/><smartcard mode='passthrough' type='tcp'/>",
)  # fmt: skip


@pytest.mark.parametrize("devices", FREE)
def test_a_guest_that_can_run_elsewhere_has_no_reason(devices):
    assert found(devices) == []


TIED = (
    (disk("file", "file='/srv/web1.qcow2'"), "disk vda is /srv/web1.qcow2 on hv1 only"),
    (disk("file", "file='/srv/x.iso'", "cdrom"), "disk vda is /srv/x.iso on hv1 only"),
    (disk("volume", "pool='ours' volume='x'"), "in the pool ours of hv1"),
    (disk("volume", "pool='gone' volume='x'"), "in the pool gone of hv1"),
    (disk("block", "dev='/dev/vg/x'"), "is the device /dev/vg/x of hv1"),
    ("<disk type='file' device='disk'><source file='/disks/x'/><target dev='vda'/><backingStore>"
     "<source protocol='nbd'><host transport='unix' socket='/run/x'/></source></backingStore>"
     "</disk>", "disk vda still depends on a backup that hv1 reads"),
    (disk("nvme", "type='pci'"), "has the type nvme"),
    (disk("dir", "dir='/disks/x'"), "has the type dir"),
    ("<hostdev type='pci'/>", "a pci device of hv1"),
    ("<interface type='hostdev'><mac address='52:54:00:00:00:01'/></interface>",
     "interface 52:54:00:00:00:01 is a device"),
    ("<filesystem><source dir='/x'/><target dir='tag'/></filesystem>", "the folder tag of hv1"),
    ("<memory model='nvdimm'><source><path>/srv/nv</path></source></memory>", "its memory /srv/nv"),
    ("<serial type='dev'><source path='/dev/ttyS0'/></serial>", "serial port is the device /dev/"),
    ("<input type='evdev'><source dev='/dev/input/e1'/></input>", "is the device /dev/input/e1"),
    ("<input type='passthrough'><source evdev='/dev/input/e1'/></input>", "the device /dev/input"),
    ("<smartcard mode='host'/>", "its smartcard is a device"),
    ("<tpm><backend type='emulator'/></tpm>", "the state of its TPM is below"),
    ("<tpm><backend type='passthrough'/></tpm>", "its TPM is a device"),
)  # fmt: skip


@pytest.mark.parametrize("devices, why", TIED)
def test_what_ties_it_is_named(devices, why):
    [one] = found(devices)
    assert why in one


FIRMWARE = (
    ("<nvram>/disks/web1.fd</nvram>", ""),
    ("<nvram type='file'><source file='/disks/web1.fd'/></nvram>", ""),
    ("<nvram type='network'><source protocol='nbd'/></nvram>", ""),
    ("<nvram>/var/lib/libvirt/qemu/nvram/x.fd</nvram>", "its UEFI variables are /var/lib"),
    ("<nvram template='/usr/share/x'/>", "its UEFI variables are below"),
    ("<kernel>/boot/vmlinuz</kernel>", "its kernel /boot/vmlinuz is on hv1 only"),
)


@pytest.mark.parametrize("system, why", FIRMWARE)
def test_the_firmware_comes_along_or_is_named(system, why):
    said = found(system=system)
    assert (why in said[0]) if why else said == []


def test_efi_of_libvirts_choice_keeps_its_variables_where_libvirt_does():
    root = ElementTree.fromstring("<domain><os firmware='efi'/></domain>")
    [why] = local_resources.reasons(root, HOST, {})
    assert "its UEFI variables are below" in why
    root = ElementTree.fromstring(
        "<domain><os firmware='efi'><loader stateless='yes'/></os></domain>"
    )
    assert list(local_resources.reasons(root, HOST, {})) == []


def test_an_image_below_a_disk_must_be_there_elsewhere_too():
    chain = {"vda": {"file": "/disks/web1", "backing file": {
        "file": "/disks/base", "backing file": {"file": "/srv/_base/debian"}}}}  # fmt: skip
    [why] = found(disk("file", "file='/disks/web1'"), disks=chain)
    assert "disk vda depends on /srv/_base/debian, which is on hv1 only" in why


def test_what_a_host_says_of_chains_may_be_anything():
    loop = {"file": "/disks/x"}
    loop["backing file"] = loop
    for said in (loop, 7, {"backing file": 7}, {"backing file": {"file": 7}}):
        assert found(disk("file", "file='/disks/web1'"), disks={"vda": said}) == []
