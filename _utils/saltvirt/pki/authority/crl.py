"""Revoked certificates and the signed lists (CRLs) of them."""

from __future__ import annotations

import contextlib
import datetime
from typing import TYPE_CHECKING, TypedDict

from cryptography import x509

from saltvirt.errors import NotFound, PkiError
from saltvirt.pki.authority import ca
from saltvirt.pki.authority.store import AUTHORITIES, USES
from saltvirt.pki.common import certs, files
from saltvirt.system import atomic_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from saltvirt.pki.authority.ca import Authority
    from saltvirt.pki.authority.store import CertificateStore


class Revoked(TypedDict):
    """A revoked certificate: its host, when it was revoked, and when it expires."""

    host: str
    revoked: str
    not_after: str


class RevocationRecord(TypedDict):
    """``hosts``: ids of hosts that receive no certificates. ``serials``: revoked certificates by
    serial number in hex."""

    hosts: list[str]
    serials: dict[str, Revoked]


RECORD = "revoked.json"
# a folder in the host's folder: the host receives no certificates, from before they are revoked
_BAN = ".banned"


def record(store: CertificateStore) -> RevocationRecord:
    """The revocation record; empty if nothing is revoked."""
    return {"hosts": [], "serials": {}, **store.record(RECORD, {})}


def banned(store: CertificateStore, host: str) -> bool:
    """Whether the host receives no certificates. Reliable only under the host's lock."""
    return (store.host(host) / _BAN).exists() or host in record(store)["hosts"]


def revoked_serials(store: CertificateStore) -> set[str]:
    """The serial numbers (lower hex) of all revoked certificates."""
    return set(record(store)["serials"])


def revoke(store: CertificateStore, host: str, is_hypervisor: bool = False) -> int:
    """Revoke every certificate that was issued to the host, and return their number.

    is_hypervisor: the host may never have had a certificate. The host is banned before the lock is
    acquired, so that no new certificate is issued meanwhile. Raises NotFound for a host that never
    had any, and PkiError if a CA may not sign CRLs: then the host receives no new certificates, but
    its current ones keep working.
    """
    folder = store.host(host)
    _require_known(store, host, is_hypervisor)
    files.folder(folder)
    files.folder(folder / _BAN)
    atomic_file.sync(folder)
    with store.exclusive():
        issued = _issued_certs(folder)
        revocations = record(store)
        revocations["hosts"] = sorted({*revocations["hosts"], host})
        for cert in issued:
            revocations["serials"].setdefault(
                certs.serial(cert),
                {
                    "host": host,
                    "revoked": store.now().isoformat(),
                    "not_after": certs.not_after(cert).isoformat(),
                },
            )
        store.write_record(RECORD, revocations)
        if issued:
            rebuild(store)
    if issued:
        _check_may_sign(store)
    return len(issued)


def revocable(store: CertificateStore, host: str, is_hypervisor: bool = False) -> int:
    """Return the number of certificates that ``revoke`` would revoke. Raises as ``revoke`` does."""
    _require_known(store, host, is_hypervisor)
    count = len(_issued_certs(store.host(host)))
    if count:
        _check_may_sign(store)
    return count


def _require_known(store: CertificateStore, host: str, is_hypervisor: bool) -> None:
    if not store.host(host).is_dir() and not is_hypervisor:
        raise NotFound(
            f"{host} never had a certificate; hosts with certificates: {_host_list(store)}"
        )


def _check_may_sign(store: CertificateStore) -> None:
    for name in AUTHORITIES:
        if not may_sign(ca.read(store, name)):
            raise PkiError(
                f"the {name} CA may not sign CRLs (its key usage lacks cRLSign). The host "
                "can request no new certificates, but its current ones work until the CA "
                "is replaced: run salt-run virt.rotate_ca"
            )


def may_sign(authority: Authority) -> bool:
    """Whether GnuTLS accepts a CRL of this CA. A CRL that it does not accept prevents libvirtd from
    listening at all."""
    try:
        usage = authority.cert.extensions.get_extension_for_class(x509.KeyUsage).value
    except x509.ExtensionNotFound:
        return True
    return usage.crl_sign


def _host_list(store: CertificateStore) -> str:
    return ", ".join(store.hosts()) or "none"


