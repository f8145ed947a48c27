"""
States for the storage pools of a hypervisor.

:depends: libvirt-python in Salt's own Python
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt.states import pools, result

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def pool_defined(
    name,
    ptype=None,
    target=None,
    permissions=None,
    source=None,
    transient=False,
    autostart=True,
    connection=None,
    username=None,
    password=None,
    **kwargs,
):
    """
    Ensure that a storage pool is defined, active or not. Its source (folder, volume group,
    partition table, file system) is created if it does not exist, and never overwrites anything.

    :param name: name of the pool
    :param ptype: ``dir``, ``fs``, ``netfs``, ``logical``, ``disk``, ``iscsi``, ``rbd`` and others,
        as for ``virt.pool_define``. Without it and the next three parameters, the pool must exist,
        and its definition is not changed.
    :param target: folder of its volumes
    :param permissions: permissions of the target: ``mode`` (octal), ``owner`` and ``group``
        (numbers), ``label`` (SELinux)
    :param source: dictionary: ``devices``, ``dir``, ``hosts``, ``initiator``, ``adapter``,
        ``auth``, ``name``, ``format``, the ``source_…`` arguments of ``virt.pool_define``. A
        password in ``auth`` is stored as a libvirt secret; ``changes`` reports that it changed, and
        never shows it.
    :param transient: the pool is active, and is not defined any more once it is stopped
    :param autostart: whether it starts with the host
    :param connection: libvirt URI, overriding ``virt:connection:uri``
    :param username: user name, overriding ``virt:connection:auth:username``
    :param password: password, overriding ``virt:connection:auth:password``

    :return: ``changes`` has ``old`` and ``new`` of each difference. With ``test=True`` nothing is
        written. An active pool keeps its definition until it is started again, and the comment says
        so. If an error occurs or a parameter is unknown, ``result`` is False and the comment has
        the reason.

    .. code-block:: yaml

        share:
          virt.pool_defined:
            - ptype: netfs
            - target: /mnt/share
            - source:
                dir: samba_share
                hosts:
                  - one.example.com
                format: cifs

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' state.single virt.pool_defined images ptype=dir target=/srv/images
    """
    return result.run("virt.pool_defined", locals(), __salt__, __opts__["test"], pools.defined)


def pool_running(
    name,
    ptype=None,
    target=None,
    permissions=None,
    source=None,
    transient=False,
    autostart=True,
    connection=None,
    username=None,
    password=None,
    restart=False,
    **kwargs,
):
    """
    Ensure that a storage pool is defined and active.

    The parameters are those of :func:`pool_defined`. A changed definition takes effect by a restart
    of the pool, immediately if no running guest has one of its volumes open. If guests have, the
    comment lists them and the pool is not restarted, unless:

    restart
        Restart the pool even if running guests have its volumes open.

    .. code-block:: yaml

        images:
          virt.pool_running:
            - ptype: dir
            - target: /srv/images
            - permissions:
                mode: '0711'

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' state.single virt.pool_running images ptype=dir target=/srv/images
    """
    return result.run("virt.pool_running", locals(), __salt__, __opts__["test"], pools.running)


def pool_deleted(
    name,
    purge=False,
    connection=None,
    username=None,
    password=None,
    force=False,
    **kwargs,
):
    """
    Ensure that a storage pool is stopped and undefined. Its volumes are kept, unless ``purge`` is
    given.

    :param name: name of the pool
    :param purge: also delete its volumes and its source (the folder, the volume group). The pool
        must be active. Refused if a guest, running or not, has one of the volumes.
    :param connection: libvirt URI, overriding ``virt:connection:uri``
    :param username: user name, overriding ``virt:connection:auth:username``
    :param password: password, overriding ``virt:connection:auth:password``
    :param force: delete the pool even if guests use its volumes, or if other hosts may use its
        source

    :return: ``changes`` may have ``stopped``, ``deleted``, ``undefined`` and ``deleted_volumes``, a
        list of names.

    .. code-block:: yaml

        images:
          virt.pool_deleted:
            - purge: True

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' state.single virt.pool_deleted images test=True
    """
    return result.run("virt.pool_deleted", locals(), __salt__, __opts__["test"], pools.deleted)
