"""The exporter beside Debian's prometheus-libvirt-exporter, of the same guests in one run.

    tests/lab/lab bench exporter [GUESTS]

A libvirtd of its own has libvirt's test driver with so many guests that run. Both are scraped as
Prometheus does it; what is measured is the time until the last byte, and the memory of the process:
all that it holds (RSS), and what it alone holds (USS). Ours is a process that its parent has forked
as a minion does, with the library in it.

libvirt's test driver says little of a guest in a bulk call. So there is a third exporter: ours, to
which each guest is told with all that QEMU's driver says of one that runs, with two vCPUs, two
disks and two NICs, each number another one. It writes what it would write of real guests; that
libvirtd reads it from 500 QEMUs is not in its time.
"""

import contextlib
import gzip
import os
import re
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "_utils"))

import saltvirt
from saltvirt import settings
from saltvirt.metrics.exporter import options, serve
from saltvirt.metrics.host import read
from tests.functional.daemon import Daemon
from tests.lab import prometheus

GUESTS, SCRAPES = 500, 15
WANTED_S, WANTED_MIB = 0.5, 20
NAME = re.compile(rb'(?:guest|domain)="([^"]*)"')
VCPU = ("time", "wait", "delay")
DISK = (
    *("rd.reqs", "rd.bytes", "rd.times", "wr.reqs", "wr.bytes", "wr.times", "fl.reqs", "fl.times"),
    *("allocation", "capacity", "physical"),
)
NIC = ("rx.bytes", "rx.pkts", "rx.errs", "rx.drop", "tx.bytes", "tx.pkts", "tx.errs", "tx.drop")
WHOLE = (
    *("cpu.time", "cpu.user", "cpu.system", "vcpu.current", "balloon.current", "balloon.maximum"),
    *("balloon.rss", "balloon.available", "balloon.usable", "balloon.unused", "balloon.swap_in"),
    *("balloon.swap_out", "balloon.major_fault", "balloon.minor_fault"),
)
GUEST = """<domain type='test'><name>guest{n}</name><memory unit='MiB'>512</memory><vcpu>2</vcpu>
<os><type>hvm</type></os><devices>
<disk type='file'><source file='/srv/guest{n}.qcow2'/><target dev='vda' bus='virtio'/></disk>
<interface type='network'><source network='default'/><target dev='vnet{n}'/></interface>
</devices></domain>"""


def started(uri, guests):
    """A connection that keeps so many guests of the test driver, beside its own one."""
    import libvirt

    conn = libvirt.open(uri)
    for number in range(1, guests):
        conn.createXML(GUEST.format(n=number))
    return conn


def cpu_s(pid):
    """What the processor has done for a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


def held_mib(pid):
    """(RSS, USS) of a process."""
    found = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, size = line.split()[:2]
        found[name.rstrip(":")] = int(size)
    return found["Rss"] / 1024, (found["Private_Clean"] + found["Private_Dirty"]) / 1024


def filled(number):
    """What QEMU's driver says of a guest, with numbers of its own and names that are made anew, as
    the binding makes them."""
    several = {"vcpu.maximum": 2, "block.count": 2, "net.count": 2}
    names = [*WHOLE]
    for part in range(2):
        several[f"block.{part}.name"], several[f"net.{part}.name"] = f"vd{part}", f"vnet{part}"
        for kind, keys in (("vcpu", VCPU), ("block", DISK), ("net", NIC)):
            names += [f"{kind}.{part}.{key}" for key in keys]
    return several | {name: (number + 1) * 10**9 + at for at, name in enumerate(names)}


@contextlib.contextmanager
def ours(uri, port, full=False):
    """The exporter, forked from a process that holds the library. Yields its pid."""
    saltvirt.preload()
    pid = os.fork()
    if pid == 0:
        where = settings.Connection(uri)

        def now():
            found = read.read_guests(where, "hv1")
            for number, one in enumerate(found if full else ()):
                one.stats.update(filled(number))
            return read.families(found, "hv1")

        asked = options.validate("127.0.0.1", port, False, 60)
        serve.run(asked, {"host": "hv1"}, (now, {}), threading.Event())
    try:
        yield pid
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)


@contextlib.contextmanager
def debians(uri, port):
    """The same of Debian's."""
    argv = [prometheus.program("prometheus-libvirt-exporter"), f"--libvirt.uri={uri}",
            f"--web.listen-address=127.0.0.1:{port}"]  # fmt: skip
    with subprocess.Popen(argv, stderr=subprocess.DEVNULL) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def scrape(port):
    """(seconds, bytes as they came)."""
    asked = urllib.request.Request(f"http://127.0.0.1:{port}/metrics")
    asked.add_header("Accept", "application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
    asked.add_header("Accept-Encoding", "gzip")
    began = time.perf_counter()
    with urllib.request.urlopen(asked, timeout=120) as answer:
        data = answer.read()
    return time.perf_counter() - began, data


def reached(port):
    for _ in range(600):
        with contextlib.suppress(OSError):
            return scrape(port)
        time.sleep(0.1)
    raise SystemExit(f"nothing answers on port {port}")


def report(what, data, took, held):
    text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    samples = [one for one in text.splitlines() if not one.startswith(b"#")]
    told = {name for one in samples for name in NAME.findall(one)}
    took_s, cpu = took
    print(
        f"{what}: {len(told)} guests, {len(samples)} samples in {statistics.median(took_s):.3f} s "
        f"(worst {max(took_s):.3f} s; {cpu:.3f} s of a CPU), {held[0]:.1f} MiB, {held[1]:.1f} MiB "
        "of its own"
    )


def main(words):
    guests = int(words[0]) if words else GUESTS
    with contextlib.ExitStack() as ends:
        daemon = Daemon()
        ends.callback(daemon.stop)
        daemon.wait()
        uri = f"test+unix:///default?socket={daemon.socket}"
        ends.callback(started(uri, guests).close)
        exporters = {"ours": ours, "ours, filled": partial(ours, full=True), "Debian's": debians}
        at = {what: free_port() for what in exporters}
        pids = {what: ends.enter_context(one(uri, at[what])) for what, one in exporters.items()}
        for port in at.values():
            reached(port)
        took, spent = {what: [] for what in at}, {what: cpu_s(pid) for what, pid in pids.items()}
        for _ in range(SCRAPES):
            for what, port in at.items():
                took[what].append(scrape(port)[0])
        for what, port in at.items():
            each_s = (cpu_s(pids[what]) - spent[what]) / SCRAPES
            report(what, scrape(port)[1], (took[what], each_s), held_mib(pids[what]))
    print(f"wanted of {GUESTS} guests: {WANTED_S} s, below {WANTED_MIB} MiB")


if __name__ == "__main__":
    main(sys.argv[1:])
