"""SIGKILL of the creation of a guest at many moments: virt.deployed completes it."""

import json
import re
import shlex
import time

import pytest

pytestmark = pytest.mark.lab

IMAGE = "/var/lib/libvirt/images/killed.qcow2"
FOLDER = "/srv/salt-images"
GUEST = {"image": IMAGE, "mem": 64, "seed": False}
# the salt-run that asks, and all that the host's minion runs; the guest's QEMU is not of that
RUNNER = ("master", "pkill -9 -f '[s]alt-run virt.deployed'")
MINION = ("hv1", "systemctl kill -s KILL salt-minion; systemctl restart salt-minion")
PHASES = {
    "asked": "true",
    "defined": "virsh dominfo {name} >/dev/null 2>&1",
    "disk": f"ls {FOLDER}/{{name}}_* >/dev/null 2>&1",
    "whole": "virsh dumpxml {name} 2>/dev/null | grep -q saltvirt: && "
    "! virsh dumpxml {name} | grep -q creating=",
    "runs": "virsh domstate {name} 2>/dev/null | grep -q running",
}


@pytest.fixture(scope="module")
def cloud(lab):
    lab.exec("hv1", f"qemu-img create -q -f qcow2 {IMAGE} 16M")
    yield lab
    lab.exec("hv1", f"rm -f {IMAGE}")


def deployed(cloud, name, **more):
    guests = json.dumps({name: {**GUEST, "host": "hv1"}})
    return cloud.run_json("virt.deployed", guests, deployment=f"d-{name}", **more)


def begin(cloud, name):
    guests = json.dumps({name: {**GUEST, "host": "hv1"}})
    words = shlex.join(["salt-run", "virt.deployed", guests, f"deployment=d-{name}"])
    cloud.exec("master", f"nohup {words} >/run/{name}.out 2>&1 </dev/null &")


def ended(cloud, name):
    """Tries until the guest runs; what was said on the way."""
    said, end = [], time.monotonic() + 1200
    while time.monotonic() < end:
        told = deployed(cloud, name, test=True)[f"d-{name}"]
        answer = deployed(cloud, name)[f"d-{name}"]
        said.append((told["comment"], answer["comment"]))
        if cloud.exec("hv1", f"virsh domstate {name}", check=False).stdout.strip() == "running":
            return said
        if "given up or killed: see salt-run virt.repair" in answer["comment"]:
            # its start was under way: that it never ran cannot be proven, so a person starts it
            assert name in cloud.run("virt.repair", f"name={name}").stdout
            assert cloud.run("virt.start", name).rc == 0
        time.sleep(2)
    raise AssertionError(said)


def purged(cloud, name):
    cloud.run("virt.purge", name, "force=True")
    return name not in cloud.exec("hv1", "virsh list --all --name").stdout.split()


@pytest.mark.parametrize(
    "killed", [pytest.param(RUNNER, marks=pytest.mark.slow, id="runner"),
               pytest.param(MINION, id="minion")],
)  # fmt: skip
@pytest.mark.parametrize(
    "phase",
    ["defined", *(pytest.param(p, marks=pytest.mark.slow) for p in PHASES if p != "defined")],
)
def test_what_is_killed_is_brought_to_its_end(cloud, killed, phase):
    name = f"k-{phase}-{killed[0]}"
    host, command = killed
    begin(cloud, name)
    look = PHASES[phase].format(name=name)
    cloud.exec("hv1", f"for i in $(seq 600); do if {look}; then break; fi; sleep 0.05; done")
    cloud.exec(host, command, check=False)
    cloud.wait_for_minion("hv1")
    try:
        said = ended(cloud, name)
        assert all(answer for _, answer in said)
        files = cloud.exec("hv1", f"ls {FOLDER} | grep {name}").stdout.split()
        assert len(files) == 1, files
        left = cloud.call("hv1", "virt.answer", "virt.leftovers")["said"]["return"]
        assert left["unfinished"] == []
        assert name not in cloud.exec("hv2", "virsh list --all --name").stdout
        assert deployed(cloud, name)[f"d-{name}"]["comment"] == "existing: 1"
    finally:
        cloud.exec("master", "pkill -9 -f '[s]alt-run virt.deployed'", check=False)
        cloud.wait(lambda: purged(cloud, name), f"{name} is removed", every_s=2)


