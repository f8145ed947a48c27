"""Some runs of ``make backup-random``, and the seeds that found faults: tests/backup/README.md."""

import os
from collections import Counter

import pytest

from tests.backup import run, steps, world

pytestmark = pytest.mark.lab

PIECES = [[0.1, 0.1, 65, 99], [0.9, 0.5, 300, 7]]


def step(verb, **how):
    return {"ops": [{"verb": verb, **how}], "faults": []}


def backup(to="vault", via="parts", **how):
    return step("backup", to=to, via=via, **how)


WRITE, STOP, START = step("write", pieces=PIECES), step("stop"), step("start")
MORE = step("write", pieces=[[0.1, 0.5, 65, 98]])
# an older copy of a disk was put back: what was read meanwhile of the guest while it was off stayed
# in the next increment, for the same bitmap went on
FOUND = {
    "older-copy": [WRITE, backup(), STOP, step("keep_copy"), START, MORE, STOP, backup(),
                   step("put_back", at=0.1), START],
    # QEMU ended when a guest that had been backed up was to go back to a snapshot, and libvirt took
    # none of one that was off
    "revert": [WRITE, backup(), step("snapshot", disk_only=False), MORE, backup(), step("revert")],
    "revert-off": [WRITE, backup(), STOP, step("snapshot", disk_only=False), MORE, backup(),
                   step("revert"), backup()],
    # the socket of a process that was killed stayed when the guest got another name
    # what the machine of the target had shown for a restore stayed for two minutes
    "restored": [WRITE, backup(), step("restore", to="vault", at=0.5, itself=False)],
    "killed-renamed": [WRITE, STOP, backup(meanwhile=[{"verb": "keeper"}]), step("rename")],
}  # fmt: skip


# a byte of the first cluster with data, by what the file is in itself: its length stays
FALLS = (
    "at=$(qemu-img map --output=json vda.qcow2 | python3 -c 'import json, sys; "
    'print(next(one["offset"] for one in json.load(sys.stdin) if one["data"]))\') && '
    "printf '\\377' | dd of=vda.qcow2 bs=1 seek=$at conv=notrunc status=none"
)


@pytest.fixture(scope="module")
def there(lab):
    found = world.World(lab)
    found.prepare()
    yield found
    found.plain()


def held(there, given):
    """What became of the steps, in words and numbers, when all held."""
    broken, said = run.attempt(there, given, print)
    assert broken is None, broken
    return said


@pytest.mark.slow
def test_a_sequence(there):
    given = [WRITE, backup(), MORE, backup(via="runner"), STOP, backup("other"), START,
             backup(), step("prune", to="vault", last=1), step("crash_qemu"), MORE]  # fmt: skip
    said = held(there, given)
    assert said["backup: ww"] == 2 and said["backup: ++"] == 2
    assert said["compared"] == 6


def test_a_difference_is_found(there):
    """One bit of a backup's file that fell after it was made."""
    one = run.Run(there, print)
    try:
        one.all([WRITE, backup(), MORE])
        folder = world.FOLDERS["vault"]
        there.lab.exec(there.target.name, f"cd {folder}/*/000001-* && {FALLS}")
        with pytest.raises(run.Broken, match="bits: 000001"):
            one._as_recorded()
    finally:
        there.wipe()


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found(there, name):
    said = held(there, FOUND[name])
    assert [how for how in said if how.endswith("refused")] == []


@pytest.mark.slow
def test_random_sequences(there):
    total = Counter()
    for seed in range(1, 1 + int(os.environ.get("RUNS", "5"))):
        print(f"seed {seed}")
        total.update(held(there, steps.draw(seed)))
    assert total["compared"] > 10
