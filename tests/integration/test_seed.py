"""From an image to an accepted minion, on real hypervisors. The guests are seeded through FUSE,
which takes a second instead of the ten seconds of libguestfs, which the test of the tutorial uses.
Tests that boot a guest are slow."""

import contextlib
import json
import os

import pytest

from tests.integration.seeding import images
from tests.integration.seeding.host import PYTHON, Host
from tests.lab.fixtures import recipe
from tests.lab.sh import LabError

pytestmark = pytest.mark.lab

IMAGE = "/var/lib/libvirt/images/debian.qcow2"
PUB = "/etc/salt/pki/minion/minion.pub"
CONFIG = """\
virt:
  placement: {cpu_ratio: 16}
  seed: {backend: fuse, bootstrap: 'salt://lab-bootstrap.sh'}"""
CYCLES = 20 if os.environ.get("SLOW") else 2
# what a bootstrap script does, as far as it can where nothing can be fetched
BOOTSTRAP = r"""#!/bin/sh -e
ln -sf /opt/salt/bin/salt-minion /opt/salt/bin/salt-call /usr/bin/
cat > /etc/systemd/system/salt-minion.service <<UNIT
[Unit]
Wants=network-online.target
After=network-online.target
[Service]
Type=notify
NotifyAccess=all
ExecStart=/usr/bin/salt-minion
[Install]
WantedBy=multi-user.target
UNIT
systemctl enable salt-minion.service
"""
MANY = """
import json, sys
import salt.client
client = salt.client.LocalClient()
names = [f"many{n}" for n in range(10)]
started = [
    client.run_job("hv1", "virt.init", kwarg=dict(name=name, cpu=1, mem=64, start=False,
        image="salt://many.qcow2", enable_qcow=True, nic=None,
        disks=[dict(name="system", size=1500)]))
    for name in names
]
found = {}
for name, job in zip(names, started):
    for answer in client.get_cli_returns(job["jid"], job["minions"], timeout=1200):
        found[name] = answer["hv1"]["ret"]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def hv1(lab):
    host = Host(lab, "hv1")
    lab.exec("master", ["sh", "-c", f"cat > /srv/salt/lab-bootstrap.sh <<'EOF'\n{BOOTSTRAP}\nEOF"])
    host.configure(CONFIG)
    yield host
    host.configure(None)
    lab.exec("master", ["sh", "-c", "cd /srv/salt && rm -f lab-bootstrap.sh many.qcow2 own.sh"])


@pytest.fixture(autouse=True)
def nothing_is_left(hv1):
    """Whatever a test does: afterwards the host has what it had before; but for the folder of a
    seeding that was killed in another test, which the next seeding takes away."""
    before = hv1.state()
    yield

    def more_or_less():
        after = hv1.state()
        dead = [line for line in before if line.startswith("/run/salt-virt/") and line not in after]
        found = set(before).symmetric_difference(after) - set(dead)
        return [line for line in found if not line.startswith("/srv/salt-images/_base/")]

    # what a killed one left may be at its very end
    with contextlib.suppress(LabError):
        hv1.lab.wait(lambda: not more_or_less(), "all is as it was", 12)
    assert more_or_less() == []


def init(hv1, name, **more):
    wanted = {"image": IMAGE, "start": False, "nic": None, "cpu": 1, "mem": 64, **more}
    return hv1.call("virt.init", name=name, **wanted)


def disk_of(made):
    return made["disks"][0]["path"]


def accepted(lab, name):
    """The key the master accepts for a name, or None."""
    done = lab.exec("master", ["cat", f"/etc/salt/pki/master/minions/{name}"], check=False)
    return done.stdout if done.returncode == 0 else None


def test_cycles_of_one_name_have_equal_keys_each_time(lab, hv1):
    seen = set()
    for _ in range(CYCLES):
        done = lab.run("virt.init", "cycle", 1, 64, IMAGE, host="hv1", start=False)
        assert done.rc == 0, done.stdout + done.stderr
        inside = hv1.inside("/srv/salt-images/cycle_system.qcow2", PUB, "/etc/hostname")
        assert inside["/etc/hostname"] == "cycle\n"
        assert accepted(lab, "cycle").strip() == inside[PUB].strip()
        seen.add(inside[PUB])
        assert lab.run("virt.purge", "cycle", "force=True").rc == 0
        assert accepted(lab, "cycle") is None
    assert len(seen) == CYCLES


def test_what_is_in_a_seeded_disk(hv1):
    paths = ["/etc/resolv.conf", "/etc/machine-id", "/etc/salt/minion", "/etc/salt/grains"]
    keep = hv1.inside(IMAGE, *paths)
    made = init(hv1, "inside", grains={"role": "web"}, startup_states="highstate")
    assert made["pub_key"], made
    found = hv1.inside(disk_of(made), *paths, PUB, "/etc/salt/pki/minion/minion_master.pub")
    assert found["/etc/resolv.conf"] == keep["/etc/resolv.conf"]
    assert found["/etc/machine-id"] == ""
    assert found[PUB] == made["pub_key"]
    assert '"role": "web"' in found["/etc/salt/minion"]
    assert '"startup_states": "highstate"' in found["/etc/salt/minion"]
    masters = hv1.sh("cat /etc/salt/pki/minion/minion_master.pub")
    assert found["/etc/salt/pki/minion/minion_master.pub"] == masters
    hv1.call("virt.purge", vm_="inside")


def test_the_master_accepts_from_a_host_only_what_it_allowed(lab, hv1):
    init(hv1, "allowed")
    assert accepted(lab, "allowed") is None
    hv1.call("virt.purge", vm_="allowed")
    assert lab.run("virt.authorize", "allowed", "hv1").rc == 0
    made = init(hv1, "allowed")
    assert accepted(lab, "allowed").strip() == made["pub_key"].strip()
    assert lab.run("virt.purge", "allowed", "force=True").rc == 0


def test_the_key_of_another_machine_stays(lab, hv1):
    other = lab.exec("master", ["cat", "/etc/salt/pki/master/minions/hv2"]).stdout
    lab.exec("master", ["cp", *(f"/etc/salt/pki/master/minions/{n}" for n in ("hv2", "twin"))])
    try:
        done = lab.run("virt.init", "twin", 1, 64, IMAGE, host="hv1", start=False)
        assert done.rc != 0
        assert "salt-key -d twin" in done.stdout + done.stderr
        assert accepted(lab, "twin") == other
    finally:
        lab.exec("master", ["rm", "/etc/salt/pki/master/minions/twin"])


def test_ten_at_once_share_one_copy(lab, hv1):
    lab.exec("master", ["cp", "/srv/salt/debian.qcow2", "/srv/salt/many.qcow2"])
    made = json.loads(lab.exec("master", [PYTHON, "-c", MANY], timeout=3000).stdout)
    made_by_name = {name: one for name, one in made.items() if isinstance(one, dict)}
    try:
        assert len(made) == 10
        assert [one for one in made.values() if isinstance(one, str)] == []
        kept = hv1.call("virt.images")
        [mine] = [image for image in kept.values() if image["source"] == "salt://many.qcow2"]
        assert mine["used_by"] == sorted(made)
        keys = {hv1.inside(disk_of(one), PUB)[PUB] for one in made.values()}
        assert keys == {one["pub_key"] for one in made.values()}
        assert len(keys) == 10
    finally:
        for name in made_by_name:
            hv1.call("virt.purge", vm_=name)


def test_the_volume_for_cloud_init_goes_when_the_guest_has_reported_in(lab, hv1):
    script = "#!/bin/sh\necho {{ name }} is {{ grains_of_guest.role }}, {{ nics|length }} NICs\n"
    lab.exec("master", ["sh", "-c", f"cat > /srv/salt/own.sh <<'EOF'\n{script}EOF"])
    given = {"host": "hv1", "start": False, "nic": None, "seed": "cloud-init"}
    own = {"user_data": "salt://own.sh", "grains": {"role": "web"}}
    done = lab.run("virt.init", "ejected", 1, 64, IMAGE, **given, **own)
    assert done.rc == 0, done.stdout + done.stderr
    volume = "/srv/salt-images/_seed/ejected.iso"
    assert hv1.sh(f"stat -c %a {volume}; virsh domblklist ejected | grep -c {volume}") == "600\n1\n"
    assert "echo ejected is web, 0 NICs" in hv1.sh(USER_DATA.format(volume, PYTHON))
    # the event of a start can be forged: one that has never reached the master keeps its volume
    done = lab.run("virt.seed_eject", "ejected")
    assert (done.rc, "ejected has not reached this master yet" in done.stdout) == (1, True), done
    assert hv1.sh(f"ls {volume}") == f"{volume}\n"
    lab.exec("master", [PYTHON, "-c", REACHED, "ejected"])
    for _ in range(2):
        done = lab.run("virt.seed_eject", "ejected")
        assert "ejected on hv1 has no" in done.stdout, done
    assert hv1.sh(f"ls {volume} 2>/dev/null; virsh dumpxml ejected | grep {volume}; true") == ""
    assert "is not a guest that this master created" in lab.run("virt.seed_eject", "hv2").stdout
    assert lab.run("virt.purge", "ejected", "force=True").rc == 0


# what the master writes down of a minion that has reached it with its key
REACHED = """
import sys, salt.cache, salt.config
opts = salt.config.master_config("/etc/salt/master")
salt.cache.factory(opts).store("grains", sys.argv[1], {"id": sys.argv[1]})
salt.cache.factory(opts).store("pillar", sys.argv[1], {"x": 1})
"""
USER_DATA = """
xorriso -osirrox on -indev {0} -extract /user-data /tmp/own 2>/dev/null
{1} -c "import email
for part in email.message_from_file(open('/tmp/own')).walk():
    print((part.get_payload(decode=True) or b'').decode())"
