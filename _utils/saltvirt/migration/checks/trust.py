"""The certificates of the two hosts are valid now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from saltvirt.answers.migration import Certificate
from saltvirt.migration.facts import GuestReport, TargetReport
from saltvirt.migration.transport import Transport

if TYPE_CHECKING:
    from saltvirt.migration.checks.request import CheckedMigration


def required(
    certificates: Mapping[str, Mapping[str, Certificate]], transport: Transport
) -> list[Certificate]:
    """Return the certificates that a migration over this transport needs.

    certificates: the results of saltvirt.pki.host.validity for ``source`` and ``target``.
    """
    libvirt, qemu = transport.scheme == "tls", transport.native_tls
    requirements = (
        ("source", "client", libvirt), ("source", "qemu-client", qemu),
        ("target", "server", libvirt), ("target", "qemu-server", qemu),
    )  # fmt: skip
    return [
        certificates[end][use]
        for end, use, is_used in requirements
        if is_used and use in certificates.get(end, {})
    ]


def invalid_reasons(
    certificates: Mapping[str, Mapping[str, Certificate]], transport: Transport
) -> Iterator[str]:
    """Yield a sentence for each certificate that is not valid."""
    for certificate in required(certificates, transport):
        if certificate.problem:
            yield (
                f"{certificate.file} on {certificate.host} {certificate.problem}: apply "
                f"libvirt.keys there"
            )


def reasons(guest: GuestReport, host: TargetReport, request: CheckedMigration) -> Iterator[str]:
    yield from invalid_reasons(request.certificates, request.transport)
