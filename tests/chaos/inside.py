"""Read the state of a machine of the lab: libvirt, QEMU's processes, files, mounts, locks, logs.
The machine's Python runs this text, with the request as JSON on stdin, and prints JSON; Salt Virt
is not used."""

import glob
import hashlib
import json
import os
import re
import struct
import subprocess
import sys
import xml.etree.ElementTree as ET

RECORD = struct.Struct("<8sQQQ40s432sQ")
START, END = 1024 * 1024, 16 * 1024 * 1024
MARKED = 512 * 1024  # so much at the image's begin is of one byte
POOLS = {"pond": "/srv/local/pond", "data": "/srv/gluster"}
LOCKS = ("/run/salt-virt-locks", "/run/salt-virt", "/var/lib/salt-virt")
LISTED = (
    *LOCKS, "/srv/local", "/srv/gluster", "/var/lib/libvirt", "/etc/libvirt", "/var/tmp", "/tmp",
    "/run/libvirt/qemu",
)  # fmt: skip
OF_MASTER = ("/var/cache/salt/master/virt", "/var/lib/salt/master/virt", "/etc/salt/pki/master")
TOOLS = r"qemu-img|qemu-nbd|qemu-io|guestfish|guestmount|virt-|fusermount|nbdkit|qemu-storage"
SHOWS = "/run/salt-virt/backups/"
VAULT = "/srv/vault"
TRACE = "Traceback (most recent call last)"
OURS = ("/saltvirt/", "/extmods/", "saltvirt.")


def read(path):
    with open(path, "rb") as file:
        return file.read().decode(errors="replace")


def output(argv):
    done = subprocess.run(argv, check=False, capture_output=True, text=True, errors="replace")
    return done.stdout


def checksum(data):
    """FNV-1a, as counter.c has it."""
    value = 14695981039346656037
    for byte in data:
        value = (value ^ byte) * 1099511628211 & 0xFFFFFFFFFFFFFFFF
    return value


def pattern(file, known):
    """(how many records, what is wrong or None) of a raw disk; the first ``known`` had been
    summed up before."""
    file.seek(START)
    raw = file.read(END - START)
    count = 0
    for at in range(0, len(raw) - RECORD.size + 1, RECORD.size):
        magic, number, _, _, _, filler, given = RECORD.unpack_from(raw, at)
        if magic != b"SALTVIRT":
            break
        if number != count:
            return count, f"record {count} has the number {number}"
        if filler != bytes([number & 0xFF]) * len(filler):
            return count, f"record {number} is torn"
        if number >= known - 3 and given != checksum(raw[at : at + RECORD.size - 8]):
            return count, f"record {number} has a wrong sum"
        count += 1
    rest = raw[count * RECORD.size :]
    if rest.strip(b"\0"):
        return count, f"a record is missing after {count}"
    return count, None


def marked(file):
    file.seek(0)
    return file.read(MARKED) == b"\x5a" * MARKED


def content(disk, known):
    """What is on a guest's first disk: {count, problem}."""
    if disk["kind"] == "network":
        return {"count": None, "problem": None}
    if not os.path.exists(disk["path"]):
        return {"count": 0, "problem": f"{disk['path']} is not there"}
    copy = f"/run/chaos-{os.getpid()}.raw"
    for attempt in (1, 2, 3):
        try:
            argv = ["qemu-img", "convert", "-U", "-f", disk["format"], "-O", "raw", disk["path"]]
            subprocess.run([*argv, copy], check=True, capture_output=True, timeout=60)
            with open(copy, "rb") as file:
                count, problem = pattern(file, known)
                if not problem and not marked(file):
                    problem = "the image it was made from is not below it"
        except (subprocess.SubprocessError, OSError) as exc:
            count, problem = 0, str(getattr(exc, "stderr", "") or exc)[-300:]
        finally:
            if os.path.exists(copy):
                os.unlink(copy)
        # what runs is written to while it is read
        if not problem or attempt == 3:
            return {"count": count, "problem": problem}
    return None


