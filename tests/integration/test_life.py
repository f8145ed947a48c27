"""A sample of ``make life``: ordinary operations in sequence, with a guest that boots."""

import pytest

from tests.lab import paths
from tests.lab.fixtures import own_lab
from tests.lab.sh import run
from tests.life import world
from tests.life.run import attempt

pytestmark = pytest.mark.lab
# pairs that once lost a disk, a network or a snapshot
WALKS = {
    ("overlay", "bios", "pc"): ("add_disk", "clone", "backup", "restore_over", "grow_disk"),
    ("raw", "uefi", "q35"): ("snapshot_default", "revert", "add_interface", "rename"),
    ("volume", "uefi", "q35"): ("attach_disk", "migrate_live", "attach_or_detach_interface"),
}


def in_turn():
    """Return the walks as pytest's parameters: all but one are slow. The first digits of the commit
    decide which one is not: each has its turn, and a commit always has the same one."""
    head = run(["git", "-C", paths.REPOSITORY, "rev-parse", "HEAD"], check=False).stdout
    turn = int(head[:8] or "0", 16) % len(WALKS)
    return [
        pytest.param(combination, marks=[] if number == turn else [pytest.mark.slow])
        for number, combination in enumerate(WALKS)
    ]


@pytest.fixture(scope="module")
def life_lab(request):
    """A lab with shared storage and a backup target, prepared for walks."""
    for cloud in own_lab(request, shared=True):
        world.prepare(cloud, lambda _text: None)
        yield cloud


@pytest.mark.parametrize("combination", in_turn(), ids="-".join)
def test_verbs_one_after_the_other(life_lab, combination):
    faults, commands = attempt(life_lab, 1, combination, WALKS[combination])
    assert faults == [], "\n".join(commands)
