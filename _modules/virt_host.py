"""
Show the hypervisor, manage its certificates, and answer the master's runner.

Every function that uses libvirt accepts ``connection``, ``username`` and ``password``; the defaults
are ``virt:connection:uri`` and ``virt:connection:auth``.

:depends: libvirt-python in Salt's own Python, except for certificates
"""

import collections
import contextlib
import functools
import importlib
import logging
import os
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt import errors, settings, units, version
    from saltvirt.answers import calls
    from saltvirt.fleet import proof
    from saltvirt.fleet.minion import client, events
    from saltvirt.host import connection
    from saltvirt.host.capabilities import query
    from saltvirt.host.node import detect, devices, info, job_steps, running_guests
    from saltvirt.host.node import maintenance as host_maintenance
    from saltvirt.host.provision import admission
    from saltvirt.pki.host import converge, request
    from saltvirt.pki.host import info as certificate_info
    from saltvirt.rights import confidential
    from saltvirt.spec import base, profiles, values
    from saltvirt.system import full_disk

if TYPE_CHECKING:
    from salt_dunders import __context__, __grains__, __opts__, __salt__

__virtualname__ = "virt"
__outputter__ = saltvirt.OUTPUTTERS

log = logging.getLogger(__name__)
# further functions that the runner calls; find_job: for jobs that started before an update
_EXTRA_FUNCTIONS = ("test.ping", "saltutil.find_job")


def __virtual__():
    return __virtualname__


def _connect(kwargs):
    return connection.connect(settings.connection(__salt__["config.get"], kwargs))


def node_info(**kwargs):
    """
    Show CPU and memory of the host.

    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary: ``cpumodel`` (the architecture), ``cpus`` (online threads), ``cpumhz``,
        ``phymemory`` (MiB), ``numanodes``, ``sockets`` (of a node), ``cpucores`` (of a socket),
        ``cputhreads`` (of a core)

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.node_info
    """
    with _connect(kwargs) as conn:
        return info.node(conn)


def freemem(**kwargs):
    """
    Show the memory of the host that is not allocated to running guests.

    256 MiB are reserved for the host itself. Guests that are off are not counted.

    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: MiB, as int; negative if memory is overcommitted

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.freemem
    """
    with _connect(kwargs) as conn:
        return info.free_memory_mib(conn)


def freecpu(**kwargs):
    """
    Show the number of the host's CPUs minus the vCPUs of running guests.

    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a number, as int; negative if CPUs are overcommitted

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.freecpu
    """
    with _connect(kwargs) as conn:
        return info.free_cpus(conn)


def node_devices(**kwargs):
    """
    List the host devices that can be assigned to guests, and the network cards.

    PCI bridges, USB hubs and virtual interfaces (bridges, taps) are not listed.

    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a list of dictionaries. PCI and USB devices: ``caps``, ``name`` (libvirt's),
        ``vendor_id``, ``product_id``, ``vendor`` and ``product`` if known, ``address``
        (``0000:00:1f.2``, or ``001:003`` for bus and device), ``PCI class``, ``virtual functions``,
        ``physical function``. Network cards: ``caps``, ``name``, ``address`` (MAC), ``device name``
        (of the PCI device), ``state``. A device that cannot be read: ``name`` and ``error``.

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.node_devices
    """
    with _connect(kwargs) as conn:
        return devices.devices(conn)


def virt_type():
    """
    Show what kind of machine this is, from Salt's grain ``virtual``: ``physical``, ``kvm`` and
    others.

    :return: a string

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.virt_type
    """
    return __grains__["virtual"]


def get_hypervisor():
    """
    Show which kind of hypervisor this machine is.

    Only files are read: libvirt's daemon (monolithic or modular) must run or have an active socket,
    and a hypervisor must be available to it.

    :return: ``kvm``, ``xen``, ``bhyve``, ``lxc``, or ``qemu`` if there is no /dev/kvm; None if it
        is not a hypervisor

    CLI Example:

    .. code-block:: bash

        salt '*' virt.get_hypervisor
    """
    return detect.detect(os.uname().machine)["type"]


def is_hyper():
    """
    Check whether this machine is a hypervisor.

    :return: True or False

    CLI Example:

    .. code-block:: bash

        salt '*' virt.is_hyper
    """
    return detect.detect(os.uname().machine)["hypervisor"]


def capabilities(**kwargs):
    """
    Show the host's capabilities: CPU, memory, security, and which guests it can run.

    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary: ``host`` (``uuid``, ``cpu``, ``power_management``, ``migration``,
        ``topology``, ``cache``, ``security``) and ``guests``, a list of ``os_type``, ``arch``
        (``name``, ``wordsize``, ``emulator``, ``machines``, ``domains``) and ``features``. See
        https://libvirt.org/formatcaps.html

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.capabilities
    """
    with _connect(kwargs) as conn:
        return query.host(conn)


