"""
Inspect hosts and guests: lists, details, networks, storage pools, images, addresses, usage, what
has changed; maintenance of a host.
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt.fleet.client import Fleet
from saltvirt.operations.access import runner
from saltvirt.operations.core import result

with saltvirt.later():
    from saltvirt import names, units, version
    from saltvirt.answers import guest_calls
    from saltvirt.operations.access import access_check
    from saltvirt.operations.cluster import find, hooks, idle_notice, inventory, version_report
    from saltvirt.operations.core import operation
    from saltvirt.operations.inspect import activity, guest_details, listing, log_filter, refresh
    from saltvirt.operations.inspect import addresses as guest_addresses
    from saltvirt.operations.inspect import maintenance as host_maintenance
    from saltvirt.operations.inspect import top as resource_usage
    from saltvirt.operations.journal import location_cache
    from saltvirt.placement import policy
    from saltvirt.spec import values

if TYPE_CHECKING:
    from typing import Any

    from salt_dunders import __opts__, __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def _per_host(fleet, host, call, request, take):
    """Make a call to all hosts: host to data or error; exit code 1 if there is an error."""
    idle_notice.show(__salt__, __opts__)
    answers, failed = call.gather(fleet, fleet.hosts(host), request)
    by_host = {host_id: take(answer) for host_id, answer in answers.items()}
    by_host |= {host_id: {"error": error} for host_id, error in failed.items()}
    return {**dict(sorted(by_host.items())), **({"retcode": 1} if failed else {})}


@runner.reporting
def query(host=None, quiet=False):
    """
    List all guests on all hosts, with CPU, memory, state, addresses, autostart, graphics, disks and
    NICs.

    The addresses are those that DHCP servers of libvirt's networks and the ARP tables of the hosts
    know. ``virt.addresses`` also asks the agent in the guest.

    :param host: minion id of a single hypervisor
    :param quiet: accepted for compatibility; use ``--quiet``

    :return: host to the answer of its ``virt.full_info``, or to ``error``. A host that is down or
        does not answer within the master's ``timeout`` is listed with the reason, and the exit code
        is 1. ``last_seen``, next to ``error``, lists the ``guests`` that the host had when it last
        answered (``at``) and that no other host has now.

    CLI Example:

    .. code-block:: bash

        salt-run virt.query
        salt-run virt.query host=hyper1 --out=json
    """
    with Fleet(__opts__) as fleet:
        show, request = guest_calls.SHOW_HOST, guest_calls.HostRequest()
        guests = _per_host(fleet, host, show, request, lambda info: info.to_answer())
        return location_cache.with_last_seen(__opts__, guests)


@runner.reporting
def list(host=None, quiet=False, hyper=None):
    """
    List the names of the guests, by host and state.

    :param host: minion id of a single hypervisor
    :param quiet: accepted for compatibility; use ``--quiet``
    :param hyper: old name of ``host``

    :return: host to a dictionary of states to sorted names, or to ``error`` and ``last_seen``, as
        of ``virt.query``

    CLI Example:

    .. code-block:: bash

        salt-run virt.list
    """

    def by_state(states):
        names_by_state: dict[str, Any] = {}
        for name, state in sorted(states.items()):
            names_by_state.setdefault(state, []).append(name)
        return names_by_state

    with Fleet(__opts__) as fleet:
        call, request = guest_calls.LIST_STATES, guest_calls.GuestsRequest()
        guests = _per_host(fleet, host or hyper, call, request, by_state)
    states = {
        host_id: {name: state for state, names_of in entry.items() for name in names_of}
        for host_id, entry in guests.items()
        if isinstance(entry, dict) and "error" not in entry
    }
    return location_cache.with_last_seen(__opts__, guests, states)


@runner.reporting
def host_info(host=None):
    """
    Show CPUs, memory and disk space of each hypervisor, and how much of each is free.

    Free capacity is what is not allocated to guests, not the memory that is currently unused: see
    ``virt:placement`` for the ratios.

    :param host: minion id of a single hypervisor

    :return: host to ``cpus``, ``vcpus_used``, ``vcpus_free``, ``memory_mib``,
        ``memory_used_mib``, ``memory_free_mib``, ``disk_gib``, ``disk_free_gib``,
        ``guests``, ``running``, ``creating`` (guests that are not complete), ``types``,
        ``maintenance``, ``disk_profiles``, ``nic_profiles``; or to ``error``

    CLI Example:

    .. code-block:: bash

        salt-run virt.host_info
    """
    idle_notice.show(__salt__, __opts__)
    with Fleet(__opts__) as fleet:
        hosts, unreachable = inventory.gather(fleet, fleet.hosts(host))
        summaries = inventory.summaries(hosts, unreachable, policy.of_master(__opts__))
        return {**summaries, **({"retcode": 1} if unreachable else {})}


@runner.reporting
def versions(host=None):
    """
    Show the versions of Salt Virt, Salt, Python and libvirt on each hypervisor, and which hosts are
    outdated compared to the master.

    :param host: minion id of a single hypervisor

    :return: under ``versions``: ``table``, ``master`` and ``hosts`` (host to the answer of its
        ``virt.versions``, or to ``error``), ``lagging`` (hosts whose library differs from the
        master's, and what to do). Exit code 1 if a host is outdated or does not answer.

    CLI Example:

    .. code-block:: bash

        salt-run virt.versions
        salt-run virt.versions hyper3 --out=json
    """
    idle_notice.show(__salt__, __opts__)
    with Fleet(__opts__) as fleet:
        report = version_report.versions(fleet, version.versions(), host)
    table = {"table": version_report.table(report), "columns": version_report.COLUMNS}
    answer = {"versions": {**table, **report}}
    wrong = report["lagging"] or any(
        "error" in host_versions for host_versions in report["hosts"].values()
    )
    return {**answer, "retcode": 1} if wrong else answer


@runner.reporting
def vm_info(name, quiet=False):
    """
    Show everything about one guest: what ``virt.query`` shows, the images of its disks, all
    addresses, snapshots, backups, owner, labels, changes at its next start, and what it uses now.

    :param name: name of the guest
    :param quiet: accepted for compatibility; use ``--quiet``

    :return: host to the guest's name to the guest: the data of ``virt.vm_info NAME`` of its host,
        with the addresses that the guest agent reports; ``snapshots``, as ``virt.snapshots``
        returns them; ``usage`` (None if the guest is off): ``cpu_percent``, ``memory_bytes``,
        ``memory_used_bytes`` and the rates of ``virt.top``; ``owner``, ``labels``; with a
        configured target, ``backups``: ``count``, and ``last``: the last good backup (``target``,
        ``backup_id``, ``age_s``) or None; with high availability, ``ha``: ``state``, ``priority``,
        or None. ``unknown`` maps keys to the reason why they are not complete: the exit code is 1

    CLI Example:

    .. code-block:: bash

        salt-run virt.vm_info web1
    """
    name = names.existing_guest(str(name))
    with Fleet(__opts__) as fleet:
        return guest_details.listing(fleet, name)


@runner.reporting_guests
def locate(name):
    """
    Show which host has a guest, and the guest's state.

    :param name: name of the guest
    :return: under the guest's name ``host``, ``state`` and ``comment``

    CLI Example:

    .. code-block:: bash

        salt-run virt.locate web1
    """
    name = names.existing_guest(str(name))
    with Fleet(__opts__) as fleet:
        host, state = find.locate(fleet, name)
    return result.done(name, f"{name} is {state} on {host}", host=host, state=state)


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
    name = names.existing_guest(str(name))
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
    :param pool: name of a single pool; it is an error if it runs on no host

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
    the host measures for a quarter of a second. ``CPU %`` of a host is of all its CPUs, that of a
    guest of one CPU. ``memory used`` of a guest is what its balloon driver reports.

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
def log(name=None, limit=50, since=None, before=None, user=None, verb=None):
    """
    Show what has changed guests and hosts: the verbs, with their callers and results; the decisions
    of high availability (fences, restarts, states of hosts) with their reasons; and with the engine
    ``virt_log`` events of libvirt: guests that crash, stop or reboot by themselves, that were
    started or stopped on their host, or that were paused by an I/O error or a watchdog, and hosts
    whose libvirt or minion does not respond.

    This master records every call of a verb of the runner that was permitted and may have changed
    something, from ``salt-run``, salt-api and reactors; not ``test=True``. Commands in guests are
    recorded without their text. The log of verbs is kept over a restart and has at most 8 MiB,
    which is more than 20,000 calls; that of events has at most 512 KiB for each host.

    :param name: name of a guest or of a host, or a shell pattern; default: all
    :param limit: maximum number of changes, and of events since the first of these
    :param since: only later entries: an age (``30m``, ``12h``, ``2d``, ``1w``) or a time in UTC
        (``2026-11-29``, ``2026-11-29T10:30``)
    :param before: only earlier entries: the same
    :param user: only entries of this user; a shell pattern
    :param verb: only entries of this verb; a shell pattern

    :return: under ``log``: ``title``, ``table`` and ``entries``, the newest last: a list of
        dictionaries: ``time`` (UTC, when the verb ended), ``seconds``, ``user``, ``verb``,
        ``guest``, ``host``, ``result`` (True or False), ``comment``, ``new`` (the guest's new
        name) if there is one, and ``existence`` (``created`` or ``removed``) of a guest that a
        deployment or a restore has created, or a deployment removed. A decision of high
        availability has the ``user`` ``ha``, the ``verb`` ``fence``, ``ha guest`` or ``ha host``,
        and the new ``state``. An event has the ``user`` ``libvirt`` (reported by ``host``) or
        ``virt_log`` (noticed by this master), the ``verb`` ``event``, and a ``state`` such as
        ``stopped``, ``crashed`` or ``silent``. ``notice``: why there are no events; empty if hosts
        report them

    CLI Example:

    .. code-block:: bash

        salt-run virt.log
        salt-run virt.log web1 limit=10
        salt-run virt.log since=2d user=anna verb='migrate*'
        salt-run virt.log verb=event since=1d
    """
    caller = access_check.requesting_user(__opts__)
    limited = not access_check.may_all(__opts__, caller, "log")
    chosen = log_filter.parse(since, before, user, verb)
    return activity.listing(__opts__, None if name is None else str(name), limit, limited, chosen)


@runner.reporting
def maintenance(host, state=None, reason=None, test=False):
    """
    Start or end the maintenance of a host, or show whether it is in maintenance. A host in
    maintenance gets no new guests; its guests stay where they are, except those that high
    availability manages. ``virt.evacuate`` also moves the guests away.

    :param host: minion id of the hypervisor
    :param state: ``on`` or ``off``; default: ``on`` with a ``reason``, else show the state
    :param reason: why, with ``on``, in at most 200 characters; default: ``maintenance``. A host
        that is in maintenance gets the new reason
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
