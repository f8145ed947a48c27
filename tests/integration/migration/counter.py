"""A guest that detects whether a migration lost data: see counter.c."""

import os
import re
import subprocess
import tempfile
from pathlib import Path

from tests.chaos.inside import RECORD, START, checksum

HERE = Path(__file__).parent
IMAGES = "/var/lib/libvirt/images"
BOOT = "/boot/salt-virt-counter"
JOURNALS = "/var/lib/salt-virt/migrations"
LEAVINGS = "/var/lib/salt-virt/target_leftovers"
MODULES = ("virtio", "virtio_ring", "virtio_pci_legacy_dev", "virtio_pci_modern_dev",
           "virtio_pci", "virtio_blk")  # fmt: skip
# of the modules some are built into a kernel, and some kernels have them packed
PACK = f"""set -e
mkdir -p {BOOT}/root/modules {BOOT}/root/proc {BOOT}/root/dev
cp {BOOT}/init {BOOT}/root/init
for m in {" ".join(MODULES)}; do
    file=$(find /lib/modules -name "$m.ko*" | head -1)
    case "$file" in
        *.xz) xzcat "$file" > {BOOT}/root/modules/$m.ko ;;
        *.ko) cp "$file" {BOOT}/root/modules/ ;;
    esac
done
(cd {BOOT}/root && find . | cpio --quiet -o -H newc) > {BOOT}/initrd
cp /boot/vmlinuz-* {BOOT}/kernel
"""
XML = """
<domain type='qemu'>
  <name>{name}</name>
  <metadata>
    <s:guest xmlns:s='https://saltproject.io/xmlns/salt-virt/1' version='1'/>
  </metadata>
  <memory unit='MiB'>{memory}</memory>
  <vcpu>1</vcpu>
  <os>
    <type arch='x86_64' machine='pc'>hvm</type>
    <kernel>{boot}/kernel</kernel>
    <initrd>{boot}/initrd</initrd>
    <cmdline>console=ttyS0 quiet panic=-1 dirty={dirty}</cmdline>
  </os>
  <features><acpi/></features>
  <on_crash>destroy</on_crash>
  <devices>
    <disk type='file' device='disk'>
      <driver name='qemu' type='{format}'{driver}/>
      <source file='{disk}'/>
      <target dev='vda' bus='virtio'/>
    </disk>
    <interface type='bridge'><source bridge='br0'/><model type='virtio'/></interface>
    <graphics type='vnc' port='-1' listen='127.0.0.1'/>
    <serial type='file'><source path='/run/{name}.log'/></serial>
    {devices}
  </devices>
</domain>
"""


def install(lab):
    """Libvirt by the formula, and the guest's kernel and init, on every hypervisor of the lab."""
    libvirts(lab)
    boots(lab)


def libvirts(lab):
    """Libvirt by the formula on every hypervisor of the lab: they migrate."""
    if not all(_speaks_tls(lab, host) for host in lab.hosts):
        answers = lab.salt("hv*", "state.apply", "libvirt", timeout=240)
        for host, answer in answers.items():
            assert isinstance(answer, dict), f"{host}: {answer}"
            failed = [state for state in answer.values() if not state["result"]]
            assert not failed, f"{host}: {failed}"


