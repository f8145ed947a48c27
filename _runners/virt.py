"""
The cloud, from the master: hosts are found, asked and told what to do.

Every function returns plain data under ``data`` and the name of the outputter that draws
it (``virt_query``); ``--out=json`` and the like give the data alone. A failure is data,
too: ``result: False`` with one line in ``comment``, and the exit code is 1.

Which minions are hypervisors is the master's own configuration:

.. code-block:: yaml

    virt:
      hosts: 'hyper*'   # a compound target; default: minions that report themselves
"""

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt import errors, names, units  # noqa: E402
from saltvirt.fleet import authorise, pillars, progress  # noqa: E402
from saltvirt.fleet.client import Fleet  # noqa: E402
from saltvirt.fleet.keys import KeyStore  # noqa: E402
from saltvirt.operations import evacuate as evacuating  # noqa: E402
from saltvirt.operations import explain as explaining  # noqa: E402
from saltvirt.operations import (  # noqa: E402
    find,
    inventory,
    lifecycle,
    result,
    slots,
)
from saltvirt.operations import init as deploying  # noqa: E402
from saltvirt.operations import lock as locks  # noqa: E402
from saltvirt.operations import migrate as migrating  # noqa: E402
from saltvirt.operations import purge as purging  # noqa: E402
from saltvirt.operations import repair as repairing  # noqa: E402
from saltvirt.operations import report as reports  # noqa: E402
from saltvirt.placement import capacity as capacities  # noqa: E402
from saltvirt.placement import choose, facts  # noqa: E402
from saltvirt.placement import policy as placement_policy  # noqa: E402
from saltvirt.placement import rebalance as rebalancing  # noqa: E402

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def _policy():
    configured = __opts__.get("virt") or {}
    return placement_policy.from_config(configured.get("placement"), configured.get("exclude"))


def _report(fleet, name, operation):
    """How an operation tells of its steps: on the terminal, unless clean data was asked for."""

    def show(text):
        if not __opts__.get("output"):
            progress.show(__salt__, text, result.OUTPUTTER)

    return reports.Report(fleet, name, operation, show)


def _per_host(fleet, host, function, take):
    """One function on all hosts: host to data, or to its error; exit code 1 with an error."""
    found = {}
    for host_id, answer in fleet.gather(fleet.hosts(host), function).items():
        found[host_id] = take(answer.data) if answer.ok else {"error": answer.error}
    if any(set(value) == {"error"} for value in found.values()):
        found["retcode"] = 1
    return found


@result.reporting
def query(host=None, quiet=False):
    """
    Every guest on every host, with CPU, memory, state, graphics, disks and NICs.

    :param host: minion id of one hypervisor to ask alone
    :param quiet: taken for Salt's sake; use ``--quiet``

    :return: host to what its ``virt.full_info`` says, or to ``error``. A host that is down
        or does not answer in the master's ``timeout`` is named with its reason and makes
        the exit code 1; the others are there.

    CLI Example:

    .. code-block:: bash

        salt-run virt.query
        salt-run virt.query host=hyper1 --out=json
    """
    with Fleet(__opts__) as fleet:
        return _per_host(fleet, host, "virt.full_info", lambda data: data)


@result.reporting
def list(host=None, quiet=False, hyper=None):
    """
    The names of the guests, by host and state.

    :param host: minion id of one hypervisor to ask alone
    :param quiet: taken for Salt's sake; use ``--quiet``
    :param hyper: the same as ``host``, an older name

    :return: host to a dict of state to the sorted names, or to ``error``

    CLI Example:

    .. code-block:: bash

        salt-run virt.list
    """

    def by_state(states):
        found = {}
        for name, state in sorted((states or {}).items()):
            found.setdefault(state, []).append(name)
        return found

    with Fleet(__opts__) as fleet:
        return _per_host(fleet, host or hyper, "virt.vm_state", by_state)


