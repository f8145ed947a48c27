"""
Single files of a backup in a folder of this machine. ``salt-run virt.backup_ls`` and
``virt.backup_get`` ask the machine of the target.
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt import names, units
    from saltvirt.backup.model import files as told_files
    from saltvirt.backup.target import files as backup_files
    from saltvirt.backup.target import target as backup_target
    from saltvirt.host.node import job_steps
    from saltvirt.spec import values

if TYPE_CHECKING:
    from salt_dunders import __salt__

__virtualname__ = "virt"

# the appliance may take so long for one thing, where it is emulated
_STEP_TIMEOUT_S = 600


def __virtual__():
    return __virtualname__


def backup_ls(folder, name, path="/", backup="latest", filesystem=None, mounted=False):
    """
    What is in a folder of a guest, by a backup of it in a folder of this machine. libguestfs reads
    it, in a virtual machine of its own: this machine mounts nothing.

    :param folder: of the target
    :param name: of the guest, or its UUID
    :param path: in the guest: a folder, or a file
    :param backup: the backup's name, its number, or ``latest``
    :param filesystem: look into this one alone, which is ``/`` then; default: what the guest's
        system mounts
    :param mounted: True: the folder of the target has to be a mount point

    :return: a dict: ``ident`` (of the backup), ``guest``, ``files`` (a list of at most 1000:
        ``name``, in which all that is no plain letter is spelled out, ``kind``, ``size_bytes``,
        ``mode``, ``changed_s``, ``link``), ``more`` (so many are there besides), ``filesystems``
        (device to kind), ``missing`` (what the guest mounts and could not be read, and why)

    :raises NotFound: no such backup, or no such file in it
    :raises InvalidInput: there is not one system on the disks: say which ``filesystem``
    :raises Unsupported: no libguestfs here

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
    Take a file of a guest out of a backup in a folder of this machine, to a file of this machine
    that root alone can read. A folder becomes a tar file. It is there whole, or not at all.

    :param folder: of the target
    :param name: of the guest, or its UUID
    :param path: in the guest; links are followed inside of it
    :param dest: the path of the new file; nothing may be there, and its folder is root's alone;
        default: a new one below ``/var/lib/salt-virt/backup-files``
    :param backup: the backup's name, its number, or ``latest``
    :param filesystem: look into this one alone, which is ``/`` then; default: what the guest's
        system mounts
    :param most: nothing larger is taken out
    :param mounted: True: the folder of the target has to be a mount point
    :param test: only look whether it is there

    :return: a dict: ``ident`` (of the backup), ``guest``, ``kind`` (``file``, ``folder``),
        ``size_bytes``, ``path`` on this machine

    :raises NotFound: no such backup, or no such file in it
    :raises AlreadyExists: something is at ``dest``
    :raises InvalidInput: it is larger than ``most``, or a device, FIFO or socket
    :raises Unsupported: no libguestfs here

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
    guest_path = told_files.parse_path(path)
    return backup_files.FileQuery(
        names.existing_guest(name), str(backup), guest_path, only_filesystem
    )


def _step_signal():
    """Each sign of life is a step."""
    steps_dir = job_steps.folder(__salt__["config.get"])
    return lambda _done_bytes: job_steps.record_step(steps_dir, _STEP_TIMEOUT_S)