def domain_capabilities(emulator=None, arch=None, machine=None, domain=None, **kwargs):
    """
    Show the capabilities for a kind of guest: CPU models, devices, firmware.

    By default, libvirt selects the values; they are those of :func:`capabilities`.

    :param emulator: path of the emulator
    :param arch: CPU architecture, for example ``x86_64``
    :param machine: machine type, for example ``q35``
    :param domain: domain type, for example ``kvm`` or ``qemu``
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary: ``emulator``, ``domain``, ``machine``, ``arch``, ``max_vcpus``,
        ``iothreads``, ``os``, ``cpu``, ``devices``, ``features``. See
        https://libvirt.org/formatdomaincaps.html

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.domain_capabilities arch=x86_64 domain=kvm
    """
    with _connect(kwargs) as conn:
        return query.domain(conn, emulator, arch, machine, domain)


def all_capabilities(**kwargs):
    """
    Show :func:`capabilities`, and :func:`domain_capabilities` of each kind of guest.

    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary: ``host`` and ``domains``, a list. If libvirt cannot report a kind, it has
        an ``error`` with its ``emulator``, ``arch`` and ``domain``.

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.all_capabilities
    """
    with _connect(kwargs) as conn:
        return query.everything(conn)


def cpu_baseline(full=False, migratable=False, out="libvirt", **kwargs):
    """
    Compute the best CPU definition for guests of this host.

    :param full: list all CPU features, not only those in addition to the closest model
    :param migratable: exclude features that prevent migration
    :param out: ``libvirt``: XML for a guest; ``salt``: a dictionary
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: XML text, or a dictionary with ``model``, ``vendor`` and ``features`` (names)

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.cpu_baseline migratable=True out=salt
    """
    if out not in ("libvirt", "salt"):
        raise errors.InvalidInput(f"out must be libvirt or salt, not {out!r}")
    with _connect(kwargs) as conn:
        cpu = query.cpu_baseline(conn, full, migratable)
    if out == "libvirt":
        return ElementTree.tostring(cpu, encoding="unicode")
    return {
        "model": cpu.findtext("model"),
        "vendor": cpu.findtext("vendor"),
        "features": [feature.get("name") for feature in cpu.findall("feature")],
    }


def get_profiles(hypervisor=None, **kwargs):
    """
    Show the disk and NIC profiles for guests of this host, with defaults.

    They are configured as ``virt:disk`` and ``virt:nic`` (minion, master or pillar). ``default``
    always exists.

    :param hypervisor: domain type, for example ``kvm`` or ``xen``; default: the host's, preferably
        KVM
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary: ``disk`` and ``nic``, each a dictionary of profile names to lists of
        devices

    :raises Unsupported: libvirt cannot run guests on this host

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.get_profiles
        salt 'hyper*' virt.get_profiles hypervisor=xen
    """
    with _connect(kwargs) as conn:
        hypervisor = hypervisor or query.preferred_type(conn)
    return profiles.show(profiles.read(__salt__["config.get"]), hypervisor)


def versions():
    """
    Show the versions of Salt Virt, Salt, Python and libvirt on this host.

    libvirt's daemon is not queried, so it may be down.

    :return: a dictionary: ``salt_virt``, ``install_method`` (``sync`` or ``pip``), ``digest`` (12
        hexadecimal digits over the library's files, independent of how it was installed), ``path``
        (folder that it is imported from), ``salt``, ``python``, ``libvirt`` (of the library; None
        without the Python binding)

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.versions
    """
    return version.versions(connection.library_version()).to_answer()


def nesthash(value=None):
    """
    Return a dictionary that creates nested dictionaries for missing keys.

    For templates and other modules that build nested data.

    :param value: initial dictionary

    :return: the dictionary

    CLI Example:

    .. code-block:: bash

        salt-call virt.nesthash "{a: 1}"
    """
    return collections.defaultdict(nesthash, base.mapping(value or {}, "value"))


def running_names():
    """
    List the guests with a running process, from libvirt's files, for use when its daemon is stopped
    or removed. ``virt.list_active_vms`` queries the daemon.

    :return: a sorted list of names

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.running_names
    """
    return running_guests.names()


