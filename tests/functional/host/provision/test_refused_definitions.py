"""What a private libvirtd and its QEMU would refuse is refused before anything changes, and what
they complete by themselves is no change."""

import os

import pytest

pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from tests.functional.daemon import libvirtd  # noqa: F401
from tests.functional.host.provision.test_pending import DATA, SYSTEM, host  # noqa: F401

# arguments: what libvirt, or this host, says of them
REFUSED = [
    ({"panic": "pvpanic"}, "unknown panic model 'pvpanic'"),
    ({"panic": "s390"}, "only S390 guests support"),
    ({"iommu": {"eim": True}, "machine": "q35"}, "eim requires interrupt remapping"),
    ({"iommu": "smmuv3", "machine": "q35"}, "only supported with ARM"),
    ({"on_poweroff": "restart", "on_reboot": "destroy"}, "doesn't support 'onReboot'"),
    ({"sysinfo": {"bios": {"date": "2020-01-02"}}}, "Invalid BIOS 'date' format"),
    ({"sysinfo": {"fw_cfg": {"opt/ovmf/x": "1"}}}, "firmware name is reserved"),
    ({"clock": {"timers": {"platform": {"present": True}}}}, "unsupported timer type"),
    ({"clock": {"timezone": "Europe/Bärlin"}}, "timezone 'Europe/Bärlin' is unknown"),
    ({"clock": {"timezone": "../../../etc/passwd"}}, "is unknown"),
    ({"cpu": {"maximum": 2, "tuning": {"shares": 1}}}, "must be in range"),
    ({"disks": [SYSTEM, {**DATA, "model": "sata", "read_only": True}]}, "readonly sata disks"),
    ({"disks": [{**SYSTEM, "boot_order": 1}, {**DATA, "boot_order": 1}]}, "boot order '1' used"),
    ({"graphics": {"type": "vnc", "password": "123456789"}}, "only 8 permitted"),
    ({"boot": {"secure": True}, "machine": "q35"}, "boot: secure: give efi: True too"),
    ({"boot": {"cmdline": "quiet"}}, "boot: cmdline needs kernel"),
    ({"boot": {"loader": "/no/code.fd", "nvram": "/no/vars.fd"}}, "/no/code.fd does not exist"),
    ({"filesystems": [{"source": "/no/share", "target": "s"}]}, "/no/share does not exist"),
    ({"inputs": [{"type": "evdev", "source": "/dev/input/no"}]}, "/dev/input/no does not exist"),
]


def test_what_libvirt_refuses_is_refused_in_advance(host):  # noqa: F811
    for arguments, reason in REFUSED:
        texts = []
        for test in (True, False):
            with pytest.raises(errors.VirtError) as refusal:
                host.init(test=test, **arguments)
            texts.append(str(refusal.value))
        assert reason in texts[0] and "\n" not in texts[0], arguments
        assert texts[1] == texts[0], arguments
        assert host.conn.listAllDomains() == [] and os.listdir(host.images) == []


def test_a_test_of_an_update_asks_libvirt(host):  # noqa: F811
    host.init(start=False)
    for arguments, reason in REFUSED[:2]:
        with pytest.raises(errors.VirtError, match=reason):
            host.update(test=True, **arguments)
    data = {**DATA, "model": "sata", "read_only": True}
    with pytest.raises(errors.Unsupported, match="readonly sata disks"):
        host.update(disks=[SYSTEM, data])
    assert os.listdir(host.images) == ["g1_system.qcow2"]


def test_a_faulty_guest_can_be_changed(host):  # noqa: F811
    host.init(start=False)
    dom = host.conn.lookupByName("g1")
    passed = "<timer name='tsc' frequency='1'/></clock>"
    host.conn.defineXML(dom.XMLDesc(2).replace("</clock>", passed))
    assert [change["path"] for change in host.update(title="x", test=True)["changes"]] == ["title"]


def test_a_question_about_a_passed_interface_does_not_end_libvirtd(host):  # noqa: F811
    nic = {"name": "eth0", "hostdev": "0000:ff:10.1", "mac": "52:54:00:00:00:09"}
    for _ in range(2):
        host.init(interfaces=[nic], test=True, start=False)
    assert host.conn.listAllDomains() == []


def test_what_libvirt_completes_is_no_change(host):  # noqa: F811
    arguments = {
        "cpu": {"maximum": 2, "vcpus": {1: {"enabled": False, "hotpluggable": True}},
                "topology": {"clusters": 1, "cores": 2}},
        "disks": [SYSTEM, {**DATA, "shareable": True}, {**DATA, "name": "ro", "read_only": True}],
        "graphics": {"type": "vnc", "listen": {"type": "socket"}},
        "clock": {"timezone": "Europe/Berlin"},
        "hypervisor_features": {"hyperv-vendor-id": "Microsoft Hv"},
    }  # fmt: skip
    host.init(**arguments)
    answer = host.update(**arguments)
    assert answer["changes"] == [] and "pending" not in answer and "warnings" not in answer
    larger = {**DATA, "name": "ro", "size": 8}
    answer = host.update(disks=[larger])
    assert answer["warnings"] == ["disk vdc was not grown to 8 MiB: it is read-only"]


def test_a_guest_without_serial_port_stays_without(host):  # noqa: F811
    host.init(start=False, serials=[], consoles=[])
    assert host.update(serials=[], consoles=[])["changes"] == []
