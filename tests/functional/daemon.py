"""A libvirtd of our own, with real storage pools: in namespaces, so that it is nobody else's."""

import os
import shutil
import signal
import subprocess
import tempfile
import time

import pytest

_START = """
set -e
for folder in /etc/libvirt /var/lib/libvirt /var/cache/libvirt /var/log/libvirt /run; do
    mkdir -p $folder
    mount -t tmpfs none $folder
done
mkdir -p /run/libvirt
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
user = "root"
group = "root"
END
exec libvirtd -p /run/libvirtd.pid
"""


class Daemon:
    """``uri``: where it is asked. ``process``: what ends with :meth:`stop`."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="sv")  # the names of sockets must be short
        argv = ["unshare", "-m", "-n", "--propagation", "private", "sh", "-c", _START, self.folder]
        self.log = open(f"{self.folder}/log", "wb")  # noqa: SIM115
        self.process = subprocess.Popen(argv, stdout=self.log, stderr=self.log)
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

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="module")
def libvirtd():
    """A Daemon."""
    pytest.importorskip("libvirt")
    if os.geteuid() != 0:
        pytest.skip("a libvirtd of our own needs root")
    found = Daemon()
    try:
        found.wait()
        yield found
    finally:
        found.stop()
