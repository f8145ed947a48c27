"""Differences of networks, pools and volumes, and the answers of their states, without libvirt."""

import pytest

from saltvirt.diff.change import Change
from saltvirt.errors import InvalidInput, OperationFailed
from saltvirt.spec import network as network_spec
from saltvirt.spec import pool as pool_spec
from saltvirt.spec import volume as volume_spec
from saltvirt.states import (
    bridges,
    deployments,
    firewalls,
    ha_guests,
    images,
    networks,
    pools,
    result,
    volumes,
)
from tests.unit.states.test_states import Host

POOL = pool_spec.parse("p", "dir", target="/srv/p")
TARGET = Change("pool", "path", "/srv/o", "/srv/p")


def pool_step(desired=None, **facts):
    given = {"spec": POOL, "running": True, "autostart": True, **(desired or {})}
    there = {
        "active": True,
        "persistent": True,
        "autostart": True,
        "redefined": [],
        "live_changes": [],
    }
    return pools.PoolStep(pools.DesiredPool("p", **given), pools.PoolFacts(**{**there, **facts}))


def test_a_pool_that_is_as_it_should_be():
    outcome = pool_step().outcome()
    assert (outcome.changes, outcome.comment(False)) == (
        {},
        "Storage pool p is in the desired state",
    )


@pytest.mark.parametrize(
    ("users", "restart", "restarts", "comment"),
    [
        ((), False, True, "Storage pool p updated, restarted"),
        (("web1",), True, True, "Storage pool p updated, restarted"),
        (
            *(("web1", "web2"), False, False),
            "Storage pool p updated. The changes take effect when the pool is restarted, "
            "as web1, web2 has volumes of it open (restart: True restarts it now)",
        ),
    ],
)
def test_a_pool_that_guests_use_is_not_stopped(users, restart, restarts, comment):
    step = pool_step({"restart": restart}, redefined=[TARGET], live_changes=[TARGET], users=users)
    assert (step.restarts, step.outcome().comment(False)) == (restarts, comment)


def test_a_pool_that_is_only_defined_waits_for_its_next_start():
    outcome = pool_step({"running": None}, redefined=[TARGET], live_changes=[TARGET]).outcome()
    assert outcome.changes == {"path": {"old": "/srv/o", "new": "/srv/p"}}
    assert outcome.notes == ["The changes take effect when the pool is restarted"]


def test_a_pool_that_becomes_transient():
    step = pool_step({"transient": True})
    assert (step.forgets, step.stops, step.restarts, step.recreates) == (True,) * 4
    assert step.outcome().changes == {"persistent": {"old": True, "new": False}}
    stopped = pool_step({"transient": True}, active=False, autostart=False)
    assert (stopped.recreates, stopped.restarts) == (True, False)
    assert stopped.outcome().changes["active"] == {"old": False, "new": True}
    used = pool_step({"transient": True}, users=("web1",))
    with pytest.raises(InvalidInput, match="as web1 has volumes of it open; restart: True"):
        used.outcome()


def test_a_transient_pool_becomes_persistent():
    outcome = pool_step(persistent=False, autostart=False).outcome()
    assert {path: change["new"] for path, change in outcome.changes.items()} == {
        "persistent": True, "autostart": True,
    }  # fmt: skip


def test_without_a_definition_only_its_life_is_compared():
    step = pool_step({"spec": None, "autostart": False}, active=False)
    assert step.outcome().changes == {
        "autostart": {"old": True, "new": False}, "active": {"old": False, "new": True},
    }  # fmt: skip
    with pytest.raises(InvalidInput, match="pool p does not exist on hv1; give ptype to create it"):
        pools.created(step.desired, "hv1")


def test_another_password_is_said_and_not_shown():
    outcome = pool_step(new_password=True).outcome()
    assert outcome.changes == {"password": {"old": "(hidden)", "new": "(hidden)"}}


def test_a_new_pool_that_is_transient_is_not_marked_for_autostart():
    outcome = pools.created(pool_step({"transient": True, "running": None}).desired, "hv1")
    assert [*outcome.changes] == ["defined", "active"]


NETWORK = network_spec.parse("lab", forward="bridge", bridge="br0")
MTU = Change("network", "mtu", None, 1400)
HOSTS = Change("network", "ip/hosts", None, {"ip": "10.0.0.7"}, live=True)


