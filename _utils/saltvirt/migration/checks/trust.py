"""The certificates that the two hosts show each other hold now."""

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
    """Those of them that a migration over this transport needs, as a list.

    certificates: ``source`` and ``target`` to what saltvirt.pki.host.validity says of them.
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
    """A sentence for each that does not hold."""
    for certificate in required(certificates, transport):
        if certificate.wrong:
            yield (
                f"{certificate.file} on {certificate.host} {certificate.wrong}: apply "
                f"libvirt.keys there"
            )


def reasons(guest: GuestReport, host: TargetReport, request: CheckedMigration) -> Iterator[str]:
    yield from invalid_reasons(request.certificates, request.transport)
