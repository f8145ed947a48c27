"""The formula on hosts that have no bridge yet: everything is made, once."""

import json

import pytest

from tests.lab.sh import LabError

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def cloud(bare_lab):
    """Two machines whose address is on eth0, synced."""
    bare_lab.sync()
    return bare_lab


def apply(cloud, target="hv*", *more, **kwargs):
    """{host: {state: its return}} of the formula."""
    return cloud.salt(target, "state.apply", "libvirt", *more, timeout=150, **kwargs)


def failures(answers):
    return {
        (host, name): state["comment"]
        for host, states in answers.items()
        for name, state in states.items()
        if not state["result"]
    }


def changes(answers):
    return {
        (host, name): state["changes"]
        for host, states in answers.items()
        for name, state in states.items()
        if state["changes"]
    }


def link(cloud, host, name):
    """What ``ip`` says about a link and its addresses; None where there is none."""
    done = cloud.exec(host, ["ip", "-j", "addr", "show", name], check=False)
    return json.loads(done.stdout)[0] if done.returncode == 0 else None


def addresses(cloud, host, name):
    found = link(cloud, host, name)
    return [a["local"] for a in found["addr_info"] if a["family"] == "inet"] if found else None


def reachable(cloud, host):
    try:
        return cloud.salt(host, "test.ping", timeout=10).get(host) is True
    except LabError:
        return False


def test_a_bridge_that_cuts_the_host_off_is_taken_back(cloud):
    """The master is not reachable on that port, as it would not be over a wrong bridge."""
    before = addresses(cloud, "hv2", "eth0")
    script = (
        "import sys; sys.path.insert(0, '/var/cache/salt/minion/extmods/utils')\n"
        "from saltvirt.host import bridge\n"
        "bridge.over('br0', 'eth0', (None, None), ('10.77.0.1', 9), 3)\n"
    )
    done = cloud.exec("hv2", ["/opt/salt/bin/python", "-c", script], check=False)
    assert "eth0 was put back as it was" in done.stderr
    cloud.wait(lambda: addresses(cloud, "hv2", "eth0") == before, "eth0 as it was")
    assert link(cloud, "hv2", "br0") is None
    assert cloud.exec("hv2", "ls /etc/systemd/network").stdout.split() == ["10-eth0.network"]
    cloud.wait(lambda: reachable(cloud, "hv2"), "hv2 answers")


def test_a_minion_that_dies_meanwhile_is_put_back_by_the_timer(cloud):
    script = (
        "import os, sys; sys.path.insert(0, '/var/cache/salt/minion/extmods/utils')\n"
        "from saltvirt.host import bridge\n"
        "bridge._reachable = lambda *a: os._exit(9)\n"
        "bridge.over('br0', 'eth0', (None, None), ('10.77.0.1', 4506), -25)\n"
    )
    cloud.exec("hv2", ["/opt/salt/bin/python", "-c", script], check=False)
    assert link(cloud, "hv2", "br0") is not None
    cloud.wait(lambda: link(cloud, "hv2", "br0") is None, "the timer's way back")
    cloud.wait(lambda: addresses(cloud, "hv2", "eth0") == ["10.77.0.12"], "eth0 as it was")
    cloud.wait(lambda: reachable(cloud, "hv2"), "hv2 answers")


def test_one_apply_makes_hypervisors_and_a_second_changes_nothing(cloud):
    assert failures(apply(cloud)) == {}
    for host, address in (("hv1", "10.77.0.11"), ("hv2", "10.77.0.12")):
        cloud.wait(lambda h=host: reachable(cloud, h), f"{host} answers over its bridge", 180)
        assert addresses(cloud, host, "br0") == [address]
        assert addresses(cloud, host, "eth0") == []
        assert link(cloud, host, "eth0")["master"] == "br0"
        assert link(cloud, host, "eth0")["address"] == link(cloud, host, "br0")["address"]
    again = apply(cloud)
    assert set(again) == {"hv1", "hv2"}
    assert failures(again) == {}
    assert changes(again) == {}
    hello = cloud.exec("hv1", ["virsh", "-c", "qemu+tls://hv2/system", "hostname"])
    assert hello.stdout.strip() == "hv2"


def test_only_hypervisors_with_a_certificate_are_let_in(cloud):
    pillar = {"libvirt": {"tls": {"allowed": True}}}
    assert failures(apply(cloud, pillar=pillar)) == {}
    hello = ["virsh", "-c", "qemu+tls://hv2/system", "hostname"]
    assert cloud.exec("hv1", hello, check=False).stdout.strip() == "hv2"
    conf = cloud.exec("hv2", "grep ^tls_allowed_dn_list /etc/libvirt/libvirtd.conf").stdout
    assert "CN=hv1" in conf
    assert not any(
        state["changes"]
        for states in apply(cloud, pillar=pillar).values()
        for state in states.values()
    )
    only = {"libvirt": {"tls": {"allowed": ["CN=hv2,O=Salted", "O=Salted,CN=hv2"]}}}
    assert failures(apply(cloud, "hv2", pillar=only)) == {}
    assert cloud.exec("hv1", hello, check=False).returncode != 0
    assert failures(apply(cloud, "hv2", pillar=pillar)) == {}
    assert cloud.exec("hv1", hello, check=False).returncode == 0


def test_settings_of_qemu_are_written_once_and_verification_cannot_be_switched_off(cloud):
    conf = "/etc/libvirt/libvirtd.conf"
    cloud.exec("hv1", f"echo 'tls_no_verify_certificate = 1' >> {conf}")
    pillar = {"libvirt": {"qemu": {"migrate_tls_x509_verify": 1, "migrate_tls_force": 1}}}
    assert failures(apply(cloud, "hv1", pillar=pillar)) == {}
    assert cloud.exec("hv1", f"grep -c '^tls_no_verify' {conf}", check=False).stdout.strip() == "0"
    text = cloud.exec("hv1", "grep ^migrate_tls /etc/libvirt/qemu.conf").stdout.split("\n")
    assert sorted(filter(None, text)) == ["migrate_tls_force = 1", "migrate_tls_x509_verify = 1"]
    assert changes(apply(cloud, "hv1", pillar=pillar)) == {}
