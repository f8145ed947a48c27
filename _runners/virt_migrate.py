"""
What a migration of a guest would meet, and the end of one that runs. See docs/migration.md.
"""

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt.fleet.client import Fleet  # noqa: E402
from saltvirt.operations import migrate as migrating  # noqa: E402
from saltvirt.operations import result  # noqa: E402

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
        host = migrating.abort(fleet, name)
    return {
        str(name): {"result": True, "comment": f"the migration of {name} from {host} was ended"}
    }
