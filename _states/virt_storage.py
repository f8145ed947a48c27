"""
States for the storage pools of a hypervisor, their volumes, and the image cache.

:depends: libvirt-python in Salt's own Python; qemu-img for the image cache
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt.states import images, pools, result, volumes

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
    comment lists them and the pool is not restarted, unless ``restart`` is given.

    :param restart: restart the pool even if running guests have its volumes open

    :return: as ``virt.pool_defined``; ``changes`` also has ``active``

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


def image_cached(name, image_hash=None, saltenv="base", **kwargs):
    """
    Ensure that an image is in this hypervisor's cache, so that the next guest need not wait for it.

    The master limits the number of hosts that copy at the same time; other hosts wait.

    If the source has a new version, it is fetched. The old version is kept for disks that are based
    on it; ``virt.image_prune`` removes unused images.

    :param name: ``salt://…``, ``http(s)://…`` or ``ftp://…``; or an absolute path or
        ``pool://POOL/VOLUME``, which is only inspected
    :param image_hash: expected sha256 or sha512, or the URL of a file that lists it, such as
        ``https://…/SHA256SUMS``
    :param saltenv: environment of a ``salt://`` image

    :return: ``changes`` has ``image``: ``old``, the files of earlier versions, and ``new``, the
        source. With ``test=True`` nothing is fetched. If an error occurs or a parameter is unknown,
        ``result`` is False and the comment has the reason.

    .. code-block:: yaml

        salt://debian.qcow2:
          virt.image_cached

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' state.single virt.image_cached salt://debian.qcow2
    """
    return result.run("virt.image_cached", locals(), __salt__, __opts__["test"], images.cached)
