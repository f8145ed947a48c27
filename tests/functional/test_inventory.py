"""On libvirt's test driver; hosts of the lab are asked in tests/integration."""

import pytest

libvirt = pytest.importorskip("libvirt")

from saltvirt.host import inventory  # noqa: E402


@pytest.fixture
def conn():
    conn = libvirt.open("test:///default")
    yield conn
    conn.close()


def test_guests_and_sizes(conn, tmp_path):
    found = inventory.read(conn, lambda key, default=None: default, tmp_path / "not" / "yet")
    info = conn.getInfo()
    assert (found["cpus"], found["memory_kib"]) == (info[2], info[1] * 1024)
    assert found["guests"]["test"] == {
        "uuid": conn.lookupByName("test").UUIDString(),
        "state": "running", "vcpus": 2, "memory_kib": 8388608, "autostart": False, "groups": [],
    }  # fmt: skip
    assert found["networks"] == ["default"]
    assert found["images_folder"]["free_bytes"] > 0


def test_groups_come_from_our_metadata(conn, tmp_path):
    xml = conn.lookupByName("test").XMLDesc().replace("<name>test<", "<name>web1<")
    xml = xml[: xml.index("<uuid>")] + xml[xml.index("</uuid>") + 7 :]
    ours = (
        '<metadata><s:guest xmlns:s="https://saltproject.io/xmlns/salt-virt/1" groups="web eu"/>'
        "</metadata>"
    )
    conn.defineXML(xml.replace("</name>", "</name>" + ours))
    found = inventory.read(conn, lambda key, default=None: default, tmp_path)
    assert found["guests"]["web1"]["groups"] == ["web", "eu"]
    assert found["guests"]["web1"]["state"] == "shutdown"


def test_bridges_are_told_from_other_devices(tmp_path):
    (tmp_path / "br0" / "bridge").mkdir(parents=True)
    (tmp_path / "eth0").mkdir()
    (tmp_path / "eth0" / "uevent").write_text("INTERFACE=eth0\n")
    (tmp_path / "ovs0").mkdir()
    (tmp_path / "ovs0" / "uevent").write_text("DEVTYPE=openvswitch\n")
    assert inventory.bridges(tmp_path) == ["br0", "ovs0"]
