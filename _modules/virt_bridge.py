"""
Manage the bridge that guests are connected to, below the host's own address.
"""

import logging
import re
from typing import TYPE_CHECKING

import salt.utils.yaml
import yaml  # type: ignore[import-untyped]

import saltvirt

saltvirt = saltvirt.fresh()
with saltvirt.later():
    from saltvirt import errors, sanitize
    from saltvirt.ha.agent import install, managed_guests
    from saltvirt.hostnet.bridge import bridges
    from saltvirt.hostnet.bridge import plan as plans
    from saltvirt.spec import values

if TYPE_CHECKING:
    from salt_dunders import __opts__

log = logging.getLogger(__name__)

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def bridge_create(bridge="br0", interface=None, timeout_s=60, vlan=None, type="linux", force=False):
    """
    Create a bridge on an interface and move the host's address to it.

    The previous configuration is restored if the bridge does not get the interface's addresses in
    time, or if nothing answers through it: the master, if its route uses the interface, otherwise
    the default gateway. A systemd timer restores it even if this minion dies, and a unit if the
    host reboots meanwhile.

    :param bridge: name of the bridge
    :param interface: default: the one with the default route, or the only one with an address
    :param timeout_s: timeout in seconds for reaching the master again
    :param vlan: VLAN id of the interface, 1 to 4094. The bridge is created on the VLAN, and the
        addresses of the interface are left unchanged. Default: the interface itself
    :param type: ``linux`` or ``ovs`` (Open vSwitch). The ``interface`` of an Open vSwitch bridge
        must have no address; default: none
    :param force: move the address even if high availability has guests on this host. If the bridge
        does not work, the host is reset and its guests are started elsewhere

    :return: a message

    :raises OperationFailed: the change was rolled back; or a bridge of Salt Virt is on a VLAN of
        the interface; or high availability has guests here

    Supports netplan, NetworkManager, systemd-networkd, wicked, network-scripts and ifupdown; raises
    Unsupported for other network managers.

    CLI Example:

    .. code-block:: bash

        salt hv1 virt.bridge_create br0 eth0
        salt hv1 virt.bridge_create br100 eth0 vlan=100
    """
    if _is_ovs(type, vlan):
        return bridges.create_ovs_bridge(bridge, interface, _probe(), timeout_s)
    if vlan is None and not bridges.exists(bridge):
        _refuse_watched(force)
    return bridges.create_bridge(bridge, interface, _yaml(), _probe(), timeout_s, vlan)


def bridge_remove(bridge="br0", timeout_s=60, force=False):
    """
    Remove a bridge that ``virt.bridge_create`` created, and restore the previous configuration of
    its interface. If the master cannot be reached then, the bridge is restored.

    :param bridge: name of the bridge
    :param timeout_s: timeout in seconds for reaching the master again
    :param force: move the address even if high availability has guests on this host

    :return: a message

    :raises OperationFailed: a guest is connected to it, its files were changed, a bridge of Salt
        Virt is on a VLAN of its interface, or high availability has guests here

    CLI Example:

    .. code-block:: bash

        salt hv1 virt.bridge_remove br0
    """
    record = bridges.bridge_record(bridge)
    if not record:
        return f"{bridge} was not created by virt.bridge_create and is not changed"
    if bridges.moves_address(record):
        _refuse_watched(force)
    return bridges.remove_bridge(bridge, _probe(), timeout_s)


def bridge_over(bridge="br0", interface=None, timeout_s=60, vlan=None, type="linux"):
    """
    Old name of :func:`bridge_create`, until the next release.

    :param bridge: see :func:`bridge_create`
    :param interface: see :func:`bridge_create`
    :param timeout_s: see :func:`bridge_create`
    :param vlan: see :func:`bridge_create`
    :param type: see :func:`bridge_create`

    :return: a message

    CLI Example:

    .. code-block:: bash

        salt hv1 virt.bridge_over br0 eth0
    """
    log.warning("virt.bridge_over is deprecated: use virt.bridge_create")
    return bridge_create(bridge, interface, timeout_s, vlan, type)


