"""Plan a deployment of many guests on many hosts from recorded answers, on one machine. 1,000
guests on 200 hosts that have 20 guests each already, and half as many guests; the lower bound is
the placement of one of them on the same hosts."""

import resource
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "_utils")]

from saltvirt.operations.create import deploy
from saltvirt.placement import policy
from tests.counted import Cloud

HOSTS, GUESTS, THERE = 200, 1000, 20
_OLD = {"vcpus": 2, "memory_kib": 2 << 20, "state": "running"}


def plan(folder, guests):
    """(seconds of the processor, jobs published) of one plan."""
    there = {
        f"hv{host:03}": {f"old{host:03}-{number}": _OLD for number in range(THERE)}
        for host in range(HOSTS)
    }
    cloud = Cloud(folder, HOSTS, there)
    wanted = [
        deploy.parse_guest(f"new{number:04}", {"mem": 2048, "cpu": 2, "seed": False}, "bench")
        for number in range(guests)
    ]
    began = time.process_time()
    found = deploy.plan(cloud, policy.from_config(None, None), wanted, "bench")
    took_s = time.process_time() - began
    assert len(found.placed) == guests
    return took_s, sum(cloud.jobs.values())


def main():
    with tempfile.TemporaryDirectory() as folder:
        whole, half, one = ([plan(folder, n) for _ in range(3)] for n in (GUESTS, GUESTS // 2, 1))
    whole_s, half_s, one_s = (min(took_s for took_s, _ in found) for found in (whole, half, one))
    print(f"{GUESTS} new guests on {HOSTS} hosts with {HOSTS * THERE} guests, recorded answers")
    print(f"  plan        {whole_s:6.3f} s   against half the guests: {whole_s / half_s:.2f} x, "
          f"against one guest: {whole_s / one_s:.2f} x, {whole[0][1]} jobs published")  # fmt: skip
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"  peak memory of the process, answers included: {peak:.0f} MiB")


if __name__ == "__main__":
    main()
