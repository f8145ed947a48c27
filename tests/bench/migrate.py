"""virt.migrate against virsh migrate with the same flags, in one run, on a lab.

    tests/lab/lab bench migrate LAB [ROUNDS]

The guest counts each 100 ms and has 100 MiB on its disk. Printed: seconds of both; the ratio,
without the second that the runner may take; the longest gap between two counts, seen from
outside; and what a thin clone of an image of 600 MiB with 50 MiB of its own moves. Twice: live, and
as an emulated guest moves unless it is asked for: paused while its memory travels.
"""

import contextlib
import itertools
import statistics
import subprocess
import sys
import time

from tests.integration.migration import counter, sniff
from tests.lab.fixtures import Lab

FLAGS = "--p2p --tls --persistent --undefinesource --copy-storage-all --abort-on-error"
LIVE = "--live --auto-converge"
# prints the time of each line that the guest writes; all hosts of a lab have one clock
WATCH = """
import os, select, sys, time
path, where, ino = sys.argv[1], 0, None
print("watching", flush=True)
while not select.select([sys.stdin], [], [], 0.005)[0]:
    try:
        with open(path, "rb") as file:
            now = os.fstat(file.fileno())
            if now.st_ino != ino or now.st_size < where:
                where, ino = 0, now.st_ino
            file.seek(where)
            text = file.read()
    except FileNotFoundError:
        continue
    where += len(text)
    if b"counter" in text:
        print(time.monotonic(), flush=True)
"""


@contextlib.contextmanager
def gap(lab, guest, found):
    """Adds to ``found`` the longest time in ms in which the guest said nothing in the block."""
    watchers = []
    for host in lab.hosts:
        argv = lab.machine(host).argv(
            ["/opt/salt/bin/python3", "-c", WATCH, f"/run/{guest.name}.log"]
        )
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        watchers.append(subprocess.Popen(argv, **pipes))
    for watcher in watchers:
        watcher.stdout.readline()
    began = time.monotonic()
    yield
    times = sorted(float(t) for w in watchers for t in w.communicate()[0].split())
    times = [t for t in times if t > began]
    found.append(1000 * max(b - a for a, b in itertools.pairwise(times)))


def by_virsh(lab, guest, source, target, live):
    """Seconds; the target's disk is there before the clock starts."""
    lab.exec(target, ["qemu-img", "create", "-q", "-f", "qcow2", guest.disk, "256M"])
    began = time.monotonic()
    uri = f"qemu+tls://{target}/system"
    lab.exec(source, f"virsh migrate {guest.name} {uri} {FLAGS} {LIVE if live else ''}")
    took = time.monotonic() - began
    lab.exec(source, ["rm", guest.disk])
    return took


def by_salt(lab, guest, _source, target, live):
    began = time.monotonic()
    done = lab.run("virt.migrate", guest.name, target, **({"live": True} if live else {}))
    assert done.rc == 0, done.stdout
    return time.monotonic() - began


def start_of_salt_run(lab):
    began = time.monotonic()
    lab.run("test.arg")
    return time.monotonic() - began


def thin_clone(lab):
    """MiB over the wire, less the guest's memory, of each of three migrations of a clone: the
    first takes the image of 600 MiB along."""
    image = "/srv/salt-images/_base/bench-0123456789abcdef.qcow2"
    for host in lab.hosts:
        lab.exec(host, f"mkdir -p {image.rpartition('/')[0]}")
        lab.exec(host, f"test -e {image} || qemu-img create -q -f qcow2 {image} 2G")
    lab.exec("hv1", f"qemu-io -c 'write -P 7 500M 600M' {image}")
    lab.exec("hv2", f"rm -f {image}")
    guest = counter.Counter(lab, "thin", base=image)
    guest.remove()
    guest.define("hv1", "2G").fill("hv1", 50).start("hv1")
    found = []
    for source, target in (("hv1", "hv2"), ("hv2", "hv1"), ("hv1", "hv2")):
        with sniff.on(lab, source) as heard:
            done = lab.run_json("virt.migrate", "thin", target)["thin"]
        assert done["result"], done
        found.append((heard.bytes_seen() - done["migration"]["memory_bytes"]) / 2**20)
    guest.remove()
    for host in lab.hosts:
        lab.exec(host, f"rm -f {image}")
    return found


def compare(lab, rounds, live):
    guest = counter.Counter(lab, "bench")
    guest.remove()
    guest.define("hv1", "256M").fill("hv1", 100).start("hv1")
    found = {by_virsh: [], by_salt: []}
    gaps = {by_virsh: [], by_salt: []}
    overhead = []
    for _ in range(rounds):
        for way, runs in found.items():
            for ends in (("hv1", "hv2"), ("hv2", "hv1")):
                with gap(lab, guest, gaps[way]):
                    runs.append(way(lab, guest, *ends, live))
        overhead.append(start_of_salt_run(lab))
    guest.is_whole_on("hv1")
    guest.remove()
    times = {way: statistics.median(runs) for way, runs in found.items()}
    middle = {way: statistics.median(runs) for way, runs in gaps.items()}
    print("live:" if live else "paused:")
    print(f"virsh migrate    {times[by_virsh]:6.1f} s   longest gap {middle[by_virsh]:5.0f} ms")
    print(f"virt.migrate     {times[by_salt]:6.1f} s   longest gap {middle[by_salt]:5.0f} ms")
    print(f"salt-run alone   {statistics.median(overhead):6.1f} s")
    print(f"ratio less 1 s   {(times[by_salt] - 1) / times[by_virsh]:6.2f}")
    print(f"ratio of gaps    {middle[by_salt] / middle[by_virsh]:6.2f}")


def main():
    lab = Lab(sys.argv[1] if len(sys.argv) > 1 else "lab")
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    counter.install(lab)
    compare(lab, rounds, live=True)
    compare(lab, rounds, live=False)
    first, *others = thin_clone(lab)
    print(f"a thin clone with 50 MiB of its own: {first:.0f} MiB of disk with its image of "
          f"600 MiB, then {', '.join(f'{size:.0f}' for size in others)} MiB")  # fmt: skip


if __name__ == "__main__":
    main()