def network(desired=None, **facts):
    given = {"spec": NETWORK, "running": True, "autostart": True, **(desired or {})}
    there = {"active": True, "persistent": True, "autostart": True, "redefined": [], "live": [],
             "waiting": [], "users": []}  # fmt: skip
    facts = networks.NetworkFacts(**{**there, **facts})
    desired = networks.DesiredNetwork(**given)
    return networks.restarts(desired, facts), networks.changed(desired, facts)


def test_what_a_network_takes_at_once_restarts_nothing():
    again, outcome = network(redefined=[HOSTS], live=[HOSTS])
    assert (again, outcome.comment(True)) == (False, "Network lab would be updated")


@pytest.mark.parametrize(
    ("running", "users", "restart", "again", "words"),
    [
        (True, [], False, True, "updated, restarted"),
        (True, ["web1"], True, True, "port isolation do not hold for them until then"),
        (True, ["web1"], False, False, "restarted: web1 uses it (restart: True restarts it now)"),
        (None, ["web1"], True, False, "restarted: web1 uses it"),
        (None, [], True, False, "take effect when the network is restarted"),
    ],
)
def test_guests_keep_their_network(running, users, restart, again, words):
    desired = {"running": running, "restart": restart}
    found, outcome = network(desired, redefined=[MTU], waiting=[MTU], users=users)
    assert (found, outcome.comment(False).endswith(words)) == (again, True)


def test_the_life_of_a_network():
    _, outcome = network({"autostart": False}, active=False)
    assert outcome.comment(False) == "Network lab no longer started with the host, started"
    _, outcome = network(persistent=False, autostart=False)
    assert outcome.comment(True) == "Network lab would be defined, marked for autostart"


BACKING = {"path": "/b", "format": "raw"}


def volume(given=None, shrink=False, **facts):
    words = {"format": "qcow2", "size": "8M", **(given or {})}
    desired = volumes.DesiredVolume("p", volume_spec.parse("v", **words), shrink)
    there = {"pool_type": "dir", "type": "file", "format": "qcow2", "backing": None,
             "size_bytes": 8 << 20, "mode": "0600", "owner": 0, "group": 0,
             "label": None}  # fmt: skip
    facts = volumes.VolumeFacts(**{**there, **facts})
    return volumes.needs_users(desired, facts), lambda: volumes.changed(desired, facts)


@pytest.mark.parametrize(
    ("given", "facts", "words"),
    [
        ({"format": "raw"}, {}, "another format qcow2, not raw; these cannot be changed"),
        ({"type": "block"}, {}, "type file, not block"),
        ({"backing_store": BACKING}, {}, "backing store none, not /b \\(raw\\)"),
        ({}, {"backing": ("/b", "raw")}, "backing store /b \\(raw\\), not none"),
        ({"size": "4M"}, {}, r"has 8\S* MiB, more than 4\S* MiB; shrink: True shrinks it"),
        ({"size": "16M"}, {"users": ("web1",)}, "as it is open in web1; virt.resize_disk"),
    ],
)
def test_what_cannot_be_changed_in_a_volume(given, facts, words):
    with pytest.raises(OperationFailed, match=words):
        volume(given, **facts)[1]()


def test_a_volume_is_resized_and_its_permissions_set():
    asks, changed = volume({"size": "16M", "permissions": {"mode": "0640", "group": 4}})
    assert (asks, [*changed().changes]) == (True, ["size_bytes", "mode", "group"])
    assert changed().comment(False) == (
        "Volume v in storage pool p resized, its permissions changed"
    )
    _, changed = volume({"permissions": {"mode": "0640", "group": 4}}, users=("web1",))
    assert [*changed().changes] == ["mode"], "libvirt lends the file to the guest"
    assert volume({"size": "4M"}, shrink=True)[1]().changes["size_bytes"]["new"] == 4 << 20


@pytest.mark.parametrize(("pool_type", "same"), [("dir", False), ("logical", True)])
def test_a_size_that_its_pool_rounds_up_is_no_difference(pool_type, same):
    asks, changed = volume(pool_type=pool_type, size_bytes=(8 << 20) + 4096, shrink=True)
    assert (asks, changed().changes == {}) == (not same, same)


@pytest.mark.parametrize(
    ("path", "replaces", "changes", "comment"),
    [
        (None, [], {"image": {"old": None, "new": "salt://a"}}, "Image salt://a fetched"),
        (None, ["a-1"], {"image": {"old": "a-1", "new": "salt://a"}}, "Image salt://a fetched"),
        ("/a", ["a-1"], {}, "Image salt://a is in the cache"),
        ("/a", None, {}, "Image salt://a is on this host"),
    ],
)
def test_an_image_is_fetched_where_it_is_not(path, replaces, changes, comment):
    host = Host(image_fetch={"source": "salt://a", "path": path, "replaces": replaces})
    answer = images.cached(host, "salt://a")
    assert (answer["changes"], answer["comment"]) == (changes, comment)
    assert len(host.calls) == 1 + bool(changes)


