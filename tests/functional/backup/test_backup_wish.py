"""The backup schedule of a guest in its record in libvirt."""

import pytest

pytest.importorskip("libvirt")

from saltvirt import errors
from saltvirt.backup.export import guest_schedule
from saltvirt.host.domain import placement_facts
from saltvirt.host.storage import files
from saltvirt.xml.domain.metadata import NAMESPACE

XML = """<domain type='test'><name>{0}</name><memory>1024</memory><os><type>hvm</type></os>
<metadata>{1}</metadata></domain>"""
RECORD = f"<s:guest xmlns:s='{NAMESPACE}' version='1'><s:entry key='groups'>a</s:entry></s:guest>"


@pytest.fixture(autouse=True)
def _guests(conn):
    there = [conn.defineXML(XML.format("says", RECORD)), conn.defineXML(XML.format("other", ""))]
    yield
    for one in there:
        one.undefine()


def said(conn):
    return placement_facts.read("says", files.trees(conn.lookupByName("says"))).backup


def test_what_it_says_is_what_is_read(conn):
    assert said(conn) is None
    assert guest_schedule.set_schedule(conn, "says", "hours=24.0 to=vault", True) is None
    assert said(conn) is None
    assert guest_schedule.set_schedule(conn, "says", "hours=24.0 to=vault", False) is None
    assert said(conn) == "hours=24.0 to=vault"
    assert guest_schedule.set_schedule(conn, "says", "no", False) == "hours=24.0 to=vault"
    assert said(conn) == "no"
    found = placement_facts.read("says", files.trees(conn.lookupByName("says")))
    assert found.groups == ("a",)


def test_what_cannot_be_said(conn):
    with pytest.raises(errors.InvalidInput, match="not a valid backup setting"):
        guest_schedule.set_schedule(conn, "says", "now", False)
    with pytest.raises(errors.Unsupported, match="was not created by Salt Virt"):
        guest_schedule.set_schedule(conn, "other", "yes", False)
