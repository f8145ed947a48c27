"""
Migrate guests of this hypervisor.

:depends: libvirt-python in Salt's own Python; qemu-img

The guest's own host controls a migration: it connects to the other libvirt over TLS with its client
certificate, queries it, prepares it and migrates the guest. ``salt-run virt.migrate`` does the same
and only needs the guest's name.

.. code-block:: yaml

    virt:
      tunnel: False           # True: all through libvirt's own port; memory only
      migration:
        address: 10.9.0.0/24  # network, address or name at which this host receives guests;
                              # default: its host name
        bandwidth: 1000       # MiB/s
        policy: converge      # or safe, postcopy, pause
        timeout_per_gib: 300  # seconds per GiB of memory and disk; at least 300 s in total
        stall_timeout: 150    # seconds without progress
        longest_pause: 60     # seconds, for the policy pause
"""

import dataclasses
import logging
from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt import errors, names, settings
    from saltvirt.answers import migration as migration_answer
    from saltvirt.answers import removal as removal_answer
    from saltvirt.host import connection
    from saltvirt.host.domain import guest_lock
    from saltvirt.host.network import host_addresses
    from saltvirt.host.node import job_steps
    from saltvirt.host.provision import admission
    from saltvirt.host.storage import sharing
    from saltvirt.migration import incoming_address, options, transport
    from saltvirt.pki.host import validity
    from saltvirt.placement import policy
    from saltvirt.spec import base, values

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__virtualname__ = "virt"
__outputter__ = saltvirt.OUTPUTTERS

log = logging.getLogger(__name__)


def __virtual__():
    return __virtualname__


def _job(vm_, target, kwargs):
    """The api.MigrationJob for the arguments of a call."""
    from saltvirt.host.migration import job as job_module  # noqa: PLC0415 - needs the binding

    arguments = settings.user_kwargs(kwargs)
    connect_args = {k: arguments.pop(k) for k in ("connection",) if k in arguments}
    user, password = arguments.pop("username", None), arguments.pop("password", None)
    # virt:overcommit of this host does not apply to the target
    overcommit = arguments.get("overcommit")
    arguments["overcommit"] = False if overcommit is None else overcommit
    admission_config = admission.config_of(__salt__["config.get"], arguments)
    policies = {k: arguments.pop(k, None) or {} for k in ("ratios", "limits")}
    sent_certificates = base.mapping(arguments.pop("certificates", None) or {}, "certificates")
    certificates = {
        use: migration_answer.Certificate.from_answer(certificate, f"certificates of {target}")
        for use, certificate in sent_certificates.items()
    }
    address = arguments.pop("address", None)
    unmounted = values.paths(arguments.pop("unmounted", None) or [], "unmounted")
    get = __salt__["config.get"]
    configured = options.configured(get)
    host_address = settings.option(get, "migration:address")
    if settings.option(get, "migration:disks_port") is not None:
        log.warning("virt:migration:disks_port has no effect: libvirt chooses the port for disks")
    address = incoming_address.target_address(
        address, host_address, host_addresses.global_addresses
    )
    tunnel = settings.boolean(get, "tunnel", False)
    migrate_options = options.parse(arguments, tunnel, configured.policy)
    name = names.guest(vm_)
    return job_module.MigrationJob(
        name=name,
        transport=transport.parse(target, migrate_options.tunnel),
        options=migrate_options,
        configured=dataclasses.replace(configured, address=address),
        username=user,
        password=password,
        locks=guest_lock.folder(__salt__["config.get"]),
        local=settings.connection(__salt__["config.get"], connect_args),
        placement=admission_config.policy(),
        ratios=policy.ratios(policies["ratios"]),
        limits=policy.limits(policies["limits"]),
        overcommit=admission_config.overcommit,
        unmounted=tuple(unmounted),
        certificates={
            "source": validity.local_certificates(__opts__["id"]),
            "target": certificates,
        },
        notify=_migration_progress(name),
    )


def _migration_progress(name):
    """Return a function that sends progress events: ``salt/virt/migrate/<name>/progress``."""
    steps_dir = job_steps.folder(__salt__["config.get"])

    def send_progress(event):
        job_steps.record_step(steps_dir)
        __salt__["event.send"](f"salt/virt/migrate/{name}/progress", {"name": name, **event})

    return send_progress


