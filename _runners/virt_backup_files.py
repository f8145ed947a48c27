"""
Read single files from backups. See docs/how-to/backups.md.
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt.fleet.client import Fleet
from saltvirt.operations.core import result

with saltvirt.later():
    from saltvirt import errors, units
    from saltvirt.backup.manager import files
    from saltvirt.operations.core import operation, report

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


@result.reporting
def backup_ls(name, path="/", backup="latest", to=None, filesystem=None):
    """
    List a folder of a guest from a backup. The target's machine reads the backup with libguestfs.

    :param name: name or UUID of the guest that was backed up
    :param path: folder or file in the guest
    :param backup: name or number of the backup, or ``latest``
    :param to: the target; default: as for ``virt.backup``
    :param filesystem: read only this file system, as ``/``; its device as returned in
        ``filesystems``; default: everything that the guest's system mounts

    :return: under the guest's name ``result``, ``comment``, ``backup``, ``files`` (a list of at
        most 1000: ``name``, ``kind``, ``size_bytes``, ``mode``, ``changed_s``, ``link``),
        ``filesystems`` (device to kind), ``missing`` (file systems that the guest mounts and that
        could not be read; the exit code is then 1), ``host``

    CLI Example:

    .. code-block:: bash

        salt-run virt.backup_ls web1 /etc
    """
    request = _files_request(name, path, backup, to, filesystem)
    with Fleet(__opts__) as fleet:
        progress = report.of_runner(fleet, request.name, "backup_ls", __salt__)
        return files.ListFiles(fleet, request, progress).run().answer()


@result.reporting
def backup_get(
    name, path, dest=None, backup="latest", to=None, filesystem=None, most="1GiB", test=False
):
    """
    Copy a file of a guest from a backup to the target's machine, where only root can read it; a
    folder is stored as a tar file. The content is transferred neither to the master nor in a job.

    :param name: name or UUID of the guest that was backed up
    :param path: file or folder in the guest; links are followed inside the guest
    :param dest: path on the target's machine; it must not exist, and only root may write to its
        folder; default: a new path below ``/var/lib/salt-virt/backup-files``
    :param backup: name or number of the backup, or ``latest``
    :param to: the target; default: as for ``virt.backup``
    :param filesystem: read only this file system, as ``/``; its device as returned by
        ``virt.backup_ls``; default: everything that the guest's system mounts
    :param most: maximum size
    :param test: show what would be copied; write nothing

    :return: under the guest's name ``result``, ``comment``, ``changes`` (``path``), ``backup``,
        ``host``, ``size_bytes``

    CLI Example:

    .. code-block:: bash

        salt-run virt.backup_get web1 /etc/fstab
    """
    request = _files_request(name, path, backup, to, filesystem)
    limit = units.parse_bytes(most, argument="most")
    dest_path = None if dest is None else _text(dest, "dest")
    with Fleet(__opts__) as fleet:
        progress = report.of_runner(fleet, request.name, "backup_get", __salt__)
        return operation.perform(
            files.ExtractFile(fleet, request, progress, dest_path, limit), test
        )


def _files_request(name, path, backup, to, filesystem):
    if isinstance(backup, bool) or not isinstance(backup, (str, int)):
        raise errors.InvalidInput(
            f"backup must be a name or a number, not {units.short_repr(backup)}"
        )
    only_filesystem = None if filesystem is None else _text(filesystem, "filesystem")
    return files.FilesRequest(str(name), _text(path, "path"), str(backup), to, only_filesystem)


def _text(value, argument):
    if not isinstance(value, str):
        raise errors.InvalidInput(f"{argument} must be text, not {units.short_repr(value)}")
    return value
