"""Chains of backups follow the guest: after each migration the next backup is an increment, or the
disk is read in full with a reason; qemu-img restores it bit for bit."""

import json

import pytest

from tests.integration.hv import Hypervisor
from tests.integration.migration import counter, shared
from tests.integration.test_backup import CLUSTER, HOME, VAULT, Box, cloud  # noqa: F401

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def moving(lab, tmp_path_factory):
    """Both hypervisors migrate, and see one folder."""
    counter.install(lab)
    shared.mount(lab, tmp_path_factory.mktemp("shared"))
    yield
    shared.unmount(lab)


@pytest.fixture(scope="module")
def hypervisors(moving, cloud):  # noqa: F811
    found = {name: Hypervisor(cloud, name) for name in cloud.hosts}
    yield found
    for one in found.values():
        one.close()


class Mover(Box):
    """A guest that moves. folders: disk to its folder; at: the host that it is on."""

    def __init__(self, cloud, hypervisors, seed, folders):  # noqa: F811
        self.at, self.hypervisors, self.folders = "hv1", hypervisors, folders
        self.made = []
        super().__init__(cloud, (hypervisors["hv1"], hypervisors["hv2"]), seed, tuple(folders))

    def sh(self, script, check=True, **more):
        if "virsh -q define" in script:  # shared storage without a cluster's file system
            more["input"] = more["input"].replace("type='qcow2'/>", "type='qcow2' cache='none'/>")
        return self.cloud.exec(self.at, script, check=check, **more).stdout

    def file(self, target):
        return f"{self.folders[target]}/{self.name}-{target}"

    def move(self, **how):
        """To the other host."""
        other = "hv2" if self.at == "hv1" else "hv1"
        answer = self.hypervisors[self.at].call("virt.migrate", self.name, other, **how)
        assert "checkpoints_lost" not in answer
        self.at = other
        return answer

    def back_up(self, whole=False):
        host, target = self.hypervisors[self.at], self.hypervisors["hv2"]
        look = host.call("virt.backup_look", self.name)
        plan = target.call("virt.backup_plan", VAULT, self.at, look, full=whole)
        ident = plan["backup_id"]
        reader = target.call("virt.backup_reader")["authority"]
        served = host.call("virt.backup_begin", self.name, ident, plan["disks"], reader)
        made = target.call("virt.backup_pull", VAULT, self.name, ident, self.at, served)
        ended = host.call("virt.backup_end", self.name, ident, True, made["checkpoints"])
        assert ended == {"reason": None, "leftovers": []}
        self.kept[ident] = self.digests()
        self.made.append(ident)
        return {disk["target"]: disk for disk in served["disks"]}, made

    def write_all(self):
        """How many clusters of all its disks."""
        return sum(self.write(target) for target in self.held)

    def next_is_an_increment(self, touched):
        """All disks, from what was last made, and no more than was written."""
        disks, made = self.back_up()
        for target, disk in disks.items():
            assert disk["parent"] == self.made[-2], (target, disk["reason"])
        assert made["moved_bytes"] <= 1.1 * touched * CLUSTER

    def checkpoints(self, host):
        script = f"virsh checkpoint-list {self.name} --name"
        return self.cloud.exec(host, script, check=False).stdout.split()

    def bitmaps(self, target="vda"):
        info = json.loads(self.sh(f"qemu-img info -U --output=json {self.file(target)}"))
        return {one["name"] for one in info["format-specific"]["data"].get("bitmaps", ())}

    def remove(self):
        for host in self.cloud.hosts:
            script = (
                f"virsh -q destroy {self.name}; virsh -q undefine {self.name} "
                f"--checkpoints-metadata --snapshots-metadata; rm -f {HOME}/{self.name}-* "
                f"{shared.FOLDER}/{self.name}-* {counter.JOURNALS}/{self.name}.*"
            )
            self.cloud.exec(host, script, check=False)
        self.cloud.exec("hv2", f"rm -rf {VAULT}; mkdir -m 700 {VAULT}")


@pytest.fixture
def mover(cloud, hypervisors):  # noqa: F811
    made = []

    def make(seed, **folders):
        cloud.exec("hv2", f"mkdir -p {HOME}; chmod 755 {HOME}; rm -rf {VAULT}; "
                          f"mkdir -m 700 {VAULT}")  # fmt: skip
        made.append(Mover(cloud, hypervisors, seed, folders))
        return made[-1]

    yield make
    for one in made:
        one.remove()


def test_live_with_a_shared_and_a_copied_disk(mover):
    """There and back; the host that it leaves knows no checkpoint any more."""
    one = mover(21, vda=shared.FOLDER, vdb=HOME)
    one.write_all()
    one.back_up()
    for other in ("hv1", "hv2"):
        touched = one.write_all()
        answer = one.move()
        assert answer["disks"] == {"vda": "shared", "vdb": "copy"}
        assert one.checkpoints(other) == []
        assert one.checkpoints(one.at) == [f"salt-virt.{one.made[-1]}"]
        one.next_is_an_increment(touched + one.write_all())
    assert one.all_restored()


@pytest.mark.slow
def test_off_with_a_shared_and_a_copied_disk(mover):
    one = mover(22, vda=shared.FOLDER, vdb=HOME)
    one.write_all()
    one.back_up()
    touched = one.write_all()
    one.sh("virsh -q destroy labbackup")
    one.move()
    assert one.checkpoints("hv1") == []
    one.next_is_an_increment(touched)
    one.sh("virsh -q start labbackup")
    one.next_is_an_increment(one.write_all())
    assert one.all_restored()


