"""A guest runs from its backup within seconds, while its blocks are copied."""

import base64

import pytest

from tests.functional.backup.test_backup_instant import READS
from tests.integration.hv import Hypervisor
from tests.integration.migration import counter
from tests.integration.test_backup import HOME, VAULT, Box, with_target

pytestmark = [pytest.mark.lab, pytest.mark.slow]

NAME, PATH = "labfast", "/srv/salt-images/labfast_vda.qcow2"
SHOWS = "pgrep -f 'salt-virt/backup.target.sho[w]'"
KEEPS = "pgrep -f 'salt-virt/backup.export.live_restore_serve[r]'"


@pytest.fixture(scope="module")
def cloud(lab):
    counter.libvirts(lab)
    yield from with_target(lab, retention={"last": 1})


def pins(host):
    """The guests that run from a backup at the target on a host."""
    signed = host.call("virt.answer", "virt.backup_stands", {"folder": VAULT})
    return signed["said"]["return"]


class Fast(Box):
    """A guest of 10 GiB that reads its disk all the time, and its backup."""

    def __init__(self, cloud, hosts):
        super().__init__(cloud, hosts, 31)
        self.sh(f"virsh -q destroy {self.name}; qemu-img resize -q {self.file('vda')} 10G")
        boot = base64.b64encode(READS.ljust(510, b"\0") + b"\x55\xaa").decode()
        self.sh("base64 -d > /root/boot", input=boot)
        self.sh(f"qemu-io -f qcow2 -c 'write -s /root/boot 0 512' -c 'write -P 7 1M 80M' "
                f"-c 'write -P 9 9G 1M' {self.file('vda')}; "
                f"cp {self.file('vda')} {HOME}/then")  # fmt: skip
        found = cloud.run_json("virt.backup", self.name)[self.name]
        assert found["result"] is True, found
        self.ident = found["changes"]["backup"]

    def is_same(self, path):
        """Whether it holds what was backed up; nobody has written to either."""
        same = self.sh(f"qemu-img compare {path} {HOME}/then", check=False)
        return "Images are identical" in same

    def begin(self):
        began = float(self.sh("date +%s.%N"))
        found = self.cloud.run_json("virt.backup_restore", self.name, new=NAME, instant=True)
        ended = float(self.sh("date +%s.%N"))
        assert found[NAME]["result"] is True, found
        started = float(self.sh(f"stat -c %.Y /run/libvirt/qemu/{NAME}.pid"))
        print(f"QEMU was there after {started - began:.1f} s, the command took {ended - began:.1f}")
        self.pace(1)
        return found[NAME]

    def pace(self, mib_s):
        """So much is pulled in a second, of holes, too."""
        job = f"virsh blockjob {NAME} vda"
        self.cloud.wait(
            lambda: self.sh(f"{job} --raw 2>&1", check=False).count("type="),
            "its blocks are pulled in",
            60,
        )
        self.sh(f"{job} --bandwidth {mib_s}")

    def state(self):
        return self.sh(f"virsh domstate {NAME} --reason").strip()

    def is_full(self):
        """It stands on nothing, holds what was backed up, and nothing is left of it."""
        assert "backing file" not in self.sh(f"qemu-img info -U {PATH}")
        assert "nbd" not in self.sh(f"virsh dumpxml {NAME}; virsh dumpxml --inactive {NAME}")
        self.sh(f"virsh -q destroy {NAME}", check=False)
        assert self.is_same(PATH)
        assert pins(self.hosts[1]) == []
        for name, what in (("hv1", KEEPS), ("hv2", SHOWS)):
            gone = lambda: not self.cloud.exec(name, what, check=False).stdout  # noqa: B023, E731
            self.cloud.wait(gone, f"nothing of it runs on {name}", 30)


@pytest.fixture(scope="module")
def fast(cloud):
    hosts = [Hypervisor(cloud, name) for name in cloud.hosts[:2]]
    cloud.exec("hv2", f"rm -rf {VAULT}; mkdir -m 700 {VAULT}")
    one = Fast(cloud, hosts)
    yield one
    one.remove()
    for host in hosts:
        host.close()


@pytest.fixture
def clean(cloud, fast):
    yield
    cloud.run("virt.purge", NAME, "force=True")
    cloud.run("virt.backup_instant")
    assert pins(fast.hosts[1]) == []


@pytest.mark.usefixtures("clean")
def test_it_runs_at_once_and_is_whole_at_last(fast, cloud):
    done = cloud.run("virt.backup_restore", fast.name, new=NAME, instant=True, test=True)
    assert done.rc == 0 and "start it immediately" in done.stdout, done
    found = fast.begin()
    assert "while its blocks are copied" in found["comment"]
    assert fast.state().startswith("running")
    listed = cloud.run_json("virt.backup_instant", test=True)[NAME]
    assert (listed["state"], listed["backup"]) == ("pulling", fast.ident), listed
    for verb, more in (("migrate", {"target": "hv2"}), ("snapshot", {}), ("backup", {})):
        done = cloud.run(f"virt.{verb}", NAME, **more)
        assert done.rc == 1 and "still runs from the backup" in done.stdout, done
    done = cloud.run("virt.migrate", NAME, target="hv2", test=True)
    assert done.rc == 1 and "still runs from the backup" in done.stdout, done
    # two newer ones: by the rule of the target it would go
    for _ in range(2):
        assert cloud.run("virt.backup", fast.name).rc == 0
    kept = cloud.run_json("virt.backup_prune", test=True)["vault"]["backups"][fast.name]
    assert kept[fast.ident] == f"{NAME} on hv1 runs from it", kept
    fast.timing(10_000)
    done = cloud.run("virt.backup_instant", NAME, timeout=300)
    assert done.rc == 0 and "is completely restored" in done.stdout, done
    fast.is_full()
    assert cloud.run("virt.backup_instant", NAME).rc == 0


@pytest.mark.usefixtures("clean")
def test_in_the_place_of_the_guest(fast, cloud):
    found = cloud.run_json("virt.backup_restore", fast.name, in_place=True, instant=True)[fast.name]
    assert found["result"] is True, found
    assert fast.runs
    refused = cloud.run("virt.backup_confirm", fast.name)
    assert refused.rc == 1 and "still runs from the backup" in refused.stdout, refused
    undone = cloud.run("virt.backup_undo", fast.name, stop=True)
    assert undone.rc == 0, undone
    assert fast.is_same(fast.file("vda"))
    found = cloud.run_json("virt.backup_instant")[fast.name]
    assert (found["result"], found["state"]) == (True, "complete"), found
