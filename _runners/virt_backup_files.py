"""
Single files of backups, without a restore. See docs/backups.md.
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
    What is in a folder of a guest, by a backup of it. The machine of the target reads it by
    libguestfs.

    :param name: of the guest that was backed up, or its UUID
    :param path: in the guest: a folder, or a file
    :param backup: the backup's name, its number, or ``latest``
    :param to: the target; default: as for ``virt.backup``
    :param filesystem: look into this one alone, which is ``/`` then, by its device as the answer
        names it; default: what the guest's system mounts

    :return: under the guest's name ``result``, ``comment``, ``backup``, ``files`` (a list of at
        most 1000: ``name``, ``kind``, ``size_bytes``, ``mode``, ``changed_s``, ``link``),
        ``filesystems`` (device to kind), ``missing`` (what the guest mounts and could not be read;
        then the exit code is 1), ``host``

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
    Take a file of a guest out of a backup. It is then a file of the machine of the target, which
    root alone can read there; a folder is a tar file. Its content passes neither the master nor a
    job.

    :param name: of the guest that was backed up, or its UUID
    :param path: in the guest: a file or a folder; links are followed inside of the guest
    :param dest: the path on the machine of the target; nothing may be there, and its folder is
        root's alone; default: a new one below ``/var/lib/salt-virt/backup-files``
    :param backup: the backup's name, its number, or ``latest``
    :param to: the target; default: as for ``virt.backup``
    :param filesystem: look into this one alone, which is ``/`` then, by its device as
        ``virt.backup_ls`` names it; default: what the guest's system mounts
    :param most: nothing larger is taken out
    :param test: show what would be taken out, write nothing

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
