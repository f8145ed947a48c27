"""
Manage the cloud from the master.

Every function returns plain data under ``data`` and the name of the outputter that formats it
(``virt_query``); ``--out=json`` and similar options print the data only. A failure is data, too:
``result: False`` with one line in ``comment``, and the exit code is 1.

The master's own configuration defines which minions are hypervisors:

.. code-block:: yaml

    virt:
      hosts: 'hyper*'   # a compound target; default: minions that report themselves
"""

import dataclasses
from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt.fleet.client import Fleet
from saltvirt.operations.access import runner
from saltvirt.operations.core import result

with saltvirt.later():
    from saltvirt import errors, names, settings, units
    from saltvirt.operations import repair as repair_operation
    from saltvirt.operations.access import access_check
    from saltvirt.operations.cluster import hooks, idle_notice, inventory
    from saltvirt.operations.core import operation, report, verb_list
    from saltvirt.operations.create import explain as explain_operation
    from saltvirt.operations.create import init as init_operation
    from saltvirt.operations.create import init_list
    from saltvirt.operations.create import request as request_module
    from saltvirt.placement import capacity as capacity_model
    from saltvirt.placement import choose, facts, policy
    from saltvirt.spec import values

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def _policy():
    return policy.of_master(__opts__)


@runner.reporting
def next_host():
    """
    Show the host on which the next small guest would be placed.

    :return: ``host``, and ``rejected``: other hosts with the reasons

    CLI Example:

    .. code-block:: bash

        salt-run virt.next_host
    """
    with Fleet(__opts__) as fleet:
        hosts, unreachable = inventory.gather(fleet)
        request = facts.PlacementRequest("next", vcpus=1, memory_kib=1024)
        decision = choose.choose(hosts, request, _policy())
        decision.rejected.update((name, ("down", reason)) for name, reason in unreachable.items())
        if not decision.ranked:
            raise errors.Refused(f"no host is free: {decision.reasons()}")
        best = decision.ranked[0].host
        rejected = {name: reason for name, (_, reason) in decision.rejected.items()}
        # the line is just the host for scripts, as with Salt 3007
        return result.done("next_host", best, host=best, rejected=rejected)


def _init_request(name, cpu, mem, image, hypervisor, host, options):
    """The InitRequest of the arguments; removes those of placement and of the runner from the
    options."""
    placing = {k: options.pop(k) for k in ("groups", "group_policy", "labels", "prefer")
               if k in options}  # fmt: skip
    waiting = options.pop("wait_for", "minion" if options.pop("wait", False) else None)
    declared = {
        "start": options.pop("start", True), "wait_for": waiting,
        "wait_s": units.parse_number(options.pop("timeout", 300), "timeout"),
        "pillar": options.pop("pillar", None), "ha": options.pop("ha", None),
        "name_is_free": values.boolean(options.pop("name_is_free", False), "name_is_free"),
    }  # fmt: skip
    request_module.refuse_unknown(options)
    return request_module.InitRequest(
        name, cpu, mem, image, hypervisor, host, arguments=options, **declared, **placing
    )


@runner.reporting
def explain(name, cpu, mem, image=None, hypervisor="kvm", host=None, **kwargs):
    """
    Explain where ``virt.init`` with these arguments would place the guest. Changes nothing.

    :param name: name of the guest
    :param cpu: number of virtual CPUs
    :param mem: memory in MiB, or with a unit
    :param image: as for ``virt.init``; a host that has the image in its cache gets a higher score
    :param hypervisor: libvirt's domain type
    :param host: minion id of a single hypervisor to consider
    :param kwargs: any other argument of ``virt.init``

    :return: under the guest's name ``host`` (the selected host, or None) and ``table``: for each
        host its score with the components, or the filter that rejected it and the reason

    CLI Example:

    .. code-block:: bash

        salt-run virt.explain web1 2 2048 salt://debian.qcow2
        salt-run virt.explain web1 2 2048 disk=big labels='{rack: a}'
    """
    request = _init_request(name, cpu, mem, image, hypervisor, host, settings.user_kwargs(kwargs))
    with Fleet(__opts__) as fleet:
        provider = hooks.ha_provider(__opts__)
        decision, unreachable = explain_operation.decide(fleet, _policy(), request, provider)
    best = decision.ranked[0].host if decision.ranked else None
    title = f"{name} would be placed on {best}" if best else f"no host accepts {name}"
    title += f"; {decision.warning}" if decision.warning else ""
    table = explain_operation.table(decision, unreachable)
    return {
        str(name): {
            "host": best, "title": title, "table": table, "columns": explain_operation.COLUMNS,
        },
        **({} if best else {"retcode": 1}),
    }  # fmt: skip


