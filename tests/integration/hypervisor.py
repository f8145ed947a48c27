"""One hypervisor of the lab, as the tests of the execution module use it."""

import json
import subprocess
import uuid
import xml.etree.ElementTree as ET

IMAGES = "/srv/salt-images"
PYTHON = "/opt/salt/bin/python"
# a salt-call that stays: the minion's own configuration, loader and synced modules
CALLER = """
import json, sys
import salt.client
caller = salt.client.Caller()
for line in sys.stdin:
    function, args, kwargs = json.loads(line)
    try:
        answer = caller.cmd(function, *args, **kwargs)
    except Exception as exc:
        answer = f"ERROR: {exc}"
    print("ANSWER " + json.dumps(answer), flush=True)
"""

XML = """
<domain type='qemu'>
  <name>{name}</name>
  <uuid>{uuid}</uuid>
  <memory unit='MiB'>64</memory>
  <currentMemory unit='MiB'>48</currentMemory>
  <vcpu current='1'>2</vcpu>
  <os><type arch='x86_64' machine='pc'>hvm</type></os>
  <features><acpi/></features>
  <devices>
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2'/><source file='/var/tmp/{name}.qcow2'/>
      <target dev='vda' bus='virtio'/>
    </disk>
    <disk type='file' device='cdrom'><target dev='hda' bus='ide'/><readonly/></disk>
    <interface type='bridge'>
      <mac address='{mac}'/><source bridge='br0'/><model type='virtio'/>
    </interface>
    <serial type='pty'/>
    <graphics type='vnc' port='-1' listen='127.0.0.1'/>
  </devices>
</domain>
"""


class Hypervisor:
    """Asks by Salt, and looks at what came of it by virsh."""

    def __init__(self, lab, name, tag="caller"):
        self.lab = lab
        self.name = name
        argv = lab.machine(name).argv([PYTHON, "-u", "-c", CALLER, tag])
        pipe = subprocess.PIPE
        self.caller = subprocess.Popen(
            argv, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
        )

    def close(self):
        """Ends the caller."""
        self.caller.stdin.close()
        self.caller.wait()

    def send(self, function, *args, **kwargs):
        """Calls a function without waiting for its answer."""
        print(json.dumps([f"virt.{function}", args, kwargs]), file=self.caller.stdin, flush=True)

    def call(self, function, *args, **kwargs):
        """What ``salt-call virt.<function>`` returns; ``ERROR: …`` when it raises."""
        self.send(function, *args, **kwargs)
        return self.answer(function)

    def answer(self, function="the function"):
        """What the function that was called last returns."""
        for line in self.caller.stdout:
            if line.startswith("ANSWER "):
                return json.loads(line.removeprefix("ANSWER "))
        raise AssertionError(f"salt-call ended in {function}")

    def sh(self, command, check=True):
        """What a shell command prints on the host."""
        return self.lab.exec(self.name, ["sh", "-c", command], check=check).stdout

    def virsh(self, *words):
        """What virsh prints."""
        return self.lab.exec(self.name, ["virsh", *map(str, words)]).stdout

    def state(self, name):
        """The state of a domain by virsh: ``running``, ``shut off``…"""
        return self.virsh("domstate", name).strip()

    def names(self, *words):
        """The names that ``virsh list`` shows."""
        return sorted(self.virsh("list", "--name", *words).split())

    def xml(self, name, *words):
        """The parsed XML of a domain."""
        return ET.fromstring(self.virsh("dumpxml", name, *words))

    def files(self, folder=IMAGES):
        """The names of the files in a folder, without the cache."""
        found = self.sh(f"find {folder} -maxdepth 1 -type f -printf '%f\\n' || true").split()
        return sorted(found)

    def image(self, path):
        """What qemu-img says of an image, as a dictionary."""
        argv = ["qemu-img", "info", "-U", "--output=json", path]
        return json.loads(self.lab.exec(self.name, argv).stdout)

    def define(self, name, mac="52:54:00:00:0d:01"):
        """A small domain without an operating system, made past our code."""
        self.sh(f"qemu-img create -q -f qcow2 /var/tmp/{name}.qcow2 64M")
        own = uuid.uuid5(uuid.NAMESPACE_DNS, name)
        text = XML.format(name=name, uuid=own, mac=mac)
        self.sh(f"cat > /var/tmp/{name}.xml <<'E'\n{text}\nE")
        self.virsh("define", f"/var/tmp/{name}.xml")

    def forget(self, *names):
        """Takes domains away, past our code."""
        for name in names:
            all_of_it = "--managed-save --snapshots-metadata --nvram"
            self.sh(f"virsh destroy {name}; virsh undefine {all_of_it} {name}; true")
            self.sh(f"rm -rf /var/tmp/{name}.* {IMAGES}/{name}_* {IMAGES}/.{name}_*")
