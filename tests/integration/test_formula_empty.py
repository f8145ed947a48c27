"""One apply turns a machine without libvirt into a hypervisor, and clean reverts it."""

import pytest

from tests.integration.test_formula import addresses, changes, failures, link

pytestmark = [pytest.mark.lab, pytest.mark.slow]
# no cgroup tree is writable in a machine of the lab
PILLAR = {"libvirt": {"qemu": {"cgroup_controllers": []}}}
DISK = [{"name": "system", "size": 16, "format": "qcow2"}]


@pytest.fixture(scope="module")
def cloud(empty_lab):
    empty_lab.sync()
    return empty_lab


def apply(cloud, sls, **kwargs):
    return cloud.salt("hv*", "state.apply", sls, timeout=500, pillar=PILLAR, **kwargs)


def sh(cloud, script):
    return cloud.exec("hv1", script).stdout


def test_a_bare_machine_becomes_a_hypervisor_and_is_none_again(cloud):
    assert sh(cloud, "command -v virsh qemu-img || echo none").strip() == "none"
    would = apply(cloud, "libvirt", test=True)
    for states in would.values():
        assert [state["comment"] for state in states.values() if state["result"] is False] == []
    assert all(state["result"] is not True for state in would["hv1"].values() if state["changes"])
    assert sh(cloud, "command -v virsh || echo none").strip() == "none"

    assert failures(apply(cloud, "libvirt")) == {}
    for host, address in (("hv1", "10.77.0.11"), ("hv2", "10.77.0.12")):
        cloud.wait_for_minion(host)
        assert addresses(cloud, host, "br0") == [address]
    again = apply(cloud, "libvirt")
    assert (failures(again), changes(again)) == ({}, {})

    done = cloud.run("virt.init", "t1", 1, 64, "null", disk="null", disks=DISK, host="hv1")
    assert done.rc == 0, done.stdout
    assert cloud.run("virt.migrate", "t1", "hv2", copy_storage="all").rc == 0
    assert cloud.run("virt.migrate", "t1", "hv1", copy_storage="all").rc == 0
    disk = "/srv/salt-images/t1_system.qcow2"
    before = sh(cloud, "systemctl list-units --no-legend 'libvirt*' 'virt*'; cat /etc/os-release")

    refused = apply(cloud, "libvirt.clean")
    said = [state["comment"] for state in refused["hv1"].values()]
    assert said == ["Running guests: t1"]
    now = sh(cloud, "systemctl list-units --no-legend 'libvirt*' 'virt*'; cat /etc/os-release")
    assert now == before

    assert cloud.call("hv1", "virt.stop", "t1") is True
    digest = sh(cloud, f"sha256sum {disk}")
    apply(cloud, "libvirt.clean", test=True)
    assert "libvirtd" in sh(cloud, "systemctl is-active libvirtd.socket; command -v libvirtd")
    assert failures(apply(cloud, "libvirt.clean")) == {}
    for host, address in (("hv1", "10.77.0.11"), ("hv2", "10.77.0.12")):
        cloud.wait_for_minion(host)
        assert (addresses(cloud, host, "eth0"), link(cloud, host, "br0")) == ([address], None)
    left = (
        "command -v libvirtd virsh qemu-system-x86_64 || echo none; ls -A /etc/pki/libvirt/private"
    )
    assert sh(cloud, left).strip() == "none"
    assert "salt_virt" not in sh(cloud, "nft list ruleset; ss -ltn")
    assert ":16514" not in sh(cloud, "ss -ltn")
    assert sh(cloud, f"sha256sum {disk}") == digest
    assert "t1.xml" in sh(cloud, "ls /etc/libvirt/qemu")
    again = apply(cloud, "libvirt.clean")
    assert (failures(again), changes(again)) == ({}, {})

    assert failures(apply(cloud, "libvirt")) == {}
    cloud.wait_for_minion("hv1")
    assert cloud.call("hv1", "virt.start", "t1") is True
