"""Each component that can die, in each phase of a migration. SIGSTOP holds a libvirtd where the
migration needs its next answer; then a component is killed, and libvirtd continues. Afterwards the
guest runs on one host; virt.repair and a second virt.migrate finish it on the target, with every
record that it wrote."""

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest

from tests.integration.migration import counter
from tests.integration.migration.test_failures import cut
from tests.lab import process

pytestmark = [pytest.mark.lab, pytest.mark.slow]


def libvirtd(lab, host, signal):
    lab.exec(host, ["pkill", f"-{signal}", "-x", "libvirtd"], check=False)


@contextlib.contextmanager
def stopped(lab, host):
    """libvirtd of a host does nothing for the block."""
    libvirtd(lab, host, "STOP")
    try:
        yield
    finally:
        libvirtd(lab, host, "CONT")


def begin(lab, guest):
    lab.exec(
        "master",
        f"nohup salt-run virt.migrate {guest.name} hv2 max_bandwidth=16 live=True "
        f">/run/{guest.name}.out 2>&1 </dev/null &",
    )


def domstate(lab, host, name):
    return lab.exec(host, ["virsh", "domstate", name], check=False).stdout.strip()


def journal_has(lab, guest, text):
    path = f"{counter.JOURNALS}/{guest.name}.json"
    return lab.exec("hv1", ["grep", "-q", text, path], check=False).returncode == 0


@contextlib.contextmanager
def check(lab, guest):
    """The source has begun, and waits for the target's first word. That is milliseconds: looked
    for, and stopped, from outside."""
    root = Path(f"/proc/{lab.machine('hv1').leader()}/root")
    lock = root / counter.JOURNALS.lstrip("/") / f"{guest.name}.json.lock"
    inside = int(lab.exec("hv2", ["pidof", "libvirtd"]).stdout)
    daemon = process.outside(lab.machine("hv2").leader(), inside)
    begin(lab, guest)
    try:
        lab.wait(lock.exists, str(lock), every_s=0.001)
        os.kill(daemon, signal.SIGSTOP)
        if journal_has(lab, guest, guest.disk):
            print("too late: the target has prepared its disks")
        yield
    finally:
        libvirtd(lab, "hv2", "CONT")


@contextlib.contextmanager
def preparing(lab, guest):
    begin(lab, guest)
    lab.wait(lambda: journal_has(lab, guest, guest.disk), "disks are made", every_s=0.05)
    with stopped(lab, "hv2"):
        yield


def copies(lab, guest, what="disk"):
    done = lab.exec("hv1", f"virsh domjobinfo {guest.name} --rawstats", check=False).stdout
    return f"{what}_processed" in done and f"{what}_processed: 0\n" not in done


@contextlib.contextmanager
def copying(lab, guest):
    begin(lab, guest)
    lab.wait(lambda: copies(lab, guest), "the disk is being copied")
    yield


@contextlib.contextmanager
def hand_over(lab, guest):
    """The source is paused, its memory is all sent: only the target's word is awaited."""
    begin(lab, guest)
    lab.wait(lambda: copies(lab, guest, "memory"), "memory is being sent", every_s=0.1)
    with stopped(lab, "hv2"):
        lab.wait(lambda: domstate(lab, "hv1", guest.name) == "paused", "it is paused", 25)
        yield


@contextlib.contextmanager
def cleaning(lab, guest):
    """It runs on the target, and is no longer defined on the source."""
    definition = f"/etc/libvirt/qemu/{guest.name}.xml"
    watch = f"while [ -e {definition} ]; do sleep 0.002; done; pkill -STOP -x libvirtd"
    lab.exec("hv1", f"nohup sh -c '{watch}' >/dev/null 2>&1 </dev/null &")
    begin(lab, guest)
    try:
        lab.wait(
            lambda: lab.exec("hv1", ["test", "-e", definition], check=False).returncode, "it left"
        )
        yield
    finally:
        libvirtd(lab, "hv1", "CONT")


