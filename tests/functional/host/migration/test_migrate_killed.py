"""kill -9 of a stopped guest's move at each line: afterwards one host has it, whole, and no more.

Both hosts are real libvirtds; the disk's folder of the target is another than the source's. The
processes that are killed are real, too: one is begun for each line, and ends there.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.functional.daemon import libvirtd, running  # noqa: F401

LIBRARY = Path(__file__).resolve().parents[4] / "_utils"
SLOW = bool(os.environ.get("SLOW"))
# of the lines in which a process ends, the first and each so many
EACH = 1 if SLOW else 25
DATA = "what the guest wrote"

BEGIN = """
import contextlib, json, os, signal, subprocess, sys
sys.path[:0] = [sys.argv[1], os.path.dirname(sys.argv[1])]
import libvirt
from saltvirt.host.migration import target_leftovers, remote_storage, reservations
from saltvirt.host.storage import sharing

source, target, folder = sys.argv[2:5]
target_leftovers.FOLDER = folder + "/target_leftovers"
reservations.FOLDER = folder + "/arrivals"
remote_storage.STALE_S = -1  # whose pool it is was just killed
sharing.sharing_reason = lambda path: None
"""

CLEAN = f"""{BEGIN}
conn = libvirt.open(target)
gone, kept = target_leftovers.clean(conn, "web1")
disks = {{}}
for name in os.listdir(folder + "/vm"):
    with open(folder + "/vm/" + name) as file:
        disks[name] = file.read()
print(json.dumps([disks, kept]))
"""

EACH_LINE = f"""{BEGIN}
from saltvirt import settings
from saltvirt.host.migration import (
    api, confirm, departures, migration, move_journal, offline, prepare, recovery,
)
from saltvirt.host.migration.move_journal import MigrationJournal
from saltvirt.migration import checks, options, storage, transport
from saltvirt.migration.facts import GuestReport, MachineReport, TargetReport
from tests.functional.killing import Trace, apart

step, data, pid, clean = int(sys.argv[5]), sys.argv[6], sys.argv[7], sys.argv[8]
reservations.capacity.reasons = lambda *_: []
departures.FOLDER = folder + "/moved"
recovery.has_job = lambda dom: False
recovery.connect_target = lambda order, uri: contextlib.closing(libvirt.open(target))
path, journals = folder + "/vm/web1_vda", folder + "/journals"
XML = (
    "<domain type='qemu'><name>web1</name><memory>65536</memory><os><type arch='x86_64'>hvm"
    "</type></os><devices><disk type='file'><driver name='qemu' type='raw'/>"
    f"<source file='{{path}}'/><target dev='vda'/></disk></devices></domain>"
)
order = api.MigrationJob(
    "web1", transport.parse("hv2"), options.parse({{}}), journals=journals, locks=folder + "/locks",
    local=settings.Connection(source),
)
traced = {{module.__file__ for module in (confirm, migration, offline, recovery)}}
names = (
    "run", "_do", "_cold", "_write", "_clean", "_complete", "copy", "define", "_not_there",
    "confirm", "transfer_autostart", "remove_source", "undefine",
)

def begin():
    for uri in (source, target):
        conn = libvirt.open(uri)
        for dom in conn.listAllDomains():
            dom.undefine()
        conn.close()
    subprocess.run(["nsenter", "-t", pid, "-m", "rm", "-f", path], check=True)
    with open(path, "w") as file:
        file.write(data)
    conn = libvirt.open(source)
    dom = conn.defineXML(XML)
    dom.setAutostart(1)
    conn.close()

def killed_at(line):
    conn, peer = libvirt.open(source), libvirt.open(target)
    dom = conn.lookupByName("web1")
    report = GuestReport(
        "web1", dom.UUIDString(), "hv1", False, "shutdown", autostart=True, memory_kib=65536,
        emulator="/usr/bin/qemu-system-x86_64", virt_type="qemu",
    )
    host = TargetReport("hv2", machine=MachineReport(has_emulator=True))
    plan = storage.DiskPlan("vda", storage.COPY, path, "raw", size_bytes=512, target_path=path)
    request = checks.CheckedMigration(order.options, order.transport, [plan])
    with MigrationJournal(journals, "web1") as journal:
        ends = migration.Endpoints(conn, peer, dom)
        one = migration.Migration(ends, report, host, request, order, journal)
        sys.settrace(Trace(traced, line, names))
        done = one.run()
        sys.settrace(None)
    return done.retained

def end():
    journal = MigrationJournal(journals, "web1")
    if journal.read():
        recovery.recover(libvirt.open(source), journal, order)
    argv = ["nsenter", "-t", pid, "-m", sys.executable, "-c", clean, *sys.argv[1:5]]
    done = subprocess.run(argv, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)

def hosts():
    found = []
    for uri in (source, target):
        conn = libvirt.open(uri)
        found.append([bool(dom.autostart()) for dom in conn.listAllDomains()])
        conn.close()
    return found

found, line = [], 1
while True:
    apart(begin)
    code, kept = apart(lambda: killed_at(line))
    seen = {{"line": line, "code": code, "kept": kept, "before": apart(hosts)[1]}}
    noted = MigrationJournal(journals, "web1").read()
    seen["whole"] = bool(noted.fingerprints) if noted and noted.phase == "moving" else None
    code, seen["end"] = apart(end)
    assert not code, f"line {{line}}: it could not be ended: {{seen['end']}}"
    seen["after"], seen["here"] = apart(hosts)[1], os.path.exists(path)
    seen["left"] = [
        name for place in ("reservations", "target_leftovers", "journals")
        for _, _, names in os.walk(f"{{folder}}/{{place}}")
        for name in names if not name.endswith(".lock")
    ]
    found.append(seen)
    if seen["code"] != -signal.SIGKILL:
        break
    line += step
print(json.dumps(found))
"""


@pytest.fixture
def other(tmp_path):
    """A second libvirtd, to which the folder ``vm`` is another one."""
    (tmp_path / "vm").mkdir()
    with running() as daemon:
        argv = ["nsenter", "-t", str(daemon.process.pid), "-m", "mount", "-t", "tmpfs", "none"]
        subprocess.run([*argv, str(tmp_path / "vm")], check=True)
        yield daemon


def test_at_each_line_one_host_has_the_guest_whole(libvirtd, other, tmp_path):  # noqa: F811
    argv = [sys.executable, "-c", EACH_LINE, LIBRARY, libvirtd.uri, other.uri, tmp_path, EACH, DATA,
            other.process.pid, CLEAN]  # fmt: skip
    done = subprocess.run(list(map(str, argv)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    ends, (*killed, whole) = set(), found
    for seen in killed:
        both = seen["before"][0] + seen["before"][1]
        assert both.count(True) <= 1, f"it would come up on both: {seen}"
        assert seen["whole"] is not False, f"how the copy looked is not written down: {seen}"
    for seen in found:
        disks, kept = seen["end"]
        assert seen["after"] in ([[True], []], [[], [True]]), f"not on one host alone: {seen}"
        here = bool(seen["after"][0])
        assert seen["here"] == here, f"the source's disk: {seen}"
        assert disks == ({} if here else {"web1_vda": DATA}), seen
        assert (kept, seen["left"]) == ({}, []), seen
        ends.add(here)
    assert whole["code"] == 0, done.stderr[-3000:]
    assert (whole["kept"], whole["after"]) == ({}, [[], [True]]), whole
    assert ends == {True, False}
    assert len(found) > (40 if SLOW else 4)
