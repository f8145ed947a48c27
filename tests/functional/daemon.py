"""A private libvirtd with real storage pools, in namespaces of its own."""

import contextlib
import os
import subprocess
import time

import pytest

from tests.lab import process

_START = """
set -e
for folder in /etc/libvirt $1 /var/lib/libvirt /var/cache/libvirt /var/log/libvirt /run; do
    mkdir -p $folder
    mount -t tmpfs none $folder
done
mkdir -p /run/libvirt /run/lock
cat > /etc/libvirt/libvirtd.conf <<END
unix_sock_dir = "$0"
auth_unix_rw = "none"
auth_unix_ro = "none"
unix_sock_rw_perms = "0700"
END
cat > /etc/libvirt/qemu.conf <<END
security_driver = "none"
cgroup_controllers = []
namespaces = []
stdio_handler = "file"
user = "root"
group = "root"
END
# the first process must reap: libvirtd waits for each QEMU that it probes to be gone
"""
_ONCE = "libvirtd -p /run/libvirtd.pid & wait $!"
# with nothing else of the machine, and started again when it was killed
_AGAIN = """ip link set lo up
while :; do libvirtd -p /run/libvirtd.pid & wait $! || true; sleep 0.2; done
"""


class Daemon:
    """``uri``: where it is asked. ``process``: what ends with :meth:`stop`, or with us, and with it
    all that the daemon has started. alone: its folders are nobody else's, and it comes back when it
    was killed."""

    def __init__(self, alone=False):
        self.ends = contextlib.ExitStack()
        # the names of sockets must be short
        self.folder = self.ends.enter_context(process.folder("sv"))
        argv = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "private",
                "--net", "--pid", "--fork", "--kill-child", "--mount-proc",
                "bash", "-c", _START + (_AGAIN if alone else _ONCE), self.folder,
                "/var/lib" if alone else ""]  # fmt: skip
        with open(f"{self.folder}/log", "wb") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=log)
        self.socket = f"{self.folder}/libvirt-sock"
        self.uri = f"qemu+unix:///system?socket={self.socket}"

    def wait(self):
        """Until it answers."""
        while not os.path.exists(self.socket):
            assert self.process.poll() is None, self.proven()
            time.sleep(0.05)

    def proven(self):
        with open(f"{self.folder}/log", encoding="utf-8", errors="replace") as file:
            return file.read()

    @property
    def inside(self):
        """What a command begins with that is run where it is."""
        [first] = process.children(self.process.pid)
        return ["nsenter", f"--target={first}", "--mount", "--net", "--pid", "--"]

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.ends.close()


@contextlib.contextmanager
def running():
    """A Daemon that answers."""
    daemon = Daemon()
    try:
        daemon.wait()
        yield daemon
    finally:
        daemon.stop()


@pytest.fixture(scope="module")
def libvirtd():
    """A Daemon."""
    pytest.importorskip("libvirt")
    if os.geteuid() != 0:
        pytest.skip("a libvirtd of our own needs root")
    with running() as daemon:
        yield daemon
