"""
Manage the storage pools of a hypervisor, their volumes, and the image cache.

Every function accepts ``connection``, ``username`` and ``password``; the defaults are
``virt:connection:uri`` and ``virt:connection:auth``.

:depends: libvirt-python in Salt's own Python; qemu-img for the image cache
"""

import logging
from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt import settings, units
    from saltvirt.fleet.minion import client, files
    from saltvirt.host import connection
    from saltvirt.host.capabilities import pool_caps
    from saltvirt.host.domain import lifecycle, lookup
    from saltvirt.host.node import job_steps
    from saltvirt.host.provision import image_location, images_folder
    from saltvirt.host.storage import image_users, pool_state, pools, upload, volume_state, volumes
    from saltvirt.images import cache, download_slot, sources
    from saltvirt.spec import pool, values, volume
    from saltvirt.states import pools as desired_pools
    from saltvirt.states import volumes as desired_volumes
    from saltvirt.system import mount_guard

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__virtualname__ = "virt"
__outputter__ = saltvirt.OUTPUTTERS

log = logging.getLogger(__name__)


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
    source_protocol_ver=None,
    source_mount_opts=None,
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
    :param source_protocol_ver: version of the NFS protocol, for example ``4.2`` (``netfs``)
    :param source_mount_opts: list of options of mount, for example ``['noatime']`` (``netfs``,
        ``fs``)
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
    source_protocol_ver=None,
    source_mount_opts=None,
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


def volume_infos(pool=None, volume=None, **kwargs):
    """
    Show one volume, the volumes of a pool, or all volumes in active pools.

    :param pool: name of the pool; None: all pools
    :param volume: name of the volume; None: all volumes
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary of pool names to dictionaries of volume names to dictionaries: ``type``,
        ``format``, ``key``, ``path``, ``capacity`` and ``allocation`` (bytes), ``backing_store``
        (None, or ``path`` and ``format`` of the backing image), ``used_by`` (guests that use it as
        a disk or as a backing image). A pool or volume that cannot be read only has ``error``. If
        nothing matches, the dictionary is empty.

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.volume_infos images
    """
    with _connect(kwargs) as conn:
        return volumes.infos(conn, pool, volume)


def volume_define(
    pool,
    name,
    size,
    allocation=0,
    format=None,
    type=None,
    permissions=None,
    backing_store=None,
    nocow=False,
    **kwargs,
):
    """
    Create a volume.

    :param pool: name of the pool, which must be active
    :param name: name of the volume
    :param size: capacity, in MiB or with a unit (``20G``)
    :param allocation: initial allocation, in MiB or with a unit; in logical pools always
        everything, unless the volume has a backing store
    :param format: for example ``raw`` or ``qcow2``; :func:`pool_capabilities` lists the formats
    :param type: ``file``, ``block``, ``dir``, ``network``, ``netdir``, ``ploop``; None: the pool's
        default
    :param permissions: dictionary with ``mode`` (octal, as text), ``owner`` and ``group``
        (numbers), ``label`` (SELinux)
    :param backing_store: backing image: dictionary with ``path`` and ``format``. The format is
        never guessed.
    :param nocow: disable copy-on-write of the file system (btrfs)
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True

    :raises NotFound: the pool does not exist
    :raises AlreadyExists: a volume of this name exists
    :raises InvalidInput: an argument is invalid
    :raises ImageError: ``backing_store`` is not an image, or is itself based on a file in another
        folder that no guest of this host declares

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.volume_define images web1.qcow2 8192 format=qcow2 \\
            backing_store="{path: /srv/images/base.qcow2, format: qcow2}"
    """
    options = {"allocation": allocation, "format": format, "type": type, "nocow": nocow}
    options |= {"permissions": permissions, "backing_store": backing_store}
    spec = volume.parse(name, size, **options)
    with _connect(kwargs) as conn:
        return volumes.define(conn, pool, spec)