def maintenance(reason=None, guests=None, off=False):
    """
    Show, set or clear the maintenance mark of this host. A host in maintenance gets no new guests.

    :param reason: set the mark with this reason
    :param guests: list of guests that were moved away, for ``virt.restore`` of the runner; default
        with ``reason``: unchanged
    :param off: clear the mark; with ``guests``, the host accepts guests again and keeps the list

    :return: the current mark: a dictionary of ``reason`` (None if the host accepts guests) and
        ``guests``, or None

    :raises InvalidInput: the reason is empty or too long, or ``guests`` is not a list of names

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.maintenance 'new disks'
        salt hyper1 virt.maintenance off=True
    """
    off = values.flag(off, "off")
    if reason is None and not off:
        return _mark()
    existing = host_maintenance.read()
    is_known = existing is not None and reason == existing.reason  # before reasons had a limit
    reason_text = reason if off or is_known else values.reason(reason)
    if guests and not (isinstance(guests, (list, tuple)) and {*map(type, guests)} == {str}):
        raise errors.InvalidInput("guests must be a list of names")
    # a guest that was admitted before is defined by then, a later one is refused
    with admission.AdmissionConfig(__salt__["config.get"], settings.IMAGES_FOLDER).lock():
        if off and not guests:
            host_maintenance.clear()
        else:
            existing = host_maintenance.read()
            guest_names = existing.guests if existing and guests is None else guests or ()
            host_maintenance.write(None if off else reason_text, guest_names)
        return _mark()


def _mark():
    maintenance_mark = host_maintenance.read()
    return maintenance_mark.to_answer() if maintenance_mark else None


def answer(fun, kwarg=None, **kwargs):
    """
    Call a function of this host, and sign its result or error.

    Salt does not authenticate the returns of jobs: any accepted minion could answer for this host.
    ``salt-run virt.…`` queries hosts through this function and only accepts signed answers.

    :param fun: the function: a function of ``virt``, or ``test.ping``
    :param kwarg: dictionary of its arguments

    :return: a dictionary: ``said`` (``return`` and ``retcode``, as in Salt) and ``proof``

    CLI Example:

    .. code-block:: bash

        salt hv1 virt.answer virt.vm_state
    """
    outdated = _stale_library_answer(fun, kwargs.get("__pub_jid"))
    if outdated:
        return outdated
    _check_function(fun)
    arguments = base.mapping(kwarg or {}, "kwarg")
    try:
        returned = _call(fun, arguments)
    finally:
        job_steps.clear_steps(job_steps.folder(__salt__["config.get"]))
    if returned["retcode"]:
        __context__["retcode"] = returned["retcode"]
    return proof.sign(__opts__, kwargs.get("__pub_jid"), fun, returned)


def answers(fun, each, **kwargs):
    """
    Call a function of this host several times in sequence, and sign the results or errors.
    ``salt-run virt.init`` of several guests uses it to create them in one job.

    :param fun: the function of ``virt``
    :param each: list of dictionaries: the arguments of each call

    :return: as ``virt.answer``; ``return`` is a list of ``return`` and ``retcode`` of each call

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.answers virt.vm_state each='[{vm_: web1}, {vm_: web2}]'
    """
    outdated = _stale_library_answer(fun, kwargs.get("__pub_jid"))
    if outdated:
        return outdated
    _check_function(fun)
    requests = values.list_of(base.mapping)(each, "each")
    try:
        with _events_together():
            returned = [_call(fun, arguments) for arguments in requests]
    finally:
        job_steps.clear_steps(job_steps.folder(__salt__["config.get"]))
    return proof.sign(__opts__, kwargs.get("__pub_jid"), fun, {"return": returned, "retcode": 0})


def working(jid):
    """
    Show whether this host is still running a job, and when the job made its last step.

    :param jid: the job's id

    :return: {} if it is not running; otherwise a dictionary: ``pid`` and, if the job has made a
        step, ``quiet_s`` (seconds since the last step) and ``within_s`` (timeout of the current
        step in seconds)

    CLI Example:

    .. code-block:: bash

        salt hv1 virt.working 20261121010203000001
    """
    running_job = __salt__["saltutil.find_job"](str(jid))
    if not running_job:
        return {}
    return {
        "pid": running_job["pid"],
        **job_steps.last_step(job_steps.folder(__salt__["config.get"]), running_job["pid"]),
    }


def _events_together():
    """Send the events of steps in batches during the block; ``salt-call``, which is not the minion,
    sends each one."""
    if __opts__.get("__cli") == "salt-call":
        return contextlib.nullcontext()
    return job_steps.batch_events(functools.partial(events.send_all, {**__opts__}))


def _stale_library_answer(fun, jid):
    """Answer for a process that started before a sync and has not imported the library yet: the new
    library signs that the old one is refused. Without a signature, the runner would report that
    another minion may have answered. None if the library is current."""
    try:
        _ = errors.VirtError  # the first use of the library
    except Exception as exc:
        if type(exc).__name__ != "StaleLibrary":
            raise
        log.info("%s: %s", fun, exc)
        saltvirt.fresh()
        sign = importlib.import_module("saltvirt.fleet.proof").sign
        return sign(__opts__, jid, fun, {"return": f"ERROR: {exc}", "retcode": 1})
    return None


