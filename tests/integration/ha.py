"""A lab with high availability: the real engine, the real agents, Debian's own fence agent."""

import itertools
import json
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.integration.migration import counter
from tests.lab import power, storage
from tests.lab.network import MASTER
from tests.lab.sh import LabError

POOL = "/srv/shared"
MODULES = Path("/usr/lib/python3/dist-packages")
MOUNT = f"mkdir -p {POOL}; mountpoint -q {POOL} || mount -t glusterfs master:ha {POOL}"
# what fence_redfish imports, of this machine's Debian, which is that of the lab
IMPORTS = ("requests", "urllib3", "chardet", "charset_normalizer", "idna", "certifi", "six.py",
           "pexpect", "ptyprocess", "pycurl*")  # fmt: skip
GUEST = """<domain type='qemu'><name>{name}</name><memory unit='MiB'>64</memory><vcpu>1</vcpu>
<os><type arch='x86_64' machine='q35'>hvm</type></os><devices>
<disk type='file' device='disk'><driver name='qemu' type='qcow2' cache='none'/>
<source file='{disk}'/><target dev='vda' bus='virtio'/></disk></devices></domain>"""
# where the server of the storage listens, beside each brick
GLUSTERD = 24007

NAME = "count1"
# GlusterFS keeps the locks of a host that was cut off until it misses it
LOCKED_S = 120