def disk_of(element):
    source = element.find("source")
    driver = element.find("driver")
    found = {
        "target": element.find("target").get("dev"), "device": element.get("device", "disk"),
        "readonly": element.find("readonly") is not None,
        "format": driver.get("type", "raw") if driver is not None else "raw",
    }  # fmt: skip
    kind = element.get("type")
    if source is None:
        return None
    if kind == "network":
        return {**found, "kind": "network", "path": source.get("name")}
    path = source.get("file") or source.get("dev")
    if kind == "volume":
        path = f"{POOLS[source.get('pool')]}/{source.get('volume')}"
    return {**found, "kind": "file", "path": path, **sizes(path)} if path else None


def sizes(path):
    """How large a disk may become and what it takes now, in bytes; nothing of one that is not
    there."""
    try:
        about = os.stat(path)
        with open(path, "rb") as file:
            magic, _, _, _, _, virtual = struct.unpack(">4sIQIIQ", file.read(32))
    except (OSError, struct.error):
        return {}
    size = virtual if magic == b"QFI\xfb" else about.st_size
    return {"size": size, "has": about.st_blocks * 512}


def domains(known):
    import libvirt

    found = {}
    conn = libvirt.open("qemu:///system")
    try:
        for domain in conn.listAllDomains():
            try:
                name, state = domain.name(), domain.state()[0]
                top = ET.fromstring(domain.XMLDesc(0))
                snapshots = [one.getName() for one in domain.listAllSnapshots()]
                persistent = bool(domain.isPersistent())
            except libvirt.libvirtError as exc:
                if exc.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
                    continue
                raise
            disks = [disk for one in top.iter("disk") if (disk := disk_of(one))]
            first = [disk for disk in disks if disk["target"] == "vda"]
            found[name] = {
                "state": {1: "running", 3: "paused", 4: "stopping", 5: "off", 6: "crashed"}.get(
                    state, str(state)),
                "persistent": persistent, "uuid": domain.UUIDString(), "disks": disks,
                "snapshots": snapshots,
                "memory_kib": int(top.findtext("memory")), "vcpus": int(top.findtext("vcpu")),
                "content": content(first[0], known.get(name, 0)) if first else None,
            }  # fmt: skip
    finally:
        conn.close()
    return found


def processes():
    qemus, tools, runners = [], [], []
    for folder in glob.glob("/proc/[0-9]*"):
        try:
            words = read(f"{folder}/cmdline").split("\0")
        except OSError:
            continue
        name = os.path.basename(words[0])
        if name.startswith("qemu-system"):
            guest = re.search(r"guest=([^,]*)", " ".join(words))
            if guest:
                qemus.append(guest.group(1))
        elif re.match(TOOLS, name) and name != "virt-aa-helper":
            tools.append(" ".join(words)[:200])
        elif len(words) > 1 and os.path.basename(words[1]) == "salt-run":
            runners.append(" ".join(words)[:200])
        elif any(word.startswith(SHOWS) for word in words):
            tools.append(" ".join(words)[:200])
    return sorted(qemus), sorted(tools), sorted(runners)


def files(folders):
    found = []
    for top in folders:
        for where, below, names in os.walk(top):
            below[:] = [one for one in below if one != ".glusterfs"]
            found += [os.path.join(where, name) for name in (*below, *names)]
    return sorted(found)


def held():
    """The lock files that some process holds."""
    inodes = {}
    for path in files((*LOCKS, OF_MASTER[0])):
        try:
            inodes[str(os.stat(path).st_ino)] = path
        except OSError:
            continue
    found = set()
    for line in read("/proc/locks").splitlines():
        inode = line.split()[-3].rpartition(":")[2]
        if "FLOCK" in line and inode in inodes:
            found.add(inodes[inode])
    return sorted(found)


def mounts():
    return sorted({line.split()[4] for line in read("/proc/self/mountinfo").splitlines()})


