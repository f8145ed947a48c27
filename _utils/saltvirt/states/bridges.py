"""States of bridges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from saltvirt.errors import VirtError
from saltvirt.states.result import answer

if TYPE_CHECKING:
    from saltvirt.states.result import Answer, StateHost


def present(
    host: StateHost,
    name: str,
    interface: str | None,
    timeout_s: int,
    vlan: int | None,
    type: str,
    force: bool = False,
) -> Answer:
    """See ``virt.bridge``."""
    plan = host.call("bridge_plan", name, interface, vlan, type)
    if plan["exists"]:
        wrong = _differences(name, plan, interface, vlan, type)
        return answer(name, comment=f"The bridge {name} exists", failures=wrong)
    if plan["created"]:
        down = f"{name} was created here and is configured, but does not exist now: bring it up"
        return answer(name, failures=[f"{down}, or remove it with virt.bridge_absent"])
    lower_device = plan["interface"] or "nothing"
    if vlan is not None:
        lower_device = f"VLAN {vlan} of {plan['interface']}"
    comment = f"The bridge {name} would be created"
    if not host.test:
        comment = host.call("bridge_create", name, interface, timeout_s, vlan, type, force)
    return answer(name, {name: f"over {lower_device}"}, comment, host.test)


def _differences(
    name: str, plan: dict[str, Any], interface: str | None, vlan: object, type: str
) -> list[str]:
    """The differences between a bridge that Salt Virt created and the requested one."""
    if not plan["created"]:
        return []
    if plan["type"] != type:
        return [f"{name} was created as {plan['type']}, not {type}: remove it first"]
    old_vlan = plan.get("vlan")
    if str(old_vlan) != str(vlan):
        lower_device = "no VLAN" if old_vlan is None else f"VLAN {old_vlan}"
    elif interface and plan["interface"] != interface:
        lower_device = f"{plan['interface'] or 'nothing'}, not {interface}"
    else:
        return []
    return [f"{name} was created on {lower_device}: remove it first, with virt.bridge_absent"]


def absent(host: StateHost, name: str, timeout_s: int, force: bool = False) -> Answer:
    """See ``virt.bridge_absent``."""
    try:
        plan = host.call("bridge_plan", name, None)
    except VirtError:
        if name in host.salt["network.interfaces"]():
            raise
        plan = {"exists": False, "created": False}  # neither could a bridge be created here
    if not plan["exists"] and not plan["created"]:
        return answer(name, comment=f"The bridge {name} does not exist")
    if not plan["created"]:
        return answer(name, comment=f"{name} was not created by virt.bridge and is not changed")
    comment = f"The bridge {name} would be removed"
    if not host.test:
        comment = host.call("bridge_remove", name, timeout_s, force)
    return answer(name, {name: "removed"}, comment, host.test)
