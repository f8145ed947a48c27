"""Timeouts of proofs, and what happens to guests when a host shuts down."""

from dataclasses import replace

import pytest

from saltvirt.ha.model.policy import HaPolicy
from tests.unit.ha.model.made import POLICY


@pytest.mark.parametrize("off", [0, 0.01, 0.1, 0.49])
def test_what_the_slowest_clock_measures_the_fastest_one_finds_no_longer_than_by_the_drift(off):
    measured_s = 1000
    passed_s = measured_s / (1 - off)
    assert passed_s * (1 + off) == pytest.approx(measured_s * HaPolicy(clock_drift=off).drift)


# of 0.2: the fastest clock runs 1.5 times as fast as the slowest
@pytest.mark.parametrize(
    "drift, watchdog_s, fired_s", [(0, 10, 31), (0, 15, 41), (0.2, 10, 45), (0.2, 60, 195)]
)
def test_a_watchdog_has_fired_after_the_lease_and_twice_its_own_time_by_any_clock(
    drift, watchdog_s, fired_s
):
    policy = replace(POLICY, clock_drift=drift, feed_lease_s=8, margin_s=3)
    assert policy.must_have_fired_s(watchdog_s) == pytest.approx(fired_s)


@pytest.mark.parametrize(
    "drift, beat_s, lead_s", [(0, 1, 5.5), (0, 2, 5), (0.2, 1, 3.5), (0.2, 2, 3)]
)
def test_a_master_leads_for_less_than_agents_keep_the_lead_for_it(drift, beat_s, lead_s):
    policy = replace(POLICY, clock_drift=drift, beat_s=beat_s, lead_lease_s=6)
    assert policy.lead_s == pytest.approx(lead_s)


@pytest.mark.parametrize(
    "policy, reboot, way",
    [
        ("conditional", True, "freeze"), ("conditional", False, "failover"),
        *((one, reboot, one) for one in ("freeze", "failover", "migrate")
          for reboot in (True, False)),
    ],
)  # fmt: skip
def test_what_becomes_of_the_guests_of_a_host_that_shuts_down(policy, reboot, way):
    assert HaPolicy(shutdown_policy=policy).on_shutdown(reboot) == way
