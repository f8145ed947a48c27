"""The verbs that only read, as typed, compared with ``salt-run test.arg`` and one job, ``salt 'hv*'
test.ping``: a real master and two minions without a lab, each with a libvirtd of its own that
serves the test driver. Root runs it as nobody.

Arguments: the number of guests on each host, the number of rounds, and verbs; default: all.
"""

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / part) for part in ("", "_utils")]

from tests.lab import process, rootless
from tests.rootless.cloud import HOSTS, Cloud

GUESTS, ROUNDS = 100, 5
TARGET = 1.5
GUEST = """<domain type='test'><name>{name}</name><memory>65536</memory><os><type>hvm</type></os>
<devices><disk type='file' device='disk'><source file='/nonexistent/{name}'/><target dev='vda'/>
</disk><interface type='network'><source network='default'/></interface></devices></domain>"""
# one of the guests, which is on the first host
NAME = "bench-hv1-1"
VERBS = (
    f"list, query, vm_info {NAME}, host_info, top, log, addresses {NAME}, snapshots {NAME}, "
    f"backups, backups {NAME}, images, pools, networks, locate {NAME}, owners, versions, "
    "maintenance hv1, migrate_unfinished, volumes, deployments, next_host, capacity 1 64, "
    f"explain new 1 64, migratable {NAME}, display {NAME}, certs, ha_status, help"
).split(", ")


def prepare(cloud, guests):
    """Guests, most of which are off, and a folder for backups."""
    (cloud.root / "vault").mkdir(mode=0o700)
    for host in HOSTS:
        connection = cloud.libvirtds[host].connection
        for number in range(guests):
            guest = connection.defineXML(GUEST.format(name=f"bench-{host}-{number + 1}"))
            if number % 10 == 0:
                guest.create()


def seconds(cloud, program, *arguments):
    """How long a program of Salt takes. Its exit code is not looked at: with a target without
    backups, or a guest twice, it may be 1."""
    script = cloud.factories.get_salt_script_path(program)
    argv = [sys.executable, script, "-c", cloud.master.config_dir, *arguments]
    begun = time.perf_counter()
    subprocess.run(argv, capture_output=True, check=False)
    return time.perf_counter() - begun


def ratios(cloud, rounds, verbs):
    """Each verb against the floor, in turn, so that a slow moment hits both."""
    found, floors = {verb: [] for verb in verbs}, []
    for number in range(rounds + 1):
        floor_s = seconds(cloud, "salt-run", "test.arg")
        floor_s += seconds(cloud, "salt", "hv*", "test.ping")
        for verb in verbs:
            ratio = seconds(cloud, "salt-run", *f"virt.{verb}".split()) / floor_s
            if number:  # the first is the warm-up
                found[verb].append(ratio)
        if number:
            floors.append(floor_s)
    return statistics.median(floors), found


def measure(guests, rounds, verbs):
    """Print the ratios, and which verbs take longer than the target."""
    with process.folder("sv") as root:
        cloud = Cloud(Path(root))
        try:
            cloud.start()
            prepare(cloud, guests)
            floor_s, found = ratios(cloud, rounds, verbs)
        finally:
            cloud.stop()
    print(f"2 hosts, {guests} guests on each, against test.arg + test.ping ({floor_s:.1f} s):")
    for verb, values in found.items():
        low, middle, high = min(values), statistics.median(values), max(values)
        mark = "  SLOW" if middle > TARGET else ""
        print(f"  {verb:24} {middle:.2f} x  (from {low:.2f} to {high:.2f}){mark}")


def main(arguments):
    if os.geteuid() == 0:
        argv = [sys.executable, "-m", "tests.bench.verbs", *arguments]
        with process.folder("sv", "/tmp") as home:
            return rootless.as_nobody(argv, Path(home), {**os.environ})
    numbers = [int(word) for word in arguments if word.isdecimal()]
    guests, rounds = [*numbers, *(GUESTS, ROUNDS)[len(numbers) :]]
    named = [verb for verb in VERBS if verb.split()[0] in arguments]
    measure(guests, rounds, named or VERBS)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