def _check_function(fun):
    """Raise InvalidInput for a function that the runner does not call."""
    if not isinstance(fun, str) or not (fun.startswith("virt.") or fun in _EXTRA_FUNCTIONS):
        raise errors.InvalidInput(
            f"fun={units.short_repr(fun)}: must be a function of virt, or {_EXTRA_FUNCTIONS[0]}"
        )


def _call(fun, kwarg):
    """Call a function; return ``return`` and ``retcode``, with errors as Salt formats them, and
    ``others``: the parts about other guests, see saltvirt.rights.confidential."""
    # Salt loads all modules of the minion before it reports that a function is missing
    if not calls.is_handled(fun) and fun not in __salt__:
        return {"return": f"'{fun}' is not available.", "retcode": 1}
    with confidential.collect() as parts:
        returned = _returned(fun, kwarg)
    confidential_parts = confidential.to_answer(parts)
    return {**returned, "others": confidential_parts} if confidential_parts else returned


def _returned(fun, kwarg):
    """Call a function; return ``return`` and ``retcode``."""
    try:
        if calls.is_handled(fun):
            host = calls.MinionContext(__opts__, __salt__)
            return {"return": calls.answer(host, fun, kwarg), "retcode": 0}
        return {"return": __salt__[fun](**kwarg), "retcode": 0}
    except Exception as exc:
        if _is_user_error(exc):
            log.info("%s: %s", fun, exc)
            return {"return": f"ERROR: {exc}", "retcode": 1}
        if description := full_disk.describe(exc):
            log.error("%s: %s", fun, description)
            return {"return": f"ERROR: {description}", "retcode": 1}
        log.exception("%s", fun)
        message = f"internal error: {exc!r} (the host's minion log has the traceback)"
        return {"return": message, "retcode": 1}


def _is_user_error(exc):
    """Whether an exception was raised for the user: one of Salt's, like all exceptions of Salt
    Virt."""
    return any(kind.__name__ == "SaltException" for kind in type(exc).__mro__)


def tls_info(basepath="/etc/pki"):
    """
    Show the installed certificates, the trusted CAs, and whether the daemon uses them. Keys are not
    shown.

    :param basepath: folder that contains ``CA``, ``libvirt`` and ``qemu``

    :return: ``certs``: use (``server``, ``client``, ``qemu-server``, ``qemu-client``) to
        ``subject``, ``issuer``, ``serial``, ``names``, ``not_before``, ``not_after`` (UTC) and
        ``sha256``; ``trusted``: SHA-256 of the CA certificates; ``daemon``: ``serves``,
        ``does not listen`` or why a TLS handshake failed; ``problems``: one sentence for each
        problem

    CLI Example:

    .. code-block:: bash

        salt 'hv*' virt.tls_info
    """
    return certificate_info.info(__opts__["id"], basepath)


def tls_update(basepath="/etc/pki", reload=None, test=False, **kwargs):
    """
    Fetch certificates from the master, install them and make the daemon load them, like the state
    ``virt.keys``, with the same parameters.

    :param basepath: folder that contains ``CA``, ``libvirt`` and ``qemu``
    :param reload: whether the daemon reloads them, as for the state ``virt.keys``
    :param test: only show what would change; nothing is created, here or on the master

    :return: ``changes``: file to the action; ``notes``: sentences; and ``info``: as
        ``virt.tls_info``, after the change

    :raises PkiError: the master issues no certificates; the message has the reason

    CLI Example:

    .. code-block:: bash

        salt 'hv*' virt.tls_update
    """
    requested = converge.requests(settings.user_kwargs(kwargs))
    host = converge.TlsHost(__opts__["id"], _pillar_ext, basepath, requested, reload)
    outcome = converge.plan(host) if test else converge.converge(host)
    return {
        "changes": outcome.changes,
        "notes": outcome.notes,
        "info": certificate_info.info(__opts__["id"], basepath),
    }


def tls_allowed():
    """
    Return the value of ``tls_allowed_dn_list`` that only admits the hypervisors of this cluster:
    the names in their client certificates, in the orders that different releases of libvirt use.
    Revoked hosts are not included.

    :return: list of patterns

    CLI Example:

    .. code-block:: bash

        salt hv1 virt.tls_allowed
    """
    return request.patterns(request.subjects(_pillar_ext, __opts__["id"]))


def _pillar_ext(external):
    return client.ask(__salt__["pillar.ext"], external)
