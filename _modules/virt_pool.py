"""
Manage the storage pools of a hypervisor.

Every function accepts ``connection``, ``username`` and ``password``; the defaults are
``virt:connection:uri`` and ``virt:connection:auth``.

:depends: libvirt-python in Salt's own Python
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt import settings
    from saltvirt.host import connection
    from saltvirt.host.capabilities import pool_caps
    from saltvirt.host.domain import lifecycle
    from saltvirt.host.storage import pool_state, pools, volumes
    from saltvirt.spec import pool, values
    from saltvirt.states import pools as desired_pools

if TYPE_CHECKING:
    from salt_dunders import __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def _connect(kwargs):
    return connection.connect(settings.connection(__salt__["config.get"], kwargs))


def _pool_spec(arguments):
    """The PoolSpec from a function's ``locals()``."""
    keys = pool.PoolSpec.keys()
    return pool.parse(**{k: v for k, v in arguments.items() if k in keys})


def pool_capabilities(**kwargs):
    """
    List the types of storage pools that this libvirt supports, with their formats.

    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary: ``computed`` (always False, because libvirt was queried) and
        ``pool_types``, a list of dictionaries: ``name``, ``supported``, ``options`` (``pool`` and
        ``volume``, each with ``default_format`` and the possible values)

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.pool_capabilities
    """
    with _connect(kwargs) as conn:
        return {"computed": False, "pool_types": pool_caps.read(conn)}


def pool_define(
    name,
    ptype,
    target=None,
    permissions=None,
    source_devices=None,
    source_dir=None,
    source_initiator=None,
    source_adapter=None,
    source_hosts=None,
    source_auth=None,
    source_name=None,
    source_format=None,
    transient=False,
    start=True,
    build=False,
    **kwargs,
):
    """
    Create a storage pool. If a step fails, it is not left defined.

    :param name: name of the pool
    :param ptype: ``dir``, ``fs``, ``netfs``, ``logical``, ``disk``, ``iscsi``, ``iscsi-direct``,
        ``scsi``, ``mpath``, ``rbd``, ``gluster``, ``zfs``, ``sheepdog``, ``vstorage``;
        :func:`pool_capabilities` shows which are supported
    :param target: folder of its volumes
    :param permissions: permissions of the target: dictionary with ``mode`` (octal, as text),
        ``owner`` and ``group`` (numbers), ``label`` (SELinux)
    :param source_devices: list of devices: paths, or dictionaries with ``path`` and
        ``part_separator``. For iSCSI, the target's qualified name.
    :param source_dir: folder on the server (``netfs``, ``gluster``)
    :param source_initiator: IQN of the initiator (``iscsi-direct``)
    :param source_adapter: SCSI adapter: dictionary with ``type``, ``name``, ``parent``,
        ``managed``, ``parent_wwnn``, ``parent_wwpn``, ``parent_fabric_wwn``, ``wwnn``, ``wwpn``,
        ``parent_address`` (``unique_id`` and ``address``)
    :param source_hosts: list of servers, each ``name`` or ``name:port``
    :param source_auth: dictionary: ``username``, and either ``password`` (stored as a libvirt
        secret; for Ceph in base64) or ``secret`` (``type``: ``uuid`` or ``usage``, and ``value``);
        ``type``: ``ceph`` or ``chap``
    :param source_name: name of the volume group, Ceph pool, Gluster volume or the like
    :param source_format: format of the source, for example ``xfs``, ``nfs``, ``lvm2``, ``gpt``
    :param transient: the pool is active, and is not defined any more once it is stopped
    :param start: start it immediately
    :param build: build the pool first, as :func:`pool_build` does
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True

    :raises InvalidInput: an argument is invalid, or missing for this type of pool
    :raises AlreadyExists: a pool of this name exists

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.pool_define images dir target=/srv/images build=True
        salt 'hyper*' virt.pool_define share netfs source_format=cifs \\
            source_dir=samba_share source_hosts="['example.com']" target=/mnt/cifs
    """
    spec = _pool_spec(locals())
    options = pools.PoolOptions(
        values.flag(start, "start"),
        values.flag(transient, "transient"),
        values.flag(build, "build"),
    )
    with _connect(kwargs) as conn:
        return pools.define(conn, spec, options)


