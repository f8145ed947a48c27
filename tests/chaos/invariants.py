"""The invariants, evaluated on recorded data: pure. A violation is a line that begins with its
word."""

import re

POLICY = {"overhead_kib": 62 * 1024, "vcpu_kib": 8 * 1024, "ratio": 1 / 512}
LOCAL = "/srv/local/"
OF_FORMAT = 1024**2  # the tables of a qcow2 file and of ext4
# of libvirt, QEMU and Salt, that stay when a guest goes, or come and go without one
STAYS = re.compile(
    r"/var/lib/salt-virt/(same\.json|firewall\.|secret-key)"
    r"|^/run/salt-virt|^/var/lib/libvirt/(dnsmasq|boot|qemu/(channel|checkpoint|dump|nvram|ram|"
    r"save|snapshot|varstore)(/target)?$)|^/run/libvirt/qemu(/(dbus|slirp|swtpm|passt))?$"
    r"|^/tmp(/systemd-private|/\.)|^/var/tmp/systemd-private"
    r"|^/var/lib/libvirt/qemu/(channel/target/)?domain-"
    r"|^/var/cache/salt/master/virt/(deployments|locks|seen|slots|starts)"
    r"|^/var/cache/salt/master/virt/[a-z]+$|^/var/cache/salt/master/virt/[a-z]+\.(lock|json)$"
    r"|^/etc/salt/pki/master/(libvirt|\.|(virtkeys(/hv\d+)?|virt-accepted|virtpillars)$)"
    r"|^/var/lib/salt-virt/(arrivals|making|target_leftovers|migrations|moved)$|/var/lib/salt-virt/moved/"
    r"|^/var/lib/salt-virt/(aside|backups)$|^/var/lib/salt-virt/backup-reader|^/srv/local/_backup$"
    r"|^/var/lib/salt-virt/migrations/left$|^/srv/local/_seed$|^/srv/(local|gluster)/\.salt-virt[^/]*$"
)


def hosts(seen):
    """{host: what was seen there}."""
    return {name: one for name, one in seen.items() if name != "master"}


def places(seen, name):
    """{host: the domain of that name}."""
    return {
        host: one["domains"][name] for host, one in hosts(seen).items() if name in one["domains"]
    }


def identity(host, disk):
    """What a disk is, wherever it is looked at."""
    if disk["kind"] == "network":
        return f"network:{disk['path']}"
    if disk["path"].startswith("/srv/gluster/"):
        return f"shared:{disk['path']}"
    return f"{host}:{disk['path']}"


def written_twice(seen):
    """No disk is writable in two guests that are active."""
    users = {}
    for host, one in hosts(seen).items():
        for name, domain in one["domains"].items():
            for disk in domain["disks"] if domain["state"] in ("running", "paused") else ():
                if not disk["readonly"] and disk["device"] == "disk":
                    users.setdefault(identity(host, disk), set()).add(f"{name} on {host}")
    return [f"twice: {disk} is written by {', '.join(sorted(who))}"
            for disk, who in sorted(users.items()) if len(who) > 1]  # fmt: skip


def runs_twice(seen, names):
    """No guest runs on two hosts, at any time."""
    found = []
    for name in names:
        running = [h for h, d in places(seen, name).items() if d["state"] == "running"]
        if len(running) > 1:
            found.append(f"twice: {name} runs on {', '.join(sorted(running))}")
    return found


def on_one_host(seen, alive):
    """Each living guest is on exactly one host."""
    found = []
    for guest in alive:
        there = places(seen, guest.name)
        if len(there) != 1:
            states = ", ".join(f"{host} ({one['state']})" for host, one in sorted(there.items()))
            found.append(f"place: {guest.name} is on {states or 'no host'}")
        for host, one in there.items():
            if not one["persistent"]:
                found.append(f"place: {guest.name} on {host} is not defined, it only runs")
    return found


def of_one_uuid(seen):
    """No two guests have one UUID: by it backups are known."""
    names = {}
    for one in hosts(seen).values():
        for name, domain in one["domains"].items():
            names.setdefault(domain["uuid"], set()).add(name)
    return [f"uuid: {', '.join(sorted(some))} have the UUID {uuid}"
            for uuid, some in sorted(names.items()) if len(some) > 1]  # fmt: skip


def kept(seen):
    """Each backup has the records of one moment."""
    return [f"backup: {path}: {why}" for one in hosts(seen).values()
            for path, why in sorted(one["backups"].items()) if why]  # fmt: skip


def contents(seen, alive):
    """Each disk of a living guest is there, with all that was written to it."""
    found = []
    for guest in alive:
        for host, one in places(seen, guest.name).items():
            read = one["content"]
            read = _of_lun(seen, guest, read)
            if read is None:
                found.append(f"disk: {guest.name} on {host} has no disk vda")
            elif read["problem"]:
                found.append(f"disk: {guest.name} on {host}: {read['problem']}")
            elif read["count"] is not None and read["count"] < guest.floor:
                found.append(
                    f"disk: {guest.name} on {host} has {read['count']} records, "
                    f"it had {guest.floor}"
                )
    return found


def count(seen, guest):
    """How many records a guest's disk has; None where it cannot be said."""
    for one in places(seen, guest.name).values():
        read = _of_lun(seen, guest, one["content"])
        return read and read["count"]
    return None


def _of_lun(seen, guest, read):
    """What is on a guest's first disk, which may be on the LUN itself."""
    of_lun = guest.lun and read is not None and read["count"] is None
    return seen["master"]["luns"][f"lun{guest.lun}"] if of_lun else read


def of_name(name, path):
    """Is this path of a guest of that name?"""
    return re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-]*g\d)(?!\d)", path) is not None


