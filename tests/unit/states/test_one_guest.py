"""States of guests, snapshots, power and certificates, with the answers of their host."""

import pytest

from saltvirt.errors import InvalidInput, NotFound, OperationFailed
from saltvirt.states import (
    certificates,
    guests,
    ha_agent,
    migrations,
    outcome,
    pools,
    power,
    result,
    snapshots,
)
from tests.unit.states.test_states import Host

HOW = {"update": True, "live": True, "detach": False}
CHANGE = {"path": "mem", "old": 1, "new": 2, "live": True}


def a_host(test=False, **answers):
    found = Host(**answers)
    found.test = test
    return found


def functions(host):
    return [name for name, *_ in host.calls]


# -- guests ----------------------------------------------------------------------------------------


def test_what_a_guest_may_be_given_is_what_init_takes_but_for_what_the_state_decides():
    found = guests.arguments()
    assert {"ha", "cpu", "mem", "disks"} <= set(found) and not {"start", "disk", "nic"} & set(found)
    assert "snapshot" in snapshots.arguments() and "live" in migrations.arguments()


def test_a_guest_that_is_not_there_is_made_only_where_it_is_said_how():
    host = a_host(list_domains=[])
    with pytest.raises(NotFound, match="web1 does not exist; give cpu and mem to create it"):
        guests.running(host, "web1", cpu=2, **HOW)
    assert functions(host) == ["list_domains"]


def test_what_the_operator_should_know_of_a_new_guest_is_in_the_comment():
    made = {"disks": [], "warnings": ["the master has not accepted the key of web1"]}
    found = guests.running(a_host(list_domains=[], init=made), "web1", cpu=2, mem=512, **HOW)
    assert found["comment"] == f"web1 was created and started; {made['warnings'][0]}"
    assert found["result"] is True


def test_a_guest_that_cannot_be_changed_is_not_made_anew():
    host = a_host(list_domains=["web1"], vm_state={"web1": "shutdown"},
                  update=OperationFailed("no definition"))  # fmt: skip
    with pytest.raises(OperationFailed, match="no definition"):
        guests.defined(host, "web1", cpu=2, mem=512, **HOW)
    assert "init" not in functions(host)


@pytest.mark.parametrize("state, live, comment", [
    ("running", True, "web1 was changed"), ("shutdown", False, "web1 was changed and started"),
    ("running", False, "web1 was changed"),
])  # fmt: skip
def test_what_takes_effect_at_the_next_start_alone_is_said(state, live, comment):
    changes = [CHANGE, {**CHANGE, "old": 2, "new": 3, "live": live}]
    host = a_host(
        list_domains=["web1"], vm_state={"web1": state}, start=True,
        update={"definition": True, "changes": changes, "warnings": ["slow"],
                **({} if live else {"pending": ["mem (1 now, then 3)"]})},
    )  # fmt: skip
    found = guests.running(host, "web1", mem=3, **HOW)
    waits = "" if live else "; will change at the next start: mem (1 now, then 3)"
    assert found["comment"] == f"{comment}{waits}; slow" and found["result"] is True
    assert found["changes"]["web1"]["definition"] == {"mem": {"old": 1, "new": 3, "live": live}}


def test_a_guest_that_was_changed_and_does_not_start_failed_with_what_was_done():
    host = a_host(
        list_domains=["web1"], vm_state={"web1": "shutdown"}, start=OperationFailed("no memory"),
        update={"definition": True, "changes": [CHANGE]},
    )  # fmt: skip
    found = guests.running(host, "web1", mem=2, **HOW)
    assert (found["result"], found["comment"]) == (False, "web1 was changed. no memory")
    assert "started" not in found["changes"]["web1"]


@pytest.mark.parametrize("test", [True, False])
def test_a_guest_goes_and_what_is_kept_of_it_is_said(test):
    plan = {"delete": ["/srv/web1"], "keep": {"/srv/data": "it is another guest's"}}
    host = a_host(test, list_domains=["web1"], purge=plan)
    found = guests.absent(host, "web1", True)
    assert found["result"] is (None if test else True)
    assert found["changes"] == {"web1": {"undefined": True, "deleted": ["/srv/web1"]}}
    would = "would be" if test else "was"
    assert found["comment"] == (f"web1 {would} removed; kept: /srv/data (it is another guest's)")
    assert functions(host).count("purge") == (1 if test else 2)
    gone = guests.absent(a_host(list_domains=[]), "web1", False)
    assert (gone["result"], gone["changes"]) == (True, {})