def pool_update(
    name,
    ptype,
    target=None,
    permissions=None,
    source_devices=None,
    source_dir=None,
    source_initiator=None,
    source_adapter=None,
    source_hosts=None,
    source_auth=None,
    source_name=None,
    source_format=None,
    test=False,
    **kwargs,
):
    """
    Update a storage pool.

    The parameters are those of :func:`pool_define`. Its UUID is kept, and so are permissions and
    format if they are not given. An active pool keeps its old definition until it is stopped and
    started; until then, ``virt.pool_info`` reports it as ``pending``. A password is stored at each
    call, because libvirt does not tell whether it differs.

    :param name: name of the pool
    :param ptype: see :func:`pool_define`
    :param test: only show whether it would change
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True if it was changed (with ``test``: would be changed), False if nothing differs

    :raises NotFound: the pool does not exist
    :raises InvalidInput: an argument is invalid, or missing for this type of pool

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.pool_update images dir target=/srv/images test=True
    """
    spec = _pool_spec(locals())
    with _connect(kwargs) as conn:
        return pools.update(conn, spec, values.flag(test, "test"))


def pool_converge(
    name,
    ptype=None,
    target=None,
    permissions=None,
    source=None,
    transient=False,
    autostart=True,
    running=None,
    restart=False,
    test=False,
    **kwargs,
):
    """
    Create and build or update a storage pool and start it, in one step. If a step fails, a pool
    that was active continues with its previous definition.

    The states ``virt.pool_defined`` and ``virt.pool_running`` use this function.

    :param name: name of the pool
    :param ptype: see :func:`pool_define`. Without it and the next three parameters, the pool must
        exist, and its definition is not changed.
    :param target: folder of its volumes
    :param permissions: permissions of the target: see :func:`pool_define`
    :param source: dictionary of the ``source_…`` arguments of :func:`pool_define`, without
        ``source_``
    :param transient: the pool is active, and is not defined any more once it is stopped
    :param autostart: whether it starts with the host
    :param running: True: start it; None: do not change whether it is active
    :param restart: restart it for changes that take effect at its next start, even if running
        guests have its volumes open
    :param test: only show what would change
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary: ``changes`` (setting to ``old`` and ``new``, without passwords),
        ``comment`` (a sentence)

    :raises InvalidInput: an argument is invalid, or missing for this type of pool

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.pool_converge images dir target=/srv/images running=True test=True
    """
    spec_options = {"ptype": ptype, "target": target, "permissions": permissions, "source": source}
    desired = desired_pools.DesiredPool(
        name=str(name),
        spec=pool.from_state(name=name, **spec_options) if any(spec_options.values()) else None,
        running=None if running is None else values.flag(running, "running"),
        autostart=values.flag(autostart, "autostart"),
        transient=values.flag(transient, "transient"),
        restart=values.boolean(restart, "restart"),
    )
    test = values.flag(test, "test")
    with _connect(kwargs) as conn:
        return pool_state.converge(conn, desired, test).show(test)


def pool_remove(name, purge=False, force=False, test=False, **kwargs):
    """
    Stop and undefine a storage pool if it exists. Its volumes are kept, unless ``purge`` is given.
    The state ``virt.pool_deleted`` uses this function.

    :param name: name of the pool
    :param purge: also delete its volumes and its source (the folder, the volume group). The pool
        must be active. Refused if a guest, running or not, has one of the volumes.
    :param force: delete the pool even if guests use its volumes, or if other hosts may use its
        source
    :param test: only show what would change
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary: ``changes`` (``stopped``, ``deleted``, ``undefined``,
        ``deleted_volumes``), ``comment`` (a sentence, and one that lists guests that are off and
        cannot start without the pool)

    :raises InvalidInput: running guests, or with ``purge`` any guests, use its volumes

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.pool_remove images test=True
    """
    purge, force = values.boolean(purge, "purge"), values.boolean(force, "force")
    test = values.flag(test, "test")
    with _connect(kwargs) as conn:
        return pool_state.remove(conn, name, purge, force, test).show(test)


def list_pools(**kwargs):
    """
    List the storage pools, active or not.

    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a sorted list of names

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.list_pools
    """
    with _connect(kwargs) as conn:
        return pools.names(conn)


