"""Facts that an agent derives: which peers know its heartbeats, whether a guest may arrive, and
whether its watchdog is needed."""

from dataclasses import replace

import pytest

from saltvirt.ha.model import agent_facts, agent_view, messages
from saltvirt.ha.model.agent_view import REBOOT, SHUTDOWN
from saltvirt.ha.model.messages import GuestStatus, HeartbeatAck
from saltvirt.ha.model.policy import CONDITIONAL, FAILOVER, FREEZE, MIGRATE
from saltvirt.ha.model.registry import GuestLocation
from tests.unit.ha.model import made

NOW_S, TWO = made.NOW_S, ("h1", "h2")


def acting_by(registry, **changes):
    return made.agent({"registry": registry}, **changes)


def heard(seq, boot=1):
    """What acknowledges that beat of h1."""
    return {"h1": HeartbeatAck(boot, seq)}


def beats(acks):
    return {host: made.beat(host, acks=ack) for host, ack in acks.items()}


@pytest.mark.parametrize(
    "network, stored, known",
    [
        ({}, {}, {}),
        ({"h2": heard(7)}, {}, {"h2": 7}),
        ({}, {"h2": heard(7)}, {"h2": 7}),
        ({"h2": heard(7)}, {"h2": heard(8), "h3": heard(6)}, {"h2": 8, "h3": 6}),
        ({"h2": heard(8)}, {"h2": heard(7)}, {"h2": 8}),
        ({"h2": {}, "h3": {"h2": HeartbeatAck(1, 9)}}, {}, {}),
        ({"h2": heard(7, boot=2), "h3": heard(7)}, {}, {"h3": 7}),
        ({"stranger": heard(7)}, {"stranger": heard(7)}, {}),
    ],
)
def test_peers_acknowledge_a_beat_by_the_network_or_by_storage(network, stored, known):
    sees = made.agent_sees(beats=beats(network), stored=beats(stored))
    found = agent_facts.acks_of_peers(made.agent(), sees)
    assert found == {host: HeartbeatAck(1, seq) for host, seq in known.items()}


@pytest.mark.parametrize("seq, many", [(6, 2), (7, 1), (8, 0)])
def test_who_acknowledged_a_later_beat_knows_of_the_earlier_ones(seq, many):
    sees = made.agent_sees(beats=beats({"h2": heard(7), "h3": heard(6)}))
    assert agent_facts.count_acks(made.agent(), sees, seq) == many


@pytest.mark.parametrize(
    "members, alone, acks, many",
    [
        (TWO, True, heard(7), 1),
        (TWO, True, heard(6), 0),
        (TWO, True, heard(7, boot=2), 0),
        (TWO, True, {"h2": HeartbeatAck(1, 7)}, 0),
        (TWO, False, heard(7), 0),
        (made.HOSTS, True, heard(7), 0),
    ],
)
def test_of_two_hosts_the_only_master_counts_among_those_that_know(members, alone, acks, many):
    state = acting_by(made.registry(members=members))
    sees = made.agent_sees(messages={"m1": made.call(sole_master=alone, acks=acks)})
    assert agent_facts.count_acks(state, sees, 7) == many


@pytest.mark.parametrize(
    "record, changes, may",
    [
        ({}, {}, True),
        ({"target": "h3"}, {}, False),
        ({"target_boot": 2}, {}, False),
        ({"epoch": 1}, {}, False),
        ({"epoch": 3}, {}, False),
        ({}, {"phase": messages.LEAVING}, False),
        ({}, {"lease_from_s": NOW_S - 7.9}, True),
        ({}, {"lease_from_s": NOW_S - 8}, False),
    ],
)
def test_a_guest_comes_in_by_migration_only_with_the_epoch_that_the_leader_gave_it(
    record, changes, may
):
    coming = made.record("h2", **{"target": "h1", "target_boot": 1, "epoch": 2, **record})
    state = acting_by(made.registry({"web1": coming}), **changes)
    assert agent_facts.consents(state, "web1", 3, NOW_S, made.POLICY) is may


def test_a_guest_that_the_registry_does_not_have_does_not_come_in():
    assert agent_facts.consents(made.agent(), "web1", 1, NOW_S, made.POLICY) is False


@pytest.mark.parametrize(
    "policy, asked, way",
    [(CONDITIONAL, REBOOT, FREEZE), (CONDITIONAL, SHUTDOWN, FAILOVER), (MIGRATE, REBOOT, MIGRATE)],
)
def test_what_becomes_of_guests_where_their_host_goes_down(policy, asked, way):
    policy = replace(made.POLICY, shutdown_policy=policy)
    assert agent_facts.way_down(made.agent_sees(request=asked), policy) == way


def test_alive_is_what_may_write_to_its_disks():
    states = [
        messages.STARTING,
        messages.STOPPED,
        messages.RUNNING,
        messages.OFF,
        messages.INCOMING,
    ]
    there = {state: GuestStatus(1, state) for state in states}
    found = agent_facts.alive(made.agent_sees(guests=there))
    assert found == [messages.STARTING, messages.RUNNING, messages.INCOMING]


HERE = GuestStatus(1, messages.RUNNING)
AWAY = made.record("h2")


@pytest.mark.parametrize(
    "record, here, wants",
    [
        (AWAY, {}, False),
        (AWAY, {"web2": GuestStatus(1, messages.OFF)}, False),
        (AWAY, {"web2": HERE}, True),  # not this host's, and yet here
        (made.record("h1", locations=()), {}, True),
        (made.record("h2", target="h1"), {}, True),
        (made.record("h2", locations=(GuestLocation("h2", 1), GuestLocation("h1", 1))), {}, True),
    ],
)
def test_a_watchdog_is_needed_where_a_guest_runs_or_is_to_run(record, here, wants):
    state = acting_by(made.registry({"web0": AWAY, "web1": record}))
    sees = made.agent_sees(guests=here)
    assert agent_facts.wants_watchdog(state, sees, messages.WORKING) is wants


@pytest.mark.parametrize(
    "phase, registry, wants",
    [
        (messages.WORKING, {}, True),
        (messages.LEAVING, {}, True),
        (messages.RESTING, {}, False),
        (messages.SHUT_DOWN, {}, False),
        (messages.WORKING, {"armed": False}, False),
        (messages.WORKING, {"members": TWO}, True),
        (messages.WORKING, {"members": ("h1",)}, False),  # nobody could start them elsewhere
    ],
)
def test_a_watchdog_is_needed_only_while_others_may_count_on_it(phase, registry, wants):
    state = acting_by(made.registry({"web1": made.record()}, **registry))
    sees = agent_view.AgentView(guests={"web1": HERE})
    assert agent_facts.wants_watchdog(state, sees, phase) is wants
