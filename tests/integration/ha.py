"""A lab with high availability: the real engine, the real agents, Debian's own fence agent."""

import json
import subprocess
import tempfile
import time
from pathlib import Path

from tests.lab import power, storage

POOL = "/srv/shared"
MODULES = Path("/usr/lib/python3/dist-packages")
# what fence_redfish imports, of this machine's Debian, which is that of the lab
IMPORTS = ("requests", "urllib3", "chardet", "charset_normalizer", "idna", "certifi", "six.py",
           "pexpect", "ptyprocess", "pycurl*")  # fmt: skip
GUEST = """<domain type='qemu'><name>{name}</name><memory unit='MiB'>64</memory><vcpu>1</vcpu>
<os><type arch='x86_64' machine='q35'>hvm</type></os><devices>
<disk type='file' device='disk'><driver name='qemu' type='qcow2' cache='none'/>
<source file='{disk}'/><target dev='vda' bus='virtio'/></disk></devices></domain>"""
# Salt's own Python has libvirt's binding; the agent runs by Debian's
BINDING = """
from=$(/opt/salt/bin/python -c 'import libvirt, os; print(os.path.dirname(libvirt.__file__))')
cp $from/libvirt*.py $from/libvirtmod*.so /usr/lib/python3/dist-packages/
"""


class HaCloud:
    """lab: with BMCs and shared storage."""

    def __init__(self, lab):
        self.lab = lab

    def set_up(self, more=None):
        """Certificates, shared storage, agents, the engine. more: settings of virt:ha."""
        lab = self.lab
        storage.volume(lab, "ha", owner="64055:64055")
        self._fence_agent()
        lab.exec("master", "umask 077; cat > /etc/salt/bmc", input=f"{power.PASSWORD}\n")
        lab.exec(
            "master", "cat > /etc/salt/master.d/virt.conf", input=json.dumps(self._settings(more))
        )
        for host in lab.hosts:
            lab.exec(host, BINDING)
            self.mount(host)
        lab.salt("hv*", "state.single", "virt.keys", "libvirt")
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

    def _fence_agent(self):
        found = [path for name in IMPORTS for path in MODULES.glob(name)]
        paths = [Path("/usr/sbin/fence_redfish"), Path("/usr/share/fence"), *found]
        with tempfile.TemporaryDirectory() as folder:
            packed = Path(folder) / "agent.tar"
            words = [str(path.relative_to("/")) for path in paths]
            subprocess.run(["tar", "-C", "/", "-cf", packed, *words], check=True)
            self.lab.push("master", packed, "/tmp")
        self.lab.exec("master", "tar -C / -xf /tmp/agent.tar")

    def mount(self, host):
        """The shared storage on a host that has booted."""
        self.lab.exec(host, f"mkdir -p {POOL}; mountpoint -q {POOL} || "
                            f"mount -t glusterfs master:ha {POOL}")  # fmt: skip

    def guest(self, host, name):
        """A guest that runs there, with its disk on the shared storage."""
        disk = f"{POOL}/{name}.qcow2"
        self.lab.exec(host, f"qemu-img create -q -f qcow2 {disk} 1G && chown 64055:64055 {disk}")
        self.lab.exec(host, f"virsh -q define /dev/stdin && virsh -q start {name}",
                      input=GUEST.format(name=name, disk=disk))  # fmt: skip

    def status(self):
        """(exit code, what virt.ha_status says)."""
        done = self.lab.exec("master", ["salt-run", "--out=json", "virt.ha_status"], check=False)
        text = done.stdout[done.stdout.index("{") :]
        return done.returncode, json.loads(text)["ha"]

    def well(self, timeout_s=120):
        """Waits until nothing is wrong and each guest that is to run is placed; the status."""

        def ready():
            code, found = self.status()
            guests = found["guests"].values()
            return code == 0 and all(one["state"] == "placed" for one in guests) and found

        return self.lab.wait(ready, "all is well", timeout_s, 1)

    def is_on(self, host):
        return self.lab.machine(host).leader() is not None

    def where(self, name):
        """The hosts on which libvirt runs it."""
        found = []
        for host in filter(self.is_on, self.lab.hosts):
            running = self.lab.exec(host, "virsh list --name", check=False).stdout.split()
            found += [host] if name in running else []
        return found

    def comes_elsewhere(self, name, source, timeout_s):
        """Seconds until it runs on another host than source."""
        began = time.monotonic()

        def there():
            return [host for host in self.where(name) if host != source]

        self.lab.wait(there, f"{name} runs elsewhere", timeout_s, 0.3)
        return time.monotonic() - began

    def back(self, host):
        """The host has power, network and storage again."""
        if not self.is_on(host):
            self.lab.power_on(host)
        self.mount(host)
