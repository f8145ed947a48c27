"""
Back up and restore guests of a single host, and manage the backups in its folders.

The functions of the runner, such as ``salt-run virt.backup``, do the same for all hosts and
targets.

:depends: libvirt-python in Salt's own Python, to back up and restore; qemu-img and qemu-nbd
"""

import collections
import contextlib
import time
from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt import errors, names, settings, units
    from saltvirt.answers import calls
    from saltvirt.answers import removal as removal_answer
    from saltvirt.backup.export import request as backup_request
    from saltvirt.backup.model import backup_ids, listed, pages
    from saltvirt.backup.model import calls as backup_calls
    from saltvirt.backup.model import files as file_answers
    from saltvirt.backup.model import policy as backup_policy
    from saltvirt.backup.target import files as backup_files
    from saltvirt.backup.target import receive
    from saltvirt.backup.target import target as backup_target
    from saltvirt.backup.target import upkeep as backup_keep
    from saltvirt.host import connection
    from saltvirt.host.domain import lookup
    from saltvirt.host.node import job_steps
    from saltvirt.host.provision import admission
    from saltvirt.host.storage import sharing
    from saltvirt.placement import account
    from saltvirt.spec import values

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__virtualname__ = "virt"
__outputter__ = saltvirt.OUTPUTTERS

_PROGRESS_PERIOD_S = 2
# timeout of a single step of an emulated appliance
_STEP_TIMEOUT_S = 600


def __virtual__():
    return __virtualname__


def _connect(kwargs):
    return connection.connect(settings.connection(__salt__["config.get"], kwargs))


def backup_end(name, backup_id, good=False, needed=(), **kwargs):
    """
    End the export of a guest's disks for a backup, also if its process has died.

    :param name: name of the guest
    :param backup_id: name of the backup
    :param good: True: the backup is complete, so its checkpoint is kept
    :param needed: with ``good``: checkpoints to keep; other checkpoints of backups are deleted
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary: ``reason`` (if the export had ended before), ``leftovers`` (those
        that could not be removed)

    :raises OperationFailed: libvirt cannot end it

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.backup_end web1 000001-20261123T160000Z-0123abcd
    """
    from saltvirt.backup.export import api  # noqa: PLC0415 - needs the binding

    request = backup_request.EndRequest(
        values.text(backup_id, "backup_id"),
        bool(good),
        tuple(values.list_of(values.text)(needed, "needed")),
    )
    with _connect(kwargs) as conn:
        return api.end(conn, names.existing_guest(name), request).to_answer()


def backup_sweep(**kwargs):
    """
    Clean up exports of processes that died, also for guests that are on another host now, so that
    the space of overwritten blocks is free again. Each backup of a guest of this host does this,
    and ``salt-run virt.backup_due`` does it on all hosts.

    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: list of guests that had leftovers

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.backup_sweep
    """
    from saltvirt.backup.export import api  # noqa: PLC0415 - needs the binding

    with _connect(kwargs) as conn:
        return api.sweep(conn)


def backup_list(folder, uuid=None, mounted=False, name=None, newest=False, after=None):
    """
    List the backups in a folder of this machine. An answer is limited to 256 KiB: call it again
    with ``after`` for the rest.

    :param folder: folder of the target
    :param uuid: UUID of a guest; default: all guests
    :param mounted: True: the folder must be a mount point
    :param name: guests that have or had this name, or have it as UUID; and the guest with ``uuid``
    :param newest: True: only the newest and the newest good backup of each guest
    :param after: ``UUID/BACKUP``: only backups after that one

    :return: a list of dictionaries, for each guest the oldest first: ``backup_id``, ``guest``,
        ``uuid``, ``taken_at``, ``age_s`` (by the clock of this machine), ``host``, ``consistency``,
        ``disks`` (disk to ``full``, or to the backup that it depends on), ``stored_bytes``,
        ``problem`` (why it is not good, or cannot be read without its key, or null),
        ``broken_disks`` (disk to the error), ``skipped`` (disks that it does not contain)

    :raises InvalidInput: the folder does not exist, or others can write to it

    CLI Example:

    .. code-block:: bash

        salt backup1 virt.backup_list /srv/backup
    """
    target = backup_target.open_target(folder, bool(mounted))
    after_record = None
    if after is not None:
        last, _, backup_id = values.text(after, "after").partition("/")
        after_record = (last, backup_id)
    guest_name = None if name is None else names.existing_guest(name)
    records = receive.listing(target, uuid, guest_name, bool(newest), after_record)
    return pages.page(record.to_answer() for record in records)


