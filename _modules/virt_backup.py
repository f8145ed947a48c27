"""
Backups of guests: a hypervisor shows the disks of a guest as they are at one moment, and the
machine that has the target reads them from there. ``salt-run virt.backup`` does all of it.
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
    What of a guest can be backed up.

    :param name: the guest's name
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict: ``uuid``, ``active`` (it runs), ``disks`` (a list: ``target``, ``size_bytes``,
        ``source``, ``format``, ``bitmaps``: name to ``good``, ``inconsistent`` or ``disabled``),
        ``checkpoints`` (names), ``skipped`` (disk to why it is in no backup), ``name``

    :raises NotFound: no such guest

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.backup_look web1
    """
    from saltvirt.backup.export import inspect_guest  # noqa: PLC0415 - needs the binding

    with _connect(kwargs) as conn:
        return inspect_guest.inspect(conn, names.existing_guest(name)).to_answer()


def backup_reader(once=False):
    """
    The certificate that this machine shows where it reads a backup: its own, which nobody trusts
    whom the master did not tell to for one backup. It is made when it is first asked for; the key
    stays here, in ``/var/lib/salt-virt/backup-reader``.

    :param once: True: another one, for one ``virt.backup_pull``, ``virt.backup_restore``,
        ``virt.backup_disk`` or ``virt.backup_again`` alone. So who is read cannot lead this machine
        to what another one shows to it meanwhile

    :return: a dict: ``authority`` (in PEM)

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
    """(by which key this machine reads, the folder with that for a program)."""
    with locks.temporary_folder(locks.runtime_folder(), "backup-") as folder:
        pair = _backup_pair() if reader is None else own_pair.take(_ONE_TIME_KEYS, reader, "reader")
        own_pair.trust(folder, pair, authority, field_name)
        yield pair, folder


def _backup_endpoint(shown, reader):
    """Where disks are shown, to whom alone, with a certificate of their own."""
    pair = own_pair.generate(shown.host, certs.SERVER)
    client_ca = own_pair.authority(reader, "reader")
    credentials = tls_listener.TlsCredentials(pair.authority, pair.certificate, pair.key, client_ca)
    return tls_listener.TlsEndpoint(tls_listener.everywhere(), shown.port, relay.PORTS, credentials)


def backup_begin(name, ident, disks, reader, **kwargs):
    """
    Show the disks of a guest, as they are now, to the machine that has the target, until
    ``virt.backup_end``. A guest that runs goes on; its file systems are frozen for the moment by
    its agent, where one answers. One that is off cannot be started meanwhile.

    What is begun ends by itself when nobody reads for two minutes, when the guest stops, and when
    less than 256 MiB are free below ``virt:images``, where what the guest overwrites is kept.

    :param name: the guest's name
    :param ident: what the backup is called
    :param disks: a list with how each disk is to be taken: ``target``, ``parent`` and ``since`` of
        an increment, else ``reason``
    :param reader: who alone may read: what ``virt.backup_reader`` says on the machine of the target
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict: ``host`` and ``port``, ``consistency`` (``frozen``, ``crash``, ``stopped``),
        ``note`` (why file systems were not frozen), ``uuid``, ``definition``, ``disks``,
        ``authority`` (in PEM: of the certificate that is shown, made for this one backup)

    :raises OperationFailed: and then nothing is shown, and nothing is left of it

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
    Show the disks of a guest no more: the end of ``virt.backup_begin``, also of one whose process
    has died.

    :param name: the guest's name
    :param ident: what the backup is called
    :param good: True when the backup is there, whole: then its checkpoint stays
    :param needed: with ``good``: the checkpoints that stay; others of backups go
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict: ``why`` (it had ended by itself before), ``left`` (what could not be taken
        away)

    :raises OperationFailed: libvirt does not end it

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
    End what processes that died have begun for backups of guests of this host, also of guests that
    are on another host by now: the room for what they overwrote is free again. Each
    ``virt.backup_begin`` here does it, and so does ``salt-run virt.backup_due`` on all hosts.

    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a list: the guests of which something was left

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
    How the next backup of a guest is to be taken, by what this machine has in a folder of backups.

    :param folder: of the target
    :param host: the hypervisor that has the guest
    :param look: what ``virt.backup_look`` says there
    :param whole: True to read all disks whole
    :param chain: so many backups at most stand on each other
    :param mounted: True where the folder has to be a mount point
    :param key: with which it is to be encrypted: the name of a file of this machine,
        ``/etc/salt-virt/backup-keys/NAME.key``
    :param reader: True: say also what ``virt.backup_reader`` with ``once`` says

    :return: a dict: ``ident`` (what it will be called), ``disks`` (how each is to be taken),
        ``needed`` (the checkpoints from which next increments begin), ``guest`` and ``host`` (of
        the last backup of that UUID here), ``reader``

    :raises InvalidInput: the folder is missing, or is not root's alone

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
    Read the disks that a hypervisor shows (``virt.backup_begin``), by TLS with the certificate of
    ``virt.backup_reader``, and put the backup into a folder: whole, or not at all.

    :param folder: of the target
    :param name: the guest's name
    :param ident: what the backup is called, by ``virt.backup_plan``
    :param host: the hypervisor that has the guest
    :param serving: what ``virt.backup_begin`` said
    :param by: who asked for it
    :param mounted: True where the folder has to be a mount point
    :param bandwidth: so many MiB/s are read at most
    :param key: with which it is encrypted, as for ``virt.backup_plan``
    :param reader: what ``virt.backup_reader`` with ``once`` said here; default: what it says
        without
    :param compress: ``zstd`` or ``zlib``: how QEMU compresses the disks; default: it does not

    :return: a dict: ``ident``, ``stored_bytes`` (the length of its files), ``moved_bytes`` (so much
        was read), ``checkpoints``

    :raises OperationFailed: and then there is no such backup

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
    teller = _progress_sender(guest)
    with _backup_reader(reader, serving_info.authority, "serving: authority") as (_, reader_dir):
        return receive.receive(
            library, target, request, serving_info, reader_dir, teller
        ).to_answer()