@result.reporting
def host_info(host=None):
    """
    CPUs, memory, disk and what is free of each, per hypervisor.

    Free is what is not promised to a guest, not the free memory of the moment: see
    ``virt:placement`` for the ratios.

    :param host: minion id of one hypervisor to ask alone

    :return: host to ``cpus``, ``vcpus_used``, ``vcpus_free``, ``memory_mib``,
        ``memory_used_mib``, ``memory_free_mib``, ``disk_gib``, ``disk_free_gib``,
        ``guests``, ``running``, ``types``, ``maintenance``; or to ``error``

    CLI Example:

    .. code-block:: bash

        salt-run virt.host_info
    """
    with Fleet(__opts__) as fleet:
        hosts, unheard = inventory.gather(fleet, fleet.hosts(host))
        found = {h.name: inventory.summary(h, _policy()) for h in hosts}
        found.update({name: {"error": why} for name, why in unheard.items()})
        return {**found, **({"retcode": 1} if unheard else {})}


@result.reporting
def next_host():
    """
    The host that the next small guest would be placed on.

    :return: ``host``, and in ``rejected`` why each of the others is no candidate

    CLI Example:

    .. code-block:: bash

        salt-run virt.next_host
    """
    with Fleet(__opts__) as fleet:
        hosts, unheard = inventory.gather(fleet)
        request = facts.Request("next", vcpus=1, memory_kib=1024)
        decision = choose.choose(hosts, request, _policy())
        decision.rejected.update((name, ("down", why)) for name, why in unheard.items())
        if not decision.ranked:
            raise errors.Refused(f"no host is free: {decision.reasons()}")
        best = decision.ranked[0].host
        rejected = {name: why for name, (_, why) in decision.rejected.items()}
        return result.done("next_host", best, host=best, rejected=rejected)


@result.reporting
def explain(name, cpu, mem, image=None, hypervisor="kvm", host=None, **kwargs):
    """
    Where ``virt.init`` with these arguments would put the guest, and why. Changes nothing.

    :param name: of the guest
    :param cpu: number of virtual CPUs
    :param mem: memory in MiB, or with a unit
    :param image: as for ``virt.init``; a host that has it in its cache scores higher
    :param hypervisor: libvirt's domain type
    :param host: minion id of the only hypervisor to consider
    :param kwargs: ``groups``, ``group_policy``, ``arch`` as for ``virt.init``

    :return: under the guest's name ``host`` (the choice, or None) and ``table``: per host its
        score and the parts of it, or the filter it fell at and the reason

    CLI Example:

    .. code-block:: bash

        salt-run virt.explain web1 2 2048 salt://debian.qcow2
    """
    extra = {key: value for key, value in kwargs.items() if not key.startswith("__")}
    wanted = deploying.Wanted(
        name, cpu, mem, image, hypervisor, host,
        groups=extra.pop("groups", ()), group_policy=extra.pop("group_policy", "spread"),
        arguments=extra,
    )  # fmt: skip
    with Fleet(__opts__) as fleet:
        decision, unheard = explaining.decide(fleet, _policy(), wanted.request())
    best = decision.ranked[0].host if decision.ranked else None
    title = f"{name} would go to {best}" if best else f"no host can take {name}"
    table = explaining.table(decision, unheard)
    return {
        name: {"host": best, "title": title, "table": table},
        **({} if best else {"retcode": 1}),
    }


@result.reporting
def capacity(cpu, mem, hypervisor="kvm", disk_gib=0):
    """
    How many more guests of a size fit: per host, in all, and with one host lost.

    :param cpu: number of virtual CPUs of each
    :param mem: memory of each in MiB, or with a unit
    :param hypervisor: libvirt's domain type
    :param disk_gib: disk of each in GiB; 0 leaves disks out of the account

    :return: under ``capacity`` ``total``, ``total_with_one_lost`` and ``table``: per host how
        many fit, what the next one would lack, how many fit in the rest of the cloud if this
        host were lost, and which of its guests would find no place then

    CLI Example:

    .. code-block:: bash

        salt-run virt.capacity 2 4G
    """
    request = facts.Request(
        "capacity", units.parse_count(cpu, "cpu"), units.parse_kib(mem, what="mem"),
        int(float(disk_gib) * 1024**3), hypervisor,
    )  # fmt: skip
    with Fleet(__opts__) as fleet:
        hosts, unheard = inventory.gather(fleet)
    found = capacities.capacity(hosts, request, _policy())
    rows = [["host", "fit", "next lacks", "fit if lost", "then homeless"]]
    for name, number in found.fits.items():
        count, homeless = found.lost[name]
        rows.append([name, number, found.limits[name], count, ", ".join(homeless)])
    rows += [[name, 0, why, None, None] for name, why in sorted(unheard.items())]
    title = f"{found.total} more guests fit, {found.total_with_one_lost} with one host lost"
    return {
        "capacity": {
            "total": found.total, "total_with_one_lost": found.total_with_one_lost,
            "title": title, "table": rows,
        }
    }  # fmt: skip


