"""Mistakes of operators: one clear line, exit code 1, and no change."""

import json
import shlex

import pytest

pytestmark = pytest.mark.lab

IMAGE = "salt://debian.qcow2"


@pytest.fixture(scope="module")
def cloud(lab):
    lab.exec("master", "mkdir -p /srv/salt && echo 'no disk' > /srv/salt/notes.qcow2")
    lab.exec("master", "salt-run fileserver.clear_file_list_cache")
    xml = (
        "<domain type='qemu'><name>taken</name><memory>65536</memory><vcpu>1</vcpu>"
        "<os><type arch='x86_64'>hvm</type></os></domain>"
    )
    lab.exec("hv2", f"echo {shlex.quote(xml)} > /tmp/taken.xml && virsh define /tmp/taken.xml")
    yield lab
    lab.exec("hv2", "virsh undefine taken")


def picture(cloud):
    """Everything that could have changed."""
    keys = cloud.exec("master", "salt-key -L --out=json").stdout
    hosts = [
        cloud.exec(
            host,
            "virsh list --all; find /srv/salt-images /var/lib/libvirt/images -type f 2>/dev/null "
            "| grep -v /_base/.locks/ | sort",
        ).stdout
        for host in ("hv1", "hv2")
    ]
    return keys, hosts


def refused(cloud, command, *words):
    before = picture(cloud)
    done = cloud.exec("master", command, check=False)
    text = done.stdout.strip()
    assert done.returncode == 1, f"exit code {done.returncode}: {text}\n{done.stderr}"
    assert "Traceback" not in text + done.stderr
    # the steps before it, each with the guest's name, are no part of the answer
    *steps, _ = [line for line in text.splitlines() if line]
    assert all(line.startswith("web1: ") for line in steps), f"not one line: {text}"
    for word in words:
        assert word in text, text
    assert picture(cloud) == before
    return text


# the first three in each run of everything; wrong arguments are tried without a lab, too
REFUSED = [
    (f"web1 1 512 {IMAGE} host=hv9", ["hv9", "not a hypervisor", "hv1, hv2"]),
    (f"taken 1 512 {IMAGE}", ["taken already exists, on hv2"]),
    (f"a/b 1 512 {IMAGE}", ["cannot be a guest's name"]),
    (f".. 1 512 {IMAGE}", ["cannot be a guest's name"]),
    (f"'a b' 1 512 {IMAGE}", ["cannot be a guest's name"]),
    (f""""a'b" 1 512 {IMAGE}""", ["cannot be a guest's name"]),
    ("web1 1 512 salt://missing.qcow2", ["salt://missing.qcow2"]),
    ("web1 1 512 /nowhere/x.qcow2", ["/nowhere/x.qcow2"]),
    ("web1 1 512 salt://notes.qcow2", ["notes.qcow2", "disk image"]),
    (f"web1 0 512 {IMAGE}", ["cpu", "at least 1"]),
    (f"web1 cpu=-1 mem=512 image={IMAGE}", ["cpu"]),
    (f"web1 two 512 {IMAGE}", ["cpu", "two"]),
    (f"web1 1 none {IMAGE}", ["mem", "none"]),
    (f"web1 1 mem=-5 image={IMAGE}", ["mem"]),
    (f"web1 999 512 {IMAGE}", ["cpu 999", "at most 255"]),
    (f"web1 1 9999G {IMAGE}", ["hv1:", "hv2:", "of memory requested"]),
    (f"web1 1 512 {IMAGE} disk=nonesuch", ["disk profile", "nonesuch"]),
    (f"web1 1 512 {IMAGE} nic=nonesuch", ["nic profile", "nonesuch"]),
    (f"web1 1 512 {IMAGE} colour=red", ["colour"]),
]


def mostly_slow(rows, fast):
    """The rows as parameters, all but the first of them for SLOW=1 alone."""
    return [*rows[:fast], *(pytest.param(*row, marks=pytest.mark.slow) for row in rows[fast:])]


@pytest.mark.parametrize(("arguments", "words"), mostly_slow(REFUSED, 3))
def test_init_refuses(cloud, arguments, words):
    refused(cloud, f"salt-run virt.init {arguments}", *words)


VERBS = ["purge", "start", "force_off", "pause", "resume", "reset", "vm_info"]


@pytest.mark.parametrize(("verb",), mostly_slow([(verb,) for verb in VERBS], 1))
def test_unknown_guest(cloud, verb):
    refused(cloud, f"salt-run virt.{verb} nobody", "no guest 'nobody'")


def test_migrate_refuses(cloud):
    refused(cloud, "salt-run virt.migrate nobody hv2", "no guest 'nobody'")
    refused(cloud, "salt-run virt.migrate taken hv9", "hv9")


@pytest.mark.parametrize(("verb",), mostly_slow([("pause",), ("resume",), ("reset",)], 1))
def test_a_verb_that_makes_no_sense_now(cloud, verb):
    refused(cloud, f"salt-run virt.{verb} taken", "taken on hv2 is shutdown")


def test_unknown_host(cloud):
    refused(cloud, "salt-run virt.query host=hv9", "hv9", "not a hypervisor")


def test_errors_are_clean_data_for_programs(cloud):
    done = cloud.exec("master", "salt-run virt.start nobody --out=json", check=False)
    data = json.loads(done.stdout)
    assert data["nobody"]["result"] is False
    assert done.returncode == 1


def test_a_host_that_is_down_is_named_and_not_waited_for(cloud):
    cloud.exec("master", "salt-run virt.query")  # the master remembers what it hears
    cloud.exec("hv2", "systemctl stop salt-minion")
    try:
        for verb in ("query", "list", "host_info"):
            done = cloud.exec("master", f"salt-run virt.{verb} --out=json", check=False)
            data = json.loads(done.stdout)
            assert done.returncode == 1
            assert data["hv2"]["error"] == "down: no connection to the master"
            if verb != "host_info":
                assert data["hv2"]["last_seen"]["guests"] == ["taken"]
            assert "error" not in data["hv1"]
        done = cloud.exec("master", f"salt-run virt.init web1 1 512 {IMAGE} host=hv2", check=False)
        assert done.returncode == 1
        assert "hv2: down" in done.stdout
    finally:
        cloud.exec("hv2", "systemctl start salt-minion")
        cloud.wait_for_minion("hv2")


def test_a_host_that_is_connected_but_silent_is_named_with_the_time(cloud):
    cloud.exec("hv2", "pkill -STOP -f '[b]in/salt-minion'")
    try:
        done = cloud.exec("master", "salt-run -t 15 virt.list --out=json", check=False)
        data = json.loads(done.stdout)
        assert done.returncode == 1
        assert data["hv2"]["error"].startswith("no answer in ")
        assert "error" not in data["hv1"]
    finally:
        cloud.exec("hv2", "pkill -CONT -f '[b]in/salt-minion'")
        cloud.wait_for_minion("hv2")
