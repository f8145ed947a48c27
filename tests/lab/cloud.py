"""A lab: one master and N hypervisors, up and down."""

import itertools
import json
import os
import shutil
import subprocess
import time
import uuid
from contextlib import contextmanager
from dataclasses import asdict

from tests.lab import (
    cache,
    config,
    keys,
    kvm,
    layers,
    measured,
    packages,
    paths,
    power,
    process,
    publish,
    reaper,
)
from tests.lab.machine import Machine
from tests.lab.network import MASTER, Network, address
from tests.lab.recipe import Recipe
from tests.lab.sh import LabError, run
from tests.lab.warm import Warm

GIT = "/srv/git"


class Cloud:
    """One instance, by name; several stand side by side on one machine."""

    def __init__(self, name):
        self.name = paths.instance_name(name)
        self.folder = paths.INSTANCES / self.name
        self.about = self.folder / "lab.json"
        self.lock = paths.INSTANCES / f"{self.name}.lock"
        self.network = Network(self.name)
        self._warm = Warm(lambda: self.machine("master"))

    @property
    def repository(self):
        """The bare repository that the master's gitfs reads, seen from outside."""
        return self.folder / "git/salt-virt.git"

    def machine(self, name):
        """A machine by name; LabError when this lab has none of that name."""
        if name not in self.names():
            known = ", ".join(self.names()) or "no machine: it is not up"
            raise LabError(f"lab {self.name} has {known}; there is no {name}")
        return self._machine(name)

    def _machine(self, name):
        return Machine(self.name, name, self.folder / "machines" / name, self.network)

    def describe(self):
        """What up() wrote down: hosts, debian, salt, bare, id. {} when the lab is not up."""
        try:
            return json.loads(self.about.read_text())
        except FileNotFoundError:
            return {}

    def names(self):
        """The machines of this lab, the master first."""
        hosts = self.describe().get("hosts", 0)
        return ["master", *(f"hv{i}" for i in range(1, hosts + 1))] if hosts else []

    def binds(self, name):
        """(outside, inside) of what a machine sees of the outside."""
        return [(self.repository.parent, GIT)] if name == "master" else []

    def running(self):
        """Is every machine of this lab up?"""
        names = self.names()
        return bool(names) and all(self._machine(name).leader() for name in names)

    @contextmanager
    def locked(self):
        """Hold the lock of this instance: one up or down at a time."""
        with cache.locked(self.lock):
            yield

    def up(
        self, hosts=2, recipe=None, bare=False, owner=None, say=lambda text: None, empty=False,
        shared=False, mixed=False, with_power=False,
    ):  # fmt: skip
        """Bring the lab up; returns when all hypervisors answer test.ping, and libvirt on them
        knows that they run guests of this machine's architecture.

        bare: the machines have no br0. empty: nor libvirt; they are to become hypervisors.
        shared: the machines have GlusterFS, see storage.py.
        mixed: hv2, hv4, ... have Debian's other release.
        with_power: each hypervisor has a BMC and a watchdog, see power.py.
        owner: pid of a process with which the lab shall go down, however it ends.
        """
        recipe = recipe or Recipe()
        packages.ensure(say, (*packages.ALL, *(packages.POWER if with_power else ())))
        below = layers.layers(recipe, say, empty, shared)
        others = layers.layers(recipe.other, say, empty, shared) if mixed else below
        sweep()
        with self.locked():
            self._remove()
            self.folder.mkdir(parents=True)
            about = {"id": uuid.uuid4().hex, "hosts": hosts, "bare": bare, **asdict(recipe)}
            self.about.write_text(json.dumps(about))
            if owner:
                process.remember(owner, self.folder / "owner.pid")
                reaper.start(self, owner)
            try:
                kind = "empty" if empty else "hypervisor"
                self._boot(hosts, (below, others), bare or empty, kind, with_power)
                self._wait(say)
                if not empty:
                    self._wait_for_libvirt()
            except BaseException:
                self._save_logs()
                self._remove()
                raise

    def _boot(self, hosts, layers_in_turn, bare, kind, with_power):
        below = layers_in_turn[0]
        publish.publish(paths.REPOSITORY, self.repository)
        self.network.make_switch()
        with_kvm = kvm.usable(below.image)
        master, *others = (self._machine(name) for name in self.names())
        master.mount(below.below("master"))
        for machine, layer in zip(others, itertools.cycle(layers_in_turn), strict=False):
            machine.mount(layer.below(kind))
            keys.accept(master, machine)
        prepare_master(master)
        for index, machine in enumerate(others, 1):
            prepare_hypervisor(machine, index, bare)
            if with_kvm:
                machine.write(
                    "/etc/tmpfiles.d/lab-kvm.conf", "c! /dev/kvm 0660 root kvm - 10:232\n"
                )
        for machine in (master, *others):
            prepare(machine, hosts)
            measured.prepare(machine)
            self.network.plug(machine.name)
        for index, machine in enumerate(others if with_power else (), 1):
            power.start(self, machine, index)
        for machine in (master, *others):
            machine.boot(self.binds(machine.name))

    def _wait(self, say, timeout_s=600):
        for name in self.names():
            self._machine(name).wait()
        say("machines booted")
        wanted = set(self.names()[1:])
        end = time.monotonic() + timeout_s
        patience_s, answered = 2, set()
        while not wanted <= answered:
            if time.monotonic() > end:
                raise LabError(
                    f"no test.ping from {', '.join(sorted(wanted - answered))} in {timeout_s} s; "
                    f"their logs are in {paths.INSTANCES / (self.name + '.failed')}"
                )
            time.sleep(0.3)
            ping = ["salt", "-t", str(patience_s), "hv*", "test.ping", "--out=json", "--static"]
            done = self.exec("master", ping, check=False)
            patience_s = min(2 * patience_s, 60)  # others may have the CPU
            try:
                answered = {k for k, v in json.loads(done.stdout).items() if v is True}
            except ValueError:
                answered = set()

    def _wait_for_libvirt(self, timeout_s=600):
        """Until each libvirt has looked at the emulator: on a cold disk its look can fail, and is
        done again."""
        end, arch = time.monotonic() + timeout_s, os.uname().machine
        for name in self.names()[1:]:
            self.exec(name, [f"qemu-system-{arch}", "--version"], check=False)
            while f"<arch name='{arch}'>" not in self._capabilities(name):
                if time.monotonic() > end:
                    raise LabError(f"libvirt on {name} knows of no {arch} guests in {timeout_s} s")
                time.sleep(0.3)

    def _capabilities(self, name):
        return self.exec(name, ["virsh", "capabilities"], check=False).stdout

    def exec(self, host, command, check=True, timeout=600, input=None):
        """Run a command (a list, or a string for sh) in a machine; its CompletedProcess.

        LabError when it fails (unless ``check=False``) or is not done in `timeout` seconds.
        """
        if isinstance(command, str):
            command = ["sh", "-c", command]
        argv = self.machine(host).argv([str(part) for part in command])
        return run(argv, check=check, timeout=timeout, input=input)

    def typed(self, argv, check=False, timeout=600):
        """Run ``salt …`` or ``salt-run …`` on the master, see warm.py; its CompletedProcess.

        LabError when it is not done in `timeout` seconds, and with ``check`` when it fails.
        """
        return self._warm.run([str(word) for word in argv], timeout, check)

    def push(self, host, source, folder):
        """Copy a file or folder from outside into a folder of a machine."""
        source = source.resolve()
        pack = ["tar", "-C", str(source.parent), "-cf", "-", source.name]
        into = ["sh", "-c", 'mkdir -p "$1" && tar -C "$1" --no-same-owner -xf -', "-", folder]
        pipe(pack, self.machine(host).argv(into))

    def pull(self, host, source, folder):
        """Copy a file or folder of a machine into a folder outside."""
        parent, _, name = source.rstrip("/").rpartition("/")
        pack = self.machine(host).argv(["tar", "-C", parent or "/", "-cf", "-", name])
        folder.mkdir(parents=True, exist_ok=True)
        pipe(pack, ["tar", "-C", str(folder), "--no-same-owner", "-xf", "-"])

    def down(self, only_id=None):
        """Remove everything of this lab (only the one with that id, when given)."""
        self._warm.close()
        with self.locked():
            if only_id is None or self.describe().get("id") == only_id:
                reaper.stop(self)
                self._remove()
                self.lock.unlink(missing_ok=True)

    def _remove(self):
        machines = self.folder / "machines"
        for folder in machines.iterdir() if machines.exists() else ():
            power.stop(self._machine(folder.name))
            self._machine(folder.name).kill()
        self.network.remove()
        for folder in machines.iterdir() if machines.exists() else ():
            self._machine(folder.name).remove()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _save_logs(self):
        kept = paths.INSTANCES / f"{self.name}.failed"
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir()
        for name in self.names():
            machine = self._machine(name)
            if machine.leader():
                text = self.exec(name, ["journalctl", "--no-pager", "-b"], check=False).stdout
                (kept / f"{name}.journal").write_text(text)
            if (machine.folder / "console.log").exists():
                shutil.copy(machine.folder / "console.log", kept / f"{name}.console")


