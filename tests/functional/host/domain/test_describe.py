"""The description of one guest and its devices, and its power buttons: with libvirt's test driver,
and otherwise with definitions as libvirt writes them."""

import re
import struct
import zlib
from xml.etree import ElementTree

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.host import connection
from saltvirt.host.domain import (
    addresses,
    describe,
    disk_info,
    lifecycle,
    overview,
    placement_facts,
    screenshot,
)
from saltvirt.settings import Connection
from tests.functional.conftest import load


def defined(conn, name, devices="", more=""):
    return conn.defineXML(
        f"<domain type='test'><name>{name}</name><memory>1024</memory><os><type>hvm</type></os>"
        f"{more}<devices>{devices}</devices></domain>"
    )


def test_a_nics_driver_and_the_firmwares_attributes():
    nic = "<interface type='network'><driver name='vhost' queues='4'/></interface>"
    assert describe.nic(ElementTree.fromstring(nic))["driver"] == {"name": "vhost", "queues": "4"}
    text = "<domain><os><loader readonly='yes' type='pflash'>/x.fd</loader></os></domain>"
    assert describe.loader(ElementTree.fromstring(text)) == {
        "path": "/x.fd", "readonly": "yes", "type": "pflash",
    }  # fmt: skip


def test_a_picture_that_is_too_large_does_not_travel(conn, monkeypatch):
    monkeypatch.setattr(screenshot, "_MAX_EVENT_BYTES", 10)
    dom = conn.lookupByName("test")
    with pytest.raises(
        errors.OperationFailed, match=r"screenshot of test has \d+ bytes: run virt\.scr"
    ):
        screenshot.small(conn, dom, 0, 100)


# -- displays and serial ports -----------------------------------------------------------------


def test_a_display_and_a_port_that_are_files_have_a_path_and_no_command(virt, conn):
    defined(
        conn,
        "files",
        "<graphics type='vnc' socket='/run/web1.sock'/>"
        "<serial type='file'><source path='/var/log/web1'/></serial>",
    )
    found = virt["virt.console"]("files")
    assert found["graphics"] == [
        {"type": "vnc", "listen": "127.0.0.1", "port": None, "socket": "/run/web1.sock"}
    ]
    assert found["serials"] == [{"type": "file", "port": 0, "path": "/var/log/web1"}]


# -- disks -------------------------------------------------------------------------------------


def test_a_cd_of_the_network_is_an_address_and_a_drive_without_a_cd_no_disk(virt, conn):
    defined(
        conn,
        "cds",
        "<disk type='network' device='cdrom'><source protocol='https' name='a/b.iso' query='k=v'>"
        "<host name='srv' port='8443'/></source><target dev='sda' bus='sata'/></disk>"
        "<disk type='network' device='cdrom'><source protocol='http' name='/c.iso'>"
        "<host name='srv'/></source><target dev='sdb' bus='sata'/></disk>"
        "<disk type='volume' device='cdrom'><target dev='sdc' bus='sata'/></disk>",
    )
    found = virt["virt.get_disks"]("cds")
    assert {target: one["file"] for target, one in found.items()} == {
        "sda": "https://srv:8443/a/b.iso?k=v", "sdb": "http://srv:80/c.iso",
    }  # fmt: skip
    bare = "<disk type='network' device='{}'><source protocol='{}' name='{}'>{}</source></disk>"
    for asked, wanted in (
        (("cdrom", "http", "c.iso", "<host name='srv'/>"), "http://srv/c.iso"),
        (("disk", "http", "c.iso", "<host name='srv'/>"), "http:c.iso"),
        (("cdrom", "rbd", "", ""), "rbd"),
    ):
        assert describe.source_of(ElementTree.fromstring(bare.format(*asked))) == wanted