@pytest.mark.parametrize(
    ("plan", "vlan", "kind", "words"),
    [
        ({"created": False}, 100, "ovs", "The bridge br0 exists"),
        ({"created": True, "vlan": 100, "type": "linux"}, 100, "linux", "The bridge br0 exists"),
        (
            {"created": True, "vlan": None, "type": "linux"},
            7,
            "linux",
            "created on no VLAN",
        ),
        ({"created": True, "vlan": 8, "type": "linux"}, 7, "linux", "created on VLAN 8: remove"),
        (
            {"created": True, "vlan": None, "type": "ovs"},
            None,
            "linux",
            "created as ovs",
        ),
        (
            {"created": True, "vlan": None, "type": "linux", "interface": "eth1"},
            None,
            "linux",
            "br0 was created on eth1, not eth0: remove it first, with virt.bridge_absent",
        ),
    ],
)
def test_a_bridge_that_is_there_is_left_alone(plan, vlan, kind, words):
    host = Host(bridge_plan={"exists": True, "interface": "eth0", **plan})
    answer = bridges.present(host, "br0", "eth0", 60, vlan, kind)
    assert (answer["changes"], words in answer["comment"]) == ({}, True)
    assert answer["result"] is ("remove it" not in answer["comment"])
    assert [call[0] for call in host.calls] == ["bridge_plan"]


@pytest.mark.parametrize(
    ("interface", "vlan", "over"),
    [("eth0", None, "over eth0"), ("eth0", 7, "over VLAN 7 of eth0"), (None, None, "over nothing")],
)
def test_a_new_bridge_is_over_what_the_plan_found(interface, vlan, over):
    plan = {"exists": False, "created": False, "interface": interface}
    host = Host(bridge_plan=plan, bridge_create="made br0")
    answer = bridges.present(host, "br0", None, 60, vlan, "linux")
    assert (answer["changes"], answer["comment"]) == ({"br0": over}, "made br0")
    assert host.calls[1] == ("bridge_create", "br0", None, 60, vlan, "linux", False)
    host.test, host.calls = True, []
    answer = bridges.present(host, "br0", None, 60, vlan, "linux")
    assert (answer["result"], answer["comment"]) == (None, "The bridge br0 would be created")
    assert [call[0] for call in host.calls] == ["bridge_plan"]


def test_a_bridge_of_ours_that_is_down_is_neither_made_again_nor_passed_over():
    host = Host(bridge_plan={"exists": False, "created": True}, bridge_remove="eth0 is as it was")
    answer = bridges.present(host, "br0", None, 60, None, "linux")
    assert (answer["result"], answer["changes"]) == (False, {})
    assert answer["comment"].endswith("bring it up, or remove it with virt.bridge_absent")
    answer = bridges.absent(host, "br0", 60)
    assert (answer["result"], answer["comment"]) == (True, "eth0 is as it was")
    assert host.calls[-1] == ("bridge_remove", "br0", 60, False)


@pytest.mark.parametrize(
    ("plan", "comment"),
    [
        ({"exists": False, "created": False}, "The bridge br0 does not exist"),
        (
            {"exists": True, "created": False},
            "br0 was not created by virt.bridge and is not changed",
        ),
    ],
)
def test_a_bridge_of_somebody_elses_is_not_taken_away(plan, comment):
    host = Host(bridge_plan=plan)
    answer = bridges.absent(host, "br0", 60)
    assert (answer["result"], answer["changes"], answer["comment"]) == (True, {}, comment)
    assert "bridge_remove" not in [call[0] for call in host.calls]


def test_a_bridge_of_ours_is_taken_away():
    host = Host(bridge_plan={"exists": True, "created": True}, bridge_remove="br0 is gone")
    host.test = True
    answer = bridges.absent(host, "br0", 60)
    assert (answer["result"], answer["comment"]) == (None, "The bridge br0 would be removed")
    assert [call[0] for call in host.calls] == ["bridge_plan"]
    host.test = False
    answer = bridges.absent(host, "br0", 60)
    assert (answer["result"], answer["comment"]) == (True, "br0 is gone")
    assert answer["changes"] == {"br0": "removed"}
    assert host.calls[-1] == ("bridge_remove", "br0", 60, False)