def volume_converge(
    pool,
    name,
    size,
    allocation=0,
    format=None,
    type=None,
    permissions=None,
    backing_store=None,
    nocow=False,
    shrink=False,
    test=False,
    **kwargs,
):
    """
    Create a volume in a storage pool, or grow an existing one. Its content is not changed. The
    state ``virt.volume_defined`` uses this function.

    :param pool: name of the pool, which must be active
    :param name: name of the volume
    :param size: capacity in MiB, or with a unit (``20G``). The volume is not resized while a
        running guest has it open; the state then fails.
    :param allocation: initial allocation of a new volume, in MiB or with a unit
    :param format: as for :func:`volume_define`, like the following parameters; the format of an
        existing volume cannot be changed
    :param type: ``file``, ``block`` and others
    :param permissions: ``mode``, ``owner``, ``group``, ``label``
    :param backing_store: dictionary with ``path`` and ``format``
    :param nocow: create a new volume without copy-on-write of the file system (btrfs)
    :param shrink: allow shrinking. Data beyond the new end is lost. Refused for a volume that
        others need, as for :func:`volume_upload`
    :param test: only show what would change
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary: ``changes`` (setting to ``old`` and ``new``), ``comment`` (a sentence)

    :raises NotFound: the pool does not exist; with ``test``, the comment says so
    :raises OperationFailed: the existing volume cannot be changed accordingly
    :raises Refused: the volume would be resized, and is the disk of a guest with saved memory

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' virt.volume_converge images data.raw 20G test=True
    """
    options = {"allocation": allocation, "format": format, "type": type, "nocow": nocow}
    options |= {"permissions": permissions, "backing_store": backing_store}
    desired = desired_volumes.DesiredVolume(
        str(pool), volume.parse(name, size, **options), values.boolean(shrink, "shrink")
    )
    test = values.boolean(test or False, "test")
    with _connect(kwargs) as conn:
        return volume_state.converge(conn, desired, test).show(test)


def volume_remove(pool, volume, force=False, test=False, **kwargs):
    """
    Delete a volume if it exists. Its data is deleted. The state ``virt.volume_absent`` uses this
    function.

    :param pool: name of the pool; if the pool does not exist, neither does the volume
    :param volume: name of the volume
    :param force: delete the volume even if a guest uses it as a disk, or if a disk or volume is
        based on it
    :param test: only show what would change
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary: ``changes`` (setting to ``old`` and ``new``), ``comment`` (a sentence)

    :raises InvalidInput: the volume is used; the message lists its users

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' virt.volume_remove images web1.qcow2 test=True
    """
    force, test = values.boolean(force, "force"), values.boolean(test or False, "test")
    with _connect(kwargs) as conn:
        return volume_state.remove(conn, pool, volume, force, test).show(test)


def volume_delete(pool, volume, force=False, **kwargs):
    """
    Delete a volume with its data.

    :param pool: name of the pool
    :param volume: name of the volume
    :param force: delete it even if a guest uses it as a disk or as a backing image
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True

    :raises NotFound: the pool or volume does not exist
    :raises InvalidInput: a guest uses it

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' virt.volume_delete images web1.qcow2
    """
    force = values.boolean(force, "force")
    with _connect(kwargs) as conn:
        return volumes.delete(conn, pool, volume, force)


def volume_upload(pool, volume, file, offset=0, length=0, sparse=False, force=False, **kwargs):
    """
    Write a file of this hypervisor to a volume.

    Refused before anything is written if the file does not fit into a raw volume, if a running
    guest has the volume open, if a guest or another image is based on it, or if another process
    uses it. If other hosts may have the volume, ``force`` is required.

    :param pool: name of the pool
    :param volume: name of the volume
    :param file: path of the file
    :param offset: offset in the volume, in bytes
    :param length: number of bytes to write; 0: the complete file
    :param sparse: preserve holes of the file
    :param force: write even if other hosts may have the volume, for example in a pool on a server
        or on shared LVM. The guests of these hosts are not checked: make sure that none of them
        uses it
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True

    :raises NotFound: the pool or volume does not exist
    :raises InvalidInput: the file cannot be read or does not fit, the volume is needed, or other
        hosts may have it

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' virt.volume_upload images web1.raw /srv/images/debian.raw sparse=True
    """
    number, force = values.number(0, 2**63 - 1), values.boolean(force, "force")
    part = upload.UploadRange(number(offset, "offset"), number(length, "length"))
    sparse = values.boolean(sparse or False, "sparse")
    with _connect(kwargs) as conn:
        return upload.upload(conn, pool, volume, file, part, sparse, force)


