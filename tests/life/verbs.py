"""Each verb as an operator types it, and its effect on the guest. A verb is a function of a Walk:
it types commands, which must succeed, and changes the model of the guest. Half of the changes are
made to a guest that is off."""

import contextlib
import threading
import time

from tests.life import model, world

VERBS = {}
VAULT_HOST = "hv2"
# options of a disk that was detached: a volume of a pool has no suffix that tells its format
EXISTING = {"existing": True, "format": "qcow2"}
KILL_AFTER_S = (0.5, 1.5, 3, 5)


def verb(function):
    """List a verb under the function's name."""
    VERBS[function.__name__] = function
    return function


def other(walk):
    """The hypervisor that does not have the guest."""
    return next(host for host in walk.lab.hosts if host != walk.guest.host)


def off(walk):
    """Shut the guest down, if it runs."""
    if walk.guest.running:
        walk.runner("virt.shutdown", walk.guest.name, timeout=240)
        walk.guest.running = False


def sometimes_off(walk):
    """Shut the guest down before every second change."""
    if walk.number % 2:
        off(walk)


def update(walk, **named):
    """Type the guest's whole definition for virt.update. What waits for the next start gets it."""
    guest = walk.guest
    walk.module("virt.update", guest.name, **guest.definition(), **named)


@verb
def clone(walk):
    off(walk)
    new = walk.new_name()
    if walk.may_refuse(walk.guest.snapshots, "virt.clone", walk.guest.name, new):
        return
    purge_original(walk)
    walk.guest.name = new
    walk.guest.backups = []


def purge_original(walk):
    """Remove the guest that another one was made from."""
    walk.runner("virt.purge", walk.guest.name)
    walk.guest.snapshots = []


@verb
def rename(walk):
    off(walk)
    new = walk.new_name()
    if not walk.may_refuse(walk.guest.snapshots, "virt.rename", walk.guest.name, new):
        walk.guest.name = new


@verb
def add_disk(walk):
    sometimes_off(walk)
    guest, paths = walk.guest, walk.detached_files("data")
    if paths and "data" not in guest.disks:
        # its file is never overwritten: the same disk comes back
        guest.add_detached("data", paths)
        definition = guest.definition()
        definition["disks"][-1] = {**EXISTING, **definition["disks"][-1]}
        walk.module("virt.update", guest.name, **definition)
        return
    guest.add_disk("data", model.DATA_MIB)
    update(walk)


@verb
def grow_disk(walk):
    sometimes_off(walk)
    name = list(walk.guest.disks)[-1]
    size = walk.guest.disks[name]
    walk.guest.disks[name] = size + 8
    definition = walk.guest.definition()
    words = ("virt.update", walk.guest.name)
    if walk.may_refuse(walk.guest.snapshots, *words, on=walk.guest.host, **definition):
        walk.guest.disks[name] = size


@verb
def remove_disk(walk):
    sometimes_off(walk)
    disks, records = dict(walk.guest.disks), dict(walk.guest.records)
    files = walk.files()
    walk.guest.remove_disk("data")
    definition = walk.guest.definition()
    words = ("virt.update", walk.guest.name)
    if walk.may_refuse(walk.guest.snapshots, *words, on=walk.guest.host, detach=True, **definition):
        walk.guest.disks, walk.guest.records = disks, records
    for path in files - walk.files():
        walk.guest.detached[path] = disks["data"], records["data"]


@verb
def add_interface(walk):
    sometimes_off(walk)
    if "eth1" not in walk.guest.interfaces:
        walk.guest.interfaces.append("eth1")
    update(walk)


@verb
def remove_interface(walk):
    sometimes_off(walk)
    if "eth1" in walk.guest.interfaces:
        walk.guest.interfaces.remove("eth1")
    update(walk, detach=True)


@verb
def cpu(walk):
    sometimes_off(walk)
    walk.guest.cpus = 3 - walk.guest.cpus
    update(walk)
    walk.restart_later()


