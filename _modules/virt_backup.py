"""
Back up and restore guests: a hypervisor exports a consistent view of a guest's disks, and the
target's machine reads them. ``salt-run virt.backup`` calls these functions.
"""

import contextlib
import dataclasses
import time
from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt.backup.model import chains
from saltvirt.host import paths

with saltvirt.later():
    from saltvirt import names, settings, units
    from saltvirt.backup.export import request as backup_request
    from saltvirt.backup.model import answers as backup_answers
    from saltvirt.backup.model import pages
    from saltvirt.backup.model import pins as backup_stand
    from saltvirt.backup.model import policy as backup_policy
    from saltvirt.backup.target import receive, relay
    from saltvirt.backup.target import show as showing
    from saltvirt.backup.target import target as backup_target
    from saltvirt.fleet.minion import client, files
    from saltvirt.host import connection
    from saltvirt.host.domain import guest_lock
    from saltvirt.host.node import job_steps
    from saltvirt.host.provision import admission, guest_builder, guest_tools
    from saltvirt.images import locks
    from saltvirt.pki.common import certs
    from saltvirt.pki.host import own_pair
    from saltvirt.spec import base, values
    from saltvirt.spec import deploy as deploy_spec
    from saltvirt.system import tls_listener

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def _connect(kwargs):
    return connection.connect(settings.connection(__salt__["config.get"], kwargs))


def backup_look(name, **kwargs):
    """
    Show which disks of a guest can be backed up.

    :param name: name of the guest
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary: ``uuid``, ``active`` (the guest is running), ``disks`` (a list:
        ``target``, ``size_bytes``, ``source``, ``format``, ``bitmaps``: name to ``good``,
        ``inconsistent`` or ``disabled``), ``checkpoints`` (names), ``skipped`` (disk to the reason
        why it is not backed up), ``name``

    :raises NotFound: the guest does not exist

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.backup_look web1
    """
    from saltvirt.backup.export import inspect_guest  # noqa: PLC0415 - needs the binding

    with _connect(kwargs) as conn:
        return inspect_guest.inspect(conn, names.existing_guest(name)).to_answer()


def backup_reader(once=False):
    """
    Return the certificate that this machine uses to read backups. Others only trust it if the
    master told them so for a single backup. It is created when it is first needed; the key stays in
    ``/var/lib/salt-virt/backup-reader``.

    :param once: True: a new certificate for a single call of ``virt.backup_pull``,
        ``virt.backup_restore``, ``virt.backup_disk`` or ``virt.backup_again``. The exporting host
        can then not redirect this machine to another host's export

    :return: a dictionary: ``authority`` (PEM)

    CLI Example:

    .. code-block:: bash

        salt backup1 virt.backup_reader
    """
    pair = own_pair.ephemeral(_ONE_TIME_KEYS, "backup-reader") if once else _backup_pair()
    return backup_answers.BackupReader(pair.authority).to_answer()


_ONE_TIME_KEYS = f"{paths.STATE}/backup-readers"


def _backup_pair():
    return own_pair.permanent(f"{paths.STATE}/backup-reader", "backup-reader")


@contextlib.contextmanager
def _backup_reader(reader, authority, field_name):
    """The key pair that this machine reads with, and a folder that contains it for a program."""
    with locks.temporary_folder(locks.runtime_folder(), "backup-") as folder:
        pair = _backup_pair() if reader is None else own_pair.take(_ONE_TIME_KEYS, reader, "reader")
        own_pair.trust(folder, pair, authority, field_name)
        yield pair, folder


def _backup_endpoint(shown, reader):
    """The TLS endpoint of an export: a new certificate, and the only client that is admitted."""
    pair = own_pair.generate(shown.host, certs.SERVER)
    client_ca = own_pair.authority(reader, "reader")
    credentials = tls_listener.TlsCredentials(pair.authority, pair.certificate, pair.key, client_ca)
    return tls_listener.TlsEndpoint(tls_listener.everywhere(), shown.port, relay.PORTS, credentials)