def pool_info(name=None, **kwargs):
    """
    Show one storage pool, or all pools.

    :param name: name of the pool; None: all pools
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary of names to dictionaries: ``uuid``, ``type``, ``state`` (``running``,
        ``inactive``, ``building``, ``degraded``, ``inaccessible``), ``capacity``, ``allocation``
        and ``free`` (bytes, 0 if it is not active), ``autostart``, ``persistent``, ``pending`` (its
        definition was changed and takes effect at the next start), ``target_path``. A pool that
        cannot be read only has ``error``. If the pool does not exist, the dictionary is empty.

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.pool_info images
    """
    with _connect(kwargs) as conn:
        return pools.infos(conn, name)


def pool_get_xml(name, **kwargs):
    """
    Return the definition of a storage pool.

    :param name: name of the pool
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: libvirt's XML, as a string

    :raises NotFound: the pool does not exist

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.pool_get_xml images
    """
    with _connect(kwargs) as conn:
        return pools.lookup(conn, name).XMLDesc(0)


def pool_start(name, **kwargs):
    """
    Start a storage pool.

    :param name: name of the pool
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True

    :raises NotFound: the pool does not exist
    :raises OperationFailed: libvirt refused, for example because it was never built

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.pool_start images
    """
    with _connect(kwargs) as conn:
        return pools.start(pools.lookup(conn, name))


def pool_build(name, overwrite=False, **kwargs):
    """
    Build the source of a storage pool: folder, volume group, partition table, file system.

    An existing source and an active pool are not changed, so building again is safe.

    :param name: name of the pool
    :param overwrite: for ``disk``, ``fs`` and ``logical``: overwrite the device. All its data is
        lost. A volume group of this name is kept.
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True

    :raises NotFound: the pool does not exist
    :raises OperationFailed: libvirt refused, for example because the device contains other data

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.pool_build images
    """
    overwrite = values.boolean(overwrite, "overwrite")
    with _connect(kwargs) as conn:
        return pools.build(conn, pools.lookup(conn, name), overwrite)


def pool_stop(name, **kwargs):
    """
    Stop a storage pool. Its volumes are kept.

    :param name: name of the pool
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True

    :raises NotFound: the pool does not exist
    :raises OperationFailed: libvirt refused, for example because it is not active

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.pool_stop images
    """
    with _connect(kwargs) as conn:
        return pools.stop(pools.lookup(conn, name))


def pool_undefine(name, **kwargs):
    """
    Undefine an inactive storage pool, and delete the secret that was created for its password.

    Its volumes are kept.

    :param name: name of the pool
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True

    :raises NotFound: the pool does not exist
    :raises OperationFailed: the pool is active

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.pool_undefine images
    """
    with _connect(kwargs) as conn:
        return pools.undefine(conn, pools.lookup(conn, name))


def pool_delete(name, **kwargs):
    """
    Delete the source of an inactive storage pool: its folder, volume group or the like.

    Its definition is kept. A folder that is not empty is not deleted.

    :param name: name of the pool
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True

    :raises NotFound: the pool does not exist
    :raises OperationFailed: the pool is active or not empty

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.pool_delete images
    """
    with _connect(kwargs) as conn:
        return volumes.delete_pool(conn, pools.lookup(conn, name))


def pool_refresh(name, **kwargs):
    """
    Refresh libvirt's list of volumes of an active storage pool.

    :param name: name of the pool
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True

    :raises NotFound: the pool does not exist
    :raises OperationFailed: the pool is not active

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.pool_refresh images
    """
    with _connect(kwargs) as conn:
        return pools.refresh(pools.lookup(conn, name))


def pool_set_autostart(name, state="on", **kwargs):
    """
    Set whether a storage pool starts with the host.

    :param name: name of the pool
    :param state: ``on`` or ``off``
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True

    :raises NotFound: the pool does not exist

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.pool_set_autostart images off
    """
    with _connect(kwargs) as conn:
        return pools.set_autostart(pools.lookup(conn, name), lifecycle.on_off(state))


def pool_list_volumes(name, **kwargs):
    """
    List the volumes of an active storage pool.

    :param name: name of the pool
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a sorted list of names

    :raises NotFound: the pool does not exist
    :raises OperationFailed: the pool is not active

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.pool_list_volumes images
    """
    with _connect(kwargs) as conn:
        return pools.volume_names(pools.lookup(conn, name))
