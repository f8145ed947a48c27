"""The formula on hosts that have no bridge yet: everything is created, once."""

import json
import zipfile

import pytest

from tests.lab.sh import LabError
from tests.tools import wheel

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
        "from saltvirt.hostnet.bridge import bridges\n"
        "bridges.create_bridge('br0', 'eth0', (None, None), ('10.77.0.1', 9), 3)\n"
    )
    done = cloud.exec("hv2", ["/opt/salt/bin/python", "-c", script], check=False)
    assert "eth0 was restored" in done.stderr
    cloud.wait(lambda: addresses(cloud, "hv2", "eth0") == before, "eth0 as it was")
    assert link(cloud, "hv2", "br0") is None
    assert cloud.exec("hv2", "ls /etc/systemd/network").stdout.split() == ["10-eth0.network"]
    cloud.wait(lambda: reachable(cloud, "hv2"), "hv2 answers")


def test_a_minion_that_dies_meanwhile_is_put_back_by_the_timer(cloud):
    script = (
        "import os, sys; sys.path.insert(0, '/var/cache/salt/minion/extmods/utils')\n"
        "from saltvirt.hostnet.bridge import bridges\n"
        "bridges._wait_until = lambda *a: os._exit(9 if bridges.exists('br0') else 1)\n"
        "bridges.FOLLOW_S -= 11\n"  # the timer's way back need not be waited for so long
        "bridges.create_bridge('br0', 'eth0', (None, None), ('10.77.0.1', 4506), 1)\n"
    )
    done = cloud.exec("hv2", ["/opt/salt/bin/python", "-c", script], check=False)
    assert done.returncode == 9, done
    cloud.wait(lambda: link(cloud, "hv2", "br0") is None, "the timer's way back")
    cloud.wait(lambda: addresses(cloud, "hv2", "eth0") == ["10.77.0.12"], "eth0 as it was")
    over = "systemctl is-active salt-virt-network-back.service | grep -qx inactive"
    cloud.wait(lambda: not cloud.exec("hv2", over, check=False).returncode, "its end")
    unit = "systemctl is-enabled salt-virt-network-unconfirmed.service"
    assert "enabled" not in cloud.exec("hv2", unit, check=False).stdout.split()
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


LISTENER = "systemd-run -q --unit=listen-{0} python3 -m http.server {0}"


@pytest.fixture(scope="module")
def listeners(cloud):
    """hv2 listens on a migration port and on a display's."""
    for port in (49160, 5901):
        cloud.exec("hv2", LISTENER.format(port).split())
        cloud.wait(lambda p=port: port_open(cloud, "hv2", p, "127.0.0.1"), f"port {port}", 20)


def port_open(cloud, host, port, target="hv2"):
    script = f"import socket; socket.create_connection(('{target}', {port}), 2)"
    return cloud.exec(host, ["python3", "-c", script], check=False).returncode == 0


def seen(cloud):
    """From where which port of hv2 is open."""
    return {
        (host, port) for host in ("master", "hv1") for port in (16514, 49160, 5901)
        if port_open(cloud, host, port)
    }  # fmt: skip


def firewall(cloud, **pillar):
    answers = cloud.salt(
        "hv*", "state.apply", "libvirt.firewall", timeout=60, pillar={"libvirt": pillar}
    )
    assert failures(answers) == {}
    return changes(answers)


# who asks libvirt all the time, as the agent of high availability does
ASKS = "systemd-run -q -u asks sh -c 'while :; do virsh -q list; done'"


@pytest.mark.slow
def test_who_asks_libvirt_all_the_time_keeps_nobody_from_tls(cloud):
    cloud.exec("hv1", f"systemctl stop libvirtd-tls.socket; {ASKS}")
    try:
        answers = cloud.salt("hv1", "state.apply", "libvirt.service", timeout=150)
    finally:
        cloud.exec("hv1", "systemctl stop asks")
    assert failures(answers) == {}
    assert cloud.exec("hv1", "systemctl is-active libvirtd-tls.socket").stdout == "active\n"


FOREIGN = """\
table inet other {
  chain input { type filter hook input priority 0; policy drop;
    ct state established,related accept; iif lo accept; tcp dport != {16514, 49160} accept; }
}
"""
LIBVIRT_FIREWALL = "virt_|-libvirt_firewall_|-libvirt_firewall_|-firewall"
ONLY_HYPERVISORS = {("hv1", 16514), ("hv1", 49160)}


