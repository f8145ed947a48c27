"""One machine of the lab: a systemd-nspawn container over layers of the cache."""

import os
import shutil
import subprocess
import time
from pathlib import Path

from tests.lab import cgroup, measured, power, process
from tests.lab.sh import LabError, run

ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "LIBGUESTFS_BACKEND": "direct",
}
DEVICES = ("/dev/net/tun", "/dev/fuse", "/dev/loop-control", "/dev/mapper/control")


class Machine:
    """A machine by name; its folder has its root, its console and its process id.

    instance: the lab's name; name: "master" or "hvN".
    """

    def __init__(self, instance, name, folder, network):
        self.instance = instance
        self.name = name
        self.folder = folder
        self.network = network
        self.root = folder / "root"
        self.pid_file = folder / "nspawn.pid"
        self.leader_file = folder / "leader.pid"
        self.group = f"svlab-{instance}-{name}"

    def mount(self, lower):
        """Stack the layers `lower` (top first) and a fresh folder that takes the writes."""
        for made in (self.folder / "upper", self.folder / "work", self.root):
            made.mkdir(parents=True)
        options = f"lowerdir={':'.join(map(str, lower))},upperdir={self.folder / 'upper'}"
        options += f",workdir={self.folder / 'work'}"
        run(["mount", "-t", "overlay", self.group, "-o", options,
             self.root])  # fmt: skip

    def write(self, path, text, mode=0o644):
        """Write a file into the root; only before the machine boots."""
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        target.chmod(mode)

    def enable(self, unit, wanted_by="multi-user.target"):
        """Enable a unit of /etc/systemd/system; only before the machine boots."""
        wants = self.root / "etc/systemd/system" / f"{wanted_by}.wants"
        wants.mkdir(parents=True, exist_ok=True)
        (wants / unit).symlink_to(f"../{unit}")

    def boot(self, binds=(), devices=DEVICES):
        """Start the machine; it runs on when this process ends."""
        argv = [
            "systemd-nspawn", "-q", "-D", self.root, "-M", f"{self.instance}-{self.name}",
            f"--hostname={self.name}", "--boot", "--register=no", "--link-journal=no",
            "--resolv-conf=off", "--timezone=off", "--capability=all",
            f"--network-namespace-path=/run/netns/{self.network.namespace(self.name)}",
        ]  # fmt: skip
        argv += [f"--bind={path}" for path in devices if os.path.exists(path)]
        binds = (*binds, *measured.binds(), *power.binds(self))
        argv += [f"--bind={outside}:{inside}" for outside, inside in binds]
        if Path("/run/systemd/system").exists():
            # a scope of its own, which may use these devices
            argv += ["--property=DeviceAllow=block-loop rwm", "--property=DeviceAllow=/dev/kvm rwm"]
            groups = []
        else:
            argv += ["--keep-unit"]
            groups = cgroup.make(self.group)
        with open(self.folder / "console.log", "wb") as console:
            child = subprocess.Popen(
                cgroup.join(groups, map(str, argv)),
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
                cwd="/",
            )
        process.remember(child.pid, self.pid_file)

    def leader(self):
        """The pid, seen from outside, of the machine's first process; None when it is down."""
        pid = process.recall(self.leader_file)
        if pid:
            return pid
        above = process.recall(self.pid_file)
        below = process.children(above) if above else []
        if not below or not os.path.exists(f"/proc/{below[0]}/root/run/systemd/private"):
            return None
        process.remember(below[0], self.leader_file)
        return below[0]

    def wait(self, timeout_s=300):
        """Wait until the machine's systemd answers."""
        end = time.monotonic() + timeout_s
        while not self.leader():
            if not process.recall(self.pid_file) or time.monotonic() > end:
                words = (self.folder / "console.log").read_text(errors="replace")[-2000:]
                raise LabError(f"{self.name} does not boot:\n{words}")
            time.sleep(0.05)

    def argv(self, command):
        """The argument list that runs `command` (a list) in the machine."""
        leader = self.leader()
        if not leader:
            raise LabError(f"{self.name} of lab {self.instance} is not running")
        env = [f"{k}={v}" for k, v in ENVIRONMENT.items()]
        env.append(f"TERM={os.environ.get('TERM', 'dumb')}")
        return ["nsenter", "-t", str(leader), "--all", "--", "env", "-i", *env, *command]

    def kill(self):
        """Stop the machine at once; its processes die with its process namespace."""
        for path in (self.leader_file, self.pid_file):
            pid = process.recall(path)
            if pid:
                process.kill(pid)
        end = time.monotonic() + 60
        while any(map(process.recall, (self.leader_file, self.pid_file))):
            if time.monotonic() > end:
                return
            time.sleep(0.02)

    def devices(self):
        """The device numbers of the file systems that only this machine has."""
        found = set()
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            if line.split()[4] == str(self.root):
                found.add(line.split()[2])
        return found

    def remove(self):
        """Kill the machine, detach loop devices on its files, and remove its folder."""
        self.kill()
        cgroup.remove(self.group)
        detach_loops(self.devices())
        while run(["umount", "-l", self.root], check=False).returncode == 0:
            pass
        shutil.rmtree(self.folder, ignore_errors=True)


def detach_loops(devices):
    """Detach the loop devices whose files are on one of `devices` ("major:minor")."""
    if not devices:
        return
    listed = run(["losetup", "-l", "-n", "-O", "NAME,BACK-MAJ:MIN"], check=False).stdout
    for line in listed.splitlines():
        name, _, back = line.partition(" ")
        if back.strip() in devices:
            run(["losetup", "-d", name], check=False)
