"""Show the certificates of this hypervisor and whether its daemon uses them."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saltvirt.errors import PkiError
from saltvirt.pki.common import certs, files
from saltvirt.pki.host import daemon, layout

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def info(host: str, basepath: str = "/etc/pki") -> dict[str, Any]:
    """``certs``: use to a description of its certificate; ``trusted``, ``revoked``: SHA-256 and
    serials; ``daemon``: ``serves``, ``does not listen`` or the error of TLS; ``problems``:
    messages.

    Reads keys only to check that they belong to the certificates; the result contains none.
    """
    tls_files = layout.tls_files(basepath)
    paths = {tls_file.name: tls_file.path for tls_file in tls_files}
    certificates, problems = {}, []
    for use, pair in layout.by_use(tls_files).items():
        details, faults = _pair(*pair)
        certificates[use] = details
        problems += faults
    return {
        "certs": {use: details for use, details in certificates.items() if details},
        "trusted": _trusted([paths["cacert"], paths["qemu-cacert"]], problems),
        "daemon": _daemon(host, paths, certificates),
        "problems": problems,
    }


def _pair(
    key_place: layout.TlsFile, cert_place: layout.TlsFile
) -> tuple[dict[str, Any] | None, list[str]]:
    """(description of the certificate or None, messages about errors)."""
    if not cert_place.path.exists() and not key_place.path.exists():
        return None, [f"{cert_place.path} is missing: apply virt.keys"]
    try:
        cert = certs.load_certs(files.read(cert_place.path))[0]
        key = certs.load_key(files.read(key_place.path))
    except PkiError as exc:
        return None, [f"{cert_place.path} with {key_place.path}: {exc}: apply virt.keys"]
    faults = []
    if not certs.belong_together(cert, key):
        faults.append(f"{key_place.path} does not belong to {cert_place.path}: apply virt.keys")
    if key_place.path.stat().st_mode & 0o077:
        mode = stat.S_IMODE(key_place.path.stat().st_mode)
        faults.append(f"{key_place.path} can be read by others (mode {mode:04o}): apply virt.keys")
    if certs.wrong_now(cert):
        faults.append(f"{cert_place.path} {certs.wrong_now(cert)}")
    return certs.describe(cert), faults


def _trusted(paths: Iterable[Path], problems: list[str]) -> list[str]:
    fingerprints = []
    for path in map(Path, paths):
        try:
            fingerprints += [certs.fingerprint(cert) for cert in certs.load_certs(files.read(path))]
        except PkiError as exc:
            problems.append(f"{path}: {exc}: apply virt.keys")
    return sorted(fingerprints)


def _daemon(host: str, paths: dict[str, Path], certificates: Mapping[str, Any]) -> str:
    if not daemon.listens():
        return "does not listen"
    if not certificates.get("server") or not certificates.get("client"):
        return "listens"
    return daemon.serves(host, paths.__getitem__) or "serves"
