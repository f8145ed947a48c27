"""
The host itself, as states: the bridge that guests are connected to, and that no guest runs.
"""

import saltvirt

saltvirt = saltvirt.fresh()
from saltvirt.errors import VirtError  # noqa: E402
from saltvirt.host import running  # noqa: E402

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def bridge(name, interface=None, timeout_s=60):
    """
    There is a bridge of that name. Where there is none it is made over the host's own
    address, with a way back: see ``virt.bridge_over``. One that is there is left as it is.

    :param name: of the bridge
    :param interface: default: the one with the default route, else the only one with an address
    :param timeout_s: seconds that the host may take to reach its master again, else all is put back

    CLI Example:

    .. code-block:: bash

        salt hv1 state.single virt.bridge name=br0
    """
    ret = {"name": name, "changes": {}, "result": True, "comment": f"The bridge {name} is there"}
    try:
        plan = __salt__["virt.bridge_plan"](name, interface)
        if plan["there"]:
            return ret
        ret["changes"] = {name: f"over {plan['interface']}"}
        if __opts__["test"]:
            return {**ret, "result": None, "comment": f"The bridge {name} would be made"}
        return {**ret, "comment": __salt__["virt.bridge_over"](name, interface, timeout_s)}
    except VirtError as exc:
        return {**ret, "changes": {}, "result": False, "comment": str(exc)}


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


def no_guests(name):
    """
    No guest runs here; else it fails and names them. It stops none: migrate them with
    ``salt-run virt.evacuate``, or stop them.

    :param name: of the state; nothing else is made of it

    CLI Example:

    .. code-block:: bash

        salt hv1 state.single virt.no_guests name=idle
    """
    found = running.names()
    comment = f"Guests run here: {', '.join(found)}" if found else "No guest runs here"
    return {"name": name, "changes": {}, "result": not found, "comment": comment}


def _is_link(name):
    return name in __salt__["network.interfaces"]()
