"""High availability beyond dead hosts: guests that fail alone, fences that other hypervisors run,
definitions beside the disks, a host that is drained, failback."""

import shlex
import time

import pytest

from tests.integration.ha import POOL, HaCloud
from tests.integration.migration import counter

pytestmark = [pytest.mark.lab, pytest.mark.slow]

PASSWORD = "/etc/salt-virt/bmc"
# longer than it takes to go back where it is to
STAYS_S = 15
# mov dx,0x505; mov al,1; out dx,al; cli; hlt: its kernel panics, says pvpanic's port
PANICS = "\\xba\\x05\\x05\\xb0\\x01\\xee\\xfa\\xf4"
PANICKING = f"""<domain type='qemu'><name>web2</name><memory unit='MiB'>16</memory><vcpu>1</vcpu>
<os><type arch='x86_64' machine='pc'>hvm</type></os><on_crash>preserve</on_crash><devices>
<disk type='file' device='disk'><driver name='qemu' type='raw' cache='none'/>
<source file='{POOL}/web2.raw'/><target dev='hda' bus='ide'/></disk><panic model='isa'/>
</devices></domain>"""


class Elsewhere(HaCloud):
    """Each host is fenced from the two others; the master knows no password."""

    def _settings(self, more):
        found = super()._settings(more)
        for host, one in found["virt"]["ha"]["members"].items():
            [fence] = one["fences"]
            fence["from"] = [other for other in self.lab.hosts if other != host]
            fence["options"]["password_file"] = PASSWORD
        return found

    def secrets(self):
        """The password goes to the hosts, and the fence agent with what it imports."""
        lab = self.lab
        password = lab.exec("master", "cat /etc/salt/bmc; rm /etc/salt/bmc").stdout
        for host in lab.hosts:
            lab.exec(host, f"umask 077; mkdir -p /etc/salt-virt; cat > {PASSWORD}", input=password)
            self._fence_agent(host)
        lab.exec("master", "rm /usr/sbin/fence_redfish")


@pytest.fixture(scope="module")
def cloud(ha_lab):
    found = Elsewhere(ha_lab)
    found.set_up({"max_fences": 100, "stable_s": 3600, "shutdown_wait_s": 5})
    found.secrets()
    counter.install(ha_lab)  # the formula: guests migrate over TLS
    found.well()
    found.started("hv1", "web1")
    found.enabled("web1", restarts=5)
    found.well()
    return found


@pytest.fixture
def host(cloud):
    """The host that has web1."""
    cloud.well()
    [found] = cloud.where("web1")
    yield found
    cloud.back(found)
    cloud.well()


def test_each_host_that_is_to_run_a_fence_is_asked(cloud):
    lab = cloud.lab
    found = lab.run("virt.fence", "hv1", test=True)
    assert (found.rc, "hv1 is on" in found.stdout) == (0, True), found
    assert found.stdout.count("fence_redfish") == 2
    lab.exec("hv3", f"cp -p {PASSWORD} {PASSWORD}.right; echo wrong1 > {PASSWORD}")
    try:
        found = lab.run("virt.fence", "hv1", test=True)
    finally:
        lab.exec("hv3", f"mv {PASSWORD}.right {PASSWORD}")
    assert found.rc == 1 and "from hv3" in found.stdout
    assert "wrong1" not in found.stdout + found.stderr


def test_its_definition_lies_beside_its_disk_for_root_alone(cloud, host):
    path = f"{POOL}/.salt-virt-ha/definitions/web1.xml"
    lab = cloud.lab
    lab.wait(lambda: not lab.exec(host, f"test -f {path}", check=False).returncode, "it is kept")
    assert lab.exec(host, f"stat -c '%a %U' {path}").stdout == "600 root\n"
    assert lab.exec(host, f"stat -c '%a %U' {path.rpartition('/')[0]}").stdout == "700 root\n"
    assert f"{POOL}/web1.qcow2" in lab.exec(host, f"cat {path}").stdout


def test_a_host_is_fenced_from_another_one_and_from_the_next_where_that_cannot(cloud, host):
    lab = cloud.lab
    first, second = (one for one in lab.hosts if one != host)
    lab.exec(first, "mv /usr/sbin/fence_redfish /root/")
    try:
        lab.power_off(host)
        cloud.comes_elsewhere("web1", host, 60)
    finally:
        lab.exec(first, "mv /root/fence_redfish /usr/sbin/")
    found = cloud.status()[1]
    assert "its fence agent reports that it is off" in found["hosts"][host]["reason"]
    [end] = [one for one in found["decisions"] if one["kind"] == "fence" and one["new"] == "off"]
    assert f"from {first}: timed out: fence_redfish is not installed" in end["reason"]
    assert f"from {second}: off" in end["reason"]
    log = lab.exec(second, "journalctl -u salt-virt-ha --no-pager").stdout
    assert f"fence of {host}: off" in log
    password = lab.exec(second, f"cat {PASSWORD}").stdout.strip()
    everything = lab.exec("master", "cat /var/lib/salt/master/virt/ha/*.json*").stdout + log
    assert password not in everything


def test_qemu_that_is_killed_is_started_in_place_with_the_reason(cloud, host):
    lab = cloud.lab
    number = lab.exec(host, "virsh domid web1").stdout
    lab.exec(host, "kill -9 $(cat /run/libvirt/qemu/web1.pid)")

    def anew():
        found = lab.exec(host, "virsh domid web1", check=False).stdout
        return found.strip().isdigit() and found != number

    lab.wait(anew, "it is started anew", 60)
    cloud.well()
    assert cloud.where("web1") == [host]
    said = [one["reason"] for one in cloud.status()[1]["decisions"] if one["name"] == "web1"]
    assert "it failed: QEMU or the guest's kernel crashed; it is restarted on the same host" in said


