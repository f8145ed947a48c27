"""Host devices from libvirt's XML; tests/integration reads real ones."""

from xml.etree import ElementTree

import pytest

from saltvirt.host.node import devices

PCI = """
<device><name>pci_0000_04_00_0</name><parent>pci_0000_00_1c_0</parent>
  <capability type='pci'><class>0x020000</class>
    <domain>0</domain><bus>4</bus><slot>16</slot><function>1</function>
    <product id='0x10C9'>82576</product><vendor id='0x8086'/>{more}
  </capability></device>"""
FUNCTIONS = """
    <capability type='phys_function'>
      <address domain='0x0000' bus='0x04' slot='0x00' function='0x0'/></capability>
    <capability type='virt_functions' maxCount='7'>
      <address domain='0x0000' bus='0x04' slot='0x10' function='0x2'/>
      <address domain='0x0000' bus='0x0a' slot='0x1f' function='0x7'/></capability>"""
USB = """
<device><name>usb_1_2</name><capability type='usb_device'><bus>1</bus><device>12</device>
  <product id='{product}'>Stick</product><vendor id='0x1d6b'>Acme</vendor>
</capability></device>"""
NET = """
<device><name>net_x</name><parent>{parent}</parent><capability type='net'>
  <interface>eth7</interface><address>52:54:00:00:00:01</address>{more}
</capability></device>"""


def parse(text, **words):
    return devices.parse(ElementTree.fromstring(text.format(**words)))


def test_a_pci_device():
    assert parse(PCI, more="") == {
        "caps": "pci",
        "name": "pci_0000_04_00_0",
        "vendor_id": "0x8086",
        "product_id": "0x10c9",
        "product": "82576",
        "address": "0000:04:10.1",
        "PCI class": "0x020000",
    }


def test_virtual_and_physical_functions():
    found = parse(PCI, more=FUNCTIONS)
    assert found["virtual functions"] == ["0000:04:10.2", "0000:0a:1f.7"]
    assert found["physical function"] == "0000:04:00.0"


def test_usb_devices_but_no_hubs():
    assert parse(USB, product="0x0104")["address"] == "001:012"
    assert parse(USB, product="0x0104")["vendor"] == "Acme"
    assert parse(USB, product="0x0002") is None


def test_a_card_without_a_link_is_no_error():
    found = parse(NET, parent="pci_0000_00_03_0", more="")
    assert found == {
        "caps": "net",
        "name": "eth7",
        "address": "52:54:00:00:00:01",
        "device name": "pci_0000_00_03_0",
        "state": None,
    }
    assert parse(NET, parent="p", more="<link speed='1000' state='up'/>")["state"] == "up"


@pytest.mark.parametrize(
    "text",
    [
        PCI.format(more="<capability type='pci-bridge'/>"),
        NET.format(parent="computer", more=""),
        "<device><name>computer</name><capability type='system'/></device>",
    ],
)
def test_what_no_guest_can_use_is_left_out(text):
    assert parse(text) is None
