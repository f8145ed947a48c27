"""The lab of a run: two hypervisors that move one guest between them, and the machine of the
targets, with Salt processes that keep running, so that a call takes milliseconds."""

import contextlib
import json
import os
import subprocess
import threading
import time

from tests.integration.hv import Hypervisor
from tests.lab import process
from tests.lab.sh import LabError

FOLDERS = {
    "vault": "/srv/backup-vault", "other": "/srv/backup-other", "sealed": "/srv/backup-sealed",
    "small": "/srv/backup-small",
}  # fmt: skip
# target to the key by which it is encrypted; a file of its machine
KEYS, KEY_FOLDER = {"sealed": "bkr"}, "/etc/salt-virt/backup-keys"
IMAGES = "/srv/salt-images"
PREFIX = "bkr"
CONF = "/etc/salt/master.d/zz-backup-random.conf"
MIB = 1024**2
# of the other target: what breaks meanwhile finds something to break
SLOW_MIB_S = 1
# the runner's functions, as salt-run has them
RUNNER = """
import json, sys, traceback
import salt.config, salt.runner
opts = salt.config.master_config("/etc/salt/master")
functions = salt.runner.RunnerClient(opts).functions
out, sys.stdout = sys.stdout, sys.stderr
for line in sys.stdin:
    function, args, kwargs = json.loads(line)
    try:
        answer = {"answer": functions[function](*args, **kwargs)}
    except BaseException:
        answer = {"error": traceback.format_exc()}
    print(json.dumps(answer, default=str), file=out, flush=True)
"""
# what of a backup there is on a machine while none is under way
TRACES = """
for name in $(virsh list --name 2>/dev/null); do virsh domjobinfo $name | grep Backup; done
ls -d /srv/salt-images/_backup/* /var/lib/salt-virt/backups/* 2>/dev/null
ls /run/salt-virt/backups 2>/dev/null | grep sock
ss -Htln 'sport >= 10809 and sport < 10825'
pgrep -af 'export[.]export_serve[r]|storage-daemo[n]|target[.]pul[l]|backup.*qemu-nb[d]'
"""
PATTERNS = {
    "puller": "target[.]pull", "keeper": "/run/salt-virt/backups/backup[.]export[.]export_server",
    "qemu": "guest={name},", "libvirtd": "sbin/libvirtd", "daemon": "qemu-storage-daemon|qemu-nbd",
}  # fmt: skip
READING = "ls /srv/backup-*/*/.new-*/*.pieces"


class Ended(Exception):
    """A process of Salt ended while it was asked, as when it was killed."""


class Host(Hypervisor):
    """A hypervisor, or the machine of the targets."""

    def ask(self, function, *args, **kwargs):
        """(what it returns, None), or (None, its error)."""
        try:
            answer = self._ask(function, args, kwargs)
        except (AssertionError, OSError) as exc:
            raise Ended(f"{function} on {self.name}: {exc}") from exc
        return answer.get("answer"), answer.get("error")

    def shell(self, script):
        """(exit code, what a script prints) in the machine."""
        done = self.call("cmd.run_all", script, python_shell=True, ignore_retcode=True)
        return done["retcode"], done["stdout"] + done["stderr"]

    def gone(self):
        """The machine lost its power."""
        if self._salt is not None:
            self._salt.kill()
            self._salt.wait()
            self._salt = None


class Master:
    """The runner of the lab's master."""

    def __init__(self, lab):
        self._lab, self._salt = lab, None

    def ask(self, function, *args, **kwargs):
        """What it returns. Raises Ended when it was killed."""
        if self._salt is None:
            argv = self._lab.machine("master").argv(["/opt/salt/bin/python", "-u", "-c", RUNNER])
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            self._salt = subprocess.Popen(argv, stderr=subprocess.DEVNULL, **pipes)
        try:
            print(json.dumps([function, args, kwargs]), file=self._salt.stdin, flush=True)
            line = self._salt.stdout.readline()
        except OSError:
            line = ""
        if not line:
            self.close()
            raise Ended(f"the runner of {function} ended")
        answer = json.loads(line)
        if "error" in answer:
            raise AssertionError(answer["error"])
        found = answer["answer"]
        return found.get("data", found) if isinstance(found, dict) else found

    def kill(self):
        """kill -9: what nsenter started."""
        if self._salt is not None:
            for pid in process.children(self._salt.pid) or [self._salt.pid]:
                process.kill(pid)

    def close(self):
        """Ends it."""
        if self._salt is not None:
            self.kill()
            self._salt.kill()
            self._salt.wait()
            self._salt = None