PHASES = {f.__name__: f for f in (check, preparing, copying, hand_over, cleaning)}
# (where, what to kill, what to start again); GUEST: the name
VICTIMS = {
    "source_minion": ("hv1", "bin/salt-minion", "salt-minion"),
    "target_minion": ("hv2", "bin/salt-minion", "salt-minion"),
    "runner": ("master", "bin/salt-run", None),
    "master": ("master", "bin/salt-master", "salt-master"),
    "source_libvirtd": ("hv1", "sbin/libvirtd", None),
    "target_libvirtd": ("hv2", "sbin/libvirtd", None),
    "target_qemu": ("hv2", "guest=GUEST,", None),
}
# at the other phases it has no QEMU on the target, or it is the guest itself
WITH_QEMU = ("copying", "hand_over")
CASES = [
    (victim, phase)
    for phase in PHASES
    for victim in VICTIMS
    if victim != "target_qemu" or phase in WITH_QEMU
]


def kill(lab, guest, victim):
    host, pattern, unit = VICTIMS[victim]
    lab.kill(host, pattern.replace("GUEST", guest.name))
    if unit:
        lab.exec(host, ["systemctl", "restart", unit])


def runs_on_one(lab, guest):
    """It runs on exactly one host; while it is handed over it is paused on both."""
    return sorted(guest.states().values()) in (["running"], ["running", "shut off"])


def end(lab, guest):
    """Whatever was left: virt.repair, then a second virt.migrate, as a user would."""
    for host in ("hv1", "hv2"):
        lab.wait_for_minion(host)
    lab.wait(lambda: runs_on_one(lab, guest), "it runs on one host", 120)
    lab.run("virt.repair", apply=True)
    answers = []

    def moved():
        done = lab.run("virt.migrate", guest.name, "hv2")
        answers.append(done.stdout)
        return done.rc == 0

    try:
        lab.wait(moved, "a second virt.migrate ends it", 150, 2)
    finally:
        print("\n".join(answers))
    guest.is_whole_on("hv2")
    promised = lab.exec("hv2", "ls /var/lib/salt-virt/arrivals").stdout.split()
    assert [file for file in promised if file.startswith(f"{guest.name}~")] == []


@pytest.mark.parametrize(("victim", "phase"), CASES)
def test_killed(cloud, guests, victim, phase):
    guest = guests(f"m-{CASES.index((victim, phase))}").define("hv1", "128M").fill("hv1", 20)
    guest.start("hv1")
    with PHASES[phase](cloud, guest):
        kill(cloud, guest, victim)
    end(cloud, guest)


@pytest.mark.parametrize("seconds", [5, 45])
@pytest.mark.parametrize("phase", PHASES)
def test_the_network_is_cut(cloud, guests, phase, seconds):
    guest = guests(f"n-{phase.replace('_', '-')}-{seconds}").define("hv1", "128M")
    guest.fill("hv1", 20).start("hv1")
    with contextlib.ExitStack() as cable:
        with PHASES[phase](cloud, guest):
            cable.enter_context(cut(cloud))
        time.sleep(seconds)
    if (phase, seconds) == ("hand_over", 45):
        choose_the_source(cloud, guest)
    end(cloud, guest)


def choose_the_source(lab, guest):
    """The target may have got the word to begin, and the source have lost patience: libvirt lets
    both run. Ours pauses the younger, and a person chooses; here: the older."""

    def settled():
        states = guest.states()
        return list(states.values()).count("running") == 1 and "hv1" in states

    lab.wait(settled, "one of the two was paused", 200)
    if guest.states().get("hv2") == "paused":
        said = f"/run/{guest.name}.out"
        lab.wait(lambda: "keep one" in lab.exec("master", ["cat", said]).stdout, "it is said")
        lab.exec("hv2", f"virsh destroy {guest.name}; virsh undefine {guest.name}", check=False)


def test_the_target_has_no_memory(cloud, guests):
    """QEMU cannot get it there, though nobody was promised it."""
    guest = guests("m-memory", memory=4096).define("hv1", "128M").start("hv1")
    pid = cloud.exec("hv2", "systemctl restart libvirtd; pidof libvirtd").stdout.strip()
    cloud.exec("hv2", ["prlimit", "--as=3221225472", "--pid", pid])
    try:
        done = cloud.run("virt.migrate", "m-memory", "hv2")
    finally:
        cloud.exec("hv2", ["systemctl", "restart", "libvirtd"])
    assert done.rc == 1
    assert "m-memory runs on hv1" in done.stdout
    guest.is_whole_on("hv1")
    end(cloud, guest)
