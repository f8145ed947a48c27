"""Translate a migration request to the names of libvirt's flags and parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from saltvirt.answers.migration import Certificate
from saltvirt.migration import incoming_address
from saltvirt.migration.facts import GuestReport, TargetReport
from saltvirt.migration.options import MigrationSettings, Options
from saltvirt.migration.transport import Transport

MIB = 1024 * 1024
# the first libvirt that can discard the zeroes of a copied disk
ZEROES_SINCE = 10009000


def flags(
    options: Options,
    transport: Transport,
    storage: str | None,
    live: bool,
    proven_shared: bool = False,
) -> set[str]:
    """Return the names of the VIR_MIGRATE_* flags, as a set.

    storage: "all", "incremental" or None, the copy mode; live: whether the guest keeps running
    while its memory is transferred; proven_shared: disks stay in place on storage that our checks
    verified as shared and coherent.
    """
    flag_names = {"PEER2PEER"}
    flag_names |= {"LIVE"} if live else set()
    flag_names |= {"TUNNELLED"} if transport.tunnelled else set()
    flag_names |= {"TLS"} if transport.native_tls else set()
    flag_names |= {"UNSAFE"} if proven_shared else set()
    flag_names |= _by_option(options, live)
    if storage:
        flag_names.add("NON_SHARED_DISK" if storage == "all" else "NON_SHARED_INC")
    return flag_names


def _by_option(options: Options, live: bool) -> set[str]:
    by_name = {
        "PERSIST_DEST": options.persistent,
        "UNDEFINE_SOURCE": options.undefinesource,
        "COMPRESSED": options.compressed,
        "PARALLEL": options.parallel_connections,
        "POSTCOPY": live and (options.postcopy or options.policy == "postcopy"),
        "AUTO_CONVERGE": live and (options.auto_converge or options.policy == "converge"),
        "ABORT_ON_ERROR": options.abort_on_error,
    }
    return {name for name, enabled in by_name.items() if enabled}


def discarding(guest: GuestReport, host: TargetReport, disks: Iterable[str]) -> list[str]:
    """Return the disks (target names) whose holes are preserved if libvirt is asked for it.

    These are disks with ``discard: unmap``, if both libvirts support it. Older QEMUs preserve holes
    by themselves; newer ones (seen: 10.0) otherwise fill a raw disk.
    """
    if min(guest.libvirt, host.libvirt) < ZEROES_SINCE:
        return []
    discardable = {disk.target for disk in guest.disks if disk.discard == "unmap"}
    return [disk for disk in disks if disk in discardable]


def tls_destination(
    transport: Transport,
    hostname: str,
    certificates: Mapping[str, Mapping[str, Certificate]] | None = None,
) -> str | None:
    """Return the name for which the source's QEMU verifies the certificate of the target's QEMU;
    None if QEMU does not encrypt.

    Certificates are issued for minion ids. Without a name libvirt verifies the host of the URI at
    which QEMU is reached: an address, or the target's kernel host name. certificates: as the hosts
    reported them, each with its host's minion id. hostname: libvirt's name of the target, used over
    SSH, where the operator's URI need not be a name in the certificate.
    """
    if not transport.native_tls:
        return None
    reported = (certificates or {}).get("target", {})
    ids = [reported[use].host for use in ("qemu-server", "server") if use in reported]
    return next(iter(ids), transport.host if transport.scheme == "tls" else hostname)


def parameters(
    options: Options,
    disks: Iterable[str],
    configured: MigrationSettings,
    zeroes: Iterable[str] = (),
    destination: str | None = None,
) -> dict[str, Any]:
    """Return libvirt's typed migration parameters by their VIR_MIGRATE_PARAM_* names.

    disks: target names (``vda``) of the disks to copy; zeroes: see discarding. destination: see
    tls_destination.
    """
    values = {
        "BANDWIDTH": options.max_bandwidth or configured.bandwidth,
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
        "MIGRATE_DISKS_DETECT_ZEROES": list(zeroes),
        "URI": incoming_address.uri(configured.address),
        "TLS_DESTINATION": destination,
    }
    return {name: value for name, value in values.items() if value not in (None, [])}
