"""Guests whose disks are based on another disk, and the files that are read to find them."""

import os
from xml.etree import ElementTree

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from salt.exceptions import CommandExecutionError

from saltvirt.host.storage import chains, identity, overlays
from tests.functional.daemon import libvirtd  # noqa: F401
from tests.functional.host.domain.test_snapshot_kinds import host, run  # noqa: F401

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="a libvirtd of our own needs root"),
    pytest.mark.skipif(not os.path.exists("/usr/bin/qemu-io"), reason="no qemu-io"),
]
END = "<backingStore/>"
BASE = "<backingStore type='file'><format type='qcow2'/><source file='/i/{}'/>{}</backingStore>"
POOL = "<backingStore type='volume'><source pool='p' volume='v'/>{}</backingStore>"


@pytest.mark.parametrize(
    ("below", "told"),
    [
        (END, []),
        (BASE.format("a", BASE.format("b", END)), ["/i/a", "/i/b"]),
        (BASE.format("a", ""), None),
        (POOL.format(END), None),
        ("", None),
    ],
)
def test_what_libvirt_tells_of_a_running_disk(below, told):
    disk = ElementTree.fromstring(f"<disk><source file='/i/top'/>{below}</disk>")
    assert overlays._backing_paths(disk) == told


def overlay(host, name, base):  # noqa: F811
    path = host.folder / "images" / name
    run("qemu-img", "create", "-q", "-f", "qcow2", "-b", str(base), "-F", "qcow2", str(path))
    return path


def test_one_base_is_read_once_and_no_disk_of_a_running_guest(host, monkeypatch):  # noqa: F811
    image, base = host.disk("image.qcow2"), host.disk("g.qcow2")
    above = overlay(host, "above.qcow2", base)
    host.define(host.device(above), name="h").create()
    for number in range(3):
        host.define(host.device(overlay(host, f"{number}.qcow2", image)), name=f"h{number}")
    host.define(host.device(base))
    read, asked = [], {name: getattr(chains, name) for name in ("direct_references", "read")}
    for name, function in asked.items():
        wrapped = lambda path, format, function=function: (  # noqa: E731
            read.append(os.path.basename(path)), function(path, format))[1]  # fmt: skip
        monkeypatch.setattr(chains, name, wrapped)
    assert overlays.overlay_on(host.conn, identity.keys_of(str(base)), "g").path == str(above)
    assert overlays.overlay_on(host.conn, identity.keys_of(str(image)), "h0").guest in ("h1", "h2")
    read.clear()
    assert overlays.overlay_on(host.conn, identity.keys_of("/nothing"), "g") is None
    assert sorted(read) == ["0.qcow2", "1.qcow2", "2.qcow2", "image.qcow2"]
    with pytest.raises(CommandExecutionError, match="g writes to a disk on which"):
        host.call("start", "g")