def boots(lab):
    """The guest's kernel and init, on every hypervisor of the lab."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "init"
        subprocess.run(
            ["gcc", "-O2", "-Wall", "-Werror", "-static", "-o", program, HERE / "counter.c"],
            check=True,
        )
        for host in lab.hosts:
            lab.push(host, program, BOOT)
            lab.exec(host, PACK)


def _speaks_tls(lab, host):
    """Whether the formula was applied there already."""
    uri = f"qemu+tls://{host}/system"
    return lab.exec(host, ["virsh", "-c", uri, "hostname"], check=False).returncode == 0


class Counter:
    """One such guest. format: of its disk; base: the image that the disk is based on; pool: whose
    volume the disk is."""

    def __init__(
        self, lab, name, format="qcow2", base=None, memory=128, dirty=0, folder=IMAGES,
        driver="", devices="", pool=None,
    ):  # fmt: skip
        self.lab, self.name, self.format, self.base, self.pool = lab, name, format, base, pool
        self.disk = f"{folder}/{name}_vda.{format}"
        self.xml = XML.format(
            name=name, memory=memory, boot=BOOT, dirty=dirty, format=format, disk=self.disk,
            driver=driver, devices=devices,
        )  # fmt: skip
        if pool:
            volume = f"pool='{pool}' volume='{os.path.basename(self.disk)}'"
            self.xml = self.xml.replace("type='file' device='disk'", "type='volume' device='disk'")
            self.xml = self.xml.replace(f"file='{self.disk}'", volume)

    def define(self, host, size="1G"):
        below = ["-b", self.base, "-F", "qcow2"] if self.base else []
        self.lab.exec(
            host, ["qemu-img", "create", "-q", "-f", self.format, *below, self.disk, size]
        )
        if self.pool:
            self.lab.exec(host, ["virsh", "-q", "pool-refresh", self.pool])
        self.lab.exec(host, ["virsh", "-q", "define", "/dev/stdin"], input=self.xml)
        return self

    def start(self, host):
        self.lab.exec(host, ["virsh", "-q", "start", self.name])
        self.lab.wait(lambda: self.number(host) > 5, f"{self.name} counts on {host}")
        return self

    def fill(self, host, mib, pattern=0x5A):
        """Puts data on the disk of a guest that does not run."""
        command = f"write -P {pattern} 100M {mib}M"
        self.lab.exec(host, ["qemu-io", "-f", self.format, "-c", command, self.disk])
        return self

    def number(self, host):
        """The last number it said on its console there, or -1."""
        text = self.lab.exec(host, f"tail -c 200 /run/{self.name}.log", check=False).stdout
        found = re.findall(r"counter (\d+)\r?\n", text)
        return int(found[-1]) if found else -1

    def counts_on(self, host, timeout_s=20):
        """Waits until it has counted on there."""
        before = self.number(host)
        self.lab.wait(
            lambda: self.number(host) > max(before, 0), f"{self.name} counts on {host}", timeout_s
        )

    def states(self):
        """{host: libvirt's state} of the hosts that have it."""
        found = {}
        for host in self.lab.hosts:
            done = self.lab.exec(host, ["virsh", "domstate", self.name], check=False)
            if done.returncode == 0:
                found[host] = done.stdout.strip()
        return found

    def files(self, host):
        """What of it lies in its disk's folder on a host."""
        folder = os.path.dirname(self.disk)
        listing = self.lab.exec(host, f"ls {folder} | grep '^{self.name}_'", check=False)
        return listing.stdout.split()

    def records(self, host):
        """All records of its disk, checked one by one: none is missing, torn or of old."""
        copy = f"/run/{self.name}.raw"
        self.lab.exec(
            host,
            f"qemu-img convert -U -f {self.format} -O raw {self.disk} {copy} && truncate -s 16M "
            f"{copy} && gzip -1 {copy}",
        )
        with tempfile.TemporaryDirectory() as folder:
            self.lab.pull(host, f"{copy}.gz", Path(folder))
            self.lab.exec(host, ["rm", f"{copy}.gz"])
            packed = Path(folder) / f"{self.name}.raw.gz"
            return parse(subprocess.run(["zcat", packed], capture_output=True, check=True).stdout)

    def is_whole_on(self, host, boots=1):
        """It runs there only, its disk and all it ever wrote are whole, nothing is elsewhere."""
        assert self.states() == {host: "running"}
        self.counts_on(host)
        for other in self.lab.hosts:
            assert bool(self.files(other)) == (other == host), f"files on {other}"
            assert unfinished(self.lab, other) == []
        said = self.number(host)
        if self.format == "qcow2":
            # paused: of a disk that grows right now qemu-img sees a part, and calls it broken
            self.lab.exec(
                host,
                f"virsh -q suspend {self.name} && qemu-img check -q -U {self.disk}; "
                f"found=$?; virsh -q resume {self.name} && exit $found",
            )
        numbers = self.records(host)
        assert len({boot for _, boot in numbers}) == boots
        assert len(numbers) > said

    def clear(self):
        """Has the target take away what a migration by ``salt HOST`` has left there."""
        done = self.lab.run("virt.migrate_recover", self.name)
        assert done.rc == 0, done.stdout

    def remove(self):
        """Whatever is left of it, on all hosts."""
        for host in self.lab.hosts:
            for command in ("destroy", "undefine --nvram --snapshots-metadata"):
                self.lab.exec(host, f"virsh {command} {self.name} 2>&1", check=False)
            left = f"{IMAGES}/{self.name}_* /run/{self.name}.*"
            notes = f"{JOURNALS}/{self.name}.* {LEAVINGS}/{self.name}~*"
            self.lab.exec(host, f"rm -f {self.disk} {left} {notes}")


def parse(raw):
    """[(number, boot id)] of the disk's records. AssertionError at the first that is wrong."""
    found = []
    for offset in range(START, len(raw), RECORD.size):
        magic, number, _, _, boot, filler, given = RECORD.unpack_from(raw, offset)
        if magic != b"SALTVIRT":
            break
        assert number == len(found), f"record {len(found)} has the number {number}"
        assert filler == bytes([number & 0xFF]) * len(filler), f"record {number} is torn"
        assert given == checksum(raw[offset : offset + RECORD.size - 8]), f"record {number}: sum"
        found.append((number, boot.rstrip(b"\0").decode()))
    rest = raw[START + len(found) * RECORD.size :]
    assert not rest.strip(b"\0"), f"a record is missing after {len(found)}"
    return found


def unfinished(lab, host):
    """The journals of migrations that lie on a host."""
    return lab.exec(host, f"ls {JOURNALS}", check=False).stdout.split()


def copying(lab, name):
    """libvirt has begun to copy a disk of a guest of the first host."""
    done = lab.exec("hv1", f"virsh domjobinfo {name} --rawstats", check=False).stdout
    return "disk_processed" in done and "disk_processed: 0\n" not in done
