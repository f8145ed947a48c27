"""Guests whose disks are volumes of storage pools migrate with them, or are refused."""

import contextlib

import pytest

from tests.integration.migration import counter

pytestmark = pytest.mark.lab
SAME = "/srv/volumes"


@pytest.fixture
def pools(cloud):
    """Makes a pool ``data`` in a folder of each host: ``pools(hv1="/srv/a")``."""
    made = {}

    def make(**folders):
        for host, folder in folders.items():
            made[host] = folder
            define = f"virsh -q pool-define-as data dir --target {folder}"
            cloud.exec(host, f"mkdir -p {folder} && {define} && virsh -q pool-start data")

    yield make
    for host, folder in made.items():
        cloud.exec(host, "virsh pool-destroy data; virsh pool-undefine data", check=False)
        cloud.exec(host, ["rm", "-rf", folder])


def content(lab, host, path):
    """The checksum of what a guest reads from its disk."""
    raw = f"qemu-img convert -U -O raw {path} /run/content && sha256sum < /run/content"
    return lab.exec(host, f"{raw} && rm /run/content").stdout


def volumes(lab, host):
    listed = lab.exec(host, "virsh pool-refresh data >&2 && virsh -q vol-list data").stdout
    return [line.split()[0] for line in listed.splitlines() if line.strip()]


@pytest.mark.slow
def test_a_stopped_guest_moves_with_its_volume_into_the_pool_of_that_name(cloud, guests, pools):
    pools(hv1="/srv/here", hv2="/srv/there")
    guest = guests("vol1", pool="data", folder="/srv/here").define("hv1").fill("hv1", 20)
    before = content(cloud, "hv1", guest.disk)
    answer = cloud.call("hv1", "virt.migrate", "vol1", "hv2", timeout=120)
    assert answer["disks"] == {"vda": "copy"}
    assert answer["deleted"] == [guest.disk]
    assert guest.states() == {"hv2": "shut off"}
    assert volumes(cloud, "hv1") == []
    assert volumes(cloud, "hv2") == ["vol1_vda.qcow2"]
    assert content(cloud, "hv2", "/srv/there/vol1_vda.qcow2") == before
    assert "pool='data' volume='vol1_vda.qcow2'" in cloud.exec("hv2", "virsh dumpxml vol1").stdout
    guest.start("hv2")


def test_a_running_guest_moves_with_its_volume_and_evacuation_takes_it_along(cloud, guests, pools):
    pools(hv1=SAME, hv2=SAME)
    guest = guests("vol2", pool="data", folder=SAME).define("hv1").fill("hv1", 5).start("hv1")
    done = cloud.run("virt.evacuate", "hv1", reason="test")
    try:
        assert done.rc == 0, done.stdout + done.stderr
        guest.is_whole_on("hv2")
        assert volumes(cloud, "hv1") == []
        assert volumes(cloud, "hv2") == ["vol2_vda.qcow2"]
    finally:
        cloud.run("virt.restore", "hv1")


@pytest.mark.slow
def test_what_the_target_cannot_take_is_refused_and_nothing_is_changed(cloud, guests, pools):
    pools(hv1=SAME)
    guest = guests("vol3", pool="data", folder=SAME).define("hv1").fill("hv1", 5)
    before = content(cloud, "hv1", guest.disk)
    refusals = {
        "hv2 has no storage pool data": "true",
        "storage pool data on hv2 is not started": f"mkdir {SAME} && "
        f"virsh -q pool-define-as data dir --target {SAME}",
        f"hv2 already has {guest.disk}": f"virsh -q pool-start data && echo other > {guest.disk}",
    }
    with contextlib.ExitStack() as stack:
        stack.callback(
            cloud.exec, "hv2",
            f"virsh pool-destroy data; virsh pool-undefine data; rm -rf {SAME}", check=False,
        )  # fmt: skip
        for words, command in refusals.items():
            cloud.exec("hv2", command)
            done = cloud.run("virt.migrate", "vol3", "hv2")
            assert done.rc == 1
            assert words in done.stdout
            assert guest.states() == {"hv1": "shut off"}
            assert content(cloud, "hv1", guest.disk) == before
            assert counter.unfinished(cloud, "hv1") == []
        assert cloud.exec("hv2", ["cat", guest.disk]).stdout == "other\n"