def backup_begin(name, ident, disks, reader, **kwargs):
    """
    Export a consistent view of a guest's disks to the target's machine, until ``virt.backup_end``.
    A running guest continues; the guest agent, if it answers, freezes its file systems for a
    moment. A guest that is off cannot be started meanwhile.

    The export ends automatically if nothing is read for two minutes, if the guest stops, or if less
    than 256 MiB are free below ``virt:images``, where overwritten blocks are stored.

    :param name: name of the guest
    :param ident: name of the backup
    :param disks: list of the disks: ``target``, and ``parent`` and ``since`` for an increment,
        otherwise ``reason``
    :param reader: the only admitted client: the answer of ``virt.backup_reader`` on the target's
        machine
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary: ``host`` and ``port``, ``consistency`` (``frozen``, ``crash``,
        ``stopped``), ``note`` (why file systems were not frozen), ``uuid``, ``definition``,
        ``disks``, ``authority`` (PEM of the certificate, created for this backup)

    :raises OperationFailed: nothing is exported, and everything is rolled back

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.backup_begin web1 000001-20261123T160000Z-0123abcd \
            '[{target: vda, reason: it was asked for}]' reader="$READER"
    """
    from saltvirt.backup.export import api  # noqa: PLC0415 - needs the binding

    connection.require_binding()
    planned = values.list_of(base.mapping)(disks, "disks")
    get = __salt__["config.get"]
    local = settings.connection(get, dict(kwargs))
    serve_config = backup_request.load_config(get, __opts__["id"])
    request = backup_request.ServeRequest(
        guest=names.existing_guest(name),
        ident=values.text(ident, "ident"),
        disks=tuple(backup_answers.PlannedDisk.from_answer(plan, "disks") for plan in planned),
        uri=local.uri,
        username=local.username,
        password=local.password,
        locks=guest_lock.folder(get),
        scratch=serve_config.scratch,
        host=serve_config.host,
        door=_backup_endpoint(serve_config, reader),
        scratch_mib=serve_config.scratch_mib,
    )
    with _connect(kwargs) as conn:
        return api.begin(next(iter(saltvirt.__path__)), conn, request).to_answer()


def backup_end(name, ident, good=False, needed=(), **kwargs):
    """
    End the export of ``virt.backup_begin``, also if its process has died.

    :param name: name of the guest
    :param ident: name of the backup
    :param good: True: the backup is complete, so its checkpoint is kept
    :param needed: with ``good``: checkpoints to keep; other checkpoints of backups are deleted
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary: ``why`` (reason, if the export had ended before), ``left`` (leftovers
        that could not be removed)

    :raises OperationFailed: libvirt cannot end it

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.backup_end web1 000001-20261123T160000Z-0123abcd
    """
    from saltvirt.backup.export import api  # noqa: PLC0415 - needs the binding

    request = backup_request.EndRequest(
        values.text(ident, "ident"),
        bool(good),
        tuple(values.list_of(values.text)(needed, "needed")),
    )
    with _connect(kwargs) as conn:
        return api.end(conn, names.existing_guest(name), request).to_answer()


def backup_sweep(**kwargs):
    """
    Clean up exports of processes that died, also for guests that are on another host now, so that
    the space of overwritten blocks is free again. Each ``virt.backup_begin`` does this, and
    ``salt-run virt.backup_due`` does it on all hosts.

    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: list of guests that had leftovers

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.backup_sweep
    """
    from saltvirt.backup.export import api  # noqa: PLC0415 - needs the binding

    with _connect(kwargs) as conn:
        return api.sweep(conn)


def backup_plan(
    folder, host, look, whole=False, chain=chains.CHAIN, mounted=False, key=None, reader=False
):  # fmt: skip
    """
    Plan the next backup of a guest from the existing backups in a folder of this machine.

    :param folder: folder of the target
    :param host: hypervisor of the guest
    :param look: the answer of ``virt.backup_look`` of that host
    :param whole: True: read all disks completely
    :param chain: maximum length of a chain of backups
    :param mounted: True: the folder must be a mount point
    :param key: encryption key: name of a file of this machine,
        ``/etc/salt-virt/backup-keys/NAME.key``
    :param reader: True: also return the answer of ``virt.backup_reader`` with ``once``

    :return: a dictionary: ``ident`` (name of the backup), ``disks`` (how each disk is to be backed
        up), ``needed`` (checkpoints that later increments depend on), ``guest`` and ``host`` (of
        the last backup with that UUID), ``reader``

    :raises InvalidInput: the folder does not exist, or others can write to it

    CLI Example:

    .. code-block:: bash

        salt backup1 virt.backup_plan /srv/backup hyper1 look="$LOOK"
    """
    guest_disks = backup_answers.GuestInspection.from_answer(look, "look")
    target = backup_target.open_target(folder, bool(mounted))
    count, sealed = units.parse_count(chain), _key(key)
    plan = receive.plan_backup(target, host, guest_disks, bool(whole), count, sealed)
    if reader:
        once = own_pair.ephemeral(_ONE_TIME_KEYS, "backup-reader")
        plan = dataclasses.replace(plan, reader=once.authority)
    return plan.to_answer()


