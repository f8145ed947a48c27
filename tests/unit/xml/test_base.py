"""Elements edit a document in place and keep what they do not know."""

import pytest

from saltvirt.errors import InvalidInput
from saltvirt.xml import tree
from saltvirt.xml.devices.disk import Disk
from saltvirt.xml.devices.graphics import Graphics
from saltvirt.xml.domain import metadata
from saltvirt.xml.domain.domain import Domain

DOCUMENT = """<domain type='kvm' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
  <name>a</name>
  <unknown deep='1'><x/></unknown>
  <memory unit='MiB'>2</memory>
  <devices>
    <disk type='file' device='disk'>
      <target dev='vda'/>
    </disk>
  </devices>
  <qemu:commandline><qemu:arg value='-x'/></qemu:commandline>
</domain>"""


def test_what_is_not_edited_stays():
    domain = Domain.fromstring(DOCUMENT)
    before = domain.tostring()
    domain.memory_kib = 4096
    assert domain.tostring() == before.replace('unit="MiB">2', 'unit="KiB">4096')
    assert "<qemu:commandline>" in before
    assert '<unknown deep="1">' in before


def test_sizes_are_read_in_their_unit():
    assert Domain.fromstring(DOCUMENT).memory_kib == 2048


def test_an_absent_element_is_false_until_it_is_written():
    domain = Domain.fromstring(DOCUMENT)
    assert not domain.cpu
    assert domain.cpu.tostring() == ""
    assert domain.cpu.model is None
    domain.cpu.model = "Westmere"
    assert domain.cpu
    domain.cpu.model = None
    assert not domain.cpu


def test_new_children_keep_libvirts_order_and_layout():
    domain = Domain.fromstring(DOCUMENT)
    domain.uuid = "u"
    assert "<name>a</name>\n  <uuid>u</uuid>\n" in domain.tostring()


def test_lists_edit_the_document():
    domain = Domain.fromstring(DOCUMENT)
    domain.disks.append(Disk(target="vdb"))
    assert [disk.target for disk in domain.disks] == ["vda", "vdb"]
    domain.disks.remove(domain.disks[0])
    assert [disk.target for disk in domain.disks] == ["vdb"]
    domain.disks = []
    assert len(domain.disks) == 0


def test_only_properties_can_be_given():
    with pytest.raises(TypeError, match="colour"):
        Disk(colour="red")


def test_what_a_class_declares_is_seen_on_it():
    found = (Domain.name.path, Domain.cpu.path, Domain.disks.path, Domain.disks.kind)
    assert found == ("name", "cpu", "devices/disk", Disk)


def test_the_password_of_a_display_is_in_no_message():
    display = Graphics(type="vnc", port=5901, password="hush-hush")
    assert repr(display) == f"{display}" == "<Graphics type='vnc' port=5901>"


@pytest.mark.parametrize("text", ["", "<a", "<network/>", None, 5, b"<domain/>"])
def test_another_document_is_refused(text):
    with pytest.raises(InvalidInput):
        Domain.fromstring(text)


def test_a_document_that_is_read_does_not_rename_our_namespace():
    """Prefixes are the process's own in ElementTree: what a user's definition calls ours, or calls
    like ours, changes nothing that is written after it."""
    own = Domain.fromstring("<domain><name>a</name></domain>")
    own.record.version = 1
    before = own.tostring()
    assert "saltvirt:guest" in before
    for prefix, uri in (("s", metadata.NAMESPACE), ("saltvirt", "http://elsewhere/")):
        Domain.fromstring(f"<domain xmlns:{prefix}='{uri}'><{prefix}:x/></domain>")
        assert own.tostring() == before


def test_a_text_that_no_file_can_hold_is_no_xml():
    with pytest.raises(InvalidInput, match="not an XML document"):
        tree.parse("<domain>\udc80</domain>")