def test_a_copy_from_before_the_last_backup_is_not_believed(mover):
    """The guest is moved and its definition and disk stay; backed up there, while off; then it is
    gone there, and what had stayed is started. Its bitmap knows nothing of what was backed up."""
    one = mover(23, vda=HOME)
    one.write()
    one.back_up()
    one.sh("virsh -q destroy labbackup")
    before = bytes(one.held["vda"])
    one.move(undefinesource=False)
    one.write()
    one.back_up()
    one.sh("virsh -q undefine labbackup --checkpoints-metadata")
    one.at, one.held["vda"] = "hv1", bytearray(before)
    one.sh("virsh -q start labbackup")
    one.write()
    disks, _ = one.back_up()
    assert disks["vda"]["parent"] is None
    assert "checkpoint" in disks["vda"]["reason"]
    assert one.all_restored()


@pytest.mark.slow
@pytest.mark.parametrize("crashed", [False, True], ids=["stopped", "crashed"])
def test_started_elsewhere_by_who_knows_no_checkpoints(mover, crashed):
    """As after its host has died. What it wrote there is never missed; not even when somebody
    tells libvirt of the old checkpoint again."""
    one = mover(24, vda=shared.FOLDER)
    one.write()
    one.back_up()
    told = one.sh(f"virsh checkpoint-dumpxml labbackup salt-virt.{one.made[-1]} --no-domain")
    one.write()
    if crashed:
        one.sh("kill -9 $(cat /run/libvirt/qemu/labbackup.pid)")
        one.cloud.wait(lambda: not one.runs, "QEMU is gone")
    else:
        one.sh("virsh -q destroy labbackup")
    xml = one.sh("virsh dumpxml labbackup")
    one.sh("virsh -q undefine labbackup --checkpoints-metadata")
    one.at = "hv2"
    one.sh("cat > /root/labbackup.xml; virsh -q define /root/labbackup.xml; "
           "virsh -q start labbackup", input=xml)  # fmt: skip
    one.write()
    disks, _ = one.back_up()
    assert "hv2 does not know the checkpoint" in disks["vda"]["reason"]
    last = f"salt-virt.{one.made[-1]}"
    assert one.checkpoints("hv2") == [last]
    one.write()
    one.sh("cat > /root/old.xml; virsh -q checkpoint-create labbackup /root/old.xml --redefine",
           input=told)  # fmt: skip
    disks, _ = one.back_up()
    assert disks["vda"]["parent"] == one.made[-2], "of its own last one"
    assert one.all_restored()


@pytest.mark.slow
def test_clone_and_rename(mover, cloud):  # noqa: F811
    """A clone begins anew and has no bitmaps; a guest of another name goes on."""
    one = mover(25, vda=HOME)
    one.write()
    one.back_up()
    one.sh("virsh -q destroy labbackup")
    host = one.hypervisors["hv1"]
    host.call("virt.clone", "labbackup", "labclone", seed=False)
    try:
        look = host.call("virt.backup_look", "labclone")
        assert look["checkpoints"] == []
        assert [disk["bitmaps"] for disk in look["disks"]] == [{}]
        plan = one.hypervisors["hv2"].call("virt.backup_plan", VAULT, "hv1", look)
        assert "first backup" in plan["disks"][0]["reason"]
    finally:
        host.call("virt.purge", "labclone")
    touched = one.write()
    before = one.checkpoints("hv1")
    host.call("virt.rename", "labbackup", "labrenamed", seed=False)
    try:
        one.name = "labrenamed"
        one.sh("systemctl restart libvirtd")
        assert one.checkpoints("hv1") == before != []
        assert one.sh("ls /var/lib/libvirt/qemu/checkpoint | grep -x labbackup", check=False) == ""
        one.next_is_an_increment(touched)
        assert one.all_restored()
    finally:
        host.call("virt.rename", "labrenamed", "labbackup", seed=False)
        one.name = "labbackup"


@pytest.mark.slow
def test_a_move_that_fails_leaves_the_chain(mover):
    """It is slowed down, and ended while its disk is copied; then QEMU there is killed."""
    one = mover(26, vda=HOME)
    one.write(times=40)
    one.back_up()
    touched = one.write()
    for how in ("abort", "kill"):
        one.sh("setsid salt-call --local virt.migrate labbackup hv2 max_bandwidth=1 "
               ">/root/move 2>&1 &")  # fmt: skip
        one.cloud.wait(lambda: "File processed" in one.sh("virsh domjobinfo labbackup",
                       check=False), "it is copied")  # fmt: skip
        if how == "abort":
            one.hypervisors["hv1"].call("virt.migrate_abort", "labbackup")
        else:
            one.sh("pkill -9 -f 'virt.migrate labbacku[p]'; virsh domjobabort labbackup")
        one.cloud.wait(lambda: not one.sh("pgrep -f 'virt.migrate labbacku[p]'", check=False)
                       and "None" in one.sh("virsh domjobinfo labbackup"), "it ended")  # fmt: skip
        done = one.cloud.run("virt.migrate_recover", "labbackup")
        assert done.rc == 0, done
        assert one.checkpoints("hv1") == [f"salt-virt.{one.made[-1]}"]
        one.next_is_an_increment(touched)
        touched = one.write()
    one.move()
    one.next_is_an_increment(touched)
    assert one.all_restored()