@runner.reporting
def capacity(cpu, mem, hypervisor="kvm", disk_gib=0, **kwargs):
    """
    Show how many more guests of a given size fit: on each host, in total, and after the loss of one
    host.

    :param cpu: number of virtual CPUs of each guest
    :param mem: memory of each guest in MiB, or with a unit
    :param hypervisor: libvirt's domain type
    :param disk_gib: disk size of each guest in GiB; 0: do not consider disks
    :param kwargs: ``disk`` and ``nic`` (names of profiles), ``image`` or any other argument of
        ``virt.init``: then the disks and interfaces of each host's profiles count, too

    :return: under ``capacity``: ``total``, ``total_with_one_lost`` and ``table``: for each host,
        how many guests fit, which resource limits it, how many fit in the rest of the cloud if this
        host is lost, and which of its guests could not be placed then. With ``virt:ha:reserve``:
        ``total_with_reserve`` (how many fit without using reserved capacity) and ``reserve``:
        ``hosts``, ``policy`` and ``short`` (what is missing now)

    CLI Example:

    .. code-block:: bash

        salt-run virt.capacity 2 4G
        salt-run virt.capacity 2 4G disk=big nic=lan
    """
    options = settings.user_kwargs(kwargs)
    init_request = _init_request(
        "capacity", cpu, mem, options.pop("image", None), hypervisor, None, dict(options)
    )
    request = dataclasses.replace(
        init_request.request(),
        disk_bytes=int(units.parse_number(disk_gib, "disk_gib") * 1024**3),
        by_profile=bool(settings.user_kwargs(kwargs)),
    )
    idle_notice.show(__salt__, __opts__)
    with Fleet(__opts__) as fleet:
        guest_arguments = init_request.sizing_arguments() if request.by_profile else None
        hosts, unreachable = inventory.gather(fleet, guest=guest_arguments)
    fitting = capacity_model.capacity(hosts, request, _policy())
    provider = hooks.ha_provider(__opts__)
    reserve = provider.capacity(hosts, request, fitting.fits) if provider else None
    reserved = _reserved(reserve, fitting.total) if reserve else {}
    rows = []
    for name, number in fitting.fits.items():
        fit_if_lost, unplaced = fitting.lost[name]
        rows.append([name, number, fitting.limits[name], fit_if_lost, ", ".join(unplaced)])
    silent = [[name, 0, reason, None, None] for name, reason in sorted(unreachable.items())]
    columns = ["host", "fit", "limited by", "fit if it fails", "guests without a host then"]
    guests = units.pluralize(fitting.total, "more guest")
    fit = "fits" if fitting.total == 1 else "fit"
    title = f"{guests} {fit}, {fitting.total_with_one_lost} with one host lost"
    if reserve:
        hosts_lost = units.pluralize(reserve["hosts"], "host")
        total = reserved["total_with_reserve"]
        title += f", {total} with capacity reserved for the loss of {hosts_lost}"
        title += "".join(f"; {reason}" for reason in reserve["short"])
    return {
        "capacity": {
            "total": fitting.total, "total_with_one_lost": fitting.total_with_one_lost,
            "title": title, "table": [columns, *rows, *silent], **reserved,
        }
    }  # fmt: skip


