"""A hypervisor's certificates as they should be: the state ``virt.keys`` without Salt."""

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
    """What is known of this hypervisor. reload: None means where it is libvirt's folder."""

    id: str
    pillar_ext: request.PillarExt
    basepath: str = DEFAULT
    requested: dict[str, Any] = field(default_factory=dict)
    reload: bool | None = None

    @property
    def serves(self) -> bool:
        """True when the daemon reads these files."""
        return self.basepath.rstrip("/") == DEFAULT if self.reload is None else self.reload


@dataclass
class TlsOutcome:
    """changes: in words, never a key. notes: sentences for the comment."""

    changes: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def requests(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Salt's optional parameters of virt.keys. Raises InvalidInput for any other."""
    known = (*PARTS, "expiration_days")
    unknown = sorted(set(arguments) - set(known))
    if unknown:
        raise InvalidInput(
            f"unknown parameter {', '.join(unknown)}: virt.keys takes basepath, reload, "
            f"{', '.join(known)}"
        )
    return {key: value for key, value in arguments.items() if value is not None}


def plan(host: TlsHost) -> TlsOutcome:
    """An TlsOutcome of what ``converge`` would change. Nothing is made or written anywhere."""
    found, places = _fetched(host, dry=True)
    outcome = TlsOutcome()
    for item in install.differences([p for p in places if not p.secret], found):
        outcome.changes[item.place.name] = item.what
    for use, pair in layout.by_use(places).items():
        if use in found.get("pending", ()) or not _keeps_key(pair[0], found.get(pair[1].source)):
            for place in pair:
                outcome.changes[place.name] = "update" if place.path.exists() else "new"
    return outcome


def _keeps_key(place_of_key: layout.TlsFile, cert_pem: str | None) -> bool:
    """True when the key that is here is the one of the certificate, or there need be none: a
    pillar made by hand may have no pair for QEMU."""
    if not cert_pem:
        return place_of_key.source.startswith("qemu-")
    try:
        key = certs.load_key(files.read(place_of_key.path))
    except PkiError:
        return False
    return certs.belong_together(certs.load_certs(cert_pem.encode())[0], key)


def converge(host: TlsHost) -> TlsOutcome:
    """Makes the files right, and the daemon serve them. An TlsOutcome.

    Raises PkiError with the reason when the master gives nothing usable, a file cannot be
    written, or the daemon does not serve the new certificates afterwards.
    """
    found, places = _fetched(host)
    outcome = TlsOutcome()
    different = install.differences(places, found)
    install.put(different)
    outcome.changes.update({item.place.name: item.what for item in different})
    outcome.changes.update(install.tidy_folders(places))
    if host.serves:
        _serve(host, places, bool(different), outcome)
    return outcome


def _fetched(host: TlsHost, dry: bool = False) -> tuple[dict[str, Any], tuple[layout.TlsFile, ...]]:
    root = os.geteuid() == 0
    owner = (0, 0) if root else (os.geteuid(), os.getegid())
    places = layout.places(host.basepath, owner, layout.qemu_owner() if root else owner)
    found = request.fetch(host.pillar_ext, host.id, layout.by_use(places), host.requested, dry)
    return found, places


def _serve(
    host: TlsHost, places: Iterable[layout.TlsFile], changed: bool, outcome: TlsOutcome
) -> None:
    """Reload where something changed or the daemon was left behind, then prove it."""
    paths = {item.name: item.path for item in places}
    up = daemon.listens()
    why = daemon.serves(host.id, paths.__getitem__) if up else None
    if not changed and why is None:
        return
    outcome.notes.append(daemon.reload())
    if not up:
        return
    why = daemon.serves(host.id, paths.__getitem__)
    if why is not None:
        raise PkiError(f"the certificates are in place but not served: {why}")
    outcome.changes["tls"] = "verified by a handshake"
