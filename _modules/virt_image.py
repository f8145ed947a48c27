"""
Manage the image cache of a hypervisor.

:depends: libvirt-python in Salt's own Python; qemu-img
"""

import logging
from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()
with saltvirt.later():
    from saltvirt import settings
    from saltvirt.fleet.minion import client, files
    from saltvirt.host import connection
    from saltvirt.host.node import job_steps
    from saltvirt.host.provision import image_location, images_folder
    from saltvirt.host.storage import image_users, mount_guard
    from saltvirt.images import cache, download_slot, sources
    from saltvirt.spec import values

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__virtualname__ = "virt"
log = logging.getLogger(__name__)


def __virtual__():
    return __virtualname__


def _connect(kwargs):
    return connection.connect(settings.connection(__salt__["config.get"], kwargs))


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


def image_fetch(source, image_hash=None, saltenv="base", test=False, **kwargs):
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
    image = find(source, folder, download, image_hash, local_file=location)
    properties = ("path", "format", "virtual_size_bytes", "sha256")
    return {
        **{word: getattr(image, word, None) for word in properties},
        "source": sources.shown(source),
        "replaces": replaces,
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

    :return: ``{"removed": [file names], "kept": {file name: reason}}``

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