def _key(name):
    return None if name is None else values.text(name, "key")


def backup_pull(
    folder, name, ident, host, serving, by="root", mounted=False, bandwidth=None, key=None,
    reader=None, compress=None,
):  # fmt: skip
    """
    Read the disks that a hypervisor exports (``virt.backup_begin``), over TLS with the certificate
    of ``virt.backup_reader``, and store them as a backup, completely or not at all.

    :param folder: folder of the target
    :param name: name of the guest
    :param ident: name of the backup, from ``virt.backup_plan``
    :param host: hypervisor of the guest
    :param serving: the answer of ``virt.backup_begin``
    :param by: the requesting user
    :param mounted: True: the folder must be a mount point
    :param bandwidth: bandwidth limit in MiB/s
    :param key: encryption key, as for ``virt.backup_plan``
    :param reader: the answer of ``virt.backup_reader`` with ``once``; default: its answer without
        ``once``
    :param compress: compression of the disks, ``zstd`` or ``zlib``; default: none

    :return: a dictionary: ``ident``, ``stored_bytes`` (size of its files), ``moved_bytes`` (bytes
        that were read), ``checkpoints``

    :raises OperationFailed: no backup is created

    :depends: python3-libnbd for /usr/bin/python3; qemu-img and qemu-nbd

    CLI Example:

    .. code-block:: bash

        salt backup1 virt.backup_pull /srv/backup web1 "$IDENT" hyper1 serving="$SERVING"
    """
    serving_info = backup_answers.Serving.from_answer(serving, "serving")
    guest = names.existing_guest(name)
    limit = None if bandwidth is None else units.parse_count(bandwidth, "bandwidth")
    request = receive.BackupRequest(
        ident, guest, values.text(host, "host"), values.text(by, "by"), limit, _key(key),
        backup_policy.compression(compress, key is not None),
    )  # fmt: skip
    library, target = (
        next(iter(saltvirt.__path__)),
        backup_target.open_target(folder, bool(mounted)),
    )
    teller = _backup_progress(guest)
    with _backup_reader(reader, serving_info.authority, "serving: authority") as (_, reader_dir):
        return receive.receive(
            library, target, request, serving_info, reader_dir, teller
        ).to_answer()


def _backup_progress(name):
    """Return a function that sends progress events: ``salt/virt/backup/<name>/progress``."""
    steps_dir = job_steps.folder(__salt__["config.get"])

    def send_progress(progress):
        job_steps.record_step(steps_dir)
        total = max(1, progress["total_bytes"])
        event = {"name": name, "percent": round(100 * progress["done_bytes"] / total), **progress}
        job_steps.send_step(__salt__["event.send"], f"salt/virt/backup/{name}/progress", event)

    return send_progress


def backup_list(folder, uuid=None, mounted=False, name=None, newest=False, after=None):
    """
    List the backups in a folder of this machine. An answer is limited to 256 KiB: call it again
    with ``after`` for the rest.

    :param folder: folder of the target
    :param uuid: UUID of a guest; default: all guests
    :param mounted: True: the folder must be a mount point
    :param name: guests that have or had this name, or have it as UUID; and the guest with ``uuid``
    :param newest: True: only the newest and the newest good backup of each guest
    :param after: ``UUID/IDENT``: only backups after that one

    :return: a list of dictionaries, for each guest the oldest first: ``ident``, ``guest``,
        ``uuid``, ``when``, ``age_s`` (by the clock of this machine), ``host``, ``consistency``,
        ``disks`` (disk to ``whole``, or to the backup that it depends on), ``stored_bytes``,
        ``wrong`` (why it is not good, or cannot be read without its key, or null), ``broken`` (disk
        to the error), ``skipped`` (disks that it does not contain)

    :raises InvalidInput: the folder does not exist, or others can write to it

    CLI Example:

    .. code-block:: bash

        salt backup1 virt.backup_list /srv/backup
    """
    target = backup_target.open_target(folder, bool(mounted))
    after_record = None
    if after is not None:
        last, _, ident = values.text(after, "after").partition("/")
        after_record = (last, ident)
    guest_name = None if name is None else names.existing_guest(name)
    records = receive.listing(target, uuid, guest_name, bool(newest), after_record)
    return pages.page(record.to_answer() for record in records)