@result.reporting
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
    Deploy a guest: a host is chosen, the image copied and seeded, the key accepted, the
    guest started, and libvirt asked whether it runs.

    :param name: of the guest; its minion id and host name, too
    :param cpu: number of virtual CPUs, or the dict of ``virt.init`` on a hypervisor
    :param mem: memory in MiB, or with a unit (``2G``), or the dict of ``virt.init``
    :param image: ``salt://…``, an absolute path on the hypervisor, ``pool://POOL/VOLUME``,
        ``http(s)://…``, ``ftp://…``
    :param hypervisor: libvirt's domain type; ``kvm`` is also satisfied by plain QEMU
    :param host: minion id of the hypervisor to use; default: placement chooses
    :param seed: put minion configuration, name and keys into the guest
    :param nic: name of the NIC profile
    :param install: install a minion where the image has none
    :param start: start the guest
    :param disk: name of the disk profile
    :param saltenv: of ``salt://`` sources
    :param enable_vnc: give the guest a VNC display, on the hypervisor's 127.0.0.1
    :param seed_cmd: ``seed.apply`` or ``seed.cloud_init``
    :param enable_qcow: make the disk a qcow2 overlay over the cached image
    :param serial_type: ``pty``, ``tcp`` or ``None``
    :param kwargs: any other argument of ``virt.init`` on a hypervisor, and ``groups`` (list of
        names) with ``group_policy`` (``spread``, ``separate``, ``gather``) for placement;
        ``wait=True`` or ``wait_for`` (``minion``, ``agent``, ``address``) to come back when the
        guest has answered, within ``timeout`` seconds (300); ``pillar`` (dict), which this
        master adds to the pillar of that minion and nobody else's, until the guest is purged

    :return: under the guest's name ``result``, ``comment``, ``changes``, ``host``, ``state``

    CLI Example:

    .. code-block:: bash

        salt-run virt.init web1 2 2048 salt://debian.qcow2
        salt-run virt.init web2 4 4G salt://debian.qcow2 host=hyper2 enable_vnc=True
    """
    extra = {key: value for key, value in kwargs.items() if not key.startswith("__")}
    wanted = deploying.Wanted(
        name, cpu, mem, image, hypervisor, host, start,
        groups=extra.pop("groups", ()), group_policy=extra.pop("group_policy", "spread"),
        wait_for=extra.pop("wait_for", "minion" if extra.pop("wait", False) else None),
        wait_s=float(extra.pop("timeout", 300)), pillar=extra.pop("pillar", None),
        arguments={
            "seed": seed, "nic": nic, "install": install, "disk": disk, "saltenv": saltenv,
            "enable_vnc": enable_vnc, "seed_cmd": seed_cmd, "enable_qcow": enable_qcow,
            "serial_type": serial_type, **extra,
        },
    )  # fmt: skip
    with Fleet(__opts__) as fleet:
        placed = deploying.Init(fleet, _policy(), wanted, _report(fleet, wanted.name, "init")).run()
    comment = f"{name} is {placed.state} on {placed.host}"
    return result.done(
        name, comment, {"created": placed.made}, host=placed.host, state=placed.state
    )


@result.reporting
def vm_info(name, quiet=False):
    """
    One guest, with everything ``virt.query`` shows and its disks' details.

    :param name: of the guest
    :param quiet: taken for Salt's sake; use ``--quiet``

    :return: host to ``vm_info`` with the guest

    CLI Example:

    .. code-block:: bash

        salt-run virt.vm_info web1
    """
    name = names.guest(name)
    with Fleet(__opts__) as fleet:
        host, _ = find.locate(fleet, name)
        return {host: {"vm_info": fleet.one(host, "virt.vm_info", {"vm_": name})}}


@result.reporting
def where(name):
    """
    Which host has the guest, and in what state.

    :param name: of the guest
    :return: under the guest's name ``host``, ``state`` and ``comment``

    CLI Example:

    .. code-block:: bash

        salt-run virt.where web1
    """
    name = names.guest(name)
    with Fleet(__opts__) as fleet:
        host, state = find.locate(fleet, name)
    return result.done(name, f"{name} is {state} on {host}", host=host, state=state)


@result.reporting
def snapshot(name, snapshot=None):
    """
    Take a snapshot of a guest, wherever it runs.

    :param name: of the guest
    :param snapshot: the snapshot's name; default: the guest's name and the time
    :return: under the guest's name ``result``, ``comment``, ``changes``

    CLI Example:

    .. code-block:: bash

        salt-run virt.snapshot web1 before-upgrade
    """
    return _on_its_host(name, "virt.snapshot", {"domain": name, "name": snapshot}, "snapshot")


@result.reporting
def revert(name, snapshot=None):
    """
    Put a guest back to a snapshot, wherever it runs.

    :param name: of the guest
    :param snapshot: the snapshot's name; default: the latest
    :return: under the guest's name ``result``, ``comment``, ``changes``

    CLI Example:

    .. code-block:: bash

        salt-run virt.revert web1 before-upgrade
    """
    arguments = {"name": name, "vm_snapshot": snapshot}
    return _on_its_host(name, "virt.revert_snapshot", arguments, "reverted")


def _on_its_host(name, function, arguments, change):
    name = names.guest(name)
    with Fleet(__opts__) as fleet, locks.guest(__opts__, name, function):
        host, _ = find.locate(fleet, name)
        told = fleet.one(host, function, arguments, long=True)
    return result.done(name, f"{name} on {host}: {function} done", {change: told}, host=host)


def _verb(name, verb):
    with Fleet(__opts__) as fleet:
        host, before, after = lifecycle.run(fleet, name, verb)
    if before == after and verb != "reset":
        return result.done(name, f"{name} on {host} is {after} already", host=host, state=after)
    word = lifecycle.VERBS[verb].done
    changes = {"state": {"old": before, "new": after}} if before != after else {}
    return result.done(name, f"{name} on {host} was {word}", changes, host=host, state=after)


@result.reporting
def reset(name):
    """
    Reset a guest, as its reset button would.

    :param name: of the guest

    CLI Example:

    .. code-block:: bash

        salt-run virt.reset web1
    """
    return _verb(name, "reset")


@result.reporting
def start(name):
    """
    Start a guest.

    :param name: of the guest

    CLI Example:

    .. code-block:: bash

        salt-run virt.start web1
    """
    return _verb(name, "start")


@result.reporting
def force_off(name):
    """
    Power a guest off at once, as pulling its plug would.

    :param name: of the guest

    CLI Example:

    .. code-block:: bash

        salt-run virt.force_off web1
    """
    return _verb(name, "force_off")


@result.reporting
def pause(name):
    """
    Pause a guest: it keeps its memory and gets no CPU.

    :param name: of the guest

    CLI Example:

    .. code-block:: bash

        salt-run virt.pause web1
    """
    return _verb(name, "pause")


@result.reporting
def resume(name):
    """
    Resume a paused guest.

    :param name: of the guest

    CLI Example:

    .. code-block:: bash

        salt-run virt.resume web1
    """
    return _verb(name, "resume")


@result.reporting
def purge(name, delete_key=True):
    """
    Remove a guest with its own disks, and its minion key. Nothing else is deleted.

    :param name: of the guest
    :param delete_key: also delete the guest's key from the master

    :return: under the guest's name ``result``, ``comment``, ``changes``

    CLI Example:

    .. code-block:: bash

        salt-run virt.purge web1
    """
    with Fleet(__opts__) as fleet:
        host, removed, had_key = purging.run(fleet, name, delete_key)
    comment = f"{name} was removed from {host}" + (
        " and its key from the master" if had_key else ""
    )
    return result.done(name, comment, {"removed": removed}, host=host)


@result.reporting
def authorize(name, host, pillar=None):
    """
    Let one hypervisor hand in the minion key of one new guest, once, within ten minutes.

    For ``virt.init`` or ``seed.apply`` called directly on that hypervisor; ``salt-run
    virt.init`` needs no such permission.

    :param name: of the guest
    :param host: minion id of the hypervisor
    :param pillar: dict that this master will add to the guest's pillar, as with ``virt.init``

    :return: under the guest's name ``result`` and ``comment``

    CLI Example:

    .. code-block:: bash

        salt-run virt.authorize web1 hyper1
    """
    name = names.guest(name)
    with Fleet(__opts__) as fleet:
        fleet.hosts(host)
    if pillar:
        pillars.check(__opts__, pillar)
    authorise.Authorisations(__opts__).grant(host, name, pillar=pillar)
    minutes = authorise.LIFETIME_S // 60
    return result.done(name, f"{host} may hand in the key of {name} once, within {minutes} minutes")


@result.reporting
def seed_eject(name):
    """
    Take the volume for cloud-init from a guest and delete it: it holds the guest's key.

    ``virt.init`` with ``wait=True`` does it. For a reactor on ``salt/minion/*/start``: minions
    that are no guests of this master's own are passed over without asking a host.

    :param name: of the guest

    :return: under the guest's name ``result``, ``comment``, ``changes``

    CLI Example:

    .. code-block:: bash

        salt-run virt.seed_eject web1
    """
    name = names.guest(name)
    if name not in KeyStore(__opts__).ours():
        return result.done(name, f"{name} is no guest that this master made")
    with Fleet(__opts__) as fleet:
        host, _ = find.locate(fleet, name)
        taken = fleet.one(host, "virt.seed_eject", {"name": name}, long=True)
    changes = {"ejected": True} if taken else {}
    return result.done(name, f"{name} on {host} has no volume for cloud-init", changes, host=host)


@result.reporting
def migrate(name, target="", **kwargs):
    """
    Move a guest to another host, live when it runs, over TLS, with its disks.

    :param name: of the guest
    :param target: minion id of the host to move to; default: placement chooses
    :param kwargs: as for the module's ``virt.migrate``: ``policy``, ``max_bandwidth``,
        ``copy_storage``, ``keep_source``, …

    :return: under the guest's name ``result``, ``comment``, ``changes``, ``migration`` (what
        the module's ``virt.migrate`` returns)

    CLI Example:

    .. code-block:: bash

        salt-run virt.migrate web1 hyper2
        salt-run virt.migrate web1 hyper2 policy=postcopy max_bandwidth=100
    """
    options = {k: v for k, v in kwargs.items() if not k.startswith("__")}
    with Fleet(__opts__) as fleet:
        report = _report(fleet, name, "migrate")
        return migrating.run(fleet, _policy(), name, target, report, options)


def _mover():
    """A callable(guest, target) for operations.moves: it runs in threads of its own."""
    opts, policy = dict(__opts__), _policy()  # Salt's dunders are not there in other threads

    def move(guest, target):
        with Fleet(opts) as fleet:
            report = reports.Report(fleet, guest, "migrate", lambda text: None)
            migrating.run(fleet, policy, guest, target, report)
        return target

    return move


def _moved(about, outcome, comment):
    """The answer of a verb that moved many guests: what is left makes it a failure."""
    moved = not outcome.left
    data = {
        about: {
            "result": moved, "comment": f"{comment}: {outcome.text()}",
            "changes": {"moved": outcome.moved}, "left": outcome.left,
        }
    }  # fmt: skip
    return data if moved else {**data, "retcode": 1}


def _at_once():
    return int((__opts__.get("virt") or {}).get("migrations_at_once") or slots.per_host(__opts__))


@result.reporting
def evacuate(host, reason="evacuated", test=False):
    """
    Drain a host: it gets no new guests, and those it has are moved to the others.

    Running guests move live, stopped ones cold, the biggest first, ``virt:migrations_at_once``
    at a time (default: ``virt:migration:at_once_per_host``, which is 2). A guest that cannot
    be moved does not stop the others; what is left is named with its reason, and the exit
    code is 1.

    :param host: minion id of the hypervisor
    :param reason: shown to whoever asks why the host gets no guests
    :param test: show the plan, change nothing

    :return: under the host's name ``result``, ``comment``, ``changes`` (``moved``), ``left``

    CLI Example:

    .. code-block:: bash

        salt-run virt.evacuate hyper1 'new disks'
    """
    with Fleet(__opts__) as fleet:
        if test:
            targets, homeless = evacuating.check(fleet, host, _policy())
            rows = [["guest", "goes to", "reason"]]
            rows += [[guest, target, ""] for guest, target in targets.items()]
            rows += [[guest, None, why] for guest, why in homeless.items()]
            title = f"{host}: {len(targets)} would move, {len(homeless)} would stay"
            plan = {"title": title, "table": rows, "moves": targets, "left": homeless}
            return {host: {"result": None, **plan}}
        outcome = evacuating.run(
            fleet, host, _policy(), _mover(), _report(fleet, host, "evacuate"), reason, _at_once()
        )
    return _moved(host, outcome, f"{host} is in maintenance")


@result.reporting
def restore(host):
    """
    End a host's maintenance and bring back the guests that were moved away.

    :param host: minion id of the hypervisor

    :return: under the host's name ``result``, ``comment``, ``changes`` (``moved``), ``left``

    CLI Example:

    .. code-block:: bash

        salt-run virt.restore hyper1
    """
    with Fleet(__opts__) as fleet:
        report = _report(fleet, host, "restore")
        outcome = evacuating.restore(fleet, host, _mover(), report, _at_once())
    return _moved(host, outcome, f"{host} takes guests again")


@result.reporting
def rebalance(apply=False, threshold=rebalancing.THRESHOLD):
    """
    Moves that would make the cloud more even; with ``apply`` they are made.

    Each move is simulated before the next is chosen. When applying, the hosts are asked again
    after every move, and it stops when they are not as predicted.

    :param apply: make the moves; default: show them
    :param threshold: a cloud whose score (spread of promised memory and half that of vCPUs,
        as fractions) is below it is left alone

    :return: under ``rebalance`` ``score``, ``table`` of the moves with the score after each;
        when applied ``result``, ``comment``, ``changes``

    CLI Example:

    .. code-block:: bash

        salt-run virt.rebalance
        salt-run virt.rebalance apply=True
    """
    with Fleet(__opts__) as fleet:
        hosts, _ = inventory.gather(fleet)
        moves = rebalancing.plan(hosts, _policy(), float(threshold))
        if apply:
            report = _report(fleet, "rebalance", "rebalance")
            outcome = evacuating.rebalance(fleet, _policy(), moves, _mover(), report)
            return _moved("rebalance", outcome, "rebalanced")
    score = rebalancing.score(hosts, _policy())
    rows = [["guest", "from", "to", "score after"]]
    rows += [[m.guest, m.source, m.target, round(m.after, 3)] for m in moves]
    title = f"{len(moves)} moves; the score is {score:.3f}, moves begin at {threshold}"
    return {"rebalance": {"score": score, "title": title, "table": rows}}


@result.reporting
def repair(apply=False):
    """
    Leftovers of operations that were interrupted: shown, and with ``apply`` mended.

    Guests that an init which died has half made, migrations that were broken off, guests on two
    hosts, accepted keys of guests that are on no host, permissions that have expired. What a
    person must decide is named and left alone.

    :param apply: mend; default: show

    :return: under ``repair`` ``table`` of what was found; when applied ``result``, ``comment``,
        ``changes`` (``mended``), ``left``

    CLI Example:

    .. code-block:: bash

        salt-run virt.repair
        salt-run virt.repair apply=True
    """
    with Fleet(__opts__) as fleet:
        findings, unheard = repairing.look(fleet)
        if apply:
            mended, left = repairing.mend(findings, _report(fleet, "repair", "repair"))
            left.update(unheard)
            comment = f"{len(mended)} mended, {len(left)} left" if left else f"{len(mended)} mended"
            comment += "".join(f"; {name}: {why}" for name, why in sorted(left.items()))
            changes = {"mended": mended} if mended else {}
            answer = {"result": not left, "comment": comment, "changes": changes, "left": left}
            return {"repair": answer, **({"retcode": 1} if left else {})}
    rows = [["what", "is wrong", "mending"]]
    rows += [[f.about, f.what, f.how] for f in findings]
    rows += [[host, why, ""] for host, why in sorted(unheard.items())]
    title = f"{len(findings)} leftovers" if findings else "nothing is left over"
    return {"repair": {"title": title, "table": rows}, **({"retcode": 1} if unheard else {})}
