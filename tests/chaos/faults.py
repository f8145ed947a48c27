"""The faults of a step, and how they end. Faults that this kernel does not support are simulated:
without netem, a slow network drops packets beyond a rate; because all machines share a clock, a
clock that jumps is clock.c, preloaded into the daemons of Salt (files keep the kernel's time)."""

import contextlib
import os
import signal
import time
from pathlib import Path

from tests.chaos import world

UNITS = {"kill_minion": ("salt-minion", "bin/salt-minion"),
         "kill_libvirtd": (None, "sbin/libvirtd"),
         "kill_master": ("salt-master", "bin/salt-master")}  # fmt: skip
SLOW = ("-m limit --limit 400/s --limit-burst 50 -j ACCEPT", "-j DROP")


class Faults:
    """The faults of one step. running: its operations, in order."""

    def __init__(self, lab, running, say):
        self.lab, self.running, self.say = lab, running, say

    def run(self, fault):
        """One fault from its begin to its end."""
        time.sleep(fault["after"])
        self.say(f"    {describe(fault)}")
        getattr(self, f"_{fault['kind']}")(fault)

    def _kill(self, host, fault):
        unit, pattern = UNITS[fault["kind"]]
        self.lab.exec(host, ["pkill", "-9", "-f", "--", pattern], check=False)
        if unit:
            time.sleep(fault.get("lasts", 0))
            self.lab.exec(host, ["systemctl", "restart", unit], check=False)

    def _kill_minion(self, fault):
        self._kill(fault["host"], fault)

    _kill_libvirtd = _kill_minion

    def _kill_master(self, fault):
        self._kill("master", fault)

    def _kill_qemu(self, fault):
        for host in self.lab.hosts:
            pattern = f"guest={fault['name']},"
            self.lab.exec(host, ["pkill", "-9", "-f", "--", pattern], check=False)

    def _kill_runner(self, fault):
        if fault["op"] < len(self.running):
            self.running[fault["op"]].kill()

    def _redact(self, fault):
        self.lab.cut(fault["host"])
        try:
            time.sleep(fault["lasts"])
        finally:
            self.lab.heal(fault["host"])

    def _slow(self, fault):
        chains = [f"{chain} {rule}" for chain in ("INPUT", "OUTPUT") for rule in SLOW]
        rules = [f"{rule.partition(' ')[0]} {way} {rule.partition(' ')[2]}"
                 for rule in chains
                 for way in (["-i eth0"] if rule.startswith("INPUT") else ["-o eth0"])]  # fmt: skip
        # with a bridge the packets of the host itself go by br0
        rules = [rule.replace("eth0", "br0") for rule in rules]
        self.lab.exec(fault["host"], " && ".join(f"iptables -A {rule}" for rule in rules))
        try:
            time.sleep(fault["lasts"])
        finally:
            self.lab.exec(fault["host"], " ; ".join(f"iptables -D {rule}" for rule in rules))

    def _full(self, fault):
        """Down to a few blocks: what wants room now gets none."""
        self.lab.exec(
            fault["host"],
            "f=$(($(stat -f -c %a*%S /srv/local) - 100000)); fallocate -l $f /srv/local/full",
            check=False,
        )
        try:
            time.sleep(fault["lasts"])
        finally:
            self.lab.exec(fault["host"], "rm -f /srv/local/full")

    def _hang(self, fault):
        """Each process of the machine is stopped, QEMU's, too."""
        leader = self.lab.machine(fault["host"]).leader()
        here = os.readlink(f"/proc/{leader}/ns/pid")
        stopped = set()
        try:
            for _ in range(3):  # what they made meanwhile
                for pid in of_namespace(here) - stopped:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGSTOP)
                        stopped.add(pid)
            time.sleep(fault["lasts"])
        finally:
            for pid in of_namespace(here):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def _reboot(self, fault):
        """Power off, and on again."""
        self.lab.power_off(fault["host"])
        time.sleep(fault["lasts"])
        machine = self.lab.machine(fault["host"])
        machine.boot()
        machine.wait()

    def _clock(self, fault):
        self.lab.exec(fault["host"], f"echo {fault['by']:+d} > {world.CLOCK}")
        try:
            time.sleep(fault["lasts"])
        finally:
            self.lab.exec(fault["host"], f"echo +0 > {world.CLOCK}")


def of_namespace(namespace):
    """The processes, by their ids here, of a process namespace."""
    found = set()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and os.readlink(entry / "ns/pid") == namespace:
                found.add(int(entry.name))
    return found


def describe(fault):
    """A fault in words."""
    about = fault.get("host", fault.get("name", ""))
    lasts = f" for {fault['lasts']} s" if "lasts" in fault else ""
    return f"{fault['kind']} {about}{lasts}".replace("_", " ")
