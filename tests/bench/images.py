"""Images against the plain tools that move the same bytes, as ratios in one run.

    python3 -m tests.bench.images [FOLDER]

Clone of a 2 GiB image with 600 MiB in it against ``cp``; an overlay on a warm cache against
``qemu-img create -b``, to which ``virsh define`` is added on both sides alike; and what a
volume for cloud-init adds to a guest. The target files are removed between the runs.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "_utils"))

from saltvirt.images import cache, clone
from saltvirt.seed import SeedData, cloudinit, keys, nocloud

MIB = 1024 * 1024
RUNS = 7
DEFINE = """<domain type='test'><name>bench</name><memory>65536</memory>
<os><type>hvm</type></os></domain>"""


class Files:
    """Stands for the master's file server."""

    def __init__(self, path):
        self.path = path

    def version(self, _source):
        return {"size": os.path.getsize(self.path)}

    def fetch(self, _source, target, _version, _progress):
        subprocess.run(["cp", "--sparse=always", self.path, target], check=True)


def image(folder):
    """2 GiB, of which 600 MiB in six pieces hold data that no disk can squeeze."""
    path = folder / "image.raw"
    with open(path, "wb") as file:
        file.truncate(2048 * MIB)
        file.write(b"\0" * 510 + b"\x55\xaa")
        for piece in range(6):
            file.seek((1 + piece * 300) * MIB)
            for _ in range(100):
                file.write(os.urandom(MIB))
    return path


def timed(*functions, clean=None):
    """Seconds of each function, the median of the runs, which take turns."""
    found = [[] for _ in functions]
    for _ in range(RUNS):
        for function, times in zip(functions, found, strict=True):
            if clean:
                Path(clean).unlink(missing_ok=True)
            os.sync()
            began = time.perf_counter()
            function()
            times.append(time.perf_counter() - began)
    return [statistics.median(times) for times in found]


def run(*argv):
    subprocess.run([str(one) for one in argv], check=True, capture_output=True)


def define():
    subprocess.run(
        ["virsh", "-q", "-c", "test:///default", "define", "/dev/stdin"],
        input=DEFINE.encode(), check=True, capture_output=True,
    )  # fmt: skip


def overlays(folder, files):
    """Seconds of ours and of the plain tools."""
    target = str(folder / "overlay.qcow2")
    base = cache.fetch("salt://image.raw", folder, files).path

    def ours():
        found = cache.fetch("salt://image.raw", folder, files)
        clone.clone(found, target, "qcow2", 4096 * MIB, overlay=True)
        define()

    def plain():
        run("qemu-img", "create", "-q", "-f", "qcow2", "-b", base, "-F", "raw", target, "4G")
        define()

    return timed(ours, plain, clean=target)


def main():
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as name:
        folder = Path(name)
        source, target = image(folder), folder / "clone.raw"
        found = cache.fetch(str(source))
        cloned, copy = timed(
            lambda: clone.clone(found, target, "raw"),
            lambda: run("cp", "--sparse=always", source, target),
            clean=target,
        )
        report("clone of 2 GiB (600 MiB)", cloned, "cp --sparse=always", copy, 1.1)
        print(f"  allocated: {os.stat(target).st_blocks / os.stat(source).st_blocks:.3f} x")
        ours, plain = overlays(folder, Files(source))
        report("overlay on a warm cache", ours, "qemu-img create -b, virsh define", plain, 1.5)
        data = SeedData("bench", *keys.generate(), master="master", hostname="bench")
        texts = {"user-data": cloudinit.user_data(data), "meta-data": cloudinit.meta_data("bench")}
        seeded, key = timed(lambda: nocloud.write(str(folder / "seed.iso"), texts), keys.generate)
        print(f"volume for cloud-init: {seeded:.3f} s, key: {key:.3f} s (wanted: under 0.3 s)")


def report(what, ours, other, theirs, wanted):
    ratio = ours / theirs
    print(f"{what}: {ours:.3f} s, {other}: {theirs:.3f} s: {ratio:.2f} x (wanted: {wanted} x)")


if __name__ == "__main__":
    main()
