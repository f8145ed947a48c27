"""Metrics of a simulated cloud over some hours as data of Prometheus: the exporter's code writes
them from simulated values of libvirt, hosts and the runner."""

import datetime
import math
from contextlib import nullcontext
from types import SimpleNamespace
from unittest import mock

from saltvirt.answers.migration import Certificate
from saltvirt.metrics.exporter import text
from saltvirt.metrics.host import read as of_host
from saltvirt.metrics.master import read as of_master
from saltvirt.metrics.model import guests, host_capacity
from saltvirt.placement import facts
from saltvirt.placement.policy import PlacementPolicy
from tests.lab import prometheus
from tests.lab.sh import run

EVERY_S, DAY_S = 60, 86400
# the dashboard shows three hours; who looks at it is not always quick
BEFORE_S, AFTER_S = 3 * 3600 + 600, 1800
GIB, NS = 1024**3, 10**9
HOSTS = ("hv1", "hv2", "hv3")
GUESTS = {"hv1": ("web1", "web2", "mail1"), "hv2": ("db1", "web3"), "hv3": ("build1", "db2")}
OFF = {"build1"}


def stats(number, at_s):
    """What QEMU's driver says of a guest with two vCPUs, a disk and a NIC after so many seconds."""
    busy = 0.5 + 0.4 * math.sin(at_s / 1500 + number)
    # all that a rate of that size has counted until then
    count = at_s * 0.5 - 0.4 * 1500 * math.cos(at_s / 1500 + number) + 600
    found = {"vcpu.current": 2, "vcpu.maximum": 2, "block.count": 1, "block.0.name": "vda",
             "net.count": 1, "net.0.name": f"vnet{number}", "balloon.current": 2 * 1024**2,
             "balloon.rss": int((0.8 + number / 8 + busy / 2) * 1024**2),
             "cpu.time": count * NS}  # fmt: skip
    for vcpu in range(2):
        found[f"vcpu.{vcpu}.time"] = count * NS * (0.9 - vcpu * 0.4)
        found[f"vcpu.{vcpu}.delay"] = count * NS * 0.02 * (number + 1)
    disk = {
        "rd.bytes": 3e6,
        "wr.bytes": 1.2e6,
        "wr.reqs": 40,
        "wr.times": 40 * NS * 0.002 * (number + 1),
    }
    nic = {"rx.bytes": 4e5, "tx.bytes": 1.6e6}
    found |= {f"block.0.{key}": int(count * each) for key, each in disk.items()}
    return found | {f"net.0.{key}": int(count * each * (number + 1)) for key, each in nic.items()}


def inventory(host):
    """What a host answers the master: its guests, and two storage pools."""
    several = {
        name: facts.Guest(name, name, "running", 2, 2 * 1024**2, autostart=name not in OFF)
        for name in GUESTS[host]
    }
    free = (60 - 15 * HOSTS.index(host)) * GIB
    pools = {"images": facts.StoragePool(100 * GIB, free, 10 * GIB, store="/"),
             "fast": facts.StoragePool(400 * GIB, 4 * free, 30 * GIB, store="/fast")}  # fmt: skip
    return facts.Inventory(
        cpus=8, memory_kib=16 * 1024**2, guests=several,
        images_folder=facts.ImagesStorage(100 * GIB, free, store="/", path="/srv"),
        stores={"/": facts.StorageSpace(100 * GIB, free, 10 * GIB),
                "/fast": facts.StorageSpace(400 * GIB, 4 * free, 30 * GIB)},
        mounts={"/": "/", "/fast": "/fast"}, pools=pools,
    )  # fmt: skip


def iso(at_s):
    return datetime.datetime.fromtimestamp(at_s, datetime.timezone.utc).isoformat()


def host_says(host, began_s, at_s):
    """The Families of a hypervisor's exporter."""
    seen = []
    for number, name in enumerate(one for several in GUESTS.values() for one in several):
        if name in GUESTS[host]:
            state = "shutdown" if name in OFF else "running"
            told = {} if name in OFF else stats(number, at_s - began_s)
            labels = {"guest": name, "host": host, "uuid": name}
            seen.append(guests.GuestStats(labels, state, told))
    yield from of_host.families(seen, host)
    yield from host_capacity.families(facts.host_of(host, inventory(host)), PlacementPolicy())
    ends = {"server": at_s + 80 * DAY_S, "client": at_s + 50 * DAY_S}
    shown = {use: Certificate(host, use, iso(until_s)) for use, until_s in ends.items()}
    images = [SimpleNamespace(path="/srv/debian.qcow2")]
    with (
        mock.patch.object(of_host.cache, "cached_images", lambda _: images),
        mock.patch.object(of_host, "_allocated_bytes", lambda _: (2 + HOSTS.index(host)) * GIB),
        mock.patch.object(of_host.move_journal, "unfinished", dict),
    ):
        yield from of_host.read_files(lambda _, default=None: default, host, lambda: shown)


def master_says(at_s):
    """The Families of the master's exporter."""
    hosts = [facts.host_of(host, inventory(host)) for host in HOSTS]
    gathered = mock.patch.object(of_master.inventory, "gather", lambda _: (hosts, {"hv4": "away"}))
    with gathered, mock.patch.object(of_master, "Fleet", nullcontext):
        yield from of_master.read_hosts({})
    engine = {"running": True, "leading": True, "leader": None}
    kept = {name for host in HOSTS for name in GUESTS[host]} - OFF
    yield from of_master.ha_metrics({
        "configured": True, "armed": True, "problems": [], "engine": engine,
        "hosts": {host: {"state": "up", "unplaced": []} for host in HOSTS}
                 | {"hv4": {"state": "fenced", "unplaced": []}},
        "guests": {name: {"state": "placed"} for name in kept},
    })  # fmt: skip
    made = [
        {"guest": name, "when": iso(at_s - 3600 * (3 + 4 * number)), "stored_bytes": GIB}
        for number, name in enumerate(sorted(kept))
    ]
    yield from of_master.backup_metrics({"vault": made}, at_s)


def said(families, at_s):
    """The lines of an exporter, each with its time."""
    _, pieces = text.render(families)
    lines = b"".join(pieces).decode().splitlines()
    return [f"{line} {at_s}" for line in lines if not line.startswith("#")]


def fill(folder, now_s):
    """A folder of Prometheus' data of the time around now_s."""
    began_s = int(now_s) // EVERY_S * EVERY_S - BEFORE_S
    lines = []
    for at_s in range(began_s, int(now_s) + AFTER_S, EVERY_S):
        for host in HOSTS:
            lines += said(host_says(host, began_s, at_s), at_s)
        lines += said(master_says(at_s), at_s)
    listed = folder / "said.txt"
    listed.write_text("\n".join([*lines, "# EOF", ""]), encoding="utf-8")
    made = folder / "tsdb"
    promtool = prometheus.program("promtool")
    run([promtool, "tsdb", "create-blocks-from", "openmetrics", listed, made])
    return made
