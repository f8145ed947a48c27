"""
Migrate guests, evacuate hosts and rebalance the cloud. See docs/how-to/migration.md.

Every function that migrates guests accepts ``test=True``: show what would be done, and change
nothing.
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt.fleet.client import Fleet
from saltvirt.operations.access import runner
from saltvirt.placement.rebalance import THRESHOLD

with saltvirt.later():
    from saltvirt import errors, names, settings, units
    from saltvirt.operations.cluster import hooks
    from saltvirt.operations.core import operation, report
    from saltvirt.operations.journal import slots
    from saltvirt.operations.move import evacuate as evacuate_operation
    from saltvirt.operations.move import (
        migrate as migrate_operation,  # a function here has the same name
    )
    from saltvirt.operations.move import rebalance as rebalance_operation
    from saltvirt.operations.move import recover, target_leftovers
    from saltvirt.placement import policy
    from saltvirt.spec import values

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def _policy():
    return policy.of_master(__opts__)


@runner.reporting_guests
def migrate(name, target="", test=False, **kwargs):
    """
    Migrate a guest to another host with its disks, over TLS, live if it is running.

    The arguments ``labels``, ``prefer``, ``groups`` and ``group_policy`` of ``virt.init`` are
    stored with the guest and also apply to its next host.

    :param name: name of the guest
    :param target: minion id of the target host; default: placement selects it, and if that host
        refuses, tries the next one
    :param test: show the target and all reasons against the migration; change nothing
    :param kwargs: as for the module's ``virt.migrate``: ``policy``, ``max_bandwidth``,
        ``copy_storage``, ``keep_source``, …; ``overcommit=True`` migrates the guest even if the
        target does not have enough free capacity

    :return: under the guest's name ``result``, ``comment``, ``changes``, ``migration`` (what
        the module's ``virt.migrate`` returns)

    CLI Example:

    .. code-block:: bash

        salt-run virt.migrate web1 hyper2
        salt-run virt.migrate web1 hyper2 policy=postcopy max_bandwidth=100
    """
    options = settings.user_kwargs(kwargs)
    with Fleet(__opts__) as fleet:
        progress = report.of_runner(fleet, name, "migrate", __salt__)
        provider = hooks.ha_provider(__opts__)
        move = migrate_operation.Migrate(
            fleet, _policy(), name, target, progress, options, provider=provider
        )
        return operation.perform(move, test)


def _mover(other_guests=False, plans=None):
    # Salt's dunders do not exist in other threads
    return migrate_operation.mover(dict(__opts__), _policy(), other_guests, plans)


@runner.reporting
def evacuate(host, reason="evacuated", timeout=600, test=False):
    """
    Evacuate a host: it gets no new guests, and its guests are migrated to other hosts.

    Running guests are migrated live, stopped guests cold, the largest first. At most
    ``virt:migration:at_once`` (8) guests are migrated at the same time, and
    ``virt:migration:at_once_per_host`` (2) from or to one host. If a guest cannot be migrated, the
    others are; guests that are left are listed with the reason, and the exit code is 1. The host is
    put into maintenance first and checked again at the end: a guest that was being created
    meanwhile is migrated, too, or reported. All hosts are queried once for all guests; each guest
    goes to a host that ``virt.init`` would select for it, or to the next one if that host refuses.
    Guests of high availability are moved by its engine, and waited for. Only one evacuation of a
    host can run. ``virt.restore``, or ``salt HOST virt.maintenance off=True``, stops it: running
    migrations are finished, and no further ones are started.

    :param host: minion id of the hypervisor
    :param reason: reason of the maintenance, at most 200 characters, shown whenever the host is
        rejected
    :param timeout: seconds to wait without progress for guests of high availability
    :param test: show the plan, and each guest that cannot be migrated, with its host's reason;
        change nothing. The exit code is 1 if a guest would be left

    :return: under the host's name ``result``, ``comment``, ``changes`` (``moved``), ``left``

    CLI Example:

    .. code-block:: bash

        salt-run virt.evacuate hyper1 'new disks'
    """
    with Fleet(__opts__) as fleet:
        progress = report.of_runner(fleet, host, "evacuate", __salt__)
        plans: migrate_operation.Plans = {}
        move, limits = _mover(other_guests=True, plans=plans), slots.limits(__opts__)
        provider = hooks.ha_provider(__opts__)
        evacuation = evacuate_operation.Evacuate(
            fleet, host, _policy(), move, progress, reason, limits, plans, provider, timeout
        )
        return operation.perform(evacuation, test)


@runner.reporting
def restore(host, test=False):
    """
    End the maintenance of a host and bring back the guests that this master moved away. The host
    keeps a list of guests that could not come back: call it again for them. Other guests that the
    host lists are not moved, but reported. Guests are identified by their UUIDs, so a guest that
    was renamed meanwhile comes back, too. A running evacuation of the host is stopped first.

    :param host: minion id of the hypervisor
    :param test: show the plan; change nothing

    :return: under the host's name ``result``, ``comment``, ``changes`` (``moved``), ``left``

    CLI Example:

    .. code-block:: bash

        salt-run virt.restore hyper1
    """
    with Fleet(__opts__) as fleet:
        progress = report.of_runner(fleet, host, "restore", __salt__)
        restoration = evacuate_operation.RestoreHost(
            fleet, host, _mover(), progress, slots.limits(__opts__)
        )
        return operation.perform(restoration, test)


def _guest_names(names_arg, argument):
    """Guest names from a list, or from text with commas."""
    if isinstance(names_arg, (str, int)) and not isinstance(names_arg, bool):
        names_arg = str(names_arg).split(",")  # YAML parses a name of digits as a number
    if not isinstance(names_arg, (list, tuple, type(None))):
        shown = units.short_repr(names_arg)
        raise errors.InvalidInput(f"{argument}: {shown} is not a list of names")
    return [names.guest(str(item).strip()) for item in names_arg or () if str(item).strip()]


@runner.reporting
def rebalance(apply=False, threshold=THRESHOLD, test=False, stay=()):
    """
    Show migrations that would balance the cloud; with ``apply``, perform them.

    Each migration is simulated before the next one is selected. With ``apply``, both hosts of a
    migration are queried again after it, and the operation stops if the state differs from the
    prediction. A guest that its host cannot migrate, or whose migration fails, is left, and the
    rest is planned without it.

    :param apply: perform the migrations; default: show them
    :param test: only show them, even with ``apply``
    :param threshold: minimum score for changes (the spread of allocated memory plus half that of
        vCPUs, as fractions)
    :param stay: names of guests that must not be migrated, as a list or separated by commas

    :return: under ``rebalance``: ``score``, ``table`` of the migrations with the imbalance after
        each, ``stay`` (guest to the reason why it cannot be migrated); with ``apply``: ``result``,
        ``comment``, ``changes``

    CLI Example:

    .. code-block:: bash

        salt-run virt.rebalance
        salt-run virt.rebalance apply=True stay=db1,db2
    """
    stay = _guest_names(stay, "stay")
    threshold = units.parse_number(threshold, "threshold")
    with Fleet(__opts__) as fleet:
        progress = report.of_runner(fleet, "rebalance", "rebalance", __salt__)
        plans: migrate_operation.Plans = {}
        move = _mover(other_guests=True, plans=plans)
        provider = hooks.ha_provider(__opts__)
        extra = (progress, plans, provider, stay)
        balancing = rebalance_operation.Rebalance(fleet, _policy(), threshold, move, *extra)
        return operation.perform(balancing, test or not apply)


@runner.reporting_guests
def migratable(name, target=""):
    """
    Check whether a guest can be migrated. Changes nothing.

    :param name: name of the guest
    :param target: minion id of a target host; without it, only the guest itself is checked

    :return: under the guest's name: ``result`` (whether it can), ``comment`` (all reasons),
        ``reasons``, and with a target ``disks`` (what would happen to each) and ``certificates``
        (those that the migration needs: host, file, expiry, problem). The exit code is 1 if it
        cannot be migrated

    CLI Example:

    .. code-block:: bash

        salt-run virt.migratable web1
        salt-run virt.migratable web1 hyper2
    """
    with Fleet(__opts__) as fleet:
        verdict = migrate_operation.examine(fleet, name, target or None)
    comment = migrate_operation.verdict(name, target, verdict)
    check_result = operation.Result(
        str(name), comment, details=verdict.to_answer(), complete=verdict.migratable
    )
    return check_result.answer()


@runner.reporting_guests
def migrate_abort(name, test=False):
    """
    Abort the running migration of a guest; the guest continues to run on its current host.

    :param name: name of the guest
    :param test: show which migration would be aborted; change nothing

    :return: under the guest's name ``result``, ``comment``

    CLI Example:

    .. code-block:: bash

        salt-run virt.migrate_abort web1
    """
    with Fleet(__opts__) as fleet:
        if values.boolean(test, "test"):
            return migrate_operation.check_abort(fleet, name).answer()
        host, leftovers = migrate_operation.abort(fleet, name)
    parts = [f"the migration of {name} from {host} was ended"]
    parts += [
        f"on {on} {reason}; {target_leftovers.retry_hint(name)}"
        for on, reason in sorted(leftovers.items())
    ]
    return {str(name): {"result": True, "comment": "; ".join(parts)}}


@runner.reporting
def migrate_recover(name, lost="", removed=False, test=False):
    """
    Finish an interrupted migration of a guest: both hosts are queried, and one of them has the
    guest afterwards.

    ``salt-run virt.migrate`` and ``virt.repair`` do this, too; ``virt.migrate`` then continues.

    :param name: name of the guest
    :param lost: minion id of the target, if it does not answer and you know that it does not run
        the guest and never will: it is off for good, or you have checked it. The guest then
        continues on its old host. Refused if the target answers and has the guest; otherwise it
        cannot be verified, and if it is wrong, the guest runs twice. The event
        ``salt/virt/NAME/migrate/lost`` records it
    :param removed: True: you know that the guest was removed on purpose, and neither host has it.
        The migration ends; its last definition is deleted, and its files are kept
    :param test: show which migration would be ended and where the guest is, or every reason against
        it; change nothing

    :return: under the guest's name: ``result``, ``comment``, ``recovered`` (the answer of the
        module's ``virt.migrate_recover``)

    CLI Example:

    .. code-block:: bash

        salt-run virt.migrate_recover web1 test=True
        salt-run virt.migrate_recover web1
        salt-run virt.migrate_recover web1 lost=hyper2
    """
    with Fleet(__opts__) as fleet:
        if values.boolean(test, "test"):
            return recover.check(fleet, name, lost or None).answer()
        progress = report.of_runner(fleet, name, "migrate", __salt__)
        host, recovery = recover.recover(fleet, name, progress, lost or None, removed)
    comment = recover.recovery_text(name, host, recovery)
    recovered = recovery.to_answer()
    recovery_report = {"result": not recovery.leftovers, "comment": comment, "recovered": recovered}
    return {str(name): recovery_report}


@runner.reporting
def migrate_unfinished():
    """
    List interrupted and running migrations on all hosts.

    :return: under ``unfinished``: ``result`` (False if a host did not answer), ``comment``,
        ``hosts``: host to the answer of its ``virt.migrate_unfinished``, ``unreachable``: host to
        the reason

    CLI Example:

    .. code-block:: bash

        salt-run virt.migrate_unfinished
    """
    with Fleet(__opts__) as fleet:
        by_host, unreachable = recover.unfinished(fleet)
    comment = recover.unfinished_text(by_host, unreachable)
    summary = {
        "result": not unreachable,
        "comment": comment,
        "hosts": {
            host: {name: migration.to_answer() for name, migration in migrations.items()}
            for host, migrations in by_host.items()
        },
        "unreachable": unreachable,
    }
    return {"unfinished": summary}
