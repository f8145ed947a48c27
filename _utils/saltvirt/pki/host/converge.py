"""Bring a hypervisor's certificates up to date: the state ``virt.keys`` without Salt."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from saltvirt.errors import InvalidInput, PkiError
from saltvirt.pki.authority.policy import PARTS
from saltvirt.pki.common import certs, files
from saltvirt.pki.host import daemon, install, layout, request

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DEFAULT = "/etc/pki"


@dataclass(frozen=True)
class TlsHost:
    """This hypervisor. reload: None means only if the files are in libvirt's folder."""

    id: str
    pillar_ext: request.PillarExt
    basepath: str = DEFAULT
    requested: dict[str, Any] = field(default_factory=dict)
    reload: bool | None = None

    @property
    def serves(self) -> bool:
        """Whether the daemon reads these files."""
        return self.basepath.rstrip("/") == DEFAULT if self.reload is None else self.reload


@dataclass
class TlsOutcome:
    """changes: descriptions that never contain a key. notes: sentences for the comment."""

    changes: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def requests(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Salt's optional parameters of virt.keys. Raises InvalidInput for any other parameter."""
    allowed = (*PARTS, "expiration_days")
    unknown = sorted(set(arguments) - set(allowed))
    if unknown:
        raise InvalidInput(
            f"unknown parameter {', '.join(unknown)}: virt.keys takes basepath, reload, "
            f"{', '.join(allowed)}"
        )
    return {key: value for key, value in arguments.items() if value is not None}


def plan(host: TlsHost) -> TlsOutcome:
    """The TlsOutcome of ``converge``, without any change."""
    response, tls_files = _fetch(host, dry=True)
    outcome = TlsOutcome()
    for item in install.differences([p for p in tls_files if not p.secret], response):
        outcome.changes[item.tls_file.name] = item.change
    for use, pair in layout.by_use(tls_files).items():
        if use in response.get("pending", ()) or not _keeps_key(
            pair[0], response.get(pair[1].source)
        ):
            for tls_file in pair:
                outcome.changes[tls_file.name] = "update" if tls_file.path.exists() else "new"
    return outcome


def _keeps_key(place_of_key: layout.TlsFile, cert_pem: str | None) -> bool:
    """Whether the existing key belongs to the certificate, or none is needed: a manually written
    pillar may have no pair for QEMU."""
    if not cert_pem:
        return place_of_key.source.startswith("qemu-")
    try:
        key = certs.load_key(files.read(place_of_key.path))
    except PkiError:
        return False
    return certs.belong_together(certs.load_certs(cert_pem.encode())[0], key)


def converge(host: TlsHost) -> TlsOutcome:
    """Install the files and make the daemon use them. Returns a TlsOutcome.

    Raises PkiError with the reason if the master returns nothing usable, a file cannot be written,
    or the daemon does not use the new certificates afterwards.
    """
    response, tls_files = _fetch(host)
    outcome = TlsOutcome()
    changes = install.differences(tls_files, response)
    install.put(changes)
    outcome.changes.update({item.tls_file.name: item.change for item in changes})
    outcome.changes.update(install.tidy_folders(tls_files))
    if host.serves:
        _serve(host, tls_files, bool(changes), outcome)
    return outcome


def _fetch(host: TlsHost, dry: bool = False) -> tuple[dict[str, Any], tuple[layout.TlsFile, ...]]:
    root = os.geteuid() == 0
    owner = (0, 0) if root else (os.geteuid(), os.getegid())
    tls_files = layout.tls_files(host.basepath, owner, layout.qemu_owner() if root else owner)
    response = request.fetch(
        host.pillar_ext, host.id, layout.by_use(tls_files), host.requested, dry
    )
    return response, tls_files


def _serve(
    host: TlsHost, tls_files: Iterable[layout.TlsFile], changed: bool, outcome: TlsOutcome
) -> None:
    """Reload the daemon if something changed or if it uses outdated certificates, then verify
    that."""
    paths = {item.name: item.path for item in tls_files}
    is_listening = daemon.listens()
    fault = daemon.serves(host.id, paths.__getitem__) if is_listening else None
    if not changed and fault is None:
        return
    outcome.notes.append(daemon.reload())
    if not is_listening:
        return
    fault = daemon.serves(host.id, paths.__getitem__)
    if fault is not None:
        raise PkiError(f"the certificates are installed but not in use: {fault}")
    outcome.changes["tls"] = "verified with a TLS handshake"
