"""``virt.query`` and ``virt.list`` of the runner compared with their lower bound, in the lab: the
cost of any runner and any job, ``salt-run test.arg`` and ``salt 'hv*' test.ping``. Measured with
100 guests that are off on each of two hosts, and again with five accepted keys of missing
minions."""

import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.lab.cloud import Cloud

GUESTS = 100
DEAD = 5
RUNS = 7

DEFINE = f"""
for i in $(seq 1 {GUESTS}); do
  cat > /tmp/d.xml <<X
<domain type='qemu'><name>bench$i</name><memory>65536</memory><vcpu>1</vcpu>
<os><type arch='x86_64'>hvm</type></os><devices>
<disk type='file' device='disk'><driver name='qemu' type='qcow2'/>
<source file='/var/lib/libvirt/images/bench$i.qcow2'/><target dev='vda' bus='virtio'/></disk>
<interface type='bridge'><source bridge='br0'/></interface></devices></domain>
X
  virsh -q define /tmp/d.xml
done
"""
REMOVE = f"for i in $(seq 1 {GUESTS}); do virsh -q undefine bench$i; done"
BURY = f"""
for i in $(seq 1 {DEAD}); do
  openssl genrsa 2048 2>/dev/null | openssl rsa -pubout 2>/dev/null \\
    > /etc/salt/pki/master/minions/hv9$i
done
"""
FLOOR = "salt-run test.arg >/dev/null 2>&1; salt -L hv1,hv2 test.ping >/dev/null 2>&1"
VERBS = ("virt.list", "virt.query")


def seconds(cloud, command):
    began = time.perf_counter()
    cloud.exec("master", command, check=False)
    return time.perf_counter() - began


def ratios(cloud, title):
    """Each verb against the floor, in turn, so that a slow moment hits both."""
    found = {verb: [] for verb in VERBS}
    for run in range(RUNS + 1):
        floor_s = seconds(cloud, FLOOR)
        for verb in VERBS:
            ratio = seconds(cloud, f"salt-run {verb} >/dev/null 2>&1") / floor_s
            if run:  # the first is the warm-up
                found[verb].append(ratio)
    print(f"{title}, against test.arg + test.ping:")
    for verb, values in found.items():
        low, middle, high = min(values), statistics.median(values), max(values)
        print(f"  {verb:11} {middle:.2f} x  (from {low:.2f} to {high:.2f})")


def main():
    cloud = Cloud(sys.argv[1] if len(sys.argv) > 1 else "lab")
    for host in ("hv1", "hv2"):
        cloud.exec(host, DEFINE)
    try:
        ratios(cloud, f"2 hosts, {GUESTS} shut-off guests on each")
        cloud.exec("master", BURY)
        ratios(cloud, f"the same with {DEAD} accepted minions that are gone")
    finally:
        cloud.exec("master", "rm -f /etc/salt/pki/master/minions/hv9*")
        for host in ("hv1", "hv2"):
            cloud.exec(host, REMOVE)


if __name__ == "__main__":
    main()
