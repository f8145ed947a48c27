"""
The images that a hypervisor keeps to make guests from.

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
    List the images in this host's cache, and who needs them.

    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: ``{file name: {…}}`` with ``path``, ``source`` (where it came from), ``format``,
        ``size_bytes`` (of the disk in it), ``allocated_bytes`` (on this host), ``sha256``,
        ``fetched`` (UTC) and ``used_by``: the domains, and volumes of no domain, that stand
        on it

    :raises ConnectionFailed: libvirt cannot be reached

    CLI Example:

    .. code-block:: bash

        salt hv1 virt.images
    """
    with _connect(kwargs) as conn:
        return image_users.listed(conn, _folder())


def _wait(text):
    """Tells the log and the master that this host waits."""
    log.info(text)
    if __opts__.get("file_client") != "local":
        job_steps.record_step(job_steps.folder(__salt__["config.get"]))
        __salt__["event.send"]("salt/virt/images/wait", {"message": text})


def image_fetch(source, image_hash=None, saltenv="base", test=False, **kwargs):
    """
    Bring an image into this host's cache, so that the next ``virt.init`` need not wait for it.

    However many ask at once, it is fetched once; what was interrupted goes on where it was. An
    image that is there already in this version is not moved again. A file of this host is
    only looked at: it is used where it lies. The master lets only so many hosts copy at a time
    (``virt:image_copies`` in its configuration, default 4); the others wait for their turn.

    :param source: ``salt://…``, ``http(s)://…``, ``ftp://…``, an absolute path or
        ``pool://POOL/VOLUME``
    :param image_hash: sha256 or sha512 that it must have, or the address of a file that
        lists it, such as ``https://…/SHA256SUMS``
    :param saltenv: where a ``salt://`` address is looked up
    :param test: fetch nothing: the first four of the answer are None where it would be fetched
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict: ``path``, ``format``, ``virtual_size_bytes``, ``sha256`` (None for a file
        of this host), ``source``, ``replaces`` (files of its earlier versions in the cache; None
        for a file of this host)

    :raises InvalidInput: the address or the hash means nothing
    :raises NotFound: there is no such image
    :raises ImageError: it is no disk image, is damaged, is not the demanded one, refers to
        files elsewhere, or could not be fetched

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

    What was fetched or used within the last ten minutes stays. A download that was broken off
    and that nobody has gone on with for a week goes, too (``.partial/…``).

    :param name: file name of the one image to remove, as ``virt.images`` lists it; default:
        all that are not needed
    :param test: remove nothing; ``removed`` is what would be removed
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: ``{"removed": [file names], "kept": {file name: reason}}``

    :raises NotFound: there is no image of that name
    :raises Refused: the named image is needed; the message says by whom

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
    Forget that a folder for guests' disks and images is a mount point on this host.

    This host remembers the file system on which it made a guest's disk or kept an image, other than
    that of ``/``. As long as nothing is mounted there, nothing is made in its folders: it would be
    made on the disk below, and the next mount would hide it. If you moved the folder, or it is to
    stay on that disk, call this once. A mount point in ``/etc/fstab``, or of an enabled unit
    of systemd in ``/etc/systemd/system``, counts as well: remove it there first.

    :param point: the mount point, such as ``/srv/shared``; the message of the verb that was refused
        names it

    :return: True if this host remembered it, else False

    :raises OperationFailed: the record below ``/var/lib/salt-virt/mount-points`` cannot be changed

    CLI Example:

    .. code-block:: bash

        salt hv1 virt.forget_mount /srv/shared
    """
    return mount_guard.forget(values.path(point, "point"))
