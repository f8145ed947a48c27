"""Which of libvirt's migration flags and parameters a request means, by their names."""

MIB = 1024 * 1024


def flags(options, transport, storage, live, proven=False):
    """The names of VIR_MIGRATE_* flags, as a set.

    options: Options; transport: Transport; storage: "all", "incremental" or None for what
    is copied; live: whether the guest runs on while its memory travels; proven: disks stay
    where they are, on storage that our checks found shared and coherent.
    """
    wanted = {"PEER2PEER"}
    wanted |= {"LIVE"} if live else set()
    wanted |= {"TUNNELLED"} if transport.tunnelled else set()
    wanted |= {"TLS"} if transport.native_tls else set()
    wanted |= {"UNSAFE"} if proven else set()
    wanted |= _by_option(options, live)
    if storage:
        wanted.add("NON_SHARED_DISK" if storage == "all" else "NON_SHARED_INC")
    return wanted


def _by_option(options, live):
    asked = {
        "PERSIST_DEST": options.persistent,
        "UNDEFINE_SOURCE": options.undefinesource,
        "COMPRESSED": options.compressed,
        "PARALLEL": options.parallel_connections,
        "POSTCOPY": live and (options.postcopy or options.policy == "postcopy"),
        "AUTO_CONVERGE": live and (options.auto_converge or options.policy == "converge"),
        "ABORT_ON_ERROR": options.abort_on_error,
    }
    return {name for name, yes in asked.items() if yes}


def parameters(options, disks, network):
    """libvirt's typed parameters of a migration, by their VIR_MIGRATE_PARAM_* names.

    disks: target names (``vda``) of the disks to copy.
    network: dict of ``virt:migration``: ``address`` (where the target's QEMU is reached),
    ``disks_port``, ``bandwidth`` (MiB/s).
    """
    found = {
        "BANDWIDTH": options.max_bandwidth or network.get("bandwidth"),
        "BANDWIDTH_POSTCOPY": options.postcopy_bandwidth,
        "PARALLEL_CONNECTIONS": options.parallel_connections,
        "COMPRESSION": list(options.comp_methods),
        "COMPRESSION_MT_LEVEL": options.comp_mt_level,
        "COMPRESSION_MT_THREADS": options.comp_mt_threads,
        "COMPRESSION_MT_DTHREADS": options.comp_mt_dthreads,
        "COMPRESSION_XBZRLE_CACHE": options.comp_xbzrle_cache,
        "AUTO_CONVERGE_INITIAL": options.auto_converge_initial,
        "AUTO_CONVERGE_INCREMENT": options.auto_converge_increment,
        "MIGRATE_DISKS": list(disks),
        "DISKS_PORT": network.get("disks_port"),
        "URI": network.get("address") and f"tcp://{network['address']}",
    }
    return {name: value for name, value in found.items() if value not in (None, [])}