def migrate(vm_, target, **kwargs):
    """
    Migrate a guest of this host to another one, including disks that are not shared.

    A running guest is migrated live, a stopped guest as files. Both hosts are checked before
    anything is changed; the answer contains all reasons against the migration. If it fails, the
    guest continues on this host, and the leftovers on the target must be removed there:
    ``salt-run virt.migrate`` does this, otherwise ``salt-run virt.migrate_recover``. If it
    succeeds, the guest is defined on the target, and removed from this host together with its own
    disks.

    :param vm_: name of the guest
    :param target: the target host: its name (TLS), or ``qemu+tls://``, ``qemu+ssh://`` or
        ``qemu+tcp://HOST/system``; only the last is not encrypted
    :param live: False: refuse a running guest. True: let the guest run while its memory is
        transferred, even if QEMU emulates its CPU (domain type ``qemu``); QEMU can lose writes
        then. Default: KVM guests keep running; emulated guests are paused during the transfer,
        unless ``policy``, ``max_downtime``, ``auto_converge`` or ``postcopy`` is given
    :param persistent: define the guest on the target. Default: True
    :param undefinesource: undefine the guest on this host, and remove the disks that were copied.
        Default: True
    :param offline: True: refuse a running guest. Default: False
    :param max_bandwidth: MiB/s
    :param max_downtime: maximum downtime at the end, in ms
    :param parallel_connections: number of connections for the memory
    :param compressed: compress the memory. Default: False
    :param comp_methods: ``mt``, ``xbzrle`` or both, separated by a comma
    :param comp_mt_level: 0 to 9
    :param comp_mt_threads: number of compression threads on this host
    :param comp_mt_dthreads: number of decompression threads on the target
    :param comp_xbzrle_cache: size of the page cache in bytes
    :param copy_storage: ``all``: copy thin disks completely; ``incremental``: require thin disks;
        ``never``: refuse to copy. Default: copy disks that are not shared, and keep thin disks thin
    :param auto_converge: throttle the guest until its memory can be transferred. Default: depends
        on ``policy``
    :param auto_converge_initial: initial throttling in percent
    :param auto_converge_increment: increment of throttling in percent
    :param postcopy: allow ``virt.migrate_start_postcopy``. Default: False
    :param postcopy_bandwidth: bandwidth of the post-copy phase in MiB/s
    :param abort_on_error: abort if a disk reports an error. Default: True
    :param keep_source: keep the copied disks on this host. Default: False
    :param tunnel: overrides ``virt:tunnel``
    :param policy: action if the migration does not converge: ``safe``: abort; ``converge``:
        throttle the guest, permit more downtime in steps, then abort; ``postcopy``: start the guest
        on the target; ``pause``: pause the guest for the rest. Default: ``virt:migration:policy``,
        else ``converge``
    :param other_cpu: True: migrate a running guest with the CPU of its host (``host-passthrough``)
        to a host with another CPU; its programs may crash. Default: False
    :param timeout: timeout of the migration in seconds. Default: 300 for each GiB, at least 300
    :param placement: the master's policy for the target's capacity, sent by the runner; default:
        ``virt:placement`` of this host
    :param ratios: the target's own ``virt:ratios``, sent by the runner
    :param limits: the target's own ``virt:placement``, sent by the runner; stricter limits apply
    :param overcommit: migrate even if the target does not have enough free memory, CPUs or storage.
        Default: False, regardless of ``virt:overcommit`` on this host
    :param certificates: the target's certificates, sent by the runner
    :param address: address of the target's QEMU; ``salt-run virt.migrate`` queries the target's
        ``virt:migration:address``. Without it, an address in this host's ``virt:migration:address``
        that is not its own is used for the target
    :param unmounted: the target's mount points that are not mounted, sent by the runner; nothing is
        copied below them
    :param connection: URI of this host's libvirt, overriding ``virt:connection:uri``
    :param username: user name on the target
    :param password: password on the target

    :return: a dictionary: ``name``, ``source``, ``target``, ``live`` (the guest ran during the
        transfer), ``transport``, ``time_ms``, ``downtime_ms``, ``memory_bytes``, ``disk_bytes``,
        ``disks`` (target to ``shared``, ``copy``, ``overlay``, ``seed`` or ``keep``), ``deleted``
        (files that were removed here), ``retained`` (file to the reason) and, if there are any,
        ``checkpoints_lost`` (checkpoints that the target's libvirt refused, with the reasons)

    :raises InvalidInput: an argument is invalid
    :raises NotFound: the guest does not exist on this host
    :raises TargetRefused: the target refuses the guest; the guest is not changed
    :raises MigrationFailed: lists all reasons, and the host that runs the guest

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' virt.migrate web1 hyper2
        salt 'hyper1' virt.migrate web1 qemu+ssh://hyper2/system max_bandwidth=100
    """
    from saltvirt.host.migration import api  # noqa: PLC0415 - needs the binding

    job = _job(vm_, target, kwargs)
    with connection.connect(job.local) as conn:
        return api.migrate(conn, job).to_answer()