def backup_show(
    folder, uuid, backup, reader, mounted=False, stand=None, disk=None, damaged=False
):  # fmt: skip
    """
    Export a backup in a folder of this machine to a hypervisor by NBD over TLS, read-only, until
    ``virt.backup_hide``, or until nothing has been read for two minutes. It is not removed
    meanwhile. For a guest that runs from it, it is exported until ``virt.backup_let_go``, or until
    nothing has been read for a day.

    :param folder: folder of the target
    :param uuid: UUID of the guest
    :param backup: name or number of the backup, or ``latest``
    :param reader: the only admitted client: the answer of ``virt.backup_reader`` on the hypervisor
    :param mounted: True: the folder must be a mount point
    :param stand: dictionary with the ``guest`` that runs from the backup and its ``host``: the
        backup is not removed before ``virt.backup_let_go``, exported or not
    :param disk: only this disk, by its target
    :param damaged: True: export also a backup that is not good, with all disks that can be opened

    :return: a dictionary: ``ident``, ``guest``, ``host`` and ``port``, ``definition``, ``disks`` (a
        list: ``target``, ``size_bytes``), ``authority`` (PEM of the certificate), ``damaged``

    :raises NotFound: the backup does not exist, or does not contain the disk
    :raises BadAnswer: the backup is not good

    CLI Example:

    .. code-block:: bash

        salt backup1 virt.backup_show /srv/backups "$UUID" latest "$READER"
    """
    backup_target.open_target(folder, bool(mounted))
    serve_config = backup_request.load_config(__salt__["config.get"], __opts__["id"])
    pinned_by = None if stand is None else backup_stand.BackupPin.from_answer(stand, "stand")
    if pinned_by:
        pinned_by = backup_stand.BackupPin(
            names.existing_guest(pinned_by.guest), values.text(pinned_by.host, "host"), _now()
        )
    only = None if disk is None else values.text(disk, "disk")
    request = showing.ShowRequest(
        folder, str(uuid), str(backup), _backup_endpoint(serve_config, reader), pinned_by, only,
        values.flag(damaged, "damaged"),
    )  # fmt: skip
    return showing.show(next(iter(saltvirt.__path__)), request, serve_config.host).to_answer()


def backup_hide(reader):
    """
    End the export of ``virt.backup_show``, after the backup was read.

    :param reader: the client, as given to ``virt.backup_show``

    :return: True if something was exported to it

    CLI Example:

    .. code-block:: bash

        salt backup1 virt.backup_hide "$READER"
    """
    return showing.hide(values.text(reader, "reader"))


def _now():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def backup_restore(
    name, shown, itself=False, over=False, stop=False, disk=None, instant=False, bandwidth=None,
    reader=None, seed=None, **kwargs,
):  # fmt: skip
    """
    Create a guest from a backup that is exported to this host (``virt.backup_show``). The guest is
    off. Its disks are qcow2 files of their own in the folder of ``virt:images``; CD and floppy
    drives are empty.

    :param name: of the new guest
    :param shown: the answer of ``virt.backup_show``
    :param itself: True: restore the guest itself, with its UUID and addresses; no other guest may
        have them. Otherwise they are new
    :param over: True: replace the guest of that name and UUID, which must be off. Its definition
        and disks are kept until ``virt.backup_confirm`` or ``virt.backup_undo``
    :param stop: with ``over``: power off the guest when the new disks are ready
    :param disk: with ``over``: replace only this disk
    :param instant: True: start the guest immediately and copy its blocks while it runs:
        ``virt.backup_standing`` shows the progress
    :param bandwidth: with ``instant``: bandwidth limit in MiB/s
    :param reader: the answer of ``virt.backup_reader`` with ``once``; default: its answer without
        ``once``
    :param seed: without ``itself`` and ``over``: give the system in the guest a new machine-id,
        host name, SSH host keys and minion key, as ``virt.clone`` does; default: if ``virt.init``
        seeded the guest of the backup
    :param overcommit: do it even if the host does not have enough free capacity; default:
        ``virt:overcommit``, else False
    :param placement: the master's policy, sent by the runner; default: ``virt:placement`` of this
        host
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: as ``virt.clone``

    :raises AlreadyExists: the name, or a disk file, exists
    :raises Refused: this host does not have enough memory, CPUs or disk space; with ``over``: the
        guest runs, has snapshots or saved memory, or an earlier restore was not confirmed
    :raises OperationFailed: everything is rolled back

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.backup_restore web1-old shown="$SHOWN"
    """
    from saltvirt.backup.export import in_place_restore as in_place  # noqa: PLC0415 - needs the binding
    from saltvirt.backup.export import live_restore_build as live_restores  # noqa: PLC0415 - needs the binding
    from saltvirt.backup.export import live_restore_server, restore  # noqa: PLC0415 - needs the binding

    arguments, stop = dict(kwargs), values.flag(stop, "stop")
    itself, over = values.flag(itself, "itself"), values.flag(over, "over")
    request, tools, backup_info = _restore_inputs(name, shown, arguments)
    if not (itself or over):
        request.seed = backup_info.seeded if seed is None else values.boolean(seed, "seed")
    only = None if disk is None else values.text(disk, "disk")
    limit = None if bandwidth is None else units.parse_count(bandwidth, "bandwidth")
    reading = _backup_reader(reader, backup_info.authority, "shown")
    with _connect(arguments) as conn, reading as (pair, reader_dir):
        parts = conn, request, tools, backup_info, reader_dir
        if values.flag(instant, "instant"):
            reader_pair = request.name, pair.certificate, pair.key
            keeper = live_restore_server.make_request(
                __salt__["config.get"], arguments, *reader_pair
            )
            live_restore = live_restores.LiveRestoreOptions(
                next(iter(saltvirt.__path__)), keeper, limit
            )
            last = (stop, only) if over else (itself,)
            return live_restores.make_builder(live_restore, parts, last).run().to_answer()
        if over:
            return in_place.InPlaceRestore(*parts, stop, only).run().to_answer()
        result = restore.RestoreBuilder(*parts, itself).run()
    if not result.pub_key or __opts__.get("file_client") == "local":
        return result.to_answer()
    if not client.submit_key(__salt__, result.name, result.pub_key):
        warning = client.pending_key_note(result.name, __opts__["id"])
        result = dataclasses.replace(result, warnings=(*result.warnings, warning))
    return result.to_answer()


