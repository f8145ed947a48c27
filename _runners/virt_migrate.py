"""
Moving guests: one, all of a host, those that make the cloud even; what a migration would meet, and
the end of one that runs. See docs/migration.md.

Every verb that moves takes ``test=True``: it then shows what it would do, and changes nothing.
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt.fleet.client import Fleet
from saltvirt.operations.core import result
from saltvirt.placement.rebalance import THRESHOLD

with saltvirt.later():
    from saltvirt import errors, names, settings, units
    from saltvirt.ha.manager import factory
    from saltvirt.operations.core import operation, report
    from saltvirt.operations.journal import slots
    from saltvirt.operations.move import evacuate as evacuating
    from saltvirt.operations.move import migrate as migrating  # the name is a function's here
    from saltvirt.operations.move import rebalance as rebalancing
    from saltvirt.operations.move import recover, target_leftovers
    from saltvirt.placement import policy

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def _policy():
    return policy.of_master(__opts__)


@result.reporting
def migrate(name, target="", test=False, **kwargs):
    """
    Move a guest to another host, live when it runs, over TLS, with its disks.

    :param name: of the guest
    What ``virt.init`` was asked for (``labels``, ``prefer``, ``groups``, ``group_policy``) is kept
    with the guest and holds for its next host, too.

    :param target: minion id of the host to move to; default: placement chooses, and where that host
        refuses, the next one is tried
    :param test: show where it would move and what would be in the way, change nothing
    :param kwargs: as for the module's ``virt.migrate``: ``policy``, ``max_bandwidth``,
        ``copy_storage``, ``keep_source``, …; ``overcommit=True`` moves it to the target also where
        placement would not

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
        keeps = factory.ha_provider(__opts__)
        move = migrating.Migrate(fleet, _policy(), name, target, progress, options, provider=keeps)
        return operation.perform(move, test)


def _mover(other_guests=False, plans=None):
    # Salt's dunders are not there in other threads
    return migrating.mover(dict(__opts__), _policy(), other_guests, plans)


@result.reporting
def evacuate(host, reason="evacuated", timeout=600, test=False):
    """
    Drain a host: it gets no new guests, and those it has are moved to the others.

    Running guests move live, stopped ones cold, the biggest first: at most
    ``virt:migration:at_once`` (8) at a time, and ``virt:migration:at_once_per_host`` (2) from or
    to one host. A guest that cannot be moved does not stop the others; what is left is
    named with its reason, and the exit code is 1. The mark comes first, and the host is looked at
    again at the end: a guest that was being made meanwhile is moved, too, or named. All hosts are
    asked once for all guests; each goes to a host that ``virt.init`` would have taken for it; where
    that one refuses, to the next. Guests of high availability are moved by its engine, as soon as
    it sees the mark, and waited for. A host is evacuated once at a time; ``virt.restore``, or
    ``salt HOST virt.maintenance off=True``, ends it: guests on their way arrive, no further one
    leaves.

    :param host: minion id of the hypervisor
    :param reason: shown to whoever asks why the host gets no guests
    :param timeout: so many seconds it waits for guests of high availability without one more gone
    :param test: show the plan, with each guest that can go nowhere, by its host's word; change
        nothing. The exit code is 1 when a guest would stay

    :return: under the host's name ``result``, ``comment``, ``changes`` (``moved``), ``left``

    CLI Example:

    .. code-block:: bash

        salt-run virt.evacuate hyper1 'new disks'
    """
    with Fleet(__opts__) as fleet:
        progress = report.of_runner(fleet, host, "evacuate", __salt__)
        plans: migrating.Plans = {}
        move, limits = _mover(other_guests=True, plans=plans), slots.limits(__opts__)
        keeps = factory.ha_provider(__opts__)
        drain = evacuating.Evacuate(
            fleet, host, _policy(), move, progress, reason, limits, plans, keeps, timeout
        )
        return operation.perform(drain, test)


@result.reporting
def restore(host, test=False):
    """
    End a host's maintenance and bring back the guests that this master moved away. The host keeps
    the names of those that could not come: call it again for them. What the host names besides
    stays where it is, and is told. Guests are known by their UUIDs: one that was renamed while it
    was away comes back, too. An evacuation of the host that is at work is ended first.

    :param host: minion id of the hypervisor
    :param test: show the plan, change nothing

    :return: under the host's name ``result``, ``comment``, ``changes`` (``moved``), ``left``

    CLI Example:

    .. code-block:: bash

        salt-run virt.restore hyper1
    """
    with Fleet(__opts__) as fleet:
        progress = report.of_runner(fleet, host, "restore", __salt__)
        back = evacuating.RestoreHost(fleet, host, _mover(), progress, slots.limits(__opts__))
        return operation.perform(back, test)


def _guest_names(names_arg, argument):
    """The names of guests in a list, or in a text with commas."""
    if isinstance(names_arg, (str, int)) and not isinstance(names_arg, bool):
        names_arg = str(names_arg).split(",")  # YAML reads a name of digits as a number
    if not isinstance(names_arg, (list, tuple, type(None))):
        raise errors.InvalidInput(f"{argument}: {units.short_repr(names_arg)} is no list of names")
    return [names.guest(str(item).strip()) for item in names_arg or () if str(item).strip()]


