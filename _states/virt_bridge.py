"""
The bridge of a host that guests are connected to, as states.
"""

import saltvirt

saltvirt = saltvirt.fresh()
from saltvirt.errors import VirtError

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def bridge(name, interface=None, timeout_s=60, vlan=None, type="linux"):
    """
    There is a bridge of that name. Where there is none it is made over the host's own
    address, with a way back: see ``virt.bridge_over``. One that is there is left as it is.

    :param name: of the bridge
    :param interface: default: the one with the default route, else the only one with an address
    :param timeout_s: seconds that the host may take to reach its master again, else all is put back
    :param vlan: the number of a VLAN of the interface, 1 to 4094: the bridge is over that, and the
        addresses stay where they are. Default: over the interface itself
    :param type: ``linux``, or ``ovs``: a bridge of Open vSwitch. Its ``interface`` is one without
        an address, by default none

    CLI Example:

    .. code-block:: bash

        salt hv1 state.single virt.bridge name=br0
        salt hv1 state.single virt.bridge name=br100 interface=eth0 vlan=100
    """
    ret = {"name": name, "changes": {}, "result": True, "comment": f"The bridge {name} is there"}
    try:
        plan = __salt__["virt.bridge_plan"](name, interface, vlan, type)
        if plan["there"]:
            return _as_asked(ret, plan, vlan, type)
        where = (
            plan["interface"] or "nothing"
            if vlan is None
            else f"VLAN {vlan} of {plan['interface']}"
        )
        ret["changes"] = {name: f"over {where}"}
        if __opts__["test"]:
            return {**ret, "result": None, "comment": f"The bridge {name} would be made"}
        return {
            **ret,
            "comment": __salt__["virt.bridge_over"](name, interface, timeout_s, vlan, type),
        }
    except VirtError as exc:
        return {**ret, "changes": {}, "result": False, "comment": str(exc)}


def _as_asked(ret, plan, vlan, type):
    """A bridge that we made over another VLAN is none to leave as it is."""
    made = plan.get("vlan")
    if not plan["made"] or (str(made), plan["type"]) == (str(vlan), type):
        return ret
    if plan["type"] != type:
        comment = f"{ret['name']} was made as {plan['type']}, not {type}: take it away first"
        return {**ret, "result": False, "comment": comment}
    told = "no VLAN" if made is None else f"VLAN {made}"
    comment = f"{ret['name']} was made over {told}: take it away first, with virt.bridge_absent"
    return {**ret, "result": False, "comment": comment}


def bridge_absent(name, timeout_s=60):
    """
    The bridge that ``virt.bridge`` made is gone, and the host's address where it was. One
    that was made otherwise is left as it is.

    :param name: of the bridge
    :param timeout_s: seconds that the host may take to reach its master again, else the bridge is
        put back

    CLI Example:

    .. code-block:: bash

        salt hv1 state.single virt.bridge_absent name=br0
    """
    ret = {"name": name, "changes": {}, "result": True, "comment": f"There is no bridge {name}"}
    try:
        plan = __salt__["virt.bridge_plan"](name, None) if _is_link(name) else {"there": False}
        if not plan["there"]:
            return ret
        if not plan["made"]:
            return {**ret, "comment": f"{name} was not made by virt.bridge, and is left as it is"}
        ret["changes"] = {name: "taken away"}
        if __opts__["test"]:
            return {**ret, "result": None, "comment": f"The bridge {name} would be taken away"}
        return {**ret, "comment": __salt__["virt.bridge_back"](name, timeout_s)}
    except VirtError as exc:
        return {**ret, "changes": {}, "result": False, "comment": str(exc)}


def _is_link(name):
    return str(name) in __salt__["network.interfaces"]()