def test_a_guest_that_is_started_half_made_stays_until_a_person_decides(cloud):
    """The process of its creation is killed while the system in its disk is seeded."""
    name, disk = "k-seeded", f"{FOLDER}/k-seeded_system.qcow2"
    given = {"image": "/var/lib/libvirt/images/debian.qcow2", "disk": None, "nic": None,
             "disks": [{"name": "system"}]}  # fmt: skip
    asked = [f"{key}={json.dumps(value)}" for key, value in given.items()]
    words = shlex.join(["salt", "hv1", "virt.init", name, "1", "256", *asked])
    cloud.exec("master", f"nohup {words} >/run/{name}.out 2>&1 </dev/null &")
    appliance = f"[q]emu-system.*{disk}"
    cloud.wait(
        lambda: not cloud.exec("hv1", f"pgrep -f '{appliance}'", check=False).returncode, "it seeds"
    )
    record = cloud.exec("hv1", f"virsh dumpxml {name}").stdout
    creator = re.search('creating="([0-9]+):', record)[1]
    cloud.exec("hv1", f"kill -9 {creator}")

    def init(**changed):
        return cloud.call("hv1", "virt.init", name, 1, 256, **{**given, **changed})

    def applied():
        """What ``virt.running`` says of it."""
        more = {"name": name, "cpu": 1, "mem": 256, "image": given["image"]}
        (answer,) = cloud.call("hv1", "state.single", "virt.running", **more).values()
        return answer

    def stays(state):
        assert cloud.exec("hv1", f"ls {disk}").stdout.strip() == disk
        assert cloud.exec("hv1", f"virsh domstate {name}").stdout.strip() == state
        assert "creating=" in cloud.exec("hv1", f"virsh dumpxml {name}").stdout

    try:
        for said in (cloud.run("virt.start", name).stdout, cloud.call("hv1", "virt.start", name)):
            assert "its creation was interrupted: run salt-run virt.repair" in said, said
        assert "/nosuch.qcow2 does not exist" in init(image="/nosuch.qcow2")
        stays("shut off")
        assert "partially created on hv1" in cloud.run("virt.repair", f"name={name}").stdout
        # a person starts it, as soon as what seeded it has ended
        cloud.exec("hv1", f"pkill -9 -f '{appliance}'", check=False)
        start = f"virsh start {name}"
        cloud.wait(lambda: not cloud.exec("hv1", start, check=False).returncode, "it is started")
        why = "was interrupted, but it is running"
        for said in (init(image="/nosuch.qcow2"), init(), applied()["comment"]):
            assert why in said, said
            stays("running")
        found = cloud.run("virt.repair", f"name={name}", "apply=True").stdout
        assert "but it is running" in found and f"virt.mark_complete vm_={name}" in found
        stays("running")
        refused = cloud.run("virt.purge", name)
        assert refused.rc and "force=True powers it off" in refused.stdout
        # and decides
        assert cloud.call("hv1", "virt.mark_complete", name) is True
        assert name not in cloud.run("virt.repair", f"name={name}").stdout
        answer = applied()
        assert (answer["result"], answer["changes"]) == (True, {}), answer
        assert cloud.run("virt.force_off", name).rc == 0
        assert cloud.run("virt.start", name).rc == 0
    finally:
        cloud.wait(lambda: purged(cloud, name), f"{name} is removed", every_s=2)
    assert cloud.exec("hv1", f"ls {FOLDER} | grep {name}", check=False).stdout == ""
