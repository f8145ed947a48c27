"""
Inspect hosts and guests: networks, storage pools, images, addresses; maintenance of a host.
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt.fleet.client import Fleet
from saltvirt.operations.access import runner

with saltvirt.later():
    from saltvirt import names, units
    from saltvirt.operations.access import access_check
    from saltvirt.operations.cluster import hooks
    from saltvirt.operations.core import operation
    from saltvirt.operations.inspect import activity, listing, refresh
    from saltvirt.operations.inspect import addresses as guest_addresses
    from saltvirt.operations.inspect import maintenance as host_maintenance
    from saltvirt.operations.inspect import top as resource_usage
    from saltvirt.spec import values

if TYPE_CHECKING:
    from salt_dunders import __opts__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


@runner.reporting_guests
def addresses(name):
    """
    List the IP addresses of a guest, and which source knows them: the guest agent (``agent``), the
    DHCP server of libvirt's networks (``lease``), the ARP table of the host (``arp``). An agent
    that does not respond is given up after two seconds.

    :param name: name of the guest

    :return: under the guest's name ``result``, ``comment``, ``host``, ``state`` and ``addresses``,
        a list of dictionaries: ``address``, ``prefix`` (bits; None if unknown), ``type`` (``ipv4``,
        ``ipv6``), ``mac``, ``interface`` (name in the guest if its agent reports it, else on the
        host), ``sources``. The list is empty if the guest is off or no source knows an address.

    CLI Example:

    .. code-block:: bash

        salt-run virt.addresses web1
    """
    name = names.guest(str(name))
    with Fleet(__opts__) as fleet:
        return guest_addresses.listing(fleet, name).answer()


@runner.reporting
def networks(host=None):
    """
    List the networks of libvirt on each host, and the host's other bridges, with the number of
    guests that use them.

    :param host: minion id of a single hypervisor

    :return: under ``networks``: ``title``, ``table`` and ``hosts``: host to ``error``, or to
        ``networks`` (name to ``uuid``, ``active``, ``autostart``, ``persistent``, ``pending``,
        ``forward``, ``bridge``, ``addresses``, ``leases``, ``guests``) and ``bridges`` (name to
        ``guests``). ``pending``: the definition was changed and takes effect at the next start.

    CLI Example:

    .. code-block:: bash

        salt-run virt.networks
        salt-run virt.networks host=hyper1
    """
    with Fleet(__opts__) as fleet:
        return listing.networks(fleet, host).answer()


@runner.reporting
def pools(host=None):
    """
    List the storage pools of each host: type, state, autostart, capacity, allocated and free space.

    :param host: minion id of a single hypervisor

    :return: under ``pools``: ``title``, ``table`` and ``hosts``: host to ``error``, or to
        ``pools``: name to the data of ``virt.pool_info`` on a hypervisor (sizes in bytes)

    CLI Example:

    .. code-block:: bash

        salt-run virt.pools
    """
    with Fleet(__opts__) as fleet:
        return listing.pools(fleet, host).answer()


@runner.reporting
def volumes(host=None, pool=None):
    """
    List the volumes in the running storage pools of each host, with the guests that use them.

    :param host: minion id of a single hypervisor
    :param pool: name of a single pool

    :return: under ``volumes``: ``title``, ``table`` and ``hosts``: host to ``error``, or to
        ``pools``: pool to ``error``, or to ``volumes``: name to ``type``, ``format``, ``path``,
        ``capacity`` and ``allocation`` (bytes), ``used_by`` (guests that use it as a disk or as a
        backing image)

    CLI Example:

    .. code-block:: bash

        salt-run virt.volumes pool=images
    """
    with Fleet(__opts__) as fleet:
        return listing.volumes(fleet, host, None if pool is None else str(pool)).answer()


@runner.reporting
def images(host=None):
    """
    List the images in the cache of each host, with the number of guests that are based on them,
    and the images that this master serves from its ``file_roots``.

    :param host: minion id of a single hypervisor; the master's images are not listed then

    :return: under ``images``: ``title``, ``table``; ``hosts``: host to ``error``, or to ``images``:
        file name to the data of ``virt.images`` on a hypervisor (``path``, ``source``, ``format``,
        ``size_bytes``, ``allocated_bytes``, ``sha256``, ``fetched``, ``used_by``); and ``master``:
        a list of dictionaries: ``source``, ``size_bytes`` and ``cached_on`` (hosts)

    CLI Example:

    .. code-block:: bash

        salt-run virt.images
    """
    with Fleet(__opts__) as fleet:
        return listing.images(fleet, host).answer()


@runner.reporting
def top(host=None, sort="cpu", interval=None):
    """
    Show what hosts and running guests use: CPUs, memory, disks and networks.

    The rates are those since the previous request to the host, at most a minute ago; without one,
    the host measures for half a second. ``CPU %`` of a host is of all its CPUs, that of a guest of
    one CPU. ``memory used`` of a guest is what its balloon driver reports.

    :param host: minion id of a single hypervisor
    :param sort: ``cpu``, ``memory``, ``disk``, ``network`` or ``name``
    :param interval: seconds after which the tables are shown again, until Ctrl-C, if the output is
        a terminal

    :return: under ``top``: ``title``, ``table`` and ``hosts``: host to ``error``, or to ``cpus``,
        ``cpu_percent``, ``load`` (of 1, 5 and 15 minutes), ``memory_bytes``,
        ``memory_used_bytes``, ``memory_allocated_bytes``, ``vcpus_allocated``, ``pressure``
        (``cpu``, ``memory``, ``io``: percent of the last ten seconds; None if unknown),
        ``disk_read_bytes_s``, ``disk_written_bytes_s``, ``network_received_bytes_s``,
        ``network_sent_bytes_s``, ``seconds`` (over which the rates were measured) and ``guests``:
        name to ``state``, ``vcpus``, ``cpu_percent``, ``memory_bytes``, ``memory_used_bytes`` and
        the same rates; None if unknown. Under ``guests`` the table of guests

    CLI Example:

    .. code-block:: bash

        salt-run virt.top
        salt-run virt.top sort=disk interval=5
    """
    interval_s = 0 if interval is None else units.parse_number(interval, "interval")
    with Fleet(__opts__) as fleet:
        if interval is None or not refresh.is_possible(__opts__):
            return resource_usage.top(fleet, host, sort)
        return refresh.show(__opts__, interval_s, lambda: resource_usage.top(fleet, host, sort))


@runner.reporting
def log(name=None, limit=50):
    """
    Show what has changed guests and hosts: the verbs, with their callers and results, and the
    decisions of high availability (fences, restarts, states of hosts) with their reasons.

    This master records every call of a verb of the runner that was permitted and may have changed
    something, from ``salt-run``, salt-api and reactors; not ``test=True``, and not what was done
    on a hypervisor directly. Commands in guests are recorded without their text. The log is kept
    over a restart and has at most 8 MiB, which is more than 20,000 calls.

    :param name: name of a guest or of a host, or a shell pattern; default: all
    :param limit: maximum number of entries

    :return: under ``log``: ``title``, ``table`` and ``entries``, the newest last: a list of
        dictionaries: ``time`` (UTC, when the verb ended), ``seconds``, ``user``, ``verb``,
        ``guest``, ``host``, ``result`` (True or False), ``comment``, and ``new`` (the guest's new
        name) if there is one. A decision of high availability has the ``user`` ``ha``, the
        ``verb`` ``fence``, ``ha guest`` or ``ha host``, and the new ``state``

    CLI Example:

    .. code-block:: bash

        salt-run virt.log
        salt-run virt.log web1 limit=10
    """
    user = access_check.requesting_user(__opts__)
    limited = not access_check.may_all(__opts__, user, "log")
    return activity.listing(__opts__, None if name is None else str(name), limit, limited)


@runner.reporting
def maintenance(host, state=None, reason=None, test=False):
    """
    Start or end the maintenance of a host, or show whether it is in maintenance. A host in
    maintenance gets no new guests; its guests stay where they are, except those that high
    availability manages. ``virt.evacuate`` also moves the guests away.

    :param host: minion id of the hypervisor
    :param state: ``on`` or ``off``; default: ``on`` with a ``reason``, else show the state
    :param reason: why, with ``on``; default: ``maintenance``. A host that is in maintenance gets
        the new reason
    :param test: show what would be done; change nothing

    :return: under the host's name ``result``, ``comment``, ``changes``, ``host``, ``maintenance``
        (True or False), ``reason`` and ``guests``: names of guests that ``virt.evacuate`` has moved
        away and ``virt.restore`` can return

    CLI Example:

    .. code-block:: bash

        salt-run virt.maintenance hyper1
        salt-run virt.maintenance hyper1 on reason='new disks'
        salt-run virt.maintenance hyper1 off
    """
    with Fleet(__opts__) as fleet:
        if state is None and reason is None:
            return host_maintenance.show(fleet, host).answer()
        on = values.boolean(True if state is None else state, "state")
        provider = hooks.ha_provider(__opts__)
        change = host_maintenance.Maintenance(fleet, host, on, reason, provider)
        return operation.perform(change, test)
