"""
Read single files from backups in a folder of this machine. ``salt-run virt.backup_ls`` and
``virt.backup_get`` call the target's machine.
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt import names, units
    from saltvirt.backup.model import files as file_answers
    from saltvirt.backup.target import files as backup_files
    from saltvirt.backup.target import target as backup_target
    from saltvirt.host.node import job_steps
    from saltvirt.spec import values

if TYPE_CHECKING:
    from salt_dunders import __salt__

__virtualname__ = "virt"

# timeout of a single step of an emulated appliance
_STEP_TIMEOUT_S = 600


def __virtual__():
    return __virtualname__


def backup_ls(folder, name, path="/", backup="latest", filesystem=None, mounted=False):
    """
    List a folder of a guest from a backup in a folder of this machine. libguestfs reads it in a
    virtual machine of its own: this machine mounts nothing.

    :param folder: folder of the target
    :param name: name or UUID of the guest
    :param path: folder or file in the guest
    :param backup: name or number of the backup, or ``latest``
    :param filesystem: read only this file system, as ``/``; default: everything that the guest's
        system mounts
    :param mounted: True: the target's folder must be a mount point

    :return: a dictionary: ``ident`` (of the backup), ``guest``, ``files`` (a list of at most 1000:
        ``name``, with special characters escaped, ``kind``, ``size_bytes``, ``mode``,
        ``changed_s``, ``link``), ``more`` (number of further files), ``filesystems`` (device to
        kind), ``missing`` (file systems that the guest mounts and that could not be read, with the
        reasons)

    :raises NotFound: the backup does not exist, or does not contain the file
    :raises InvalidInput: the disks do not contain exactly one system: give ``filesystem``
    :raises Unsupported: libguestfs is not installed

    :depends: guestfish

    CLI Example:

    .. code-block:: bash

        salt backup1 virt.backup_ls /srv/backups web1 /etc
    """
    opened = backup_target.open_target(str(folder), bool(mounted))
    request = _files_request(name, backup, path, filesystem)
    return backup_files.list_files(opened, request, _step_signal()).to_answer()


def backup_get(
    folder, name, path, dest=None, backup="latest", filesystem=None, most="1GiB", mounted=False,
    test=False,
):  # fmt: skip
    """
    Copy a file of a guest from a backup in a folder of this machine to a file of this machine that
    only root can read. A folder is stored as a tar file. The file appears only when it is complete.

    :param folder: folder of the target
    :param name: name or UUID of the guest
    :param path: path in the guest; links are followed inside the guest
    :param dest: path of the new file; it must not exist, and only root may write to its folder;
        default: a new path below ``/var/lib/salt-virt/backup-files``
    :param backup: name or number of the backup, or ``latest``
    :param filesystem: read only this file system, as ``/``; default: everything that the guest's
        system mounts
    :param most: maximum size
    :param mounted: True: the target's folder must be a mount point
    :param test: only check whether it exists

    :return: a dictionary: ``ident`` (of the backup), ``guest``, ``kind`` (``file``, ``folder``),
        ``size_bytes``, ``path`` on this machine

    :raises NotFound: the backup does not exist, or does not contain the file
    :raises AlreadyExists: ``dest`` exists
    :raises InvalidInput: the file is larger than ``most``, or is a device, FIFO or socket
    :raises Unsupported: libguestfs is not installed

    :depends: guestfish

    CLI Example:

    .. code-block:: bash

        salt backup1 virt.backup_get /srv/backups web1 /etc/fstab
    """
    opened = backup_target.open_target(str(folder), bool(mounted))
    request = _files_request(name, backup, path, filesystem)
    limit = units.parse_bytes(most, argument="most")
    dest_path = None if dest is None else values.text(dest, "dest")
    step_signal = _step_signal()
    return backup_files.get(opened, request, dest_path, limit, bool(test), step_signal).to_answer()


def _files_request(name, backup, path, filesystem):
    only_filesystem = None if filesystem is None else values.text(filesystem, "filesystem")
    guest_path = file_answers.parse_path(path)
    return backup_files.FileQuery(
        names.existing_guest(name), str(backup), guest_path, only_filesystem
    )


def _step_signal():
    """Return a function that reports progress as a step."""
    steps_dir = job_steps.folder(__salt__["config.get"])
    return lambda _done_bytes: job_steps.record_step(steps_dir, _STEP_TIMEOUT_S)
