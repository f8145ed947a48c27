"""Guests on network storage migrate without their disks: nothing is copied or deleted."""

import pytest

from tests.integration.migration import counter
from tests.lab import storage

pytestmark = [pytest.mark.lab, pytest.mark.slow]
FOLDER = "/srv/gluster"
QEMU = "64055:64055"  # libvirt-qemu of Debian
AS_QEMU = "setpriv --reuid 64055 --regid 64055 --clear-groups"
# libvirt's root cannot give the file to QEMU there, nor need it
OWNED = "><seclabel model='dac' relabel='no'/></source>"


@pytest.fixture(scope="module")
def served(shared_lab):
    """Two hypervisors, and volumes that the master serves: one of them takes root for nobody."""
    counter.install(shared_lab)
    storage.volume(shared_lab, "plain")
    storage.volume(shared_lab, "other")
    storage.volume(shared_lab, "squashed", owner=QEMU, squash=True)
    return shared_lab


@pytest.fixture
def pools(served):
    """Makes the pool ``data`` of a volume on each host: ``pools(hv1="plain")``."""
    made = []

    def make(**volumes):
        for host, volume in volumes.items():
            made.append(host)
            served.exec(
                host,
                f"mkdir -p {FOLDER}; virsh -q pool-define-as data netfs --source-host master "
                f"--source-path {volume} --source-format glusterfs --target {FOLDER} && "
                "virsh -q pool-start data",
            )

    yield make
    for host in made:
        served.exec(host, "virsh pool-destroy data; virsh pool-undefine data", check=False)


@pytest.fixture
def guest(served):
    made = []

    def make(name):
        found = counter.Counter(served, name, pool="data", folder=FOLDER, driver=" cache='none'")
        made.append(found)
        return found

    yield make
    for found in made:
        for host in served.hosts:
            left = f"/run/{found.name}.* {counter.JOURNALS}/{found.name}.*"
            served.exec(host, f"virsh destroy {found.name}", check=False)
            served.exec(host, f"virsh undefine {found.name}", check=False)
            served.exec(host, f"rm -f {found.disk}; {AS_QEMU} rm -f {found.disk}", check=False)
            served.exec(host, f"rm -f {left}")


def disks(lab, host):
    return lab.exec(host, f"ls {FOLDER}").stdout.split()


@pytest.mark.parametrize("volume", ["plain", "squashed"])
def test_a_running_and_a_stopped_guest_move_and_their_disk_stays(served, pools, guest, volume):
    pools(hv1=volume, hv2=volume)
    one = guest(f"net-{volume}")
    if volume == "squashed":
        create = f"qemu-img create -q -f qcow2 {one.disk} 1G"
        served.exec("hv1", f"{AS_QEMU} {create}")
        one.xml = one.xml.replace(f"{one.name}_vda.qcow2'/>", f"{one.name}_vda.qcow2'{OWNED}")
        served.exec("hv1", ["virsh", "-q", "pool-refresh", "data"])
        served.exec("hv1", ["virsh", "-q", "define", "/dev/stdin"], input=one.xml)
    else:
        one.define("hv1")
    one.start("hv1")
    answer = served.call("hv1", "virt.migrate", one.name, "hv2", timeout=200)
    assert answer["disks"] == {"vda": "shared"}, answer
    assert (answer["deleted"], answer["retained"], answer["disk_bytes"]) == ([], {}, 0)
    assert one.states() == {"hv2": "running"}
    one.counts_on("hv2")
    served.exec("hv2", ["virsh", "-q", "destroy", one.name])
    answer = served.call("hv2", "virt.migrate", one.name, "hv1", timeout=200)
    assert answer["disks"] == {"vda": "shared"}, answer
    assert answer["deleted"] == []
    assert one.states() == {"hv1": "shut off"}
    assert disks(served, "hv1") == disks(served, "hv2") == [f"{one.name}_vda.qcow2"]
    one.start("hv1")


def test_two_servers_volumes_at_one_path_are_not_one_storage(served, pools, guest):
    pools(hv1="plain", hv2="other")
    one = guest("net-apart").define("hv1")
    for _ in range(2):
        answer = served.call("hv1", "virt.migratable", "net-apart", "hv2", timeout=200)
        assert not answer["migratable"]
        assert "another one there" in answer["reasons"][0]
        served.exec("hv2", f"touch {FOLDER}/net-apart_vda.qcow2", check=False)
    assert one.states() == {"hv1": "shut off"}
    assert disks(served, "hv1") == ["net-apart_vda.qcow2"]


def test_a_disk_that_root_may_not_read_is_refused_and_no_pool_is_stopped(served, pools, guest):
    """libvirt stops a pool when it looks into it and may not read one of its files."""
    pools(hv1="squashed", hv2="squashed")
    one = guest("net-secret")
    served.exec("hv1", f"{AS_QEMU} qemu-img create -q -f qcow2 {one.disk} 1G")
    served.exec("hv1", ["virsh", "-q", "pool-refresh", "data"])
    served.exec("hv1", f"{AS_QEMU} chmod 600 {one.disk}")
    served.exec("hv1", ["virsh", "-q", "define", "/dev/stdin"], input=one.xml)
    answer = served.call("hv1", "virt.migrate", "net-secret", "hv2", timeout=200)
    assert "root of this host may not read it (root_squash)" in answer
    assert one.states() == {"hv1": "shut off"}
    for host in served.hosts:
        assert "running" in served.exec(host, ["virsh", "pool-info", "data"]).stdout


IQN = "iqn.2026-11.example:{}"
ISCSI = """<pool type='iscsi-direct'><name>san</name><source><host name='{host}'/>
<device path='{iqn}'/><initiator><iqn name='iqn.2026-11.example:{initiator}'/></initiator>
</source></pool>"""


def san(lab, host, server="master", target="one"):
    """Defines and starts the pool ``san`` on a host."""
    text = ISCSI.format(host=server, iqn=IQN.format(target), initiator=host)
    lab.exec(host, "virsh pool-destroy san; virsh pool-undefine san", check=False)
    lab.exec(host, ["virsh", "-q", "pool-define", "/dev/stdin"], input=text)
    lab.exec(host, ["virsh", "-q", "pool-start", "san"])


def test_a_lun_of_iscsi_is_shared_by_server_and_target_not_by_the_pools_name(served, guest):
    for number, name in enumerate(("one", "two"), 1):
        storage.lun(served, IQN.format(name), number)
    san(served, "hv1")
    one = guest("net-lun")
    file = f"pool='data' volume='{one.name}_vda.qcow2'"
    one.xml = one.xml.replace(file, "pool='san' volume='unit:0:0:1'").replace("'qcow2'", "'raw'")
    served.exec("hv1", ["virsh", "-q", "define", "/dev/stdin"], input=one.xml)
    one.start("hv1")
    for wrong in ({"target": "two"}, {"server": "10.77.0.1"}):
        san(served, "hv2", **wrong)
        answer = served.call("hv1", "virt.migratable", "net-lun", "hv2", timeout=200)
        assert "different sources" in answer["reasons"][0], answer
    san(served, "hv2")
    answer = served.call("hv1", "virt.migrate", "net-lun", "hv2", timeout=200)
    assert (answer["disks"], answer["deleted"]) == ({"vda": "shared"}, []), answer
    assert one.states() == {"hv2": "running"}
    one.counts_on("hv2")