def bridge_back(bridge="br0", timeout_s=60):
    """
    Old name of :func:`bridge_remove`, until the next release.

    :param bridge: see :func:`bridge_create`
    :param timeout_s: see :func:`bridge_create`

    :return: a message

    CLI Example:

    .. code-block:: bash

        salt hv1 virt.bridge_back br0
    """
    log.warning("virt.bridge_back is deprecated: use virt.bridge_remove")
    return bridge_remove(bridge, timeout_s)


def bridge_plan(bridge="br0", interface=None, vlan=None, type="linux"):
    """
    Show what ``virt.bridge_create`` would do. Nothing is changed.

    :param bridge: name of the bridge
    :param interface: default: the one with the default route, or the only one with an address
    :param vlan: VLAN id of the interface, 1 to 4094. The bridge is created on the VLAN, and the
        addresses of the interface are left unchanged. Default: the interface itself
    :param type: ``linux`` or ``ovs`` (Open vSwitch). The ``interface`` of an Open vSwitch bridge
        must have no address; default: none

    :return: ``interface``; ``files``: paths to the new content, without the values of settings that
        contain passwords or keys, or None for a file that would be deleted; ``commands`` that would
        be run; ``there``: whether the bridge exists; ``made``: whether Salt Virt created it (also
        if it is configured but not up), then with its ``vlan``, ``type`` and, if it is on another
        one, ``interface``. If ``there`` or ``made`` is True, nothing would be done

    CLI Example:

    .. code-block:: bash

        salt hv1 virt.bridge_plan
    """
    is_ovs = _is_ovs(type, vlan)
    record = bridges.bridge_record(bridge)
    status = {"there": bridges.exists(bridge), "made": bool(record)}
    if record:
        interface_below = interface if bridges.is_over(record, interface) else record["interface"]
        return {
            **status,
            "interface": interface_below,
            "vlan": record["vlan"],
            "type": record["type"],
        }
    if status["there"]:
        return status
    if is_ovs:
        plan = bridges.plan_ovs(bridge, interface)
    else:
        interface, plan = bridges.plan(bridge, interface, _yaml(), vlan)
    commands = [" ".join(argv) for argv in (*plan.before, *plan.apply)]
    files = plans.shown(plan.files)
    return {**status, "interface": interface, "files": files, "commands": commands}


def _refuse_watched(force):
    """Refuse the change if high availability watches this host: a host that is disconnected for
    longer than it feeds its watchdog is reset, and a failed change of its address disconnects it
    for longer."""
    if values.boolean(force, "force"):
        return
    host = install.member_name()
    guests = managed_guests.assigned(host) if host else []
    if guests:
        raise errors.OperationFailed(
            f"high availability has guests here ({sanitize.one_line(', '.join(guests), 100)}): if "
            "the network fails, this host is reset before the change is rolled back. Migrate them "
            f"first (salt-run virt.evacuate {host}), or pass force=True"
        )


def _is_ovs(type, vlan):
    if type not in ("linux", "ovs"):
        raise errors.InvalidInput(f"type: {type!r} is not a type of bridge: use linux or ovs")
    if type == "ovs" and vlan is not None:
        raise errors.InvalidInput(
            "vlan is not for a bridge of type ovs: give the tag to the guests' interfaces"
        )
    return type == "ovs"


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """YAML as netplan reads it: a MAC address that consists of digits is text, not a number."""

    yaml_implicit_resolvers = {
        first: [
            (tag, re.compile(r"(?:0|[-+]?[1-9][0-9]*)$") if tag.endswith(":int") else regexp)
            for tag, regexp in resolvers
            if not tag.endswith(":float")
        ]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def _load(text):
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as exc:
        raise ValueError(str(exc)) from exc


def _yaml():
    return _load, _dump


def _dump(tree):
    return salt.utils.yaml.safe_dump(tree, default_flow_style=False)


def _probe():
    """The master's address, if there is a master."""
    master = __opts__.get("master_ip") or __opts__.get("master")
    if isinstance(master, str) and __opts__.get("file_client") != "local":
        return master, int(__opts__.get("master_port", 4506))
    return None
