"""Runs on a hypervisor: prints as JSON what it has, from libvirt, /proc and the file systems.

Its standard input is JSON: `folders` (whose files are listed) and `mark` (a file; files below
/usr and /etc that are newer are listed, if `system` is true).
"""

import json
import os
import re
import subprocess
import sys
from xml.etree import ElementTree

TOOLS = re.compile(r"guestfish|guestmount|virt-|qemu-nbd|qemu-img|nbdkit|nbdcopy|swtpm_setup")
SYSTEM = ("/usr", "/etc")
# what libvirt, Salt and the system write there as they work
WRITTEN = re.compile(
    r"/etc/(libvirt|salt|pki|lvm|ld\.so\.cache|resolv\.conf|mtab|swtpm)|__pycache__|/usr/lib/x86_64-linux-gnu/guestfs"
)


def run(*argv):
    """The output of a program, or nothing if it fails."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""


def chain(path):
    """The files of a disk, from the uppermost layer to the base."""
    shown = run("qemu-img", "info", "-U", "--backing-chain", "--output=json", path)
    return [each["filename"] for each in json.loads(shown or "[]")] or [path]


def volume_path(pool, volume):
    """The path of a volume of a pool."""
    return run("virsh", "vol-path", "--pool", pool, volume).strip()


def files_of(tree):
    """The paths of files that a domain's XML names.

    libvirt chooses that of the firmware's variables at a start, and may name it only then.
    """
    paths = [element.text for element in tree.iter("nvram") if element.text]
    if tree.find("os[@firmware='efi']") is not None and not paths:
        paths = [f"/var/lib/libvirt/qemu/nvram/{tree.findtext('name')}_VARS.fd"]
    for source in tree.iter("source"):
        if source.get("file"):
            paths += chain(source.get("file"))
        elif source.get("volume"):
            paths += chain(volume_path(source.get("pool"), source.get("volume")))
    return paths


def domain(name):
    """What libvirt has of a domain."""
    stored = ElementTree.fromstring(run("virsh", "dumpxml", "--inactive", "--security-info", name))
    current = ElementTree.fromstring(run("virsh", "dumpxml", name))
    paths = files_of(stored) + files_of(current)
    disks = {os.path.realpath(path) for path in paths}
    for snapshot in run("virsh", "snapshot-list", "--name", name).split():
        text = run("virsh", "snapshot-dumpxml", name, snapshot)
        paths += files_of(ElementTree.fromstring(text)) if text else []
    return {
        "state": run("virsh", "domstate", name).strip(),
        "uuid": run("virsh", "domuuid", name).strip(),
        "macs": [each.get("address") for each in stored.findall("devices/interface/mac")],
        "targets": [each.get("dev") for each in stored.findall("devices/disk/target")],
        "snapshots": run("virsh", "snapshot-list", "--name", name).split(),
        "disks": sorted(disks),
        "files": sorted({os.path.realpath(path) for path in paths}),
    }


def processes():
    """(programs of disks at work, QEMU's processes by guest)."""
    tools, emulators = [], []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as words:
                argv = words.read().decode(errors="replace").split("\0")
        except OSError:
            continue
        if re.search(r"qemu-system|qemu-kvm", argv[0]):
            emulators += re.findall(r"guest=([^,]+)", " ".join(argv))
        elif TOOLS.search(os.path.basename(argv[0])):
            tools.append(" ".join(argv)[:200])
    return tools, emulators


def listed(folders):
    """All files below folders."""
    return sorted(
        os.path.join(top, name)
        for folder in folders
        for top, _, names in os.walk(folder)
        for name in names
    )


def main():
    given = json.load(sys.stdin)
    if not os.path.exists(given["mark"]):
        open(given["mark"], "w").close()
    tools, emulators = processes()
    find = ("find", *SYSTEM, "-xdev", "-type", "f", "-newer", given["mark"])
    newer = run(*find).splitlines() if given["system"] else []
    firmware = listed(["/usr/share/OVMF", "/usr/share/qemu"])
    names = run("virsh", "list", "--all", "--name").split()
    with open("/proc/mounts", encoding="utf-8") as mounts:
        mounted = [line.split()[1] for line in mounts]
    print(json.dumps({
        "domains": {name: domain(name) for name in names},
        "tools": tools, "emulators": sorted(emulators),
        "files": listed(given["folders"]),
        "mounts": sorted(mounted),
        "loops": run("losetup", "-n", "-O", "NAME,BACK-FILE").splitlines(),
        "changed": [path for path in newer if not WRITTEN.search(path)],
        "firmware": firmware,
    }))  # fmt: skip


if __name__ == "__main__":
    main()
