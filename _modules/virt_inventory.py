"""
What the runner's placement asks of a hypervisor.

:depends: libvirt-python in Salt's own Python
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt import errors, settings
    from saltvirt.host import connection
    from saltvirt.host.domain import names_on_disk as on_disk  # the name is a function's here
    from saltvirt.host.node import inventory as host_inventory
    from saltvirt.host.node import maintenance as mark
    from saltvirt.host.node import running_guests
    from saltvirt.host.provision import admission, guest_builder, images_folder, requirements
    from saltvirt.spec import base, guest, profiles, values

if TYPE_CHECKING:
    from salt_dunders import __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def _requirements(conn, config_get, images_location, arguments):
    """What the guest of these arguments would take of this host, or the problem with it."""
    try:
        arguments = base.mapping(arguments, "guest")
        if "name" not in arguments or not all(isinstance(word, str) for word in arguments):
            raise errors.InvalidInput("guest must be arguments of virt.init, name among them")
        spec = guest.parse(**arguments, known_profiles=profiles.read(config_get))
        admission_config = admission.AdmissionConfig(
            config_get, images_location.folder, images_location.pool
        )
        # nothing is seeded: what matters is that it could be
        not_yet = guest_builder.refuse_seeding
        medium = not_yet if spec.deploy.cloud_init else None
        tools = guest_builder.Tools(admission_config, seeder=not_yet, medium=medium)
        return requirements.read(conn, spec, tools).to_answer()
    except errors.VirtError as exc:
        return {"problem": exc.text.removeprefix(errors.Refused.PREFIX)}


def inventory(guest=None, **kwargs):
    """
    The host's size, its guests' sizes, and what a guest may need of it.

    One round of bulk reads; no guest's disk is opened.

    :param guest: dictionary of arguments of ``virt.init``: also tell what that guest would
        take of this host, by the host's own profiles; nothing is changed
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict: ``cpus`` (threads), ``memory_kib``, ``arch``, ``types`` (libvirt's domain
        types), ``arches`` (of guests it can run), ``hugepages`` (size in KiB to how many KiB of
        the memory), ``hugepage_kib`` (their usual size), ``guests`` (name to ``uuid``,
        ``state``, ``vcpus``, ``memory_kib``, ``autostart``, and where they have them
        ``max_memory_kib``, ``page_kib`` (of huge pages), ``creating``, ``groups``,
        ``group_policy``, ``labels``, ``prefer``, ``deployment``, ``bridges``, ``networks``,
        ``cpu_model``, ``disks`` (``size_bytes``, ``path`` or ``pool``, ``shared``)), ``arriving``
        (the same of guests that are being moved here), ``stores`` (id of a file system to
        ``total_bytes``, ``free_bytes``, ``promised_bytes``: what thin disks may still grow,
        ``shared``: its name for all hosts that reach it), ``mounts`` (mount point to the id),
        ``images_folder`` (``path``, ``store``, its sizes), ``images`` (addresses of the cached
        ones), ``bridges``, ``networks``, ``pools`` (active ones, with ``store`` and sizes),
        ``labels``, ``ratios``, ``placement`` (its own ``virt:placement``), ``maintenance`` (the
        reason, or None),
        ``libvirt`` (version as libvirt's number), ``silent`` (where a file system is mounted that
        does not answer: of what is on it nothing is told); of a guest that was asked about, under
        ``guest``: ``vcpus``, ``memory_kib``, ``max_memory_kib``, ``page_kib``, ``disk_bytes``
        (in the images folder), ``disks`` (in others), ``pools`` (name to bytes), ``bridges``,
        ``networks``,
        ``cpu_model``, ``cpu_models`` (those this host can give), ``image_here``; or ``problem``

    :raises ConnectionFailed: no libvirt answers

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.inventory
    """
    config_get = __salt__["config.get"]
    images_location = images_folder.configured(config_get)
    with connection.connect(settings.connection(config_get, kwargs)) as conn:
        answer = host_inventory.read(conn, config_get, images_location.folder).to_answer()
        if guest:
            answer["guest"] = _requirements(conn, config_get, images_location, guest)
        return answer


def names_on_disk(**kwargs):
    """
    The names of all guests that are defined or run here, by libvirt's own files.

    For the question whether a name is free, when libvirt does not answer. libvirt is not asked.

    :param connection: libvirt URI, overriding ``virt:connection:uri``
    :param username: not used
    :param password: not used

    :return: a sorted list of names

    :raises Unsupported: libvirt keeps them elsewhere, as the URI says

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.names_on_disk
    """
    return on_disk.read(settings.connection(__salt__["config.get"], kwargs).uri)


def running_names():
    """
    The guests whose process lives, by libvirt's files alone: for when its daemon is stopped, or
    is not there any more. ``virt.list_active_vms`` asks the daemon.

    :return: a sorted list of names

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.running_names
    """
    return running_guests.names()


def maintenance(reason=None, guests=None, off=False):
    """
    Read, set or clear the mark that keeps new guests away from this host.

    :param reason: sets the mark, with these words for who asks why
    :param guests: list of the names that were moved away, for ``virt.restore`` of the runner;
        default with ``reason``: those that the mark has
    :param off: clears the mark; with ``guests`` the host takes guests again and keeps their names

    :return: the mark as it is now: a dict of ``reason`` (None when it takes guests) and
        ``guests``, or None

    :raises InvalidInput: the reason is empty, or the guests are no list of names

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.maintenance 'new disks'
        salt hyper1 virt.maintenance off=True
    """
    off = values.flag(off, "off")
    if reason is None and not off:
        return _mark()
    reason_text = "" if isinstance(reason, (bytes, dict, list, tuple, set)) else str(reason)
    if not off and not reason_text.strip():
        raise errors.InvalidInput("reason is missing: say why the host gets no guests")
    if guests and not (isinstance(guests, (list, tuple)) and {*map(type, guests)} == {str}):
        raise errors.InvalidInput("guests must be a list of names")
    # an init that was let in before is defined by then, one that asks later is refused
    with admission.AdmissionConfig(__salt__["config.get"], settings.IMAGES_FOLDER).lock():
        if off and not guests:
            mark.clear()
        else:
            existing = mark.read()
            guest_names = existing.guests if existing and guests is None else guests or ()
            mark.write(None if off else reason_text, guest_names)
        return _mark()


def _mark():
    maintenance_mark = mark.read()
    return maintenance_mark.to_answer() if maintenance_mark else None
