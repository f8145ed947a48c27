"""
Manage the volumes in the storage pools of a hypervisor.

Every function accepts ``connection``, ``username`` and ``password``; the defaults are
``virt:connection:uri`` and ``virt:connection:auth``.

:depends: libvirt-python in Salt's own Python
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt import settings, units
    from saltvirt.host import connection
    from saltvirt.host.domain import lookup
    from saltvirt.host.storage import upload, volume_state, volumes
    from saltvirt.spec import values, volume
    from saltvirt.states import volumes as desired_volumes

if TYPE_CHECKING:
    from salt_dunders import __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def _connect(kwargs):
    return connection.connect(settings.connection(__salt__["config.get"], kwargs))


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

    :raises NotFound: the pool does not exist
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
    Ensure that a volume does not exist. Its data is deleted.

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
