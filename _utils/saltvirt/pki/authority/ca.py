"""The certificate authorities: create, load, adopt and replace them."""

from __future__ import annotations

import datetime
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from saltvirt.errors import PkiError
from saltvirt.pki.authority.store import AUTHORITIES
from saltvirt.pki.common import certs, files

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from cryptography import x509

    from saltvirt.pki.authority.policy import CertificatePolicy
    from saltvirt.pki.authority.store import CertificateStore
    from saltvirt.pki.common.certs import PrivateKey

log = logging.getLogger(__name__)
_LONG_AGO = datetime.datetime.fromtimestamp(0, datetime.timezone.utc)


@dataclass(frozen=True)
class Authority:
    """A CA that can sign. chain: its certificate, followed by those above it."""

    name: str
    key: PrivateKey
    chain: tuple[x509.Certificate, ...]
    # further CAs that hosts must trust while one CA replaces the other
    also_trusted: tuple[x509.Certificate, ...] = ()

    @property
    def cert(self) -> x509.Certificate:
        """The CA's own certificate."""
        return self.chain[0]

    @property
    def trusted(self) -> bytes:
        """The certificates that a host must trust, as PEM."""
        return certs.cert_pem(*unique((*self.chain, *self.also_trusted)))


def unique(certificates: Iterable[x509.Certificate]) -> list[x509.Certificate]:
    """The certificates in their order, without duplicates."""
    return list({certs.fingerprint(cert): cert for cert in certificates}.values())


def paths(store: CertificateStore, name: str, generation: str = "") -> tuple[Path, Path]:
    """(key, certificate) files of an authority. generation: ``""``, ``next-`` or ``old-``."""
    prefix = AUTHORITIES[name]
    return store.path(f"{generation}{prefix}cakey.pem"), store.path(
        f"{generation}{prefix}cacert.pem"
    )


def ensure(store: CertificateStore, policy: CertificatePolicy) -> None:
    """Create missing authorities. One process creates them while others wait."""
    if not all(_complete(store, name) for name in AUTHORITIES):
        with store.exclusive():
            for name in AUTHORITIES:
                _make(store, policy, name)


def current(store: CertificateStore) -> dict[str, Authority]:
    """All authorities by name, usable now. Hold one of the store's locks.

    Raises PkiError with advice for an authority that is damaged, incomplete, or not valid now.
    """
    authorities = {name: read(store, name) for name in AUTHORITIES}
    for authority in authorities.values():
        check_time(authority.cert, store)
    return authorities


def _complete(store: CertificateStore, name: str) -> bool:
    return all(path.exists() for path in paths(store, name))


def _make(store: CertificateStore, policy: CertificatePolicy, name: str) -> None:
    """Create an authority, or finish what a killed process began. Hold the exclusive lock."""
    key_path, cert_path = paths(store, name)
    if not key_path.exists() and not cert_path.exists():
        prepare(store, policy, name)
        promote(store, name)
        log.info("created the certificate authority %s", cert_path)
    elif not cert_path.exists() and _is_prepared(store, name, key_path):
        promote(store, name)


def _is_prepared(store: CertificateStore, name: str, key_path: Path) -> bool:
    """Whether next-cacert belongs to the key that is already in place."""
    pem = files.read(paths(store, name, "next-")[1])
    return pem is not None and certs.belong_together(
        certs.load_certs(pem)[0], certs.load_key(files.read(key_path))
    )


def prepare(store: CertificateStore, policy: CertificatePolicy, name: str) -> None:
    """Write a new CA as ``next-`` beside the current one."""
    key_path, cert_path = paths(store, name, "next-")
    key = certs.new_key(policy.key)
    now = store.now()
    label = f"{policy.ca_name} {name} CA {now:%Y-%m-%d} {unique_tag(key)}"
    # virt-pki-validate expects the CA and its certificates to have the same organization
    subject = certs.subject(label, organization=policy.subject.get("organization", "Salted"))
    cert = certs.self_signed(key, subject, policy.ca_days, now)
    files.write(key_path, certs.key_pem(key))
    files.write(cert_path, certs.cert_pem(cert))


