"""Guests that fail alone, as the agent of high availability sees them, with QEMU and real
programs."""

# ruff: noqa: F811
import os
import subprocess

import pytest

libvirt = pytest.importorskip("libvirt")

from saltvirt.ha.agent import health, service
from saltvirt.ha.agent.definitions import DefinitionCache
from saltvirt.ha.agent.guests import Guests, LibvirtConfig
from saltvirt.ha.agent.instances import InstanceTable
from saltvirt.ha.model import messages
from tests.clock import until
from tests.functional.daemon import libvirtd  # noqa: F401

NAME = "web1"
XML = """<domain type='qemu'><name>{name}</name><memory unit='MiB'>16</memory><vcpu>1</vcpu>
<os><type arch='x86_64' machine='pc'>hvm</type></os><on_crash>{crash}</on_crash><devices>
<disk type='{kind}' device='disk'><driver name='qemu' type='raw' error_policy='stop'/>{source}
<target dev='hda' bus='ide'/></disk>{devices}</devices></domain>"""
HALT = "fa f4 eb fc"  # cli; hlt, and again
# mov dx,0x505; mov al,1; out dx,al: pvpanic's port
PANICS = f"ba 05 05 b0 01 ee {HALT}"
# mov dx,0x443; mov al,0x0e; out dx,al: the watchdog ib700 fires after 2 s
BITES = f"ba 43 04 b0 0e ee {HALT}"
# int 0x13 writes one piece of 32 KiB behind the other
WRITES = """31 c0 8e d8 8e d0 bc 00 7c fb be 1c 7c b8 00 43 b2 80 cd 13 66 83 06 24 7c 40 eb ee
10 00 40 00 00 00 00 10 40 00 00 00 00 00 00 00"""
WATCHDOG = "<watchdog model='ib700' action='{}'/>"


def sector(program):
    code = bytes.fromhex(program)
    return code + bytes(510 - len(code)) + b"\x55\xaa"


class Alone:
    """A host's agent, as far as guests go, and one guest."""

    def __init__(self, daemon, folder):
        self.daemon, self.folder = daemon, folder
        where = LibvirtConfig(daemon.uri, str(folder / "locks"), 30, 0.1)
        self.copies = InstanceTable(str(folder / "guests.json"), "a", service.boottime())
        kept = DefinitionCache(str(folder / "definitions"), [])
        self.guests = Guests(where, self.copies, kept, service.boottime)
        self.guests.names = frozenset([NAME])
        self.guests.begin()
        until(lambda: self.copies.is_known, "a look", 30)
        self.conn = libvirt.open(daemon.uri)
        self.epoch = 0

    def runs(self, program, devices="", crash="destroy", disk=None):
        """The guest, started by the agent. disk: a file; else one of its own."""
        path = disk or str(self.folder / "disk.raw")
        with open(self.inside(path), "wb") as file:
            file.write(sector(program))
            file.truncate(64 * 1024**2)
        source = f"<source file='{path}'/>"
        self.define(XML.format(name=NAME, kind="file", source=source, devices=devices, crash=crash))

    def define(self, xml):
        self.conn.defineXML(xml)
        self.start()

    def start(self):
        self.epoch += 1
        self.guests.start(NAME, self.epoch)
        until(lambda: self.told().state == messages.RUNNING, "it runs", 30)

    def inside(self, path):
        """A path as libvirt's namespace has it."""
        return f"/proc/{self.child()}/root{path}"

    def child(self):
        with open(f"/proc/{self.daemon.process.pid}/task/{self.daemon.process.pid}/children") as f:
            return f.read().split()[0]

    def told(self):
        return self.guests.health.annotate(self.copies.statuses([NAME]))[NAME]

    def ails(self, trouble, words):
        until(lambda: self.told().trouble == trouble, trouble, 90)
        assert words in self.told().detail
        assert self.told().state == messages.RUNNING, "it may write still"

    def anew(self):
        """What the leader's word makes of it: killed, started."""
        self.guests.kill(NAME)
        until(lambda: self.told().state == messages.STOPPED, "it is off", 30)
        self.start()

    def end(self):
        dom = self.conn.lookupByName(NAME)
        if dom.isActive():
            dom.destroy()
        dom.undefine()
        self.guests.end()


@pytest.fixture
def alone(libvirtd, tmp_path, monkeypatch):
    monkeypatch.setattr(health, "CLEAR_S", 1)
    found = Alone(libvirtd, tmp_path)
    yield found
    found.end()


def test_a_kernel_that_panicked_and_is_kept_is_alive_and_started_anew_when_it_was_killed(alone):
    alone.runs(PANICS, "<panic model='isa'/>", crash="preserve")
    alone.ails(messages.PANICKED, "its kernel panicked")
    alone.anew()
    alone.ails(messages.PANICKED, "its kernel panicked")


