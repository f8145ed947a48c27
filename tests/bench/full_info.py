"""virt.full_info against libvirt's own list + XML + statistics, in the same process.

    python -m tests.bench.full_info qemu:///system             # as root, on a hypervisor
    … --running 10                                             # some of them run, paused
    … --salt /path/to/salt-3007.14                             # and Salt's own, as it was

Defines bench-000 … itself and takes them away again. Prints milliseconds (the best of
several rounds), the ratio, and what the process grew by.
"""

import argparse
import gc
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import libvirt

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "_utils"))

from saltvirt.host.domain import overview

ROUNDS = 15
SHUT_OFF, RUNNING = (100, 500), 10
XML = """
<domain type='qemu'><name>{name}</name><memory unit='MiB'>16</memory><vcpu>1</vcpu>
<os><type arch='x86_64' machine='pc'>hvm</type></os><features><acpi/></features>
<devices>
<disk type='file' device='disk'><driver name='qemu' type='qcow2'/>
<source file='{disk}'/><target dev='vda' bus='virtio'/></disk>
<interface type='user'><model type='virtio'/></interface>
<graphics type='vnc' autoport='yes'/><serial type='pty'/>
</devices></domain>
"""
SALT = """
import sys, time
sys.path.insert(0, {salt!r})
import salt.modules.virt as virt
virt.__salt__ = {{"config.get": lambda key, default=None: {{
    "virt:connection:uri": {uri!r}}}.get(key, default)}}
virt.__opts__, virt.__grains__ = {{}}, {{}}
start = time.perf_counter()
found = virt.full_info(connection={uri!r})
print(len(found["vm_info"]), 1000 * (time.perf_counter() - start))
"""


def raw(conn):
    """What libvirt itself takes for the same."""
    for dom in conn.listAllDomains():
        dom.XMLDesc(0)
    return conn.getAllDomainStats()


def best(functions, conn):
    """Milliseconds of each function's fastest round; the rounds alternate, so that what else
    the machine does meets all of them alike."""
    times = [[] for _ in functions]
    for _ in range(ROUNDS):
        for function, mine in zip(functions, times, strict=True):
            gc.collect()
            start = time.perf_counter()
            function(conn)
            mine.append(1000 * (time.perf_counter() - start))
    return [min(mine) for mine in times]


def define(conn, folder, first, last):
    """Defines bench-<first> to bench-<last - 1>, each with a disk of its own."""
    for number in range(first, last):
        name = f"bench-{number:03}"
        disk = f"{folder}/{name}.qcow2"
        argv = ["qemu-img", "create", "-q", "-f", "qcow2", disk, "1G"]
        subprocess.run(argv, check=True)
        conn.defineXML(XML.format(name=name, disk=disk))


def clean(conn):
    """Takes all bench domains away."""
    for dom in conn.listAllDomains():
        if dom.name().startswith("bench-"):
            if dom.isActive():
                dom.destroy()
            dom.undefine()


def salt(path, uri):
    """Milliseconds of Salt 3007's own full_info, in a process of its own."""
    code = SALT.format(salt=path, uri=uri)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def measure(conn, uri, label, salt_path):
    """One line of the table; the ratio."""
    floor, ours = best((raw, overview.full_info), conn)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(20):
        overview.full_info(conn)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    old = f"{salt(salt_path, uri):12.0f}" if salt_path else " " * 12
    print(f"{label:24}{floor:9.1f}{ours:11.1f}{ours / floor:8.2f}{old}{grown:10}")
    return ours / floor


def main():
    """Prints the table; exit code 1 when a ratio is above 3."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("uri", nargs="?", default="qemu:///system")
    parser.add_argument("--running", type=int, default=RUNNING)
    parser.add_argument("--salt", help="folder of Salt 3007's source")
    asked = parser.parse_args()
    conn = libvirt.open(asked.uri)
    print(f"{'domains':24}{'raw ms':>9}{'ours ms':>11}{'ratio':>8}{'3007 ms':>12}{'KiB more':>10}")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        clean(conn)
        try:
            ratios, there = [], 0
            for number in SHUT_OFF:
                define(conn, folder, there, number)
                there = number
                label = f"{number} shut off"
                ratios.append(measure(conn, asked.uri, label, asked.salt))
            for dom in conn.listAllDomains()[: asked.running]:
                dom.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED)
            label = f"{there}, {asked.running} of them run"
            ratios.append(measure(conn, asked.uri, label, asked.salt))
        finally:
            clean(conn)
    return int(max(ratios) > 3)


if __name__ == "__main__":
    sys.exit(main())
