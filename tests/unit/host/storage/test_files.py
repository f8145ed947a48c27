"""The files that a definition names."""

import xml.etree.ElementTree as ET

import pytest

pytest.importorskip("salt")

from saltvirt.host.storage import files


@pytest.mark.parametrize(
    ("text", "format"),
    [
        ("<disk><driver type='qcow2'/><format type='raw'/></disk>", "qcow2"),
        ("<disk><driver name='qemu'/></disk>", None), ("<disk/>", None),
        ("<backingStore><format type='qcow2'/></backingStore>", "qcow2"),
        ("<mirror><driver type='raw'/><format type='qcow2'/></mirror>", "qcow2"),
        ("<nvram>/x</nvram>", "raw"),
        ("<nvram format='qcow2'><format type='raw'/>/x</nvram>", "qcow2"),
    ],
)  # fmt: skip
def test_the_format_that_is_declared(text, format):
    """libvirt takes raw for a disk of which none is; of what it is based on nobody knows then."""
    node = ET.fromstring(text)
    assert files.format_of(node) == format
    assert files.declared(node) == (format or "raw")
