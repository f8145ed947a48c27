"""
The bridge that guests are connected to, put under the host's own address.
"""

import saltvirt

saltvirt = saltvirt.fresh()
from saltvirt.host import bridge as bridges  # noqa: E402

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def bridge_over(bridge="br0", interface=None, timeout_s=60):
    """
    Makes a bridge over an interface and moves the host's address to it. When the master
    cannot be reached over it within the time, everything is put back as it was; a timer
    of systemd does that even when this minion dies meanwhile.

    :param bridge: its name
    :param interface: default the one with the default route, else the only one with an address
    :param timeout_s: seconds that the host may take to reach its master again

    :return: a sentence

    Knows systemd-networkd and ifupdown; raises Unsupported for what is managed otherwise.

    CLI Example:

    .. code-block:: bash

        salt hv1 virt.bridge_over br0 eth0
    """
    master = __opts__.get("master_ip") or __opts__.get("master")
    probe = None
    if isinstance(master, str) and __opts__.get("file_client") != "local":
        probe = (master, int(__opts__.get("master_port", 4506)))
    return bridges.over(bridge, interface, probe, timeout_s)
