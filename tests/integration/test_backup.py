"""Backups: qemu-img alone restores the content of the guest's disks at that moment, bit for bit;
whatever dies, the guest is not changed."""

import hashlib
import json
import random

import pytest

from tests.integration.hv import Hypervisor, file_disk, guest

pytestmark = pytest.mark.lab

SIZE = 64 * 1024**2
CLUSTER = 64 * 1024
VAULT = "/srv/vault"
HOME = "/srv/labbackup"
CONF = "/etc/salt/master.d/zz-backup.conf"


@pytest.fixture(scope="module")
def cloud(lab):
    yield from with_target(lab)


def with_target(lab, **more):
    """The lab with certificates and a target on the second hypervisor; more: of the target."""
    targets = {"vault": {"host": "hv2", "folder": VAULT, **more}}
    settings = {"virt": {"hosts": "hv*", "backup": {"targets": targets}}}
    lab.salt("hv*", "state.single", "virt.keys", "libvirt")
    lab.exec("master", f"cat > {CONF}", input=json.dumps(settings))
    lab.restart_master()
    yield lab
    lab.exec("master", f"rm -f {CONF}")
    lab.restart_master()


def reader(host):
    """Who may read: what that machine shows."""
    return host.call("virt.backup_reader")["authority"]


def opens(cloud, name, folder, server, port):
    """Whether QEMU there can read what is shown, with the client's certificate in a folder and
    those of the cloud or of what is served trusted."""
    script = (
        f"rm -rf /root/as && mkdir /root/as && cp {folder}/client-* /root/as && "
        "cat /etc/pki/qemu/ca-cert.pem /root/serving.pem > /root/as/ca-cert.pem; "
        "qemu-img info --object tls-creds-x509,id=t,endpoint=client,sanity-check=off,dir=/root/as "
        "--image-opts driver=nbd,export=vda,tls-creds=t,server.type=inet,"
        f"server.host={server},server.port={port}"
    )
    return cloud.exec(name, script, check=False).returncode == 0


