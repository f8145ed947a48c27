"""
States for the volumes in storage pools of a hypervisor.

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
    Ensure that a volume exists in a storage pool. An existing volume is grown to the size; its
    content is not changed.

    :param pool: name of the pool, which must be active
    :param name: name of the volume
    :param size: capacity in MiB, or with a unit (``20G``). The volume is not resized while a
        running guest has it open; the state then fails.
    :param allocation: initial allocation of a new volume, in MiB or with a unit
    :param format: for example ``raw`` or ``qcow2``. If an existing volume has another format, type
        or backing store, ``result`` is False: these cannot be changed.
    :param type: ``file``, ``block``, ``dir`` and others; default: the pool's default
    :param permissions: ``mode`` (octal), ``owner`` and ``group`` (numbers). Owner and group are not
        compared while a running guest has the volume open, because libvirt changes them then.
        ``label`` (SELinux) only applies to a new volume.
    :param backing_store: backing image: dictionary with ``path`` and ``format``
    :param nocow: create a new volume without copy-on-write of the file system (btrfs)
    :param connection: libvirt URI, overriding ``virt:connection:uri``
    :param username: user name, overriding ``virt:connection:auth:username``
    :param password: password, overriding ``virt:connection:auth:password``
    :param shrink: allow shrinking. Data beyond the new end is lost.

    :return: ``changes`` has ``old`` and ``new`` of each difference. With ``test=True`` nothing is
        written. If an error occurs or a parameter is unknown, ``result`` is False and the comment
        has the reason.

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
    Ensure that a volume does not exist. Its data is deleted.

    :param name: name of the volume
    :param pool: name of the pool; if the pool does not exist, neither does the volume
    :param force: delete the volume even if a guest uses it as a disk, or if a disk or volume is
        based on it
    :param connection: libvirt URI, overriding ``virt:connection:uri``
    :param username: user name, overriding ``virt:connection:auth:username``
    :param password: password, overriding ``virt:connection:auth:password``

    :return: ``changes`` has ``defined``. If the volume is used and ``force`` is not given,
        ``result`` is False and the comment lists the users.

    .. code-block:: yaml

        web1.qcow2:
          virt.volume_absent:
            - pool: images

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' state.single virt.volume_absent web1.qcow2 pool=images test=True
    """
    return result.run("virt.volume_absent", locals(), __salt__, __opts__["test"], volumes.absent)
