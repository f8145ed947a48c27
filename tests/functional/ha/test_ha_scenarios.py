"""The decisions of high availability in simulated clouds: docs/explanation/ha-design.md."""

from dataclasses import replace

import pytest

from saltvirt.ha.model import decide, idle, view
from tests.ha import random, simulate
from tests.lab.paths import REPOSITORY

SCENARIOS = sorted((REPOSITORY / "tests/ha/scenarios").glob("*.yaml"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_a_scenario_ends_as_is_expected(path):
    found = simulate.outcome(path.read_text(encoding="utf-8"))
    assert found["violations"] == []
    assert found["unexpected"] == []


@pytest.mark.parametrize("seed", range(1, 41))
def test_random_clouds_with_random_faults_keep_their_guests(seed):
    assert random.failures(random.draw(seed)) == []


# a migration whose target died before it told of its arrival; a hung host, told to end its agent,
# that had lost its guest by a lease; a lease that nobody has any more, and one who had it before; a
# master who asks for a lead of which he cannot hear
FOUND = ((46, 1), (20023, 0.5), (801388, 0.5), (802124, 0.5))


@pytest.mark.parametrize("seed, trap", FOUND)
def test_what_random_clouds_found(seed, trap):
    assert random.failures(random.draw(seed, trap)) == []


@pytest.mark.parametrize("seed", range(101, 109))
def test_what_is_passed_over_as_quiet_changes_no_decision(seed, monkeypatch):
    real, is_host, skipped, hosts = decide.decide, idle.is_idle_host, [], []

    def is_quiet(*known):
        hosts.append(is_host(*known))
        return hosts[-1]

    def both(seen, state, now_s):
        monkeypatch.setattr(idle, "is_idle_host", is_quiet)
        found = real(seen, state, now_s)
        monkeypatch.setattr(idle, "is_idle_host", lambda *_: False)
        anew = real(seen, replace(state, idle=view.IdleGuests()), now_s)
        skipped.append(bool(state.idle.statuses.keys() & found.state.idle.statuses.keys()))
        assert replace(found.state, idle=anew.state.idle) == anew.state
        assert (found.message, found.fences, found.changes) == (
            anew.message,
            anew.fences,
            anew.changes,
        )
        return found

    monkeypatch.setattr(decide, "decide", both)
    assert random.failures(random.draw(seed)) == []
    assert any(skipped) and any(hosts)
