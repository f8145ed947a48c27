"""Undefine a domain, with the files that libvirt itself keeps for it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from xml.etree import ElementTree

from saltvirt import errors
from saltvirt.answers.creation import Phase
from saltvirt.host import connection
from saltvirt.host.connection import libvirt
from saltvirt.host.domain import creation, lookup, metadata, snapshot_state
from saltvirt.host.storage import files, usage

# an older daemon or another driver rejects unknown flags
_FLAGS_UNKNOWN = ("VIR_ERR_INVALID_ARG", "VIR_ERR_NO_SUPPORT", "VIR_ERR_OPERATION_UNSUPPORTED")

# later than any clock
_NEVER = "9999"
NOT_PROVEN = "firmware variables in a file that is not proven to belong to"


def _flags(*names: str) -> int:
    return sum(getattr(libvirt, f"VIR_DOMAIN_UNDEFINE_{name}", 0) for name in names)


@contextlib.contextmanager
def variables(conn: libvirt.virConnect, dom: libvirt.virDomain) -> Iterator[str]:
    """For the block, return how to treat the file of firmware variables: NVRAM (deleted), or
    KEEP_NVRAM if it is not proven that the file belongs to the guest and nothing else uses it.

    A file that is older than a guest whose creation was never completed is kept: it is an earlier
    guest's.
    """
    with usage.prevent_open(conn, _variables(dom)) as claims:
        reasons = _retention_reasons(conn, dom, claims)
        yield "KEEP_NVRAM" if any(reasons.values()) else "NVRAM"


def variables_plan(
    conn: libvirt.virConnect, dom: libvirt.virDomain
) -> tuple[list[str], dict[str, str]]:
    """Return (files of firmware variables that are deleted with the definition, {path: reason} of
    files that are kept). Change nothing."""
    reasons = _retention_reasons(conn, dom, dict.fromkeys(_variables(dom)))
    retained = {path: reason for path, reason in reasons.items() if reason}
    if not retained:
        return sorted(reasons), {}
    shared_reason = f"{', '.join(sorted(retained))} was not deleted"
    return [], {path: reason or shared_reason for path, reason in reasons.items() if path}


def _variables(dom: libvirt.virDomain) -> list[str]:
    """Return the files of firmware variables in the definitions of a guest; "" for variables that
    are not in a file."""
    trees = [ElementTree.fromstring(text) for text in usage.domain_xmls(dom)]
    paths = {files.variables_of(tree) for tree in trees}
    return sorted(path for path in paths if path is not None)


def _retention_reasons(
    conn: libvirt.virConnect, dom: libvirt.virDomain, claims: Mapping[str, str | None]
) -> dict[str, str | None]:
    """Return {path: reason to keep it or None} for each existing file of firmware variables.
    claims: from usage.prevent_open."""
    reasons = {path: reason for path, reason in claims.items() if usage.is_there(conn, path)}
    if not reasons:
        return {}
    used = usage.read(conn, dom.UUIDString(), images=False)
    for path, reason in reasons.items():
        shared = usage.others_may_have(conn, path)
        foreign = not files.are_own_variables(path, dom.name())
        older = _is_older(dom, path)
        reasons[path] = (
            reason
            or used.keep_reason(usage.keys_of(conn, path))
            or (f"other hosts may use it ({shared})" if shared else None)
            or (f"{NOT_PROVEN} {dom.name()}" if foreign else None)
            or (f"it is older than {dom.name()}, whose creation never ended" if older else None)
        )
    return reasons


def _is_older(dom: libvirt.virDomain, path: str) -> bool:
    """Return whether a file existed before the creation of an incomplete guest; also if that is
    unknown."""
    created_times = _incomplete_since(
        ElementTree.fromstring(text) for text in usage.domain_xmls(dom)
    )
    if not created_times:
        return False
    try:
        written = os.stat(path).st_mtime
    except OSError:
        return True
    written_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(written))
    return any(written_at < created for created in created_times)


def _incomplete_since(trees: Iterable[ElementTree.Element]) -> list[str]:
    """Return when the creation of an incomplete guest began, for each of its definitions."""
    incomplete = [tree for tree in trees if creation.of_tree(tree) is not Phase.COMPLETE]
    return [metadata.of_tree(tree).created or _NEVER for tree in incomplete]


def tpm(conn: libvirt.virConnect, dom: libvirt.virDomain) -> str | None:
    """Return how to treat the state of an emulated TPM: TPM (deleted) or KEEP_TPM; None without
    such a TPM.

    The state is kept if other hosts may use it; if the definition names a folder other than
    libvirt's own for the guest, because libvirt deletes everything in the folder; and for an
    incomplete guest, because the state is that of an earlier guest with the same UUID, which a
    backup was to restore. Without KEEP_TPM libvirt deletes the state with the definition.
    """
    trees = [ElementTree.fromstring(text) for text in usage.domain_xmls(dom)]
    backends = [
        backend for t in trees for backend in t.iterfind("devices/tpm/backend[@type='emulator']")
    ]
    if not backends:
        return None
    default_path = f"{files.TPM_STATE}/{dom.UUIDString()}"
    sources = (backend.find("source") for backend in backends)
    paths = {
        default_path if source is None else source.get("path", default_path) for source in sources
    }
    never_whole = bool(_incomplete_since(trees))
    shared = any(usage.others_may_have(conn, path) for path in paths)
    foreign = {files.real(path) for path in paths} != {files.real(default_path)}
    return "KEEP_TPM" if shared or never_whole or foreign else "TPM"


def _attempts(everything: bool, nvram: str, state: str | None) -> list[int]:
    if not everything:
        return [_flags(nvram, *(["KEEP_TPM"] if state else [])), _flags(nvram), 0]
    basic = _flags("MANAGED_SAVE", "SNAPSHOTS_METADATA", nvram)
    checkpoints = basic | _flags("CHECKPOINTS_METADATA")
    first = checkpoints | _flags(state or "TPM")
    return [first, checkpoints, basic, basic & ~_flags(nvram), 0]


def ask(dom: libvirt.virDomain, attempts: Iterable[int]) -> None:
    """Undefine the domain with the first of these flags that libvirt supports."""
    unknown = {getattr(libvirt, name) for name in _FLAGS_UNKNOWN}
    attempts = list(dict.fromkeys(attempts))
    for flags in attempts:
        try:
            dom.undefineFlags(flags)
            return
        except libvirt.libvirtError as exc:
            if exc.get_error_code() not in unknown or flags == attempts[-1]:
                raise


def undefine(conn: libvirt.virConnect, dom: libvirt.virDomain, everything: bool = False) -> bool:
    """Undefine a stopped domain, and confirm that it is gone.

    Its NVRAM is deleted unless another guest may use the file. Saved memory and snapshots are
    deleted only with ``everything``; otherwise libvirt refuses while they exist. TPM state is
    deleted with ``everything``, unless other hosts may use it.
    """
    name, uuid = dom.name(), dom.UUIDString()
    if dom.isActive():
        raise errors.OperationFailed(f"cannot undefine {name}: it is running; stop it first")
    with connection.translated(f"undefine {name}"), variables(conn, dom) as nvram:
        ask(dom, _attempts(everything, nvram, tpm(conn, dom)))
    if lookup.find(conn, name):
        raise errors.OperationFailed(f"cannot undefine {name}: libvirt still lists it")
    snapshot_state.forget_all(uuid)
    return True
