"""States of an orchestration with Salt's loader and the master's real runner, in a cloud of two
hosts with realistic answers."""

# ruff: noqa: F811
import pytest

pytest.importorskip("libvirt")
pytest.importorskip("salt")

import salt.config
import salt.loader

from saltvirt.ha.manager import desired_state
from tests.functional.conftest import REPOSITORY
from tests.functional.operations.test_hostile_answers import (  # noqa: F401
    BACKUP,
    VERBS,
    call,
    modules,
    pairs,
    real,
)

SMALL = {"mem": 64, "seed": False, "hypervisor": "test", "nic": None}


@pytest.fixture
def told(call, monkeypatch):
    """A callable of state, name, test and parameters: (its result, comment and changes), and what
    the hosts have done. The master is as new each time."""
    opts = {**salt.config.minion_config(None), "grains": {}}
    opts["states_dirs"] = [str(REPOSITORY / "_states")]
    clouds = []

    def runner(fun, kwarg):
        verb = fun.removeprefix("virt.")
        monkeypatch.setitem(VERBS, verb, ({}, ()))
        cloud, found = call(verb, **kwarg)
        clouds.append(cloud)
        return found

    states = {
        test: salt.loader.states({**opts, "test": test}, {"saltutil.runner": runner}, {}, None)
        for test in (True, False)
    }

    def told(state, name, test=False, **parameters):
        found = states[test][f"virt.{state}"](name=name, **parameters)
        assert found["name"] == name
        return found["result"], found["comment"], found["changes"]

    told.clouds = clouds
    return told


def done(told):
    """(host, function) of all that the last state had hosts do."""
    return [(host, fun) for host, fun, _ in told.clouds[-1].done]


def refused(told, state, name, **parameters):
    """Why, with test and without; nothing was changed."""
    found = [told(state, name, test, **parameters) for test in (True, False)]
    assert [(result, changes) for result, _, changes in found] == [(False, {})] * 2, found
    [why] = {comment for _, comment, _ in found}
    return why


def test_a_deployment_is_made_where_there_is_room(told):
    asked = {"guests": {"web1": {}, "new1": {"mem": 64}}, "defaults": {**SMALL, "host": "hv2"}}
    changes = {"new1": {"old": None, "new": "hv2"}}
    for test, result, word in ((True, None, "would be deployed"), (False, True, "deployed")):
        found, comment, changed = told("deployed", "shop", test, **asked)
        assert (found, changed) == (result, changes)
        assert comment.startswith(
            f"{word}: new1 on hv2; existing: 1; not listed: db1 on hv1, web2 on hv2; "
            "web1 stays as it is: cpu 2, not 1, memory 1 GiB, not 64 MiB"
        )
        assert (("hv2", "virt.init") in done(told)) is not test


def test_what_a_deployment_lists_no_more_goes_where_that_is_said(told):
    asked = {"guests": {"web1": SMALL}, "remove": True}
    changes = {"db1": {"old": "hv1", "new": None}, "web2": {"old": "hv2", "new": None}}
    assert told("deployed", "shop", True, **asked)[::2] == (None, changes)
    assert done(told) == []
    assert told("deployed", "shop", **asked)[::2] == (True, changes)
    assert sorted(done(told)) == [("hv1", "virt.purge"), ("hv2", "virt.purge")]


def test_a_deployment_that_cannot_be_says_why(told):
    why = refused(told, "deployed", "shop", guests={"new1": {"mem": "much"}})
    assert why == "mem 'much' is not a positive size such as 512, 512MiB or 2G"
    why = refused(told, "deployed", "shop", guests={}, at_once="many")
    assert why == "at_once 'many' is not a positive whole number"
    why = refused(told, "deployed", "shop", guests={}, at_onc=2)
    assert why == "virt.deployed: unknown 'at_onc', did you mean 'at_once'?"


def kept(told):
    """The guests that high availability keeps now, and their priority."""
    known = desired_state.DesiredStateStore(told.clouds[-1].opts).read().guests
    return {name: guest.priority for name, guest in known.items()}


def test_a_guest_is_given_to_high_availability(told):
    for test, result, word in ((True, None, "would be"), (False, True, "is")):
        found, comment, changes = told("ha_enabled", "web1", test, priority=3)
        assert found is result
        assert comment.startswith(f"web1 on hv1 {word} given to high availability")
        assert changes["ha"]["old"] is None and changes["ha"]["new"]["priority"] == 3
        assert kept(told) == ({"db1": 0} if test else {"db1": 0, "web1": 3})
    assert told("ha_enabled", "db1") == (True, "db1 is already managed by high availability", {})
    found, _, changes = told("ha_enabled", "db1", priority=7, restarts=0)
    assert (found, changes["ha"]["old"]["priority"], kept(told)) == (True, 0, {"db1": 7})


def test_a_guest_that_cannot_be_given_to_it_is_named(told):
    assert refused(told, "ha_enabled", "nobody") == "no guest 'nobody' on any hypervisor"
    assert "priority" in refused(told, "ha_enabled", "web1", priority="high")
    why = refused(told, "ha_enabled", "web1", priorty=1)
    assert why == "virt.ha_enabled: unknown 'priorty', did you mean 'priority'?"


def test_a_guest_is_taken_from_it(told):
    for test, result, word in ((True, None, "would be"), (False, True, "is")):
        found, comment, changes = told("ha_disabled", "db1", test)
        assert (found, changes["ha"]["new"]) == (result, None)
        assert (
            comment
            == f"db1 {word} no longer managed by high availability; the guest stays as it is"
        )
        assert kept(told) == ({"db1": 0} if test else {})
    assert told("ha_disabled", "web1") == (True, "web1 is not managed by high availability", {})


def test_a_guest_without_a_backup_is_backed_up(told):
    found = told("backed_up", "web1", True)
    assert found == (
        None, "web1 has no good backup: would back it up", {"backup": None}
    )  # fmt: skip
    assert ("hv1", "virt.backup_begin") not in done(told)
    result, comment, changes = told("backed_up", "web1", hours=3, to="vault")
    assert (result, changes) == (True, {"backup": BACKUP})
    assert comment.startswith(f"backed up web1 to vault: {BACKUP}, ")
    assert ("hv1", "virt.backup_begin") in done(told)


def test_a_guest_that_cannot_be_backed_up_is_named(told):
    assert refused(told, "backed_up", "nobody") == "no guest matches nobody"
    why = refused(told, "backed_up", "web1", to="attic")
    assert why == "unknown backup target 'attic'; known: vault"
    assert "hours" in refused(told, "backed_up", "web1", hours="day")


def test_a_guest_that_is_not_there_is_made_of_a_backup(told):
    result, comment, changes = told("restored", "new1", True, source="web1")
    assert (result, changes) == (None, {"backup": BACKUP})
    assert comment == f"would restore new1 on hv1 from {BACKUP}"
    assert ("hv1", "virt.backup_show") not in done(told)
    asked = {"source": "web1", "backup": 1, "to": "vault", "host": "hv2"}
    result, comment, changes = told("restored", "new1", **asked)
    assert (result, changes) == (True, {"backup": BACKUP})
    assert comment == f"restored new1 on hv2 from {BACKUP}; new1 is off"
    assert ("hv2", "virt.backup_restore") in done(told)


def test_one_that_is_there_is_left(told):
    for test in (True, False):
        assert told("restored", "web1", test) == (True, "web1 exists on hv1 and is running", {})
        assert done(told) == []
    assert refused(told, "restored", "nobody") == "no backup of nobody in the target vault found"
