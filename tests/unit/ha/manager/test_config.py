"""The settings below ``virt:ha``."""

from dataclasses import fields

import pytest

pytest.importorskip("salt")

from saltvirt import errors, settings
from saltvirt.ha.fencing.setting import FenceSetting
from saltvirt.ha.manager import config
from saltvirt.ha.model.policy import HaPolicy

AT = {"address": "10.0.0.1"}


def read(**ha):
    ha = {"members": {"hv1": "10.0.0.1", "hv2": "10.0.0.2"}, **ha}
    return config.of_master({"id": "salt_master", "virt": {"ha": ha}})


def test_what_is_said_is_read():
    options = {"ip": "10.1.0.1", "lanplus": 1, "password_file": "/etc/salt/bmc"}
    fence = {"agent": "fence_ipmilan", "options": options}
    found = read(
        members={"hv1": {"address": "10.0.0.1", "port": 1, "watchdog": None,
                         "fences": [fence, {"agent": "fence_x", "from": "hv2"}]},
                 "hv2": "10.0.0.2", "hv3": {"address": "fd00::3"}},
        pools=["/disks"], max_fences=3, beat_s=0.5, reserve=1, shutdown_policy="migrate",
    )  # fmt: skip
    assert (found.name, found.masters) == ("salt", ("salt",))
    setting = FenceSetting("fence_ipmilan", {"ip": "10.1.0.1", "lanplus": "1"}, "/etc/salt/bmc")
    assert found.members == {
        "hv1": config.Member(
            "10.0.0.1", 1, (setting, FenceSetting("fence_x", hosts=("hv2",))), None
        ),
        "hv2": config.Member("10.0.0.2"),
        "hv3": config.Member("fd00::3"),
    }
    assert found.pools == ("/disks",)
    assert found.policy == HaPolicy(max_fences=3, beat_s=0.5, reserve=1, shutdown_policy="migrate")


def test_every_field_of_the_policy_is_a_setting():
    known = {key.removeprefix("ha:") for key in settings.KEYS if key.startswith("ha:")}
    assert {one.name for one in fields(HaPolicy)} < known


def test_nothing_is_configured_until_something_is_said():
    assert not config.is_configured({"virt": {"hosts": "hv*"}})
    assert config.is_configured({"virt": {"ha": {"members": {"hv1": {}}}}})
    with pytest.raises(errors.InvalidInput, match="not configured: set virt:ha:members"):
        config.of_master({"virt": {}})


WRONG = (
    ({"member": {}}, "unknown setting 'member'; did you mean members"),
    ({"members": []}, "virt:ha:members must be a mapping"),
    ({"members": {"hv1": 7}}, "virt:ha:members:hv1 must be a mapping"),
    ({"members": {7: "x"}}, "7 is not a minion id"),
    ({"members": {"hv1": {"adress": "x"}}}, "unknown setting adress"),
    ({"members": {"hv1": "hv1.example.org"}}, "hv1: address must be an IP address, not 'hv1.exam"),
    ({"members": {"hv1": {}}}, "hv1: address must be an IP address, not nothing"),
    ({"members": {"hv1": {**AT, "port": 70000}}}, "port must be from 1"),
    ({"members": {"hv1": {**AT, "port": True}}}, "port must be from 1"),
    ({"members": {"hv1": {**AT, "watchdog": "/etc/passwd"}}}, "watchdog must be a device"),
    ({"members": {"hv1": {**AT, "fences": {}}}}, None),
    ({"members": {"hv1": {**AT, "fences": {"agent": "x"}}}}, "fences must be a list"),
    ({"members": {"hv1": {**AT, "fences": [{"agent": "/bin/sh"}]}}}, "agent must be the name"),
    ({"members": {"hv1": {**AT, "fences": [{"agent": "fence_../x"}]}}}, "agent must be the name"),
    ({"members": {"hv1": {**AT, "fences": [{"agent": "fence_x", "options": {"action": "on"}}]}}},
     "action is set by Salt Virt"),
    ({"members": {"hv1": {**AT, "fences": [{"agent": "fence_x", "options": {"password": "s"}}]}}},
     "password belongs in a password_file"),
    ({"members": {"hv1": {**AT, "fences": [{"agent": "fence_x", "options": {"ip": "a\nb=c"}}]}}},
     "ip must be a single line of text"),
    ({"members": {"hv1": {**AT, "fences": [{"agent": "fence_x", "options": {"a\nb": "x"}}]}}},
     "must be a single line of text"),
    ({"members": {"hv1": {**AT, "fences": [
        {"agent": "fence_x", "options": {"password_file": "x"}}]}}},
     "password_file must be an absolute path"),
    ({"members": {"hv1": {**AT, "fences": [{"agent": "fence_x", "from": "hv1"}]}, "hv2": AT}},
     "hv1: fence 1: from must name other members, not 'hv1'; others: hv2"),
    ({"members": {"hv1": {**AT, "fences": [{"agent": "fence_x", "from": ["hv2", "hv9"]}]},
                  "hv2": AT}},
     "from must name other members, not 'hv9'"),
    ({"members": {"hv1": {**AT, "fences": [{"agent": "fence_x", "from": [7]}]}}},
     "from must be a hypervisor or a list of hypervisors"),
    ({"masters": ["other"]}, "must include this master, salt"),
    ({"masters": ["salt", "hv1"]}, "a master must not have the name of a member"),
    ({"pools": ["disks"]}, "virt:ha:pools must be a list of absolute paths"),
    ({"leases": ["disks"]}, "virt:ha:leases must be a list of absolute paths"),
    ({"beat_s": 0}, "virt:ha:beat_s must be 0.1 or more"),
    ({"suspect_s": 2}, "virt:ha:suspect_s must be three times beat_s"),
    ({"watchdog_s": 1}, "virt:ha:watchdog_s must be twice beat_s"),
    ({"shutdown_wait_s": 601}, "virt:ha:shutdown_wait_s must be at most 600"),
    ({"clock_drift": 0.5}, "virt:ha:clock_drift must be less than 0.5"),
    ({"clock_drift": 0.49}, None),
    ({"reserve": 0.5}, "virt:ha:reserve must be a whole number"),
    ({"reserve_policy": "no"}, "virt:ha:reserve_policy must be one of refuse, warn, not 'no'"),
    ({"max_fences": 0}, "virt:ha:max_fences must be a whole number from 1"),
    ({"shutdown_policy": "panic"}, "virt:ha:shutdown_policy must be one of"),
)  # fmt: skip


@pytest.mark.parametrize("ha, why", WRONG, ids=lambda one: str(one)[:60])
def test_what_is_wrong_is_named(ha, why):
    if why is None:
        read(**ha)
        return
    with pytest.raises(errors.InvalidInput, match=why):
        read(**ha)


def test_a_password_is_not_in_what_is_said():
    options = {"password": "secret!"}
    with pytest.raises(errors.InvalidInput) as found:
        read(members={"hv1": {**AT, "fences": [{"agent": "fence_x", "options": options}]}})
    assert "secret!" not in found.value.text
