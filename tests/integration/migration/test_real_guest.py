"""A Debian guest with its minion, thin on an image of the cache, migrates there and back."""

import json

import pytest

pytestmark = [pytest.mark.lab, pytest.mark.slow]
BOOT = "/proc/sys/kernel/random/boot_id"
CACHE = "/srv/salt-images"


@pytest.fixture
def debian(cloud):
    done = cloud.run(
        "virt.init", "debian1", 1, 256, "salt://debian.qcow2", host="hv1", enable_qcow=True,
        wait=True, timeout=2400,
    )  # fmt: skip
    assert done.rc == 0, done.stdout
    yield "debian1"
    cloud.run("virt.purge", "debian1", "force=True")
    for host in cloud.hosts:
        cloud.call(host, "virt.image_prune", timeout=300)


def images(lab, host):
    return lab.call(host, "virt.images", timeout=300)


def test_five_migrations_and_it_is_the_same_machine(cloud, debian):
    cloud.wait_for_minion(debian)
    boot = cloud.call(debian, "cmd.run", f"cat {BOOT}", timeout=300)
    [image] = [name for name, one in images(cloud, "hv1").items() if one["used_by"] == [debian]]
    for number in range(5):
        target = ("hv2", "hv1")[number % 2]
        done = cloud.run("virt.migrate", debian, target)
        print(done.stdout)
        assert done.rc == 0, done.stdout
        assert cloud.call(debian, "test.ping", timeout=300) is True
        assert cloud.exec(target, ["virsh", "domstate", debian]).stdout.strip() == "running"
        known = images(cloud, target)[image]
        assert known["sha256"] == images(cloud, "hv1")[image]["sha256"]
        assert known["used_by"] == [debian]
    assert cloud.call(debian, "cmd.run", f"cat {BOOT}", timeout=300) == boot
    [disk] = cloud.call("hv2", "virt.get_disks", debian).values()
    info = cloud.exec("hv2", ["qemu-img", "info", "-U", "--output=json", disk["file"]]).stdout
    assert json.loads(info)["backing-filename"].startswith(CACHE)
    pruned = cloud.call("hv1", "virt.image_prune", timeout=300)
    assert image in {*pruned["removed"], *pruned["retained"]}