class World:
    """The machines. Of a lab of two hypervisors the second has the targets, too."""

    def __init__(self, lab):
        self.lab, self.master = lab, Master(lab)
        self.hypervisors = {name: Host(lab, name) for name in lab.hosts[:2]}
        self.target = self.hypervisors.get(lab.hosts[-1]) or Host(lab, lab.hosts[-1])

    @property
    def machines(self):
        """All but the master."""
        return {**self.hypervisors, self.target.name: self.target}

    def prepare(self):
        """Makes of a lab, synced, what the steps expect."""
        at = {"host": self.target.name}
        targets = {name: {**at, "folder": folder} for name, folder in FOLDERS.items()}
        targets["other"]["bandwidth"] = SLOW_MIB_S
        targets["small"]["compress"] = "zstd"
        for name, key in KEYS.items():
            targets[name]["key"] = key
            self.lab.exec(self.target.name, f"install -d -m 700 {KEY_FOLDER}; umask 077; "
                          f"openssl rand -base64 32 > {KEY_FOLDER}/{key}.key")  # fmt: skip
        settings = {"virt": {"hosts": "hv*", "backup": {"targets": targets}, "queue_timeout": 60}}
        # of the runner alone, which reads it each time: no master has to be started again
        self.lab.exec("master", f"cat > {CONF}", input=json.dumps(settings))
        if not all(self._speaks_tls(name) for name in self.machines):
            answers = self.lab.salt("hv*", "state.apply", "libvirt", timeout=240)
            failed = [str(one) for one in answers.values() if not isinstance(one, dict)]
            if failed:
                raise LabError(f"the formula was not applied: {failed[0]}")
        self.wipe()

    def _speaks_tls(self, name):
        """Whether the formula was applied there already."""
        uri = f"qemu+tls://{name}/system"
        return self.lab.exec(name, ["virsh", "-c", uri, "hostname"], check=False).returncode == 0

    def plain(self):
        """The lab without it."""
        self.wipe()
        self.close()
        self.lab.exec("master", f"rm -f {CONF}")
        keys = " ".join(f"{KEY_FOLDER}/{key}.key" for key in KEYS.values())
        self.lab.exec(self.target.name, f"rm -rf {' '.join(FOLDERS.values())} {keys}")

    def close(self):
        """Ends the processes of Salt."""
        self.master.close()
        for one in self.machines.values():
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                one.close()

    def wipe(self):
        """No guest, no file of one, no backup, past our code."""
        for one in self.machines.values():
            self.lab.exec(one.name, (
                "pkill -9 -f '/run/salt-virt/backups/backup[.]export[.]export_server'; "
                "pkill -9 -f qemu-storage-daemo[n]; "
                f"for one in $(virsh list --all --name | grep ^{PREFIX}); do virsh -q destroy $one;"
                " virsh -q managedsave-remove $one; "
                "virsh -q undefine $one --checkpoints-metadata --snapshots-metadata; done; "
                f"rm -rf {IMAGES}/{PREFIX}* {IMAGES}/_backup /var/lib/salt-virt/backups "
                "/run/salt-virt/backups/*.sock /root/bkr-*; "
                f"rm -rf /run/salt-virt/migrations/{PREFIX}* /var/lib/salt-virt/migrations/*"
            ), check=False)  # fmt: skip
        folders = " ".join(FOLDERS.values())
        self.lab.exec(self.target.name, f"rm -rf {folders}; mkdir -m 700 {folders}")

    def traces(self):
        """What is left of backups, by machine."""
        found = {}
        for name, one in self.machines.items():
            _, said = one.shell(TRACES)
            if said.strip():
                found[name] = said.strip()
        return found

    def kill(self, what, name, host):
        """kill -9 of a part. host: where the guest is."""
        if what == "runner":
            self.master.kill()
        elif what == "target":
            if self.target.name not in self.hypervisors:
                self.reboot(self.target.name)
        elif what in ("minion", "target_minion"):
            machine = host if what == "minion" else self.target.name
            self.lab.exec(machine, ["pkill", "-9", "-f", "--", "bin/salt-minion"], check=False)
            self.lab.exec(machine, ["systemctl", "restart", "salt-minion"], check=False)
        else:
            where = (self.target.name, host) if what in ("puller", "daemon") else (host,)
            pattern = PATTERNS[what].format(name=name)
            for machine in where:
                self.lab.exec(machine, ["pkill", "-9", "-f", "--", pattern], check=False)
        if what == "keeper":
            keeps = ["pgrep", "-f", "--", PATTERNS[what]]
            self.lab.wait(lambda: self.lab.exec(host, keeps, check=False).returncode, "it is dead")
        if what == "libvirtd":
            self.lab.wait(lambda: self.speaks(host), f"libvirtd of {host} is back", every_s=0.1)

    def speaks(self, host):
        """Whether its libvirtd does."""
        return self.lab.exec(host, "virsh -q list", check=False, timeout=300).returncode == 0

    def is_reading(self):
        """Whether the machine of the targets reads disks."""
        return self.lab.exec(self.target.name, READING, check=False).returncode == 0

    def later(self, fault, name, host):
        """The same, some time after a backup began or while it is read; a thread to be joined."""

        def act():
            if "after" in fault:
                time.sleep(fault["after"])
            else:
                self.lab.wait(self.is_reading, "disks are read", every_s=0.1)
            self.kill(fault["kind"], name, host)

        thread = threading.Thread(target=act)
        thread.start()
        return thread

    def reboot(self, host):
        """The machine's power goes, and comes."""
        self.machines[host].gone()
        self.lab.power_off(host)
        machine = self.lab.machine(host)
        machine.boot()
        machine.wait()
        self.lab.wait(lambda: self.speaks(host), f"libvirtd of {host} is up")
        self.lab.wait_for_minion(host)


def restoring(to):
    """A function of the shell that makes of a backup's disk what it holds, by qemu-img alone, as
    docs/how-to/backups.md has it: ``raw DISK PATH``, in the folder of the backup."""
    if to not in KEYS:
        return "raw() { qemu-img convert -O raw $1 $2; }\n"
    path = f"{KEY_FOLDER}/{KEYS[to]}.key"
    return (
        "raw() { how=driver=qcow2,file.filename=$1 at=; "
        "for _ in $(qemu-img info --backing-chain $1 | grep -o ^image:); do "
        "how=$how,${at}encrypt.key-secret=key at=backing.$at; done; "
        f"qemu-img convert --object secret,id=key,file={path} --image-opts $how -O raw $2; }}\n"
    )


def guest_name():
    """Of this run's guest."""
    return f"{PREFIX}{os.getpid() % 1000}"