def _progress_sender(name):
    """Progress on the event bus: ``salt/virt/backup/<name>/progress``."""
    steps_dir = job_steps.folder(__salt__["config.get"])

    def send_progress(progress):
        job_steps.record_step(steps_dir)
        total = max(1, progress["total_bytes"])
        event = {"name": name, "percent": round(100 * progress["done_bytes"] / total), **progress}
        job_steps.send_step(__salt__["event.send"], f"salt/virt/backup/{name}/progress", event)

    return send_progress


def backup_list(folder, uuid=None, mounted=False, name=None, newest=False, after=None):
    """
    The backups in a folder of this machine. An answer has 256 KiB at most: ask again with
    ``after`` for what comes behind.

    :param folder: of the target
    :param uuid: of one guest; default: of all
    :param mounted: True where the folder has to be a mount point
    :param name: of guests that have this name, or had it, or have it as UUID; and of ``uuid``
    :param newest: True: of each guest only the last one, and the last good one
    :param after: ``UUID/IDENT``: only those behind that one

    :return: a list of dicts, the oldest of each guest first: ``ident``, ``guest``, ``uuid``,
        ``when``, ``age_s`` (by the clock of this machine), ``host``, ``consistency``, ``disks``
        (disk to ``whole``, or the backup that it stands on), ``stored_bytes``, ``wrong`` (why it
        is not good, or cannot be read without its key, or null), ``broken`` (disk to what is wrong
        with it), ``skipped`` (what of the guest is not in it)

    :raises InvalidInput: the folder is missing, or is not root's alone

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
    Show a backup in a folder of this machine to one hypervisor, by NBD over TLS: read-only, until
    ``virt.backup_hide``, or until nobody has read for two minutes. Meanwhile it is not removed. To
    a guest that stands on it it is shown until ``virt.backup_let_go``, or until nobody has read for
    a day.

    :param folder: of the target
    :param uuid: of the guest
    :param backup: its name, its number, or ``latest``
    :param reader: who alone may read: what ``virt.backup_reader`` says on the hypervisor
    :param mounted: True where the folder has to be a mount point
    :param stand: a dict with the ``guest`` that runs from it and its ``host``: the backup is not
        removed before ``virt.backup_let_go``, whether it is shown or not
    :param disk: only this one, by its target
    :param damaged: True: also where it is not good, all disks that can still be opened

    :return: a dict: ``ident``, ``guest``, ``host`` and ``port``, ``definition``, ``disks`` (a list:
        ``target``, ``size_bytes``), ``authority`` (in PEM: of the certificate that is shown),
        ``damaged``

    :raises NotFound: no such backup, or it has no such disk
    :raises BadAnswer: it is not good

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
    Show a backup no more: the end of ``virt.backup_show`` when all of it was read.

    :param reader: to whom it is shown, as ``virt.backup_show`` was told

    :return: True where something was shown to it

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
    Make a guest of a backup that is shown to this host (``virt.backup_show``). It is off. Its disks
    are qcow2 files of their own in the folder of ``virt:images``; CD and floppy drives are empty.

    :param name: of the new guest
    :param shown: what ``virt.backup_show`` said
    :param itself: True: it is the guest of the backup, with its UUID and addresses, and there is no
        other; else those are new
    :param over: True: it takes the place of the guest of that name and UUID, which is off. How
        that was, and its disks, are kept until ``virt.backup_confirm`` or ``virt.backup_undo``
    :param stop: with ``over``: power the guest off once the new disks are there
    :param disk: with ``over``: of this one disk alone
    :param instant: True: it is started at once, and its blocks are pulled in while it runs:
        ``virt.backup_standing`` says how far that is
    :param bandwidth: with ``instant``: so many MiB/s are pulled in at most
    :param reader: what ``virt.backup_reader`` with ``once`` said here; default: what it says
        without
    :param seed: without ``itself`` and ``over``: give the system in it a machine-id, a host name,
        SSH host keys and a minion's key of its own, as ``virt.clone`` does; default: when the
        guest of the backup was seeded by ``virt.init``
    :param overcommit: do it also where the host has promised its room to others; default:
        ``virt:overcommit``, else False
    :param placement: what the runner sends: the master's policy; default: ``virt:placement`` here
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: what ``virt.clone`` returns

    :raises AlreadyExists: the name, or a file where a disk would go
    :raises Refused: this host lacks memory, CPUs or space; with ``over``: the guest runs, has
        snapshots or saved memory, or an earlier restore of it waits
    :raises OperationFailed: and then nothing of it is left

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.backup_restore web1-old shown="$SHOWN"
    """
    from saltvirt.backup.export import in_place_restore as overs  # noqa: PLC0415 - needs the binding
    from saltvirt.backup.export import live_restore_build as instants  # noqa: PLC0415 - needs the binding
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
            live_restore = instants.LiveRestoreOptions(next(iter(saltvirt.__path__)), keeper, limit)
            last = (stop, only) if over else (itself,)
            return instants.make_builder(live_restore, parts, last).run().to_answer()
        if over:
            return overs.InPlaceRestore(*parts, stop, only).run().to_answer()
        result = restore.RestoreBuilder(*parts, itself).run()
    if not result.pub_key or __opts__.get("file_client") == "local":
        return result.to_answer()
    if not client.submit_key(__salt__, result.name, result.pub_key):
        warning = client.pending_key_note(result.name, __opts__["id"])
        result = dataclasses.replace(result, warnings=(*result.warnings, warning))
    return result.to_answer()