def test_a_chain_of_images_is_told_to_its_end():
    below = "<backingStore type='file'><format type='{}'/><source file='/{}'/>{}</backingStore>"
    deepest = below.format("raw", "c", "<backingStore/>")
    disk = ElementTree.fromstring(
        "<disk type='file' device='disk'><driver type='qcow2'/><source file='/a'/>"
        f"{below.format('qcow2', 'b', deepest)}</disk>"
    )
    assert describe.disk(disk, {"capacity": 9, "allocation": 4, "physical": 5}, False) == {
        "file": "/a", "type": "disk", "file format": "qcow2", "virtual size": 9, "disk size": 4,
        "backing file": {"file": "/b", "file format": "qcow2",
                         "backing file": {"file": "/c", "file format": "raw"}},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "device", "stats", "is_error"),
    [
        ("file", "disk", {"name": "vda"}, True),
        ("file", "disk", {}, False),  # nobody was asked
        ("file", "cdrom", {"name": "sda"}, False),
        ("network", "disk", {"name": "vda"}, False),
    ],
)
def test_a_disk_of_this_host_that_libvirt_knows_no_size_of_says_so(kind, device, stats, is_error):
    node = ElementTree.fromstring(
        f"<disk type='{kind}' device='{device}'><source file='/a' protocol='rbd' name='b'/></disk>"
    )
    error = describe.disk(node, stats, True).get("error", "")
    assert ("libvirt cannot read this disk" in error) == is_error


def test_the_cpu_time_is_the_domains_or_else_that_of_its_cpus():
    cpus = {"vcpu.maximum": 3, "vcpu.0.time": 5, "vcpu.2.time": 7}
    assert describe.cpu_time(cpus) == 12
    assert describe.cpu_time({**cpus, "cpu.time": 20}) == 20


def test_a_volume_whose_size_libvirt_has_told_is_not_asked_of_its_pool(conn):
    tree = ElementTree.fromstring(
        "<domain><devices><disk type='volume'><source pool='gone' volume='v'/>"
        "<target dev='vda'/></disk></devices></domain>"
    )
    known, unknown = {"vda": {"virtual size": 9}}, {"vda": {}}
    overview._volumes(conn, tree, known)
    assert known == {"vda": {"virtual size": 9}}
    overview._volumes(conn, tree, unknown)
    assert "no storage pool with matching name 'gone'" in unknown["vda"]["error"]


def image(name, **more):
    return {"filename": name, "format": "qcow2", "virtual-size": 9, **more}


def test_an_image_whose_base_was_not_opened_still_names_it():
    found = disk_info.nested([image("/a"), image("/b", **{"full-backing-filename": "nbd:c"})])
    assert found["file"] == "/a"
    assert found["backing file"]["file"] == "/b"
    assert found["backing file"]["backing file"] == {"file": "nbd:c"}


@pytest.mark.parametrize("said", ["[]", "no json", '[{"format": "raw"}]', "7"])
def test_what_qemu_img_says_wrongly_is_one_line_of_the_disk(tmp_path, monkeypatch, said):
    path = tmp_path / "disk"
    path.write_bytes(b"\0" * 512)
    monkeypatch.setattr(disk_info.confined, "run", lambda *_asked, **_how: said)
    with pytest.raises(errors.OperationFailed, match=rf"^cannot inspect {path}: qemu-img says "):
        disk_info.read(str(path), "raw")


# -- facts of its definition ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pages", "kib"),
    [
        ("", None),
        ("<memoryBacking><hugepages/></memoryBacking>", 0),
        ("<memoryBacking><hugepages><page size='2048'/></hugepages></memoryBacking>", 2048),
        ("<memoryBacking><hugepages><page size='2' unit='M'/></hugepages></memoryBacking>", 2048),
        (
            "<memoryBacking><hugepages><page size='1' unit='GiB'/></hugepages></memoryBacking>",
            1 << 20,
        ),
        ("<memoryBacking><hugepages><page size='64' unit='KiB'/></hugepages></memoryBacking>", 64),
    ],
)
def test_the_size_of_its_huge_pages(pages, kib):
    tree = ElementTree.fromstring(f"<domain>{pages}</domain>")
    assert placement_facts.read("web1", [tree]).page_kib == kib


