"""
Backups on one host without a master's say: its guests into a folder of its own, and back from
there. ``salt-run virt.backup`` does the same between two machines, by the same parts.
"""

import contextlib
from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt import errors, names, settings
    from saltvirt.backup.model import backup_ids
    from saltvirt.backup.model import policy as backup_policy
    from saltvirt.backup.target import receive
    from saltvirt.backup.target import target as backup_target
    from saltvirt.host import connection
    from saltvirt.host.domain import lookup
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
    Back a guest of this host up into a folder of this host. What changed since the last backup
    there is read; a disk of which that is not known for sure is read whole.

    :param name: the guest's name
    :param folder: of the backups; root's alone
    :param whole: True to read all disks whole
    :param key: with which it is encrypted: the name of a file of this machine,
        ``/etc/salt-virt/backup-keys/NAME.key``
    :param mounted: True where the folder has to be a mount point
    :param bandwidth: so many MiB/s are read at most
    :param compress: ``zstd`` or ``zlib``: how QEMU compresses the disks; default: it does not
    :param test: say how each disk would be read, change nothing
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict: ``ident`` (what the backup is called), ``disks`` (disk to the backup from which
        it goes on, or to why it is read whole), ``skipped`` (drives that are in no backup); without
        ``test`` also ``consistency``, ``moved_bytes``, ``stored_bytes``, ``left`` (what could not
        be taken away)

    :raises NotFound: no such guest
    :raises OperationFailed: and then there is no such backup, and nothing of it is left

    :depends: python3-libnbd for /usr/bin/python3; qemu-img and qemu-nbd

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.backup web1 /srv/backups
    """
    connection.require_binding()
    whole, test = values.flag(whole, "whole"), values.flag(test, "test")
    compress = backup_policy.compression(compress, key is not None)
    guest_disks = __salt__["virt.backup_look"](name, **kwargs)
    if not guest_disks["disks"]:
        raise errors.InvalidInput(f"{name} has no disk to back up")
    host, target_options = __opts__["id"], {"mounted": mounted, "key": key}
    plan = __salt__["virt.backup_plan"](
        folder, host, guest_disks, whole=whole, reader=not test, **target_options
    )  # fmt: skip
    summary = {
        "ident": plan["ident"], "skipped": guest_disks["skipped"],
        "disks": {disk["target"]: disk["parent"] or disk["reason"] for disk in plan["disks"]},
    }  # fmt: skip
    if test:
        return summary
    backup_key = name, plan["ident"]
    try:
        serving = __salt__["virt.backup_begin"](
            *backup_key, plan["disks"], plan["reader"], **kwargs
        )
        result = __salt__["virt.backup_pull"](
            folder, *backup_key, host, serving, bandwidth=bandwidth, reader=plan["reader"],
            compress=compress, **target_options
        )  # fmt: skip
    except BaseException as exc:
        end_reason = _end_backup(*backup_key, **kwargs)[0]
        if end_reason and isinstance(exc, errors.VirtError) and end_reason not in exc.text:
            raise errors.OperationFailed(f"{exc.text}; {end_reason}") from exc
        raise
    # those of other folders and targets stay
    obsolete = {*plan["needed"], *plan.get("superseded", ())}
    needed = {*guest_disks["checkpoints"]} - obsolete | {*result["checkpoints"]}
    _, leftovers = _end_backup(*backup_key, good=True, needed=sorted(needed), **kwargs)
    disks = {disk["target"]: disk["parent"] or disk["reason"] for disk in serving["disks"]}
    return {
        **summary, "disks": disks, "skipped": serving.get("skipped", summary["skipped"]),
        "consistency": serving["consistency"], "left": leftovers,
        "moved_bytes": result["moved_bytes"], "stored_bytes": result["stored_bytes"],
    }  # fmt: skip


def _end_backup(*args, **options):
    """(why it had ended before, or does not end; what is left of it)."""
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
    Make a guest on this host from a backup in a folder of this host. It is off. Without ``new`` it
    is the guest itself, with its UUID and addresses: you know that it runs nowhere else.

    :param name: of the guest that was backed up, or its UUID
    :param folder: of the backups
    :param backup: the backup's name, its number, or ``latest``
    :param new: name of another guest beside it, with UUID and addresses of its own. Not with
        ``over`` or ``disk``
    :param over: True: it takes the place of the guest that is here, until ``virt.backup_confirm``
        or ``virt.backup_undo``
    :param stop: with ``over``: power the guest off once the new disks are there
    :param disk: this one alone, by its target: as a file beside the images, which no guest has;
        with ``over`` in the guest's place for it
    :param mounted: True where the folder has to be a mount point
    :param test: say which backup it would be, change nothing
    :param damaged: True: also from a backup that is not good: what can be read of it. What cannot
        is zeros, and a disk whose file is gone is left out
    :param kwargs: as for ``virt.backup_restore``

    :return: what ``virt.init`` returns, ``ident`` of the backup, and ``skipped`` (what of the guest
        is not in it, and why); of a disk as a file ``path``
        and ``size_bytes`` in its place; with ``test`` ``ident`` alone

    :raises NotFound: no such backup, or it has no such disk
    :raises AlreadyExists: the guest is here
    :raises OperationFailed: and then nothing of it is left

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
    # it may have been renamed since
    local_guests = _backup_guests(kwargs) if over or disk is not None else {}
    record = _find_backup(
        name, folder, str(backup), mounted, disk, damaged, local_guests.get(str(name)), over
    )
    guest_name = record.guest if new is None else str(new)
    guest_name = names.guest(
        {uuid: name for name, uuid in local_guests.items()}.get(record.uuid, guest_name)
    )
    if disk is not None:
        backup_ids.refuse_unknown_disk(record, disk)
    if values.flag(test, "test"):
        return {"ident": record.ident}
    reader = __salt__["virt.backup_reader"](once=True)["authority"]
    try:
        shown = __salt__["virt.backup_show"](
            folder, record.uuid, record.ident, reader, mounted=mounted, disk=disk, damaged=damaged
        )  # fmt: skip
        if disk is not None and not over:
            result = __salt__["virt.backup_disk"](guest_name, shown, disk, reader=reader, **kwargs)
        else:
            result = __salt__["virt.backup_restore"](
                guest_name, shown, itself=new is None, over=over, stop=stop, disk=disk,
                reader=reader,
                **kwargs,
            )  # fmt: skip
    finally:
        with contextlib.suppress(errors.VirtError):
            __salt__["virt.backup_hide"](reader)
    return {**result, "ident": record.ident, "skipped": record.skipped}


def _backup_guests(kwargs):
    """The guests of this host, by name, and their UUIDs."""
    local = {key: value for key, value in kwargs.items() if key in settings.CONNECTION}
    with connection.connect(settings.connection(__salt__["config.get"], local)) as conn:
        return lookup.uuids(conn)


def _find_backup(name, folder, backup, mounted, disk, damaged, uuid, in_place):
    """The good one that is meant. uuid: of the guest that has the name here."""
    target = backup_target.open_target(values.text(folder, "folder"), mounted)
    records = list(receive.listing(target, uuid=uuid, name=name))
    if not in_place and any(record.guest == name for record in records):
        uuid = None  # of several that had the name the operator says which
    return backup_ids.find_listed(records, name, backup, disk, damaged, uuid, target=folder)
