"""What Salt 3007 let a user do with disks, on libvirt's test driver with real files."""

import os
import re
import subprocess

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from tests.functional.test_init import MIB, host, image, info  # noqa: E402, F401
from tests.functional.test_update import guest  # noqa: E402, F401

SYSTEM = {"name": "system", "size": 16, "format": "raw"}


def qcow2(path, size="8M", *more):
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", *more, path, size], check=True)
    return str(path)


def attach(on, name, path, format="qcow2", target="vdb"):
    """Gives a guest a disk as an operator does, by libvirt."""
    xml = (
        f"<disk type='file' device='disk'><driver name='qemu' type='{format}'/>"
        f"<source file='{path}'/><target dev='{target}' bus='virtio'/></disk></devices>"
    )
    dom = on.conn.lookupByName(name)
    on.conn.defineXML(dom.XMLDesc(2).replace("</devices>", xml))


def size(path):
    return info(str(path))["virtual-size"]


def test_a_profile_does_not_grow_the_disk_that_a_user_named(guest, tmp_path):  # noqa: F811
    data = qcow2(tmp_path / "data.qcow2")
    attach(guest, "g1", data)
    named = {"name": "data", "source_file": data, "format": "qcow2", "size": 64}
    status = guest.update(disks=[SYSTEM, named])
    assert (status["definition"], size(data)) == (False, 8 * MIB)
    (warning,) = status["warnings"]
    assert data in warning
    assert "was not made for this guest" in warning
    by_target = {"name": "other", "target": "vdb", "size": 64}
    assert guest.update(disks=[SYSTEM, by_target])["definition"] is False
    assert size(data) == 8 * MIB


def test_no_update_grows_what_another_guest_stands_on(guest, tmp_path):  # noqa: F811
    base = str(guest.images / "g1_system.raw")
    guest.init("g2", image=guest.image)
    overlay = qcow2(tmp_path / "over.qcow2", "32M", "-b", base, "-F", "raw")
    attach(guest, "g2", overlay)
    status = guest.update(disks=[{**SYSTEM, "size": 32}])
    assert (status["definition"], os.path.getsize(base)) == (False, 16 * MIB)
    assert "g2 uses it" in status["warnings"][0]
    with pytest.raises(Exception, match=r"g1_system.raw.*g2 uses it"):
        guest.modules["virt.resize_disk"]("g1", "vda", 32)
    assert os.path.getsize(base) == 16 * MIB


def test_the_disk_that_salt_3007_made_grows(guest):  # noqa: F811
    dom = guest.conn.lookupByName("g1")
    guest.conn.defineXML(re.sub(r"(?s)<metadata.*</metadata>", "", dom.XMLDesc(2)))
    assert "saltvirt" not in guest.conn.lookupByName("g1").XMLDesc(2)
    assert guest.update(disks=[{**SYSTEM, "size": 32}])["definition"] is True
    assert os.path.getsize(guest.images / "g1_system.raw") == 32 * MIB