def migratable(vm_, target=None, **kwargs):
    """
    Check whether a guest can be migrated. Changes nothing.

    :param vm_: name of the guest
    :param target: the target host; without it, only the guest itself is checked
    :param kwargs: as for ``virt.migrate``

    :return: a dictionary: ``migratable`` (bool), ``reasons`` (list of messages), ``pinned`` (True
        if it cannot be migrated to any host), and with a target ``disks`` (what would happen to
        each) and ``certificates`` that the migration needs (list of dictionaries: ``host``,
        ``file``, ``valid_until`` (UTC), ``problem``: None, or why it is invalid): those of this
        host, and of the target if the runner asks

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' virt.migratable web1
        salt 'hyper1' virt.migratable web1 hyper2
    """
    from saltvirt.host.migration import api  # noqa: PLC0415 - needs the binding

    job = _job(vm_, target or "localhost", kwargs)
    with connection.connect(job.local) as conn:
        return api.migratable(conn, job, check_target=bool(target)).to_answer()


def migrate_start_postcopy(vm_, **kwargs):
    """
    Switch a migration to post-copy: start the guest on the target; its memory is transferred on
    demand.

    For a running migration with ``postcopy=True`` that has copied its disks. From then on, neither
    host has the complete guest, and the migration cannot be aborted.

    :param vm_: name of the guest
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True if libvirt has switched

    :raises OperationFailed: no such migration is running

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' virt.migrate_start_postcopy web1
    """
    from saltvirt.host.migration import control  # noqa: PLC0415 - needs the binding

    with connection.connect(settings.connection(__salt__["config.get"], kwargs)) as conn:
        return control.start_postcopy(conn, names.guest(vm_))


def migrate_abort(vm_, **kwargs):
    """
    Abort the running migration of a guest; the guest continues on this host.

    :param vm_: name of the guest
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True if libvirt has aborted it

    :raises OperationFailed: no migration is running, or the guest already runs on the target

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' virt.migrate_abort web1
    """
    from saltvirt.host.migration import control  # noqa: PLC0415 - needs the binding

    with connection.connect(settings.connection(__salt__["config.get"], kwargs)) as conn:
        return control.abort(conn, names.guest(vm_))


def migrate_unfinished():
    """
    List interrupted migrations from this host.

    ``virt.migrate`` of the same guest, or ``virt.migrate_recover``, finishes them.

    :return: a dictionary: the guest's name to ``target`` (URI), ``at_work`` (bool) and ``uuid``;
        and ``NAME@HOST`` to the same with ``has_leftovers``: leftovers of a guest that an
        unreachable host may still have

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' virt.migrate_unfinished
    """
    from saltvirt.host.migration import move_journal, unreachable_target  # noqa: PLC0415 - needs the binding

    migrations = {**move_journal.unfinished(), **unreachable_target.unfinished()}
    return {name: migration.to_answer() for name, migration in migrations.items()}


def migrate_recover(vm_, lost=None, elsewhere=(), removed=False, **kwargs):
    """
    Finish an interrupted migration: find the guest, and clean up the other host.

    If the other host does not answer, the migration is only finished if the guest can only be on
    this host, or is known to be elsewhere; leftovers on the other host are removed by a later call.

    :param vm_: name of the guest
    :param lost: name of the other host, if you know that it does not run the guest and never will:
        it is off for good, or you have checked it. The guest then continues on this host. No effect
        if that host answers. This cannot be verified: if it is wrong, the guest runs twice
    :param elsewhere: hosts, other than this one and the target, that have a guest with the same
        UUID, as the runner has found. If the target no longer has it, the migration ends as
        ``moved``, and the guest's leftovers on this host are kept; if this host has a definition
        that is not running, an operator must decide
    :param removed: True: you know that the guest was removed on purpose, and neither host has it.
        The migration ends; its last definition is deleted, and its files are kept
    :param connection: libvirt URI, overriding ``virt:connection:uri``
    :param username: user name on the target
    :param password: password on the target

    :return: a dictionary: ``outcome``: ``moved`` (the guest is on the target, and this host was
        cleaned up), ``undone`` (the guest is on this host), ``removed`` or ``nothing``;
        ``deleted``: files; ``retained``: file to the reason (files on the target are removed by
        ``virt.migrate_clean`` there); ``leftovers``: host to the reason why something is left
        there; ``checkpoints_lost``: as for ``virt.migrate``

    :raises MigrationFailed: an operator must decide; the message has the details
    :raises ConnectionFailed: the other host does not answer and may run the guest

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' virt.migrate_recover web1
        salt 'hyper1' virt.migrate_recover web1 lost=hyper2
    """
    from saltvirt.host.migration import api  # noqa: PLC0415 - needs the binding

    job = _job(vm_, "localhost", kwargs)

    def report_lost(host):
        event_data = {"name": job.name, "lost": host, "host": __opts__["id"]}
        __salt__["event.send"](f"salt/virt/{job.name}/migrate/lost", event_data)

    job = dataclasses.replace(job, on_target_lost=report_lost)
    with connection.connect(job.local) as conn:
        hosts = values.list_of(values.line)(elsewhere, "elsewhere")
        is_removed = values.boolean(removed, "removed")
        return api.recover(conn, job, str(lost) if lost else None, hosts, is_removed).to_answer()


