"""
The bridge that guests are connected to, put under the host's own address.
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
    Make a bridge over an interface and move the host's address to it.

    Everything is put back as it was if the bridge does not get the interface's addresses within
    the time, or if nothing answers through it: the master if the way to it goes through the
    interface, else the default gateway. A timer of systemd does that even if this minion dies
    meanwhile, and a unit if the host is started again meanwhile.

    :param bridge: its name
    :param interface: default the one with the default route, else the only one with an address
    :param timeout_s: seconds that the host may take to reach its master again
    :param vlan: the number of a VLAN of the interface, 1 to 4094: the bridge is over that, and the
        addresses stay where they are. Default: over the interface itself
    :param type: ``linux``, or ``ovs``: a bridge of Open vSwitch. Its ``interface`` is one without
        an address, by default none
    :param force: move the address also while high availability has guests on this host: if the
        bridge does not work, the host is reset and they are started elsewhere

    :return: a sentence

    :raises OperationFailed: it was put back; or a bridge of ours is over a VLAN of the interface;
        or high availability has guests here

    Knows netplan, NetworkManager, systemd-networkd, wicked, network-scripts and ifupdown;
    raises Unsupported for what is managed otherwise.

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
    Takes away a bridge that ``virt.bridge_create`` made: the interface is configured as it was
    before. When the master cannot be reached then, the bridge is put back.

    :param bridge: its name
    :param timeout_s: seconds that the host may take to reach its master again
    :param force: move the address also while high availability has guests on this host

    :return: a sentence

    :raises OperationFailed: a guest is connected to it, its files were changed since, a bridge
        of ours is over a VLAN of its interface, or high availability has guests here

    CLI Example:

    .. code-block:: bash

        salt hv1 virt.bridge_remove br0
    """
    record = bridges.bridge_record(bridge)
    if not record:
        return f"{bridge} was not made by virt.bridge_create, and is left as it is"
    if bridges.moves_address(record):
        _refuse_watched(force)
    return bridges.remove_bridge(bridge, _probe(), timeout_s)


def bridge_over(bridge="br0", interface=None, timeout_s=60, vlan=None, type="linux"):
    """
    The old name of :func:`bridge_create`, until the next release.

    :param bridge: see there
    :param interface: see there
    :param timeout_s: see there
    :param vlan: see there
    :param type: see there

    :return: a sentence

    CLI Example:

    .. code-block:: bash

        salt hv1 virt.bridge_over br0 eth0
    """
    log.warning("virt.bridge_over is deprecated: use virt.bridge_create")
    return bridge_create(bridge, interface, timeout_s, vlan, type)


def bridge_back(bridge="br0", timeout_s=60):
    """
    The old name of :func:`bridge_remove`, until the next release.

    :param bridge: see there
    :param timeout_s: see there

    :return: a sentence

    CLI Example:

    .. code-block:: bash

        salt hv1 virt.bridge_back br0
    """
    log.warning("virt.bridge_back is deprecated: use virt.bridge_remove")
    return bridge_remove(bridge, timeout_s)


def bridge_plan(bridge="br0", interface=None, vlan=None, type="linux"):
    """
    What ``virt.bridge_create`` would do here; nothing is changed.

    :param bridge: its name
    :param interface: default the one with the default route, else the only one with an address
    :param vlan: the number of a VLAN of the interface, 1 to 4094: the bridge is over that, and the
        addresses stay where they are. Default: over the interface itself
    :param type: ``linux``, or ``ovs``: a bridge of Open vSwitch. Its ``interface`` is one without
        an address, by default none

    :return: ``interface``; ``files``: path to what would be written, without the values of
        settings that hold passwords or keys, None for one that goes;
        ``commands``: those that would be run; ``made``: whether we made the bridge that is there,
        or one that is configured and not up, and then ``vlan`` and ``type`` of it, and
        ``interface`` if it is over another one; ``there``: whether there is one. Where there is
        one, or ``made`` says so, nothing would be done

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
    """A host that is cut off for longer than it feeds its watchdog is reset, and a change of its
    address that fails cuts it off for longer."""
    if values.boolean(force, "force"):
        return
    host = install.member_name()
    guests = managed_guests.assigned(host) if host else []
    if guests:
        raise errors.OperationFailed(
            f"high availability has guests here ({sanitize.one_line(', '.join(guests), 100)}): if "
            f"the "
            "network fails, this host is reset before it is put back. Move them first (salt-run "
            f"virt.evacuate {host}), or force=True"
        )


def _is_ovs(type, vlan):
    if type not in ("linux", "ovs"):
        raise errors.InvalidInput(f"type: {type!r} is no type of bridge: use linux or ovs")
    if type == "ovs" and vlan is not None:
        raise errors.InvalidInput(
            "vlan is not for a bridge of type ovs: give the tag to the guests' interfaces"
        )
    return type == "ovs"


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """YAML as netplan reads it: an address of six pairs of digits is text, not a number."""

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
    """The master's address, when there is one to reach."""
    master = __opts__.get("master_ip") or __opts__.get("master")
    if isinstance(master, str) and __opts__.get("file_client") != "local":
        return master, int(__opts__.get("master_port", 4506))
    return None
