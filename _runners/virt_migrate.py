"""
What a migration of a guest would meet, and the end of one that runs. See docs/migration.md.
"""

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt.fleet.client import Fleet
from saltvirt.operations import leavings, result
from saltvirt.operations import migrate as migrating
from saltvirt.operations import recover as recovering
from saltvirt.operations import report as reports

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


@result.reporting
def migratable(name, target=""):
    """
    Can a guest be moved, and if not, why? Changes nothing.

    :param name: of the guest
    :param target: minion id of a host; without one only the guest itself is looked at

    :return: under the guest's name: ``result`` (whether it can), ``comment`` (every reason),
        ``reasons``, and with a target ``disks`` (what would happen to each) and
        ``certificates`` (those that the move needs: host, file, until when, what is wrong)

    CLI Example:

    .. code-block:: bash

        salt-run virt.migratable web1
        salt-run virt.migratable web1 hyper2
    """
    with Fleet(__opts__) as fleet:
        found = migrating.examine(fleet, name, target or None)
    comment = migrating.verdict(name, target, found)
    return {str(name): {"result": found["migratable"], "comment": comment, **found}}


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
        host, left = migrating.abort(fleet, name)
    words = [f"the migration of {name} from {host} was ended"]
    words += [f"on {on} {why}; {leavings.again(name)}" for on, why in sorted(left.items())]
    return {str(name): {"result": True, "comment": "; ".join(words)}}


@result.reporting
def migrate_recover(name, lost=""):
    """
    End a migration of a guest that was broken off: both hosts are asked, one has it afterwards.

    ``salt-run virt.migrate`` and ``virt.repair`` do it, too, and ``virt.migrate`` goes on then.

    :param name: of the guest
    :param lost: minion id of the target, when it does not answer and you know that it does not run
        the guest and will not when it comes back: it is off for good, or you looked. The guest then
        goes on on its old host. It is refused when that host answers and has the guest; else nobody
        can check it: if it is wrong, the guest runs twice. An event ``salt/virt/NAME/migrate/lost``
        records it

    :return: under the guest's name: ``result``, ``comment``, ``recovered`` (what the module's
        ``virt.migrate_recover`` returns)

    CLI Example:

    .. code-block:: bash

        salt-run virt.migrate_recover web1
        salt-run virt.migrate_recover web1 lost=hyper2
    """
    with Fleet(__opts__) as fleet:
        report = reports.of_runner(fleet, name, "migrate", __salt__)
        host, found = recovering.recover(fleet, name, report, lost or None)
    comment = recovering.recovered(name, host, found)
    return {str(name): {"result": not found["left"], "comment": comment, "recovered": found}}


@result.reporting
def migrate_unfinished():
    """
    The migrations that were broken off, or are at work, on every host.

    :return: under ``unfinished``: ``result`` (False when a host did not answer), ``comment``,
        ``hosts``: host to what its ``virt.migrate_unfinished`` says, ``unheard``: host to why

    CLI Example:

    .. code-block:: bash

        salt-run virt.migrate_unfinished
    """
    with Fleet(__opts__) as fleet:
        found, unheard = recovering.unfinished(fleet)
    comment = recovering.listed(found, unheard)
    about = {"result": not unheard, "comment": comment, "hosts": found, "unheard": unheard}
    return {"unfinished": about}
