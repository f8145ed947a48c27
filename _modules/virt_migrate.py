"""
Moving guests of this hypervisor to another one.

:depends: libvirt-python in Salt's own Python; qemu-img

All of it is done from the guest's own host. It reaches the other libvirt by TLS with its
client certificate, asks it, prepares it and moves the guest there. ``salt-run
virt.migrate`` does the same by the guest's name alone.

.. code-block:: yaml

    virt:
      tunnel: False           # True: all through libvirt's own port; memory only
      migration:
        address: 10.9.0.0/24  # where this host is reached by guests that come: its address
                              # there; or an address or name of its own. Default: its host name
        bandwidth: 1000       # MiB/s
        policy: converge      # or safe, postcopy, pause
        timeout_per_gib: 300  # seconds per GiB of memory and disk; at least 300 s in all
        stall_timeout: 150    # seconds without getting nearer to the end
        longest_pause: 60     # seconds, of policy pause
"""

import dataclasses
import logging
from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt import errors, names, settings
    from saltvirt.answers import guests as guest_answer
    from saltvirt.answers import migration as migration_answer
    from saltvirt.answers import removal as removal_answer
    from saltvirt.host import connection
    from saltvirt.host.domain import guest_lock
    from saltvirt.host.network import host_addresses
    from saltvirt.host.node import job_steps
    from saltvirt.host.provision import admission
    from saltvirt.host.storage import mount_guard, sharing
    from saltvirt.migration import incoming_address, options, transport
    from saltvirt.pki.host import validity
    from saltvirt.placement import policy
    from saltvirt.spec import base, values

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__virtualname__ = "virt"

log = logging.getLogger(__name__)


def __virtual__():
    return __virtualname__


def _config(key, default=None):
    return settings.option(__salt__["config.get"], key, default)


