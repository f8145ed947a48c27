"""The setting of a fence as users write it."""

import pytest

from saltvirt import errors
from saltvirt.ha.fencing import setting
from saltvirt.ha.fencing.setting import FenceSetting

GOOD = {"agent": "fence_x"}


@pytest.mark.parametrize("given, found", [
    (GOOD, FenceSetting("fence_x")),
    ({**GOOD, "from": "hv2"}, FenceSetting("fence_x", hosts=("hv2",))),
    ({**GOOD, "from": ("hv2", "hv3")}, FenceSetting("fence_x", hosts=("hv2", "hv3"))),
    ({**GOOD, "from": None, "options": None}, FenceSetting("fence_x")),
    ({**GOOD, "options": {"plug": 1}}, FenceSetting("fence_x", {"plug": "1"})),
    ({**GOOD, "options": {"password_file": "/x"}}, FenceSetting("fence_x", {}, "/x")),
])  # fmt: skip
def test_a_fence_is_read(given, found):
    assert setting.parse("fence 1", given) == found


AGENT = "agent must be the name of a fence agent such as fence_ipmilan, not "
FROM = "from must be a hypervisor or a list of hypervisors"


@pytest.mark.parametrize("given, why", [
    ({}, f"fence 1: {AGENT}''"),
    ({"agent": None}, f"fence 1: {AGENT}''"),
    ({"agent": 7}, f"fence 1: {AGENT}7"),
    ({**GOOD, "from": 7}, f"fence 1: {FROM}"),
    ({**GOOD, "from": {"hv2": 1}}, f"fence 1: {FROM}"),
    ({**GOOD, "from": ["hv2", 7]}, f"fence 1: {FROM}"),
    ({**GOOD, "options": ["ip"]}, "fence 1: options must be a mapping, not ['ip']"),
    ({**GOOD, "options": {"ip": ["x"]}}, "fence 1: ip must be a single line of text"),
    ({**GOOD, "options": {"password_file": 7}},
     "fence 1: password_file must be an absolute path"),
    ({**GOOD, "option": {}, "at": 1},
     "fence 1: unknown setting at, option; known: agent, from, options"),
])  # fmt: skip
def test_what_is_no_fence_is_refused(given, why):
    with pytest.raises(errors.InvalidInput) as raised:
        setting.parse("fence 1", given)
    assert raised.value.text == why
