"""
Back up and restore guests on a single host without a master. ``salt-run virt.backup`` does the same
between two machines.
"""

import collections
import contextlib
from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt import errors, names, settings, units
    from saltvirt.answers import calls
    from saltvirt.backup.model import backup_ids, listed
    from saltvirt.backup.model import calls as backup_calls
    from saltvirt.backup.model import policy as backup_policy
    from saltvirt.backup.target import receive
    from saltvirt.backup.target import target as backup_target
    from saltvirt.host import connection
    from saltvirt.host.domain import lookup
    from saltvirt.placement import account
    from saltvirt.spec import values

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def backup(
    name, folder, whole=False, key=None, mounted=False, bandwidth=None, compress=None, test=False,
    **kwargs,
):  # fmt: skip
    """
    Back up a guest of this host to a folder of this host. Only blocks that changed since the last
    backup are read; a disk whose changes are not known for certain is read completely.

    :param name: name of the guest
    :param folder: folder of the backups; only root may write to it
    :param whole: True: read all disks completely
    :param key: encryption key: name of a file of this machine,
        ``/etc/salt-virt/backup-keys/NAME.key``
    :param mounted: True: the folder must be a mount point
    :param bandwidth: bandwidth limit in MiB/s
    :param compress: compression of the disks, ``zstd`` or ``zlib``; default: none
    :param test: show how each disk would be read; change nothing
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary: ``ident`` (name of the backup), ``disks`` (disk to the backup that it
        depends on, or to the reason why it is read completely), ``skipped`` (drives that are not
        part of backups); without ``test`` also ``consistency``, ``moved_bytes``, ``stored_bytes``,
        ``left`` (leftovers that could not be removed)

    :raises NotFound: the guest does not exist
    :raises OperationFailed: no backup is created, and everything is rolled back

    :depends: python3-libnbd for /usr/bin/python3; qemu-img and qemu-nbd

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.backup web1 /srv/backups
    """
    connection.require_binding()
    whole, test = values.flag(whole, "whole"), values.flag(test, "test")
    compress = backup_policy.compression(compress, key is not None)
    host = _host(kwargs)
    guest = names.existing_guest(name)
    inspection = _ask(host, backup_calls.INSPECT_GUEST, backup_calls.InspectRequest(guest))
    if not inspection.disks:
        raise errors.InvalidInput(f"{name} has no disk to back up")
    folder, mounted = values.text(folder, "folder"), bool(mounted)
    key = None if key is None else values.text(key, "key")
    plan = _ask(host, backup_calls.PLAN_BACKUP, backup_calls.PlanRequest(
        folder, __opts__["id"], inspection, whole=whole, mounted=mounted, key=key, reader=not test
    ))  # fmt: skip
    summary = {
        "ident": plan.ident, "skipped": inspection.skipped,
        "disks": {disk.target: disk.parent or disk.reason for disk in plan.disks},
    }  # fmt: skip
    if test:
        return summary
    backup_key = guest, plan.ident
    try:
        serving = _ask(host, backup_calls.BEGIN_EXPORT, backup_calls.BeginRequest(
            *backup_key, plan.disks, plan.reader
        ))  # fmt: skip
        result = _ask(host, backup_calls.PULL_BACKUP, backup_calls.PullRequest(
            folder, *backup_key, __opts__["id"], serving, mounted=mounted,
            bandwidth=None if bandwidth is None else units.parse_count(bandwidth, "bandwidth"),
            key=key, reader=plan.reader, compress=compress,
        ))  # fmt: skip
    except BaseException as exc:
        end_reason = _end_backup(*backup_key, **kwargs)[0]
        if end_reason and isinstance(exc, errors.VirtError) and end_reason not in exc.text:
            raise errors.OperationFailed(f"{exc.text}; {end_reason}") from exc
        raise
    # checkpoints of other folders and targets are kept
    obsolete = {*plan.needed, *plan.superseded}
    needed = {*inspection.checkpoints} - obsolete | {*result.checkpoints}
    _, leftovers = _end_backup(*backup_key, good=True, needed=sorted(needed), **kwargs)
    return {
        **summary, "disks": {disk.target: disk.parent or disk.reason for disk in serving.disks},
        "skipped": serving.skipped, "consistency": serving.consistency, "left": leftovers,
        "moved_bytes": result.moved_bytes, "stored_bytes": result.stored_bytes,
    }  # fmt: skip


def _host(kwargs):
    """This host, as its handlers of calls see it, with the connection that the arguments name."""
    local = settings.connection(__salt__["config.get"], dict(kwargs))
    overrides = {
        "virt:connection:uri": local.uri, "virt:connection:auth:username": local.username,
        "virt:connection:auth:password": local.password,
    }  # fmt: skip

    def config(key, default="", **options):
        value = overrides.get(key)
        return __salt__["config.get"](key, default, **options) if value is None else value

    return calls.MinionContext(__opts__, collections.ChainMap({"config.get": config}, __salt__))


def _ask(host, call, request):
    """The answer of this host to a call of the master."""
    return call.read(calls.answer(host, call.function, request.to_answer()), __opts__["id"])


def _end_backup(*args, **options):
    """End the export; return the reason if it had ended before or cannot be ended, and the
    leftovers."""
    try:
        answer = __salt__["virt.backup_end"](*args, **options)
    except errors.VirtError as exc:
        return exc.text, [exc.text]
    return answer["why"], answer["left"]