def migrate_clean(vm_, test=False, unused=(), **kwargs):
    """
    Remove leftovers of rolled back migrations of a guest to this host that nothing uses.

    The source has recorded these files and their state. A file is deleted if it is unchanged, if no
    guest, image or program of this host uses it or is based on it, if no QEMU can open it
    meanwhile, and if no other host can have it. In doubt it is kept and reported.
    ``salt-run virt.migrate_recover``, ``virt.migrate`` and ``virt.repair`` call this function, and
    query the other hosts.

    :param vm_: name of the guest
    :param test: only show what would be deleted
    :param unused: paths on shared storage that no other host uses, as the caller has verified; the
        runner asks all other hosts
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary: ``deleted`` (paths) and ``retained`` (path to the reason); with ``test``
        ``delete``, ``keep`` and ``shared`` (files to ask other hosts about, by path). Empty if
        there are no leftovers

    :raises OperationFailed: the guest is being migrated to this host again

    CLI Example:

    .. code-block:: bash

        salt 'hyper2' virt.migrate_clean web1
        salt 'hyper2' virt.migrate_clean web1 test=True
    """
    from saltvirt.host.migration import target_leftovers  # noqa: PLC0415 - needs the binding

    unused, name = values.paths(unused, "unused"), names.guest(vm_)
    admission_config = admission.AdmissionConfig.configured(__salt__["config.get"])
    with connection.connect(settings.connection(__salt__["config.get"], kwargs)) as conn:
        if values.flag(test, "test"):
            todo = target_leftovers.plan(conn, name, admission_config.images_dir, unused)
            if todo is None:
                return {}
            places = sharing.as_data(todo.shared)
            return removal_answer.CleanPlan(tuple(todo.delete), todo.keep, places).to_answer()
        with admission_config.guest("virt.migrate_clean", name):
            deleted, retained = target_leftovers.clean(
                conn, name, admission_config.images_dir, unused
            )
    return removal_answer.CleanupResult(tuple(deleted), retained).to_answer()


def seed_non_shared_migrate(disks, force=False):
    """
    Removed: ``virt.migrate`` prepares the target's disks itself.

    :param disks: as ``virt.get_disks`` returns them
    :param force: no effect

    :raises Unsupported: always; the message says what to call instead

    CLI Example:

    .. code-block:: bash

        salt '*' virt.seed_non_shared_migrate <disks>
    """
    raise errors.Unsupported(
        "virt.seed_non_shared_migrate is no longer needed: virt.migrate NAME HOST prepares "
        "the disks on the target itself, and removes them when the migration fails"
    )


def migrate_non_shared(vm_, target, ssh=False):
    """
    Removed: ``virt.migrate`` copies disks that are not shared.

    :param vm_: name of the guest
    :param target: the target host
    :param ssh: use ``qemu+ssh://HOST/system`` as target instead

    :raises Unsupported: always; the message says what to call instead

    CLI Example:

    .. code-block:: bash

        salt '*' virt.migrate_non_shared web1 hyper2
    """
    raise errors.Unsupported(_replacement(vm_, target, ssh, "copy_storage=all"))


def migrate_non_shared_inc(vm_, target, ssh=False):
    """
    Removed: ``virt.migrate`` copies disks that are not shared, and keeps thin disks thin.

    :param vm_: name of the guest
    :param target: the target host
    :param ssh: use ``qemu+ssh://HOST/system`` as target instead

    :raises Unsupported: always; the message says what to call instead

    CLI Example:

    .. code-block:: bash

        salt '*' virt.migrate_non_shared_inc web1 hyper2
    """
    raise errors.Unsupported(_replacement(vm_, target, ssh, "copy_storage=incremental"))


def _replacement(vm_, target, ssh, storage):
    target_uri = f"qemu+ssh://{target}/system" if ssh else target
    return f"this function was removed: call virt.migrate {vm_} {target_uri} {storage}"