def _job(vm_, target, kwargs):
    """The api.MigrationJob of a call."""
    from saltvirt.host.migration import api  # noqa: PLC0415 - needs the binding

    arguments = settings.user_kwargs(kwargs)
    connect_args = {k: arguments.pop(k) for k in ("connection",) if k in arguments}
    user, password = arguments.pop("username", None), arguments.pop("password", None)
    # virt:overcommit here says nothing of the target's room
    overcommit = arguments.get("overcommit")
    arguments["overcommit"] = False if overcommit is None else overcommit
    admission_config = admission.config_of(__salt__["config.get"], arguments)
    policies = {k: arguments.pop(k, None) or {} for k in ("ratios", "limits")}
    certificates = {
        use: migration_answer.Certificate.from_answer(certificate, f"certificates of {target}")
        for use, certificate in base.mapping(
            arguments.pop("certificates", None) or {}, "certificates"
        ).items()
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
    return api.MigrationJob(
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
        notify=_progress_sender(name),
    )


def _progress_sender(name):
    """Progress on the event bus: ``salt/virt/migrate/<name>/progress``."""
    steps_dir = job_steps.folder(__salt__["config.get"])

    def send_progress(event):
        job_steps.record_step(steps_dir)
        __salt__["event.send"](f"salt/virt/migrate/{name}/progress", {"name": name, **event})

    return send_progress


def migrate(vm_, target, **kwargs):
    """
    Move a guest of this host to another one, with its disks where they are not shared.

    A running guest moves live, a stopped one as files. Before anything is changed, both
    hosts are checked; every reason against the move is in one answer. On a failure the
    guest runs on here, and what was prepared on the target is the target's to remove: ``salt-run
    virt.migrate`` asks for it, else ``salt-run virt.migrate_recover`` does. After success the
    guest is defined on the target, and gone from here with its own disks.

    :param vm_: name of the guest
    :param target: the other host: its name (reached by TLS), or ``qemu+tls://``,
        ``qemu+ssh://`` or ``qemu+tcp://HOST/system``; only the last is not encrypted
    :param live: False refuses to move a running guest. True lets it run while its memory
        travels also where QEMU emulates its CPU (a domain of type ``qemu``): QEMU can lose
        writes then. Default: a guest of KVM runs on; an emulated one is paused while its memory
        travels, unless ``policy``, ``max_downtime``, ``auto_converge`` or ``postcopy`` is given
    :param persistent: define the guest on the target. Default: True
    :param undefinesource: undefine the guest here, and remove the disks that were copied.
        Default: True
    :param offline: True refuses to move a guest that runs. Default: False
    :param max_bandwidth: MiB/s
    :param max_downtime: how long the guest may be paused at the end, in ms
    :param parallel_connections: number of connections for the memory
    :param compressed: compress the memory. Default: False
    :param comp_methods: ``mt``, ``xbzrle`` or both with a comma
    :param comp_mt_level: 0 to 9
    :param comp_mt_threads: compressing threads here
    :param comp_mt_dthreads: decompressing threads on the target
    :param comp_xbzrle_cache: size of the page cache in bytes
    :param copy_storage: ``all`` makes whole disks of thin ones, ``incremental`` demands thin
        ones, ``never`` refuses to copy. Default: copy what is not shared, thin stays thin
    :param auto_converge: slow the guest down until its memory can be sent. Default: as
        ``policy`` says
    :param auto_converge_initial: percent of the first slowing down
    :param auto_converge_increment: percent of each further one
    :param postcopy: allow ``virt.migrate_start_postcopy``. Default: False
    :param postcopy_bandwidth: MiB/s after that
    :param abort_on_error: end it when a disk reports an error. Default: True
    :param keep_source: leave the copied disks here. Default: False
    :param tunnel: overrides ``virt:tunnel``
    :param policy: when it does not converge: ``safe`` aborts; ``converge`` slows the
        guest, allows more downtime in steps, then aborts; ``postcopy`` starts the guest on
        the target; ``pause`` pauses it for the rest. Default: ``virt:migration:policy``,
        else ``converge``
    :param other_cpu: True moves a running guest that has the CPU of its host itself
        (``host-passthrough``) to a host with another CPU; its programs may die. Default: False
    :param timeout: seconds for the whole. Default: 300 per GiB, at least 300
    :param placement: what the runner sends: the master's policy, which says how full the target
        may get; default: ``virt:placement`` here
    :param ratios: the target's own ``virt:ratios``, as the runner has asked for them
    :param limits: the target's own ``virt:placement``: what is stricter there holds
    :param overcommit: move it also where the target has promised its memory, CPUs or storage to
        others. Default: False, whatever ``virt:overcommit`` says here
    :param certificates: the target's, as the runner has asked for them
    :param address: where the target's QEMU is reached; ``salt-run virt.migrate`` asks the target
        for its own ``virt:migration:address``. Without it an address in this host's own
        ``virt:migration:address`` that is not this host's is taken for the target's
    :param unmounted: the target's mount points on which nothing is mounted, as the runner has asked
        for them: nothing is copied below them
    :param connection: URI of our own libvirt, overriding ``virt:connection:uri``
    :param username: to connect with on the target
    :param password: to connect with on the target

    :return: dict: ``name``, ``source``, ``target``, ``live`` (it ran while its memory
        travelled), ``transport``, ``time_ms``, ``downtime_ms``, ``memory_bytes``,
        ``disk_bytes``, ``disks`` (vda: ``shared``, ``copy``, ``overlay``, ``seed`` or ``keep``),
        ``deleted`` (files removed here), ``kept`` (file: why it was left), where there are some
        ``checkpoints_lost`` (of the guest, which the target's libvirt did not take: why)

    :raises InvalidInput: an argument is wrong
    :raises NotFound: no such guest here
    :raises TargetRefused: this target does not take it; the guest stays as it was
    :raises MigrationFailed: all the reasons, and where the guest runs

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
    Can this guest be moved, and if not, why? Changes nothing.

    :param vm_: name of the guest
    :param target: the host to move it to; without one only the guest itself is looked at
    :param kwargs: as for ``virt.migrate``

    :return: dict: ``migratable`` (bool), ``reasons`` (list of sentences), ``standing`` (True when
        it can go nowhere), and with a target
        ``disks`` (what would happen to each) and ``certificates`` (list of dicts: ``host``,
        ``file``, ``until`` (UTC), ``wrong``: None, or why it does not hold), those that the
        move needs: this host's, and the target's when the runner asks

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
    Start the guest on the target now; its memory follows as it is needed.

    For a migration that runs with ``postcopy=True`` and has copied its disks. From here
    on neither host alone has the whole guest: it cannot be aborted any more.

    :param vm_: name of the guest
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True when libvirt has switched

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
    End the running migration of a guest; the guest runs on here.

    :param vm_: name of the guest
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True when libvirt has ended it

    :raises OperationFailed: none is running, or it has begun to run on the target

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' virt.migrate_abort web1
    """
    from saltvirt.host.migration import control  # noqa: PLC0415 - needs the binding

    with connection.connect(settings.connection(__salt__["config.get"], kwargs)) as conn:
        return control.abort(conn, names.guest(vm_))


def migrate_unfinished():
    """
    Migrations from this host that were killed half way.

    ``virt.migrate`` of the same guest, or ``virt.migrate_recover``, ends them.

    :return: dict: the guest's name to ``target`` (URI), ``at_work`` (bool) and ``uuid``;
        and ``NAME@HOST`` to the same with ``left``: what a host that did not answer may still hold
        for a guest

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' virt.migrate_unfinished
    """
    from saltvirt.host.migration import move_journal, unreachable_target  # noqa: PLC0415 - needs the binding

    migrations = {**move_journal.unfinished(), **unreachable_target.unfinished()}
    return {name: migration.to_answer() for name, migration in migrations.items()}


def _address():
    """What this host says of itself; a mistake in it is no reason to say nothing of its guests."""
    try:
        return incoming_address.advertised(
            _config("migration:address"), host_addresses.global_addresses
        )
    except errors.InvalidInput as exc:
        log.warning("%s", exc)
        return None


def migrate_locations(**kwargs):
    """
    What the master's ``virt.migrate`` asks of every host: guests, and whether it takes more.

    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: dict: ``guests`` (name to state), ``unfinished`` (names of guests whose migration
        from here was broken off), ``target_leftovers`` (names of guests of whose undone
        migration to here something is still here), ``ratios``, ``limits`` (its ``virt:placement``),
        ``maintenance`` (the reason, or None), ``address`` (where guests that come reach it;
        None: by its name),
        ``certificates`` (those of this host: use to ``host``, ``file``, ``until``, ``wrong``),
        ``uuids`` (name to UUID), ``unmounted`` (its mount points on which nothing is mounted)

    CLI Example:

    .. code-block:: bash

        salt '*' virt.migrate_locations
    """
    from saltvirt.host.domain import lookup  # noqa: PLC0415
    from saltvirt.host.migration import move_journal, target_leftovers  # noqa: PLC0415
    from saltvirt.host.node import maintenance  # noqa: PLC0415

    with connection.connect(settings.connection(__salt__["config.get"], kwargs)) as conn:
        guests, uuids = lookup.states(conn), lookup.uuids(conn)
    return guest_answer.MigrationFacts(
        guests=guests,
        uuids=uuids,
        unfinished=tuple(move_journal.names()),
        target_leftovers=tuple(target_leftovers.names()),
        ratios=_config("ratios", {}),
        limits=_config("placement", {}),
        address=_address(),
        certificates=validity.local_certificates(__opts__["id"]),
        maintenance=maintenance.reason(),
        unmounted=tuple(mount_guard.unmounted_points()),
    ).to_answer()


def migrate_census(**kwargs):
    """
    The old name of :func:`migrate_locations`, until the next release: a master that is not updated
    yet asks for it.

    :param connection: see there
    :param username: see there
    :param password: see there

    :return: the same, with ``leavings`` for ``target_leftovers``, too

    CLI Example:

    .. code-block:: bash

        salt '*' virt.migrate_census
    """
    locations = migrate_locations(**kwargs)
    return {**locations, "leavings": locations["target_leftovers"]}


def migrate_recover(vm_, lost=None, elsewhere=(), removed=False, **kwargs):
    """
    End a migration that was killed half way: find the guest, clean the other host.

    When the other host does not answer, it ends only where the guest can be nowhere but here,
    or is known to be elsewhere; what that host still holds is taken away by a later call.

    :param vm_: name of the guest
    :param lost: the other host's name, by a person who knows that it does not run the guest and
        will not when it comes back: off for good, or looked at. The guest then goes on here
        without it. Of no effect when that host answers. Nothing here tells whether it is true:
        if it is not, the guest runs twice
    :param elsewhere: hosts, besides this one and the target, that have a guest of the same UUID:
        the runner asks all. Where the target does not have it any more, the migration ends as
        ``moved``, and what the guest left here stays; where this host has a definition of it that
        does not run, a person decides
    :param removed: True: you know that the guest was removed on purpose. Where neither host has it,
        its migration ends as ``removed``, and what it left here stays; its definition goes
    :param connection: libvirt URI, overriding ``virt:connection:uri``
    :param username: to connect with on the target
    :param password: to connect with on the target

    :return: dict: ``outcome``: ``moved`` (it is on the target, and was cleaned up here),
        ``undone`` (it is here), ``removed`` or ``nothing``; ``deleted``: files; ``kept``: file to
        why it stays: what was made on the target is the target's to take away, see
        ``virt.migrate_clean``;
        ``left``: host to why something is still there; ``checkpoints_lost``: as of ``virt.migrate``

    :raises MigrationFailed: a person must decide; the message says what
    :raises ConnectionFailed: the other host does not answer and may run the guest

    CLI Example:

    .. code-block:: bash

        salt 'hyper1' virt.migrate_recover web1
        salt 'hyper1' virt.migrate_recover web1 lost=hyper2
    """
    from saltvirt.host.migration import api  # noqa: PLC0415 - needs the binding

    job = _job(vm_, "localhost", kwargs)

    def given_up(host):
        event_data = {"name": job.name, "lost": host, "host": __opts__["id"]}
        __salt__["event.send"](f"salt/virt/{job.name}/migrate/lost", event_data)

    job = dataclasses.replace(job, given_up=given_up)
    with connection.connect(job.local) as conn:
        hosts = values.list_of(values.line)(elsewhere, "elsewhere")
        is_removed = values.boolean(removed, "removed")
        return api.recover(conn, job, str(lost) if lost else None, hosts, is_removed).to_answer()


def migrate_clean(vm_, test=False, unused=(), **kwargs):
    """
    Take away what undone migrations of a guest to this host have made here, and nobody uses.

    Their source has written down what that is, and how it looked. A file goes when it looks as it
    did, no guest, image or program of this host uses it or is based on it, no QEMU can open it
    meanwhile, and no other host can have it. In doubt it stays, and is named. ``salt-run
    virt.migrate_recover``, ``virt.migrate`` and ``virt.repair`` call it, and ask the other hosts.

    :param vm_: name of the guest
    :param test: only say what would be deleted
    :param unused: paths on storage that other hosts may have, of which the caller knows from all
        of them that nobody there uses them; the runner asks by ``virt.storage_users``
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: dict: ``deleted`` (paths) and ``kept`` (path to the reason); with ``test``
        ``delete``, ``keep`` and ``shared`` (what to ask other hosts about, by path). Empty where
        there is nothing of such a migration

    :raises OperationFailed: the guest is on its way here again

    CLI Example:

    .. code-block:: bash

        salt 'hyper2' virt.migrate_clean web1
        salt 'hyper2' virt.migrate_clean web1 test=True
    """
    from saltvirt.host.migration import target_leftovers  # noqa: PLC0415 - needs the binding

    unused = values.paths(unused, "unused")
    name, admission_config = (
        names.guest(vm_),
        admission.AdmissionConfig.configured(__salt__["config.get"]),
    )
    with connection.connect(settings.connection(__salt__["config.get"], kwargs)) as conn:
        if test:
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
    Not needed any more: ``virt.migrate`` prepares the target's disks itself.

    :param disks: as ``virt.get_disks`` returns them
    :param force: of no effect

    :raises Unsupported: always, and says what to call instead

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
    Gone: ``virt.migrate`` copies what is not shared.

    :param vm_: name of the guest
    :param target: the other host
    :param ssh: use ``qemu+ssh://HOST/system`` as target instead

    :raises Unsupported: always, and says what to call instead

    CLI Example:

    .. code-block:: bash

        salt '*' virt.migrate_non_shared web1 hyper2
    """
    raise errors.Unsupported(_replacement(vm_, target, ssh, "copy_storage=all"))


def migrate_non_shared_inc(vm_, target, ssh=False):
    """
    Gone: ``virt.migrate`` copies what is not shared, and keeps thin disks thin.

    :param vm_: name of the guest
    :param target: the other host
    :param ssh: use ``qemu+ssh://HOST/system`` as target instead

    :raises Unsupported: always, and says what to call instead

    CLI Example:

    .. code-block:: bash

        salt '*' virt.migrate_non_shared_inc web1 hyper2
    """
    raise errors.Unsupported(_replacement(vm_, target, ssh, "copy_storage=incremental"))


def _replacement(vm_, target, ssh, storage):
    target_uri = f"qemu+ssh://{target}/system" if ssh else target
    return f"this function was removed: call virt.migrate {vm_} {target_uri} {storage}"