def unique_tag(key: PrivateKey) -> str:
    """Six hex digits of the key, because two CAs must never have the same name."""
    return certs.hex_digest(certs.public_bytes(key))[:6]


def promote(store: CertificateStore, name: str) -> None:
    """Move the ``next-`` CA to its place: the key first, so that a crash can be detected."""
    for source, target in zip(paths(store, name, "next-"), paths(store, name), strict=True):
        if source.exists():
            files.rename(source, target)


def read(store: CertificateStore, name: str, generation: str = "") -> Authority:
    """Load an authority from its files. Raises PkiError with advice if it is unusable."""
    key_path, cert_path = paths(store, name, generation)
    for path in (key_path, cert_path):
        if not path.exists():
            raise PkiError(f"{path} is missing: {_ADVICE}")
        if files.private(path):
            log.warning("%s was readable by others; its mode is 0600 now", path)
    try:
        key = certs.load_key(files.read(key_path))
    except PkiError as exc:
        raise PkiError(f"{key_path} is {exc}: {_ADVICE}") from exc
    try:
        chain = tuple(certs.load_certs(files.read(cert_path)))
    except PkiError as exc:
        raise PkiError(f"{cert_path} is {exc}: {_ADVICE}") from exc
    _check_pair(chain[0], key, key_path, cert_path)
    return Authority(name, key, chain, _also_trusted(store, name) if generation == "" else ())


_ADVICE = (
    "restore it from a backup; if it is lost, move cakey.pem and cacert.pem (both, or "
    "both qemu- ones) out of the folder: a new CA is created, and virt.keys must then be "
    "applied to every hypervisor"
)


def _check_pair(cert: x509.Certificate, key: PrivateKey, key_path: Path, cert_path: Path) -> None:
    if not certs.belong_together(cert, key):
        raise PkiError(
            f"the first certificate of {cert_path} does not belong to {key_path}: put the "
            "certificate of the CA that signs first, its chain after it"
        )
    if not certs.is_ca(cert):
        raise PkiError(f"the first certificate of {cert_path} is not a CA certificate")


def _also_trusted(store: CertificateStore, name: str) -> tuple[x509.Certificate, ...]:
    """The certificates of the previous and the next CA, while hosts must trust both."""
    trusted = []
    if store.path("rotation.json").exists():
        for generation in ("next-", "old-"):
            pem = files.read(paths(store, name, generation)[1])
            if pem:
                trusted += certs.load_certs(pem)
    return tuple(trusted)


def oldest_start(store: CertificateStore) -> datetime.datetime:
    """The earliest start of the CAs that hosts may trust.

    A certificate that expired before was issued by none of them. High availability ignores expiry
    dates, so it accepts a certificate that expires later.
    """
    paths_ = [
        paths(store, name, generation)[1]
        for name in AUTHORITIES
        for generation in ("", "next-", "old-")
    ]
    chains = [certs.load_certs(pem) for pem in map(files.read, paths_) if pem]
    begins = (certs.not_before(cert) for chain in chains for cert in chain)
    return min(begins, default=_LONG_AGO)


def check_time(cert: x509.Certificate, store: CertificateStore) -> None:
    """Raise PkiError unless the CA is valid now."""
    now = store.now()
    start, end = certs.not_before(cert), certs.not_after(cert)
    if now < start:
        raise PkiError(
            f"the CA is valid from {start:%Y-%m-%d}, but this master's clock says "
            f"{now:%Y-%m-%d}: set the clock"
        )
    if now >= end:
        raise PkiError(
            f"the CA expired on {end:%Y-%m-%d} (this master's clock says {now:%Y-%m-%d}): "
            "if the clock is correct, run salt-run virt.rotate_ca"
        )
