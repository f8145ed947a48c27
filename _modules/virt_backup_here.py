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
    from saltvirt.backuphost import receive
    from saltvirt.backuphost import target as backup_target
    from saltvirt.backups import ident
    from saltvirt.backups import policy as backup_policy
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
    look = __salt__["virt.backup_look"](name, **kwargs)
    if not look["disks"]:
        raise errors.InvalidInput(f"{name} has no disk to back up")
    host, place = __opts__["id"], {"mounted": mounted, "key": key}
    plan = __salt__["virt.backup_plan"](
        folder, host, look, whole=whole, reader=not test, **place
    )  # fmt: skip
    told = {
        "ident": plan["ident"], "skipped": look["skipped"],
        "disks": {one["target"]: one["parent"] or one["reason"] for one in plan["disks"]},
    }  # fmt: skip
    if test:
        return told
    mine = name, plan["ident"]
    try:
        serving = __salt__["virt.backup_begin"](*mine, plan["disks"], plan["reader"], **kwargs)
        made = __salt__["virt.backup_pull"](
            folder, *mine, host, serving, bandwidth=bandwidth, reader=plan["reader"],
            compress=compress, **place
        )  # fmt: skip
    except BaseException as exc:
        why = _backup_ended(*mine, **kwargs)[0]
        if why and isinstance(exc, errors.VirtError) and why not in exc.text:
            raise errors.OperationFailed(f"{exc.text}; {why}") from exc
        raise
    # those of other folders and targets stay
    over = {*plan["needed"], *plan.get("superseded", ())}
    needed = {*look["checkpoints"]} - over | {*made["checkpoints"]}
    _, left = _backup_ended(*mine, good=True, needed=sorted(needed), **kwargs)
    disks = {one["target"]: one["parent"] or one["reason"] for one in serving["disks"]}
    return {
        **told, "disks": disks, "skipped": serving.get("skipped", told["skipped"]),
        "consistency": serving["consistency"], "left": left,
        "moved_bytes": made["moved_bytes"], "stored_bytes": made["stored_bytes"],
    }  # fmt: skip


def _backup_ended(*mine, **how):
    """(why it had ended before, or does not end; what is left of it)."""
    try:
        said = __salt__["virt.backup_end"](*mine, **how)
    except errors.VirtError as exc:
        return exc.text, [exc.text]
    return said["why"], said["left"]


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
    ident.refuse_unfit(new, over, stop, disk)
    # it may have been renamed since
    here = _backup_guests(kwargs) if over or disk is not None else {}
    found = _backup_found(
        name, folder, str(backup), mounted, disk, damaged, here.get(str(name)), over
    )
    called = found.guest if new is None else str(new)
    called = names.guest({uuid: name for name, uuid in here.items()}.get(found.uuid, called))
    if disk is not None:
        ident.refuse_unknown_disk(found, disk)
    if values.flag(test, "test"):
        return {"ident": found.ident}
    reader = __salt__["virt.backup_reader"](once=True)["authority"]
    try:
        shown = __salt__["virt.backup_show"](
            folder, found.uuid, found.ident, reader, mounted=mounted, disk=disk, damaged=damaged
        )  # fmt: skip
        if disk is not None and not over:
            made = __salt__["virt.backup_disk"](called, shown, disk, reader=reader, **kwargs)
        else:
            made = __salt__["virt.backup_restore"](
                called, shown, itself=new is None, over=over, stop=stop, disk=disk, reader=reader,
                **kwargs,
            )  # fmt: skip
    finally:
        with contextlib.suppress(errors.VirtError):
            __salt__["virt.backup_hide"](reader)
    return {**made, "ident": found.ident, "skipped": found.skipped}


def _backup_guests(given):
    """The guests of this host, by name, and their UUIDs."""
    local = {key: value for key, value in given.items() if key in settings.CONNECTION}
    with connection.connect(settings.connection(__salt__["config.get"], local)) as conn:
        return lookup.uuids(conn)


def _backup_found(name, folder, backup, mounted, disk, damaged, uuid, over):
    """The good one that is meant. uuid: of the guest that has the name here."""
    target = backup_target.opened(values.text(folder, "folder"), mounted)
    several = list(receive.listing(target, uuid=uuid, name=name))
    if not over and any(one.guest == name for one in several):
        uuid = None  # of several that had the name the operator says which
    return ident.meant(several, name, backup, disk, damaged, uuid, target=folder)
