"""States applied by the master and by salt-call: the second apply changes nothing."""

import pytest

SLS = """
lan:
  virt.network_running:
    - bridge: br7
    - forward: bridge
    - autostart: True
store:
  virt.pool_running:
    - ptype: dir
    - target: /store
    - autostart: True
test:
  virt.powered_off: []
"""
BACK = """
lan:
  virt.network_absent: []
store:
  virt.pool_deleted:
    - purge: False
"""


@pytest.fixture(scope="module")
def tree(cloud):
    """The states ``here`` and ``away``."""
    for name, text in (("here", SLS), ("away", BACK)):
        (cloud.tree / f"{name}.sls").write_text(text, encoding="utf-8")


def changed(states):
    """Name to what changed, of states that all succeeded."""
    assert all(state["result"] is True for state in states.values()), states
    return {state["__id__"] for state in states.values() if state["changes"]}


def test_applied_by_the_master_on_all_and_again(cloud, tree):
    planned = cloud.salt("hv*", "state.apply", "here", test=True)
    for states in planned.values():
        assert {state["result"] for state in states.values()} == {None}, states
    first = cloud.salt("hv*", "state.apply", "here")
    assert {host: changed(states) for host, states in first.items()} == {
        host: {"lan", "store", "test"} for host in cloud.hosts
    }
    again = cloud.salt("hv*", "state.apply", "here")
    assert {host: changed(states) for host, states in again.items()} == {
        host: set() for host in cloud.hosts
    }
    assert cloud.salt("hv1", "virt.list_active_vms") == {"hv1": []}


def test_and_taken_back_by_salt_call(cloud, tree):
    cloud.salt("hv*", "virt.start", "test")
    for states in cloud.calls("state.apply", "away").values():
        assert changed(states) <= {"lan", "store"}
    for states in cloud.calls("state.apply", "away").values():
        assert changed(states) == set()