@verb
def memory(walk):
    sometimes_off(walk)
    least = model.MEMORY_MIB[walk.guest.firmware]
    walk.guest.memory_mib = least + 64 if walk.guest.memory_mib == least else least
    update(walk)
    walk.restart_later()


@verb
def attach_disk(walk):
    sometimes_off(walk)
    guest = walk.guest
    paths = walk.detached_files("data")
    options = EXISTING if paths else {"size": f"{model.DATA_MIB}MiB"}
    disk = {**options, **guest.disk_options()}
    words = ("virt.attach", guest.name, "data")
    if walk.may_refuse("data" in guest.disks, *words, **disk):
        return
    if paths:
        guest.add_detached("data", paths)
    else:
        guest.add_disk("data", model.DATA_MIB)


@verb
def detach_disk(walk):
    sometimes_off(walk)
    guest, files = walk.guest, walk.files()
    absent = "data" not in guest.disks
    if walk.may_refuse(absent or guest.snapshots, "virt.detach", guest.name, "data"):
        return
    numbers = guest.disks["data"], guest.records["data"]
    guest.remove_disk("data")
    for path in files - walk.files():
        guest.detached[path] = numbers


@verb
def resize(walk):
    sometimes_off(walk)
    name = list(walk.guest.disks)[-1]
    size = walk.guest.disks[name] + 8
    words = ("virt.resize", walk.guest.name, name, f"{size}MiB")
    if not walk.may_refuse(walk.guest.snapshots, *words):
        walk.guest.disks[name] = size


@verb
def attach_or_detach_interface(walk):
    sometimes_off(walk)
    guest = walk.guest
    if "eth1" in guest.interfaces:
        walk.runner("virt.detach", guest.name, interface=walk.macs()[1])
        guest.interfaces.remove("eth1")
    else:
        walk.runner("virt.attach", guest.name, bridge=model.BRIDGE)
        guest.interfaces.append("eth1")


@verb
def insert_and_eject(walk):
    sometimes_off(walk)
    walk.runner("virt.attach", walk.guest.name, iso=world.ISO)
    walk.runner("virt.detach", walk.guest.name, iso=True)


@verb
def change(walk):
    sometimes_off(walk)
    guest = walk.guest
    guest.cpus = 3 - guest.cpus
    least = model.MEMORY_MIB[guest.firmware]
    guest.memory_mib = least + 32 if guest.memory_mib == least else least
    walk.runner("virt.update", guest.name, cpu=guest.cpus, mem=f"{guest.memory_mib}MiB")
    walk.restart_later()


@verb
def boot(walk):
    sometimes_off(walk)
    walk.guest.boot_dev = "hd" if walk.guest.boot_dev != "hd" else "hd network"
    update(walk)
    walk.restart_later()


def snapshot(walk, **named):
    """Take a snapshot of the guest as it is."""
    name = f"s{walk.count}"
    walk.runner("virt.snapshot", walk.guest.name, snapshot=name, **named)
    walk.guest.take(name, bool(named) or walk.guest.external)


@verb
def snapshot_default(walk):
    sometimes_off(walk)
    kinds = {each.external for each in walk.guest.snapshots}
    if True in kinds and not walk.guest.external:
        return snapshot_external(walk)
    return snapshot(walk)


@verb
def snapshot_external(walk):
    kinds = {each.external for each in walk.guest.snapshots}
    if False in kinds:
        words = ("virt.snapshot", walk.guest.name)
        name = f"s{walk.count}"
        if not walk.may_refuse(True, *words, snapshot=name, disk_only=True):
            walk.guest.take(name, True)
        return
    snapshot(walk, disk_only=True)


@verb
def revert(walk):
    if not walk.guest.snapshots:
        assert walk.may_refuse(True, "virt.revert", walk.guest.name), "there is no snapshot"
        return
    last = walk.guest.snapshots[-1]
    if walk.may_refuse(walk.guest.lacks_layers, "virt.revert", walk.guest.name, last.name):
        return
    walk.guest.revert(last)
    walk.guest.running = False if last.external else last.running