@pytest.mark.parametrize("text", ["{", "[1]", "rack", "7"])
def test_labels_that_somebody_has_written_otherwise_are_none(conn, text):
    record = (
        '<metadata><s:guest xmlns:s="https://saltproject.io/xmlns/salt-virt/1">'
        f'<s:entry key="labels">{text}</s:entry></s:guest></metadata>'
    )
    tree = ElementTree.fromstring(defined(conn, "labelled", more=record).XMLDesc())
    found = placement_facts.read("labelled", [tree])
    assert (found.name, found.labels) == ("labelled", {})


def test_interfaces_without_an_address_and_loopbacks_are_left_out(monkeypatch, conn):
    one = {"addr": "10.0.0.9", "prefix": 24, "type": 0}
    vlan = {"addr": "10.0.7.9", "prefix": 24, "type": 0}
    mac = "52:54:00:00:00:01"
    found = addresses._parse(
        {
            "lo": {"hwaddr": "00:00:00:00:00:00", "addrs": [{**one, "addr": "127.0.0.1"}]},
            "eth0": {"hwaddr": mac, "addrs": [one]},
            "eth1": {"hwaddr": "52:54:00:00:00:02", "addrs": None},
            "tun0": {"hwaddr": None, "addrs": [one]},
            "eth0.7": {"hwaddr": mac, "addrs": [vlan]},
        },
        "agent",
    )
    link = {"address": "10.0.0.9", "prefix": 24, "type": "ipv4"}
    tagged = {**link, "address": "10.0.7.9"}
    assert found == [
        {mac: {"interface": "eth0", "source": "agent", "addresses": [link]}},
        {mac: {"interface": "eth0.7", "source": "agent", "addresses": [tagged]}},
    ]
    monkeypatch.setattr(addresses, "by_source", lambda _dom: found)
    all_of_it = addresses.of_domain(conn.lookupByName("test"))
    assert all_of_it[mac]["addresses"] == [link, tagged]


# -- power -------------------------------------------------------------------------------------


def test_what_libvirt_does_not_show_afterwards_is_no_success(conn):
    dom = conn.lookupByName("test")
    with pytest.raises(errors.OperationFailed) as raised:
        lifecycle._confirm(dom, "pause", "paused")
    assert raised.value.text == (
        "cannot pause test: libvirt accepted the command, but its state is running"
    )


def test_a_guest_is_only_asked_to_shut_down_where_nobody_waits(conn):
    dom = conn.lookupByName("test")
    assert lifecycle.shutdown(dom) is True
    assert not dom.isActive()
    dom.create()


def test_a_transient_guest_that_has_shut_down_is_gone_and_that_is_success(conn):
    dom = conn.createXML(
        "<domain type='test'><name>passing</name><memory>1024</memory><os><type>hvm</type></os>"
        "</domain>"
    )
    assert lifecycle.shutdown(dom, timeout_s=30) is True
    assert "passing" not in [one.name() for one in conn.listAllDomains()]


ASLEEP = """<node><domain type='test' xmlns:test='http://libvirt.org/schemas/domain/test/1.0'>
<name>asleep</name><memory>1024</memory><os><type>hvm</type></os>
<test:runstate>7</test:runstate></domain></node>"""


def test_a_guest_that_sleeps_is_woken_and_not_resumed(tmp_path):
    """The test driver cannot wake one; its words name what was asked of it."""
    (tmp_path / "node.xml").write_text(ASLEEP)
    virt = load(f"test://{tmp_path}/node.xml")
    assert virt["virt.vm_state"]() == {"asleep": "pmsuspended"}
    with pytest.raises(errors.VirtError, match=r"cannot resume asleep: .*virDomainPMWakeup"):
        virt["virt.resume"]("asleep")
    assert virt["virt.vm_state"]() == {"asleep": "pmsuspended"}


def test_who_may_not_press_is_told_so_while_the_guest_runs_on(conn):
    seen = libvirt.openReadOnly("test:///default")
    dom = seen.lookupByName("test")
    with pytest.raises(errors.VirtError, match=r"^cannot shut down test: .*read only access"):
        lifecycle.shutdown(dom, timeout_s=30)
    assert dom.isActive()
    seen.close()


# -- the picture of its screen -----------------------------------------------------------------