def backup(
    name, folder, full=False, key=None, mounted=False, bandwidth=None, compress=None, test=False,
    **kwargs,
):  # fmt: skip
    """
    Back up a guest of this host to a folder of this host. Only blocks that changed since the last
    backup are read; a disk whose changes are not known for certain is read completely.

    :param name: name of the guest
    :param folder: folder of the backups; only root may write to it
    :param full: True: read all disks completely
    :param key: encryption key: name of a file of this machine,
        ``/etc/salt-virt/backup-keys/NAME.key``
    :param mounted: True: the folder must be a mount point
    :param bandwidth: bandwidth limit in MiB/s
    :param compress: compression of the disks, ``zstd`` or ``zlib``; default: none
    :param test: show how each disk would be read; change nothing
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary: ``backup_id`` (name of the backup), ``disks`` (disk to the backup that it
        depends on, or to the reason why it is read completely), ``skipped`` (drives that are not
        part of backups); without ``test`` also ``consistency``, ``moved_bytes``, ``stored_bytes``,
        ``leftovers`` (that could not be removed)

    :raises NotFound: the guest does not exist
    :raises OperationFailed: no backup is created, and everything is rolled back

    :depends: python3-libnbd for /usr/bin/python3; qemu-img and qemu-nbd

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.backup web1 /srv/backups
    """
    connection.require_binding()
    full, test = values.flag(full, "full"), values.flag(test, "test")
    compress = backup_policy.compression(compress, key is not None)
    host = _host(kwargs)
    guest = names.existing_guest(name)
    inspection = _ask(host, backup_calls.INSPECT_GUEST, backup_calls.InspectRequest(guest))
    if not inspection.disks:
        raise errors.InvalidInput(f"{name} has no disk to back up")
    folder, mounted = values.text(folder, "folder"), bool(mounted)
    key = None if key is None else values.text(key, "key")
    plan = _ask(host, backup_calls.PLAN_BACKUP, backup_calls.PlanRequest(
        folder, __opts__["id"], inspection, full=full, mounted=mounted, key=key, reader=not test
    ))  # fmt: skip
    summary = {
        "backup_id": plan.backup_id, "skipped": inspection.skipped,
        "disks": {disk.target: disk.parent or disk.reason for disk in plan.disks},
    }  # fmt: skip
    if test:
        return summary
    backup_key = guest, plan.backup_id
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
        "skipped": serving.skipped, "consistency": serving.consistency, "leftovers": leftovers,
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
    return answer["reason"], answer["leftovers"]