def loops():
    """The loop devices over a file of this machine, by name: another's look the same from here,
    so those are told by the path alone."""
    text = output(["losetup", "-l", "-n", "-O", "NAME,BACK-MAJ:MIN,BACK-FILE"])
    here = os.stat("/srv")
    own = f"{os.major(here.st_dev)}:{os.minor(here.st_dev)}"
    lines = [line.split(None, 2) for line in text.splitlines()]
    return sorted(line[2] for line in lines if len(line) == 3 and line[1] == own)


def sockets():
    """Those of libvirt's guests and of ours, and ports that migrations listen on."""
    found = set()
    for line in read("/proc/net/unix").splitlines():
        path = line.split()[-1]
        if "/domain-" in path or "salt-virt" in path:
            found.add(path)
    text = output(["ss", "-Hltn"])
    for line in text.splitlines():
        port = line.split()[3].rpartition(":")[2]
        if port.isdigit() and 49152 <= int(port) <= 49215:
            found.add(f"port {port}")
    return sorted(found)


def traces(since):
    """The tracebacks with our code in them that the daemons logged since then."""
    argv = ["journalctl", "-q", "--no-pager", "-o", "cat", f"--since=@{since}"]
    units = [word for unit in ("salt-minion", "salt-master") for word in ("-u", unit)]
    text = output([*argv, *units])
    blocks, block = [], None
    for line in text.splitlines():
        if TRACE in line:
            block = [line]
            blocks.append(block)
        elif block is not None:
            block.append(line)
            if line[:1] not in (" ", "") and not line.startswith(("During", "The above")):
                block = None
    found = {}
    for block in blocks:
        whole = "\n".join(block)
        if any(word in whole for word in OURS):
            key = hashlib.sha1("\n".join(block[-3:]).encode()).hexdigest()
            found[key] = whole[-2500:]
    return sorted(found.values())


def keys():
    base = OF_MASTER[1]
    return {
        kind: sorted(os.listdir(f"{base}/{folder}"))
        for kind, folder in (("accepted", "minions"), ("pending", "minions_pre"))
    }


def luns(known):
    found = {}
    for path in glob.glob("/srv/bricks/lun*"):
        name = os.path.basename(path)
        with open(path, "rb") as file:
            count, problem = pattern(file, known.get(name, 0))
            if not problem and not marked(file):
                problem = "what was at its begin is gone"
        found[name] = {"count": count, "problem": problem}
    return found


def asides():
    """The names of the guests that a backup took the place of, of which the old ones are kept."""
    return sorted(json.loads(read(path))["name"]
                  for path in glob.glob("/var/lib/salt-virt/aside/*.json"))  # fmt: skip


def backups():
    """Each backup of a first disk here to what is wrong with its records, or None."""
    found = {}
    for path in sorted(glob.glob(f"{VAULT}/*/0*/vda.qcow2")):
        found[path] = content({"kind": "file", "path": path, "format": "qcow2"}, 0)["problem"]
    return found


def main():
    asked = json.load(sys.stdin)
    seen = {"mounts": mounts(), "loops": loops(), "held": held(), "sockets": sockets()}
    seen["qemus"], seen["tools"], seen["runners"] = processes()
    seen["traces"] = traces(asked["since"])
    if asked["role"] == "master":
        seen["files"] = files(OF_MASTER)
        seen["keys"] = keys()
        seen["luns"] = luns(asked["known"])
    else:
        seen["domains"] = domains(asked["known"])
        seen["files"] = files(LISTED)
        seen["qemus"] = processes()[0]
        seen["asides"] = asides()
        seen["backups"] = backups() if asked.get("backups") else {}
        seen["cpus"] = os.cpu_count()
        memory = re.search(r"MemTotal:\s+(\d+)", read("/proc/meminfo"))
        seen["memory_kib"] = int(memory.group(1))
        room = os.statvfs("/srv/local")
        seen["free_bytes"] = room.f_bavail * room.f_frsize
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