def nothing_left(seen, gone, named=""):
    """Nothing of a guest that is gone is anywhere."""
    found = []
    for guest in gone:
        for machine, one in sorted(seen.items()):
            if guest.name in one.get("domains", ()):
                found.append(f"left: {guest.name} is defined on {machine}")
            if guest.name in one["qemus"]:
                found.append(f"left: QEMU of {guest.name} runs on {machine}")
            for path in one["files"]:
                told = path in guest.named or path.rpartition("/")[2] in guest.named
                told = told or path in guest.may_stay
                if of_name(guest.name, path) and not told and not _of_locks(path):
                    found.append(f"left: {path} on {machine}")
    return found


def _of_locks(path):
    """Lock files stay: it is who holds one that counts. So does a host's word that a guest moved
    away, which keeps its SLS from making it a second time."""
    stays = ("/run/salt-virt", "/var/cache/salt/master/virt/locks", "/var/lib/salt-virt/moved/")
    return path.startswith(stays)


def keys(seen, alive, machines):
    """No key is accepted or waits but those of hosts and of guests, and those have theirs."""
    known = {guest.name for guest in alive}
    found = []
    for kind, names in seen["master"]["keys"].items():
        for name in names:
            if name not in known and name not in machines:
                found.append(f"key: {name} is {kind}")
    accepted = seen["master"]["keys"]["accepted"]
    for guest in alive:
        if guest.seeded and guest.name not in accepted:
            found.append(f"key: {guest.name} has none")
    return found


def promised_disks(seen):
    """What the disks of a host's guests may still grow is free there, or was until snapshots
    made disks larger than they are."""
    found = []
    for host, one in sorted(hosts(seen).items()):
        disks = [d for domain in one["domains"].values() for d in domain["disks"] if "size" in d]
        left = {d["path"]: d["size"] - d["has"] for d in disks if d["path"].startswith(LOCAL)}
        grow = sum(size for size in left.values() if size > 0)
        beyond = -sum(size for size in left.values() if size < 0)
        if grow > one["free_bytes"] + beyond + len(left) * OF_FORMAT:
            found.append(f"promised: disks on {host} may grow by {grow} bytes, "
                         f"{one['free_bytes']} are free")  # fmt: skip
    return found


def promised(seen, held_cpus):
    """Memory, CPUs and disks: no host has promised more than its policy allows."""
    found = []
    for host, one in sorted(hosts(seen).items()):
        cpus = sum(domain["vcpus"] for domain in one["domains"].values())
        if cpus > held_cpus:
            found.append(f"promised: {cpus} vCPUs on {host}, {held_cpus} are allowed")
        memory = sum(
            d["memory_kib"] * (1 + POLICY["ratio"]) + POLICY["overhead_kib"]
            + d["vcpus"] * POLICY["vcpu_kib"] for d in one["domains"].values()
        )  # fmt: skip
        reserve = max(512 * 1024, min(one["memory_kib"] * 0.05, 8 * 1024**2))
        if memory > one["memory_kib"] - reserve:
            found.append(f"promised: {memory:.0f} KiB of memory on {host}")
    return found


def qemus(seen):
    """The processes of QEMU are those of the domains that are active."""
    found = []
    for host, one in sorted(hosts(seen).items()):
        active = {n for n, d in one["domains"].items() if d["state"] in ("running", "paused")}
        for name in sorted(set(one["qemus"]) ^ active):
            found.append(f"qemu: {name} on {host}: a process without a guest, or a guest without")
    return found


def logged(seen):
    """No traceback of ours in the daemons' logs."""
    return [f"traceback: {machine} logged: {text}"
            for machine, one in sorted(seen.items()) for text in one["traces"]]  # fmt: skip


def quiet(seen):
    """Nobody is at work: no lock is held, no tool runs."""
    found = []
    for machine, one in sorted(seen.items()):
        found += [f"lock: {path} is held on {machine}" for path in one["held"]]
        found += [f"tool: {text} runs on {machine}" for text in one["tools"]]
        found += [f"tool: {text} runs on {machine}" for text in one["runners"]]
    return found


def same_as_before(seen, before, stays=(), named=""):
    """With the last guest everything that came with them has gone. stays: paths that may be
    there. named: what purges have printed: a path in it was left to the operator."""
    found = []
    for machine, one in sorted(seen.items()):
        old = before[machine]
        for kind in ("mounts", "loops", "sockets"):
            new = sorted(set(one[kind]) - set(old[kind]))
            found += [f"left: {kind[:-1]} {what} on {machine}" for what in new]
            if kind == "mounts":
                lost = sorted(set(old[kind]) - set(one[kind]))
                found += [f"lost: mount {what} on {machine}" for what in lost]
        for path in sorted(set(one["files"]) - set(old["files"])):
            if not STAYS.search(path) and path not in stays and path not in named:
                found.append(f"left: {path} on {machine}")
    return found


def slowness(load, cpus):
    """How many times longer an emulated guest may take to boot beside all else that is at work."""
    return min(max(1, load / cpus), 10)


def after_step(seen, model):
    """What holds at any time, whatever is broken."""
    return [*runs_twice(seen, model.guests), *written_twice(seen), *logged(seen)]


def settled(seen, model, machines, held_cpus):
    """What holds when nothing is broken any more and what was broken off has been ended."""
    alive = model.of("alive")
    return [
        *after_step(seen, model), *on_one_host(seen, alive), *of_one_uuid(seen),
        *contents(seen, alive),
        *nothing_left(seen, model.of("gone")), *keys(seen, alive, machines),
        *promised(seen, held_cpus), *promised_disks(seen), *qemus(seen), *quiet(seen),
    ]  # fmt: skip