rm -f /tmp/own
"""
FIXED = {
    **{"name": "eth0", "type": "bridge", "source": "br0"},
    **{"addresses": ["10.77.0.90/24"], "nameservers": ["10.77.0.1"]},
}
STEPS = {
    "while the image is copied": "ls /srv/salt-images/_base/.partial/* >/dev/null 2>&1",
    "when it is defined": "virsh list --all --name | grep -q victim",
    "while the disk is made": "ls /srv/salt-images/.victim_system.qcow2.part >/dev/null 2>&1",
    "while it is seeded": "ls -d /run/salt-virt/seed-* >/dev/null 2>&1",
    "while it is mounted": "pgrep qemu-storage-d >/dev/null",
    "while the volume for cloud-init is made": "ls -d /run/salt-virt/cidata-* >/dev/null 2>&1",
    "when it runs": "virsh list --name | grep -q victim",
}


@pytest.mark.parametrize(
    "step",
    [pytest.param(s, marks=[] if "seeded" in s else pytest.mark.slow) for s in STEPS],
)
def test_a_minion_killed_at_any_step_can_do_it_again(lab, hv1, step):
    """What it left is used up or removed by the second init of that name."""
    lab.exec("master", ["cp", "/srv/salt/debian.qcow2", "/srv/salt/many.qcow2"])
    hv1.sh("rm -f /srv/salt-images/_base/many-* /srv/salt-images/_base/.meta/many-*")
    wanted = {"image": "salt://many.qcow2", "start": False, "nic": None, "cpu": 1, "mem": 64}
    wanted |= {"seed": "cloud-init"} if "cloud-init" in step else {}
    wanted |= {"start": True} if "runs" in step else {}
    hv1.begin("virt.init", name="victim", **wanted)
    hv1.kill_minion_when(STEPS[step])
    hv1.restart()
    made = hv1.call("virt.init", name="victim", **wanted)
    if "runs" in step:  # it was whole before the minion died
        assert "already exists" in made
        assert "seeded" in hv1.sh("virsh dumpxml victim")
    else:
        assert isinstance(made, dict), made
    if not {"start", "seed"} & {key for key in wanted if wanted[key]}:
        assert hv1.inside(disk_of(made), PUB)[PUB] == made["pub_key"]
    hv1.call("virt.purge", vm_="victim")


POOL = """
mkdir -p /root/pool; cd /root/pool
qemu-img convert -O raw {0} disk.raw
qemu-img convert -O qcow2 {0} snap.qcow2; qemu-img snapshot -c before snap.qcow2
virsh -q pool-define-as images dir --target /root/pool; virsh -q pool-start images
"""


def test_raw_images_snapshots_and_volumes_of_a_pool_are_seeded(hv1):
    hv1.sh(POOL.format(IMAGE))
    try:
        for image in ("pool://images/disk.raw", "pool://images/snap.qcow2", "/root/pool/disk.raw"):
            made = init(hv1, "pooled", image=image)
            assert isinstance(made, dict), made
            found = hv1.inside(disk_of(made), PUB, "/etc/hostname")
            assert found == {PUB: made["pub_key"], "/etc/hostname": "pooled\n"}
            assert "SNAPSHOT" not in hv1.sh(f"qemu-img snapshot -l {disk_of(made)}").upper()
            hv1.call("virt.purge", vm_="pooled")
        assert hv1.call("virt.image_fetch", source="pool://images/disk.raw")["format"] == "raw"
        assert hv1.sh("ls /root/pool").split() == ["disk.raw", "snap.qcow2"]
    finally:
        hv1.sh("virsh -q pool-destroy images; virsh -q pool-undefine images; rm -r /root/pool")


REFUSED = {
    "a wrong hash": ({"image_hash": "ab" * 32}, "instead of"),
    "no image": ({"image": "/etc/passwd"}, "not a disk image"),
    "not there": ({"image": "salt://none.qcow2"}, "does not exist"),
    "a backing file elsewhere": ({"image": "/tmp/evil.qcow2"}, "refers to /etc/shadow"),
    "a full disk": ({"disks": [{"name": "system", "pool": "/mnt/full"}]}, "free"),
    "too small a disk": ({"disks": [{"name": "system", "size": 100}]}, "never shrunk"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_nothing_is_made_of_what_is_refused(hv1, what):
    more, words = REFUSED[what]
    hv1.sh(
        "qemu-img create -q -f qcow2 -u -b /etc/shadow -F raw /tmp/evil.qcow2 1G\n"
        "mkdir -p /mnt/full; mount -t tmpfs -o size=20M none /mnt/full"
    )
    try:
        answer = init(hv1, "refused", **more)
        assert isinstance(answer, str)
        assert words in answer
        assert "Traceback" not in answer
        assert hv1.sh("find /mnt/full -type f") == ""
    finally:
        hv1.sh("umount /mnt/full; rm -r /mnt/full /tmp/evil.qcow2")


def test_images_are_listed_and_pruned_when_nobody_needs_them(lab, hv1):
    made = init(hv1, "pruned", image="salt://debian.qcow2", enable_qcow=True, seed=False)
    name, image = next(
        (name, one)
        for name, one in hv1.call("virt.images").items()
        if one["source"] == "salt://debian.qcow2"
    )
    assert image["used_by"] == ["pruned"]
    hv1.sh(f"touch -d '1 hour ago' /srv/salt-images/_base/.meta/{name}.json")
    assert "used by pruned" in hv1.call("virt.image_prune", name=name)
    assert hv1.call("virt.image_fetch", source="salt://debian.qcow2")["path"] == image["path"]
    assert os.path.dirname(disk_of(made)) == "/srv/salt-images"
    hv1.call("virt.purge", vm_="pruned")
    hv1.sh(f"touch -d '1 hour ago' /srv/salt-images/_base/.meta/{name}.json")
    assert name in hv1.call("virt.image_prune")["removed"]


def push(lab, kind):
    """An image of the tests' own, on hv1."""
    path = images.image(kind, recipe())
    lab.push("hv1", path, f"/root/{kind}")
    return f"/root/{kind}/image.qcow2"


