"""The decisions of high availability, in simulated clouds: docs/ha.md."""

import pytest

from saltvirt.ha import view
from saltvirt.ha.place import Room
from saltvirt.ha.registry import HostRecord, Registry
from tests.ha import mutants, random, simulate
from tests.lab.paths import REPOSITORY

SCENARIOS = sorted((REPOSITORY / "tests/ha/scenarios").glob("*.yaml"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_a_scenario_ends_as_is_expected(path):
    found = simulate.outcome(path.read_text(encoding="utf-8"))
    assert found["violations"] == []
    assert found["unexpected"] == []


def test_there_are_scenarios_enough():
    assert len(SCENARIOS) >= 100


@pytest.mark.parametrize("seed", range(1, 41))
def test_random_clouds_with_random_faults_keep_their_guests(seed):
    assert random.failures(random.draw(seed)) == []


# a migration whose target died before it told of its arrival; a hung host, told to end its agent,
# that had lost its guest by a lease
FOUND = ((46, 1), (20023, 0.5))


@pytest.mark.parametrize("seed, trap", FOUND)
def test_what_random_clouds_found(seed, trap):
    assert random.failures(random.draw(seed, trap)) == []


def test_a_master_that_knows_no_hosts_room_yet_places_nothing_and_says_so():
    wanted = {"web1": view.GuestWanted("web1", "hv1")}
    known = Registry(members=("hv1",), hosts={"hv1": HostRecord("up", boot=1)})
    room = Room(view.View(("m",), ("hv1",), {}, guests=wanted), known, 0)
    assert room.ranked("web1") == ([], "hv1: up")


def test_the_same_seed_draws_the_same_cloud():
    assert random.draw(7) == random.draw(7) != random.draw(8)


def test_every_condition_of_safety_can_be_taken_away():
    names = {line.split("`")[1] for line in _conditions()}
    assert names == set(mutants.WITHOUT)


def _conditions():
    text = (REPOSITORY / "docs/ha.md").read_text(encoding="utf-8")
    table = text.split("<!-- conditions -->")[1].split("<!-- end of conditions -->")[0]
    return [line for line in table.splitlines() if line.startswith("| `")]
