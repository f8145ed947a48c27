"""The decisions of high availability, in simulated clouds: docs/ha.md."""

from dataclasses import replace

import pytest

from saltvirt.ha import agent_view, registry, view
from saltvirt.ha.agent_acts import Acting
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


HELD = registry.GuestRecord("recovering", epoch=3, changed=7)
ASKED = ("lease", "its disks' lease is asked for")
LET_GO = ("kill", "its disks' lease is no longer this host's")


@pytest.mark.parametrize(
    "record, held, done",
    [
        (replace(HELD, host="h1", taker="h2"), 0, ASKED),
        (replace(HELD, host="h1", taker="h2"), 6, ASKED),
        (replace(HELD, host="h1", taker="h2"), 7, None),
        (replace(HELD, better="h2"), 7, None),
        (replace(HELD, host="h3", better="h2", run=True), 7, LET_GO),
        (replace(HELD, host="h1", run=True), 7, LET_GO),
        (replace(HELD, host="h2", boot=1), 7, LET_GO),
        (replace(HELD, host="h2", boot=1, run=True), 7, ("start", "")),
    ],
)
def test_a_lease_is_kept_until_its_guest_starts(record, held, done):
    known = Registry(version=7, members=("h1", "h2", "h3"), guests={"web1": record})
    state = agent_view.begun("h2", 1, agent_view.Kept(registry=known), 9)
    seen = agent_view.AgentView(leases={"web1": held} if held else {})
    found = Acting(state, seen, view.HaPolicy(), True, 9)._guests()
    assert [(one.kind, one.why) for one in found] == ([done] if done else [])


def test_the_same_seed_draws_the_same_cloud():
    assert random.draw(7) == random.draw(7) != random.draw(8)


def test_every_condition_of_safety_can_be_taken_away():
    names = {line.split("`")[1] for line in _conditions()}
    assert names == set(mutants.WITHOUT)


def _conditions():
    text = (REPOSITORY / "docs/ha.md").read_text(encoding="utf-8")
    table = text.split("<!-- conditions -->")[1].split("<!-- end of conditions -->")[0]
    return [line for line in table.splitlines() if line.startswith("| `")]
