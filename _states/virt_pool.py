"""
Storage pools of a hypervisor as states.

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
    Define a storage pool, whether it runs or not. What it is made of (a folder, a volume
    group, a partition table, a file system) is made where it is missing, and never over
    anything else.

    :param name: of the pool
    :param ptype: ``dir``, ``fs``, ``netfs``, ``logical``, ``disk``, ``iscsi``, ``rbd``, … as
        for ``virt.pool_define``. Without it and the three that follow the pool must be there,
        and its definition stays as it is.
    :param target: the folder where its volumes appear
    :param permissions: of the target: ``mode`` (octal), ``owner`` and ``group`` (numbers),
        ``label`` (SELinux)
    :param source: a dict: ``devices``, ``dir``, ``hosts``, ``initiator``, ``adapter``,
        ``auth``, ``name``, ``format``, the ``source_…`` arguments of ``virt.pool_define``. A
        password in ``auth`` becomes a libvirt secret; ``changes`` says that it is another,
        and never shows it.
    :param transient: the pool runs, and is forgotten when it is stopped
    :param autostart: whether it is started with the host
    :param connection: libvirt URI, overriding ``virt:connection:uri``
    :param username: to connect with, overriding ``virt:connection:auth:username``
    :param password: to connect with, overriding ``virt:connection:auth:password``

    :return: ``changes`` has ``old`` and ``new`` of each thing that differs. With ``test=True`` the
        same, and nothing is written. A pool that runs keeps what it has until it is started
        again, and the comment says so. An error, or a parameter that there is not, makes
        ``result`` False and is named in the comment.

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
    Define a storage pool and have it run.

    The parameters are those of :func:`pool_defined`. A changed definition takes effect by
    starting the pool again, at once when no running guest has a volume of it open. When
    guests have, they are named in the comment and the pool runs on, unless:

    restart
        Stop and start it although running guests have volumes of it open.

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
    Stop a storage pool and remove its definition. Its volumes stay, unless ``purge``.

    :param name: of the pool
    :param purge: delete its volumes and what it is made of (the folder, the volume group),
        too. The pool must run. Refused when a guest, running or not, has one of the volumes.
    :param connection: libvirt URI, overriding ``virt:connection:uri``
    :param username: to connect with, overriding ``virt:connection:auth:username``
    :param password: to connect with, overriding ``virt:connection:auth:password``
    :param force: also when guests use its volumes, or other hosts may have what it is made of

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
