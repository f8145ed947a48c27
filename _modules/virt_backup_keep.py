"""
Prune and verify backups in a folder of this machine. ``salt-run virt.backup_prune`` and
``virt.backup_verify`` call the machines of all targets.
"""

import time
from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt import names, units
    from saltvirt.backup.model import policy as backup_policy
    from saltvirt.backup.target import target as backup_target
    from saltvirt.backup.target import upkeep as backup_keep
    from saltvirt.host.node import job_steps

if TYPE_CHECKING:
    from salt_dunders import __salt__

__virtualname__ = "virt"

_PROGRESS_PERIOD_S = 2


def __virtual__():
    return __virtualname__


def backup_prune(folder, retention, name=None, mounted=False, test=False):
    """
    Remove the backups in a folder of this machine that no retention rule keeps. Backups that a kept
    backup depends on, the newest good backup of each guest, and backups that are being read are
    kept.

    :param folder: folder of the target
    :param retention: dictionary of the number of backups to keep: ``last``, ``hourly``, ``daily``,
        ``weekly``, ``monthly``, ``yearly``; without any of them, all are kept
    :param name: name or UUID of a guest; default: all guests
    :param mounted: True: the folder must be a mount point
    :param test: only show what would be removed

    :return: a dictionary: ``guests`` (a list: ``uuid``, ``guest``, ``backups``, each with
        ``ident``, ``stays`` and ``why``, and ``trouble`` if nothing was removed)

    :raises InvalidInput: the folder does not exist, or others can write to it

    CLI Example:

    .. code-block:: bash

        salt backup1 virt.backup_prune /srv/backups '{daily: 7, weekly: 4}' test=True
    """
    rules = backup_policy.retention(retention)
    guest = None if name is None else names.existing_guest(name)
    opened = backup_target.open_target(str(folder), bool(mounted))
    return backup_keep.prune_guests(opened, rules, guest, bool(test)).to_answer()


def backup_verify(folder, name=None, backup="all", days=None, mounted=False, most=None):
    """
    Verify backups in a folder of this machine: read them with QEMU and compare them with the
    digests of the data that was read from the guest. The result is recorded with each backup. The
    next backup reads a broken disk completely.

    :param folder: folder of the target
    :param name: name or UUID of a guest; default: all guests
    :param backup: ``all``, ``latest``, or the name or number of a backup
    :param days: only backups that were not verified within this number of days
    :param mounted: True: the folder must be a mount point
    :param most: maximum number of backups, starting with those that were not verified for the
        longest time

    :return: a dictionary: ``backups``, a list: ``uuid``, ``guest``, ``ident``, ``verified``
        (``when``, ``disks``, ``broken``: disk to the error), ``wrong`` (why it, or a backup that it
        depends on, is not good), ``trouble`` (why it could not be verified)

    :raises InvalidInput: the folder does not exist, or others can write to it
    :raises NotFound: the backup does not exist
    :raises Unsupported: qemu-nbd or qemu-img is not installed

    :depends: qemu-img and qemu-nbd

    CLI Example:

    .. code-block:: bash

        salt backup1 virt.backup_verify /srv/backups web1 latest
    """
    guest = None if name is None else names.existing_guest(name)
    limit = None if days is None else units.parse_number(days, "days")
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    opened = backup_target.open_target(str(folder), bool(mounted))
    count = None if most is None else units.parse_count(most, "most")
    progress = _verification_progress()
    report = backup_keep.verify_all(opened, guest, str(backup), limit, now, progress, count)
    return report.to_answer()


def _verification_progress():
    """Return a function that sends progress events: ``salt/virt/backup/<name>/verify``."""
    steps_dir = job_steps.folder(__salt__["config.get"])
    last_sent = [0.0]

    def send_progress(name, ident, done, total):
        now = time.monotonic()
        if now - last_sent[0] < _PROGRESS_PERIOD_S:
            return
        last_sent[0] = now
        job_steps.record_step(steps_dir)
        event = {"name": name, "backup": ident, "percent": 100 * done // max(1, total)}
        job_steps.send_step(__salt__["event.send"], f"salt/virt/backup/{name}/verify", event)

    return send_progress
