"""
Storage pools of a hypervisor.

Every function takes ``connection``, ``username`` and ``password``; what is not given
comes from ``virt:connection:uri`` and ``virt:connection:auth``.

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
    """The PoolSpec in a function's ``locals()``."""
    keys = pool.PoolSpec.keys()
    return pool.parse(**{k: v for k, v in arguments.items() if k in keys})


def pool_capabilities(**kwargs):
    """
    Which types of storage pools this libvirt can have, and which formats.

    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict: ``computed`` (always False: libvirt was asked) and ``pool_types``, a
        list of dicts: ``name``, ``supported``, ``options`` (``pool`` and ``volume``, each
        with ``default_format`` and the possible values)

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
    Create a storage pool. When a step fails, nothing of it is left defined.

    :param name: the pool's name
    :param ptype: ``dir``, ``fs``, ``netfs``, ``logical``, ``disk``, ``iscsi``,
        ``iscsi-direct``, ``scsi``, ``mpath``, ``rbd``, ``gluster``, ``zfs``, ``sheepdog``,
        ``vstorage``; :func:`pool_capabilities` tells which work here
    :param target: the folder where its volumes appear
    :param permissions: of the target: a dict with ``mode`` (octal, as text), ``owner`` and
        ``group`` (numbers), ``label`` (SELinux)
    :param source_devices: a list of devices: paths, or dicts with ``path`` and
        ``part_separator``. For iSCSI the target's qualified name.
    :param source_dir: folder on the server (``netfs``, ``gluster``)
    :param source_initiator: IQN of the initiator (``iscsi-direct``)
    :param source_adapter: SCSI adapter: a dict with ``type``, ``name``, ``parent``,
        ``managed``, ``parent_wwnn``, ``parent_wwpn``, ``parent_fabric_wwn``, ``wwnn``,
        ``wwpn``, ``parent_address`` (``unique_id`` and ``address``)
    :param source_hosts: a list of servers, each ``name`` or ``name:port``
    :param source_auth: a dict: ``username``, and either ``password`` (a libvirt secret is
        made of it; Ceph's in base64) or ``secret`` (``type``: ``uuid`` or ``usage``, and
        ``value``); ``type``: ``ceph`` or ``chap``
    :param source_name: name of the volume group, Ceph pool, Gluster volume, …
    :param source_format: format of the source, e.g. ``xfs``, ``nfs``, ``lvm2``, ``gpt``
    :param transient: it runs now, and is forgotten when it is stopped
    :param start: start it now
    :param build: first make what is missing, as :func:`pool_build` does
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True

    :raises InvalidInput: something is wrong or missing for a pool of this type
    :raises AlreadyExists: a pool of this name is there

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
    Change a storage pool to what is given, where it differs.

    The parameters are those of :func:`pool_define`. Its UUID stays, and permissions and
    format where none are given. A pool that runs keeps its old definition until it is
    stopped and started: until then ``virt.pool_info`` has it as ``pending``. A password is
    stored each time, as libvirt does not tell whether it is another.

    :param name: the pool's name
    :param ptype: see :func:`pool_define`
    :param test: only tell whether it would change
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True when it was changed (with ``test``: would be), False when it is so already

    :raises NotFound: no such pool
    :raises InvalidInput: something is wrong or missing for a pool of this type

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
    Bring a storage pool to what is given, in one step: made and built where it is missing, changed
    where it differs, started. When a step fails, a pool that ran runs with what it had.

    The states ``virt.pool_defined`` and ``virt.pool_running`` are this function.

    :param name: of the pool
    :param ptype: see :func:`pool_define`. Without it and the three that follow the pool must be
        there, and its definition stays as it is.
    :param target: the folder where its volumes appear
    :param permissions: of the target: see :func:`pool_define`
    :param source: a dict of the ``source_…`` arguments of :func:`pool_define`, without ``source_``
    :param transient: it runs, and is forgotten when it is stopped
    :param autostart: whether it is started with the host
    :param running: True: it runs afterwards. None: it runs, or not, as before
    :param restart: start it again for what it has only from its next start, although running guests
        have volumes of it open
    :param test: only tell what would change
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict: ``changes`` (what differs to ``old`` and ``new``; no password), ``comment`` (a
        sentence)

    :raises InvalidInput: something is wrong or missing for a pool of this type

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
    Stop a storage pool and remove its definition, where there is one. Its volumes stay, unless
    ``purge``. The state ``virt.pool_deleted`` is this function.

    :param name: of the pool
    :param purge: delete its volumes and what it is made of (the folder, the volume group), too. The
        pool must run.
    :param force: also when guests use its volumes, or other hosts may have what it is made of
    :param test: only tell what would change
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict: ``changes`` (``stopped``, ``deleted``, ``undefined``, ``deleted_volumes``),
        ``comment`` (a sentence, and one that names the guests that are off and cannot be started
        without it)

    :raises InvalidInput: guests have volumes of it: those that run, with ``purge`` any

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
    The storage pools, running or not.

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
    What is known of one storage pool, or of all.

    :param name: the pool's name; None for all
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict of name to a dict: ``uuid``, ``type``, ``state`` (``running``,
        ``inactive``, ``building``, ``degraded``, ``inaccessible``), ``capacity``,
        ``allocation`` and ``free`` (bytes, 0 while it does not run), ``autostart``,
        ``persistent``, ``pending`` (its definition was changed and holds from the next
        start), ``target_path``. A pool that cannot be read has only ``error``. No such
        pool: an empty dict.

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.pool_info images
    """
    with _connect(kwargs) as conn:
        return pools.infos(conn, name)


