"""A libvirtd of an unprivileged user that serves libvirt's test driver. The state of
``test:///default`` exists in one process, and a minion has a process for each job; therefore each
minion connects to a daemon over a socket, as on a hypervisor."""

import os
import shutil
import signal
import subprocess
import time

import libvirt

CONFIG = """\
unix_sock_dir = "{folder}"
auth_unix_rw = "none"
auth_unix_ro = "none"
unix_sock_rw_perms = "0700"
"""
# libvirt's own folders, which are below the user's home otherwise
FOLDERS = ("XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")


def program():
    """The path of libvirtd, which is not on every user's PATH. Fails where it is not installed."""
    found = shutil.which("libvirtd", path=f"{os.environ['PATH']}:/usr/sbin")
    assert found, "apt-get install libvirt-daemon: it serves libvirt's test driver to the minions"
    return found


class Libvirtd:
    """folder: a new one of its own, with a short path. ``uri``: what a minion is configured with.
    ``connection``: to the same."""

    def __init__(self, folder):
        folder.mkdir()
        self.folder = folder
        self.socket = folder / "libvirt-sock"
        self.uri = f"test+unix:///default?socket={self.socket}"
        (folder / "conf").write_text(CONFIG.format(folder=folder), encoding="utf-8")
        env = {**os.environ, "HOME": str(folder)}
        for name in FOLDERS:
            (folder / name).mkdir(mode=0o700)
            env[name] = str(folder / name)
        with open(folder / "log", "wb") as log:
            argv = [program(), "-f", folder / "conf", "-p", folder / "pid", "--timeout", "3600"]
            self.process = subprocess.Popen(argv, stdout=log, stderr=log, env=env)

    def wait(self, timeout_s=300):
        """Wait until it listens; its guests live as long as somebody is connected: we are."""
        end = time.monotonic() + timeout_s
        while not self.socket.exists():
            said = (self.folder / "log").read_text(errors="replace")
            assert self.process.poll() is None, said
            assert time.monotonic() < end, said
            time.sleep(0.02)
        self.connection = libvirt.open(self.uri)

    def hang(self):
        """It takes connections and answers nothing."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        """After :meth:`hang`."""
        self.process.send_signal(signal.SIGCONT)

    def stop(self):
        """End it."""
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()