def backup_bring(
    name, folder, backup="latest", new=None, over=False, stop=False, disk=None, mounted=False,
    test=False, damaged=False, **kwargs,
):  # fmt: skip
    """
    Restore a guest on this host from a backup in a folder of this host. The guest is off. Without
    ``new`` it is the guest itself, with its UUID and addresses: make sure that it runs nowhere
    else.

    :param name: name or UUID of the guest that was backed up
    :param folder: folder of the backups
    :param backup: name or number of the backup, or ``latest``
    :param new: create another guest of this name, with a UUID and addresses of its own. Not with
        ``over`` or ``disk``
    :param over: True: replace the existing guest, until ``virt.backup_confirm`` or
        ``virt.backup_undo``
    :param stop: with ``over``: power off the guest when the new disks are ready
    :param disk: restore only this disk, by its target: as a file next to the images, which no guest
        has; with ``over`` it replaces the guest's disk
    :param mounted: True: the folder must be a mount point
    :param test: show which backup would be restored; change nothing
    :param damaged: True: restore also from a backup that is not good, as far as it can be read.
        Unreadable blocks are zeros, and a disk whose file is missing is left out
    :param kwargs: ``overcommit``: True: do it even if the host does not have enough free capacity;
        ``seed``: with ``new``: give the system in the guest an identity of its own, by default if
        ``virt.init`` seeded the original; ``connection``, ``username`` and ``password`` override
        ``virt:connection``

    :return: as ``virt.init``, with ``ident`` of the backup and ``skipped`` (disks that it does not
        contain, with the reasons); for a disk as a file ``path`` and ``size_bytes`` instead; with
        ``test`` only ``ident``

    :raises NotFound: the backup does not exist, or does not contain the disk
    :raises AlreadyExists: the guest exists
    :raises OperationFailed: everything is rolled back

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.backup_bring web1 /srv/backups new=web1-old
    """
    connection.require_binding()
    disk = None if disk is None else values.text(disk, "disk")
    over, stop, mounted = (
        values.flag(over, "over"), values.flag(stop, "stop"), values.flag(mounted, "mounted"),
    )  # fmt: skip
    damaged = values.flag(damaged, "damaged")
    backup_ids.refuse_conflicts(new, over, stop, disk)
    # the guest may have been renamed since
    local_guests = _backup_guests(kwargs) if over or disk is not None else {}
    record = _find_backup(
        name, folder, str(backup), mounted, disk, damaged, local_guests.get(str(name)), over
    )
    guest_name = record.guest if new is None else str(new)
    guest_name = names.guest(
        {uuid: name for name, uuid in local_guests.items()}.get(record.uuid, guest_name)
    )
    if disk is not None:
        listed.refuse_unknown_disk(record, disk)
    if values.flag(test, "test"):
        return {"ident": record.ident}
    inputs, local = _restore_inputs(kwargs)
    host = _host(local)
    reader = _ask(host, backup_calls.ISSUE_READER, backup_calls.ReaderRequest(once=True)).authority
    try:
        shown = _ask(host, backup_calls.SHOW_BACKUP, backup_calls.ShowBackupRequest(
            values.text(folder, "folder"), record.uuid, record.ident, reader, mounted=mounted,
            disk=disk, damaged=damaged,
        ))  # fmt: skip
        if disk is not None and not over:
            inputs.pop("seed")
            result = _ask(host, backup_calls.RESTORE_DISK, backup_calls.RestoreDiskRequest(
                guest_name, shown, disk, reader=reader, **inputs
            ))  # fmt: skip
        else:
            result = _ask(host, backup_calls.RESTORE_GUEST, backup_calls.RestoreGuestRequest(
                guest_name, shown, itself=new is None, over=over, stop=stop, disk=disk,
                reader=reader, **inputs,
            ))  # fmt: skip
    finally:
        with contextlib.suppress(errors.VirtError):
            _ask(host, backup_calls.HIDE_BACKUP, backup_calls.HideBackupRequest(reader))
    return {**result.to_answer(), "ident": record.ident, "skipped": record.skipped}


def _restore_inputs(kwargs):
    """The arguments of a restore among the others, and the rest."""
    local = dict(kwargs)
    seed, overcommit = local.pop("seed", None), local.pop("overcommit", None)
    placement = local.pop("placement", None)
    inputs = {
        "seed": None if seed is None else values.boolean(seed, "seed"),
        "overcommit": None if overcommit is None else values.boolean(overcommit, "overcommit"),
        "placement": None if placement is None
        else account.PlacementTerms.from_answer(placement, "placement"),
    }  # fmt: skip
    return inputs, local


def _backup_guests(kwargs):
    """The guests of this host: name to UUID."""
    local = {key: value for key, value in kwargs.items() if key in settings.CONNECTION}
    with connection.connect(settings.connection(__salt__["config.get"], local)) as conn:
        return lookup.uuids(conn)


def _find_backup(name, folder, backup, mounted, disk, damaged, uuid, in_place):
    """Find the good backup to restore. uuid: UUID of the guest that has the name on this host."""
    target = backup_target.open_target(values.text(folder, "folder"), mounted)
    records = list(receive.listing(target, uuid=uuid, name=name))
    if not in_place and any(record.guest == name for record in records):
        uuid = None  # several guests had the name: the operator must choose
    return listed.find_listed(records, name, backup, disk, damaged, uuid, target=folder)