def test_a_kernel_that_panicked_and_is_kept_is_ended_when_it_is_to_be_stopped(alone):
    """Found in a lab: it was asked to shut down each second, which libvirt refused."""
    alone.runs(PANICS, "<panic model='isa'/>", crash="preserve")
    alone.ails(messages.PANICKED, "its kernel panicked")
    alone.guests.shut_down(NAME)
    until(lambda: alone.told().state == messages.STOPPED, "it is off", 30)


def test_a_kernel_that_panicked_and_was_destroyed_has_crashed(alone):
    alone.runs(PANICS, "<panic model='isa'/>")
    until(lambda: alone.told().state == messages.CRASHED, "it crashed", 30)


def test_a_watchdog_that_pauses(alone):
    alone.runs(BITES, WATCHDOG.format("pause"))
    alone.ails(messages.WATCHDOG, "its watchdog fired")


def test_a_watchdog_that_resets_is_counted(alone):
    alone.runs(BITES, WATCHDOG.format("reset"))
    until(lambda: alone.told().resets > 1, "two resets", 60)
    assert alone.told().trouble == ""
    alone.anew()
    assert alone.told().resets < 2  # those of before are forgotten


def test_a_watchdog_that_takes_its_power_is_named(alone):
    alone.runs(BITES, WATCHDOG.format("poweroff"))
    until(lambda: alone.told().state in (messages.STOPPED, messages.CRASHED), "it is off", 30)
    until(lambda: alone.told().detail == "its watchdog fired: poweroff", "libvirt's event", 30)


def test_a_watchdog_that_does_nothing_is_nothing(alone):
    alone.runs(BITES, WATCHDOG.format("none"))
    fired = []
    alone.guests.health.on_watchdog = lambda name, action: fired.append(action)
    until(lambda: fired, "it fired", 30)
    assert alone.told() == messages.GuestStatus(alone.epoch, messages.RUNNING)


def test_a_full_storage_is_told_from_one_that_failed(alone):
    small = alone.folder / "small"
    small.mkdir()
    mount = f"nsenter -t {alone.child()} -m mount -t tmpfs -o size=256k none {small}"
    subprocess.run(mount.split(), check=True)
    alone.runs(WRITES, disk=str(small / "disk.raw"))
    alone.ails(messages.FULL, "no space left for hda")
    more = f"nsenter -t {alone.child()} -m mount -o remount,size=200m {small}"
    subprocess.run(more.split(), check=True)
    alone.conn.lookupByName(NAME).resume()
    until(lambda: not alone.told().trouble, "it runs on", 30)


def test_a_disk_that_fails(alone, tmp_path):
    """Its server of network block devices is gone."""
    disk, address = tmp_path / "disk.raw", str(tmp_path / "nbd")
    with open(disk, "wb") as file:
        file.write(sector(WRITES))
        file.truncate(64 * 1024**2)
    server = subprocess.Popen(["qemu-nbd", "-f", "raw", "-k", address, "-t", str(disk)])
    try:
        until(lambda: os.path.exists(address), "the server", 10)
        source = f"""<source protocol='nbd'><host transport='unix' socket='{address}'/></source>"""
        alone.define(XML.format(name=NAME, kind="network", source=source, devices="", crash=""
                                "destroy"))  # fmt: skip
    finally:
        server.kill()
        server.wait()
    alone.ails(messages.IO_FAILED, "I/O error of hda")


def test_one_that_a_person_paused_is_well(alone):
    alone.runs(HALT)
    alone.conn.lookupByName(NAME).suspend()
    looked_s = alone.copies.observed_s + 2
    until(lambda: alone.copies.observed_s > looked_s, "looks", 30)
    assert alone.told() == messages.GuestStatus(alone.epoch, messages.RUNNING)


def test_an_agent_that_was_never_heard_is_no_fault_and_one_that_is_silent_since_is(
    alone, monkeypatch
):
    monkeypatch.setattr(health, "ASK_S", 0.2)
    channel = """<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/>
    </channel>"""
    alone.guests.health.agents = {NAME: 1}
    alone.runs(HALT, channel)
    of = alone.guests.health._cases
    until(lambda: NAME in of and of[NAME].missed > health.MISSES, "questions that it missed", 60)
    assert alone.told().trouble == ""
    alone.guests.health._change(NAME, heard_s=service.boottime())
    alone.ails(messages.SILENT, "its guest agent did not answer for 1 s")
    alone.guests.health.on_reboot(NAME)
    assert alone.told().trouble == ""
    alone.guests.health._change(NAME, heard_s=service.boottime())
    alone.conn.lookupByName(NAME).suspend()
    until(lambda: of[NAME].heard_s is None, "it is paused", 30)
    assert alone.told().trouble == ""


def test_a_start_that_failed_says_why(alone):
    alone.runs(HALT)
    alone.guests.kill(NAME)
    until(lambda: alone.told().state == messages.STOPPED, "it is off", 30)
    os.unlink(alone.inside(str(alone.folder / "disk.raw")))
    alone.guests.start(NAME, 9)
    until(lambda: alone.told().state == messages.FAILED, "it failed", 30)
    assert "the start failed: " in alone.told().detail and "disk.raw" in alone.told().detail