class HaCloud:
    """lab: with BMCs and shared storage. strict: a lock that the storage gave away is not borne."""

    strict = False

    def __init__(self, lab):
        self.lab = lab

    def prepare(self):
        """What high availability rests on: certificates, shared storage, the fence agent."""
        lab = self.lab
        storage.volume(lab, "ha", owner="64055:64055", strict=self.strict)
        self._fence_agent()
        lab.exec("master", "umask 077; cat > /etc/salt/bmc", input=f"{power.PASSWORD}\n")
        for host in lab.hosts:
            self.mount(host)
        lab.salt("hv*", "state.single", "virt.keys", "libvirt")

    def set_up(self, more=None):
        """And agents, and the engine. more: settings of virt:ha."""
        self.prepare()
        self.configure(more)

    def configure(self, more=None):
        """These settings of virt:ha, on the master and on all agents."""
        lab = self.lab
        lab.exec(
            "master", "cat > /etc/salt/master.d/virt.conf", input=json.dumps(self._settings(more))
        )
        lab.restart_master()
        found = lab.run("virt.ha_setup")
        assert found.rc == 0, found

    def _settings(self, more):
        members = {}
        for index, host in enumerate(self.lab.hosts, 1):
            options = {"ip": power.address(index), "username": "admin", "ssl_insecure": 1,
                       "password_file": "/etc/salt/bmc"}  # fmt: skip
            fence = {"agent": "fence_redfish", "options": options}
            members[host] = {"address": f"10.77.0.{10 + index}", "fences": [fence]}
        ha = {"members": members, "pools": [POOL], "name": "master", **(more or {})}
        return {"virt": {"hosts": "hv*", "ha": ha}, "engines": ["virt_ha"]}

    def _fence_agent(self, machine="master"):
        found = [path for name in IMPORTS for path in MODULES.glob(name)]
        paths = [Path("/usr/sbin/fence_redfish"), Path("/usr/share/fence"), *found]
        with tempfile.TemporaryDirectory() as folder:
            packed = Path(folder) / "agent.tar"
            words = [str(path.relative_to("/")) for path in paths]
            subprocess.run(["tar", "-C", "/", "-cf", packed, *words], check=True)
            self.lab.push(machine, packed, "/tmp")
        self.lab.exec(machine, "tar -C / -xf /tmp/agent.tar")

    def mount(self, host):
        """The shared storage on a host that has booted."""
        self.lab.exec(host, MOUNT)

    def started(self, host, name):
        """A guest that runs there, with its disk on the shared storage."""
        disk = f"{POOL}/{name}.qcow2"
        self.lab.exec(host, f"qemu-img create -q -f qcow2 {disk} 1G && chown 64055:64055 {disk}")
        self.lab.exec(host, f"virsh -q define /dev/stdin && virsh -q start {name}",
                      input=GUEST.format(name=name, disk=disk))  # fmt: skip

    def enabled(self, name, **wishes):
        """High availability runs it from now on."""
        given = self.lab.run("virt.ha_enable", name, **wishes)
        assert given.rc == 0, given

    def status(self):
        """(exit code, what virt.ha_status says)."""
        done = self.lab.typed(["salt-run", "--out=json", "virt.ha_status"])
        text = done.stdout[done.stdout.index("{") :]
        return done.returncode, json.loads(text)["ha"]

    def well(self, timeout_s=120):
        """Waits until nothing is wrong and each guest that is to run is placed; the status."""

        last = {}

        def ready():
            code, found = self.status()
            last.update(found)
            guests = found["guests"].values()
            return code == 0 and all(one["state"] == "placed" for one in guests) and found

        try:
            return self.lab.wait(ready, "all is well", timeout_s, 1)
        except LabError as exc:
            raise LabError(f"{exc}, but {json.dumps(last)[:6000]}") from exc

    def is_on(self, host):
        return self.lab.machine(host).leader() is not None

    def where(self, name, states=""):
        """The hosts on which it is alive. states: those alone, as options of virsh list."""
        found = []
        for host in filter(self.is_on, self.lab.hosts):
            listed = f"virsh list --name {states}"
            running = self.lab.exec(host, listed, check=False).stdout.split()
            found += [host] if name in running else []
        return found

    def runs(self, name):
        """The hosts on which libvirt says running: of one that is being started it does not."""
        return self.where(name, "--state-running")

    def comes_elsewhere(self, name, source, timeout_s):
        """Seconds until it runs on another host than source."""
        began = time.monotonic()

        def there():
            return [host for host in self.runs(name) if host != source]

        self.lab.wait(there, f"{name} runs elsewhere", timeout_s, 0.3)
        return time.monotonic() - began

    def cut_storage(self, host):
        """The host does not reach the server of the storage; all else it does."""
        listening = self.lab.exec("master", "ss -Htlnp | grep glusterfsd").stdout.splitlines()
        bricks = [line.split()[3].rpartition(":")[2] for line in listening]
        ports = ", ".join([str(GLUSTERD), *bricks])
        self.lab.exec(host, ["nft", "-f", "-"], input=f"""table inet cut_storage {{
            chain out {{
                type filter hook output priority 0
                ip daddr {MASTER} tcp dport {{ {ports} }} drop
            }}
        }}""")  # fmt: skip

    def heal_storage(self, host):
        """It reaches it again; one that is off will."""
        if self.is_on(host):
            self.lab.exec(host, "nft delete table inet cut_storage 2>/dev/null", check=False)

    def room_off(self):
        """All machines lose their power at once, the master's too."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(self.lab.power_off, self.lab.names()))
        self.lab.wait(lambda: not any(map(self.is_on, self.lab.names())), "all is off")

    def room_on(self):
        """All have power again, and the storage comes after them."""
        lab = self.lab
        for name in lab.names():
            lab.machine(name).boot(lab.binds(name))
        for name in lab.names():
            lab.machine(name).wait()
        storage.serve(lab)
        lab.wait_for_minion(*lab.hosts)
        for host in lab.hosts:
            lab.wait(lambda host=host: self._mounts(host), f"the storage is there on {host}")

    def _mounts(self, host):
        self.lab.exec(host, MOUNT, check=False)
        return not self.lab.exec(host, ["mountpoint", "-q", POOL], check=False).returncode

    def back(self, host):
        """The host has power, network and storage again."""
        if not self.is_on(host):
            self.lab.power_on(host)
        # a client that was cut off takes a moment to reach its server again
        self.lab.wait(lambda: self._mounts(host), f"the storage is there on {host}")


class Counting(HaCloud):
    """guest: it writes a record with a number and the id of its start, each 100 ms."""

    starts = 1

    def counter(self):
        """It runs on hv1, with all that it is started from on the shared storage."""
        counter.boots(self.lab)
        boot = f"{counter.BOOT}/kernel {counter.BOOT}/initrd"
        self.lab.exec("hv1", f"cp {boot} {POOL}/")
        self.guest = counter.Counter(
            self.lab, NAME, format="raw", folder=POOL, driver=" cache='none'"
        )
        self.guest.xml = self.guest.xml.replace(counter.BOOT, POOL)
        self.guest.define("hv1", "64M").start("hv1")

    def wrote_alone(self):
        """Each of its starts wrote after the one before it, and no record is torn or missing; the
        host that it runs on."""
        [host] = self.where(NAME)
        self.guest.counts_on(host, LOCKED_S)  # it boots first, on storage that misses a host
        wrote = [start for _, start in self.guest.records(host)]
        found = [start for start, _ in itertools.groupby(wrote)]
        assert len(found) == len(set(found)) == self.starts, found
        return host

    def is_placed(self):
        return self.status()[1]["guests"][NAME]["state"] == "placed"

    def lost(self, host, timeout_s=60):
        """It runs elsewhere, once more."""
        self.comes_elsewhere(NAME, host, timeout_s)
        self.lab.wait(self.is_placed, f"{NAME} is placed", LOCKED_S)
        self.starts += 1
        assert self.wrote_alone() != host
