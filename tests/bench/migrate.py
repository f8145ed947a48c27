"""virt.migrate against virsh migrate with the same flags, in one run, on a lab.

    SALTVIRT_LAB=NAME python -m tests.bench.migrate [ROUNDS]

The guest counts each 100 ms and has 100 MiB on its disk. Printed: seconds of both, their
ratio without the time that salt-run itself takes to start, and the downtimes.
"""

import re
import statistics
import sys
import time

from tests.integration.migration import counter
from tests.lab import paths
from tests.lab.fixtures import Lab

FLAGS = "--live --p2p --tls --persistent --undefinesource --copy-storage-all --auto-converge"


def by_virsh(lab, guest, source, target):
    """(seconds, downtime in ms); the target's disk is there before the clock starts."""
    lab.exec(target, ["qemu-img", "create", "-q", "-f", "qcow2", guest.disk, "256M"])
    began = time.monotonic()
    uri = f"qemu+tls://{target}/system"
    lab.exec(source, f"virsh migrate {guest.name} {uri} {FLAGS} --abort-on-error")
    took = time.monotonic() - began
    lab.exec(source, ["rm", guest.disk])
    stats = lab.exec(target, f"virsh domjobinfo {guest.name} --completed").stdout
    return took, int(re.search(r"Total downtime:\s+(\d+)", stats)[1])


def by_salt(lab, guest, _source, target):
    began = time.monotonic()
    done = lab.run("virt.migrate", guest.name, target)
    took = time.monotonic() - began
    return took, int(re.search(r"stood still for (\d+) ms", done.stdout)[1])


def start_of_salt_run(lab):
    began = time.monotonic()
    lab.run("test.arg")
    return time.monotonic() - began


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    lab = Lab(paths.instance_name())
    counter.install(lab)
    guest = counter.Counter(lab, "bench").define("hv1", "256M").fill("hv1", 100).start("hv1")
    found = {by_virsh: [], by_salt: []}
    overhead = []
    for _ in range(rounds):
        for way, runs in found.items():
            runs.append(way(lab, guest, "hv1", "hv2"))
            runs.append(way(lab, guest, "hv2", "hv1"))
        overhead.append(start_of_salt_run(lab))
    guest.is_whole_on("hv1")
    lab.exec("hv1", f"virsh destroy bench; virsh undefine bench; rm {guest.disk}")
    times = {way: statistics.median(took for took, _ in runs) for way, runs in found.items()}
    gaps = {way: statistics.median(gap for _, gap in runs) for way, runs in found.items()}
    runner = statistics.median(overhead)
    print(f"virsh migrate    {times[by_virsh]:6.1f} s   downtime {gaps[by_virsh]:5.0f} ms")
    print(f"virt.migrate     {times[by_salt]:6.1f} s   downtime {gaps[by_salt]:5.0f} ms")
    print(f"salt-run alone   {runner:6.1f} s")
    print(f"ratio without it {(times[by_salt] - runner) / times[by_virsh]:6.2f}")


if __name__ == "__main__":
    main()