def backup_disk(name, shown, disk, reader=None, **kwargs):
    """
    Copy one disk of a backup that is exported to this host (``virt.backup_show``) to a file in the
    folder of ``virt:images``. No guest has it.

    :param name: name of the guest
    :param shown: the answer of ``virt.backup_show``
    :param disk: target of the disk, such as ``vdb``
    :param reader: as for ``virt.backup_restore``
    :param overcommit: do it even if the host does not have enough free capacity; default:
        ``virt:overcommit``, else False
    :param placement: the master's policy, sent by the runner; default: ``virt:placement`` of this
        host
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary: ``path`` of a qcow2 file, ``size_bytes`` of the disk

    :raises NotFound: the backup does not contain the disk
    :raises Refused: this host does not have enough disk space
    :raises OperationFailed: everything is rolled back

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.backup_disk web1 shown="$SHOWN" disk=vdb
    """
    from saltvirt.backup.export import in_place_restore as in_place  # noqa: PLC0415 - needs the binding
    from saltvirt.backup.export import restore  # noqa: PLC0415 - needs the binding

    arguments = dict(kwargs)
    request, tools, backup_info = _restore_inputs(name, shown, arguments)
    target = values.text(disk, "disk")
    reading = _backup_reader(reader, backup_info.authority, "shown")
    with _connect(arguments) as conn, reading as (_, reader_dir):
        disk_restore = restore.RestoreBuilder(conn, request, tools, backup_info, reader_dir, True)
        return in_place.one_disk(conn, tools, request.name, disk_restore, target).to_answer()


def _restore_inputs(name, shown, arguments):
    """The request, the tools and the backup of a restore."""
    connection.require_binding()
    config = admission.config_of(__salt__["config.get"], arguments)
    backup_info = backup_answers.ShownBackup.from_answer(shown, "shown")
    request = guest_builder.GuestRequest(names.guest(name))
    minion_tools = guest_tools.MinionTools(
        __salt__, __opts__, client.virtkey(__salt__), files.Chunks(__opts__).read
    )
    deploy = deploy_spec.DeploySpec.parse({}, "backup_restore")
    tools = minion_tools.tools(request.name, deploy, config, "backup_restore")
    tools.report_step = _step_sender(request.name, "backup_restore")
    return request, tools, backup_info


def _step_sender(name, verb):
    """Return a function that sends steps as events: ``salt/virt/<name>/<verb>/<step>``."""
    steps_dir = job_steps.folder(__salt__["config.get"])

    def send_step(step, message, /, within_s=0, **data):
        job_steps.record_step(steps_dir, within_s)
        event = {"id": name, "message": message, **data}
        job_steps.send_step(__salt__["event.send"], f"salt/virt/{name}/{verb}/{step}", event)

    return send_step