class Box:
    """A guest whose disks are written to from outside, and what they hold by all of that."""

    def __init__(self, cloud, hosts, seed, targets=("vda",), kind="qcow2"):
        self.cloud, self.hosts, self.random = cloud, hosts, random.Random(seed)
        self.name, self.kept = "labbackup", {}
        self.held = {target: bytearray(SIZE) for target in targets}
        self.sh(f"mkdir -p {HOME}; chmod 755 {HOME}")
        for target in targets:
            self.sh(f"qemu-img create -q -f {kind} {self.file(target)} {SIZE}")
        disks = "".join(file_disk(self.file(target), target, kind) for target in targets)
        self.sh("cat > /root/labbackup.xml; virsh -q define /root/labbackup.xml; "
                "virsh -q start labbackup", input=guest(self.name, disks))  # fmt: skip

    def sh(self, script, check=True, **more):
        return self.cloud.exec("hv1", script, check=check, **more).stdout

    def file(self, target):
        return f"{HOME}/{self.name}-{target}"

    def remove(self):
        self.sh(f"virsh -q destroy {self.name}; virsh -q undefine {self.name} "
                f"--checkpoints-metadata; rm -f {HOME}/{self.name}-*", check=False)  # fmt: skip
        self.cloud.exec("hv2", f"rm -rf {VAULT}; mkdir -m 700 {VAULT}")

    @property
    def runs(self):
        return self.sh(f"virsh domstate {self.name}").strip() == "running"

    def write(self, target="vda", times=4):
        """Random pieces of random lengths, some of zeros; how many clusters they touch."""
        touched = set()
        for _ in range(times):
            length = 512 * self.random.randrange(1, 700)
            offset = 512 * self.random.randrange(0, (SIZE - length) // 512)
            pattern = self.random.choice([0, *range(1, 256, 7)])
            self._put(target, offset, length, pattern)
            touched |= set(range(offset // CLUSTER, (offset + length - 1) // CLUSTER + 1))
        return len(touched)

    def _put(self, target, offset, length, pattern):
        self.held[target][offset : offset + length] = bytes([pattern]) * length
        command = f"write -P {pattern} {offset} {length}"
        if self.runs:
            at = f"/machine/peripheral/virtio-disk{ord(target[-1]) - ord('a')}/virtio-backend"
            self.sh(["virsh", "-q", "qemu-monitor-command", self.name, "--hmp",
                     f'qemu-io -d {at} "{command}"'])  # fmt: skip
        else:
            self.sh(["qemu-io", "-c", command, "-f", "qcow2", self.file(target)])

    def digests(self):
        return {target: hashlib.sha256(held).hexdigest() for target, held in self.held.items()}

    def back_up(self, whole=False):
        """Its parts one after the other, as virt.backup has them done: (what was served, what was
        made of it)."""
        host, target = self.hosts
        look = host.call("virt.backup_look", self.name)
        plan = target.call("virt.backup_plan", VAULT, "hv1", look, full=whole)
        ident = plan["backup_id"]
        served = host.call("virt.backup_begin", self.name, ident, plan["disks"], reader(target))
        made = target.call("virt.backup_pull", VAULT, self.name, ident, "hv1", served)
        ended = host.call("virt.backup_end", self.name, ident, True, made["checkpoints"])
        assert ended == {"reason": None, "leftovers": []}
        self.kept[ident] = self.digests()
        return {disk["target"]: disk for disk in served["disks"]}, {**served, **made}

    def restored(self, ident):
        """Disk to the digest of what qemu-img alone makes of its backup."""
        found = {}
        for target in self.held:
            script = (
                f"cd {VAULT}/*/{ident} && qemu-img convert -O raw {target}.qcow2 /root/restored "
                "&& sha256sum /root/restored; rm -f /root/restored"
            )
            found[target] = self.cloud.exec("hv2", script).stdout.split()[0]
        return found

    def traces(self):
        """What a backup that is over must not leave on the host."""
        return self.sh(
            f"virsh domjobinfo {self.name} | grep Backup; ls /srv/salt-images/_backup; "
            "ls /var/lib/salt-virt/backups; ls /run/salt-virt/backups | grep sock; "
            "ss -Htln 'sport >= 10809 and sport < 10825'; "
            "pgrep -f 'export[.]export_serve[r]|storage-daemo[n]'",
            check=False,
        ).split()

    def leaves_nothing(self):
        """The process that kept the disks served may be at its very end."""
        self.cloud.wait(lambda: self.traces() == [], "nothing of the backup is left")

    def all_restored(self):
        """Whether each backup holds what the disks held then."""
        return {ident: self.restored(ident) for ident in self.kept} == self.kept


@pytest.fixture(scope="module")
def hosts(cloud):
    """The hypervisor of the guest and the machine of the target."""
    found = [Hypervisor(cloud, name) for name in cloud.hosts[:2]]
    yield found
    for one in found:
        one.close()


@pytest.fixture
def box(cloud, hosts):
    made = []

    def make(seed, **more):
        made.append(Box(cloud, hosts, seed, **more))
        return made[-1]

    cloud.exec("hv2", f"rm -rf {VAULT}; mkdir -m 700 {VAULT}")
    yield make
    for one in made:
        one.remove()


def test_what_is_restored_is_what_was_there(box):
    """Whole, then increments; each restored by qemu-img alone."""
    one = box(1)
    one.write(times=12)
    disks, made = one.back_up()
    assert made["consistency"] == "crash"
    assert "first backup" in disks["vda"]["reason"]
    for _ in range(3):
        touched = one.write()
        before = max(one.kept)
        disks, made = one.back_up()
        assert disks["vda"]["parent"] == before
        assert made["moved_bytes"] <= 1.1 * touched * CLUSTER
    assert one.all_restored()
    one.leaves_nothing()
    # the host keeps the one checkpoint that the next increment begins from
    names = one.sh("virsh checkpoint-list labbackup --name").split()
    assert names == [f"salt-virt.{max(one.kept)}"]


def test_what_is_written_meanwhile_is_in_the_next_one(box):
    one = box(2)
    one.write(times=12)
    host, target = one.hosts
    look = host.call("virt.backup_look", one.name)
    plan = target.call("virt.backup_plan", VAULT, "hv1", look)
    asked = one.name, plan["backup_id"], plan["disks"], reader(target)
    served = host.call("virt.backup_begin", *asked)
    then = one.digests()
    one.write(times=12)
    made = target.call("virt.backup_pull", VAULT, one.name, plan["backup_id"], "hv1", served)
    host.call("virt.backup_end", one.name, plan["backup_id"], True, made["checkpoints"])
    assert one.restored(plan["backup_id"]) == then
    disks, _ = one.back_up()
    assert disks["vda"]["parent"] == plan["backup_id"]
    assert one.all_restored()


def test_several_disks_and_raw_ones(box):
    one = box(3, targets=("vda", "vdb"), kind="raw")
    one.write("vda")
    one.write("vdb")
    one.back_up()
    one.write("vdb")
    disks, _ = one.back_up()
    assert "format raw" in disks["vdb"]["reason"]
    assert one.all_restored()


def test_a_guest_that_is_off(box):
    one = box(4)
    one.write()
    one.back_up()
    one.write()
    one.sh("virsh -q destroy labbackup")
    disks, made = one.back_up()
    assert made["consistency"] == "stopped"
    assert disks["vda"]["parent"] == min(one.kept)
    one.leaves_nothing()
    one.sh("virsh -q start labbackup")
    one.write()
    disks, _ = one.back_up()
    assert disks["vda"]["parent"] == sorted(one.kept)[1]
    assert one.all_restored()


def test_one_that_is_off_gets_a_checkpoint(box):
    """So the first increment after its start is one."""
    one = box(12)
    one.write()
    one.sh("virsh -q destroy labbackup")
    one.back_up()
    one.sh("virsh -q start labbackup")
    one.write()
    disks, _ = one.back_up()
    assert disks["vda"]["parent"] == min(one.kept)
    assert one.all_restored()


def test_one_that_is_off_cannot_be_started_meanwhile(box):
    one = box(5)
    one.write()
    one.sh("virsh -q destroy labbackup")
    host, target = one.hosts
    look = host.call("virt.backup_look", one.name)
    plan = target.call("virt.backup_plan", VAULT, "hv1", look)
    host.call("virt.backup_begin", one.name, plan["backup_id"], plan["disks"], reader(target))
    assert "lock" in one.cloud.exec("hv1", "virsh start labbackup", check=False).stderr
    host.call("virt.backup_end", one.name, plan["backup_id"])
    one.leaves_nothing()
    one.sh("virsh -q start labbackup")


def test_a_crash_of_qemu_makes_the_disk_a_whole_one(box):
    one = box(6)
    one.write()
    one.back_up()
    one.sh("kill -9 $(cat /run/libvirt/qemu/labbackup.pid)")
    one.cloud.wait(lambda: not one.runs, "QEMU is gone")
    one.sh("virsh -q start labbackup")
    one.write()
    disks, _ = one.back_up()
    assert disks["vda"]["parent"] is None
    assert "bitmap" in disks["vda"]["reason"]
    one.write()
    disks, _ = one.back_up()
    assert disks["vda"]["parent"] == sorted(one.kept)[1]
    one.sh("virsh -q destroy labbackup")
    disks, made = one.back_up()
    assert one.all_restored()
    # what the crash broke is in the file no more
    info = json.loads(one.sh(f"qemu-img info --output=json {one.file('vda')}"))
    bitmaps = [bitmap["name"] for bitmap in info["format-specific"]["data"]["bitmaps"]]
    assert bitmaps == made["checkpoints"]


@pytest.mark.parametrize("off", [False, True], ids=["runs", "off"])
def test_a_keeper_that_is_killed_is_cleaned_up_after(box, off):
    """By the next backup; the guest is as it was."""
    one = box(7)
    one.write()
    if off:
        one.sh("virsh -q destroy labbackup")
    host, target = one.hosts
    look = host.call("virt.backup_look", one.name)
    plan = target.call("virt.backup_plan", VAULT, "hv1", look)
    host.call("virt.backup_begin", one.name, plan["backup_id"], plan["disks"], reader(target))
    assert one.traces() != []
    asked = one.name, plan["backup_id"], plan["disks"], reader(target)
    again = host.refuses("virt.backup_begin", *asked)
    assert "is running" in again or "at work" in again
    one.sh("pkill -9 -f 'export[.]export_serve[r]'")
    keeps = "pgrep -f 'export[.]export_serve[r]'"
    one.cloud.wait(lambda: not one.sh(keeps, check=False), "it is dead")
    one.back_up()
    one.leaves_nothing()
    assert one.all_restored()
    assert one.runs is not off


def test_a_guest_that_stops_meanwhile(box):
    one = box(8)
    one.write()
    host, target = one.hosts
    look = host.call("virt.backup_look", one.name)
    plan = target.call("virt.backup_plan", VAULT, "hv1", look)
    asked = one.name, plan["backup_id"], plan["disks"], reader(target)
    served = host.call("virt.backup_begin", *asked)
    one.sh("virsh -q destroy labbackup")
    why = target.refuses("virt.backup_pull", VAULT, one.name, plan["backup_id"], "hv1", served)
    assert "hv1" in why
    one.leaves_nothing()
    ended = host.call("virt.backup_end", one.name, plan["backup_id"])
    assert "stopped" in ended["reason"]
    assert target.call("virt.backup_list", VAULT) == []
    assert "new-" not in one.cloud.exec("hv2", f"ls -A {VAULT}/*").stdout


def test_nobody_reads_but_who_was_named(box):
    """No holder of a certificate of the cloud, whatever it is for, nor one that has none."""
    one = box(9)
    one.write()
    host, target = one.hosts
    look = host.call("virt.backup_look", one.name)
    plan = target.call("virt.backup_plan", VAULT, "hv1", look)
    asked = one.name, plan["backup_id"], plan["disks"], reader(target)
    served = host.call("virt.backup_begin", *asked)
    port = served["port"]
    assert not opens(one.cloud, "hv2", "/etc/pki/qemu", "hv1", port)
    assert not opens(one.cloud, "hv1", "/var/lib/salt-virt/backup-reader", "hv1", port)
    plain = one.cloud.exec("hv2", f"qemu-img info nbd://hv1:{port}/vda", check=False)
    assert plain.returncode
    one.cloud.exec("hv2", "cat > /root/serving.pem", input=served["authority"])
    assert opens(one.cloud, "hv2", "/var/lib/salt-virt/backup-reader", "hv1", port)
    host.call("virt.backup_end", one.name, plan["backup_id"])
    one.leaves_nothing()


def test_by_the_runner(box, cloud):
    """What is asked for by name; test=True changes nothing, a target that cannot be used is one
    line."""
    one = box(10)
    one.write()
    done = cloud.run("virt.backup", one.name, test=True)
    assert done.rc == 0 and "would back up" in done.stdout, done
    assert cloud.run_json("virt.backups") == {"vault": []}
    one.leaves_nothing()
    found = cloud.run_json("virt.backup", one.name)[one.name]
    assert found["result"] is True, found
    one.kept[found["changes"]["backup"]] = one.digests()
    assert one.all_restored()
    one.leaves_nothing()
    listed = cloud.run_json("virt.backups", one.name)["vault"]
    assert [(entry["backup_id"], entry["problem"]) for entry in listed] == [(max(one.kept), None)]
    cloud.exec("hv2", f"rm -rf {VAULT}")
    done = cloud.run("virt.backup", one.name)
    assert done.rc == 1 and VAULT in done.stdout, done
    assert one.runs
    one.leaves_nothing()
    wrong = cloud.run("virt.backup", one.name, to="valut")
    assert wrong.rc == 1 and "known: vault" in wrong.stdout, wrong


@pytest.mark.slow
def test_those_that_are_due_by_the_masters_schedule(box, cloud):
    """As docs/how-to/backups.md has it. One that has a young one is left."""
    one = box(12)
    one.write()
    away = cloud.run_json("virt.backup_due", "labbackup*", test=True)[one.name]
    assert (away["result"], away["changes"]) == (None, {"backup": None}), away
    plan = {"function": "virt.backup_due", "seconds": 5,
            "kwargs": {"guests": "labbackup*", "hours": 24, "to": "vault"}}  # fmt: skip
    path = "/etc/salt/master.d/zz-schedule.conf"
    cloud.exec("master", f"cat > {path}", input=json.dumps({"schedule": {"virt_backups": plan}}))
    try:
        cloud.restart_master()
        cloud.wait(lambda: cloud.run_json("virt.backups")["vault"], "a backup", 120, 3)
    finally:
        cloud.exec("master", f"rm {path}")
        cloud.restart_master()
    found = cloud.run_json("virt.backup_due", "labbackup*")[one.name]
    assert found["result"] is True and " hours old" in found["comment"], found
    [kept] = cloud.run_json("virt.backups")["vault"]
    one.kept[kept["backup_id"]] = one.digests()
    assert one.all_restored()
    one.leaves_nothing()


def test_restored_beside_and_again(box, cloud):
    """Another guest of another name, and the guest itself after it was purged; each holds what was
    backed up. Nobody but the one hypervisor reads what is shown."""
    one = box(11)
    one.write(times=12)
    one.back_up()
    then = one.digests()["vda"]
    one.write()
    one.back_up()
    refused = cloud.run("virt.backup_restore", one.name)
    assert refused.rc == 1 and "already exists on hv1" in refused.stdout, refused
    uuid = one.sh("virsh domuuid labbackup").strip()
    shown = one.hosts[1].call("virt.backup_show", VAULT, uuid, "1", reader(one.hosts[0]))
    for name in ("hv1", "hv2"):
        cloud.exec(name, "cat > /root/serving.pem", input=shown["authority"])
        mine = opens(cloud, name, "/var/lib/salt-virt/backup-reader", "hv2", shown["port"])
        assert mine is (name == "hv1")
        assert not opens(cloud, name, "/etc/pki/qemu", "hv2", shown["port"])
    done = cloud.run_json("virt.backup_restore", one.name, backup=1, new="labother")
    try:
        assert done["labother"]["result"] is True, done
        path = "/srv/salt-images/labother_vda.qcow2"
        assert path in one.sh("virsh domblklist labother")
        assert one.sh("virsh domuuid labother") != one.sh("virsh domuuid labbackup")
        raw = f"qemu-img convert -O raw {path} /root/raw && sha256sum /root/raw; rm -f /root/raw"
        assert one.sh(raw).split()[0] == then
    finally:
        one.hosts[0].call("virt.purge", "labother")
    assert one.sh(f"ls {path}", check=False) == ""
    uuid = one.sh("virsh domuuid labbackup")
    one.sh("virsh -q destroy labbackup; virsh -q undefine labbackup --checkpoints-metadata")
    done = cloud.run_json("virt.backup_restore", one.name)
    assert done["labbackup"]["result"] is True, done
    assert one.sh("virsh domuuid labbackup") == uuid
    raw = raw.replace("labother", "labbackup")
    assert one.sh(raw).split()[0] == one.digests()["vda"]
    one.sh("virsh -q start labbackup")
    one.hosts[0].call("virt.purge", "labbackup")
