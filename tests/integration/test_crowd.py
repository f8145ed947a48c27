"""Fifty operators at once, on three hosts with capacity for forty guests. AT_ONCE (50) is the
number of concurrent salt-run processes, each with about 70 MiB of memory."""

import json
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.lab.fixtures import Lab, recipe, skip_without_lab

pytestmark = [pytest.mark.lab, pytest.mark.slow]

IMAGE = "/var/lib/libvirt/images/small.qcow2"
HOLD = {"hv1": 14, "hv2": 14, "hv3": 12}
WANTED = 50
# one vCPU each, so that the CPU ratio of a host says how many it holds
MINION = """virt:
  ratios: {{cpu: {ratio}}}
  disk: {{small: [{{system: {{size: 32}}}}]}}
"""


@pytest.fixture(scope="module")
def crowd():
    """A lab of three hosts, which hold what HOLD says."""
    skip_without_lab()
    cloud = Lab(f"crowd-{os.getpid()}")
    cloud.up(3, recipe(), owner=os.getpid())
    try:
        cloud.sync()
        for host, holds in HOLD.items():
            cpus = int(cloud.exec(host, "nproc").stdout)
            text = MINION.format(ratio=holds / cpus)
            cloud.exec(host, "cat > /etc/salt/minion.d/crowd.conf", input=text)
            cloud.exec(host, f"qemu-img create -q -f qcow2 {IMAGE} 16M")
        cloud.restart_minion(*HOLD)
        yield cloud
    finally:
        cloud.down()


def init(cloud, name):
    """Seeded by a volume for cloud-init, so that each has a key, without booting anything."""
    given = {"disk": "small", "seed": "cloud-init", "start": False}
    return cloud.run("virt.init", name, 1, 16, IMAGE, timeout=3000, **given)


def at_once(cloud, names):
    workers = min(len(names), int(os.environ.get("AT_ONCE", WANTED)))
    with ThreadPoolExecutor(max_workers=workers) as pool:
        return dict(zip(names, pool.map(lambda name: init(cloud, name), names), strict=True))


def guests(cloud):
    return {h: cloud.exec(h, "virsh list --all --name").stdout.split() for h in HOLD}


def keys(cloud):
    accepted = cloud.exec("master", "salt-key --out=json -l accepted").stdout
    return set(json.loads(accepted)["minions"]) - {*HOLD}


def test_forty_get_in_ten_are_refused_and_nothing_is_half_made(crowd):
    done = at_once(crowd, [f"g{number:02}" for number in range(WANTED)])
    made = {name for name, one in done.items() if one.rc == 0}
    refused = [done[name].stdout.strip().splitlines()[-1] for name in set(done) - made]
    print(Counter(line.partition(":")[0] for line in refused))
    assert len(made) == sum(HOLD.values()), refused
    assert all("1 vCPU requested, 0 of 1" in line for line in refused), refused
    there = guests(crowd)
    assert {host: len(names) for host, names in there.items()} == HOLD
    assert {name for names in there.values() for name in names} == made
    assert keys(crowd) == made
    for host, names in there.items():
        disks = crowd.exec(host, "ls /srv/salt-images/*_system.qcow2").stdout.split()
        assert sorted(disks) == [f"/srv/salt-images/{name}_system.qcow2" for name in sorted(names)]
    assert crowd.run("virt.repair").stdout.startswith("no leftovers")


def test_one_name_ten_times_at_once_is_one_guest(crowd):
    crowd.exec("hv1", "virsh list --all --name | head -1 | xargs virsh undefine")
    with ThreadPoolExecutor(max_workers=10) as pool:
        done = [*pool.map(lambda _: init(crowd, "same"), range(10))]
    assert sorted(one.rc for one in done) == [0] + [1] * 9, [one.stdout for one in done]
    assert [name for names in guests(crowd).values() for name in names].count("same") == 1
    assert keys(crowd) >= {"same"}
