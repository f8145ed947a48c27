"""
The ports of a hypervisor, as states.
"""

import saltvirt

saltvirt = saltvirt.fresh()
from saltvirt.errors import VirtError

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def firewall(name, hosts=None, opened=("16514", "49152-49215"), shut=("5900-6155",), kind=None):
    """
    Ports are open to the other hypervisors and shut to everybody else, with the firewall that
    runs here. Rules of others are left as they are.

    :param name: of the state; nothing else is made of it
    :param hosts: names, addresses or networks of the other hypervisors; default: those that the
        master names in ``virt:hosts``
    :param opened: ports and ranges that are open to them alone
    :param shut: ports and ranges that are shut for everybody but this machine itself
    :param kind: ``firewalld``, ``ufw``, ``iptables`` or ``nftables``; default: the first of these
        that runs here

    CLI Example:

    .. code-block:: bash

        salt hv1 state.single virt.firewall name=ports
    """
    ret = {"name": name, "changes": {}, "result": True}
    wish = {"hosts": hosts, "opened": opened, "shut": shut, "kind": kind}
    try:
        plan = __salt__["virt.firewall_plan"](**wish)
        ret["comment"] = f"{plan['kind']} lets in {', '.join(plan['hosts']) or 'nobody'}"
        if plan["differs"]:
            ret["changes"] = {plan["kind"]: plan["rules"]}
            if __opts__["test"]:
                return {**ret, "result": None, "comment": f"{plan['kind']} would be changed"}
            __salt__["virt.firewall_apply"](**wish)
        return ret
    except VirtError as exc:
        return {**ret, "changes": {}, "result": False, "comment": str(exc)}


def firewall_absent(name):
    """
    The rules that ``virt.firewall`` made are gone.

    :param name: of the state; nothing else is made of it

    CLI Example:

    .. code-block:: bash

        salt hv1 state.single virt.firewall_absent name=ports
    """
    ret = {"name": name, "changes": {}, "result": True, "comment": "There are no rules of ours"}
    if not __salt__["virt.firewall_made"]():
        return ret
    ret["changes"] = {"rules": "taken away"}
    if __opts__["test"]:
        return {**ret, "result": None, "comment": "The rules would be taken away"}
    __salt__["virt.firewall_remove"]()
    return {**ret, "comment": "The rules were taken away"}