# -- where it is -----------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [migrations.migrated, migrations.on_host])
def test_a_guest_moves_from_here_and_is_left_where_it_is(state):
    here = a_host(list_domains=["web1"], migrate=True)
    assert state(here, "web1", "hv1", "hv1")["comment"] == "web1 is on hv1"
    assert functions(here) == ["list_domains"] * (1 if state is migrations.migrated else 2)
    found = state(here, "web1", "hv2", "hv1")
    assert found["comment"] == "web1 was moved to hv2"
    assert found["changes"] == {"web1": {"host": {"old": "hv1", "new": "hv2"}}}


def test_a_guest_that_is_elsewhere_already_and_one_that_is_nowhere():
    class There(Host):
        def call(self, function, *args, connection=None, **kwargs):
            return ["web1"] if connection else []

    found = migrations.migrated(There(), "web1", "hv2", "hv1")
    assert (found["result"], found["comment"]) == (True, "web1 is on hv2")
    found = migrations.on_host(There(), "web1", "hv2", "hv1")
    assert (found["result"], found["comment"]) == (True, "web1 is not on hv1")
    with pytest.raises(NotFound, match="web1 is not on hv1; apply this on the host that has it"):
        migrations.on_host(There(), "web1", "hv1", "hv1")


# -- power -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("force, done", [(False, []), (True, ["web1"])])
def test_a_guest_that_does_not_shut_down_is_stopped_where_it_is_said(force, done):
    late = OperationFailed("web1 did not shut down within 1 s")
    states = {"web1": "running", "web2": "shutdown"}
    host = a_host(list_domains=[*states], stop=True, shutdown=late, vm_state=states)
    found = power.stopped(host, "web*", 1, force)
    assert [one["domain"] for one in found["changes"].get("stopped", [])] == done
    assert found["result"] is force
    assert (("stop", "web1") in host.calls) is force and ("stop", "web2") not in host.calls


def test_what_is_off_already_is_nothing_to_be_done():
    host = a_host(list_domains=["web1"], vm_state={"web1": "shutdown"})
    for found in (power.stopped(host, "web1", 1, False), power.powered_off(host, "web1")):
        assert (found["result"], found["changes"]) == (True, {})
        assert found["comment"].startswith("nothing to be ")


@pytest.mark.parametrize("test, state, result_, changes", [
    (True, "shutdown", False, {}), (False, "running", True, True), (True, "running", None, True),
])  # fmt: skip
def test_one_that_is_off_cannot_be_rebooted_which_a_test_says(test, state, result_, changes):
    host = a_host(test, list_domains=["web1"], vm_state={"web1": state}, reboot=True)
    found = power.rebooted(host, "web1")
    shown = {"rebooted": [{"domain": "web1", "reboot": True}]} if changes else {}
    assert (found["result"], found["changes"]) == (result_, shown)
    assert ("reboot" in functions(host)) is (not test)


# -- snapshots -------------------------------------------------------------------------------------


@pytest.mark.parametrize("test", [True, False])
def test_a_snapshot_is_taken_once_of_each_guest(test):
    there = {"web1": [{"name": "before-1"}], "web2": "it is hung"}
    host = a_host(test, list_domains=["web1", "web2"], list_snapshots=lambda name: there,
                  snapshot={"name": "before-1"})  # fmt: skip
    found = snapshots.taken(host, "web*", 1, "before", quiesce=None)
    assert found["changes"] == {"saved": [{"domain": "web2", "snapshot": "before-1"}]}
    assert [name for name, *_ in host.calls if name == "snapshot"] == ["snapshot"]
    nameless = snapshots.taken(host, "web1", None)
    shown = "web1-DATE-TIME" if test else "before-1"
    assert nameless["changes"]["saved"] == [{"domain": "web1", "snapshot": shown}]
    host = a_host(test, list_domains=["web1"], snapshot={"name": "before-1", "notes": ["external"]})
    noted = snapshots.taken(host, "web1", None)
    assert noted["changes"]["saved"][0]["notes"] == ["external"]


def dated(*days, suffix="-periodic", guest="web1"):
    return [f"{guest}-202611{day:02}-120000{suffix}" for day in days]


@pytest.mark.parametrize("test", [True, False])
def test_the_older_snapshots_of_a_suffix_go_when_a_new_one_is_taken(test):
    others = [*dated(1, suffix=""), *dated(1, suffix="-x"), *dated(1, guest="web10"), "mine"]
    names = [*dated(3, 1, 2), *others]

    def take(name, **given):
        names.extend(dated(4))
        return {"name": dated(4)[0]}

    host = a_host(test, list_domains=["web1"], snapshot={"name": "x"} if test else take,
                  list_snapshots=lambda name: {name: [{"name": one} for one in names]},
                  delete_snapshots=lambda _, *gone: {"deleted": dict.fromkeys(gone)})  # fmt: skip
    found = snapshots.taken(host, "web1", "periodic", keep=2)
    assert found["changes"]["saved"][0]["deleted"] == dated(1, 2)
    assert ("delete_snapshots" in functions(host)) is (not test)
    assert found["result"] is (None if test else True)


