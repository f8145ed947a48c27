"""The tutorial in the lab: every command and its effect, confirmed by libvirt. Salt Virt is
installed by sync or pip: on the master and hv1 manually, on hv2 by the formula."""

import json
import re

import pytest

from tests.lab import paths
from tests.lab.fixtures import own_lab
from tests.tools import typed_manual, wheel
from tests.tutorial import demo
from tests.tutorial.steps import IMAGE, STEPS

pytestmark = pytest.mark.lab

BOOT_ID = "cat /proc/sys/kernel/random/boot_id"


def title_of(command):
    return next(step.title for step in STEPS if command in step.commands)


class Operator:
    """Types the tutorial's commands and remembers what they printed."""

    def __init__(self, cloud, way):
        self.cloud, self.way = cloud, way
        self.typed, self.printed = [], {}

    def types(self, command):
        title_of(command)  # it is one of the tutorial's
        done = self.cloud.exec("master", command, check=False)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stdout + done.stderr
        self.typed.append(command)
        self.printed.setdefault(command, []).append(done.stdout)
        return done.stdout


def virsh(cloud, host, *arguments):
    return cloud.exec(host, ["virsh", *arguments]).stdout


def names_on(cloud, host):
    return set(virsh(cloud, host, "list", "--all", "--name").split())


def files_on(cloud, host, pattern):
    command = f"find /srv /var/lib/libvirt/images -type f -name '{pattern}'"
    return cloud.exec(host, command).stdout.split()


@pytest.fixture(scope="module", params=["sync", pytest.param("pip", marks=pytest.mark.slow)])
def operator(request, tmp_path_factory):
    for cloud in own_lab(request):
        cloud.exec("master", demo.PATIENCE)
        if request.param == "pip":
            by_pip(cloud, wheel.build(tmp_path_factory.mktemp("wheel")))
        yield Operator(cloud, request.param)


def by_pip(cloud, built):
    """Have nothing of Salt Virt but the formulas served, and its wheel where Salt is."""
    remote = "  - file:///srv/git/salt-virt.git$"
    cloud.exec("master", f"sed -i '\\|^{remote}|d' /etc/salt/master")
    cloud.push("master", built, "/srv/salt")
    cloud.push("hv1", built, "/srv")
    pip = "/opt/salt/bin/pip --disable-pip-version-check install --no-index"
    cloud.exec("master", f"{pip} /srv/salt/{built.name}")
    cloud.exec("hv1", f"{pip} '/srv/{built.name}[hypervisor]'")
    top = "base: {hv2: [pip]}"
    pillar = json.dumps({"libvirt": {"python": {"salt_virt": f"salt://{built.name}"}}})
    cloud.exec(
        "master", f"echo '{top}' > /srv/pillar/top.sls; echo '{pillar}' > /srv/pillar/pip.sls"
    )
    cloud.restart_master()
    cloud.restart_minion("hv1")


def test_tutorial(operator):
    cloud = operator.cloud
    for step in STEPS:
        CHAPTERS.get(step.title, plain)(operator, cloud, step)
    assert operator.typed == [c for step in STEPS for c in step.commands]
    readme = (paths.REPOSITORY / "README.md").read_text(encoding="utf-8")
    for session in typed_manual.sessions(readme):
        for command, lines in session.steps:
            for printed in operator.printed.get(command, [])[:1]:
                wrong = typed_manual.mismatch(lines, printed, session.varies)
                assert wrong is None, f"README: {command}\nnot printed: {wrong}\n{printed}"


def plain(operator, cloud, step):
    for command in step.commands:
        operator.types(command)


def sync(operator, cloud, step):
    master, _formula, minions = [operator.types(command) for command in step.commands]
    is_synced = operator.way == "sync"
    for name in ("modules.virt", "modules.seed", "states.virt", "grains.virt_host"):
        assert (name in minions) is is_synced
    for name in ("runners.virt", "pillar.libvirt", "output.virt_query"):
        assert (name in master) is is_synced
    seen = cloud.exec("master", "salt hv1 cp.list_master --out=json --static").stdout
    served = json.loads(seen)["hv1"]
    assert not [path for path in served if path.split("/")[0] in ("tests", "docs", ".ci")]
    assert is_synced or not [path for path in served if path.startswith("_")]


def minion_of(cloud, host):
    return cloud.exec(host, "systemctl show -P MainPID salt-minion").stdout.strip()


def formula(operator, cloud, step):
    before = minion_of(cloud, "hv2")
    [text] = [operator.types(command) for command in step.commands]
    assert set(re.findall(r"Failed:\s+(\d+)", text)) == {"0"}
    if operator.way == "pip":
        cloud.wait(lambda: minion_of(cloud, "hv2") not in (before, "0"), "hv2's minion restarts")
        cloud.wait_for_minion("hv2")
    authorities = set()
    for host in ("hv1", "hv2"):
        cloud.exec(host, "ss -Hltn 'sport = :16514' | grep -q 16514")
        authorities.add(cloud.exec(host, "sha256sum < /etc/pki/CA/cacert.pem").stdout)
        cloud.exec(host, "ip -details link show br0 | grep -qw bridge")
    assert len(authorities) == 1


def formula_again(operator, cloud, step):
    [text] = [operator.types(command) for command in step.commands]
    assert "changed=" not in text, text
    assert re.findall(r"Failed:\s+(\d+)", text) == ["0", "0"]