def backup_bring(
    name, folder, backup="latest", new=None, in_place=False, stop=False, disk=None, mounted=False,
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
        ``in_place`` or ``disk``
    :param in_place: True: replace the existing guest, until ``virt.backup_confirm`` or
        ``virt.backup_undo``
    :param stop: with ``in_place``: power off the guest when the new disks are ready
    :param disk: restore only this disk, by its target: as a file next to the images, which no guest
        has; with ``in_place`` it replaces the guest's disk
    :param mounted: True: the folder must be a mount point
    :param test: show which backup would be restored; change nothing
    :param damaged: True: restore also from a backup that is not good, as far as it can be read.
        Unreadable blocks are zeros, and a disk whose file is missing is left out
    :param kwargs: ``overcommit``: True: do it even if the host does not have enough free capacity;
        ``seed``: with ``new``: give the system in the guest an identity of its own, by default if
        ``virt.init`` seeded the original; ``connection``, ``username`` and ``password`` override
        ``virt:connection``

    :return: as ``virt.init``, with ``backup_id`` and ``skipped`` (disks that it does not
        contain, with the reasons); for a disk as a file ``path`` and ``size_bytes`` instead; with
        ``test`` only ``backup_id``

    :raises NotFound: the backup does not exist, or does not contain the disk
    :raises AlreadyExists: the guest exists
    :raises OperationFailed: everything is rolled back

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.backup_bring web1 /srv/backups new=web1-old
    """
    connection.require_binding()
    disk = None if disk is None else values.text(disk, "disk")
    in_place, stop = values.flag(in_place, "in_place"), values.flag(stop, "stop")
    mounted, damaged = values.flag(mounted, "mounted"), values.flag(damaged, "damaged")
    backup_ids.refuse_conflicts(new, in_place, stop, disk)
    # the guest may have been renamed since
    local_guests = _backup_guests(kwargs) if in_place or disk is not None else {}
    record = _find_backup(
        name, folder, str(backup), mounted, disk, damaged, local_guests.get(str(name)), in_place
    )
    guest_name = record.guest if new is None else str(new)
    guest_name = names.guest(
        {uuid: name for name, uuid in local_guests.items()}.get(record.uuid, guest_name)
    )
    if disk is not None:
        listed.refuse_unknown_disk(record, disk)
    if values.flag(test, "test"):
        return {"backup_id": record.backup_id}
    inputs, local = _restore_inputs(kwargs)
    host = _host(local)
    reader = _ask(host, backup_calls.ISSUE_READER, backup_calls.ReaderRequest(once=True)).authority
    try:
        shown = _ask(host, backup_calls.SHOW_BACKUP, backup_calls.ShowBackupRequest(
            values.text(folder, "folder"), record.uuid, record.backup_id, reader, mounted=mounted,
            disk=disk, damaged=damaged,
        ))  # fmt: skip
        if disk is not None and not in_place:
            inputs.pop("seed")
            result = _ask(host, backup_calls.RESTORE_DISK, backup_calls.RestoreDiskRequest(
                guest_name, shown, disk, reader=reader, **inputs
            ))  # fmt: skip
        else:
            result = _ask(host, backup_calls.RESTORE_GUEST, backup_calls.RestoreGuestRequest(
                guest_name, shown, itself=new is None, in_place=in_place, stop=stop, disk=disk,
                reader=reader, **inputs,
            ))  # fmt: skip
    finally:
        with contextlib.suppress(errors.VirtError):
            _ask(host, backup_calls.HIDE_BACKUP, backup_calls.HideBackupRequest(reader))
    return {**result.to_answer(), "backup_id": record.backup_id, "skipped": record.skipped}


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
        ``backup_id``, ``retained`` and ``reason``, and ``error`` if nothing was removed)

    :raises InvalidInput: the folder does not exist, or others can write to it

    CLI Example:

    .. code-block:: bash

        salt backup1 virt.backup_prune /srv/backups '{daily: 7, weekly: 4}' test=True
    """
    rules = backup_policy.retention(retention)
    guest = None if name is None else names.existing_guest(name)
    opened = backup_target.open_target(str(folder), bool(mounted))
    return backup_keep.prune_guests(opened, rules, guest, bool(test)).to_answer()


def backup_verify(folder, name=None, backup="all", days=None, mounted=False, limit=None):
    """
    Verify backups in a folder of this machine: read them with QEMU and compare them with the
    digests of the data that was read from the guest. The result is recorded with each backup. The
    next backup reads a broken disk completely.

    :param folder: folder of the target
    :param name: name or UUID of a guest; default: all guests
    :param backup: ``all``, ``latest``, or the name or number of a backup
    :param days: only backups that were not verified within this number of days
    :param mounted: True: the folder must be a mount point
    :param limit: maximum number of backups, starting with those that were not verified for the
        longest time

    :return: a dictionary: ``backups``, a list: ``uuid``, ``guest``, ``backup_id``, ``verification``
        (``verified_at``, ``disks``, ``broken_disks``: disk to the error), ``problem`` (why it, or a
        backup that it depends on, is not good), ``error`` (why it could not be verified)

    :raises InvalidInput: the folder does not exist, or others can write to it
    :raises NotFound: the backup does not exist
    :raises Unsupported: qemu-nbd or qemu-img is not installed

    :depends: qemu-img and qemu-nbd

    CLI Example:

    .. code-block:: bash

        salt backup1 virt.backup_verify /srv/backups web1 latest
    """
    guest = None if name is None else names.existing_guest(name)
    max_age_days = None if days is None else units.parse_number(days, "days")
    opened = backup_target.open_target(str(folder), bool(mounted))
    count = None if limit is None else units.parse_count(limit, "limit")
    progress = _verification_progress()
    report = backup_keep.verify_all(
        opened, guest, str(backup), max_age_days, receive.now(), progress, count
    )
    return report.to_answer()


def _verification_progress():
    """Return a function that sends progress events: ``salt/virt/backup/<name>/verify``."""
    steps_dir = job_steps.folder(__salt__["config.get"])
    last_sent = [0.0]

    def send_progress(name, backup_id, done, total):
        now = time.monotonic()
        if now - last_sent[0] < _PROGRESS_PERIOD_S:
            return
        last_sent[0] = now
        job_steps.record_step(steps_dir)
        event = {"name": name, "backup": backup_id, "percent": 100 * done // max(1, total)}
        job_steps.send_step(__salt__["event.send"], f"salt/virt/backup/{name}/verify", event)

    return send_progress


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

    :return: a dictionary: ``backup_id``, ``guest``, ``files`` (a list of at most 1000:
        ``name``, with special characters escaped, ``kind``, ``size_bytes``, ``mode``,
        ``changed_s``, ``link``), ``omitted`` (number of further files), ``filesystems`` (device to
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
    folder, name, path, dest=None, backup="latest", filesystem=None, max_size="1GiB", mounted=False,
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
    :param max_size: maximum size in MiB, or with a unit
    :param mounted: True: the target's folder must be a mount point
    :param test: only check whether it exists

    :return: a dictionary: ``backup_id``, ``guest``, ``kind`` (``file``, ``folder``),
        ``size_bytes``, ``path`` on this machine

    :raises NotFound: the backup does not exist, or does not contain the file
    :raises AlreadyExists: ``dest`` exists
    :raises InvalidInput: the file is larger than ``max_size``, or is a device, FIFO or socket
    :raises Unsupported: libguestfs is not installed

    :depends: guestfish

    CLI Example:

    .. code-block:: bash

        salt backup1 virt.backup_get /srv/backups web1 /etc/fstab
    """
    opened = backup_target.open_target(str(folder), bool(mounted))
    request = _files_request(name, backup, path, filesystem)
    limit = units.parse_bytes(max_size, argument="max_size")
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


def _admission():
    return admission.AdmissionConfig.configured(__salt__["config.get"])


def backup_confirm(vm_, test=False, unused=(), **kwargs):
    """
    Keep a guest that was restored from a backup: the disks of the replaced guest are deleted if
    they are its own and no other guest uses them.

    :param vm_: name of the guest
    :param test: only show what would be deleted
    :param unused: paths on shared storage that no other host uses, as the caller has verified; the
        runner asks all other hosts
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary: ``delete`` (paths), ``keep`` (path to the reason) and, if there are any,
        ``shared`` (files to ask other hosts about, by path) and ``unsure`` (its own disks that are
        kept)

    :raises NotFound: it was not replaced by a backup, or the restore was confirmed
    :raises OperationFailed: a disk could not be deleted; you can call it again

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.backup_confirm web1 test=True
    """
    from saltvirt.backup.export import in_place_restore  # noqa: PLC0415 - needs the binding

    name, unused_paths = names.existing_guest(vm_), values.paths(unused, "unused")
    with _connect(kwargs) as conn:
        if values.flag(test, "test"):
            outcome = in_place_restore.plan(conn, name, unused_paths)
        else:
            outcome = in_place_restore.confirm(conn, _admission(), name, unused_paths)
    places, unsure = sharing.as_data(outcome.shared), tuple(outcome.uncertain)
    return removal_answer.RemovalPlan(
        tuple(outcome.delete), outcome.keep, places, unsure
    ).to_answer()


def backup_undo(name, stop=False, test=False, **kwargs):
    """
    Bring a guest back that was replaced by a backup. The restored disks are deleted, including
    everything that was written to them since.

    :param name: name of the guest
    :param stop: power off the guest first
    :param test: only raise the reason against it
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary: ``leftovers`` (those that could not be removed, with the reasons), and,
        if there are any, ``detached`` (disks that were attached since; they are kept, but no longer
        attached)

    :raises NotFound: it was not replaced by a backup, or the restore was confirmed
    :raises Refused: the guest runs, has snapshots or saved memory, or one of its previous disks
        does not exist

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.backup_undo web1
    """
    from saltvirt.backup.export import in_place_restore  # noqa: PLC0415 - needs the binding

    with _connect(kwargs) as conn:
        guest, flags = (
            names.existing_guest(name),
            (values.flag(stop, "stop"), values.flag(test, "test")),
        )
        return in_place_restore.undo(conn, _admission(), guest, *flags).to_answer()