@verb
def delete_snapshots(walk):
    sometimes_off(walk)
    words = ("virt.delete_snapshots", walk.guest.name)
    if not walk.may_refuse(walk.guest.lacks_layers, *words, all=True):
        walk.guest.snapshots = []


def move(walk, **named):
    """Migrate to the other hypervisor, if the guest's snapshots allow it."""
    target = other(walk)
    words = ("virt.migrate", walk.guest.name, target)
    if not walk.may_refuse(walk.guest.snapshots, *words, **named):
        walk.guest.host = target


@verb
def migrate_live(walk):
    move(walk)


@verb
def migrate_cold(walk):
    off(walk)
    move(walk)


@verb
def evacuate(walk):
    host = walk.guest.host
    try:
        if not walk.may_refuse(walk.guest.snapshots, "virt.evacuate", host):
            walk.guest.host = other(walk)
            walk.verify_answer()
    finally:
        walk.runner("virt.restore", host)
        walk.guest.host = host


@verb
def backup(walk):
    sometimes_off(walk)
    if walk.may_refuse(walk.guest.snapshots, "virt.backup", walk.guest.name):
        return
    walk.guest.backups.append(walk.guest.definitions_folder())


def last_backup(walk):
    """Whether the guest has a backup, which is taken if it has none."""
    if not walk.guest.backups:
        backup(walk)
    return bool(walk.guest.backups)


def go_back(walk):
    """Set the model of the guest to its last backup."""
    walk.guest.restore(walk.guest.backups[-1])
    walk.guest.snapshots = []


@verb
def restore_over(walk):
    if not last_backup(walk):
        return
    words = ("virt.backup_restore", walk.guest.name)
    if walk.may_refuse(walk.guest.snapshots, *words, in_place=True, stop=True):
        return
    walk.runner("virt.backup_confirm", walk.guest.name)
    go_back(walk)
    walk.guest.running = False


@verb
def restore_beside(walk, **named):
    if not last_backup(walk):
        return
    new = walk.new_name()
    off(walk)
    walk.runner("virt.backup_restore", walk.guest.name, new=new, **named)
    if named:
        walk.runner("virt.backup_instant", new, timeout=900)
    purge_original(walk)
    go_back(walk)
    walk.guest.name, walk.guest.backups = new, []
    walk.guest.running = bool(named)
    walk.locate()


@verb
def restore_instant(walk):
    restore_beside(walk, instant=True)


@verb
def restart(walk):
    off(walk)
    walk.runner("virt.start", walk.guest.name)
    walk.guest.running = True


@verb
def crash(walk):
    walk.kill_emulator()
    walk.guest.running = False


@verb
def reset(walk):
    walk.runner("virt.reset", walk.guest.name)


@verb
def host_reboot(walk):
    world.reboot(walk.lab, walk.guest.host)
    walk.log(f"# power of {walk.guest.host} off and on")
    walk.guest.running = False


@verb
def killed(walk):
    """Kill the process that makes a guest, make the same guest again, and remove it."""
    name = walk.new_name()
    after = KILL_AFTER_S[walk.number % len(KILL_AFTER_S)]
    killer = threading.Timer(after, lambda: walk.kill_job(walk.guest.host))
    killer.start()
    words = walk.init_words(name)
    with contextlib.suppress(walk.Failed):
        walk.runner(*words[0], **words[1])
    killer.join()
    time.sleep(0.5)
    walk.log(f"# the process of virt.init on {walk.guest.host} was killed after {after} s")
    walk.lab.wait_for_minion(*walk.lab.hosts)
    with contextlib.suppress(walk.Failed):
        walk.runner("virt.repair", apply=True)
    if not walk.exists(name):
        walk.runner(*words[0], **words[1])
    walk.runner("virt.purge", name, force=True)


@verb
def purge(walk):
    walk.runner("virt.purge", walk.guest.name, force=True)
    walk.begin(walk.new_name())