def _reserved(reserve, total):
    """The part of the answer of ``capacity`` about the reserve of high availability."""
    return {"total_with_reserve": min(total, reserve["fit"]), "reserve": reserve}


@runner.reporting_several
def init(
    name,
    cpu,
    mem,
    image,
    hypervisor="kvm",
    host=None,
    seed=True,
    nic="default",
    install=True,
    start=True,
    disk="default",
    saltenv="base",
    enable_vnc=False,
    seed_cmd="seed.apply",
    enable_qcow=False,
    serial_type="None",
    **kwargs,
):
    """
    Deploy a guest: select a host, copy and seed the image, accept the key, start the guest, and
    verify with libvirt that it is running.

    :param name: name of the guest, also its minion id and host name. Several names, as
        ``web1,web2`` or ``'[web1, web2]'``, create guests with identical arguments, which are
        placed in one pass
    :param cpu: number of virtual CPUs, or a dictionary as for ``virt.init`` on a hypervisor
    :param mem: memory in MiB, or with a unit (``2G``), or a dictionary as for ``virt.init``
    :param image: ``salt://…``, an absolute path on the hypervisor, ``pool://POOL/VOLUME``,
        ``http(s)://…``, ``ftp://…``
    :param hypervisor: libvirt's domain type; for ``kvm``, hosts with plain QEMU are accepted, too
    :param host: minion id of the hypervisor; default: selected by placement
    :param seed: write the minion's configuration, name and keys to the guest
    :param nic: name of the NIC profile
    :param install: install a minion if the image contains none
    :param start: start the guest
    :param disk: name of the disk profile
    :param size: size of the system disk in MiB, or with a unit (``20G``); requires the default disk
        profile, whose size is 8 GiB
    :param os: operating system: ``windows``, ``linux``, ``win11`` and others: sets what it needs
    :param saltenv: environment of ``salt://`` sources
    :param enable_vnc: add a VNC display that listens on the hypervisor's 127.0.0.1
    :param seed_cmd: ``seed.apply`` or ``seed.cloud_init``
    :param enable_qcow: create the disk as a qcow2 overlay of the cached image
    :param serial_type: ``pty``, ``tcp`` or ``None``
    :param groups: list of groups of guests, for placement
    :param group_policy: placement of the guests of a group: ``spread`` (default), ``separate`` or
        ``gather``
    :param labels: dictionary of labels that the host must have
    :param prefer: dictionary of labels; hosts that have them are preferred
    :param test: show the host that placement selects; change nothing
    :param wait: True: return when the guest's minion has connected, and fail after ``timeout``
    :param wait_for: as ``wait``, for the ``minion``, the guest ``agent`` or an ``address``
    :param timeout: seconds to wait; default 300
    :param pillar: dictionary that this master adds to the pillar of this minion only, until the
        guest is purged
    :param name_is_free: True: you know that no hypervisor that does not answer has a guest of this
        name. By default, a name that may be taken is refused
    :param at_once: with several names: maximum number of guests that are created at the same time;
        default 4
    :param ha: True, or a dictionary of arguments of ``virt.ha_enable``: ``priority``,
        ``restarts``, ``relocates``, ``failback``, ``state``, ``group``, ``agent_silent_s``. High
        availability manages the guest. A guest that would depend on local resources of its host
        is refused before anything is created
    :param kwargs: any other argument of ``virt.init`` on a hypervisor

    :return: under the guest's name ``result``, ``comment``, ``changes``, ``host``, ``state``; if
        one of several guests fails, the exit code is 1

    CLI Example:

    .. code-block:: bash

        salt-run virt.init web1 2 2048 salt://debian.qcow2
        salt-run virt.init web2 4 4G salt://debian.qcow2 size=20G host=hyper2 enable_vnc=True
        salt-run virt.init web1,web2,web3 1 512 salt://debian.qcow2 test=True
        salt-run virt.init db1 2 4G pool://images/debian.qcow2 disk=shared ha='{priority: 10}'
    """
    arguments = {
        "seed": seed, "nic": nic, "install": install, "disk": disk, "saltenv": saltenv,
        "enable_vnc": enable_vnc, "seed_cmd": seed_cmd, "enable_qcow": enable_qcow,
        "serial_type": serial_type, "start": start, **settings.user_kwargs(kwargs),
    }  # fmt: skip
    test = arguments.pop("test", False)
    guest_names = names.guest_list(name)
    if guest_names is not None:
        at_once = units.parse_count(arguments.pop("at_once", 4), "at_once")
        requests = [
            _init_request(guest_name, cpu, mem, image, hypervisor, host, dict(arguments))
            for guest_name in guest_names
        ]
        opts = dict(__opts__)  # Salt's dunders do not exist in its threads
        screen = report.screen(__salt__, opts)
        with Fleet(opts) as fleet:
            provider = hooks.ha_provider(opts)
            batch = init_list.InitList(fleet, _policy(), requests, at_once, screen, provider)
            return operation.perform(batch, test)
    request = _init_request(name, cpu, mem, image, hypervisor, host, arguments)
    with Fleet(__opts__) as fleet:
        progress = report.of_runner(fleet, request.name, "init", __salt__)
        provider = hooks.ha_provider(__opts__)
        deployment = init_operation.Init(fleet, _policy(), request, progress, provider=provider)
        return operation.perform(deployment, test)


