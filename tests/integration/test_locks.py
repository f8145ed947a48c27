"""The locks that QEMU and virtlockd take on guests' disks, as proofs: GlusterFS gives those of a
missing host to another one. Without high availability."""

import itertools
import time

import pytest

from tests.integration.migration import counter
from tests.lab import storage

pytestmark = [pytest.mark.lab, pytest.mark.slow]

# until the server misses a client, and until a client knows that it reaches its server again
MISSED_S, AGAIN_S = 150, 40
LOCKD = """sed -i '/^lock_manager/d' /etc/libvirt/qemu.conf
echo 'lock_manager = "lockd"' >> /etc/libvirt/qemu.conf
systemctl restart libvirtd
"""


class Cut:
    """A guest on a volume of that name whose host, hv1, is cut off; it is started on hv2 as soon as
    that gets its lock; then the cable is plugged in again."""

    def __init__(self, lab, name, strict):
        self.lab, self.name, self.folder = lab, name, f"/srv/{name}"
        storage.volume(lab, name, owner="64055:64055", strict=strict)
        for host in lab.hosts:
            lab.exec(
                host, f"mkdir -p {self.folder} && mount -t glusterfs master:{name} {self.folder}"
            )
        self.guest = counter.Counter(
            lab, name, format="raw", folder=self.folder, driver=" cache='none'"
        )
        self.guest.define("hv1", "64M").start("hv1")
        lab.exec("hv2", ["virsh", "-q", "define", "/dev/stdin"], input=self.guest.xml)

    def starts(self):
        done = self.lab.exec("hv2", ["virsh", "start", self.name], check=False)
        if done.returncode:
            words = done.stdout + done.stderr
            assert "lock" in words or "in use" in words, words
        return not done.returncode

    def go(self):
        lab = self.lab
        assert not self.starts()
        lab.cut("hv1")
        try:
            lab.wait(self.starts, "hv2 gets the lock", MISSED_S, 1)
            self.guest.counts_on("hv2", 60)
        finally:
            lab.heal("hv1")
        before = self.guest.number("hv1")
        time.sleep(AGAIN_S)
        return self.guest.number("hv1") > before

    def end(self):
        for host in self.lab.hosts:
            self.lab.exec(host, f"virsh destroy {self.name}; umount -l {self.folder}", check=False)


@pytest.fixture(scope="module")
def lab(shared_lab):
    counter.boots(shared_lab)
    return shared_lab


@pytest.fixture
def cut(lab, request):
    found = Cut(lab, **request.param)
    yield found
    found.end()


STRICT, PLAIN = {"name": "strict", "strict": True}, {"name": "plain", "strict": False}


@pytest.mark.parametrize("cut", [STRICT], indirect=True)
def test_storage_that_shuts_files_whose_lock_it_gave_away_bears_one_writer(cut):
    assert not cut.go()
    starts = [start for start, _ in itertools.groupby(s for _, s in cut.guest.records("hv2"))]
    assert len(starts) == 2


@pytest.mark.parametrize("cut", [PLAIN], indirect=True)
def test_a_lock_of_virtlockd_is_no_proof(cut):
    """Why ha.md wants more of the storage: the old guest writes on, beside the new one."""
    cut.end()
    for host in cut.lab.hosts:
        cut.lab.exec(host, LOCKD)
        cut.lab.exec(host, f"mount -t glusterfs master:plain {cut.folder}")
    cut.guest.start("hv1")
    assert cut.go()
