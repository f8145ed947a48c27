"""
Answer queries of the runner's placement.

:depends: libvirt-python in Salt's own Python
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt import errors, settings
    from saltvirt.host import connection
    from saltvirt.host.domain import (
        names_on_disk as disk_names,  # a function here has the same name
    )
    from saltvirt.host.node import inventory as host_inventory
    from saltvirt.host.node import maintenance as host_maintenance
    from saltvirt.host.node import running_guests
    from saltvirt.host.provision import admission, guest_builder, images_folder, requirements
    from saltvirt.spec import base, guest, profiles, values

if TYPE_CHECKING:
    from salt_dunders import __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def _requirements(conn, config_get, images_location, arguments):
    """The requirements of a guest with these arguments on this host, or the problem."""
    try:
        arguments = base.mapping(arguments, "guest")
        if "name" not in arguments or not all(isinstance(word, str) for word in arguments):
            raise errors.InvalidInput(
                "guest must be a dictionary of arguments of virt.init, including name"
            )
        spec = guest.parse(**arguments, known_profiles=profiles.read(config_get))
        admission_config = admission.AdmissionConfig(
            config_get, images_location.folder, images_location.pool
        )
        # nothing is seeded; only the ability to seed matters
        not_yet = guest_builder.refuse_seeding
        medium = not_yet if spec.deploy.cloud_init else None
        tools = guest_builder.Tools(admission_config, seeder=not_yet, medium=medium)
        return requirements.read(conn, spec, tools).to_answer()
    except errors.VirtError as exc:
        return {"problem": exc.text.removeprefix(errors.Refused.PREFIX)}


def inventory(guest=None, **kwargs):
    """
    Show the capacity of the host, the sizes of its guests, and everything that placement needs.

    libvirt is read in bulk; no disk is opened.

    :param guest: dictionary of arguments of ``virt.init``: also return the requirements of that
        guest on this host, with the host's own profiles; nothing is changed
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
        ``libvirt`` (version as libvirt's number), ``silent`` (mount points of file systems that do
        not answer: the answer contains nothing that is stored on them); for ``guest``, under
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
    List all guests that are defined or running on this host, from libvirt's own files.

    Used to check whether a name is free if libvirt does not answer. libvirt is not queried.

    :param connection: libvirt URI, overriding ``virt:connection:uri``
    :param username: not used
    :param password: not used

    :return: a sorted list of names

    :raises Unsupported: libvirt stores them elsewhere, according to the URI

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.names_on_disk
    """
    return disk_names.read(settings.connection(__salt__["config.get"], kwargs).uri)


def running_names():
    """
    List the guests with a running process, from libvirt's files, for use when its daemon is stopped
    or removed. ``virt.list_active_vms`` queries the daemon.

    :return: a sorted list of names

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.running_names
    """
    return running_guests.names()


def maintenance(reason=None, guests=None, off=False):
    """
    Show, set or clear the maintenance mark of this host. A host in maintenance gets no new guests.

    :param reason: set the mark with this reason
    :param guests: list of guests that were moved away, for ``virt.restore`` of the runner; default
        with ``reason``: unchanged
    :param off: clear the mark; with ``guests``, the host accepts guests again and keeps the list

    :return: the current mark: a dictionary of ``reason`` (None if the host accepts guests) and
        ``guests``, or None

    :raises InvalidInput: the reason is empty, or ``guests`` is not a list of names

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
        raise errors.InvalidInput("reason is missing: give the reason for the maintenance")
    if guests and not (isinstance(guests, (list, tuple)) and {*map(type, guests)} == {str}):
        raise errors.InvalidInput("guests must be a list of names")
    # a guest that was admitted before is defined by then, a later one is refused
    with admission.AdmissionConfig(__salt__["config.get"], settings.IMAGES_FOLDER).lock():
        if off and not guests:
            host_maintenance.clear()
        else:
            existing = host_maintenance.read()
            guest_names = existing.guests if existing and guests is None else guests or ()
            host_maintenance.write(None if off else reason_text, guest_names)
        return _mark()


def _mark():
    maintenance_mark = host_maintenance.read()
    return maintenance_mark.to_answer() if maintenance_mark else None
