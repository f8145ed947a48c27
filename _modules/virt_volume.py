"""
Volumes in the storage pools of a hypervisor.

Every function takes ``connection``, ``username`` and ``password``; what is not given
comes from ``virt:connection:uri`` and ``virt:connection:auth``.

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
    What is known of volumes: of one, of those in a pool, or of all in pools that run.

    :param pool: the pool's name; None for all
    :param volume: the volume's name; None for all
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict of pool name to a dict of volume name to a dict: ``type``, ``format``,
        ``key``, ``path``, ``capacity`` and ``allocation`` (bytes), ``backing_store`` (None,
        or ``path`` and ``format`` of what it is based on), ``used_by`` (guests with it as a
        disk, or as what a disk is based on). A pool or volume that cannot be read has only
        ``error``. Nothing of that name: an empty dict.

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

    :param pool: name of the pool to create it in, which must run
    :param name: the volume's name
    :param size: its capacity, in MiB or with a unit (``20G``)
    :param allocation: what is taken of it at once, in MiB or with a unit; in logical pools
        always all, unless it has a backing store
    :param format: e.g. ``raw`` or ``qcow2``; :func:`pool_capabilities` tells which there are
    :param type: ``file``, ``block``, ``dir``, ``network``, ``netdir``, ``ploop``; None for
        the pool's own
    :param permissions: a dict with ``mode`` (octal, as text), ``owner`` and ``group``
        (numbers), ``label`` (SELinux)
    :param backing_store: what it is based on: a dict with ``path`` and ``format``. The
        format is never guessed.
    :param nocow: no copy-on-write by the file system (btrfs)
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True

    :raises NotFound: no such pool
    :raises AlreadyExists: a volume of this name is there
    :raises InvalidInput: something is wrong
    :raises ImageError: ``backing_store`` is no image, or stands itself on a file in another folder
        that no guest of this host declares

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
    Have a volume in a storage pool: made where it is missing, else grown to the size. Nothing that
    is in it is touched. The state ``virt.volume_defined`` is this function.

    :param pool: name of the pool, which must run
    :param name: the volume's name
    :param size: its capacity, in MiB or with a unit (``20G``). Another size is refused while a
        running guest has the volume open.
    :param allocation: what is taken of a new volume at once, in MiB or with a unit
    :param format: as for :func:`volume_define`, like the following; that of a volume which is there
        cannot be changed
    :param type: ``file``, ``block``, …
    :param permissions: ``mode``, ``owner``, ``group``, ``label``
    :param backing_store: a dict with ``path`` and ``format``
    :param nocow: make a new volume without copy-on-write by the file system (btrfs)
    :param shrink: allow it to become smaller. What is beyond the new end is lost; not of one that
        others need, as for :func:`volume_upload`
    :param test: only tell what would change
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict: ``changes`` (what differs to ``old`` and ``new``), ``comment`` (a sentence)

    :raises NotFound: no such pool
    :raises OperationFailed: the volume that is there cannot be brought to it
    :raises Refused: it would be resized, and is the disk of a guest that has saved memory

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
    Delete a volume where there is one, with all that is in it. The state ``virt.volume_absent`` is
    this function.

    :param pool: the pool's name. Where there is no such pool, there is no such volume.
    :param volume: the volume's name
    :param force: also when a guest has it as a disk, or a disk or volume is based on it
    :param test: only tell what would change
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict: ``changes`` (what differs to ``old`` and ``new``), ``comment`` (a sentence)

    :raises InvalidInput: it is used; the message says by whom

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' virt.volume_remove images web1.qcow2 test=True
    """
    force, test = values.boolean(force, "force"), values.boolean(test or False, "test")
    with _connect(kwargs) as conn:
        return volume_state.remove(conn, pool, volume, force, test).show(test)


def volume_delete(pool, volume, force=False, **kwargs):
    """
    Delete a volume, with all that is in it.

    :param pool: the pool's name
    :param volume: the volume's name
    :param force: delete it although a guest has it as a disk, or as what a disk is based on
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True

    :raises NotFound: no such pool or volume
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
    Write a file of this hypervisor into a volume.

    A file that does not fit into a raw volume is refused before anything is written, and so
    is a volume that a running guest has open, on which a guest or another image is based, or that
    somebody else has in use. So is one that other hosts may have, unless ``force`` is set.

    :param pool: the pool's name
    :param volume: the volume's name
    :param file: path of the file
    :param offset: where in the volume to begin, in bytes
    :param length: how much of the file, in bytes; 0 for all
    :param sparse: leave holes of the file as holes
    :param force: also if other hosts may have the volume, as in a pool on a server or on shared
        LVM: their guests are not asked, so make sure that none of them uses it
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True

    :raises NotFound: no such pool or volume
    :raises InvalidInput: the file cannot be read, or does not fit; the volume is needed, or other
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
    Give a volume another size. For the disk of a running guest: ``virt.resize_disk``.

    :param pool: the pool's name
    :param volume: the volume's name
    :param size: its new capacity, in MiB or with a unit (``20G``)
    :param shrink: allow it to become smaller. What is beyond the new end is lost.
    :param force: shrink it also if other hosts may have it, as for :func:`volume_upload`
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True

    :raises NotFound: no such pool or volume
    :raises InvalidInput: it would shrink, or a running guest has it open
    :raises Refused: it is the disk of a guest that is off and has saved memory
    :raises ImageError: its content names another file, as for :func:`volume_clone`

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
    Copy a volume with its data.

    :param pool: the pool's name
    :param volume: the volume's name
    :param name: the copy's name
    :param target_pool: the pool to make the copy in; default the same
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True

    :raises NotFound: no such pool or volume
    :raises AlreadyExists: a volume of the copy's name is there
    :raises InvalidInput: a running guest has it open
    :raises ImageError: its content names another file, and no guest of this host declares that
        format: a guest may have written it to a raw disk; or the pool has no room for the copy

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
    :param pool: name of the pool to create it in; default ``virt:storagepool`` of the
        configuration, else ``default``
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True

    :raises NotFound: no such pool
    :raises InvalidInput: the XML is wrong

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

    :param path: the file on this hypervisor
    :param pool: name of the pool to create it in; default ``virt:storagepool`` of the
        configuration, else ``default``
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True

    :raises NotFound: no such pool
    :raises InvalidInput: the file cannot be read, or its XML is wrong

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' virt.define_vol_xml_path /srv/volume.xml pool=images
    """
    return define_vol_xml_str(lookup.from_file(path), pool, **kwargs)
