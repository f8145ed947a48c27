"""States of networks, pools, volumes and images with Salt's loader and libvirt's test driver.
tests/integration/test_states_resources.py has bridges, devices, running guests and passwords."""

import pytest

pytest.importorskip("libvirt")
pytest.importorskip("salt")

import salt.loader

from tests.functional.conftest import REPOSITORY

NET = {"forward": "nat", "ipv4_config": {"cidr": "10.9.0.0/24"}}
OTHER = {"forward": "nat", "ipv4_config": {"cidr": "10.8.0.0/24"}}


@pytest.fixture
def apply(virt):
    """A callable of state, name and parameters: as test=True says, done, and then quiet."""
    opts = {**virt.opts, "states_dirs": [str(REPOSITORY / "_states")]}
    tested, real = (
        salt.loader.states({**opts, "test": test}, virt, {}, None) for test in (True, False)
    )

    def changes(state, name, **parameters):
        told = tested[f"virt.{state}"](name=name, **parameters)
        assert told["result"] is None, told
        done = real[f"virt.{state}"](name=name, **parameters)
        assert (done["result"], done["changes"]) == (True, told["changes"])
        for states in (tested, real):
            again = states[f"virt.{state}"](name=name, **parameters)
            assert (again["result"], again["changes"]) == (True, {}), again
        return done

    changes.fails = lambda state, name, **given: _failed(tested, real, state, name, given)
    return changes


def _failed(tested, real, state, name, given):
    answers = [states[f"virt.{state}"](name=name, **given) for states in (tested, real)]
    assert [(a["result"], a["changes"]) for a in answers] == [(False, {})] * 2
    return answers[1]["comment"]


@pytest.fixture(autouse=True)
def clean(conn):
    yield
    for one in (*conn.listAllNetworks(), *conn.listAllStoragePools()):
        if one.name().startswith("lab"):
            if one.isActive():
                one.destroy()
            if one.isPersistent():
                one.undefine()


@pytest.mark.parametrize(
    ("state", "function", "quiet", "comment"),
    [
        ("bridge_absent", "network.interfaces", {}, "The bridge x does not exist"),
        ("firewall_absent", "virt.firewall_made", False, "Salt Virt has no rules here"),
        ("no_guests", "virt.running_names", [], "No guest is running"),
    ],
)
def test_what_is_as_it_should_be_is_left(virt, state, function, quiet, comment):
    functions = {function: lambda: quiet, "network.interfaces": dict}
    opts = {**virt.opts, "states_dirs": [str(REPOSITORY / "_states")], "test": False}
    states = salt.loader.states(opts, {**functions, function: lambda **_: quiet}, {}, None)
    told = states[f"virt.{state}"](name="x")
    assert told == {"name": "x", "result": True, "changes": {}, "comment": comment}
    wrong = states[f"virt.{state}"](name="x", nmae="y")
    assert (wrong["result"], "unknown 'nmae'" in wrong["comment"]) == (False, True)


def test_a_network_is_defined_changed_started_and_taken_away(apply, conn):
    made = apply("network_defined", "lab", **NET)
    assert made["comment"] == "Network lab defined, marked for autostart"
    assert apply("network_defined", "lab", **OTHER)["comment"] == "Network lab updated"
    assert apply("network_running", "lab", **OTHER)["comment"] == "Network lab started"
    assert "10.8.0.1" in conn.networkLookupByName("lab").XMLDesc()
    gone = apply("network_absent", "lab")
    assert gone["changes"] == {
        "active": {"old": True, "new": False}, "defined": {"old": True, "new": False},
    }  # fmt: skip
    assert "lab" not in [network.name() for network in conn.listAllNetworks()]


def test_a_pool_its_volumes_and_their_end(apply, conn, tmp_path):
    folder = {"ptype": "dir", "target": str(tmp_path)}
    text = apply.fails("pool_running", "lab")
    assert "give ptype to create it" in text
    made = apply("pool_running", "lab", **folder)
    assert made["comment"] == "Storage pool lab defined, marked for autostart, started"
    assert apply("pool_running", "lab", autostart=False)["changes"] == {
        "autostart": {"old": True, "new": False}
    }
    apply("volume_defined", "v", pool="lab", size=8)
    assert "shrink: True" in apply.fails("volume_defined", "v", pool="lab", size=4)
    gone = apply("volume_absent", "v", pool="lab")
    assert gone["comment"] == "Volume v in storage pool lab deleted"
    gone = apply("pool_deleted", "lab")
    assert gone["changes"] == {"stopped": True, "undefined": True}


def test_a_parameter_that_there_is_not(apply):
    text = apply.fails("network_running", "lab", **NET, domian="x")
    assert text == "virt.network_running: unknown 'domian', did you mean 'domain'?"
    text = apply.fails("bridge", "lab", vlna=7)
    assert text == "virt.bridge: unknown 'vlna', did you mean 'vlan'?"
    text = apply.fails("image_cached", "/x", connection="test:///default")
    assert text.startswith("virt.image_cached: unknown 'connection'")


def test_a_volume_may_be_tested_before_its_pool_is_defined_and_the_error_is_libvirts(told):
    result, comment, changes = told("volume_defined", "v", True, pool="nosuch", size=8)
    assert (result, list(changes)) == (None, ["defined"])
    assert comment.endswith("There is no storage pool nosuch yet: define and start it")
    result, comment, changes = told("volume_defined", "v", False, pool="nosuch", size=8)
    assert (result, changes) == (False, {})
    assert "no storage pool 'nosuch' on" in comment


@pytest.fixture
def told(virt):
    """A callable of state, name, test and parameters: (its result, comment and changes)."""
    opts = {**virt.opts, "states_dirs": [str(REPOSITORY / "_states")]}
    states = {test: salt.loader.states({**opts, "test": test}, virt, {}, None)
              for test in (True, False)}  # fmt: skip

    def told(state, name, test=False, **parameters):
        found = states[test][f"virt.{state}"](name=name, **parameters)
        assert found["name"] == name
        return found["result"], found["comment"], found["changes"]

    return told


def test_a_guest_that_is_on_its_host_and_one_that_is_on_another_are_left(told):
    for test in (True, False):
        assert told("on_host", "test", test, target="hv1") == (True, "test is on hv1", {})
        assert told("on_host", "nobody", test, target="hv2") == (True, "nobody is not on hv1", {})
        result, comment, changes = told("on_host", "nobody", test, target="hv1")
        assert (result, changes) == (False, {}), "it has not come"
        assert comment == "nobody is not on hv1; apply this on the host that has it, too"


def test_an_option_of_a_move_that_there_is_not(told):
    result, comment, _ = told("on_host", "test", target="hv1", copy_storag="all")
    assert result is False
    assert comment == "virt.on_host: unknown 'copy_storag', did you mean 'copy_storage'?"


def test_the_agent_that_a_host_would_get_is_only_told(told):
    members = {"hv1": "10.0.0.1", "hv2": "10.0.0.2"}
    wanted = {"host": "hv1", "members": members, "masters": ["m"]}
    alone = told("ha_agent", "agent", test=True)
    both = told("ha_agent", "agent", test=True, settings=wanted)
    for result, comment, _ in (alone, both):
        assert (result, comment) == (None, "The agent would be changed")
    assert "/etc/salt-virt/ha.json" in both[2] and "/etc/salt-virt/ha.json" not in alone[2]
    assert alone[2].items() <= both[2].items()
    result, comment, changes = told("ha_agent", "agent", test=True, settings={"host": "hv1"})
    assert (result, changes) == (False, {}) and "members" in comment
