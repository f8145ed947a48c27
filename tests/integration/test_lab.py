"""The lab itself: the files that it serves, and that it ends with its owner."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from tests.lab import paths, process
from tests.lab.cloud import Cloud
from tests.lab.fixtures import Lab, skip_without_lab

LAB = str(paths.REPOSITORY / "tests/lab/lab")


# the units that make a hypervisor; some of systemd's own are the outer kernel's business
OURS = ("salt-", "libvirt", "virt", "lab-", "systemd-networkd")


def test_the_machines_are_hypervisors(lab):
    assert lab.hosts == ["hv1", "hv2"]
    for host in lab.hosts:
        assert lab.call(host, "test.ping") is True
        assert lab.exec(host, "virsh -c qemu:///system list --name").stdout.strip() == ""
        failed = lab.exec(host, "systemctl --failed --no-legend --plain").stdout.splitlines()
        assert [line for line in failed if line.startswith(OURS)] == []
        assert lab.exec(host, "hostname; cat /etc/machine-id").stdout.split()[0] == host


def test_minions_see_what_is_served_and_not_tests_or_docs(lab):
    served = lab.call("hv1", "cp.list_master")
    assert "_modules/virt.py" in served
    assert "libvirt/init.sls" in served
    assert "debian.qcow2" in served
    hidden = {"tests", "docs", ".ci", ".github", "Makefile", "pyproject.toml", "src"}
    assert not [path for path in served if path.split("/")[0] in hidden]


def test_only_the_hypervisors_are_accepted(lab):
    keys = lab.exec("master", ["salt-key", "-L", "--out=json"]).stdout
    assert '"minions_pre": []' in keys
    assert set(lab.hosts) <= {word.strip(' ",') for word in keys.split()}


def test_exec_passes_output_input_and_exit_code(lab):
    done = subprocess.run(
        [LAB, "exec", "--name", lab.name, "hv2", "sh", "-c", "cat; echo oops >&2; exit 7"],
        input="typed",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (7, "typed", "oops\n")


def test_files_are_pushed_and_pulled(lab, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/file").write_text("text")
    lab.push("hv1", tmp_path / "out", "/tmp/pushed")
    assert lab.exec("hv1", "cat /tmp/pushed/out/file").stdout == "text"
    lab.pull("hv1", "/tmp/pushed/out", tmp_path / "back")
    assert (tmp_path / "back/out/file").read_text() == "text"


def test_a_cut_link_isolates_a_host_and_heals(lab):
    ping = "ping -c 1 -W 1 hv2"
    lab.cut("hv2")
    try:
        assert lab.exec("hv1", ping, check=False).returncode != 0
    finally:
        lab.heal("hv2")
    lab.wait(lambda: lab.exec("hv1", ping, check=False).returncode == 0, "hv2 reachable", 10)
    lab.wait_for_minion("hv2")


def test_a_name_that_is_no_machine_is_refused_in_one_line(lab):
    argv = [LAB, "exec", "--name", lab.name, "hv9", "true"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == f"lab: lab {lab.name} has master, hv1, hv2; there is no hv9\n"


OWNER = """
    import os, sys, time
    from tests.lab.fixtures import Lab, recipe
    lab = Lab(sys.argv[1])
    lab.up(1, recipe(), owner=os.getpid())
    lab.exec("hv1", "truncate -s 1M /root/disk && losetup -f /root/disk")
    lab.exec("hv1", "mkdir /root/m && mount -t tmpfs none /root/m")
    print("up", flush=True)
    time.sleep(600)
"""


def owned_lab(name):
    """A process that owns a lab, and that lab."""
    argv = [sys.executable, "-c", textwrap.dedent(OWNER), name]
    owner = subprocess.Popen(argv, cwd=paths.REPOSITORY, stdout=subprocess.PIPE, text=True)
    assert owner.stdout.readline() == "up\n"
    return owner, Cloud(name)


def traces(name, loops_before):
    """Everything on this machine that belongs to a lab."""
    found = [str(path) for path in paths.INSTANCES.glob(name)]
    found += [line for line in read("/proc/self/mountinfo") if f"/labs/{name}/" in line]
    found += [n for n in os.listdir("/run/netns") if n.startswith(f"svlab-{name}-")]
    argv = ["pgrep", "-af", f"systemd-nspawn.*/labs/{name}/|tests.lab.reaper {name} "]
    found += subprocess.run(argv, capture_output=True, text=True, check=False).stdout.splitlines()
    return found + sorted(loops() - loops_before)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read().splitlines()


def loops():
    """The loop devices on files called /root/disk, as the kernel names them."""
    argv = ["losetup", "-l", "-n", "-O", "NAME,BACK-FILE"]
    lines = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
    return {line for line in lines if line.endswith("/root/disk") or "/root/disk " in line}


@pytest.fixture
def name():
    skip_without_lab()
    name = f"owned-{os.getpid()}"
    yield name
    Cloud(name).down()


@pytest.mark.slow
def test_kill_9_of_the_owner_leaves_nothing(name):
    before = loops()
    owner, cloud = owned_lab(name)
    assert len(loops() - before) == 1
    processes = process_tree(cloud)
    assert processes
    owner.kill()
    owner.wait()
    Lab.wait(cloud, lambda: not traces(name, before), "the lab is gone", 60)
    assert not [pid for pid, began in processes if process.started(pid) == began]


@pytest.mark.slow
def test_the_next_start_cleans_up_when_the_reaper_was_killed_too(name):
    before = loops()
    owner, cloud = owned_lab(name)
    os.kill(process.recall(cloud.folder / "reaper.pid"), signal.SIGKILL)
    owner.kill()
    owner.wait()
    assert traces(name, before)
    from tests.lab.cloud import sweep

    sweep()
    assert traces(name, before) == []


def process_tree(cloud):
    """(pid, when it started) of all processes in a lab's machines."""
    found = set()
    for machine in cloud.names():
        argv = ["ip", "netns", "pids", cloud.network.namespace(machine)]
        found.update(subprocess.run(argv, capture_output=True, check=True).stdout.split())
    return [(pid, began) for pid in map(int, found) if (began := process.started(pid))]
