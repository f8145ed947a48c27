"""SIGKILL of each part of a backup in each phase, and other failures: one clear line, an unchanged
guest, no leftovers, and a good next backup. With real QEMU."""

import contextlib
import hashlib
import os
import re
import threading
import time

import pytest

pytest.importorskip("libvirt")
pytest.importorskip("salt")
pytest.importorskip("cryptography")

from saltvirt import errors
from saltvirt.backup.manager import backup as backing_up
from saltvirt.fleet.answer import FAILED, Answer
from tests.functional.backing import MIB, Machines
from tests.functional.cloud import Fleet
from tests.functional.pulled import HAS_LIBNBD

pytestmark = [
    pytest.mark.skipif(not HAS_LIBNBD, reason="no libnbd"),
    pytest.mark.skipif(os.geteuid() != 0, reason="a libvirtd of our own needs root"),
]
PARTS = {
    "keeper": "export[.]export_server", "qemu": "guest=web1,", "libvirtd": "libvirtd -p",
    "reader": "target[.]pull", "writer": "qemu-nbd", "daemon": "qemu-storage-daemon",
    "minion": "functional.backing hv1", "target": "functional.backing b1",
}  # fmt: skip
OFF, RUNS = "shut off", "running"
# the export server looks at the guest more than once before it opens the disks
SLOW_QEMU = """#!/bin/sh
case "$*" in *guest=web1,*) sleep 3;; esac
exec qemu-system-x86_64 "$@"
"""
# so much the guest has, and so fast it is read: what is read ahead is less
HOLDS, SLOW = 40 * MIB, 4


def each(*parts):
    """Of these the first is tried with all tests."""
    return [*parts[:1], *(pytest.param(one, marks=pytest.mark.slow) for one in parts[1:])]


class Cloud(Fleet):
    """The runner's fleet: hv1 has the guest, b1 the target. before: verb to what is done when it is
    asked for."""

    def __init__(self, machines, tmp_path):
        super().__init__({}, tmp_path)
        self.machines, self.before = machines, {}
        self.vault = {"host": "b1", "folder": str(machines.target), "bandwidth": SLOW}
        self.opts["virt"] = {"backup": {"targets": {"vault": self.vault}}}

    def ask(self, hosts, fun, kwarg=None, **options):
        for host in hosts:
            self.before.pop(fun, lambda: None)()
            salt = self.machines.hypervisor if host == "hv1" else self.machines.machine
            data, wrong = salt.ask(fun, **(kwarg or {}))
            yield Answer(host, error=wrong, kind=FAILED) if wrong else Answer(host, data=data)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    found = Machines(tmp_path_factory.mktemp("two"))
    yield found
    found.close()


@pytest.fixture
def machines(two):
    two.prepare()
    return two