def backup_disk(name, shown, disk, reader=None, **kwargs):
    """
    Make one disk of a backup that is shown to this host (``virt.backup_show``) as a file in the
    folder of ``virt:images``. No guest has it.

    :param name: of the guest
    :param shown: what ``virt.backup_show`` said
    :param disk: its target, as ``vdb``
    :param reader: as for ``virt.backup_restore``
    :param overcommit: do it also where the host has promised its room to others; default:
        ``virt:overcommit``, else False
    :param placement: what the runner sends: the master's policy; default: ``virt:placement`` here
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict: ``path`` of a qcow2 file, ``size_bytes`` of the disk

    :raises NotFound: the backup has no such disk
    :raises Refused: this host lacks space
    :raises OperationFailed: and then nothing of it is left

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.backup_disk web1 shown="$SHOWN" disk=vdb
    """
    from saltvirt.backup.export import in_place_restore as overs  # noqa: PLC0415 - needs the binding
    from saltvirt.backup.export import restore  # noqa: PLC0415 - needs the binding

    arguments = dict(kwargs)
    request, tools, backup_info = _restore_inputs(name, shown, arguments)
    target = values.text(disk, "disk")
    reading = _backup_reader(reader, backup_info.authority, "shown")
    with _connect(arguments) as conn, reading as (_, reader_dir):
        disk_restore = restore.RestoreBuilder(conn, request, tools, backup_info, reader_dir, True)
        return overs.one_disk(conn, tools, request.name, disk_restore, target).to_answer()


def _restore_inputs(name, shown, arguments):
    """What making a guest of a backup works with."""
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
    """The steps as events: ``salt/virt/<name>/<verb>/<step>``."""
    steps_dir = job_steps.folder(__salt__["config.get"])

    def send_step(step, message, /, within_s=0, **data):
        job_steps.record_step(steps_dir, within_s)
        event = {"id": name, "message": message, **data}
        job_steps.send_step(__salt__["event.send"], f"salt/virt/{name}/{verb}/{step}", event)

    return send_step
