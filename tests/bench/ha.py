"""From the cut of a hypervisor's power to libvirt's ``running`` elsewhere, in a lab of its own.

    tests/lab/lab bench ha [CUTS [WATCHDOG_CUTS]]

Three hypervisors with a BMC and a watchdog each, the real engine, agents and fence agent. Each cut
is of the host that has the guest; then that host gets its power back, and all is well again before
the next. First with BMCs, then without, where the watchdog's time alone is the proof.
"""

import os
import statistics
import sys

from tests.integration.ha import HaCloud
from tests.lab import power, storage
from tests.lab.fixtures import Lab, recipe

CUTS, MOST_S = 30, 300
NAME = "web1"


def cut(cloud):
    """Seconds from the power's end to the guest's start elsewhere."""
    cloud.well()
    [host] = cloud.where(NAME)
    cloud.lab.power_off(host)
    took_s = cloud.comes_elsewhere(NAME, host, MOST_S)
    cloud.back(host)
    assert len(cloud.where(NAME)) == 1
    print(f"{host}: {took_s:.1f} s", file=sys.stderr, flush=True)
    return took_s


def told(what, found):
    if found:
        print(f"{what}, {len(found)} cuts: median {statistics.median(found):.1f} s, "
              f"worst {max(found):.1f} s")  # fmt: skip


def main():
    counts = [int(one) for one in sys.argv[1:3]] or [CUTS]
    with_bmc, without = counts[0], counts[-1]
    lab = Lab(f"bench-ha-{os.getpid()}")
    lab.up(3, recipe(), owner=os.getpid(), with_power=True, shared=True)
    try:
        storage.serve(lab)
        lab.sync()
        cloud = HaCloud(lab)
        cloud.set_up({"max_fences": 1000})
        cloud.well()
        cloud.started("hv1", NAME)
        cloud.enabled(NAME)
        told("with a BMC", [cut(cloud) for _ in range(with_bmc)])
        for host in lab.hosts:
            power.end_bmc(lab.machine(host))
        told("by the watchdog alone", [cut(cloud) for _ in range(without)])
    finally:
        lab.down()


if __name__ == "__main__":
    main()