def volume_resize(pool, volume, size, shrink=False, force=False, **kwargs):
    """
    Resize a volume. For the disk of a running guest, use ``virt.resize_disk``.

    :param pool: name of the pool
    :param volume: name of the volume
    :param size: new capacity, in MiB or with a unit (``20G``)
    :param shrink: allow shrinking. Data beyond the new end is lost.
    :param force: shrink it even if other hosts may use it, as for :func:`volume_upload`
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True

    :raises NotFound: the pool or volume does not exist
    :raises InvalidInput: the volume would shrink, or a running guest has it open
    :raises Refused: the volume is the disk of a guest with saved memory
    :raises ImageError: its content refers to another file, as for :func:`volume_clone`

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' virt.volume_resize images web1.qcow2 20G
    """
    size_bytes, shrink = units.parse_bytes(size), values.boolean(shrink, "shrink")
    force = values.boolean(force, "force")
    with _connect(kwargs) as conn:
        return volumes.resize(conn, pool, volume, size_bytes, shrink, force)


def volume_clone(pool, volume, name, target_pool=None, **kwargs):
    """
    Clone a volume with its data.

    :param pool: name of the pool
    :param volume: name of the volume
    :param name: name of the clone
    :param target_pool: pool of the clone; default: the same
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True

    :raises NotFound: the pool or volume does not exist
    :raises AlreadyExists: a volume of the new name exists
    :raises InvalidInput: a running guest has it open
    :raises ImageError: its content refers to another file, and no guest of this host declares that
        format, so a guest may have written it to a raw disk; or the pool does not have enough space
        for the clone

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' virt.volume_clone images base.qcow2 web1.qcow2
    """
    with _connect(kwargs) as conn:
        return volumes.clone(conn, pool, volume, name, target_pool)


def define_vol_xml_str(xml, pool=None, **kwargs):
    """
    Create a volume from libvirt's XML.

    :param xml: a ``<volume>`` document, as text
    :param pool: name of the pool; default: ``virt:storagepool`` of the configuration, else
        ``default``
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True

    :raises NotFound: the pool does not exist
    :raises InvalidInput: the XML is invalid

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' virt.define_vol_xml_str "<volume>...</volume>" pool=images
    """
    pool = pool or settings.text(__salt__["config.get"], "storagepool", "default")
    with _connect(kwargs) as conn:
        return volumes.define_xml(conn, pool, xml)


def define_vol_xml_path(path, pool=None, **kwargs):
    """
    Create a volume from a file with libvirt's XML.

    :param path: path of the file on this hypervisor
    :param pool: name of the pool; default: ``virt:storagepool`` of the configuration, else
        ``default``
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True

    :raises NotFound: the pool does not exist
    :raises InvalidInput: the file cannot be read, or its XML is invalid

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' virt.define_vol_xml_path /srv/volume.xml pool=images
    """
    return define_vol_xml_str(lookup.from_file(path), pool, **kwargs)


def _folder():
    return images_folder.configured(__salt__["config.get"]).folder


def images(**kwargs):
    """
    List the images in this host's cache, with their users.

    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: ``{file name: {…}}`` with ``path``, ``source``, ``format``, ``size_bytes`` (virtual
        size), ``allocated_bytes`` (on this host), ``sha256``, ``fetched`` (UTC) and ``used_by``:
        domains, and volumes without domain, that are based on it

    :raises ConnectionFailed: libvirt cannot be reached

    CLI Example:

    .. code-block:: bash

        salt hv1 virt.images
    """
    with _connect(kwargs) as conn:
        return image_users.listed(conn, _folder())


def _wait(text):
    """Report to the log and to the master that this host waits."""
    log.info(text)
    if __opts__.get("file_client") != "local":
        job_steps.record_step(job_steps.folder(__salt__["config.get"]))
        __salt__["event.send"]("salt/virt/images/wait", {"message": text})