def test_rules_of_a_firewall_are_changed_once():
    plan = {"kind": "nftables", "hosts": ["10.0.0.1"], "differs": True, "rules": "as they shall be"}
    host = Host(firewall_plan=lambda: plan, firewall_apply=None)
    host.test = True
    answer = firewalls.applied(host, "ports")
    assert (answer["result"], answer["comment"]) == (None, "nftables would be changed")
    assert answer["changes"] == {"nftables": "as they shall be"}
    assert host.calls == [("firewall_plan",)]
    host.test = False
    assert firewalls.applied(host, "ports")["comment"] == "nftables admits 10.0.0.1"
    assert host.calls[-1] == ("firewall_apply",)
    plan["differs"], plan["hosts"], host.calls = False, [], []
    answer = firewalls.applied(host, "ports")
    assert (answer["changes"], answer["comment"]) == ({}, "nftables admits no hosts")
    assert host.calls == [("firewall_plan",)]


@pytest.mark.parametrize(
    ("made", "test", "result", "comment", "called"),
    [
        (False, False, True, "Salt Virt has no rules here", ["firewall_made"]),
        (True, True, None, "The rules would be removed", ["firewall_made"]),
        (True, False, True, "The rules were removed", ["firewall_made", "firewall_remove"]),
    ],
)
def test_rules_of_a_firewall_go(made, test, result, comment, called):
    host = Host(firewall_made=made, firewall_remove=None)
    host.test = test
    answer = firewalls.absent(host, "ports")
    assert (answer["result"], answer["comment"]) == (result, comment)
    assert answer["changes"] == ({"rules": "removed"} if made else {})
    assert [call[0] for call in host.calls] == called


def deployed(functions, test=False):
    return deployments.deployed(result.StateHost(functions, {}, test), "shop", guests={})


def test_a_deployment_needs_the_master():
    answer = deployed({})
    assert (answer["result"], answer["comment"]) == (
        *(False, "this state is for an orchestration on the master"),
    )
    answer = deployed({"saltutil.runner": lambda _function, kwarg: "no such runner"})
    assert "gave no answer: no such runner. This state is for" in answer["comment"]


def test_a_deployment_that_failed_keeps_what_was_done():
    about = {"result": False, "comment": "web2: no room", "changes": {"web1": "made"}}
    answer = deployed({"saltutil.runner": lambda _function, kwarg: {"data": {"shop": about}}})
    assert (answer["result"], answer["changes"]) == (False, {"web1": "made"})
    assert answer["comment"] == "web2: no room"


def ha(function, name="web1", told=None, test=False, **given):
    """(the state's answer, what the runner was asked)."""
    asked = []

    def runner(verb, kwarg):
        asked.append((verb, kwarg))
        return {"data": {name: told or {"result": True, "comment": "done", "changes": {"ha": 1}}}}

    host = result.StateHost({"saltutil.runner": runner}, {}, test)
    return function(host, name, **given), asked


def test_guests_that_are_kept_are_the_masters_to_say():
    found, asked = ha(ha_guests.enabled, priority=3, group=None, test=True)
    assert asked == [("virt.ha_enable", {"name": "web1", "priority": 3, "test": True})]
    assert found == {"name": "web1", "changes": {"ha": 1}, "result": None, "comment": "done"}
    found, asked = ha(ha_guests.disabled, told={"result": True, "comment": "not kept"})
    assert asked == [("virt.ha_disable", {"name": "web1", "missing": True, "test": False})]
    assert (found["result"], found["changes"]) == (True, {})
    tied = {"result": False, "comment": "disk vda is on hv1 alone"}
    assert ha(ha_guests.enabled, told=tied)[0]["comment"] == "disk vda is on hv1 alone"
    answer = ha_guests.enabled(result.StateHost({}, {}, False), "web1")
    assert answer["comment"] == "this state is for an orchestration on the master"


def test_a_deployment_is_what_the_runner_says():
    def runner(function, kwarg):
        assert (function, kwarg) == (
            *("virt.deployed", {"guests": {}, "deployment": "shop", "test": True}),
        )
        return {"data": {"shop": {"result": None, "comment": "1 guest", "changes": {"a": 1}}}}

    answer = deployed({"saltutil.runner": runner}, True)
    assert answer == {"name": "shop", "changes": {"a": 1}, "result": None, "comment": "1 guest"}