def test_a_guest_whose_kernel_always_panics_is_tried_here_and_there_and_left_for_a_person(cloud):
    lab = cloud.lab
    disk = f"{POOL}/web2.raw"
    make = (f"printf {shlex.quote(PANICS)} > {disk}; truncate -s 510 {disk}; "
            f"printf '\\125\\252' >> {disk}; truncate -s 1M {disk}; "
            f"chown 64055:64055 {disk}")  # fmt: skip
    lab.exec("hv1", ["bash", "-c", make])
    lab.exec("hv1", "virsh -q define /dev/stdin && virsh -q start web2", input=PANICKING)
    given = lab.run("virt.ha_enable", "web2", restarts=1, relocates=1)
    assert given.rc == 0, given
    try:

        def guest():
            return cloud.status()[1]["guests"]["web2"]

        found = lab.wait(lambda: guest()["state"] == "error" and guest(), "error", 180, 2)
        assert found["reason"] == "it failed: its kernel panicked; no attempts are left"
        states = {one: lab.exec(one, "virsh domstate web2", check=False) for one in lab.hosts}
        [where] = [one for one, told in states.items() if "crashed" in told.stdout]
        assert where != "hv1", "it is left as it is, elsewhere"
        said = [one["reason"] for one in cloud.status()[1]["decisions"] if one["name"] == "web2"]
        assert "it failed: its kernel panicked; it is restarted on the same host" in said
        assert "it failed: its kernel panicked; it is started on another host" in said
    finally:
        lab.run("virt.ha_disable", "web2")
        for one in lab.hosts:
            lab.exec(one, "virsh destroy web2; virsh undefine web2", check=False)


def test_a_host_is_drained_of_it_and_gets_it_back(cloud, host):
    lab = cloud.lab
    found = lab.run("virt.evacuate", host, "timeout=120")
    try:
        assert found.rc == 0 and "1 moved" in found.stdout, found
        [away] = cloud.where("web1")
        assert away != host
        number = lab.exec(away, "virsh domid web1").stdout
        assert number.strip().isdigit()
    finally:
        done = lab.run("virt.restore", host)
    assert done.rc == 0, done
    lab.wait(lambda: cloud.where("web1") == [host], "it is back", 120, 1)


def test_a_host_whose_guest_nobody_takes_is_said_so(cloud, host):
    lab = cloud.lab
    others = [one for one in lab.hosts if one != host]
    for one in others:
        assert lab.run("virt.evacuate", one).rc == 0
    try:
        found = lab.run("virt.evacuate", host, "timeout=60")
        assert found.rc == 1 and "it did not leave within 60 s; it is managed by" in found.stdout
        assert cloud.where("web1") == [host]
    finally:
        for one in lab.hosts:
            lab.run("virt.restore", one)


@pytest.fixture
def better(cloud, host):
    """The guest likes its host better than all others."""
    lab = cloud.lab
    found = lab.run(
        "virt.ha_rule", "near", "guests=web1", f"hosts={host}:1", "host_affinity=preferred"
    )
    assert found.rc == 0, found
    cloud.well()
    yield host
    lab.run("virt.ha_rule", "near", "remove=True")
    lab.run("virt.ha_enable", "web1", "failback=True")


def lost_and_back(cloud, host):
    """The host loses its power, the guest runs elsewhere, the host is back."""
    cloud.lab.power_off(host)
    cloud.comes_elsewhere("web1", host, 60)
    [away] = cloud.runs("web1")
    cloud.back(host)
    cloud.lab.wait(lambda: cloud.status()[1]["hosts"][host]["state"] == "up", "it is up", 60, 1)
    return away


def began(cloud, host):
    """How it arrived on run there, as libvirt has it."""
    return cloud.lab.exec(host, "virsh domstate --reason web1").stdout.strip()


def test_it_goes_back_live_to_a_better_host_that_is_back(cloud, better):
    lost_and_back(cloud, better)
    cloud.lab.wait(lambda: cloud.runs("web1") == [better], "it is back", 90, 1)
    cloud.lab.wait(lambda: began(cloud, better) == "running (migrated)", "it came live", 10)


def test_it_goes_back_by_a_stop_and_a_start_where_it_is_wanted_so(cloud, better):
    lab = cloud.lab
    assert lab.run("virt.ha_enable", "web1", "failback=restart").rc == 0
    lost_and_back(cloud, better)
    lab.wait(lambda: cloud.runs("web1") == [better], "it is back", 120, 1)
    assert began(cloud, better) == "running (booted)"
    cloud.well()
    said = [one["reason"] for one in cloud.status()[1]["decisions"] if one["name"] == "web1"]
    assert "it is shut down here and started on a preferred host" in said


def test_one_that_is_not_to_go_back_stays_until_a_person_moves_it_with_a_stop(cloud, better):
    lab = cloud.lab
    assert lab.run("virt.ha_enable", "web1", "failback=False").rc == 0
    away = lost_and_back(cloud, better)
    time.sleep(STAYS_S)
    assert cloud.runs("web1") == [away]
    found = lab.run("virt.ha_move", "web1", better, "live=False")
    assert found.rc == 0, found
    cloud.well()
    assert cloud.where("web1") == [better]
    assert began(cloud, better) == "running (booted)"