@runner.reporting
def repair(apply=False, test=False, name=None, finding=None):
    """
    Show leftovers of interrupted operations; with ``apply``, repair them.

    It finds partially created guests, interrupted migrations and backups, files on the target of a
    migration, disks that were not attached, guests that exist on two hosts, accepted keys without
    guests, expired authorizations, complete guests whose init was given up or killed, and guests of
    limited users whose owners were not recorded. Findings that need a
    decision are reported and not changed; no suggested command deletes a disk.

    :param apply: repair; default: show
    :param test: only show, even with ``apply``
    :param name: only leftovers of this guest
    :param finding: only findings with this code (``creation-interrupted``,
        ``migration-interrupted``, ``backup-interrupted``, ``left-on-target``,
        ``disk-without-guest``, ``two-hosts``, ``key-without-guest``, ``pillar-without-key``,
        ``permission-expired``, ``given-up``, ``owner-not-recorded``), or the finding with this
        ``id``

    :return: under ``repair`` a ``table``, and ``findings``, a list of dictionaries with ``code``,
        ``id``, ``name``, ``host``, ``what``, ``how``, ``evidence`` and the ``command`` that repairs
        it; with ``apply``: ``result``, ``comment``, ``changes`` (``repaired``), ``left``

    CLI Example:

    .. code-block:: bash

        salt-run virt.repair
        salt-run virt.repair name=web1
        salt-run virt.repair apply=True finding=creation-interrupted:web1:hyper2
        salt-run virt.repair apply=True
    """
    with Fleet(__opts__) as fleet:
        progress = report.of_runner(fleet, "repair", "repair", __salt__)
        return operation.perform(
            repair_operation.Repair(fleet, progress, name, finding), test or not apply
        )


@runner.reporting
def help(verb=None):
    """
    List the verbs of this runner that you may call, in groups, one line for each; or print the
    manual of a verb.

    :param verb: name of a verb

    :return: group to ``table``: each verb with the arguments that it requires, and what it does;
        ``verbs``: their names; and ``arguments``: verb to the arguments that you may pass, for each
        verb of which you may not pass all. With ``verb``, its name and its manual

    CLI Example:

    .. code-block:: bash

        salt-run virt.help
        salt-run virt.help start
    """
    if verb is not None:
        return verb_list.manual(__salt__, verb)
    user = access_check.requesting_user(__opts__)
    return verb_list.listing(__salt__, access_check.permitted_verbs(__opts__, user))
