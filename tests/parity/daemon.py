"""A private libvirtd for a row: its folders, network and processes are its own. It runs in both
Pythons, inside NAMESPACES, which end all their processes with the first one."""

import os
import socket
import subprocess
import time
from pathlib import Path

NAMESPACES = [
    "unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc",
    # their first process must reap: libvirtd waits for each QEMU that it probes to be gone
    "bash", "-c", '"$@" <&0 & wait $!', "bash",
]  # fmt: skip
ITS_OWN = ("/run/libvirt", "/var/lib/libvirt", "/var/cache/libvirt", "/var/log/libvirt",
           "/etc/libvirt", "/etc/pki")  # fmt: skip
QEMU = """user = "root"
group = "root"
dynamic_ownership = 0
cgroup_controllers = []
security_driver = "none"
stdio_handler = "file"
namespaces = []
"""
LIBVIRTD = 'auth_unix_rw = "none"\nunix_sock_group = "root"\n'
SOCKET = "/run/libvirt/libvirt-sock"
START_S = 60


def start(folder):
    """Start it and wait for its socket."""
    for path in ITS_OWN:
        os.makedirs(path, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", path], check=True)
    devices(folder)
    subprocess.run(["mount", "-t", "sysfs", "sysfs", "/sys"], check=True)
    Path("/etc/libvirt/qemu.conf").write_text(QEMU, encoding="utf-8")
    Path("/etc/libvirt/libvirtd.conf").write_text(LIBVIRTD, encoding="utf-8")
    for words in ("link set lo up", "link add br0 type bridge", "link set br0 up"):
        subprocess.run(["ip", *words.split()], check=True)
    with open(f"{folder}/libvirtd.log", "w", encoding="utf-8") as log:
        argv = ["libvirtd", "--pid-file", "/run/libvirt/own.pid"]
        subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        with socket.socket(socket.AF_UNIX) as tried:
            if not tried.connect_ex(SOCKET):
                return
        time.sleep(0.1)
    raise TimeoutError(Path(folder, "libvirtd.log").read_text(encoding="utf-8")[-500:])


def devices(folder):
    """A /dev without KVM: guests are then of one kind on every machine, emulated."""
    own = f"{folder}/dev"
    os.mkdir(own)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", own], check=True)
    for name in ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm"):
        path = f"{own}/{name}"
        if os.path.isdir(f"/dev/{name}"):
            os.mkdir(path)
        else:
            Path(path).touch()
        subprocess.run(["mount", "--bind", f"/dev/{name}", path], check=True)
    subprocess.run(["mount", "--move", own, "/dev"], check=True)
