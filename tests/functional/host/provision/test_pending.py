"""Pending changes of a running guest, in a private libvirtd with emulated guests: each call tries
and reports them until the guest has them."""

import contextlib
import subprocess
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.diff import pending
from saltvirt.host.domain import resize
from saltvirt.host.provision import hotplug
from saltvirt.metrics.host import read
from saltvirt.xml.domain.domain import Domain
from tests.functional.conftest import load
from tests.functional.daemon import libvirtd  # noqa: F401

SYSTEM = {"name": "system", "size": 16, "format": "qcow2"}
DATA = {"name": "data", "size": 4, "format": "raw"}
MAC = "52:54:00:00:00:01"
MODEL = "<cpu mode='host-model'><feature policy='{}' name='vmx'/></cpu>"
NIC = {"name": "eth0", "type": "user", "mac": MAC}


@pytest.fixture
def host(libvirtd, tmp_path):  # noqa: F811
    """Its modules, and a guest ``g1`` that runs without a system of its own."""
    (tmp_path / "images").mkdir()
    modules = load(
        libvirtd.uri, images=str(tmp_path / "images"), lock=str(tmp_path / "lock"),
        placement={"reserved_memory_kib": 0, "memory_ratio": 10, "reserved_disk_bytes": 0},
    )  # fmt: skip
    conn = libvirt.open(libvirtd.uri)

    def init(**more):
        given = {"cpu": 1, "mem": 128, "disks": [SYSTEM], "interfaces": [NIC], "nic": None,
                 "seed": False, "hypervisor": "qemu", **more}  # fmt: skip
        return modules["virt.init"]("g1", given.pop("cpu"), given.pop("mem"), **given)

    def update(**given):
        return modules["virt.update"]("g1", **given)

    def texts():
        return modules["virt.vm_info"]("g1")["g1"]["pending"]

    def running():
        return Domain.fromstring(conn.lookupByName("g1").XMLDesc(0))

    yield SimpleNamespace(
        modules=modules, conn=conn, init=init, update=update, texts=texts, running=running,
        images=tmp_path / "images", daemon=libvirtd,
    )  # fmt: skip
    for dom in conn.listAllDomains():
        if dom.isActive():
            dom.destroy()
        dom.undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_NVRAM)
    conn.close()


