"""The power of a hypervisor: its BMC and its watchdog. Both are processes outside of the machine,
which ``Cloud.up(with_power=True)`` starts."""

import subprocess

from tests.clock import until
from tests.lab import network, paths, process
from tests.lab.sh import run

# Debian's, which has Debian's FUSE
PYTHON = "/usr/bin/python3"
PASSWORD = "bmc"
START_S = 30


def start(cloud, machine, index):
    """Both of a machine that is not booted yet. index: of the hypervisor, 1, 2, …"""
    folder = machine.folder / "watchdog"
    folder.mkdir()
    _begin(machine, "watchdog", [folder])
    until((folder / "watchdog").exists, f"the watchdog of {machine.name}", START_S)
    certificate, at = machine.folder / "bmc.pem", address(index)
    switch = cloud.network.switch
    run(["ip", "-n", switch, "link", "set", "lo", "up"])
    run(["ip", "-n", switch, "addr", "add", f"{at}/24", "dev", "lan"])
    run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
         f"/CN={at}", "-addext", f"subjectAltName=IP:{at}", "-keyout", certificate, "-out",
         machine.folder / "bmc.crt"])  # fmt: skip
    with open(certificate, "a", encoding="ascii") as file:
        file.write((machine.folder / "bmc.crt").read_text(encoding="ascii"))
    begin_bmc(cloud, machine, index)


def address(index):
    """The address of the BMC of hypervisor `index`."""
    return f"{network.PREFIX}.{index + 50}"


def begin_bmc(cloud, machine, index):
    """The BMC of a machine, which has none at work; it is there when this returns."""
    _begin(machine, "bmc", [address(index), machine.folder / "bmc.pem", PASSWORD])
    ask = ["ip", "netns", "exec", cloud.network.switch, PYTHON, "-c",
           f"import socket; socket.create_connection(('{address(index)}', 443), 1)"]  # fmt: skip
    until(lambda: not run(ask, check=False).returncode, f"the BMC of {machine.name}", START_S)


def end_bmc(machine):
    """Kill the BMC of a machine, as one that has lost its power."""
    pid = process.recall(machine.folder / "bmc.pid")
    if pid:
        process.kill(pid)


def stop(machine):
    """End what start() began."""
    end_bmc(machine)
    pid = process.recall(machine.folder / "watchdog.pid")
    if pid:
        process.kill(pid)
        run(["umount", "-l", machine.folder / "watchdog"], check=False)


def binds(machine):
    """(outside, inside) of what such a machine has in its /dev."""
    device = machine.folder / "watchdog/watchdog"
    return [(device, "/dev/watchdog")] if process.recall(machine.folder / "watchdog.pid") else []


def _begin(machine, what, words):
    argv = [PYTHON, "-m", f"tests.lab.{what}", machine.instance, machine.name, *map(str, words)]
    with open(machine.folder / f"{what}.log", "wb") as log:
        child = subprocess.Popen(
            argv, cwd=paths.REPOSITORY, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
    process.remember(child.pid, machine.folder / f"{what}.pid")
