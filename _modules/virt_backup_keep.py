"""
Backups of guests in a folder of this machine: removed by rule, read back. ``salt-run
virt.backup_prune`` and ``virt.backup_verify`` ask the machines of all targets.
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
    Remove the backups in a folder of this machine that no rule keeps. What a backup that stays
    stands on stays, too, and so does the newest good one of each guest, and one that is being read.

    :param folder: of the target
    :param retention: a dict of how many stay: ``last``, ``hourly``, ``daily``, ``weekly``,
        ``monthly``, ``yearly``; with none of them all do
    :param name: of one guest, or its UUID; default: all guests'
    :param mounted: True: the folder has to be a mount point
    :param test: only tell what would be removed

    :return: a dict: ``guests`` (a list: ``uuid``, ``guest``, ``backups``, each with ``ident``,
        ``stays`` and ``why``, and ``trouble`` where nothing was removed)

    :raises InvalidInput: the folder is missing, or is not root's alone

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
    Read backups in a folder of this machine back, through QEMU, and compare them with the digests
    of what was read of the guest. What is found is put down beside each. A disk that is broken is
    read whole by the next backup.

    :param folder: of the target
    :param name: of one guest, or its UUID; default: all guests'
    :param backup: ``all``, ``latest``, or the name or number of one
    :param days: only those that were not read back in so many days
    :param mounted: True: the folder has to be a mount point
    :param most: no more than so many, those first that were not read back for the longest time

    :return: a dict: ``backups``, a list: ``uuid``, ``guest``, ``ident``, ``verified`` (``when``,
        ``disks``, ``broken``: disk to what is wrong with it), ``wrong`` (why it is not good, or
        what it stands on), ``trouble`` (why it could not be read back)

    :raises InvalidInput: the folder is missing, or is not root's alone
    :raises NotFound: the guest has no such backup
    :raises Unsupported: no qemu-nbd or qemu-img here

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
    progress = _progress_sender()
    report = backup_keep.verify_all(opened, guest, str(backup), limit, now, progress, count)
    return report.to_answer()


def _progress_sender():
    """Progress on the event bus: ``salt/virt/backup/<name>/verify``."""
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