def readmit(store: CertificateStore, host: str) -> None:
    """Allow the host to request new certificates; the revoked ones stay revoked."""
    with store.exclusive():
        revocations = record(store)
        require_revoked(store, host)
        revocations["hosts"] = [name for name in revocations["hosts"] if name != host]
        store.write_record(RECORD, revocations)
        with contextlib.suppress(FileNotFoundError):
            (store.host(host) / _BAN).rmdir()


def require_revoked(store: CertificateStore, host: str) -> None:
    """Raise NotFound if the host is not revoked."""
    if not banned(store, host):
        revoked_hosts = ", ".join(record(store)["hosts"]) or "none"
        raise NotFound(f"{host} is not revoked; revoked: {revoked_hosts}")


def _issued_certs(folder: Path) -> list[x509.Certificate]:
    """All certificates in a host's folder, without duplicates."""
    paths = [*(folder / "issued").glob("*.pem"), *(folder / use.cert for use in USES)]
    issued = []
    for path in paths:
        with contextlib.suppress(PkiError):
            issued += certs.load_certs(files.read(path))
    return ca.unique(issued)


def outdated(store: CertificateStore) -> bool:
    """Whether a CRL is missing, damaged, or incomplete."""
    expected = revoked_serials(store)
    if not expected:
        return False
    for name, prefix in AUTHORITIES.items():
        issuers = {key.cert.subject for key in _signers(store, name)}
        lists = _read(store.path(f"{prefix}crl.pem"))
        if {item.issuer for item in lists} != issuers:
            return True
        if any({f"{entry.serial_number:x}" for entry in item} != expected for item in lists):
            return True
    return False


def _read(path: Path) -> list[x509.CertificateRevocationList]:
    """The CRLs in a file; none if it is missing or damaged."""
    lists = []
    for part in (files.read(path) or b"").split(b"-----BEGIN X509 CRL-----")[1:]:
        try:
            lists.append(x509.load_pem_x509_crl(b"-----BEGIN X509 CRL-----" + part))
        except ValueError:
            return []
    return lists


def rebuild(store: CertificateStore) -> None:
    """Write the CRLs of every CA that hosts may trust. Hold the exclusive lock."""
    revocations = record(store)
    now, oldest_start = store.now(), ca.oldest_start(store).isoformat()
    serials = {k: v for k, v in revocations["serials"].items() if v["not_after"] > oldest_start}
    if serials != revocations["serials"]:
        store.write_record(RECORD, {**revocations, "serials": serials})
    for name, prefix in AUTHORITIES.items():
        path = store.path(f"{prefix}crl.pem")
        signers = _signers(store, name)
        if serials and signers:
            files.write(path, b"".join(_signed(signer, serials, now) for signer in signers))
        else:
            path.unlink(missing_ok=True)


def _signers(store: CertificateStore, name: str) -> list[Authority]:
    """The CAs of that name whose key exists: the current, the next and the old one. None if one of
    them may not sign CRLs: given a CRL of another CA, OpenSSL refuses everything that this CA has
    signed."""
    authorities = []
    for generation in ("", "next-", "old-"):
        if generation and not store.path("rotation.json").exists():
            continue
        if all(path.exists() for path in ca.paths(store, name, generation)):
            authorities.append(ca.read(store, name, generation))
    return authorities if all(map(may_sign, authorities)) else []


def _signed(authority: Authority, serials: Mapping[str, Revoked], now: datetime.datetime) -> bytes:
    """One CRL. It does not expire before its CA, because GnuTLS refuses every peer if its CRL has
    expired."""
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(authority.cert.subject)
        .last_update(max(now - certs.BACKDATE, certs.not_before(authority.cert)))
        .next_update(max(certs.not_after(authority.cert), now + datetime.timedelta(days=1)))
        .add_extension(x509.CRLNumber(int(now.timestamp())), critical=False)
        .add_extension(certs.authority_identifier(authority.cert), critical=False)
    )
    for serial, entry in sorted(serials.items()):
        builder = builder.add_revoked_certificate(
            x509.RevokedCertificateBuilder()
            .serial_number(int(serial, 16))
            .revocation_date(datetime.datetime.fromisoformat(entry["revoked"]))
            .build()
        )
    return certs.cert_pem(builder.sign(authority.key, certs.digest(authority.key)))
