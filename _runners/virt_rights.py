"""
Manage owners and labels of guests for ``virt:rights``: docs/how-to/rights.md.
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt.fleet.client import Fleet
from saltvirt.operations.core import result

with saltvirt.later():
    from saltvirt.operations.access import (
        set_owner as owner_operation,  # a function here has the same name
    )
    from saltvirt.operations.core import operation

if TYPE_CHECKING:
    from salt_dunders import __opts__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


@result.reporting
def own(name, owner=None, test=False):
    """
    Set the owner of a guest, for ``owned`` grants and quotas of ``virt:rights``. A limited user
    automatically owns the guests that the user deploys.

    :param name: name of the guest
    :param owner: user name as in Salt's eauth; default: no owner
    :param test: show what would be recorded; change nothing

    :return: under the guest's name ``result``, ``comment``, ``changes`` (``owner``: ``old``,
        ``new``)

    CLI Example:

    .. code-block:: bash

        salt-run virt.own web1 anna
    """
    with Fleet(__opts__) as fleet:
        return operation.perform(owner_operation.SetOwner(fleet, name, owner), test)


@result.reporting
def label(name, labels=None, test=False):
    """
    Set the labels of a guest, for grants of ``virt:rights`` by ``labels``; they replace all
    previous labels. They are the master's own records and have no other effect: the ``labels`` of
    ``virt.init`` are those that a *host* must have.

    :param name: name of the guest
    :param labels: a label or a list of labels; default: none
    :param test: show what would be recorded; change nothing

    :return: under the guest's name ``result``, ``comment``, ``changes`` (``labels``: ``old``,
        ``new``)

    CLI Example:

    .. code-block:: bash

        salt-run virt.label web1 '[web, prod]'
    """
    with Fleet(__opts__) as fleet:
        return operation.perform(owner_operation.SetLabels(fleet, name, labels), test)


@result.reporting
def owners():
    """
    List the owners of guests, or show what is wrong in ``virt:rights``; until that is fixed, users
    have no rights.

    :return: under ``owners``: ``table``, ``guests`` (name to user or null), ``labels`` (name to a
        list), ``unreachable``: host to the reason; then the exit code is 1

    CLI Example:

    .. code-block:: bash

        salt-run virt.owners
    """
    with Fleet(__opts__) as fleet:
        return owner_operation.list_owners(fleet)
