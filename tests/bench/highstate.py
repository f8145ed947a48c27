"""What a minion that is no hypervisor pays for Salt Virt at each highstate.

    python3 -m tests.bench.highstate

Two masters in one run, with a minion each: one serves what `make publish` publishes, the other's
file server is empty but for the top file. `salt-call state.highstate` on both in turns; before it,
what the first sync brings: files and lines.
"""

import os
import shutil
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "_utils"))

from tests.lab import process, rootless
from tests.rootless.cloud import Cloud

RUNS = 7
HOST = "hv2"
TOP = "base: {'*': [nothing]}\n"
NOTHING = "nothing: test.nop\n"


def start(folder, way):
    """A cloud of that way whose minions' highstate is one state that does nothing."""
    cloud = Cloud(folder, way)
    cloud.start()
    (cloud.tree / "top.sls").write_text(TOP)
    (cloud.tree / "nothing.sls").write_text(NOTHING)
    for kind in ("modules", "grains"):
        shutil.rmtree(cloud.tree / f"_{kind}")  # of the tests, not ours
    return cloud


def highstate(cloud):
    """Seconds of one. It is typed, so that a minion's other work is not in it."""
    began = time.perf_counter()
    done = cloud.called(HOST, "state.highstate")
    assert done.returncode == 0, done
    return time.perf_counter() - began


def main():
    if os.geteuid() != 0:
        return compare()
    # two libvirtds of root would have one folder
    with process.folder("sv", "/tmp") as home:
        argv = [sys.executable, "-m", "tests.bench.highstate"]
        return sys.exit(rootless.as_nobody(argv, Path(home), dict(os.environ)))


def compare():
    """Start both, measure, end both."""
    with process.folder("sv") as one, process.folder("sv") as other:
        clouds = {}
        try:
            for way, folder in (("sync", one), ("none", other)):
                clouds[way] = start(Path(folder), way)
            report(clouds)
        finally:
            for cloud in clouds.values():
                cloud.stop()


def report(clouds):
    """Print what was measured."""
    ours = clouds["sync"]
    cached = Path(ours.minions[HOST].config["extension_modules"])
    shutil.rmtree(cached)
    lines = ours.called(HOST, "saltutil.sync_all", "--out=nested").stdout.splitlines()
    files = [path for path in cached.rglob("*") if path.is_file()]
    print(f"first sync of a minion: {len(files)} files, {len(lines)} lines (wanted: 45, 50)")
    times = {way: [] for way in clouds}
    for _ in range(RUNS):
        for way, cloud in clouds.items():
            times[way].append(highstate(cloud))
    found = {way: statistics.median(of) for way, of in times.items()}
    print(
        f"highstate: {found['sync']:.2f} s, of an empty file server {found['none']:.2f} s: "
        f"{found['sync'] - found['none']:+.2f} s, {found['sync'] / found['none']:.2f} x "
        "(wanted: +0.15 s)"
    )


if __name__ == "__main__":
    main()