def mutual_tls(operator, cloud, step):
    assert "hv2" in operator.types(step.commands[0])
    used = cloud.salt("hv*", "virt.versions")
    assert {one["install_method"] for one in used.values()} == {operator.way}
    without = "virsh -c 'qemu+tls://hv2/system?pkipath=/nonexistent' hostname"
    assert cloud.exec("hv1", without, check=False).returncode != 0


def host_info(operator, cloud, step):
    text = operator.types(step.commands[0])
    assert "hv1" in text
    assert "hv2" in text
    data = json.loads(cloud.exec("master", "salt-run virt.host_info --out=json").stdout)
    for host in ("hv1", "hv2"):
        info = virsh(cloud, host, "nodeinfo")
        assert data[host]["cpus"] == int(re.search(r"CPU\(s\):\s+(\d+)", info)[1])
        total = int(re.search(r"Memory size:\s+(\d+) KiB", info)[1])
        assert data[host]["memory_mib"] == total // 1024


def no_guests(operator, cloud, step):
    lines = operator.types(step.commands[0]).splitlines()
    assert lines == ["hv1: none", "hv2: none"]


def deploy(operator, cloud, step):
    text = operator.types(step.commands[0])
    assert "centos1 is running on hv1" in text
    assert len(text.strip().splitlines()) > 2, f"no progress in {text!r}"
    assert virsh(cloud, "hv1", "domstate", "centos1").strip() == "running"
    keys = json.loads(cloud.exec("master", "salt-key -L --out=json").stdout)
    assert "centos1" in keys["minions"]


def answers(operator, cloud, step):
    demo.wait_for(cloud, "centos1")
    assert "True" in operator.types(step.commands[0])


def query(operator, cloud, step):
    text = operator.types(step.commands[0])
    lines = [line.rstrip() for line in text.splitlines()]
    port = virsh(cloud, "hv1", "vncdisplay", "centos1").strip().rsplit(":", 1)[1]
    wanted = ["hv1", "  centos1", "    CPU: 2", "    Memory: 512 MiB", "    State: running",
              f"    Graphics: vnc - hv1:{5900 + int(port)}",
              "      Listens on 127.0.0.1 of hv1: see virt.display centos1",
              "    Disk - vda:"]  # fmt: skip
    start = lines.index("hv1")
    assert lines[start : start + len(wanted)] == wanted
    assert "      File Format: qcow2" in lines
    assert "      Source: br0" in lines
    assert "      Type: bridge" in lines


def migrate(operator, cloud, step):
    before, moved = [operator.types(command) for command in step.commands[:2]]
    demo.wait_for(cloud, "centos1")  # its processor is emulated: the first answer takes long
    ping, after = [operator.types(command) for command in step.commands[2:]]
    assert "hv2" in moved
    assert "True" in ping
    assert re.search(r"[0-9a-f-]{36}", before)[0] == re.search(r"[0-9a-f-]{36}", after)[0]
    assert "centos1" not in names_on(cloud, "hv1")
    assert virsh(cloud, "hv2", "domstate", "centos1").strip() == "running"
    assert files_on(cloud, "hv1", "*centos1*") == []


def direct(operator, cloud, step):
    for command in step.commands:
        operator.types(command)
    for guest in ("centos2", "centos3"):
        assert virsh(cloud, "hv1", "domstate", guest).strip() == "shut off"
        xml = virsh(cloud, "hv1", "dumpxml", "--inactive", guest)
        disk = re.search(r"<source file='([^']+)'", xml)[1]
        info = cloud.exec("hv1", ["qemu-img", "info", "--output=json", disk]).stdout
        about = json.loads(info)
        assert about["format"] == "qcow2"
        if guest == "centos3":
            assert about["backing-filename-format"] == "qcow2"
        else:
            assert "backing-filename" not in about


def by_name(operator, cloud, step):
    wanted = {"pause": "paused", "resume": "running", "reset": "running",
              "force_off": "shut off", "start": "running"}  # fmt: skip
    for command in step.commands:
        text = operator.types(command)
        verb = command.split()[1].removeprefix("virt.")
        if verb in wanted:
            assert virsh(cloud, "hv2", "domstate", "centos1").strip() == wanted[verb]
        elif verb == "vm_info":
            assert "State: running" in text
        else:
            assert text.strip() in ("hv1", "hv2")


def purge(operator, cloud, step):
    cloud.exec("hv1", f"test -f {IMAGE}")
    for command in step.commands:
        operator.types(command)
    assert names_on(cloud, "hv1") == set()
    assert files_on(cloud, "hv1", "*centos*") == []
    cloud.exec("hv1", f"qemu-img check {IMAGE}")
    assert names_on(cloud, "hv2") == {"centos1"}
    keys = json.loads(cloud.exec("master", "salt-key -L --out=json").stdout)
    assert "centos1" in keys["minions"]


CHAPTERS = {
    title_of("salt-run saltutil.sync_all"): sync,
    STEPS[1].title: formula,
    STEPS[2].title: formula_again,
    STEPS[3].title: mutual_tls,
    title_of("salt-run virt.host_info"): host_info,
    STEPS[5].title: no_guests,
    STEPS[6].title: deploy,
    STEPS[7].title: answers,
    title_of("salt-run virt.query"): query,
    title_of("salt-run virt.migrate centos1 hv2"): migrate,
    title_of(f"salt hv1 cp.get_file salt://debian.qcow2 {IMAGE}"): direct,
    title_of("salt-run virt.pause centos1"): by_name,
    title_of("salt-run virt.purge centos2 force=True"): purge,
}