@pytest.mark.slow
def test_a_minion_is_installed_where_there_is_none(lab, hv1):
    """And its interface has the address that was asked for."""
    image = push(lab, "bare")
    done = lab.run(
        "virt.init", "bare", 1, 512, image, "timeout=1500", timeout=2400,
        host="hv1", interfaces=[FIXED], wait=True,
    )  # fmt: skip
    assert done.rc == 0, done.stdout + done.stderr
    assert lab.call("bare", "network.ip_addrs", timeout=60) == ["10.77.0.90"]
    assert lab.run("virt.purge", "bare", "force=True").rc == 0
    hv1.sh("rm -r /root/bare")


@pytest.mark.slow
def test_init_waits_for_the_agent_and_says_when_nobody_answers(lab, hv1):
    def begin(name, timeout_s):
        words = ["image=" + IMAGE, f"timeout={timeout_s}", "host=hv1", "wait_for=agent"]
        return lab.run("virt.init", name, 1, 256, *words, timeout=2400)

    done = begin("late", 2)
    assert done.rc == 1
    assert "late runs on hv1, but its agent did not answer within 2 s" in done.stdout
    assert hv1.sh("virsh domstate late").strip() == "running"  # somebody will look at it
    assert lab.run("virt.purge", "late", "force=True").rc == 0
    done = begin("early", 1500)
    assert "its agent answered after" in done.stdout
    found = lab.call("hv1", "virt.guest_addresses", "early")["early"]
    assert "agent" in {nic["source"] for nic in found.values()}
    assert lab.run("virt.purge", "early", "force=True").rc == 0


@pytest.mark.slow
def test_a_cloud_image_becomes_a_minion_without_being_mounted(lab, hv1):
    image = push(lab, "cloud")
    done = lab.run(
        "virt.init", "cloud", 1, 512, image, "timeout=1500", timeout=2400,
        host="hv1", seed="cloud-init", install=False, wait=True,
    )  # fmt: skip
    assert done.rc == 0, done.stdout + done.stderr
    assert lab.call("cloud", "grains.get", "host") == "cloud"
    lab.wait(lambda: hv1.sh("ls /srv/salt-images/_seed") == "", "its volume is gone")
    assert lab.run("virt.purge", "cloud", "force=True").rc == 0
    hv1.sh("rm -r /root/cloud")