def test_a_picture_becomes_a_png():
    found = screenshot.png_of_ppm(b"P6\n# made by QEMU\n2 1\n255\nabcdef")
    assert found.startswith(screenshot.PNG)
    assert struct.unpack(">II", found[16:24]) == (2, 1)
    pixels = found[found.index(b"IDAT") + 4 : found.index(b"IEND") - 8]
    assert zlib.decompress(pixels) == b"\0abcdef"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"GIF89a", "in an unknown format"),
        (b"", "in an unknown format"),
        (b"P6\n2 1\n65535\nabcdefabcdef", "in an unknown format"),
        (b"P6\n2 1\n255\nabcde", "is truncated"),
    ],
)
def test_what_is_no_picture_is_said(data, why):
    with pytest.raises(errors.OperationFailed, match=why):
        screenshot.png_of_ppm(data)


def test_a_picture_that_cannot_be_written_is_said_with_its_place(tmp_path):
    (tmp_path / "file").touch()
    path = str(tmp_path / "file" / "web1.png")
    with pytest.raises(errors.OperationFailed, match=rf"^cannot write {re.escape(path)}: "):
        screenshot.save(b"x", "web1", str(tmp_path), path)
    assert (tmp_path / "file").read_bytes() == b""
    place = tmp_path / "place"
    place.mkdir()
    with pytest.raises(errors.OperationFailed, match=rf"^cannot write {re.escape(str(place))}: "):
        screenshot.save(b"x", "web1", str(tmp_path), str(place))
    assert sorted(tmp_path.iterdir()) == [tmp_path / "file", place], "nothing is left"


@pytest.mark.parametrize("there", ["a link", "another's file"])
def test_a_picture_takes_the_place_of_what_has_its_name_and_is_not_written_into_it(tmp_path, there):
    """In a folder such as /tmp it was put there by somebody who wants to see it, or to spoil what
    it leads to."""
    other, path = tmp_path / "other", tmp_path / "web1.png"
    other.write_bytes(b"other")
    other.chmod(0o666)
    path.symlink_to(other) if there == "a link" else path.hardlink_to(other)
    assert screenshot.save(b"x", "web1", str(tmp_path), str(path)) == str(path)
    assert other.read_bytes() == b"other"
    assert path.read_bytes() == b"x" and not path.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o600
    assert sorted(tmp_path.iterdir()) == [other, path]


def test_a_screen_that_a_guest_has_made_huge_is_read_no_further(conn, monkeypatch):
    whole = len(screenshot._read(conn, conn.lookupByName("test"), 0))
    monkeypatch.setattr(screenshot, "_MAX_BYTES", whole)
    assert screenshot.take(conn, conn.lookupByName("test"))
    monkeypatch.setattr(screenshot, "_MAX_BYTES", whole - 1)
    with pytest.raises(errors.OperationFailed, match="the screen of test is larger than"):
        screenshot.take(conn, conn.lookupByName("test"))


# -- a libvirt that asks who we are ------------------------------------------------------------


@pytest.fixture
def asking(tmp_path):
    """The URI of a libvirt that wants a user and a password."""
    node = tmp_path / "node.xml"
    node.write_text("<node><auth><user password='right'>virt</user></auth></node>")
    return f"test://{node}"


def test_the_user_and_the_password_of_the_settings_are_told_to_a_libvirt_that_asks(asking):
    with connection.connect(Connection(asking, "virt", "right")) as conn:
        assert conn.isAlive()


@pytest.mark.parametrize("who", [("virt", "wrong"), ("other", "right"), ("virt", None)])
def test_others_are_not_let_in_and_no_password_is_in_the_error(asking, who):
    with (
        pytest.raises(errors.ConnectionFailed, match="authentication failed") as raised,
        connection.connect(Connection(asking, *who)),
    ):
        pass
    assert "wrong" not in raised.value.text
    assert "right" not in raised.value.text


def test_an_error_of_our_own_is_not_taken_for_one_of_libvirts():
    with pytest.raises(TypeError), connection.translated("start web1"):
        len(7)