@contextlib.contextmanager
def written_to(path):
    """While another process has the image open, so that QEMU cannot."""
    argv = ["qemu-io", "-f", "raw", str(path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdin.write(b"length\n")
        process.stdin.flush()
        assert process.stdout.readline()
        yield
        process.stdin.close()


def targets(domain):
    return [disk.target for disk in domain.disks]


def test_what_a_running_guest_refused_is_tried_again_until_it_has_it(host):
    host.init()
    data = host.images / "data.raw"
    data.write_bytes(bytes(1 << 20))
    disks = [SYSTEM, {"name": "data", "source_file": str(data), "format": "raw"}]
    with written_to(data):
        for first in (True, False):
            done = host.update(disks=disks)
            assert done["definition"] is first
            assert "vdb" in done["errors"][0] and len(done["errors"]) == 1
            assert [change["live"] for change in done["changes"]] == [False] * first
            assert (
                done["comment"]
                == f"will change at the next start: disk vdb (none now, then {data})"
            )
            assert done["pending"] == host.texts()
    told = host.update(disks=disks, test=True)
    assert [(change["path"], change["live"]) for change in told["changes"]] == [("disks:vdb", True)]
    assert targets(host.running()) == ["vda"]
    done = host.update(disks=disks)
    assert [(change["path"], change["live"]) for change in done["changes"]] == [("disks:vdb", True)]
    assert "errors" not in done and "pending" not in done and host.texts() == []
    assert targets(host.running()) == ["vda", "vdb"]
    assert host.update(disks=disks)["definition"] is False


def test_a_disk_that_the_guest_does_not_release_is_asked_for_again(host, monkeypatch):
    monkeypatch.setattr(hotplug, "RELEASE_TIMEOUT_S", 0.5)
    host.init(disks=[SYSTEM, DATA])
    for _ in range(2):
        done = host.update(disks=[SYSTEM], detach=True)
        assert "has not released it" in done["errors"][0]
        assert [text.split(" (")[0] for text in done["pending"]] == ["disk vdb"]
    # no call that speaks of something else tries to
    done = host.update(title="x")
    assert "errors" not in done and len(done["pending"]) == 1


def test_a_disk_that_was_not_released_is_meant_by_its_name(host, monkeypatch):
    """Its target is another disk's in the definition by then."""
    monkeypatch.setattr(hotplug, "RELEASE_TIMEOUT_S", 0.5)
    tried, detach = [], hotplug._detach
    monkeypatch.setitem(
        hotplug._BY_ACTION, "detach", lambda *args: tried.append(args[1].path) or detach(*args)
    )
    host.init(disks=[SYSTEM, DATA])
    host.update(detach=["data"])
    more = {**DATA, "name": "more", "target": "vdb"}
    host.update(disks=[SYSTEM, more])
    dom = host.conn.lookupByName("g1")
    stored = [disk.source.file for disk in stored_of(dom).disks]
    assert stored == [str(host.images / f"g1_{name}") for name in ("system.qcow2", "more.raw")]
    assert targets(host.running()) == targets(stored_of(dom)) == ["vda", "vdb"]
    assert tried == ["disks:vdb"]
    done = host.update(detach=["data"])
    assert "has not released it" in done["errors"][0] and "warnings" not in done
    assert tried == ["disks:vdb"] * 2
    why = r"vdb is disk more .* running guest has disk data"
    with pytest.raises(errors.InvalidInput, match=why):
        host.update(detach=["vdb"])
    assert [disk.source.file for disk in stored_of(dom).disks] == stored
    host.update(detach=["more"])
    assert targets(stored_of(dom)) == ["vda"]
    assert tried == ["disks:vdb"] * 2
    host.update(detach=["vdb"])
    assert tried == ["disks:vdb"] * 3


def stored_of(dom):
    return Domain.fromstring(dom.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))


def test_the_disk_that_a_guest_boots_from_is_not_taken_because_its_definition_has_another(host):
    host.init()
    other = host.images / "other.raw"
    other.write_bytes(bytes(1 << 20))
    dom = host.conn.lookupByName("g1")
    text = dom.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
    stored = Domain.fromstring(text)
    [disk] = stored.disks
    disk.source.file, disk.driver_type = str(other), "raw"
    host.conn.defineXML(stored.tostring())
    disks = [{"name": "system", "source_file": str(other), "format": "raw", "target": "vda"}]
    done = host.update(disks=disks)
    assert "errors" not in done and done["definition"] is False
    assert done["pending"][0].startswith("disk vda")
    assert host.running().disks[0].source.file == str(host.images / "g1_system.qcow2")


def test_a_running_guest_gives_memory_back_only_if_it_is_asked_for_it(host):
    host.init(mem=512)
    for test in (True, False):
        done = host.update(mem=256, test=test)
        assert {change["path"]: change["live"] for change in done["changes"]} == {
            "memory_kib": False, "current_memory_kib": False
        }  # fmt: skip
        assert done["pending"] == ["memory (512 MiB now, then 256 MiB)"]
    assert host.running().current_memory_kib == 512 * 1024
    done = host.update(mem=256)
    assert done["definition"] is False and done["pending"] == host.texts() != []
    done = host.update(mem=512)  # the guest has never lost it
    assert all(change["live"] for change in done["changes"]) and "pending" not in done
    assert host.texts() == []
    done = host.update(mem={"current": 256})
    assert [(change["path"], change["live"]) for change in done["changes"]] == [
        ("current_memory_kib", True)
    ]
    assert "pending" not in done
    assert host.update(mem={"current": 256})["definition"] is False


def test_what_waits_for_the_next_start_is_said_everywhere_until_then(host):
    host.init()
    expected = ["memory (128 MiB now, then 256 MiB)", "vCPUs (1 now, then 2)",
                "maximum of vCPUs (1 now, then 2)"]  # fmt: skip
    assert host.update(cpu=2, mem=256)["pending"] == expected
    assert host.update()["pending"] == expected
    assert host.modules["virt.pending_changes"]("g1") == {"g1": expected}
    assert host.modules["virt.pending_changes"]() == {"g1": expected}
    assert host.modules["virt.full_info"]()["vm_info"]["g1"]["pending"] == expected
    [guest] = read.guest_stats(host.conn, "hv1")
    assert guest.pending == 3
    dom = host.conn.lookupByName("g1")
    dom.destroy()
    assert host.texts() == [] and "pending" not in host.update()
    dom.create()
    assert host.texts() == [] and "pending" not in host.update(cpu=2, mem=256)


def test_live_false_leaves_all_for_the_next_start_and_says_it(host):
    host.init(cpu={"maximum": 2, "current": 1})
    for _ in range(2):
        done = host.update(cpu={"current": 2}, title="new", live=False)
        assert done["pending"] == ["title (none now, then new)", "vCPUs (1 now, then 2)"]
    done = host.update(cpu={"current": 2}, title="new")
    assert {change["path"] for change in done["changes"]} == {"vcpu:current", "title"}
    assert "pending" not in done and host.running().title == "new"


def test_a_link_comes_up_at_once_beside_what_waits(host, networks):
    nic = {"name": "eth0", "network": "on-bridge", "mac": MAC}
    host.init(interfaces=[{**nic, "link": False}])
    done = host.update(interfaces=[{**nic, "link": True, "mtu": 1400}])
    assert {change["path"]: change["live"] for change in done["changes"]} == {
        f"nics:{MAC}:link_state": True, f"nics:{MAC}:mtu": False
    }  # fmt: skip
    assert done["pending"] == [f"interface {MAC}:mtu (none now, then 1400)"]
    [nic] = host.running().interfaces
    assert (nic.link_state, nic.mtu) in (("up", None), (None, None))


def test_more_disks_and_interfaces_than_libvirt_has_places_for_come_at_once(host):
    """libvirt leaves one place free on a machine with PCI Express."""
    host.init(machine="q35")
    disks = [SYSTEM, DATA, {**DATA, "name": "more"}]
    nics = [NIC, *({"name": f"eth{n}", "type": "user"} for n in (1, 2))]
    done = host.update(disks=disks, interfaces=nics)
    assert "errors" not in done and "pending" not in done
    assert (len(host.running().disks), len(host.running().interfaces)) == (3, 3)
    assert host.update(disks=disks, interfaces=nics)["definition"] is False
    # a guest that is there gets more places only if it is asked for
    asked = host.update(pcie_ports=32)
    assert {change["live"] for change in asked["changes"]} == {False} and asked["pending"]


# of what libvirt writes down of a run, nothing is a difference
_FEATURES = {"pcid": "disable", "x2apic": "require", "svm": "disable"}
STARTED = {
    "plain": {},
    "q35": {"machine": "q35"},
    "display": {"graphics": {"type": "vnc", "password": "secret"}},
    "uefi": {"boot": {"efi": True}},
    "uefi on q35": {"boot": {"efi": True}, "machine": "q35"},
    "not secure": {"boot": {"efi": True, "secure": False}, "machine": "q35"},
    "secure": {"boot": {"efi": True, "secure": True}, "machine": "q35"},
    "model": {"cpu": {"maximum": 1, "mode": "custom", "model": "qemu64", "features": _FEATURES}},
    "more CPUs": {"cpu": {"maximum": 2, "current": 1,
                          "topology": {"sockets": 2, "cores": 1, "threads": 1}}},
    "cells": {"cpu": {"maximum": 2, "numa": {0: {"cpus": "0-1", "memory": 128}}}},
    "tuned": {"cpu": {"maximum": 2, "tuning": {"shares": 500}, "iothreads": 1},
              "mem": {"boot": 129, "soft_limit": "1g"}},
    "clocks": {"clock": {"utc": False, "timers": {"rtc": {"tickpolicy": "catchup"},
                                                  "hpet": {"present": False}}}},
    "adjusted": {"clock": {"adjustment": 3600}},
    "serials": {"serials": [{"type": "pty"}, {"type": "tcp", "port": 25001, "protocol": "telnet"}],
                "consoles": [{"type": "pty"}], "watchdog": True, "guest_agent": True},
    "tpm": {"tpm": True},
    "events": {"on_crash": "restart", "stop_on_reboot": True, "title": "t", "description": "d",
               "metadata": {"a": "b"}, "boot_dev": "network hd"},
    "drives": {"disks": [SYSTEM, {"name": "cd", "device": "cdrom"},
                         {**DATA, "model": "scsi", "serial": "x", "cache": "none", "io": "native"},
                         {**DATA, "name": "more", "model": "usb"}]},
    "networks": {"interfaces": [{"name": "eth0", "network": "on-bridge", "mtu": 1400},
                                {"name": "eth1", "network": "on-device", "queues": 2}]},
}  # fmt: skip
_NETWORKS = (
    """<network><name>on-bridge</name><forward mode='bridge'/><bridge name='br-test'/>
    <portgroup name='slow'/></network>""",
    """<network><name>on-device</name><forward mode='bridge'><interface dev='veth-test'/></forward>
    </network>""",
)


@pytest.fixture
def networks(host):
    inside = host.daemon.inside
    for kind, name in (("bridge", "br-test"), ("veth", "veth-test")):
        subprocess.run([*inside, "ip", "link", "add", name, "type", kind], check=False)
        subprocess.run([*inside, "ip", "link", "set", name, "up"], check=True)
    made = [host.conn.networkDefineXML(text) for text in _NETWORKS]
    for network in made:
        network.create()
    yield
    for network in made:
        network.destroy()
        network.undefine()


@pytest.mark.parametrize("what", STARTED)
def test_a_guest_that_has_just_started_lacks_nothing(host, networks, what):
    host.init(**STARTED[what])
    assert host.running().id, "it runs"
    assert host.texts() == []
    dom = host.conn.lookupByName("g1")
    flags = libvirt.VIR_DOMAIN_XML_SECURE
    pair = [Domain.fromstring(dom.XMLDesc(more | flags)) for more in (0, 2)]
    assert pending.pending_changes(*pair) == []
    again = {word: value for word, value in STARTED[what].items() if word != "machine"}
    done = host.update(**again)
    assert (done["definition"], done["changes"]) == (False, []) and "pending" not in done


@pytest.mark.parametrize(
    ("secure", "expected"), [(None, "OVMF_VARS_4M.fd"), (True, "OVMF_VARS_4M.ms.fd")]
)
def test_secure_boot_with_its_keys_is_what_who_asks_for_it_gets(host, secure, expected):
    boot = {"efi": True, **({} if secure is None else {"secure": secure})}
    host.init(machine="q35", boot=boot)
    system = host.running().os
    assert system.nvram_template.endswith(expected)
    assert bool(system.loader_secure) is bool(secure)


def test_a_state_does_not_turn_green_because_it_ran_twice(host):
    host.init()
    data = host.images / "data.raw"
    data.write_bytes(bytes(1 << 20))
    disks = [SYSTEM, {"name": "data", "source_file": str(data), "format": "raw"}]
    running = state(host.modules)
    with written_to(data):
        for _ in range(2):
            done = running("g1", disks=disks)
            assert done["result"] is False, done
            assert "will change at the next start: disk vdb" in done["comment"]
    done = running("g1", disks=disks)
    assert done["result"] is True and "disks:vdb" in done["changes"]["g1"]["definition"]
    host.update(mem=256)
    for given in ({"disks": disks}, {}, {"mem": 256, "update": False}):
        done = running("g1", **given)
        assert (done["result"], done["changes"]) == (True, {})
        assert (
            done["comment"]
            == "g1 will change at the next start: memory (128 MiB now, then 256 MiB)"
        )


def state(modules):
    """The state ``virt.running`` with these execution modules."""
    from saltvirt.states import guests, result

    how = {"update": True, "live": True, "detach": False}

    def run(name, **given):
        about = result.StateHost(modules, {}, False)
        try:
            return guests.running(about, name, **{**how, **given})
        except Exception as exc:
            raise AssertionError(str(exc)) from exc

    return run


def test_a_definition_is_compared_with_another_firmware_and_cpu():
    """Where libvirt completes a definition for a run, what was asked for otherwise is seen."""
    text = """<domain type='kvm'><name>a</name><uuid/><memory>1024</memory><vcpu>1</vcpu>
    <os><type machine='pc'>hvm</type></os><cpu mode='custom'><model>Skylake</model>
    <feature policy='require' name='vmx'/></cpu></domain>"""
    running = Domain.fromstring(text)
    for path, words in (
        ("cpu:mode", "<cpu mode='host-passthrough'/>"),
        ("cpu:model", "<cpu mode='custom'><model>EPYC</model></cpu>"),
        ("cpu:features:vmx:policy", MODEL.format("disable")),
        (None, "<cpu mode='host-model'/>"),
        (None, MODEL.format("force")),
    ):
        tree = ElementTree.fromstring(text)
        tree.remove(tree.find("cpu"))
        tree.append(ElementTree.fromstring(words))
        stored = Domain.fromstring(ElementTree.tostring(tree, encoding="unicode"))
        found = [change.path for change in pending.pending_changes(running, stored)]
        assert found == ([path] if path else []), words
    stored = Domain.fromstring(text)
    stored.os.firmware = "efi"
    assert [change.path for change in pending.pending_changes(running, stored)] == ["os:firmware"]


def test_an_update_that_finds_no_difference_writes_nothing(host):
    drive = {"name": "cd", "device": "cdrom"}
    given = {"cpu": {"maximum": 2, "current": 1}, "mem": {"boot": 128, "current": 96}}
    host.init(**given, disks=[SYSTEM, drive])
    medium = host.images / "medium.iso"
    medium.write_bytes(bytes(1 << 20))
    disks = [{**SYSTEM, "size": 24}, DATA, {**drive, "source_file": str(medium)}]
    nics = [NIC, {"name": "eth1", "type": "user"}]
    assert len(host.update(**given, disks=disks, interfaces=nics)["changes"]) == 4
    dom = host.conn.lookupByName("g1")

    def written():
        return [dom.XMLDesc(flags) for flags in (0, libvirt.VIR_DOMAIN_XML_INACTIVE)]

    before = written()
    for test in (True, False):
        done = host.update(**given, disks=disks, interfaces=nics, test=test)
        assert done["changes"] == [] and written() == before


def test_a_disk_that_was_not_released_does_not_grow_for_the_next_one(host, monkeypatch):
    """A guest that runs has a disk at vdb that was taken from it, and gets another one there."""
    monkeypatch.setattr(hotplug, "RELEASE_TIMEOUT_S", 0.5)
    host.init(disks=[SYSTEM, DATA])
    host.update(detach=["data"])
    more = {**DATA, "name": "more", "size": 2 * DATA["size"], "target": "vdb"}
    old, new = host.images / "g1_data.raw", host.images / "g1_more.raw"
    for _ in range(2):
        done = host.update(disks=[SYSTEM, more])
        assert "warnings" not in done
    assert done["definition"] is False
    sizes = [path.stat().st_size for path in (old, new)]
    done = host.update(disks=[SYSTEM, {**more, "size": 4 * DATA["size"]}])
    still = (
        f"g1 is still running with {old} at vdb, but its definition has {new} there: stop it first"
    )
    assert still in done["warnings"][0]
    with pytest.raises(errors.Refused, match=still):
        resize.grow(host.conn, "g1", "vdb", 8 * sizes[1])
    assert [path.stat().st_size for path in (old, new)] == sizes
    host.conn.lookupByName("g1").destroy()
    assert resize.grow(host.conn, "g1", "vdb", 2 * sizes[1]) == (sizes[1], 2 * sizes[1])
    assert old.stat().st_size == sizes[0]
