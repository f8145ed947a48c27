"""Which certificates are revoked, and the signed lists that say so."""

from __future__ import annotations

import contextlib
import datetime
from typing import TYPE_CHECKING, TypedDict

from cryptography import x509

from saltvirt.errors import NotFound, PkiError
from saltvirt.pki.authority import ca
from saltvirt.pki.authority.store import AUTHORITIES, USES
from saltvirt.pki.common import certs, files

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from saltvirt.pki.authority.ca import Authority
    from saltvirt.pki.authority.store import CertificateStore


class Revoked(TypedDict):
    """A revoked certificate: whose it was, since when, and until when it would have held."""

    host: str
    revoked: str
    not_after: str


class RevocationRecord(TypedDict):
    """The ids of hosts that get nothing, and what is revoked, by serial in hex."""

    hosts: list[str]
    serials: dict[str, Revoked]


RECORD = "revoked.json"
# a folder in a host's own: it gets nothing, from before its certificates are revoked
_BAN = ".banned"


def record(store: CertificateStore) -> RevocationRecord:
    """``hosts``: ids that get nothing. ``serials``: what is revoked, by serial in hex."""
    return {"hosts": [], "serials": {}, **store.record(RECORD, {})}


def banned(store: CertificateStore, host: str) -> bool:
    """True for a host that gets nothing. Certain under the host's lock alone."""
    return (store.host(host) / _BAN).exists() or host in record(store)["hosts"]


def revoked_serials(store: CertificateStore) -> set[str]:
    """The serial numbers (lower hex) of all revoked certificates."""
    return set(record(store)["serials"])


def revoke(store: CertificateStore, host: str, is_hypervisor: bool = False) -> int:
    """Revokes every certificate that the host was ever given. How many that were.

    is_hypervisor: it is a hypervisor, also if it never had a certificate.

    It is banned before the lock is waited for: who asks meanwhile gets nothing new.
    Raises NotFound for a host that never had any, and PkiError when a CA may not sign
    lists: then the host gets no new certificates, but its present ones go on working.
    """
    folder = store.host(host)
    if not folder.is_dir() and not is_hypervisor:
        raise NotFound(f"{host} was never given a certificate; known: {_host_list(store)}")
    files.folder(folder)
    files.folder(folder / _BAN)
    files.sync_folder(folder)
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


def _check_may_sign(store: CertificateStore) -> None:
    for name in AUTHORITIES:
        if not may_sign(ca.read(store, name)):
            raise PkiError(
                f"the {name} CA may not sign lists of revoked certificates (its key usage lacks "
                "cRLSign). The host gets no new certificates, but its present ones work until "
                "the CA is another: run salt-run virt.rotate_ca"
            )


def may_sign(authority: Authority) -> bool:
    """True when GnuTLS would believe a list of this CA: a list it does not believe keeps
    libvirtd from listening at all."""
    try:
        usage = authority.cert.extensions.get_extension_for_class(x509.KeyUsage).value
    except x509.ExtensionNotFound:
        return True
    return usage.crl_sign


def _host_list(store: CertificateStore) -> str:
    return ", ".join(store.hosts()) or "no host at all"


def readmit(store: CertificateStore, host: str) -> None:
    """Lets the host have new certificates; the revoked ones stay revoked."""
    with store.exclusive():
        revocations = record(store)
        if not banned(store, host):
            raise NotFound(
                f"{host} is not revoked; revoked: {', '.join(revocations['hosts']) or 'none'}"
            )
        revocations["hosts"] = [name for name in revocations["hosts"] if name != host]
        store.write_record(RECORD, revocations)
        with contextlib.suppress(FileNotFoundError):
            (store.host(host) / _BAN).rmdir()


def _issued_certs(folder: Path) -> list[x509.Certificate]:
    """All certificates of a host's folder, each once."""
    paths = [*(folder / "issued").glob("*.pem"), *(folder / use.cert for use in USES)]
    issued = []
    for path in paths:
        with contextlib.suppress(PkiError):
            issued += certs.load_certs(files.read(path))
    return ca.unique(issued)


def outdated(store: CertificateStore) -> bool:
    """True when a list is missing, damaged, or does not list what is revoked."""
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
    """The lists in a file; none where it is missing or damaged."""
    lists = []
    for part in (files.read(path) or b"").split(b"-----BEGIN X509 CRL-----")[1:]:
        try:
            lists.append(x509.load_pem_x509_crl(b"-----BEGIN X509 CRL-----" + part))
        except ValueError:
            return []
    return lists


def rebuild(store: CertificateStore) -> None:
    """Writes the lists anew, of every CA that hosts may trust. Hold the exclusive lock."""
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
    """The CAs of that name whose key is here: the present, the next and the old one. None where
    one of them may not sign: OpenSSL, with a list of another CA, refuses all that it has signed,
    and what it has signed is all that could be listed."""
    authorities = []
    for generation in ("", "next-", "old-"):
        if generation and not store.path("rotation.json").exists():
            continue
        if all(path.exists() for path in ca.paths(store, name, generation)):
            authorities.append(ca.read(store, name, generation))
    return authorities if all(map(may_sign, authorities)) else []


def _signed(authority: Authority, serials: Mapping[str, Revoked], now: datetime.datetime) -> bytes:
    """One list. It never expires before its CA: GnuTLS refuses everybody by an old one."""
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