def pool_get_xml(name, **kwargs):
    """
    The definition of a storage pool.

    :param name: the pool's name
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: libvirt's XML, as a string

    :raises NotFound: no such pool

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.pool_get_xml images
    """
    with _connect(kwargs) as conn:
        return pools.lookup(conn, name).XMLDesc(0)


def pool_start(name, **kwargs):
    """
    Start a storage pool.

    :param name: the pool's name
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True

    :raises NotFound: no such pool
    :raises OperationFailed: libvirt could not, e.g. as it was never built

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.pool_start images
    """
    with _connect(kwargs) as conn:
        return pools.start(pools.lookup(conn, name))


def pool_build(name, overwrite=False, **kwargs):
    """
    Make what a storage pool needs: folder, volume group, partition table, file system.

    What is there already stays as it is, and so does a pool that runs: building again does
    no harm.

    :param name: the pool's name
    :param overwrite: for ``disk``, ``fs`` and ``logical``: write over what is on the
        device. All that is on it is lost. A volume group of this name stays.
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True

    :raises NotFound: no such pool
    :raises OperationFailed: libvirt could not, e.g. as something else is on the device

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.pool_build images
    """
    overwrite = values.boolean(overwrite, "overwrite")
    with _connect(kwargs) as conn:
        return pools.build(conn, pools.lookup(conn, name), overwrite)


def pool_stop(name, **kwargs):
    """
    Stop a storage pool. What it holds stays.

    :param name: the pool's name
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True

    :raises NotFound: no such pool
    :raises OperationFailed: libvirt could not, e.g. as it does not run

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.pool_stop images
    """
    with _connect(kwargs) as conn:
        return pools.stop(pools.lookup(conn, name))


def pool_undefine(name, **kwargs):
    """
    Remove the definition of a stopped storage pool, and the secret made for its password.

    What it holds stays.

    :param name: the pool's name
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True

    :raises NotFound: no such pool
    :raises OperationFailed: it runs

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.pool_undefine images
    """
    with _connect(kwargs) as conn:
        return pools.undefine(conn, pools.lookup(conn, name))


def pool_delete(name, **kwargs):
    """
    Delete what a stopped storage pool is made of: its folder, volume group, …

    Its definition stays. A folder that is not empty is not deleted.

    :param name: the pool's name
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True

    :raises NotFound: no such pool
    :raises OperationFailed: it runs, or is not empty

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.pool_delete images
    """
    with _connect(kwargs) as conn:
        return volumes.delete_pool(conn, pools.lookup(conn, name))


def pool_refresh(name, **kwargs):
    """
    Have libvirt look again at which volumes a running storage pool holds.

    :param name: the pool's name
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True

    :raises NotFound: no such pool
    :raises OperationFailed: it does not run

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.pool_refresh images
    """
    with _connect(kwargs) as conn:
        return pools.refresh(pools.lookup(conn, name))


def pool_set_autostart(name, state="on", **kwargs):
    """
    Have a storage pool start with the host, or not.

    :param name: the pool's name
    :param state: ``on`` or ``off``
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True

    :raises NotFound: no such pool

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.pool_set_autostart images off
    """
    with _connect(kwargs) as conn:
        return pools.set_autostart(pools.lookup(conn, name), lifecycle.on_off(state))


def pool_list_volumes(name, **kwargs):
    """
    The volumes in a running storage pool.

    :param name: the pool's name
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a sorted list of names

    :raises NotFound: no such pool
    :raises OperationFailed: it does not run

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.pool_list_volumes images
    """
    with _connect(kwargs) as conn:
        return pools.volume_names(pools.lookup(conn, name))
