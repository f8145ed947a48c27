"""Changes that are announced as possible on a running guest are made on one. A guest without a
system runs in a QEMU driver of its own (see test_domains.py), emulated."""

import shutil
import subprocess

import pytest

from saltvirt.design import caps, domain
from saltvirt.design.context import GuestInputs
from saltvirt.design.source import Source
from saltvirt.diff.changes import changes
from saltvirt.spec import guest
from saltvirt.xml.domain.domain import Domain
from tests.functional.embedded import connection

libvirt = pytest.importorskip("libvirt")
NOW = 1  # VIR_DOMAIN_AFFECT_LIVE
MAC = "52:54:00:00:00:01"


class Machine:
    """A running guest, and how a change is made on it."""

    def __init__(self, conn, folder):
        self.conn = conn
        self.folder = folder
        self.caps = caps.parse(
            conn.getCapabilities(), conn.getDomainCapabilities(None, None, None, "qemu")
        )
        spec = guest.parse(
            "live",
            hypervisor="qemu",
            cpu={"maximum": 4, "current": 2},
            mem={"boot": 256, "current": 256},
            graphics={"type": "vnc", "password": "first"},
            disks=[self.cd("a.iso")],
            interfaces=[{"name": "eth0", "type": "user", "mac": MAC}],
        )
        built = domain.build(spec, self.caps, self.given())
        self.domain = conn.defineXML(built.tostring())
        # its firmware would close the drive's tray at moments of its own choice
        self.domain.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED)

    def cd(self, medium):
        path = str(self.folder / medium) if medium else None
        return {"name": "cd", "device": "cdrom", "source_file": path}

    def given(self):
        sources = {
            name: Source(path=str(self.folder / f"{name}.qcow2"), format="qcow2", created=True)
            for name in ("system", "data")
        }
        return GuestInputs(sources=sources, mac=lambda _nic: "52:54:00:00:00:09")

    def stored(self):
        flags = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE
        return Domain.fromstring(self.domain.XMLDesc(flags))

    def running(self):
        return Domain.fromstring(self.domain.XMLDesc(0))

    def update(self, **arguments):
        """Makes the live changes on the running guest; the list of all changes."""
        actual = self.stored()
        spec = guest.parse("live", update=True, **arguments)
        wanted = domain.amend(spec, actual, self.caps, self.given())
        found = changes(wanted, actual)
        for change in found:
            if change.live:
                self.make(change)
        self.conn.defineXML(wanted.tostring())
        again = self.stored()
        assert changes(domain.amend(spec, again, self.caps, self.given()), again) == []
        return found

    def make(self, change):
        how = {
            "attach": self.domain.attachDeviceFlags,
            "detach": self.domain.detachDeviceFlags,
            "update": self.domain.updateDeviceFlags,
            "medium": self.domain.updateDeviceFlags,
        }
        if change.path == "vcpu:current":
            self.domain.setVcpusFlags(change.new, NOW)
        elif change.path == "current_memory_kib":
            self.domain.setMemoryFlags(change.new, NOW)
        elif change.action in how:
            how[change.action](change.xml, NOW)
        else:
            kinds = {"title": 1, "description": 0}
            self.domain.setMetadata(kinds[change.path], change.new, None, None, NOW)


def images(folder):
    for name in ("system.qcow2", "data.qcow2"):
        command = ["qemu-img", "create", "-q", "-f", "qcow2", str(folder / name), "64M"]
        subprocess.run(command, check=True)
    for name in ("a.iso", "b.iso", "s.img"):
        (folder / name).write_bytes(bytes(1 << 20))


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    if not shutil.which("qemu-img"):
        pytest.skip("needs qemu-img")
    folder = tmp_path_factory.mktemp("images")
    images(folder)
    made = Machine(connection(), folder)
    yield made
    made.domain.destroy()
    made.domain.undefine()


def test_cpus_and_memory(machine):
    found = machine.update(cpu={"current": 3}, mem={"current": 200})
    assert all(change.live for change in found)
    assert machine.running().vcpu.current == 3


def test_the_medium(machine):
    (change,) = machine.update(disks=[{"name": "system"}, machine.cd("b.iso")])
    assert change.live
    assert {disk.source.file for disk in machine.running().disks} == {
        str(machine.folder / "system.qcow2"),
        str(machine.folder / "b.iso"),
    }
    machine.update(disks=[{"name": "system"}, machine.cd(None)])
    assert [
        disk.source.location() for disk in machine.running().disks if disk.device == "cdrom"
    ] == [None]


def test_disks_on_both_buses(machine):
    scsi = {
        "name": "s",
        "source_file": str(machine.folder / "s.img"),
        "model": "scsi",
        "format": "raw",
    }
    wish = [{"name": "system"}, machine.cd(None), {"name": "data"}, scsi]
    assert all(change.live for change in machine.update(disks=wish))
    running = machine.running()
    assert {disk.target for disk in running.disks} >= {"vda", "vdb", "sda"}
    assert [c.model for c in running.controllers if c.type == "scsi"] == ["virtio-scsi"]


def test_interfaces(machine):
    machine.update(interfaces=[{"name": "eth0", "type": "user", "link": False}])
    assert [nic.link_state for nic in machine.running().interfaces] == ["down"]
    two = [{"name": "eth0", "type": "user"}, {"name": "eth1", "type": "user"}]
    machine.update(interfaces=two)
    assert [nic.mac for nic in machine.running().interfaces] == [MAC, "52:54:00:00:00:09"]


def test_another_password(machine):
    (change,) = machine.update(graphics={"type": "vnc", "password": "second"})
    assert change.live


def test_title_and_description(machine):
    machine.update(title="x", description="y")
    running = machine.running()
    assert (running.title, running.description) == ("x", "y")