@pytest.fixture
def cloud(machines, tmp_path, monkeypatch):
    monkeypatch.setattr(backing_up.lifecycle, "host_for_write", lambda *_: "hv1")
    monkeypatch.setattr(backing_up.lock, "guest", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(backing_up.slots, "backing_up", lambda *_: contextlib.nullcontext())
    return Cloud(machines, tmp_path)


def backed_up(cloud):
    return backing_up.CreateBackup(cloud, "web1", None, cloud.report("web1", "backup")).run()


def fails(cloud):
    """The line in which it says why."""
    with pytest.raises(errors.VirtError) as found:
        backed_up(cloud)
    text = found.value.text
    assert "\n" not in text and "raceback" not in text and len(text) < 500, text
    return text


def runs(machines):
    machines.virsh("start web1")
    machines.write(0, HOLDS, 7)


def is_as_it_was(cloud, state=RUNS, left=()):
    """Nothing of a backup is there, the guest is as it was, and the next backup holds what it does.
    left: words of what the next backup alone takes away."""
    machines = cloud.machines
    machines.until(lambda: machines.sh(f"virsh -q -c {machines.daemon.uri} list && echo yes",
                                       check=False))  # fmt: skip
    assert machines.state().startswith(state)
    # where nobody ends it, it ends by itself when nothing was read for two minutes
    machines.until(lambda: all(any(word in one for word in left) for one in machines.traces()), 160)
    cloud.before.clear()
    cloud.vault.pop("bandwidth", None)
    if state == OFF:
        machines.as_it_is()
        machines.virsh("start web1")
    machines.write(MIB, 70_000, 9)
    made = backed_up(cloud)
    path = f"{machines.target}/*/{made.changes['backup']}/vda.qcow2"
    raw = machines.folder / "restored"
    machines.sh(f"qemu-img convert -O raw {path} {raw}")
    assert hashlib.sha256(raw.read_bytes()).digest() == hashlib.sha256(machines.now).digest()
    machines.until(lambda: machines.traces() == [])
    return made


def when(machines, shows, act):
    """A thread that acts when a script there says something."""

    def wait():
        machines.until(lambda: machines.sh(shows, check=False))
        act()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def when_read(machines, act):
    return when(machines, f"ls {machines.target}/*/.new-*/*.pieces", act)


def kill(machines, part):
    machines.signal("KILL", PARTS[part])


@pytest.mark.parametrize("part", each("keeper", "qemu", "libvirtd", "reader", "writer", "target"))
def test_killed_while_it_is_read(cloud, part):
    machines = cloud.machines
    runs(machines)
    thread = when_read(machines, lambda: kill(machines, part))
    if part == "libvirtd":  # the guest's QEMU shows its disks as before
        assert backed_up(cloud).complete
    else:
        assert {"keeper": "died", "qemu": "b1: ", "reader": "died", "writer": "written",
                "target": "b1"}[part] in fails(cloud)  # fmt: skip
    thread.join()
    left = (".new-", "pull-") if part == "target" else ()
    is_as_it_was(cloud, OFF if part == "qemu" else RUNS, left)


@pytest.mark.parametrize("part", each("daemon", "keeper"))
def test_killed_while_one_that_is_off_is_read(cloud, part):
    machines = cloud.machines
    runs(machines)
    machines.virsh("destroy web1 --graceful")
    thread = when_read(machines, lambda: kill(machines, part))
    assert fails(cloud).startswith("b1: ")
    thread.join()
    is_as_it_was(cloud, OFF)


def test_while_a_guest_that_is_off_is_read_a_slow_qemu_cannot_start_it(machines):
    """libvirt calls it active before its QEMU has opened the disks: an end of the export then would
    let it start."""
    emulator, definition = machines.folder / "slow-qemu", machines.folder / "slow.xml"
    emulator.write_text(SLOW_QEMU)
    emulator.chmod(0o755)
    devices = f"<devices><emulator>{emulator}</emulator>"
    plain = (machines.folder / "web1.xml").read_text()
    definition.write_text(plain.replace("<devices>", devices))
    machines.virsh("undefine web1")
    machines.virsh(f"define {definition}")

    def ask(salt, function, **kwargs):
        data, wrong = salt.ask(function, **kwargs)
        assert not wrong
        return data

    reader = ask(machines.machine, "virt.backup_reader")["authority"]
    seen = ask(machines.hypervisor, "virt.backup_look", name="web1")
    told = {"folder": str(machines.target), "host": "hv1", "inspection": seen}
    plan = ask(machines.machine, "virt.backup_plan", **told)
    its = {"name": "web1", "backup_id": plan["backup_id"]}
    ask(machines.hypervisor, "virt.backup_begin", disks=plan["disks"], reader=reader, **its)
    said = machines.sh(f"virsh -c {machines.daemon.uri} start web1 2>&1", check=False)
    assert 'Failed to get "write" lock' in said
    assert ask(machines.hypervisor, "virt.backup_end", **its) == {"reason": None, "leftovers": []}
    machines.virsh("start web1")


@pytest.mark.slow
def test_a_qemu_that_stands_still_is_named_soon(cloud):
    machines = cloud.machines
    runs(machines)
    machines.signal("STOP", PARTS["qemu"])
    assert "the QEMU of web1 does not answer libvirt within 30 s" in fails(cloud)
    machines.signal("CONT", PARTS["qemu"])
    is_as_it_was(cloud)


@pytest.mark.slow
@pytest.mark.parametrize("part", ["keeper", "qemu", "libvirtd", "minion"])
def test_killed_before_libvirt_has_begun(cloud, part):
    """QEMU does not answer meanwhile."""
    machines = cloud.machines
    runs(machines)
    cloud.before["virt.backup_begin"] = lambda: machines.signal("STOP", PARTS["qemu"])

    def act():
        time.sleep(1)  # libvirt waits for QEMU by now
        kill(machines, part)
        time.sleep(1)
        machines.signal("CONT", PARTS["qemu"])

    thread = when(machines, "ls /var/lib/salt-virt/backups/*.json", act)
    assert "hv1" in fails(cloud)
    thread.join()
    is_as_it_was(cloud, OFF if part == "qemu" else RUNS)


@pytest.mark.slow
@pytest.mark.parametrize("part", ["keeper", "qemu", "libvirtd", "minion"])
def test_killed_when_the_backup_is_there_and_the_end_is_not(cloud, part):
    machines = cloud.machines
    runs(machines)
    cloud.vault.pop("bandwidth")
    cloud.before["virt.backup_end"] = lambda: kill(machines, part)
    made = backed_up(cloud)
    assert made.complete
    next_one = is_as_it_was(cloud, OFF if part == "qemu" else RUNS)
    how = next_one.details["disks"]["vda"]
    if part == "qemu":  # what it has not written down
        assert "bitmap" in how
    else:
        assert how == f"changes since {made.changes['backup']}"


@pytest.mark.slow
def test_the_runner_was_killed(cloud):
    """Who comes next does not end what is read, and takes the place of what nobody reads."""
    machines = cloud.machines
    runs(machines)
    cloud.vault.pop("bandwidth")
    cloud.before["virt.backup_pull"] = killed = lambda: (_ for _ in ()).throw(KeyboardInterrupt)
    cloud.before["virt.backup_end"] = killed
    with pytest.raises(KeyboardInterrupt):
        backed_up(cloud)
    assert "is running on this host" in fails(cloud)
    assert machines.traces() != []
    time.sleep(21)
    is_as_it_was(cloud, left=("",))


def test_a_target_that_is_filled_meanwhile(cloud):
    machines = cloud.machines
    with machines.small(machines.target, 64 + 56):
        runs(machines)
        fill = f"head -c 50M /dev/zero > {machines.target}/filler"
        thread = when_read(machines, lambda: machines.sh(fill))
        assert "the target has " in fails(cloud)
        thread.join()
        machines.sh(f"rm {machines.target}/filler")
        is_as_it_was(cloud)


def test_one_that_cannot_be_begun_says_why_and_that_alone(cloud):
    machines = cloud.machines
    with machines.small(machines.images, 16):
        assert fails(cloud) == (
            f"hv1: {machines.images} has less than 256 MiB free "
            "for the blocks that the guest overwrites during the backup"
        )
        machines.until(lambda: machines.traces() == [])


def test_a_guest_that_writes_faster_than_it_is_read(cloud):
    """The backup ends, and the guest goes on."""
    machines = cloud.machines
    with machines.small(machines.images, 256 + 20):
        runs(machines)
        thread = when_read(machines, lambda: machines.write(0, HOLDS, 8))
        assert re.search(r"less than \d+ MiB free", fails(cloud))
        thread.join()
        is_as_it_was(cloud)