@pytest.mark.slow
def test_ports_are_open_to_the_other_hypervisors_alone(cloud, listeners):
    """With nftables, beside a table of somebody else that shuts all; then with iptables."""
    assert seen(cloud) == ONLY_HYPERVISORS
    cloud.exec("hv2", ["nft", "-f", "-"], input=FOREIGN)
    assert seen(cloud) == set()
    assert firewall(cloud) == {}, "nobody touched what is ours"
    cloud.exec("hv2", "nft delete table inet salt_virt")
    assert list(firewall(cloud)) == [("hv2", LIBVIRT_FIREWALL)]
    assert seen(cloud) == ONLY_HYPERVISORS
    assert firewall(cloud) == {}
    # when the machine starts
    cloud.exec("hv2", "nft flush ruleset; systemctl restart salt-virt-firewall")
    assert seen(cloud) == ONLY_HYPERVISORS
    migrated(cloud, "hv1", "hv2")
    assert firewall(cloud, firewall={"kind": "iptables"}) != {}
    assert "salt_virt" not in cloud.exec("hv2", "nft list tables").stdout
    assert seen(cloud) == ONLY_HYPERVISORS
    assert firewall(cloud, firewall={"kind": "iptables"}) == {}
    migrated(cloud, "hv2", "hv1")
    cloud.exec("hv2", "iptables -F SALT_VIRT; systemctl restart salt-virt-firewall")
    assert seen(cloud) == ONLY_HYPERVISORS
    assert firewall(cloud, firewall={"kind": "iptables", "hosts": ["10.77.0.1"]}) != {}
    assert seen(cloud) == {("master", 16514), ("master", 49160)}
    gone = cloud.salt("hv*", "state.single", "virt.firewall_absent", name="gone", timeout=30)
    assert failures(gone) == {}
    assert ("hv1", 5901) in seen(cloud) and ("master", 16514) in seen(cloud)
    assert "SALT_VIRT" not in cloud.exec("hv2", "iptables-save; ip6tables-save").stdout


def migrated(cloud, source, target):
    if "t1" not in cloud.call(source, "virt.list_domains"):
        done = cloud.run("virt.init", "t1", 1, 64, "null", disk="null", nic="null", host=source)
        assert done.rc == 0, done.stdout
    done = cloud.run("virt.migrate", "t1", target)
    assert done.rc == 0, done.stdout + done.stderr
    assert "t1" in cloud.call(target, "virt.list_active_vms")


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


@pytest.mark.slow
def test_salt_virt_by_pip_is_installed_once_and_again_when_its_wheel_changes(cloud, tmp_path):
    """Beside what was synced, which is used all the same."""
    built = wheel.build(tmp_path)
    pillar = {"libvirt": {"python": {"salt_virt": f"salt://{built.name}"}}}

    def applied(**kwargs):
        sls = "libvirt.python"
        return cloud.salt("hv1", "state.apply", sls, timeout=150, pillar=pillar, **kwargs)

    def changed():
        answers = applied()
        assert failures(answers) == {}
        return {name.split("_|-")[1] for _, name in changes(answers)}

    def minion():
        return cloud.exec("hv1", "systemctl show -P MainPID salt-minion").stdout.strip()

    def restarted():
        cloud.wait(lambda: minion() not in (before, "0"), "hv1's minion restarts", 120)
        cloud.wait_for_minion("hv1")

    everything = {"libvirt_salt_virt_wheel", "libvirt_salt_virt", "libvirt_minion_restarts"}
    cloud.push("master", built, "/srv/salt")
    before = minion()
    assert changed() == everything
    restarted()
    assert changed() == set()
    with zipfile.ZipFile(built, "a") as archive:
        archive.writestr("salt_virt/added.py", "")
    cloud.push("master", built, "/srv/salt")
    told = {name.split("_|-")[1] for _, name in failures(applied(test=True))}
    assert {"libvirt_salt_virt_wheel", "libvirt_salt_virt"} <= told, "would be changed"
    before = minion()
    assert changed() == everything
    restarted()
    cloud.exec("hv1", "ls /opt/salt/lib/python3.11/site-packages/salt_virt/added.py")
    assert cloud.call("hv1", "virt.versions")["install_method"] == "sync"
