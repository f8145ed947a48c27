"""
Volumes in the storage pools of a hypervisor as states.

:depends: libvirt-python in Salt's own Python
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt.states import result, volumes

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def volume_defined(
    pool,
    name,
    size,
    allocation=0,
    format=None,
    type=None,
    permissions=None,
    backing_store=None,
    nocow=False,
    connection=None,
    username=None,
    password=None,
    shrink=False,
    **kwargs,
):
    """
    Have a volume in a storage pool. One that is there is grown to the size, and nothing that
    is in it is touched.

    :param pool: name of the pool, which must run
    :param name: of the volume
    :param size: its capacity, in MiB or with a unit (``20G``). Another size is refused while a
        running guest has the volume open.
    :param allocation: what is taken of a new volume at once, in MiB or with a unit
    :param format: e.g. ``raw`` or ``qcow2``. When the volume that is there has another format,
        type or backing store, ``result`` is False: that cannot be changed.
    :param type: ``file``, ``block``, ``dir``, …; None for the pool's own
    :param permissions: ``mode`` (octal), ``owner`` and ``group`` (numbers). Owner and group are
        not looked at while a running guest has the volume open, as libvirt gives them to it
        then. ``label`` (SELinux) can only be given to a new volume.
    :param backing_store: what it is based on: a dict with ``path`` and ``format``
    :param nocow: make a new volume without copy-on-write by the file system (btrfs)
    :param connection: libvirt URI, overriding ``virt:connection:uri``
    :param username: to connect with, overriding ``virt:connection:auth:username``
    :param password: to connect with, overriding ``virt:connection:auth:password``
    :param shrink: allow it to become smaller. What is beyond the new end is lost.

    :return: ``changes`` has ``old`` and ``new`` of each thing that differs. With ``test=True`` the
        same, and nothing is written. An error, or a parameter that there is not, makes
        ``result`` False and is named in the comment.

    .. code-block:: yaml

        web1.qcow2:
          virt.volume_defined:
            - pool: images
            - size: 20G
            - format: qcow2
            - backing_store:
                path: /srv/images/base.qcow2
                format: qcow2

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' state.single virt.volume_defined data.raw pool=images size=20G
    """
    return result.run("virt.volume_defined", locals(), __salt__, __opts__["test"], volumes.defined)


def volume_absent(name, pool, force=False, connection=None, username=None, password=None, **kwargs):
    """
    Delete a volume, with all that is in it.

    :param name: of the volume
    :param pool: name of the pool. Where there is no such pool, there is no such volume.
    :param force: also when a guest has it as a disk, or a disk or volume is based on it
    :param connection: libvirt URI, overriding ``virt:connection:uri``
    :param username: to connect with, overriding ``virt:connection:auth:username``
    :param password: to connect with, overriding ``virt:connection:auth:password``

    :return: ``changes`` has ``defined``. When it is used and ``force`` is not set, ``result``
        is False and the comment says by whom.

    .. code-block:: yaml

        web1.qcow2:
          virt.volume_absent:
            - pool: images

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' state.single virt.volume_absent web1.qcow2 pool=images test=True
    """
    return result.run("virt.volume_absent", locals(), __salt__, __opts__["test"], volumes.absent)