def sweep():
    """Take down the labs whose owner is gone, and whose reaper was killed too."""
    for pid_file in paths.INSTANCES.glob("*/owner.pid"):
        if process.recall(pid_file) is None:
            cloud = Cloud(pid_file.parent.name)
            cloud.down(cloud.describe().get("id", ""))


def prepare(machine, hosts):
    """What every machine has: its name, its id, the names of the others."""
    machine.write("/etc/hostname", f"{machine.name}\n")
    machine.write("/etc/hosts", config.hosts(hosts))
    machine.write("/etc/machine-id", uuid.uuid4().hex + "\n", 0o444)
    (machine.root / "etc/resolv.conf").unlink(missing_ok=True)
    machine.write("/etc/resolv.conf", f"nameserver {MASTER}\n")
    machine.write("/etc/systemd/system.conf.d/lab.conf", config.PATIENT)
    wants = machine.root / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir(parents=True, exist_ok=True)
    (wants / "systemd-networkd.service").symlink_to("/lib/systemd/system/systemd-networkd.service")


def prepare_master(machine):
    """The master's configuration, and DHCP for guests."""
    machine.write("/etc/salt/master", config.MASTER)
    machine.write("/etc/salt/master.d/virt.conf", config.MASTER_VIRT)
    machine.write("/etc/lab-dnsmasq.conf", config.DNSMASQ)
    machine.write("/etc/systemd/network/10-eth0.network", config.addressed("eth0", MASTER))
    (machine.root / "srv/pillar").mkdir(exist_ok=True)
    machine.enable("salt-master.service")
    machine.enable("lab-dnsmasq.service")


def prepare_hypervisor(machine, index, bare):
    """The minion's configuration and the network: br0 over eth0, or eth0 alone."""
    machine.write("/etc/salt/minion", config.MINION.format(name=machine.name))
    folder, mine = "/etc/systemd/network", address(index)
    if bare:
        machine.write(f"{folder}/10-eth0.network", config.addressed("eth0", mine))
    else:
        machine.write(f"{folder}/10-br0.netdev", config.BRIDGE)
        machine.write(f"{folder}/10-eth0.network", config.IN_BRIDGE)
        machine.write(f"{folder}/10-br0.network", config.addressed("br0", mine))
    machine.enable("salt-minion.service")


def pipe(source, sink):
    """Run two programs, the first one's output into the second."""
    with subprocess.Popen(source, stdout=subprocess.PIPE) as left:
        right = subprocess.run(sink, stdin=left.stdout, check=False)
        left.stdout.close()
    if left.returncode or right.returncode:
        raise LabError(f"copying failed: {' '.join(source)} | {' '.join(sink)}")
