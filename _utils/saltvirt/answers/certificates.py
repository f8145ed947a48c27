"""Answers about the certificates of a host."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from saltvirt.schema import Message


@dataclass(frozen=True)
class InstalledCertificate(Message):
    """A certificate that is installed on a host. issuer: distinguished name. sha256: fingerprint in
    hexadecimal digits."""

    issuer: str
    sha256: str


@dataclass(frozen=True)
class CertificateInfo(Message):
    """Answer of `virt.tls_info`. certs: use to the certificate. trusted: fingerprints of the CA
    certificates. daemon: `serves`, `does not listen` or an error. problems: sentences."""

    certs: dict[str, InstalledCertificate]
    trusted: tuple[str, ...]
    daemon: str
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class CertificateUpdate(Message):
    """Answer of `virt.tls_update`. changes: file to the action. info: after the change."""

    info: CertificateInfo
    changes: dict[str, Any] = field(default_factory=dict)