def image_fetch(source, image_hash=None, saltenv="base", test=False, cdrom=False, **kwargs):
    """
    Fetch an image into this host's cache, so that the next ``virt.init`` need not wait for it.

    Concurrent calls fetch it only once, and an interrupted download is continued. An image that is
    already in the cache in this version is not transferred again. A file of this host is only
    inspected, and used from its location. The master limits the number of hosts that copy at the
    same time (``virt:image_copies``, default 4); other hosts wait.

    :param source: ``salt://…``, ``http(s)://…``, ``ftp://…``, an absolute path or
        ``pool://POOL/VOLUME``
    :param image_hash: expected sha256 or sha512, or the URL of a file that lists it, such as
        ``https://…/SHA256SUMS``
    :param saltenv: environment of a ``salt://`` image
    :param test: fetch nothing; the first four values of the answer are None if it would be fetched
    :param cdrom: it is for a CD drive, so that a CD image is allowed
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary: ``path``, ``format``, ``virtual_size_bytes``, ``sha256`` (None for a file
        of this host), ``source``, ``replaces`` (files of earlier versions in the cache; None for a
        file of this host)

    :raises InvalidInput: the source or the hash is invalid
    :raises NotFound: the image does not exist
    :raises ImageError: it is not a disk image, is damaged, has another hash, refers to files
        elsewhere, or could not be fetched

    CLI Example:

    .. code-block:: bash

        salt -b 4 'hv*' virt.image_fetch salt://debian.qcow2
        salt hv1 virt.image_fetch https://cloud.example.org/d.qcow2 https://cloud.example.org/SHA256SUMS
    """
    connect_args = settings.connection(__salt__["config.get"], kwargs)
    turn = download_slot.slot_factory(client.virtkey(__salt__), _wait)
    download = sources.SaltFiles(__salt__, saltenv, files.Chunks(__opts__).read, turn)
    location = None
    if sources.kind(source) == sources.POOL:
        with connection.connect(connect_args) as conn:
            location = image_location.find(conn, source)
    folder, replaces = _folder(), None
    if sources.kind(source) in (sources.SALT, sources.WEB):
        cached_images = cache.cached_images(folder)
        replaces = [
            cached.file for cached in cached_images if cached.source == sources.shown(source)
        ]
    find = cache.find_local if test else cache.fetch
    is_cdrom = values.boolean(cdrom, "cdrom")
    image = find(source, folder, download, image_hash, local_file=location, cdrom=is_cdrom)
    properties = ("path", "format", "virtual_size_bytes", "sha256")
    current = str(getattr(image, "path", None)).rpartition("/")[2]
    return {
        **{word: getattr(image, word, None) for word in properties},
        "source": sources.shown(source),
        "replaces": replaces and [file for file in replaces if file != current],
    }


def image_prune(name=None, test=False, **kwargs):
    """
    Remove images from this host's cache that no domain and no volume of this host needs.

    Images that were fetched or used within the last ten minutes are kept. Interrupted downloads
    that were not continued for a week are removed, too (``.partial/…``).

    :param name: file name of the image to remove, as listed by ``virt.images``; default: all unused
        images
    :param test: remove nothing; ``removed`` lists what would be removed
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: ``{"removed": [file names], "retained": {file name: reason}}``

    :raises NotFound: the image does not exist
    :raises Refused: the image is needed; the message lists its users

    CLI Example:

    .. code-block:: bash

        salt 'hv*' virt.image_prune test=True
        salt 'hv*' virt.image_prune
        salt hv1 virt.image_prune debian-0123456789abcdef.qcow2
    """
    with _connect(kwargs) as conn:
        return image_users.prune(conn, _folder(), name, test=values.boolean(test, "test"))


def forget_mount(point):
    """
    Forget that a folder of disks and images is a mount point on this host.

    This host records file systems other than ``/`` on which it created disks or stored images.
    While such a file system is not mounted, nothing is created in its folders: it would be created
    on the disk below, and the next mount would hide it. If you moved the folder, or if it is to
    stay on that disk, call this function once. A mount point in ``/etc/fstab``, or of an enabled
    systemd unit in ``/etc/systemd/system``, counts as well: remove it there first.

    :param point: the mount point, such as ``/srv/shared``, as in the error message

    :return: True if this host had recorded it, otherwise False

    :raises OperationFailed: the record below ``/var/lib/salt-virt/mount-points`` cannot be changed

    CLI Example:

    .. code-block:: bash

        salt hv1 virt.forget_mount /srv/shared
    """
    return mount_guard.forget(values.path(point, "point"))