def test_the_new_snapshot_stays_though_the_clock_was_turned_back():
    """As at the end of summer time: it is named before those that are there."""
    names = dated(3, 4)

    def take(name, **given):
        names.extend(dated(2))
        return {"name": dated(2)[0]}

    host = a_host(list_domains=["web1"], snapshot=take,
                  list_snapshots=lambda name: {name: [{"name": one} for one in names]},
                  delete_snapshots=lambda _, *gone: {"deleted": dict.fromkeys(gone)})  # fmt: skip
    saved = snapshots.taken(host, "web1", "periodic", keep=2)["changes"]["saved"]
    assert saved == [{"domain": "web1", "snapshot": dated(2)[0], "deleted": dated(3)}]


def test_what_is_not_deleted_is_said_and_the_new_snapshot_too():
    def refuse(*_):
        raise NotFound("stop web1 first")

    host = a_host(list_domains=["web1"], snapshot={"name": dated(4)[0]}, delete_snapshots=refuse,
                  list_snapshots={"web1": [{"name": one} for one in dated(3, 4)]})  # fmt: skip
    found = snapshots.taken(host, "web1", "periodic", keep="1")
    assert found["changes"] == {"saved": [{"domain": "web1", "snapshot": dated(4)[0]}]}
    assert found["result"] is False
    assert f"web1: {dated(3)[0]} not deleted: stop web1 first" in found["comment"]


@pytest.mark.parametrize("wrong", [{"keep": 0}, {"keep": "all"}, {"keep": 3, "snapshot": "a"}])
def test_a_number_that_cannot_be_kept_is_refused_before_a_snapshot(wrong):
    host = a_host(list_domains=["web1"])
    with pytest.raises(InvalidInput, match="keep"):
        snapshots.taken(host, "web1", "periodic", **wrong)
    assert functions(host) == []


def test_one_without_snapshots_goes_back_to_none_and_the_others_do():
    there = {"web1": [{"name": "a"}], "web2": []}
    done = {"reverted": "a", "deleted": ["b"]}
    host = a_host(list_domains=["web1", "web2"], list_snapshots=lambda name: there,
                  revert_snapshot=done)  # fmt: skip
    found = snapshots.reverted(host, "web*", None, True)
    assert found["changes"] == {"reverted": [{"domain": "web1", "current": "a", "deleted": ["b"]}]}
    assert found["result"] is False and "web2 has no snapshots" in found["comment"]


# -- what is one call of the execution module ------------------------------------------------------


@pytest.mark.parametrize("test, changes, comment", [
    (False, {}, "All keys are correct"),
    (True, {"a": "new"}, "Libvirt keys are set to be updated"),
    (False, {"a": "new"}, "Updated libvirt certs and keys. libvirtd is at work still"),
])  # fmt: skip
def test_certificates(test, changes, comment):
    host = a_host(test, tls_update={"changes": changes, "notes": ["libvirtd is at work still"]})
    assert certificates.placed(host, "keys")["comment"] == comment


def test_the_agent_and_its_settings():
    host = a_host(ha_install={"changes": {"a": "made"}, "comment": "It is installed"},
                  ha_settings={"changes": {"b": "made"}, "comment": "It is at work"})  # fmt: skip
    alone, both = ha_agent.installed(host, "x"), ha_agent.installed(host, "x", {"host": "hv1"})
    assert (alone["changes"], alone["comment"]) == ({"a": "made"}, "It is installed")
    assert (both["changes"], both["comment"]) == ({"a": "made", "b": "made"}, "It is at work")


def test_what_the_execution_module_brings_about_is_the_states_answer():
    asked = {}

    def converge(name, **more):
        asked.update(more)
        return {"changes": {"autostart": {"old": False, "new": True}}, "comment": "done"}

    host = result.StateHost({"virt.pool_converge": converge}, {"connection": "test:///"}, True)
    found = pools.defined(host, "data", autostart=True)
    assert (found["result"], found["comment"]) == (None, "done")
    assert asked == {"connection": "test:///", "test": True, "autostart": True}
    assert host.ha_reason("web1") == ""
    keeping = result.StateHost({"virt.ha_kept": lambda name: f"{name} is kept"}, {}, False)
    assert keeping.ha_reason("web1") == "web1 is kept"


def test_several_changes_of_one_path_are_lists():
    from saltvirt.diff.change import Change

    several = (("a", None, 1), ("a", 2, 3), ("b", 1, None))
    found = outcome.by_path([Change("x", path, old, new) for path, old, new in several])
    assert found == {"a": {"old": [2], "new": [1, 3]}, "b": {"old": 1, "new": None}}