@result.reporting
def rebalance(apply=False, threshold=THRESHOLD, test=False, stay=()):
    """
    Moves that would make the cloud more even; with ``apply`` they are made.

    Each move is simulated before the next is chosen. When applying, the two hosts of a move are
    asked again after it, and it stops when the cloud is not as predicted. A guest that can go
    nowhere, by its host's word, or whose move fails, stays, and the rest is planned without it.

    :param apply: make the moves; default: show them
    :param test: show them, whatever ``apply`` says
    :param threshold: a cloud whose score (spread of promised memory and half that of vCPUs,
        as fractions) is below it is left alone
    :param stay: names of guests that are left where they are, as a list or with commas

    :return: under ``rebalance`` ``score``, ``table`` of the moves with the score after each,
        ``stay`` (guest to why it can go nowhere);
        when applied ``result``, ``comment``, ``changes``

    CLI Example:

    .. code-block:: bash

        salt-run virt.rebalance
        salt-run virt.rebalance apply=True stay=db1,db2
    """
    stay = _guest_names(stay, "stay")
    threshold = units.parse_number(threshold, "threshold")
    with Fleet(__opts__) as fleet:
        progress = report.of_runner(fleet, "rebalance", "rebalance", __salt__)
        plans: migrating.Plans = {}
        move = _mover(other_guests=True, plans=plans)
        keeps = factory.ha_provider(__opts__)
        extra = (progress, plans, keeps, stay)
        even = rebalancing.Rebalance(fleet, _policy(), threshold, move, *extra)
        return operation.perform(even, test or not apply)


@result.reporting
def migratable(name, target=""):
    """
    Can a guest be moved, and if not, why? Changes nothing.

    :param name: of the guest
    :param target: minion id of a host; without one only the guest itself is looked at

    :return: under the guest's name: ``result`` (whether it can), ``comment`` (every reason),
        ``reasons``, and with a target ``disks`` (what would happen to each) and
        ``certificates`` (those that the move needs: host, file, until when, what is wrong). The
        exit code is 1 when it cannot

    CLI Example:

    .. code-block:: bash

        salt-run virt.migratable web1
        salt-run virt.migratable web1 hyper2
    """
    with Fleet(__opts__) as fleet:
        verdict = migrating.examine(fleet, name, target or None)
    comment = migrating.verdict(name, target, verdict)
    check_result = operation.Result(
        str(name), comment, details=verdict.to_answer(), complete=verdict.migratable
    )
    return check_result.answer()


@result.reporting
def migrate_abort(name):
    """
    End the running migration of a guest; the guest runs on where it is.

    :param name: of the guest

    :return: under the guest's name ``result``, ``comment``

    CLI Example:

    .. code-block:: bash

        salt-run virt.migrate_abort web1
    """
    with Fleet(__opts__) as fleet:
        host, leftovers = migrating.abort(fleet, name)
    parts = [f"the migration of {name} from {host} was ended"]
    parts += [
        f"on {on} {reason}; {target_leftovers.retry_hint(name)}"
        for on, reason in sorted(leftovers.items())
    ]
    return {str(name): {"result": True, "comment": "; ".join(parts)}}


@result.reporting
def migrate_recover(name, lost="", removed=False):
    """
    End a migration of a guest that was broken off: both hosts are asked, one has it afterwards.

    ``salt-run virt.migrate`` and ``virt.repair`` do it, too, and ``virt.migrate`` goes on then.

    :param name: of the guest
    :param lost: minion id of the target, when it does not answer and you know that it does not run
        the guest and will not when it comes back: it is off for good, or you looked. The guest then
        goes on on its old host. It is refused when that host answers and has the guest; else nobody
        can check it: if it is wrong, the guest runs twice. An event ``salt/virt/NAME/migrate/lost``
        records it
    :param removed: True: you know that the guest was removed on purpose, and neither of its hosts
        has it. Its migration ends; its last definition goes with that, and its files stay

    :return: under the guest's name: ``result``, ``comment``, ``recovered`` (what the module's
        ``virt.migrate_recover`` returns)

    CLI Example:

    .. code-block:: bash

        salt-run virt.migrate_recover web1
        salt-run virt.migrate_recover web1 lost=hyper2
    """
    with Fleet(__opts__) as fleet:
        progress = report.of_runner(fleet, name, "migrate", __salt__)
        host, recovery = recover.recover(fleet, name, progress, lost or None, removed)
    comment = recover.recovery_text(name, host, recovery)
    recovery_report = {
        "result": not recovery.left,
        "comment": comment,
        "recovered": recovery.to_answer(),
    }
    return {str(name): recovery_report}


@result.reporting
def migrate_unfinished():
    """
    The migrations that were broken off, or are at work, on every host.

    :return: under ``unfinished``: ``result`` (False when a host did not answer), ``comment``,
        ``hosts``: host to what its ``virt.migrate_unfinished`` says, ``unreachable``: host to why

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
