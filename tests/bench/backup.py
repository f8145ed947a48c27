"""``salt-run virt.backup`` against Debian's ``virtnbdbackup``, on the same guest in one run.

    tests/lab/lab bench backup [--lab NAME] [--mib 1024] [--rounds 3]

The guest's disk has twice as many MiB as the data in it, which no disk can squeeze. Each round is a
full backup, pieces that are written to the running guest, and an increment; the two take turns at
being first. Ours goes over TLS to the machine of the target, with the digests of all that was read,
and its time is that of the whole command on the master; virtnbdbackup runs on the hypervisor itself
and writes into a folder there. Wanted: at most 1.0 x its time, and at most 1.1 x the changed
clusters moved.
"""

import argparse
import random
import shutil
import statistics
import sys
import time

from tests.backup import act, run, world
from tests.integration.hv import file_disk, guest
from tests.lab.sh import run as do

NAME = f"{world.PREFIX}bench"
HOME = world.IMAGES
THEIRS = "/srv/virtnbdbackup"
CLUSTER = 64 * 1024
MIB = 1024**2
PIECES = 150
MAKE = """
import os, sys
path, mib = sys.argv[1], int(sys.argv[2])
with open(path, "wb") as file:
    file.truncate(2 * mib << 20)
    for piece in range(mib // 16):
        file.seek(piece * 2 * 16 << 20)
        file.write(os.urandom(16 << 20))
"""


def install(lab, host):
    """Debian's package in the hypervisor, which has no way to the mirrors by itself."""
    root = lab.machine(host).root
    if (root / "usr/bin/virtnbdbackup").exists():
        return
    (root / "etc/resolv.conf").unlink(missing_ok=True)
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    do(["chroot", root, "apt-get", "-q", "update"])
    words = ["apt-get", "-q", "-y", "--no-install-recommends", "install", "virtnbdbackup"]
    do(["chroot", root, "env", "DEBIAN_FRONTEND=noninteractive", *words])


class Bench:
    """One guest, backed up by both."""

    def __init__(self, there, mib):
        self.there, self.lab, self.mib = there, there.lab, mib
        self.host = there.lab.hosts[0]
        self.random = random.Random(mib)

    def sh(self, script, **more):
        return self.lab.exec(self.host, script, **more).stdout

    def make(self):
        """The guest, running."""
        raw, disk = f"{HOME}/{NAME}.raw", f"{HOME}/{NAME}-vda"
        self.sh(f"mkdir -p -m 755 {HOME}")
        self.lab.exec(self.host, ["/opt/salt/bin/python", "-c", MAKE, raw, self.mib])
        self.sh(f"qemu-img convert -O qcow2 {raw} {disk} && rm {raw}")
        self.sh(f"cat > {HOME}/{NAME}.xml; virsh -q define {HOME}/{NAME}.xml; "
                f"virsh -q start {NAME}", input=guest(NAME, file_disk(disk)))  # fmt: skip

    def write(self):
        """Pieces here and there; how many clusters they touch."""
        touched, script = set(), ""
        for _ in range(PIECES):
            length = 512 * self.random.randrange(1, 1400)
            offset = 512 * self.random.randrange(0, (2 * self.mib * MIB - length) // 512)
            touched |= set(range(offset // CLUSTER, (offset + length - 1) // CLUSTER + 1))
            told = f'qemu-io -d {act.AT.format(0)} "write -P {self.random.randrange(1, 256)}'
            script += f"virsh -q qemu-monitor-command {NAME} --hmp '{told} {offset} {length}\"'\n"
        self.sh(script)
        return len(touched)

    def ours(self, _level):
        found = self.lab.run_json("virt.backup", NAME, to="vault")[NAME]
        assert found["result"] is True, found
        return found

    def theirs(self, level):
        if level == "full":
            self.sh(f"rm -rf {THEIRS}")
        done = self.lab.exec(
            self.host, f"virtnbdbackup -d {NAME} -l {level} -n -o {THEIRS} 2>&1", check=False
        )
        assert done.returncode == 0, done.stdout[-2000:]

    def forget(self):
        """The guest has no checkpoint, the target and the other's folder nothing."""
        self.sh(f"for one in $(virsh checkpoint-list {NAME} --name); do "
                f"virsh -q checkpoint-delete {NAME} $one; done; rm -rf {THEIRS}")  # fmt: skip
        folders = " ".join(world.FOLDERS.values())
        self.lab.exec(self.there.target.name, f"rm -rf {folders}; mkdir -m 700 {folders}")

    def timed(self, take):
        """(seconds of the full, of the increment, what was said of that, clusters changed)."""
        self.forget()
        began = time.monotonic()
        take("full")
        full = time.monotonic() - began
        changed = self.write()
        began = time.monotonic()
        said = take("inc")
        return full, time.monotonic() - began, said, changed


def arguments():
    top = argparse.ArgumentParser(prog="bench backup", description=__doc__)
    top.add_argument("--lab", help="one that is up and synced")
    top.add_argument("--mib", type=int, default=1024)
    top.add_argument("--rounds", type=int, default=3)
    return top.parse_args()


def main():
    given = arguments()
    times = {(who, what): [] for who in ("ours", "theirs") for what in ("full", "increment")}
    moved = []
    with run.a_world(given.lab) as there:
        install(there.lab, there.lab.hosts[0])
        bench = Bench(there, given.mib)
        bench.make()
        try:
            for number in range(given.rounds):
                takes = [("ours", bench.ours), ("theirs", bench.theirs)]
                for who, take in takes if number % 2 else takes[::-1]:
                    full, increment, said, changed = bench.timed(take)
                    times[who, "full"].append(full)
                    times[who, "increment"].append(increment)
                    print(f"{who}: {full:.1f} s, {increment:.1f} s", file=sys.stderr, flush=True)
                    if said:
                        assert "changed since" in said["disks"]["vda"], said
                        moved.append(said["moved_bytes"] / (changed * CLUSTER))
        finally:
            there.wipe()
            bench.sh(f"rm -rf {THEIRS}", check=False)
    for what, much in (("full", f"{given.mib} MiB"), ("increment", f"{PIECES} pieces")):
        ours, theirs = (statistics.median(times[who, what]) for who in ("ours", "theirs"))
        print(f"{what} ({much}): {ours:.1f} s, virtnbdbackup: {theirs:.1f} s: "
              f"{ours / theirs:.2f} x (wanted: 1.0 x)")  # fmt: skip
    print(f"an increment moves {statistics.median(moved):.3f} x the changed clusters, "
          f"at most {max(moved):.3f} x (wanted: 1.1 x)")  # fmt: skip


if __name__ == "__main__":
    main()
