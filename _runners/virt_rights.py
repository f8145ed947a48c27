"""
Whose guests are whose, for users who are limited: docs/rights.md.
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt.fleet.client import Fleet
from saltvirt.operations.core import result

with saltvirt.later():
    from saltvirt.operations.access import set_owner as owning  # the name is a function's here
    from saltvirt.operations.core import operation

if TYPE_CHECKING:
    from salt_dunders import __opts__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


@result.reporting
def own(name, owner=None, test=False):
    """
    Say whose a guest is, for ``owned`` grants and quotas of ``virt:rights``. What a limited user
    has deployed is that user's by itself.

    :param name: of the guest
    :param owner: the user, as Salt's eauth has it; default: nobody
    :param test: show what would be written down, change nothing

    :return: under the guest's name ``result``, ``comment``, ``changes`` (``owner``: ``old``,
        ``new``)

    CLI Example:

    .. code-block:: bash

        salt-run virt.own web1 anna
    """
    with Fleet(__opts__) as fleet:
        return operation.perform(owning.SetOwner(fleet, name, owner), test)


@result.reporting
def label(name, labels=None, test=False):
    """
    Say which labels a guest has, for grants of ``virt:rights`` by ``labels``. It has no others
    afterwards. They are the master's own record, and nothing else looks at them: the ``labels`` of
    ``virt.init`` are those that a *host* must have.

    :param name: of the guest
    :param labels: a list, or one; default: none
    :param test: show what would be written down, change nothing

    :return: under the guest's name ``result``, ``comment``, ``changes`` (``labels``: ``old``,
        ``new``)

    CLI Example:

    .. code-block:: bash

        salt-run virt.label web1 '[web, prod]'
    """
    with Fleet(__opts__) as fleet:
        return operation.perform(owning.SetLabels(fleet, name, labels), test)


@result.reporting
def owners():
    """
    Whose each guest is; or what is wrong in ``virt:rights``, which until it is mended allows
    nothing to any user.

    :return: under ``owners`` ``table``, ``guests`` (name to user or null), ``labels`` (name to a
        list), ``unreachable``: host to why it did not answer; exit code 1 then

    CLI Example:

    .. code-block:: bash

        salt-run virt.owners
    """
    with Fleet(__opts__) as fleet:
        return owning.list_owners(fleet)
