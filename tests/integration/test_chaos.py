"""A few fixed steps of ``make chaos``: faults that it found, and that the run itself works."""

import os

import pytest

from tests.chaos import run, world
from tests.lab.fixtures import Lab, recipe, skip_without_lab

pytestmark = pytest.mark.lab

# what make chaos does, in the lab of all tests: a guest whose migration's runner is killed
SMOKE = [
    {"ops": [{"verb": "init", "via": "runner", "disk": "folder", "name": "c-g1", "host": "hv1",
              "seeded": True}], "faults": []},
    {"ops": [{"verb": "migrate", "name": "c-g1", "via": "runner", "target": "hv2"}],
     "faults": [{"kind": "kill_runner", "after": 1.5, "op": 0}]},
]  # fmt: skip
LOCAL = {"verb": "init", "via": "runner", "disk": "local"}
# seed 2, shrunk by hand: every rename by the runner said that it had failed; not of a seeded guest,
# for there is no system in the image that could get the new name
RENAMED = [
    {"ops": [{**LOCAL, "name": "c-g1"}], "faults": []},
    {"ops": [{"verb": "rename", "name": "c-g1", "new": "c-g2", "via": "runner", "off": True}],
     "faults": []},
]  # fmt: skip
# an image in one kind of file system, disks in three others
KINDS = [
    {"ops": [{"verb": "init", "via": "runner", "disk": kind, "name": f"c-g{number}"}],
     "faults": []} for number, kind in enumerate(("pool", "shared", "thin"), 1)
]  # fmt: skip
# seed 2: what a killed runner leaves is ended by a second purge
KILLED = [
    {"ops": [{**LOCAL, "name": "c-g1", "seeded": True}], "faults": []},
    {"ops": [{"verb": "purge", "name": "c-g1", "via": "runner"}],
     "faults": [{"kind": "kill_runner", "after": 2.0, "op": 0}]},
]  # fmt: skip


@pytest.mark.slow
def test_a_run(lab):
    with world.plain(lab):
        one = run.Run(lab, print)
        try:
            one.all(SMOKE)
        finally:
            world.remove(lab, "c-g1")
    assert [(guest.name, guest.status) for guest in one.model.guests.values()] == [("c-g1", "gone")]


@pytest.fixture(scope="module")
def chaotic():
    """A lab as make chaos has it."""
    skip_without_lab()
    cloud = Lab(f"chaos-{os.getpid()}")
    cloud.up(3, recipe(), owner=os.getpid(), shared=True)
    try:
        world.prepare(cloud, lambda text: None)
        yield cloud
    finally:
        cloud.down()


@pytest.mark.slow
@pytest.mark.parametrize("steps", [RENAMED, KINDS, KILLED], ids=["renamed", "kinds", "killed"])
def test_nothing_breaks(chaotic, steps):
    one = run.Run(chaotic, print)
    try:
        one.all(steps)
    except run.Broken:
        world.wipe(chaotic)
        raise
    names = {name for step in steps for op in step["ops"] for name in (op["name"], op.get("new"))}
    assert {name for name in names if name} == set(one.model.guests)
    assert {guest.status for guest in one.model.guests.values()} == {"gone"}


@pytest.mark.slow
def test_every_rename_that_was_asked_for_was_made(chaotic):
    one = run.Run(chaotic, print)
    one.before = one._look()
    one._step(1, RENAMED[0])
    one._step(2, RENAMED[1])
    statuses = {name: guest.status for name, guest in one.model.guests.items()}
    world.wipe(chaotic)
    assert statuses == {"c-g1": "gone", "c-g2": "alive"}
